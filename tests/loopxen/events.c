/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Event channels on shared words and eventfds.
 *
 *	sender                                     owner of the port
 *	notify: MASKED set?   yes: set PENDING
 *	                      no:  set READY, MASKED,
 *	                           eventfd += 1  ----> readable
 *	                                           pending: eventfd -= 1,
 *	                                                    clear READY
 *	                                           unmask: PENDING set?
 *	                                                yes: READY again
 *	                                                no:  clear MASKED
 *
 * A notify is one write(2) whatever happens to the event, because under Xen it
 * is one hypercall whatever happens: an event that wakes nobody is written to
 * an eventfd of our own that nobody reads.
 *
 * The lock is held while the broker makes or closes a port, so that a thread
 * that takes an event meanwhile finds the port in the list or not at all.
 */
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/queue.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/loopxen/events.h"

/* A port of this handle, and its other end as seen at link. */
struct port {
	TAILQ_ENTRY(port)	 entry;
	uint32_t		 number;
	uint64_t		 link;
	uint32_t		 domid;		/* whom the counters concern */
	struct lx_domain	*peerdom;	/* NULL: not known yet */
	struct lx_port		*peer;
	int			 peerfd;
};

struct lx_events {
	pthread_mutex_t		 lock;
	int			 sock;
	int			 fd;		/* counts READY ports */
	int			 idle;		/* for events without effect */
	uint32_t		 id;
	uint32_t		 flags;
	struct lx_domain	*dom;		/* our own domain's head */
	struct lx_costs		 costs;
	TAILQ_HEAD(ports, port)	 ports;
};

static int
event_write(int fd)
{
	uint64_t	one = 1;
	ssize_t		n;

	while ((n = write(fd, &one, sizeof(one))) == -1 && errno == EINTR)
		;
	return n == (ssize_t)sizeof(one) ? 0 : -errno;
}

int
lx_deliver(struct lx_port *port, int fd, int idle)
{
	uint32_t	old, new;

	old = atomic_load(&port->bits);
	do {
		new = (old & LX_MASKED) ? old | LX_PENDING :
		    old | LX_READY | LX_MASKED;
	} while (!atomic_compare_exchange_weak(&port->bits, &old, new));

	/*
	 * A process killed between the two, which are one hypercall under Xen,
	 * has woken nobody: the broker does it then.
	 */
	return event_write(((new ^ old) & LX_READY) != 0 ? fd : idle);
}

/* ---- opening ---------------------------------------------------------- */

static int
events_start(struct lx_events *ev, int sock, struct lx_msg *msg, int sendfd)
{
	int	fds[LX_MSG_FDS], error;

	ev->sock = sock;
	ev->idle = -1;
	if ((error = lx_call(sock, msg, sendfd, fds)) == 0 &&
	    (fds[0] == -1 || fds[1] == -1))
		error = -EPROTO;
	if (error == 0 && (ev->idle = eventfd(0, EFD_CLOEXEC)) == -1)
		error = -errno;
	if (error == 0 && (ev->dom = lx_map(fds[1], LX_HEAD_SIZE)) == NULL)
		error = -errno;
	if (fds[1] != -1)
		close(fds[1]);
	if (error != 0) {
		if (fds[0] != -1)
			close(fds[0]);
		if (ev->idle != -1)
			close(ev->idle);
		return error;
	}
	ev->fd = fds[0];
	ev->id = msg->value;
	ev->flags = msg->flags;
	lx_costs_read(&ev->costs);
	return 0;
}

static int
events_new(struct lx_msg *msg, int sendfd, bool cloexec,
    struct lx_events **evp)
{
	struct lx_events *ev;
	int		 sock, error;

	if ((ev = calloc(1, sizeof(*ev))) == NULL)
		return -ENOMEM;
	if ((sock = lx_connect(cloexec)) < 0) {
		free(ev);
		return sock;
	}
	if ((error = events_start(ev, sock, msg, sendfd)) != 0) {
		close(sock);
		free(ev);
		return error;
	}
	pthread_mutex_init(&ev->lock, NULL);
	TAILQ_INIT(&ev->ports);
	*evp = ev;
	return 0;
}

int
lx_events_open(uint32_t domid, uint32_t flags, bool cloexec,
    struct lx_events **evp)
{
	struct lx_msg	 msg = { .op = LX_OP_EVENTS, .domid = domid,
			    .flags = flags };
	int		 error;

	if ((error = events_new(&msg, -1, cloexec, evp)) != 0)
		return error;
	if (!cloexec && fcntl((*evp)->fd, F_SETFD, 0) == -1) {
		error = -errno;
		lx_events_close(*evp);
		return error;
	}
	return 0;
}

