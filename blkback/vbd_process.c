/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * vbd_process: what a vbd and its disk process say to each other.
 *
 * Each message changes the levels of the vbd (image, link) and touches it; what
 * follows from that is device.h's business.  Every way in which a process can
 * be lost ends in process_lost().
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "blkback/clock.h"
#include "blkback/media.h"

#define MESSAGES_MAX    16		/* in one go */
#define LOCK_RETRY_US   50000u		/* a migrated guest stands still */
#define LOCK_WAIT_US    30000000u
#define DEATHS_US       60000000u
#define REDO_TRIES      3u

void
vbd_set_error(struct vbd *v, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(v->error, sizeof(v->error), fmt, ap);
	va_end(ap);
}

/* The image, or with it the ring, cannot be used.  v->error says why. */
static void
failed(struct vbd *v)
{
	v->lock_wait = false;
	v->lock_deadline = 0;
	/* So that this Initialising is not offered the disk over and over. */
	if (v->now.theirs == XenbusStateInitialising)
		v->now.spent = true;
	vbd_touch(v);
}

static void
image_failed(struct vbd *v)
{
	v->now.image = IMAGE_FAILED;
	failed(v);
}

void
vbd_link_failed(struct vbd *v, const char *why)
{
	vbd_set_error(v, "%s", why);
	log_guest(&v->limit, "%s: cannot connect: %s", v->name, why);
	v->now.link = LINK_FAILED;
	failed(v);
}

static int on_process(sd_event_source *source, int fd, uint32_t events,
    void *arg);
static void redo_lost(struct vbd *v);
static int watch_process(struct vbd *v);
static void process_lost(struct vbd *v, const char *what);
static uint32_t pick_uid(struct supervisor *sup);
static void prepare_open(struct vbd *v);

/* How many deaths there were in the last minute, with this one. */
static unsigned
count_death(struct vbd *v)
{
	uint64_t now = clock_us();
	unsigned i, n = 0;

	v->death[v->nr_deaths++ % DEATHS_KEPT] = now;
	for (i = 0; i < DEATHS_KEPT && i < v->nr_deaths; i++)
		n += now - v->death[i] < DEATHS_US;
	return n;
}

/* Is a successor being started that goes on with a connection? */
static bool
resuming(const struct vbd *v)
{
	return v->resume == RESUME_REPLAY || v->resume == RESUME_FAIL;
}

/* The disk process died while it was needed: what now? */
static void
disk_died(struct vbd *v, const char *what)
{
	bool opened = v->now.image == IMAGE_OPEN || v->resume != RESUME_NO;
	bool served = v->now.link == LINK_READY || v->now.link == LINK_UP ||
	    resuming(v);
	bool last = v->resume == RESUME_FAIL;
	unsigned limit = v->sup->opt->max_deaths;
	bool often = count_death(v) >= limit && limit > 0;

	vbd_set_error(v, "its disk process %d %s%s", (int)v->last_pid, what,
	    served ? " while the guest was using the disk" : "");
	log_error(0, "%s: %s", v->name, v->error);
	v->resume = RESUME_NO;
	if (opened && !last && served) {
		v->resume = often ? RESUME_FAIL : RESUME_REPLAY;
		vbd_start_process(v);
	} else if (opened && !last && !often) {
		/*
		 * The guest has nothing in flight: begin anew, but with what
		 * it has been told was done.
		 */
		v->now.link = v->now.link == LINK_BROKEN ? LINK_FAILED :
		    LINK_DOWN;
		v->now.image = IMAGE_NONE;
		if (!vbd_redo(v))
			vbd_touch(v);
	} else {
		redo_lost(v);
		v->now.link = LINK_FAILED;
		image_failed(v);
	}
}

/* Its exit status comes later, maybe when the vbd has been forgotten. */
static void
remember(struct vbd *v)
{
	struct ended *e = &v->sup->ended[v->sup->nr_ended++ % ENDED_MAX];

	e->pid = v->proc.pid;
	snprintf(e->name, sizeof(e->name), "%s", v->name);
}

/* After so many failures, what can be done is to say it. */
static void
redo_lost(struct vbd *v)
{
	if (vbd_redo_left(v))
		log_error(0, "%s: writes that %s had not got yet are lost: %s",
		    v->name, v->spec, v->error);
}

/*
 * The process was told to close, but died before the image was up to date.  Its
 * successor is told to open and to close: nobody else hears of it.
 */
