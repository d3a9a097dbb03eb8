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

static char path[64];
static struct page_shape shape;	/* of the file: create() and refused() */
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
create(uint32_t nr_queues, uint32_t redo_bytes)
{
	struct page *page = NULL;

	shape = (struct page_shape){ 5, 6, nr_queues, redo_bytes };
	assert_int_equal(page_create(path, &opened, &shape, &page), 0);
	return page;
}

/* How much that is without the redo memory. */
static size_t
queues_end(uint32_t nr_queues)
{
	return sizeof(struct page) + nr_queues * sizeof(struct page_queue);
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
	struct page *page = create(2, REDO);
	struct page_shape found;
	const struct page *seen;
	const char *what;
	struct stat st;

	(void)state;
	redo = page_redo(page, &shape);
	assert_memory_equal(redo, zero, REDO);
	assert_int_equal((uintptr_t)redo % 4096, 0);
	assert_true(redo >= (uint8_t *)(page->queue + 2));
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_true(st.st_size >= (off_t)(queues_end(2) + REDO));
	/* All of it is there: no SIGBUS when the file system is full. */
	assert_true(st.st_blocks * 512 >= st.st_size);
	memset(redo, 7, REDO);
	connect_page(page, 3);
	/* A new connection of the same disk process keeps it. */
	connect_page(page, 4);
	assert_int_equal(redo[0], 7);
	assert_int_equal(redo[REDO - 1], 7);
	assert_int_equal(page_open(path, &seen, &found), 0);
	assert_int_equal(seen->header.generation, 4);
	page_close(seen, &found);
	page_close(page, &shape);

	o.resume = RESUME_REPLAY;
	assert_int_equal(page_takeover(path, &o, &shape, 4, &page, &what), 0);
	redo = page_redo(page, &shape);
	assert_int_equal(redo[0], 7);
	assert_int_equal(redo[REDO - 1], 7);
	page_close(page, &shape);

	/* A new attach has nothing of it. */
	page = create(2, REDO);
	assert_memory_equal(page_redo(page, &shape), zero, REDO);
	assert_int_equal(page->header.redo_used, 0);
	page_close(page, &shape);
	page = create(2, 0);
	assert_null(page_redo(page, &shape));
	page_close(page, &shape);
}

static void
refused(const struct message_open *o, const struct page_shape *want,
    uint32_t generation, const char *why)
{
	struct page *page = NULL;
	const char *what = NULL;

	assert_int_equal(page_takeover(path, o, want, generation, &page,
	    &what), -ESTALE);
	assert_string_equal(what, why);
}

/* All that a successor may be told and that is not so. */
static void
refuse_strangers(enum resume_mode mode)
{
	struct message_open o = opened;
	struct page_shape want = shape;

	o.resume = mode;
	want.image_ino++;
	refused(&o, &want, 3, "image");
	want = shape;
	want.image_dev++;
	refused(&o, &want, 3, "image");
	want = shape;
	want.redo_bytes = 0;
	refused(&o, &want, 3, "size of the redo memory");
	want.redo_bytes = REDO + 4096;
	refused(&o, &want, 3, "size of the redo memory");
	want = shape;
	want.nr_queues--;
	refused(&o, &want, 3, "number of queues");
	want.nr_queues += 2;
	refused(&o, &want, 3, "number of queues");

	o.domid++;
	refused(&o, &shape, 3, "disk");
	o.domid--;
	o.uuid[0]++;
	refused(&o, &shape, 3, "domain");
	o.uuid[0]--;
	o.backend[0]++;
	refused(&o, &shape, 3, "backend directory");
}

static void
test_strangers(void **state)
{
	struct page *page = create(2, REDO);

	(void)state;
	connect_page(page, 3);
	refuse_strangers(RESUME_REPLAY);
	refuse_strangers(RESUME_FAIL);
	refuse_strangers(RESUME_REDO);
	page_close(page, &shape);
}

/* With RESUME_REDO no connection is taken up, so none has to be the same. */
static void
test_without_a_connection(void **state)
{
	struct message_open o = opened;
	struct page *page = create(2, REDO);
	const char *what;

	(void)state;
	connect_page(page, 3);
	page->header.redo_used = 1;
	page_close(page, &shape);
	o.resume = RESUME_REPLAY;
	refused(&o, &shape, 4, "connection");
	o.resume = RESUME_REDO;
	assert_int_equal(page_takeover(path, &o, &shape, 4, &page, &what), 0);
	assert_int_equal(page->header.connected, 0);
	assert_int_equal(page->header.redo_used, 1);
	page_close(page, &shape);
	/* Whoever wants to go on with it then is told that there is none. */
	o.resume = RESUME_REPLAY;
	refused(&o, &shape, 3, "connection");
}

