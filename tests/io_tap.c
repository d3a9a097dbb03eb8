/* SPDX-License-Identifier: GPL-2.0-or-later */
/* io_tap: see io_tap.h. */
#include <errno.h>
#include <fcntl.h>
#include <libaio.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tests/io_tap.h"

#define HOLD_NS  3000000	/* before one that is held goes all the same */
#define MAX_HOLD 60u
#define MAX_IOVS 64	/* of one call; its thread may have a small stack */

struct tap tap;

static struct {
	bool  on;
	dev_t dev;
	ino_t ino;
} watched;

ssize_t __real_pread(int fd, void *buf, size_t n, off_t at);
ssize_t __real_pwrite(int fd, const void *buf, size_t n, off_t at);
ssize_t __real_preadv(int fd, const struct iovec *iov, int cnt, off_t at);
ssize_t __real_pwritev(int fd, const struct iovec *iov, int cnt, off_t at);
int __real_fdatasync(int fd);
int __real_fsync(int fd);
int __real_fallocate(int fd, int mode, off_t at, off_t n);
int __real_ftruncate(int fd, off_t size);
int __real_io_setup(int nr, io_context_t *ctx);
int __real_io_destroy(io_context_t ctx);
int __real_io_submit(io_context_t ctx, long nr, struct iocb **cbs);
int __real_io_getevents(io_context_t ctx, long min, long nr,
    struct io_event *events, struct timespec *timeout);

ssize_t __wrap_pread(int fd, void *buf, size_t n, off_t at);
ssize_t __wrap_pwrite(int fd, const void *buf, size_t n, off_t at);
ssize_t __wrap_preadv(int fd, const struct iovec *iov, int cnt, off_t at);
ssize_t __wrap_pwritev(int fd, const struct iovec *iov, int cnt, off_t at);
int __wrap_fdatasync(int fd);
int __wrap_fsync(int fd);
int __wrap_fallocate(int fd, int mode, off_t at, off_t n);
int __wrap_ftruncate(int fd, off_t size);
int __wrap_io_setup(int nr, io_context_t *ctx);
int __wrap_io_destroy(io_context_t ctx);
int __wrap_io_submit(io_context_t ctx, long nr, struct iocb **cbs);
int __wrap_io_getevents(io_context_t ctx, long min, long nr,
    struct io_event *events, struct timespec *timeout);

void
tap_watch(const char *path)
{
	struct stat st;

	watched.on = path != NULL;
	if (path == NULL)
		return;
	if (stat(path, &st) == -1)
		abort();
	watched.dev = st.st_dev;
	watched.ino = st.st_ino;
}

static bool
is_watched(int fd)
{
	struct stat st;

	return watched.on && fstat(fd, &st) == 0 &&
	    st.st_dev == watched.dev && st.st_ino == watched.ino;
}

static long
call_begin(struct tap_call *c)
{
	return tap.begin == NULL ? 0 : tap.begin(c);
}

static long
call_end(struct tap_call *c, long result)
{
	if (tap.end != NULL)
		tap.end(c, result);
	return result;
}

/* As a system call says it. */
static long
as_errno(long result)
{
	if (result >= 0)
		return result;
	errno = (int)-result;
	return -1;
}

static long
from_errno(long result)
{
	return result >= 0 ? result : -errno;
}

static uint64_t
iov_bytes(const struct iovec *iov, int cnt)
{
	uint64_t n = 0;
	int i;

	for (i = 0; i < cnt; i++)
		n += iov[i].iov_len;
	return n;
}

/*
 * Reads and writes.
 */

/* Only the first 'most' bytes of it, or fewer. */
static long
transfer(int fd, const struct tap_call *c, uint64_t most)
{
	struct iovec cut[MAX_IOVS];
	uint64_t n;
	int i, cnt = 0;

	for (i = 0; i < c->iovcnt && i < MAX_IOVS && most > 0; i++, most -= n) {
		n = c->iov[i].iov_len < most ? c->iov[i].iov_len : most;
		cut[cnt].iov_base = c->iov[i].iov_base;
		cut[cnt++].iov_len = n;
	}
	if (cnt == 0)
		return 0;
	return from_errno(c->kind == TAP_READ ?
	    __real_preadv(fd, cut, cnt, (off_t)c->offset) :
	    __real_pwritev(fd, cut, cnt, (off_t)c->offset));
}

