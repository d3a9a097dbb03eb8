/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * qcow2_meta: the metadata thread; see qcow2.h for what it does for whom.
 *
 * It does one thing at a time, looks what is wanted after each, and sleeps
 * when nothing is: kicked by whoever changes what it looks at, or until
 * changes are MAX_AGE_MS old.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "drivers/qcow2_io.h"
#include "drivers/qcow2_map.h"
#include "drivers/qcow2_meta.h"
#include "drivers/thread.h"

#define MAX_AGE_MS  4000u	/* design: at most 5 s */
#define STACK_BYTES (256u << 10)
#define BUFFER      (64u << 10)	/* bytes */
#define SLACK       256u	/* log records for changes of our own */

/*
 * Helpers.
 */

uint64_t
qcow2_now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/* Is it time to write, before somebody has to wait for room? */
static bool
crowded(const struct qcow2 *q)
{
	return q->redo.taken > QCOW2_REDO_RECORDS / 2 ||
	    q->top->slices->nr_busy > q->busy_high ||
	    q->nr_l1_dirty > QCOW2_MAX_L1 / 2;
}

void
qcow2_meta_kick(struct qcow2 *q)
{
	if (!q->meta->idle)
		return;
	q->meta->idle = false;
	pthread_cond_signal(&q->meta->wake);
}

void
qcow2_meta_dirty(struct qcow2 *q)
{
	bool first = q->dirty_since_ms == 0;

	if (first)
		q->dirty_since_ms = qcow2_now_ms();
	if (first || crowded(q))
		qcow2_meta_kick(q);
}

void
qcow2_mark_corrupt(struct qcow2 *q)
{
	q->corrupt = true;
	qcow2_meta_kick(q);
}

/* Under 'lock': those who wait for this go on, or fail. */
void
qcow2_unpark(struct qcow2 *q, enum qcow2_need need, uint64_t arg, int error)
{
	struct qcow2_request_list list = STAILQ_HEAD_INITIALIZER(list);
	struct qcow2_request *req;

	STAILQ_CONCAT(&list, &q->parked);
	while ((req = STAILQ_FIRST(&list)) != NULL) {
		STAILQ_REMOVE_HEAD(&list, link);
		if (req->need != need ||
		    (arg != QCOW2_ANY && req->arg != arg)) {
			STAILQ_INSERT_TAIL(&q->parked, req, link);
			continue;
		}
		q->nr_need[need]--;
		req->wake_error = error;
		qcow2_wake(req);
	}
}

static struct qcow2_request *
parked_first(struct qcow2 *q, enum qcow2_need need)
{
	struct qcow2_request *req;

	STAILQ_FOREACH(req, &q->parked, link)
		if (req->need == need)
			return req;
	return NULL;
}

/*
 * Refcounts: each change goes into the log.
 */

static void
refs_changed(void *arg, uint64_t first, uint64_t count, uint64_t value)
{
	struct qcow2 *q = arg;
	struct qcow2_meta *m = q->meta;
	struct qcow2_redo_record rec = {
		.type = QCOW2_REDO_REFCOUNT,
		.count = (uint32_t)count,
		.where = first,
		.entry = value,
		.freed = m->account,
	};

	if (m->replaying)
		return;
	pthread_mutex_lock(&q->lock);
	if (m->slack > 0 || qcow2_redo_take(&q->redo, 1)) {
		if (m->slack > 0)
			m->slack--;
		qcow2_redo_append(&q->redo, &rec);
		if (q->dirty_since_ms == 0)
			q->dirty_since_ms = qcow2_now_ms();
	} else {
		m->unlogged = true;
	}
	pthread_mutex_unlock(&q->lock);
}

static void
refs_metadata(void *arg, uint64_t first, uint64_t count, bool is)
{
	struct qcow2 *q = arg;

	pthread_mutex_lock(&q->lock);
	if (!is)
		qcow2_overlap_remove(&q->overlap, first, count);
	else if (qcow2_overlap_add(&q->overlap, first, count) < 0)
		q->meta->no_memory = true;
	pthread_mutex_unlock(&q->lock);
}

static const struct qcow2_refcount_ops refs_ops = {
	.changed  = refs_changed,
	.metadata = refs_metadata,
};

int
qcow2_refs_write(struct qcow2 *q)
{
	unsigned writes = 0;
	int rc = qcow2_refcounts_write(q->meta->refs, &writes);

	atomic_fetch_add(&q->img.metadata_writes, writes);
	return rc;
}

