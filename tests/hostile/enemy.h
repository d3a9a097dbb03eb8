/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * enemy: a guest that means harm, and what may come of it.
 *
 * It has a domain, one disk (xvda), and a ring that it fills as it likes: what
 * loopfront's queue sees to (grants given back, ids, indices) is here the
 * business of each attack.  It connects the way a guest does and judges as a
 * guest does, too: each request is answered once and with the status that is
 * due, nothing of it is kept.  And it looks at the backend from dom0's side:
 * what ringback says, the image, and what the processes use.
 *
 * Functions that return int return 0, or -1 after telling why (fail()).
 */
#ifndef HOSTILE_ENEMY_H
#define HOSTILE_ENEMY_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <xen/io/blkif.h>
#include <xen/io/xenbus.h>
#include <xenstore.h>

#include "tests/loopfront/front.h"
#include "tests/loopxen/guest.h"

#define DEVID		51712u		/* xvda */
#define PAGES		2048u		/* of the domain; rings are first */
#define DATA_PAGE	64u		/* where data pages may begin */
#define MAX_IDS		80000u		/* requests of one connection */
#define MAX_QUEUES_TRIED 4u
#define ANY		(-100)		/* OKAY or ERROR, as it may be */
#define WAIT_S		20		/* for what must happen */
#define CALM_MS		50		/* what lasts so long is no passage */

/* Where everything is; from the command line. */
struct world {
	const char *run_dir, *ringback, *image, *log;
	const char *other;		/* DOMAIN of the guest that behaves */
	const char *other_page;		/* page file of its disk */
	pid_t	 daemon;
	bool	 soak;
};
extern struct world world;

/* What a process of the backend uses. */
struct usage {
	long	 rss_kib;
	unsigned fds, threads;
	unsigned long ticks;		/* of CPU, 100 per second */
};

/* One ring, and what was asked on it. */
struct enemy_queue {
	unsigned page;			/* the first of its ring */
	struct front front;
	uint32_t ring_ref[1u << FRONT_MAX_ORDER];
	struct loopguest_port *port;
	unsigned nr_ids, answered;
	bool	 lost;			/* its answers were wrong */
	struct {
		uint8_t	 op, seen;
		int16_t	 status, got;
	} id[MAX_IDS];
};

struct enemy {
	unsigned domid;
	struct loopguest *guest;
	struct xs_handle *xs;
	char	 front_dir[96], back_dir[96];

	/* The rings, once enemy_ring() has made them. */
	bool	 ring;
	bool	 eager;			/* send events that nobody wants */
	bool	 persistent;		/* say that grants are */
	enum front_abi abi;
	unsigned order;
	unsigned nr_queues;		/* to be made; the last is used */
	struct enemy_queue queue[MAX_QUEUES_TRIED];
	struct enemy_queue *q;		/* the one that all of this is about */
};

/* Tell what went wrong, with the name of the attack; always -1. */
int	fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

uint64_t now_ms(void);
void	sleep_ms(unsigned);

/* ---- the domain and its disk -------------------------------------------- */

/* A new domain with a disk that is offered (InitWait) and not connected. */
int	enemy_new(struct enemy *, const char *spec);
/* The domain ends, whatever state it is in; its disk must go, too. */
int	enemy_destroy(struct enemy *);
/* The disk is detached, and everything is given back. */
int	enemy_detach(struct enemy *);

/* Neither a process, nor a directory, nor a file is left of its disk. */
int	enemy_gone(struct enemy *);

int	enemy_write(struct enemy *, const char *node, const char *value);
int	enemy_remove(struct enemy *, const char *node);
int	enemy_state(struct enemy *, enum xenbus_state);
enum xenbus_state enemy_backend(struct enemy *);
int	enemy_await(struct enemy *, enum xenbus_state);
/* The disk's error, as ringback list shows it, contains 'text'. */
int	enemy_blamed(struct enemy *, const char *text);
/* The backend is Closing and says why: the ring is not served any more. */
int	enemy_given_up(struct enemy *, const char *why);

/* ---- the ring ----------------------------------------------------------- */

/* Go on with that queue. */
void	enemy_use(struct enemy *, unsigned queue);

/* Grant the rings, open ports, write the nodes; the state stays. */
int	enemy_ring(struct enemy *, enum front_abi, unsigned order);
/* ... and 3, the backend's 4, 4. */
int	enemy_connect(struct enemy *, enum front_abi, unsigned order);
/* 5, 5, 6, 6; nothing of the ring is kept; then 1, and the backend's 2. */
int	enemy_disconnect(struct enemy *);
/* Take ports and grants back; nobody may have them any more. */
int	enemy_drop_ring(struct enemy *);
/* Closed, and until the backend has done with every state before it. */
int	enemy_settle(struct enemy *);
/* From whatever state back to a disk that is offered. */
int	enemy_recover(struct enemy *);

/* The words of the ring's header: req_prod, req_event, rsp_prod, rsp_event. */
volatile uint32_t *enemy_words(struct enemy *);

/* A grant on data page n (of DATA_PAGE), to domain 0. */
uint32_t enemy_grant(struct enemy *, unsigned n, bool readonly);
void	enemy_ungrant(struct enemy *, uint32_t ref);
void	*enemy_data(struct enemy *, unsigned n);

/* Put a request; 'status' is what it must be answered with. */
void	enemy_ask(struct enemy *, struct front_request *, int status);
/* Publish, and send the event if it is wanted. */
void	enemy_push(struct enemy *);
/* Until everything asked for is answered, each once, each as it must be. */
int	enemy_collect(struct enemy *);

/* ---- the guest beside --------------------------------------------------- */

/* Sees to it that its requests are answered all the time. */
struct watcher {
	pthread_t	 thread;
	atomic_bool	 stop;
	uint64_t	 stall_ms;	/* longest time without an answer */
	uint64_t	 answered;
	bool		 failed;
};

int	watcher_start(struct watcher *);
int	watcher_stop(struct watcher *);	/* -1: they were not */

/* ---- dom0's view -------------------------------------------------------- */

pid_t	enemy_process(struct enemy *);	/* the disk's, or 0 */
int	usage_get(pid_t, struct usage *);
/* Not more than before, but for some memory. */
int	usage_same(const char *whose, const struct usage *before, pid_t);
uint64_t image_sum(void);
unsigned long log_lines(void);
/* Run ringback with these words; its exit status must be 0. */
int	ringback(const char *words);

#endif /* HOSTILE_ENEMY_H */
