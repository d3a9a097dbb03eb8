/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * ringback: ask the daemon to attach and detach disks, and what it serves.
 *
 * One row of the table of commands is one command: usage() and main() read the
 * same rows, so a command cannot exist without its help.  A command makes one
 * question of its arguments and shows one answer; blkback/control.h says what
 * they look like.  A few find their answer themselves (inspect.c, bench.c).
 *
 * Exit status: 0 done, 1 failed, 2 called wrongly; of check also 3.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "blkback/control.h"
#include "tools/ringback.h"

#define COUNT(a)    (sizeof(a) / sizeof((a)[0]))
#define GRACE       5		/* seconds that we wait after the daemon's */
#define TIMEOUT_MAX 86400	/* seconds; a day, as the daemon's */

enum {
	OPT_READONLY = 1 << 0,
	OPT_TIMEOUT  = 1 << 1,
	OPT_NO_WAIT  = 1 << 2,
	OPT_RUN_DIR  = 1 << 3,
	OPT_JSON     = 1 << 4,
	OPT_HELP     = 1 << 5,
	OPT_VERSION  = 1 << 6,
	OPT_ALL      = 1 << 7,
	OPT_CDROM    = 1 << 8,
	OPT_BENCH    = 1 << 9,	/* and those above it: one of bench's */
	OPT_GLOBAL   = OPT_RUN_DIR | OPT_JSON | OPT_HELP | OPT_VERSION,
};

/* What the command line asks for. */
struct call {
	const struct command *cmd;
	char      **args;	/* of the command, without its name */
	unsigned    given;	/* OPT_... */
	int         timeout;	/* seconds */
	const char *run_dir;
	const char *bench[BENCH_NR];
};

static int ask_attach(const struct call *c, json_t **question);
static int ask_detach(const struct call *c, json_t **question);
static int ask_eject(const struct call *c, json_t **question);
static int ask_insert(const struct call *c, json_t **question);
static int ask_list(const struct call *c, json_t **question);
static int ask_resume(const struct call *c, json_t **question);
static int ask_resize(const struct call *c, json_t **question);
static int ask_stats(const struct call *c, json_t **question);
static int ask_hotplug(const struct call *c, json_t **question);
static int find_info(const struct call *c, json_t **answer);
static int find_check(const struct call *c, json_t **answer);
static int find_bench(const struct call *c, json_t **answer);
static int show_info(const struct call *c, const json_t *answer);
static int show_check(const struct call *c, const json_t *answer);
static int show_bench(const struct call *c, const json_t *answer);
static int show_attach(const struct call *c, const json_t *answer);
static int show_nothing(const struct call *c, const json_t *answer);
static int show_resize(const struct call *c, const json_t *answer);
static int show_list(const struct call *c, const json_t *answer);
static int show_stats(const struct call *c, const json_t *answer);

