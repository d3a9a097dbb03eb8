/* SPDX-License-Identifier: GPL-2.0-or-later */
/* clock: CLOCK_MONOTONIC as one number. */
#ifndef BLKBACK_CLOCK_H
#define BLKBACK_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t
clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);	/* cannot fail for this clock */
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static inline uint64_t
clock_us(void)
{
	return clock_ns() / 1000;
}

#endif
