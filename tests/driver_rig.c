/* SPDX-License-Identifier: GPL-2.0-or-later */
/* driver_rig: see driver_rig.h. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/driver_rig.h"

static bool
takes_direct_io(const char *folder)
{
	char file[512];
	int fd;

	snprintf(file, sizeof(file), "%s/probe.XXXXXX", folder);
	fd = mkostemp(file, O_DIRECT);
	if (fd == -1)
		return false;
	close(fd);
	unlink(file);
	return true;
}

/* $TMPDIR, or else the folder of the test program itself. */
static const char *
test_folder(void)
{
	static char exe[400];
	const char *tmp = getenv("TMPDIR");
	ssize_t n;

	if (tmp != NULL && strlen(tmp) < sizeof(exe) && takes_direct_io(tmp))
		return tmp;
	n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	assert_true(n > 0);
	exe[n] = '\0';
	return dirname(exe);
}

void
rig_make_file(char file[512], off_t size)
{
	int fd;

	snprintf(file, 512, "%s/image.XXXXXX", test_folder());
	fd = mkstemp(file);
	assert_true(fd != -1);
	assert_int_equal(ftruncate(fd, size), 0);
	close(fd);
}

int
rig_image(struct rig *r, const char *format, const char *path, bool readonly,
    enum cache_mode cache)
{
	struct image_options opt = {
		.format = format, .path = path, .readonly = readonly,
		.cache = cache, .engine = r->engine, .discard = r->discard,
		.resumed = r->resumed,
	};
	int rc;

	rc = image_open(&opt, &r->img, r->why);
	assert_true((rc == 0) == (r->img != NULL));
	return rc;
}

void
rig_watch(struct rig *r, unsigned depth)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLET };

	if (channel_open(r->img, depth, &r->ch, r->why) != 0)
		fail_msg("%s", r->why);
	r->epfd = -1;
	if (r->ch->event_fd == -1)
		return;
	r->epfd = epoll_create1(EPOLL_CLOEXEC);
	assert_true(r->epfd != -1);
	assert_int_equal(epoll_ctl(r->epfd, EPOLL_CTL_ADD, r->ch->event_fd,
	    &ev), 0);
}

void
rig_unwatch(struct rig *r)
{
	if (r->epfd != -1)
		close(r->epfd);
	channel_close(r->ch);
	r->epfd = -1;
	r->ch = NULL;
}

void
rig_open(struct rig *r, const char *format, const char *path, bool readonly,
    unsigned depth)
{
	*r = (struct rig){ .discard = r->discard, .engine = r->engine,
		.cache = r->cache, .resumed = r->resumed };
	if (rig_image(r, format, path, readonly, r->cache) != 0 ||
	    image_activate(r->img, r->why) != 0)
		fail_msg("%s", r->why);
	rig_watch(r, depth);
}

void
rig_close(struct rig *r)
{
	assert_int_equal(r->nr_inflight, 0);
	if (r->ch != NULL)
		rig_unwatch(r);
	if (r->img != NULL && r->img->active &&
	    image_deactivate(r->img, r->why) != 0)
		fail_msg("%s", r->why);
	image_close(r->img);
	r->img = NULL;
	if (r->file[0] != '\0')
		unlink(r->file);
}

static void
rig_done(struct io *io, int error)
{
	struct rig_io *rio = container_of(io, struct rig_io, io);

	assert_true(rio->rig->reaping);
	assert_int_equal(rio->nr_done, 0);
	assert_true(error <= 0);
	rio->nr_done++;
	rio->error = error;
	rio->rig->nr_done++;
	rio->rig->nr_inflight--;
	if (rio->then != NULL)
		rio->then(rio);
}

struct rig_io *
rig_io_new(struct rig *r, enum io_op op, uint64_t offset, uint64_t length,
    int iovcnt)
{
	struct rig_io *rio;
	uint64_t sectors = length / 512, at = 0, next;
	int i;

	rio = calloc(1, sizeof(*rio));
	assert_non_null(rio);
	rio->rig = r;
	rio->io.op = op;
	rio->io.offset = offset;
	rio->io.length = length;
	rio->io.done = rig_done;
	if (length == 0 || op == IO_DISCARD)
		return rio;

	rio->buf = aligned_alloc(4096, (length + 4095) / 4096 * 4096);
	rio->io.iov = calloc((size_t)iovcnt, sizeof(struct iovec));
	assert_true(rio->buf != NULL && rio->io.iov != NULL);
	memset(rio->buf, 0xee, length);
	rio->io.iovcnt = iovcnt;
	for (i = 0; i < iovcnt; i++) {
		next = sectors * (uint64_t)(i + 1) / (uint64_t)iovcnt;
		rio->io.iov[i].iov_base = (char *)rio->buf + at * 512;
		rio->io.iov[i].iov_len = (next - at) * 512;
		at = next;
	}
	return rio;
}

