/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * attacks: what is tried.  Each gets a disk that is offered and not connected,
 * and leaves its guest in any state; what holds for all of them (main.c) is
 * looked at afterwards.  0, or -1 after fail().
 */
#ifndef HOSTILE_ATTACKS_H
#define HOSTILE_ATTACKS_H

#include "tests/hostile/enemy.h"

struct attack {
	const char *name;
	const char *spec;		/* NULL: the image, raw */
	bool	 writes;		/* the image may change */
	bool	 gone;			/* its disk may be gone at the end */
	int	 (*run)(struct enemy *);
};

/* ---- what several of them use ------------------------------------------- */

#define NR_BAD	7u

/* References that a backend must not get anything through; the fifth is one. */
void	bad_grants(struct enemy *, uint32_t ref[NR_BAD]);

/* A read of one page. */
void	ask_read(struct enemy *, uint32_t ref, uint64_t sector, int status);
/* n of them, answered: the ring lives. */
int	honest_reads(struct enemy *, unsigned n);

/* A second processor of the guest, which calls flip() without a pause. */
struct flipper {
	pthread_t	 thread;
	atomic_bool	 stop;
	void		 (*flip)(struct enemy *, uint32_t random);
	struct enemy	*e;
};

int	flipper_start(struct flipper *, struct enemy *,
	    void (*flip)(struct enemy *, uint32_t));
void	flipper_stop(struct flipper *);

/* ---- the attacks -------------------------------------------------------- */

/* ring.c: the indices, and memory that changes */
int	attack_far_ahead(struct enemy *);
int	attack_one_too_many(struct enemy *);
int	attack_backwards(struct enemy *);
int	attack_senseless_start(struct enemy *);
int	attack_broken_at_once(struct enemy *);
int	attack_scribble(struct enemy *);
int	attack_own_header(struct enemy *);
int	attack_flipping(struct enemy *);
int	attack_never_reads(struct enemy *);
int	attack_ring_as_data(struct enemy *);
int	attack_same_page_twice(struct enemy *);

/* request.c: fields, grants, floods */
int	attack_fields(struct enemy *);
int	attack_segments(struct enemy *);
int	attack_read_only(struct enemy *);
int	attack_discards(struct enemy *);
int	attack_odd_size(struct enemy *);
int	attack_grants(struct enemy *);
int	attack_one_bad_segment(struct enemy *);
int	attack_copy_faults(struct enemy *);
int	attack_floods(struct enemy *);

/* indirect.c: requests whose segments are in a page of the guest's */
int	attack_indirect_fields(struct enemy *);
int	attack_indirect_unoffered(struct enemy *);
int	attack_descriptors(struct enemy *);
int	attack_descriptor_grants(struct enemy *);
int	attack_descriptors_change(struct enemy *);
int	attack_descriptors_vanish(struct enemy *);
int	attack_descriptors_as_data(struct enemy *);

/* persistent.c: pages that stay mapped */
int	attack_mapped_revoked(struct enemy *);
int	attack_mapped_flipping(struct enemy *);
int	attack_many_grants(struct enemy *);
int	attack_many_grants_few(struct enemy *);
int	attack_one_grant(struct enemy *);
int	attack_data_changes(struct enemy *);
int	attack_map_faults(struct enemy *);
int	attack_mapped_in_flight(struct enemy *);
int	attack_dies_mapped(struct enemy *);

/* queues.c: rings beside each other */
int	attack_queue_counts(struct enemy *);
int	attack_queue_nodes(struct enemy *);
int	attack_queue_breaks(struct enemy *);
int	attack_queue_stuffed(struct enemy *);
int	attack_queue_hangs(struct enemy *);
int	attack_queues_share(struct enemy *);
int	attack_queues_as_data(struct enemy *);
int	attack_queues_come_and_go(struct enemy *);

/* life.c: events, xenstore, coming and going */
int	attack_event_storm(struct enemy *);
int	attack_storm_when_broken(struct enemy *);
int	attack_port_closed(struct enemy *);
int	attack_nodes(struct enemy *);
int	attack_links(struct enemy *);
int	attack_bad_ring(struct enemy *);
int	attack_states(struct enemy *);
int	attack_detach(struct enemy *);
int	attack_directory(struct enemy *);
int	attack_ring_nodes(struct enemy *);
int	attack_reconnects(struct enemy *);
int	attack_broken_reconnects(struct enemy *);
int	attack_left_in_flight(struct enemy *);
int	attack_slow_copies(struct enemy *);
int	attack_dies_in_flight(struct enemy *);
int	attack_unseen(struct enemy *);

#endif /* HOSTILE_ATTACKS_H */
