//go:build linux && liburing

#include "uring.h"

#include <errno.h>
#include <liburing.h>
#include <stdlib.h>

struct tc_uring {
  struct io_uring ring;
};

int tc_uring_open(struct tc_uring **ring, unsigned depth) {
  struct tc_uring *r = malloc(sizeof *r);
  if (!r) return -ENOMEM;
  int err = io_uring_queue_init(depth, &r->ring, 0);
  if (err < 0) {
    free(r);
    return err;
  }
  *ring = r;
  return 0;
}

int tc_uring_submit(struct tc_uring *r, unsigned n, struct tc_uring_read **reads) {
  if (!reads) {
    struct io_uring_sqe *sqe = io_uring_get_sqe(&r->ring);
    if (!sqe) return -EBUSY;
    io_uring_prep_nop(sqe);
    io_uring_sqe_set_data64(sqe, n);
  }
  for (unsigned i = 0; reads && i < n; i++) {
    struct io_uring_sqe *sqe = io_uring_get_sqe(&r->ring);
    if (!sqe) return -EBUSY;  // never: the queue has as many entries as there are reads at once
    io_uring_prep_readv(sqe, reads[i]->fd, reads[i]->into, reads[i]->buffers, reads[i]->offset);
    io_uring_sqe_set_data64(sqe, reads[i]->id);
  }
  // What is in the queue stays there until the kernel takes it, so all of it must be submitted.
  unsigned left = reads ? n : 1;
  while (left) {
    int err = io_uring_submit(&r->ring);
    if (err == -EINTR || err == -EAGAIN || err == -EBUSY) continue;
    if (err < 0) return err;
    left -= (unsigned)err < left ? (unsigned)err : left;
  }
  return (int)n;
}

int tc_uring_wait(struct tc_uring *r, unsigned n, struct tc_uring_done *done) {
  struct io_uring_cqe *cqe;
  int err;
  do {
    err = io_uring_wait_cqe(&r->ring, &cqe);
  } while (err == -EINTR || err == -EAGAIN);
  if (err < 0) return err;
  unsigned head, seen = 0;
  io_uring_for_each_cqe(&r->ring, head, cqe) {
    if (seen == n) break;
    done[seen].id = cqe->user_data;
    done[seen].result = cqe->res;
    seen++;
  }
  io_uring_cq_advance(&r->ring, seen);
  return (int)seen;
}

void tc_uring_close(struct tc_uring *r) {
  io_uring_queue_exit(&r->ring);
  free(r);
}
