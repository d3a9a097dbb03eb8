/* SPDX-License-Identifier: GPL-2.0-or-later */
/* engine: what the engines share (see engine.h). */
#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include "drivers/aio.h"
#include "drivers/threads.h"

int
engine_prepare(struct threads **threads, const struct image_options *opt,
    char why[WHY_MAX])
{
	*threads = NULL;
	if (opt->engine == ENGINE_THREADS && !opt->inspect)
		return threads_open(threads, THREADS_MAX, opt->path, why);
	assert(opt->inspect || cache_is_direct(opt->cache));
	return 0;
}

int
engine_open(struct engine **e, struct channel *ch,
    const struct engine_config *c, char why[WHY_MAX])
{
	if (c->threads == NULL)
		return aio_open(e, ch, c, why);
	return threads_engine_open(e, ch, c, why);
}

int
engine_eventfd(const char *path, char why[WHY_MAX])
{
	int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);

	if (fd != -1)
		return fd;
	fd = -errno;
	why_set(why, "open an eventfd for %.200s: %s; raise the limit of open "
	    "files (ulimit -n, LimitNOFILE= of the unit)", path,
	    strerror(-fd));
	return fd;
}

void
engine_raise(int event_fd)
{
	/* It fails only when the counter is full or the fd is not ours. */
	if (eventfd_write(event_fd, 1) == -1)
		abort();
}

void
transfer_begin(struct transfer *t, const struct channel *ch, int fd,
    struct io *io)
{
	t->io = io;
	t->fd = fd;
	t->iov = io->iov;
	t->iovcnt = io->iovcnt;
	t->offset = io->offset;
	t->left = io->length;
	t->block = ch->img->block_size;
}

int
transfer_iovcnt(const struct transfer *t)
{
	return t->iovcnt < IOV_MAX ? t->iovcnt : IOV_MAX;
}

/* 'n' bytes less than all that is left were transferred. */
static void
transfer_advance(struct transfer *t, uint64_t n)
{
	t->offset += n;
	t->left -= n;
	while (n >= t->iov->iov_len) {
		n -= t->iov->iov_len;
		t->iov++;
		t->iovcnt--;
	}
	t->iov->iov_base = (char *)t->iov->iov_base + n;
	t->iov->iov_len -= n;
}

/* The file has ended 'n' bytes into what was left to read. */
static void
transfer_zero(struct transfer *t, uint64_t n)
{
	int i;

	transfer_advance(t, n);
	for (i = 0; i < t->iovcnt; i++)
		memset(t->iov[i].iov_base, 0, t->iov[i].iov_len);
}

/*
 * Only whole blocks count as progress: direct I/O cannot go on in the middle
 * of one.
 */
bool
transfer_goes_on(struct transfer *t, long res, bool zero_beyond_end)
{
	uint64_t n = (uint64_t)res;
	bool read = t->io->op == IO_READ;

	t->error = 0;
	if (res < 0)
		t->error = (int)res;
	if (res < 0 || n >= t->left)
		return false;
	if (zero_beyond_end && read && (n == 0 || n % t->block != 0)) {
		transfer_zero(t, n);
		return false;
	}
	n -= n % t->block;
	if (n == 0) {
		t->error = read ? -EIO : -ENOSPC;
		return false;
	}
	transfer_advance(t, n);
	return true;
}
