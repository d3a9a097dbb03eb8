/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * client: one question on the control socket (see control.h), from its first
 * byte to the last byte of the answer.
 *
 * control.c reads and writes, with a bound on every size and every time;
 * answer.c knows the questions.  A question about a disk that is still changing
 * waits for it: client_vbd_changed() is where it is looked at again.
 */
#ifndef BLKBACK_CLIENT_H
#define BLKBACK_CLIENT_H

#include <jansson.h>

#include "blkback/control.h"
#include "blkback/vbd.h"

enum client_wait {
	WAIT_NOTHING,
	WAIT_ATTACH,		/* for both ends to be Connected */
	WAIT_DETACH,		/* for the disk to be gone */
	WAIT_ADD,		/* for the verdict on the image */
	WAIT_REMOVE,		/* for the disk process to be gone */
	WAIT_RESIZE,		/* for the guest to be told of the size */
	WAIT_MEDIUM,		/* for the drive to have another one */
};

struct client {
	LIST_ENTRY(client) link;
	struct supervisor *sup;
	int                fd;
	sd_event_source   *io, *timer;
	size_t             used;	/* of 'in' */
	char              *out;		/* the answer; NULL: none yet */
	size_t             out_length, out_done;
	enum client_wait   waiting;
	struct vbd        *v;		/* for what; NULL when for nothing */
	bool               patient;	/* attach: wait for the guest */
	uint32_t           timeout;	/* seconds */
	char               in[CONTROL_LINE_MAX + 1];
};

/* Listen on the control socket.  0 or -errno. */
int  control_start(struct supervisor *sup);
void control_stop(struct supervisor *sup);

/*
 * Answer, and be done with the client: it may be freed here.  The json is
 * taken over; NULL stands for "out of memory".
 */
void client_answer(struct client *c, json_t *answer);
void client_fail(struct client *c, const char *fmt, ...) LOG_PRINTF(2, 3);
void client_ok(struct client *c);

/*
 * Look at 'v' now and each time it changes, for at most c->timeout seconds.
 * Both may be freed here.
 */
void client_wait(struct client *c, struct vbd *v, enum client_wait what);

/* What vbd.c says to whoever waits. */
void client_vbd_changed(struct vbd *v);
void client_vbd_gone(struct vbd *v);

/* answer.c: a whole question; something about c->v; nothing in time. */
void answer_question(struct client *c, const json_t *question);
void answer_changed(struct client *c);
void answer_gone(struct client *c);
void answer_timeout(struct client *c);

#endif
