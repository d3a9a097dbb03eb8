/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Attacks with events, with nodes in xenstore, and by coming and going. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/hostile/attacks.h"

#define TICKS_PER_S	100u

static void
ask_one(struct enemy *e, uint8_t op, uint32_t ref, uint64_t sector, int status)
{
	struct front_request	req = { .op = op, .nr_segments = 1,
				    .sector = sector };

	req.seg[0].gref = ref;
	req.seg[0].last = 7;
	enemy_ask(e, &req, status);
}

/* Connected, a read, and disconnected again: the disk is as good as new. */
static int
honest(struct enemy *e)
{
	uint32_t	ref = enemy_grant(e, 0, false);

	if (enemy_connect(e, FRONT_X86_64, 0) < 0)
		return -1;
	ask_one(e, BLKIF_OP_READ, ref, 0, BLKIF_RSP_OKAY);
	if (enemy_collect(e) < 0)
		return -1;
	enemy_ungrant(e, ref);
	return enemy_disconnect(e);
}

/* ---- events ------------------------------------------------------------- */

/* Nothing is asked of it: in a second it must not run at all. */
static int
sleeps_now(pid_t pid)
{
	struct usage	before, after;
	unsigned	tries;

	/* What it had to do when the storm ended may take a moment. */
	for (tries = 0; tries < 3; tries++) {
		sleep_ms(200);
		if (usage_get(pid, &before) < 0)
			return -1;
		sleep_ms(1000);
		if (usage_get(pid, &after) < 0)
			return -1;
		if (after.ticks == before.ticks)
			return 0;
	}
	return fail("an idle disk uses %lu ticks in a second", after.ticks -
	    before.ticks);
}

/*
 * Events as fast as they can be sent: how much CPU does that cost dom0?  And,
 * as that is hard to tell on a busy machine, how many of them wake it up?
 */
static int
storm(struct enemy *e, const char *what)
{
	struct loopguest_counters	first, last;
	pid_t				pid = enemy_process(e);
	unsigned			ms = world.soak ? 10000 : 1500;
	struct usage			before, after;
	uint64_t			until = now_ms() + ms, n = 0;

	loopguest_counters(e->guest, &first);
	if (usage_get(pid, &before) < 0)
		return -1;
	for (; now_ms() < until; n++)
		loopguest_port_notify(e->q->port);
	loopguest_counters(e->guest, &last);
	if (usage_get(pid, &after) < 0)
		return -1;
	if (after.ticks - before.ticks > ms * TICKS_PER_S / 1000 / 4)
		return fail("%s: %lu ticks in %u ms, for %lu events", what,
		    after.ticks - before.ticks, ms, (unsigned long)n);
	/* One per millisecond, then fewer and fewer. */
	if (last.backend_pending - first.backend_pending > 100 + ms / 20)
		return fail("%s: woke up %lu times in %u ms", what,
		    (unsigned long)(last.backend_pending -
		    first.backend_pending), ms);
	return sleeps_now(pid);
}

int
attack_event_storm(struct enemy *e)
{
	return enemy_connect(e, FRONT_X86_64, 0) < 0 ? -1 :
	    storm(e, "events without requests");
}

int
attack_storm_when_broken(struct enemy *e)
{
	if (enemy_connect(e, FRONT_X86_64, 0) < 0)
		return -1;
	enemy_words(e)[0] = 1000000;
	loopguest_port_notify(e->q->port);
	return enemy_given_up(e, "producer index") < 0 ? -1 :
	    storm(e, "events to a broken ring");
}

/* The guest closes its end while it is served, then makes the page no one's. */
int
attack_port_closed(struct enemy *e)
{
	uint32_t	ref = enemy_grant(e, 0, false);

	if (enemy_connect(e, FRONT_X86_32, 0) < 0)
		return -1;
	loopguest_delay_copy(e->guest, 100);
	ask_one(e, BLKIF_OP_READ, ref, 0, BLKIF_RSP_OKAY);
	enemy_push(e);
	loopguest_port_close(e->q->port);
	if (enemy_collect(e) < 0)
		return -1;
	loopguest_delay_copy(e->guest, 0);
	loopguest_revoke(e->guest, e->q->ring_ref[0]);
	enemy_ungrant(e, ref);
	if (loopguest_port_open(e->guest, 0, &e->q->port) < 0)
		return fail("open a port");
	/* It disconnects all the same. */
	return enemy_disconnect(e) < 0 ? -1 : honest(e);
}

