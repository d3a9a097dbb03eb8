/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * page: the page file of a disk, <run dir>/<domid>-<devid>.page.
 *
 * Mapped by the disk process, which writes it, and by whoever looks at the
 * disk's statistics, who only reads and trusts nothing; it outlives both.  It
 * holds, per queue, counters and the in-flight table, and is the commit point
 * of the ring: a successor of a disk process that died finds here what had been
 * taken and what had been answered.
 *
 *   take:    copy the requests into slots (PAGE_SLOT_TAKEN), then store
 *            req_cons
 *   answer:  write the responses into the ring and mark their slots
 *            PAGE_SLOT_ANSWERED with the response's index, store rsp_prod here,
 *            publish it to the guest, then free the slots
 *
 * Whatever the instant of death, a slot that is TAKEN, or ANSWERED at an index
 * not below rsp_prod, was not seen answered by the guest and is issued again;
 * one ANSWERED below rsp_prod was answered.  A taken slot whose index is not
 * below req_cons will be read from the ring again and is dropped.
 *
 * Behind the queues lies the driver's redo memory (drivers/driver.h), if it
 * wants any: what the guest has seen done, but the image does not hold yet.
 */
#ifndef BLKBACK_PAGE_H
#define BLKBACK_PAGE_H

#include <stdatomic.h>
#include <stdint.h>

#include "blkback/message.h"
#include "ring/ring.h"

#define PAGE_MAGIC  "RINGBACK"
#define PAGE_LAYOUT 6u		/* changes with any change of what follows */

enum page_slot_state { PAGE_SLOT_FREE, PAGE_SLOT_TAKEN, PAGE_SLOT_ANSWERED };

/*
 * The instants between two stores at which a death must cost nothing.  A test
 * writes one into stop_at: the disk process dies there when stop_after has
 * been counted down.
 */
enum page_step {
	STEP_NONE,
	STEP_COPIED,		/* request copied, its slot not yet TAKEN */
	STEP_TAKEN,		/* slot TAKEN, req_cons not stored */
	STEP_CONSUMED,		/* req_cons stored */
	STEP_FETCHED,		/* write data copied */
	STEP_SUBMITTED,
	STEP_REAPED,		/* I/O done, nothing answered */
	STEP_WRITTEN,		/* response in the ring, slot still TAKEN */
	STEP_ANSWERED,		/* slot ANSWERED, rsp_prod not stored */
	STEP_COMMITTED,		/* rsp_prod stored here, not published */
	STEP_PUBLISHED,		/* published, not notified */
	STEP_NOTIFIED,		/* no slot free yet */
	STEP_FREED,		/* one slot free */
	NR_STEPS,
};

/*
 * Where a request in flight is, for whoever looks: one store at each change,
 * and the clock is that of the round.
 */
enum page_stage {
	PAGE_STAGE_TAKEN,		/* copied and checked */
	PAGE_STAGE_ROOM,		/* waits for memory in the arena, or */
					/* (a barrier) for those before it */
	PAGE_STAGE_COPY,		/* its round's grant copy is made */
	PAGE_STAGE_STORAGE,		/* handed to the driver */
	PAGE_STAGE_HELD,		/* failed, waits for the operator */
	PAGE_STAGE_ANSWER,		/* done, its response is to come */
	PAGE_NR_STAGES
};

struct page_slot {
	_Atomic uint32_t state;		/* enum page_slot_state */
	uint32_t         index;		/* TAKEN: of the request; ANSWERED: */
					/* of the response; free-running */
	_Atomic uint32_t stage;		/* enum page_stage; above its bits, */
					/* with STORAGE, the slot of the 1st */
					/* request of the merged I/O */
	_Atomic uint32_t metadata;	/* see struct io; of that first one */
	uint64_t         taken_ns;	/* CLOCK_MONOTONIC */
	uint32_t         length;	/* bytes, of an indirect one: once */
					/* its descriptors were read; else 0 */
	uint32_t         pad;
	blkif_request_t  req;		/* our private copy, native layout */
};

#define PAGE_STAGE_BITS 8

/* One row per operation in the arrays below. */
enum page_op {
	PAGE_READ, PAGE_WRITE, PAGE_FLUSH, PAGE_BARRIER, PAGE_DISCARD,
	PAGE_NR_OPS
};

/* Bucket i counts what took from 1 << i to less than 2 << i ns. */
#define PAGE_WAIT_BUCKETS 64u

/*
 * Counters since the attach; they only grow.  At rest
 * reqs_taken == reqs_answered + in flight, and what a batch costs can be seen:
 * reqs_answered / ios is the merging, notifies / reqs_answered the batching.
 */
