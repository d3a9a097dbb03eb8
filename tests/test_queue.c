/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The rounds of one queue, against a guest in this process: its pages are an
 * array, and the dozen functions of libxengnttab and libxenevtchn that the
 * queue calls are defined here and linked instead of the libraries.
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "blkback/queue.h"

#define GUEST_PAGES 1024u		/* gref i is page i */
#define DISK_BYTES  (4u << 20)
#define FIRST_PORT  9

/* ---- the guest -------------------------------------------------------- */

static _Alignas(4096) uint8_t ring_pages[RING_MAX_PAGES][4096];
static _Alignas(4096) uint8_t guest[GUEST_PAGES][4096];
static uint8_t granted[GUEST_PAGES];	/* 0 no, 1 read-only, 2 writable */
static bool copy_call_fails;
static unsigned copies, notifies, unmasks, maps, binds;
static int pending_port;

static uint32_t *const req_prod = (uint32_t *)(void *)&ring_pages[0][0];
static uint32_t *const req_event = (uint32_t *)(void *)&ring_pages[0][4];
static uint32_t *const rsp_prod = (uint32_t *)(void *)&ring_pages[0][8];
static uint32_t *const rsp_event = (uint32_t *)(void *)&ring_pages[0][12];

static char a_handle;

xengnttab_handle *
xengnttab_open(struct xentoollog_logger *logger, unsigned flags)
{
	(void)logger;
	(void)flags;
	return (xengnttab_handle *)(void *)&a_handle;
}

int
xengnttab_close(xengnttab_handle *h)
{
	(void)h;
	return 0;
}

void *
xengnttab_map_domain_grant_refs(xengnttab_handle *h, uint32_t count,
    uint32_t domid, uint32_t *refs, int prot)
{
	(void)h;
	(void)prot;
	if (domid != 7 || refs[0] == 0) {
		errno = EINVAL;
		return NULL;
	}
	maps += count;
	return ring_pages;
}

int
xengnttab_unmap(xengnttab_handle *h, void *start, uint32_t count)
{
	(void)h;
	assert_ptr_equal(start, ring_pages);
	maps -= count;
	return 0;
}

static int16_t
copy_one(const xengnttab_grant_copy_segment_t *s)
{
	bool out = s->flags & GNTCOPY_dest_gref;
	uint32_t ref = out ? s->dest.foreign.ref : s->source.foreign.ref;
	uint16_t off = out ? s->dest.foreign.offset : s->source.foreign.offset;

	assert_true(off + s->len <= 4096);
	if (ref >= GUEST_PAGES)
		return GNTST_bad_gntref;
	if (granted[ref] < (out ? 2 : 1))
		return GNTST_general_error;
	if (out)
		memcpy(guest[ref] + off, s->source.virt, s->len);
	else
		memcpy(s->dest.virt, guest[ref] + off, s->len);
	return GNTST_okay;
}

int
xengnttab_grant_copy(xengnttab_handle *h, uint32_t count,
    xengnttab_grant_copy_segment_t *segs)
{
	uint32_t i;

	(void)h;
	copies++;
	for (i = 0; i < count; i++) {
		/* As when the kernel gives up in the middle of a call. */
		if (copy_call_fails && i == count / 2) {
			errno = ENOMEM;
			return -1;
		}
		segs[i].status = copy_one(&segs[i]);
	}
	return 0;
}

xenevtchn_handle *
xenevtchn_open(struct xentoollog_logger *logger, unsigned flags)
{
	(void)logger;
	(void)flags;
	return (xenevtchn_handle *)(void *)&a_handle;
}

int
xenevtchn_close(xenevtchn_handle *h)
{
	(void)h;
	return 0;
}

int
xenevtchn_restrict(xenevtchn_handle *h, domid_t domid)
{
	(void)h;
	return domid == 7 ? 0 : -1;
}

xenevtchn_port_or_error_t
xenevtchn_bind_interdomain(xenevtchn_handle *h, uint32_t domid,
    evtchn_port_t remote)
{
	(void)h;
	(void)domid;
	if (remote == 0) {
		errno = EINVAL;
		return -1;
	}
	return FIRST_PORT + binds++;
}

int
xenevtchn_unbind(xenevtchn_handle *h, evtchn_port_t port)
{
	(void)h;
	(void)port;
	return 0;
}

int
xenevtchn_notify(xenevtchn_handle *h, evtchn_port_t port)
{
	(void)h;
	(void)port;
	notifies++;
	return 0;
}

