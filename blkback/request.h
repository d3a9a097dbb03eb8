/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * request: what one blkif request asks for, checked.
 *
 * On the wire everything is counted in sectors of 512 bytes, whatever the
 * disk's block size (blkif.h since September 2024); from here on everything is
 * bytes.  After request_parse() nothing that the guest wrote is looked at.
 */
#ifndef BLKBACK_REQUEST_H
#define BLKBACK_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "blkback/page.h"
#include "ring/ring.h"

#define GUEST_PAGE   4096u	/* what a grant covers, on every CPU */
#define WIRE_SECTOR  512u
#define MAX_SEGMENTS BLKIF_MAX_SEGMENTS_PER_REQUEST

struct segment {
	uint32_t gref;
	uint16_t offset;	/* bytes into the granted page */
	uint16_t length;	/* bytes; offset + length <= GUEST_PAGE */
};

/* What the checks need to know of the disk. */
struct request_limits {
	uint64_t size;		/* bytes */
	uint32_t block_size;	/* bytes, power of two >= WIRE_SECTOR */
	uint32_t discard_granularity;	/* bytes, power of two; 0: none */
	uint32_t discard_alignment;	/* bytes, of the first granule */
	bool     readonly;
};

struct request_parsed {
	enum page_op   op;
	/*
	 * What the storage is to do for it, one letter a step: r, w, f(lush),
	 * d(iscard).  A barrier makes what came before it durable, then its
	 * own data; "" when there is nothing to do at all.
	 */
	const char    *plan;
	uint64_t       offset;		/* bytes */
	uint64_t       length;		/* bytes */
	unsigned       nr_segments;	/* 0: no data */
	struct segment segment[MAX_SEGMENTS];
};

/*
 * Check 'wire', which must be a private copy, and translate it.  Pure: no I/O,
 * no globals, no log.  BLKIF_RSP_OKAY; or the status to answer with, *why
 * then being a constant string that names the broken rule.
 */
int16_t request_parse(struct request_parsed *req, const blkif_request_t *wire,
            const struct request_limits *disk, const char **why);

#endif
