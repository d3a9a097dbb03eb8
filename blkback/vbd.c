/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * vbd: reading how things stand, and doing what device.h says (see vbd.h).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "blkback/byhand.h"
#include "blkback/client.h"
#include "blkback/frontend.h"
#include "blkback/kernel.h"
#include "blkback/rival.h"
#include "blkback/spec.h"
#include "blkback/media.h"

#define SCRIPT   "block-ringback"	/* whose disks are ours */
#define RETRY_US 100000u
#define CDROM    1u			/* VDISK_CDROM of blkif.h */
#define REMOVABLE 2u			/* VDISK_REMOVABLE */
#define READONLY 4u			/* VDISK_READONLY */

/* ---- life ---------------------------------------------------------------- */

struct vbd *
vbd_find(struct supervisor *sup, uint32_t domid, uint32_t devid)
{
	struct vbd *v;

	LIST_FOREACH(v, &sup->vbds, link)
		if (v->domid == domid && v->devid == devid)
			return v;
	return NULL;
}

struct vbd *
vbd_new(struct supervisor *sup, const char *kind, uint32_t domid,
    uint32_t devid)
{
	struct vbd *v = calloc(1, sizeof(*v));

	if (v == NULL)
		return NULL;
	v->sup = sup;
	v->discard = true;
	process_init(&v->proc);
	snprintf(v->kind, sizeof(v->kind), "%s", kind);
	v->by_hand = strcmp(kind, BY_HAND) == 0;
	v->domid = domid;
	v->devid = devid;
	snprintf(v->name, sizeof(v->name), "vbd %u/%u", domid, devid);
	snprintf(v->path, sizeof(v->path),
	    "/local/domain/%u/backend/%s/%u/%u", sup->own_domid, kind, domid,
	    devid);
	snprintf(v->frontend, sizeof(v->frontend),
	    "/local/domain/%u/device/vbd/%u", domid, devid);
	vdev_name(devid, v->vdev);
	LIST_INSERT_HEAD(&sup->vbds, v, link);
	vbd_touch(v);
	return v;
}

static void
watch_name(struct vbd *v, char path[XENSTORE_PATH_MAX], char token[24])
{
	snprintf(path, XENSTORE_PATH_MAX, "%s/state", v->frontend);
	snprintf(token, 24, "%u/%u", v->domid, v->devid);
}

static int
watch_frontend(struct vbd *v)
{
	char path[XENSTORE_PATH_MAX], token[24];
	int rc;

	if (v->watching)
		return 0;
	watch_name(v, path, token);
	rc = xenstore_watch(&v->sup->xs, path, token);
	v->watching = rc == 0;
	return rc;
}

static void
unwatch_frontend(struct vbd *v)
{
	char path[XENSTORE_PATH_MAX], token[24];

	if (!v->watching)
		return;
	watch_name(v, path, token);
	xenstore_unwatch(&v->sup->xs, path, token);
	v->watching = false;
}

/* There is neither a directory nor a disk process. */
void
vbd_free(struct vbd *v)
{
	client_vbd_gone(v);
	unwatch_frontend(v);
	vbd_leave_process(v);
	if (!v->keep_page)
		vbd_remove_page(v);
	if (v->claimed)
		log_info("%s: forgotten", v->name);
	sd_event_source_disable_unref(v->timer);
	if (v->touched)
		TAILQ_REMOVE(&v->sup->touched, v, work);
	LIST_REMOVE(v, link);
	free(v);
}

void
vbd_new_orphan(struct supervisor *sup, uint32_t domid, uint32_t devid)
{
	struct vbd *v = vbd_new(sup, BY_HAND, domid, devid);

	if (v == NULL)
		return;
	v->orphan = true;
	/* If there is none, that is seen in step_orphan(). */
	vbd_adopt(v);
}

