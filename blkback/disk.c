/* SPDX-License-Identifier: GPL-2.0-or-later */
/* disk: the main thread, and what it has its workers do (see disk.h). */
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "blkback/disk.h"
#include "blkback/log.h"
#include "blkback/message.h"
#include "blkback/page.h"
#include "blkback/sandbox.h"
#include "blkback/worker.h"

#define TAKEOVER_MS 5000	/* wait for a predecessor's lock */

/*
 * A connect and a disconnect go in stages.  Each is a command to one worker
 * (for the image, which may block) or to all that have a queue of the
 * connection; the next one begins when all of them are done.
 *
 *   ACTIVATE -> CONNECT -> answered
 *                  | failed
 *   DISCONNECT    UNDO
 *       |          |
 *       +----------+-> DEACTIVATE -> answered
 *
 * An image that is the disk's for good (OPEN said "activate") is neither
 * activated nor deactivated here.
 */
enum stage {
	STAGE_IDLE,
	STAGE_ACTIVATE,
	STAGE_CONNECT,
	STAGE_UNDO,
	STAGE_DISCONNECT,
	STAGE_DEACTIVATE,
};

struct disk {
	const char        *run_dir;
	const char *const *backing_roots;
	int                supervisor;	/* its connection, or -1 */
	int                signal_fd;
	struct message_open open;	/* as we were opened */
	struct disk_spec   spec;
	struct image      *img;		/* NULL: PHASE_EMPTY */
	struct message_geometry geometry;	/* its, when no stage was */
	struct page       *page;
	struct page_shape  shape;	/* of it; redo memory: the image's */
	struct arena       memory;	/* shared out to the queues */
	bool               closing;	/* CLOSE or SIGTERM: exit when idle */
	bool               disconnect;	/* asked for while we are busy */
	uint32_t           generation;	/* of the connection */
	struct message_connect connect;	/* likewise */
	enum resume_mode   resume;	/* of the next connect */
	bool               connected;
	bool               told_broken;
	int                told_stopped;

	enum stage         stage;
	enum message_type  answer;	/* that it will end with */
	int                error;	/* in it: 0 or -errno */
	char               why[WHY_MAX];

	/* Queue i is served by worker i % nr_workers. */
	unsigned           nr_queues, nr_workers;
	struct queue       queue[MAX_QUEUES];
	struct worker      worker[MAX_QUEUES];
	struct worker_team team;
};

static bool
busy(const struct disk *d)
{
	return d->stage != STAGE_IDLE;
}

/* ---- on a worker, or before there are any -------------------------------- */

/*
 * From before the image is activated until it is deactivated in order, its redo
 * memory may hold what the image lacks.
 *
 * The kernel closes a dead process's files one after the other: its socket's
 * end may be seen before its lock on the image is gone.
 */
static int
activate(void *arg, char why[WHY_MAX])
{
	struct disk *d = arg;
	bool successor = d->resume != RESUME_NO ||
	    d->open.resume == RESUME_REDO;
	int rc, tries = successor ? TAKEOVER_MS : 0;
	const struct timespec nap = { 0, 1000000 };
	uint32_t used = d->page->header.redo_used;

	d->page->header.redo_used = 1;
	for (;;) {
		rc = image_activate(d->img, why);
		if (rc != -EAGAIN || tries-- == 0)
			break;
		nanosleep(&nap, NULL);
	}
	if (rc < 0)
		d->page->header.redo_used = used;
	return rc;
}

static int
deactivate(void *arg, char why[WHY_MAX])
{
	struct disk *d = arg;
	int rc = image_deactivate(d->img, why);

	if (rc == 0)
		d->page->header.redo_used = 0;
	return rc;
}

/* ---- talking to the supervisor ------------------------------------------- */

/* For answers while a worker may be busy with the image. */
static void
note_geometry(struct disk *d)
{
	struct message_geometry *g = &d->geometry;

	g->size = d->img->size;
	g->block_size = d->img->block_size;
	g->physical_block_size = d->img->physical_block_size;
	g->discard_granularity = d->img->discard_granularity;
	g->discard_alignment = d->img->discard_alignment;
	g->readonly = d->img->readonly;
	g->flush = 1;
}

static void
hang_up(struct disk *d)
{
	close(d->supervisor);
	d->supervisor = -1;
}

