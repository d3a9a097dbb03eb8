/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * store: xenstore in the convention of this tree (0 or -errno).
 *
 * 'path' is a directory, 'node' a name in it or NULL for the directory itself.
 * A handle is used by one thread at a time; domain.c's lock sees to that.
 */
#ifndef LOOPFRONT_STORE_H
#define LOOPFRONT_STORE_H

#include <stdbool.h>
#include <stdint.h>
#include <xenstore.h>

#define STORE_PATH	256

/* A copy to free(), or NULL when there is none. */
char	*store_read(struct xs_handle *, xs_transaction_t, const char *path,
	    const char *node);
/* A decimal number: 0, -ENOENT, or -EINVAL when it is none. */
int	store_number(struct xs_handle *, xs_transaction_t, const char *path,
	    const char *node, uint64_t *value);
bool	store_exists(struct xs_handle *, xs_transaction_t, const char *path,
	    const char *node);
int	store_write(struct xs_handle *, xs_transaction_t, const char *path,
	    const char *node, const char *fmt, ...)
	    __attribute__((format(printf, 5, 6)));
/* Fine when it is not there. */
int	store_remove(struct xs_handle *, xs_transaction_t, const char *path,
	    const char *node);

#endif /* LOOPFRONT_STORE_H */
