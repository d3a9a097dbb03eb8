/* SPDX-License-Identifier: GPL-2.0-or-later */
/* media: changing the medium of a CD-ROM drive (see media.h). */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "blkback/clock.h"
#include "blkback/media.h"
#include "blkback/rival.h"
#include "blkback/spec.h"

static bool
resuming(const struct vbd *v)
{
	return v->resume == RESUME_REPLAY || v->resume == RESUME_FAIL;
}

/* The drive that 'spec' describes, without a medium. */
static void
without_medium(char text[SPEC_MAX], const char *spec)
{
	const char *colon = strchr(spec, ':');

	snprintf(text, SPEC_MAX, "%.*s",
	    colon == NULL ? 0 : (int)(colon + 1 - spec), spec);
}

static bool
is_empty(const char *spec)
{
	char none[SPEC_MAX];

	without_medium(none, spec);
	return strcmp(none, spec) == 0;
}

/* What is to be in the drive, by the present choice. */
static void
chosen(const struct vbd *v, char text[SPEC_MAX])
{
	if (v->media.choice == MEDIA_NONE)
		without_medium(text, v->media.old);
	else
		snprintf(text, SPEC_MAX, "%s", v->media.choice == MEDIA_NEW ?
		    v->media.want : v->media.old);
}

/* ---- the end ------------------------------------------------------------- */

static void
unmark(struct vbd *v)
{
	struct xenstore_update u = { 0 };
	int rc;

	if (!v->media.marked)
		return;
	v->media.marked = false;
	xenstore_add(&u, MEDIA_NODE, "");
	rc = xenstore_update(&v->sup->xs, v->path, XENSTORE_ANY, &u);
	/* The next Connected does it as well. */
	if (rc < 0 && rc != -ENOENT)
		log_error(rc, "%s: cannot write %s/" MEDIA_NODE, v->name,
		    v->path);
}

/* 'why': it came to nothing; NULL: the drive holds what was chosen. */
static void
end(struct vbd *v, const char *why)
{
	struct media *m = &v->media;
	char first[WHY_MAX];

	m->phase = MEDIA_STILL;
	unmark(v);
	snprintf(first, sizeof(first), "%s", m->why);
	if (why == NULL && m->choice == MEDIA_NEW)
		m->why[0] = '\0';	/* at the second try, perhaps */
	else if (why != NULL)
		snprintf(m->why, sizeof(m->why), "%s", why);
	else if (m->choice == MEDIA_OLD && first[0] != '\0')
		snprintf(m->why, sizeof(m->why), "%.400s; the medium is "
		    "what it was before", first);
	else if (m->choice == MEDIA_NONE)
		snprintf(m->why, sizeof(m->why), "%.400s; nor could what was "
		    "in the drive before be opened again: it is empty", first);
	if (m->why[0] != '\0')
		log_error(0, "%s: changing the medium: %s", v->name, m->why);
	else
		log_info("%s: the medium is %s", v->name,
		    is_empty(v->spec) ? "ejected" : v->spec);
	vbd_touch(v);
}

void
media_abort(struct vbd *v)
{
	if (v->media.phase != MEDIA_STILL)
		end(v, "the disk was removed");
}

/* ---- the way ------------------------------------------------------------- */

static int
write_params(struct vbd *v, const char *text)
{
	char params[sizeof(TAP_RAW) + SPEC_MAX];
	struct xenstore_update u = { 0 };

	snprintf(params, sizeof(params), "%s%s", strcmp(v->kind, TAP) == 0 ?
	    TAP_RAW : "", text);
	xenstore_add(&u, "params", params);
	return xenstore_update(&v->sup->xs, v->path, XENSTORE_ANY, &u);
}

static void
note_why(struct vbd *v, const char *why)
{
	if (v->media.why[0] == '\0')
		snprintf(v->media.why, sizeof(v->media.why), "%s", why);
}

/* After nothing at all there is nothing to try.  False: that was it. */
static bool
choose_next(struct vbd *v)
{
	struct media *m = &v->media;

	if (m->choice == MEDIA_NONE ||
	    (m->choice == MEDIA_OLD && is_empty(m->old)))
		return false;
	m->choice++;
	return true;
}

static void
give_up(struct vbd *v)
{
	v->now.image = IMAGE_FAILED;
	v->now.link = LINK_FAILED;
	vbd_set_error(v, "%s", v->media.why);
	end(v, v->error);
}

/* The old one as it was, whatever the defaults have become meanwhile. */
static void
take_chosen(struct vbd *v)
{
	char why[WHY_MAX];

	if (v->media.choice == MEDIA_OLD && vbd_take_full(v, v->media.full))
		return;
	if (vbd_take_spec(v, why) < 0)
		note_why(v, why);
}

