/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * supervisor: the event loop, the watches, and which disks there are (see
 * supervisor.h).
 *
 * Watches:
 *   backend/KIND          "backend"      which directories there are, and every
 *                                        node in them
 *   <frontend>/state      "DOMID/DEVID"  set by vbd.c
 *   @releaseDomain        "release"      some domain has ended
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "blkback/client.h"
#include "blkback/kernel.h"

#define EVENTS_MAX 256	/* of xenstore, in one go */

bool
supervisor_has_kind(const struct supervisor *sup, const char *kind)
{
	unsigned i;

	for (i = 0; i < sup->opt->nr_kinds; i++)
		if (strcmp(sup->opt->kind[i], kind) == 0)
			return true;
	return false;
}

/* After everything that is done: is xenstored still there? */
static int
on_done(sd_event_source *source, void *arg)
{
	struct supervisor *sup = arg;

	(void)source;
	if (!sup->xs.lost)
		return 0;
	log_error(0, "the connection to xenstored is lost; the disks go on "
	    "being served, start ringbackd again when xenstored runs");
	return sd_event_exit(sup->event, 1);
}

/* ---- which disks there are ----------------------------------------------- */

static void
found(struct supervisor *sup, const char *kind, uint32_t domid, uint32_t devid)
{
	struct vbd *v = vbd_find(sup, domid, devid);

	if (v == NULL)
		v = vbd_new(sup, kind, domid, devid);
	if (v == NULL)
		log_error(-ENOMEM, "vbd %u/%u", domid, devid);
	else if (strcmp(v->kind, kind) == 0)
		vbd_touch(v);
	else
		log_guest(&v->limit, "%s: ignored in backend/%s, as it is in "
		    "backend/%s already", v->name, kind, v->kind);
}

static void
scan_domain(struct supervisor *sup, const char *kind, uint32_t domid)
{
	char path[64], **devices;
	uint32_t devid;
	unsigned n, i;

	snprintf(path, sizeof(path), "backend/%s/%u", kind, domid);
	devices = xenstore_list(&sup->xs, XBT_NULL, path, &n);
	for (i = 0; i < n; i++)
		if (xenstore_parse_u32(devices[i], UINT32_MAX, &devid) == 0)
			found(sup, kind, domid, devid);
	free(devices);
}

static void
scan(struct supervisor *sup, const char *kind)
{
	char path[64], **domains;
	uint32_t domid;
	unsigned n, i;

	snprintf(path, sizeof(path), "backend/%s", kind);
	domains = xenstore_list(&sup->xs, XBT_NULL, path, &n);
	for (i = 0; i < n; i++)
		if (xenstore_parse_u32(domains[i], UINT16_MAX, &domid) == 0)
			scan_domain(sup, kind, domid);
	free(domains);
}

static void
touch_all(struct supervisor *sup)
{
	struct vbd *v;

	LIST_FOREACH(v, &sup->vbds, link)
		vbd_touch(v);
}

/* Something below backend/ has changed. */
static void
backend_event(struct supervisor *sup, const char *path)
{
	uint32_t domid, devid;
	char kind[KIND_MAX];
	unsigned i;

	if (xenstore_parse_backend(path, kind, sizeof(kind), &domid, &devid,
	    NULL) == 0) {
		found(sup, kind, domid, devid);
		return;
	}
	/* A whole domain, or a whole kind; also the watch's first event. */
	for (i = 0; i < sup->opt->nr_kinds; i++) {
		size_t n = strlen(sup->opt->kind[i]);

		if (strncmp(path, "backend/", 8) == 0 &&
		    strncmp(path + 8, sup->opt->kind[i], n) == 0 &&
		    (path[8 + n] == '\0' || path[8 + n] == '/'))
			scan(sup, sup->opt->kind[i]);
	}
	/* What was removed is no longer found. */
	touch_all(sup);
}

static void
watch_event(struct supervisor *sup, const char *path, const char *token)
{
	uint32_t domid, devid;
	struct vbd *v;

	if (strcmp(token, "backend") == 0) {
		backend_event(sup, path);
	} else if (strcmp(token, "release") == 0) {
		touch_all(sup);
	} else if (xenstore_parse_id(token, '/', &domid, &devid) == 0) {
		v = vbd_find(sup, domid, devid);
		if (v == NULL)
			return;
		/* Closed and Initialising again may have become one event. */
		v->now.spent = false;
		vbd_touch(v);
	}
}

