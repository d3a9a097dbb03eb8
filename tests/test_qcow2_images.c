/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * test_qcow2_images: what qemu-img and qemu-io have written is read right,
 * and they read right what the driver has written, for each feature of the
 * format; and what the driver leaves alone.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/io_tap.h"
#include "tests/qcow2_rig.h"

/* Data, zeroes of both kinds, and what has been given back. */
#define EDIT(to) "qemu-io -d unmap -f qcow2 -c 'write -P 5 60k 300k' " \
	"-c 'write -z 1M 300k' -c 'write -P 6 1100k 50k' " \
	"-c 'write -z -u 1500k 300k' -c 'discard 128k 64k' " \
	"-c 'write -P 7 3000k 1000k' " to

/*
 * Both ways.
 */

static const struct feature {
	const char *name;
	const char *make;	/* makes 'a', with 'source' there */
} features[] = {
	{ "version 2", "C -o compat=0.10 a 4M; " EDIT("a") },
	{ "version 3", "C a 4M; " EDIT("a") },
	{ "empty", "C a 4M" },
	{ "512", "C -o cluster_size=512 a 4000k; " EDIT("a") },
	{ "4k", "C -o cluster_size=4k a 4097k; " EDIT("a") },
	{ "1M", "C -o cluster_size=1M a 4097k; " EDIT("a") },
	{ "2M", "C -o cluster_size=2M a 4099k; " EDIT("a") },
	{ "odd size", "C a 4195840; " EDIT("a") },
	{ "refcounts of 1 bit", "C -o refcount_bits=1 a 4M; " EDIT("a") },
	{ "2 bits", "C -o refcount_bits=2,cluster_size=1k a 4M; " EDIT("a") },
	{ "4 bits", "C -o refcount_bits=4 a 4M; " EDIT("a") },
	{ "8 bits", "C -o refcount_bits=8,cluster_size=512 a 4M; " EDIT("a") },
	{ "32 bits", "C -o refcount_bits=32 a 4M; " EDIT("a") },
	{ "64 bits", "C -o refcount_bits=64,cluster_size=2k a 4M; "
	    EDIT("a") },
	{ "lazy refcounts", "C -o lazy_refcounts=on a 4M; " EDIT("a") },
	{ "subclusters", "C -o extended_l2=on a 4M; " EDIT("a") },
	{ "subclusters of 512", "C -o extended_l2=on,cluster_size=16k a 4M; "
	    EDIT("a") },
	{ "subclusters of 64k", "C -o extended_l2=on,cluster_size=2M a 5M; "
	    EDIT("a") },
	{ "zlib", "qemu-img convert -c -f raw -O qcow2 source a" },
	{ "zlib, edited", "qemu-img convert -c -f raw -O qcow2 source a; "
	    EDIT("a") },
	{ "zlib in version 2", "qemu-img convert -c -f raw -O qcow2 -o "
	    "compat=0.10,cluster_size=4k source a; " EDIT("a") },
	{ "zstd", "qemu-img convert -c -f raw -O qcow2 -o "
	    "compression_type=zstd source a" },
	{ "zstd, 2M", "qemu-img convert -c -f raw -O qcow2 -o "
	    "compression_type=zstd,cluster_size=2M source a; " EDIT("a") },
	{ "zlib, 1 bit", "qemu-img convert -c -f raw -O qcow2 -o "
	    "refcount_bits=1,cluster_size=8k source a; " EDIT("a") },
	{ "zstd and subclusters", "qemu-img convert -c -f raw -O qcow2 -o "
	    "compression_type=zstd,extended_l2=on source a; " EDIT("a") },
	{ "metadata", "C -o preallocation=metadata a 4M" },
	{ "metadata, edited", "C -o preallocation=metadata,cluster_size=4k a "
	    "4M; " EDIT("a") },
	{ "falloc", "C -o preallocation=falloc a 4M; " EDIT("a") },
	{ "full", "C -o preallocation=full a 4M; " EDIT("a") },
	{ "raw below", "C -b source -F raw a 4M; " EDIT("a") },
	{ "shorter below", "head -c 1000k source >b; C -b b -F raw a 4M; "
	    EDIT("a") },
	{ "longer below", "C -b source -F raw a 3997k; qemu-io -f qcow2 "
	    "-c 'write -P 9 3900k 97k' a" },
	{ "qcow2 below", "C -o cluster_size=4k c 4M; " EDIT("c") "; "
	    "C -b c -F qcow2 -o cluster_size=1M a 5M; qemu-io -f qcow2 -c "
	    "'write -P 9 1M 10k' -c 'write -z 1400k 64k' a" },
	{ "three below", "C -b source -F raw d 2M; qemu-io -f qcow2 -c "
	    "'write -P 4 1500k 500k' d; C -b d -F qcow2 -o "
	    "extended_l2=on c 3M; qemu-io -f qcow2 -c "
	    "'write -P 9 1M 10k' -c 'write -z 1400k 64k' c; "
	    "C -b c -F qcow2 -o compat=0.10 b 4M; qemu-io -f qcow2 -c "
	    "'write -P 3 2500k 600k' b; C -b b -F qcow2 a 4M" },
	{ "subclusters on top", "C -b source -F raw -o extended_l2=on,"
	    "cluster_size=128k a 4M; " EDIT("a") },
	{ "compressed below", "qemu-img convert -c -f raw -O qcow2 -o "
	    "compression_type=zstd source b; C -b b -F qcow2 -o "
	    "cluster_size=512 a 4M; " EDIT("a") },
	{ "snapshots", "C a 4M; " EDIT("a") "; qemu-img snapshot -c s1 a; "
	    "qemu-io -f qcow2 -c 'write -P 8 0 1M' a; qemu-img snapshot -c s2 "
	    "a" },
	{ "snapshots, subclusters", "C -o extended_l2=on,cluster_size=32k a "
	    "4M; " EDIT("a") "; qemu-img snapshot -c s1 a" },
	{ "snapshots, compressed", "qemu-img convert -c -f raw -O qcow2 "
	    "source a; qemu-img snapshot -c s1 a" },
	{ "resized", "C -o cluster_size=512 a 1M; qemu-io -f qcow2 -c "
	    "'write -P 1 0 1M' a; qemu-img resize -q -f qcow2 a 5M; "
	    EDIT("a") },
};

