/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See hist.h. */
#include <math.h>

#include "tests/loopfront/hist.h"

#define SUB	(1u << HIST_BITS)

static unsigned
bucket_of(uint64_t v)
{
	unsigned	shift;

	if (v < SUB)
		return (unsigned)v;
	shift = 63 - HIST_BITS - (unsigned)__builtin_clzll(v);
	return ((shift + 1) << HIST_BITS) + (unsigned)(v >> shift) - SUB;
}

/* The largest value of a bucket. */
static uint64_t
bucket_top(unsigned b)
{
	unsigned	shift;

	if (b < SUB)
		return b;
	shift = (b >> HIST_BITS) - 1;
	return ((uint64_t)(SUB + (b & (SUB - 1))) << shift) +
	    ((1ull << shift) - 1);
}

void
hist_add(struct hist *h, uint64_t v)
{
	if (h->n == 0 || v < h->min)
		h->min = v;
	if (v > h->max)
		h->max = v;
	h->n++;
	h->sum += (double)v;
	h->sum_of_squares += (double)v * (double)v;
	h->bucket[bucket_of(v)]++;
}

double
hist_mean(const struct hist *h)
{
	return h->n == 0 ? 0 : h->sum / (double)h->n;
}

double
hist_stddev(const struct hist *h)
{
	double	mean = hist_mean(h), var;

	if (h->n < 2)
		return 0;
	var = h->sum_of_squares / (double)h->n - mean * mean;
	return var > 0 ? sqrt(var) : 0;
}

uint64_t
hist_percentile(const struct hist *h, double percent)
{
	uint64_t	want, seen = 0;
	unsigned	b;

	if (h->n == 0)
		return 0;
	want = (uint64_t)ceil((double)h->n * percent / 100);
	for (b = 0; b < HIST_BUCKETS - 1; b++) {
		seen += h->bucket[b];
		if (seen >= want && seen > 0)
			break;
	}
	return bucket_top(b) < h->max ? bucket_top(b) : h->max;
}
