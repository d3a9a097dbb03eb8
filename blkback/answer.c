/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * answer: the questions of control.h.
 *
 * A question that cannot be answered yet is put to the vbd it is about
 * (client_wait) and looked at again in answer_changed().
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "blkback/byhand.h"
#include "blkback/client.h"
#include "blkback/media.h"
#include "blkback/page.h"

#define TIMEOUT_MAX 86400

/* A string that others wrote; JSON takes UTF-8 only. */
static json_t *
text(const char *s)
{
	char ascii[SPEC_MAX], *p;
	json_t *j = json_string(s);

	if (j != NULL)
		return j;
	snprintf(ascii, sizeof(ascii), "%s", s);
	for (p = ascii; *p != '\0'; p++)
		if (*p < ' ' || *p > '~')
			*p = '?';
	return json_string(ascii);
}

/* What the disk's error is, for an answer. */
static const char *
reason(const struct vbd *v)
{
	return v->error[0] != '\0' ? v->error : "no reason is known; see the "
	    "log of ringbackd";
}

/* ---- waiting ------------------------------------------------------------- */

static void
check_attach(struct client *c)
{
	struct vbd *v = c->v;

	if (v->creating)
		return;
	if (!c->patient)
		client_ok(c);
	else if (v->now.ours == XenbusStateConnected &&
	    v->now.theirs == XenbusStateConnected && v->now.link == LINK_UP)
		client_ok(c);
	else if (v->now.image == IMAGE_FAILED || v->now.link == LINK_FAILED ||
	    v->now.link == LINK_BROKEN)
		client_fail(c, "%s: attached, but the guest could not be "
		    "connected: %s", v->name, reason(v));
}

static void
refuse(struct vbd *v, const char *why)
{
	int rc = vbd_hotplug_error(v, why);

	/* The script's exit status is the other way to say it. */
	if (rc < 0)
		log_error(rc, "%s: cannot write %s", v->name, v->path);
}

static void
check_add(struct client *c)
{
	struct vbd *v = c->v;
	int rc;

	if (v->now.image == IMAGE_OPEN && vbd_contested(v)) {
		refuse(v, v->error);
		client_fail(c, "%s: %s", v->name, v->error);
	} else if (v->now.image == IMAGE_OPEN) {
		rc = vbd_hotplug_connected(v);
		if (rc < 0)
			client_fail(c, "%s: cannot write %s: %s", v->name,
			    v->path, strerror(-rc));
		else
			client_ok(c);
	} else if (v->now.image == IMAGE_FAILED) {
		refuse(v, reason(v));
		client_fail(c, "%s: %s", v->name, reason(v));
	} else if (v->now.exists && v->now.image == IMAGE_NONE &&
	    v->proc.fd < 0) {
		/* It has been looked at, and nothing is about to open it. */
		client_fail(c, "%s: its state is %s, not InitWait", v->name,
		    device_state_name(v->now.ours));
	}
}

static void
check_resize(struct client *c)
{
	struct vbd *v = c->v;

	if (v->resizing)
		return;
	if (v->resize_error[0] != '\0')
		client_fail(c, "%s: not resized: %s", v->name,
		    v->resize_error);
	else if (!vbd_size_untold(v))
		client_answer(c, json_pack("{s:b, s:I, s:b}", "ok", 1,
		    "size", (json_int_t)v->geometry.size, "told",
		    v->now.exists && v->now.ours == XenbusStateConnected));
}

static void
check_medium(struct client *c)
{
	const struct media *m = &c->v->media;

	if (m->phase != MEDIA_STILL)
		return;
	if (m->why[0] == '\0')
		client_ok(c);
	else
		client_fail(c, "%s: cannot change the medium: %s", c->v->name,
		    m->why);
}

void
answer_changed(struct client *c)
{
	switch (c->waiting) {
	case WAIT_ATTACH:
		check_attach(c);
		break;
	case WAIT_ADD:
		check_add(c);
		break;
	case WAIT_REMOVE:
		/* The directory is xl's to remove, after us. */
		if (c->v->proc.fd < 0)
			client_ok(c);
		break;
	case WAIT_RESIZE:
		check_resize(c);
		break;
	case WAIT_MEDIUM:
		check_medium(c);
		break;
	default:
		break;
	}
}

