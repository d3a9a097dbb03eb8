/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * qcow2_model: see qcow2_model.h.
 *
 *   qcow2_model [--seed N | --seeds A..B | --seconds S [--seed N]]
 *               [--jobs N] [--long] [--large] [--delay US] [--raw]
 *               [--images-only] [--keep] [--verbose]
 *
 * With --delay the kernel's aio is replaced by one (io_tap.h) that takes its
 * time, at most so many microseconds for each I/O, does them in any order and
 * holds some of them back for long.
 *
 * Each seed is a process of its own, so that a crash or a hang is that seed's;
 * what it needed lies below $TMPDIR and is removed unless it failed and --keep
 * was given.  Prints one line when all went well, else a line "FAIL" for each
 * seed that did not, with the command to do it again.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <libgen.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/io_tap.h"
#include "tests/qcow2_model.h"

#define MiB (1024u * 1024u)
#define MAX_JOBS 16

static struct options {
	uint64_t first, last;
	unsigned seconds;	/* 0: until 'last' */
	unsigned jobs;
	unsigned delay;		/* microseconds, at most; 0: real aio */
	bool     lengthy;	/* more operations for each seed */
	bool     large;		/* images of up to 64 MiB, not 16 */
	bool     raw;		/* another driver, to test the test */
	bool     images_only;
	bool     keep;
	bool     verbose;
} options = { .first = 1, .last = 80, .jobs = 2 };

static struct run run;		/* of a child */

/* What all children have done. */
static _Atomic uint64_t *totals;	/* by enum io_op */

/*
 * Numbers and bytes.
 */

static uint64_t
mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

void
rng_start(struct rng *r, uint64_t seed, unsigned part)
{
	r->state = mix(seed * 16 + part);
}

uint64_t
rng_next(struct rng *r)
{
	r->state += 0x9e3779b97f4a7c15u;
	return mix(r->state);
}

uint64_t
rng_below(struct rng *r, uint64_t n)
{
	return rng_next(r) % n;
}

bool
rng_chance(struct rng *r, unsigned percent)
{
	return rng_below(r, 100) < percent;
}

/* As likely between 1 and 2 as between 1000 and 2000. */
uint64_t
rng_log(struct rng *r, uint64_t min, uint64_t max)
{
	uint64_t low = min, high;
	unsigned doublings = 0, k;

	while (low <= max / 2) {
		low *= 2;
		doublings++;
	}
	k = (unsigned)rng_below(r, doublings + 1);
	low = min << k;
	high = k == doublings ? max : low * 2 - 1;
	return low + rng_below(r, high - low + 1);
}

void
sector_fill(void *buf, uint64_t sector, uint32_t version)
{
	uint64_t *p = buf;
	unsigned i, n = SECTOR / 8;

	if (version < 256) {
		memset(buf, (int)version, SECTOR);
		return;
	}
	if (version % 4 == 0) {
		n = 4;
		memset(buf, (int)(version >> 2 & 255), SECTOR);
	}
	for (i = 0; i < n; i++)
		p[i] = mix(sector * (SECTOR / 8) + i + ((uint64_t)version <<
		    40));
}

bool
sector_is(const void *buf, uint64_t sector, uint32_t version)
{
	uint8_t want[SECTOR];

	sector_fill(want, sector, version);
	return memcmp(buf, want, SECTOR) == 0;
}

void
contents_make(struct contents *c, uint64_t sectors)
{
	c->sectors = sectors;
	c->version = calloc(sectors, sizeof(c->version[0]));
	c->or_zero = calloc(sectors, sizeof(c->or_zero[0]));
	if (c->version == NULL || c->or_zero == NULL)
		model_fail("out of memory");
}

void
contents_free(struct contents *c)
{
	free(c->version);
	free(c->or_zero);
}

void
contents_set(struct contents *c, uint64_t first, uint64_t n, uint32_t version)
{
	uint64_t i;

	for (i = first; i < first + n; i++) {
		c->version[i] = version;
		c->or_zero[i] = 0;
	}
}

void
contents_compare(struct contents *c, const void *buf, uint64_t first,
    uint64_t n, const char *who)
{
	const uint8_t *p = buf;
	uint64_t i;

	for (i = first; i < first + n; i++, p += SECTOR) {
		if (sector_is(p, i, c->version[i])) {
			c->or_zero[i] = 0;
			continue;
		}
		if (!c->or_zero[i] || !sector_is(p, i, 0))
			model_fail("%s: sector %llu (byte %#llx) is not "
			    "version %u%s: it begins %02x %02x %02x %02x "
			    "(looked at %llu sectors from %llu)", who,
			    (unsigned long long)i, (unsigned long long)i *
			    SECTOR, c->version[i], c->or_zero[i] ?
			    " or zeroes" : "", p[0], p[1], p[2], p[3],
			    (unsigned long long)n, (unsigned long long)first);
		contents_set(c, i, 1, 0);
	}
}

/*
 * One seed.
 */

