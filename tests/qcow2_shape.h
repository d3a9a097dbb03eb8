/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * qcow2_shape: images, made by qemu-img, in which writing is not simple, and
 * what qemu-img says of them afterwards.
 *
 * An image is made once and kept as bytes; each try gets a file that holds
 * them.  Backing files lie beside it and are never written.
 */
#ifndef TESTS_QCOW2_SHAPE_H
#define TESTS_QCOW2_SHAPE_H

#include "tests/disk_load.h"

enum shape_base { BASE_NONE, BASE_DATA, BASE_COMPRESSED, BASE_BACKING };

struct shape {
	const char     *name;
	const char     *options;	/* of qemu-img -o; NULL: raw */
	uint32_t        cluster;	/* bytes */
	unsigned        window_kib;	/* of the model */
	unsigned        nr_windows;
	unsigned        stride_mib;	/* 0: one follows the other */
	enum shape_base base;		/* what was there at first */
	bool            snapshot;	/* of that, named s1 */
};

extern const struct shape shapes[];
extern const unsigned nr_shapes;
extern const struct shape shape_raw;	/* to try the tests themselves */

struct bytes {
	uint8_t *p;
	uint64_t size;
};

/* Folders and such; before all else. */
void shape_setup(void);

/* Make it.  'file' is where each try has it, and all that is beside it. */
void shape_make(const struct shape *s, char file[512], struct bytes *b);
void shape_remove(char file[512], struct bytes *b);

/* What the model of a new one looks like; model_bytes() of zeroes. */
uint32_t shape_sectors(const struct shape *s);
void shape_model(const struct shape *s, struct model *m);

void bytes_write(const struct bytes *b, const char *file);
void bytes_read(struct bytes *b, const char *file);

/* How the driver names it. */
const char *shape_format(const struct shape *s);

/*
 * Between open and activate: let the driver reserve but a few clusters ahead
 * and keep but a few changed slices, so that what was freed is used again
 * soon and write-back is frequent.  It does so for 'dice' in 3 of 4.
 */
void shape_starve(const struct shape *s, struct image *img, uint64_t dice);

/*
 * Ask qemu-img check.  false: it found errors, and printed them; else
 * *leaks clusters are lost.  A raw image is always right.
 */
bool shape_check(const struct shape *s, const char *file, unsigned *leaks);

/* Is the snapshot what it was? */
bool shape_check_snapshot(const struct shape *s, const char *file);

/* A number from the environment, or what it is without. */
unsigned long setting(const char *name, unsigned long otherwise);

#endif
