/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * test_fault: the driver fault does what its rule says, no more and no less.
 *
 * That it keeps the contract of a driver is test_drivers' business.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "tests/driver_rig.h"

#define FILE_SIZE (1024 * 1024)

static struct rig rig;
static char file[512];
static unsigned nr_settime;

/* Counts, and passes on to the real one. */
int
timerfd_settime(int fd, int flags, const struct itimerspec *new,
    struct itimerspec *old)
{
	nr_settime++;
	return (int)syscall(SYS_timerfd_settime, fd, flags, new, old);
}

static int
setup(void **state)
{
	(void)state;
	memset(&rig, 0, sizeof(rig));
	rig_make_file(file, FILE_SIZE);
	return 0;
}

static int
teardown(void **state)
{
	(void)state;
	if (rig.img != NULL)
		rig_close(&rig);
	unlink(file);
	return 0;
}

/* fault:RULE:raw:FILE */
static void
open_rule(const char *rule)
{
	char path[700];

	snprintf(path, sizeof(path), "%s:raw:%s", rule, file);
	rig.discard = true;
	rig_open(&rig, "fault", path, false, 64);
}

/* 'w', 'r', 'f', 'd': one I/O each, at sectors 0, 1, 2, ...; d at page 4 */
static void
run(const char *ops, int errors[])
{
	struct rig_io *rio[64];
	unsigned i, n = (unsigned)strlen(ops);

	for (i = 0; i < n; i++) {
		if (ops[i] == 'f')
			rio[i] = rig_io_new(&rig, IO_FLUSH, 0, 0, 0);
		else if (ops[i] == 'd')
			rio[i] = rig_io_new(&rig, IO_DISCARD, 16384, 4096, 0);
		else
			rio[i] = rig_io_new(&rig,
			    ops[i] == 'w' ? IO_WRITE : IO_READ,
			    i * 512, 512, 1);
		rig_submit(rio[i]);
	}
	rig_wait(&rig);
	for (i = 0; i < n; i++) {
		errors[i] = rio[i]->error;
		rig_io_free(rio[i]);
	}
}

static const struct {
	const char *rule;
	const char *ops;
	const char *hit;	/* '-': must succeed */
	int         error;
} rules[] = {
	{ "nth=1",                         "wrfwrf", "x-----", -EIO },
	{ "nth=4",                         "wrfwrf", "---x--", -EIO },
	{ "every=2",                       "wrfwrf", "-x-x-x", -EIO },
	{ "every=1",                       "wrfwrf", "xxxxxx", -EIO },
	{ "from=5",                        "wrfwrf", "----xx", -EIO },
	{ "op=any,from=1",                 "wrfwrf", "xxxxxx", -EIO },
	{ "error=ENOSPC",                  "wrfwrf", "xxxxxx", -ENOSPC },
	{ "op=read",                       "wrfwrf", "-x--x-", -EIO },
	{ "op=write,error=EROFS",          "wrfwrf", "x--x--", -EROFS },
	{ "op=flush,error=EOPNOTSUPP",     "wrfwrf", "--x--x", -EOPNOTSUPP },
	{ "op=read,nth=2,error=ETIMEDOUT", "wrfwrf", "----x-", -ETIMEDOUT },
	{ "op=write,every=2",              "wwwwww", "-x-x-x", -EIO },
	{ "offset=1024",                   "wrrwrf", "--xxx-", -EIO },
	{ "offset=1023",                   "wrrwrf", "-xxxx-", -EIO },
	{ "length=1024",                   "wrrwrf", "xx----", -EIO },
	{ "length=1025",                   "wrrwrf", "xxx---", -EIO },
	{ "offset=1000,length=24",         "wrrwrf", "-x----", -EIO },
	{ "offset=1000,length=25",         "wrrwrf", "-xx---", -EIO },
	{ "offset=512,length=1,op=write",  "wrrwrf", "------", -EIO },
	{ "offset=512,op=read,nth=2",      "wrrwrf", "--x---", -EIO },
	{ "delay-ms=1",                    "wrfwrf", "------", 0 },
	{ "delay-ms=1,error=EIO,nth=3",    "wrfwrf", "--x---", -EIO },
	{ "short=512,nth=2",               "wrfwrf", "-x----", -EIO },
	{ "short=512,op=flush",            "wrfwrf", "--x--x", -EIO },
	{ "nth=2:fault:nth=2",             "wrfwrf", "-xx---", -EIO },
	{ "op=discard",                    "wdrfwd", "-x---x", -EIO },
	{ "op=any,short=512,every=2",      "wdrfwd", "-x-x-x", -EIO },
	{ "offset=20479,op=discard",       "wdrfwd", "-x---x", -EIO },
	{ "offset=20480,op=discard",       "wdrfwd", "------", -EIO },
	{ "op=discard,delay-ms=1",         "wdrfwd", "------", 0 },
	{ "delay-ms=1:fault:op=read,error=ENOSPC",
	                                   "wrfwrf", "-x--x-", -ENOSPC },
};

