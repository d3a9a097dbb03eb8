/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See vbd.h. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <xen/io/blkif.h>

#include "tests/loopfront/vbd.h"

#define RESET_STEP	5.0	/* seconds */

/* ---- names -------------------------------------------------------------- */

/* As Linux's block device numbers: 16 disks at 202, beyond an own form. */
int
vbd_parse(const char *text, uint32_t *devid)
{
	unsigned	disk = 0;
	unsigned long	n;
	const char	*p;
	char		*end;

	if (strncmp(text, "xvd", 3) != 0) {
		errno = 0;
		n = strtoul(text, &end, 10);
		if (errno != 0 || end == text || *end != '\0' ||
		    n > UINT32_MAX || text[0] == '-')
			return -EINVAL;
		*devid = (uint32_t)n;
		return 0;
	}
	for (p = text + 3; *p >= 'a' && *p <= 'z' && p < text + 5; p++)
		disk = disk * 26 + (unsigned)(*p - 'a' + 1);
	if (disk == 0 || *p != '\0')
		return -EINVAL;
	disk--;
	*devid = disk < 16 ? 202u << 8 | disk << 4 : 1u << 28 | disk << 8;
	return 0;
}

void
vbd_name(uint32_t devid, char name[32])
{
	unsigned	disk;

	if (devid >> 8 == 202 && (devid & 15) == 0)
		disk = devid >> 4 & 15;
	else if (devid >> 28 == 1 && (devid & 255) == 0)
		disk = devid >> 8 & 0xfffff;
	else
		disk = 26 * 27;
	if (disk >= 26 * 27)
		snprintf(name, 32, "%" PRIu32, devid);
	else if (disk >= 26)
		snprintf(name, 32, "xvd%c%c", 'a' + disk / 26 - 1,
		    'a' + disk % 26);
	else
		snprintf(name, 32, "xvd%c", 'a' + disk);
}

const char *
vbd_state_name(enum xenbus_state state)
{
	static const char	*const names[] = { "Unknown", "Initialising",
	    "InitWait", "Initialised", "Connected", "Closing", "Closed" };

	return (unsigned)state <= XenbusStateClosed ? names[state] : "?";
}

/* ---- small things ------------------------------------------------------- */

static int fail(struct vbd *, int, const char *, ...)
    __attribute__((format(printf, 3, 4)));

static int
fail(struct vbd *v, int rc, const char *fmt, ...)
{
	va_list	ap;

	va_start(ap, fmt);
	vsnprintf(v->error, sizeof(v->error), fmt, ap);
	va_end(ap);
	fprintf(stderr, "loopfront: domain %u, %s: %s\n", v->dom->domid,
	    v->name, v->error);
	return rc;
}

static uint64_t
deadline(double seconds)
{
	return clock_ns() + (uint64_t)(seconds * 1e9);
}

struct vbd *
vbd_find(struct domain *d, uint32_t devid)
{
	struct vbd	*v;

	LIST_FOREACH(v, &d->vbds, link) {
		if (v->devid == devid)
			return v;
	}
	return NULL;
}

/* Only while our directory is there: a write would make it anew. */
static int
switch_state(struct vbd *v, enum xenbus_state state)
{
	struct xs_handle	*xs = v->dom->xs;
	xs_transaction_t	 t;
	int			 rc;

	for (;;) {
		t = xs_transaction_start(xs);
		if (t == XBT_NULL)
			return fail(v, -errno, "start a transaction: %s",
			    strerror(errno));
		v->gone = !store_exists(xs, t, v->front, "state");
		rc = v->gone ? 0 : store_write(xs, t, v->front, "state", "%d",
		    state);
		if (xs_transaction_end(xs, t, rc < 0))
			break;
		if (errno != EAGAIN)
			return fail(v, -errno, "write state %d: %s", state,
			    strerror(errno));
	}
	v->state = state;
	pthread_cond_broadcast(&v->dom->changed);
	return rc < 0 ? fail(v, rc, "write state %d: %s", state,
	    strerror(-rc)) : 0;
}

