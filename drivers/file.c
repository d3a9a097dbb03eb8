/* SPDX-License-Identifier: GPL-2.0-or-later */
/* file: see file.h. */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "drivers/file.h"

#define MAX_BLOCK 4096u

/*
 * Open.
 */

/* Only what can hold a disk; anything else gets told what it is. */
static int
file_check_type(const char *path, mode_t mode, char why[WHY_MAX])
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
file_explain_open(const char *path, bool readonly, int error,
    char why[WHY_MAX])
{
	const char *what = strerror(error), *remedy;

	switch (error) {
	case ENOENT:
	case ENOTDIR:
		remedy = "check the path, or create the image first";
		break;
	case EACCES:
	case EPERM:
		remedy = readonly ?
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
		    "can, such as ext4 or XFS, or use cache=writeback";
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
	why_set(why, "open %.200s%s: %s; %s", path,
	    readonly ? " read-only" : "", what, remedy);
}

/*
 * The type is checked before, because opening some devices does something,
 * and after, because the name may by then stand for something else.  With
 * O_NONBLOCK the open cannot hang on a FIFO or on a drive without a medium.
 */
static int
file_open_fd(struct file *f, struct stat *st, char why[WHY_MAX])
{
	int flags = O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
	struct statfs fs;
	int rc;

	flags |= f->readonly ? O_RDONLY : O_RDWR;
	if (cache_is_direct(f->cache))
		flags |= O_DIRECT;
	if (cache_is_durable(f->cache))
		flags |= O_DSYNC;

	if (stat(f->path, st) == -1)
		goto err_errno;
	rc = file_check_type(f->path, st->st_mode, why);
	if (rc < 0)
		return rc;
	f->fd = open(f->path, flags);
	if (f->fd == -1 || fstat(f->fd, st) == -1)
		goto err_errno;
	rc = file_check_type(f->path, st->st_mode, why);
	if (rc < 0)
		return rc;
	if (fcntl(f->fd, F_SETFL, flags & ~O_NONBLOCK) == -1)
		goto err_errno;

	f->device = S_ISBLK(st->st_mode);
	f->sparse = fstatfs(f->fd, &fs) == 0 && fs.f_type == TMPFS_MAGIC;
	f->dev = st->st_dev;
	f->ino = st->st_ino;
	return 0;

err_errno:
	rc = -errno;
	file_explain_open(f->path, f->readonly, -rc, why);
	return rc;
}

/* open(2) lets a device be opened for writing that refuses every write. */
static int
file_check_writable(const struct file *f, char why[WHY_MAX])
{
	int readonly = 0, rc;

	if (!f->device || f->readonly)
		return 0;
	if (ioctl(f->fd, BLKROGET, &readonly) == -1) {
		rc = -errno;
		why_set(why, "ask whether %.200s is read-only: %s; it must be "
		    "a block device of this host", f->path, strerror(-rc));
		return rc;
	}
	if (readonly) {
		why_set(why, "open %.200s: the device is set to read-only; "
		    "run 'blockdev --setrw' on it, or attach the disk "
		    "read-only", f->path);
		return -EROFS;
	}
	return 0;
}

int
file_read_size(struct file *f, char why[WHY_MAX])
{
	uint64_t size = 0;
	struct stat st;
	int rc;

	if (f->device)
		rc = ioctl(f->fd, BLKGETSIZE64, &size);
	else
		rc = fstat(f->fd, &st);
	if (rc == -1) {
		rc = -errno;
		why_set(why, "read the size of %.200s: %s; see the kernel log "
		    "(dmesg) for what is wrong with its storage", f->path,
		    strerror(-rc));
		return rc;
	}
	f->size = f->device ? size : (uint64_t)st.st_size;
	return 0;
}

int
file_describe(struct file *f, struct image_layer *layer, char why[WHY_MAX])
{
	struct stat st;
	int rc;

	rc = file_read_size(f, why);
	if (rc < 0)
		return rc;
	if (fstat(f->fd, &st) == -1) {
		rc = -errno;
		why_set(why, "look at %.200s: %s", f->path, strerror(-rc));
		return rc;
	}
	layer->path = f->path;
	layer->file_size = f->size;
	layer->allocated = f->device ? f->size :
	    (uint64_t)st.st_blocks * 512;
	return 0;
}

/*
 * The smallest direct I/O that the file takes, for kernels and file systems
 * that do not tell: EINVAL is what they answer to one that is not aligned.
 * Any other error is not about alignment and will be met by the I/O.
 */
static bool
file_takes(const struct file *f, void *buf, uint32_t bytes)
{
	return pread(f->fd, buf, bytes, 0) != -1 || errno != EINVAL;
}

static int
file_probe_alignment(const struct file *f, uint32_t *offset, uint32_t *memory)
{
	char *buf;
	int error;

	error = posix_memalign((void **)&buf, MAX_BLOCK, 2 * MAX_BLOCK);
	if (error != 0)
		return -error;
	for (*offset = SECTOR; *offset < MAX_BLOCK; *offset *= 2)
		if (file_takes(f, buf, *offset))
			break;
	for (*memory = SECTOR; *memory < MAX_BLOCK; *memory *= 2)
		if (file_takes(f, buf + *memory, *offset))
			break;
	free(buf);
	return 0;
}

/*
 * What direct I/O must be a multiple of, in bytes; 0: there is none.  The page
 * cache takes anything.
 */
static int
file_read_alignment(const struct file *f, uint32_t *offset, uint32_t *memory)
{
	unsigned sector = 0;
#ifdef STATX_DIOALIGN
	struct statx stx;
#endif

	*offset = *memory = SECTOR;
	if (!cache_is_direct(f->cache))
		return 0;
#ifdef STATX_DIOALIGN
	/* Linux 6.1 and newer, and not every file system. */
	if (statx(f->fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &stx) == 0 &&
	    (stx.stx_mask & STATX_DIOALIGN) != 0) {
		*offset = stx.stx_dio_offset_align;
		*memory = stx.stx_dio_mem_align;
		return 0;
	}
#endif
	if (!f->device)
		return file_probe_alignment(f, offset, memory);
	if (ioctl(f->fd, BLKSSZGET, &sector) == -1)
		return -errno;
	/* Older kernels want the same of the memory. */
	*offset = *memory = sector;
	return 0;
}

/* A hint for the guest: what the storage likes best, within reason. */
static uint32_t
file_physical_block_size(const struct file *f, const struct stat *st)
{
	unsigned physical = 0;
	uint32_t size = SECTOR;

	if (!f->device)
		physical = (unsigned)st->st_blksize;
	else if (ioctl(f->fd, BLKPBSZGET, &physical) == -1)
		physical = SECTOR;
	while (size < MAX_BLOCK && size * 2 <= physical)
		size *= 2;
	return size;
}

/* To a power of 2 that is no less than a sector. */
static uint32_t
file_round_up(uint32_t alignment)
{
	uint32_t size = SECTOR;

	while (size < alignment && size <= MAX_BLOCK)
		size *= 2;
	return size;
}

static int
file_read_block_sizes(struct file *f, const struct stat *st,
    char why[WHY_MAX])
{
	uint32_t offset = 0, memory = 0;
	int rc;

	rc = file_read_alignment(f, &offset, &memory);
	if (rc < 0) {
		why_set(why, "read the sector size of %.200s: %s; see the "
		    "kernel log (dmesg)", f->path, strerror(-rc));
		return rc;
	}
	if (offset == 0 || memory == 0) {
		file_explain_open(f->path, f->readonly, EINVAL, why);
		return -EINVAL;
	}
	f->block_size = file_round_up(offset);
	f->buffer_alignment = file_round_up(memory);
	if (f->block_size > MAX_BLOCK || f->buffer_alignment > MAX_BLOCK) {
		why_set(why, "open %.200s: direct I/O to its storage goes by "
		    "%u bytes, and %u are the most that is served; move the "
		    "image to storage with sectors of 512 or 4096 bytes",
		    f->path, offset > memory ? offset : memory, MAX_BLOCK);
		return -EOPNOTSUPP;
	}
	f->physical_block_size = file_physical_block_size(f, st);
	if (f->physical_block_size < f->block_size)
		f->physical_block_size = f->block_size;
	return 0;
}

/* One number of /sys/dev/block/MAJOR:MINOR/queue/; 0 when there is none. */
static uint64_t
file_queue_number(dev_t rdev, const char *name)
{
	unsigned long long n = 0;
	const char *dir[] = { "", "../" }; /* a partition's is its disk's */
	char path[96];
	FILE *in;
	int i;

	for (i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/%squeue/%s",
		    major(rdev), minor(rdev), dir[i], name);
		in = fopen(path, "re");
		if (in == NULL)
			continue;
		if (fscanf(in, "%llu", &n) != 1)
			n = 0;
		fclose(in);
		break;
	}
	return n;
}

