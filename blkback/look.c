/* SPDX-License-Identifier: GPL-2.0-or-later */
/* look: reading page files, and believing little of them (see look.h). */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "blkback/clock.h"
#include "blkback/look.h"

#define TRIES 4		/* to see a slot twice in the same state */
#define COMM_MAX 16u	/* bytes of a process's name, NUL included */

const char *const look_op_names[PAGE_NR_OPS] = {
	"read", "write", "flush", "barrier", "discard",
};

const char *const look_stage_names[LOOK_NR_STAGES] = {
	"taken", "memory", "turn", "grant-copy", "storage", "metadata",
	"operator", "response", "unknown",
};

/* ---- one slot ------------------------------------------------------------ */

static uint32_t
slots_of(const struct page_queue *q)
{
	return q->order <= RING_MAX_ORDER ? ring_slots(q->order) : 0;
}

uint32_t
look_inflight(const struct page_queue *q)
{
	uint32_t n = q->req_cons - q->rsp_prod;

	return n <= slots_of(q) ? n : 0;
}

/* See page.h; and an index that lies too far away is no index. */
static bool
slot_in_flight(const struct page_queue *q, const struct page_slot *s)
{
	switch ((uint32_t)s->state) {
	case PAGE_SLOT_TAKEN:
		return q->req_cons - s->index - 1 < slots_of(q);
	case PAGE_SLOT_ANSWERED:
		return s->index - q->rsp_prod < slots_of(q);
	default:
		return false;
	}
}

static int
operation_of(uint8_t wire)
{
	switch (wire) {
	case BLKIF_OP_READ:
		return PAGE_READ;
	case BLKIF_OP_WRITE:
		return PAGE_WRITE;
	case BLKIF_OP_FLUSH_DISKCACHE:
		return PAGE_FLUSH;
	case BLKIF_OP_WRITE_BARRIER:
		return PAGE_BARRIER;
	case BLKIF_OP_DISCARD:
		return PAGE_DISCARD;
	default:
		return -1;
	}
}

/* Of a request whose segments lie in the ring. */
static int64_t
sectors_of(const blkif_request_t *req)
{
	int64_t n = 0;
	unsigned i, first, last;

	if (req->nr_segments > BLKIF_MAX_SEGMENTS_PER_REQUEST)
		return -1;
	for (i = 0; i < req->nr_segments; i++) {
		first = req->seg[i].first_sect;
		last = req->seg[i].last_sect;
		if (last < first || last > 7)
			return -1;
		n += last - first + 1;
	}
	return n;
}

/* What the guest asked for, as far as it makes sense. */
static void
describe(const struct page_slot *s, struct look_request *r)
{
	blkif_request_indirect_t indirect;
	blkif_request_discard_t discard;

	r->sectors = -1;
	r->op = operation_of(s->req.operation);
	r->id = s->req.id;
	r->sector = s->req.sector_number;
	if (s->req.operation == BLKIF_OP_INDIRECT) {
		memcpy(&indirect, &s->req, sizeof(indirect));
		r->op = operation_of(indirect.indirect_op);
		r->id = indirect.id;
		r->sector = indirect.sector_number;
		if (s->length > 0 && s->length <=
		    SPEC_SEGMENTS_MAX * RING_PAGE)
			r->sectors = s->length / 512;
	} else if (r->op == PAGE_DISCARD) {
		memcpy(&discard, &s->req, sizeof(discard));
		r->id = discard.id;
		r->sector = discard.sector_number;
		if (discard.nr_sectors <= INT64_MAX)
			r->sectors = (int64_t)discard.nr_sectors;
	} else if (r->op >= 0) {
		r->sectors = sectors_of(&s->req);
	}
	if (r->op == PAGE_FLUSH)
		r->sector = 0;
}

/* The first request of a merged I/O knows what all of them wait for. */
static bool
waits_for_metadata(const struct page_queue *q, uint32_t stage)
{
	uint32_t first = stage >> PAGE_STAGE_BITS;
	const struct page_slot *s = &q->slot[first % RING_MAX_SLOTS];

	return first < slots_of(q) && s->state == PAGE_SLOT_TAKEN &&
	    s->stage == stage && s->metadata == 1;
}

static enum look_stage
stage_of(const struct page_queue *q, uint32_t stage, int op)
{
	switch (stage & ((1u << PAGE_STAGE_BITS) - 1)) {
	case PAGE_STAGE_TAKEN:
		return LOOK_TAKEN;
	case PAGE_STAGE_ROOM:
		return op == PAGE_BARRIER ? LOOK_BARRIER : LOOK_ROOM;
	case PAGE_STAGE_COPY:
		return LOOK_COPY;
	case PAGE_STAGE_STORAGE:
		return waits_for_metadata(q, stage) ? LOOK_METADATA :
		    LOOK_STORAGE;
	case PAGE_STAGE_HELD:
		return LOOK_HELD;
	case PAGE_STAGE_ANSWER:
		return LOOK_ANSWER;
	default:
		return LOOK_UNKNOWN;
	}
}

