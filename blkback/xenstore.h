/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * xenstore: reading what others wrote, and writing where we still may.
 *
 * Values are text of any length that anybody with the permission can put
 * there, so every reader has a bound and a number is digits and nothing else.
 *
 * xs_write() makes the directories of its path anew, so that a late write
 * into a backend directory that the toolstack has just deleted would leave an
 * orphan for ever.  Therefore every write here belongs to a transaction that
 * has read the directory's 'state' first.
 */
#ifndef BLKBACK_XENSTORE_H
#define BLKBACK_XENSTORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <xenstore.h>

#define XENSTORE_PATH_MAX 256u	/* of ours; NUL included */
#define XENSTORE_NODES    16u	/* of one update */
#define XENSTORE_ANY      UINT32_MAX

struct xenstore {
	struct xs_handle *xs;
	bool              lost;		/* the connection; for good */
	int               error;	/* -errno of the last call that failed
					 * without saying anything of a node;
					 * who wants to know sets it to 0 */
	int               lifeline;	/* readable: xenstored is gone; -1 */
};

/* ---- parsers; pure ---- */

/* Decimal digits only, at most 'max'.  0 or -EINVAL. */
int xenstore_parse_u32(const char *text, uint32_t max, uint32_t *value);

/* "DOMID-DEVID", or with another separator.  0 or -EINVAL. */
int xenstore_parse_id(const char *text, char separator, uint32_t *domid,
        uint32_t *devid);

/*
 * "backend/KIND/DOMID/DEVID", or something below it ("inside", may be NULL,
 * is set).  0, or -EINVAL for anything else.
 */
int xenstore_parse_backend(const char *path, char *kind, size_t kind_size,
        uint32_t *domid, uint32_t *devid, bool *inside);

/* What follows the last '/'. */
const char *xenstore_basename(const char *path);

/* ---- reading ---- */

int  xenstore_open(struct xenstore *s);		/* 0 or -errno */
void xenstore_close(struct xenstore *s);

/*
 * Read dir/node ("" for the directory itself) into buf.  0; -ENOENT;
 * -E2BIG when it is longer or holds a NUL; other -errno.
 */
int xenstore_read(struct xenstore *s, xs_transaction_t t, const char *dir,
        const char *node, char *buf, size_t size);

/* The same for a number; -EINVAL when it is none or too large. */
int xenstore_read_u32(struct xenstore *s, xs_transaction_t t, const char *dir,
        const char *node, uint32_t max, uint32_t *value);

/* Names in a directory; NULL when there is none.  The caller frees it. */
char **xenstore_list(struct xenstore *s, xs_transaction_t t, const char *dir,
        unsigned *n);

/* ---- writing ---- */

/* Nodes of a directory to write together; 'text' is borrowed. */
struct xenstore_update {
	unsigned n;
	struct {
		const char *name;
		const char *text;
		char        number[21];
	} node[XENSTORE_NODES];
};

void xenstore_add(struct xenstore_update *u, const char *name,
         const char *text);
void xenstore_add_number(struct xenstore_update *u, const char *name,
         uint64_t value);

/*
 * Write all of 'u' into a backend directory, if its 'state' is 'expect'
 * (XENSTORE_ANY: whatever it is), the last one last.  0; -ENOENT when the
 * directory is gone; -ESTALE for another state; other -errno.  On failure
 * nothing was written.
 */
int xenstore_update(struct xenstore *s, const char *dir, uint32_t expect,
        const struct xenstore_update *u);

/*
 * Run 'body' in a transaction until it can be committed, at most a few times.
 * What body returns if that is not 0; 0; or -errno.
 */
int xenstore_transaction(struct xenstore *s,
        int (*body)(struct xenstore *s, xs_transaction_t t, void *arg),
        void *arg);

/* For use in a body.  0 or -errno. */
int xenstore_write(struct xenstore *s, xs_transaction_t t, const char *dir,
        const char *node, const char *value);

/* A new directory with two parties.  -EEXIST when it is there. */
int xenstore_mkdir(struct xenstore *s, xs_transaction_t t, const char *dir,
        uint32_t owner, uint32_t reader);

/* Remove a directory and 'parents' of its parents, where these are empty. */
int xenstore_remove(struct xenstore *s, xs_transaction_t t, const char *dir,
        unsigned parents);

int xenstore_watch(struct xenstore *s, const char *path, const char *token);
void xenstore_unwatch(struct xenstore *s, const char *path, const char *token);

/* Is the domain known to xenstored, that is, alive or about to be? */
bool xenstore_introduced(struct xenstore *s, uint32_t domid);

#endif
