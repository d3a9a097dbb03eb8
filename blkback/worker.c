/* SPDX-License-Identifier: GPL-2.0-or-later */
/* worker: the thread's loop (see worker.h). */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "blkback/clock.h"
#include "blkback/log.h"
#include "blkback/worker.h"

#define STACK_BYTES (512u << 10)
#define MAX_EVENTS  16

/* What an event is about, if it is not the number of a queue. */
#define EVENT_WAKE    (MAX_QUEUES + 1)
#define EVENT_CHANNEL (MAX_QUEUES + 2)

static inline void
cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
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

/* ---- commands ------------------------------------------------------------ */

static void
command_done(struct worker *w, int error)
{
	w->error = error;
	atomic_store_explicit(&w->command, WORKER_NONE, memory_order_release);
	event_set(w->team->done_fd);
}

/*
 * All of them, or the error of the first that cannot be: the others are then
 * let go of as soon as they are idle.
 */
static int
connect_queues(struct worker *w)
{
	unsigned i, k;
	int rc;

	for (i = 0; i < w->nr_queues; i++) {
		if (w->queue[i]->number >= w->connect->nr_queues)
			break;
		rc = queue_connect(w->queue[i], w->connect, w->resume, w->why);
		if (rc < 0) {
			for (k = 0; k < i; k++)
				w->queue[k]->draining = true;
			return rc;
		}
		w->nr_connected++;
	}
	return 0;
}

/* Let go of those that are drained. */
static void
release_queues(struct worker *w)
{
	struct queue *q;
	unsigned i;

	for (i = 0; i < w->nr_queues; i++) {
		q = w->queue[i];
		if (queue_connected(q) && q->draining && queue_idle(q)) {
			queue_disconnect(q);
			w->nr_connected--;
		}
	}
	if (w->draining && w->nr_connected == 0) {
		w->draining = false;
		atomic_store(&w->stopped, 0);
		command_done(w, 0);
	}
}

static void
drain_queues(struct worker *w)
{
	unsigned i;

	w->draining = true;
	for (i = 0; i < w->nr_queues; i++) {
		if (!queue_connected(w->queue[i]))
			continue;
		w->queue[i]->draining = true;
		queue_retry(w->queue[i]);	/* nobody will come any more */
	}
	release_queues(w);
}

static void
worker_command(struct worker *w, int command)
{
	switch (command) {
	case WORKER_CALL:
		command_done(w, w->call(w->arg, w->why));
		break;
	case WORKER_CONNECT:
		command_done(w, connect_queues(w));
		break;
	case WORKER_DISCONNECT:
		drain_queues(w);
		break;
	default:
		break;
	}
}

/* ---- sleeping ------------------------------------------------------------ */

/* epoll_wait() counts in milliseconds. */
static void
worker_nap(struct worker *w)
{
	struct pollfd fd = { w->epoll_fd, POLLIN, 0 };
	const struct timespec ts = { 0, (long)w->nap_ns };

	if (ppoll(&fd, 1, &ts, NULL) < 0 && errno != EINTR)
		log_error(-errno, "cannot wait for events");
}

/* The first of its queues, which is connected if any is, counts for all. */
static struct page_stats *
worker_stats(struct worker *w)
{
	return &w->queue[0]->page->stats;
}

/* What the first storm that is held back allows; -1: there is none. */
static int
sleep_timeout(const struct worker *w)
{
	int timeout = -1, t;
	unsigned i;

	for (i = 0; i < w->nr_queues; i++) {
		if (!queue_connected(w->queue[i]))
			continue;
		t = queue_timeout(w->queue[i]);
		if (t >= 0 && (timeout < 0 || t < timeout))
			timeout = t;
	}
	return timeout;
}

static void
end_storms(struct worker *w)
{
	unsigned i;

	for (i = 0; i < w->nr_queues; i++)
		if (queue_connected(w->queue[i]) &&
		    queue_timeout(w->queue[i]) >= 0)
			queue_unmask(w->queue[i]);
}

