/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The statistics of ringback compare: tools/compare_stats.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tools/compare_stats.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static void
assert_near(double got, double want)
{
	if (fabs(got - want) > 1e-12)
		fail_msg("%.17g, not %.17g", got, want);
}

static void
test_median(void **state)
{
	double none[1] = { 7 }, one[] = { 3 }, even[] = { 9, 1, 4, 2 };
	double odd[] = { 5, -1, 3 }, ties[] = { 2, 1, 2, 2, 9, 2 };

	(void)state;
	assert_near(stats_median(none, 0), 0);
	assert_near(stats_median(one, COUNT(one)), 3);
	assert_near(stats_median(even, COUNT(even)), 3);
	assert_near(stats_median(odd, COUNT(odd)), 3);
	assert_near(stats_median(ties, COUNT(ties)), 2);
	assert_near(even[0], 1);
	assert_near(even[3], 9);
}

/* As in tables of the interval of the median. */
static void
test_rank(void **state)
{
	static const struct {
		size_t n, k;
	} row[] = { { 0, 0 }, { 1, 0 }, { 5, 0 }, { 6, 1 }, { 7, 1 }, { 8, 1 },
		{ 9, 2 }, { 10, 2 }, { 11, 2 }, { 12, 3 }, { 15, 4 },
		{ 20, 6 }, { 25, 8 }, { 30, 10 }, { 50, 18 }, { 100, 40 } };
	size_t i;

	(void)state;
	for (i = 0; i < COUNT(row); i++)
		assert_int_equal(stats_rank(row[i].n), row[i].k);
	/* 2^-n is no number any more; k goes as n/2 - 0.98 sqrt(n). */
	assert_in_range(stats_rank(10000), 4899, 4904);
}

static void
check_interval(const double *value, size_t n, double median, double low,
    double high)
{
	struct stats_interval i;
	double copy[32];

	memcpy(copy, value, n * sizeof(*value));
	stats_interval(copy, n, &i);
	assert_int_equal(i.n, n);
	assert_near(i.median, median);
	assert_near(i.low, low);
	assert_near(i.high, high);
}

static void
test_interval(void **state)
{
	static const double nine[] = { 1.9, 1.1, 1.5, 1.3, 1.7, 1.2, 1.8, 1.4,
		1.6 };
	static const double twelve[] = { 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2,
		1 };
	static const double ties[] = { 1, 1, 1, 2, 2, 2, 2, 3, 3 };

	(void)state;
	check_interval(nine, 0, 0, 0, 0);
	check_interval(nine, 1, 1.9, 1.9, 1.9);
	check_interval(nine, 2, 1.5, 1.1, 1.9);
	check_interval(nine, 5, 1.5, 1.1, 1.9);		/* the range */
	check_interval(nine, 6, 1.4, 1.1, 1.9);
	check_interval(nine, 9, 1.5, 1.2, 1.8);		/* without the ends */
	check_interval(twelve, 12, 6.5, 3, 10);
	check_interval(ties, 9, 2, 1, 3);
}

/*
 * The promise itself: of many samples of a skewed distribution with median 1,
 * 95 % or more have it in their interval; and it is not wider than it has to
 * be: without its rank it would hold nearly always.
 */
static void
test_coverage(void **state)
{
	struct stats_interval i;
	double value[20];
	unsigned held = 0, try, k, trials = 20000;

	(void)state;
	srand48(1);
	for (try = 0; try < trials; try++) {
		for (k = 0; k < COUNT(value); k++)
			value[k] = 1 / (2 * (1 - drand48()));
		stats_interval(value, COUNT(value), &i);
		held += i.low <= 1 && 1 <= i.high;
	}
	assert_in_range(held, trials * 95 / 100, trials * 97 / 100);
}

static void
test_ratios(void **state)
{
	static const double first[] = { 6, 0, 8, 5, 1 };
	static const double other[] = { 2, 4, 4, 0, 2 };
	double ratio[COUNT(first)];

	(void)state;
	assert_int_equal(stats_ratios(first, other, COUNT(first), ratio), 3);
	assert_near(ratio[0], 3);
	assert_near(ratio[1], 2);
	assert_near(ratio[2], 0.5);
	assert_int_equal(stats_ratios(first, other, 0, ratio), 0);
}

static void
test_judge(void **state)
{
	static const struct {
		struct stats_interval i;
		enum stats_verdict verdict;
	} row[] = {
		{ { 9, 1.2, 1.01, 1.4 }, STATS_AHEAD },
		{ { 6, 1.2, 1.01, 1.4 }, STATS_AHEAD },
		{ { 5, 1.2, 1.01, 1.4 }, STATS_UNDECIDED },
		{ { 9, 1.2, 1.00, 1.4 }, STATS_UNDECIDED },
		{ { 9, 1.0, 1.00, 1.0 }, STATS_UNDECIDED },
		{ { 9, 0.9, 0.80, 1.0 }, STATS_UNDECIDED },
		{ { 9, 0.9, 0.80, 0.99 }, STATS_BEHIND },
		{ { 5, 0.9, 0.80, 0.99 }, STATS_UNDECIDED },
		{ { 0, 0, 0, 0 }, STATS_UNDECIDED },
	};
	size_t i;

	(void)state;
	for (i = 0; i < COUNT(row); i++)
		assert_int_equal(stats_judge(&row[i].i), row[i].verdict);
}

static void
test_worse(void **state)
{
	static const struct stats_interval then = { 9, 1.3, 1.2, 1.4 };
	static const struct {
		struct stats_interval now;
		bool worse;
	} row[] = {
		{ { 9, 1.1, 1.0, 1.19 }, true },
		{ { 9, 1.1, 1.0, 1.20 }, false },	/* they touch */
		{ { 9, 1.3, 1.2, 1.4 }, false },
		{ { 9, 9.0, 8.0, 9.9 }, false },	/* better */
		{ { 5, 0.5, 0.4, 0.6 }, false },	/* too few */
		{ { 0, 0, 0, 0 }, false },
	};
	struct stats_interval few = then;
	size_t i;

	(void)state;
	for (i = 0; i < COUNT(row); i++)
		assert_int_equal(stats_worse(&row[i].now, &then), row[i].worse);
	few.n = 5;
	assert_false(stats_worse(&row[0].now, &few));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_median),
		cmocka_unit_test(test_rank),
		cmocka_unit_test(test_interval),
		cmocka_unit_test(test_coverage),
		cmocka_unit_test(test_ratios),
		cmocka_unit_test(test_judge),
		cmocka_unit_test(test_worse),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
