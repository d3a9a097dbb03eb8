/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * qcow2_model_image: backing chains of all shapes, made with qemu-img and
 * qemu-io, and what they say about one afterwards.  See qcow2_model.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/qcow2_model.h"

#define KiB 1024u
#define MiB (1024u * KiB)

/*
 * Shapes.
 */

static void
choose_layer(struct layer *l, struct rng *r, bool bottom, bool large)
{
	static const char *const preallocations[] = {
		"off", "off", "off", "metadata", "metadata", "falloc", "full",
	};

	l->version = rng_chance(r, 20) ? 2 : 3;
	l->cluster_bits = rng_chance(r, 40) ? 16 :
	    9 + (unsigned)rng_below(r, 13);
	l->refcount_bits = 16;
	l->preallocation = "off";
	if (l->version == 3) {
		if (rng_chance(r, 70))
			l->refcount_bits = 1u << rng_below(r, 7);
		l->extended = l->cluster_bits >= 14 && rng_chance(r, 35);
		l->zstd = rng_chance(r, 40);
		l->lazy = rng_chance(r, 10);
	}
	l->size = rng_log(r, MiB, large ? 64 * MiB : 16 * MiB);
	if (rng_chance(r, 50))
		l->size &= ~((1ull << l->cluster_bits) - 1);
	l->size &= ~(uint64_t)(SECTOR - 1);
	if (l->size == 0)
		l->size = 1ull << l->cluster_bits;
	l->nr_edits = (unsigned)rng_below(r, 9);
	l->converted = rng_chance(r, bottom ? 40 : 10);
	l->compressed = l->converted && rng_chance(r, 60);
	if (!l->converted && (bottom || l->extended))
		l->preallocation = preallocations[rng_below(r, 7)];
	/* What grows must not show more of its backing file: zero flags. */
	if (!l->converted && strcmp(l->preallocation, "off") == 0 &&
	    (bottom || l->version == 3) && rng_chance(r, 15))
		l->grown = (l->size / SECTOR / (1 + rng_below(r, 8)) + 1) *
		    SECTOR;
	if (l->grown >= l->size)
		l->grown = 0;
}

/* A snapshot counts each cluster once more, which must fit. */
static void
choose_snapshots(struct layer *l, struct rng *r)
{
	if (rng_chance(r, 70) || l->refcount_bits == 1 ||
	    (l->compressed && l->refcount_bits < 16))
		return;
	if (l->refcount_bits == 2)
		l->nr_snapshots = 1;
	else
		l->nr_snapshots = 1 + (unsigned)rng_below(r, MAX_SNAPSHOTS);
}

void
chain_choose(struct chain *c, struct rng *r, bool raw, bool large)
{
	struct layer *l;
	unsigned i;

	c->nr_layers = raw || rng_chance(r, 50) ? 1 :
	    2 + (unsigned)rng_below(r, MAX_LAYERS - 1);
	for (i = 0; i < c->nr_layers; i++) {
		l = &c->layer[i];
		memset(l, 0, sizeof(*l));
		choose_layer(l, r, i == 0, large);
		l->raw = raw || (i == 0 && c->nr_layers > 1 &&
		    rng_chance(r, 35));
		if (l->raw)
			l->nr_edits = 0;
		/* Most chains grow from one disk. */
		if (i > 0 && rng_chance(r, 50)) {
			l->size = c->layer[i - 1].size;
			l->grown = 0;
		}
	}
	if (!raw)
		choose_snapshots(&c->layer[c->nr_layers - 1], r);
}

void
chain_describe(const struct chain *c, char *text, size_t size)
{
	const struct layer *l;
	size_t used = 0;
	unsigned i;
	int n;

	text[0] = '\0';
	for (i = c->nr_layers; i-- > 0 && used < size;) {
		l = &c->layer[i];
		if (l->raw)
			n = snprintf(text + used, size - used, "raw %llu; ",
			    (unsigned long long)l->size);
		else
			n = snprintf(text + used, size - used,
			    "qcow2 v%u size %llu cluster %u refcount_bits "
			    "%u%s%s%s%s%s preallocation=%s snapshots %u; ",
			    l->version, (unsigned long long)l->size,
			    1u << l->cluster_bits, l->refcount_bits,
			    l->extended ? " extended_l2" : "",
			    l->zstd ? " zstd" : "", l->lazy ? " lazy" : "",
			    l->converted ? l->compressed ? " compressed" :
			    " converted" : "", l->grown != 0 ? " resized" : "",
			    l->preallocation, l->nr_snapshots);
		used += n > 0 ? (size_t)n : 0;
	}
}

