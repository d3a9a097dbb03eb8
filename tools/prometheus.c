/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * prometheus: the counters of all disks in the text format of Prometheus
 * (version 0.0.4), as node_exporter's textfile collector takes it: no time
 * stamps, the samples of one metric together, below its HELP and TYPE.
 */
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "blkback/control.h"
#include "tools/ringback.h"
#include "tools/watch.h"

#define COUNT(a)     (sizeof(a) / sizeof((a)[0]))
#define BUCKET_FIRST 12		/* its end is 8.192 us */
#define BUCKET_LAST  34		/* 34.4 s; what is longer is +Inf's */

/* The disks, with what each sample of theirs begins with. */
struct labels {
	char name[2 * WATCH_NAME_MAX];	/* escaped */
};

struct metrics {
	const struct look_disk *disk;
	const struct labels    *labels;
	size_t                  nr;
};

static const struct counter {
	const char *name, *help;
	size_t      at;			/* in struct page_stats */
} counters[] = {
#define STAT(member) offsetof(struct page_stats, member)
	{ "requests", "Requests answered.", STAT(reqs_answered) },
	{ "ios", "I/Os handed to the driver of the image; requests are merged.",
	  STAT(ios) },
	{ "ios_retried", "I/Os issued alone after a merged one had failed.",
	  STAT(ios_retried) },
	{ "submits", "System calls that submitted I/Os.", STAT(submits) },
	{ "metadata_writes", "Writes for the image format's own sake.",
	  STAT(metadata_writes) },
	{ "rounds", "Rounds of the queues that found something to do.",
	  STAT(rounds) },
	{ "grant_copy_calls", "Grant-copy calls.", STAT(copy_calls) },
	{ "grant_copy_segments", "Segments that they copied.",
	  STAT(copy_segments) },
	{ "grant_map_calls", "Calls that mapped pages to stay mapped.",
	  STAT(map_calls) },
	{ "grant_unmap_calls", "Calls that unmapped such pages.",
	  STAT(unmap_calls) },
	{ "notifications", "Events sent to the guest.", STAT(notifies) },
	{ "events", "Events received from the guest.", STAT(events) },
	{ "sleeps", "Times that a thread went to sleep; each ends in a "
	  "wake-up.", STAT(sleeps) },
	{ "polls", "Times that polling found work.", STAT(polls) },
	{ "connects", "Connections of the guest.", STAT(connects) },
#undef STAT
};

void
prometheus_escape(FILE *to, const char *text)
{
	for (; *text != '\0'; text++) {
		if (*text == '\n')
			fputs("\\n", to);
		else if (*text == '"' || *text == '\\')
			fprintf(to, "\\%c", *text);
		else
			putc(*text, to);
	}
}

static void
head(const char *name, const char *type, const char *help)
{
	printf("# HELP ringback_%s %s\n# TYPE ringback_%s %s\n", name, help,
	    name, type);
}

/* The name and the labels, but for the closing brace. */
static void
begin(const struct metrics *m, size_t i, const char *name)
{
	printf("ringback_%s{domain=\"%s\",domid=\"%u\",vdev=\"%s\"", name,
	    m->labels[i].name, m->disk[i].domid, m->disk[i].vdev);
}

static bool
readable(const struct metrics *m, size_t i)
{
	return m->disk[i].error == 0;
}

static void
print_counters(const struct metrics *m)
{
	const struct counter *c;
	char name[64];
	uint64_t n;
	size_t i;

	for (c = counters; c < counters + COUNT(counters); c++) {
		snprintf(name, sizeof(name), "vbd_%s_total", c->name);
		head(name, "counter", c->help);
		for (i = 0; i < m->nr; i++) {
			if (!readable(m, i))
				continue;
			memcpy(&n, (const char *)&m->disk[i].stats + c->at,
			    sizeof(n));
			begin(m, i, name);
			printf("} %" PRIu64 "\n", n);
		}
	}
}

/* One of the arrays that have an element for each operation. */
static void
print_operations(const struct metrics *m, const char *name, const char *help,
    size_t at)
{
	uint64_t n[PAGE_NR_OPS];
	size_t i, op;

	head(name, "counter", help);
	for (i = 0; i < m->nr; i++) {
		if (!readable(m, i))
			continue;
		memcpy(n, (const char *)&m->disk[i].stats + at, sizeof(n));
		for (op = 0; op < PAGE_NR_OPS; op++) {
			begin(m, i, name);
			printf(",operation=\"%s\"} %" PRIu64 "\n",
			    look_op_names[op], n[op]);
		}
	}
}

static void
print_errors(const struct metrics *m)
{
	static const char name[] = "vbd_errors_total";
	size_t i;

	head(name, "counter", "Requests answered with an error: the guest's "
	    "fault, or that of storage or grants.");
	for (i = 0; i < m->nr; i++) {
		if (!readable(m, i))
			continue;
		begin(m, i, name);
		printf(",cause=\"guest\"} %" PRIu64 "\n",
		    m->disk[i].stats.reqs_rejected);
		begin(m, i, name);
		printf(",cause=\"storage\"} %" PRIu64 "\n",
		    m->disk[i].stats.reqs_failed);
	}
}

