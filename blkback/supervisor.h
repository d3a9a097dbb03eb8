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
#include "blkback/options.h"
#include "blkback/xenstore.h"

struct vbd;
struct control;
LIST_HEAD(vbd_list, vbd);
TAILQ_HEAD(vbd_queue, vbd);

/* Processes that have hung up; whose they were. */
#define ENDED_MAX 16u
struct ended {
	pid_t pid;
	char  name[48];
};

struct supervisor {
	struct options  *opt;		/* main()'s; read again at SIGHUP */
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
int  supervisor_main(struct options *opt);

bool supervisor_has_kind(const struct supervisor *sup, const char *kind);

#endif
