/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See lane.h. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <xen/io/blkif.h>

#include "tests/loopfront/lane.h"

static void
wake(const struct lane *l)
{
	uint64_t	one = 1;

	if (write(l->wake, &one, sizeof(one)) < 0)
		perror("loopfront: wake a thread");
}

/* The others finish what they have begun. */
static void
stop_all(struct lane *l)
{
	unsigned	i;

	l->stopping = true;
	if (atomic_exchange(l->failed, true))
		return;
	for (i = 0; i < l->nr_all; i++)
		wake(&l->all[i]);
}

int
lane_fail(struct lane *l, int rc, const char *fmt, ...)
{
	va_list	ap;

	if (l->r.error == 0) {
		va_start(ap, fmt);
		vsnprintf(l->r.why, sizeof(l->r.why), fmt, ap);
		va_end(ap);
		l->r.error = rc;
	}
	stop_all(l);
	return rc;
}

static uint64_t
random_next(struct lane *l)
{
	uint64_t	x = l->random += 0x9e3779b97f4a7c15u;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

/* ---- what comes back ---------------------------------------------------- */

static char *
buffer_at(const struct lane *l, const struct gio *io, unsigned sector)
{
	return (char *)loopguest_page(l->v->dom->guest, io->page) +
	    (size_t)(l->o->misalign + sector) * FRONT_SECTOR;
}

/* To a counter that progress() of another lane may read. */
static void
add(uint64_t *counter, uint64_t n)
{
	__atomic_store_n(counter, *counter + n, __ATOMIC_RELAXED);
}

static void
check_data(struct lane *l, const struct gio *io, const struct shadow *s)
{
	unsigned	at = (unsigned)s->cookie;
	char		why[VERIFY_WHY];

	if (io->dir == DIR_WRITE) {
		verify_acked(l->v->verify, s->sector, s->sectors);
	} else if (io->dir == DIR_READ && verify_check(l->v->verify,
	    s->sector, s->sectors, io->floor + at, l->o->torn,
	    buffer_at(l, io, at), why) < 0) {
		lane_fail(l, -EILSEQ, "wrong data: %s", why);
	} else if (io->dir == DIR_READ) {
		add(&l->r.verified, s->sectors);
	}
}

static void
count(struct lane *l, const struct gio *io)
{
	struct job_count	*c = &l->r.dir[io->dir];
	static const int	 wanted[] = { BLKIF_RSP_OKAY, BLKIF_RSP_ERROR,
	    BLKIF_RSP_EOPNOTSUPP };

	if (io->status != wanted[l->o->expect])
		l->r.unexpected++;
	if (io->status == BLKIF_RSP_ERROR)
		l->r.failed++;
	if (io->status == BLKIF_RSP_EOPNOTSUPP)
		l->r.unsupported++;
	if (io->status != BLKIF_RSP_OKAY)
		return;
	add(&c->ios, 1);
	add(&c->bytes, (uint64_t)io->sectors * FRONT_SECTOR);
	hist_add(&c->slat, io->pushed - io->start);
	hist_add(&c->clat, l->now - io->pushed);
	hist_add(&c->lat, l->now - io->start);
}

static void
answered(struct fqueue *q, const struct shadow *s, int status, void *arg)
{
	struct lane	*l = arg;
	struct gio	*io = s->owner;

	(void)q;
	if (status != BLKIF_RSP_OKAY)
		io->status = status;
	else if (l->o->verify)
		check_data(l, io, s);
	if (--io->pending > 0 || !io->all_put)
		return;
	count(l, io);
	io->active = false;
	io->ready_at = l->now + (uint64_t)l->o->think_us * 1000;
	l->active--;
	STAILQ_INSERT_TAIL(&l->idle, io, link);
}

/* ---- what goes out ------------------------------------------------------ */

static bool
may_start(const struct lane *l)
{
	return !l->stopping && l->left > 0 &&
	    (l->end == 0 || l->now < l->end);
}

static bool
random_positions(const struct lane *l)
{
	return l->o->rw == RW_RANDREAD || l->o->rw == RW_RANDWRITE ||
	    l->o->rw == RW_RANDRW || l->o->rw == RW_RANDTRIM;
}

static enum job_dir
choose_dir(struct lane *l)
{
	if (l->o->op != OPTIONS_NO_OP)
		return DIR_OTHER;
	if (atomic_load(&l->due) > 0)
		return DIR_FLUSH;
	switch (l->o->rw) {
	case RW_READ:
	case RW_RANDREAD:
		return DIR_READ;
	case RW_WRITE:
	case RW_RANDWRITE:
		return DIR_WRITE;
	case RW_TRIM:
	case RW_RANDTRIM:
		return DIR_TRIM;
	default:
		return random_next(l) % 100 < l->o->mix ? DIR_READ : DIR_WRITE;
	}
}

/*
 * Two writes of the same sectors in flight: nobody knows who wins.  A discard
 * is alone with its sectors: see verify_discard().
 */
static bool
collides(const struct lane *l, const struct gio *new)
{
	const struct gio	*io;
	unsigned		 i;

	if (!l->o->verify || new->dir == DIR_READ)
		return false;
	for (i = 0; i < l->depth; i++) {
		io = &l->gios[i];
		if (io->active && io->dir != DIR_FLUSH &&
		    io->sector == new->sector &&
		    (io->dir != DIR_READ || new->dir == DIR_TRIM))
			return true;
	}
	return false;
}

/* False: every place tried is being written; later, then. */
static bool
choose_place(struct lane *l, struct gio *io)
{
	unsigned	sectors = (unsigned)(l->o->bs / FRONT_SECTOR), tries;
	uint64_t	block;

	io->sectors = io->dir == DIR_FLUSH ? 0 : sectors;
	if (io->dir == DIR_FLUSH) {
		io->sector = 0;
		return true;
	}
	for (tries = 0; tries < 16; tries++) {
		block = random_positions(l) ? random_next(l) % l->blocks :
		    l->next_block;
		io->sector = l->base + block * l->stride * sectors;
		if (!collides(l, io))
			break;
		if (!random_positions(l))
			return false;
	}
	if (!random_positions(l))
		l->next_block = (l->next_block + 1) % l->blocks;
	return tries < 16;
}

static void
prepare_data(struct lane *l, struct gio *io)
{
	if (io->dir == DIR_WRITE) {
		verify_fill(l->v->verify, io->sector, io->sectors,
		    buffer_at(l, io, 0));
	} else if (io->dir == DIR_TRIM) {
		verify_discard(l->v->verify, io->sector, io->sectors);
	} else if (io->dir == DIR_READ) {
		/* What the last I/O left here must not pass for an answer. */
		memset(buffer_at(l, io, 0), 0xdb,
		    (size_t)io->sectors * FRONT_SECTOR);
		verify_before(l->v->verify, io->sector, io->sectors,
		    io->floor);
	}
}

/* After so many writes a flush is due, here or at another lane. */
static void
count_write(struct lane *l)
{
	if (l->o->flush_every == 0 || ++l->writes < l->o->flush_every)
		return;
	l->writes = 0;
	atomic_fetch_add(&l->flusher->due, 1);
	if (l->flusher != l)
		wake(l->flusher);
}

/* The next guest I/O that may begin now, or NULL. */
static struct gio *
start_one(struct lane *l)
{
	static const uint8_t	 ops[] = { BLKIF_OP_READ, BLKIF_OP_WRITE,
	    BLKIF_OP_FLUSH_DISKCACHE, BLKIF_OP_DISCARD };
	struct gio		*io = STAILQ_FIRST(&l->idle);

	if (io == NULL || !may_start(l) || io->ready_at > l->now)
		return NULL;
	io->dir = choose_dir(l);
	if (!choose_place(l, io))
		return NULL;
	STAILQ_REMOVE_HEAD(&l->idle, link);
	io->op = io->dir == DIR_OTHER ? (uint8_t)l->o->op : ops[io->dir];
	if (io->dir == DIR_WRITE)
		count_write(l);
	else if (io->dir == DIR_FLUSH)
		atomic_fetch_sub(&l->due, 1);
	io->status = BLKIF_RSP_OKAY;
	io->put = io->pending = 0;
	io->all_put = false;
	io->active = true;
	io->start = l->now;
	l->active++;
	if (io->dir != DIR_FLUSH)
		l->left--;
	if (l->o->verify)
		prepare_data(l, io);
	return io;
}

/* Of a request: what is neither a read nor a write is never indirect. */
static unsigned
max_segments(const struct lane *l, const struct gio *io)
{
	return io->op == BLKIF_OP_READ || io->op == BLKIF_OP_WRITE ||
	    io->op == BLKIF_OP_INDIRECT ? l->q->opt.segments :
	    FRONT_MAX_SEGMENTS;
}

/* Put the next request of a guest I/O on the ring. */
static int
put_one(struct lane *l, struct gio *io)
{
	struct fqueue_segment	seg[FRONT_MAX_INDIRECT];
	struct shadow		s = { .op = io->op, .owner = io };
	unsigned		at, n, rest = io->sectors - io->put;
	unsigned		max = max_segments(l, io);

	s.sector = io->sector + io->put;
	s.cookie = io->put;
	if (io->op == BLKIF_OP_DISCARD) {
		s.sectors = rest;
		rest = 0;
	}
	while (rest > 0 && s.nr_segments < max) {
		at = l->o->misalign + io->put + s.sectors;
		n = PAGE_SECTORS - at % PAGE_SECTORS;
		if (n > rest)
			n = rest;
		seg[s.nr_segments].page = io->page + at / PAGE_SECTORS;
		seg[s.nr_segments].first = (uint8_t)(at % PAGE_SECTORS);
		seg[s.nr_segments].last =
		    (uint8_t)(at % PAGE_SECTORS + n - 1);
		s.nr_segments++;
		s.sectors += n;
		rest -= n;
	}
	if (fqueue_put(l->q, &s, seg) < 0)
		return lane_fail(l, -EIO, "put a request on the ring: %s",
		    l->q->broken ? l->q->why : "no grant reference is free");
	io->put += s.sectors;
	io->pending++;
	io->all_put = rest == 0;
	return 0;
}

static int
publish(struct lane *l)
{
	struct gio	*io;
	uint64_t	 now;
	int		 rc;

	if (front_inflight(&l->q->front) == 0)
		l->last_answer = l->now;
	rc = fqueue_push(l->q);
	if (rc < 0)
		return lane_fail(l, rc, "send an event: %s", strerror(-rc));
	now = clock_ns();
	while ((io = STAILQ_FIRST(&l->filled)) != NULL) {
		STAILQ_REMOVE_HEAD(&l->filled, link);
		io->pushed = now;
	}
	return 0;
}

/*
 * In batches: a full one is told, and what there is when nothing else can
 * come (nothing is in flight, or nothing will be started any more).
 */
static int
publish_if_due(struct lane *l)
{
	uint32_t	n = front_unpublished(&l->q->front);

	if (n == 0 || (l->o->batch > 0 && n < l->o->batch &&
	    front_inflight(&l->q->front) > 0 &&
	    (l->current != NULL || may_start(l))))
		return 0;
	return publish(l);
}

/* Fill the ring as far as it goes.  How many requests, or -errno. */
static int
issue(struct lane *l)
{
	int	n = 0, rc;

	for (;;) {
		if (l->current == NULL)
			l->current = start_one(l);
		/* If no answer is to come, nothing will be given back. */
		if (l->current == NULL || (fqueue_room(l->q) == 0 &&
		    (front_inflight(&l->q->front) > 0 ||
		    front_unpublished(&l->q->front) > 0)))
			break;
		rc = put_one(l, l->current);
		if (rc < 0)
			return rc;
		n++;
		if (l->current->all_put) {
			STAILQ_INSERT_TAIL(&l->filled, l->current, link);
			l->current = NULL;
		}
		if (l->o->batch > 0 &&
		    front_unpublished(&l->q->front) >= l->o->batch &&
		    (rc = publish(l)) < 0)
			return rc;
	}
	rc = publish_if_due(l);
	return rc < 0 ? rc : n;
}

/* ---- waiting ------------------------------------------------------------ */

static uint64_t
earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Until when nothing but an answer can make a difference. */
static uint64_t
wait_until(const struct lane *l)
{
	uint64_t	until = UINT64_MAX;
	struct gio	*io = STAILQ_FIRST(&l->idle);

	if (l->active > 0)
		until = l->last_answer + (uint64_t)(l->o->stall * NS);
	if (io != NULL && may_start(l) && io->ready_at > l->now)
		until = earlier(until, io->ready_at);
	if (l->end != 0 && l->active == 0)
		until = earlier(until, l->end);
	if (l->next_progress != 0)
		until = earlier(until, l->next_progress);
	return until;
}

static bool
event_came(struct lane *l)
{
	const _Atomic uint32_t	*word = loopguest_port_word(l->q->port);

	if (l->o->spin == SPIN_RING)
		l->event = front_answered(&l->q->front);
	else
		l->event = (atomic_load_explicit(word, memory_order_acquire) &
		    LOOPGUEST_PENDING) != 0 && loopguest_port_take(l->q->port);
	return l->event;
}

/* Somebody wants something else of us than to wait. */
static bool
told(const struct lane *l)
{
	return atomic_load(&l->v->stop) || (may_start(l) &&
	    (atomic_load(l->failed) || atomic_load(&l->due) > 0) &&
	    !STAILQ_EMPTY(&l->idle));
}

/* The clock and the flags cost more than the look: rarely, then. */
static void
spin(struct lane *l, uint64_t until)
{
	unsigned	i;

	while (clock_ns() < until && !told(l)) {
		for (i = 0; i < 32; i++) {
			if (event_came(l))
				return;
			__builtin_ia32_pause();
		}
	}
}

static int
take_event(struct lane *l)
{
	int	rc = loopguest_port_pending(l->q->port);

	l->event = true;
	if (rc == 0)
		rc = loopguest_port_unmask(l->q->port);
	if (rc < 0 && rc != -EAGAIN)
		return lane_fail(l, rc, "take an event: %s", strerror(-rc));
	return 0;
}

static int
sleep_until(struct lane *l, uint64_t until)
{
	struct pollfd	fds[3] = {
		{ .fd = loopguest_port_fd(l->q->port), .events = POLLIN },
		{ .fd = l->v->kick, .events = POLLIN },
		{ .fd = l->wake, .events = POLLIN },
	};
	uint64_t	now = clock_ns(), n;
	struct timespec	ts;
	int		rc;

	if (until <= now)
		return 0;
	ts.tv_sec = (time_t)((until - now) / NS);
	ts.tv_nsec = (long)((until - now) % NS);
	rc = ppoll(fds, 3, until == UINT64_MAX ? NULL : &ts, NULL);
	if (rc < 0 && errno != EINTR)
		return lane_fail(l, -errno, "wait for an event: %s",
		    strerror(errno));
	if (rc <= 0)
		return 0;
	if ((fds[2].revents & POLLIN) && read(l->wake, &n, sizeof(n)) < 0)
		return lane_fail(l, -errno, "read an eventfd: %s",
		    strerror(errno));
	return fds[0].revents & POLLIN ? take_event(l) : 0;
}

static int
stalled(struct lane *l)
{
	char	text[160];

	front_describe(&l->q->front, text, sizeof(text));
	return lane_fail(l, -ETIMEDOUT, "no answer for %g s%s: %s", l->o->stall,
	    front_answered(&l->q->front) ?
	    " (there are responses, but no event came)" : "", text);
}

static int
wait_for_answers(struct lane *l)
{
	uint64_t	until = wait_until(l);

	if (l->o->spin != SPIN_OFF)
		spin(l, until);
	else if (sleep_until(l, until) < 0)
		return -EIO;
	return 0;
}

/* ---- the loop ----------------------------------------------------------- */

/*
 * As Linux's interrupt handler: take all there is, ask for an event at the next
 * one, and look again.  Between events the ring is not looked at, so that a
 * backend that forgets one is found out.  Who spins on the ring asks for none.
 */
static int
take_answers(struct lane *l)
{
	int	n = 0, rc;

	l->event = false;
	do {
		rc = fqueue_reap(l->q, answered, l);
		if (rc < 0)
			return lane_fail(l, rc, "%s", l->q->why);
		n += rc;
	} while (l->o->spin != SPIN_RING && front_arm(&l->q->front));
	if (n > 0)
		l->last_answer = l->now;
	return n;
}

static void
count_all(const struct lane *l, uint64_t *ios, uint64_t *bytes,
    uint64_t *verified)
{
	static const enum job_dir	 dirs[] = { DIR_READ, DIR_WRITE };
	const struct job_result		*r;
	unsigned			 i, d;

	for (i = 0; i < l->nr_all; i++) {
		r = &l->all[i].r;
		*verified += __atomic_load_n(&r->verified, __ATOMIC_RELAXED);
		for (d = 0; d < 2; d++) {
			*ios += __atomic_load_n(&r->dir[dirs[d]].ios,
			    __ATOMIC_RELAXED);
			*bytes += __atomic_load_n(&r->dir[dirs[d]].bytes,
			    __ATOMIC_RELAXED);
		}
	}
}

/* The first lane tells it, of all; how far they are, by its own. */
static void
progress(struct lane *l)
{
	uint64_t	ios = 0, bytes = 0, verified = 0, own;
	double		seconds, part;

	if (l->next_progress == 0 || l->now < l->next_progress)
		return;
	l->next_progress = l->now + (uint64_t)(l->o->progress * NS);
	count_all(l, &ios, &bytes, &verified);
	own = l->r.dir[DIR_READ].ios + l->r.dir[DIR_WRITE].ios;
	seconds = (double)(l->now - l->begun) / NS;
	part = l->o->time > 0 ? seconds / l->o->time :
	    (double)own / (double)(own + l->active + l->left);
	fprintf(l->out, "progress %3.0f %%  %8.1f MB/s  %" PRIu64
	    " I/Os  %" PRIu64 " sectors verified\n",
	    part < 1 ? part * 100 : 100,
	    (double)bytes / seconds / 1e6, ios, verified);
	fflush(l->out);
}

/* The disk goes away.  What is on the ring stays there until it is released. */
static int
abandon(struct lane *l)
{
	l->r.unanswered = front_inflight(&l->q->front) +
	    front_unpublished(&l->q->front);
	return lane_fail(l, -ESHUTDOWN, "%s", l->v->dom->interrupt ?
	    "told to give up" : "the backend closed the disk");
}

static int
lane_loop(struct lane *l)
{
	int	n, put;

	while (l->active > 0 || may_start(l)) {
		n = l->event ? take_answers(l) : 0;
		if (n < 0)
			return n;
		if (atomic_load(&l->v->stop))
			return abandon(l);
		if (atomic_load(l->failed))
			l->stopping = true;
		l->now = clock_ns();
		progress(l);
		put = issue(l);
		if (put < 0)
			return put;
		if (put == 0 && n == 0 && wait_for_answers(l) < 0)
			return -EIO;
		l->now = clock_ns();
		if (l->active > 0 && front_inflight(&l->q->front) > 0 &&
		    l->now - l->last_answer > (uint64_t)(l->o->stall * NS))
			return stalled(l);
	}
	return 0;
}

static uint64_t
cpu_ns(void)
{
	struct timespec	ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * NS + (uint64_t)ts.tv_nsec;
}

int
lane_run(struct lane *l)
{
	uint64_t	requests = l->q->requests, notifies = l->q->notifies;

	l->r.cpu_ns = cpu_ns();
	l->event = front_arm(&l->q->front);
	if (l->o->spin != SPIN_OFF)
		loopguest_port_mask(l->q->port);
	lane_loop(l);
	if (l->o->spin != SPIN_OFF)
		loopguest_port_unmask(l->q->port);
	l->r.cpu_ns = cpu_ns() - l->r.cpu_ns;
	l->r.requests = l->q->requests - requests;
	l->r.notifies = l->q->notifies - notifies;
	return l->r.error;
}
