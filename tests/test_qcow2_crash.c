/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * test_qcow2_crash: the host loses power.
 *
 * A guest works on an image while every call that changes the file is
 * recorded, with the moment at which it began and at which it ended.  Then
 * the power fails, on paper, at a moment of our choice: what ended before a
 * sync began that has ended by then is on the disk; of everything else each
 * call is there, is not, or is there in some of its sectors.  That makes a
 * file, and of that file is asked that qemu-img finds no error (clusters may
 * be lost), that what the guest flushed can be read, that what it wrote after
 * that is old or new in each sector, and that one can go on working with it.
 *
 * In some runs the process "dies" before that, once or more: from a chosen
 * call of the driver on nothing reaches the file any more, and the image is
 * opened again with the memory that it had lent as it was in that call.
 * While the guest works, the disk becomes larger, some times.
 *
 * In the cache modes in which each write is durable (O_DSYNC), a write that
 * has ended is on the disk, the driver's own included, and what the guest
 * was told to be written can be read without any flush.
 *
 *   SEED=n        begin elsewhere
 *   IMAGES=n      so many crashes of each run
 *   RUNS=n        so many runs of each shape; each is in another cache mode
 *   SHAPE=name    only this one
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/io_tap.h"
#include "tests/qcow2_shape.h"

#define SECTOR 512u
#define NEVER  UINT64_MAX
#define MAX_OPS 4000u
#define FLUSH_AFTER 40u		/* operations at most without a flush */
#define FILE_MAX (256u << 20)

/*
 * What happened.
 */

struct event {
	enum tap_kind kind;
	bool          novel;		/* of the driver's own writes the */
					/* first one there */
	uint64_t      began, ended;	/* moments */
	uint64_t      durable;		/* the moment from which on it is */
	uint64_t      offset, length;
	uint8_t      *data;		/* of a write */
};

struct guest_op {
	enum io_op op;
	uint32_t   first, count, version;
	bool       fuzzy;
	uint64_t   began, ended;
};

static struct {
	pthread_mutex_t mutex;
	uint64_t        now;
	struct event   *events;
	size_t          nr_events, room;
	bool            lie;		/* forget that there were syncs */
	bool            durable;	/* each write is, by itself */
	unsigned        die_in;		/* calls; 0: live on */
	bool            die_after;	/* that call, else before it */
	bool            dead;
	void           *redo, *redo_copy;	/* the memory lent; then */
	size_t          redo_bytes;
	struct guest_op ops[MAX_OPS];
	unsigned        nr_ops;
} past = { .mutex = PTHREAD_MUTEX_INITIALIZER };

/* With the mutex: is this the call in which it dies? */
static void
count_down(bool after)
{
	if (past.die_in == 0 || past.die_after != after || --past.die_in > 0)
		return;
	past.dead = true;
	if (past.redo_bytes > 0)
		memcpy(past.redo_copy, past.redo, past.redo_bytes);
}

static long
record_begin(struct tap_call *c)
{
	struct event *e;
	uint64_t at = 0;
	int i;

	if (c->kind == TAP_READ || (c->kind == TAP_SYNC && past.lie))
		return 0;
	pthread_mutex_lock(&past.mutex);
	count_down(false);
	if (past.dead) {
		pthread_mutex_unlock(&past.mutex);
		return -EIO;
	}
	if (past.nr_events == past.room) {
		past.room = past.room * 2 + 1024;
		past.events = realloc(past.events,
		    past.room * sizeof(*past.events));
		if (past.events == NULL)
			abort();
	}
	e = &past.events[past.nr_events++];
	*e = (struct event){ .kind = c->kind, .began = ++past.now,
		.ended = NEVER, .durable = NEVER, .offset = c->offset,
		.length = c->length,
		.novel = c->kind == TAP_WRITE && !c->async };
	if (c->kind == TAP_WRITE) {
		e->data = malloc(c->length);
		if (e->data == NULL)
			abort();
		for (i = 0; i < c->iovcnt; at += c->iov[i++].iov_len)
			memcpy(e->data + at, c->iov[i].iov_base,
			    c->iov[i].iov_len);
	}
	c->mark = (void *)(uintptr_t)past.nr_events;
	pthread_mutex_unlock(&past.mutex);
	return 0;
}

