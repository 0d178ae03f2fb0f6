/* File verbs, run in short steps by a few threads, so that no disk ever holds up the main loop and no slow reader of
 * one transfer holds a thread. A job is owned by the main loop, except while its step runs. */
#include "guest.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { THREADS = 4, STACK = 128 * 1024 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work = PTHREAD_COND_INITIALIZER;
static struct job *waiting, **waiting_end = &waiting, *done, **done_end = &done;
static int done_event;

static void append(struct job ***end, struct job *job) {
    job->next = NULL;
    **end = job;
    *end = &job->next;
}

static struct job *take(struct job **first, struct job ***end) {
    struct job *job = *first;
    if (job && !(*first = job->next)) *end = first;
    return job;
}

static void *worker(void *started) {
    sem_post(started);
    for (;;) {
        pthread_mutex_lock(&lock);
        while (!waiting) pthread_cond_wait(&work, &lock);
        struct job *job = take(&waiting, &waiting_end);
        pthread_mutex_unlock(&lock);
        if (atomic_load(&job->cancelled)) job_fail(job, ECANCELED, NULL, NULL);
        else job->step(job);
        pthread_mutex_lock(&lock);
        append(&done_end, job);
        pthread_mutex_unlock(&lock);
        uint64_t one = 1;
        if (write(done_event, &one, sizeof one) < 0) _exit(71);
    }
    return NULL;
}

int jobs_start(void) {
    done_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK);
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int count = 0;
    static sem_t started;
    sem_init(&started, 0, 0);
    for (pthread_t thread; count < THREADS && !pthread_create(&thread, &attributes, worker, &started); count++) pthread_detach(thread);
    for (int i = 0; i < count; i++) sem_wait(&started); /* a fork must not meet a thread that is half made */
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attributes);
    return count && done_event >= 0 ? done_event : -1;
}

void jobs_submit(struct job *job) {
    job->running = true;
    job->consumed = 0;
    pthread_mutex_lock(&lock);
    append(&waiting_end, job);
    pthread_cond_signal(&work);
    pthread_mutex_unlock(&lock);
}

struct job *jobs_collect(void) {
    pthread_mutex_lock(&lock);
    struct job *job = take(&done, &done_end);
    pthread_mutex_unlock(&lock);
    if (job) job->running = false;
    return job;
}

void job_free(struct job *job) {
    if (job->cleanup) job->cleanup(job);
    queue_clear(&job->input);
    queue_clear(&job->output);
    free(job->result.bytes);
    chunk_free(job->request);
    free(job);
}

void job_done(struct job *job) { job->finished = true; }

void job_fail(struct job *job, int error, const char *path, const char *message) {
    job->finished = true;
    job->error = error == OUTSIDE ? EACCES : error;
    job->result.length = 0;
    build_number(&job->result, T_ERRNO, job->error);
    if (!message) message = error == OUTSIDE ? "it is outside the workspace" : strerror(error);
    build_bytes(&job->result, T_MESSAGE, message, strlen(message));
    if (path) build_bytes(&job->result, T_PATH, path, strlen(path));
}

struct chunk *job_room(struct job *job, size_t *space) {
    struct chunk *last = NULL;
    if (job->output.first) last = (struct chunk *)((char *)job->output.last - offsetof(struct chunk, next));
    if (!last || last->length == MAX_DATA) {
        last = chunk_new(MAX_DATA);
        queue_push(&job->output, last);
    }
    *space = MAX_DATA - last->length;
    return last;
}

void job_emit(struct job *job, const void *bytes, size_t length) {
    for (size_t space; length;) {
        struct chunk *c = job_room(job, &space);
        size_t n = length < space ? length : space;
        memcpy(c->data + c->length, bytes, n);
        c->length += n;
        job->output.bytes += n;
        bytes = (const char *)bytes + n;
        length -= n;
    }
}
