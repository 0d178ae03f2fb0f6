/* The verbs on single entries. Each is a job: one step, or as many as its data has pieces. */
#include "guest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { DEPTH_MAX = 1000 };  /* folders within folders that are removed or sent */

const char *refuse_kind(mode_t mode) {
    switch (mode & S_IFMT) {
    case S_IFIFO: return "it is a FIFO";
    case S_IFSOCK: return "it is a socket";
    case S_IFCHR: return "it is a character device";
    case S_IFBLK: return "it is a block device";
    default: return NULL;
    }
}

bool all_zero(const uint8_t *bytes, size_t length) {
    return length && !bytes[0] && !memcmp(bytes, bytes + 1, length - 1);
}

static void put_le(uint8_t *out, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) out[i] = (uint8_t)(value >> (8 * i));
}

/* The record of one entry: mode u32, size u64, mtime_ns i64, uid u32, gid u32, name length u16, target length u16. */
enum { RECORD = 32 };
static size_t entry_record(uint8_t record[RECORD + NAME_MAX + PATH_MAX], const struct stat *st, const char *name, const char *target) {
    size_t name_length = strlen(name), target_length = strlen(target);
    put_le(record, st->st_mode, 4);
    put_le(record + 4, (uint64_t)st->st_size, 8);
    put_le(record + 12, (uint64_t)((int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec), 8);
    put_le(record + 20, st->st_uid, 4);
    put_le(record + 24, st->st_gid, 4);
    put_le(record + 28, name_length, 2);
    put_le(record + 30, target_length, 2);
    memcpy(record + RECORD, name, name_length);
    memcpy(record + RECORD + name_length, target, target_length);
    return RECORD + name_length + target_length;
}

void encode_entry(struct builder *out, const struct stat *st, const char *name, const char *target) {
    uint8_t record[RECORD + NAME_MAX + PATH_MAX];
    build_bytes(out, T_ENTRY, record, entry_record(record, st, name, target));
}

static const char *link_target(int folder, const char *name, const struct stat *st, char out[PATH_MAX]) {
    ssize_t n = S_ISLNK(st->st_mode) ? readlinkat(folder, name, out, PATH_MAX - 1) : 0;
    out[n > 0 ? n : 0] = 0;
    return out;
}

/* Opens the place that a job's PATH names. The path is kept in `path` for messages. */
static bool job_place(struct job *job, int flags, char path[PATH_MAX], struct place *place) {
    int error = field_path(job->fields, T_PATH, path);
    if (!error) error = place_open(path, flags, place);
    else path[0] = 0;
    if (error) job_fail(job, error, path, NULL);
    return !error;
}

/* ---- stat, mkdir, rename ---- */

static void step_stat(struct job *job) {
    char path[PATH_MAX], target[PATH_MAX];
    struct place place;
    bool follow = !(field_number(job->fields, T_FLAGS, 0) & F_NO_FOLLOW);
    if (!job_place(job, follow ? FOLLOW : 0, path, &place)) return;
    struct stat st;
    if (fstatat(place.folder, place.name, &st, AT_SYMLINK_NOFOLLOW)) job_fail(job, errno, path, NULL);
    else {
        encode_entry(&job->result, &st, "", link_target(place.folder, place.name, &st, target));
        job_done(job);
    }
    place_close(&place);
}

static void step_mkdir(struct job *job) {
    char path[PATH_MAX];
    struct place place;
    int64_t flags = field_number(job->fields, T_FLAGS, 0);
    if (!job_place(job, FOLLOW | (flags & F_PARENTS ? MAKE_PARENTS : 0), path, &place)) return;
    struct stat st;
    int error = mkdirat(place.folder, place.name, 0777) ? errno : 0;
    if (error == EEXIST && flags & F_EXIST_OK && !fstatat(place.folder, place.name, &st, AT_SYMLINK_NOFOLLOW) && S_ISDIR(st.st_mode)) error = 0;
    place_close(&place);
    if (error) job_fail(job, error, path, NULL);
    else job_done(job);
}

static void step_rename(struct job *job) {
    char path[PATH_MAX], target[PATH_MAX];
    struct place from, to;
    if (!job_place(job, 0, path, &from)) return;
    int error = field_path(job->fields, T_TARGET, target);
    struct stat st;
    if (!error && fstatat(from.folder, from.name, &st, AT_SYMLINK_NOFOLLOW)) error = errno; /* before parents are made */
    else if (!error && !(error = place_open(target, MAKE_PARENTS, &to))) {
        if (renameat(from.folder, from.name, to.folder, to.name)) error = errno;
        place_close(&to);
    }
    place_close(&from);
    if (error) job_fail(job, error, error == ENOENT ? path : target, NULL);
    else job_done(job);
}

/* ---- remove ---- */

static int remove_below(int folder, const char *name, atomic_bool *cancelled, int depth) {
    if (!unlinkat(folder, name, 0)) return 0;
    if (errno != EISDIR && errno != EPERM) return errno;
    if (!unlinkat(folder, name, AT_REMOVEDIR)) return 0;
    if (errno != ENOTEMPTY && errno != EEXIST) return errno;
    if (depth > DEPTH_MAX) return ENAMETOOLONG;
    int fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) return errno;
    int error = 0;
    for (struct dirent *e; !error && (e = readdir(dir));) {
        if (atomic_load(cancelled)) error = ECANCELED;
        else if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..")) error = remove_below(dirfd(dir), e->d_name, cancelled, depth + 1);
    }
    closedir(dir);
    if (!error && unlinkat(folder, name, AT_REMOVEDIR)) error = errno;
    return error;
}