struct page_stats {
	uint64_t reqs_taken;
	uint64_t reqs_answered;
	uint64_t reqs_rejected;		/* guest's fault; answered as well */
	uint64_t reqs_failed;		/* storage's or grants'; likewise */
	uint64_t ops[PAGE_NR_OPS];	/* answered OKAY */
	uint64_t bytes[PAGE_NR_OPS];
	uint64_t wait_ns[PAGE_NR_OPS];	/* sum, from taken to answered */
	uint64_t wait_max_ns[PAGE_NR_OPS];
	uint64_t waits[PAGE_NR_OPS][PAGE_WAIT_BUCKETS];	/* the same ones */
	uint64_t ios;			/* handed to the driver */
	uint64_t ios_retried;		/* alone, after a merged I/O failed */
	uint64_t submits;		/* system calls for that */
	uint64_t metadata_writes;	/* the format's own */
	uint64_t rounds;		/* that found something to do */
	uint64_t copy_calls;		/* grant-copy calls */
	uint64_t copy_segments;
	uint64_t map_calls;		/* of pages that stay mapped */
	uint64_t unmap_calls;
	uint64_t publishes;
	uint64_t notifies;		/* events sent to the guest */
	uint64_t events;		/* events received */
	uint64_t sleeps;		/* times the thread waited for events */
	uint64_t polls;			/* times polling found work */
	uint64_t connects;
};

struct page_queue {
	/* A line of its own: each queue is written by another thread. */
	_Alignas(64)
	_Atomic uint32_t  req_cons;
	_Atomic uint32_t  rsp_prod;
	uint32_t          inflight;
	uint32_t          order;
	uint32_t          gref[RING_MAX_PAGES];
	uint32_t          port;
	uint32_t          stop_at;	/* enum page_step; 0 outside of tests */
	uint32_t          stop_after;
	struct page_stats stats;
	struct page_slot  slot[RING_MAX_SLOTS];
};

struct page_header {
	char     magic[8];		/* PAGE_MAGIC, no NUL */
	uint32_t layout;		/* PAGE_LAYOUT */
	uint32_t nr_queues;		/* that the disk offers */
	uint64_t bytes;			/* of the whole file */
	uint32_t redo_bytes;		/* of the driver's; whole pages */
	uint32_t redo_used;		/* bool: the image is active, or was */
					/* when its process died */
	uint64_t image_dev, image_ino;
	uint32_t domid, devid;
	uint32_t generation;		/* of the connect; 0: never connected */
	uint32_t connected;		/* bool */
	uint32_t abi;			/* enum ring_abi */
	uint32_t persistent;		/* bool */
	uint32_t used_queues;		/* of the connection: the first ones */
	_Atomic uint32_t failed;	/* bool: a flush failed, for good */
	int32_t  pid;			/* of the disk process */
	char     uuid[UUID_MAX];
	char     backend[BACKEND_PATH_MAX];
};

struct page {
	struct page_header header;
	struct page_queue  queue[];	/* header.nr_queues */
};

/* What a page file is made for. */
struct page_shape {
	uint64_t image_dev, image_ino;
	uint32_t nr_queues;		/* 1 ... MAX_QUEUES */
	uint32_t redo_bytes;		/* 0: no redo memory */
};

/*
 * Make the file new (mode 0600, replacing an old one), zeroed, and map it.  The
 * header is filled from 'open' and the shape.  0 or -errno.
 */
int  page_create(const char *path, const struct message_open *open,
         const struct page_shape *shape, struct page **page);

/*
 * Take over what a predecessor left: map it, and check that it is of the same
 * domain, backend directory and shape, and is of the connection 'generation',
 * unless only the redo memory counts (RESUME_REDO).
 * 0; -ESTALE when anything differs, 'what' (a constant string) naming it;
 * other -errno, 'what' being NULL.
 */
int  page_takeover(const char *path, const struct message_open *open,
         const struct page_shape *shape, uint32_t generation,
         struct page **page, const char **what);

/* The redo memory of one that was made or taken over; NULL: there is none. */
void *page_redo(struct page *page, const struct page_shape *shape);

/* Is the connection in the page the one that 'c' describes? */
bool page_same_connection(const struct page *page,
         const struct message_connect *c);

/*
 * Map an existing file without its redo memory, read-only; 'shape' says what is
 * mapped: trust its number of queues, not the header's.  0; -EPROTO when it is
 * not a page file of this layout and size; other -errno.
 */
int  page_open(const char *path, const struct page **page,
         struct page_shape *shape);

/*
 * The header and the length of a file, if it is a page file: 0; -EPROTO; other
 * -errno.  A copy: whoever writes to the file may do so between two looks.
 */
int  page_read_header(int fd, struct page_header *h, uint64_t *bytes);

/* Add what one queue has counted to the sum of a disk. */
void page_add_stats(struct page_stats *sum, const struct page_stats *s);

/* 'shape' as it was made, taken over or opened with.  NULL is fine. */
void page_close(const struct page *page, const struct page_shape *shape);

/*
 * Make the queues ready for a new connection, which has no more of them than
 * the page; statistics stay.
 */
void page_connect(struct page *page, const struct message_connect *c,
         uint32_t generation);

#endif
