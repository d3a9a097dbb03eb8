/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * qcow2_write: writes and discards.
 *
 * A write is planned under the lock, piece by piece.  By what its first
 * cluster is, a piece is
 *
 *   PLAIN     mapped, with a refcount of one: data goes where it is
 *   IN_PLACE  there is a host cluster, but (parts of) it read as something
 *             else: zero flag, subclusters not allocated
 *   FRESH     no host cluster: one is taken, its rest is zeroes or comes from
 *             the backing file
 *   REPLACE   compressed, or shared with a snapshot: one is taken, the old
 *             content is copied, the old cluster let go
 *
 * All but PLAIN are allocations.  What they copy is at most the rest of the
 * first and of the last cluster (or subcluster), and goes out with the data
 * in one I/O.  The L2 entries change when that is done.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/qcow2_io.h"
#include "drivers/qcow2_map.h"
#include "drivers/qcow2_meta.h"

#define DATA_IOV 28u	/* elements of an allocation's own data; the rest of */
			/* QCOW2_SUB_IOV is for 2 * 16 pieces of zeroes */
#define MAX_GROUPS 64u	/* discarded before others get the lock */

enum write_kind { PLAIN, IN_PLACE, FRESH, REPLACE };

struct plan {
	enum write_kind     kind;
	struct qcow2_slice *slice;
	uint64_t cluster;		/* guest cluster of the first byte */
	uint64_t in;			/* bytes into it */
	uint64_t bytes;			/* of the guest's data */
	uint32_t count;			/* clusters touched */
	uint64_t host;			/* offset of the first one */
	uint32_t head, tail;		/* bytes to write round the data */
	bool     head_zero, tail_zero;	/* they are zeroes */
	struct qcow2_alloc *join;
};

/*
 * Looking at entries.
 */

/* What the bytes [from, to) of a cluster are for a write, or -EUCLEAN. */
static int
classify(const struct qcow2 *q, const struct qcow2_slice *s, uint64_t cluster,
    uint64_t from, uint64_t to)
{
	const uint64_t *words = qcow2_entry(q->top, s, cluster);
	uint64_t entry = be64toh(words[0]), offset, bitmap, units;

	if ((entry & QCOW2_COMPRESSED) != 0)
		return REPLACE;
	offset = entry & QCOW2_OFFSET_MASK;
	if ((offset & (q->cluster_size - 1)) != 0)
		return -EUCLEAN;
	if (q->extended) {
		bitmap = be64toh(words[1]);
		if ((bitmap & bitmap >> 32 & 0xffffffff) != 0 ||
		    (offset == 0 && (bitmap & 0xffffffff) != 0))
			return -EUCLEAN;
	} else if ((entry & QCOW2_ZERO) != 0 && q->top->h.version < 3) {
		return -EUCLEAN;
	}
	if (offset == 0)
		return FRESH;
	if ((entry & QCOW2_COPIED) == 0)
		return REPLACE;
	if (!q->extended)
		return (entry & QCOW2_ZERO) != 0 ? IN_PLACE : PLAIN;
	units = qcow2_units(q->unit_bits, from, to);
	return (bitmap & units) == units ? PLAIN : IN_PLACE;
}

/*
 * Does the guest see zeroes in all bytes [from, to) of a cluster that is not
 * PLAIN?
 */
static bool
reads_zero(const struct qcow2 *q, const struct qcow2_slice *s,
    uint64_t cluster, uint64_t from, uint64_t to)
{
	const uint64_t *words = qcow2_entry(q->top, s, cluster);
	uint64_t entry = be64toh(words[0]), bitmap, units;

	if ((entry & QCOW2_COMPRESSED) != 0)
		return false;
	if (!q->extended)
		return (entry & QCOW2_ZERO) != 0 ||
		    ((entry & QCOW2_OFFSET_MASK) == 0 && !q->backed);
	bitmap = be64toh(words[1]);
	units = qcow2_units(q->unit_bits, from, to);
	return (bitmap & units) == 0 &&
	    (!q->backed || (bitmap >> 32 & units) == units);
}

/* Is the subcluster at this byte in the host cluster already? */
static bool
unit_allocated(const struct qcow2 *q, const struct qcow2_slice *s,
    uint64_t cluster, uint64_t in)
{
	return q->extended && (be64toh(qcow2_entry(q->top, s, cluster)[1]) >>
	    (in >> q->unit_bits) & 1) != 0;
}

