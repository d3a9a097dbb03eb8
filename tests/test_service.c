/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The supervisor as a service: stopped, killed and started again under its
 * disks, its command line, its control socket, and what it may write into
 * xenstore.  Run by test_supervisor.sh.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "blkback/xenstore.h"
#include "tests/loopxen/guest.h"
#include "tests/supervisor_rig.h"

/* ---- the supervisor comes and goes --------------------------------------- */

static void
restart(struct rig *r, int how)
{
	pid_t pid = disk_pid(r, XVDB);

	assert_int_equal(told(r, XVDB, "end of file"), 0);
	rig_signal(r, how);
	await_told(r, XVDB, "end of file", 1);
	assert_int_equal(kill(pid, 0), 0);
	rig_start(r);
	UNTIL(disk_pid(r, XVDB) == pid);
	assert_int_equal(state_of(r, by_hand(XVDB)), 4);
	assert_int_equal(told(r, XVDB, "OPEN"), 1);
	assert_int_equal(told(r, XVDB, "CONNECT abi"), 1);
}

static void
test_restart(void **state)
{
	struct rig *r = *state;

	attach_b(r, ATTACH_B("null:ok"));
	restart(r, SIGTERM);
	/* It is served as before. */
	fe_state(r, XVDB, 5);
	await_state(r, by_hand(XVDB), 5);
	fe_state(r, XVDB, 6);
	await_state(r, by_hand(XVDB), 6);
	fe_state(r, XVDB, 1);
	fe_connect(r, "ringback", XVDB);
	assert_int_equal(told(r, XVDB, "CONNECT abi"), 2);
	assert_int_equal(told(r, XVDB, "OPEN"), 1);
	fe_state(r, XVDB, 6);
	ask_ok(r, DETACH_B);
	nothing_left(r);
}

/* Whoever waits for an answer gets one, and the disk is not half attached. */
static void
test_stopped_while_asked(void **state)
{
	struct rig *r = *state;
	int attach, hang, idle;

	attach = ask(r, ATTACH("xvdb", "null:ok", ""));
	await_state(r, by_hand(XVDB), 2);
	hang = ask(r, ATTACH("xvdc", "null:openhang", ""));
	await_told(r, XVDC, "OPEN", 1);
	idle = ask_partly(r, "{");
	rig_signal(r, SIGTERM);
	answer_error(attach, "is being stopped");
	answer_error(hang, "is being stopped");
	close(idle);
	assert_false(rig_log_has(r, "cannot"));
	let_go(r);
	await_told(r, XVDC, "CLOSE", 1);
	rig_start(r);
	fe_connect(r, "ringback", XVDB);
	assert_int_equal(told(r, XVDB, "OPEN"), 1);
	assert_false(node_exists(r, by_hand(XVDC)));
}

static void
test_supervisor_killed(void **state)
{
	struct rig *r = *state;
	pid_t pid;

	attach_b(r, ATTACH_B("null:ok"));
	restart(r, SIGKILL);
	pid = disk_pid(r, XVDB);
	/* One that is not our child: its end is noticed all the same. */
	assert_int_equal(kill(pid, SIGKILL), 0);
	await_told(r, XVDB, "resume=1", 1);
	await_told(r, XVDB, "CONNECT abi", 2);
	assert_int_equal(state_of(r, by_hand(XVDB)), 4);
}

/* Both are gone: a new supervisor finds the page, and starts a successor. */
static void
test_both_killed(void **state)
{
	struct rig *r = *state;
	pid_t pid;

	attach_b(r, ATTACH_B("null:ok"));
	pid = disk_pid(r, XVDB);
	rig_signal(r, SIGKILL);
	assert_int_equal(kill(pid, SIGKILL), 0);
	rig_start(r);
	await_told(r, XVDB, "resume=1", 1);
	await_told(r, XVDB, "CONNECT abi", 2);
	assert_int_equal(told(r, XVDB, "generation=1\n"), 2);
	assert_int_equal(state_of(r, by_hand(XVDB)), 4);
}

