/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * test_qcow2_open: which qcow2 images are opened, and what the others are
 * told: the file, its place in the chain, the field and its value.  Images
 * are qemu-img's, then bytes are changed.
 */
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tests/layer_rig.h"

/*
 * One image.
 */

static void
test_good(void **state)
{
	static const struct { const char *options; uint64_t size; } cases[] = {
		{ "-o cluster_size=512 a 64M", 64 * MiB },
		{ "-o cluster_size=4k a 1M", MiB },
		{ "-o cluster_size=2M a 1T", MiB * MiB },
		{ "-o compat=0.10 a 1M", MiB },
		{ "-o refcount_bits=1 a 1M", MiB },
		{ "-o refcount_bits=64 a 1M", MiB },
		{ "-o compression_type=zstd a 1M", MiB },
		{ "-o extended_l2=on,cluster_size=16k a 1M", MiB },
		{ "-o extended_l2=on,cluster_size=128k a 1M", MiB },
		{ "-o lazy_refcounts=on a 1M", MiB },
		{ "-o preallocation=metadata a 1M", MiB },
		{ "-o preallocation=falloc a 1M", MiB },
		{ "-o preallocation=full a 1M", MiB },
		{ "a 512", 512 },
		{ "a 1000k", 1000 * 1024 },
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		run("qemu-img create -q -f qcow2 %s", cases[i].options);
		if (chain_open("a", false) != 0)
			fail_msg("%s: %s", cases[i].options, why);
		assert_int_equal(top->size, cases[i].size);
		assert_int_equal(top->depth, 0);
		assert_false(top->raw || top->file.readonly);
		assert_null(top->backing);
		chain_close();
	}
	/* What lies behind the L1 table is not a part of it. */
	poke("a", 0x30008, "8000000000050000");
	assert_int_equal(chain_open("a", false), 0);
	assert_int_equal(top->h.l1_entries, 1);
	assert_int_equal(top->l1[1], 0);
	chain_close();

	/* A part of a sector at the end of the disk is nobody's. */
	poke("a", 24, "00000000000003ff");
	assert_int_equal(chain_open("a", true), 0);
	assert_int_equal(top->size, 512);
	assert_true(top->file.readonly);
}