static uint64_t
host_of(const struct qcow2 *q, const struct qcow2_slice *s, uint64_t cluster)
{
	return be64toh(qcow2_entry(q->top, s, cluster)[0]) &
	    QCOW2_OFFSET_MASK;
}

/*
 * Slices that change.  Under 'lock', all of it.
 */

static bool
slice_may_change(const struct qcow2 *q, const struct qcow2_slice *s)
{
	return qcow2_slice_busy(s) || q->top->slices->nr_busy < q->max_busy;
}

static void
slice_add_writer(struct qcow2 *q, struct qcow2_slice *s)
{
	if (!qcow2_slice_busy(s))
		q->top->slices->nr_busy++;
	s->writers++;
}

static void
slice_remove_writer(struct qcow2 *q, struct qcow2_slice *s)
{
	s->writers--;
	if (!qcow2_slice_busy(s))
		q->top->slices->nr_busy--;
}

static void
slice_changed(struct qcow2 *q, struct qcow2_slice *s)
{
	if (!qcow2_slice_busy(s))
		q->top->slices->nr_busy++;
	s->dirty = true;
	qcow2_meta_dirty(q);
}

/*
 * What both writes and discards must find: the slice of a cluster, loaded,
 * of a table that is ours alone.  NULL: the request was parked, or, with
 * req->error set, failed.
 */
static struct qcow2_slice *
slice_for_change(struct qcow2 *q, struct qcow2_request *req, uint64_t cluster)
{
	uint64_t table = qcow2_l1_entry(q->top, cluster);
	struct qcow2_slice *s;

	if ((table & QCOW2_OFFSET_MASK & (q->cluster_size - 1)) != 0) {
		qcow2_mark_corrupt(q);
		req->error = -EIO;
		return NULL;
	}
	if ((table & QCOW2_OFFSET_MASK) == 0 || (table & QCOW2_COPIED) == 0) {
		qcow2_park(q, req, QCOW2_NEED_TABLE, cluster >> q->l2_bits);
		return NULL;
	}
	s = qcow2_slices_find(q->top->slices, qcow2_slice_key(q->top,
	    cluster));
	if (s == NULL || s->loading) {
		qcow2_slice_need(req, q->top, qcow2_slice_key(q->top,
		    cluster));
		return NULL;
	}
	if (!slice_may_change(q, s)) {
		qcow2_park(q, req, QCOW2_NEED_ROOM, 0);
		return NULL;
	}
	return s;
}

/* False: parked, or failed with req->error set. */
static bool
may_write(struct qcow2 *q, struct qcow2_request *req)
{
	if (q->failed != 0 || q->corrupt) {
		req->error = q->failed != 0 ? q->failed : -EIO;
		return false;
	}
	if (q->autoclear) {
		qcow2_park(q, req, QCOW2_NEED_HEADER, 0);
		return false;
	}
	return true;
}

/*
 * Planning a write.  Each returns false when the request waits or failed.
 */

static bool
plan_corrupt(struct qcow2 *q, struct qcow2_request *req)
{
	qcow2_mark_corrupt(q);
	req->error = -EIO;
	return false;
}

/* As far as the host clusters follow each other. */
static bool
plan_plain(struct qcow2 *q, struct qcow2_request *req, struct plan *p)
{
	uint64_t max = req->end - req->next, n, cluster;

	p->host = host_of(q, p->slice, p->cluster);
	p->bytes = q->cluster_size - p->in;
	for (p->count = 1; p->bytes < max; p->count++, p->bytes += n) {
		cluster = p->cluster + p->count;
		n = max - p->bytes;
		if (n > q->cluster_size)
			n = q->cluster_size;
		if (qcow2_slice_key(q->top, cluster) != p->slice->key ||
		    classify(q, p->slice, cluster, 0, n) != PLAIN ||
		    host_of(q, p->slice, cluster) != p->host +
		    p->count * q->cluster_size)
			break;
	}
	if (p->bytes > max)
		p->bytes = max;
	if (qcow2_overlap_hit(&q->overlap, p->host >> q->cluster_bits,
	    p->count))
		return plan_corrupt(q, req);
	return true;
}

