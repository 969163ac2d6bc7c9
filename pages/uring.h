// Reads by io_uring, through liburing. One thread at a time calls tc_uring_submit, another tc_uring_wait.
#ifndef TENSORCACHE_URING_H
#define TENSORCACHE_URING_H

#include <stdint.h>
#include <sys/uio.h>

// No library that contains this exports it.
#pragma GCC visibility push(hidden)

// The most buffers of a read: those of the longest read of the shortest pages.
#define TC_URING_BUFFERS 256

// A read of a file into buffers, one after the other. id is what tc_uring_wait returns when it is done.
struct tc_uring_read {
  int fd;
  unsigned buffers;
  int64_t offset;
  uint64_t id;
  struct iovec into[TC_URING_BUFFERS];
};

struct tc_uring_done {
  uint64_t id;
  int64_t result;  // bytes that were read, or minus an errno
};

struct tc_uring;

// Makes a ring for so many reads at once. Returns 0, or minus an errno.
int tc_uring_open(struct tc_uring **ring, unsigned depth);

// Begins n reads, or, if read is null, one that does nothing and has the ID n. reads[i] must stay until read i is done. Returns how many
// were begun, or minus an errno if none was.
int tc_uring_submit(struct tc_uring *ring, unsigned n, struct tc_uring_read **reads);

// Waits until at least one read is done and returns how many are, at most n, or minus an errno.
int tc_uring_wait(struct tc_uring *ring, unsigned n, struct tc_uring_done *done);

// Frees the ring. Nothing is under way.
void tc_uring_close(struct tc_uring *ring);

#pragma GCC visibility pop

#endif
