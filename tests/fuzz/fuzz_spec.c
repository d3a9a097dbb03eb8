/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A disk spec as a person may write it. */
#include <stdlib.h>
#include <string.h>

#include "blkback/poll.h"
#include "blkback/spec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1), why[WHY_MAX];
	struct disk_spec spec;
	int rc;

	if (text == NULL)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	memset(why, 0x55, sizeof(why));
	rc = spec_parse_drive(text, &spec, why);
	if (rc == 0 && spec.path[0] == '\0') {
		/* A drive without a medium; as a disk it is refused. */
		if (spec_parse(text, &spec, why) == 0)
			abort();
		free(text);
		return 0;
	}
	rc = spec_parse(text, &spec, why);
	if (rc < 0) {
		/* Refused with a line that a person can read. */
		if (memchr(why, '\0', sizeof(why)) == NULL ||
		    why[0] == '\0' || strchr(why, '\n') != NULL)
			abort();
	} else if (driver_find(spec.format) == NULL || spec.path[0] == '\0' ||
	    spec.ring_order > 4 || (spec.poll_us > SPEC_POLL_MAX &&
	    spec.poll_us != POLL_AUTO) ||
	    spec.segments < SPEC_SEGMENTS_MIN ||
	    spec.segments > spec.memory / 4096 ||
	    spec.memory < SPEC_MEMORY_MIN || spec.memory > SPEC_MEMORY_MAX ||
	    spec.merge > spec.memory) {
		abort();
	}
	free(text);
	return 0;
}
