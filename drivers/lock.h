/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * lock: image locks that QEMU and qemu-img understand.
 *
 * Each user of an image states which permissions it *holds* and which it
 * *denies* to others.  Both are shared (read) locks on single bytes of the
 * image: byte 100 + n says "somebody holds permission n", byte 200 + n says
 * "somebody denies permission n".  A newcomer locks its own bytes first and
 * then looks whether anybody else denies what it holds, or holds what it
 * denies; two that come at once may both be refused, never both be let in.
 *
 * The locks belong to the open file description (F_OFD_SETLK): they survive
 * as long as a descriptor of it is open in any process, and a second open in
 * the same process is somebody else.  The bytes need not exist, and their
 * data is not touched.
 */
#ifndef DRIVERS_LOCK_H
#define DRIVERS_LOCK_H

#include "drivers/driver.h"

/* The bits are QEMU's; bit n is permission n. */
enum lock_perm {
	PERM_CONSISTENT_READ = 0x01,
	PERM_WRITE           = 0x02,
	PERM_WRITE_UNCHANGED = 0x04,	/* writes that change no data */
	PERM_RESIZE          = 0x08,
};

/*
 * Lock 'fd', opened from 'path'.  0; -EAGAIN: somebody else uses the image
 * in a way that excludes this; another -errno: locks do not work here.  On
 * failure nothing stays locked.  Not to be called twice without a release.
 */
int lock_take(int fd, unsigned hold, unsigned deny, const char *path,
        char why[WHY_MAX]);

/* Let go of everything that lock_take() took. */
int lock_release(int fd, const char *path, char why[WHY_MAX]);

#endif
