/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * qcow2_format: what the bytes of a qcow2 header may say, and how a
 * compressed cluster is unpacked.
 *
 *   +--------+------------+--------------+     +-- end of first cluster
 *   | header | extensions | backing name | ... |
 *   +--------+------------+--------------+
 *            h->length    backing_file_offset
 *
 * An image is written by whoever made it, so no field is believed: each is
 * held against its own limits first, then against the others.  What is left
 * when qcow2_header_parse() says 0 can be computed with without overflow, and
 * no two tables of it share a cluster.
 *
 * What is refused for what it asks (-EOPNOTSUPP) is looked at before what is
 * malformed in detail (-EINVAL): an image of a newer kind may have a layout
 * that only looks damaged.
 */
#include "drivers/qcow2_format.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ZLIB_CONST
#include <zlib.h>
#include <zstd.h>

#define V2_LENGTH      72u
#define V3_LENGTH      104u
#define V2_ORDER       4u
#define MAX_ORDER      6u
#define MAX_OFFSET     (1ull << 56)	/* L1 and L2 entries reach as far */
#define MAX_BITMAPS    65535u
#define MAX_DIRECTORY  0x7fffffffu	/* bytes of the bitmap directory */
#define MIN_SNAPSHOT   40u		/* bytes of its table entry */
#define MIN_BITMAP     24u		/* likewise */

/* Fields that are not in the contract. */
#define AT_VERSION        4u
#define AT_BACKING_OFFSET 8u
#define AT_BACKING_SIZE   16u
#define AT_CLUSTER_BITS   20u
#define AT_SIZE           24u
#define AT_CRYPT          32u
#define AT_L1_ENTRIES     36u
#define AT_L1_OFFSET      40u
#define AT_NR_SNAPSHOTS   60u
#define AT_SNAPSHOTS      64u
#define AT_COMPATIBLE     80u
#define AT_ORDER          96u
#define AT_LENGTH         100u
#define AT_COMPRESSION    104u

/* Header extensions. */
#define EXT_END            0u
#define EXT_BACKING_FORMAT 0xe2792acau
#define EXT_FEATURE_NAMES  0x6803f857u
#define EXT_BITMAPS        0x23852875u
#define EXT_CRYPT          0x0537be77u
#define EXT_DATA_FILE      0x44415441u

#define FEATURE_ENTRY 48u	/* bytes of one line of the name table */
#define FEATURE_NAME  46u	/* of which the name */

#define AUTOCLEAR_BITMAPS (1ull << 0)

struct parse {
	const uint8_t       *buf;
	uint64_t             bytes;	/* of the first cluster that exist */
	uint64_t             file_size;
	uint64_t             ext_end;	/* extensions end here or before */
	struct qcow2_header *h;
	char                *why;
};

struct extension {
	uint32_t       type;
	uint32_t       length;
	unsigned       at;		/* offset of its header */
	const uint8_t *data;
};

/* A contiguous part of the file. */
struct range {
	const char *name;
	uint64_t    first, end;
};

static uint32_t
get32(const struct parse *p, unsigned at)
{
	uint32_t v;

	memcpy(&v, p->buf + at, sizeof(v));
	return be32toh(v);
}

static uint64_t
get64(const struct parse *p, unsigned at)
{
	uint64_t v;

	memcpy(&v, p->buf + at, sizeof(v));
	return be64toh(v);
}

static uint64_t
cluster_size(const struct parse *p)
{
	return 1ull << p->h->cluster_bits;
}

static int
refuse(const struct parse *p, int rc, const char *field, unsigned at,
    uint64_t value, const char *allowed)
{
	why_set(p->why, "qcow2 header: %s (byte %u) is %" PRIu64
	    " (0x%" PRIx64 "): %s", field, at, value, value, allowed);
	return rc;
}

static int
bad(const struct parse *p, const char *field, unsigned at, uint64_t value,
    const char *allowed)
{
	return refuse(p, -EINVAL, field, at, value, allowed);
}