/* Nobody serves the disk, and nothing is in flight: open what is chosen. */
static void
open_chosen(struct vbd *v)
{
	char text[SPEC_MAX];
	int rc;

	v->media.phase = MEDIA_OPENING;
	for (;;) {
		chosen(v, text);
		/* First, so that whoever comes next knows what is opened. */
		rc = write_params(v, text);
		if (rc == -ENOENT) {
			end(v, "the disk was removed");
			return;
		}
		if (rc == 0) {
			snprintf(v->spec, sizeof(v->spec), "%s", text);
			v->bad_spec[0] = '\0';
			take_chosen(v);
			v->resume = RESUME_NO;
			v->stopped = false;
			v->now.image = IMAGE_NONE;
			vbd_start_process(v);
			if (v->now.image == IMAGE_OPENING)
				break;
			note_why(v, v->error);
		} else {
			note_why(v, "cannot write to xenstore");
		}
		if (!choose_next(v)) {
			give_up(v);
			return;
		}
	}
	v->media.deadline = clock_us() + v->media.seconds * UINT64_C(1000000);
	vbd_touch(v);
}

/* Have the process finish what is in flight, and end. */
static void
drain(struct vbd *v)
{
	v->now.image = IMAGE_NONE;
	/* Nothing is to be done about the guest until it has. */
	v->now.link = LINK_DRAINING;
	vbd_close_process(v);
}

static const char *
why_not_now(const struct vbd *v)
{
	const struct device_levels *l = &v->now;

	if (v->media.phase != MEDIA_STILL)
		return "its medium is being changed already";
	if (v->creating || !l->exists || !v->claimed || !l->online ||
	    v->adopting || v->lock_wait || v->proc.closing)
		return "it is being attached or detached";
	if (l->ours == XenbusStateConnected)
		return l->link == LINK_UP ? NULL : "it is being connected";
	if (l->ours != XenbusStateInitWait && l->ours != XenbusStateClosed)
		return "the guest is closing it";
	if (l->image == IMAGE_OPENING ||
	    (l->link != LINK_DOWN && l->link != LINK_FAILED))
		return "it is being opened or connected";
	return NULL;
}

/*
 * The guest has been told what it may do: the process of another medium must
 * allow just that.
 */
static int
check_offer(struct vbd *v, const char *text, char why[WHY_MAX])
{
	struct disk_spec spec;
	char full[SPEC_MAX];
	int rc;

	rc = defaults_parse(&v->sup->opt->defaults, true, text, full, &spec,
	    why);
	if (rc < 0)
		return rc;
	if (spec.queues == v->offer.max_queues &&
	    spec.ring_order == v->offer.max_order &&
	    spec.segments == v->segments &&
	    vbd_persistent(v, &spec) == v->offer.persistent)
		return 0;
	snprintf(why, WHY_MAX, "the guest was offered queues=%u, ring-order=%u,"
	    " segments=%u and grants=%s, and has to find that again: give the "
	    "options that the drive was attached with", v->offer.max_queues,
	    v->offer.max_order, v->segments,
	    v->offer.persistent ? "persistent" : "copy");
	return -EINVAL;
}

static int
mark(struct vbd *v, char why[WHY_MAX])
{
	struct xenstore_update u = { 0 };
	int rc;

	/* An empty node is no mark, but so may be the present spec. */
	xenstore_add(&u, MEDIA_NODE, v->spec[0] != '\0' ? v->spec : "raw:");
	rc = xenstore_update(&v->sup->xs, v->path, XenbusStateConnected, &u);
	if (rc < 0)
		snprintf(why, WHY_MAX, "cannot write %s/" MEDIA_NODE ": %s",
		    v->path, strerror(-rc));
	v->media.marked = rc == 0;
	return rc;
}

int
media_change(struct vbd *v, const char *spec, uint32_t seconds,
    char why[WHY_MAX])
{
	struct media *m = &v->media;
	const char *not_now;
	char none[SPEC_MAX];
	int rc;

	if (!v->cdrom) {
		snprintf(why, WHY_MAX, "it is a disk, not a CD-ROM drive: only "
		    "what was attached as one (ringback attach --cdrom, or "
		    "devtype=cdrom) has a medium that can be changed");
		return -ENODEV;
	}
	without_medium(none, v->spec);
	if (spec == NULL)
		spec = none;
	not_now = why_not_now(v);
	if (not_now != NULL) {
		snprintf(why, WHY_MAX, "%s; try again", not_now);
		return -EBUSY;
	}
	rc = check_offer(v, spec, why);
	if (rc == 0 && v->now.ours == XenbusStateConnected)
		rc = mark(v, why);
	if (rc < 0)
		return rc;

	snprintf(m->want, sizeof(m->want), "%s", spec);
	snprintf(m->old, sizeof(m->old), "%s", v->spec);
	snprintf(m->full, sizeof(m->full), "%s", v->full);
	m->choice = MEDIA_NEW;
	m->seconds = seconds;
	m->why[0] = '\0';
	m->phase = MEDIA_DRAINING;
	if (v->proc.fd >= 0)
		drain(v);
	else
		open_chosen(v);
	return 0;
}