/* What could not be logged must be in the file before it is relied on. */
int
qcow2_refs_settle(struct qcow2 *q)
{
	int rc = 0;

	if (q->meta->unlogged)
		rc = qcow2_refs_write(q);
	if (rc == 0)
		q->meta->unlogged = false;
	return rc;
}

int
qcow2_refs_drop(struct qcow2 *q, uint64_t first, uint64_t count, bool exclusive)
{
	int rc;

	rc = qcow2_refcounts_drop(q->meta->refs, first, count, exclusive);
	if (rc == -EAGAIN) {
		rc = qcow2_refs_write(q);
		if (rc == 0)
			rc = qcow2_refcounts_drop(q->meta->refs, first, count,
			    exclusive);
	}
	/* Clusters that nobody owned: leave them so, they are not ours. */
	return rc == -EUCLEAN ? 0 : rc;
}

/* Room in the log for changes of our own; false: write back first. */
bool
qcow2_slack_take(struct qcow2 *q)
{
	bool ok;

	pthread_mutex_lock(&q->lock);
	ok = qcow2_redo_take(&q->redo, SLACK);
	pthread_mutex_unlock(&q->lock);
	if (ok)
		q->meta->slack = SLACK;
	return ok;
}

void
qcow2_slack_give(struct qcow2 *q)
{
	pthread_mutex_lock(&q->lock);
	qcow2_redo_give(&q->redo, q->meta->slack);
	q->meta->slack = 0;
	pthread_mutex_unlock(&q->lock);
}

/*
 * Reserved clusters.
 */

static uint64_t
run_available(const struct qcow2 *q)
{
	const struct qcow2_run *run = q->redo.page->run;
	uint64_t n = 0;
	unsigned i;

	for (i = 0; i < QCOW2_RUNS; i++)
		if (run[i].next < run[i].end)
			n += run[i].end - run[i].next;
	return n;
}

/* Under 'lock': both runs are in use. */
static bool
run_full(const struct qcow2 *q)
{
	const struct qcow2_run *run = q->redo.page->run;

	return run[0].next < run[0].end && run[1].next < run[1].end;
}

/* Under 'lock'. */
static void
run_add(struct qcow2 *q, uint64_t first, uint64_t count, bool zero)
{
	struct qcow2_run *run = q->redo.page->run;

	if (run[0].next < run[0].end) {
		if (run[0].end == first && run[0].zero == zero &&
		    run[1].next >= run[1].end) {
			run[0].end += count;
			return;
		}
		run++;
	}
	run->end = 0;
	run->next = first;
	run->zero = zero;
	/* 'end' last: half a run must not look like one. */
	atomic_signal_fence(memory_order_seq_cst);
	run->end = first + count;
}

static int
run_reserve(struct qcow2 *q)
{
	uint64_t first, count;
	bool zero;
	int rc;

	if (!qcow2_slack_take(q))
		return -EAGAIN;
	rc = qcow2_refcounts_reserve(q->meta->refs, q->run_target, &first,
	    &count, &zero);
	if (rc == -EAGAIN) {
		rc = qcow2_refs_write(q);
		if (rc == 0)
			rc = qcow2_refcounts_reserve(q->meta->refs,
			    q->run_target, &first, &count, &zero);
	}
	if (rc == 0)
		rc = qcow2_refs_settle(q);
	qcow2_slack_give(q);
	if (rc < 0)
		return rc;

	pthread_mutex_lock(&q->lock);
	if (qcow2_overlap_hit(&q->overlap, first, count)) {
		qcow2_mark_corrupt(q);
		rc = -EIO;
	} else {
		run_add(q, first, count, zero);
	}
	pthread_mutex_unlock(&q->lock);
	return rc;
}

/* Under 'lock', which it lets go meanwhile. */
static void
do_reserve(struct qcow2 *q)
{
	int rc;

	pthread_mutex_unlock(&q->lock);
	rc = run_reserve(q);
	pthread_mutex_lock(&q->lock);
	if (rc == 0) {
		qcow2_unpark(q, QCOW2_NEED_RUN, 0, 0);
		return;
	}
	/* What was freed but not written back may make room. */
	if (rc == -EAGAIN || (rc == -ENOSPC && !q->meta->swept)) {
		q->meta->want_round = true;
		q->meta->swept = true;
	} else {
		qcow2_unpark(q, QCOW2_NEED_RUN, 0, rc);
		q->meta->swept = false;
	}
	q->meta->run_failed = true;
}