/* C stands for the longest word. */
static void
make(const char *commands)
{
	run("C() { qemu-img create -q -f qcow2 \"$@\"; }; set -e; %s",
	    commands);
}

/* Some of all ways to hit a cluster; the same whatever its size. */
static void
write_all_over(uint64_t size, uint64_t cluster)
{
	static const uint64_t places[][2] = {
		{ 0, 512 }, { 64 * KiB - 512, 1024 }, { 200 * KiB, 4096 },
		{ 256 * KiB, 64 * KiB }, { 700 * KiB + 512, 300 * KiB },
		{ 1200 * KiB, 512 }, { 1210 * KiB, 128 * KiB },
		{ 2 * MiB - 512, 512 }, { 2 * MiB, MiB },
		{ 3400 * KiB, 3 * 512 },
	};
	uint64_t first;
	size_t i;

	for (i = 0; i < sizeof(places) / sizeof(places[0]); i++)
		both_write(places[i][0], places[i][1]);
	both_write(size - 512, 512);
	both_write(cluster - 512, cluster > MiB ? MiB : cluster + 512);
	first = (MiB + cluster - 1) / cluster * cluster;
	if (peek("a", 0) != 0x514649fb00000002ull)
		both_discard(first, cluster);
	both_write(first, 512);
}

static void
test_both_ways(void **state)
{
	const struct feature *f;
	unsigned cluster_bits;
	size_t i;

	(void)state;
	make_source("source");
	for (i = 0; i < sizeof(features) / sizeof(features[0]); i++) {
		f = &features[i];
		print_message("%s\n", f->name);
		run("rm -f a b c d copy");
		make(f->make);
		cluster_bits = (unsigned)(peek("a", 20) >> 32);
		model_make("a");
		run("cp a copy");
		disk_open("a", true);
		disk_is_model();
		disk_close();
		run("cmp a copy");

		disk_open("a", false);
		assert_int_equal(disk.img->discard_granularity,
		    1u << cluster_bits);
		disk_is_model();
		write_all_over(disk.img->size, 1ull << cluster_bits);
		disk_is_model();
		disk_close();
		image_is_clean("a");
		image_is_model("a");
		disk_open("a", true);
		disk_is_model();
		disk_close();
	}
}