/* The clusters from the first that are of its class, 'max' bytes at most. */
static void
plan_group(struct qcow2 *q, struct plan *p, uint64_t max)
{
	uint64_t cluster;

	p->bytes = q->cluster_size - p->in;
	p->count = 1;
	while (p->kind != IN_PLACE && p->bytes < max) {
		cluster = p->cluster + p->count;
		if (qcow2_slice_key(q->top, cluster) != p->slice->key ||
		    classify(q, p->slice, cluster, 0, 1) != (int)p->kind)
			break;
		p->bytes += q->cluster_size;
		p->count++;
	}
	if (p->bytes > max)
		p->bytes = max;
}

/* Cut the plan to so many clusters. */
static void
plan_cut(const struct qcow2 *q, struct plan *p, uint32_t count)
{
	if (p->count <= count)
		return;
	p->count = count;
	p->bytes = count * q->cluster_size - p->in;
}

/* What has to be written round the data. 'zero': the rest reads so. */
static void
plan_edges(const struct qcow2 *q, struct plan *p, bool zero)
{
	uint64_t unit = p->kind == REPLACE ? q->cluster_size :
	    1ull << q->unit_bits;
	uint64_t end = p->in + p->bytes;	/* from the first cluster */
	uint64_t last = p->cluster + p->count - 1;
	uint64_t last_in = (end - 1) & (q->cluster_size - 1);

	p->head = (uint32_t)(p->in & (unit - 1));
	p->tail = (uint32_t)(-end & (unit - 1));
	p->head_zero = reads_zero(q, p->slice, p->cluster, p->in - p->head,
	    p->in);
	p->tail_zero = reads_zero(q, p->slice, last, last_in + 1,
	    last_in + 1 + p->tail);
	if ((p->head_zero && zero) || (p->kind == IN_PLACE &&
	    unit_allocated(q, p->slice, p->cluster, p->in)))
		p->head = 0;
	if ((p->tail_zero && zero) || (p->kind == IN_PLACE &&
	    unit_allocated(q, p->slice, last, last_in)))
		p->tail = 0;
}

/*
 * Does every cluster of the plan read as zeroes, so that its rest need not be
 * written if the host cluster does as well?
 */
static bool
plan_all_zero(const struct qcow2 *q, const struct plan *p)
{
	uint32_t i;

	for (i = 0; i < p->count; i++)
		if (!reads_zero(q, p->slice, p->cluster + i, 0,
		    q->cluster_size))
			return false;
	return true;
}

/*
 * Others that are getting the same clusters: stop before them, join one, or
 * wait.
 */
static bool
plan_conflicts(struct qcow2 *q, struct qcow2_request *req, struct plan *p)
{
	struct qcow2_alloc *a;

	LIST_FOREACH(a, &q->allocs, link)
		if (a->guest > p->cluster && a->guest < p->cluster + p->count)
			plan_cut(q, p, (uint32_t)(a->guest - p->cluster));
	LIST_FOREACH(a, &q->allocs, link) {
		if (p->cluster - a->guest >= a->count)
			continue;
		if (p->kind == FRESH && !a->in_place) {
			p->join = a;
			p->host = a->host + (p->cluster - a->guest) *
			    q->cluster_size;
			plan_cut(q, p, (uint32_t)(a->guest + a->count -
			    p->cluster));
		}
		plan_edges(q, p, p->join != NULL && a->zero);
		if (a->joinable && p->head == 0 && p->tail == 0 &&
		    p->kind != REPLACE)
			continue;
		STAILQ_INSERT_TAIL(&a->waiters, req, link);
		return false;
	}
	return true;
}

/* Reserved clusters for the plan, which may get shorter.  Not taken yet. */
static struct qcow2_run *
plan_run(struct qcow2 *q, struct plan *p)
{
	struct qcow2_run *run = q->redo.page->run;

	if (run[0].next >= run[0].end) {
		/* 'end' first and last: half a run must not look like one. */
		run[0].end = 0;
		run[0].zero = run[1].zero;
		run[0].next = run[1].next;
		atomic_signal_fence(memory_order_seq_cst);
		run[0].end = run[1].end;
		run[1].end = 0;
	}
	if (run[0].next >= run[0].end)
		return NULL;
	if (p->count > run[0].end - run[0].next)
		plan_cut(q, p, (uint32_t)(run[0].end - run[0].next));
	return run;
}

