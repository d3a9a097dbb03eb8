/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a guest may write about its ring, and the other strings that the
 * supervisor parses.  Input: lines "node=value", of any bytes.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "blkback/frontend.h"
#include "blkback/vdev.h"
#include "blkback/xenstore.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
	struct frontend_reader reader;	/* first */
	const char            *text;
	size_t                 size;
};

static int
read_line(const struct frontend_reader *r, const char *node, char *buf,
    size_t size)
{
	const struct input *in = (const struct input *)r;
	const char *p = in->text, *end = p + in->size, *eol;
	size_t n = strlen(node), len;

	for (; p < end; p = eol + 1) {
		eol = memchr(p, '\n', end - p);
		if (eol == NULL)
			eol = end;
		if ((size_t)(eol - p) <= n || memcmp(p, node, n) != 0 ||
		    p[n] != '=')
			continue;
		len = eol - p - n - 1;
		if (len >= size || memchr(p + n + 1, '\0', len) != NULL)
			return -E2BIG;
		memcpy(buf, p + n + 1, len);
		buf[len] = '\0';
		return 0;
	}
	return -ENOENT;
}

static void
check_frontend(const uint8_t *data, size_t size)
{
	struct input in = { { read_line }, (const char *)data, size };
	char why[WHY_MAX] = "";
	struct message m;
	unsigned order;

	for (order = 0; order <= RING_MAX_ORDER; order++) {
		const struct frontend_offer offer = { order, 1 + 3 * order,
		    true };

		message_init(&m, MSG_CONNECT);
		if (frontend_read(&in.reader, &offer, &m.u.connect, why) < 0) {
			if (memchr(why, '\0', sizeof(why)) == NULL ||
			    why[0] == '\0')
				abort();
			continue;
		}
		/* What is sent on is what the disk process will take. */
		if (message_check(&m, sizeof(m)) != 0 ||
		    m.u.connect.ring[0].order > order ||
		    m.u.connect.nr_queues > offer.max_queues)
			abort();
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1), name[VDEV_NAME_MAX], kind[16];
	uint32_t n, domid, devid, again;
	bool inside;

	if (text == NULL)
		return 0;
	check_frontend(data, size);
	memcpy(text, data, size);
	text[size] = '\0';
	if (xenstore_parse_u32(text, 1000, &n) == 0 && n > 1000)
		abort();
	if (xenstore_parse_id(text, '-', &domid, &devid) == 0 &&
	    domid > UINT16_MAX)
		abort();
	if (xenstore_parse_backend(text, kind, sizeof(kind), &domid, &devid,
	    &inside) == 0 && strlen(kind) >= sizeof(kind))
		abort();
	/* A name that was understood comes back as itself or its number. */
	if (vdev_parse(text, &devid) == 0) {
		vdev_name(devid, name);
		if (vdev_parse(name, &again) != 0 || again != devid)
			abort();
	}
	free(text);
	return 0;
}