/* Once it has said what it serves. */
static void
step_orphan(struct vbd *v)
{
	char text[16];

	if (v->proc.fd >= 0 && v->proc.hello && !v->proc.closing) {
		if (xenstore_read(&v->sup->xs, XBT_NULL, v->open.backend,
		    "state", text, sizeof(text)) != -ENOENT) {
			log_info("%s: process %d serves %s, which is not ours",
			    v->name, (int)v->proc.pid, v->open.backend);
			vbd_leave_process(v);
			v->keep_page = true;
		} else {
			log_info("%s: closing process %d, whose disk has been "
			    "removed", v->name, (int)v->proc.pid);
			vbd_close_process(v);
		}
	}
	if (v->proc.fd < 0)
		vbd_free(v);
}

void
vbd_touch(struct vbd *v)
{
	int rc;

	if (v->touched)
		return;
	v->touched = true;
	TAILQ_INSERT_TAIL(&v->sup->touched, v, work);
	rc = sd_event_source_set_enabled(v->sup->work, SD_EVENT_ONESHOT);
	if (rc < 0 && rc != -ESTALE)	/* that is: we are stopping */
		log_error(rc, "%s: cannot be scheduled", v->name);
}

static int
on_timer(sd_event_source *source, uint64_t usec, void *arg)
{
	struct vbd *v = arg;

	(void)source;
	(void)usec;
	if (v->lock_wait)
		vbd_connect(v);
	vbd_touch(v);
	return 0;
}

void
vbd_touch_later(struct vbd *v, uint64_t usec)
{
	int rc;

	v->timer = sd_event_source_disable_unref(v->timer);
	rc = sd_event_add_time_relative(v->sup->event, &v->timer,
	    CLOCK_MONOTONIC, usec, 10000, on_timer, v);
	if (rc < 0)
		log_error(rc, "%s: cannot set a timer", v->name);
}

/* ---- the backend directory ----------------------------------------------- */

/* A node of the toolstack's.  0; or -errno with v->error saying which. */
static int
read_node(struct vbd *v, const char *node, char *buf, size_t size)
{
	int rc = xenstore_read(&v->sup->xs, XBT_NULL, v->path, node, buf, size);

	if (rc < 0)
		vbd_set_error(v, "cannot read %s/%s: %s", v->path, node,
		    strerror(-rc));
	return rc;
}

/*
 * Is the directory for us, and does it name the frontend that belongs to it?
 * A toolstack may be led astray by what a guest wrote (XSA-178).
 */
static int
check_owner(struct vbd *v)
{
	char text[XENSTORE_PATH_MAX];
	uint32_t id;
	int rc;

	if (!v->by_hand) {
		rc = read_node(v, "script", text, sizeof(text));
		if (rc < 0)
			return rc;
		if (strcmp(xenstore_basename(text), SCRIPT) != 0) {
			vbd_set_error(v, "its script is %.200s, not %s: it is "
			    "another backend's", text, SCRIPT);
			return -ENODEV;
		}
	}
	rc = read_node(v, "frontend", text, sizeof(text));
	if (rc < 0)
		return rc;
	if (strcmp(text, v->frontend) != 0) {
		vbd_set_error(v, "%s/frontend is %.200s, not %s", v->path,
		    text, v->frontend);
		return -EINVAL;
	}
	rc = read_node(v, "frontend-id", text, sizeof(text));
	if (rc < 0)
		return rc;
	if (xenstore_parse_u32(text, UINT16_MAX, &id) < 0 || id != v->domid) {
		vbd_set_error(v, "%s/frontend-id is %.200s, not %u", v->path,
		    text, v->domid);
		return -EINVAL;
	}
	return 0;
}

void
vbd_read_uuid(struct vbd *v)
{
	char dir[32], text[64];
	const char *uuid;

	snprintf(dir, sizeof(dir), "/local/domain/%u", v->domid);
	v->uuid[0] = '\0';
	if (xenstore_read(&v->sup->xs, XBT_NULL, dir, "vm", text,
	    sizeof(text)) < 0)
		return;
	uuid = xenstore_basename(text);
	if (strlen(uuid) < UUID_MAX)
		strcpy(v->uuid, uuid);
}

