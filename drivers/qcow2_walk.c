/* SPDX-License-Identifier: GPL-2.0-or-later */
/* qcow2_walk: see qcow2_walk.h. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/qcow2_walk.h"

#define L1_RESERVED     0x7f000000000001ffull
#define L2_RESERVED     0x3f000000000001feull
#define BITMAP_RESERVED 0xff000000000001feull
#define EXT_END         0u
#define EXT_BITMAPS     0x23852875u
#define MAX_BITMAPS     65535u
#define SNAPSHOT_FIXED  40u	/* bytes of an entry before what varies */
#define SNAPSHOT_EXTRA  16u	/* bytes that version 3 asks for */
#define MAX_EXTRA       1024u	/* as QEMU */
#define BITMAP_FIXED    24u

/* ---- findings and counts ------------------------------------------------ */

void
check_found(struct check *k, uint64_t *counter, uint64_t times,
    const char *fmt, ...)
{
	struct image_check *c = k->c;
	char text[WHY_MAX];
	va_list ap;

	*counter += times;
	if (c->found == NULL || times == 0)
		return;
	va_start(ap, fmt);
	if (vsnprintf(text, sizeof(text), fmt, ap) < 0)
		text[0] = '\0';
	va_end(ap);
	c->found(c->arg, counter == &c->leaks ? FAULT_LEAK :
	    counter == &c->unread ? FAULT_UNREAD : FAULT_ERROR, text);
}

int
check_too_much(struct check *k)
{
	why_set(k->why, "check %.200s: more than %llu MiB of memory would be "
	    "needed to count its clusters of %" PRIu64 " bytes, or there is no "
	    "more; convert it to larger clusters (qemu-img convert), or look "
	    "whether its size is what it should be", k->layer->file.path,
	    USAGE_MAX_BYTES >> 20, k->cluster_size);
	return -EFBIG;
}

/*
 * More than a refcount can hold is an error of its own: no refcount can then
 * be right.
 */
static void
check_add(struct check *k, uint32_t *word, uint64_t cluster, uint64_t times)
{
	uint64_t room = k->max_count - (*word & USE_COUNT);

	if (times > room) {
		check_found(k, &k->c->errors, times - room, "cluster %" PRIu64
		    " (at %#" PRIx64 ") is used more often than its refcount "
		    "can say", cluster, cluster * k->cluster_size);
		times = room;
	}
	*word += (uint32_t)times;
}

int
check_use(struct check *k, uint64_t offset, uint64_t bytes, uint32_t kind,
    uint64_t times)
{
	uint64_t i, last;
	uint32_t *word;

	if (bytes == 0 || times == 0)
		return 0;
	/* The last cluster of a file may be there in part only. */
	if (offset > INT64_MAX || bytes > INT64_MAX - offset ||
	    offset + bytes >= k->file_size + k->cluster_size) {
		check_found(k, &k->c->errors, times, "%#" PRIx64 ": %" PRIu64
		    " bytes are used there, which lie beyond the end of the "
		    "file", offset, bytes);
		return 0;
	}
	last = (offset + bytes - 1) / k->cluster_size;
	for (i = offset / k->cluster_size; i <= last; i++) {
		word = usage_at(&k->usage, i);
		if (word == NULL)
			return check_too_much(k);
		/* Of two uses of metadata one is too many. */
		if (kind == USE_METADATA && *word & USE_METADATA)
			*word |= USE_DATA;
		*word |= kind;
		check_add(k, word, i, times);
	}
	return 0;
}

/* ---- reading ------------------------------------------------------------ */

/* 'bytes' from anywhere, through the piece; -errno is a finding of no one. */
static int
read_bytes(struct check *k, uint64_t offset, void *buf, size_t bytes)
{
	uint64_t at;
	size_t n;
	int rc;

	while (bytes > 0) {
		at = offset - offset % CHECK_PIECE;
		if (at != k->piece_at) {
			k->piece_at = UINT64_MAX;
			rc = file_pread(&k->layer->file, k->piece, CHECK_PIECE,
			    at);
			if (rc < 0)
				return rc;
			k->piece_at = at;
		}
		n = CHECK_PIECE - (size_t)(offset - at);
		n = n < bytes ? n : bytes;
		memcpy(buf, (char *)k->piece + (offset - at), n);
		buf = (char *)buf + n;
		offset += n;
		bytes -= n;
	}
	return 0;
}

