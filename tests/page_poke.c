/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * page_poke: reach into the page file of a disk, and kill its process.
 *
 *   page_poke [-q QUEUE] FILE ...  which queue, instead of the first
 *
 *   page_poke FILE show            what is in flight, and who serves it
 *   page_poke FILE stop STEP N     the process dies at the Nth time (from 0)
 *                                  that it comes to a step; do not wait for it
 *   page_poke FILE die S STEP:N ...  one death after the other, each at the
 *                                  step given; at most S seconds for each
 *   page_poke FILE kill DAEMON S MIN MAX SEED  for S seconds, SIGKILL to the
 *                                  child of DAEMON after a random time of MIN
 *                                  to MAX microseconds; prints how many
 *   page_poke FILE set FIELD VALUE one field of the header or the queue
 *   page_poke FILE junk SEED       random bytes in the in-flight table
 *   page_poke FILE counters SEED   random bytes in the counters
 *
 * Exit status: 0 done, 1 failed or a step was not reached, 2 called wrongly.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "blkback/page.h"

#define SPENT 0x80000000u	/* stop_after has gone below zero */

static const char *const steps[NR_STEPS] = {
	"none", "copied", "taken", "consumed", "fetched", "submitted",
	"reaped", "written", "answered", "committed", "published",
	"notified", "freed",
};

#define HEADER(m) { #m, offsetof(struct page, header.m), \
	sizeof(((struct page *)0)->header.m), false }
#define QUEUE(m) { #m, offsetof(struct page_queue, m), \
	sizeof(((struct page_queue *)0)->m), true }

static const struct field {
	const char *name;
	size_t      at, bytes;
	bool        of_queue;
} fields[] = {
	HEADER(magic), HEADER(layout), HEADER(nr_queues), HEADER(bytes),
	HEADER(image_dev), HEADER(image_ino), HEADER(domid), HEADER(devid),
	HEADER(generation), HEADER(connected), HEADER(abi), HEADER(uuid),
	HEADER(used_queues),
	HEADER(backend), QUEUE(req_cons), QUEUE(rsp_prod), QUEUE(order),
	QUEUE(gref[0]), QUEUE(port),
};

static struct page *page;
static struct page_queue *queue;	/* the one that it is about */

static uint64_t
clock_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000ull + ts.tv_nsec / 1000;
}

static void
nap(uint64_t us)
{
	const struct timespec ts = { us / 1000000, us % 1000000 * 1000 };

	nanosleep(&ts, NULL);
}

static uint64_t
number(const char *text)
{
	char *end;
	uint64_t n = strtoull(text, &end, 0);

	if (end == text || *end != '\0') {
		fprintf(stderr, "page_poke: %s is not a number\n", text);
		exit(2);
	}
	return n;
}

static uint64_t
random_next(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	return *seed >> 33;
}

/* ---- deaths at a step ---------------------------------------------------- */

static unsigned
step_number(const char *name, size_t length)
{
	unsigned i;

	for (i = STEP_COPIED; i < NR_STEPS; i++)
		if (strncmp(steps[i], name, length) == 0 &&
		    steps[i][length] == '\0')
			return i;
	fprintf(stderr, "page_poke: no step is called %.*s\n", (int)length,
	    name);
	exit(2);
}

static void
arm(unsigned step, unsigned after)
{
	volatile struct page_queue *q = queue;

	/* One that counts down at this moment must not write over ours. */
	q->stop_at = STEP_NONE;
	nap(500);
	q->stop_after = after;
	q->stop_at = step;
}

/* A step named like "written:3". */
static int
die_at(const char *what, unsigned seconds)
{
	volatile struct page_queue *q = queue;
	const char *colon = strchr(what, ':');
	uint64_t until = clock_us() + seconds * 1000000ull;

	if (colon == NULL) {
		fprintf(stderr, "page_poke: %s is not STEP:N\n", what);
		exit(2);
	}
	arm(step_number(what, colon - what), number(colon + 1));
	while (q->stop_after < SPENT) {
		if (clock_us() > until) {
			q->stop_at = STEP_NONE;
			printf("%s was not reached in %u s, %u to go\n", what,
			    seconds, q->stop_after);
			return 1;
		}
		nap(200);
	}
	return 0;
}

static int
die(int argc, char **argv)
{
	unsigned seconds = number(argv[0]);
	int i, rc = 0;

	for (i = 1; i < argc && rc == 0; i++)
		rc = die_at(argv[i], seconds);
	queue->stop_at = STEP_NONE;
	printf("%d deaths\n", i - 1 - rc);
	return rc;
}

/* ---- deaths at any time -------------------------------------------------- */

