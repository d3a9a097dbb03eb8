/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * bench: what a disk can do, measured without Xen.
 *
 * An image may have been written by a guest, so this does as a disk process
 * does: open it and start the threads, give up every privilege, and only then
 * follow what the image says.  The load itself is in load.c; here are the jobs
 * (a table of presets and a table of options that change them) and the answer,
 * which has the shape of fio's.
 *
 * An image is opened read-only, unless a job writes; and that has to be said.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "blkback/control.h"
#include "blkback/spec.h"
#include "drivers/driver.h"
#include "tools/load.h"
#include "tools/ringback.h"

#define COUNT(a)    (sizeof(a) / sizeof((a)[0]))
#define DEPTH_MAX   1024u
#define THREADS_MAX 64u
#define BLOCK_MAX   (UINT64_C(64) << 20)	/* bytes */
#define MEMORY_MAX  (UINT64_C(4) << 30)	/* bytes, of all buffers */
#define SECONDS_MAX 86400.0
#define JOBS_MAX    16u		/* presets */

#define NS(seconds) ((uint64_t)((seconds) * 1e9))
#define JOB(a_name, a_rw, reads, a_block, a_depth, a_threads) \
	.name = (a_name), .rw = (a_rw), .read_percent = (reads), \
	.block = (a_block), .depth = (a_depth), .threads = (a_threads), \
	.ns = NS(10), .seed = 1

static const struct load_job plain = {
	JOB("bench", LOAD_RANDREAD, 50, 4096, 1, 1),
};

/* The jobs that storage for virtual machines is commonly measured with. */
static const struct load_job presets[] = {
	{ JOB("4k-qd1", LOAD_RANDREAD, 50, 4096, 1, 1) },
	{ JOB("4k-flush", LOAD_RANDWRITE, 50, 4096, 1, 1), .flush = true },
	{ JOB("4k-qd32x8", LOAD_RANDREAD, 50, 4096, 32, 8) },
	{ JOB("mixed", LOAD_RANDRW, 70, 4096, 16, 8) },
	{ JOB("seq", LOAD_READ, 50, 1 << 20, 8, 2) },
	{ JOB("4k-qd256", LOAD_RANDREAD, 50, 4096, 256, 1) },
	{ JOB("1m-qd64x16", LOAD_READ, 50, 1 << 20, 64, 16) },
};

_Static_assert(COUNT(presets) <= JOBS_MAX, "room for all of them");

static const char *const rw_names[] = {
	[LOAD_RANDREAD] = "randread", [LOAD_RANDWRITE] = "randwrite",
	[LOAD_READ] = "read", [LOAD_WRITE] = "write", [LOAD_RANDRW] = "randrw",
};

/* What the command line asks for. */
struct bench {
	const char      *spec_text;
	struct disk_spec spec;
	struct load_job  jobs[JOBS_MAX];
	size_t           nr_jobs;
	bool             may_write;
};

/* ---- options ----------------------------------------------------------- */

bool
parse_number(const char *text, bool suffix, uint64_t min, uint64_t max,
    uint64_t *n)
{
	static const char units[] = "KMGT";
	const char *unit;
	unsigned shift = 0;
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	*n = strtoull(text, &end, 10);
	if (errno != 0)
		return false;
	if (suffix && *end != '\0') {
		unit = strchr(units, *end & ~0x20);
		if (unit == NULL || *unit == '\0')
			return false;
		shift = 10 * (unsigned)(unit - units + 1);
		end++;
	}
	if (*end != '\0' || *n > UINT64_MAX >> shift)
		return false;
	*n <<= shift;
	return *n >= min && *n <= max;
}

bool
parse_seconds(const char *text, double min, double max, double *seconds)
{
	char *end;

	if (*text < '0' || *text > '9' || strpbrk(text, "xX") != NULL)
		return false;
	*seconds = strtod(text, &end);
	return *end == '\0' && *seconds >= min && *seconds <= max;
}

static bool
set_rw(struct load_job *job, const char *text)
{
	size_t i;

	for (i = 0; i < COUNT(rw_names); i++)
		if (strcmp(text, rw_names[i]) == 0) {
			job->rw = (enum load_rw)i;
			return true;
		}
	return false;
}

static bool
set_rwmixread(struct load_job *job, const char *text)
{
	uint64_t n;

	if (!parse_number(text, false, 0, 100, &n))
		return false;
	job->read_percent = (unsigned)n;
	return true;
}

