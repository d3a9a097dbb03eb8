/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * driver: the table of drivers, and the entry points that check both sides.
 *
 * What a user or a guest may get wrong was answered before it came here, so
 * a bad call is a bug of ours and is asserted; so is a driver that does not
 * keep its part of the contract.
 */
#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "drivers/driver.h"
#include "drivers/sector.h"

static const struct driver *const drivers[] = {
	&driver_raw,
	&driver_qcow2,
	&driver_null,
	&driver_fault,
};

#define NR_DRIVERS (sizeof(drivers) / sizeof(drivers[0]))

const struct driver *
driver_find(const char *name)
{
	size_t i;

	for (i = 0; i < NR_DRIVERS; i++)
		if (strcmp(drivers[i]->name, name) == 0)
			return drivers[i];
	return NULL;
}

void
why_set(char why[WHY_MAX], const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	if (vsnprintf(why, WHY_MAX, fmt, ap) < 0)
		why[0] = '\0';
	va_end(ap);
}

static bool
power_of_2(uint32_t n)
{
	return n != 0 && (n & (n - 1)) == 0;
}

/*
 * What each fallible call of a driver must have left behind.  A path may
 * hold any byte, and a message is one line of a log: make it one.
 */
static int
check_result(int rc, char why[WHY_MAX])
{
	char *p;

	assert(rc <= 0);
	if (rc == 0)
		return 0;

	assert(why[0] != '\0' && memchr(why, '\0', WHY_MAX) != NULL);
	for (p = why; *p != '\0'; p++)
		if ((unsigned char)*p < ' ' || *p == 0x7f)
			*p = '?';
	return rc;
}

static int
driver_unknown(const char *format, char why[WHY_MAX])
{
	char names[128] = "";
	size_t i, used = 0;

	for (i = 0; i < NR_DRIVERS && used < sizeof(names); i++)
		used += (size_t)snprintf(names + used, sizeof(names) - used,
		    "%s%s", i == 0 ? "" : ", ", drivers[i]->name);
	why_set(why, "image format '%.64s' is not known; the disk spec must "
	    "begin with one of: %s", format, names);
	return check_result(-EINVAL, why);
}

/* The geometry that every other part of the program relies on. */
static void
check_geometry(const struct image *img)
{
	assert(img->size <= INT64_MAX &&
	    (img->size > 0 || img->drv == &driver_empty));
	assert(power_of_2(img->block_size) && img->block_size >= 512);
	assert(power_of_2(img->physical_block_size));
	assert(img->buffer_alignment == 0 ||
	    power_of_2(img->buffer_alignment));
	assert(img->physical_block_size >= img->block_size);
	assert(img->size % img->block_size == 0);
	assert(img->discard_granularity == 0 ||
	    (power_of_2(img->discard_granularity) &&
	    img->discard_granularity >= img->block_size &&
	    img->discard_alignment % img->block_size == 0));
}

/* Whatever blocks it has, who opens it gets sectors of 512 bytes. */
static int
image_give_sectors(struct image **img, char why[WHY_MAX])
{
	struct image *below = *img;
	int rc;

	if (!sector_needed(below))
		return 0;
	rc = check_result(sector_wrap(below, img, why), why);
	if (rc < 0) {
		image_close(below);
		*img = NULL;
	}
	return rc;
}

int
image_open(const struct image_options *opt, struct image **img,
    char why[WHY_MAX])
{
	const struct driver *drv;
	int rc;

	assert(opt->format != NULL && opt->path != NULL);
	*img = NULL;
	why[0] = '\0';

	drv = opt->empty ? &driver_empty : driver_find(opt->format);
	if (drv == NULL)
		return driver_unknown(opt->format, why);
	rc = check_result(drv->open(opt, img, why), why);
	if (rc < 0) {
		assert(*img == NULL);
		return rc;
	}

	(*img)->drv = drv;
	(*img)->active = false;
	(*img)->nr_channels = 0;
	assert((*img)->readonly == opt->readonly);
	check_geometry(*img);
	return image_give_sectors(img, why);
}

void
image_close(struct image *img)
{
	if (img == NULL)
		return;
	assert(!img->active);
	assert(__atomic_load_n(&img->nr_channels, __ATOMIC_ACQUIRE) == 0);
	img->drv->close(img);
}

int
image_activate(struct image *img, char why[WHY_MAX])
{
	int rc;

	assert(!img->active);
	why[0] = '\0';
	rc = check_result(img->drv->activate(img, why), why);
	if (rc < 0)
		return rc;
	check_geometry(img);
	img->active = true;
	return 0;
}

int
image_deactivate(struct image *img, char why[WHY_MAX])
{
	assert(img->active);
	why[0] = '\0';
	img->active = false;
	return check_result(img->drv->deactivate(img, why), why);
}

