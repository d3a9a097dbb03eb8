/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * test_aio: the engine below a kernel that misbehaves in every way that it
 * may.  This program defines libaio's calls itself; what they do to the
 * engine stands in 'kernel', and each passes on to the real one.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libaio.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/driver_rig.h"

#define FILE_SIZE (8 * 1024 * 1024)
#define MAX_DEPTH 600

static struct rig rig;
static char file[512];
static unsigned nr_fds, nr_threads;

static struct kernel {
	/* What it does. */
	int       setup_error;
	unsigned  spoil;	/* byte of the ring's header; 0: none */
	long      accept;	/* iocbs per call; 0: all */
	int       refuse;	/* the error of 'nr_refuse' calls, */
	unsigned  nr_refuse;
	unsigned  nr_before;	/* after that many which it takes */
	long long bad_offset;	/* the I/O there is refused, */
	int       bad_error;	/* with this error; 0: none is */
	int       flush_error;	/* likewise each flush */
	long      event_error;	/* result of the first event, and the */
	long      event_limit;	/* largest result, that io_getevents() gives */
	uint64_t  cut;		/* bytes per iocb; 0: all */
	bool      nothing;	/* transfers succeed and move nothing */
	unsigned  nr_interrupt;	/* io_getevents() calls that get EINTR */
	int       sync_error;	/* of fdatasync() */
	unsigned  bad_piece;	/* the fallocate() that fails; 0: none */

	/* What it saw. */
	int       nr_contexts;
	int       nr_events;	/* of the last one */
	unsigned  nr_submit;
	unsigned  nr_odd;	/* iocbs that begin inside a sector */
	unsigned  nr_getevents;
	unsigned  nr_sync;
	unsigned  nr_pieces;	/* of discards, */
	off_t     largest;	/* their size, in bytes, */
	off_t     next;		/* and where the next should begin */
	unsigned  nr_taken;
	unsigned  max_inflight;
} kernel;

int
io_setup(int nr, io_context_t *ctx)
{
	if (kernel.setup_error != 0)
		return kernel.setup_error;
	if (syscall(SYS_io_setup, nr, ctx) == -1)
		return -errno;
	kernel.nr_contexts++;
	kernel.nr_events = nr;
	if (kernel.spoil != 0)
		((unsigned char *)*ctx)[kernel.spoil] ^= 2;
	return 0;
}

int
io_destroy(io_context_t ctx)
{
	kernel.nr_contexts--;
	return syscall(SYS_io_destroy, ctx) == -1 ? -errno : 0;
}

/* The error with which the kernel refuses an iocb; 0: it takes it. */
static int
iocb_error(const struct iocb *cb)
{
	if (cb->aio_lio_opcode == IO_CMD_FDSYNC)
		return kernel.flush_error;
	return cb->u.c.offset == kernel.bad_offset ? kernel.bad_error : 0;
}

static void
iocb_spoil(struct iocb *cb)
{
	struct iovec *iov = cb->u.c.buf;

	if (cb->aio_lio_opcode == IO_CMD_FDSYNC)
		return;
	if (kernel.cut == 0 && !kernel.nothing)
		return;
	if (cb->aio_lio_opcode == IO_CMD_PREADV ||
	    cb->aio_lio_opcode == IO_CMD_PWRITEV) {
		cb->aio_lio_opcode = cb->aio_lio_opcode == IO_CMD_PREADV ?
		    IO_CMD_PREAD : IO_CMD_PWRITE;
		cb->u.c.buf = iov->iov_base;
		cb->u.c.nbytes = iov->iov_len;
	}
	if (kernel.nothing)
		cb->u.c.nbytes = 0;
	else if (cb->u.c.nbytes > kernel.cut)
		cb->u.c.nbytes = kernel.cut;
}

