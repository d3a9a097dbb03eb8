/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * persistent: pages of a guest that stay mapped.
 *
 * When both sides said "feature-persistent", a reference that was used once is
 * used again and again: its page is mapped once, found by its number without
 * a system call, and the storage reads and writes it where it is.  The guest
 * may change a page while it is written; nothing here looks at its data.
 *
 * At most 'max' pages are mapped; beyond that the one that has not been used
 * for longest makes room.  Pages that a request uses stay.
 */
#ifndef BLKBACK_PERSISTENT_H
#define BLKBACK_PERSISTENT_H

#include <stdint.h>
#include <xengnttab.h>

struct persistent;

/* 'handle' is the caller's and outlives it.  0 or -ENOMEM. */
int  persistent_open(struct persistent **p, xengnttab_handle *handle,
         uint16_t domid, unsigned max);

/* Unmaps all.  None is in use.  NULL is fine. */
void persistent_close(struct persistent *p);

/* The same, and it can go on: the connection has ended. */
void persistent_clear(struct persistent *p);

/*
 * The page of a reference, which is in use until persistent_put().  NULL: it
 * cannot be mapped; the guest's fault, or more than 'max' are in use.
 */
uint8_t *persistent_get(struct persistent *p, uint32_t gref);
void persistent_put(struct persistent *p, uint32_t gref);

/* Calls made to map or unmap, since it was opened. */
uint64_t persistent_calls(const struct persistent *p);

#endif
