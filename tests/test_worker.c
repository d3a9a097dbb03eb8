/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * test_worker: a whole disk process in this one, with four queues on two
 * threads.  This file is its supervisor and its guest, and what it calls of
 * Xen's libraries is defined here; the image is a real file.
 *
 * Each case runs in a process of its own, for a disk process does what it does
 * once.  The guest's pages are shared with its successors.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <xenevtchn.h>
#include <xengnttab.h>

#include "blkback/disk.h"
#include "blkback/message.h"
#include "blkback/page.h"
#include "blkback/sandbox.h"

#define DOMID   7u
#define DEVID   51712u
#define QUEUES  4
#define PAGES   64u		/* of the guest; grant n is page n */
#define RING(i) (1 + (i))	/* the page of a ring */
#define PORT(i) (10 + (i))	/* the guest's end of a channel */
#define WAIT_MS 20000		/* for what will come */
#define QUIET_MS 150		/* for what must not */
#define BYTES   (1u << 20)	/* of the image */

/* Of the guest, shared by all processes. */
struct shared {
	_Alignas(4096)
	uint8_t page[PAGES][4096];
	atomic_int maps, binds;
};
static struct shared *guest;

static char dir[64], image[80], page_path[96];
static pthread_t disk;
static int supervisor = -1;	/* our end of the connection */

/* In a child of the test: no jump can bring it back. */
#define must(what)							\
	do {								\
		if (!(what)) {						\
			fprintf(stderr, "%s:%d: %s\n", __FILE__,	\
			    __LINE__, #what);				\
			_exit(1);					\
		}							\
	} while (0)

static uint64_t
now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000ull + ts.tv_nsec / 1000000;
}

static void
nap(void)
{
	const struct timespec ts = { 0, 200000 };

	nanosleep(&ts, NULL);
}

/* ---- Xen ---------------------------------------------------------------- */

struct xengntdev_handle { int unused; };

struct xenevtchn_handle {
	int fd;			/* eventfd: the guest has notified */
	int port;
};

/* By the guest's port; the last one that was bound. */
static _Atomic(struct xenevtchn_handle *) channels[32];

xengnttab_handle *
xengnttab_open(struct xentoollog_logger *logger, unsigned flags)
{
	(void)logger;
	(void)flags;
	return calloc(1, sizeof(struct xengntdev_handle));
}

int
xengnttab_close(xengnttab_handle *h)
{
	free(h);
	return 0;
}

void *
xengnttab_map_domain_grant_refs(xengnttab_handle *h, uint32_t count,
    uint32_t domid, uint32_t *refs, int prot)
{
	(void)h;
	(void)prot;
	must(count == 1 && domid == DOMID);
	if (refs[0] == 0 || refs[0] >= PAGES) {
		errno = EINVAL;
		return NULL;
	}
	atomic_fetch_add(&guest->maps, 1);
	return guest->page[refs[0]];
}

void *
xengnttab_map_grant_ref(xengnttab_handle *h, uint32_t domid, uint32_t ref,
    int prot)
{
	return xengnttab_map_domain_grant_refs(h, 1, domid, &ref, prot);
}

int
xengnttab_unmap(xengnttab_handle *h, void *start, uint32_t count)
{
	(void)h;
	(void)start;
	atomic_fetch_sub(&guest->maps, count);
	return 0;
}

int
xengnttab_grant_copy(xengnttab_handle *h, uint32_t count,
    xengnttab_grant_copy_segment_t *s)
{
	(void)h;
	for (; count > 0; count--, s++) {
		if (s->flags & GNTCOPY_dest_gref)
			memcpy(guest->page[s->dest.foreign.ref] +
			    s->dest.foreign.offset, s->source.virt, s->len);
		else
			memcpy(s->dest.virt,
			    guest->page[s->source.foreign.ref] +
			    s->source.foreign.offset, s->len);
		s->status = GNTST_okay;
	}
	return 0;
}

xenevtchn_handle *
xenevtchn_open(struct xentoollog_logger *logger, unsigned flags)
{
	struct xenevtchn_handle *h = calloc(1, sizeof(*h));

	(void)logger;
	(void)flags;
	must(h != NULL);
	h->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return h;
}

int
xenevtchn_close(xenevtchn_handle *h)
{
	close(h->fd);
	free(h);
	return 0;
}

