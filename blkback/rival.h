/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * rival: XenServer's tapback, which takes every disk of the kind that it
 * serves, also those whose script is ours.  xenstore does not say who watches
 * what, so it is looked for among the processes.
 */
#ifndef BLKBACK_RIVAL_H
#define BLKBACK_RIVAL_H

#include <sys/types.h>

#define TAP "vbd3"	/* the kind of xl's backendtype=tap, and tapback's */
#define TAP_RAW "aio:"	/* what libxl writes before a raw target of it */

/*
 * The process of a tapback that serves 'kind', by its name and its options; 0
 * when there is none, or when it could not be found out.
 */
pid_t rival_tapback(const char *kind);

#endif
