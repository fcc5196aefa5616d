/*
 * What is kept of one output stream: its first and its last bytes, how many there were, and where its UTF-8
 * breaks, if it does. Memory is fixed at the start, however much is printed.
 */
#ifndef CAPTURE_H
#define CAPTURE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The values are the wire's (sandbox/frames.py). */
enum utf8_error { UTF8_FINE = 0, UTF8_INVALID_START = 1, UTF8_INVALID_CONTINUATION = 2, UTF8_UNEXPECTED_END = 3 };

/*
 * Strict UTF-8 as CPython's decoder sees it, one byte at a time. Its error names the first byte of the broken
 * sequence and how many bytes of it were good, so the range of the next byte is narrowed by the lead byte
 * (no overlong forms, no surrogates, nothing above U+10FFFF) and a wrong second byte ends the sequence after
 * one byte, a wrong third after two.
 */
struct utf8 {
    enum utf8_error error;
    unsigned char lead;
    uint64_t start, end; /* of the broken sequence, in bytes from the start of the stream */
    unsigned have, need;
    unsigned char low, high;
};

struct capture {
    char *head, *ring;
    size_t limit, head_bytes, ring_at;
    uint64_t total_bytes;
    struct utf8 utf8;
};

static void utf8_feed(struct utf8 *state, const unsigned char *data, size_t length, uint64_t offset) {
    if (state->error) return;
    for (size_t i = 0; i < length; i++) {
        unsigned char byte = data[i];
        if (!state->need) {
            if (byte < 0x80) continue;
            state->lead = byte;
            state->start = offset + i;
            state->have = 1;
            state->low = 0x80;
            state->high = 0xBF;
            if (byte >= 0xC2 && byte <= 0xDF) {
                state->need = 2;
            } else if (byte >= 0xE0 && byte <= 0xEF) {
                state->need = 3;
                if (byte == 0xE0) state->low = 0xA0;
                if (byte == 0xED) state->high = 0x9F;
            } else if (byte >= 0xF0 && byte <= 0xF4) {
                state->need = 4;
                if (byte == 0xF0) state->low = 0x90;
                if (byte == 0xF4) state->high = 0x8F;
            } else {
                state->error = UTF8_INVALID_START;
                state->end = state->start + 1;
                return;
            }
            continue;
        }
        if (byte < state->low || byte > state->high) {
            state->error = UTF8_INVALID_CONTINUATION;
            state->end = state->start + state->have;
            return;
        }
        state->low = 0x80;
        state->high = 0xBF;
        if (++state->have == state->need) state->need = 0;
    }
}

static bool capture_open(struct capture *capture, size_t limit) {
    memset(capture, 0, sizeof *capture);
    capture->limit = limit;
    capture->head = malloc(limit ? limit : 1);
    capture->ring = malloc(limit ? limit : 1);
    return capture->head && capture->ring;
}

static void capture_feed(struct capture *capture, const char *data, size_t length) {
    utf8_feed(&capture->utf8, (const unsigned char *)data, length, capture->total_bytes);
    capture->total_bytes += length;
    size_t into_head = capture->limit - capture->head_bytes;
    if (into_head > length) into_head = length;
    memcpy(capture->head + capture->head_bytes, data, into_head);
    capture->head_bytes += into_head;
    data += into_head;
    length -= into_head;
    if (length > capture->limit) {
        data += length - capture->limit;
        length = capture->limit;
    }
    while (length) {
        size_t part = capture->limit - capture->ring_at;
        if (part > length) part = length;
        memcpy(capture->ring + capture->ring_at, data, part);
        capture->ring_at = (capture->ring_at + part) % capture->limit;
        data += part;
        length -= part;
    }
}

/* The last bytes that are not in the head, oldest first: `first` bytes from the returned address, then
 * `second` bytes from the start of the ring. */
static const char *capture_tail(const struct capture *capture, size_t *first, size_t *second) {
    uint64_t behind_head = capture->total_bytes - capture->head_bytes;
    if (behind_head < capture->limit || !capture->limit) {
        *first = capture->limit ? (size_t)behind_head : 0;
        *second = 0;
        return capture->ring;
    }
    *first = capture->limit - capture->ring_at;
    *second = capture->ring_at;
    return capture->ring + capture->ring_at;
}

static void capture_finish(struct capture *capture) {
    struct utf8 *state = &capture->utf8;
    if (!state->error && state->need) {
        state->error = UTF8_UNEXPECTED_END;
        state->end = capture->total_bytes;
    }
}

#endif