int
io_submit(io_context_t ctx, long nr, struct iocb *ios[])
{
	long i, n;

	kernel.nr_submit++;
	if (kernel.nr_refuse > 0) {
		if (kernel.nr_before == 0) {
			kernel.nr_refuse--;
			return kernel.refuse;
		}
		kernel.nr_before--;
	}
	if (kernel.accept != 0 && nr > kernel.accept)
		nr = kernel.accept;
	for (i = 0; i < nr; i++) {
		if (iocb_error(ios[i]) != 0) {
			if (i == 0)
				return iocb_error(ios[0]);
			break;
		}
		kernel.nr_odd += ios[i]->u.c.offset % 512 != 0;
		iocb_spoil(ios[i]);
	}
	n = syscall(SYS_io_submit, ctx, i, ios);
	if (n == -1)
		return -errno;
	kernel.nr_taken += (unsigned)n;
	if (kernel.nr_taken - rig.nr_done > kernel.max_inflight)
		kernel.max_inflight = kernel.nr_taken - rig.nr_done;
	return (int)n;
}

int
io_getevents(io_context_t ctx, long min_nr, long nr, struct io_event *events,
    struct timespec *timeout)
{
	long i, n;

	kernel.nr_getevents++;
	if (kernel.nr_interrupt > 0) {
		kernel.nr_interrupt--;
		return -EINTR;
	}
	n = syscall(SYS_io_getevents, ctx, min_nr, nr, events, timeout);
	for (i = 0; i < n && kernel.event_limit != 0; i++)
		if ((long)events[i].res > kernel.event_limit)
			events[i].res = (unsigned long)kernel.event_limit;
	if (n > 0 && kernel.event_error != 0)
		events->res = (unsigned long)kernel.event_error;
	return n == -1 ? -errno : (int)n;
}

int
fdatasync(int fd)
{
	__atomic_add_fetch(&kernel.nr_sync, 1, __ATOMIC_SEQ_CST);
	if (kernel.sync_error != 0) {
		errno = kernel.sync_error;
		return -1;
	}
	return (int)syscall(SYS_fdatasync, fd);
}

int
fallocate(int fd, int mode, off_t offset, off_t length)
{
	assert_int_equal(offset, kernel.next);
	kernel.next = offset + length;
	if (length > kernel.largest)
		kernel.largest = length;
	if (++kernel.nr_pieces == kernel.bad_piece) {
		errno = EOPNOTSUPP;
		return -1;
	}
	return (int)syscall(SYS_fallocate, fd, mode, offset, length);
}

static int
setup(void **state)
{
	(void)state;
	memset(&kernel, 0, sizeof(kernel));
	memset(&rig, 0, sizeof(rig));
	rig_make_file(file, FILE_SIZE);
	nr_fds = rig_count_fds();
	nr_threads = rig_count_threads();
	return 0;
}

static int
teardown(void **state)
{
	(void)state;
	kernel.sync_error = 0;
	if (rig.img != NULL)
		rig_close(&rig);
	unlink(file);
	if (rig_count_fds() == nr_fds && kernel.nr_contexts == 0 &&
	    rig_count_threads() == nr_threads)
		return 0;
	print_error("descriptors, AIO contexts or threads are left\n");
	return -1;
}

static void
open_raw(unsigned depth)
{
	rig_open(&rig, "raw", file, false, depth);
	kernel.nr_submit = kernel.nr_getevents = kernel.nr_taken = 0;
	kernel.max_inflight = 0;
	rig.ch->submits = 0;
}

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

static struct rig_io *follower;

static void
submit_follower(struct rig_io *rio)
{
	(void)rio;
	rig_submit(follower);
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
test_short_transfers(void **state)
{
	static const struct { uint64_t cut, length; int iovcnt; } cases[] = {
		{ 512, 512, 1 },      { 512, 65536, 1 },   { 512, 65536, 16 },
		{ 512, 65536, 128 },  { 4096, 65536, 3 },  { 4096, 65536, 16 },
		{ 4608, 131072, 5 },  { 65024, 131072, 1 },
		{ 1024, 1048576, 256 },
	};
	struct rig_io *rio;
	unsigned seed = 0;
	size_t i;

	(void)state;
	open_raw(4);
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		kernel.cut = cases[i].cut;
		rio = rig_io_new(&rig, IO_WRITE, 512, cases[i].length,
		    cases[i].iovcnt);
		rig_fill(rio, ++seed);
		assert_int_equal(rig_do(rio), 0);
		rio = rig_io_new(&rig, IO_READ, 512, cases[i].length,
		    cases[i].iovcnt);
		rig_submit(rio);
		rig_wait(&rig);
		assert_int_equal(rio->error, 0);
		assert_true(rig_holds(rio, seed));
		rig_io_free(rio);

		/* And it went where it should. */
		kernel.cut = 0;
		rio = rig_io_new(&rig, IO_READ, 512, cases[i].length, 1);
		rig_submit(rio);
		rig_wait(&rig);
		assert_true(rig_holds(rio, seed));
		rig_io_free(rio);
	}
}

