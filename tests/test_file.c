/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * test_file: what formats do to a file by blocking calls: reads across its
 * end, short and interrupted transfers, growth that reserves room and leaves
 * nothing behind when there is none.  What is refused at open is test_raw's.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "drivers/file.h"
#include "tests/driver_rig.h"

#define KiB 1024u
#define MiB (1024u * KiB)
#define ODD (192 * KiB + 8)	/* as qemu-img makes them */

static char path[512];
static char why[WHY_MAX];
static struct file f;
static unsigned char *buf;	/* 1 MiB, for direct I/O */

static int
setup(void **state)
{
	FILE *out;
	size_t i;

	(void)state;
	alarm(20);		/* whatever does not come to an end */
	rig_make_file(path, 0);
	out = fopen(path, "w");
	assert_non_null(out);
	for (i = 0; i < ODD; i++)
		fputc('x', out);
	assert_int_equal(fclose(out), 0);
	assert_int_equal(posix_memalign((void **)&buf, 4096, MiB), 0);
	memset(buf, 'b', MiB);
	if (file_open(&f, path, false, CACHE_NONE, why) != 0)
		fail_msg("%s", why);
	return 0;
}

/*
 * The calls, as they may also end.
 */
static struct {
	int  interrupt;		/* so many calls fail with EINTR */
	bool shorten;		/* a transfer is one sector at most */
	bool stuck;		/* a write writes nothing */
	int  fallocate;		/* errno of it */
	bool half;		/* ... having done half of it */
	unsigned block, memory;	/* what direct I/O must be; 0: as it is */
	bool silent;		/* statx() does not tell */
	unsigned blksize;	/* what the file system likes; 0: as it is */
	unsigned reads, writes;
} shim;

static bool
misaligned(const void *p, size_t bytes, off_t offset)
{
	if (shim.block == 0 ||
	    (((size_t)offset | bytes) % shim.block == 0 &&
	    (uintptr_t)p % shim.memory == 0))
		return false;
	errno = EINVAL;
	return true;
}

static bool
interrupted(void)
{
	if (shim.interrupt == 0)
		return false;
	shim.interrupt--;
	errno = EINTR;
	return true;
}

ssize_t
pread(int fd, void *to, size_t bytes, off_t offset)
{
	shim.reads++;
	if (interrupted() || misaligned(to, bytes, offset))
		return -1;
	if (shim.shorten && bytes > SECTOR)
		bytes = SECTOR;
	return syscall(SYS_pread64, fd, to, bytes, offset);
}

ssize_t
pwrite(int fd, const void *from, size_t bytes, off_t offset)
{
	shim.writes++;
	if (interrupted() || misaligned(from, bytes, offset))
		return -1;
	if (shim.stuck)
		return 0;
	if (shim.shorten && bytes > SECTOR)
		bytes = SECTOR;
	return syscall(SYS_pwrite64, fd, from, bytes, offset);
}

int
statx(int fd, const char *name, int flags, unsigned mask, struct statx *stx)
{
	int rc = (int)syscall(SYS_statx, fd, name, flags, mask, stx);

#ifdef STATX_DIOALIGN
	if (shim.block != 0) {
		stx->stx_mask |= STATX_DIOALIGN;
		stx->stx_dio_offset_align = shim.block;
		stx->stx_dio_mem_align = shim.memory;
	}
	if (shim.silent)
		stx->stx_mask &= ~STATX_DIOALIGN;
#endif
	return rc;
}

int
fstat(int fd, struct stat *st)
{
	int rc = (int)syscall(SYS_fstat, fd, st);

	if (shim.blksize != 0)
		st->st_blksize = shim.blksize;
	return rc;
}

int
ftruncate(int fd, off_t size)
{
	return interrupted() ? -1 : (int)syscall(SYS_ftruncate, fd, size);
}

int
fallocate(int fd, int mode, off_t offset, off_t bytes)
{
	if (interrupted())
		return -1;
	if (shim.fallocate == 0)
		return (int)syscall(SYS_fallocate, fd, mode, offset, bytes);
	if (shim.half)
		syscall(SYS_fallocate, fd, mode, offset, bytes / 2);
	errno = shim.fallocate;
	return -1;
}