bool
vbd_persistent(const struct vbd *v, const struct disk_spec *spec)
{
	return spec->persistent && (!cache_is_direct(spec->cache) ||
	    v->by_hand || v->direct_safe);
}

static void
set_offer(struct vbd *v, const struct disk_spec *spec)
{
	v->offer.max_order = spec->ring_order;
	v->offer.max_queues = spec->queues;
	v->offer.persistent = vbd_persistent(v, spec);
	v->overridden = spec->persistent && !v->offer.persistent;
	v->segments = spec->segments;
	v->readonly |= spec->readonly;
}

int
vbd_take_spec(struct vbd *v, char why[WHY_MAX])
{
	struct disk_spec spec;
	int rc;

	if (v->now.image == IMAGE_OPEN && strcmp(v->spec, v->opened) == 0 &&
	    vbd_take_full(v, v->open.spec))
		return 0;
	rc = defaults_parse(&v->sup->opt->defaults, v->cdrom, v->spec, v->full,
	    &spec, why);
	if (rc == 0)
		set_offer(v, &spec);
	return rc;
}

bool
vbd_take_full(struct vbd *v, const char *full)
{
	struct disk_spec spec;

	if (!defaults_fit(v->cdrom, full, v->spec, &spec))
		return false;
	snprintf(v->full, sizeof(v->full), "%s", full);
	set_offer(v, &spec);
	return true;
}

/*
 * The disk spec, from what libxl makes of a target: of kind vbd it is the
 * target alone, of TAP the format that it was told stands before it.
 */
static int
read_spec(struct vbd *v)
{
	size_t n = strcmp(v->kind, TAP) == 0 ? strlen(TAP_RAW) : 0;
	char params[SPEC_MAX + sizeof(TAP_RAW) - 1];
	int rc;

	v->bad_spec[0] = '\0';
	rc = read_node(v, "params", params, SPEC_MAX + n);
	if (rc < 0 && rc != -E2BIG)
		return rc;
	if (rc == -E2BIG) {
		params[0] = '\0';
		n = 0;
		snprintf(v->bad_spec, sizeof(v->bad_spec), "the disk spec is "
		    "longer than %u bytes", (unsigned)SPEC_MAX - 1);
	} else if (strncmp(params, TAP_RAW, n) != 0) {
		n = 0;
		snprintf(v->bad_spec, sizeof(v->bad_spec), "the toolstack was "
		    "told another format than raw; say format=raw, and the "
		    "true one in target=FORMAT:PATH");
	}
	memcpy(v->spec, params + n, strnlen(params + n, SPEC_MAX - 1) + 1);
	v->spec[SPEC_MAX - 1] = '\0';
	return 0;
}

/* Everything that the toolstack says of the disk. */
static int
configure(struct vbd *v)
{
	char text[XENSTORE_PATH_MAX];
	int rc;

	rc = check_owner(v);
	if (rc < 0)
		return rc;
	rc = read_node(v, "mode", text, sizeof(text));
	if (rc < 0)
		return rc;
	v->readonly = strchr(text, 'w') == NULL;
	v->discard = xenstore_read(&v->sup->xs, XBT_NULL, v->path,
	    "discard-enable", text, sizeof(text)) != 0 ||
	    strcmp(text, "0") != 0;
	v->cdrom = xenstore_read(&v->sup->xs, XBT_NULL, v->path, "device-type",
	    text, sizeof(text)) == 0 && strcmp(text, "cdrom") == 0;
	v->readonly |= v->cdrom;
	v->direct_safe = xenstore_read(&v->sup->xs, XBT_NULL, v->path,
	    "direct-io-safe", text, sizeof(text)) == 0 &&
	    strcmp(text, "1") == 0;

	v->full[0] = '\0';
	v->overridden = false;
	v->offer = (struct frontend_offer){ RING_MAX_ORDER, 1, false };
	v->segments = SPEC_SEGMENTS_MIN;
	rc = read_spec(v);
	if (rc < 0)
		return rc;
	/* A bad one is offered all the same: xl asks in InitWait. */
	if (v->bad_spec[0] == '\0' && vbd_take_spec(v, v->bad_spec) == 0)
		v->bad_spec[0] = '\0';
	vbd_read_uuid(v);
	return 0;
}