static void
record_end(struct tap_call *c, long result)
{
	struct event *e;

	if (c->mark == NULL)
		return;
	pthread_mutex_lock(&past.mutex);
	e = &past.events[(uintptr_t)c->mark - 1];
	e->ended = ++past.now;
	if (result < 0)			/* nothing happened */
		e->kind = TAP_READ;
	else if (e->kind == TAP_WRITE)
		e->length = (uint64_t)result;
	count_down(true);
	pthread_mutex_unlock(&past.mutex);
}

static uint64_t
record_now(void)
{
	uint64_t now;

	pthread_mutex_lock(&past.mutex);
	now = ++past.now;
	pthread_mutex_unlock(&past.mutex);
	return now;
}

static struct guest_op *
op_new(enum io_op op, uint32_t first, uint32_t count, uint32_t version)
{
	struct guest_op *o = &past.ops[past.nr_ops++];

	assert_true(past.nr_ops <= MAX_OPS);
	*o = (struct guest_op){ .op = op, .first = first, .count = count,
		.version = version, .began = record_now(), .ended = NEVER };
	return o;
}

static void
record_begun(struct load *l, struct load_op *o)
{
	(void)l;
	o->mark[0] = (uint64_t)(op_new(o->op, o->first, o->count, o->version) -
	    past.ops);
}

static void
record_ended(struct load *l, struct load_op *o, int error)
{
	(void)l;
	assert_true(error == 0 || past.dead);
	past.ops[o->mark[0]].fuzzy = o->fuzzy;
	if (error == 0)
		past.ops[o->mark[0]].ended = record_now();
}

static void
past_forget(void)
{
	size_t i;

	tap = (struct tap){ 0 };
	for (i = 0; i < past.nr_events; i++)
		free(past.events[i].data);
	free(past.events);
	past.events = NULL;
	past.nr_events = past.room = 0;
	past.nr_ops = 0;
	past.now = 0;
}

/* From when on each of them is durable. */
static void
past_judge(void)
{
	struct event *e, *s, *end = past.events + past.nr_events;

	for (e = past.events; e < end; e++) {
		if (past.durable && e->kind == TAP_WRITE)
			e->durable = e->ended;
		for (s = past.events; s < end; s++)
			if (s->kind == TAP_SYNC && s->began > e->ended &&
			    s->ended < e->durable)
				e->durable = s->ended;
		for (s = past.events; e->novel && s < e; s++)
			if (s->kind == TAP_WRITE && s->offset == e->offset)
				e->novel = false;
	}
}

/*
 * The crash.
 */

enum mood { KEEP_ALL, DROP_ALL, HALF, FEW, MOST, ONE_KEPT, ONE_DROPPED, MOODS };

struct crash {
	struct load   *dice;
	uint64_t       moment;
	enum mood      mood;
	size_t         one;		/* event of the last two moods */
	size_t         hint;		/* it, if that is open; or none */
	struct bytes   file;
};

static void
file_reach(struct bytes *b, uint64_t size)
{
	if (size <= b->size)
		return;
	assert_true(size <= FILE_MAX);
	b->p = realloc(b->p, size);
	assert_non_null(b->p);
	memset(b->p + b->size, 0, size - b->size);
	b->size = size;
}

static bool
is_kept(struct crash *c, size_t i)
{
	switch (c->mood) {
	case KEEP_ALL:    return true;
	case DROP_ALL:    return false;
	case FEW:         return load_dice(c->dice, 10) == 0;
	case MOST:        return load_dice(c->dice, 10) != 0;
	case ONE_KEPT:    return i == c->one;
	case ONE_DROPPED: return i != c->one;
	default:          return load_dice(c->dice, 2) == 0;
	}
}

/* All of it, or some of its sectors. */
static void
apply_write(struct crash *c, const struct event *e, bool torn)
{
	uint64_t at, n, split = load_dice(c->dice, e->length / SECTOR + 1);
	bool random = load_dice(c->dice, 2) == 0;

	for (at = 0; at < e->length; at += n) {
		n = e->length - at < SECTOR ? e->length - at : SECTOR;
		if (torn && (random ? load_dice(c->dice, 2) == 0 :
		    at / SECTOR >= split))
			continue;
		file_reach(&c->file, e->offset + at + n);
		memcpy(c->file.p + e->offset + at, e->data + at, n);
	}
}

