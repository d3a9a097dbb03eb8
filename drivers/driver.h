/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * driver: what a disk image format must provide.
 *
 * A driver turns byte ranges of an *image* into data.  It knows nothing of
 * Xen, of rings or of event loops: it is handed I/Os through a *channel*, one
 * per thread, offers a descriptor that becomes readable when something has
 * finished, and completes each I/O exactly once.
 *
 *   image_open --> image_activate --> channel_open ... channel_close
 *                        ^                                   |
 *                        +---- image_deactivate <------------+--> image_close
 *
 * open     validates and writes nothing: another host may still be using the
 *          image (the source of a migration).
 * activate takes the locks that QEMU takes and reads again what may have
 *          changed since; only now is I/O allowed.
 *
 * Everything here returns 0 (or a count) or -errno.  Functions that take
 * 'why' fill it, on failure, with one line for a person: what was tried, on
 * which file, what failed and what to do about it; no disk name, no newline.
 */
#ifndef DRIVERS_DRIVER_H
#define DRIVERS_DRIVER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>
#include <sys/uio.h>

#define container_of(ptr, type, member) \
	((type *)((char *)(ptr) - offsetof(type, member)))

#define WHY_MAX 512		/* bytes of a message, its NUL included */

enum io_op { IO_READ, IO_WRITE, IO_FLUSH, IO_DISCARD };

struct channel;

/*
 * One I/O.  The caller owns it and the memory behind 'iov' and keeps both
 * alive until 'done' has run.  From submit to done it belongs to the driver,
 * which may use 'link' and change the vector.
 *
 * 'done' may submit, this io or another, but not reap.
 *
 * done(io, 0): all of 'length' was transferred, or, for a flush, every write
 * on any channel of the image that was done before this flush was submitted
 * is on stable storage (not with CACHE_UNSAFE); after a discard the range
 * reads as zeroes or as it did before.  done(io, -errno): what reached the
 * image is unknown.
 */
struct io {
	enum io_op     op;
	uint64_t       offset;		/* bytes; multiple of the block size */
	uint64_t       length;		/* bytes; the sum of iov for READ and */
					/* WRITE, 0 for FLUSH */
	struct iovec  *iov;		/* each a multiple of the block size, */
					/* at an address that is one of 512 */
	int            iovcnt;
	void         (*done)(struct io *io, int error);
	/*
	 * NULL, or where the driver says whether the I/O waits for metadata
	 * of the format (1) rather than for its own data (0, as it is when
	 * 'done' runs): a person may want to know.
	 */
	_Atomic uint32_t *metadata;
	STAILQ_ENTRY(io) link;
};
STAILQ_HEAD(io_list, io);

/* Direct I/O goes past the page cache of this host (O_DIRECT). */
enum cache_mode {
	CACHE_NONE,		/* direct; a flush makes writes durable */
	CACHE_DIRECTSYNC,	/* direct; each write is durable when done */
	CACHE_WRITETHROUGH,	/* page cache; each write is durable likewise */
	CACHE_WRITEBACK,	/* page cache; a flush makes writes durable */
	CACHE_UNSAFE,		/* page cache; a flush does nothing */
};

static inline bool
cache_is_direct(enum cache_mode cache)
{
	return cache == CACHE_NONE || cache == CACHE_DIRECTSYNC;
}

static inline bool
cache_is_durable(enum cache_mode cache)
{
	return cache == CACHE_DIRECTSYNC || cache == CACHE_WRITETHROUGH;
}

/* What moves the data of guests; see engine.h. */
enum engine_kind {
	ENGINE_AIO,		/* direct I/O only */
	ENGINE_THREADS,
};

/* How to open an image; the caller owns the strings. */
struct image_options {
	const char     *format;		/* a driver's name */
	const char     *path;		/* what follows a spec's first ':' */
	bool            readonly;	/* opened O_RDONLY: CVE-2015-7311 */
	bool            discard;	/* offer IO_DISCARD where it works */
	enum cache_mode cache;
	enum engine_kind engine;
	bool            resumed;	/* a process of this host that died */
					/* had it in use until now, so the */
					/* page cache is right at first */
	const char *const *backing_roots; /* NULL-terminated list of folders */
					/* below which backing files lie; */
					/* NULL: the folder of 'path' only */
	bool            empty;		/* there is no medium: the rest, but */
					/* for 'readonly', means nothing */
	bool            inspect;	/* for image_info() and image_check() */
					/* only: read-only, never activated, */
					/* and let in even when it is dirty */
};

