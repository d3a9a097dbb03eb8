/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The ring against a frontend that writes whatever it likes: the layouts byte
 * by byte, the indices, the notify and arm rules, and a scribbler.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ring/ring.h"

static _Alignas(4096) uint8_t shared[RING_MAX_PAGES * RING_PAGE];
static uint32_t *const req_prod = (uint32_t *)(void *)shared;
static uint32_t *const req_event = (uint32_t *)(void *)(shared + 4);
static uint32_t *const rsp_prod = (uint32_t *)(void *)(shared + 8);
static uint32_t *const rsp_event = (uint32_t *)(void *)(shared + 12);

static void
attach(struct ring *r, unsigned order, enum ring_abi abi)
{
	memset(shared, 0, sizeof(shared));
	*req_event = *rsp_event = 1;
	assert_int_equal(ring_attach(r, shared, order, abi), 0);
}

static void
put_le(uint8_t *at, uint64_t value, size_t bytes)
{
	memcpy(at, &value, bytes);
}

/* Offsets as blkif.h gives them for each ABI; see ring.h. */
static const struct {
	enum ring_abi abi;
	size_t stride, id, sector, seg, discard_nr, handle, indirect_gref;
	size_t response;
} layouts[] = {
	{ RING_ABI_X86_64, 112, 8, 16, 24, 24, 24, 28, 16 },
	{ RING_ABI_NATIVE, 112, 8, 16, 24, 24, 24, 28, 16 },
	{ RING_ABI_X86_32, 108, 4, 12, 20, 20, 20, 24, 12 },
};
#define NR_LAYOUTS (sizeof(layouts) / sizeof(layouts[0]))

static void
test_layout_rw(void **state)
{
	blkif_request_t req;
	struct ring r;
	uint8_t *slot;
	size_t l, i;

	(void)state;
	for (l = 0; l < NR_LAYOUTS; l++) {
		attach(&r, 1, layouts[l].abi);
		/* The second slot, so that the stride counts. */
		slot = shared + 64 + layouts[l].stride;
		slot[0] = BLKIF_OP_WRITE;
		slot[1] = 11;
		put_le(slot + 2, 0xcafe, 2);
		put_le(slot + layouts[l].id, 0x1122334455667788ull, 8);
		put_le(slot + layouts[l].sector, 0x99aabbccddeeff00ull, 8);
		for (i = 0; i < 11; i++) {
			put_le(slot + layouts[l].seg + i * 8, 0x80000000 + i,
			    4);
			slot[layouts[l].seg + i * 8 + 4] = i % 8;
			slot[layouts[l].seg + i * 8 + 5] = 7;
		}
		*req_prod = 2;
		assert_int_equal(ring_pending(&r), 2);
		ring_take(&r, &req);
		ring_take(&r, &req);
		assert_int_equal(req.operation, BLKIF_OP_WRITE);
		assert_int_equal(req.nr_segments, 11);
		assert_int_equal(req.handle, 0xcafe);
		assert_true(req.id == 0x1122334455667788ull);
		assert_true(req.sector_number == 0x99aabbccddeeff00ull);
		for (i = 0; i < 11; i++) {
			assert_int_equal(req.seg[i].gref, 0x80000000 + i);
			assert_int_equal(req.seg[i].first_sect, i % 8);
			assert_int_equal(req.seg[i].last_sect, 7);
		}
	}
}

static void
test_layout_discard_indirect(void **state)
{
	blkif_request_indirect_t ind;
	blkif_request_discard_t dis;
	blkif_request_t req;
	struct ring r;
	uint8_t *slot;
	size_t l, i;

	(void)state;
	for (l = 0; l < NR_LAYOUTS; l++) {
		attach(&r, 0, layouts[l].abi);
		slot = shared + 64;
		slot[0] = BLKIF_OP_DISCARD;
		slot[1] = 1;
		put_le(slot + layouts[l].id, 42, 8);
		put_le(slot + layouts[l].sector, 4096, 8);
		put_le(slot + layouts[l].discard_nr, 1ull << 40, 8);
		slot += layouts[l].stride;
		slot[0] = BLKIF_OP_INDIRECT;
		slot[1] = BLKIF_OP_READ;
		put_le(slot + 2, 300, 2);
		put_le(slot + layouts[l].id, 43, 8);
		put_le(slot + layouts[l].sector, 77, 8);
		put_le(slot + layouts[l].handle, 9, 2);
		for (i = 0; i < 8; i++)
			put_le(slot + layouts[l].indirect_gref + i * 4,
			    100 + i, 4);
		*req_prod = 2;
		ring_take(&r, &req);
		memcpy(&dis, &req, sizeof(dis));
		assert_int_equal(dis.flag, 1);
		assert_true(dis.id == 42);
		assert_true(dis.sector_number == 4096);
		assert_true(dis.nr_sectors == 1ull << 40);
		ring_take(&r, &req);
		memcpy(&ind, &req, sizeof(ind));
		assert_int_equal(ind.indirect_op, BLKIF_OP_READ);
		assert_int_equal(ind.nr_segments, 300);
		assert_true(ind.id == 43);
		assert_true(ind.sector_number == 77);
		assert_int_equal(ind.handle, 9);
		for (i = 0; i < 8; i++)
			assert_int_equal(ind.indirect_grefs[i], 100 + i);
	}
}

