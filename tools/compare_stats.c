/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See compare_stats.h. */
#include <math.h>
#include <stdlib.h>

#include "tools/compare_stats.h"

static int
by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double
middle(const double *sorted, size_t n)
{
	if (n == 0)
		return 0;
	return (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
}

double
stats_median(double *value, size_t n)
{
	qsort(value, n, sizeof(*value), by_value);
	return middle(value, n);
}

/*
 * Below the k-th smallest lies the median when fewer than k values are below
 * it; the same above.  Logarithms, for 2^-n is 0 for some n.
 */
size_t
stats_rank(size_t n)
{
	double log_ways = 0, missed = 0;
	size_t k;

	for (k = 0; k <= n / 2; k++) {
		missed += 2 * exp(log_ways - (double)n * log(2));
		if (missed > 0.05)
			return k;
		log_ways += log((double)(n - k)) - log((double)(k + 1));
	}
	return k;
}

void
stats_interval(double *value, size_t n, struct stats_interval *i)
{
	size_t k = stats_rank(n);

	*i = (struct stats_interval){ .n = n };
	if (n == 0)
		return;
	if (k == 0)
		k = 1;
	i->median = stats_median(value, n);
	i->low = value[k - 1];
	i->high = value[n - k];
}

size_t
stats_ratios(const double *first, const double *other, size_t n, double *ratio)
{
	size_t i, found = 0;

	for (i = 0; i < n; i++)
		if (first[i] > 0 && other[i] > 0)
			ratio[found++] = first[i] / other[i];
	return found;
}

enum stats_verdict
stats_judge(const struct stats_interval *ratio)
{
	if (ratio->n >= STATS_ENOUGH && ratio->low > 1)
		return STATS_AHEAD;
	if (ratio->n >= STATS_ENOUGH && ratio->high < 1)
		return STATS_BEHIND;
	return STATS_UNDECIDED;
}

bool
stats_worse(const struct stats_interval *now,
    const struct stats_interval *then)
{
	return now->n >= STATS_ENOUGH && then->n >= STATS_ENOUGH &&
	    now->high < then->low;
}
