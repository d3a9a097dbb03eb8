/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * test_qcow2_format: every field of a qcow2 header on both sides of each of
 * its limits, headers that were made to do harm, what qemu-img makes, and
 * compressed clusters whole, cut off and damaged.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "drivers/qcow2_format.h"
#include "tests/driver_rig.h"

#define COUNT(a)   (sizeof(a) / sizeof((a)[0]))
#define KIB        1024ull
#define MIB        (1024ull * KIB)
#define GIB        (1024ull * MIB)
#define FILE_SIZE  0x50000ull
#define FIRST      0x10000u	/* bytes of the first cluster */

/* Where the extensions of the image below lie. */
#define AT_FORMAT   112u
#define AT_FEATURES 128u
#define AT_BITMAPS  232u
#define AT_END      264u
#define AT_NAME     272u

#define EXT_FORMAT   0xe2792acaull
#define EXT_FEATURES 0x6803f857ull
#define EXT_BITMAPS  0x23852875ull
#define EXT_CRYPT    0x0537be77ull
#define EXT_DATA     0x44415441ull

struct poke {
	unsigned at;
	unsigned bytes;		/* 1, 4 or 8; 0: end of list */
	uint64_t value;
};

static char folder[512];

/*
 * The image that each case is a change of: version 3, 64 KiB clusters, 1 GiB,
 * every extension, a backing file.
 */

static void
put(uint8_t *buf, unsigned at, unsigned bytes, uint64_t value)
{
	uint64_t be64 = htobe64(value);

	memcpy(buf + at, (const uint8_t *)&be64 + 8 - bytes, bytes);
}

/* Without its NUL, as the format has it. */
static void
put_text(uint8_t *buf, unsigned at, const char *text)
{
	size_t i;

	for (i = 0; text[i] != '\0'; i++)
		buf[at + i] = (uint8_t)text[i];
}

static void
put_feature(uint8_t *buf, unsigned at, unsigned type, unsigned bit,
    const char *name)
{
	buf[at] = (uint8_t)type;
	buf[at + 1] = (uint8_t)bit;
	put_text(buf, at + 2, name);
}

static void
make_base(uint8_t buf[FIRST])
{
	static const struct poke fields[] = {
		{ 0, 4, 0x514649fb }, { 4, 4, 3 },
		{ 8, 8, AT_NAME }, { 16, 4, 8 }, { 20, 4, 16 },
		{ 24, 8, GIB }, { 36, 4, 2 }, { 40, 8, 0x30000 },
		{ 48, 8, 0x10000 }, { 56, 4, 1 }, { 60, 4, 1 },
		{ 64, 8, 0x40000 }, { 88, 8, 1 }, { 96, 4, 4 },
		{ 100, 4, 112 },
		{ AT_FORMAT, 4, EXT_FORMAT }, { AT_FORMAT + 4, 4, 5 },
		{ AT_FEATURES, 4, EXT_FEATURES }, { AT_FEATURES + 4, 4, 96 },
		{ AT_BITMAPS, 4, EXT_BITMAPS }, { AT_BITMAPS + 4, 4, 24 },
		{ AT_BITMAPS + 8, 4, 1 }, { AT_BITMAPS + 16, 8, 32 },
		{ AT_BITMAPS + 24, 8, 0x20000 },
	};
	unsigned i;

	memset(buf, 0, FIRST);
	for (i = 0; i < COUNT(fields); i++)
		put(buf, fields[i].at, fields[i].bytes, fields[i].value);
	put_text(buf, AT_FORMAT + 8, "qcow2");
	put_feature(buf, AT_FEATURES + 8, 1, 63, "not this one");
	put_feature(buf, AT_FEATURES + 56, 0, 63, "time travel");
	put_text(buf, AT_NAME, "base.img");
}

/* In memory of exactly that size, so that a sanitizer sees its end. */
static int
parse(const void *buf, size_t bytes, uint64_t file_size,
    struct qcow2_header *h, char why[WHY_MAX])
{
	void *copy = malloc(bytes > 0 ? bytes : 1);
	int rc;

	assert_non_null(copy);
	memcpy(copy, buf, bytes);
	memset(why, 0x55, WHY_MAX);
	rc = qcow2_header_parse(copy, bytes, file_size, h, why);
	free(copy);
	if (rc == 0)
		return 0;
	assert_true(rc == -EINVAL || rc == -EOPNOTSUPP);
	assert_non_null(memchr(why, '\0', WHY_MAX));
	for (const char *c = why; *c != '\0'; c++)
		assert_true(*c >= ' ' && *c <= '~');
	return rc;
}

static void
test_base(void **state)
{
	static uint8_t buf[FIRST];
	struct qcow2_header h;
	char why[WHY_MAX];

	(void)state;
	make_base(buf);
	assert_int_equal(parse(buf, FIRST, FILE_SIZE, &h, why), 0);
	assert_int_equal(h.version, 3);
	assert_int_equal(h.cluster_bits, 16);
	assert_int_equal(h.size, GIB);
	assert_int_equal(h.l1_entries, 2);
	assert_int_equal(h.l1_offset, 0x30000);
	assert_int_equal(h.reftable_offset, 0x10000);
	assert_int_equal(h.reftable_clusters, 1);
	assert_int_equal(h.nr_snapshots, 1);
	assert_int_equal(h.snapshots_offset, 0x40000);
	assert_int_equal(h.incompatible, 0);
	assert_int_equal(h.compatible, 0);
	assert_int_equal(h.autoclear, 1);
	assert_int_equal(h.refcount_order, 4);
	assert_int_equal(h.length, 112);
	assert_int_equal(h.compression, QCOW2_ZLIB);
	assert_true(h.bitmaps);
	assert_string_equal(h.backing, "base.img");
	assert_string_equal(h.backing_format, "qcow2");
	assert_int_equal(qcow2_l2_bits(&h), 13);
}

