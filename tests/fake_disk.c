/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A disk process without a disk: it says what a real one says (message.h),
 * notes what it is told in <run dir>/<domid>-<devid>.told, and misbehaves as
 * the path of its disk spec asks, "null:" followed by words with '+' between:
 *
 *   size=N         bytes (64 MiB)
 *   noopen         refuse OPEN               openhang  answer OPEN at last
 *   opendie        die at OPEN
 *   noconnect      refuse CONNECT            lock=N    refuse N times: -EAGAIN
 *   connectdie     die at CONNECT            connecthang
 *   stale          answer the first CONNECT as if it had been another one, too
 *   drainhang      answer DISCONNECT or CLOSE at last
 *   broken         BROKEN after CONNECTED    junk      after it, a bad message
 *   hellodie       die when a second      hellojunk  ... or greet it with a
 *                  supervisor connects               bad message
 *   flood          after it, answers that nobody asked for, for ever
 *   redo           an image with redo memory, which lacks something from the
 *                  time at which it is activated until it is told to let go
 *   closedie       die at CLOSE, unless nothing but CLOSE was to be done
 *   redodie        die at OPEN, if it is to bring the image up to date
 *   noresume       refuse to go on with the connection of a predecessor
 *   openonce       refuse every OPEN but the first, of all disks
 *
 * "At last" is when the file <run dir>/go appears.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "blkback/disk.h"
#include "blkback/log.h"
#include "blkback/message.h"
#include "blkback/page.h"

static const char *dir;
static unsigned domid;
static uint32_t devid;
static struct message_open opened;
static enum disk_phase phase;
static uint32_t generation;
static struct page *page;
static int locked;

static void
told(const char *fmt, ...)
{
	char path[256], line[1024];
	va_list ap;
	int fd, n;

	va_start(ap, fmt);
	n = vsnprintf(line, sizeof(line) - 1, fmt, ap);
	va_end(ap);
	line[n++] = '\n';
	snprintf(path, sizeof(path), "%s/%u-%u.told", dir, domid, devid);
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, line, n) != n)
		exit(1);
	close(fd);
}

/* The word, or what follows its '='; NULL when it was not asked for. */
static const char *
asked(const char *word)
{
	const char *s = strchr(opened.spec, ':');
	size_t n = strlen(word);

	for (; s != NULL; s = strchr(s, '+')) {
		s++;
		if (strncmp(s, word, n) == 0 &&
		    (s[n] == '\0' || s[n] == '+' || s[n] == '='))
			return s[n] == '=' ? s + n + 1 : s + n;
	}
	return NULL;
}

static void
wait_for_go(void)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/go", dir);
	while (access(path, F_OK) != 0)
		usleep(10000);
}

static void
fill(struct message *m, enum message_type type, int error, const char *why)
{
	const char *size = asked("size");

	message_init(m, type);
	m->error = error;
	m->generation = generation;
	snprintf(m->why, sizeof(m->why), "%s", why);
	m->geometry.size = size != NULL ? strtoull(size, NULL, 10) : 64u << 20;
	m->geometry.block_size = 512;
	m->geometry.physical_block_size = 4096;
	m->geometry.readonly = opened.readonly;
	m->geometry.flush = 1;
	if (type == MSG_HELLO) {
		m->u.hello.phase = phase;
		m->u.hello.domid = domid;
		m->u.hello.devid = devid;
		m->u.hello.pid = getpid();
		m->u.hello.open = opened;
	}
}

static void
say(int fd, enum message_type type, int error, const char *why)
{
	struct message m;

	fill(&m, type, error, why);
	if (message_send(fd, &m) < 0)
		told("nobody listens");
}

/* As fast as they are taken. */
static void
flood(int fd)
{
	struct message m;

	fill(&m, MSG_CONNECTED, 0, "");
	m.generation--;
	while (send(fd, &m, sizeof(m), MSG_NOSIGNAL) == (ssize_t)sizeof(m))
		;
	exit(1);
}

static bool
opened_before(void)
{
	char path[256];
	int fd;

	if (!asked("openonce"))
		return false;
	snprintf(path, sizeof(path), "%s/once", dir);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return true;
	close(fd);
	return false;
}

static void
on_open(int fd, const struct message *m)
{
	struct page_shape shape = { .nr_queues = MAX_QUEUES };
	char path[256];

	opened = m->u.open;
	told("OPEN readonly=%u activate=%u discard=%u resume=%u uid=%u uuid=%s "
	    "backend=%s spec=%s", opened.readonly, opened.activate,
	    opened.discard, opened.resume, opened.uid, opened.uuid,
	    opened.backend, opened.spec);
	if (asked("opendie") ||
	    (asked("redodie") && opened.resume == RESUME_REDO))
		raise(SIGKILL);
	if (asked("openhang"))
		wait_for_go();
	if (asked("noresume") && (opened.resume == RESUME_REPLAY ||
	    opened.resume == RESUME_FAIL)) {
		say(fd, MSG_OPENED, -ESTALE, "the page is of another ring");
		return;
	}
	if (asked("noopen") || opened_before()) {
		say(fd, MSG_OPENED, -ENOENT, "open a.img: No such file; "
		    "make it");
		return;
	}
	snprintf(path, sizeof(path), "%s/%u-%u.page", dir, domid, devid);
	shape.redo_bytes = asked("redo") ? 4096 : 0;
	if (page_create(path, &opened, &shape, &page) < 0)
		exit(1);
	page->header.redo_used = opened.activate;
	phase = PHASE_OPEN;
	say(fd, MSG_OPENED, 0, "");
}

