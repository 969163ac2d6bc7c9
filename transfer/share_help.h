#ifndef TENSORCACHE_SHARE_HELP_H
#define TENSORCACHE_SHARE_HELP_H

#include <stddef.h>
#include <stdint.h>

#define TENSORCACHE_SHARE_PIECES 2048

/* The beginning of Go's shareWork. Words that several threads touch are atomic. */
struct tensorcache_share_work {
	uintptr_t list, staging, mem, mem_bytes;
	uintptr_t opened, closed, low, claimed, listed; /* words of ShareHost */
	uint32_t number, pieces, piece, unit, slot;
	uint32_t working, inside, hot, stopped;
	uint32_t ready[TENSORCACHE_SHARE_PIECES];
};

enum { offsetof_ready = offsetof(struct tensorcache_share_work, ready) };

/* Looks for shares and gathers their pieces while hot and not stopped. last is the last share that the thread has joined. */
void tensorcache_share_help(struct tensorcache_share_work *work, uint32_t *last);

#endif
