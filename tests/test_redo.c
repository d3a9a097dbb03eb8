/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Disk processes that die with something that is done but not in the image yet,
 * at times when no guest is connected: somebody has to bring the image up to
 * date.  Run by test_supervisor.sh.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "tests/supervisor_rig.h"

#define REDO "resume=3"

static void
kill_disk(struct rig *r)
{
	pid_t pid = disk_pid(r, XVDB);

	assert_true(pid > 1);
	assert_int_equal(kill(pid, SIGKILL), 0);
	UNTIL(disk_pid(r, XVDB) != pid);
}

/* By hand the image is active before the guest comes. */
static void
test_before_the_guest_comes(void **state)
{
	struct rig *r = *state;

	ask_ok(r, ATTACH_B("null:redo"));
	await_state(r, by_hand(XVDB), 2);
	kill_disk(r);
	await_told(r, XVDB, REDO, 1);
	fe_connect(r, "ringback", XVDB);
	assert_int_equal(told(r, XVDB, "CONNECT abi"), 1);
	assert_int_equal(told(r, XVDB, "OPEN"), 2);
}

/* A toolstack's is not: then there is nothing to do. */
static void
test_inactive(void **state)
{
	struct rig *r = *state;

	xl_attach(r, XVDB, "null:redo", OURS);
	answer_ok(xl_script(r, "add", XVDB));
	kill_disk(r);
	await_told(r, XVDB, "OPEN", 2);
	assert_int_equal(told(r, XVDB, "resume=0"), 2);
	fe_connect(r, "vbd", XVDB);
}

/* The guest lets go and comes again, as it does when it boots. */
static void
test_while_it_drains(void **state)
{
	struct rig *r = *state;

	xl_attach(r, XVDB, "null:redo+drainhang", OURS);
	answer_ok(xl_script(r, "add", XVDB));
	fe_connect(r, "vbd", XVDB);
	fe_state(r, XVDB, 6);
	await_told(r, XVDB, "DISCONNECT", 1);
	kill_disk(r);
	await_told(r, XVDB, REDO, 1);
	await_state(r, by_xl(XVDB), 6);
	fe_state(r, XVDB, 1);
	fe_connect(r, "vbd", XVDB);
	assert_int_equal(told(r, XVDB, "CONNECT abi"), 2);
}

/* The disk is taken away: whoever asked hears when the image is complete. */
static void
test_while_it_closes(void **state)
{
	struct rig *r = *state;
	int detach;

	attach_b(r, ATTACH_B("null:redo+closedie"));
	detach = ask(r, DETACH_B);
	await_state(r, by_hand(XVDB), 5);
	fe_state(r, XVDB, 6);
	answer_ok(detach);
	assert_int_equal(told(r, XVDB, REDO), 1);
	assert_int_equal(told(r, XVDB, "CLOSE"), 2);
	assert_int_equal(told(r, XVDB, "CONNECT abi"), 1);
	nothing_left(r);
}

/* By xl, where the directory may be gone by then. */
static void
test_while_it_is_destroyed(void **state)
{
	struct rig *r = *state;

	xl_attach(r, XVDB, "null:redo+closedie", OURS);
	answer_ok(xl_script(r, "add", XVDB));
	fe_connect(r, "vbd", XVDB);
	dir_remove(r, by_xl(XVDB));
	await_told(r, XVDB, "CLOSE", 2);
	assert_int_equal(told(r, XVDB, REDO), 1);
	UNTIL(rig_log_has(r, "vbd 7/51728: forgotten"));
	nothing_left(r);
}

/* One that dies of it each time does not do so for ever. */
static void
test_tries_are_counted(void **state)
{
	struct rig *r = *state;
	int detach;

	attach_b(r, ATTACH_B("null:redo+closedie+redodie"));
	detach = ask(r, DETACH_B);
	await_state(r, by_hand(XVDB), 5);
	fe_state(r, XVDB, 6);
	answer_ok(detach);
	assert_int_equal(told(r, XVDB, REDO), 3);
	assert_true(rig_log_has(r, "are lost"));
	nothing_left(r);

	ask_ok(r, ATTACH("xvdb", "null:redo+redodie", ", \"wait\": false"));
	await_state(r, by_hand(XVDB), 2);
	kill_disk(r);
	UNTIL(rig_log_lines(r, "are lost") == 2);
}

/* The supervisor is dead, too. */
static void
test_both_killed(void **state)
{
	struct rig *r = *state;
	pid_t pid;

	attach_b(r, ATTACH_B("null:redo"));
	fe_state(r, XVDB, 6);
	await_state(r, by_hand(XVDB), 6);
	pid = disk_pid(r, XVDB);
	rig_signal(r, SIGKILL);
	assert_int_equal(kill(pid, SIGKILL), 0);
	rig_start(r);
	await_told(r, XVDB, REDO, 1);
	fe_state(r, XVDB, 1);
	fe_connect(r, "ringback", XVDB);
	assert_int_equal(told(r, XVDB, "OPEN"), 2);
}

/* ... and the guest does not wait for the next ones. */
static void
test_both_killed_and_offered(void **state)
{
	struct rig *r = *state;
	pid_t pid;

	attach_b(r, ATTACH_B("null:redo"));
	fe_state(r, XVDB, 6);
	await_state(r, by_hand(XVDB), 6);
	pid = disk_pid(r, XVDB);
	rig_signal(r, SIGKILL);
	assert_int_equal(kill(pid, SIGKILL), 0);
	fe_state(r, XVDB, 1);
	rig_start(r);
	fe_connect(r, "ringback", XVDB);
	assert_int_equal(told(r, XVDB, REDO), 1);
	assert_int_equal(told(r, XVDB, "OPEN"), 2);
	assert_int_equal(told(r, XVDB, "CLOSE"), 0);
}

/* A connection that cannot be taken up is one thing, the image another. */
static void
test_connection_refused(void **state)
{
	struct rig *r = *state;

	attach_b(r, ATTACH_B("null:redo+noresume"));
	kill_disk(r);
	await_told(r, XVDB, "resume=1", 1);
	await_told(r, XVDB, REDO, 1);
	await_state(r, by_hand(XVDB), 5);
	fe_state(r, XVDB, 6);
	await_state(r, by_hand(XVDB), 6);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(test_before_the_guest_comes),
		RIG_TEST(test_inactive),
		RIG_TEST(test_while_it_drains),
		RIG_TEST(test_while_it_closes),
		RIG_TEST(test_while_it_is_destroyed),
		RIG_TEST(test_tries_are_counted),
		RIG_TEST(test_both_killed),
		RIG_TEST(test_both_killed_and_offered),
		RIG_TEST(test_connection_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
