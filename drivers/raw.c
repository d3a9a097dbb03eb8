/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * raw: a regular file or a block device, byte for byte.
 *
 * All I/O is direct (O_DIRECT) and goes through the aio engine.  The file is
 * opened once, read-only when the disk is, and all channels share that
 * descriptor, so a flush on one channel covers the writes of all.
 *
 * Only storage with 512-byte logical sectors is served: guests may ask for
 * any 512-byte sector, and direct I/O cannot do less than a sector.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "drivers/aio.h"
#include "drivers/lock.h"

#define SECTOR       512u
#define MAX_PHYSICAL 4096u

struct raw_image {
	struct image img;		/* must be first */
	char        *path;
	int          fd;
	bool         device;		/* a block device, else a file */
};

struct raw_channel {
	struct channel ch;		/* must be first */
	struct aio    *aio;
};

/*
 * Open.
 */

/* Only what can hold a disk; anything else gets told what it is. */
static int
raw_check_type(const char *path, mode_t mode, char why[WHY_MAX])
{
	if (S_ISREG(mode) || S_ISBLK(mode))
		return 0;
	if (S_ISDIR(mode)) {
		why_set(why, "open %.200s: it is a directory; name the image "
		    "file inside it", path);
		return -EISDIR;
	}
	why_set(why, "open %.200s: it is a %s; only a regular file or a block "
	    "device can hold a disk, name one of these", path,
	    S_ISFIFO(mode) ? "FIFO" : S_ISSOCK(mode) ? "socket" :
	    S_ISCHR(mode) ? "character device" : "file of an unknown type");
	return -ENOTBLK;
}

static void
raw_explain_open(const struct image_options *opt, int error, char why[WHY_MAX])
{
	const char *what = strerror(error), *remedy;

	switch (error) {
	case ENOENT:
	case ENOTDIR:
		remedy = "check the path, or create the image first";
		break;
	case EACCES:
	case EPERM:
		remedy = opt->readonly ?
		    "give the user that the daemon runs as access to the file "
		    "and to every folder above it" :
		    "give the user that the daemon runs as access to the file "
		    "and to every folder above it, or attach it read-only";
		break;
	case EROFS:
		remedy = "mount the file system for writing, or attach the "
		    "disk read-only";
		break;
	case EINVAL:
		what = "no direct I/O (O_DIRECT)";
		remedy = "its file system cannot do that, and cache=none and "
		    "cache=directsync need it; move the image to one that "
		    "can, such as ext4 or XFS";
		break;
	case EMFILE:
	case ENFILE:
		remedy = "raise the limit of open files (ulimit -n, "
		    "LimitNOFILE= of the unit)";
		break;
	case EBUSY:
	case ETXTBSY:
		remedy = "something else has it for itself: unmount it, or "
		    "stop what runs from it";
		break;
	case ENXIO:
	case ENODEV:
	case ENOMEDIUM:
		remedy = "no device is behind this node; activate the volume "
		    "or insert the medium";
		break;
	default:
		remedy = "see the kernel log (dmesg) for what is wrong with "
		    "its storage";
	}
	why_set(why, "open %.200s%s: %s; %s", opt->path,
	    opt->readonly ? " read-only" : "", what, remedy);
}

/*
 * The type is checked before, because opening some devices does something,
 * and after, because the name may by then stand for something else.  With
 * O_NONBLOCK the open cannot hang on a FIFO or on a drive without a medium.
 */
static int
raw_open_file(struct raw_image *r, const struct image_options *opt,
    struct stat *st, char why[WHY_MAX])
{
	int flags = O_DIRECT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
	int rc;

	flags |= opt->readonly ? O_RDONLY : O_RDWR;
	if (opt->cache == CACHE_DIRECTSYNC)
		flags |= O_DSYNC;

	if (stat(opt->path, st) == -1)
		goto err_errno;
	rc = raw_check_type(opt->path, st->st_mode, why);
	if (rc < 0)
		return rc;
	r->fd = open(opt->path, flags);
	if (r->fd == -1 || fstat(r->fd, st) == -1)
		goto err_errno;
	rc = raw_check_type(opt->path, st->st_mode, why);
	if (rc < 0)
		return rc;
	if (fcntl(r->fd, F_SETFL, flags & ~O_NONBLOCK) == -1)
		goto err_errno;

	r->device = S_ISBLK(st->st_mode);
	r->img.readonly = opt->readonly;
	r->img.dev = st->st_dev;
	r->img.ino = st->st_ino;
	return 0;

err_errno:
	rc = -errno;
	raw_explain_open(opt, -rc, why);
	return rc;
}

