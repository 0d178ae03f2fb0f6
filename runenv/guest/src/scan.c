/* One file of a search: its lines that match, with their numbers and their neighbours.
 *
 * Memory is one buffer, whatever the file: a line that does not fit is looked at piece by piece, pieces overlap, and the
 * first that matches stands for the line. Most lines are never looked at one by one: where every match has to hold a
 * known text, the buffer is searched for that. */
#include "search.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    BUFFER = 512 * 1024,
    BEFORE_BYTES = 64 * 1024,        /* kept behind the current place, for lines of context */
    OVERLAP = 4096,                  /* of the pieces of a long line; bounds a match that a border cuts */
    SNIFFED = 8192,                  /* a NUL in the first bytes: a binary file, which is not searched */
    LEAD = 500,                      /* bytes shown before the match in a long line */
};

static struct {
    uint8_t *bytes, *folded, *line;  /* the file, the same in lower case, one line for the regex */
    size_t length, at;               /* what is read, and what is searched */
    size_t counted;                  /* newlines up to here are in `lines` */
    int64_t lines, shown_line;       /* shown_line: of the last line shown, 0 before */
    size_t shown;                    /* end of the last line shown */
    int after;                       /* lines of context that the last match still gets */
    bool named, skipping;            /* skipping: the rest of a long line that is shown already */
} f;

static int64_t line_of(size_t at) {
    for (const uint8_t *p; f.counted < at && (p = memchr(f.bytes + f.counted, '\n', at - f.counted)); f.lines++)
        f.counted = (size_t)(p - f.bytes) + 1;
    return f.lines + 1;
}

static size_t line_end(size_t at, size_t end) {
    const uint8_t *p = memchr(f.bytes + at, '\n', end - at);
    return p ? (size_t)(p - f.bytes) : end;
}

static size_t line_start(size_t at, size_t begin) {
    const uint8_t *p = at > begin ? memrchr(f.bytes + begin, '\n', at - begin) : NULL;
    return p ? (size_t)(p - f.bytes) + 1 : begin;
}

static void show(char kind, size_t start, size_t end, size_t match) {
    int64_t number = line_of(start);
    size_t length = end - start, from = 0;
    if (length && f.bytes[end - 1] == '\r') length--;
    if (length > LINE_SHOWN && match > start + LEAD) from = match - start - LEAD;
    if (from && length - from < LINE_SHOWN) from = length - LINE_SHOWN;
    while (from && (f.bytes[start + from] & 0xc0) == 0x80) from--;
    emit_line(kind, number, from, length, f.bytes + start + from, length - from < LINE_SHOWN ? length - from : LINE_SHOWN);
    f.shown = end + 1;
    f.shown_line = number;
}

/* Shows what follows the last match, up to `end`. */
static void show_after(size_t end) {
    for (; f.after && f.shown < end; f.after--) show('C', f.shown, line_end(f.shown, end), f.shown);
    if (f.shown < end) f.after = 0;
}

static void show_match(size_t start, size_t end, size_t match) {
    if (!f.named) emit_file();
    f.named = true;
    if (search.files_only) return;
    show_after(start);
    size_t first = start;
    for (int n = 0; n < search.context && first > f.shown; n++) first = line_start(first - 1, f.shown);
    while (first < start) {
        size_t stop = line_end(first, start);
        show('C', first, stop, first);
        first = stop + 1;
    }
    show('M', start, end, match);
    f.after = search.context;
}

/* The regex sees valid UTF-8: another byte of the line would end the match, and is shown to it as '?'. */
static void copy_line(size_t start, size_t length) {
    memcpy(f.line, f.bytes + start, length);
    f.line[length] = 0;
    for (size_t i = 0; i < length;) {
        uint8_t c = f.line[i];
        size_t n = c < 0x80 ? 1 : c >= 0xc2 && c < 0xe0 ? 2 : (c & 0xf0) == 0xe0 ? 3 : c >= 0xf0 && c < 0xf5 ? 4 : 0, k = 1;
        while (n && k < n && i + k < length && (f.line[i + k] & 0xc0) == 0x80) k++;
        uint8_t next = n > 2 && k > 1 ? f.line[i + 1] : 0;
        bool bad = !n || k < n || !c || (c == 0xe0 && next < 0xa0) || (c == 0xed && next > 0x9f) || (c == 0xf0 && next < 0x90)
            || (c == 0xf4 && next > 0x8f);
        if (bad) f.line[i] = '?';
        i += bad ? 1 : n;
    }
}