/*
 * One field at a time, on both sides of its limits.
 */

#define ALIGN_21 { 40, 8, 6 * MIB }, { 48, 8, 2 * MIB }, { 60, 4, 0 },	\
	{ 88, 8, 0 }
#define NO_BACKING { 8, 8, 0 }, { 16, 4, 0 }

static const struct {
	const char *words;	/* NULL: accepted; else what why must hold */
	int         rc;
	uint64_t    file_size;	/* 0: FILE_SIZE */
	struct poke pokes[9];
} cases[] = {
	{ "magic", -EINVAL, 0, { { 0, 4, 0x514649fa } } },
	{ "version", -EINVAL, 0, { { 4, 4, 1 } } },
	{ "version", -EINVAL, 0, { { 4, 4, 4 } } },
	{ "version", -EINVAL, 0, { { 4, 4, UINT32_MAX } } },

	/* R2 */
	{ "cluster_bits (byte 20) is 8 ", -EINVAL, 0, { { 20, 4, 8 } } },
	{ "cluster_bits (byte 20) is 22 ", -EINVAL, 0, { { 20, 4, 22 } } },
	{ "cluster_bits", -EINVAL, 0, { { 20, 4, 0 } } },
	{ "cluster_bits", -EINVAL, 0, { { 20, 4, 64 } } },
	{ "cluster_bits", -EINVAL, 0, { { 20, 4, UINT32_MAX } } },
	{ NULL, 0, 0, { { 20, 4, 9 }, { 24, 8, 64 * KIB } } },
	{ "l1_size", -EINVAL, 0, { { 20, 4, 9 }, { 24, 8, 64 * KIB + 1 } } },
	{ NULL, 0, 9 * MIB, { { 20, 4, 21 }, ALIGN_21 } },
	{ "l1_table_offset", -EINVAL, 9 * MIB, { { 20, 4, 21 }, ALIGN_21,
	    { 40, 8, 5 * MIB } } },

	/* R35 */
	{ NULL, 0, 0, { NO_BACKING } },
	{ NULL, 0, 0, { { 8, 8, 0 }, { 16, 4, UINT32_MAX } } },
	{ "backing_file_size", -EINVAL, 0, { { 16, 4, 0 } } },
	{ NULL, 0, 0, { { 16, 4, 1 } } },
	{ "backing_file_size", -EINVAL, 0, { { 16, 4, 1024 } } },
	{ "backing_file_size", -EINVAL, 0, { { 16, 4, UINT32_MAX } } },
	{ "backing_file_offset", -EINVAL, 0, { { 8, 8, FIRST - 7 } } },
	{ "backing_file_offset", -EINVAL, 0, { { 8, 8, FIRST } } },
	{ "backing_file_offset", -EINVAL, 0, { { 8, 8, UINT64_MAX } } },
	{ "backing_file_offset", -EINVAL, 0, { { 8, 8, UINT64_MAX - 6 } } },
	{ "backing_file_offset", -EINVAL, 0, { { 8, 8, 1 } } },
	{ "backing_file_offset", -EINVAL, 0, { { 8, 8, 111 } } },
	{ "length of a header extension", -EINVAL, 0, { { 8, 8, 120 } } },
	{ "length of a header extension", -EINVAL, 0, { { 8, 8, 124 } } },
	{ "length of a header extension", -EINVAL, 0, { { 8, 8, 231 } } },
	{ "backing_file_offset", -EINVAL, 0, { { 20, 4, 9 },
	    { 24, 8, 64 * KIB }, { 8, 8, 505 } } },
	{ "backing file name (byte 274) is 0 ", -EINVAL, 0,
	    { { AT_NAME + 2, 1, 0 } } },
	{ "backing file name", -EINVAL, 0, { { AT_NAME + 7, 1, '\n' } } },
	{ "backing file name", -EINVAL, 0, { { AT_NAME, 1, 0x7f } } },
	{ NULL, 0, 0, { { AT_NAME, 1, 0xc3 } } },

	/* R26 */
	{ "l1_size", -EINVAL, 0, { { 36, 4, 0 } } },
	{ "l1_size", -EINVAL, 0, { { 36, 4, 1 } } },
	{ NULL, 0, 0, { { 24, 8, GIB - 1 } } },
	{ "l1_size", -EINVAL, 0, { { 24, 8, GIB + 1 } } },
	{ NULL, 0, 0, { { 24, 8, 512 * MIB }, { 36, 4, 1 } } },
	{ NULL, 0, 0, { { 24, 8, 0 }, { 36, 4, 0 } } },
	{ NULL, 0, 0, { { 24, 8, 0 }, { 36, 4, 0 }, { 40, 8, 1 } } },
	{ "size (byte 24)", -EINVAL, 0, { { 24, 8, 0xfffffffffffffe00 } } },
	{ "size (byte 24)", -EINVAL, 0, { { 24, 8, UINT64_MAX } } },
	{ "size (byte 24)", -EINVAL, GIB, { { 24, 8, (1ull << 51) + 1 },
	    { 36, 4, 4 << 20 }, { 40, 8, 0x50000 } } },
	{ NULL, 0, GIB, { { 24, 8, 1ull << 51 }, { 36, 4, 4 << 20 },
	    { 40, 8, 0x50000 } } },
	{ "l1_size", -EINVAL, GIB, { { 36, 4, (4 << 20) + 1 },
	    { 40, 8, 0x50000 } } },
	{ "l1_size", -EINVAL, GIB, { { 36, 4, UINT32_MAX } } },
	{ "l1_size", -EINVAL, GIB, { { 36, 4, 0x20000001 } } },
	{ "l1_table_offset", -EINVAL, 0, { { 40, 8, 0x30200 } } },
	{ "l1_table_offset", -EINVAL, 0, { { 40, 8, 0 } } },
	{ "less than 2^56", -EINVAL, UINT64_MAX, { { 40, 8, 1ull << 56 } } },
	{ NULL, 0, UINT64_MAX, { { 40, 8, (1ull << 56) - FIRST } } },
	{ "inside the file", -EINVAL, 0, { { 40, 8, FILE_SIZE } } },
	{ "inside the file", -EINVAL, 0x4000f, { { 40, 8, 0x40000 },
	    { 60, 4, 0 } } },
	{ NULL, 0, 0x40010, { { 40, 8, 0x40000 }, { 60, 4, 0 } } },

	/* R27 */
	{ "refcount_table_clusters", -EINVAL, 0, { { 56, 4, 0 } } },
	{ "refcount_table_clusters", -EINVAL, GIB, { { 56, 4, 0x20001 } } },
	{ NULL, 0, GIB, { { 56, 4, 128 }, { 48, 8, 0x50000 } } },
	{ "refcount_table_clusters", -EINVAL, GIB, { { 56, 4, 129 },
	    { 48, 8, 0x50000 } } },
	{ "refcount_table_clusters", -EINVAL, GIB,
	    { { 56, 4, UINT32_MAX } } },
	{ "refcount_table_offset", -EINVAL, 0,
	    { { 48, 8, 0x1234567890abcdef } } },
	{ "refcount_table_offset", -EINVAL, 0, { { 48, 8, 0 } } },
	{ "refcount_table_offset", -EINVAL, 0, { { 48, 8, 0x10200 } } },
	{ "less than 2^56", -EINVAL, UINT64_MAX, { { 48, 8, 1ull << 56 } } },
	{ "inside the file", -EINVAL, 0, { { 48, 8, FILE_SIZE } } },
	{ "inside the file", -EINVAL, 0x5ffff, { { 48, 8, 0x50000 } } },
	{ NULL, 0, 0x60000, { { 48, 8, 0x50000 } } },

	/* R26, R29 */
	{ NULL, 0, GIB, { { 60, 4, 65536 } } },
	{ "nb_snapshots", -EINVAL, GIB, { { 60, 4, 65537 } } },
	{ "nb_snapshots", -EINVAL, GIB, { { 60, 4, UINT32_MAX } } },
	{ NULL, 0, 0, { { 60, 4, 0 }, { 64, 8, 0x1234 } } },
	{ "snapshots_offset", -EINVAL, 0, { { 64, 8, 0x40200 } } },
	{ "snapshots_offset", -EINVAL, 0, { { 64, 8, 0 } } },
	{ "less than 2^56", -EINVAL, UINT64_MAX, { { 64, 8, 1ull << 56 } } },
	{ "inside the file", -EINVAL, 0x40027, { { 60, 4, 1 } } },
	{ NULL, 0, 0x40028, { { 60, 4, 1 } } },
	{ "inside the file", -EINVAL, 0x40050, { { 60, 4, 3 } } },

	/* Tables in each other: R29, the CVEs of 2014 */
	{ "L1 table", -EINVAL, 0, { { 40, 8, 0x10000 } } },
	{ "snapshot table", -EINVAL, 0, { { 64, 8, 0x30000 } } },
	{ "snapshot table", -EINVAL, 0, { { 64, 8, 0x10000 } } },
	{ NULL, 0, 0, { { 56, 4, 2 } } },
	{ "overlaps", -EINVAL, 0, { { 56, 4, 3 } } },
	{ NULL, 0, GIB, { { 36, 4, 0x2000 } } },
	{ "overlaps", -EINVAL, GIB, { { 36, 4, 0x2001 } } },
	{ NULL, 0, GIB, { { 60, 4, 1638 }, { 40, 8, 0x50000 } } },
	{ "overlaps", -EINVAL, GIB, { { 60, 4, 1639 }, { 40, 8, 0x50000 } } },

	/* R30 */
	{ "encrypted (AES)", -EOPNOTSUPP, 0, { { 32, 4, 1 } } },
	{ "encrypted (LUKS)", -EOPNOTSUPP, 0, { { 32, 4, 2 } } },
	{ "crypt_method", -EINVAL, 0, { { 32, 4, 3 } } },
	{ "encryption header", -EINVAL, 0, { { AT_FORMAT, 4, EXT_CRYPT } } },

	/* R16, R22 */
	{ NULL, 0, 0, { { 72, 8, 1 } } },
	{ NULL, 0, 0, { { 72, 8, 2 } } },
	{ "external data file", -EOPNOTSUPP, 0, { { 72, 8, 4 } } },
	{ "external data file", -EINVAL, 0, { { AT_FORMAT, 4, EXT_DATA } } },
	{ "feature 63 (time travel)", -EOPNOTSUPP, 0,
	    { { 72, 8, 1ull << 63 } } },
	{ "feature 62 (of no name)", -EOPNOTSUPP, 0,
	    { { 72, 8, 1ull << 62 } } },
	{ "feature 5 (of no name)", -EOPNOTSUPP, 0, { { 72, 8, 0x20 } } },
	{ "feature 63 (?ime travel)", -EOPNOTSUPP, 0,
	    { { 72, 8, 1ull << 63 }, { AT_FEATURES + 58, 1, 0x1b } } },
	{ "feature 63 (of no name)", -EOPNOTSUPP, 0,
	    { { 72, 8, 1ull << 63 }, { AT_FEATURES + 4, 4, 95 } } },
	{ "feature 63 (of no name)", -EOPNOTSUPP, 0,
	    { { 72, 8, 1ull << 63 }, { AT_FEATURES + 4, 4, UINT32_MAX } } },
	{ NULL, 0, 0, { { 80, 8, UINT64_MAX } } },
	{ NULL, 0, 0, { { 88, 8, UINT64_MAX } } },

	/* R7 */
	{ NULL, 0, 0, { { 96, 4, 0 } } },
	{ NULL, 0, 0, { { 96, 4, 6 } } },
	{ "refcount_order", -EINVAL, 0, { { 96, 4, 7 } } },
	{ "refcount_order", -EINVAL, 0, { { 96, 4, UINT32_MAX } } },

	{ "header_length", -EINVAL, 0, { { 100, 4, 72 } } },
	{ "header_length", -EINVAL, 0, { { 100, 4, 96 } } },
	{ NULL, 0, 0, { NO_BACKING, { 100, 4, 104 }, { 88, 8, 0 } } },
	{ "header_length", -EINVAL, 0, { { 100, 4, 113 } } },
	{ NULL, 0, 0, { NO_BACKING, { 100, 4, FIRST }, { 88, 8, 0 } } },
	{ "header_length", -EINVAL, 0, { NO_BACKING,
	    { 100, 4, FIRST + 8 } } },
	{ "header_length", -EINVAL, 0, { { 100, 4, UINT32_MAX - 7 } } },

	/* R14 */
	{ "unknown compression type", -EOPNOTSUPP, 0, { { 104, 1, 5 } } },
	{ "unknown compression type", -EOPNOTSUPP, 0, { { 104, 1, 2 },
	    { 72, 8, 8 } } },
	{ "compression_type", -EINVAL, 0, { { 104, 1, 1 } } },
	{ "compression_type", -EINVAL, 0, { { 72, 8, 8 } } },
	{ NULL, 0, 0, { { 72, 8, 8 }, { 104, 1, 1 } } },
	{ "compression_type", -EINVAL, 0, { NO_BACKING, { 72, 8, 8 },
	    { 104, 1, 1 }, { 100, 4, 104 }, { 88, 8, 0 } } },

	/* R15 */
	{ NULL, 0, 0, { { 72, 8, 16 }, { 24, 8, 512 * MIB } } },
	{ "l1_size", -EINVAL, 0, { { 72, 8, 16 }, { 24, 8, 512 * MIB + 1 } } },
	{ NULL, 0, 0, { { 72, 8, 16 }, { 20, 4, 14 }, { 24, 8, MIB } } },
	{ "cluster_bits", -EINVAL, 0, { { 72, 8, 16 }, { 20, 4, 13 },
	    { 24, 8, MIB } } },

	/* Extensions */
	{ "length of a header extension", -EINVAL, 0,
	    { { AT_FORMAT + 4, 4, UINT32_MAX } } },
	{ "length of a header extension", -EINVAL, 0,
	    { { AT_FORMAT + 4, 4, AT_NAME - AT_FORMAT - 7 } } },
	{ NULL, 0, 0, { { AT_FORMAT, 4, 0x12345678 },
	    { AT_FORMAT + 4, 4, AT_NAME - AT_FORMAT - 8 }, { 88, 8, 0 } } },
	{ "once", -EINVAL, 0, { { AT_BITMAPS, 4, EXT_FORMAT } } },
	{ "once", -EINVAL, 0, { { AT_FORMAT, 4, EXT_FEATURES } } },
	{ "autoclear_features", -EINVAL, 0,
	    { { AT_BITMAPS, 4, 0x12345678 } } },
	{ NULL, 0, 0, { { AT_BITMAPS, 4, 0x12345678 }, { 88, 8, 0 } } },
	{ "length of the bitmaps", -EINVAL, 0, { { AT_BITMAPS + 4, 4, 16 } } },
	{ NULL, 0, 0, { { AT_BITMAPS + 4, 4, 16 }, { 88, 8, 2 } } },
	{ "nb_bitmaps", -EINVAL, 0, { { AT_BITMAPS + 8, 4, 0 } } },
	{ "nb_bitmaps", -EINVAL, GIB, { { AT_BITMAPS + 8, 4, 65536 },
	    { AT_BITMAPS + 16, 8, 64 * MIB } } },
	{ NULL, 0, GIB, { { AT_BITMAPS + 8, 4, 65535 },
	    { AT_BITMAPS + 16, 8, 64 * MIB } } },
	{ "reserved", -EINVAL, 0, { { AT_BITMAPS + 12, 4, 1 } } },
	{ "bitmap_directory_size", -EINVAL, 0, { { AT_BITMAPS + 16, 8, 23 } } },
	{ NULL, 0, 0, { { AT_BITMAPS + 16, 8, 24 } } },
	{ "bitmap_directory_size", -EINVAL, 0,
	    { { AT_BITMAPS + 16, 8, UINT64_MAX } } },
	{ "bitmap_directory_offset", -EINVAL, 0,
	    { { AT_BITMAPS + 24, 8, 0 } } },
	{ "bitmap_directory_offset", -EINVAL, 0,
	    { { AT_BITMAPS + 24, 8, 0x20200 } } },
	{ "bitmap_directory_offset", -EINVAL, 0,
	    { { AT_BITMAPS + 24, 8, FILE_SIZE } } },
	{ "bitmap_directory_offset", -EINVAL, 0,
	    { { AT_BITMAPS + 24, 8, ~0xffffull } } },
};

