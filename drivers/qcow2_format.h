/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * qcow2_format: the bytes of a qcow2 file, versions 2 and 3.
 *
 * Facts of QEMU's docs/interop/qcow2.txt.  Everything on disk is big endian;
 * nothing here does I/O.
 */
#ifndef DRIVERS_QCOW2_FORMAT_H
#define DRIVERS_QCOW2_FORMAT_H

#include <endian.h>

#include "drivers/driver.h"

#define QCOW2_MAGIC            0x514649fbu
#define QCOW2_MIN_CLUSTER_BITS 9u
#define QCOW2_MAX_CLUSTER_BITS 21u
#define QCOW2_MIN_EXTENDED_BITS 14u	/* with extended L2 entries */
#define QCOW2_MAX_L1_BYTES     (32u << 20)	/* as QEMU */
#define QCOW2_MAX_REFTABLE_BYTES (8u << 20)	/* as QEMU */
#define QCOW2_MAX_SNAPSHOTS    65536u
#define QCOW2_SUBCLUSTERS      32u
#define QCOW2_BACKING_MAX      1024u	/* bytes of its name, NUL included */

/* incompatible_features */
#define QCOW2_INCOMPAT_DIRTY       (1ull << 0)
#define QCOW2_INCOMPAT_CORRUPT     (1ull << 1)
#define QCOW2_INCOMPAT_DATA_FILE   (1ull << 2)
#define QCOW2_INCOMPAT_COMPRESSION (1ull << 3)
#define QCOW2_INCOMPAT_EXTENDED_L2 (1ull << 4)

/* L1 and L2 entries */
#define QCOW2_COPIED      (1ull << 63)	/* refcount is exactly one */
#define QCOW2_COMPRESSED  (1ull << 62)
#define QCOW2_ZERO        (1ull << 0)	/* version 3 without extended L2 */
#define QCOW2_OFFSET_MASK 0x00fffffffffffe00ull
#define QCOW2_REFTABLE_MASK 0xfffffffffffffe00ull

/* Where the fields that are changed in place lie in the header. */
#define QCOW2_AT_SIZE              24u	/* u64 */
#define QCOW2_AT_L1_ENTRIES        36u	/* u32 */
#define QCOW2_AT_L1_OFFSET         40u	/* u64 */
#define QCOW2_AT_REFTABLE_OFFSET   48u	/* u64 */
#define QCOW2_AT_REFTABLE_CLUSTERS 56u	/* u32 */
#define QCOW2_AT_INCOMPATIBLE      72u	/* u64, version 3 */
#define QCOW2_AT_AUTOCLEAR         88u	/* u64, version 3 */

enum qcow2_compression { QCOW2_ZLIB = 0, QCOW2_ZSTD = 1 };

/* The header, checked and in native byte order. */
struct qcow2_header {
	uint32_t version;		/* 2 or 3 */
	uint32_t cluster_bits;
	uint64_t size;			/* virtual, bytes, as stored */
	uint32_t l1_entries;
	uint64_t l1_offset;
	uint64_t reftable_offset;
	uint32_t reftable_clusters;
	uint32_t nr_snapshots;
	uint64_t snapshots_offset;
	uint64_t incompatible, compatible, autoclear;	/* 0 in version 2 */
	uint32_t refcount_order;	/* bits = 1 << order */
	uint32_t length;		/* bytes */
	enum qcow2_compression compression;
	bool     bitmaps;		/* has the bitmaps extension */
	char     backing[QCOW2_BACKING_MAX];	/* "": none */
	char     backing_format[16];	/* "": none given; known to us: */
					/* "raw", "qcow2"; else as stored, */
					/* cut */
};

/*
 * Check 'buf', the first cluster of a file (or its first 'bytes' bytes, when
 * the file is shorter; at most 2 MiB) of 'file_size' bytes, field by field.
 * -EINVAL (malformed), -EOPNOTSUPP (a feature that is not built: encryption,
 * external data file, unknown incompatible bits); 'why' names field and
 * value, not the file.  Dirty, corrupt and a missing backing format are the
 * caller's to judge.
 */
int qcow2_header_parse(const void *buf, size_t bytes, uint64_t file_size,
        struct qcow2_header *h, char why[WHY_MAX]);

/* A version-dependent name of each feature bit we know, for messages. */
const char *qcow2_incompatible_name(unsigned bit);	/* NULL: unknown */

/* Bytes of virtual disk: the stored size cut to whole sectors. */
static inline uint64_t
qcow2_virtual_size(const struct qcow2_header *h)
{
	return h->size & ~(uint64_t)511;
}

static inline bool
qcow2_extended(const struct qcow2_header *h)
{
	return (h->incompatible & QCOW2_INCOMPAT_EXTENDED_L2) != 0;
}

/* log2 of the bytes of one L2 entry. */
static inline unsigned
qcow2_l2_entry_bits(const struct qcow2_header *h)
{
	return qcow2_extended(h) ? 4 : 3;
}

/* log2 of the entries of one L2 table, which fills one cluster. */
static inline unsigned
qcow2_l2_bits(const struct qcow2_header *h)
{
	return h->cluster_bits - qcow2_l2_entry_bits(h);
}

/* The host bytes that a compressed entry names: whole sectors. */
static inline void
qcow2_compressed_range(const struct qcow2_header *h, uint64_t entry,
    uint64_t *offset, uint64_t *bytes)
{
	unsigned x = 62 - (h->cluster_bits - 8);
	uint64_t sectors = ((entry >> x) & ((1ull << (62 - x)) - 1)) + 1;

	*offset = entry & ((1ull << x) - 1) & 0x00ffffffffffffffull;
	*bytes = sectors * 512 - (*offset & 511);
}

/*
 * Unpack one compressed cluster: 'in' holds the bytes that its entry names,
 * of which the stream may need fewer; 'out' gets exactly one cluster.  No
 * allocation after qcow2_inflate_open().  0, or -EIO for a bad stream or one
 * that holds less than a cluster.
 */
struct qcow2_inflate;
int  qcow2_inflate_open(struct qcow2_inflate **z, enum qcow2_compression type);
void qcow2_inflate_close(struct qcow2_inflate *z);	/* NULL is fine */
int  qcow2_inflate(struct qcow2_inflate *z, const void *in, size_t in_bytes,
         void *out, size_t cluster_size);

#endif
