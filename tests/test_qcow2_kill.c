/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * test_qcow2_kill: the process dies, the host lives.
 *
 * A child works on an image, with memory lent for what is not in the file
 * yet, and notes in more such memory what it was told is done.  It is killed:
 * at some moment, or by itself in the nth call that changes the file.  The
 * next child opens the image with the same memory and must find all that was
 * done, without anybody having flushed; then it works on until it dies, too.
 * Some die while they open, activate or deactivate.  From time to time one
 * may close the image, and qemu-img looks at it.
 *
 *   SEED=n        begin elsewhere
 *   KILLS=n       so many of each shape
 *   SHAPE=name    only this one
 */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/io_tap.h"
#include "tests/qcow2_shape.h"

#define SECTOR      512u
#define WATCHDOG    40u		/* seconds that a child may take */
#define CLEAN_EVERY 12u		/* kills */
#define LOST        7		/* exit status: something is missing */
#define RESERVED    (1u << 20)	/* bytes, by the driver, at a time */
#define DEPTH       12u
#define LONGEST     200u	/* sectors of an operation */

enum stage { OPENING, ACTIVATING, CHECKING, WORKING, FLUSHING, DEACTIVATING,
	STAGES };

static const char *const stage_names[STAGES] = { "opening", "activating",
	"checking", "working", "flushing", "deactivating" };

/* Where the child kills itself. */
enum place { NOWHERE, BEFORE, TORN, AFTER, PLACES };

struct shared {
	_Atomic int  stage;
	_Atomic bool death;		/* by its own hand */
	struct model model;		/* must be last */
};

struct run {
	const struct shape *shape;
	char           file[512];
	struct bytes   first;
	struct shared *shared;
	void          *redo;
	size_t         redo_bytes;
	int            log;		/* what the child says */
	struct load    dice;
	bool           forget;		/* the memory after each death */
	unsigned       nr_kills[STAGES];
	unsigned       nr_closed;
	unsigned       leaks, may_leak;	/* clusters, since it was made */
};

/* How one child goes about it. */
struct life {
	uint64_t   seed;
	enum place place;
	unsigned   nth;
	bool       blocking;		/* asynchronous calls do not count */
	bool       punches;		/* nothing but holes does */
	bool       flushes;
	bool       clean;		/* it closes the image and ends */
	unsigned   nr_ops;
};

/*
 * Death by one's own hand.
 */

static struct {
	const struct life *life;
	struct shared     *shared;
	_Atomic unsigned   nr_calls;
} hand;

static void
die(void)
{
	hand.shared->death = true;
	kill(getpid(), SIGKILL);
	for (;;)
		pause();
}

static long
die_begin(struct tap_call *c)
{
	const struct life *life = hand.life;
	uint64_t half = c->length / 2 / SECTOR * SECTOR;

	if (c->kind == TAP_READ || (life->blocking && c->async) ||
	    (life->punches && c->kind != TAP_PUNCH) ||
	    atomic_fetch_add(&hand.nr_calls, 1) + 1 != life->nth)
		return 0;
	if (life->place == BEFORE)
		die();
	c->mark = &hand;
	if (life->place == AFTER || c->kind != TAP_WRITE)
		return 0;
	return half > 0 ? (long)half : TAP_NOTHING;
}

static void
die_end(struct tap_call *c, long result)
{
	(void)result;
	if (c->mark == &hand)
		die();
}

/*
 * The child.
 */

static void
enter(struct run *run, enum stage stage)
{
	run->shared->stage = stage;
}

static void
activate(struct run *run, struct rig *r)
{
	enter(run, ACTIVATING);
	if (image_activate(r->img, r->why) != 0)
		fail_msg("activate: %s", r->why);
	rig_watch(r, 16);
}

static void
deactivate(struct run *run, struct load *l)
{
	load_drain(l);
	enter(run, DEACTIVATING);
	rig_unwatch(l->rig);
	if (image_deactivate(l->rig->img, l->rig->why) != 0)
		fail_msg("deactivate: %s", l->rig->why);
}

static void
verify(struct run *run, struct load *l)
{
	char why[WHY_MAX];

	enter(run, CHECKING);
	if (load_check(l, true, why))
		return;
	if (run->forget)
		_exit(LOST);
	fail_msg("%s", why);
}

static void
work(struct run *run, struct load *l, const struct life *life)
{
	unsigned i;

	for (i = 0; i < life->nr_ops; i++) {
		enter(run, WORKING);
		load_one(l);
		if (life->flushes && load_dice(l, 20) == 0) {
			enter(run, FLUSHING);
			load_flush(l);
		}
		if (load_dice(l, 300) == 0) {
			deactivate(run, l);
			activate(run, l->rig);
		}
	}
}