/* Under 'lock': the run to take from next; NULL: there is none. */
static struct qcow2_run *
run_first(struct qcow2 *q)
{
	struct qcow2_run *run = q->redo.page->run;
	unsigned i;

	for (i = 0; i < QCOW2_RUNS; i++)
		if (run[i].next < run[i].end)
			return &run[i];
	return NULL;
}

/* A cluster for ourselves.  0 or -errno. */
static int
cluster_take(struct qcow2 *q, uint64_t *cluster, bool *zero)
{
	struct qcow2_run *run;
	int rc = 0;

	pthread_mutex_lock(&q->lock);
	while ((run = run_first(q)) == NULL && rc == 0) {
		pthread_mutex_unlock(&q->lock);
		rc = run_reserve(q);
		pthread_mutex_lock(&q->lock);
	}
	*cluster = run != NULL ? run->next++ : 0;
	*zero = run != NULL && run->zero;
	pthread_mutex_unlock(&q->lock);
	return run != NULL ? 0 : rc;
}

/* Clusters that were taken and did not come into use. */
int
qcow2_do_abandoned(struct qcow2 *q)
{
	struct qcow2_range r;
	int rc = 0;

	if (!qcow2_slack_take(q))
		return -EAGAIN;
	pthread_mutex_lock(&q->lock);
	while (rc == 0 && q->nr_abandoned > 0) {
		r = q->abandoned[--q->nr_abandoned];
		pthread_mutex_unlock(&q->lock);
		rc = qcow2_refs_drop(q, r.first, r.count, true);
		pthread_mutex_lock(&q->lock);
	}
	pthread_mutex_unlock(&q->lock);
	if (rc == 0)
		rc = qcow2_refs_settle(q);
	qcow2_slack_give(q);
	return rc;
}

/*
 * L2 tables.
 */

static int
table_fill(struct qcow2 *q, uint64_t to, uint64_t from, bool zero)
{
	uint64_t done, n;
	int rc = 0;

	if (from == 0 && zero)
		return 0;
	for (done = 0; rc == 0 && done < q->cluster_size; done += n) {
		n = q->cluster_size - done;
		if (n > BUFFER)
			n = BUFFER;
		if (from == 0)
			memset(q->meta->buffer, 0, n);
		else
			rc = file_pread(&q->top->file, q->meta->buffer, n,
			    from + done);
		if (rc == 0)
			rc = file_pwrite(&q->top->file, q->meta->buffer, n,
			    to + done);
		atomic_fetch_add(&q->img.metadata_writes, 1);
	}
	return rc;
}

/* Under 'lock'. */
void
qcow2_l1_set(struct qcow2 *q, uint64_t index, uint64_t entry)
{
	uint64_t block = index * sizeof(uint64_t) / QCOW2_L1_BLOCK;

	q->top->l1[index] = htobe64(entry);
	if ((q->l1_dirty[block / 64] >> block % 64 & 1) == 0) {
		q->l1_dirty[block / 64] |= 1ull << block % 64;
		q->nr_l1_dirty++;
	}
}

/* The table exists, filled, in a cluster of its own: let L1 point to it. */
static int
table_commit(struct qcow2 *q, uint64_t index, uint64_t cluster, uint64_t old)
{
	struct qcow2_redo_record rec = {
		.type = QCOW2_REDO_L1,
		.count = 1,
		.where = index,
		.entry = cluster << q->cluster_bits | QCOW2_COPIED,
		.freed = old,
	};
	int rc = 0;

	pthread_mutex_lock(&q->lock);
	if (!qcow2_redo_take(&q->redo, qcow2_redo_cost(old, 1))) {
		rc = -EAGAIN;
	} else if (qcow2_overlap_add(&q->overlap, cluster, 1) < 0) {
		qcow2_redo_give(&q->redo, qcow2_redo_cost(old, 1));
		rc = -ENOMEM;
	} else {
		if (old != 0)
			qcow2_overlap_remove(&q->overlap,
			    old >> q->cluster_bits, 1);
		qcow2_l1_set(q, index, rec.entry);
		qcow2_redo_append(&q->redo, &rec);
		qcow2_meta_dirty(q);
	}
	pthread_mutex_unlock(&q->lock);
	return rc;
}

/*
 * An L2 table that belongs to nobody else: a new one, or a copy of one that
 * snapshots share.  Its cached slices stay valid.
 */