int
check_entries(struct check *k, uint64_t offset, uint64_t entries,
    const char *what, check_entry *entry)
{
	uint64_t i, value;
	int rc;

	if (offset > k->file_size || offset % sizeof(value) != 0)
		return 0;	/* a finding already: zeroes would be read */
	for (i = 0; i < entries; i++, offset += sizeof(value)) {
		if (offset >= k->file_size)
			return 0;
		rc = read_bytes(k, offset, &value, sizeof(value));
		if (rc < 0) {
			check_found(k, &k->c->unread, 1, "%s: read at %#" PRIx64
			    ": %s", what, offset, strerror(-rc));
			return 0;
		}
		rc = entry(k, i, be64toh(value));
		if (rc != 0)
			return rc;
	}
	return 0;
}

/* ---- L1 tables: which L2 tables there are, and how often ---------------- */

/* It is counted as an L2 table only, until all of these are known. */
static int
l1_aligned(struct check *k, uint64_t offset)
{
	uint32_t *word;

	if (offset >= k->file_size) {
		check_found(k, &k->c->errors, 1, "%#" PRIx64 ": an L2 table "
		    "lies there, beyond the end of the file", offset);
		return 0;
	}
	word = usage_at(&k->usage, offset / k->cluster_size);
	if (word == NULL)
		return check_too_much(k);
	*word |= USE_L2;
	if ((*word & USE_COUNT) < USE_COUNT)
		++*word;
	return 0;
}

static int
l1_entry(struct check *k, uint64_t i, uint64_t entry)
{
	uint64_t offset = entry & QCOW2_OFFSET_MASK;
	struct l2_use *odd;

	if (entry == 0)
		return 0;
	if (entry & L1_RESERVED)
		check_found(k, &k->c->errors, 1, "L1 entry %" PRIu64 " has "
		    "reserved bits set: %#" PRIx64, i, entry);
	if (offset % k->cluster_size == 0)
		return l1_aligned(k, offset);
	check_found(k, &k->c->errors, 1, "L1 entry %" PRIu64 " names an L2 "
	    "table that is not aligned to a cluster: %#" PRIx64, i, entry);
	if (k->nr_odd < CHECK_ODD) {
		odd = &k->odd[k->nr_odd++];
		odd->offset = offset;
		odd->active = k->active;
		odd->total = 1;
	}
	return 0;
}

static int
walk_l1(struct check *k, uint64_t offset, uint64_t entries)
{
	k->l1_bytes += entries * 8;
	if (k->l1_bytes > k->file_size + QCOW2_MAX_L1_BYTES) {
		why_set(k->why, "check %.200s: the L1 tables of its snapshots "
		    "are larger than the file: the snapshot table is damaged; "
		    "keep a copy and repair it with 'qemu-img check -r all'",
		    k->layer->file.path);
		return -EFBIG;
	}
	return check_entries(k, offset, entries, "L1 table", l1_entry);
}

/* Make k->l2 of what was counted; what k->active counted stays known. */
static int
gather_l2(struct check *k)
{
	uint64_t i, n = 0, old = 0;
	struct l2_use *l2;
	uint32_t word;

	for (i = 0; i < k->usage.clusters; i++) {
		if (usage_chunk_empty(&k->usage, i))
			i += USAGE_CHUNK - i % USAGE_CHUNK - 1;
		else if (usage_get(&k->usage, i) & USE_L2)
			n++;
	}
	l2 = calloc(n + 1, sizeof(*l2));
	if (l2 == NULL)
		return check_too_much(k);
	n = 0;
	for (i = 0; i < k->usage.clusters; i++) {
		if (usage_chunk_empty(&k->usage, i)) {
			i += USAGE_CHUNK - i % USAGE_CHUNK - 1;
			continue;
		}
		word = usage_get(&k->usage, i);
		if (!(word & USE_L2))
			continue;
		l2[n].offset = i * k->cluster_size;
		l2[n].total = word & USE_COUNT;
		if (k->active)
			l2[n].active = l2[n].total;
		else if (old < k->nr_l2 && k->l2[old].offset == l2[n].offset)
			l2[n].active = k->l2[old++].active;
		n++;
	}
	free(k->l2);
	k->l2 = l2;
	k->nr_l2 = n;
	return 0;
}

/* ---- L2 tables: the data ------------------------------------------------ */

