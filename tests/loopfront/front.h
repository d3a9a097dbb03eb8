/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * front: the blkif shared ring, seen from the guest.
 *
 * Bytes and indices only: what is behind a grant reference, who owns an id and
 * how an event travels is the business of fqueue.c.  The layouts are those of
 * xen public/io/blkif.h, the indices and the two event words those of
 * public/io/ring.h:
 *
 *   rsp_cons        rsp_prod         published        filled
 *      |-- to be taken -|-- in flight --|-- to be told --|
 *
 * The backend is not trusted: a producer that runs past what is in flight
 * makes front_take() answer -EPROTO, as it makes Linux give the disk up.
 */
#ifndef LOOPFRONT_FRONT_H
#define LOOPFRONT_FRONT_H

#include <stdbool.h>
#include <stdint.h>

#define FRONT_MAX_ORDER		4u
#define FRONT_MAX_SLOTS		(32u << FRONT_MAX_ORDER)
#define FRONT_MAX_SEGMENTS	11u	/* in a slot */
#define FRONT_MAX_INDIRECT	256u	/* in a page of descriptors */
#define FRONT_SECTOR		512u	/* the unit of everything on the wire */

enum front_abi { FRONT_NATIVE, FRONT_X86_64, FRONT_X86_32 };

struct front_segment {
	uint32_t gref;
	uint8_t	 first;			/* sectors of the page, inclusive */
	uint8_t	 last;
};

struct front_request {
	uint8_t	 op;			/* BLKIF_OP_* */
	uint8_t	 nr_segments;
	uint16_t handle;
	uint64_t id;
	uint64_t sector;
	uint64_t nr_sectors;		/* of a discard: no segments */
	struct front_segment seg[FRONT_MAX_SEGMENTS];

	/* Of BLKIF_OP_INDIRECT, instead of nr_segments and seg. */
	uint8_t	 inner;			/* the operation it stands for */
	uint16_t nr_indirect;		/* segments */
	uint32_t descriptors;		/* grant of the page with them */
};

struct front_response {
	uint64_t id;
	uint8_t	 op;
	int16_t	 status;
	bool	 padded;		/* a byte of the padding is not zero */
};

struct front {
	char	*shared;		/* 1 << order pages, ours */
	enum front_abi abi;
	uint32_t entries;
	uint32_t filled;		/* next slot to fill */
	uint32_t published;		/* req_prod as the backend sees it */
	uint32_t rsp_cons;		/* next response to take */
};

/* "native", "x86_64", "x86_32": 0 or -EINVAL. */
int	front_abi_parse(const char *, enum front_abi *);
/* What goes into the node "protocol"; NULL: no node. */
const char *front_abi_protocol(enum front_abi);
const char *front_abi_name(enum front_abi);

/* Start a new ring on zeroed or dirty pages: all of them are cleared. */
void	front_init(struct front *, void *shared, unsigned order,
	    enum front_abi);

/* Slots that can be filled now. */
uint32_t front_room(const struct front *);

/* Requests filled, not yet published / published, not yet answered. */
static inline uint32_t
front_unpublished(const struct front *f)
{
	return f->filled - f->published;
}

static inline uint32_t
front_inflight(const struct front *f)
{
	return f->published - f->rsp_cons;
}

/* Fill the next slot.  Only when there is room. */
void	front_put(struct front *, const struct front_request *);

/* Write the nth of a request's segments into its page of descriptors. */
void	front_describe_segment(void *page, unsigned n,
	    const struct front_segment *);

/* Publish what was filled.  True: the backend asked for an event. */
bool	front_push(struct front *);

/* Is there a response? One load of the shared producer, no check. */
bool	front_answered(const struct front *);

/*
 * Take the next response: 1, 0 when there is none, -EPROTO when the backend
 * claims more responses than there are requests in flight.
 */
int	front_take(struct front *, struct front_response *);

/*
 * Ask for an event at the next response, then look again.  True: one came in
 * between, take it instead of sleeping.
 */
bool	front_arm(struct front *);

/* The four words of the ring as they are now, for a person. */
void	front_describe(const struct front *, char *text, unsigned size);

#endif /* LOOPFRONT_FRONT_H */
