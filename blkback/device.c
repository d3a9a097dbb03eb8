/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * device: the table behind device.h.
 *
 * Rows: our state.  Columns: the frontend's.  "Gone" is Unknown.
 *
 *              Gone     Init'ing InitWait Init'ed  Connect. Closing  Closed
 * Initialising wait     OFFER    OFFER    OFFER    OFFER    OFFER    OFFER
 * InitWait     CLOSED   wait     wait     connect  connect  CLOSING  wait
 * Connected    closed   closed   wait     serve    serve    CLOSING  closed
 * Closing      closed   closed   wait     wait     wait     wait     closed
 * Closed       wait     OFFER    wait     OFFER    OFFER    wait     wait
 *
 *   connect  CONNECT once the image is open and the hotplug script has run,
 *            then PUBLISH
 *   serve    wait; after a change of the ring's nodes DISCONNECT and CONNECT;
 *            CLOSING when the ring is broken or the disk process has died
 *   closed   DISCONNECT while the ring is mapped, then CLOSED
 *
 * Not online: Initialising is CLOSED, so is InitWait unless the frontend is
 * active (2 to 5); Closed is REMOVE.  What failed goes from InitWait to
 * CLOSING, is CLOSED when the frontend is not active, and is offered again when
 * the frontend is Initialising once more; never after the script was refused.
 *
 * With a toolstack that runs its script first (xenopsd), OFFER waits for it;
 * refused, Initialising is CLOSED at once.
 *
 * Whys.  InitWait answers Closed with nothing: it is left over from an earlier
 * boot, and the frontend waits for InitWait.  Closing and Closed are two
 * answers to two states: firmware (OVMF) waits for each by its number.  In
 * Closing the ring stays mapped: a guest that has the disk in use may go on
 * using it.  Connected with a frontend that is Initialising is a guest that has
 * booted a new kernel (kexec) without a word.
 */
#include "blkback/device.h"

#define S(name) XenbusState##name

static bool
mapped(const struct device_levels *l)
{
	return l->link == LINK_CONNECTING || l->link == LINK_READY ||
	    l->link == LINK_UP || l->link == LINK_BROKEN;
}

/* The frontend has written its ring's nodes; some never show Initialised. */
static bool
ready(enum xenbus_state s)
{
	return s == S(Initialised) || s == S(Connected);
}

static bool
active(enum xenbus_state s)
{
	return s >= S(InitWait) && s <= S(Closing);
}

/* xl waits for the offer before it says a word; xenopsd does the opposite. */
static bool
may_offer(const struct device_levels *l)
{
	return !l->go_first || l->go == GO_GIVEN;
}

static enum device_action
from_initialising(const struct device_levels *l)
{
	/* Somebody has made the directory anew under us. */
	if (mapped(l))
		return DEV_DISCONNECT;
	if (!l->online)
		return DEV_CLOSED;
	if (l->go_first && l->go == GO_REFUSED)
		return DEV_CLOSED;
	/* Nobody to make an offer to; the node may be written after ours. */
	return l->theirs == S(Unknown) || !may_offer(l) ? DEV_WAIT : DEV_OFFER;
}

static enum device_action
from_initwait(const struct device_levels *l)
{
	if (mapped(l) && !ready(l->theirs))
		return DEV_DISCONNECT;
	if (l->link == LINK_FAILED || l->link == LINK_BROKEN ||
	    l->go == GO_REFUSED ||
	    (l->image == IMAGE_FAILED && l->go == GO_GIVEN))
		return DEV_CLOSING;
	if (l->link == LINK_READY || l->link == LINK_UP)
		return DEV_PUBLISH;
	if (l->link == LINK_CONNECTING)
		return DEV_WAIT;

	if (l->theirs == S(Closing))
		return DEV_CLOSING;
	if (l->theirs == S(Unknown) || (!l->online && !active(l->theirs)))
		return DEV_CLOSED;
	if (ready(l->theirs) && l->image == IMAGE_OPEN && l->go == GO_GIVEN)
		return DEV_CONNECT;
	return DEV_WAIT;
}

static enum device_action
from_connected(const struct device_levels *l)
{
	if (l->theirs == S(Closing))
		return DEV_CLOSING;
	if (!active(l->theirs))
		return mapped(l) ? DEV_DISCONNECT : DEV_CLOSED;
	/*
	 * A frontend is never in InitWait; if this one is, it will move on.
	 * An image that is not even being opened has lost its process.
	 */
	if (l->link == LINK_FAILED || l->link == LINK_BROKEN ||
	    l->image == IMAGE_FAILED || l->image == IMAGE_NONE)
		return DEV_CLOSING;
	if (!ready(l->theirs))
		return DEV_WAIT;
	switch (l->link) {
	case LINK_DOWN:
		return l->image == IMAGE_OPEN ? DEV_CONNECT : DEV_WAIT;
	case LINK_READY:
		return DEV_PUBLISH;
	case LINK_UP:
		return l->changed ? DEV_DISCONNECT : DEV_WAIT;
	default:
		return DEV_WAIT;
	}
}

static enum device_action
from_closed(const struct device_levels *l)
{
	if (mapped(l))
		return DEV_DISCONNECT;
	if (!l->online)
		return DEV_REMOVE;
	if (l->go == GO_REFUSED || !may_offer(l))
		return DEV_WAIT;	/* the toolstack will remove it */
	if (l->theirs == S(Initialising))
		return l->spent ? DEV_WAIT : DEV_OFFER;
	return ready(l->theirs) ? DEV_OFFER : DEV_WAIT;
}

enum device_action
device_next(const struct device_levels *l)
{
	if (!l->exists)
		return DEV_FORGET;
	if (l->link == LINK_DRAINING || l->link == LINK_UNKNOWN)
		return DEV_WAIT;

	switch (l->ours) {
	case S(Initialising):
		return from_initialising(l);
	case S(InitWait):
		return from_initwait(l);
	case S(Connected):
		return from_connected(l);
	case S(Closing):
		if (active(l->theirs))
			return DEV_WAIT;
		return mapped(l) ? DEV_DISCONNECT : DEV_CLOSED;
	case S(Closed):
		return from_closed(l);
	default:
		/* We never write these. */
		return mapped(l) ? DEV_DISCONNECT : DEV_CLOSED;
	}
}

const char *
device_state_name(unsigned state)
{
	static const char *const names[] = {
		"Unknown", "Initialising", "InitWait", "Initialised",
		"Connected", "Closing", "Closed",
	};

	return names[state < sizeof(names) / sizeof(names[0]) ? state : 0];
}
