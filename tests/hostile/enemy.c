/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See enemy.h: the domain, its nodes, its ring. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/hostile/enemy.h"

struct world world;

int
fail(const char *fmt, ...)
{
	va_list	ap;

	printf("    ");
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
	return -1;
}

uint64_t
now_ms(void)
{
	struct timespec	t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

void
sleep_ms(unsigned ms)
{
	struct timespec	t = { ms / 1000, (long)(ms % 1000) * 1000000 };

	nanosleep(&t, NULL);
}

/* ---- nodes -------------------------------------------------------------- */

static int
write_at(struct enemy *e, const char *dir, const char *node,
    const char *value)
{
	char	path[256];

	snprintf(path, sizeof(path), "%s/%s", dir, node);
	if (!xs_write(e->xs, XBT_NULL, path, value, (unsigned)strlen(value)))
		return fail("write %s: %s", path, strerror(errno));
	return 0;
}

int
enemy_write(struct enemy *e, const char *node, const char *value)
{
	return write_at(e, e->front_dir, node, value);
}

int
enemy_remove(struct enemy *e, const char *node)
{
	char	path[256];

	snprintf(path, sizeof(path), "%s/%s", e->front_dir, node);
	if (!xs_rm(e->xs, XBT_NULL, path) && errno != ENOENT)
		return fail("remove %s: %s", path, strerror(errno));
	return 0;
}

int
enemy_state(struct enemy *e, enum xenbus_state state)
{
	char	value[16];

	snprintf(value, sizeof(value), "%d", (int)state);
	return enemy_write(e, "state", value);
}

enum xenbus_state
enemy_backend(struct enemy *e)
{
	char		path[128], *text;
	int		state = XenbusStateUnknown;

	snprintf(path, sizeof(path), "%s/state", e->back_dir);
	text = xs_read(e->xs, XBT_NULL, path, NULL);
	if (text != NULL)
		state = atoi(text);
	free(text);
	return (enum xenbus_state)state;
}

int
enemy_await(struct enemy *e, enum xenbus_state want)
{
	uint64_t	until = now_ms() + WAIT_S * 1000;

	while (enemy_backend(e) != want) {
		if (now_ms() > until)
			return fail("the backend is in state %d, not %d",
			    (int)enemy_backend(e), (int)want);
		sleep_ms(1);
	}
	return 0;
}

/* ---- life --------------------------------------------------------------- */

int
enemy_new(struct enemy *e, const char *spec)
{
	char	dir[64], words[512], name[32];
	int	rc;

	enemy_use(e, 0);
	snprintf(dir, sizeof(dir), "/local/domain/%u", e->domid);
	snprintf(name, sizeof(name), "hostile-%u", e->domid);
	snprintf(e->front_dir, sizeof(e->front_dir), "%s/device/vbd/%u", dir,
	    DEVID);
	snprintf(e->back_dir, sizeof(e->back_dir),
	    "/local/domain/0/backend/ringback/%u/%u", e->domid, DEVID);
	rc = loopguest_create(&e->guest, e->domid, PAGES);
	if (rc < 0)
		return fail("create domain %u: %s", e->domid, strerror(-rc));
	e->xs = xs_open(0);
	if (e->xs == NULL)
		return fail("connect to xenstored: %s", strerror(errno));
	if (write_at(e, dir, "name", name) < 0)
		return -1;
	rc = loopguest_introduce(e->guest, e->xs);
	if (rc < 0)
		return fail("introduce the domain: %s", strerror(-rc));
	snprintf(words, sizeof(words), "attach %u xvda %s --no-wait", e->domid,
	    spec);
	if (ringback(words) < 0)
		return -1;
	return enemy_await(e, XenbusStateInitWait);
}

static void
enemy_free(struct enemy *e)
{
	char		dir[64];
	unsigned	i;

	for (i = 0; i < MAX_QUEUES_TRIED; i++) {
		if (e->queue[i].port != NULL)
			loopguest_port_close(e->queue[i].port);
		e->queue[i].port = NULL;
	}
	e->ring = false;
	snprintf(dir, sizeof(dir), "/local/domain/%u", e->domid);
	loopguest_release(e->guest, e->xs);
	loopguest_destroy(e->guest);
	if (!xs_rm(e->xs, XBT_NULL, dir))
		fail("remove %s: %s", dir, strerror(errno));
	xs_close(e->xs);
	e->guest = NULL;
	e->xs = NULL;
}

int
enemy_gone(struct enemy *e)
{
	uint64_t	until = now_ms() + WAIT_S * 1000;
	char		page[256];
	struct xs_handle *xs = xs_open(0);
	void		*state;
	bool		left = true;

	snprintf(page, sizeof(page), "%s/%u-%u.page", world.run_dir, e->domid,
	    DEVID);
	while (xs != NULL && left && now_ms() < until) {
		state = xs_read(xs, XBT_NULL, e->back_dir, NULL);
		left = state != NULL || access(page, F_OK) == 0;
		free(state);
		if (left)
			sleep_ms(2);
	}
	if (xs != NULL)
		xs_close(xs);
	return left ? fail("%s or %s is left", e->back_dir, page) : 0;
}

int
enemy_destroy(struct enemy *e)
{
	enemy_free(e);
	return enemy_gone(e);
}

int
enemy_detach(struct enemy *e)
{
	char	words[64];
	int	rc = 0;

	/* A guest that is closed when it is asked to close. */
	snprintf(words, sizeof(words), "detach %u xvda", e->domid);
	if (enemy_state(e, XenbusStateClosed) < 0 || ringback(words) < 0)
		rc = -1;
	if (e->ring && enemy_drop_ring(e) < 0)
		rc = -1;
	if (loopguest_grants(e->guest) != 0)
		rc = fail("%u grants are left", loopguest_grants(e->guest));
	enemy_free(e);
	return enemy_gone(e) < 0 ? -1 : rc;
}

/* ---- the ring ----------------------------------------------------------- */

volatile uint32_t *
enemy_words(struct enemy *e)
{
	return (volatile uint32_t *)(void *)e->q->front.shared;
}

static int
write_number(struct enemy *e, const char *node, uint32_t n)
{
	char	value[16];

	snprintf(value, sizeof(value), "%u", n);
	return enemy_write(e, node, value);
}

void
enemy_use(struct enemy *e, unsigned queue)
{
	e->q = &e->queue[queue];
}

static int
open_queue(struct enemy *e, struct enemy_queue *q)
{
	unsigned	i;
	int		rc;

	memset(q, 0, sizeof(*q));
	q->page = (unsigned)(q - e->queue) << FRONT_MAX_ORDER;
	front_init(&q->front, loopguest_page(e->guest, q->page), e->order,
	    e->abi);
	for (i = 0; i < 1u << e->order; i++) {
		rc = loopguest_grant(e->guest, q->page + i, 0, false,
		    &q->ring_ref[i]);
		if (rc < 0)
			return fail("grant the ring: %s", strerror(-rc));
	}
	rc = loopguest_port_open(e->guest, 0, &q->port);
	return rc < 0 ? fail("open a port: %s", strerror(-rc)) : 0;
}

static int
write_queue(struct enemy *e, const struct enemy_queue *q, const char *prefix)
{
	char		node[64];
	unsigned	i;

	snprintf(node, sizeof(node), "%sring-ref", prefix);
	if (enemy_remove(e, node) < 0)
		return -1;
	snprintf(node, sizeof(node), "%sevent-channel", prefix);
	if (write_number(e, node, loopguest_port_number(q->port)) < 0)
		return -1;
	for (i = 0; i < 1u << e->order; i++) {
		snprintf(node, sizeof(node), "%sring-ref%u", prefix, i);
		if (write_number(e, node, q->ring_ref[i]) < 0)
			return -1;
	}
	return 0;
}

static int
open_queues(struct enemy *e)
{
	char		prefix[32] = "";
	unsigned	i;

	if (e->nr_queues == 1 ? enemy_remove(e, "multi-queue-num-queues") < 0 :
	    write_number(e, "multi-queue-num-queues", e->nr_queues) < 0)
		return -1;
	e->ring = true;
	for (i = 0; i < e->nr_queues; i++) {
		if (e->nr_queues > 1)
			snprintf(prefix, sizeof(prefix), "queue-%u/", i);
		if (open_queue(e, &e->queue[i]) < 0 ||
		    write_queue(e, &e->queue[i], prefix) < 0)
			return -1;
	}
	return 0;
}

int
enemy_ring(struct enemy *e, enum front_abi abi, unsigned order)
{
	e->abi = abi;
	e->order = order;
	enemy_use(e, e->nr_queues - 1);
	if (open_queues(e) < 0 ||
	    write_number(e, "ring-page-order", order) < 0 || (e->persistent &&
	    enemy_write(e, "feature-persistent", "1") < 0))
		return -1;
	return front_abi_protocol(abi) == NULL ?
	    enemy_remove(e, "protocol") :
	    enemy_write(e, "protocol", front_abi_protocol(abi));
}

int
enemy_connect(struct enemy *e, enum front_abi abi, unsigned order)
{
	if (enemy_ring(e, abi, order) < 0 ||
	    enemy_state(e, XenbusStateInitialised) < 0 ||
	    enemy_await(e, XenbusStateConnected) < 0)
		return -1;
	return enemy_state(e, XenbusStateConnected);
}

static int
drop_queue(struct enemy *e, struct enemy_queue *q)
{
	unsigned	i;
	int		rc, bad = 0;

	if (loopguest_port_bound(q->port))
		bad = fail("the backend has not closed its end of the port");
	loopguest_port_close(q->port);
	q->port = NULL;
	for (i = 0; i < 1u << e->order; i++) {
		rc = loopguest_ungrant(e->guest, q->ring_ref[i]);
		if (rc == -EBUSY) {
			bad = fail("page %u of the ring is still mapped", i);
			loopguest_revoke(e->guest, q->ring_ref[i]);
		}
	}
	return bad;
}

int
enemy_drop_ring(struct enemy *e)
{
	unsigned	i;
	int		bad = 0;

	for (i = 0; i < MAX_QUEUES_TRIED; i++) {
		if (e->queue[i].port != NULL && drop_queue(e,
		    &e->queue[i]) < 0)
			bad = -1;
	}
	e->ring = false;
	return bad;
}

static bool
ring_held(struct enemy *e)
{
	const struct enemy_queue	*q;
	bool				 held = false;
	unsigned			 i;

	for (q = e->queue; q < e->queue + MAX_QUEUES_TRIED; q++) {
		if (q->port == NULL)
			continue;
		held |= loopguest_port_bound(q->port);
		for (i = 0; i < 1u << e->order; i++)
			held |= loopguest_grant_mapped(e->guest,
			    q->ring_ref[i]) > 0;
	}
	return held;
}

/* Closed is answered with Closed, and in InitWait with nothing (device.c). */
int
enemy_recover(struct enemy *e)
{
	uint64_t		until = now_ms() + WAIT_S * 1000;
	enum xenbus_state	theirs;

	if (enemy_state(e, XenbusStateClosed) < 0)
		return -1;
	while ((theirs = enemy_backend(e)) != XenbusStateClosed &&
	    !(theirs == XenbusStateInitWait && e->ring && !ring_held(e))) {
		if (now_ms() > until)
			return fail("we are Closed, the backend is in state %d",
			    (int)theirs);
		sleep_ms(1);
	}
	if ((e->ring && enemy_drop_ring(e) < 0) ||
	    enemy_state(e, XenbusStateInitialising) < 0)
		return -1;
	return enemy_await(e, XenbusStateInitWait);
}

/*
 * After states at full speed the backend may still be busy with one of them:
 * what it shows counts only when it lasts.
 */
int
enemy_settle(struct enemy *e)
{
	uint64_t		until = now_ms() + WAIT_S * 1000;
	enum xenbus_state	theirs;
	unsigned		calm = 0;

	if (enemy_state(e, XenbusStateClosed) < 0)
		return -1;
	while (calm < CALM_MS) {
		theirs = enemy_backend(e);
		calm = (theirs == XenbusStateClosed ||
		    theirs == XenbusStateInitWait) &&
		    !(e->ring && ring_held(e)) ? calm + 1 : 0;
		if (now_ms() > until)
			return fail("we are Closed, the backend is in state %d"
			    "%s", (int)theirs, e->ring && ring_held(e) ?
			    " and holds the ring" : "");
		sleep_ms(1);
	}
	return 0;
}

int
enemy_disconnect(struct enemy *e)
{
	if (enemy_state(e, XenbusStateClosing) < 0 ||
	    enemy_await(e, XenbusStateClosing) < 0)
		return -1;
	return enemy_recover(e);
}

/* ---- requests ----------------------------------------------------------- */

void *
enemy_data(struct enemy *e, unsigned n)
{
	return loopguest_page(e->guest, DATA_PAGE + n);
}

uint32_t
enemy_grant(struct enemy *e, unsigned n, bool readonly)
{
	uint32_t	ref = 0;
	int		rc;

	rc = loopguest_grant(e->guest, DATA_PAGE + n, 0, readonly, &ref);
	if (rc < 0)
		fail("grant page %u: %s", n, strerror(-rc));
	return ref;
}

void
enemy_ungrant(struct enemy *e, uint32_t ref)
{
	int	rc = loopguest_ungrant(e->guest, ref);

	/* The backend may have it mapped until it is Closed. */
	if (rc == -EBUSY && e->persistent)
		rc = loopguest_revoke(e->guest, ref);
	if (rc < 0)
		fail("take grant %u back: %s", ref, strerror(-rc));
}

void
enemy_push(struct enemy *e)
{
	if (front_push(&e->q->front) || e->eager)
		loopguest_port_notify(e->q->port);
}

void
enemy_ask(struct enemy *e, struct front_request *req, int status)
{
	/* A full ring is answered first; no attack asks that much. */
	if (front_room(&e->q->front) == 0)
		enemy_collect(e);
	if (e->q->nr_ids == MAX_IDS)
		e->q->lost = true;
	if (e->q->lost)
		return;
	req->id = e->q->nr_ids;
	e->q->id[e->q->nr_ids].op = req->op == BLKIF_OP_INDIRECT ? req->inner :
	    req->op;
	e->q->id[e->q->nr_ids].status = (int16_t)status;
	e->q->nr_ids++;
	front_put(&e->q->front, req);
}

static int
judge(struct enemy *e, const struct front_response *rsp)
{
	unsigned	n = (unsigned)rsp->id;

	if (rsp->id >= e->q->nr_ids || e->q->id[n].seen)
		return fail("an answer to %llu, which nobody asked or which "
		    "was answered already", (unsigned long long)rsp->id);
	e->q->id[n].seen = 1;
	e->q->id[n].got = rsp->status;
	e->q->answered++;
	if (rsp->op != e->q->id[n].op)
		return fail("request %u was operation %u, its answer is %u", n,
		    e->q->id[n].op, rsp->op);
	if (rsp->padded)
		return fail("the padding of answer %u is not zero", n);
	if (e->q->id[n].status == ANY ? rsp->status != BLKIF_RSP_OKAY &&
	    rsp->status != BLKIF_RSP_ERROR : rsp->status != e->q->id[n].status)
		return fail("request %u (operation %u) was answered with %d, "
		    "not %d", n, rsp->op, rsp->status, e->q->id[n].status);
	return 0;
}

/*
 * Polling, without the port: what wakes the guest up is tested by loopfront,
 * and some attacks have closed it.
 */
static int
collect(struct enemy *e)
{
	uint64_t		until = now_ms() + WAIT_S * 1000;
	struct front_response	rsp;
	int			n;

	while (e->q->answered < e->q->nr_ids) {
		n = front_take(&e->q->front, &rsp);
		if (n < 0)
			return fail("more answers than questions");
		if (n > 0 && judge(e, &rsp) < 0)
			return -1;
		if (n == 0 && now_ms() > until)
			return fail("%u of %u requests were not answered",
			    e->q->nr_ids - e->q->answered, e->q->nr_ids);
		if (n == 0)
			usleep(100);
	}
	return front_answered(&e->q->front) ? fail("an answer too many") : 0;
}

int
enemy_collect(struct enemy *e)
{
	/* One failure is told once, and waited for once. */
	if (!e->q->lost) {
		enemy_push(e);
		e->q->lost = collect(e) < 0;
	}
	return e->q->lost ? -1 : 0;
}