int
xenevtchn_fd(xenevtchn_handle *h)
{
	return h->fd;
}

int
xenevtchn_restrict(xenevtchn_handle *h, domid_t domid)
{
	(void)h;
	return domid == DOMID ? 0 : -1;
}

xenevtchn_port_or_error_t
xenevtchn_bind_interdomain(xenevtchn_handle *h, uint32_t domid,
    evtchn_port_t remote)
{
	if (domid != DOMID || remote == 0 || remote >= 32) {
		errno = EINVAL;
		return -1;
	}
	atomic_fetch_add(&guest->binds, 1);
	h->port = 100 + remote;
	atomic_store(&channels[remote], h);
	return h->port;
}

int
xenevtchn_unbind(xenevtchn_handle *h, evtchn_port_t port)
{
	must(h->port == (int)port);
	atomic_store(&channels[port - 100], NULL);
	atomic_fetch_sub(&guest->binds, 1);
	return 0;
}

int
xenevtchn_notify(xenevtchn_handle *h, evtchn_port_t port)
{
	must(h->port == (int)port);
	return 0;		/* the guest looks for itself */
}

xenevtchn_port_or_error_t
xenevtchn_pending(xenevtchn_handle *h)
{
	uint64_t n;

	return read(h->fd, &n, sizeof(n)) == sizeof(n) ? h->port : -1;
}

int
xenevtchn_unmask(xenevtchn_handle *h, evtchn_port_t port)
{
	must(h->port == (int)port);
	return 0;
}

/* This process goes on with other things. */
int
sandbox_enter(uint32_t uid)
{
	(void)uid;
	return 0;
}

/* ---- the guest ---------------------------------------------------------- */

static uint32_t req_prod[QUEUES], rsp_cons[QUEUES];

static uint32_t *
ring_index(unsigned q, unsigned n)
{
	return (uint32_t *)(void *)guest->page[RING(q)] + n;
}

static uint8_t *
ring_slot(unsigned q, uint32_t index)
{
	return guest->page[RING(q)] + 64 + index % 32 * 112;
}

static void
notify(unsigned q)
{
	struct xenevtchn_handle *h = atomic_load(&channels[PORT(q)]);

	if (h != NULL)
		must(eventfd_write(h->fd, 1) == 0);
}

static void
publish(unsigned q, uint32_t prod)
{
	__atomic_store_n(ring_index(q, 0), prod, __ATOMIC_SEQ_CST);
	notify(q);
}

/* One request for one page of data (a flush: none), which is grant 'gref'. */
static void
put(unsigned q, uint8_t op, uint64_t sector, uint32_t gref)
{
	blkif_request_t *r = (void *)ring_slot(q, req_prod[q]);

	memset(r, 0, sizeof(*r));
	r->operation = op;
	r->sector_number = sector;
	r->id = req_prod[q];
	if (op != BLKIF_OP_FLUSH_DISKCACHE) {
		r->nr_segments = 1;
		r->seg[0].gref = gref;
		r->seg[0].last_sect = 7;
	}
	publish(q, ++req_prod[q]);
}

static bool
answered(unsigned q, unsigned ms)
{
	uint64_t until = now_ms() + ms;

	while (__atomic_load_n(ring_index(q, 2), __ATOMIC_ACQUIRE) ==
	    rsp_cons[q]) {
		if (now_ms() > until)
			return false;
		nap();
	}
	return true;
}

/* The status of the next response. */
static int
got(unsigned q)
{
	blkif_response_t *r = (void *)ring_slot(q, rsp_cons[q]);

	must(answered(q, WAIT_MS));
	must(r->id == rsp_cons[q]);
	rsp_cons[q]++;
	return r->status;
}

static int
ask(unsigned q, uint8_t op, uint64_t sector, uint32_t gref)
{
	put(q, op, sector, gref);
	return got(q);
}

static void
reset_rings(void)
{
	unsigned q;

	for (q = 0; q < QUEUES; q++) {
		memset(guest->page[RING(q)], 0, 4096);
		*ring_index(q, 1) = *ring_index(q, 3) = 1;
		req_prod[q] = rsp_cons[q] = 0;
	}
}

/* ---- the supervisor ----------------------------------------------------- */

static void
say(struct message *m, enum message_type type)
{
	message_init(m, type);
	m->generation = 5;
}

