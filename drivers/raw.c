/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * raw: a regular file or a block device, byte for byte.
 *
 * The file is opened once, read-only when the disk is, and all channels share
 * that descriptor, so a flush on one channel covers the writes of all:
 * fdatasync is about the file, whoever wrote, and a write that was done was
 * over for the kernel before anybody could ask for a flush because of it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/file.h"
#include "drivers/lock.h"
#include "drivers/threads.h"

struct raw_image {
	struct image img;		/* must be first */
	struct file  file;
	struct threads *threads;	/* NULL: io=native */
};

struct raw_channel {
	struct channel ch;		/* must be first */
	struct engine *engine;
};

/*
 * Open.
 */

static int
raw_read_size(struct raw_image *r, char why[WHY_MAX])
{
	const struct file *f = &r->file;
	int rc;

	rc = file_read_size(&r->file, why);
	if (rc < 0)
		return rc;
	if (f->size == 0) {
		why_set(why, "open %.200s: it is empty; %s", f->path,
		    f->device ? "activate the volume or insert the medium" :
		    "give it its size, for instance with 'truncate -s 10G'");
		return -ENODATA;
	}
	/* Its last bytes could not be had by the guest; better say so. */
	if (f->size % f->block_size != 0) {
		why_set(why, "open %.200s: its %llu bytes are not a multiple "
		    "of %u%s; make it longer with 'truncate -s %%%u', if it "
		    "is an image at all", f->path,
		    (unsigned long long)f->size, f->block_size,
		    f->block_size > SECTOR ? ", the sectors of its storage" :
		    "", f->block_size);
		return -EINVAL;
	}
	r->img.size = f->size;
	return 0;
}

static void
raw_free(struct raw_image *r)
{
	threads_close(r->threads);
	file_close(&r->file);
	free(r);
}

static int
raw_open(const struct image_options *opt, struct image **img,
    char why[WHY_MAX])
{
	struct raw_image *r;
	int rc;

	r = calloc(1, sizeof(*r));
	if (r == NULL) {
		why_set(why, "open %.200s: out of memory", opt->path);
		return -ENOMEM;
	}
	rc = file_open(&r->file, opt->path, opt->readonly, opt->cache, why);
	r->file.keep_cache = opt->resumed;
	if (rc == 0)
		rc = raw_read_size(r, why);
	if (rc == 0)
		rc = engine_prepare(&r->threads, opt, why);
	if (rc < 0) {
		raw_free(r);
		return rc;
	}
	r->img.readonly = opt->readonly;
	r->img.block_size = r->file.block_size;
	r->img.buffer_alignment = r->file.buffer_alignment;
	r->img.physical_block_size = r->file.physical_block_size;
	if (opt->discard)
		r->img.discard_granularity = r->file.discard_granularity;
	r->img.dev = r->file.dev;
	r->img.ino = r->file.ino;
	*img = &r->img;
	return 0;
}

static void
raw_close(struct image *img)
{
	raw_free(container_of(img, struct raw_image, img));
}

/*
 * Activate.
 */

/* As QEMU does for a guest's disk: no second writer, no resize below us. */
static int
raw_activate(struct image *img, char why[WHY_MAX])
{
	struct raw_image *r = container_of(img, struct raw_image, img);
	unsigned hold = PERM_CONSISTENT_READ;
	char unlock_why[WHY_MAX];
	int rc;

	if (!img->readonly)
		hold |= PERM_WRITE;
	rc = lock_take(r->file.fd, hold, PERM_WRITE | PERM_RESIZE,
	    r->file.path, why);
	if (rc < 0)
		return rc;

	r->file.sync_error = 0;
	threads_forget(r->threads);
	file_drop_cache(&r->file);
	/* Before the lock was ours somebody may have resized it. */
	rc = raw_read_size(r, why);
	if (rc < 0)
		lock_release(r->file.fd, r->file.path, unlock_why);
	return rc;
}

static int
raw_deactivate(struct image *img, char why[WHY_MAX])
{
	struct raw_image *r = container_of(img, struct raw_image, img);
	char unlock_why[WHY_MAX];
	int rc = 0, rc2;

	if (!img->readonly)
		rc = file_sync(&r->file);
	if (rc < 0)
		why_set(why, "flush %.200s: %s; what the guest wrote last may "
		    "be lost, see the kernel log (dmesg) and check the image",
		    r->file.path, strerror(-rc));
	rc2 = lock_release(r->file.fd, r->file.path, unlock_why);
	if (rc2 < 0 && rc == 0) {
		rc = rc2;
		why_set(why, "%s", unlock_why);
	}
	return rc;
}

/*
 * Resize.  The new size is as durable as what the guest writes because of it:
 * its next flush, or durable write, takes the size of the file along.  A sync
 * here could swallow an error that the guest's flush has to hear of.
 */

