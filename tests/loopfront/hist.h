/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * hist: a histogram of times with a relative error below 1/64.
 *
 * Up to 128 ns every value has its own bucket; from there on each power of two
 * is cut into 64.  Mean, smallest and largest are exact.
 */
#ifndef LOOPFRONT_HIST_H
#define LOOPFRONT_HIST_H

#include <stdint.h>

#define HIST_BITS	6u
#define HIST_BUCKETS	((64u - HIST_BITS + 1) << HIST_BITS)

struct hist {
	uint64_t n, min, max;
	double	 sum, sum_of_squares;
	uint32_t bucket[HIST_BUCKETS];
};

void	 hist_add(struct hist *, uint64_t value);
double	 hist_mean(const struct hist *);
double	 hist_stddev(const struct hist *);
/* The value that 'percent' of all values do not exceed; 0 when empty. */
uint64_t hist_percentile(const struct hist *, double percent);

#endif /* LOOPFRONT_HIST_H */