static bool
redo_after_closing(struct vbd *v)
{
	int rc;

	/* What an orphan says of itself, we do not know to be true. */
	if (v->orphan || v->redo_tries >= REDO_TRIES || !vbd_redo_left(v))
		return false;
	if (v->open.spec[0] == '\0' && v->claimed)
		prepare_open(v);	/* it died before it was heard of */
	if (v->open.spec[0] == '\0')
		return false;
	v->redo_tries++;
	v->uid = pick_uid(v->sup);
	rc = process_spawn(&v->proc, v->sup->opt->run_dir,
	    v->sup->opt->backing_root, v->domid, v->devid);
	if (rc < 0) {
		vbd_set_error(v, "cannot start a disk process: %s",
		    strerror(-rc));
		return false;
	}
	log_info("%s: its disk process %d ended before %s was up to date; "
	    "another one sees to that", v->name, (int)v->last_pid, v->spec);
	v->proc.closing = true;
	v->redoing = true;
	if (watch_process(v) < 0)
		process_lost(v, "cannot be watched");
	return true;
}

static void
process_lost(struct vbd *v, const char *what)
{
	bool closing = v->proc.closing;
	bool found = v->adopting && !v->proc.hello;

	if (!closing && v->proc.pid == 0)
		v->proc.pid = vbd_page_pid(v);
	if (!closing)
		process_kill(&v->proc, v->domid, v->devid);
	v->io = sd_event_source_disable_unref(v->io);
	v->last_pid = v->proc.pid;
	remember(v);
	process_end(&v->proc, v->sup->opt->run_dir, v->domid, v->devid);
	v->adopting = false;
	v->lock_wait = false;
	v->lock_deadline = 0;
	vbd_resize_lost(v);
	if (closing && media_interrupted(v))
		closing = false;
	if (!closing && found) {
		/* It was about to end when we came: as if it had not been. */
		log_error(0, "%s: process %d, found running, %s", v->name,
		    (int)v->last_pid, what);
		v->looked = false;
		v->now.image = IMAGE_NONE;
		v->now.link = LINK_DOWN;
		vbd_touch(v);
		return;
	}
	if (!closing) {
		if (!media_died(v, what))
			disk_died(v, what);
		return;
	}
	if (media_closed(v) || redo_after_closing(v))
		return;
	redo_lost(v);
	vbd_remove_page(v);
	if (v->now.link != LINK_FAILED)
		v->now.link = LINK_DOWN;
	vbd_touch(v);
}

/* A message that cannot be sent means a process that cannot be used. */
static void
tell(struct vbd *v, struct message *m)
{
	int rc;

	m->generation = v->generation;
	rc = process_send(&v->proc, m);
	if (rc == -EPIPE)
		process_lost(v, "ended");
	else if (rc < 0)
		process_lost(v, rc == -EAGAIN ? "reads no messages" :
		    strerror(-rc));
}

/* ---- what the vbd asks for ---------------------------------------------- */

static int
watch_process(struct vbd *v)
{
	int rc;

	rc = sd_event_add_io(v->sup->event, &v->io, v->proc.fd, EPOLLIN,
	    on_process, v);
	if (rc < 0) {
		vbd_set_error(v, "cannot watch its disk process: %s",
		    strerror(-rc));
		log_error(0, "%s: %s", v->name, v->error);
	}
	return rc;
}

bool
vbd_adopt(struct vbd *v)
{
	int rc;

	v->looked = true;
	rc = process_adopt(&v->proc, v->sup->opt->run_dir, v->domid, v->devid);
	if (rc == -ENOENT)	/* there is at most a name, of one that died */
		process_end(&v->proc, v->sup->opt->run_dir, v->domid, v->devid);
	else if (rc < 0)
		log_error(rc, "%s: cannot connect to its disk process",
		    v->name);
	if (rc < 0)
		return false;
	if (watch_process(v) < 0) {
		/* It goes on serving; the next supervisor may do better. */
		vbd_leave_process(v);
		return false;
	}
	v->adopting = true;
	v->now.image = IMAGE_OPENING;
	v->now.link = LINK_UNKNOWN;
	return true;
}

/* The smallest uid of the range that no other disk has. */
static uint32_t
pick_uid(struct supervisor *sup)
{
	uint32_t uid = sup->opt->uid_base;
	struct vbd *v;

	if (uid == 0)
		return NO_UID;
again:
	LIST_FOREACH(v, &sup->vbds, link) {
		if (v->proc.fd >= 0 && v->uid == uid) {
			uid++;
			goto again;
		}
	}
	return uid;
}

