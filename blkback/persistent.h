/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * persistent: pages of a guest that stay mapped.
 *
 * When both sides said "feature-persistent", a reference that was used once is
 * used again and again: its page is mapped once, found by its number without
 * a system call, and the storage reads and writes it where it is.  The guest
 * may change a page while it is written; nothing here looks at its data.
 *
 * At most 'max' pages are mapped.  A page that nobody has used for a second
 * makes room for another one; when there is none, the request is copied for
 * instead, all of it: a guest that goes round among more pages than there is
 * room for costs a copy, never a map and an unmap for each page.  The same
 * goes for what cannot be mapped, whosever fault that is: the copy tells.
 * After such a failure nothing more is mapped for a second.
 */
#ifndef BLKBACK_PERSISTENT_H
#define BLKBACK_PERSISTENT_H

#include <stdint.h>
#include <xengnttab.h>

#include "blkback/page.h"

/* Each is one of the 65530 areas that Linux lets a process have in memory. */
#define PERSISTENT_MAX (32768u / MAX_QUEUES)

struct persistent;

/*
 * 'handle' and 'stats', in which calls are counted, are the caller's and
 * outlive it.  0 or -ENOMEM.
 */
int  persistent_open(struct persistent **p, xengnttab_handle *handle,
         uint16_t domid, unsigned max, struct page_stats *stats);

/* Unmaps all.  None is in use.  NULL is fine. */
void persistent_close(struct persistent *p);

/* The same, and it can go on: the connection has ended. */
void persistent_clear(struct persistent *p);

/*
 * The page of a reference, which is in use until persistent_put().  NULL: it
 * has to be copied.  'now_ns' is of the monotonic clock.
 */
uint8_t *persistent_get(struct persistent *p, uint32_t gref, uint64_t now_ns);
void persistent_put(struct persistent *p, uint32_t gref, uint64_t now_ns);

#endif
