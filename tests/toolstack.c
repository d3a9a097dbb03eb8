/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * toolstack: does for disks of kind vbd what libxl 4.17 does, in its order,
 * with its transactions and its time-outs, for many disks at a time.
 *
 *	toolstack attach [OPTIONS] DOMID DEVID|xCOUNT SPEC
 *	toolstack detach DOMID DEVID|xCOUNT	xl block-detach
 *	toolstack destroy DOMID [DEVID|xCOUNT]	xl destroy; block-detach --force
 *
 * BLOCK_SCRIPT is the hotplug script.  DOMID may be FIRST-LAST: disks go to
 * each in turn.  In SPEC, %u stands for the number of the disk, from 0 on.
 *
 *	--connected	attach: wait for both sides' Connected as well
 *	--in-turn	each disk waits for the one before it
 *	--readonly
 *
 * A line for each disk says what happened and when, in milliseconds since
 * before the transaction that began it.  Exit status: 0, or 1 when libxl would
 * have failed.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <xen/io/xenbus.h>
#include <xenstore.h>

#define INIT_MS		10000	/* LIBXL_INIT_TIMEOUT */
#define DESTROY_MS	10000	/* LIBXL_DESTROY_TIMEOUT */
#define HOTPLUG_MS	40000	/* LIBXL_HOTPLUG_TIMEOUT */
#define CONNECT_MS	10000	/* as for a bootloader's disk */
#define PATH_SIZE	128

enum phase { INITWAIT, ADD, CONNECTED, CLOSED, REMOVE, DONE };

static const char *const phase_names[] = { "initwait", "script", "connected",
	"closed", "script" };
static const int limits[] = { INIT_MS, HOTPLUG_MS, CONNECT_MS, DESTROY_MS,
	HOTPLUG_MS };

struct disk {
	unsigned domid, devid, number;
	char	 be[PATH_SIZE], fe[PATH_SIZE], libxl[PATH_SIZE];
	char	 spec[1024];
	enum phase phase;
	int64_t	 begun;			/* microseconds */
	int64_t	 until;
	pid_t	 script;		/* running; 0: none */
	char	 said[256];
	bool	 failed;
};

static struct xs_handle *xs;
static const char *script;
static bool connected, in_turn, readonly, force;
static int sigchld;