xenevtchn_port_or_error_t
xenevtchn_pending(xenevtchn_handle *h)
{
	(void)h;
	return pending_port;
}

int
xenevtchn_unmask(xenevtchn_handle *h, evtchn_port_t port)
{
	(void)h;
	(void)port;
	unmasks++;
	return 0;
}

/* ---- the storage ------------------------------------------------------ */

static uint8_t disk[DISK_BYTES];
static struct io_list queued;
static enum io_op fail_op;
static unsigned fail_nth;	/* 0: none fails */
static bool hold;		/* finish nothing */
static unsigned nr_ios;
static char order[64];		/* of what was executed: r, w, f, d */

static void
store_submit(struct channel *ch, struct io *io)
{
	if (STAILQ_EMPTY(&queued))
		ch->submits++;
	STAILQ_INSERT_TAIL(&queued, io, link);
}

static void
store_execute(struct io *io)
{
	uint64_t at = io->offset;
	int i;

	if (io->op == IO_DISCARD) {
		memset(disk + at, 0, io->length);
		return;
	}
	for (i = 0; i < io->iovcnt; i++) {
		if (io->op == IO_READ)
			memcpy(io->iov[i].iov_base, disk + at,
			    io->iov[i].iov_len);
		else
			memcpy(disk + at, io->iov[i].iov_base,
			    io->iov[i].iov_len);
		at += io->iov[i].iov_len;
	}
	assert_int_equal(at - io->offset, io->length);
}

static unsigned
store_reap(struct channel *ch)
{
	struct io_list now = STAILQ_HEAD_INITIALIZER(now);
	struct io *io;
	unsigned n = 0;

	(void)ch;
	if (hold)
		return 0;
	STAILQ_CONCAT(&now, &queued);
	while ((io = STAILQ_FIRST(&now)) != NULL) {
		STAILQ_REMOVE_HEAD(&now, link);
		if (nr_ios < sizeof(order) - 1)
			order[nr_ios] = "rwfd"[io->op];
		nr_ios++;
		n++;
		if (fail_nth > 0 && io->op == fail_op && --fail_nth == 0) {
			io->done(io, -EIO);
			continue;
		}
		store_execute(io);
		io->done(io, 0);
	}
	return n;
}

static struct image image;
static struct channel channel;

static int
store_channel(struct image *img, unsigned depth, struct channel **ch,
    char why[WHY_MAX])
{
	(void)depth;
	(void)why;
	memset(&channel, 0, sizeof(channel));
	channel.img = img;
	channel.event_fd = -1;
	*ch = &channel;
	return 0;
}

static void
store_channel_close(struct channel *ch)
{
	assert_ptr_equal(ch, &channel);
}

static const struct driver store = {
	.name = "store", .channel_open = store_channel,
	.channel_close = store_channel_close, .submit = store_submit,
	.reap = store_reap,
};

/* ---- the frontend ----------------------------------------------------- */

static struct page page;
static struct queue q;
static uint32_t rsp_cons;

static int
connect_queue(uint32_t memory, unsigned ring_order)
{
	struct disk_spec spec = { .memory = memory, .merge = 1 << 20 };
	struct message_ring ring = { .order = ring_order, .port = 3 };
	char why[WHY_MAX];
	unsigned i;

	memset(&page, 0, sizeof(page));
	memset(ring_pages, 0, sizeof(ring_pages));
	memset(granted, 2, sizeof(granted));
	*req_event = *rsp_event = 1;
	copies = notifies = unmasks = nr_ios = rsp_cons = 0;
	fail_nth = 0;
	copy_call_fails = hold = false;
	memset(order, 0, sizeof(order));
	STAILQ_INIT(&queued);
	image = (struct image){ .drv = &store, .active = true,
	    .size = DISK_BYTES, .block_size = 512,
	    .physical_block_size = 512, .discard_granularity = 4096 };
	for (i = 0; i < RING_MAX_PAGES; i++)
		ring.gref[i] = 1 + i;
	assert_int_equal(queue_open(&q, &image, 7, &spec, &page.queue[0], why),
	    0);
	assert_int_equal(queue_connect(&q, &ring, RING_ABI_X86_64,
	    RESUME_NO, why), 0);
	return 0;
}

static int
setup(void **state)
{
	(void)state;
	return connect_queue(8 << 20, 0);
}

static int
teardown(void **state)
{
	(void)state;
	queue_disconnect(&q);
	queue_close(&q);
	queue_close(&q);	/* twice is fine */
	assert_int_equal(maps, 0);
	return 0;
}

