/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * test_drivers: one suite for the contract of driver.h, run over every
 * driver and over drivers wrapped in others.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/driver_rig.h"

#define MiB       (1024u * 1024u)
#define FILE_SIZE (32 * (off_t)MiB)
#define DEPTH     300		/* more than one AIO context holds */

struct subject {
	const char *name;
	const char *format;
	const char *path;	/* %s: a file */
	bool        remembers;	/* what is written can be read again */
	enum engine_kind engine;
	enum cache_mode  cache;
};

#define SUBJECT(n, f, p, r, ...) \
	{ .name = n, .format = f, .path = p, .remembers = r, __VA_ARGS__ }
#define THREADS(n, mode) SUBJECT(n, "raw", "%s", true, \
	.engine = ENGINE_THREADS, .cache = mode)

static const struct subject subjects[] = {
	SUBJECT("raw", "raw", "%s", true),
	THREADS("raw on threads", CACHE_NONE),
	THREADS("raw, directsync on threads", CACHE_DIRECTSYNC),
	THREADS("raw, writethrough", CACHE_WRITETHROUGH),
	THREADS("raw, writeback", CACHE_WRITEBACK),
	THREADS("raw, unsafe", CACHE_UNSAFE),
	SUBJECT("null", "null", "32M", false),
	SUBJECT("fault over raw", "fault", "nth=1000000000:raw:%s", true),
	SUBJECT("fault over null", "fault", "nth=1000000000:null:32M", false),
	SUBJECT("late raw", "fault", "delay-ms=2:raw:%s", true),
	SUBJECT("late null", "fault", "delay-ms=2:null:32M", false),
	SUBJECT("late reads over raw", "fault",
	    "op=read,delay-ms=1:fault:nth=1000000000:raw:%s", true),
};

struct fixture {
	const struct subject *subject;
	char                  file[512];
	char                  path[600];
	struct rig            rig;
	unsigned              nr_fds;
};

static int
setup(void **state)
{
	const struct subject *s = *state;
	const char *p;
	struct fixture *f;

	f = calloc(1, sizeof(*f));
	assert_non_null(f);
	f->subject = s;
	f->rig.engine = s->engine;
	f->rig.cache = s->cache;
	p = strstr(s->path, "%s");
	if (p != NULL)
		rig_make_file(f->file, FILE_SIZE);
	snprintf(f->path, sizeof(f->path), "%.*s%s",
	    (int)(p != NULL ? p - s->path : (long)strlen(s->path)), s->path,
	    f->file);
	f->nr_fds = rig_count_fds();
	*state = f;
	return 0;
}

static int
teardown(void **state)
{
	struct fixture *f = *state;
	bool leaked;

	if (f->rig.img != NULL)		/* else the test has closed it */
		rig_close(&f->rig);
	leaked = rig_count_fds() != f->nr_fds;
	if (leaked)
		print_error("descriptors are left open\n");
	if (f->file[0] != '\0')
		unlink(f->file);
	free(f);
	return leaked ? -1 : 0;
}

static struct rig *
fixture_open(struct fixture *f, bool readonly)
{
	rig_open(&f->rig, f->subject->format, f->path, readonly, DEPTH);
	return &f->rig;
}

static struct rig_io *
io_at(struct rig *r, enum io_op op, uint64_t offset, uint64_t length,
    int iovcnt, unsigned seed)
{
	struct rig_io *rio = rig_io_new(r, op, offset, length, iovcnt);

	if (op == IO_WRITE)
		rig_fill(rio, seed);
	return rio;
}

/* Does a read that has ended hold what the subject must give? */
static bool
read_is_right(struct fixture *f, const struct rig_io *rio, unsigned seed)
{
	const char *p = rio->buf;

	if (f->subject->remembers)
		return rig_holds(rio, seed);
	return p[0] == 0 && memcmp(p, p + 1, rio->io.length - 1) == 0;
}

static void
test_geometry(void **state)
{
	struct fixture *f = *state;
	struct rig *r = fixture_open(f, false);

	assert_int_equal(r->img->size, FILE_SIZE);
	assert_int_equal(r->img->block_size, 512);
	assert_in_range(r->img->physical_block_size, 512, 4096);
	assert_false(r->img->readonly);
	assert_true((r->img->ino != 0) == (f->file[0] != '\0'));
}