void
answer_gone(struct client *c)
{
	switch (c->waiting) {
	case WAIT_ATTACH:
		client_fail(c, "%s: %s", c->v->name, c->v->creating ?
		    reason(c->v) : "it was removed before the guest connected");
		break;
	case WAIT_ADD:
		client_fail(c, "%s: %s", c->v->path, c->v->error[0] != '\0' ?
		    c->v->error : "there is no such directory");
		break;
	case WAIT_RESIZE:
		client_fail(c, "%s: it was removed before it was resized",
		    c->v->name);
		break;
	case WAIT_MEDIUM:
		client_fail(c, "%s: the disk was removed before its medium "
		    "was changed", c->v->name);
		break;
	default:
		client_ok(c);
		break;
	}
}

void
answer_timeout(struct client *c)
{
	struct vbd *v = c->v;
	const char *theirs = device_state_name(v->now.theirs);

	switch (c->waiting) {
	case WAIT_ATTACH:
		if (v->creating) {
			client_fail(c, "%s: cannot open %s: it took longer "
			    "than %u s; is its storage there?", v->name,
			    v->spec, c->timeout);
			vbd_kill_process(v);
			return;
		}
		client_fail(c, "%s: attached, but the guest has not connected "
		    "within %u s (its state is %s%s%s); it will when it loads "
		    "its driver, or detach the disk", v->name, c->timeout,
		    theirs, v->error[0] != '\0' ? "; " : "", v->error);
		break;
	case WAIT_DETACH:
		if (!v->now.exists || v->now.ours == XenbusStateClosed ||
		    v->now.link == LINK_DRAINING) {
			client_fail(c, "%s: the guest has let go, but the disk "
			    "process %d has not finished its I/O within %u s; "
			    "is the storage there?", v->name, (int)v->proc.pid,
			    c->timeout);
			break;
		}
		client_fail(c, "%s: the guest still uses the disk after %u s "
		    "(its state is %s); unmount it there, it will be removed "
		    "as soon as the guest lets go", v->name, c->timeout,
		    theirs);
		break;
	case WAIT_RESIZE:
		client_fail(c, "%s: the disk process %d has not resized it "
		    "within %u s; it goes on, see ringback list; is its "
		    "storage there?", v->name, (int)v->proc.pid, c->timeout);
		break;
	case WAIT_ADD:
		refuse(v, "the image could not be opened in time");
		client_fail(c, "%s: cannot open %s: it took longer than %u s; "
		    "is its storage there?", v->name, v->spec, c->timeout);
		break;
	case WAIT_MEDIUM:
		client_fail(c, "%s: the medium has not been changed within "
		    "%u s: %s", v->name, c->timeout,
		    v->media.phase == MEDIA_DRAINING ? "I/O on the old one is "
		    "not finished (is its storage there?); it will be when "
		    "that is done" : "the new one is not open and connected "
		    "yet; if it cannot be opened, the old one is put back");
		break;
	default:
		client_fail(c, "%s: its disk process has not ended within %u s",
		    v->name, c->timeout);
		break;
	}
}

/* ---- the questions ------------------------------------------------------- */

/* Take a field apart; false: answered already. */
static bool
get_text(struct client *c, const json_t *q, const char *key,
    const char **value)
{
	const json_t *j = json_object_get(q, key);

	if (!json_is_string(j)) {
		client_fail(c, "the question has no \"%s\", or it is not a "
		    "string", key);
		return false;
	}
	*value = json_string_value(j);
	return true;
}

static bool
get_bool(struct client *c, const json_t *q, const char *key, bool *value)
{
	const json_t *j = json_object_get(q, key);

	if (j != NULL && !json_is_boolean(j)) {
		client_fail(c, "the question's \"%s\" is not a boolean", key);
		return false;
	}
	if (j != NULL)
		*value = json_is_true(j);
	return true;
}

static bool
get_timeout(struct client *c, const json_t *q)
{
	const json_t *j = json_object_get(q, "timeout");
	json_int_t n;

	c->timeout = CONTROL_TIMEOUT;
	if (j == NULL)
		return true;
	n = json_integer_value(j);
	if (!json_is_integer(j) || n < 0 || n > TIMEOUT_MAX) {
		client_fail(c, "the question's \"timeout\" is not a number of "
		    "seconds from 0 to %d", TIMEOUT_MAX);
		return false;
	}
	c->timeout = n;
	return true;
}

