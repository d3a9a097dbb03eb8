/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * loopxen's event channels, counters, deaths and xenstored: do they behave as
 * Xen's where a block backend can tell?
 *
 * The backend's side goes through the drop-in libraries, as the daemon does; a
 * backend that dies is a child process.  Run by tests/loopxen/test.sh.
 */
#include <sys/mman.h>
#include <sys/wait.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <seccomp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xenctrl.h>
#include <xenstore.h>

#include "tests/loopxen/rig.h"
#include "tests/loopxen/shared.h"

/* ---- events ----------------------------------------------------------- */

static void
masked_until_unmask(void **state)
{
	struct rig		*r = *state;
	struct loopguest_port	*p = rig_port(r);
	evtchn_port_t		 port = rig_bind(r->evt, p);
	int			 fd = xenevtchn_fd(r->evt);

	/* still masked by the event of the bind: two become one */
	assert_int_equal(loopguest_port_notify(p), 0);
	assert_int_equal(loopguest_port_notify(p), 0);
	assert_false(rig_readable(fd));
	assert_int_equal(xenevtchn_unmask(r->evt, port), 0);
	assert_true(rig_readable(fd));
	assert_int_equal(xenevtchn_pending(r->evt), (int)port);
	assert_false(rig_readable(fd));
	assert_int_equal(xenevtchn_unmask(r->evt, port), 0);
	assert_false(rig_readable(fd));
	assert_int_equal(loopguest_port_notify(p), 0);
	assert_int_equal(xenevtchn_pending(r->evt), (int)port);
	assert_int_equal(xenevtchn_unmask(r->evt, port), 0);
	/* without an event a non-blocking handle says so */
	assert_int_not_equal(fcntl(fd, F_SETFL, O_NONBLOCK), -1);
	errno = 0;
	assert_int_equal(xenevtchn_pending(r->evt), -1);
	assert_int_equal(errno, EAGAIN);
	loopguest_port_close(p);
}

/* An event that comes before the one before it was taken. */
static void
sent_again_before_taken(void **state)
{
	struct rig		*r = *state;
	struct loopguest_port	*p = rig_port(r);
	evtchn_port_t		 port = rig_bind(r->evt, p);
	int			 fd = xenevtchn_fd(r->evt);

	assert_int_equal(xenevtchn_unmask(r->evt, port), 0);
	assert_int_equal(loopguest_port_notify(p), 0);
	assert_int_equal(loopguest_port_notify(p), 0);
	assert_int_equal(xenevtchn_pending(r->evt), (int)port);
	assert_false(rig_readable(fd));
	assert_int_equal(xenevtchn_unmask(r->evt, port), 0);
	assert_int_equal(xenevtchn_pending(r->evt), (int)port);
	assert_false(rig_readable(fd));
	loopguest_port_close(p);
}

/* A backend killed when the event was marked, but its owner not woken. */
static void
woken_for_a_dead_sender(void **state)
{
	struct rig		*r = *state;
	struct loopguest_port	*p = rig_port(r);
	_Atomic uint32_t	*word;

	(void)rig_bind(r->evt, p);
	word = (_Atomic uint32_t *)(uintptr_t)loopguest_port_word(p);
	atomic_fetch_or(word, LX_READY | LX_MASKED);
	assert_false(rig_readable(loopguest_port_fd(p)));
	assert_int_equal(xenevtchn_close(r->evt), 0);
	r->evt = NULL;
	assert_int_equal(loopguest_port_wait(p, 1000), 0);
	loopguest_port_close(p);
}

/* What was counted for a port that is gone is an event for nothing. */
static void
event_for_nothing(void **state)
{
	struct rig		*r = *state;
	struct loopguest_port	*p = rig_port(r);
	evtchn_port_t		 port = rig_bind(r->evt, p);
	uint64_t		 one = 1;

	assert_int_equal(xenevtchn_unmask(r->evt, port), 0);
	assert_int_equal(write(xenevtchn_fd(r->evt), &one, sizeof(one)),
	    (int)sizeof(one));
	assert_int_equal(xenevtchn_pending(r->evt), (int)port);
	assert_int_equal(xenevtchn_unmask(r->evt, port), 0);
	assert_int_equal(loopguest_port_notify(p), 0);
	assert_int_equal(xenevtchn_pending(r->evt), (int)port);
	loopguest_port_close(p);
}