/* ---- nodes -------------------------------------------------------------- */

static const char *const bad_values[] = {
	"", " ", "-1", "0x8", "08x", "99999999999999999999", "4294967296",
	"+1", "1 ", "\xff\xfe\x80", "\x1b[2J", "%s%n%d", "\n\n", "junk",
};

/* Nodes that must hold a number or a name; 'none': may be absent. */
static const struct {
	const char *name;
	bool	 none, zero;		/* 0 is fine */
} nodes[] = {
	{ "ring-ref", false, true }, { "event-channel", false, false },
	{ "protocol", true, false }, { "ring-page-order", true, true },
	{ "num-ring-pages", true, false },
	{ "multi-queue-num-queues", true, false },
	{ "feature-persistent", true, true },
};

/*
 * With this node like this: connected, or refused with the node's name in the
 * error; then as it was.
 */
static int
try_node(struct enemy *e, const char *node, const char *value, bool fine)
{
	int	rc;

	if (enemy_ring(e, FRONT_X86_64, 0) < 0)
		return -1;
	/* One name for one page: the other is not looked at. */
	if (strcmp(node, "ring-ref") == 0)
		rc = enemy_remove(e, "ring-ref0");
	else
		rc = 0;
	if (strcmp(node, "num-ring-pages") == 0)
		rc = enemy_remove(e, "ring-page-order");
	if (rc == 0)
		rc = value == NULL ? enemy_remove(e, node) :
		    enemy_write(e, node, value);
	if (rc == 0)
		rc = enemy_state(e, XenbusStateInitialised);
	if (rc == 0)
		rc = fine ? enemy_await(e, XenbusStateConnected) :
		    enemy_given_up(e, node);
	if (rc < 0)
		return fail("%s = \"%.40s\"", node, value == NULL ? "(none)" :
		    value);
	rc = enemy_recover(e);
	return rc < 0 || enemy_remove(e, node) < 0 ? -1 : 0;
}

/* The longest value that xenstored takes; longer ones it refuses. */
static int
try_long(struct enemy *e, const char *node)
{
	static char	value[65536];
	unsigned	n = 3900;
	char		path[128];

	memset(value, '1', sizeof(value));
	snprintf(path, sizeof(path), "%s/%s", e->front_dir, node);
	if (xs_write(e->xs, XBT_NULL, path, value, sizeof(value)))
		return fail("xenstored took 64 KiB");
	value[n] = '\0';
	return try_node(e, node, value, false);
}

int
attack_nodes(struct enemy *e)
{
	unsigned	i, k, nr = sizeof(bad_values) / sizeof(bad_values[0]);

	for (i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++) {
		if (try_node(e, nodes[i].name, NULL, nodes[i].none) < 0 ||
		    try_long(e, nodes[i].name) < 0)
			return -1;
		for (k = 0; k < nr; k++)
			if (try_node(e, nodes[i].name, bad_values[k],
			    false) < 0)
				return -1;
		if (!nodes[i].zero &&
		    try_node(e, nodes[i].name, "0", false) < 0)
			return -1;
	}
	if (try_node(e, "ring-page-order", "5", false) < 0 ||
	    try_node(e, "num-ring-pages", "3", false) < 0 ||
	    try_node(e, "num-ring-pages", "32", false) < 0 ||
	    try_node(e, "multi-queue-num-queues", "2", false) < 0 ||
	    try_node(e, "multi-queue-num-queues", "1", true) < 0 ||
	    try_node(e, "ring-page-order", "0", true) < 0)
		return -1;
	/* Nobody's business but the guest's. */
	for (k = 0; k < nr; k++)
		if (try_node(e, "feature-large-sector-size", bad_values[k],
		    true) < 0)
			return -1;
	return honest(e);
}