static void
print_shape(void)
{
	char text[1024];

	chain_describe(&run.chain, text, sizeof(text));
	printf("  seed %llu: %s\n", (unsigned long long)run.seed, text);
}

void
model_fail(const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	printf("  seed %llu: %s\n", (unsigned long long)run.seed, text);
	print_shape();
	fflush(stdout);
	_exit(1);
}

void
model_say(const struct run *r, const char *fmt, ...)
{
	va_list ap;

	if (!r->verbose)
		return;
	va_start(ap, fmt);
	printf("  seed %llu: ", (unsigned long long)r->seed);
	vprintf(fmt, ap);
	putchar('\n');
	va_end(ap);
}

/* $TMPDIR, or else the folder of this program: tmpfs may lack O_DIRECT. */
static void
folder_name(char name[NAME_SIZE - 64], uint64_t seed, pid_t pid)
{
	static char exe[300];
	const char *tmp = getenv("TMPDIR");
	ssize_t n;

	if (tmp == NULL || strlen(tmp) >= sizeof(exe)) {
		n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
		if (n <= 0)
			abort();
		exe[n] = '\0';
		tmp = dirname(exe);
	}
	snprintf(name, NAME_SIZE - 64, "%s/qcow2_model.%ld.%llu", tmp,
	    (long)pid, (unsigned long long)seed);
}

static void
folder_remove(uint64_t seed, pid_t pid)
{
	char name[NAME_SIZE - 64], command[NAME_SIZE];

	folder_name(name, seed, pid);
	snprintf(command, sizeof(command), "rm -rf '%s'", name);
	if (system(command) != 0)
		printf("  cannot remove %s\n", name);
}

static void
seed_shape(struct rng *r)
{
	struct chain *c = &run.chain;

	rng_start(r, run.seed, 0);
	chain_choose(c, r, options.raw, options.large);
	run.shape = &c->layer[c->nr_layers - 1];
	run.nr_rounds = 2 + (unsigned)rng_below(r, 2);
	run.nr_ops = 20 + (unsigned)rng_below(r, options.lengthy ? 800 : 150);
	run.bytes = rng_log(r, MiB / 2, options.lengthy ? 64 * MiB : 8 * MiB);
}

static void
seed_run(uint64_t seed)
{
	struct chain *c = &run.chain;
	struct rng r;
	unsigned i;

	run.seed = seed;
	run.verbose = options.verbose;
	run.delayed = options.delay != 0;
	tap.real_aio = !run.delayed;
	tap.delay_us = options.delay;
	seed_shape(&r);
	folder_name(c->folder, seed, getpid());
	if (mkdir(c->folder, 0700) != 0)
		model_fail("%s: %s", c->folder, strerror(errno));
	chain_path(c, c->nr_layers - 1, run.top);
	if (run.verbose)
		print_shape();

	rng_start(&r, seed, 1);
	chain_make(c, &r);
	if (options.images_only)
		chain_verify(c);
	rng_start(&r, seed, 2);
	for (i = 0; i < run.nr_rounds && !options.images_only; i++) {
		model_say(&run, "round %u", i);
		round_run(&run, &r);
		chain_verify(c);
	}
	chain_verify_rest(c);
	if (rng_chance(&r, 40))
		chain_verify_grown(c);
	for (i = 0; i < 4; i++)
		atomic_fetch_add(&totals[i], run.count[i]);
}

/*
 * All seeds.
 */

struct job {
	pid_t    pid;		/* 0: none */
	uint64_t seed;
	time_t   began;
};

#ifdef RINGBACK_SANITIZED
#define SEED_SECONDS 300
#else
#define SEED_SECONDS 60
#endif

static time_t
now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec;
}