static bool
set_bs(struct load_job *job, const char *text)
{
	return parse_number(text, true, 512, BLOCK_MAX, &job->block) &&
	    job->block % 512 == 0;
}

static bool
set_depth(struct load_job *job, const char *text)
{
	uint64_t n;

	if (!parse_number(text, false, 1, DEPTH_MAX, &n))
		return false;
	job->depth = (unsigned)n;
	return true;
}

static bool
set_jobs(struct load_job *job, const char *text)
{
	uint64_t n;

	if (!parse_number(text, false, 1, THREADS_MAX, &n))
		return false;
	job->threads = (unsigned)n;
	return true;
}

static bool
set_time(struct load_job *job, const char *text)
{
	double seconds;

	if (!parse_seconds(text, 0.01, SECONDS_MAX, &seconds))
		return false;
	job->ns = NS(seconds);
	return true;
}

static bool
set_size(struct load_job *job, const char *text)
{
	return parse_number(text, true, 512, INT64_MAX, &job->range);
}

static bool
set_seed(struct load_job *job, const char *text)
{
	return parse_number(text, false, 0, UINT64_MAX, &job->seed);
}

static bool
set_flush(struct load_job *job, const char *text)
{
	(void)text;
	job->flush = true;
	return true;
}

static bool
set_verify(struct load_job *job, const char *text)
{
	(void)text;
	job->verify = true;
	return true;
}

/* What changes a job, and what may be given. */
static const struct {
	const char *name, *use;
	bool      (*set)(struct load_job *job, const char *text);
} settings[BENCH_NR] = {
	[BENCH_RW] = { "rw", "randread, randwrite, read, write or randrw",
	    set_rw },
	[BENCH_RWMIXREAD] = { "rwmixread", "0 to 100 (percent of reads)",
	    set_rwmixread },
	[BENCH_BS] = { "bs", "512 to 64M, a multiple of 512 bytes", set_bs },
	[BENCH_DEPTH] = { "depth", "1 to 1024", set_depth },
	[BENCH_JOBS] = { "jobs", "1 to 64", set_jobs },
	[BENCH_TIME] = { "time", "0.01 to 86400 (seconds)", set_time },
	[BENCH_SIZE] = { "size", "bytes, 512 or more (K, M, G or T may follow)",
	    set_size },
	[BENCH_SEED] = { "seed", "a number", set_seed },
	[BENCH_FLUSH] = { "flush", "", set_flush },
	[BENCH_VERIFY] = { "verify", "", set_verify },
};

static int
choose_preset(struct bench *b, const char *name, char why[WHY_MAX])
{
	size_t i, used;

	b->nr_jobs = 0;
	for (i = 0; i < COUNT(presets); i++)
		if (strcmp(name, "all") == 0 ||
		    strcmp(name, presets[i].name) == 0)
			b->jobs[b->nr_jobs++] = presets[i];
	if (b->nr_jobs > 0)
		return DONE;
	why_set(why, "--preset %.64s is not known: there are all", name);
	for (i = 0; i < COUNT(presets); i++) {
		used = strlen(why);
		snprintf(why + used, WHY_MAX - used, ", %s", presets[i].name);
	}
	return MISUSED;
}

/* Options that only go together. */
static int
check_job(const struct bench *b, const struct load_job *job,
    const char *const value[BENCH_NR], char why[WHY_MAX])
{
	if (value[BENCH_RWMIXREAD] != NULL && job->rw != LOAD_RANDRW)
		why_set(why, "%s: --rwmixread is for --rw randrw", job->name);
	else if (job->flush && !load_writes(job))
		why_set(why, "%s: --flush is for a load that writes, and --rw "
		    "%s does not", job->name, rw_names[job->rw]);
	else if (job->verify && !load_writes(job))
		why_set(why, "%s: --verify is for a load that writes, and --rw "
		    "%s does not", job->name, rw_names[job->rw]);
	else if (job->block > MEMORY_MAX / job->depth / job->threads)
		why_set(why, "%s: --bs, --depth and --jobs ask for more than 4 "
		    "GiB of memory: lower them", job->name);
	else if (load_writes(job) && b->spec.readonly)
		why_set(why, "%.200s: %s writes, and the disk is readonly=on: "
		    "leave that out, or use --rw randread or read",
		    b->spec_text, job->name);
	else if (load_writes(job) && !b->may_write)
		why_set(why, "%.200s: %s (--rw %s) would overwrite what is on "
		    "the disk: say --write if none of that is needed, or use "
		    "--rw randread or read", b->spec_text, job->name,
		    rw_names[job->rw]);
	else
		return DONE;
	return MISUSED;
}