/* What the process is going to be told of the disk. */
static void
prepare_open(struct vbd *v)
{
	struct message_open *o = &v->open;

	memset(o, 0, sizeof(*o));
	o->domid = v->domid;
	o->devid = v->devid;
	o->readonly = v->readonly;
	/* A toolstack's disk may still be in use at a migration's source. */
	o->activate = v->by_hand || v->media.phase != MEDIA_STILL;
	o->uid = v->uid;
	o->discard = v->discard;
	o->resume = v->resume;
	snprintf(o->uuid, sizeof(o->uuid), "%s", v->uuid);
	snprintf(o->backend, sizeof(o->backend), "%s", v->path);
	snprintf(o->spec, sizeof(o->spec), "%s", v->full);
	snprintf(v->opened, sizeof(v->opened), "%s", v->spec);
}

void
vbd_start_process(struct vbd *v)
{
	int rc;

	v->looked = true;
	v->redoing = false;
	v->redo_tries = 0;
	v->uid = pick_uid(v->sup);
	prepare_open(v);
	rc = process_spawn(&v->proc, v->sup->opt->run_dir,
	    v->sup->opt->backing_root, v->domid, v->devid);
	if (rc < 0) {
		vbd_set_error(v, "cannot start a disk process: %s",
		    strerror(-rc));
		log_error(0, "%s: %s", v->name, v->error);
		v->now.link = LINK_FAILED;
		image_failed(v);
		return;
	}
	v->now.image = IMAGE_OPENING;
	if (resuming(v))
		v->now.link = LINK_UNKNOWN;
	else if (v->resume == RESUME_NO)
		v->now.link = LINK_DOWN;
	if (watch_process(v) < 0)
		process_lost(v, "cannot be watched");
}

void
vbd_open_image(struct vbd *v)
{
	if (v->bad_spec[0] != '\0') {
		v->looked = true;
		vbd_set_error(v, "%s", v->bad_spec);
		image_failed(v);
		return;
	}
	if (vbd_contested(v)) {
		v->looked = true;
		log_guest(&v->limit, "%s: not served: %s", v->name, v->error);
		image_failed(v);
		return;
	}
	vbd_start_process(v);
}

/*
 * Does the guest have a connection, and does the page file tell of it?  The
 * ring is the one that the frontend shows: if the page's is another, the
 * successor refuses it.
 */
static bool
can_succeed(struct vbd *v)
{
	char why[WHY_MAX] = "its page file is missing or not one of this "
	    "version's, or tells of no connection";

	if ((v->now.ours != XenbusStateConnected &&
	    v->now.ours != XenbusStateClosing) || v->bad_spec[0] != '\0')
		return false;
	if (vbd_read_page(v) && vbd_read_rings(v, &v->rings, why) == 0)
		return true;
	log_error(0, "%s: what was in flight cannot be taken up: %s", v->name,
	    why);
	return false;
}

bool
vbd_succeed(struct vbd *v)
{
	if (!can_succeed(v))
		return false;
	log_info("%s: its disk process died while ringbackd was not running",
	    v->name);
	v->resume = RESUME_REPLAY;
	vbd_start_process(v);
	return true;
}

bool
vbd_redo(struct vbd *v)
{
	if (v->bad_spec[0] != '\0' || !vbd_redo_left(v))
		return false;
	v->resume = RESUME_REDO;
	vbd_start_process(v);
	return true;
}

static void
send_open(struct vbd *v)
{
	struct message m;

	message_init(&m, MSG_OPEN);
	m.u.open = v->open;
	tell(v, &m);
}

/* To one that succeeds a process that was closing: the same, and CLOSE. */
static void
send_redo(struct vbd *v)
{
	struct message m;

	v->open.domid = v->domid;	/* it may be from a HELLO */
	v->open.devid = v->devid;
	v->open.uid = v->uid;
	v->open.resume = RESUME_REDO;
	message_init(&m, MSG_OPEN);
	m.u.open = v->open;
	m.generation = v->generation;
	if (process_send(&v->proc, &m) == 0) {
		message_init(&m, MSG_CLOSE);
		m.generation = v->generation;
		if (process_send(&v->proc, &m) == 0)
			return;
	}
	process_kill(&v->proc, v->domid, v->devid);
}