/*
 * Where things lie.
 */

static int
check_start(struct parse *p)
{
	struct qcow2_header *h = p->h;

	if (p->bytes < V2_LENGTH) {
		why_set(p->why, "qcow2 header: the file has %" PRIu64
		    " bytes, the header alone needs %u; it is cut off or of "
		    "another format", p->bytes, V2_LENGTH);
		return -EINVAL;
	}
	if (get32(p, 0) != QCOW2_MAGIC)
		return bad(p, "magic", 0, get32(p, 0), "it must be 0x514649fb; "
		    "this is no qcow2 image, name its true format");
	h->version = get32(p, AT_VERSION);
	if (h->version != 2 && h->version != 3)
		return bad(p, "version", AT_VERSION, h->version,
		    "2 or 3 is allowed; convert the image with qemu-img");
	h->cluster_bits = get32(p, AT_CLUSTER_BITS);
	if (h->cluster_bits < QCOW2_MIN_CLUSTER_BITS ||
	    h->cluster_bits > QCOW2_MAX_CLUSTER_BITS)
		return bad(p, "cluster_bits", AT_CLUSTER_BITS,
		    h->cluster_bits, "9 to 21 is allowed");
	if (p->bytes > cluster_size(p))
		p->bytes = cluster_size(p);
	return 0;
}

static int
check_length(struct parse *p)
{
	struct qcow2_header *h = p->h;

	if (h->version == 2) {
		h->length = V2_LENGTH;
		h->refcount_order = V2_ORDER;
		return 0;
	}
	if (p->bytes < V3_LENGTH) {
		why_set(p->why, "qcow2 header: the file has %" PRIu64
		    " bytes, a version 3 header needs %u; it is cut off",
		    p->bytes, V3_LENGTH);
		return -EINVAL;
	}
	h->length = get32(p, AT_LENGTH);
	if (h->length < V3_LENGTH || h->length % 8 != 0)
		return bad(p, "header_length", AT_LENGTH, h->length,
		    "at least 104 and a multiple of 8 is allowed");
	if (h->length > p->bytes)
		return bad(p, "header_length", AT_LENGTH, h->length,
		    "it must end inside the first cluster and the file");
	h->incompatible = get64(p, QCOW2_AT_INCOMPATIBLE);
	h->compatible = get64(p, AT_COMPATIBLE);
	h->autoclear = get64(p, QCOW2_AT_AUTOCLEAR);
	h->refcount_order = get32(p, AT_ORDER);
	return 0;
}

/* The name itself is judged later, by check_backing(). */
static int
check_backing_place(struct parse *p)
{
	uint64_t offset = get64(p, AT_BACKING_OFFSET);
	uint32_t size = get32(p, AT_BACKING_SIZE);

	p->ext_end = p->bytes;
	if (offset == 0)
		return 0;
	if (size == 0 || size >= QCOW2_BACKING_MAX)
		return bad(p, "backing_file_size", AT_BACKING_SIZE, size,
		    "1 to 1023 is allowed where there is a backing file");
	if (offset < p->h->length)
		return bad(p, "backing_file_offset", AT_BACKING_OFFSET, offset,
		    "the name must not overlap the header");
	if (offset > p->bytes || size > p->bytes - offset)
		return bad(p, "backing_file_offset", AT_BACKING_OFFSET, offset,
		    "the name must end inside the first cluster and the file");
	p->ext_end = offset;
	return 0;
}

/*
 * Extensions.
 */

/* 1: *e is the one at *at, which moves on; 0: there is none; -EINVAL. */
static int
next_extension(const struct parse *p, uint64_t *at, struct extension *e)
{
	uint64_t data = *at + 8;

	if (data > p->ext_end)
		return 0;
	e->at = (unsigned)*at;
	e->type = get32(p, e->at);
	e->length = get32(p, e->at + 4);
	e->data = p->buf + data;
	if (e->type == EXT_END)
		return 0;
	if (e->length > p->ext_end - data)
		return -EINVAL;
	*at = data + ((uint64_t)e->length + 7) / 8 * 8;
	return 1;
}

