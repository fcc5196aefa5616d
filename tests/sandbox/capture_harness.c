/* Makes the agent's capture callable from a test: bytes in pieces of a given size, facts out. */
#include "capture.h"

uint64_t harness(const char *data, size_t length, size_t piece, size_t limit, uint64_t facts[5], char *kept) {
    struct capture capture;
    capture_open(&capture, limit);
    for (size_t at = 0; at < length; at += piece) {
        size_t part = length - at < piece ? length - at : piece;
        capture_feed(&capture, data + at, part);
    }
    capture_finish(&capture);
    facts[0] = capture.total_bytes;
    facts[1] = capture.utf8.error;
    facts[2] = capture.utf8.lead;
    facts[3] = capture.utf8.start;
    facts[4] = capture.utf8.end;
    size_t first, second;
    const char *tail = capture_tail(&capture, &first, &second);
    memcpy(kept, capture.head, capture.head_bytes);
    memcpy(kept + capture.head_bytes, tail, first);
    memcpy(kept + capture.head_bytes + first, capture.ring, second);
    free(capture.head);
    free(capture.ring);
    return capture.head_bytes + first + second;
}
