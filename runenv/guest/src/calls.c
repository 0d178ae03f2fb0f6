/* The calls that are under way, the frames that go out for them, and the end of all of them. */
#include "loop.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    STEP_BYTES = 512 * 1024,         /* output of one step of a file verb */
    STEP_CREDIT = 64 * 1024,         /* less credit than this is not worth a step */
    STEP_INPUT = GUEST_WINDOW / 4,   /* nor is less input, if more may come: each step wakes a thread, then the host */
};

int carrier_in, carrier_out;
struct queue out;
struct call *calls;
size_t call_count;

/* ---- frames out ---- */

void send_chunk(uint32_t call, int kind, int channel, struct chunk *c) {
    header_write(c->room, (struct header){(uint32_t)c->length, call, (uint8_t)kind, (uint8_t)channel});
    queue_push(&out, c);
}

void send_bytes(uint32_t call, int kind, int channel, const void *bytes, size_t length) {
    struct chunk *c = chunk_new(length);
    c->length = length;
    if (length) memcpy(c->data, bytes, length);
    send_chunk(call, kind, channel, c);
}

void send_fields(uint32_t call, int kind, struct builder *b) {
    send_bytes(call, kind, 0, b->bytes, b->length);
    free(b->bytes);
    *b = (struct builder){0};
}

static void send_credit(struct call *call, size_t bytes) {
    uint8_t payload[4];
    put32(payload, (uint32_t)bytes);
    call->window += (int64_t)bytes;
    send_bytes(call->id, CREDIT, 0, payload, sizeof payload);
}

void send_error(uint32_t call, int error, const char *message) {
    struct builder b = {0};
    build_number(&b, T_ERRNO, error);
    build_bytes(&b, T_MESSAGE, message, strlen(message));
    send_fields(call, ERROR, &b);
}

bool flush_queue(int fd, struct queue *q) {
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
            chunk_free(queue_pop(q));
        }
    }
    return true;
}

/* ---- calls ---- */

struct call *call_find(uint32_t id) {
    for (struct call *c = calls; c; c = c->next)
        if (c->id == id && !c->answered) return c;
    return NULL;
}

struct call *call_new(uint32_t id) {
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
    chunk_free(c->incoming);
    free(c);
    call_count--;
}

static bool is_over(const struct call *c) { return c->answered && !c->job && c->fd < 0 && !c->supervisor; }

void sweep_calls(void) {
    bool moving = out.first;
    for (struct call **at = &calls, *c; (c = *at);) {
        moving = moving || c->job;
        if (!is_over(c)) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        call_free(c);
    }
    if (!moving) chunks_release();
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
void drive(struct call *c) {
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
    else if (job->takes_input ? !job->started || c->inbox.bytes >= STEP_INPUT || c->input_ended : c->credit >= STEP_CREDIT && out.bytes < OUT_HIGH) submit(c);
}

void collect_jobs(int event) {
    uint64_t count;
    if (read(event, &count, sizeof count) < 0) return;
    for (struct job *job; (job = jobs_collect());) {
        struct call *c = call_find(job->call);
        if (job->consumed && !job->finished) send_credit(c, job->consumed);
        for (struct chunk *d; (d = queue_pop(&job->output));) {
            if (d->length) queue_push(&c->pending, d);
            else chunk_free(d); /* room that was made at the end of a file */
        }
        drive(c);
    }
}

/* ---- the end ---- */

static void remove_own_folders(void) {
    atomic_bool never = false;
    if (guest.spill_dir[0]) remove_all(AT_FDCWD, guest.spill_dir, &never);
    if (guest.scratch[0]) remove_all(AT_FDCWD, guest.scratch, &never);
}

/* Ends every command and every unfinished write, then the guest. A container's first process needs not wait for the
 * processes: the kernel ends them with it. */
void leave(int code) {
    int64_t stop = now_us() + CLEANUP_US;
    close_idle();
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
    remove_own_folders();
    _exit(code);
}

void say_bye(const char *message, int code) {
    struct builder b = {0};
    build_bytes(&b, T_MESSAGE, message, strlen(message));
    send_fields(0, BYE, &b);
    struct pollfd fd = {carrier_out, POLLOUT, 0};
    for (int64_t stop = now_us() + CLEANUP_US / 3; flush_queue(carrier_out, &out) && out.first && now_us() < stop;) poll(&fd, 1, 100);
    leave(code);
}

void breach(const char *what) { say_bye(what, EXIT_BREACH); }
