/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * xenbus: a domain whose programs may speak to xenstored, as a domain.
 *
 *	loopxen-xenbus DOMID SOCKET
 *
 * Whoever uses xenstored's socket is domain 0 to it.  This makes domain DOMID,
 * introduces it, and listens on SOCKET: what is said there goes to xenstored
 * by the domain's own ring, as through Linux's /dev/xen/xenbus, and xenstored
 * grants what that domain may do and no more.  With XENSTORED_PATH=SOCKET and
 * LOOPXEN_DOMID=DOMID a program runs in that domain.
 *
 * There is one ring, so one client at a time says something; the others may
 * keep silent.  When it goes, its watches and transactions go as well.
 */
#include <sys/socket.h>
#include <sys/un.h>

#include <err.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xenstore.h>

#include <xen/io/xs_wire.h>

#include "tests/loopxen/guest.h"

#define CLIENTS_MAX	8
#define RESET_ID	0xffffffffu	/* libxenstore's are 0 */

static struct loopguest			*guest;
static struct loopguest_port		*port;
static struct xenstore_domain_interface	*ring;
static int				 clients[CLIENTS_MAX], nr_clients;
static int				 active = -1;
static bool				 resetting;
static volatile sig_atomic_t		 stop;

static void
on_signal(int sig)
{
	(void)sig;
	stop = 1;
}

/* ---- the ring ----------------------------------------------------------- */

static uint32_t
req_room(void)
{
	uint32_t	cons = __atomic_load_n(&ring->req_cons,
			    __ATOMIC_ACQUIRE);

	return XENSTORE_RING_SIZE - (ring->req_prod - cons);
}

static void
req_put(const char *data, size_t size)
{
	uint32_t	prod = ring->req_prod;
	size_t		i;

	for (i = 0; i < size; i++)
		ring->req[MASK_XENSTORE_IDX(prod + i)] = data[i];
	__atomic_store_n(&ring->req_prod, prod + (uint32_t)size,
	    __ATOMIC_RELEASE);
	if (loopguest_port_notify(port) < 0)
		errx(1, "cannot notify xenstored");
}

static size_t
rsp_take(char *data, size_t size)
{
	uint32_t	prod = __atomic_load_n(&ring->rsp_prod,
			    __ATOMIC_ACQUIRE);
	uint32_t	cons = ring->rsp_cons;
	size_t		n = 0;

	while (cons != prod && n < size)
		data[n++] = ring->rsp[MASK_XENSTORE_IDX(cons++)];
	__atomic_store_n(&ring->rsp_cons, cons, __ATOMIC_RELEASE);
	if (n > 0 && loopguest_port_notify(port) < 0)
		errx(1, "cannot notify xenstored");
	return n;
}

/* ---- from one side to the other ----------------------------------------- */

/* A whole message from xenstored: to the client, if it is still there. */
static void
deliver(const char *message, size_t size)
{
	const struct xsd_sockmsg	*m = (const void *)message;

	if (resetting) {
		resetting = m->req_id != RESET_ID;
		return;
	}
	if (active != -1 && send(active, message, size, MSG_NOSIGNAL) !=
	    (ssize_t)size)
		warn("a client does not listen");
}

static void
answers(void)
{
	static _Alignas(struct xsd_sockmsg) char	buf[sizeof(struct
	    xsd_sockmsg) + XENSTORE_PAYLOAD_MAX];
	static size_t	have;
	size_t		want, n;

	for (;;) {
		want = sizeof(struct xsd_sockmsg);
		if (have >= want)
			want += ((struct xsd_sockmsg *)(void *)buf)->len;
		if (want > sizeof(buf))
			errx(1, "xenstored sends too long a message");
		if (have == want) {
			deliver(buf, have);
			have = 0;
			continue;
		}
		n = rsp_take(buf + have, want - have);
		if (n == 0)
			return;
		have += n;
	}
}

