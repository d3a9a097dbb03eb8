/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * test_qcow2_bad: images that are damaged, or made to do damage.  They open,
 * because what is wrong is found only in use; then the guest gets an error,
 * nothing of the metadata is written over, and a version 3 image is marked.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/io_tap.h"
#include "tests/qcow2_rig.h"

/* Of an image of 64 KiB clusters whose first two are written. */
#define HEADER    0x00000u
#define REFTABLE  0x10000u
#define REFBLOCK  0x20000u
#define L1        0x30000u
#define L2        0x40000u
#define DATA      0x50000u
#define END       0x70000u

static uint8_t before[END];

static void
make(const char *compat)
{
	run("rm -f a; qemu-img create -q -f qcow2 -o compat=%s a 1G; qemu-io "
	    "-f qcow2 -c 'write -P 1 0 64k' -c 'write -P 2 64k 64k' a",
	    compat);
	assert_int_equal(peek("a", REFTABLE), REFBLOCK);
	assert_int_equal(peek("a", L1), 1ull << 63 | L2);
	assert_int_equal(peek("a", L2 + 8), 1ull << 63 | (DATA + 0x10000));
}

static void
file_read(uint8_t *buf)
{
	int fd = open(at("a"), O_RDONLY | O_CLOEXEC);

	assert_true(fd != -1);
	assert_int_equal(pread(fd, buf, END, 0), END);
	close(fd);
}

static bool
is_marked(void)
{
	return (peek("a", 72) & 2) != 0;
}

/* All tables are as they were, but for the feature bits of the header. */
static void
metadata_is_left(uint64_t from, uint64_t to)
{
	static uint8_t now[END];
	uint64_t i;

	file_read(now);
	for (i = from; i < to; i++)
		if ((i < 72 || i >= 96) && now[i] != before[i])
			fail_msg("%#llx was %02x, is %02x",
			    (unsigned long long)i, before[i], now[i]);
}

/*
 * Entries that point to where guest data may not go.
 */

static const struct attack {
	const char *name;
	uint64_t    at;
	const char *hex;	/* bytes written there */
} attacks[] = {
	{ "L2 entry: reftable", L2 + 16, "8000000000010000" },
	{ "L2 entry: refblock", L2 + 16, "8000000000020000" },
	{ "L2 entry: L1 table", L2 + 16, "8000000000030000" },
	{ "L2 entry: its own table", L2 + 16, "8000000000040000" },
	{ "L2 entry: not aligned", L2 + 16, "8000000000052a00" },
	{ "L2 entry, as if shared: L1 table", L2 + 16, "0000000000030000" },
	{ "zero flag: L1 table", L2 + 16, "8000000000030001" },
	{ "compressed: L1 table", L2 + 16, "4000000000030000" },
	{ "compressed: before its table", L2 + 16, "404000000003ff00" },
	{ "L1 entry: reftable", L1, "8000000000010000" },
	{ "L1 entry: refblock", L1, "8000000000020000" },
	{ "L1 entry: itself", L1, "8000000000030000" },
	{ "L1 entry: not aligned", L1, "8000000000040200" },
};

static void
attack(const struct attack *a, const char *compat, bool discard)
{
	int rc;

	print_message("%s, version %s, %s\n", a->name, compat, discard ?
	    "discard" : "write");
	make(compat);
	poke("a", a->at, a->hex);
	file_read(before);
	disk.discard = true;
	if (rig_image(&disk, "qcow2", at("a"), false, CACHE_NONE) != 0)
		return;			/* it was seen at once */
	if (image_activate(disk.img, disk.why) != 0) {
		disk_abandon();
		metadata_is_left(0, DATA);
		return;
	}
	rig_watch(&disk, 8);
	if (discard && disk.img->discard_granularity == 0)
		rc = -EIO;
	else if (discard)
		rc = disk_discard(128 * KiB, 64 * KiB);
	else
		rc = disk_write(128 * KiB + 4096, 4096);
	rig_flush(&disk);
	disk_abandon();
	metadata_is_left(0, L2);
	if (discard)
		return;
	if (rc != -EIO)
		fail_msg("%s: %d", a->name, rc);
	metadata_is_left(L2, DATA);
	if (compat[0] == '1' && !is_marked())
		fail_msg("%s: the image is not marked corrupt", a->name);
}

