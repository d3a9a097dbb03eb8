/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * store: guests that write rubbish into xenstore, several at once and as fast
 * as they can, while another guest uses its disk (test_store.sh starts both).
 *
 *	hostile_store --seed N --seconds N --tap FILE --run-dir DIR
 *	    --ringback FILE --image FILE --log FILE --daemon PID --other DOMAIN
 *	    --other-page FILE
 *
 * Each guest has a ring that works and knows the nodes that say so.  It makes
 * them rubbish, one after the other, puts them right again, and walks through
 * the states without sense; now and then it connects on the way.  The seed
 * decides what each of them does, but not how these things meet.
 *
 * Meanwhile nothing of the backend grows, and every state that it writes (the
 * tap, store_tap.c) may follow the one before it.  Afterwards each guest
 * behaves, and its disk works.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "tests/hostile/enemy.h"

#define GUESTS		3u
#define FIRST_DOMID	200u
#define NODES_MAX	64u
#define HUGE_VALUE	3900u	/* with its path, all that a message holds */
#define SAMPLES_MAX	20000u
#define SAMPLE_MS	200u
#define SLACK_KIB	512
/* Two limits of ten a minute in each process, and what becomes of it. */
#define LINES_PER_MINUTE 60ul
#define SECTORS		8u

struct node {
	char	name[64];
	char	value[64];
};

struct vandal {
	struct enemy	*e;
	pthread_t	 thread;
	uint64_t	 random;
	struct node	 good[NODES_MAX];
	unsigned	 nr_good;
	uint64_t	 writes;
	pid_t		 disk;
};

static struct vandal vandals[GUESTS];
static const char *tap;
static unsigned long seed = 1;
static unsigned seconds = 4;
static atomic_bool enough;

static unsigned
pick(struct vandal *v, unsigned n)
{
	v->random ^= v->random << 13;
	v->random ^= v->random >> 7;
	v->random ^= v->random << 17;
	return (unsigned)(v->random >> 16) % n;
}

/* ---- nodes -------------------------------------------------------------- */

/* What a guest may write besides its own: names of the backend's, and none. */
static const char *const strange[] = {
	"ring-ref", "ring-ref0", "ring-ref1", "ring-ref15", "ring-ref16",
	"ring-page-order", "num-ring-pages", "event-channel", "protocol",
	"feature-persistent", "multi-queue-num-queues", "queue-0/ring-ref",
	"queue-0/ring-ref1", "queue-0/event-channel", "queue-1/ring-ref",
	"queue-1/event-channel", "queue-15/ring-ref", "queue-16/ring-ref",
	"queue-0", "queue-4294967295/ring-ref", "backend", "backend-id",
	"virtual-device", "device-type", "online", "params", "hotplug-status",
	"script", "frontend", "frontend-id", "mode", "sectors", "error",
	"feature-max-indirect-segments", "physical-device", "eject",
	"state/state", "a/b/c/d/e/f", "ring-ref/0", "state-",
};

static const char *const rubbish[] = {
	"", "-1", "0", "1", "2", "3", "4", "5", "16", "17", "banana", " 8",
	"8 ", "+8", "0x8", "1e1", "8\n", "08", "4294967295", "4294967296",
	"9223372036854775808", "18446744073709551615", "18446744073709551616",
	"99999999999999999999999999", "-9223372036854775809", "%s%n%s%n",
	"x86_64-abi", "x86_32-abi", "x86_64-abi ", "arm-abi", "../../..",
	"/local/domain/0", "\x1b[31m", "\xff\xfe", "2147483648", "65536",
};

static const char *const states[] = {
	"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "-1", "", "junk",
	"4294967299", "3", "4", "1", "6", "3", "5",
};

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static void
path_of(const struct vandal *v, const char *name, char path[256])
{
	snprintf(path, 256, "%s/%s", v->e->front_dir, name);
}

static int
put(struct vandal *v, const char *name, const void *value, size_t size)
{
	char	path[256];

	path_of(v, name, path);
	v->writes++;
	if (xs_write(v->e->xs, XBT_NULL, path, value, (unsigned)size))
		return 0;
	return fail("write %s: %s", path, strerror(errno));
}

static int
drop(struct vandal *v, const char *name)
{
	char	path[256];

	path_of(v, name, path);
	v->writes++;
	if (xs_rm(v->e->xs, XBT_NULL, path) || errno == ENOENT)
		return 0;
	return fail("remove %s: %s", path, strerror(errno));
}

