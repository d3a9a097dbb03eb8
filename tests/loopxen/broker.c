/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * loopxen-broker: the part of loopxen that outlives its clients.
 *
 * It owns the domains' files, gives out ports, introduces the two ends of a
 * channel to each other, and cleans up after a client whose connection ends:
 * ports are closed (the other end can be bound again), pins are dropped, a
 * domain whose own process ended is destroyed.  It takes no part in copies,
 * maps and events.
 *
 *	client (a connection) --- events (a handle, its eventfd)
 *	                      \-- domain (the guest's own connection)
 *	                       \- slots  (a grant handle's bits, per domain)
 *
 * Everything is non-blocking: a client that does not read its answer is
 * dropped.
 */
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/queue.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/loopxen/events.h"

#define VIRQ_DOM_EXC	3u
#define ANY_DOMID	UINT32_MAX
#define ZERO_PAGES	4097u	/* of domain 0, should somebody play it */

struct domain {
	LIST_ENTRY(domain)	 entry;
	uint32_t		 domid;
	int			 fd;
	struct lx_domain	*dom;
	struct client		*slot[LX_SLOTS];
	struct client		*guest;		/* of domain 0: who plays it */
};

struct events {
	LIST_ENTRY(events)	 entry;
	uint32_t		 id;
	unsigned		 clients;	/* connections that hold it */
	int			 fd;
	uint32_t		 flags;
	uint32_t		 only;		/* restricted to it, or ANY */
	struct domain		*domain;	/* NULL: destroyed */
};

struct client {
	int			 sock;
	bool			 gnttab;
	struct events		*events;
	struct domain		*domain;	/* whose life this is */
};

struct answer {
	struct lx_msg	 msg;
	int		 fds[LX_MSG_FDS];	/* borrowed */
	int		 sent;		/* came with the request, or -1 */
};

static LIST_HEAD(domains, domain) domains = LIST_HEAD_INITIALIZER(domains);
static LIST_HEAD(handles, events) handles = LIST_HEAD_INITIALIZER(handles);
static uint32_t	last_id;
static int	idle;	/* for events that wake nobody */

/* ---- domains and handles ---------------------------------------------- */

static struct domain *
domain_find(uint32_t domid)
{
	struct domain	*d;

	LIST_FOREACH(d, &domains, entry)
		if (d->domid == domid)
			return d;
	return NULL;
}

/* NULL and errno */
static struct domain *
domain_new(uint32_t domid, uint32_t npages)
{
	size_t		 size = lx_domain_size(npages);
	struct domain	*d;
	int		 error;

	if ((d = calloc(1, sizeof(*d))) == NULL)
		return NULL;
	d->domid = domid;
	d->fd = memfd_create("loopxen-domain", MFD_CLOEXEC |
	    MFD_ALLOW_SEALING);
	if (d->fd == -1)
		goto fail;
	if (ftruncate(d->fd, (off_t)size) == -1 || fcntl(d->fd, F_ADD_SEALS,
	    F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == -1)
		goto fail;
	/* The pages are the guest's business: the broker maps the rest. */
	d->dom = mmap(NULL, LX_PAGES_OFFSET, PROT_READ | PROT_WRITE,
	    MAP_SHARED, d->fd, 0);
	if (d->dom == MAP_FAILED)
		goto fail;
	d->dom->magic = LX_MAGIC;
	d->dom->domid = domid;
	d->dom->npages = npages;
	LIST_INSERT_HEAD(&domains, d, entry);
	return d;
 fail:
	error = errno;
	if (d->fd != -1)
		close(d->fd);
	free(d);
	errno = error;
	return NULL;
}

static struct events *
events_new(struct domain *d, uint32_t flags)
{
	struct events	*ev;

	if ((ev = calloc(1, sizeof(*ev))) == NULL)
		return NULL;
	if ((ev->fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE)) == -1) {
		free(ev);	/* keeps errno */
		return NULL;
	}
	ev->id = ++last_id;
	ev->clients = 1;
	ev->flags = flags;
	ev->only = ANY_DOMID;
	ev->domain = d;
	LIST_INSERT_HEAD(&handles, ev, entry);
	return ev;
}

static struct events *
events_find(uint32_t id)
{
	struct events	*ev;

	LIST_FOREACH(ev, &handles, entry)
		if (ev->id == id)
			return ev;
	return NULL;
}

/* ---- ports ------------------------------------------------------------ */

static void
port_link(struct lx_port *p, enum lx_state state, uint32_t domid,
    uint32_t port)
{
	unsigned	gen = lx_link_gen(atomic_load(&p->link)) + 1;

	atomic_store(&p->link, lx_link(state, gen, domid, port));
}

/* The lowest free port, as Xen chooses. */
static uint32_t
port_new(struct events *ev)
{
	struct lx_port	*p;

	for (uint32_t n = 1; n < LX_PORTS; n++) {
		p = lx_domain_port(ev->domain->dom, n);
		if (lx_link_state(atomic_load(&p->link)) != LX_FREE)
			continue;
		atomic_store(&p->bits, 0);
		atomic_store(&p->owner, ev->id);
		p->binder = 0;
		return n;
	}
	return 0;
}

/* A bound channel ends: the frontend's domain has one less. */
static void
port_count_end(struct domain *d, struct lx_port *p, struct domain *od,
    struct lx_port *op)
{
	struct domain	*front = p->binder ? od : d;
	struct lx_port	*back = p->binder ? p : op;
	struct events	*ev = events_find(atomic_load(&back->owner));

	if (ev == NULL || (ev->flags & LX_UNCOUNTED))
		return;
	atomic_fetch_sub(&front->dom->bound_now, 1);
	if (back == p)
		lx_count(front->dom, ev->id, LX_UNBINDS, 1);
}

/*
 * The end that sent to it is gone, perhaps killed between marking an event and
 * writing it: whoever has it looks once too often rather than never.
 */
static void
port_wake(struct lx_port *p)
{
	struct events	*ev = events_find(atomic_load(&p->owner));
	uint64_t	 one = 1;

	if (ev != NULL && (atomic_load(&p->bits) & LX_READY) != 0 &&
	    write(ev->fd, &one, sizeof(one)) == -1 && errno != EAGAIN)
		warn("cannot wake handle %u", ev->id);
}

static void
port_close(struct domain *d, uint32_t port)
{
	struct lx_port	*p = lx_domain_port(d->dom, port), *op;
	uint64_t	 link = atomic_load(&p->link);
	struct domain	*od;

	if (lx_link_state(link) == LX_INTERDOMAIN &&
	    (od = domain_find(lx_link_domid(link))) != NULL) {
		op = lx_domain_port(od->dom, lx_link_port(link));
		port_count_end(d, p, od, op);
		port_link(op, LX_UNBOUND, d->domid, 0);
		port_wake(op);
	}
	port_link(p, LX_FREE, 0, 0);
	atomic_store(&p->owner, 0);
	atomic_store(&p->bits, 0);
}

static bool
port_mine(const struct events *ev, uint32_t port)
{
	struct lx_port	*p;

	if (ev == NULL || ev->domain == NULL || port == 0 || port >= LX_PORTS)
		return false;
	p = lx_domain_port(ev->domain->dom, port);
	return lx_link_state(atomic_load(&p->link)) != LX_FREE &&
	    atomic_load(&p->owner) == ev->id;
}

/* Domain d's virtual interrupt, at whoever bound it. */
static void
virq_raise(struct domain *d, uint32_t virq)
{
	struct events	*ev;
	struct lx_port	*p;

	for (uint32_t n = 1; n < LX_PORTS; n++) {
		p = lx_domain_port(d->dom, n);
		if (lx_link_state(atomic_load(&p->link)) != LX_VIRQ ||
		    p->virq != virq)
			continue;
		ev = events_find(atomic_load(&p->owner));
		if (ev != NULL && lx_deliver(p, ev->fd, idle) != 0)
			warnx("cannot raise virq %u at port %u", virq, n);
	}
}

/* ---- endings ---------------------------------------------------------- */

static void
domain_destroy(struct domain *d)
{
	struct domain	*zero = domain_find(0);
	struct events	*ev;

	for (uint32_t n = 1; n < LX_PORTS; n++)
		if (lx_link_state(atomic_load(&lx_domain_port(d->dom,
		    n)->link)) != LX_FREE)
			port_close(d, n);
	LIST_FOREACH(ev, &handles, entry)
		if (ev->domain == d)
			ev->domain = NULL;
	atomic_store(&d->dom->dead, 1);
	LIST_REMOVE(d, entry);
	munmap(d->dom, LX_PAGES_OFFSET);
	close(d->fd);
	free(d);
	if (zero != NULL)
		virq_raise(zero, VIRQ_DOM_EXC);
}

static void
events_release(struct events *ev)
{
	if (--ev->clients > 0)
		return;
	if (ev->domain != NULL)
		for (uint32_t n = 1; n < LX_PORTS; n++)
			if (port_mine(ev, n))
				port_close(ev->domain, n);
	LIST_REMOVE(ev, entry);
	close(ev->fd);
	free(ev);
}

/* A grant handle has ended: nothing of that slot uses a page any more. */
static void
slot_release(struct domain *d, unsigned slot)
{
	uint64_t	 mask = ~(1ull << (slot % 64));
	uint32_t	 end = atomic_load(&d->dom->grants_end);
	struct lx_grant	*g;

	for (uint32_t ref = 0; ref < end && ref < LX_GREFS; ref++) {
		g = lx_domain_grant(d->dom, ref);
		if (atomic_load(&g->copying[slot / 64]) & ~mask)
			atomic_fetch_and(&g->copying[slot / 64], mask);
		if (atomic_load(&g->mapping[slot / 64]) & ~mask)
			atomic_fetch_and(&g->mapping[slot / 64], mask);
	}
	atomic_store(&d->dom->mapped_now[slot], 0);
	d->slot[slot] = NULL;
}

/* Domain 0 stays, but nothing is granted any more. */
static void
zero_leave(struct domain *d)
{
	uint32_t	end = atomic_load(&d->dom->grants_end);

	for (uint32_t ref = 0; ref < end && ref < LX_GREFS; ref++)
		atomic_store(&lx_domain_grant(d->dom, ref)->word, 0);
	d->guest = NULL;
}

static void
client_end(struct client *c)
{
	struct domain	*d;

	if (c->events != NULL)
		events_release(c->events);
	if (c->domain != NULL && c->domain->domid == 0)
		zero_leave(c->domain);
	else if (c->domain != NULL)
		domain_destroy(c->domain);
	if (c->gnttab)
		LIST_FOREACH(d, &domains, entry)
			for (unsigned i = 0; i < LX_SLOTS; i++)
				if (d->slot[i] == c)
					slot_release(d, i);
	close(c->sock);
	free(c);
}

/* ---- requests --------------------------------------------------------- */

/* A handle's own domain: a backend's is made when it is first used. */
static int
own_domain(const struct lx_msg *msg, struct domain **dp)
{
	if (msg->domid > LX_MAX_DOMID)
		return -EINVAL;
	if ((*dp = domain_find(msg->domid)) != NULL)
		return 0;
	if (msg->flags & LX_GUEST)
		return -ESRCH;
	*dp = domain_new(msg->domid, msg->domid == 0 ? ZERO_PAGES : 0);
	return *dp != NULL ? 0 : -errno;
}

static bool
client_used(const struct client *c)
{
	return c->gnttab || c->events != NULL || c->domain != NULL;
}

static int
op_gnttab(struct client *c, struct answer *a)
{
	struct domain	*d;
	int		 error;

	if (client_used(c))
		return -EBUSY;
	if ((error = own_domain(&a->msg, &d)) != 0)
		return error;
	c->gnttab = true;
	return 0;
}

static void
answer_events(struct answer *a, const struct events *ev)
{
	a->msg.value = ev->id;
	a->msg.flags = ev->flags;
	a->fds[0] = ev->fd;
	a->fds[1] = ev->domain->fd;
}

static int
op_events(struct client *c, struct answer *a)
{
	struct domain	*d;
	int		 error;

	if (client_used(c))
		return -EBUSY;
	if ((error = own_domain(&a->msg, &d)) != 0)
		return error;
	if ((c->events = events_new(d, a->msg.flags)) == NULL)
		return -errno;
	answer_events(a, c->events);
	return 0;
}

/* Every eventfd has a number of its own; the same one means the same file. */
static long
eventfd_number(int fd)
{
	char	 path[64], line[128];
	long	 number = -1;
	FILE	*f;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	if ((f = fopen(path, "re")) == NULL)
		return -1;
	while (fgets(line, sizeof(line), f) != NULL)
		if (sscanf(line, "eventfd-id: %ld", &number) == 1)
			break;
	fclose(f);
	return number;
}

static int
op_adopt(struct client *c, struct answer *a)
{
	long		 number;
	struct events	*ev;

	if (client_used(c))
		return -EBUSY;
	if (a->sent == -1 || (number = eventfd_number(a->sent)) == -1)
		return -EINVAL;
	LIST_FOREACH(ev, &handles, entry)
		if (ev->domain != NULL && eventfd_number(ev->fd) == number) {
			ev->clients++;
			c->events = ev;
			answer_events(a, ev);
			return 0;
		}
	return -EBADF;
}

/* It is there from the beginning; its kernel has frontends as others have. */
static int
zero_enter(struct client *c, struct answer *a)
{
	struct domain	*d = domain_find(0);

	if (d == NULL)
		return -ESRCH;
	if (d->guest != NULL)
		return -EEXIST;
	if (a->msg.value > d->dom->npages)
		return -EINVAL;
	c->domain = d;
	d->guest = c;
	a->fds[0] = d->fd;
	return 0;
}

/* value: pages */
static int
op_create(struct client *c, struct answer *a)
{
	if (client_used(c))
		return -EBUSY;
	if (a->msg.domid > LX_MAX_DOMID || a->msg.value > LX_MAX_PAGES)
		return -EINVAL;
	if (a->msg.domid == 0)
		return zero_enter(c, a);
	if (domain_find(a->msg.domid) != NULL)
		return -EEXIST;
	c->domain = domain_new(a->msg.domid, a->msg.value);
	if (c->domain == NULL)
		return -errno;
	a->fds[0] = c->domain->fd;
	return 0;
}

/* Answer: the file; port: number of pages; value: our slot in it */
static int
op_domain(struct client *c, struct answer *a)
{
	struct domain	*d;
	unsigned	 slot;

	if (!c->gnttab)
		return -EINVAL;
	if ((d = domain_find(a->msg.domid)) == NULL)
		return -ESRCH;
	for (slot = 0; slot < LX_SLOTS; slot++)
		if (d->slot[slot] == NULL)
			break;
	if (slot == LX_SLOTS) {
		warnx("domain %u is used by %u grant handles already, no more "
		    "can be told apart", d->domid, LX_SLOTS);
		return -ENOSPC;
	}
	d->slot[slot] = c;
	a->msg.value = slot;
	a->msg.port = d->dom->npages;
	a->fds[0] = d->fd;
	return 0;
}

static int
op_alloc(struct client *c, struct answer *a)
{
	struct events	*ev = c->events;

	if (ev == NULL || ev->domain == NULL || a->msg.domid > LX_MAX_DOMID)
		return -EINVAL;
	if (ev->only != ANY_DOMID && ev->only != a->msg.domid)
		return -EACCES;
	if ((a->msg.value = port_new(ev)) == 0)
		return -ENOSPC;
	port_link(lx_domain_port(ev->domain->dom, a->msg.value), LX_UNBOUND,
	    a->msg.domid, 0);
	return 0;
}

/* Tell a client who is at the other end of a bound port. */
static int
answer_peer(struct answer *a, struct domain *d, uint32_t port)
{
	struct lx_port	*p = lx_domain_port(d->dom, port);
	struct events	*ev = events_find(atomic_load(&p->owner));

	if (ev == NULL)
		return -ENOTCONN;
	a->msg.domid = d->domid;
	a->msg.port = port;
	a->fds[0] = ev->fd;
	a->fds[1] = d->fd;
	return 0;
}

static int
op_bind(struct client *c, struct answer *a)
{
	struct events	*ev = c->events;
	struct lx_port	*p, *rp;
	struct domain	*rd;
	uint64_t	 link;
	uint32_t	 rport = a->msg.port, port;

	if (ev == NULL || ev->domain == NULL)
		return -EINVAL;
	if (ev->only != ANY_DOMID && ev->only != a->msg.domid)
		return -EACCES;
	if ((rd = domain_find(a->msg.domid)) == NULL)
		return -ESRCH;
	if (rport == 0 || rport >= LX_PORTS)
		return -EINVAL;
	rp = lx_domain_port(rd->dom, rport);
	link = atomic_load(&rp->link);
	if (lx_link_state(link) != LX_UNBOUND ||
	    lx_link_domid(link) != ev->domain->domid)
		return -EINVAL;
	if ((port = port_new(ev)) == 0)
		return -ENOSPC;
	p = lx_domain_port(ev->domain->dom, port);
	p->binder = 1;
	rp->binder = 0;
	port_link(rp, LX_INTERDOMAIN, ev->domain->domid, port);
	port_link(p, LX_INTERDOMAIN, rd->domid, rport);
	if (!(ev->flags & LX_UNCOUNTED)) {
		atomic_fetch_add(&rd->dom->bound_now, 1);
		lx_count(rd->dom, ev->id, LX_BINDS, 1);
	}
	a->msg.value = port;
	return answer_peer(a, rd, rport);
}

static int
op_virq(struct client *c, struct answer *a)
{
	struct events	*ev = c->events;
	struct lx_port	*p;
	uint32_t	 port;

	if (ev == NULL || ev->domain == NULL)
		return -EINVAL;
	if (ev->only != ANY_DOMID)
		return -EACCES;
	if ((port = port_new(ev)) == 0)
		return -ENOSPC;
	p = lx_domain_port(ev->domain->dom, port);
	p->virq = a->msg.value;
	port_link(p, LX_VIRQ, 0, 0);
	a->msg.value = port;
	return 0;
}

static int
op_unbind(struct client *c, struct answer *a)
{
	if (!port_mine(c->events, a->msg.port))
		return -ENOTCONN;
	port_close(c->events->domain, a->msg.port);
	return 0;
}

static int
op_peer(struct client *c, struct answer *a)
{
	struct domain	*d;
	uint64_t	 link;

	if (!port_mine(c->events, a->msg.port))
		return -ENOTCONN;
	link = atomic_load(&lx_domain_port(c->events->domain->dom,
	    a->msg.port)->link);
	if (lx_link_state(link) != LX_INTERDOMAIN ||
	    (d = domain_find(lx_link_domid(link))) == NULL)
		return -ENOTCONN;
	return answer_peer(a, d, lx_link_port(link));
}

static int
op_restrict(struct client *c, struct answer *a)
{
	if (c->events == NULL || a->msg.domid == 0 ||
	    a->msg.domid > LX_MAX_DOMID)
		return -EINVAL;
	if (c->events->only != ANY_DOMID)
		return -EACCES;
	c->events->only = a->msg.domid;
	return 0;
}

static int
op_shutdown(struct client *c, struct answer *a)
{
	struct domain	*zero = domain_find(0);

	if (c->domain == NULL || a->msg.value > 255)
		return -EINVAL;
	atomic_store(&c->domain->dom->shutdown, a->msg.value + 1);
	if (zero != NULL)
		virq_raise(zero, VIRQ_DOM_EXC);
	return 0;
}

/* Answer: domid; port: number of pages; value: 0 or shutdown reason + 1 */
static int
op_info(struct client *c, struct answer *a)
{
	struct domain	*d, *best = NULL;

	(void)c;
	LIST_FOREACH(d, &domains, entry)
		if (d->domid >= a->msg.domid &&
		    (best == NULL || d->domid < best->domid))
			best = d;
	if (best == NULL)
		return -ESRCH;
	a->msg.domid = best->domid;
	a->msg.port = best->dom->npages;
	a->msg.value = atomic_load(&best->dom->shutdown);
	return 0;
}

static int (*const ops[LX_OP_LAST])(struct client *, struct answer *) = {
	[LX_OP_GNTTAB] = op_gnttab,
	[LX_OP_EVENTS] = op_events,
	[LX_OP_ADOPT] = op_adopt,
	[LX_OP_CREATE] = op_create,
	[LX_OP_DOMAIN] = op_domain,
	[LX_OP_ALLOC] = op_alloc,
	[LX_OP_BIND] = op_bind,
	[LX_OP_VIRQ] = op_virq,
	[LX_OP_UNBIND] = op_unbind,
	[LX_OP_PEER] = op_peer,
	[LX_OP_RESTRICT] = op_restrict,
	[LX_OP_SHUTDOWN] = op_shutdown,
	[LX_OP_INFO] = op_info,
};

/* ---- the socket ------------------------------------------------------- */

union control {
	struct cmsghdr	align;
	char		buf[CMSG_SPACE(LX_MSG_FDS * sizeof(int))];
};

/* One request: 1, 0 when there is none now, -errno when the client is gone. */
static int
request_read(int sock, struct answer *a)
{
	union control	 c;
	struct iovec	 iov = { .iov_base = &a->msg,
			    .iov_len = sizeof(a->msg) };
	struct msghdr	 mh = { .msg_iov = &iov, .msg_iovlen = 1,
			    .msg_control = c.buf,
			    .msg_controllen = sizeof(c.buf) };
	struct cmsghdr	*cm;
	ssize_t		 n;
	int		 fds[LX_MSG_FDS] = { -1, -1 };

	n = recvmsg(sock, &mh, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	if (n == -1)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	for (cm = CMSG_FIRSTHDR(&mh); cm != NULL; cm = CMSG_NXTHDR(&mh, cm))
		if (cm->cmsg_level == SOL_SOCKET &&
		    cm->cmsg_type == SCM_RIGHTS)
			memcpy(fds, CMSG_DATA(cm), cm->cmsg_len - CMSG_LEN(0));
	a->sent = fds[0];
	if (fds[1] != -1)
		close(fds[1]);
	a->fds[0] = a->fds[1] = -1;
	if (n == (ssize_t)sizeof(a->msg))
		return 1;
	if (a->sent != -1)
		close(a->sent);
	return n == 0 ? -ECONNRESET : -EPROTO;
}

static int
answer_write(int sock, struct answer *a)
{
	union control	 c;
	struct iovec	 iov = { .iov_base = &a->msg,
			    .iov_len = sizeof(a->msg) };
	struct msghdr	 mh = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr	*cm;
	size_t		 n = 0;

	while (n < LX_MSG_FDS && a->fds[n] != -1)
		n++;
	if (n > 0) {
		memset(&c, 0, sizeof(c));
		mh.msg_control = c.buf;
		mh.msg_controllen = CMSG_SPACE(n * sizeof(int));
		cm = CMSG_FIRSTHDR(&mh);
		cm->cmsg_level = SOL_SOCKET;
		cm->cmsg_type = SCM_RIGHTS;
		cm->cmsg_len = CMSG_LEN(n * sizeof(int));
		memcpy(CMSG_DATA(cm), a->fds, n * sizeof(int));
	}
	return sendmsg(sock, &mh, MSG_NOSIGNAL | MSG_DONTWAIT) ==
	    (ssize_t)sizeof(a->msg) ? 0 : -errno;
}

/* false: the client is gone */
static bool
client_serve(struct client *c)
{
	struct answer	a;
	int		n;

	if ((n = request_read(c->sock, &a)) <= 0)
		return n == 0;
	a.msg.error = -EINVAL;
	if (a.msg.op < LX_OP_LAST && ops[a.msg.op] != NULL)
		a.msg.error = ops[a.msg.op](c, &a);
	if (a.msg.error != 0)
		a.fds[0] = a.fds[1] = -1;
	if (a.sent != -1)
		close(a.sent);
	return answer_write(c->sock, &a) == 0;
}

static void
client_accept(int ep, int listener)
{
	struct epoll_event	 e = { .events = EPOLLIN };
	struct client		*c;
	int			 sock;

	sock = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (sock == -1) {
		if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
			warn("cannot accept a client");
		return;
	}
	if ((c = calloc(1, sizeof(*c))) == NULL) {
		warn("cannot keep a client");
		close(sock);
		return;
	}
	c->sock = sock;
	e.data.ptr = c;
	if (epoll_ctl(ep, EPOLL_CTL_ADD, sock, &e) == -1) {
		warn("cannot watch a client");
		client_end(c);
	}
}

/* Who finds the socket, finds somebody listening. */
static int
broker_listen(const char *path)
{
	static const char	later[] = ".new";
	struct sockaddr_un	sun = { .sun_family = AF_UNIX };
	int			sock;

	if (strlen(path) + sizeof(later) > sizeof(sun.sun_path))
		errx(1, "%s: longer than the %zu bytes a socket's path may "
		    "have; use a shorter folder", path,
		    sizeof(sun.sun_path) - sizeof(later));
	strcpy(sun.sun_path, path);
	strcat(sun.sun_path, later);
	sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK,
	    0);
	if (sock == -1)
		err(1, "socket");
	if (unlink(sun.sun_path) == -1 && errno != ENOENT)
		err(1, "%s: cannot remove the old socket", sun.sun_path);
	if (bind(sock, (struct sockaddr *)&sun, sizeof(sun)) == -1 ||
	    listen(sock, SOMAXCONN) == -1 ||
	    rename(sun.sun_path, path) == -1)
		err(1, "%s: cannot listen", path);
	return sock;
}

/* Domain 0, and in it the port that its kernel would offer to xenstored. */
static void
broker_domain0(void)
{
	struct domain	*zero;
	struct events	*kernel;

	if ((idle = eventfd(0, EFD_CLOEXEC)) == -1)
		err(1, "eventfd");
	if ((zero = domain_new(0, ZERO_PAGES)) == NULL ||
	    (kernel = events_new(zero, LX_UNCOUNTED)) == NULL)
		err(1, "cannot make domain 0");
	if (port_new(kernel) != LX_XENBUS_PORT)
		errx(1, "domain 0's first port is not %u", LX_XENBUS_PORT);
	port_link(lx_domain_port(zero->dom, LX_XENBUS_PORT), LX_UNBOUND, 0,
	    0);
}

static int
broker_signals(int ep)
{
	struct epoll_event	e = { .events = EPOLLIN };
	sigset_t		set;
	int			fd;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	if ((fd = signalfd(-1, &set, SFD_CLOEXEC)) == -1)
		err(1, "signalfd");
	e.data.ptr = &domains;	/* no client has this address */
	if (epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e) == -1)
		err(1, "epoll_ctl");
	return fd;
}

/* A client of this round may be gone already when its event comes up: each
 * round serves one event. */
static void
broker_loop(int ep, int listener)
{
	struct epoll_event	 e;
	struct client		*c;

	for (;;) {
		if (epoll_wait(ep, &e, 1, -1) == -1) {
			if (errno == EINTR)
				continue;
			err(1, "epoll_wait");
		}
		if (e.data.ptr == &domains)
			return;
		if (e.data.ptr == NULL) {
			client_accept(ep, listener);
			continue;
		}
		c = e.data.ptr;
		if (!client_serve(c))
			client_end(c);
	}
}

int
main(int argc, char *argv[])
{
	struct epoll_event	e = { .events = EPOLLIN };
	struct rlimit		rl;
	int			ep, listener;

	if (argc != 2) {
		fprintf(stderr, "usage: loopxen-broker SOCKET\n");
		return 2;
	}
	/* Many disks have many handles, each with a few descriptors here. */
	if (getrlimit(RLIMIT_NOFILE, &rl) == 0) {
		rl.rlim_cur = rl.rlim_max;
		if (setrlimit(RLIMIT_NOFILE, &rl) == -1)
			warn("cannot raise the number of open files");
	}
	broker_domain0();
	if ((ep = epoll_create1(EPOLL_CLOEXEC)) == -1)
		err(1, "epoll_create1");
	broker_signals(ep);
	listener = broker_listen(argv[1]);
	if (epoll_ctl(ep, EPOLL_CTL_ADD, listener, &e) == -1)
		err(1, "epoll_ctl");
	broker_loop(ep, listener);
	if (unlink(argv[1]) == -1)
		warn("%s", argv[1]);
	return 0;
}