/* ---- connecting --------------------------------------------------------- */

static int
remove_ring_nodes(struct vbd *v, xs_transaction_t t)
{
	unsigned	n = 0, i;
	char		**names;
	int		rc = 0;

	names = xs_directory(v->dom->xs, t, v->front, &n);
	if (names == NULL)
		return -errno;
	for (i = 0; i < n && rc == 0; i++) {
		if (strncmp(names[i], "ring-", 5) == 0 ||
		    strncmp(names[i], "queue-", 6) == 0 ||
		    strcmp(names[i], "multi-queue-num-queues") == 0 ||
		    strcmp(names[i], "event-channel") == 0 ||
		    strcmp(names[i], "feature-persistent") == 0 ||
		    strcmp(names[i], "protocol") == 0)
			rc = store_remove(v->dom->xs, t, v->front, names[i]);
	}
	free(names);
	return rc;
}

/* One page is told as "ring-ref", more are told as Linux tells them. */
static int
write_queue(struct vbd *v, xs_transaction_t t, const struct fqueue *q,
    const char *prefix)
{
	struct xs_handle	*xs = v->dom->xs;
	char			 node[64];
	unsigned		 i, order = q->opt.order;
	int			 rc;

	snprintf(node, sizeof(node), "%sevent-channel", prefix);
	rc = store_write(xs, t, v->front, node, "%u",
	    loopguest_port_number(q->port));
	for (i = 0; rc == 0 && i < 1u << order; i++) {
		if (order == 0)
			snprintf(node, sizeof(node), "%sring-ref", prefix);
		else
			snprintf(node, sizeof(node), "%sring-ref%u", prefix, i);
		rc = store_write(xs, t, v->front, node, "%u", q->ring_ref[i]);
	}
	return rc;
}

/* A single queue stands at the top, unless we are to say that it is one. */
static int
write_queues(struct vbd *v, xs_transaction_t t)
{
	char		prefix[32] = "";
	bool		named = v->nr_queues > 1 || v->opt.name_queues;
	unsigned	i;
	int		rc = 0;

	if (named)
		rc = store_write(v->dom->xs, t, v->front,
		    "multi-queue-num-queues", "%u", v->nr_queues);
	for (i = 0; rc == 0 && i < v->nr_queues; i++) {
		if (named)
			snprintf(prefix, sizeof(prefix), "queue-%u/", i);
		rc = write_queue(v, t, &v->queues[i], prefix);
	}
	return rc;
}

static int
write_ring(struct vbd *v, xs_transaction_t t)
{
	struct xs_handle		*xs = v->dom->xs;
	const struct fqueue_options	*opt = &v->queues[0].opt;
	const char			*protocol;
	int				 rc;

	rc = remove_ring_nodes(v, t);
	if (rc == 0 && opt->order > 0)
		rc = store_write(xs, t, v->front, "ring-page-order", "%u",
		    opt->order);
	if (rc == 0)
		rc = write_queues(v, t);
	protocol = front_abi_protocol(opt->abi);
	if (rc == 0 && protocol != NULL)
		rc = store_write(xs, t, v->front, "protocol", "%s", protocol);
	if (rc == 0 && v->opt.persistent)
		rc = store_write(xs, t, v->front, "feature-persistent", "1");
	if (rc == 0)
		rc = store_write(xs, t, v->front, "state", "%d", v->opt.jump ?
		    XenbusStateConnected : XenbusStateInitialised);
	return rc;
}

static int
tell_ring(struct vbd *v)
{
	struct xs_handle	*xs = v->dom->xs;
	xs_transaction_t	 t;
	int			 rc;

	for (;;) {
		t = xs_transaction_start(xs);
		if (t == XBT_NULL)
			return -errno;
		rc = store_exists(xs, t, v->front, "state") ?
		    write_ring(v, t) : -ENOENT;
		if (xs_transaction_end(xs, t, rc < 0))
			return rc;
		if (errno != EAGAIN)
			return -errno;
	}
}