/* A directory where a value was; it may keep that as well. */
static int
grow(struct vandal *v, const char *name)
{
	char	below[96];

	if (pick(v, 2) == 0 && drop(v, name) < 0)
		return -1;
	snprintf(below, sizeof(below), "%s/%s", name,
	    strange[pick(v, COUNT(strange))]);
	return put(v, below, "8", 1);
}

static int
restore(struct vandal *v, const struct node *n)
{
	return put(v, n->name, n->value, strlen(n->value));
}

/* Another node of our own: a grant that stands twice, a port for a grant. */
static int
confuse(struct vandal *v, const char *name)
{
	const struct node	*n = &v->good[pick(v, v->nr_good)];

	return put(v, name, n->value, strlen(n->value));
}

static int
name_port_of_another(struct vandal *v, const char *name)
{
	char	value[16];

	snprintf(value, sizeof(value), "%u", pick(v, 2) == 0 ? pick(v, 64) :
	    loopguest_port_number(vandals[pick(v, GUESTS)].e->queue[0].port));
	return put(v, name, value, strlen(value));
}

static int
spoil(struct vandal *v, const char *name)
{
	static const char	zero[8] = { '8', '\0', '9' };
	char			huge[HUGE_VALUE];
	const char		*text;

	switch (pick(v, 8)) {
	case 0:
		return drop(v, name);
	case 1:
		memset(huge, pick(v, 2) == 0 ? '1' : (int)pick(v, 256),
		    sizeof(huge));
		return put(v, name, huge, sizeof(huge));
	case 2:
		return put(v, name, zero, 1 + pick(v, sizeof(zero)));
	case 3:
		return grow(v, name);
	case 4:
		return confuse(v, name);
	case 5:
		return name_port_of_another(v, name);
	default:
		text = rubbish[pick(v, COUNT(rubbish))];
		return put(v, name, text, strlen(text));
	}
}

static int
any_state(struct vandal *v)
{
	const char	*text = states[pick(v, COUNT(states))];

	if (pick(v, 64) == 0)
		return spoil(v, "state");
	return put(v, "state", text, strlen(text));
}

/* ---- a guest ------------------------------------------------------------ */

static int
put_right(struct vandal *v)
{
	unsigned	i;

	for (i = 0; i < COUNT(strange); i++)
		if (drop(v, strange[i]) < 0)
			return -1;
	for (i = 0; i < v->nr_good; i++)
		if (restore(v, &v->good[i]) < 0)
			return -1;
	return 0;
}

static int
states_in_a_row(struct vandal *v)
{
	unsigned	n;

	for (n = pick(v, 200); n > 0 && !atomic_load(&enough); n--)
		if (any_state(v) < 0)
			return -1;
	return 0;
}

/* As a good guest would, but for what becomes of it. */
static int
nearly_connect(struct vandal *v)
{
	if (put_right(v) < 0 || put(v, "state", "1", 1) < 0)
		return -1;
	sleep_ms(pick(v, 20));
	if (put(v, "state", "3", 1) < 0)
		return -1;
	sleep_ms(pick(v, 30));
	loopguest_port_notify(v->e->queue[0].port);
	return pick(v, 2) == 0 ? put(v, "state", "4", 1) : 0;
}

static int
vandalise(struct vandal *v)
{
	unsigned	n = pick(v, 100);

	if (n < 30)
		return any_state(v);
	if (n < 34)
		return states_in_a_row(v);
	if (n < 60)
		return spoil(v, v->good[pick(v, v->nr_good)].name);
	if (n < 80)
		return spoil(v, strange[pick(v, COUNT(strange))]);
	if (n < 97)
		return restore(v, &v->good[pick(v, v->nr_good)]);
	return nearly_connect(v);
}

static void *
vandal_main(void *arg)
{
	struct vandal	*v = arg;

	while (!atomic_load(&enough))
		if (vandalise(v) < 0)
			return v;
	return NULL;
}

