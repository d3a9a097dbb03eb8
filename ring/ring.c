/* SPDX-License-Identifier: GPL-2.0-or-later */
/* ring: the three layouts and the indices (see ring.h). */
#include <errno.h>
#include <string.h>

#include "ring/ring.h"

/* Page 0 of the ring begins with this; the slots follow at byte 64. */
struct ring_header {
	uint32_t req_prod;
	uint32_t req_event;
	uint32_t rsp_prod;
	uint32_t rsp_event;
	uint8_t  pad[48];
};

/*
 * The x86_32 forms: the same fields as blkif.h's, but a 64-bit member is
 * only 4-byte aligned there.
 */
#define ABI32 __attribute__((packed, aligned(4)))

struct request32 {
	uint8_t                      operation;
	uint8_t                      nr_segments;
	uint16_t                     handle;
	uint64_t                     id;
	uint64_t                     sector_number;
	struct blkif_request_segment seg[BLKIF_MAX_SEGMENTS_PER_REQUEST];
} ABI32;

struct discard32 {
	uint8_t  operation;
	uint8_t  flag;
	uint16_t handle;
	uint64_t id;
	uint64_t sector_number;
	uint64_t nr_sectors;
} ABI32;

struct indirect32 {
	uint8_t  operation;
	uint8_t  indirect_op;
	uint16_t nr_segments;
	uint64_t id;
	uint64_t sector_number;
	uint16_t handle;
	uint16_t pad;
	uint32_t gref[BLKIF_MAX_INDIRECT_PAGES_PER_REQUEST];
} ABI32;

union slot32 {
	struct request32  rw;
	struct discard32  discard;
	struct indirect32 indirect;
};

union slot {
	blkif_request_t          rw;
	blkif_request_discard_t  discard;
	blkif_request_indirect_t indirect;
};

/*
 * A response with its padding spelled out.  The x86_32 one ends after
 * 'status' (12 bytes), the 64-bit one after 'tail' (16).
 */
struct response {
	uint64_t id;
	uint8_t  operation;
	uint8_t  pad;
	int16_t  status;
	uint8_t  tail[4];
};

_Static_assert(sizeof(struct ring_header) == 64, "blkif ring header");
_Static_assert(sizeof(union slot) == 112, "blkif slot, 64-bit");
_Static_assert(sizeof(union slot32) == 108, "blkif slot, x86_32");
_Static_assert(sizeof(struct response) == 16, "blkif response, 64-bit");
_Static_assert(sizeof(struct response) == sizeof(blkif_response_t),
    "native is the 64-bit layout");

int
ring_abi_from_name(const char *name, enum ring_abi *abi)
{
	if (name == NULL)
		*abi = RING_ABI_NATIVE;
	else if (strcmp(name, "x86_64-abi") == 0 ||
	    strcmp(name, "arm-abi") == 0)
		*abi = RING_ABI_X86_64;
	else if (strcmp(name, "x86_32-abi") == 0)
		*abi = RING_ABI_X86_32;
	else
		return -EINVAL;
	return 0;
}

const char *
ring_abi_name(enum ring_abi abi)
{
	switch (abi) {
	case RING_ABI_X86_64:
		return "x86_64-abi";
	case RING_ABI_X86_32:
		return "x86_32-abi";
	default:
		return "native";
	}
}

static volatile void *
ring_slot(const struct ring *r, uint32_t index)
{
	size_t size = r->abi == RING_ABI_X86_32 ? sizeof(union slot32) :
	    sizeof(union slot);

	return (volatile uint8_t *)r->shared + sizeof(struct ring_header) +
	    (index & (r->entries - 1)) * size;
}

int
ring_resume(struct ring *r, void *shared, unsigned order, enum ring_abi abi,
    uint32_t req_cons, uint32_t rsp_prod)
{
	if (order > RING_MAX_ORDER)
		return -EINVAL;
	if (req_cons - rsp_prod > ring_slots(order))
		return -EPROTO;
	r->shared = shared;
	r->abi = abi;
	r->entries = ring_slots(order);
	r->req_cons = req_cons;
	r->rsp_prod = rsp_prod;
	r->published = rsp_prod;
	r->broken = false;
	return 0;
}

int
ring_attach(struct ring *r, void *shared, unsigned order, enum ring_abi abi)
{
	volatile struct ring_header *h = shared;
	uint32_t rsp_prod = h->rsp_prod;
	int rc;

	rc = ring_resume(r, shared, order, abi, rsp_prod, rsp_prod);
	if (rc < 0)
		return rc;
	return ring_pending(r) < 0 ? -EPROTO : 0;
}

