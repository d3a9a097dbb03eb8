/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See job.h.  The work itself is done by lanes (lane.h), one for each queue. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "tests/loopfront/job.h"
#include "tests/loopfront/lane.h"

struct job {
	struct vbd *v;
	const struct options *o;
	struct job_result *r;
	struct lane *lanes;
	unsigned nr;
	atomic_bool failed;
	uint64_t blocks;		/* I/Os in the area */
};

static int fail(struct job *, int, const char *, ...)
    __attribute__((format(printf, 3, 4)));

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
	return rc;
}

/* ---- before ------------------------------------------------------------- */

static int
check_options(struct job *j)
{
	const struct options	*o = j->o;
	uint64_t		 disk = j->v->sectors * FRONT_SECTOR;
	uint64_t		 size = o->size;
	unsigned		 unit = j->v->sector_size;

	if (o->queue != OPTIONS_ALL_QUEUES && o->queue >= j->v->nr_queues)
		return fail(j, -EINVAL, "there is no queue %u: the disk has "
		    "%u", o->queue, j->v->nr_queues);
	if (o->bs % FRONT_SECTOR != 0 || o->offset % FRONT_SECTOR != 0)
		return fail(j, -EINVAL, "bs and offset must be multiples of "
		    "512");
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

/* No more than there is work for. */
static unsigned
count_lanes(const struct job *j)
{
	unsigned	n = j->v->nr_queues;

	if (j->o->queue != OPTIONS_ALL_QUEUES)
		return 1;
	if (n > j->o->depth)
		n = j->o->depth;
	if (j->o->op == OPTIONS_NO_OP && n > j->blocks)
		n = (unsigned)j->blocks;
	return n;
}

/* The ith of n parts of a sum. */
static uint64_t
part(uint64_t sum, unsigned i, unsigned n)
{
	return sum / n + (i < sum % n ? 1 : 0);
}

/*
 * No two lanes have a block in common.  Verified, the next block is another
 * lane's, so that they meet in the same clusters; else each has a part of the
 * area to itself, as the programs of a guest do.  What goes anywhere, goes to
 * the same place.
 */
static void
share_area(struct job *j, struct lane *l, unsigned i)
{
	uint64_t	sectors = j->o->bs / FRONT_SECTOR, first = 0;
	unsigned	n;

	l->base = j->o->offset / FRONT_SECTOR;
	l->blocks = l->stride = 1;
	if (j->o->op != OPTIONS_NO_OP)
		return;
	l->blocks = part(j->blocks, i, j->nr);
	if (j->o->verify) {
		l->stride = j->nr;
		first = i;
	} else {
		for (n = 0; n < i; n++)
			first += part(j->blocks, n, j->nr);
	}
	l->base += first * sectors;
}

static int
open_lane(struct job *j, unsigned i)
{
	const struct options	*o = j->o;
	struct lane		*l = &j->lanes[i];
	unsigned		 n;

	l->v = j->v;
	l->q = &j->v->queues[o->queue == OPTIONS_ALL_QUEUES ? i : o->queue];
	l->o = o;
	l->all = j->lanes;
	l->nr_all = j->nr;
	l->failed = &j->failed;
	l->flusher = o->flush_elsewhere ? &j->lanes[(i + 1) % j->nr] : l;
	l->depth = (unsigned)part(o->depth, i, j->nr);
	l->gios = calloc(l->depth, sizeof(*l->gios));
	if (o->verify)
		l->floors = calloc(l->depth, o->bs / FRONT_SECTOR *
		    sizeof(*l->floors));
	l->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (l->gios == NULL || (o->verify && l->floors == NULL) || l->wake < 0)
		return fail(j, -ENOMEM, "out of memory or descriptors");
	STAILQ_INIT(&l->idle);
	STAILQ_INIT(&l->filled);
	for (n = 0; n < l->depth; n++)
		STAILQ_INSERT_TAIL(&l->idle, &l->gios[n], link);
	share_area(j, l, i);
	l->random = (o->seed + i * 0x9e3779b97f4a7c15u) * 0x2545f4914f6cdd1du;
	l->left = o->ios > 0 ? part(o->ios, i, j->nr) :
	    o->time > 0 ? UINT64_MAX : l->blocks;
	return 0;
}

static int
open_lanes(struct job *j, FILE *out)
{
	unsigned	i, n = count_lanes(j);
	int		rc = 0;

	j->lanes = calloc(n, sizeof(*j->lanes));
	if (j->lanes == NULL)
		return fail(j, -ENOMEM, "out of memory");
	j->nr = n;
	for (i = 0; i < n; i++) {
		j->lanes[i].wake = -1;
		j->lanes[i].out = out;
	}
	for (i = 0; i < n && rc == 0; i++)
		rc = open_lane(j, i);
	return rc;
}

static void
close_lanes(struct job *j)
{
	unsigned	i;

	for (i = 0; i < j->nr; i++) {
		free(j->lanes[i].gios);
		free(j->lanes[i].floors);
		if (j->lanes[i].wake >= 0)
			close(j->lanes[i].wake);
	}
	free(j->lanes);
}

/* Each guest I/O's buffer, and its place for verify. */
static void
share_memory(struct job *j, unsigned page, unsigned pages)
{
	unsigned	 sectors = (unsigned)(j->o->bs / FRONT_SECTOR), i, n;
	struct lane	*l;

	for (i = 0; i < j->nr; i++) {
		l = &j->lanes[i];
		for (n = 0; n < l->depth; n++) {
			l->gios[n].page = page;
			page += pages;
			if (j->o->verify)
				l->gios[n].floor = l->floors +
				    (size_t)n * sectors;
		}
	}
}

/* Buffers, and the memory of what was written. */
static int
job_memory(struct job *j)
{
	const struct options	*o = j->o;
	struct vbd		*v = j->v;
	unsigned		 sectors = (unsigned)(o->bs / FRONT_SECTOR);
	unsigned		 pages;
	bool			 writes;
	int			 first;

	pages = (o->misalign + sectors + PAGE_SECTORS - 1) / PAGE_SECTORS;
	first = domain_pages_alloc(v->dom, pages * o->depth);
	if (first < 0)
		return fail(j, first, "%u buffers of %" PRIu64 " bytes do not "
		    "fit into the domain's memory", o->depth, o->bs);
	v->job_page = (unsigned)first;
	v->job_pages = pages * o->depth;
	share_memory(j, (unsigned)first, pages);

	writes = o->rw != RW_READ && o->rw != RW_RANDREAD;
	if (!o->verify && (writes || o->op != OPTIONS_NO_OP)) {
		verify_free(v->verify);		/* it would be wrong now */
		v->verify = NULL;
	}
	/* It may have grown since the last job. */
	if (o->verify && v->verify != NULL &&
	    verify_resize(v->verify, v->sectors) < 0)
		return fail(j, -ENOMEM, "no memory to remember %" PRIu64
		    " sectors", v->sectors);
	if (o->verify && v->verify == NULL && verify_new(&v->verify,
	    v->sectors, o->seed, o->zeroed) < 0)
		return fail(j, -ENOMEM, "no memory to remember %" PRIu64
		    " sectors", v->sectors);
	return 0;
}

static int
job_init(struct job *j, FILE *out)
{
	int	rc;

	/* The disk may be seen to grow at any time. */
	domain_lock(j->v->dom);
	rc = check_options(j);
	if (rc == 0)
		rc = open_lanes(j, out);
	if (rc == 0)
		rc = job_memory(j);
	domain_unlock(j->v->dom);
	if (rc < 0)
		return rc;
	/* Not measured: the first touch of each page. */
	memset(loopguest_page(j->v->dom->guest, j->v->job_page), 0,
	    (size_t)j->v->job_pages * LOOPGUEST_PAGE_SIZE);
	return 0;
}

/* ---- the work ----------------------------------------------------------- */

static void *
lane_thread(void *arg)
{
	lane_run(arg);
	return NULL;
}

/* The first lane is ours, so that one queue needs no thread. */
static void
run_lanes(struct job *j)
{
	struct lane	*l;
	unsigned	 i;
	int		 rc;

	for (i = 1; i < j->nr; i++) {
		l = &j->lanes[i];
		rc = pthread_create(&l->thread, NULL, lane_thread, l);
		l->started = rc == 0;
		if (rc != 0)
			lane_fail(l, -rc, "start a thread: %s", strerror(rc));
	}
	lane_run(&j->lanes[0]);
	for (i = 1; i < j->nr; i++) {
		if (j->lanes[i].started)
			pthread_join(j->lanes[i].thread, NULL);
	}
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

static void
job_measure(struct job *j)
{
	struct loopguest_counters	 before;
	struct loopguest		*g = j->v->dom->guest;
	const struct options		*o = j->o;
	uint64_t			 begun = clock_ns();
	struct lane			*l;

	for (l = j->lanes; l < j->lanes + j->nr; l++) {
		l->begun = l->now = l->last_answer = begun;
		if (o->time > 0)
			l->end = begun + (uint64_t)(o->time * NS);
	}
	if (o->progress > 0)
		j->lanes->next_progress = begun + (uint64_t)(o->progress * NS);
	loopguest_counters(g, &before);
	run_lanes(j);
	j->r->ns = clock_ns() - begun;
	loopguest_counters(g, &j->r->calls);
	subtract(&j->r->calls, &before);
}

/* ---- what came of it ---------------------------------------------------- */

static void
add_result(struct job_result *sum, const struct job_result *r)
{
	unsigned	i;

	for (i = 0; i < NR_DIRS; i++) {
		sum->dir[i].ios += r->dir[i].ios;
		sum->dir[i].bytes += r->dir[i].bytes;
		hist_merge(&sum->dir[i].slat, &r->dir[i].slat);
		hist_merge(&sum->dir[i].clat, &r->dir[i].clat);
		hist_merge(&sum->dir[i].lat, &r->dir[i].lat);
	}
	sum->cpu_ns += r->cpu_ns;
	sum->failed += r->failed;
	sum->unsupported += r->unsupported;
	sum->unexpected += r->unexpected;
	sum->requests += r->requests;
	sum->notifies += r->notifies;
	sum->unanswered += r->unanswered;
	sum->verified += r->verified;
}

/* A disk that went away may have gone because of what another lane saw. */
static void
job_error(struct job *j)
{
	const struct lane	*l, *worst = NULL;

	for (l = j->lanes; l < j->lanes + j->nr; l++) {
		if (l->r.error != 0 && (worst == NULL ||
		    worst->r.error == -ESHUTDOWN))
			worst = l;
	}
	if (worst != NULL && worst->r.error == -ESHUTDOWN)
		fail(j, -ESHUTDOWN, "%s, %" PRIu64 " requests are not "
		    "answered", worst->r.why, j->r->unanswered);
	else if (worst != NULL)
		fail(j, worst->r.error, "%s", worst->r.why);
}

static void
job_end(struct job *j)
{
	static const char *const	expected[] = { "OKAY", "ERROR",
	    "EOPNOTSUPP" };
	struct job_result		*r = j->r;
	const struct lane		*l;

	for (l = j->lanes; l < j->lanes + j->nr; l++)
		add_result(r, &l->r);
	job_error(j);
	if (r->unexpected > 0)
		fail(j, -EIO, "%" PRIu64 " I/Os did not end with %s (%" PRIu64
		    " with ERROR, %" PRIu64 " with EOPNOTSUPP)",
		    r->unexpected, expected[j->o->expect], r->failed,
		    r->unsupported);
	/* Nobody would know what to do with an answer that comes now. */
	for (l = j->lanes; l < j->lanes + j->nr; l++) {
		if (l->active > 0)
			fqueue_break(l->q, r->why);
	}
}

int
job_run(struct vbd *v, const struct options *o, struct job_result *r,
    FILE *out)
{
	struct job	j = { .v = v, .o = o, .r = r };

	memset(r, 0, sizeof(*r));
	if (job_init(&j, out) == 0) {
		job_measure(&j);
		job_end(&j);
	}
	close_lanes(&j);
	return r->error;
}