static blkif_request_t *
slot(uint32_t index)
{
	return (blkif_request_t *)(void *)(&ring_pages[0][64] +
	    (index & (q.ring.entries - 1)) * 112);
}

/* Put a request of whole pages, grefs gref, gref + 1, ... into the ring. */
static blkif_request_t *
put(uint8_t op, uint64_t sector, unsigned segs, uint32_t gref)
{
	blkif_request_t *r = slot(*req_prod);
	unsigned i;

	memset(r, 0, sizeof(*r));
	r->operation = op;
	r->nr_segments = segs;
	r->sector_number = sector;
	r->id = 0x1000000000ull + *req_prod;
	for (i = 0; i < segs; i++) {
		r->seg[i].gref = gref + i;
		r->seg[i].last_sect = 7;
	}
	(*req_prod)++;
	return r;
}

/* The next response; its id must be 'want'. */
static int
got(uint64_t want)
{
	blkif_response_t *r;

	assert_true(rsp_cons != *rsp_prod);
	r = (blkif_response_t *)(void *)slot(rsp_cons++);
	if (r->id != 0x1000000000ull + want)
		fail_msg("response %u is for request %u, not %u", rsp_cons - 1,
		    (unsigned)r->id, (unsigned)want);
	return r->status;
}

static void
run(void)
{
	while (queue_round(&q))
		;
}

static void
fill(uint32_t gref, unsigned pages, uint8_t seed)
{
	uint8_t *p = (uint8_t *)guest + gref * 4096;
	unsigned i;

	for (i = 0; i < pages * 4096; i++)
		p[i] = seed + i / 512;
}

/* ---- the tests -------------------------------------------------------- */

static void
test_write_read(void **state)
{
	(void)state;
	fill(100, 11, 3);
	put(BLKIF_OP_WRITE, 16, 11, 100);
	run();
	assert_int_equal(got(0), BLKIF_RSP_OKAY);
	assert_memory_equal(disk + 8192, guest[100], 11 * 4096);
	put(BLKIF_OP_READ, 16, 11, 200);
	run();
	assert_int_equal(got(1), BLKIF_RSP_OKAY);
	assert_memory_equal(guest[200], guest[100], 11 * 4096);
	assert_true(queue_idle(&q));
	assert_int_equal(page.queue[0].stats.bytes[PAGE_READ], 11 * 4096);
}

/* A full ring of 4 KiB neighbours costs one of everything. */
static void
test_one_of_everything(void **state)
{
	struct page_stats *s = &page.queue[0].stats;
	unsigned i;

	(void)state;
	for (i = 0; i < 32; i++)
		put(BLKIF_OP_WRITE, i * 8, 1, 100 + i);
	*rsp_event = 32;
	run();
	assert_int_equal(copies, 1);
	assert_int_equal(nr_ios, 1);
	assert_int_equal(notifies, 1);
	assert_int_equal(s->reqs_answered, 32);
	assert_int_equal(s->ios, 1);
	assert_int_equal(s->submits, 1);
	assert_int_equal(s->publishes, 1);
	for (i = 0; i < 32; i++)
		assert_int_equal(got(i), BLKIF_RSP_OKAY);

	for (i = 0; i < 32; i++)
		put(BLKIF_OP_READ, (i * 7 % 32) * 200, 1, 100 + i);
	*rsp_event = 64;
	run();
	assert_int_equal(copies, 2);
	assert_int_equal(notifies, 2);
	assert_int_equal(s->submits, 2);
}

/* One bad grant among eleven: nothing of the request reaches the image. */
static void
test_bad_segment(void **state)
{
	unsigned bad;

	(void)state;
	memset(disk, 0x55, sizeof(disk));
	fill(100, 11, 1);
	for (bad = 0; bad < 11; bad++) {
		granted[100 + bad] = 0;
		put(BLKIF_OP_WRITE, 0, 11, 100);
		put(BLKIF_OP_WRITE, 88, 1, 300); /* its neighbour is fine */
		run();
		granted[100 + bad] = 2;
		assert_int_equal(got(2 * bad), BLKIF_RSP_ERROR);
		assert_int_equal(got(2 * bad + 1), BLKIF_RSP_OKAY);
		assert_int_equal(disk[0], 0x55);
		assert_int_equal(disk[11 * 4096 - 1], 0x55);
	}
	put(BLKIF_OP_WRITE, 0, 1, 5000);		/* beyond the table */
	granted[100] = 1;				/* read-only: fine */
	put(BLKIF_OP_WRITE, 8, 1, 100);
	put(BLKIF_OP_READ, 0, 1, 100);			/* ... not for a read */
	run();
	assert_int_equal(got(22), BLKIF_RSP_ERROR);
	assert_int_equal(got(23), BLKIF_RSP_OKAY);
	assert_int_equal(got(24), BLKIF_RSP_ERROR);
}

