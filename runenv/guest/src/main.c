/* The event loop: frames from the host to the call they belong to, and frames of all calls back to the host.
 *
 * It owns no work itself: a command belongs to its supervisor process, a file verb to a job on a worker thread. It
 * sends only what the host has given credit for, and reads from a supervisor only when that can be passed on, so a slow
 * host slows the commands down instead of filling memory. It says nothing before the host's HELLO.
 *
 * The frames come and go over the carrier: stdin and stdout at first, a socket once the host has named one. */
#include "loop.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    CALLS_MAX = 4096,
    READ_BYTES = 64 * 1024,
    AHEAD_BYTES = 4 * 1024,          /* of it, behind the rest of a payload */
    PIPE_BYTES = 1 << 20,            /* asked of the carrier's pipes */
    SOCKET_BYTES = 1 << 20,          /* and of its socket, for what we send */
};

struct guest guest;

static int signals, jobs_event;
static int life_line = -1;            /* the carrier that was, once there is a socket: only its end means something */
static bool greeted;
static struct { uint8_t bytes[READ_BYTES]; size_t start, end; struct header header; struct chunk *payload; size_t got; } in;

/* ---- frames in ---- */

static void begin_call(const struct header *h, struct chunk *payload) {
    struct span fields = span_of(payload->data, payload->length);
    if (call_find(h->call)) breach("the host used the id of a call that is not over");
    if (!fields_valid(fields)) breach("the host sent a damaged call");
    if (call_count >= CALLS_MAX) {
        send_error(h->call, EAGAIN, "too many calls at once");
        chunk_free(payload);
        return;
    }
    struct call *c = call_new(h->call);
    if (h->channel == EXEC) {
        start_exec(c, h, payload);
        return;
    }
    struct job *job = xmalloc(sizeof *job);
    memset(job, 0, sizeof *job);
    job->call = h->call;
    job->fields = fields;
    job->request = payload;
    c->job = job;
    if (!job_begin(job, h->channel)) job_fail(job, ENOSYS, NULL, "this guest does not know the verb");
    drive(c);
}

static void take_data(struct call *c, const struct header *h, struct chunk *payload) {
    c->window -= h->length;
    if (c->window < 0) breach("the host sent more than it had credit for");
    if (c->job && c->job->takes_input) {
        queue_push(&c->inbox, payload);
        drive(c);
    } else if (c->fd >= 0) queue_to_supervisor(c, h, payload);
    else chunk_free(payload);
}

/* Goes on over a socket of the host's, which is told the token; or says why not, and stays. */
static void move_carrier(struct span fields) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct span path, token;
    if (!fields_valid(fields) || !field_bytes(fields, T_PATH, &path) || !field_bytes(fields, T_TOKEN, &token)
        || !path.length || path.length >= sizeof address.sun_path || memchr(path.at, 0, path.length) || token.length != TOKEN_BYTES)
        breach("the host sent a damaged connect");
    if (life_line >= 0 || call_count || out.first || in.start < in.end) breach("the host moved a link that is in use");
    memcpy(address.sun_path, path.at, path.length);
    struct builder b = {0};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address)) {
        build_number(&b, T_ERRNO, errno);
        if (fd >= 0) close(fd);
    } else {
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &(int){SOCKET_BYTES}, sizeof(int));
        life_line = carrier_in;
        carrier_in = carrier_out = fd;   /* what was carrier_out stays open: its end would be that of the life line */
        build_bytes(&b, T_TOKEN, token.at, token.length);
    }
    send_fields(0, CONNECT, &b);
}

static void take_frame(const struct header *h, struct chunk *payload) {
    struct call *c = h->kind == CALL ? NULL : call_find(h->call);
    switch (h->kind) {
    case CALL: begin_call(h, payload); return;
    case PING: send_bytes(h->call, PONG, 0, NULL, 0); break;
    case BYE: leave(0); break;
    case CONNECT: move_carrier(span_of(payload->data, payload->length)); break;
    case DATA:
        if (!c) break;
        take_data(c, h, payload);
        return;
    case END:
        if (!c) break;
        c->input_ended = true;
        if (c->fd < 0) break;
        queue_to_supervisor(c, h, payload);
        return;
    case CANCEL:
        if (!c) break;
        if (c->job) atomic_store(&c->job->cancelled, true);
        if (c->fd < 0) break;
        cancel_exec(c, h, payload);
        return;
    case CREDIT:
        if (c && payload->length == 4)
            c->credit += get32(payload->data);
        break;
    default: breach("the host sent a frame that only a guest sends");
    }
    if (c) drive(c);
    chunk_free(payload);
}

static void complete_frame(void) {
    struct chunk *payload = in.payload;
    in.payload = NULL;
    if (!greeted) {
        if (in.header.kind != HELLO) _exit(EXIT_BREACH);
        greeted = true;
        say_hello(span_of(payload->data, payload->length));
        chunk_free(payload);
    } else take_frame(&in.header, payload);
}

/* Reads what the host sent; false at its end. The rest of a payload is read into place, and with it only the beginning
 * of what follows: what comes through the buffer is copied once more. */