static void
test_rules(void **state)
{
	const char *ops;
	int errors[64];
	size_t i, k;

	(void)state;
	for (i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
		ops = rules[i].ops;
		open_rule(rules[i].rule);
		run(ops, errors);
		for (k = 0; ops[k] != '\0'; k++)
			if (errors[k] != (rules[i].hit[k] == 'x' ?
			    rules[i].error : 0))
				fail_msg("%s: I/O %zu ends with %d",
				    rules[i].rule, k + 1, errors[k]);
		rig_close(&rig);
	}
}

/* Fail the first I/O, the second, ... until a run has no failure left. */
static void
test_sweep(void **state)
{
	const char *ops = "wwwrrrfwrfwwrf";
	unsigned nth, i, failed;
	char rule[32];
	int errors[64];

	(void)state;
	for (nth = 1; ; nth++) {
		snprintf(rule, sizeof(rule), "nth=%u", nth);
		open_rule(rule);
		run(ops, errors);
		for (failed = i = 0; ops[i] != '\0'; i++)
			if (errors[i] != 0) {
				assert_int_equal(i + 1, nth);
				failed++;
			}
		rig_close(&rig);
		if (failed == 0)
			break;
	}
	assert_int_equal(nth, strlen(ops) + 1);
}

/* A flush has no range, whatever its offset says. */
static void
test_flush_in_range(void **state)
{
	(void)state;
	open_rule("offset=4096");
	assert_int_equal(rig_do(rig_io_new(&rig, IO_FLUSH, 8192, 0, 0)), 0);
}

/* The one below sees as its first flush what is the second here. */
static void
test_not_passed_on(void **state)
{
	static const char *const pairs[] = {
		"nth=1:fault:nth=1,error=ENOSPC",
		"nth=1,short=512:fault:nth=1,error=ENOSPC",
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
		open_rule(pairs[i]);
		assert_int_equal(rig_flush(&rig), -EIO);
		assert_int_equal(rig_flush(&rig), -ENOSPC);
		rig_close(&rig);
	}
}

/* The count goes over all channels of the image. */
static void
test_channels_count_together(void **state)
{
	struct rig second = { 0 };

	(void)state;
	open_rule("nth=2");
	second.img = rig.img;
	rig_watch(&second, 4);
	assert_int_equal(rig_flush(&rig), 0);
	assert_int_equal(rig_flush(&second), -EIO);
	assert_int_equal(rig_flush(&rig), 0);
	rig_unwatch(&second);
}

/* What failed did not reach the image, but for what short= let through. */
static void
check_sectors(unsigned moved)
{
	struct rig_io *rio;
	unsigned i;

	rig_close(&rig);
	rig_open(&rig, "raw", file, false, 4);
	for (i = 0; i < 16; i++) {
		rio = rig_io_new(&rig, IO_READ, 512 * i, 512, 1);
		rig_submit(rio);
		rig_wait(&rig);
		assert_int_equal(rio->error, 0);
		if (rig_holds(rio, 1) != (i < moved))
			fail_msg("sector %u of %u", i, moved);
		rig_io_free(rio);
	}
	rig_close(&rig);
}

static void
test_short_write(void **state)
{
	static const struct { const char *rule; int iovcnt; unsigned moved; }
	cases[] = {
		{ "op=write",            3, 0 },
		{ "short=512",           1, 1 },
		{ "short=4096",          1, 8 },
		{ "short=512",           8, 1 },
		{ "short=1024",          8, 2 },
		{ "short=1536",          8, 3 },
		{ "short=2560",          3, 5 },
		{ "short=4096",          8, 8 },
		{ "short=8192",          3, 16 },
		{ "short=1048576",       3, 16 },
		{ "short=512,delay-ms=1", 3, 1 },
	};
	struct rig_io *rio;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		open_rule("nth=1000000000");
		rio = rig_io_new(&rig, IO_WRITE, 0, 8192, 3);
		assert_int_equal(rig_do(rio), 0);
		rig_close(&rig);

		open_rule(cases[i].rule);
		rio = rig_io_new(&rig, IO_WRITE, 0, 8192, cases[i].iovcnt);
		rig_fill(rio, 1);
		assert_int_equal(rig_do(rio), -EIO);
		check_sectors(cases[i].moved);
	}
}