static int
walk_compressed(struct check *k, const struct l2_use *t, uint64_t entry,
    uint64_t bitmap)
{
	uint64_t offset, bytes;

	if (entry & QCOW2_COPIED)
		check_found(k, &k->c->errors, t->total, "L2 entry %#" PRIx64
		    ": a compressed cluster is marked as used once", entry);
	if (bitmap != 0) {
		check_found(k, &k->c->errors, t->total, "L2 entry %#" PRIx64
		    ": a compressed cluster has subclusters: %#" PRIx64, entry,
		    bitmap);
		return 0;
	}
	k->c->allocated += t->active;
	k->c->compressed += t->active;
	k->c->fragmented += t->active;
	qcow2_compressed_range(k->h, entry, &offset, &bytes);
	return check_use(k, offset, bytes, USE_DATA, t->total);
}

/* Is the mark "used once" what the refcount says?  Of active tables only. */
static void
check_copied(struct check *k, uint64_t times, const char *what, uint64_t entry)
{
	uint64_t cluster = (entry & QCOW2_OFFSET_MASK) >> k->h->cluster_bits;
	uint32_t word = cluster < k->nr ? usage_get(&k->usage, cluster) :
	    check_mark_beyond(k, cluster);

	if (times == 0 || word & USE_UNKNOWN)
		return;
	if (((entry & QCOW2_COPIED) != 0) != ((word & USE_IS_ONE) != 0))
		check_found(k, &k->c->errors, times, "%s entry %#" PRIx64
		    " is %smarked as used once, and its refcount says it is%s",
		    what, entry, entry & QCOW2_COPIED ? "" : "not ",
		    word & USE_IS_ONE ? "" : " not");
}

/* *next: where a cluster would follow the one before. */
static int
walk_standard(struct check *k, const struct l2_use *t, uint64_t entry,
    uint64_t bitmap, uint64_t *next)
{
	uint64_t offset = entry & QCOW2_OFFSET_MASK;

	if (entry & L2_RESERVED)
		check_found(k, &k->c->errors, t->total, "L2 entry %#" PRIx64
		    " has reserved bits set", entry);
	if (offset == 0) {
		if ((uint32_t)bitmap != 0)
			check_found(k, &k->c->errors, t->total, "L2 entry %#"
			    PRIx64 " has no cluster but subclusters: %#" PRIx64,
			    entry, bitmap);
		return 0;
	}
	/* An L1 entry without an offset names the header: no table. */
	check_copied(k, t->offset == 0 ? 0 : t->active, "L2", entry);
	if ((bitmap >> 32) & bitmap)
		check_found(k, &k->c->errors, t->total, "L2 entry %#" PRIx64
		    " has subclusters that are data and zeroes: %#" PRIx64,
		    entry, bitmap);
	if (offset % k->cluster_size != 0)
		check_found(k, &k->c->errors, t->total, "L2 entry %#" PRIx64
		    " is not aligned to a cluster", entry);
	k->c->allocated += t->active;
	if (*next != 0 && *next != offset)
		k->c->fragmented += t->active;
	*next = offset + k->cluster_size;
	return check_use(k, offset, k->cluster_size, USE_DATA, t->total);
}

static int
walk_l2(struct check *k, const struct l2_use *t)
{
	size_t words = k->cluster_size / 8, i;
	const uint64_t *table = k->table;
	uint64_t entry, bitmap = 0, next = 0;
	int rc;

	rc = file_pread(&k->layer->file, k->table, k->cluster_size, t->offset);
	if (rc < 0) {
		check_found(k, &k->c->unread, t->total, "L2 table: read at %#"
		    PRIx64 ": %s", t->offset, strerror(-rc));
		return 0;
	}
	for (i = 0; rc == 0 && i < words; i++) {
		entry = be64toh(table[i]);
		if (qcow2_extended(k->h))
			bitmap = be64toh(table[++i]);
		if (entry & QCOW2_COMPRESSED)
			rc = walk_compressed(k, t, entry, bitmap);
		else if ((entry | bitmap) != 0)
			rc = walk_standard(k, t, entry, bitmap, &next);
	}
	return rc;
}

/* Their own clusters have been counted: was that too often? */
static int
walk_all_l2(struct check *k)
{
	uint32_t *word, count;
	uint64_t i;
	int rc = 0;

	for (i = 0; i < k->nr_l2; i++) {
		word = usage_at(&k->usage, k->l2[i].offset / k->cluster_size);
		if (word == NULL)
			return check_too_much(k);
		count = *word & USE_COUNT;
		*word &= ~USE_COUNT;
		check_add(k, word, k->l2[i].offset / k->cluster_size, count);
	}
	for (i = 0; rc == 0 && i < k->nr_l2; i++)
		rc = walk_l2(k, &k->l2[i]);
	for (i = 0; rc == 0 && i < k->nr_odd; i++) {
		rc = check_use(k, k->odd[i].offset, k->cluster_size, USE_L2,
		    k->odd[i].total);
		if (rc == 0)
			rc = walk_l2(k, &k->odd[i]);
	}
	return rc;
}

