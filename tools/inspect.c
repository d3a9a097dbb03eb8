/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * inspect: what an image is (info), and whether it is sound (check).
 *
 * An image may have been written by a guest or a stranger, so this does as a
 * disk process does: open the chain read-only, give up every privilege, and
 * only then follow what the tables say.  Nothing is ever written.
 *
 * info takes no lock and may be asked of a disk that a guest writes to: its
 * sizes are then those of an instant.  check takes the lock that keeps writers
 * away, as a half-written image would look damaged.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "blkback/sandbox.h"
#include "blkback/spec.h"
#include "drivers/driver.h"
#include "tools/ringback.h"

#define NOBODY       65534	/* as a disk process without --uid-base */
#define FINDINGS_MAX 100	/* that are told one by one */

json_t *
inspect_text(const char *text)
{
	json_t *s = json_string(text);
	char *copy, *p;

	if (s != NULL)
		return s;
	copy = strdup(text);
	if (copy == NULL)
		return NULL;
	for (p = copy; *p != '\0'; p++)
		if ((unsigned char)*p >= 0x80)
			*p = '?';
	s = json_string(copy);
	free(copy);
	return s;
}

static int
answer_error(int status, const char *why, json_t **answer)
{
	*answer = json_pack("{s:b, s:o*}", "ok", 0, "error", inspect_text(why));
	return status;
}

int
inspect_confine(char why[WHY_MAX])
{
	int rc;

	rc = geteuid() == 0 ? sandbox_enter(NOBODY) : sandbox_confine();
	if (rc < 0)
		why_set(why, "give up privileges: %s", strerror(-rc));
	return rc;
}

/* DONE: *img is open, and this process is not allowed much any more. */
static int
inspect_open(const char *text, struct image **img, char why[WHY_MAX])
{
	struct disk_spec spec;
	struct image_options opt = {
		.format = spec.format, .path = spec.path,
		.readonly = true, .inspect = true,
	};

	if (spec_parse(text, &spec, why) < 0)
		return MISUSED;
	opt.cache = spec.cache;
	if (image_open(&opt, img, why) < 0)
		return FAILED;
	if (inspect_confine(why) < 0) {
		image_close(*img);
		return FAILED;
	}
	return DONE;
}

/* ---- info -------------------------------------------------------------- */

static json_t *
features_new(const struct image_layer *l)
{
	json_t *a = json_array();
	int i;

	for (i = 0; i < IMAGE_FEATURES_MAX && l->features[i] != NULL; i++)
		json_array_append_new(a, json_string(l->features[i]));
	return a;
}

/* What jansson could not make is left out, as what there is no such of. */
static json_t *
layer_new(const struct image_layer *l)
{
	json_t *o;

	o = json_pack("{s:o*, s:s, s:I, s:I, s:I}",
	    "path", inspect_text(l->path), "format", l->format,
	    "virtual-size", (json_int_t)l->virtual_size,
	    "file-size", (json_int_t)l->file_size,
	    "allocated", (json_int_t)l->allocated);
	if (o == NULL || l->cluster_size == 0)
		return o;
	json_object_set_new(o, "version", json_integer(l->version));
	json_object_set_new(o, "cluster-size", json_integer(l->cluster_size));
	json_object_set_new(o, "refcount-bits",
	    json_integer(l->refcount_bits));
	json_object_set_new(o, "compression", json_string(l->compression));
	json_object_set_new(o, "snapshots", json_integer(l->nr_snapshots));
	json_object_set_new(o, "features", features_new(l));
	json_object_set_new(o, "unknown-features",
	    json_integer((json_int_t)l->unknown_features));
	if (l->backing != NULL)
		json_object_set_new(o, "backing", inspect_text(l->backing));
	if (l->backing_format != NULL)
		json_object_set_new(o, "backing-format",
		    inspect_text(l->backing_format));
	return o;
}

int
inspect_info(const char *spec, json_t **answer)
{
	struct image_layer layers[IMAGE_LAYERS_MAX];
	char why[WHY_MAX];
	struct image *img;
	json_t *a;
	int i, n, status;

	status = inspect_open(spec, &img, why);
	if (status != DONE)
		return answer_error(status, why, answer);
	n = image_info(img, layers, why);
	if (n < 0) {
		status = answer_error(FAILED, why, answer);
	} else {
		a = json_array();
		for (i = 0; i < n; i++)
			json_array_append_new(a, layer_new(&layers[i]));
		*answer = json_pack("{s:b, s:o}", "ok", 1, "layers", a);
	}
	image_close(img);
	return status;
}

static void
show_size(const json_t *layer, const char *label, const char *key)
{
	json_int_t n = json_integer_value(json_object_get(layer, key));
	char text[32];

	format_bytes((uint64_t)n, text, sizeof(text));
	printf("  %-14s %s (%" JSON_INTEGER_FORMAT " bytes)\n", label, text, n);
}

static json_int_t
layer_number(const json_t *layer, const char *key)
{
	return json_integer_value(json_object_get(layer, key));
}

static const char *
layer_text(const json_t *layer, const char *key)
{
	const char *text = json_string_value(json_object_get(layer, key));

	return text != NULL ? text : "-";
}

static void
show_features(const json_t *layer)
{
	const json_t *all = json_object_get(layer, "features"), *one;
	json_int_t unknown = layer_number(layer, "unknown-features");
	size_t i;

	if (json_array_size(all) == 0 && unknown == 0)
		return;
	printf("  %-14s ", "features");
	json_array_foreach(all, i, one) {
		printf("%s%s", i == 0 ? "" : ", ", json_string_value(one));
	}
	if (unknown > 0)
		printf("%s%" JSON_INTEGER_FORMAT " that are not known",
		    json_array_size(all) == 0 ? "" : ", ", unknown);
	putchar('\n');
}