static struct port *
port_add(struct lx_events *ev, uint32_t number, uint32_t domid)
{
	struct port	*p;

	if ((p = calloc(1, sizeof(*p))) == NULL)
		return NULL;
	p->number = number;
	p->domid = domid;
	p->peerfd = -1;
	TAILQ_INSERT_TAIL(&ev->ports, p, entry);
	return p;
}

static void
port_forget_peer(struct port *p)
{
	if (p->peerdom != NULL)
		munmap(p->peerdom, LX_HEAD_SIZE);
	if (p->peerfd != -1)
		close(p->peerfd);
	p->peerdom = NULL;
	p->peer = NULL;
	p->peerfd = -1;
	p->link = 0;
}

static void
port_remove(struct lx_events *ev, struct port *p)
{
	port_forget_peer(p);
	TAILQ_REMOVE(&ev->ports, p, entry);
	free(p);
}

/* Open what another handle (of this process, or of one before an exec) had:
 * its eventfd is all that is needed, as with the real device. */
int
lx_events_adopt(int fd, struct lx_events **evp)
{
	struct lx_msg	 msg = { .op = LX_OP_ADOPT };
	struct lx_events *ev;
	struct lx_port	*sp;
	int		 error;

	if ((error = events_new(&msg, fd, true, &ev)) != 0)
		return error;
	close(ev->fd);		/* the broker's copy: ours is the caller's */
	ev->fd = fd;
	for (uint32_t n = 1; n < LX_PORTS; n++) {
		sp = lx_domain_port(ev->dom, n);
		if (lx_link_state(atomic_load(&sp->link)) == LX_FREE ||
		    atomic_load(&sp->owner) != ev->id)
			continue;
		if (port_add(ev, n, lx_link_domid(sp->link)) == NULL) {
			ev->fd = -1;	/* stays the caller's */
			lx_events_close(ev);
			return -ENOMEM;
		}
	}
	*evp = ev;
	return 0;
}

void
lx_events_close(struct lx_events *ev)
{
	struct port	*p;

	while ((p = TAILQ_FIRST(&ev->ports)) != NULL)
		port_remove(ev, p);
	munmap(ev->dom, LX_HEAD_SIZE);
	if (ev->fd != -1)
		close(ev->fd);
	close(ev->idle);
	close(ev->sock);	/* the broker closes the ports */
	pthread_mutex_destroy(&ev->lock);
	free(ev);
}

int
lx_events_fd(const struct lx_events *ev)
{
	return ev->fd;
}

/* ---- ports come and go ------------------------------------------------ */

static struct port *
port_find(struct lx_events *ev, uint32_t number)
{
	struct port	*p;

	TAILQ_FOREACH(p, &ev->ports, entry)
		if (p->number == number)
			return p;
	return NULL;
}

/* Take over what the broker said about the other end. */
static int
port_set_peer(struct lx_events *ev, struct port *p, const struct lx_msg *msg,
    int fds[LX_MSG_FDS])
{
	port_forget_peer(p);
	if (fds[0] == -1 || fds[1] == -1 || msg->port == 0 ||
	    msg->port >= LX_PORTS)
		return -EPROTO;
	if ((p->peerdom = lx_map(fds[1], LX_HEAD_SIZE)) == NULL)
		return -errno;
	p->peer = lx_domain_port(p->peerdom, msg->port);
	p->peerfd = fds[0];
	fds[0] = -1;
	p->domid = msg->domid;
	p->link = atomic_load(&lx_domain_port(ev->dom, p->number)->link);
	return 0;
}

static void
fds_close(int fds[LX_MSG_FDS])
{
	for (int i = 0; i < LX_MSG_FDS; i++)
		if (fds[i] != -1)
			close(fds[i]);
}

/* A port from the broker, into our list: its number, or -errno. */
static int
port_make(struct lx_events *ev, struct lx_msg *msg, struct port **pp,
    int fds[LX_MSG_FDS])
{
	struct lx_msg	 undo = { .op = LX_OP_UNBIND };
	int		 nofds[LX_MSG_FDS], error;

	if ((error = lx_call(ev->sock, msg, -1, fds)) != 0)
		return error;
	if ((*pp = port_add(ev, msg->value, msg->domid)) == NULL) {
		undo.port = msg->value;
		(void)lx_call(ev->sock, &undo, -1, nofds);
		fds_close(nofds);
		return -ENOMEM;
	}
	return (int)msg->value;
}