/* The nodes as they are, to be put there again. */
static int
learn(struct vandal *v, const char *dir)
{
	char		path[256], name[64], **names, *value;
	unsigned	n = 0, i, len;
	int		rc = 0;

	path_of(v, dir, path);
	if (*dir == '\0')
		path[strlen(path) - 1] = '\0';
	names = xs_directory(v->e->xs, XBT_NULL, path, &n);
	for (i = 0; names != NULL && i < n && rc == 0; i++) {
		snprintf(name, sizeof(name), "%s%s%s", dir,
		    *dir != '\0' ? "/" : "", names[i]);
		path_of(v, name, path);
		value = xs_read(v->e->xs, XBT_NULL, path, &len);
		if (value == NULL || len >= sizeof(v->good[0].value) ||
		    v->nr_good == NODES_MAX) {
			rc = fail("%s cannot be kept", path);
		} else if (len == 0) {
			rc = learn(v, name);
		} else if (strcmp(name, "state") != 0) {
			strcpy(v->good[v->nr_good].name, name);
			strcpy(v->good[v->nr_good++].value, value);
		}
		free(value);
	}
	free(names);
	return rc;
}

static int
vandal_new(struct vandal *v, unsigned n)
{
	static const char *const specs[GUESTS] = {
		"raw:%s.0", "raw,iothreads=2,queues=4:%s.1",
		"raw,grants=persistent:%s.2",
	};
	char	spec[256];

	v->e = calloc(1, sizeof(*v->e));
	if (v->e == NULL)
		return fail("out of memory");
	v->random = (seed * GUESTS + n + 1) * 0x9e3779b97f4a7c15u;
	v->e->domid = FIRST_DOMID + n;
	v->e->nr_queues = n == 1 ? 4 : 1;
	v->e->persistent = n == 2;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	snprintf(spec, sizeof(spec), specs[n], world.image);
#pragma GCC diagnostic pop
	if (enemy_new(v->e, spec) < 0 ||
	    enemy_ring(v->e, FRONT_X86_64, n) < 0 || learn(v, "") < 0)
		return -1;
	v->disk = enemy_process(v->e);
	return 0;
}

/* ---- what must not grow ------------------------------------------------- */

struct series {
	const char	*whose;
	pid_t		 pid;
	unsigned	 n;
	struct usage	*sample;
};

static int
series_new(struct series *s, const char *whose, pid_t pid)
{
	*s = (struct series){ .whose = whose, .pid = pid };
	s->sample = calloc(SAMPLES_MAX, sizeof(*s->sample));
	return s->sample == NULL ? fail("out of memory") : 0;
}

static int
series_add(struct series *s)
{
	if (s->n == SAMPLES_MAX)
		return 0;
	return usage_get(s->pid, &s->sample[s->n++]);
}

static void
series_most(const struct series *s, unsigned from, unsigned to,
    struct usage *most)
{
	unsigned	i;

	memset(most, 0, sizeof(*most));
	for (i = from; i < to; i++) {
		if (s->sample[i].rss_kib > most->rss_kib)
			most->rss_kib = s->sample[i].rss_kib;
		if (s->sample[i].fds > most->fds)
			most->fds = s->sample[i].fds;
		if (s->sample[i].threads > most->threads)
			most->threads = s->sample[i].threads;
	}
}

/* The second quarter is after the warm-up: the last one is not above it. */
static int
series_flat(struct series *s)
{
	struct usage	warm, last;
	int		rc = 0;

	series_most(s, s->n / 4, s->n / 2, &warm);
	series_most(s, s->n - s->n / 4, s->n, &last);
	if (s->n < 8)
		rc = fail("%s: only %u samples", s->whose, s->n);
#ifndef RINGBACK_SANITIZED	/* its allocator keeps what was freed */
	if (last.rss_kib > warm.rss_kib + SLACK_KIB)
		rc = fail("%s has grown from %ld KiB to %ld", s->whose,
		    warm.rss_kib, last.rss_kib);
#endif
	/* A ring that is being connected has some of its own. */
	if (last.fds > warm.fds + 4 * MAX_QUEUES_TRIED)
		rc = fail("%s had %u descriptors, now %u", s->whose, warm.fds,
		    last.fds);
	if (last.threads > warm.threads)
		rc = fail("%s had %u threads, now %u", s->whose, warm.threads,
		    last.threads);
	free(s->sample);
	return rc;
}

/* ---- what it has written ------------------------------------------------ */

/* 0: there is no directory. */
static bool
may_follow(int before, int after)
{
	static const char *const next[] = {
		"1", "256", "456", "", "456", "56", "12",
	};

	return after > 0 && after < 10 && strchr(next[before], '0' + after) !=
	    NULL;
}

