/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * xenstore: libxenstore with bounds and -errno (see xenstore.h).
 *
 * Each call is one round trip to xenstored and waits for it.  That is the one
 * thing the supervisor waits for.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <xenstore_lib.h>

#include "blkback/log.h"
#include "blkback/xenstore.h"

#define TRIES 16	/* of a transaction that somebody else disturbs */

int
xenstore_parse_u32(const char *text, uint32_t max, uint32_t *value)
{
	size_t len = strlen(text);
	uint64_t v;

	/* Ten digits cannot overflow the 64 bits. */
	if (len == 0 || len > 10 || strspn(text, "0123456789") != len)
		return -EINVAL;
	v = strtoull(text, NULL, 10);
	if (v > max)
		return -EINVAL;
	*value = v;
	return 0;
}

int
xenstore_parse_id(const char *text, char separator, uint32_t *domid,
    uint32_t *devid)
{
	const char *end = strchr(text, separator);
	char first[12];

	if (end == NULL || end - text >= (int)sizeof(first))
		return -EINVAL;
	memcpy(first, text, end - text);
	first[end - text] = '\0';
	if (xenstore_parse_u32(first, UINT16_MAX, domid) < 0)
		return -EINVAL;
	return xenstore_parse_u32(end + 1, UINT32_MAX, devid);
}

int
xenstore_parse_backend(const char *path, char *kind, size_t kind_size,
    uint32_t *domid, uint32_t *devid, bool *inside)
{
	char part[4][32];
	size_t len;
	int i;

	for (i = 0; i < 4; i++) {
		len = strcspn(path, "/");
		if (len == 0 || len >= sizeof(part[i]))
			return -EINVAL;
		memcpy(part[i], path, len);
		part[i][len] = '\0';
		path += len;
		if (*path == '/')
			path++;
		else if (i < 3)
			return -EINVAL;
	}
	/* A path that ends in '/' is none of xenstore's. */
	if (path[-1] == '/' && *path == '\0')
		return -EINVAL;
	if (strcmp(part[0], "backend") != 0 || strlen(part[1]) >= kind_size ||
	    xenstore_parse_u32(part[2], UINT16_MAX, domid) < 0 ||
	    xenstore_parse_u32(part[3], UINT32_MAX, devid) < 0)
		return -EINVAL;
	strcpy(kind, part[1]);
	if (inside != NULL)
		*inside = *path != '\0';
	return 0;
}

const char *
xenstore_basename(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash != NULL ? slash + 1 : path;
}

/*
 * The -errno of a call that failed.  An error that says nothing of the node
 * may mean that xenstored is gone: the root can always be read, so ask.
 */
static int
fail(struct xenstore *s)
{
	int error = errno != 0 ? -errno : -EIO;
	unsigned len;
	void *root;

	switch (error) {
	case -ENOENT:
	case -EACCES:
	case -EAGAIN:
	case -EEXIST:
	case -E2BIG:
		return error;
	}
	s->error = error;
	if (error == -ENOSPC || error == -ENOMEM)
		return error;
	root = xs_read(s->xs, XBT_NULL, "/", &len);
	if (root == NULL && errno != EACCES && errno != ENOMEM)
		s->lost = true;
	free(root);
	return error;
}

static int
join(char path[XENSTORE_PATH_MAX], const char *dir, const char *node)
{
	int n;

	n = snprintf(path, XENSTORE_PATH_MAX, "%s%s%s", dir,
	    *node != '\0' ? "/" : "", node);
	return n < 0 || n >= (int)XENSTORE_PATH_MAX ? -ENAMETOOLONG : 0;
}

/*
 * The thread that libxenstore reads with ends without a word when xenstored
 * does, and xs_fileno() stays as it is: somebody who only waits for watches
 * would wait for ever.  So hold another connection, on which nothing is ever
 * said.  -1 where xenstored is not reached by a socket: in a driver domain, and
 * there it cannot end without everybody.
 */
static int
hold_lifeline(void)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	const char *path = xs_daemon_socket();
	int fd;

	if (path == NULL || strlen(path) >= sizeof(sa.sun_path))
		return -1;
	strcpy(sa.sun_path, path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&sa, sizeof(sa)) != 0) {
		close(fd);
		fd = -1;
	}
	return fd;
}

int
xenstore_open(struct xenstore *s)
{
	errno = 0;
	s->lost = false;
	s->error = 0;
	s->lifeline = -1;
	/*
	 * Without XS_UNWATCH_FILTER, whose events libxenstore (4.17) leaks.
	 * Late ones are harmless: their token is a name, not a pointer.
	 */
	s->xs = xs_open(0);
	if (s->xs == NULL)
		return errno != 0 ? -errno : -EIO;
	s->lifeline = hold_lifeline();
	return 0;
}

void
xenstore_close(struct xenstore *s)
{
	xs_close(s->xs);
	s->xs = NULL;
	if (s->lifeline >= 0)
		close(s->lifeline);
	s->lifeline = -1;
}

int
xenstore_read(struct xenstore *s, xs_transaction_t t, const char *dir,
    const char *node, char *buf, size_t size)
{
	char path[XENSTORE_PATH_MAX];
	unsigned len;
	char *value;
	int rc;

	rc = join(path, dir, node);
	if (rc < 0)
		return rc;
	value = xs_read(s->xs, t, path, &len);
	if (value == NULL)
		return fail(s);
	if (len >= size || memchr(value, '\0', len) != NULL) {
		rc = -E2BIG;
	} else {
		memcpy(buf, value, len);
		buf[len] = '\0';
	}
	free(value);
	return rc;
}

