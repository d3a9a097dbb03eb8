/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * vbd_page: what the page file of a disk tells the supervisor, which trusts
 * none of it further than stands at each function.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "blkback/page.h"
#include "blkback/vbd.h"

void
vbd_remove_page(struct vbd *v)
{
	char path[128];

	process_path(path, sizeof(path), v->sup->opt->run_dir, v->domid,
	    v->devid, "page");
	if (unlink(path) != 0 && errno != ENOENT)
		log_error(-errno, "%s: cannot remove %s", v->name, path);
}

int
vbd_open_page(const struct vbd *v, char path[VBD_PAGE_PATH],
    const struct page **page, struct page_shape *shape)
{
	process_path(path, VBD_PAGE_PATH, v->sup->opt->run_dir, v->domid,
	    v->devid, "page");
	return page_open(path, page, shape);
}

/*
 * Of a process that was found running and has said nothing of use, as one of
 * another release would: it must not serve on beside its successor.
 */
pid_t
vbd_page_pid(struct vbd *v)
{
	char path[VBD_PAGE_PATH];
	const struct page *page;
	struct page_shape shape;
	pid_t pid;

	if (vbd_open_page(v, path, &page, &shape) < 0)
		return 0;
	pid = page->header.pid;		/* process_kill() looks who that is */
	page_close(page, &shape);
	return pid;
}

/*
 * Does the page file hold something that the image lacks?  Only whether to look
 * is decided by it: the process that looks trusts it no further.
 */
bool
vbd_redo_left(struct vbd *v)
{
	char path[VBD_PAGE_PATH];
	const struct page *page;
	struct page_shape shape;
	bool left;

	if (vbd_open_page(v, path, &page, &shape) < 0)
		return false;
	left = page->header.redo_bytes > 0 && page->header.redo_used == 1;
	page_close(page, &shape);
	return left;
}

/*
 * The connection that a page tells of.  False when it tells of none, or of one
 * that cannot be.
 */
static bool
read_connection(const struct page *page, const struct page_shape *shape,
    struct message_connect *c)
{
	const struct page_queue *q;
	struct message_ring *r;
	uint32_t i;

	if (page->header.connected != 1)
		return false;
	c->abi = page->header.abi;
	c->persistent = page->header.persistent == 1;
	c->nr_queues = page->header.used_queues;
	/* From here on, what was copied counts, not what it is now. */
	if (c->abi > RING_ABI_X86_32 || c->nr_queues < 1 ||
	    c->nr_queues > shape->nr_queues)
		return false;
	for (i = 0; i < c->nr_queues; i++) {
		q = &page->queue[i];
		r = &c->ring[i];
		r->order = q->order;
		r->port = q->port;
		memcpy(r->gref, q->gref, sizeof(r->gref));
		if (r->order > RING_MAX_ORDER)
			return false;
	}
	return true;
}

/*
 * Which rings the page tells of, and which connection.  The rings are only ever
 * compared with what the frontend shows, so that a frontend which has changed
 * its mind meanwhile is noticed.  False when the page tells of none.
 */
bool
vbd_read_page(struct vbd *v)
{
	char path[VBD_PAGE_PATH];
	const struct page *page;
	struct page_shape shape;
	bool connected;

	memset(&v->rings, 0, sizeof(v->rings));
	if (vbd_open_page(v, path, &page, &shape) < 0)
		return false;
	connected = read_connection(page, &shape, &v->rings);
	if (connected)
		v->generation = page->header.generation;
	else
		memset(&v->rings, 0, sizeof(v->rings));
	page_close(page, &shape);
	return connected;
}
