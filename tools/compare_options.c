/* SPDX-License-Identifier: GPL-2.0-or-later */
/* compare_options: the command line of ringback compare. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/compare.h"
#include "tools/ringback.h"

#define COUNT(a)    (sizeof(a) / sizeof((a)[0]))
#define BLOCK_MAX   (UINT64_C(64) << 20)
#define DEPTH_MAX   1024u
#define SECONDS_MAX 86400.0

enum {
	OPT_GUEST_EXEC = 1, OPT_NOTE, OPT_CELLS, OPT_RW, OPT_REPEATS,
	OPT_SECONDS, OPT_TIMEOUT, OPT_JSON, OPT_PLOT, OPT_BASELINE,
	OPT_DESTROY, OPT_VERIFY, OPT_NO_VERIFY, OPT_HELP,
};

static const struct option options[] = {
	{ "guest-exec", required_argument, NULL, OPT_GUEST_EXEC },
	{ "note",       required_argument, NULL, OPT_NOTE },
	{ "cells",      required_argument, NULL, OPT_CELLS },
	{ "rw",         required_argument, NULL, OPT_RW },
	{ "repeats",    required_argument, NULL, OPT_REPEATS },
	{ "seconds",    required_argument, NULL, OPT_SECONDS },
	{ "timeout",    required_argument, NULL, OPT_TIMEOUT },
	{ "json",       required_argument, NULL, OPT_JSON },
	{ "plot",       required_argument, NULL, OPT_PLOT },
	{ "baseline",   required_argument, NULL, OPT_BASELINE },
	{ "destroy",    no_argument,       NULL, OPT_DESTROY },
	{ "verify",     no_argument,       NULL, OPT_VERIFY },
	{ "no-verify",  no_argument,       NULL, OPT_NO_VERIFY },
	{ "help",       no_argument,       NULL, OPT_HELP },
	{ NULL,         0,                 NULL, 0 },
};

/* The grid. */
static const uint64_t blocks[] = { 4 << 10, 64 << 10, 256 << 10, 1 << 20,
	4 << 20 };
static const unsigned depths[] = { 1, 32 };

void
compare_help(FILE *to)
{
	fprintf(to,
	    "\n"
	    "Of compare, which must be the first word; a target is a path, on "
	    "which fio is run,\n"
	    "or a command behind '!' that prints fio's JSON, with {rw} {bs} "
	    "{qd} {seconds} {verify}:\n"
	    "  --guest-exec CMD   what runs fio in the guest: 'ssh root@vm'\n"
	    "  --destroy      fio may overwrite what is on its targets; without"
	    "\n"
	    "                 it only the cells that read are run\n"
	    "  --note NAME=TEXT   what the table says of a column: cache mode, "
	    "ring\n"
	    "                 order, segments, polling, engine\n"
	    "  --cells LIST   read/4k/1,write/*/32 ... (all: 4k, 64k, 256k, 1m "
	    "and\n"
	    "                 4m, depth 1 and 32, read and write)\n"
	    "  --rw KIND      sequential or random (sequential)\n"
	    "  --repeats N    that count; there is one more before them (9)\n"
	    "  --seconds S    of each run (1)\n"
	    "  --timeout S    how much longer a run may take in all (60)\n"
	    "  --no-verify    do not verify each backend first (--verify)\n"
	    "  --json FILE, --plot FILE.svg   the results, besides the table\n"
	    "  --baseline FILE    compare with an earlier --json; 1: worse\n");
}

static void __attribute__((format(printf, 1, 0)))
complain(const char *fmt, va_list ap)
{
	char text[4096];

	if (vsnprintf(text, sizeof(text), fmt, ap) < 0)
		text[0] = '\0';
	fputs("ringback compare: ", stderr);
	print_clean(stderr, text);
	putc('\n', stderr);
}

int
compare_failed(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	complain(fmt, ap);
	va_end(ap);
	return FAILED;
}

int
compare_misused(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	complain(fmt, ap);
	va_end(ap);
	fputs("\nusage: ringback compare [OPTION]... NAME=TARGET "
	      "[NAME=TARGET]...\n", stderr);
	return MISUSED;
}

bool
compare_is_limit(const struct compare_column *column)
{
	return strcmp(column->name, COMPARE_LIMIT) == 0;
}

bool
compare_is_command(const struct compare_column *column)
{
	return column->target[0] == '!';
}

/* ---- cells --------------------------------------------------------------- */

/* "read 64k/32" */
void
compare_cell_name(const struct compare_cell *cell, char buf[32])
{
	uint64_t n = cell->block;
	const char *unit = "";

	if (n % (1 << 20) == 0) {
		n >>= 20;
		unit = "m";
	} else if (n % (1 << 10) == 0) {
		n >>= 10;
		unit = "k";
	}
	snprintf(buf, 32, "%s %" PRIu64 "%s/%u", cell->write ? "write" : "read",
	    n, unit, cell->depth);
}

