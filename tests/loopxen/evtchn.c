/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * libxenevtchn.so.1 without Xen: the real one's functions on lx_events.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <xenevtchn.h>

#include "tests/loopxen/events.h"

/* The library's handle is ours under another name. */
static struct lx_events *
events(xenevtchn_handle *xce)
{
	return (struct lx_events *)xce;
}

/* Inside 0, a number or -errno; outside -1 and errno. */
static int
result(int n)
{
	if (n >= 0)
		return n;
	errno = -n;
	return -1;
}

static xenevtchn_handle *
opened(struct lx_events *ev, int error)
{
	if (error == 0)
		return (xenevtchn_handle *)ev;
	fprintf(stderr, "loopxen: event channels: cannot reach the broker at "
	    "LOOPXEN_SOCKET: %s; start it with tests/loopxen/loopxen\n",
	    strerror(-error));
	errno = -error;
	return NULL;
}

xenevtchn_handle *
xenevtchn_open(struct xentoollog_logger *logger, unsigned int flags)
{
	struct lx_events *ev = NULL;
	int		 error;

	(void)logger;
	if (flags & ~XENEVTCHN_NO_CLOEXEC) {
		errno = EINVAL;
		return NULL;
	}
	error = lx_events_open(lx_own_domid(), lx_own_flags(),
	    !(flags & XENEVTCHN_NO_CLOEXEC), &ev);
	return opened(ev, error);
}

xenevtchn_handle *
xenevtchn_fdopen(struct xentoollog_logger *logger, int fd, unsigned open_flags)
{
	struct lx_events *ev = NULL;
	int		 error;

	(void)logger;
	if (open_flags != 0) {
		errno = EINVAL;
		return NULL;
	}
	error = lx_events_adopt(fd, &ev);
	return opened(ev, error);
}

int
xenevtchn_close(xenevtchn_handle *xce)
{
	if (xce != NULL)
		lx_events_close(events(xce));
	return 0;
}

int
xenevtchn_fd(xenevtchn_handle *xce)
{
	return lx_events_fd(events(xce));
}

int
xenevtchn_notify(xenevtchn_handle *xce, evtchn_port_t port)
{
	return result(lx_events_notify(events(xce), port));
}

xenevtchn_port_or_error_t
xenevtchn_bind_unbound_port(xenevtchn_handle *xce, uint32_t domid)
{
	return result(lx_events_alloc(events(xce), domid));
}

xenevtchn_port_or_error_t
xenevtchn_bind_interdomain(xenevtchn_handle *xce, uint32_t domid,
    evtchn_port_t remote_port)
{
	return result(lx_events_bind(events(xce), domid, remote_port));
}

xenevtchn_port_or_error_t
xenevtchn_bind_virq(xenevtchn_handle *xce, unsigned int virq)
{
	return result(lx_events_virq(events(xce), virq));
}

int
xenevtchn_unbind(xenevtchn_handle *xce, evtchn_port_t port)
{
	return result(lx_events_unbind(events(xce), port));
}

xenevtchn_port_or_error_t
xenevtchn_pending(xenevtchn_handle *xce)
{
	return result(lx_events_pending(events(xce)));
}

int
xenevtchn_unmask(xenevtchn_handle *xce, evtchn_port_t port)
{
	return result(lx_events_unmask(events(xce), port));
}

int
xenevtchn_restrict(xenevtchn_handle *xce, domid_t domid)
{
	return result(lx_events_restrict(events(xce), domid));
}
