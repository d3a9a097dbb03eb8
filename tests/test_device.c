/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Every combination of levels that device_next() can be shown: no answer is
 * harmful, no sequence of answers runs for ever, and frontends of every kind
 * get where they want to go from anywhere.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "blkback/device.h"

#define S(name)   XenbusState##name
#define NR_STATES 9		/* 0 ... 8 */
#define STEPS_MAX 30

/* ---- all combinations ---------------------------------------------------- */

static bool
is_mapped(const struct device_levels *l)
{
	return l->link == LINK_CONNECTING || l->link == LINK_READY ||
	    l->link == LINK_UP || l->link == LINK_BROKEN;
}

static bool
is_unsure(const struct device_levels *l)
{
	return l->link == LINK_DRAINING || l->link == LINK_UNKNOWN;
}

static bool
is_active(enum xenbus_state s)
{
	return s >= S(InitWait) && s <= S(Closing);
}

static void
show(const char *what, const struct device_levels *l)
{
	print_message("%s: ours %d theirs %d online %d image %d go %d first %d "
	    "link %d changed %d spent %d exists %d\n", what, l->ours,
	    l->theirs, l->online, l->image, l->go, l->go_first, l->link,
	    l->changed, l->spent, l->exists);
}

/* Number 'n' of all combinations; false when there is none of it. */
static bool
combination(unsigned n, struct device_levels *l)
{
	*l = (struct device_levels){ .exists = true };
	l->changed = n % 2, n /= 2;
	l->spent = n % 2, n /= 2;
	l->online = n % 2, n /= 2;
	l->go_first = n % 2, n /= 2;
	l->ours = n % NR_STATES, n /= NR_STATES;
	l->theirs = n % NR_STATES, n /= NR_STATES;
	l->image = n % IMAGE_STATES, n /= IMAGE_STATES;
	l->go = n % GO_STATES, n /= GO_STATES;
	l->link = n % LINK_STATES, n /= LINK_STATES;
	return n == 0;
}

/* The rule that 'a' breaks, or NULL. */
static const char *
harm(const struct device_levels *l, enum device_action a)
{
	bool writes = a == DEV_OFFER || a == DEV_PUBLISH || a == DEV_CLOSING ||
	    a == DEV_CLOSED;

	if (is_unsure(l) && a != DEV_WAIT)
		return "acts while it is unknown what is mapped";
	if ((a == DEV_OFFER || a == DEV_CLOSED || a == DEV_REMOVE) &&
	    is_mapped(l))
		return "gives pages back that are still mapped";
	if (a == DEV_DISCONNECT && !is_mapped(l))
		return "unmaps nothing";
	if (a == DEV_DISCONNECT && l->ours == S(Connected) && !l->changed &&
	    is_active(l->theirs))
		return "takes the ring from a guest that uses it";
	if (a == DEV_DISCONNECT && l->ours == S(Closing) &&
	    is_active(l->theirs))
		return "takes the ring from a guest that has not let go";
	if (a == DEV_CONNECT && (l->link != LINK_DOWN ||
	    l->image != IMAGE_OPEN || (l->theirs != S(Initialised) &&
	    l->theirs != S(Connected))))
		return "connects to nothing";
	if (a == DEV_CONNECT && l->ours == S(InitWait) && l->go != GO_GIVEN)
		return "connects before xl has seen InitWait";
	if (a == DEV_PUBLISH && l->link != LINK_READY && l->link != LINK_UP)
		return "says Connected without a ring";
	if (writes && l->ours == S(Closed) && !l->online)
		return "writes after the end";
	if (a == DEV_REMOVE && (l->ours != S(Closed) || l->online))
		return "removes what is wanted";
	if (a == DEV_CLOSING && l->ours != S(InitWait) &&
	    l->ours != S(Connected))
		return "goes back to Closing";
	if (a == DEV_OFFER && l->ours != S(Initialising) &&
	    l->ours != S(Closed))
		return "offers what has been offered";
	if (a == DEV_OFFER && l->go_first && l->go != GO_GIVEN)
		return "offers before xenopsd's script has run";
	if (a == DEV_FORGET || a >= DEV_ACTIONS)
		return "is not for a directory that is there";
	return NULL;
}

