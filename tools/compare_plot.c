/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * compare_plot: the ratios of ringback compare as a picture (SVG).
 *
 * A row for each cell; in it, for each other column, a dot at the median ratio
 * and a line over its interval, on a logarithmic axis: twice as fast and half
 * as fast are equally far from 1.  A dot is hollow where nothing is decided;
 * the limit, which is no peer, is a square.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tools/compare.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* Pixels. */
#define WIDTH    900.0
#define LEFT     120.0		/* of the axis */
#define RIGHT    790.0
#define LINE     18.0		/* of the legend */
#define STEP     10.0		/* between columns in a row */
#define TICK_GAP 36.0

struct plot {
	const struct compare *c;
	FILE  *to;
	double low, high;	/* of the axis, logarithms */
	double top, row;	/* where rows begin, and their height */
};

/* Told apart by most of those who see few colours. */
static const char *const colours[COMPARE_COLUMNS] = { "#000000", "#0072b2",
	"#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9", "#7f3c8d" };

static const double ticks[] = { 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1,
	0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.3, 1.5, 2, 3, 5, 7, 10,
	20, 30, 50, 100, 200, 500, 1000 };

static const char *
colour_of(const struct plot *p, size_t column)
{
	return compare_is_limit(&p->c->column[column]) ? "#777777" :
	    colours[column];
}

static void
put_escaped(FILE *to, const char *text)
{
	for (; *text != '\0'; text++)
		switch (*text) {
		case '&':
			fputs("&amp;", to);
			break;
		case '<':
			fputs("&lt;", to);
			break;
		case '>':
			fputs("&gt;", to);
			break;
		default:
			/* XML has no way to say the others. */
			putc((unsigned char)*text < ' ' ? ' ' : *text, to);
		}
}

static void
put_text(const struct plot *p, double x, double y, const char *anchor,
    const char *text)
{
	fprintf(p->to, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y,
	    anchor);
	put_escaped(p->to, text);
	fputs("</text>\n", p->to);
}

static void
put_line(const struct plot *p, double x1, double y1, double x2, double y2,
    const char *colour, double width)
{
	fprintf(p->to, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" "
	    "stroke=\"%s\" stroke-width=\"%.1f\"/>\n", x1, y1, x2, y2, colour,
	    width);
}

static void
put_mark(const struct plot *p, size_t column, double x, double y, bool sure)
{
	const char *colour = colour_of(p, column);

	if (compare_is_limit(&p->c->column[column]))
		fprintf(p->to, "<rect x=\"%.1f\" y=\"%.1f\" width=\"6\" "
		    "height=\"6\" fill=\"%s\"/>\n", x - 3, y - 3, colour);
	else
		fprintf(p->to, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" "
		    "stroke=\"%s\" stroke-width=\"1.5\" fill=\"%s\"/>\n", x, y,
		    colour, sure ? colour : "#ffffff");
}

/* ---- the axis ------------------------------------------------------------ */

static double
x_of(const struct plot *p, double ratio)
{
	return LEFT + (log(ratio) - p->low) / (p->high - p->low) *
	    (RIGHT - LEFT);
}

/* All that is shown, and 1. */
static void
set_axis(struct plot *p)
{
	struct compare_result r;
	size_t cell, i;

	p->low = log(0.9);
	p->high = log(1.1);
	for (cell = 0; cell < p->c->nr_cells; cell++)
		for (i = 1; i < p->c->nr_columns; i++) {
			compare_result(p->c, cell, i, &r);
			if (r.ratio.n == 0)
				continue;
			p->low = fmin(p->low, log(r.ratio.low));
			p->high = fmax(p->high, log(r.ratio.high));
		}
	p->low -= 0.04 * (p->high - p->low);
	p->high += 0.04 * (p->high - p->low);
}

static void
put_tick(const struct plot *p, double ratio, double bottom)
{
	char text[32];
	double x = x_of(p, ratio);

	put_line(p, x, p->top, x, bottom, ratio == 1 ? "#000000" : "#dddddd",
	    ratio == 1 ? 1.5 : 1);
	snprintf(text, sizeof(text), "%g", ratio);
	put_text(p, x, p->top - 6, "middle", text);
	put_text(p, x, bottom + 15, "middle", text);
}

