/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * libxencall.so.1 without Xen: one hypercall, "tell me about domain N", with
 * which libxenctrl answers whether a domain lives, has shut down or crashed.
 * xenstored asks it before it introduces a domain and when VIRQ_DOM_EXC says
 * that one has changed.  Everything else is ENOSYS.
 */
#define __XEN_TOOLS__ 1

#include <sys/mman.h>

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xen/xen.h>
#include <xen/domctl.h>
#include <xencall.h>

#include "tests/loopxen/shared.h"

struct xencall_handle {
	pthread_mutex_t	 lock;
	int		 sock;
};

xencall_handle *
xencall_open(struct xentoollog_logger *logger, unsigned open_flags)
{
	xencall_handle	*h;

	(void)logger;
	(void)open_flags;
	if ((h = calloc(1, sizeof(*h))) == NULL)
		return NULL;
	if ((h->sock = lx_connect(true)) < 0) {
		fprintf(stderr, "loopxen: hypercalls: cannot reach the broker "
		    "at LOOPXEN_SOCKET: %s; start it with "
		    "tests/loopxen/loopxen\n", strerror(-h->sock));
		errno = -h->sock;
		free(h);
		return NULL;
	}
	pthread_mutex_init(&h->lock, NULL);
	return h;
}

int
xencall_close(xencall_handle *h)
{
	if (h == NULL)
		return 0;
	close(h->sock);
	pthread_mutex_destroy(&h->lock);
	free(h);
	return 0;
}

int
xencall_fd(xencall_handle *h)
{
	return h->sock;
}

static int
domctl(xencall_handle *h, struct xen_domctl *ctl)
{
	struct xen_domctl_getdomaininfo	*info = &ctl->u.getdomaininfo;
	struct lx_msg			 msg = { .op = LX_OP_INFO,
					    .domid = ctl->domain };
	int				 fds[LX_MSG_FDS], error;

	if (ctl->cmd != XEN_DOMCTL_getdomaininfo)
		return -ENOSYS;
	pthread_mutex_lock(&h->lock);
	error = lx_call(h->sock, &msg, -1, fds);
	pthread_mutex_unlock(&h->lock);
	if (error != 0)
		return error;

	memset(info, 0, sizeof(*info));
	ctl->domain = info->domain = (domid_t)msg.domid;
	info->tot_pages = info->max_pages = msg.port;
	info->nr_online_vcpus = 1;
	/* value: 0, or the reason of its shutdown + 1 */
	if (msg.value == 0)
		info->flags = XEN_DOMINF_running;
	else
		info->flags = XEN_DOMINF_shutdown |
		    (msg.value - 1) << XEN_DOMINF_shutdownshift;
	return 0;
}

static int
result(int n)
{
	if (n >= 0)
		return n;
	errno = -n;
	return -1;
}

int
xencall1(xencall_handle *h, unsigned int op, uint64_t arg1)
{
	if (op != __HYPERVISOR_domctl)
		return result(-ENOSYS);
	return result(domctl(h, (struct xen_domctl *)(uintptr_t)arg1));
}

int
xencall0(xencall_handle *h, unsigned int op)
{
	(void)h; (void)op;
	return result(-ENOSYS);
}

int
xencall2(xencall_handle *h, unsigned int op, uint64_t arg1, uint64_t arg2)
{
	(void)h; (void)op; (void)arg1; (void)arg2;
	return result(-ENOSYS);
}

long
xencall2L(xencall_handle *h, unsigned int op, uint64_t arg1, uint64_t arg2)
{
	return xencall2(h, op, arg1, arg2);
}

int
xencall3(xencall_handle *h, unsigned int op, uint64_t arg1, uint64_t arg2,
    uint64_t arg3)
{
	(void)h; (void)op; (void)arg1; (void)arg2; (void)arg3;
	return result(-ENOSYS);
}

int
xencall4(xencall_handle *h, unsigned int op, uint64_t arg1, uint64_t arg2,
    uint64_t arg3, uint64_t arg4)
{
	(void)h; (void)op; (void)arg1; (void)arg2; (void)arg3; (void)arg4;
	return result(-ENOSYS);
}

int
xencall5(xencall_handle *h, unsigned int op, uint64_t arg1, uint64_t arg2,
    uint64_t arg3, uint64_t arg4, uint64_t arg5)
{
	(void)h; (void)op; (void)arg1; (void)arg2; (void)arg3; (void)arg4;
	(void)arg5;
	return result(-ENOSYS);
}

/* ---- memory for arguments: any will do -------------------------------- */

void *
xencall_alloc_buffer_pages(xencall_handle *h, size_t nr_pages)
{
	void	*p;

	(void)h;
	p = mmap(NULL, nr_pages * LX_PAGE, PROT_READ | PROT_WRITE,
	    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return p == MAP_FAILED ? NULL : p;
}

void
xencall_free_buffer_pages(xencall_handle *h, void *p, size_t nr_pages)
{
	(void)h;
	if (p != NULL)
		(void)munmap(p, nr_pages * LX_PAGE);
}

void *
xencall_alloc_buffer(xencall_handle *h, size_t size)
{
	(void)h;
	return calloc(1, size);
}

void
xencall_free_buffer(xencall_handle *h, void *p)
{
	(void)h;
	free(p);
}

int
xencall_buffers_never_fault(xencall_handle *h)
{
	(void)h;
	return 1;
}