void
vbd_close_process(struct vbd *v)
{
	struct message m;

	if (v->proc.fd < 0 || v->proc.closing)
		return;
	v->proc.closing = true;
	v->lock_wait = false;
	/* Nothing can be done with it any more, but it may hold a ring. */
	if (v->now.image != IMAGE_FAILED)
		v->now.image = IMAGE_NONE;
	if (v->now.link != LINK_DOWN && v->now.link != LINK_FAILED)
		v->now.link = LINK_DRAINING;
	message_init(&m, MSG_CLOSE);
	tell(v, &m);
}

void
vbd_leave_process(struct vbd *v)
{
	v->io = sd_event_source_disable_unref(v->io);
	if (v->proc.fd >= 0)
		close(v->proc.fd);
	process_init(&v->proc);
}

void
vbd_kill_process(struct vbd *v)
{
	v->proc.closing = false;
	if (v->proc.fd >= 0)
		process_lost(v, "was killed");
}

/* By itself, the same connection again: for a successor. */
static void
send_connect(struct vbd *v)
{
	struct message m;

	message_init(&m, MSG_CONNECT);
	m.u.connect = v->rings;
	tell(v, &m);
}

void
vbd_connect(struct vbd *v)
{
	v->lock_wait = false;
	v->now.link = LINK_CONNECTING;
	v->generation++;
	send_connect(v);
}

bool
vbd_retry(struct vbd *v)
{
	struct message m;

	if (!v->stopped || v->proc.fd < 0)
		return false;
	message_init(&m, MSG_RETRY);
	tell(v, &m);
	return true;
}

void
vbd_disconnect(struct vbd *v)
{
	struct message m;

	if (v->lock_wait) {
		/* Asked for, refused, and not yet asked for again. */
		v->lock_wait = false;
		v->lock_deadline = 0;
		v->now.link = LINK_DOWN;
		return;
	}
	v->now.link = LINK_DRAINING;
	message_init(&m, MSG_DISCONNECT);
	tell(v, &m);
}

/* ---- what the process says ---------------------------------------------- */

/*
 * A successor that our predecessor has started, but not brought as far as to
 * serve the guest: we go on where it stopped.
 */
static bool
adopt_successor(struct vbd *v, const struct message *m)
{
	const struct message_hello *h = &m->u.hello;

	if (!v->claimed || h->phase == PHASE_CONNECTED ||
	    (h->phase == PHASE_OPEN && h->open.resume != RESUME_REPLAY &&
	    h->open.resume != RESUME_FAIL) ||
	    (v->media.phase != MEDIA_STILL && !vbd_read_page(v)) ||
	    !can_succeed(v))
		return false;
	log_info("%s: found a successor, process %d", v->name, h->pid);
	v->resume = RESUME_REPLAY;
	if (h->phase == PHASE_EMPTY) {
		v->uid = pick_uid(v->sup);
		prepare_open(v);
		send_open(v);
		return true;
	}
	v->resume = h->open.resume;
	v->uid = h->open.uid;
	v->open = h->open;
	if (!vbd_take_full(v, h->open.spec))
		snprintf(v->open.spec, sizeof(v->open.spec), "%s", v->full);
	snprintf(v->opened, sizeof(v->opened), "%s", v->spec);
	snprintf(v->open.backend, sizeof(v->open.backend), "%s", v->path);
	v->geometry = m->geometry;
	v->now.image = IMAGE_OPEN;
	send_connect(v);
	return true;
}

static void
on_adopted(struct vbd *v, const struct message *m)
{
	const struct message_hello *h = &m->u.hello;

	v->adopting = false;
	v->proc.pid = h->pid;
	if (adopt_successor(v, m))
		return;
	v->uid = h->open.uid;
	v->generation = m->generation;
	v->now.link = h->phase == PHASE_CONNECTED ? LINK_READY : LINK_DOWN;
	if (media_adopted(v, h))
		return;
	if (h->phase == PHASE_EMPTY || !v->claimed ||
	    h->open.readonly != v->readonly ||
	    strcmp(h->open.backend, v->path) != 0 ||
	    !vbd_take_full(v, h->open.spec)) {
		log_info("%s: closing process %d, left over from another disk",
		    v->name, h->pid);
		vbd_close_process(v);
		return;
	}
	v->open = h->open;
	snprintf(v->opened, sizeof(v->opened), "%s", v->spec);
	v->geometry = m->geometry;
	v->now.image = IMAGE_OPEN;
	if (h->phase == PHASE_CONNECTED) {
		if (!vbd_read_page(v))
			log_error(0, "%s: its page file tells of no ring",
			    v->name);
		if (v->now.ours != XenbusStateInitWait &&
		    v->media.phase == MEDIA_STILL)
			v->now.link = LINK_UP;
	}
	log_info("%s: found again, process %d", v->name, h->pid);
}

