/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * options: one row of a table is one option, of the command line and of the
 * file (see options.h).
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "blkback/log.h"
#include "blkback/options.h"
#include "blkback/rival.h"
#include "blkback/xenstore.h"

#define KINDS    "vbd," TAP "," BY_HAND	/* when no others are asked for */
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static const char usage[] =
"ringbackd: serve virtual disks to Xen guests\n"
"\n"
"  --config FILE     what else is said there (" OPTIONS_FILE ")\n"
"  --check-config    say whether that and the command line are right; no more\n"
"  --run-dir DIR     sockets and page files (" CONTROL_RUN_DIR ")\n"
"  --kinds K,...     kinds of backend to serve (" KINDS ")\n"
"  --uid-base N      disk processes run as uid N, N+1, ... (all as 65534)\n"
"  --backing-root D  below D backing files may lie; may be repeated (the\n"
"                    folder of the image that is attached)\n"
"  --max-deaths N    close a disk at the Nth death of its process in a minute\n"
"                    (3; up to 16; 0: never)\n"
"  --default-options O=V,...\n"
"                    options of all disks that do not give them\n"
"  --toolstack NAME  whose order of things is expected: xl, where the disk is\n"
"                    offered before the hotplug script runs; or xenopsd,\n"
"                    where the script comes first (xl)\n"
"  --sysfs DIR       where to look for the kernel's backend (/sys)\n"
"  --verbose         log each step\n"
"  --version, --help\n"
"\n"
"It stays in the foreground and logs to stderr.  Disks are attached with\n"
"ringback(8), or by xl through the script block-ringback.\n"
"SIGHUP has it read its file again.\n";

static int
set_dir(char to[RUN_DIR_MAX], const char *dir, char why[WHY_MAX])
{
	if (*dir != '/' || strlen(dir) >= RUN_DIR_MAX) {
		why_set(why, "not an absolute path shorter than %u bytes",
		    RUN_DIR_MAX);
		return -EINVAL;
	}
	snprintf(to, RUN_DIR_MAX, "%s", dir);
	return 0;
}

static int
set_run_dir(struct options *opt, const char *dir, char why[WHY_MAX])
{
	return set_dir(opt->run_dir, dir, why);
}

static int
set_sysfs(struct options *opt, const char *dir, char why[WHY_MAX])
{
	return set_dir(opt->sysfs, dir, why);
}

static int
set_toolstack(struct options *opt, const char *name, char why[WHY_MAX])
{
	opt->script_first = strcmp(name, "xenopsd") == 0;
	if (opt->script_first || strcmp(name, "xl") == 0)
		return 0;
	why_set(why, "neither xl nor xenopsd");
	return -EINVAL;
}

static int
set_kinds(struct options *opt, const char *list, char why[WHY_MAX])
{
	size_t n;

	memset(opt->kind, 0, sizeof(opt->kind));
	for (opt->nr_kinds = 0; *list != '\0'; opt->nr_kinds++) {
		n = strspn(list, "abcdefghijklmnopqrstuvwxyz0123456789_");
		if (n == 0 || n >= KIND_MAX || opt->nr_kinds == KINDS_MAX ||
		    (list[n] != '\0' && list[n] != ','))
			break;
		memcpy(opt->kind[opt->nr_kinds], list, n);
		opt->kind[opt->nr_kinds][n] = '\0';
		list += n + (list[n] == ',');
	}
	if (*list != '\0' || opt->nr_kinds == 0) {
		why_set(why, "not a list of at most %u names of at most %u "
		    "letters, like " KINDS, KINDS_MAX, KIND_MAX - 1);
		return -EINVAL;
	}
	return 0;
}

static int
set_uid_base(struct options *opt, const char *text, char why[WHY_MAX])
{
	if (xenstore_parse_u32(text, INT32_MAX, &opt->uid_base) == 0 &&
	    opt->uid_base != 0)
		return 0;
	why_set(why, "not a number from 1 to %d", INT32_MAX);
	return -EINVAL;
}

static int
set_max_deaths(struct options *opt, const char *text, char why[WHY_MAX])
{
	if (xenstore_parse_u32(text, DEATHS_KEPT, &opt->max_deaths) == 0)
		return 0;
	why_set(why, "not a number from 0 to %u", DEATHS_KEPT);
	return -EINVAL;
}

static int
add_backing_root(struct options *opt, const char *dir, char why[WHY_MAX])
{
	unsigned n = 0;

	while (opt->backing_root[n] != NULL)
		n++;
	if (*dir != '/' || n == ROOTS_MAX) {
		why_set(why, *dir != '/' ? "not an absolute path" :
		    "that is one too many: %u at most", ROOTS_MAX);
		return -EINVAL;
	}
	opt->backing_root[n] = strdup(dir);
	if (opt->backing_root[n] != NULL)
		return 0;
	why_set(why, "out of memory");
	return -EINVAL;
}