void
chain_path(const struct chain *c, unsigned layer, char path[NAME_SIZE])
{
	snprintf(path, NAME_SIZE, "%s/%u.%s", c->folder, layer,
	    c->layer[layer].raw ? "raw" : "qcow2");
}

/*
 * QEMU's tools.
 */

static void
print_log(const struct chain *c)
{
	char path[NAME_SIZE], line[256];
	FILE *f;
	int i;

	snprintf(path, sizeof(path), "%s/log", c->folder);
	f = fopen(path, "re");
	if (f == NULL)
		return;
	for (i = 0; i < 12 && fgets(line, sizeof(line), f) != NULL; i++)
		printf("  | %s", line);
	fclose(f);
}

/* In the folder; it has to succeed. */
static void __attribute__((format(printf, 2, 3)))
shell(const struct chain *c, const char *fmt, ...)
{
	char *command, *whole;
	va_list ap;
	int rc;

	va_start(ap, fmt);
	rc = vasprintf(&command, fmt, ap);
	va_end(ap);
	if (rc < 0 || asprintf(&whole, "cd '%s' && %s >log 2>&1", c->folder,
	    command) < 0)
		model_fail("out of memory");
	rc = system(whole);
	if (rc != 0) {
		print_log(c);
		model_fail("%s: status %#x", whole, (unsigned)rc);
	}
	free(whole);
	free(command);
}

/*
 * Files.
 */

/* A raw disk with these contents, sparse. */
static void
write_raw(const char *path, const struct contents *c)
{
	uint8_t buf[128 * SECTOR];
	uint64_t at, i, n;
	bool any;
	int fd;

	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd == -1 || ftruncate(fd, (off_t)(c->sectors * SECTOR)) != 0)
		model_fail("%s: %s", path, strerror(errno));
	for (at = 0; at < c->sectors; at += n) {
		n = c->sectors - at < 128 ? c->sectors - at : 128;
		for (i = 0, any = false; i < n; i++) {
			sector_fill(buf + i * SECTOR, at + i,
			    c->version[at + i]);
			any = any || c->version[at + i] != 0;
		}
		if (any && pwrite(fd, buf, n * SECTOR, (off_t)(at * SECTOR)) !=
		    (ssize_t)(n * SECTOR))
			model_fail("%s: %s", path, strerror(errno));
	}
	close(fd);
}

/* Extents of noise, of zeroes and of what can be compressed. */
static void
scatter(struct contents *c, struct rng *r)
{
	uint64_t at, n;
	unsigned kind;

	for (at = 0; at < c->sectors; at += n) {
		n = rng_log(r, 1, 2048);
		if (n > c->sectors - at)
			n = c->sectors - at;
		kind = (unsigned)rng_below(r, 3);
		if (kind == 0)
			continue;
		contents_set(c, at, n, (uint32_t)(256 + 4 * rng_below(r,
		    1u << 20) + (kind == 1 ? 0 : 1)));
	}
}

static void
layer_options(const struct layer *l, char *text, size_t size)
{
	snprintf(text, size, "compat=%s,cluster_size=%u,refcount_bits=%u%s%s%s"
	    "%s%s", l->version == 2 ? "0.10" : "1.1", 1u << l->cluster_bits,
	    l->refcount_bits, l->extended ? ",extended_l2=on" : "",
	    l->zstd ? ",compression_type=zstd" : "",
	    l->lazy ? ",lazy_refcounts=on" : "",
	    l->converted ? "" : ",preallocation=",
	    l->converted ? "" : l->preallocation);
}

static void
make_empty(struct chain *c, unsigned i, const char *backing)
{
	struct layer *l = &c->layer[i];
	char options[256];
	uint64_t size = l->grown != 0 ? l->grown : l->size;

	layer_options(l, options, sizeof(options));
	shell(c, "qemu-img create -q -f qcow2 -o %s %s %u.qcow2 %llu", options,
	    backing, i, (unsigned long long)size);
	if (l->grown != 0) {
		shell(c, "qemu-img resize -q -f qcow2 %u.qcow2 %llu", i,
		    (unsigned long long)l->size);
		contents_set(&c->top, size / SECTOR, (l->size - size) / SECTOR,
		    0);
	}
}