static void
apply(struct crash *c, const struct event *e, bool torn)
{
	struct bytes *f = &c->file;
	uint64_t end = e->offset + e->length;

	switch (e->kind) {
	case TAP_WRITE:
		apply_write(c, e, torn);
		break;
	case TAP_GROW:
		file_reach(f, end);
		break;
	case TAP_PUNCH:
		if (end > f->size)
			end = f->size;
		if (e->offset < end)
			memset(f->p + e->offset, 0, end - e->offset);
		break;
	case TAP_RESIZE:
		file_reach(f, e->offset);
		f->size = e->offset;
		break;
	default:
		break;
	}
}

/* Some event that is open at that moment, if there is one. */
static size_t
choose_one(struct crash *c)
{
	size_t i, found = 0, n = 0;
	const struct event *e;

	if (c->hint < past.nr_events && load_dice(c->dice, 2) == 0)
		return c->hint;
	for (i = 0; i < past.nr_events; i++) {
		e = &past.events[i];
		if (e->began <= c->moment && e->durable > c->moment &&
		    e->kind != TAP_SYNC && load_dice(c->dice, ++n) == 0)
			found = i;
	}
	return found;
}

/* The file that is found afterwards. */
static void
crash_make(struct crash *c, const struct bytes *first)
{
	const struct event *e;
	size_t i;

	c->file.size = first->size;
	c->file.p = malloc(first->size + 1);
	assert_non_null(c->file.p);
	memcpy(c->file.p, first->p, first->size);
	c->mood = (enum mood)load_dice(c->dice, MOODS);
	c->one = choose_one(c);
	for (i = 0; i < past.nr_events; i++) {
		e = &past.events[i];
		if (e->began > c->moment)
			break;
		if (e->durable <= c->moment)
			apply(c, e, false);
		else if (is_kept(c, i))
			apply(c, e, c->mood != KEEP_ALL &&
			    load_dice(c->dice, 4) == 0);
	}
}

/* What may be read then. */
static void
crash_model(const struct crash *c, struct model *m)
{
	const struct guest_op *o, *end = past.ops + past.nr_ops;
	uint64_t flushed = 0;

	for (o = past.ops; o < end; o++)
		if (o->op == IO_FLUSH && o->ended <= c->moment &&
		    o->began > flushed)
			flushed = o->began;
	for (o = past.ops; o < end; o++) {
		if (o->began > c->moment || o->op == IO_READ ||
		    o->op == IO_FLUSH)
			continue;
		if (o->op == IO_WRITE && !o->fuzzy && (o->ended < flushed ||
		    (past.durable && o->ended <= c->moment)))
			model_end(m, o->first, o->count, o->version);
		else
			model_begin(m, o->first, o->count, o->version);
	}
	m->last = 1000000;
}

/*
 * Work on an image and record it.
 */

struct mode {
	enum engine_kind engine;
	enum cache_mode  cache;
};

struct run {
	const struct shape *shape;
	struct mode         mode;
	char                file[512];
	struct bytes        first;
	uint64_t            seed;
	unsigned            nr_images;
	unsigned            leaks;	/* most that an image had */
	bool                deaths;	/* of the process before that */
	unsigned            nr_deaths, nr_grown;
};

static struct model *
model_new(const struct shape *s)
{
	struct model *m = calloc(1, model_bytes(shape_sectors(s)));

	assert_non_null(m);
	shape_model(s, m);
	return m;
}

static struct load
load_of(struct run *run, struct rig *r, struct model *m)
{
	return (struct load){ .rig = r, .model = m, .dice = run->seed,
		.depth = 8, .discards = 15, .reads = 3, .flushes = 4,
		.overlaps = 30, .longest = 256,
		.cluster = run->shape->cluster / SECTOR };
}

