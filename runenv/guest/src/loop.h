/* What the parts of the event loop share: the calls, and the queue of frames to the host. */
#ifndef LOOP_H
#define LOOP_H

#include "guest.h"

enum {
    OUT_HIGH = 512 * 1024,           /* nothing more is made for the host while this much waits */
    EXIT_BREACH = 65,
    CLEANUP_US = 3 * 1000 * 1000,    /* at the end, for supervisors to kill what is theirs */
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
    int64_t passed[STDERR + 1], passed_lines[STDERR + 1];  /* output on its way to the host, by channel */
    int pokes;
    bool cancelled;
};

/* ---- calls.c ---- */

extern int carrier_in, carrier_out;
extern struct queue out;
extern struct call *calls;
extern size_t call_count;

void send_chunk(uint32_t call, int kind, int channel, struct chunk *c);
void send_bytes(uint32_t call, int kind, int channel, const void *bytes, size_t length);
void send_fields(uint32_t call, int kind, struct builder *b);
void send_error(uint32_t call, int error, const char *message);
bool flush_queue(int fd, struct queue *q);               /* false when the other side is gone */
void leave(int code) __attribute__((noreturn));          /* ends everything, then the guest */
void say_bye(const char *message, int code) __attribute__((noreturn));
void breach(const char *what) __attribute__((noreturn)); /* the host broke the protocol */

struct call *call_find(uint32_t id);
struct call *call_new(uint32_t id);
void sweep_calls(void);                                  /* frees those that are over */
void drive(struct call *c);                              /* a file verb: sends, answers, or runs its next step */
void collect_jobs(int event);

/* ---- execs.c ---- */

bool reap(void);                                         /* true when no child is left */
void end_orphans_of_killed_supervisors(void);
void close_idle(void);
void keep_idle(void);                                    /* one supervisor waits for the next call */
void start_exec(struct call *c, const struct header *h, struct chunk *payload);
void queue_to_supervisor(struct call *c, const struct header *h, struct chunk *payload);
void cancel_exec(struct call *c, const struct header *h, struct chunk *payload);
bool is_held(const struct call *c);                      /* what its supervisor says next has to wait for credit */
void read_supervisor(struct call *c);
void poke_late_supervisors(void);

/* ---- hello.c ---- */

void say_hello(struct span fields);

#endif