static const struct refusal {
	const char *options;	/* of qemu-img create */
	int         error;
	const char *words;
	struct { unsigned at; const char *hex; } pokes[3];
} refusals[] = {
	{ "", -EINVAL, "magic|0x514649fa", { { 0, "514649fa" } } },
	{ "", -EINVAL, "version|4", { { 4, "00000004" } } },
	{ "", -EINVAL, "cluster_bits|8", { { 20, "00000008" } } },
	{ "", -EINVAL, "cluster_bits|22", { { 20, "00000016" } } },
	{ "", -EINVAL, "refcount_order|7", { { 96, "00000007" } } },
	{ "", -EINVAL, "header_length|96", { { 100, "00000060" } } },
	{ "", -EOPNOTSUPP, "compression_type|5", { { 104, "05" },
	    { 79, "08" } } },
	{ "-o cluster_size=8k", -EINVAL, "cluster_bits|13",
	    { { 79, "10" } } },
	{ "-o data_file=d.raw", -EOPNOTSUPP,
	    "incompatible_features|0x4|data file", { { 0, "" } } },
	{ "", -EOPNOTSUPP, "incompatible_features|0x8000000000000000|63",
	    { { 72, "80" } } },
	{ "", -EOPNOTSUPP, "crypt_method|1|encrypted", { { 32, "00000001" } } },
	{ "", -EOPNOTSUPP, "crypt_method|2|encrypted", { { 32, "00000002" } } },
	{ "", -EINVAL, "l1_size|0", { { 36, "00000000" } } },
	{ "", -EINVAL, "size|0xfffffffffffffe00",
	    { { 24, "fffffffffffffe00" } } },
	{ "", -EINVAL, "l1_size|4194305", { { 36, "00400001" } } },
	{ "", -EINVAL, "l1_table_offset|0x30200",
	    { { 40, "0000000000030200" } } },
	{ "", -EINVAL, "l1_table_offset|0x300000|cut off",
	    { { 40, "0000000000300000" } } },
	{ "", -EINVAL, "l1_table_offset|0|header",
	    { { 40, "0000000000000000" } } },
	{ "", -EINVAL, "L1 table|overlaps|refcount table",
	    { { 40, "0000000000010000" } } },
	{ "", -EINVAL, "nb_snapshots|4294967295", { { 60, "ffffffff" } } },
	{ "-u -b z -F raw", -EINVAL, "backing_file_size|4294967295",
	    { { 16, "ffffffff" } } },
	{ "-u -b z -F raw", -EINVAL, "backing_file_size|0",
	    { { 16, "00000000" } } },
	{ "-u -b z -F raw", -EINVAL, "backing_file_offset|0x10000",
	    { { 8, "0000000000010000" } } },
	{ "-u -b z -F raw", -EINVAL, "backing_file_offset|8",
	    { { 8, "0000000000000008" } } },
	{ "", -EINVAL, "refcount_table_clusters|131073",
	    { { 56, "00020001" } } },
	{ "", -EINVAL, "refcount_table_offset|0x1234567890abcdef",
	    { { 48, "1234567890abcdef" } } },
	{ "", -EINVAL, "refcount_table_clusters|0", { { 56, "00000000" } } },
	{ "", -EINVAL, "refcount_table_offset|0|header",
	    { { 48, "0000000000000000" } } },
	{ "", -ENODATA, "size is 0|qemu-img resize",
	    { { 24, "0000000000000000" } } },
	{ "", -ENODATA, "size is 511|qemu-img resize",
	    { { 24, "00000000000001ff" } } },

	/* Entries of the L1 table. */
	{ "", -EINVAL, "L1 entry 0|0x30000|0x8000000000020200|cluster size",
	    { { 0x30000, "8000000000020200" } } },
	{ "", -EINVAL, "L1 entry 0|0x8000000000400000|end of the file",
	    { { 0x30000, "8000000000400000" } } },
	{ "", -EINVAL, "L1 entry 0|0xc000000000020000|reserved",
	    { { 0x30000, "c000000000020000" } } },
	{ "", -EINVAL, "L1 entry 0|0x8000000000020001|reserved",
	    { { 0x30000, "8000000000020001" } } },
	{ "", -EINVAL, "L1 entry 0|0x8000000000030000|in the L1 table",
	    { { 0x30000, "8000000000030000" } } },
	{ "", -EINVAL, "L1 entry 0|0x8000000000010000|in the refcount table",
	    { { 0x30000, "8000000000010000" } } },
};

#define NR_REFUSALS (sizeof(refusals) / sizeof(refusals[0]))

static void
make_refused(const struct refusal *r, const char *name)
{
	int i;

	run("qemu-img create -q -f qcow2 %s %s 1M", r->options, name);
	for (i = 0; i < 3 && r->pokes[i].hex != NULL; i++)
		poke(name, r->pokes[i].at, r->pokes[i].hex);
}

static void
test_refusals(void **state)
{
	char words[1024];
	size_t i;

	(void)state;
	for (i = 0; i < NR_REFUSALS; i++) {
		make_refused(&refusals[i], "a.qcow2");
		snprintf(words, sizeof(words), "open %s|a.qcow2|%s",
		    dir, refusals[i].words);
		refused("a.qcow2", false, refusals[i].error, words);
		refused("a.qcow2", true, refusals[i].error, words);
	}
	/* What is no image, or only the beginning of one. */
	run("truncate -s 0 a.qcow2");
	refused("a.qcow2", false, -EINVAL, "a.qcow2|0 bytes");
	run("printf 'QFI\\373\\0\\0\\0\\3' >a.qcow2");
	refused("a.qcow2", false, -EINVAL, "a.qcow2|8 bytes");
	refused("none", false, -ENOENT, "none|No such file|check the path");
}

