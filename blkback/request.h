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
#define MAX_SEGMENTS BLKIF_MAX_SEGMENTS_PER_REQUEST	/* in a ring slot */

/* Segments of an indirect request; their descriptors fill half a page. */
#define MAX_INDIRECT_SEGMENTS SPEC_SEGMENTS_MAX

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
	uint32_t max_segments;	/* of one request; MAX_SEGMENTS: none are */
				/* indirect */
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
	const struct segment *segment;	/* NULL: in the guest's page of */
	uint32_t       descriptors;	/* this grant, still to be fetched */
	struct segment own[MAX_SEGMENTS];
};

/*
 * Check 'wire', which must be a private copy, and translate it.  Pure: no I/O,
 * no globals, no log.  BLKIF_RSP_OKAY; or the status to answer with, *why
 * then being a constant string that names the broken rule.
 */
int16_t request_parse(struct request_parsed *req, const blkif_request_t *wire,
            const struct request_limits *disk, const char **why);

/*
 * The second half for an indirect request: 'wire' is the private copy of its
 * nr_segments descriptors; they are checked and written to 'segment', which
 * stays the caller's and must live as long as the request.
 */
int16_t request_parse_indirect(struct request_parsed *req,
            const struct blkif_request_segment *wire, struct segment *segment,
            const struct request_limits *disk, const char **why);

/* What its response has to name: of an indirect request, the inner one. */
uint8_t request_operation(const blkif_request_t *wire);

/* How many segments it says that it has, for a log. */
unsigned request_segments(const blkif_request_t *wire);

#endif
