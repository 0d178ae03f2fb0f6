/* What the parts of `guest search` share: search.c (arguments, folders, output) and scan.c (one file). */
#ifndef SEARCH_H
#define SEARCH_H

#include "guest.h"

#include <regex.h>

enum { LINE_SHOWN = 2000 };          /* bytes shown of one line */

struct search {
    regex_t regex;
    bool literal, ignore_case, files_only;
    const char *needed;              /* bytes that every match holds, in lower case with `ignore_case`; may be empty */
    size_t needed_length;
    int context;
    bool full;                       /* no room for more results */
    int64_t searched, binary, unreadable;
};
extern struct search search;

void scan_file(int fd);

void emit_file(void);                /* the path of the current file, before its lines */
void emit_line(char kind, int64_t number, size_t from, size_t length, const uint8_t *text, size_t shown);

#endif