static void
say(struct disk *d, struct message *m)
{
	int rc;

	if (d->supervisor < 0)
		return;
	m->generation = d->generation;
	if (d->img != NULL)
		m->geometry = d->geometry;
	rc = message_send(d->supervisor, m);
	if (rc < 0) {
		if (rc != -EPIPE)
			log_error(rc, "cannot answer the supervisor");
		hang_up(d);
	}
}

static void
answer(struct disk *d, enum message_type type, int error, const char *why)
{
	struct message m;

	message_init(&m, type);
	m.error = error;
	if (error < 0)
		snprintf(m.why, sizeof(m.why), "%s", why);
	say(d, &m);
}

/*
 * That the ring is broken, once; not before the supervisor has heard that it is
 * connected, or it would not know what to make of it.
 */
static void
tell_broken(struct disk *d)
{
	const char *broken = atomic_load(&d->team.broken);

	if (broken == NULL || d->told_broken || busy(d))
		return;
	d->told_broken = true;
	answer(d, MSG_BROKEN, -EPROTO, broken);
}

/* What the requests that wait for the operator failed with; 0: none waits. */
static int
stopped_queues(struct disk *d)
{
	int stopped = 0;
	unsigned i;

	for (i = 0; i < d->nr_workers && stopped == 0; i++)
		stopped = atomic_load(&d->worker[i].stopped);
	return stopped;
}

/* That requests wait for the operator, or no longer do. */
static void
tell_stopped(struct disk *d)
{
	int stopped = stopped_queues(d);
	char why[WHY_MAX] = "";

	if (stopped == d->told_stopped || busy(d))
		return;
	d->told_stopped = stopped;
	if (stopped != 0) {
		snprintf(why, sizeof(why), "I/O failed and waits: %s; mend the "
		    "storage (make room), then run ringback resume",
		    strerror(-stopped));
		log_error(0, "%s", why);
	} else {
		log_info("I/O goes on");
	}
	answer(d, MSG_STOPPED, stopped, why);
}

static void
say_hello(struct disk *d)
{
	struct message m;

	message_init(&m, MSG_HELLO);
	/* While we connect or disconnect, the answer to that will follow. */
	m.u.hello.phase = d->img == NULL ? PHASE_EMPTY :
	    !busy(d) && d->connected ? PHASE_CONNECTED : PHASE_OPEN;
	m.u.hello.domid = d->open.domid;
	m.u.hello.devid = d->open.devid;
	m.u.hello.pid = getpid();
	m.u.hello.open = d->open;
	say(d, &m);
	/* Whoever was told before is gone. */
	d->told_broken = false;
	d->told_stopped = 0;
	tell_broken(d);
	tell_stopped(d);
}

/* ---- opening ------------------------------------------------------------ */

static void
lock_memory(void)
{
	/* Not in reclaim while we are what reclaim waits for. */
	if (prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) != 0)
		log_error(-errno, "cannot become an I/O flusher "
		    "(CAP_SYS_RESOURCE), going on");
	if (mlockall(MCL_CURRENT) != 0)
		log_error(-errno, "cannot lock memory, going on");
}

static int
open_image(struct disk *d, char why[WHY_MAX])
{
	const struct image_options opt = {
		.format = d->spec.format,
		.path = d->spec.path,
		.empty = d->spec.path[0] == '\0',
		.readonly = d->spec.readonly || d->open.readonly,
		.discard = d->spec.discard && d->open.discard,
		.cache = d->spec.cache,
		.engine = d->spec.engine,
		.resumed = d->open.resume == RESUME_REPLAY ||
		    d->open.resume == RESUME_FAIL,
		.backing_roots = d->backing_roots,
	};
	int rc;

	rc = image_open(&opt, &d->img, why);
	if (rc == 0 && opt.cache == CACHE_UNSAFE && !opt.readonly)
		log_info("cache=unsafe: flushes are ignored; if this host goes "
		    "down, or the guest migrates, the disk's data is lost");
	return rc;
}

static void
page_path(const struct disk *d, char path[PATH_MAX])
{
	snprintf(path, PATH_MAX, "%s/%u-%u.page", d->run_dir, d->open.domid,
	    d->open.devid);
}

