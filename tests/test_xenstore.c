/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the supervisor reads and others wrote: numbers, paths, the nodes of a
 * guest's ring, names of disks.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "blkback/frontend.h"
#include "blkback/vdev.h"
#include "blkback/xenstore.h"

static void
test_numbers(void **state)
{
	static const char *const bad[] = {
		"", " 1", "1 ", "+1", "-1", "0x10", "1a", "a", "1.0", "1\n",
		"4294967296", "99999999999", "00000000001",
		"18446744073709551617", "\xd9\xa1",
	};
	uint32_t n;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		n = 77;
		assert_int_equal(xenstore_parse_u32(bad[i], UINT32_MAX, &n),
		    -EINVAL);
		assert_int_equal(n, 77);
	}
	assert_int_equal(xenstore_parse_u32("0", 0, &n), 0);
	assert_int_equal(n, 0);
	assert_int_equal(xenstore_parse_u32("4294967295", UINT32_MAX, &n), 0);
	assert_true(n == UINT32_MAX);
	assert_int_equal(xenstore_parse_u32("007", 7, &n), 0);
	assert_int_equal(n, 7);
	assert_int_equal(xenstore_parse_u32("8", 7, &n), -EINVAL);
}

static void
test_ids(void **state)
{
	static const char *const bad[] = {
		"", "-", "7", "7-", "-1", "7-1-", "7--1", "65536-1",
		"000000000007-1", "7-4294967296", "7/1", "7 -1",
	};
	uint32_t domid, devid;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(xenstore_parse_id(bad[i], '-', &domid, &devid),
		    -EINVAL);
	assert_int_equal(xenstore_parse_id("7-51712", '-', &domid, &devid), 0);
	assert_int_equal(domid, 7);
	assert_int_equal(devid, 51712);
	assert_int_equal(xenstore_parse_id("65535/0", '/', &domid, &devid), 0);
	assert_int_equal(domid, 65535);
	assert_int_equal(devid, 0);
}

static void
test_backend_paths(void **state)
{
	static const char *const bad[] = {
		"", "/", "backend", "backend/", "backend/vbd", "backend/vbd/7",
		"backend/vbd/7/", "backend/vbd/7/51712/",
		"/backend/vbd/7/51712", "backend//7/51712",
		"backend/vbd//51712", "frontend/vbd/7/51712",
		"backend/vbd/seven/51712", "backend/vbd/7/xvda",
		"backend/vbd/65536/51712", "backend/vbd/7/4294967296",
		"backend/vbd/-1/51712", "backend/vbd/7/51712x",
		"backend/averyveryverylongkind/7/51712",
		"backend/vbd/7/517120000000000000000000000000000000000",
		"/local/domain/0/backend/vbd/7/51712",
	};
	uint32_t domid, devid;
	char kind[8];
	bool inside;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(xenstore_parse_backend(bad[i], kind,
		    sizeof(kind), &domid, &devid, &inside), -EINVAL);

	assert_int_equal(xenstore_parse_backend("backend/vbd/7/51712", kind,
	    sizeof(kind), &domid, &devid, &inside), 0);
	assert_string_equal(kind, "vbd");
	assert_int_equal(domid, 7);
	assert_int_equal(devid, 51712);
	assert_false(inside);
	assert_int_equal(xenstore_parse_backend(
	    "backend/qdisk/65535/4294967295/a/b", kind, sizeof(kind), &domid,
	    &devid, &inside), 0);
	assert_string_equal(kind, "qdisk");
	assert_int_equal(domid, 65535);
	assert_true(devid == UINT32_MAX);
	assert_true(inside);
	assert_int_equal(xenstore_parse_backend("backend/vbd/7/51712/state",
	    kind, sizeof(kind), &domid, &devid, NULL), 0);

	assert_string_equal(xenstore_basename("/etc/xen/scripts/block"),
	    "block");
	assert_string_equal(xenstore_basename("block"), "block");
	assert_string_equal(xenstore_basename("a/"), "");
}

/* ---- the ring's nodes ---------------------------------------------------- */

#define NODES_MAX 48

/* A frontend's directory: "name=value" each. */
struct directory {
	struct frontend_reader r;	/* must be first */
	const char            *node[NODES_MAX];
};

static int
directory_read(const struct frontend_reader *r, const char *name, char *buf,
    size_t size)
{
	const struct directory *d = (const struct directory *)r;
	size_t n = strlen(name);
	int i;

	for (i = 0; i < NODES_MAX && d->node[i] != NULL; i++) {
		if (strncmp(d->node[i], name, n) != 0 || d->node[i][n] != '=')
			continue;
		if (strlen(d->node[i] + n + 1) >= size)
			return -E2BIG;
		strcpy(buf, d->node[i] + n + 1);
		return 0;
	}
	return -ENOENT;
}