/* From 1 both ways, those that have room. */
static void
put_ticks(const struct plot *p, double bottom)
{
	size_t one = 0, i;
	double x, last;

	while (ticks[one] < 1)
		one++;
	put_tick(p, 1, bottom);
	last = x_of(p, 1);
	for (i = one + 1; i < COUNT(ticks); i++) {
		x = x_of(p, ticks[i]);
		if (x < last + TICK_GAP || x > RIGHT)
			continue;
		put_tick(p, ticks[i], bottom);
		last = x;
	}
	last = x_of(p, 1);
	for (i = one; i-- > 0;) {
		x = x_of(p, ticks[i]);
		if (x > last - TICK_GAP || x < LEFT)
			continue;
		put_tick(p, ticks[i], bottom);
		last = x;
	}
}

/* ---- the rows ------------------------------------------------------------ */

static void
put_ratio(const struct plot *p, size_t cell, size_t column, double y)
{
	struct compare_result r;

	compare_result(p->c, cell, column, &r);
	if (r.failed || r.ratio.n == 0) {
		put_text(p, RIGHT - 4, y + 4, "end", r.failed ? "failed" : "-");
		return;
	}
	put_line(p, x_of(p, r.ratio.low), y, x_of(p, r.ratio.high), y,
	    colour_of(p, column), 2);
	put_mark(p, column, x_of(p, r.ratio.median), y,
	    r.verdict != STATS_UNDECIDED);
}

static void
put_row(const struct plot *p, size_t cell)
{
	struct compare_result r;
	double y = p->top + p->row * (double)cell;
	char text[32];
	size_t i;

	compare_cell_name(&p->c->cell[cell], text);
	put_text(p, LEFT - 10, y + p->row / 2 + 4, "end", text);
	compare_result(p->c, cell, 0, &r);
	snprintf(text, sizeof(text), "%.*f MB/s", r.speed.median < 1e8,
	    r.speed.median / 1e6);
	put_text(p, WIDTH - 10, y + p->row / 2 + 4, "end", text);
	for (i = 1; i < p->c->nr_columns; i++)
		put_ratio(p, cell, i, y + STEP * ((double)i - 0.5) + 4);
}

static void
put_legend(const struct plot *p)
{
	const struct compare_column *column;
	char text[160];
	double y = 22;
	size_t i;

	snprintf(text, sizeof(text), "%s / other, %s I/O: median of %u repeats "
	    "and its 95 %% interval; right of 1 %s is faster",
	    p->c->column[0].name, p->c->random ? "random" : "sequential",
	    p->c->repeats, p->c->column[0].name);
	put_text(p, 10, y, "start", text);
	for (i = 0; i < p->c->nr_columns; i++) {
		y += LINE;
		column = &p->c->column[i];
		if (i > 0)
			put_mark(p, i, 20, y - 4, true);
		put_text(p, 32, y, "start", column->name);
		put_text(p, LEFT + 40, y, "start", column->note != NULL ?
		    column->note : "");
	}
}

int
compare_plot(const struct compare *c, FILE *to)
{
	struct plot p = { .c = c, .to = to };
	double bottom;
	size_t cell;

	set_axis(&p);
	p.row = STEP * (double)(c->nr_columns - 1) + 8;
	p.top = 60 + LINE * (double)c->nr_columns;
	bottom = p.top + p.row * (double)c->nr_cells;
	fprintf(to, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
	    "<!-- SPDX-License-Identifier: GPL-2.0-or-later -->\n"
	    "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" "
	    "height=\"%.0f\" font-family=\"sans-serif\" font-size=\"12\">\n"
	    "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n",
	    WIDTH, bottom + 30);
	put_legend(&p);
	put_text(&p, WIDTH - 10, p.top - 6, "end", c->column[0].name);
	for (cell = 0; cell < c->nr_cells; cell += 2)
		fprintf(to, "<rect x=\"0\" y=\"%.1f\" width=\"%.1f\" "
		    "height=\"%.1f\" fill=\"#f5f5f5\"/>\n",
		    p.top + p.row * (double)cell, WIDTH, p.row);
	put_ticks(&p, bottom);
	for (cell = 0; cell < c->nr_cells; cell++)
		put_row(&p, cell);
	fputs("</svg>\n", to);
	errno = 0;
	return fflush(to) == EOF || ferror(to) ? -(errno != 0 ? errno : EIO) :
	    0;
}