static void
hear(struct message *m)
{
	struct pollfd p = { supervisor, POLLIN, 0 };

	must(poll(&p, 1, WAIT_MS) == 1);
	must(message_recv(supervisor, m) == 0);
}

static bool
silent(int ms)
{
	struct pollfd p = { supervisor, POLLIN, 0 };

	return poll(&p, 1, ms) == 0;
}

/* Its next message, which must be that. */
static int
hear_only(enum message_type type, struct message *m)
{
	hear(m);
	if (m->type != type)
		fprintf(stderr, "message %u, not %d: %s\n", m->type, type,
		    m->why);
	must(m->type == type);
	return m->error;
}

static void *
disk_thread(void *arg)
{
	(void)arg;
	return (void *)(intptr_t)disk_main(dir, NULL, DOMID, DEVID);
}

/* Start it and have it open the image. */
static void
disk_start(const char *spec, enum resume_mode resume)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	struct message m;
	int fd;

	snprintf(name.sun_path, sizeof(name.sun_path), "%s/sock", dir);
	unlink(name.sun_path);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	must(fd >= 0 && bind(fd, (void *)&name, sizeof(name)) == 0 &&
	    listen(fd, 1) == 0);
	if (fd != MESSAGE_DISK_FD)
		must(dup2(fd, MESSAGE_DISK_FD) >= 0 && close(fd) == 0);
	must(pthread_create(&disk, NULL, disk_thread, NULL) == 0);
	supervisor = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	must(supervisor >= 0 &&
	    connect(supervisor, (void *)&name, sizeof(name)) == 0);
	must(hear_only(MSG_HELLO, &m) == 0);

	say(&m, MSG_OPEN);
	m.u.open.domid = DOMID;
	m.u.open.devid = DEVID;
	m.u.open.discard = 1;
	m.u.open.resume = resume;
	snprintf(m.u.open.spec, sizeof(m.u.open.spec), spec, image);
	must(message_send(supervisor, &m) == 0);
	if (hear_only(MSG_OPENED, &m) != 0)
		fprintf(stderr, "%s\n", m.why);
	must(m.error == 0);
}

static void
prepare_connect(struct message *m)
{
	unsigned q;

	say(m, MSG_CONNECT);
	m->u.connect.abi = RING_ABI_X86_64;
	m->u.connect.nr_queues = QUEUES;
	for (q = 0; q < QUEUES; q++) {
		m->u.connect.ring[q].gref[0] = RING(q);
		m->u.connect.ring[q].port = PORT(q);
	}
}

/* The error that is answered. */
static int
try_connect(struct message *m)
{
	must(message_send(supervisor, m) == 0);
	return hear_only(MSG_CONNECTED, m);
}

static void
connect_all(void)
{
	struct message m;

	reset_rings();
	prepare_connect(&m);
	must(try_connect(&m) == 0);
	must(guest->maps == QUEUES && guest->binds == QUEUES);
}

static void
ask_disconnect(void)
{
	struct message m;

	say(&m, MSG_DISCONNECT);
	must(message_send(supervisor, &m) == 0);
}

static bool
nothing_held(void)
{
	return guest->maps == 0 && guest->binds == 0;
}

static void
disk_stop(void)
{
	struct message m;
	void *status;

	say(&m, MSG_CLOSE);
	must(message_send(supervisor, &m) == 0);
	do
		hear(&m);
	while (m.type == MSG_DISCONNECTED || m.type == MSG_STOPPED);
	must(m.type == MSG_CLOSED && m.error == 0);
	must(pthread_join(disk, &status) == 0 && status == NULL);
	must(nothing_held());
}

/* Does anybody hold a lock on the image? */
static bool
image_locked(void)
{
	struct flock l = { .l_type = F_WRLCK };
	int fd = open(image, O_RDWR | O_CLOEXEC);

	must(fd >= 0 && fcntl(fd, F_OFD_GETLK, &l) == 0);
	close(fd);
	return l.l_type != F_UNLCK;
}

/* ---- the cases ---------------------------------------------------------- */

#define SPEC  "raw,queues=4,iothreads=2,poll=off:%s"
#define FAULT(rule) "fault,queues=4,iothreads=2:" rule ":raw:%s"

