/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The rig of test_supervisor.c (see supervisor_rig.h). */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/loopxen/guest.h"
#include "tests/supervisor_rig.h"

#define ANSWER_MS 20000

void
rig_pause(unsigned ms)
{
	const struct timespec ts = { ms / 1000, ms % 1000 * 1000000L };

	nanosleep(&ts, NULL);
}

int64_t
rig_now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* ---- life ---------------------------------------------------------------- */

static bool
answers(struct rig *r)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), rc;

	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/control", r->dir);
	rc = connect(fd, (struct sockaddr *)&sa, sizeof(sa));
	close(fd);
	return rc == 0;
}

void
rig_start(struct rig *r)
{
	const char *program = getenv("RINGBACKD");
	int log;

	if (program == NULL)
		program = "ringbackd_fake";
	r->daemon = fork();
	assert_true(r->daemon >= 0);
	if (r->daemon == 0) {
		log = open(r->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC,
		    0600);
		if (log < 0 || dup2(log, STDERR_FILENO) < 0)
			_exit(99);
		setenv("NOTIFY_SOCKET", r->notify, 1);
		execl(program, "ringbackd", "--run-dir", r->dir, "--kinds",
		    r->kinds, "--uid-base", "70000", "--toolstack",
		    r->toolstack, "--sysfs", r->sysfs, "--verbose", NULL);
		_exit(98);
	}
	UNTIL(answers(r));
}

/* Its exit status, as waitpid() puts it. */
static int
end_daemon(struct rig *r, int sig)
{
	int status = -1;

	kill(r->daemon, sig);
	assert_int_equal(waitpid(r->daemon, &status, 0), r->daemon);
	r->daemon = 0;
	return status;
}

void
rig_signal(struct rig *r, int sig)
{
	int status = end_daemon(r, sig);

	if (sig == SIGTERM)
		assert_int_equal(status, 0);
}

static void
notify_open(struct rig *r)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };

	snprintf(r->notify, sizeof(r->notify), "%s/notify", r->dir);
	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", r->notify);
	r->notify_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(r->notify_fd, (struct sockaddr *)&sa,
	    sizeof(sa)), 0);
}

void
rig_notified(struct rig *r, const char *text)
{
	struct pollfd p = { r->notify_fd, POLLIN, 0 };
	char buf[64];
	ssize_t n;

	assert_int_equal(poll(&p, 1, 5000), 1);
	n = recv(r->notify_fd, buf, sizeof(buf) - 1, 0);
	assert_true(n >= 0);
	buf[n] = '\0';
	assert_string_equal(buf, text);
}

int
rig_setup(void **state)
{
	struct rig *r = calloc(1, sizeof(*r));

	assert_non_null(r);
	snprintf(r->dir, sizeof(r->dir), "/tmp/ringback-test-XXXXXX");
	assert_non_null(mkdtemp(r->dir));
	snprintf(r->log, sizeof(r->log), "%s/log", r->dir);
	r->kinds = "vbd,vbd3,ringback";
	r->xl_kind = "vbd";
	r->mode = "w";
	r->toolstack = "xl";
	snprintf(r->sysfs, sizeof(r->sysfs), "%s/sysfs", r->dir);
	notify_open(r);
	r->xs = xs_open(0);
	assert_non_null(r->xs);
	assert_int_equal(loopguest_create(&r->guest, DOMID, 16), 0);
	node_write(r, "/local/domain/7", "name", "web1");
	node_write(r, "/local/domain/7", "vm", "/vm/0-1-2-3");
	assert_int_equal(loopguest_introduce(r->guest, r->xs), 0);
	rig_start(r);
	*state = r;
	return 0;
}

/* Disk processes outlive the supervisor; those of a failed test, too. */
static void
kill_disks(struct rig *r)
{
	char path[300], line[256];
	struct dirent *e;
	DIR *proc = opendir("/proc");
	size_t n;
	FILE *f;

	while (proc != NULL && (e = readdir(proc)) != NULL) {
		snprintf(path, sizeof(path), "/proc/%s/cmdline", e->d_name);
		f = atoi(e->d_name) > 1 ? fopen(path, "r") : NULL;
		if (f == NULL)
			continue;
		n = fread(line, 1, sizeof(line) - 1, f);
		line[n] = '\0';
		fclose(f);
		if (strncmp(line, "ringbackd: disk", 15) == 0 &&
		    memmem(line, n, r->dir, strlen(r->dir)) != NULL)
			kill(atoi(e->d_name), SIGKILL);
	}
	if (proc != NULL)
		closedir(proc);
}