/*
 * A device says whether it discards.  Of a file system only trying tells, and
 * open must not write: it is offered, and answered with -EOPNOTSUPP there.
 */
static void
file_read_discard(struct file *f, const struct stat *st)
{
	uint64_t granule = (uint64_t)st->st_blksize;

	if (f->device)
		granule = file_queue_number(st->st_rdev,
		    "discard_max_bytes") == 0 ? 0 :
		    file_queue_number(st->st_rdev, "discard_granularity");
	if (granule < SECTOR || granule > UINT32_MAX / 2 ||
	    (granule & (granule - 1)) != 0)
		return;
	f->discard_granularity = (uint32_t)granule;
	if (f->discard_granularity < f->block_size)
		f->discard_granularity = f->block_size;
}

int
file_open(struct file *f, const char *path, bool readonly,
    enum cache_mode cache, char why[WHY_MAX])
{
	struct stat st;
	int rc;

	*f = (struct file){ .fd = -1, .readonly = readonly, .cache = cache };
	f->path = strdup(path);
	if (f->path == NULL) {
		why_set(why, "open %.200s: out of memory", path);
		return -ENOMEM;
	}
	rc = file_open_fd(f, &st, why);
	if (rc == 0)
		rc = file_check_writable(f, why);
	if (rc == 0)
		rc = file_read_size(f, why);
	if (rc == 0)
		rc = file_read_block_sizes(f, &st, why);
	if (rc < 0) {
		file_close(f);
		return rc;
	}
	if (!readonly)
		file_read_discard(f, &st);
	return 0;
}

