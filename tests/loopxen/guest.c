/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The guest's side of loopxen (guest.h says what it promises).
 *
 * Grants are words in the domain's file, written by this process alone; ports
 * are lx_events handles, one each.  One page more than the caller asked for
 * is the ring to xenstored.
 */
#include <sys/mman.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <xenstore.h>

#include "tests/loopxen/events.h"
#include "tests/loopxen/guest.h"

_Static_assert(LOOPGUEST_PAGE_SIZE == LX_PAGE, "page size");
_Static_assert(LOOPGUEST_MAX_GREFS == LX_GREFS, "grant table");
_Static_assert(LOOPGUEST_PENDING == LX_PENDING &&
    LOOPGUEST_MASKED == LX_MASKED && LOOPGUEST_READY == LX_READY, "bits");

struct loopguest {
	pthread_mutex_t		 lock;
	int			 sock;		/* the domain's life */
	struct lx_domain	*dom;
	size_t			 size;
	uint32_t		 domid;
	uint32_t		 npages;	/* without xenstored's ring */
	uint32_t		 next;		/* reference to try first */
	uint32_t		 ngrants;
	uint64_t		 base[LX_NCOUNTS];	/* sums at the reset */
	struct loopguest_port	*xenstore;
};

struct loopguest_port {
	struct loopguest	*guest;
	struct lx_events	*events;
	uint32_t		 number;
};

/* ---- the domain ------------------------------------------------------- */

static int
guest_start(struct loopguest *g)
{
	struct lx_msg	msg = { .op = LX_OP_CREATE, .domid = g->domid,
			    .value = g->npages + 1 };
	int		fds[LX_MSG_FDS], error;

	if ((g->sock = lx_connect(true)) < 0)
		return g->sock;
	error = lx_call(g->sock, &msg, -1, fds);
	if (error == 0 && (g->dom = lx_map(fds[0], g->size)) == NULL)
		error = -errno;
	if (fds[0] != -1)
		close(fds[0]);
	if (error != 0)
		close(g->sock);
	return error;
}

int
loopguest_create(struct loopguest **gp, unsigned domid, unsigned npages)
{
	struct loopguest *g;
	int		 error;

	if (npages >= LX_MAX_PAGES)
		return -EINVAL;
	if ((g = calloc(1, sizeof(*g))) == NULL)
		return -ENOMEM;
	g->domid = domid;
	g->npages = npages;
	g->size = lx_domain_size(npages + 1);
	g->next = LOOPGUEST_FIRST_GREF;
	if ((error = guest_start(g)) != 0) {
		free(g);
		return error;
	}
	pthread_mutex_init(&g->lock, NULL);
	*gp = g;
	return 0;
}

void
loopguest_destroy(struct loopguest *g)
{
	if (g->xenstore != NULL)
		loopguest_port_close(g->xenstore);
	close(g->sock);		/* the broker destroys the domain */
	munmap(g->dom, g->size);
	pthread_mutex_destroy(&g->lock);
	free(g);
}

unsigned
loopguest_domid(const struct loopguest *g)
{
	return g->domid;
}

unsigned
loopguest_npages(const struct loopguest *g)
{
	return g->npages;
}

void *
loopguest_page(const struct loopguest *g, unsigned page)
{
	return lx_domain_page(g->dom, page);
}

int
loopguest_shutdown(struct loopguest *g, unsigned reason)
{
	struct lx_msg	msg = { .op = LX_OP_SHUTDOWN, .value = reason };
	int		fds[LX_MSG_FDS], error;

	pthread_mutex_lock(&g->lock);
	error = lx_call(g->sock, &msg, -1, fds);
	pthread_mutex_unlock(&g->lock);
	return error;
}

/* ---- xenstored -------------------------------------------------------- */

static struct lx_grant *
guest_grant(const struct loopguest *g, uint32_t ref)
{
	return lx_domain_grant(g->dom, ref);
}

static void
guest_grant_set(struct loopguest *g, uint32_t ref, uint64_t word)
{
	if (atomic_load(&g->dom->grants_end) <= ref)
		atomic_store(&g->dom->grants_end, ref + 1);
	atomic_store(&guest_grant(g, ref)->word, word);
}