/* Nodes that the toolstack wrote and the guest may change. */
int
attack_links(struct enemy *e)
{
	static const struct { const char *node, *value; } lies[] = {
		{ "backend", "/local/domain/0/backend/ringback/7/51712" },
		{ "backend", "" }, { "backend", "/" }, { "backend-id", "7" },
		{ "backend-id", "junk" }, { "virtual-device", "51728" },
		{ "device-type", "cdrom" }, { "trusted", "0" },
		{ "state/state", "4" }, { "ring-ref/0", "8" },
		{ "queue-0/ring-ref", "8" }, { "online", "0" },
		{ "hotplug-status", "error" },
	};
	char			 own[128];
	unsigned		 i;

	for (i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
		if (enemy_write(e, lies[i].node, lies[i].value) < 0)
			return -1;
		if (honest(e) < 0)
			return fail("with %s = \"%s\"", lies[i].node,
			    lies[i].value);
	}
	snprintf(own, sizeof(own), "%s", e->back_dir);
	return enemy_write(e, "backend", own);
}

/* Numbers that are numbers, of grants and ports that are none. */
int
attack_bad_ring(struct enemy *e)
{
	static const struct { const char *node, *value, *why; } bad[] = {
		{ "ring-ref0", "0", "cannot map" },
		{ "ring-ref0", "4294967295", "cannot map" },
		{ "ring-ref0", "30000", "cannot map" },
		{ "ring-ref3", "30000", "cannot map" },
		{ "event-channel", "4294967295", "event channel" },
		{ "event-channel", "4000", "event channel" },
		{ "event-channel", "1", "event channel" },
	};
	unsigned		 i;
	uint32_t		 foreign;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		if (enemy_ring(e, FRONT_X86_64, 2) < 0 ||
		    enemy_write(e, bad[i].node, bad[i].value) < 0 ||
		    enemy_state(e, XenbusStateInitialised) < 0 ||
		    enemy_given_up(e, bad[i].why) < 0 || enemy_recover(e) < 0)
			return fail("%s = %s", bad[i].node, bad[i].value);
	}
	/* Read-only, and somebody else's. */
	for (i = 0; i < 2; i++) {
		char	value[16];

		if (enemy_ring(e, FRONT_X86_64, 2) < 0)
			return -1;
		if (loopguest_grant(e->guest, 3, i == 0 ? 0 : 9, i == 0,
		    &foreign) < 0)
			return fail("grant");
		snprintf(value, sizeof(value), "%u", foreign);
		if (enemy_write(e, "ring-ref3", value) < 0 ||
		    enemy_state(e, XenbusStateInitialised) < 0 ||
		    enemy_given_up(e, "cannot map") < 0 ||
		    enemy_recover(e) < 0)
			return fail("a ring page that is %s", i == 0 ?
			    "read-only" : "granted to domain 9");
		loopguest_ungrant(e->guest, foreign);
	}
	/* A map that fails for the reasons of dom0. */
	for (i = 0; i < 3; i++) {
		loopguest_fault_map(e->guest, 1, 1, i == 0 ? ENOMEM :
		    i == 1 ? EFAULT : ENOSPC);
		if (enemy_ring(e, FRONT_X86_64, 2) < 0 ||
		    enemy_state(e, XenbusStateInitialised) < 0 ||
		    enemy_given_up(e, "cannot map") < 0 ||
		    enemy_recover(e) < 0)
			return -1;
	}
	return honest(e);
}

/* ---- states ------------------------------------------------------------- */

/* Writes its state from a thread of its own, as fast as xenstored takes it. */
struct writer {
	pthread_t	 thread;
	atomic_bool	 stop;
	char		 path[128];
	bool		 closed;	/* always 6; else anything */
	unsigned	 writes;
};