static int64_t
now_us(void)
{
	struct timespec	ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

static void die(const char *, ...) __attribute__((format(printf, 1, 2),
    noreturn));

static void
die(const char *fmt, ...)
{
	va_list	ap;

	va_start(ap, fmt);
	fputs("toolstack: ", stderr);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
	va_end(ap);
	exit(1);
}

static void
ends(struct disk *d, const char *why)
{
	if (why != NULL) {
		d->failed = true;
		fprintf(stderr, "toolstack: disk %u/%u: %s\n", d->domid,
		    d->devid, why);
	}
	d->phase = DONE;
	printf("disk %u/%u%s %s\n", d->domid, d->devid, d->said,
	    why == NULL ? "ok" : "failed");
}

static void
enter(struct disk *d, enum phase phase)
{
	d->phase = phase;
	d->until = now_us() + (int64_t)limits[phase] * 1000;
}

static void
reached(struct disk *d)
{
	size_t	n = strlen(d->said);

	snprintf(d->said + n, sizeof(d->said) - n, " %s %.2f",
	    phase_names[d->phase], (double)(now_us() - d->begun) / 1000);
}

/* ---- xenstore ----------------------------------------------------------- */

static void
put(xs_transaction_t t, const char *dir, const char *node, const char *value)
{
	char	path[PATH_SIZE + 32];

	snprintf(path, sizeof(path), "%s/%s", dir, node);
	if (!xs_write(xs, t, path, value, (unsigned)strlen(value)))
		die("write %s: %s", path, strerror(errno));
}

static void
put_number(xs_transaction_t t, const char *dir, const char *node, unsigned n)
{
	char	value[16];

	snprintf(value, sizeof(value), "%u", n);
	put(t, dir, node, value);
}

/* 0 (Unknown) when it is not there. */
static unsigned
state_of(xs_transaction_t t, const char *dir)
{
	char		 path[PATH_SIZE + 8], *text;
	unsigned	 state = 0;

	snprintf(path, sizeof(path), "%s/state", dir);
	text = xs_read(xs, t, path, NULL);
	if (text != NULL)
		state = (unsigned)strtoul(text, NULL, 10);
	free(text);
	return state;
}

/* The owner may do everything, the other one may read. */
static void
make(xs_transaction_t t, const char *dir, unsigned owner, unsigned reader)
{
	struct xs_permissions	perms[2] = {
		{ .id = owner, .perms = XS_PERM_NONE },
		{ .id = reader, .perms = XS_PERM_READ },
	};

	if (!xs_mkdir(xs, t, dir) ||
	    !xs_set_permissions(xs, t, dir, perms, owner == reader ? 1 : 2))
		die("make %s: %s", dir, strerror(errno));
}

/* And what is empty above it. */
static void
cleanup(xs_transaction_t t, const char *path)
{
	char		 dir[PATH_SIZE], *slash, **names;
	unsigned	 n;

	snprintf(dir, sizeof(dir), "%s", path);
	do {
		if (!xs_rm(xs, t, dir) && errno != ENOENT)
			die("remove %s: %s", dir, strerror(errno));
		slash = strrchr(dir, '/');
		if (slash == NULL || slash == dir)
			return;
		*slash = '\0';
		names = xs_directory(xs, t, dir, &n);
		free(names);
	} while (names != NULL && n == 0);
}

static void
transaction(struct disk *d, void (*body)(struct disk *, xs_transaction_t))
{
	xs_transaction_t	t;

	for (;;) {
		t = xs_transaction_start(xs);
		if (t == XBT_NULL)
			die("start a transaction: %s", strerror(errno));
		body(d, t);
		if (xs_transaction_end(xs, t, false))
			return;
		if (errno != EAGAIN)
			die("end a transaction: %s", strerror(errno));
	}
}

static void
watch(struct disk *d, const char *dir, bool on)
{
	char	path[PATH_SIZE + 8], token[16];
	bool	good;

	snprintf(path, sizeof(path), "%s/state", dir);
	snprintf(token, sizeof(token), "%u", d->number);
	good = on ? xs_watch(xs, path, token) : xs_unwatch(xs, path, token);
	if (!good)
		die("%s %s: %s", on ? "watch" : "unwatch", path,
		    strerror(errno));
}

/* ---- what libxl writes -------------------------------------------------- */

static void
add_body(struct disk *d, xs_transaction_t t)
{
	make(t, d->libxl, 0, 0);
	put(t, d->libxl, "frontend", d->fe);
	put(t, d->libxl, "backend", d->be);
	put(t, d->libxl, "params", d->spec);
	make(t, d->fe, d->domid, 0);
	put(t, d->fe, "backend", d->be);
	put_number(t, d->fe, "backend-id", 0);
	put_number(t, d->fe, "state", XenbusStateInitialising);
	put_number(t, d->fe, "virtual-device", d->devid);
	put(t, d->fe, "device-type", "disk");
	put_number(t, d->fe, "trusted", 1);
	make(t, d->be, 0, d->domid);
	put(t, d->be, "frontend", d->fe);
	put(t, d->be, "params", d->spec);
	put(t, d->be, "script", script);
	put_number(t, d->be, "frontend-id", d->domid);
	put_number(t, d->be, "online", 1);
	put_number(t, d->be, "removable", 0);
	put_number(t, d->be, "bootable", 1);
	put_number(t, d->be, "state", XenbusStateInitialising);
	put(t, d->be, "dev", "xvda");
	put(t, d->be, "type", "phy");
	put(t, d->be, "mode", readonly ? "r" : "w");
	put(t, d->be, "device-type", "disk");
	put_number(t, d->be, "discard-enable", !readonly);
	put(t, d->be, "specification", "xen");
}

static void
begin_add(struct disk *d)
{
	if (state_of(XBT_NULL, d->be) != 0) {
		ends(d, "exists already");
		return;
	}
	d->begun = now_us();
	transaction(d, add_body);
	enter(d, INITWAIT);
	watch(d, d->be, true);
	if (connected)
		watch(d, d->fe, true);
}

static void
remove_body(struct disk *d, xs_transaction_t t)
{
	if (force)
		cleanup(t, d->fe);
	put_number(t, d->be, "online", 0);
	if (state_of(t, d->be) != XenbusStateClosed)
		put_number(t, d->be, "state", XenbusStateClosing);
}

static void
begin_remove(struct disk *d)
{
	if (state_of(XBT_NULL, d->be) == 0) {
		ends(d, "there is no such disk");
		return;
	}
	d->begun = now_us();
	transaction(d, remove_body);
	enter(d, CLOSED);
	watch(d, d->be, true);
}

static void
destroy_body(struct disk *d, xs_transaction_t t)
{
	cleanup(t, d->fe);
	cleanup(t, d->be);
	cleanup(t, d->libxl);
}

/* ---- the script --------------------------------------------------------- */

static void
run_script(struct disk *d, const char *action)
{
	char		 type[] = "XENBUS_TYPE=vbd", base[] =
			    "XENBUS_BASE_PATH=backend";
	char		 path[PATH_SIZE], me[256];
	char		 search[] = "PATH=/usr/bin:/bin";
	char		*env[] = { me, type, path, base, search, NULL };
	sigset_t	 none;

	snprintf(me, sizeof(me), "script=%s", script);
	snprintf(path, sizeof(path), "XENBUS_PATH=backend/vbd/%u/%u",
	    d->domid, d->devid);
	fflush(stdout);
	d->script = fork();
	if (d->script < 0)
		die("fork: %s", strerror(errno));
	if (d->script > 0)
		return;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	dup2(STDERR_FILENO, STDOUT_FILENO);
	execle(script, script, action, NULL, env);
	_exit(127);
}

static void
script_ended(struct disk *d, int status)
{
	d->script = 0;
	if (d->phase == DONE)
		return;
	reached(d);
	if (d->phase == REMOVE) {
		transaction(d, destroy_body);	/* whatever it says */
		ends(d, NULL);
	} else if (status != 0) {
		ends(d, "the script failed");
	} else if (connected) {
		enter(d, CONNECTED);
	} else {
		watch(d, d->be, false);
		ends(d, NULL);
	}
}

/* ---- steps -------------------------------------------------------------- */

static void
closed(struct disk *d)
{
	watch(d, d->be, false);
	enter(d, REMOVE);
	run_script(d, "remove");
}

static void
look(struct disk *d)
{
	unsigned	state;

	if (d->phase == DONE || d->script > 0)
		return;
	state = state_of(XBT_NULL, d->be);
	if (state == 0) {
		ends(d, "its backend was removed");
	} else if (d->phase == INITWAIT && state == XenbusStateInitWait) {
		reached(d);
		enter(d, ADD);
		run_script(d, "add");
	} else if (d->phase == CONNECTED && state == XenbusStateConnected &&
	    state_of(XBT_NULL, d->fe) == XenbusStateConnected) {
		reached(d);
		watch(d, d->be, false);
		watch(d, d->fe, false);
		ends(d, NULL);
	} else if (d->phase == CLOSED && state == XenbusStateClosed) {
		reached(d);
		closed(d);
	}
}

/* A destroy goes on, whatever the backend does. */
static void
too_late(struct disk *d)
{
	char	why[64];

	snprintf(why, sizeof(why), "%s took more than %d s",
	    phase_names[d->phase], limits[d->phase] / 1000);
	if (d->script > 0)
		kill(d->script, SIGKILL);
	if (d->phase == CLOSED && force) {
		fprintf(stderr, "toolstack: disk %u/%u: %s\n", d->domid,
		    d->devid, why);
		d->failed = true;
		closed(d);
	} else {
		ends(d, why);
	}
}

static void
reap(struct disk *disks, unsigned n)
{
	struct signalfd_siginfo	 info;
	int			 status;
	pid_t			 pid;
	unsigned		 i;

	if (read(sigchld, &info, sizeof(info)) < 0)
		die("read a signal: %s", strerror(errno));
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		for (i = 0; i < n && disks[i].script != pid; i++)
			;
		if (i < n)
			script_ended(&disks[i], status);
		if (i < n && disks[i].phase != DONE)
			look(&disks[i]);
	}
}