/* A bounce buffer holds one cluster: the head's rest or the tail's. */
static bool
plan_bounce(struct qcow2 *q, struct qcow2_request *req, struct plan *p)
{
	bool copy = (p->head > 0 && !p->head_zero) ||
	    (p->tail > 0 && !p->tail_zero);

	if (copy && p->head + p->tail > q->cluster_size) {
		plan_cut(q, p, p->count - 1);
		p->tail = 0;
	}
	if (copy && req->ch->nr_free_bounces == 0) {
		qcow2_starve(req);
		return false;
	}
	return true;
}

/* At worst each cluster is a record, and each replaced one was compressed. */
static unsigned
plan_room(const struct plan *p)
{
	return p->kind == REPLACE ? 4 * p->count : p->count;
}

static bool
plan_alloc(struct qcow2 *q, struct qcow2_request *req, struct plan *p)
{
	struct qcow2_run *run = NULL;

	plan_group(q, p, qcow2_iov_reach(req, req->end - req->next,
	    DATA_IOV));
	if (!plan_conflicts(q, req, p))
		return false;
	if (p->kind == REPLACE &&
	    qcow2_frees_metadata(q, p->slice, p->cluster, p->count))
		return plan_corrupt(q, req);
	if (p->kind == IN_PLACE) {
		p->host = host_of(q, p->slice, p->cluster);
		if (qcow2_overlap_hit(&q->overlap, p->host >>
		    q->cluster_bits, 1))
			return plan_corrupt(q, req);
		plan_edges(q, p, false);
	} else if (p->join == NULL) {
		run = plan_run(q, p);
		if (run == NULL) {
			qcow2_park(q, req, QCOW2_NEED_RUN, 0);
			return false;
		}
		p->host = run->next << q->cluster_bits;
		plan_edges(q, p, run->zero && p->kind == FRESH);
	}
	if (!plan_bounce(q, req, p))
		return false;
	if (!qcow2_redo_take(&q->redo, plan_room(p))) {
		qcow2_park(q, req, QCOW2_NEED_ROOM, 0);
		return false;
	}
	return true;
}

static bool
plan_write(struct qcow2 *q, struct qcow2_request *req, struct plan *p)
{
	uint64_t to;
	int kind;

	memset(p, 0, sizeof(*p));
	p->cluster = req->next >> q->cluster_bits;
	p->in = req->next & (q->cluster_size - 1);
	if (!may_write(q, req))
		return false;
	p->slice = slice_for_change(q, req, p->cluster);
	if (p->slice == NULL)
		return false;
	to = p->in + (req->end - req->next);
	if (to > q->cluster_size)
		to = q->cluster_size;
	kind = classify(q, p->slice, p->cluster, p->in, to);
	if (kind < 0)
		return plan_corrupt(q, req);
	p->kind = (enum write_kind)kind;
	return kind == PLAIN ? plan_plain(q, req, p) : plan_alloc(q, req, p);
}

/*
 * Allocations.
 */

int
qcow2_allocs_reserve(struct qcow2 *q, unsigned nr_subs)
{
	struct qcow2_alloc_chunk *chunk = NULL;
	unsigned i, n = 0;
	int rc = 0;

	pthread_mutex_lock(&q->lock);
	if (q->nr_subs + nr_subs > q->nr_allocs) {
		n = q->nr_subs + nr_subs - q->nr_allocs;
		chunk = calloc(1, sizeof(*chunk) + n * sizeof(*chunk->alloc));
		if (chunk == NULL)
			rc = -ENOMEM;
		else
			SLIST_INSERT_HEAD(&q->alloc_chunks, chunk, link);
	}
	for (i = 0; chunk != NULL && i < n; i++) {
		STAILQ_INIT(&chunk->alloc[i].waiters);
		LIST_INSERT_HEAD(&q->free_allocs, &chunk->alloc[i], link);
		q->nr_allocs++;
	}
	if (rc == 0)
		q->nr_subs += nr_subs;
	pthread_mutex_unlock(&q->lock);
	return rc;
}

void
qcow2_allocs_release(struct qcow2 *q, unsigned nr_subs)
{
	pthread_mutex_lock(&q->lock);
	q->nr_subs -= nr_subs;
	pthread_mutex_unlock(&q->lock);
}

void
qcow2_allocs_free(struct qcow2 *q)
{
	struct qcow2_alloc_chunk *chunk;

	while ((chunk = SLIST_FIRST(&q->alloc_chunks)) != NULL) {
		SLIST_REMOVE_HEAD(&q->alloc_chunks, link);
		free(chunk);
	}
}

