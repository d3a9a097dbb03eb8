/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * report: the result of a job, for a person and in the shape of fio's JSON.
 *
 * The object "backend_calls" is ours: what the backend asked of Xen during the
 * job.  "emulated_calls" is the sum of what would be at least one system call
 * each: copies, maps, unmaps, events sent, taken and unmasked.  "silent_calls"
 * are those of them that are none on loopxen (copies and unmasks): add them to
 * the system calls that the backend was seen to make, and nothing counts twice.
 */
#include <inttypes.h>

#include "tests/loopfront/job.h"

static const double percents[] = { 1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90,
    95, 99, 99.5, 99.9, 99.95, 99.99 };

#define NR_PERCENTS	(sizeof(percents) / sizeof(percents[0]))

static uint64_t
emulated_calls(const struct loopguest_counters *c)
{
	return c->copy_calls + c->map_calls + c->unmap_calls +
	    c->backend_notifies + c->backend_pending + c->backend_unmasks;
}

static uint64_t
silent_calls(const struct loopguest_counters *c)
{
	return c->copy_calls + c->backend_unmasks;
}

static double
per(uint64_t n, uint64_t of)
{
	return of == 0 ? 0 : (double)n / (double)of;
}

static void
json_hist(const char *name, const struct hist *h, const char *end, FILE *f)
{
	unsigned	i;

	fprintf(f, "   \"%s\": {\"min\": %" PRIu64 ", \"max\": %" PRIu64
	    ", \"mean\": %.3f, \"stddev\": %.3f, \"N\": %" PRIu64
	    ", \"percentile\": {", name, h->min, h->max, hist_mean(h),
	    hist_stddev(h), h->n);
	for (i = 0; i < NR_PERCENTS; i++)
		fprintf(f, "%s\"%f\": %" PRIu64, i > 0 ? ", " : "",
		    percents[i], hist_percentile(h, percents[i]));
	fprintf(f, "}}%s\n", end);
}

static void
json_dir(const char *name, const struct job_count *c, uint64_t ns,
    const char *end, FILE *f)
{
	double	seconds = (double)ns / 1e9;
	double	bw = seconds > 0 ? (double)c->bytes / seconds : 0;

	fprintf(f, "  \"%s\": {\n   \"io_bytes\": %" PRIu64 ", \"io_kbytes\": %"
	    PRIu64 ", \"bw_bytes\": %.0f, \"bw\": %.0f, \"iops\": %.3f,\n"
	    "   \"runtime\": %.0f, \"total_ios\": %" PRIu64 ",\n", name,
	    c->bytes, c->bytes / 1024, bw, bw / 1024,
	    seconds > 0 ? (double)c->ios / seconds : 0, seconds * 1e3, c->ios);
	json_hist("slat_ns", &c->slat, ",", f);
	json_hist("clat_ns", &c->clat, ",", f);
	json_hist("lat_ns", &c->lat, "", f);
	fprintf(f, "  }%s\n", end);
}

static void
json_calls(const struct job_result *r, FILE *f)
{
	const struct loopguest_counters	*c = &r->calls;
	uint64_t			 n = r->requests;

	fprintf(f, " \"backend_calls\": {\n"
	    "  \"requests\": %" PRIu64 ", \"copy_calls\": %" PRIu64
	    ", \"copy_segments\": %" PRIu64 ", \"copy_bytes\": %" PRIu64
	    ", \"copy_errors\": %" PRIu64 ",\n"
	    "  \"maps\": %" PRIu64 ", \"mapped_pages\": %" PRIu64
	    ", \"unmaps\": %" PRIu64 ",\n"
	    "  \"notifies\": %" PRIu64 ", \"events\": %" PRIu64
	    ", \"unmasks\": %" PRIu64 ", \"frontend_notifies\": %" PRIu64
	    ",\n  \"emulated_calls\": %" PRIu64 ", \"silent_calls\": %" PRIu64
	    ",\n",
	    n, c->copy_calls, c->copy_segments, c->copy_bytes,
	    c->copy_errors, c->map_calls, c->mapped_pages, c->unmap_calls,
	    c->backend_notifies, c->backend_pending, c->backend_unmasks,
	    r->notifies, emulated_calls(c), silent_calls(c));
	fprintf(f, "  \"per_request\": {\"copy_calls\": %.5f, "
	    "\"copy_segments\": %.5f, \"maps\": %.5f, \"notifies\": %.5f, "
	    "\"events\": %.5f, \"emulated_calls\": %.5f}\n }\n",
	    per(c->copy_calls, n), per(c->copy_segments, n),
	    per(c->map_calls, n), per(c->backend_notifies, n),
	    per(c->backend_pending, n), per(emulated_calls(c), n));
}

