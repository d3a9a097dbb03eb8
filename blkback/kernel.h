/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * kernel: is the kernel's own block backend, xen-blkback, in our way?
 *
 * It takes every device of kind "vbd" of this domain, unasked, and udev may
 * load it when the first of them appears.  Two backends on one disk take the
 * guest's event channel away from each other.  What counts is whether its
 * driver is registered with the bus: the module alone does nothing, and a
 * kernel that has it built in has no module.
 */
#ifndef BLKBACK_KERNEL_H
#define BLKBACK_KERNEL_H

#include <stdbool.h>

#include "blkback/message.h"

#define KERNEL_KIND "vbd"	/* what it serves */

/*
 * 'sysfs' is where that is mounted.  True: it is there, and 'why' says so and
 * what to do.
 */
bool kernel_backend(const char *sysfs, char why[WHY_MAX]);

#endif
