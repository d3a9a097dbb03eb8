/* SPDX-License-Identifier: GPL-2.0-or-later */
/* qcow2_rig: see qcow2_rig.h. */
#include "tests/qcow2_rig.h"

#include <endian.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct rig disk;

/* An I/O of up to so many pieces. */
static struct rig_io *
io_new(enum io_op op, uint64_t offset, uint64_t length, int pieces)
{
	if ((uint64_t)pieces > length / 512)
		pieces = (int)(length / 512);
	return rig_io_new(&disk, op, offset, length, pieces);
}

void
model_make(const char *name)
{
	run("rm -f model; qemu-img convert -f qcow2 -O raw %s model", name);
}

void
disk_open(const char *name, bool readonly)
{
	disk.discard = true;
	rig_open(&disk, "qcow2", at(name), readonly, 64);
}

void
disk_close(void)
{
	rig_close(&disk);
}

void
disk_abandon(void)
{
	if (disk.ch != NULL)
		rig_unwatch(&disk);
	if (disk.img != NULL && disk.img->active)
		image_deactivate(disk.img, disk.why);
	image_close(disk.img);
	disk.img = NULL;
}

static int
model_open(void)
{
	int fd = open(at("model"), O_RDWR | O_CLOEXEC);

	assert_true(fd != -1);
	return fd;
}

static void
piece_is_model(int fd, uint64_t offset, uint64_t length)
{
	struct rig_io *rio = io_new(IO_READ, offset, length, 7);
	uint8_t *want = malloc(length), *is = rio->buf;
	uint64_t i;

	assert_non_null(want);
	assert_int_equal(pread(fd, want, length, (off_t)offset), length);
	rig_submit(rio);
	rig_wait(&disk);
	if (rio->error != 0)
		fail_msg("read of %llu at %#llx: %d",
		    (unsigned long long)length, (unsigned long long)offset,
		    rio->error);
	for (i = 0; i < length; i++)
		if (is[i] != want[i])
			fail_msg("at %#llx: %02x, not %02x",
			    (unsigned long long)(offset + i), is[i], want[i]);
	free(want);
	rig_io_free(rio);
}

void
disk_is_model(void)
{
	uint64_t offset, n;
	struct stat st;
	int fd = model_open();

	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_size, disk.img->size);
	/* Pieces that begin in the middle of things. */
	for (offset = 0; offset < disk.img->size; offset += n) {
		n = offset == 0 ? 100 * KiB + 512 : MiB;
		if (n > disk.img->size - offset)
			n = disk.img->size - offset;
		piece_is_model(fd, offset, n);
	}
	close(fd);
}

bool
disk_holds(uint64_t offset, uint64_t length, uint8_t byte)
{
	struct rig_io *rio = io_new(IO_READ, offset, length, 3);
	const uint8_t *p = rio->buf;
	bool holds;

	rig_submit(rio);
	rig_wait(&disk);
	holds = rio->error == 0 && p[0] == byte &&
	    memcmp(p, p + 1, length - 1) == 0;
	rig_io_free(rio);
	return holds;
}

int
disk_read(uint64_t offset, uint64_t length)
{
	return rig_do(io_new(IO_READ, offset, length, 2));
}

int
disk_write(uint64_t offset, uint64_t length)
{
	struct rig_io *rio = io_new(IO_WRITE, offset, length, 2);

	rig_fill(rio, 77);
	return rig_do(rio);
}

int
disk_discard(uint64_t offset, uint64_t length)
{
	return rig_do(rig_io_new(&disk, IO_DISCARD, offset, length, 0));
}

void
both_write(uint64_t offset, uint64_t length)
{
	struct rig_io *rio = io_new(IO_WRITE, offset, length, 5);
	int fd = model_open();

	rig_fill(rio, (unsigned)(length / 512));
	assert_int_equal(pwrite(fd, rio->buf, length, (off_t)offset), length);
	close(fd);
	assert_int_equal(rig_do(rio), 0);
}

void
both_discard(uint64_t offset, uint64_t length)
{
	void *zeroes = calloc(1, length);
	int fd = model_open();

	assert_non_null(zeroes);
	assert_int_equal(pwrite(fd, zeroes, length, (off_t)offset), length);
	close(fd);
	free(zeroes);
	assert_int_equal(disk_discard(offset, length), 0);
}

int
image_status(const char *name)
{
	return rig_shell(NULL, 0, "cd %s && qemu-img check -f qcow2 %s "
	    ">check.log 2>&1", dir, name);
}

void
image_is_clean(const char *name)
{
	char text[1024];
	int rc = image_status(name);

	if (rc == 0)
		return;
	rig_shell(text, sizeof(text), "head -c 1000 %s/check.log", dir);
	fail_msg("qemu-img check: %d: %s", rc, text);
}

void
image_is_model(const char *name)
{
	char text[1024];

	if (rig_shell(text, sizeof(text), "cd %s && qemu-img compare -f qcow2 "
	    "-F raw %s model 2>&1", dir, name) != 0)
		fail_msg("qemu-img compare: %s", text);
}

uint64_t
entry_at(const char *name, uint64_t guest)
{
	unsigned bits = (unsigned)(peek(name, 20) >> 32), entry = 3, version;
	uint64_t l1, l2;

	version = (unsigned)(peek(name, 0) & 0xffffffff);
	if (version == 3 && (peek(name, 72) & 16) != 0)
		entry = 4;
	l1 = peek(name, 40);
	l2 = peek(name, l1 + 8 * (guest >> (2 * bits - entry))) &
	    0x00fffffffffffe00ull;
	assert_true(l2 != 0);
	return l2 + ((guest >> bits & ((1ull << (bits - entry)) - 1)) <<
	    entry);
}

uint64_t
entry_of(const char *name, uint64_t guest)
{
	return peek(name, entry_at(name, guest));
}

void
make_source(const char *name)
{
	static uint8_t block[64 * KiB];
	uint64_t x = 1;
	unsigned i, k;
	int fd = open(at(name), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	assert_true(fd != -1);
	for (i = 0; i < 64; i++) {
		memset(block, i % 4 == 2 ? (int)i : 0, sizeof(block));
		for (k = 0; i % 4 < 2 && k < sizeof(block); k++) {
			x = x * 6364136223846793005u + 1442695040888963407u;
			if (i % 4 == 0 || k / 2048 % 2 == 0)
				block[k] = (uint8_t)(x >> 56);
		}
		assert_int_equal(write(fd, block, sizeof(block)),
		    sizeof(block));
	}
	close(fd);
}