/*
 * Text of the image that ends up in messages: only what a terminal can show.
 * 'to' has room for a NUL behind 'bytes'.
 */
static void
take_text(char *to, const uint8_t *from, size_t bytes)
{
	size_t i;

	for (i = 0; i < bytes; i++)
		to[i] = from[i] >= ' ' && from[i] <= '~' ? (char)from[i] : '?';
	to[bytes] = '\0';
}

/* What the image itself calls an incompatible feature; "" for nothing. */
static void
find_feature_name(const struct parse *p, unsigned bit,
    char name[FEATURE_NAME + 1])
{
	uint64_t at = p->h->length;
	struct extension e;
	const uint8_t *f;
	size_t length;
	uint32_t n;

	name[0] = '\0';
	while (next_extension(p, &at, &e) == 1) {
		if (e.type != EXT_FEATURE_NAMES)
			continue;
		f = e.data;
		for (n = e.length / FEATURE_ENTRY; n > 0; n--) {
			if (f[0] == 0 && f[1] == bit) {
				length = strnlen((const char *)f + 2,
				    FEATURE_NAME);
				take_text(name, f + 2, length);
				return;
			}
			f += FEATURE_ENTRY;
		}
	}
}

static int
take_backing_format(const struct parse *p, const struct extension *e)
{
	size_t max = sizeof(p->h->backing_format) - 1;

	/* A NUL inside must not make it a name that we know. */
	take_text(p->h->backing_format, e->data,
	    e->length < max ? e->length : max);
	return 0;
}

static int
take_bitmaps(const struct parse *p, const struct extension *e)
{
	uint32_t nr;
	uint64_t bytes, offset;

	p->h->bitmaps = true;
	/* Without the bit its content is stale and nobody's business. */
	if ((p->h->autoclear & AUTOCLEAR_BITMAPS) == 0)
		return 0;
	if (e->length != 24)
		return bad(p, "length of the bitmaps extension", e->at + 4,
		    e->length, "24 is allowed");
	nr = get32(p, e->at + 8);
	bytes = get64(p, e->at + 16);
	offset = get64(p, e->at + 24);
	if (nr == 0 || nr > MAX_BITMAPS)
		return bad(p, "nb_bitmaps", e->at + 8, nr,
		    "1 to 65535 is allowed");
	if (get32(p, e->at + 12) != 0)
		return bad(p, "reserved field of the bitmaps extension",
		    e->at + 12, get32(p, e->at + 12), "0 is allowed");
	if (bytes < (uint64_t)nr * MIN_BITMAP || bytes > MAX_DIRECTORY)
		return bad(p, "bitmap_directory_size", e->at + 16, bytes,
		    "24 bytes per bitmap to 2 GiB is allowed");
	if (offset == 0 || offset % cluster_size(p) != 0 ||
	    offset >= MAX_OFFSET || offset + bytes > p->file_size)
		return bad(p, "bitmap_directory_offset", e->at + 24, offset,
		    "a multiple of the cluster size inside the file is "
		    "allowed");
	return 0;
}

static int
take_extension(const struct parse *p, const struct extension *e)
{
	switch (e->type) {
	case EXT_BACKING_FORMAT:
		return take_backing_format(p, e);
	case EXT_BITMAPS:
		return take_bitmaps(p, e);
	case EXT_CRYPT:
		return bad(p, "type of a header extension", e->at, e->type,
		    "an encryption header is not allowed where crypt_method "
		    "is 0");
	case EXT_DATA_FILE:
		return bad(p, "type of a header extension", e->at, e->type,
		    "the name of an external data file is not allowed where "
		    "the image has none");
	default:
		return 0;		/* may be ignored */
	}
}

