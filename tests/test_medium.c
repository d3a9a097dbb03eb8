/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Drives whose medium is changed, by the supervisor: what it tells whom in
 * which order, and what becomes of a change when a medium cannot be opened, a
 * process dies, the supervisor itself dies, or the guest goes.  Run by
 * test_supervisor.sh.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/supervisor_rig.h"

#define CDROM(spec) ATTACH("xvdb", spec, ", \"wait\": false, \"cdrom\": true")
#define INSERT(spec) "{\"op\": \"insert\", \"domain\": \"web1\", " \
	"\"vdev\": \"xvdb\", \"spec\": \"" spec "\"}"
#define INSERT_1S(spec) "{\"op\": \"insert\", \"domain\": \"web1\", " \
	"\"vdev\": \"xvdb\", \"spec\": \"" spec "\", \"timeout\": 1}"
#define EJECT "{\"op\": \"eject\", \"domain\": \"7\", \"vdev\": \"xvdb\"}"

#define OLD "null:size=1048576"
#define NEW "null:size=2097152"

/* That medium, served, and told to the guest. */
static void
assert_medium(struct rig *r, const char *spec, const char *sectors)
{
	const char *be = by_hand(XVDB);
	json_t *list, *disk;

	UNTIL(node_is(r, be, "params", spec) &&
	    node_is(r, be, "sectors", sectors) &&
	    node_is(r, be, "media-change", ""));
	assert_int_equal(state_of(r, be), 4);
	disk = listed(r, XVDB, &list);
	assert_string_equal(json_string_value(json_object_get(disk, "spec")),
	    spec);
	assert_true(json_is_true(json_object_get(disk, "cdrom")));
	assert_true(json_is_true(json_object_get(disk, "readonly")));
	json_decref(list);
}

static void
kill_disk(struct rig *r)
{
	pid_t pid = disk_pid(r, XVDB);

	assert_true(pid > 1);
	assert_int_equal(kill(pid, SIGKILL), 0);
}

static void
test_insert(void **state)
{
	struct rig *r = *state;

	attach_b(r, CDROM(OLD));
	assert_node(r, by_hand(XVDB), "info", "7");
	assert_node(r, by_hand(XVDB), "device-type", "cdrom");
	assert_node(r, by_hand(XVDB), "removable", "1");
	assert_node(r, by_hand(XVDB), "mode", "r");
	assert_node(r, by_hand(XVDB), "feature-discard", "0");
	assert_node(r, fe_dir(XVDB), "device-type", "cdrom");
	assert_medium(r, OLD, "2048");

	ask_ok(r, INSERT(NEW));
	assert_medium(r, NEW, "4096");
	assert_node(r, by_hand(XVDB), "info", "7");
	assert_int_equal(told(r, XVDB, "readonly=1"), 2);
	assert_int_equal(told(r, XVDB, "resume=0"), 2);
	assert_int_equal(told(r, XVDB, "CLOSE"), 1);
	assert_int_equal(told(r, XVDB, "DISCONNECT"), 0);
	assert_int_equal(told(r, XVDB, "CONNECT abi=0 order=0 gref=8 last=8 "
	    "port=9"), 2);

	ask_ok(r, EJECT);
	assert_node(r, by_hand(XVDB), "params", "null:");
	ask_ok(r, EJECT);
	ask_ok(r, INSERT(OLD));
	assert_medium(r, OLD, "2048");
	ask_ok(r, INSERT(""));
	assert_node(r, by_hand(XVDB), "params", "");
	ask_ok(r, EJECT);
	ask_ok(r, INSERT(OLD));
	assert_medium(r, OLD, "2048");
	state_stays(r, by_hand(XVDB), 4);
}

static void
test_refused(void **state)
{
	struct rig *r = *state;

	attach_b(r, ATTACH_B(OLD));
	answer_error(ask(r, INSERT(NEW)), "a disk, not a CD-ROM drive");
	answer_error(ask(r, EJECT), "a disk, not a CD-ROM drive");
	answer_error(ask(r, ATTACH("xvdc", "raw:", "")), "no path");
	answer_error(ask(r, ATTACH("xvdc", "", "")), "no ':'");
	fe_state(r, XVDB, 6);
	ask_ok(r, DETACH_B);

	answer_error(ask(r, EJECT), "no disk xvdb");
	attach_b(r, CDROM(OLD));
	answer_error(ask(r, INSERT("nonsense")), "no ':'");
	answer_error(ask(r, INSERT("null,queues=2:x")), "queues=1");
	answer_error(ask(r, INSERT("null,segments=11:x")), "segments=256");
	answer_error(ask(r, INSERT("null,ring-order=1:x")), "ring-order=4");
	answer_error(ask(r, INSERT("null,grants=persistent:x")),
	    "grants=copy");
	assert_medium(r, OLD, "2048");
	assert_int_equal(told(r, XVDB, "CLOSE"), 1);
}

