/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A slot of each ABI, through the ring and the check.  Input: one byte of
 * flags (ABI, read-only, 4 KiB blocks, discards), then the slot.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "blkback/request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static _Alignas(4096) uint8_t shared[4096];

/* What the rest of the program relies on. */
static void
check(const struct request_parsed *req, const struct request_limits *disk)
{
	bool data = strpbrk(req->plan, "rw") != NULL;
	uint64_t sum = 0;
	unsigned i;

	if (req->nr_segments > MAX_SEGMENTS || data != (req->nr_segments > 0) ||
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

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct request_limits disk = { .size = 1 << 20, .block_size = 512 };
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
	memset(shared, 0, sizeof(shared));
	memcpy(shared + 64, data + 1, size - 1 < 112 ? size - 1 : 112);
	shared[0] = 1;		/* req_prod */
	if (ring_attach(&r, shared, 0, data[0] % 3) != 0)
		abort();
	ring_take(&r, &wire);
	status = request_parse(&req, &wire, &disk, &why);
	if ((status == BLKIF_RSP_OKAY) != (why == NULL))
		abort();
	if (status == BLKIF_RSP_OKAY)
		check(&req, &disk);
	return 0;
}
