/* SPDX-License-Identifier: GPL-2.0-or-later */
/* page: making, taking over and mapping the file (see page.h). */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "blkback/page.h"

#define REDO_UNIT 4096u		/* what redo memory begins at and consists of */

static uint64_t
units(uint64_t bytes)
{
	return (bytes + REDO_UNIT - 1) / REDO_UNIT * REDO_UNIT;
}

/* Of header and queues. */
static uint64_t
queues_end(uint32_t nr_queues)
{
	return offsetof(struct page, queue) +
	    (uint64_t)nr_queues * sizeof(struct page_queue);
}

/* Of the whole file. */
static uint64_t
page_size(uint32_t nr_queues, uint32_t redo_bytes)
{
	return redo_bytes == 0 ? queues_end(nr_queues) :
	    units(queues_end(nr_queues)) + units(redo_bytes);
}

void *
page_redo(struct page *page, const struct page_shape *shape)
{
	return shape->redo_bytes == 0 ? NULL :
	    (uint8_t *)page + units(queues_end(shape->nr_queues));
}

static void
fill_header(struct page_header *h, const struct message_open *open_msg,
    const struct page_shape *shape)
{
	memcpy(h->magic, PAGE_MAGIC, sizeof(h->magic));
	h->layout = PAGE_LAYOUT;
	h->nr_queues = shape->nr_queues;
	h->bytes = page_size(shape->nr_queues, shape->redo_bytes);
	h->redo_bytes = units(shape->redo_bytes);
	h->image_dev = shape->image_dev;
	h->image_ino = shape->image_ino;
	h->domid = open_msg->domid;
	h->devid = open_msg->devid;
	h->pid = getpid();
	memcpy(h->uuid, open_msg->uuid, sizeof(h->uuid));
	memcpy(h->backend, open_msg->backend, sizeof(h->backend));
}

int
page_create(const char *path, const struct message_open *open_msg,
    const struct page_shape *shape, struct page **page)
{
	uint64_t bytes = page_size(shape->nr_queues, shape->redo_bytes);
	struct page *p;
	int fd, rc = 0;

	if (units(shape->redo_bytes) > UINT32_MAX || shape->nr_queues < 1 ||
	    shape->nr_queues > MAX_QUEUES)
		return -EINVAL;

	/* A new file, not the old one emptied: someone may still map that. */
	if (unlink(path) != 0 && errno != ENOENT)
		return -errno;
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
	    0600);
	if (fd < 0)
		return -errno;
	/* Allocated now: a full file system must not be a SIGBUS later. */
	rc = -posix_fallocate(fd, 0, bytes);
	if (rc < 0)
		goto err_unlink;
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED) {
		rc = -errno;
		goto err_unlink;
	}
	close(fd);
	fill_header(&p->header, open_msg, shape);
	*page = p;
	return 0;

err_unlink:
	close(fd);
	unlink(path);
	return rc;
}

/* Is it a page file, and as long as it says? */
static bool
page_ok(const struct page_header *h, uint64_t bytes)
{
	return memcmp(h->magic, PAGE_MAGIC, sizeof(h->magic)) == 0 &&
	    h->layout == PAGE_LAYOUT && h->nr_queues >= 1 &&
	    h->nr_queues <= MAX_QUEUES && h->bytes == bytes &&
	    page_size(h->nr_queues, h->redo_bytes) == bytes;
}

