/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * vdev: the names of virtual disks and their numbers, as Xen's
 * vbd-interface document has them.
 *
 *   xvdX[P], dNpM   202<<8 | disk<<4 | part    disk and part below 16
 *                   1<<28 | disk<<8 | part     above
 *   sdX[P]          8<<8 | disk<<4 | part      disk and part below 16
 *   hdX[P]          3<<8 | disk<<6 | part      hda, hdb; part below 64
 *                   22<<8 | (disk-2)<<6 | part hdc, hdd
 *   N               the number itself, decimal or 0x...
 */
#ifndef BLKBACK_VDEV_H
#define BLKBACK_VDEV_H

#include <stdint.h>

#define VDEV_NAME_MAX 24u

/* 0 or -EINVAL. */
int  vdev_parse(const char *name, uint32_t *devid);

/* The name of a number; the number itself when it has none. */
void vdev_name(uint32_t devid, char name[VDEV_NAME_MAX]);

#endif