/* An open image.  Drivers embed it first in their own struct. */
struct image {
	const struct driver *drv;
	bool                 readonly;
	bool                 active;
	_Atomic uint64_t     size;	/* bytes, multiple of 512; 0: no */
					/* medium; image_resize() makes it */
					/* larger */
	uint32_t             block_size; /* smallest I/O; bytes, power of 2; */
					/* image_open() makes 512 of it */
	uint32_t             buffer_alignment;	/* of an iov's address, if */
					/* more than 512; gone likewise */
	uint32_t             physical_block_size; /* best I/O; likewise */
	uint32_t             discard_granularity;	/* bytes, power of 2; */
					/* 0: no IO_DISCARD.  Its offset and */
					/* length are multiples of it but for */
	uint32_t             discard_alignment;	/* this offset (bytes) of */
					/* the first one */
	dev_t                dev;	/* identity of the (topmost) file; */
	ino_t                ino;	/* 0/0 where there is none */
	unsigned             nr_channels;	/* open; driver.c counts */

	/*
	 * Memory in which what was done but is not in the file yet survives
	 * the death of the process (not of the host).  The driver says at
	 * open how much it wants; the caller may lend it, from before
	 * activate until after deactivate: whole pages, zeroed when the
	 * image was not in use before, else what a predecessor that died
	 * left, which activate then does again.
	 */
	uint32_t             redo_bytes;	/* 0: none */
	void                *redo;		/* NULL: none lent */

	_Atomic uint64_t     metadata_writes;	/* made for the format's own */
					/* sake, since open; counted */
};

/*
 * One thread's way to an image.  Drivers embed it first.
 *
 * event_fd signals by edges: watch it with EPOLLIN | EPOLLET, call reap() at
 * each event, never read it.  It may stay readable for good (which is what
 * saves a read per wake-up), so a level-triggered watch would spin.  What
 * finishes after reap() has looked raises a new edge, and so does what
 * reap() left behind, I/Os that a done() submitted included.  Where it is
 * -1, call reap() while I/Os are in flight.
 */
struct channel {
	struct image *img;
	int           event_fd;	/* readable: call reap(); -1: none needed, */
				/* every I/O is finished at the next reap() */
	uint64_t      submits;	/* system calls made to submit */
};

/* One file of an image's chain, for a person who asks what it is. */
#define IMAGE_LAYERS_MAX   64
#define IMAGE_FEATURES_MAX 12

struct image_layer {
	const char *path;	/* this and all other text: the image's */
	const char *format;
	uint64_t    virtual_size;	/* bytes that a guest sees */
	uint64_t    file_size;	/* bytes of the file or the device */
	uint64_t    allocated;	/* bytes of storage that it takes */
	uint32_t    cluster_size;	/* bytes; 0: the format has none, nor */
					/* anything of what follows */
	uint32_t    version;
	uint32_t    refcount_bits;
	uint32_t    nr_snapshots;
	const char *compression;
	const char *backing;	/* as it stands in the file; NULL: none */
	const char *backing_format;	/* NULL: not given */
	const char *features[IMAGE_FEATURES_MAX];	/* ends with NULL */
	uint64_t    unknown_features;	/* how many bits without a name */
};

/* What is wrong with an image, and how it is filled. */
enum image_fault { FAULT_LEAK, FAULT_ERROR, FAULT_UNREAD };

struct image_check {
	/* The caller's: told each finding, one line each.  May be NULL. */
	void   (*found)(void *arg, enum image_fault kind, const char *text);
	void    *arg;

	/* The driver's. */
	uint64_t leaks;		/* clusters that take space for nothing */
	uint64_t errors;	/* what loses data or will */
	uint64_t overlaps;	/* clusters with two uses that exclude each */
				/* other, whatever their refcount says */
	uint64_t unread;	/* what could not be looked at */
	uint64_t clusters;	/* of the virtual disk */
	uint64_t allocated, compressed, fragmented;	/* of these */
	uint64_t end;		/* bytes of the file up to the last in use */
};