/* The disk that "domain" and "vdev" name; NULL: answered already. */
static struct vbd *
get_vbd(struct client *c, const json_t *q)
{
	const char *domain, *vdev;
	uint32_t domid, devid;
	char why[WHY_MAX];
	struct vbd *v;

	if (!get_text(c, q, "domain", &domain) ||
	    !get_text(c, q, "vdev", &vdev))
		return NULL;
	if (vdev_parse(vdev, &devid) < 0) {
		client_fail(c, "%.32s is no name of a disk", vdev);
		return NULL;
	}
	/* By number, a domain that has ended may still have a disk. */
	if (xenstore_parse_u32(domain, UINT16_MAX, &domid) < 0 &&
	    byhand_find_domain(c->sup, domain, &domid, why) < 0) {
		client_fail(c, "%s", why);
		return NULL;
	}
	v = vbd_find(c->sup, domid, devid);
	if (v == NULL)
		client_fail(c, "domain %.64s has no disk %.32s of ringbackd's; "
		    "see ringback list", domain, vdev);
	return v;
}

static void
on_attach(struct client *c, const json_t *q)
{
	const char *domain, *vdev, *spec;
	bool readonly = false, cdrom = false;
	char why[WHY_MAX];
	struct vbd *v;

	c->patient = true;
	if (!get_text(c, q, "domain", &domain) ||
	    !get_text(c, q, "vdev", &vdev) || !get_text(c, q, "spec", &spec) ||
	    !get_bool(c, q, "readonly", &readonly) ||
	    !get_bool(c, q, "cdrom", &cdrom) ||
	    !get_bool(c, q, "wait", &c->patient) || !get_timeout(c, q))
		return;
	v = byhand_attach(c->sup, domain, vdev, spec, readonly, cdrom, why);
	if (v == NULL)
		client_fail(c, "cannot attach %.32s to %.64s: %s", vdev, domain,
		    why);
	else
		client_wait(c, v, WAIT_ATTACH);
}

static void
on_detach(struct client *c, const json_t *q)
{
	char why[WHY_MAX];
	struct vbd *v;

	if (!get_timeout(c, q))
		return;
	v = get_vbd(c, q);
	if (v == NULL)
		return;
	if (byhand_detach(v, why) < 0)
		client_fail(c, "%s", why);
	else
		client_wait(c, v, WAIT_DETACH);
}

static void
change_medium(struct client *c, const json_t *q, const char *spec)
{
	char why[WHY_MAX];
	struct vbd *v;

	if (!get_timeout(c, q))
		return;
	v = get_vbd(c, q);
	if (v == NULL)
		return;
	if (media_change(v, spec, c->timeout, why) < 0)
		client_fail(c, "%s: cannot change the medium: %s", v->name,
		    why);
	else
		client_wait(c, v, WAIT_MEDIUM);
}

static void
on_eject(struct client *c, const json_t *q)
{
	change_medium(c, q, NULL);
}

static void
on_insert(struct client *c, const json_t *q)
{
	const char *spec;

	if (get_text(c, q, "spec", &spec))
		change_medium(c, q, spec);
}

static json_t *
describe(struct vbd *v)
{
	char dir[32], name[64] = "";
	bool open = v->now.image == IMAGE_OPEN;

	snprintf(dir, sizeof(dir), "/local/domain/%u", v->domid);
	if (xenstore_read(&v->sup->xs, XBT_NULL, dir, "name", name,
	    sizeof(name)) < 0)
		name[0] = '\0';
	return json_pack("{s:i, s:o, s:I, s:s, s:s, s:s, s:s, s:o, s:o, s:i, "
	    "s:I, s:i, s:b, s:b, s:o}",
	    "domid", (int)v->domid,
	    "domain", text(name),
	    "devid", (json_int_t)v->devid,
	    "vdev", v->vdev,
	    "kind", v->kind,
	    "state", v->creating ? "Attaching" :
	    device_state_name(v->now.exists ? v->now.ours : 0),
	    "frontend-state", device_state_name(v->now.theirs),
	    "spec", text(v->spec),
	    "full-spec", text(v->full),
	    "pid", (int)v->proc.pid,
	    "size", (json_int_t)(open ? v->geometry.size : 0),
	    "queues", v->now.link == LINK_UP ? (int)v->rings.nr_queues : 0,
	    "readonly", (int)(open ? v->geometry.readonly : v->readonly),
	    "cdrom", (int)v->cdrom,
	    "error", v->error[0] != '\0' ? text(v->error) : json_null());
}

