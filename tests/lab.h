/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * lab: storage in memory whose sectors are as large as a test wants, and
 * which is as strict and as awkward as storage may be.
 *
 * Entry points of driver.c assert that each I/O is aligned; the lab itself,
 * that no channel has more I/Os than it was opened for, and that no two
 * writes at a time share a block unless a test says that this may be.  I/Os
 * take effect some time before they end, and end in any order, late.
 */
#ifndef TESTS_LAB_H
#define TESTS_LAB_H

#include <pthread.h>

#include "drivers/driver.h"

#define LAB_MAX_DEPTH 512u

struct lab {
	struct image    img;		/* must be first */
	uint8_t        *data;
	bool            racy;		/* writes may share blocks */
	bool            hold;		/* I/Os end by lab_end() only, in the */
					/* order in which they came */
	bool            silent;		/* channels have no event_fd */
	int             activate_error, channel_error;
	pthread_mutex_t mutex;
	/* ---- under 'mutex' ---- */
	unsigned        nr_let;		/* that may end although 'hold' */
	unsigned        fail_nth;	/* this one fails; 0: none */
	unsigned        nr_ios, nr_reads, nr_writes, nr_flushes, nr_discards;
	unsigned        nr_inflight, max_inflight;
	unsigned        nr_closed;
	const void     *last_base;	/* of the last read's or write's iov */
	const struct io *writing[2 * LAB_MAX_DEPTH];	/* NULL: free */
};

/* To be closed by image_close(), or by that of who wraps it. */
struct lab *lab_new(uint64_t size, uint32_t block, uint32_t alignment);

void lab_end(struct lab *lab, unsigned n);

#endif
