/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The guest's side of loopxen: a domain played by a process.
 *
 * A guest owns memory (pages of 4096 bytes in a shared file), a grant table
 * and event channel ports.  A backend in another process, linked with the
 * drop-in libxengnttab and libxenevtchn, reaches them as it would under Xen.
 * The broker (LOOPXEN_SOCKET, see "loopxen env") introduces the two to each
 * other; it destroys a domain when the process that created it goes away.
 *
 * Functions return 0 or -errno unless said otherwise.  Calls on one port need
 * one caller at a time; different ports, and grants of different references,
 * may be used by different threads.  granting (loopguest_grant), creating and
 * destroying take a lock of their own.
 */
#ifndef LOOPXEN_GUEST_H
#define LOOPXEN_GUEST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define LOOPGUEST_PAGE_SIZE	4096u
#define LOOPGUEST_FIRST_GREF	8u	/* below: reserved, as in Xen */
#define LOOPGUEST_MAX_GREFS	32768u	/* beyond: GNTST_bad_gntref */

struct xs_handle;
struct loopguest;
struct loopguest_port;

/* ---- the domain ------------------------------------------------------- */

/*
 * Create domain domid (1 ... 32751) with npages zeroed pages; or, with domid
 * 0, be the frontends of domain 0, with up to 4096 pages, zeroed but once.
 * -EEXIST when the broker has that domain already, -ENOENT or -ECONNREFUSED
 * when no broker runs.
 */
int	loopguest_create(struct loopguest **, unsigned domid, unsigned npages);

/*
 * The domain disappears: its ports close, its grants fail with
 * GNTST_bad_domain, pages that a backend has mapped stay with that backend.
 * xenstored hears of it (VIRQ_DOM_EXC) and releases an introduced domain.
 * Ports of the guest must have been closed before.
 */
void	loopguest_destroy(struct loopguest *);

unsigned loopguest_domid(const struct loopguest *);
unsigned loopguest_npages(const struct loopguest *);

/* Address of a page; page n + 1 follows page n. */
void	*loopguest_page(const struct loopguest *, unsigned page);

/*
 * Make xenstored know the domain (xs_introduce_domain; @introduceDomain
 * fires), and forget it again (xs_release_domain; @releaseDomain fires).
 * Ring page and port are the guest's own and hidden.  The handle is any
 * connection to xenstored.
 */
int	loopguest_introduce(struct loopguest *, struct xs_handle *);
int	loopguest_release(struct loopguest *, struct xs_handle *);

/*
 * Of an introduced domain: the page that it shares with xenstored (xs_wire.h's
 * struct xenstore_domain_interface), and its port.
 */
void	*loopguest_xenstore(const struct loopguest *, struct loopguest_port **);

/* The domain has shut down (0 poweroff, 1 reboot, 3 crash) but still exists. */
int	loopguest_shutdown(struct loopguest *, unsigned reason);

/* ---- grants ----------------------------------------------------------- */

/*
 * Let backend domain domid use a page.  The reference is the lowest free one
 * from LOOPGUEST_FIRST_GREF on, not one that was just given back.  A page may
 * be granted more than once.  -ENOSPC when the table is full.
 */
int	loopguest_grant(struct loopguest *, unsigned page, unsigned domid,
	    bool readonly, uint32_t *ref);

/* The same with a reference of the caller's choice; -EEXIST when in use. */
int	loopguest_grant_at(struct loopguest *, uint32_t ref, unsigned page,
	    unsigned domid, bool readonly);

/*
 * Take a grant back.  -EBUSY, and nothing changed, while a backend has the
 * page mapped or copies from or to it; -ENOENT when ref is not granted.
 */
int	loopguest_ungrant(struct loopguest *, uint32_t ref);

/*
 * Take it back whatever the backend does: later maps and copies fail.  A page
 * that is mapped stays mapped (Xen could not do this, it shows a backend what
 * a hostile guest's invalid grants look like).
 */
int	loopguest_revoke(struct loopguest *, uint32_t ref);

/* Change an existing grant to read-only or back, as a hostile guest may. */
int	loopguest_grant_readonly(struct loopguest *, uint32_t ref, bool);

/* How many handles of backends map the page / copy from or to it now. */
unsigned loopguest_grant_mapped(const struct loopguest *, uint32_t ref);
unsigned loopguest_grant_copying(const struct loopguest *, uint32_t ref);

