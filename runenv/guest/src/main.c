/* The event loop: frames from the host to the call they belong to, and frames of all calls back to the host.
 *
 * It owns no work itself: a command belongs to its supervisor process, a file verb to a job on a worker thread. It
 * sends only what the host has given credit for, and reads from a supervisor only when that can be passed on, so a slow
 * host slows the commands down instead of filling memory. It says nothing before the host's HELLO. */
#include "guest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    CALLS_MAX = 4096,
    OUT_HIGH = 512 * 1024,           /* nothing more is made for the host while this much waits */
    STEP_BYTES = 512 * 1024,         /* output of one step of a file verb */
    STEP_CREDIT = 64 * 1024,         /* less credit than this is not worth a step */
    READ_BYTES = 64 * 1024,
    PIPE_BYTES = 1 << 20,            /* asked of the carrier's pipes */
    POKE_US = 1000 * 1000,           /* after its deadline a supervisor is poked this often, in case it was stopped, */
    POKES_MAX = 12,                  /* and killed after so many */
    CLEANUP_US = 3 * 1000 * 1000,    /* at the end, for supervisors to kill what is theirs */
    EXIT_BREACH = 65,
};

struct call {
    struct call *next;
    uint32_t id;
    bool answered;                   /* RESULT or ERROR is sent: only what runs in the background keeps it here */
    int64_t credit, window;          /* DATA bytes that we may send, and that the host may */
    /* a file verb */
    struct job *job;
    struct queue inbox, pending;     /* DATA from the host and to it that has to wait */
    bool input_ended;
    /* an exec */
    pid_t supervisor;
    int fd;
    struct queue to_supervisor;
    uint8_t head[HEADER];
    size_t have;
    struct header header;
    struct chunk *incoming;
    int64_t poke_at, started;
    int pokes;
    bool cancelled;
};

struct guest guest;

static int carrier_in, carrier_out, signals, jobs_event;
static struct queue out;
static struct call *calls;
static size_t call_count;
static struct { pid_t pid; int fd; } spare = {0, -1};   /* a supervisor that waits for its call */
static bool orphans;                 /* a supervisor was killed */
static struct { uint8_t bytes[READ_BYTES]; size_t start, end; struct header header; struct chunk *payload; size_t got; } in;

/* ---- frames out ---- */

static void send_chunk(uint32_t call, int kind, int channel, struct chunk *c) {
    header_write(c->room, (struct header){(uint32_t)c->length, call, (uint8_t)kind, (uint8_t)channel});
    queue_push(&out, c);
}

static void send_bytes(uint32_t call, int kind, int channel, const void *bytes, size_t length) {
    struct chunk *c = chunk_new(length);
    c->length = length;
    if (length) memcpy(c->data, bytes, length);
    send_chunk(call, kind, channel, c);
}

static void send_fields(uint32_t call, int kind, struct builder *b) {
    send_bytes(call, kind, 0, b->bytes, b->length);
    free(b->bytes);
    *b = (struct builder){0};
}

static void send_credit(struct call *call, size_t bytes) {
    uint8_t payload[4];
    for (int i = 0; i < 4; i++) payload[i] = (uint8_t)(bytes >> (8 * i));
    call->window += (int64_t)bytes;
    send_bytes(call->id, CREDIT, 0, payload, sizeof payload);
}

static void send_error(uint32_t call, int error, const char *message) {
    struct builder b = {0};
    build_number(&b, T_ERRNO, error);
    build_bytes(&b, T_MESSAGE, message, strlen(message));
    send_fields(call, ERROR, &b);
}

/* Writes frames from a queue; false when the other side is gone. */
static bool flush_queue(int fd, struct queue *q) {
    while (q->first) {
        struct iovec parts[16];
        int n = 0;
        for (struct chunk *c = q->first; c && n < 16; c = c->next)
            parts[n++] = (struct iovec){c->room + c->sent, HEADER + c->length - c->sent};
        ssize_t written = writev(fd, parts, n);
        if (written < 0) return errno == EAGAIN || errno == EINTR;
        while (written > 0) {
            struct chunk *c = q->first;
            size_t left = HEADER + c->length - c->sent;
            if ((size_t)written < left) {
                c->sent += (size_t)written;
                break;
            }
            written -= (ssize_t)left;
            free(queue_pop(q));
        }
    }
    return true;
}