/* With memory lent, which is new or what a process left that died. */
static void
open_with(struct run *run, struct rig *r, const void *left)
{
	*r = (struct rig){ .discard = true, .engine = run->mode.engine };
	if (rig_image(r, shape_format(run->shape), run->file, false,
	    run->mode.cache) != 0)
		fail_msg("%s", r->why);
	past.redo_bytes = r->img->redo_bytes;
	if (past.redo_bytes > 0) {
		past.redo = aligned_alloc(4096, past.redo_bytes);
		past.redo_copy = aligned_alloc(4096, past.redo_bytes);
		assert_true(past.redo != NULL && past.redo_copy != NULL);
		if (left != NULL)
			memcpy(past.redo, left, past.redo_bytes);
		else
			memset(past.redo, 0, past.redo_bytes);
		r->img->redo = past.redo;
	}
	shape_starve(run->shape, r->img, run->seed);
	if (image_activate(r->img, r->why) != 0)
		fail_msg("%s", r->why);
	rig_watch(r, 16);
}

/*
 * Meanwhile the disk becomes larger, again and again, but for what cannot: an
 * image of version 2 with snapshots.
 */
struct grower {
	struct image *img;
	pthread_t     thread;
	bool          running;
	int           error;
	unsigned      nr;
	char          why[WHY_MAX];
};

static void *
grow(void *arg)
{
	struct grower *g = arg;
	uint64_t size = g->img->size;

	g->error = image_resize(g->img, size + size / 4 / SECTOR * SECTOR,
	    g->why);
	return NULL;
}

/* Dead processes may fail; the load goes on, for whoever grows waits for it. */
static void
grow_end(struct grower *g, struct load *l)
{
	if (!g->running)
		return;
	load_drain(l);
	assert_int_equal(pthread_join(g->thread, NULL), 0);
	g->running = false;
	g->nr += g->error == 0;
	if (g->error != 0 && g->error != -EOPNOTSUPP && !past.dead)
		fail_msg("%s", g->why);
}

static void
grow_begin(struct grower *g, struct load *l)
{
	grow_end(g, l);
	g->img = l->rig->img;
	g->running = true;
	assert_int_equal(pthread_create(&g->thread, NULL, grow, g), 0);
}

/*
 * Let it die while it answers a flush, if it makes as many calls for that, or
 * becomes larger, and begin again.
 */
static void
die(struct run *run, struct load *l, struct grower *g)
{
	struct rig_io *flush;
	void *left, *lent;
	unsigned ms;

	load_drain(l);
	if (load_dice(l, 2) == 0)
		grow_begin(g, l);
	pthread_mutex_lock(&past.mutex);
	past.die_in = 1 + (unsigned)load_dice(l, 5);
	past.die_after = load_dice(l, 2) == 0;
	pthread_mutex_unlock(&past.mutex);
	flush = rig_io_new(l->rig, IO_FLUSH, 0, 0, 0);
	rig_submit(flush);
	rig_reap(l->rig);
	for (ms = 0; ms < 50 && !past.dead; ms++)
		usleep(1000);
	pthread_mutex_lock(&past.mutex);
	past.die_in = 0;
	pthread_mutex_unlock(&past.mutex);
	rig_wait(l->rig);
	rig_io_free(flush);
	grow_end(g, l);
	if (!past.dead)
		return;

	rig_unwatch(l->rig);
	(void)image_deactivate(l->rig->img, l->rig->why);
	image_close(l->rig->img);
	past.dead = false;
	left = past.redo_copy;
	lent = past.redo;
	open_with(run, l->rig, left);
	free(left);
	free(lent);
	run->nr_deaths++;
}

/* Open, work, close; recorded. */
static void
record(struct run *run, unsigned nr_ops)
{
	struct model *m = model_new(run->shape);
	struct rig r;
	struct load l = load_of(run, &r, m);
	unsigned i, since = 0, before;
	struct grower g = { 0 };
	struct guest_op *o;

	past.durable = cache_is_durable(run->mode.cache);
	bytes_write(&run->first, run->file);
	tap_watch(run->file);
	tap.begin = record_begin;
	tap.end = record_end;
	tap.delay_us = 200;
	l.begun = record_begun;
	l.ended = record_ended;
	open_with(run, &r, NULL);
	for (i = 0; i < nr_ops; i++) {
		before = past.nr_ops;
		load_one(&l);
		since = past.ops[before].op == IO_FLUSH ? 0 : since + 1;
		if (since >= FLUSH_AFTER) {
			load_flush(&l);
			since = 0;
		}
		if (i % 80 == 50)
			grow_begin(&g, &l);
		if (run->deaths && load_dice(&l, 40) == 0)
			die(run, &l, &g);
	}
	grow_end(&g, &l);
	run->nr_grown += g.nr;
	load_drain(&l);
	o = op_new(IO_FLUSH, 0, 0, 0);	/* closing it is one, too */
	rig_close(&r);
	o->ended = record_now();
	tap.begin = NULL;
	tap.end = NULL;
	tap.delay_us = 0;
	free(past.redo);
	free(past.redo_copy);
	past.redo = past.redo_copy = NULL;
	past_judge();
	free(m);
}

