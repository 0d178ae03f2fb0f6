/* One supervisor per exec: a child-subreaper that starts the command, feeds it, captures its output, keeps its deadline
 * by the monotonic clock, and lives as long as anything that the command started. One whose command left nothing behind
 * waits for the next call: making a new process for each took a fifth of the time of a short command (2026-11-28).
 *
 * It talks frames with the main loop over a socket: in come DATA, END and CANCEL, out go CREDIT, DATA and one RESULT.
 * Nothing here blocks: background children that go on writing after the RESULT are read and dropped.
 *
 * To kill: TERM to every descendant and a short grace, then KILL, reap, repeat until the kernel says that there is no
 * child left. Stopping a fork bomb first was slower. The end of the socket means that the main loop is gone. */
#include "supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    GRACE_US = 500 * 1000,           /* between TERM and KILL */
    GIVE_UP_US = 20 * 1000 * 1000,   /* a process that KILL does not end (stuck in the kernel) */
    LINGER_US = 10 * 1000,           /* descendants that are about to end when the command does are no background */
    DRAIN_MAX = 1 << 20,             /* what a pipe can hold when the command ends */
    PIECE = 32 * 1024,               /* of DATA */
    KEEP_MIN = 1024, KEEP_MAX = 64 << 20,  /* of each output stream; a message of ours fits in any */
};

enum phase { RUNNING, LINGERING, TERMINATING, KILLING, ENDED };

struct reader {                      /* of frames from the main loop; outlives the commands */
    int socket;
    uint8_t head[HEADER];
    size_t have;
    struct header header;
    struct chunk *payload;
};

struct supervisor {
    struct reader *reader;
    int socket, signals;
    uint32_t call;
    struct capture out, err;
    int in;                          /* the command's stdin, or -1 */
    struct queue input;              /* DATA not yet written to it */
    bool input_ended;
    pid_t command;
    enum phase phase;
    int64_t started, deadline, until;
    bool reaped, timed_out, cancelled, killed_by_other, childless, gave_up, background;
    int status;
    int64_t oom_before, ended;
    /* frames to the main loop: small ones first, then the captured output piece by piece, then the result */
    struct builder small;
    size_t small_sent;
    int stream;                      /* STDOUT, STDERR, 3: the result is next, 4: all is said */
    size_t offset, piece_left;
    uint8_t piece_head[HEADER];
    size_t piece_head_left;
};

/* ---- the end of the command and of its tree ---- */

static void reap(struct supervisor *s) {
    for (;;) {
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid <= 0) {
            s->childless = pid < 0 && errno == ECHILD;
            return;
        }
        bool ours = s->phase == TERMINATING || s->phase == KILLING;
        if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && !ours) s->killed_by_other = true;
        if (pid == s->command) {
            s->reaped = true;
            s->status = status;
            s->ended = now_us();
        }
    }
}

static void drain(struct capture *c) {
    for (int64_t stop = c->total + DRAIN_MAX; c->fd >= 0 && c->total < stop && capture_read(c);) {}
}

static void terminate(struct supervisor *s) {
    kill_descendants(getpid(), SIGTERM, NULL, 0);
    s->phase = TERMINATING;
    s->until = now_us() + GRACE_US;
}

static void finish(struct supervisor *s) {
    drain(&s->out);
    drain(&s->err);
    s->phase = ENDED;
    if (!s->ended) s->ended = now_us();
    s->stream = STDOUT;
    s->offset = 0;
}

/* Moves to the next phase when it is time. Returns milliseconds until it wants to be called again, or -1. */
static int advance(struct supervisor *s) {
    int64_t now = now_us();
    if (s->phase == RUNNING) {
        if (s->reaped) {
            s->phase = LINGERING;
            s->until = now + LINGER_US;
        } else if (s->cancelled || (s->deadline && now >= s->deadline)) {
            s->timed_out = !s->cancelled;
            terminate(s);
        }
    }
    if (s->phase == LINGERING && (s->childless || now >= s->until || s->cancelled)) {
        if (s->cancelled && !s->childless) terminate(s);
        else finish(s);
    }
    if (s->phase == TERMINATING && !s->childless && now >= s->until) {
        s->phase = KILLING;
        s->until = now + GIVE_UP_US;
    }
    if (s->phase == KILLING && !s->childless) {
        kill_descendants(getpid(), SIGKILL, NULL, 0);
        reap(s);
        if (!s->childless && now >= s->until) s->gave_up = true;
    }
    if ((s->phase == TERMINATING || s->phase == KILLING) && (s->childless || s->gave_up)) finish(s);
    switch (s->phase) {
    case RUNNING:
        if (!s->deadline) return -1;
        return (int)((s->deadline - now) / 1000 > INT_MAX / 2 ? INT_MAX / 2 : (s->deadline - now) / 1000 + 1);
    case LINGERING:
    case TERMINATING: return (int)((s->until - now) / 1000 + 1);
    case KILLING: return 2;
    default: return -1;
    }
}

