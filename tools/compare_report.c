/* SPDX-License-Identifier: GPL-2.0-or-later */
/* compare_report: the result of ringback compare for a person. */
#include <stdio.h>
#include <string.h>

#include "tools/compare.h"
#include "tools/ringback.h"

#define WIDTH   100
#define PER_ROW 4u		/* other columns beside each other */

/* Words with this between them, in lines of WIDTH. */
struct list {
	int indent, at;		/* at 0: nothing yet */
};

static void
list_add(struct list *l, const char *word)
{
	int n = (int)strlen(word);

	if (l->at == 0) {
		l->at = l->indent + n;
		printf("%s", word);
	} else if (l->at + 2 + n > WIDTH - 1) {
		l->at = l->indent + n;
		printf(",\n%*s%s", l->indent, "", word);
	} else {
		l->at += 2 + n;
		printf(", %s", word);
	}
}

/* ---- the head ------------------------------------------------------------ */

static void
show_column(const struct compare *c, const struct compare_column *column)
{
	printf("  %-*s  ", (int)COMPARE_NAME - 1, column->name);
	if (column->check == CHECK_PASSED)
		printf("verified; ");
	else if (column->check == CHECK_FAILED)
		printf("LEFT OUT, verification failed; ");
	else
		printf("not verified (%s); ", column->why[0] != '\0' ?
		    column->why : "interrupted");
	print_clean(stdout, column->note != NULL ? column->note :
	    "no --note says how it was set up");
	printf("\n  %*s", (int)COMPARE_NAME + 1, "");
	if (!compare_is_command(column)) {
		printf("fio (libaio, direct) on ");
		print_clean(stdout, column->target);
		if (c->guest_exec != NULL) {
			printf(", run by ");
			print_clean(stdout, c->guest_exec);
		}
	} else {
		print_clean(stdout, column->target + 1);
	}
	putchar('\n');
}

static void
show_head(const struct compare *c)
{
	const char *first = c->column[0].name;
	size_t i;

	printf("%s I/O, %g s a run, %u repeats in turns; one more before them "
	    "does not count.\n", c->random ? "Random" : "Sequential",
	    c->seconds, c->repeats);
	if (c->interrupted)
		printf("INTERRUPTED: %u of the repeats are complete.\n",
		    c->done);
	if (c->reads_only)
		printf("Only cells that read: --destroy would let fio write to "
		    "its targets.\n");
	for (i = 0; i < c->nr_columns; i++)
		show_column(c, &c->column[i]);
	printf("Cells are direction, size and number in flight.  Of %s the "
	    "median in MB/s (I/Os per second\nup to 4k)", first);
	if (c->nr_columns == 1) {
		printf("; there is nothing to compare it with.\n");
		return;
	}
	printf("; of the others the median ratio %s / other within a repeat "
	    "(above\n1: %s is faster) with its 95 %% interval (binomial, "
	    "between two of the ratios), and\n+ ahead, - behind, ? undecided: "
	    "the interval holds 1, or there are fewer than %u ratios.\n",
	    first, first, STATS_ENOUGH);
}

/* ---- the table ----------------------------------------------------------- */

/* Four characters, but for what no disk does. */
static void
short_number(double n, char buf[16])
{
	snprintf(buf, 16, "%.*f", n < 9.995 ? 2 : n < 99.95 ? 1 : 0, n);
}

static void
interval_text(const struct stats_interval *i, char buf[64])
{
	char median[16], low[16], high[16];

	short_number(i->median, median);
	short_number(i->low, low);
	short_number(i->high, high);
	snprintf(buf, 64, "%s [%s-%s]", median, low, high);
}

static void
show_speed(const struct compare *c, size_t cell)
{
	struct compare_result r;
	char name[32], speed[32];

	compare_cell_name(&c->cell[cell], name);
	compare_result(c, cell, 0, &r);
	if (r.failed)
		snprintf(speed, sizeof(speed), "failed");
	else if (r.speed.n == 0)
		snprintf(speed, sizeof(speed), "-");
	else if (c->cell[cell].block <= 4096 && r.ios < 10000)
		snprintf(speed, sizeof(speed), "%.0f/s", r.ios);
	else if (c->cell[cell].block <= 4096)
		snprintf(speed, sizeof(speed), "%.1fk/s", r.ios / 1e3);
	else
		snprintf(speed, sizeof(speed), "%.*f MB/s",
		    r.speed.median < 1e8, r.speed.median / 1e6);
	printf("%-13s %9s", name, speed);
}

static void
show_ratio(const struct compare *c, size_t cell, size_t column, bool last)
{
	static const char marks[] = {
		[STATS_AHEAD] = '+', [STATS_BEHIND] = '-',
		[STATS_UNDECIDED] = '?',
	};
	struct compare_result r;
	char text[64];

	compare_result(c, cell, column, &r);
	if (r.failed)
		snprintf(text, sizeof(text), "failed");
	else if (r.ratio.n == 0)
		snprintf(text, sizeof(text), "-");
	else
		interval_text(&r.ratio, text);
	if (r.failed || r.ratio.n == 0 || compare_is_limit(&c->column[column]))
		printf(last ? "  %s" : "  %-17s", text);
	else
		printf("  %*s%c", last ? 0 : -16, text, marks[r.verdict]);
}

