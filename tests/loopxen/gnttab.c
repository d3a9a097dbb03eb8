/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * libxengnttab.so.1 without Xen.
 *
 * A handle is a connection to the broker, which hands out the file of a domain
 * when that domain is used for the first time (not before: a process that
 * locks its memory after opening its handles must not lock a whole guest).  A
 * copy is then a memcpy under a pin, a map is one mmap per run of adjacent
 * pages.
 *
 * Pinning: set our bit in the grant, then look whether the page is granted.
 * The frontend clears the word, then looks at the bits.  Both are sequentially
 * consistent, so at least one of the two sees the other.
 */
#include <sys/mman.h>
#include <sys/queue.h>

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xengnttab.h>

#include "tests/loopxen/shared.h"

#define MAX_MAP_PAGES	65536u	/* Linux's gntdev: its limit parameter */

/* A domain as seen through this handle. */
struct peer {
	LIST_ENTRY(peer)	 entry;
	uint32_t		 domid;
	int			 fd;
	struct lx_domain	*dom;
	size_t			 size;
	unsigned		 slot;
	unsigned		 nmapped;	/* pages of ours; keeps peer */
	uint16_t		*maps;		/* ... of each reference */
};

struct page {
	struct peer	*peer;
	uint32_t	 ref;
	uint32_t	 frame;
};

struct map {
	LIST_ENTRY(map)	 entry;
	char		*addr;
	uint32_t	 count;
	struct page	 page[];
};

struct xengntdev_handle {
	pthread_mutex_t		 lock;
	int			 sock;
	uint32_t		 domid;		/* ours: to whom is granted */
	bool			 counted;
	struct lx_costs		 costs;
	LIST_HEAD(peers, peer)	 peers;
	LIST_HEAD(maps, map)	 maps;
};

/* ---- handles and domains ---------------------------------------------- */

xengnttab_handle *
xengnttab_open(struct xentoollog_logger *logger, unsigned open_flags)
{
	struct lx_msg	 msg = { .op = LX_OP_GNTTAB };
	xengnttab_handle *h;
	int		 fds[LX_MSG_FDS], error;

	(void)logger;
	(void)open_flags;
	if ((h = calloc(1, sizeof(*h))) == NULL)
		return NULL;
	h->domid = msg.domid = lx_own_domid();
	msg.flags = lx_own_flags();
	h->counted = !(msg.flags & LX_UNCOUNTED);
	error = h->sock = lx_connect(true);
	if (error >= 0 &&
	    (error = lx_call(h->sock, &msg, -1, fds)) != 0)
		close(h->sock);
	if (error < 0) {
		fprintf(stderr, "loopxen: grants: cannot reach the broker at "
		    "LOOPXEN_SOCKET: %s; start it with "
		    "tests/loopxen/loopxen\n", strerror(-error));
		free(h);
		errno = -error;
		return NULL;
	}
	lx_costs_read(&h->costs);
	pthread_mutex_init(&h->lock, NULL);
	LIST_INIT(&h->peers);
	LIST_INIT(&h->maps);
	return h;
}

int
xengnttab_fd(xengnttab_handle *h)
{
	return h->sock;
}

int
xengnttab_set_max_grants(xengnttab_handle *h, uint32_t nr_grants)
{
	(void)h;
	(void)nr_grants;
	return 0;
}

static void
peer_close(struct peer *p)
{
	LIST_REMOVE(p, entry);
	munmap(p->dom, p->size);
	close(p->fd);
	free(p->maps);
	free(p);
}

static struct peer *
peer_open(xengnttab_handle *h, uint32_t domid)
{
	struct lx_msg	 msg = { .op = LX_OP_DOMAIN, .domid = domid };
	struct peer	*p;
	int		 fds[LX_MSG_FDS];

	if ((p = calloc(1, sizeof(*p))) == NULL)
		return NULL;
	p->maps = calloc(LX_GREFS, sizeof(*p->maps));
	if (p->maps == NULL || lx_call(h->sock, &msg, -1, fds) != 0)
		goto fail;
	p->domid = domid;
	p->fd = fds[0];
	p->slot = msg.value;
	p->size = lx_domain_size(msg.port);	/* its number of pages */
	if (p->slot >= LX_SLOTS || (p->dom = lx_map(p->fd, p->size)) == NULL) {
		close(p->fd);
		goto fail;
	}
	LIST_INSERT_HEAD(&h->peers, p, entry);
	return p;
 fail:
	free(p->maps);
	free(p);
	return NULL;
}

