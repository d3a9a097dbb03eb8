/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * load: the threads that keep a disk busy (see load.h).
 *
 * The threads wait for tasks: a job is a few of them, one after the other, on
 * as many threads as the job has.  Between two tasks everything belongs to the
 * main thread, during one each worker to its thread.
 *
 * To verify, a thread knows for each block of its part the version that it
 * wrote last, and leaves a block alone while an I/O to it is in flight.
 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "tools/load.h"
#include "tools/pattern.h"

#define HUGE_BYTES  (2u << 20)
#define BLOCKS_MAX  (UINT64_C(1) << 28)	/* to verify: a version of each */
#define BUSY        (UINT32_C(1) << 31)	/* in a version: in flight */

/* One of the 'depth' I/Os that a thread has in flight. */
struct slot {
	struct io      io;
	struct iovec   iov;
	struct worker *w;
	void          *buf;
	uint64_t       block;		/* of the thread's part */
	uint64_t       began;		/* ns */
};

struct worker {
	struct load      *load;
	unsigned          index;
	pthread_t         thread;
	struct channel   *ch;
	int               epoll_fd;	/* the channel's event_fd; or -1 */

	/* Of one job. */
	struct slot      *slots;
	void             *memory;	/* of the slots */
	size_t            memory_bytes;
	uint32_t         *version;	/* per block; 0: not written by us */
	size_t            version_bytes;
	uint64_t          first, nr_blocks;	/* its part, in blocks */
	uint64_t          next;		/* of a sequential walk */
	uint64_t          random;
	uint64_t          deadline;
	unsigned          inflight;
	int               error;
	char              why[WHY_MAX];
	uint64_t          began, ended;	/* ns */
	uint64_t          verified;
	struct load_count count[3];	/* READ, WRITE, FLUSH */
};

struct load {
	const char            *spec;
	uint64_t               poll_ns;
	struct image          *img;
	void                  *redo;
	size_t                 redo_bytes;
	const struct load_job *job;
	atomic_bool            failed;	/* a thread has; let the others end */
	unsigned               nr_workers;	/* that have been started */
	struct worker         *workers;
	unsigned               nr_slots;	/* of 'workers' */

	pthread_mutex_t        mutex;	/* for what follows */
	pthread_cond_t         start, end;
	void                 (*task)(struct worker *w);	/* NULL: exit */
	unsigned               threads;	/* that do it */
	unsigned               round;	/* counts tasks */
	unsigned               pending;	/* threads that have not ended it */
};

static atomic_bool interrupted;

void
load_interrupt(void)
{
	atomic_store(&interrupted, true);
}

bool
load_writes(const struct load_job *job)
{
	return job->rw != LOAD_RANDREAD && job->rw != LOAD_READ;
}

static uint64_t
clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);	/* cannot fail for this clock */
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

static inline void
cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* ---- a thread's I/Os --------------------------------------------------- */

static const char *
remedy(int error)
{
	switch (error) {
	case -ENOSPC:
	case -EDQUOT:
		return "make room on the storage";
	default:
		return "see the kernel log (dmesg), and check the storage";
	}
}

static void
slot_failed(struct slot *s, int error)
{
	static const char *const names[] = {
		[IO_READ] = "read", [IO_WRITE] = "write", [IO_FLUSH] = "flush",
	};
	struct worker *w = s->w;

	atomic_store(&w->load->failed, true);
	if (w->error != 0)
		return;
	w->error = error;
	if (s->io.op == IO_FLUSH)
		why_set(w->why, "%.200s: flush: %s; %s", w->load->spec,
		    strerror(-error), remedy(error));
	else
		why_set(w->why, "%.200s: %s %" PRIu64 " bytes at %" PRIu64
		    ": %s; %s", w->load->spec, names[s->io.op], s->io.length,
		    s->io.offset, strerror(-error), remedy(error));
}