void
file_close(struct file *f)
{
	if (f->fd != -1)
		close(f->fd);
	free(f->path);
	f->fd = -1;
	f->path = NULL;
}

/*
 * Blocking I/O.
 */

/*
 * Where a file ends inside a block the last read brings a part of it; to go
 * on from there would not be aligned, so that block is read once more.
 */
static int
blocks_read(const struct file *f, void *buf, size_t bytes, uint64_t offset)
{
	char *to = buf;
	size_t done = 0;
	ssize_t n;

	while (done < bytes) {
		n = pread(f->fd, to + done, bytes - done,
		    (off_t)(offset + done));
		if (n == -1 && errno == EINTR)
			continue;
		if (n == -1)
			return -errno;
		if (n < (ssize_t)f->block_size) { /* the end */
			memset(to + done + n, 0, bytes - done - (size_t)n);
			break;
		}
		done += (size_t)n & ~(size_t)(f->block_size - 1);
	}
	return 0;
}

static int
blocks_write(const struct file *f, const void *buf, size_t bytes,
    uint64_t offset)
{
	const char *from = buf;
	size_t done = 0;
	ssize_t n;

	while (done < bytes) {
		n = pwrite(f->fd, from + done, bytes - done,
		    (off_t)(offset + done));
		if (n == -1 && errno == EINTR)
			continue;
		if (n == -1)
			return -errno;
		if (n < (ssize_t)f->block_size)
			return -ENOSPC;
		done += (size_t)n & ~(size_t)(f->block_size - 1);
	}
	return 0;
}

/* How much can be transferred as it is. */
static size_t
file_straight(const struct file *f, const void *buf, size_t bytes,
    uint64_t offset)
{
	size_t mask = f->block_size - 1;

	if (f->block_size == SECTOR && f->buffer_alignment == SECTOR)
		return bytes;
	if ((offset & mask) != 0 ||
	    ((uintptr_t)buf & (f->buffer_alignment - 1)) != 0)
		return 0;
	return bytes & ~mask;
}

/* A part of the block at 'offset', up to 'bytes' of it, else. */
static size_t
file_part(const struct file *f, size_t bytes, uint64_t offset)
{
	size_t left = f->block_size - (size_t)(offset % f->block_size);

	return bytes < left ? bytes : left;
}

