/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * compare_fio: the command of a run, and the JSON that it prints.
 *
 * The command is fio's on the path of a target, which may be in a guest; or
 * the user's own, with words in braces that are replaced.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/compare.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* ---- commands ------------------------------------------------------------ */

struct word {
	const char *name;	/* in braces */
	char        value[32];
};

static const char *
rw_name(const struct compare *c, bool write)
{
	if (c->random)
		return write ? "randwrite" : "randread";
	return write ? "write" : "read";
}

/* The text with each {name} that is known replaced. */
static void
fill_in(FILE *to, const char *text, const struct word *word, size_t nr)
{
	size_t i, n;

	while (*text != '\0') {
		for (i = 0; i < nr; i++) {
			n = strlen(word[i].name);
			if (strncmp(text, word[i].name, n) == 0)
				break;
		}
		if (i == nr) {
			putc(*text++, to);
			continue;
		}
		fputs(word[i].value, to);
		text += n;
	}
}

static void
print_command(FILE *to, const struct compare *c, const char *text,
    const struct compare_cell *cell, bool verify)
{
	struct word word[] = { { "{rw}", "" }, { "{bs}", "" }, { "{qd}", "" },
		{ "{seconds}", "" }, { "{verify}", "" } };

	snprintf(word[0].value, sizeof(word[0].value), "%s",
	    rw_name(c, cell->write));
	snprintf(word[1].value, sizeof(word[1].value), "%" PRIu64, cell->block);
	snprintf(word[2].value, sizeof(word[2].value), "%u", cell->depth);
	snprintf(word[3].value, sizeof(word[3].value), "%g", c->seconds);
	snprintf(word[4].value, sizeof(word[4].value), "%d", verify);
	fill_in(to, text, word, COUNT(word));
}

/*
 * The path has no character that a shell would look at, for it may pass by two
 * of them.  fio takes the size of what is there, and makes no file.
 */
static void
print_fio(FILE *to, const struct compare *c, const char *path,
    const struct compare_cell *cell, bool verify)
{
	if (c->guest_exec != NULL)
		fprintf(to, "%s ", c->guest_exec);
	fprintf(to, "fio --name=compare --filename=%s --allow_file_create=0 "
	    "--size=100%% --ioengine=libaio --direct=1 --bs=%" PRIu64
	    " --iodepth=%u --output-format=json", path, cell->block,
	    cell->depth);
	if (verify) {
		fprintf(to, " --rw=write --io_size=%s --verify=crc32c "
		    "--do_verify=1 --verify_fatal=1 --verify_state_save=0",
		    COMPARE_VERIFY_BYTES);
		return;
	}
	fprintf(to, " --rw=%s --time_based --runtime=%.0fms",
	    rw_name(c, cell->write), c->seconds * 1000);
	if (!cell->write)
		fputs(" --readonly", to);
	if (c->random)
		fputs(" --norandommap", to);
}

char *
compare_command(const struct compare *c, const struct compare_column *column,
    const struct compare_cell *cell, bool verify)
{
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);
	bool failed;

	if (f == NULL)
		return NULL;
	if (compare_is_command(column))
		print_command(f, c, column->target + 1, cell, verify);
	else
		print_fio(f, c, column->target, cell, verify);
	failed = ferror(f) != 0;
	if (fclose(f) == EOF || failed) {
		free(text);
		return NULL;
	}
	return text;
}

/* ---- answers ------------------------------------------------------------- */

static double
number_at(const json_t *o, const char *key)
{
	double n = json_number_value(json_object_get(o, key));

	return n > 0 ? n : 0;
}

/* fio may print notes before, and who calls it after. */
static json_t *
find_object(const char *text, size_t len, char why[WHY_MAX])
{
	const char *p = text, *end = text + len;
	json_error_t error;
	json_t *o;

	while (p != NULL && p < end && *p != '{') {
		p = memchr(p, '\n', (size_t)(end - p));
		if (p != NULL)
			p++;
	}
	if (p == NULL || p == end) {
		why_set(why, "it prints no JSON%s",
		    len == 0 ? ", but nothing" : "");
		return NULL;
	}
	o = json_loadb(p, (size_t)(end - p), JSON_DISABLE_EOF_CHECK, &error);
	if (o == NULL)
		why_set(why, "it prints broken JSON, line %d: %s", error.line,
		    error.text);
	return o;
}

static int
read_job(const json_t *job, const json_t *all, bool write,
    struct compare_run *run, char why[WHY_MAX])
{
	const char *dir = write ? "write" : "read";
	const json_t *count = json_object_get(job, dir), *p;
	double error = json_number_value(json_object_get(job, "error"));

	if (error != 0) {
		why_set(why, "its JSON says error %.0f (%s)", error,
		    strerror((int)error));
		return -EPROTO;
	}
	if (number_at(count, "total_ios") < 1 ||
	    number_at(count, "bw_bytes") <= 0) {
		why_set(why, "its JSON has no %s with total_ios and bw_bytes "
		    "above 0", dir);
		return -EPROTO;
	}
	p = json_object_get(json_object_get(count, "clat_ns"), "percentile");
	if (p == NULL)
		p = json_object_get(json_object_get(count, "lat_ns"),
		    "percentile");
	run->number[RUN_BYTES] = number_at(count, "bw_bytes");
	run->number[RUN_IOS] = number_at(count, "iops");
	run->number[RUN_P50] = number_at(p, "50.000000");
	run->number[RUN_P99] = number_at(p, "99.000000");
	run->number[RUN_CPU] = number_at(all, "backend_cpu_ns") /
	    number_at(count, "total_ios");
	return 0;
}

int
compare_read_fio(const char *text, size_t len, bool write,
    struct compare_run *run, char why[WHY_MAX])
{
	json_t *all = find_object(text, len, why);
	const json_t *jobs = json_object_get(all, "jobs");
	int rc = -EPROTO;

	if (all == NULL)
		return -EPROTO;
	if (json_array_size(jobs) == 1)
		rc = read_job(json_array_get(jobs, 0), all, write, run, why);
	else
		why_set(why, "its JSON has %zu jobs, not 1 (fio: "
		    "--group_reporting)", json_array_size(jobs));
	json_decref(all);
	return rc;
}
