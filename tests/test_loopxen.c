/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * loopxen's grants: do they behave as Xen's where a block backend can tell?
 *
 * The backend's side goes through the drop-in libraries, as the daemon does.
 * Run by tests/loopxen/test.sh.
 */
#include <sys/mman.h>
#include <sys/wait.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/loopxen/rig.h"

/* ---- grants ----------------------------------------------------------- */

static void
copies_both_ways(void **state)
{
	struct rig			*r = *state;
	segment_t	 s[2];
	uint32_t			 ref = rig_grant(r, 3, false);
	char				*page = loopguest_page(r->guest, 3);
	char				 in[8] = "", out[8] = "backend";

	memcpy(page + 4088, "front", 6);
	s[0] = rig_copy_in(in, DOMID, ref, 4088, 8);
	s[1] = rig_copy_out(DOMID, ref, 1, out, 8);
	assert_int_equal(xengnttab_grant_copy(r->gnt, 2, s), 0);
	assert_int_equal(s[0].status, 0);
	assert_int_equal(s[1].status, 0);
	assert_string_equal(in, "front");
	assert_string_equal(page + 1, "backend");
	assert_int_equal(page[0], 0);
	assert_int_equal(loopguest_ungrant(r->guest, ref), 0);
}

/* Each segment has a status of its own; the good ones are done all the same. */
static void
copy_statuses(void **state)
{
	struct rig			*r = *state;
	segment_t	 s[9];
	uint32_t			 rw = rig_grant(r, 0, false);
	uint32_t			 ro = rig_grant(r, 1, true), other;
	char				 buf[4] = "abc", got[4] = "";

	assert_int_equal(loopguest_grant(r->guest, 2, 5, false, &other), 0);
	s[0] = rig_copy_out(DOMID, rw, 0, buf, 4);
	s[1] = rig_copy_out(DOMID, ro, 0, buf, 4);
	s[2] = rig_copy_out(DOMID, 1000, 0, buf, 4);
	s[3] = rig_copy_out(DOMID, LOOPGUEST_MAX_GREFS, 0, buf, 4);
	s[4] = rig_copy_out(DOMID + 1, rw, 0, buf, 4);
	s[5] = rig_copy_out(DOMID, other, 0, buf, 4);
	s[6] = rig_copy_in(got, DOMID, ro, 0, 4);
	s[7] = rig_copy_in(got, DOMID, UINT32_MAX, 0, 4);
	s[8] = rig_copy_in(got, DOMID, rw, 0, 4);
	assert_int_equal(xengnttab_grant_copy(r->gnt, 9, s), 0);
	assert_int_equal(s[0].status, GNTST_okay);
	assert_int_equal(s[1].status, GNTST_general_error);
	assert_int_equal(s[2].status, GNTST_general_error);
	assert_int_equal(s[3].status, GNTST_bad_gntref);
	assert_int_equal(s[4].status, GNTST_bad_domain);
	assert_int_equal(s[5].status, GNTST_general_error);
	assert_int_equal(s[6].status, GNTST_okay);
	assert_int_equal(s[7].status, GNTST_bad_gntref);
	assert_int_equal(s[8].status, GNTST_okay);
	assert_string_equal(got, "abc");
	assert_int_equal(*(char *)loopguest_page(r->guest, 1), 0);
	assert_int_equal(*(char *)loopguest_page(r->guest, 2), 0);
}