/* The domain that has this number now; NULL when there is none. */
static struct peer *
peer_get(xengnttab_handle *h, uint32_t domid)
{
	struct peer	*p, *next;

	for (p = LIST_FIRST(&h->peers); p != NULL; p = next) {
		next = LIST_NEXT(p, entry);
		if (p->domid != domid)
			continue;
		if (!atomic_load(&p->dom->dead))
			return p;
		if (p->nmapped == 0)
			peer_close(p);
	}
	return peer_open(h, domid);
}

static void
handle_count(xengnttab_handle *h, struct peer *p, enum lx_count what,
    uint64_t n)
{
	if (h->counted && n != 0)
		lx_count(p->dom, p->slot, what, n);
}

/* ---- pins ------------------------------------------------------------- */

static uint64_t
slot_bit(const struct peer *p)
{
	return 1ull << (p->slot % 64);
}

/*
 * Look at a grant whose pin is set.  GNTST_okay and the page, or why not: as
 * Xen says it.
 */
static int16_t
grant_check(xengnttab_handle *h, struct peer *p, struct lx_grant *g,
    bool write, uint32_t *frame)
{
	uint64_t	word = atomic_load(&g->word);

	if (!(word & LX_GRANTED) || lx_word_domid(word) != h->domid ||
	    (write && (word & LX_READONLY)) ||
	    lx_word_page(word) >= p->dom->npages)
		return GNTST_general_error;
	*frame = lx_word_page(word);
	return GNTST_okay;
}

/* ---- copies ----------------------------------------------------------- */

static int16_t
segment_copy(xengnttab_handle *h, struct peer *p,
    xengnttab_grant_copy_segment_t *seg)
{
	bool		 from = (seg->flags & GNTCOPY_source_gref) != 0;
	uint32_t	 ref, frame;
	struct lx_grant	*g;
	int16_t		 status;
	char		*page;
	int		 fault;

	ref = from ? seg->source.foreign.ref : seg->dest.foreign.ref;
	lx_spin(h->costs.segment_ns);
	if ((fault = lx_fault(&p->dom->fault_copy)) != 0)
		return (int16_t)fault;
	if (ref >= LX_GREFS)
		return GNTST_bad_gntref;

	g = lx_domain_grant(p->dom, ref);
	atomic_fetch_or(&g->copying[p->slot / 64], slot_bit(p));
	status = grant_check(h, p, g, !from, &frame);
	if (status == GNTST_okay) {
		page = lx_domain_page(p->dom, frame);
		if (from)
			memcpy(seg->dest.virt,
			    page + seg->source.foreign.offset, seg->len);
		else
			memcpy(page + seg->dest.foreign.offset,
			    seg->source.virt, seg->len);
	}
	atomic_fetch_and(&g->copying[p->slot / 64], ~slot_bit(p));
	return status;
}

/* gntdev refuses the whole call for these. */
static bool
segment_legal(const xengnttab_grant_copy_segment_t *seg)
{
	unsigned	offset;

	switch (seg->flags & (GNTCOPY_source_gref | GNTCOPY_dest_gref)) {
	case GNTCOPY_source_gref:
		offset = seg->source.foreign.offset;
		break;
	case GNTCOPY_dest_gref:
		offset = seg->dest.foreign.offset;
		break;
	default:
		return false;
	}
	return offset + seg->len <= LX_PAGE;
}

static uint32_t
segment_domid(const xengnttab_grant_copy_segment_t *seg)
{
	return seg->flags & GNTCOPY_source_gref ? seg->source.foreign.domid :
	    seg->dest.foreign.domid;
}

/* The sums of a run of segments of one domain. */
struct run {
	struct peer	*peer;
	uint64_t	 segments, bytes, errors;
};

