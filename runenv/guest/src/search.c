/* `guest search`: finds lines or files, as an ordinary command beside the others, so that its deadline, its death and the
 * bounds of its output are those of every command. Its arguments are written and its output is read by
 * ../../envs/guested/searches.py, which says what they are.
 *
 * Folders are walked in the order of their names, links in them are not followed. A pattern comes from a model: what it
 * may make the C library allocate is bounded, and how long it may take is the deadline's business. */
#include "search.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    DEPTH_MAX = 200,                 /* of folders; each holds a descriptor */
    MEMORY_MAX = 512 << 20,          /* of this process */
    NAMES_MAX = 1 << 20,             /* of one folder that are looked at */
    OUTPUT = 32 * 1024,
};

struct search search;

struct found { char *path; int64_t size; struct timespec mtime; };

static struct {
    struct patterns patterns;
    char path[PATH_MAX];             /* of the current entry, relative to where the search began */
    int64_t limit, bytes_left;       /* results and bytes of output that may still come */
    bool names;                      /* look for files, not for lines */
    struct found *found;
    size_t found_count, found_capacity;
    int64_t matched;
    char out[OUTPUT];
    size_t out_length;
} s;

static volatile sig_atomic_t told_to_stop;

static void stop(int signal) {
    (void)signal;
    told_to_stop = 1;
}

/* ---- output: values that end with NUL, which none of them contains ---- */

static void flush(void) {
    for (size_t done = 0; done < s.out_length;) {
        ssize_t n = write(1, s.out + done, s.out_length - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) _exit(1);
        done += (size_t)n;
    }
    s.out_length = 0;
}

static void put(const void *bytes, size_t length) {
    if (s.out_length + length + 1 > sizeof s.out) flush();
    char *to = s.out + s.out_length;
    memcpy(to, bytes, length);
    for (char *zero; (zero = memchr(to, 0, length));) *zero = '?';
    to[length] = 0;
    s.out_length += length + 1;
    s.bytes_left -= (int64_t)length + 1;
}

static void put_text(const char *text) { put(text, strlen(text)); }

static void put_number(int64_t value) {
    char text[24];
    put(text, (size_t)snprintf(text, sizeof text, "%lld", (long long)value));
}

static void check_room(void) {
    if (s.limit <= 0 || s.bytes_left <= 0) search.full = true;
}

void emit_file(void) {
    put_text("F");
    put_text(s.path);
    s.matched++;
    if (search.files_only) s.limit--;
    check_room();
}

void emit_line(char kind, int64_t number, size_t from, size_t length, const uint8_t *text, size_t shown) {
    put(&kind, 1);
    put_number(number);
    put_number((int64_t)from);
    put_number((int64_t)length);
    put(text, shown);
    if (kind == 'M') s.limit--;
    check_room();
}

static int newest_first(const void *a, const void *b) {
    const struct found *x = a, *y = b;
    if (x->mtime.tv_sec != y->mtime.tv_sec) return x->mtime.tv_sec < y->mtime.tv_sec ? 1 : -1;
    if (x->mtime.tv_nsec != y->mtime.tv_nsec) return x->mtime.tv_nsec < y->mtime.tv_nsec ? 1 : -1;
    return strcmp(x->path, y->path);
}

static void keep_newest(size_t count) {
    qsort(s.found, s.found_count, sizeof *s.found, newest_first);
    while (s.found_count > count) free(s.found[--s.found_count].path);
}

static void add_found(const struct stat *st) {
    s.matched++;
    if (s.found_count == 2 * (size_t)s.limit) keep_newest((size_t)s.limit);
    if (s.found_count == s.found_capacity) {
        s.found_capacity = s.found_capacity ? 2 * s.found_capacity : 64;
        s.found = xrealloc(s.found, s.found_capacity * sizeof *s.found);
    }
    char *path = strdup(s.path);
    if (!path) _exit(70);
    s.found[s.found_count++] = (struct found){path, st->st_size, st->st_mtim};
}

static void put_found(void) {
    keep_newest((size_t)s.limit);
    for (size_t i = 0; i < s.found_count && s.bytes_left > 0; i++) {
        put_text("P");
        put_text(s.found[i].path);
        put_number(s.found[i].size);
        put_number((int64_t)s.found[i].mtime.tv_sec);
    }
}

static void put_summary(void) {
    bool whole = !search.full && !told_to_stop && (!s.names || s.matched <= s.limit) && s.bytes_left > 0;
    put_text("S");
    put_number(search.searched);
    put_number(s.matched);
    put_number(search.binary);
    put_number(search.unreadable);
    put_text(whole ? "whole" : "cut");
    flush();
}

/* ---- folders ---- */

static void visit_file(int folder, const char *name) {
    if (s.names) {
        struct stat st;
        if (!fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW)) add_found(&st);
        return;
    }
    int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st)) search.unreadable++;
    else if (S_ISREG(st.st_mode)) scan_file(fd);
    if (fd >= 0) close(fd);
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a + 1, *(char *const *)b + 1); }