static void
test_harmless(void **state)
{
	struct device_levels l;
	unsigned n, bad = 0;
	const char *rule;

	(void)state;
	for (n = 0; combination(n, &l); n++) {
		rule = harm(&l, device_next(&l));
		if (rule != NULL && bad++ < 10)
			show(rule, &l);
		l.exists = false;
		assert_int_equal(device_next(&l), DEV_FORGET);
	}
	assert_int_equal(bad, 0);
	assert_int_equal(n, 16 * NR_STATES * NR_STATES * IMAGE_STATES *
	    GO_STATES * LINK_STATES);
}

/* ---- what the supervisor and the disk process make of an action ---------- */

struct world {
	struct device_levels l;
	bool image_works, ring_works;
	bool removed;
	unsigned steps;
	char seen[STEPS_MAX + 1];	/* the states that we wrote */
	unsigned nr_seen;
};

static void
write_state(struct world *w, enum xenbus_state s)
{
	w->l.ours = s;
	if (w->nr_seen < STEPS_MAX)
		w->seen[w->nr_seen++] = '0' + s;
	w->seen[w->nr_seen] = '\0';
}

static void
failed(struct world *w)
{
	if (w->l.theirs == S(Initialising))
		w->l.spent = true;
}

static void
do_action(struct world *w, enum device_action a)
{
	switch (a) {
	case DEV_OFFER:
		if (w->l.ours == S(Closed) && w->l.image == IMAGE_FAILED)
			w->l.image = IMAGE_NONE;
		if (w->l.link == LINK_FAILED)
			w->l.link = LINK_DOWN;
		w->l.spent = false;
		write_state(w, S(InitWait));
		break;
	case DEV_CONNECT:
		w->l.link = LINK_CONNECTING;
		break;
	case DEV_PUBLISH:
		w->l.link = LINK_UP;
		w->l.changed = false;
		write_state(w, S(Connected));
		break;
	case DEV_CLOSING:
		write_state(w, S(Closing));
		break;
	case DEV_DISCONNECT:
		w->l.link = LINK_DRAINING;
		break;
	case DEV_CLOSED:
		write_state(w, S(Closed));
		break;
	case DEV_REMOVE:
		w->removed = true;
		break;
	default:
		break;
	}
}

/* What was asked for happens.  False: nothing was. */
static bool
progress(struct world *w)
{
	struct device_levels *l = &w->l;

	if (l->link == LINK_DRAINING || l->link == LINK_UNKNOWN) {
		l->link = LINK_DOWN;
	} else if (l->link == LINK_CONNECTING) {
		l->link = w->ring_works ? LINK_READY : LINK_FAILED;
		if (!w->ring_works)
			failed(w);
	} else if (l->image == IMAGE_OPENING) {
		l->image = w->image_works ? IMAGE_OPEN : IMAGE_FAILED;
		if (!w->image_works)
			failed(w);
	} else if (l->image == IMAGE_NONE && l->online &&
	    (l->ours == S(Initialising) || l->ours == S(InitWait))) {
		l->image = IMAGE_OPENING;
	} else {
		return false;
	}
	return true;
}

/* Until nothing happens any more.  False: that takes for ever. */
static bool
settle(struct world *w)
{
	enum device_action a;

	for (w->steps = 0; w->steps < STEPS_MAX; w->steps++) {
		a = device_next(&w->l);
		do_action(w, a);
		if (w->removed || (a == DEV_WAIT && !progress(w)))
			return true;
	}
	return false;
}

static void
test_comes_to_rest(void **state)
{
	unsigned n, i, bad = 0;
	struct world w;

	(void)state;
	for (i = 0; i < 4; i++) {
		w = (struct world){ .image_works = i & 1, .ring_works = i & 2 };
		for (n = 0; combination(n, &w.l); n++) {
			struct device_levels start = w.l;

			w.removed = false;
			w.nr_seen = 0;
			if (!settle(&w) && bad++ < 10)
				show("runs for ever", &start);
		}
	}
	assert_int_equal(bad, 0);
}