static int
set_default_options(struct options *opt, const char *list, char why[WHY_MAX])
{
	return defaults_set(&opt->defaults, "", list, why);
}

static int
set_verbose(struct options *opt, const char *text, char why[WHY_MAX])
{
	opt->verbose = strcmp(text, "on") == 0;
	if (opt->verbose || strcmp(text, "off") == 0)
		return 0;
	why_set(why, "neither on nor off");
	return -EINVAL;
}

static const struct row {
	const char *key;
	int       (*set)(struct options *opt, const char *value,
	              char why[WHY_MAX]);
	bool        repeat;	/* it may stand several times in a file */
} rows[] = {
	{ "run-dir",         set_run_dir,         false },
	{ "kinds",           set_kinds,           false },
	{ "uid-base",        set_uid_base,        false },
	{ "max-deaths",      set_max_deaths,      false },
	{ "backing-root",    add_backing_root,    true },
	{ "default-options", set_default_options, false },
	{ "verbose",         set_verbose,         false },
	{ "toolstack",       set_toolstack,       false },
	{ "sysfs",           set_sysfs,           false },
};

/* Row i of the table is option i; what is none of the file follows. */
enum { OPT_VERSION = COUNT(rows), OPT_HELP, OPT_DISK, OPT_CONFIG, OPT_CHECK,
    OPT_END };

static struct option options[OPT_END + 1] = {
	[OPT_VERSION] = { "version", no_argument, NULL, OPT_VERSION },
	[OPT_HELP] = { "help", no_argument, NULL, OPT_HELP },
	[OPT_DISK] = { "disk", required_argument, NULL, OPT_DISK },
	[OPT_CONFIG] = { "config", required_argument, NULL, OPT_CONFIG },
	[OPT_CHECK] = { "check-config", no_argument, NULL, OPT_CHECK },
};

/* What can only be switched on has no value on the command line. */
static bool
is_switch(const struct row *row)
{
	return row->set == set_verbose;
}

static void
fill_options(void)
{
	int i;

	for (i = 0; i < OPT_VERSION; i++)
		options[i] = (struct option){ rows[i].key, is_switch(&rows[i]) ?
		    no_argument : required_argument, NULL, i };
}

/* ---- the file ------------------------------------------------------------ */

struct file {
	struct options *opt;
	uint32_t        seen;	/* rows, not in a section */
};

static int
unknown_key(const char *key, char why[WHY_MAX])
{
	size_t used, i;

	why_set(why, "unknown key \"%.64s\": there are", key);
	for (i = 0; i < COUNT(rows); i++) {
		used = strlen(why);
		snprintf(why + used, WHY_MAX - used, "%s%s", i == 0 ? " " :
		    ", ", rows[i].key);
	}
	return -EINVAL;
}

static int
set_format(struct options *opt, const char *format, const char *key,
    const char *value, char why[WHY_MAX])
{
	unsigned i;

	if (driver_find(format) == NULL) {
		why_set(why, "[%.32s] is no format of an image: use raw or "
		    "qcow2", format);
		return -EINVAL;
	}
	if (strcmp(key, "default-options") != 0) {
		why_set(why, "%.64s is no key of a format: there is "
		    "default-options; all others stand above the first "
		    "[format]", key);
		return -EINVAL;
	}
	for (i = 0; i < opt->defaults.nr; i++) {
		if (strcmp(opt->defaults.of[i].format, format) == 0) {
			why_set(why, "default-options of [%s] are given twice",
			    format);
			return -EINVAL;
		}
	}
	return defaults_set(&opt->defaults, format, value, why);
}

static int
on_key(void *arg, const char *section, const char *key, const char *value,
    char why[WHY_MAX])
{
	struct file *f = arg;
	char what[WHY_MAX];
	size_t i;
	int rc;

	if (section[0] != '\0') {
		rc = set_format(f->opt, section, key, value, what);
		why_set(why, "%s", what);
		return rc;
	}
	for (i = 0; i < COUNT(rows) && strcmp(rows[i].key, key) != 0; i++)
		;
	if (i == COUNT(rows))
		return unknown_key(key, why);
	if ((f->seen & 1u << i) != 0 && !rows[i].repeat) {
		why_set(why, "%s is given twice", key);
		return -EINVAL;
	}
	f->seen |= 1u << i;
	rc = rows[i].set(f->opt, value, what);
	why_set(why, "%s = %.128s: %s", key, value, what);
	return rc;
}

static int
read_file(struct options *opt)
{
	const char *path = opt->file != NULL ? opt->file : OPTIONS_FILE;
	struct file f = { .opt = opt };
	char why[WHY_MAX];
	int rc;

	rc = config_read(path, on_key, &f, why);
	if (rc == -ENOENT && opt->file == NULL)
		return 0;
	if (rc < 0)
		log_error(0, "%s", why);
	return rc < 0 ? -EINVAL : 0;
}

