/* SPDX-License-Identifier: GPL-2.0-or-later */
/* watch: the command line, the disks it is about, their names (see watch.h). */
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "blkback/control.h"
#include "tools/ringback.h"
#include "tools/watch.h"

#define COUNT(a)     (sizeof(a) / sizeof((a)[0]))
#define NAMES_WAIT   1		/* seconds; it may hang */
#define NAMES_AGAIN  5		/* seconds; some have no name */
#define INTERVAL_MIN 0.01	/* seconds */
#define INTERVAL_MAX 86400.0

static const char *const sorts[NR_SORTS] = {
	"disk", "iops", "mb", "latency", "inflight", "errors", "cpu",
};

static const struct kind {
	const char *name, *args;
	int       (*run)(struct watch *w);
} kinds[] = {
	{ "top", "[--interval S] [--count N] [--sort COLUMN] [--batch]",
	  top_run },
	{ "inflight", "[DOMAIN [VDEV]]", inflight_run },
	{ "stats", "--prometheus [DOMAIN [VDEV]]", prometheus_run },
};

enum { OPT_RUN_DIR = 1, OPT_JSON, OPT_INTERVAL, OPT_COUNT, OPT_SORT,
	OPT_BATCH, OPT_PROMETHEUS };

static const struct option options[] = {
	{ "run-dir",    required_argument, NULL, OPT_RUN_DIR },
	{ "json",       no_argument,       NULL, OPT_JSON },
	{ "interval",   required_argument, NULL, OPT_INTERVAL },
	{ "count",      required_argument, NULL, OPT_COUNT },
	{ "sort",       required_argument, NULL, OPT_SORT },
	{ "batch",      no_argument,       NULL, OPT_BATCH },
	{ "prometheus", no_argument,       NULL, OPT_PROMETHEUS },
	{ NULL,         0,                 NULL, 0 },
};

void
watch_help(FILE *to)
{
	size_t i;

	fprintf(to, "\nOf top, inflight and stats:\n"
	    "  --interval S   seconds from one sample of top to the next (1)\n"
	    "  --count N      end after so many samples\n"
	    "  --batch        one table below the other, as without a "
	    "terminal\n"
	    "  --sort COLUMN  the largest first:");
	for (i = SORT_DISK + 1; i < NR_SORTS; i++)
		fprintf(to, "%s %s", i > SORT_DISK + 1 ? "," : "", sorts[i]);
	fprintf(to, "\n  --prometheus   the counters of stats, for "
	    "node_exporter's textfile collector\n");
}

int
watch_fail(const struct watch *w, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say_failed(w->json, fmt, ap);
	va_end(ap);
	return FAILED;
}

const char *
watch_why(int error)
{
	return error == -EPROTO ? "its page file is none of this release, or "
	    "is damaged" : strerror(-error);
}

/* ---- names --------------------------------------------------------------- */

/* The daemon's list, if it answers soon; NULL is fine. */
static json_t *
ask_names(const char *run_dir)
{
	json_t *answer, *disks;
	char why[TALK_WHY];

	answer = talk_ask(run_dir, "{\"op\":\"list\"}\n", NAMES_WAIT, why);
	disks = json_incref(json_object_get(answer, "disks"));
	json_decref(answer);
	if (json_is_array(disks))
		return disks;
	json_decref(disks);
	return NULL;
}

/* NULL: not known. */
static const char *
find_name(const struct watch *w, uint32_t domid)
{
	const json_t *disk, *n;
	const char *name;
	size_t i;

	json_array_foreach(w->names, i, disk) {
		n = json_object_get(disk, "domid");
		name = json_string_value(json_object_get(disk, "domain"));
		if (json_is_integer(n) && json_integer_value(n) == domid &&
		    name != NULL && name[0] != '\0')
			return name;
	}
	return NULL;
}

void
watch_name(const struct watch *w, uint32_t domid, char name[WATCH_NAME_MAX])
{
	const char *known = find_name(w, domid);

	if (known == NULL || snprintf(name, WATCH_NAME_MAX, "%s", known) >=
	    (int)WATCH_NAME_MAX)
		snprintf(name, WATCH_NAME_MAX, "%u", domid);
}

/* Ask again when there is a disk that the last answer did not name. */
static void
learn_names(struct watch *w, const struct look_disk *d, size_t nr)
{
	size_t i;

	for (i = 0; i < nr && find_name(w, d[i].domid) != NULL; i++)
		;
	if (i == nr || time(NULL) - w->asked < NAMES_AGAIN)
		return;
	w->asked = time(NULL);
	json_decref(w->names);
	w->names = ask_names(w->run_dir);
}

/* ---- which disks --------------------------------------------------------- */

static bool
is_wanted(const struct watch *w, const struct look_disk *d, uint32_t devid)
{
	char number[16];
	const char *name = find_name(w, d->domid);

	if (w->vdev != NULL && d->devid != devid)
		return false;
	snprintf(number, sizeof(number), "%u", d->domid);
	return w->domain == NULL || strcmp(w->domain, number) == 0 ||
	    (name != NULL && strcmp(w->domain, name) == 0);
}

