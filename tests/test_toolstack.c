/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The supervisor and those who may want another order of things than xl's
 * (xenopsd), or the same disks (the kernel's backend).  Run by
 * test_supervisor.sh.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/supervisor_rig.h"

static void
restart(struct rig *r)
{
	rig_signal(r, SIGTERM);
	rig_start(r);
}

/* ---- xenopsd ------------------------------------------------------------- */

/* Its script says connected without a question to us, then it waits for 2. */
static void
test_xenopsd(void **state)
{
	struct rig *r = *state;

	r->toolstack = "xenopsd";
	restart(r);
	xl_attach(r, XVDA, "null:ok", OURS);
	await_told(r, XVDA, "OPEN", 1);
	state_stays(r, by_xl(XVDA), 1);
	assert_node(r, by_xl(XVDA), "max-ring-page-order", NULL);
	node_write(r, by_xl(XVDA), "hotplug-status", "connected");
	fe_connect(r, "vbd", XVDA);

	/* Unplugged and plugged: nodes made anew, the script again. */
	xl_detach(r, XVDA);
	fe_state(r, XVDA, 6);
	await_state(r, by_xl(XVDA), 6);
	xl_remove(r, XVDA);
	xl_attach(r, XVDA, "null:ok", OURS);
	state_stays(r, by_xl(XVDA), 1);
	answer_ok(xl_script(r, "add", XVDA));
	fe_connect(r, "vbd", XVDA);
}

/* Who asks us hears the verdict before the disk is offered, too. */
static void
test_xenopsd_bad_image(void **state)
{
	struct rig *r = *state;

	r->toolstack = "xenopsd";
	restart(r);
	xl_attach(r, XVDA, "null:noopen", OURS);
	answer_error(xl_script(r, "add", XVDA), "No such file; make it");
	assert_node(r, by_xl(XVDA), "hotplug-status", "error");
	await_state(r, by_xl(XVDA), 6);
	xl_detach(r, XVDA);
	answer_ok(xl_script(r, "remove", XVDA));
	xl_remove(r, XVDA);
	nothing_left(r);
}

/* There is no script that could come first. */
static void
test_xenopsd_by_hand(void **state)
{
	struct rig *r = *state;

	r->toolstack = "xenopsd";
	restart(r);
	attach_b(r, ATTACH_B("null:ok"));
}

/* ---- the kernel's backend ------------------------------------------------ */

static void
make(struct rig *r, const char *name)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", r->sysfs, name);
	if (mkdir(path, 0700) != 0)
		assert_int_equal(errno, EEXIST);
}

static void
kernel_backend_comes(struct rig *r)
{
	make(r, "");
	make(r, "bus");
	make(r, "bus/xen-backend");
	make(r, "bus/xen-backend/drivers");
	make(r, "bus/xen-backend/drivers/vbd");
}

static void
kernel_backend_goes(struct rig *r)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/bus/xen-backend/drivers/vbd",
	    r->sysfs);
	assert_int_equal(rmdir(path), 0);
}

static void
module_is_loaded(struct rig *r)
{
	make(r, "module");
	make(r, "module/xen_blkback");
	make(r, "module/xen_blkback/initstate");
}

static void
test_kernel_backend(void **state)
{
	struct rig *r = *state;

	assert_false(rig_log_has(r, "xen-blkback"));
	kernel_backend_comes(r);
	module_is_loaded(r);
	restart(r);
	assert_true(rig_log_has(r, "no disk of kind vbd can be attached: the "
	    "kernel's xen-blkback"));
	assert_true(rig_log_has(r, "modprobe -r xen-blkback, and keep"));

	/* The image is not even opened: two may not write to it. */
	xl_attach(r, XVDA, "null:ok", OURS);
	await_state(r, by_xl(XVDA), 2);
	answer_error(xl_script(r, "add", XVDA), "modprobe -r xen-blkback");
	assert_node(r, by_xl(XVDA), "hotplug-status", "error");
	await_state(r, by_xl(XVDA), 6);
	assert_int_equal(told(r, XVDA, "OPEN"), 0);
	xl_detach(r, XVDA);
	xl_remove(r, XVDA);

	/* Our own kind is none of its. */
	attach_b(r, ATTACH_B("null:ok"));

	/* Nobody has to start anything again. */
	kernel_backend_goes(r);
	xl_attach(r, XVDA, "null:ok", OURS);
	await_state(r, by_xl(XVDA), 2);
	answer_ok(xl_script(r, "add", XVDA));
	fe_connect(r, "vbd", XVDA);
}

/* udev loads it when it hears of the disk that we have just offered. */
static void
test_kernel_backend_comes_late(void **state)
{
	struct rig *r = *state;

	xl_attach(r, XVDA, "null:ok", OURS);
	await_told(r, XVDA, "OPEN", 1);
	await_state(r, by_xl(XVDA), 2);
	kernel_backend_comes(r);
	answer_error(xl_script(r, "add", XVDA), "built into this kernel");
	await_state(r, by_xl(XVDA), 6);
	kernel_backend_goes(r);

	/* ... or later, when the script has run. */
	xl_attach(r, XVDB, "null:ok", OURS);
	await_state(r, by_xl(XVDB), 2);
	answer_ok(xl_script(r, "add", XVDB));
	kernel_backend_comes(r);
	fe_ring(r, XVDB, 8, 9);
	fe_state(r, XVDB, 3);
	await_state(r, by_xl(XVDB), 5);
	assert_int_equal(told(r, XVDB, "CONNECT abi"), 0);
	assert_true(list_error_has(r, XVDB, "xen-blkback"));
}

/* What is being served goes on: to stop it would help nobody. */
static void
test_kernel_backend_and_a_disk_in_use(void **state)
{
	struct rig *r = *state;
	pid_t pid;

	xl_attach(r, XVDA, "null:ok", OURS);
	answer_ok(xl_script(r, "add", XVDA));
	fe_connect(r, "vbd", XVDA);
	pid = disk_pid(r, XVDA);
	kernel_backend_comes(r);
	restart(r);
	UNTIL(disk_pid(r, XVDA) == pid);
	state_stays(r, by_xl(XVDA), 4);
}

/* Who serves no disk that it could want need not hear of it. */
static void
test_kernel_backend_and_another_kind(void **state)
{
	struct rig *r = *state;

	kernel_backend_comes(r);
	r->kinds = "ringback,vbd3";
	restart(r);
	assert_false(rig_log_has(r, "xen-blkback"));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(test_xenopsd),
		RIG_TEST(test_xenopsd_bad_image),
		RIG_TEST(test_xenopsd_by_hand),
		RIG_TEST(test_kernel_backend),
		RIG_TEST(test_kernel_backend_comes_late),
		RIG_TEST(test_kernel_backend_and_a_disk_in_use),
		RIG_TEST(test_kernel_backend_and_another_kind),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