/* The names of a folder in order, each with its d_type before it. */
static char **read_names(DIR *dir, size_t *count) {
    char **names = NULL;
    size_t capacity = 0;
    for (struct dirent *e; *count < NAMES_MAX && (e = readdir(dir));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        if (e->d_type != DT_REG && e->d_type != DT_DIR && e->d_type != DT_UNKNOWN) continue;
        if (*count == capacity) names = xrealloc(names, (capacity = capacity ? 2 * capacity : 64) * sizeof *names);
        size_t length = strlen(e->d_name);
        char *name = xmalloc(length + 2);
        name[0] = (char)e->d_type;
        memcpy(name + 1, e->d_name, length + 1);
        names[(*count)++] = name;
    }
    if (names) qsort(names, *count, sizeof *names, by_name);
    return names;
}

static void walk(int fd, size_t path_length, int depth) {
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir || depth > DEPTH_MAX) {
        search.unreadable++;
        if (dir) closedir(dir);
        return;
    }
    size_t count = 0;
    char **names = read_names(dir, &count);
    for (size_t i = 0; i < count; i++) {
        char *name = names[i] + 1;
        size_t room = sizeof s.path - path_length;
        int n = snprintf(s.path + path_length, room, "%s%s", path_length ? "/" : "", name);
        if ((size_t)n < room && !search.full && !told_to_stop) {
            struct stat st;
            int type = names[i][0];
            if (type == DT_UNKNOWN && !fstatat(dirfd(dir), name, &st, AT_SYMLINK_NOFOLLOW))
                type = S_ISREG(st.st_mode) ? DT_REG : S_ISDIR(st.st_mode) ? DT_DIR : DT_UNKNOWN;
            if (patterns_exclude(&s.patterns, s.path, type == DT_DIR)) {}
            else if (type == DT_DIR) walk(openat(dirfd(dir), name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), path_length + (size_t)n, depth + 1);
            else if (type == DT_REG && patterns_include(&s.patterns, s.path)) visit_file(dirfd(dir), name);
        }
        free(names[i]);
    }
    free(names);
    closedir(dir);
}

static void fail(const char *what, const char *why) {
    dprintf(2, "%s: %s\n", what, why);
    _exit(2);
}

/* The path cannot be searched: the host makes an error of its kind from the number. */
static void fail_path(int error) {
    dprintf(2, "%d", error == OUTSIDE ? EACCES : error);
    _exit(3);
}

static void begin(const char *path) {
    struct place place;
    int error = place_open(path, FOLLOW, &place);
    if (error) fail_path(error);
    struct stat st;
    if (fstatat(place.folder, place.name, &st, AT_SYMLINK_NOFOLLOW)) fail_path(errno);
    if (S_ISDIR(st.st_mode)) {
        int fd = openat(place.folder, place.name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0) fail_path(errno);
        walk(fd, 0, 0);
    } else if (S_ISREG(st.st_mode)) {
        if (s.names) fail_path(ENOTDIR);
        int64_t before = search.unreadable;
        visit_file(place.folder, place.name);
        if (search.unreadable > before) fail_path(EACCES);
    } else fail_path(EINVAL);
    place_close(&place);
}

/* ---- arguments: "name=value", then the pattern and the path ---- */

static void add_pattern(char ***list, size_t *count, char *pattern) {
    *list = xrealloc(*list, (*count + 1) * sizeof **list);
    (*list)[(*count)++] = pattern;
}

static void take(char *argument) {
    char *value = strchr(argument, '=');
    if (!value) fail(argument, "an argument without a value");
    *value++ = 0;
    if (!strcmp(argument, "workdir")) {
        snprintf(guest.workdir, sizeof guest.workdir, "%s", value);
        if (!realpath(value, guest.real_workdir)) guest.real_workdir[0] = 0;
    } else if (!strcmp(argument, "confine")) {
        guest.confine = true;
        snprintf(guest.spill_dir, sizeof guest.spill_dir, "%s", value);
    } else if (!strcmp(argument, "needed")) search.needed = value;
    else if (!strcmp(argument, "context")) search.context = atoi(value);
    else if (!strcmp(argument, "limit")) s.limit = atoll(value);
    else if (!strcmp(argument, "bytes")) s.bytes_left = atoll(value);
    else if (!strcmp(argument, "include")) add_pattern(&s.patterns.include, &s.patterns.includes, value);
    else if (!strcmp(argument, "exclude")) add_pattern(&s.patterns.exclude, &s.patterns.excludes, value);
    else if (strcmp(argument, "flags")) fail(argument, "no such argument");
    else {
        s.names = strchr(value, 'n');
        search.literal = strchr(value, 'l');
        search.ignore_case = strchr(value, 'i');
        search.files_only = strchr(value, 'f');
    }
}

static void compile(const char *pattern) {
    setlocale(LC_CTYPE, "C.UTF-8");
    int error = regcomp(&search.regex, pattern, REG_EXTENDED | (search.ignore_case ? REG_ICASE : 0));
    if (!error) return;
    char text[256];
    regerror(error, &search.regex, text, sizeof text);
    fail("pattern", text);
}

int search_main(int count, char **arguments) {
    if (count < 2) fail("arguments", "a pattern and a path are missing");
#ifndef __SANITIZE_ADDRESS__ /* which maps terabytes */
    struct rlimit memory = {MEMORY_MAX, MEMORY_MAX};
    setrlimit(RLIMIT_AS, &memory);
#endif
    signal(SIGTERM, stop);
    search.needed = "";
    for (int i = 0; i < count - 2; i++) take(arguments[i]);
    search.needed_length = strlen(search.needed);
    if (!s.names && !search.literal) compile(arguments[count - 2]);
    begin(arguments[count - 1]);
    if (s.names) put_found();
    put_summary();
    return 0;
}