static void
test_overlaps(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(attacks) / sizeof(attacks[0]); i++) {
		attack(&attacks[i], "1.1", false);
		attack(&attacks[i], "0.10", strstr(attacks[i].name, "zero") !=
		    NULL);
		attack(&attacks[i], "1.1", true);
	}
}

/* Offset 0 is the header, and means that there is none. */
static void
test_offset_zero(void **state)
{
	(void)state;
	make("1.1");
	poke("a", L2 + 16, "8000000000000000");
	file_read(before);
	disk_open("a", false);
	disk_write(128 * KiB, 4096);
	rig_flush(&disk);
	disk_abandon();
	metadata_is_left(0, REFTABLE);
}

/* Refcounts that call the metadata free. */
static void
refcounts(const char *name, uint64_t from, uint64_t to)
{
	static const uint8_t zeroes[64 * KiB];
	int fd, rc = -EIO;

	make("1.1");
	fd = open(at("a"), O_WRONLY | O_CLOEXEC);
	assert_true(fd != -1);
	assert_int_equal(pwrite(fd, zeroes, to - from, (off_t)from), to -
	    from);
	close(fd);
	file_read(before);
	disk.discard = true;
	if (rig_image(&disk, "qcow2", at("a"), false, CACHE_NONE) != 0)
		return;
	if (image_activate(disk.img, disk.why) == 0) {
		rig_watch(&disk, 8);
		rc = disk_write(MiB, 4 * MiB);
		rig_flush(&disk);
	}
	disk_abandon();
	metadata_is_left(0, REFTABLE);
	metadata_is_left(L1, L1 + 64 * KiB);
	if (rc == 0 && peek("a", REFTABLE) == before[0])
		fail_msg("%s: written", name);
}

/* Guest data is in the first two clusters; nobody may write over them. */
static void
test_refcounts(void **state)
{
	(void)state;
	refcounts("no refcount block", REFTABLE, REFTABLE + 8);
	refcounts("all free", REFBLOCK, REFBLOCK + 64 * KiB);
	refcounts("all but the header free", REFBLOCK + 2, REFBLOCK +
	    64 * KiB);
	refcounts("L2 table free", REFBLOCK + 8, REFBLOCK + 10);
}

/* Far away, behind the end of what a file can be. */
static void
test_far_away(void **state)
{
	static const char *const entries[] = {
		"80fffffffffe0000", "8000400000000000", "0000000100000000",
	};
	size_t i;

	(void)state;
	for (i = 0; i < 3; i++) {
		make("1.1");
		poke("a", L2 + 16, entries[i]);
		file_read(before);
		disk_open("a", false);
		disk_read(128 * KiB, 64 * KiB);
		disk_write(128 * KiB + 512, 512);
		disk_discard(128 * KiB, 64 * KiB);
		rig_flush(&disk);
		assert_true(disk_holds(0, 64 * KiB, 1));
		disk_abandon();
		metadata_is_left(0, REFTABLE);
	}
}

/*
 * Compressed data.
 */

static void
spoil(const char *type, const char *how)
{
	uint64_t entry, where;

	run("rm -f a; qemu-img convert -c -f raw -O qcow2 -o "
	    "compression_type=%s source a", type);
	where = entry_at("a", 2 * 64 * KiB);
	entry = peek("a", where);
	assert_true((entry >> 62 & 1) == 1);
	if (strcmp(how, "far") == 0)
		poke("a", where + 2, "ffff");	/* beyond the end */
	else if (strcmp(how, "stream") == 0)
		poke("a", entry & ((1ull << 54) - 1), "ffffffffffffffffffff");
	else
		poke("a", where, "40");		/* only one sector long */
}