/* Under 'lock'.  A sub-I/O has at most one, so there is one. */
static struct qcow2_alloc *
alloc_begin(struct qcow2 *q, const struct plan *p)
{
	struct qcow2_alloc *a = LIST_FIRST(&q->free_allocs);
	struct qcow2_run *run = q->redo.page->run;
	uint64_t left;

	LIST_REMOVE(a, link);
	a->guest = p->cluster;
	a->host = p->host;
	a->count = p->count;
	a->in_place = p->kind == IN_PLACE;
	a->failed = false;
	a->users = 0;
	a->slice = p->slice;
	a->zero = !a->in_place && run[0].zero;
	a->joinable = p->head == 0 && p->tail == 0 && (a->in_place ||
	    (p->kind == FRESH && (q->extended ||
	    (a->zero && plan_all_zero(q, p)))));
	slice_add_writer(q, a->slice);
	LIST_INSERT_HEAD(&q->allocs, a, link);
	if (!a->in_place) {
		left = run[0].end - run[0].next;
		run[0].next += p->count;
		if (left >= q->run_low && left - p->count < q->run_low)
			qcow2_meta_kick(q);
	}
	return a;
}

/* Clusters that were taken for it and did not come into use. */
static void
alloc_abandon(struct qcow2 *q, const struct qcow2_alloc *a)
{
	uint64_t host = a->host >> q->cluster_bits;
	struct qcow2_range *r = NULL;
	uint32_t i;

	for (i = 0; i < a->count; i++, host++) {
		if (host_of(q, a->slice, a->guest + i) ==
		    host << q->cluster_bits) {
			r = NULL;
			continue;
		}
		if (r == NULL && q->nr_abandoned < QCOW2_MAX_ABANDONED) {
			r = &q->abandoned[q->nr_abandoned++];
			*r = (struct qcow2_range){ host, 0 };
		}
		if (r != NULL)
			r->count++;
	}
	qcow2_meta_kick(q);
}

static void
alloc_leave(struct qcow2 *q, struct qcow2_sub *sub, int error)
{
	struct qcow2_alloc *a = sub->alloc;

	if (error != 0)
		a->failed = true;
	if (--a->users > 0)
		return;
	if (a->failed && !a->in_place)
		alloc_abandon(q, a);
	LIST_REMOVE(a, link);
	slice_remove_writer(q, a->slice);
	qcow2_wake_all(sub->req->ch, &a->waiters);
	LIST_INSERT_HEAD(&q->free_allocs, a, link);
	if (q->nr_need[QCOW2_NEED_ROOM] > 0)
		qcow2_meta_kick(q);
}

/* What the entry of one cluster becomes.  False: it is so already. */
static bool
commit_cluster(struct qcow2 *q, const struct qcow2_sub *sub,
    uint64_t cluster, uint64_t from, uint64_t to,
    struct qcow2_redo_record *rec)
{
	const struct qcow2_alloc *a = sub->alloc;
	uint64_t *words = qcow2_entry(q->top, a->slice, cluster);
	uint64_t old = be64toh(words[0]), units, bitmap = 0, host;

	host = a->host + (cluster - a->guest) * q->cluster_size;
	memset(rec, 0, sizeof(*rec));
	rec->type = QCOW2_REDO_L2;
	rec->count = 1;
	rec->where = cluster;
	rec->entry = host | QCOW2_COPIED;
	if ((old & QCOW2_COMPRESSED) != 0)
		rec->freed = old & ~QCOW2_COPIED;
	else if ((old & QCOW2_OFFSET_MASK) != 0 &&
	    (old & QCOW2_OFFSET_MASK) != host)
		rec->freed = old & QCOW2_OFFSET_MASK;
	if (q->extended) {
		bitmap = be64toh(words[1]);
		units = sub->whole ? 0xffffffff :
		    qcow2_units(q->unit_bits, from, to);
		bitmap = sub->whole ? units :
		    (bitmap | units) & ~(units << 32);
		rec->bitmap = bitmap;
		if (words[0] == htobe64(rec->entry) &&
		    words[1] == htobe64(bitmap))
			return false;
		words[1] = htobe64(bitmap);
	} else if (words[0] == htobe64(rec->entry)) {
		return false;
	}
	words[0] = htobe64(rec->entry);
	return true;
}

