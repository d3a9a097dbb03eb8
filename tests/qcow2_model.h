/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * qcow2_model: random operations on an image and on a model of it.
 *
 *   seed --> shape of the chain --> files, by qemu-img and qemu-io
 *                 |                     |
 *              contents  == ? ==  what the driver reads, what qemu-img
 *                 ^                converts to raw, what its check says
 *                 |                     ^
 *                 +---- operations -----+
 *
 * A disk is modelled as one number per sector, its *version*; what bytes a
 * version means depends on the sector too, so that no sector can stand in for
 * another.  0: zeroes; up to 255: that byte throughout (what qemu-io writes);
 * above: noise, of which each fourth version can be compressed.
 */
#ifndef TESTS_QCOW2_MODEL_H
#define TESTS_QCOW2_MODEL_H

#include "drivers/driver.h"

#define SECTOR     512u
#define MAX_LAYERS 4u		/* the one on top and three below */
#define MAX_SNAPSHOTS 3u
#define NAME_SIZE  512u

/* Of one seed; each part of a run has its own, so that one may change. */
struct rng {
	uint64_t state;
};

/* What a disk holds. */
struct contents {
	uint64_t  sectors;
	uint32_t *version;
	uint8_t  *or_zero;	/* discarded: may read as zeroes instead, */
				/* until it has been seen to be the one */
};

/* What is made, from the seed alone. */
struct layer {
	bool     raw;
	unsigned version;	/* 2, 3 */
	unsigned cluster_bits;
	unsigned refcount_bits;
	bool     extended;	/* L2 entries with subclusters */
	bool     zstd;
	bool     lazy;		/* lazy_refcounts=on */
	bool     converted;	/* begins as a copy of a raw disk */
	bool     compressed;	/* ... which is compressed */
	const char *preallocation;
	uint64_t size;		/* bytes, multiple of SECTOR */
	uint64_t grown;		/* from this size, by qemu-img resize; 0: no */
	unsigned nr_snapshots;
	unsigned nr_edits;	/* qemu-io's, before and after each snapshot */
};

struct chain {
	char            folder[NAME_SIZE - 64];
	unsigned        nr_layers;	/* [0] is the lowest */
	struct layer    layer[MAX_LAYERS];
	struct contents top;
	struct contents snapshot[MAX_SNAPSHOTS];
	uint64_t        base_stamp;	/* of the files below the top */
};

/* How one seed is run. */
struct run {
	uint64_t     seed;
	struct chain chain;
	const struct layer *shape;	/* of the top */
	char         top[NAME_SIZE];	/* its file */
	unsigned     nr_rounds;
	unsigned     nr_ops;		/* of each round, at most */
	uint64_t     bytes;		/* of each round, at most */
	bool         verbose;
	bool         delayed;	/* there is a thread for I/O */
	uint64_t     count[4];		/* operations done, by enum io_op */
};

/* ---- qcow2_model.c: what all use ------------------------------------- */

void rng_start(struct rng *r, uint64_t seed, unsigned part);
uint64_t rng_next(struct rng *r);
uint64_t rng_below(struct rng *r, uint64_t n);	/* 0 ... n - 1 */
bool rng_chance(struct rng *r, unsigned percent);
uint64_t rng_log(struct rng *r, uint64_t min, uint64_t max);

/* Say what is wrong with this seed, and end the process. */
void model_fail(const char *fmt, ...)
         __attribute__((format(printf, 1, 2), noreturn));
void model_say(const struct run *run, const char *fmt, ...)
         __attribute__((format(printf, 2, 3)));

void contents_make(struct contents *c, uint64_t sectors);
void contents_free(struct contents *c);
void contents_set(struct contents *c, uint64_t first, uint64_t n,
         uint32_t version);
void sector_fill(void *buf, uint64_t sector, uint32_t version);
bool sector_is(const void *buf, uint64_t sector, uint32_t version);

/* Is it what the model says?  Decides what may be either.  Else it fails. */
void contents_compare(struct contents *c, const void *buf, uint64_t first,
         uint64_t n, const char *who);

/* ---- qcow2_model_image.c: shapes and files ---------------------------- */

void chain_choose(struct chain *c, struct rng *r, bool raw, bool large);
void chain_describe(const struct chain *c, char *text, size_t size);

/* Make the files, and the contents.  The folder is there. */
void chain_make(struct chain *c, struct rng *r);
void chain_path(const struct chain *c, unsigned layer, char path[NAME_SIZE]);

/* Nobody has the image open: is it as it should be, says qemu-img? */
void chain_verify(struct chain *c);

/* Snapshots and what lies below are as they were. */
void chain_verify_rest(struct chain *c);

/* What qemu-img makes the disk longer by is zeroes; the end of all. */
void chain_verify_grown(struct chain *c);

/* ---- qcow2_model_io.c: a round --------------------------------------- */

/* Open, do operations, close. */
void round_run(struct run *run, struct rng *r);

#endif
