/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * qcow2_usage: how often, and for what, each host cluster is used.
 *
 * One word per cluster, in chunks that are made when one of their clusters is
 * first used: a file that is sparse costs little, and a hostile one can make
 * no more of them than USAGE_MAX_BYTES hold.
 */
#ifndef DRIVERS_QCOW2_USAGE_H
#define DRIVERS_QCOW2_USAGE_H

#include <stdbool.h>
#include <stdint.h>

#define USAGE_CHUNK     1024u	/* clusters */
#define USAGE_MAX_BYTES (2ull << 30)
#define USAGE_MAX_CLUSTERS (8ull << 30)	/* 64 MiB of pointers */

/* The words: a count and what the cluster was seen as. */
#define USE_COUNT    0x07ffffffu
#define USE_UNKNOWN  0x08000000u	/* its refcount cannot be read */
#define USE_METADATA 0x10000000u	/* but for L2 tables: once only */
#define USE_L2       0x20000000u
#define USE_DATA     0x40000000u
#define USE_IS_ONE   0x80000000u	/* its refcount is exactly one */
#define USE_KINDS    (USE_METADATA | USE_L2 | USE_DATA)

struct qcow2_usage {
	uint32_t **chunks;
	uint64_t   clusters;	/* that can be used */
	uint64_t   bytes;	/* of chunks that exist */
};

/* -ENOMEM; -EFBIG: more than USAGE_MAX_CLUSTERS. */
int  usage_open(struct qcow2_usage *u, uint64_t clusters);
void usage_close(struct qcow2_usage *u);	/* all zeroes is fine */

/* The word of a cluster below u->clusters, made if need be; NULL: no room. */
uint32_t *usage_at(struct qcow2_usage *u, uint64_t cluster);

/* The same without making it: 0. */
static inline uint32_t
usage_get(const struct qcow2_usage *u, uint64_t cluster)
{
	const uint32_t *chunk;

	if (cluster >= u->clusters)
		return 0;
	chunk = u->chunks[cluster / USAGE_CHUNK];
	return chunk == NULL ? 0 : chunk[cluster % USAGE_CHUNK];
}

/* Is no cluster of its chunk used? */
static inline bool
usage_chunk_empty(const struct qcow2_usage *u, uint64_t cluster)
{
	return u->chunks[cluster / USAGE_CHUNK] == NULL;
}

#endif