/* The data is in place: let the guest's clusters point to it. */
static void
alloc_commit(struct qcow2 *q, struct qcow2_sub *sub)
{
	uint64_t from = sub->guest - sub->head, cluster, in, to;
	uint64_t end = sub->guest + sub->bytes + sub->tail;
	struct qcow2_redo_record all = { .count = 0 }, one;
	unsigned left = sub->room, cost;

	for (; from < end; from += to - in) {
		cluster = from >> q->cluster_bits;
		in = from & (q->cluster_size - 1);
		to = in + (end - from);
		if (to > q->cluster_size)
			to = q->cluster_size;
		if (!commit_cluster(q, sub, cluster, in, to, &one))
			continue;
		if (all.count > 0 && all.freed == 0 && one.freed == 0 &&
		    all.bitmap == one.bitmap &&
		    all.where + all.count == cluster) {
			all.count++;
			continue;
		}
		if (all.count > 0)
			qcow2_redo_append(&q->redo, &all);
		all = one;
		cost = qcow2_redo_cost(all.freed, all.count);
		assert(cost <= left);
		left -= cost;
	}
	if (all.count > 0) {
		qcow2_redo_append(&q->redo, &all);
		slice_changed(q, sub->alloc->slice);
	}
	sub->req->changed = true;
	sub->room = left;
}

static void
alloc_end(struct qcow2_sub *sub, int error)
{
	struct qcow2_channel *ch = sub->req->ch;
	struct qcow2 *q = ch->q;

	pthread_mutex_lock(&q->lock);
	if (error == 0) {
		atomic_fetch_add(&q->writes, 1);
		alloc_commit(q, sub);
	}
	qcow2_redo_give(&q->redo, sub->room);
	alloc_leave(q, sub, error);
	pthread_mutex_unlock(&q->lock);
	if (sub->bounce != NULL)
		ch->free_bounces[ch->nr_free_bounces++] = sub->bounce;
	qcow2_sub_put(sub, error);
}

static void
alloc_done(struct io *io, int error)
{
	struct qcow2_sub *sub = container_of(io, struct qcow2_sub, io);
	struct qcow2_channel *ch = sub->req->ch;

	alloc_end(sub, error);
	qcow2_channel_run(ch);
}

/* Everything to be written is there: [head] data [tail] as one I/O. */
static void
alloc_submit(struct qcow2_sub *sub)
{
	sub->io.op = IO_WRITE;
	sub->io.done = alloc_done;
	engine_submit(sub->req->ch->engine, sub->fd, &sub->io);
}

void
qcow2_copy_done(struct qcow2_sub *sub, int error)
{
	if (error != 0 && sub->error == 0)
		sub->error = error;
	if (--sub->copies > 0)
		return;
	if (sub->error != 0)
		alloc_end(sub, sub->error);
	else
		alloc_submit(sub);
}

static unsigned
iov_zeroes(const struct qcow2 *q, struct iovec *v, uint64_t bytes)
{
	unsigned n = 0;
	size_t len;

	for (; bytes > 0; bytes -= len) {
		len = bytes < q->zero_bytes ? bytes : q->zero_bytes;
		v[n++] = (struct iovec){ q->zeroes, len };
	}
	return n;
}

/*
 * A part of a cluster that is copied: beyond the end of the disk there is
 * nothing to read.
 */
static void
alloc_copy(struct qcow2_sub *sub, char *to, uint64_t guest, uint32_t bytes)
{
	uint64_t size = sub->req->ch->q->img.size;
	uint32_t n = bytes;

	if (guest >= size)
		n = 0;
	else if (n > size - guest)
		n = (uint32_t)(size - guest);
	memset(to + n, 0, bytes - n);
	if (n > 0)
		qcow2_copy_start(sub, to, guest, n);
}