static void
guest_sleeps_and_spins(void **state)
{
	struct rig			*r = *state;
	struct loopguest_port		*p = rig_port(r);
	const _Atomic uint32_t		*word = loopguest_port_word(p);
	evtchn_port_t			 port = rig_bind(r->evt, p);

	assert_int_equal(loopguest_port_wait(p, 20), -ETIMEDOUT);
	assert_int_equal(xenevtchn_notify(r->evt, port), 0);
	assert_int_equal(loopguest_port_wait(p, 1000), 0);
	assert_int_equal(loopguest_port_wait(p, 0), -ETIMEDOUT);

	/* delivered before the mask: not lost by it */
	assert_int_equal(xenevtchn_notify(r->evt, port), 0);
	loopguest_port_mask(p);
	assert_true(loopguest_port_take(p));
	assert_false(loopguest_port_take(p));
	assert_false(rig_readable(loopguest_port_fd(p)));
	/* while masked: only the word changes */
	assert_int_equal(xenevtchn_notify(r->evt, port), 0);
	assert_true(atomic_load(word) & LOOPGUEST_PENDING);
	assert_false(rig_readable(loopguest_port_fd(p)));
	/* not taken: the unmask delivers it */
	assert_int_equal(loopguest_port_unmask(p), 0);
	assert_int_equal(loopguest_port_wait(p, 1000), 0);
	loopguest_port_close(p);
}

/* One handle with several ports: one event each, none left out. */
static void
many_ports_one_handle(void **state)
{
	struct rig		*r = *state;
	struct loopguest_port	*p[8];
	evtchn_port_t		 port[8];
	unsigned		 seen = 0;

	for (int i = 0; i < 8; i++) {
		p[i] = rig_port(r);
		port[i] = rig_bind(r->evt, p[i]);
		assert_int_equal(xenevtchn_unmask(r->evt, port[i]), 0);
	}
	for (int i = 0; i < 8; i++)
		assert_int_equal(loopguest_port_notify(p[i]), 0);
	for (int n = 0; n < 8; n++) {
		int	got = xenevtchn_pending(r->evt);

		for (int i = 0; i < 8; i++)
			if (got == (int)port[i])
				seen |= 1u << i;
	}
	assert_int_equal(seen, 0xff);
	assert_false(rig_readable(xenevtchn_fd(r->evt)));
	/* an event that nobody took goes with its port */
	assert_int_equal(xenevtchn_unmask(r->evt, port[3]), 0);
	assert_int_equal(loopguest_port_notify(p[3]), 0);
	assert_true(rig_readable(xenevtchn_fd(r->evt)));
	assert_int_equal(xenevtchn_unbind(r->evt, port[3]), 0);
	assert_false(rig_readable(xenevtchn_fd(r->evt)));
	for (int i = 0; i < 8; i++)
		loopguest_port_close(p[i]);
}