/* What begin() wants of it. */
static long
transfer_as(int fd, const struct tap_call *c, long want)
{
	if (want < 0)
		return want;
	if (want == TAP_NOTHING)
		return 0;
	return transfer(fd, c, want == 0 ? c->length : (uint64_t)want);
}

static pthread_mutex_t engine_turn = PTHREAD_MUTEX_INITIALIZER;

static ssize_t
tapped_transfer(int fd, enum tap_kind kind, const struct iovec *iov, int cnt,
    off_t at, bool async)
{
	struct tap_call c = {
		.kind = kind, .offset = (uint64_t)at, .iov = iov,
		.iovcnt = cnt, .length = iov_bytes(iov, cnt), .async = async,
	};
	long want, rc;

	want = call_begin(&c);
	if (!async)
		return as_errno(call_end(&c, transfer_as(fd, &c, want)));

	/* One at a time, so that they end in the order of what they did. */
	if (tap.delay_us > 0)
		usleep((unsigned)(c.offset / 512 * 7919 % tap.delay_us));
	pthread_mutex_lock(&engine_turn);
	rc = call_end(&c, transfer_as(fd, &c, want));
	pthread_mutex_unlock(&engine_turn);
	return as_errno(rc);
}

ssize_t
__wrap_pread(int fd, void *buf, size_t n, off_t at)
{
	struct iovec iov = { buf, n };

	if (!is_watched(fd))
		return __real_pread(fd, buf, n, at);
	return tapped_transfer(fd, TAP_READ, &iov, 1, at, false);
}

ssize_t
__wrap_pwrite(int fd, const void *buf, size_t n, off_t at)
{
	struct iovec iov = { (void *)(uintptr_t)buf, n };

	if (!is_watched(fd))
		return __real_pwrite(fd, buf, n, at);
	return tapped_transfer(fd, TAP_WRITE, &iov, 1, at, false);
}

ssize_t
__wrap_preadv(int fd, const struct iovec *iov, int cnt, off_t at)
{
	if (!is_watched(fd))
		return __real_preadv(fd, iov, cnt, at);
	return tapped_transfer(fd, TAP_READ, iov, cnt, at, true);
}

ssize_t
__wrap_pwritev(int fd, const struct iovec *iov, int cnt, off_t at)
{
	if (!is_watched(fd))
		return __real_pwritev(fd, iov, cnt, at);
	return tapped_transfer(fd, TAP_WRITE, iov, cnt, at, true);
}

/*
 * The others.
 */

int
__wrap_fdatasync(int fd)
{
	struct tap_call c = { .kind = TAP_SYNC };
	long rc;

	if (!is_watched(fd))
		return __real_fdatasync(fd);
	rc = call_begin(&c);
	if (rc == 0)
		rc = from_errno(__real_fdatasync(fd));
	return (int)as_errno(call_end(&c, rc));
}

int
__wrap_fsync(int fd)
{
	return is_watched(fd) ? __wrap_fdatasync(fd) : __real_fsync(fd);
}

int
__wrap_fallocate(int fd, int mode, off_t at, off_t n)
{
	struct tap_call c = {
		.kind = (mode & FALLOC_FL_PUNCH_HOLE) != 0 ? TAP_PUNCH :
		    TAP_GROW,
		.offset = (uint64_t)at, .length = (uint64_t)n,
	};
	long rc;

	if (!is_watched(fd))
		return __real_fallocate(fd, mode, at, n);
	rc = call_begin(&c);
	if (rc == 0)
		rc = from_errno(__real_fallocate(fd, mode, at, n));
	return (int)as_errno(call_end(&c, rc));
}

int
__wrap_ftruncate(int fd, off_t size)
{
	struct tap_call c = { .kind = TAP_RESIZE, .offset = (uint64_t)size };
	long rc;

	if (!is_watched(fd))
		return __real_ftruncate(fd, size);
	rc = call_begin(&c);
	if (rc == 0)
		rc = from_errno(__real_ftruncate(fd, size));
	return (int)as_errno(call_end(&c, rc));
}

/*
 * libaio.
 */

struct job {
	struct context    *ctx;
	struct iocb       *cb;		/* the caller's, a name only */
	struct iocb        copy;
	struct iovec      *iov;
	struct tap_call    call;
	bool               tapped;
	unsigned           hold;	/* that many others are done first */
	long               want;
	TAILQ_ENTRY(job)   link;
};
TAILQ_HEAD(job_list, job);