static int
copied_l1_entry(struct check *k, uint64_t i, uint64_t entry)
{
	(void)i;
	if ((entry & QCOW2_OFFSET_MASK) != 0)
		check_copied(k, 1, "L1", entry);
	return 0;
}

/* ---- snapshots ---------------------------------------------------------- */

struct snapshot {
	uint64_t l1_offset, l1_bytes;
	uint32_t l1_entries, extra;
};

/* One entry of the table at *at, which moves on.  -errno: not readable. */
static int
snapshot_read(struct check *k, uint64_t *at, struct snapshot *s)
{
	unsigned char e[SNAPSHOT_FIXED];
	uint64_t bytes;
	uint16_t id, name;
	int rc;

	rc = read_bytes(k, *at, e, sizeof(e));
	if (rc < 0)
		return rc;
	memcpy(&s->l1_offset, e, 8);
	memcpy(&s->l1_entries, e + 8, 4);
	memcpy(&id, e + 12, 2);
	memcpy(&name, e + 14, 2);
	memcpy(&s->extra, e + 36, 4);
	s->l1_offset = be64toh(s->l1_offset);
	s->l1_entries = be32toh(s->l1_entries);
	s->l1_bytes = s->l1_entries * 8ull;
	s->extra = be32toh(s->extra);
	bytes = SNAPSHOT_FIXED + (uint64_t)s->extra + be16toh(id) +
	    be16toh(name);
	*at += (bytes + 7) & ~7ull;
	return 0;
}

/* What is to be said of an entry; false: its L1 table cannot be used. */
static bool
snapshot_check(struct check *k, uint32_t i, const struct snapshot *s)
{
	if (s->extra > MAX_EXTRA ||
	    (k->h->version >= 3 && s->extra < SNAPSHOT_EXTRA))
		check_found(k, &k->c->errors, 1, "snapshot %u has %u bytes of "
		    "extra data, not 16 to 1024", i, s->extra);
	if (s->l1_offset % k->cluster_size != 0) {
		check_found(k, &k->c->errors, 1, "snapshot %u: its L1 table at "
		    "%#" PRIx64 " is not aligned to a cluster", i,
		    s->l1_offset);
		return false;
	}
	if (s->l1_bytes > QCOW2_MAX_L1_BYTES) {
		check_found(k, &k->c->errors, 1, "snapshot %u: its L1 table is "
		    "too large, %u entries", i, s->l1_entries);
		return false;
	}
	return true;
}

/* Once for the L2 tables they name, once more for the clusters they take. */
static int
walk_snapshots(struct check *k, bool count)
{
	uint64_t at = k->h->snapshots_offset;
	struct snapshot s;
	uint32_t i;
	int rc;

	for (i = 0; i < k->h->nr_snapshots; i++) {
		rc = at >= k->file_size ? -ENODATA : snapshot_read(k, &at, &s);
		if (rc < 0) {
			if (count)
				check_found(k, &k->c->unread, 1, "snapshot %u: "
				    "read the table at %#" PRIx64 ": %s", i, at,
				    strerror(-rc));
			return 0;
		}
		if (!count && !snapshot_check(k, i, &s))
			continue;
		if (s.l1_offset % k->cluster_size != 0 ||
		    s.l1_bytes > QCOW2_MAX_L1_BYTES)
			continue;
		rc = count ? check_use(k, s.l1_offset, s.l1_bytes,
		    USE_METADATA, 1) : walk_l1(k, s.l1_offset, s.l1_entries);
		if (rc < 0)
			return rc;
	}
	return count && k->h->nr_snapshots > 0 ? check_use(k,
	    k->h->snapshots_offset, at - k->h->snapshots_offset, USE_METADATA,
	    1) : 0;
}

/* ---- bitmaps ------------------------------------------------------------ */

static int
bitmap_entry(struct check *k, uint64_t i, uint64_t entry)
{
	uint64_t offset = entry & QCOW2_OFFSET_MASK;

	if (entry & BITMAP_RESERVED || (offset != 0 && entry & 1) ||
	    offset % k->cluster_size != 0) {
		check_found(k, &k->c->errors, 1, "bitmap table entry %" PRIu64
		    " is malformed: %#" PRIx64, i, entry);
		return 0;
	}
	return offset == 0 ? 0 : check_use(k, offset, k->cluster_size,
	    USE_METADATA, 1);
}

