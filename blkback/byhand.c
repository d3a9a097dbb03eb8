/* SPDX-License-Identifier: GPL-2.0-or-later */
/* byhand: attach and detach without a toolstack (see byhand.h). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "blkback/byhand.h"
#include "blkback/client.h"
#include "blkback/spec.h"

#define COUNT(a)    (sizeof(a) / sizeof((a)[0]))
#define DOMAIN_NAME 64u	/* bytes of a domain's name that are looked at */

static void
domain_path(char path[32], uint32_t domid)
{
	snprintf(path, 32, "/local/domain/%u", domid);
}

static bool
domain_runs(struct supervisor *sup, xs_transaction_t t, uint32_t domid)
{
	char path[32], text[XENSTORE_PATH_MAX];

	domain_path(path, domid);
	return xenstore_read(&sup->xs, t, path, "", text, sizeof(text)) == 0 &&
	    xenstore_introduced(&sup->xs, domid);
}

static int
find_by_name(struct supervisor *sup, const char *name, uint32_t *domid,
    char why[WHY_MAX])
{
	char path[32], text[DOMAIN_NAME], **ids;
	unsigned n, i, found = 0;
	uint32_t id;

	ids = xenstore_list(&sup->xs, XBT_NULL, "/local/domain", &n);
	for (i = 0; i < n; i++) {
		if (xenstore_parse_u32(ids[i], UINT16_MAX, &id) < 0)
			continue;
		domain_path(path, id);
		if (xenstore_read(&sup->xs, XBT_NULL, path, "name", text,
		    sizeof(text)) == 0 && strcmp(text, name) == 0 &&
		    domain_runs(sup, XBT_NULL, id)) {
			*domid = id;
			found++;
		}
	}
	free(ids);
	if (found == 1)
		return 0;
	if (found == 0)
		snprintf(why, WHY_MAX, "there is no running domain named "
		    "%.64s; see xl list", name);
	else
		snprintf(why, WHY_MAX, "%u domains are named %.64s; give the "
		    "number of one", found, name);
	return -ESRCH;
}

/*
 * A driver domain serves the disks that it is given; it may neither see who
 * runs nor give a guest anything.
 */
static bool
is_unprivileged(struct supervisor *sup)
{
	char text[16];

	return sup->own_domid != 0 && xenstore_read(&sup->xs, XBT_NULL,
	    "/local/domain", "", text, sizeof(text)) == -EACCES;
}

int
byhand_find_domain(struct supervisor *sup, const char *domain,
    uint32_t *domid, char why[WHY_MAX])
{
	int rc = 0;

	sup->xs.error = 0;
	if (xenstore_parse_u32(domain, UINT16_MAX, domid) < 0) {
		rc = find_by_name(sup, domain, domid, why);
	} else if (!domain_runs(sup, XBT_NULL, *domid)) {
		snprintf(why, WHY_MAX, "there is no running domain %u; see xl "
		    "list", *domid);
		rc = -ESRCH;
	}
	/* Not found, or not to be seen? */
	if (rc < 0 && sup->xs.error != 0) {
		rc = sup->xs.error;
		snprintf(why, WHY_MAX, "cannot look for domain %.64s in "
		    "xenstore: %s; try again", domain, strerror(-rc));
	} else if (rc < 0 && is_unprivileged(sup)) {
		snprintf(why, WHY_MAX, "domain %u may not see the names of "
		    "others; give the number of the domain, not %.64s",
		    sup->own_domid, domain);
	}
	return rc;
}

static int
check_free(struct supervisor *sup, uint32_t domid, uint32_t devid,
    const char *vdev, char why[WHY_MAX])
{
	char path[64], text[16];
	struct vbd *v;
	int rc;

	v = vbd_find(sup, domid, devid);
	if (v != NULL) {
		snprintf(why, WHY_MAX, "domain %u has a disk %.24s already "
		    "(%.24s, %s); detach that first, or choose another name",
		    domid, vdev, v->name, v->creating ? "being attached" :
		    v->now.exists ? device_state_name(v->now.ours) :
		    "still being closed");
		return -EEXIST;
	}
	snprintf(path, sizeof(path), "/local/domain/%u/device/vbd/%u", domid,
	    devid);
	rc = xenstore_read(&sup->xs, XBT_NULL, path, "", text, sizeof(text));
	if (rc < 0 && rc != -ENOENT && rc != -E2BIG) {
		snprintf(why, WHY_MAX, "cannot read %s in xenstore: %s; try "
		    "again", path, strerror(-rc));
		return rc;
	}
	if (rc != -ENOENT) {
		snprintf(why, WHY_MAX, "domain %u has a disk %.24s already, of "
		    "another backend (%s exists); choose another name", domid,
		    vdev, path);
		return -EEXIST;
	}
	return 0;
}