/* ---- the end ---- */

/* Takes the status of what has ended; true when no child is left. */
static bool reap(void) {
    for (;;) {
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid <= 0) return pid < 0;
        if (pid == spare.pid) {
            close(spare.fd);
            spare.pid = 0;
        }
        for (struct call *c = calls; c; c = c->next) {
            if (c->supervisor != pid) continue;
            c->supervisor = 0;
            orphans = orphans || WIFSIGNALED(status);
        }
    }
}

/* What a killed supervisor had started is now ours, and ends: only supervisors may be children of the guest. */
static void end_orphans(void) {
    pid_t *supervisors = xmalloc((call_count + 1) * sizeof *supervisors);
    for (int64_t stop = now_us() + CLEANUP_US; now_us() < stop; poll(NULL, 0, 1)) {
        reap();
        size_t n = 0;
        if (spare.pid) supervisors[n++] = spare.pid;
        for (struct call *c = calls; c; c = c->next)
            if (c->supervisor) supervisors[n++] = c->supervisor;
        if (!kill_descendants(getpid(), SIGKILL, supervisors, n)) break;
    }
    free(supervisors);
    orphans = false;
}

static void remove_spill(void) {
    DIR *dir = guest.spill_dir[0] ? opendir(guest.spill_dir) : NULL;
    if (!dir) return;
    for (struct dirent *e; (e = readdir(dir));) unlinkat(dirfd(dir), e->d_name, 0);
    closedir(dir);
    rmdir(guest.spill_dir);
}

/* Ends every command and every unfinished write, then the guest. A container's first process needs not wait for the
 * processes: the kernel ends them with it. */
static void leave(int code) {
    int64_t stop = now_us() + CLEANUP_US;
    if (spare.pid) close(spare.fd);
    for (struct call *c = calls; c; c = c->next) {
        if (c->fd >= 0) close(c->fd);
        c->fd = -1;
        if (c->supervisor) kill(c->supervisor, SIGCONT);
        if (c->job) atomic_store(&c->job->cancelled, true);
    }
    for (bool busy = true; busy && now_us() < stop;) {
        while (jobs_collect()) {}
        busy = false;
        for (struct call *c = calls; c; c = c->next) busy = busy || (c->job && c->job->running);
        if (busy) poll(NULL, 0, 1);
    }
    for (struct call *c = calls; c; c = c->next)
        if (c->job && !c->job->running) job_free(c->job);
    while (getpid() != 1 && !reap() && now_us() < stop) poll(NULL, 0, 1);
    if (getpid() != 1) kill_descendants(getpid(), SIGKILL, NULL, 0);
    remove_spill();
    _exit(code);
}

static void say_bye(const char *message, int code) {
    struct builder b = {0};
    build_bytes(&b, T_MESSAGE, message, strlen(message));
    send_fields(0, BYE, &b);
    struct pollfd fd = {carrier_out, POLLOUT, 0};
    for (int64_t stop = now_us() + CLEANUP_US / 3; flush_queue(carrier_out, &out) && out.first && now_us() < stop;) poll(&fd, 1, 100);
    leave(code);
}

static void breach(const char *what) { say_bye(what, EXIT_BREACH); }

/* ---- calls ---- */

static struct call *find(uint32_t id) {
    for (struct call *c = calls; c; c = c->next)
        if (c->id == id && !c->answered) return c;
    return NULL;
}

static struct call *call_new(uint32_t id) {
    struct call *c = xmalloc(sizeof *c);
    memset(c, 0, sizeof *c);
    c->id = id;
    c->fd = -1;
    c->credit = HOST_WINDOW;
    c->window = GUEST_WINDOW;
    c->next = calls;
    calls = c;
    call_count++;
    return c;
}

static void call_free(struct call *c) {
    if (c->fd >= 0) close(c->fd);
    if (c->job) job_free(c->job);
    queue_clear(&c->inbox);
    queue_clear(&c->pending);
    queue_clear(&c->to_supervisor);
    free(c->incoming);
    free(c);
    call_count--;
}

