/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * compare: several backends on the same grid of I/O, in turn.
 *
 * The machine changes while this runs: it gets hot, others use it, files grow.
 * So the backends take turns within each cell, each repeat begins with another
 * one, and only what was measured in the same repeat is divided.  Nothing is
 * timed before it was seen to work.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/compare.h"
#include "tools/ringback.h"

/* ---- what was found ------------------------------------------------------ */

/* Repeat 0 is the one that does not count. */
struct compare_run *
compare_run_at(const struct compare *c, size_t cell, size_t column,
    unsigned repeat)
{
	return &c->runs[(cell * c->nr_columns + column) * (c->repeats + 1) +
	    repeat];
}

/* One number of each run that counts. */
static void
series(const struct compare *c, size_t cell, size_t column,
    enum compare_number what, double *value)
{
	const struct compare_run *run = compare_run_at(c, cell, column, 1);
	unsigned i;

	for (i = 0; i < c->repeats; i++)
		value[i] = run[i].number[what];
}

static size_t
drop_zeros(double *value, size_t n)
{
	size_t i, kept = 0;

	for (i = 0; i < n; i++)
		if (value[i] > 0)
			value[kept++] = value[i];
	return kept;
}

static double
median(const struct compare *c, size_t cell, size_t column,
    enum compare_number what)
{
	double value[COMPARE_REPEATS];

	series(c, cell, column, what, value);
	return stats_median(value, drop_zeros(value, c->repeats));
}

void
compare_result(const struct compare *c, size_t cell, size_t column,
    struct compare_result *r)
{
	double first[COMPARE_REPEATS], other[COMPARE_REPEATS];
	double ratio[COMPARE_REPEATS];

	memset(r, 0, sizeof(*r));
	series(c, cell, 0, RUN_BYTES, first);
	series(c, cell, column, RUN_BYTES, other);
	stats_interval(ratio, stats_ratios(first, other, c->repeats, ratio),
	    &r->ratio);
	stats_interval(other, drop_zeros(other, c->repeats), &r->speed);
	r->verdict = stats_judge(&r->ratio);
	r->failed = c->column[column].check == CHECK_FAILED ||
	    c->failed[cell][column] >= COMPARE_FAILS ||
	    (r->speed.n == 0 && c->failed[cell][column] > 0);
	r->ios = median(c, cell, column, RUN_IOS);
	r->p50 = median(c, cell, column, RUN_P50);
	r->p99 = median(c, cell, column, RUN_P99);
	r->cpu = median(c, cell, column, RUN_CPU);
}

/* ---- running ----------------------------------------------------------- */

static int
run_once(const struct compare *c, const struct compare_column *column,
    const struct compare_cell *cell, bool verify, struct compare_run *run,
    char why[WHY_MAX])
{
	char *command = compare_command(c, column, cell, verify), *out;
	size_t len;
	int rc;

	if (command == NULL) {
		why_set(why, "out of memory");
		return -ENOMEM;
	}
	rc = exec_run(command, c->seconds + c->timeout, &out, &len, why);
	free(command);
	if (rc != 0)
		return rc;
	/* One that verifies may do both, and print either. */
	if (!verify ||
	    compare_read_fio(out, len, !cell->write, run, why) < 0)
		rc = compare_read_fio(out, len, cell->write, run, why);
	free(out);
	return rc;
}

/* Is there something that verifies, and may it?  Else why not. */
static bool
can_verify(const struct compare *c, const struct compare_column *column,
    char why[WHY_MAX])
{
	if (!c->verify)
		why_set(why, "--no-verify");
	else if (!compare_is_command(column) && c->reads_only)
		why_set(why, "that would write: --destroy");
	else if (compare_is_command(column) &&
	    strstr(column->target, "{verify}") == NULL)
		why_set(why, "its command has no {verify}");
	else
		return true;
	return false;
}

/* Both directions, if it may be written to: written data is read. */
static void
verify_column(struct compare *c, struct compare_column *column)
{
	struct compare_cell cell = {
		.block = COMPARE_VERIFY_BLOCK, .depth = COMPARE_VERIFY_DEPTH,
	};
	struct compare_run run;
	char why[WHY_MAX];
	int rc = 0, write;

	if (!can_verify(c, column, column->why))
		return;
	for (write = !c->reads_only; rc == 0 && write >= 0; write--) {
		/* fio reads again what it wrote: that is both. */
		if (write == 0 && !compare_is_command(column))
			break;
		cell.write = write;
		rc = run_once(c, column, &cell, true, &run, why);
	}
	if (rc == -EINTR)
		return;
	column->check = rc == 0 ? CHECK_PASSED : CHECK_FAILED;
	if (rc != 0) {
		why_set(column->why, "%s: %.400s", cell.write ? "write" :
		    "read", why);
		compare_failed("%s: verification failed, it is left out: %s",
		    column->name, column->why);
	}
}