/* R13: that cluster cannot be read, the others can. */
static void
test_compressed(void **state)
{
	static const char *const types[] = { "zlib", "zstd" };
	static const char *const hows[] = { "far", "stream" };
	size_t i, k;

	(void)state;
	make_source("source");
	for (i = 0; i < 2; i++)
		for (k = 0; k < 2; k++) {
			spoil(types[i], hows[k]);
			disk_open("a", false);
			assert_int_equal(disk_read(128 * KiB, 512), -EIO);
			assert_int_equal(disk_read(64 * KiB, 128 * KiB), -EIO);
			assert_int_equal(disk_read(0, 128 * KiB), 0);
			assert_int_equal(disk_read(192 * KiB, MiB), 0);
			/* The rest of it would be lost. */
			assert_int_equal(disk_write(130 * KiB, 512), -EIO);
			assert_int_equal(disk_write(192 * KiB, 512), 0);
			assert_int_equal(disk_read(128 * KiB, 512), -EIO);
			disk_abandon();
		}
}

/*
 * Subclusters.
 */

/* R15: one that both has a place and is zeroes; and bits without a place. */
static void
test_subclusters(void **state)
{
	uint64_t where;

	(void)state;
	run("qemu-img create -q -f qcow2 -o extended_l2=on,cluster_size=128k "
	    "a 4M; qemu-io -f qcow2 -c 'write -P 1 0 8k' -c 'write -P 2 128k "
	    "128k' -c 'write -z -u 256k 4k' a");
	where = entry_at("a", 0);
	assert_int_equal(peek("a", where + 8), 3);
	poke("a", where + 8, "0000000100000003");
	disk_open("a", false);
	assert_int_equal(disk_read(0, 512), -EIO);
	assert_int_equal(disk_write(512, 512), -EIO);
	assert_true(disk_holds(128 * KiB, 128 * KiB, 2));
	disk_abandon();

	where = entry_at("a", 256 * KiB);
	assert_int_equal(peek("a", where), 0);
	assert_int_equal(peek("a", where + 8), 1ull << 32);
	poke("a", where + 8, "0000000000000002");
	run("cp a copy");
	disk_open("a", true);
	assert_int_equal(disk_read(256 * KiB + 4096, 512), -EIO);
	assert_true(disk_holds(128 * KiB, 128 * KiB, 2));
	disk_abandon();
	run("cmp a copy");
}

/* Only the subcluster that is written gets a place, nothing is copied. */
static void
test_one_subcluster(void **state)
{
	uint64_t where;

	(void)state;
	run("truncate -s 4M b; qemu-io -f raw -c 'write -P 0xaa 0 4M' b; "
	    "qemu-img create -q -f qcow2 -o extended_l2=on,cluster_size=128k "
	    "-b b -F raw a 4M; qemu-io -f qcow2 -c 'write -P 1 2M 4k' a");
	model_make("a");
	disk_open("a", false);
	both_write(12 * KiB, 4 * KiB);
	both_write(128 * KiB + 4608, 512);
	both_write(256 * KiB + 2048, 8 * KiB);
	both_discard(384 * KiB, 128 * KiB);
	both_write(384 * KiB + 60 * KiB, 512);
	disk_is_model();
	disk_close();
	image_is_clean("a");
	image_is_model("a");

	where = entry_at("a", 0);
	assert_int_equal(peek("a", where + 8), 1u << 3);
	assert_int_equal(peek("a", where + 16 + 8), 1u << 1);
	assert_int_equal(peek("a", where + 32 + 8), 7u);
	assert_int_equal(peek("a", where + 48 + 8),
	    (0xffffffffull ^ 1u << 15) << 32 | 1u << 15);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_overlaps),
		TEST(test_offset_zero),
		TEST(test_refcounts),
		TEST(test_far_away),
		TEST(test_compressed),
		TEST(test_subclusters),
		TEST(test_one_subcluster),
	};

	setenv("TMPDIR", "/dev/shm", 0);
	tap.real_aio = true;
	return cmocka_run_group_tests_name("qcow2 bad images", tests, NULL,
	    NULL);
}