#define DIRECTORY(...) { { directory_read }, { __VA_ARGS__ } }

/* What is offered: all that is tested here, a single page, grant copy only. */
static const struct frontend_offer all = { 4, 4, true };
static const struct frontend_offer one = { 0, 4, true };
static const struct frontend_offer copy = { 4, 4, false };

static void
good(const struct directory *d, unsigned max_order, struct message_connect *c)
{
	const struct frontend_offer offer = { max_order, 4, true };
	char why[WHY_MAX];
	struct message m;

	assert_int_equal(frontend_read(&d->r, &offer, c, why), 0);
	/* The disk process agrees. */
	message_init(&m, MSG_CONNECT);
	m.u.connect = *c;
	assert_int_equal(message_check(&m, sizeof(m)), 0);
}

/* Refused, and the reason names the node and says 'word'. */
static void
bad(const struct directory *d, const char *node, const char *word)
{
	struct message_connect c;
	char why[WHY_MAX] = "";

	assert_true(frontend_read(&d->r, &all, &c, why) < 0);
	assert_non_null(strstr(why, node));
	assert_non_null(strstr(why, word));
	assert_null(strchr(why, '\n'));
}

static void
test_ring_of_linux(void **state)
{
	const struct directory d = DIRECTORY("ring-ref=8", "event-channel=9",
	    "protocol=x86_64-abi", "feature-persistent=1", "state=3");
	struct message_connect c;

	(void)state;
	good(&d, 4, &c);
	assert_int_equal(c.abi, RING_ABI_X86_64);
	assert_int_equal(c.nr_queues, 1);
	assert_int_equal(c.persistent, 1);
	assert_int_equal(c.ring[0].order, 0);
	assert_int_equal(c.ring[0].gref[0], 8);
	assert_int_equal(c.ring[0].port, 9);
}

/* Grants stay mapped only where both sides say so. */
static void
test_persistent(void **state)
{
	const struct directory yes = DIRECTORY("ring-ref=8", "event-channel=9",
	    "feature-persistent=1");
	const struct directory no = DIRECTORY("ring-ref=8", "event-channel=9",
	    "feature-persistent=0");
	const struct directory silent = DIRECTORY("ring-ref=8",
	    "event-channel=9");
	const struct directory junk = DIRECTORY("ring-ref=8",
	    "event-channel=9", "feature-persistent=2");
	struct message_connect c;
	char why[WHY_MAX];

	(void)state;
	good(&yes, 0, &c);
	assert_int_equal(c.persistent, 1);
	good(&no, 0, &c);
	assert_int_equal(c.persistent, 0);
	good(&silent, 0, &c);
	assert_int_equal(c.persistent, 0);
	bad(&junk, "feature-persistent", "\"2\"");
	/* Not offered: whatever the guest says of it. */
	assert_int_equal(frontend_read(&yes.r, &copy, &c, why), 0);
	assert_int_equal(c.persistent, 0);
	assert_int_equal(frontend_read(&junk.r, &copy, &c, why), 0);
}

static void
test_ring_names(void **state)
{
	const struct directory plain = DIRECTORY("ring-page-order=0",
	    "ring-ref=8", "event-channel=9");
	const struct directory numbered = DIRECTORY("ring-page-order=0",
	    "ring-ref0=8", "event-channel=9", "protocol=x86_32-abi");
	const struct directory four = DIRECTORY("ring-page-order=2",
	    "ring-ref0=10", "ring-ref1=11", "ring-ref2=12",
	    "ring-ref3=4294967295", "event-channel=9", "ring-ref=77");
	const struct directory bsd = DIRECTORY("num-ring-pages=2",
	    "ring-ref0=10", "ring-ref1=11", "event-channel=9");
	const struct directory queues = DIRECTORY("multi-queue-num-queues=1",
	    "queue-0/ring-ref=20", "queue-0/event-channel=21");
	const struct directory top = DIRECTORY("multi-queue-num-queues=1",
	    "ring-ref=20", "event-channel=21");
	struct message_connect c;

	(void)state;
	good(&plain, 4, &c);
	assert_int_equal(c.abi, RING_ABI_NATIVE);
	assert_int_equal(c.ring[0].gref[0], 8);
	good(&numbered, 4, &c);
	assert_int_equal(c.abi, RING_ABI_X86_32);
	assert_int_equal(c.ring[0].gref[0], 8);
	good(&four, 2, &c);
	assert_int_equal(c.ring[0].order, 2);
	assert_int_equal(c.ring[0].gref[0], 10);
	assert_int_equal(c.ring[0].gref[2], 12);
	assert_true(c.ring[0].gref[3] == UINT32_MAX);
	good(&bsd, 4, &c);
	assert_int_equal(c.ring[0].order, 1);
	assert_int_equal(c.ring[0].gref[1], 11);
	good(&queues, 4, &c);
	assert_int_equal(c.ring[0].gref[0], 20);
	assert_int_equal(c.ring[0].port, 21);
	good(&top, 4, &c);
	assert_int_equal(c.ring[0].port, 21);
}