static int
parse(struct bench *b, const char *spec, const char *const value[BENCH_NR],
    char why[WHY_MAX])
{
	int rc = DONE;
	size_t i, k;

	b->spec_text = spec;
	b->may_write = value[BENCH_WRITE] != NULL;
	b->jobs[0] = plain;
	b->nr_jobs = 1;
	if (spec_parse(spec, &b->spec, why) < 0)
		return MISUSED;
	if (value[BENCH_PRESET] != NULL)
		rc = choose_preset(b, value[BENCH_PRESET], why);
	for (i = 0; rc == DONE && i < b->nr_jobs; i++) {
		for (k = 0; k < BENCH_NR; k++) {
			if (value[k] == NULL || settings[k].set == NULL ||
			    settings[k].set(&b->jobs[i], value[k]))
				continue;
			why_set(why, "--%s %.64s: give %s", settings[k].name,
			    value[k], settings[k].use);
			return MISUSED;
		}
		rc = check_job(b, &b->jobs[i], value, why);
	}
	return rc;
}

/* ---- the answer -------------------------------------------------------- */

static json_t *
latency_new(const struct hist *h)
{
	static const double percents[] = { 1, 5, 10, 20, 30, 40, 50, 60, 70, 80,
	    90, 95, 99, 99.5, 99.9, 99.95, 99.99 };
	json_t *p = json_object();
	char key[32];
	size_t i;

	for (i = 0; i < COUNT(percents); i++) {
		snprintf(key, sizeof(key), "%f", percents[i]);
		json_object_set_new(p, key, json_integer((json_int_t)
		    hist_percentile(h, percents[i])));
	}
	return json_pack("{s:I, s:I, s:f, s:f, s:I, s:o}",
	    "min", (json_int_t)h->min, "max", (json_int_t)h->max,
	    "mean", hist_mean(h), "stddev", hist_stddev(h),
	    "N", (json_int_t)h->n, "percentile", p);
}

static json_t *
count_new(const struct load_count *c, uint64_t ns)
{
	double seconds = (double)ns / 1e9, bytes = 0, ios = 0;

	if (ns > 0) {
		bytes = (double)c->bytes / seconds;
		ios = (double)c->ios / seconds;
	}
	return json_pack("{s:I, s:I, s:I, s:I, s:f, s:I, s:I, s:o}",
	    "io_bytes", (json_int_t)c->bytes,
	    "io_kbytes", (json_int_t)(c->bytes / 1024),
	    "bw_bytes", (json_int_t)bytes, "bw", (json_int_t)(bytes / 1024),
	    "iops", ios, "runtime", (json_int_t)(ns / 1000000),
	    "total_ios", (json_int_t)c->ios,
	    "lat_ns", latency_new(&c->latency));
}

/* fio has its options as words, whatever they are. */
static void
set_word(json_t *o, const char *key, uint64_t n)
{
	char text[32];

	snprintf(text, sizeof(text), "%" PRIu64, n);
	json_object_set_new(o, key, json_string(text));
}

static json_t *
options_new(const struct load_job *job, uint64_t range)
{
	json_t *o = json_pack("{s:s}", "rw", rw_names[job->rw]);

	set_word(o, "bs", job->block);
	set_word(o, "iodepth", job->depth);
	set_word(o, "numjobs", job->threads);
	set_word(o, "size", range);
	set_word(o, "randseed", job->seed);
	if (job->rw == LOAD_RANDRW)
		set_word(o, "rwmixread", job->read_percent);
	if (job->flush)
		set_word(o, "fsync", 1);
	if (job->verify)
		set_word(o, "verify", 1);
	return o;
}

static json_t *
job_new(const struct load_job *job, uint64_t range, int error,
    const struct load_result *r)
{
	double ios = (double)(r->read.ios + r->write.ios);

	if (ios < 1)
		ios = 1;
	return json_pack("{s:s, s:i, s:o, s:o, s:o, s:o, s:I, s:f, s:I, s:f,"
	    " s:I}", "jobname", job->name, "error", -error,
	    "job options", options_new(job, range),
	    "read", count_new(&r->read, r->ns),
	    "write", count_new(&r->write, r->ns),
	    "sync", count_new(&r->flush, r->ns),
	    "submits", (json_int_t)r->submits,
	    "submits_per_io", (double)r->submits / ios,
	    "metadata_writes", (json_int_t)r->metadata_writes,
	    "metadata_writes_per_io", (double)r->metadata_writes / ios,
	    "verified_blocks", (json_int_t)r->verified);
}

