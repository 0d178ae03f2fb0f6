/* A tar stream into a folder, parsed piece by piece as it comes. No write goes through a link below the target,
 * nothing lands outside it, and only files, folders and symbolic links are made; the rest is named in the result. */
#include "guest.h"
#include "tar.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct made { struct made *next; int64_t mtime; mode_t mode; char path[]; };   /* folders get their times at the end */

struct untar {
    int root, parent, fd;           /* target; cached folder of the last file; file being written */
    char parent_path[PATH_MAX], target[PATH_MAX];
    char name[PATH_MAX], link[PATH_MAX];        /* of the next entry, from long-name entries or its header */
    bool long_name, long_link, ended;
    uint8_t block[BLOCK];
    size_t have;
    int64_t left;                   /* content bytes of the current entry */
    size_t padding;
    char *into;                     /* a long name being read, or NULL */
    size_t into_length;
    bool hole;
    mode_t mode;
    int64_t mtime, size, files, bytes;
    struct made *made;
    struct refusals refusals;
};

static int64_t parse_number(const char *text, size_t size) {
    if ((unsigned char)text[0] == 0x80) {
        int64_t value = 0;
        for (size_t i = 1; i < size; i++) {
            if (value >> 54) return -1;
            value = value << 8 | (unsigned char)text[i];
        }
        return value;
    }
    if ((unsigned char)text[0] == 0xff) return -1;
    int64_t value = 0;
    for (size_t i = 0; i < size && text[i] && text[i] != ' '; i++) {
        if (text[i] < '0' || text[i] > '7') return -1;
        value = value * 8 + (text[i] - '0');
    }
    return value;
}

/* Strips "./" and slashes at the ends; false for names that are absolute, empty or hold "..". */
static bool clean_name(char *name) {
    char *out = name;
    if (name[0] == '/') return false;
    for (char *save, *part = strtok_r(name, "/", &save); part; part = strtok_r(NULL, "/", &save)) {
        if (!strcmp(part, ".")) continue;
        if (!strcmp(part, "..") || strlen(part) > NAME_MAX) return false;
        if (out != name) *out++ = '/';
        memmove(out, part, strlen(part) + 1);
        out += strlen(part);
    }
    *out = 0;
    return true;
}

/* The open folder that `path` lies in, made if missing; the last name in *leaf. Negative: -errno. */
static int parent_of(struct untar *u, const char *path, const char **leaf) {
    const char *slash = strrchr(path, '/');
    size_t length = slash ? (size_t)(slash - path) : 0;
    *leaf = slash ? slash + 1 : path;
    if (u->parent >= 0 && strlen(u->parent_path) == length && !memcmp(u->parent_path, path, length)) return u->parent;
    memcpy(u->parent_path, path, length);
    u->parent_path[length] = 0;
    if (u->parent >= 0) close(u->parent);
    return u->parent = make_folders(u->root, u->parent_path);
}

static bool fail(struct job *job, struct untar *u, int error) {
    char path[2 * PATH_MAX];
    snprintf(path, sizeof path, "%s%s%s", u->target, u->name[0] ? "/" : "", u->name);
    path[PATH_MAX - 1] = 0;
    job_fail(job, error, path, NULL);
    return false;
}

static bool make_folder(struct job *job, struct untar *u) {
    int fd = u->name[0] ? make_folders(u->root, u->name) : openat(u->root, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd == -ENOTDIR || fd == -ELOOP) {
        refuse(&u->refusals, u->name, "something else than a folder is in its way");
        return true;
    }
    if (fd < 0) return fail(job, u, -fd);
    close(fd);
    if (!u->name[0]) return true;
    struct made *m = xmalloc(sizeof *m + strlen(u->name) + 1);
    *m = (struct made){.next = u->made, .mtime = u->mtime, .mode = u->mode};
    strcpy(m->path, u->name);
    u->made = m;
    return true;
}

/* Clears the way for a new entry: another file or link there goes, a folder stays. */
static int make_way(int parent, const char *leaf) {
    if (!unlinkat(parent, leaf, 0) || errno == ENOENT) return 0;
    return errno == EPERM ? EISDIR : errno;
}