static int
on_xenstore(sd_event_source *source, int fd, uint32_t events, void *arg)
{
	struct supervisor *sup = arg;
	char **event = NULL;
	unsigned k;
	int i;

	(void)source;
	(void)fd;
	(void)events;
	/*
	 * A guest can cause events as fast as it likes; all that each of them
	 * does is to touch a vbd.  Between two batches the vbds get their turn.
	 */
	for (i = 0; i < EVENTS_MAX; i++) {
		event = xs_check_watch(sup->xs.xs);
		if (event == NULL)
			break;
		watch_event(sup, event[XS_WATCH_PATH], event[XS_WATCH_TOKEN]);
		free(event);
	}
	if (event != NULL || errno == EAGAIN)
		return 0;
	if (errno == ENOMEM) {
		/* libxenstore has thrown it away: whatever it was about. */
		for (k = 0; k < sup->opt->nr_kinds; k++)
			scan(sup, sup->opt->kind[k]);
		touch_all(sup);
	} else if (i == 0) {
		sup->xs.lost = true;
	}
	return 0;
}

static int
on_lifeline(sd_event_source *source, int fd, uint32_t events, void *arg)
{
	struct supervisor *sup = arg;

	(void)fd;
	(void)events;
	sup->xs.lost = true;		/* see on_done() */
	return sd_event_source_set_enabled(source, SD_EVENT_OFF);
}

static void
step_touched(struct supervisor *sup)
{
	struct vbd *v, *last = TAILQ_LAST(&sup->touched, vbd_queue);

	/* Those that are touched meanwhile have to wait for the next round. */
	while ((v = TAILQ_FIRST(&sup->touched)) != NULL) {
		bool end = v == last;

		TAILQ_REMOVE(&sup->touched, v, work);
		v->touched = false;
		vbd_step(v);
		if (end)
			break;
	}
}

static int
on_work(sd_event_source *source, void *arg)
{
	struct supervisor *sup = arg;
	int rc = 0;

	step_touched(sup);
	if (!TAILQ_EMPTY(&sup->touched))
		rc = sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
	return rc;
}

/* ---- starting and stopping ----------------------------------------------- */

/* Take what is needed from the name of a file in the run directory. */
static bool
parse_file(const char *name, const char *suffix, uint32_t *domid,
    uint32_t *devid)
{
	char id[32];
	size_t n = strlen(name), s = strlen(suffix);

	if (n <= s || n - s >= sizeof(id) || strcmp(name + n - s, suffix) != 0)
		return false;
	memcpy(id, name, n - s);
	id[n - s] = '\0';
	return xenstore_parse_id(id, '-', domid, devid) == 0;
}

/*
 * What a predecessor has left in the run directory: processes whose disk is
 * gone, names of processes that are gone, pages of both.
 */
static void
find_orphans(struct supervisor *sup)
{
	DIR *dir = opendir(sup->opt->run_dir);
	uint32_t domid, devid;
	struct dirent *e;

	if (dir == NULL) {
		log_error(-errno, "cannot read %s", sup->opt->run_dir);
		return;
	}
	while ((e = readdir(dir)) != NULL)
		if (parse_file(e->d_name, ".sock", &domid, &devid) &&
		    vbd_find(sup, domid, devid) == NULL)
			vbd_new_orphan(sup, domid, devid);
	rewinddir(dir);
	while ((e = readdir(dir)) != NULL)
		if (parse_file(e->d_name, ".page", &domid, &devid) &&
		    vbd_find(sup, domid, devid) == NULL &&
		    unlinkat(dirfd(dir), e->d_name, 0) != 0)
			log_error(-errno, "cannot remove %s/%s",
			    sup->opt->run_dir, e->d_name);
	closedir(dir);
}

static int
make_run_dir(const char *path)
{
	struct stat st;

	if (mkdir(path, 0755) == 0) {
		if (chmod(path, 0755) != 0)
			goto err;
	} else if (errno != EEXIST) {
		goto err;
	}
	if (stat(path, &st) != 0)
		goto err;
	if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() ||
	    (st.st_mode & 022) != 0) {
		log_error(0, "%s is not a directory that only root can write "
		    "to; remove it, or name another with --run-dir", path);
		return -EPERM;
	}
	return 0;

