/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * server: a guest's socket, where commands come in, and its other end.
 */
#ifndef LOOPFRONT_SERVER_H
#define LOOPFRONT_SERVER_H

#include "tests/loopfront/domain.h"

struct server;

/* Listen on 'path' and serve each connection in a thread.  0 or -errno. */
int	server_start(struct server **, struct domain *, const char *path);
/*
 * The domain is stopping: wait until no command runs, take no more.  The
 * connection that said "quit" is answered by server_end().
 */
void	server_stop(struct server *);
void	server_end(struct server *);

/*
 * Send one command to a guest's socket; its output goes to stdout, why it
 * failed to stderr.  An exit status.
 */
int	server_ask(const char *path, int argc, char **argv);

#endif /* LOOPFRONT_SERVER_H */
