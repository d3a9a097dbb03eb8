/* SPDX-License-Identifier: GPL-2.0-or-later */
/* thread: one that works for a driver. */
#ifndef DRIVERS_THREAD_H
#define DRIVERS_THREAD_H

#include <pthread.h>
#include <stddef.h>

/*
 * Start it with a stack of so many bytes, all of which a disk process locks.
 * Every signal is blocked in it: they are for the threads that expect them.
 * 0 or -errno.
 */
int thread_start(pthread_t *thread, size_t stack_bytes, void *(*main)(void *),
        void *arg);

#endif