static int
check_extensions(const struct parse *p)
{
	static const uint32_t known[] = { EXT_BACKING_FORMAT,
	    EXT_FEATURE_NAMES, EXT_BITMAPS };
	uint64_t at = p->h->length;
	unsigned seen = 0, i;
	struct extension e;
	int rc;

	while ((rc = next_extension(p, &at, &e)) == 1) {
		for (i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
			if (e.type != known[i])
				continue;
			if (seen & 1u << i)
				return bad(p, "type of a header extension",
				    e.at, e.type, "each type may occur once");
			seen |= 1u << i;
		}
		rc = take_extension(p, &e);
		if (rc < 0)
			return rc;
	}
	if (rc < 0)
		return bad(p, "length of a header extension", e.at + 4,
		    e.length, "it must end before the backing file name and "
		    "inside the first cluster and the file");
	if ((p->h->autoclear & AUTOCLEAR_BITMAPS) != 0 && !p->h->bitmaps)
		return bad(p, "autoclear_features", QCOW2_AT_AUTOCLEAR,
		    p->h->autoclear, "bit 0 is allowed only with the bitmaps "
		    "extension");
	return 0;
}

/* A name that is cut short or spills into the next line is another name. */
static int
check_backing(const struct parse *p)
{
	uint64_t at = get64(p, AT_BACKING_OFFSET);
	uint32_t size = get32(p, AT_BACKING_SIZE), i;
	const uint8_t *name;

	if (at == 0)
		return 0;
	name = p->buf + at;
	for (i = 0; i < size; i++) {
		if (name[i] < ' ' || name[i] == 0x7f)
			return bad(p, "backing file name", (unsigned)at + i,
			    name[i], "no NUL and no control character is "
			    "allowed in it");
	}
	memcpy(p->h->backing, name, size);
	p->h->backing[size] = '\0';
	return 0;
}

/*
 * Features.
 */

const char *
qcow2_incompatible_name(unsigned bit)
{
	static const char *const names[] = { "dirty bit", "corrupt bit",
	    "external data file", "compression type", "extended L2 entries" };

	return bit < sizeof(names) / sizeof(names[0]) ? names[bit] : NULL;
}

static int
check_incompatible(const struct parse *p)
{
	uint64_t set = p->h->incompatible;
	uint64_t known = QCOW2_INCOMPAT_DIRTY | QCOW2_INCOMPAT_CORRUPT |
	    QCOW2_INCOMPAT_COMPRESSION | QCOW2_INCOMPAT_EXTENDED_L2;
	char name[FEATURE_NAME + 1];
	const char *said;
	unsigned bit;

	if ((set & ~known) == 0)
		return 0;
	bit = (unsigned)__builtin_ctzll(set & ~known);
	said = qcow2_incompatible_name(bit);
	if (said == NULL) {
		find_feature_name(p, bit, name);
		said = name[0] != '\0' ? name : "of no name";
	}
	why_set(p->why, "qcow2 header: incompatible_features (byte %u) is "
	    "0x%" PRIx64 ": the image uses feature %u (%s), which is not "
	    "supported; convert the image with qemu-img to one without it",
	    QCOW2_AT_INCOMPATIBLE, set, bit, said);
	return -EOPNOTSUPP;
}

static int
check_encryption(const struct parse *p)
{
	uint32_t method = get32(p, AT_CRYPT);

	if (method == 0)
		return 0;
	if (method > 2)
		return bad(p, "crypt_method", AT_CRYPT, method,
		    "0 (none) is allowed");
	return refuse(p, -EOPNOTSUPP, "crypt_method", AT_CRYPT, method,
	    method == 1 ? "the image is encrypted (AES), which is not "
	    "supported; convert it with qemu-img to one that is not" :
	    "the image is encrypted (LUKS), which is not supported; convert "
	    "it with qemu-img to one that is not");
}

