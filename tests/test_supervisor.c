/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The supervisor in all its passages: attached by hand and by xl, guests that
 * boot, close, reboot, crash and misbehave, disk processes that hang and die.
 * Run by test_supervisor.sh.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/loopxen/guest.h"
#include "tests/supervisor_rig.h"

/* ---- by hand ------------------------------------------------------------- */

/* Root's alone. */
static void
assert_private(struct rig *r, const char *file)
{
	char path[160];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s", r->dir, file);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 077, 0);
}

static void
assert_listed(struct rig *r)
{
	static const char *const texts[][2] = {
		{ "domain", "web1" }, { "vdev", "xvdb" },
		{ "kind", "ringback" }, { "state", "Connected" },
		{ "frontend-state", "Connected" },
		{ "spec", "null:size=1048576" },
	};
	json_t *list, *disk = listed(r, XVDB, &list);
	size_t i;

	for (i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		assert_string_equal(json_string_value(json_object_get(disk,
		    texts[i][0])), texts[i][1]);
	assert_int_equal(json_integer_value(json_object_get(disk, "size")),
	    1048576);
	assert_int_equal(json_integer_value(json_object_get(disk, "domid")), 7);
	assert_true(json_is_false(json_object_get(disk, "readonly")));
	assert_true(json_is_null(json_object_get(disk, "error")));
	json_decref(list);
}

static void
test_attach_and_detach(void **state)
{
	struct rig *r = *state;
	int attach, detach;
	char path[160];

	attach = ask(r, ATTACH("xvdb", "null:size=1048576", ""));
	await_state(r, by_hand(XVDB), 2);
	assert_node(r, by_hand(XVDB), "max-ring-page-order", "4");
	assert_node(r, by_hand(XVDB), "max-ring-pages", "16");
	assert_node(r, by_hand(XVDB), "feature-flush-cache", "1");
	assert_node(r, by_hand(XVDB), "feature-max-indirect-segments", "256");
	assert_node(r, by_hand(XVDB), "feature-persistent", "0");
	assert_node(r, by_hand(XVDB), "multi-queue-max-queues", "1");
	assert_node(r, by_hand(XVDB), "feature-barrier", "1");
	assert_node(r, by_hand(XVDB), "sectors", NULL);
	assert_node(r, by_hand(XVDB), "frontend", fe_dir(XVDB));
	assert_node(r, by_hand(XVDB), "params", "null:size=1048576");
	assert_node(r, fe_dir(XVDB), "backend", by_hand(XVDB));
	assert_node(r, fe_dir(XVDB), "virtual-device", "51728");
	assert_node(r, fe_dir(XVDB), "protocol", NULL);
	assert_permissions(r, by_hand(XVDB), 0, DOMID);
	assert_permissions(r, fe_dir(XVDB), DOMID, 0);
	snprintf(path, sizeof(path), "%s/state", fe_dir(XVDB));
	assert_permissions(r, path, DOMID, 0);
	assert_int_equal(told(r, XVDB, "activate=1 discard=1 resume=0 "
	    "uid=70000 uuid=0-1-2-3"), 1);

	fe_connect(r, "ringback", XVDB);
	answer_ok(attach);
	assert_node(r, by_hand(XVDB), "sectors", "2048");
	assert_node(r, by_hand(XVDB), "sector-size", "512");
	assert_node(r, by_hand(XVDB), "physical-sector-size", "4096");
	assert_node(r, by_hand(XVDB), "info", "0");
	assert_int_equal(told(r, XVDB, "CONNECT abi=0 order=0 gref=8 last=8 "
	    "port=9"), 1);
	assert_int_equal(told(r, XVDB, "is open"), 0);
	assert_private(r, "control");
	assert_private(r, "lock");
	assert_private(r, "7-51728.sock");
	assert_int_equal(told(r, XVDB, "not a process group"), 0);
	assert_int_equal(told(r, XVDB, "NOTIFY_SOCKET"), 0);

	assert_listed(r);

	detach = ask(r, DETACH_B);
	await_state(r, by_hand(XVDB), 5);
	assert_node(r, by_hand(XVDB), "online", "0");
	state_stays(r, by_hand(XVDB), 5);
	assert_int_equal(told(r, XVDB, "DISCONNECT"), 0);
	fe_state(r, XVDB, 6);
	answer_ok(detach);
	assert_int_equal(told(r, XVDB, "DISCONNECT"), 1);
	assert_int_equal(told(r, XVDB, "CLOSE"), 1);
	assert_false(node_exists(r, fe_dir(XVDB)));
	assert_false(node_exists(r, "/local/domain/7/device/vbd"));
	assert_false(node_exists(r, "/local/domain/0/backend/ringback"));
	nothing_left(r);
	rig_notified(r, "READY=1");
	rig_signal(r, SIGTERM);
	rig_notified(r, "STOPPING=1");
}

/* The guest's firmware, then its kernel with another ring, then it reboots. */
static void
test_boot(void **state)
{
	struct rig *r = *state;

	ask_ok(r, ATTACH_B("null:ok"));
	fe_ring(r, XVDB, 10, 11);
	fe_state(r, XVDB, 4);			/* before we are at InitWait? */
	await_state(r, by_hand(XVDB), 4);
	fe_state(r, XVDB, 5);
	await_state(r, by_hand(XVDB), 5);
	assert_int_equal(told(r, XVDB, "DISCONNECT"), 0);
	fe_state(r, XVDB, 6);
	await_state(r, by_hand(XVDB), 6);
	assert_int_equal(told(r, XVDB, "DISCONNECT"), 1);
	fe_state(r, XVDB, 1);
	await_state(r, by_hand(XVDB), 2);

	node_write(r, fe_dir(XVDB), "ring-page-order", "1");
	node_write(r, fe_dir(XVDB), "ring-ref0", "20");
	node_write(r, fe_dir(XVDB), "ring-ref1", "21");
	node_write(r, fe_dir(XVDB), "event-channel", "22");
	node_write(r, fe_dir(XVDB), "protocol", "x86_32-abi");
	fe_state(r, XVDB, 3);
	await_state(r, by_hand(XVDB), 4);
	assert_int_equal(told(r, XVDB, "CONNECT abi=2 order=1 gref=20 last=21 "
	    "port=22"), 1);
	fe_state(r, XVDB, 4);

	/* kexec: a new kernel without a word */
	fe_state(r, XVDB, 1);
	await_state(r, by_hand(XVDB), 2);
	assert_int_equal(told(r, XVDB, "DISCONNECT"), 2);
	/* closes without the step in between */
	fe_state(r, XVDB, 3);
	await_state(r, by_hand(XVDB), 4);
	fe_state(r, XVDB, 6);
	await_state(r, by_hand(XVDB), 6);
	state_stays(r, by_hand(XVDB), 6);
	assert_int_equal(told(r, XVDB, "OPEN"), 1);
	assert_int_equal(told(r, XVDB, "CLOSE"), 0);
}

static void
test_ring_shown_again(void **state)
{
	struct rig *r = *state;

	attach_b(r, ATTACH_B("null:ok"));
	fe_state(r, XVDB, 3);
	state_stays(r, by_hand(XVDB), 4);
	assert_int_equal(told(r, XVDB, "CONNECT abi"), 1);
	node_write(r, fe_dir(XVDB), "ring-ref", "30");
	fe_state(r, XVDB, 3);
	await_told(r, XVDB, "CONNECT abi=0 order=0 gref=30", 1);
	assert_int_equal(told(r, XVDB, "DISCONNECT"), 1);
	state_stays(r, by_hand(XVDB), 4);
}

static void
test_attach_refused(void **state)
{
	struct rig *r = *state;

	answer_error(ask(r, ATTACH("xvdb", "null:noopen", "")),
	    "No such file; make it");
	answer_error(ask(r, ATTACH("xvdb", "nonsense", "")), "");
	answer_error(ask(r, ATTACH("xyz", "null:ok", "")), "xyz");
	answer_error(ask(r, "{\"op\": \"attach\", \"domain\": \"web2\", "
	    "\"vdev\": \"xvdb\", \"spec\": \"null:ok\"}"), "web2");
	answer_error(ask(r, "{\"op\": \"attach\", \"domain\": \"8\", "
	    "\"vdev\": \"xvdb\", \"spec\": \"null:ok\"}"), "domain 8");
	answer_error(ask(r, ATTACH("xvdb", "null:opendie", "")), "died");
	answer_error(ask(r, ATTACH("xvdb", "null:openhang",
	    ", \"timeout\": 1")), "longer than 1 s");
	nothing_left(r);
	assert_false(node_exists(r, "/local/domain/7/device"));
	assert_false(node_exists(r, "/local/domain/0/backend"));

	node_write(r, fe_dir(XVDC), "backend", "elsewhere");
	answer_error(ask(r, ATTACH("xvdc", "null:ok", "")), "another backend");
	attach_b(r, ATTACH_B("null:ok"));
	answer_error(ask(r, ATTACH("xvdb", "null:ok", "")), "already");
	assert_int_equal(state_of(r, by_hand(XVDB)), 4);
}

static void
test_readonly(void **state)
{
	struct rig *r = *state;

	attach_b(r, ATTACH("xvdb", "null:ok", ", \"readonly\": true, "
	    "\"wait\": false"));
	assert_node(r, by_hand(XVDB), "mode", "r");
	assert_node(r, by_hand(XVDB), "info", "4");
	assert_node(r, by_hand(XVDB), "feature-flush-cache", "0");
	assert_node(r, by_hand(XVDB), "feature-barrier", "0");
	assert_node(r, by_hand(XVDB), "feature-discard", "0");
	assert_int_equal(told(r, XVDB, "OPEN readonly=1"), 1);
}

static void
test_guest_comes_late(void **state)
{
	struct rig *r = *state;

	answer_error(ask(r, ATTACH("xvdb", "null:ok", ", \"timeout\": 1")),
	    "Initialising");
	fe_connect(r, "ringback", XVDB);
	answer_error(ask(r, DETACH_B_1S), "still uses");
	state_stays(r, by_hand(XVDB), 5);
	assert_int_equal(told(r, XVDB, "DISCONNECT"), 0);
	fe_state(r, XVDB, 6);
	await_gone(r, by_hand(XVDB));
	nothing_left(r);
}

static void
test_detach_before_the_guest_comes(void **state)
{
	struct rig *r = *state;

	ask_ok(r, ATTACH_B("null:ok"));
	await_state(r, by_hand(XVDB), 2);
	ask_ok(r, DETACH_B);
	assert_false(node_exists(r, by_hand(XVDB)));
	answer_error(ask(r, DETACH_B), "no disk xvdb");
	nothing_left(r);
}

/* A directory made for it now would stay for ever. */
static void
test_domain_ends_during_attach(void **state)
{
	struct rig *r = *state;
	int attach;

	attach = ask(r, ATTACH("xvdb", "null:openhang", ""));
	await_told(r, XVDB, "OPEN", 1);
	rig_end_domain(r);
	let_go(r);
	answer_error(attach, "has ended meanwhile");
	assert_false(node_exists(r, "/local/domain/7"));
	assert_false(node_exists(r, "/local/domain/0/backend"));
	nothing_left(r);
}

/* Xen says so before anybody has cleaned up. */
static void
test_domain_dies_first(void **state)
{
	struct rig *r = *state;

	attach_b(r, ATTACH_B("null:ok"));
	xl_attach(r, XVDA, "null:ok", OURS);
	answer_ok(xl_script(r, "add", XVDA));
	fe_connect(r, "vbd", XVDA);
	assert_int_equal(loopguest_release(r->guest, r->xs), 0);
	await_state(r, by_xl(XVDA), 6);
	assert_int_equal(told(r, XVDA, "DISCONNECT"), 1);
	assert_int_equal(state_of(r, fe_dir(XVDA)), 4);
	await_gone(r, by_hand(XVDB));
	assert_false(node_exists(r, fe_dir(XVDB)));
	assert_int_equal(loopguest_introduce(r->guest, r->xs), 0);
}

static void
test_domain_ends(void **state)
{
	struct rig *r = *state;

	attach_b(r, ATTACH_B("null:ok"));
	ask_ok(r, ATTACH("xvdc", "null:ok", ", \"wait\": false"));
	rig_end_domain(r);
	await_gone(r, by_hand(XVDB));
	await_gone(r, "/local/domain/0/backend/ringback");
	nothing_left(r);
	assert_false(node_exists(r, "/local/domain/7"));
	assert_int_equal(told(r, XVDB, "DISCONNECT"), 1);
	assert_int_equal(told(r, XVDB, "CLOSE"), 1);
}

/* ---- by xl --------------------------------------------------------------- */

static void
test_xl(void **state)
{
	struct rig *r = *state;
	int add;

	xl_attach(r, XVDA, "null:ok", OURS);
	await_state(r, by_xl(XVDA), 2);
	assert_node(r, by_xl(XVDA), "max-ring-page-order", "4");
	assert_node(r, by_xl(XVDA), "feature-max-indirect-segments", "256");
	/* A fast guest, and xl has not run the script yet. */
	fe_ring(r, XVDA, 8, 9);
	fe_state(r, XVDA, 3);
	state_stays(r, by_xl(XVDA), 2);
	assert_int_equal(told(r, XVDA, "CONNECT abi"), 0);
	add = xl_script(r, "add", XVDA);
	answer_ok(add);
	assert_node(r, by_xl(XVDA), "hotplug-status", "connected");
	await_state(r, by_xl(XVDA), 4);
	fe_state(r, XVDA, 4);
	assert_int_equal(told(r, XVDA, "OPEN readonly=0 activate=0"), 1);
	answer_error(ask(r, "{\"op\": \"detach\", \"domain\": \"7\", "
	    "\"vdev\": \"xvda\"}"), "xl block-detach 7 xvda");

	xl_detach(r, XVDA);
	state_stays(r, by_xl(XVDA), 5);
	fe_state(r, XVDA, 6);
	await_state(r, by_xl(XVDA), 6);
	answer_ok(xl_script(r, "remove", XVDA));
	nothing_left(r);
	xl_remove(r, XVDA);
	answer_ok(xl_script(r, "remove", XVDA));
	rig_pause(50);
	assert_false(node_exists(r, by_xl(XVDA)));
	assert_true(rig_log_has(r, "vbd 7/51712: forgotten"));
}

static void
test_xl_readonly(void **state)
{
	struct rig *r = *state;

	r->mode = "r";
	xl_attach(r, XVDA, "null:ok", OURS);
	await_state(r, by_xl(XVDA), 2);
	assert_node(r, by_xl(XVDA), "feature-flush-cache", "0");
	answer_ok(xl_script(r, "add", XVDA));
	fe_connect(r, "vbd", XVDA);
	assert_node(r, by_xl(XVDA), "info", "4");
	assert_int_equal(told(r, XVDA, "OPEN readonly=1"), 1);
}

/* The order of xl shutdown, then of xl destroy. */
static void
test_xl_shutdown_and_destroy(void **state)
{
	struct rig *r = *state;

	xl_attach(r, XVDA, "null:ok", OURS);
	answer_ok(xl_script(r, "add", XVDA));
	fe_connect(r, "vbd", XVDA);
	fe_state(r, XVDA, 5);
	await_state(r, by_xl(XVDA), 5);
	fe_state(r, XVDA, 6);
	await_state(r, by_xl(XVDA), 6);
	xl_destroy(r, XVDA);
	answer_ok(xl_script(r, "remove", XVDA));
	assert_int_equal(state_of(r, by_xl(XVDA)), 6);
	xl_remove(r, XVDA);

	xl_attach(r, XVDB, "null:ok", OURS);
	answer_ok(xl_script(r, "add", XVDB));
	fe_connect(r, "vbd", XVDB);
	xl_destroy(r, XVDB);
	await_state(r, by_xl(XVDB), 6);
	assert_int_equal(told(r, XVDB, "DISCONNECT"), 1);
	answer_ok(xl_script(r, "remove", XVDB));
	xl_remove(r, XVDB);
	nothing_left(r);
}

static void
test_xl_bad_image(void **state)
{
	struct rig *r = *state;

	xl_attach(r, XVDA, "null:noopen", OURS);
	await_state(r, by_xl(XVDA), 2);
	state_stays(r, by_xl(XVDA), 2);
	answer_error(xl_script(r, "add", XVDA), "No such file; make it");
	assert_node(r, by_xl(XVDA), "hotplug-status", "error");
	assert_node(r, by_xl(XVDA), "hotplug-error",
	    "open a.img: No such file; make it");
	await_state(r, by_xl(XVDA), 6);
	xl_detach(r, XVDA);
	answer_ok(xl_script(r, "remove", XVDA));
	xl_remove(r, XVDA);

	xl_attach(r, XVDB, "qcow9:/x", OURS);
	await_state(r, by_xl(XVDB), 2);
	answer_error(xl_script(r, "add", XVDB), "qcow9");
	await_state(r, by_xl(XVDB), 6);
	assert_int_equal(told(r, XVDB, "OPEN"), 0);
}

/* The script may be faster than our watch. */
static void
test_script_at_once(void **state)
{
	struct rig *r = *state;
	int i;

	for (i = 0; i < 20; i++) {
		xl_attach(r, XVDA, "null:ok", OURS);
		answer_ok(xl_script(r, "add", XVDA));
		xl_detach(r, XVDA);
		await_state(r, by_xl(XVDA), 6);
		answer_ok(xl_script(r, "remove", XVDA));
		xl_remove(r, XVDA);
	}
	answer_error(xl_script(r, "add", XVDC), "51744");
	answer_ok(xl_script(r, "remove", XVDC));
	answer_error(ask(r, "{\"op\": \"hotplug\", \"action\": \"add\", "
	    "\"backend\": \"backend/ringback/7/51712\"}"), "kind");
	answer_error(ask(r, "{\"op\": \"hotplug\", \"action\": \"add\", "
	    "\"backend\": \"backend/vbd/7\"}"), "of the form");
	nothing_left(r);
}

static void
test_other_backends(void **state)
{
	struct rig *r = *state;

	xl_attach(r, XVDA, "/dev/vg/lv", "/etc/xen/scripts/block");
	xl_attach(r, XVDB, "null:ok", "/etc/xen/scripts/block-ringback-not");
	xl_attach(r, XVDC, "null:ok", OURS);
	await_state(r, by_xl(XVDC), 2);
	assert_int_equal(state_of(r, by_xl(XVDA)), 1);
	assert_int_equal(state_of(r, by_xl(XVDB)), 1);
	assert_node(r, by_xl(XVDA), "max-ring-page-order", NULL);
	answer_error(xl_script(r, "add", XVDA), "another backend");
	assert_int_equal(told(r, XVDA, "OPEN"), 0);
}

/* A backend directory that points somewhere else is not served. */
static void
test_forged_frontend(void **state)
{
	struct rig *r = *state;

	node_write(r, by_xl(XVDA), "script", OURS);
	node_write(r, by_xl(XVDA), "frontend", "/local/domain/8/device/vbd/1");
	node_write(r, by_xl(XVDA), "frontend-id", "7");
	node_write(r, by_xl(XVDA), "params", "null:ok");
	node_write(r, by_xl(XVDA), "mode", "w");
	node_write(r, by_xl(XVDA), "state", "1");
	answer_error(xl_script(r, "add", XVDA), "/local/domain/8/device/vbd/1");
	node_write(r, by_xl(XVDA), "frontend-id", "8");
	node_write(r, by_xl(XVDA), "frontend", fe_dir(XVDA));
	answer_error(xl_script(r, "add", XVDA), "frontend-id is 8, not 7");
	assert_int_equal(state_of(r, by_xl(XVDA)), 1);
	assert_int_equal(told(r, XVDA, "OPEN"), 0);
}

static void
test_lock_is_waited_for(void **state)
{
	struct rig *r = *state;
	int64_t began;

	xl_attach(r, XVDA, "null:lock=9", OURS);
	answer_ok(xl_script(r, "add", XVDA));
	fe_ring(r, XVDA, 8, 9);
	began = rig_now_ms();
	fe_state(r, XVDA, 3);
	UNTIL(list_error_has(r, XVDA, "another process has the lock"));
	await_state(r, by_xl(XVDA), 4);
	assert_int_equal(told(r, XVDA, "CONNECT abi"), 10);
	/* A guest that has been migrated stands still meanwhile. */
	assert_true(rig_now_ms() - began < 3000);
	assert_false(list_error_has(r, XVDA, "lock"));

	/* A guest that goes away stops the waiting. */
	xl_attach(r, XVDB, "null:lock=1000", OURS);
	answer_ok(xl_script(r, "add", XVDB));
	fe_ring(r, XVDB, 8, 9);
	fe_state(r, XVDB, 3);
	UNTIL(list_error_has(r, XVDB, "another process has the lock"));
	fe_state(r, XVDB, 6);
	xl_detach(r, XVDB);
	await_state(r, by_xl(XVDB), 6);
	assert_int_equal(told(r, XVDB, "DISCONNECT"), 0);
	answer_ok(xl_script(r, "remove", XVDB));
}

/* ---- guests that misbehave ----------------------------------------------- */

static void
test_junk_from_the_guest(void **state)
{
	struct rig *r = *state;
	int i;

	ask_ok(r, ATTACH_B("null:ok"));
	await_state(r, by_hand(XVDB), 2);
	fe_ring(r, XVDB, 8, 9);
	node_write(r, fe_dir(XVDB), "ring-page-order", "17");
	for (i = 0; i < 40; i++) {
		fe_state(r, XVDB, 3);
		await_state(r, by_hand(XVDB), 5);
		fe_state(r, XVDB, 6);
		await_state(r, by_hand(XVDB), 6);
		fe_state(r, XVDB, 1);
		await_state(r, by_hand(XVDB), 2);
	}
	assert_true(list_error_has(r, XVDB, "ring-page-order is \"17\""));
	assert_int_equal(rig_log_lines(r, "cannot connect"), 10);
	assert_int_equal(told(r, XVDB, "CONNECT abi"), 0);

	node_write(r, fe_dir(XVDB), "ring-page-order", "0");
	fe_connect(r, "ringback", XVDB);
	node_write(r, fe_dir(XVDB), "state", "banana");
	await_state(r, by_hand(XVDB), 6);
	fe_state(r, XVDB, 8);
	state_stays(r, by_hand(XVDB), 6);
	fe_state(r, XVDB, 1);
	fe_connect(r, "ringback", XVDB);
	/* What the guest says of the backend counts for nothing. */
	node_write(r, fe_dir(XVDB), "backend", "/local/domain/7/data");
	node_write(r, fe_dir(XVDB), "backend-id", "7");
	node_write(r, fe_dir(XVDB), "mode", "w");
	state_stays(r, by_hand(XVDB), 4);
}

static void
test_guest_refuses_ring(void **state)
{
	struct rig *r = *state;

	ask_ok(r, ATTACH("xvdc", "null:noconnect", ", \"wait\": false"));
	await_state(r, by_hand(XVDC), 2);
	fe_ring(r, XVDC, 8, 9);
	fe_state(r, XVDC, 3);
	await_state(r, by_hand(XVDC), 5);
	assert_true(list_error_has(r, XVDC, "map grant 8"));
	state_stays(r, by_hand(XVDC), 5);
	fe_state(r, XVDC, 6);
	await_state(r, by_hand(XVDC), 6);

	ask_ok(r, ATTACH_B("null:broken"));
	await_state(r, by_hand(XVDB), 2);
	fe_ring(r, XVDB, 8, 9);
	fe_state(r, XVDB, 3);
	await_state(r, by_hand(XVDB), 5);
	assert_true(list_error_has(r, XVDB, "the guest broke the ring"));
	assert_int_equal(told(r, XVDB, "DISCONNECT"), 0);
	fe_state(r, XVDB, 6);
	await_state(r, by_hand(XVDB), 6);
	assert_int_equal(told(r, XVDB, "DISCONNECT"), 1);
}

/* State changes as fast as xenstored takes them (XSA-349, XSA-350). */
static void
test_toggling(void **state)
{
	struct rig *r = *state;
	int64_t start;
	int i;

	attach_b(r, ATTACH_B("null:ok"));
	for (i = 0; i < 3000; i++)
		fe_state(r, XVDB, i % 7);
	start = rig_now_ms();
	ask_ok(r, ATTACH("xvdc", "null:ok", ", \"wait\": false"));
	assert_true(rig_now_ms() - start < 2000);
	/* Closed is answered with Closed, but in InitWait with nothing. */
	fe_state(r, XVDB, 6);
	UNTIL(state_of(r, by_hand(XVDB)) == 6 ||
	    state_of(r, by_hand(XVDB)) == 2);
	fe_state(r, XVDB, 1);
	fe_connect(r, "ringback", XVDB);
	assert_true(rig_log_lines(r, "ringbackd: vbd 7/51728: c") < 40);
	assert_int_equal(told(r, XVDB, "OPEN"), 1);
}

/* ---- disk processes that hang and die ------------------------------------ */

/* One disk that cannot finish its I/O holds up nobody (H6). */
static void
test_hanging_drain(void **state)
{
	struct rig *r = *state;
	int64_t start;

	attach_b(r, ATTACH_B("null:drainhang"));
	fe_state(r, XVDB, 6);
	await_told(r, XVDB, "DISCONNECT", 1);
	state_stays(r, by_hand(XVDB), 4);

	start = rig_now_ms();
	ask_ok(r, ATTACH("xvdc", "null:ok", ", \"wait\": false"));
	fe_connect(r, "ringback", XVDC);
	xl_attach(r, XVDA, "null:ok", OURS);
	answer_ok(xl_script(r, "add", XVDA));
	assert_true(rig_now_ms() - start < 1500);

	/* Meanwhile the toolstack loses patience: no late write (T2). */
	dir_remove(r, by_hand(XVDB));
	rig_pause(50);
	let_go(r);
	UNTIL(rig_log_has(r, "vbd 7/51728: forgotten"));
	assert_false(node_exists(r, by_hand(XVDB)));
}

/* The same disk again while the old process is still finishing. */
static void
test_attached_again_at_once(void **state)
{
	struct rig *r = *state;

	xl_attach(r, XVDA, "null:drainhang", OURS);
	answer_ok(xl_script(r, "add", XVDA));
	fe_connect(r, "vbd", XVDA);
	dir_remove(r, by_xl(XVDA));
	await_told(r, XVDA, "CLOSE", 1);
	xl_attach(r, XVDA, "null:size=512", OURS);
	await_state(r, by_xl(XVDA), 2);
	rig_pause(100);
	assert_int_equal(told(r, XVDA, "OPEN"), 1);
	let_go(r);
	answer_ok(xl_script(r, "add", XVDA));
	fe_connect(r, "vbd", XVDA);
	assert_node(r, by_xl(XVDA), "sectors", "1");
	assert_int_equal(told(r, XVDA, "OPEN"), 2);
}

static pid_t
kill_disk(struct rig *r)
{
	pid_t pid = disk_pid(r, XVDB);

	assert_true(pid > 1);
	assert_int_equal(kill(pid, SIGKILL), 0);
	UNTIL(disk_pid(r, XVDB) != pid);
	return pid;
}

/* The guest does not notice: a successor goes on with the same connection. */
static void
test_disk_process_dies(void **state)
{
	struct rig *r = *state;
	pid_t pid;

	attach_b(r, ATTACH_B("null:ok"));
	pid = kill_disk(r);
	await_told(r, XVDB, "resume=1", 1);
	await_told(r, XVDB, "CONNECT abi", 2);
	/* The generation of the first one: it is the same connection. */
	assert_int_equal(told(r, XVDB, "generation=1\n"), 2);
	UNTIL(list_error_has(r, XVDB, "died") == false);
	assert_int_equal(state_of(r, by_hand(XVDB)), 4);
	UNTIL(rig_log_has(r, "was ended by signal 9"));
	/* No zombie: the process is gone for good. */
	UNTIL(kill(pid, 0) != 0);

	/* It is an ordinary disk from then on. */
	fe_state(r, XVDB, 6);
	await_state(r, by_hand(XVDB), 6);
	fe_state(r, XVDB, 1);
	fe_connect(r, "ringback", XVDB);
	assert_int_equal(told(r, XVDB, "generation=2\n"), 1);
	assert_int_equal(told(r, XVDB, "OPEN"), 2);
	ask_ok(r, "{\"op\": \"list\"}");
}

/* What kills three of them in a minute is answered, and the disk closed. */
static void
test_disk_process_dies_again(void **state)
{
	struct rig *r = *state;

	attach_b(r, ATTACH_B("null:ok"));
	kill_disk(r);
	await_told(r, XVDB, "CONNECT abi", 2);
	kill_disk(r);
	await_told(r, XVDB, "CONNECT abi", 3);
	assert_int_equal(told(r, XVDB, "resume=1"), 2);
	assert_int_equal(state_of(r, by_hand(XVDB)), 4);
	kill_disk(r);
	await_told(r, XVDB, "resume=2", 1);
	await_state(r, by_hand(XVDB), 5);
	assert_true(list_error_has(r, XVDB, "3 disk processes died"));
	fe_state(r, XVDB, 6);
	await_state(r, by_hand(XVDB), 6);
	assert_int_equal(told(r, XVDB, "DISCONNECT"), 1);
}

/* Nothing was in flight: it is opened anew, without a word to the guest. */
static void
test_disk_process_dies_idle(void **state)
{
	struct rig *r = *state;

	xl_attach(r, XVDB, "null:ok", OURS);
	answer_ok(xl_script(r, "add", XVDB));
	kill_disk(r);
	await_told(r, XVDB, "OPEN", 2);
	assert_int_equal(told(r, XVDB, "resume=0"), 2);
	fe_connect(r, "vbd", XVDB);
}

/* An answer to somebody else: which ring that was, nobody can say. */
static void
test_stale_answer(void **state)
{
	struct rig *r = *state;

	ask_ok(r, ATTACH_B("null:stale"));
	fe_connect(r, "ringback", XVDB);
	assert_int_equal(told(r, XVDB, "DISCONNECT"), 1);
	assert_int_equal(told(r, XVDB, "CONNECT abi"), 2);
}

/* Between two boots the disk may have become another one, or none. */
static void
test_offered_again(void **state)
{
	struct rig *r = *state;

	attach_b(r, ATTACH_B("null:ok"));
	fe_state(r, XVDB, 6);
	await_state(r, by_hand(XVDB), 6);
	node_write(r, by_hand(XVDB), "params", "null:size=512");
	fe_state(r, XVDB, 1);
	fe_connect(r, "ringback", XVDB);
	assert_node(r, by_hand(XVDB), "sectors", "1");
	assert_int_equal(told(r, XVDB, "OPEN"), 2);

	fe_state(r, XVDB, 6);
	await_state(r, by_hand(XVDB), 6);
	node_write(r, by_hand(XVDB), "params", "null:noopen");
	fe_state(r, XVDB, 1);
	UNTIL(list_error_has(r, XVDB, "No such file"));
	await_state(r, by_hand(XVDB), 6);
	/* One try for each time the guest comes. */
	state_stays(r, by_hand(XVDB), 6);
	assert_int_equal(told(r, XVDB, "OPEN"), 3);
	node_write(r, by_hand(XVDB), "params", "null:ok");
	fe_state(r, XVDB, 6);
	fe_state(r, XVDB, 1);			/* maybe as one event */
	fe_connect(r, "ringback", XVDB);
	assert_int_equal(told(r, XVDB, "OPEN"), 4);
}

static void
test_disk_process_talks_rubbish(void **state)
{
	struct rig *r = *state;
	pid_t pid;

	ask_ok(r, ATTACH("xvdc", "null:flood", ", \"wait\": false"));
	await_state(r, by_hand(XVDC), 2);
	pid = disk_pid(r, XVDC);
	fe_ring(r, XVDC, 8, 9);
	fe_state(r, XVDC, 3);
	ask_ok(r, ATTACH_B("null:junk"));
	await_state(r, by_hand(XVDB), 2);
	fe_ring(r, XVDB, 8, 9);
	fe_state(r, XVDB, 3);
	await_state(r, by_hand(XVDB), 5);
	assert_true(list_error_has(r, XVDB, "makes no sense"));
	/* Who talks like that is not left with the guest's memory. */
	UNTIL(rig_log_has(r, "vbd 7/51728: process"));
	assert_true(rig_log_has(r, "ended by signal 9"));
	assert_int_equal(kill(pid, SIGKILL), 0);
	UNTIL(rig_log_has(r, "vbd 7/51744: process"));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(test_attach_and_detach),
		RIG_TEST(test_boot),
		RIG_TEST(test_ring_shown_again),
		RIG_TEST(test_attach_refused),
		RIG_TEST(test_readonly),
		RIG_TEST(test_guest_comes_late),
		RIG_TEST(test_detach_before_the_guest_comes),
		RIG_TEST(test_domain_ends_during_attach),
		RIG_TEST(test_domain_dies_first),
		RIG_TEST(test_domain_ends),
		RIG_TEST(test_xl),
		RIG_TEST(test_xl_readonly),
		RIG_TEST(test_xl_shutdown_and_destroy),
		RIG_TEST(test_xl_bad_image),
		RIG_TEST(test_script_at_once),
		RIG_TEST(test_other_backends),
		RIG_TEST(test_forged_frontend),
		RIG_TEST(test_lock_is_waited_for),
		RIG_TEST(test_junk_from_the_guest),
		RIG_TEST(test_guest_refuses_ring),
		RIG_TEST(test_toggling),
		RIG_TEST(test_hanging_drain),
		RIG_TEST(test_attached_again_at_once),
		RIG_TEST(test_disk_process_dies),
		RIG_TEST(test_disk_process_dies_again),
		RIG_TEST(test_disk_process_dies_idle),
		RIG_TEST(test_stale_answer),
		RIG_TEST(test_offered_again),
		RIG_TEST(test_disk_process_talks_rubbish),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