/* ---- the command line ---------------------------------------------------- */

static void
forget_roots(struct options *opt)
{
	unsigned i;

	for (i = 0; opt->backing_root[i] != NULL; i++) {
		free((void *)(uintptr_t)opt->backing_root[i]);
		opt->backing_root[i] = NULL;
	}
}

/* What is not of the file.  0 or -EINVAL. */
static int
scan_line(struct options *opt)
{
	int o;

	optind = 0;	/* from the start again */
	while ((o = getopt_long(opt->argc, opt->argv, "", options, NULL)) !=
	    -1) {
		if (o == '?')
			return -EINVAL;
		if (o == OPT_DISK)
			opt->disk = optarg;
		else if (o == OPT_CONFIG)
			opt->file = optarg;
		else if (o == OPT_CHECK)
			opt->check = true;
		else if (o == OPT_VERSION)
			opt->version = true;
		else if (o == OPT_HELP)
			opt->help = true;
	}
	if (optind == opt->argc)
		return 0;
	log_error(0, "what is %s for? see ringbackd --help",
	    opt->argv[optind]);
	return -EINVAL;
}

static int
apply_line(struct options *opt)
{
	bool roots = false;
	char why[WHY_MAX];
	int o;

	optind = 0;
	while ((o = getopt_long(opt->argc, opt->argv, "", options, NULL)) !=
	    -1) {
		if (o < 0 || (size_t)o >= COUNT(rows))
			continue;
		/* They stand in for those of the file. */
		if (rows[o].set == add_backing_root && !roots) {
			forget_roots(opt);
			roots = true;
		}
		if (rows[o].set(opt, is_switch(&rows[o]) ? "on" : optarg,
		    why) < 0) {
			log_error(0, "--%s %s: %s", rows[o].key,
			    optarg != NULL ? optarg : "", why);
			return -EINVAL;
		}
	}
	return 0;
}

/* Without a file. */
static int
read_line(struct options *opt, int argc, char **argv)
{
	char why[WHY_MAX];
	int rc;

	fill_options();
	memset(opt, 0, sizeof(*opt));
	opt->argc = argc;
	opt->argv = argv;
	opt->max_deaths = MAX_DEATHS;
	rc = set_run_dir(opt, CONTROL_RUN_DIR, why);
	if (rc == 0)
		rc = set_sysfs(opt, "/sys", why);
	if (rc == 0)
		rc = set_kinds(opt, KINDS, why);
	if (rc == 0)
		rc = scan_line(opt);
	return rc == 0 ? apply_line(opt) : rc;
}

/* The file, and the command line over it. */
static int
read_both(struct options *opt)
{
	char why[WHY_MAX];
	int rc;

	forget_roots(opt);
	rc = read_file(opt);
	if (rc == 0)
		rc = apply_line(opt);
	if (rc == 0 && defaults_check(&opt->defaults, why) < 0) {
		log_error(0, "default-options do not go together: %s", why);
		rc = -EINVAL;
	}
	return rc;
}

int
options_read(struct options *opt, int argc, char **argv)
{
	int rc;

	rc = read_line(opt, argc, argv);
	if (rc == 0 && opt->version)
		rc = puts("ringbackd " RINGBACK_VERSION) < 0 ? -EINVAL : 1;
	else if (rc == 0 && opt->help)
		rc = fputs(usage, stdout) < 0 ? -EINVAL : 1;
	else if (rc == 0 && opt->disk == NULL)
		rc = read_both(opt);
	if (rc != 0)
		options_free(opt);
	return rc;
}

void
options_free(struct options *opt)
{
	forget_roots(opt);
}

static void
note(bool changed, const char *key)
{
	if (changed)
		log_info("%s has changed: that needs a restart of ringbackd",
		    key);
}

int
options_reload(struct options *opt)
{
	struct options new;
	int rc;

	rc = options_read(&new, opt->argc, opt->argv);
	if (rc < 0)
		return rc;
	note(strcmp(new.run_dir, opt->run_dir) != 0, "run-dir");
	note(memcmp(new.kind, opt->kind, sizeof(new.kind)) != 0, "kinds");
	note(new.uid_base != opt->uid_base, "uid-base");
	note(new.script_first != opt->script_first, "toolstack");
	note(strcmp(new.sysfs, opt->sysfs) != 0, "sysfs");
	forget_roots(opt);
	memcpy(opt->backing_root, new.backing_root,
	    sizeof(opt->backing_root));
	opt->defaults = new.defaults;
	opt->max_deaths = new.max_deaths;
	opt->verbose = new.verbose;
	return 0;
}