static const char *
any_state(uint32_t random)
{
	static const char	*const states[] = {
		"0", "1", "2", "3", "4", "5", "6", "1", "3", "4", "5", "6",
		"3", "4", "6", "1",
	};
	static const char	*const junk[] = {
		"", "-1", "7", "99999999999", "4x", "\xff", "04", " 4",
	};

	return (random & 15) == 0 ? junk[random >> 4 & 7] :
	    states[random >> 4 & 15];
}

static void *
writer_main(void *arg)
{
	struct writer		*w = arg;
	struct xs_handle	*xs = xs_open(0);
	const char		*value;
	uint32_t		 random = 88172645;

	while (xs != NULL && !atomic_load(&w->stop)) {
		random ^= random << 13;
		random ^= random >> 17;
		random ^= random << 5;
		value = w->closed ? "6" : any_state(random);
		if (xs_write(xs, XBT_NULL, w->path, value,
		    (unsigned)strlen(value)))
			w->writes++;
		/* Now and then long enough to get somewhere. */
		if (!w->closed && (random >> 12 & 31) == 0)
			sleep_ms(random >> 20 & 7);
	}
	if (xs != NULL)
		xs_close(xs);
	return NULL;
}

static int
writer_start(struct writer *w, struct enemy *e, bool closed)
{
	memset(w, 0, sizeof(*w));
	w->closed = closed;
	snprintf(w->path, sizeof(w->path), "%s/state", e->front_dir);
	return pthread_create(&w->thread, NULL, writer_main, w) == 0 ? 0 :
	    fail("start a thread");
}

static int
writer_stop(struct writer *w)
{
	atomic_store(&w->stop, true);
	pthread_join(w->thread, NULL);
	return w->writes > 100 ? 0 : fail("only %u writes", w->writes);
}

/* Another disk comes and goes; in how many milliseconds, or -1. */
static int
another_disk(void)
{
	uint64_t	began = now_ms();
	char		words[256];

	snprintf(words, sizeof(words), "attach %s xvdb null:64M",
	    world.other);
	if (ringback("list") < 0 || ringback(words) < 0)
		return -1;
	snprintf(words, sizeof(words), "detach %s xvdb", world.other);
	return ringback(words) < 0 || ringback("list") < 0 ? -1 :
	    (int)(now_ms() - began);
}

/* In any order, and things that are none. */
int
attack_states(struct enemy *e)
{
	uint64_t	until = now_ms() + (world.soak ? 60000 : 2000);
	struct writer	w;
	unsigned	i;
	int		ms = 0;

	if (enemy_ring(e, FRONT_X86_64, 1) < 0 ||
	    writer_start(&w, e, false) < 0)
		return -1;
	for (i = 0; i < 3 && ms >= 0; i++) {
		ms = another_disk();
		if (ms > 3000)
			ms = fail("another disk took %d ms", ms);
	}
	while (ms >= 0 && now_ms() < until)
		sleep_ms(10);
	if (writer_stop(&w) < 0 || ms < 0)
		return -1;
	return enemy_settle(e) < 0 || enemy_recover(e) < 0 || honest(e) < 0 ?
	    -1 : 0;
}

/* It goes on writing while its disk is taken away, and after. */
int
attack_detach(struct enemy *e)
{
	struct writer	w;
	char		words[64];
	int		rc;

	if (honest(e) < 0 || writer_start(&w, e, true) < 0)
		return -1;
	snprintf(words, sizeof(words), "detach %u xvda --timeout 10",
	    e->domid);
	rc = ringback(words);
	if (writer_stop(&w) < 0)
		rc = -1;
	return rc;
}

/* The guest owns its directory, and removes it under a disk in use. */
int
attack_directory(struct enemy *e)
{
	uint32_t	ref = enemy_grant(e, 0, false);

	if (enemy_connect(e, FRONT_X86_64, 0) < 0 ||
	    enemy_remove(e, "state") < 0 ||
	    enemy_await(e, XenbusStateClosed) < 0 || enemy_recover(e) < 0 ||
	    enemy_connect(e, FRONT_X86_64, 0) < 0)
		return -1;
	loopguest_delay_copy(e->guest, 200);
	ask_one(e, BLKIF_OP_READ, ref, 0, ANY);
	enemy_push(e);
	if (!xs_rm(e->xs, XBT_NULL, e->front_dir))
		return fail("remove %s: %s", e->front_dir, strerror(errno));
	/* xl knows nothing of this kind: it is as good as detached. */
	return enemy_gone(e);
}

