/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See store.h. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/loopfront/store.h"

static const char *
full(char buf[STORE_PATH], const char *path, const char *node)
{
	if (node == NULL)
		snprintf(buf, STORE_PATH, "%s", path);
	else
		snprintf(buf, STORE_PATH, "%s/%s", path, node);
	return buf;
}

char *
store_read(struct xs_handle *xs, xs_transaction_t t, const char *path,
    const char *node)
{
	char	buf[STORE_PATH];

	return xs_read(xs, t, full(buf, path, node), NULL);
}

int
store_number(struct xs_handle *xs, xs_transaction_t t, const char *path,
    const char *node, uint64_t *value)
{
	char	*text = store_read(xs, t, path, node), *end;
	int	 rc = 0;

	if (text == NULL)
		return -ENOENT;
	errno = 0;
	*value = strtoull(text, &end, 10);
	if (errno != 0 || end == text || *end != '\0')
		rc = -EINVAL;
	free(text);
	return rc;
}

bool
store_exists(struct xs_handle *xs, xs_transaction_t t, const char *path,
    const char *node)
{
	char	*text = store_read(xs, t, path, node);

	free(text);
	return text != NULL;
}

int
store_write(struct xs_handle *xs, xs_transaction_t t, const char *path,
    const char *node, const char *fmt, ...)
{
	char	buf[STORE_PATH], text[STORE_PATH];
	va_list	ap;
	int	len;

	va_start(ap, fmt);
	len = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (len < 0 || len >= (int)sizeof(text))
		return -EINVAL;
	return xs_write(xs, t, full(buf, path, node), text, (unsigned)len) ?
	    0 : -errno;
}

int
store_remove(struct xs_handle *xs, xs_transaction_t t, const char *path,
    const char *node)
{
	char	buf[STORE_PATH];

	return xs_rm(xs, t, full(buf, path, node)) || errno == ENOENT ?
	    0 : -errno;
}