static void
make_converted(struct chain *c, unsigned i, char *backing, struct rng *r)
{
	struct layer *l = &c->layer[i];
	char options[256], raw[NAME_SIZE];

	contents_set(&c->top, 0, c->top.sectors, 0);
	scatter(&c->top, r);
	snprintf(raw, sizeof(raw), "%s/from.raw", c->folder);
	write_raw(raw, &c->top);
	layer_options(l, options, sizeof(options));
	if (backing[0] != '\0')
		backing[1] = 'B';
	shell(c, "qemu-img convert -f raw -O qcow2 %s -o %s %s from.raw "
	    "%u.qcow2", l->compressed ? "-c" : "", options, backing, i);
	unlink(raw);
}

/* One command for qemu-io. */
static int
edit(const struct layer *l, struct contents *c, struct rng *r, bool fresh,
    bool backed, char *text, size_t size)
{
	uint64_t cluster = (1ull << l->cluster_bits) / SECTOR, first, n;
	unsigned kind = (unsigned)rng_below(r, fresh ? 6 : 5);
	uint32_t version = (uint32_t)(1 + rng_below(r, 255));
	static const char *const verbs[] = {
		"write", "write", "write -z", "write -z -u", "discard",
		"write -c",
	};
	char fill[16] = "";

	first = rng_below(r, c->sectors);
	n = rng_log(r, 1, 4 * cluster > 1024 ? 4 * cluster : 1024);
	if (kind >= 4 || rng_chance(r, 30)) {
		first -= first % cluster;
		n += cluster - 1 - (n + cluster - 1) % cluster;
	}
	if (n > c->sectors - first)
		n = c->sectors - first;
	if (kind >= 4)
		n -= n % cluster;
	if (kind == 4 && l->version == 2 && backed)
		n = 0;			/* QEMU may do it or not */
	if (n == 0)
		return 0;
	if (kind >= 2 && kind <= 4)
		version = 0;
	else
		snprintf(fill, sizeof(fill), " -P %u", version);
	contents_set(c, first, n, version);
	return snprintf(text, size, " -c '%s%s %llu %llu'", verbs[kind], fill,
	    (unsigned long long)first * SECTOR, (unsigned long long)n * SECTOR);
}

static void
make_edits(struct chain *c, unsigned i, struct rng *r, bool fresh)
{
	struct layer *l = &c->layer[i];
	char text[2048];
	size_t used = 0;
	unsigned k;
	int n;

	/* Where there is something already, QEMU does not compress. */
	fresh = fresh && l->grown == 0 && !l->converted &&
	    strcmp(l->preallocation, "off") == 0 &&
	    (l->nr_snapshots == 0 || l->refcount_bits >= 16);
	for (k = 0; k < l->nr_edits; k++) {
		n = edit(l, &c->top, r, fresh && k == 0, i > 0, text + used,
		    sizeof(text) - used);
		used += n > 0 ? (size_t)n : 0;
	}
	if (used > 0)
		shell(c, "qemu-io -d unmap -f qcow2%s %u.qcow2", text, i);
}

static void
make_snapshots(struct chain *c, unsigned i, struct rng *r)
{
	struct layer *l = &c->layer[i];
	struct contents *s;
	unsigned k;

	for (k = 0; k < l->nr_snapshots; k++) {
		shell(c, "qemu-img snapshot -q -c s%u %u.qcow2", k, i);
		s = &c->snapshot[k];
		contents_make(s, c->top.sectors);
		memcpy(s->version, c->top.version,
		    s->sectors * sizeof(s->version[0]));
		if (rng_chance(r, 60))
			make_edits(c, i, r, false);
	}
}

/* What an overlay shows of its backing file: shorter or longer than that. */
static void
make_overlay(struct contents *c, uint64_t sectors)
{
	struct contents below = *c;
	uint64_t n = below.sectors < sectors ? below.sectors : sectors;

	contents_make(c, sectors);
	if (below.version != NULL)
		memcpy(c->version, below.version, n * sizeof(c->version[0]));
	contents_free(&below);
}