static void
alloc_start(struct qcow2_sub *sub, const struct plan *p)
{
	struct qcow2_channel *ch = sub->req->ch;
	struct qcow2 *q = ch->q;
	char *bounce = sub->bounce;
	unsigned n = 0;

	sub->guest = sub->req->next;
	sub->bytes = p->bytes;
	sub->copies = 0;
	if (p->head > 0 && p->head_zero)
		n += iov_zeroes(q, sub->iov, p->head);
	else if (p->head > 0)
		sub->iov[n++] = (struct iovec){ bounce, p->head };
	n += qcow2_iov_cut(sub->req, p->bytes, sub->iov + n);
	if (p->tail > 0 && p->tail_zero)
		n += iov_zeroes(q, sub->iov + n, p->tail);
	else if (p->tail > 0)
		sub->iov[n++] = (struct iovec){ bounce + p->head, p->tail };

	sub->fd = q->top->file.fd;
	sub->io.offset = p->host + p->in - p->head;
	sub->io.length = p->head + p->bytes + p->tail;
	sub->io.iov = sub->iov;
	sub->io.iovcnt = (int)n;

	/* Counted up front: a copy that needs no I/O ends at once. */
	sub->copies = 1;
	if (p->head > 0 && !p->head_zero)
		alloc_copy(sub, bounce, sub->guest - p->head, p->head);
	if (p->tail > 0 && !p->tail_zero)
		alloc_copy(sub, bounce + p->head, sub->guest + sub->bytes,
		    p->tail);
	qcow2_copy_done(sub, 0);
}

/* Under 'lock': what the plan found is now taken. */
static struct qcow2_sub *
write_take(struct qcow2 *q, struct qcow2_request *req, const struct plan *p)
{
	struct qcow2_sub *sub = qcow2_sub_get(req, p->kind == PLAIN ?
	    QCOW2_SUB_PLAIN : QCOW2_SUB_ALLOC);

	if (p->kind == PLAIN) {
		/* Its clusters may have been mapped a moment ago. */
		req->changed |= p->slice->dirty || p->slice->writing;
		qcow2_epoch_enter(q, sub);
		return sub;
	}
	sub->alloc = p->join != NULL ? p->join : alloc_begin(q, p);
	sub->alloc->users++;
	sub->room = plan_room(p);
	sub->whole = p->kind == REPLACE;
	sub->head = p->head;
	sub->tail = p->tail;
	sub->bounce = NULL;
	if ((p->head > 0 && !p->head_zero) || (p->tail > 0 && !p->tail_zero))
		sub->bounce =
		    req->ch->free_bounces[--req->ch->nr_free_bounces];
	return sub;
}

bool
qcow2_write_piece(struct qcow2_request *req)
{
	struct qcow2 *q = req->ch->q;
	struct qcow2_sub *sub;
	struct plan p;

	if (!qcow2_sub_available(req)) {
		qcow2_starve(req);
		return false;
	}
	pthread_mutex_lock(&q->lock);
	if (!plan_write(q, req, &p)) {
		pthread_mutex_unlock(&q->lock);
		return req->error != 0;
	}
	sub = write_take(q, req, &p);
	pthread_mutex_unlock(&q->lock);

	if (p.kind == PLAIN) {
		qcow2_sub_cut(sub, p.bytes);
		qcow2_sub_submit(sub, IO_WRITE, q->top->file.fd,
		    p.host + p.in);
	} else {
		alloc_start(sub, &p);
	}
	return true;
}

/*
 * Discards.  Only whole clusters; the rest of the range keeps its data.
 */

/* What a discarded cluster's entry becomes, and what it was. */
static void
discard_words(const struct qcow2 *q, const uint64_t *words,
    struct qcow2_redo_record *rec)
{
	uint64_t old = be64toh(words[0]);

	rec->type = QCOW2_REDO_L2;
	rec->entry = rec->bitmap = rec->freed = 0;
	/* Else the backing file would show. */
	if (q->backed && q->extended)
		rec->bitmap = 0xffffffffull << 32;
	else if (q->backed)
		rec->entry = QCOW2_ZERO;
	if ((old & QCOW2_COMPRESSED) != 0)
		rec->freed = old & ~QCOW2_COPIED;
	else if ((old & QCOW2_OFFSET_MASK) != 0)
		rec->freed = old & (QCOW2_OFFSET_MASK | QCOW2_COPIED);
}

static bool
discard_same(const struct qcow2 *q, const uint64_t *words,
    const struct qcow2_redo_record *rec)
{
	return words[0] == htobe64(rec->entry) &&
	    (!q->extended || words[1] == htobe64(rec->bitmap));
}

static bool
alloc_covers(const struct qcow2 *q, uint64_t cluster,
    struct qcow2_alloc **found)
{
	struct qcow2_alloc *a;

