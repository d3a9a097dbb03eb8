/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * compare: what the parts of ringback compare share.
 *
 *   compare_options.c   the command line -> the first half of struct compare
 *   compare_exec.c      run one command and read what it prints
 *   compare_fio.c       the command of a run, and fio's JSON that comes of it
 *   compare.c           the order of the runs -> the second half
 *   compare_report.c    the table
 *   compare_json.c      JSON, and an earlier one read again as the baseline
 *   compare_plot.c      the picture
 *
 * Columns are what is compared, the first one with all others; cells are the
 * kinds of I/O; each has a number of repeats, and one before them that does not
 * count (caches are filled, images allocate, CPUs wake up).
 */
#ifndef TOOLS_COMPARE_H
#define TOOLS_COMPARE_H

#include <jansson.h>

#include "drivers/driver.h"
#include "tools/compare_stats.h"

#define COMPARE_COLUMNS 8u
#define COMPARE_CELLS   64u
#define COMPARE_REPEATS 999u
#define COMPARE_NAME    17u	/* with its end */
#define COMPARE_FAILS   3u	/* failed runs that give up a cell */
#define COMPARE_LIMIT   "limit"	/* the name of the column that is no peer */

/* Of the runs that verify. */
#define COMPARE_VERIFY_BLOCK 65536u
#define COMPARE_VERIFY_DEPTH 32u
#define COMPARE_VERIFY_BYTES "64M"	/* where fio is run by us */

struct compare_cell {
	bool     write;
	uint64_t block;		/* bytes */
	unsigned depth;
};

/* What one run found; BYTES is 0 when there was none, or it failed. */
enum compare_number {
	RUN_BYTES, RUN_IOS,	/* per second */
	RUN_P50, RUN_P99,	/* latency in ns; 0: not told */
	RUN_CPU,		/* of the backend, ns per I/O; 0: not told */
	RUN_NR,
};

struct compare_run {
	double number[RUN_NR];
};

enum compare_check { CHECK_NOT, CHECK_PASSED, CHECK_FAILED };

struct compare_column {
	char        name[COMPARE_NAME];
	const char *target;	/* a path, or a command behind '!' */
	const char *note;	/* NULL: none was given */
	enum compare_check check;
	char        why[WHY_MAX];	/* it failed, or is NOT */
};

struct compare {
	struct compare_column column[COMPARE_COLUMNS];
	struct compare_cell cell[COMPARE_CELLS];
	size_t      nr_columns, nr_cells;
	const char *guest_exec;	/* NULL: here */
	bool        random, verify, destroy;
	unsigned    repeats;	/* that count */
	double      seconds;	/* of each run */
	double      timeout;	/* how much longer it may take in all */
	const char *json, *plot, *baseline;	/* files, or NULL */

	bool        reads_only;	/* nobody has allowed writes */
	json_t     *then;	/* the baseline */
	struct compare_run *runs;	/* see compare_run_at() */
	unsigned    failed[COMPARE_CELLS][COMPARE_COLUMNS];	/* runs */
	unsigned    done;	/* repeats that were run to their end */
	bool        interrupted;
};

/* What is known of a column in a cell. */
struct compare_result {
	struct stats_interval speed;	/* bytes per second */
	struct stats_interval ratio;	/* first / this one */
	enum stats_verdict verdict;	/* for the ratio */
	bool   failed;
	double ios, p50, p99, cpu;	/* medians; 0: not told */
};

/* ---- compare_options.c ---- */
int  compare_options(struct compare *c, int argc, char **argv);
bool compare_is_limit(const struct compare_column *column);
bool compare_is_command(const struct compare_column *column);
void compare_cell_name(const struct compare_cell *cell, char buf[32]);

/* Say what is wrong; MISUSED. */
int  compare_misused(const char *fmt, ...)
         __attribute__((format(printf, 1, 2)));
/* ... FAILED */
int  compare_failed(const char *fmt, ...)
         __attribute__((format(printf, 1, 2)));

/* ---- compare_exec.c ---- */

/*
 * From begin to end an interrupt or a termination signal ends a command that
 * runs, and is remembered.
 */
int  exec_begin(char why[WHY_MAX]);
void exec_end(void);
bool exec_interrupted(void);

/*
 * Run a command of the shell, at most so many seconds.  0 with *out, *len to
 * be freed; -EINTR, -ETIMEDOUT, -ECHILD (it failed) or what the system says.
 */
int  exec_run(const char *command, double seconds, char **out, size_t *len,
         char why[WHY_MAX]);

/* ---- compare_fio.c ---- */

/* The command of a run, to be freed; NULL: no memory. */
char *compare_command(const struct compare *c,
         const struct compare_column *column, const struct compare_cell *cell,
         bool verify);

/* 0, or -EPROTO: 'text' is not what fio prints of a run that went well. */
int  compare_read_fio(const char *text, size_t len, bool write,
         struct compare_run *run, char why[WHY_MAX]);

/* ---- compare.c ---- */
struct compare_run *compare_run_at(const struct compare *c, size_t cell,
         size_t column, unsigned repeat);
void compare_result(const struct compare *c, size_t cell, size_t column,
         struct compare_result *r);

/* ---- compare_report.c ---- */
void compare_show(const struct compare *c);

/* ---- compare_json.c ---- */
json_t *compare_json(const struct compare *c);

/* 0 with c->then; or MISUSED, said. */
int  compare_load_baseline(struct compare *c);

/* Print what became of the ratios; DONE, or FAILED: one is worse. */
int  compare_with_baseline(const struct compare *c);

/* ---- compare_plot.c ---- */
int  compare_plot(const struct compare *c, FILE *to);	/* 0 or -errno */

#endif