static void
test_limits(void **state)
{
	static uint8_t buf[FIRST];
	struct qcow2_header h;
	char why[WHY_MAX];
	uint64_t size;
	size_t i, k;
	int rc;

	(void)state;
	for (i = 0; i < COUNT(cases); i++) {
		make_base(buf);
		for (k = 0; cases[i].pokes[k].bytes != 0; k++)
			put(buf, cases[i].pokes[k].at, cases[i].pokes[k].bytes,
			    cases[i].pokes[k].value);
		size = cases[i].file_size != 0 ? cases[i].file_size : FILE_SIZE;
		rc = parse(buf, FIRST, size, &h, why);
		if (rc != cases[i].rc || (rc < 0 &&
		    strstr(why, cases[i].words) == NULL))
			fail_msg("case %zu, byte %u, wants %d '%s' but got %d "
			    "'%s'", i, cases[i].pokes[0].at, cases[i].rc,
			    cases[i].words ? cases[i].words : "", rc,
			    rc < 0 ? why : "");
	}
}

/* Cut off anywhere; also with nothing there that would end the extensions. */
static void
test_short(void **state)
{
	static uint8_t buf[FIRST];
	struct qcow2_header h;
	char why[WHY_MAX];
	size_t n;

	(void)state;
	make_base(buf);
	for (n = 0; n < AT_NAME + 8; n++)
		assert_int_equal(parse(buf, n, n, &h, why), -EINVAL);
	assert_int_equal(parse(buf, n, FILE_SIZE, &h, why), 0);
	put(buf, 8, 8, 0);
	for (n = 112; n < AT_NAME; n++)
		assert_int_equal(parse(buf, n, FILE_SIZE, &h, why),
		    n < AT_END ? -EINVAL : 0);
}