static int
on_hello(struct vbd *v, const struct message *m)
{
	const struct message_hello *h = &m->u.hello;

	if (v->proc.hello || h->domid != v->domid || h->devid != v->devid)
		return -EPROTO;
	v->proc.hello = true;
	if (v->proc.closing) {
		if (v->proc.pid == 0)
			v->proc.pid = h->pid;
		if (v->redoing)
			send_redo(v);
	} else if (v->orphan) {
		v->proc.pid = h->pid;
		v->open = h->open;
	} else if (v->adopting) {
		on_adopted(v, m);
	} else if (h->phase == PHASE_EMPTY) {
		send_open(v);
	} else {
		return -EPROTO;
	}
	return 0;
}

static int
on_opened(struct vbd *v, const struct message *m)
{
	if (v->proc.closing && v->redoing && m->error < 0) {
		vbd_set_error(v, "%s", m->why);
		v->redo_tries = REDO_TRIES;
	}
	if (v->proc.closing)
		return 0;
	if (v->now.image != IMAGE_OPENING || v->adopting)
		return -EPROTO;
	if (m->error < 0) {
		vbd_set_error(v, "%s", m->why);
		log_error(0, "%s: cannot open %s: %s", v->name, v->spec,
		    m->why);
		if (media_failed(v))
			return 0;
		/* Once more, without the connection, if that was wrong. */
		v->redo_tries = resuming(v) ? REDO_TRIES - 1 : REDO_TRIES;
		v->resume = RESUME_NO;
		v->now.link = LINK_DOWN;
		image_failed(v);
		vbd_close_process(v);
		return 0;
	}
	v->geometry = m->geometry;
	v->now.image = IMAGE_OPEN;
	if (resuming(v)) {
		send_connect(v);
		return 0;
	}
	v->resume = RESUME_NO;
	log_info("%s: %s is open, %llu bytes%s", v->name, v->spec,
	    (unsigned long long)v->geometry.size,
	    v->geometry.readonly ? ", read-only" : "");
	return 0;
}

/* Somebody else has the image, or the process is still busy: try again. */
static void
wait_for_lock(struct vbd *v, const char *why)
{
	uint64_t now = clock_us();

	if (v->lock_deadline == 0) {
		v->lock_deadline = now + LOCK_WAIT_US;
		log_guest(&v->limit, "%s: waiting up to %u s for the image: "
		    "%s", v->name, LOCK_WAIT_US / 1000000, why);
	}
	if (now >= v->lock_deadline) {
		v->lock_deadline = 0;
		vbd_link_failed(v, why);
		return;
	}
	v->lock_wait = true;
	vbd_set_error(v, "waiting for the image: %s", why);
	vbd_touch_later(v, LOCK_RETRY_US);
}

/* The successor has the ring, or could not take it over. */
static int
on_resumed(struct vbd *v, const struct message *m)
{
	enum resume_mode mode = v->resume;

	/* It is at what our predecessor asked for: the same connection. */
	if (m->error == -EBUSY)
		return 0;
	v->resume = RESUME_NO;
	if (m->error < 0) {
		vbd_link_failed(v, m->why);
		return 0;
	}
	v->geometry = m->geometry;
	v->now.link = v->now.ours == XenbusStateInitWait ||
	    v->media.phase == MEDIA_OPENING ? LINK_READY : LINK_UP;
	if (mode == RESUME_FAIL) {
		vbd_set_error(v, "%u disk processes died in a minute; what "
		    "was in flight was answered with an error and the disk "
		    "is closed; look for the cause before you attach it again",
		    v->sup->opt->max_deaths);
		log_error(0, "%s: %s", v->name, v->error);
		v->now.link = LINK_BROKEN;
		failed(v);
		return 0;
	}
	vbd_set_error(v, "%s", "");
	log_info("%s: process %d goes on with the guest's requests", v->name,
	    (int)v->proc.pid);
	return 0;
}