int remove_all(int folder, const char *name, atomic_bool *cancelled) { return remove_below(folder, name, cancelled, 0); }

static void step_remove(struct job *job) {
    char path[PATH_MAX];
    struct place place;
    int64_t flags = field_number(job->fields, T_FLAGS, 0);
    int error = field_path(job->fields, T_PATH, path);
    if (!error && !(error = place_open(path, 0, &place))) {
        struct stat st;
        if (!strcmp(place.name, ".")) error = EINVAL;
        else if (fstatat(place.folder, place.name, &st, AT_SYMLINK_NOFOLLOW)) error = errno;
        else if (flags & F_RECURSIVE) error = remove_all(place.folder, place.name, &job->cancelled);
        else if (unlinkat(place.folder, place.name, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0)) error = errno;
        place_close(&place);
    }
    if (error && !(error == ENOENT && flags & F_MISSING_OK)) job_fail(job, error, path, NULL);
    else job_done(job);
}

/* ---- list ---- */

struct listing { DIR *dir; int64_t left, count; char path[PATH_MAX]; };

static void cleanup_list(struct job *job) {
    struct listing *l = job->state;
    if (l && l->dir) closedir(l->dir);
    free(l);
}

static void step_list(struct job *job) {
    struct listing *l = job->state;
    if (!l) {
        job->state = l = xmalloc(sizeof *l);
        memset(l, 0, sizeof *l);
        l->left = field_number(job->fields, T_LIMIT, INT64_MAX);
        struct place place;
        if (!job_place(job, FOLLOW, l->path, &place)) return;
        int fd = openat(place.folder, place.name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (fd < 0 || !(l->dir = fdopendir(fd))) job_fail(job, errno, l->path, NULL);
        place_close(&place);
        if (!l->dir) return;
    }
    while (job->output.bytes + RECORD + NAME_MAX + PATH_MAX < job->budget) {
        errno = 0;
        struct dirent *e = readdir(l->dir);
        if (!e) {
            if (errno) job_fail(job, errno, l->path, NULL);
            else {
                build_number(&job->result, T_TOTAL, l->count);
                job_done(job);
            }
            return;
        }
        struct stat st;
        char target[PATH_MAX];
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        if (fstatat(dirfd(l->dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW)) continue; /* gone meanwhile */
        if (!l->left--) {
            job_fail(job, EFBIG, l->path, "it has more entries than asked for");
            return;
        }
        uint8_t record[RECORD + NAME_MAX + PATH_MAX];
        job_emit(job, record, entry_record(record, &st, e->d_name, link_target(dirfd(l->dir), e->d_name, &st, target)));
        l->count++;
    }
}

/* ---- get ---- */

struct get { int fd; bool sized; int64_t left, limit, sent; struct stat st; char path[PATH_MAX]; };

static void cleanup_get(struct job *job) {
    struct get *g = job->state;
    if (g && g->fd >= 0) close(g->fd);
    free(g);
}

static bool get_open(struct job *job, struct get *g) {
    struct place place;
    if (!job_place(job, FOLLOW, g->path, &place)) return false;
    g->fd = openat(place.folder, place.name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    int error = errno;
    if (g->fd < 0) {
        struct stat st;
        bool known = !fstatat(place.folder, place.name, &st, AT_SYMLINK_NOFOLLOW) && refuse_kind(st.st_mode);
        job_fail(job, known ? EINVAL : error, g->path, known ? refuse_kind(st.st_mode) : NULL);
    }
    place_close(&place);
    if (g->fd < 0) return false;
    fstat(g->fd, &g->st);
    int64_t offset = field_number(job->fields, T_OFFSET, 0), length = field_number(job->fields, T_LENGTH, INT64_MAX);
    g->limit = field_number(job->fields, T_LIMIT, INT64_MAX);
    g->sized = S_ISREG(g->st.st_mode) && g->st.st_size > 0;
    g->left = length;
    if (g->sized && g->st.st_size - offset < g->left) g->left = g->st.st_size > offset ? g->st.st_size - offset : 0;
    char text[64];
    snprintf(text, sizeof text, "it is too large: %lld bytes", (long long)g->st.st_size);
    if (S_ISDIR(g->st.st_mode)) job_fail(job, EISDIR, g->path, NULL);
    else if (!S_ISREG(g->st.st_mode)) job_fail(job, EINVAL, g->path, refuse_kind(g->st.st_mode));
    else if (g->sized && g->left > g->limit) job_fail(job, EFBIG, g->path, text);
    else if (offset < 0 || length < 0) job_fail(job, EINVAL, g->path, NULL);
    else if (offset && lseek(g->fd, offset, SEEK_SET) < 0) job_fail(job, errno, g->path, NULL);
    return !job->finished;
}

static void step_get(struct job *job) {
    struct get *g = job->state;
    if (!g) {
        job->state = g = xmalloc(sizeof *g);
        memset(g, 0, sizeof *g);
        g->fd = -1;
        if (!get_open(job, g)) return;
    }
    ssize_t n = 1;
    while (g->left && n && job->output.bytes < job->budget) {
        size_t space, room = job->budget - job->output.bytes;
        struct chunk *c = job_room(job, &space);
        if (space > room) space = room;
        n = read(g->fd, c->data + c->length, (int64_t)space < g->left ? space : (size_t)g->left);
        if (n < 0) {
            job_fail(job, errno, g->path, errno == EAGAIN ? "reading it would wait for ever" : NULL);
            return;
        }
        c->length += (size_t)n;
        job->output.bytes += (size_t)n;
        g->sent += n;
        g->left -= n;
        if (g->sent > g->limit) {
            job_fail(job, EFBIG, g->path, "it is larger than asked for");
            return;
        }
    }
    if (g->left && n) return;
    encode_entry(&job->result, &g->st, "", "");
    build_number(&job->result, T_TOTAL, g->sent);
    job_done(job);
}

/* ---- put ---- */

struct put {
    struct place place;
    int fd;
    bool append, named, hole;    /* named: a temporary name exists; hole: the file ends with one */
    mode_t mode;
    int64_t written;
    char temporary[32], path[PATH_MAX];
};

static void cleanup_put(struct job *job) {
    struct put *p = job->state;
    if (!p) return;
    if (p->fd >= 0) close(p->fd);
    if (p->named) unlinkat(p->place.folder, p->temporary, 0);
    place_close(&p->place);
    free(p);
}

static bool put_temporary(struct put *p) {
    static atomic_uint serial;
    snprintf(p->temporary, sizeof p->temporary, ".runenv-%d-%u", (int)getpid(), atomic_fetch_add(&serial, 1));
    p->fd = openat(p->place.folder, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    if (p->fd >= 0) return true;
    if (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT && errno != EINVAL) return false;
    p->fd = openat(p->place.folder, p->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    p->named = p->fd >= 0;
    return p->named;
}

static bool put_open(struct job *job, struct put *p) {
    if (!job_place(job, FOLLOW | MAKE_PARENTS, p->path, &p->place)) {
        p->place.folder = -1;
        return false;
    }
    int64_t mode = field_number(job->fields, T_MODE, -1);
    struct stat st;
    bool exists = !fstatat(p->place.folder, p->place.name, &st, AT_SYMLINK_NOFOLLOW);
    p->append = field_number(job->fields, T_FLAGS, 0) & F_APPEND;
    p->mode = mode >= 0 ? (mode_t)mode & 07777 : exists ? st.st_mode & 07777 : 0644;
    if (!exists && errno != ENOENT) job_fail(job, errno, p->path, NULL);
    else if (exists && S_ISDIR(st.st_mode)) job_fail(job, EISDIR, p->path, NULL);
    else if (exists && !S_ISREG(st.st_mode)) job_fail(job, EINVAL, p->path, refuse_kind(st.st_mode));
    /* A rename would replace a file that its owner protects; writing to it would not. */
    else if (exists && faccessat(p->place.folder, p->place.name, W_OK, AT_EACCESS)) job_fail(job, errno, p->path, NULL);
    else if (p->append) {
        p->fd = openat(p->place.folder, p->place.name, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, p->mode);
        if (p->fd < 0 || (mode >= 0 && fchmod(p->fd, p->mode))) job_fail(job, errno, p->path, NULL);
    } else if (!put_temporary(p)) job_fail(job, errno, p->path, NULL);
    return !job->finished;
}

static bool put_bytes(struct put *p, const uint8_t *bytes, size_t length) {
    if (!p->append && length >= 4096 && all_zero(bytes, length)) {
        p->hole = true;
        p->written += (int64_t)length;
        return lseek(p->fd, (off_t)length, SEEK_CUR) >= 0;
    }
    p->hole = false;
    p->written += (int64_t)length;
    for (ssize_t n; length; bytes += n, length -= (size_t)n)
        if ((n = write(p->fd, bytes, length)) < 0) return false;
    return true;
}

static bool put_commit(struct job *job, struct put *p) {
    if (p->append) return true;
    int64_t mtime = field_number(job->fields, T_MTIME_NS, -1);
    struct timespec times[2] = {{0, UTIME_NOW}, {mtime / 1000000000, mtime % 1000000000}};
    if (p->hole && ftruncate(p->fd, p->written)) return false;
    if (fchmod(p->fd, p->mode) || (mtime >= 0 && futimens(p->fd, times))) return false;
    if (!p->named) {
        char self[64];
        snprintf(self, sizeof self, "/proc/self/fd/%d", p->fd);
        if (linkat(AT_FDCWD, self, p->place.folder, p->temporary, AT_SYMLINK_FOLLOW)) return false;
        p->named = true;
    }
    if (renameat(p->place.folder, p->temporary, p->place.folder, p->place.name)) return false;
    p->named = false;
    return true;
}

static void step_put(struct job *job) {
    struct put *p = job->state;
    if (!p) {
        job->state = p = xmalloc(sizeof *p);
        memset(p, 0, sizeof *p);
        p->fd = -1;
        if (!put_open(job, p)) return;
    }
    for (struct chunk *c; (c = queue_pop(&job->input)); chunk_free(c)) {
        job->consumed += c->length;
        if (put_bytes(p, c->data, c->length)) continue;
        job_fail(job, errno, p->path, NULL);
        chunk_free(c);
        return;
    }
    if (!job->input_ended) return;
    if (!put_commit(job, p)) {
        job_fail(job, errno, p->path, NULL);
        return;
    }
    build_number(&job->result, T_TOTAL, p->written);
    job_done(job);
}

bool job_begin(struct job *job, int verb) {
    static const struct { void (*step)(struct job *), (*cleanup)(struct job *); bool takes_input; } verbs[] = {
        [GET] = {step_get, cleanup_get, false}, [PUT] = {step_put, cleanup_put, true}, [STAT] = {step_stat, NULL, false},
        [LIST] = {step_list, cleanup_list, false}, [MKDIR] = {step_mkdir, NULL, false},
        [REMOVE] = {step_remove, NULL, false}, [RENAME] = {step_rename, NULL, false}};
    if (verb == TREE_GET) tree_get_begin(job);
    else if (verb == TREE_PUT) tree_put_begin(job);
    else if (verb >= 0 && (size_t)verb < sizeof verbs / sizeof *verbs && verbs[verb].step) {
        job->step = verbs[verb].step;
        job->cleanup = verbs[verb].cleanup;
        job->takes_input = verbs[verb].takes_input;
    }
    return job->step != NULL;
}
