/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * layer_rig: a folder of qcow2 images that are made, changed and opened.
 */
#ifndef TESTS_LAYER_RIG_H
#define TESTS_LAYER_RIG_H

#include "drivers/qcow2_layer.h"
#include "tests/driver_rig.h"

#define MiB (1024ull * 1024)

extern char dir[512];		/* ours, removed in the end */
extern char why[WHY_MAX];
extern struct qcow2_layer *top;	/* what is open */
extern unsigned nr_fds;		/* when nothing is */

/* Calls that fail, and names that change before the open. */
extern struct shim {
	int    pread;		/* the nth from now fails with EIO */
	int    alloc;		/* likewise, out of memory */
	size_t bytes;		/* what was allocated so far */
	int    stat;		/* after the nth from now this happens: */
	void (*after_stat)(void);
} shim;

int setup(void **state);
int teardown(void **state);

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

/* A shell command in our folder. */
#define run(...) \
	do { \
		char c_[1500]; \
		snprintf(c_, sizeof(c_), __VA_ARGS__); \
		if (rig_shell(NULL, 0, "cd %s && { %s; } >/dev/null 2>&1", \
		    dir, c_) != 0) \
			fail_msg("%s", c_); \
	} while (0)

/* The path of one of ours; good until the call after the next. */
const char *at(const char *name);

/* Write bytes, given in hex, into a file; read eight of them. */
void poke(const char *name, uint64_t offset, const char *hex);
uint64_t peek(const char *name, uint64_t offset);

int  chain_open_roots(const char *name, bool readonly,
         const char *const *roots);
int  chain_open(const char *name, bool readonly);
void chain_close(void);

/* The test fails unless it opens, or is refused in these words. */
void opens(const char *name, bool readonly);
void refused(const char *name, bool readonly, int error, const char *words);

/* The message has all of these, in this order, separated by '|'. */
void says(const char *words);

/* The best of some opens that end with 'rc', in ms: others want to run, too. */
double time_open(const char *name, int rc);

#endif