/* What was read of a block that we wrote. */
static void
slot_compare(struct slot *s)
{
	struct worker *w = s->w;
	uint32_t version = w->version[s->block] & ~BUSY;
	size_t bad;

	if (version == 0)
		return;
	if (pattern_check(s->buf, s->io.length, s->io.offset, version,
	    w->load->job->seed, &bad)) {
		w->verified++;
		return;
	}
	atomic_store(&w->load->failed, true);
	if (w->error != 0)
		return;
	w->error = -EIO;
	why_set(w->why, "%.200s: byte %" PRIu64 " is not what was written: the "
	    "block of %" PRIu64 " bytes at %" PRIu64 " should have version %"
	    PRIu32 "; find out who else writes to the disk, or replace it",
	    w->load->spec, s->io.offset + bad, s->io.length, s->io.offset,
	    version);
}

static void
slot_submit(struct slot *s, enum io_op op, void (*done)(struct io *, int))
{
	const struct load_job *job = s->w->load->job;

	s->io.op = op;
	s->io.done = done;
	s->io.offset = (s->w->first + s->block) * job->block;
	s->io.length = op == IO_FLUSH ? 0 : job->block;
	s->io.iov = op == IO_FLUSH ? NULL : &s->iov;
	s->io.iovcnt = op == IO_FLUSH ? 0 : 1;
	s->iov.iov_base = s->buf;	/* a driver may have changed them */
	s->iov.iov_len = job->block;
	s->w->inflight++;
	channel_submit(s->w->ch, &s->io);
}

static uint64_t
next_random(struct worker *w)
{
	return pattern_mix(w->random++);
}

static enum io_op
next_op(struct worker *w)
{
	const struct load_job *job = w->load->job;

	if (job->rw == LOAD_RANDRW)
		return next_random(w) % 100 < job->read_percent ? IO_READ :
		    IO_WRITE;
	return load_writes(job) ? IO_WRITE : IO_READ;
}

static uint64_t
next_block(struct worker *w)
{
	const struct load_job *job = w->load->job;
	uint64_t n;

	if (job->rw == LOAD_READ || job->rw == LOAD_WRITE)
		n = w->next;
	else
		n = next_random(w) % w->nr_blocks;
	/* There are more of them than I/Os in flight: one is free. */
	while (job->verify && w->version[n] & BUSY)
		n = n + 1 < w->nr_blocks ? n + 1 : 0;
	w->next = n + 1 < w->nr_blocks ? n + 1 : 0;
	return n;
}

static void io_done(struct io *io, int error);

static void
slot_next(struct slot *s, uint64_t now)
{
	struct worker *w = s->w;
	const struct load_job *job = w->load->job;
	enum io_op op = next_op(w);
	uint32_t version;

	s->block = next_block(w);
	s->began = now;
	if (job->verify) {
		version = w->version[s->block];
		if (op == IO_WRITE) {
			version = version + 1 < BUSY ? version + 1 : 1;
			pattern_fill(s->buf, job->block, (w->first + s->block) *
			    job->block, version, job->seed);
		}
		w->version[s->block] = version | BUSY;
		s->began = clock_ns();
	}
	slot_submit(s, op, io_done);
}

static bool
over(const struct worker *w, uint64_t now)
{
	return now >= w->deadline ||
	    atomic_load_explicit(&interrupted, memory_order_relaxed) ||
	    atomic_load_explicit(&w->load->failed, memory_order_relaxed);
}

static void
io_done(struct io *io, int error)
{
	struct slot *s = container_of(io, struct slot, io);
	struct worker *w = s->w;
	const struct load_job *job = w->load->job;
	struct load_count *count = &w->count[io->op];
	uint64_t now = clock_ns();

	w->inflight--;
	if (error < 0) {
		slot_failed(s, error);
		return;
	}
	count->ios++;
	count->bytes += io->length;
	hist_add(&count->latency, now - s->began);
	w->ended = now;
	if (job->verify && io->op != IO_FLUSH) {
		if (io->op == IO_READ)
			slot_compare(s);
		w->version[s->block] &= ~BUSY;
	}
	if (io->op == IO_WRITE && job->flush) {
		s->began = now;
		slot_submit(s, IO_FLUSH, io_done);
	} else if (!over(w, now)) {
		slot_next(s, now);
	}
}