static int
open_page(struct disk *d, uint32_t generation, char why[WHY_MAX])
{
	const char *what = NULL;
	char path[PATH_MAX];
	int rc = -ENOENT;

	page_path(d, path);
	d->shape = (struct page_shape){
		.image_dev = d->img->dev, .image_ino = d->img->ino,
		.nr_queues = d->spec.queues, .redo_bytes = d->img->redo_bytes,
	};
	if (d->open.resume != RESUME_NO)
		rc = page_takeover(path, &d->open, &d->shape, generation,
		    &d->page, &what);
	if (rc < 0 && d->open.resume == RESUME_REDO) {
		log_error(rc == -ESTALE ? 0 : rc, "%s does not tell what this "
		    "image lacks%s%s: going on without", path,
		    what != NULL ? ", it is of another " : "",
		    what != NULL ? what : "");
		d->open.resume = RESUME_NO;
	}
	if (d->open.resume == RESUME_NO)
		rc = page_create(path, &d->open, &d->shape, &d->page);
	if (rc == 0)
		d->img->redo = page_redo(d->page, &d->shape);
	if (rc == -ESTALE)
		snprintf(why, WHY_MAX, "the page file %.256s is of another %s: "
		    "what was in flight cannot be taken up; detach and attach "
		    "the disk", path, what);
	else if (rc < 0)
		snprintf(why, WHY_MAX, "cannot make or map the page file "
		    "%.256s: %s", path, strerror(-rc));
	return rc;
}

/* A page that a predecessor left stays: it tells what was in flight. */
static void
close_page(struct disk *d)
{
	char path[PATH_MAX];

	if (d->page == NULL)
		return;
	page_close(d->page, &d->shape);
	d->page = NULL;
	page_path(d, path);
	/* Without privileges any more, it is left to the supervisor. */
	if (d->open.resume == RESUME_NO && unlink(path) != 0 &&
	    errno != EACCES && errno != EPERM)
		log_error(-errno, "cannot remove %s", path);
}

/*
 * In the sandbox, for it looks at what is in the image and in the redo memory.
 * A predecessor's redo memory is made use of at once, whoever comes next.
 */
static int
first_activate(struct disk *d, char why[WHY_MAX])
{
	int rc = 0;

	if (d->open.activate || d->open.resume == RESUME_REDO)
		rc = activate(d, why);
	if (rc == 0 && d->open.resume == RESUME_REDO) {
		log_info("the image has got what the process before had "
		    "not written yet");
		d->open.resume = RESUME_NO;
		if (!d->open.activate)
			rc = deactivate(d, why);
	}
	return rc;
}

static int
open_queues(struct disk *d, char why[WHY_MAX])
{
	unsigned i;
	int rc;

	rc = arena_init(&d->memory, d->spec.memory);
	if (rc < 0) {
		snprintf(why, WHY_MAX, "no memory for an arena of %u bytes; "
		    "use a smaller memory=", d->spec.memory);
		return rc;
	}
	for (i = 0; i < d->spec.queues; i++) {
		rc = queue_open(&d->queue[i], d->img, d->open.domid, &d->spec,
		    &d->memory, d->page, i, why);
		if (rc < 0)
			return rc;
		d->nr_queues++;
	}
	return 0;
}

static void
close_queues(struct disk *d)
{
	while (d->nr_queues > 0)
		queue_close(&d->queue[--d->nr_queues]);
	arena_fini(&d->memory);
}

static int
start_workers(struct disk *d)
{
	struct worker *w;
	unsigned i;
	int rc = 0;

	d->nr_workers = d->spec.iothreads;
	for (i = 0; i < d->nr_queues; i++) {
		w = &d->worker[i % d->nr_workers];
		w->queue[w->nr_queues++] = &d->queue[i];
	}
	for (i = 0; rc == 0 && i < d->nr_workers; i++)
		rc = worker_start(&d->worker[i], i, &d->team, d->spec.poll_us);
	return rc;
}

static void
stop_workers(struct disk *d)
{
	unsigned i;

	for (i = 0; i < d->nr_workers; i++)
		worker_stop(&d->worker[i]);
	memset(d->worker, 0, sizeof(d->worker));
	d->nr_workers = 0;
}

/*
 * What needs a privilege, then the sandbox.  On failure nothing is left to
 * close but what was open before, and the privileges may be gone.
 */
static int
give_up_privileges(struct disk *d, char why[WHY_MAX])
{
	int rc;

	rc = start_workers(d);
	lock_memory();
	if (rc == 0)
		rc = sandbox_enter(d->open.uid);
	if (rc < 0)
		snprintf(why, WHY_MAX, "cannot start the disk's threads or "
		    "give up privileges as uid %u: %s", d->open.uid,
		    strerror(-rc));
	return rc;
}