/* A copy call that fails half-way has copied half of the requests. */
static void
test_copy_call_fails(void **state)
{
	unsigned i, ok = 0;

	(void)state;
	copy_call_fails = true;
	for (i = 0; i < 8; i++)
		put(BLKIF_OP_WRITE, i * 8, 1, 100 + i);
	run();
	while (rsp_cons != *rsp_prod)
		ok += ((blkif_response_t *)(void *)slot(rsp_cons++))->status ==
		    BLKIF_RSP_OKAY;
	assert_int_equal(rsp_cons, 8);
	assert_int_equal(ok, 4);
}

/* Every request is answered exactly once, whichever I/O fails. */
static void
test_sweep(void **state)
{
	unsigned nth, i, failed;

	(void)state;
	for (nth = 1; ; nth++) {
		teardown(NULL);
		connect_queue(8 << 20, 0);
		fail_op = IO_WRITE;
		fail_nth = nth;
		for (i = 0; i < 8; i++)
			put(BLKIF_OP_WRITE, i * 8, 1, 100 + i);
		put(BLKIF_OP_FLUSH_DISKCACHE, 0, 0, 0);
		put(BLKIF_OP_WRITE, 64, 1, 110);
		run();
		assert_int_equal(*rsp_prod, 10);
		for (failed = i = 0; i < 10; i++)
			failed += ((blkif_response_t *)(void *)slot(i))->status
			    != BLKIF_RSP_OKAY;
		/*
		 * The first is the merged one: each goes again alone, and no
		 * request fails.  Those after it do not exist without it.
		 */
		assert_int_equal(failed, nth == 2 ? 1 : 0);
		if (fail_nth > 0)
			break;
	}
	assert_int_equal(nth, 3);
}

/* Storage that loses a flush is not trusted with a write again. */
static void
test_failed_flush(void **state)
{
	(void)state;
	fail_op = IO_FLUSH;
	fail_nth = 1;
	put(BLKIF_OP_FLUSH_DISKCACHE, 0, 0, 0);
	run();
	put(BLKIF_OP_WRITE, 0, 1, 100);
	put(BLKIF_OP_FLUSH_DISKCACHE, 0, 0, 0);
	put(BLKIF_OP_READ, 0, 1, 100);
	run();
	assert_int_equal(got(0), BLKIF_RSP_ERROR);
	assert_int_equal(got(1), BLKIF_RSP_ERROR);
	assert_int_equal(got(2), BLKIF_RSP_ERROR);
	assert_int_equal(got(3), BLKIF_RSP_OKAY);
	assert_int_equal(nr_ios, 2);
}

/* A flush that carries data: the flush, then the write, one response. */
static void
test_flush_with_data(void **state)
{
	(void)state;
	memset(disk, 0, sizeof(disk));
	fill(100, 2, 9);
	put(BLKIF_OP_FLUSH_DISKCACHE, 8, 2, 100);
	run();
	assert_int_equal(got(0), BLKIF_RSP_OKAY);
	assert_string_equal(order, "fw");
	assert_memory_equal(disk + 4096, guest[100], 8192);
	/* The write failed, the flush did not: the disk goes on. */
	fail_op = IO_WRITE;
	fail_nth = 1;
	put(BLKIF_OP_FLUSH_DISKCACHE, 8, 1, 100);
	put(BLKIF_OP_WRITE, 100, 1, 100);
	run();
	assert_int_equal(*rsp_prod, 3);
	assert_int_equal(page.queue[0].failed, 0);
	/* Nor does a bad grant say anything of the storage. */
	granted[100] = 0;
	put(BLKIF_OP_FLUSH_DISKCACHE, 8, 1, 100);
	run();
	assert_int_equal(*rsp_prod, 4);
	assert_int_equal(page.queue[0].failed, 0);
}

