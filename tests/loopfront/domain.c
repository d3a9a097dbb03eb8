/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See domain.h. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "tests/loopfront/domain.h"
#include "tests/loopfront/vbd.h"

uint64_t
clock_ns(void)
{
	struct timespec	ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* ---- memory ------------------------------------------------------------- */

int
domain_pages_alloc(struct domain *d, unsigned n)
{
	unsigned	i, run = 0, npages = loopguest_npages(d->guest);

	for (i = 0; i < npages && run < n; i++)
		run = d->page_used[i] ? 0 : run + 1;
	if (run < n)
		return -ENOMEM;
	memset(d->page_used + i - n, 1, n);
	return (int)(i - n);
}

void
domain_pages_free(struct domain *d, unsigned first, unsigned n)
{
	memset(d->page_used + first, 0, n);
}

/* ---- nodes -------------------------------------------------------------- */

/* Domain 0 owns them, the guest may read. */
static int
make_directory(struct domain *d, xs_transaction_t t, const char *path)
{
	struct xs_permissions	perms[2] = {
		{ .id = 0, .perms = XS_PERM_NONE },
		{ .id = d->domid, .perms = XS_PERM_READ },
	};

	if (!xs_mkdir(d->xs, t, path) ||
	    !xs_set_permissions(d->xs, t, path, perms, 2))
		return -errno;
	return 0;
}

static int
write_nodes(struct domain *d, xs_transaction_t t, const char *name)
{
	unsigned long	kib = (unsigned long)loopguest_npages(d->guest) * 4;
	char		path[STORE_PATH];
	int		rc;

	snprintf(path, sizeof(path), "%s/device", d->path);
	if ((rc = make_directory(d, t, d->path)) < 0 ||
	    (rc = make_directory(d, t, d->vm)) < 0 ||
	    (rc = make_directory(d, t, path)) < 0 ||
	    (rc = store_write(d->xs, t, d->vm, "name", "%s", name)) < 0 ||
	    (rc = store_write(d->xs, t, d->vm, "uuid", "%s", d->vm + 4)) < 0 ||
	    (rc = store_write(d->xs, t, d->path, "vm", "%s", d->vm)) < 0 ||
	    (rc = store_write(d->xs, t, d->path, "name", "%s", name)) < 0 ||
	    (rc = store_write(d->xs, t, d->path, "domid", "%u",
	    d->domid)) < 0 ||
	    (rc = store_write(d->xs, t, d->path, "memory/static-max", "%lu",
	    kib)) < 0)
		return rc;
	return store_write(d->xs, t, d->path, "memory/target", "%lu", kib);
}

static int
domain_nodes(struct domain *d, const char *name)
{
	xs_transaction_t	t;
	int			rc;

	for (;;) {
		t = xs_transaction_start(d->xs);
		if (t == XBT_NULL)
			return -errno;
		rc = write_nodes(d, t, name);
		if (xs_transaction_end(d->xs, t, rc < 0))
			return rc;
		if (errno != EAGAIN)
			return -errno;
	}
}

static int
new_uuid(char vm[64])
{
	char	 uuid[40] = "";
	FILE	*f = fopen("/proc/sys/kernel/random/uuid", "re");

	if (f == NULL)
		return -errno;
	if (fscanf(f, "%36s", uuid) != 1)
		uuid[0] = '\0';
	fclose(f);
	snprintf(vm, 64, "/vm/%s", uuid);
	return uuid[0] == '\0' ? -EIO : 0;
}

/* ---- life --------------------------------------------------------------- */

static int
failed(const struct domain *d, const char *what, int rc)
{
	fprintf(stderr, "loopfront: domain %u: %s: %s\n", d->domid, what,
	    strerror(-rc));
	return rc;
}

static void
domain_free(struct domain *d)
{
	if (d->xs != NULL)
		xs_close(d->xs);
	if (d->guest != NULL)
		loopguest_destroy(d->guest);
	if (d->stop_fd >= 0)
		close(d->stop_fd);
	pthread_cond_destroy(&d->changed);
	pthread_mutex_destroy(&d->lock);
	free(d->page_used);
	free(d);
}

static int
domain_setup(struct domain *d, const struct options *o)
{
	unsigned	npages = (unsigned)(o->memory / LOOPGUEST_PAGE_SIZE);
	char		name[64], path[STORE_PATH];
	int		rc;

	d->page_used = calloc(npages, 1);
	d->stop_fd = eventfd(0, EFD_CLOEXEC);
	if (d->page_used == NULL || d->stop_fd < 0)
		return failed(d, "out of memory or descriptors", -errno);
	if ((rc = loopguest_create(&d->guest, d->domid, npages)) < 0)
		return failed(d, "create it at loopxen's broker "
		    "(LOOPXEN_SOCKET, see \"loopxen env\")", rc);
	if ((d->xs = xs_open(0)) == NULL)
		return failed(d, "connect to xenstored", -errno);
	if (!d->hidden && (rc = loopguest_introduce(d->guest, d->xs)) < 0)
		return failed(d, "introduce it to xenstored", rc);
	snprintf(d->path, sizeof(d->path), "/local/domain/%u", d->domid);
	if (o->name != NULL)
		snprintf(name, sizeof(name), "%s", o->name);
	else
		snprintf(name, sizeof(name), "guest-%u", d->domid);
	if (d->domid > 0 && ((rc = new_uuid(d->vm)) < 0 ||
	    (rc = domain_nodes(d, name)) < 0))
		return failed(d, "write its nodes", rc);
	snprintf(path, sizeof(path), "%s/device/vbd", d->path);
	if (!xs_watch(d->xs, path, "disks"))
		return failed(d, "watch its disks", -errno);
	return 0;
}

int
domain_open(struct domain **dp, const struct options *o)
{
	struct domain		*d = calloc(1, sizeof(*d));
	pthread_condattr_t	 attr;
	int			 rc;

	if (d == NULL)
		return -ENOMEM;
	d->domid = o->domid;
	d->hidden = o->hidden || o->domid == 0;
	d->defaults = *o;
	d->stop_fd = -1;
	LIST_INIT(&d->vbds);
	pthread_mutex_init(&d->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&d->changed, &attr);
	pthread_condattr_destroy(&attr);

	rc = domain_setup(d, o);
	if (rc < 0) {
		domain_free(d);
		return rc;
	}
	*dp = d;
	return 0;
}

void
domain_close(struct domain *d)
{
	struct vbd	*v;
	int		 rc;

	while ((v = LIST_FIRST(&d->vbds)) != NULL)
		vbd_free(v);
	if (d->domid > 0 &&
	    ((rc = store_remove(d->xs, XBT_NULL, d->path, NULL)) < 0 ||
	    (rc = store_remove(d->xs, XBT_NULL, d->vm, NULL)) < 0))
		failed(d, "remove its nodes", rc);
	if (!d->hidden && (rc = loopguest_release(d->guest, d->xs)) < 0)
		failed(d, "release it from xenstored", rc);
	domain_free(d);
}

/* ---- what happens ------------------------------------------------------- */

int
domain_wait(struct domain *d, uint64_t until_ns)
{
	struct timespec	ts = {
		.tv_sec = (time_t)(until_ns / 1000000000u),
		.tv_nsec = (long)(until_ns % 1000000000u),
	};

	if (pthread_cond_timedwait(&d->changed, &d->lock, &ts) == ETIMEDOUT)
		return -ETIMEDOUT;
	return 0;
}

static void
new_disk(struct domain *d, const char *name)
{
	struct vbd	*v;
	uint32_t	 devid;
	int		 rc;

	if (vbd_parse(name, &devid) < 0 || vbd_find(d, devid) != NULL)
		return;
	rc = vbd_new(d, devid, &v);
	if (rc < 0)
		failed(d, "follow a new disk", rc);
}

static void
find_disks(struct domain *d)
{
	char		 path[STORE_PATH], **names;
	unsigned	 n = 0, i;

	snprintf(path, sizeof(path), "%s/device/vbd", d->path);
	names = xs_directory(d->xs, XBT_NULL, path, &n);
	for (i = 0; names != NULL && i < n; i++)
		new_disk(d, names[i]);
	free(names);
}

/* The disk that an event is about, or NULL. */
static struct vbd *
whose(struct domain *d, const char *path, const char *token)
{
	size_t		 n = strlen(d->path);
	char		 name[16];
	uint32_t	 devid;

	if (strcmp(token, "disks") != 0)	/* then it is the disk's name */
		return vbd_parse(token, &devid) == 0 ? vbd_find(d, devid) :
		    NULL;
	if (strncmp(path, d->path, n) != 0 ||
	    sscanf(path + n, "/device/vbd/%15[0-9]", name) != 1 ||
	    vbd_parse(name, &devid) < 0)
		return NULL;
	return vbd_find(d, devid);
}

/* All events of a disk are one reason to look at it, and others at all. */
static void
take_watches(struct domain *d)
{
	char		**event;
	bool		  any = false, all = false;
	struct vbd	 *v;

	while ((event = xs_check_watch(d->xs)) != NULL) {
		v = whose(d, event[XS_WATCH_PATH], event[XS_WATCH_TOKEN]);
		free(event);
		any = true;
		if (v == NULL)
			all = true;
		else
			v->touched = true;
	}
	if (all)
		find_disks(d);
	LIST_FOREACH(v, &d->vbds, link) {
		if (all || v->touched)
			vbd_step(v);
		v->touched = false;
	}
	if (any)
		pthread_cond_broadcast(&d->changed);
}

/* True: that was all. */
static bool
told_to_stop(struct domain *d)
{
	uint64_t	n;
	bool		ended;

	if (read(d->stop_fd, &n, sizeof(n)) < 0)
		failed(d, "read an eventfd", -errno);
	domain_lock(d);
	d->stopping = true;
	ended = d->ended;
	pthread_cond_broadcast(&d->changed);
	domain_unlock(d);
	return ended;
}

int
domain_run(struct domain *d)
{
	struct pollfd	fds[2] = {
		{ .fd = xs_fileno(d->xs), .events = POLLIN },
		{ .fd = d->stop_fd, .events = POLLIN },
	};

	for (;;) {
		if (poll(fds, 2, -1) < 0) {
			if (errno == EINTR)
				continue;
			return failed(d, "wait for xenstored", -errno);
		}
		if (fds[0].revents & (POLLERR | POLLHUP | POLLNVAL))
			return failed(d, "xenstored is gone", -EPIPE);
		if ((fds[1].revents & POLLIN) && told_to_stop(d))
			return 0;
		domain_lock(d);
		take_watches(d);
		domain_unlock(d);
	}
}

void
domain_stop(struct domain *d)
{
	uint64_t	one = 1;

	if (write(d->stop_fd, &one, sizeof(one)) < 0)
		failed(d, "stop", -errno);
}

void
domain_end(struct domain *d)
{
	domain_lock(d);
	d->ended = true;
	domain_unlock(d);
	domain_stop(d);
}

void
domain_interrupt(struct domain *d, bool yes)
{
	struct vbd	*v;

	d->interrupt = yes;
	LIST_FOREACH(v, &d->vbds, link) {
		if (yes && v->busy)
			vbd_interrupt(v);
	}
	pthread_cond_broadcast(&d->changed);
}
