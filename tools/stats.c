/* SPDX-License-Identifier: GPL-2.0-or-later */
/* stats: the counters of a disk, and what they mean, for a person. */
#include <stdio.h>

#include "tools/ringback.h"

/* A counter; NAN-free: what the daemon does not tell counts as nothing. */
static double
counter(const json_t *stats, const char *key)
{
	return json_number_value(json_object_get(stats, key));
}

static void
print_count(const json_t *stats, const char *label, const char *key)
{
	printf("  %-20s %14.0f\n", label, counter(stats, key));
}

/* The same, and what it means per 'base'. */
static void
print_ratio(const json_t *stats, const char *label, const char *key,
    const char *over, const char *under, const char *words)
{
	double below = counter(stats, under);

	printf("  %-20s %14.0f", label, counter(stats, key));
	if (below > 0)
		printf("   %10.3f %s\n", counter(stats, over) / below, words);
	else
		printf("   %10s %s\n", "-", words);
}

static void
print_operation(const json_t *stats, const char *op, const char *count)
{
	char key[64], bytes[32];
	double n = counter(stats, count);

	snprintf(key, sizeof(key), "%s-bytes", op);
	format_bytes((uint64_t)counter(stats, key), bytes, sizeof(bytes));
	printf("  %-20s %14.0f   %10s", count, n, bytes);
	snprintf(key, sizeof(key), "%s-wait-ns", op);
	if (n > 0)
		printf("   %10.1f", counter(stats, key) / n / 1000);
	else
		printf("   %10s", "-");
	snprintf(key, sizeof(key), "%s-wait-max-ns", op);
	printf("   %10.1f\n", counter(stats, key) / 1000);
}

void
stats_show(const json_t *s)
{
	printf("requests\n");
	print_count(s, "taken", "reqs-taken");
	print_count(s, "answered", "reqs-answered");
	print_count(s, "in flight", "in-flight");
	print_count(s, "refused", "reqs-rejected");
	print_count(s, "failed", "reqs-failed");

	printf("\n%-22s %14s   %10s   %10s   %10s\n", "operations", "answered",
	    "bytes", "mean us", "max us");
	print_operation(s, "read", "reads");
	print_operation(s, "write", "writes");
	print_operation(s, "flush", "flushes");
	print_operation(s, "barrier", "barriers");
	print_operation(s, "discard", "discards");

	printf("\nstorage\n");
	print_ratio(s, "host I/Os", "ios", "reqs-answered", "ios",
	    "requests per host I/O");
	print_ratio(s, "submit calls", "submits", "submits", "reqs-answered",
	    "per request");
	print_count(s, "retried alone", "ios-retried");
	print_ratio(s, "metadata writes", "metadata-writes",
	    "metadata-writes", "writes", "per guest's write");

	printf("\nguest\n");
	print_ratio(s, "grant-copy calls", "copy-calls", "copy-calls",
	    "reqs-answered", "per request");
	print_ratio(s, "segments copied", "copy-segments", "copy-segments",
	    "copy-calls", "per call");
	print_ratio(s, "pages mapped to stay", "map-calls", "map-calls",
	    "reqs-answered", "per request");
	print_ratio(s, "pages unmapped", "unmap-calls", "unmap-calls",
	    "reqs-answered", "per request");
	print_ratio(s, "notifications", "notifies", "notifies",
	    "reqs-answered", "per request");
	print_ratio(s, "events received", "events", "events", "reqs-answered",
	    "per request");
	print_count(s, "publications", "publishes");
	print_count(s, "connections", "connects");

	printf("\nqueues\n");
	print_count(s, "offered", "queues-offered");
	print_count(s, "in use", "queues");
	print_ratio(s, "rounds", "rounds", "reqs-answered", "rounds",
	    "requests per round");
	print_count(s, "polls with work", "polls");
	print_count(s, "sleeps", "sleeps");
}