/* One line of the tap; 'last' is of each vandal. */
static int
judge(const char *path, const char *value, int last[GUESTS],
    unsigned long *lines)
{
	unsigned	i;
	int		state;

	for (i = 0; i < GUESTS; i++) {
		size_t	n = strlen(vandals[i].e->back_dir);

		if (strncmp(path, vandals[i].e->back_dir, n) != 0 ||
		    strcmp(path + n, "/state") != 0)
			continue;
		state = strlen(value) == 1 ? *value - '0' : -1;
		if (!may_follow(last[i], state))
			return fail("%s: %s after %d", path, value, last[i]);
		last[i] = state;
		++*lines;
	}
	return 0;
}

static int
judge_states(unsigned long *lines)
{
	int	 last[GUESTS] = { 0 }, rc = 0;
	char	 path[300], value[64];
	FILE	*f = fopen(tap, "re");

	if (f == NULL)
		return fail("%s: %s", tap, strerror(errno));
	while (rc == 0 && fscanf(f, "%299s %63s", path, value) == 2)
		rc = judge(path, value, last, lines);
	fclose(f);
	return rc;
}

/* ---- afterwards --------------------------------------------------------- */

static void
ask(struct enemy *e, uint8_t op, unsigned sector, uint32_t ref)
{
	struct front_request	req = { .op = op, .nr_segments = 1,
				    .sector = sector };

	req.seg[0].gref = ref;
	req.seg[0].last = SECTORS - 1;
	enemy_ask(e, &req, BLKIF_RSP_OKAY);
}

/* What is written on the last of the queues is read again. */
static int
verify(struct vandal *v)
{
	uint32_t	ref[2];
	unsigned	i, k;
	int		rc = 0;

	ref[0] = enemy_grant(v->e, 0, false);
	ref[1] = enemy_grant(v->e, 1, false);
	for (i = 0; rc == 0 && i < 16; i++) {
		uint32_t	*data = enemy_data(v->e, 0);

		for (k = 0; k < LOOPGUEST_PAGE_SIZE / 4; k++)
			data[k] = pick(v, 1u << 31);
		memset(enemy_data(v->e, 1), 0, LOOPGUEST_PAGE_SIZE);
		ask(v->e, BLKIF_OP_WRITE, i * SECTORS, ref[0]);
		rc = enemy_collect(v->e);
		ask(v->e, BLKIF_OP_READ, i * SECTORS, ref[1]);
		if (rc == 0)
			rc = enemy_collect(v->e);
		if (rc == 0 && memcmp(data, enemy_data(v->e, 1),
		    LOOPGUEST_PAGE_SIZE) != 0)
			rc = fail("domain %u reads something else",
			    v->e->domid);
	}
	enemy_ungrant(v->e, ref[0]);
	enemy_ungrant(v->e, ref[1]);
	return rc;
}

static int
behave(struct vandal *v)
{
	if (put_right(v) < 0 || enemy_settle(v->e) < 0 ||
	    enemy_recover(v->e) < 0)
		return -1;
	/* Nothing of it: neither the old ring, nor what is left of the junk. */
	if (enemy_connect(v->e, FRONT_X86_64, 1) < 0 || verify(v) < 0)
		return -1;
	if (enemy_process(v->e) != v->disk)
		return fail("domain %u: its disk process has died",
		    v->e->domid);
	return enemy_disconnect(v->e);
}

/* ---- all of it ---------------------------------------------------------- */

/* While they do their worst: look at each process. */
static int
watch(struct series s[GUESTS + 1])
{
	uint64_t	until = now_ms() + seconds * 1000;
	unsigned	i;
	int		rc = 0;

	while (rc == 0 && now_ms() < until) {
		for (i = 0; i <= GUESTS && rc == 0; i++)
			rc = series_add(&s[i]);
		sleep_ms(SAMPLE_MS);
	}
	return rc;
}