int
rig_teardown(void **state)
{
	struct rig *r = *state;
	int status = 0;
	char cmd[256];

	if (r->daemon > 0)
		status = end_daemon(r, SIGTERM);
	kill_disks(r);
	/* For whoever looks for the reason of a failure. */
	snprintf(cmd, sizeof(cmd), "[ -z \"$SUPERVISOR_LOG\" ] || head -n -0 "
	    "%s/log* %s/*.tol[d] >>\"$SUPERVISOR_LOG\" 2>&1 ||:", r->dir,
	    r->dir);
	if (system(cmd) != 0)
		print_message("no log was kept\n");
	if (r->guest != NULL)
		rig_end_domain(r);
	dir_remove(r, "/local/domain/0/backend");
	xs_close(r->xs);
	close(r->notify_fd);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", r->dir);
	assert_int_equal(system(cmd), 0);
	free(r);
	/* The daemon was well, and with a sanitizer: has not leaked. */
	assert_int_equal(status, 0);
	return 0;
}

void
rig_end_domain(struct rig *r)
{
	dir_remove(r, "/local/domain/7");
	loopguest_release(r->guest, r->xs);
	loopguest_destroy(r->guest);
	r->guest = NULL;
}

unsigned
rig_log_lines(struct rig *r, const char *text)
{
	char line[2048];
	unsigned n = 0;
	FILE *f = fopen(r->log, "r");

	assert_non_null(f);
	while (fgets(line, sizeof(line), f) != NULL)
		n += strstr(line, text) != NULL;
	fclose(f);
	return n;
}

bool
rig_log_has(struct rig *r, const char *text)
{
	return rig_log_lines(r, text) > 0;
}

/* ---- the command line ---------------------------------------------------- */

int
ask_partly(struct rig *r, const char *question)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	size_t n = strlen(question);

	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/control", r->dir);
	assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	assert_int_equal(send(fd, question, n, MSG_NOSIGNAL), n);
	return fd;
}

int
ask(struct rig *r, const char *question)
{
	int fd = ask_partly(r, question);

	/* It may have been refused already. */
	if (send(fd, "\n", 1, MSG_NOSIGNAL) != 1)
		assert_int_equal(errno, EPIPE);
	return fd;
}

json_t *
answer(int fd)
{
	struct pollfd p = { fd, POLLIN, 0 };
	char *buf = malloc(1 << 20);
	size_t used = 0;
	json_t *j;
	ssize_t n;

	do {
		if (poll(&p, 1, ANSWER_MS) != 1)
			fail_msg("no answer within %d ms", ANSWER_MS);
		n = recv(fd, buf + used, (1 << 20) - 1 - used, 0);
		if (n < 0) {
			/* Closed before all of the question was read. */
			assert_int_equal(errno, ECONNRESET);
			break;
		}
		used += n;
	} while (n > 0);
	close(fd);
	buf[used] = '\0';
	/* One line, whole. */
	assert_true(used > 0 && strchr(buf, '\n') == buf + used - 1);
	j = json_loads(buf, 0, NULL);
	assert_true(json_is_object(j));
	free(buf);
	return j;
}

void
answer_ok(int fd)
{
	json_t *j = answer(fd);

	if (!json_is_true(json_object_get(j, "ok")))
		fail_msg("%s", json_string_value(json_object_get(j, "error")));
	json_decref(j);
}

void
answer_error(int fd, const char *text)
{
	json_t *j = answer(fd);
	const char *error = json_string_value(json_object_get(j, "error"));

	assert_true(json_is_false(json_object_get(j, "ok")));
	assert_non_null(error);
	if (strstr(error, text) == NULL)
		fail_msg("not in the error: \"%s\": %s", text, error);
	json_decref(j);
}

void
ask_ok(struct rig *r, const char *question)
{
	answer_ok(ask(r, question));
}

json_t *
listed(struct rig *r, unsigned devid, json_t **list)
{
	json_t *disk;
	size_t i;

	*list = answer(ask(r, "{\"op\": \"list\"}"));
	json_array_foreach(json_object_get(*list, "disks"), i, disk)
		if (json_integer_value(json_object_get(disk, "devid")) == devid)
			return disk;
	return NULL;
}

bool
list_error_has(struct rig *r, unsigned devid, const char *text)
{
	json_t *list, *disk = listed(r, devid, &list);
	const char *error;
	bool has;

	error = json_string_value(json_object_get(disk, "error"));
	has = error != NULL && strstr(error, text) != NULL;
	json_decref(list);
	return has;
}

/* ---- xenstore ------------------------------------------------------------ */