/* Until nothing is in flight. */
static void
worker_loop(struct worker *w)
{
	uint64_t idle = 0, now;
	struct epoll_event ev;

	while (w->inflight > 0) {
		if (channel_reap(w->ch) > 0) {
			idle = 0;
			continue;
		}
		if (w->epoll_fd == -1)
			continue;	/* the next reap() has something */
		if (w->load->poll_ns > 0) {
			now = clock_ns();
			if (idle == 0)
				idle = now;
			if (now - idle < w->load->poll_ns) {
				cpu_relax();
				continue;
			}
		}
		if (epoll_wait(w->epoll_fd, &ev, 1, -1) == -1 && errno != EINTR)
			abort();	/* the descriptor is not ours */
	}
}

/* ---- the tasks --------------------------------------------------------- */

/* Aligned to a huge page, where the kernel has one to spare, as the arena. */
static void *
map_huge(size_t bytes)
{
	size_t mapped = bytes + HUGE_BYTES, lead, page = 4096;
	uint8_t *p;

	p = mmap(NULL, mapped, PROT_READ | PROT_WRITE,
	    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	lead = -(uintptr_t)p % HUGE_BYTES;
	if (lead > 0)
		munmap(p, lead);
	p += lead;
	bytes = (bytes + page - 1) / page * page;
	if (mapped - lead > bytes)
		munmap(p + bytes, mapped - lead - bytes);
	madvise(p, bytes, MADV_HUGEPAGE);	/* only a hint */
	return p;
}

static void
unmap(void *p, size_t bytes)
{
	if (p != NULL)
		munmap(p, bytes);
}

static void
worker_prepare(struct worker *w)
{
	const struct load_job *job = w->load->job;
	struct slot *s;
	unsigned i;

	w->slots = calloc(job->depth, sizeof(*w->slots));
	w->memory_bytes = job->depth * job->block;
	w->memory = map_huge(w->memory_bytes);
	w->version_bytes = job->verify ? w->nr_blocks * sizeof(uint32_t) : 0;
	if (job->verify)
		w->version = map_huge(w->version_bytes);
	if (w->slots == NULL || w->memory == NULL ||
	    (job->verify && w->version == NULL)) {
		w->error = -ENOMEM;
		why_set(w->why, "%.200s: out of memory: lower --depth, --jobs "
		    "or --bs%s", w->load->spec,
		    job->verify ? ", or --size" : "");
		return;
	}
	/* Data that no storage finds to be zeroes, in pages that are there. */
	pattern_fill(w->memory, w->memory_bytes, 0, w->index, job->seed);
	for (i = 0; i < job->depth; i++) {
		s = &w->slots[i];
		s->w = w;
		s->buf = (uint8_t *)w->memory + i * job->block;
	}
}

static void
worker_load(struct worker *w)
{
	const struct load_job *job = w->load->job;
	unsigned i;

	w->began = w->ended = clock_ns();
	w->deadline = w->began + job->ns;
	for (i = 0; i < job->depth; i++)
		slot_next(&w->slots[i], w->began);
	worker_loop(w);
}

static void
flush_done(struct io *io, int error)
{
	struct slot *s = container_of(io, struct slot, io);

	s->w->inflight--;
	if (error < 0)
		slot_failed(s, error);
}

static void
worker_flush(struct worker *w)
{
	slot_submit(&w->slots[0], IO_FLUSH, flush_done);
	worker_loop(w);
}

static void verify_done(struct io *io, int error);

/* The next block that was written; w->next is how far we are. */
static void
verify_next(struct slot *s)
{
	struct worker *w = s->w;

	while (w->next < w->nr_blocks && w->version[w->next] == 0)
		w->next++;
	if (w->next == w->nr_blocks || over(w, 0))
		return;
	s->block = w->next++;
	slot_submit(s, IO_READ, verify_done);
}

static void
verify_done(struct io *io, int error)
{
	struct slot *s = container_of(io, struct slot, io);

	s->w->inflight--;
	if (error < 0) {
		slot_failed(s, error);
		return;
	}
	slot_compare(s);
	verify_next(s);
}

static void
worker_verify(struct worker *w)
{
	unsigned i;

	w->next = 0;
	for (i = 0; i < w->load->job->depth; i++)
		verify_next(&w->slots[i]);
	worker_loop(w);
}

static void
worker_release(struct worker *w)
{
	free(w->slots);
	unmap(w->memory, w->memory_bytes);
	unmap(w->version, w->version_bytes);
	w->slots = NULL;
	w->memory = NULL;
	w->version = NULL;
}

/* ---- the threads ------------------------------------------------------- */

static void *
worker_main(void *arg)
{
	struct worker *w = arg;
	struct load *l = w->load;
	void (*task)(struct worker *);
	unsigned round = 0, threads;

	for (;;) {
		pthread_mutex_lock(&l->mutex);
		while (l->round == round)
			pthread_cond_wait(&l->start, &l->mutex);
		round = l->round;
		task = l->task;
		threads = l->threads;
		pthread_mutex_unlock(&l->mutex);
		if (task == NULL)
			return NULL;
		if (w->index < threads)
			task(w);
		pthread_mutex_lock(&l->mutex);
		if (--l->pending == 0)
			pthread_cond_signal(&l->end);
		pthread_mutex_unlock(&l->mutex);
	}
}

static void
task_start(struct load *l, void (*task)(struct worker *), unsigned threads)
{
	pthread_mutex_lock(&l->mutex);
	l->task = task;
	l->threads = threads;
	l->pending = l->nr_workers;
	l->round++;
	pthread_cond_broadcast(&l->start);
	pthread_mutex_unlock(&l->mutex);
}

/* The first thread's error, if there is any. */
static int
task_run(struct load *l, void (*task)(struct worker *), unsigned threads,
    char why[WHY_MAX])
{
	unsigned i;

	task_start(l, task, threads);
	pthread_mutex_lock(&l->mutex);
	while (l->pending > 0)
		pthread_cond_wait(&l->end, &l->mutex);
	pthread_mutex_unlock(&l->mutex);
	for (i = 0; i < threads; i++)
		if (l->workers[i].error != 0) {
			memcpy(why, l->workers[i].why, WHY_MAX);
			return l->workers[i].error;
		}
	return 0;
}

/* ---- open and close ---------------------------------------------------- */

static int
worker_open(struct load *l, unsigned index, unsigned depth, char why[WHY_MAX])
{
	struct worker *w = &l->workers[index];
	struct epoll_event ev = { .events = EPOLLIN | EPOLLET };
	int rc;

	w->load = l;
	w->index = index;
	rc = channel_open(l->img, depth, &w->ch, why);
	if (rc < 0)
		return rc;
	if (w->ch->event_fd != -1) {
		w->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
		if (w->epoll_fd == -1 || epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD,
		    w->ch->event_fd, &ev) == -1) {
			rc = -errno;
			why_set(why, "%.200s: watch a channel: %s; lower "
			    "--jobs or raise the limit of open files (ulimit "
			    "-n)", l->spec, strerror(-rc));
			return rc;
		}
	}
	rc = -pthread_create(&w->thread, NULL, worker_main, w);
	if (rc < 0)
		why_set(why, "%.200s: start a thread: %s; lower --jobs",
		    l->spec, strerror(-rc));
	else
		l->nr_workers++;
	return rc;
}