/* What an io_context_t points to.  Its magic number is not the kernel's. */
struct context {
	char            kernel_ring[64];	/* zeroes */
	unsigned        nr_jobs;		/* under way or to be taken */
	struct job_list done;
};

static struct {
	pthread_mutex_t mutex;
	pthread_cond_t  wake;		/* there is something to do */
	pthread_cond_t  ended;
	struct job_list todo;
	pid_t           pid;		/* whose thread it is */
	uint64_t        dice;
} engine = {
	.mutex = PTHREAD_MUTEX_INITIALIZER,
	.wake = PTHREAD_COND_INITIALIZER,
	.ended = PTHREAD_COND_INITIALIZER,
	.todo = TAILQ_HEAD_INITIALIZER(engine.todo),
	.dice = 1,
};

static uint64_t
dice(void)
{
	engine.dice ^= engine.dice << 13;
	engine.dice ^= engine.dice >> 7;
	engine.dice ^= engine.dice << 17;
	return engine.dice;
}

static long
job_do(struct job *j)
{
	int fd = j->copy.aio_fildes;

	if (j->call.kind != TAP_SYNC)
		return transfer_as(fd, &j->call, j->want);
	return j->want < 0 ? j->want : from_errno(__real_fdatasync(fd));
}

/* With the mutex, which it gives away meanwhile. */
static void
job_run(struct job *j)
{
	unsigned pause = tap.delay_us == 0 ? 0 :
	    (unsigned)(dice() % tap.delay_us);
	long rc;

	pthread_mutex_unlock(&engine.mutex);
	if (pause > 0)
		usleep(pause);
	rc = job_do(j);
	if (j->tapped)
		call_end(&j->call, rc);
	pthread_mutex_lock(&engine.mutex);

	j->copy.u.c.offset = rc;	/* from now on: what it came to */
	TAILQ_INSERT_TAIL(&j->ctx->done, j, link);
	pthread_cond_broadcast(&engine.ended);
	if ((j->copy.u.c.flags & 1) != 0 &&
	    eventfd_write((int)j->copy.u.c.resfd, 1) == -1)
		abort();
}

/*
 * Any of those that nothing holds.  Where all are held, wait a little for
 * more; NULL: look again.
 */
static struct job *
engine_choose(void)
{
	struct timespec until;
	struct job *j, *found = NULL;
	unsigned n = 0;

	TAILQ_FOREACH(j, &engine.todo, link)
		if (j->hold == 0 && dice() % ++n == 0)
			found = j;
	if (found != NULL) {
		TAILQ_FOREACH(j, &engine.todo, link)
			if (j->hold > 0)
				j->hold--;
		return found;
	}
	if (TAILQ_EMPTY(&engine.todo)) {
		pthread_cond_wait(&engine.wake, &engine.mutex);
		return NULL;
	}
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += HOLD_NS;
	if (until.tv_nsec >= 1000000000) {
		until.tv_nsec -= 1000000000;
		until.tv_sec++;
	}
	if (pthread_cond_timedwait(&engine.wake, &engine.mutex, &until) == 0)
		return NULL;
	return TAILQ_FIRST(&engine.todo);
}

static void *
engine_main(void *arg)
{
	struct job *j;

	(void)arg;
	pthread_mutex_lock(&engine.mutex);
	for (;;) {
		j = engine_choose();
		if (j == NULL)
			continue;
		TAILQ_REMOVE(&engine.todo, j, link);
		job_run(j);
	}
	return NULL;
}

/* Once in each process: threads do not survive a fork(). */
static void
engine_start(void)
{
	pthread_t thread;

	if (engine.pid == getpid())
		return;
	engine.pid = getpid();
	if (pthread_create(&thread, NULL, engine_main, NULL) != 0 ||
	    pthread_detach(thread) != 0)
		abort();
}

int
__wrap_io_setup(int nr, io_context_t *ctx)
{
	struct context *c;

	if (tap.real_aio)
		return __real_io_setup(nr, ctx);
	c = calloc(1, sizeof(*c));
	if (c == NULL)
		return -ENOMEM;
	TAILQ_INIT(&c->done);
	engine_start();
	*ctx = (io_context_t)c;
	return 0;
}