/*
 * Everything in the order that the sandbox asks for: what needs a privilege
 * first.  On failure everything is closed again but the privileges may be
 * gone, and only CLOSE is left to do.
 */
static int
disk_open(struct disk *d, const struct message_open *o, uint32_t generation,
    char why[WHY_MAX])
{
	int rc;

	rc = spec_parse_drive(o->spec, &d->spec, why);
	if (rc < 0)
		return rc;
	d->open = *o;
	d->resume = o->resume == RESUME_REDO ? RESUME_NO : o->resume;
	rc = open_image(d, why);
	if (rc < 0)
		return rc;
	rc = open_page(d, generation, why);
	if (rc == 0)
		rc = open_queues(d, why);
	if (rc == 0)
		rc = give_up_privileges(d, why);
	if (rc == 0)
		rc = first_activate(d, why);
	if (rc == 0) {
		note_geometry(d);
		return 0;
	}

	stop_workers(d);
	close_queues(d);
	image_close(d->img);
	d->img = NULL;
	close_page(d);
	return rc;
}

/* ---- stages ------------------------------------------------------------- */

/* How many workers have a queue of this connection: the first ones. */
static unsigned
used_workers(const struct disk *d)
{
	return d->connect.nr_queues < d->nr_workers ? d->connect.nr_queues :
	    d->nr_workers;
}

static void
post_all(struct disk *d, enum stage stage, enum worker_command command)
{
	unsigned i;

	d->stage = stage;
	for (i = 0; i < used_workers(d); i++)
		worker_post(&d->worker[i], command);
}

/* Something that may block, on the first worker. */
static void
post_call(struct disk *d, enum stage stage,
    int (*call)(void *arg, char why[WHY_MAX]))
{
	d->stage = stage;
	d->worker[0].call = call;
	d->worker[0].arg = d;
	worker_post(&d->worker[0], WORKER_CALL);
}

static void
begin_disconnect(struct disk *d)
{
	d->answer = MSG_DISCONNECTED;
	d->error = 0;
	post_all(d, STAGE_DISCONNECT, WORKER_DISCONNECT);
}

static void
finish(struct disk *d)
{
	d->stage = STAGE_IDLE;
	note_geometry(d);
	/* What HELLO says of it from now on: nothing is left to be done. */
	if (d->answer == MSG_CONNECTED && d->error == 0)
		d->open.resume = RESUME_NO;
	answer(d, d->answer, d->error, d->why);
	tell_broken(d);
	tell_stopped(d);
	if ((d->disconnect || d->closing) && d->connected)
		begin_disconnect(d);
	else if (d->disconnect && d->answer == MSG_CONNECTED)
		answer(d, MSG_DISCONNECTED, 0, "");
	d->disconnect = false;
}

/* No queue is connected (any more): let go of the image if we may. */
static void
leave_image(struct disk *d)
{
	if (!d->open.activate && d->img->active)
		post_call(d, STAGE_DEACTIVATE, deactivate);
	else
		finish(d);
}

/* A successor's first connection is the one that the page tells of. */
static int
prepare_page(struct disk *d, enum resume_mode resume)
{
	if (resume == RESUME_NO) {
		page_connect(d->page, &d->connect, d->generation);
	} else if (d->page->header.generation != d->generation ||
	    !page_same_connection(d->page, &d->connect)) {
		snprintf(d->why, sizeof(d->why), "the page file is of another "
		    "connection");
		return -ESTALE;
	}
	return 0;
}

static void
begin_connect(struct disk *d)
{
	enum resume_mode resume = d->resume;
	unsigned i;

	d->resume = RESUME_NO;
	d->error = prepare_page(d, resume);
	if (d->error < 0) {
		leave_image(d);
		return;
	}
	for (i = 0; i < used_workers(d); i++) {
		d->worker[i].connect = &d->connect;
		d->worker[i].resume = resume;
	}
	post_all(d, STAGE_CONNECT, WORKER_CONNECT);
}

/* Take the result of a worker over, unless there is an error already. */
static void
take_result(struct disk *d, const struct worker *w)
{
	if (d->error == 0 && w->error < 0) {
		d->error = w->error;
		memcpy(d->why, w->why, sizeof(d->why));
	}
}

static void
end_connect(struct disk *d)
{
	unsigned i;

	for (i = 0; i < used_workers(d); i++)
		take_result(d, &d->worker[i]);
	if (d->error < 0) {
		post_all(d, STAGE_UNDO, WORKER_DISCONNECT);
		return;
	}
	d->connected = true;
	d->page->header.connected = 1;
	finish(d);
}

