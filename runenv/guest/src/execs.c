/* The supervisors of commands, seen from the event loop: started ahead of need, given their call, read as far as the
 * host has credit, woken or killed when they are late. */
#include "loop.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <dirent.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    POKE_US = 1000 * 1000,           /* after its deadline a supervisor is poked this often, in case it was stopped, */
    POKES_MAX = 25,                  /* and killed after so many */
};

enum { IDLE_MAX = 2 };
static struct { pid_t pid; int fd; } idle[IDLE_MAX];     /* supervisors that wait for a call; pid 0: a free place */
static bool orphans;                 /* a supervisor was killed */

/* Takes the status of what has ended; true when no child is left. */
bool reap(void) {
    for (;;) {
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid <= 0) return pid < 0;
        for (size_t i = 0; i < IDLE_MAX; i++) {
            if (idle[i].pid != pid) continue;
            close(idle[i].fd);
            idle[i].pid = 0;
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
    pid_t *supervisors = xmalloc((call_count + IDLE_MAX) * sizeof *supervisors);
    for (int64_t stop = now_us() + CLEANUP_US; now_us() < stop; poll(NULL, 0, 1)) {
        reap();
        size_t n = 0;
        for (size_t i = 0; i < IDLE_MAX; i++)
            if (idle[i].pid) supervisors[n++] = idle[i].pid;
        for (struct call *c = calls; c; c = c->next)
            if (c->supervisor) supervisors[n++] = c->supervisor;
        if (!kill_descendants(getpid(), SIGKILL, supervisors, n)) break;
    }
    free(supervisors);
    orphans = false;
}

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

/* The RESULT of a command that no supervisor can speak for: what came of its output so far, and a reason on stderr. */
static void answer_exec(struct call *c, const char *text, int how, int value, int64_t flags) {
    struct builder b = {0};
    int64_t length = (int64_t)strlen(text);
    if (c->credit < length) length = 0;
    if (length) send_bytes(c->id, DATA, STDERR, text, (size_t)length);
    build_number(&b, how, value);
    build_number(&b, T_FLAGS, flags);
    build_number(&b, T_DURATION_US, now_us() - c->started);
    for (int channel = STDOUT; channel <= STDERR; channel++) {
        int shift = channel == STDERR ? T_ERR_TOTAL - T_OUT_TOTAL : 0;
        int64_t total = c->passed[channel] + (channel == STDERR ? length : 0);
        build_number(&b, T_OUT_TOTAL + shift, total);
        build_number(&b, T_OUT_LINES + shift, c->passed_lines[channel] + (channel == STDERR && length));
        build_number(&b, T_OUT_KEPT_HEAD + shift, total);
    }
    send_fields(c->id, RESULT, &b);
    c->answered = true;
}

void close_idle(void) {
    for (size_t i = 0; i < IDLE_MAX; i++)
        if (idle[i].pid) close(idle[i].fd);
}

/* Keeps a supervisor for the next call; false when there are enough. */
static bool add_idle(pid_t pid, int fd) {
    for (size_t i = 0; i < IDLE_MAX; i++) {
        if (idle[i].pid) continue;
        idle[i].pid = pid;
        idle[i].fd = fd;
        return true;
    }
    return false;
}

static bool start_idle(void) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair)) return false;
    pid_t pid = fork();
    if (pid == 0) {
        close_all_but(pair[1], guest.oom_events);
        supervise(pair[1]);
    }
    int error = errno;
    close(pair[1]);
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
    if (pid > 0 && add_idle(pid, pair[0])) return true;
    close(pair[0]);
    errno = error;
    return false;
}

/* Gives the call a supervisor that waits, or a new one. */
static bool take_idle(struct call *c) {
    reap(); /* a command may have killed one */
    for (int tries = 0; tries < 2; tries++) {
        for (size_t i = 0; i < IDLE_MAX; i++) {
            if (!idle[i].pid) continue;
            kill(idle[i].pid, SIGCONT); /* or stopped it */
            c->supervisor = idle[i].pid;
            c->fd = idle[i].fd;
            idle[i].pid = 0;
            return true;
        }
        if (!start_idle()) return false;
    }
    return false;
}

