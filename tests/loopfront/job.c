/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See job.h. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <xen/io/blkif.h>

#include "tests/loopfront/job.h"

#define PAGE_SECTORS	(LOOPGUEST_PAGE_SIZE / FRONT_SECTOR)
#define NS		1000000000u

/* One guest I/O, from the moment it is chosen until it is answered. */
struct gio {
	STAILQ_ENTRY(gio) link;		/* of idle, or of filled */
	bool	 active;
	enum job_dir dir;
	uint8_t	 op;
	int	 status;		/* BLKIF_RSP_*, the worst so far */
	uint64_t sector;
	unsigned sectors;
	unsigned put;			/* sectors on the ring already */
	unsigned pending;		/* requests not answered */
	bool	 all_put;
	unsigned page;			/* of its buffer */
	uint64_t start, pushed, ready_at;
	uint32_t *floor;		/* for verify, per sector */
};
STAILQ_HEAD(gio_list, gio);

struct job {
	struct vbd *v;
	struct fqueue *q;
	const struct options *o;
	struct job_result *r;
	FILE	*out;

	struct gio *gios;
	uint32_t *floors;
	struct gio_list idle;		/* the next to become ready first */
	struct gio_list filled;		/* all put, not published */
	struct gio *current;		/* partly on the ring */
	unsigned active;

	uint64_t base, blocks;		/* the area: sectors, I/Os */
	uint64_t next_block, random;
	uint64_t left;			/* guest I/Os to start */
	unsigned writes;		/* since the last flush */
	uint64_t now, begun, end;	/* end 0: none */
	uint64_t last_answer, next_progress;
	bool	 event;			/* one came: look at the ring */
	bool	 stopping;
};

static int fail(struct job *, int, const char *, ...)
    __attribute__((format(printf, 3, 4)));

/* The first thing that went wrong is the one that is told. */
static int
fail(struct job *j, int rc, const char *fmt, ...)
{
	va_list	ap;

	if (j->r->error == 0) {
		va_start(ap, fmt);
		vsnprintf(j->r->why, sizeof(j->r->why), fmt, ap);
		va_end(ap);
		j->r->error = rc;
	}
	j->stopping = true;
	return rc;
}