/* Connected, and the ring's nodes change all the time. */
int
attack_ring_nodes(struct enemy *e)
{
	uint64_t	until = now_ms() + (world.soak ? 30000 : 1000);
	char		good[16], other[16];
	uint32_t	ref;
	unsigned	n = 0;

	if (enemy_connect(e, FRONT_X86_64, 0) < 0 ||
	    loopguest_grant(e->guest, 1, 0, false, &ref) < 0)
		return -1;
	snprintf(good, sizeof(good), "%u", e->q->ring_ref[0]);
	snprintf(other, sizeof(other), "%u", ref);
	while (now_ms() < until) {
		n++;
		if (enemy_write(e, "ring-ref0", n % 3 == 0 ? good :
		    n % 3 == 1 ? other : "30000") < 0 ||
		    enemy_write(e, "protocol", n & 1 ? "x86_32-abi" :
		    "x86_64-abi") < 0 ||
		    enemy_state(e, n & 4 ? XenbusStateConnected :
		    XenbusStateInitialised) < 0)
			return -1;
	}
	if (enemy_settle(e) < 0 || enemy_recover(e) < 0)
		return -1;
	enemy_ungrant(e, ref);
	return honest(e);
}

/* ---- coming and going --------------------------------------------------- */

int
attack_reconnects(struct enemy *e)
{
	unsigned	i, n = world.soak ? 5000 : 1000;
	uint32_t	ref = enemy_grant(e, 0, false);
	struct usage	before;
	pid_t		pid = 0;

	for (i = 0; i < n; i++) {
		if (enemy_connect(e, i % 3, i % 5) < 0)
			return fail("connect %u", i);
		ask_one(e, i & 1 ? BLKIF_OP_READ : BLKIF_OP_WRITE, ref, 8,
		    BLKIF_RSP_OKAY);
		if (enemy_collect(e) < 0 || (i & 7 ? enemy_recover(e) :
		    enemy_disconnect(e)) < 0)
			return fail("connect %u", i);
		/* By then it has used every kind and size of ring. */
		if (i == 20) {
			pid = enemy_process(e);
			if (usage_get(pid, &before) < 0)
				return -1;
		}
	}
	if (enemy_process(e) != pid)
		return fail("it is not the same disk process");
	enemy_ungrant(e, ref);
	return usage_same("its disk process", &before, pid);
}

/* A guest that breaks its ring, again and again, fills no log. */
int
attack_broken_reconnects(struct enemy *e)
{
	unsigned	i, n = world.soak ? 2000 : 100;

	for (i = 0; i < n; i++) {
		if (enemy_connect(e, FRONT_X86_64, 0) < 0)
			return fail("connect %u", i);
		enemy_words(e)[0] = 1000000;
		loopguest_port_notify(e->q->port);
		if (enemy_await(e, XenbusStateClosing) < 0 ||
		    enemy_recover(e) < 0)
			return fail("connect %u", i);
	}
	return 0;
}

/* Closed with requests in flight; at once a new ring, of another shape. */
int
attack_left_in_flight(struct enemy *e)
{
	uint32_t	ref = enemy_grant(e, 0, false);
	unsigned	round, i;

	memset(enemy_data(e, 0), 0, LOOPGUEST_PAGE_SIZE);
	for (round = 0; round < 6; round++) {
		loopguest_delay_copy(e->guest, 100);
		if (enemy_connect(e, round % 3, round % 4) < 0)
			return -1;
		for (i = 0; i < 32; i++)
			ask_one(e, round & 1 ? BLKIF_OP_READ : BLKIF_OP_WRITE,
			    ref, i * 8, BLKIF_RSP_OKAY);
		enemy_push(e);
		sleep_ms(20);
		/* The backend answers what it has taken before it lets go. */
		if (enemy_recover(e) < 0)
			return fail("round %u", round);
		if (loopguest_grant_copying(e->guest, ref) != 0)
			return fail("a page is in use after Closed");
	}
	loopguest_delay_copy(e->guest, 0);
	enemy_ungrant(e, ref);
	return honest(e);
}