static void
copy_refuses_the_call(void **state)
{
	struct rig			*r = *state;
	segment_t	 s[2];
	uint32_t			 ref = rig_grant(r, 0, false);
	char				 buf[4] = "abc";

	s[0] = rig_copy_out(DOMID, ref, 0, buf, 4);
	s[1] = rig_copy_out(DOMID, ref, 4093, buf, 4);
	errno = 0;
	assert_int_equal(xengnttab_grant_copy(r->gnt, 2, s), -1);
	assert_int_equal(errno, EINVAL);
	s[1] = rig_copy_out(DOMID, ref, 4092, buf, 4);
	s[1].flags |= GNTCOPY_source_gref;
	assert_int_equal(xengnttab_grant_copy(r->gnt, 2, s), -1);
	s[1].flags = 0;
	assert_int_equal(xengnttab_grant_copy(r->gnt, 2, s), -1);
	assert_int_equal(*(char *)loopguest_page(r->guest, 0), 0);
	s[1].flags = GNTCOPY_dest_gref;
	assert_int_equal(xengnttab_grant_copy(r->gnt, 2, s), 0);
	assert_int_equal(s[1].status, GNTST_okay);
}

/* Sixteen scattered pages at one stretch of addresses, in the order asked. */
static void
map_is_contiguous(void **state)
{
	struct rig	*r = *state;
	uint32_t	 refs[NMAP], domids[NMAP];
	char		*p;

	for (unsigned i = 0; i < NMAP; i++) {
		/* pages 1 2 0, 4 5 3 ...: some adjacent, some not */
		unsigned page = i / 3 * 3 + (i + 1) % 3;

		refs[i] = rig_grant(r, page, false);
		domids[i] = DOMID;
		snprintf(loopguest_page(r->guest, page), 16, "page %u", i);
	}
	for (int round = 0; round < 2; round++) {
		p = round == 0 ?
		    xengnttab_map_domain_grant_refs(r->gnt, NMAP, DOMID, refs,
		    PROT_READ | PROT_WRITE) :
		    xengnttab_map_grant_refs(r->gnt, NMAP, domids, refs,
		    PROT_READ | PROT_WRITE);
		assert_non_null(p);
		for (unsigned i = 0; i < NMAP; i++) {
			char	want[16];

			snprintf(want, sizeof(want), "page %u", i);
			assert_string_equal(p + i * 4096, want);
		}
		p[15 * 4096 + 100] = 'x';
		assert_int_equal(rig_counters(r).mapped_now, NMAP);
		assert_int_equal(xengnttab_unmap(r->gnt, p, NMAP - 1), -1);
		assert_int_equal(errno, EINVAL);
		assert_int_equal(xengnttab_unmap(r->gnt, p + 4096, NMAP), -1);
		assert_int_equal(xengnttab_unmap(r->gnt, p, NMAP), 0);
		assert_int_equal(xengnttab_unmap(r->gnt, p, NMAP), -1);
		assert_int_equal(rig_counters(r).mapped_now, 0);
	}
	assert_int_equal(((char *)loopguest_page(r->guest, 16))[100], 'x');
}

static void
map_all_or_nothing(void **state)
{
	struct rig	*r = *state;
	uint32_t	 refs[NMAP], domids[NMAP];

	for (unsigned i = 0; i < NMAP; i++) {
		refs[i] = rig_grant(r, i, i == NMAP - 1);
		domids[i] = DOMID;
	}
	/* the last is read-only */
	errno = 0;
	assert_null(xengnttab_map_domain_grant_refs(r->gnt, NMAP, DOMID, refs,
	    PROT_READ | PROT_WRITE));
	assert_int_equal(errno, EINVAL);
	/* a domain that is not there */
	domids[NMAP - 1] = DOMID + 1;
	assert_null(xengnttab_map_grant_refs(r->gnt, NMAP, domids, refs,
	    PROT_READ));
	/* beyond the table, and not granted */
	refs[NMAP - 1] = LOOPGUEST_MAX_GREFS;
	assert_null(xengnttab_map_domain_grant_refs(r->gnt, NMAP, DOMID, refs,
	    PROT_READ));
	refs[NMAP - 1] = 1000;
	assert_null(xengnttab_map_domain_grant_refs(r->gnt, NMAP, DOMID, refs,
	    PROT_READ));
	assert_int_equal(rig_counters(r).mapped_now, 0);
	assert_int_equal(rig_counters(r).map_errors, 4);
	for (unsigned i = 0; i < NMAP - 1; i++)
		assert_int_equal(loopguest_ungrant(r->guest, refs[i]), 0);
}

