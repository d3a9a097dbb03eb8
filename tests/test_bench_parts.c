/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What ringback bench counts and compares with: tools/hist.c, pattern.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tools/hist.h"
#include "tools/pattern.h"

#define VALUES 20000u

static uint64_t value[VALUES];
static struct hist part[4], *const h = &part[0];

static const double percents[] = { 0, 0.01, 1, 37, 50, 99, 99.99, 100 };

static int
compare(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* Of every magnitude. */
static void
make_values(uint64_t seed)
{
	unsigned i;

	for (i = 0; i < VALUES; i++)
		value[i] = pattern_mix(seed + i) >> (i % 64);
}

static void
test_percentiles(void **state)
{
	uint64_t got, want;
	size_t i, k;

	(void)state;
	memset(h, 0, sizeof(*h));
	assert_int_equal(hist_percentile(h, 50), 0);
	make_values(1);
	for (i = 0; i < VALUES; i++)
		hist_add(h, value[i]);
	qsort(value, VALUES, sizeof(*value), compare);
	assert_int_equal(h->n, VALUES);
	assert_int_equal(h->min, value[0]);
	assert_int_equal(h->max, value[VALUES - 1]);
	for (i = 0; i < sizeof(percents) / sizeof(percents[0]); i++) {
		k = (size_t)(percents[i] / 100 * VALUES + 0.999999);
		want = value[k > 0 ? k - 1 : 0];
		got = hist_percentile(h, percents[i]);
		assert_true(got >= want);
		assert_true(got - want <= want / 64);
	}
}

/* The ends of all magnitudes have buckets of their own, in order. */
static void
test_edges(void **state)
{
	uint64_t power;
	unsigned i;

	(void)state;
	memset(h, 0, sizeof(*h));
	for (i = 7; i < 64; i++) {
		power = UINT64_C(1) << i;
		memset(h, 0, sizeof(*h));
		hist_add(h, power - 1);
		hist_add(h, power);
		hist_add(h, UINT64_MAX);
		assert_int_equal(hist_percentile(h, 33), power - 1);
		assert_true(hist_percentile(h, 66) >= power);
		assert_true(hist_percentile(h, 66) - power <= power / 64);
		assert_true(hist_percentile(h, 100) == UINT64_MAX);
	}
}

static void
test_mean(void **state)
{
	(void)state;
	memset(h, 0, sizeof(*h));
	assert_true(hist_mean(h) == 0 && hist_stddev(h) == 0);
	hist_add(h, 1000);
	hist_add(h, 3000);
	assert_true(hist_mean(h) == 2000);
	assert_true(hist_stddev(h) == 1000);
}

static void
test_merge(void **state)
{
	size_t i;

	(void)state;
	memset(part, 0, sizeof(part));
	make_values(2);
	for (i = 0; i < VALUES; i++) {
		/* Numbers whose sums are the same in any order. */
		value[i] %= 1u << 20;
		hist_add(&part[0], value[i]);
		hist_add(&part[1 + i % 2], value[i]);
	}
	hist_merge(&part[1], &part[3]);		/* an empty one */
	hist_merge(&part[3], &part[1]);
	hist_merge(&part[3], &part[2]);
	assert_memory_equal(&part[3], &part[0], sizeof(part[0]));
}

/* Whichever bit is wrong, offset, version or seed: it is seen, and where. */
static void
test_pattern(void **state)
{
	static uint64_t word[3 * 512 / 8];
	uint8_t *byte = (uint8_t *)word;
	size_t i, bad;

	(void)state;
	pattern_fill(word, sizeof(word), 4096, 5, 1);
	assert_true(pattern_check(word, sizeof(word), 4096, 5, 1, &bad));
	for (i = 0; i < sizeof(word); i++) {
		byte[i] ^= 1u << (i % 8);
		assert_false(pattern_check(word, sizeof(word), 4096, 5, 1,
		    &bad));
		assert_int_equal(bad, i);
		byte[i] ^= 1u << (i % 8);
	}
	assert_false(pattern_check(word, sizeof(word), 4608, 5, 1, &bad));
	assert_false(pattern_check(word, sizeof(word), 4096, 4, 1, &bad));
	assert_false(pattern_check(word, sizeof(word), 4096, 5, 2, &bad));
	assert_int_equal(bad / 8, 2);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_percentiles),
		cmocka_unit_test(test_edges),
		cmocka_unit_test(test_mean),
		cmocka_unit_test(test_merge),
		cmocka_unit_test(test_pattern),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