struct vbd *
byhand_attach(struct supervisor *sup, const char *domain, const char *vdev,
    const char *text, bool readonly, bool cdrom, char why[WHY_MAX])
{
	struct disk_spec spec;
	char full[SPEC_MAX];
	uint32_t domid, devid;
	struct vbd *v;

	if (!supervisor_has_kind(sup, BY_HAND)) {
		snprintf(why, WHY_MAX, "ringbackd was started without the kind "
		    BY_HAND " (--kinds)");
		return NULL;
	}
	if (vdev_parse(vdev, &devid) < 0) {
		snprintf(why, WHY_MAX, "%.32s is no name of a disk; use xvda, "
		    "xvdb, hda, sda, d0p1 or a number", vdev);
		return NULL;
	}
	if (is_unprivileged(sup)) {
		snprintf(why, WHY_MAX, "domain %u may not give other domains "
		    "disks; have it done in dom0: xl block-attach %.64s "
		    "vdev=%.32s,backend=%u,script=block-ringback,...",
		    sup->own_domid, domain, vdev, sup->own_domid);
		return NULL;
	}
	if (defaults_parse(&sup->opt->defaults, cdrom, text, full, &spec, why) <
	    0 ||
	    byhand_find_domain(sup, domain, &domid, why) < 0 ||
	    check_free(sup, domid, devid, vdev, why) < 0)
		return NULL;

	v = vbd_new(sup, BY_HAND, domid, devid);
	if (v == NULL) {
		snprintf(why, WHY_MAX, "out of memory");
		return NULL;
	}
	v->creating = true;
	v->looked = true;
	v->readonly = readonly || cdrom;
	v->cdrom = cdrom;
	snprintf(v->spec, sizeof(v->spec), "%s", text);
	vbd_take_full(v, full);
	vbd_read_uuid(v);
	if (vbd_adopt(v)) {
		/* Nobody that we know of: what it serves is not ours to say. */
		snprintf(why, WHY_MAX, "a disk process that ringbackd does not "
		    "know serves %s already", v->name);
		vbd_set_error(v, "%s", why);
		vbd_close_process(v);
		v->now.image = IMAGE_FAILED;
		return NULL;
	}
	vbd_open_image(v);
	return v;
}

/* ---- the directories ----------------------------------------------------- */

struct pair {
	const char *node, *value;
};

static int
write_pairs(struct xenstore *xs, xs_transaction_t t, const char *dir,
    const struct pair *p, unsigned n)
{
	unsigned i;
	int rc = 0;

	for (i = 0; rc == 0 && i < n; i++)
		rc = xenstore_write(xs, t, dir, p[i].node, p[i].value);
	return rc;
}

/*
 * What libxl would write, "state" last.  Not "protocol": frontends write their
 * own, and its absence means the native ABI.
 */
static int
create_body(struct xenstore *xs, xs_transaction_t t, void *arg)
{
	struct vbd *v = arg;
	char own[16], domid[16], devid[16];
	const char *type = v->cdrom ? "cdrom" : "disk";
	const struct pair fe[] = {
		{ "backend", v->path }, { "backend-id", own },
		{ "virtual-device", devid }, { "device-type", type },
		{ "trusted", "1" }, { "state", "1" },
	};
	const struct pair be[] = {
		{ "frontend", v->frontend }, { "frontend-id", domid },
		{ "online", "1" }, { "removable", v->cdrom ? "1" : "0" },
		{ "bootable", "1" },
		{ "dev", v->vdev }, { "type", "phy" },
		{ "mode", v->readonly ? "r" : "w" }, { "device-type", type },
		{ "params", v->spec }, { "state", "1" },
	};
	int rc;

	snprintf(own, sizeof(own), "%u", v->sup->own_domid);
	snprintf(domid, sizeof(domid), "%u", v->domid);
	snprintf(devid, sizeof(devid), "%u", v->devid);

	/* A directory made for a domain that has ended would stay for ever. */
	xs->error = 0;
	if (!domain_runs(v->sup, t, v->domid))
		return xs->error != 0 ? xs->error : -ESRCH;
	rc = xenstore_mkdir(xs, t, v->frontend, v->domid, v->sup->own_domid);
	if (rc == 0)
		rc = xenstore_mkdir(xs, t, v->path, v->sup->own_domid,
		    v->domid);
	if (rc == 0)
		rc = write_pairs(xs, t, v->frontend, fe, COUNT(fe));
	if (rc == 0)
		rc = write_pairs(xs, t, v->path, be, COUNT(be));
	return rc;
}

