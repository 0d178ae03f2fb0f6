/* Include and exclude patterns of tree transfers. The rules are in the docstring of ../../envs/transfer/globs.py, and
 * both implementations are tested with one table. */
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

/* Matches one character against the element at *p, which is no star, and steps over that. */
static bool match_one(const char **p, char c) {
    const char *at = *p, *end;
    if (*at == '[') {
        bool hit = in_class(at, c, &end);
        if (end) {
            *p = end;
            return hit;
        }
    }
    if (*at == '?') {
        *p = at + 1;
        return c != '/';
    }
    if (*at == '\\' && at[1]) at++;
    *p = at + 1;
    return *at == c;
}

/* After a mismatch the last star takes one more character, or the last double star one more. Only the last of each is
 * kept: what an earlier one could take, a later one can as well. So no pattern takes longer than the cube of its path. */
static bool match(const char *p, const char *s) {
    const char *star = NULL, *star_s = NULL, *any = NULL, *any_s = NULL;
    bool whole = false;              /* the double star takes whole folders: "**" with a slash behind it */
    for (;;) {
        if (p[0] == '*' && p[1] == '*') {
            whole = p[2] == '/';
            any = p += whole ? 3 : 2;
            any_s = s;
            star = NULL;
            continue;
        }
        if (*p == '*') {
            star = ++p;
            star_s = s;
            continue;
        }
        if (!*p && !*s) return true;
        if (*p && *s && match_one(&p, *s)) {
            s++;
            continue;
        }
        if (star && *star_s && *star_s != '/') {
            p = star;
            s = ++star_s;
            continue;
        }
        if (any && whole) any_s = strchrnul(any_s, '/');
        if (!any || !*any_s) return false;
        p = any;
        s = ++any_s;
        star = NULL;
    }
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
