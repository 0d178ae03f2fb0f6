/* A folder out as a tar stream, made piece by piece as the host takes it. Links are sent as links, hard links as files
 * of their own; what cannot be sent is named in the result. */
#include "guest.h"
#include "tar.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEPTH_MAX = 500, REFUSALS_MAX = 1000, REFUSALS_BYTES = 256 * 1024 };

struct level { DIR *dir; size_t path_length; struct stat st; bool sent; };

struct tree {
    struct level *levels;
    size_t depth;
    char path[PATH_MAX];            /* of the current entry, relative to the folder */
    int fd;                         /* file being sent, or -1 */
    int64_t left;                   /* bytes its header still owes */
    size_t padding;
    bool changed;
    int64_t files, bytes;
    struct patterns patterns;
    struct refusals refusals;
};

void refuse(struct refusals *r, const char *path, const char *reason) {
    r->count++;
    if (r->kept >= REFUSALS_MAX || r->fields.length > REFUSALS_BYTES) return;
    r->kept++;
    char text[PATH_MAX + 256];
    size_t n = strlen(path), m = strlen(reason);
    if (n >= PATH_MAX || m > 200) return;
    memcpy(text, path, n + 1);
    memcpy(text + n + 1, reason, m);
    build_bytes(&r->fields, T_REFUSED, text, n + 1 + m);
}

void tree_done(struct job *job, int64_t files, int64_t bytes, const struct refusals *r) {
    build_number(&job->result, T_FILES, files);
    build_number(&job->result, T_TOTAL, bytes);
    build_number(&job->result, T_REFUSED_COUNT, r->count);
    struct span rest = span_of(r->fields.bytes, r->fields.length), value;
    for (int tag; field_next(&rest, &tag, &value);) build_bytes(&job->result, tag, value.at, value.length);
    job_done(job);
}

static void number(char *out, size_t size, int64_t value) {
    if (value >= 0 && value < (int64_t)1 << (3 * (size - 1))) {
        snprintf(out, size, "%0*llo", (int)size - 1, (long long)value);
        return;
    }
    for (size_t i = size; i-- > 0; value >>= 8) out[i] = (char)value;
    out[0] = (char)(value < 0 ? 0xff : 0x80);
}

static void emit_header(struct job *job, char type, const char *name, size_t name_length, const char *link, size_t link_length,
                        const struct stat *st, int64_t size) {
    struct tar_header h;
    memset(&h, 0, sizeof h);
    memcpy(h.name, name, name_length < sizeof h.name ? name_length : sizeof h.name);
    memcpy(h.link, link, link_length < sizeof h.link ? link_length : sizeof h.link);
    number(h.mode, sizeof h.mode, st ? st->st_mode & 07777 : 0);
    number(h.uid, sizeof h.uid, 0);
    number(h.gid, sizeof h.gid, 0);
    number(h.size, sizeof h.size, size);
    number(h.mtime, sizeof h.mtime, st ? st->st_mtim.tv_sec : 0);
    h.type = type;
    memcpy(h.magic, "ustar  ", sizeof h.magic);
    snprintf(h.checksum, sizeof h.checksum, "%06o", tar_checksum(&h));
    h.checksum[7] = ' ';
    job_emit(job, &h, sizeof h);
}

static const char zeros[BLOCK];

static void emit_long(struct job *job, char type, const char *text, size_t length) {
    emit_header(job, type, "././@LongLink", 13, "", 0, NULL, (int64_t)length + 1);
    job_emit(job, text, length + 1);
    job_emit(job, zeros, (BLOCK - (length + 1) % BLOCK) % BLOCK);
}

static void emit_entry(struct job *job, char type, char *name, const char *link, const struct stat *st, int64_t size) {
    size_t name_length = strlen(name), link_length = strlen(link);
    if (link_length > 100) emit_long(job, 'K', link, link_length);
    if (name_length > 100) emit_long(job, 'L', name, name_length);
    emit_header(job, type, name, name_length, link, link_length, st, size);
}

static void emit_folder(struct job *job, struct tree *t, size_t path_length, const struct stat *st) {
    char name[PATH_MAX + 1];
    memcpy(name, t->path, path_length);
    strcpy(name + path_length, "/");
    emit_entry(job, '5', name, "", st, 0);
}

/* With include patterns a folder is sent when the first file in it is. */
static void emit_folders(struct job *job, struct tree *t) {
    for (size_t i = 1; i < t->depth; i++) {
        if (t->levels[i].sent) continue;
        t->levels[i].sent = true;
        emit_folder(job, t, t->levels[i].path_length, &t->levels[i].st);
    }
}

static bool enter(struct tree *t, int fd, size_t path_length, const struct stat *st) {
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) return false;
    t->levels = xrealloc(t->levels, (t->depth + 1) * sizeof *t->levels);
    t->levels[t->depth++] = (struct level){dir, path_length, *st, false};
    return true;
}

static void one_folder(struct job *job, struct tree *t, int parent, const char *name, const struct stat *st) {
    if (patterns_exclude(&t->patterns, t->path, true)) return;
    size_t length = strlen(t->path);
    if (t->depth >= DEPTH_MAX || length + 2 >= PATH_MAX) {
        refuse(&t->refusals, t->path, "it is too deep");
        return;
    }
    if (!enter(t, openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), length, st)) {
        refuse(&t->refusals, t->path, strerror(errno));
        return;
    }
    if (!t->patterns.includes) emit_folders(job, t);
}

