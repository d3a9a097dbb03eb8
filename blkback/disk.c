/* SPDX-License-Identifier: GPL-2.0-or-later */
/* disk: the two threads of a disk process, and what they tell each other. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
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
#include "blkback/poll.h"
#include "blkback/queue.h"
#include "blkback/sandbox.h"

#define WORKER_STACK (512u << 10)
#define TAKEOVER_MS  5000	/* wait for a predecessor's lock */

/* What the main thread asks of the queue's thread; one thing at a time. */
enum command { CMD_NONE, CMD_CONNECT, CMD_DISCONNECT, CMD_EXIT };

struct disk {
	const char        *run_dir;
	const char *const *backing_roots;
	int                supervisor;	/* its connection, or -1 */
	int                signal_fd;
	struct message_open open;	/* as we were opened */
	struct disk_spec   spec;
	struct image      *img;		/* NULL: PHASE_EMPTY */
	struct page       *page;
	uint32_t           redo_bytes;	/* in it, lent to the image */
	bool               closing;	/* CLOSE or SIGTERM: exit when idle */
	bool               disconnect;	/* asked for while the thread is busy */
	enum command       posted;	/* and not yet answered */
	uint32_t           generation;	/* of the connection */
	bool               told_broken;
	int                told_stopped;

	/*
	 * The queue's thread.  'command' is handed over with release, and
	 * handed back the same way when it is done: what is above the line
	 * below belongs to whoever does not have it.
	 */
	pthread_t          thread;
	bool               running;
	_Atomic int        command;	/* enum command, NONE when it is done */
	int                wake_fd;	/* eventfd: look at 'command' */
	int                done_fd;	/* eventfd: 'command' done, or broken */
	struct message_connect connect;	/* argument of CMD_CONNECT */
	int                error;	/* result: 0 or -errno */
	char               why[WHY_MAX];
	bool               connected;
	enum resume_mode   resume;	/* of the next connect */
	/* ---- */
	_Atomic(const char *) broken;	/* why, once it is */
	_Atomic int        stopped;	/* -errno while requests are held */
	atomic_bool        retry;	/* asked for by the main thread */
	int                epoll_fd;	/* from here on the thread's own */
	struct queue       queue;
	struct poller      poller;
	uint64_t           nap_ns;	/* sleep no longer than this; 0: do */
	bool               armed;	/* the ring, since there was work */
	bool               slept;	/* likewise */
	int                delay_fd;	/* schedstat of the thread, or -1 */
	sem_t              started;	/* it is open */
};

static inline void
cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static uint64_t
clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

static void
event_set(int fd)
{
	uint64_t one = 1;

	/* A counter that is full is set already. */
	if (write(fd, &one, sizeof(one)) != sizeof(one) && errno != EAGAIN)
		log_error(-errno, "cannot wake a thread");
}

static void
event_clear(int fd)
{
	uint64_t n;

	if (read(fd, &n, sizeof(n)) != sizeof(n) && errno != EAGAIN)
		log_error(-errno, "cannot read an event");
}

/* ---- the queue's thread ------------------------------------------------ */

static void
command_done(struct disk *d, int error)
{
	d->error = error;
	atomic_store_explicit(&d->command, CMD_NONE, memory_order_release);
	event_set(d->done_fd);
}

/* A successor's first connection is the one that the page tells of. */
static int
worker_connect_queue(struct disk *d)
{
	enum resume_mode resume = d->resume;

	d->resume = RESUME_NO;
	if (resume == RESUME_NO) {
		page_connect(d->page, &d->connect, d->generation);
	} else if (d->page->header.generation != d->generation ||
	    !page_same_connection(d->page, &d->connect)) {
		snprintf(d->why, sizeof(d->why), "the page file is of another "
		    "connection");
		return -ESTALE;
	}
	return queue_connect(&d->queue, &d->connect.ring[0], d->connect.abi,
	    d->connect.persistent, resume, d->why);
}

/*
 * From before the image is activated until it is deactivated in order, its redo
 * memory may hold what the image lacks.
 *
 * The kernel closes a dead process's files one after the other: its socket's
 * end may be seen before its lock on the image is gone.
 */
