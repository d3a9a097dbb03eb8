/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * device: what to do next for one vbd.
 *
 * A xenstore watch says only that something may have changed, states in
 * between can be missed, and two changes can look like one.  So nothing here
 * looks at edges: device_next() is a pure function of how things stand now,
 * and the caller does what it says, reads everything again, and asks again
 * until the answer is DEV_WAIT.
 *
 * Wherever the outside does not change, the answers lead to DEV_WAIT after a
 * few steps; and from wherever we are, a frontend that plays by the rules gets
 * to Connected, or to Closed when the toolstack wants the disk gone.
 * tests/test_device.c tries every combination.
 */
#ifndef BLKBACK_DEVICE_H
#define BLKBACK_DEVICE_H

#include <stdbool.h>
#include <xen/io/xenbus.h>

/* The image, in its disk process. */
enum device_image {
	IMAGE_NONE,		/* no disk process, or an idle one */
	IMAGE_OPENING,
	IMAGE_OPEN,
	IMAGE_FAILED,		/* could not be opened, or its process died */
	IMAGE_STATES
};

/* The toolstack's hotplug script; by hand there is none: always GIVEN. */
enum device_go {
	GO_AWAITED,		/* xl runs it when it reads exactly InitWait, */
				/* xenopsd before it expects InitWait */
	GO_GIVEN,
	GO_REFUSED,		/* it was told that the image is unusable */
	GO_STATES
};

/* The ring, between the disk process and the guest. */
enum device_link {
	LINK_DOWN,
	LINK_CONNECTING,	/* asked the disk process to map it */
	LINK_READY,		/* mapped; the guest has not been told */
	LINK_UP,		/* mapped, and told */
	LINK_BROKEN,		/* mapped, but no longer served */
	LINK_DRAINING,		/* asked the disk process to let go of it */
	LINK_FAILED,		/* not mapped; not tried until the next offer */
	LINK_UNKNOWN,		/* a disk process that was found running, or */
				/* that succeeds one that died, has not said */
				/* yet which of the above it is */
	LINK_STATES
};

struct device_levels {
	bool              exists;	/* the backend directory has a state */
	enum xenbus_state ours;
	enum xenbus_state theirs;	/* Unknown: no node, junk, no domain */
	bool              online;	/* the toolstack wants the disk */
	enum device_image image;
	enum device_go    go;
	bool              go_first;	/* not offered before it is GIVEN */
	enum device_link  link;
	bool              changed;	/* the frontend's ring is another */
					/* than the one that is mapped */
	bool              spent;	/* its present Initialising has been */
					/* answered with a failure */
};

enum device_action {
	DEV_WAIT,		/* until something changes */
	DEV_OFFER,		/* read all nodes; publish; state InitWait */
	DEV_CONNECT,		/* read the ring's nodes and have it mapped */
	DEV_PUBLISH,		/* write the geometry; state Connected */
	DEV_CLOSING,		/* state Closing; the ring stays mapped */
	DEV_DISCONNECT,		/* finish what is in flight, unmap */
	DEV_CLOSED,		/* state Closed */
	DEV_REMOVE,		/* closed for good: end the disk process */
	DEV_FORGET,		/* the directory is gone: write nothing */
	DEV_ACTIONS
};

enum device_action device_next(const struct device_levels *l);

/* For logs and answers; "Unknown" for what is none. */
const char *device_state_name(unsigned state);

#endif
