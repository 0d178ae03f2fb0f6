/* The wire format, and the queues of bytes that carry it. */
#include "guest.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void *xmalloc(size_t size) {
    void *p = malloc(size ? size : 1);
    if (!p) _exit(70);
    return p;
}

void *xrealloc(void *old, size_t size) {
    void *p = realloc(old, size ? size : 1);
    if (!p) _exit(70);
    return p;
}

int64_t now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

void put32(uint8_t *out, uint32_t v) {
    for (int i = 0; i < 4; i++) out[i] = (uint8_t)(v >> (8 * i));
}

uint32_t get32(const uint8_t *in) {
    return (uint32_t)in[0] | (uint32_t)in[1] << 8 | (uint32_t)in[2] << 16 | (uint32_t)in[3] << 24;
}

void header_write(uint8_t out[HEADER], struct header h) {
    put32(out, h.length);
    put32(out + 4, h.call);
    out[8] = h.kind;
    out[9] = h.channel;
    out[10] = out[11] = 0;
}

bool header_read(const uint8_t in[HEADER], struct header *h) {
    h->length = get32(in);
    h->call = get32(in + 4);
    h->kind = in[8];
    h->channel = in[9];
    return !in[10] && !in[11] && h->kind >= HELLO && h->kind <= CONNECT
        && h->length <= (h->kind == DATA ? (uint32_t)MAX_DATA : (uint32_t)MAX_PAYLOAD);
}

struct span span_of(const void *at, size_t length) { return (struct span){at, length}; }

bool field_next(struct span *rest, int *tag, struct span *value) {
    if (rest->length < 5) return false;
    uint32_t length = get32(rest->at + 1);
    if (length > rest->length - 5) return false;
    *tag = rest->at[0];
    *value = (struct span){rest->at + 5, length};
    rest->at += 5 + length;
    rest->length -= 5 + length;
    return true;
}

bool fields_valid(struct span fields) {
    int tag;
    struct span value;
    while (field_next(&fields, &tag, &value))
        if (tag < T_PATH && value.length != 8) return false;
    return fields.length == 0;
}

int64_t field_number(struct span fields, int tag, int64_t otherwise) {
    int t;
    struct span v;
    while (field_next(&fields, &t, &v))
        if (t == tag) return (int64_t)((uint64_t)get32(v.at + 4) << 32 | get32(v.at));
    return otherwise;
}

bool field_bytes(struct span fields, int tag, struct span *value) {
    int t;
    while (field_next(&fields, &t, value))
        if (t == tag) return true;
    return false;
}

static uint8_t *grow(struct builder *b, int tag, size_t length) {
    size_t need = b->length + 5 + length;
    if (need > b->capacity) {
        b->capacity = need < 256 ? 256 : need * 2;
        b->bytes = xrealloc(b->bytes, b->capacity);
    }
    uint8_t *at = b->bytes + b->length;
    at[0] = (uint8_t)tag;
    put32(at + 1, (uint32_t)length);
    b->length = need;
    return at + 5;
}

void build_number(struct builder *b, int tag, int64_t value) {
    uint8_t *at = grow(b, tag, 8);
    put32(at, (uint32_t)(uint64_t)value);
    put32(at + 4, (uint32_t)((uint64_t)value >> 32));
}

void build_bytes(struct builder *b, int tag, const void *bytes, size_t length) {
    uint8_t *at = grow(b, tag, length);
    if (length) memcpy(at, bytes, length);
}

/* Large chunks are used again: the C library would map and unmap each, which costs more than all else that is done for a
 * transfer (2026-11-28: half of its time). Whoever finds the list in use goes without it, so that a process that was
 * forked at that moment is not stuck. */
enum { KEPT_MAX = GUEST_WINDOW / MAX_DATA };
static struct chunk *kept;
static int kept_count;
static atomic_flag kept_in_use = ATOMIC_FLAG_INIT;

struct chunk *chunk_new(size_t capacity) {
    struct chunk *c = NULL;
    if (capacity > MAX_DATA / 4 && capacity <= MAX_DATA) {
        capacity = MAX_DATA;
        if (!atomic_flag_test_and_set(&kept_in_use)) {
            if ((c = kept)) {
                kept = c->next;
                kept_count--;
            }
            atomic_flag_clear(&kept_in_use);
        }
    }
    if (!c) c = xmalloc(sizeof *c + capacity);
    c->next = NULL;
    c->length = c->sent = 0;
    c->capacity = capacity;
    return c;
}

void chunk_free(struct chunk *c) {
    if (c && c->capacity == MAX_DATA && !atomic_flag_test_and_set(&kept_in_use)) {
        if (kept_count < KEPT_MAX) {
            c->next = kept;
            kept = c;
            kept_count++;
            c = NULL;
        }
        atomic_flag_clear(&kept_in_use);
    }
    free(c);
}

void chunks_release(void) {
    if (!kept || atomic_flag_test_and_set(&kept_in_use)) return;
    for (struct chunk *c; (c = kept); free(c)) kept = c->next;
    kept_count = 0;
    atomic_flag_clear(&kept_in_use);
}

void queue_push(struct queue *q, struct chunk *c) {
    if (!q->first) q->last = &q->first;
    c->next = NULL;
    *q->last = c;
    q->last = &c->next;
    q->bytes += c->length;
}

struct chunk *queue_pop(struct queue *q) {
    struct chunk *c = q->first;
    if (!c) return NULL;
    q->first = c->next;
    q->bytes -= c->length;
    return c;
}

void queue_clear(struct queue *q) {
    for (struct chunk *c; (c = queue_pop(q));) chunk_free(c);
}