static int
open_workers(struct load *l, const struct load_job *jobs, size_t nr_jobs,
    char why[WHY_MAX])
{
	unsigned i, depth;
	int rc = 0;
	size_t k;

	for (k = 0; k < nr_jobs; k++)
		if (jobs[k].threads > l->nr_slots)
			l->nr_slots = jobs[k].threads;
	l->workers = calloc(l->nr_slots, sizeof(*l->workers));
	if (l->workers == NULL) {
		why_set(why, "%.200s: out of memory", l->spec);
		return -ENOMEM;
	}
	for (i = 0; i < l->nr_slots; i++)
		l->workers[i].epoll_fd = -1;
	for (i = 0; rc == 0 && i < l->nr_slots; i++) {
		depth = 0;
		for (k = 0; k < nr_jobs; k++)
			if (jobs[k].threads > i && jobs[k].depth > depth)
				depth = jobs[k].depth;
		rc = worker_open(l, i, depth, why);
	}
	return rc;
}

/* As a disk process does: the log of what is not in the file is part of it. */
static int
lend_redo(struct load *l, char why[WHY_MAX])
{
	l->redo_bytes = l->img->readonly ? 0 : l->img->redo_bytes;
	if (l->redo_bytes == 0)
		return 0;
	l->redo = map_huge(l->redo_bytes);
	if (l->redo == NULL) {
		why_set(why, "%.200s: out of memory", l->spec);
		return -ENOMEM;
	}
	l->img->redo = l->redo;
	return 0;
}