static void
closed_end_can_be_bound_again(void **state)
{
	struct rig		*r = *state;
	struct loopguest_port	*p = rig_port(r);
	xenevtchn_handle	*second;
	evtchn_port_t		 port = rig_bind(r->evt, p);

	/* bound already */
	assert_int_equal(xenevtchn_bind_interdomain(r->evt, DOMID,
	    loopguest_port_number(p)), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(loopguest_port_notify(p), 0);
	assert_int_equal(xenevtchn_unbind(r->evt, port), 0);
	assert_false(loopguest_port_bound(p));
	assert_int_equal(loopguest_port_notify(p), 0);	/* lost, no error */
	assert_int_equal(xenevtchn_notify(r->evt, port), -1);
	assert_int_equal(errno, ENOTCONN);
	assert_int_equal(xenevtchn_unbind(r->evt, port), -1);

	/* by another handle, which then gets the events */
	second = xenevtchn_open(NULL, 0);
	assert_non_null(second);
	port = rig_bind(second, p);
	assert_int_equal(xenevtchn_unmask(second, port), 0);
	assert_int_equal(loopguest_port_notify(p), 0);
	assert_int_equal(xenevtchn_pending(second), (int)port);
	assert_int_equal(xenevtchn_notify(second, port), 0);
	assert_int_equal(loopguest_port_wait(p, 1000), 0);
	/* a port belongs to its handle */
	assert_int_equal(xenevtchn_notify(r->evt, port), -1);
	assert_int_equal(errno, ENOTCONN);

	/* the guest closes its end first */
	assert_int_equal(rig_counters(r).bound_now, 1);
	loopguest_port_close(p);
	assert_int_equal(rig_counters(r).bound_now, 0);
	assert_int_equal(xenevtchn_notify(second, port), 0);
	assert_int_equal(xenevtchn_close(second), 0);
}

static void
bind_refuses(void **state)
{
	struct rig		*r = *state;
	struct loopguest_port	*p, *other;
	int			 virq;

	p = rig_port(r);
	assert_int_equal(loopguest_port_open(r->guest, 5, &other), 0);
	assert_int_equal(xenevtchn_bind_interdomain(r->evt, DOMID, 4000), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(xenevtchn_bind_interdomain(r->evt, DOMID + 1,
	    loopguest_port_number(p)), -1);
	assert_int_equal(errno, ESRCH);
	/* offered to another domain */
	assert_int_equal(xenevtchn_bind_interdomain(r->evt, DOMID,
	    loopguest_port_number(other)), -1);
	assert_int_equal(errno, EINVAL);

	virq = xenevtchn_bind_virq(r->evt, VIRQ_DEBUG);
	assert_true(virq > 0);
	assert_int_equal(xenevtchn_notify(r->evt, (evtchn_port_t)virq), -1);
	assert_int_equal(errno, EINVAL);

	/* restricted to another domain, then nothing of this one */
	assert_int_equal(xenevtchn_restrict(r->evt, DOMID + 1), 0);
	assert_int_equal(xenevtchn_bind_interdomain(r->evt, DOMID,
	    loopguest_port_number(p)), -1);
	assert_int_equal(errno, EACCES);
	assert_int_equal(xenevtchn_restrict(r->evt, DOMID), -1);
	loopguest_port_close(p);
	loopguest_port_close(other);
}

static void
restricted_to_its_domain(void **state)
{
	struct rig		*r = *state;
	struct loopguest_port	*p = rig_port(r);

	assert_int_equal(xenevtchn_restrict(r->evt, DOMID), 0);
	rig_bind(r->evt, p);
	loopguest_port_close(p);
}

/* The descriptor is the handle: a second handle on it has the same ports. */
static void
opened_from_a_descriptor(void **state)
{
	struct rig		*r = *state;
	struct loopguest_port	*p = rig_port(r);
	evtchn_port_t		 port = rig_bind(r->evt, p);
	xenevtchn_handle	*second;
	int			 fd = dup(xenevtchn_fd(r->evt));

	assert_int_not_equal(fd, -1);
	second = xenevtchn_fdopen(NULL, fd, 0);
	assert_non_null(second);
	assert_int_equal(xenevtchn_close(r->evt), 0);
	assert_true(loopguest_port_bound(p));
	assert_int_equal(xenevtchn_unmask(second, port), 0);
	assert_int_equal(loopguest_port_notify(p), 0);
	assert_int_equal(xenevtchn_pending(second), (int)port);
	assert_int_equal(xenevtchn_notify(second, port), 0);
	assert_int_equal(loopguest_port_wait(p, 1000), 0);
	r->evt = second;	/* the teardown closes it */
	loopguest_port_close(p);
}

/* ---- counters --------------------------------------------------------- */

static void
counted_per_domain(void **state)
{
	struct rig			*r = *state;
	struct loopguest		*other;
	struct loopguest_counters	 c;
	struct loopguest_port		*p = rig_port(r);
	segment_t	 s[3];
	uint32_t			 ref = rig_grant(r, 0, false), oref;
	evtchn_port_t			 port;
	char				 buf[4096];
	void				*m;

	assert_int_equal(loopguest_create(&other, DOMID + 1, 4), 0);
	assert_int_equal(loopguest_grant(other, 0, 0, false, &oref), 0);
	s[0] = rig_copy_in(buf, DOMID, ref, 0, 4096);
	s[1] = rig_copy_in(buf, DOMID, ref, 0, 512);
	s[2] = rig_copy_in(buf, DOMID + 1, oref, 0, 100);
	assert_int_equal(xengnttab_grant_copy(r->gnt, 3, s), 0);
	m = xengnttab_map_grant_ref(r->gnt, DOMID, ref, PROT_READ);
	port = rig_bind(r->evt, p);
	assert_int_equal(xenevtchn_unmask(r->evt, port), 0);
	assert_int_equal(xenevtchn_notify(r->evt, port), 0);
	assert_int_equal(xenevtchn_notify(r->evt, port), 0);
	assert_int_equal(loopguest_port_notify(p), 0);

	c = rig_counters(r);
	assert_int_equal(c.copy_calls, 1);
	assert_int_equal(c.copy_segments, 2);
	assert_int_equal(c.copy_bytes, 4608);
	assert_int_equal(c.copy_errors, 0);
	assert_int_equal(c.map_calls, 1);
	assert_int_equal(c.mapped_pages, 1);
	assert_int_equal(c.mapped_now, 1);
	assert_int_equal(c.binds, 1);
	assert_int_equal(c.bound_now, 1);
	assert_int_equal(c.backend_notifies, 2);
	assert_int_equal(c.frontend_notifies, 1);
	assert_int_equal(c.backend_pending, 1);
	assert_int_equal(c.backend_unmasks, 1);
	loopguest_counters(other, &c);
	assert_int_equal(c.copy_calls, 1);
	assert_int_equal(c.copy_bytes, 100);
	assert_int_equal(c.binds, 0);

	loopguest_counters_reset(r->guest);
	assert_int_equal(xengnttab_unmap(r->gnt, m, 1), 0);
	assert_int_equal(xenevtchn_unbind(r->evt, port), 0);
	c = rig_counters(r);
	assert_int_equal(c.copy_calls, 0);
	assert_int_equal(c.unmap_calls, 1);
	assert_int_equal(c.unmapped_pages, 1);
	assert_int_equal(c.mapped_now, 0);
	assert_int_equal(c.unbinds, 1);
	assert_int_equal(c.bound_now, 0);
	loopguest_port_close(p);
	loopguest_destroy(other);
}

/* ---- deaths ----------------------------------------------------------- */

static bool
port_is_unbound(struct rig *r, void *arg)
{
	(void)r;
	return !loopguest_port_bound(arg);
}

static bool
nothing_is_mapped(struct rig *r, void *arg)
{
	return loopguest_grant_mapped(r->guest, *(uint32_t *)arg) == 0 &&
	    rig_counters(r).mapped_now == 0;
}

/* A backend in a child: binds, maps, copies in a loop until it is killed. */
static void
backend_main(uint32_t port, uint32_t ref, int ready)
{
	xengnttab_handle		*gnt = xengnttab_open(NULL, 0);
	xenevtchn_handle		*evt = xenevtchn_open(NULL, 0);
	segment_t	 s;
	char				 buf[4096];

	if (gnt == NULL || evt == NULL ||
	    xenevtchn_bind_interdomain(evt, DOMID, port) < 0 ||
	    xengnttab_map_grant_ref(gnt, DOMID, ref, PROT_READ) == NULL ||
	    write(ready, "", 1) != 1)
		_exit(1);
	for (;;) {
		s = rig_copy_in(buf, DOMID, ref, 0, 4096);
		if (xengnttab_grant_copy(gnt, 1, &s) != 0)
			_exit(1);
	}
}

static void
killed_backend_leaves_nothing(void **state)
{
	struct rig		*r = *state;
	struct loopguest_port	*p = rig_port(r);
	uint32_t		 ref = rig_grant(r, 2, false);
	int			 pipefd[2], status;
	pid_t			 pid;
	char			 c;

	for (int round = 0; round < 20; round++) {
		assert_int_equal(pipe(pipefd), 0);
		assert_int_not_equal(pid = fork(), -1);
		if (pid == 0)
			backend_main(loopguest_port_number(p), ref, pipefd[1]);
		close(pipefd[1]);
		assert_int_equal(read(pipefd[0], &c, 1), 1);
		close(pipefd[0]);
		assert_true(loopguest_port_bound(p));
		assert_int_equal(loopguest_ungrant(r->guest, ref), -EBUSY);
		assert_int_equal(loopguest_grant_mapped(r->guest, ref), 1);
		assert_int_equal(kill(pid, SIGKILL), 0);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status));
		rig_until(port_is_unbound, r, p);
		rig_until(nothing_is_mapped, r, &ref);
		assert_int_equal(loopguest_grant_copying(r->guest, ref), 0);
		assert_int_equal(rig_counters(r).bound_now, 0);
	}
	assert_int_equal(rig_counters(r).unbinds, 20);
	assert_int_equal(loopguest_ungrant(r->guest, ref), 0);
	rig_bind(r->evt, p);	/* and again by a successor */
	loopguest_port_close(p);
}