static int
check_compression(const struct parse *p)
{
	bool bit = (p->h->incompatible & QCOW2_INCOMPAT_COMPRESSION) != 0;
	uint8_t type = 0;

	if (p->h->length > AT_COMPRESSION)
		type = p->buf[AT_COMPRESSION];
	if (type > QCOW2_ZSTD)
		return refuse(p, -EOPNOTSUPP, "compression_type",
		    AT_COMPRESSION, type, "an unknown compression type; 0 "
		    "(zlib) or 1 (zstd) is allowed");
	if (bit != (type != QCOW2_ZLIB))
		return bad(p, "compression_type", AT_COMPRESSION, type, bit ?
		    "0 is not allowed where bit 3 of incompatible_features "
		    "(byte 72) is set" :
		    "only 0 is allowed where bit 3 of incompatible_features "
		    "(byte 72) is not set");
	p->h->compression = type;
	return 0;
}

/*
 * Tables.
 */

static int
check_table_place(const struct parse *p, const char *field, unsigned at,
    uint64_t offset, uint64_t bytes)
{
	if (offset % cluster_size(p) != 0)
		return bad(p, field, at, offset,
		    "a multiple of the cluster size is allowed");
	if (offset == 0)
		return bad(p, field, at, offset,
		    "the table must not overlap the header");
	if (offset >= MAX_OFFSET)
		return bad(p, field, at, offset,
		    "less than 2^56 is allowed");
	if (offset > p->file_size || bytes > p->file_size - offset)
		return bad(p, field, at, offset, "the table must end inside "
		    "the file; it may have been cut off");
	return 0;
}

static int
check_l1(struct parse *p)
{
	struct qcow2_header *h = p->h;
	uint64_t bytes, need;
	unsigned shift;

	h->size = get64(p, AT_SIZE);
	h->l1_entries = get32(p, AT_L1_ENTRIES);
	h->l1_offset = get64(p, AT_L1_OFFSET);
	bytes = (uint64_t)h->l1_entries * 8;
	shift = h->cluster_bits + qcow2_l2_bits(h);
	need = (h->size >> shift) +
	    ((h->size & ((1ull << shift) - 1)) != 0 ? 1 : 0);
	if (need > QCOW2_MAX_L1_BYTES / 8)
		return bad(p, "size", AT_SIZE, h->size, "no L1 table of 32 "
		    "MiB could map that much with clusters of this size");
	if (bytes > QCOW2_MAX_L1_BYTES)
		return bad(p, "l1_size", AT_L1_ENTRIES, h->l1_entries,
		    "0 to 4194304 (32 MiB) is allowed");
	if (h->l1_entries < need)
		return bad(p, "l1_size", AT_L1_ENTRIES, h->l1_entries,
		    "too few entries for the size of the disk");
	if (h->l1_entries == 0) {
		h->l1_offset = 0;
		return 0;
	}
	return check_table_place(p, "l1_table_offset", AT_L1_OFFSET,
	    h->l1_offset, bytes);
}

static int
check_refcounts(struct parse *p)
{
	struct qcow2_header *h = p->h;
	uint64_t bytes;

	if (h->refcount_order > MAX_ORDER)
		return bad(p, "refcount_order", AT_ORDER, h->refcount_order,
		    "0 to 6 is allowed");
	h->reftable_offset = get64(p, QCOW2_AT_REFTABLE_OFFSET);
	h->reftable_clusters = get32(p, QCOW2_AT_REFTABLE_CLUSTERS);
	bytes = (uint64_t)h->reftable_clusters << h->cluster_bits;
	if (bytes == 0 || bytes > QCOW2_MAX_REFTABLE_BYTES)
		return bad(p, "refcount_table_clusters",
		    QCOW2_AT_REFTABLE_CLUSTERS, h->reftable_clusters,
		    "1 cluster to 8 MiB is allowed");
	return check_table_place(p, "refcount_table_offset",
	    QCOW2_AT_REFTABLE_OFFSET, h->reftable_offset, bytes);
}