/* A part of one block. */
static int
part_transfer(const struct file *f, bool write, char *buf, size_t bytes,
    uint64_t offset)
{
	char block[MAX_BLOCK] __attribute__((aligned(MAX_BLOCK)));
	size_t skip = (size_t)(offset % f->block_size);
	int rc;

	rc = blocks_read(f, block, f->block_size, offset - skip);
	if (rc < 0)
		return rc;
	if (!write) {
		memcpy(buf, block + skip, bytes);
		return 0;
	}
	memcpy(block + skip, buf, bytes);
	return blocks_write(f, block, f->block_size, offset - skip);
}

static int
file_transfer(const struct file *f, bool write, char *buf, size_t bytes,
    uint64_t offset)
{
	size_t n;
	int rc = 0;

	for (; bytes > 0 && rc == 0; bytes -= n, buf += n, offset += n) {
		n = file_straight(f, buf, bytes, offset);
		if (n == 0) {
			n = file_part(f, bytes, offset);
			rc = part_transfer(f, write, buf, n, offset);
		} else if (write) {
			rc = blocks_write(f, buf, n, offset);
		} else {
			rc = blocks_read(f, buf, n, offset);
		}
	}
	return rc;
}

int
file_pread(const struct file *f, void *buf, size_t bytes, uint64_t offset)
{
	return file_transfer(f, false, buf, bytes, offset);
}

int
file_pwrite(const struct file *f, const void *buf, size_t bytes,
    uint64_t offset)
{
	return file_transfer(f, true, (char *)buf, bytes, offset);
}

void
file_drop_cache(struct file *f)
{
	/* Direct I/O does not look at the cache; the rest cannot fail. */
	if (!cache_is_direct(f->cache) && !f->keep_cache)
		(void)posix_fadvise(f->fd, 0, 0, POSIX_FADV_DONTNEED);
	f->keep_cache = false;
}

int
file_sync(struct file *f)
{
	if (f->cache == CACHE_UNSAFE)
		return 0;
	if (f->sync_error == 0 && fdatasync(f->fd) == -1)
		f->sync_error = -errno;
	return f->sync_error;
}

/*
 * Size and room.
 */

static int
discard_file(int fd, uint64_t offset, uint64_t length)
{
	int rc;

	do {
		rc = fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		    (off_t)offset, (off_t)length);
	} while (rc == -1 && errno == EINTR);
	return rc == -1 ? -errno : 0;
}

static int
discard_device(int fd, uint64_t offset, uint64_t length)
{
	uint64_t range[2] = { offset, length };

	return ioctl(fd, BLKDISCARD, range) == -1 ? -errno : 0;
}

engine_discard *
file_engine_discard(const struct file *f)
{
	if (f->discard_granularity == 0)
		return NULL;
	return f->device ? discard_device : discard_file;
}

int
file_discard(const struct file *f, uint64_t offset, uint64_t bytes)
{
	engine_discard *discard = file_engine_discard(f);

	return discard == NULL ? -EOPNOTSUPP : discard(f->fd, offset, bytes);
}

static int
file_cut(struct file *f, uint64_t size)
{
	int rc;

	do {
		rc = ftruncate(f->fd, (off_t)size);
	} while (rc == -1 && errno == EINTR);
	if (rc == -1)
		return -errno;
	f->size = size;
	return 0;
}

/*
 * A write may have made the file longer than f->size, by some bytes of the
 * last sector at least: so the file is asked.  A reservation that fails
 * half-way leaves some of it, on ext4 a longer file too; it is given back.
 */
int
file_grow(struct file *f, uint64_t size)
{
	char why[WHY_MAX];
	int rc, rc2;

	if (f->device)
		return -ENOSPC;
	if (size > INT64_MAX)
		return -EFBIG;
	rc = file_read_size(f, why);
	if (rc < 0 || size <= f->size)
		return rc;
	if (f->sparse)
		return file_cut(f, size);
	do {
		rc = fallocate(f->fd, 0, (off_t)f->size,
		    (off_t)(size - f->size));
	} while (rc == -1 && errno == EINTR);
	if (rc == 0) {
		f->size = size;
		return 0;
	}
	rc = -errno;
	if (rc == -EOPNOTSUPP)
		return file_cut(f, size);
	rc2 = file_cut(f, f->size);
	return rc2 < 0 && rc2 != rc ? rc2 : rc;
}

int
file_lengthen(struct file *f, uint64_t size)
{
	return f->device || size < f->size ? -EINVAL : file_cut(f, size);
}

int
file_shrink(struct file *f, uint64_t size)
{
	return f->device ? -EINVAL : file_cut(f, size);
}