/* ---- frontends ----------------------------------------------------------- */

/* Linux's blkfront, with a driver that is loaded again when it has closed. */
static void
linux_reacts(struct world *w)
{
	enum xenbus_state *t = &w->l.theirs;

	switch (*t) {
	case S(Initialising):
	case S(InitWait):		/* not one of its own */
		if (w->l.ours == S(InitWait))
			*t = S(Initialised);
		else if (w->l.ours >= S(Connected) && *t == S(InitWait))
			*t = S(Closed);
		break;
	case S(Initialised):
	case S(Connected):
		if (w->l.ours == S(Connected))
			*t = S(Connected);
		else if (w->l.ours >= S(Closing))
			*t = S(Closed);
		break;
	case S(Closing):
		*t = S(Closed);
		break;
	default:
		*t = S(Initialising);
		break;
	}
	if (*t != S(Initialising))
		w->l.spent = false;
}

/*
 * One that shows Connected with its ring, whatever we do (OVMF, mini-os), and
 * waits for each of our answers by its number before it goes on.
 */
static void
firmware_reacts(struct world *w)
{
	enum xenbus_state *t = &w->l.theirs;

	switch (*t) {
	case S(Initialising):
		if (w->l.ours == S(InitWait))
			*t = S(Connected);
		break;
	case S(InitWait):
	case S(Initialised):
	case S(Connected):
		*t = w->l.ours == S(Connected) ? S(Connected) : S(Closing);
		break;
	case S(Closing):
		if (w->l.ours == S(Closing) || w->l.ours == S(Closed))
			*t = S(Closed);
		break;
	case S(Closed):
		if (w->l.ours == S(Closed) || w->l.ours == S(InitWait))
			*t = S(Initialising);
		break;
	default:
		*t = S(Initialising);
		break;
	}
	if (*t != S(Initialising))
		w->l.spent = false;
}

static bool
is_connected(const struct world *w)
{
	return w->l.ours == S(Connected) && w->l.theirs == S(Connected) &&
	    w->l.link == LINK_UP;
}

/* A wanted disk whose image and ring work. */
static bool
gets_connected(struct world *w, void (*reacts)(struct world *))
{
	int i;

	for (i = 0; i < 12; i++) {
		if (!settle(w))
			return false;
		if (is_connected(w))
			return true;
		reacts(w);
	}
	return false;
}

/* Combinations that the supervisor can be in. */
static bool
consistent(const struct device_levels *l)
{
	if (is_mapped(l) && l->image != IMAGE_OPEN)
		return false;
	return l->theirs == S(Initialising) || !l->spent;
}

static void
test_frontends_connect(void **state)
{
	void (*const reacts[])(struct world *) = {
		linux_reacts, firmware_reacts,
	};
	unsigned n, i, bad = 0;
	struct world w = { .image_works = true, .ring_works = true };

	(void)state;
	for (i = 0; i < 2; i++) {
		for (n = 0; combination(n, &w.l); n++) {
			struct device_levels start = w.l;

			if (!w.l.online || w.l.go != GO_GIVEN || w.l.spent ||
			    !consistent(&w.l))
				continue;
			w.removed = false;
			w.nr_seen = 0;
			if (!gets_connected(&w, reacts[i]) && bad++ < 10)
				show(i == 0 ? "Linux is stuck" :
				    "firmware is stuck", &start);
		}
	}
	assert_int_equal(bad, 0);
}