/* Nothing that came before a barrier is done after it, nor the other way. */
static void
test_barrier(void **state)
{
	unsigned i;

	(void)state;
	for (i = 0; i < 3; i++)
		put(BLKIF_OP_WRITE, i * 16, 1, 100);
	put(BLKIF_OP_WRITE_BARRIER, 100, 2, 100);
	put(BLKIF_OP_WRITE, 200, 1, 100);
	put(BLKIF_OP_WRITE_BARRIER, 0, 0, 0);
	put(BLKIF_OP_READ, 0, 1, 100);
	run();
	assert_string_equal(order, "wwwfwfwfr");
	for (i = 0; i < 7; i++)
		assert_int_equal(got(i), BLKIF_RSP_OKAY);

	/* While the storage hangs nothing passes, and nobody spins. */
	hold = true;
	put(BLKIF_OP_WRITE, 0, 1, 100);
	put(BLKIF_OP_WRITE_BARRIER, 0, 1, 100);
	put(BLKIF_OP_WRITE, 0, 1, 100);
	run();
	assert_int_equal(q.inflight, 2);
	assert_false(queue_arm(&q));
	hold = false;
	run();
	assert_true(queue_idle(&q));
	assert_int_equal(*rsp_prod, 10);

	/* One that is refused does not lift the next one. */
	nr_ios = 0;
	memset(order, 0, sizeof(order));
	put(BLKIF_OP_WRITE_BARRIER, UINT64_MAX, 1, 100);
	put(BLKIF_OP_WRITE_BARRIER, 0, 1, 100);
	put(BLKIF_OP_WRITE, 200, 1, 100);
	run();
	assert_string_equal(order, "fwfw");
	assert_true(queue_idle(&q));
}

static void
test_barrier_fails(void **state)
{
	(void)state;
	fail_op = IO_FLUSH;
	fail_nth = 2;			/* its own data is not durable */
	put(BLKIF_OP_WRITE_BARRIER, 0, 1, 100);
	put(BLKIF_OP_WRITE, 0, 1, 100);
	run();
	assert_int_equal(got(0), BLKIF_RSP_ERROR);
	assert_int_equal(got(1), BLKIF_RSP_ERROR);
	assert_int_equal(page.queue[0].failed, 1);
}

static void
test_discard(void **state)
{
	(void)state;
	memset(disk, 0x55, sizeof(disk));
	put(BLKIF_OP_DISCARD, 8, 0, 0);
	/* nr_sectors lies where the first segment does. */
	slot(*req_prod - 1)->seg[0].gref = 20;
	put(BLKIF_OP_DISCARD, 9, 0, 0);
	slot(*req_prod - 1)->seg[0].gref = 1;
	run();
	assert_int_equal(got(1), BLKIF_RSP_OKAY);
	assert_int_equal(got(0), BLKIF_RSP_OKAY);
	assert_string_equal(order, "d");
	assert_int_equal(disk[4095], 0x55);
	assert_int_equal(disk[4096], 0);
	assert_int_equal(disk[12287], 0);
	assert_int_equal(disk[12288], 0x55);
}

static void
test_refused(void **state)
{
	(void)state;
	put(0x7f, 0, 1, 100);
	put(BLKIF_OP_WRITE, DISK_BYTES / 512 - 7, 1, 100);
	put(BLKIF_OP_READ, 0, 0, 0);
	run();
	assert_int_equal(got(0), BLKIF_RSP_EOPNOTSUPP);
	assert_int_equal(got(1), BLKIF_RSP_ERROR);
	assert_int_equal(got(2), BLKIF_RSP_ERROR);
	assert_int_equal(nr_ios, 0);
	assert_int_equal(page.queue[0].stats.reqs_rejected, 3);
}

/* on-error=stop: what failed waits, and everything behind it. */
static void
test_stop(void **state)
{
	unsigned i;

	(void)state;
	q.on_error = ON_ERROR_STOP;
	fail_op = IO_WRITE;
	fail_nth = 2;
	for (i = 0; i < 3; i++)
		put(BLKIF_OP_WRITE, i * 16, 1, 100);
	run();
	assert_int_equal(*rsp_prod, 2);		/* the others are answered */
	assert_int_equal(q.stopped, -EIO);
	put(BLKIF_OP_READ, 0, 1, 100);
	run();
	assert_int_equal(*rsp_prod, 2);
	assert_false(queue_arm(&q));

	fail_nth = 1;				/* not mended yet */
	queue_retry(&q);
	run();
	assert_int_equal(q.stopped, -EIO);
	queue_retry(&q);
	run();
	assert_int_equal(q.stopped, 0);
	assert_int_equal(*rsp_prod, 4);
	assert_int_equal(got(0), BLKIF_RSP_OKAY);
	assert_int_equal(got(2), BLKIF_RSP_OKAY);
	assert_int_equal(got(3), BLKIF_RSP_OKAY);
	assert_int_equal(got(1), BLKIF_RSP_OKAY);
	assert_int_equal(page.queue[0].stats.reqs_failed, 0);

	/* With stop-enospc another error is the guest's. */
	q.on_error = ON_ERROR_STOP_ENOSPC;
	fail_nth = 1;
	put(BLKIF_OP_WRITE, 0, 1, 100);
	run();
	assert_int_equal(got(4), BLKIF_RSP_ERROR);

	/* A guest that goes away does not wait for the operator. */
	q.on_error = ON_ERROR_STOP;
	fail_nth = 1;
	put(BLKIF_OP_WRITE, 0, 1, 100);
	run();
	assert_int_equal(q.inflight, 1);
	q.draining = true;
	queue_retry(&q);
	run();
	assert_int_equal(got(5), BLKIF_RSP_ERROR);
	assert_true(queue_idle(&q));
}