static void
test_no_progress(void **state)
{
	(void)state;
	open_raw(4);
	kernel.nothing = true;
	assert_int_equal(rig_do(rig_io_new(&rig, IO_READ, 0, 4096, 1)), -EIO);
	assert_int_equal(rig_do(rig_io_new(&rig, IO_READ, 0, 4096, 8)), -EIO);
	assert_int_equal(rig_do(rig_io_new(&rig, IO_WRITE, 0, 4096, 1)),
	    -ENOSPC);
	assert_int_equal(rig_do(rig_io_new(&rig, IO_WRITE, 0, 4096, 2)),
	    -ENOSPC);
}

/* The kernel says that a transfer has failed, or ended inside a sector. */
static void
test_results(void **state)
{
	struct rig_io *rio;

	(void)state;
	kernel.spoil = 16;		/* so that io_getevents() is asked */
	open_raw(4);
	kernel.event_error = -EREMOTEIO;
	assert_int_equal(rig_do(rig_io_new(&rig, IO_WRITE, 0, 4096, 1)),
	    -EREMOTEIO);
	assert_int_equal(rig_do(rig_io_new(&rig, IO_READ, 0, 4096, 2)),
	    -EREMOTEIO);
	assert_int_equal(rig_flush(&rig), -EREMOTEIO);
	kernel.event_error = 0;

	kernel.event_limit = 700;
	rio = rig_io_new(&rig, IO_WRITE, 0, 8192, 3);
	rig_fill(rio, 4);
	assert_int_equal(rig_do(rio), 0);
	rio = rig_io_new(&rig, IO_READ, 0, 8192, 3);
	rig_submit(rio);
	rig_wait(&rig);
	assert_int_equal(rio->error, 0);
	assert_true(rig_holds(rio, 4));
	rig_io_free(rio);
	assert_int_equal(kernel.nr_odd, 0);
	kernel.event_limit = 511;
	assert_int_equal(rig_do(rig_io_new(&rig, IO_READ, 0, 4096, 1)), -EIO);
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
	assert_int_equal(rig_flush(&rig), 0);
	assert_int_equal(rig_count_threads(), nr_threads + 1);

	/* Each hand-over is a system call, and none is made without one. */
	i = (unsigned)rig.ch->submits;
	rig_flush(&rig);
	assert_int_equal(rig.ch->submits, i + 1);
	rig_reap(&rig);
	assert_int_equal(rig.ch->submits, i + 1);
}

/* In pieces, on the helper thread; the kernel still does the flushes. */
static void
test_discard(void **state)
{
	const uint64_t piece = 64 << 20, length = 3 * piece + 8192;

	(void)state;
	assert_int_equal(truncate(file, 4 * (off_t)piece), 0);
	rig.discard = true;
	open_raw(4);
	assert_int_equal(rig_count_threads(), nr_threads + 1);
	kernel.next = 4096;
	assert_int_equal(rig_do(rig_io_new(&rig, IO_DISCARD, 4096, length,
	    0)), 0);
	assert_int_equal(kernel.next, 4096 + length);
	assert_int_equal(kernel.nr_pieces, 4);
	assert_int_equal(kernel.largest, piece);
	assert_int_equal(rig_flush(&rig), 0);
	assert_int_equal(kernel.nr_sync, 0);

	kernel.next = 0;
	kernel.bad_piece = kernel.nr_pieces + 2;
	assert_int_equal(rig_do(rig_io_new(&rig, IO_DISCARD, 0, length, 0)),
	    -EOPNOTSUPP);
	assert_int_equal(kernel.next, 2 * piece);
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

/* The flush that deactivate makes has failed: unlocked all the same. */
static void
test_deactivate_fails(void **state)
{
	struct rig second = { 0 };

	(void)state;
	open_raw(4);
	rig_unwatch(&rig);
	kernel.sync_error = EIO;
	assert_int_equal(image_deactivate(rig.img, rig.why), -EIO);
	assert_non_null(strstr(rig.why, "may be lost"));
	assert_false(rig.img->active);
	rig_open(&second, "raw", file, true, 4);

	/* What is read-only has nothing to flush. */
	rig_unwatch(&second);
	assert_int_equal(image_deactivate(second.img, second.why), 0);
	image_close(second.img);
}

#ifndef RINGBACK_SANITIZED
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);
static unsigned nr_allocs;

