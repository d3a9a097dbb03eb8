/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A slot of each ABI, through the ring and the checks.  Input: one byte of
 * flags (ABI, read-only, 4 KiB blocks, discards, indirect requests), then the
 * slot, 112 bytes, then the page of descriptors that an indirect one has.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "blkback/request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SLOT 112u

static _Alignas(4096) uint8_t shared[4096], page[4096];
static struct segment segments[MAX_INDIRECT_SEGMENTS];

/* What the rest of the program relies on. */
static void
check(const struct request_parsed *req, const struct request_limits *disk)
{
	bool data = strpbrk(req->plan, "rw") != NULL;
	uint64_t sum = 0;
	unsigned i;

	if (req->nr_segments > (req->segment == segments ?
	    disk->max_segments : MAX_SEGMENTS) ||
	    data != (req->nr_segments > 0) ||
	    (disk->readonly && strpbrk(req->plan, "wd") != NULL) ||
	    ((req->op == PAGE_READ || req->op == PAGE_WRITE) && !data))
		abort();
	for (i = 0; i < req->nr_segments; i++) {
		sum += req->segment[i].length;
		if (req->segment[i].length == 0 ||
		    req->segment[i].offset + req->segment[i].length > 4096)
			abort();
	}
	if ((req->op != PAGE_DISCARD && sum != req->length) ||
	    (strcmp(req->plan, "d") == 0) != (req->op == PAGE_DISCARD &&
	    req->length > 0))
		abort();
	if (req->length > 0 && (req->length > disk->size ||
	    req->offset > disk->size - req->length ||
	    req->offset % disk->block_size != 0 ||
	    req->length % disk->block_size != 0))
		abort();
	if (strcmp(req->plan, "d") == 0 && (disk->discard_granularity == 0 ||
	    req->offset < disk->discard_alignment ||
	    (req->offset - disk->discard_alignment) %
	    disk->discard_granularity != 0 ||
	    req->length % disk->discard_granularity != 0))
		abort();
}

/* The second half of an indirect request, for which there is room. */
static int16_t
fetch(struct request_parsed *req, const struct request_limits *disk,
    const char **why)
{
	if (req->nr_segments == 0 || req->nr_segments > disk->max_segments ||
	    (req->op == PAGE_WRITE && disk->readonly))
		abort();
	return request_parse_indirect(req,
	    (const struct blkif_request_segment *)page, segments, disk, why);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct request_limits disk = { .size = 1 << 20, .block_size = 512,
	    .max_segments = MAX_SEGMENTS };
	struct request_parsed req;
	blkif_request_t wire;
	const char *why;
	struct ring r;
	int16_t status;

	if (size < 1)
		return 0;
	disk.readonly = data[0] & 4;
	if (data[0] & 8)
		disk.block_size = 4096;
	if (data[0] & 16) {
		disk.discard_granularity = 65536;
		disk.discard_alignment = data[0] & 32 ? 4096 : 0;
	}
	if (data[0] & 64)
		disk.max_segments = data[0] & 128 ? 32 : MAX_INDIRECT_SEGMENTS;
	memset(shared, 0, sizeof(shared));
	memset(page, 0, sizeof(page));
	memcpy(shared + 64, data + 1, size - 1 < SLOT ? size - 1 : SLOT);
	if (size > 1 + SLOT)
		memcpy(page, data + 1 + SLOT, size - 1 - SLOT < sizeof(page) ?
		    size - 1 - SLOT : sizeof(page));
	shared[0] = 1;		/* req_prod */
	if (ring_attach(&r, shared, 0, data[0] % 3) != 0)
		abort();
	ring_take(&r, &wire);
	status = request_parse(&req, &wire, &disk, &why);
	if (status == BLKIF_RSP_OKAY && req.segment == NULL)
		status = fetch(&req, &disk, &why);
	if (wire.operation != BLKIF_OP_INDIRECT &&
	    request_operation(&wire) != wire.operation)
		abort();
	if ((status == BLKIF_RSP_OKAY) != (why == NULL))
		abort();
	if (status == BLKIF_RSP_OKAY)
		check(&req, &disk);
	return 0;
}