/* What one queue has written, another one reads. */
static void
case_serve(void)
{
	unsigned q, round;

	disk_start(SPEC, RESUME_NO);
	connect_all();
	for (round = 0; round < 50; round++) {
		for (q = 0; q < QUEUES; q++) {
			memset(guest->page[20 + q], 1 + round * 4 + q, 4096);
			put(q, BLKIF_OP_WRITE, 8 * q, 20 + q);
		}
		for (q = 0; q < QUEUES; q++)
			must(got(q) == BLKIF_RSP_OKAY);
		for (q = 0; q < QUEUES; q++)
			put(q, BLKIF_OP_READ, 8 * ((q + 1) % QUEUES), 30 + q);
		for (q = 0; q < QUEUES; q++) {
			must(got(q) == BLKIF_RSP_OKAY);
			must(memcmp(guest->page[30 + q],
			    guest->page[20 + (q + 1) % QUEUES], 4096) == 0);
		}
	}
	disk_stop();
}

/* With fewer queues than are offered, and threads that have none. */
static void
case_few(void)
{
	struct message m;
	unsigned n, q;

	disk_start(SPEC, RESUME_NO);
	for (n = 1; n < QUEUES; n++) {
		reset_rings();
		prepare_connect(&m);
		m.u.connect.nr_queues = n;
		must(try_connect(&m) == 0);
		must(guest->maps == (int)n && guest->binds == (int)n);
		for (q = 0; q < n; q++)
			must(ask(q, BLKIF_OP_READ, 0, 20) == BLKIF_RSP_OKAY);
		ask_disconnect();
		must(hear_only(MSG_DISCONNECTED, &m) == 0);
		must(nothing_held());
	}
	disk_stop();
}

/* The connect fails where queue 3 cannot be: nothing stays of the others. */
static void
case_connect_fails(void)
{
	struct message m;
	unsigned i;

	disk_start(SPEC, RESUME_NO);
	for (i = 0; i < 3; i++) {
		reset_rings();
		prepare_connect(&m);
		if (i == 0)
			m.u.connect.ring[3].gref[0] = PAGES;
		else if (i == 1)
			m.u.connect.ring[3].port = 0;
		else
			*ring_index(3, 0) = 1000;
		must(try_connect(&m) < 0);
		must(strstr(m.why, "queue 3") != NULL);
		must(nothing_held());
		must(!image_locked());
	}
	prepare_connect(&m);
	m.u.connect.nr_queues = QUEUES + 1;
	m.u.connect.ring[QUEUES].gref[0] = 40;
	m.u.connect.ring[QUEUES].port = 30;
	must(try_connect(&m) == -EINVAL);
	must(nothing_held());

	connect_all();
	must(image_locked());
	must(ask(3, BLKIF_OP_READ, 0, 20) == BLKIF_RSP_OKAY);
	disk_stop();
	must(!image_locked());
}

/* A flush that fails on one queue is felt on all. */
static void
case_flush_fails(void)
{
	unsigned q;

	disk_start(FAULT("op=flush,nth=2"), RESUME_NO);
	connect_all();
	must(ask(2, BLKIF_OP_FLUSH_DISKCACHE, 0, 0) == BLKIF_RSP_OKAY);
	must(ask(1, BLKIF_OP_FLUSH_DISKCACHE, 0, 0) == BLKIF_RSP_ERROR);
	for (q = 0; q < QUEUES; q++) {
		must(ask(q, BLKIF_OP_WRITE, 0, 20) == BLKIF_RSP_ERROR);
		must(ask(q, BLKIF_OP_FLUSH_DISKCACHE, 0, 0) ==
		    BLKIF_RSP_ERROR);
		must(ask(q, BLKIF_OP_READ, 0, 20) == BLKIF_RSP_OKAY);
	}
	disk_stop();
}

/*
 * The storage tells a loss once, to whoever asks first: a flush that was under
 * way at that time may not say that all is well.
 */
static void
case_flush_beside(void)
{
	disk_start(FAULT("op=flush,nth=1,delay-ms=1000:fault:op=flush,nth=2"),
	    RESUME_NO);
	connect_all();
	put(0, BLKIF_OP_FLUSH_DISKCACHE, 0, 0);
	must(!answered(0, QUIET_MS));
	must(ask(3, BLKIF_OP_FLUSH_DISKCACHE, 0, 0) == BLKIF_RSP_ERROR);
	must(!answered(0, 0));
	must(got(0) == BLKIF_RSP_ERROR);
	disk_stop();
}

