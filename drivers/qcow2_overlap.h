/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * qcow2_overlap: the set of host clusters that hold metadata in use.
 *
 * Every write is checked against it, because an image whose tables contradict
 * each other must not lead guest data over them.  A hash set of cluster
 * numbers; callers hold the image's lock.
 */
#ifndef DRIVERS_QCOW2_OVERLAP_H
#define DRIVERS_QCOW2_OVERLAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct qcow2_overlap {
	uint64_t *set;		/* cluster + 1; 0: free */
	size_t    size;		/* power of 2, or 0 */
	size_t    used;
};

void qcow2_overlap_clear(struct qcow2_overlap *o);	/* frees the memory */

/* 0 or -ENOMEM. */
int  qcow2_overlap_add(struct qcow2_overlap *o, uint64_t first,
         uint64_t count);
void qcow2_overlap_remove(struct qcow2_overlap *o, uint64_t first,
         uint64_t count);

/* Does any of the clusters hold metadata? */
bool qcow2_overlap_hit(const struct qcow2_overlap *o, uint64_t first,
         uint64_t count);

#endif