static void
client_end(int i)
{
	const struct xsd_sockmsg	head = { .type = XS_RESET_WATCHES,
					    .req_id = RESET_ID, .len = 1 };
	char				reset[sizeof(head) + 1] = { 0 };

	if (clients[i] == active) {
		active = -1;
		resetting = true;
		/* Every request has been taken: it was answered. */
		memcpy(reset, &head, sizeof(head));
		req_put(reset, sizeof(reset));
	}
	close(clients[i]);
	clients[i] = clients[--nr_clients];
}

static void
questions(int i)
{
	char		buf[XENSTORE_RING_SIZE];
	uint32_t	room = req_room();
	ssize_t		n;

	if (room == 0 || resetting)
		return;
	n = recv(clients[i], buf, room, MSG_DONTWAIT);
	if (n > 0) {
		if (active != -1 && active != clients[i])
			errx(1, "two clients speak at once");
		active = clients[i];
		req_put(buf, (size_t)n);
	} else if (n == 0 || errno != EAGAIN) {
		client_end(i);
	}
}

static void
new_client(int listener)
{
	int	fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

	if (fd == -1)
		err(1, "accept");
	if (nr_clients == CLIENTS_MAX)
		errx(1, "too many clients");
	clients[nr_clients++] = fd;
}

static void
serve(int listener)
{
	struct pollfd	p[CLIENTS_MAX + 2];
	int		i, n;

	while (!stop) {
		p[0] = (struct pollfd){ listener, POLLIN, 0 };
		p[1] = (struct pollfd){ loopguest_port_fd(port), POLLIN, 0 };
		n = nr_clients;
		if (req_room() == 0 || resetting)
			n = 0;
		for (i = 0; i < n; i++)
			p[2 + i] = (struct pollfd){ clients[i], POLLIN, 0 };
		if (poll(p, (nfds_t)n + 2, -1) == -1) {
			if (errno == EINTR)
				continue;
			err(1, "poll");
		}
		if (p[1].revents != 0 && loopguest_port_pending(port) == 0 &&
		    loopguest_port_unmask(port) < 0)
			errx(1, "cannot take an event");
		answers();
		/* From the last: client_end() moves that. */
		for (i = n - 1; i >= 0; i--)
			if (p[2 + i].revents & (POLLIN | POLLHUP))
				questions(i);
		if (p[0].revents != 0)
			new_client(listener);
	}
}

static int
listen_at(const char *path)
{
	struct sockaddr_un	sa = { .sun_family = AF_UNIX };
	int			fd = socket(AF_UNIX, SOCK_STREAM |
				    SOCK_CLOEXEC, 0);

	if (strlen(path) >= sizeof(sa.sun_path))
		errx(1, "%s is too long", path);
	strcpy(sa.sun_path, path);
	unlink(path);
	if (fd == -1 || bind(fd, (struct sockaddr *)&sa, sizeof(sa)) == -1 ||
	    listen(fd, CLIENTS_MAX) == -1)
		err(1, "cannot listen at %s", path);
	return fd;
}

int
main(int argc, char **argv)
{
	struct sigaction	 sa = { .sa_handler = on_signal };
	struct xs_handle	*xs;
	int			 error, listener;

	if (argc != 3)
		errx(2, "usage: loopxen-xenbus DOMID SOCKET");
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGINT, &sa, NULL);
	error = loopguest_create(&guest, (unsigned)atoi(argv[1]), 1);
	if (error != 0)
		errx(1, "domain %s: %s", argv[1], strerror(-error));
	xs = xs_open(0);
	if (xs == NULL)
		err(1, "xenstored");
	error = loopguest_introduce(guest, xs);
	if (error != 0)
		errx(1, "introduce domain %s: %s", argv[1], strerror(-error));
	ring = loopguest_xenstore(guest, &port);
	listener = listen_at(argv[2]);
	serve(listener);
	unlink(argv[2]);
	loopguest_release(guest, xs);
	loopguest_destroy(guest);
	xs_close(xs);
	return 0;
}