static bool is_over(const struct call *c) { return c->answered && !c->job && c->fd < 0 && !c->supervisor; }

static void sweep_calls(void) {
    for (struct call **at = &calls, *c; (c = *at);) {
        if (!is_over(c)) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        call_free(c);
    }
}

/* ---- file verbs ---- */

static void submit(struct call *c) {
    struct job *job = c->job;
    for (struct chunk *d; (d = queue_pop(&c->inbox));) queue_push(&job->input, d);
    job->input_ended = c->input_ended;
    job->budget = c->credit < STEP_BYTES ? (size_t)c->credit : STEP_BYTES;
    job->started = true;
    jobs_submit(job);
}

/* Passes on what the host has credit for, answers when the job is finished, or gives it its next step. */
static void drive(struct call *c) {
    struct job *job = c->job;
    if (!job || job->running) return;
    if (job->finished && job->error) queue_clear(&c->pending);
    while (c->pending.first && c->credit >= (int64_t)c->pending.first->length) {
        struct chunk *d = queue_pop(&c->pending);
        c->credit -= (int64_t)d->length;
        send_chunk(c->id, DATA, MAIN, d);
    }
    if (c->pending.first) return;
    if (job->finished) {
        send_fields(c->id, job->error ? ERROR : RESULT, &job->result);
        c->answered = true;
        c->job = NULL;
        job_free(job);
    } else if (atomic_load(&job->cancelled)) submit(c);
    else if (job->takes_input ? !job->started || c->inbox.first || c->input_ended : c->credit >= STEP_CREDIT && out.bytes < OUT_HIGH) submit(c);
}

static void collect_jobs(void) {
    uint64_t count;
    if (read(jobs_event, &count, sizeof count) < 0) return;
    for (struct job *job; (job = jobs_collect());) {
        struct call *c = find(job->call);
        if (job->consumed && !job->finished) send_credit(c, job->consumed);
        for (struct chunk *d; (d = queue_pop(&job->output));) queue_push(&c->pending, d);
        drive(c);
    }
}

/* ---- commands ---- */

static void close_all_but(int a, int b) {
    if (a > b) {
        int t = a;
        a = b;
        b = t;
    }
    if (a < 3) a = b; /* there may be no second one */
    bool done = true;
    if (a > 3) done = !syscall(SYS_close_range, 3U, (unsigned)a - 1, 0U);
    if (b > a + 1) done = done && !syscall(SYS_close_range, (unsigned)a + 1, (unsigned)b - 1, 0U);
    if (done && !syscall(SYS_close_range, (unsigned)b + 1, ~0U, 0U)) return;
    DIR *dir = opendir("/proc/self/fd");
    for (struct dirent *e; dir && (e = readdir(dir));) {
        int fd = atoi(e->d_name);
        if (fd > 2 && fd != a && fd != b && fd != dirfd(dir)) close(fd);
    }
    if (dir) closedir(dir);
}

static bool start_spare(void) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair)) return false;
    spare.pid = fork();
    if (spare.pid == 0) {
        close_all_but(pair[1], guest.oom_events);
        supervise(pair[1]);
    }
    int error = errno;
    close(pair[1]);
    spare.fd = pair[0];
    if (spare.pid > 0) {
        fcntl(spare.fd, F_SETFL, O_NONBLOCK);
        return true;
    }
    spare.pid = 0;
    close(pair[0]);
    errno = error;
    return false;
}

static void queue_to_supervisor(struct call *c, const struct header *h, struct chunk *payload) {
    header_write(payload->room, *h);
    queue_push(&c->to_supervisor, payload);
    if (c->fd >= 0) flush_queue(c->fd, &c->to_supervisor);
}

