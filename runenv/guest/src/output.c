/* What is kept of one output stream: its head and its tail in memory, all of it in a spill file once it is long.
 *
 * The spill folder has a quota for the whole env. Its counter is shared memory, because supervisors are processes.
 * A file that is still written is locked, so that making room never takes one from under its writer. */
#include "guest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/uio.h>
#include <unistd.h>

enum { FIRST_READ = 4096 };

void capture_init(struct capture *c, int fd, size_t keep, int64_t spill_at, uint32_t serial, const char *name) {
    memset(c, 0, sizeof *c);
    c->fd = fd;
    c->keep = keep;
    c->spill_at = spill_at;
    c->spill = -1;
    snprintf(c->spill_name, sizeof c->spill_name, "%u-%s", serial, name);
}

size_t capture_head(const struct capture *c) {
    return c->total > (int64_t)c->keep ? c->keep / 2 : c->length;
}

struct span capture_piece(const struct capture *c, size_t offset) {
    size_t head = capture_head(c);
    if (offset < head) return span_of(c->kept + offset, head - offset);
    size_t ring = c->keep - head, at = (c->ring_at + (offset - head)) % ring, left = c->keep - offset;
    return span_of(c->kept + head + at, left < ring - at ? left : ring - at);
}

/* Deletes the oldest finished spill file. */
static bool make_room(void) {
    DIR *dir = opendir(guest.spill_dir);
    if (!dir) return false;
    char oldest[sizeof((struct capture *)0)->spill_name] = "";
    unsigned long best = ULONG_MAX;
    for (struct dirent *e; (e = readdir(dir));) {
        char *end;
        unsigned long serial = strtoul(e->d_name, &end, 10);
        if (end == e->d_name || *end != '-' || serial >= best || strlen(e->d_name) >= sizeof oldest) continue;
        int fd = openat(dirfd(dir), e->d_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (fd < 0) continue;
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
            best = serial;
            strcpy(oldest, e->d_name);
        }
        close(fd);
    }
    struct stat st;
    bool freed = oldest[0] && fstatat(dirfd(dir), oldest, &st, AT_SYMLINK_NOFOLLOW) == 0
        && unlinkat(dirfd(dir), oldest, 0) == 0;
    if (freed) atomic_fetch_sub(guest.spilled, st.st_size);
    closedir(dir);
    return freed;
}

static void spill(struct capture *c, const uint8_t *bytes, size_t length) {
    while (length && !c->spill_done) {
        while (atomic_load(guest.spilled) + (int64_t)length > guest.spill_quota && make_room()) {}
        int64_t room = guest.spill_quota - atomic_load(guest.spilled);
        size_t n = room < (int64_t)length ? (room > 0 ? (size_t)room : 0) : length;
        ssize_t written = n ? write(c->spill, bytes, n) : 0;
        if (written <= 0) {
            if (n && written < 0 && errno == EINTR) continue;
            c->spill_done = true;
            return;
        }
        atomic_fetch_add(guest.spilled, written);
        c->spilled += written;
        bytes += written;
        length -= (size_t)written;
    }
}

static void spill_open(struct capture *c) {
    char path[PATH_MAX + sizeof c->spill_name];
    snprintf(path, sizeof path, "%s/%s", guest.spill_dir, c->spill_name);
    c->spill = guest.spill_dir[0] ? open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600) : -1;
    if (c->spill < 0) {
        c->spill_done = true;
        return;
    }
    flock(c->spill, LOCK_EX | LOCK_NB);
}

static void count_lines(struct capture *c, const uint8_t *at, size_t length) {
    for (const uint8_t *end = at + length; at < end && (at = memchr(at, '\n', (size_t)(end - at))); at++) c->lines++;
}

/* Room for the next read: the end of the linear buffer, or the oldest part of the ring. */
static uint8_t *room(struct capture *c, size_t *space) {
    if (c->length < c->keep) {
        if (c->length == c->capacity) {
            c->capacity = c->capacity ? c->capacity * 2 : FIRST_READ;
            if (c->capacity > c->keep) c->capacity = c->keep;
            c->kept = xrealloc(c->kept, c->capacity);
        }
        *space = c->capacity - c->length;
        return c->kept + c->length;
    }
    size_t head = c->keep / 2;
    *space = c->keep - head - c->ring_at;
    return c->kept + head + c->ring_at;
}

static void spill_all(struct capture *c) {
    spill_open(c);
    spill(c, c->kept, c->length);
}

bool capture_read(struct capture *c) {
    size_t space;
    uint8_t *at = room(c, &space), first;
    /* The byte that makes the ring turn: what it overwrites has to be in the spill file before. */
    bool turning = c->length == c->keep && c->spill < 0 && !c->spill_done;
    ssize_t n = turning ? read(c->fd, &first, 1) : read(c->fd, at, space);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (n <= 0) {
        close(c->fd);
        c->fd = -1;
        return false;
    }
    if (turning) {
        spill_all(c);
        *at = first;
    }
    c->total += n;
    count_lines(c, at, (size_t)n);
    bool linear = c->length < c->keep;
    if (linear) c->length += (size_t)n;
    else c->ring_at = (c->ring_at + (size_t)n) % (c->keep - c->keep / 2);
    if (c->spill >= 0) spill(c, at, (size_t)n);
    else if (linear && c->total > c->spill_at && !c->spill_done) spill_all(c);
    return true;
}

void capture_free(struct capture *c) {
    if (c->spill >= 0) close(c->spill);
    free(c->kept);
    c->spill = -1;
    c->kept = NULL;
    c->spill_done = true;
}
