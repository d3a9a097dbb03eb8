/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the drop-in libraries, the guest's side and the broker share: the
 * layout of a domain's file and the messages on the broker's socket.
 *
 * Each domain is one memfd:
 *
 *	header | event channel ports | grant table | pages
 *
 * The file is handed out by the broker and mapped by whoever talks to that
 * domain, the head (header and ports) for events, all of it for grants.  The
 * broker alone changes the state of a port; events and grants then work on the
 * shared words, without the broker.
 *
 * A port's *link* says what is at the other end and carries a generation, so
 * that a cached peer is known to be stale by comparing one word.  Its *bits*
 * are the event itself, in the manner of Linux's /dev/xen/evtchn: a delivery
 * sets READY and MASKED and adds one to the owner's eventfd (a semaphore that
 * counts its READY ports); an event that finds MASKED only sets PENDING.
 *
 * A grant's *word* says what is granted.  Who uses it now is a set of bits,
 * one bit per handle of a backend (a slot), not a number: when a backend is
 * killed between two instructions, clearing its bit is right whether it was
 * set or not.
 */
#ifndef LOOPXEN_SHARED_H
#define LOOPXEN_SHARED_H

#include <sys/types.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LX_MAGIC	0x6c784431u	/* "lxD1" */
#define LX_PAGE		4096u
#define LX_PORTS	4096u		/* per domain; 0 is never used */
#define LX_GREFS	32768u		/* 64 grant frames, Xen's default */
#define LX_SLOT_WORDS	7u
#define LX_SLOTS	(64u * LX_SLOT_WORDS)
#define LX_SHARDS	16u
#define LX_MAX_DOMID	0x7fefu		/* DOMID_FIRST_RESERVED - 1 */
#define LX_MAX_PAGES	(1u << 22)	/* 16 GiB, sparse */
#define LX_XENBUS_PORT	1u		/* domain 0's own, for xenstored */
#define LX_XENSTORE_REF	1u		/* GNTTAB_RESERVED_XENSTORE */

/* Sums, per shard so that queues on different CPUs do not share a line. */
enum lx_count {
	LX_COPY_CALLS, LX_COPY_SEGMENTS, LX_COPY_BYTES, LX_COPY_ERRORS,
	LX_MAP_CALLS, LX_MAP_ERRORS, LX_MAPPED_PAGES,
	LX_UNMAP_CALLS, LX_UNMAPPED_PAGES,
	LX_BACKEND_NOTIFIES, LX_FRONTEND_NOTIFIES,
	LX_BACKEND_PENDING, LX_BACKEND_UNMASKS,
	LX_BINDS, LX_UNBINDS, LX_NCOUNTS
};

struct lx_counts {
	_Atomic uint64_t n[LX_NCOUNTS];
} __attribute__((aligned(128)));

/* Acts on the calls or segments numbered from ... to - 1; next counts them. */
struct lx_fault {
	_Atomic uint64_t next;
	_Atomic uint64_t from;		/* 0: off */
	_Atomic uint64_t to;
	_Atomic int32_t	 code;
};

struct lx_domain {
	uint32_t	 magic;
	uint32_t	 domid;
	uint32_t	 npages;
	_Atomic uint32_t dead;
	_Atomic uint32_t shutdown;	/* 0: running, else reason + 1 */
	_Atomic uint32_t grants_end;	/* highest reference ever granted + 1 */
	_Atomic uint32_t bound_now;
	_Atomic uint32_t delay_copy_ms;
	struct lx_fault	 fault_copy;
	struct lx_fault	 fault_map;
	_Atomic uint32_t mapped_now[LX_SLOTS];	/* the slot's pages */
	struct lx_counts counts[LX_SHARDS];
};

enum lx_state { LX_FREE, LX_UNBOUND, LX_INTERDOMAIN, LX_VIRQ };

#define LX_PENDING	1u
#define LX_MASKED	2u
#define LX_READY	4u

struct lx_port {
	_Atomic uint64_t link;
	_Atomic uint32_t bits;
	_Atomic uint32_t owner;		/* number of the handle that has it */
	uint32_t	 virq;		/* the broker's own notes */
	uint32_t	 binder;	/* this end did bind_interdomain */
} __attribute__((aligned(64)));

/* link: state 4 bits, generation 12, other domain 16, other port 32 */
static inline uint64_t
lx_link(enum lx_state state, unsigned gen, uint32_t domid, uint32_t port)
{
	return (uint64_t)state << 60 | (uint64_t)(gen & 0xfff) << 48 |
	    (uint64_t)(domid & 0xffff) << 32 | port;
}

static inline enum lx_state
lx_link_state(uint64_t l)
{
	return l >> 60;
}

static inline unsigned
lx_link_gen(uint64_t l)
{
	return l >> 48 & 0xfff;
}

static inline uint32_t
lx_link_domid(uint64_t l)
{
	return l >> 32 & 0xffff;
}

static inline uint32_t
lx_link_port(uint64_t l)
{
	return (uint32_t)l;
}