static void start_exec(struct call *c, const struct header *h, struct chunk *payload) {
    char text[256];
    int64_t timeout = field_number(span_of(payload->data, payload->length), T_TIMEOUT_MS, 0);
    c->started = now_us();
    if (timeout > 0) c->poke_at = c->started + timeout * 1000 + POKE_US;
    if (spare.pid) reap(); /* a command may have killed it */
    if (spare.pid || start_spare()) {
        kill(spare.pid, SIGCONT); /* or stopped it */
        c->supervisor = spare.pid;
        c->fd = spare.fd;
        spare.pid = 0;
        spare.fd = -1;
        queue_to_supervisor(c, h, payload);
        return;
    }
    free(payload);
    describe_fork_failure(errno, text, sizeof text);
    c->supervisor = 0;
    struct builder b = {0};
    send_bytes(c->id, DATA, STDERR, text, strlen(text));
    build_number(&b, T_EXIT_CODE, 126);
    build_number(&b, T_ERR_TOTAL, (int64_t)strlen(text));
    build_number(&b, T_ERR_LINES, 1);
    build_number(&b, T_ERR_KEPT_HEAD, (int64_t)strlen(text));
    send_fields(c->id, RESULT, &b);
    c->answered = true;
}

/* A supervisor is gone without a result: the command killed it. What it had started now belongs to us, and ends. */
static void answer_for_lost_supervisor(struct call *c) {
    static const char text[] = "runenv: the command killed its own supervisor (as `kill -9 -1` does); all that it had started was ended\n";
    close(c->fd);
    c->fd = -1;
    if (c->supervisor) kill(c->supervisor, SIGKILL);
    for (int64_t stop = now_us() + CLEANUP_US; c->supervisor && now_us() < stop && !reap();) poll(NULL, 0, 1);
    end_orphans();
    struct builder b = {0};
    bool told = c->credit >= (int64_t)sizeof text;
    if (told) send_bytes(c->id, DATA, STDERR, text, sizeof text - 1);
    build_number(&b, T_SIGNAL, SIGKILL);
    build_number(&b, T_FLAGS, c->pokes > POKES_MAX ? (c->cancelled ? F_CANCELLED : F_TIMED_OUT) : 0);
    build_number(&b, T_DURATION_US, now_us() - c->started);
    build_number(&b, T_ERR_TOTAL, told ? (int64_t)sizeof text - 1 : 0);
    build_number(&b, T_ERR_LINES, told);
    build_number(&b, T_ERR_KEPT_HEAD, told ? (int64_t)sizeof text - 1 : 0);
    send_fields(c->id, RESULT, &b);
    c->answered = true;
}

static void pass_on(struct call *c) {
    struct chunk *d = c->incoming;
    c->incoming = NULL;
    c->have = 0;
    if (c->answered) {
        free(d);
        return;
    }
    if (c->header.kind == DATA) c->credit -= c->header.length;
    if (c->header.kind == CREDIT) c->window += d->data[0] | d->data[1] << 8 | d->data[2] << 16 | (int64_t)d->data[3] << 24;
    c->answered = c->header.kind == RESULT;
    send_chunk(c->id, c->header.kind, c->header.channel, d);
}

/* Reads from a supervisor as long as what comes can be passed on. */
static void read_supervisor(struct call *c) {
    while (c->fd >= 0 && out.bytes < OUT_HIGH) {
        ssize_t n;
        if (c->have < HEADER) n = read(c->fd, c->head + c->have, HEADER - c->have);
        else if (c->header.kind == DATA && c->credit < (int64_t)c->header.length) return;
        else n = read(c->fd, c->incoming->data + c->have - HEADER, c->header.length + HEADER - c->have);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (n <= 0 || (c->have + (size_t)n == HEADER && !header_read(c->head, &c->header))) {
            if (!c->answered) answer_for_lost_supervisor(c);
            else close(c->fd);
            c->fd = -1;
            return;
        }
        c->have += (size_t)n;
        if (c->have == HEADER) {
            c->incoming = chunk_new(c->header.length);
            c->incoming->length = c->header.length;
        }
        if (c->have == HEADER + c->header.length) {
            bool last = c->header.kind == RESULT;
            pass_on(c);
            if (last) return; /* most often nothing comes behind it */
        }
    }
}

/* A supervisor that does not answer in time was stopped by the command: it is woken, at last killed. */
static void poke_late_supervisors(void) {
    int64_t now = now_us();
    for (struct call *c = calls; c; c = c->next) {
        if (c->answered || !c->supervisor || !c->poke_at || now < c->poke_at) continue;
        c->poke_at = now + POKE_US;
        kill(c->supervisor, ++c->pokes > POKES_MAX ? SIGKILL : SIGCONT);
    }
}

