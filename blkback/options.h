/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * options: what the supervisor is told, on its command line and in
 * ringback.conf, where each "key = value" is an option of the same name.  The
 * command line wins.
 */
#ifndef BLKBACK_OPTIONS_H
#define BLKBACK_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "blkback/control.h"
#include "blkback/defaults.h"
#include "blkback/process.h"

#define KIND_MAX   16u	/* bytes of a backend kind, NUL included */
#define KINDS_MAX  4u
#define NO_UID     65534u	/* of a disk process, when none is configured */

/*
 * A request may kill each process that takes it up: at the last of so many
 * deaths in a minute what is in flight is answered with an error, and the disk
 * closed.
 */
#define MAX_DEATHS  3u		/* when nothing else is asked for */
#define DEATHS_KEPT 16u		/* no higher number can be asked for */

#define OPTIONS_FILE SYSCONFDIR "/ringback.conf"

struct options {
	char        run_dir[RUN_DIR_MAX];
	char        kind[KINDS_MAX][KIND_MAX];
	unsigned    nr_kinds;
	uint32_t    uid_base;		/* 0: NO_UID for all */
	uint32_t    max_deaths;		/* 0: no limit */
	const char *backing_root[ROOTS_MAX + 1];	/* NULL ends them */
	struct defaults defaults;	/* default-options */
	bool        verbose;
	bool        script_first;	/* toolstack = xenopsd */
	char        sysfs[RUN_DIR_MAX];	/* where it is mounted */
	/* The command line alone. */
	const char *file;		/* --config; NULL: OPTIONS_FILE, */
					/* which need not be there */
	const char *disk;		/* --disk; then there is no file */
	bool        check, version, help;
	char      **argv;		/* to be read again */
	int         argc;
};

/*
 * Read the command line and the file.  0; 1 when that was all to do (--help);
 * or -EINVAL, said.  options_free() what was read.
 */
int  options_read(struct options *opt, int argc, char **argv);
void options_free(struct options *opt);

/*
 * Read both again and take over what may change while disks are served; the
 * log tells what may not and has.  0; or -EINVAL, said, and *opt is as before.
 */
int  options_reload(struct options *opt);

/* ---- config.c ---- */

/* Set 'key', in a [section] or "".  0, or -EINVAL with 'why'. */
typedef int config_set(void *arg, const char *section, const char *key,
         const char *value, char why[WHY_MAX]);

/*
 * Hand over each key of the file.  0; -ENOENT if there is none; or another
 * -errno with 'why', which names the file and the line.
 */
int  config_read(const char *path, config_set *set, void *arg,
         char why[WHY_MAX]);

#endif
