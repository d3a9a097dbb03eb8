/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * frontend: what a guest wrote about its rings.
 *
 * Every value comes from the guest.  Nothing of it is believed but what a
 * connection needs: ring references, a port and the name of an ABI, each within
 * its bounds.  Whether they are any good shows when they are mapped.
 */
#ifndef BLKBACK_FRONTEND_H
#define BLKBACK_FRONTEND_H

#include <stdbool.h>
#include <stddef.h>

#include "blkback/message.h"

/*
 * How to read a node of the frontend's directory: 0, -ENOENT, -E2BIG when it
 * does not fit, other -errno.
 */
struct frontend_reader {
	int (*read)(const struct frontend_reader *r, const char *node,
	        char *buf, size_t size);
};

/* What was offered to it. */
struct frontend_offer {
	unsigned max_order;	/* of a ring */
	unsigned max_queues;
	bool     persistent;
};

/*
 * Fill 'c' from the nodes.  0, or -errno with 'why' naming the node, its value
 * and what is allowed.
 */
int frontend_read(const struct frontend_reader *r,
        const struct frontend_offer *offer, struct message_connect *c,
        char why[WHY_MAX]);

/* Do both name the same rings? */
bool frontend_same(const struct message_connect *a,
         const struct message_connect *b);

#endif
