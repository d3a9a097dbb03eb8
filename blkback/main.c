/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * main: ringbackd is two programs, the supervisor and, started by it with
 * --disk, the process of one disk.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "blkback/disk.h"
#include "blkback/log.h"
#include "blkback/options.h"
#include "blkback/supervisor.h"

#define DONE   0
#define FAILED 1
#define WRONG  2

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

/* Both were read already. */
static int
check_config(const struct options *opt)
{
	return printf("%s and the command line are right\n",
	    opt->file != NULL ? opt->file : OPTIONS_FILE) < 0 ||
	    fflush(stdout) != 0 ? FAILED : DONE;
}

int
main(int argc, char **argv)
{
	static struct options opt;
	int rc, fd;

	/* No file of ours may land on 0, 1 or 2. */
	do {
		fd = open("/dev/null", O_RDWR | O_CLOEXEC);
		if (fd < 0)
			return FAILED;
	} while (fd <= STDERR_FILENO);
	close(fd);
	umask(077);
	log_name("ringbackd");

	rc = options_read(&opt, argc, argv);
	if (rc > 0)
		return fflush(stdout) == 0 ? DONE : FAILED;
	if (rc < 0)
		return WRONG;
	if (opt.disk != NULL)
		rc = run_disk(&opt, opt.disk);
	else
		rc = opt.check ? check_config(&opt) : supervisor_main(&opt);
	options_free(&opt);
	return rc;
}