/* Of a disk that is new; nothing can be done about it here. */
static void
look_for_rival(struct vbd *v)
{
	pid_t pid = 0;

	if (!v->by_hand && v->now.ours == XenbusStateInitialising)
		pid = rival_tapback(v->kind);
	if (pid > 0)
		log_guest(&v->limit, "%s: tapback (process %d) serves "
		    "backend/%s too, and may take this disk or remove its "
		    "nodes; stop it, or have ringbackd serve other kinds "
		    "(--kinds)", v->name, (int)pid, v->kind);
}

static int
claim(struct vbd *v)
{
	int rc;

	rc = configure(v);
	if (rc == 0)
		rc = watch_frontend(v);
	if (rc == 0) {
		v->claimed = true;
		log_info("%s: found, %s", v->name, v->spec);
		if (v->overridden)
			log_info("%s: grants=persistent is overridden, data is "
			    "copied: with direct I/O it needs direct-io-safe "
			    "in the disk's configuration", v->name);
		media_find(v);
		look_for_rival(v);
	} else if (rc != -ENODEV && rc != -ENOENT) {
		log_guest(&v->limit, "%s: ignored: %s", v->name, v->error);
	}
	return rc;
}

/*
 * The toolstack has removed the directory and made it again while we were
 * looking elsewhere: what we have belongs to the old one.
 */
static void
start_anew(struct vbd *v)
{
	log_info("%s: its directory has been made anew", v->name);
	media_abort(v);
	vbd_close_process(v);
	v->claimed = false;
	v->now.image = IMAGE_NONE;
	/* The old ring is no longer anybody's who talks to us. */
	v->now.link = LINK_DOWN;
	v->now.spent = false;
	v->sectors = 0;
	v->error[0] = '\0';
}

/* ---- how things stand ---------------------------------------------------- */

static int
read_state(struct vbd *v)
{
	enum xenbus_state before = v->now.ours;
	bool existed = v->now.exists;
	char text[16];
	uint32_t n = 0;
	int rc;

	rc = xenstore_read(&v->sup->xs, XBT_NULL, v->path, "state", text,
	    sizeof(text));
	if (rc == -ENOENT) {
		v->now.exists = false;
		return 0;
	}
	if (rc < 0 && rc != -E2BIG)
		return rc;
	v->state_junk = rc == -E2BIG || xenstore_parse_u32(text,
	    XenbusStateReconfigured, &n) < 0;
	v->now.ours = n;
	v->now.exists = true;
	if (v->claimed && (!existed || (n == XenbusStateInitialising &&
	    before != XenbusStateInitialising)))
		start_anew(v);
	return 0;
}

static bool
frontend_gone(struct vbd *v)
{
	char text[16];

	return xenstore_read(&v->sup->xs, XBT_NULL, v->frontend, "", text,
	    sizeof(text)) == -ENOENT;
}

static void
read_frontend(struct vbd *v)
{
	struct xenstore *xs = &v->sup->xs;
	bool alive;
	uint32_t n;

	v->now.theirs = XenbusStateUnknown;
	if (xenstore_read_u32(xs, XBT_NULL, v->frontend, "state",
	    XenbusStateClosed, &n) == 0)
		v->now.theirs = n;

	/* A toolstack may introduce a domain late; but not twice. */
	alive = xenstore_introduced(xs, v->domid);
	v->seen_alive |= alive;
	if (!alive && (v->seen_alive || v->by_hand))
		v->now.theirs = XenbusStateUnknown;
	if (v->now.theirs != XenbusStateInitialising)
		v->now.spent = false;

	/* xl knows no such kind and does not clean up after the guest. */
	if (v->by_hand && v->now.theirs == XenbusStateUnknown &&
	    (!alive || frontend_gone(v)))
		v->now.online = false;
}