static bool
all(const unsigned char *p, size_t bytes, unsigned char value)
{
	while (bytes > 0 && *p == value) {
		p++;
		bytes--;
	}
	return bytes == 0;
}

static struct stat
look(void)
{
	struct stat st;

	assert_int_equal(fstatat(AT_FDCWD, path, &st, 0), 0);
	return st;
}

static void
test_read_across_the_end(void **state)
{
	int i;

	(void)state;
	assert_int_equal(f.size, ODD);
	for (i = 0; i < 3; i++) {
		memset(&shim, 0, sizeof(shim));
		shim.interrupt = i == 1 ? 2 : 0;
		shim.shorten = i == 2;
		memset(buf, 'b', MiB);
		assert_int_equal(file_pread(&f, buf, 8 * KiB, 188 * KiB), 0);
		assert_true(all(buf, 4 * KiB + 8, 'x'));
		assert_true(all(buf + 4 * KiB + 8, 4 * KiB - 8, '\0'));
		assert_true(all(buf + 8 * KiB, 8 * KiB, 'b'));
	}
	memset(&shim, 0, sizeof(shim));
	assert_int_equal(file_pread(&f, buf, KiB, 10 * MiB), 0);
	assert_true(all(buf, KiB, '\0'));
	assert_int_equal(file_pread(&f, buf, KiB, 1), -EINVAL);
}

static void
test_write(void **state)
{
	(void)state;
	shim.shorten = true;
	shim.interrupt = 1;
	assert_int_equal(file_pwrite(&f, buf, 4 * KiB, 8 * KiB), 0);
	memset(&shim, 0, sizeof(shim));
	memset(buf, 0, MiB);
	assert_int_equal(file_pread(&f, buf, 12 * KiB, 4 * KiB), 0);
	assert_true(all(buf, 4 * KiB, 'x'));
	assert_true(all(buf + 4 * KiB, 4 * KiB, 'b'));
	assert_true(all(buf + 8 * KiB, 4 * KiB, 'x'));
	assert_int_equal(file_sync(&f), 0);

	shim.stuck = true;
	assert_int_equal(file_pwrite(&f, buf, 4 * KiB, 0), -ENOSPC);
	shim.stuck = false;
	assert_int_equal(file_pwrite(&f, buf, KiB, 1), -EINVAL);
}

static void
test_grow(void **state)
{
	(void)state;
	shim.interrupt = 1;
	assert_int_equal(file_grow(&f, MiB), 0);
	assert_int_equal(f.size, MiB);
	assert_int_equal(look().st_size, MiB);
	assert_true(look().st_blocks >= (MiB - 64 * KiB) / 512);
	assert_int_equal(file_pread(&f, buf, MiB, 0), 0);
	assert_true(all(buf, ODD, 'x'));
	assert_true(all(buf + ODD, MiB - ODD, '\0'));

	/* There already. */
	assert_int_equal(file_grow(&f, MiB), 0);
	assert_int_equal(look().st_size, MiB);
	assert_int_equal(file_grow(&f, UINT64_MAX), -EFBIG);
	assert_int_equal(f.size, MiB);

	shim.interrupt = 1;
	assert_int_equal(file_shrink(&f, 64 * KiB), 0);
	assert_int_equal(f.size, 64 * KiB);
	assert_int_equal(look().st_size, 64 * KiB);
}

static void
test_grow_without_room(void **state)
{
	blkcnt_t blocks;

	(void)state;
	/* The last sector, written whole: longer than f.size knows. */
	assert_int_equal(file_pwrite(&f, buf, SECTOR, 192 * KiB), 0);
	blocks = look().st_blocks;
	shim.fallocate = ENOSPC;
	shim.half = true;
	assert_int_equal(file_grow(&f, MiB), -ENOSPC);
	assert_int_equal(f.size, 192 * KiB + SECTOR);
	assert_int_equal(look().st_size, 192 * KiB + SECTOR);
	assert_int_equal(look().st_blocks, blocks);
	assert_int_equal(file_pread(&f, buf + 4 * KiB, SECTOR, 192 * KiB), 0);
	assert_true(all(buf + 4 * KiB, SECTOR, 'b'));
}