/* Nor is a failed flush tried again: it might seem to succeed. */
static void
test_stop_flush(void **state)
{
	(void)state;
	q.on_error = ON_ERROR_STOP;
	fail_op = IO_FLUSH;
	fail_nth = 1;
	put(BLKIF_OP_FLUSH_DISKCACHE, 0, 0, 0);
	put(BLKIF_OP_WRITE, 0, 1, 100);
	run();
	put(BLKIF_OP_WRITE, 0, 1, 100);
	run();
	assert_int_equal(q.stopped, 0);
	assert_int_equal(*rsp_prod, 3);
	assert_int_equal(got(0), BLKIF_RSP_ERROR);
}

/* Duplicate ids are legal: mini-os sends id 0 for each. */
static void
test_duplicate_ids(void **state)
{
	unsigned i;

	(void)state;
	for (i = 0; i < 4; i++)
		put(BLKIF_OP_WRITE, i * 8, 1, 100)->id = 0;
	run();
	assert_int_equal(*rsp_prod, 4);
	for (i = 0; i < 4; i++)
		assert_true(slot(i)->id == 0 ||
		    ((blkif_response_t *)(void *)slot(i))->id == 0);
}

/* The arena holds one request and a half: the ring waits, nothing is lost. */
static void
test_small_arena(void **state)
{
	unsigned i;

	(void)state;
	teardown(NULL);
	connect_queue(16 * 4096, 1);
	fill(100, 11, 7);
	for (i = 0; i < 64; i++)
		put(BLKIF_OP_WRITE, i * 88, 11, 100);
	hold = true;
	run();
	assert_int_equal(q.inflight, 2);	/* the second one waits */
	assert_false(queue_arm(&q));		/* and is not looked for */
	hold = false;
	run();
	for (i = 0; i < 64; i++) {
		assert_int_equal(got(i), BLKIF_RSP_OKAY);
		assert_memory_equal(disk + i * 88 * 512, guest[100], 45056);
	}
}

static void
test_broken_ring(void **state)
{
	(void)state;
	hold = true;
	put(BLKIF_OP_WRITE, 0, 1, 100);
	run();
	*req_prod += 100000;
	run();
	assert_non_null(q.broken);
	assert_false(queue_arm(&q));
	*req_prod = 2;			/* broken stays broken */
	run();
	assert_int_equal(page.queue[0].stats.reqs_taken, 1);
	hold = false;			/* what was taken is answered */
	run();
	assert_int_equal(got(0), BLKIF_RSP_OKAY);
	assert_true(queue_idle(&q));
}

static void
test_draining(void **state)
{
	(void)state;
	hold = true;
	put(BLKIF_OP_WRITE, 0, 1, 100);
	run();
	q.draining = true;
	put(BLKIF_OP_WRITE, 8, 1, 100);
	run();
	assert_int_equal(q.inflight, 1);
	hold = false;
	run();
	assert_true(queue_idle(&q));
	assert_int_equal(*rsp_prod, 1);
	assert_int_equal(q.ring.req_cons, 1);	/* the other one stays there */
}

/* While polling req_event stays behind, so that the guest sends no event. */
static void
test_arm(void **state)
{
	(void)state;
	put(BLKIF_OP_WRITE, 0, 1, 100);
	run();
	assert_int_equal(*req_event, 1);
	assert_false(queue_arm(&q));
	assert_int_equal(*req_event, 2);
	put(BLKIF_OP_WRITE, 0, 1, 100);
	assert_true(queue_arm(&q));
}

