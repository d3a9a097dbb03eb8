/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The rig of loopxen's tests (rig.h).
 */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/loopxen/rig.h"

int
rig_setup(void **state)
{
	struct rig	*r = calloc(1, sizeof(*r));

	assert_non_null(r);
	assert_int_equal(loopguest_create(&r->guest, DOMID, NPAGES), 0);
	r->gnt = xengnttab_open(NULL, 0);
	r->evt = xenevtchn_open(NULL, 0);
	assert_non_null(r->gnt);
	assert_non_null(r->evt);
	*state = r;
	return 0;
}

int
rig_teardown(void **state)
{
	struct rig	*r = *state;

	assert_int_equal(xengnttab_close(r->gnt), 0);
	assert_int_equal(xenevtchn_close(r->evt), 0);
	if (r->guest != NULL)
		loopguest_destroy(r->guest);
	free(r);
	return 0;
}

uint32_t
rig_grant(struct rig *r, unsigned page, bool readonly)
{
	uint32_t	ref = 0;

	assert_int_equal(loopguest_grant(r->guest, page, 0, readonly, &ref), 0);
	assert_true(ref >= LOOPGUEST_FIRST_GREF);
	return ref;
}

segment_t
rig_copy_in(void *to, uint32_t domid, uint32_t ref, unsigned offset,
    unsigned len)
{
	segment_t	s;

	memset(&s, 0, sizeof(s));
	s.flags = GNTCOPY_source_gref;
	s.source.foreign.domid = (uint16_t)domid;
	s.source.foreign.ref = ref;
	s.source.foreign.offset = (uint16_t)offset;
	s.dest.virt = to;
	s.len = (uint16_t)len;
	s.status = 99;
	return s;
}

segment_t
rig_copy_out(uint32_t domid, uint32_t ref, unsigned offset, void *from,
    unsigned len)
{
	segment_t	s;

	memset(&s, 0, sizeof(s));
	s.flags = GNTCOPY_dest_gref;
	s.dest.foreign.domid = (uint16_t)domid;
	s.dest.foreign.ref = ref;
	s.dest.foreign.offset = (uint16_t)offset;
	s.source.virt = from;
	s.len = (uint16_t)len;
	s.status = 99;
	return s;
}

struct loopguest_counters
rig_counters(struct rig *r)
{
	struct loopguest_counters	c;

	loopguest_counters(r->guest, &c);
	return c;
}

int64_t
rig_now_ms(void)
{
	struct timespec	t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

bool
rig_readable(int fd)
{
	struct pollfd	p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

struct loopguest_port *
rig_port(struct rig *r)
{
	struct loopguest_port	*p;

	assert_int_equal(loopguest_port_open(r->guest, 0, &p), 0);
	return p;
}

evtchn_port_t
rig_bind(xenevtchn_handle *evt, struct loopguest_port *p)
{
	int	local;

	local = xenevtchn_bind_interdomain(evt, DOMID,
	    loopguest_port_number(p));
	assert_true(local > 0);
	assert_true(loopguest_port_bound(p));
	assert_true(rig_readable(xenevtchn_fd(evt)));
	assert_int_equal(xenevtchn_pending(evt), local);
	assert_false(rig_readable(xenevtchn_fd(evt)));
	return (evtchn_port_t)local;
}

void
rig_until(bool (*is)(struct rig *, void *), struct rig *r, void *arg)
{
	int64_t	end = rig_now_ms() + 3000;

	while (!is(r, arg)) {
		assert_true(rig_now_ms() < end);
		usleep(1000);
	}
}