static const struct command {
	const char *name;
	int         nr_args;	/* that there must be; */
	int         nr_more;	/* that there may be besides */
	unsigned    options;	/* besides the global ones */
	const char *args, *help;
	int       (*ask)(const struct call *c, json_t **question);
	int       (*show)(const struct call *c, const json_t *answer);
	int       (*find)(const struct call *c, json_t **answer);	/* or */
				/* NULL: instead of asking the daemon */
} commands[] = {
	{ "attach", 3, 0,
	  OPT_READONLY | OPT_CDROM | OPT_TIMEOUT | OPT_NO_WAIT,
	  "DOMAIN VDEV SPEC [--readonly] [--cdrom] [--timeout S] [--no-wait]",
	  "give a disk to a running domain, wait until it has connected",
	  ask_attach, show_attach, NULL },
	{ "detach", 2, 0, OPT_TIMEOUT | OPT_ALL,
	  "DOMAIN VDEV | --all [--timeout S]",
	  "take a disk away again, wait until the domain has let go; or all",
	  ask_detach, show_nothing, NULL },
	{ "eject", 2, 0, OPT_TIMEOUT,
	  "DOMAIN VDEV [--timeout S]",
	  "take the medium out of a CD-ROM drive",
	  ask_eject, show_nothing, NULL },
	{ "insert", 3, 0, OPT_TIMEOUT,
	  "DOMAIN VDEV SPEC [--timeout S]",
	  "put a medium, or another one, into a CD-ROM drive",
	  ask_insert, show_nothing, NULL },
	{ "resume", 2, 0, 0,
	  "DOMAIN VDEV",
	  "issue again what failed and waits (on-error=stop)",
	  ask_resume, show_nothing, NULL },
	{ "resize", 2, 1, OPT_TIMEOUT,
	  "DOMAIN VDEV [SIZE|+SIZE] [--timeout S]",
	  "make a disk larger; without SIZE, as large as its file or device",
	  ask_resize, show_resize, NULL },
	{ "list", 0, 0, 0,
	  "",
	  "print one line per disk",
	  ask_list, show_list, NULL },
	{ "stats", 2, 0, 0,
	  "DOMAIN VDEV | --prometheus [DOMAIN [VDEV]]",
	  "print the counters of a disk",
	  ask_stats, show_stats, NULL },
	{ "top", 0, 0, 0,
	  "[--interval S] [--count N] [--sort COLUMN] [--batch]",
	  "show what all disks do; the daemon need not run",
	  NULL, NULL, NULL },
	{ "inflight", 0, 0, 0,
	  "[DOMAIN [VDEV]]",
	  "print the requests in flight; the daemon need not run",
	  NULL, NULL, NULL },
	{ "info", 1, 0, 0,
	  "SPEC",
	  "print what an image is; the daemon need not run",
	  NULL, show_info, find_info },
	{ "check", 1, 0, 0,
	  "SPEC",
	  "look for damage in an image that nobody writes to; 3: leaks only",
	  NULL, show_check, find_check },
	{ "bench", 1, 0, OPT_BENCH,
	  "SPEC [--preset NAME] [--rw KIND] [--write] ...",
	  "measure a disk, without a guest; the daemon need not run",
	  NULL, show_bench, find_bench },
	{ "compare", 1, 0, 0,
	  "[OPTION]... NAME=TARGET [NAME=TARGET]...",
	  "measure several backends on the same grid of I/O, in turn",
	  NULL, NULL, NULL },
	{ "hotplug", 1, 0, 0,
	  "add|remove",
	  "for the script block-ringback: XENBUS_PATH names the disk",
	  ask_hotplug, show_nothing, NULL },
};

static const struct option options[] = {
	{ "readonly", no_argument,       NULL, OPT_READONLY },
	{ "cdrom",    no_argument,       NULL, OPT_CDROM },
	{ "timeout",  required_argument, NULL, OPT_TIMEOUT },
	{ "all",      no_argument,       NULL, OPT_ALL },
	{ "no-wait",  no_argument,       NULL, OPT_NO_WAIT },
	{ "run-dir",  required_argument, NULL, OPT_RUN_DIR },
	{ "json",     no_argument,       NULL, OPT_JSON },
	{ "help",     no_argument,       NULL, OPT_HELP },
	{ "version",  no_argument,       NULL, OPT_VERSION },
	{ "rw",       required_argument, NULL, OPT_BENCH + BENCH_RW },
	{ "rwmixread", required_argument, NULL, OPT_BENCH + BENCH_RWMIXREAD },
	{ "bs",       required_argument, NULL, OPT_BENCH + BENCH_BS },
	{ "depth",    required_argument, NULL, OPT_BENCH + BENCH_DEPTH },
	{ "jobs",     required_argument, NULL, OPT_BENCH + BENCH_JOBS },
	{ "time",     required_argument, NULL, OPT_BENCH + BENCH_TIME },
	{ "size",     required_argument, NULL, OPT_BENCH + BENCH_SIZE },
	{ "seed",     required_argument, NULL, OPT_BENCH + BENCH_SEED },
	{ "flush",    no_argument,       NULL, OPT_BENCH + BENCH_FLUSH },
	{ "verify",   no_argument,       NULL, OPT_BENCH + BENCH_VERIFY },
	{ "preset",   required_argument, NULL, OPT_BENCH + BENCH_PRESET },
	{ "write",    no_argument,       NULL, OPT_BENCH + BENCH_WRITE },
	{ NULL,       0,                 NULL, 0 },
};

static void
usage(FILE *to)
{
	size_t i;

	fprintf(to, "usage: ringback [--run-dir DIR] [--json] COMMAND ...\n\n");
	for (i = 0; i < COUNT(commands); i++)
		fprintf(to, "  %s%s%s\n        %s\n", commands[i].name,
		    commands[i].args[0] != '\0' ? " " : "", commands[i].args,
		    commands[i].help);
	fprintf(to,
	    "\n"
	    "  --run-dir DIR  where the daemon's control socket is (%s)\n"
	    "  --json         print the answer as it is, in JSON\n"
	    "  --timeout S    how long to wait for the guest (%d seconds)\n"
	    "  --all          every disk, for the shutdown of a host\n"
	    "  --no-wait      do not wait for the guest\n"
	    "  --readonly     refuse the guest's writes\n"
	    "  --cdrom        a CD-ROM drive; it may be empty (SPEC: raw:)\n"
	    "  --help, --version\n"
	    "\n"
	    "A SPEC is format[,option=value...]:path, as in raw:/srv/vm.img\n",
	    CONTROL_RUN_DIR, CONTROL_TIMEOUT);
	watch_help(to);
	bench_help(to);
	compare_help(to);
}