/* ---- frames ---- */

static void grant(struct supervisor *s, size_t bytes) {
    struct builder *b = &s->small;
    if (b->length + HEADER + 4 > b->capacity) {
        b->capacity = b->capacity * 2 + 64;
        b->bytes = xrealloc(b->bytes, b->capacity);
    }
    header_write(b->bytes + b->length, (struct header){4, s->call, CREDIT, 0});
    put32(b->bytes + b->length + HEADER, (uint32_t)bytes);
    b->length += HEADER + 4;
}

static void write_input(struct supervisor *s) {
    size_t used = 0;
    for (struct chunk *c; (c = s->input.first);) {
        ssize_t n = s->in < 0 ? (ssize_t)(c->length - c->sent) : write(s->in, c->data + c->sent, c->length - c->sent);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) break;
        if (n < 0) { /* nobody reads: that is no error, the rest is dropped */
            close(s->in);
            s->in = -1;
            continue;
        }
        c->sent += (size_t)n;
        used += (size_t)n;
        if (c->sent == c->length) chunk_free(queue_pop(&s->input));
    }
    if (used) grant(s, used);
    if (!s->input.first && s->input_ended && s->in >= 0) {
        close(s->in);
        s->in = -1;
    }
}

/* Reads one frame: 1 when it is whole (its payload belongs to the caller), 0 when there is no more yet, -1 when the main
 * loop is gone. */
static int read_frame(struct reader *r) {
    for (;;) {
        ssize_t n;
        if (r->have < HEADER) n = read(r->socket, r->head + r->have, HEADER - r->have);
        else n = read(r->socket, r->payload->data + r->have - HEADER, r->header.length + HEADER - r->have);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
        if (n <= 0) return -1;
        r->have += (size_t)n;
        if (r->have == HEADER) {
            if (!header_read(r->head, &r->header)) return -1;
            r->payload = chunk_new(r->header.length);
            r->payload->length = r->header.length;
        }
        if (r->have < HEADER || r->have < HEADER + r->header.length) continue;
        r->have = 0;
        return 1;
    }
}

/* False when the main loop is gone. */
static bool read_frames(struct supervisor *s) {
    int got;
    while ((got = read_frame(s->reader)) > 0) {
        int kind = s->reader->header.kind;
        bool ours = s->reader->header.call == s->call;
        if (ours && kind == DATA) queue_push(&s->input, s->reader->payload);
        else chunk_free(s->reader->payload);
        if (ours && kind == END) s->input_ended = true;
        if (ours && kind == CANCEL) s->cancelled = true;
        write_input(s);
    }
    return got == 0;
}

static void stream_fields(struct builder *b, const struct capture *c, int shift, int spill_tag) {
    build_number(b, T_OUT_TOTAL + shift, c->total);
    build_number(b, T_OUT_LINES + shift, c->lines);
    build_number(b, T_OUT_KEPT_HEAD + shift, (int64_t)capture_head(c));
    if (!c->spilled) return;
    char path[PATH_MAX + sizeof c->spill_name];
    int n = snprintf(path, sizeof path, "%s/%s", guest.spill_dir, c->spill_name);
    build_number(b, T_OUT_SPILLED + shift, c->spilled);
    build_bytes(b, spill_tag, path, (size_t)n);
}

/* The command was ended by the kernel for lack of memory: the counter rose, and a SIGKILL that was not ours (or the
 * 137 of a shell that saw one) fits it. */
static bool oom(const struct supervisor *s) {
    bool fits = s->killed_by_other || (WIFEXITED(s->status) && WEXITSTATUS(s->status) == 128 + SIGKILL);
    return fits && oom_kills() > s->oom_before;
}

