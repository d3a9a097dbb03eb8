/* SPDX-License-Identifier: GPL-2.0-or-later */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "blkback/arena.h"

#define PAGES 200

static void
test_consecutive(void **state)
{
	struct arena a;

	(void)state;
	assert_int_equal(arena_init(&a, PAGES * 4096), 0);
	assert_int_equal((uintptr_t)a.base % 4096, 0);
	assert_int_equal(arena_take(&a, 11), 0);
	assert_int_equal(arena_take(&a, 1), 11);
	assert_int_equal(arena_take(&a, 100), 12);
	/* In a new round the warm pages come first again. */
	arena_give(&a, 0, 11);
	arena_rewind(&a);
	assert_int_equal(arena_take(&a, 11), 0);
	/* A gap that is too small is passed over. */
	arena_give(&a, 11, 1);
	arena_rewind(&a);
	assert_int_equal(arena_take(&a, 2), 112);
	assert_int_equal(arena_take(&a, 87), -ENOMEM);
	assert_int_equal(arena_take(&a, 86), 114);
	assert_int_equal(arena_take(&a, 1), 11);	/* behind the cursor */
	assert_int_equal(arena_take(&a, 1), -ENOMEM);
	arena_give(&a, 0, PAGES);
	arena_fini(&a);
}

/* Against a map of bytes: no page is given twice, none is lost. */
static void
test_random(void **state)
{
	struct { int first; unsigned n; } held[PAGES];
	unsigned char owner[PAGES];
	unsigned nr = 0, i, n, k, round;
	struct arena a;
	int first;

	(void)state;
	srand(1);
	memset(owner, 0, sizeof(owner));
	assert_int_equal(arena_init(&a, PAGES * 4096), 0);
	for (round = 0; round < 100000; round++) {
		if (rand() % 8 == 0)
			arena_rewind(&a);
		n = rand() % 11 + 1;
		first = rand() % 2 ? arena_take(&a, n) : -1;
		if (first >= 0) {
			assert_true(first + n <= PAGES);
			for (i = first; i < first + n; i++)
				assert_int_equal(owner[i]++, 0);
			held[nr].first = first;
			held[nr++].n = n;
			memset(arena_page(&a, first), 1, n * 4096);
		} else if (nr > 0) {
			k = rand() % nr;
			arena_give(&a, held[k].first, held[k].n);
			for (i = 0; i < held[k].n; i++)
				owner[held[k].first + i] = 0;
			held[k] = held[--nr];
		}
	}
	while (nr-- > 0)
		arena_give(&a, held[nr].first, held[nr].n);
	assert_int_equal(arena_take(&a, PAGES), 0);
	arena_give(&a, 0, PAGES);
	arena_fini(&a);
}

/* No page belongs to two shares, nor does a word of their bitmaps. */
static void
test_shares(void **state)
{
	struct arena whole, share[ARENA_SHARES];
	unsigned n, i, k;

	(void)state;
	assert_int_equal(arena_init(&whole, PAGES * 4096), 0);
	for (n = 1; n <= ARENA_SHARES; n++) {
		assert_int_equal(arena_share_pages(&whole, n), PAGES / n);
		for (i = 0; i < n; i++) {
			arena_share(&share[i], &whole, i, n);
			assert_int_equal((uintptr_t)share[i].used % 64, 0);
			/* All of it, though the others have taken all. */
			assert_int_equal(arena_take(&share[i], PAGES / n), 0);
			assert_int_equal(arena_take(&share[i], 1), -ENOMEM);
			memset(share[i].base, i, (size_t)PAGES / n * 4096);
			for (k = 0; k < PAGES / n; k++)
				share[i].iov[k].iov_len =
				    share[i].segment[k].gref = i;
		}
		for (i = 0; i < n; i++) {
			assert_int_equal(*share[i].base, i);
			for (k = 0; k < PAGES / n; k++) {
				assert_int_equal(share[i].iov[k].iov_len, i);
				assert_int_equal(share[i].segment[k].gref, i);
			}
			assert_int_equal(arena_page(&share[i],
			    PAGES / n)[-1], i);
			arena_give(&share[i], 0, PAGES / n);
		}
	}
	arena_fini(&whole);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_consecutive),
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_shares),
	};

	return cmocka_run_group_tests_name("arena", tests, NULL, NULL);
}
