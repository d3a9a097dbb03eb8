/* SPDX-License-Identifier: GPL-2.0-or-later */
/* disk_load: see disk_load.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "tests/disk_load.h"

#define SECTOR 512u
#define VERIFY 1024u		/* sectors read at a time */

/*
 * Sectors.
 */

void
sector_fill(void *buf, uint64_t place, uint32_t version)
{
	uint64_t *p = buf, i;

	for (i = 0; i < SECTOR / 8; i += 2) {
		p[i] = version == 0 ? 0 : place;
		p[i + 1] = version == 0 ? 0 : 0x5a5a0000ull << 32 | version;
	}
}

bool
sector_version(const void *buf, uint64_t place, uint32_t *version)
{
	uint64_t expected[SECTOR / 8];

	*version = (uint32_t)((const uint64_t *)buf)[1];
	sector_fill(expected, place, *version);
	return memcmp(buf, expected, SECTOR) == 0;
}

/*
 * The model.
 */

size_t
model_bytes(uint32_t nr_sectors)
{
	return sizeof(struct model) + nr_sectors * sizeof(struct model_sector);
}

uint64_t
model_place(const struct model *m, uint32_t i)
{
	return i / m->window * m->stride + i % m->window;
}

bool
model_may(const struct model *m, uint32_t i, uint32_t version)
{
	const struct model_sector *s = &m->sectors[i];
	uint32_t k;

	if (s->nr == MODEL_ANY)
		return true;
	for (k = 0; k < s->nr; k++)
		if (s->value[k] == version)
			return true;
	return false;
}

static bool
model_has_room(const struct model *m, uint32_t first, uint32_t count)
{
	uint32_t i;

	for (i = first; i < first + count; i++)
		if (m->sectors[i].nr >= MODEL_VALUES)
			return false;
	return true;
}

/* The value is there before the number says so: we may die in between. */
void
model_begin(struct model *m, uint32_t first, uint32_t count, uint32_t version)
{
	struct model_sector *s;
	uint32_t i;

	for (i = first; i < first + count; i++) {
		s = &m->sectors[i];
		if (model_may(m, i, version))
			continue;
		if (s->nr < MODEL_VALUES)
			s->value[s->nr] = version;
		__atomic_store_n(&s->nr, s->nr < MODEL_VALUES ? s->nr + 1 :
		    MODEL_ANY, __ATOMIC_RELEASE);
	}
}

void
model_end(struct model *m, uint32_t first, uint32_t count, uint32_t version)
{
	uint32_t i;

	for (i = first; i < first + count; i++) {
		m->sectors[i].value[0] = version;
		__atomic_store_n(&m->sectors[i].nr, 1, __ATOMIC_RELEASE);
	}
}

static void
describe(const struct model *m, uint32_t i, const void *buf, bool known,
    uint32_t version, char why[WHY_MAX])
{
	const struct model_sector *s = &m->sectors[i];
	const uint64_t *p = buf;
	int n;
	uint32_t k;

	n = snprintf(why, WHY_MAX, "sector %llu (%u of the model) holds ",
	    (unsigned long long)model_place(m, i), i);
	if (known)
		n += snprintf(why + n, WHY_MAX - (size_t)n, "version %u",
		    version);
	else
		n += snprintf(why + n, WHY_MAX - (size_t)n, "%016llx %016llx",
		    (unsigned long long)p[0], (unsigned long long)p[1]);
	n += snprintf(why + n, WHY_MAX - (size_t)n, ", but may hold");
	for (k = 0; k < s->nr && k < MODEL_VALUES; k++)
		n += snprintf(why + n, WHY_MAX - (size_t)n, " %u",
		    s->value[k]);
}

bool
model_check(struct model *m, uint32_t first, uint32_t count, const void *buf,
    bool learn, char why[WHY_MAX])
{
	const char *p = buf;
	uint32_t i, version;
	bool known;

	for (i = first; i < first + count; i++, p += SECTOR) {
		known = sector_version(p, model_place(m, i), &version);
		if (!known || !model_may(m, i, version)) {
			describe(m, i, p, known, version, why);
			return false;
		}
		if (learn)
			model_end(m, i, 1, version);
	}
	return true;
}

/*
 * The guest.
 */

uint64_t
load_dice(struct load *l, uint64_t below)
{
	l->dice ^= l->dice << 13;
	l->dice ^= l->dice >> 7;
	l->dice ^= l->dice << 17;
	return (l->dice * 0x2545f4914f6cdd1dull >> 16) % below;
}