/* Wait for something to happen, at most as long as the queues allow. */
static void
worker_sleep(struct worker *w)
{
	struct epoll_event ev[MAX_EVENTS];
	int timeout = -1, n, i;

	if (w->nr_connected > 0) {
		timeout = sleep_timeout(w);
		worker_stats(w)->sleeps++;
		w->slept = true;
	}
	if (w->nap_ns > 0) {
		worker_nap(w);
		w->nap_ns = 0;
		timeout = 0;
	}
	n = epoll_wait(w->epoll_fd, ev, MAX_EVENTS, timeout);
	if (n < 0 && errno != EINTR)
		log_error(-errno, "cannot wait for events");
	if (n == 0 && timeout > 0)
		end_storms(w);
	for (i = 0; i < n; i++) {
		if (ev[i].data.u32 == EVENT_WAKE)
			event_clear(w->wake_fd);
		else if (ev[i].data.u32 < w->nr_queues)
			queue_event(w->queue[ev[i].data.u32]);
	}
}

/* Has this thread to wait for a CPU?  Somebody else needs it more, then. */
static void
worker_look(struct worker *w, uint64_t now)
{
	unsigned long long delay;
	char text[128];
	ssize_t n;

	n = pread(w->delay_fd, text, sizeof(text) - 1, 0);
	if (n > 0) {
		text[n] = '\0';
		if (sscanf(text, "%*u %llu", &delay) == 1)
			poll_delay(&w->poller, now, delay);
	}
}

/*
 * No queue had work.  True: spin.  False: sleep, or nap, once they are armed.
 */
static bool
worker_spins(struct worker *w, bool inflight)
{
	uint64_t now;
	unsigned i;

	if (w->poll_us == 0 || w->draining)
		return false;
	now = clock_ns();
	if (w->delay_fd >= 0 && poll_wants_delay(&w->poller, now))
		worker_look(w, now);
	switch (poll_idle(&w->poller, now, inflight, &w->nap_ns)) {
	case POLL_SPIN:
		/* A guest that finds one armed would send an event. */
		for (i = 0; i < w->nr_queues; i++)
			if (queue_connected(w->queue[i]))
				queue_disarm(w->queue[i]);
		return true;
	case POLL_NAP:
		break;
	case POLL_SLEEP:
		w->nap_ns = 0;
		break;
	}
	return false;
}

/* Ask for events of all queues.  True: one has got work meanwhile. */
static bool
worker_arm(struct worker *w)
{
	bool work = false;
	unsigned i;

	for (i = 0; i < w->nr_queues; i++)
		if (queue_connected(w->queue[i]) && queue_arm(w->queue[i]))
			work = true;
	return work;
}

/* ---- serving ------------------------------------------------------------- */

/* One round of each.  Did any find work?  Has any something in flight? */
static bool
worker_round(struct worker *w, bool *inflight)
{
	const char *broken = atomic_load_explicit(&w->team->broken,
	    memory_order_acquire);
	bool worked = false;
	struct queue *q;
	unsigned i;

	*inflight = false;
	for (i = 0; i < w->nr_queues; i++) {
		q = w->queue[i];
		if (!queue_connected(q))
			continue;
		if (broken != NULL && q->broken == NULL)
			q->broken = broken;
		worked |= queue_round(q);
		*inflight |= !queue_idle(q);
	}
	return worked;
}

/* Tell the main thread, and with it the others, what has changed. */
static void
worker_report(struct worker *w)
{
	int stopped = 0;
	struct queue *q;
	const char *none;
	unsigned i;

	for (i = 0; i < w->nr_queues; i++) {
		q = w->queue[i];
		if (!queue_connected(q))
			continue;
		none = NULL;
		if (q->broken != NULL && atomic_load_explicit(
		    &w->team->broken, memory_order_relaxed) == NULL &&
		    atomic_compare_exchange_strong(&w->team->broken, &none,
		    q->broken))
			event_set(w->team->done_fd);
		if (stopped == 0)
			stopped = q->stopped;
	}
	if (stopped != atomic_load_explicit(&w->stopped,
	    memory_order_relaxed)) {
		atomic_store(&w->stopped, stopped);
		event_set(w->team->done_fd);
	}
}

/* True: go on.  False: sleep. */
static bool
worker_serve(struct worker *w)
{
	bool inflight, worked = worker_round(w, &inflight);

	worker_report(w);
	if (worked) {
		if (poll_is_idle(&w->poller)) {
			if (!w->slept)
				worker_stats(w)->polls++;
			poll_work(&w->poller, clock_ns());
		}
		w->slept = false;
		return true;
	}
	release_queues(w);
	if (w->nr_connected == 0)
		return true;
	if (worker_spins(w, inflight)) {
		cpu_relax();
		return true;
	}
	return worker_arm(w);
}