/* A grant copy that does not come back: nobody else must wait for it. */
int
attack_slow_copies(struct enemy *e)
{
	unsigned	delay = world.soak ? 30000 : 3000;
	uint32_t	ref = enemy_grant(e, 0, false);
	uint64_t	began, took;
	char		words[64];
	int		rc = 0;

	if (enemy_connect(e, FRONT_X86_64, 0) < 0)
		return -1;
	began = now_ms();
	loopguest_delay_copy(e->guest, delay);
	ask_one(e, BLKIF_OP_WRITE, ref, 0, BLKIF_RSP_OKAY);
	enemy_push(e);
	sleep_ms(50);
	if (another_disk() < 0)
		rc = -1;
	snprintf(words, sizeof(words), "stats %u xvda", e->domid);
	if (ringback(words) < 0)
		rc = -1;
	took = now_ms() - began;
	if (took >= delay - 500)
		rc = fail("others were served in %lu ms: no sooner than it",
		    (unsigned long)took);
	loopguest_delay_copy(e->guest, 0);
	/* And the disk itself goes on when it can. */
	while (!front_answered(&e->q->front) && now_ms() - began < delay)
		sleep_ms(10);
	if (enemy_collect(e) < 0)
		return -1;
	if (now_ms() - began < delay)
		rc = fail("the copy did not block");
	enemy_ungrant(e, ref);
	return rc;
}

/* The domain is destroyed while its pages are copied (see main.c). */
int
attack_dies_in_flight(struct enemy *e)
{
	uint32_t	ref = enemy_grant(e, 0, false);
	unsigned	i;

	if (enemy_connect(e, FRONT_X86_32, 3) < 0)
		return -1;
	loopguest_delay_copy(e->guest, 300);
	for (i = 0; i < 200; i++)
		ask_one(e, i & 1 ? BLKIF_OP_READ : BLKIF_OP_WRITE, ref,
		    i * 8, ANY);
	enemy_push(e);
	sleep_ms(50);
	return 0;
}

/* ---- without a supervisor ----------------------------------------------- */

static bool
daemon_answers(void)
{
	char	cmd[512];

	snprintf(cmd, sizeof(cmd), "%s --run-dir %s list >/dev/null 2>&1",
	    world.ringback, world.run_dir);
	return system(cmd) == 0;
}

/* A new ringbackd, that of the same build. */
static int
start_daemon(void)
{
	char		path[512];
	uint64_t	until = now_ms() + WAIT_S * 1000;
	int		log;

	snprintf(path, sizeof(path), "%sd", world.ringback);
	world.daemon = fork();
	if (world.daemon == 0) {
		log = open(world.log, O_WRONLY | O_APPEND | O_CLOEXEC);
		dup2(log, STDOUT_FILENO);
		dup2(log, STDERR_FILENO);
		execl(path, path, "--run-dir", world.run_dir, (char *)NULL);
		_exit(127);
	}
	printf("daemon %d\n", (int)world.daemon);
	while (!daemon_answers()) {
		if (now_ms() > until)
			return fail("ringbackd does not start");
		sleep_ms(20);
	}
	return 0;
}

/* A ring that breaks while nobody hears of it: the next one must. */
int
attack_unseen(struct enemy *e)
{
	uint64_t	until = now_ms() + WAIT_S * 1000;
	int		rc;

	if (enemy_connect(e, FRONT_X86_64, 0) < 0)
		return -1;
	kill(world.daemon, SIGTERM);
	while (daemon_answers() && now_ms() < until)
		sleep_ms(5);
	enemy_words(e)[0] = 1000000;
	loopguest_port_notify(e->q->port);
	sleep_ms(50);
	rc = start_daemon();
	return rc < 0 ? -1 : enemy_given_up(e, "producer index");
}
