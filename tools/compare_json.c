/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * compare_json: the result of ringback compare as JSON, and an earlier one as
 * the baseline.
 *
 * "cells" has for each cell and each column the number of every run that counts
 * (null: it failed), what comes of them, and for all columns but the first the
 * ratio of the first one to it.  A baseline is an earlier file of that kind;
 * what it says is checked as any input is.
 */
#include <stdio.h>
#include <string.h>

#include "blkback/control.h"
#include "tools/compare.h"
#include "tools/ringback.h"

#define LAYOUT 1

/* ---- out ----------------------------------------------------------------- */

static const char *
verdict_name(const struct compare_result *r)
{
	static const char *const names[] = {
		[STATS_AHEAD] = "ahead", [STATS_BEHIND] = "behind",
		[STATS_UNDECIDED] = "undecided",
	};

	if (r->failed)
		return "failed";
	return r->ratio.n == 0 ? "none" : names[r->verdict];
}

static json_t *
interval_new(const struct stats_interval *i)
{
	if (i->n == 0)
		return json_null();
	return json_pack("{s:I, s:f, s:f, s:f}", "n", (json_int_t)i->n,
	    "median", i->median, "low", i->low, "high", i->high);
}

/* 0: it was not told. */
static json_t *
number_new(double n)
{
	return n > 0 ? json_real(n) : json_null();
}

static json_t *
runs_new(const struct compare *c, size_t cell, size_t column)
{
	json_t *a = json_array();
	unsigned i;

	for (i = 1; i <= c->repeats; i++)
		json_array_append_new(a, number_new(compare_run_at(c, cell,
		    column, i)->number[RUN_BYTES]));
	return a;
}

static json_t *
result_new(const struct compare *c, size_t cell, size_t column)
{
	struct compare_result r;
	json_t *o;

	compare_result(c, cell, column, &r);
	o = json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:i, s:b}",
	    "runs_bw_bytes", runs_new(c, cell, column),
	    "bw_bytes", interval_new(&r.speed), "iops", number_new(r.ios),
	    "clat_p50_ns", number_new(r.p50), "clat_p99_ns", number_new(r.p99),
	    "backend_cpu_ns_per_io", number_new(r.cpu),
	    "failed_runs", (int)c->failed[cell][column], "failed", r.failed);
	if (column == 0)
		return o;
	json_object_set_new(o, "ratio", interval_new(&r.ratio));
	if (!compare_is_limit(&c->column[column]))
		json_object_set_new(o, "verdict",
		    json_string(verdict_name(&r)));
	return o;
}

static json_t *
cells_new(const struct compare *c)
{
	json_t *cells = json_array(), *columns;
	char name[32];
	size_t cell, i;

	for (cell = 0; cell < c->nr_cells; cell++) {
		columns = json_object();
		for (i = 0; i < c->nr_columns; i++)
			json_object_set_new(columns, c->column[i].name,
			    result_new(c, cell, i));
		compare_cell_name(&c->cell[cell], name);
		json_array_append_new(cells, json_pack("{s:s, s:s, s:I, s:I, "
		    "s:o}", "cell", name, "rw", c->cell[cell].write ? "write" :
		    "read", "bs", (json_int_t)c->cell[cell].block, "qd",
		    (json_int_t)c->cell[cell].depth, "columns", columns));
	}
	return cells;
}

static json_t *
columns_new(const struct compare *c)
{
	static const char *const checks[] = {
		[CHECK_NOT] = "no", [CHECK_PASSED] = "passed",
		[CHECK_FAILED] = "failed",
	};
	json_t *a = json_array();
	size_t i;

	for (i = 0; i < c->nr_columns; i++)
		json_array_append_new(a, json_pack("{s:s, s:s, s:s?, s:s, s:o}",
		    "name", c->column[i].name, "target", c->column[i].target,
		    "note", c->column[i].note, "verified",
		    checks[c->column[i].check], "why",
		    inspect_text(c->column[i].why)));
	return a;
}

static const char *
pattern(const struct compare *c)
{
	return c->random ? "random" : "sequential";
}

json_t *
compare_json(const struct compare *c)
{
	return json_pack("{s:i, s:s, s:s, s:s, s:i, s:f, s:b, s:o, s:o}",
	    "ringback compare", LAYOUT, "ringback version", RINGBACK_VERSION,
	    "first", c->column[0].name, "pattern", pattern(c),
	    "repeats", (int)c->repeats, "seconds", c->seconds,
	    "interrupted", c->interrupted, "columns", columns_new(c),
	    "cells", cells_new(c));
}

/* ---- the baseline -------------------------------------------------------- */

