/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * ringback: what the parts of the command share.
 *
 * A command has an answer, a JSON object, whether the daemon gave it or it was
 * found out here; --json prints it as it is, else a function shows it.
 */
#ifndef TOOLS_RINGBACK_H
#define TOOLS_RINGBACK_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <jansson.h>

#include "drivers/driver.h"

/* Exit status; LEAKS is of check only. */
enum { DONE = 0, FAILED = 1, MISUSED = 2, LEAKS = 3 };

struct call;		/* what the command line asks for */

/*
 * Say what went wrong; with --json on stdout too, for who reads only that.
 * FAILED.
 */
int  say_failed(bool json, const char *fmt, va_list ap)
         __attribute__((format(printf, 2, 0)));
int  give_up(const struct call *c, const char *fmt, ...)
         __attribute__((format(printf, 2, 3)));

/*
 * talk.c: a question to the daemon, one line of JSON.  Its answer, an object
 * that has "ok", to be released; or NULL with 'why', a line for a person, also
 * when it takes longer than 'seconds'.
 */
#define TALK_WHY 8192u		/* bytes; a path may be in it */
#define TALK_STRANGE "ringbackd's answer is none that this ringback (version " \
	RINGBACK_VERSION ") understands: are both of one release?"
json_t *talk_ask(const char *run_dir, const char *question, int seconds,
         char why[TALK_WHY]);
int64_t now_ms(void);

/* The same, for the command in hand: DONE with *answer, or FAILED, said. */
int  talk(const struct call *c, const char *question, json_t **answer);

/* detach.c: the exit status; *answer as of inspect.c, or NULL: said. */
int  detach_all(const struct call *c, int timeout, json_t **answer);

/* Without what could move the cursor of a terminal. */
void print_clean(FILE *to, const char *text);

/* 1536 -> "1.5K". */
void format_bytes(uint64_t bytes, char *buf, size_t size);

/* stats.c: the counters of a disk, for a person. */
void stats_show(const json_t *stats);

/*
 * inspect.c: look into the image of a disk spec, without privileges once it
 * is open.  The exit status, with *answer to be released: {"ok": true, ...} or
 * {"ok": false, "error": "..."}; NULL: no memory.
 */
int  inspect_info(const char *spec, json_t **answer);
int  inspect_check(const char *spec, json_t **answer);
void inspect_show_info(const json_t *answer);
void inspect_show_check(const json_t *answer);

/* A path may hold any byte; JSON holds UTF-8.  NULL: no memory. */
json_t *inspect_text(const char *text);

/* Give up what the disk process gives up; root becomes nobody. */
int  inspect_confine(char why[WHY_MAX]);

/*
 * bench.c: load on the disk of a spec.  Of each option the value, "" for one
 * that has none, NULL when it was not given.
 */
enum bench_option {
	BENCH_RW, BENCH_RWMIXREAD, BENCH_BS, BENCH_DEPTH, BENCH_JOBS,
	BENCH_TIME, BENCH_SIZE, BENCH_SEED, BENCH_FLUSH, BENCH_VERIFY,
	BENCH_PRESET, BENCH_WRITE, BENCH_NR,
};
int  bench_run(const char *spec, const char *const value[BENCH_NR],
         json_t **answer);
void bench_show(const json_t *answer);
void bench_help(FILE *to);	/* of its options */

/* Digits, then K, M, G or T if 'suffix'; false: not that, or out of range. */
bool parse_number(const char *text, bool suffix, uint64_t min, uint64_t max,
         uint64_t *n);
bool parse_seconds(const char *text, double min, double max, double *seconds);

/* watch.c: is the line one of its commands?  The exit status. */
bool watch_is(int argc, char **argv);
int  watch_main(int argc, char **argv);
void watch_help(FILE *to);

/* compare.c: its words are its own.  The exit status. */
int  compare_main(int argc, char **argv);
void compare_help(FILE *to);

#endif
