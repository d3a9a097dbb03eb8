/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * message: what the supervisor and a disk process say to each other.
 *
 * A disk process listens on a SOCK_SEQPACKET socket <run dir>/<domid>-<devid>
 * .sock that the supervisor made and handed to it as descriptor 3.  Whoever
 * connects first hears HELLO.  One connection at a time; end-of-file is the
 * only death notice on both sides: a disk process whose supervisor is gone
 * goes on serving and accepts the next one.
 *
 *   supervisor            disk process
 *      <------- HELLO        the phase it is in, and its geometry if open
 *   OPEN ------------>       open the image, make the page file, lock memory,
 *      <------- OPENED       drop privileges; 'error' and 'why' if it failed
 *   CONNECT --------->       activate the image (unless OPEN did), map the
 *      <------- CONNECTED    ring, bind the channel, serve
 *   DISCONNECT ------>       stop taking requests, finish those in flight,
 *      <------- DISCONNECTED answer them, unmap, unbind, deactivate
 *   CLOSE ----------->       disconnect if need be, close the image, exit
 *      <------- CLOSED
 *      <------- BROKEN       at any time: the frontend broke the ring, or the
 *                            storage failed for good; 'why' says which.  The
 *                            ring stays mapped until DISCONNECT.
 *
 *      <------- STOPPED      at any time, with on-error=stop...: requests that
 *                            failed wait for RETRY; again with 'error' 0 when
 *                            they went well
 *   RETRY ----------->       issue again what waits
 *
 *   RESIZE ---------->       make the image larger, connected or not
 *      <------- RESIZED      the geometry that it has now, also on failure
 *
 * A disk process that died is succeeded by one that is told so in OPEN: it
 * takes the page file over and its first CONNECT, with the same generation and
 * the same ring, goes on where the predecessor stood (page.h).  A page file of
 * another disk, image or connection is refused with -ESTALE.  One that died
 * with an active image but no connection is succeeded by one that only does
 * again, at OPEN, what the page file's redo memory holds (RESUME_REDO).
 *
 * The supervisor never waits for an answer: a disk process may hang in a grant
 * copy for half a minute.  'generation' is chosen by the supervisor with
 * CONNECT and comes back in CONNECTED, DISCONNECTED and BROKEN, so that a late
 * answer is recognised.  Both sides check every message with message_check()
 * and end the connection at the first bad one.
 */
#ifndef BLKBACK_MESSAGE_H
#define BLKBACK_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "blkback/spec.h"
#include "ring/ring.h"

#define MESSAGE_VERSION  3u
#define MESSAGE_DISK_FD  3	/* the listening socket of a disk process */
#define MAX_QUEUES       SPEC_QUEUES_MAX	/* rings of one vbd */
#define UUID_MAX         37u	/* text form, NUL included */
#define BACKEND_PATH_MAX 128u

enum message_type {
	MSG_HELLO = 1, MSG_OPENED, MSG_CONNECTED, MSG_DISCONNECTED, MSG_CLOSED,
	MSG_BROKEN, MSG_STOPPED, MSG_RESIZED,
	MSG_OPEN = 64, MSG_CONNECT, MSG_DISCONNECT, MSG_CLOSE, MSG_RETRY,
	MSG_RESIZE,
};

enum disk_phase {
	PHASE_EMPTY,		/* no OPEN yet, or it failed */
	PHASE_OPEN,		/* image open, no guest */
	PHASE_CONNECTED,
};

/* What to do with the page file that a predecessor left. */
enum resume_mode {
	RESUME_NO,		/* make a new one */
	RESUME_REPLAY,		/* issue again what was not answered */
	RESUME_FAIL,		/* answer it with ERROR: it killed us before */
	RESUME_REDO,		/* nothing is in flight, but the image may */
				/* lack what was done: mend that at OPEN */
};

/* Strings are NUL-terminated within their arrays. */
struct message_open {
	uint16_t domid;			/* of the frontend */
	uint8_t  readonly;		/* bool; also if the spec says so */
	uint8_t  activate;		/* bool; at once, not at CONNECT */
	uint8_t  discard;		/* bool; unless the spec ignores it */
	uint8_t  pad[3];
	uint32_t devid;
	uint32_t uid;			/* to become; also the gid */
	uint32_t resume;		/* enum resume_mode; REPLAY, FAIL: */
					/* CONNECT goes on with the */
					/* connection 'generation' of the */
					/* message */
	char     uuid[UUID_MAX];	/* of the domain; "" if it has none */
	char     backend[BACKEND_PATH_MAX];	/* in xenstore; for the page */
	char     spec[SPEC_MAX];
};

struct message_geometry {
	uint64_t size;			/* bytes, multiple of 512 */
	uint32_t block_size;		/* bytes */
	uint32_t physical_block_size;	/* bytes */
	uint32_t discard_granularity;	/* bytes; 0: no BLKIF_OP_DISCARD */
	uint32_t discard_alignment;	/* bytes */
	uint8_t  readonly;		/* bool */
	uint8_t  flush;			/* bool: BLKIF_OP_FLUSH_DISKCACHE */
	uint8_t  pad[6];
};

struct message_ring {
	uint32_t order;			/* 0 ... RING_MAX_ORDER */
	uint32_t gref[RING_MAX_PAGES];	/* the first 1 << order */
	uint32_t port;			/* the frontend's event channel */
};

struct message_connect {
	uint32_t            abi;		/* enum ring_abi */
	uint32_t            nr_queues;		/* 1 ... MAX_QUEUES */
	uint32_t            persistent;		/* bool: of both sides */
	struct message_ring ring[MAX_QUEUES];
};

struct message_resize {
	uint64_t            size;		/* bytes, multiple of 512; 0: */
						/* what the file has */
};

struct message_hello {
	uint32_t            phase;		/* enum disk_phase */
	uint32_t            devid;
	uint16_t            domid;
	uint8_t             pad[2];
	int32_t             pid;
	struct message_open open;		/* as it was opened */
};

struct message {
	uint32_t version;			/* MESSAGE_VERSION */
	uint32_t type;				/* enum message_type */
	int32_t  error;				/* answers: 0 or -errno */
	uint32_t generation;
	char     why[WHY_MAX];			/* when error != 0 */
	struct message_geometry geometry;	/* HELLO, OPENED, CONNECTED, */
						/* RESIZED */
	union {
		struct message_open    open;
		struct message_connect connect;
		struct message_hello   hello;
		struct message_resize  resize;
	} u;
};

/*
 * Is what arrived a whole, well-formed message of this version: 'bytes' as
 * recv() returned it, every string terminated, every enum and count in range?
 * Pure.  0, -EPROTO (malformed) or -EPROTONOSUPPORT (another version).
 */
int message_check(const struct message *m, size_t bytes);

/* A message of that type, everything else zero. */
void message_init(struct message *m, enum message_type type);

/*
 * Send or receive one, never blocking.  0; -EAGAIN; -EPIPE at end-of-file;
 * -EPROTO and the like as above; other -errno.
 */
int message_send(int fd, const struct message *m);
int message_recv(int fd, struct message *m);

#endif
