/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * command: what a guest can be told to do, one line each.
 *
 * Over a socket, one connection is one command: the client sends a line, the
 * guest answers with lines of which the last one is "ok" or "failed: why", and
 * closes.  Commands of several connections run side by side.
 */
#ifndef LOOPFRONT_COMMAND_H
#define LOOPFRONT_COMMAND_H

#include <stdio.h>

#include "tests/loopfront/domain.h"

#define COMMAND_WHY	512
#define COMMAND_ARGS	64

/*
 * Run one; its output goes to 'out'.  0; -errno with 'why'; -EINVAL also when
 * there is no such command.
 */
int	command_run(struct domain *, int argc, char **argv, FILE *out,
	    char why[COMMAND_WHY]);

/* Cut a line at its blanks, in place.  How many words, at most COMMAND_ARGS. */
int	command_split(char *line, char *argv[COMMAND_ARGS + 1]);

/* One line per command. */
void	command_help(FILE *);

#endif /* LOOPFRONT_COMMAND_H */