/* The toolstack wants it gone: libxl's transaction, and its variants. */
static void
test_detach(void **state)
{
	unsigned n, variant, i, bad = 0;
	struct world w = { .image_works = true, .ring_works = true };

	(void)state;
	for (variant = 0; variant < 3; variant++) {
		for (n = 0; combination(n, &w.l); n++) {
			struct device_levels start = w.l;

			if (!consistent(&w.l))
				continue;
			w.removed = false;
			w.nr_seen = 0;
			w.l.online = false;
			if (w.l.ours != S(Closed))
				w.l.ours = S(Closing);
			if (variant == 0)	/* force: the guest is gone */
				w.l.theirs = S(Unknown);
			for (i = 0; i < 6 && !w.removed; i++) {
				if (!settle(&w))
					break;
				/* Linux closes at once, firmware in steps */
				if (variant == 1)
					w.l.theirs = S(Closed);
				else if (variant == 2)
					w.l.theirs = is_active(w.l.theirs) &&
					    w.l.theirs != S(Closing) ?
					    S(Closing) : S(Closed);
			}
			if ((!w.removed || w.l.ours != S(Closed) ||
			    is_mapped(&w.l)) && bad++ < 10)
				show("is not removed", &start);
		}
	}
	assert_int_equal(bad, 0);
}

/* ---- each case by itself ------------------------------------------------- */

static struct world
fresh(void)
{
	struct world w = {
		.l = {
			.exists = true, .online = true, .go = GO_GIVEN,
			.ours = S(Initialising), .theirs = S(Initialising),
		},
		.image_works = true, .ring_works = true,
	};

	return w;
}

/* The frontend shows a state, we settle: these are the states we wrote. */
static void
step(struct world *w, enum xenbus_state theirs, const char *seen)
{
	w->nr_seen = 0;
	w->seen[0] = '\0';
	w->l.theirs = theirs;
	if (theirs != S(Initialising))
		w->l.spent = false;
	assert_true(settle(w));
	assert_string_equal(w->seen, seen);
}

static struct world
connected(void)
{
	struct world w = fresh();

	step(&w, S(Initialising), "2");
	step(&w, S(Initialised), "4");
	step(&w, S(Connected), "");
	assert_true(is_connected(&w));
	return w;
}

/* Firmware closes in two steps and waits for each; then the kernel comes. */
static void
test_firmware_then_kernel(void **state)
{
	struct world w = fresh();

	(void)state;
	step(&w, S(Connected), "24");		/* it jumped */
	step(&w, S(Closing), "5");
	assert_int_equal(w.l.link, LINK_UP);
	step(&w, S(Closed), "6");
	assert_int_equal(w.l.link, LINK_DOWN);
	step(&w, S(Initialising), "2");
	step(&w, S(Initialised), "4");
	step(&w, S(Connected), "");
}

static void
test_xl_reads_initwait(void **state)
{
	struct world w = fresh();

	(void)state;
	w.l.go = GO_AWAITED;
	step(&w, S(Initialising), "2");
	step(&w, S(Initialised), "");		/* block-attach: a fast guest */
	step(&w, S(Connected), "");
	assert_int_equal(w.l.image, IMAGE_OPEN);
	w.l.go = GO_GIVEN;
	step(&w, S(Initialised), "4");
}

/* The other way round; what comes after the offer is the same. */
static void
test_xenopsd_runs_its_script_first(void **state)
{
	struct world w = fresh();

	(void)state;
	w.l.go_first = true;
	w.l.go = GO_AWAITED;
	step(&w, S(Initialising), "");
	assert_int_equal(w.l.image, IMAGE_OPEN);	/* the script asks */
	step(&w, S(Connected), "");			/* firmware */
	w.l.go = GO_GIVEN;
	step(&w, S(Initialising), "2");
	step(&w, S(Initialised), "4");
	step(&w, S(Closing), "5");
	step(&w, S(Closed), "6");
	w.l.go = GO_AWAITED;				/* plugged anew */
	step(&w, S(Initialising), "");
	step(&w, S(Initialised), "");
	w.l.go = GO_GIVEN;
	step(&w, S(Initialising), "2");
}

static void
test_xenopsd_is_refused(void **state)
{
	struct world w = fresh();

	(void)state;
	w.image_works = false;
	w.l.go_first = true;
	w.l.go = GO_AWAITED;
	step(&w, S(Initialising), "");
	w.l.go = GO_REFUSED;
	step(&w, S(Initialising), "6");
	step(&w, S(Initialising), "");
	w.l.online = false;
	step(&w, S(Initialising), "");
	assert_true(w.removed);
}