static void
time_one(struct compare *c, size_t cell, size_t column, unsigned repeat)
{
	struct compare_run *run = compare_run_at(c, cell, column, repeat);
	char why[WHY_MAX], name[32];
	int rc;

	if (c->column[column].check == CHECK_FAILED ||
	    c->failed[cell][column] >= COMPARE_FAILS)
		return;
	rc = run_once(c, &c->column[column], &c->cell[cell], false, run, why);
	if (rc == 0 || rc == -EINTR)
		return;
	memset(run, 0, sizeof(*run));
	c->failed[cell][column]++;
	compare_cell_name(&c->cell[cell], name);
	compare_failed("%s, %s, repeat %u: %s%s", c->column[column].name, name,
	    repeat, why, c->failed[cell][column] == COMPARE_FAILS ?
	    ": it is not tried again" : "");
}

static void
run_repeat(struct compare *c, unsigned repeat)
{
	size_t cell, i;

	if (repeat == 0)
		fprintf(stderr, "first repeat, which does not count\n");
	else
		fprintf(stderr, "repeat %u of %u\n", repeat, c->repeats);
	for (cell = 0; cell < c->nr_cells; cell++)
		for (i = 0; i < c->nr_columns; i++) {
			time_one(c, cell, (i + repeat) % c->nr_columns, repeat);
			if (exec_interrupted())
				return;
		}
	c->done = repeat;
}

static void
run_all(struct compare *c)
{
	size_t i;
	unsigned repeat;

	for (i = 0; i < c->nr_columns && !exec_interrupted(); i++)
		verify_column(c, &c->column[i]);
	/* With nothing to compare with, the rest is for nothing. */
	if (c->column[0].check == CHECK_FAILED)
		return;
	for (repeat = 0; repeat <= c->repeats && !exec_interrupted(); repeat++)
		run_repeat(c, repeat);
}

/* ---- the outcome --------------------------------------------------------- */

static int
save_json(const struct compare *c)
{
	json_t *o = compare_json(c);
	int rc = DONE;

	if (o == NULL)
		return compare_failed("%s: out of memory", c->json);
	errno = 0;
	if (json_dump_file(o, c->json, JSON_INDENT(1)) == -1)
		rc = compare_failed("write %s: %s", c->json, strerror(errno));
	json_decref(o);
	return rc;
}

static int
save_plot(const struct compare *c)
{
	FILE *f = fopen(c->plot, "w");
	int rc;

	if (f == NULL)
		return compare_failed("write %s: %s", c->plot, strerror(errno));
	rc = compare_plot(c, f);
	if (fclose(f) == EOF && rc == 0)
		rc = -errno;
	if (rc < 0)
		return compare_failed("write %s: %s", c->plot, strerror(-rc));
	return DONE;
}

static int
finish(const struct compare *c)
{
	struct compare_result r;
	size_t cell, i;
	int rc = c->interrupted ? FAILED : DONE;

	compare_show(c);
	for (i = 0; i < c->nr_columns; i++)
		for (cell = 0; cell < c->nr_cells; cell++) {
			compare_result(c, cell, i, &r);
			if (r.failed)
				rc = FAILED;
		}
	if (c->json != NULL && save_json(c) != DONE)
		rc = FAILED;
	if (c->plot != NULL && save_plot(c) != DONE)
		rc = FAILED;
	if (c->then != NULL && compare_with_baseline(c) != DONE)
		rc = FAILED;
	return rc;
}

int
compare_main(int argc, char **argv)
{
	struct compare *c = calloc(1, sizeof(*c));
	char why[WHY_MAX];
	int rc;

	if (c == NULL)
		return compare_failed("out of memory");
	rc = compare_options(c, argc, argv);
	if (rc == DONE && c->nr_columns > 0) {
		c->runs = calloc(c->nr_cells * c->nr_columns *
		    (c->repeats + 1), sizeof(*c->runs));
		if (c->runs == NULL)
			rc = compare_failed("out of memory");
		else if (c->baseline != NULL)
			rc = compare_load_baseline(c);
		if (rc == DONE && exec_begin(why) < 0)
			rc = compare_failed("%s", why);
		if (rc == DONE) {
			run_all(c);
			c->interrupted = exec_interrupted();
			exec_end();
			rc = finish(c);
		}
	}
	json_decref(c->then);
	free(c->runs);
	free(c);
	return rc;
}