/* Options of the spec that concern a guest, or a whole queue of requests. */
static json_t *
unused_new(const struct disk_spec *spec)
{
	struct disk_spec usual;
	json_t *a = json_array();
	char why[WHY_MAX];

	if (spec_parse("null:1M", &usual, why) < 0)
		return a;
	if (spec->memory / spec->queues < usual.merge)
		usual.merge = spec->merge;	/* it had to give way */
	if (spec->merge != usual.merge)
		json_array_append_new(a, json_string("merge"));
	if (spec->memory != usual.memory)
		json_array_append_new(a, json_string("memory"));
	if (spec->queues != usual.queues)
		json_array_append_new(a, json_string("queues"));
	if (spec->iothreads != usual.iothreads)
		json_array_append_new(a, json_string("iothreads"));
	if (spec->ring_order != usual.ring_order)
		json_array_append_new(a, json_string("ring-order"));
	if (spec->on_error != usual.on_error)
		json_array_append_new(a, json_string("on-error"));
	return a;
}

/* ---- the run ----------------------------------------------------------- */

static void
on_signal(int number)
{
	(void)number;
	load_interrupt();
}

/* The first one ends the load in order, the next one the process. */
static int
catch_signals(char why[WHY_MAX])
{
	struct sigaction sa = {
		.sa_handler = on_signal, .sa_flags = SA_RESETHAND,
	};

	sigemptyset(&sa.sa_mask);
	if (sigaction(SIGINT, &sa, NULL) == 0 &&
	    sigaction(SIGTERM, &sa, NULL) == 0)
		return DONE;
	why_set(why, "catch signals: %s", strerror(errno));
	return FAILED;
}

static int
run_job(struct load *l, const struct load_job *job, json_t *jobs,
    char why[WHY_MAX])
{
	struct load_result *r = calloc(1, sizeof(*r));
	uint64_t range;
	int rc;

	if (r == NULL) {
		why_set(why, "out of memory");
		return FAILED;
	}
	rc = load_fits(l, job, &range, why);
	if (rc == 0)
		rc = load_run(l, job, r, why);
	json_array_append_new(jobs, job_new(job, range, rc, r));
	free(r);
	return rc == 0 ? DONE : FAILED;
}

/* With the image open and few privileges left. */
static int
run_jobs(const struct bench *b, struct load *l, json_t *jobs,
    char why[WHY_MAX])
{
	uint64_t range;
	int rc = DONE;
	size_t i;

	if (load_activate(l, why) < 0)
		return FAILED;
	for (i = 0; i < b->nr_jobs; i++)
		if (load_fits(l, &b->jobs[i], &range, why) < 0)
			return MISUSED;
	for (i = 0; rc == DONE && i < b->nr_jobs; i++)
		rc = run_job(l, &b->jobs[i], jobs, why);
	return rc;
}

static int
run(const struct bench *b, json_t *jobs, char why[WHY_MAX])
{
	struct image_options opt = {
		.format = b->spec.format, .path = b->spec.path,
		.readonly = true, .discard = b->spec.discard,
		.cache = b->spec.cache, .engine = b->spec.engine,
	};
	char close_why[WHY_MAX];
	struct load *l;
	size_t i;
	int rc;

	for (i = 0; i < b->nr_jobs; i++)
		if (load_writes(&b->jobs[i]))
			opt.readonly = false;
	if (catch_signals(why) != DONE)
		return FAILED;
	if (load_open(&opt, b->spec_text, b->spec.poll_us, b->jobs, b->nr_jobs,
	    &l, why) < 0)
		return FAILED;
	rc = inspect_confine(why) < 0 ? FAILED : run_jobs(b, l, jobs, why);
	if (load_close(l, close_why) < 0 && rc == DONE) {
		memcpy(why, close_why, WHY_MAX);
		rc = FAILED;
	}
	return rc;
}

