/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The page file: what is made, what is found again, and above all what is not
 * taken for one's own.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "blkback/page.h"

#define REDO 10000u		/* not whole pages */
#define DEV  5u
#define INO  6u

static char path[64];
static const struct message_open opened = {
	.domid = 7, .devid = 51712, .uuid = "1-2-3", .backend = "backend/x",
};

static int
setup(void **state)
{
	int fd;

	(void)state;
	snprintf(path, sizeof(path), "/tmp/ringback-page-XXXXXX");
	fd = mkstemp(path);
	return fd < 0 ? -1 : close(fd);
}

static int
teardown(void **state)
{
	(void)state;
	return unlink(path);
}

static struct page *
create(uint32_t redo_bytes)
{
	struct page *page = NULL;

	assert_int_equal(page_create(path, &opened, DEV, INO, redo_bytes,
	    &page), 0);
	return page;
}

/* A connection of that generation. */
static void
connect_page(struct page *page, uint32_t generation)
{
	struct message_connect c = { .nr_queues = 1 };

	page_connect(page, &c, generation);
	page->header.connected = 1;
}

static void
test_redo_memory(void **state)
{
	struct message_open o = opened;
	uint8_t *redo, zero[REDO] = { 0 };
	struct page *page = create(REDO);
	const struct page *seen;
	const char *what;
	struct stat st;

	(void)state;
	redo = page_redo(page, REDO);
	assert_memory_equal(redo, zero, REDO);
	assert_int_equal((uintptr_t)redo % 4096, 0);
	assert_true(redo >= (uint8_t *)(page + 1));
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_true(st.st_size >= (off_t)(sizeof(*page) + REDO));
	/* All of it is there: no SIGBUS when the file system is full. */
	assert_true(st.st_blocks * 512 >= st.st_size);
	memset(redo, 7, REDO);
	connect_page(page, 3);
	/* A new connection of the same disk process keeps it. */
	connect_page(page, 4);
	assert_int_equal(redo[0], 7);
	assert_int_equal(redo[REDO - 1], 7);
	assert_int_equal(page_open(path, &seen), 0);
	assert_int_equal(seen->header.generation, 4);
	page_close(seen, 0);
	page_close(page, REDO);

	o.resume = RESUME_REPLAY;
	assert_int_equal(page_takeover(path, &o, DEV, INO, REDO, 4, &page,
	    &what), 0);
	redo = page_redo(page, REDO);
	assert_int_equal(redo[0], 7);
	assert_int_equal(redo[REDO - 1], 7);
	page_close(page, REDO);

	/* A new attach has nothing of it. */
	page = create(REDO);
	assert_memory_equal(page_redo(page, REDO), zero, REDO);
	assert_int_equal(page->header.redo_used, 0);
	page_close(page, REDO);
	assert_null(page_redo(NULL, 0));
}

static void
refused(const struct message_open *o, uint32_t ino, uint32_t redo_bytes,
    uint32_t generation, const char *why)
{
	struct page *page = NULL;
	const char *what = NULL;

	assert_int_equal(page_takeover(path, o, DEV, ino, redo_bytes,
	    generation, &page, &what), -ESTALE);
	assert_string_equal(what, why);
}

static void
test_strangers(void **state)
{
	static const enum resume_mode modes[] = {
		RESUME_REPLAY, RESUME_FAIL, RESUME_REDO,
	};
	struct page *page = create(REDO);
	struct message_open o;
	size_t i;

	(void)state;
	connect_page(page, 3);
	for (i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		o = opened;
		o.resume = modes[i];
		refused(&o, INO + 1, REDO, 3, "image");
		refused(&o, INO, 0, 3, "size of the redo memory");
		refused(&o, INO, REDO + 4096, 3, "size of the redo memory");
		o.domid = 8;
		refused(&o, INO, REDO, 3, "disk");
		o = opened;
		o.resume = modes[i];
		o.uuid[0]++;
		refused(&o, INO, REDO, 3, "domain");
		o = opened;
		o.resume = modes[i];
		o.backend[0]++;
		refused(&o, INO, REDO, 3, "backend directory");
	}
	page_close(page, REDO);
}

/* With RESUME_REDO no connection is taken up, so none has to be the same. */
static void
test_without_a_connection(void **state)
{
	struct message_open o = opened;
	struct page *page = create(REDO);
	const char *what;

	(void)state;
	connect_page(page, 3);
	page->header.redo_used = 1;
	page_close(page, REDO);
	o.resume = RESUME_REPLAY;
	refused(&o, INO, REDO, 4, "connection");
	o.resume = RESUME_REDO;
	assert_int_equal(page_takeover(path, &o, DEV, INO, REDO, 4, &page,
	    &what), 0);
	assert_int_equal(page->header.connected, 0);
	assert_int_equal(page->header.redo_used, 1);
	page_close(page, REDO);
	/* Whoever wants to go on with it then is told that there is none. */
	o.resume = RESUME_REPLAY;
	refused(&o, INO, REDO, 3, "connection");
}

static void
test_sizes(void **state)
{
	struct message_open o = opened;
	struct page *page = create(REDO);
	const struct page *seen = NULL;

	(void)state;
	o.resume = RESUME_REDO;
	connect_page(page, 3);
	/* It says that it has less, or more, than it is long. */
	page->header.redo_bytes -= 4096;
	assert_int_equal(page_open(path, &seen), -EPROTO);
	refused(&o, INO, REDO, 3, "layout");
	page->header.redo_bytes = UINT32_MAX;
	refused(&o, INO, REDO, 3, "layout");
	page_close(page, REDO);
	page = create(REDO);
	assert_int_equal(truncate(path, sizeof(*page) - 1), 0);
	assert_int_equal(page_open(path, &seen), -EPROTO);
	refused(&o, INO, REDO, 3, "layout");
	page_close(page, REDO);
	page = create(REDO);
	assert_int_equal(truncate(path, sizeof(*page) + 4096), 0);
	refused(&o, INO, REDO, 3, "layout");
	page_close(page, REDO);
	/* None at all. */
	page = create(0);
	refused(&o, INO, REDO, 0, "size of the redo memory");
	page_close(page, 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_redo_memory, setup,
		    teardown),
		cmocka_unit_test_setup_teardown(test_strangers, setup,
		    teardown),
		cmocka_unit_test_setup_teardown(test_without_a_connection,
		    setup, teardown),
		cmocka_unit_test_setup_teardown(test_sizes, setup, teardown),
	};

	return cmocka_run_group_tests_name("page", tests, NULL, NULL);
}
