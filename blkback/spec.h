/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * spec: the one way to name a disk, "format[,option=value...]:path".
 *
 * The same string stands in xl's target=, in `ringback attach` and in the
 * tests.  The format is always explicit and never probed (a guest can write
 * any header into a raw disk: CVE-2008-2004 and its successors).  Everything
 * after the first ':' is the path.  An option that is not built is refused by
 * name, never ignored.
 */
#ifndef BLKBACK_SPEC_H
#define BLKBACK_SPEC_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "drivers/driver.h"

#define SPEC_MAX       (PATH_MAX + 512)	/* bytes, NUL included */
#define SPEC_POLL_MAX  100000u		/* microseconds */
#define SPEC_MEMORY_MIN (64u << 10)	/* bytes; above the largest request */
#define SPEC_MEMORY_MAX (1u << 30)
#define SPEC_SEGMENTS_MIN 11u	/* what fits into a ring slot */
#define SPEC_SEGMENTS_MAX 256u	/* as Linux's backend takes */

#define SPEC_QUEUES_MAX 16u	/* also of iothreads */

/* What becomes of a request that the storage cannot do. */
enum on_error {
	ON_ERROR_REPORT,	/* the guest is told */
	ON_ERROR_STOP_ENOSPC,	/* out of space: it waits for the operator */
	ON_ERROR_STOP,		/* any error: likewise */
};

/* How the guest's pages are reached. */
enum grants_mode { GRANTS_AUTO, GRANTS_COPY, GRANTS_PERSISTENT };

/*
 * GRANTS_AUTO offers persistent grants where a CPU moves the data between the
 * guest's pages and the storage (the page cache): that saves one of two copies.
 * A device fetches the same data faster from the arena, which is contiguous,
 * than from a guest's single pages.  And only if 'memory' bounds their number
 * to no less than a guest as most are keeps in use: the requests of a ring of
 * one page, each of up to 32 segments, as Linux makes them, and its
 * descriptors.
 */
#define SPEC_AUTO_REQUESTS 32u
#define SPEC_AUTO_SEGMENTS 32u

/* Names for sets of other options, which win where they are given. */
enum spec_profile {
	PROFILE_DEFAULT,
	PROFILE_HIGH_PERFORMANCE,
	PROFILE_ECONOMY,
};

struct disk_spec {
	char            format[16];
	char            path[PATH_MAX];
	enum spec_profile profile;
	enum cache_mode cache;
	enum engine_kind engine;	/* io= */
	uint32_t        poll_us;	/* poll=off (0), microseconds, or */
					/* POLL_AUTO */
	uint32_t        merge;		/* bytes; 0: no merging */
	uint32_t        memory;		/* bytes of the arena; a queue's */
					/* share holds the largest request */
	uint8_t         ring_order;	/* largest offered, 0 ... 4 */
	uint16_t        segments;	/* of the largest request offered */
	uint8_t         iothreads;	/* that serve the queues; 1 ... */
	uint8_t         queues;		/* most offered; >= iothreads */
	enum on_error   on_error;
	enum grants_mode grants;	/* as given */
	bool            persistent;	/* what it comes to: are they offered */
	bool            readonly;
	bool            discard;	/* discard=unmap */
};

/*
 * Parse and check 'text'.  0, or -EINVAL with 'why' naming the option, its
 * value and what is allowed; *spec is then undefined.  Options not given have
 * the defaults of README.md's table.
 */
int spec_parse(const char *text, struct disk_spec *spec, char why[WHY_MAX]);

/* Is the option one of those that the profile stands for? */
bool spec_profile_sets(const char *profile, const char *option);

/*
 * The same for a CD-ROM drive, which may be empty: nothing after the ':', or
 * nothing at all.  Then the path is "", and the format means nothing.
 */
int spec_parse_drive(const char *text, struct disk_spec *spec,
        char why[WHY_MAX]);

#endif