static void
hear(struct disk *disks, unsigned n)
{
	char		**event;
	unsigned long	  i;

	while ((event = xs_check_watch(xs)) != NULL) {
		i = strtoul(event[XS_WATCH_TOKEN], NULL, 10);
		free(event);
		if (i < n)
			look(&disks[i]);
	}
}

/* How long until the next of them is late, in ms; -1: none is busy. */
static int
next_limit(struct disk *d, struct disk *end)
{
	int64_t	least = -1, now = now_us();

	for (; d < end; d++) {
		if (d->phase != DONE && now >= d->until)
			too_late(d);
		if (d->phase != DONE && (least < 0 || d->until - now < least))
			least = d->until - now;
	}
	return least < 0 ? -1 : (int)(least / 1000 + 1);
}

/* Until disks from 'from' to 'to' are done. */
static void
finish(struct disk *disks, unsigned n, unsigned from, unsigned to)
{
	struct pollfd	fds[2] = {
		{ .fd = xs_fileno(xs), .events = POLLIN },
		{ .fd = sigchld, .events = POLLIN },
	};
	int		ms;

	while ((ms = next_limit(disks + from, disks + to)) >= 0) {
		if (poll(fds, 2, ms) < 0 && errno != EINTR)
			die("poll: %s", strerror(errno));
		if (fds[0].revents != 0)
			hear(disks, n);
		if (fds[1].revents != 0)
			reap(disks, n);
	}
}

/* ---- which disks -------------------------------------------------------- */

static unsigned
devid_of(unsigned i)
{
	return i < 16 ? 202u << 8 | i << 4 : 1u << 28 | i << 8;
}