static bool read_carrier(void) {
    size_t rest = in.payload ? in.header.length - in.got : 0;
    struct iovec parts[] = {
        {in.payload ? in.payload->data + in.got : NULL, rest},
        {in.bytes + in.end, (in.payload ? AHEAD_BYTES : sizeof in.bytes) - in.end}};
    ssize_t n = readv(carrier_in, parts, 2);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    if (n == 0) return false;
    if (in.payload) {
        size_t placed = (size_t)n < rest ? (size_t)n : rest;
        in.got += placed;
        in.end += (size_t)n - placed;
        if (placed < rest) return true;
        complete_frame();
    } else in.end += (size_t)n;
    while (in.end - in.start >= HEADER) {
        if (!header_read(in.bytes + in.start, &in.header)) {
            if (!greeted) _exit(EXIT_BREACH);
            breach("the host sent what is no frame");
        }
        in.start += HEADER;
        in.payload = chunk_new(in.header.length);
        in.payload->length = in.header.length;
        in.got = in.end - in.start < in.header.length ? in.end - in.start : in.header.length;
        memcpy(in.payload->data, in.bytes + in.start, in.got);
        in.start += in.got;
        if (in.got < in.header.length) break;
        complete_frame();
    }
    memmove(in.bytes, in.bytes + in.start, in.end - in.start);
    in.end -= in.start;
    in.start = 0;
    return true;
}

static void look_at_life_line(void) {
    uint8_t byte;
    ssize_t n = read(life_line, &byte, 1);
    if (n > 0) breach("the host spoke over the carrier that it had left");
    if (n == 0 || (errno != EAGAIN && errno != EINTR)) leave(0);
}

/* ---- start and loop ---- */

static int move_up(int fd) {
    int high = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (high < 0) _exit(66);
    fcntl(high, F_SETFL, fcntl(high, F_GETFL) | O_NONBLOCK);
    fcntl(high, F_SETPIPE_SZ, PIPE_BYTES); /* refused by sockets and tight limits: fine */
    return high;
}

static void prepare(void) {
    prctl(PR_SET_DUMPABLE, 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    umask(022);
    carrier_in = move_up(0);
    carrier_out = move_up(1);
    /* 0 and 1 stay taken, so that no later descriptor is one of a command's three. */
    int filler[2];
    if ((filler[0] = open("/dev/null", O_RDWR | O_CLOEXEC)) < 0 && pipe2(filler, O_CLOEXEC)) _exit(66);
    for (int fd = 0; fd < 2; fd++)
        if (dup2(filler[0], fd) < 0) _exit(66);
    close(filler[0]);
    if (chdir("/")) _exit(67);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_SETMASK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        guest.file_limit = files.rlim_cur;
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    guest.oom_events = open_oom_events();
    jobs_event = jobs_start();
    if (signals < 0 || jobs_event < 0) _exit(68);
}

static void take_signals(void) {
    struct signalfd_siginfo info;
    while (read(signals, &info, sizeof info) > 0) {
        /* A container's first process is told to stop from outside of it, by a sender without a number here; what the
         * commands send it does not count. */
        if (info.ssi_signo == SIGCHLD || (getpid() == 1 && info.ssi_pid)) continue;
        if (greeted) say_bye("the guest was told to stop by a signal", 0);
        leave(0);
    }
    reap();
}

/* What poll() is asked: the carrier, signals and jobs first, then one place a supervisor. */
enum { P_IN, P_OUT, P_LIFE, P_SIGNALS, P_JOBS, P_FIXED };

static size_t watch(struct pollfd **fds, size_t *capacity, int *timeout) {
    size_t n = P_FIXED;
    if (*capacity < call_count + P_FIXED) {
        *capacity = 2 * (call_count + P_FIXED);
        *fds = xrealloc(*fds, *capacity * sizeof **fds);
    }
    (*fds)[P_IN] = (struct pollfd){carrier_in, POLLIN, 0};
    (*fds)[P_OUT] = (struct pollfd){out.first ? carrier_out : -1, POLLOUT, 0};
    (*fds)[P_LIFE] = (struct pollfd){life_line, POLLIN, 0};
    (*fds)[P_SIGNALS] = (struct pollfd){signals, POLLIN, 0};
    (*fds)[P_JOBS] = (struct pollfd){jobs_event, POLLIN, 0};
    int64_t next = INT64_MAX, now = now_us();
    for (struct call *c = calls; c; c = c->next) {
        if (c->fd < 0) continue;
        short events = (short)((is_held(c) || out.bytes >= OUT_HIGH ? 0 : POLLIN) | (c->to_supervisor.first ? POLLOUT : 0));
        (*fds)[n++] = (struct pollfd){events ? c->fd : -1, events, 0};
        if (!c->answered && c->poke_at && c->poke_at < next) next = c->poke_at;
    }
    *timeout = next == INT64_MAX ? -1 : next <= now ? 0 : next - now > 60000000 ? 60000 : (int)((next - now) / 1000 + 1);
    return n;
}

int main(int count, char **arguments) {
    if (count > 1 && !strcmp(arguments[1], "search")) return search_main(count - 2, arguments + 2);
    prepare();
    struct pollfd *fds = NULL;
    size_t capacity = 0;
    for (;;) {
        if (out.first && !flush_queue(carrier_out, &out)) leave(0);
        sweep_calls();
        for (struct call *c = calls; c; c = c->next) drive(c);
        if (greeted) keep_idle();
        int timeout;
        size_t n = watch(&fds, &capacity, &timeout);
        if (poll(fds, n, timeout) < 0 && errno != EINTR) leave(69);
        size_t at = P_FIXED;
        for (struct call *c = calls; c && at < n; c = c->next) {
            if (c->fd < 0) continue;
            short events = fds[at++].revents;
            if (events & POLLOUT) flush_queue(c->fd, &c->to_supervisor);
            if (events & (POLLIN | POLLHUP | POLLERR)) read_supervisor(c);
        }
        poke_late_supervisors();
        end_orphans_of_killed_supervisors();
        if (fds[P_JOBS].revents) collect_jobs(jobs_event);
        if (fds[P_SIGNALS].revents) take_signals();
        if (fds[P_LIFE].revents) look_at_life_line();
        if (fds[P_IN].revents && !read_carrier()) leave(0);
    }
}