static int
raw_measure(struct raw_image *r, char why[WHY_MAX])
{
	const struct file *f = &r->file;
	int rc;

	rc = file_read_size(&r->file, why);
	if (rc < 0)
		return rc;
	if (f->size < r->img.size) {
		why_set(why, "resize %.200s: it has %llu bytes, fewer than the "
		    "%llu of the disk; the rest is lost, make it as long again "
		    "before the guest gets there", f->path,
		    (unsigned long long)f->size,
		    (unsigned long long)r->img.size);
		return -EINVAL;
	}
	if (f->size % f->block_size != 0) {
		why_set(why, "resize %.200s: its %llu bytes are not a multiple "
		    "of %u; make it longer with 'truncate -s %%%u'", f->path,
		    (unsigned long long)f->size, f->block_size, f->block_size);
		return -EINVAL;
	}
	return 0;
}

static int
raw_lengthen(struct raw_image *r, uint64_t size, char why[WHY_MAX])
{
	int rc;

	if (r->file.device) {
		why_set(why, "resize %.200s: it is a device, whose size is not "
		    "ours to set: make it larger (lvextend), then resize the "
		    "disk without naming a size", r->file.path);
		return -EINVAL;
	}
	if (r->img.readonly) {
		why_set(why, "resize %.200s: the disk is read-only; make the "
		    "file longer yourself, then resize the disk without "
		    "naming a size", r->file.path);
		return -EROFS;
	}
	if (size < r->file.size) {
		why_set(why, "resize %.200s to %llu bytes: it has %llu "
		    "already; resize the disk without naming a size, to have "
		    "all of them", r->file.path, (unsigned long long)size,
		    (unsigned long long)r->file.size);
		return -EINVAL;
	}
	rc = file_lengthen(&r->file, size);
	if (rc < 0)
		why_set(why, "resize %.200s to %llu bytes: %s; its file system "
		    "has no room for so long a file", r->file.path,
		    (unsigned long long)size, strerror(-rc));
	return rc;
}

static int
raw_resize(struct image *img, uint64_t size, char why[WHY_MAX])
{
	struct raw_image *r = container_of(img, struct raw_image, img);
	int rc;

	rc = raw_measure(r, why);
	if (rc == 0 && size != 0 && size != r->file.size)
		rc = raw_lengthen(r, size, why);
	if (rc == 0)
		img->size = r->file.size;
	return rc;
}

/*
 * Channels.
 */

static int
raw_channel_open(struct image *img, unsigned depth, struct channel **ch,
    char why[WHY_MAX])
{
	struct raw_image *r = container_of(img, struct raw_image, img);
	const struct engine_config config = {
		.threads = r->threads, .depth = depth, .fd = r->file.fd,
		.path = r->file.path,
		.no_flush = r->file.cache == CACHE_UNSAFE,
		.discard = img->discard_granularity == 0 ? NULL :
		    file_engine_discard(&r->file),
	};
	struct raw_channel *c;
	int rc;

	c = calloc(1, sizeof(*c));
	if (c == NULL) {
		why_set(why, "open a channel of %.200s: out of memory",
		    r->file.path);
		return -ENOMEM;
	}
	c->ch.img = img;
	rc = engine_open(&c->engine, &c->ch, &config, why);
	if (rc < 0) {
		free(c);
		return rc;
	}
	*ch = &c->ch;
	return 0;
}

static void
raw_channel_close(struct channel *ch)
{
	struct raw_channel *c = container_of(ch, struct raw_channel, ch);

	engine_close(c->engine);
	free(c);
}

static void
raw_submit(struct channel *ch, struct io *io)
{
	struct raw_channel *c = container_of(ch, struct raw_channel, ch);
	struct raw_image *r = container_of(ch->img, struct raw_image, img);

	engine_submit(c->engine, r->file.fd, io);
}

static unsigned
raw_reap(struct channel *ch)
{
	return engine_reap(container_of(ch, struct raw_channel, ch)->engine);
}

static int
raw_info(struct image *img, struct image_layer layers[IMAGE_LAYERS_MAX],
    char why[WHY_MAX])
{
	struct raw_image *r = container_of(img, struct raw_image, img);
	int rc;

	rc = file_describe(&r->file, &layers[0], why);
	if (rc < 0)
		return rc;
	layers[0].format = driver_raw.name;
	layers[0].virtual_size = img->size;
	return 1;
}

const struct driver driver_raw = {
	.name          = "raw",
	.open          = raw_open,
	.close         = raw_close,
	.activate      = raw_activate,
	.deactivate    = raw_deactivate,
	.resize        = raw_resize,
	.channel_open  = raw_channel_open,
	.channel_close = raw_channel_close,
	.submit        = raw_submit,
	.reap          = raw_reap,
	.info          = raw_info,
};