/* A new one is started while a command runs, so that the next command need not wait for it. */
void keep_idle(void) {
    for (size_t i = 0; i < IDLE_MAX; i++)
        if (idle[i].pid) return;
    start_idle();
}

void queue_to_supervisor(struct call *c, const struct header *h, struct chunk *payload) {
    header_write(payload->room, *h);
    queue_push(&c->to_supervisor, payload);
    if (c->fd >= 0) flush_queue(c->fd, &c->to_supervisor);
}

void cancel_exec(struct call *c, const struct header *h, struct chunk *payload) {
    c->cancelled = true;
    c->poke_at = now_us() + POKE_US;
    kill(c->supervisor, SIGCONT);
    queue_to_supervisor(c, h, payload);
}

void start_exec(struct call *c, const struct header *h, struct chunk *payload) {
    char text[256];
    int64_t timeout = field_number(span_of(payload->data, payload->length), T_TIMEOUT_MS, 0);
    c->started = now_us();
    if (timeout > 0) c->poke_at = c->started + timeout * 1000 + POKE_US;
    if (take_idle(c)) {
        queue_to_supervisor(c, h, payload);
        return;
    }
    chunk_free(payload);
    describe_fork_failure(errno, text, sizeof text);
    c->supervisor = 0;
    answer_exec(c, text, T_EXIT_CODE, 126, 0);
}

/* A supervisor is gone without a result: the command killed it. What it had started now belongs to us, and ends. */
static void answer_for_lost_supervisor(struct call *c) {
    static const char text[] = "runenv: the command killed its own supervisor (as `kill -9 -1` does); all that it had started was ended\n";
    close(c->fd);
    c->fd = -1;
    if (c->supervisor) kill(c->supervisor, SIGKILL);
    for (int64_t stop = now_us() + CLEANUP_US; c->supervisor && now_us() < stop && !reap();) poll(NULL, 0, 1);
    end_orphans();
    answer_exec(c, text, T_SIGNAL, SIGKILL, c->pokes > POKES_MAX ? (c->cancelled ? F_CANCELLED : F_TIMED_OUT) : 0);
}

void end_orphans_of_killed_supervisors(void) {
    if (orphans) end_orphans();
}

bool is_held(const struct call *c) {
    return c->have >= HEADER && c->header.kind == DATA && c->credit < (int64_t)c->header.length;
}

static void pass_on(struct call *c) {
    struct chunk *d = c->incoming;
    c->incoming = NULL;
    c->have = 0;
    if (c->answered) {
        chunk_free(d);
        return;
    }
    if (c->header.kind == DATA) {
        c->credit -= c->header.length;
        int channel = c->header.channel == STDERR ? STDERR : STDOUT;
        c->passed[channel] += c->header.length;
        for (size_t i = 0; i < d->length; i++) c->passed_lines[channel] += d->data[i] == '\n';
    }
    if (c->header.kind == CREDIT) c->window += get32(d->data);
    c->answered = c->header.kind == RESULT;
    /* It waits for another call now, unless something runs on in the background or a frame to it is not all sent. */
    bool waits = c->answered && !(field_number(span_of(d->data, d->length), T_FLAGS, 0) & F_BACKGROUND);
    if (waits && !c->to_supervisor.first && add_idle(c->supervisor, c->fd)) c->supervisor = 0;
    else if (waits) close(c->fd);
    if (waits) c->fd = -1;
    send_chunk(c->id, c->header.kind, c->header.channel, d);
}

/* Reads from a supervisor as long as what comes can be passed on. */
void read_supervisor(struct call *c) {
    while (c->fd >= 0 && out.bytes < OUT_HIGH) {
        ssize_t n;
        if (c->have < HEADER) n = read(c->fd, c->head + c->have, HEADER - c->have);
        else if (is_held(c)) return;
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
            pass_on(c);
            if (c->answered) return;
        }
    }
}

/* A supervisor that does not answer in time was stopped by the command: it is woken, at last killed. */
void poke_late_supervisors(void) {
    int64_t now = now_us();
    for (struct call *c = calls; c; c = c->next) {
        if (c->answered || !c->supervisor || !c->poke_at || now < c->poke_at) continue;
        c->poke_at = now + POKE_US;
        kill(c->supervisor, ++c->pokes > POKES_MAX ? SIGKILL : SIGCONT);
    }
}