static int
activate(struct disk *d, char why[WHY_MAX])
{
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
deactivate(struct disk *d, char why[WHY_MAX])
{
	int rc = image_deactivate(d->img, why);

	if (rc == 0)
		d->page->header.redo_used = 0;
	return rc;
}

static int
worker_connect(struct disk *d)
{
	char unlock[WHY_MAX];
	int rc;

	if (!d->img->active) {
		rc = activate(d, d->why);
		if (rc < 0)
			return rc;
	}
	rc = worker_connect_queue(d);
	if (rc < 0) {
		if (!d->open.activate && deactivate(d, unlock) < 0)
			log_error(0, "%s", unlock);
		return rc;
	}
	d->connected = true;
	d->page->header.connected = 1;
	return 0;
}

/* The queue is idle: let go of the guest, and of the image if we may. */
static void
worker_disconnected(struct disk *d)
{
	int rc = 0;

	queue_disconnect(&d->queue);
	d->page->header.connected = 0;
	d->connected = false;
	atomic_store(&d->broken, NULL);
	atomic_store(&d->stopped, 0);
	if (!d->open.activate)
		rc = deactivate(d, d->why);
	command_done(d, rc);
}

static void
worker_command(struct disk *d, int command)
{
	switch (command) {
	case CMD_CONNECT:
		command_done(d, worker_connect(d));
		break;
	case CMD_DISCONNECT:
		d->queue.draining = true;
		queue_retry(&d->queue);		/* nobody will come any more */
		if (queue_idle(&d->queue))
			worker_disconnected(d);
		break;
	default:
		break;
	}
}

/* epoll_wait() counts in milliseconds. */
static void
worker_nap(struct disk *d)
{
	struct pollfd fd = { d->epoll_fd, POLLIN, 0 };
	const struct timespec ts = { 0, (long)d->nap_ns };

	if (ppoll(&fd, 1, &ts, NULL) < 0 && errno != EINTR)
		log_error(-errno, "cannot wait for events");
}

/* Wait for something to happen, at most as long as the queue allows. */
static void
worker_sleep(struct disk *d)
{
	int evtchn = xenevtchn_fd(d->queue.evtchn), timeout = -1, n, i;
	struct epoll_event ev[3];

	if (d->connected) {
		timeout = queue_timeout(&d->queue);
		d->page->queue[0].stats.sleeps++;
		d->slept = true;
	}
	if (d->nap_ns > 0) {
		worker_nap(d);
		d->nap_ns = 0;
		timeout = 0;
	}
	n = epoll_wait(d->epoll_fd, ev, 3, timeout);
	if (n < 0 && errno != EINTR)
		log_error(-errno, "cannot wait for events");
	if (n == 0 && timeout > 0)
		queue_unmask(&d->queue);
	for (i = 0; i < n; i++) {
		if (ev[i].data.fd == d->wake_fd)
			event_clear(d->wake_fd);
		else if (ev[i].data.fd == evtchn)
			queue_event(&d->queue);
	}
}

/* Has this thread to wait for a CPU?  Somebody else needs it more, then. */
static void
worker_look(struct disk *d, uint64_t now)
{
	unsigned long long delay;
	char text[128];
	ssize_t n;

	n = pread(d->delay_fd, text, sizeof(text) - 1, 0);
	if (n > 0) {
		text[n] = '\0';
		if (sscanf(text, "%*u %llu", &delay) == 1)
			poll_delay(&d->poller, now, delay);
	}
}

/* No work: true: spin.  False: sleep, or nap, once the ring is armed. */
static bool
worker_spins(struct disk *d)
{
	struct queue *q = &d->queue;
	uint64_t now;

	if (q->poll_us == 0 || q->draining)
		return false;
	now = clock_ns();
	if (d->delay_fd >= 0 && poll_wants_delay(&d->poller, now))
		worker_look(d, now);
	switch (poll_idle(&d->poller, now, !queue_idle(q), &d->nap_ns)) {
	case POLL_SPIN:
		/* A guest that finds it armed would send an event. */
		if (d->armed)
			ring_disarm(&q->ring);
		d->armed = false;
		return true;
	case POLL_NAP:
		break;
	case POLL_SLEEP:
		d->nap_ns = 0;
		break;
	}
	d->armed = true;
	return false;
}

/*
 * Rounds while there is work; then spin as the poller says, the ring's
 * req_event behind so that the guest sends no event; then arm and sleep.
 * True: go on.  False: sleep.
 */
static bool
worker_serve(struct disk *d)
{
	struct queue *q = &d->queue;

	if (queue_round(q)) {
		if (poll_is_idle(&d->poller)) {
			if (!d->slept)
				d->page->queue[0].stats.polls++;
			poll_work(&d->poller, clock_ns());
		}
		d->armed = d->slept = false;
		return true;
	}
	if (q->broken != NULL && atomic_load(&d->broken) == NULL) {
		atomic_store(&d->broken, q->broken);
		event_set(d->done_fd);
	}
	if (q->stopped != atomic_load(&d->stopped)) {
		atomic_store(&d->stopped, q->stopped);
		event_set(d->done_fd);
	}
	if (q->draining && queue_idle(q)) {
		worker_disconnected(d);
		return true;
	}
	if (worker_spins(d)) {
		cpu_relax();
		return true;
	}
	return queue_arm(q);
}

static void *
worker_main(void *arg)
{
	struct disk *d = arg;
	int command;

	/* A nap of 400 us is not to be one of 450. */
	if (prctl(PR_SET_TIMERSLACK, 1ul, 0, 0, 0) != 0)
		log_error(-errno, "cannot set the timer slack, going on");
	d->delay_fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
	sem_post(&d->started);
	for (;;) {
		command = atomic_load_explicit(&d->command,
		    memory_order_acquire);
		if (command == CMD_EXIT)
			return NULL;
		/* A disconnect is done when the queue has become idle. */
		if (command == CMD_CONNECT ||
		    (command == CMD_DISCONNECT && !d->queue.draining))
			worker_command(d, command);
		if (atomic_exchange(&d->retry, false) && d->connected)
			queue_retry(&d->queue);
		if (!d->connected || !worker_serve(d))
			worker_sleep(d);
	}
}

static int
watch_fd(struct disk *d, int fd, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.fd = fd };

	return epoll_ctl(d->epoll_fd, EPOLL_CTL_ADD, fd, &ev) != 0 ? -errno : 0;
}

