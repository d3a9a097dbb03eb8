/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * process: the supervisor's end of a disk process.
 *
 * The supervisor makes the listening socket, starts itself again with
 * --disk, and connects like anybody else; so a process that it started and one
 * that it found running are the same from then on.  End-of-file is the only
 * death notice.  Nothing here waits.
 */
#ifndef BLKBACK_PROCESS_H
#define BLKBACK_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "blkback/message.h"

struct process {
	int   fd;		/* our connection; -1: there is no process */
	pid_t pid;		/* 0: not known */
	bool  child;		/* ours, not reaped yet: the pid is certain */
	bool  hello;		/* it has introduced itself */
	bool  closing;		/* told to close, or to be killed */
};

#define PROCESS_NOT_STARTED 127	/* exit status: it could not be executed */

#define ROOTS_MAX 16u	/* folders of backing files */

/* Longest run directory, so that a socket's name fits. */
#define RUN_DIR_MAX 80u

void process_init(struct process *p);

/* Connect to one that is running.  0; -ENOENT when none is; other -errno. */
int  process_adopt(struct process *p, const char *run_dir, uint32_t domid,
         uint32_t devid);

/*
 * Start one, with the folders below which backing files may lie: at most
 * ROOTS_MAX, then NULL.  0 or -errno; nothing is left on failure.
 */
int  process_spawn(struct process *p, const char *run_dir,
         const char *const *backing_roots, uint32_t domid, uint32_t devid);

/*
 * A process that does not read its few messages is broken: -EAGAIN is as bad
 * as any other -errno.
 */
int  process_send(struct process *p, const struct message *m);

/* Kill it, if it is sure to be the disk's. */
void process_kill(struct process *p, uint32_t domid, uint32_t devid);

/* Close our end.  The socket's name goes with it: nobody listens there. */
void process_end(struct process *p, const char *run_dir, uint32_t domid,
         uint32_t devid);

/* <run dir>/<domid>-<devid>.<suffix> */
void process_path(char *path, size_t size, const char *run_dir,
         uint32_t domid, uint32_t devid, const char *suffix);

#endif