/* A page that lies must not make the buckets fall. */
static uint64_t
add(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static void
print_histogram(const struct metrics *m, size_t i, size_t op)
{
	const struct page_stats *s = &m->disk[i].stats;
	uint64_t n = 0;
	size_t k;

	for (k = 0; k < PAGE_WAIT_BUCKETS; k++) {
		n = add(n, s->waits[op][k]);
		if (k < BUCKET_FIRST || k > BUCKET_LAST)
			continue;
		begin(m, i, "vbd_latency_seconds_bucket");
		printf(",operation=\"%s\",le=\"%.12g\"} %" PRIu64 "\n",
		    look_op_names[op],
		    (double)(UINT64_C(2) << k) / 1e9, n);
	}
	begin(m, i, "vbd_latency_seconds_bucket");
	printf(",operation=\"%s\",le=\"+Inf\"} %" PRIu64 "\n",
	    look_op_names[op], n);
	begin(m, i, "vbd_latency_seconds_sum");
	printf(",operation=\"%s\"} %" PRIu64 ".%09" PRIu64 "\n",
	    look_op_names[op], s->wait_ns[op] / 1000000000,
	    s->wait_ns[op] % 1000000000);
	begin(m, i, "vbd_latency_seconds_count");
	printf(",operation=\"%s\"} %" PRIu64 "\n", look_op_names[op], n);
}

static void
print_gauge(const struct metrics *m, const char *name, const char *help,
    uint64_t (*value)(const struct look_disk *d))
{
	size_t i;

	head(name, "gauge", help);
	for (i = 0; i < m->nr; i++) {
		if (!readable(m, i))
			continue;
		begin(m, i, name);
		printf("} %" PRIu64 "\n", value(&m->disk[i]));
	}
}

static uint64_t
inflight_of(const struct look_disk *d)
{
	return d->inflight;
}

static uint64_t
queues_of(const struct look_disk *d)
{
	return d->queues;
}

static uint64_t
failed_of(const struct look_disk *d)
{
	return d->failed;
}

static void
print_processes(const struct metrics *m)
{
	size_t i;

	head("vbd_up", "gauge", "1 if the page file of the disk can be read "
	    "and its process lives.");
	for (i = 0; i < m->nr; i++) {
		begin(m, i, "vbd_up");
		printf("} %d\n", readable(m, i) && m->disk[i].pid != 0);
	}
	head("vbd_cpu_seconds_total", "counter", "CPU time of the process "
	    "that serves the disk.");
	for (i = 0; i < m->nr; i++) {
		if (!readable(m, i) || m->disk[i].pid == 0)
			continue;
		begin(m, i, "vbd_cpu_seconds_total");
		printf("} %" PRIu64 ".%09" PRIu64 "\n",
		    m->disk[i].cpu_ns / 1000000000,
		    m->disk[i].cpu_ns % 1000000000);
	}
}

static void
print_all(const struct metrics *m)
{
	size_t i, op;

	head("build_info", "gauge", "The version of ringback.");
	printf("ringback_build_info{version=\"%s\"} 1\n", RINGBACK_VERSION);
	print_processes(m);
	print_operations(m, "vbd_operations_total", "Operations that ended "
	    "well.", offsetof(struct page_stats, ops));
	print_operations(m, "vbd_bytes_total", "Bytes of these.",
	    offsetof(struct page_stats, bytes));
	print_errors(m);
	print_counters(m);
	head("vbd_latency_seconds", "histogram", "From taking a request off "
	    "the ring to answering it.");
	for (i = 0; i < m->nr; i++)
		for (op = 0; op < PAGE_NR_OPS && readable(m, i); op++)
			print_histogram(m, i, op);
	print_gauge(m, "vbd_in_flight", "Requests taken and not answered.",
	    inflight_of);
	print_gauge(m, "vbd_queues", "Queues in use; 0: not connected.",
	    queues_of);
	print_gauge(m, "vbd_failed", "1 if a flush failed: every later write "
	    "is refused until the disk is attached again.", failed_of);
}

/* False: no memory. */
static bool
make_labels(const struct watch *w, const struct look_disk *d, size_t nr,
    struct labels *labels)
{
	char name[WATCH_NAME_MAX];
	size_t i;
	FILE *f;

	for (i = 0; i < nr; i++) {
		watch_name(w, d[i].domid, name);
		f = fmemopen(labels[i].name, sizeof(labels[i].name), "w");
		if (f == NULL)
			return false;
		prometheus_escape(f, name);
		if (fclose(f) == EOF)
			return false;
	}
	return true;
}

int
prometheus_run(struct watch *w)
{
	struct look_disk *disks;
	struct labels *labels;
	struct metrics m;
	size_t nr, i;
	int rc;

	rc = watch_disks(w, &disks, &nr);
	if (rc != DONE)
		return rc;
	labels = calloc(nr + 1, sizeof(*labels));
	if (labels == NULL || !make_labels(w, disks, nr, labels)) {
		rc = watch_fail(w, "out of memory");
	} else {
		m = (struct metrics){ disks, labels, nr };
		print_all(&m);
	}
	/* The others are still worth having: vbd_up tells. */
	for (i = 0; i < nr && rc == DONE; i++)
		if (disks[i].error != 0)
			fprintf(stderr, "ringback: domain %u, %s: %s\n",
			    disks[i].domid, disks[i].vdev,
			    watch_why(disks[i].error));
	if (rc == DONE && w->vdev != NULL && disks[0].error != 0)
		rc = FAILED;
	free(labels);
	free(disks);
	return rc;
}
