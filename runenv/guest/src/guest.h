/* The guest: the small static program that runs beside an env's commands and does everything there.
 *
 *   main.c        the event loop: frames in, one router for all calls; never touches a disk
 *   hello.c       what the env is;  calls.c  calls under way and frames out;  execs.c  the supervisors, from outside
 *   frames.c      the wire format (its specification is the docstring of ../frames.py)
 *   supervisor.c  one process per exec: feeds the command, keeps its deadline, kills its whole tree
 *   command.c     how a command is started
 *   output.c      what is kept of a command's output, and the spill file
 *   proc.c        finding and killing process trees; the kernel's out-of-memory and pids counters
 *   jobs.c        a few worker threads that run file verbs in short steps
 *   path.c        from a path to an open folder and a name, inside the env's root
 *   files.c       get, put, stat, list, mkdir, remove, rename
 *   tree.c        folders out as a tar stream;  untar.c  and in;  glob.c  include and exclude patterns
 *   search.c      `guest search`, a command of its own: files by name, lines by pattern;  scan.c  the lines of one file
 */
#ifndef GUEST_H
#define GUEST_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

/* ---- frames.c: keep these equal to ../frames.py, tests/guest/test_guest.py compares them ---- */

enum { PROTOCOL_VERSION = 2, HEADER = 12, MAX_PAYLOAD = 1 << 20, MAX_DATA = 128 * 1024,
       HOST_WINDOW = 1 << 20, GUEST_WINDOW = 2 << 20, TOKEN_BYTES = 16 };

enum kind { HELLO = 1, CALL, DATA, END, CREDIT, CANCEL, RESULT, ERROR, PING, PONG, BYE, CONNECT };
enum verb { EXEC = 1, GET, PUT, STAT, LIST, MKDIR, REMOVE, RENAME, TREE_GET, TREE_PUT };
enum channel { MAIN = 0, STDOUT = 1, STDERR = 2 };
enum tag {
    T_VERSION = 1, T_TIMEOUT_MS, T_KEEP, T_SPILL_AT, T_FLAGS, T_OFFSET, T_LENGTH, T_LIMIT, T_MODE, T_MTIME_NS,
    T_TOTAL, T_FILES, T_REFUSED_COUNT, T_ERRNO, T_EXIT_CODE, T_SIGNAL, T_DURATION_US,
    T_OUT_TOTAL, T_OUT_LINES, T_OUT_KEPT_HEAD, T_OUT_SPILLED,
    T_ERR_TOTAL, T_ERR_LINES, T_ERR_KEPT_HEAD, T_ERR_SPILLED, T_SPILL_QUOTA, T_UID, T_GID, T_PID,
    T_PATH = 64, T_TARGET, T_ARG, T_SHELL, T_CWD, T_ENV, T_INCLUDE, T_EXCLUDE, T_MESSAGE, T_ENTRY, T_REFUSED,
    T_OUT_SPILL, T_ERR_SPILL, T_SPILL_DIR, T_HOME, T_WORKDIR, T_SCRATCH,
    T_TOKEN
};
enum flag {
    F_APPEND = 1, F_NO_FOLLOW = 2, F_PARENTS = 4, F_EXIST_OK = 8, F_RECURSIVE = 16, F_MISSING_OK = 32,
    F_HAS_STDIN = 64, F_CONFINE = 128, F_TIMED_OUT = 256, F_OOM_KILLED = 512, F_BACKGROUND = 1024, F_CANCELLED = 2048
};

struct header { uint32_t length, call; uint8_t kind, channel; };

void put32(uint8_t *out, uint32_t v);                              /* little-endian, as everything on the wire */
uint32_t get32(const uint8_t *in);
void header_write(uint8_t out[HEADER], struct header h);
bool header_read(const uint8_t in[HEADER], struct header *h);      /* false: not a frame of this protocol */

struct span { const uint8_t *at; size_t length; };                 /* borrowed bytes */
struct span span_of(const void *at, size_t length);

bool field_next(struct span *rest, int *tag, struct span *value);  /* walks fields; false at the end or when broken */
bool fields_valid(struct span fields);
int64_t field_number(struct span fields, int tag, int64_t otherwise);
bool field_bytes(struct span fields, int tag, struct span *value);

struct builder { uint8_t *bytes; size_t length, capacity; };       /* a payload of fields being written */
void build_number(struct builder *b, int tag, int64_t value);
void build_bytes(struct builder *b, int tag, const void *bytes, size_t length);

/* A piece of bytes in a queue; data starts after room for a frame header, so that nothing is copied to be framed. */
struct chunk { struct chunk *next; size_t length, sent, capacity; uint8_t align[4], room[HEADER], data[]; }; /* data is aligned for pointers */
struct queue { struct chunk *first, **last; size_t bytes; };

struct chunk *chunk_new(size_t capacity);
void chunk_free(struct chunk *c);
void chunks_release(void);                                         /* gives memory back that is kept for large chunks */
void queue_push(struct queue *q, struct chunk *c);
struct chunk *queue_pop(struct queue *q);
void queue_clear(struct queue *q);

void *xmalloc(size_t size);                                        /* never NULL: no memory ends the guest */
void *xrealloc(void *old, size_t size);
int64_t now_us(void);                                              /* monotonic */