static void
read_toolstack(struct vbd *v)
{
	struct xenstore *xs = &v->sup->xs;
	char text[16];
	uint32_t n;

	v->now.online = !(xenstore_read_u32(xs, XBT_NULL, v->path, "online",
	    UINT32_MAX, &n) == 0 && n == 0);
	v->now.go = GO_AWAITED;
	v->now.go_first = v->sup->opt->script_first;
	if (v->by_hand)
		v->now.go = GO_GIVEN;
	else if (xenstore_read(xs, XBT_NULL, v->path, "hotplug-status", text,
	    sizeof(text)) == 0) {
		if (strcmp(text, "connected") == 0)
			v->now.go = GO_GIVEN;
		else if (strcmp(text, "error") == 0)
			v->now.go = GO_REFUSED;
	}
}

/* For frontend_read(). */
struct reader {
	struct frontend_reader r;	/* must be first */
	struct vbd            *v;
};

static int
read_guest(const struct frontend_reader *r, const char *node, char *buf,
    size_t size)
{
	const struct reader *me = (const struct reader *)r;

	return xenstore_read(&me->v->sup->xs, XBT_NULL, me->v->frontend, node,
	    buf, size);
}

int
vbd_read_rings(struct vbd *v, struct message_connect *c, char why[WHY_MAX])
{
	struct reader r = { { read_guest }, v };

	return frontend_read(&r.r, &v->offer, c, why);
}

static void
read_changed(struct vbd *v)
{
	struct message_connect c;
	char why[WHY_MAX];

	v->now.changed = v->now.ours == XenbusStateConnected &&
	    v->now.link == LINK_UP &&
	    (v->now.theirs == XenbusStateInitialised ||
	    v->now.theirs == XenbusStateConnected) &&
	    vbd_read_rings(v, &c, why) == 0 && !frontend_same(&c, &v->rings);
}

/*
 * Read everything.  0, or -errno when it could not be read: then nothing may
 * be concluded.
 */
static int
read_levels(struct vbd *v)
{
	int rc;

	v->sup->xs.error = 0;
	rc = read_state(v);
	if (rc < 0)
		return rc;
	/* One that is not ours is treated as if it was not there. */
	if (v->now.exists && !v->claimed && claim(v) < 0)
		v->now.exists = false;
	if (v->now.exists) {
		read_toolstack(v);
		read_frontend(v);
		read_changed(v);
	}
	return v->sup->xs.lost ? -EIO : v->sup->xs.error;
}

/* ---- doing --------------------------------------------------------------- */

static int
update(struct vbd *v, const struct xenstore_update *u)
{
	return xenstore_update(&v->sup->xs, v->path,
	    v->state_junk ? XENSTORE_ANY : v->now.ours, u);
}

static int
set_state(struct vbd *v, enum xenbus_state state)
{
	struct xenstore_update u = { 0 };

	xenstore_add_number(&u, "state", state);
	return update(v, &u);
}

/*
 * What a frontend may read as soon as it sees InitWait, or even before.  The
 * image may not be open yet, but all that depends on it is read at Connected.
 */
