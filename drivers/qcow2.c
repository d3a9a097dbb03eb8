/* SPDX-License-Identifier: GPL-2.0-or-later */
/* qcow2: open, activate and close; qcow2.h tells how the parts fit. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/qcow2_check.h"
#include "drivers/qcow2_io.h"
#include "drivers/qcow2_meta.h"
#include "drivers/threads.h"

/* Memory of the caches, bytes; a disk is to need 24 MiB in all. */
#define L2_CACHE      (5u << 20)	/* the topmost layer */
#define BACKING_CACHE (4u << 20)	/* all others together */
#define MIN_BACKING   (64u << 10)	/* each of them */
#define MAX_BUSY      544u		/* slices that may be dirty; 17 GiB */
#define MIN_CLEAN     64u		/* slices that never are, so that */
				/* others can be loaded */
#define RUN_BYTES     (8u << 20)	/* least reserved ahead, and most: it */
#define RUN_BYTES_MAX (64u << 20)	/* has to last while a round is made; */
#define RUN_SHARE     64u		/* this share of the disk in between */
#define MIN_RUN       4u		/* clusters, likewise */
#define MIN_ZEROES    (64u << 10)

static void
qcow2_free(struct qcow2 *q)
{
	struct qcow2_layer *l;

	if (q == NULL)
		return;
	qcow2_meta_close(q);
	for (l = q->top; l != NULL; l = l->backing)
		qcow2_slices_close(l->slices);
	qcow2_allocs_free(q);
	threads_close(q->threads);
	qcow2_chain_close(q->top);
	free(q->l1_dirty);
	free(q->zeroes);
	pthread_mutex_destroy(&q->lock);
	free(q);
}

/*
 * Storage whose direct I/O is larger than a sector (4Kn).  A cluster must not
 * share a block with another, nor a subcluster: what is written there by
 * different threads would meet.  What image_open() puts round the image cuts
 * no I/O inside a block, so it is enough that nothing else in the chain does.
 */
static uint32_t
layer_block(const struct qcow2_layer *l)
{
	return l->file.block_size > l->file.buffer_alignment ?
	    l->file.block_size : l->file.buffer_alignment;
}

static int
layer_check_block(const struct qcow2_layer *l, uint32_t block,
    char why[WHY_MAX])
{
	uint64_t unit = block;

	if (layer_block(l) != block) {
		why_set(why, "open %.200s: its storage has sectors of %u "
		    "bytes, that of the images on top of it %u; move them to "
		    "storage of one kind", l->file.path, layer_block(l),
		    block);
		return -EOPNOTSUPP;
	}
	if (!l->raw)
		unit = (1ull << l->h.cluster_bits) >>
		    (qcow2_extended(&l->h) ? 5 : 0);
	if (unit < block) {
		why_set(why, "open %.200s: its clusters (with extended L2 "
		    "entries, their 32 parts) are smaller than the %u-byte "
		    "sectors of its storage; make it anew with 'qemu-img "
		    "convert -o cluster_size=%s'", l->file.path, block,
		    qcow2_extended(&l->h) ? "128k" : "64k");
		return -EOPNOTSUPP;
	}
	if (l->size % block != 0) {
		why_set(why, "open %.200s: its virtual size is not a multiple "
		    "of the %u-byte sectors of its storage; round it up with "
		    "'%s'", l->file.path, block, l->raw ?
		    "truncate -s %4096" : "qemu-img resize");
		return -EOPNOTSUPP;
	}
	return 0;
}

static int
qcow2_check_blocks(struct qcow2 *q, char why[WHY_MAX])
{
	uint32_t block = layer_block(q->top);
	const struct qcow2_layer *l;
	int rc = 0;

	q->img.block_size = SECTOR;
	if (q->top->inspect)	/* which reads metadata only */
		return 0;
	for (l = q->top; l != NULL && rc == 0; l = l->backing)
		if (block > SECTOR || layer_block(l) > SECTOR)
			rc = layer_check_block(l, block, why);
	q->img.block_size = q->img.buffer_alignment = block;
	return rc;
}

/* How much to reserve ahead. */
static void
qcow2_set_run(struct qcow2 *q)
{
	const struct qcow2_header *h = &q->top->h;

	q->run_target = h->size / RUN_SHARE;
	if (q->run_target > RUN_BYTES_MAX)
		q->run_target = RUN_BYTES_MAX;
	if (q->run_target < RUN_BYTES)
		q->run_target = RUN_BYTES;
	q->run_target >>= h->cluster_bits;
	if (q->run_target < MIN_RUN)
		q->run_target = MIN_RUN;
	q->run_low = q->run_target / 2;
}