static void
end_disconnect(struct disk *d)
{
	d->page->header.connected = 0;
	d->connected = false;
	atomic_store(&d->team.broken, NULL);
	leave_image(d);
}

static void
end_deactivate(struct disk *d)
{
	/* Of a connect that failed, the first error is the one to tell. */
	if (d->worker[0].error < 0 && d->error < 0)
		log_error(0, "%s", d->worker[0].why);
	take_result(d, &d->worker[0]);
	finish(d);
}

/* A worker is done with a command, or has something to tell. */
static void
on_worker(struct disk *d)
{
	unsigned i;

	for (i = 0; i < d->nr_workers; i++)
		if (worker_busy(&d->worker[i]))
			return;
	switch (d->stage) {
	case STAGE_IDLE:
		tell_broken(d);
		tell_stopped(d);
		break;
	case STAGE_ACTIVATE:
		take_result(d, &d->worker[0]);
		if (d->error < 0)
			finish(d);
		else
			begin_connect(d);
		break;
	case STAGE_CONNECT:
		end_connect(d);
		break;
	case STAGE_UNDO:
	case STAGE_DISCONNECT:
		end_disconnect(d);
		break;
	case STAGE_DEACTIVATE:
		end_deactivate(d);
		break;
	}
}

/* ---- what the supervisor says ------------------------------------------- */

static void
on_open(struct disk *d, const struct message *m)
{
	char why[WHY_MAX] = "";
	int rc;

	if (d->img != NULL) {
		answer(d, MSG_OPENED, -EBUSY, "the disk is open already");
		return;
	}
	rc = disk_open(d, &m->u.open, m->generation, why);
	answer(d, MSG_OPENED, rc, why);
}

static void
on_connect(struct disk *d, const struct message *m)
{
	char why[WHY_MAX];

	if (d->img == NULL || busy(d) || d->connected) {
		answer(d, MSG_CONNECTED, -EBUSY, d->img == NULL ?
		    "the image is not open" : "the disk is in use");
		return;
	}
	d->generation = m->generation;
	if (m->u.connect.nr_queues > d->nr_queues) {
		snprintf(why, sizeof(why), "the guest uses %u queues, the disk "
		    "has %u", m->u.connect.nr_queues, d->nr_queues);
		answer(d, MSG_CONNECTED, -EINVAL, why);
		return;
	}
	d->connect = m->u.connect;
	d->told_broken = false;
	d->answer = MSG_CONNECTED;
	d->error = 0;
	if (d->img->active)
		begin_connect(d);
	else
		post_call(d, STAGE_ACTIVATE, activate);
}

static void
on_disconnect(struct disk *d)
{
	if (busy(d))
		d->disconnect = true;
	else if (d->connected)
		begin_disconnect(d);
	else
		answer(d, MSG_DISCONNECTED, 0, "");
}

static void
on_close(struct disk *d)
{
	d->closing = true;
	if (!busy(d) && d->connected)
		begin_disconnect(d);
}

static void
on_retry(struct disk *d)
{
	unsigned i;

	for (i = 0; i < d->nr_workers; i++)
		worker_retry(&d->worker[i]);
}

/* An image that nobody uses is only taken for this. */
static int
resize_image(struct disk *d, uint64_t size, char why[WHY_MAX])
{
	char close_why[WHY_MAX];
	int rc, rc2 = 0;

	if (d->img->active)
		return image_resize(d->img, size, why);
	rc = activate(d, why);
	if (rc < 0)
		return rc;
	rc = image_resize(d->img, size, why);
	rc2 = deactivate(d, close_why);
	if (rc2 < 0 && rc == 0) {
		rc = rc2;
		memcpy(why, close_why, WHY_MAX);
	}
	return rc;
}

/*
 * Here, in the main thread, so that no worker stops serving meanwhile; each
 * queue sees the new size in its next round.
 */
static void
on_resize(struct disk *d, const struct message *m)
{
	char why[WHY_MAX] = "";
	int rc;

	if (d->img == NULL || busy(d) || d->closing ||
	    d->resume != RESUME_NO) {
		answer(d, MSG_RESIZED, -EBUSY, "the disk is just being "
		    "opened, connected or let go of; try again");
		return;
	}
	rc = resize_image(d, m->u.resize.size, why);
	note_geometry(d);
	if (rc == 0)
		log_info("the disk has %llu bytes now",
		    (unsigned long long)d->geometry.size);
	answer(d, MSG_RESIZED, rc, why);
}

