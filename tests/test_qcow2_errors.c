/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * test_qcow2_errors: the storage fails, each call in turn.
 *
 * A guest works on an image; the nth call that changes the file fails, once
 * or from then on until it is mended, with EIO, with ENOSPC, or by doing half
 * of what it should.  Then: every request ends, and says so if it did not do
 * what it was asked; what failed works when it is tried again; the image is
 * what it should be when it is closed, to qemu-img too.
 *
 * Where a sync failed nobody knows what is on the disk, so from then on no
 * write and no flush may succeed.
 *
 *   SEED=n        begin elsewhere
 *   TRIES=n       so many calls of each kind are tried; 0: all of them
 *   SHAPE=name    only this one
 */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/io_tap.h"
#include "tests/qcow2_shape.h"

#define SECTOR      512u
#define NR_OPS      70u
#define FLUSH_EVERY 9u		/* operations */
#define STAY_BROKEN 14u		/* operations, until it is mended */
#define WATCHDOG    60u		/* seconds */
#define MAX_FAILED  64u

enum how { FAIL_EIO, FAIL_ENOSPC, FAIL_SHORT, FAIL_READ, HOWS };

static const char *const how_names[HOWS] = { "EIO", "ENOSPC", "short write",
	"read EIO" };

/* What is to fail, and what has. */
static struct {
	enum how     how;
	bool         always;
	unsigned     nth;		/* from 1 on */
	_Atomic bool armed;
	_Atomic unsigned nr_calls;	/* of those that could have failed */
	_Atomic unsigned nr_failed;
	_Atomic bool sync_failed;
} fault;

static long
fail_begin(struct tap_call *c)
{
	uint64_t half = c->length / 2 / SECTOR * SECTOR;
	unsigned n;

	if (!fault.armed || (c->kind == TAP_READ) != (fault.how == FAIL_READ) ||
	    (fault.how == FAIL_SHORT && c->kind != TAP_WRITE))
		return 0;
	n = atomic_fetch_add(&fault.nr_calls, 1) + 1;
	if (n < fault.nth || (n > fault.nth && !fault.always))
		return 0;
	atomic_fetch_add(&fault.nr_failed, 1);
	if (c->kind == TAP_SYNC)
		fault.sync_failed = true;
	if (fault.how == FAIL_SHORT)
		return half > 0 ? (long)half : TAP_NOTHING;
	return fault.how == FAIL_ENOSPC ? -ENOSPC : -EIO;
}

static void
fault_arm(enum how how, bool always, unsigned nth)
{
	fault.how = how;
	fault.always = always;
	fault.nth = nth;
	fault.nr_calls = fault.nr_failed = 0;
	fault.sync_failed = false;
	fault.armed = true;
}

/* An image, and the guest's view of it. */
struct trial {
	const struct shape *shape;
	char          file[512];
	struct bytes  first;
	struct model *now;		/* what a read may say */
	struct model *flushed;		/* and after a crash */
	struct rig    r;
	struct load   l;
	struct load_op failed[MAX_FAILED];	/* that are to be tried again */
	unsigned      nr_failed;
	char          name[128];
};

static void
models_reset(struct trial *t)
{
	memset(t->now, 0, model_bytes(shape_sectors(t->shape)));
	shape_model(t->shape, t->now);
	memcpy(t->flushed, t->now, model_bytes(t->now->nr_sectors));
}

static void
op_begun(struct load *l, struct load_op *o)
{
	struct trial *t = l->test;

	if (o->op == IO_WRITE || o->op == IO_DISCARD)
		model_begin(t->flushed, o->first, o->count, o->version);
}

static void
op_ended(struct load *l, struct load_op *o, int error)
{
	struct trial *t = l->test;

	if (error != 0 && fault.nr_failed == 0)
		fail_msg("%s: operation %u ended with %d, but nothing has "
		    "failed", t->name, o->op, error);
	if (error != 0 && t->nr_failed < MAX_FAILED)
		t->failed[t->nr_failed++] = *o;
	if (error == 0 && o->op == IO_FLUSH)
		memcpy(t->flushed, t->now, model_bytes(t->now->nr_sectors));
}

static void
try_open(struct trial *t, uint64_t seed)
{
	bytes_write(&t->first, t->file);
	models_reset(t);
	t->nr_failed = 0;
	t->r = (struct rig){ .discard = true };
	t->l = (struct load){ .rig = &t->r, .model = t->now, .dice = seed,
		.depth = 4, .discards = 20, .reads = 5, .errors = true,
		.cluster = t->shape->cluster / SECTOR, .longest = 160,
		.alone = true, .begun = op_begun, .ended = op_ended,
		.test = t };
	tap_watch(t->file);
	tap.begin = fail_begin;
	if (rig_image(&t->r, shape_format(t->shape), t->file, false,
	    CACHE_NONE) != 0)
		fail_msg("%s", t->r.why);
	shape_starve(t->shape, t->r.img, seed);
	if (image_activate(t->r.img, t->r.why) != 0)
		fail_msg("%s", t->r.why);
	rig_watch(&t->r, 8);
}