static void
run_count(xengnttab_handle *h, const struct run *run)
{
	if (run->peer == NULL)
		return;
	handle_count(h, run->peer, LX_COPY_CALLS, 1);
	handle_count(h, run->peer, LX_COPY_SEGMENTS, run->segments);
	handle_count(h, run->peer, LX_COPY_BYTES, run->bytes);
	handle_count(h, run->peer, LX_COPY_ERRORS, run->errors);
}

/* A copy that takes its time; ppoll, because the shipped filter allows it. */
static void
copy_delay(struct peer *p)
{
	uint32_t	 ms = atomic_load_explicit(&p->dom->delay_copy_ms,
			    memory_order_relaxed);
	struct timespec	 t = { ms / 1000, ms % 1000 * 1000000l };

	if (ms != 0)
		ppoll(NULL, 0, &t, NULL);
}

static void
handle_copy(xengnttab_handle *h, uint32_t count,
    xengnttab_grant_copy_segment_t *segs)
{
	struct run	 run = { NULL, 0, 0, 0 };
	uint32_t	 domid;

	for (uint32_t i = 0; i < count; i++) {
		domid = segment_domid(&segs[i]);
		if (run.peer == NULL || run.peer->domid != domid ||
		    atomic_load_explicit(&run.peer->dom->dead,
		    memory_order_relaxed)) {
			run_count(h, &run);
			run = (struct run){ peer_get(h, domid), 0, 0, 0 };
			if (run.peer != NULL)
				copy_delay(run.peer);
		}
		if (run.peer == NULL) {
			segs[i].status = GNTST_bad_domain;
			continue;
		}
		segs[i].status = segment_copy(h, run.peer, &segs[i]);
		run.segments++;
		if (segs[i].status == GNTST_okay)
			run.bytes += segs[i].len;
		else
			run.errors++;
	}
	run_count(h, &run);
}

int
xengnttab_grant_copy(xengnttab_handle *h, uint32_t count,
    xengnttab_grant_copy_segment_t *segs)
{
	for (uint32_t i = 0; i < count; i++)
		if (!segment_legal(&segs[i])) {
			errno = EINVAL;
			return -1;
		}
	lx_spin(h->costs.call_ns);
	pthread_mutex_lock(&h->lock);
	handle_copy(h, count, segs);
	pthread_mutex_unlock(&h->lock);
	return 0;
}

/* ---- maps ------------------------------------------------------------- */

static void
page_unpin(struct page *page)
{
	struct peer	*p = page->peer;
	struct lx_grant	*g = lx_domain_grant(p->dom, page->ref);

	if (--p->maps[page->ref] == 0)
		atomic_fetch_and(&g->mapping[p->slot / 64], ~slot_bit(p));
	p->nmapped--;
}

static int
page_pin(xengnttab_handle *h, struct page *page, uint32_t domid, uint32_t ref,
    bool write)
{
	struct lx_grant	*g;
	struct peer	*p;

	if ((p = peer_get(h, domid)) == NULL || ref >= LX_GREFS ||
	    p->maps[ref] == UINT16_MAX)
		return -EINVAL;
	page->peer = p;
	page->ref = ref;
	g = lx_domain_grant(p->dom, ref);
	p->nmapped++;
	if (p->maps[ref]++ == 0)
		atomic_fetch_or(&g->mapping[p->slot / 64], slot_bit(p));
	if (grant_check(h, p, g, write, &page->frame) != GNTST_okay) {
		page_unpin(page);
		return -EINVAL;
	}
	return 0;
}