int
bench_run(const char *spec, const char *const value[BENCH_NR],
    json_t **answer)
{
	struct bench *b = calloc(1, sizeof(*b));
	json_t *jobs = json_array();
	char why[WHY_MAX];
	int status;

	*answer = NULL;
	if (b == NULL || jobs == NULL) {
		json_decref(jobs);
		free(b);
		return FAILED;
	}
	status = parse(b, spec, value, why);
	if (status == DONE)
		status = run(b, jobs, why);
	if (status == MISUSED)
		*answer = json_pack("{s:b, s:o*}", "ok", 0, "error",
		    inspect_text(why));
	else
		*answer = json_pack("{s:b, s:o*, s:s, s:o*, s:o, s:O}", "ok",
		    status == DONE, "error",
		    status == DONE ? NULL : inspect_text(why),
		    "ringback version", RINGBACK_VERSION,
		    "disk", inspect_text(spec), "unused", unused_new(&b->spec),
		    "jobs", jobs);
	json_decref(jobs);
	free(b);
	return status;
}

/* ---- for a person ------------------------------------------------------ */

static double
number_at(const json_t *o, const char *key)
{
	return json_number_value(json_object_get(o, key));
}

static void
show_count(const json_t *job, const char *name)
{
	const json_t *c = json_object_get(job, name);
	const json_t *lat = json_object_get(c, "lat_ns");
	const json_t *p = json_object_get(lat, "percentile");

	if (number_at(c, "total_ios") < 1)
		return;
	printf("  %-6s %10.0f I/Os %9.0f/s %9.1f MB/s   us: mean %.1f "
	    "p50 %.1f p99 %.1f p99.9 %.1f max %.1f\n",
	    strcmp(name, "sync") == 0 ? "flush" : name,
	    number_at(c, "total_ios"), number_at(c, "iops"),
	    number_at(c, "bw_bytes") / 1e6, number_at(lat, "mean") / 1e3,
	    number_at(p, "50.000000") / 1e3, number_at(p, "99.000000") / 1e3,
	    number_at(p, "99.900000") / 1e3, number_at(lat, "max") / 1e3);
}

static void
show_job(const json_t *job)
{
	const json_t *o = json_object_get(job, "job options");
	const char *bs = json_string_value(json_object_get(o, "bs"));
	char block[32];

	format_bytes(strtoull(bs, NULL, 10), block, sizeof(block));
	printf("%s: %s, %s, depth %s, jobs %s\n",
	    json_string_value(json_object_get(job, "jobname")),
	    json_string_value(json_object_get(o, "rw")), block,
	    json_string_value(json_object_get(o, "iodepth")),
	    json_string_value(json_object_get(o, "numjobs")));
	show_count(job, "read");
	show_count(job, "write");
	show_count(job, "sync");
	printf("  per I/O: %.3f calls to submit, %.3f metadata writes\n",
	    number_at(job, "submits_per_io"),
	    number_at(job, "metadata_writes_per_io"));
	if (json_object_get(o, "verify") != NULL)
		printf("  %.0f blocks are as they were written\n",
		    number_at(job, "verified_blocks"));
}

void
bench_show(const json_t *answer)
{
	const json_t *all = json_object_get(answer, "unused"), *one;
	size_t i;

	json_array_foreach(all, i, one) {
		printf("%s= is of a guest's queue: it changes nothing here\n",
		    json_string_value(one));
	}
	json_array_foreach(json_object_get(answer, "jobs"), i, one) {
		show_job(one);
	}
}

void
bench_help(FILE *to)
{
	size_t i;

	fprintf(to,
	    "\n"
	    "Of bench, which changes nothing on the disk without --write:\n"
	    "  --preset NAME  one of these jobs, or all of them in turn:\n"
	    "                ");
	for (i = 0; i < COUNT(presets); i++)
		fprintf(to, " %s", presets[i].name);
	fprintf(to,
	    "\n"
	    "  --rw KIND      randread, randwrite, read, write or randrw\n"
	    "  --rwmixread N  percent of reads of randrw (50)\n"
	    "  --bs SIZE      bytes of one I/O (4K)\n"
	    "  --depth N      I/Os in flight of each job (1)\n"
	    "  --jobs N       threads, each on its own part of the disk (1)\n"
	    "  --time S       seconds (10)\n"
	    "  --size SIZE    use the first so many bytes of the disk only\n"
	    "  --seed N       of all that is random (1)\n"
	    "  --flush        flush after each write\n"
	    "  --verify       read back and compare what was written\n"
	    "  --write        what is on the disk may be overwritten\n");
}