/* Where the line matches, or -1. */
static ssize_t match_line(size_t start, size_t end, int flags) {
    regmatch_t found;
    if (end > start && f.bytes[end - 1] == '\r') end--;
    copy_line(start, end - start);
    return regexec(&search.regex, (char *)f.line, 1, &found, flags) ? -1 : (ssize_t)found.rm_so;
}

/* Searches the lines between `at` and `end`. A piece is a part of a line that is too long for the buffer. */
static void search_lines(size_t end, bool piece) {
    while (f.at < end && !search.full) {
        size_t hit = f.at;
        if (search.needed_length) {
            const uint8_t *in = search.ignore_case ? f.folded : f.bytes;
            const uint8_t *p = memmem(in + f.at, end - f.at, search.needed, search.needed_length);
            if (!p) break;
            hit = (size_t)(p - in);
        }
        size_t start = line_start(hit, f.at), stop = line_end(hit, end);
        ssize_t match = search.literal ? (ssize_t)(hit - start) : match_line(start, stop, piece ? REG_NOTEOL : 0);
        if (match >= 0) {
            show_match(start, stop, start + (size_t)match);
            f.skipping = piece;
            if (search.files_only) return;
        }
        f.at = stop + 1;
    }
    if (!piece) {
        show_after(end);
        f.at = end;
    }
}

/* Drops what is searched, but for some context. */
static void shift(void) {
    size_t drop = f.at > BEFORE_BYTES ? f.at - BEFORE_BYTES : 0;
    if (!drop) return;
    line_of(drop);
    memmove(f.bytes, f.bytes + drop, f.length - drop);
    f.length -= drop;
    f.at -= drop;
    f.counted = f.counted > drop ? f.counted - drop : 0;
    f.shown = f.shown > drop ? f.shown - drop : 0;
}

static void skip_line(void) {
    const uint8_t *p = memchr(f.bytes + f.at, '\n', f.length - f.at);
    f.at = p ? (size_t)(p - f.bytes) + 1 : f.length;
    f.shown = f.at;
    f.skipping = !p;
}

static void fold(size_t from) {
    if (!search.ignore_case || !search.needed_length) return;
    for (size_t i = from; i < f.length; i++) {
        uint8_t c = f.bytes[i];
        f.folded[i] = c >= 'A' && c <= 'Z' ? c | 0x20 : c;
    }
}

void scan_file(int fd) {
    if (!f.bytes) {
        f.bytes = xmalloc(BUFFER + 1);
        f.folded = xmalloc(BUFFER + 1);
        f.line = xmalloc(BUFFER + 1);
    }
    f.length = f.at = f.counted = f.shown = 0;
    f.lines = f.shown_line = f.after = 0;
    f.named = f.skipping = false;
    for (bool first = true, ended = false; !ended && !search.full && !(f.named && search.files_only); first = false) {
        ssize_t n = read(fd, f.bytes + f.length, BUFFER - f.length);
        if (n < 0) {
            search.unreadable++;
            return;
        }
        ended = n == 0;
        f.length += (size_t)n;
        if (first && memchr(f.bytes, 0, f.length < SNIFFED ? f.length : SNIFFED)) {
            search.binary++;
            return;
        }
        fold(f.at); /* what was shifted is folded again with it */
        if (f.skipping) skip_line();
        const uint8_t *last = memrchr(f.bytes + f.at, '\n', f.length - f.at);
        if (ended && f.at < f.length) search_lines(f.length, false);
        else if (last) search_lines((size_t)(last - f.bytes) + 1, false);
        else if (f.length == BUFFER) {
            search_lines(f.length, true);
            if (!f.skipping) f.at = f.length - OVERLAP;
            else skip_line();
        }
        shift();
    }
    search.searched++;
}