/* Every byte of a response is ours, and not one byte more (XSA-216). */
static void
test_response_padding(void **state)
{
	struct ring r;
	uint8_t *slot;
	size_t l, i;
	int16_t status;
	uint64_t id;

	(void)state;
	for (l = 0; l < NR_LAYOUTS; l++) {
		attach(&r, 0, layouts[l].abi);
		memset(shared + 64, 0xaa, RING_PAGE - 64);
		*req_prod = 1;
		r.req_cons = 1;
		ring_put(&r, 0xfedcba9876543210ull, 0x81, -2);
		slot = shared + 64;
		memcpy(&id, slot, sizeof(id));
		memcpy(&status, slot + 10, sizeof(status));
		assert_true(id == 0xfedcba9876543210ull);
		assert_int_equal(slot[8], 0x81);
		assert_int_equal(slot[9], 0);
		assert_int_equal(status, -2);
		for (i = 12; i < layouts[l].response; i++)
			assert_int_equal(slot[i], 0);
		for (i = layouts[l].response; i < RING_PAGE - 64; i++)
			assert_int_equal(slot[i], 0xaa);
	}
}

/* A ring in use is attached where it stands, and not a byte is written. */
static void
test_attach_live(void **state)
{
	uint8_t before[sizeof(shared)];
	struct ring r;

	(void)state;
	memset(shared, 0x5a, sizeof(shared));
	*rsp_prod = 0xfffffff0u;
	*req_prod = 0xfffffff3u;
	memcpy(before, shared, sizeof(before));
	assert_int_equal(ring_attach(&r, shared, 0, RING_ABI_NATIVE), 0);
	assert_memory_equal(before, shared, sizeof(before));
	assert_int_equal(ring_pending(&r), 3);
	assert_int_equal(r.rsp_prod, 0xfffffff0u);

	*req_prod = *rsp_prod + 33;
	assert_int_equal(ring_attach(&r, shared, 0, RING_ABI_NATIVE), -EPROTO);
	assert_int_equal(ring_attach(&r, shared, 5, RING_ABI_NATIVE), -EINVAL);
}

static void
test_resume(void **state)
{
	blkif_request_t req;
	struct ring r;

	(void)state;
	memset(shared, 0, sizeof(shared));
	*req_prod = 12;
	*rsp_prod = 3;		/* what the guest was shown */
	assert_int_equal(ring_resume(&r, shared, 0, RING_ABI_NATIVE, 10, 5), 0);
	assert_int_equal(ring_pending(&r), 2);
	ring_take(&r, &req);
	assert_int_equal(r.req_cons, 11);
	assert_int_equal(ring_resume(&r, shared, 0, RING_ABI_NATIVE, 38, 5),
	    -EPROTO);
	assert_int_equal(ring_resume(&r, shared, 0, RING_ABI_NATIVE, 4, 5),
	    -EPROTO);
}

static void
test_producer_runs_away(void **state)
{
	struct ring r;

	(void)state;
	attach(&r, 0, RING_ABI_NATIVE);
	*req_prod = 32;
	assert_int_equal(ring_pending(&r), 32);
	*req_prod = 33;
	assert_int_equal(ring_pending(&r), -EPROTO);
	*req_prod = 32;		/* broken stays broken */
	assert_int_equal(ring_pending(&r), -EPROTO);
	assert_true(ring_arm(&r));
}

static void
test_producer_steps_back(void **state)
{
	blkif_request_t req;
	struct ring r;
	int i;

	(void)state;
	attach(&r, 0, RING_ABI_NATIVE);
	*req_prod = 5;
	assert_int_equal(ring_pending(&r), 5);
	for (i = 0; i < 5; i++)
		ring_take(&r, &req);
	*req_prod = 3;
	assert_int_equal(ring_pending(&r), -EPROTO);
}

/* What is in flight takes room: a full ring cannot be filled once more. */
static void
test_room(void **state)
{
	blkif_request_t req;
	struct ring r;
	int i;

	(void)state;
	attach(&r, 0, RING_ABI_X86_32);
	*req_prod = 32;
	for (i = 0; i < 32; i++)
		ring_take(&r, &req);
	assert_int_equal(ring_pending(&r), 0);
	*req_prod = 33;
	assert_int_equal(ring_pending(&r), -EPROTO);
}

