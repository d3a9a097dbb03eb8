/* SPDX-License-Identifier: GPL-2.0-or-later */
/* merge: groups of requests that share an I/O (see merge.h). */
#include <limits.h>

#include "blkback/merge.h"

static void merge_done(struct io *io, int error);

/*
 * Append one request to a vector of n entries, of which the last one grows
 * where the memory simply goes on.  How many entries there are now.
 */
static int
vector_append(const struct merger *m, const struct request *req,
    struct iovec *start, int n)
{
	const struct segment *s = req->parsed.segment;
	unsigned i;

	for (i = 0; i < req->parsed.nr_segments; i++) {
		uint8_t *p = m->arena->data[req->page + i];

		if (n > 0 && (uint8_t *)start[n - 1].iov_base +
		    start[n - 1].iov_len == p) {
			start[n - 1].iov_len += s[i].length;
			continue;
		}
		start[n].iov_base = p;
		start[n].iov_len = s[i].length;
		n++;
	}
	return n;
}

static void
group_append(struct request *first, struct request *req)
{
	const struct merger *m = first->merger;

	first->io.iovcnt = vector_append(m, req, first->io.iov,
	    first->io.iovcnt);
	first->io.length += req->parsed.length;
	STAILQ_INSERT_TAIL(&first->group, req, link);
	first->nr_group++;
}

/* Make 'req' a group of its own. */
static void
group_start(struct merger *m, struct request *req)
{
	req->io.op = req->parsed.op == PAGE_READ ? IO_READ : IO_WRITE;
	req->io.offset = req->parsed.offset;
	req->io.length = 0;
	req->io.iov = &m->arena->iov[req->page];
	req->io.iovcnt = 0;
	req->io.done = merge_done;
	STAILQ_INIT(&req->group);
	req->nr_group = 0;
	group_append(req, req);
}

static void
group_submit(struct merger *m, struct request *first)
{
	m->ios++;
	channel_submit(m->channel, &first->io);
}

static bool
group_fits(const struct merger *m, const struct request *first,
    const struct request *req)
{
	const struct request *last = m->last;

	return req->parsed.op == first->parsed.op &&
	    req->parsed.offset == first->io.offset + first->io.length &&
	    req->page == last->page + last->parsed.nr_segments &&
	    first->io.length + req->parsed.length <= m->limit &&
	    first->io.iovcnt + req->parsed.nr_segments <= IOV_MAX;
}

void
merge_add(struct merger *m, struct request *req)
{
	if (m->open != NULL && group_fits(m, m->open, req)) {
		group_append(m->open, req);
	} else {
		merge_end(m);
		group_start(m, req);
		m->open = req;
	}
	m->last = req;
}

void
merge_end(struct merger *m)
{
	struct request *first = m->open;

	m->open = NULL;
	if (first != NULL)
		group_submit(m, first);
}

void
merge_add_bare(struct merger *m, struct request *req, enum io_op op)
{
	merge_end(m);
	req->io.op = op;
	req->io.offset = op == IO_DISCARD ? req->parsed.offset : 0;
	req->io.length = op == IO_DISCARD ? req->parsed.length : 0;
	req->io.iov = NULL;
	req->io.iovcnt = 0;
	req->io.done = merge_done;
	STAILQ_INIT(&req->group);
	STAILQ_INSERT_TAIL(&req->group, req, link);
	req->nr_group = 1;
	group_submit(m, req);
}

static void
merge_done(struct io *io, int error)
{
	struct request *first = container_of(io, struct request, io), *req;
	struct merger *m = first->merger;
	struct request_list group = STAILQ_HEAD_INITIALIZER(group);
	bool alone = first->nr_group == 1;

	/* Going alone makes each a first one: take the list away before. */
	while ((req = STAILQ_FIRST(&first->group)) != NULL) {
		STAILQ_REMOVE_HEAD(&first->group, link);
		STAILQ_INSERT_TAIL(&group, req, link);
	}
	while ((req = STAILQ_FIRST(&group)) != NULL) {
		STAILQ_REMOVE_HEAD(&group, link);
		if (error == 0 || alone) {
			m->done(req, error);
			continue;
		}
		m->retried++;
		group_start(m, req);
		group_submit(m, req);
	}
}