static int
table_make(struct qcow2 *q, uint64_t index)
{
	uint64_t old = be64toh(q->top->l1[index]), cluster;
	bool zero;
	int rc;

	if ((old & QCOW2_COPIED) != 0 && (old & QCOW2_OFFSET_MASK) != 0)
		return 0;
	old &= QCOW2_OFFSET_MASK;
	if (q->nr_l1_dirty >= QCOW2_MAX_L1)
		return -EAGAIN;
	rc = cluster_take(q, &cluster, &zero);
	if (rc < 0)
		return rc;
	rc = table_fill(q, cluster << q->cluster_bits, old, zero);
	if (rc == 0)
		rc = table_commit(q, index, cluster, old);
	if (rc < 0) {
		pthread_mutex_lock(&q->lock);
		if (q->nr_abandoned < QCOW2_MAX_ABANDONED)
			q->abandoned[q->nr_abandoned++] =
			    (struct qcow2_range){ cluster, 1 };
		pthread_mutex_unlock(&q->lock);
	}
	return rc;
}

/* Under 'lock', which it lets go meanwhile. */
static void
do_table(struct qcow2 *q)
{
	uint64_t index = parked_first(q, QCOW2_NEED_TABLE)->arg;
	int rc;

	pthread_mutex_unlock(&q->lock);
	rc = table_make(q, index);
	pthread_mutex_lock(&q->lock);
	if (rc == -EAGAIN || (rc == -ENOSPC && !q->meta->swept)) {
		q->meta->want_round = true;
		q->meta->swept = true;
		return;
	}
	q->meta->swept = false;
	qcow2_unpark(q, QCOW2_NEED_TABLE, index, rc);
}

/*
 * The header.
 */

static int
header_change(struct qcow2 *q, uint64_t incompatible, uint64_t autoclear)
{
	char *sector = q->meta->buffer;
	uint64_t be;
	int rc;

	rc = file_pread(&q->top->file, sector, SECTOR, 0);
	if (rc < 0)
		return rc;
	be = htobe64(incompatible);
	memcpy(sector + QCOW2_AT_INCOMPATIBLE, &be, sizeof(be));
	be = htobe64(autoclear);
	memcpy(sector + QCOW2_AT_AUTOCLEAR, &be, sizeof(be));
	rc = file_pwrite(&q->top->file, sector, SECTOR, 0);
	atomic_fetch_add(&q->img.metadata_writes, 1);
	if (rc == 0)
		rc = file_sync(&q->top->file);
	if (rc == 0) {
		pthread_mutex_lock(&q->lock);
		q->top->h.incompatible = incompatible;
		q->top->h.autoclear = autoclear;
		pthread_mutex_unlock(&q->lock);
	}
	return rc;
}

/* Somebody is going to write: what we do not keep up to date is void. */
static void
do_autoclear(struct qcow2 *q)
{
	int rc;

	pthread_mutex_unlock(&q->lock);
	rc = header_change(q, q->top->h.incompatible, 0);
	pthread_mutex_lock(&q->lock);
	if (rc == 0)
		q->autoclear = false;
	qcow2_unpark(q, QCOW2_NEED_HEADER, 0, rc);
}

/* Version 2 has no place to say so; writes have ended all the same. */
void
qcow2_do_corrupt(struct qcow2 *q)
{
	if (!q->corrupt || q->meta->corrupt_told)
		return;
	q->meta->corrupt_told = true;
	if (q->top->h.version < 3)
		return;
	pthread_mutex_unlock(&q->lock);
	header_change(q, q->top->h.incompatible | QCOW2_INCOMPAT_CORRUPT,
	    q->top->h.autoclear);
	pthread_mutex_lock(&q->lock);
}

/*
 * Compressed clusters.
 */

static int
unpack_cluster(struct qcow2 *q, struct qcow2_layer *l, uint64_t entry)
{
	struct qcow2_meta *m = q->meta;
	uint64_t offset, bytes, start, size = 1ull << l->h.cluster_bits;
	int rc;

	if (m->unpacked_layer == l && m->unpacked_entry == entry)
		return 0;
	m->unpacked_layer = NULL;
	qcow2_compressed_range(&l->h, entry, &offset, &bytes);
	/* No stream is longer than what it unpacks to. */
	if (bytes > size + SECTOR)
		bytes = size + SECTOR;
	if (offset >= l->file.size)
		return -EIO;
	start = offset & ~(uint64_t)(SECTOR - 1);
	rc = file_pread(&l->file, m->packed, (offset + bytes - start +
	    SECTOR - 1) & ~(uint64_t)(SECTOR - 1), start);
	if (rc == 0)
		rc = qcow2_inflate(m->inflate[l->h.compression],
		    m->packed + (offset - start), bytes, m->unpacked, size);
	if (rc == 0) {
		m->unpacked_layer = l;
		m->unpacked_entry = entry;
	}
	return rc;
}