static void
guest_main(int ready)
{
	struct loopguest	*g;
	struct loopguest_port	*p;
	uint32_t		 msg[2];

	if (loopguest_create(&g, DOMID + 1, 4) != 0 ||
	    loopguest_grant(g, 0, 0, false, &msg[0]) != 0 ||
	    loopguest_port_open(g, 0, &p) != 0)
		_exit(1);
	msg[1] = loopguest_port_number(p);
	if (write(ready, msg, sizeof(msg)) != sizeof(msg))
		_exit(1);
	for (;;)
		pause();
}

static int16_t
copy_status(struct rig *r, uint32_t domid, uint32_t ref)
{
	segment_t	s;
	char				c;

	s = rig_copy_in(&c, domid, ref, 0, 1);
	assert_int_equal(xengnttab_grant_copy(r->gnt, 1, &s), 0);
	return s.status;
}

static bool
domain_is_bad(struct rig *r, void *arg)
{
	return copy_status(r, DOMID + 1, *(uint32_t *)arg) == GNTST_bad_domain;
}

static void
killed_guest_is_destroyed(void **state)
{
	struct rig		*r = *state;
	struct loopguest	*again;
	uint32_t		 msg[2], ref;
	int			 pipefd[2], port;
	pid_t			 pid;
	char			*m;

	assert_int_equal(pipe(pipefd), 0);
	assert_int_not_equal(pid = fork(), -1);
	if (pid == 0)
		guest_main(pipefd[1]);
	close(pipefd[1]);
	assert_int_equal(read(pipefd[0], msg, sizeof(msg)), sizeof(msg));
	close(pipefd[0]);
	port = xenevtchn_bind_interdomain(r->evt, DOMID + 1, msg[1]);
	assert_true(port > 0);
	m = xengnttab_map_grant_ref(r->gnt, DOMID + 1, msg[0],
	    PROT_READ | PROT_WRITE);
	assert_non_null(m);
	assert_int_equal(copy_status(r, DOMID + 1, msg[0]), GNTST_okay);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	rig_until(domain_is_bad, r, &msg[0]);
	assert_int_equal(xenevtchn_notify(r->evt, (evtchn_port_t)port), 0);
	*m = 1;		/* a page that was mapped stays */

	/* the number is used again: the handle sees the new domain */
	assert_int_equal(loopguest_create(&again, DOMID + 1, 4), 0);
	assert_int_equal(copy_status(r, DOMID + 1, msg[0]),
	    GNTST_general_error);
	assert_int_equal(loopguest_grant(again, 0, 0, false, &ref), 0);
	assert_int_equal(copy_status(r, DOMID + 1, ref), GNTST_okay);
	assert_int_equal(xengnttab_unmap(r->gnt, m, 1), 0);
	assert_int_equal(xenevtchn_unbind(r->evt, (evtchn_port_t)port), 0);
	loopguest_destroy(again);
}