static bool
queues_held(const struct vbd *v)
{
	unsigned	i;

	for (i = 0; i < v->nr_queues; i++) {
		if (fqueue_held(&v->queues[i]))
			return true;
	}
	return false;
}

/* The first fault of the backend is the one that is told. */
static void
close_queues(struct vbd *v)
{
	struct fqueue	*q;

	while (v->nr_queues > 0) {
		q = &v->queues[--v->nr_queues];
		if (fqueue_close(q) < 0) {
			v->leaked = true;
			fail(v, -EPROTO, "queue %u: %s", v->nr_queues, q->why);
		}
		domain_pages_free(v->dom, q->ring_page, fqueue_pages(&q->opt));
	}
	free(v->queues);
	v->queues = NULL;
}

/* Rings, ports and buffers go; what the backend still holds is told. */
static void
release(struct vbd *v)
{
	struct domain	*d = v->dom;
	uint64_t	 until = deadline(v->opt.grace);

	while (queues_held(v) && clock_ns() < until)
		usleep(1000);
	close_queues(v);
	if (v->job_pages > 0)
		domain_pages_free(d, v->job_page, v->job_pages);
	v->job_pages = 0;
	v->open = v->ready = false;
	pthread_cond_broadcast(&d->changed);
}

/* As asked for, as far as the backend offers it. */
static struct fqueue_options
choose_options(const struct vbd *v)
{
	struct fqueue_options	 opt = {
		.abi = v->opt.abi, .order = v->opt.order,
		.segments = v->opt.segments,
		.check_padding = v->opt.check_padding,
		.writable = v->opt.writable_grants,
	};
	struct xs_handle	*xs = v->dom->xs;
	uint64_t		 order = 0, segments = 0, persistent = 0;

	store_number(xs, XBT_NULL, v->back, "max-ring-page-order", &order);
	if (opt.order > order)
		opt.order = (unsigned)order;
	store_number(xs, XBT_NULL, v->back, "feature-max-indirect-segments",
	    &segments);
	if (opt.segments > segments)
		opt.segments = segments > FRONT_MAX_SEGMENTS ?
		    (unsigned)segments : FRONT_MAX_SEGMENTS;
	store_number(xs, XBT_NULL, v->back, "feature-persistent",
	    &persistent);
	opt.persistent = v->opt.persistent && persistent != 0;
	return opt;
}

/* One, unless the backend says that it can do more. */
static unsigned
choose_queues(const struct vbd *v)
{
	uint64_t	offered = 1;

	store_number(v->dom->xs, XBT_NULL, v->back, "multi-queue-max-queues",
	    &offered);
	return v->opt.queues < offered ? v->opt.queues :
	    offered > 0 ? (unsigned)offered : 1;
}

static int
open_queue(struct vbd *v, const struct fqueue_options *opt)
{
	struct domain	*d = v->dom;
	int		 page, rc;

	page = domain_pages_alloc(d, fqueue_pages(opt));
	if (page < 0)
		return page;
	rc = fqueue_open(&v->queues[v->nr_queues], d->guest, (unsigned)page,
	    v->back_domid, opt);
	if (rc < 0)
		domain_pages_free(d, (unsigned)page, fqueue_pages(opt));
	else
		v->nr_queues++;
	return rc;
}

static int
open_queues(struct vbd *v, unsigned n)
{
	struct fqueue_options	opt = choose_options(v);
	int			rc = 0;

	opt.pool = FQUEUE_POOL / n;
	v->queues = calloc(n, sizeof(*v->queues));
	if (v->queues == NULL)
		return -ENOMEM;
	while (rc == 0 && v->nr_queues < n)
		rc = open_queue(v, &opt);
	if (rc < 0)
		close_queues(v);
	return rc;
}