static void
test_grow_without_reserving(void **state)
{
	blkcnt_t blocks = look().st_blocks;

	(void)state;
	shim.fallocate = EOPNOTSUPP;
	assert_int_equal(file_grow(&f, MiB), 0);
	assert_int_equal(f.size, MiB);
	assert_int_equal(look().st_size, MiB);
	assert_true(look().st_blocks <= blocks + 8);
}

static void
test_discard(void **state)
{
	engine_discard *discard = file_engine_discard(&f);
	struct file ro;

	(void)state;
	assert_non_null(discard);
	assert_true(f.discard_granularity >= SECTOR);
	shim.interrupt = 1;
	assert_int_equal(file_discard(&f, 64 * KiB, 64 * KiB), 0);
	assert_int_equal(file_pread(&f, buf, 192 * KiB, 0), 0);
	assert_true(all(buf, 64 * KiB, 'x'));
	assert_true(all(buf + 64 * KiB, 64 * KiB, '\0'));
	assert_true(all(buf + 128 * KiB, 64 * KiB, 'x'));
	assert_int_equal(look().st_size, ODD);
	shim.fallocate = EOPNOTSUPP;
	assert_int_equal(discard(f.fd, 0, 64 * KiB), -EOPNOTSUPP);

	assert_int_equal(file_open(&ro, path, true, CACHE_NONE, why), 0);
	assert_null(file_engine_discard(&ro));
	assert_int_equal(file_discard(&ro, 0, 4 * KiB), -EOPNOTSUPP);
	assert_int_equal(file_pwrite(&ro, buf, KiB, 0), -EBADF);
	file_close(&ro);
}

static void
test_close(void **state)
{
	unsigned nr_fds = rig_count_fds();
	struct file g;

	(void)state;
	assert_int_equal(file_open(&g, "/nonexistent/image", true, CACHE_NONE,
	    why), -ENOENT);
	assert_int_equal(g.fd, -1);
	file_close(&g);
	assert_int_equal(file_open(&g, path, true, CACHE_DIRECTSYNC, why), 0);
	assert_int_equal(fcntl(g.fd, F_GETFL) & (O_DIRECT | O_DSYNC),
	    O_DIRECT | O_DSYNC);
	file_close(&g);
	file_close(&g);
	assert_int_equal(rig_count_fds(), nr_fds);
}

/*
 * Direct I/O that cannot do sectors.
 */

static void
test_alignment(void **state)
{
	static const struct { unsigned block, memory, is_block, is_memory; }
	cases[] = {
		{ 512, 4, 512, 512 },
		{ 512, 512, 512, 512 },
		{ 512, 4096, 512, 4096 },
		{ 1024, 512, 1024, 512 },
		{ 4096, 4, 4096, 512 },
		{ 4096, 512, 4096, 512 },
		{ 4096, 4096, 4096, 4096 },
	};
	struct file g;
	size_t i;

	(void)state;
	for (i = 0; i < 2 * sizeof(cases) / sizeof(cases[0]); i++) {
		shim.silent = i % 2 == 1;
		shim.blksize = 1024;
		shim.block = cases[i / 2].block;
		shim.memory = cases[i / 2].memory;
		if (file_open(&g, path, false, CACHE_NONE, why) != 0)
			fail_msg("%s", why);
		if (g.block_size != cases[i / 2].is_block ||
		    g.buffer_alignment != cases[i / 2].is_memory)
			fail_msg("case %zu: %u, %u", i, g.block_size,
			    g.buffer_alignment);
		assert_true(g.physical_block_size >= g.block_size);
		assert_true(g.discard_granularity >= g.block_size);
		file_close(&g);
	}
#ifdef STATX_DIOALIGN
	shim.silent = false;
	shim.block = 8192;
	assert_int_equal(file_open(&g, path, false, CACHE_NONE, why),
	    -EOPNOTSUPP);
	assert_non_null(strstr(why, "goes by 8192 bytes"));
	assert_non_null(strstr(why, "move the image"));
	shim.block = 512;
	shim.memory = 0;
	assert_int_equal(file_open(&g, path, false, CACHE_NONE, why), -EINVAL);
#endif
}