/* Snapshots show what they did, also when their tables lie anywhere. */
static void
test_snapshots(void **state)
{
	uint64_t table;

	(void)state;
	make("C a 4M; " EDIT("a") "; qemu-img snapshot -c s1 a; qemu-img "
	    "convert -l s1 -f qcow2 -O raw a s1");
	model_make("a");
	disk_open("a", false);
	write_all_over(4 * MiB, 64 * KiB);
	disk_close();
	image_is_clean("a");
	image_is_model("a");
	run("qemu-img convert -l s1 -f qcow2 -O raw a s1.now; cmp s1 s1.now");

	/* R28: the guest's disk does not need them. */
	table = peek("a", 64);
	poke("a", table, "0000000000400200");
	disk_open("a", false);
	disk_is_model();
	both_write(100 * KiB, 200 * KiB);
	both_discard(MiB, 128 * KiB);
	disk_is_model();
	disk_close();
	image_is_model("a");
}

/*
 * Places.
 */

/* R8: a read across the end of the backing file, at all distances. */
static void
test_short_backing(void **state)
{
	uint64_t edge = MiB + 3 * 512, at_;

	(void)state;
	make("truncate -s 1050112 b; qemu-io -f raw -c 'write -P 0xaa 0 "
	    "1050112' b; C -b b -F raw a 8M");
	model_make("a");
	disk_open("a", false);
	disk_is_model();
	assert_int_equal(disk_read(0, 2 * MiB), 0);
	for (at_ = edge - 2048; at_ < edge + 1024; at_ += 512)
		assert_int_equal(disk_read(at_, 2048), 0);
	assert_true(disk_holds(edge - 512, 512, 0xaa));
	assert_true(disk_holds(edge, 6 * MiB, 0));

	/* Copied on write: nothing of the one side on the other. */
	both_write(edge - 1024, 512);
	both_write(edge + 1024, 512);
	disk_is_model();
	disk_close();
	image_is_clean("a");
	image_is_model("a");
}

/* What lies beyond the end of the host's file is zeroes. */
static void
test_short_file(void **state)
{
	uint64_t host;

	(void)state;
	make("C a 4M; qemu-io -f qcow2 -c 'write -P 1 0 64k' -c "
	    "'write -P 2 64k 64k' -c 'write -P 3 128k 64k' a");
	host = entry_of("a", 64 * KiB) & 0xfffffffffffe00ull;
	run("truncate -s %llu a", (unsigned long long)host + 5 * 512 + 100);
	disk_open("a", false);
	assert_true(disk_holds(0, 64 * KiB, 1));
	assert_true(disk_holds(64 * KiB, 5 * 512, 2));
	assert_true(disk_holds(64 * KiB + 6 * 512, 58 * KiB, 0));
	assert_true(disk_holds(128 * KiB, 64 * KiB, 0));
	assert_int_equal(disk_read(0, 2 * MiB), 0);
	assert_int_equal(disk_write(128 * KiB + 4096, 4096), 0);
	assert_true(disk_holds(128 * KiB, 4096, 0));
	assert_true(disk_holds(136 * KiB, 56 * KiB, 0));
	disk_close();
	image_is_clean("a");
}

/* R31: written nowhere yet, although each cluster has its place. */
static void
test_preallocated(void **state)
{
	struct stat before, after;

	(void)state;
	make("C -o preallocation=metadata a 16M");
	model_make("a");
	assert_int_equal(stat(at("a"), &before), 0);
	disk_open("a", false);
	assert_true(disk_holds(0, 16 * MiB, 0));
	both_write(5 * MiB + 512, 512);
	both_write(6 * MiB, MiB);
	disk_is_model();
	disk_close();
	assert_int_equal(stat(at("a"), &after), 0);
	assert_int_equal(before.st_size, after.st_size);
	image_is_clean("a");
	image_is_model("a");
}

/*
 * Zeroes.
 */