/*
 * Text that comes from the daemon, from xenstore or from a file name must not
 * move the cursor of the terminal that shows it.  UTF-8 passes.
 */
void
print_clean(FILE *to, const char *text)
{
	for (; *text != '\0'; text++)
		putc((unsigned char)*text < ' ' || *text == '\x7f' ? '?' :
		    *text, to);
}

int
say_failed(bool json, const char *fmt, va_list ap)
{
	char text[2048];
	json_t *o;

	if (vsnprintf(text, sizeof(text), fmt, ap) < 0)
		text[0] = '\0';
	fputs("ringback: ", stderr);
	print_clean(stderr, text);
	putc('\n', stderr);
	if (json) {
		o = json_pack("{s:b, s:o}", "ok", 0, "error",
		    inspect_text(text));
		if (o != NULL && json_dumpf(o, stdout, JSON_COMPACT) == 0)
			putchar('\n');
		json_decref(o);
	}
	return FAILED;
}

int
give_up(const struct call *c, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say_failed(c->given & OPT_JSON, fmt, ap);
	va_end(ap);
	return FAILED;
}

/* The rows of the help that matter: of one command, if it is known. */
static int
misused(const struct call *c, const char *fmt, const char *what)
{
	fprintf(stderr, "ringback: ");
	fprintf(stderr, fmt, what);
	fprintf(stderr, "\n\n");
	if (c->cmd != NULL)
		fprintf(stderr, "usage: ringback %s %s\n", c->cmd->name,
		    c->cmd->args);
	else
		usage(stderr);
	return MISUSED;
}

int
talk(const struct call *c, const char *question, json_t **answer)
{
	char why[TALK_WHY];

	*answer = talk_ask(c->run_dir, question, c->timeout + GRACE, why);
	return *answer != NULL ? DONE : give_up(c, "%s", why);
}

/* ---- the questions --------------------------------------------------------
 *
 * DONE, or MISUSED, said.  *question is NULL when JSON cannot hold it.
 */
static int
ask_attach(const struct call *c, json_t **question)
{
	*question = json_pack("{s:s, s:s, s:s, s:s, s:b, s:b, s:b, s:i}",
	    "op", "attach", "domain", c->args[0], "vdev", c->args[1],
	    "spec", c->args[2],
	    "readonly", (c->given & OPT_READONLY) != 0,
	    "cdrom", (c->given & OPT_CDROM) != 0,
	    "wait", (c->given & OPT_NO_WAIT) == 0,
	    "timeout", c->timeout);
	return DONE;
}

static int
ask_and_wait(const struct call *c, const char *op, json_t **question)
{
	*question = json_pack("{s:s, s:s, s:s, s:i}", "op", op,
	    "domain", c->args[0], "vdev", c->args[1], "timeout", c->timeout);
	return DONE;
}

static int
ask_detach(const struct call *c, json_t **question)
{
	return ask_and_wait(c, "detach", question);
}

static int
ask_eject(const struct call *c, json_t **question)
{
	return ask_and_wait(c, "eject", question);
}

static int
ask_insert(const struct call *c, json_t **question)
{
	*question = json_pack("{s:s, s:s, s:s, s:s, s:i}", "op", "insert",
	    "domain", c->args[0], "vdev", c->args[1], "spec", c->args[2],
	    "timeout", c->timeout);
	return DONE;
}

static int
ask_list(const struct call *c, json_t **question)
{
	(void)c;
	*question = json_pack("{s:s}", "op", "list");
	return DONE;
}

static int
ask_about(const struct call *c, const char *op, json_t **question)
{
	*question = json_pack("{s:s, s:s, s:s}", "op", op,
	    "domain", c->args[0], "vdev", c->args[1]);
	return DONE;
}

static int
ask_resume(const struct call *c, json_t **question)
{
	return ask_about(c, "resume", question);
}