static void
connect_ring(struct vbd *v)
{
	unsigned	n = choose_queues(v);
	uint64_t	kicks;
	int		rc;

	rc = open_queues(v, n);
	if (rc < 0) {
		fail(v, rc, "make %u rings of %u pages, as far as offered: %s",
		    n, 1u << v->opt.order, strerror(-rc));
		switch_state(v, XenbusStateClosed);
		return;
	}
	v->open = true;
	v->leaked = false;
	v->error[0] = '\0';
	atomic_store(&v->stop, false);
	if (read(v->kick, &kicks, sizeof(kicks)) < 0 && errno != EAGAIN)
		fail(v, -errno, "read an eventfd: %s", strerror(errno));
	rc = tell_ring(v);
	if (rc < 0) {
		fail(v, rc, "write the ring's nodes: %s", strerror(-rc));
		switch_state(v, XenbusStateClosed);
		release(v);
		return;
	}
	v->state = v->opt.jump ? XenbusStateConnected :
	    XenbusStateInitialised;
	v->connects++;
}

/* Not under a job, which is about the size that it began with. */
static void
remember_size(struct vbd *v)
{
	if (v->verify != NULL && !v->busy &&
	    verify_resize(v->verify, v->sectors) < 0)
		fail(v, -ENOMEM, "remember %" PRIu64 " sectors", v->sectors);
}

/*
 * The backend is connected: what does it say about the disk?  Read again each
 * time its state is written, as Linux does: the disk may have become larger.
 */
static void
read_properties(struct vbd *v)
{
	struct xs_handle	*xs = v->dom->xs;
	uint64_t		 sector_size, info, flush = 0, discard = 0;

	if (store_number(xs, XBT_NULL, v->back, "sectors", &v->sectors) < 0 ||
	    store_number(xs, XBT_NULL, v->back, "sector-size",
	    &sector_size) < 0 ||
	    store_number(xs, XBT_NULL, v->back, "info", &info) < 0) {
		fail(v, -EPROTO, "the backend is Connected, but sectors, "
		    "sector-size or info is missing or no number");
		switch_state(v, XenbusStateClosed);
		return;
	}
	store_number(xs, XBT_NULL, v->back, "feature-flush-cache", &flush);
	v->sector_size = (unsigned)sector_size;
	v->readonly = info & VDISK_READONLY;
	v->flush = flush != 0;
	store_number(xs, XBT_NULL, v->back, "feature-discard", &discard);
	v->discard = discard != 0;
	remember_size(v);
	if (v->state != XenbusStateConnected)
		switch_state(v, XenbusStateConnected);
	v->ready = true;
}

/* ---- steps -------------------------------------------------------------- */

/* Where our directory points to; again when the toolstack has made it anew. */
static int
adopt(struct vbd *v)
{
	struct xs_handle	*xs = v->dom->xs;
	char			*back, node[STORE_PATH];
	uint64_t		 domid = 0;

	back = store_read(xs, XBT_NULL, v->front, "backend");
	if (back == NULL)
		return -ENOENT;		/* not complete yet */
	if (store_number(xs, XBT_NULL, v->front, "backend-id", &domid) < 0)
		domid = 0;
	snprintf(v->back, sizeof(v->back), "%s", back);
	free(back);
	v->back_domid = (unsigned)domid;
	v->opt = v->dom->defaults;
	v->deaf = false;
	snprintf(node, sizeof(node), "%s/state", v->back);
	if (!xs_watch(xs, node, v->name) && errno != EEXIST)
		return fail(v, -errno, "watch %s: %s", node, strerror(errno));
	return 0;
}

void
vbd_interrupt(struct vbd *v)
{
	uint64_t	one = 1;

	atomic_store(&v->stop, true);
	if (write(v->kick, &one, sizeof(one)) < 0)
		fail(v, -errno, "wake the job: %s", strerror(errno));
}