void *
malloc(size_t size)
{
	__atomic_add_fetch(&nr_allocs, 1, __ATOMIC_RELAXED);
	return __libc_malloc(size);
}

void *
calloc(size_t n, size_t size)
{
	__atomic_add_fetch(&nr_allocs, 1, __ATOMIC_RELAXED);
	return __libc_calloc(n, size);
}

void *
realloc(void *p, size_t size)
{
	__atomic_add_fetch(&nr_allocs, 1, __ATOMIC_RELAXED);
	return __libc_realloc(p, size);
}

static void
test_no_allocation(void **state)
{
	unsigned i, before;

	(void)state;
	open_raw(64);
	for (i = 0; i < 32; i++) {
		pages[i] = rig_io_new(&rig, i < 31 ? IO_WRITE : IO_FLUSH,
		    i * 4096, i < 31 ? 4096 : 0, 2);
		rig_submit(pages[i]);
	}
	rig_wait(&rig);
	before = nr_allocs;
	assert_true(before > 64);	/* it does count */
	for (i = 0; i < 32; i++) {
		pages[i]->nr_done = 0;
		rig_submit(pages[i]);
	}
	rig_wait(&rig);
	assert_int_equal(nr_allocs, before);
	for (i = 0; i < 32; i++)
		rig_io_free(pages[i]);
}
#endif

/*
 * Calls that are bugs.
 */

static bool has_reaped;

/* Without the rig's own checks in it. */
static void
reap_within(struct io *io, int error)
{
	(void)io;
	(void)error;
	if (!has_reaped) {
		has_reaped = true;
		channel_reap(rig.ch);
	}
}

static void
bad_reap(void)
{
	pages[0]->io.done = reap_within;
	rig_submit(pages[0]);
	while (!has_reaped)
		channel_reap(rig.ch);
}

static void
close_within(struct rig_io *rio)
{
	channel_close(rio->rig->ch);
}

static void
bad_close(void)
{
	pages[0]->then = close_within;
	rig_submit(pages[0]);
	rig_wait(&rig);
}

static void
bad_busy(void)
{
	rig_submit(pages[0]);
	channel_close(rig.ch);
}

static void
bad_deep(void)
{
	rig_submit(pages[0]);
	rig_submit(pages[1]);
	rig_submit(pages[2]);
}

static void
good(void)
{
	rig_submit(pages[0]);
	rig_submit(pages[1]);
	rig_wait(&rig);
	channel_close(rig.ch);
}

static void
make_call(void *arg)
{
	void (**call)(void) = arg;
	int i;

	open_raw(2);
	for (i = 0; i < 3; i++)
		pages[i] = rig_io_new(&rig, IO_READ, 0, 512, 1);
	(*call)();
}

static bool
aborts(void (*call)(void))
{
	return rig_aborts(make_call, &call);
}

static void
test_bad_calls(void **state)
{
	(void)state;
	assert_false(aborts(good));
	assert_true(aborts(bad_reap));
	assert_true(aborts(bad_close));
	assert_true(aborts(bad_busy));
	assert_true(aborts(bad_deep));
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

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
		TEST(test_short_transfers),
		TEST(test_no_progress),
		TEST(test_results),
		TEST(test_kernel_flushes),
		TEST(test_thread_flushes),
		TEST(test_discard),
		TEST(test_no_thread),
		TEST(test_unknown_ring),
		TEST(test_refused_to_open),
		TEST(test_deactivate_fails),
#ifndef RINGBACK_SANITIZED
		TEST(test_no_allocation),
#endif
		TEST(test_bad_calls),
	};

	return cmocka_run_group_tests_name("aio", tests, NULL, NULL);
}
