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
parse_segments(struct request_parsed *req, const blkif_request_t *wire,
    const struct request_limits *disk, const char **why)
{
	unsigned i, first, last;

	if (wire->nr_segments == 0 || wire->nr_segments > MAX_SEGMENTS)
		return reject(BLKIF_RSP_ERROR, "bad number of segments", why);

	req->nr_segments = wire->nr_segments;
	for (i = 0; i < req->nr_segments; i++) {
		first = wire->seg[i].first_sect;
		last = wire->seg[i].last_sect;
		if (first > last || last >= GUEST_PAGE / WIRE_SECTOR)
			return reject(BLKIF_RSP_ERROR,
			    "segment outside its page", why);

		req->segment[i].gref = wire->seg[i].gref;
		req->segment[i].offset = first * WIRE_SECTOR;
		req->segment[i].length = (last - first + 1) * WIRE_SECTOR;
		req->length += req->segment[i].length;
		if (req->segment[i].length % disk->block_size != 0)
			return reject(BLKIF_RSP_ERROR,
			    "segment not a multiple of the sector size", why);
	}
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
	req->plan = plans[req->op].with_data;
	status = parse_segments(req, wire, disk, why);
	if (status != BLKIF_RSP_OKAY)
		return status;
	return parse_range(req, wire->sector_number, disk, why);
}

int16_t
request_parse(struct request_parsed *req, const blkif_request_t *wire,
    const struct request_limits *disk, const char **why)
{
	blkif_request_discard_t discard;

	*why = NULL;
	req->op = PAGE_READ;
	req->plan = "";
	req->offset = 0;
	req->length = 0;
	req->nr_segments = 0;

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
	default:
		/* EOPNOTSUPP and not ERROR: some frontends crash on it. */
		return reject(BLKIF_RSP_EOPNOTSUPP, "operation not offered",
		    why);
	}
}