/* The disk goes away under a guest that uses it. */
static void
lost(struct vbd *v)
{
	vbd_interrupt(v);
	v->ready = false;
	switch_state(v, XenbusStateClosed);
}

/* Our directory is no more: what comes next at its place is another disk. */
static void
forget(struct vbd *v)
{
	char	node[STORE_PATH];

	v->state = XenbusStateClosed;
	if (v->back[0] == '\0')
		return;
	snprintf(node, sizeof(node), "%s/state", v->back);
	if (!xs_unwatch(v->dom->xs, node, v->name))
		fail(v, -errno, "unwatch %s: %s", node, strerror(errno));
	v->back[0] = '\0';
	v->back_state = XenbusStateUnknown;
}

/* Read both states.  True: v->back names the other side. */
static bool
look(struct vbd *v)
{
	struct xs_handle	*xs = v->dom->xs;
	uint64_t		 ours, theirs;

	v->gone = store_number(xs, XBT_NULL, v->front, "state", &ours) < 0;
	if (v->gone && !v->open)
		forget(v);
	if (!v->gone && !v->open && (v->back[0] == '\0' ||
	    (v->state == XenbusStateClosed &&
	    ours == XenbusStateInitialising))) {
		if (adopt(v) < 0)
			return false;
		v->state = (enum xenbus_state)ours;
	}
	if (v->back[0] == '\0')
		return false;
	if (store_number(xs, XBT_NULL, v->back, "state", &theirs) < 0)
		theirs = XenbusStateUnknown;
	v->back_state = (enum xenbus_state)theirs;
	return true;
}

/* What the backend's state means for us, in the state that we are in. */
static void
follow(struct vbd *v)
{
	switch (v->back_state) {
	case XenbusStateInitialising:
		if (v->state == XenbusStateInitialising && v->opt.jump)
			connect_ring(v);
		break;
	case XenbusStateInitWait:
		if (v->state == XenbusStateInitialising)
			connect_ring(v);
		break;
	case XenbusStateConnected:
		if (v->state == XenbusStateInitialised ||
		    (v->state == XenbusStateConnected && v->open))
			read_properties(v);
		break;
	case XenbusStateClosing:
		if (v->state != XenbusStateClosed &&
		    v->state != XenbusStateClosing && !v->opt.hold)
			lost(v);
		break;
	case XenbusStateUnknown:
	case XenbusStateClosed:
		if (v->state == XenbusStateInitialised ||
		    v->state == XenbusStateConnected)
			lost(v);
		break;
	default:
		break;
	}
}

void
vbd_step(struct vbd *v)
{
	if (!look(v))
		return;
	if (v->gone && v->state != XenbusStateClosed)
		lost(v);
	else if (!v->gone && !v->deaf)
		follow(v);
	if (v->open && !v->busy && v->state == XenbusStateClosed &&
	    (v->back_state == XenbusStateClosed ||
	    v->back_state == XenbusStateUnknown))
		release(v);
}

int
vbd_new(struct domain *d, uint32_t devid, struct vbd **vp)
{
	struct vbd	*v = calloc(1, sizeof(*v));

	if (v == NULL)
		return -ENOMEM;
	v->kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (v->kick < 0) {
		free(v);
		return -errno;
	}
	v->dom = d;
	v->devid = devid;
	vbd_name(devid, v->name);
	snprintf(v->front, sizeof(v->front), "%s/device/vbd/%" PRIu32,
	    d->path, devid);
	LIST_INSERT_HEAD(&d->vbds, v, link);
	*vp = v;
	return 0;
}

void
vbd_free(struct vbd *v)
{
	LIST_REMOVE(v, link);
	release(v);
	verify_free(v->verify);
	close(v->kick);
	free(v);
}

void
vbd_idle(struct vbd *v)
{
	v->busy = false;
	remember_size(v);
	if (!v->ready) {
		vbd_step(v);
	} else if (v->job_pages > 0) {
		domain_pages_free(v->dom, v->job_page, v->job_pages);
		v->job_pages = 0;
	}
	pthread_cond_broadcast(&v->dom->changed);
}

