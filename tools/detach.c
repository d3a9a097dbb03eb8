/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * detach: `ringback detach --all`, for the shutdown of a host.
 *
 * Those attached by hand are asked to go, several at a time, each with what is
 * left of the time; those of a toolstack go with their guests and are waited
 * for.  What is left in the end is reported.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "blkback/control.h"
#include "tools/ringback.h"

#define AT_A_TIME 16u		/* below what the daemon takes up */
#define LOOK_US   200000	/* until the list is looked at again */

struct all {
	const struct call *call;
	int64_t            deadline;	/* CLOCK_MONOTONIC, milliseconds */
	json_t            *disks;	/* of the list; each gets "why" */
	pthread_mutex_t    lock;
	size_t             next;	/* to be asked about */
};

static int64_t
left_ms(const struct all *a)
{
	int64_t now = now_ms();

	return now < a->deadline ? a->deadline - now : 0;
}

/* The disks that there are; NULL: said. */
static json_t *
list(const struct all *a)
{
	json_t *answer = NULL, *disks;

	if (talk(a->call, "{\"op\":\"list\"}\n", &answer) != DONE)
		return NULL;
	disks = json_incref(json_object_get(answer, "disks"));
	json_decref(answer);
	if (json_is_array(disks))
		return disks;
	json_decref(disks);
	give_up(a->call, "ringbackd does not say which disks there are");
	return NULL;
}

/* The question about one disk; NULL: out of memory. */
static char *
question(const struct all *a, const json_t *disk)
{
	char domid[16], *text, *line = NULL;
	json_t *q;

	snprintf(domid, sizeof(domid), "%d", (int)json_integer_value(
	    json_object_get(disk, "domid")));
	q = json_pack("{s:s, s:s, s:O, s:i}", "op", "detach", "domain", domid,
	    "vdev", json_object_get(disk, "vdev"),
	    "timeout", (int)((left_ms(a) + 999) / 1000));
	text = q != NULL ? json_dumps(q, JSON_COMPACT) : NULL;
	json_decref(q);
	if (text != NULL && asprintf(&line, "%s\n", text) == -1)
		line = NULL;
	free(text);
	return line;
}

/* The next disk by hand; NULL: none is left. */
static json_t *
take(struct all *a)
{
	const char *kind;
	json_t *disk = NULL;

	pthread_mutex_lock(&a->lock);
	while (a->next < json_array_size(a->disks)) {
		disk = json_array_get(a->disks, a->next++);
		kind = json_string_value(json_object_get(disk, "kind"));
		if (kind != NULL && strcmp(kind, BY_HAND) == 0)
			break;
		disk = NULL;
	}
	pthread_mutex_unlock(&a->lock);
	return disk;
}

/* A thread: one disk after the other.  Each is touched by one thread only. */
static void *
ask_each(void *arg)
{
	struct all *a = arg;
	json_t *disk, *answer;
	char *line;

	while ((disk = take(a)) != NULL) {
		answer = NULL;
		line = question(a, disk);
		if (line != NULL && talk(a->call, line, &answer) == DONE) {
			if (!json_is_true(json_object_get(answer, "ok")))
				json_object_set(disk, "why",
				    json_object_get(answer, "error"));
			json_decref(answer);
		}
		free(line);
	}
	return NULL;
}

static void
ask_all(struct all *a)
{
	pthread_t thread[AT_A_TIME];
	unsigned n, i;

	for (n = 0; n < AT_A_TIME && n < json_array_size(a->disks); n++)
		if (pthread_create(&thread[n], NULL, ask_each, a) != 0)
			break;
	if (n == 0)
		ask_each(a);
	for (i = 0; i < n; i++)
		pthread_join(thread[i], NULL);
}

/* The same disk in another list. */
static json_t *
find(const json_t *disks, const json_t *disk)
{
	json_t *d;
	size_t i;

	json_array_foreach(disks, i, d)
		if (json_equal(json_object_get(d, "domid"),
		    json_object_get(disk, "domid")) &&
		    json_equal(json_object_get(d, "vdev"),
		    json_object_get(disk, "vdev")))
			return d;
	return NULL;
}

/* A disk that is still there, and why. */
static json_t *
remaining(const struct all *a, const json_t *disk)
{
	json_t *asked = find(a->disks, disk), *why;

	why = json_incref(json_object_get(asked, "why"));
	if (why == NULL)
		why = json_string("a toolstack's or a new disk: shut the guest "
		    "down, or see xl block-detach");
	return json_pack("{s:O, s:O, s:O, s:o}",
	    "domid", json_object_get(disk, "domid"),
	    "domain", json_object_get(disk, "domain"),
	    "vdev", json_object_get(disk, "vdev"), "error", why);
}

/* The answer, for whoever asked for all.  NULL: out of memory. */
static json_t *
report(const struct all *a, const json_t *still)
{
	json_t *left = json_array(), *disk, *item;
	char error[64];
	size_t i;

	json_array_foreach(still, i, disk) {
		item = remaining(a, disk);
		if (item == NULL || json_array_append_new(left, item) != 0) {
			json_decref(left);
			return NULL;
		}
		fprintf(stderr, "ringback: domain %d, ", (int)
		    json_integer_value(json_object_get(item, "domid")));
		print_clean(stderr, json_string_value(json_object_get(item,
		    "vdev")));
		fprintf(stderr, " is still attached: ");
		print_clean(stderr, json_string_value(json_object_get(item,
		    "error")));
		putc('\n', stderr);
	}
	if (json_array_size(left) == 0)
		return json_pack("{s:b, s:o}", "ok", 1, "remaining", left);
	snprintf(error, sizeof(error), "%zu disks are still attached",
	    json_array_size(left));
	return json_pack("{s:b, s:s, s:o}", "ok", 0, "error", error,
	    "remaining", left);
}

int
detach_all(const struct call *c, int timeout, json_t **answer)
{
	struct all a = { .call = c,
	    .deadline = now_ms() + timeout * INT64_C(1000) };
	json_t *still;

	if (pthread_mutex_init(&a.lock, NULL) != 0)
		return FAILED;
	a.disks = list(&a);
	if (a.disks == NULL)
		return FAILED;
	ask_all(&a);
	while ((still = list(&a)) != NULL && json_array_size(still) > 0 &&
	    left_ms(&a) > 0) {
		json_decref(still);
		usleep(LOOK_US);
	}
	*answer = still != NULL ? report(&a, still) : NULL;
	json_decref(still);
	json_decref(a.disks);
	return *answer != NULL ? DONE : FAILED;
}
