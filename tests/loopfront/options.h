/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * options: what loopfront can be told, on its command line and, by a guest's
 * socket, line by line.  One table names each option, where it is allowed and
 * what it means; the parser and the help both read it.
 */
#ifndef LOOPFRONT_OPTIONS_H
#define LOOPFRONT_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "tests/loopfront/front.h"

enum job_rw { RW_READ, RW_WRITE, RW_RANDREAD, RW_RANDWRITE, RW_RW, RW_RANDRW,
    RW_TRIM, RW_RANDTRIM };
enum job_spin { SPIN_OFF, SPIN_EVENT, SPIN_RING };
enum job_expect { EXPECT_OKAY, EXPECT_ERROR, EXPECT_UNSUPPORTED };

#define OPTIONS_NO_OP	256u		/* job.op: as rw says */
#define OPTIONS_MAX_QUEUES 16u
#define OPTIONS_ALL_QUEUES UINT32_MAX	/* job.queue: all that there are */

/* Sizes are bytes, times seconds unless the name says otherwise. */
struct options {
	/* the domain */
	unsigned	 domid;
	const char	*name;
	uint64_t	 memory;
	bool		 hidden;	/* do not introduce it */
	const char	*socket;
	bool		 background;

	/* a connection */
	const char	*vdev;
	enum front_abi	 abi;
	unsigned	 order;
	unsigned	 segments;	/* of a request, as far as offered */
	int		 jump;		/* bool */
	bool		 hold;
	bool		 check_padding;
	bool		 writable_grants;
	int		 persistent;	/* bool */
	unsigned	 queues;	/* as far as offered */
	bool		 name_queues;
	double		 grace;
	double		 wait;

	/* an I/O job */
	enum job_rw	 rw;
	unsigned	 mix;
	uint64_t	 bs;
	unsigned	 depth;
	unsigned	 batch;
	double		 time;
	uint64_t	 ios;
	uint64_t	 offset, size;
	unsigned	 flush_every;
	bool		 flush_elsewhere;
	unsigned	 queue;		/* the only one that is used */
	bool		 verify;
	bool		 zeroed;
	bool		 torn;
	enum job_spin	 spin;
	unsigned	 think_us;
	unsigned	 misalign;	/* sectors */
	unsigned	 op;
	enum job_expect	 expect;
	uint64_t	 seed;
	double		 stall;
	double		 progress;
	bool		 json;

	/* loopfront run */
	bool		 connect_only;
	unsigned	 reconnect;
	bool		 vary;
	bool		 leave_open;
	bool		 abrupt;

	/* what is to go wrong with grants */
	uint64_t	 copy_nth, copy_count;
	uint64_t	 map_nth;
	unsigned	 copy_delay_ms;
};

/* Where an option is allowed. */
#define IN_DOMAIN	1u
#define IN_CONNECT	2u
#define IN_IO		4u
#define IN_RUN		8u
#define IN_WAIT		16u
#define IN_FAULT	32u
#define IN_KEXEC	64u

void	options_init(struct options *);

/*
 * Parse argv[1] and what follows; 'where' says which options are allowed.  On
 * success the number of the first argument that is none; on failure -EINVAL,
 * and one line on 'err'.  Strings point into argv.  May be called by several
 * threads.
 */
int	options_parse(struct options *, unsigned where, int argc, char **argv,
	    FILE *err);

/* One line per option that is allowed there. */
void	options_help(unsigned where, FILE *);

#endif /* LOOPFRONT_OPTIONS_H */