int
load_open(const struct image_options *opt, const char *spec, uint32_t poll_us,
    const struct load_job *jobs, size_t nr_jobs, struct load **load,
    char why[WHY_MAX])
{
	char close_why[WHY_MAX];
	struct load *l;
	int rc;

	*load = NULL;
	l = calloc(1, sizeof(*l));
	if (l == NULL) {
		why_set(why, "%.200s: out of memory", spec);
		return -ENOMEM;
	}
	l->spec = spec;
	l->poll_ns = poll_us * UINT64_C(1000);
	pthread_mutex_init(&l->mutex, NULL);
	pthread_cond_init(&l->start, NULL);
	pthread_cond_init(&l->end, NULL);
	rc = image_open(opt, &l->img, why);
	if (rc == 0)
		rc = lend_redo(l, why);
	if (rc == 0)
		rc = open_workers(l, jobs, nr_jobs, why);
	if (rc < 0) {
		load_close(l, close_why);
		return rc;
	}
	*load = l;
	return 0;
}

int
load_activate(struct load *l, char why[WHY_MAX])
{
	return image_activate(l->img, why);
}

int
load_close(struct load *l, char why[WHY_MAX])
{
	unsigned i;
	int rc = 0;

	if (l == NULL)
		return 0;
	if (l->img != NULL && l->img->active)
		rc = image_deactivate(l->img, why);
	task_start(l, NULL, 0);
	for (i = 0; i < l->nr_slots && l->workers != NULL; i++) {
		if (i < l->nr_workers)
			pthread_join(l->workers[i].thread, NULL);
		if (l->workers[i].epoll_fd != -1)
			close(l->workers[i].epoll_fd);
		channel_close(l->workers[i].ch);
	}
	image_close(l->img);
	unmap(l->redo, l->redo_bytes);
	pthread_cond_destroy(&l->end);
	pthread_cond_destroy(&l->start);
	pthread_mutex_destroy(&l->mutex);
	free(l->workers);
	free(l);
	return rc;
}

/* ---- a job ------------------------------------------------------------- */