int
channel_open(struct image *img, unsigned depth, struct channel **ch,
    char why[WHY_MAX])
{
	int rc;

	assert(depth > 0);
	*ch = NULL;
	why[0] = '\0';
	rc = check_result(img->drv->channel_open(img, depth, ch, why), why);
	if (rc < 0) {
		assert(*ch == NULL);
		return rc;
	}
	assert((*ch)->img == img && (*ch)->event_fd >= -1);
	__atomic_fetch_add(&img->nr_channels, 1, __ATOMIC_RELAXED);
	return 0;
}

void
channel_close(struct channel *ch)
{
	struct image *img;

	if (ch == NULL)
		return;
	img = ch->img;
	assert(__atomic_load_n(&img->nr_channels, __ATOMIC_RELAXED) > 0);
	img->drv->channel_close(ch);

	/* Released: whoever then sees 0 may free what the channel used. */
	__atomic_fetch_sub(&img->nr_channels, 1, __ATOMIC_RELEASE);
}

static void
check_range(const struct image *img, const struct io *io)
{
	assert(io->length > 0 && io->length % img->block_size == 0);
	assert(io->offset % img->block_size == 0);
	assert(io->length <= img->size);
	assert(io->offset <= img->size - io->length);
}

static void
check_vector(const struct image *img, const struct io *io)
{
	uintptr_t places = 511;
	uint64_t sum = 0;
	int i;

	if (img->buffer_alignment > 512)
		places = img->buffer_alignment - 1;
	for (i = 0; i < io->iovcnt; i++) {
		assert(io->iov[i].iov_len > 0);
		assert(((uintptr_t)io->iov[i].iov_base & places) == 0);
		assert((io->iov[i].iov_len & (img->block_size - 1)) == 0);
		sum += io->iov[i].iov_len;
	}
	assert(sum == io->length);
}

static void
check_granules(const struct image *img, const struct io *io)
{
	assert(img->discard_granularity != 0);
	assert(io->offset >= img->discard_alignment);
	assert((io->offset - img->discard_alignment) %
	    img->discard_granularity == 0);
	assert(io->length % img->discard_granularity == 0);
}

void
channel_submit(struct channel *ch, struct io *io)
{
	const struct image *img = ch->img;

	assert(img->active);
	assert(io->done != NULL);
	if (io->op == IO_FLUSH) {
		assert(io->length == 0);
	} else if (io->op == IO_DISCARD) {
		assert(!img->readonly);
		check_range(img, io);
		check_granules(img, io);
	} else {
		assert(io->op == IO_READ || io->op == IO_WRITE);
		assert(io->op == IO_READ || !img->readonly);
		check_range(img, io);
		check_vector(img, io);
	}
	img->drv->submit(ch, io);
}

unsigned
channel_reap(struct channel *ch)
{
	return ch->img->drv->reap(ch);
}

static int
driver_lacks(const struct image *img, const char *what, char why[WHY_MAX])
{
	why_set(why, "%s: the format '%s' has nothing of that kind", what,
	    img->drv->name);
	return check_result(-EOPNOTSUPP, why);
}

int
image_resize(struct image *img, uint64_t size, char why[WHY_MAX])
{
	uint64_t was = img->size;
	int rc;

	assert(img->active);
	why[0] = '\0';
	if (img->drv->resize == NULL)
		return driver_lacks(img, "resize", why);
	if (size % img->block_size != 0 || size > INT64_MAX) {
		why_set(why, "resize to %llu bytes: give a multiple of %u "
		    "below 8 EiB", (unsigned long long)size, img->block_size);
		return check_result(-EINVAL, why);
	}
	if (size != 0 && size < was) {
		why_set(why, "resize to %llu bytes: it has %llu, and no disk "
		    "is made smaller, for what lies behind would be lost",
		    (unsigned long long)size, (unsigned long long)was);
		return check_result(-EINVAL, why);
	}
	rc = check_result(img->drv->resize(img, size, why), why);
	assert(rc == 0 ? img->size >= was : img->size == was);
	check_geometry(img);
	return rc;
}

int
image_info(struct image *img, struct image_layer layers[IMAGE_LAYERS_MAX],
    char why[WHY_MAX])
{
	int rc;

	why[0] = '\0';
	if (img->drv->info == NULL)
		return driver_lacks(img, "info", why);
	memset(layers, 0, IMAGE_LAYERS_MAX * sizeof(*layers));
	rc = img->drv->info(img, layers, why);
	if (rc < 0)
		return check_result(rc, why);
	assert(rc > 0 && rc <= IMAGE_LAYERS_MAX);
	return rc;
}

int
image_check(struct image *img, struct image_check *c, char why[WHY_MAX])
{
	assert(!img->active && img->readonly);
	why[0] = '\0';
	if (img->drv->check == NULL)
		return driver_lacks(img, "check", why);
	return check_result(img->drv->check(img, c, why), why);
}