static void
name(struct disk *d, unsigned number, unsigned domid, unsigned devid)
{
	d->number = number;
	d->domid = domid;
	d->devid = devid;
	snprintf(d->be, PATH_SIZE, "/local/domain/0/backend/vbd/%u/%u", domid,
	    devid);
	snprintf(d->fe, PATH_SIZE, "/local/domain/%u/device/vbd/%u", domid,
	    devid);
	snprintf(d->libxl, PATH_SIZE, "/libxl/%u/device/vbd/%u", domid, devid);
}

/* All that libxl knows of. */
static unsigned
enumerate(unsigned domid, struct disk **disks)
{
	char		 path[PATH_SIZE], **names;
	unsigned	 n = 0, i;

	snprintf(path, sizeof(path), "/libxl/%u/device/vbd", domid);
	names = xs_directory(xs, XBT_NULL, path, &n);
	*disks = calloc(n + 1, sizeof(**disks));
	if (*disks == NULL)
		die("out of memory");
	for (i = 0; names != NULL && i < n; i++)
		name(&(*disks)[i], i, domid,
		    (unsigned)strtoul(names[i], NULL, 10));
	free(names);
	return n;
}

static unsigned
parse(const char *domains, const char *which, struct disk **disks)
{
	unsigned	 first, last, n = 1, i, nr;
	char		 junk;

	if (sscanf(domains, "%u-%u%c", &first, &last, &junk) != 2) {
		if (sscanf(domains, "%u%c", &first, &junk) != 1)
			die("%s: not a domain", domains);
		last = first;
	}
	if (which == NULL)
		return enumerate(first, disks);
	if (which[0] == 'x' && sscanf(which, "x%u%c", &n, &junk) != 1)
		die("%s: not a number of disks", which);
	nr = last - first + 1;
	*disks = calloc(n, sizeof(**disks));
	if (*disks == NULL)
		die("out of memory");
	for (i = 0; i < n; i++)
		name(&(*disks)[i], i, first + i % nr, which[0] == 'x' ?
		    devid_of(i / nr) : (unsigned)strtoul(which, NULL, 10));
	return n;
}

static void
fill_spec(struct disk *d, const char *spec)
{
	const char	*at = strstr(spec, "%u");

	if (at == NULL)
		snprintf(d->spec, sizeof(d->spec), "%s", spec);
	else
		snprintf(d->spec, sizeof(d->spec), "%.*s%u%s",
		    (int)(at - spec), spec, d->number, at + 2);
}

static void
setup(void)
{
	sigset_t	set;

	script = getenv("BLOCK_SCRIPT");
	if (script == NULL)
		die("BLOCK_SCRIPT is not set");
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0 ||
	    (sigchld = signalfd(-1, &set, SFD_CLOEXEC)) < 0)
		die("signals: %s", strerror(errno));
	xs = xs_open(0);
	if (xs == NULL)
		die("connect to xenstored: %s", strerror(errno));
}

static int
usage(void)
{
	fprintf(stderr, "usage: toolstack attach|detach|destroy [--connected] "
	    "[--in-turn] [--readonly] DOMID [DEVID|xCOUNT [SPEC]]\n");
	return 2;
}

static int
work(struct disk *disks, unsigned n, bool attach, const char *spec)
{
	unsigned	i;
	int		status = 0;

	for (i = 0; i < n; i++) {
		if (attach)
			fill_spec(&disks[i], spec);
		disks[i].phase = DONE;
	}
	for (i = 0; i < n; i++) {
		if (attach)
			begin_add(&disks[i]);
		else
			begin_remove(&disks[i]);
		if (in_turn)
			finish(disks, n, i, i + 1);
	}
	finish(disks, n, 0, n);
	for (i = 0; i < n; i++)
		status |= disks[i].failed;
	return status;
}

int
main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "connected", no_argument, NULL, 'c' },
		{ "in-turn", no_argument, NULL, 't' },
		{ "readonly", no_argument, NULL, 'r' },
		{ NULL, 0, NULL, 0 },
	};
	struct disk	*disks;
	unsigned	 n;
	bool		 attach;
	int		 c, status;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == '?')
			return usage();
		connected |= c == 'c';
		in_turn |= c == 't';
		readonly |= c == 'r';
	}
	argc -= optind;
	argv += optind;
	if (argc < 2)
		return usage();
	attach = strcmp(argv[0], "attach") == 0;
	force = strcmp(argv[0], "destroy") == 0;
	if (attach ? argc != 4 : argc > 3 || (argc < 3 && !force) ||
	    (!force && strcmp(argv[0], "detach") != 0))
		return usage();
	setup();
	n = parse(argv[1], argc > 2 ? argv[2] : NULL, &disks);
	status = work(disks, n, attach, argc > 3 ? argv[3] : NULL);
	xs_close(xs);
	free(disks);
	return status;
}