static int
offer(struct vbd *v)
{
	struct xenstore_update u = { 0 };

	if (v->now.ours == XenbusStateClosed) {
		if (configure(v) < 0) {
			/* No longer ours, or no longer whole. */
			v->claimed = false;
			return 0;
		}
		if (v->now.image == IMAGE_FAILED)
			v->now.image = IMAGE_NONE;
		else if (!v->adopting && (strcmp(v->full, v->open.spec) != 0 ||
		    v->readonly != v->open.readonly))
			vbd_close_process(v);
	}
	if (v->now.link == LINK_FAILED)
		v->now.link = LINK_DOWN;
	v->now.spent = false;

	xenstore_add_number(&u, "max-ring-page-order", v->offer.max_order);
	xenstore_add_number(&u, "max-ring-pages", 1u << v->offer.max_order);
	xenstore_add_number(&u, "feature-persistent", v->offer.persistent);
	if (v->segments > SPEC_SEGMENTS_MIN)
		xenstore_add_number(&u, "feature-max-indirect-segments",
		    v->segments);
	xenstore_add_number(&u, "multi-queue-max-queues",
	    v->offer.max_queues);
	xenstore_add_number(&u, "feature-flush-cache", !v->readonly);
	xenstore_add_number(&u, "feature-barrier", !v->readonly);
	xenstore_add_number(&u, "state", XenbusStateInitWait);
	return update(v, &u);
}

static void
say_connected(struct vbd *v)
{
	unsigned pages = 1u << v->rings.ring[0].order;
	char queues[32] = "";

	if (v->rings.nr_queues > 1)
		snprintf(queues, sizeof(queues), "%u queues, each a ",
		    v->rings.nr_queues);
	log_guest(&v->chat, "%s: connected, %s, %sring of %u page%s, %llu "
	    "bytes%s", v->name, ring_abi_name(v->rings.abi), queues, pages,
	    pages == 1 ? "" : "s", (unsigned long long)v->geometry.size,
	    v->geometry.readonly ? ", read-only" : "");
}

static int
publish(struct vbd *v)
{
	const struct message_geometry *g = &v->geometry;
	struct xenstore_update u = { 0 };
	int rc;

	xenstore_add_number(&u, "sectors", g->size / 512);
	xenstore_add_number(&u, "sector-size", g->block_size);
	xenstore_add_number(&u, "physical-sector-size",
	    g->physical_block_size);
	xenstore_add_number(&u, "info", (g->readonly ? READONLY : 0) |
	    (v->cdrom ? CDROM | REMOVABLE : 0));
	xenstore_add_number(&u, "feature-flush-cache",
	    g->flush && !g->readonly);
	xenstore_add_number(&u, "feature-barrier", g->flush && !g->readonly);
	xenstore_add_number(&u, "feature-discard", g->discard_granularity > 0);
	if (g->discard_granularity > 0) {
		xenstore_add_number(&u, "discard-granularity",
		    g->discard_granularity);
		xenstore_add_number(&u, "discard-alignment",
		    g->discard_alignment);
	}
	if (v->cdrom)
		xenstore_add(&u, MEDIA_NODE, "");
	xenstore_add_number(&u, "state", XenbusStateConnected);
	rc = update(v, &u);
	if (rc == 0) {
		v->now.link = LINK_UP;
		v->sectors = g->size / 512;
		v->media.marked = false;
		v->error[0] = '\0';
		say_connected(v);
	}
	return rc;
}

bool
vbd_contested(struct vbd *v)
{
	return strcmp(v->kind, KERNEL_KIND) == 0 &&
	    kernel_backend(v->sup->opt->sysfs, v->error);
}

static int
connect_rings(struct vbd *v)
{
	char why[WHY_MAX];

	/* udev may have loaded it since we opened the image. */
	if (vbd_contested(v)) {
		snprintf(why, sizeof(why), "%s", v->error);
		vbd_link_failed(v, why);
		return 0;
	}
	if (vbd_read_rings(v, &v->rings, why) == 0)
		vbd_connect(v);
	else if (v->sup->xs.error != 0)
		return v->sup->xs.error;	/* not the guest's fault */
	else
		vbd_link_failed(v, why);
	return 0;
}