/* A process that dies, or makes no sense, when it is found. */
static void
test_found_useless(void **state)
{
	struct rig *r = *state;
	pid_t b, c;

	attach_b(r, ATTACH_B("null:hellodie"));
	ask_ok(r, ATTACH("xvdc", "null:hellojunk", ", \"wait\": false"));
	fe_connect(r, "ringback", XVDC);
	b = disk_pid(r, XVDB);
	c = disk_pid(r, XVDC);
	rig_signal(r, SIGTERM);
	rig_start(r);
	await_told(r, XVDB, "resume=1", 1);
	await_told(r, XVDB, "CONNECT abi", 2);
	await_told(r, XVDC, "resume=1", 1);
	await_told(r, XVDC, "CONNECT abi", 2);
	assert_int_equal(state_of(r, by_hand(XVDB)), 4);
	assert_int_equal(state_of(r, by_hand(XVDC)), 4);
	UNTIL(kill(b, 0) != 0);
	UNTIL(kill(c, 0) != 0);
}

/* The process that is found has another image open than it should have. */
static void
test_found_with_another_image(void **state)
{
	struct rig *r = *state;

	ask_ok(r, ATTACH_B("null:ok"));
	await_state(r, by_hand(XVDB), 2);
	rig_signal(r, SIGTERM);
	node_write(r, by_hand(XVDB), "params", "null:size=512");
	rig_start(r);
	await_told(r, XVDB, "CLOSE", 1);
	await_told(r, XVDB, "spec=null:size=512", 1);
	fe_connect(r, "ringback", XVDB);
	assert_node(r, by_hand(XVDB), "sectors", "1");
}

/* What happened while nobody looked. */
static void
test_found_changed(void **state)
{
	struct rig *r = *state;
	pid_t b, c;

	attach_b(r, ATTACH_B("null:ok"));
	ask_ok(r, ATTACH("xvdc", "null:ok", ", \"wait\": false"));
	fe_connect(r, "ringback", XVDC);
	xl_attach(r, XVDA, "null:ok", OURS);
	answer_ok(xl_script(r, "add", XVDA));
	fe_connect(r, "vbd", XVDA);
	b = disk_pid(r, XVDB);
	c = disk_pid(r, XVDC);
	rig_signal(r, SIGTERM);

	dir_remove(r, by_hand(XVDB));		/* its process shall close */
	assert_int_equal(kill(c, SIGKILL), 0);	/* its ring can be taken up */
	fe_state(r, XVDA, 6);
	rig_start(r);
	await_told(r, XVDB, "CLOSE", 1);
	UNTIL(kill(b, 0) != 0);
	await_told(r, XVDC, "resume=1", 1);
	await_told(r, XVDC, "CONNECT abi", 2);
	assert_int_equal(state_of(r, by_hand(XVDC)), 4);
	await_state(r, by_xl(XVDA), 6);
	assert_int_equal(told(r, XVDA, "DISCONNECT"), 1);
	assert_int_equal(told(r, XVDA, "OPEN"), 1);
}

/* A supervisor that is not to serve xl's disks does not end them either. */
static void
test_other_kinds_are_left_alone(void **state)
{
	struct rig *r = *state;
	pid_t pid;

	xl_attach(r, XVDA, "null:ok", OURS);
	answer_ok(xl_script(r, "add", XVDA));
	fe_connect(r, "vbd", XVDA);
	pid = disk_pid(r, XVDA);
	rig_signal(r, SIGTERM);
	r->kinds = "ringback";
	rig_start(r);
	UNTIL(rig_log_has(r, "which is not ours"));
	rig_signal(r, SIGTERM);
	await_told(r, XVDA, "end of file", 2);
	r->kinds = "vbd";
	rig_start(r);
	UNTIL(disk_pid(r, XVDA) == pid);
	assert_int_equal(told(r, XVDA, "CLOSE"), 0);
	assert_int_equal(told(r, XVDA, "CONNECT abi"), 1);
	answer_error(ask(r, ATTACH_B("null:ok")), "kind ringback");
	fe_state(r, XVDA, 6);
	await_state(r, by_xl(XVDA), 6);
}

/* ---- xl's backendtype=tap ------------------------------------------------ */