static void
on_list(struct client *c, const json_t *q)
{
	json_t *disks = json_array();
	struct vbd *v;

	(void)q;
	LIST_FOREACH(v, &c->sup->vbds, link) {
		/* One that is about to be found out not to be ours. */
		if (!v->claimed && !v->creating)
			continue;
		if (json_array_append_new(disks, describe(v)) != 0) {
			json_decref(disks);
			client_answer(c, NULL);
			return;
		}
	}
	client_answer(c, json_pack("{s:b, s:o}", "ok", 1, "disks", disks));
}

static int
add_number(json_t *stats, const char *prefix, const char *name, uint64_t n)
{
	char key[40];

	snprintf(key, sizeof(key), "%s%s", prefix, name);
	/* No true counter reaches the sign; a page that lies may. */
	return json_object_set_new(stats, key,
	    json_integer((json_int_t)(n & INT64_MAX)));
}

static json_t *
describe_stats(const struct page *page, const struct page_shape *shape)
{
	static const char *const ops[PAGE_NR_OPS] = {
		"reads", "writes", "flushes", "barriers", "discards",
	};
	static const char *const op[PAGE_NR_OPS] = {
		"read", "write", "flush", "barrier", "discard",
	};
	struct page_stats s = { .connects = 0 };
	uint64_t inflight = 0;
	size_t i;

	for (i = 0; i < shape->nr_queues; i++) {
		page_add_stats(&s, &page->queue[i].stats);
		inflight += page->queue[i].inflight;
	}

	const struct {
		const char *name;
		uint64_t    n;
	} single[] = {
		{ "reqs-taken", s.reqs_taken },
		{ "reqs-answered", s.reqs_answered },
		{ "reqs-rejected", s.reqs_rejected },
		{ "reqs-failed", s.reqs_failed },
		{ "ios", s.ios }, { "ios-retried", s.ios_retried },
		{ "submits", s.submits }, { "rounds", s.rounds },
		{ "metadata-writes", s.metadata_writes },
		{ "copy-calls", s.copy_calls },
		{ "copy-segments", s.copy_segments },
		{ "map-calls", s.map_calls },
		{ "unmap-calls", s.unmap_calls },
		{ "publishes", s.publishes }, { "notifies", s.notifies },
		{ "events", s.events }, { "sleeps", s.sleeps },
		{ "polls", s.polls }, { "connects", s.connects },
		{ "in-flight", inflight },
		{ "queues", page->header.connected == 1 ?
		    page->header.used_queues : 0 },
		{ "queues-offered", shape->nr_queues },
	};
	json_t *stats = json_object();
	int rc = stats == NULL ? -1 : 0;

	for (i = 0; rc == 0 && i < sizeof(single) / sizeof(single[0]); i++)
		rc = add_number(stats, "", single[i].name, single[i].n);
	for (i = 0; rc == 0 && i < PAGE_NR_OPS; i++) {
		rc |= add_number(stats, ops[i], "", s.ops[i]);
		rc |= add_number(stats, op[i], "-bytes", s.bytes[i]);
		rc |= add_number(stats, op[i], "-wait-ns", s.wait_ns[i]);
		rc |= add_number(stats, op[i], "-wait-max-ns",
		    s.wait_max_ns[i]);
	}
	if (rc == 0)
		return stats;
	json_decref(stats);
	return NULL;
}

static void
on_resume(struct client *c, const json_t *q)
{
	struct vbd *v = get_vbd(c, q);

	if (v == NULL)
		return;
	if (vbd_retry(v))
		client_ok(c);
	else
		client_fail(c, "%s: nothing to resume: no request of it waits "
		    "for the operator", v->name);
}

/* A number of bytes, if it is there.  False: answered already. */
static bool
get_bytes(struct client *c, const json_t *q, const char *key, uint64_t *value)
{
	const json_t *j = json_object_get(q, key);
	json_int_t n = json_integer_value(j);

	if (j == NULL)
		return true;
	if (!json_is_integer(j) || n <= 0 || n % 512 != 0) {
		client_fail(c, "the question's \"%s\" is not a number of bytes "
		    "above 0 that is a multiple of 512", key);
		return false;
	}
	*value = (uint64_t)n;
	return true;
}