int
load_fits(const struct load *l, const struct load_job *job, uint64_t *range,
    char why[WHY_MAX])
{
	uint64_t size = job->range == 0 ? l->img->size : job->range, blocks;

	*range = size;
	if (size > l->img->size) {
		why_set(why, "%.200s: --size %" PRIu64 ": the disk has %"
		    PRIu64 " bytes", l->spec, size, l->img->size);
		return -EINVAL;
	}
	if (job->block % l->img->block_size != 0) {
		why_set(why, "%.200s: --bs %" PRIu64 ": give a multiple of the "
		    "disk's blocks of %" PRIu32 " bytes", l->spec, job->block,
		    l->img->block_size);
		return -EINVAL;
	}
	blocks = size / job->block / job->threads;
	if (blocks == 0 || (job->verify && blocks < job->depth)) {
		why_set(why, "%.200s: %" PRIu64 " bytes are too small for "
		    "--bs %" PRIu64 ", --jobs %u%s: lower these", l->spec, size,
		    job->block, job->threads, job->verify ? " and --depth, all "
		    "of whose blocks have to differ to verify" : "");
		return -EINVAL;
	}
	if (job->verify && blocks * job->threads > BLOCKS_MAX) {
		why_set(why, "%.200s: --verify keeps a version of each block: "
		    "at most %" PRIu64 " of them; lower --size or raise --bs",
		    l->spec, BLOCKS_MAX);
		return -EINVAL;
	}
	return 0;
}

static void
set_up_worker(struct load *l, unsigned index)
{
	const struct load_job *job = l->job;
	struct worker *w = &l->workers[index];
	uint64_t range = job->range == 0 ? l->img->size : job->range;

	w->nr_blocks = range / job->block / job->threads;
	w->first = index * w->nr_blocks;
	w->next = 0;
	w->random = pattern_mix(job->seed + index);
	w->inflight = 0;
	w->error = 0;
	w->verified = 0;
	memset(w->count, 0, sizeof(w->count));
}

static void
add_count(struct load_count *to, const struct load_count *from)
{
	to->ios += from->ios;
	to->bytes += from->bytes;
	hist_merge(&to->latency, &from->latency);
}

static void
collect(const struct load *l, struct load_result *r)
{
	uint64_t began = UINT64_MAX, ended = 0;
	const struct worker *w;
	unsigned i;

	for (i = 0; i < l->job->threads; i++) {
		w = &l->workers[i];
		if (w->began < began)
			began = w->began;
		if (w->ended > ended)
			ended = w->ended;
		add_count(&r->read, &w->count[IO_READ]);
		add_count(&r->write, &w->count[IO_WRITE]);
		add_count(&r->flush, &w->count[IO_FLUSH]);
	}
	r->ns += ended - began;
}

static uint64_t
sum_submits(const struct load *l)
{
	uint64_t n = 0;
	unsigned i;

	for (i = 0; i < l->job->threads; i++)
		n += l->workers[i].ch->submits;
	return n;
}

/* The load itself, then what must not be part of its time. */
static int
run_prepared(struct load *l, struct load_result *r, char why[WHY_MAX])
{
	const struct load_job *job = l->job;
	uint64_t submits = sum_submits(l);
	uint64_t metadata = atomic_load(&l->img->metadata_writes);
	unsigned i;
	int rc;

	rc = task_run(l, worker_load, job->threads, why);
	collect(l, r);
	r->submits += sum_submits(l) - submits;
	if (rc == 0 && load_writes(job))
		rc = task_run(l, worker_flush, 1, why);
	r->metadata_writes += atomic_load(&l->img->metadata_writes) - metadata;
	if (rc == 0 && job->verify)
		rc = task_run(l, worker_verify, job->threads, why);
	for (i = 0; i < job->threads; i++)
		r->verified += l->workers[i].verified;
	if (rc == 0 && atomic_load(&interrupted)) {
		rc = -EINTR;
		why_set(why, "%.200s: %s ended early, by a signal", l->spec,
		    job->name);
	}
	return rc;
}

int
load_run(struct load *l, const struct load_job *job,
    struct load_result *result, char why[WHY_MAX])
{
	char release_why[WHY_MAX];
	unsigned i;
	int rc;

	assert(job->threads <= l->nr_workers);
	l->job = job;
	atomic_store(&l->failed, false);
	for (i = 0; i < job->threads; i++)
		set_up_worker(l, i);
	rc = task_run(l, worker_prepare, job->threads, why);
	if (rc == 0)
		rc = run_prepared(l, result, why);
	task_run(l, worker_release, job->threads, release_why);
	return rc;
}