/* ---- frames in ---- */

static void begin_call(const struct header *h, struct chunk *payload) {
    struct span fields = span_of(payload->data, payload->length);
    if (find(h->call)) breach("the host used the id of a call that is not over");
    if (!fields_valid(fields)) breach("the host sent a damaged call");
    if (call_count >= CALLS_MAX) {
        send_error(h->call, EAGAIN, "too many calls at once");
        free(payload);
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
    else free(payload);
}

static void take_frame(const struct header *h, struct chunk *payload) {
    struct call *c = h->kind == CALL ? NULL : find(h->call);
    switch (h->kind) {
    case CALL: begin_call(h, payload); return;
    case PING: send_bytes(h->call, PONG, 0, NULL, 0); break;
    case BYE: leave(0); break;
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
        c->cancelled = true;
        c->poke_at = now_us() + POKE_US;
        kill(c->supervisor, SIGCONT);
        queue_to_supervisor(c, h, payload);
        return;
    case CREDIT:
        if (c && payload->length == 4)
            c->credit += payload->data[0] | payload->data[1] << 8 | payload->data[2] << 16 | (int64_t)payload->data[3] << 24;
        break;
    default: breach("the host sent a frame that only a guest sends");
    }
    if (c) drive(c);
    free(payload);
}

static void say_hello(struct span fields);
static bool greeted;

static void complete_frame(void) {
    struct chunk *payload = in.payload;
    in.payload = NULL;
    if (!greeted) {
        if (in.header.kind != HELLO) _exit(EXIT_BREACH);
        greeted = true;
        say_hello(span_of(payload->data, payload->length));
        free(payload);
    } else take_frame(&in.header, payload);
}

/* Reads what the host sent; false at its end. Payloads larger than what is buffered are read into place. */
static bool read_carrier(void) {
    ssize_t n;
    if (in.payload) n = read(carrier_in, in.payload->data + in.got, in.header.length - in.got);
    else n = read(carrier_in, in.bytes + in.end, sizeof in.bytes - in.end);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    if (n == 0) return false;
    if (in.payload) {
        in.got += (size_t)n;
        if (in.got == in.header.length) complete_frame();
        return true;
    }
    in.end += (size_t)n;
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

/* ---- hello ---- */

static void copy_path(struct span fields, int tag, char out[PATH_MAX]) {
    if (field_path(fields, tag, out)) out[0] = 0;
}

static const char *find_shell(void) {
    return access("/bin/bash", X_OK) == 0 ? "/bin/bash" : access("/bin/sh", X_OK) == 0 ? "/bin/sh" : "";
}

/* The guest's own environment, as the engine or the host gave it, with the configured variables over it. */
static void set_environ(struct span fields, const char *fallback_home) {
    int tag;
    struct span value;
    while (field_next(&fields, &tag, &value)) {
        if (tag != T_ENV) continue;
        char *text = xmalloc(value.length + 1);
        memcpy(text, value.at, value.length);
        text[value.length] = 0;
        putenv(text);
    }
    const char *home = getenv("HOME");
    if ((!home || !strcmp(home, "/") || access(home, W_OK)) && fallback_home[0]) {
        mkdir(fallback_home, 0700);
        setenv("HOME", fallback_home, 1);
    }
    setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", 0);
    guest.environ = environ;
}

static void say_hello(struct span fields) {
    char text[PATH_MAX + 200], home[PATH_MAX];
    if (!fields_valid(fields)) breach("the host sent a damaged hello");
    int64_t version = field_number(fields, T_VERSION, 0);
    if (version != PROTOCOL_VERSION) {
        snprintf(text, sizeof text, "the guest speaks version %d of the protocol, the host %lld", PROTOCOL_VERSION, (long long)version);
        breach(text);
    }
    copy_path(fields, T_WORKDIR, guest.workdir);
    copy_path(fields, T_SPILL_DIR, guest.spill_dir);
    copy_path(fields, T_HOME, home);
    guest.confine = field_number(fields, T_FLAGS, 0) & F_CONFINE;
    guest.spill_quota = field_number(fields, T_SPILL_QUOTA, 0);
    for (size_t n = strlen(guest.workdir); n > 1 && guest.workdir[n - 1] == '/';) guest.workdir[--n] = 0;
    struct stat st;
    if (!realpath(guest.workdir, guest.real_workdir) || stat(guest.workdir, &st) || !S_ISDIR(st.st_mode)) {
        snprintf(text, sizeof text, "the working folder %s cannot be used: %s", guest.workdir, strerror(errno ? errno : ENOTDIR));
        breach(text);
    }
    guest.spilled = mmap(NULL, sizeof *guest.spilled, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (guest.spilled == MAP_FAILED || (guest.spill_dir[0] && mkdir(guest.spill_dir, 0700))) guest.spill_dir[0] = 0;
    set_environ(fields, home);
    strcpy(guest.shell, find_shell());
    struct builder b = {0};
    build_number(&b, T_VERSION, PROTOCOL_VERSION);
    build_number(&b, T_PID, getpid());
    build_number(&b, T_UID, geteuid());
    build_number(&b, T_GID, getegid());
    build_bytes(&b, T_WORKDIR, guest.real_workdir, strlen(guest.real_workdir));
    const char *final_home = getenv("HOME");
    if (final_home) build_bytes(&b, T_HOME, final_home, strlen(final_home));
    if (guest.shell[0]) build_bytes(&b, T_SHELL, guest.shell, strlen(guest.shell));
    if (guest.spill_dir[0]) build_bytes(&b, T_SPILL_DIR, guest.spill_dir, strlen(guest.spill_dir));
    send_fields(0, HELLO, &b);
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
    while (read(signals, &info, sizeof info) > 0)
        if (info.ssi_signo != SIGCHLD) {
            if (greeted) say_bye("the guest was told to stop by a signal", 0);
            leave(0);
        }
    reap();
}

/* What poll() is asked: the carrier, signals and jobs first, then one place a supervisor. */
enum { P_IN, P_OUT, P_SIGNALS, P_JOBS, P_FIXED };

static size_t watch(struct pollfd **fds, size_t *capacity, int *timeout) {
    size_t n = P_FIXED;
    if (*capacity < call_count + P_FIXED) {
        *capacity = 2 * (call_count + P_FIXED);
        *fds = xrealloc(*fds, *capacity * sizeof **fds);
    }
    (*fds)[P_IN] = (struct pollfd){carrier_in, POLLIN, 0};
    (*fds)[P_OUT] = (struct pollfd){out.first ? carrier_out : -1, POLLOUT, 0};
    (*fds)[P_SIGNALS] = (struct pollfd){signals, POLLIN, 0};
    (*fds)[P_JOBS] = (struct pollfd){jobs_event, POLLIN, 0};
    int64_t next = INT64_MAX, now = now_us();
    for (struct call *c = calls; c; c = c->next) {
        if (c->fd < 0) continue;
        bool held = c->have >= HEADER && c->header.kind == DATA && c->credit < (int64_t)c->header.length;
        short events = (short)((held || out.bytes >= OUT_HIGH ? 0 : POLLIN) | (c->to_supervisor.first ? POLLOUT : 0));
        (*fds)[n++] = (struct pollfd){events ? c->fd : -1, events, 0};
        if (!c->answered && c->poke_at && c->poke_at < next) next = c->poke_at;
    }
    *timeout = next == INT64_MAX ? -1 : next <= now ? 0 : next - now > 60000000 ? 60000 : (int)((next - now) / 1000 + 1);
    return n;
}

int main(void) {
    prepare();
    struct pollfd *fds = NULL;
    size_t capacity = 0;
    for (;;) {
        if (out.first && !flush_queue(carrier_out, &out)) leave(0);
        sweep_calls();
        for (struct call *c = calls; c; c = c->next) drive(c);
        if (greeted && !spare.pid) start_spare();
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
        if (orphans) end_orphans();
        if (fds[P_JOBS].revents) collect_jobs();
        if (fds[P_SIGNALS].revents) take_signals();
        if (fds[P_IN].revents && !read_carrier()) leave(0);
    }
}