int
lx_events_alloc(struct lx_events *ev, uint32_t domid)
{
	struct lx_msg	 msg = { .op = LX_OP_ALLOC, .domid = domid };
	struct port	*p;
	int		 fds[LX_MSG_FDS], number;

	lx_spin(ev->costs.call_ns);
	pthread_mutex_lock(&ev->lock);
	number = port_make(ev, &msg, &p, fds);
	pthread_mutex_unlock(&ev->lock);
	fds_close(fds);
	return number;
}

int
lx_events_virq(struct lx_events *ev, uint32_t virq)
{
	struct lx_msg	 msg = { .op = LX_OP_VIRQ, .value = virq };
	struct port	*p;
	int		 fds[LX_MSG_FDS], number;

	lx_spin(ev->costs.call_ns);
	pthread_mutex_lock(&ev->lock);
	number = port_make(ev, &msg, &p, fds);
	pthread_mutex_unlock(&ev->lock);
	fds_close(fds);
	return number;
}

static int
port_close(struct lx_events *ev, struct port *p)
{
	struct lx_msg	 msg = { .op = LX_OP_UNBIND, .port = p->number };
	struct lx_port	*sp = lx_domain_port(ev->dom, p->number);
	struct pollfd	 pfd = { .fd = ev->fd, .events = POLLIN };
	struct timespec	 now = { 0, 0 };
	uint64_t	 count;
	int		 fds[LX_MSG_FDS], error;
	bool		 ready;

	ready = (atomic_load(&sp->bits) & LX_READY) != 0;
	error = lx_call(ev->sock, &msg, -1, fds);
	fds_close(fds);
	if (error != 0)
		return error;
	port_remove(ev, p);
	/* An event of it that nobody has taken is not to be read later. */
	if (ready && ppoll(&pfd, 1, &now, NULL) == 1 &&
	    read(ev->fd, &count, sizeof(count)) == -1 && errno != EAGAIN)
		return -errno;
	return 0;
}

int
lx_events_bind(struct lx_events *ev, uint32_t domid, uint32_t port)
{
	struct lx_msg	 msg = { .op = LX_OP_BIND, .domid = domid,
			    .port = port };
	struct port	*p = NULL;
	int		 fds[LX_MSG_FDS], number, error;

	lx_spin(ev->costs.call_ns);
	pthread_mutex_lock(&ev->lock);
	number = port_make(ev, &msg, &p, fds);
	if (p != NULL) {
		error = port_set_peer(ev, p, &msg, fds);
		/* What the other end sent before now is lost: raise it once */
		if (error == 0)
			error = lx_deliver(lx_domain_port(ev->dom,
			    p->number), ev->fd, ev->idle);
		if (error != 0) {
			(void)port_close(ev, p);
			number = error;
		}
	}
	pthread_mutex_unlock(&ev->lock);
	fds_close(fds);
	return number;
}

int
lx_events_unbind(struct lx_events *ev, uint32_t port)
{
	struct port	*p;
	int		 error = -ENOTCONN;

	lx_spin(ev->costs.call_ns);
	pthread_mutex_lock(&ev->lock);
	if ((p = port_find(ev, port)) != NULL)
		error = port_close(ev, p);
	pthread_mutex_unlock(&ev->lock);
	return error;
}

int
lx_events_restrict(struct lx_events *ev, uint32_t domid)
{
	struct lx_msg	 msg = { .op = LX_OP_RESTRICT, .domid = domid };
	int		 fds[LX_MSG_FDS], error;

	pthread_mutex_lock(&ev->lock);
	error = lx_call(ev->sock, &msg, -1, fds);
	pthread_mutex_unlock(&ev->lock);
	fds_close(fds);
	return error;
}

/* ---- events ----------------------------------------------------------- */

/* Count it where it concerns a frontend: there, and in its own domain. */
static void
events_count(struct lx_events *ev, struct port *p, enum lx_count what)
{
	if (ev->flags & LX_UNCOUNTED)
		return;
	if (ev->flags & LX_GUEST) {
		if (what == LX_BACKEND_NOTIFIES)
			lx_count(ev->dom, ev->id, LX_FRONTEND_NOTIFIES, 1);
	} else if (p->peerdom != NULL)
		lx_count(p->peerdom, ev->id, what, 1);
}

/* Bound since we looked last, or bound by somebody else: ask who it is. */
static int
port_lookup(struct lx_events *ev, struct port *p)
{
	struct lx_msg	 msg = { .op = LX_OP_PEER, .port = p->number };
	int		 fds[LX_MSG_FDS], error;

	if ((error = lx_call(ev->sock, &msg, -1, fds)) == 0)
		error = port_set_peer(ev, p, &msg, fds);
	fds_close(fds);
	return error;
}