/* Number of references in use now (ring pages and leaks of a frontend). */
unsigned loopguest_grants(const struct loopguest *);

/* ---- event channels --------------------------------------------------- */

/*
 * Offer a port to backend domain domid (alloc_unbound).  Its number goes into
 * xenstore.  Each port has a file descriptor of its own.
 *
 * A delivered event masks the port until loopguest_port_unmask(); one more
 * event is remembered meanwhile and delivered by the unmask.  When the backend
 * closes its end (or dies) the port is unbound and can be bound again by the
 * same domain; an event sent to an unbound port is lost.
 */
int	loopguest_port_open(struct loopguest *, unsigned domid,
	    struct loopguest_port **);
void	loopguest_port_close(struct loopguest_port *);
uint32_t loopguest_port_number(const struct loopguest_port *);

/* Is a backend bound to it? */
bool	loopguest_port_bound(const struct loopguest_port *);

/* Send an event to the backend: always one system call. */
int	loopguest_port_notify(struct loopguest_port *);

/* Readable (non-blocking) while a delivered event waits to be taken. */
int	loopguest_port_fd(const struct loopguest_port *);

/* Take the delivered event: 0, or -EAGAIN when there is none. */
int	loopguest_port_pending(struct loopguest_port *);

/* Allow the next delivery; delivers at once what arrived since. */
int	loopguest_port_unmask(struct loopguest_port *);

/*
 * Sleep until an event is delivered, take it and unmask the port.
 * timeout_ms < 0: for ever.  0, -ETIMEDOUT or -EINTR.
 */
int	loopguest_port_wait(struct loopguest_port *, int timeout_ms);

/*
 * For a frontend that spins: mask the port (events are then only remembered,
 * no descriptor becomes readable) and look at loopguest_port_word() without a
 * system call; LOOPGUEST_PENDING says that an event came.  _take() clears and
 * returns it.  loopguest_port_unmask() goes back to sleeping.
 */
#define LOOPGUEST_PENDING	1u	/* an event is remembered */
#define LOOPGUEST_MASKED	2u	/* ... and not delivered meanwhile */
#define LOOPGUEST_READY		4u	/* delivered, not taken yet */
void	loopguest_port_mask(struct loopguest_port *);
bool	loopguest_port_take(struct loopguest_port *);
const _Atomic uint32_t *loopguest_port_word(const struct loopguest_port *);

/* ---- what the backend did with this domain ---------------------------- */

/* Sums since the domain was created (or reset), and what holds now. */
struct loopguest_counters {
	uint64_t copy_calls;		/* xengnttab_grant_copy */
	uint64_t copy_segments;
	uint64_t copy_bytes;
	uint64_t copy_errors;		/* segments with a status below 0 */
	uint64_t map_calls;		/* calls that asked for pages */
	uint64_t map_errors;
	uint64_t mapped_pages;		/* pages mapped since */
	uint64_t unmap_calls;
	uint64_t unmapped_pages;
	uint64_t backend_notifies;	/* by the backend, to this domain */
	uint64_t frontend_notifies;	/* by this domain */
	uint64_t backend_pending;	/* xenevtchn_pending: events taken */
	uint64_t backend_unmasks;
	uint64_t binds;			/* bind_interdomain that succeeded */
	uint64_t unbinds;		/* ends that backends closed */
	uint64_t mapped_now;		/* pages mapped at this moment */
	uint64_t bound_now;		/* ports bound at this moment */
};

void	loopguest_counters(const struct loopguest *,
	    struct loopguest_counters *);
/* The sums become 0; mapped_now and bound_now stay. */
void	loopguest_counters_reset(struct loopguest *);

/* ---- faults: take effect at once, in every backend process ------------ */

/*
 * The nth copy segment from now (1 is the next), and count - 1 after it, get
 * this status (-1 ... -12, GNTST_*) and are not copied.  nth 0 turns it off.
 */
void	loopguest_fault_copy(struct loopguest *, uint64_t nth, uint64_t count,
	    int status);

/* The nth map call from now, and count - 1 after it, fail with error > 0. */
void	loopguest_fault_map(struct loopguest *, uint64_t nth, uint64_t count,
	    int error);

/* Every copy call sleeps first; 0 turns it off. */
void	loopguest_delay_copy(struct loopguest *, unsigned milliseconds);

#endif /* LOOPXEN_GUEST_H */