/* Any sectors, from and to any of them in memory. */
static void
test_blocks(void **state)
{
	static unsigned char model[192 * KiB];
	unsigned i, at, bytes, from;
	unsigned char *mine;

	(void)state;
	mine = aligned_alloc(4096, 64 * KiB);
	assert_non_null(mine);
	assert_int_equal(file_shrink(&f, sizeof(model)), 0);
	memset(model, 'x', sizeof(model));
	shim.block = shim.memory = f.block_size = f.buffer_alignment = 4096;
	srand(1);
	for (i = 0; i < 400; i++) {
		bytes = (1 + (unsigned)rand() % 40) * 512;
		at = (unsigned)rand() % ((sizeof(model) - bytes) / 512) * 512;
		from = (unsigned)rand() % 9 * 512;
		memset(mine, 0, 64 * KiB);
		if (i % 2 == 0) {
			memset(mine + from, 'A' + (int)(i % 26), bytes);
			assert_int_equal(file_pwrite(&f, mine + from, bytes,
			    at), 0);
			memcpy(model + at, mine + from, bytes);
		} else {
			assert_int_equal(file_pread(&f, mine + from, bytes,
			    at), 0);
			assert_memory_equal(mine + from, model + at, bytes);
			assert_int_equal(mine[from + bytes], 0);
		}
	}
	memset(&shim, 0, sizeof(shim));
	assert_int_equal(file_pread(&f, buf, sizeof(model), 0), 0);
	assert_memory_equal(buf, model, sizeof(model));
	/* Whole blocks cost what they did, a part of one a read more. */
	shim.reads = shim.writes = 0;
	assert_int_equal(file_pwrite(&f, buf, 64 * KiB, 4 * KiB), 0);
	assert_int_equal(shim.reads * 100 + shim.writes, 1);
	assert_int_equal(file_pwrite(&f, buf, 512, 512), 0);
	assert_int_equal(shim.reads * 100 + shim.writes, 102);
	/* What cannot be read is not written either. */
	shim.block = shim.memory = 8192;
	assert_int_equal(file_pwrite(&f, buf, 512, 512), -EINVAL);
	assert_int_equal(shim.writes, 2);
	free(mine);
}

/* A file may end inside a block. */
static void
test_block_at_the_end(void **state)
{
	(void)state;
	f.block_size = f.buffer_alignment = 4096;
	assert_int_equal(file_pread(&f, buf, 8 * KiB, 191 * KiB), 0);
	assert_true(all(buf, KiB + 8, 'x'));
	assert_true(all(buf + KiB + 8, 7 * KiB - 8, '\0'));
	memset(buf, 'b', 4 * KiB);
	assert_int_equal(file_pwrite(&f, buf, 512, 192 * KiB + 512), 0);
	assert_int_equal(look().st_size, 196 * KiB);
	assert_int_equal(file_pread(&f, buf, 4 * KiB, 192 * KiB), 0);
	assert_true(all(buf, 8, 'x'));
	assert_true(all(buf + 8, 504, '\0'));
	assert_true(all(buf + 512, 512, 'b'));
	assert_true(all(buf + KiB, 3 * KiB, '\0'));
}

static int
teardown(void **state)
{
	(void)state;
	alarm(0);
	memset(&shim, 0, sizeof(shim));
	file_close(&f);
	free(buf);
	return unlink(path);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_read_across_the_end),
		TEST(test_write),
		TEST(test_grow),
		TEST(test_grow_without_room),
		TEST(test_grow_without_reserving),
		TEST(test_discard),
		TEST(test_close),
		TEST(test_alignment),
		TEST(test_blocks),
		TEST(test_block_at_the_end),
	};

	return cmocka_run_group_tests_name("file", tests, NULL, NULL);
}
