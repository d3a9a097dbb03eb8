/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * sandbox: what a disk process gives up before it looks at a guest.
 *
 * Afterwards it can use the descriptors it holds, map what its grant handle
 * offers, and little else: no file, no socket, no process, no signal to
 * another one.  A malformed image or ring can cost one disk, never the host.
 * So does the command that looks into an image (tools/inspect.c).
 */
#ifndef BLKBACK_SANDBOX_H
#define BLKBACK_SANDBOX_H

#include <stdint.h>

/*
 * Become 'uid' (and the group of the same number), without other groups,
 * capabilities, new privileges or core dumps, and install the system call
 * filter on every thread.  A call that the filter does not know fails with
 * EPERM; in a sanitizer build it is logged and allowed, as the sanitizers make
 * calls of their own.  0 or -errno; after a failure the process must exit.
 */
int sandbox_enter(uint32_t uid);

/* The part of it that needs no privilege: all but the uid and the groups. */
int sandbox_confine(void);

#endif