int
page_read_header(int fd, struct page_header *h, uint64_t *bytes)
{
	struct stat st;
	ssize_t n;

	if (fstat(fd, &st) != 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EPROTO;
	n = pread(fd, h, sizeof(*h), 0);
	if (n < 0)
		return -errno;
	*bytes = st.st_size;
	return n == (ssize_t)sizeof(*h) && page_ok(h, *bytes) ? 0 : -EPROTO;
}

/*
 * Map a page file as it is, if it is one: all of it, or only what comes before
 * the redo memory; 'shape' is what that was.  NULL: 'error' says why.
 */
static struct page *
page_map(const char *path, bool all, struct page_shape *shape, int *error)
{
	int fd, prot = all ? PROT_READ | PROT_WRITE : PROT_READ;
	struct page *p = MAP_FAILED;
	struct page_header h;
	uint64_t bytes;

	fd = open(path, (all ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0) {
		*error = -errno;
		return NULL;
	}
	*error = page_read_header(fd, &h, &bytes);
	if (*error == 0) {
		*shape = (struct page_shape){
			.image_dev = h.image_dev, .image_ino = h.image_ino,
			.nr_queues = h.nr_queues,
			.redo_bytes = all ? h.redo_bytes : 0,
		};
		p = mmap(NULL, page_size(shape->nr_queues, shape->redo_bytes),
		    prot, MAP_SHARED, fd, 0);
		if (p == MAP_FAILED)
			*error = -errno;
	}
	close(fd);
	return p == MAP_FAILED ? NULL : p;
}

int
page_open(const char *path, const struct page **page, struct page_shape *shape)
{
	int error;
	const struct page *p = page_map(path, false, shape, &error);

	if (p == NULL)
		return error;
	*page = p;
	return 0;
}

/* What tells the page apart from the one that 'o' asks for, or NULL. */
static const char *
page_differs(const struct page_header *h, const struct message_open *o,
    uint32_t generation)
{
	if (h->domid != o->domid || h->devid != o->devid)
		return "disk";
	if (memcmp(h->uuid, o->uuid, sizeof(h->uuid)) != 0)
		return "domain";
	if (memcmp(h->backend, o->backend, sizeof(h->backend)) != 0)
		return "backend directory";
	if (o->resume != RESUME_REDO &&
	    (h->generation != generation || !h->connected))
		return "connection";
	return NULL;
}

/* The same for its shape, as it was found. */
static const char *
shape_differs(const struct page_shape *found, const struct page_shape *shape)
{
	if (found->image_dev != shape->image_dev ||
	    found->image_ino != shape->image_ino)
		return "image";
	if (found->nr_queues != shape->nr_queues)
		return "number of queues";
	if (found->redo_bytes != units(shape->redo_bytes))
		return "size of the redo memory";
	return NULL;
}

int
page_takeover(const char *path, const struct message_open *o,
    const struct page_shape *shape, uint32_t generation, struct page **page,
    const char **what)
{
	struct page_shape found;
	struct page *p;
	int error;

	*what = NULL;
	p = page_map(path, true, &found, &error);
	if (p == NULL && error == -EPROTO) {
		*what = "layout";
		return -ESTALE;
	}
	if (p == NULL)
		return error;
	*what = page_differs(&p->header, o, generation);
	if (*what == NULL)
		*what = shape_differs(&found, shape);
	if (*what != NULL) {
		page_close(p, &found);
		return -ESTALE;
	}
	p->header.pid = getpid();
	if (o->resume == RESUME_REDO)
		p->header.connected = 0;
	*page = p;
	return 0;
}

bool
page_same_connection(const struct page *page, const struct message_connect *c)
{
	const struct page_queue *q;
	uint32_t i;

	if (page->header.abi != c->abi ||
	    page->header.used_queues != c->nr_queues ||
	    page->header.persistent != c->persistent)
		return false;
	for (i = 0; i < c->nr_queues; i++) {
		q = &page->queue[i];
		if (q->order != c->ring[i].order ||
		    q->port != c->ring[i].port ||
		    memcmp(q->gref, c->ring[i].gref,
		    sizeof(q->gref[0]) << q->order) != 0)
			return false;
	}
	return true;
}

void
page_close(const struct page *page, const struct page_shape *shape)
{
	if (page != NULL)
		munmap((void *)(uintptr_t)page,
		    page_size(shape->nr_queues, shape->redo_bytes));
}

void
page_connect(struct page *page, const struct message_connect *c,
    uint32_t generation)
{
	struct page_queue *q;
	uint32_t i, slot;

	page->header.connected = 0;
	for (i = 0; i < c->nr_queues; i++) {
		q = &page->queue[i];
		for (slot = 0; slot < RING_MAX_SLOTS; slot++)
			atomic_store(&q->slot[slot].state, PAGE_SLOT_FREE);
		q->inflight = 0;
		q->order = c->ring[i].order;
		memcpy(q->gref, c->ring[i].gref, sizeof(q->gref));
		q->port = c->ring[i].port;
	}
	page->header.abi = c->abi;
	page->header.persistent = c->persistent;
	page->header.used_queues = c->nr_queues;
	page->header.generation = generation;
}

static uint64_t
larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

void
page_add_stats(struct page_stats *sum, const struct page_stats *s)
{
	size_t i, k;

	sum->reqs_taken += s->reqs_taken;
	sum->reqs_answered += s->reqs_answered;
	sum->reqs_rejected += s->reqs_rejected;
	sum->reqs_failed += s->reqs_failed;
	sum->ios += s->ios;
	sum->ios_retried += s->ios_retried;
	sum->submits += s->submits;
	sum->rounds += s->rounds;
	sum->copy_calls += s->copy_calls;
	sum->copy_segments += s->copy_segments;
	sum->map_calls += s->map_calls;
	sum->unmap_calls += s->unmap_calls;
	sum->publishes += s->publishes;
	sum->notifies += s->notifies;
	sum->events += s->events;
	sum->sleeps += s->sleeps;
	sum->polls += s->polls;
	/* Every connection has queue 0; the image counts for all of them. */
	sum->connects = larger(sum->connects, s->connects);
	sum->metadata_writes = larger(sum->metadata_writes,
	    s->metadata_writes);
	for (i = 0; i < PAGE_NR_OPS; i++) {
		sum->ops[i] += s->ops[i];
		sum->bytes[i] += s->bytes[i];
		sum->wait_ns[i] += s->wait_ns[i];
		sum->wait_max_ns[i] = larger(sum->wait_max_ns[i],
		    s->wait_max_ns[i]);
		for (k = 0; k < PAGE_WAIT_BUCKETS; k++)
			sum->waits[i][k] += s->waits[i][k];
	}
}