int
xenstore_read_u32(struct xenstore *s, xs_transaction_t t, const char *dir,
    const char *node, uint32_t max, uint32_t *value)
{
	char text[16];
	int rc;

	rc = xenstore_read(s, t, dir, node, text, sizeof(text));
	if (rc == -E2BIG)
		return -EINVAL;
	return rc < 0 ? rc : xenstore_parse_u32(text, max, value);
}

char **
xenstore_list(struct xenstore *s, xs_transaction_t t, const char *dir,
    unsigned *n)
{
	char **names;

	names = xs_directory(s->xs, t, dir, n);
	if (names == NULL) {
		*n = 0;
		fail(s);
	}
	return names;
}

void
xenstore_add(struct xenstore_update *u, const char *name, const char *text)
{
	if (u->n == XENSTORE_NODES)
		abort();	/* our own table is too short */
	u->node[u->n].name = name;
	u->node[u->n++].text = text;
}

void
xenstore_add_number(struct xenstore_update *u, const char *name,
    uint64_t value)
{
	unsigned i = u->n;

	xenstore_add(u, name, NULL);
	snprintf(u->node[i].number, sizeof(u->node[i].number), "%llu",
	    (unsigned long long)value);
}

int
xenstore_write(struct xenstore *s, xs_transaction_t t, const char *dir,
    const char *node, const char *value)
{
	char path[XENSTORE_PATH_MAX];
	int rc;

	rc = join(path, dir, node);
	if (rc < 0)
		return rc;
	return xs_write(s->xs, t, path, value, strlen(value)) ? 0 : fail(s);
}

int
xenstore_mkdir(struct xenstore *s, xs_transaction_t t, const char *dir,
    uint32_t owner, uint32_t reader)
{
	struct xs_permissions perms[2] = {
		{ .id = owner, .perms = XS_PERM_NONE },
		{ .id = reader, .perms = XS_PERM_READ },
	};
	unsigned len;
	void *old;

	old = xs_read(s->xs, t, dir, &len);
	if (old != NULL) {
		free(old);
		return -EEXIST;
	}
	if (errno != ENOENT)
		return fail(s);
	/* What is made below it gets the same permissions. */
	if (!xs_mkdir(s->xs, t, dir) ||
	    !xs_set_permissions(s->xs, t, dir, perms, 2))
		return fail(s);
	return 0;
}

int
xenstore_remove(struct xenstore *s, xs_transaction_t t, const char *dir,
    unsigned parents)
{
	char path[XENSTORE_PATH_MAX], **names;
	unsigned n;
	int rc;

	rc = join(path, dir, "");
	if (rc < 0)
		return rc;
	if (!xs_rm(s->xs, t, path)) {
		rc = fail(s);
		return rc == -ENOENT ? 0 : rc;
	}
	while (parents-- > 0) {
		*strrchr(path, '/') = '\0';
		names = xenstore_list(s, t, path, &n);
		if (names == NULL || n > 0) {
			free(names);
			return 0;
		}
		free(names);
		if (!xs_rm(s->xs, t, path))
			return fail(s);
	}
	return 0;
}

int
xenstore_transaction(struct xenstore *s,
    int (*body)(struct xenstore *s, xs_transaction_t t, void *arg), void *arg)
{
	xs_transaction_t t;
	int rc, i;

	for (i = 0; i < TRIES; i++) {
		t = xs_transaction_start(s->xs);
		if (t == XBT_NULL)
			return fail(s);
		rc = body(s, t, arg);
		if (rc < 0) {
			/* A second error has nothing to add to the first. */
			if (!xs_transaction_end(s->xs, t, true))
				fail(s);
			return rc;
		}
		if (xs_transaction_end(s->xs, t, false))
			return 0;
		rc = fail(s);
		if (rc != -EAGAIN)
			return rc;
	}
	return -EAGAIN;
}

struct update_arg {
	const char                   *dir;
	uint32_t                      expect;
	const struct xenstore_update *u;
};

static int
update_body(struct xenstore *s, xs_transaction_t t, void *arg)
{
	const struct update_arg *a = arg;
	char state[16];
	uint32_t now;
	unsigned i;
	int rc;

	rc = xenstore_read(s, t, a->dir, "state", state, sizeof(state));
	if (rc < 0)
		return rc;
	if (a->expect != XENSTORE_ANY &&
	    (xenstore_parse_u32(state, UINT32_MAX, &now) < 0 ||
	    now != a->expect))
		return -ESTALE;
	for (i = 0; rc == 0 && i < a->u->n; i++)
		rc = xenstore_write(s, t, a->dir, a->u->node[i].name,
		    a->u->node[i].text != NULL ? a->u->node[i].text :
		    a->u->node[i].number);
	return rc;
}

int
xenstore_update(struct xenstore *s, const char *dir, uint32_t expect,
    const struct xenstore_update *u)
{
	struct update_arg a = { dir, expect, u };

	return xenstore_transaction(s, update_body, &a);
}

int
xenstore_watch(struct xenstore *s, const char *path, const char *token)
{
	return xs_watch(s->xs, path, token) ? 0 : fail(s);
}

void
xenstore_unwatch(struct xenstore *s, const char *path, const char *token)
{
	/* Only the connection's end can make this fail; fail() sees that. */
	if (!xs_unwatch(s->xs, path, token))
		fail(s);
}

bool
xenstore_introduced(struct xenstore *s, uint32_t domid)
{
	errno = 0;
	if (xs_is_domain_introduced(s->xs, domid))
		return true;
	/* "No" and "could not ask" look the same. */
	if (errno != 0)
		fail(s);
	return false;
}
