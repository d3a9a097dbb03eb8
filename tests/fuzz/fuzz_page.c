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
#define REDO 8192u

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
	if (page_create(path, &opened, 5, 6, REDO, &page) != 0 ||
	    atexit(remove_file) != 0)
		abort();
}

static void
refill(void)
{
	struct message_connect c = { .nr_queues = 1 };

	memset(page->queue, 0, sizeof(page->queue));
	page_connect(page, &c, 1);
	page->header.connected = 1;
}

static void
look(void)
{
	struct message_connect c = { .nr_queues = 1 };
	const struct page *seen;
	const char *what;
	struct page *mine;
	int rc;

	if (page_open(path, &seen) == 0)
		page_close(seen, 0);
	rc = page_takeover(path, &opened, 5, 6, REDO, 1, &mine, &what);
	if (rc == 0) {
		/* Only what is really ours is taken over. */
		if (mine->header.domid != 7 || mine->header.image_ino != 6 ||
		    mine->header.generation != 1 ||
		    strcmp(mine->header.uuid, "1-2-3") != 0)
			abort();
		page_same_connection(mine, &c);
		memset(page_redo(mine, REDO), 1, REDO);
		page_close(mine, REDO);
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