static void
test_short_read(void **state)
{
	struct rig_io *rio;
	const unsigned char *p;

	(void)state;
	open_rule("short=1024,op=read");
	rio = rig_io_new(&rig, IO_WRITE, 0, 8192, 3);
	rig_fill(rio, 1);
	assert_int_equal(rig_do(rio), 0);

	rio = rig_io_new(&rig, IO_READ, 0, 8192, 3);
	rig_submit(rio);
	rig_wait(&rig);
	assert_int_equal(rio->error, -EIO);
	p = rio->buf;
	assert_int_equal(p[1024], 0xee);	/* as rig_io_new() left it */
	assert_memory_equal(p + 1024, p + 1025, 8192 - 1025);
	rio->io.length = 1024;
	assert_true(rig_holds(rio, 1));
	rig_io_free(rio);
}

static uint64_t
now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/* Late ones end late, in the order in which they came; others do not wait. */
static void
test_delay(void **state)
{
	struct rig_io *late[8], *soon;
	uint64_t begin, end;
	unsigned i;

	(void)state;
	open_rule("op=write,delay-ms=150");
	begin = now_ms();
	for (i = 0; i < 8; i++) {
		late[i] = rig_io_new(&rig, IO_WRITE, i * 512, 512, 1);
		rig_submit(late[i]);
	}
	soon = rig_io_new(&rig, IO_READ, 65536, 512, 1);
	rig_submit(soon);
	nr_settime = 0;
	while (soon->nr_done == 0)
		rig_reap(&rig);
	for (i = 0; i < 20; i++)
		rig_reap(&rig);
	assert_in_range(nr_settime, 0, 8);	/* not at each reap */
	if (now_ms() - begin < 140)
		assert_int_equal(rig.nr_inflight, 8);
	rig_wait(&rig);
	end = now_ms();
	assert_in_range(end - begin, 150, 5000);
	for (i = 0; i < 8; i++) {
		assert_int_equal(late[i]->error, 0);
		rig_io_free(late[i]);
	}
	rig_io_free(soon);
}

/* Two that are late at different times: each gets its own wake-up. */
static void
test_delay_twice(void **state)
{
	struct rig_io *a, *b;
	uint64_t begin;

	(void)state;
	open_rule("delay-ms=60,error=EIO");
	begin = now_ms();
	a = rig_io_new(&rig, IO_READ, 0, 512, 1);
	b = rig_io_new(&rig, IO_READ, 512, 512, 1);
	rig_submit(a);
	rig_reap(&rig);
	usleep(30000);
	rig_submit(b);
	rig_wait(&rig);
	assert_in_range(now_ms() - begin, 90, 5000);
	assert_int_equal(a->error, -EIO);
	assert_int_equal(b->error, -EIO);
	rig_io_free(a);
	rig_io_free(b);
}

static struct rig_io *again[2];
static unsigned again_left;

static void
submit_again(struct rig_io *rio)
{
	struct rig_io *next = again[rio == again[0]];

	if (again_left-- == 0)
		return;
	next->nr_done = 0;
	rig_submit(next);
}

/* Each done() submits the next I/O, which is hit as well: reap() must end. */
static void
test_hit_from_done(void **state)
{
	(void)state;
	open_rule("from=1");
	again[0] = rig_io_new(&rig, IO_READ, 0, 512, 1);
	again[1] = rig_io_new(&rig, IO_READ, 0, 512, 1);
	again[0]->then = again[1]->then = submit_again;
	again_left = 100;
	rig_submit(again[0]);
	rig_reap(&rig);
	assert_int_equal(rig.nr_done, 1);
	rig_wait(&rig);
	assert_int_equal(rig.nr_done, 101);
	rig_io_free(again[0]);
	rig_io_free(again[1]);
}

static void
test_geometry(void **state)
{
	struct rig below = { 0 };

	(void)state;
	open_rule("nth=1");
	assert_int_equal(rig.img->size, FILE_SIZE);
	assert_int_equal(truncate(file, FILE_SIZE / 2), 0);
	assert_int_equal(image_deactivate(rig.img, rig.why), 0);
	assert_int_equal(image_activate(rig.img, rig.why), 0);
	assert_int_equal(rig.img->size, FILE_SIZE / 2);
	assert_int_equal(image_deactivate(rig.img, rig.why), 0);

	/* The lock below is taken and let go with it. */
	rig_open(&below, "raw", file, false, 1);
	assert_int_equal(below.img->dev, rig.img->dev);
	assert_int_equal(below.img->ino, rig.img->ino);
	assert_int_equal(image_activate(rig.img, rig.why), -EAGAIN);
	assert_non_null(strstr(rig.why, "another process"));
	rig_close(&below);
}