/* 0: nothing more to do.  1: look again.  -errno: it did not work. */
static int
act(struct vbd *v, enum device_action action)
{
	int rc = 0;

	switch (action) {
	case DEV_OFFER:
		rc = offer(v);
		break;
	case DEV_CONNECT:
		rc = connect_rings(v);
		break;
	case DEV_PUBLISH:
		rc = publish(v);
		break;
	case DEV_CLOSING:
		rc = set_state(v, XenbusStateClosing);
		break;
	case DEV_DISCONNECT:
		vbd_disconnect(v);
		break;
	case DEV_CLOSED:
		rc = set_state(v, XenbusStateClosed);
		if (rc == 0)
			log_guest(&v->chat, "%s: closed", v->name);
		break;
	case DEV_REMOVE:
		vbd_close_process(v);
		if (!v->by_hand || v->proc.fd >= 0)
			return 0;
		rc = byhand_remove(v);
		break;
	default:
		rc = vbd_publish_size(v);
		if (rc == 0)
			return 0;
		break;
	}
	/* The directory is not what it was a moment ago: look again. */
	if (rc == -ESTALE || rc == -ENOENT)
		rc = 0;
	return rc < 0 ? rc : 1;
}

/* Find the disk process of one that is new to us, or start one. */
static void
want_image(struct vbd *v)
{
	if (!v->now.exists || v->proc.fd >= 0 || v->now.image != IMAGE_NONE)
		return;
	if (!v->looked) {
		if (vbd_adopt(v))
			return;
		if (media_resume(v) || vbd_succeed(v))
			return;
		/* A directory that is new is of another attach. */
		if (v->now.ours != XenbusStateInitialising && vbd_redo(v))
			return;
		if (v->now.ours == XenbusStateConnected)
			vbd_set_error(v, "its disk process died while "
			    "ringbackd was not running; detach it, or restart "
			    "the guest, to have it opened again");
	}
	if (v->now.online && (v->now.ours == XenbusStateInitialising ||
	    v->now.ours == XenbusStateInitWait))
		vbd_open_image(v);
}

static void
show(struct vbd *v, enum device_action action)
{
	static const char *const names[DEV_ACTIONS] = {
		"wait", "offer", "connect", "publish", "go to Closing",
		"disconnect", "go to Closed", "remove", "forget",
	};

	if (v->sup->opt->verbose && v->claimed && action != DEV_WAIT &&
	    !v->proc.closing)
		log_info("%s: %s, frontend %s: %s", v->name,
		    v->now.exists ? device_state_name(v->now.ours) : "gone",
		    device_state_name(v->now.theirs), names[action]);
}

void
vbd_step(struct vbd *v)
{
	enum device_action action;
	int rc;

	if (v->creating || v->orphan) {
		if (v->orphan)
			step_orphan(v);
		else
			byhand_step(v);
		return;
	}
	rc = read_levels(v);
	if (rc < 0) {
		log_guest(&v->limit, "%s: cannot read %s: %s", v->name,
		    v->path, strerror(-rc));
		vbd_touch_later(v, RETRY_US);
		return;
	}
	want_image(v);
	media_step(v);
	action = device_next(&v->now);
	show(v, action);
	if (action == DEV_FORGET) {
		vbd_close_process(v);
		if (v->proc.fd < 0) {
			vbd_free(v);
			return;
		}
	} else {
		rc = act(v, action);
		if (rc < 0) {
			log_guest(&v->limit, "%s: cannot write %s: %s", v->name,
			    v->path, strerror(-rc));
			vbd_touch_later(v, RETRY_US);
		} else if (rc > 0) {
			vbd_touch(v);
		}
	}
	client_vbd_changed(v);
}

/* ---- the hotplug script's verdict ---------------------------------------- */

int
vbd_hotplug_connected(struct vbd *v)
{
	struct xenstore_update u = { 0 };

	xenstore_add(&u, "hotplug-status", "connected");
	vbd_touch(v);
	return xenstore_update(&v->sup->xs, v->path, XENSTORE_ANY, &u);
}

int
vbd_hotplug_error(struct vbd *v, const char *why)
{
	struct xenstore_update u = { 0 };

	xenstore_add(&u, "hotplug-error", why);
	xenstore_add(&u, "hotplug-status", "error");
	vbd_touch(v);
	return xenstore_update(&v->sup->xs, v->path, XENSTORE_ANY, &u);
}