/* The same below another image: the file and its place are named. */
static void
test_refusals_below(void **state)
{
	char words[1024];
	size_t i;

	(void)state;
	run("qemu-img create -q -f qcow2 -u -b b -F qcow2 m 1M");
	run("qemu-img create -q -f qcow2 -u -b m -F qcow2 a 1M");
	for (i = 0; i < NR_REFUSALS; i++) {
		if (refusals[i].error == -ENODATA)
			continue;
		make_refused(&refusals[i], "b");
		snprintf(words, sizeof(words), "/b|layer 2 of the chain|%s",
		    refusals[i].words);
		refused("a", false, refusals[i].error, words);
	}
	/* No disk, but a fine backing file. */
	run("qemu-img create -q -f qcow2 b 0");
	assert_int_equal(chain_open("a", false), 0);
	assert_int_equal(top->backing->backing->size, 0);
	chain_close();
	run("mv b c");
	refused("a", false, -ENOENT, "layer 2 of the chain|/b|No such file");
}

static void
test_features(void **state)
{
	(void)state;
	run("qemu-img create -q -f qcow2 -o lazy_refcounts=on a 1M");
	run("ulimit -c 0; qemu-io -c 'write 0 64k' -c abort a; true");
	assert_int_equal(peek("a", 72) & QCOW2_INCOMPAT_DIRTY, 1);
	refused("a", false, -EUCLEAN, "/a|incompatible_features|0x1|dirty|"
	    "qemu-img check -r all|/a|read-only");
	opens("a", true);
	run("qemu-img check -r all a; true");
	opens("a", false);

	poke("a", 79, "02");
	refused("a", false, -EUCLEAN, "/a|incompatible_features|0x2|corrupt|"
	    "qemu-img check -r all|read-only");
	opens("a", true);
	poke("a", 79, "00");

	/* Below, all is read-only. */
	run("qemu-img create -q -f qcow2 -u -b a -F qcow2 o 1M");
	poke("a", 79, "03");
	opens("o", false);
	poke("a", 79, "00");

	/* Compatible and autoclear bits that nobody knows. */
	poke("a", 80, "80");
	poke("a", 88, "80");
	assert_int_equal(chain_open("a", false), 0);
	assert_int_equal(top->h.autoclear, 1ull << 63);
	chain_close();
	assert_int_equal(peek("a", 80) >> 63, 1);
	assert_int_equal(peek("a", 88) >> 63, 1);
}

/* Who only wants to look is shown what is damaged, and cannot write. */
static void
test_inspect(void **state)
{
	struct image_options opt = { .format = "qcow2", .inspect = true };

	(void)state;
	run("qemu-img create -q -f qcow2 a 1M");
	poke("a", 0x30000, "8000000000020200");
	poke("a", 79, "03");
	opt.path = at("a");
	assert_int_equal(qcow2_chain_open(&opt, &top, why), 0);
	assert_true(top->file.readonly);
	assert_int_equal(be64toh(top->l1[0]), 0x8000000000020200ull);
}