/* ---- what a command waits for ------------------------------------------- */

static int
timed_out(struct vbd *v, const char *what, double seconds)
{
	return fail(v, -ETIMEDOUT, "%s did not happen within %g s: we are %s, "
	    "the backend is %s", what, seconds,
	    v->gone ? "gone" : vbd_state_name(v->state),
	    vbd_state_name(v->back_state));
}

int
vbd_wait_ready(struct vbd *v, double seconds)
{
	uint64_t	until = deadline(seconds);

	while (!v->ready) {
		if (v->dom->interrupt || domain_wait(v->dom, until) < 0)
			return timed_out(v, "connecting", seconds);
	}
	return 0;
}

int
vbd_wait_released(struct vbd *v, double seconds)
{
	uint64_t	until = deadline(seconds);

	while (v->open) {
		if (v->dom->interrupt || domain_wait(v->dom, until) < 0)
			return timed_out(v, "closing", seconds);
	}
	return v->leaked ? -EPROTO : 0;
}

int
vbd_shut(struct vbd *v, double seconds)
{
	uint64_t	until = deadline(seconds);
	int		rc;

	if (v->busy)
		return fail(v, -EBUSY, "a job is using it");
	if (!v->ready)
		return fail(v, -ENOTCONN, "not connected");
	v->ready = false;
	rc = switch_state(v, XenbusStateClosing);
	while (rc == 0 && v->back_state == XenbusStateConnected) {
		if (domain_wait(v->dom, until) < 0)
			rc = timed_out(v, "the backend's Closing", seconds);
	}
	if (rc == 0 && v->back_state != XenbusStateClosing)
		rc = fail(v, -EPROTO, "we are Closing, and the backend is %s "
		    "instead of Closing", vbd_state_name(v->back_state));
	if (switch_state(v, XenbusStateClosed) < 0 || rc < 0)
		return rc < 0 ? rc : -EIO;
	vbd_step(v);
	return vbd_wait_released(v, seconds);
}

int
vbd_reopen(struct vbd *v, double seconds)
{
	int	rc;

	if (v->open || v->state != XenbusStateClosed || v->gone)
		return fail(v, -EBUSY, "is not closed");
	rc = switch_state(v, XenbusStateInitialising);
	if (rc < 0)
		return rc;
	vbd_step(v);
	return vbd_wait_ready(v, seconds);
}

int
vbd_suspend(struct vbd *v, double seconds)
{
	uint64_t	until = deadline(seconds);

	if (!v->ready)
		return fail(v, -ENOTCONN, "not connected");
	v->deaf = true;
	v->ready = false;
	while (v->busy) {
		vbd_interrupt(v);
		if (domain_wait(v->dom, until) < 0)
			return timed_out(v, "the end of a job", seconds);
	}
	return 0;
}

/* One step of Linux's xenbus_reset_frontend(). */
static int
reset_step(struct vbd *v, enum xenbus_state ours, enum xenbus_state theirs)
{
	uint64_t	until = deadline(RESET_STEP);
	int		rc = switch_state(v, ours);

	while (rc == 0 && v->back_state != theirs) {
		if (domain_wait(v->dom, until) < 0)
			rc = timed_out(v, vbd_state_name(theirs), RESET_STEP);
	}
	return rc;
}

int
vbd_kexec(struct vbd *v, bool abrupt, double seconds)
{
	int	rc = vbd_suspend(v, seconds);

	if (rc == 0 && !abrupt)
		rc = reset_step(v, XenbusStateClosing, XenbusStateClosing);
	if (rc == 0)
		rc = reset_step(v, XenbusStateClosed, XenbusStateClosed);
	v->deaf = false;
	if (rc < 0)
		return rc;
	vbd_step(v);
	rc = vbd_wait_released(v, seconds);
	return rc < 0 ? rc : vbd_reopen(v, RESET_STEP);
}
