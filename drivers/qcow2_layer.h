/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * qcow2_layer: one image of a backing chain, and how the chain is opened.
 *
 *   layer 0 (qcow2) --> layer 1 (qcow2 or raw) --> ... --> last one
 *
 * All files are opened at open, before privileges are dropped, and those
 * below the first one always read-only.  The tables are read again at
 * activate; a chain that names other files by then is refused, because no
 * file can be opened any more.
 */
#ifndef DRIVERS_QCOW2_LAYER_H
#define DRIVERS_QCOW2_LAYER_H

#include "drivers/file.h"
#include "drivers/qcow2_format.h"

#define QCOW2_MAX_DEPTH 64u	/* layers of a chain */

struct qcow2_slices;		/* qcow2_slice.h */

struct qcow2_layer {
	struct qcow2_layer  *backing;	/* NULL: what is not here is zeroes */
	unsigned             depth;	/* 0: the topmost */
	bool                 raw;	/* only 'file' and 'size' count */
	bool                 inspect;	/* damage is no reason to refuse it */
	uint64_t             size;	/* virtual, bytes, multiple of 512 */
	struct file          file;
	struct qcow2_header  h;
	uint64_t            *l1;	/* h.l1_entries, as on disk (BE), in */
					/* memory of whole pages, zero-padded */
	struct qcow2_slices *slices;	/* qcow2.c's */
};

/*
 * Open the chain that begins at 'path'.  Every header and L1 table is read
 * and checked.  Refused: dirty and corrupt images unless read-only (layers
 * below the first are); names with a protocol ("json:", "nbd:..."), a
 * missing or unknown backing format, backing files that do not lie below
 * one of opt->backing_roots after all links are followed, a file that occurs
 * twice (by device and inode), more than QCOW2_MAX_DEPTH layers.  A raw
 * backing file's size is cut to whole sectors.  With opt->inspect all is
 * read-only, and bad L1 entries and snapshot tables are let in.  'why' says
 * file, depth, field and value.  Nothing is written and nothing stays open
 * on failure.
 */
int  qcow2_chain_open(const struct image_options *opt,
         struct qcow2_layer **top, char why[WHY_MAX]);
void qcow2_chain_close(struct qcow2_layer *top);	/* NULL is fine */

/*
 * Lock every file (the topmost for writing unless read-only, the others
 * against writers), then read headers, sizes and L1 tables again; l1 and
 * what it points to are new then.  -EAGAIN: somebody else has one of them;
 * -ESTALE: it names another backing file or has another geometry by now.
 * Nothing stays locked on failure.  unlock unlocks all even when one fails.
 */
int  qcow2_chain_lock(struct qcow2_layer *top, char why[WHY_MAX]);
int  qcow2_chain_unlock(struct qcow2_layer *top, char why[WHY_MAX]);

#endif