void
job_report_json(const struct vbd *v, const struct options *o,
    const struct job_result *r, FILE *f)
{
	fprintf(f, "{\n \"loopfront version\": \"1\",\n \"jobs\": [{\n"
	    "  \"jobname\": \"%s\", \"error\": %d, \"elapsed\": %.0f,\n"
	    "  \"job options\": {\"bs\": \"%" PRIu64 "\", \"iodepth\": \"%u\", "
	    "\"batch\": \"%u\", \"abi\": \"%s\", \"ring_order\": \"%u\", "
	    "\"queues\": \"%u\"},\n"
	    "  \"failed_ios\": %" PRIu64 ", \"unsupported_ios\": %" PRIu64
	    ", \"unanswered_requests\": %" PRIu64
	    ", \"verified_sectors\": %" PRIu64 ", \"cpu_ns\": %" PRIu64 ",\n",
	    v->name, -r->error, (double)r->ns / 1e9, o->bs, o->depth, o->batch,
	    front_abi_name(v->queues[0].opt.abi), v->queues[0].opt.order,
	    v->nr_queues, r->failed, r->unsupported, r->unanswered,
	    r->verified, r->cpu_ns);
	json_dir("read", &r->dir[DIR_READ], r->ns, ",", f);
	json_dir("write", &r->dir[DIR_WRITE], r->ns, ",", f);
	json_dir("trim", &r->dir[DIR_TRIM], r->ns, ",", f);
	json_dir("sync", &r->dir[DIR_FLUSH], r->ns, "", f);
	fprintf(f, " }],\n");
	json_calls(r, f);
	fprintf(f, "}\n");
}

static void
text_dir(const char *name, const struct job_count *c, uint64_t ns, FILE *f)
{
	double	seconds = (double)ns / 1e9;

	if (c->ios == 0)
		return;
	fprintf(f, "%-6s %8" PRIu64 " I/Os %10.0f/s %9.1f MB/s   latency us: "
	    "mean %.1f p50 %.1f p99 %.1f max %.1f\n", name, c->ios,
	    (double)c->ios / seconds, (double)c->bytes / seconds / 1e6,
	    hist_mean(&c->lat) / 1e3,
	    (double)hist_percentile(&c->lat, 50) / 1e3,
	    (double)hist_percentile(&c->lat, 99) / 1e3,
	    (double)c->lat.max / 1e3);
}

void
job_report_text(const struct vbd *v, const struct options *o,
    const struct job_result *r, FILE *f)
{
	const struct loopguest_counters	*c = &r->calls;

	(void)v;
	text_dir("read", &r->dir[DIR_READ], r->ns, f);
	text_dir("write", &r->dir[DIR_WRITE], r->ns, f);
	text_dir("flush", &r->dir[DIR_FLUSH], r->ns, f);
	text_dir("trim", &r->dir[DIR_TRIM], r->ns, f);
	text_dir("other", &r->dir[DIR_OTHER], r->ns, f);
	if (r->failed > 0 || r->unsupported > 0)
		fprintf(f, "ended with ERROR: %" PRIu64
		    ", with EOPNOTSUPP: %" PRIu64 "\n", r->failed,
		    r->unsupported);
	if (o->verify && r->dir[DIR_READ].ios > 0)
		fprintf(f, "verified %" PRIu64 " sectors\n", r->verified);
	fprintf(f, "ring   %8" PRIu64 " requests; of the backend per request: "
	    "copy calls %.3f notifies %.3f calls %.3f\n", r->requests,
	    per(c->copy_calls, r->requests),
	    per(c->backend_notifies, r->requests),
	    per(emulated_calls(c), r->requests));
}