static int
ask_resize(const struct call *c, json_t **question)
{
	const char *text = c->args[2];	/* NULL: as large as its file */
	bool more = text != NULL && text[0] == '+';
	uint64_t size = 0;

	if (text != NULL && (!parse_number(text + more, true, 1, INT64_MAX,
	    &size) || size % 512 != 0))
		return misused(c, "resize: %s is no multiple of 512 bytes (K, "
		    "M, G or T may follow)", text);
	*question = json_pack("{s:s, s:s, s:s, s:i}", "op", "resize",
	    "domain", c->args[0], "vdev", c->args[1], "timeout", c->timeout);
	if (text != NULL && json_object_set_new(*question,
	    more ? "more" : "size", json_integer((json_int_t)size)) != 0) {
		json_decref(*question);
		*question = NULL;
	}
	return DONE;
}

static int
ask_stats(const struct call *c, json_t **question)
{
	return ask_about(c, "stats", question);
}

static int
ask_hotplug(const struct call *c, json_t **question)
{
	const char *backend = getenv("XENBUS_PATH");

	if (strcmp(c->args[0], "add") != 0 && strcmp(c->args[0], "remove") != 0)
		return misused(c, "hotplug: add or remove, not %s", c->args[0]);
	if (backend == NULL || backend[0] == '\0')
		return misused(c, "hotplug: %s is not set; xl sets it for its "
		    "scripts", "XENBUS_PATH");
	*question = json_pack("{s:s, s:s, s:s}", "op", "hotplug",
	    "action", c->args[0], "backend", backend);
	return DONE;
}

/* ---- the answers that are found here ------------------------------------- */

static int
find_info(const struct call *c, json_t **answer)
{
	return inspect_info(c->args[0], answer);
}

static int
find_check(const struct call *c, json_t **answer)
{
	return inspect_check(c->args[0], answer);
}

static int
find_bench(const struct call *c, json_t **answer)
{
	return bench_run(c->args[0], c->bench, answer);
}

static int
show_bench(const struct call *c, const json_t *answer)
{
	(void)c;
	bench_show(answer);
	return DONE;
}

static int
show_info(const struct call *c, const json_t *answer)
{
	(void)c;
	inspect_show_info(answer);
	return DONE;
}

static int
show_check(const struct call *c, const json_t *answer)
{
	(void)c;
	inspect_show_check(answer);
	return DONE;
}

/* ---- the answers --------------------------------------------------------- */

static int
show_nothing(const struct call *c, const json_t *answer)
{
	(void)c;
	(void)answer;
	return DONE;
}

static int
show_attach(const struct call *c, const json_t *answer)
{
	(void)answer;
	print_clean(stdout, c->args[1]);
	printf(c->given & OPT_NO_WAIT ? " is offered to " :
	    " is connected to ");
	print_clean(stdout, c->args[0]);
	putchar('\n');
	return DONE;
}

/* 1536 -> "1.5K"; what has a digit more than that is "about". */
void
format_bytes(uint64_t bytes, char *buf, size_t size)
{
	static const char units[] = "BKMGTPE";
	double value = (double)bytes;
	size_t i = 0;

	while (value >= 1024 && units[i + 1] != '\0') {
		value /= 1024;
		i++;
	}
	if (i == 0)
		snprintf(buf, size, "%" PRIu64, bytes);
	else
		snprintf(buf, size, value == (double)(uint64_t)value ?
		    "%.0f%c" : "%.1f%c", value, units[i]);
}

static int
show_resize(const struct call *c, const json_t *answer)
{
	print_clean(stdout, c->args[1]);
	printf(" has %" JSON_INTEGER_FORMAT " bytes now%s\n",
	    json_integer_value(json_object_get(answer, "size")),
	    json_is_true(json_object_get(answer, "told")) ?
	    ", and the guest knows" : "");
	return DONE;
}

/* Columns of `list`: a key of the answer each, the last one is not padded. */
static const struct column {
	const char *title, *key;
} columns[] = {
	{ "DOMAIN",   "domid" },
	{ "NAME",     "domain" },
	{ "VDEV",     "vdev" },
	{ "KIND",     "kind" },
	{ "BACKEND",  "state" },
	{ "FRONTEND", "frontend-state" },
	{ "SIZE",     "size" },
	{ "MODE",     "readonly" },
	{ "QUEUES",   "queues" },
	{ "PID",      "pid" },
	{ "SPEC",     "spec" },
};

/*
 * The text of one cell: borrowed from the answer or put into 'buf'.  Of a disk
 * that is not open there is no size, without a process no pid: these are 0.
 */