err:
	log_error(-errno, "cannot make the run directory %s", path);
	return -errno;
}

/*
 * One supervisor per run directory.  The descriptor, kept open, or -errno.
 * The lock is the process's own: a child that is about to become a disk
 * process when we are killed must not keep the next supervisor out.
 */
static int
lock_run_dir(const char *dir)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	char path[128], pid[16] = "";
	bool held;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "%s/lock", dir);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0) {
		log_error(-errno, "cannot open %s", path);
		return -1;
	}
	if (fcntl(fd, F_SETLK, &lock) != 0) {
		held = errno == EAGAIN || errno == EACCES;
		n = held ? read(fd, pid, sizeof(pid) - 1) : 0;
		pid[n > 0 ? n : 0] = '\0';
		log_error(held ? 0 : -errno,
		    "another ringbackd (process %s) serves %s; stop that, or "
		    "name another directory with --run-dir", pid, dir);
		close(fd);
		return -1;
	}
	n = snprintf(pid, sizeof(pid), "%d", (int)getpid());
	if (ftruncate(fd, 0) != 0 || pwrite(fd, pid, n, 0) != n)
		log_error(-errno, "cannot write %s, going on", path);
	return fd;
}

static int
on_stop(sd_event_source *source, const struct signalfd_siginfo *info,
    void *arg)
{
	struct supervisor *sup = arg;

	(void)source;
	log_info("stopping at signal %u; the disks go on being served",
	    info->ssi_signo);
	return sd_event_exit(sup->event, 0);
}

/* To systemd, if it started us. */
static void
notify(const char *state)
{
	int rc = sd_notify(0, state);

	if (rc < 0)
		log_error(rc, "cannot tell systemd %s", state);
}

static int
on_reload(sd_event_source *source, const struct signalfd_siginfo *info,
    void *arg)
{
	struct supervisor *sup = arg;

	(void)source;
	(void)info;
	notify("RELOADING=1");
	if (options_reload(sup->opt) < 0)
		log_error(0, "what was read before that still holds");
	else
		log_info("the configuration is read again; it holds for disks "
		    "that are attached from now on");
	notify("READY=1");
	return 0;
}

static int
on_child(sd_event_source *source, const struct signalfd_siginfo *info,
    void *arg)
{
	struct supervisor *sup = arg;
	int status;
	pid_t pid;

	(void)source;
	(void)info;
	/* Signals of several children may have become one. */
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		vbd_reaped(sup, pid, status);
	return 0;
}

static int
start_loop(struct supervisor *sup)
{
	int rc;

	rc = sd_event_new(&sup->event);
	if (rc >= 0)
		rc = sd_event_add_signal(sup->event, NULL, SIGTERM, on_stop,
		    sup);
	if (rc >= 0)
		rc = sd_event_add_signal(sup->event, NULL, SIGINT, on_stop,
		    sup);
	if (rc >= 0)
		rc = sd_event_add_signal(sup->event, NULL, SIGCHLD, on_child,
		    sup);
	if (rc >= 0)
		rc = sd_event_add_signal(sup->event, NULL, SIGHUP, on_reload,
		    sup);
	/* Only if systemd asks for it: nothing wakes an idle daemon else. */
	if (rc >= 0)
		rc = sd_event_set_watchdog(sup->event, true);
	if (rc >= 0)
		rc = sd_event_add_post(sup->event, NULL, on_done, sup);
	if (rc >= 0)
		rc = sd_event_add_defer(sup->event, &sup->work, on_work, sup);
	if (rc >= 0)
		rc = sd_event_source_set_enabled(sup->work, SD_EVENT_OFF);
	if (rc < 0)
		log_error(rc, "cannot make the event loop");
	return rc;
}

