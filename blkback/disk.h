/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * disk: the process that serves one vbd (see message.h for what it is told).
 *
 * One thread talks to the supervisor, the others (worker.h) serve the queues,
 * so that a grant copy or an image that hangs never makes the process deaf.
 Everything that needs a privilege happens at OPEN; from then on the
 * process has a uid of its own, no capabilities and a seccomp filter.
 */
#ifndef BLKBACK_DISK_H
#define BLKBACK_DISK_H

#include <stdint.h>

/*
 * Serve until CLOSE, or until SIGTERM (which drains, flushes and closes).
 * 'run_dir' is where the page file goes; 'backing_roots' is of struct
 * image_options.  Returns the process's exit status.
 */
int disk_main(const char *run_dir, const char *const *backing_roots,
        unsigned domid, uint32_t devid);

#endif