static int
check_snapshots(struct parse *p)
{
	struct qcow2_header *h = p->h;

	h->nr_snapshots = get32(p, AT_NR_SNAPSHOTS);
	h->snapshots_offset = get64(p, AT_SNAPSHOTS);
	if (h->nr_snapshots > QCOW2_MAX_SNAPSHOTS)
		return bad(p, "nb_snapshots", AT_NR_SNAPSHOTS,
		    h->nr_snapshots, "0 to 65536 is allowed");
	if (h->nr_snapshots == 0) {
		h->snapshots_offset = 0;
		return 0;
	}
	return check_table_place(p, "snapshots_offset", AT_SNAPSHOTS,
	    h->snapshots_offset, (uint64_t)h->nr_snapshots * MIN_SNAPSHOT);
}

/* A write to one table must never be a write to another. */
static int
check_overlaps(const struct parse *p)
{
	const struct qcow2_header *h = p->h;
	uint64_t cs = cluster_size(p);
	struct range r[3] = {
		{ "the L1 table", h->l1_offset,
		    h->l1_offset + (uint64_t)h->l1_entries * 8 },
		{ "the refcount table", h->reftable_offset,
		    h->reftable_offset + h->reftable_clusters * cs },
		{ "the snapshot table", h->snapshots_offset,
		    h->snapshots_offset +
		    (uint64_t)h->nr_snapshots * MIN_SNAPSHOT },
	};
	unsigned i, j;

	for (i = 0; i < 3; i++) {
		for (j = i + 1; j < 3; j++) {
			/* All begin at a cluster, so bytes tell it. */
			if (r[i].first >= r[j].end || r[j].first >= r[i].end)
				continue;
			why_set(p->why, "qcow2 header: %s (0x%" PRIx64
			    " to 0x%" PRIx64 ") overlaps %s (0x%" PRIx64
			    " to 0x%" PRIx64 "); they must lie apart",
			    r[i].name, r[i].first, r[i].end, r[j].name,
			    r[j].first, r[j].end);
			return -EINVAL;
		}
	}
	return 0;
}

int
qcow2_header_parse(const void *buf, size_t bytes, uint64_t file_size,
    struct qcow2_header *h, char why[WHY_MAX])
{
	struct parse p = { .buf = buf, .bytes = bytes,
	    .file_size = file_size, .h = h, .why = why };
	int rc;

	memset(h, 0, sizeof(*h));
	if ((rc = check_start(&p)) < 0 || (rc = check_length(&p)) < 0 ||
	    (rc = check_backing_place(&p)) < 0 ||
	    (rc = check_incompatible(&p)) < 0 ||
	    (rc = check_encryption(&p)) < 0 ||
	    (rc = check_compression(&p)) < 0 ||
	    (rc = check_extensions(&p)) < 0 || (rc = check_backing(&p)) < 0)
		return rc;
	if (qcow2_extended(h) && h->cluster_bits < QCOW2_MIN_EXTENDED_BITS)
		return bad(&p, "cluster_bits", AT_CLUSTER_BITS,
		    h->cluster_bits, "14 to 21 is allowed with extended L2 "
		    "entries (bit 4 of incompatible_features)");
	if ((rc = check_l1(&p)) < 0 || (rc = check_refcounts(&p)) < 0 ||
	    (rc = check_snapshots(&p)) < 0)
		return rc;
	return check_overlaps(&p);
}

/*
 * Compressed clusters.
 */

#define ZLIB_WINDOW_BITS (-12)	/* raw deflate, a window of 4 KiB */
#define ZSTD_MAGIC       0xfd2fb528u
#define ZSTD_SKIP        0x184d2a50u	/* its low 4 bits: any */

struct qcow2_inflate {
	enum qcow2_compression type;
	z_stream               zlib;
	ZSTD_DCtx             *zstd;
};