/* What follows from the header for the rest of the driver. */
static void
qcow2_set_geometry(struct qcow2 *q, const struct image_options *opt)
{
	const struct qcow2_header *h = &q->top->h;

	q->cache = opt->cache;
	q->cluster_bits = h->cluster_bits;
	q->cluster_size = 1ull << h->cluster_bits;
	q->l2_bits = qcow2_l2_bits(h);
	q->extended = qcow2_extended(h);
	q->unit_bits = h->cluster_bits - (q->extended ? 5 : 0);
	q->backed = q->top->backing != NULL;
	qcow2_set_run(q);

	q->img.readonly = opt->readonly;
	q->img.size = qcow2_virtual_size(h);
	q->img.physical_block_size = q->top->file.physical_block_size;
	q->img.dev = q->top->file.dev;
	q->img.ino = q->top->file.ino;
	if (!opt->readonly)
		q->img.redo_bytes = QCOW2_REDO_BYTES;
	/* Version 2 cannot say "zero here" over a backing file. */
	if (opt->discard && !opt->readonly && !(h->version < 3 && q->backed))
		q->img.discard_granularity = (uint32_t)q->cluster_size;
}

/*
 * Where the cache holds every slice that there can be, none is ever in the way
 * of another: then only the log, the age and flushes ask for a round.
 */
static void
qcow2_set_busy(struct qcow2 *q)
{
	unsigned nr = q->top->slices->nr;
	uint64_t all = (q->top->h.size >> q->cluster_bits >>
	    q->top->slices->bits) + 1;

	if (all <= nr && nr <= MAX_BUSY) {
		q->max_busy = nr;
		q->busy_high = nr;
		return;
	}
	q->max_busy = nr > 2 * MIN_CLEAN ? nr - MIN_CLEAN : nr / 2;
	if (q->max_busy > MAX_BUSY)
		q->max_busy = MAX_BUSY;
	q->busy_high = q->max_busy / 4 * 3;
}

/*
 * More slices and more room for them, as an image of that size has at open; if
 * there is no memory for it, what is there must do.
 */
void
qcow2_set_size(struct qcow2 *q)
{
	struct qcow2_slices *c = q->top->slices;

	qcow2_set_run(q);
	(void)qcow2_slices_grow(c, &q->top->h);
	if (qcow2_meta_make_room(q, c->nr < MAX_BUSY ? c->nr : MAX_BUSY) == 0)
		qcow2_set_busy(q);
	q->top->size = qcow2_virtual_size(&q->top->h);
	q->img.size = q->top->size;
}

static int
qcow2_open_caches(struct qcow2 *q)
{
	struct qcow2_layer *l;
	size_t bytes, layers = 0;
	int rc = 0;

	for (l = q->top->backing; l != NULL; l = l->backing)
		layers++;
	for (l = q->top; l != NULL && rc == 0; l = l->backing) {
		bytes = l == q->top ? L2_CACHE : BACKING_CACHE / layers;
		if (bytes < MIN_BACKING)
			bytes = MIN_BACKING;
		if (!l->raw)
			rc = qcow2_slices_open(&l->slices, &l->h, bytes);
	}
	if (rc == 0)
		qcow2_set_busy(q);
	return rc;
}

/* One bit for each 4 KiB of the L1 table, whose size may have changed. */
static int
qcow2_alloc_l1_dirty(struct qcow2 *q)
{
	size_t blocks = (q->top->h.l1_entries * sizeof(uint64_t) + 4095) /
	    4096;
	size_t bytes = (blocks / 64 + 1) * sizeof(uint64_t);

	if (bytes == q->l1_dirty_bytes)
		return 0;
	free(q->l1_dirty);
	q->l1_dirty = calloc(1, bytes);
	q->l1_dirty_bytes = q->l1_dirty != NULL ? bytes : 0;
	return q->l1_dirty != NULL ? 0 : -ENOMEM;
}

static int
qcow2_alloc(struct qcow2 *q)
{
	q->zero_bytes = q->cluster_size / 16;
	if (q->zero_bytes < MIN_ZEROES)
		q->zero_bytes = MIN_ZEROES;
	q->zeroes = aligned_alloc(4096, q->zero_bytes);
	if (q->zeroes == NULL || qcow2_alloc_l1_dirty(q) < 0)
		return -ENOMEM;
	memset(q->zeroes, 0, q->zero_bytes);
	return qcow2_open_caches(q);
}