/* Until the offer, its order is the only difference there is. */
static void
test_order_matters_before_the_offer_only(void **state)
{
	struct device_levels l;
	enum device_action a;
	unsigned n, differ = 0;

	(void)state;
	for (n = 0; combination(n, &l); n++) {
		l.go_first = false;
		a = device_next(&l);
		l.go_first = true;
		if (device_next(&l) == a)
			continue;
		differ++;
		assert_int_not_equal(l.go, GO_GIVEN);
		if (l.ours != S(Initialising) || l.go != GO_REFUSED)
			assert_int_equal(a, DEV_OFFER);
	}
	assert_true(differ > 0);
}

static void
test_initwait_before_the_image(void **state)
{
	struct world w = fresh();

	(void)state;
	w.l.image = IMAGE_OPENING;
	assert_int_equal(device_next(&w.l), DEV_OFFER);
	w.l.ours = S(InitWait);
	w.l.theirs = S(Initialised);
	assert_int_equal(device_next(&w.l), DEV_WAIT);
}

static void
test_image_fails(void **state)
{
	struct world w = fresh();

	(void)state;
	w.image_works = false;
	w.l.go = GO_AWAITED;
	step(&w, S(Initialising), "2");		/* until the script asks */
	w.l.go = GO_REFUSED;
	step(&w, S(Initialising), "56");
	step(&w, S(Initialised), "");
	step(&w, S(Initialising), "");
	w.l.online = false;
	step(&w, S(Initialising), "");
	assert_true(w.removed);
}

static void
test_leftover_closed(void **state)
{
	struct world w = fresh();

	(void)state;
	step(&w, S(Closed), "2");
	step(&w, S(Initialising), "");
	step(&w, S(Initialised), "4");
}

static void
test_closes_without_a_word(void **state)
{
	struct world w = connected();

	(void)state;
	step(&w, S(Closed), "6");
	step(&w, S(Initialising), "2");
}

/* One that comes again with its ring, without Initialising in between. */
static void
test_jumps_after_closed(void **state)
{
	struct world w = connected();

	(void)state;
	step(&w, S(Closed), "6");
	step(&w, S(Connected), "24");
	step(&w, S(Closed), "6");
	step(&w, S(Initialised), "24");
}

static void
test_kexec(void **state)
{
	struct world w = connected();

	(void)state;
	step(&w, S(Initialising), "62");
	w = connected();
	step(&w, S(Closing), "5");		/* Linux's reset */
	step(&w, S(Closed), "6");
	step(&w, S(Initialising), "2");
	step(&w, S(Initialised), "4");
}

static void
test_guest_is_gone(void **state)
{
	struct world w = connected();

	(void)state;
	step(&w, S(Unknown), "6");
	assert_int_equal(w.l.link, LINK_DOWN);
	step(&w, S(Unknown), "");
	w = fresh();
	step(&w, S(Initialising), "2");
	step(&w, S(Unknown), "6");
	step(&w, S(Initialising), "2");
}

static void
test_busy_guest_keeps_its_ring(void **state)
{
	struct world w = connected();

	(void)state;
	w.l.online = false;
	w.l.ours = S(Closing);
	step(&w, S(Connected), "");
	assert_int_equal(w.l.link, LINK_UP);
	step(&w, S(Closed), "6");		/* after all (H15) */
	assert_true(w.removed);
}

static void
test_detach_before_the_guest_came(void **state)
{
	struct world w = fresh();

	(void)state;
	step(&w, S(Initialising), "2");
	w.l.online = false;
	w.l.ours = S(Closing);
	step(&w, S(Initialising), "6");
	assert_true(w.removed);
}

static void
test_ring_changes(void **state)
{
	struct world w = connected();

	(void)state;
	step(&w, S(Initialised), "");
	w.l.changed = true;
	step(&w, S(Initialised), "4");		/* the guest looks again */
	assert_int_equal(w.l.link, LINK_UP);
	step(&w, S(Connected), "");
}

