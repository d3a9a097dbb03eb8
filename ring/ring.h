/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * ring: the blkif shared ring, seen from the backend.
 *
 * The frontend writes requests and we write responses into the same slots.
 * Every byte of the shared pages can change under us at any time, so ring.c
 * is the only file that may touch them, and it hands out private copies.
 *
 * Three indices matter; all run freely modulo 2^32:
 *
 *   rsp_prod        req_cons        req_prod
 *      |-- in flight --|--- pending ---|
 *
 * Invariant: 0 <= req_prod - req_cons <= entries - in flight.  A frontend
 * that breaks it gets -EPROTO, and its ring is never read again (xen
 * public/io/ring.h: RING_REQUEST_PROD_OVERFLOW; CVE-2010-4247).
 *
 * Layouts are those of xen public/io/blkif.h.  A slot is 112 bytes for
 * x86_64 (and every other 64-bit guest, "native" here) and 108 for x86_32;
 * both give 32 << order slots.
 */
#ifndef RING_RING_H
#define RING_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <xen/io/blkif.h>

#define RING_PAGE      4096u
#define RING_MAX_ORDER 4u		/* 16 pages */
#define RING_MAX_PAGES (1u << RING_MAX_ORDER)
#define RING_MAX_SLOTS (32u << RING_MAX_ORDER)

enum ring_abi {
	RING_ABI_NATIVE,	/* this CPU's own layout */
	RING_ABI_X86_64,
	RING_ABI_X86_32,
};

struct ring {
	volatile struct ring_header *shared;	/* borrowed mapping */
	enum ring_abi abi;
	uint32_t      entries;		/* power of two */
	uint32_t      req_cons;		/* next request to take */
	uint32_t      rsp_prod;		/* next response to write */
	uint32_t      published;	/* rsp_prod as the frontend sees it */
	bool          broken;		/* for good: see the invariant */
};

/*
 * The ABI that the frontend's "protocol" node names; NULL (no node) is
 * native, as blkif.h says.  0 or -EINVAL for a name that is none.
 */
int  ring_abi_from_name(const char *name, enum ring_abi *abi);
const char *ring_abi_name(enum ring_abi abi);

/* Slots of a ring of 1 << order pages. */
static inline uint32_t
ring_slots(unsigned order)
{
	return 32u << order;
}

/*
 * Attach to 1 << order contiguous pages at 'shared' where the frontend left
 * them: both our indices start at the shared rsp_prod, nothing is written.
 * The caller keeps the mapping until its last call into this file.
 * 0; -EINVAL for an order above RING_MAX_ORDER; -EPROTO when the frontend's
 * indices break the invariant already.
 */
int  ring_attach(struct ring *r, void *shared, unsigned order,
         enum ring_abi abi);

/*
 * The same for a successor of a backend that died: 'req_cons' and
 * 'rsp_prod' are what the page file says it had reached.
 * -EPROTO when more than 'entries' would be in flight.
 */
int  ring_resume(struct ring *r, void *shared, unsigned order,
         enum ring_abi abi, uint32_t req_cons, uint32_t rsp_prod);

/*
 * Snapshot of the producer.  How many requests ring_take() may be called
 * for (0: none), or -EPROTO when the ring is broken.
 */
int  ring_pending(struct ring *r);

/*
 * Copy the next request out, once, as a native blkif_request_t (for
 * BLKIF_OP_DISCARD and BLKIF_OP_INDIRECT: the native form of that struct).
 * Call at most ring_pending() times.
 */
void ring_take(struct ring *r, blkif_request_t *req);

/*
 * Write one response into the next slot, its padding zeroed (XSA-216).  The
 * frontend sees it after ring_publish().
 */
void ring_put(struct ring *r, uint64_t id, uint8_t op, int16_t status);

/*
 * Publish all responses written.  True: the frontend asked for an event
 * somewhere in what was published.
 */
bool ring_publish(struct ring *r);

/*
 * Publish what ring_resume() was given, whether or not the predecessor got so
 * far.  The frontend is to be notified after it: that may have been lost too.
 */
void ring_republish(struct ring *r);

/*
 * Ask for an event at the next request, then look again.  True: one came
 * in between (or the ring is broken), go round instead of sleeping.
 */
bool ring_arm(struct ring *r);

/*
 * Take the wish of ring_arm() back: whoever polls wants no event.  One may be
 * on its way already.
 */
void ring_disarm(struct ring *r);

#endif