/* ---- the env, set once by HELLO ---- */

struct guest {
    char workdir[PATH_MAX];       /* as the host said it */
    char real_workdir[PATH_MAX];  /* with links resolved */
    char spill_dir[PATH_MAX];
    char scratch[PATH_MAX];       /* removed at the end with all that is in it; empty: nothing is */
    char shell[PATH_MAX];         /* empty: the image has none */
    char **environ;               /* base environment of commands */
    bool confine;
    int64_t spill_quota;
    _Atomic int64_t *spilled;     /* bytes in the spill folder; shared with supervisors */
    int oom_events;               /* the cgroup's file with the oom_kill counter, or -1 */
    uint64_t file_limit;          /* RLIMIT_NOFILE that commands get back */
};
extern struct guest guest;

/* ---- supervisor.c (with command.c), output.c, proc.c ---- */

void supervise(int socket) __attribute__((noreturn));

struct capture {                  /* one output stream of a command */
    int fd;                       /* pipe, or -1 at its end */
    uint8_t *kept;                /* up to `keep` bytes: the head, then a ring with the tail */
    size_t keep, capacity, length, ring_at;
    int64_t total, lines, spill_at, spilled;
    int spill;                    /* file, or -1 */
    bool spill_done;              /* no quota, no disk: the file ends here */
    char spill_name[32];
};
void capture_init(struct capture *c, int fd, size_t keep, int64_t spill_at, uint32_t serial, const char *name);
bool capture_read(struct capture *c);   /* takes what is there; false when nothing was */
size_t capture_head(const struct capture *c);
struct span capture_piece(const struct capture *c, size_t offset);  /* kept bytes from offset on, contiguous run */
void capture_free(struct capture *c);

int kill_descendants(pid_t root, int signal, const pid_t *spare, size_t spare_count);  /* how many were signalled */
int64_t oom_kills(void);
void describe_fork_failure(int error, char *out, size_t size);
int open_oom_events(void);

/* ---- jobs.c: a file verb as a sequence of short steps on a worker thread ---- */

struct job {
    struct job *next;
    uint32_t call;
    struct span fields;
    struct chunk *request;                 /* owns the bytes of `fields` */
    void (*step)(struct job *);            /* one bounded piece of work */
    void (*cleanup)(struct job *);         /* frees `state`; undoes what was not finished */
    void *state;
    struct queue input, output;            /* DATA to this verb, and from it (chunks of at most MAX_DATA) */
    size_t budget;                         /* how many output bytes this step may add */
    size_t consumed;                       /* input bytes used up by this step */
    bool input_ended, takes_input, started, finished, running;
    atomic_bool cancelled;
    int error;                             /* errno of a failure, 0 for success */
    struct builder result;                 /* RESULT fields, or PATH and MESSAGE of the ERROR */
};
int jobs_start(void);                      /* returns a descriptor that is readable when steps are done */
void jobs_submit(struct job *job);
struct job *jobs_collect(void);            /* next job whose step is done, or NULL */
void job_free(struct job *job);
void job_fail(struct job *job, int error, const char *path, const char *message);  /* message NULL: the system's */
void job_done(struct job *job);
struct chunk *job_room(struct job *job, size_t *space);  /* output chunk with `space` > 0 bytes free */
void job_emit(struct job *job, const void *bytes, size_t length);

bool job_begin(struct job *job, int verb); /* sets step and cleanup; false: unknown verb */
void tree_get_begin(struct job *job);
void tree_put_begin(struct job *job);

/* ---- path.c ---- */

struct place { int folder; char name[NAME_MAX + 1]; };   /* name "." : the folder itself */
enum { FOLLOW = 1, MAKE_PARENTS = 2 };
int place_open(const char *path, int flags, struct place *place);  /* 0 or errno; OUTSIDE when confinement refuses */
void place_close(struct place *place);
int make_folders(int from, const char *path);            /* mkdir -p below `from`, never through links; fd or -errno */
enum { OUTSIDE = 100000 };                                /* an error of ours: the path leaves the workspace */
int field_path(struct span fields, int tag, char out[PATH_MAX]);   /* 0 or errno */

/* ---- files.c, tree.c, glob.c ---- */

void encode_entry(struct builder *out, const struct stat *st, const char *name, const char *target);
const char *refuse_kind(mode_t mode);                     /* NULL for files, folders and links */
bool all_zero(const uint8_t *bytes, size_t length);
int remove_all(int folder, const char *name, atomic_bool *cancelled);  /* 0 or errno */
struct refusals { struct builder fields; int64_t count; int kept; };
void refuse(struct refusals *r, const char *path, const char *reason);
void tree_done(struct job *job, int64_t files, int64_t bytes, const struct refusals *r);  /* the RESULT of a tree */

struct patterns { char **include, **exclude; size_t includes, excludes; };
void patterns_read(struct patterns *p, struct span fields);
void patterns_free(struct patterns *p);
bool patterns_exclude(const struct patterns *p, const char *path, bool folder);
bool patterns_include(const struct patterns *p, const char *path);   /* files only */

/* ---- search.c ---- */

int search_main(int count, char **arguments);             /* the whole program when it is started as `guest search` */

#endif