/* 1023 bytes of name are kept, and as many as fit before the cluster ends. */
static void
test_long_name(void **state)
{
	static uint8_t buf[FIRST];
	struct qcow2_header h;
	char why[WHY_MAX];

	(void)state;
	make_base(buf);
	memset(buf + FIRST - 1023, 'n', 1023);
	put(buf, 8, 8, FIRST - 1023);
	put(buf, 16, 4, 1023);
	assert_int_equal(parse(buf, FIRST, FILE_SIZE, &h, why), 0);
	assert_int_equal(strlen(h.backing), 1023);
	assert_int_equal(strspn(h.backing, "n"), 1023);
}

/* What looks like a format we know to strcmp() must be one. */
static void
test_backing_format(void **state)
{
	static const struct {
		const char *stored;
		size_t      bytes;
		const char *want;
	} names[] = {
		{ "", 0, "" },
		{ "raw", 3, "raw" },
		{ "raw\0", 4, "raw?" },
		{ "raw\n", 4, "raw?" },
		{ "123456789012345", 15, "123456789012345" },
		{ "1234567890123456", 16, "123456789012345" },
	};
	static uint8_t buf[FIRST];
	struct qcow2_header h;
	char why[WHY_MAX];
	size_t i;

	(void)state;
	for (i = 0; i < COUNT(names); i++) {
		make_base(buf);
		put(buf, 100, 4, 104);		/* room for 16 bytes */
		put(buf, 104, 4, EXT_FORMAT);
		put(buf, 108, 4, names[i].bytes);
		memset(buf + 112, 0, 16);
		memcpy(buf + 112, names[i].stored, names[i].bytes);
		put(buf, 112 + (names[i].bytes + 7) / 8 * 8, 8, 0);
		put(buf, 88, 8, 0);
		assert_int_equal(parse(buf, FIRST, FILE_SIZE, &h, why), 0);
		assert_string_equal(h.backing_format, names[i].want);
	}
	/* R10: another type in its place means that there is none. */
	make_base(buf);
	put(buf, AT_FORMAT, 4, 0x12345678);
	assert_int_equal(parse(buf, FIRST, FILE_SIZE, &h, why), 0);
	assert_string_equal(h.backing, "base.img");
	assert_string_equal(h.backing_format, "");
}