static void
show_layer(const json_t *layer)
{
	print_clean(stdout, layer_text(layer, "path"));
	printf("\n  %-14s %s", "format", layer_text(layer, "format"));
	if (json_object_get(layer, "version") != NULL)
		printf(", version %" JSON_INTEGER_FORMAT,
		    layer_number(layer, "version"));
	putchar('\n');
	show_size(layer, "virtual size", "virtual-size");
	show_size(layer, "file size", "file-size");
	show_size(layer, "allocated", "allocated");
	if (json_object_get(layer, "cluster-size") == NULL)
		return;
	show_size(layer, "cluster size", "cluster-size");
	printf("  %-14s %" JSON_INTEGER_FORMAT "\n", "refcount bits",
	    layer_number(layer, "refcount-bits"));
	printf("  %-14s %s\n", "compression", layer_text(layer, "compression"));
	printf("  %-14s %" JSON_INTEGER_FORMAT "\n", "snapshots",
	    layer_number(layer, "snapshots"));
	show_features(layer);
	if (json_object_get(layer, "backing") == NULL)
		return;
	printf("  %-14s ", "backing file");
	print_clean(stdout, layer_text(layer, "backing"));
	printf(" (");
	print_clean(stdout, layer_text(layer, "backing-format"));
	printf(")\n");
}

void
inspect_show_info(const json_t *answer)
{
	const json_t *all = json_object_get(answer, "layers"), *layer;
	size_t i;

	json_array_foreach(all, i, layer) {
		show_layer(layer);
	}
}

/* ---- check ------------------------------------------------------------- */

static void
add_finding(void *arg, enum image_fault kind, const char *text)
{
	static const char *const kinds[] = {
		[FAULT_LEAK] = "leak", [FAULT_ERROR] = "error",
		[FAULT_UNREAD] = "unread",
	};
	json_t *findings = arg;

	if (json_array_size(findings) < FINDINGS_MAX)
		json_array_append_new(findings, json_pack("{s:s, s:o*}",
		    "kind", kinds[kind], "text", inspect_text(text)));
}

/* The names of the numbers are those of `qemu-img check --output=json`. */
static json_t *
check_new(const struct image_check *c, json_t *findings)
{
	return json_pack("{s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I,"
	    " s:o}", "ok", 1,
	    "corruptions", (json_int_t)c->errors,
	    "overlaps", (json_int_t)c->overlaps,
	    "leaks", (json_int_t)c->leaks,
	    "check-errors", (json_int_t)c->unread,
	    "total-clusters", (json_int_t)c->clusters,
	    "allocated-clusters", (json_int_t)c->allocated,
	    "compressed-clusters", (json_int_t)c->compressed,
	    "fragmented-clusters", (json_int_t)c->fragmented,
	    "image-end-offset", (json_int_t)c->end,
	    "findings", findings);
}

int
inspect_check(const char *spec, json_t **answer)
{
	struct image_check c = { .found = add_finding };
	char why[WHY_MAX];
	struct image *img;
	int status;

	status = inspect_open(spec, &img, why);
	if (status != DONE)
		return answer_error(status, why, answer);
	c.arg = json_array();
	if (image_check(img, &c, why) < 0) {
		json_decref(c.arg);
		status = answer_error(FAILED, why, answer);
	} else {
		*answer = check_new(&c, c.arg);
		if (c.errors + c.overlaps + c.unread > 0)
			status = FAILED;
		else if (c.leaks > 0)
			status = LEAKS;
	}
	image_close(img);
	return status;
}

static void
show_count(const json_t *answer, const char *key, const char *words)
{
	json_int_t n = layer_number(answer, key);

	if (n > 0)
		printf("%" JSON_INTEGER_FORMAT " %s\n", n, words);
}

void
inspect_show_check(const json_t *answer)
{
	const json_t *all = json_object_get(answer, "findings"), *one;
	json_int_t bad;
	size_t i;

	json_array_foreach(all, i, one) {
		printf("%s: ", layer_text(one, "kind"));
		print_clean(stdout, layer_text(one, "text"));
		putchar('\n');
	}
	if (json_array_size(all) == FINDINGS_MAX)
		printf("... and what else may be of these kinds\n");

	bad = layer_number(answer, "corruptions") +
	    layer_number(answer, "overlaps") +
	    layer_number(answer, "check-errors");
	show_count(answer, "corruptions", "errors: data is lost or will be");
	show_count(answer, "overlaps", "clusters with two uses");
	show_count(answer, "check-errors", "parts that could not be read");
	show_count(answer, "leaks", "leaked clusters: they waste space only");
	if (bad > 0)
		printf("keep a copy of the image, then let 'qemu-img check -r "
		    "all' repair it, or restore a backup\n");
	else if (layer_number(answer, "leaks") > 0)
		printf("'qemu-img check -r leaks' gives them back, while "
		    "nobody uses the image\n");
	else
		printf("no errors were found\n");
	printf("%" JSON_INTEGER_FORMAT " of %" JSON_INTEGER_FORMAT
	    " clusters allocated, %" JSON_INTEGER_FORMAT " fragmented, %"
	    JSON_INTEGER_FORMAT " compressed; the file ends at %"
	    JSON_INTEGER_FORMAT "\n",
	    layer_number(answer, "allocated-clusters"),
	    layer_number(answer, "total-clusters"),
	    layer_number(answer, "fragmented-clusters"),
	    layer_number(answer, "compressed-clusters"),
	    layer_number(answer, "image-end-offset"));
}