static bool
link_lost(const struct vbd *v)
{
	return v->now.image == IMAGE_FAILED || v->now.link == LINK_FAILED ||
	    v->now.link == LINK_BROKEN;
}

static void
step_opening(struct vbd *v)
{
	uint64_t now = clock_us();

	if (link_lost(v)) {
		end(v, v->error);
	} else if (v->now.image == IMAGE_OPEN) {
		if (v->now.ours != XenbusStateConnected ||
		    v->now.link == LINK_UP)
			end(v, NULL);
	} else if (v->now.image == IMAGE_OPENING && !resuming(v)) {
		if (now < v->media.deadline) {
			vbd_touch_later(v, v->media.deadline - now);
			return;
		}
		note_why(v, "it could not be opened in time; is its storage "
		    "there?");
		vbd_kill_process(v);
	}
}

void
media_step(struct vbd *v)
{
	if (v->media.phase == MEDIA_STILL)
		return;
	if (!v->now.exists)
		media_abort(v);
	else if (v->media.phase == MEDIA_OPENING)
		step_opening(v);
	else if (link_lost(v))
		end(v, v->error);
	else if (v->now.link == LINK_UP && !v->proc.closing)
		drain(v);		/* a successor, for the second time */
}

void
media_find(struct vbd *v)
{
	struct media *m = &v->media;

	if (m->phase != MEDIA_STILL || !v->cdrom ||
	    v->now.ours != XenbusStateConnected ||
	    xenstore_read(&v->sup->xs, XBT_NULL, v->path, MEDIA_NODE, m->old,
	    sizeof(m->old)) < 0 || m->old[0] == '\0')
		return;
	log_info("%s: its medium was being changed", v->name);
	snprintf(m->want, sizeof(m->want), "%s", v->spec);
	m->full[0] = '\0';
	m->choice = strcmp(m->want, m->old) == 0 ? MEDIA_OLD : MEDIA_NEW;
	m->why[0] = '\0';
	m->phase = MEDIA_OPENING;
	m->marked = true;
	m->seconds = CONTROL_TIMEOUT;
	m->deadline = clock_us() + m->seconds * UINT64_C(1000000);
}

bool
media_resume(struct vbd *v)
{
	if (v->media.phase != MEDIA_OPENING || vbd_read_page(v))
		return false;
	v->looked = true;
	open_chosen(v);
	return true;
}

/* ---- what becomes of the process ----------------------------------------- */

bool
media_adopted(struct vbd *v, const struct message_hello *h)
{
	if (v->media.phase != MEDIA_OPENING || h->phase == PHASE_CONNECTED)
		return false;
	drain(v);
	return true;
}

bool
media_interrupted(struct vbd *v)
{
	if (v->media.phase == MEDIA_STILL || !v->now.exists ||
	    !vbd_read_page(v))
		return false;
	v->now.image = IMAGE_OPEN;
	v->now.link = LINK_UP;
	return true;
}

bool
media_closed(struct vbd *v)
{
	if (v->media.phase == MEDIA_STILL)
		return false;
	if (!v->now.exists || !v->now.online) {
		media_abort(v);
		return false;
	}
	vbd_remove_page(v);
	v->now.link = LINK_DOWN;
	open_chosen(v);
	return true;
}

bool
media_died(struct vbd *v, const char *what)
{
	if (v->media.phase != MEDIA_OPENING || resuming(v) ||
	    v->now.link == LINK_READY || v->now.link == LINK_UP)
		return false;
	/* Not the guest's doing: not counted among the deaths of the disk. */
	vbd_set_error(v, "its disk process %d %s", (int)v->last_pid, what);
	log_error(0, "%s: %s", v->name, v->error);
	note_why(v, v->error);
	vbd_remove_page(v);
	v->now.link = LINK_DOWN;
	if (choose_next(v))
		open_chosen(v);
	else
		give_up(v);
	return true;
}

bool
media_failed(struct vbd *v)
{
	if (v->media.phase != MEDIA_OPENING || resuming(v))
		return false;
	note_why(v, v->error);
	if (choose_next(v))
		drain(v);
	else {
		give_up(v);
		vbd_close_process(v);
	}
	return true;
}