/* What a domain's builder prepares: ring page, its grant, and a port. */
int
loopguest_introduce(struct loopguest *g, struct xs_handle *xs)
{
	int	error;

	if (g->xenstore == NULL) {
		memset(lx_domain_page(g->dom, g->npages), 0, LX_PAGE);
		guest_grant_set(g, LX_XENSTORE_REF, lx_word(g->npages, 0,
		    false));
		error = loopguest_port_open(g, 0, &g->xenstore);
		if (error != 0)
			return error;
	}
	if (!xs_introduce_domain(xs, g->domid, g->npages,
	    loopguest_port_number(g->xenstore)))
		return -errno;
	return 0;
}

int
loopguest_release(struct loopguest *g, struct xs_handle *xs)
{
	if (!xs_release_domain(xs, g->domid))
		return -errno;
	if (g->xenstore != NULL)
		loopguest_port_close(g->xenstore);
	g->xenstore = NULL;
	guest_grant_set(g, LX_XENSTORE_REF, 0);
	return 0;
}

void *
loopguest_xenstore(const struct loopguest *g, struct loopguest_port **pp)
{
	*pp = g->xenstore;
	return lx_domain_page(g->dom, g->npages);
}

/* ---- grants ----------------------------------------------------------- */

/* ngrants counts what the caller made, not xenstored's. */
static void
guest_grant_add(struct loopguest *g, uint32_t ref, unsigned page,
    unsigned domid, bool readonly)
{
	guest_grant_set(g, ref, lx_word(page, domid, readonly));
	g->ngrants++;
}

/*
 * The search goes on where the last one ended, so that a reference just given
 * back is not the next one: a backend that uses a stale one is then seen.
 */
int
loopguest_grant(struct loopguest *g, unsigned page, unsigned domid,
    bool readonly, uint32_t *ref)
{
	uint32_t	n, r;

	if (page >= g->npages || domid > LX_MAX_DOMID)
		return -EINVAL;
	pthread_mutex_lock(&g->lock);
	for (n = LOOPGUEST_FIRST_GREF; n < LX_GREFS; n++) {
		r = g->next;
		if (++g->next == LX_GREFS)
			g->next = LOOPGUEST_FIRST_GREF;
		if (atomic_load(&guest_grant(g, r)->word) & LX_GRANTED)
			continue;
		guest_grant_add(g, r, page, domid, readonly);
		*ref = r;
		break;
	}
	pthread_mutex_unlock(&g->lock);
	return n < LX_GREFS ? 0 : -ENOSPC;
}

int
loopguest_grant_at(struct loopguest *g, uint32_t ref, unsigned page,
    unsigned domid, bool readonly)
{
	int	error = 0;

	if (page >= g->npages || domid > LX_MAX_DOMID || ref >= LX_GREFS ||
	    ref == LX_XENSTORE_REF)
		return -EINVAL;
	pthread_mutex_lock(&g->lock);
	if (atomic_load(&guest_grant(g, ref)->word) & LX_GRANTED)
		error = -EEXIST;
	else
		guest_grant_add(g, ref, page, domid, readonly);
	pthread_mutex_unlock(&g->lock);
	return error;
}

static unsigned
slots_count(const _Atomic uint64_t words[LX_SLOT_WORDS])
{
	unsigned	n = 0;

	for (unsigned i = 0; i < LX_SLOT_WORDS; i++)
		n += (unsigned)__builtin_popcountll(atomic_load(&words[i]));
	return n;
}

static bool
grant_busy(const struct lx_grant *gr)
{
	return slots_count(gr->mapping) + slots_count(gr->copying) > 0;
}

/*
 * Looking before the word is cleared keeps a grant in use valid all the time;
 * looking again afterwards catches a backend that came in between.
 */
