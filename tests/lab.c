/* SPDX-License-Identifier: GPL-2.0-or-later */
/* lab: see lab.h.  It may run in any thread, so what is wrong aborts. */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "tests/lab.h"

struct lab_op {
	struct io *io;
	bool       applied;
	int        error;
};

struct lab_channel {
	struct channel ch;		/* must be first */
	unsigned       depth;
	unsigned       seed;
	unsigned       nr;
	struct lab_op  op[LAB_MAX_DEPTH];	/* in the order of arrival */
};

#define need(what) \
	((what) ? (void)0 : lab_broken(#what, __LINE__))

static void
lab_broken(const char *what, int line)
{
	fprintf(stderr, "lab.c:%d: it does not hold that %s\n", line, what);
	abort();
}

static struct lab *
lab_of(struct lab_channel *c)
{
	return container_of(c->ch.img, struct lab, img);
}

static void
lab_close(struct image *img)
{
	struct lab *lab = container_of(img, struct lab, img);

	pthread_mutex_destroy(&lab->mutex);
	free(lab->data);
	free(lab);
}

static int
lab_activate(struct image *img, char why[WHY_MAX])
{
	why_set(why, "the lab is closed");
	return container_of(img, struct lab, img)->activate_error;
}

static int
lab_deactivate(struct image *img, char why[WHY_MAX])
{
	(void)why;
	atomic_fetch_add(&img->metadata_writes, 1);
	return 0;
}

/* Its memory stays as it is. */
static int
lab_resize(struct image *img, uint64_t size, char why[WHY_MAX])
{
	why_set(why, "the lab is small");
	if (size > 1ull << 30)
		return -ENOSPC;
	img->size = size;
	return 0;
}

static int
lab_channel_open(struct image *img, unsigned depth, struct channel **ch,
    char why[WHY_MAX])
{
	struct lab *lab = container_of(img, struct lab, img);
	struct lab_channel *c;

	why_set(why, "the lab is busy");
	if (lab->channel_error != 0)
		return lab->channel_error;
	need(depth <= LAB_MAX_DEPTH);
	c = calloc(1, sizeof(*c));
	need(c != NULL);
	c->ch.img = img;
	c->depth = depth;
	c->seed = 1;
	c->ch.event_fd = lab->silent ? -1 :
	    eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	need(lab->silent || c->ch.event_fd != -1);
	*ch = &c->ch;
	return 0;
}

static void
lab_channel_close(struct channel *ch)
{
	struct lab_channel *c = container_of(ch, struct lab_channel, ch);
	struct lab *lab = lab_of(c);

	need(c->nr == 0);
	pthread_mutex_lock(&lab->mutex);
	lab->nr_closed++;
	pthread_mutex_unlock(&lab->mutex);
	if (ch->event_fd != -1)
		close(ch->event_fd);
	free(c);
}

/* Under 'mutex'. */
static void
lab_count(struct lab *lab, struct io *io)
{
	bool placed = false;
	unsigned i;

	lab->nr_ios++;
	lab->nr_reads += io->op == IO_READ;
	lab->nr_writes += io->op == IO_WRITE;
	lab->nr_flushes += io->op == IO_FLUSH;
	lab->nr_discards += io->op == IO_DISCARD;
	if (++lab->nr_inflight > lab->max_inflight)
		lab->max_inflight = lab->nr_inflight;
	if (io->iovcnt > 0)
		lab->last_base = io->iov[0].iov_base;
	for (i = 0; io->op == IO_WRITE && i < 2 * LAB_MAX_DEPTH; i++) {
		if (lab->writing[i] == NULL) {
			if (!placed)
				lab->writing[i] = io;
			placed = true;
			continue;
		}
		need(lab->racy || lab->writing[i] == io ||
		    lab->writing[i]->offset >= io->offset + io->length ||
		    io->offset >= lab->writing[i]->offset +
		    lab->writing[i]->length);
	}
	need(placed || io->op != IO_WRITE);
}

static void
lab_submit(struct channel *ch, struct io *io)
{
	struct lab_channel *c = container_of(ch, struct lab_channel, ch);
	struct lab *lab = lab_of(c);

	need(c->nr < c->depth);
	pthread_mutex_lock(&lab->mutex);
	lab_count(lab, io);
	c->op[c->nr].io = io;
	c->op[c->nr].applied = false;
	c->op[c->nr].error = lab->nr_ios == lab->fail_nth ? -EIO : 0;
	pthread_mutex_unlock(&lab->mutex);
	c->nr++;
	ch->submits++;
}

/* Under 'mutex'. */
static void
lab_apply(struct lab *lab, struct lab_op *op)
{
	uint8_t *at = lab->data + op->io->offset;
	struct iovec *v;
	int i;

	op->applied = true;
	if (op->error != 0)
		return;
	if (op->io->op == IO_DISCARD)
		memset(at, 0, op->io->length);
	for (i = 0; i < op->io->iovcnt; i++) {
		v = &op->io->iov[i];
		if (op->io->op == IO_READ)
			memcpy(v->iov_base, at, v->iov_len);
		else
			memcpy(at, v->iov_base, v->iov_len);
		at += v->iov_len;
	}
}

/* Under 'mutex'.  Does it end now? */
static bool
lab_may_end(struct lab *lab, struct lab_channel *c, struct lab_op *op)
{
	if (lab->hold && lab->nr_let == 0)
		return false;
	if (!lab->hold && rand_r(&c->seed) % 2 == 0)
		return false;
	if (!op->applied) {
		lab_apply(lab, op);
		if (!lab->hold && rand_r(&c->seed) % 2 == 0)
			return false;
	}
	if (lab->hold)
		lab->nr_let--;
	return true;
}

/* Under 'mutex'. */
static void
lab_forget(struct lab *lab, const struct io *io)
{
	unsigned i;

	lab->nr_inflight--;
	for (i = 0; i < 2 * LAB_MAX_DEPTH; i++)
		if (lab->writing[i] == io)
			lab->writing[i] = NULL;
}

static unsigned
lab_reap(struct channel *ch)
{
	struct lab_channel *c = container_of(ch, struct lab_channel, ch);
	struct lab *lab = lab_of(c);
	struct lab_op op, *first = c->op;
	unsigned n = 0, k = c->nr, i = 0;
	bool ends, more;

	if (k == 0)
		return 0;
	atomic_fetch_add(&ch->img->metadata_writes, 1);
	for (; k > 0; k--) {
		pthread_mutex_lock(&lab->mutex);
		ends = lab_may_end(lab, c, &first[i]);
		op = first[i];
		if (ends)
			lab_forget(lab, op.io);
		pthread_mutex_unlock(&lab->mutex);
		if (!ends) {
			i++;
			continue;
		}
		c->nr--;
		memmove(&first[i], &first[i + 1], (c->nr - i) * sizeof(op));
		op.io->done(op.io, op.error);
		n++;
	}
	pthread_mutex_lock(&lab->mutex);
	more = c->nr > 0 && (!lab->hold || lab->nr_let > 0);
	pthread_mutex_unlock(&lab->mutex);
	if (more && ch->event_fd != -1)
		need(eventfd_write(ch->event_fd, 1) == 0);
	return n;
}

static int
lab_info(struct image *img, struct image_layer layers[IMAGE_LAYERS_MAX],
    char why[WHY_MAX])
{
	(void)why;
	layers[0].format = "lab";
	layers[0].virtual_size = img->size;
	return 1;
}

static int
lab_check(struct image *img, struct image_check *c, char why[WHY_MAX])
{
	(void)why;
	c->clusters = img->size;
	return 0;
}

static const struct driver driver_lab = {
	.name          = "lab",
	.close         = lab_close,
	.activate      = lab_activate,
	.deactivate    = lab_deactivate,
	.resize        = lab_resize,
	.channel_open  = lab_channel_open,
	.channel_close = lab_channel_close,
	.submit        = lab_submit,
	.reap          = lab_reap,
	.info          = lab_info,
	.check         = lab_check,
};

struct lab *
lab_new(uint64_t size, uint32_t block, uint32_t alignment)
{
	struct lab *lab;

	lab = calloc(1, sizeof(*lab));
	need(lab != NULL);
	lab->data = calloc(1, size);
	need(lab->data != NULL);
	pthread_mutex_init(&lab->mutex, NULL);
	lab->img.drv = &driver_lab;
	lab->img.size = size;
	lab->img.block_size = block;
	lab->img.buffer_alignment = alignment;
	lab->img.physical_block_size = block;
	lab->img.discard_granularity = 2 * block;
	lab->img.discard_alignment = block;
	lab->img.dev = 1;
	lab->img.ino = 2;
	lab->img.redo_bytes = 3 * 4096;
	return lab;
}

void
lab_end(struct lab *lab, unsigned n)
{
	pthread_mutex_lock(&lab->mutex);
	lab->nr_let += n;
	pthread_mutex_unlock(&lab->mutex);
}