static void
do_unpack(struct qcow2 *q)
{
	struct qcow2_sub *sub = STAILQ_FIRST(&q->unpack);
	const char *from;
	int i;

	STAILQ_REMOVE_HEAD(&q->unpack, link);
	pthread_mutex_unlock(&q->lock);
	sub->error = unpack_cluster(q, sub->layer, sub->entry);
	from = q->meta->unpacked + sub->skip;
	for (i = 0; sub->error == 0 && i < sub->io.iovcnt; i++) {
		memcpy(sub->io.iov[i].iov_base, from, sub->io.iov[i].iov_len);
		from += sub->io.iov[i].iov_len;
	}
	pthread_mutex_lock(&q->lock);
	qcow2_wake_sub(sub);
}

/*
 * The thread.
 */

static bool
round_due(const struct qcow2 *q)
{
	if (q->meta->want_round || q->nr_need[QCOW2_NEED_FLUSH] > 0)
		return true;
	if (q->dirty_since_ms == 0)
		return false;
	/* One that failed is not tried again and again for room's sake. */
	return q->nr_need[QCOW2_NEED_ROOM] > 0 ||
	    (crowded(q) && !q->meta->stuck) ||
	    qcow2_now_ms() - q->dirty_since_ms >= MAX_AGE_MS;
}

static bool
reserve_due(const struct qcow2 *q)
{
	if (q->nr_need[QCOW2_NEED_RUN] > 0)
		return true;
	return q->meta->reserving && !q->meta->run_failed && !run_full(q) &&
	    run_available(q) < q->run_low;
}

/* Under 'lock': one thing.  False: there is nothing to do. */
static bool
meta_step(struct qcow2 *q)
{
	struct qcow2_meta *m = q->meta;
	bool draining = atomic_load(&q->draining);
	int rc;

	if (draining && atomic_load(&q->inflight[q->epoch ^ 1]) == 0) {
		qcow2_do_free(q);
	} else if (!STAILQ_EMPTY(&q->unpack) &&
	    (m->unpack_turn = !m->unpack_turn)) {
		do_unpack(q);
	} else if (q->corrupt && !m->corrupt_told) {
		qcow2_do_corrupt(q);
	} else if (m->resize != NULL && !m->want_round &&
	    !(draining && m->resize->again)) {
		qcow2_do_resize(q);
	} else if (!draining && round_due(q)) {
		qcow2_do_round(q);
	} else if (!STAILQ_EMPTY(&q->unpack)) {
		do_unpack(q);
	} else if (m->want_round || (draining && m->swept)) {
		return false;		/* the drain comes first */
	} else if (q->nr_need[QCOW2_NEED_HEADER] > 0) {
		do_autoclear(q);
	} else if (q->nr_need[QCOW2_NEED_TABLE] > 0) {
		do_table(q);
	} else if (reserve_due(q)) {
		m->reserving = true;
		do_reserve(q);
	} else if (q->nr_need[QCOW2_NEED_ROOM] > 0 &&
	    q->top->slices->nr_busy < q->max_busy) {
		qcow2_unpark(q, QCOW2_NEED_ROOM, 0, 0);
	} else if (q->nr_abandoned > 0 && !m->stuck) {
		pthread_mutex_unlock(&q->lock);
		rc = qcow2_do_abandoned(q);
		pthread_mutex_lock(&q->lock);
		m->want_round = rc == -EAGAIN;
	} else {
		return false;
	}
	return true;
}

/* Under 'lock'. */
static void
meta_sleep(struct qcow2 *q)
{
	struct qcow2_meta *m = q->meta;
	struct timespec ts;
	uint64_t at;

	m->idle = true;
	pthread_cond_broadcast(&m->quiet);
	/* While it is paused nothing else is its to look at. */
	if (m->paused || q->dirty_since_ms == 0) {
		pthread_cond_wait(&m->wake, &q->lock);
	} else {
		at = q->dirty_since_ms + MAX_AGE_MS;
		ts.tv_sec = (time_t)(at / 1000);
		ts.tv_nsec = (long)(at % 1000) * 1000000;
		pthread_cond_timedwait(&m->wake, &q->lock, &ts);
	}
	m->idle = false;
}

