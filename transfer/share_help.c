//go:build cuda

#include "share_help.h"

#include "gather_rows.h"

#include <sched.h>

#define WORD(address) ((uint32_t *)(address))

static uint32_t load(const uint32_t *word) { return __atomic_load_n(word, __ATOMIC_SEQ_CST); }

/* Waits a little, and now and then lets other threads have the processor. */
static void rest(uint32_t *turns)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
	if (++*turns % 64 == 0)
		sched_yield();
}

/* The count of a word that has the number of its share beside it. */
static uint32_t counted(uint32_t word, uint32_t number)
{
	return word >> 12 == (number & 0xfffff) ? word & 0xfff : 0;
}

static int over(const struct tensorcache_share_work *w)
{
	return load(&w->stopped) != 0 || load(WORD(w->closed)) == w->number || load(WORD(w->opened)) != w->number;
}

/* Sharer.gather: claims a piece and gathers it; 0 says that there is none left. */
static int gather(struct tensorcache_share_work *w)
{
	uint32_t next = counted(load(WORD(w->claimed)), w->number), turns = 0;
	if (next >= w->pieces || over(w) || (uint64_t)(next + 1) * w->piece > (uint64_t)load(WORD(w->low)) * w->unit)
		return 0;
	uint32_t p = counted(__atomic_add_fetch(WORD(w->claimed), 1, __ATOMIC_SEQ_CST), w->number) - 1;
	if (p >= w->pieces)
		return 0;
	while (load(WORD(w->listed) + p) != w->number) {
		if (over(w))
			return 0;
		rest(&turns);
	}
	size_t row = (size_t)p * w->piece;
	tensorcache_gather_rows((char *)w->staging + row * w->slot, w->slot, (const void *)w->mem, w->mem_bytes,
		(const uint64_t *)w->list + row, w->piece);
	__atomic_store_n(&w->ready[p], w->number, __ATOMIC_SEQ_CST);
	return 1;
}

void tensorcache_share_help(struct tensorcache_share_work *w, uint32_t *last)
{
	for (uint32_t turns = 0; load(&w->hot) != 0 && load(&w->stopped) == 0; rest(&turns)) {
		uint32_t number = load(&w->working);
		if (number == 0 || number == *last)
			continue;
		*last = number;
		__atomic_add_fetch(&w->inside, 1, __ATOMIC_SEQ_CST);
		if (load(&w->working) == number) /* the job is this share's until inside is 0 again */
			while (gather(w))
				;
		__atomic_sub_fetch(&w->inside, 1, __ATOMIC_SEQ_CST);
	}
}