/* The others from 'from' to 'to' - 1. */
static void
show_rows(const struct compare *c, size_t from, size_t to)
{
	size_t cell, i;

	printf("\n%-13s %9s", "", c->column[0].name);
	for (i = from; i < to; i++)
		printf(i + 1 < to ? "  %-17s" : "  %s", c->column[i].name);
	putchar('\n');
	for (cell = 0; cell < c->nr_cells; cell++) {
		show_speed(c, cell);
		for (i = from; i < to; i++)
			show_ratio(c, cell, i, i + 1 == to);
		putchar('\n');
	}
}

/* Of the columns whose runs tell it. */
static void
show_cpu(const struct compare *c)
{
	struct compare_result r;
	bool told[COMPARE_COLUMNS] = { false }, any = false;
	char name[32];
	size_t cell, i;

	for (i = 0; i < c->nr_columns; i++)
		for (cell = 0; cell < c->nr_cells; cell++) {
			compare_result(c, cell, i, &r);
			told[i] = told[i] || r.cpu > 0;
			any = any || told[i];
		}
	if (!any)
		return;
	printf("\nCPU of the backend, us per I/O\n%-13s", "");
	for (i = 0; i < c->nr_columns; i++)
		if (told[i])
			printf(" %*s", (int)COMPARE_NAME - 1,
			    c->column[i].name);
	putchar('\n');
	for (cell = 0; cell < c->nr_cells; cell++) {
		compare_cell_name(&c->cell[cell], name);
		printf("%-13s", name);
		for (i = 0; i < c->nr_columns; i++) {
			compare_result(c, cell, i, &r);
			if (told[i])
				printf(" %16.2f", r.cpu / 1e3);
		}
		putchar('\n');
	}
}

/* ---- what it comes to ---------------------------------------------------- */

/* The cells with that verdict; NULL: count only. */
static size_t
list_verdict(const struct compare *c, size_t column, int verdict,
    struct list *l)
{
	struct compare_result r;
	char name[32];
	size_t cell, n = 0;

	for (cell = 0; cell < c->nr_cells; cell++) {
		compare_result(c, cell, column, &r);
		if (r.ratio.n == 0 || r.failed || (int)r.verdict != verdict)
			continue;
		n++;
		compare_cell_name(&c->cell[cell], name);
		if (l != NULL)
			list_add(l, name);
	}
	return n;
}

static void
show_cells(const struct compare *c, size_t column, int verdict,
    const char *title)
{
	struct list l = { .indent = 13 };

	if (list_verdict(c, column, verdict, NULL) == 0)
		return;
	printf("  %-10s ", title);
	list_verdict(c, column, verdict, &l);
	putchar('\n');
}

static void
show_summary(const struct compare *c, size_t column)
{
	double value[COMPARE_CELLS];
	struct compare_result r;
	size_t cell, n = 0;

	for (cell = 0; cell < c->nr_cells; cell++) {
		compare_result(c, cell, column, &r);
		if (r.ratio.n > 0 && !r.failed)
			value[n++] = r.ratio.median;
	}
	printf("%s / %s: ", c->column[0].name, c->column[column].name);
	if (n == 0) {
		printf("nothing was measured\n");
		return;
	}
	printf("median of %zu cells %.2f", n, stats_median(value, n));
	if (compare_is_limit(&c->column[column])) {
		putchar('\n');
		return;
	}
	printf("; ahead %zu, behind %zu, undecided %zu\n",
	    list_verdict(c, column, STATS_AHEAD, NULL),
	    list_verdict(c, column, STATS_BEHIND, NULL),
	    list_verdict(c, column, STATS_UNDECIDED, NULL));
	show_cells(c, column, STATS_BEHIND, "behind:");
	show_cells(c, column, STATS_UNDECIDED, "undecided:");
}

/* Of all others that are peers. */
static void
show_all_peers(const struct compare *c)
{
	struct compare_result r;
	size_t cell, i, n = 0, peers = 0;
	bool ahead;

	for (i = 1; i < c->nr_columns; i++)
		peers += !compare_is_limit(&c->column[i]);
	if (peers == 0)
		return;
	for (cell = 0; cell < c->nr_cells; cell++) {
		ahead = true;
		for (i = 1; i < c->nr_columns; i++) {
			if (compare_is_limit(&c->column[i]))
				continue;
			compare_result(c, cell, i, &r);
			ahead = ahead && !r.failed &&
			    r.verdict == STATS_AHEAD;
		}
		n += ahead;
	}
	printf("%s is ahead of every peer in %zu of %zu cells\n",
	    c->column[0].name, n, c->nr_cells);
}

static void
show_failures(const struct compare *c)
{
	struct compare_result r;
	char name[32];
	size_t cell, i;

	for (i = 0; i < c->nr_columns; i++) {
		if (c->column[i].check == CHECK_FAILED)
			printf("%s: verification failed: %s\n",
			    c->column[i].name, c->column[i].why);
		for (cell = 0; cell < c->nr_cells; cell++) {
			if (c->failed[cell][i] == 0)
				continue;
			compare_result(c, cell, i, &r);
			compare_cell_name(&c->cell[cell], name);
			printf("%s, %s: %u runs failed%s\n", c->column[i].name,
			    name, c->failed[cell][i],
			    r.failed ? ", the cell is given up" : "");
		}
	}
}

void
compare_show(const struct compare *c)
{
	size_t from, to, i;

	show_head(c);
	for (from = 1; from == 1 || from < c->nr_columns; from = to) {
		to = from + PER_ROW < c->nr_columns ? from + PER_ROW :
		    c->nr_columns;
		show_rows(c, from, to);
		if (to <= from)
			break;
	}
	show_cpu(c);
	putchar('\n');
	for (i = 1; i < c->nr_columns; i++)
		show_summary(c, i);
	show_all_peers(c);
	show_failures(c);
}
