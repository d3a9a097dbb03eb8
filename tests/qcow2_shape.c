/* SPDX-License-Identifier: GPL-2.0-or-later */
/* qcow2_shape: see qcow2_shape.h. */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "drivers/qcow2.h"
#include "tests/qcow2_shape.h"

#define BLOCK  4096u

const struct shape shapes[] = {
	/* With refcounts of 64 bits its refcount table grows at 2 MiB. */
	{ "tiny clusters", "cluster_size=512,refcount_bits=64", 512,
	    3072, 1, 0, BASE_NONE, false },
	/* The same, a few clusters before that. */
	{ "full refcount table", "cluster_size=512,refcount_bits=64", 512,
	    2432, 1, 0, BASE_DATA, false },
	{ "plain", "cluster_size=64k", 65536,
	    2048, 3, 512, BASE_NONE, false },
	{ "subclusters", "cluster_size=64k,extended_l2=on", 65536,
	    3072, 2, 256, BASE_NONE, false },
	{ "backing file", "cluster_size=64k", 65536,
	    2048, 2, 512, BASE_BACKING, false },
	{ "subclusters on a backing file",
	    "cluster_size=16k,extended_l2=on", 16384,
	    2048, 2, 16, BASE_BACKING, false },
	{ "snapshot", "cluster_size=4k", 4096,
	    2048, 2, 2, BASE_DATA, true },
	{ "tiny clusters with a snapshot",
	    "cluster_size=512,refcount_bits=32", 512,
	    1536, 2, 0, BASE_DATA, true },
	{ "subclusters with a snapshot",
	    "cluster_size=32k,extended_l2=on", 32768,
	    2048, 2, 64, BASE_DATA, true },
	{ "compressed", "cluster_size=64k", 65536,
	    4096, 1, 0, BASE_COMPRESSED, false },
	{ "compressed with a snapshot",
	    "cluster_size=4k,compression_type=zstd,refcount_bits=8", 4096,
	    2048, 1, 0, BASE_COMPRESSED, true },
	{ "version 2", "compat=0.10,cluster_size=4k", 4096,
	    2048, 2, 2, BASE_DATA, false },
	{ "preallocated", "cluster_size=32k,preallocation=metadata", 32768,
	    2048, 1, 0, BASE_NONE, false },
};
const unsigned nr_shapes = sizeof(shapes) / sizeof(shapes[0]);

const struct shape shape_raw = { "raw", NULL, 4096, 2048, 1, 0, BASE_NONE,
	false };

unsigned long
setting(const char *name, unsigned long otherwise)
{
	const char *value = getenv(name);

	return value == NULL ? otherwise : strtoul(value, NULL, 0);
}

void
shape_setup(void)
{
	/* In memory all is faster; driver_rig tries whether it can be. */
	setenv("TMPDIR", "/dev/shm", 0);
}

const char *
shape_format(const struct shape *s)
{
	return s->options == NULL ? "raw" : "qcow2";
}

/*
 * The model.
 */

uint32_t
shape_sectors(const struct shape *s)
{
	return s->window_kib * 2 * s->nr_windows;
}

static uint64_t
disk_bytes(const struct shape *s)
{
	uint64_t window = s->window_kib * 1024ull;

	if (s->stride_mib == 0)
		return window * s->nr_windows;
	return ((uint64_t)s->stride_mib << 20) * (s->nr_windows - 1) + window;
}

/* Pieces of 8 KiB, some of which are zeroes; a backing file is shorter. */
static uint32_t
base_version(const struct shape *s, const struct model *m, uint32_t i)
{
	if (s->base == BASE_NONE ||
	    (s->base == BASE_BACKING && i >= m->nr_sectors / 4 * 3))
		return 0;
	return (i / 16 + 1) * 2654435761u >> 30 != 0;
}

void
shape_model(const struct shape *s, struct model *m)
{
	uint32_t i;

	m->nr_sectors = shape_sectors(s);
	m->window = s->window_kib * 2;
	m->stride = s->stride_mib == 0 ? m->window :
	    (uint64_t)s->stride_mib * 2048;
	m->last = 1;
	for (i = 0; i < m->nr_sectors; i++) {
		m->sectors[i].nr = 1;
		m->sectors[i].value[0] = base_version(s, m, i);
	}
}

/*
 * Files.
 */

static bool
is_zero(const uint8_t *p, uint64_t n)
{
	return n == 0 || (p[0] == 0 && memcmp(p, p + 1, n - 1) == 0);
}

void
bytes_write(const struct bytes *b, const char *file)
{
	uint64_t at, n;
	int fd;

	fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd != -1);
	assert_int_equal(ftruncate(fd, (off_t)b->size), 0);
	for (at = 0; at < b->size; at += n) {
		n = b->size - at < BLOCK ? b->size - at : BLOCK;
		if (!is_zero(b->p + at, n))
			assert_int_equal(pwrite(fd, b->p + at, n, (off_t)at),
			    (int)n);
	}
	close(fd);
}