/*
 * zlib takes memory for its window when it first needs it, and keeps it:
 * make it need it now, by a block that is not the last one.
 */
static int
zlib_prime(z_stream *z)
{
	static const uint8_t in[] = { 0, 1, 0, 0xfe, 0xff, 'x' };
	uint8_t out[2];
	int rc;

	z->next_in = in;
	z->avail_in = sizeof(in);
	z->next_out = out;
	z->avail_out = sizeof(out);
	rc = inflate(z, Z_SYNC_FLUSH);
	return rc == Z_OK && z->avail_out == 1 ? 0 : -ENOMEM;
}

int
qcow2_inflate_open(struct qcow2_inflate **zp, enum qcow2_compression type)
{
	struct qcow2_inflate *z = calloc(1, sizeof(*z));

	*zp = NULL;
	if (z == NULL)
		return -ENOMEM;
	z->type = type;
	if (type == QCOW2_ZSTD) {
		z->zstd = ZSTD_createDCtx();
		if (z->zstd == NULL)
			goto err_free;
	} else {
		if (inflateInit2(&z->zlib, ZLIB_WINDOW_BITS) != Z_OK)
			goto err_free;
		if (zlib_prime(&z->zlib) < 0)
			goto err_end;
	}
	*zp = z;
	return 0;

err_end:
	inflateEnd(&z->zlib);
err_free:
	free(z);
	return -ENOMEM;
}

void
qcow2_inflate_close(struct qcow2_inflate *z)
{
	if (z == NULL)
		return;
	if (z->type == QCOW2_ZSTD)
		ZSTD_freeDCtx(z->zstd);
	else
		inflateEnd(&z->zlib);
	free(z);
}

/* The end of the stream need not be there once the cluster is. */
static int
zlib_inflate(z_stream *z, const void *in, size_t in_bytes, void *out,
    size_t size)
{
	int rc;

	if (inflateReset(z) != Z_OK)
		return -EIO;
	z->next_in = in;
	z->avail_in = (uInt)in_bytes;
	z->next_out = out;
	z->avail_out = (uInt)size;
	rc = inflate(z, Z_FINISH);
	if ((rc != Z_STREAM_END && rc != Z_BUF_ERROR) || z->avail_out != 0)
		return -EIO;
	return 0;
}

/*
 * Frame by frame, straight into the cluster, which serves as the window: no
 * memory depends on what a frame says about itself.  Where the input goes on
 * behind the last frame (it is whole sectors) is no frame's business.
 * Formats older than zstd 0.8 take memory, and no image has them.
 */
static int
zstd_inflate(ZSTD_DCtx *d, const void *in, size_t in_bytes, void *out,
    size_t size)
{
	size_t pos = 0, done = 0, n, made;
	uint32_t magic;

	while (done < size) {
		if (in_bytes - pos < sizeof(magic))
			return -EIO;
		memcpy(&magic, (const char *)in + pos, sizeof(magic));
		magic = le32toh(magic);
		if (magic != ZSTD_MAGIC && (magic & ~0xfu) != ZSTD_SKIP)
			return -EIO;
		n = ZSTD_findFrameCompressedSize((const char *)in + pos,
		    in_bytes - pos);
		if (ZSTD_isError(n) || n == 0 || n > in_bytes - pos)
			return -EIO;
		made = ZSTD_decompressDCtx(d, (char *)out + done, size - done,
		    (const char *)in + pos, n);
		if (ZSTD_isError(made) || made > size - done)
			return -EIO;
		pos += n;
		done += made;
	}
	return 0;
}

int
qcow2_inflate(struct qcow2_inflate *z, const void *in, size_t in_bytes,
    void *out, size_t cluster_size_bytes)
{
	if (z->type == QCOW2_ZSTD)
		return zstd_inflate(z->zstd, in, in_bytes, out,
		    cluster_size_bytes);
	return zlib_inflate(&z->zlib, in, in_bytes, out, cluster_size_bytes);
}
