/* SPDX-License-Identifier: GPL-2.0-or-later */
/* hist: see hist.h. */
#include <math.h>

#include "tools/hist.h"

#define STEPS_LOG 6u		/* 64 buckets for each power of two */
#define STEPS     (1u << STEPS_LOG)

/* How many low bits of a value its bucket does not tell. */
static unsigned
lost_bits(uint64_t value)
{
	unsigned top;

	if (value < STEPS)
		return 0;
	top = 63 - (unsigned)__builtin_clzll(value);
	return top - STEPS_LOG;
}

static uint64_t
largest_of(unsigned bucket)
{
	unsigned lost = bucket < 2 * STEPS ? 0 : bucket / STEPS - 1;
	uint64_t high = bucket - lost * STEPS;

	return (high << lost) | ((UINT64_C(1) << lost) - 1);
}

void
hist_add(struct hist *h, uint64_t value)
{
	unsigned lost = lost_bits(value);

	if (h->n == 0 || value < h->min)
		h->min = value;
	if (value > h->max)
		h->max = value;
	h->n++;
	h->sum += (double)value;
	h->squares += (double)value * (double)value;
	h->bucket[lost * STEPS + (unsigned)(value >> lost)]++;
}

void
hist_merge(struct hist *to, const struct hist *from)
{
	unsigned i;

	if (from->n == 0)
		return;
	if (to->n == 0 || from->min < to->min)
		to->min = from->min;
	if (from->max > to->max)
		to->max = from->max;
	to->n += from->n;
	to->sum += from->sum;
	to->squares += from->squares;
	for (i = 0; i < HIST_BUCKETS; i++)
		to->bucket[i] += from->bucket[i];
}

double
hist_mean(const struct hist *h)
{
	return h->n == 0 ? 0 : h->sum / (double)h->n;
}

double
hist_stddev(const struct hist *h)
{
	double mean = hist_mean(h), variance;

	if (h->n == 0)
		return 0;
	variance = h->squares / (double)h->n - mean * mean;
	return variance > 0 ? sqrt(variance) : 0;	/* rounding */
}

uint64_t
hist_percentile(const struct hist *h, double percent)
{
	double below = (double)h->n * percent / 100;
	uint64_t seen = 0, value;
	unsigned i;

	for (i = 0; i < HIST_BUCKETS; i++) {
		seen += h->bucket[i];
		if (h->bucket[i] == 0 || (double)seen < below)
			continue;
		value = largest_of(i);
		return value < h->max ? value : h->max;
	}
	return h->max;
}