/* What changes when anybody writes to a file below the top. */
static uint64_t
base_stamp(const struct chain *c)
{
	char path[NAME_SIZE];
	struct stat st;
	uint64_t stamp = 0;
	unsigned i;

	for (i = 0; i + 1 < c->nr_layers; i++) {
		chain_path(c, i, path);
		if (stat(path, &st) != 0)
			model_fail("%s: %s", path, strerror(errno));
		stamp = stamp * 31 + (uint64_t)st.st_mtim.tv_nsec +
		    (uint64_t)st.st_size + (uint64_t)st.st_ctim.tv_nsec;
	}
	return stamp;
}

void
chain_make(struct chain *c, struct rng *r)
{
	char path[NAME_SIZE], backing[64] = "";
	struct layer *l;
	unsigned i;

	memset(&c->top, 0, sizeof(c->top));
	for (i = 0; i < c->nr_layers; i++) {
		l = &c->layer[i];
		make_overlay(&c->top, l->size / SECTOR);
		chain_path(c, i, path);
		if (l->raw) {
			scatter(&c->top, r);
			write_raw(path, &c->top);
		} else if (l->converted) {
			make_converted(c, i, backing, r);
		} else {
			make_empty(c, i, backing);
		}
		if (!l->raw) {
			make_edits(c, i, r, true);
			make_snapshots(c, i, r);
		}
		snprintf(backing, sizeof(backing), "-b %u.%s -F %s", i,
		    l->raw ? "raw" : "qcow2", l->raw ? "raw" : "qcow2");
	}
	c->base_stamp = base_stamp(c);
}

/*
 * What has become of it.
 */

static void
compare_file(const struct chain *c, const char *name, struct contents *is)
{
	char path[NAME_SIZE];
	struct stat st;
	void *map;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", c->folder, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd == -1 || fstat(fd, &st) != 0)
		model_fail("%s: %s", path, strerror(errno));
	if ((uint64_t)st.st_size != is->sectors * SECTOR)
		model_fail("%s has %llu bytes, not %llu", path,
		    (unsigned long long)st.st_size,
		    (unsigned long long)is->sectors * SECTOR);
	map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (map == MAP_FAILED)
		model_fail("%s: %s", path, strerror(errno));
	close(fd);
	contents_compare(is, map, 0, is->sectors, name);
	munmap(map, (size_t)st.st_size);
}

void
chain_verify(struct chain *c)
{
	unsigned top = c->nr_layers - 1;

	if (c->layer[top].raw) {
		compare_file(c, "0.raw", &c->top);
		return;
	}
	shell(c, "qemu-img check -f qcow2 %u.qcow2", top);
	shell(c, "qemu-img convert -f qcow2 -O raw %u.qcow2 qemu-img.raw",
	    top);
	compare_file(c, "qemu-img.raw", &c->top);
}

void
chain_verify_rest(struct chain *c)
{
	unsigned top = c->nr_layers - 1, k;

	for (k = 0; k < c->layer[top].nr_snapshots; k++) {
		shell(c, "qemu-img convert -l s%u -f qcow2 -O raw %u.qcow2 "
		    "snapshot.raw", k, top);
		compare_file(c, "snapshot.raw", &c->snapshot[k]);
	}
	if (base_stamp(c) != c->base_stamp)
		model_fail("a file below the topmost was written to");
}

/* The last cluster need not have been all of the disk's. */
void
chain_verify_grown(struct chain *c)
{
	unsigned top = c->nr_layers - 1;
	const struct layer *l = &c->layer[top];
	struct contents old = c->top;
	uint64_t size;

	/* What QEMU cannot do with version 2. */
	if (l->raw || (l->version == 2 && (top > 0 || l->nr_snapshots > 0)))
		return;
	size = (old.sectors * SECTOR + MiB) / MiB * MiB;
	shell(c, "qemu-img resize -q -f qcow2 %u.qcow2 %llu", top,
	    (unsigned long long)size);
	contents_make(&c->top, size / SECTOR);
	memcpy(c->top.version, old.version, old.sectors *
	    sizeof(old.version[0]));
	memcpy(c->top.or_zero, old.or_zero, old.sectors);
	contents_free(&old);
	chain_verify(c);
}