static int
walk_bitmap(struct check *k, const unsigned char *e)
{
	uint64_t offset;
	uint32_t entries;
	int rc;

	memcpy(&offset, e, 8);
	memcpy(&entries, e + 8, 4);
	offset = be64toh(offset);
	entries = be32toh(entries);
	if (offset % k->cluster_size != 0 ||
	    entries * 8ull > k->file_size) {
		check_found(k, &k->c->errors, 1, "a bitmap's table of %u "
		    "entries at %#" PRIx64 " is malformed", entries, offset);
		return 0;
	}
	rc = check_use(k, offset, entries * 8ull, USE_METADATA, 1);
	if (rc < 0)
		return rc;
	return check_entries(k, offset, entries, "bitmap", bitmap_entry);
}

/* The directory: where it is stands in the extension of the header. */
static int
walk_bitmaps(struct check *k, uint32_t nr, uint64_t bytes, uint64_t offset)
{
	unsigned char e[BITMAP_FIXED] = { 0 };
	uint64_t at = offset, size;
	uint32_t i, extra;
	uint16_t name;
	int rc;

	rc = check_use(k, offset, bytes, USE_METADATA, 1);
	if (rc < 0)
		return rc;
	for (i = 0; i < nr; i++) {
		rc = nr > MAX_BITMAPS || at - offset + sizeof(e) > bytes ||
		    at >= k->file_size ? -ENODATA :
		    read_bytes(k, at, e, sizeof(e));
		memcpy(&name, e + 18, 2);
		memcpy(&extra, e + 20, 4);
		size = BITMAP_FIXED + (uint64_t)be32toh(extra) + be16toh(name);
		if (rc < 0 || size > bytes - (at - offset)) {
			check_found(k, &k->c->errors, 1, "the bitmap directory "
			    "ends before its entry %u of %u", i, nr);
			return 0;
		}
		rc = walk_bitmap(k, e);
		if (rc < 0)
			return rc;
		at += (size + 7) & ~7ull;
	}
	return 0;
}

/* Without the bit in the header bitmaps are not to be looked at. */
static int
find_bitmaps(struct check *k)
{
	unsigned char e[24];
	uint32_t type, bytes, nr;
	uint64_t at = k->h->length, size, offset;
	int rc = 0;

	if (!k->h->bitmaps || !(k->h->autoclear & 1))
		return 0;
	while (rc == 0 && at + 8 <= k->cluster_size) {
		rc = read_bytes(k, at, e, 8);
		memcpy(&type, e, 4);
		memcpy(&bytes, e + 4, 4);
		type = be32toh(type);
		bytes = be32toh(bytes);
		if (rc < 0 || type == EXT_END)
			break;
		at += 8;
		if (type == EXT_BITMAPS && bytes == sizeof(e)) {
			rc = read_bytes(k, at, e, sizeof(e));
			if (rc < 0)
				break;
			memcpy(&nr, e, 4);
			memcpy(&size, e + 8, 8);
			memcpy(&offset, e + 16, 8);
			return walk_bitmaps(k, be32toh(nr), be64toh(size),
			    be64toh(offset));
		}
		at += ((uint64_t)bytes + 7) & ~7ull;
	}
	if (rc < 0)
		check_found(k, &k->c->unread, 1, "read the header: %s",
		    strerror(-rc));
	return 0;
}

/* ---- all of it ---------------------------------------------------------- */

int
check_walk(struct check *k)
{
	const struct qcow2_header *h = k->h;
	int rc;

	k->active = true;
	rc = walk_l1(k, h->l1_offset, h->l1_entries);
	if (rc == 0)
		rc = gather_l2(k);
	k->active = false;
	if (rc == 0)
		rc = walk_snapshots(k, false);
	if (rc == 0)
		rc = gather_l2(k);

	if (rc == 0)
		rc = check_use(k, 0, k->cluster_size, USE_METADATA, 1);
	if (rc == 0)
		rc = check_use(k, h->l1_offset, h->l1_entries * 8ull,
		    USE_METADATA, 1);
	if (rc == 0)
		rc = walk_all_l2(k);
	if (rc == 0)
		rc = check_entries(k, h->l1_offset, h->l1_entries, "L1 table",
		    copied_l1_entry);
	if (rc == 0)
		rc = walk_snapshots(k, true);
	if (rc == 0)
		rc = find_bitmaps(k);
	return rc;
}
