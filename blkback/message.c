/* SPDX-License-Identifier: GPL-2.0-or-later */
/* message: checking, sending and receiving them (see message.h). */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "blkback/message.h"

static bool
terminated(const char *s, size_t room)
{
	return memchr(s, '\0', room) != NULL;
}

static bool
open_ok(const struct message_open *o)
{
	return o->readonly <= 1 && o->activate <= 1 && o->discard <= 1 &&
	    o->resume <= RESUME_REDO &&
	    terminated(o->uuid, sizeof(o->uuid)) &&
	    terminated(o->backend, sizeof(o->backend)) &&
	    terminated(o->spec, sizeof(o->spec));
}

static bool
connect_ok(const struct message_connect *c)
{
	uint32_t i;

	if (c->abi > RING_ABI_X86_32 || c->nr_queues < 1 ||
	    c->nr_queues > MAX_QUEUES || c->persistent > 1)
		return false;
	for (i = 0; i < c->nr_queues; i++)
		if (c->ring[i].order > RING_MAX_ORDER)
			return false;
	return true;
}

static bool
geometry_ok(const struct message_geometry *g)
{
	uint32_t b = g->block_size;

	return g->size % 512 == 0 && b >= 512 && (b & (b - 1)) == 0 &&
	    g->physical_block_size >= b && g->readonly <= 1 &&
	    g->flush <= 1 && g->discard_alignment % 512 == 0 &&
	    g->discard_granularity % 512 == 0;
}

int
message_check(const struct message *m, size_t bytes)
{
	bool ok;

	if (bytes < sizeof(m->version))
		return -EPROTO;
	if (m->version != MESSAGE_VERSION)
		return -EPROTONOSUPPORT;
	if (bytes != sizeof(*m) || !terminated(m->why, sizeof(m->why)) ||
	    m->error > 0)
		return -EPROTO;

	switch (m->type) {
	case MSG_HELLO:
		ok = m->u.hello.phase <= PHASE_CONNECTED &&
		    open_ok(&m->u.hello.open) &&
		    (m->u.hello.phase == PHASE_EMPTY ||
		    geometry_ok(&m->geometry));
		break;
	case MSG_OPENED:
	case MSG_CONNECTED:
	case MSG_RESIZED:
		ok = m->error != 0 || geometry_ok(&m->geometry);
		break;
	case MSG_OPEN:
		ok = open_ok(&m->u.open);
		break;
	case MSG_CONNECT:
		ok = connect_ok(&m->u.connect);
		break;
	case MSG_RESIZE:
		ok = m->u.resize.size % 512 == 0 &&
		    m->u.resize.size <= INT64_MAX;
		break;
	case MSG_DISCONNECTED:
	case MSG_CLOSED:
	case MSG_BROKEN:
	case MSG_STOPPED:
	case MSG_DISCONNECT:
	case MSG_CLOSE:
	case MSG_RETRY:
		ok = true;
		break;
	default:
		ok = false;
		break;
	}
	return ok ? 0 : -EPROTO;
}

void
message_init(struct message *m, enum message_type type)
{
	memset(m, 0, sizeof(*m));
	m->version = MESSAGE_VERSION;
	m->type = type;
}

int
message_send(int fd, const struct message *m)
{
	ssize_t n;

	do
		n = send(fd, m, sizeof(*m), MSG_DONTWAIT | MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == EWOULDBLOCK ? -EAGAIN :
		    errno == ECONNRESET ? -EPIPE : -errno;
	return (size_t)n == sizeof(*m) ? 0 : -EPROTO;
}

int
message_recv(int fd, struct message *m)
{
	ssize_t n;

	do	/* MSG_TRUNC: the true length of one that is too long */
		n = recv(fd, m, sizeof(*m), MSG_DONTWAIT | MSG_TRUNC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == EWOULDBLOCK ? -EAGAIN :
		    errno == ECONNRESET ? -EPIPE : -errno;
	return n == 0 ? -EPIPE : message_check(m, n);
}
