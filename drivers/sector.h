/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * sector: 512-byte sectors on storage that has larger ones (4Kn).
 *
 *            aligned ------------------------------------> image below
 *   I/O  --<                                                 ^
 *            anything else --> range lock --> bounce buffer -+
 *                              (writes)       read, merge, write
 *
 * An image wrapped round another.  What fits the blocks below in offset,
 * length and memory goes down as it is.  Any other I/O goes through a bounce
 * buffer, in pieces of SECTOR_BOUNCE bytes, one I/O below at a time: a read
 * costs one each; a write one each, and one read more where a piece begins or
 * ends inside a block.
 *
 * Two writes may share a block below though no sector above.  The one that
 * only wants a part of it must write back what the other wrote: so all
 * writes are registered, and where one that is not of whole blocks is among
 * two that overlap, the later one waits for the earlier one.  Nobody waits
 * for a later one, and none takes a bounce buffer before it has its range,
 * so all come to an end.  Writes of whole blocks do not wait for each other:
 * as long as there are no others, they cost a mutex.
 *
 * Readers do not wait.  A sector lies in one block, which is written by one
 * I/O below, and what is written back round it are the bytes that are there
 * already: a read finds a sector as it was before or after, if that holds
 * below.  Nor do discards wait: one that meets such a write may leave what was
 * there before, as every discard may.
 *
 * When the host loses power during such a write, a device that writes its
 * blocks whole (4Kn ones do) leaves the old or the new block, and no other
 * sector of it changes.  One that tears a block may also lose sectors that
 * the guest did not write; disks with 512-byte emulation have that risk too.
 *
 * The memory is SECTOR_BOUNCES buffers per channel, or its depth if that is
 * less; an I/O that finds none free waits.
 */
#ifndef DRIVERS_SECTOR_H
#define DRIVERS_SECTOR_H

#include "drivers/driver.h"

#define SECTOR_BOUNCE  (64u * 1024)	/* bytes */
#define SECTOR_BOUNCES 16u

/* Do callers need one round this image? */
static inline bool
sector_needed(const struct image *img)
{
	return img->block_size > 512 || img->buffer_alignment > 512;
}

/*
 * Blocks of up to SECTOR_BOUNCE bytes.  The image below belongs to the new
 * one from now on; on failure it is still the caller's.
 */
int  sector_wrap(struct image *below, struct image **img, char why[WHY_MAX]);

#endif
