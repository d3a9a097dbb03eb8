/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * byhand: disks that no toolstack knows of, of `ringback attach`.
 *
 * Both directories are ours.  They are made in one transaction once the image
 * is open, so that nothing shows if it cannot be, and removed in one when the
 * guest has let go or is gone.
 */
#ifndef BLKBACK_BYHAND_H
#define BLKBACK_BYHAND_H

#include "blkback/vbd.h"

/* Of a running domain, by name or number.  0, or -errno with 'why'. */
int  byhand_find_domain(struct supervisor *sup, const char *domain,
         uint32_t *domid, char why[WHY_MAX]);

/*
 * Begin an attach; it goes on in byhand_step().  The new vbd, or NULL with
 * 'why'.
 */
struct vbd *byhand_attach(struct supervisor *sup, const char *domain,
         const char *vdev, const char *spec, bool readonly, bool cdrom,
         char why[WHY_MAX]);

/* One that is 'creating'.  May free it. */
void byhand_step(struct vbd *v);

/* Ask the guest to let go.  0, or -errno with 'why'. */
int  byhand_detach(struct vbd *v, char why[WHY_MAX]);

/* Remove both directories.  0 or -errno. */
int  byhand_remove(struct vbd *v);

#endif
