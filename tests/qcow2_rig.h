/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * qcow2_rig: a qcow2 image next to a raw one that holds the same, and what
 * lies where in its file.  Names are of files in layer_rig's folder.
 */
#ifndef TESTS_QCOW2_RIG_H
#define TESTS_QCOW2_RIG_H

#include "tests/layer_rig.h"

#define KiB 1024ull

extern struct rig disk;

/* 'model' becomes what qemu-img reads from the image. */
void model_make(const char *name);

/* Open with discard, as a test that needs it goes on. */
void disk_open(const char *name, bool readonly);
void disk_close(void);
void disk_abandon(void);	/* deactivate may fail */

/* What the driver reads is the model. */
void disk_is_model(void);

/* The whole of it reads as this byte. */
bool disk_holds(uint64_t offset, uint64_t length, uint8_t byte);

/* What it ends with. */
int  disk_read(uint64_t offset, uint64_t length);
int  disk_write(uint64_t offset, uint64_t length);
int  disk_discard(uint64_t offset, uint64_t length);

/* Write to the image and to the model; discard, and zeroes in the model. */
void both_write(uint64_t offset, uint64_t length);
void both_discard(uint64_t offset, uint64_t length);

/* qemu-img finds nothing wrong, no leak either, and reads the model. */
void image_is_clean(const char *name);
void image_is_model(const char *name);

/* Exit status of qemu-img check. */
int  image_status(const char *name);

/* Where the L2 entry of a guest offset lies; it must have a table. */
uint64_t entry_at(const char *name, uint64_t guest);
uint64_t entry_of(const char *name, uint64_t guest);

/* 4 MiB of blocks of 64 KiB: noise, noise and zeroes, one byte, zeroes. */
void make_source(const char *name);

#endif