static const char *
cell_text(const json_t *disk, const struct column *col, char *buf, size_t size)
{
	const json_t *v = json_object_get(disk, col->key);
	json_int_t n = json_integer_value(v);

	snprintf(buf, size, "-");
	if (json_is_string(v) && json_string_value(v)[0] != '\0')
		return json_string_value(v);
	if (json_is_boolean(v))
		snprintf(buf, size, "%s", json_is_true(v) ? "ro" : "rw");
	if (!json_is_integer(v))
		return buf;
	if (strcmp(col->key, "size") == 0 && n > 0)
		format_bytes((uint64_t)n, buf, size);
	else if (n != 0 || strcmp(col->key, "domid") == 0)
		snprintf(buf, size, "%" JSON_INTEGER_FORMAT, n);
	return buf;
}

/* Columns on the screen that a text of UTF-8 takes, near enough. */
static size_t
text_width(const char *text)
{
	size_t n = 0;

	for (; *text != '\0'; text++)
		if ((*text & 0xc0) != 0x80)
			n++;
	return n;
}

static void
print_cell(const char *text, size_t width)
{
	size_t n = text_width(text);

	print_clean(stdout, text);
	while (n++ < width)
		putchar(' ');
}

static int
show_list(const struct call *c, const json_t *answer)
{
	const json_t *disks = json_object_get(answer, "disks"), *disk, *error;
	size_t width[COUNT(columns)], i, k, w;
	char buf[32];

	if (!json_is_array(disks))
		return give_up(c, TALK_STRANGE);
	for (k = 0; k < COUNT(columns); k++) {
		width[k] = strlen(columns[k].title);
		json_array_foreach(disks, i, disk) {
			w = text_width(cell_text(disk, &columns[k], buf,
			    sizeof(buf)));
			if (w > width[k])
				width[k] = w;
		}
		width[k] += 2;
	}
	width[COUNT(columns) - 1] = 0;

	for (k = 0; k < COUNT(columns); k++)
		print_cell(columns[k].title, width[k]);
	putchar('\n');
	json_array_foreach(disks, i, disk) {
		for (k = 0; k < COUNT(columns); k++)
			print_cell(cell_text(disk, &columns[k], buf,
			    sizeof(buf)), width[k]);
		putchar('\n');
		error = json_object_get(disk, "error");
		if (json_is_string(error)) {
			printf("        ");
			print_clean(stdout, json_string_value(error));
			putchar('\n');
		}
	}
	return DONE;
}

static int
show_stats(const struct call *c, const json_t *answer)
{
	const json_t *s = json_object_get(answer, "stats");

	if (!json_is_object(s))
		return give_up(c, TALK_STRANGE);
	stats_show(s);
	return DONE;
}

/* ---- the command line ---------------------------------------------------- */

static int
parse_timeout(const char *text, int *seconds)
{
	char *end;
	long n;

	errno = 0;
	n = strtol(text, &end, 10);
	if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 ||
	    n < 1 || n > TIMEOUT_MAX)
		return MISUSED;
	*seconds = (int)n;
	return DONE;
}

/* The options of the whole line; getopt moves them before the words. */
static int
parse_options(int argc, char **argv, struct call *c)
{
	const char *value;
	int opt;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (opt == '?') {
			putc('\n', stderr);	/* getopt has said it */
			usage(stderr);
			return MISUSED;
		}
		value = optarg != NULL ? optarg : "";
		if (opt >= OPT_BENCH) {
			c->bench[opt - OPT_BENCH] = value;
			continue;
		}
		c->given |= (unsigned)opt;
		if (opt == OPT_RUN_DIR)
			c->run_dir = value;
		if (opt == OPT_TIMEOUT &&
		    parse_timeout(value, &c->timeout) != DONE)
			return misused(c, "--timeout %s: 1 to 86400 (seconds)",
			    value);
	}
	return DONE;
}

static unsigned
option_bit(int val)
{
	return val < OPT_BENCH ? (unsigned)val : OPT_BENCH;
}

static bool
was_given(const struct call *c, int val)
{
	return val < OPT_BENCH ? (c->given & (unsigned)val) != 0 :
	    c->bench[val - OPT_BENCH] != NULL;
}

