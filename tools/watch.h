/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * watch: the commands that look at page files: top, inflight, and stats with
 * --prometheus.  The daemon is asked for one thing, the names of domains, and
 * need not be there for it.
 */
#ifndef TOOLS_WATCH_H
#define TOOLS_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <jansson.h>

#include "blkback/look.h"

#define WATCH_NAME_MAX 128u	/* bytes of a domain's name, NUL included */

enum watch_sort {
	SORT_DISK, SORT_IOPS, SORT_MB, SORT_LATENCY, SORT_INFLIGHT,
	SORT_ERRORS, SORT_CPU, NR_SORTS
};

struct watch {
	const char *run_dir;
	const char *domain, *vdev;	/* NULL: all */
	bool        json;
	bool        batch;
	double      interval;		/* seconds */
	uint64_t    count;		/* 0: for ever */
	enum watch_sort sort;
	json_t     *names;		/* the daemon's list of disks; NULL */
	int64_t     asked;		/* for it, the last time; seconds */
};

/* What the command line says, from the command's name on.  The exit status. */
int  top_run(struct watch *w);
int  inflight_run(struct watch *w);
int  prometheus_run(struct watch *w);

/*
 * The disks that it is about; 'disks' is to be freed.  The exit status: FAILED
 * is said, and is what a disk that was named and is not there gets.
 */
int  watch_disks(struct watch *w, struct look_disk **disks, size_t *nr);

/* The domain's name; its number where nobody knows the name. */
void watch_name(const struct watch *w, uint32_t domid,
         char name[WATCH_NAME_MAX]);

/* Say what failed; with --json, who reads stdout learns it too.  FAILED. */
int  watch_fail(const struct watch *w, const char *fmt, ...)
         __attribute__((format(printf, 2, 3)));

/* Its page file cannot be read: why. */
const char *watch_why(int error);

/*
 * top.c, pure: what happened to one disk between two looks at it.  'known' is
 * false when they cannot be compared: it was attached anew in between, or its
 * counters went back.
 */
struct top_rates {
	bool   known;
	double ops[2], bytes[2];	/* read, write; per second */
	double mean_ns, max_ns;		/* of all operations; the max may be */
					/* up to twice too high */
	double cpu;			/* of one CPU; -1: not known */
};
void top_rates(const struct look_disk *before, const struct look_disk *now,
         double seconds, struct top_rates *r);

/* prometheus.c, pure: what may not stand in the value of a label. */
void prometheus_escape(FILE *to, const char *text);

#endif
