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

int
page_create(const char *path, const struct message_open *open_msg,
    uint64_t image_dev, uint64_t image_ino, struct page **page)
{
	struct page_header *h;
	struct page *p;
	int fd, rc = 0;

	/* A new file, not the old one emptied: someone may still map that. */
	if (unlink(path) != 0 && errno != ENOENT)
		return -errno;
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
	    0600);
	if (fd < 0)
		return -errno;
	/* Allocated now: a full file system must not be a SIGBUS later. */
	rc = -posix_fallocate(fd, 0, sizeof(*p));
	if (rc < 0)
		goto err_unlink;
	p = mmap(NULL, sizeof(*p), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED) {
		rc = -errno;
		goto err_unlink;
	}
	close(fd);

	h = &p->header;
	memcpy(h->magic, PAGE_MAGIC, sizeof(h->magic));
	h->layout = PAGE_LAYOUT;
	h->nr_queues = MAX_QUEUES;
	h->bytes = sizeof(*p);
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

/* Map a page file as it is, if it is one. */
static int
page_map(const char *path, int flags, int prot, struct page **page)
{
	struct page *p;
	struct stat st;
	int fd, rc = 0;

	fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) != 0)
		rc = -errno;
	else if (!S_ISREG(st.st_mode) || st.st_size != (off_t)sizeof(*p))
		rc = -EPROTO;
	if (rc < 0) {
		close(fd);
		return rc;
	}
	p = mmap(NULL, sizeof(*p), prot, MAP_SHARED, fd, 0);
	rc = p == MAP_FAILED ? -errno : 0;
	close(fd);
	if (rc < 0)
		return rc;
	if (memcmp(p->header.magic, PAGE_MAGIC, sizeof(p->header.magic)) != 0 ||
	    p->header.layout != PAGE_LAYOUT || p->header.bytes != sizeof(*p) ||
	    p->header.nr_queues != MAX_QUEUES) {
		page_close(p);
		return -EPROTO;
	}
	*page = p;
	return 0;
}

int
page_open(const char *path, const struct page **page)
{
	struct page *p = NULL;
	int rc = page_map(path, O_RDONLY, PROT_READ, &p);

	if (rc == 0)
		*page = p;
	return rc;
}

int
page_takeover(const char *path, const struct message_open *o,
    uint64_t image_dev, uint64_t image_ino, uint32_t generation,
    struct page **page, const char **what)
{
	const struct page_header *h;
	int rc;

	*what = NULL;
	rc = page_map(path, O_RDWR, PROT_READ | PROT_WRITE, page);
	if (rc == -EPROTO) {
		*what = "layout";
		return -ESTALE;
	}
	if (rc < 0)
		return rc;

	h = &(*page)->header;
	if (h->domid != o->domid || h->devid != o->devid)
		*what = "disk";
	else if (memcmp(h->uuid, o->uuid, sizeof(h->uuid)) != 0)
		*what = "domain";
	else if (memcmp(h->backend, o->backend, sizeof(h->backend)) != 0)
		*what = "backend directory";
	else if (h->image_dev != image_dev || h->image_ino != image_ino)
		*what = "image";
	else if (h->generation != generation || !h->connected)
		*what = "connection";
	if (*what != NULL) {
		page_close(*page);
		*page = NULL;
		return -ESTALE;
	}
	(*page)->header.pid = getpid();
	return 0;
}

bool
page_same_connection(const struct page *page, const struct message_connect *c)
{
	const struct page_queue *q;
	uint32_t i;

	if (page->header.abi != c->abi)
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
page_close(const struct page *page)
{
	if (page != NULL)
		munmap((void *)(uintptr_t)page, sizeof(*page));
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
	page->header.generation = generation;
}
