/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * vbd_resize: a disk becomes larger.
 *
 *   ringback resize --> RESIZE --> disk process
 *                                      |
 *           guest <-- xenstore <-- RESIZED
 *
 * What the guest is told follows from two numbers, the size that the disk
 * process names and the one that was published, whoever changed the first: so
 * it makes no difference if the disk process dies between growing the image
 * and saying so, or ringbackd before the guest is told.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "blkback/vbd.h"

int
vbd_resize(struct vbd *v, uint64_t size, char why[WHY_MAX])
{
	struct message m;

	if (v->proc.fd < 0 || v->proc.closing || v->adopting ||
	    v->now.image != IMAGE_OPEN || v->resume != RESUME_NO) {
		snprintf(why, WHY_MAX, "its image is not open (any more, or "
		    "yet); try again when ringback list shows its size");
		return -EAGAIN;
	}
	if (v->resizing) {
		snprintf(why, WHY_MAX, "it is being resized already; wait for "
		    "that to end");
		return -EBUSY;
	}
	v->resizing = true;
	v->resize_error[0] = '\0';
	message_init(&m, MSG_RESIZE);
	m.u.resize.size = size;
	m.generation = v->generation;
	if (process_send(&v->proc, &m) < 0)
		vbd_kill_process(v);	/* whoever waits is told */
	return 0;
}

/* Whether it was done before the end, the successor will tell. */
void
vbd_resize_lost(struct vbd *v)
{
	if (!v->resizing)
		return;
	v->resizing = false;
	snprintf(v->resize_error, sizeof(v->resize_error), "its disk process "
	    "%d ended meanwhile; see ringback list for the size it has, and "
	    "try again", (int)v->last_pid);
}

void
vbd_resized(struct vbd *v, const struct message *m)
{
	if (v->proc.closing || v->adopting || v->now.image != IMAGE_OPEN)
		return;
	if (m->error < 0) {
		snprintf(v->resize_error, sizeof(v->resize_error), "%s",
		    m->why);
		log_guest(&v->limit, "%s: cannot be resized: %s", v->name,
		    m->why);
	} else {
		v->geometry = m->geometry;
		log_guest(&v->chat, "%s: resized, %llu bytes", v->name,
		    (unsigned long long)m->geometry.size);
	}
	v->resizing = false;
}

bool
vbd_size_untold(const struct vbd *v)
{
	return v->now.exists && v->now.ours == XenbusStateConnected &&
	    v->now.link == LINK_UP && v->now.image == IMAGE_OPEN &&
	    v->geometry.size / 512 > v->sectors;
}

/*
 * A disk that has become larger, or whose successor found it so.  What a guest
 * looks at is not the size but the state: it is written again, unchanged.
 */
int
vbd_publish_size(struct vbd *v)
{
	struct xenstore_update u = { 0 };
	char text[24];
	int rc;

	if (!vbd_size_untold(v))
		return 0;
	/* Who found the disk connected does not know what was published. */
	if (v->sectors == 0 && xenstore_read(&v->sup->xs, XBT_NULL, v->path,
	    "sectors", text, sizeof(text)) == 0)
		v->sectors = strtoull(text, NULL, 10);
	if (!vbd_size_untold(v))
		return 0;
	xenstore_add_number(&u, "sectors", v->geometry.size / 512);
	xenstore_add_number(&u, "state", XenbusStateConnected);
	/* Unless somebody has changed the state since we looked. */
	rc = xenstore_update(&v->sup->xs, v->path, XenbusStateConnected, &u);
	if (rc == 0) {
		v->sectors = v->geometry.size / 512;
		log_guest(&v->chat, "%s: told the guest of %llu bytes",
		    v->name, (unsigned long long)v->geometry.size);
	}
	return rc;
}