static void
test_ring_fails(void **state)
{
	struct world w = fresh();

	(void)state;
	w.ring_works = false;
	step(&w, S(Initialising), "2");
	step(&w, S(Initialised), "5");
	step(&w, S(Closed), "6");
	w.ring_works = true;
	step(&w, S(Initialising), "2");
	step(&w, S(Initialised), "4");
}

static void
test_ring_breaks(void **state)
{
	struct world w = connected();

	(void)state;
	w.l.link = LINK_BROKEN;
	step(&w, S(Connected), "5");
	assert_int_equal(w.l.link, LINK_BROKEN);
	step(&w, S(Closed), "6");
	assert_int_equal(w.l.link, LINK_DOWN);
	step(&w, S(Initialising), "2");
}

static void
test_disk_process_dies(void **state)
{
	struct world w = connected();

	(void)state;
	w.l.link = LINK_FAILED;
	w.l.image = IMAGE_FAILED;
	step(&w, S(Connected), "5");
	step(&w, S(Closed), "6");
	step(&w, S(Initialising), "2");		/* opened again */
	step(&w, S(Initialised), "4");
	assert_int_equal(w.l.image, IMAGE_OPEN);
}

/* A failure is not tried again and again while the frontend stands still. */
static void
test_one_try_per_initialising(void **state)
{
	struct world w = fresh();

	(void)state;
	w.image_works = false;
	step(&w, S(Initialising), "256");
	step(&w, S(Initialising), "");
	step(&w, S(Closed), "");
	step(&w, S(Initialising), "256");
	w.image_works = true;
	step(&w, S(Closed), "");
	step(&w, S(Initialising), "2");
}

static void
test_adoption_waits(void **state)
{
	struct world w = connected();

	(void)state;
	w.l.link = LINK_UNKNOWN;
	w.l.image = IMAGE_OPENING;
	w.l.theirs = S(Closed);
	assert_int_equal(device_next(&w.l), DEV_WAIT);
	/* It died while nobody looked: its requests are lost. */
	w.l.theirs = S(Connected);
	w.l.link = LINK_DOWN;
	w.l.image = IMAGE_NONE;
	assert_int_equal(device_next(&w.l), DEV_CLOSING);
}

static void
test_names(void **state)
{
	(void)state;
	assert_string_equal(device_state_name(2), "InitWait");
	assert_string_equal(device_state_name(6), "Closed");
	assert_string_equal(device_state_name(7), "Unknown");
	assert_string_equal(device_state_name(4000000000u), "Unknown");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_harmless),
		cmocka_unit_test(test_comes_to_rest),
		cmocka_unit_test(test_frontends_connect),
		cmocka_unit_test(test_detach),
		cmocka_unit_test(test_firmware_then_kernel),
		cmocka_unit_test(test_xl_reads_initwait),
		cmocka_unit_test(test_xenopsd_runs_its_script_first),
		cmocka_unit_test(test_xenopsd_is_refused),
		cmocka_unit_test(test_order_matters_before_the_offer_only),
		cmocka_unit_test(test_initwait_before_the_image),
		cmocka_unit_test(test_image_fails),
		cmocka_unit_test(test_leftover_closed),
		cmocka_unit_test(test_closes_without_a_word),
		cmocka_unit_test(test_jumps_after_closed),
		cmocka_unit_test(test_kexec),
		cmocka_unit_test(test_guest_is_gone),
		cmocka_unit_test(test_busy_guest_keeps_its_ring),
		cmocka_unit_test(test_detach_before_the_guest_came),
		cmocka_unit_test(test_ring_changes),
		cmocka_unit_test(test_ring_fails),
		cmocka_unit_test(test_ring_breaks),
		cmocka_unit_test(test_disk_process_dies),
		cmocka_unit_test(test_one_try_per_initialising),
		cmocka_unit_test(test_adoption_waits),
		cmocka_unit_test(test_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