/* It does nothing until 'paused' is taken back. */
void
qcow2_meta_pause(struct qcow2 *q)
{
	pthread_mutex_lock(&q->lock);
	q->meta->paused = true;
	while (!q->meta->idle)
		pthread_cond_wait(&q->meta->quiet, &q->lock);
	pthread_mutex_unlock(&q->lock);
}

void
qcow2_meta_go_on(struct qcow2 *q)
{
	pthread_mutex_lock(&q->lock);
	q->meta->paused = false;
	qcow2_meta_kick(q);
	pthread_mutex_unlock(&q->lock);
}

static void *
meta_main(void *arg)
{
	struct qcow2 *q = arg;
	struct qcow2_meta *m = q->meta;

	pthread_mutex_lock(&q->lock);
	while (!m->stop) {
		if (m->paused || !meta_step(q))
			meta_sleep(q);
		else if (q->failed == 0)
			q->failed = q->top->file.sync_error;
	}
	pthread_mutex_unlock(&q->lock);
	return NULL;
}

int
qcow2_meta_make_room(struct qcow2 *q, unsigned slices)
{
	unsigned room = slices + QCOW2_MAX_L1 + 1;
	struct qcow2_meta *m = q->meta;
	struct qcow2_meta_copy *copy;
	char *copies;

	if (room <= m->room)
		return 0;
	copies = aligned_alloc(4096, (size_t)room * QCOW2_SLICE_BYTES);
	copy = calloc(room, sizeof(*copy));
	if (copies == NULL || copy == NULL) {
		free(copies);
		free(copy);
		return -ENOMEM;
	}
	free(m->copies);
	free(m->copy);
	m->copies = copies;
	m->copy = copy;
	m->room = room;
	return 0;
}

static int
meta_alloc(struct qcow2 *q, char why[WHY_MAX])
{
	struct qcow2_meta *m = q->meta;
	struct qcow2_layer *l;
	size_t largest = 0;
	int rc = 0;

	for (l = q->top; l != NULL && rc == 0; l = l->backing) {
		if (l->raw)
			continue;
		if ((size_t)1 << l->h.cluster_bits > largest)
			largest = (size_t)1 << l->h.cluster_bits;
		if (m->inflate[l->h.compression] == NULL)
			rc = qcow2_inflate_open(&m->inflate[l->h.compression],
			    l->h.compression);
	}
	if (rc < 0)
		return rc;
	m->packed = aligned_alloc(4096, (largest + 3 * 4096) & ~4095ul);
	m->unpacked = aligned_alloc(4096, (largest + 4095) & ~4095ul);
	m->buffer = aligned_alloc(4096, BUFFER);
	if (m->packed == NULL || m->unpacked == NULL || m->buffer == NULL)
		return -ENOMEM;
	if (q->img.readonly)
		return 0;
	if (qcow2_meta_make_room(q, q->max_busy) < 0)
		return -ENOMEM;
	return qcow2_refcounts_open(&m->refs, &q->top->file, &q->top->h,
	    QCOW2_REFCOUNT_CACHE, &refs_ops, q, why);
}

int
qcow2_meta_open(struct qcow2 *q, char why[WHY_MAX])
{
	pthread_condattr_t attr;
	struct qcow2_meta *m;
	int rc = -ENOMEM;

	m = q->meta = calloc(1, sizeof(*m));
	if (m == NULL)
		return rc;
	m->paused = true;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&m->wake, &attr);
	pthread_cond_init(&m->quiet, NULL);
	pthread_condattr_destroy(&attr);
	rc = meta_alloc(q, why);
	if (rc == 0)
		rc = thread_start(&m->thread, STACK_BYTES, meta_main, q);
	m->running = rc == 0;
	return rc;
}

void
qcow2_meta_close(struct qcow2 *q)
{
	struct qcow2_meta *m = q->meta;
	unsigned i;

	if (m == NULL)
		return;
	if (m->running) {
		pthread_mutex_lock(&q->lock);
		m->stop = true;
		pthread_cond_signal(&m->wake);
		pthread_mutex_unlock(&q->lock);
		pthread_join(m->thread, NULL);
	}
	qcow2_refcounts_close(m->refs);
	for (i = 0; i < 2; i++)
		qcow2_inflate_close(m->inflate[i]);
	free(m->copy);
	free(m->copies);
	free(m->buffer);
	free(m->unpacked);
	free(m->packed);
	pthread_cond_destroy(&m->wake);
	pthread_cond_destroy(&m->quiet);
	free(m);
	q->meta = NULL;
}

