/* SPDX-License-Identifier: GPL-2.0-or-later */
/* threads: see threads.h. */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "drivers/thread.h"
#include "drivers/threads.h"

#define DISCARD_PIECE (64u << 20)	/* bytes */

/* Bytes of a stack, all of which a disk process locks. */
#ifdef RINGBACK_SANITIZED
#define STACK_BYTES (256u << 10)
#else
#define STACK_BYTES (32u << 10)
#endif

struct threads {
	unsigned             nr;
	pthread_t            thread[THREADS_MAX];
	pthread_mutex_t      mutex;	/* for all below */
	pthread_cond_t       wake;
	struct transfer_list todo;
	unsigned             nr_idle;
	bool                 stop;
	pthread_mutex_t      sync_mutex;
	int                  sync_error;	/* of a failed flush */
};

struct threads_engine {
	struct engine        engine;	/* must be first */
	struct channel      *ch;
	struct threads_user  user;
	bool                 no_flush;
	bool                 reaping;
	unsigned             nr_used;	/* transfers that carry an I/O */
	struct transfer     *transfers;
	struct transfer_list free;
	struct transfer_list ended;	/* without the threads */
};

/*
 * The threads.
 */

/* A long discard must not hold the storage's queue for itself. */
static int
discard_pieces(const struct threads_user *u, const struct transfer *t)
{
	uint64_t offset = t->offset, left = t->left, n;
	int rc = 0;

	for (; rc == 0 && left > 0; offset += n, left -= n) {
		n = left < DISCARD_PIECE ? left : DISCARD_PIECE;
		rc = u->discard(t->fd, offset, n);
	}
	return rc;
}

static void
transfer_data(const struct threads_user *u, struct transfer *t)
{
	ssize_t n;

	do {
		if (t->io->op == IO_READ)
			n = preadv(t->fd, t->iov, transfer_iovcnt(t),
			    (off_t)t->offset);
		else
			n = pwritev(t->fd, t->iov, transfer_iovcnt(t),
			    (off_t)t->offset);
	} while ((n == -1 && errno == EINTR) || transfer_goes_on(t,
	    n == -1 ? -errno : n, u->zero_beyond_end));
}

/*
 * The kernel tells a loss to one fdatasync() of a descriptor, and channels
 * share theirs: of two at once, the one that hears nothing must not be done
 * before the other has been heard.
 */
static int
sync_file(struct threads *s, int fd)
{
	int rc;

	pthread_mutex_lock(&s->sync_mutex);
	if (s->sync_error == 0 && fdatasync(fd) == -1)
		s->sync_error = -errno;
	rc = s->sync_error;
	pthread_mutex_unlock(&s->sync_mutex);
	return rc;
}

static void
transfer_do(struct transfer *t)
{
	switch (t->io->op) {
	case IO_READ:
	case IO_WRITE:
		transfer_data(t->user, t);
		break;
	case IO_DISCARD:
		t->error = discard_pieces(t->user, t);
		break;
	case IO_FLUSH:
		t->error = sync_file(t->user->threads, t->fd);
		break;
	}
}

/*
 * From the exchange on it is not ours any more, and all of its channel may be
 * done with: nr_raising keeps the eventfd open.  Who finds another one there
 * knows that its edge is still to be noticed.
 */
static void
transfer_done(struct transfer *t)
{
	struct threads_user *u = t->user;
	struct transfer *before = atomic_load(&u->done);

	atomic_fetch_add(&u->nr_raising, 1);
	do
		t->next = before;
	while (!atomic_compare_exchange_weak(&u->done, &before, t));
	if (before == NULL)
		engine_raise(u->event_fd);
	atomic_fetch_sub(&u->nr_raising, 1);
}