static void
test_snapshots(void **state)
{
	/* Name and id of 65535 bytes, 1024 of extra data. */
	static const char entry[] = "000000000000000000000000ffffffff"
	    "0000000000000000000000000000000000000000" "00000400";
	uint64_t table, at_entry;
	int i;

	(void)state;
	run("qemu-img create -q -f qcow2 a 1M");
	run("qemu-io -c 'write -P 1 0 64k' a");
	run("qemu-img snapshot -c one a; qemu-img snapshot -c two a");
	opens("a", false);
	table = peek("a", 64);

	/* Its L1 table is not ours to follow. */
	poke("a", table, "0000000000400200");
	opens("a", false);

	poke("a", table + 36, "00000401");
	refused("a", false, -EINVAL, "/a|snapshot 0|extra_data_size|1025");
	poke("a", table + 36, "ffffffff");
	refused("a", false, -EINVAL, "snapshot 0|extra_data_size|4294967295");
	poke("a", table + 36, "00000018");
	opens("a", false);

	/* Names beyond the end of the file. */
	poke("a", table + 12, "ffffffff");
	refused("a", false, -EINVAL, "/a|snapshot 0|id and name|end of the "
	    "file");
	poke("a", table + 12, "00010003");
	opens("a", false);
	poke("a", 60, "00010000");
	refused("a", false, -EINVAL, "snapshots_offset|cut off");
	poke("a", 60, "00000002");

	/* Each is sound, but there is no end of them. */
	run("truncate -s 1G a");
	poke("a", 60, "00010000");
	for (i = 0, at_entry = table; i < 520; i++, at_entry += 132136)
		poke("a", at_entry, entry);
	refused("a", false, -EINVAL, "/a|snapshot 507|64 MiB");

	/* Below, nobody needs them. */
	poke("a", table + 36, "ffffffff");
	run("qemu-img create -q -f qcow2 -u -b a -F qcow2 o 1M");
	opens("o", false);
}

/*
 * Bounds.
 */

static void
test_large(void **state)
{
	double took;

	(void)state;
	run("qemu-img create -q -f qcow2 a 64T");
	took = time_open("a", 0);
	if (took > 50)
		fail_msg("64 TiB: opened after %.1f ms", took);

	/* The largest L1 table there may be, and nothing else grows. */
	run("qemu-img create -q -f qcow2 -o cluster_size=512 a 128G");
	shim.bytes = 0;
	assert_int_equal(chain_open("a", false), 0);
	assert_int_equal(top->h.l1_entries * 8, QCOW2_MAX_L1_BYTES);
	if (shim.bytes > QCOW2_MAX_L1_BYTES + MiB)
		fail_msg("an L1 table of 32 MiB takes %zu bytes", shim.bytes);

	/* All snapshots there may be, each as short as it can. */
	chain_close();
	run("qemu-img create -q -f qcow2 a 1M; truncate -s 64M a");
	poke("a", 60, "0001000000000000" "00100000");
	took = time_open("a", 0);
	if (took > 200)
		fail_msg("65536 snapshots: opened after %.1f ms", took);
}

/* Each read and each piece of memory that open needs, missing once. */
static void
test_failures(void **state)
{
	int n, rc;

	(void)state;
	run("qemu-img create -q -f qcow2 b 1M");
	run("qemu-img create -q -f qcow2 -b b -F qcow2 a 1M");
	run("qemu-img snapshot -c one a");
	for (n = 1;; n++) {
		shim.pread = n;
		rc = chain_open("a", false);
		if (rc == 0)
			break;
		assert_int_equal(rc, -EIO);
		assert_int_equal(rig_count_fds(), nr_fds);
		says(n < 5 ? "/a|: read the |Input/output error|dmesg" :
		    "/b|layer 1|read the |Input/output error|dmesg");
	}
	/* Alignment, header twice, L1 table; and the snapshots of a. */
	assert_true(n > 7);
	shim.pread = 0;
	chain_close();
	for (n = 1;; n++) {
		shim.alloc = n;
		rc = chain_open("a", false);
		if (rc == 0)
			break;
		assert_int_equal(rc, -ENOMEM);
		assert_int_equal(rig_count_fds(), nr_fds);
	}
	shim.alloc = 0;
	assert_true(n > 7);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_good),
		TEST(test_refusals),
		TEST(test_refusals_below),
		TEST(test_features),
		TEST(test_inspect),
		TEST(test_snapshots),
		TEST(test_large),
		TEST(test_failures),
	};

	return cmocka_run_group_tests_name("qcow2_open", tests, NULL, NULL);
}