static const struct {
	const char *path;
	const char *why;
} refused[] = {
	{ "",                                  "lacks the image below" },
	{ "nth=1",                             "lacks the image below" },
	{ "nth=1:null",                        "lacks the image below" },
	{ "nth=1:none:1M",                     "'none' is not known" },
	{ "nth=1:null:1",                      "no size of a disk" },
	{ ":null:1M",                          "'' is no option" },
	{ "nth:null:1M",                       "'nth' is no option" },
	{ "Nth=1:null:1M",                     "'Nth' is no option" },
	{ "nth=1,:null:1M",                    "'' is no option" },
	{ "nth=:null:1M",                      "nth= makes no sense" },
	{ "nth=0:null:1M",                     "nth=0 makes no sense" },
	{ "nth=-1:null:1M",                    "nth=-1 makes no sense" },
	{ "nth=1x:null:1M",                    "nth=1x makes no sense" },
	{ "nth=99999999999999999999:null:1M",  "makes no sense" },
	{ "every=0:null:1M",                   "every=0 makes no sense" },
	{ "from=0:null:1M",                    "from=0 makes no sense" },
	{ "op=trim:null:1M",                   "op=trim makes no sense" },
	{ "error=EFOO:null:1M",                "error=EFOO makes no sense" },
	{ "error=5:null:1M",                   "error=5 makes no sense" },
	{ "delay-ms=0:null:1M",                "delay-ms=0 makes no sense" },
	{ "delay-ms=3600001:null:1M",          "makes no sense" },
	{ "short=0:null:1M",                   "short=0 makes no sense" },
	{ "short=100:null:1M",                 "short=100 makes no sense" },
	{ "length=0:null:1M",                  "length=0 makes no sense" },
	{ "offset=9223372036854775808:null:1M", "makes no sense" },
	{ "nth=1,every=2:null:1M",             "exclude each other" },
	{ "from=1,every=2:null:1M",            "exclude each other" },
};

static void
test_refused(void **state)
{
	unsigned nr_fds = rig_count_fds();
	struct rig r = { 0 };
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		if (rig_image(&r, "fault", refused[i].path, false,
		    CACHE_NONE) == 0)
			fail_msg("accepted: fault:%s", refused[i].path);
		if (strstr(r.why, refused[i].why) == NULL)
			fail_msg("fault:%s: %s", refused[i].path, r.why);
	}
	assert_int_equal(rig_count_fds(), nr_fds);

	/* More epoll descriptors inside each other than Linux allows. */
	assert_int_equal(rig_image(&r, "fault", "nth=1:fault:nth=1:fault:nth=1:"
	    "fault:nth=1:fault:nth=1:fault:nth=1:null:1M", false, CACHE_NONE),
	    0);
	assert_int_equal(channel_open(r.img, 1, &r.ch, r.why), -ELOOP);
	assert_non_null(strstr(r.why, "fewer faults"));
	image_close(r.img);
	assert_int_equal(rig_count_fds(), nr_fds);
}

static void
submit_three(void *arg)
{
	int i;

	open_rule((const char *)arg);
	rig_unwatch(&rig);
	rig_watch(&rig, 2);
	for (i = 0; i < 3; i++)
		rig_submit(rig_io_new(&rig, IO_READ, 0, 512, 1));
}

static void
close_while_held(void *arg)
{
	open_rule((const char *)arg);
	rig_submit(rig_io_new(&rig, IO_READ, 0, 512, 1));
	rig_reap(&rig);
	channel_close(rig.ch);
}

static void
test_bad_calls(void **state)
{
	static char hit[] = "from=1", late[] = "error=EIO,delay-ms=5000",
	    soon[] = "error=EIO";

	(void)state;
	assert_true(rig_aborts(submit_three, hit));
	assert_true(rig_aborts(close_while_held, late));
	assert_false(rig_aborts(close_while_held, soon));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_rules, setup, teardown),
		cmocka_unit_test_setup_teardown(test_sweep, setup, teardown),
		cmocka_unit_test_setup_teardown(test_flush_in_range, setup,
		    teardown),
		cmocka_unit_test_setup_teardown(test_not_passed_on, setup,
		    teardown),
		cmocka_unit_test_setup_teardown(test_channels_count_together,
		    setup, teardown),
		cmocka_unit_test_setup_teardown(test_short_write, setup,
		    teardown),
		cmocka_unit_test_setup_teardown(test_short_read, setup,
		    teardown),
		cmocka_unit_test_setup_teardown(test_delay, setup, teardown),
		cmocka_unit_test_setup_teardown(test_delay_twice, setup,
		    teardown),
		cmocka_unit_test_setup_teardown(test_hit_from_done, setup,
		    teardown),
		cmocka_unit_test_setup_teardown(test_geometry, setup,
		    teardown),
		cmocka_unit_test(test_refused),
		cmocka_unit_test_setup_teardown(test_bad_calls, setup,
		    teardown),
	};

	return cmocka_run_group_tests_name("fault", tests, NULL, NULL);
}
