/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * engine_rig: a raw image on an engine below a kernel that misbehaves in every
 * way that it may.  The calls of the engines are defined here; what they do
 * stands in 'kernel', and each passes on to the real one.
 */
#ifndef TESTS_ENGINE_RIG_H
#define TESTS_ENGINE_RIG_H

#include <stdatomic.h>

#include "tests/driver_rig.h"

#define FILE_SIZE (8 * 1024 * 1024)
#define MAX_DEPTH 600

extern struct rig rig;
extern char file[512];
extern unsigned nr_fds, nr_threads;	/* before the image was opened */

struct kernel {
	/* What it does. */
	int       setup_error;
	unsigned  spoil;	/* byte of the ring's header; 0: none */
	long      accept;	/* iocbs per call; 0: all */
	int       refuse;	/* the error of 'nr_refuse' calls, */
	unsigned  nr_refuse;
	unsigned  nr_before;	/* after that many which it takes */
	long long bad_offset;	/* the I/O there is refused, */
	int       bad_error;	/* with this error; 0: none is */
	int       flush_error;	/* likewise each flush */
	long      event_error;	/* result of the first event, and the */
	long      event_limit;	/* largest result, that io_getevents() gives */
	uint64_t  cut;		/* bytes per iocb or call; 0: all */
	unsigned  block;	/* of direct I/O, says statx(); 0: as it is */
	bool      nothing;	/* transfers succeed and move nothing */
	unsigned  nr_interrupt;	/* io_getevents() calls that get EINTR */
	int       sync_error;	/* of fdatasync() */
	int       sync_told;	/* ... of the first one, which takes long */
	unsigned  bad_piece;	/* the fallocate() that fails; 0: none */

	/* What it saw. */
	int       nr_contexts;
	int       nr_events;	/* of the last one */
	unsigned  nr_submit;
	unsigned  nr_odd;	/* iocbs that begin inside a block */
	unsigned  nr_getevents;
	unsigned  nr_sync;
	unsigned  nr_pieces;	/* of discards, */
	off_t     largest;	/* their size, in bytes, */
	off_t     next;		/* and where the next should begin */
	unsigned  nr_taken;
	unsigned  max_inflight;

	/* Of preadv() and pwritev(), by any thread. */
	atomic_bool      hold;		/* they do not return */
	atomic_bool      late_event;	/* eventfd_write() takes its time */
	_Atomic unsigned nr_vectored;
};
extern struct kernel kernel;

/* 'state': an enum engine_kind in place of a pointer. */
int  engine_setup(void **state);
int  engine_teardown(void **state);

void open_raw(unsigned depth);

/* For rig_io.then: submit this one, too. */
extern struct rig_io *follower;
void submit_follower(struct rig_io *rio);

#ifndef RINGBACK_SANITIZED
extern unsigned nr_allocs;		/* calls of malloc() and the like */
#endif

#endif
