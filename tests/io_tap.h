/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * io_tap: stands between a driver and one file.
 *
 * Linked with -Wl,--wrap=pwrite and so on (TAP in the Makefile), every call
 * that reads or changes a file comes by here.  A test sees each of them begin
 * and end, and may make it fail, cut it short, or die in it.
 *
 * libaio is replaced: a thread takes what was submitted, in any order and
 * after any delay, and its completions come by io_getevents().  So an
 * asynchronous write is under way for as long as the test likes, and fails as
 * the test likes.  tap.real_aio leaves libaio alone but for the submission.
 */
#ifndef TESTS_IO_TAP_H
#define TESTS_IO_TAP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

enum tap_kind {
	TAP_READ,
	TAP_WRITE,
	TAP_SYNC,
	TAP_GROW,		/* fallocate() that makes room */
	TAP_PUNCH,		/* fallocate() that takes it away */
	TAP_RESIZE,		/* ftruncate(); 'offset' is the new size */
};

struct tap_call {
	enum tap_kind       kind;
	bool                async;	/* an engine's: by io_submit(), */
					/* preadv() or pwritev() */
	uint64_t            offset;	/* bytes */
	uint64_t            length;
	const struct iovec *iov;	/* of reads and writes */
	int                 iovcnt;
	void               *mark;	/* the test's, from begin to end */
};

struct tap {
	/*
	 * 0: let it go on.  -errno: it fails.  n > 0: a read or write goes
	 * only n bytes far; TAP_NOTHING: not one byte.
	 */
	long   (*begin)(struct tap_call *c);
	/* What it came to: bytes, 0 or -errno. */
	void   (*end)(struct tap_call *c, long result);
	unsigned delay_us;		/* of asynchronous I/O, at most; but */
					/* some by io_submit() waits for much */
					/* other */
	bool     real_aio;
};

#define TAP_NOTHING (1l << 62)

extern struct tap tap;

/* The file whose calls begin() and end() see.  NULL: no file. */
void tap_watch(const char *path);

#endif