static void
retry_queues(struct worker *w)
{
	unsigned i;

	for (i = 0; i < w->nr_queues; i++)
		if (queue_connected(w->queue[i]))
			queue_retry(w->queue[i]);
}

static void *
worker_main(void *arg)
{
	struct worker *w = arg;
	char name[16];
	int command;

	/* What an operator sees in top -H. */
	snprintf(name, sizeof(name), "rb-io%u", w->number);
	pthread_setname_np(pthread_self(), name);
	/* A nap of 400 us is not to be one of 450. */
	if (prctl(PR_SET_TIMERSLACK, 1ul, 0, 0, 0) != 0)
		log_error(-errno, "cannot set the timer slack, going on");
	w->delay_fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
	sem_post(&w->started);
	for (;;) {
		command = atomic_load_explicit(&w->command,
		    memory_order_acquire);
		if (command == WORKER_EXIT)
			return NULL;
		if (command != WORKER_NONE && !w->draining)
			worker_command(w, command);
		if (atomic_load_explicit(&w->retry, memory_order_relaxed) &&
		    atomic_exchange(&w->retry, false))
			retry_queues(w);
		if (w->nr_connected == 0 || !worker_serve(w))
			worker_sleep(w);
	}
}

/* ---- for the main thread ------------------------------------------------- */

static int
watch_fd(struct worker *w, int fd, uint32_t events, uint32_t what)
{
	struct epoll_event ev = { .events = events, .data.u32 = what };

	return epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, fd, &ev) != 0 ? -errno : 0;
}

static int
watch_queues(struct worker *w)
{
	unsigned i;
	int rc = 0, channel;

	for (i = 0; rc == 0 && i < w->nr_queues; i++) {
		rc = watch_fd(w, xenevtchn_fd(w->queue[i]->evtchn), EPOLLIN,
		    i);
		/* Edge-triggered: nobody has to read it. */
		channel = w->queue[i]->channel->event_fd;
		if (rc == 0 && channel >= 0)
			rc = watch_fd(w, channel, EPOLLIN | EPOLLET,
			    EVENT_CHANNEL);
	}
	return rc;
}

static int
start_thread(struct worker *w)
{
	pthread_attr_t attr;
	int rc;

	/* Small: all of it is going to be locked. */
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	rc = -pthread_create(&w->thread, &attr, worker_main, w);
	pthread_attr_destroy(&attr);
	w->running = rc == 0;
	while (w->running && sem_wait(&w->started) != 0 && errno == EINTR)
		;
	return rc;
}

int
worker_start(struct worker *w, unsigned number, struct worker_team *team,
    uint32_t poll_us)
{
	int rc;

	w->team = team;
	w->number = number;
	w->poll_us = poll_us;
	w->delay_fd = -1;
	sem_init(&w->started, 0, 0);
	poll_init(&w->poller, poll_us);
	w->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	w->epoll_fd = w->wake_fd < 0 ? -1 : epoll_create1(EPOLL_CLOEXEC);
	if (w->epoll_fd < 0)
		return -errno;
	rc = watch_fd(w, w->wake_fd, EPOLLIN, EVENT_WAKE);
	if (rc == 0)
		rc = watch_queues(w);
	return rc < 0 ? rc : start_thread(w);
}

void
worker_post(struct worker *w, enum worker_command command)
{
	assert(!worker_busy(w));
	atomic_store_explicit(&w->command, command, memory_order_release);
	event_set(w->wake_fd);
}

void
worker_retry(struct worker *w)
{
	atomic_store(&w->retry, true);
	event_set(w->wake_fd);
}

void
worker_stop(struct worker *w)
{
	const int fds[] = { w->wake_fd, w->epoll_fd, w->delay_fd };
	unsigned i;

	if (w->team == NULL)
		return;
	if (w->running) {
		worker_post(w, WORKER_EXIT);
		pthread_join(w->thread, NULL);
	}
	sem_destroy(&w->started);
	for (i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
		if (fds[i] >= 0)
			close(fds[i]);
	memset(w, 0, sizeof(*w));
}