static int
grant_end(struct loopguest *g, uint32_t ref, bool force)
{
	struct lx_grant	*gr;
	uint64_t	 word;

	if (ref >= LX_GREFS)
		return -ENOENT;
	gr = guest_grant(g, ref);
	if (!((word = atomic_load(&gr->word)) & LX_GRANTED))
		return -ENOENT;
	if (!force && grant_busy(gr))
		return -EBUSY;
	atomic_store(&gr->word, 0);
	if (!force && grant_busy(gr)) {
		atomic_store(&gr->word, word);
		return -EBUSY;
	}
	g->ngrants--;
	return 0;
}

int
loopguest_ungrant(struct loopguest *g, uint32_t ref)
{
	int	error;

	pthread_mutex_lock(&g->lock);
	error = grant_end(g, ref, false);
	pthread_mutex_unlock(&g->lock);
	return error;
}

int
loopguest_revoke(struct loopguest *g, uint32_t ref)
{
	int	error;

	pthread_mutex_lock(&g->lock);
	error = grant_end(g, ref, true);
	pthread_mutex_unlock(&g->lock);
	return error;
}

int
loopguest_grant_readonly(struct loopguest *g, uint32_t ref, bool readonly)
{
	struct lx_grant	*gr;
	uint64_t	 word;

	if (ref >= LX_GREFS)
		return -ENOENT;
	gr = guest_grant(g, ref);
	pthread_mutex_lock(&g->lock);
	word = atomic_load(&gr->word);
	if (word & LX_GRANTED)
		atomic_store(&gr->word, lx_word(lx_word_page(word),
		    lx_word_domid(word), readonly));
	pthread_mutex_unlock(&g->lock);
	return word & LX_GRANTED ? 0 : -ENOENT;
}

unsigned
loopguest_grant_mapped(const struct loopguest *g, uint32_t ref)
{
	return ref < LX_GREFS ? slots_count(guest_grant(g, ref)->mapping) : 0;
}

unsigned
loopguest_grant_copying(const struct loopguest *g, uint32_t ref)
{
	return ref < LX_GREFS ? slots_count(guest_grant(g, ref)->copying) : 0;
}

unsigned
loopguest_grants(const struct loopguest *g)
{
	return g->ngrants;
}

/* ---- event channels --------------------------------------------------- */

int
loopguest_port_open(struct loopguest *g, unsigned domid,
    struct loopguest_port **pp)
{
	struct loopguest_port	*p;
	int			 error, flags, number;

	if ((p = calloc(1, sizeof(*p))) == NULL)
		return -ENOMEM;
	error = lx_events_open(g->domid, LX_GUEST, true, &p->events);
	if (error != 0) {
		free(p);
		return error;
	}
	flags = fcntl(lx_events_fd(p->events), F_GETFL);
	if (flags == -1 || fcntl(lx_events_fd(p->events), F_SETFL,
	    flags | O_NONBLOCK) == -1)
		number = -errno;
	else
		number = lx_events_alloc(p->events, domid);
	if (number < 0) {
		lx_events_close(p->events);
		free(p);
		return number;
	}
	p->guest = g;
	p->number = (uint32_t)number;
	*pp = p;
	return 0;
}

void
loopguest_port_close(struct loopguest_port *p)
{
	/* At once: the broker would do it when it sees the end of file. */
	(void)lx_events_unbind(p->events, p->number);
	lx_events_close(p->events);
	free(p);
}

uint32_t
loopguest_port_number(const struct loopguest_port *p)
{
	return p->number;
}

bool
loopguest_port_bound(const struct loopguest_port *p)
{
	struct lx_port	*sp = lx_events_port(p->events, p->number);

	return lx_link_state(atomic_load(&sp->link)) == LX_INTERDOMAIN;
}

int
loopguest_port_notify(struct loopguest_port *p)
{
	return lx_events_notify(p->events, p->number);
}

int
loopguest_port_fd(const struct loopguest_port *p)
{
	return lx_events_fd(p->events);
}

int
loopguest_port_pending(struct loopguest_port *p)
{
	int	n = lx_events_pending(p->events);

	return n < 0 ? n : 0;
}

int
loopguest_port_unmask(struct loopguest_port *p)
{
	return lx_events_unmask(p->events, p->number);
}

