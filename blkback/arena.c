/* SPDX-License-Identifier: GPL-2.0-or-later */
/* arena: a bitmap of pages, searched from where the last one was found. */
#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "blkback/arena.h"

#define PAGE_BYTES 4096u
#define HUGE_BYTES (2u << 20)
#define LINE_BYTES 64u		/* a cache line */
#define LINE_WORDS (LINE_BYTES / sizeof(uint64_t))

/* Of 'used', for that many pages: whole lines. */
static size_t
used_words(uint32_t pages)
{
	return (pages / 64 + LINE_WORDS) / LINE_WORDS * LINE_WORDS;
}

int
arena_init(struct arena *a, uint32_t bytes)
{
	size_t mapped = (size_t)bytes + HUGE_BYTES, lead, words;
	uint8_t *p;

	memset(a, 0, sizeof(*a));
	a->pages = bytes / PAGE_BYTES;
	a->iov = calloc(a->pages, sizeof(*a->iov));
	a->segment = calloc(a->pages, sizeof(*a->segment));
	a->data = calloc(a->pages, sizeof(*a->data));
	/* However it is shared out: each share begins a line. */
	words = used_words(a->pages) + ARENA_SHARES * LINE_WORDS;
	a->used = aligned_alloc(LINE_BYTES, words * sizeof(*a->used));
	if (a->iov == NULL || a->segment == NULL || a->data == NULL ||
	    a->used == NULL)
		goto err_free;
	memset(a->used, 0, words * sizeof(*a->used));

	/*
	 * Aligned to a huge page, where the kernel has one to spare: pinning
	 * pages for a copy or for direct I/O is then one lookup for many.
	 */
	p = mmap(NULL, mapped, PROT_READ | PROT_WRITE,
	    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		goto err_free;
	lead = -(uintptr_t)p % HUGE_BYTES;
	if (lead > 0)
		munmap(p, lead);
	a->base = p + lead;
	bytes = a->pages * PAGE_BYTES;
	munmap(a->base + bytes, mapped - lead - bytes);
	madvise(a->base, bytes, MADV_HUGEPAGE);	/* only a hint */
	return 0;

err_free:
	free(a->data);
	free(a->segment);
	free(a->iov);
	free(a->used);
	memset(a, 0, sizeof(*a));
	return -ENOMEM;
}

void
arena_fini(struct arena *a)
{
	assert(a->nr_used == 0);
	if (a->base != NULL)
		munmap(a->base, (size_t)a->pages * PAGE_BYTES);
	free(a->data);
	free(a->segment);
	free(a->iov);
	free(a->used);
	memset(a, 0, sizeof(*a));
}

void
arena_share(struct arena *share, const struct arena *whole, unsigned i,
    unsigned n)
{
	uint32_t pages = arena_share_pages(whole, n), first = i * pages;

	assert(n > 0 && n <= ARENA_SHARES && i < n && whole->nr_used == 0);
	*share = (struct arena){
		.base = whole->base + (size_t)first * PAGE_BYTES,
		.iov = whole->iov + first,
		.segment = whole->segment + first,
		.data = whole->data + first,
		.used = whole->used + i * used_words(pages),
		.pages = pages,
	};
}

static bool
page_used(const struct arena *a, uint32_t page)
{
	return a->used[page / 64] >> (page % 64) & 1;
}

/* The first of n free pages within [from, to), or -ENOMEM. */
static int
find_run(const struct arena *a, uint32_t from, uint32_t to, uint32_t n)
{
	uint32_t run;

	while (n <= to && from <= to - n) {
		if (from % 64 == 0 && a->used[from / 64] == UINT64_MAX) {
			from += 64;
			continue;
		}
		for (run = 0; run < n && !page_used(a, from + run); run++)
			;
		if (run == n)
			return from;
		from += run + 1;
	}
	return -ENOMEM;
}

int
arena_take(struct arena *a, uint32_t n)
{
	uint32_t i, end;
	int first;

	assert(n > 0);
	if (n > a->pages - a->nr_used)
		return -ENOMEM;
	first = find_run(a, a->cursor, a->pages, n);
	if (first < 0) {
		end = a->cursor + n - 1;
		first = find_run(a, 0, end < a->pages ? end : a->pages, n);
	}
	if (first < 0)
		return first;

	for (i = first; i < first + n; i++)
		a->used[i / 64] |= 1ull << (i % 64);
	a->nr_used += n;
	a->cursor = first + n;
	return first;
}

void
arena_give(struct arena *a, uint32_t first, uint32_t n)
{
	uint32_t i;

	assert(first <= a->pages && n <= a->pages - first && n <= a->nr_used);
	for (i = first; i < first + n; i++) {
		assert(page_used(a, i));
		a->used[i / 64] &= ~(1ull << (i % 64));
	}
	a->nr_used -= n;
}