static void
live(struct run *run, const struct life *life)
{
	const struct rlimit no_core = { 0, 0 };
	struct rig r = { .discard = true };
	struct load l = { .rig = &r, .model = &run->shared->model,
		.dice = life->seed, .depth = 1 + (unsigned)life->seed % DEPTH,
		.discards = 15, .reads = 5, .overlaps = 30, .longest = LONGEST,
		.cluster = run->shape->cluster / SECTOR };

	dup2(run->log, STDERR_FILENO);
	setrlimit(RLIMIT_CORE, &no_core);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setenv("CMOCKA_TEST_ABORT", "1", 1);	/* it is not the test's */
	alarm(WATCHDOG);
	hand.life = life;
	hand.shared = run->shared;
	tap_watch(run->file);
	tap.real_aio = life->place == NOWHERE;
	if (life->place != NOWHERE) {
		tap.begin = die_begin;
		tap.end = die_end;
		tap.delay_us = 50;
	}
	enter(run, OPENING);
	if (rig_image(&r, shape_format(run->shape), run->file, false,
	    CACHE_NONE) != 0)
		fail_msg("open: %s", r.why);
	r.img->redo = run->redo;
	shape_starve(run->shape, r.img, life->seed);
	activate(run, &r);
	if (life->clean || load_dice(&l, 3) > 0)
		verify(run, &l);
	work(run, &l, life);
	if (!life->clean) {
		kill(getpid(), SIGKILL);
		pause();
	}
	verify(run, &l);
	deactivate(run, &l);
	image_close(r.img);
	_exit(0);
}

/*
 * The parent.
 */

static void *
share(size_t bytes)
{
	void *p;

	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
	    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(p != MAP_FAILED);
	return p;
}

static size_t
shared_bytes(const struct run *run)
{
	return sizeof(struct shared) + model_bytes(shape_sectors(run->shape));
}

static void
run_begin(struct run *run, uint64_t seed)
{
	struct rig r = { .discard = true };

	run->dice.dice = seed;
	shape_make(run->shape, run->file, &run->first);
	bytes_write(&run->first, run->file);
	run->log = memfd_create("log", MFD_CLOEXEC);
	assert_true(run->log != -1);
	run->shared = share(shared_bytes(run));
	shape_model(run->shape, &run->shared->model);
	assert_int_equal(rig_image(&r, shape_format(run->shape), run->file,
	    false, CACHE_NONE), 0);
	run->redo_bytes = r.img->redo_bytes;
	image_close(r.img);
	if (run->redo_bytes > 0)
		run->redo = share(run->redo_bytes);
}

static void
run_end(struct run *run)
{
	close(run->log);
	munmap(run->shared, shared_bytes(run));
	if (run->redo != NULL)
		munmap(run->redo, run->redo_bytes);
	shape_remove(run->file, &run->first);
}

/* Of the same order of magnitude equally often. */
static unsigned
any_order(struct load *l, unsigned least, unsigned orders)
{
	unsigned n = least << load_dice(l, orders);

	return n + (unsigned)load_dice(l, n);
}

