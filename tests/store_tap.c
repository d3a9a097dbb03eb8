/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * store_tap: preloaded into ringbackd, it notes every state that is written.
 *
 * A watch says that a state has changed, not from what to what: who reads it
 * then may have missed some.  Here each is seen, at the moment at which its
 * transaction has come about: a line "PATH VALUE" in the file STORE_TAP.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xenstore.h>

#define PENDING 8

static struct {
	xs_transaction_t t;
	char             line[300];
} pending[PENDING];
static unsigned nr_pending;

static void *
next(const char *name)
{
	void *f = dlsym(RTLD_NEXT, name);

	if (f == NULL)
		abort();
	return f;
}

static void
note(const char *line)
{
	static int fd = -1;
	const char *name = getenv("STORE_TAP");

	if (fd < 0 && name != NULL)
		fd = open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC,
		    0600);
	if (fd < 0 || write(fd, line, strlen(line)) != (ssize_t)strlen(line))
		abort();
}

bool
xs_write(struct xs_handle *h, xs_transaction_t t, const char *path,
    const void *data, unsigned len)
{
	bool (*real)(struct xs_handle *, xs_transaction_t, const char *,
	    const void *, unsigned) = (bool (*)(struct xs_handle *,
	    xs_transaction_t, const char *, const void *, unsigned))
	    next("xs_write");
	size_t n = strlen(path);
	bool ok = real(h, t, path, data, len);

	if (!ok || n < 6 || strcmp(path + n - 6, "/state") != 0)
		return ok;
	if (nr_pending == PENDING)
		abort();
	pending[nr_pending].t = t;
	snprintf(pending[nr_pending].line, sizeof(pending[0].line),
	    "%s %.*s\n", path, (int)len, (const char *)data);
	if (t == XBT_NULL)
		note(pending[nr_pending].line);
	else
		nr_pending++;
	return ok;
}

bool
xs_transaction_end(struct xs_handle *h, xs_transaction_t t, bool abandon)
{
	bool (*real)(struct xs_handle *, xs_transaction_t, bool) =
	    (bool (*)(struct xs_handle *, xs_transaction_t, bool))
	    next("xs_transaction_end");
	bool ok = real(h, t, abandon);
	unsigned i;

	for (i = 0; i < nr_pending; i++)
		if (ok && !abandon && pending[i].t == t)
			note(pending[i].line);
	nr_pending = 0;		/* there is one transaction at a time */
	return ok;
}