static void
on_message(struct disk *d)
{
	struct message m;
	int rc;

	rc = message_recv(d->supervisor, &m);
	if (rc == -EAGAIN)
		return;
	if (rc < 0) {
		if (rc != -EPIPE)
			log_error(rc, "the supervisor's message makes no "
			    "sense");
		hang_up(d);
		return;
	}
	switch (m.type) {
	case MSG_OPEN:
		on_open(d, &m);
		break;
	case MSG_CONNECT:
		on_connect(d, &m);
		break;
	case MSG_DISCONNECT:
		on_disconnect(d);
		break;
	case MSG_CLOSE:
		on_close(d);
		break;
	case MSG_RETRY:
		on_retry(d);
		break;
	case MSG_RESIZE:
		on_resize(d, &m);
		break;
	default:
		log_error(0, "message %u is not for a disk process", m.type);
		hang_up(d);
		break;
	}
}

static void
on_connection(struct disk *d)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);
	int fd;

	fd = accept4(MESSAGE_DISK_FD, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0) {
		if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
			log_error(-errno, "cannot accept the supervisor");
		return;
	}
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) != 0 ||
	    peer.uid != 0 || d->supervisor >= 0) {
		close(fd);
		return;
	}
	d->supervisor = fd;
	say_hello(d);
}

static int
disk_close(struct disk *d)
{
	char why[WHY_MAX] = "";
	int rc = 0;

	stop_workers(d);
	close_queues(d);
	if (d->img != NULL && d->img->active)
		rc = deactivate(d, why);
	if (rc < 0)
		log_error(0, "%s", why);
	answer(d, MSG_CLOSED, rc, why);
	image_close(d->img);
	page_close(d->page, &d->shape);
	return rc < 0 ? 1 : 0;
}

static void
clear_done(struct disk *d)
{
	uint64_t n;

	if (read(d->team.done_fd, &n, sizeof(n)) != sizeof(n) &&
	    errno != EAGAIN)
		log_error(-errno, "cannot read an event");
}

static void
disk_loop(struct disk *d)
{
	struct pollfd fds[4];
	struct signalfd_siginfo info;

	while (!(d->closing && !busy(d) && !d->connected)) {
		fds[0] = (struct pollfd){ d->signal_fd, POLLIN, 0 };
		fds[1] = (struct pollfd){ d->team.done_fd, POLLIN, 0 };
		fds[2] = (struct pollfd){ MESSAGE_DISK_FD, POLLIN, 0 };
		fds[3] = (struct pollfd){ d->supervisor, POLLIN, 0 };
		if (poll(fds, 4, -1) < 0) {
			if (errno != EINTR)
				log_error(-errno, "cannot wait");
			continue;
		}
		if (fds[1].revents != 0) {
			clear_done(d);
			on_worker(d);
		}
		if (fds[0].revents != 0 &&
		    read(d->signal_fd, &info, sizeof(info)) > 0) {
			log_info("told to stop by signal %u", info.ssi_signo);
			on_close(d);
		}
		if (fds[3].revents != 0)
			on_message(d);
		if (fds[2].revents != 0)
			on_connection(d);
	}
}

int
disk_main(const char *run_dir, const char *const *backing_roots,
    unsigned domid, uint32_t devid)
{
	static struct disk d;
	sigset_t stop;

	log_name("vbd %u/%u", domid, devid);
	d.run_dir = run_dir;
	d.backing_roots = backing_roots;
	d.supervisor = -1;
	d.open.domid = domid;
	d.open.devid = devid;

	sigemptyset(&stop);
	sigaddset(&stop, SIGTERM);
	sigaddset(&stop, SIGINT);
	if (sigprocmask(SIG_BLOCK, &stop, NULL) != 0 ||
	    signal(SIGPIPE, SIG_IGN) == SIG_ERR ||
	    /* A file that may not grow is an error of one write: EFBIG. */
	    signal(SIGXFSZ, SIG_IGN) == SIG_ERR ||
	    (d.signal_fd = signalfd(-1, &stop,
	    SFD_CLOEXEC | SFD_NONBLOCK)) < 0 ||
	    (d.team.done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0) {
		log_error(-errno, "cannot set up the disk process");
		return 1;
	}
	disk_loop(&d);
	return disk_close(&d);
}
