/* SPDX-License-Identifier: GPL-2.0-or-later */
/* request: the checks, and nothing else (see request.h). */
#include <string.h>

#include "blkback/request.h"

static int16_t
reject(int16_t status, const char *reason, const char **why)
{
	*why = reason;
	return status;
}

static int16_t
parse_segments(struct request_parsed *req,
    const struct blkif_request_segment *wire, struct segment *segment,
    const struct request_limits *disk, const char **why)
{
	unsigned i, first, last;

	for (i = 0; i < req->nr_segments; i++) {
		first = wire[i].first_sect;
		last = wire[i].last_sect;
		if (first > last || last >= GUEST_PAGE / WIRE_SECTOR)
			return reject(BLKIF_RSP_ERROR,
			    "segment outside its page", why);

		segment[i].gref = wire[i].gref;
		segment[i].offset = first * WIRE_SECTOR;
		segment[i].length = (last - first + 1) * WIRE_SECTOR;
		req->length += segment[i].length;
		if (segment[i].length % disk->block_size != 0)
			return reject(BLKIF_RSP_ERROR,
			    "segment not a multiple of the sector size", why);
	}
	req->segment = segment;
	return BLKIF_RSP_OKAY;
}

/* Nothing here adds what the guest sent: a sum could wrap. */
static int16_t
parse_range(struct request_parsed *req, uint64_t sector,
    const struct request_limits *disk, const char **why)
{
	if (sector > disk->size / WIRE_SECTOR)
		return reject(BLKIF_RSP_ERROR,
		    "starts past the end of the disk", why);
	req->offset = sector * WIRE_SECTOR;
	if (req->length > disk->size - req->offset)
		return reject(BLKIF_RSP_ERROR,
		    "runs past the end of the disk", why);
	if (req->offset % disk->block_size != 0)
		return reject(BLKIF_RSP_ERROR,
		    "offset not a multiple of the sector size", why);
	return BLKIF_RSP_OKAY;
}

/* Whole granules only, and none that the guest has not named entirely. */
static int16_t
parse_discard(struct request_parsed *req, const blkif_request_discard_t *wire,
    const struct request_limits *disk, const char **why)
{
	uint64_t granule = disk->discard_granularity, first, last;
	uint64_t lead = disk->discard_alignment;
	int16_t status;

	if (granule == 0)
		return reject(BLKIF_RSP_EOPNOTSUPP, "operation not offered",
		    why);
	if (disk->readonly)		/* CVE-2013-2140 */
		return reject(BLKIF_RSP_ERROR, "discard on a read-only disk",
		    why);
	if (wire->nr_sectors > disk->size / WIRE_SECTOR)
		return reject(BLKIF_RSP_ERROR, "discard larger than the disk",
		    why);
	req->length = wire->nr_sectors * WIRE_SECTOR;
	status = parse_range(req, wire->sector_number, disk, why);
	if (status != BLKIF_RSP_OKAY)
		return status;

	first = req->offset <= lead ? lead :
	    lead + (req->offset - lead + granule - 1) / granule * granule;
	last = req->offset + req->length < lead ? 0 :
	    lead + (req->offset + req->length - lead) / granule * granule;
	req->plan = first < last ? "d" : "";
	req->offset = first;
	req->length = first < last ? last - first : 0;
	return BLKIF_RSP_OKAY;
}

/* Read, write, and the two that order writes and may carry one. */
static int16_t
parse_data(struct request_parsed *req, const blkif_request_t *wire,
    const struct request_limits *disk, const char **why)
{
	static const struct { const char *bare, *with_data; } plans[] = {
		[PAGE_READ] = { NULL, "r" },
		[PAGE_WRITE] = { NULL, "w" },
		[PAGE_FLUSH] = { "f", "fw" },
		[PAGE_BARRIER] = { "f", "fwf" },
	};
	int16_t status;

	if (wire->nr_segments == 0 && plans[req->op].bare != NULL) {
		req->plan = plans[req->op].bare;
		return BLKIF_RSP_OKAY;
	}
	if (req->op != PAGE_READ && disk->readonly)
		return reject(BLKIF_RSP_ERROR, "write to a read-only disk",
		    why);
	if (wire->nr_segments == 0 || wire->nr_segments > MAX_SEGMENTS)
		return reject(BLKIF_RSP_ERROR, "bad number of segments", why);
	req->plan = plans[req->op].with_data;
	req->nr_segments = wire->nr_segments;
	status = parse_segments(req, wire->seg, req->own, disk, why);
	if (status != BLKIF_RSP_OKAY)
		return status;
	return parse_range(req, wire->sector_number, disk, why);
}