static int
create(struct vbd *v)
{
	int rc = xenstore_transaction(&v->sup->xs, create_body, v);

	if (rc == 0)
		return 0;
	if (rc == -EEXIST)
		vbd_set_error(v, "domain %u has been given a disk %s by "
		    "somebody else meanwhile", v->domid, v->vdev);
	else if (rc == -ESRCH)
		vbd_set_error(v, "domain %u has ended meanwhile", v->domid);
	else
		vbd_set_error(v, "cannot make its directories in xenstore "
		    "(%s): %s", v->path, strerror(-rc));
	log_error(0, "%s: %s", v->name, v->error);
	return rc;
}

void
byhand_step(struct vbd *v)
{
	if (v->now.image == IMAGE_OPEN) {
		if (create(v) == 0) {
			v->creating = false;
			vbd_touch(v);
		} else {
			v->now.image = IMAGE_FAILED;
			vbd_close_process(v);
		}
	}
	if (v->now.image != IMAGE_OPENING && v->creating && v->proc.fd < 0)
		vbd_free(v);
	else
		client_vbd_changed(v);
}

/* 'parents': of the directory, when they are empty. */
static int
remove_frontend(struct vbd *v, xs_transaction_t t, unsigned parents)
{
	char backend[XENSTORE_PATH_MAX];
	int rc;

	/* Somebody may have put another disk there. */
	rc = xenstore_read(&v->sup->xs, t, v->frontend, "backend", backend,
	    sizeof(backend));
	if (rc == 0 && strcmp(backend, v->path) != 0)
		return 0;
	return xenstore_remove(&v->sup->xs, t, v->frontend, parents);
}

static int
remove_backend(struct xenstore *xs, xs_transaction_t t, void *arg)
{
	struct vbd *v = arg;

	/* backend/ringback/DOMID, backend/ringback */
	return xenstore_remove(xs, t, v->path, 2);
}

static int
remove_body(struct xenstore *xs, xs_transaction_t t, void *arg)
{
	int rc = remove_backend(xs, t, arg);

	return rc < 0 ? rc : remove_frontend(arg, t, 1);	/* device/vbd */
}

int
byhand_remove(struct vbd *v)
{
	int rc = xenstore_transaction(&v->sup->xs, remove_body, v);

	if (rc != -EAGAIN)
		return rc;
	/*
	 * A guest that never stops writing to its directory spoils every
	 * transaction that touches it.  What is left of the disk if we die
	 * between these two is a backend, and that is removed again.
	 */
	rc = remove_frontend(v, XBT_NULL, 0);
	return rc < 0 ? rc :
	    xenstore_transaction(&v->sup->xs, remove_backend, v);
}

int
byhand_detach(struct vbd *v, char why[WHY_MAX])
{
	struct xenstore_update u = { 0 };
	uint32_t state;
	int rc, tries;

	if (!v->by_hand) {
		snprintf(why, WHY_MAX, "%s was attached by a toolstack; detach "
		    "it there: xl block-detach %u %s", v->name, v->domid,
		    v->vdev);
		return -EPERM;
	}
	if (v->creating) {
		snprintf(why, WHY_MAX, "%s is still being attached; try again",
		    v->name);
		return -EBUSY;
	}
	/* As libxl does: Closing, unless it is closed. */
	for (tries = 0, rc = -ESTALE; rc == -ESTALE && tries < 8; tries++) {
		rc = xenstore_read_u32(&v->sup->xs, XBT_NULL, v->path, "state",
		    UINT32_MAX, &state);
		if (rc == -EINVAL)
			state = XENSTORE_ANY;
		else if (rc < 0)
			break;
		u.n = 0;
		xenstore_add(&u, "online", "0");
		if (state != XenbusStateClosed)
			xenstore_add_number(&u, "state", XenbusStateClosing);
		rc = xenstore_update(&v->sup->xs, v->path, state, &u);
	}
	vbd_touch(v);
	if (rc == 0 || rc == -ENOENT)
		return 0;
	snprintf(why, WHY_MAX, "%s: cannot write %s: %s", v->name, v->path,
	    strerror(-rc));
	return rc;
}