int
__wrap_io_destroy(io_context_t ctx)
{
	if (tap.real_aio)
		return __real_io_destroy(ctx);
	if (((struct context *)ctx)->nr_jobs != 0)
		abort();
	free(ctx);
	return 0;
}

/* The call that an iocb is; the iovs are its own. */
static int
job_parse(struct job *j)
{
	struct iocb *cb = &j->copy;
	struct tap_call *c = &j->call;
	int op = cb->aio_lio_opcode;

	c->async = true;
	if (op == IO_CMD_FDSYNC || op == IO_CMD_FSYNC) {
		c->kind = TAP_SYNC;
		return 0;
	}
	c->kind = op == IO_CMD_PREAD || op == IO_CMD_PREADV ? TAP_READ :
	    TAP_WRITE;
	c->offset = (uint64_t)cb->u.c.offset;
	c->iovcnt = op == IO_CMD_PREADV || op == IO_CMD_PWRITEV ?
	    (int)cb->u.c.nbytes : 1;
	j->iov = calloc((size_t)c->iovcnt, sizeof(*j->iov));
	if (j->iov == NULL)
		return -EAGAIN;
	c->iov = j->iov;
	if (op == IO_CMD_PREAD || op == IO_CMD_PWRITE) {
		j->iov[0].iov_base = cb->u.c.buf;
		j->iov[0].iov_len = cb->u.c.nbytes;
	} else {
		memcpy(j->iov, cb->u.c.buf,
		    (size_t)c->iovcnt * sizeof(*j->iov));
	}
	c->length = iov_bytes(c->iov, c->iovcnt);
	return 0;
}

static int
job_submit(struct context *ctx, struct iocb *cb)
{
	struct job *j;

	j = calloc(1, sizeof(*j));
	if (j == NULL)
		return -EAGAIN;
	j->ctx = ctx;
	j->cb = cb;
	j->copy = *cb;
	if (job_parse(j) < 0) {
		free(j);
		return -EAGAIN;
	}
	j->tapped = is_watched(cb->aio_fildes);
	if (j->tapped)
		j->want = call_begin(&j->call);
	pthread_mutex_lock(&engine.mutex);
	if (tap.delay_us > 0 && dice() % 16 == 0)
		j->hold = (unsigned)(dice() % MAX_HOLD);
	TAILQ_INSERT_TAIL(&engine.todo, j, link);
	ctx->nr_jobs++;
	pthread_cond_signal(&engine.wake);
	pthread_mutex_unlock(&engine.mutex);
	return 0;
}

/* Only that it is submitted is seen, and nothing can be made of it. */
static void
real_submit_begin(long nr, struct iocb **cbs)
{
	struct job j;
	long i;

	for (i = 0; i < nr; i++) {
		if (!is_watched(cbs[i]->aio_fildes))
			continue;
		memset(&j, 0, sizeof(j));
		j.copy = *cbs[i];
		if (job_parse(&j) == 0)
			call_begin(&j.call);
		free(j.iov);
	}
}

int
__wrap_io_submit(io_context_t ctx, long nr, struct iocb **cbs)
{
	long i;

	if (tap.real_aio) {
		real_submit_begin(nr, cbs);
		return __real_io_submit(ctx, nr, cbs);
	}
	for (i = 0; i < nr; i++)
		if (job_submit((struct context *)ctx, cbs[i]) < 0)
			return i == 0 ? -EAGAIN : (int)i;
	return (int)nr;
}

int
__wrap_io_getevents(io_context_t ctx, long min, long nr,
    struct io_event *events, struct timespec *timeout)
{
	struct context *c = (struct context *)ctx;
	struct job *j;
	int n = 0;

	if (tap.real_aio)
		return __real_io_getevents(ctx, min, nr, events, timeout);
	pthread_mutex_lock(&engine.mutex);
	while (n < nr) {
		j = TAILQ_FIRST(&c->done);
		if (j == NULL && (n >= min || timeout != NULL))
			break;
		if (j == NULL) {
			pthread_cond_wait(&engine.ended, &engine.mutex);
			continue;
		}
		TAILQ_REMOVE(&c->done, j, link);
		c->nr_jobs--;
		events[n].data = j->copy.data;
		events[n].obj = j->cb;
		events[n].res = (unsigned long)j->copy.u.c.offset;
		events[n].res2 = 0;
		n++;
		free(j->iov);
		free(j);
	}
	pthread_mutex_unlock(&engine.mutex);
	return n;
}
