/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * hostile: guests that attack the real daemon, one after the other, while
 * another guest uses its disk (test_hostile.sh starts both).
 *
 *	hostile [--soak] --run-dir DIR --ringback FILE --image FILE --log FILE
 *	    --daemon PID --other DOMAIN --other-page FILE [ATTACK ...]
 *
 * Each attack has a new domain.  After it, whatever it was: the daemon is the
 * same process and uses no more than before, the attacked disk went away
 * when it was detached or its domain destroyed, the image is what it was unless
 * writing it was allowed, the log has grown by a few lines only, and the other
 * guest's requests were answered all the time.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "tests/hostile/attacks.h"

#define FIRST_DOMID	100u
/* Two limits of ten a minute, the end of ten more, and each disk's own. */
#define LINES_MAX	50ul

#define SAME	NULL, false, false
#define WRITES	NULL, true, false
#define MAPPED	"raw,grants=persistent:%s", false, false
#define MAPPED_WRITES	"raw,grants=persistent:%s", true, false
#define QUEUES	"raw,iothreads=2,queues=4:%s", false, false
#define MAPPED_TWO	"raw,iothreads=2,grants=persistent:%s", true, false

static const struct attack attacks[] = {
	{ "a producer far ahead", SAME, attack_far_ahead },
	{ "a producer one too far", SAME, attack_one_too_many },
	{ "a producer that goes back", SAME, attack_backwards },
	{ "indices without sense", SAME, attack_senseless_start },
	{ "broken as soon as connected", SAME, attack_broken_at_once },
	{ "the backend's words of the header", SAME, attack_own_header },
	{ "scribbling all over the ring", WRITES, attack_scribble },
	{ "requests that change", SAME, attack_flipping },
	{ "answers that nobody reads", SAME, attack_never_reads },
	{ "the ring as a data page", SAME, attack_ring_as_data },
	{ "a ring of one page sixteen times", SAME, attack_same_page_twice },
	{ "every bad field", SAME, attack_fields },
	{ "every pair of sectors", SAME, attack_segments },
	{ "writes to a read-only disk", "raw,readonly=on:%s", false, false,
	    attack_read_only },
	{ "discards of what is not there", SAME, attack_discards },
	{ "the end of an odd image", "raw:%s.odd", false, false,
	    attack_odd_size },
	{ "bad grants", SAME, attack_grants },
	{ "one bad segment of eleven", SAME, attack_one_bad_segment },
	{ "copies that fail", WRITES, attack_copy_faults },
	{ "every bad field of an indirect request", SAME,
	    attack_indirect_fields },
	{ "indirect requests that are not offered", "raw,segments=11:%s",
	    false, false, attack_indirect_unoffered },
	{ "bad descriptors", SAME, attack_descriptors },
	{ "bad grants of descriptors", SAME, attack_descriptor_grants },
	{ "descriptors that change", WRITES, attack_descriptors_change },
	{ "descriptors that vanish", SAME, attack_descriptors_vanish },
	{ "descriptors as a data page", SAME, attack_descriptors_as_data },
	{ "floods", WRITES, attack_floods },
	{ "floods, with little memory", "raw,memory=64k,merge=0:%s", true,
	    false, attack_floods },
	{ "an event storm", SAME, attack_event_storm },
	{ "an event storm, without polling", "raw,poll=off:%s", false, false,
	    attack_event_storm },
	{ "an event storm on a broken ring", SAME, attack_storm_when_broken },
	{ "a port closed under the backend", SAME, attack_port_closed },
	{ "nodes of every kind", MAPPED, attack_nodes },
	{ "nodes of the toolstack", SAME, attack_links },
	{ "rings that cannot be mapped", SAME, attack_bad_ring },
	{ "states at full speed", SAME, attack_states },
	{ "ring nodes at full speed", SAME, attack_ring_nodes },
	{ "a state written while it is detached", NULL, false, true,
	    attack_detach },
	{ "a directory removed in use", NULL, false, true, attack_directory },
	{ "a thousand connections", WRITES, attack_reconnects },
	{ "broken connections", SAME, attack_broken_reconnects },
	{ "closed with requests in flight", WRITES, attack_left_in_flight },
	{ "copies that block", WRITES, attack_slow_copies },
	{ "broken while no ringbackd runs", SAME, attack_unseen },
	{ "grants taken back while mapped", MAPPED_WRITES,
	    attack_mapped_revoked },
	{ "grants that change while mapped",
	    "raw,memory=64k,grants=persistent:%s", true, false,
	    attack_mapped_flipping },
	{ "thousands of grants", "raw,memory=1m,grants=persistent:%s", true,
	    false, attack_many_grants },
	{ "many grants, with little memory",
	    "raw,memory=64k,grants=persistent:%s", true, false,
	    attack_many_grants_few },
	{ "one grant everywhere", MAPPED_WRITES, attack_one_grant },
	{ "data that changes while it is written", MAPPED_WRITES,
	    attack_data_changes },
	{ "maps that fail", MAPPED_WRITES, attack_map_faults },
	{ "closed while the storage has its pages",
	    "fault,grants=persistent:from=1,delay-ms=100:raw:%s", true, false,
	    attack_mapped_in_flight },
	{ "a domain that dies while the storage has its pages",
	    "fault,grants=persistent:from=1,delay-ms=300:raw:%s", true, true,
	    attack_dies_mapped },
	{ "bad grants, persistent", MAPPED, attack_grants },
	{ "one bad segment of eleven, persistent", MAPPED,
	    attack_one_bad_segment },
	{ "bad descriptors, persistent", MAPPED, attack_descriptors },
	{ "bad grants of descriptors, persistent", MAPPED,
	    attack_descriptor_grants },
	{ "descriptors that change, persistent", MAPPED_WRITES,
	    attack_descriptors_change },
	{ "descriptors as a data page, persistent", MAPPED,
	    attack_descriptors_as_data },
	{ "the ring as a data page, persistent", MAPPED, attack_ring_as_data },
	{ "floods, persistent", "raw,memory=64k,grants=persistent:%s", true,
	    false, attack_floods },
	{ "every number of queues", QUEUES, attack_queue_counts },
	{ "queues that are not there, or twice", QUEUES, attack_queue_nodes },
	{ "one of four queues breaks", QUEUES, attack_queue_breaks },
	{ "one of four queues breaks, a thread each", "raw,iothreads=4:%s",
	    false, false, attack_queue_breaks },
	{ "one of two queues is stuffed", "raw,queues=2,memory=128k:%s",
	    false, false, attack_queue_stuffed },
	{ "what one of two queues asked for hangs",
	    "fault,queues=2,memory=128k:from=1,op=write,delay-ms=700:raw:%s",
	    true, false, attack_queue_hangs },
	{ "the same grants in two queues", MAPPED_TWO, attack_queues_share },
	{ "each other's rings as data pages", QUEUES, attack_queues_as_data },
	{ "queues that come and go", QUEUES, attack_queues_come_and_go },
	{ "every bad field, on the last of four queues", QUEUES,
	    attack_fields },
	{ "requests that change, on the last of four queues", QUEUES,
	    attack_flipping },
	{ "an event storm on the last of four queues", QUEUES,
	    attack_event_storm },
	{ "floods of two queues, with little memory",
	    "raw,iothreads=2,memory=128k,merge=0:%s", true, false,
	    attack_floods },
	{ "descriptors that change, persistent, on the second queue",
	    MAPPED_TWO, attack_descriptors_change },
	{ "grants taken back while mapped, on the second queue", MAPPED_TWO,
	    attack_mapped_revoked },
	{ "a domain with four queues that dies in flight",
	    "raw,iothreads=4:%s", true, true, attack_dies_in_flight },
	{ "a domain that dies in flight", NULL, true, true,
	    attack_dies_in_flight },
};

