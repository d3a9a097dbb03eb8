/* SPDX-License-Identifier: GPL-2.0-or-later */
/* test_aio: the libaio engine; what all engines do is in test_engine.c. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/engine_rig.h"

static struct rig_io *pages[MAX_DEPTH];

/* 'n' I/Os of one page each. */
static void
submit_pages(enum io_op op, unsigned n)
{
	unsigned i;

	for (i = 0; i < n; i++) {
		pages[i] = rig_io_new(&rig, op, i * 4096, 4096, 1 + i % 2);
		if (op == IO_WRITE)
			rig_fill(pages[i], 9);
		rig_submit(pages[i]);
	}
}

/*
 * All have ended well, but for one that the kernel refuses.  What was written
 * is in the file, read here without the engine.
 */
static void
check_pages(unsigned n)
{
	struct rig_io *p;
	unsigned i;
	bool bad;
	int fd;

	fd = open(file, O_RDONLY);
	assert_true(fd != -1);
	for (i = 0; i < n; i++) {
		p = pages[i];
		bad = kernel.bad_error != 0 &&
		    p->io.offset == (uint64_t)kernel.bad_offset;
		assert_int_equal(p->error, bad ? kernel.bad_error : 0);
		if (p->io.op == IO_WRITE)
			assert_int_equal(pread(fd, p->buf, 4096,
			    (off_t)p->io.offset), 4096);
		assert_true(bad || rig_holds(p, 9));
		rig_io_free(p);
	}
	close(fd);
	assert_int_equal(rig.ch->submits, kernel.nr_submit);
}

static void
write_and_read(unsigned n)
{
	submit_pages(IO_WRITE, n);
	rig_wait(&rig);
	check_pages(n);
	submit_pages(IO_READ, n);
	rig_wait(&rig);
	check_pages(n);
}

static void
test_one_call(void **state)
{
	unsigned i;

	(void)state;
	open_raw(64);
	submit_pages(IO_WRITE, 32);
	assert_int_equal(kernel.nr_submit, 0);
	rig_wait(&rig);
	assert_int_equal(kernel.nr_submit, 1);
	check_pages(32);

	submit_pages(IO_READ, 32);
	rig_wait(&rig);
	check_pages(32);
	assert_int_equal(rig.ch->submits, 2);
	for (i = 0; i < 100; i++)
		rig_reap(&rig);
	assert_int_equal(kernel.nr_submit, 2);
	assert_int_equal(kernel.nr_getevents, 0);
}

static void
test_limit(void **state)
{
	(void)state;
	open_raw(MAX_DEPTH);
	assert_int_equal(kernel.nr_events, 128);
	submit_pages(IO_WRITE, MAX_DEPTH);
	rig_reap(&rig);
	assert_in_range(kernel.nr_submit, 1, 2);

	/* What has ended makes room at once. */
	while (rig.nr_done == 0)
		rig_reap(&rig);
	assert_true(kernel.nr_taken > 128);
	rig_wait(&rig);
	assert_int_equal(kernel.max_inflight, 128);
	check_pages(MAX_DEPTH);
	rig_close(&rig);

	/* A shallow channel takes no more of fs.aio-max-nr than it needs. */
	open_raw(4);
	assert_int_equal(kernel.nr_events, 4);
	write_and_read(4);
	assert_int_equal(kernel.max_inflight, 4);
}

static void
test_partly_taken(void **state)
{
	static const long accept[] = { 1, 3, 127, 128 };
	size_t i;

	(void)state;
	open_raw(MAX_DEPTH);
	for (i = 0; i < sizeof(accept) / sizeof(accept[0]); i++) {
		kernel.accept = accept[i];
		write_and_read(200);
	}

	/* One reap hands over all that there is room for. */
	kernel.accept = 3;
	kernel.nr_taken = 0;
	submit_pages(IO_WRITE, 100);
	rig_reap(&rig);
	assert_int_equal(kernel.nr_taken, 100);
	rig_wait(&rig);
	check_pages(100);
}

