/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * main: ringbackd is two programs, the supervisor and, started by it with
 * --disk, the process of one disk.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "blkback/control.h"
#include "blkback/disk.h"
#include "blkback/log.h"
#include "blkback/process.h"
#include "blkback/rival.h"
#include "blkback/supervisor.h"

#define DONE   0
#define FAILED 1
#define WRONG  2

#define KINDS "vbd," TAP "," BY_HAND	/* when no others are asked for */

static const char usage[] =
"ringbackd: serve virtual disks to Xen guests\n"
"\n"
"  --run-dir DIR     sockets and page files (" CONTROL_RUN_DIR ")\n"
"  --kinds K,...     kinds of backend to serve (" KINDS ")\n"
"  --uid-base N      disk processes run as uid N, N+1, ... (all as 65534)\n"
"  --backing-root D  below D backing files may lie; may be repeated (the\n"
"                    folder of the image that is attached)\n"
"  --max-deaths N    close a disk at the Nth death of its process in a minute\n"
"                    (3; up to 16; 0: never)\n"
"  --verbose         log each step\n"
"  --version, --help\n"
"\n"
"It stays in the foreground and logs to stderr.  Disks are attached with\n"
"ringback(8), or by xl through the script block-ringback.\n";

enum { OPT_RUN_DIR = 1, OPT_KINDS, OPT_UID_BASE, OPT_MAX_DEATHS, OPT_VERBOSE,
    OPT_VERSION, OPT_HELP, OPT_DISK, OPT_BACKING_ROOT };

static const struct option options[] = {
	{ "run-dir",  required_argument, NULL, OPT_RUN_DIR },
	{ "kinds",    required_argument, NULL, OPT_KINDS },
	{ "uid-base", required_argument, NULL, OPT_UID_BASE },
	{ "max-deaths", required_argument, NULL, OPT_MAX_DEATHS },
	{ "backing-root", required_argument, NULL, OPT_BACKING_ROOT },
	{ "verbose",  no_argument,       NULL, OPT_VERBOSE },
	{ "version",  no_argument,       NULL, OPT_VERSION },
	{ "help",     no_argument,       NULL, OPT_HELP },
	{ "disk",     required_argument, NULL, OPT_DISK },
	{ NULL, 0, NULL, 0 },
};

static int
set_run_dir(struct options *opt, const char *dir)
{
	if (*dir != '/' || strlen(dir) >= RUN_DIR_MAX) {
		log_error(0, "--run-dir %s: not an absolute path shorter than "
		    "%u bytes", dir, RUN_DIR_MAX);
		return -EINVAL;
	}
	opt->run_dir = dir;
	return 0;
}

static int
set_kinds(struct options *opt, const char *list)
{
	size_t n;

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
		log_error(0, "--kinds: not a list of at most %u names of at "
		    "most %u letters, like " KINDS, KINDS_MAX,
		    KIND_MAX - 1);
		return -EINVAL;
	}
	return 0;
}

static int
set_uid_base(struct options *opt, const char *text)
{
	if (xenstore_parse_u32(text, INT32_MAX, &opt->uid_base) < 0 ||
	    opt->uid_base == 0) {
		log_error(0, "--uid-base %s: not a number from 1 to %d", text,
		    INT32_MAX);
		return -EINVAL;
	}
	return 0;
}

static int
set_max_deaths(struct options *opt, const char *text)
{
	if (xenstore_parse_u32(text, DEATHS_KEPT, &opt->max_deaths) < 0) {
		log_error(0, "--max-deaths %s: not a number from 0 to %u",
		    text, DEATHS_KEPT);
		return -EINVAL;
	}
	return 0;
}

static int
add_backing_root(struct options *opt, const char *dir)
{
	unsigned n = 0;

	while (opt->backing_root[n] != NULL)
		n++;
	if (*dir != '/' || n == ROOTS_MAX) {
		log_error(0, "--backing-root %s: %s", dir, *dir != '/' ?
		    "not an absolute path" : "that is one too many");
		return -EINVAL;
	}
	opt->backing_root[n] = dir;
	return 0;
}

static int
run_disk(const struct options *opt, const char *id)
{
	uint32_t domid, devid;
	char name[32];

	if (xenstore_parse_id(id, '-', &domid, &devid) < 0)
		return WRONG;
	/* As it was started from /proc/self/exe, ps and top would say "exe". */
	snprintf(name, sizeof(name), "disk %u/%u", domid, devid);
	if (prctl(PR_SET_NAME, name, 0, 0, 0) != 0)
		log_error(-errno, "cannot name the process, going on");
	return disk_main(opt->run_dir, opt->backing_root[0] == NULL ? NULL :
	    opt->backing_root, domid, devid);
}

/* 0: go on; 1: done; -EINVAL: called wrongly. */
static int
set_option(struct options *opt, int o, const char **disk)
{
	switch (o) {
	case OPT_RUN_DIR:
		return set_run_dir(opt, optarg);
	case OPT_KINDS:
		return set_kinds(opt, optarg);
	case OPT_UID_BASE:
		return set_uid_base(opt, optarg);
	case OPT_MAX_DEATHS:
		return set_max_deaths(opt, optarg);
	case OPT_BACKING_ROOT:
		return add_backing_root(opt, optarg);
	case OPT_VERBOSE:
		opt->verbose = true;
		return 0;
	case OPT_VERSION:
		return puts("ringbackd " RINGBACK_VERSION) < 0 ? -EIO : 1;
	case OPT_HELP:
		return fputs(usage, stdout) < 0 ? -EIO : 1;
	case OPT_DISK:
		*disk = optarg;
		return 0;
	default:
		return -EINVAL;
	}
}

int
main(int argc, char **argv)
{
	struct options opt = { .run_dir = CONTROL_RUN_DIR,
	    .max_deaths = MAX_DEATHS };
	const char *disk = NULL;
	int o, rc, fd;

	/* No file of ours may land on 0, 1 or 2. */
	do {
		fd = open("/dev/null", O_RDWR | O_CLOEXEC);
		if (fd < 0)
			return FAILED;
	} while (fd <= STDERR_FILENO);
	close(fd);
	umask(077);
	log_name("ringbackd");

	if (set_kinds(&opt, KINDS) < 0)
		return FAILED;
	while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
		rc = set_option(&opt, o, &disk);
		if (rc > 0)
			return fflush(stdout) == 0 ? DONE : FAILED;
		if (rc < 0)
			return WRONG;
	}
	if (optind != argc) {
		log_error(0, "what is %s for? see ringbackd --help",
		    argv[optind]);
		return WRONG;
	}
	return disk != NULL ? run_disk(&opt, disk) : supervisor_main(&opt);
}
