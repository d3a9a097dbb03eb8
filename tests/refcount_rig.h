/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * refcount_rig: refcounts of an image that qemu-img makes and checks.
 *
 * The rig defines the calls that reach the file.  So each can be made to
 * fail, and each write is held to the order on disk: a table entry or a
 * header is written only when nothing that it points to still waits for a
 * sync.  What the object says through its ops makes a model, which all values
 * are compared with.  Clusters that are said to read as zeroes are read, and
 * then filled, so that the next owner cannot be lucky.
 */
#ifndef TESTS_REFCOUNT_RIG_H
#define TESTS_REFCOUNT_RIG_H

#include "drivers/qcow2_refcount.h"
#include "tests/driver_rig.h"

#define MiB         (1024ull * 1024)
#define MODEL       (1u << 17)		/* clusters that the model knows */
#define MAX_RUNS    8192
#define MAX_WAITING 65536

enum { PREAD, PWRITE, SYNC, FALLOCATE, TRUNCATE, KINDS };

struct range { uint64_t offset, bytes; };

struct rig_kernel {
	/* What the kernel does. */
	unsigned fail_at;	/* the call that fails; 0: none */
	int      error;
	bool     lies;		/* ... after it has done its work */
	uint64_t cap;		/* files do not grow beyond; 0: they may, */
	int      cap_error;	/* else with this error */
	int      punch_error;

	/* What it saw. */
	unsigned nr_calls, nr[KINDS], failed;
	struct range waiting[MAX_WAITING];	/* written, not synced */
	unsigned nr_waiting;
	unsigned nr_punched;
	uint64_t last_grow;	/* bytes */
};

struct rig_image {
	char     path[512];
	struct file f;
	struct qcow2_header h;
	struct qcow2_refcounts *r;
	uint64_t value[MODEL];
	bool     metadata[MODEL];
	struct range runs[MAX_RUNS];	/* in clusters */
	unsigned nr_runs, nr_tables;
	uint32_t table_clusters;	/* of the last one */
	bool     reserving, dropping;
	bool     untouched;		/* do not read and fill what is got */
	bool     zero;			/* what the last reserve said */
	char     why[WHY_MAX];
};

extern struct rig_kernel kernel;
extern struct rig_image img;

/* A new image; then the object on it, loaded or not. */
void img_make(unsigned cluster_bits, unsigned order, const char *size);
void img_open_at(size_t cache);
int  img_try_load(void);
void img_load(size_t cache);
void img_close(void);

/* Another object reads the file and finds what the model says. */
void img_reload(size_t cache);
void check_model(void);

/* 0: clean; 2: damaged; 3: leaks only. */
int  qemu_check(char *out, size_t size);

void write_back(void);

/* Read the ends of a cluster, past what the rig sees, and fill them. */
void cluster_use(uint64_t cluster, bool zero);

/* Reserve, and hold it to its contract; the run is remembered. */
int  reserve(uint64_t want);
int  drop_one(void);			/* the last run */
void drop_all(void);

/* These write when the cache wants that. */
int  reserve_or_write(uint64_t want);
int  set_or_write(uint64_t first, uint64_t count, uint64_t value);

/* All that was reserved is leaked, as far as qemu-img can see, then gone. */
void finish(void);

static inline uint64_t
bytes_of(uint64_t clusters)
{
	return clusters << img.h.cluster_bits;
}

#endif