static int64_t
now_ms(void)
{
	struct timespec	t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int
loopguest_port_wait(struct loopguest_port *p, int timeout_ms)
{
	struct pollfd	 pfd = { .fd = loopguest_port_fd(p),
			    .events = POLLIN };
	int64_t		 end = now_ms() + timeout_ms, left = timeout_ms;
	int		 n;

	for (;;) {
		if ((n = poll(&pfd, 1, (int)left)) == -1)
			return -errno;
		if (n > 0 && (n = loopguest_port_pending(p)) == 0)
			return loopguest_port_unmask(p);
		if (n < 0 && n != -EAGAIN)
			return n;
		if (timeout_ms >= 0 && (left = end - now_ms()) <= 0)
			return -ETIMEDOUT;
	}
}

void
loopguest_port_mask(struct loopguest_port *p)
{
	lx_events_mask(p->events, p->number);
}

bool
loopguest_port_take(struct loopguest_port *p)
{
	struct lx_port	*sp = lx_events_port(p->events, p->number);

	return (atomic_fetch_and(&sp->bits, ~LX_PENDING) & LX_PENDING) != 0;
}

const _Atomic uint32_t *
loopguest_port_word(const struct loopguest_port *p)
{
	return &lx_events_port(p->events, p->number)->bits;
}

/* ---- counters and faults ---------------------------------------------- */

static uint64_t
counts_sum(const struct loopguest *g, enum lx_count what)
{
	uint64_t	sum = 0;

	for (unsigned i = 0; i < LX_SHARDS; i++)
		sum += atomic_load_explicit(&g->dom->counts[i].n[what],
		    memory_order_relaxed);
	return sum;
}

void
loopguest_counters(const struct loopguest *g, struct loopguest_counters *c)
{
	uint64_t	n[LX_NCOUNTS];

	for (unsigned i = 0; i < LX_NCOUNTS; i++)
		n[i] = counts_sum(g, i) - g->base[i];
	memset(c, 0, sizeof(*c));
	c->copy_calls = n[LX_COPY_CALLS];
	c->copy_segments = n[LX_COPY_SEGMENTS];
	c->copy_bytes = n[LX_COPY_BYTES];
	c->copy_errors = n[LX_COPY_ERRORS];
	c->map_calls = n[LX_MAP_CALLS];
	c->map_errors = n[LX_MAP_ERRORS];
	c->mapped_pages = n[LX_MAPPED_PAGES];
	c->unmap_calls = n[LX_UNMAP_CALLS];
	c->unmapped_pages = n[LX_UNMAPPED_PAGES];
	c->backend_notifies = n[LX_BACKEND_NOTIFIES];
	c->frontend_notifies = n[LX_FRONTEND_NOTIFIES];
	c->backend_pending = n[LX_BACKEND_PENDING];
	c->backend_unmasks = n[LX_BACKEND_UNMASKS];
	c->binds = n[LX_BINDS];
	c->unbinds = n[LX_UNBINDS];
	for (unsigned i = 0; i < LX_SLOTS; i++)
		c->mapped_now += atomic_load(&g->dom->mapped_now[i]);
	c->bound_now = atomic_load(&g->dom->bound_now);
}

void
loopguest_counters_reset(struct loopguest *g)
{
	for (unsigned i = 0; i < LX_NCOUNTS; i++)
		g->base[i] = counts_sum(g, i);
}

static void
fault_set(struct lx_fault *f, uint64_t nth, uint64_t count, int code)
{
	atomic_store(&f->from, 0);	/* off while the rest changes */
	atomic_store(&f->next, 0);
	atomic_store(&f->to, nth + count);
	atomic_store(&f->code, code);
	atomic_store(&f->from, nth);
}

void
loopguest_fault_copy(struct loopguest *g, uint64_t nth, uint64_t count,
    int status)
{
	fault_set(&g->dom->fault_copy, nth, count, status);
}

void
loopguest_fault_map(struct loopguest *g, uint64_t nth, uint64_t count,
    int error)
{
	fault_set(&g->dom->fault_map, nth, count, error);
}

void
loopguest_delay_copy(struct loopguest *g, unsigned milliseconds)
{
	atomic_store(&g->dom->delay_copy_ms, milliseconds);
}