/* R17: the flag hides what the cluster holds, and goes when it is written. */
static void
test_zero_flag(void **state)
{
	(void)state;
	make("C a 1M; qemu-io -f qcow2 -c 'write -P 0xaa 0 128k' -c "
	    "'write -z 0 64k' -c 'write -z -u 256k 64k' a");
	model_make("a");
	assert_int_equal(entry_of("a", 0) & 1, 1);
	assert_true((entry_of("a", 0) & 0xfffffffffffe00ull) != 0);
	disk_open("a", false);
	disk_is_model();
	both_write(4096, 512);
	both_write(256 * KiB + 512, 4096);
	disk_is_model();
	disk_close();
	image_is_clean("a");
	image_is_model("a");
	assert_int_equal(entry_of("a", 0) & 1, 0);
	assert_int_equal(entry_of("a", 256 * KiB) & 1, 0);
}

/* D8: a discarded cluster shows nothing of the backing file. */
static void
test_discard_backed(void **state)
{
	static const char *const options[] = {
		"compat=1.1", "extended_l2=on", "cluster_size=4k",
	};
	size_t i;

	(void)state;
	make("truncate -s 4M b; qemu-io -f raw -c 'write -P 0xaa 0 4M' b");
	for (i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
		run("rm -f a; qemu-img create -q -f qcow2 -o %s -b b -F raw a "
		    "4M; qemu-io -f qcow2 -c 'write -P 1 64k 128k' a",
		    options[i]);
		model_make("a");
		disk_open("a", false);
		both_discard(64 * KiB, 64 * KiB);	/* has a cluster */
		both_discard(512 * KiB, 64 * KiB);	/* has none */
		disk_is_model();
		assert_int_equal(rig_flush(&disk), 0);
		disk_is_model();
		both_write(520 * KiB, 512);
		disk_is_model();
		disk_close();
		image_is_clean("a");
		image_is_model("a");
	}
	/* Version 2 has no flag for that: zeroes or as it was, in one way. */
	make("rm -f a; C -o compat=0.10 -b b -F raw a 4M; "
	    "qemu-io -f qcow2 -c 'write -P 1 64k 128k' a");
	disk_open("a", false);
	if (disk.img->discard_granularity != 0) {
		assert_int_equal(disk_discard(64 * KiB, 64 * KiB), 0);
		assert_true(disk_holds(64 * KiB, 64 * KiB, 0) ||
		    disk_holds(64 * KiB, 64 * KiB, 1));
	}
	assert_true(disk_holds(128 * KiB, 64 * KiB, 1));
	disk_close();
	image_is_clean("a");
	model_make("a");
	disk_open("a", false);
	disk_is_model();
	disk_close();
}

/* Given back to the file system, too, and used again. */
static void
test_discard_frees(void **state)
{
	struct stat full, less, again;

	(void)state;
	make("C a 16M; qemu-io -f qcow2 -c 'write -P 1 0 16M' a");
	assert_int_equal(stat(at("a"), &full), 0);
	disk_open("a", false);
	assert_int_equal(disk_discard(0, 12 * MiB), 0);
	disk_close();
	image_is_clean("a");
	assert_int_equal(stat(at("a"), &less), 0);
	assert_true(less.st_blocks <= full.st_blocks -
	    (blkcnt_t)(11 * MiB / 512));
	disk_open("a", false);
	assert_true(disk_holds(0, 12 * MiB, 0));
	assert_int_equal(disk_write(0, 12 * MiB), 0);
	disk_close();
	image_is_clean("a");
	assert_int_equal(stat(at("a"), &again), 0);
	assert_in_range(again.st_size, 1, full.st_size + MiB);
}

/*
 * Compressed clusters.
 */

/* R12: they share host clusters; each goes alone. */
static void
test_compressed(void **state)
{
	static const char *const types[] = { "zlib", "zstd" };
	size_t i;

	(void)state;
	make_source("source");
	for (i = 0; i < 2; i++) {
		run("rm -f a; qemu-img convert -c -f raw -O qcow2 -o "
		    "compression_type=%s source a", types[i]);
		model_make("a");
		disk_open("a", false);
		both_write(64 * KiB, 512);
		both_write(192 * KiB - 512, 1024);
		both_discard(320 * KiB, 64 * KiB);
		disk_is_model();
		assert_int_equal(rig_flush(&disk), 0);
		both_write(MiB, MiB);
		both_discard(3 * MiB, MiB);
		disk_is_model();
		disk_close();
		image_is_clean("a");
		image_is_model("a");
	}
}