static int
events_send(struct lx_events *ev, struct port *p)
{
	struct lx_port	*sp = lx_domain_port(ev->dom, p->number);
	uint64_t	 link = atomic_load(&sp->link);
	int		 error;

	switch (lx_link_state(link)) {
	case LX_INTERDOMAIN:
		break;
	case LX_UNBOUND:	/* Xen drops it silently */
		events_count(ev, p, LX_BACKEND_NOTIFIES);
		return event_write(ev->idle);
	default:
		return -EINVAL;
	}
	if (p->peer == NULL || p->link != link) {
		error = port_lookup(ev, p);
		if (error == -ENOTCONN)	/* gone in this moment */
			return event_write(ev->idle);
		if (error != 0)
			return error;
	}
	events_count(ev, p, LX_BACKEND_NOTIFIES);
	return lx_deliver(p->peer, p->peerfd, ev->idle);
}

int
lx_events_notify(struct lx_events *ev, uint32_t port)
{
	struct port	*p;
	int		 error = -ENOTCONN;

	lx_spin(ev->costs.notify_ns);
	pthread_mutex_lock(&ev->lock);
	if ((p = port_find(ev, port)) != NULL)
		error = events_send(ev, p);
	pthread_mutex_unlock(&ev->lock);
	return error;
}

/*
 * Take one delivered event: its port.  Sleeps when there is none, unless the
 * descriptor is non-blocking, as the real device does.
 *
 * When the port of an event is closed before it is taken, or the broker wakes
 * for a dead sender whose event was taken already, no port is READY.  Callers
 * that have seen the descriptor readable do not expect a failure (xenstored
 * ends): they get an event for nothing, which Xen may send at any time.
 */
int
lx_events_pending(struct lx_events *ev)
{
	struct port	*p;
	uint64_t	 count;
	uint32_t	 old;
	ssize_t		 n;

	lx_spin(ev->costs.call_ns);
	if ((n = read(ev->fd, &count, sizeof(count))) == -1)
		return -errno;
	if (n != (ssize_t)sizeof(count))
		return -EIO;

	pthread_mutex_lock(&ev->lock);
	TAILQ_FOREACH(p, &ev->ports, entry) {
		old = atomic_fetch_and(&lx_domain_port(ev->dom,
		    p->number)->bits, ~LX_READY);
		if (old & LX_READY)
			break;
	}
	if (p == NULL)
		p = TAILQ_FIRST(&ev->ports);
	if (p != NULL) {
		events_count(ev, p, LX_BACKEND_PENDING);
		/* the next search starts with the others */
		TAILQ_REMOVE(&ev->ports, p, entry);
		TAILQ_INSERT_TAIL(&ev->ports, p, entry);
	}
	pthread_mutex_unlock(&ev->lock);
	return p != NULL ? (int)p->number : -EAGAIN;
}

/* Like the real one, silent about a port that is not ours. */
int
lx_events_unmask(struct lx_events *ev, uint32_t port)
{
	struct lx_port	*sp;
	struct port	*p;
	uint32_t	 old, new;
	int		 error = 0;

	lx_spin(ev->costs.call_ns);
	pthread_mutex_lock(&ev->lock);
	if ((p = port_find(ev, port)) != NULL) {
		sp = lx_domain_port(ev->dom, port);
		events_count(ev, p, LX_BACKEND_UNMASKS);
		old = atomic_load(&sp->bits);
		do {
			new = (old & LX_PENDING) ?
			    (old & ~LX_PENDING) | LX_READY | LX_MASKED :
			    old & ~LX_MASKED;
		} while (!atomic_compare_exchange_weak(&sp->bits, &old, new));
		if ((new & ~old) & LX_READY)
			error = event_write(ev->fd);
	}
	pthread_mutex_unlock(&ev->lock);
	return error;
}

/* For a frontend that spins (its descriptor is non-blocking): an event that
 * was delivered but not taken counts as remembered. */
void
lx_events_mask(struct lx_events *ev, uint32_t port)
{
	struct lx_port	*sp = lx_domain_port(ev->dom, port);
	uint32_t	 old, new;
	uint64_t	 count;

	old = atomic_load(&sp->bits);
	do {
		new = old | LX_MASKED;
		if (old & LX_READY)
			new = (new & ~LX_READY) | LX_PENDING;
	} while (!atomic_compare_exchange_weak(&sp->bits, &old, new));

	if (old & LX_READY)
		while (read(ev->fd, &count, sizeof(count)) == -1 &&
		    errno == EINTR)
			;
}

struct lx_port *
lx_events_port(const struct lx_events *ev, uint32_t port)
{
	return lx_domain_port(ev->dom, port);
}
