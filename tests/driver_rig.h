/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * driver_rig: an image, a channel and I/Os whose end is watched.
 *
 * The rig holds a driver to its contract in every test: done() runs once
 * for each I/O, only inside reap(), never with an error above 0; reap()
 * counts right; and rig_wait() sleeps on edges of event_fd alone, so that an
 * edge that is missing is a test that fails.
 */
#ifndef TESTS_DRIVER_RIG_H
#define TESTS_DRIVER_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "drivers/driver.h"

#define RIG_TIMEOUT_MS 20000

struct rig {
	struct image   *img;
	struct channel *ch;
	int             epfd;		/* watches ch->event_fd; -1: none */
	unsigned        nr_inflight;
	unsigned        nr_reaped;	/* what reap() said */
	unsigned        nr_done;	/* what done() saw */
	bool            reaping;
	/* How to open; set it before. */
	bool             discard;
	enum engine_kind engine;
	enum cache_mode  cache;		/* for rig_open() */
	bool             resumed;
	char            file[512];	/* to be removed; "" for none */
	char            why[WHY_MAX];
};

struct rig_io {
	struct io      io;
	struct rig    *rig;
	void          *buf;		/* all iovs lie in it, in order */
	unsigned       nr_done;
	int            error;
	void         (*then)(struct rig_io *rio);	/* run by done() */
};

/* A file of 'size' bytes in a folder that takes O_DIRECT. */
void rig_make_file(char file[512], off_t size);

/* Open, activate and watch; the test fails if that fails. */
void rig_open(struct rig *r, const char *format, const char *path,
         bool readonly, unsigned depth);
void rig_close(struct rig *r);

/* The same in pieces.  rig_watch() opens a channel. */
int  rig_image(struct rig *r, const char *format, const char *path,
         bool readonly, enum cache_mode cache);
void rig_watch(struct rig *r, unsigned depth);
void rig_unwatch(struct rig *r);

/*
 * An I/O of 'iovcnt' iovs of about the same size (multiples of 512).  Its
 * memory comes with it.
 */
struct rig_io *rig_io_new(struct rig *r, enum io_op op, uint64_t offset,
         uint64_t length, int iovcnt);
void rig_io_free(struct rig_io *rio);

void rig_submit(struct rig_io *rio);
void rig_reap(struct rig *r);
void rig_wait(struct rig *r);		/* until nothing is in flight */

/* Submit, wait, free; the error it ended with. */
int  rig_do(struct rig_io *rio);
int  rig_flush(struct rig *r);

/* Bytes that depend on 'seed' and on the place on the disk. */
void rig_fill(struct rig_io *rio, unsigned seed);
bool rig_holds(const struct rig_io *rio, unsigned seed);

/* In a child: does the call end with a failed assertion? */
bool rig_aborts(void (*call)(void *arg), void *arg);

/* How many descriptors, and threads, this process has. */
unsigned rig_count_fds(void);
unsigned rig_count_threads(void);

/* Exit status of a shell command; its output goes to 'out' if not NULL. */
int  rig_shell(char *out, size_t size, const char *fmt, ...)
         __attribute__((format(printf, 3, 4)));

#endif