static void
on_resize(struct client *c, const json_t *q)
{
	uint64_t size = 0, more = 0;
	char why[WHY_MAX];
	struct vbd *v;

	if (!get_bytes(c, q, "size", &size) ||
	    !get_bytes(c, q, "more", &more) || !get_timeout(c, q))
		return;
	if (size > 0 && more > 0) {
		client_fail(c, "the question has both \"size\" and \"more\"");
		return;
	}
	v = get_vbd(c, q);
	if (v == NULL)
		return;
	if (more > INT64_MAX - v->geometry.size)
		client_fail(c, "%s: no disk is that large", v->name);
	else if (vbd_resize(v, more > 0 ? v->geometry.size + more : size,
	    why) < 0)
		client_fail(c, "%s: cannot be resized: %s", v->name, why);
	else
		client_wait(c, v, WAIT_RESIZE);
}

static void
on_stats(struct client *c, const json_t *q)
{
	const struct page *page;
	struct page_shape shape;
	char path[VBD_PAGE_PATH];
	json_t *stats;
	struct vbd *v;
	int rc;

	v = get_vbd(c, q);
	if (v == NULL)
		return;
	rc = vbd_open_page(v, path, &page, &shape);
	if (rc < 0) {
		client_fail(c, "%s: cannot read its statistics in %s: %s",
		    v->name, path, strerror(-rc));
		return;
	}
	stats = describe_stats(page, &shape);
	page_close(page, &shape);
	client_answer(c, stats == NULL ? NULL :
	    json_pack("{s:b, s:o}", "ok", 1, "stats", stats));
}

static void
hotplug_add(struct client *c, const char *path, const char *kind,
    uint32_t domid, uint32_t devid)
{
	struct vbd *v = vbd_find(c->sup, domid, devid);

	if (v != NULL && strcmp(v->kind, kind) != 0) {
		client_fail(c, "%s: domain %u has such a disk already, of kind "
		    "%s", path, domid, v->kind);
		return;
	}
	/* The script may be faster than the watch. */
	if (v == NULL)
		v = vbd_new(c->sup, kind, domid, devid);
	if (v == NULL) {
		client_answer(c, NULL);
		return;
	}
	client_wait(c, v, WAIT_ADD);
}

static void
on_hotplug(struct client *c, const json_t *q)
{
	const char *action, *path;
	char kind[KIND_MAX];
	uint32_t domid, devid;
	struct vbd *v;
	bool inside;

	if (!get_text(c, q, "action", &action) ||
	    !get_text(c, q, "backend", &path) || !get_timeout(c, q))
		return;
	if (xenstore_parse_backend(path, kind, sizeof(kind), &domid, &devid,
	    &inside) < 0 || inside) {
		client_fail(c, "%.128s is not of the form "
		    "backend/KIND/DOMID/DEVID", path);
		return;
	}
	if (strcmp(kind, BY_HAND) == 0 || !supervisor_has_kind(c->sup, kind)) {
		client_fail(c, "%.128s: ringbackd does not serve kind %s for a "
		    "toolstack (--kinds)", path, kind);
		return;
	}
	if (strcmp(action, "add") == 0) {
		hotplug_add(c, path, kind, domid, devid);
	} else if (strcmp(action, "remove") == 0) {
		v = vbd_find(c->sup, domid, devid);
		if (v == NULL || strcmp(v->kind, kind) != 0) {
			client_ok(c);
			return;
		}
		client_wait(c, v, WAIT_REMOVE);
	} else {
		client_fail(c, "unknown hotplug action \"%.32s\"", action);
	}
}

static void
on_ping(struct client *c, const json_t *q)
{
	(void)q;
	client_answer(c, json_pack("{s:b, s:i, s:s}", "ok", 1, "pid",
	    (int)getpid(), "version", RINGBACK_VERSION));
}

void
answer_question(struct client *c, const json_t *q)
{
	static const struct {
		const char *op;
		void      (*answer)(struct client *c, const json_t *q);
	} ops[] = {
		{ "attach", on_attach }, { "detach", on_detach },
		{ "list", on_list }, { "stats", on_stats },
		{ "resume", on_resume }, { "resize", on_resize },
		{ "eject", on_eject }, { "insert", on_insert },
		{ "hotplug", on_hotplug }, { "ping", on_ping },
	};
	const char *op;
	size_t i;

	if (!get_text(c, q, "op", &op))
		return;
	for (i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		if (strcmp(op, ops[i].op) == 0) {
			ops[i].answer(c, q);
			return;
		}
	}
	client_fail(c, "unknown op \"%.32s\"", op);
}