static void one_file(struct job *job, struct tree *t, int parent, const char *name) {
    struct stat st;
    int fd = openat(parent, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode)) {
        refuse(&t->refusals, t->path, fd < 0 ? strerror(errno) : "it changed while it was read");
        if (fd >= 0) close(fd);
        return;
    }
    emit_folders(job, t);
    emit_entry(job, '0', t->path, "", &st, st.st_size);
    t->fd = fd;
    t->left = st.st_size;
    t->padding = (size_t)((BLOCK - st.st_size % BLOCK) % BLOCK);
    t->changed = false;
    t->files++;
    t->bytes += st.st_size;
}

static void one_link(struct job *job, struct tree *t, int parent, const char *name, const struct stat *st) {
    char target[PATH_MAX];
    ssize_t n = readlinkat(parent, name, target, sizeof target - 1);
    if (n < 0) {
        refuse(&t->refusals, t->path, strerror(errno));
        return;
    }
    target[n] = 0;
    emit_folders(job, t);
    emit_entry(job, '2', t->path, target, st, 0);
}

/* Sends the next entry; false when the walk is over. */
static bool next_entry(struct job *job, struct tree *t) {
    struct level *top = &t->levels[t->depth - 1];
    struct dirent *e = readdir(top->dir);
    if (!e) {
        closedir(top->dir);
        return --t->depth > 0;
    }
    if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) return true;
    int n = snprintf(t->path + top->path_length, sizeof t->path - top->path_length, "%s%s", top->path_length ? "/" : "", e->d_name);
    if ((size_t)n >= sizeof t->path - top->path_length) {
        refuse(&t->refusals, t->path, "its path is too long");
        return true;
    }
    struct stat st;
    int parent = dirfd(top->dir);
    if (fstatat(parent, e->d_name, &st, AT_SYMLINK_NOFOLLOW)) return true; /* gone meanwhile */
    if (S_ISDIR(st.st_mode)) one_folder(job, t, parent, e->d_name, &st);
    else if (patterns_exclude(&t->patterns, t->path, false) || !patterns_include(&t->patterns, t->path)) return true;
    else if (S_ISREG(st.st_mode)) one_file(job, t, parent, e->d_name);
    else if (S_ISLNK(st.st_mode)) one_link(job, t, parent, e->d_name, &st);
    else refuse(&t->refusals, t->path, refuse_kind(st.st_mode));
    return true;
}

/* Sends more of the open file. A file that shrank is filled up with zeros, since its size is already said. */
static void more_of_file(struct job *job, struct tree *t) {
    size_t space;
    struct chunk *c = job_room(job, &space);
    if ((int64_t)space > t->left) space = (size_t)t->left;
    ssize_t n = space ? read(t->fd, c->data + c->length, space) : 0;
    if (n <= 0 && t->left) {
        t->changed = true;
        n = (ssize_t)space;
        memset(c->data + c->length, 0, space);
    }
    c->length += (size_t)n;
    job->output.bytes += (size_t)n;
    t->left -= n;
    if (t->left) return;
    job_emit(job, zeros, t->padding);
    if (t->changed) refuse(&t->refusals, t->path, "it changed while it was read");
    close(t->fd);
    t->fd = -1;
}

static void cleanup_tree(struct job *job) {
    struct tree *t = job->state;
    if (!t) return;
    while (t->depth) closedir(t->levels[--t->depth].dir);
    if (t->fd >= 0) close(t->fd);
    patterns_free(&t->patterns);
    free(t->refusals.fields.bytes);
    free(t->levels);
    free(t);
}

static bool open_tree(struct job *job, struct tree *t) {
    char path[PATH_MAX];
    struct place place;
    int error = field_path(job->fields, T_PATH, path);
    if (!error && !(error = place_open(path, FOLLOW, &place))) {
        struct stat st;
        int fd = openat(place.folder, place.name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &st) || !enter(t, fd, 0, &st)) error = errno;
        place_close(&place);
    }
    if (error) job_fail(job, error, path, NULL);
    return !error;
}

static void step_tree_get(struct job *job) {
    struct tree *t = job->state;
    if (!t) {
        job->state = t = xmalloc(sizeof *t);
        memset(t, 0, sizeof *t);
        t->fd = -1;
        patterns_read(&t->patterns, job->fields);
        if (!open_tree(job, t)) return;
    }
    bool more = true;
    /* An entry's headers are at most two long names: they may go over the budget, which flow control has room for. */
    while (more && job->output.bytes + 4 * PATH_MAX < job->budget && !atomic_load(&job->cancelled)) {
        if (t->fd >= 0) more_of_file(job, t);
        else more = next_entry(job, t);
    }
    if (more) return;
    job_emit(job, zeros, BLOCK);
    job_emit(job, zeros, BLOCK);
    tree_done(job, t->files, t->bytes, &t->refusals);
}

void tree_get_begin(struct job *job) {
    job->step = step_tree_get;
    job->cleanup = cleanup_tree;
}