/* Version 2 has no more than 72 bytes, whatever lies behind them. */
static void
test_version_2(void **state)
{
	static uint8_t buf[FIRST];
	struct qcow2_header h;
	char why[WHY_MAX];

	(void)state;
	make_base(buf);
	put(buf, 4, 4, 2);
	memset(buf + 72, 0, AT_NAME - 72);
	assert_int_equal(parse(buf, FIRST, FILE_SIZE, &h, why), 0);
	assert_int_equal(h.length, 72);
	assert_int_equal(h.refcount_order, 4);
	assert_string_equal(h.backing, "base.img");
	/* An extension where version 3 has feature bits. */
	put(buf, 72, 4, EXT_FORMAT);
	put(buf, 76, 4, 3);
	put_text(buf, 80, "raw");
	put(buf, 96, 4, 0);
	assert_int_equal(parse(buf, FIRST, FILE_SIZE, &h, why), 0);
	assert_int_equal(h.incompatible | h.compatible | h.autoclear, 0);
	assert_string_equal(h.backing_format, "raw");
	/* The oldest images have the name right behind the header. */
	put_text(buf, 72, "old.img");
	put(buf, 8, 8, 72);
	put(buf, 16, 4, 7);
	assert_int_equal(parse(buf, FIRST, FILE_SIZE, &h, why), 0);
	assert_string_equal(h.backing, "old.img");
	put(buf, 8, 8, 71);
	assert_int_equal(parse(buf, FIRST, FILE_SIZE, &h, why), -EINVAL);
}