/* Whatever a daemon starts must not get at the disk. */
static void
test_close_on_exec(void **state)
{
	struct fixture *f = *state;
	bool before[64];
	int fd;

	for (fd = 0; fd < 64; fd++)
		before[fd] = fcntl(fd, F_GETFD) != -1;
	fixture_open(f, false);
	for (fd = 0; fd < 64; fd++)
		if (!before[fd] && fcntl(fd, F_GETFD) != -1)
			assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
}

static void
test_round_trip(void **state)
{
	static const struct {
		uint64_t offset, length;
		int      iovcnt;
	} shapes[] = {
		{ 0, 512, 1 },
		{ FILE_SIZE - 512, 512, 1 },
		{ 1536, 4096 * 3, 3 },
		{ 65536 + 512, 11 * 4096 - 1024, 11 },
		{ MiB, MiB, 1 },
		{ 2 * MiB, MiB, 256 },
		{ 4 * MiB, 4 * MiB, 1024 },
		{ 8 * MiB + 512, 4 * MiB - 512, 8191 },
	};
	struct fixture *f = *state;
	struct rig *r = fixture_open(f, false);
	struct rig_io *rio;
	size_t i;

	for (i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
		assert_int_equal(rig_do(io_at(r, IO_WRITE, shapes[i].offset,
		    shapes[i].length, shapes[i].iovcnt, 1)), 0);
	assert_int_equal(rig_flush(r), 0);
	for (i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		rio = io_at(r, IO_READ, shapes[i].offset, shapes[i].length,
		    shapes[i].iovcnt, 0);
		rig_submit(rio);
		rig_wait(r);
		assert_int_equal(rio->error, 0);
		assert_true(read_is_right(f, rio, 1));
		rig_io_free(rio);
	}
}

/* As deep as the channel goes, twice, so that everything is used again. */
static void
test_depth(void **state)
{
	struct fixture *f = *state;
	struct rig *r = fixture_open(f, false);
	struct rig_io *rio[DEPTH];
	unsigned i, round;

	for (round = 0; round < 4; round++) {
		for (i = 0; i < DEPTH; i++) {
			rio[i] = io_at(r, round % 2 == 0 ? IO_WRITE : IO_READ,
			    i * 8192u, 4096, 1, round / 2);
			rig_submit(rio[i]);
		}
		assert_int_equal(r->nr_inflight, DEPTH);
		rig_wait(r);
		rig_reap(r);		/* nothing may end twice */
		for (i = 0; i < DEPTH; i++) {
			assert_int_equal(rio[i]->error, 0);
			if (round % 2 == 1)
				assert_true(read_is_right(f, rio[i],
				    round / 2));
			rig_io_free(rio[i]);
		}
	}
	assert_int_equal(r->nr_reaped, 4 * DEPTH);
}

/* Each I/O wakes a sleeping caller who never reads the descriptor. */
static void
test_edges(void **state)
{
	struct fixture *f = *state;
	struct rig *r = fixture_open(f, false);
	unsigned i;

	for (i = 0; i < 50; i++)
		assert_int_equal(rig_do(io_at(r, i % 2 == 0 ? IO_WRITE :
		    IO_READ, i * 4096, 4096, 1, i)), 0);
}

static struct rig_io *chain_next;
static unsigned chain_left;

static void
chain_go_on(struct rig_io *rio)
{
	struct rig_io *next = chain_next;

	if (chain_left == 0)
		return;
	chain_left--;
	chain_next = rio;
	next->nr_done = 0;
	rig_submit(next);
}

/* A done() may submit the next I/O; then reap() must still end. */
static void
test_submit_from_done(void **state)
{
	struct fixture *f = *state;
	struct rig *r = fixture_open(f, false);
	struct rig_io *a, *b;

	a = io_at(r, IO_WRITE, 0, 4096, 1, 0);
	b = io_at(r, IO_READ, 4096, 4096, 1, 0);
	a->then = b->then = chain_go_on;
	chain_next = b;
	chain_left = 100;
	rig_submit(a);
	rig_reap(r);
	assert_in_range(r->nr_done, 0, 2);
	rig_wait(r);
	assert_int_equal(r->nr_done, 101);
	assert_int_equal(a->error, 0);
	assert_int_equal(b->error, 0);
	rig_io_free(a);
	rig_io_free(b);
}

static void
test_flush(void **state)
{
	struct fixture *f = *state;
	struct rig *r = fixture_open(f, false);
	struct rig_io *w, *fl, *fl2;

	assert_int_equal(rig_flush(r), 0);
	w = io_at(r, IO_WRITE, 8192, 65536, 16, 3);
	fl = rig_io_new(r, IO_FLUSH, 0, 0, 0);
	fl2 = rig_io_new(r, IO_FLUSH, 0, 0, 0);
	rig_submit(fl);
	rig_submit(w);
	rig_submit(fl2);
	rig_wait(r);
	assert_int_equal(w->error | fl->error | fl2->error, 0);
	rig_io_free(w);
	rig_io_free(fl);
	rig_io_free(fl2);
}

/* What is discarded reads as zeroes or as before; what is not, as before. */
static void
test_discard(void **state)
{
	struct fixture *f = *state;
	struct rig *r = &f->rig;
	const uint64_t length = 128 * 1024;
	const char *p, *from, *end;
	struct rig_io *rio;

	r->discard = true;
	fixture_open(f, false);
	assert_int_equal(r->img->discard_granularity, 4096);
	assert_int_equal(rig_do(io_at(r, IO_WRITE, 0, length, 1, 6)), 0);
	assert_int_equal(rig_do(rig_io_new(r, IO_DISCARD, 4096, 65536, 0)),
	    0);
	rio = io_at(r, IO_READ, 0, length, 1, 0);
	rig_submit(rio);
	rig_wait(r);
	if (f->subject->remembers && !rig_holds(rio, 6)) {
		from = (const char *)rio->buf + 4096;
		end = from + 65536;
		for (p = from; p < end; p++)
			assert_int_equal(*p, 0);
		rig_io_free(rio);
		assert_int_equal(rig_do(io_at(r, IO_WRITE, 4096, 65536, 1,
		    6)), 0);
		rio = io_at(r, IO_READ, 0, length, 1, 0);
		rig_submit(rio);
		rig_wait(r);
	}
	assert_true(read_is_right(f, rio, 6));
	rig_io_free(rio);
}

/* Only where it was asked for, and never on a read-only disk. */
static void
test_no_discard(void **state)
{
	struct fixture *f = *state;
	struct rig *r = fixture_open(f, false);

	assert_int_equal(r->img->discard_granularity, 0);
	rig_close(r);
	r->discard = true;
	fixture_open(f, true);
	assert_int_equal(r->img->discard_granularity, 0);
}

static void
test_readonly(void **state)
{
	struct fixture *f = *state;
	struct rig *r = fixture_open(f, true);

	assert_true(r->img->readonly);
	assert_int_equal(rig_do(io_at(r, IO_READ, 0, MiB, 256, 0)), 0);
	assert_int_equal(rig_flush(r), 0);
}

/* The same channel serves again after the image was let go. */
static void
test_activate_again(void **state)
{
	struct fixture *f = *state;
	struct rig *r = fixture_open(f, false);
	struct rig_io *rio;

	assert_int_equal(rig_do(io_at(r, IO_WRITE, 0, 4096, 1, 7)), 0);
	assert_int_equal(image_deactivate(r->img, r->why), 0);
	assert_int_equal(image_activate(r->img, r->why), 0);
	rio = io_at(r, IO_READ, 0, 4096, 1, 0);
	rig_submit(rio);
	rig_wait(r);
	assert_int_equal(rio->error, 0);
	assert_true(read_is_right(f, rio, 7));
	rig_io_free(rio);
}

/* A channel that was opened before the image was active. */
static void
test_channel_first(void **state)
{
	struct fixture *f = *state;
	struct rig *r = &f->rig;

	assert_int_equal(rig_image(r, f->subject->format, f->path, false,
	    CACHE_DIRECTSYNC), 0);
	rig_watch(r, 1);
	assert_int_equal(channel_reap(r->ch), 0);
	assert_int_equal(image_activate(r->img, r->why), 0);
	assert_int_equal(rig_do(io_at(r, IO_WRITE, 0, 4096, 1, 0)), 0);
	assert_int_equal(rig_flush(r), 0);
}

struct worker {
	struct fixture *f;
	pthread_t       thread;
	struct rig      rig;
	uint64_t        base;
	bool            ok;
};

static void *
worker_main(void *arg)
{
	struct worker *w = arg;
	struct rig_io *rio[16];
	unsigned round, i;
	bool read;

	w->ok = true;
	for (round = 0; round < 16; round++) {
		read = round % 2 == 1;
		for (i = 0; i < 16; i++) {
			rio[i] = io_at(&w->rig, read ? IO_READ : IO_WRITE,
			    w->base + i * 65536, 65536, 16, round / 2);
			rig_submit(rio[i]);
		}
		rig_wait(&w->rig);
		for (i = 0; i < 16; i++) {
			w->ok = w->ok && rio[i]->error == 0 && (!read ||
			    read_is_right(w->f, rio[i], round / 2));
			rig_io_free(rio[i]);
		}
		w->ok = w->ok && rig_flush(&w->rig) == 0;
	}
	return NULL;
}

static void
test_threads(void **state)
{
	struct fixture *f = *state;
	struct rig *r = fixture_open(f, false);
	struct worker w[3];
	unsigned i;

	memset(w, 0, sizeof(w));
	for (i = 0; i < 3; i++) {
		w[i].f = f;
		w[i].base = i * 2 * MiB;
		w[i].rig.img = r->img;
		rig_watch(&w[i].rig, 16);
		assert_int_equal(pthread_create(&w[i].thread, NULL,
		    worker_main, &w[i]), 0);
	}
	for (i = 0; i < 3; i++) {
		assert_int_equal(pthread_join(w[i].thread, NULL), 0);
		assert_true(w[i].ok);
		rig_unwatch(&w[i].rig);
	}
}

/* From here on any system call but exit_group() kills the process. */
static void
forbid_system_calls(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
		    offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog prog = {
		sizeof(code) / sizeof(code[0]), code
	};
	struct rlimit no_core = { 0, 0 };

	setrlimit(RLIMIT_CORE, &no_core);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == -1 ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) == -1)
		_exit(3);
}