/* The first, of two at a time. */
static void
test_one_at_a_time(void **state)
{
	struct rig *r = *state;
	int insert;

	attach_b(r, CDROM("null:drainhang"));
	insert = ask(r, INSERT(NEW));
	await_told(r, XVDB, "CLOSE", 1);
	answer_error(ask(r, INSERT(OLD)), "already");
	answer_error(ask(r, EJECT), "already");
	let_go(r);
	answer_ok(insert);
	assert_medium(r, NEW, "4096");
}

/* The old one goes on, whatever is the matter with the new one. */
static void
test_cannot_be_opened(void **state)
{
	struct rig *r = *state;

	attach_b(r, CDROM(OLD));
	answer_error(ask(r, INSERT("null:noopen")), "No such file; make it; "
	    "the medium is what it was before");
	assert_medium(r, OLD, "2048");
	assert_int_equal(told(r, XVDB, "OPEN"), 3);
	answer_error(ask(r, INSERT("null:opendie")), "died");
	assert_medium(r, OLD, "2048");
	answer_error(ask(r, INSERT_1S("null:openhang")), "within 1 s");
	assert_medium(r, OLD, "2048");
	assert_int_equal(told(r, XVDB, "OPEN"), 7);
	assert_true(rig_log_has(r, "could not be opened in time"));
	ask_ok(r, INSERT(NEW));
	assert_medium(r, NEW, "4096");
}

static void
test_neither_can_be_opened(void **state)
{
	struct rig *r = *state;

	attach_b(r, CDROM("null:openonce"));
	answer_error(ask(r, INSERT("null:noopen")), "it is empty");
	assert_node(r, by_hand(XVDB), "params", "null:");
	ask_ok(r, INSERT(NEW));
	assert_medium(r, NEW, "4096");
}

/* It is succeeded on its own medium, and that one told to close. */
static void
test_dies_while_it_drains(void **state)
{
	struct rig *r = *state;
	int insert;

	attach_b(r, CDROM("null:drainhang"));
	insert = ask(r, INSERT(NEW));
	await_told(r, XVDB, "CLOSE", 1);
	kill_disk(r);
	await_told(r, XVDB, "resume=1", 1);
	await_told(r, XVDB, "CLOSE", 2);
	assert_int_equal(told(r, XVDB, "spec=null:drainhang"), 2);
	let_go(r);
	answer_ok(insert);
	assert_medium(r, NEW, "4096");
	assert_int_equal(told(r, XVDB, "CONNECT abi"), 3);
}

/* Each time: that is given up as ever. */
static void
test_dies_whenever_it_drains(void **state)
{
	struct rig *r = *state;

	attach_b(r, CDROM("null:closedie"));
	answer_error(ask(r, INSERT(NEW)), "3 disk processes died");
	await_state(r, by_hand(XVDB), 5);
	assert_node(r, by_hand(XVDB), "media-change", "");
	assert_int_equal(told(r, XVDB, "resume=2"), 1);
}

/* The new one has the ring, but the guest has not been told. */
static void
test_new_one_dies(void **state)
{
	struct rig *r = *state;
	int insert;

	attach_b(r, CDROM(OLD));
	insert = ask(r, INSERT("null:connecthang+size=2097152"));
	await_told(r, XVDB, "CONNECT abi", 2);
	kill_disk(r);
	let_go(r);
	answer_error(insert, "died");
	assert_medium(r, OLD, "2048");
	ask_ok(r, INSERT(NEW));
	kill_disk(r);
	await_told(r, XVDB, "resume=1", 1);
	assert_medium(r, NEW, "4096");
}

/* ---- the supervisor dies ------------------------------------------------- */

static void
test_killed_while_it_drains(void **state)
{
	struct rig *r = *state;

	attach_b(r, CDROM("null:drainhang+size=1048576"));
	ask(r, INSERT(NEW));
	await_told(r, XVDB, "CLOSE", 1);
	rig_signal(r, SIGKILL);
	rig_start(r);
	state_stays(r, by_hand(XVDB), 4);
	let_go(r);
	assert_medium(r, "null:drainhang+size=1048576", "2048");
	assert_int_equal(told(r, XVDB, "resume=1"), 0);
	assert_int_equal(told(r, XVDB, "CONNECT abi"), 2);
	ask_ok(r, INSERT(NEW));
	assert_medium(r, NEW, "4096");
}