static void
test_feature_names(void **state)
{
	(void)state;
	assert_string_equal(qcow2_incompatible_name(0), "dirty bit");
	assert_string_equal(qcow2_incompatible_name(4), "extended L2 entries");
	assert_null(qcow2_incompatible_name(5));
	assert_null(qcow2_incompatible_name(UINT32_MAX));
}

/*
 * What qemu-img makes.
 */

static void *
read_file(const char *name, size_t *bytes)
{
	char path[600];
	struct stat st;
	void *data;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	data = malloc((size_t)st.st_size);
	assert_non_null(data);
	assert_int_equal(read(fd, data, (size_t)st.st_size), st.st_size);
	close(fd);
	*bytes = (size_t)st.st_size;
	return data;
}

static int
parse_file(const char *name, struct qcow2_header *h, char why[WHY_MAX])
{
	size_t bytes;
	void *data = read_file(name, &bytes);
	int rc;

	rc = parse(data, bytes < 2 * MIB ? bytes : 2 * MIB, bytes, h, why);
	free(data);
	return rc;
}

static void
test_qemu_images(void **state)
{
	static const struct { const char *options; int rc; } images[] = {
		{ "-o cluster_size=512 x.q 1M", 0 },
		{ "-o cluster_size=512 x.q 1G", 0 },
		{ "-o cluster_size=2M x.q 1T", 0 },
		{ "x.q 0", 0 },
		{ "x.q 512", 0 },
		{ "-o compat=0.10 x.q 1M", 0 },
		{ "-o compat=0.10 -b /dev/null -F raw x.q 1M", 0 },
		{ "-o refcount_bits=1 x.q 100G", 0 },
		{ "-o refcount_bits=64,lazy_refcounts=on x.q 100G", 0 },
		{ "-o preallocation=metadata x.q 1M", 0 },
		{ "-o extended_l2=on,compression_type=zstd -b /dev/null "
		    "-F raw x.q 1M", 0 },
		{ "-o data_file=x.d x.q 1M", -EOPNOTSUPP },
		{ "--object secret,id=s,data=abc -o encrypt.format=luks,"
		    "encrypt.key-secret=s,encrypt.iter-time=10 x.q 1M",
		    -EOPNOTSUPP },
	};
	struct qcow2_header h;
	char why[WHY_MAX];
	size_t i;

	(void)state;
	for (i = 0; i < COUNT(images); i++) {
		/* LUKS looks how fast the CPU is, and may fail at that. */
		assert_int_equal(rig_shell(NULL, 0, "cd '%s' && for i in 1 2 3 "
		    "4; do ! qemu-img create -q -f qcow2 %s || exit 0; done; "
		    "exit 1", folder, images[i].options), 0);
		assert_int_equal(parse_file("x.q", &h, why), images[i].rc);
	}
	assert_int_equal(rig_shell(NULL, 0, "cd '%s' && qemu-img create -q "
	    "-f qcow2 x.q 1M && qemu-img snapshot -c a x.q && qemu-img "
	    "bitmap --add x.q b", folder), 0);
	assert_int_equal(parse_file("x.q", &h, why), 0);
	assert_int_equal(h.nr_snapshots, 1);
	assert_true(h.bitmaps);
}

/*
 * Compressed clusters.
 */

/*
 * How often memory was asked for; nobody asks behind the back of a sanitizer,
 * which has a malloc() of its own.
 */
static unsigned nr_mallocs;

#ifndef RINGBACK_SANITIZED
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *p, size_t bytes);

void *
malloc(size_t bytes)
{
	nr_mallocs++;
	return __libc_malloc(bytes);
}

void *
calloc(size_t n, size_t bytes)
{
	nr_mallocs++;
	return __libc_calloc(n, bytes);
}

void *
realloc(void *p, size_t bytes)
{
	nr_mallocs++;
	return __libc_realloc(p, bytes);
}
#endif

struct compressed {
	struct qcow2_header h;
	uint8_t            *file, *disk;
	size_t              bytes, disk_bytes;
};

static uint64_t
entry_at(const struct compressed *c, uint64_t offset)
{
	uint64_t v;

	assert_true(offset + 8 <= c->bytes);
	memcpy(&v, c->file + offset, 8);
	return be64toh(v);
}

/* The L2 entry of a guest cluster. */
static uint64_t
lookup(const struct compressed *c, uint64_t cluster)
{
	uint64_t l2 = entry_at(c, c->h.l1_offset +
	    (cluster >> qcow2_l2_bits(&c->h)) * 8) & QCOW2_OFFSET_MASK;

	assert_true(l2 != 0);
	return entry_at(c, l2 + ((cluster &
	    ((1u << qcow2_l2_bits(&c->h)) - 1)) <<
	    qcow2_l2_entry_bits(&c->h)));
}