void
bytes_read(struct bytes *b, const char *file)
{
	struct stat st;
	int fd;

	fd = open(file, O_RDONLY | O_CLOEXEC);
	assert_true(fd != -1);
	assert_int_equal(fstat(fd, &st), 0);
	b->size = (uint64_t)st.st_size;
	b->p = malloc(b->size + 1);
	assert_non_null(b->p);
	assert_int_equal(pread(fd, b->p, b->size, 0), (int)b->size);
	close(fd);
}

static void
make_base(const struct shape *s, const char *file)
{
	struct model *m = calloc(1, model_bytes(shape_sectors(s)));
	uint64_t size = disk_bytes(s);
	uint8_t sector[SECTOR];
	uint32_t i;
	int fd;

	assert_non_null(m);
	shape_model(s, m);
	fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd != -1);
	if (s->base == BASE_BACKING)
		size = model_place(m, m->nr_sectors / 4 * 3) * SECTOR;
	assert_int_equal(ftruncate(fd, (off_t)size), 0);
	for (i = 0; i < m->nr_sectors; i++) {
		if (m->sectors[i].value[0] == 0)
			continue;
		sector_fill(sector, model_place(m, i), 1);
		assert_int_equal(pwrite(fd, sector, SECTOR,
		    (off_t)model_place(m, i) * SECTOR), SECTOR);
	}
	close(fd);
	free(m);
}

static void
run_qemu_img(const char *command)
{
	char out[2048];

	if (rig_shell(out, sizeof(out), "%s 2>&1", command) != 0)
		fail_msg("%s: %s", command, out);
}

void
shape_make(const struct shape *s, char file[512], struct bytes *b)
{
	char command[2048];
	unsigned long long size = disk_bytes(s);

	rig_make_file(file, (off_t)size);
	if (s->base != BASE_NONE) {
		snprintf(command, sizeof(command), "%s.base", file);
		make_base(s, command);
	}
	switch (s->base) {
	case BASE_NONE:
		snprintf(command, sizeof(command), "qemu-img create -q "
		    "-f qcow2 -o %s '%s' %llu", s->options, file, size);
		break;
	case BASE_BACKING:
		snprintf(command, sizeof(command), "qemu-img create -q "
		    "-f qcow2 -o %s -F raw -b '%s.base' '%s' %llu",
		    s->options, basename(file), file, size);
		break;
	default:
		snprintf(command, sizeof(command), "qemu-img convert %s "
		    "-f raw -O qcow2 -o %s '%s.base' '%s'",
		    s->base == BASE_COMPRESSED ? "-c" : "", s->options, file,
		    file);
		break;
	}
	if (s->options != NULL)
		run_qemu_img(command);
	if (s->snapshot) {
		snprintf(command, sizeof(command),
		    "qemu-img snapshot -c s1 '%s'", file);
		run_qemu_img(command);
	}
	bytes_read(b, file);
}

void
shape_remove(char file[512], struct bytes *b)
{
	char base[600];

	snprintf(base, sizeof(base), "%s.base", file);
	unlink(base);
	unlink(file);
	free(b->p);
	b->p = NULL;
}

void
shape_starve(const struct shape *s, struct image *img, uint64_t dice)
{
	struct qcow2 *q = container_of(img, struct qcow2, img);

	if (s->options == NULL || dice % 4 == 0)
		return;
	pthread_mutex_lock(&q->lock);
	q->run_target = 1 + dice / 4 % 24;
	q->run_low = q->run_target / 2;
	if (q->max_busy > 4)
		q->max_busy = 4 + (unsigned)(dice / 97 % 8);
	pthread_mutex_unlock(&q->lock);
}

/*
 * What qemu-img says.
 */

bool
shape_check(const struct shape *s, const char *file, unsigned *leaks)
{
	static char out[1 << 20];
	const char *word;
	int rc;

	*leaks = 0;
	if (s->options == NULL)
		return true;
	rc = rig_shell(out, sizeof(out), "qemu-img check -f qcow2 '%s' 2>&1",
	    file);
	if (rc != 0 && rc != 3) {
		out[2000] = '\0';
		print_error("qemu-img check %s ends with %d: %s\n", file, rc,
		    out);
		return false;
	}
	word = strstr(out, " leaked clusters were found");
	while (word != NULL && word > out && word[-1] >= '0' && word[-1] <= '9')
		word--;
	if (word != NULL)
		*leaks = (unsigned)strtoul(word, NULL, 10);
	if ((rc == 3) != (*leaks > 0)) {
		print_error("qemu-img check ends with %d: %s\n", rc, out);
		return false;
	}
	return true;
}

bool
shape_check_snapshot(const struct shape *s, const char *file)
{
	char out[2048];

	if (!s->snapshot)
		return true;
	/* It is read with the disk's present size, which may be larger. */
	if (rig_shell(out, sizeof(out), "qemu-img convert -f qcow2 -l s1 "
	    "-O raw '%s' '%s.s1' 2>&1 && truncate -r '%s.base' '%s.s1' && "
	    "cmp '%s.s1' '%s.base' 2>&1; rc=$?; rm -f '%s.s1'; exit $rc",
	    file, file, file, file, file, file, file) != 0) {
		print_error("snapshot of %s: %s\n", file, out);
		return false;
	}
	return true;
}