static int
by_end(const void *a, const void *b)
{
	const struct event *x = a, *y = b;

	return x->ended < y->ended ? -1 : x->ended > y->ended;
}

static int
by_begin(const void *a, const void *b)
{
	const struct event *x = a, *y = b;

	return x->began < y->began ? -1 : x->began > y->began;
}

/*
 * Was all of it seen?  With nothing lost the file is what we think.  Those
 * under way at the same time were done in the order in which they ended.
 */
static void
check_record(struct run *run)
{
	struct crash c = { .moment = NEVER, .hint = SIZE_MAX };
	struct bytes found;
	uint64_t i;

	for (i = 0; i < past.nr_events; i++)
		past.events[i].durable = 0;
	qsort(past.events, past.nr_events, sizeof(*past.events), by_end);
	c.dice = &(struct load){ .dice = 1 };
	crash_make(&c, &run->first);
	bytes_read(&found, run->file);
	assert_int_equal(found.size, c.file.size);
	for (i = 0; i < found.size && found.p[i] == c.file.p[i]; i++)
		;
	if (i < found.size)
		fail_msg("byte %llu of the file was changed unseen",
		    (unsigned long long)i);
	for (i = 0; i < past.nr_events; i++)
		past.events[i].durable = NEVER;
	qsort(past.events, past.nr_events, sizeof(*past.events), by_begin);
	past_judge();
	free(found.p);
	free(c.file.p);
}

/*
 * Look at what a crash left.
 */

/* Just before what the driver has written there for the first time is safe. */
static uint64_t
moment_of_novelty(struct crash *c)
{
	size_t i, n = 0;

	c->hint = past.nr_events;
	for (i = 0; i < past.nr_events; i++)
		if (past.events[i].novel && load_dice(c->dice, ++n) == 0)
			c->hint = i;
	if (c->hint == past.nr_events || past.events[c->hint].durable == NEVER)
		return past.now;
	return past.events[c->hint].durable - 1;
}

/* Moments at which something begins or ends are the ones that count. */
static uint64_t
choose_moment(struct crash *c)
{
	struct load *l = c->dice;
	const struct event *e;
	const struct guest_op *o;
	unsigned tries;

	c->hint = past.nr_events;
	if (load_dice(l, 4) == 0)
		return 1 + load_dice(l, past.now);
	if (load_dice(l, 3) == 0)
		return moment_of_novelty(c);
	for (tries = 0; tries < 1000; tries++) {
		if (load_dice(l, 2) == 0) {
			o = &past.ops[load_dice(l, past.nr_ops)];
			if (o->op == IO_FLUSH || (past.durable &&
			    o->op == IO_WRITE && o->ended != NEVER))
				return o->ended;
			continue;
		}
		e = &past.events[load_dice(l, past.nr_events)];
		if (e->kind != TAP_WRITE || load_dice(l, 20) == 0)
			return load_dice(l, 2) == 0 ? e->began : e->ended - 1 +
			    load_dice(l, 4);
	}
	return past.now;
}

/* What came of it, beside what the crash left. */
static void
keep(const char *file)
{
	char name[600];

	snprintf(name, sizeof(name), "%s.after", file);
	assert_int_equal(rename(file, name), 0);
}

/*
 * What was lost with those clusters that lie where the file has not grown to;
 * qemu-img does not see them before it has.
 */
static unsigned
all_leaks(struct run *run, const struct crash *c)
{
	struct bytes longer = { .size = c->file.size };
	char name[600];
	unsigned leaks;
	size_t i;

	for (i = 0; i < past.nr_events; i++)
		if (past.events[i].offset + past.events[i].length > longer.size)
			longer.size = past.events[i].offset +
			    past.events[i].length;
	longer.p = calloc(1, longer.size + 1);
	assert_non_null(longer.p);
	memcpy(longer.p, c->file.p, c->file.size);
	snprintf(name, sizeof(name), "%s.longer", run->file);
	bytes_write(&longer, name);
	free(longer.p);
	assert_true(shape_check(run->shape, name, &leaks));
	unlink(name);
	return leaks;
}