/* No resources just now: it tries again, also when nothing is in flight. */
static void
test_try_again(void **state)
{
	static const struct { int error; unsigned times, before; } cases[] = {
		{ -EAGAIN, 1, 0 }, { -EAGAIN, 9, 0 }, { -EAGAIN, 1, 1 },
		{ -EAGAIN, 9, 2 }, { -EINTR, 9, 0 },  { 0, 9, 0 },
	};
	unsigned round;
	size_t i;

	(void)state;
	open_raw(MAX_DEPTH);
	kernel.accept = 10;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		for (round = 0; round < 2; round++) {
			kernel.refuse = cases[i].error;
			kernel.nr_refuse = cases[i].times;
			kernel.nr_before = cases[i].before;
			submit_pages(round == 0 ? IO_WRITE : IO_READ, 40);
			rig_wait(&rig);
			assert_int_equal(kernel.nr_refuse, 0);
			check_pages(40);
		}
}

/* One that the kernel does not take fails alone, wherever it stands. */
static void
test_refused(void **state)
{
	static const unsigned places[] = { 0, 1, 31, 127, 128, 200, 299 };
	size_t i;

	(void)state;
	open_raw(MAX_DEPTH);
	write_and_read(300);
	kernel.bad_error = -EREMOTEIO;
	for (i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		kernel.bad_offset = places[i] * 4096;
		write_and_read(300);
	}

	/* Nothing else is in flight that could wake the caller. */
	kernel.bad_offset = 0;
	write_and_read(1);
}

/* The same when a done() has submitted it, after reap() has looked. */
static void
test_refused_from_done(void **state)
{
	(void)state;
	open_raw(4);
	kernel.bad_offset = 4096;
	kernel.bad_error = -EREMOTEIO;
	pages[0] = rig_io_new(&rig, IO_READ, 0, 4096, 1);
	pages[0]->then = submit_follower;
	follower = rig_io_new(&rig, IO_READ, 4096, 4096, 1);
	rig_submit(pages[0]);
	rig_wait(&rig);
	assert_int_equal(pages[0]->error, 0);
	assert_int_equal(follower->error, -EREMOTEIO);
	rig_io_free(pages[0]);
	rig_io_free(follower);
}

static void
test_kernel_flushes(void **state)
{
	(void)state;
	open_raw(4);
	assert_int_equal(rig_count_threads(), nr_threads);
	assert_int_equal(rig_flush(&rig), 0);
	assert_int_equal(kernel.nr_submit, 1);
	assert_int_equal(kernel.nr_sync, 0);
	kernel.flush_error = -EIO;
	assert_int_equal(rig_flush(&rig), -EIO);
}

/* The signals that the thread that is not ours blocks. */
static uint64_t
blocked_by_helper(void)
{
	char name[64], line[200];
	unsigned long long mask = 0;
	struct dirent *d;
	FILE *f;
	DIR *dir;

	dir = opendir("/proc/self/task");
	assert_non_null(dir);
	while ((d = readdir(dir)) != NULL) {
		if (d->d_name[0] == '.' || atoi(d->d_name) == getpid())
			continue;
		snprintf(name, sizeof(name), "/proc/self/task/%.20s/status",
		    d->d_name);
		f = fopen(name, "re");
		assert_non_null(f);
		while (fgets(line, sizeof(line), f) != NULL)
			if (sscanf(line, "SigBlk: %llx", &mask) == 1)
				break;
		fclose(f);
	}
	closedir(dir);
	return mask;
}

static void
test_thread_flushes(void **state)
{
	struct rig_io *flush[40], *w;
	unsigned i;

	(void)state;
	kernel.flush_error = -EINVAL;	/* as kernels before 4.18 say */
	open_raw(64);
	assert_int_equal(rig_count_threads(), nr_threads + 1);
	assert_int_equal(rig_flush(&rig), 0);
	assert_int_equal(kernel.nr_sync, 1);
	assert_true(blocked_by_helper() & 1u << (SIGTERM - 1));

	w = rig_io_new(&rig, IO_WRITE, 0, 4096, 1);
	rig_submit(w);
	for (i = 0; i < 40; i++) {
		flush[i] = rig_io_new(&rig, IO_FLUSH, 0, 0, 0);
		rig_submit(flush[i]);
	}
	assert_int_equal(__atomic_load_n(&kernel.nr_sync, __ATOMIC_SEQ_CST),
	    1);
	rig_wait(&rig);
	assert_int_equal(kernel.nr_sync, 41);
	for (i = 0; i < 40; i++) {
		assert_int_equal(flush[i]->error, 0);
		rig_io_free(flush[i]);
	}
	rig_io_free(w);

	kernel.sync_error = EIO;
	assert_int_equal(rig_flush(&rig), -EIO);
	kernel.sync_error = 0;
	assert_int_equal(rig_flush(&rig), -EIO);
	assert_int_equal(rig_count_threads(), nr_threads + 1);

	/* Each hand-over is a system call, and none is made without one. */
	i = (unsigned)rig.ch->submits;
	rig_flush(&rig);
	assert_int_equal(rig.ch->submits, i + 1);
	rig_reap(&rig);
	assert_int_equal(rig.ch->submits, i + 1);
}