static void *
thread_main(void *arg)
{
	struct threads *s = arg;
	struct transfer *t;
	bool more;

	pthread_mutex_lock(&s->mutex);
	while (!s->stop) {
		t = STAILQ_FIRST(&s->todo);
		if (t == NULL) {
			s->nr_idle++;
			pthread_cond_wait(&s->wake, &s->mutex);
			s->nr_idle--;
			continue;
		}
		STAILQ_REMOVE_HEAD(&s->todo, link);
		more = !STAILQ_EMPTY(&s->todo) && s->nr_idle > 0;
		pthread_mutex_unlock(&s->mutex);
		if (more)
			pthread_cond_signal(&s->wake);
		transfer_do(t);
		transfer_done(t);
		pthread_mutex_lock(&s->mutex);
	}
	pthread_mutex_unlock(&s->mutex);
	return NULL;
}

/* Some machines ask for more than we need. */
static size_t
stack_bytes(void)
{
	long min = sysconf(_SC_THREAD_STACK_MIN);

	return min > (long)STACK_BYTES ? (size_t)min : STACK_BYTES;
}

int
threads_open(struct threads **tp, unsigned nr, const char *path,
    char why[WHY_MAX])
{
	struct threads *t = calloc(1, sizeof(*t));
	int rc = 0;

	assert(nr > 0 && nr <= THREADS_MAX);
	if (t == NULL) {
		why_set(why, "open %.200s: out of memory", path);
		return -ENOMEM;
	}
	STAILQ_INIT(&t->todo);
	pthread_mutex_init(&t->mutex, NULL);
	pthread_cond_init(&t->wake, NULL);
	pthread_mutex_init(&t->sync_mutex, NULL);
	for (; rc == 0 && t->nr < nr; t->nr += rc == 0)
		rc = thread_start(&t->thread[t->nr], stack_bytes(),
		    thread_main, t);
	if (rc < 0) {
		why_set(why, "start a thread for the I/O of %.200s: %s; raise "
		    "the limits of memory and threads (ulimit -u, TasksMax= "
		    "of the unit)", path, strerror(-rc));
		threads_close(t);
		return rc;
	}
	*tp = t;
	return 0;
}

void
threads_close(struct threads *t)
{
	unsigned i;

	if (t == NULL)
		return;
	pthread_mutex_lock(&t->mutex);
	assert(STAILQ_EMPTY(&t->todo));
	t->stop = true;
	pthread_cond_broadcast(&t->wake);
	pthread_mutex_unlock(&t->mutex);
	for (i = 0; i < t->nr; i++)
		pthread_join(t->thread[i], NULL);
	pthread_cond_destroy(&t->wake);
	pthread_mutex_destroy(&t->mutex);
	pthread_mutex_destroy(&t->sync_mutex);
	free(t);
}

void
threads_forget(struct threads *t)
{
	if (t == NULL)
		return;
	pthread_mutex_lock(&t->sync_mutex);
	t->sync_error = 0;
	pthread_mutex_unlock(&t->sync_mutex);
}

/*
 * Their users.
 */

void
threads_user_init(struct threads_user *u, struct threads *t, int event_fd,
    const struct engine_config *c)
{
	memset(u, 0, sizeof(*u));
	u->threads = t;
	u->event_fd = event_fd;
	u->discard = c->discard;
	u->zero_beyond_end = c->zero_beyond_end;
	STAILQ_INIT(&u->waiting);
}

void
threads_user_close(struct threads_user *u)
{
	while (atomic_load(&u->nr_raising) > 0)
		sched_yield();
}

void
threads_push(struct threads_user *u, struct channel *ch)
{
	struct threads *t = u->threads;
	struct transfer *w;

	if (STAILQ_EMPTY(&u->waiting))
		return;
	STAILQ_FOREACH(w, &u->waiting, link)
		w->user = u;
	pthread_mutex_lock(&t->mutex);
	STAILQ_CONCAT(&t->todo, &u->waiting);
	pthread_mutex_unlock(&t->mutex);
	pthread_cond_signal(&t->wake);
	ch->submits++;
}

