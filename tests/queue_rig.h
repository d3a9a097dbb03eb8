/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * queue_rig: what the tests of a queue stand on, a guest in this process.
 *
 * Its pages are an array, and the dozen functions of libxengnttab and
 * libxenevtchn that the queue calls are defined here and linked instead of the
 * libraries.  The storage is an array too, with what a test wants to happen.
 */
#ifndef TESTS_QUEUE_RIG_H
#define TESTS_QUEUE_RIG_H

#include "blkback/queue.h"

#define GUEST_PAGES 1024u		/* gref i is page i */
#define DISK_BYTES  (4u << 20)
#define FIRST_PORT  9

/* The guest, and how often it was called. */
extern uint8_t ring_pages[RING_MAX_PAGES][4096];
extern uint8_t guest[GUEST_PAGES][4096];
extern uint8_t granted[GUEST_PAGES];	/* 0 no, 1 read-only, 2 writable */
extern bool copy_call_fails;
extern unsigned copies, notifies, unmasks, maps;
extern unsigned page_maps;		/* calls that map one page */
extern bool mapped[GUEST_PAGES];
extern int pending_port;
extern uint64_t stopped_ns;		/* what the clock says; 0: it runs */
extern uint32_t *const req_prod, *const req_event;
extern uint32_t *const rsp_prod, *const rsp_event;

/* The storage. */
extern uint8_t disk[DISK_BYTES];
extern struct io_list queued;
extern enum io_op fail_op;
extern unsigned fail_nth;		/* 0: none fails */
extern bool hold;			/* finish nothing */
extern unsigned nr_ios;
extern char order[64];			/* of what was executed: r, w, f, d */
extern struct image image;

void store_execute(struct io *io);

/* The queue and its frontend. */
extern struct arena arena;
extern struct page page;		/* of one queue */
extern struct queue q;
extern uint32_t rsp_cons;

int  setup(void **state);
int  teardown(void **state);

/* Everything from the beginning, with an arena and a ring of that size. */
int  connect_queue(uint32_t memory, unsigned ring_order, bool persistent);

blkif_request_t *slot(uint32_t index);

/* Put a request of whole pages, grefs gref, gref + 1, ... into the ring. */
blkif_request_t *put(uint8_t op, uint64_t sector, unsigned segs, uint32_t gref);

/*
 * The same, indirect: its descriptors are written to the page at 'descriptors',
 * which is that page's gref as well.
 */
blkif_request_indirect_t *put_indirect(uint8_t inner, uint64_t sector,
    unsigned segs, uint32_t gref, uint32_t descriptors);
struct blkif_request_segment *descriptor(uint32_t page, unsigned n);

/* The status of the next response; its id must be 'want'. */
int  got(uint64_t want);

/* Rounds until there is nothing to do. */
void run(void);

/* A pattern in that many pages. */
void fill(uint32_t gref, unsigned pages, uint8_t seed);

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

#endif
