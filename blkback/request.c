/* SPDX-License-Identifier: GPL-2.0-or-later */
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

int16_t
request_parse(struct request_parsed *req, const blkif_request_t *wire,
    const struct request_limits *disk, const char **why)
{
	int16_t status;

	*why = NULL;
	req->offset = 0;
	req->length = 0;
	req->nr_segments = 0;

	switch (wire->operation) {
	case BLKIF_OP_READ:
		req->op = PAGE_READ;
		break;
	case BLKIF_OP_WRITE:
		req->op = PAGE_WRITE;
		break;
	case BLKIF_OP_FLUSH_DISKCACHE:
		req->op = PAGE_FLUSH;
		if (wire->nr_segments == 0)
			return BLKIF_RSP_OKAY;
		break;		/* a write that goes after the flush */
	default:
		/* EOPNOTSUPP and not ERROR: some frontends crash on it. */
		return reject(BLKIF_RSP_EOPNOTSUPP, "operation not offered",
		    why);
	}

	if (req->op != PAGE_READ && disk->readonly)
		return reject(BLKIF_RSP_ERROR, "write to a read-only disk",
		    why);
	status = parse_segments(req, wire, disk, why);
	if (status != BLKIF_RSP_OKAY)
		return status;
	return parse_range(req, wire->sector_number, disk, why);
}