static void
write_in(struct rig *r, xs_transaction_t t, const char *dir, const char *name,
    const char *value)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	assert_true(xs_write(r->xs, t, path, value, strlen(value)));
}

void
node_write(struct rig *r, const char *dir, const char *name, const char *value)
{
	write_in(r, XBT_NULL, dir, name, value);
}

char *
node_read(struct rig *r, const char *dir, const char *name)
{
	char path[256];
	unsigned len;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return xs_read(r->xs, XBT_NULL, path, &len);
}

bool
node_is(struct rig *r, const char *dir, const char *name, const char *value)
{
	char *text = node_read(r, dir, name);
	bool is = text != NULL && strcmp(text, value) == 0;

	free(text);
	return is;
}

bool
node_exists(struct rig *r, const char *path)
{
	unsigned len;
	void *value = xs_read(r->xs, XBT_NULL, path, &len);

	free(value);
	return value != NULL;
}

int
state_of(struct rig *r, const char *dir)
{
	char *text = node_read(r, dir, "state");
	int state = text == NULL ? GONE : atoi(text);

	free(text);
	return state;
}

void
dir_remove(struct rig *r, const char *path)
{
	if (!xs_rm(r->xs, XBT_NULL, path))
		assert_int_equal(errno, ENOENT);
}

const char *
be_dir(const char *kind, unsigned devid)
{
	static char path[4][128];
	static unsigned n;

	n = (n + 1) % 4;
	snprintf(path[n], sizeof(path[n]), "/local/domain/0/backend/%s/%d/%u",
	    kind, DOMID, devid);
	return path[n];
}

const char *
fe_dir(unsigned devid)
{
	static char path[4][128];
	static unsigned n;

	n = (n + 1) % 4;
	snprintf(path[n], sizeof(path[n]), "/local/domain/%d/device/vbd/%u",
	    DOMID, devid);
	return path[n];
}

void
await_state(struct rig *r, const char *dir, int state)
{
	int tries;

	for (tries = 0; tries < 500 && state_of(r, dir) != state; tries++)
		rig_pause(10);
	if (tries == 500)
		fail_msg("%s is in state %d, not %d", dir, state_of(r, dir),
		    state);
}

void
await_gone(struct rig *r, const char *path)
{
	UNTIL(!node_exists(r, path));
}

void
state_stays(struct rig *r, const char *dir, int state)
{
	int i;

	for (i = 0; i < 15; i++) {
		assert_int_equal(state_of(r, dir), state);
		rig_pause(10);
	}
}

/* ---- the toolstack ------------------------------------------------------- */

void
xl_attach(struct rig *r, unsigned devid, const char *spec, const char *script)
{
	const char *be = be_dir(r->xl_kind, devid), *fe = fe_dir(devid);
	xs_transaction_t t = xs_transaction_start(r->xs);
	char number[16];

	assert_true(t != XBT_NULL);
	snprintf(number, sizeof(number), "%u", devid);
	write_in(r, t, fe, "backend", be);
	write_in(r, t, fe, "backend-id", "0");
	write_in(r, t, fe, "state", "1");
	write_in(r, t, fe, "virtual-device", number);
	write_in(r, t, fe, "device-type", "disk");
	write_in(r, t, be, "frontend", fe);
	write_in(r, t, be, "params", spec);
	write_in(r, t, be, "script", script);
	write_in(r, t, be, "frontend-id", "7");
	write_in(r, t, be, "online", "1");
	write_in(r, t, be, "removable", "0");
	write_in(r, t, be, "bootable", "1");
	write_in(r, t, be, "state", "1");
	write_in(r, t, be, "dev", "xvda");
	write_in(r, t, be, "type", strcmp(r->xl_kind, "vbd") == 0 ? "phy" :
	    r->xl_kind);
	write_in(r, t, be, "mode", r->mode);
	write_in(r, t, be, "device-type", r->type != NULL ? r->type : "disk");
	if (r->direct_safe != NULL)
		write_in(r, t, be, "direct-io-safe", r->direct_safe);
	write_in(r, t, be, "discard-enable", "1");
	write_in(r, t, be, "specification", "xen");
	assert_true(xs_transaction_end(r->xs, t, false));
}

static void
go_offline(struct rig *r, unsigned devid, bool force)
{
	xs_transaction_t t;

	do {
		t = xs_transaction_start(r->xs);
		if (force)
			assert_true(xs_rm(r->xs, t, fe_dir(devid)));
		write_in(r, t, be_dir(r->xl_kind, devid), "online", "0");
		if (state_of(r, be_dir(r->xl_kind, devid)) != 6)
			write_in(r, t, be_dir(r->xl_kind, devid), "state", "5");
	} while (!xs_transaction_end(r->xs, t, false) && errno == EAGAIN);
}

