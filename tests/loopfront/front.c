/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See front.h.  Only this file touches the shared pages of a ring. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <xen/io/blkif.h>

#include "tests/loopfront/front.h"

#define PAGE	4096u

/* Where the header's words are, and where the slots begin. */
enum { REQ_PROD = 0, REQ_EVENT = 4, RSP_PROD = 8, RSP_EVENT = 12, SLOTS = 64 };

/*
 * One row per layout: size of a slot, then where a request has its fields, and
 * how long a response is.  Where others have their first segment a discard has
 * its length; an indirect request has its handle there and, four bytes on, the
 * grants of its descriptors.  The same everywhere are a request's first four
 * bytes and the fields of a response: id at 0, operation at 8, status at 10.
 */
static const struct layout {
	unsigned slot, id, sector, seg, response;
} layouts[] = {
	[FRONT_NATIVE] = { 112, 8, 16, 24, 16 },
	[FRONT_X86_64] = { 112, 8, 16, 24, 16 },
	[FRONT_X86_32] = { 108, 4, 12, 20, 12 },
};

static const struct {
	const char *name, *protocol;
} abis[] = {
	[FRONT_NATIVE] = { "native", NULL },
	[FRONT_X86_64] = { "x86_64", "x86_64-abi" },
	[FRONT_X86_32] = { "x86_32", "x86_32-abi" },
};

int
front_abi_parse(const char *name, enum front_abi *abi)
{
	unsigned	i;

	for (i = 0; i < sizeof(abis) / sizeof(abis[0]); i++) {
		if (strcmp(name, abis[i].name) == 0) {
			*abi = (enum front_abi)i;
			return 0;
		}
	}
	return -EINVAL;
}

const char *
front_abi_protocol(enum front_abi abi)
{
	return abis[abi].protocol;
}

const char *
front_abi_name(enum front_abi abi)
{
	return abis[abi].name;
}

static uint32_t *
word(const struct front *f, unsigned offset)
{
	return (uint32_t *)(f->shared + offset);
}

static char *
slot(const struct front *f, uint32_t index)
{
	return f->shared + SLOTS +
	    (size_t)(index & (f->entries - 1)) * layouts[f->abi].slot;
}

void
front_init(struct front *f, void *shared, unsigned order, enum front_abi abi)
{
	memset(f, 0, sizeof(*f));
	f->shared = shared;
	f->abi = abi;
	f->entries = 32u << order;
	memset(shared, 0, (size_t)PAGE << order);
	*word(f, REQ_EVENT) = 1;
	*word(f, RSP_EVENT) = 1;
}

uint32_t
front_room(const struct front *f)
{
	return f->entries - (f->filled - f->rsp_cons);
}

void
front_describe_segment(void *page, unsigned n, const struct front_segment *seg)
{
	char	*s = (char *)page + n * 8;

	memcpy(s, &seg->gref, sizeof(seg->gref));
	s[4] = (char)seg->first;
	s[5] = (char)seg->last;
}

/* What an indirect request has elsewhere than the others. */
static void
put_indirect(char *p, const struct layout *l, const struct front_request *req)
{
	p[1] = (char)req->inner;
	memcpy(p + 2, &req->nr_indirect, sizeof(req->nr_indirect));
	memcpy(p + l->seg, &req->handle, sizeof(req->handle));
	memcpy(p + l->seg + 4, &req->descriptors, sizeof(req->descriptors));
}

void
front_put(struct front *f, const struct front_request *req)
{
	const struct layout	*l = &layouts[f->abi];
	char			*p = slot(f, f->filled);
	unsigned		 i;

	p[0] = (char)req->op;
	p[1] = (char)req->nr_segments;
	memcpy(p + 2, &req->handle, sizeof(req->handle));
	memcpy(p + l->id, &req->id, sizeof(req->id));
	memcpy(p + l->sector, &req->sector, sizeof(req->sector));
	if (req->op == BLKIF_OP_DISCARD)
		memcpy(p + l->seg, &req->nr_sectors, sizeof(req->nr_sectors));
	if (req->op == BLKIF_OP_INDIRECT) {
		put_indirect(p, l, req);
	} else {
		for (i = 0; i < req->nr_segments && i < FRONT_MAX_SEGMENTS; i++)
			front_describe_segment(p + l->seg, i, &req->seg[i]);
	}
	f->filled++;
}

bool
front_push(struct front *f)
{
	uint32_t	old = f->published, event;

	if (f->filled == old)
		return false;
	/* Release: the slots are there before the index that covers them. */
	__atomic_store_n(word(f, REQ_PROD), f->filled, __ATOMIC_RELEASE);
	f->published = f->filled;
	/*
	 * Full: the index is visible before req_event is read.  The backend
	 * writes req_event, then reads the index: one of us sees the other.
	 */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	event = __atomic_load_n(word(f, REQ_EVENT), __ATOMIC_RELAXED);
	return f->filled - event < f->filled - old;
}

bool
front_answered(const struct front *f)
{
	return __atomic_load_n(word(f, RSP_PROD), __ATOMIC_RELAXED) !=
	    f->rsp_cons;
}

int
front_take(struct front *f, struct front_response *rsp)
{
	uint32_t	 prod, i;
	const char	*p;

	/* Acquire: the responses are read after the index that covers them. */
	prod = __atomic_load_n(word(f, RSP_PROD), __ATOMIC_ACQUIRE);
	if (prod == f->rsp_cons)
		return 0;
	if (prod - f->rsp_cons > f->published - f->rsp_cons)
		return -EPROTO;

	p = slot(f, f->rsp_cons);
	memcpy(&rsp->id, p, sizeof(rsp->id));
	rsp->op = (uint8_t)p[8];
	memcpy(&rsp->status, p + 10, sizeof(rsp->status));
	rsp->padded = p[9] != 0;
	for (i = 12; i < layouts[f->abi].response; i++)
		rsp->padded |= p[i] != 0;
	f->rsp_cons++;
	return 1;
}

bool
front_arm(struct front *f)
{
	__atomic_store_n(word(f, RSP_EVENT), f->rsp_cons + 1, __ATOMIC_RELAXED);
	/* Full: the wish is visible before the producer is read once more. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return front_answered(f);
}

void
front_describe(const struct front *f, char *text, unsigned size)
{
	snprintf(text, size,
	    "req_prod %u req_event %u rsp_prod %u rsp_event %u, "
	    "%u in flight, %u not published",
	    __atomic_load_n(word(f, REQ_PROD), __ATOMIC_RELAXED),
	    __atomic_load_n(word(f, REQ_EVENT), __ATOMIC_RELAXED),
	    __atomic_load_n(word(f, RSP_PROD), __ATOMIC_RELAXED),
	    __atomic_load_n(word(f, RSP_EVENT), __ATOMIC_RELAXED),
	    front_inflight(f), front_unpublished(f));
}