/* ---- behind the shipped filter ---------------------------------------- */

/* Death to every other call; sanitizers make some of their own. */
#ifdef RINGBACK_SANITIZED
#define OTHER_CALLS	SCMP_ACT_LOG
#else
#define OTHER_CALLS	SCMP_ACT_KILL_PROCESS
#endif

/* What the disk process may still call once a guest is connected. */
static int
sandbox(void)
{
	const int	 calls[] = { SCMP_SYS(read), SCMP_SYS(write),
	    SCMP_SYS(sendmsg), SCMP_SYS(recvmsg), SCMP_SYS(munmap),
	    SCMP_SYS(ppoll), SCMP_SYS(futex), SCMP_SYS(clock_gettime),
	    SCMP_SYS(close), SCMP_SYS(brk), SCMP_SYS(madvise),
	    SCMP_SYS(exit_group) };
	scmp_filter_ctx	 ctx = seccomp_init(OTHER_CALLS);
	int		 error = ctx == NULL;

	if (mlockall(MCL_CURRENT) == -1 && errno != EPERM && errno != ENOMEM)
		return -1;
	if (geteuid() == 0 && setresuid(65534, 65534, 65534) == -1)
		return -1;
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		error |= seccomp_rule_add(ctx, SCMP_ACT_ALLOW, calls[i], 0);
	error |= seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1,
	    SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
	error |= seccomp_load(ctx);
	return error == 0 ? 0 : -1;
}