static void build_result(struct supervisor *s) {
    struct builder *b = &s->small;
    b->length = s->small_sent = 0;
    struct builder fields = {0};
    s->background = !s->childless;
    int64_t flags = (s->timed_out ? F_TIMED_OUT : 0) | (s->cancelled ? F_CANCELLED : 0) | (oom(s) ? F_OOM_KILLED : 0)
        | (s->background ? F_BACKGROUND : 0);
    bool stopped = s->timed_out || s->cancelled;
    if (s->reaped && WIFSIGNALED(s->status)) build_number(&fields, T_SIGNAL, WTERMSIG(s->status));
    else if (stopped) build_number(&fields, T_SIGNAL, s->reaped ? SIGTERM : SIGKILL);
    else build_number(&fields, T_EXIT_CODE, WEXITSTATUS(s->status));
    build_number(&fields, T_FLAGS, flags);
    build_number(&fields, T_DURATION_US, s->ended - s->started);
    stream_fields(&fields, &s->out, 0, T_OUT_SPILL);
    stream_fields(&fields, &s->err, T_ERR_TOTAL - T_OUT_TOTAL, T_ERR_SPILL);
    b->capacity = HEADER + fields.length;
    b->bytes = xrealloc(b->bytes, b->capacity);
    header_write(b->bytes, (struct header){(uint32_t)fields.length, s->call, RESULT, 0});
    memcpy(b->bytes + HEADER, fields.bytes, fields.length);
    b->length = b->capacity;
    free(fields.bytes);
}

static struct capture *current(struct supervisor *s) { return s->stream == STDOUT ? &s->out : &s->err; }

/* Prepares the next piece of captured output; false when all of it is sent. */
static bool next_piece(struct supervisor *s) {
    for (; s->stream <= STDERR; s->stream++, s->offset = 0) {
        struct capture *c = current(s);
        size_t end = c->length;
        if (s->offset < end) {
            s->piece_left = end - s->offset < PIECE ? end - s->offset : PIECE;
            s->piece_head_left = HEADER;
            header_write(s->piece_head, (struct header){(uint32_t)s->piece_left, s->call, DATA, (uint8_t)s->stream});
            return true;
        }
    }
    return false;
}

/* Writes what there is to say. Returns true when it wants to be called again once the socket takes more. */
static bool write_frames(struct supervisor *s) {
    for (;;) {
        ssize_t n;
        if (s->piece_left) {
            struct span piece = capture_piece(current(s), s->offset);
            size_t length = piece.length < s->piece_left ? piece.length : s->piece_left;
            struct iovec parts[2] = {
                {s->piece_head + HEADER - s->piece_head_left, s->piece_head_left}, {(void *)(uintptr_t)piece.at, length}};
            n = writev(s->socket, parts, 2);
            if (n < 0) return errno == EAGAIN || errno == EINTR;
            size_t head = (size_t)n < s->piece_head_left ? (size_t)n : s->piece_head_left;
            s->piece_head_left -= head;
            s->offset += (size_t)n - head;
            s->piece_left -= (size_t)n - head;
        } else if (s->small_sent < s->small.length) {
            n = write(s->socket, s->small.bytes + s->small_sent, s->small.length - s->small_sent);
            if (n < 0) return errno == EAGAIN || errno == EINTR;
            s->small_sent += (size_t)n;
            if (s->small_sent == s->small.length) s->small.length = s->small_sent = 0;
        } else if (s->phase != ENDED || s->stream > 3) {
            return false;
        } else if (!next_piece(s)) {
            build_result(s);
            s->stream = 4;
        }
    }
}

static bool said_all(const struct supervisor *s) { return s->stream > 3 && !s->small.length; }

static void drop_output(struct supervisor *s) {
    capture_free(&s->out);
    capture_free(&s->err);
    queue_clear(&s->input);
    free(s->small.bytes);
    s->small = (struct builder){0};
}

static void discard(struct capture *c) {
    uint8_t waste[4096];
    ssize_t n = 0;
    for (int i = 0; i < 16 && (n = read(c->fd, waste, sizeof waste)) > 0; i++) {}
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        close(c->fd);
        c->fd = -1;
    }
}

/* The main loop is gone, and so is everything that was ever started here. */
static void end_all(struct supervisor *s) {
    int64_t stop = now_us() + GIVE_UP_US;
    do {
        kill_descendants(getpid(), SIGKILL, NULL, 0);
        reap(s);
        if (!s->childless) poll(NULL, 0, 1);
    } while (!s->childless && now_us() < stop);
    _exit(0);
}

