/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A message from the other process: type, length and bytes as they come. */
#include <stdlib.h>
#include <string.h>

#include "blkback/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
look_at(const struct message_connect *c)
{
	uint32_t i;

	if (c->nr_queues < 1 || c->nr_queues > MAX_QUEUES)
		abort();
	for (i = 0; i < c->nr_queues; i++)
		if (c->ring[i].order > RING_MAX_ORDER)
			abort();
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct message m;
	uint16_t at;

	if (size < 8)
		return 0;
	/* A well-formed frame, damaged where the input says. */
	message_init(&m, data[0]);
	m.u.connect.nr_queues = data[1];
	m.u.connect.abi = data[2];
	m.geometry.block_size = 1u << (data[3] & 31);
	m.geometry.physical_block_size = 1u << (data[4] & 31);
	m.geometry.size = (uint64_t)data[5] << 9;
	for (data += 8, size -= 8; size >= 3; data += 3, size -= 3) {
		memcpy(&at, data, sizeof(at));
		((uint8_t *)&m)[at % sizeof(m)] = data[2];
	}
	if (message_check(&m, sizeof(m) - size) != 0)
		return 0;
	if (size != 0 || m.version != MESSAGE_VERSION)
		abort();
	if (strnlen(m.why, sizeof(m.why)) == sizeof(m.why))
		abort();
	if (m.type == MSG_CONNECT)
		look_at(&m.u.connect);
	if (m.type == MSG_RESIZE && (m.u.resize.size % 512 != 0 ||
	    m.u.resize.size > INT64_MAX))
		abort();
	if (m.type == MSG_OPEN && strnlen(m.u.open.spec, SPEC_MAX) == SPEC_MAX)
		abort();
	return 0;
}