static int
sandboxed_main(uint32_t remote, uint32_t *refs)
{
	xengnttab_handle		*gnt = xengnttab_open(NULL, 0);
	xenevtchn_handle		*evt = xenevtchn_open(NULL, 0);
	segment_t	 s;
	int				 port;
	char				 c = 'c';
	void				*m;

	if (gnt == NULL || evt == NULL || sandbox() != 0)
		return 1;
	if ((port = xenevtchn_bind_interdomain(evt, DOMID, remote)) < 0 ||
	    xenevtchn_pending(evt) != port ||
	    xenevtchn_unmask(evt, (evtchn_port_t)port) != 0)
		return 2;
	if ((m = xengnttab_map_domain_grant_refs(gnt, NMAP, DOMID, refs,
	    PROT_READ | PROT_WRITE)) == NULL)
		return 3;
	s = rig_copy_out(DOMID, refs[0], 0, &c, 1);
	if (xengnttab_grant_copy(gnt, 1, &s) != 0 || s.status != GNTST_okay)
		return 4;
	if (xenevtchn_notify(evt, (evtchn_port_t)port) != 0)
		return 5;
	if (xengnttab_unmap(gnt, m, NMAP) != 0 ||
	    xenevtchn_unbind(evt, (evtchn_port_t)port) != 0)
		return 6;
	return 0;
}

static void
works_behind_the_filter(void **state)
{
	struct rig		*r = *state;
	struct loopguest_port	*p = rig_port(r);
	uint32_t		 refs[NMAP];
	int			 status;
	pid_t			 pid;

	for (unsigned i = 0; i < NMAP; i++)
		refs[i] = rig_grant(r, 2 * i, false);
	loopguest_delay_copy(r->guest, 1);
	assert_int_not_equal(pid = fork(), -1);
	if (pid == 0)
		_exit(sandboxed_main(loopguest_port_number(p), refs));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(loopguest_port_wait(p, 1000), 0);
	assert_int_equal(*(char *)loopguest_page(r->guest, 0), 'c');
	loopguest_port_close(p);
}

/* ---- xenstored -------------------------------------------------------- */