static void
test_no_thread(void **state)
{
	struct rlimit none = { 0, 0 };
	int status;
	pid_t pid;

	(void)state;
	if (geteuid() != 0) {
		print_message("needs root\n");
		skip();
	}
	fflush(NULL);
	pid = fork();
	assert_true(pid != -1);
	if (pid == 0) {
		kernel.flush_error = -EINVAL;
		rig_image(&rig, "raw", file, false, CACHE_NONE);
		setrlimit(RLIMIT_NPROC, &none);
		if (setuid(65534) == -1)
			_exit(1);
		if (channel_open(rig.img, 4, &rig.ch, rig.why) != -EAGAIN)
			_exit(2);
		if (strstr(rig.why, "TasksMax") == NULL)
			_exit(3);
		image_close(rig.img);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* Each field of the ring's header that says "not as you know me". */
static void
test_unknown_ring(void **state)
{
	static const unsigned fields[] = { 16, 20, 24, 28 };
	unsigned i, before;
	size_t k;

	(void)state;
	for (k = 0; k < sizeof(fields) / sizeof(fields[0]); k++) {
		kernel.spoil = fields[k];
		open_raw(MAX_DEPTH);
		kernel.nr_interrupt = 3;
		write_and_read(300);
		assert_int_equal(kernel.max_inflight, 128);
		assert_true(kernel.nr_getevents > 3);
		assert_int_equal(rig_flush(&rig), 0);
		before = kernel.nr_getevents;
		for (i = 0; i < 10; i++)
			rig_reap(&rig);
		assert_int_equal(kernel.nr_getevents, before);
		rig_close(&rig);
	}
}

static void
refused_to_open(int error, const char *what, const char *remedy)
{
	struct channel *ch;
	struct image_options opt = { .format = "raw", .path = file };
	struct image *img;
	char why[WHY_MAX];

	assert_int_equal(image_open(&opt, &img, why), 0);
	assert_int_equal(channel_open(img, 4, &ch, why), error);
	assert_null(ch);
	assert_non_null(strstr(why, file));
	if (strstr(why, what) == NULL || strstr(why, remedy) == NULL)
		fail_msg("%s", why);
	image_close(img);
	assert_int_equal(rig_count_fds(), nr_fds);
	assert_int_equal(kernel.nr_contexts, 0);
	memset(&kernel, 0, sizeof(kernel));
}

static void
test_refused_to_open(void **state)
{
	(void)state;
	kernel.setup_error = -EAGAIN;
	refused_to_open(-EAGAIN, "fs.aio-max-nr", "sysctl");
	kernel.setup_error = -ENOSYS;
	refused_to_open(-ENOSYS, "set up AIO", "CONFIG_AIO");
	kernel.flush_error = -EIO;
	refused_to_open(-EIO, "flush", "dmesg");
	kernel.event_error = -EIO;
	refused_to_open(-EIO, "flush", "dmesg");
	kernel.nr_interrupt = 2;	/* that is no failure */
	open_raw(4);
}

#define TEST(test) \
	cmocka_unit_test_setup_teardown(test, engine_setup, engine_teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_one_call),
		TEST(test_limit),
		TEST(test_partly_taken),
		TEST(test_try_again),
		TEST(test_refused),
		TEST(test_refused_from_done),
		TEST(test_kernel_flushes),
		TEST(test_thread_flushes),
		TEST(test_no_thread),
		TEST(test_unknown_ring),
		TEST(test_refused_to_open),
	};

	return cmocka_run_group_tests_name("aio", tests, NULL, NULL);
}