/* The command did not start: its result is an exit code as a shell gives it, and the reason on stderr. */
static void fail_start(struct supervisor *s, const struct command *c) {
    struct capture *err = &s->err;
    err->length = strlen(c->message);
    if (err->length > err->keep) err->length = err->keep;
    err->kept = xmalloc(err->length);
    memcpy(err->kept, c->message, err->length);
    err->capacity = err->length;
    err->total = (int64_t)err->length;
    err->lines = 1;
    s->reaped = s->childless = true;
    s->status = c->exit_code << 8;
    finish(s);
}

static void start(struct supervisor *s, struct span fields) {
    struct command c;
    s->oom_before = oom_kills();
    command_start(&c, fields);
    s->command = c.pid;
    s->in = c.in;
    s->out.fd = c.out;
    s->err.fd = c.err;
    if (s->in >= 0) fcntl(s->in, F_SETFL, O_NONBLOCK);
    if (c.out >= 0) fcntl(c.out, F_SETFL, O_NONBLOCK);
    if (c.err >= 0) fcntl(c.err, F_SETFL, O_NONBLOCK);
    if (c.pid < 0) fail_start(s, &c);
}

/* Waits for the next CALL and starts it. What still comes for the last one is dropped. */
static void receive_call(struct supervisor *s) {
    struct pollfd fd = {s->socket, POLLIN, 0};
    for (int got = 0; got <= 0 || s->reader->header.kind != CALL;) {
        if (got > 0) chunk_free(s->reader->payload);
        if ((got = read_frame(s->reader)) < 0) _exit(0);
        if (got == 0) poll(&fd, 1, -1);
    }
    struct span fields = span_of(s->reader->payload->data, s->reader->payload->length);
    int64_t timeout = field_number(fields, T_TIMEOUT_MS, 0), keep = field_number(fields, T_KEEP, 0);
    keep = keep < KEEP_MIN ? KEEP_MIN : keep > KEEP_MAX ? KEEP_MAX : keep;
    int64_t spill_at = field_number(fields, T_SPILL_AT, keep);
    s->call = s->reader->header.call;
    s->started = now_us();
    if (timeout > 0) s->deadline = s->started + timeout * 1000;
    capture_init(&s->out, -1, (size_t)keep, spill_at, s->call, "stdout");
    capture_init(&s->err, -1, (size_t)keep, spill_at, s->call, "stderr");
    start(s, fields);
    chunk_free(s->reader->payload);
}

/* One command, until its result is sent and nothing of it is left. */
static void run(struct reader *reader, int signals) {
    struct supervisor s = {.reader = reader, .socket = reader->socket, .signals = signals, .in = -1, .stream = STDOUT};
    receive_call(&s);
    bool dropped = false, more = false;
    for (;;) {
        int wait = advance(&s);
        if (s.phase == ENDED) {
            more = write_frames(&s);
            if (said_all(&s) && !dropped) {
                drop_output(&s);
                dropped = true;
            }
            if (dropped && s.childless) break;
        } else if (s.small.length) more = write_frames(&s);
        struct pollfd fds[5] = {
            {s.socket, (short)(POLLIN | (more || s.small.length ? POLLOUT : 0)), 0}, {s.signals, POLLIN, 0},
            {s.out.fd, POLLIN, 0}, {s.err.fd, POLLIN, 0}, {s.input.first || s.in < 0 ? s.in : -1, POLLOUT, 0}};
        if (poll(fds, 5, wait) < 0 && errno != EINTR) end_all(&s);
        if (fds[0].revents & (POLLIN | POLLHUP | POLLERR) && !read_frames(&s)) end_all(&s);
        for (int i = 2; i < 4; i++) {
            struct capture *c = i == 2 ? &s.out : &s.err;
            if (!fds[i].revents || c->fd < 0) continue;
            if (s.phase == ENDED) discard(c);
            else capture_read(c);
        }
        if (fds[4].revents) write_input(&s);
        if (fds[1].revents) {
            struct signalfd_siginfo info;
            while (read(s.signals, &info, sizeof info) > 0) {}
            reap(&s);
        }
        if (s.cancelled && s.phase == ENDED && dropped) end_all(&s);
    }
    if (s.out.fd >= 0) close(s.out.fd);
    if (s.err.fd >= 0) close(s.err.fd);
    if (s.in >= 0) close(s.in);
    if (s.background) _exit(0); /* the main loop does not expect it back */
}

void supervise(int socket) {
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    int signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    fcntl(socket, F_SETFL, O_NONBLOCK);
    for (struct reader reader = {.socket = socket};;) run(&reader, signals);
}