/* Queue 3 takes its time; the others are let go of, and take nothing more. */
static void
case_slow_drain(void)
{
	struct message m;
	uint64_t until;

	disk_start(FAULT("op=write,offset=0,length=4096,delay-ms=1500"),
	    RESUME_NO);
	connect_all();
	put(3, BLKIF_OP_WRITE, 0, 20);
	must(!answered(3, QUIET_MS));
	ask_disconnect();
	until = now_ms() + 1000;
	while (guest->maps > 1 && now_ms() < until)
		nap();
	must(guest->maps == 1 && guest->binds == 1);
	put(3, BLKIF_OP_READ, 0, 21);
	must(silent(QUIET_MS));
	must(!answered(3, 0));
	must(image_locked());
	must(hear_only(MSG_DISCONNECTED, &m) == 0);
	must(nothing_held() && !image_locked());
	must(got(3) == BLKIF_RSP_OKAY);
	must(!answered(3, QUIET_MS));
	disk_stop();
}

/* Nobody answers a guest that broke one of its rings. */
static void
case_broken(void)
{
	struct message m;
	unsigned q;

	disk_start(SPEC, RESUME_NO);
	connect_all();
	must(ask(0, BLKIF_OP_READ, 0, 20) == BLKIF_RSP_OKAY);
	publish(2, 1000);
	must(hear_only(MSG_BROKEN, &m) == -EPROTO);
	for (q = 0; q < QUEUES; q++) {
		if (q != 2)
			put(q, BLKIF_OP_READ, 0, 20);
	}
	must(silent(QUIET_MS));
	for (q = 0; q < QUEUES; q++)
		must(!answered(q, 0));
	ask_disconnect();
	must(hear_only(MSG_DISCONNECTED, &m) == 0);
	must(nothing_held());
	/* The next connection is another one. */
	connect_all();
	for (q = 0; q < QUEUES; q++)
		must(ask(q, BLKIF_OP_READ, 0, 20) == BLKIF_RSP_OKAY);
	disk_stop();
}

/* One queue waits for the operator, the others go on. */
static void
case_stopped(void)
{
	struct message m;
	unsigned q;

	disk_start("fault,queues=4,iothreads=2,on-error=stop:op=write,nth=1:"
	    "raw:%s", RESUME_NO);
	connect_all();
	put(1, BLKIF_OP_WRITE, 0, 20);
	must(hear_only(MSG_STOPPED, &m) == -EIO);
	must(!answered(1, QUIET_MS));
	for (q = 0; q < QUEUES; q++)
		if (q != 1)
			must(ask(q, BLKIF_OP_WRITE, 8, 20) == BLKIF_RSP_OKAY);
	say(&m, MSG_RETRY);
	must(message_send(supervisor, &m) == 0);
	must(hear_only(MSG_STOPPED, &m) == 0);
	must(got(1) == BLKIF_RSP_OKAY);
	disk_stop();
}

/* ---- successors --------------------------------------------------------- */

/* Leave one write of each queue behind, and die. */
static void
die_in_flight(void)
{
	unsigned q;

	disk_start(FAULT("op=write,delay-ms=3600000"), RESUME_NO);
	connect_all();
	for (q = 0; q < QUEUES; q++) {
		memset(guest->page[20 + q], 0xa0 + q, 4096);
		put(q, BLKIF_OP_WRITE, 8 * q, 20 + q);
	}
	for (q = 0; q < QUEUES; q++)
		must(!answered(q, QUIET_MS));
	_exit(0);
}

/* The predecessor is another process, whose end Xen has noticed. */
static void
let_die(void)
{
	int status;
	pid_t pid = fork();

	must(pid >= 0);
	if (pid == 0)
		die_in_flight();
	must(waitpid(pid, &status, 0) == pid && status == 0);
	/* A delayed write has been done all the same. */
	must(truncate(image, 0) == 0 && truncate(image, BYTES) == 0);
	atomic_store(&guest->maps, 0);
	atomic_store(&guest->binds, 0);
}

static void
resume_as(enum resume_mode mode, int want)
{
	uint8_t block[4096];
	struct message m;
	unsigned q;
	int fd;

	let_die();
	disk_start(SPEC, mode);
	prepare_connect(&m);
	must(try_connect(&m) == 0);
	for (q = 0; q < QUEUES; q++)
		must(got(q) == want);
	disk_stop();
	fd = open(image, O_RDONLY | O_CLOEXEC);
	for (q = 0; q < QUEUES; q++) {
		must(pread(fd, block, 4096, 4096 * q) == 4096);
		must((memcmp(block, guest->page[20 + q], 4096) == 0) ==
		    (want == BLKIF_RSP_OKAY));
	}
	close(fd);
}

