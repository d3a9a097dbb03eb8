/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * compare_stats: what a handful of ratios says, and what it does not.
 *
 * The ratios of one cell are few, skewed and of no known distribution, so
 * nothing is assumed of it: the interval of the median lies between two of the
 * values themselves, the k-th smallest and the k-th largest.  Each value is
 * below the true median with probability 1/2, so how many are is binomial; k is
 * the largest for which the interval misses the median in at most 5 % of all
 * cases.  Below 6 values even the whole range misses it more often: then the
 * interval is that range, and nothing is decided by it.
 */
#ifndef TOOLS_COMPARE_STATS_H
#define TOOLS_COMPARE_STATS_H

#include <stdbool.h>
#include <stddef.h>

#define STATS_ENOUGH 6u

struct stats_interval {
	size_t n;		/* values; 0: there is none, all else is 0 */
	double median, low, high;
};

enum stats_verdict { STATS_AHEAD, STATS_BEHIND, STATS_UNDECIDED };

/* Sorts the values.  0 of none. */
double stats_median(double *value, size_t n);

/* The k of the interval, 1 or more; 0: too few values. */
size_t stats_rank(size_t n);

/* Sorts the values. */
void   stats_interval(double *value, size_t n, struct stats_interval *i);

/*
 * first[i] / other[i] where both are there, which is where they are above 0.
 * The number of ratios.
 */
size_t stats_ratios(const double *first, const double *other, size_t n,
         double *ratio);

/* Is a ratio above 1? */
enum stats_verdict stats_judge(const struct stats_interval *ratio);

/* Is it lower than it was, beyond both intervals? */
bool   stats_worse(const struct stats_interval *now,
         const struct stats_interval *then);

#endif
