/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * qcow2_check: what a chain is, and whether its topmost file is sound.
 *
 * Only reads.  What is counted, and how often, is what `qemu-img check`
 * counts; overlaps are counted besides.
 */
#ifndef DRIVERS_QCOW2_CHECK_H
#define DRIVERS_QCOW2_CHECK_H

#include "drivers/qcow2_layer.h"

/* How many of 'layers' were filled, or -errno. */
int qcow2_info(struct qcow2_layer *top,
        struct image_layer layers[IMAGE_LAYERS_MAX], char why[WHY_MAX]);

/*
 * Compare all references to the clusters of the topmost file with their
 * refcounts.  The chain is locked by the caller.  Memory grows with the
 * clusters of the file that are in use: -EFBIG and -ENOMEM say so.
 */
int qcow2_check(struct qcow2_layer *top, struct image_check *c,
        char why[WHY_MAX]);

#endif