bool
look_slot(const struct page_queue *q, uint32_t i, uint64_t now_ns,
    struct look_request *r)
{
	const struct page_slot *s = &q->slot[i];

	if (i >= slots_of(q) || !slot_in_flight(q, s))
		return false;
	describe(s, r);
	r->stage = stage_of(q, s->stage, r->op);
	r->age_ns = s->taken_ns == 0 || s->taken_ns > now_ns ? -1 :
	    (int64_t)((now_ns - s->taken_ns) & INT64_MAX);
	return true;
}

/* ---- files --------------------------------------------------------------- */

static int
read_at(int fd, void *to, size_t bytes, uint64_t offset)
{
	ssize_t n = pread(fd, to, bytes, (off_t)offset);

	if (n < 0)
		return -errno;
	return n == (ssize_t)bytes ? 0 : -EPROTO;
}

static uint64_t
queue_offset(uint32_t number)
{
	return offsetof(struct page, queue) +
	    (uint64_t)number * sizeof(struct page_queue);
}

/* Open and check.  A descriptor or -errno. */
static int
open_page(const char *run_dir, const struct look_disk *d,
    struct page_header *h)
{
	char path[PATH_MAX];
	uint64_t bytes;
	int fd, rc;

	if (snprintf(path, sizeof(path), "%s/%u-%u.page", run_dir, d->domid,
	    d->devid) >= (int)sizeof(path))
		return -ENAMETOOLONG;
	/* Whoever puts a FIFO there must not stop us. */
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return -errno;
	rc = page_read_header(fd, h, &bytes);
	if (rc == 0 && (h->domid != d->domid || h->devid != d->devid))
		rc = -EPROTO;
	if (rc == 0)
		return fd;
	close(fd);
	return rc;
}

/*
 * Is 'pid' the process of this disk, and how much has it used?  Its name says
 * so; the number may be another one's by now.
 */
static void
look_process(struct look_disk *d, int32_t pid)
{
	char path[64], text[1024], want[COMM_MAX + 8], name[COMM_MAX];
	unsigned long long user, system, started;
	const char *end;
	long tick = sysconf(_SC_CLK_TCK);
	ssize_t n;
	int fd;

	if (pid <= 0 || tick <= 0)
		return;
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return;
	text[n] = '\0';
	snprintf(name, sizeof(name), "disk %u/%u", d->domid, d->devid);
	snprintf(want, sizeof(want), " (%s) ", name);
	end = strstr(text, want);
	if (end == NULL || end[strlen(want)] == 'Z' ||
	    sscanf(end + strlen(want), "%*c %*d %*d %*d %*d %*d %*u %*u %*u "
	    "%*u %*u %llu %llu %*d %*d %*d %*d %*d %*d %llu", &user, &system,
	    &started) != 3)
		return;
	d->pid = pid;
	d->started = started;
	d->cpu_ns = (user + system) * (1000000000ull / (unsigned long)tick);
}

/* The counters of all queues; the in-flight tables stay unread. */
static int
look_queues(int fd, const struct page_header *h, struct look_disk *d)
{
	size_t bytes = offsetof(struct page_queue, slot);
	struct page_queue *q;
	uint32_t i;
	int rc = 0;

	q = aligned_alloc(64, sizeof(*q));
	if (q == NULL)
		return -ENOMEM;
	for (i = 0; i < h->nr_queues && rc == 0; i++) {
		rc = read_at(fd, q, bytes, queue_offset(i));
		if (rc < 0)
			break;
		page_add_stats(&d->stats, &q->stats);
		if (i < d->queues)
			d->inflight += look_inflight(q);
	}
	free(q);
	return rc;
}

static int
fill_disk(const char *run_dir, struct look_disk *d)
{
	struct page_header h = { .layout = 0 };
	struct stat st;
	int fd, rc;

	fd = open_page(run_dir, d, &h);
	if (fd < 0)
		return fd;
	d->connected = h.connected == 1;
	d->persistent = h.persistent == 1;
	d->failed = h.failed != 0;
	d->queues_offered = h.nr_queues;
	if (d->connected && h.used_queues <= h.nr_queues)
		d->queues = h.used_queues;
	rc = look_queues(fd, &h, d);
	if (rc == 0 && fstat(fd, &st) != 0)
		rc = -errno;
	if (rc == 0)
		d->instance = st.st_ino;
	close(fd);
	look_process(d, h.pid);
	return rc;
}