static bool make_file(struct job *job, struct untar *u) {
    const char *leaf;
    int parent = parent_of(u, u->name, &leaf);
    int error = parent < 0 ? -parent : make_way(parent, leaf);
    if (error == ENOTDIR || error == ELOOP || error == EISDIR) {
        refuse(&u->refusals, u->name, error == EISDIR ? "a folder is in its way" : "something else than a folder is in its way");
        return true; /* its content is skipped: fd is -1 */
    }
    if (error) return fail(job, u, error);
    u->fd = openat(parent, leaf, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (u->fd < 0) return fail(job, u, errno);
    u->hole = false;
    u->files++;
    u->bytes += u->size;
    return true;
}

static bool end_file(struct job *job, struct untar *u) {
    if (u->fd < 0) return true;
    struct timespec times[2] = {{0, UTIME_NOW}, {u->mtime, 0}};
    bool good = (!u->hole || !ftruncate(u->fd, u->size)) && !fchmod(u->fd, u->mode) && !futimens(u->fd, times);
    int error = errno;
    close(u->fd);
    u->fd = -1;
    return good || fail(job, u, error);
}

static bool make_link(struct job *job, struct untar *u) {
    const char *leaf;
    int parent = parent_of(u, u->name, &leaf);
    int error = parent < 0 ? -parent : make_way(parent, leaf);
    if (!error && symlinkat(u->link, parent, leaf)) error = errno;
    if (error == ENOTDIR || error == ELOOP || error == EISDIR) {
        refuse(&u->refusals, u->name, "something else is in its way");
        return true;
    }
    if (error) return fail(job, u, error);
    struct timespec times[2] = {{0, UTIME_NOW}, {u->mtime, 0}};
    utimensat(parent, leaf, times, AT_SYMLINK_NOFOLLOW);
    return true;
}

static void copy_text(char out[PATH_MAX], const char *text, size_t size) {
    size_t n = strnlen(text, size);
    memcpy(out, text, n);
    out[n] = 0;
}

/* Begins the entry that a header announces. */
static bool begin_entry(struct job *job, struct untar *u) {
    const struct tar_header *h = (const struct tar_header *)(const void *)u->block;
    if (all_zero(u->block, BLOCK)) {
        u->ended = true;
        return true;
    }
    int64_t sum = parse_number(h->checksum, sizeof h->checksum);
    u->size = parse_number(h->size, sizeof h->size);
    if (sum != tar_checksum(h) || u->size < 0) {
        job_fail(job, EINVAL, u->target, "the tar stream is damaged");
        return false;
    }
    u->mtime = parse_number(h->mtime, sizeof h->mtime);
    if (u->mtime < 0) u->mtime = 0;
    u->mode = (mode_t)(parse_number(h->mode, sizeof h->mode) & 0777);
    u->left = u->size;
    u->padding = (size_t)((BLOCK - u->size % BLOCK) % BLOCK);
    if (h->type == 'L' || h->type == 'K') {
        if (u->size > PATH_MAX) {
            job_fail(job, ENAMETOOLONG, u->target, NULL);
            return false;
        }
        u->into = h->type == 'L' ? u->name : u->link;
        u->into_length = 0;
        memset(u->into, 0, PATH_MAX);
        *(h->type == 'L' ? &u->long_name : &u->long_link) = true;
        return true;
    }
    if (!u->long_name) copy_text(u->name, h->name, sizeof h->name);
    if (!u->long_link) copy_text(u->link, h->link, sizeof h->link);
    u->long_name = u->long_link = false;
    u->name[PATH_MAX - 1] = u->link[PATH_MAX - 1] = 0;
    char given[PATH_MAX];
    strcpy(given, u->name);
    if (!clean_name(u->name)) {
        refuse(&u->refusals, given, "its name leads out of the folder");
        return true;
    }
    switch (h->type) {
    case '0':
    case 0: return u->name[0] ? make_file(job, u) : true;
    case '5': return make_folder(job, u);
    case '2': return u->name[0] && u->link[0] ? make_link(job, u) : true;
    default: refuse(&u->refusals, u->name, "it is neither a file, a folder nor a symbolic link"); return true;
    }
}

static bool content(struct job *job, struct untar *u, const uint8_t *bytes, size_t n) {
    if (u->into) {
        memcpy(u->into + u->into_length, bytes, n);
        u->into_length += n;
        return true;
    }
    if (u->fd < 0) return true;
    if (n >= 4096 && all_zero(bytes, n)) {
        u->hole = true;
        return lseek(u->fd, (off_t)n, SEEK_CUR) >= 0 || fail(job, u, errno);
    }
    u->hole = false;
    for (ssize_t w; n; bytes += w, n -= (size_t)w)
        if ((w = write(u->fd, bytes, n)) < 0) return fail(job, u, errno);
    return true;
}

static bool take(struct job *job, struct untar *u, const uint8_t *at, size_t length) {
    while (length && !u->ended) {
        size_t n;
        if (u->left) {
            n = u->left < (int64_t)length ? (size_t)u->left : length;
            if (!content(job, u, at, n)) return false;
            u->left -= (int64_t)n;
        } else if (u->padding) {
            n = u->padding < length ? u->padding : length;
            u->padding -= n;
        } else {
            n = BLOCK - u->have < length ? BLOCK - u->have : length;
            memcpy(u->block + u->have, at, n);
            u->have += n;
            if (u->have == BLOCK) {
                u->have = 0;
                u->into = NULL;
                if (!begin_entry(job, u)) return false;
            }
        }
        at += n;
        length -= n;
        if (!u->left && !u->have && !end_file(job, u)) return false;
    }
    return true;
}

static void end_folders(struct untar *u) {
    for (struct made *m = u->made; m; m = m->next) {
        int fd = make_folders(u->root, m->path);
        if (fd < 0) continue;
        struct timespec times[2] = {{0, UTIME_NOW}, {m->mtime, 0}};
        fchmodat(fd, ".", m->mode, 0);
        utimensat(fd, ".", times, 0);
        close(fd);
    }
}

static bool open_target(struct job *job, struct untar *u) {
    struct place place;
    int error = field_path(job->fields, T_PATH, u->target);
    if (!error && !(error = place_open(u->target, FOLLOW | MAKE_PARENTS, &place))) {
        if (mkdirat(place.folder, place.name, 0777) && errno != EEXIST) error = errno;
        else if ((u->root = openat(place.folder, place.name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) < 0) error = errno;
        place_close(&place);
    }
    if (error) job_fail(job, error, u->target, NULL);
    return !error;
}

static void cleanup_untar(struct job *job) {
    struct untar *u = job->state;
    if (!u) return;
    if (u->fd >= 0) { /* cut off in the middle of a file: the half file goes */
        close(u->fd);
        const char *leaf;
        int parent = parent_of(u, u->name, &leaf);
        if (parent >= 0) unlinkat(parent, leaf, 0);
    }
    if (u->parent >= 0) close(u->parent);
    if (u->root >= 0) close(u->root);
    for (struct made *m; (m = u->made); free(m)) u->made = m->next;
    free(u->refusals.fields.bytes);
    free(u);
}

static void step_tree_put(struct job *job) {
    struct untar *u = job->state;
    if (!u) {
        job->state = u = xmalloc(sizeof *u);
        memset(u, 0, sizeof *u);
        u->root = u->parent = u->fd = -1;
        if (!open_target(job, u)) return;
    }
    for (struct chunk *c; (c = queue_pop(&job->input));) {
        job->consumed += c->length;
        bool good = take(job, u, c->data, c->length);
        chunk_free(c);
        if (!good) return;
    }
    if (!job->input_ended) return;
    if (!u->ended) {
        job_fail(job, EINVAL, u->target, "the tar stream ends too early");
        return;
    }
    end_folders(u);
    tree_done(job, u->files, u->bytes, &u->refusals);
}

void tree_put_begin(struct job *job) {
    job->step = step_tree_put;
    job->cleanup = cleanup_untar;
    job->takes_input = true;
}
