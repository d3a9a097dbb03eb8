/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Talking to the broker: one request, one answer, descriptors attached to
 * either.  Only sendmsg and recvmsg are needed once the socket is connected, so
 * that a process behind a seccomp filter can still bind and map.
 */
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/loopxen/shared.h"

int
lx_connect(bool cloexec)
{
	struct sockaddr_un	 sun = { .sun_family = AF_UNIX };
	const char		*path = getenv("LOOPXEN_SOCKET");
	int			 sock, error;

	if (path == NULL)
		return -ENOENT;
	if (strlen(path) >= sizeof(sun.sun_path))
		return -ENAMETOOLONG;
	strcpy(sun.sun_path, path);

	sock = socket(AF_UNIX, SOCK_SEQPACKET | (cloexec ? SOCK_CLOEXEC : 0),
	    0);
	if (sock == -1)
		return -errno;
	if (connect(sock, (struct sockaddr *)&sun, sizeof(sun)) == -1) {
		error = -errno;
		close(sock);
		return error;
	}
	return sock;
}

static int
call_send(int sock, struct lx_msg *msg, int fd)
{
	union { struct cmsghdr align; char buf[CMSG_SPACE(sizeof(int))]; } c;
	struct iovec	 iov = { .iov_base = msg, .iov_len = sizeof(*msg) };
	struct msghdr	 mh = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr	*cm;
	ssize_t		 n;

	if (fd >= 0) {
		memset(&c, 0, sizeof(c));
		mh.msg_control = c.buf;
		mh.msg_controllen = sizeof(c.buf);
		cm = CMSG_FIRSTHDR(&mh);
		cm->cmsg_level = SOL_SOCKET;
		cm->cmsg_type = SCM_RIGHTS;
		cm->cmsg_len = CMSG_LEN(sizeof(fd));
		memcpy(CMSG_DATA(cm), &fd, sizeof(fd));
	}
	while ((n = sendmsg(sock, &mh, MSG_NOSIGNAL)) == -1 && errno == EINTR)
		;
	if (n == -1)
		return -errno;
	return n == (ssize_t)sizeof(*msg) ? 0 : -EIO;
}

static int
call_recv(int sock, struct lx_msg *msg, int fds[LX_MSG_FDS])
{
	union {
		struct cmsghdr	align;
		char		buf[CMSG_SPACE(LX_MSG_FDS * sizeof(int))];
	} c;
	struct iovec	 iov = { .iov_base = msg, .iov_len = sizeof(*msg) };
	struct msghdr	 mh = { .msg_iov = &iov, .msg_iovlen = 1,
			    .msg_control = c.buf,
			    .msg_controllen = sizeof(c.buf) };
	struct cmsghdr	*cm;
	ssize_t		 n;

	while ((n = recvmsg(sock, &mh, MSG_CMSG_CLOEXEC)) == -1 &&
	    errno == EINTR)
		;
	if (n == -1)
		return -errno;
	if (n == 0)
		return -ECONNRESET;	/* the broker is gone */
	if (n != (ssize_t)sizeof(*msg))
		return -EPROTO;
	for (cm = CMSG_FIRSTHDR(&mh); cm != NULL; cm = CMSG_NXTHDR(&mh, cm))
		if (cm->cmsg_level == SOL_SOCKET &&
		    cm->cmsg_type == SCM_RIGHTS)
			memcpy(fds, CMSG_DATA(cm), cm->cmsg_len - CMSG_LEN(0));
	return 0;
}

/*
 * Ask the broker.  The caller owns the descriptors in fds afterwards (-1 where
 * there is none), also after an error.
 */
int
lx_call(int sock, struct lx_msg *msg, int sendfd, int fds[LX_MSG_FDS])
{
	uint32_t	op = msg->op;
	int		error;

	for (int i = 0; i < LX_MSG_FDS; i++)
		fds[i] = -1;
	if ((error = call_send(sock, msg, sendfd)) != 0)
		return error;
	if ((error = call_recv(sock, msg, fds)) != 0)
		return error;
	return msg->op == op ? msg->error : -EPROTO;
}

struct lx_domain *
lx_map(int fd, size_t size)
{
	struct lx_domain *dom;

	dom = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (dom == MAP_FAILED)
		return NULL;
	if (dom->magic != LX_MAGIC) {
		munmap(dom, size);
		errno = EPROTO;
		return NULL;
	}
	return dom;
}

static uint64_t
env_number(const char *name)
{
	const char	*s = getenv(name);

	return s == NULL ? 0 : strtoull(s, NULL, 10);
}

/* The domain in which this process runs: domain 0, or a driver domain. */
uint32_t
lx_own_domid(void)
{
	return (uint32_t)env_number("LOOPXEN_DOMID");
}

uint32_t
lx_own_flags(void)
{
	return env_number("LOOPXEN_UNCOUNTED") != 0 ? LX_UNCOUNTED : 0;
}

void
lx_costs_read(struct lx_costs *c)
{
	c->call_ns = env_number("LOOPXEN_COST_CALL_NS");
	c->segment_ns = env_number("LOOPXEN_COST_SEGMENT_NS");
	c->notify_ns = env_number("LOOPXEN_COST_NOTIFY_NS");
}

/* What a hypercall would cost: the CPU is busy, as it would be in Xen. */
void
lx_spin(uint64_t ns)
{
	struct timespec	t;
	uint64_t	end, now;

	if (ns == 0)
		return;
	clock_gettime(CLOCK_MONOTONIC, &t);
	end = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec + ns;
	do {
		clock_gettime(CLOCK_MONOTONIC, &t);
		now = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
	} while (now < end);
}
