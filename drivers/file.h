/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * file: what the formats stand on, a regular file or a block device.
 *
 * Opened, checked, measured; plus the blocking I/O that open, activate and the
 * metadata thread of a format do.  Guest data does not come this way but
 * through engine.h.
 *
 * In the modes that cache, the kernel keeps direct I/O of this host (another
 * process's, or an earlier one's) and the page cache in agreement: a direct
 * read writes out what is dirty first, a direct write drops what is cached.
 * Nobody tells it of another host's writes: see file_drop_cache().
 *
 * Direct I/O cannot do less than a logical sector of the storage, which may
 * be larger than the 512 bytes of a guest's: then a format says so in its
 * image's block_size, and image_open() puts sector.h round it.
 */
#ifndef DRIVERS_FILE_H
#define DRIVERS_FILE_H

#include "drivers/driver.h"
#include "drivers/engine.h"

#define SECTOR 512u

struct file {
	char    *path;		/* ours; as it was named */
	int      fd;		/* -1: not open */
	bool     readonly;
	enum cache_mode cache;
	bool     keep_cache;	/* the next file_drop_cache() does nothing; */
				/* what it drops takes time, a second for */
				/* some GiB, and a guest waits for it */
	bool     device;	/* a block device, else a regular file */
	bool     sparse;	/* no room is reserved: on tmpfs that is */
				/* memory, filled with zeroes for nothing */
	uint64_t size;		/* bytes, any number; see file_read_size() */
	uint32_t block_size;	/* of direct I/O: bytes, SECTOR ... 4096 */
	uint32_t buffer_alignment;	/* of its memory; likewise */
	uint32_t physical_block_size;	/* likewise, and >= block_size */
	uint32_t discard_granularity;	/* bytes, power of 2; 0: cannot */
	dev_t    dev;		/* its identity */
	ino_t    ino;
	int      sync_error;	/* see file_sync() */
};

/*
 * Open 'path', read-only or not.  Refused, with the remedy in 'why': what is
 * neither regular nor a block device, a device set to read-only, storage
 * whose sectors are larger than 4096 bytes.  On failure f->fd is -1 and
 * nothing is held.  f->size is read.
 */
int  file_open(struct file *f, const char *path, bool readonly,
         enum cache_mode cache, char why[WHY_MAX]);
void file_close(struct file *f);	/* also when it is not open */

/* Measure again: somebody may have resized it before it was locked. */
int  file_read_size(struct file *f, char why[WHY_MAX]);

/* Path and sizes, measured now, for image_info(). */
int  file_describe(struct file *f, struct image_layer *layer,
         char why[WHY_MAX]);

/*
 * Blocking I/O of whole sectors: offset, bytes and the address of 'buf' are
 * multiples of SECTOR.  Short transfers are continued.  What a read finds
 * beyond the end of the file is zeroes; a write that does not get on is
 * -ENOSPC, and one beyond the end lengthens the file but not f->size.
 * What is not of whole blocks, or in memory that is not aligned enough, goes
 * by way of the stack; such a write also writes back the rest of its blocks,
 * so nobody else may write there meanwhile.  0 or -errno.
 */
int  file_pread(const struct file *f, void *buf, size_t bytes,
         uint64_t offset);
int  file_pwrite(const struct file *f, const void *buf, size_t bytes,
         uint64_t offset);

/*
 * Forget what the page cache holds of it that is not dirty: what was read
 * before the lock was ours may since have been changed by another host, from
 * which the guest migrates.  Call it with the lock, before anything is read
 * again.  What is dirty is this host's own and later than anything on the
 * storage, for nobody else may have written without the lock; it stays.
 */
void file_drop_cache(struct file *f);

/*
 * fdatasync; with CACHE_UNSAFE nothing.  0 or -errno.  Once it failed nobody
 * knows what was lost, and a second one would report success: the error stays,
 * until f->sync_error is set to 0 again.
 */
int  file_sync(struct file *f);

/*
 * Give a range back to the storage: a hole in a file (which then reads as
 * zeroes), BLKDISCARD on a device (which may read as anything).
 */
int  file_discard(const struct file *f, uint64_t offset, uint64_t bytes);

/*
 * Make a regular file reach 'size' bytes, which lie beyond f->size, and
 * reserve the room for them; what is new reads as zeroes.  Where the file
 * system cannot reserve it (or should not, see 'sparse') it only gets longer.
 * Updates f->size.  -ENOSPC, -EFBIG and the like: unchanged.
 */
int  file_grow(struct file *f, uint64_t size);

/* The same, but only longer: no room is reserved. */
int  file_lengthen(struct file *f, uint64_t size);

/* Cut a regular file off at 'size' bytes.  Updates f->size. */
int  file_shrink(struct file *f, uint64_t size);

/* What an engine discards with in this file; NULL: it cannot. */
engine_discard *file_engine_discard(const struct file *f);

#endif