/* open(2) lets a device be opened for writing that refuses every write. */
static int
raw_check_writable(struct raw_image *r, char why[WHY_MAX])
{
	int readonly = 0, rc;

	if (!r->device || r->img.readonly)
		return 0;
	if (ioctl(r->fd, BLKROGET, &readonly) == -1) {
		rc = -errno;
		why_set(why, "ask whether %.200s is read-only: %s; it must be "
		    "a block device of this host", r->path, strerror(-rc));
		return rc;
	}
	if (readonly) {
		why_set(why, "open %.200s: the device is set to read-only; "
		    "run 'blockdev --setrw' on it, or attach the disk "
		    "read-only", r->path);
		return -EROFS;
	}
	return 0;
}

static int
raw_read_size(struct raw_image *r, char why[WHY_MAX])
{
	uint64_t size = 0;
	struct stat st;
	int rc;

	if (r->device)
		rc = ioctl(r->fd, BLKGETSIZE64, &size);
	else
		rc = fstat(r->fd, &st);
	if (rc == -1) {
		rc = -errno;
		why_set(why, "read the size of %.200s: %s; see the kernel log "
		    "(dmesg) for what is wrong with its storage", r->path,
		    strerror(-rc));
		return rc;
	}
	if (!r->device)
		size = (uint64_t)st.st_size;

	if (size == 0) {
		why_set(why, "open %.200s: it is empty; %s", r->path,
		    r->device ? "activate the volume or insert the medium" :
		    "give it its size, for instance with 'truncate -s 10G'");
		return -ENODATA;
	}
	/* Its last bytes could not be had by the guest; better say so. */
	if (size % SECTOR != 0) {
		why_set(why, "open %.200s: its %llu bytes are not a multiple "
		    "of 512; make it longer with 'truncate -s %%512', if it is "
		    "an image at all", r->path, (unsigned long long)size);
		return -EINVAL;
	}
	r->img.size = size;
	return 0;
}

/*
 * Does the file take direct I/O of one sector?  For kernels and file systems
 * that do not tell: EINVAL is what they answer to I/O that is not aligned.
 * Any other error is not about alignment and will be met by the I/O.
 */
static int
raw_probe_alignment(struct raw_image *r, uint32_t *offset, uint32_t *memory)
{
	void *buf;
	ssize_t n;
	int error;

	error = posix_memalign(&buf, MAX_PHYSICAL, 2 * SECTOR);
	if (error != 0)
		return -error;
	n = pread(r->fd, (char *)buf + SECTOR, SECTOR, 0);
	*offset = *memory = n == -1 && errno == EINVAL ? MAX_PHYSICAL : SECTOR;
	free(buf);
	return 0;
}

/* What direct I/O must be a multiple of, in bytes; 0: there is none. */
static int
raw_read_alignment(struct raw_image *r, uint32_t *offset, uint32_t *memory)
{
	unsigned sector = 0;
#ifdef STATX_DIOALIGN
	struct statx stx;

	/* Linux 6.1 and newer, and not every file system. */
	if (statx(r->fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &stx) == 0 &&
	    (stx.stx_mask & STATX_DIOALIGN) != 0) {
		*offset = stx.stx_dio_offset_align;
		*memory = stx.stx_dio_mem_align;
		return 0;
	}
#endif
	if (!r->device)
		return raw_probe_alignment(r, offset, memory);
	if (ioctl(r->fd, BLKSSZGET, &sector) == -1)
		return -errno;
	*offset = sector;
	*memory = SECTOR;
	return 0;
}

/* A hint for the guest: what the storage likes best, within reason. */
static uint32_t
raw_physical_block_size(const struct raw_image *r, const struct stat *st)
{
	unsigned physical = 0;
	uint32_t size = SECTOR;

	if (!r->device)
		physical = (unsigned)st->st_blksize;
	else if (ioctl(r->fd, BLKPBSZGET, &physical) == -1)
		physical = SECTOR;
	while (size < MAX_PHYSICAL && size * 2 <= physical)
		size *= 2;
	return size;
}

static int
raw_read_block_sizes(struct raw_image *r, const struct stat *st,
    const struct image_options *opt, char why[WHY_MAX])
{
	uint32_t offset = 0, memory = 0;
	int rc;

	rc = raw_read_alignment(r, &offset, &memory);
	if (rc < 0) {
		why_set(why, "read the sector size of %.200s: %s; see the "
		    "kernel log (dmesg)", r->path, strerror(-rc));
		return rc;
	}
	if (offset == 0 || memory == 0) {
		raw_explain_open(opt, EINVAL, why);
		return -EINVAL;
	}
	if (offset > SECTOR || memory > SECTOR) {
		why_set(why, "open %.200s: its storage has sectors of %u "
		    "bytes, and only storage with 512-byte logical sectors is "
		    "served yet; move the image to such storage", r->path,
		    offset > memory ? offset : memory);
		return -EOPNOTSUPP;
	}
	r->img.block_size = SECTOR;
	r->img.physical_block_size = raw_physical_block_size(r, st);
	return 0;
}

/*
 * Discard: a hole in a file, BLKDISCARD on a device.
 */

static int
discard_file(int fd, uint64_t offset, uint64_t length)
{
	return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
	    (off_t)offset, (off_t)length) == -1 ? -errno : 0;
}