	LIST_FOREACH(a, &q->allocs, link)
		if (cluster - a->guest < a->count) {
			*found = a;
			return true;
		}
	return false;
}

/*
 * How many clusters from the first, described by 'rec', can be one record:
 * freed clusters that follow each other, or none freed.
 */
static uint32_t
discard_group(const struct qcow2 *q, const struct qcow2_slice *s,
    uint64_t cluster, uint64_t end, const struct qcow2_redo_record *rec)
{
	struct qcow2_redo_record next = { .count = 0 };
	struct qcow2_alloc *a;
	const uint64_t *words;
	uint32_t n = 1;

	if (rec->freed != 0 && (rec->freed & QCOW2_COPIED) == 0)
		return 1;
	for (; cluster + n < end; n++) {
		if (qcow2_slice_key(q->top, cluster + n) != s->key ||
		    alloc_covers(q, cluster + n, &a))
			break;
		words = qcow2_entry(q->top, s, cluster + n);
		discard_words(q, words, &next);
		if (discard_same(q, words, &next) || next.freed !=
		    (rec->freed == 0 ? 0 :
		    rec->freed + n * q->cluster_size))
			break;
	}
	return n;
}

/* Under 'lock': one group of clusters.  False: it waits or failed. */
static bool
discard_group_piece(struct qcow2 *q, struct qcow2_request *req, uint64_t end)
{
	uint64_t cluster = req->next >> q->cluster_bits, *words;
	struct qcow2_redo_record rec = { .count = 0 };
	struct qcow2_alloc *a;
	struct qcow2_slice *s;
	uint32_t i;

	s = slice_for_change(q, req, cluster);
	if (s == NULL)
		return false;
	if (alloc_covers(q, cluster, &a)) {
		STAILQ_INSERT_TAIL(&a->waiters, req, link);
		return false;
	}
	words = qcow2_entry(q->top, s, cluster);
	if (classify(q, s, cluster, 0, 1) < 0)
		return plan_corrupt(q, req);
	discard_words(q, words, &rec);
	if (discard_same(q, words, &rec)) {
		req->next += q->cluster_size;
		return true;
	}
	rec.where = cluster;
	rec.count = discard_group(q, s, cluster, end, &rec);
	if (qcow2_frees_metadata(q, s, cluster, rec.count))
		return plan_corrupt(q, req);
	if (!qcow2_redo_take(&q->redo, qcow2_redo_cost(rec.freed,
	    rec.count))) {
		qcow2_park(q, req, QCOW2_NEED_ROOM, 0);
		return false;
	}
	for (i = 0; i < rec.count; i++) {
		words = qcow2_entry(q->top, s, cluster + i);
		words[0] = htobe64(rec.entry);
		if (q->extended)
			words[1] = htobe64(rec.bitmap);
	}
	qcow2_redo_append(&q->redo, &rec);
	slice_changed(q, s);
	req->changed = true;
	req->next += rec.count * q->cluster_size;
	return true;
}

/* The first byte after 'offset' that another L1 entry is for. */
static uint64_t
table_end(const struct qcow2 *q, uint64_t offset)
{
	uint64_t span = 1ull << (q->cluster_bits + q->l2_bits);

	return (offset | (span - 1)) + 1;
}

bool
qcow2_discard_piece(struct qcow2_request *req)
{
	struct qcow2 *q = req->ch->q;
	uint64_t end = req->end >> q->cluster_bits;
	unsigned groups = MAX_GROUPS;
	bool going;

	req->next = (req->next + q->cluster_size - 1) &
	    ~(q->cluster_size - 1);

	pthread_mutex_lock(&q->lock);
	/* With the lock, under which the disk may become larger. */
	if (req->end == q->img.size)
		end = (req->end + q->cluster_size - 1) >> q->cluster_bits;
	going = may_write(q, req);
	while (going && req->next >> q->cluster_bits < end) {
		if (groups-- == 0) {
			pthread_mutex_unlock(&q->lock);
			return true;
		}
		if (!q->backed && (qcow2_l1_entry(q->top, req->next >>
		    q->cluster_bits) & QCOW2_OFFSET_MASK) == 0)
			req->next = table_end(q, req->next);
		else
			going = discard_group_piece(q, req, end);
	}
	pthread_mutex_unlock(&q->lock);
	if (going)
		req->next = req->end;
	return going || req->error != 0;
}
