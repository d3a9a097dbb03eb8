/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * supervisor: the process that talks to xenstore, to the toolstack and to
 * the command line, and starts one disk process per vbd.
 *
 *   xenstore watch, a disk process's message, a timer, a question
 *        -> vbd_touch(): the vbd is marked, once
 *        -> after the events in hand, vbd_step() for each that is marked:
 *           read how things stand, ask device_next(), do it
 *
 * It maps no guest page, opens no image, and waits for nobody but xenstored.
 */
#ifndef BLKBACK_SUPERVISOR_H
#define BLKBACK_SUPERVISOR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

#include "blkback/control.h"
#include "blkback/process.h"
#include "blkback/xenstore.h"

#define KIND_MAX   16u	/* bytes of a backend kind, NUL included */
#define KINDS_MAX  4u
#define BY_HAND    "ringback"	/* the kind of `ringback attach` */
#define NO_UID     65534u	/* of a disk process, when none is configured */

/*
 * A request may kill each process that takes it up: at the last of so many
 * deaths in a minute what is in flight is answered with an error, and the disk
 * closed.
 */
#define MAX_DEATHS  3u		/* when nothing else is asked for */
#define DEATHS_KEPT 16u		/* no higher number can be asked for */

struct vbd;
struct control;
LIST_HEAD(vbd_list, vbd);
TAILQ_HEAD(vbd_queue, vbd);

struct options {
	const char *run_dir;
	char        kind[KINDS_MAX][KIND_MAX];
	unsigned    nr_kinds;
	uint32_t    uid_base;		/* 0: NO_UID for all */
	uint32_t    max_deaths;		/* 0: no limit */
	const char *backing_root[ROOTS_MAX + 1];	/* NULL ends them */
	bool        script_first;	/* --toolstack xenopsd */
	const char *sysfs;		/* where it is mounted */
	bool        verbose;
};

/* Processes that have hung up; whose they were. */
#define ENDED_MAX 16u
struct ended {
	pid_t pid;
	char  name[48];
};

struct supervisor {
	struct options   opt;
	sd_event        *event;
	struct xenstore  xs;
	uint32_t         own_domid;
	struct vbd_list  vbds;
	struct vbd_queue touched;
	sd_event_source *work;		/* steps what is touched */
	struct control  *control;
	struct ended     ended[ENDED_MAX];
	unsigned         nr_ended;
};

/* Serve until SIGTERM.  An exit status. */
int  supervisor_main(const struct options *opt);

bool supervisor_has_kind(const struct supervisor *sup, const char *kind);

#endif
