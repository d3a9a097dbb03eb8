/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * media: another medium in the drive of a guest that goes on using it.
 *
 * A disk process has given up the privilege to open files, so another medium
 * is another process.  The guest is told nothing until the new one serves it,
 * and notices a pause.  (CD-ROMs are read-only: there is nothing to be lost,
 * but what was asked of one medium must not be answered from another.)
 *
 *   media_change()   "media-change" = the present disk spec, into the backend
 *                    directory: from here on it is deliberate that nobody
 *                    serves the guest.  CLOSE: the process answers what it has
 *                    taken, lets go of the ring, and ends.
 *   media_closed()   "params" = the new spec.  A process opens it.
 *   DEV_CONNECT      the same rings, from their start: nothing is in flight.
 *   DEV_PUBLISH      size and state Connected, as when a disk has grown; and
 *                    "media-change" = "", all in one transaction.
 *
 * A new medium that cannot be opened gives way to the old one, and that to none
 * at all.  A process that dies before it has finished is succeeded as ever, by
 * one that opens the same medium (the page file's identity is checked as ever),
 * and then the change goes on.  A supervisor that finds "media-change" in a
 * Connected disk goes on from there: whoever is not connected is told to close,
 * what is in flight is taken up, and what "params" names is opened.
 */
#ifndef BLKBACK_MEDIA_H
#define BLKBACK_MEDIA_H

#include "blkback/vbd.h"

#define MEDIA_NODE   "media-change"

/*
 * Begin to put 'spec' into the drive; NULL: nothing.  It has 'seconds' to be
 * opened.  All is done when the phase is MEDIA_STILL again; v->media.why then
 * says what went wrong, if anything.  0, or -errno with 'why'.
 */
int  media_change(struct vbd *v, const char *spec, uint32_t seconds,
         char why[WHY_MAX]);

/* See how far it has got. */
void media_step(struct vbd *v);

/* The disk is no more, or is another one. */
void media_abort(struct vbd *v);

/* The directory is new to us: is a change under way? */
void media_find(struct vbd *v);

/* No process was found: open what is to be opened.  False: no change. */
bool media_resume(struct vbd *v);

/*
 * What becomes of a disk process.  True: that was all that there is to do.
 * adopted: one that was found running has introduced itself; interrupted: it
 * ended with requests in its hands, although it was told to close; closed: with
 * none; died: by itself; failed: it cannot open the medium (v->error).
 */
bool media_adopted(struct vbd *v, const struct message_hello *h);
bool media_interrupted(struct vbd *v);
bool media_closed(struct vbd *v);
bool media_died(struct vbd *v, const char *what);
bool media_failed(struct vbd *v);

#endif