static void
no_page(const struct message_open *o)
{
	const struct page *seen = NULL;
	struct page_shape found;

	assert_int_equal(page_open(path, &seen, &found), -EPROTO);
	refused(o, &shape, 3, "layout");
}

static void
test_sizes(void **state)
{
	struct message_open o = opened;
	struct page *page = create(2, REDO);

	(void)state;
	o.resume = RESUME_REDO;
	connect_page(page, 3);
	/* It says that it has less, or more, than it is long. */
	page->header.redo_bytes -= 4096;
	no_page(&o);
	page->header.redo_bytes = UINT32_MAX;
	no_page(&o);
	page_close(page, &shape);
	page = create(2, REDO);
	assert_int_equal(truncate(path, queues_end(2) - 1), 0);
	no_page(&o);
	page_close(page, &shape);
	page = create(2, REDO);
	assert_int_equal(truncate(path, sizeof(page->header) - 1), 0);
	no_page(&o);
	page_close(page, &shape);
	page = create(2, REDO);
	assert_int_equal(truncate(path, queues_end(2) + 4096), 0);
	no_page(&o);
	page_close(page, &shape);
}

/* What it says of its queues is believed only if that is how long it is. */
static void
test_queues(void **state)
{
	static const uint32_t lies[] = { 0, 1, 3, MAX_QUEUES, MAX_QUEUES + 1,
	    UINT32_MAX };
	struct message_open o = opened;
	struct page *page = create(MAX_QUEUES, 0);
	const struct page *seen;
	struct page_shape found;
	size_t i;

	(void)state;
	assert_int_equal(page_open(path, &seen, &found), 0);
	assert_int_equal(found.nr_queues, MAX_QUEUES);
	assert_int_equal(seen->queue[MAX_QUEUES - 1].slot[RING_MAX_SLOTS - 1].
	    index, 0);
	page_close(seen, &found);
	page_close(page, &shape);

	page = create(2, REDO);
	connect_page(page, 3);
	for (i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
		page->header.nr_queues = lies[i];
		no_page(&o);
	}
	/* One more queue than there can be, and the size for it. */
	page->header.nr_queues = MAX_QUEUES + 1;
	page->header.redo_bytes = 0;
	page->header.bytes = queues_end(MAX_QUEUES + 1);
	assert_int_equal(truncate(path, page->header.bytes), 0);
	no_page(&o);
	page_close(page, &shape);
	shape.nr_queues = MAX_QUEUES + 1;
	assert_int_equal(page_create(path, &opened, &shape, &page), -EINVAL);
	shape.nr_queues = 0;
	assert_int_equal(page_create(path, &opened, &shape, &page), -EINVAL);
}

/* A connection is the same if each of its queues is. */
static void
test_connection(void **state)
{
	struct message_connect c = { .nr_queues = 3, .abi = RING_ABI_X86_64,
	    .ring = { { 1, { 1, 2 }, 7 }, { 1, { 3, 4 }, 8 },
	    { 1, { 5, 6 }, 9 } } }, other;
	struct page *page = create(4, 0);

	(void)state;
	page_connect(page, &c, 3);
	assert_int_equal(page->header.used_queues, 3);
	assert_true(page_same_connection(page, &c));
	other = c, other.ring[2].gref[2]++;	/* beyond its two pages */
	assert_true(page_same_connection(page, &other));
	other = c, other.ring[2].gref[1]++;
	assert_false(page_same_connection(page, &other));
	other = c, other.ring[1].port++;
	assert_false(page_same_connection(page, &other));
	other = c, other.ring[2].order = 0;
	assert_false(page_same_connection(page, &other));
	other = c, other.nr_queues = 2;
	assert_false(page_same_connection(page, &other));
	other = c, other.nr_queues = 4;
	assert_false(page_same_connection(page, &other));
	other = c, other.persistent = 1;
	assert_false(page_same_connection(page, &other));
	other = c, other.abi = RING_ABI_X86_32;
	assert_false(page_same_connection(page, &other));
	page_close(page, &shape);
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
		cmocka_unit_test_setup_teardown(test_queues, setup, teardown),
		cmocka_unit_test_setup_teardown(test_connection, setup,
		    teardown),
	};

	return cmocka_run_group_tests_name("page", tests, NULL, NULL);
}