/* It must be of use, and not get worse by that. */
static bool
go_on(struct run *run, struct crash *c, struct load *l, unsigned leaks,
    char why[WHY_MAX])
{
	unsigned i, now;

	for (i = 0; i < 25; i++)
		load_one(l);
	if (!load_check(l, true, why)) {
		rig_close(l->rig);
		return false;
	}
	rig_close(l->rig);
	if (!shape_check(run->shape, run->file, &now)) {
		snprintf(why, WHY_MAX, "errors after more work");
		return false;
	}
	if (now > leaks && now > all_leaks(run, c)) {
		snprintf(why, WHY_MAX, "%u leaks, then %u after more work",
		    leaks, now);
		return false;
	}
	return true;
}

static bool
is_right(struct run *run, struct crash *c, char why[WHY_MAX])
{
	struct model *m = model_new(run->shape);
	struct rig r = { .discard = true };
	struct load l = load_of(run, &r, m);
	unsigned leaks;
	bool right;

	l.dice = c->moment + 1;
	crash_model(c, m);
	if (!shape_check(run->shape, run->file, &leaks)) {
		snprintf(why, WHY_MAX, "qemu-img check finds errors");
		free(m);
		return false;
	}
	if (leaks > run->leaks)
		run->leaks = leaks;
	r.epfd = -1;
	if (rig_image(&r, shape_format(run->shape), run->file, false,
	    CACHE_NONE) == 0)
		shape_starve(run->shape, r.img, c->moment);
	if (r.img == NULL || image_activate(r.img, r.why) != 0) {
		snprintf(why, WHY_MAX, "%s", r.why);
		image_close(r.img);
		free(m);
		return false;
	}
	rig_watch(&r, 16);
	right = load_check(&l, true, why);
	if (right)
		right = go_on(run, c, &l, leaks, why);
	else
		rig_close(&r);
	if (right && load_dice(&l, 4) == 0 &&
	    !shape_check_snapshot(run->shape, run->file)) {
		snprintf(why, WHY_MAX, "the snapshot has changed");
		right = false;
	}
	free(m);
	return right;
}

/* How many crashes left what they must not. */
static unsigned
crashes(struct run *run, unsigned nr_images, bool report)
{
	struct load dice = { .dice = run->seed * 77 + 1 };
	struct crash c = { .dice = &dice };
	char why[WHY_MAX];
	unsigned i, wrong = 0;

	for (i = 0; i < nr_images; i++) {
		c.moment = choose_moment(&c);
		crash_make(&c, &run->first);
		bytes_write(&c.file, run->file);
		if (!is_right(run, &c, why)) {
			wrong++;
			if (report) {
				keep(run->file);
				bytes_write(&c.file, run->file);
				fail_msg("%s, cache mode %u, seed %llu, moment "
				    "%llu of %llu, mood %u, one %zu: %s; see "
				    "%s", run->shape->name, run->mode.cache,
				    (unsigned long long)run->seed,
				    (unsigned long long)c.moment,
				    (unsigned long long)past.now, c.mood,
				    c.one, why, run->file);
			}
		}
		free(c.file.p);
	}
	run->nr_images += nr_images;
	return wrong;
}

/*
 * Cases.
 */

/* A disk on which syncs do nothing must be found out. */
static void
test_lie(void **state)
{
	struct run run = { .shape = &shape_raw, .seed = 5 };
	unsigned wrong;

	(void)state;
	shape_make(run.shape, run.file, &run.first);
	past.lie = true;
	record(&run, 200);
	past.lie = false;
	wrong = crashes(&run, 20, false);
	print_message("%u of 20 crashes lose what was flushed\n", wrong);
	assert_in_range(wrong, 1, 20);
	past_forget();
	shape_remove(run.file, &run.first);
}