/* Events without requests are slowed down; one request ends that. */
static void
test_storm(void **state)
{
	int i, timeout = -1;

	(void)state;
	pending_port = q.port;
	for (i = 0; i < 1000; i++) {
		queue_event(&q);
		run();
		assert_false(queue_arm(&q));
		timeout = queue_timeout(&q);
		if (timeout >= 0)
			queue_unmask(&q);
		assert_int_equal(unmasks, i + 1);
	}
	assert_in_range(timeout, 10, 1000);
	put(BLKIF_OP_READ, 0, 1, 100);
	run();
	queue_event(&q);
	assert_int_equal(queue_timeout(&q), -1);
	/* An event of a port that is not ours is nobody's. */
	pending_port = q.port + 1;
	q.masked = false;
	queue_event(&q);
	assert_false(q.masked);
}

/* What a connect cannot have leaves nothing behind. */
static void
test_connect_fails(void **state)
{
	struct message_ring ring = { .order = 0, .gref = { 0 }, .port = 3 };
	char why[WHY_MAX] = "";

	(void)state;
	queue_disconnect(&q);
	assert_true(queue_connect(&q, &ring, RING_ABI_NATIVE, RESUME_NO,
	    why) < 0);
	assert_non_null(strstr(why, "map the ring"));
	ring.gref[0] = 1;
	ring.port = 0;
	assert_true(queue_connect(&q, &ring, RING_ABI_NATIVE, RESUME_NO,
	    why) < 0);
	assert_non_null(strstr(why, "event channel"));
	assert_int_equal(maps, 0);
	*req_prod = 500;
	ring.port = 3;
	assert_int_equal(queue_connect(&q, &ring, RING_ABI_NATIVE, RESUME_NO,
	    why),
	    -EPROTO);
	assert_int_equal(maps, 0);
}

/* ---- death at any instant --------------------------------------------- */

static sigjmp_buf death;

static void
on_trap(int sig)
{
	(void)sig;
	siglongjmp(death, 1);
}

/*
 * The process dies: what it knew is gone, what the page, the ring and the
 * storage hold stays.  I/O that was handed over is done by the kernel before
 * the process is gone, what was not is lost.
 */
static void
die(bool submitted)
{
	struct io *io;

	while ((io = STAILQ_FIRST(&queued)) != NULL) {
		STAILQ_REMOVE_HEAD(&queued, link);
		if (submitted)
			store_execute(io);
	}
	free(q.reqs);
	free(q.grant.seg);
	q.arena.nr_used = 0;
	arena_fini(&q.arena);
	memset(&q, 0, sizeof(q));
	maps = 0;
}

static int
succeed(enum resume_mode resume, unsigned ring_order)
{
	struct disk_spec spec = { .memory = 1 << 20, .merge = 1 << 20 };
	struct message_ring ring = { .order = ring_order, .port = 3 };
	char why[WHY_MAX];
	int i, rc;

	page.queue[0].stop_at = STEP_NONE;
	for (i = 0; i < (int)RING_MAX_PAGES; i++)
		ring.gref[i] = 1 + i;
	assert_int_equal(queue_open(&q, &image, 7, &spec, &page.queue[0], why),
	    0);
	rc = queue_connect(&q, &ring, RING_ABI_X86_64, resume, why);
	if (rc < 0)
		queue_close(&q);
	return rc;
}

/*
 * Forty requests over a ring of 64, the frontend publishing a few at a time;
 * die at the nth time that a step is reached.  True: it was reached.
 */
static bool
die_at(enum page_step at, unsigned nth, bool submitted)
{
	unsigned answered[40] = { 0 }, i, n, round;
	volatile bool died = false;
	uint64_t id;

	connect_queue(8 << 20, 1);
	memset(disk, 0xee, sizeof(disk));
	page.queue[0].stop_at = at;
	page.queue[0].stop_after = nth;
	for (round = 0; round < 8; round++) {
		for (i = round * 5; i < round * 5 + 5; i++) {
			memset(guest[100 + i], i + 1, 4096);
			put(BLKIF_OP_WRITE, i * 8, 1, 100 + i);
		}
		*rsp_event = *rsp_prod + 1;
		n = notifies;
		if (sigsetjmp(death, 1) == 0) {
			run();
		} else {
			died = true;
			die(submitted);
			assert_int_equal(succeed(RESUME_REPLAY, 1), 0);
			/* Whatever the dead one had sent, one more comes. */
			assert_true(notifies > n);
			run();
		}
		while (rsp_cons != *rsp_prod) {
			id = ((blkif_response_t *)(void *)slot(rsp_cons))->id &
			    0xff;
			assert_int_equal(got(id), BLKIF_RSP_OKAY);
			assert_int_equal(answered[id]++, 0);
			assert_int_equal(disk[id * 4096], id + 1);
		}
		assert_true(queue_idle(&q));
	}
	for (i = 0; i < 40; i++)
		assert_int_equal(answered[i], 1);
	assert_int_equal(page.queue[0].stats.reqs_taken,
	    page.queue[0].stats.reqs_answered);
	queue_disconnect(&q);
	queue_close(&q);
	return died;
}

