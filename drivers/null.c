/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * null: a disk that reads as zeroes and forgets what is written.
 *
 * The path is its size in bytes; K, M, G and T multiply by powers of 1024.
 * The benchmark of everything but the storage, and the smallest example of
 * a driver: what is submitted waits in a list for the next reap().
 *
 * empty: a drive without a medium, of no size at all.  Nothing but a flush can
 * be asked of it.  No spec can name it: see struct image_options.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/driver.h"

struct null_image {
	struct image img;		/* must be first */
};

struct null_channel {
	struct channel ch;		/* must be first */
	struct io_list ready;
};

/* "64M" and the like; digits and one suffix, nothing else. */
static int
null_parse_size(const char *s, uint64_t *size)
{
	static const char suffixes[] = "KMGT";
	const char *suffix;
	unsigned shift = 0;
	uint64_t n = 0;

	for (; *s >= '0' && *s <= '9'; s++) {
		if (n > (uint64_t)INT64_MAX / 10 - 1)
			return -ERANGE;
		n = n * 10 + (uint64_t)(*s - '0');
	}
	if (*s != '\0') {
		suffix = strchr(suffixes, *s);
		if (suffix == NULL || s[1] != '\0')
			return -EINVAL;
		shift = 10 * (unsigned)(suffix - suffixes + 1);
	}
	if (n > (uint64_t)INT64_MAX >> shift)
		return -ERANGE;
	*size = n << shift;
	return *size == 0 || *size % 512 != 0 ? -EINVAL : 0;
}

static int
null_open(const struct image_options *opt, struct image **img,
    char why[WHY_MAX])
{
	struct null_image *n;
	uint64_t size;
	int rc;

	rc = null_parse_size(opt->path, &size);
	if (rc < 0) {
		why_set(why, "null:%.64s: no size of a disk; give a multiple "
		    "of 512 bytes above 0 and below 8192 P, for instance "
		    "null:64M", opt->path);
		return rc;
	}

	n = calloc(1, sizeof(*n));
	if (n == NULL) {
		why_set(why, "null:%.64s: out of memory", opt->path);
		return -ENOMEM;
	}
	n->img.readonly = opt->readonly;
	n->img.size = size;
	n->img.block_size = 512;
	n->img.physical_block_size = 4096;
	if (opt->discard && !opt->readonly)
		n->img.discard_granularity = 4096;
	*img = &n->img;
	return 0;
}

static int
empty_open(const struct image_options *opt, struct image **img,
    char why[WHY_MAX])
{
	struct null_image *n = calloc(1, sizeof(*n));

	if (n == NULL) {
		why_set(why, "a drive without a medium: out of memory");
		return -ENOMEM;
	}
	n->img.readonly = opt->readonly;
	n->img.block_size = 512;
	n->img.physical_block_size = 512;
	*img = &n->img;
	return 0;
}

static void
null_close(struct image *img)
{
	free(container_of(img, struct null_image, img));
}

/* There is nobody to share with and nothing to flush. */
static int
null_activate(struct image *img, char why[WHY_MAX])
{
	(void)img;
	(void)why;
	return 0;
}

static int
null_channel_open(struct image *img, unsigned depth, struct channel **ch,
    char why[WHY_MAX])
{
	struct null_channel *n;

	(void)depth;			/* a list has room for all */
	n = calloc(1, sizeof(*n));
	if (n == NULL) {
		why_set(why, "null: open a channel: out of memory");
		return -ENOMEM;
	}
	n->ch.img = img;
	n->ch.event_fd = -1;
	STAILQ_INIT(&n->ready);
	*ch = &n->ch;
	return 0;
}

static void
null_channel_close(struct channel *ch)
{
	free(container_of(ch, struct null_channel, ch));
}

static void
null_submit(struct channel *ch, struct io *io)
{
	struct null_channel *n = container_of(ch, struct null_channel, ch);

	STAILQ_INSERT_TAIL(&n->ready, io, link);
}

/* What a done() submits waits for the next call, so that this one ends. */
static unsigned
null_reap(struct channel *ch)
{
	struct null_channel *n = container_of(ch, struct null_channel, ch);
	struct io_list ready = STAILQ_HEAD_INITIALIZER(ready);
	struct io *io;
	unsigned count = 0;
	int i;

	STAILQ_CONCAT(&ready, &n->ready);
	while ((io = STAILQ_FIRST(&ready)) != NULL) {
		STAILQ_REMOVE_HEAD(&ready, link);
		if (io->op == IO_READ)
			for (i = 0; i < io->iovcnt; i++)
				memset(io->iov[i].iov_base, 0,
				    io->iov[i].iov_len);
		io->done(io, 0);
		count++;
	}
	return count;
}

const struct driver driver_null = {
	.name          = "null",
	.open          = null_open,
	.close         = null_close,
	.activate      = null_activate,
	.deactivate    = null_activate,
	.channel_open  = null_channel_open,
	.channel_close = null_channel_close,
	.submit        = null_submit,
	.reap          = null_reap,
};

const struct driver driver_empty = {
	.name          = "empty",
	.open          = empty_open,
	.close         = null_close,
	.activate      = null_activate,
	.deactivate    = null_activate,
	.channel_open  = null_channel_open,
	.channel_close = null_channel_close,
	.submit        = null_submit,
	.reap          = null_reap,
};