static pid_t
child_of(const char *daemon)
{
	char path[64], text[64] = "";
	FILE *f;
	int n;

	snprintf(path, sizeof(path), "/proc/%s/task/%s/children", daemon,
	    daemon);
	f = fopen(path, "r");
	if (f == NULL) {
		fprintf(stderr, "page_poke: %s: %s\n", path, strerror(errno));
		exit(1);
	}
	n = fgets(text, sizeof(text), f) != NULL ? atoi(text) : 0;
	fclose(f);
	return n;
}

static int
kill_for(char **argv)
{
	uint64_t until = clock_us() + number(argv[1]) * 1000000;
	uint64_t min = number(argv[2]), max = number(argv[3]);
	uint64_t seed = number(argv[4]);
	unsigned kills = 0;
	pid_t pid;

	if (max <= min)
		return 2;
	while (clock_us() < until) {
		nap(min + random_next(&seed) % (max - min));
		pid = child_of(argv[0]);
		/* Not one that is dead and waits to be reaped. */
		if (pid > 0 && kill(pid, SIGKILL) == 0)
			kills++;
	}
	printf("%u kills\n", kills);
	return 0;
}

/* ---- pages that tell lies ------------------------------------------------ */

static int
set(const char *name, const char *value)
{
	const struct field *f;
	char *at;
	uint64_t n;
	unsigned i;

	for (i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		f = &fields[i];
		if (strcmp(f->name, name) != 0)
			continue;
		at = (f->of_queue ? (char *)queue : (char *)page) + f->at;
		if (f->bytes != 4 && strcmp(name, "bytes") != 0 &&
		    strncmp(name, "image", 5) != 0) {
			strncpy(at, value, f->bytes);
			return 0;
		}
		n = number(value);
		memcpy(at, &n, f->bytes);
		return 0;
	}
	fprintf(stderr, "page_poke: there is no field %s\n", name);
	return 2;
}

static int
junk(uint64_t seed)
{
	struct page_slot *s;
	unsigned i, b;

	for (i = 0; i < RING_MAX_SLOTS; i++) {
		s = &queue->slot[i];
		for (b = 0; b < sizeof(*s); b++)
			((uint8_t *)s)[b] = random_next(&seed);
		/* States that mean something, and one that does not. */
		s->state = random_next(&seed) % 4;
	}
	return 0;
}

static int
counters(uint64_t seed)
{
	unsigned b;

	for (b = 0; b < sizeof(queue->stats); b++)
		((uint8_t *)&queue->stats)[b] = random_next(&seed);
	return 0;
}

static int
show(void)
{
	const struct page_queue *q = queue;

	printf("pid=%d generation=%u connected=%u inflight=%u abi=%u order=%u "
	    "gref=%u port=%u ino=%" PRIu64 "\n", page->header.pid,
	    page->header.generation, page->header.connected,
	    q->req_cons - q->rsp_prod, page->header.abi, q->order, q->gref[0],
	    q->port, page->header.image_ino);
	return 0;
}

static int
map(const char *path, unsigned number)
{
	struct stat st;
	int fd = open(path, O_RDWR | O_CLOEXEC);

	page = fd < 0 || fstat(fd, &st) != 0 ? MAP_FAILED :
	    mmap(NULL, st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED) {
		fprintf(stderr, "page_poke: %s: %s\n", path, strerror(errno));
		return 1;
	}
	close(fd);
	queue = &page->queue[number];
	if ((char *)(queue + 1) <= (char *)page + st.st_size)
		return 0;
	fprintf(stderr, "page_poke: %s has no queue %u\n", path, number);
	return 1;
}

int
main(int argc, char **argv)
{
	unsigned number_of_queue = 0;
	const char *what;

	if (argc > 2 && strcmp(argv[1], "-q") == 0) {
		number_of_queue = number(argv[2]);
		argc -= 2;
		argv += 2;
	}
	what = argc > 2 ? argv[2] : "";
	if (strcmp(what, "kill") == 0 && argc == 8)
		return kill_for(argv + 3);
	if (argc > 2 && map(argv[1], number_of_queue) != 0)
		return 1;
	if (strcmp(what, "show") == 0 && argc == 3)
		return show();
	if (strcmp(what, "stop") == 0 && argc == 5) {
		arm(step_number(argv[3], strlen(argv[3])), number(argv[4]));
		return 0;
	}
	if (strcmp(what, "die") == 0 && argc > 4)
		return die(argc - 3, argv + 3);
	if (strcmp(what, "set") == 0 && argc == 5)
		return set(argv[3], argv[4]);
	if (strcmp(what, "junk") == 0 && argc == 4)
		return junk(number(argv[3]));
	if (strcmp(what, "counters") == 0 && argc == 4)
		return counters(number(argv[3]));
	fprintf(stderr, "page_poke: see the top of tests/page_poke.c\n");
	return 2;
}
