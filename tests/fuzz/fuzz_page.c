/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A page file that somebody has damaged, and those who look at it.  Input:
 * a byte that says nothing, then three for each change, where (in the header
 * and the first slots) and what.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "blkback/page.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct message_open opened = {
	.domid = 7, .devid = 51712, .uuid = "1-2-3", .backend = "backend/x",
};
static const struct page_shape shape = {
	.image_dev = 5, .image_ino = 6, .nr_queues = 3, .redo_bytes = 8192,
};

static char path[64];
static struct page *page;

static void
remove_file(void)
{
	unlink(path);
}

/* One file for all inputs: 'page' is it, as its owner sees it. */
static void
make_file(void)
{
	snprintf(path, sizeof(path), "/dev/shm/ringback-fuzz-%d",
	    (int)getpid());
	if (page_create(path, &opened, &shape, &page) != 0 ||
	    atexit(remove_file) != 0)
		abort();
}

static void
refill(void)
{
	struct message_connect c = { .nr_queues = 2 };

	memset(page->queue, 0, shape.nr_queues * sizeof(page->queue[0]));
	page_connect(page, &c, 1);
	page->header.connected = 1;
}

static uint64_t
sum_of(const struct page *seen, const struct page_shape *found)
{
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i < found->nr_queues; i++)
		sum += seen->queue[i].stats.reqs_taken +
		    seen->queue[i].slot[RING_MAX_SLOTS - 1].index;
	return sum;
}

static void
look(void)
{
	struct message_connect c = { .nr_queues = 2 };
	struct page_shape found;
	const struct page *seen;
	const char *what;
	struct page *mine;
	int rc;

	if (page_open(path, &seen, &found) == 0) {
		/* What is mapped is there, whatever the header says. */
		if (found.nr_queues != shape.nr_queues)
			abort();
		sum_of(seen, &found);
		page_close(seen, &found);
	}
	rc = page_takeover(path, &opened, &shape, 1, &mine, &what);
	if (rc == 0) {
		/* Only what is really ours is taken over. */
		if (mine->header.domid != 7 || mine->header.image_ino != 6 ||
		    mine->header.generation != 1 ||
		    strcmp(mine->header.uuid, "1-2-3") != 0)
			abort();
		page_same_connection(mine, &c);
		memset(page_redo(mine, &shape), 1, shape.redo_bytes);
		page_close(mine, &shape);
	} else if (rc != -ESTALE || what == NULL) {
		abort();
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct page_header good;
	uint16_t at;

	if (page == NULL) {
		make_file();
		refill();
		good = page->header;
	}
	if (size < 1)
		return 0;
	page->header = good;
	refill();
	for (data++, size--; size >= 3; data += 3, size -= 3) {
		memcpy(&at, data, sizeof(at));
		((uint8_t *)page)[at % 2048] = data[2];
	}
	look();
	return 0;
}
