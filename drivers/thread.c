/* SPDX-License-Identifier: GPL-2.0-or-later */
#include <signal.h>

#include "drivers/thread.h"

int
thread_start(pthread_t *thread, size_t stack_bytes, void *(*main)(void *),
    void *arg)
{
	pthread_attr_t attr;
	sigset_t all, old;
	int error;

	error = pthread_attr_init(&attr);
	if (error != 0)
		return -error;
	error = pthread_attr_setstacksize(&attr, stack_bytes);
	if (error == 0) {
		sigfillset(&all);
		error = pthread_sigmask(SIG_SETMASK, &all, &old);
	}
	if (error == 0) {
		error = pthread_create(thread, &attr, main, arg);
		pthread_sigmask(SIG_SETMASK, &old, NULL);
	}
	pthread_attr_destroy(&attr);
	return -error;
}