void
threads_take(struct threads_user *u, struct transfer_list *list)
{
	struct transfer_list in_order = STAILQ_HEAD_INITIALIZER(in_order);
	struct transfer *t;

	/* Most often there is nothing: leave it to the threads' caches. */
	if (atomic_load_explicit(&u->done, memory_order_relaxed) == NULL)
		return;
	for (t = atomic_exchange(&u->done, NULL); t != NULL; t = t->next)
		STAILQ_INSERT_HEAD(&in_order, t, link);
	STAILQ_CONCAT(list, &in_order);
}

/*
 * The engine.
 */

static void
threads_submit(struct engine *engine, int fd, struct io *io)
{
	struct threads_engine *e =
	    container_of(engine, struct threads_engine, engine);
	struct transfer *t = STAILQ_FIRST(&e->free);

	assert(t != NULL);		/* more than 'depth' at a time */
	STAILQ_REMOVE_HEAD(&e->free, link);
	e->nr_used++;
	transfer_begin(t, e->ch, fd, io);
	if (io->op == IO_FLUSH && e->no_flush) {
		t->error = 0;
		STAILQ_INSERT_TAIL(&e->ended, t, link);
	} else {
		STAILQ_INSERT_TAIL(&e->user.waiting, t, link);
	}
}

static unsigned
threads_reap(struct engine *engine)
{
	struct threads_engine *e =
	    container_of(engine, struct threads_engine, engine);
	struct transfer_list list = STAILQ_HEAD_INITIALIZER(list);
	struct transfer *t;
	unsigned n = 0;

	assert(!e->reaping);		/* a done() called us */
	e->reaping = true;
	threads_push(&e->user, e->ch);
	STAILQ_CONCAT(&list, &e->ended);
	threads_take(&e->user, &list);
	while ((t = STAILQ_FIRST(&list)) != NULL) {
		STAILQ_REMOVE_HEAD(&list, link);
		STAILQ_INSERT_HEAD(&e->free, t, link);
		e->nr_used--;
		t->io->done(t->io, t->error);
		n++;
	}

	/* What a done() has submitted; it ends at the next reap. */
	threads_push(&e->user, e->ch);
	if (!STAILQ_EMPTY(&e->ended))
		engine_raise(e->user.event_fd);
	e->reaping = false;
	return n;
}

static void
threads_engine_close(struct engine *engine)
{
	struct threads_engine *e =
	    container_of(engine, struct threads_engine, engine);

	assert(e->nr_used == 0 && !e->reaping);
	threads_user_close(&e->user);
	close(e->user.event_fd);
	free(e->transfers);
	free(e);
}

static const struct engine_ops threads_ops = {
	.close  = threads_engine_close,
	.submit = threads_submit,
	.reap   = threads_reap,
};

int
threads_engine_open(struct engine **ep, struct channel *ch,
    const struct engine_config *c, char why[WHY_MAX])
{
	struct threads_engine *e = calloc(1, sizeof(*e));
	unsigned i;
	int fd = -ENOMEM;

	if (e != NULL)
		e->transfers = calloc(c->depth, sizeof(*e->transfers));
	if (e == NULL || e->transfers == NULL)
		why_set(why, "open a channel of %.200s: out of memory",
		    c->path);
	else
		fd = engine_eventfd(c->path, why);
	if (fd < 0) {
		if (e != NULL)
			free(e->transfers);
		free(e);
		return fd;
	}
	e->engine.ops = &threads_ops;
	e->ch = ch;
	e->no_flush = c->no_flush;
	threads_user_init(&e->user, c->threads, fd, c);
	STAILQ_INIT(&e->free);
	STAILQ_INIT(&e->ended);
	for (i = 0; i < c->depth; i++)
		STAILQ_INSERT_TAIL(&e->free, &e->transfers[i], link);
	ch->event_fd = fd;
	*ep = &e->engine;
	return 0;
}