int
watch_disks(struct watch *w, struct look_disk **disks, size_t *nr)
{
	struct look_disk *d = NULL;
	size_t n, i, left = 0;
	uint32_t devid = 0;
	int rc;

	if (w->vdev != NULL && vdev_parse(w->vdev, &devid) < 0)
		return watch_fail(w, "%s is no name of a disk", w->vdev);
	rc = look_disks(w->run_dir, &d, &n);
	if (rc < 0)
		return watch_fail(w, "cannot read %s: %s; it is ringbackd's, "
		    "and only root may: say --run-dir if it runs with another "
		    "one", w->run_dir, strerror(-rc));
	learn_names(w, d, n);
	for (i = 0; i < n; i++)
		if (is_wanted(w, &d[i], devid))
			d[left++] = d[i];
	if (left > 0 || w->domain == NULL) {
		*disks = d;
		*nr = left;
		return DONE;
	}
	free(d);
	return watch_fail(w, "no disk %s%sof domain %s is served%s",
	    w->vdev != NULL ? w->vdev : "", w->vdev != NULL ? " " : "",
	    w->domain, w->names != NULL ? "; see ringback list" :
	    " (ringbackd does not answer, so domains are known by number "
	    "only)");
}

/* ---- the command line ---------------------------------------------------- */

/* Does the next word belong to this one? */
static bool
takes_value(const char *word)
{
	size_t i;

	for (i = 0; i < COUNT(options) - 1; i++)
		if (options[i].has_arg == required_argument &&
		    strcmp(word + 2, options[i].name) == 0)
			return true;
	return false;
}

/*
 * The first word that is no option, or NULL.  getopt could tell, but is not to
 * have moved anything if the line is another's.
 */
static const char *
find_command(int argc, char **argv)
{
	int i;

	for (i = 1; i < argc; i++) {
		if (strncmp(argv[i], "--", 2) != 0)
			return argv[i];
		if (takes_value(argv[i]))
			i++;
	}
	return NULL;
}

bool
watch_is(int argc, char **argv)
{
	const char *word = find_command(argc, argv);
	bool prometheus = false;
	int i;

	for (i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--help") == 0 ||
		    strcmp(argv[i], "--version") == 0)
			return false;
		if (strcmp(argv[i], "--prometheus") == 0)
			prometheus = true;
	}
	return word != NULL && (strcmp(word, "top") == 0 ||
	    strcmp(word, "inflight") == 0 ||
	    (strcmp(word, "stats") == 0 && prometheus));
}

static int
misused(const struct kind *k, const char *what, const char *value)
{
	fprintf(stderr, "ringback: %s: %s%s\n\nusage: ringback %s %s\n",
	    k->name, what, value, k->name, k->args);
	return MISUSED;
}

static int
parse_sort(const struct kind *k, const char *word, enum watch_sort *sort)
{
	size_t i;

	for (i = 0; i < NR_SORTS; i++) {
		if (strcmp(word, sorts[i]) == 0) {
			*sort = (enum watch_sort)i;
			return DONE;
		}
	}
	return misused(k, "disk, iops, mb, latency, inflight, errors or cpu, "
	    "not --sort ", word);
}

static int
parse_option(const struct kind *k, int opt, struct watch *w)
{
	bool top = k->run == top_run;

	switch (opt) {
	case OPT_RUN_DIR:
		w->run_dir = optarg;
		return DONE;
	case OPT_JSON:
		w->json = true;
		return k->run == prometheus_run ? misused(k, "--json does not "
		    "go with --prometheus", "") : DONE;
	case OPT_PROMETHEUS:
		return k->run == prometheus_run ? DONE :
		    misused(k, "--prometheus is of stats", "");
	default:
		break;
	}
	if (!top)
		return misused(k, "an option of top's", "");
	switch (opt) {
	case OPT_INTERVAL:
		return parse_seconds(optarg, INTERVAL_MIN, INTERVAL_MAX,
		    &w->interval) ? DONE : misused(k, "0.01 to 86400 "
		    "(seconds), not --interval ", optarg);
	case OPT_COUNT:
		return parse_number(optarg, false, 1, UINT32_MAX, &w->count) ?
		    DONE : misused(k, "a number from 1, not --count ", optarg);
	case OPT_SORT:
		return parse_sort(k, optarg, &w->sort);
	default:
		w->batch = true;
		return DONE;
	}
}

int
watch_main(int argc, char **argv)
{
	struct watch w = { .run_dir = CONTROL_RUN_DIR, .interval = 1 };
	const struct kind *k = kinds;
	const char *word = find_command(argc, argv);
	int opt, rc;

	/* watch_is() has seen that it is one of them. */
	while (strcmp(k->name, word) != 0)
		k++;
	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		rc = opt == '?' ? misused(k, "see --help", "") :
		    parse_option(k, opt, &w);
		if (rc != DONE)
			return rc;
	}
	argv += optind + 1;
	argc -= optind + 1;
	if (argc > (k->run == top_run ? 0 : 2))
		return misused(k, "one argument too many: ", argv[argc - 1]);
	w.domain = argc > 0 ? argv[0] : NULL;
	w.vdev = argc > 1 ? argv[1] : NULL;
	rc = k->run(&w);
	json_decref(w.names);
	return rc;
}