/*
 * What is left alone, and what is not.
 */

/* R22: a bit that we know nothing of goes with the first write only. */
static void
test_autoclear(void **state)
{
	(void)state;
	make("C a 4M; " EDIT("a"));
	poke("a", 80, "80");
	poke("a", 88, "80");
	disk_open("a", true);
	assert_int_equal(disk_read(0, MiB), 0);
	disk_close();
	disk_open("a", false);
	assert_int_equal(disk_read(0, MiB), 0);
	assert_int_equal(rig_flush(&disk), 0);
	disk_close();
	assert_int_equal(peek("a", 88) >> 56, 0x80);

	disk_open("a", false);
	assert_int_equal(disk_write(60 * KiB, 512), 0);
	assert_int_equal(peek("a", 88), 0);
	disk_close();
	assert_int_equal(peek("a", 88), 0);
	assert_int_equal(peek("a", 80) >> 56, 0x80);	/* compatible */

	poke("a", 88, "80");
	disk_open("a", false);
	assert_int_equal(disk_discard(0, 64 * KiB), 0);
	disk_close();
	assert_int_equal(peek("a", 88), 0);
}

/* A dirty bitmap says nothing any more once somebody else has written. */
static void
test_bitmaps(void **state)
{
	uint64_t extensions;

	(void)state;
	make("C a 4M; " EDIT("a") "; qemu-img bitmap --add a b0; qemu-io "
	    "-f qcow2 -c 'write -P 1 0 64k' a");
	extensions = peek("a", 112);
	assert_int_equal(peek("a", 88), 1);
	model_make("a");
	disk_open("a", false);
	disk_is_model();
	both_write(MiB, 64 * KiB);
	disk_close();
	assert_int_equal(peek("a", 88), 0);
	assert_int_equal(peek("a", 112), extensions);
	image_is_model("a");
	assert_true(image_status("a") == 0 || image_status("a") == 3);
}

/* First writes one after the other lie one after the other. */
static void
test_contiguous(void **state)
{
	static const struct { const char *options; unsigned most; } cases[] = {
		{ "cluster_size=64k", 3 },
		{ "cluster_size=2M", 3 },
		{ "extended_l2=on,cluster_size=128k", 3 },
		/* 32 L2 tables, 8 blocks, and who came first at each */
		{ "cluster_size=4k", 128 },
	};
	struct rig_io *rio[4];
	char text[32];
	uint64_t offset;
	size_t i, k;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		run("rm -f a; qemu-img create -q -f qcow2 -o %s a 64M",
		    cases[i].options);
		disk_open("a", false);
		for (offset = 0; offset < 64 * MiB; offset += MiB) {
			for (k = 0; k < 4; k++) {
				rio[k] = rig_io_new(&disk, IO_WRITE, offset +
				    k * MiB / 4, MiB / 4, 64);
				rig_fill(rio[k], 1);
				rig_submit(rio[k]);
			}
			rig_wait(&disk);
			for (k = 0; k < 4; k++) {
				assert_int_equal(rio[k]->error, 0);
				rig_io_free(rio[k]);
			}
		}
		disk_close();
		image_is_clean("a");
		rig_shell(text, sizeof(text), "qemu-img map --output=json -f "
		    "qcow2 %s | grep -c offset", at("a"));
		if (strtoul(text, NULL, 10) > cases[i].most)
			fail_msg("%s: %s pieces", cases[i].options, text);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_both_ways),
		TEST(test_snapshots),
		TEST(test_short_backing),
		TEST(test_short_file),
		TEST(test_preallocated),
		TEST(test_zero_flag),
		TEST(test_discard_backed),
		TEST(test_discard_frees),
		TEST(test_compressed),
		TEST(test_autoclear),
		TEST(test_bitmaps),
		TEST(test_contiguous),
	};

	setenv("TMPDIR", "/dev/shm", 0);
	tap.real_aio = true;
	return cmocka_run_group_tests_name("qcow2 images", tests, NULL, NULL);
}