/* As far as its ring slot goes; the segments are somewhere else. */
static int16_t
parse_indirect(struct request_parsed *req,
    const blkif_request_indirect_t *wire, const struct request_limits *disk,
    const char **why)
{
	if (disk->max_segments <= MAX_SEGMENTS)
		return reject(BLKIF_RSP_EOPNOTSUPP, "operation not offered",
		    why);
	if (wire->indirect_op != BLKIF_OP_READ &&
	    wire->indirect_op != BLKIF_OP_WRITE)
		return reject(BLKIF_RSP_ERROR,
		    "indirect, but neither a read nor a write", why);
	if (wire->indirect_op == BLKIF_OP_WRITE) {
		req->op = PAGE_WRITE;
		if (disk->readonly)
			return reject(BLKIF_RSP_ERROR,
			    "write to a read-only disk", why);
	}
	if (wire->nr_segments == 0 || wire->nr_segments > disk->max_segments)
		return reject(BLKIF_RSP_ERROR, "bad number of segments", why);
	req->plan = req->op == PAGE_WRITE ? "w" : "r";
	req->nr_segments = wire->nr_segments;
	req->segment = NULL;
	req->descriptors = wire->indirect_grefs[0];
	return parse_range(req, wire->sector_number, disk, why);
}

int16_t
request_parse_indirect(struct request_parsed *req,
    const struct blkif_request_segment *wire, struct segment *segment,
    const struct request_limits *disk, const char **why)
{
	int16_t status;

	*why = NULL;
	status = parse_segments(req, wire, segment, disk, why);
	if (status != BLKIF_RSP_OKAY)
		return status;
	return parse_range(req, req->offset / WIRE_SECTOR, disk, why);
}

uint8_t
request_operation(const blkif_request_t *wire)
{
	blkif_request_indirect_t indirect;

	if (wire->operation != BLKIF_OP_INDIRECT)
		return wire->operation;
	memcpy(&indirect, wire, sizeof(indirect));
	return indirect.indirect_op;
}

unsigned
request_segments(const blkif_request_t *wire)
{
	blkif_request_indirect_t indirect;

	if (wire->operation != BLKIF_OP_INDIRECT)
		return wire->nr_segments;
	memcpy(&indirect, wire, sizeof(indirect));
	return indirect.nr_segments;
}

int16_t
request_parse(struct request_parsed *req, const blkif_request_t *wire,
    const struct request_limits *disk, const char **why)
{
	blkif_request_indirect_t indirect;
	blkif_request_discard_t discard;

	*why = NULL;
	req->op = PAGE_READ;
	req->plan = "";
	req->offset = 0;
	req->length = 0;
	req->nr_segments = 0;
	req->segment = req->own;

	switch (wire->operation) {
	case BLKIF_OP_READ:
		return parse_data(req, wire, disk, why);
	case BLKIF_OP_WRITE:
		req->op = PAGE_WRITE;
		return parse_data(req, wire, disk, why);
	case BLKIF_OP_FLUSH_DISKCACHE:
		req->op = PAGE_FLUSH;
		return parse_data(req, wire, disk, why);
	case BLKIF_OP_WRITE_BARRIER:
		req->op = PAGE_BARRIER;
		return parse_data(req, wire, disk, why);
	case BLKIF_OP_DISCARD:
		req->op = PAGE_DISCARD;
		memcpy(&discard, wire, sizeof(discard));
		return parse_discard(req, &discard, disk, why);
	case BLKIF_OP_INDIRECT:
		memcpy(&indirect, wire, sizeof(indirect));
		return parse_indirect(req, &indirect, disk, why);
	default:
		/* EOPNOTSUPP and not ERROR: some frontends crash on it. */
		return reject(BLKIF_RSP_EOPNOTSUPP, "operation not offered",
		    why);
	}
}