static uint64_t
random_next(struct job *j)
{
	uint64_t	x = j->random += 0x9e3779b97f4a7c15u;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

/* ---- what comes back ---------------------------------------------------- */

static char *
buffer_at(const struct job *j, const struct gio *io, unsigned sector)
{
	return (char *)loopguest_page(j->v->dom->guest, io->page) +
	    (size_t)(j->o->misalign + sector) * FRONT_SECTOR;
}

static void
check_data(struct job *j, const struct gio *io, const struct shadow *s)
{
	unsigned	at = (unsigned)s->cookie;
	char		why[VERIFY_WHY];

	if (io->dir == DIR_WRITE) {
		verify_acked(j->v->verify, s->sector, s->sectors);
	} else if (io->dir == DIR_READ && verify_check(j->v->verify,
	    s->sector, s->sectors, io->floor + at, buffer_at(j, io, at),
	    why) < 0) {
		fail(j, -EILSEQ, "wrong data: %s", why);
	} else if (io->dir == DIR_READ) {
		j->r->verified += s->sectors;
	}
}

static void
count(struct job *j, const struct gio *io)
{
	struct job_count	*c = &j->r->dir[io->dir];
	static const int	 wanted[] = { BLKIF_RSP_OKAY, BLKIF_RSP_ERROR,
	    BLKIF_RSP_EOPNOTSUPP };

	if (io->status != wanted[j->o->expect])
		j->r->unexpected++;
	if (io->status == BLKIF_RSP_ERROR)
		j->r->failed++;
	if (io->status == BLKIF_RSP_EOPNOTSUPP)
		j->r->unsupported++;
	if (io->status != BLKIF_RSP_OKAY)
		return;
	c->ios++;
	c->bytes += (uint64_t)io->sectors * FRONT_SECTOR;
	hist_add(&c->slat, io->pushed - io->start);
	hist_add(&c->clat, j->now - io->pushed);
	hist_add(&c->lat, j->now - io->start);
}

static void
answered(struct fqueue *q, const struct shadow *s, int status, void *arg)
{
	struct job	*j = arg;
	struct gio	*io = s->owner;

	(void)q;
	if (status != BLKIF_RSP_OKAY)
		io->status = status;
	else if (j->o->verify)
		check_data(j, io, s);
	if (--io->pending > 0 || !io->all_put)
		return;
	count(j, io);
	io->active = false;
	io->ready_at = j->now + (uint64_t)j->o->think_us * 1000;
	j->active--;
	STAILQ_INSERT_TAIL(&j->idle, io, link);
}

/* ---- what goes out ------------------------------------------------------ */

static bool
may_start(const struct job *j)
{
	return !j->stopping && j->left > 0 &&
	    (j->end == 0 || j->now < j->end);
}

static bool
random_positions(const struct job *j)
{
	return j->o->rw == RW_RANDREAD || j->o->rw == RW_RANDWRITE ||
	    j->o->rw == RW_RANDRW || j->o->rw == RW_RANDTRIM;
}

static enum job_dir
choose_dir(struct job *j)
{
	if (j->o->op != OPTIONS_NO_OP)
		return DIR_OTHER;
	if (j->o->flush_every > 0 && j->writes >= j->o->flush_every)
		return DIR_FLUSH;
	switch (j->o->rw) {
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
		return random_next(j) % 100 < j->o->mix ? DIR_READ : DIR_WRITE;
	}
}

/*
 * Two writes of the same sectors in flight: nobody knows who wins.  A discard
 * is alone with its sectors: see verify_discard().
 */
static bool
collides(const struct job *j, const struct gio *new)
{
	const struct gio	*io;
	unsigned		 i;

	if (!j->o->verify || new->dir == DIR_READ)
		return false;
	for (i = 0; i < j->o->depth; i++) {
		io = &j->gios[i];
		if (io->active && io->dir != DIR_FLUSH &&
		    io->sector == new->sector &&
		    (io->dir != DIR_READ || new->dir == DIR_TRIM))
			return true;
	}
	return false;
}

/* False: every place tried is being written; later, then. */
static bool
choose_place(struct job *j, struct gio *io)
{
	unsigned	sectors = (unsigned)(j->o->bs / FRONT_SECTOR), tries;
	uint64_t	block;

	io->sectors = io->dir == DIR_FLUSH ? 0 : sectors;
	if (io->dir == DIR_FLUSH) {
		io->sector = 0;
		return true;
	}
	for (tries = 0; tries < 16; tries++) {
		block = random_positions(j) ? random_next(j) % j->blocks :
		    j->next_block;
		io->sector = j->base + block * sectors;
		if (!collides(j, io))
			break;
		if (!random_positions(j))
			return false;
	}
	if (!random_positions(j))
		j->next_block = (j->next_block + 1) % j->blocks;
	return tries < 16;
}

static void
prepare_data(struct job *j, struct gio *io)
{
	if (io->dir == DIR_WRITE) {
		verify_fill(j->v->verify, io->sector, io->sectors,
		    buffer_at(j, io, 0));
	} else if (io->dir == DIR_TRIM) {
		verify_discard(j->v->verify, io->sector, io->sectors);
	} else if (io->dir == DIR_READ) {
		/* What the last I/O left here must not pass for an answer. */
		memset(buffer_at(j, io, 0), 0xdb,
		    (size_t)io->sectors * FRONT_SECTOR);
		verify_before(j->v->verify, io->sector, io->sectors,
		    io->floor);
	}
}

/* The next guest I/O that may begin now, or NULL. */
static struct gio *
start_one(struct job *j)
{
	static const uint8_t	 ops[] = { BLKIF_OP_READ, BLKIF_OP_WRITE,
	    BLKIF_OP_FLUSH_DISKCACHE, BLKIF_OP_DISCARD };
	struct gio		*io = STAILQ_FIRST(&j->idle);

	if (io == NULL || !may_start(j) || io->ready_at > j->now)
		return NULL;
	io->dir = choose_dir(j);
	if (!choose_place(j, io))
		return NULL;
	STAILQ_REMOVE_HEAD(&j->idle, link);
	io->op = io->dir == DIR_OTHER ? (uint8_t)j->o->op : ops[io->dir];
	if (io->dir == DIR_WRITE)
		j->writes++;
	else if (io->dir == DIR_FLUSH)
		j->writes = 0;
	io->status = BLKIF_RSP_OKAY;
	io->put = io->pending = 0;
	io->all_put = false;
	io->active = true;
	io->start = j->now;
	j->active++;
	if (io->dir != DIR_FLUSH)
		j->left--;
	if (j->o->verify)
		prepare_data(j, io);
	return io;
}

/* Of a request: what is neither a read nor a write is never indirect. */
static unsigned
max_segments(const struct job *j, const struct gio *io)
{
	return io->op == BLKIF_OP_READ || io->op == BLKIF_OP_WRITE ||
	    io->op == BLKIF_OP_INDIRECT ? j->q->opt.segments :
	    FRONT_MAX_SEGMENTS;
}

/* Put the next request of a guest I/O on the ring. */
static int
put_one(struct job *j, struct gio *io)
{
	struct fqueue_segment	seg[FRONT_MAX_INDIRECT];
	struct shadow		s = { .op = io->op, .owner = io };
	unsigned		at, n, rest = io->sectors - io->put;
	unsigned		max = max_segments(j, io);

	s.sector = io->sector + io->put;
	s.cookie = io->put;
	if (io->op == BLKIF_OP_DISCARD) {
		s.sectors = rest;
		rest = 0;
	}
	while (rest > 0 && s.nr_segments < max) {
		at = j->o->misalign + io->put + s.sectors;
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
	if (fqueue_put(j->q, &s, seg) < 0)
		return fail(j, -EIO, "put a request on the ring: %s",
		    j->q->broken ? j->q->why : "no grant reference is free");
	io->put += s.sectors;
	io->pending++;
	io->all_put = rest == 0;
	return 0;
}

static int
publish(struct job *j)
{
	struct gio	*io;
	uint64_t	 now;
	int		 rc;

	if (front_inflight(&j->q->front) == 0)
		j->last_answer = j->now;
	rc = fqueue_push(j->q);
	if (rc < 0)
		return fail(j, rc, "send an event: %s", strerror(-rc));
	now = clock_ns();
	while ((io = STAILQ_FIRST(&j->filled)) != NULL) {
		STAILQ_REMOVE_HEAD(&j->filled, link);
		io->pushed = now;
	}
	return 0;
}

/*
 * In batches: a full one is told, and what there is when nothing else can
 * come (nothing is in flight, or nothing will be started any more).
 */
static int
publish_if_due(struct job *j)
{
	uint32_t	n = front_unpublished(&j->q->front);

	if (n == 0 || (j->o->batch > 0 && n < j->o->batch &&
	    front_inflight(&j->q->front) > 0 &&
	    (j->current != NULL || may_start(j))))
		return 0;
	return publish(j);
}

/* Fill the ring as far as it goes.  How many requests, or -errno. */
static int
issue(struct job *j)
{
	int	n = 0, rc;

	for (;;) {
		if (j->current == NULL)
			j->current = start_one(j);
		/* If no answer is to come, nothing will be given back. */
		if (j->current == NULL || (fqueue_room(j->q) == 0 &&
		    (front_inflight(&j->q->front) > 0 ||
		    front_unpublished(&j->q->front) > 0)))
			break;
		rc = put_one(j, j->current);
		if (rc < 0)
			return rc;
		n++;
		if (j->current->all_put) {
			STAILQ_INSERT_TAIL(&j->filled, j->current, link);
			j->current = NULL;
		}
		if (j->o->batch > 0 &&
		    front_unpublished(&j->q->front) >= j->o->batch &&
		    (rc = publish(j)) < 0)
			return rc;
	}
	rc = publish_if_due(j);
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
wait_until(const struct job *j)
{
	uint64_t	until = UINT64_MAX;
	struct gio	*io = STAILQ_FIRST(&j->idle);

	if (j->active > 0)
		until = j->last_answer + (uint64_t)(j->o->stall * NS);
	if (io != NULL && may_start(j) && io->ready_at > j->now)
		until = earlier(until, io->ready_at);
	if (j->end != 0 && j->active == 0)
		until = earlier(until, j->end);
	if (j->next_progress != 0)
		until = earlier(until, j->next_progress);
	return until;
}

static bool
event_came(struct job *j)
{
	const _Atomic uint32_t	*word = loopguest_port_word(j->q->port);

	if (j->o->spin == SPIN_RING)
		j->event = front_answered(&j->q->front);
	else
		j->event = (atomic_load_explicit(word, memory_order_acquire) &
		    LOOPGUEST_PENDING) != 0 && loopguest_port_take(j->q->port);
	return j->event;
}

/* The clock and the flag cost more than the look: rarely, then. */
static void
spin(struct job *j, uint64_t until)
{
	unsigned	i;

	while (clock_ns() < until && !atomic_load(&j->v->stop)) {
		for (i = 0; i < 32; i++) {
			if (event_came(j))
				return;
			__builtin_ia32_pause();
		}
	}
}

static int
sleep_until(struct job *j, uint64_t until)
{
	struct pollfd	fds[2] = {
		{ .fd = loopguest_port_fd(j->q->port), .events = POLLIN },
		{ .fd = j->v->kick, .events = POLLIN },
	};
	uint64_t	now = clock_ns();
	struct timespec	ts;
	int		rc;

	if (until <= now)
		return 0;
	ts.tv_sec = (time_t)((until - now) / NS);
	ts.tv_nsec = (long)((until - now) % NS);
	rc = ppoll(fds, 2, until == UINT64_MAX ? NULL : &ts, NULL);
	if (rc < 0 && errno != EINTR)
		return fail(j, -errno, "wait for an event: %s",
		    strerror(errno));
	if (rc > 0 && (fds[0].revents & POLLIN)) {
		j->event = true;
		rc = loopguest_port_pending(j->q->port);
		if (rc == 0)
			rc = loopguest_port_unmask(j->q->port);
		if (rc < 0 && rc != -EAGAIN)
			return fail(j, rc, "take an event: %s",
			    strerror(-rc));
	}
	return 0;
}

static int
stalled(struct job *j)
{
	char	text[160];

	front_describe(&j->q->front, text, sizeof(text));
	return fail(j, -ETIMEDOUT, "no answer for %g s%s: %s", j->o->stall,
	    front_answered(&j->q->front) ?
	    " (there are responses, but no event came)" : "", text);
}

static int
wait_for_answers(struct job *j)
{
	uint64_t	until = wait_until(j);

	if (j->o->spin != SPIN_OFF)
		spin(j, until);
	else if (sleep_until(j, until) < 0)
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
take_answers(struct job *j)
{
	int	n = 0, rc;

	j->event = false;
	do {
		rc = fqueue_reap(j->q, answered, j);
		if (rc < 0)
			return fail(j, rc, "%s", j->q->why);
		n += rc;
	} while (j->o->spin != SPIN_RING && front_arm(&j->q->front));
	if (n > 0)
		j->last_answer = j->now;
	return n;
}

static void
progress(struct job *j)
{
	const struct job_count	*d = j->r->dir;
	double			 seconds, part;
	uint64_t		 ios = d[DIR_READ].ios + d[DIR_WRITE].ios;

	if (j->next_progress == 0 || j->now < j->next_progress)
		return;
	j->next_progress = j->now + (uint64_t)(j->o->progress * NS);
	seconds = (double)(j->now - j->begun) / NS;
	part = j->o->time > 0 ? seconds / j->o->time :
	    (double)ios / (double)(ios + j->active + j->left);
	fprintf(j->out, "progress %3.0f %%  %8.1f MB/s  %" PRIu64
	    " I/Os  %" PRIu64 " sectors verified\n",
	    part < 1 ? part * 100 : 100,
	    (double)(d[DIR_READ].bytes + d[DIR_WRITE].bytes) / seconds / 1e6,
	    ios, j->r->verified);
	fflush(j->out);
}

/* The disk goes away.  What is on the ring stays there until it is released. */
static int
abandon(struct job *j)
{
	j->r->unanswered = front_inflight(&j->q->front) +
	    front_unpublished(&j->q->front);
	return fail(j, -ESHUTDOWN, "%s, %" PRIu64 " requests are not answered",
	    j->v->dom->interrupt ? "told to give up" :
	    "the backend closed the disk", j->r->unanswered);
}

static int
job_loop(struct job *j)
{
	int	n, put;

	while (j->active > 0 || may_start(j)) {
		n = j->event ? take_answers(j) : 0;
		if (n < 0)
			return n;
		if (atomic_load(&j->v->stop))
			return abandon(j);
		j->now = clock_ns();
		progress(j);
		put = issue(j);
		if (put < 0)
			return put;
		if (put == 0 && n == 0 && wait_for_answers(j) < 0)
			return -EIO;
		j->now = clock_ns();
		if (j->active > 0 && front_inflight(&j->q->front) > 0 &&
		    j->now - j->last_answer > (uint64_t)(j->o->stall * NS))
			return stalled(j);
	}
	return 0;
}

/* ---- before and after --------------------------------------------------- */

static int
check_options(struct job *j)
{
	const struct options	*o = j->o;
	uint64_t		 disk = j->v->sectors * FRONT_SECTOR;
	uint64_t		 size = o->size;
	unsigned		 unit = j->v->sector_size;

	if (o->bs % FRONT_SECTOR != 0 || o->offset % FRONT_SECTOR != 0)
		return fail(j, -EINVAL, "bs and offset must be multiples of "
		    "512");
	j->base = o->offset / FRONT_SECTOR;
	j->blocks = 1;
	if (o->op != OPTIONS_NO_OP)
		return 0;
	if (o->bs == 0 || o->bs % unit != 0 || o->offset % unit != 0)
		return fail(j, -EINVAL, "bs and offset must be multiples of "
		    "the disk's sector size, %u", unit);
	if (o->offset > disk || size > disk - o->offset)
		return fail(j, -EINVAL, "the area ends beyond the disk's %"
		    PRIu64 " bytes", disk);
	if (size == 0)
		size = disk - o->offset;
	j->blocks = size / o->bs;
	if (j->blocks == 0)
		return fail(j, -EINVAL, "the area is smaller than bs");
	if (o->flush_every > 0 && !j->v->flush)
		return fail(j, -EINVAL, "flush-every: the backend offers no "
		    "flush");
	if ((o->rw == RW_TRIM || o->rw == RW_RANDTRIM) && !j->v->discard)
		return fail(j, -EINVAL, "the backend offers no discard");
	return 0;
}

/* Buffers, and the memory of what was written; with the domain's lock. */
static int
job_memory(struct job *j)
{
	const struct options	*o = j->o;
	struct vbd		*v = j->v;
	unsigned		 sectors = (unsigned)(o->bs / FRONT_SECTOR);
	unsigned		 pages, i;
	bool			 writes;
	int			 first;

	pages = (o->misalign + sectors + PAGE_SECTORS - 1) / PAGE_SECTORS;
	first = domain_pages_alloc(v->dom, pages * o->depth);
	if (first < 0)
		return fail(j, first, "%u buffers of %" PRIu64 " bytes do not "
		    "fit into the domain's memory", o->depth, o->bs);
	v->job_page = (unsigned)first;
	v->job_pages = pages * o->depth;
	for (i = 0; i < o->depth; i++) {
		j->gios[i].page = (unsigned)first + i * pages;
		if (o->verify)
			j->gios[i].floor = j->floors + (size_t)i * sectors;
	}

	writes = o->rw != RW_READ && o->rw != RW_RANDREAD;
	if (!o->verify && (writes || o->op != OPTIONS_NO_OP)) {
		verify_free(v->verify);		/* it would be wrong now */
		v->verify = NULL;
	}
	if (o->verify && v->verify == NULL && verify_new(&v->verify,
	    v->sectors, o->seed, o->zeroed) < 0)
		return fail(j, -ENOMEM, "no memory to remember %" PRIu64
		    " sectors", v->sectors);
	return 0;
}

static int
job_init(struct job *j)
{
	const struct options	*o = j->o;
	unsigned		 i;
	int			 rc;

	rc = check_options(j);
	if (rc < 0)
		return rc;
	j->gios = calloc(o->depth, sizeof(*j->gios));
	if (o->verify)
		j->floors = calloc(o->depth, o->bs / FRONT_SECTOR *
		    sizeof(*j->floors));
	if (j->gios == NULL || (o->verify && j->floors == NULL))
		return fail(j, -ENOMEM, "out of memory");
	STAILQ_INIT(&j->idle);
	STAILQ_INIT(&j->filled);
	for (i = 0; i < o->depth; i++)
		STAILQ_INSERT_TAIL(&j->idle, &j->gios[i], link);

	domain_lock(j->v->dom);
	rc = job_memory(j);
	domain_unlock(j->v->dom);
	if (rc < 0)
		return rc;
	/* Not measured: the first touch of each page. */
	memset(loopguest_page(j->v->dom->guest, j->v->job_page), 0,
	    (size_t)j->v->job_pages * LOOPGUEST_PAGE_SIZE);

	j->random = o->seed * 0x2545f4914f6cdd1du;
	j->left = o->ios > 0 ? o->ios : o->time > 0 ? UINT64_MAX : j->blocks;
	j->begun = j->now = j->last_answer = clock_ns();
	if (o->time > 0)
		j->end = j->begun + (uint64_t)(o->time * NS);
	if (o->progress > 0)
		j->next_progress = j->begun + (uint64_t)(o->progress * NS);
	return 0;
}

/* Every member is a sum but the last two, which are levels. */
static void
subtract(struct loopguest_counters *c, const struct loopguest_counters *from)
{
	uint64_t	now[2] = { c->mapped_now, c->bound_now };
	uint64_t	*a = (uint64_t *)c;
	const uint64_t	*b = (const uint64_t *)from;
	size_t		i;

	for (i = 0; i < sizeof(*c) / sizeof(*a); i++)
		a[i] -= b[i];
	c->mapped_now = now[0];
	c->bound_now = now[1];
}

static uint64_t
cpu_ns(void)
{
	struct timespec	ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * NS + (uint64_t)ts.tv_nsec;
}

static void
job_measure(struct job *j)
{
	struct loopguest_counters	before;
	struct loopguest		*g = j->v->dom->guest;
	uint64_t			 requests = j->q->requests;
	uint64_t			 notifies = j->q->notifies;

	loopguest_counters(g, &before);
	j->r->cpu_ns = cpu_ns();
	j->event = front_arm(&j->q->front);
	if (j->o->spin != SPIN_OFF)
		loopguest_port_mask(j->q->port);
	job_loop(j);
	if (j->o->spin != SPIN_OFF)
		loopguest_port_unmask(j->q->port);
	j->r->ns = clock_ns() - j->begun;
	j->r->cpu_ns = cpu_ns() - j->r->cpu_ns;
	loopguest_counters(g, &j->r->calls);
	subtract(&j->r->calls, &before);
	j->r->requests = j->q->requests - requests;
	j->r->notifies = j->q->notifies - notifies;
}

int
job_run(struct vbd *v, const struct options *o, struct job_result *r,
    FILE *out)
{
	static const char *const	expected[] = { "OKAY", "ERROR",
	    "EOPNOTSUPP" };
	struct job			j = { .v = v, .q = &v->q, .o = o,
	    .r = r, .out = out };

	memset(r, 0, sizeof(*r));
	if (job_init(&j) == 0)
		job_measure(&j);
	if (r->unexpected > 0)
		fail(&j, -EIO, "%" PRIu64 " I/Os did not end with %s (%" PRIu64
		    " with ERROR, %" PRIu64 " with EOPNOTSUPP)",
		    r->unexpected, expected[o->expect], r->failed,
		    r->unsupported);
	/* Nobody would know what to do with an answer that comes now. */
	if (j.active > 0)
		fqueue_break(j.q, r->why);
	free(j.gios);
	free(j.floors);
	return r->error;
}