struct driver {
	const char *name;	/* the word used in a disk spec */

	/*
	 * Open and validate; fill in every field of struct image but 'drv',
	 * 'active' and 'nr_channels'.  On failure nothing stays open.
	 */
	int  (*open)(const struct image_options *opt, struct image **img,
	         char why[WHY_MAX]);

	/* Not active, no channel.  Never fails; frees the image. */
	void (*close)(struct image *img);

	/* -EAGAIN: somebody else holds the lock; 'why' says so. */
	int  (*activate)(struct image *img, char why[WHY_MAX]);

	/*
	 * No I/O is in flight.  Flushes and unlocks; the image stays open.
	 * It is inactive and unlocked even when the flush failed.
	 */
	int  (*deactivate)(struct image *img, char why[WHY_MAX]);

	/*
	 * A channel for at most 'depth' I/Os at a time.  May be opened before
	 * the image is active, by a process that still has its privileges.
	 */
	int  (*channel_open)(struct image *img, unsigned depth,
	         struct channel **ch, char why[WHY_MAX]);

	/* No I/O is in flight, and not called by a done(). */
	void (*channel_close)(struct channel *ch);

	/* Accept an I/O.  Must not call io->done(): that is reap()'s job. */
	void (*submit)(struct channel *ch, struct io *io);

	/*
	 * Hand what submit() gathered to the storage with as few system calls
	 * as there can be, then complete what has finished.  Never blocks, and
	 * makes no system call when there is nothing to hand over and nothing
	 * has finished.  How many I/Os it completed.
	 */
	unsigned (*reap)(struct channel *ch);

	/*
	 * Optional: make an active image larger while I/O is in flight on any
	 * channel; with a size of 0, as large as its file has become.  img->
	 * size changes last, when there is room for I/O up to it.  On failure
	 * the image has its old size, and all that it held.
	 */
	int  (*resize)(struct image *img, uint64_t size, char why[WHY_MAX]);

	/*
	 * Optional, of an image that was opened to be inspected; they read
	 * and write nothing.  info: how many of 'layers', the topmost first.
	 * check: the topmost file, under the lock that keeps writers away
	 * (-EAGAIN: somebody writes).  0 means that it was looked at, not
	 * that nothing was found.
	 */
	int  (*info)(struct image *img,
	         struct image_layer layers[IMAGE_LAYERS_MAX],
	         char why[WHY_MAX]);
	int  (*check)(struct image *img, struct image_check *c,
	         char why[WHY_MAX]);
};

extern const struct driver driver_raw, driver_qcow2, driver_null, driver_fault,
    driver_empty;

/* NULL when there is none of that name. */
const struct driver *driver_find(const char *name);

/* For drivers: write a message into 'why', cut to fit. */
void why_set(char why[WHY_MAX], const char *fmt, ...)
         __attribute__((format(printf, 2, 3)));

/* The only callers of the functions above; they assert both sides. */
int  image_open(const struct image_options *opt, struct image **img,
         char why[WHY_MAX]);
void image_close(struct image *img);		/* NULL is fine */
int  image_activate(struct image *img, char why[WHY_MAX]);
int  image_deactivate(struct image *img, char why[WHY_MAX]);
int  channel_open(struct image *img, unsigned depth, struct channel **ch,
         char why[WHY_MAX]);
void channel_close(struct channel *ch);		/* NULL is fine */
void channel_submit(struct channel *ch, struct io *io);
unsigned channel_reap(struct channel *ch);

/*
 * By one thread at a time, on any.  Refused: less than there is, and what is no
 * multiple of the blocks below.
 */
int  image_resize(struct image *img, uint64_t size, char why[WHY_MAX]);

/* -EOPNOTSUPP: this format has no such thing. */
int  image_info(struct image *img,
         struct image_layer layers[IMAGE_LAYERS_MAX], char why[WHY_MAX]);
int  image_check(struct image *img, struct image_check *c,
         char why[WHY_MAX]);

#endif
