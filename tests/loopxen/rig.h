/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the tests of loopxen share: a guest, a backend's two handles, and
 * short ways to say what is copied, granted and bound.  A rig_*() that cannot
 * do its work fails the test.
 */
#ifndef LOOPXEN_RIG_H
#define LOOPXEN_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <xenevtchn.h>
#include <xengnttab.h>

#include <cmocka.h>

#include "tests/loopxen/guest.h"

#define DOMID	7
#define NPAGES	64
#define NMAP	16

struct rig {
	struct loopguest	*guest;
	xengnttab_handle	*gnt;
	xenevtchn_handle	*evt;
};

typedef xengnttab_grant_copy_segment_t segment_t;

int	rig_setup(void **);
int	rig_teardown(void **);
#define RIG_TEST(f) cmocka_unit_test_setup_teardown(f, rig_setup, rig_teardown)

uint32_t rig_grant(struct rig *, unsigned page, bool readonly);
segment_t rig_copy_in(void *to, uint32_t domid, uint32_t ref, unsigned offset,
	    unsigned len);
segment_t rig_copy_out(uint32_t domid, uint32_t ref, unsigned offset,
	    void *from, unsigned len);
struct loopguest_counters rig_counters(struct rig *);

struct loopguest_port *rig_port(struct rig *);
/* Bind, and take the event that binding raises. */
evtchn_port_t rig_bind(xenevtchn_handle *, struct loopguest_port *);
bool	rig_readable(int fd);

int64_t	rig_now_ms(void);
/* Wait up to 3 s until is(). */
void	rig_until(bool (*is)(struct rig *, void *), struct rig *, void *);

#endif /* LOOPXEN_RIG_H */