static int
on_connected(struct vbd *v, const struct message *m)
{
	if (v->proc.closing || v->now.link == LINK_DRAINING)
		return 0;
	if (resuming(v))
		return m->generation == v->generation ? on_resumed(v, m) :
		    -EPROTO;
	/* Busy with what our predecessor asked for: it does not say whose. */
	if (m->error == -EBUSY && v->now.link == LINK_CONNECTING) {
		wait_for_lock(v, m->why);
		return 0;
	}
	if (m->generation != v->generation || v->now.link != LINK_CONNECTING) {
		/*
		 * An answer to our predecessor.  Nobody knows any more which
		 * ring that is.
		 */
		if (m->error == 0) {
			v->lock_wait = false;
			vbd_disconnect(v);
		}
		return 0;
	}
	if (m->error == -EAGAIN) {
		wait_for_lock(v, m->why);
		return 0;
	}
	v->lock_deadline = 0;
	if (m->error < 0) {
		vbd_link_failed(v, m->why);
		return 0;
	}
	v->geometry = m->geometry;
	v->now.link = LINK_READY;
	return 0;
}

static int
on_disconnected(struct vbd *v, const struct message *m)
{
	if (m->error < 0) {
		vbd_set_error(v, "%s", m->why);
		log_guest(&v->limit, "%s: after disconnecting: %s", v->name,
		    m->why);
	}
	if (!v->proc.closing && v->now.link == LINK_DRAINING)
		v->now.link = LINK_DOWN;
	return 0;
}

static int
on_broken(struct vbd *v, const struct message *m)
{
	if (m->generation != v->generation ||
	    (v->now.link != LINK_READY && v->now.link != LINK_UP))
		return 0;
	vbd_set_error(v, "%s", m->why);
	log_guest(&v->limit, "%s: no longer served: %s", v->name, m->why);
	v->now.link = LINK_BROKEN;
	failed(v);
	return 0;
}

static int
on_stopped(struct vbd *v, const struct message *m)
{
	if (m->generation != v->generation)
		return 0;
	v->stopped = m->error < 0;
	vbd_set_error(v, "%s", m->why);
	return 0;
}

static int
on_message(struct vbd *v, const struct message *m)
{
	if (m->type != MSG_HELLO && !v->proc.hello)
		return -EPROTO;
	switch (m->type) {
	case MSG_HELLO:
		return on_hello(v, m);
	case MSG_OPENED:
		return on_opened(v, m);
	case MSG_CONNECTED:
		return on_connected(v, m);
	case MSG_DISCONNECTED:
		return on_disconnected(v, m);
	case MSG_BROKEN:
		return on_broken(v, m);
	case MSG_STOPPED:
		return on_stopped(v, m);
	case MSG_RESIZED:
		vbd_resized(v, m);
		return 0;
	case MSG_CLOSED:
		if (m->error < 0)
			log_error(0, "%s: on closing: %s", v->name, m->why);
		return 0;
	default:
		return -EPROTO;
	}
}

static int
on_process(sd_event_source *source, int fd, uint32_t events, void *arg)
{
	struct vbd *v = arg;
	struct message m;
	int i, rc = 0;

	(void)source;
	(void)events;
	/* A process that never stops talking does not keep others waiting. */
	for (i = 0; i < MESSAGES_MAX && v->proc.fd == fd; i++) {
		rc = message_recv(fd, &m);
		if (rc == 0)
			rc = on_message(v, &m);
		if (rc < 0)
			break;
	}
	if (rc < 0 && rc != -EAGAIN && v->proc.fd == fd) {
		if (rc != -EPIPE)
			v->proc.closing = false;	/* have it killed */
		process_lost(v, rc == -EPIPE ? "died" :
		    "sent a message that makes no sense and was killed");
	}
	vbd_touch(v);
	return 0;
}

static const char *
whose(struct supervisor *sup, pid_t pid)
{
	unsigned i;
	struct vbd *v;

	LIST_FOREACH(v, &sup->vbds, link) {
		if (v->proc.pid == pid) {
			v->proc.child = false;	/* the number may be reused */
			return v->name;
		}
	}
	for (i = 0; i < ENDED_MAX; i++)
		if (sup->ended[i].pid == pid)
			return sup->ended[i].name;
	return "vbd unknown";
}

void
vbd_reaped(struct supervisor *sup, pid_t pid, int status)
{
	const char *name = whose(sup, pid);

	if (WIFSIGNALED(status))
		log_error(0, "%s: process %d was ended by signal %d", name,
		    (int)pid, WTERMSIG(status));
	else if (WEXITSTATUS(status) == PROCESS_NOT_STARTED)
		log_error(0, "%s: process %d could not be started", name,
		    (int)pid);
	else if (WEXITSTATUS(status) != 0)
		log_error(0, "%s: process %d ended with exit status %d", name,
		    (int)pid, WEXITSTATUS(status));
}