static void
job_start(struct job *j, uint64_t seed)
{
	fflush(stdout);
	j->seed = seed;
	j->began = now();
	j->pid = fork();
	if (j->pid == -1) {
		printf("FAIL fork: %s\n", strerror(errno));
		exit(1);
	}
	if (j->pid != 0)
		return;
	/* Nothing is left behind when this program is stopped. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setvbuf(stdout, NULL, _IOLBF, 0);
	seed_run(seed);
	fflush(stdout);
	exit(0);
}

static unsigned
job_end(struct job *j, int status)
{
	char name[NAME_SIZE - 64];
	bool bad = status != 0;

	if (options.keep && (bad || options.images_only)) {
		folder_name(name, j->seed, j->pid);
		printf("  kept: %s\n", name);
	} else {
		folder_remove(j->seed, j->pid);
	}
	if (WIFSIGNALED(status))
		printf("  seed %llu: %s%s\n", (unsigned long long)j->seed,
		    strsignal(WTERMSIG(status)),
		    now() - j->began >= SEED_SECONDS ? ", it hung" : "");
	if (bad)
		printf("FAIL seed %llu; again: qcow2_model --seed %llu%s%s%s "
		    "--delay %u --keep --verbose\n",
		    (unsigned long long)j->seed, (unsigned long long)j->seed,
		    options.lengthy ? " --long" : "", options.large ?
		    " --large" : "", options.raw ? " --raw" : "",
		    options.delay);
	fflush(stdout);
	j->pid = 0;
	return bad;
}

/* Ends one job that has ended or hung; how many failed. */
static unsigned
jobs_wait(struct job *jobs)
{
	int status, i;
	pid_t pid;

	for (;;) {
		pid = waitpid(-1, &status, WNOHANG);
		for (i = 0; i < MAX_JOBS; i++) {
			if (jobs[i].pid == 0)
				continue;
			if (pid > 0 && jobs[i].pid == pid)
				return job_end(&jobs[i], status);
			if (now() - jobs[i].began >= SEED_SECONDS)
				kill(jobs[i].pid, SIGABRT);
		}
		if (pid <= 0)
			usleep(2000);
	}
}

static bool
more(uint64_t seed, time_t began)
{
	if (options.seconds > 0)
		return now() - began < (time_t)options.seconds;
	return seed <= options.last;
}

static int
run_all(void)
{
	struct job jobs[MAX_JOBS] = { { .pid = 0 } };
	uint64_t seed = options.first;
	unsigned nr_failed = 0, nr_running = 0, i;
	time_t began = now();

	while (more(seed, began) || nr_running > 0) {
		for (i = 0; i < options.jobs && more(seed, began); i++) {
			if (jobs[i].pid != 0)
				continue;
			job_start(&jobs[i], seed++);
			nr_running++;
		}
		nr_failed += jobs_wait(jobs);
		nr_running--;
	}
	if (nr_failed == 0)
		printf("ok qcow2 model, seeds %llu..%llu: %llu reads, %llu "
		    "writes, %llu flushes, %llu discards\n",
		    (unsigned long long)options.first,
		    (unsigned long long)seed - 1,
		    (unsigned long long)totals[IO_READ],
		    (unsigned long long)totals[IO_WRITE],
		    (unsigned long long)totals[IO_FLUSH],
		    (unsigned long long)totals[IO_DISCARD]);
	else
		printf("%u of %llu seeds failed\n", nr_failed,
		    (unsigned long long)(seed - options.first));
	return nr_failed > 0;
}

static void
usage(void)
{
	fprintf(stderr, "usage: qcow2_model [--seed N | --seeds A..B] "
	    "[--seconds S] [--jobs N] [--long] [--large] [--delay US] "
	    "[--raw] [--images-only] [--keep] [--verbose]\n");
	exit(2);
}

static void
parse_seeds(const char *text)
{
	unsigned long long first, last;
	char rest;

	if (sscanf(text, "%llu..%llu%c", &first, &last, &rest) != 2) {
		if (sscanf(text, "%llu%c", &first, &rest) != 1)
			usage();
		last = first;
	}
	if (last < first)
		usage();
	options.first = first;
	options.last = last;
}

static void
parse_options(int argc, char **argv)
{
	static const struct option names[] = {
		{ "seed", required_argument, NULL, 's' },
		{ "seeds", required_argument, NULL, 's' },
		{ "seconds", required_argument, NULL, 't' },
		{ "jobs", required_argument, NULL, 'j' },
		{ "delay", required_argument, NULL, 'd' },
		{ "long", no_argument, NULL, 'l' },
		{ "large", no_argument, NULL, 'L' },
		{ "raw", no_argument, NULL, 'r' },
		{ "images-only", no_argument, NULL, 'i' },
		{ "keep", no_argument, NULL, 'k' },
		{ "verbose", no_argument, NULL, 'v' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "", names, NULL)) != -1) {
		switch (c) {
		case 's':
			parse_seeds(optarg);
			break;
		case 't':
			options.seconds = (unsigned)atoi(optarg);
			break;
		case 'j':
			options.jobs = (unsigned)atoi(optarg);
			break;
		case 'd':
			options.delay = (unsigned)atoi(optarg);
			break;
		case 'l':
			options.lengthy = true;
			break;
		case 'L':
			options.large = true;
			break;
		case 'r':
			options.raw = true;
			break;
		case 'i':
			options.images_only = true;
			break;
		case 'k':
			options.keep = true;
			break;
		case 'v':
			options.verbose = true;
			break;
		default:
			usage();
		}
	}
	if (optind != argc || options.jobs < 1 || options.jobs > MAX_JOBS)
		usage();
}

int
main(int argc, char **argv)
{
	parse_options(argc, argv);
	if (!options.raw && driver_find("qcow2") == NULL) {
		printf("skip qcow2 model: no such driver is built\n");
		return 77;
	}
	if (system("qemu-img --version >/dev/null 2>&1 && "
	    "qemu-io --version >/dev/null 2>&1") != 0) {
		printf("skip qcow2 model: needs qemu-img and qemu-io (Debian: "
		    "qemu-utils)\n");
		return 77;
	}
	totals = mmap(NULL, 4 * sizeof(*totals), PROT_READ | PROT_WRITE,
	    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (totals == MAP_FAILED) {
		printf("FAIL mmap: %s\n", strerror(errno));
		return 1;
	}
	return run_all();
}