void
xl_detach(struct rig *r, unsigned devid)
{
	go_offline(r, devid, false);
}

void
xl_destroy(struct rig *r, unsigned devid)
{
	go_offline(r, devid, true);
}

void
xl_remove(struct rig *r, unsigned devid)
{
	dir_remove(r, fe_dir(devid));
	dir_remove(r, be_dir(r->xl_kind, devid));
}

int
xl_script(struct rig *r, const char *action, unsigned devid)
{
	char question[160];

	snprintf(question, sizeof(question), "{\"op\": \"hotplug\", "
	    "\"action\": \"%s\", \"backend\": \"backend/%s/%d/%u\"}", action,
	    r->xl_kind, DOMID, devid);
	return ask(r, question);
}

/* ---- the guest ----------------------------------------------------------- */

static void
write_number(struct rig *r, unsigned devid, const char *name, unsigned n)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", n);
	node_write(r, fe_dir(devid), name, text);
}

void
fe_state(struct rig *r, unsigned devid, int state)
{
	write_number(r, devid, "state", state);
}

void
fe_ring(struct rig *r, unsigned devid, unsigned gref, unsigned port)
{
	write_number(r, devid, "ring-ref", gref);
	write_number(r, devid, "event-channel", port);
}

void
fe_connect(struct rig *r, const char *kind, unsigned devid)
{
	await_state(r, be_dir(kind, devid), 2);
	fe_ring(r, devid, 8, 9);
	fe_state(r, devid, 3);
	await_state(r, be_dir(kind, devid), 4);
	fe_state(r, devid, 4);
}

/* ---- the disk processes -------------------------------------------------- */

unsigned
told(struct rig *r, unsigned devid, const char *what)
{
	char path[128], line[1100];
	unsigned n = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%d-%u.told", r->dir, DOMID, devid);
	f = fopen(path, "r");
	while (f != NULL && fgets(line, sizeof(line), f) != NULL)
		n += strstr(line, what) != NULL;
	if (f != NULL)
		fclose(f);
	return n;
}

void
await_told(struct rig *r, unsigned devid, const char *what, unsigned n)
{
	UNTIL(told(r, devid, what) == n);
}

void
let_go(struct rig *r)
{
	char path[80];
	int fd;

	snprintf(path, sizeof(path), "%s/go", r->dir);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	close(fd);
}

pid_t
disk_pid(struct rig *r, unsigned devid)
{
	json_t *list, *disk = listed(r, devid, &list);
	pid_t pid = json_integer_value(json_object_get(disk, "pid"));

	json_decref(list);
	return pid;
}

static bool
ends_in(const char *name, const char *end)
{
	size_t n = strlen(name), e = strlen(end);

	return n > e && strcmp(name + n - e, end) == 0;
}

static unsigned
files_left(struct rig *r)
{
	DIR *d = opendir(r->dir);
	struct dirent *e;
	unsigned n = 0;

	assert_non_null(d);
	while ((e = readdir(d)) != NULL)
		n += ends_in(e->d_name, ".sock") || ends_in(e->d_name, ".page");
	closedir(d);
	return n;
}

void
nothing_left(struct rig *r)
{
	UNTIL(files_left(r) == 0);
}

/* ---- short ways to say it ---------------------------------------------- */

const char *
by_hand(unsigned devid)
{
	return be_dir("ringback", devid);
}

const char *
by_xl(unsigned devid)
{
	return be_dir("vbd", devid);
}

void
assert_node(struct rig *r, const char *dir, const char *name,
    const char *value)
{
	char *text = node_read(r, dir, name);

	if (value == NULL)
		assert_null(text);
	else
		assert_string_equal(text == NULL ? "(none)" : text, value);
	free(text);
}

void
assert_permissions(struct rig *r, const char *path, unsigned owner,
    unsigned reader)
{
	struct xs_permissions *p;
	unsigned n = 0;

	p = xs_get_permissions(r->xs, XBT_NULL, path, &n);
	assert_int_equal(n, 2);
	assert_int_equal(p[0].id, owner);
	assert_int_equal(p[0].perms, XS_PERM_NONE);
	assert_int_equal(p[1].id, reader);
	assert_int_equal(p[1].perms, XS_PERM_READ);
	free(p);
}

/* Attached, and the guest has connected. */
void
attach_b(struct rig *r, const char *question)
{
	ask_ok(r, question);
	fe_connect(r, "ringback", XVDB);
}