static int
storm(void)
{
	static const char *const	whose[] = {
		"ringbackd", "disk 0", "disk 1", "disk 2",
	};
	struct series	s[GUESTS + 1];
	void		*bad;
	unsigned	i;
	int		rc = 0;

	for (i = 0; i <= GUESTS; i++)
		if (series_new(&s[i], whose[i], i == 0 ? world.daemon :
		    vandals[i - 1].disk) < 0)
			return -1;
	for (i = 0; i < GUESTS; i++)
		if (pthread_create(&vandals[i].thread, NULL, vandal_main,
		    &vandals[i]) != 0)
			return fail("cannot start a thread");
	rc = watch(s);
	atomic_store(&enough, true);
	for (i = 0; i < GUESTS; i++) {
		pthread_join(vandals[i].thread, &bad);
		if (bad != NULL)
			rc = -1;
	}
	for (i = 0; i <= GUESTS; i++)
		if (series_flat(&s[i]) < 0)
			rc = -1;
	return rc;
}

static int
say(const char *what, int rc)
{
	printf("%s %s\n", rc == 0 ? "ok" : "FAIL", what);
	return rc;
}

static int
afterwards(void)
{
	unsigned	i;
	int		rc = 0;

	for (i = 0; i < GUESTS; i++)
		if (behave(&vandals[i]) < 0)
			rc = -1;
	say("each connects, and reads what it has written", rc);
	for (i = 0; i < GUESTS; i++)
		if (enemy_detach(vandals[i].e) < 0)
			rc = -1;
	return say("nothing is left of their disks", rc);
}

static int
check_log(unsigned long before)
{
	unsigned long	lines = log_lines() - before;
	unsigned long	most = (seconds / 60 + 2) * LINES_PER_MINUTE * GUESTS;

	printf("    %lu lines in the log\n", lines);
	return lines <= most ? 0 : fail("more than %lu", most);
}

static int
run(void)
{
	unsigned long	lines = log_lines(), written = 0, n = 0;
	struct usage	before;
	struct watcher	w;
	unsigned	i;
	int		rc;

	if (usage_get(world.daemon, &before) < 0)
		return -1;
	for (i = 0; i < GUESTS; i++)
		if (vandal_new(&vandals[i], i) < 0)
			return say("three guests with a disk", -1);
	if (watcher_start(&w) < 0)
		return fail("cannot start a thread");
	rc = say("nothing grows while they write rubbish", storm());
	for (i = 0; i < GUESTS; i++)
		n += vandals[i].writes;
	rc |= say("the guest beside is served all the time", watcher_stop(&w));
	rc |= afterwards();
	rc |= say("each state follows the one before",
	    judge_states(&written));
	printf("    seed %lu: %lu writes, %lu states of the backend\n", seed, n,
	    written);
	rc |= say("states were written", written > 10 * GUESTS ? 0 : -1);
	rc |= say("the log is short", check_log(lines));
	rc |= say("the daemon uses what it did before",
	    usage_same("ringbackd", &before, world.daemon));
	return rc;
}

static const struct option options[] = {
	{ "run-dir", required_argument, NULL, 'r' },
	{ "ringback", required_argument, NULL, 'c' },
	{ "image", required_argument, NULL, 'i' },
	{ "log", required_argument, NULL, 'l' },
	{ "daemon", required_argument, NULL, 'd' },
	{ "other", required_argument, NULL, 'o' },
	{ "other-page", required_argument, NULL, 'p' },
	{ "seed", required_argument, NULL, 's' },
	{ "seconds", required_argument, NULL, 'n' },
	{ "tap", required_argument, NULL, 't' },
	{ NULL, 0, NULL, 0 }
};

int
main(int argc, char **argv)
{
	const char	*text[128] = { NULL };
	int		 c;

	setvbuf(stdout, NULL, _IOLBF, 0);
	prctl(PR_SET_PDEATHSIG, SIGTERM);	/* not longer than the script */
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == '?')
			return 2;
		text[c] = optarg;
	}
	if (text['r'] == NULL || text['c'] == NULL || text['i'] == NULL ||
	    text['l'] == NULL || text['o'] == NULL || text['p'] == NULL ||
	    text['d'] == NULL || text['s'] == NULL || text['n'] == NULL ||
	    text['t'] == NULL) {
		fprintf(stderr, "hostile_store: started wrongly, see "
		    "store.c\n");
		return 2;
	}
	world = (struct world){ .run_dir = text['r'], .ringback = text['c'],
	    .image = text['i'], .log = text['l'], .other = text['o'],
	    .other_page = text['p'], .daemon = atoi(text['d']) };
	seed = strtoul(text['s'], NULL, 10);
	seconds = (unsigned)atoi(text['n']);
	tap = text['t'];
	return run() == 0 ? 0 : 1;
}