static int
parse_command(int argc, char **argv, struct call *c)
{
	int nr_args = c->given & OPT_ALL ? 0 : -1;
	const struct option *o;
	size_t i;
	int most;

	if (argc == 0)
		return misused(c, "which command?%s", "");
	for (i = 0; i < COUNT(commands); i++)
		if (strcmp(argv[0], commands[i].name) == 0)
			c->cmd = &commands[i];
	if (c->cmd == NULL)
		return misused(c, "there is no command \"%s\"", argv[0]);
	c->args = argv + 1;
	if (c->cmd->show == NULL)
		return misused(c, "%s has to be the first word", argv[0]);
	if (nr_args < 0)
		nr_args = c->cmd->nr_args;
	if (argc - 1 < nr_args)
		return misused(c, "%s: an argument is missing", argv[0]);
	most = nr_args + (nr_args > 0 ? c->cmd->nr_more : 0);
	if (argc - 1 > most)
		return misused(c, "one argument too many: %s", argv[1 + most]);
	for (o = options; o->name != NULL; o++)
		if (was_given(c, o->val) && !(option_bit(o->val) &
		    (c->cmd->options | OPT_GLOBAL)))
			return misused(c, "--%s does not go with that command",
			    o->name);
	return DONE;
}

/* DONE with *line to be freed. */
static int
make_line(const struct call *c, char **line)
{
	json_t *question = NULL;
	char *text;
	int rc;

	rc = c->cmd->ask(c, &question);
	if (rc != DONE)
		return rc;
	text = question != NULL ? json_dumps(question, JSON_COMPACT) : NULL;
	json_decref(question);
	if (text == NULL)
		return give_up(c, "the arguments cannot be sent to ringbackd: "
		    "are they UTF-8?");
	rc = asprintf(line, "%s\n", text);
	free(text);
	if (rc == -1)
		return give_up(c, "out of memory");
	if (rc > CONTROL_LINE_MAX) {
		free(*line);
		return give_up(c, "the arguments are too long for ringbackd");
	}
	return DONE;
}

static int
ask(const struct call *c, json_t **answer)
{
	char *line = NULL;
	int rc;

	rc = make_line(c, &line);
	if (rc != DONE)
		return rc;
	rc = talk(c, line, answer);
	free(line);
	if (rc != DONE)
		*answer = NULL;
	return rc;
}

static void
print_error(const json_t *answer)
{
	const char *error = json_string_value(json_object_get(answer, "error"));

	fputs("ringback: ", stderr);
	print_clean(stderr, error != NULL ? error :
	    "ringbackd could not do it and does not say why");
	putc('\n', stderr);
}

/* A command that finds its own answer has said what the status is. */
static int
run(const struct call *c)
{
	json_t *answer = NULL;
	int rc, status;

	if (c->given & OPT_ALL)
		status = detach_all(c, c->timeout, &answer);
	else
		status = c->cmd->find != NULL ? c->cmd->find(c, &answer) :
		    ask(c, &answer);
	if (answer == NULL)
		return c->cmd->find != NULL ? give_up(c, "out of memory") :
		    status;

	rc = DONE;
	if (c->given & OPT_JSON &&
	    (json_dumpf(answer, stdout, JSON_COMPACT) == -1 ||
	    putchar('\n') == EOF))
		rc = FAILED;
	if (!json_is_true(json_object_get(answer, "ok"))) {
		print_error(answer);
		rc = status != DONE ? status : FAILED;
	} else if (!(c->given & OPT_JSON)) {
		rc = c->cmd->show(c, answer);
	}
	json_decref(answer);
	return rc == DONE ? status : rc;
}

static int
answer_line(int argc, char **argv)
{
	struct call c = {
		.timeout = CONTROL_TIMEOUT, .run_dir = CONTROL_RUN_DIR,
	};
	int rc;

	rc = parse_options(argc, argv, &c);
	if (rc == DONE && c.given & OPT_HELP)
		usage(stdout);
	else if (rc == DONE && c.given & OPT_VERSION)
		printf("ringback %s\n", RINGBACK_VERSION);
	else if (rc == DONE)
		rc = parse_command(argc - optind, argv + optind, &c);
	if (rc == DONE && c.cmd != NULL)
		rc = run(&c);
	return rc;
}

int
main(int argc, char **argv)
{
	int rc;

	/* The options of compare are not those of the others. */
	if (argc > 1 && strcmp(argv[1], "compare") == 0)
		rc = compare_main(argc - 1, argv + 1);
	else if (watch_is(argc, argv))
		rc = watch_main(argc, argv);
	else
		rc = answer_line(argc, argv);
	if (fflush(stdout) == EOF && rc == DONE) {
		fprintf(stderr, "ringback: write the output: %s\n",
		    strerror(errno));
		rc = FAILED;
	}
	return rc;
}