/* The columns of that cell then; NULL: it was not in it. */
static const json_t *
cell_then(const struct compare *c, size_t cell)
{
	const json_t *all = json_object_get(c->then, "cells"), *one, *name;
	char now[32];
	size_t i;

	compare_cell_name(&c->cell[cell], now);
	json_array_foreach(all, i, one) {
		name = json_object_get(one, "cell");
		if (json_is_string(name) &&
		    strcmp(json_string_value(name), now) == 0)
			return json_object_get(one, "columns");
	}
	return NULL;
}

/* False: it was not measured then. */
static bool
interval_then(const struct compare *c, size_t cell, size_t column,
    struct stats_interval *i)
{
	const json_t *o = json_object_get(json_object_get(cell_then(c, cell),
	    c->column[column].name), column == 0 ? "bw_bytes" : "ratio");

	if (!json_is_object(o))
		return false;
	i->n = (size_t)json_integer_value(json_object_get(o, "n"));
	i->median = json_number_value(json_object_get(o, "median"));
	i->low = json_number_value(json_object_get(o, "low"));
	i->high = json_number_value(json_object_get(o, "high"));
	return i->n > 0 && i->low > 0 && i->low <= i->median &&
	    i->median <= i->high;
}

/*
 * Ratios do not change with the machine's mood: they are what is compared.
 * The speed of the first column is, when there is no other.
 */
static size_t
from_column(const struct compare *c)
{
	return c->nr_columns > 1 ? 1 : 0;
}

int
compare_load_baseline(struct compare *c)
{
	struct stats_interval i;
	json_error_t error;
	const char *first, *kind;
	size_t cell, column;

	c->then = json_load_file(c->baseline, 0, &error);
	if (c->then == NULL)
		return compare_misused("--baseline %s: line %d: %s",
		    c->baseline, error.line, error.text);
	if (json_integer_value(json_object_get(c->then, "ringback compare")) !=
	    LAYOUT)
		return compare_misused("--baseline %s: not what --json of this "
		    "version writes", c->baseline);
	kind = json_string_value(json_object_get(c->then, "pattern"));
	if (kind == NULL || strcmp(kind, pattern(c)) != 0)
		return compare_misused("--baseline %s: it has --rw %s, this "
		    "run %s", c->baseline, kind != NULL ? kind : "?",
		    pattern(c));
	first = json_string_value(json_object_get(c->then, "first"));
	if (first == NULL || strcmp(first, c->column[0].name) != 0)
		return compare_misused("--baseline %s: its ratios are those of "
		    "%s, not of %s", c->baseline, first != NULL ? first : "?",
		    c->column[0].name);
	for (cell = 0; cell < c->nr_cells; cell++)
		for (column = from_column(c); column < c->nr_columns; column++)
			if (interval_then(c, cell, column, &i))
				return DONE;
	return compare_misused("--baseline %s: it has no cell and target in "
	    "common with this run", c->baseline);
}

static void
show_worse(const struct compare *c, size_t cell, size_t column,
    const struct stats_interval *now, const struct stats_interval *then)
{
	char name[32];
	double unit = column == 0 ? 1e6 : 1;

	compare_cell_name(&c->cell[cell], name);
	printf("  worse: %s, %s%s: %.2f [%.2f-%.2f]%s, was %.2f [%.2f-%.2f]\n",
	    name, column == 0 ? "" : "/ ", c->column[column].name,
	    now->median / unit, now->low / unit, now->high / unit,
	    column == 0 ? " MB/s" : "", then->median / unit, then->low / unit,
	    then->high / unit);
}

int
compare_with_baseline(const struct compare *c)
{
	struct stats_interval now, then;
	struct compare_result r;
	size_t cell, column, compared = 0, worse = 0;

	printf("\nagainst %s:\n", c->baseline);
	for (cell = 0; cell < c->nr_cells; cell++)
		for (column = from_column(c); column < c->nr_columns;
		     column++) {
			compare_result(c, cell, column, &r);
			now = column == 0 ? r.speed : r.ratio;
			if (!interval_then(c, cell, column, &then) ||
			    now.n < STATS_ENOUGH || then.n < STATS_ENOUGH)
				continue;
			compared++;
			if (!stats_worse(&now, &then))
				continue;
			worse++;
			show_worse(c, cell, column, &now, &then);
		}
	printf("  %zu compared, %zu worse (its interval lies wholly below the "
	    "one then)\n", compared, worse);
	if (compared == 0)
		printf("  both need %u ratios or more of a cell\n",
		    STATS_ENOUGH);
	return worse == 0 && compared > 0 ? DONE : FAILED;
}
