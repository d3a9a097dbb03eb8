/* SPDX-License-Identifier: GPL-2.0-or-later */
/* qcow2_usage: see qcow2_usage.h. */
#include <errno.h>
#include <stdlib.h>

#include "drivers/qcow2_usage.h"

int
usage_open(struct qcow2_usage *u, uint64_t clusters)
{
	if (clusters > USAGE_MAX_CLUSTERS)
		return -EFBIG;
	u->chunks = calloc(clusters / USAGE_CHUNK + 1, sizeof(*u->chunks));
	if (u->chunks == NULL)
		return -ENOMEM;
	u->clusters = clusters;
	u->bytes = 0;
	return 0;
}

void
usage_close(struct qcow2_usage *u)
{
	uint64_t i;

	if (u->chunks == NULL)
		return;
	for (i = 0; i < u->clusters / USAGE_CHUNK + 1; i++)
		free(u->chunks[i]);
	free(u->chunks);
	u->chunks = NULL;
}

uint32_t *
usage_at(struct qcow2_usage *u, uint64_t cluster)
{
	uint32_t **chunk = &u->chunks[cluster / USAGE_CHUNK];

	if (*chunk == NULL) {
		if (u->bytes >= USAGE_MAX_BYTES)
			return NULL;
		*chunk = calloc(USAGE_CHUNK, sizeof(**chunk));
		if (*chunk == NULL)
			return NULL;
		u->bytes += USAGE_CHUNK * sizeof(**chunk);
	}
	return &(*chunk)[cluster % USAGE_CHUNK];
}