/* A failed sync is for good: flushes say so, and then writes do. */
static void
expect_failed(struct trial *t)
{
	if (t->shape->options == NULL)
		return;
	if (load_flush(&t->l) == 0)
		fail_msg("%s: a flush succeeds after a failed sync", t->name);
	if (load_again(&t->l, IO_WRITE, 3, 1) == 0)
		fail_msg("%s: a write succeeds after a failed sync", t->name);
	if (load_flush(&t->l) == 0)
		fail_msg("%s: another flush succeeds", t->name);
}

/* What failed works now. */
static void
try_again(struct trial *t)
{
	struct load_op again[MAX_FAILED], *o;
	unsigned n;
	int rc;

	load_drain(&t->l);
	n = t->nr_failed;
	t->nr_failed = 0;
	memcpy(again, t->failed, sizeof(again));
	if (fault.sync_failed) {
		expect_failed(t);
		return;
	}
	for (o = again; o < again + n; o++) {
		rc = load_again(&t->l, o->op, o->first, o->count);
		if (rc != 0)
			fail_msg("%s: operation %u of %u sectors at %u ends "
			    "with %d again", t->name, o->op, o->count,
			    o->first, rc);
	}
	t->nr_failed = 0;
}

static void
work(struct trial *t)
{
	unsigned i, broken = 0;

	for (i = 0; i < NR_OPS; i++) {
		if (i % FLUSH_EVERY == FLUSH_EVERY - 1) {
			load_drain(&t->l);
			load_flush(&t->l);
		} else {
			load_one(&t->l);
		}
		if (fault.nr_failed == 0)
			continue;
		if (fault.always && ++broken < STAY_BROKEN)
			continue;
		fault.armed = false;
		if (t->nr_failed > 0 || fault.sync_failed)
			try_again(t);
		if (fault.sync_failed)
			break;
	}
	load_drain(&t->l);
}

/* Open it anew, and look. */
static void
look(struct trial *t, bool lost)
{
	struct model *m = lost ? t->flushed : t->now;
	struct rig r = { .discard = true };
	struct load l = { .rig = &r, .model = m, .dice = 1, .depth = 4 };
	char why[WHY_MAX];

	rig_open(&r, shape_format(t->shape), t->file, false, 8);
	if (!load_check(&l, false, why))
		fail_msg("%s: opened again%s: %s; see %s", t->name,
		    lost ? " after an error" : "", why, t->file);
	rig_close(&r);
	if (!shape_check_snapshot(t->shape, t->file))
		fail_msg("%s: the snapshot has changed", t->name);
}

/* Close it; what is there must be right.  Was there a failure? */
static bool
finish(struct trial *t)
{
	unsigned leaks, before = fault.nr_failed;
	bool lost, failed;
	int rc;

	load_drain(&t->l);
	rig_unwatch(&t->r);
	rc = image_deactivate(t->r.img, t->r.why);
	failed = fault.nr_failed > 0;
	if (rc != 0 && fault.nr_failed == before && !fault.sync_failed)
		fail_msg("%s: close: %s", t->name, t->r.why);
	fault.armed = false;
	image_close(t->r.img);
	lost = rc != 0 || fault.sync_failed;
	if (!shape_check(t->shape, t->file, &leaks))
		fail_msg("%s: errors in %s", t->name, t->file);
	if (leaks > 0 && !lost)
		fail_msg("%s: %u clusters are lost, see %s", t->name, leaks,
		    t->file);
	look(t, lost);
	return failed;
}

/* With the nth call failing.  Did one? */
static bool
trial(struct trial *t, enum how how, bool always, unsigned nth, uint64_t seed)
{
	char why[WHY_MAX];

	snprintf(t->name, sizeof(t->name), "%s, %s %s at call %u, seed %llu",
	    t->shape->name, how_names[how], always ? "always" : "once", nth,
	    (unsigned long long)seed);
	alarm(WATCHDOG);
	try_open(t, seed);
	fault_arm(how, always, nth);
	work(t);
	if (!fault.sync_failed) {
		if (fault.nr_failed > 0)
			fault.armed = false;
		if (load_flush(&t->l) != 0) {
			fault.armed = false;
			try_again(t);
		}
	}
	if (!fault.armed && !load_check(&t->l, false, why))
		fail_msg("%s: %s", t->name, why);
	alarm(WATCHDOG);
	return finish(t);
}

/* Every call of it. */
static void
try_each(struct trial *t, enum how how, bool always, uint64_t seed)
{
	unsigned nth;

	for (nth = 1; trial(t, how, always, nth, seed); nth++)
		;
	print_message("%s, %s %s: %u calls\n", t->shape->name,
	    how_names[how], always ? "always" : "once", nth - 1);
}

