/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * aio: the libaio engine (see engine.h).
 *
 *   submit --> queue --io_submit--> kernel --> completion ring --> done
 *                ^                                   |
 *                +----------- short transfer --------+
 *
 * A reap hands the queue over in one system call, at most 128 I/Os at a time
 * (the rest waits its turn), then reads the completion ring, which the kernel
 * maps into this process: no system call is made to learn that something, or
 * nothing, has finished.
 *
 * Flushes go the same way (IO_CMD_FDSYNC).  What has no asynchronous form is
 * done by a thread (threads.h): a flush where the kernel or the file system
 * cannot do that, and every discard.
 */
#ifndef DRIVERS_AIO_H
#define DRIVERS_AIO_H

#include "drivers/engine.h"

/* See engine_open(). */
int aio_open(struct engine **e, struct channel *ch,
        const struct engine_config *c, char why[WHY_MAX]);

#endif