static void
test_tap(void **state)
{
	struct rig *r = *state;
	const char *be = be_dir("vbd3", XVDA);
	json_t *list, *disk;
	pid_t pid;

	r->xl_kind = "vbd3";
	xl_attach(r, XVDA, "aio:null:ok", OURS);
	await_state(r, be, 2);
	assert_node(r, be, "max-ring-page-order", "4");
	answer_ok(xl_script(r, "add", XVDA));
	assert_node(r, be, "hotplug-status", "connected");
	/* xl would have QEMU look for an NBD server there. */
	assert_node(r, be, "physical-device-path", NULL);
	fe_connect(r, "vbd3", XVDA);
	disk = listed(r, XVDA, &list);
	assert_non_null(disk);
	assert_string_equal(json_string_value(json_object_get(disk, "spec")),
	    "null:ok");
	assert_string_equal(json_string_value(json_object_get(disk, "kind")),
	    "vbd3");
	json_decref(list);
	pid = disk_pid(r, XVDA);
	rig_signal(r, SIGKILL);
	rig_start(r);
	UNTIL(disk_pid(r, XVDA) == pid);
	assert_int_equal(told(r, XVDA, "OPEN"), 1);
	assert_int_equal(told(r, XVDA, "CONNECT abi"), 1);
	xl_detach(r, XVDA);
	await_state(r, be, 5);
	fe_state(r, XVDA, 6);
	await_state(r, be, 6);
	answer_ok(xl_script(r, "remove", XVDA));
	nothing_left(r);
	xl_remove(r, XVDA);
	UNTIL(rig_log_has(r, "vbd 7/51712: forgotten"));
}

static bool
is_listed(struct rig *r, unsigned devid)
{
	json_t *list, *disk = listed(r, devid, &list);

	json_decref(list);
	return disk != NULL;
}

static void
test_tap_format(void **state)
{
	static const char *const params[] = {
		"vhd:null:ok", "null:ok", "aio", "",
	};
	struct rig *r = *state;
	size_t i;

	r->xl_kind = "vbd3";
	for (i = 0; i < sizeof(params) / sizeof(params[0]); i++) {
		xl_attach(r, XVDA, params[i], OURS);
		await_state(r, be_dir("vbd3", XVDA), 2);
		answer_error(xl_script(r, "add", XVDA), "say format=raw");
		assert_node(r, be_dir("vbd3", XVDA), "hotplug-status", "error");
		xl_remove(r, XVDA);
		UNTIL(!is_listed(r, XVDA));
	}
	/* Only the first colon is libxl's; and of kind vbd none is. */
	xl_attach(r, XVDB, "aio:aio:null:ok", OURS);
	answer_error(xl_script(r, "add", XVDB), "aio");
	r->xl_kind = "vbd";
	xl_attach(r, XVDC, "aio:null:ok", OURS);
	answer_error(xl_script(r, "add", XVDC), "aio");
	assert_int_equal(told(r, XVDA, "OPEN"), 0);
	assert_int_equal(told(r, XVDB, "OPEN"), 0);
	assert_int_equal(told(r, XVDC, "OPEN"), 0);
}

/* XAPI names no script. */
static void
test_tap_of_others(void **state)
{
	struct rig *r = *state;
	const char *xapi = be_dir("vbd3", XVDA);

	node_write(r, xapi, "frontend", fe_dir(XVDA));
	node_write(r, xapi, "frontend-id", "7");
	node_write(r, xapi, "online", "1");
	node_write(r, xapi, "params", "aio:null:ok");
	node_write(r, xapi, "mode", "w");
	node_write(r, xapi, "hotplug-status", "connected");
	node_write(r, xapi, "state", "1");
	r->xl_kind = "vbd3";
	xl_attach(r, XVDB, "aio:null:ok", "/etc/xen/scripts/block-tap");
	xl_attach(r, XVDC, "aio:null:ok", OURS);
	await_state(r, be_dir("vbd3", XVDC), 2);
	state_stays(r, be_dir("vbd3", XVDA), 1);
	assert_int_equal(state_of(r, be_dir("vbd3", XVDB)), 1);
	assert_node(r, be_dir("vbd3", XVDA), "max-ring-page-order", NULL);
	assert_false(is_listed(r, XVDA));
	assert_false(is_listed(r, XVDB));
	answer_error(xl_script(r, "add", XVDA), "script");
	answer_error(xl_script(r, "add", XVDB), "another backend");
	assert_int_equal(told(r, XVDA, "OPEN"), 0);
	assert_int_equal(told(r, XVDB, "OPEN"), 0);
}