/* A disk of which each cluster packs well, some, or barely. */
static void
make_compressed(struct compressed *c, const char *type, unsigned bits)
{
	size_t cs = 1ul << bits, i;
	char path[600], why[WHY_MAX];
	uint32_t noise = 1;
	int fd;

	c->disk_bytes = bits > 16 ? 2 * cs : 32 * cs;
	c->disk = malloc(c->disk_bytes);
	assert_non_null(c->disk);
	for (i = 0; i < c->disk_bytes; i++) {
		noise = noise * 1103515245u + 12345u;
		c->disk[i] = (i % cs) * 100 / cs < (i / cs * 13) % 90 ?
		    (uint8_t)(noise >> 16) : (uint8_t)(1 + i / 64);
	}
	snprintf(path, sizeof(path), "%s/disk", folder);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, c->disk, c->disk_bytes), c->disk_bytes);
	close(fd);
	assert_int_equal(rig_shell(NULL, 0, "cd '%s' && qemu-img convert -c "
	    "-f raw -O qcow2 -o cluster_size=%zu,compression_type=%s disk "
	    "x.q", folder, cs, type), 0);
	c->file = read_file("x.q", &c->bytes);
	assert_int_equal(parse(c->file, c->bytes < 2 * MIB ? c->bytes : 2 *
	    MIB, c->bytes, &c->h, why), 0);
	assert_int_equal(c->h.compression, strcmp(type, "zstd") == 0);
}

static void
free_compressed(struct compressed *c)
{
	free(c->file);
	free(c->disk);
}

/* Unpack into memory that ends with the cluster. */
static int
unpack(struct qcow2_inflate *z, const void *in, size_t in_bytes,
    uint8_t *out, size_t cs)
{
	unsigned before;
	int rc;

	out[cs] = 0xa5;
	before = nr_mallocs;
	rc = qcow2_inflate(z, in, in_bytes, out, cs);
	assert_int_equal(nr_mallocs, before);
	assert_int_equal(out[cs], 0xa5);
	assert_true(rc == 0 || rc == -EIO);
	return rc;
}

static void
check_compressed(const char *type, unsigned bits)
{
	size_t cs = 1ul << bits, i, nr = 0;
	uint8_t *out = malloc(cs + 1);
	struct compressed c;
	struct qcow2_inflate *z;
	uint64_t at, bytes;

	assert_non_null(out);
	make_compressed(&c, type, bits);
	assert_int_equal(qcow2_inflate_open(&z, c.h.compression), 0);
	for (i = 0; i < c.disk_bytes / cs; i++) {
		if ((lookup(&c, i) & QCOW2_COMPRESSED) == 0)
			continue;
		nr++;
		qcow2_compressed_range(&c.h, lookup(&c, i), &at, &bytes);
		assert_true(at < c.bytes);
		if (bytes > c.bytes - at)	/* the last sector's rest */
			bytes = c.bytes - at;
		assert_int_equal(unpack(z, c.file + at, bytes, out, cs), 0);
		assert_memory_equal(out, c.disk + i * cs, cs);
	}
	assert_true(nr > 0);
	qcow2_inflate_close(z);
	free_compressed(&c);
	free(out);
}

static void
test_inflate(void **state)
{
	static const unsigned bits[] = { 9, 12, 16, 21 };
	size_t i;

	(void)state;
	for (i = 0; i < COUNT(bits); i++) {
		check_compressed("zlib", bits[i]);
		check_compressed("zstd", bits[i]);
	}
}

/*
 * Cut off anywhere: an error until the whole cluster is there.  With one bit
 * flipped anywhere: an error or a wrong cluster, and the next one is right.
 */
static void
check_damage(const char *type)
{
	uint8_t *out = malloc(4096 + 1), in[8192], *cut;
	struct compressed c;
	struct qcow2_inflate *z;
	uint64_t at, bytes;
	size_t n, bad = 0;
	int rc, was = -EIO;

	assert_non_null(out);
	make_compressed(&c, type, 12);
	assert_int_equal(qcow2_inflate_open(&z, c.h.compression), 0);
	assert_true((lookup(&c, 3) & QCOW2_COMPRESSED) != 0);
	qcow2_compressed_range(&c.h, lookup(&c, 3), &at, &bytes);
	for (n = 0; n <= bytes; n++) {
		cut = malloc(n + 1);
		assert_non_null(cut);
		memcpy(cut + 1, c.file + at, n);
		rc = unpack(z, cut + 1, n, out, 4096);
		free(cut);
		assert_true(rc == -EIO || was == 0 || n > 64);
		assert_true(was == -EIO || rc == 0);
		if (rc == 0)
			assert_memory_equal(out, c.disk + 3 * 4096ul, 4096);
		was = rc;
	}
	assert_int_equal(was, 0);
	for (n = 0; n < bytes * 8; n++) {
		memcpy(in, c.file + at, bytes);
		in[n / 8] ^= 1u << n % 8;
		bad += unpack(z, in, bytes, out, 4096) < 0;
		assert_int_equal(unpack(z, c.file + at, bytes, out, 4096), 0);
		assert_memory_equal(out, c.disk + 3 * 4096ul, 4096);
	}
	assert_true(bad > 0);
	/* A stream that holds more than a cluster does not spill over. */
	rc = unpack(z, c.file + at, bytes, out, 2048);
	assert_int_equal(rc, c.h.compression == QCOW2_ZLIB ? 0 : -EIO);
	/* Nor does one of less pass. */
	free(out);
	out = malloc(8192 + 1);
	assert_non_null(out);
	assert_int_equal(unpack(z, c.file + at, bytes, out, 8192), -EIO);
	qcow2_inflate_close(z);
	free_compressed(&c);
	free(out);
}