static int
start_xenstore(struct supervisor *sup)
{
	char path[64];
	unsigned i;
	int rc;

	rc = xenstore_open(&sup->xs);
	if (rc < 0) {
		log_error(rc, "cannot connect to xenstored; is it running?");
		return rc;
	}
	rc = xenstore_read_u32(&sup->xs, XBT_NULL, "domid", "", UINT16_MAX,
	    &sup->own_domid);
	if (rc == -ENOENT) {
		sup->own_domid = 0;
		rc = 0;
	}
	for (i = 0; rc == 0 && i < sup->opt->nr_kinds; i++) {
		snprintf(path, sizeof(path), "backend/%s", sup->opt->kind[i]);
		rc = xenstore_watch(&sup->xs, path, "backend");
	}
	if (rc == 0)
		rc = xenstore_watch(&sup->xs, "@releaseDomain", "release");
	if (rc == 0)
		rc = sd_event_add_io(sup->event, NULL, xs_fileno(sup->xs.xs),
		    EPOLLIN, on_xenstore, sup);
	if (rc >= 0 && sup->xs.lifeline >= 0)
		rc = sd_event_add_io(sup->event, NULL, sup->xs.lifeline,
		    EPOLLIN, on_lifeline, sup);
	if (rc < 0)
		log_error(rc, "cannot use xenstore");
	return rc;
}

/* Not a reason to end: other kinds are served, and it can be unloaded. */
static void
look_for_rival(struct supervisor *sup)
{
	char why[WHY_MAX];

	if (supervisor_has_kind(sup, KERNEL_KIND) &&
	    kernel_backend(sup->opt->sysfs, why))
		log_error(0, "no disk of kind " KERNEL_KIND " can be attached: "
		    "%s", why);
}

static int
start(struct supervisor *sup)
{
	unsigned i;
	int rc;

	look_for_rival(sup);
	rc = start_loop(sup);
	if (rc >= 0)
		rc = start_xenstore(sup);
	if (rc < 0)
		return rc;
	/*
	 * Find what is there before anybody can ask for more: whoever serves
	 * a directory is taken over, and the rest has none.
	 */
	sup->xs.error = 0;
	for (i = 0; i < sup->opt->nr_kinds; i++)
		scan(sup, sup->opt->kind[i]);
	if (sup->xs.error != 0) {
		log_error(sup->xs.error, "cannot read which disks there are "
		    "in xenstore; start ringbackd again");
		return sup->xs.error;
	}
	step_touched(sup);
	find_orphans(sup);

	rc = control_start(sup);
	if (rc < 0)
		log_error(rc, "cannot listen on %s/" CONTROL_SOCKET,
		    sup->opt->run_dir);
	return rc;
}

/* The disk processes stay, but for those whose disk is not made yet. */
static void
stop(struct supervisor *sup)
{
	struct vbd *v;

	control_stop(sup);
	while ((v = LIST_FIRST(&sup->vbds)) != NULL) {
		if (v->creating)
			vbd_close_process(v);
		vbd_leave_process(v);
		v->claimed = false;
		v->keep_page = true;
		vbd_free(v);
	}
	sd_event_source_disable_unref(sup->work);
	sd_event_unref(sup->event);
	if (sup->xs.xs != NULL)
		xenstore_close(&sup->xs);
}

int
supervisor_main(struct options *opt)
{
	static struct supervisor sup;
	sigset_t signals;
	int lock, rc;

	sup.opt = opt;
	LIST_INIT(&sup.vbds);
	TAILQ_INIT(&sup.touched);

	/* Before there is a second thread: they are read from a descriptor. */
	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGCHLD);
	sigaddset(&signals, SIGHUP);
	if (sigprocmask(SIG_BLOCK, &signals, NULL) != 0 ||
	    signal(SIGPIPE, SIG_IGN) == SIG_ERR) {
		log_error(-errno, "cannot set up signals");
		return 1;
	}
	if (make_run_dir(opt->run_dir) < 0)
		return 1;
	lock = lock_run_dir(opt->run_dir);
	if (lock < 0)
		return 1;

	rc = start(&sup);
	if (rc >= 0) {
		log_info("ready, version " RINGBACK_VERSION ", domain %u",
		    sup.own_domid);
		notify("READY=1");
		rc = sd_event_loop(sup.event);
		if (rc < 0)
			log_error(rc, "the event loop failed");
	}
	notify("STOPPING=1");
	stop(&sup);
	close(lock);
	return rc == 0 ? 0 : 1;
}
