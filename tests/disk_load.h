/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * disk_load: a guest that writes, discards, flushes and reads at random, and
 * a model that knows what each sector may hold.
 *
 * Each write has a version; what it writes into a sector says which sector
 * and which version that is.  The model has, of each sector, all versions
 * that it may hold: one that is known, and those of operations that are under
 * way, have failed, or (a discard) need not have done anything.
 *
 * A model may lie in memory that several processes share: at any moment it
 * allows at least what is true.
 */
#ifndef TESTS_DISK_LOAD_H
#define TESTS_DISK_LOAD_H

#include "tests/driver_rig.h"

#define MODEL_VALUES 12
#define MODEL_ANY    UINT32_MAX	/* 'nr' of one with more than these */

/* Version 0 is zeroes, 1 what was there at first. */
struct model_sector {
	uint32_t nr;
	uint32_t value[MODEL_VALUES];
};

/*
 * The sectors of 'nr_windows' windows, each 'stride' sectors behind the one
 * before it.
 */
struct model {
	uint32_t            nr_sectors;
	uint32_t            last;	/* version given to a write */
	uint64_t            window;	/* sectors */
	uint64_t            stride;	/* sectors */
	struct model_sector sectors[];
};

size_t model_bytes(uint32_t nr_sectors);

/* Where on the disk the model's sector lies; in sectors. */
uint64_t model_place(const struct model *m, uint32_t i);

void model_begin(struct model *m, uint32_t first, uint32_t count,
         uint32_t version);		/* it may be there from now on */
void model_end(struct model *m, uint32_t first, uint32_t count,
         uint32_t version);		/* it is */
bool model_may(const struct model *m, uint32_t i, uint32_t version);

void sector_fill(void *buf, uint64_t place, uint32_t version);
/* false: nobody has written that there. */
bool sector_version(const void *buf, uint64_t place, uint32_t *version);

/*
 * Does 'buf' hold what it may?  If not, 'why' has the first sector that
 * differs.  'learn': the model allows nothing else from now on.
 */
bool model_check(struct model *m, uint32_t first, uint32_t count,
         const void *buf, bool learn, char why[WHY_MAX]);

/*
 * The guest.
 */
#define LOAD_DEPTH 16

struct load_op {
	struct rig_io *rio;		/* NULL: free */
	enum io_op     op;
	uint32_t       first, count;	/* sectors of the model */
	uint32_t       version;
	bool           fuzzy;		/* it overlapped with another one */
	uint64_t       mark[2];		/* the test's */
};

struct load {
	struct rig    *rig;
	struct model  *model;
	uint64_t       dice;		/* not 0 */
	unsigned       depth;		/* at most LOAD_DEPTH */
	unsigned       discards, reads, flushes;	/* of 100 operations */
	unsigned       overlaps;	/* of 100 that could wait for others */
	uint32_t       cluster;		/* sectors */
	uint32_t       longest;		/* sectors of one operation */
	bool           errors;		/* may happen */
	bool           alone;		/* nothing is under way at a flush */
	/* The test's; may be NULL. */
	void         (*begun)(struct load *l, struct load_op *o);
	void         (*ended)(struct load *l, struct load_op *o, int error);
	void          *test;
	/* The load's own. */
	struct load_op ops[LOAD_DEPTH];
};

uint64_t load_dice(struct load *l, uint64_t below);	/* 0 ... below - 1 */

/* One operation more; waits until there is room for it. */
void load_one(struct load *l);
void load_drain(struct load *l);
int  load_flush(struct load *l);

/*
 * Do it again, alone: a write gets a new version.  What it ends with.
 */
int  load_again(struct load *l, enum io_op op, uint32_t first,
         uint32_t count);

/* Read every sector and hold it against the model. */
bool load_check(struct load *l, bool learn, char why[WHY_MAX]);
void load_verify(struct load *l, bool learn);	/* the test fails */

#endif