/* Put the pinned pages at one stretch of addresses. */
static int
map_place(struct map *m, int prot)
{
	uint32_t	 i, n;
	off_t		 off;
	void		*at;

	m->addr = mmap(NULL, (size_t)m->count * LX_PAGE, PROT_NONE,
	    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (m->addr == MAP_FAILED)
		return -errno;
	for (i = 0; i < m->count; i += n) {
		struct page	*page = &m->page[i];

		for (n = 1; i + n < m->count; n++)
			if (page[n].peer != page->peer ||
			    page[n].frame != page->frame + n)
				break;
		off = (off_t)(LX_PAGES_OFFSET + (size_t)page->frame * LX_PAGE);
		at = mmap(m->addr + (size_t)i * LX_PAGE, (size_t)n * LX_PAGE,
		    prot, MAP_SHARED | MAP_FIXED, page->peer->fd, off);
		if (at == MAP_FAILED) {
			int error = -errno;

			munmap(m->addr, (size_t)m->count * LX_PAGE);
			return error;
		}
	}
	return 0;
}

/* mapped_now of every domain of a map that begins or ends. */
static void
map_account(xengnttab_handle *h, const struct map *m, bool begins)
{
	enum lx_count	 pages = begins ? LX_MAPPED_PAGES : LX_UNMAPPED_PAGES;
	enum lx_count	 calls = begins ? LX_MAP_CALLS : LX_UNMAP_CALLS;

	if (!h->counted)
		return;
	for (uint32_t i = 0; i < m->count; i++) {
		struct peer	*p = m->page[i].peer;

		if (i == 0 || p != m->page[i - 1].peer)
			handle_count(h, p, calls, 1);
		handle_count(h, p, pages, 1);
		if (begins)
			atomic_fetch_add(&p->dom->mapped_now[p->slot], 1);
		else
			atomic_fetch_sub(&p->dom->mapped_now[p->slot], 1);
	}
}

/* stride 0: all references are of domids[0] */
static int
handle_map(xengnttab_handle *h, uint32_t count, const uint32_t *domids,
    unsigned stride, const uint32_t *refs, int prot, struct map **mp)
{
	struct peer	*first = peer_get(h, domids[0]);
	struct map	*m;
	uint32_t	 n = 0;
	int		 error = 0;

	m = malloc(sizeof(*m) + (size_t)count * sizeof(m->page[0]));
	if (m == NULL)
		return -ENOMEM;
	m->count = count;
	if (first != NULL) {
		first->nmapped++;	/* stays, even if it dies meanwhile */
		error = -lx_fault(&first->dom->fault_map);
	}
	for (; n < count && error == 0; n++) {
		lx_spin(h->costs.segment_ns);
		error = page_pin(h, &m->page[n], domids[n * stride], refs[n],
		    (prot & PROT_WRITE) != 0);
		if (error != 0)
			break;
	}
	if (error == 0)
		error = map_place(m, prot);
	if (error != 0 && first != NULL) {
		handle_count(h, first, LX_MAP_CALLS, 1);
		handle_count(h, first, LX_MAP_ERRORS, 1);
	}
	if (first != NULL)
		first->nmapped--;
	if (error != 0) {
		while (n > 0)
			page_unpin(&m->page[--n]);
		free(m);
		return error;
	}
	map_account(h, m, true);
	LIST_INSERT_HEAD(&h->maps, m, entry);
	*mp = m;
	return 0;
}

static void *
map_refs(xengnttab_handle *h, uint32_t count, const uint32_t *domids,
    unsigned stride, const uint32_t *refs, int prot)
{
	struct map	*m = NULL;
	int		 error;

	if (count == 0 || count > MAX_MAP_PAGES ||
	    (prot & ~(PROT_READ | PROT_WRITE)) != 0) {
		errno = EINVAL;
		return NULL;
	}
	lx_spin(h->costs.call_ns);
	pthread_mutex_lock(&h->lock);
	error = handle_map(h, count, domids, stride, refs, prot, &m);
	pthread_mutex_unlock(&h->lock);
	if (error != 0) {
		errno = -error;
		return NULL;
	}
	return m->addr;
}

void *
xengnttab_map_grant_ref(xengnttab_handle *h, uint32_t domid, uint32_t ref,
    int prot)
{
	return map_refs(h, 1, &domid, 0, &ref, prot);
}

void *
xengnttab_map_grant_refs(xengnttab_handle *h, uint32_t count,
    uint32_t *domids, uint32_t *refs, int prot)
{
	return map_refs(h, count, domids, 1, refs, prot);
}

void *
xengnttab_map_domain_grant_refs(xengnttab_handle *h, uint32_t count,
    uint32_t domid, uint32_t *refs, int prot)
{
	return map_refs(h, count, &domid, 0, refs, prot);
}

/* Only vchan asks for the notification at unmap. */
void *
xengnttab_map_grant_ref_notify(xengnttab_handle *h, uint32_t domid,
    uint32_t ref, int prot, uint32_t notify_offset, evtchn_port_t notify_port)
{
	if (notify_offset != UINT32_MAX || notify_port != UINT32_MAX) {
		errno = ENOSYS;
		return NULL;
	}
	return map_refs(h, 1, &domid, 0, &ref, prot);
}

static int
map_end(xengnttab_handle *h, struct map *m)
{
	if (munmap(m->addr, (size_t)m->count * LX_PAGE) == -1)
		return -errno;
	map_account(h, m, false);
	for (uint32_t i = 0; i < m->count; i++)
		page_unpin(&m->page[i]);
	LIST_REMOVE(m, entry);
	free(m);
	return 0;
}

/* A map ends as it began: its whole length from its first address. */
static struct map *
map_find(xengnttab_handle *h, const void *addr, uint32_t count)
{
	struct map	*m;

	LIST_FOREACH(m, &h->maps, entry)
		if (m->addr == addr && m->count == count)
			return m;
	return NULL;
}

int
xengnttab_unmap(xengnttab_handle *h, void *start_address, uint32_t count)
{
	struct map	*m;
	int		 error = -EINVAL;

	lx_spin(h->costs.call_ns);
	pthread_mutex_lock(&h->lock);
	if ((m = map_find(h, start_address, count)) != NULL)
		error = map_end(h, m);
	pthread_mutex_unlock(&h->lock);
	if (error != 0) {
		errno = -error;
		return -1;
	}
	return 0;
}

int
xengnttab_close(xengnttab_handle *h)
{
	struct map	*m;
	struct peer	*p;
	int		 error = 0;

	if (h == NULL)
		return 0;
	while ((m = LIST_FIRST(&h->maps)) != NULL)
		if ((error = map_end(h, m)) != 0) {
			errno = -error;
			return -1;
		}
	while ((p = LIST_FIRST(&h->peers)) != NULL)
		peer_close(p);
	close(h->sock);
	pthread_mutex_destroy(&h->lock);
	free(h);
	return 0;
}

/* ---- what no block backend calls -------------------------------------- */

static int
unsupported(void)
{
	errno = ENOSYS;
	return -1;
}

int
xengnttab_dmabuf_exp_from_refs(xengnttab_handle *h, uint32_t domid,
    uint32_t flags, uint32_t count, const uint32_t *refs, uint32_t *fd)
{
	(void)h; (void)domid; (void)flags; (void)count; (void)refs; (void)fd;
	return unsupported();
}

int
xengnttab_dmabuf_exp_wait_released(xengnttab_handle *h, uint32_t fd,
    uint32_t wait_to_ms)
{
	(void)h; (void)fd; (void)wait_to_ms;
	return unsupported();
}

int
xengnttab_dmabuf_imp_to_refs(xengnttab_handle *h, uint32_t domid, uint32_t fd,
    uint32_t count, uint32_t *refs)
{
	(void)h; (void)domid; (void)fd; (void)count; (void)refs;
	return unsupported();
}

int
xengnttab_dmabuf_imp_release(xengnttab_handle *h, uint32_t fd)
{
	(void)h; (void)fd;
	return unsupported();
}

xengntshr_handle *
xengntshr_open(struct xentoollog_logger *logger, unsigned open_flags)
{
	(void)logger; (void)open_flags;
	errno = ENOSYS;
	return NULL;
}

int
xengntshr_close(xengntshr_handle *xgs)
{
	return xgs == NULL ? 0 : unsupported();
}

int
xengntshr_fd(xengntshr_handle *xgs)
{
	(void)xgs;
	return unsupported();
}

void *
xengntshr_share_pages(xengntshr_handle *xgs, uint32_t domid, int count,
    uint32_t *refs, int writable)
{
	(void)xgs; (void)domid; (void)count; (void)refs; (void)writable;
	errno = ENOSYS;
	return NULL;
}

void *
xengntshr_share_page_notify(xengntshr_handle *xgs, uint32_t domid,
    uint32_t *ref, int writable, uint32_t notify_offset,
    evtchn_port_t notify_port)
{
	(void)xgs; (void)domid; (void)ref; (void)writable;
	(void)notify_offset; (void)notify_port;
	errno = ENOSYS;
	return NULL;
}

int
xengntshr_unshare(xengntshr_handle *xgs, void *start_address, uint32_t count)
{
	(void)xgs; (void)start_address; (void)count;
	return unsupported();
}