static int
worker_start(struct disk *d)
{
	int rc, channel = d->queue.channel->event_fd;
	pthread_attr_t attr;

	d->delay_fd = -1;
	sem_init(&d->started, 0, 0);
	poll_init(&d->poller, d->spec.poll_us);
	d->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	d->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (d->wake_fd < 0 || d->epoll_fd < 0)
		return -errno;
	rc = watch_fd(d, d->wake_fd, EPOLLIN);
	if (rc == 0)
		rc = watch_fd(d, xenevtchn_fd(d->queue.evtchn), EPOLLIN);
	/* Edge-triggered: nobody has to read it. */
	if (rc == 0 && channel >= 0)
		rc = watch_fd(d, channel, EPOLLIN | EPOLLET);
	if (rc < 0)
		return rc;

	/* Small: all of it is going to be locked. */
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, WORKER_STACK);
	rc = -pthread_create(&d->thread, &attr, worker_main, d);
	pthread_attr_destroy(&attr);
	d->running = rc == 0;
	/* What it opens, the sandbox would not let it. */
	while (d->running && sem_wait(&d->started) != 0 && errno == EINTR)
		;
	return rc;
}

/* ---- the main thread --------------------------------------------------- */

static bool
busy(const struct disk *d)
{
	return d->posted != CMD_NONE;
}

static void
post(struct disk *d, enum command c)
{
	assert(!busy(d));
	d->posted = c;
	atomic_store_explicit(&d->command, c, memory_order_release);
	event_set(d->wake_fd);
}

static void
worker_stop(struct disk *d)
{
	if (!d->running)
		return;
	post(d, CMD_EXIT);
	pthread_join(d->thread, NULL);
	d->running = false;
	d->posted = CMD_NONE;
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
	if (d->img != NULL) {
		m->geometry.size = d->img->size;
		m->geometry.block_size = d->img->block_size;
		m->geometry.physical_block_size = d->img->physical_block_size;
		m->geometry.discard_granularity = d->img->discard_granularity;
		m->geometry.discard_alignment = d->img->discard_alignment;
		m->geometry.readonly = d->img->readonly;
		m->geometry.flush = 1;
	}
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
	const char *broken = atomic_load(&d->broken);

	if (broken == NULL || d->told_broken || busy(d))
		return;
	d->told_broken = true;
	answer(d, MSG_BROKEN, -EPROTO, broken);
}