void
rig_io_free(struct rig_io *rio)
{
	assert_int_equal(rio->nr_done, 1);
	free(rio->io.iov);
	free(rio->buf);
	free(rio);
}

void
rig_submit(struct rig_io *rio)
{
	bool reaping = rio->rig->reaping;
	struct epoll_event ev;

	/* An edge of earlier I/Os must not stand in for one of this. */
	if (rio->rig->nr_inflight == 0 && rio->rig->epfd != -1)
		assert_in_range(epoll_wait(rio->rig->epfd, &ev, 1, 0), 0, 1);
	rio->rig->nr_inflight++;
	rio->rig->reaping = false;	/* no done() before this returns */
	channel_submit(rio->rig->ch, &rio->io);
	rio->rig->reaping = reaping;
}

void
rig_reap(struct rig *r)
{
	r->reaping = true;
	r->nr_reaped += channel_reap(r->ch);
	r->reaping = false;
	assert_int_equal(r->nr_reaped, r->nr_done);
}

void
rig_wait(struct rig *r)
{
	struct epoll_event ev;

	rig_reap(r);
	while (r->nr_inflight > 0) {
		if (r->epfd != -1)
			assert_int_equal(epoll_wait(r->epfd, &ev, 1,
			    RIG_TIMEOUT_MS), 1);
		rig_reap(r);
	}
}

int
rig_do(struct rig_io *rio)
{
	int error;

	rig_submit(rio);
	rig_wait(rio->rig);
	error = rio->error;
	rig_io_free(rio);
	return error;
}

int
rig_flush(struct rig *r)
{
	return rig_do(rig_io_new(r, IO_FLUSH, 0, 0, 0));
}

static uint32_t
pattern(uint64_t place, unsigned seed)
{
	uint64_t x = (place + 1) * 0x9e3779b97f4a7c15u + seed * 0x85ebca6bu;

	return (uint32_t)(x >> 32 ^ x);
}

void
rig_fill(struct rig_io *rio, unsigned seed)
{
	uint32_t *p = rio->buf;
	uint64_t i;

	for (i = 0; i < rio->io.length / 4; i++)
		p[i] = pattern(rio->io.offset / 4 + i, seed);
}

bool
rig_holds(const struct rig_io *rio, unsigned seed)
{
	const uint32_t *p = rio->buf;
	uint64_t i;

	for (i = 0; i < rio->io.length / 4; i++)
		if (p[i] != pattern(rio->io.offset / 4 + i, seed))
			return false;
	return true;
}

bool
rig_aborts(void (*call)(void *arg), void *arg)
{
	struct rlimit no_core = { 0, 0 };
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	assert_true(pid != -1);
	if (pid == 0) {
		setrlimit(RLIMIT_CORE, &no_core);
		signal(SIGABRT, SIG_DFL);
		if (freopen("/dev/null", "w", stderr) == NULL)
			_exit(3);
		call(arg);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static unsigned
count_entries(const char *folder)
{
	struct dirent *d;
	unsigned n = 0;
	DIR *dir;

	dir = opendir(folder);
	assert_non_null(dir);
	while ((d = readdir(dir)) != NULL)
		n += d->d_name[0] != '.';
	closedir(dir);
	return n;
}

unsigned
rig_count_fds(void)
{
	return count_entries("/proc/self/fd") - 1;	/* less our own */
}

unsigned
rig_count_threads(void)
{
	return count_entries("/proc/self/task");
}

int
rig_shell(char *out, size_t size, const char *fmt, ...)
{
	char command[2048], rest[512];
	size_t used = 0, n;
	va_list ap;
	FILE *f;
	int status;

	va_start(ap, fmt);
	assert_true(vsnprintf(command, sizeof(command), fmt, ap) <
	    (int)sizeof(command));
	va_end(ap);
	f = popen(command, "re");
	assert_non_null(f);
	while (out != NULL && used < size - 1 &&
	    (n = fread(out + used, 1, size - 1 - used, f)) > 0)
		used += n;
	if (out != NULL)
		out[used] = '\0';
	while (fread(rest, 1, sizeof(rest), f) > 0)
		;
	status = pclose(f);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}
