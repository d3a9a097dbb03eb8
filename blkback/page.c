/* SPDX-License-Identifier: GPL-2.0-or-later */
/* page: making, taking over and mapping the file (see page.h). */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "blkback/page.h"

#define REDO_UNIT 4096u		/* what redo memory begins at and consists of */
#define REDO_AT   units(sizeof(struct page))

static uint64_t
units(uint64_t bytes)
{
	return (bytes + REDO_UNIT - 1) / REDO_UNIT * REDO_UNIT;
}

/* Of the whole file. */
static uint64_t
page_size(uint32_t redo_bytes)
{
	return redo_bytes == 0 ? sizeof(struct page) :
	    REDO_AT + units(redo_bytes);
}

void *
page_redo(struct page *page, uint32_t redo_bytes)
{
	return redo_bytes == 0 ? NULL : (uint8_t *)page + REDO_AT;
}

int
page_create(const char *path, const struct message_open *open_msg,
    uint64_t image_dev, uint64_t image_ino, uint32_t redo_bytes,
    struct page **page)
{
	uint64_t bytes = page_size(redo_bytes);
	struct page_header *h;
	struct page *p;
	int fd, rc = 0;

	if (units(redo_bytes) > UINT32_MAX)
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

	h = &p->header;
	memcpy(h->magic, PAGE_MAGIC, sizeof(h->magic));
	h->layout = PAGE_LAYOUT;
	h->nr_queues = MAX_QUEUES;
	h->bytes = bytes;
	h->redo_bytes = units(redo_bytes);
	h->image_dev = image_dev;
	h->image_ino = image_ino;
	h->domid = open_msg->domid;
	h->devid = open_msg->devid;
	h->pid = getpid();
	memcpy(h->uuid, open_msg->uuid, sizeof(h->uuid));
	memcpy(h->backend, open_msg->backend, sizeof(h->backend));
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
	    h->layout == PAGE_LAYOUT && h->nr_queues == MAX_QUEUES &&
	    h->bytes == bytes && page_size(h->redo_bytes) == bytes;
}

/*
 * Map a page file as it is, if it is one: all of it, or only what comes before
 * the redo memory; 'mapped' is how much that was.  NULL: 'error' says why.
 */
static struct page *
page_map(const char *path, bool all, uint64_t *mapped, int *error)
{
	int fd, prot = all ? PROT_READ | PROT_WRITE : PROT_READ;
	struct page *p = MAP_FAILED;
	struct stat st;

	*error = -EPROTO;
	*mapped = sizeof(*p);
	fd = open(path, (all ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 || fstat(fd, &st) != 0) {
		*error = -errno;
	} else if (S_ISREG(st.st_mode) && st.st_size >= (off_t)sizeof(*p) &&
	    st.st_size <= (off_t)page_size(UINT32_MAX)) {
		if (all)
			*mapped = st.st_size;
		p = mmap(NULL, *mapped, prot, MAP_SHARED, fd, 0);
		if (p == MAP_FAILED)
			*error = -errno;
	}
	if (fd >= 0)
		close(fd);
	if (p == MAP_FAILED)
		return NULL;
	if (!page_ok(&p->header, st.st_size)) {
		munmap(p, *mapped);
		return NULL;
	}
	return p;
}

int
page_open(const char *path, const struct page **page)
{
	uint64_t mapped;
	int error;
	const struct page *p = page_map(path, false, &mapped, &error);

	if (p == NULL)
		return error;
	*page = p;
	return 0;
}

/* What tells the page apart from the one that 'o' asks for, or NULL. */
static const char *
page_differs(const struct page_header *h, const struct message_open *o,
    uint64_t image_dev, uint64_t image_ino, uint32_t generation)
{
	if (h->domid != o->domid || h->devid != o->devid)
		return "disk";
	if (memcmp(h->uuid, o->uuid, sizeof(h->uuid)) != 0)
		return "domain";
	if (memcmp(h->backend, o->backend, sizeof(h->backend)) != 0)
		return "backend directory";
	if (h->image_dev != image_dev || h->image_ino != image_ino)
		return "image";
	if (o->resume != RESUME_REDO &&
	    (h->generation != generation || !h->connected))
		return "connection";
	return NULL;
}

int
page_takeover(const char *path, const struct message_open *o,
    uint64_t image_dev, uint64_t image_ino, uint32_t redo_bytes,
    uint32_t generation, struct page **page, const char **what)
{
	struct page *p;
	uint64_t bytes;
	int error;

	*what = NULL;
	p = page_map(path, true, &bytes, &error);
	if (p == NULL && error == -EPROTO) {
		*what = "layout";
		return -ESTALE;
	}
	if (p == NULL)
		return error;
	*what = page_differs(&p->header, o, image_dev, image_ino, generation);
	/* The size that is mapped, whatever the header says by now. */
	if (*what == NULL && bytes != page_size(redo_bytes))
		*what = "size of the redo memory";
	if (*what != NULL) {
		munmap(p, bytes);
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
page_close(const struct page *page, uint32_t redo_bytes)
{
	if (page != NULL)
		munmap((void *)(uintptr_t)page, page_size(redo_bytes));
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
	page->header.generation = generation;
}