/* ... and the process with it: what was in flight is taken up. */
static void
test_both_killed_while_it_drains(void **state)
{
	struct rig *r = *state;
	pid_t pid;

	attach_b(r, CDROM("null:drainhang+size=1048576"));
	pid = disk_pid(r, XVDB);
	ask(r, INSERT(NEW));
	await_told(r, XVDB, "CLOSE", 1);
	rig_signal(r, SIGKILL);
	assert_int_equal(kill(pid, SIGKILL), 0);
	rig_start(r);
	await_told(r, XVDB, "resume=1", 1);
	assert_medium(r, "null:drainhang+size=1048576", "2048");
	let_go(r);
	ask_ok(r, INSERT(NEW));
	assert_medium(r, NEW, "4096");
}

/* Nobody is connected then; with the marker gone, the disk would be closed. */
static void
killed_at(struct rig *r, const char *question, const char *what, unsigned n,
    bool both)
{
	pid_t pid;

	attach_b(r, CDROM(OLD));
	ask(r, question);
	await_told(r, XVDB, what, n);
	pid = disk_pid(r, XVDB);
	rig_signal(r, SIGKILL);
	if (both)
		assert_int_equal(kill(pid, SIGKILL), 0);
	rig_start(r);
	let_go(r);
}

static void
test_killed_while_the_new_one_opens(void **state)
{
	killed_at(*state, INSERT("null:openhang+size=2097152"), "OPEN", 2,
	    false);
	assert_medium(*state, "null:openhang+size=2097152", "4096");
}

static void
test_both_killed_while_the_new_one_opens(void **state)
{
	killed_at(*state, INSERT("null:openhang+size=2097152"), "OPEN", 2,
	    true);
	assert_medium(*state, "null:openhang+size=2097152", "4096");
}

static void
test_killed_while_a_bad_one_opens(void **state)
{
	killed_at(*state, INSERT("null:openhang+noopen"), "OPEN", 2, false);
	assert_medium(*state, OLD, "2048");
	assert_true(rig_log_has(*state, "was being changed"));
}

/*
 * A medium that is as large as the old one is another all the same: the guest
 * has to be told of it, once by each supervisor that connects.
 */
static void
test_killed_while_the_new_one_connects(void **state)
{
	struct rig *r = *state;

	killed_at(r, INSERT("null:connecthang+size=1048576"), "CONNECT abi", 2,
	    false);
	assert_medium(r, "null:connecthang+size=1048576", "2048");
	assert_int_equal(rig_log_lines(r, "Connected: publish"), 1);
}

/* The ring is the new one's already when that dies as well. */
static void
test_both_killed_when_the_new_one_has_connected(void **state)
{
	struct rig *r = *state;
	pid_t pid;

	attach_b(r, CDROM(OLD));
	ask(r, INSERT("null:connecthang+size=1048576"));
	await_told(r, XVDB, "CONNECT abi", 2);
	pid = disk_pid(r, XVDB);
	rig_signal(r, SIGKILL);
	let_go(r);
	await_told(r, XVDB, "end of file", 1);
	assert_int_equal(kill(pid, SIGKILL), 0);
	rig_start(r);
	await_told(r, XVDB, "resume=1", 1);
	assert_medium(r, "null:connecthang+size=1048576", "2048");
	assert_int_equal(rig_log_lines(r, "Connected: publish"), 1);
}

/* ---- the guest ----------------------------------------------------------- */

static void
test_before_the_guest_comes(void **state)
{
	struct rig *r = *state;

	ask_ok(r, CDROM(OLD));
	await_state(r, by_hand(XVDB), 2);
	ask_ok(r, INSERT(NEW));
	answer_error(ask(r, INSERT("null:noopen")), "what it was before");
	fe_connect(r, "ringback", XVDB);
	assert_medium(r, NEW, "4096");
	fe_state(r, XVDB, 6);
	await_state(r, by_hand(XVDB), 6);
	ask_ok(r, INSERT(OLD));
	fe_state(r, XVDB, 1);
	fe_connect(r, "ringback", XVDB);
	assert_medium(r, OLD, "2048");
}

static void
test_guest_closes_meanwhile(void **state)
{
	struct rig *r = *state;
	int insert;

	attach_b(r, CDROM("null:drainhang"));
	insert = ask(r, INSERT(NEW));
	await_told(r, XVDB, "CLOSE", 1);
	fe_state(r, XVDB, 5);
	state_stays(r, by_hand(XVDB), 4);
	let_go(r);
	await_state(r, by_hand(XVDB), 5);
	answer_ok(insert);
	assert_node(r, by_hand(XVDB), "media-change", "");
	fe_state(r, XVDB, 6);
	await_state(r, by_hand(XVDB), 6);
	fe_state(r, XVDB, 1);
	fe_connect(r, "ringback", XVDB);
	assert_medium(r, NEW, "4096");
}

static void
test_detached_meanwhile(void **state)
{
	struct rig *r = *state;
	int insert, detach;

	attach_b(r, CDROM("null:drainhang"));
	insert = ask(r, INSERT(NEW));
	await_told(r, XVDB, "CLOSE", 1);
	detach = ask(r, DETACH_B);
	fe_state(r, XVDB, 6);
	let_go(r);
	answer_error(insert, "removed");
	answer_ok(detach);
	nothing_left(r);
}

