/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * inflight: which requests were taken and not answered, how long ago, and what
 * each of them waits for.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/ringback.h"
#include "tools/watch.h"

static const char *const waits_for[LOOK_NR_STAGES] = {
	[LOOK_TAKEN] = "its turn in the process",
	[LOOK_ROOM] = "memory (the disk's arena is full)",
	[LOOK_BARRIER] = "the requests before it",
	[LOOK_COPY] = "grant copy",
	[LOOK_STORAGE] = "storage",
	[LOOK_METADATA] = "metadata of the format",
	[LOOK_HELD] = "the operator (failed; ringback resume)",
	[LOOK_ANSWER] = "its response to be written",
	[LOOK_UNKNOWN] = "unknown",
};

static const char *
op_name(const struct look_request *r)
{
	return r->op >= 0 ? look_op_names[r->op] : "unknown";
}

static void
print_request(const struct look_disk *d, const char *name,
    const struct look_request *r)
{
	char sectors[24] = "-", age[24] = "-";

	if (r->sectors >= 0)
		snprintf(sectors, sizeof(sectors), "%" PRId64, r->sectors);
	if (r->age_ns >= 0)
		snprintf(age, sizeof(age), "%.3f", (double)r->age_ns / 1e6);
	print_clean(stdout, name);
	printf(" %s %" PRIu32 " %" PRIu64 " %s %" PRIu64 " %s %s %s%s\n",
	    d->vdev, r->queue, r->id, op_name(r), r->sector, sectors, age,
	    waits_for[r->stage], d->pid == 0 ? "; its process is dead" : "");
}

/* An id is the guest's, and may be any 64 bits: a string holds them. */
static json_t *
describe_request(const struct look_request *r)
{
	char id[24];

	snprintf(id, sizeof(id), "%" PRIu64, r->id);
	return json_pack("{s:i, s:s, s:s, s:I, s:o, s:o, s:s}",
	    "queue", (int)r->queue, "id", id, "operation", op_name(r),
	    "sector", (json_int_t)(r->sector & INT64_MAX),
	    "sectors", r->sectors < 0 ? json_null() :
	    json_integer(r->sectors),
	    "age-ms", r->age_ns < 0 ? json_null() :
	    json_real((double)r->age_ns / 1e6),
	    "waits-for", look_stage_names[r->stage]);
}

static json_t *
describe_disk(const struct look_disk *d, const char *name,
    const struct look_request *reqs, size_t nr)
{
	json_t *list = json_array();
	size_t i;

	for (i = 0; i < nr; i++)
		if (json_array_append_new(list,
		    describe_request(&reqs[i])) != 0)
			break;
	if (i < nr) {
		json_decref(list);
		return NULL;
	}
	return json_pack("{s:i, s:o, s:I, s:s, s:i, s:o, s:o}",
	    "domid", (int)d->domid, "domain", inspect_text(name),
	    "devid", (json_int_t)d->devid, "vdev", d->vdev,
	    "pid", (int)d->pid, "error", d->error == 0 ? json_null() :
	    json_string(watch_why(d->error)), "requests", list);
}

/* 'all' is NULL when it is to be printed. */
static int
show_disk(const struct watch *w, struct look_disk *d, json_t *all)
{
	struct look_request *reqs = NULL;
	char name[WATCH_NAME_MAX];
	size_t nr = 0, i;
	int rc = DONE;

	if (d->error == 0)
		d->error = look_requests(w->run_dir, d, &reqs, &nr);
	if (d->error == -ENOENT)
		return DONE;	/* it went meanwhile */
	watch_name(w, d->domid, name);
	if (d->error != 0) {
		fputs("ringback: ", stderr);
		print_clean(stderr, name);
		fprintf(stderr, " %s: %s\n", d->vdev, watch_why(d->error));
		rc = FAILED;
	}
	if (all != NULL && json_array_append_new(all, describe_disk(d, name,
	    reqs, nr)) != 0)
		rc = watch_fail(w, "out of memory");
	for (i = 0; all == NULL && i < nr; i++)
		print_request(d, name, &reqs[i]);
	free(reqs);
	return rc;
}

int
inflight_run(struct watch *w)
{
	json_t *all = NULL, *answer;
	struct look_disk *disks;
	size_t nr, i;
	int rc;

	rc = watch_disks(w, &disks, &nr);
	if (rc != DONE)
		return rc;
	if (w->json)
		all = json_array();
	else
		printf("DOMAIN VDEV QUEUE ID OPERATION SECTOR SECTORS AGE-MS "
		    "WAITS-FOR\n");
	for (i = 0; i < nr; i++)
		if (show_disk(w, &disks[i], all) != DONE)
			rc = FAILED;
	free(disks);
	if (!w->json)
		return rc;
	answer = json_pack("{s:b, s:o}", "ok", rc == DONE, "disks", all);
	if (answer == NULL)
		return watch_fail(w, "out of memory");
	if (json_dumpf(answer, stdout, JSON_COMPACT |
	    JSON_REAL_PRECISION(15)) == 0)
		putchar('\n');
	json_decref(answer);
	return rc;
}
