/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * top: what all disks do, sample by sample.
 *
 * A sample reads the counters of each page file, some kilobytes; two of them
 * make a table.  A disk that cannot be compared with the sample before (it is
 * new, or its counters went back) is shown without rates, once.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "tools/ringback.h"
#include "tools/watch.h"

#define NAME_WIDTH 16

struct row {
	const struct look_disk *disk;
	struct top_rates        rates;
	double                  key;	/* to sort by; the largest first */
};

/* ---- what happened ------------------------------------------------------- */

/* Counters only grow, unless they are others. */
static bool
is_later(const struct look_disk *before, const struct look_disk *now)
{
	size_t i;

	if (before->error != 0 || now->error != 0 ||
	    before->instance != now->instance)
		return false;
	for (i = 0; i < PAGE_NR_OPS; i++)
		if (now->stats.ops[i] < before->stats.ops[i] ||
		    now->stats.bytes[i] < before->stats.bytes[i] ||
		    now->stats.wait_ns[i] < before->stats.wait_ns[i])
			return false;
	return true;
}

/*
 * The longest wait of one operation.  A new record is known exactly; else it is
 * below the end of the last bucket that has grown, and no record.
 */
static double
longest(const struct page_stats *before, const struct page_stats *now,
    size_t op)
{
	double record = (double)now->wait_max_ns[op], end;
	size_t i = PAGE_WAIT_BUCKETS;

	while (i > 0 && now->waits[op][i - 1] == before->waits[op][i - 1])
		i--;
	if (i == 0)
		return 0;
	if (now->wait_max_ns[op] > before->wait_max_ns[op])
		return record;
	end = 2 * (double)(UINT64_C(1) << (i - 1));
	return end < record ? end : record;
}

void
top_rates(const struct look_disk *before, const struct look_disk *now,
    double seconds, struct top_rates *r)
{
	const struct page_stats *b = &before->stats, *n = &now->stats;
	double ops = 0, wait = 0, max;
	size_t i;

	*r = (struct top_rates){ .cpu = -1 };
	if (!is_later(before, now) || seconds <= 0)
		return;
	r->known = true;
	for (i = 0; i < PAGE_NR_OPS; i++) {
		ops += (double)(n->ops[i] - b->ops[i]);
		wait += (double)(n->wait_ns[i] - b->wait_ns[i]);
		max = longest(b, n, i);
		if (max > r->max_ns)
			r->max_ns = max;
	}
	for (i = 0; i < 2; i++) {
		r->ops[i] = (double)(n->ops[PAGE_READ + i] -
		    b->ops[PAGE_READ + i]) / seconds;
		r->bytes[i] = (double)(n->bytes[PAGE_READ + i] -
		    b->bytes[PAGE_READ + i]) / seconds;
	}
	if (ops > 0)
		r->mean_ns = wait / ops;
	if (now->pid != 0 && now->pid == before->pid &&
	    now->started == before->started && now->cpu_ns >= before->cpu_ns)
		r->cpu = (double)(now->cpu_ns - before->cpu_ns) / 1e9 /
		    seconds;
}

static double
key_of(const struct row *row, enum watch_sort sort)
{
	const struct top_rates *r = &row->rates;

	switch (sort) {
	case SORT_IOPS:
		return r->ops[0] + r->ops[1];
	case SORT_MB:
		return r->bytes[0] + r->bytes[1];
	case SORT_LATENCY:
		return r->mean_ns;
	case SORT_INFLIGHT:
		return (double)row->disk->inflight;
	case SORT_ERRORS:
		return (double)row->disk->stats.reqs_failed +
		    (double)row->disk->stats.reqs_rejected;
	case SORT_CPU:
		return r->cpu;
	default:
		return 0;
	}
}

/* Equal ones stay in their order: they lie in one array. */
static int
by_key(const void *a, const void *b)
{
	const struct row *x = a, *y = b;

	if (x->key != y->key)
		return x->key > y->key ? -1 : 1;
	return x->disk < y->disk ? -1 : x->disk > y->disk;
}

static const struct look_disk *
find_disk(const struct look_disk *list, size_t nr, const struct look_disk *d)
{
	size_t i;

	for (i = 0; i < nr; i++)
		if (list[i].domid == d->domid && list[i].devid == d->devid)
			return &list[i];
	return NULL;
}