static void
test_raw(void **state)
{
	struct run run = { .shape = &shape_raw, .seed = 6 };

	(void)state;
	shape_make(run.shape, run.file, &run.first);
	record(&run, 200);
	check_record(&run);
	crashes(&run, 20, true);
	past_forget();
	shape_remove(run.file, &run.first);
}

static unsigned
count_syncs(void)
{
	unsigned n = 0;
	size_t i;

	for (i = 0; i < past.nr_events; i++)
		n += past.events[i].kind == TAP_SYNC;
	return n;
}

/*
 * A flush covers what a process wrote that has died since, also when its
 * successor had everything open before that.
 */
static void
test_heir(void **state)
{
	struct run run = { .shape = &shapes[2], .seed = 7 };
	struct model *m = model_new(run.shape);
	struct rig r, heir = { .discard = true };
	struct load l = load_of(&run, &r, m);
	unsigned before;

	(void)state;
	past_forget();
	shape_make(run.shape, run.file, &run.first);
	bytes_write(&run.first, run.file);
	tap_watch(run.file);
	tap.begin = record_begin;
	tap.end = record_end;
	open_with(&run, &r, NULL);
	assert_int_equal(load_again(&l, IO_WRITE, 0, 128), 0);
	assert_int_equal(load_flush(&l), 0);
	assert_int_equal(rig_image(&heir, "qcow2", run.file, false,
	    CACHE_NONE), 0);
	rig_watch(&heir, 16);
	assert_int_equal(load_again(&l, IO_WRITE, 0, 8), 0);
	usleep(20000);			/* it reserves, perhaps */
	past.dead = true;
	memcpy(past.redo_copy, past.redo, past.redo_bytes);
	load_drain(&l);
	rig_unwatch(&r);
	assert_int_not_equal(image_deactivate(r.img, r.why), 0);
	image_close(r.img);
	past.dead = false;

	heir.img->redo = past.redo_copy;
	assert_int_equal(image_activate(heir.img, heir.why), 0);
	before = count_syncs();
	assert_int_equal(rig_flush(&heir), 0);
	assert_true(count_syncs() > before);
	rig_close(&heir);
	free(past.redo);
	free(past.redo_copy);
	past.redo = past.redo_copy = NULL;
	past_forget();
	free(m);
	shape_remove(run.file, &run.first);
}

static const struct mode modes[] = {
	{ ENGINE_AIO, CACHE_NONE },
	{ ENGINE_AIO, CACHE_NONE },
	{ ENGINE_AIO, CACHE_DIRECTSYNC },
	{ ENGINE_THREADS, CACHE_WRITETHROUGH },
	{ ENGINE_THREADS, CACHE_WRITEBACK },
};

#define NR_MODES (sizeof(modes) / sizeof(modes[0]))

static void
test_shape(void **state)
{
	struct run run = { .shape = *state };
	unsigned long seed = setting("SEED", 1), runs = setting("RUNS",
	    NR_MODES);
	const char *only = getenv("SHAPE");

	if (only != NULL && strcmp(only, run.shape->name) != 0)
		return;
	past_forget();		/* what a failed test has left */
	shape_make(run.shape, run.file, &run.first);
	for (; runs > 0; runs--) {
		run.deaths = seed % 2 == 0;
		run.mode = modes[(seed + NR_MODES - 1) % NR_MODES];
		run.seed = seed++ * 7919 + 1;
		record(&run, (unsigned)setting("OPS", 250));
		check_record(&run);
		crashes(&run, (unsigned)setting("IMAGES", 3), true);
		past_forget();
	}
	print_message("%s: %u crashes after %u deaths and %u resizes, at most "
	    "%u clusters lost\n", run.shape->name, run.nr_images,
	    run.nr_deaths, run.nr_grown, run.leaks);
	shape_remove(run.file, &run.first);
}

int
main(void)
{
	struct CMUnitTest tests[32] = {
		cmocka_unit_test(test_lie),
		cmocka_unit_test(test_raw),
	};
	unsigned i, n = 2;

	shape_setup();
	tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_heir);
	for (i = 0; i < nr_shapes; i++)
		tests[n++] = (struct CMUnitTest){
			.name = shapes[i].name, .test_func = test_shape,
			.initial_state = (void *)(uintptr_t)&shapes[i],
		};
	return _cmocka_run_group_tests("crash", tests, n, NULL, NULL);
}
