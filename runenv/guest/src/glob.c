/* Include and exclude patterns of tree transfers. The rules are in the docstring of ../../envs/transfer.py, and both
 * implementations are tested with one table. */
#include "guest.h"

#include <stdlib.h>
#include <string.h>

/* Matches one character against the class at `p` ("[...]"); *end is set behind it. NULL end: no class. */
static bool in_class(const char *p, char c, const char **end) {
    bool negated = p[1] == '!' || p[1] == '^', found = false;
    const char *at = p + 1 + negated, *first = at;
    for (; *at && (*at != ']' || at == first); at++) {
        if (*at == '\\' && at[1]) at++;
        unsigned char low = (unsigned char)*at, high = low;
        if (at[1] == '-' && at[2] && at[2] != ']') {
            at += 2;
            if (*at == '\\' && at[1]) at++;
            high = (unsigned char)*at;
        }
        if ((unsigned char)c >= low && (unsigned char)c <= high) found = true;
    }
    *end = *at ? at + 1 : NULL;
    return found != negated && c != '/';
}

static bool match(const char *p, const char *s) {
    for (; *p; p++) {
        if (p[0] == '*' && p[1] == '*') {
            bool whole = p[2] == '/';
            for (p += whole ? 3 : 2;; s++) {
                if (match(p, s)) return true;
                if (whole) s = strchrnul(s, '/');
                if (!*s) return false;
            }
        }
        if (*p == '*') {
            for (p++;; s++) {
                if (match(p, s)) return true;
                if (!*s || *s == '/') return false;
            }
        }
        if (!*s) return false;
        const char *end = NULL;
        if (*p == '[') {
            bool hit = in_class(p, *s, &end);
            if (end && !hit) return false;
            if (end) p = end - 1;
        }
        if (!end) {
            if (*p == '?') {
                if (*s == '/') return false;
            } else {
                if (*p == '\\' && p[1]) p++;
                if (*p != *s) return false;
            }
        }
        s++;
    }
    return !*s;
}

static bool matches(const char *pattern, const char *path, bool folder) {
    char copy[PATH_MAX];
    size_t n = strlen(pattern);
    if (n >= sizeof copy) return false;
    strcpy(copy, pattern);
    if (n > 1 && copy[n - 1] == '/') {
        if (!folder) return false;
        copy[n - 1] = 0;
    }
    if (!strchr(copy, '/')) {
        const char *slash = strrchr(path, '/');
        return match(copy, slash ? slash + 1 : path);
    }
    return match(copy[0] == '/' ? copy + 1 : copy, path);
}

bool patterns_exclude(const struct patterns *p, const char *path, bool folder) {
    for (size_t i = 0; i < p->excludes; i++)
        if (matches(p->exclude[i], path, folder)) return true;
    return false;
}

bool patterns_include(const struct patterns *p, const char *path) {
    for (size_t i = 0; i < p->includes; i++)
        if (matches(p->include[i], path, false)) return true;
    return !p->includes;
}

static char **read_list(struct span fields, int wanted, size_t *count) {
    int tag;
    struct span value;
    char **list = NULL;
    while (field_next(&fields, &tag, &value)) {
        if (tag != wanted) continue;
        list = xrealloc(list, (*count + 1) * sizeof *list);
        list[*count] = xmalloc(value.length + 1);
        memcpy(list[*count], value.at, value.length);
        list[(*count)++][value.length] = 0;
    }
    return list;
}

void patterns_read(struct patterns *p, struct span fields) {
    p->includes = p->excludes = 0;
    p->include = read_list(fields, T_INCLUDE, &p->includes);
    p->exclude = read_list(fields, T_EXCLUDE, &p->excludes);
}

void patterns_free(struct patterns *p) {
    for (size_t i = 0; i < p->includes; i++) free(p->include[i]);
    for (size_t i = 0; i < p->excludes; i++) free(p->exclude[i]);
    free(p->include);
    free(p->exclude);
}