/* ---- xl's ---------------------------------------------------------------- */

static void
test_mode(void **state)
{
	struct rig *r = *state;
	static const char *const modes[][2] = {
		{ "w!", "0" }, { "w", "0" }, { "r", "4" },
	};
	size_t i;

	for (i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		r->mode = modes[i][0];
		xl_attach(r, XVDB, OLD, OURS);
		answer_ok(xl_script(r, "add", XVDB));
		fe_connect(r, "vbd", XVDB);
		assert_node(r, by_xl(XVDB), "info", modes[i][1]);
		xl_destroy(r, XVDB);
		await_state(r, by_xl(XVDB), 6);
		answer_ok(xl_script(r, "remove", XVDB));
		xl_remove(r, XVDB);
		await_gone(r, by_xl(XVDB));
		UNTIL(disk_pid(r, XVDB) == 0);
	}
}

static const char *
persistent(struct rig *r, const char *spec, const char *safe)
{
	bool offered;

	r->direct_safe = safe;
	xl_attach(r, XVDB, spec, OURS);
	await_state(r, by_xl(XVDB), 2);
	offered = node_is(r, by_xl(XVDB), "feature-persistent", "1");
	xl_destroy(r, XVDB);
	await_state(r, by_xl(XVDB), 6);
	xl_remove(r, XVDB);
	UNTIL(disk_pid(r, XVDB) == 0);
	return offered ? "offered" : "not offered";
}

/* Pages of the guest in the hands of the storage: only where that is safe. */
static void
test_direct_io_safe(void **state)
{
	struct rig *r = *state;

	assert_string_equal(persistent(r, "null,grants=persistent:x", NULL),
	    "not offered");
	assert_int_equal(rig_log_lines(r, "grants=persistent is overridden"),
	    1);
	assert_string_equal(persistent(r, "null,grants=persistent:x", "0"),
	    "not offered");
	assert_int_equal(rig_log_lines(r, "grants=persistent is overridden"),
	    2);
	assert_string_equal(persistent(r, "null,grants=persistent:x", "1"),
	    "offered");
	assert_string_equal(persistent(r, "null,cache=writeback:x", NULL),
	    "offered");
	assert_string_equal(persistent(r, "null:x", "1"), "not offered");
	assert_int_equal(rig_log_lines(r, "grants=persistent is overridden"),
	    2);
	ask_ok(r, ATTACH_B("null,grants=persistent:x"));
	await_state(r, by_hand(XVDB), 2);
	assert_node(r, by_hand(XVDB), "feature-persistent", "1");
}

/* Without a medium, as libxl writes it, whatever it says of the mode. */
static void
test_empty_drive(void **state)
{
	struct rig *r = *state;

	r->type = "cdrom";
	xl_attach(r, XVDB, "", OURS);
	answer_ok(xl_script(r, "add", XVDB));
	fe_connect(r, "vbd", XVDB);
	assert_node(r, by_xl(XVDB), "info", "7");
	assert_int_equal(told(r, XVDB, "readonly=1"), 1);
	ask_ok(r, INSERT(NEW));
	assert_node(r, by_xl(XVDB), "sectors", "4096");
	assert_int_equal(told(r, XVDB, "activate=1"), 1);
	ask_ok(r, EJECT);
	assert_node(r, by_xl(XVDB), "params", "null:");

	r->type = "disk";
	xl_attach(r, XVDC, "raw:", OURS);
	answer_error(xl_script(r, "add", XVDC), "no path");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(test_insert),
		RIG_TEST(test_refused),
		RIG_TEST(test_one_at_a_time),
		RIG_TEST(test_cannot_be_opened),
		RIG_TEST(test_neither_can_be_opened),
		RIG_TEST(test_dies_while_it_drains),
		RIG_TEST(test_dies_whenever_it_drains),
		RIG_TEST(test_new_one_dies),
		RIG_TEST(test_killed_while_it_drains),
		RIG_TEST(test_both_killed_while_it_drains),
		RIG_TEST(test_killed_while_the_new_one_opens),
		RIG_TEST(test_both_killed_while_the_new_one_opens),
		RIG_TEST(test_killed_while_a_bad_one_opens),
		RIG_TEST(test_killed_while_the_new_one_connects),
		RIG_TEST(test_both_killed_when_the_new_one_has_connected),
		RIG_TEST(test_before_the_guest_comes),
		RIG_TEST(test_guest_closes_meanwhile),
		RIG_TEST(test_detached_meanwhile),
		RIG_TEST(test_mode),
		RIG_TEST(test_direct_io_safe),
		RIG_TEST(test_empty_drive),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