/* A read-only grant is mapped for reading, and writing to it is a fault. */
static void
map_readonly(void **state)
{
	struct rig	*r = *state;
	uint32_t	 ref = rig_grant(r, 4, true);
	int		 status;
	pid_t		 pid;
	char		*p;

	strcpy(loopguest_page(r->guest, 4), "look");
	p = xengnttab_map_grant_ref(r->gnt, DOMID, ref, PROT_READ);
	assert_non_null(p);
	assert_string_equal(p, "look");
	assert_int_not_equal(pid = fork(), -1);
	if (pid == 0) {
		signal(SIGSEGV, SIG_DFL);
		*(volatile char *)p = 'x';
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	assert_string_equal(p, "look");
	assert_int_equal(xengnttab_unmap(r->gnt, p, 1), 0);
}

static void
pins_hold_a_grant(void **state)
{
	struct rig			*r = *state;
	xengnttab_handle		*second = xengnttab_open(NULL, 0);
	segment_t	 s;
	uint32_t			 ref = rig_grant(r, 4, false);
	char				 c;
	void				*a, *b, *again;

	assert_non_null(second);
	a = xengnttab_map_grant_ref(r->gnt, DOMID, ref, PROT_READ);
	again = xengnttab_map_grant_ref(r->gnt, DOMID, ref, PROT_READ);
	b = xengnttab_map_grant_ref(second, DOMID, ref, PROT_READ);
	assert_non_null(a);
	assert_non_null(again);
	assert_non_null(b);
	assert_int_equal(loopguest_grant_mapped(r->guest, ref), 2);
	assert_int_equal(loopguest_ungrant(r->guest, ref), -EBUSY);
	assert_int_equal(xengnttab_unmap(r->gnt, a, 1), 0);
	assert_int_equal(loopguest_grant_mapped(r->guest, ref), 2);
	assert_int_equal(xengnttab_unmap(r->gnt, again, 1), 0);
	assert_int_equal(loopguest_grant_mapped(r->guest, ref), 1);
	assert_int_equal(loopguest_ungrant(r->guest, ref), -EBUSY);
	/* what is busy is still granted */
	s = rig_copy_in(&c, DOMID, ref, 0, 1);
	assert_int_equal(xengnttab_grant_copy(r->gnt, 1, &s), 0);
	assert_int_equal(s.status, GNTST_okay);
	/* closing a handle ends its maps */
	assert_int_equal(xengnttab_close(second), 0);
	assert_int_equal(loopguest_grants(r->guest), 1);
	assert_int_equal(loopguest_ungrant(r->guest, ref), 0);
	assert_int_equal(loopguest_ungrant(r->guest, ref), -ENOENT);
	assert_int_equal(loopguest_grants(r->guest), 0);
}

static void
revoked_by_force(void **state)
{
	struct rig			*r = *state;
	segment_t	 s;
	uint32_t			 ref = rig_grant(r, 4, false);
	char				 c = 0;
	char				*p;

	p = xengnttab_map_grant_ref(r->gnt, DOMID, ref, PROT_READ);
	assert_non_null(p);
	assert_int_equal(loopguest_revoke(r->guest, ref), 0);
	s = rig_copy_in(&c, DOMID, ref, 0, 1);
	assert_int_equal(xengnttab_grant_copy(r->gnt, 1, &s), 0);
	assert_int_equal(s.status, GNTST_general_error);
	assert_null(xengnttab_map_grant_ref(r->gnt, DOMID, ref, PROT_READ));
	strcpy(loopguest_page(r->guest, 4), "still");
	assert_string_equal(p, "still");
	assert_int_equal(xengnttab_unmap(r->gnt, p, 1), 0);

	assert_int_equal(loopguest_grant_at(r->guest, ref, 5, 0, false), 0);
	assert_int_equal(loopguest_grant_at(r->guest, ref, 5, 0, false),
	    -EEXIST);
	assert_int_equal(loopguest_grant_readonly(r->guest, ref, true), 0);
	s = rig_copy_out(DOMID, ref, 0, &c, 1);
	assert_int_equal(xengnttab_grant_copy(r->gnt, 1, &s), 0);
	assert_int_equal(s.status, GNTST_general_error);
}

struct copier {
	struct rig	*rig;
	uint32_t	 ref;
	_Atomic unsigned done;
	_Atomic bool	 stop;
};

static void *
copier_main(void *arg)
{
	struct copier			*c = arg;
	segment_t	 s;
	char				 buf[4096];

	while (!atomic_load(&c->stop)) {
		memset(buf, (int)(atomic_load(&c->done) & 0xff), sizeof(buf));
		s = rig_copy_out(DOMID, c->ref, 0, buf, sizeof(buf));
		if (xengnttab_grant_copy(c->rig->gnt, 1, &s) != 0)
			abort();
		atomic_fetch_add(&c->done, 1);
	}
	return NULL;
}

/* After ungrant said 0 the page is the guest's own, whatever copies run. */
static void
ungrant_against_copies(void **state)
{
	struct rig	*r = *state;
	struct copier	 c = { .rig = r, .ref = rig_grant(r, 9, false) };
	char		*page = loopguest_page(r->guest, 9);
	int64_t		 end = rig_now_ms() + 500;
	unsigned	 busy = 0, before;
	pthread_t	 t;
	int		 error;

	assert_int_equal(pthread_create(&t, NULL, copier_main, &c), 0);
	while (rig_now_ms() < end) {
		while ((error = loopguest_ungrant(r->guest, c.ref)) == -EBUSY)
			busy++;
		assert_int_equal(error, 0);
		memset(page, 0xee, 4096);
		before = atomic_load(&c.done);
		while (atomic_load(&c.done) < before + 3)
			sched_yield();
		for (unsigned i = 0; i < 4096; i++)
			assert_int_equal((unsigned char)page[i], 0xee);
		assert_int_equal(loopguest_grant_at(r->guest, c.ref, 9, 0,
		    false), 0);
		before = atomic_load(&c.done);
		while (atomic_load(&c.done) < before + 3)
			sched_yield();
	}
	atomic_store(&c.stop, true);
	assert_int_equal(pthread_join(t, NULL), 0);
	assert_int_equal(loopguest_grant_copying(r->guest, c.ref), 0);
	assert_int_equal(loopguest_ungrant(r->guest, c.ref), 0);
	print_message("busy %u times\n", busy);
}

/* A grant that cannot be taken back stays valid all the while. */
static void
busy_grant_stays_valid(void **state)
{
	struct rig	*r = *state;
	struct copier	 c = { .rig = r, .ref = rig_grant(r, 9, false) };
	int64_t		 end = rig_now_ms() + 200;
	pthread_t	 t;
	void		*m;

	m = xengnttab_map_grant_ref(r->gnt, DOMID, c.ref, PROT_READ);
	assert_non_null(m);
	assert_int_equal(pthread_create(&t, NULL, copier_main, &c), 0);
	while (rig_now_ms() < end)
		assert_int_equal(loopguest_ungrant(r->guest, c.ref), -EBUSY);
	atomic_store(&c.stop, true);
	assert_int_equal(pthread_join(t, NULL), 0);
	assert_true(atomic_load(&c.done) > 0);
	assert_int_equal(rig_counters(r).copy_errors, 0);
	assert_int_equal(xengnttab_unmap(r->gnt, m, 1), 0);
}

/* ---- faults and costs ------------------------------------------------- */

static void
faults_hit_the_nth(void **state)
{
	struct rig			*r = *state;
	segment_t	 s[5];
	uint32_t			 ref = rig_grant(r, 0, false);
	char				 c;
	int64_t				 start;
	void				*p;

	for (int i = 0; i < 5; i++)
		s[i] = rig_copy_in(&c, DOMID, ref, 0, 1);
	loopguest_fault_copy(r->guest, 2, 2, GNTST_no_device_space);
	assert_int_equal(xengnttab_grant_copy(r->gnt, 5, s), 0);
	assert_int_equal(s[0].status, GNTST_okay);
	assert_int_equal(s[1].status, GNTST_no_device_space);
	assert_int_equal(s[2].status, GNTST_no_device_space);
	assert_int_equal(s[3].status, GNTST_okay);
	assert_int_equal(s[4].status, GNTST_okay);
	assert_int_equal(rig_counters(r).copy_errors, 2);

	loopguest_fault_map(r->guest, 1, 1, ENOMEM);
	errno = 0;
	assert_null(xengnttab_map_grant_ref(r->gnt, DOMID, ref, PROT_READ));
	assert_int_equal(errno, ENOMEM);
	p = xengnttab_map_grant_ref(r->gnt, DOMID, ref, PROT_READ);
	assert_non_null(p);
	assert_int_equal(xengnttab_unmap(r->gnt, p, 1), 0);

	start = rig_now_ms();
	loopguest_delay_copy(r->guest, 50);
	assert_int_equal(xengnttab_grant_copy(r->gnt, 5, s), 0);
	assert_true(rig_now_ms() - start >= 49);
	loopguest_delay_copy(r->guest, 0);
	start = rig_now_ms();
	assert_int_equal(xengnttab_grant_copy(r->gnt, 5, s), 0);
	assert_true(rig_now_ms() - start < 40);
}

static void
costs_spin(void **state)
{
	struct rig			*r = *state;
	segment_t	 s[4];
	uint32_t			 ref = rig_grant(r, 0, false);
	xengnttab_handle		*slow;
	int64_t				 start = rig_now_ms();
	char				 c;

	setenv("LOOPXEN_COST_CALL_NS", "20000000", 1);
	setenv("LOOPXEN_COST_SEGMENT_NS", "10000000", 1);
	slow = xengnttab_open(NULL, 0);
	unsetenv("LOOPXEN_COST_CALL_NS");
	unsetenv("LOOPXEN_COST_SEGMENT_NS");
	assert_non_null(slow);
	for (int i = 0; i < 4; i++)
		s[i] = rig_copy_in(&c, DOMID, ref, 0, 1);
	assert_int_equal(xengnttab_grant_copy(slow, 4, s), 0);
	assert_true(rig_now_ms() - start >= 59);
	assert_int_equal(xengnttab_close(slow), 0);
}

static void
what_is_not_there(void **state)
{
	struct rig	*r = *state;
	uint32_t	 fd, ref = 8;

	errno = 0;
	assert_int_equal(xengnttab_dmabuf_exp_from_refs(r->gnt, DOMID, 0, 1,
	    &ref, &fd), -1);
	assert_int_equal(errno, ENOSYS);
	errno = 0;
	assert_null(xengntshr_open(NULL, 0));
	assert_int_equal(errno, ENOSYS);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(copies_both_ways),
		RIG_TEST(copy_statuses),
		RIG_TEST(copy_refuses_the_call),
		RIG_TEST(map_is_contiguous),
		RIG_TEST(map_all_or_nothing),
		RIG_TEST(map_readonly),
		RIG_TEST(pins_hold_a_grant),
		RIG_TEST(revoked_by_force),
		RIG_TEST(ungrant_against_copies),
		RIG_TEST(busy_grant_stays_valid),
		RIG_TEST(faults_hit_the_nth),
		RIG_TEST(costs_spin),
		RIG_TEST(what_is_not_there),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