/* A process that looks like tapback, until it is killed. */
static pid_t
start_tapback(struct rig *r, const char *option, const char *kind)
{
	char path[128];
	pid_t pid;

	snprintf(path, sizeof(path), "%s/tapback", r->dir);
	if (symlink("/bin/sh", path) != 0)
		assert_int_equal(errno, EEXIST);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execl(path, "tapback", "-c", "kill -STOP $$", "-d", option,
		    kind, (char *)NULL);
		_exit(127);
	}
	assert_int_equal(waitpid(pid, NULL, WUNTRACED), pid);
	return pid;
}

static bool
warned(struct rig *r, unsigned devid, pid_t pid)
{
	char line[80];

	snprintf(line, sizeof(line), "vbd 7/%u: tapback (process %d) serves "
	    "backend/vbd3 too", devid, (int)pid);
	return rig_log_has(r, line);
}

/* It takes every disk of its kind, whatever the script. */
static void
test_tapback_is_seen(void **state)
{
	static const struct {
		const char *option, *kind;
		bool        same;
	} runs[] = {
		{ NULL, NULL, true }, { "-n", "vbd3", true },
		{ "-v", NULL, true }, { "-nvbd3", NULL, true },
		{ "-n", "vbd", false }, { "--name=vbd", NULL, false },
	};
	struct rig *r = *state;
	unsigned devid;
	pid_t pid;
	size_t i;

	r->xl_kind = "vbd3";
	for (i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
		devid = XVDA + 16 * i;
		pid = start_tapback(r, runs[i].option, runs[i].kind);
		xl_attach(r, devid, "aio:null:ok", OURS);
		answer_ok(xl_script(r, "add", devid));
		assert_int_equal(warned(r, devid, pid), runs[i].same);
		assert_int_equal(kill(pid, SIGKILL), 0);
		assert_int_equal(waitpid(pid, NULL, 0), pid);
	}
}

/* What a child of some library would inherit. */
static unsigned
inheritable(struct rig *r)
{
	char path[80], target[80], line[80];
	unsigned flags, fd, n = 0;
	ssize_t length;
	FILE *f;

	for (fd = 3; fd < 256; fd++) {
		snprintf(path, sizeof(path), "/proc/%d/fd/%u", r->daemon, fd);
		length = readlink(path, target, sizeof(target) - 1);
		snprintf(path, sizeof(path), "/proc/%d/fdinfo/%u", r->daemon,
		    fd);
		f = length > 0 ? fopen(path, "r") : NULL;
		if (f == NULL)
			continue;
		target[length] = '\0';
		/* The second line; octal. */
		flags = fgets(line, sizeof(line), f) != NULL &&
		    fgets(line, sizeof(line), f) != NULL ?
		    strtoul(line + strlen("flags:"), NULL, 8) : 0;
		fclose(f);
		if ((flags & O_CLOEXEC) == 0 &&
		    (strncmp(target, "socket:", 7) == 0 ||
		    strstr(target, "/lock") != NULL))
			n++;
	}
	return n;
}

static void
test_descriptors(void **state)
{
	struct rig *r = *state;

	attach_b(r, ATTACH_B("null:ok"));
	assert_int_equal(inheritable(r), 0);
}