void
look_disk(const char *run_dir, struct look_disk *d)
{
	struct look_disk clean = { .domid = d->domid, .devid = d->devid };
	int rc;

	vdev_name(d->devid, clean.vdev);
	*d = clean;
	rc = fill_disk(run_dir, d);
	if (rc < 0) {
		*d = clean;
		d->error = rc;
	}
}

/* "7-51712.page" and nothing else. */
static bool
parse_name(const char *name, struct look_disk *d)
{
	char back[32];

	if (sscanf(name, "%5" SCNu32 "-%10" SCNu32, &d->domid, &d->devid) != 2)
		return false;
	snprintf(back, sizeof(back), "%u-%u.page", d->domid, d->devid);
	return d->domid <= UINT16_MAX && strcmp(back, name) == 0;
}

static int
by_number(const void *a, const void *b)
{
	const struct look_disk *x = a, *y = b;

	if (x->domid != y->domid)
		return x->domid < y->domid ? -1 : 1;
	return x->devid < y->devid ? -1 : x->devid > y->devid;
}

int
look_disks(const char *run_dir, struct look_disk **disks, size_t *nr)
{
	struct look_disk *list = NULL, *more, one = { .error = 0 };
	size_t n = 0, room = 0, i, left = 0;
	struct dirent *e;
	DIR *dir = opendir(run_dir);
	int rc = 0;

	if (dir == NULL)
		return -errno;
	while ((e = readdir(dir)) != NULL && rc == 0) {
		if (!parse_name(e->d_name, &one))
			continue;
		if (n == room) {
			room = room == 0 ? 64 : room * 2;
			more = realloc(list, room * sizeof(*list));
			if (more == NULL) {
				rc = -ENOMEM;
				break;
			}
			list = more;
		}
		list[n++] = one;
	}
	closedir(dir);
	if (rc < 0) {
		free(list);
		return rc;
	}
	if (n > 0)
		qsort(list, n, sizeof(*list), by_number);
	for (i = 0; i < n; i++) {
		look_disk(run_dir, &list[i]);
		if (list[i].error != -ENOENT)	/* it went meanwhile */
			list[left++] = list[i];
	}
	*disks = list;
	*nr = left;
	return 0;
}

/* ---- what is in flight --------------------------------------------------- */

/*
 * A slot as it was at one instant: it has to look the same twice; and the
 * indices from after it.  0: so it is in 'q' now; -EAGAIN: it
 * changes all the time.
 */
static int
read_slot(int fd, struct page_queue *q, uint32_t number, uint32_t i)
{
	uint64_t at = queue_offset(number) +
	    offsetof(struct page_queue, slot[0]) + i * sizeof(q->slot[0]);
	uint8_t *s = (uint8_t *)&q->slot[i], first[sizeof(q->slot[0])];
	int rc, tries;

	for (tries = 0; tries < TRIES; tries++) {
		rc = read_at(fd, &first, sizeof(first), at);
		if (rc == 0)
			rc = read_at(fd, s, sizeof(first), at);
		if (rc < 0)
			return rc;
		if (memcmp(first, s, sizeof(first)) == 0)
			return read_at(fd, q, offsetof(struct page_queue,
			    inflight), queue_offset(number));
	}
	return -EAGAIN;
}

/* Append what is in flight of one queue to 'reqs', which has the room. */
static int
look_queue(int fd, uint32_t number, struct page_queue *q,
    struct look_request *reqs, size_t *nr)
{
	uint32_t i;
	int rc;

	rc = read_at(fd, q, sizeof(*q), queue_offset(number));
	for (i = 0; rc == 0 && i < RING_MAX_SLOTS; i++) {
		if (q->slot[i].state == PAGE_SLOT_FREE)
			continue;
		rc = read_slot(fd, q, number, i);
		if (rc == 0 && look_slot(q, i, clock_ns(), &reqs[*nr]))
			reqs[(*nr)++].queue = number;
		if (rc == -EAGAIN)
			rc = 0;
	}
	return rc;
}

int
look_requests(const char *run_dir, const struct look_disk *d,
    struct look_request **reqs, size_t *nr)
{
	struct look_request *list = NULL;
	struct page_queue *q = NULL;
	struct page_header h = { .layout = 0 };
	uint32_t i, queues;
	int fd, rc = 0;

	*nr = 0;
	fd = open_page(run_dir, d, &h);
	if (fd < 0)
		return fd;
	queues = h.connected == 1 && h.used_queues <= h.nr_queues ?
	    h.used_queues : 0;
	q = aligned_alloc(64, sizeof(*q));
	list = calloc((size_t)queues * RING_MAX_SLOTS + 1, sizeof(*list));
	if (q == NULL || list == NULL)
		rc = -ENOMEM;
	for (i = 0; i < queues && rc == 0; i++)
		rc = look_queue(fd, i, q, list, nr);
	free(q);
	close(fd);
	if (rc < 0) {
		free(list);
		return rc;
	}
	*reqs = list;
	return 0;
}