static bool
overlap(const struct load_op *o, uint32_t first, uint32_t count)
{
	return o->rio != NULL && o->rio->nr_done == 0 &&
	    first < o->first + o->count && o->first < first + count;
}

/* Of two at the same time nobody knows what comes out. */
static void
mark_fuzzy(struct load *l, struct load_op *late)
{
	struct load_op *o;

	for (o = l->ops; o < l->ops + l->depth; o++)
		if (o != late && overlap(o, late->first, late->count))
			o->fuzzy = late->fuzzy = true;
}

/* ... but it is something that belongs there. */
static bool
fuzzy_check(const struct model *m, const struct load_op *o,
    char why[WHY_MAX])
{
	const char *p = o->rio->buf;
	uint32_t i, version;

	for (i = o->first; i < o->first + o->count; i++, p += SECTOR)
		if (!sector_version(p, model_place(m, i), &version)) {
			describe(m, i, p, false, 0, why);
			return false;
		}
	return true;
}

static bool
read_check(struct load *l, const struct load_op *o, char why[WHY_MAX])
{
	if (o->fuzzy)
		return fuzzy_check(l->model, o, why);
	return model_check(l->model, o->first, o->count, o->rio->buf, false,
	    why);
}

static struct load_op *
op_of(struct load *l, const struct rig_io *rio)
{
	unsigned i;

	for (i = 0; i < LOAD_DEPTH; i++)
		if (l->ops[i].rio == rio)
			return &l->ops[i];
	fail_msg("an operation that was not under way has ended");
	return NULL;
}

/* rig_io has no room for it, and there is one load in a process. */
static struct load *running;

static void
op_ended(struct rig_io *rio)
{
	struct load *l = running;
	struct load_op *o = op_of(l, rio);
	char why[WHY_MAX];

	if (rio->error != 0 && !l->errors)
		fail_msg("operation %u of %u sectors at %u ended with %d",
		    o->op, o->count, o->first, rio->error);
	if (rio->error == 0 && o->op == IO_WRITE && !o->fuzzy)
		model_end(l->model, o->first, o->count, o->version);
	if (rio->error == 0 && o->op == IO_READ && !read_check(l, o, why))
		fail_msg("read: %s", why);
	if (l->ended != NULL)
		l->ended(l, o, rio->error);
}

/* Give back the memory of what has ended.  Some slot that is free, or NULL. */
static struct load_op *
op_free(struct load *l)
{
	struct load_op *o, *slot = NULL;
	unsigned i;

	for (i = 0; i < l->depth; i++) {
		o = &l->ops[i];
		if (o->rio != NULL && o->rio->nr_done > 0) {
			rig_io_free(o->rio);
			o->rio = NULL;
		}
		if (o->rio == NULL)
			slot = o;
	}
	return slot;
}

/* Until something has ended. */
static void
load_wait(struct load *l)
{
	unsigned before = l->rig->nr_done;
	struct epoll_event ev;

	rig_reap(l->rig);
	while (l->rig->nr_inflight > 0 && l->rig->nr_done == before) {
		if (l->rig->epfd != -1 && epoll_wait(l->rig->epfd, &ev, 1,
		    RIG_TIMEOUT_MS) != 1)
			fail_msg("nothing ends any more");
		rig_reap(l->rig);
	}
}

void
load_drain(struct load *l)
{
	while (l->rig->nr_inflight > 0)
		load_wait(l);
	op_free(l);
}

static bool
is_busy(const struct load *l, uint32_t first, uint32_t count)
{
	unsigned i;

	for (i = 0; i < l->depth; i++)
		if (overlap(&l->ops[i], first, count))
			return true;
	return false;
}

static void
fill(struct load *l, const struct load_op *o)
{
	char *p = o->rio->buf;
	uint32_t i;

	for (i = 0; i < o->count; i++, p += SECTOR)
		sector_fill(p, model_place(l->model, o->first + i),
		    o->version);
}