static int
run(struct rig *r, const char *arguments)
{
	char cmd[1024];
	int status;

	/* One that does not end by itself has not understood. */
	snprintf(cmd, sizeof(cmd), "exec timeout 10 $RINGBACKD %s >>%s 2>&1",
	    arguments, r->log);
	status = system(cmd);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

#define ROOT " --backing-root /srv"
#define R4   ROOT ROOT ROOT ROOT

static void
test_command_line(void **state)
{
	struct rig *r = *state;
	char arguments[128];

	snprintf(arguments, sizeof(arguments), "--run-dir %s", r->dir);
	assert_int_equal(run(r, arguments), 1);
	assert_true(rig_log_has(r, "another ringbackd (process"));
	ask_ok(r, "{\"op\": \"ping\"}");

	/* Where others can write, they can listen in our name. */
	snprintf(arguments, sizeof(arguments), "--run-dir %s/open", r->dir);
	assert_int_equal(mkdir(arguments + 10, 0), 0);
	assert_int_equal(chmod(arguments + 10, 0777), 0);
	assert_int_equal(run(r, arguments), 1);
	assert_true(rig_log_has(r, "only root can write"));

	assert_int_equal(run(r, "--version"), 0);
	assert_true(rig_log_has(r, "ringbackd 0"));
	assert_int_equal(run(r, "--help"), 0);
	assert_int_equal(run(r, "--kinds ''"), 2);
	assert_int_equal(run(r, "--kinds vbd,,ringback"), 2);
	assert_int_equal(run(r, "--kinds a/b"), 2);
	assert_int_equal(run(r, "--kinds a,b,c,d,e"), 2);
	assert_int_equal(run(r, "--run-dir relative"), 2);
	assert_int_equal(run(r, "--uid-base 0"), 2);
	assert_int_equal(run(r, "--uid-base root"), 2);
	assert_int_equal(run(r, "--backing-root srv"), 2);
	assert_true(rig_log_has(r, "not an absolute path"));
	assert_int_equal(run(r, "--backing-root '' --version"), 2);
	assert_int_equal(run(r, R4 R4 R4 R4 " --version"), 0);
	assert_int_equal(run(r, R4 R4 R4 R4 ROOT " --version"), 2);
	assert_true(rig_log_has(r, "one too many"));
	assert_int_equal(run(r, "--toolstack libvirt"), 2);
	assert_true(rig_log_has(r, "neither xl nor xenopsd"));
	assert_int_equal(run(r, "--sysfs sys"), 2);
	assert_int_equal(run(r, "--disk 7"), 2);
	assert_int_equal(run(r, "--disk 7-x"), 2);
	assert_int_equal(run(r, "surplus"), 2);
	assert_int_equal(run(r, "--nonsense"), 2);
}

/* ---- the control socket -------------------------------------------------- */

static void
test_bad_questions(void **state)
{
	struct rig *r = *state;
	char *big = malloc(70000);
	json_t *j;
	int fd, i;

	answer_error(ask(r, "hello"), "not a JSON object");
	answer_error(ask(r, ""), "not a JSON object");
	answer_error(ask(r, "[]"), "not a JSON object");
	answer_error(ask(r, "{\"op\": \"list\", \"op\": \"list\"}"), "JSON");
	answer_error(ask(r, "{}"), "\"op\"");
	answer_error(ask(r, "{\"op\": 7}"), "\"op\"");
	answer_error(ask(r, "{\"op\": \"format\"}"), "unknown op");
	answer_error(ask(r, "{\"op\": \"attach\"}"), "\"domain\"");
	answer_error(ask(r, ATTACH("xvdb", "null:ok", ", \"timeout\": -1")),
	    "timeout");
	answer_error(ask(r, ATTACH("xvdb", "null:ok", ", \"timeout\": \"1\"")),
	    "timeout");
	answer_error(ask(r, ATTACH("xvdb", "null:ok", ", \"wait\": 1")),
	    "wait");
	answer_error(ask(r, "{\"op\": \"hotplug\", \"action\": \"sing\", "
	    "\"backend\": \"backend/vbd/7/51712\"}"), "sing");

	assert_non_null(big);
	memset(big, ' ', 69999);
	big[69999] = '\0';
	answer_error(ask(r, big), "longer than 65536");
	free(big);
	fd = ask(r, "{\"op\": \"list\"}");
	j = answer(fd);
	assert_int_equal(json_array_size(json_object_get(j, "disks")), 0);
	json_decref(j);
	for (i = 0; i < 100; i++)
		close(ask(r, "{\"op\": \"list\"}"));
	ask_ok(r, "{\"op\": \"ping\"}");
}

static void
test_slow_client(void **state)
{
	struct rig *r = *state;
	int64_t start = rig_now_ms();
	char c;
	int fd;

	answer_error(ask(r, "{\"op\": "), "not a JSON object");
	/* Half a question, then nothing. */
	fd = ask_partly(r, "{\"op\": \"list\"");
	ask_ok(r, "{\"op\": \"ping\"}");
	assert_int_equal(recv(fd, &c, 1, 0), 0);
	assert_in_range(rig_now_ms() - start, 4500, 8000);
	close(fd);
}

/* Somebody who is not root has got hold of the socket. */
static void
test_client_is_not_root(void **state)
{
	struct rig *r = *state;
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int status, fd;
	pid_t pid;
	char c;

	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/control", r->dir);
	assert_int_equal(chmod(r->dir, 0755), 0);
	assert_int_equal(chmod(sa.sun_path, 0666), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		fd = socket(AF_UNIX, SOCK_STREAM, 0);
		if (setuid(65534) != 0 ||
		    connect(fd, (struct sockaddr *)&sa, sizeof(sa)) != 0)
			_exit(1);
		if (send(fd, "{\"op\": \"list\"}\n", 15, MSG_NOSIGNAL) < 0 &&
		    errno != EPIPE)
			_exit(2);
		_exit(recv(fd, &c, 1, 0) > 0 ? 3 : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_true(rig_log_has(r, "not root"));
}

static void
test_client_hangs_up(void **state)
{
	struct rig *r = *state;

	/* What it asked for goes on. */
	close(ask(r, ATTACH("xvdb", "null:ok", "")));
	await_state(r, by_hand(XVDB), 2);
	close(ask(r, DETACH_B));
	await_gone(r, by_hand(XVDB));
	nothing_left(r);
}

static void
test_stats(void **state)
{
	struct rig *r = *state;
	const char *q = "{\"op\": \"stats\", \"domain\": \"web1\", "
	    "\"vdev\": \"xvdb\"}";
	json_t *j, *stats;

	answer_error(ask(r, q), "no disk xvdb");
	attach_b(r, ATTACH_B("null:ok"));
	j = answer(ask(r, q));
	stats = json_object_get(j, "stats");
	assert_int_equal(json_integer_value(json_object_get(stats, "writes")),
	    42);
	assert_int_equal(json_integer_value(json_object_get(stats, "connects")),
	    1);
	assert_true(json_is_integer(json_object_get(stats,
	    "read-wait-max-ns")));
	assert_true(json_is_integer(json_object_get(stats, "in-flight")));
	json_decref(j);
}

/* ---- xenstore ------------------------------------------------------------ */

#define DIR_PATH "/local/domain/0/backend/test/7/1"

static struct xenstore_update
connected(void)
{
	struct xenstore_update u = { 0 };

	xenstore_add_number(&u, "sectors", UINT64_MAX);
	xenstore_add(&u, "state", "4");
	return u;
}

/* A directory that is gone, or not what it was, is not written to. */
static void
test_no_late_write(void **state)
{
	struct rig *r = *state;
	struct xenstore_update u = connected();
	struct xenstore s;

	assert_int_equal(xenstore_open(&s), 0);
	assert_int_equal(xenstore_update(&s, DIR_PATH, 3, &u), -ENOENT);
	assert_int_equal(xenstore_update(&s, DIR_PATH, XENSTORE_ANY, &u),
	    -ENOENT);
	assert_false(node_exists(r, "/local/domain/0/backend/test"));

	node_write(r, DIR_PATH, "state", "5");
	assert_int_equal(xenstore_update(&s, DIR_PATH, 3, &u), -ESTALE);
	assert_true(node_is(r, DIR_PATH, "state", "5"));
	assert_false(node_exists(r, DIR_PATH "/sectors"));
	assert_int_equal(xenstore_update(&s, DIR_PATH, 5, &u), 0);
	assert_true(node_is(r, DIR_PATH, "state", "4"));
	assert_true(node_is(r, DIR_PATH, "sectors", "18446744073709551615"));
	node_write(r, DIR_PATH, "state", "junk");
	assert_int_equal(xenstore_update(&s, DIR_PATH, XENSTORE_ANY, &u), 0);
	assert_false(s.lost);
	xenstore_close(&s);
}

struct meddler {
	struct rig *r;
	unsigned    runs, times;
};

/* Somebody else changes what the transaction has read. */
static int
meddle(struct xenstore *s, xs_transaction_t t, void *arg)
{
	struct meddler *m = arg;
	char text[16];
	int rc;

	rc = xenstore_read(s, t, DIR_PATH, "state", text, sizeof(text));
	if (m->runs++ < m->times)
		node_write(m->r, DIR_PATH, "state", "6");
	return rc < 0 ? rc : xenstore_write(s, t, DIR_PATH, "state", "2");
}

static void
test_transactions_are_tried_again(void **state)
{
	struct rig *r = *state;
	struct meddler m = { r, 0, 3 };
	struct xenstore s;

	assert_int_equal(xenstore_open(&s), 0);
	node_write(r, DIR_PATH, "state", "1");
	assert_int_equal(xenstore_transaction(&s, meddle, &m), 0);
	assert_int_equal(m.runs, 4);
	assert_true(node_is(r, DIR_PATH, "state", "2"));
	/* But not for ever. */
	m = (struct meddler){ r, 0, UINT32_MAX };
	assert_int_equal(xenstore_transaction(&s, meddle, &m), -EAGAIN);
	assert_in_range(m.runs, 2, 100);
	assert_true(node_is(r, DIR_PATH, "state", "6"));
	xenstore_close(&s);
}

/* What somebody else may have put there. */
static void
test_reading_is_bounded(void **state)
{
	struct rig *r = *state;
	struct xenstore s;
	char text[8];
	uint32_t n;

	assert_int_equal(xenstore_open(&s), 0);
	node_write(r, DIR_PATH, "a", "1234567");
	node_write(r, DIR_PATH, "b", "12345678");
	node_write(r, DIR_PATH, "c", "");
	assert_true(xs_write(r->xs, XBT_NULL, DIR_PATH "/d", "1\0002", 3));
	assert_int_equal(xenstore_read(&s, XBT_NULL, DIR_PATH, "a", text,
	    sizeof(text)), 0);
	assert_string_equal(text, "1234567");
	assert_int_equal(xenstore_read(&s, XBT_NULL, DIR_PATH, "b", text,
	    sizeof(text)), -E2BIG);
	assert_int_equal(xenstore_read(&s, XBT_NULL, DIR_PATH, "c", text,
	    sizeof(text)), 0);
	assert_string_equal(text, "");
	assert_int_equal(xenstore_read(&s, XBT_NULL, DIR_PATH, "d", text,
	    sizeof(text)), -E2BIG);
	assert_int_equal(xenstore_read_u32(&s, XBT_NULL, DIR_PATH, "d", 9,
	    &n), -EINVAL);
	assert_int_equal(xenstore_read_u32(&s, XBT_NULL, DIR_PATH, "c", 9,
	    &n), -EINVAL);
	assert_int_equal(xenstore_read_u32(&s, XBT_NULL, DIR_PATH, "e", 9,
	    &n), -ENOENT);
	xenstore_close(&s);
}

/* The rings of a guest with three queues, and whether they are still those. */
static void
test_queues(void **state)
{
	struct rig *r = *state;
	char dir[160], value[16];
	unsigned i;

	ask_ok(r, ATTACH_B("null,queues=4,iothreads=2:ok"));
	await_state(r, by_hand(XVDB), 2);
	assert_node(r, by_hand(XVDB), "multi-queue-max-queues", "4");
	node_write(r, fe_dir(XVDB), "multi-queue-num-queues", "3");
	for (i = 0; i < 3; i++) {
		snprintf(dir, sizeof(dir), "%s/queue-%u", fe_dir(XVDB), i);
		snprintf(value, sizeof(value), "%u", 20 + i);
		node_write(r, dir, "ring-ref", value);
		node_write(r, dir, "event-channel", value);
	}
	fe_state(r, XVDB, 3);
	await_state(r, by_hand(XVDB), 4);
	fe_state(r, XVDB, 4);
	assert_int_equal(told(r, XVDB, "port=20 queues=3"), 1);
	restart(r, SIGKILL);
	/* Another ring in one of them is noticed, as with one queue. */
	fe_state(r, XVDB, 3);
	state_stays(r, by_hand(XVDB), 4);
	assert_int_equal(told(r, XVDB, "DISCONNECT"), 0);
	node_write(r, dir, "event-channel", "30");
	fe_state(r, XVDB, 4);
	await_told(r, XVDB, "CONNECT abi", 2);
	assert_int_equal(told(r, XVDB, "DISCONNECT"), 1);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(test_restart),
		RIG_TEST(test_stopped_while_asked),
		RIG_TEST(test_supervisor_killed), RIG_TEST(test_both_killed),
		RIG_TEST(test_found_changed), RIG_TEST(test_queues),
		RIG_TEST(test_found_useless),
		RIG_TEST(test_found_with_another_image),
		RIG_TEST(test_other_kinds_are_left_alone),
		RIG_TEST(test_tap), RIG_TEST(test_tap_format),
		RIG_TEST(test_tap_of_others), RIG_TEST(test_tapback_is_seen),
		RIG_TEST(test_descriptors),
		RIG_TEST(test_command_line),
		RIG_TEST(test_bad_questions),
		RIG_TEST(test_slow_client),
		RIG_TEST(test_client_is_not_root),
		RIG_TEST(test_client_hangs_up),
		RIG_TEST(test_stats),
		RIG_TEST(test_no_late_write),
		RIG_TEST(test_transactions_are_tried_again),
		RIG_TEST(test_reading_is_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