static void
test_hostile_rings(void **state)
{
	const struct directory none = DIRECTORY("state=3");
	const struct directory no_port = DIRECTORY("ring-ref=8");
	const struct directory port0 = DIRECTORY("ring-ref=8",
	    "event-channel=0");
	const struct directory port_long = DIRECTORY("ring-ref=8",
	    "event-channel=00000000000000000000000000000000000000009");
	const struct directory negative = DIRECTORY("ring-ref=-1",
	    "event-channel=9");
	const struct directory big = DIRECTORY("ring-ref=4294967296",
	    "event-channel=9");
	const struct directory order = DIRECTORY("ring-page-order=5",
	    "ring-ref0=1", "event-channel=9");
	const struct directory order_huge = DIRECTORY(
	    "ring-page-order=4294967295", "ring-ref0=1", "event-channel=9");
	const struct directory order_junk = DIRECTORY("ring-page-order=two",
	    "num-ring-pages=1", "ring-ref=1", "event-channel=9");
	const struct directory pages3 = DIRECTORY("num-ring-pages=3",
	    "ring-ref0=1", "ring-ref1=2", "ring-ref2=3", "event-channel=9");
	const struct directory pages0 = DIRECTORY("num-ring-pages=0",
	    "ring-ref=1", "event-channel=9");
	const struct directory pages32 = DIRECTORY("num-ring-pages=32",
	    "ring-ref=1", "event-channel=9");
	const struct directory hole = DIRECTORY("ring-page-order=1",
	    "ring-ref0=1", "ring-ref=2", "event-channel=9");
	const struct directory queues5 = DIRECTORY("multi-queue-num-queues=5",
	    "ring-ref=1", "event-channel=9");
	const struct directory queues0 = DIRECTORY("multi-queue-num-queues=0",
	    "ring-ref=1", "event-channel=9");
	const struct directory abi = DIRECTORY("ring-ref=1", "event-channel=9",
	    "protocol=arm65-abi");
	const struct directory abi_empty = DIRECTORY("ring-ref=1",
	    "event-channel=9", "protocol=");
	const struct directory abi_long = DIRECTORY("ring-ref=1",
	    "event-channel=9",
	    "protocol=x86_64-abi-and-then-some-more-letters-without-end");

	(void)state;
	bad(&none, "ring-ref", "no ");
	bad(&no_port, "event-channel", "no ");
	bad(&port0, "event-channel", "\"0\"");
	bad(&port_long, "event-channel", "longer");
	bad(&negative, "ring-ref", "\"-1\"");
	bad(&big, "ring-ref", "4294967296");
	bad(&order, "ring-page-order", "from 0 to 4");
	bad(&order_huge, "ring-page-order", "4294967295");
	bad(&order_junk, "ring-page-order", "two");
	bad(&pages3, "num-ring-pages", "power of two");
	bad(&pages0, "num-ring-pages", "\"0\"");
	bad(&pages32, "num-ring-pages", "\"32\"");
	bad(&hole, "ring-ref1", "no ");
	bad(&queues5, "multi-queue-num-queues", "from 1 to 4");
	bad(&queues0, "multi-queue-num-queues", "\"0\"");
	bad(&abi, "protocol", "arm65-abi");
	bad(&abi_empty, "protocol", "\"\"");
	bad(&abi_long, "protocol", "longer");
}

/* No more pages than were offered, however many we could do. */
static void
test_order_offered(void **state)
{
	const struct directory d = DIRECTORY("ring-page-order=1",
	    "ring-ref0=1", "ring-ref1=2", "event-channel=9");
	struct message_connect c;
	char why[WHY_MAX];

	(void)state;
	assert_true(frontend_read(&d.r, &one, &c, why) < 0);
	assert_non_null(strstr(why, "ring-page-order"));
	good(&d, 1, &c);
}