static struct load_op *
op_begin(struct load *l, enum io_op op, uint32_t first, uint32_t count)
{
	int iovs = 1 + (count >= 4 ? (int)load_dice(l, 4) : 0);
	struct load_op *o;

	while ((o = op_free(l)) == NULL)
		load_wait(l);
	*o = (struct load_op){ .op = op, .first = first, .count = count };
	o->rio = rig_io_new(l->rig, op, count == 0 ? 0 :
	    model_place(l->model, first) * SECTOR, (uint64_t)count * SECTOR,
	    iovs);
	o->rio->then = op_ended;
	mark_fuzzy(l, o);
	if (op == IO_WRITE) {
		o->version = ++l->model->last;
		fill(l, o);
	}
	if (op == IO_WRITE || op == IO_DISCARD)
		model_begin(l->model, first, count, o->version);
	running = l;
	if (l->begun != NULL)
		l->begun(l, o);
	rig_submit(o->rio);
	return o;
}

/* A range that begins and ends where 'granule' sectors do, if not to be 0. */
static void
choose_range(struct load *l, uint32_t granule, uint32_t *first,
    uint32_t *count)
{
	struct model *m = l->model;
	uint32_t window = (uint32_t)m->window, at, n, base, room;

	base = (uint32_t)load_dice(l, m->nr_sectors / window) * window;
	room = load_dice(l, 2) == 0 ? window : window / 8;
	at = (uint32_t)load_dice(l, room);
	switch (load_dice(l, 8)) {
	case 0: case 1: case 2:
		n = 1 + (uint32_t)load_dice(l, 8);
		break;
	case 3: case 4:
		n = l->cluster;
		at -= at % l->cluster;
		break;
	case 5:
		n = l->cluster * (1 + (uint32_t)load_dice(l, 4));
		at -= at % l->cluster;
		break;
	default:
		n = 1 + (uint32_t)load_dice(l, l->longest);
		break;
	}
	at -= at % granule;
	n += granule - 1;
	n -= n % granule;
	if (n > l->longest)
		n = l->longest - l->longest % granule;
	if (n == 0)
		n = granule;
	*first = base + at;
	*count = n < window - at ? n : window - at;
}

static enum io_op
choose_op(struct load *l)
{
	unsigned d = (unsigned)load_dice(l, 100);

	if (d < l->reads)
		return IO_READ;
	if (d < l->reads + l->flushes)
		return IO_FLUSH;
	if (d < l->reads + l->flushes + l->discards &&
	    l->rig->img->discard_granularity > 0)
		return IO_DISCARD;
	return IO_WRITE;
}

void
load_one(struct load *l)
{
	enum io_op op = choose_op(l);
	uint32_t granule = 1, first, count;

	if (op == IO_FLUSH) {
		if (l->alone)
			load_drain(l);
		op_begin(l, op, 0, 0);
		if (l->alone)
			load_drain(l);
		return;
	}
	if (op == IO_DISCARD)
		granule = l->rig->img->discard_granularity / SECTOR;
	choose_range(l, granule, &first, &count);
	while (is_busy(l, first, count)) {
		if (load_dice(l, 100) < l->overlaps)
			break;
		load_wait(l);
		op_free(l);
	}
	/* Too little is known of it: find out first. */
	if (op != IO_READ && !model_has_room(l->model, first, count))
		op = IO_READ;
	op_begin(l, op, first, count);
	rig_reap(l->rig);
}

int
load_again(struct load *l, enum io_op op, uint32_t first, uint32_t count)
{
	struct load_op *o;

	load_drain(l);
	o = op_begin(l, op, first, count);
	while (o->rio->nr_done == 0)
		load_wait(l);
	return o->rio->error;
}

int
load_flush(struct load *l)
{
	return load_again(l, IO_FLUSH, 0, 0);
}

bool
load_check(struct load *l, bool learn, char why[WHY_MAX])
{
	uint32_t i, n, window = (uint32_t)l->model->window;
	struct rig_io *rio;
	bool right = true;

	load_drain(l);
	for (i = 0; right && i < l->model->nr_sectors; i += n) {
		n = window - i % window;
		if (n > VERIFY)
			n = VERIFY;
		rio = rig_io_new(l->rig, IO_READ,
		    model_place(l->model, i) * SECTOR, (uint64_t)n * SECTOR, 1);
		rig_submit(rio);
		rig_wait(l->rig);
		right = rio->error == 0 &&
		    model_check(l->model, i, n, rio->buf, learn, why);
		if (rio->error != 0)
			snprintf(why, WHY_MAX, "read sector %llu: %d",
			    (unsigned long long)model_place(l->model, i),
			    rio->error);
		rig_io_free(rio);
	}
	return right;
}

void
load_verify(struct load *l, bool learn)
{
	char why[WHY_MAX];

	if (!load_check(l, learn, why))
		fail_msg("%s", why);
}