static void
case_replay(void)
{
	resume_as(RESUME_REPLAY, BLKIF_RSP_OKAY);
}

static void
case_fail(void)
{
	resume_as(RESUME_FAIL, BLKIF_RSP_ERROR);
}

/* A connection that differs in one queue is not the one of the page. */
static void
case_another(void)
{
	struct message m;
	unsigned q;

	let_die();
	disk_start(SPEC, RESUME_REPLAY);
	prepare_connect(&m);
	m.u.connect.ring[2].port++;
	must(try_connect(&m) == -ESTALE);
	must(nothing_held() && !image_locked());
	for (q = 0; q < QUEUES; q++)
		must(!answered(q, 0));
	disk_stop();
}

/*
 * A table of one queue that contradicts itself: no answer to what was in flight
 * on it; what was on the others is done before they are let go of.
 */
static void
case_junk(void)
{
	struct page *p;
	struct message m;
	int fd;

	let_die();
	fd = open(page_path, O_RDWR | O_CLOEXEC);
	p = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(*p) + QUEUES *
	    sizeof(p->queue[0]), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	must(p != MAP_FAILED && p->queue[3].slot[0].state == PAGE_SLOT_TAKEN);
	p->queue[3].slot[0].state = PAGE_SLOT_FREE;
	close(fd);
	disk_start(SPEC, RESUME_REPLAY);
	prepare_connect(&m);
	must(try_connect(&m) == -ESTALE);
	must(strstr(m.why, "queue 3") != NULL);
	must(nothing_held() && !image_locked());
	must(got(0) == BLKIF_RSP_OKAY && got(1) == BLKIF_RSP_OKAY);
	must(!answered(3, 0));
	disk_stop();
}

/* ---- running them ------------------------------------------------------- */

static void
in_child(void (*body)(void))
{
	int status, fd;
	pid_t pid;

	fd = open(image, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0 && ftruncate(fd, BYTES) == 0);
	close(fd);
	atomic_store(&guest->maps, 0);
	atomic_store(&guest->binds, 0);
	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		alarm(60);
		body();
		exit(0);	/* a sanitizer has its say */
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (status != 0)
		fail_msg("status 0x%x", status);
}

#define CASE(name)							\
static void								\
test_##name(void **state)						\
{									\
	(void)state;							\
	in_child(case_##name);						\
}

CASE(serve)
CASE(few)
CASE(connect_fails)
CASE(flush_fails)
CASE(flush_beside)
CASE(slow_drain)
CASE(broken)
CASE(stopped)
CASE(replay)
CASE(fail)
CASE(another)
CASE(junk)

static int
group_setup(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/ringback-worker-XXXXXX");
	if (mkdtemp(dir) == NULL)
		return -1;
	snprintf(image, sizeof(image), "%s/image", dir);
	snprintf(page_path, sizeof(page_path), "%s/%u-%u.page", dir, DOMID,
	    DEVID);
	guest = mmap(NULL, sizeof(*guest), PROT_READ | PROT_WRITE,
	    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return guest == MAP_FAILED ? -1 : 0;
}

static int
group_teardown(void **state)
{
	char path[96];

	(void)state;
	snprintf(path, sizeof(path), "%s/sock", dir);
	unlink(path);
	unlink(page_path);
	unlink(image);
	return rmdir(dir);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_serve),
		cmocka_unit_test(test_few),
		cmocka_unit_test(test_connect_fails),
		cmocka_unit_test(test_flush_fails),
		cmocka_unit_test(test_flush_beside),
		cmocka_unit_test(test_slow_drain),
		cmocka_unit_test(test_broken),
		cmocka_unit_test(test_stopped),
		cmocka_unit_test(test_replay),
		cmocka_unit_test(test_fail),
		cmocka_unit_test(test_another),
		cmocka_unit_test(test_junk),
	};

	/* It answers nobody else. */
	if (geteuid() != 0) {
		puts("skip worker: it needs root");
		return 77;
	}
	return cmocka_run_group_tests_name("worker", tests, group_setup,
	    group_teardown);
}