/* Wait for the watch with this token. */
static void
watch_wait(struct xs_handle *xs, const char *token)
{
	struct pollfd	 p = { .fd = xs_fileno(xs), .events = POLLIN };
	int64_t		 end = rig_now_ms() + 3000;
	bool		 found = false;
	char		**v;

	while (!found) {
		while (!found && (v = xs_check_watch(xs)) != NULL) {
			found = strcmp(v[XS_WATCH_TOKEN], token) == 0;
			free(v);
		}
		assert_true(found || rig_now_ms() < end);
		if (!found)
			assert_int_not_equal(poll(&p, 1, 100), -1);
	}
}

static void
introduced_and_released(void **state)
{
	struct rig			*r = *state;
	struct xs_handle		*xs = xs_open(0);
	struct loopguest_counters	 c;

	assert_non_null(xs);
	assert_true(xs_watch(xs, "@introduceDomain", "in"));
	assert_true(xs_watch(xs, "@releaseDomain", "out"));
	watch_wait(xs, "in");		/* every watch fires once at first */
	watch_wait(xs, "out");
	assert_false(xs_is_domain_introduced(xs, DOMID));
	assert_int_equal(loopguest_introduce(r->guest, xs), 0);
	watch_wait(xs, "in");
	assert_true(xs_is_domain_introduced(xs, DOMID));
	assert_int_equal(loopguest_release(r->guest, xs), 0);
	watch_wait(xs, "out");
	assert_false(xs_is_domain_introduced(xs, DOMID));

	/* xenstored's own map and port are not a backend's */
	assert_int_equal(loopguest_introduce(r->guest, xs), 0);
	watch_wait(xs, "in");
	c = rig_counters(r);
	assert_int_equal(c.mapped_now + c.map_calls, 0);
	assert_int_equal(c.bound_now + c.binds, 0);
	assert_int_equal(loopguest_grants(r->guest), 0);

	/* a domain that goes away without a word is released too */
	loopguest_destroy(r->guest);
	r->guest = NULL;
	watch_wait(xs, "out");
	assert_false(xs_is_domain_introduced(xs, DOMID));
	xs_close(xs);
}

static void
domains_can_be_asked_for(void **state)
{
	struct rig		*r = *state;
	struct xs_handle	*xs = xs_open(0);
	xc_interface		*xc = xc_interface_open(NULL, NULL, 0);
	xc_dominfo_t		 info;

	assert_non_null(xs);
	assert_non_null(xc);
	assert_int_equal(xc_domain_getinfo(xc, DOMID, 1, &info), 1);
	assert_int_equal(info.domid, DOMID);
	assert_false(info.shutdown || info.crashed || info.dying);
	assert_true(xs_watch(xs, "@releaseDomain", "out"));
	watch_wait(xs, "out");
	assert_int_equal(loopguest_introduce(r->guest, xs), 0);
	assert_int_equal(loopguest_shutdown(r->guest, 3), 0);
	watch_wait(xs, "out");
	assert_int_equal(xc_domain_getinfo(xc, DOMID, 1, &info), 1);
	assert_true(info.crashed);
	assert_true(xc_domain_getinfo(xc, DOMID + 1, 1, &info) < 1);
	xc_interface_close(xc);
	xs_close(xs);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(masked_until_unmask),
		RIG_TEST(sent_again_before_taken),
		RIG_TEST(woken_for_a_dead_sender),
		RIG_TEST(event_for_nothing),
		RIG_TEST(guest_sleeps_and_spins),
		RIG_TEST(many_ports_one_handle),
		RIG_TEST(closed_end_can_be_bound_again),
		RIG_TEST(bind_refuses),
		RIG_TEST(restricted_to_its_domain),
		RIG_TEST(opened_from_a_descriptor),
		RIG_TEST(counted_per_domain),
		RIG_TEST(killed_backend_leaves_nothing),
		RIG_TEST(killed_guest_is_destroyed),
		RIG_TEST(works_behind_the_filter),
		RIG_TEST(introduced_and_released),
		RIG_TEST(domains_can_be_asked_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