static void
test_death_at_each_step(void **state)
{
	struct sigaction sa = { .sa_handler = on_trap }, old[2];
	unsigned nth, deaths = 0;
	int at;

	(void)state;
	teardown(NULL);
	sigaction(SIGILL, &sa, &old[0]);
	sigaction(SIGTRAP, &sa, &old[1]);
	for (at = STEP_COPIED; at < NR_STEPS; at++) {
		for (nth = 0; die_at(at, nth, nth % 2); nth++)
			deaths++;
		if (nth == 0)
			fail_msg("step %d is never reached", at);
	}
	sigaction(SIGILL, &old[0], NULL);
	sigaction(SIGTRAP, &old[1], NULL);
	assert_true(deaths >= 5 * 40 + 7 * 8);
	setup(NULL);
}

/* A barrier that was in flight waits for what came before it once more. */
static void
test_resume_barrier(void **state)
{
	unsigned i;

	(void)state;
	/* Take slots in another order than the ring's. */
	put(BLKIF_OP_READ, 0, 1, 100);
	put(BLKIF_OP_READ, 0, 1, 100);
	run();
	rsp_cons = 2;
	memset(order, 0, sizeof(order));
	nr_ios = 0;
	hold = true;
	for (i = 0; i < 40; i++)
		put(i == 31 ? BLKIF_OP_WRITE_BARRIER : BLKIF_OP_WRITE,
		    i * 16, 1, 100 + i);
	*req_prod = 2 + 32;
	run();
	die(false);
	hold = false;
	assert_int_equal(succeed(RESUME_REPLAY, 0), 0);
	run();
	assert_string_equal(order, "wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwfwf");
	assert_true(queue_idle(&q));
}

/* What kills each successor is answered with ERROR at last. */
static void
test_resume_fail(void **state)
{
	unsigned i;

	(void)state;
	hold = true;
	for (i = 0; i < 5; i++)
		put(BLKIF_OP_WRITE, i * 8, 1, 100 + i);
	run();
	die(false);
	hold = false;
	assert_int_equal(succeed(RESUME_FAIL, 0), 0);
	run();
	assert_int_equal(nr_ios, 0);
	for (i = 0; i < 5; i++)
		assert_int_equal(got(i), BLKIF_RSP_ERROR);
	assert_true(queue_idle(&q));
}

/* A table that contradicts the indices is not believed. */
static void
test_resume_junk(void **state)
{
	(void)state;
	hold = true;
	put(BLKIF_OP_WRITE, 0, 1, 100);
	put(BLKIF_OP_WRITE, 8, 1, 100);
	run();
	die(false);
	page.queue[0].slot[0].state = PAGE_SLOT_FREE;
	page.queue[0].slot[1].state = PAGE_SLOT_FREE;
	assert_int_equal(succeed(RESUME_REPLAY, 0), -ESTALE);
	page.queue[0].rsp_prod = 2;
	assert_int_equal(succeed(RESUME_REPLAY, 0), 0);
	die(false);
	page.queue[0].req_cons = 1000;
	assert_int_equal(succeed(RESUME_REPLAY, 0), -ESTALE);
	assert_int_equal(maps, 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_write_read), T(test_one_of_everything),
		T(test_bad_segment), T(test_copy_call_fails), T(test_sweep),
		T(test_failed_flush), T(test_flush_with_data),
		T(test_barrier), T(test_barrier_fails), T(test_discard),
		T(test_stop), T(test_stop_flush),
		T(test_refused), T(test_duplicate_ids), T(test_small_arena),
		T(test_broken_ring), T(test_draining), T(test_arm),
		T(test_storm), T(test_connect_fails),
		T(test_death_at_each_step), T(test_resume_fail),
		T(test_resume_junk), T(test_resume_barrier),
	};

	return cmocka_run_group_tests_name("queue", tests, NULL, NULL);
}