#define NR	(sizeof(attacks) / sizeof(attacks[0]))

/* ---- one attack --------------------------------------------------------- */

/* What must be the same afterwards. */
struct before {
	struct usage	 daemon;
	unsigned long	 lines;
	uint64_t	 sum;
};

static int
look(struct before *b)
{
	b->lines = log_lines();
	b->sum = image_sum();
	return usage_get(world.daemon, &b->daemon);
}

static int
compare(const struct before *b, const struct attack *a)
{
	unsigned long	lines = log_lines() - b->lines;
	int		rc = usage_same("ringbackd", &b->daemon, world.daemon);

	if (kill(world.daemon, 0) != 0)
		rc = fail("ringbackd has ended");
	if (lines > LINES_MAX)
		rc = fail("the log has grown by %lu lines", lines);
	if (!a->writes && image_sum() != b->sum)
		rc = fail("the image has changed");
	return rc;
}

/* As many queues as are offered; an attack begins with the last of them. */
static unsigned
count_queues(const char *spec)
{
	const char	*at = strstr(spec, "queues=");

	if (at == NULL)
		at = strstr(spec, "iothreads=");
	return at == NULL ? 1 : (unsigned)atoi(strchr(at, '=') + 1);
}

static int
attack(struct enemy *e, const struct attack *a, bool detach)
{
	char	spec[256];
	int	rc;

	/* The table's own, not a user's. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	snprintf(spec, sizeof(spec), a->spec != NULL ? a->spec : "raw:%s",
	    world.image);
#pragma GCC diagnostic pop
	e->persistent = strstr(spec, "grants=persistent") != NULL;
	e->nr_queues = count_queues(spec);
	rc = enemy_new(e, spec);
	if (rc == 0)
		rc = a->run(e);
	if ((detach ? enemy_detach(e) : enemy_destroy(e)) < 0)
		rc = -1;
	return rc;
}

/* Attacks that end by detaching and by destroying the domain take turns. */
static int
run(unsigned n)
{
	const struct attack	*a = &attacks[n];
	struct enemy		*e = calloc(1, sizeof(*e));
	uint64_t		 began = now_ms();
	struct watcher		 w;
	struct before		 b;
	bool			 detach = n % 2 == 0 && !a->gone;
	int			 rc;

	if (e == NULL || look(&b) < 0 || watcher_start(&w) < 0) {
		free(e);
		return fail("cannot begin: %s", a->name);
	}
	e->domid = FIRST_DOMID + n;
	rc = attack(e, a, detach);
	if (watcher_stop(&w) < 0)
		rc = -1;
	if (compare(&b, a) < 0)
		rc = -1;
	printf("%s %s (%lu ms)\n", rc == 0 ? "ok" : "FAIL", a->name,
	    (unsigned long)(now_ms() - began));
	fflush(stdout);
	free(e);
	return rc;
}

static bool
wanted(const char *name, char **words)
{
	if (*words == NULL)
		return true;
	for (; *words != NULL; words++)
		if (strstr(name, *words) != NULL)
			return true;
	return false;
}

static const struct option options[] = {
	{ "run-dir", required_argument, NULL, 'r' },
	{ "ringback", required_argument, NULL, 'c' },
	{ "image", required_argument, NULL, 'i' },
	{ "log", required_argument, NULL, 'l' },
	{ "daemon", required_argument, NULL, 'd' },
	{ "other", required_argument, NULL, 'o' },
	{ "other-page", required_argument, NULL, 'p' },
	{ "soak", no_argument, NULL, 's' },
	{ NULL, 0, NULL, 0 }
};

/* Where the text of an option goes. */
static const char **
option_text(int c)
{
	switch (c) {
	case 'r':
		return &world.run_dir;
	case 'c':
		return &world.ringback;
	case 'i':
		return &world.image;
	case 'l':
		return &world.log;
	case 'o':
		return &world.other;
	case 'p':
		return &world.other_page;
	default:
		return NULL;
	}
}

static int
parse(int argc, char **argv)
{
	int	c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 's')
			world.soak = true;
		else if (c == 'd')
			world.daemon = atoi(optarg);
		else if (option_text(c) != NULL)
			*option_text(c) = optarg;
		else
			return -1;
	}
	return world.run_dir != NULL && world.ringback != NULL &&
	    world.image != NULL && world.log != NULL && world.daemon > 0 &&
	    world.other != NULL && world.other_page != NULL ? 0 : -1;
}

int
main(int argc, char **argv)
{
	unsigned	i, bad = 0, did = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	prctl(PR_SET_PDEATHSIG, SIGTERM);	/* not longer than the script */
	if (parse(argc, argv) < 0) {
		fprintf(stderr, "hostile: started wrongly, see main.c\n");
		return 2;
	}
	for (i = 0; i < NR; i++) {
		if (!wanted(attacks[i].name, argv + optind))
			continue;
		did++;
		if (run(i) < 0)
			bad++;
	}
	return did == 0 || bad > 0 ? 1 : 0;
}