static void
test_publish(void **state)
{
	struct ring r;
	int i;

	(void)state;
	attach(&r, 0, RING_ABI_NATIVE);
	*req_prod = r.req_cons = 8;
	assert_false(ring_publish(&r));		/* nothing written */
	assert_int_equal(*rsp_prod, 0);

	*rsp_event = 4;
	for (i = 0; i < 3; i++)
		ring_put(&r, i, 0, 0);
	assert_int_equal(*rsp_prod, 0);		/* not yet */
	assert_false(ring_publish(&r));		/* 0 -> 3 does not reach 4 */
	assert_int_equal(*rsp_prod, 3);
	ring_put(&r, 3, 0, 0);
	assert_true(ring_publish(&r));		/* 3 -> 4 does */
	ring_put(&r, 4, 0, 0);
	assert_false(ring_publish(&r));		/* past it already */
	*rsp_event = 6;
	ring_put(&r, 5, 0, 0);
	ring_put(&r, 6, 0, 0);
	assert_true(ring_publish(&r));		/* 5 -> 7 jumps over 6 */
}

static void
test_publish_wraps(void **state)
{
	struct ring r;
	int i;

	(void)state;
	memset(shared, 0, sizeof(shared));
	*req_prod = 2;
	*rsp_prod = 0xfffffffe;
	assert_int_equal(ring_attach(&r, shared, 0, RING_ABI_NATIVE), 0);
	r.req_cons = 2;
	*rsp_event = 1;
	for (i = 0; i < 3; i++)
		ring_put(&r, i, 0, 0);
	assert_true(ring_publish(&r));
	assert_int_equal(*rsp_prod, 1);
}

static void
test_arm(void **state)
{
	blkif_request_t req;
	struct ring r;

	(void)state;
	attach(&r, 0, RING_ABI_NATIVE);
	*req_prod = 1;
	ring_take(&r, &req);
	*req_event = 0xdead;
	assert_false(ring_arm(&r));
	assert_int_equal(*req_event, 2);
	*req_prod = 2;
	assert_true(ring_arm(&r));	/* it came in between */
}

static void
test_abi_names(void **state)
{
	enum ring_abi abi;

	(void)state;
	assert_int_equal(ring_abi_from_name(NULL, &abi), 0);
	assert_int_equal(abi, RING_ABI_NATIVE);
	assert_int_equal(ring_abi_from_name("x86_32-abi", &abi), 0);
	assert_int_equal(abi, RING_ABI_X86_32);
	assert_int_equal(ring_abi_from_name("x86_64-abi", &abi), 0);
	assert_int_equal(abi, RING_ABI_X86_64);
	assert_int_equal(ring_abi_from_name("", &abi), -EINVAL);
	assert_int_equal(ring_abi_from_name("x86_64", &abi), -EINVAL);
}

/* Whatever it writes, we never hold more requests than there are slots. */
static void
scribble(unsigned seed)
{
	enum ring_abi abi = seed % 3;
	unsigned order = seed % 5, held = 0, i;
	blkif_request_t req;
	struct ring r;
	int n;

	srand(seed);
	attach(&r, order, abi);
	for (;;) {
		*req_prod += rand() % (ring_slots(order) + 8) - 2;
		*req_event = rand();
		*rsp_event = rand();
		*rsp_prod = rand();
		n = ring_pending(&r);
		if (n < 0)
			break;
		while (n-- > 0) {
			ring_take(&r, &req);
			held++;
			assert_true(held <= ring_slots(order));
		}
		for (i = rand() % (held + 1); i > 0; i--, held--)
			ring_put(&r, 0, 0, 0);
		*rsp_prod = r.published;
		ring_publish(&r);
		assert_int_equal(*rsp_prod, r.rsp_prod);
	}
	assert_int_equal(n, -EPROTO);
}

static void
test_scribble(void **state)
{
	unsigned seed;

	(void)state;
	for (seed = 0; seed < 3000; seed++)
		scribble(seed);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_layout_rw),
		cmocka_unit_test(test_layout_discard_indirect),
		cmocka_unit_test(test_response_padding),
		cmocka_unit_test(test_attach_live),
		cmocka_unit_test(test_resume),
		cmocka_unit_test(test_producer_runs_away),
		cmocka_unit_test(test_producer_steps_back),
		cmocka_unit_test(test_room),
		cmocka_unit_test(test_publish),
		cmocka_unit_test(test_publish_wraps),
		cmocka_unit_test(test_arm),
		cmocka_unit_test(test_abi_names),
		cmocka_unit_test(test_scribble),
	};

	return cmocka_run_group_tests_name("ring", tests, NULL, NULL);
}
