/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * hist: how often a load met which latency, in memory that does not grow.
 *
 * The seven highest bits of a value choose its bucket, so what a percentile
 * says is at most 1/64 too high.  Number, smallest, largest and mean are exact.
 */
#ifndef TOOLS_HIST_H
#define TOOLS_HIST_H

#include <stdint.h>

#define HIST_BUCKETS 3776u	/* every 64-bit value has one */

struct hist {
	uint64_t n, min, max;
	double   sum, squares;
	uint64_t bucket[HIST_BUCKETS];
};

void     hist_add(struct hist *h, uint64_t value);
void     hist_merge(struct hist *to, const struct hist *from);
double   hist_mean(const struct hist *h);	/* 0 when empty; so are */
double   hist_stddev(const struct hist *h);	/* these */

/* What 'percent' of the values do not exceed. */
uint64_t hist_percentile(const struct hist *h, double percent);

#endif