/* One row per disk of 'now'; to be freed.  NULL: no memory. */
static struct row *
make_rows(const struct watch *w, const struct look_disk *before,
    size_t nr_before, const struct look_disk *now, size_t nr, double seconds)
{
	static const struct look_disk none = { .error = -ENOENT };
	struct row *rows = calloc(nr + 1, sizeof(*rows));
	const struct look_disk *old;
	size_t i;

	if (rows == NULL)
		return NULL;
	for (i = 0; i < nr; i++) {
		old = find_disk(before, nr_before, &now[i]);
		rows[i].disk = &now[i];
		top_rates(old != NULL ? old : &none, &now[i], seconds,
		    &rows[i].rates);
		rows[i].key = key_of(&rows[i], w->sort);
	}
	if (nr > 0)
		qsort(rows, nr, sizeof(*rows), by_key);
	return rows;
}

/* ---- the table ----------------------------------------------------------- */

/* How much of the terminal may be used; unlimited where there is none. */
struct screen {
	unsigned rows, columns;
	bool     moves;			/* it is drawn over the last one */
};

/* At most 'width' characters of UTF-8, and blanks up to it. */
static void
print_name(const char *name, unsigned width)
{
	char text[WATCH_NAME_MAX];
	size_t n = 0;
	unsigned used = 0;

	for (; n < sizeof(text) - 1 && name[n] != '\0'; n++) {
		if ((name[n] & 0xc0) != 0x80 && used++ == width)
			break;
		text[n] = name[n];
	}
	text[n] = '\0';
	print_clean(stdout, text);
	for (; used < width; used++)
		putchar(' ');
}

static void
print_line(const struct screen *s, const char *name, const char *rest)
{
	unsigned width = s->columns < NAME_WIDTH ? s->columns : NAME_WIDTH;

	print_name(name, width);
	printf("%.*s%s\n", (int)(s->columns - width), rest,
	    s->moves ? "\033[K" : "");
}

static void
format_rates(const struct row *row, char *buf, size_t size)
{
	const struct top_rates *r = &row->rates;
	char cpu[16] = "-";

	if (r->cpu >= 0)
		snprintf(cpu, sizeof(cpu), "%.1f", r->cpu * 100);
	if (r->known)
		snprintf(buf, size, " %8.0f %8.0f %8.1f %8.1f %8.3f %8.3f %6s",
		    r->ops[0], r->ops[1], r->bytes[0] / 1e6,
		    r->bytes[1] / 1e6, r->mean_ns / 1e6, r->max_ns / 1e6,
		    cpu);
	else
		snprintf(buf, size, " %8s %8s %8s %8s %8s %8s %6s", "-", "-",
		    "-", "-", "-", "-", cpu);
}

/* What is to be known of the disk besides numbers. */
static const char *
state_of(const struct look_disk *d)
{
	if (d->pid == 0)
		return "dead";
	if (!d->connected)
		return "open";
	if (d->failed)
		return "failed";
	return d->persistent ? "persistent" : "copy";
}

static void
print_row(const struct watch *w, const struct screen *s,
    const struct row *row)
{
	const struct look_disk *d = row->disk;
	char name[WATCH_NAME_MAX], rates[160], rest[320];

	watch_name(w, d->domid, name);
	if (d->error != 0) {
		snprintf(rest, sizeof(rest), " %-6s %s", d->vdev,
		    watch_why(d->error));
		print_line(s, name, rest);
		return;
	}
	format_rates(row, rates, sizeof(rates));
	snprintf(rest, sizeof(rest), " %-6s%s %5" PRIu64 " %6" PRIu64
	    " %2u %s", d->vdev, rates, d->inflight, d->stats.reqs_failed +
	    d->stats.reqs_rejected, d->queues, state_of(d));
	print_line(s, name, rest);
}

static void
print_table(const struct watch *w, const struct screen *s,
    const struct row *rows, size_t nr)
{
	char title[160];
	unsigned line = 1;
	size_t i;

	if (s->moves)
		printf("\033[H");
	snprintf(title, sizeof(title), " %-6s %8s %8s %8s %8s %8s %8s %6s %5s "
	    "%6s %2s %s", "VDEV", "R/S", "W/S", "RMB/S", "WMB/S", "MEAN-MS",
	    "MAX-MS", "CPU%", "INFL", "ERRORS", "Q", "STATE");
	print_line(s, "DOMAIN", title);
	for (i = 0; i < nr && ++line < s->rows; i++)
		print_row(w, s, &rows[i]);
	printf(s->moves ? "\033[J" : "\n");
}

static struct screen
find_screen(const struct watch *w)
{
	struct screen s = { UINT32_MAX, 400, false };
	struct winsize size;

	if (w->batch || !isatty(STDOUT_FILENO))
		return s;
	s.moves = true;
	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 2 &&
	    size.ws_col > 0) {
		s.rows = size.ws_row;
		s.columns = size.ws_col;
	}
	return s;
}