enum quiet { QUIET_IDLE, QUIET_ENDING, QUIET_SUBMITTING };

/* The status of a child that reaps while no system call is allowed. */
static int
reap_quietly(struct fixture *f, enum quiet what)
{
	struct rig *r = &f->rig;
	struct rig_io *rio;
	int status, i;
	pid_t pid;

	pid = fork();
	assert_true(pid != -1);
	if (pid == 0) {
		fixture_open(f, false);
		for (i = 0; i < 8; i++)
			rig_do(io_at(r, IO_WRITE, 0, 4096, 1, 0));
		rio = io_at(r, IO_READ, 0, 4096, 1, 0);
		if (what != QUIET_IDLE)
			rig_submit(rio);
		if (what == QUIET_ENDING)
			rig_reap(r);
		forbid_system_calls();
		do
			for (i = 0; i < 1000; i++)
				rig_reap(r);
		while (r->nr_inflight > 0);
		syscall(SYS_exit_group, rio->error == 0 ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void
test_quiet(void **state)
{
	struct fixture *f = *state;
	int status;

	assert_int_equal(reap_quietly(f, QUIET_IDLE), 0);
	if (strcmp(f->subject->format, "raw") != 0)
		return;

	/* Not even to learn that something has finished; but to submit. */
	assert_int_equal(reap_quietly(f, QUIET_ENDING), 0);
	if (f->subject->engine == ENGINE_THREADS)
		return;		/* a thread that is awake needs no call */
	status = reap_quietly(f, QUIET_SUBMITTING);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGSYS);
}

/* Out of descriptors: each step fails, says why and leaves nothing open. */
static void
test_no_descriptors(void **state)
{
	struct fixture *f = *state;
	struct rig *r = &f->rig;
	struct rlimit old, few;
	unsigned extra;
	int rc = -1, lowest;

	lowest = dup(0);
	assert_true(lowest != -1);
	close(lowest);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	for (extra = 0; rc != 0; extra++) {
		assert_in_range(extra, 0, 20);
		few = old;
		few.rlim_cur = (rlim_t)lowest + extra;
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
		rc = rig_image(r, f->subject->format, f->path, false,
		    CACHE_NONE);
		if (rc == 0)
			rc = channel_open(r->img, 4, &r->ch, r->why);
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
		if (rc == 0)
			assert_true((r->ch->event_fd == -1) ==
			    (f->subject->format[0] == 'n'));
		if (rc != 0) {
			assert_int_equal(rc, -EMFILE);
			assert_non_null(strstr(r->why, "LimitNOFILE"));
			assert_null(r->ch);
		}
		channel_close(r->ch);
		image_close(r->img);
		r->ch = NULL;
		r->img = NULL;
		assert_int_equal(rig_count_fds(), f->nr_fds);
	}
	assert_true(f->subject->format[0] == 'n' || extra > 1);
}

static void
refused(struct rig *r, uint64_t size, int error, const char *words)
{
	uint64_t was = r->img->size;

	assert_int_equal(image_resize(r->img, size, r->why), error);
	assert_non_null(strstr(r->why, words));
	assert_int_equal(r->img->size, was);
}

/* A file gets longer, or is found to be. */
static void
test_resize(void **state)
{
	struct fixture *f = *state;
	struct rig *r = fixture_open(f, false);
	struct rig_io *rio;

	if (f->file[0] == '\0') {
		refused(r, 2 * FILE_SIZE, -EOPNOTSUPP, "nothing of that kind");
		return;
	}
	refused(r, FILE_SIZE - 512, -EINVAL, "smaller");
	refused(r, FILE_SIZE + 100, -EINVAL, "multiple of 512");
	refused(r, 1ull << 62, -EFBIG, "no room for so long");
	assert_int_equal(image_resize(r->img, FILE_SIZE + MiB, r->why), 0);
	assert_int_equal(r->img->size, FILE_SIZE + MiB);
	rio = rig_io_new(r, IO_WRITE, FILE_SIZE - MiB, 2 * MiB, 4);
	rig_fill(rio, 3);
	assert_int_equal(rig_do(rio), 0);
	assert_int_equal(truncate(f->file, FILE_SIZE + 3 * MiB), 0);
	refused(r, FILE_SIZE + 2 * MiB, -EINVAL, "without naming a size");
	assert_int_equal(r->img->size, FILE_SIZE + MiB);
	assert_int_equal(image_resize(r->img, 0, r->why), 0);
	assert_int_equal(r->img->size, FILE_SIZE + 3 * MiB);
	rio = rig_io_new(r, IO_READ, FILE_SIZE, MiB, 2);
	rig_submit(rio);
	rig_wait(r);
	assert_true(read_is_right(f, rio, 3));
	rig_io_free(rio);
	/* Somebody has cut it off, or not to whole sectors. */
	assert_int_equal(truncate(f->file, FILE_SIZE), 0);
	refused(r, 0, -EINVAL, "as long again");
	refused(r, FILE_SIZE + 4 * MiB, -EINVAL, "as long again");
	assert_int_equal(truncate(f->file, FILE_SIZE + 9 * MiB + 7), 0);
	refused(r, 0, -EINVAL, "not a multiple");
}

static void
test_resize_readonly(void **state)
{
	struct fixture *f = *state;
	struct rig *r = fixture_open(f, true);

	if (f->file[0] == '\0')
		return;
	refused(r, FILE_SIZE + MiB, -EROFS, "read-only");
	assert_int_equal(truncate(f->file, FILE_SIZE + MiB), 0);
	assert_int_equal(image_resize(r->img, 0, r->why), 0);
	assert_int_equal(r->img->size, FILE_SIZE + MiB);
}

#define CASE(test) { #test, test }
static const struct {
	const char      *name;
	CMUnitTestFunction test;
} contract[] = {
	CASE(test_geometry),
	CASE(test_close_on_exec),
	CASE(test_round_trip),
	CASE(test_depth),
	CASE(test_edges),
	CASE(test_submit_from_done),
	CASE(test_flush),
	CASE(test_discard),
	CASE(test_no_discard),
	CASE(test_readonly),
	CASE(test_activate_again),
	CASE(test_channel_first),
	CASE(test_threads),
	CASE(test_quiet),
	CASE(test_no_descriptors),
	CASE(test_resize),
	CASE(test_resize_readonly),
};

#define NR_SUBJECTS (sizeof(subjects) / sizeof(subjects[0]))
#define NR_CONTRACT (sizeof(contract) / sizeof(contract[0]))

int
main(void)
{
	static char names[NR_SUBJECTS * NR_CONTRACT][80];
	static struct CMUnitTest tests[NR_SUBJECTS * NR_CONTRACT];
	size_t s, c, n = 0;

	for (s = 0; s < NR_SUBJECTS; s++)
		for (c = 0; c < NR_CONTRACT; c++, n++) {
			snprintf(names[n], sizeof(names[n]), "%s: %s",
			    subjects[s].name, contract[c].name);
			tests[n] = (struct CMUnitTest){
				.name = names[n],
				.test_func = contract[c].test,
				.setup_func = setup,
				.teardown_func = teardown,
				.initial_state = (void *)(uintptr_t)
				    &subjects[s],
			};
		}
	return cmocka_run_group_tests_name("drivers", tests, NULL, NULL);
}