int
ring_pending(struct ring *r)
{
	uint32_t room = r->entries - (r->req_cons - r->rsp_prod);
	uint32_t prod;

	if (r->broken)
		return -EPROTO;

	/* Acquire: slots are read only after the index that covers them. */
	prod = __atomic_load_n(&r->shared->req_prod, __ATOMIC_ACQUIRE);

	/*
	 * Unsigned: a producer that ran away and one that stepped back behind
	 * req_cons both come out larger than the room.
	 */
	if (prod - r->req_cons > room) {
		r->broken = true;
		return -EPROTO;
	}
	return prod - r->req_cons;
}

/* Guest memory by the word, whatever struct lies there. */
typedef uint32_t __attribute__((may_alias)) word;

/*
 * Read 'bytes' (a multiple of 4) of guest memory, each word exactly once: the
 * compiler may neither repeat nor split a volatile load (XSA-155).
 */
static void
copy_once(void *to, const volatile void *from, size_t bytes)
{
	const volatile word *src = from;
	word *dst = to;
	size_t i;

	for (i = 0; i < bytes / sizeof(*dst); i++)
		dst[i] = src[i];
}

static void
request_from_32(union slot *to, const union slot32 *from)
{
	memset(to, 0, sizeof(*to));
	to->rw.operation = from->rw.operation;
	switch (from->rw.operation) {
	case BLKIF_OP_DISCARD:
		to->discard.flag = from->discard.flag;
		to->discard.handle = from->discard.handle;
		to->discard.id = from->discard.id;
		to->discard.sector_number = from->discard.sector_number;
		to->discard.nr_sectors = from->discard.nr_sectors;
		break;
	case BLKIF_OP_INDIRECT:
		to->indirect.indirect_op = from->indirect.indirect_op;
		to->indirect.nr_segments = from->indirect.nr_segments;
		to->indirect.id = from->indirect.id;
		to->indirect.sector_number = from->indirect.sector_number;
		to->indirect.handle = from->indirect.handle;
		memcpy(to->indirect.indirect_grefs, from->indirect.gref,
		    sizeof(from->indirect.gref));
		break;
	default:
		to->rw.nr_segments = from->rw.nr_segments;
		to->rw.handle = from->rw.handle;
		to->rw.id = from->rw.id;
		to->rw.sector_number = from->rw.sector_number;
		memcpy(to->rw.seg, from->rw.seg, sizeof(from->rw.seg));
		break;
	}
}

void
ring_take(struct ring *r, blkif_request_t *req)
{
	const volatile void *slot = ring_slot(r, r->req_cons);
	union slot native;
	union slot32 copy;

	_Static_assert(sizeof(*req) == sizeof(native), "room for any form");
	if (r->abi == RING_ABI_X86_32) {
		copy_once(&copy, slot, sizeof(copy));
		request_from_32(&native, &copy);
		memcpy(req, &native, sizeof(native));
	} else {
		copy_once(req, slot, sizeof(*req));
	}
	r->req_cons++;
}

void
ring_put(struct ring *r, uint64_t id, uint8_t op, int16_t status)
{
	struct response rsp = { .id = id, .operation = op, .status = status };
	volatile word *to = ring_slot(r, r->rsp_prod);
	uint32_t words[sizeof(rsp) / sizeof(uint32_t)];
	size_t n = r->abi == RING_ABI_X86_32 ? 3 : 4;
	size_t i;

	memcpy(words, &rsp, sizeof(rsp));
	for (i = 0; i < n; i++)
		to[i] = words[i];
	r->rsp_prod++;
}

void
ring_republish(struct ring *r)
{
	/* Release: the frontend sees the responses before their index. */
	__atomic_store_n(&r->shared->rsp_prod, r->rsp_prod, __ATOMIC_RELEASE);
	r->published = r->rsp_prod;
}

bool
ring_publish(struct ring *r)
{
	uint32_t old = r->published, event;

	if (old == r->rsp_prod)
		return false;
	ring_republish(r);

	/*
	 * Full: rsp_event is read after rsp_prod is visible, as the frontend
	 * writes rsp_event and then looks at rsp_prod once more.
	 */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	event = __atomic_load_n(&r->shared->rsp_event, __ATOMIC_RELAXED);
	return r->rsp_prod - event < r->rsp_prod - old;
}

void
ring_disarm(struct ring *r)
{
	/* An index that was passed: the next one passed is another. */
	__atomic_store_n(&r->shared->req_event, r->req_cons,
	    __ATOMIC_RELAXED);
}

bool
ring_arm(struct ring *r)
{
	__atomic_store_n(&r->shared->req_event, r->req_cons + 1,
	    __ATOMIC_RELAXED);
	/*
	 * Full: req_prod is looked at after req_event is visible, as the
	 * frontend stores req_prod and then looks at req_event.
	 */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return ring_pending(r) != 0;
}