static int
child(struct run *run, const struct life *life)
{
	unsigned pause;
	int status;
	pid_t pid;

	run->shared->death = false;
	fflush(NULL);
	pid = fork();
	assert_true(pid != -1);
	if (pid == 0) {
		live(run, life);
		_exit(1);
	}
	if (!life->clean && life->place == NOWHERE) {
		pause = any_order(&run->dice, 200, 7);
		usleep(pause);
		kill(pid, SIGKILL);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

/*
 * Did it complain?  It may have been killed before it could end by itself for
 * that.
 */
static bool
has_complained(struct run *run, char *text, size_t size)
{
	ssize_t n;

	n = pread(run->log, text, size - 1, 0);
	assert_true(n >= 0);
	text[n] = '\0';
	assert_int_equal(ftruncate(run->log, 0), 0);
	assert_int_equal(lseek(run->log, 0, SEEK_SET), 0);
	return n > 0;
}

static void
check_end(struct run *run, const struct life *life, int status)
{
	char text[4096];
	bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;

	if (!has_complained(run, text, sizeof(text)) &&
	    (life->clean ? status == 0 : killed))
		return;
	fail_msg("%s: a child (seed %llu, place %u, call %u of %s) ended with "
	    "%#x while %s; see %s\n%s", run->shape->name,
	    (unsigned long long)life->seed, life->place, life->nth,
	    life->punches ? "the holes" : life->blocking ?
	    "the blocking ones" : "all", (unsigned)status,
	    stage_names[run->shared->stage], run->file, text);
}

/* What was about to be used, or had just been reserved. */
static unsigned
may_leak(const struct shape *s)
{
	return DEPTH * (LONGEST * SECTOR / s->cluster + 2) +
	    RESERVED / s->cluster;
}

/* false: what was done is lost, which only happens when we forget. */
static bool
kill_one(struct run *run)
{
	struct load *d = &run->dice;
	struct life life = { .seed = load_dice(d, 1u << 30) + 1,
		.place = (enum place)load_dice(d, PLACES),
		.nth = any_order(d, 1, 9), .blocking = load_dice(d, 3) > 0,
		.flushes = load_dice(d, 3) == 0, .nr_ops = 2000 };
	char text[512];
	int status;

	if (load_dice(d, 2) == 0)
		life.place = NOWHERE;
	if (life.place != NOWHERE)
		life.nr_ops = 300;
	/* Where clusters are given back the order matters most. */
	life.punches = load_dice(d, 4) == 0;
	if (life.punches)
		life.nth = any_order(d, 1, 5);
	status = child(run, &life);
	if (run->forget && (has_complained(run, text, sizeof(text)) ||
	    (WIFEXITED(status) && WEXITSTATUS(status) == LOST)))
		return false;
	check_end(run, &life, status);
	run->nr_kills[run->shared->stage]++;
	run->may_leak += may_leak(run->shape);
	if (run->forget && run->redo != NULL)
		memset(run->redo, 0, run->redo_bytes);
	return true;
}

static void
close_one(struct run *run)
{
	struct life life = { .seed = load_dice(&run->dice, 1u << 30) + 1,
		.clean = true, .nr_ops = 40 };
	unsigned leaks;
	int status;

	status = child(run, &life);
	check_end(run, &life, status);
	if (!shape_check(run->shape, run->file, &leaks))
		fail_msg("%s: errors in %s", run->shape->name, run->file);
	if (leaks > run->may_leak)
		fail_msg("%s: %u clusters are lost, of %u", run->shape->name,
		    leaks, run->may_leak);
	run->leaks = leaks;
	if (!shape_check_snapshot(run->shape, run->file))
		fail_msg("%s: the snapshot has changed", run->shape->name);
	run->nr_closed++;
	/* Whoever opens it next finds it unused. */
	if (run->redo != NULL)
		memset(run->redo, 0, run->redo_bytes);
}

static void
test_shape(void **state)
{
	struct run run = { .shape = *state };
	unsigned long kills = setting("KILLS", 20), i;
	const char *only = getenv("SHAPE");
	int s;

	if (only != NULL && strcmp(only, run.shape->name) != 0)
		return;
	run_begin(&run, setting("SEED", 1) * 15485863);
	for (i = 1; i <= kills; i++) {
		kill_one(&run);
		if (i % CLEAN_EVERY == 0 || i == kills)
			close_one(&run);
	}
	print_message("%s: %lu kills, %u closed, %u leaks (%u allowed);",
	    run.shape->name, kills, run.nr_closed, run.leaks, run.may_leak);
	for (s = 0; s < STAGES; s++)
		print_message(" %u %s", run.nr_kills[s], stage_names[s]);
	print_message("\n");
	run_end(&run);
}

/* Without the memory something is lost sooner or later. */
static void
test_forget(void **state)
{
	struct run run = { .shape = &shapes[0], .forget = true };
	unsigned i;

	(void)state;
	run_begin(&run, 4);
	assert_true(run.redo_bytes > 0);
	for (i = 0; i < 100 && kill_one(&run); i++)
		;
	assert_in_range(i, 0, 99);
	run_end(&run);
}

int
main(void)
{
	struct CMUnitTest tests[32] = { {
		.name = "raw", .test_func = test_shape,
		.initial_state = (void *)(uintptr_t)&shape_raw } };
	unsigned i, n = 1;

	shape_setup();
	if (driver_find("qcow2") != NULL) {
		tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_forget);
		for (i = 0; i < nr_shapes; i++)
			tests[n++] = (struct CMUnitTest){
				.name = shapes[i].name,
				.test_func = test_shape,
				.initial_state = (void *)(uintptr_t)&shapes[i],
			};
	}
	return _cmocka_run_group_tests("kill", tests, n, NULL, NULL);
}