/* Each queue has its ring and its port; what else lies about does not count. */
static void
test_queues(void **state)
{
	const struct directory three = DIRECTORY("multi-queue-num-queues=3",
	    "protocol=x86_32-abi", "ring-ref=77", "event-channel=78",
	    "queue-0/ring-ref=20", "queue-0/event-channel=21",
	    "queue-1/ring-ref=22", "queue-1/event-channel=23",
	    "queue-2/ring-ref=24", "queue-2/event-channel=25",
	    "queue-3/ring-ref=24", "queue-3/event-channel=25");
	const struct directory orders = DIRECTORY("multi-queue-num-queues=2",
	    "ring-page-order=1",
	    "queue-0/ring-ref0=20", "queue-0/ring-ref1=21",
	    "queue-0/event-channel=21", "queue-1/ring-ref0=22",
	    "queue-1/ring-ref1=23", "queue-1/event-channel=20");
	const struct directory stale = DIRECTORY("ring-ref=77",
	    "event-channel=78", "queue-0/ring-ref=20",
	    "queue-0/event-channel=21");
	struct message_connect c, other;

	(void)state;
	good(&three, 4, &c);
	assert_int_equal(c.nr_queues, 3);
	assert_int_equal(c.abi, RING_ABI_X86_32);
	assert_int_equal(c.ring[0].gref[0], 20);
	assert_int_equal(c.ring[2].gref[0], 24);
	assert_int_equal(c.ring[1].port, 23);
	other = c;
	assert_true(frontend_same(&c, &other));
	other.ring[2].port++;
	assert_false(frontend_same(&c, &other));
	other = c, other.nr_queues = 2;
	assert_false(frontend_same(&c, &other));

	good(&orders, 1, &c);
	assert_int_equal(c.nr_queues, 2);
	assert_int_equal(c.ring[1].order, 1);
	assert_int_equal(c.ring[1].gref[1], 23);
	good(&stale, 4, &c);
	assert_int_equal(c.nr_queues, 1);
	assert_int_equal(c.ring[0].port, 78);
}

static void
test_hostile_queues(void **state)
{
	const struct directory top = DIRECTORY("multi-queue-num-queues=2",
	    "ring-ref=20", "event-channel=21");
	const struct directory hole = DIRECTORY("multi-queue-num-queues=3",
	    "queue-0/ring-ref=20", "queue-0/event-channel=21",
	    "queue-2/ring-ref=24", "queue-2/event-channel=25");
	const struct directory portless = DIRECTORY("multi-queue-num-queues=2",
	    "queue-0/ring-ref=20", "queue-0/event-channel=21",
	    "queue-1/ring-ref=22");
	const struct directory port0 = DIRECTORY("multi-queue-num-queues=2",
	    "queue-0/ring-ref=20", "queue-0/event-channel=21",
	    "queue-1/ring-ref=22", "queue-1/event-channel=0");
	const struct directory same_page = DIRECTORY(
	    "multi-queue-num-queues=2", "ring-page-order=1",
	    "queue-0/ring-ref0=20", "queue-0/ring-ref1=21",
	    "queue-0/event-channel=21", "queue-1/ring-ref0=22",
	    "queue-1/ring-ref1=21", "queue-1/event-channel=23");
	const struct directory same_ring = DIRECTORY("ring-page-order=1",
	    "ring-ref0=20", "ring-ref1=20", "event-channel=21");
	const struct directory same_port = DIRECTORY(
	    "multi-queue-num-queues=3",
	    "queue-0/ring-ref=20", "queue-0/event-channel=21",
	    "queue-1/ring-ref=22", "queue-1/event-channel=23",
	    "queue-2/ring-ref=24", "queue-2/event-channel=21");
	const struct directory many = DIRECTORY(
	    "multi-queue-num-queues=4294967295");

	(void)state;
	bad(&top, "queue-0/ring-ref", "no ");
	bad(&hole, "queue-1/ring-ref", "no ");
	bad(&portless, "queue-1/event-channel", "no ");
	bad(&port0, "queue-1/event-channel", "\"0\"");
	bad(&same_page, "ring-ref 21", "two pages");
	bad(&same_ring, "ring-ref 20", "two pages");
	bad(&same_port, "event-channel 21", "queues 0 and 2");
	bad(&many, "multi-queue-num-queues", "from 1 to 4");
}

static int
broken_read(const struct frontend_reader *r, const char *name, char *buf,
    size_t size)
{
	(void)r, (void)name, (void)buf, (void)size;
	return -EIO;
}

static void
test_store_fails(void **state)
{
	const struct frontend_reader r = { broken_read };
	struct message_connect c;
	char why[WHY_MAX] = "";

	(void)state;
	assert_int_equal(frontend_read(&r, &all, &c, why), -EIO);
	assert_true(why[0] != '\0');
}