struct lx_grant {
	_Atomic uint64_t word;
	_Atomic uint64_t copying[LX_SLOT_WORDS];
	_Atomic uint64_t mapping[LX_SLOT_WORDS];
	uint64_t	 unused;
};

/* word: bit 0 granted, bit 1 read-only, domain 16 bits, page 32 */
#define LX_GRANTED	1u
#define LX_READONLY	2u
static inline uint64_t
lx_word(uint32_t page, uint32_t domid, bool readonly)
{
	return (uint64_t)page << 32 | (uint64_t)(domid & 0xffff) << 16 |
	    (readonly ? LX_READONLY : 0) | LX_GRANTED;
}

static inline uint32_t
lx_word_page(uint64_t w)
{
	return w >> 32;
}

static inline uint32_t
lx_word_domid(uint64_t w)
{
	return w >> 16 & 0xffff;
}

#define LX_PORTS_OFFSET	8192u
#define LX_HEAD_SIZE	(LX_PORTS_OFFSET + LX_PORTS * sizeof(struct lx_port))
#define LX_PAGES_OFFSET	(LX_HEAD_SIZE + LX_GREFS * sizeof(struct lx_grant))

_Static_assert(sizeof(struct lx_domain) <= LX_PORTS_OFFSET, "header");
_Static_assert(sizeof(struct lx_port) == 64, "one cache line per port");
_Static_assert(sizeof(struct lx_grant) == 128, "grants share no cache line");
_Static_assert(LX_HEAD_SIZE % LX_PAGE == 0, "head ends at a page");
_Static_assert(LX_PAGES_OFFSET % LX_PAGE == 0, "pages are pages");

static inline size_t
lx_domain_size(uint32_t npages)
{
	return LX_PAGES_OFFSET + (size_t)npages * LX_PAGE;
}

static inline struct lx_port *
lx_domain_port(struct lx_domain *dom, uint32_t port)
{
	return (struct lx_port *)((char *)dom + LX_PORTS_OFFSET) + port;
}

static inline struct lx_grant *
lx_domain_grant(struct lx_domain *dom, uint32_t ref)
{
	return (struct lx_grant *)((char *)dom + LX_HEAD_SIZE) + ref;
}

static inline char *
lx_domain_page(struct lx_domain *dom, uint32_t page)
{
	return (char *)dom + LX_PAGES_OFFSET + (size_t)page * LX_PAGE;
}

static inline void
lx_count(struct lx_domain *dom, unsigned shard, enum lx_count what,
    uint64_t n)
{
	atomic_fetch_add_explicit(&dom->counts[shard % LX_SHARDS].n[what], n,
	    memory_order_relaxed);
}

/* Is this call or segment one of those that fail?  Its code, or 0. */
static inline int
lx_fault(struct lx_fault *f)
{
	uint64_t	n;

	if (atomic_load_explicit(&f->from, memory_order_relaxed) == 0)
		return 0;
	n = atomic_fetch_add(&f->next, 1) + 1;
	if (n < atomic_load(&f->from) || n >= atomic_load(&f->to))
		return 0;
	return atomic_load(&f->code);
}

/* ---- the broker's socket: SEQPACKET, one answer per request ----------- */

enum lx_op {
	LX_OP_GNTTAB = 1,	/* this connection is a grant handle of domid */
	LX_OP_EVENTS,		/* ... an event handle of domid */
	LX_OP_ADOPT,		/* ... the one whose eventfd is attached */
	LX_OP_CREATE,		/* this connection is domain domid itself */
	LX_OP_DOMAIN,		/* file of domid, and a slot in it */
	LX_OP_ALLOC,		/* port for domid to bind to */
	LX_OP_BIND,		/* bind to domid's port */
	LX_OP_VIRQ,		/* port for a virtual interrupt */
	LX_OP_UNBIND,		/* close port */
	LX_OP_PEER,		/* other end of port: eventfd and file */
	LX_OP_RESTRICT,		/* only domid's channels from now on */
	LX_OP_SHUTDOWN,		/* this domain has shut down, value: reason */
	LX_OP_INFO,		/* first domain with a number >= domid */
	LX_OP_LAST
};

#define LX_GUEST	1u	/* flags: a guest's, its domain must be */
#define LX_UNCOUNTED	2u	/* flags: not a backend under test */

struct lx_msg {
	uint32_t op;		/* answer: the same */
	int32_t	 error;		/* answer: 0 or -errno */
	uint32_t domid;
	uint32_t port;
	uint32_t value;
	uint32_t flags;
};

#define LX_MSG_FDS	2

/* client.c: 0 (or a descriptor) or -errno; lx_map: NULL and errno */
struct lx_costs {
	uint64_t call_ns, segment_ns, notify_ns;
};

int	lx_connect(bool cloexec);
int	lx_call(int sock, struct lx_msg *, int sendfd, int fds[LX_MSG_FDS]);
struct lx_domain *lx_map(int fd, size_t size);
uint32_t lx_own_domid(void);
uint32_t lx_own_flags(void);
void	lx_costs_read(struct lx_costs *);
void	lx_spin(uint64_t ns);

#endif /* LOOPXEN_SHARED_H */