static int
add_cell(struct compare *c, bool write, uint64_t block, unsigned depth)
{
	struct compare_cell *cell;
	size_t i;

	for (i = 0; i < c->nr_cells; i++) {
		cell = &c->cell[i];
		if (cell->write == write && cell->block == block &&
		    cell->depth == depth)
			return DONE;
	}
	if (c->nr_cells == COMPARE_CELLS)
		return compare_misused("--cells: more than %u", COMPARE_CELLS);
	c->cell[c->nr_cells++] = (struct compare_cell){ write, block, depth };
	return DONE;
}

/* All that the three words name; 0 is all of the grid. */
static int
add_cells(struct compare *c, const char *rw, uint64_t block, unsigned depth)
{
	size_t i, k, w;
	int rc = DONE;

	for (w = 0; w < 2; w++)
		for (k = 0; k < COUNT(depths); k++)
			for (i = 0; i < COUNT(blocks) && rc == DONE; i++) {
				if ((block != 0 && i > 0) ||
				    (depth != 0 && k > 0) ||
				    strcmp(rw, w == 0 ? "write" : "read") == 0)
					continue;
				rc = add_cell(c, w == 1, block != 0 ? block :
				    blocks[i], depth != 0 ? depth : depths[k]);
			}
	return rc;
}

/* RW/BS/QD, cut up here. */
static int
parse_cell(struct compare *c, char *text)
{
	char *bs = strchr(text, '/'), *qd = bs != NULL ? strchr(bs + 1, '/') :
	    NULL;
	uint64_t block = 0, depth = 0;

	if (qd == NULL)
		return compare_misused("--cells %s: give read/4k/1, or * for "
		    "any of the three", text);
	*bs++ = '\0';
	*qd++ = '\0';
	if (strcmp(text, "read") != 0 && strcmp(text, "write") != 0 &&
	    strcmp(text, "*") != 0)
		return compare_misused("--cells: \"%s\" is not read, write or "
		    "*", text);
	if (strcmp(bs, "*") != 0 && (!parse_number(bs, true, 512, BLOCK_MAX,
	    &block) || block % 512 != 0))
		return compare_misused("--cells: \"%s\" is not *, or 512 to 64M"
		    ", a multiple of 512 bytes", bs);
	if (strcmp(qd, "*") != 0 && !parse_number(qd, false, 1, DEPTH_MAX,
	    &depth))
		return compare_misused("--cells: \"%s\" is not *, or 1 to %u",
		    qd, DEPTH_MAX);
	return add_cells(c, text, block, (unsigned)depth);
}

static int
parse_cells(struct compare *c, const char *list)
{
	char *copy = strdup(list), *next = copy, *one;
	int rc = DONE;

	if (copy == NULL)
		return compare_failed("out of memory");
	while (rc == DONE && (one = strsep(&next, ",")) != NULL)
		rc = parse_cell(c, one);
	free(copy);
	return rc;
}

/* ---- columns ----------------------------------------------------------- */

/* It goes to JSON and into XML. */
static bool
is_text(const char *text)
{
	json_t *o = json_string(text);
	bool good = o != NULL;

	json_decref(o);
	return good;
}

static struct compare_column *
find_column(struct compare *c, const char *name, size_t len)
{
	size_t i;

	for (i = 0; i < c->nr_columns; i++)
		if (strlen(c->column[i].name) == len &&
		    strncmp(c->column[i].name, name, len) == 0)
			return &c->column[i];
	return NULL;
}

static int
check_target(const char *name, const char *target)
{
	static const char *const words[] = { "{rw}", "{bs}", "{qd}" };
	size_t i;

	if (!is_text(target))
		return compare_misused("%s: the target is not UTF-8", name);
	for (i = 0; target[0] == '!' && i < COUNT(words); i++)
		if (strstr(target, words[i]) == NULL)
			return compare_misused("%s: its command has no %s, so "
			    "it would measure the same in each cell", name,
			    words[i]);
	if (target[0] == '!')
		return DONE;
	if (target[0] != '/')
		return compare_misused("%s: \"%s\" is neither a path from / on "
		    "nor a command behind '!'", name, target);
	/* No shell and not fio see more than letters in it. */
	if (target[strspn(target, "abcdefghijklmnopqrstuvwxyz"
	    "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._+@-")] != '\0')
		return compare_misused("%s: the path %s has other characters "
		    "than letters, digits and /._+@-: give it another name, or "
		    "say the fio command behind '!'", name, target);
	return DONE;
}

static int
parse_column(struct compare *c, const char *text)
{
	const char *equals = strchr(text, '=');
	size_t len = equals != NULL ? (size_t)(equals - text) : 0;
	struct compare_column *column;

	if (len == 0 || len >= COMPARE_NAME ||
	    strspn(text, "abcdefghijklmnopqrstuvwxyz"
	    "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") != len)
		return compare_misused("%s: give NAME=TARGET, the name 1 to %u "
		    "letters, digits and ._-", text, COMPARE_NAME - 1);
	if (find_column(c, text, len) != NULL)
		return compare_misused("there are two columns of the name "
		    "%.*s", (int)len, text);
	if (c->nr_columns == COMPARE_COLUMNS)
		return compare_misused("more than %u targets", COMPARE_COLUMNS);
	column = &c->column[c->nr_columns++];
	memcpy(column->name, text, len);
	column->target = equals + 1;
	return check_target(column->name, column->target);
}