static struct qcow2 *
qcow2_new(void)
{
	struct qcow2 *q = calloc(1, sizeof(*q));

	if (q == NULL)
		return NULL;
	pthread_mutex_init(&q->lock, NULL);
	LIST_INIT(&q->allocs);
	LIST_INIT(&q->free_allocs);
	STAILQ_INIT(&q->parked);
	STAILQ_INIT(&q->unpack);
	return q;
}

static int
qcow2_open(const struct image_options *opt, struct image **img,
    char why[WHY_MAX])
{
	struct qcow2 *q = qcow2_new();
	int rc = -ENOMEM;

	if (q == NULL)
		goto err_memory;
	rc = qcow2_chain_open(opt, &q->top, why);
	if (rc < 0)
		goto err;
	qcow2_set_geometry(q, opt);
	if (q->img.size == 0) {
		why_set(why, "open %.200s: its virtual size is 0; make it "
		    "larger with 'qemu-img resize'", opt->path);
		rc = -ENODATA;
		goto err;
	}
	rc = qcow2_check_blocks(q, why);
	if (rc == 0)
		rc = qcow2_alloc(q);
	if (rc == 0)
		rc = engine_prepare(&q->threads, opt, why);
	if (rc == 0)
		rc = qcow2_meta_open(q, why);
	if (rc == 0) {
		*img = &q->img;
		return 0;
	}

err_memory:
	if (why[0] == '\0')
		why_set(why, "open %.200s: %s", opt->path, strerror(-rc));
err:
	qcow2_free(q);
	return rc;
}

static void
qcow2_close(struct image *img)
{
	qcow2_free(container_of(img, struct qcow2, img));
}

static int
qcow2_activate(struct image *img, char why[WHY_MAX])
{
	struct qcow2 *q = container_of(img, struct qcow2, img);
	struct qcow2_layer *l;
	char unlock_why[WHY_MAX];
	int rc;

	rc = qcow2_chain_lock(q->top, why);
	if (rc < 0)
		return rc;
	for (l = q->top->backing; l != NULL; l = l->backing)
		if (!l->raw)
			qcow2_slices_clear(l->slices);
	img->size = qcow2_virtual_size(&q->top->h);
	qcow2_set_busy(q);
	rc = qcow2_check_blocks(q, why);
	if (rc < 0)
		goto err;
	rc = qcow2_alloc_l1_dirty(q);
	if (rc < 0)
		why_set(why, "open %.200s: out of memory", q->top->file.path);
	else
		rc = qcow2_meta_activate(q, why);
	if (rc == 0)
		return 0;
err:
	qcow2_chain_unlock(q->top, unlock_why);
	return rc;
}

static int
qcow2_deactivate(struct image *img, char why[WHY_MAX])
{
	struct qcow2 *q = container_of(img, struct qcow2, img);
	char unlock_why[WHY_MAX];
	int rc, rc2;

	rc = qcow2_meta_deactivate(q, why);
	rc2 = qcow2_chain_unlock(q->top, unlock_why);
	if (rc2 < 0 && rc == 0) {
		rc = rc2;
		why_set(why, "%s", unlock_why);
	}
	return rc;
}

/* Both look at files, not at what this process may have changed. */
static int
qcow2_show_info(struct image *img,
    struct image_layer layers[IMAGE_LAYERS_MAX], char why[WHY_MAX])
{
	return qcow2_info(container_of(img, struct qcow2, img)->top, layers,
	    why);
}

static int
qcow2_show_check(struct image *img, struct image_check *c, char why[WHY_MAX])
{
	struct qcow2 *q = container_of(img, struct qcow2, img);
	char unlock_why[WHY_MAX];
	int rc, rc2;

	rc = qcow2_chain_lock(q->top, why);
	if (rc < 0)
		return rc;
	rc = qcow2_check(q->top, c, why);
	rc2 = qcow2_chain_unlock(q->top, unlock_why);
	if (rc2 < 0 && rc == 0) {
		rc = rc2;
		why_set(why, "%s", unlock_why);
	}
	return rc;
}

const struct driver driver_qcow2 = {
	.name          = "qcow2",
	.open          = qcow2_open,
	.close         = qcow2_close,
	.activate      = qcow2_activate,
	.deactivate    = qcow2_deactivate,
	.resize        = qcow2_resize,
	.channel_open  = qcow2_channel_open,
	.channel_close = qcow2_channel_close,
	.submit        = qcow2_submit,
	.reap          = qcow2_reap,
	.info          = qcow2_show_info,
	.check         = qcow2_show_check,
};
