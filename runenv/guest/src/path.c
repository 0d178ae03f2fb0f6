/* From a path to an open folder and a last name, one component at a time, links resolved by hand.
 *
 * Without confinement the root is "/", and this is what the kernel does. With it, only the workspace and the spill
 * folder can be reached: an absolute path or link target has to begin with one of them, and ".." stops at their roots.
 * Because each step is relative to a folder held open and follows no link, a link swapped in meanwhile is refused by
 * the kernel instead of followed. openat2(RESOLVE_BENEATH) would also refuse absolute links that stay inside, and old
 * kernels and container engines do not have it. */
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINKS_MAX = 40, OPEN_FOLDER = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC };

struct walk {
    const char *root;              /* path of the root that the walk is under; "" for "/" */
    char done[PATH_MAX];           /* resolved components below it, "/a/b" */
    int folder;                    /* the open folder `done` stands for */
};

/* The rest of `path` when it is `root` or below it, else NULL. */
static const char *below(const char *path, const char *root) {
    size_t n = strlen(root);
    if (!n || strncmp(path, root, n)) return NULL;
    return path[n] == 0 || path[n] == '/' ? path + n : NULL;
}

/* Puts the walk at the root that an absolute path belongs to and returns what is left of the path. */
static int enter_root(struct walk *w, const char **path) {
    const char *rest = *path;
    if (!guest.confine) w->root = "";
    else if ((rest = below(*path, guest.workdir)) || (rest = below(*path, guest.real_workdir))) w->root = guest.real_workdir;
    else if ((rest = below(*path, guest.spill_dir))) w->root = guest.spill_dir;
    else return OUTSIDE;
    *path = rest;
    if (w->folder >= 0) close(w->folder);
    w->done[0] = 0;
    w->folder = open(w->root[0] ? w->root : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    return w->folder < 0 ? errno : 0;
}

static int step_into(struct walk *w, const char *name) {
    int next = openat(w->folder, name, OPEN_FOLDER);
    if (next < 0) return errno;
    close(w->folder);
    w->folder = next;
    return 0;
}

static int step_down(struct walk *w, const char *name) {
    if (strlen(w->done) + strlen(name) + 2 > sizeof w->done) return ENAMETOOLONG;
    int error = step_into(w, name);
    if (error) return error;
    strcat(strcat(w->done, "/"), name);
    return 0;
}

/* ".." in a confined walk goes down again from the root, so that a folder moved meanwhile leads nowhere else. */
static int step_up(struct walk *w) {
    if (!guest.confine) return step_into(w, "..");
    char *slash = strrchr(w->done, '/');
    if (!slash) return OUTSIDE;
    *slash = 0;
    char again[PATH_MAX];
    snprintf(again, sizeof again, "%s", w->done);
    const char *root = w->root;
    int error = enter_root(w, &root);
    for (char *save, *name = strtok_r(again, "/", &save); name && !error; name = strtok_r(NULL, "/", &save)) error = step_down(w, name);
    return error;
}

static int walk(struct walk *w, const char *path, int flags, char name[NAME_MAX + 1]) {
    char pending[2 * PATH_MAX], target[PATH_MAX];
    int links = 0, error = 0;
    const char *rest = path;
    if (path[0] != '/') rest = guest.workdir;
    if ((error = enter_root(w, &rest))) return error;
    snprintf(pending, sizeof pending, "%s%s%s", rest, path[0] == '/' ? "" : "/", path[0] == '/' ? "" : path);
    strcpy(name, ".");
    for (char *at = pending; !error;) {
        while (*at == '/') at++;
        if (!*at) return 0;
        size_t length = (size_t)(strchrnul(at, '/') - at);
        if (length > NAME_MAX) return ENAMETOOLONG;
        memcpy(name, at, length);
        name[length] = 0;
        at += length;
        bool last = !at[strspn(at, "/")];
        if (!strcmp(name, ".") || !strcmp(name, "..")) {
            if (name[1]) error = step_up(w);
            strcpy(name, ".");
            continue;
        }
        if (last && !(flags & FOLLOW)) return 0;
        ssize_t n = readlinkat(w->folder, name, target, sizeof target - 1);
        if (n >= 0) {
            if (++links > LINKS_MAX) return ELOOP;
            target[n] = 0;
            char tail[2 * PATH_MAX];
            snprintf(tail, sizeof tail, "%s", at);
            const char *from = target;
            if (target[0] == '/' && (error = enter_root(w, &from))) return error;
            if ((size_t)snprintf(pending, sizeof pending, "%s%s", from, tail) >= PATH_MAX) return ENAMETOOLONG;
            at = pending;
            strcpy(name, ".");
            continue;
        }
        if (errno != EINVAL && errno != ENOENT) return errno;
        if (last) return 0;
        error = step_down(w, name);
        if (error == ENOENT && flags & MAKE_PARENTS) {
            if (mkdirat(w->folder, name, 0777) && errno != EEXIST) return errno;
            error = step_down(w, name);
        }
        strcpy(name, ".");
    }
    return error;
}

int place_open(const char *path, int flags, struct place *place) {
    struct walk w = {.folder = -1};
    int error = walk(&w, path, flags, place->name);
    place->folder = w.folder;
    if (error) place_close(place);
    return error;
}

void place_close(struct place *place) {
    if (place->folder >= 0) close(place->folder);
    place->folder = -1;
}

int make_folders(int from, const char *path) {
    char copy[PATH_MAX];
    snprintf(copy, sizeof copy, "%s", path);
    int folder = openat(from, ".", OPEN_FOLDER);
    for (char *save, *name = strtok_r(copy, "/", &save); name && folder >= 0; name = strtok_r(NULL, "/", &save)) {
        int next = openat(folder, name, OPEN_FOLDER);
        if (next < 0 && errno == ENOENT && (!mkdirat(folder, name, 0777) || errno == EEXIST)) next = openat(folder, name, OPEN_FOLDER);
        int error = errno;
        close(folder);
        folder = next;
        errno = error;
    }
    return folder < 0 ? -errno : folder;
}

int field_path(struct span fields, int tag, char out[PATH_MAX]) {
    struct span value;
    if (!field_bytes(fields, tag, &value) || !value.length || memchr(value.at, 0, value.length)) return EINVAL;
    if (value.length >= PATH_MAX) return ENAMETOOLONG;
    memcpy(out, value.at, value.length);
    out[value.length] = 0;
    return 0;
}