/* That requests wait for the operator, or no longer do. */
static void
tell_stopped(struct disk *d)
{
	int stopped = atomic_load(&d->stopped);
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
	/* While the thread connects or disconnects, its answer will follow. */
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
	d->redo_bytes = d->img->redo_bytes;
	if (d->open.resume != RESUME_NO)
		rc = page_takeover(path, &d->open, d->img->dev, d->img->ino,
		    d->redo_bytes, generation, &d->page, &what);
	if (rc < 0 && d->open.resume == RESUME_REDO) {
		log_error(rc == -ESTALE ? 0 : rc, "%s does not tell what this "
		    "image lacks%s%s: going on without", path,
		    what != NULL ? ", it is of another " : "",
		    what != NULL ? what : "");
		d->open.resume = RESUME_NO;
	}
	if (d->open.resume == RESUME_NO)
		rc = page_create(path, &d->open, d->img->dev, d->img->ino,
		    d->redo_bytes, &d->page);
	if (rc == 0)
		d->img->redo = page_redo(d->page, d->redo_bytes);
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
	page_close(d->page, d->redo_bytes);
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

/*
 * What needs a privilege, then the sandbox.  On failure nothing is left to
 * close but what was open before, and the privileges may be gone.
 */
static int
give_up_privileges(struct disk *d, char why[WHY_MAX])
{
	int rc;

	rc = worker_start(d);
	lock_memory();
	if (rc == 0)
		rc = sandbox_enter(d->open.uid);
	if (rc < 0)
		snprintf(why, WHY_MAX, "cannot start the disk's thread or "
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

	rc = spec_parse(o->spec, &d->spec, why);
	if (rc < 0)
		return rc;
	d->open = *o;
	d->resume = o->resume == RESUME_REDO ? RESUME_NO : o->resume;
	rc = open_image(d, why);
	if (rc < 0)
		return rc;
	rc = open_page(d, generation, why);
	if (rc == 0)
		rc = queue_open(&d->queue, d->img, o->domid, &d->spec,
		    &d->page->queue[0], why);
	if (rc == 0)
		rc = give_up_privileges(d, why);
	if (rc == 0)
		rc = first_activate(d, why);
	if (rc == 0)
		return 0;

	worker_stop(d);
	queue_close(&d->queue);
	image_close(d->img);
	d->img = NULL;
	close_page(d);
	return rc;
}

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
	if (d->img == NULL || busy(d) || d->connected) {
		answer(d, MSG_CONNECTED, -EBUSY, d->img == NULL ?
		    "the image is not open" : "the disk is in use");
		return;
	}
	d->generation = m->generation;
	d->connect = m->u.connect;
	d->told_broken = false;
	post(d, CMD_CONNECT);
}

static void
on_disconnect(struct disk *d)
{
	if (busy(d))
		d->disconnect = true;
	else if (d->running && d->connected)
		post(d, CMD_DISCONNECT);
	else
		answer(d, MSG_DISCONNECTED, 0, "");
}

static void
on_close(struct disk *d)
{
	d->closing = true;
	if (d->running && !busy(d) && d->connected)
		post(d, CMD_DISCONNECT);
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
		atomic_store(&d->retry, true);
		if (d->running)
			event_set(d->wake_fd);
		break;
	default:
		log_error(0, "message %u is not for a disk process", m.type);
		hang_up(d);
		break;
	}
}

/* The thread has finished a command, or has found the ring broken. */
static void
on_worker(struct disk *d)
{
	enum command done = d->posted;

	event_clear(d->done_fd);
	if (done == CMD_NONE) {
		tell_broken(d);
		tell_stopped(d);
		return;
	}
	if (atomic_load_explicit(&d->command, memory_order_acquire) != CMD_NONE)
		return;

	d->posted = CMD_NONE;
	/* What HELLO says of it from now on: nothing is left to be done. */
	if (done == CMD_CONNECT && d->error == 0)
		d->open.resume = RESUME_NO;
	answer(d, done == CMD_CONNECT ? MSG_CONNECTED : MSG_DISCONNECTED,
	    d->error, d->why);
	tell_broken(d);
	tell_stopped(d);
	if ((d->disconnect || d->closing) && d->connected)
		post(d, CMD_DISCONNECT);
	else if (d->disconnect && done == CMD_CONNECT)
		answer(d, MSG_DISCONNECTED, 0, "");
	d->disconnect = false;
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

	worker_stop(d);
	queue_close(&d->queue);
	if (d->img != NULL && d->img->active)
		rc = deactivate(d, why);
	if (rc < 0)
		log_error(0, "%s", why);
	answer(d, MSG_CLOSED, rc, why);
	image_close(d->img);
	page_close(d->page, d->redo_bytes);
	return rc < 0 ? 1 : 0;
}

static void
disk_loop(struct disk *d)
{
	struct pollfd fds[4];
	struct signalfd_siginfo info;

	while (!(d->closing && !busy(d) && !d->connected)) {
		fds[0] = (struct pollfd){ d->signal_fd, POLLIN, 0 };
		fds[1] = (struct pollfd){ d->done_fd, POLLIN, 0 };
		fds[2] = (struct pollfd){ MESSAGE_DISK_FD, POLLIN, 0 };
		fds[3] = (struct pollfd){ d->supervisor, POLLIN, 0 };
		if (poll(fds, 4, -1) < 0) {
			if (errno != EINTR)
				log_error(-errno, "cannot wait");
			continue;
		}
		if (fds[1].revents != 0)
			on_worker(d);
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
	    (d.done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0) {
		log_error(-errno, "cannot set up the disk process");
		return 1;
	}
	disk_loop(&d);
	return disk_close(&d);
}