static void
test_damage_zlib(void **state)
{
	(void)state;
	check_damage("zlib");
}

static void
test_damage_zstd(void **state)
{
	(void)state;
	check_damage("zstd");
}

/* Deflate by hand. */
static void
test_zlib_streams(void **state)
{
	/* Stored, the last block, 512 bytes. */
	uint8_t in[1024] = { 1, 0, 2, 0xff, 0xfd }, out[513];
	struct qcow2_inflate *z;

	(void)state;
	memset(in + 5, 'x', 512);
	assert_int_equal(qcow2_inflate_open(&z, QCOW2_ZLIB), 0);
	assert_int_equal(unpack(z, in, 517, out, 512), 0);
	assert_int_equal(out[0] == 'x' && out[511] == 'x', true);
	assert_int_equal(unpack(z, in, 516, out, 512), -EIO);
	in[3] ^= 1;		/* not the complement of the length */
	assert_int_equal(unpack(z, in, 517, out, 512), -EIO);
	in[3] ^= 1;
	in[0] = 0;				/* not the last: more follows */
	in[517] = 7;				/* of no known kind */
	assert_int_equal(unpack(z, in, 517, out, 512), 0);
	assert_int_equal(unpack(z, in, 518, out, 512), -EIO);
	in[0] = 7;
	assert_int_equal(unpack(z, in, 517, out, 512), -EIO);
	/* Fixed codes: 'x', then three bytes from one back; from two back. */
	put(in, 0, 4, 0xab000200);
	assert_int_equal(unpack(z, in, 4, out, 4), 0);
	assert_memory_equal(out, "xxxx", 4);
	put(in, 0, 4, 0xab004200);
	assert_int_equal(unpack(z, in, 4, out, 4), -EIO);
	qcow2_inflate_close(z);
}

/*
 * zstd by hand: a frame is magic, descriptor (0: window only), window, then
 * blocks of 3 bytes (last | type << 1 | size << 3; type 1 is a byte repeated).
 */
static size_t
zstd_frame(uint8_t *to, unsigned window_log, unsigned bytes, uint8_t c)
{
	uint32_t block = 1 | 1 << 1 | bytes << 3;

	put(to, 0, 4, 0x28b52ffd);
	to[4] = 0;
	to[5] = (uint8_t)((window_log - 10) << 3);
	to[6] = (uint8_t)block;
	to[7] = (uint8_t)(block >> 8);
	to[8] = (uint8_t)(block >> 16);
	to[9] = c;
	return 10;
}

static void
test_zstd_streams(void **state)
{
	uint8_t in[1024], out[4097];
	struct qcow2_inflate *z;
	unsigned log;
	size_t n;

	(void)state;
	assert_int_equal(qcow2_inflate_open(&z, QCOW2_ZSTD), 0);
	/* The window that a frame asks for costs nothing, whatever it is. */
	for (log = 12; log <= 41; log++) {
		memset(in, 0xff, sizeof(in));
		memset(out, 0, sizeof(out));
		zstd_frame(in, log, 4096, 'w');
		if (unpack(z, in, sizeof(in), out, 4096) == 0)
			assert_true(out[0] == 'w' && out[4095] == 'w');
		else
			assert_true(log > 27);
	}
	/* Two frames, with one to be skipped between them. */
	n = zstd_frame(in, 12, 4000, 'a');
	memcpy(in + n, "\x5f\x2a\x4d\x18\x03\x00\x00\x00" "abc", 11);
	n += 11;
	n += zstd_frame(in + n, 12, 96, 'b');
	assert_int_equal(unpack(z, in, sizeof(in), out, 4096), 0);
	assert_true(out[3999] == 'a' && out[4000] == 'b' && out[4095] == 'b');
	assert_int_equal(unpack(z, in, n - 1, out, 4096), -EIO);
	assert_int_equal(unpack(z, in, n, out, 4095), -EIO);
	/* Empty frames to the end of the input. */
	for (n = 0; n + 10 <= sizeof(in); n += 10)
		zstd_frame(in + n, 12, 0, 'e');
	assert_int_equal(unpack(z, in, sizeof(in), out, 4096), -EIO);
	/* The same cluster as zstd 0.7 had it, which takes memory. */
	put(in, 0, 8, 0x27b52ffd00108010);
	put(in, 8, 8, 0x0077c00000000000);
	assert_int_equal(unpack(z, in, sizeof(in), out, 4096), -EIO);
	qcow2_inflate_close(z);
}

static void
test_close_nothing(void **state)
{
	(void)state;
	qcow2_inflate_close(NULL);
}

static int
make_folder(void **state)
{
	(void)state;
	rig_make_file(folder, 0);
	return unlink(folder) == 0 && mkdir(folder, 0700) == 0 ? 0 : -1;
}

static int
remove_folder(void **state)
{
	(void)state;
	return rig_shell(NULL, 0, "rm -rf '%s'", folder);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_base),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_short),
		cmocka_unit_test(test_long_name),
		cmocka_unit_test(test_backing_format),
		cmocka_unit_test(test_version_2),
		cmocka_unit_test(test_feature_names),
		cmocka_unit_test(test_qemu_images),
		cmocka_unit_test(test_inflate),
		cmocka_unit_test(test_damage_zlib),
		cmocka_unit_test(test_damage_zstd),
		cmocka_unit_test(test_zlib_streams),
		cmocka_unit_test(test_zstd_streams),
		cmocka_unit_test(test_close_nothing),
	};

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