static void
test_same_ring(void **state)
{
	const struct directory d = DIRECTORY("ring-page-order=1",
	    "ring-ref0=1", "ring-ref1=2", "event-channel=9");
	struct message_connect a, b;

	(void)state;
	good(&d, 4, &a);
	b = a;
	b.ring[0].gref[2] = 99;		/* beyond the ring */
	assert_true(frontend_same(&a, &b));
	b.ring[0].gref[1] = 3;
	assert_false(frontend_same(&a, &b));
	b = a, b.ring[0].port++;
	assert_false(frontend_same(&a, &b));
	b = a, b.ring[0].order = 0;
	assert_false(frontend_same(&a, &b));
	b = a, b.abi = RING_ABI_X86_32;
	assert_false(frontend_same(&a, &b));
	/* What a page file that lies may say. */
	a.ring[0].order = b.ring[0].order = 4000000000u;
	assert_false(frontend_same(&a, &b));
}

/* ---- names of disks ------------------------------------------------------ */

static void
test_vdev(void **state)
{
	static const struct {
		const char *name;
		uint32_t    devid;
		const char *back;	/* NULL: the same */
	} good_names[] = {
		{ "xvda", 51712, NULL }, { "xvdb", 51728, NULL },
		{ "xvda1", 51713, NULL }, { "xvdp15", 51967, NULL },
		{ "xvda16", 1u << 28 | 16, NULL },
		{ "xvdq", 1u << 28 | 16 << 8, NULL },
		{ "xvdaa", 1u << 28 | 26 << 8, NULL },
		{ "xvdzz", 1u << 28 | 701 << 8, NULL },
		{ "xvdq255", 1u << 28 | 16 << 8 | 255, NULL },
		{ "d0", 51712, "xvda" }, { "d1p2", 51730, "xvdb2" },
		{ "d16", 1u << 28 | 16 << 8, "xvdq" },
		{ "d1048575p255", 1u << 28 | 0xfffffff, "xvdbgqcv255" },
		{ "sda", 2048, NULL }, { "sdp15", 2303, NULL },
		{ "hda", 768, NULL }, { "hdb63", 895, NULL },
		{ "hdc", 5632, NULL }, { "hdd1", 5697, NULL },
		{ "51712", 51712, "xvda" }, { "0xca00", 51712, "xvda" },
		{ "0", 0, "0" }, { "4294967295", UINT32_MAX, "4294967295" },
	};
	static const char *const bad_names[] = {
		"", "x", "xvd", "xvdA", "xvda0", "xvda01", "xvda256", "xvda-1",
		"xvda1x", "xvda 1", "sdq", "sda16", "hde", "hda64", "vda", "d",
		"dp1", "d1048576", "d0p256", "d1p", "d1p1x", "0x",
		"0x100000000", "0xg", "4294967296", "51712 ",
		"xvdzzzzzzzzzzzzzzzzz", "../xvda",
	};
	char name[VDEV_NAME_MAX];
	uint32_t devid;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(good_names) / sizeof(good_names[0]); i++) {
		assert_int_equal(vdev_parse(good_names[i].name, &devid), 0);
		assert_int_equal(devid, good_names[i].devid);
		vdev_name(devid, name);
		assert_string_equal(name, good_names[i].back != NULL ?
		    good_names[i].back : good_names[i].name);
	}
	for (i = 0; i < sizeof(bad_names) / sizeof(bad_names[0]); i++)
		assert_int_equal(vdev_parse(bad_names[i], &devid), -EINVAL);
}

/* Each name that we give leads back to its number. */
static void
test_vdev_round_trip(void **state)
{
	static const uint32_t from[] = {
		0, 760, 2040, 5620, 51700, 1u << 28, (1u << 29) - 3000,
	};
	char name[VDEV_NAME_MAX];
	uint32_t n, back;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(from) / sizeof(from[0]); i++) {
		for (n = from[i]; n < from[i] + 8000; n++) {
			vdev_name(n, name);
			assert_int_equal(vdev_parse(name, &back), 0);
			assert_int_equal(back, n);
		}
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_ids),
		cmocka_unit_test(test_backend_paths),
		cmocka_unit_test(test_ring_of_linux),
		cmocka_unit_test(test_persistent),
		cmocka_unit_test(test_ring_names),
		cmocka_unit_test(test_hostile_rings),
		cmocka_unit_test(test_order_offered),
		cmocka_unit_test(test_queues),
		cmocka_unit_test(test_hostile_queues),
		cmocka_unit_test(test_store_fails),
		cmocka_unit_test(test_same_ring),
		cmocka_unit_test(test_vdev),
		cmocka_unit_test(test_vdev_round_trip),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
