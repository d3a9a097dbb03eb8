/* SPDX-License-Identifier: GPL-2.0-or-later */
/* engine_rig: see engine_rig.h. */
#include <errno.h>
#include <fcntl.h>
#include <libaio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/engine_rig.h"

struct rig rig;
char file[512];
unsigned nr_fds, nr_threads;
struct kernel kernel;

int
statx(int fd, const char *name, int flags, unsigned mask, struct statx *stx)
{
	int rc = (int)syscall(SYS_statx, fd, name, flags, mask, stx);

#ifdef STATX_DIOALIGN
	if (kernel.block != 0) {
		stx->stx_mask |= STATX_DIOALIGN;
		stx->stx_dio_offset_align = kernel.block;
		stx->stx_dio_mem_align = 512;
	}
#endif
	return rc;
}

static bool
begins_inside(long long offset)
{
	return offset % (kernel.block != 0 ? kernel.block : 512) != 0;
}

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
		kernel.nr_odd += begins_inside(ios[i]->u.c.offset);
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

/* What begins inside a block is counted, and moves what is to be moved. */
static ssize_t
vectored(long number, int fd, const struct iovec *iov, int cnt, off_t at)
{
	struct iovec first = iov[0];
	ssize_t n;

	kernel.nr_vectored++;
	while (kernel.hold)
		usleep(1000);
	if (begins_inside(at))
		__atomic_add_fetch(&kernel.nr_odd, 1, __ATOMIC_SEQ_CST);
	if (kernel.nr_interrupt > 0) {
		kernel.nr_interrupt--;
		errno = EINTR;
		return -1;
	}
	if (kernel.event_error != 0) {
		errno = (int)-kernel.event_error;
		return -1;
	}
	if (kernel.nothing)
		return 0;
	if (kernel.cut != 0) {
		if (first.iov_len > kernel.cut)
			first.iov_len = kernel.cut;
		iov = &first;
		cnt = 1;
	}
	n = syscall(number, fd, iov, cnt, at, 0);
	return kernel.event_limit != 0 && n > kernel.event_limit ?
	    kernel.event_limit : n;
}

ssize_t
preadv(int fd, const struct iovec *iov, int cnt, off_t at)
{
	return vectored(SYS_preadv, fd, iov, cnt, at);
}

ssize_t
pwritev(int fd, const struct iovec *iov, int cnt, off_t at)
{
	return vectored(SYS_pwritev, fd, iov, cnt, at);
}

int
fdatasync(int fd)
{
	if (__atomic_fetch_add(&kernel.nr_sync, 1, __ATOMIC_SEQ_CST) == 0 &&
	    kernel.sync_told != 0) {
		usleep(20000);
		errno = kernel.sync_told;
		return -1;
	}
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

int
eventfd_write(int fd, eventfd_t value)
{
	if (kernel.late_event)
		usleep(2000);
	return write(fd, &value, sizeof(value)) == sizeof(value) ? 0 : -1;
}

int
engine_setup(void **state)
{
	memset(&kernel, 0, sizeof(kernel));
	memset(&rig, 0, sizeof(rig));
	rig.engine = (enum engine_kind)(uintptr_t)*state;
	rig_make_file(file, FILE_SIZE);
	nr_fds = rig_count_fds();
	nr_threads = rig_count_threads();
	return 0;
}

int
engine_teardown(void **state)
{
	unsigned ms;

	(void)state;
	kernel.sync_error = 0;
	if (rig.img != NULL)
		rig_close(&rig);
	unlink(file);
	/* One that was joined is to be seen for a moment more. */
	for (ms = 0; ms < 1000 && rig_count_threads() > nr_threads; ms++)
		usleep(1000);
	if (rig_count_fds() == nr_fds && kernel.nr_contexts == 0 &&
	    rig_count_threads() == nr_threads)
		return 0;
	print_error("descriptors, AIO contexts or threads are left\n");
	return -1;
}

void
open_raw(unsigned depth)
{
	rig_open(&rig, "raw", file, false, depth);
	kernel.nr_submit = kernel.nr_getevents = kernel.nr_taken = 0;
	kernel.max_inflight = 0;
	rig.ch->submits = 0;
}

struct rig_io *follower;

void
submit_follower(struct rig_io *rio)
{
	(void)rio;
	rig_submit(follower);
}

#ifndef RINGBACK_SANITIZED
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);
unsigned nr_allocs;

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
#endif
