/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * One handle on event channels: what /dev/xen/evtchn is to a process.  Used
 * by the drop-in libxenevtchn and by the guest's side.  Ports are numbers of
 * the handle's own domain and work on the handle that made them only.
 * Functions return 0 (ports: the number) or -errno.
 */
#ifndef LOOPXEN_EVENTS_H
#define LOOPXEN_EVENTS_H

#include "tests/loopxen/shared.h"

struct lx_events;

int	lx_events_open(uint32_t domid, uint32_t flags, bool cloexec,
	    struct lx_events **);
int	lx_events_adopt(int fd, struct lx_events **);
void	lx_events_close(struct lx_events *);
int	lx_events_fd(const struct lx_events *);

int	lx_events_alloc(struct lx_events *, uint32_t domid);
int	lx_events_bind(struct lx_events *, uint32_t domid, uint32_t port);
int	lx_events_virq(struct lx_events *, uint32_t virq);
int	lx_events_unbind(struct lx_events *, uint32_t port);
int	lx_events_restrict(struct lx_events *, uint32_t domid);

int	lx_events_notify(struct lx_events *, uint32_t port);
int	lx_events_pending(struct lx_events *);
int	lx_events_unmask(struct lx_events *, uint32_t port);
void	lx_events_mask(struct lx_events *, uint32_t port);

/* The shared words of a port of this handle. */
struct lx_port *lx_events_port(const struct lx_events *, uint32_t port);

/* An event arrives at port, whose owner has eventfd fd; idle is written to
 * when the owner need not wake. */
int	lx_deliver(struct lx_port *, int fd, int idle);

#endif /* LOOPXEN_EVENTS_H */