/* Some calls of it. */
static void
try_some(struct trial *t, enum how how, unsigned tries, uint64_t seed)
{
	struct load dice = { .dice = seed * 5 + (unsigned)how };
	unsigned nr_calls;

	assert_false(trial(t, how, false, UINT32_MAX, seed));
	nr_calls = fault.nr_calls;
	assert_true(nr_calls > 0);
	for (; tries > 0; tries--)
		trial(t, how, tries % 2 == 0,
		    1 + (unsigned)load_dice(&dice, nr_calls), seed);
}

/* It cannot be activated, then it can. */
static void
try_activate(struct trial *t, enum how how)
{
	unsigned nth, failures = 0;
	bool failed = true;
	int rc;

	for (nth = 1; failed; nth++) {
		snprintf(t->name, sizeof(t->name), "%s, activate, %s at call "
		    "%u", t->shape->name, how_names[how], nth);
		alarm(WATCHDOG);
		bytes_write(&t->first, t->file);
		tap_watch(t->file);
		models_reset(t);
		t->r = (struct rig){ .discard = true };
		assert_int_equal(rig_image(&t->r, shape_format(t->shape),
		    t->file, false, CACHE_NONE), 0);
		fault_arm(how, true, nth);
		rc = image_activate(t->r.img, t->r.why);
		failed = fault.nr_failed > 0;
		failures += rc != 0;
		if (rc != 0 && !failed)
			fail_msg("%s: %s", t->name, t->r.why);
		fault.armed = false;
		if (rc != 0 && image_activate(t->r.img, t->r.why) != 0)
			fail_msg("%s: again: %s", t->name, t->r.why);
		rig_watch(&t->r, 8);
		load_verify(&t->l, false);
		finish(t);
	}
	if (failures > 0)
		print_message("%s, activate, %s: %u calls, %u failures\n",
		    t->shape->name, how_names[how], nth - 2, failures);
}

/* The file may not grow any more, really; then it may. */
static void
try_limit(struct trial *t, uint64_t seed)
{
	const struct rlimit none = { RLIM_INFINITY, RLIM_INFINITY };
	struct rlimit limit = none;

	snprintf(t->name, sizeof(t->name), "%s, file size limit, seed %llu",
	    t->shape->name, (unsigned long long)seed);
	alarm(WATCHDOG);
	try_open(t, seed);
	fault_arm(FAIL_EIO, false, UINT32_MAX);
	fault.nr_failed = 1;		/* errors are to be expected */
	limit.rlim_cur = t->first.size + seed % 5 * 65536;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	while (t->nr_failed < 10 && t->l.model->last < 200)
		load_one(&t->l);
	load_drain(&t->l);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
	try_again(t);
	assert_int_equal(load_flush(&t->l), 0);
	finish(t);
}

static void
test_shape(void **state)
{
	struct trial *t = calloc(1, sizeof(*t));
	uint64_t seed = setting("SEED", 1) * 104729;
	unsigned tries = (unsigned)setting("TRIES", 3);
	const char *only = getenv("SHAPE");
	size_t bytes;
	int how;

	assert_non_null(t);
	t->shape = *state;
	if (only != NULL && strcmp(only, t->shape->name) != 0) {
		free(t);
		return;
	}
	tap = (struct tap){ 0 };	/* what a failed test has left */
	fault.armed = false;
	bytes = model_bytes(shape_sectors(t->shape));
	t->now = calloc(1, bytes);
	t->flushed = calloc(1, bytes);
	assert_true(t->now != NULL && t->flushed != NULL);
	shape_make(t->shape, t->file, &t->first);
	for (how = 0; how < HOWS; how++) {
		if (tries > 0) {
			try_some(t, (enum how)how, tries, seed);
		} else {
			try_each(t, (enum how)how, false, seed);
			try_each(t, (enum how)how, true, seed);
		}
		try_activate(t, (enum how)how);
	}
	try_limit(t, seed);
	tap.begin = NULL;
	alarm(0);
	shape_remove(t->file, &t->first);
	free(t->now);
	free(t->flushed);
	free(t);
}

int
main(void)
{
	struct CMUnitTest tests[32] = { {
		.name = "raw", .test_func = test_shape,
		.initial_state = (void *)(uintptr_t)&shape_raw } };
	unsigned i, n = 1;

	shape_setup();
	signal(SIGXFSZ, SIG_IGN);
	if (driver_find("qcow2") != NULL)
		for (i = 0; i < nr_shapes; i++)
			tests[n++] = (struct CMUnitTest){
				.name = shapes[i].name,
				.test_func = test_shape,
				.initial_state = (void *)(uintptr_t)&shapes[i],
			};
	return _cmocka_run_group_tests("errors", tests, n, NULL, NULL);
}