static void
on_connect(int fd, const struct message *m)
{
	const struct message_ring *r = &m->u.connect.ring[0];
	const char *n = asked("lock");

	generation = m->generation;
	told("CONNECT abi=%u order=%u gref=%u last=%u port=%u queues=%u "
	    "generation=%u", m->u.connect.abi, r->order, r->gref[0],
	    r->gref[(1u << r->order) - 1], r->port,
	    m->u.connect.nr_queues, generation);
	if (asked("connectdie"))
		raise(SIGKILL);
	if (asked("connecthang"))
		wait_for_go();
	if (asked("stale") && locked++ == 0) {
		generation--;
		say(fd, MSG_CONNECTED, 0, "");
		generation++;
	}
	if (n != NULL && locked++ < atoi(n)) {
		say(fd, MSG_CONNECTED, -EAGAIN, "another process has the lock");
		return;
	}
	if (asked("noconnect")) {
		say(fd, MSG_CONNECTED, -EINVAL, "map grant 8: Invalid "
		    "argument");
		return;
	}
	phase = PHASE_CONNECTED;
	page->header.redo_used = 1;
	page_connect(page, &m->u.connect, generation);
	page->header.connected = 1;
	page->queue[0].stats.ops[PAGE_WRITE] = 42;
	page->queue[0].stats.connects++;
	say(fd, MSG_CONNECTED, 0, "");
	if (asked("broken"))
		say(fd, MSG_BROKEN, -EPROTO, "the guest broke the ring");
	if (asked("junk") && send(fd, "junk", 4, MSG_NOSIGNAL) != 4)
		exit(1);
	if (asked("flood"))
		flood(fd);
}

static void
on_message(int fd, const struct message *m)
{
	switch (m->type) {
	case MSG_OPEN:
		on_open(fd, m);
		break;
	case MSG_CONNECT:
		on_connect(fd, m);
		break;
	case MSG_DISCONNECT:
		told("DISCONNECT");
		if (asked("drainhang"))
			wait_for_go();
		phase = PHASE_OPEN;
		page->header.redo_used = opened.activate;
		page->header.connected = 0;
		say(fd, MSG_DISCONNECTED, 0, "");
		break;
	case MSG_CLOSE:
		told("CLOSE");
		if (asked("drainhang"))
			wait_for_go();
		if (asked("closedie") && opened.resume != RESUME_REDO)
			raise(SIGKILL);
		if (page != NULL)
			page->header.redo_used = page->header.connected = 0;
		say(fd, MSG_CLOSED, 0, "");
		exit(0);
	default:
		told("unknown message %u", m->type);
		exit(1);
	}
}

/* What the supervisor must have seen to, before anything else. */
static void
check_descriptors(void)
{
	int fd;

	for (fd = MESSAGE_DISK_FD + 1; fd < 1024; fd++)
		if (fcntl(fd, F_GETFD) != -1)
			told("descriptor %d is open", fd);
	if (getpgrp() != getpid())
		told("not a process group of its own");
	if (getenv("NOTIFY_SOCKET") != NULL)
		told("NOTIFY_SOCKET is set");
}

static void
greet(int fd)
{
	bool again = phase != PHASE_EMPTY;

	if (again && asked("hellodie"))
		raise(SIGKILL);
	if (again && asked("hellojunk") &&
	    send(fd, "junk", 4, MSG_NOSIGNAL) < 0)
		exit(1);
	say(fd, MSG_HELLO, 0, "");
}

int
disk_main(const char *run_dir, const char *const *roots, unsigned d,
    uint32_t v)
{
	struct pollfd p[2] = {
		{ MESSAGE_DISK_FD, POLLIN, 0 }, { -1, POLLIN, 0 },
	};
	struct message m;
	int rc;

	dir = run_dir;
	domid = d;
	devid = v;
	log_name("vbd %u/%u", d, v);
	check_descriptors();
	for (; roots != NULL && *roots != NULL; roots++)
		told("root %s", *roots);
	for (;;) {
		if (poll(p, 2, -1) < 0)
			continue;
		if (p[0].revents != 0 && p[1].fd < 0) {
			p[1].fd = accept4(MESSAGE_DISK_FD, NULL, NULL,
			    SOCK_CLOEXEC);
			if (p[1].fd >= 0)
				greet(p[1].fd);
			p[0].fd = -1;
		} else if (p[1].revents != 0) {
			rc = message_recv(p[1].fd, &m);
			if (rc == 0) {
				on_message(p[1].fd, &m);
			} else if (rc != -EAGAIN) {
				/* The supervisor is gone; the next comes. */
				told("end of file");
				close(p[1].fd);
				p[1].fd = -1;
				p[0].fd = MESSAGE_DISK_FD;
			}
		}
	}
}