static int
discard_device(int fd, uint64_t offset, uint64_t length)
{
	uint64_t range[2] = { offset, length };

	return ioctl(fd, BLKDISCARD, range) == -1 ? -errno : 0;
}

/* One number of /sys/dev/block/MAJOR:MINOR/queue/; 0 when there is none. */
static uint64_t
raw_queue_number(dev_t rdev, const char *name)
{
	unsigned long long n = 0;
	const char *dir[] = { "", "../" }; /* a partition's is its disk's */
	char path[96];
	FILE *f;
	int i;

	for (i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/%squeue/%s",
		    major(rdev), minor(rdev), dir[i], name);
		f = fopen(path, "re");
		if (f == NULL)
			continue;
		if (fscanf(f, "%llu", &n) != 1)
			n = 0;
		fclose(f);
		break;
	}
	return n;
}

/*
 * A device says whether it discards.  Of a file system only trying tells, and
 * open must not write: it is offered, and answered with -EOPNOTSUPP there.
 */
static void
raw_read_discard(struct raw_image *r, const struct stat *st)
{
	uint64_t granule = (uint64_t)st->st_blksize;

	if (r->device)
		granule = raw_queue_number(st->st_rdev,
		    "discard_max_bytes") == 0 ? 0 :
		    raw_queue_number(st->st_rdev, "discard_granularity");
	if (granule < SECTOR || granule > UINT32_MAX / 2 ||
	    (granule & (granule - 1)) != 0)
		return;
	r->img.discard_granularity = (uint32_t)granule;
}

static void
raw_free(struct raw_image *r)
{
	if (r == NULL)
		return;
	if (r->fd != -1)
		close(r->fd);
	free(r->path);
	free(r);
}

static int
raw_open(const struct image_options *opt, struct image **img,
    char why[WHY_MAX])
{
	struct raw_image *r;
	struct stat st;
	int rc;

	r = calloc(1, sizeof(*r));
	if (r != NULL) {
		r->fd = -1;
		r->path = strdup(opt->path);
	}
	if (r == NULL || r->path == NULL) {
		why_set(why, "open %.200s: out of memory", opt->path);
		rc = -ENOMEM;
		goto err_free;
	}

	rc = raw_open_file(r, opt, &st, why);
	if (rc == 0)
		rc = raw_check_writable(r, why);
	if (rc == 0)
		rc = raw_read_size(r, why);
	if (rc == 0)
		rc = raw_read_block_sizes(r, &st, opt, why);
	if (rc < 0)
		goto err_free;
	if (opt->discard && !opt->readonly)
		raw_read_discard(r, &st);
	*img = &r->img;
	return 0;

err_free:
	raw_free(r);
	return rc;
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
	rc = lock_take(r->fd, hold, PERM_WRITE | PERM_RESIZE, r->path, why);
	if (rc < 0)
		return rc;

	/* Before the lock was ours somebody may have resized it. */
	rc = raw_read_size(r, why);
	if (rc < 0)
		lock_release(r->fd, r->path, unlock_why);
	return rc;
}

static int
raw_deactivate(struct image *img, char why[WHY_MAX])
{
	struct raw_image *r = container_of(img, struct raw_image, img);
	char unlock_why[WHY_MAX];
	int rc = 0, rc2;

	if (!img->readonly && fdatasync(r->fd) == -1) {
		rc = -errno;
		why_set(why, "flush %.200s: %s; what the guest wrote last may "
		    "be lost, see the kernel log (dmesg) and check the image",
		    r->path, strerror(-rc));
	}
	rc2 = lock_release(r->fd, r->path, unlock_why);
	if (rc2 < 0 && rc == 0) {
		rc = rc2;
		why_set(why, "%s", unlock_why);
	}
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
	struct raw_channel *c;
	int rc;

	c = calloc(1, sizeof(*c));
	if (c == NULL) {
		why_set(why, "open a channel of %.200s: out of memory",
		    r->path);
		return -ENOMEM;
	}
	c->ch.img = img;
	rc = aio_open(&c->aio, &c->ch, depth, r->fd,
	    img->discard_granularity == 0 ? NULL :
	    r->device ? discard_device : discard_file, r->path, why);
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

	aio_close(c->aio);
	free(c);
}

static void
raw_submit(struct channel *ch, struct io *io)
{
	struct raw_channel *c = container_of(ch, struct raw_channel, ch);
	struct raw_image *r = container_of(ch->img, struct raw_image, img);

	aio_submit(c->aio, r->fd, io);
}

static unsigned
raw_reap(struct channel *ch)
{
	return aio_reap(container_of(ch, struct raw_channel, ch)->aio);
}

const struct driver driver_raw = {
	.name          = "raw",
	.open          = raw_open,
	.close         = raw_close,
	.activate      = raw_activate,
	.deactivate    = raw_deactivate,
	.channel_open  = raw_channel_open,
	.channel_close = raw_channel_close,
	.submit        = raw_submit,
	.reap          = raw_reap,
};