static int
parse_note(struct compare *c, const char *text)
{
	const char *equals = strchr(text, '=');
	struct compare_column *column = equals == NULL ? NULL :
	    find_column(c, text, (size_t)(equals - text));

	if (column == NULL)
		return compare_misused("--note %s: give NAME=TEXT, with the "
		    "name of a target", text);
	if (!is_text(equals + 1))
		return compare_misused("--note %s: the text is not UTF-8",
		    column->name);
	column->note = equals + 1;
	return DONE;
}

/* ---- options ----------------------------------------------------------- */

static int
parse_rw(struct compare *c, const char *text)
{
	c->random = strcmp(text, "random") == 0;
	if (c->random || strcmp(text, "sequential") == 0)
		return DONE;
	return compare_misused("--rw %s: sequential or random", text);
}

static int
parse_option(struct compare *c, int opt, const char *text)
{
	uint64_t n;

	switch (opt) {
	case OPT_GUEST_EXEC:
		c->guest_exec = text;
		break;
	case OPT_CELLS:
		return parse_cells(c, text);
	case OPT_RW:
		return parse_rw(c, text);
	case OPT_REPEATS:
		if (!parse_number(text, false, 1, COMPARE_REPEATS, &n))
			return compare_misused("--repeats %s: 1 to %u", text,
			    COMPARE_REPEATS);
		c->repeats = (unsigned)n;
		break;
	case OPT_SECONDS:
		if (!parse_seconds(text, 0.01, SECONDS_MAX, &c->seconds))
			return compare_misused("--seconds %s: 0.01 to 86400",
			    text);
		break;
	case OPT_TIMEOUT:
		if (!parse_seconds(text, 0.01, SECONDS_MAX, &c->timeout))
			return compare_misused("--timeout %s: 0.01 to 86400",
			    text);
		break;
	case OPT_JSON:
		c->json = text;
		break;
	case OPT_PLOT:
		c->plot = text;
		break;
	case OPT_BASELINE:
		c->baseline = text;
		break;
	case OPT_DESTROY:
		c->destroy = true;
		break;
	case OPT_VERIFY:
	case OPT_NO_VERIFY:
		c->verify = opt == OPT_VERIFY;
		break;
	default:
		return compare_misused("see ringback --help");
	}
	return DONE;
}

/* Without leave, nothing that writes is even in the list. */
static int
keep_reads(struct compare *c)
{
	size_t i, kept = 0;

	for (i = 0; i < c->nr_columns; i++)
		if (!compare_is_command(&c->column[i]) && !c->destroy)
			c->reads_only = true;
	if (!c->reads_only)
		return DONE;
	for (i = 0; i < c->nr_cells; i++)
		if (!c->cell[i].write)
			c->cell[kept++] = c->cell[i];
	c->nr_cells = kept;
	if (kept == 0)
		return compare_misused("writing would destroy what is on the "
		    "targets that are paths: say --destroy if none of that is "
		    "needed, or name cells that read");
	return DONE;
}

/* Notes name columns, which come after them on most lines. */
int
compare_options(struct compare *c, int argc, char **argv)
{
	const char *note[4 * COMPARE_COLUMNS];
	size_t nr_notes = 0, i;
	int opt, k, rc = DONE;

	c->repeats = 9;
	c->seconds = 1;
	c->timeout = 60;
	c->verify = true;
	optind = 1;
	while (rc == DONE &&
	    (opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (opt == OPT_HELP) {
			compare_help(stdout);
			return DONE;
		}
		if (opt != OPT_NOTE)
			rc = parse_option(c, opt, optarg);
		else if (nr_notes < COUNT(note))
			note[nr_notes++] = optarg;
		else
			rc = compare_misused("--note: too many");
	}
	for (k = optind; rc == DONE && k < argc; k++)
		rc = parse_column(c, argv[k]);
	for (i = 0; rc == DONE && i < nr_notes; i++)
		rc = parse_note(c, note[i]);
	if (rc == DONE && c->nr_columns == 0)
		rc = compare_misused("which targets?");
	if (rc == DONE && compare_is_limit(&c->column[0]))
		rc = compare_misused("the limit is no backend: name one first");
	if (rc == DONE && c->plot != NULL && c->nr_columns < 2)
		rc = compare_misused("--plot shows ratios: give two targets");
	if (rc == DONE && c->nr_cells == 0)
		rc = add_cells(c, "*", 0, 0);
	if (rc == DONE)
		rc = keep_reads(c);
	return rc;
}
