/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A frontend that writes indices as the input says, five bytes a step: what to
 * write, and the value (or the distance to it); between steps the backend does
 * what it can.
 */
#include <stdlib.h>
#include <string.h>

#include "ring/ring.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static _Alignas(4096) uint8_t shared[RING_MAX_PAGES * RING_PAGE];

static void
scribble(const uint8_t *step)
{
	uint32_t value, *word = (uint32_t *)(void *)shared + (step[0] & 3);

	memcpy(&value, step + 1, sizeof(value));
	*word = step[0] & 4 ? value : *word + value % 600;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint32_t held = 0, answer;
	blkif_request_t req;
	struct ring r;
	int n;

	memset(shared, 0, sizeof(shared));
	if (size < 1 || ring_attach(&r, shared, data[0] % 5,
	    data[0] / 5 % 3) != 0)
		return 0;
	for (data++, size--; size >= 5; data += 5, size -= 5) {
		scribble(data);
		n = ring_pending(&r);
		if (n < 0) {
			if (ring_pending(&r) >= 0 || !ring_arm(&r))
				abort();	/* broken is for good */
			return 0;
		}
		for (; n > 0; n--, held++)
			ring_take(&r, &req);
		if (held > r.entries || held != r.req_cons - r.rsp_prod)
			abort();
		for (answer = data[0] >> 3; answer > 0 && held > 0;
		    answer--, held--)
			ring_put(&r, 0, 0, 0);
		ring_publish(&r);
		if (r.published != r.rsp_prod)
			abort();
		ring_arm(&r);
	}
	return 0;
}