/* ---- JSON ---------------------------------------------------------------- */

static json_t *
number_or_null(bool known, double n)
{
	return known ? json_real(n) : json_null();
}

static json_t *
describe(const struct watch *w, const struct row *row)
{
	const struct look_disk *d = row->disk;
	const struct top_rates *r = &row->rates;
	char name[WATCH_NAME_MAX];

	watch_name(w, d->domid, name);
	return json_pack("{s:i, s:o, s:I, s:s, s:o, s:i, s:s, s:i, s:i, s:I, "
	    "s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
	    "domid", (int)d->domid, "domain", inspect_text(name),
	    "devid", (json_int_t)d->devid, "vdev", d->vdev,
	    "error", d->error == 0 ? json_null() :
	    json_string(watch_why(d->error)),
	    "pid", (int)d->pid, "state", state_of(d),
	    "queues", (int)d->queues, "queues-offered", (int)d->queues_offered,
	    "in-flight", (json_int_t)d->inflight,
	    "errors", (json_int_t)((d->stats.reqs_failed +
	    d->stats.reqs_rejected) & INT64_MAX),
	    "reads-per-s", number_or_null(r->known, r->ops[0]),
	    "writes-per-s", number_or_null(r->known, r->ops[1]),
	    "read-bytes-per-s", number_or_null(r->known, r->bytes[0]),
	    "write-bytes-per-s", number_or_null(r->known, r->bytes[1]),
	    "mean-ns", number_or_null(r->known, r->mean_ns),
	    "max-ns", number_or_null(r->known, r->max_ns),
	    "cpu", number_or_null(r->cpu >= 0, r->cpu));
}

static int
print_json(const struct watch *w, const struct row *rows, size_t nr,
    double seconds)
{
	json_t *disks = json_array(), *o;
	struct timespec ts;
	size_t i;
	int rc = 0;

	clock_gettime(CLOCK_REALTIME, &ts);
	for (i = 0; i < nr && rc == 0; i++)
		rc = json_array_append_new(disks, describe(w, &rows[i]));
	o = json_pack("{s:f, s:f, s:o}", "time", (double)ts.tv_sec +
	    (double)ts.tv_nsec / 1e9, "interval", seconds, "disks", disks);
	if (o == NULL || rc != 0) {
		json_decref(o);
		return watch_fail(w, "out of memory");
	}
	rc = json_dumpf(o, stdout, JSON_COMPACT | JSON_REAL_PRECISION(15));
	json_decref(o);
	if (rc == 0)
		putchar('\n');
	return DONE;
}

/* ---- sample by sample ---------------------------------------------------- */

static double
now_seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* Until 'at', whatever interrupts it. */
static void
sleep_until(double at)
{
	struct timespec ts;

	ts.tv_sec = (time_t)at;
	ts.tv_nsec = (long)((at - (double)ts.tv_sec) * 1e9);
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) ==
	    EINTR)
		;
}

static int
flush(void)
{
	if (fflush(stdout) != EOF)
		return DONE;
	fprintf(stderr, "ringback: write the output: %s\n", strerror(errno));
	return FAILED;
}

static int
show(const struct watch *w, const struct look_disk *before, size_t nr_before,
    const struct look_disk *now, size_t nr, double seconds)
{
	struct row *rows = make_rows(w, before, nr_before, now, nr, seconds);
	struct screen s;
	int rc = DONE;

	if (rows == NULL)
		return watch_fail(w, "out of memory");
	if (w->json) {
		rc = print_json(w, rows, nr, seconds);
	} else {
		s = find_screen(w);
		print_table(w, &s, rows, nr);
	}
	free(rows);
	return rc == DONE ? flush() : rc;
}

int
top_run(struct watch *w)
{
	struct look_disk *before, *now;
	size_t nr_before, nr;
	uint64_t samples = 0;
	double at, next;
	int rc;

	rc = watch_disks(w, &before, &nr_before);
	if (rc != DONE)
		return rc;
	at = now_seconds();
	if (find_screen(w).moves && !w->json)
		printf("\033[H\033[J");
	rc = flush();
	while (rc == DONE && (w->count == 0 || samples++ < w->count)) {
		sleep_until(at + w->interval);
		rc = watch_disks(w, &now, &nr);
		if (rc != DONE)
			break;
		next = now_seconds();
		rc = show(w, before, nr_before, now, nr, next - at);
		free(before);
		before = now;
		nr_before = nr;
		at = next;
	}
	free(before);
	return rc;
}
