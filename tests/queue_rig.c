/* SPDX-License-Identifier: GPL-2.0-or-later */
/* queue_rig: a guest and a storage in one process (see queue_rig.h). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <cmocka.h>

#include "tests/queue_rig.h"

/* ---- the clock ---------------------------------------------------------- */

uint64_t stopped_ns;

/* Linked with -Wl,--wrap=clock_gettime. */
int __real_clock_gettime(clockid_t clock, struct timespec *ts);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ts);

int
__wrap_clock_gettime(clockid_t clock, struct timespec *ts)
{
	if (stopped_ns == 0)
		return __real_clock_gettime(clock, ts);
	ts->tv_sec = (time_t)(stopped_ns / 1000000000u);
	ts->tv_nsec = (long)(stopped_ns % 1000000000u);
	return 0;
}

/* ---- the guest -------------------------------------------------------- */

_Alignas(4096) uint8_t ring_pages[RING_MAX_PAGES][4096];
_Alignas(4096) uint8_t guest[GUEST_PAGES][4096];
uint8_t granted[GUEST_PAGES];	/* 0 no, 1 read-only, 2 writable */
bool copy_call_fails;
unsigned copies, notifies, unmasks, maps, page_maps;
bool mapped[GUEST_PAGES];
static unsigned binds;
int pending_port;

uint32_t *const req_prod = (uint32_t *)(void *)&ring_pages[0][0];
uint32_t *const req_event = (uint32_t *)(void *)&ring_pages[0][4];
uint32_t *const rsp_prod = (uint32_t *)(void *)&ring_pages[0][8];
uint32_t *const rsp_event = (uint32_t *)(void *)&ring_pages[0][12];

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

void *
xengnttab_map_grant_ref(xengnttab_handle *h, uint32_t domid, uint32_t ref,
    int prot)
{
	(void)h;
	assert_int_equal(prot, PROT_READ | PROT_WRITE);
	page_maps++;
	if (domid != 7 || ref >= GUEST_PAGES || granted[ref] < 2) {
		errno = EINVAL;
		return NULL;
	}
	assert_false(mapped[ref]);
	mapped[ref] = true;
	maps++;
	return guest[ref];
}

int
xengnttab_unmap(xengnttab_handle *h, void *start, uint32_t count)
{
	size_t ref = (size_t)((uint8_t *)start - guest[0]) / 4096;

	(void)h;
	maps -= count;
	if (start == ring_pages)
		return 0;
	assert_int_equal(count, 1);
	assert_true(ref < GUEST_PAGES && mapped[ref]);
	mapped[ref] = false;
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

uint8_t disk[DISK_BYTES];
struct io_list queued;
enum io_op fail_op;
unsigned fail_nth;	/* 0: none fails */
bool hold;		/* finish nothing */
unsigned nr_ios;
char order[64];		/* of what was executed: r, w, f, d */

static void
store_submit(struct channel *ch, struct io *io)
{
	if (STAILQ_EMPTY(&queued))
		ch->submits++;
	STAILQ_INSERT_TAIL(&queued, io, link);
}

void
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

struct image image;
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

struct arena arena;
struct page page = { .queue = { [0] = { .req_cons = 0 } } };
struct queue q;
uint32_t rsp_cons;

int
connect_queue(uint32_t memory, unsigned ring_order, bool persistent)
{
	struct disk_spec spec = { .memory = memory, .merge = 1 << 20,
	    .persistent = persistent,
	    .segments = memory < 1 << 20 ? memory / 4096 : 256 };
	struct message_connect c = { .abi = RING_ABI_X86_64, .nr_queues = 1,
	    .persistent = persistent,
	    .ring = { { .order = ring_order, .port = 3 } } };
	char why[WHY_MAX];
	unsigned i;

	memset(&page.header, 0, sizeof(page.header));
	page.queue[0] = (struct page_queue){ .req_cons = 0 };
	memset(ring_pages, 0, sizeof(ring_pages));
	memset(granted, 2, sizeof(granted));
	*req_event = *rsp_event = 1;
	copies = notifies = unmasks = nr_ios = rsp_cons = page_maps = 0;
	fail_nth = 0;
	stopped_ns = 0;
	copy_call_fails = hold = false;
	memset(order, 0, sizeof(order));
	STAILQ_INIT(&queued);
	image = (struct image){ .drv = &store, .active = true,
	    .size = DISK_BYTES, .block_size = 512,
	    .physical_block_size = 512, .discard_granularity = 4096 };
	for (i = 0; i < RING_MAX_PAGES; i++)
		c.ring[0].gref[i] = 1 + i;
	assert_int_equal(arena_init(&arena, spec.memory), 0);
	assert_int_equal(queue_open(&q, &image, 7, &spec, &arena, &page, 0,
	    why), 0);
	assert_int_equal(queue_connect(&q, &c, RESUME_NO, why), 0);
	return 0;
}

int
setup(void **state)
{
	(void)state;
	return connect_queue(8 << 20, 0, false);
}

int
teardown(void **state)
{
	(void)state;
	queue_disconnect(&q);
	queue_close(&q);
	queue_close(&q);	/* twice is fine */
	arena_fini(&arena);
	assert_int_equal(maps, 0);
	return 0;
}

blkif_request_t *
slot(uint32_t index)
{
	return (blkif_request_t *)(void *)(&ring_pages[0][64] +
	    (index & (q.ring.entries - 1)) * 112);
}

/* Put a request of whole pages, grefs gref, gref + 1, ... into the ring. */
blkif_request_t *
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

struct blkif_request_segment *
descriptor(uint32_t at, unsigned n)
{
	return (struct blkif_request_segment *)(void *)guest[at] + n;
}

blkif_request_indirect_t *
put_indirect(uint8_t inner, uint64_t sector, unsigned segs, uint32_t gref,
    uint32_t descriptors)
{
	blkif_request_indirect_t *r = (void *)put(BLKIF_OP_INDIRECT, sector,
	    0, 0);
	struct blkif_request_segment whole = { .gref = gref, .last_sect = 7 };
	unsigned i;

	r->indirect_op = inner;
	r->nr_segments = segs;
	r->indirect_grefs[0] = descriptors;
	for (i = 0; i < segs; i++, whole.gref++)
		*descriptor(descriptors, i) = whole;
	return r;
}

/* The next response; its id must be 'want'. */
int
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

void
run(void)
{
	while (queue_round(&q))
		;
}

void
fill(uint32_t gref, unsigned pages, uint8_t seed)
{
	uint8_t *p = (uint8_t *)guest + gref * 4096;
	unsigned i;

	for (i = 0; i < pages * 4096; i++)
		p[i] = seed + i / 512;
}
