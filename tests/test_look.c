/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What is read out of page files, above all out of those that lie; and what
 * top and stats --prometheus make of it.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "tools/ringback.h"
#include "tools/watch.h"

#define NOW 1000000000000u

/* What top.c and prometheus.c need of the command, and these tests do not. */
int
watch_disks(struct watch *w, struct look_disk **disks, size_t *nr)
{
	(void)w;
	(void)disks;
	(void)nr;
	return FAILED;
}

void
watch_name(const struct watch *w, uint32_t domid, char name[WATCH_NAME_MAX])
{
	(void)w;
	snprintf(name, WATCH_NAME_MAX, "%u", domid);
}

int
watch_fail(const struct watch *w, const char *fmt, ...)
{
	(void)w;
	(void)fmt;
	return FAILED;
}

const char *
watch_why(int error)
{
	return strerror(-error);
}

void
print_clean(FILE *to, const char *text)
{
	fputs(text, to);
}

json_t *
inspect_text(const char *text)
{
	return json_string(text);
}

/* ---- one slot ------------------------------------------------------------ */

static struct page_queue q;

/* A queue of 32 slots of which 10 to 14 are in flight; slot 3 is number 12. */
static struct page_slot *
a_slot(void)
{
	struct page_slot *s = &q.slot[3];

	memset(&q, 0, sizeof(q));
	q.req_cons = 15;
	q.rsp_prod = 10;
	s->state = PAGE_SLOT_TAKEN;
	s->index = 12;
	s->stage = PAGE_STAGE_STORAGE | 3 << PAGE_STAGE_BITS;
	s->taken_ns = NOW - 5000;
	s->req.operation = BLKIF_OP_WRITE;
	s->req.id = 77;
	s->req.sector_number = 800;
	s->req.nr_segments = 2;
	s->req.seg[0].last_sect = 7;
	s->req.seg[1].first_sect = 2;
	s->req.seg[1].last_sect = 3;
	return s;
}

static struct look_request
seen(void)
{
	struct look_request r = { .queue = 0 };

	assert_true(look_slot(&q, 3, NOW, &r));
	return r;
}

static void
test_slot(void **state)
{
	struct page_slot *s = a_slot();
	struct look_request r = seen();

	(void)state;
	assert_int_equal(r.id, 77);
	assert_int_equal(r.op, PAGE_WRITE);
	assert_int_equal(r.sector, 800);
	assert_int_equal(r.sectors, 10);
	assert_int_equal(r.age_ns, 5000);
	assert_int_equal(r.stage, LOOK_STORAGE);
	assert_int_equal(look_inflight(&q), 5);

	/* A clock that is another one's. */
	s->taken_ns = NOW + 1;
	assert_int_equal(seen().age_ns, -1);
	s->taken_ns = 0;
	assert_int_equal(seen().age_ns, -1);
}

static void
test_not_in_flight(void **state)
{
	static const struct {
		uint32_t state, index;
		bool     there;
	} c[] = {
		{ PAGE_SLOT_FREE, 12, false },
		{ PAGE_SLOT_TAKEN, 14, true },
		{ PAGE_SLOT_TAKEN, 15, false },	/* will be read again */
		{ PAGE_SLOT_TAKEN, 15u - 32, true },
		{ PAGE_SLOT_TAKEN, 15u - 33, false },
		{ PAGE_SLOT_ANSWERED, 9, false },	/* the guest knows */
		{ PAGE_SLOT_ANSWERED, 10, true },
		{ PAGE_SLOT_ANSWERED, 10 + 32, false },
		{ 3, 12, false },
		{ UINT32_MAX, 12, false },
	};
	struct page_slot *s = a_slot();
	struct look_request r;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
		s->state = c[i].state;
		s->index = c[i].index;
		assert_int_equal(look_slot(&q, 3, NOW, &r), c[i].there);
	}
	a_slot();
	assert_false(look_slot(&q, 32, NOW, &r));
	q.order = RING_MAX_ORDER + 1;
	assert_false(look_slot(&q, 3, NOW, &r));
	assert_int_equal(look_inflight(&q), 0);
	q.order = 0;
	q.req_cons = q.rsp_prod + 33;
	assert_int_equal(look_inflight(&q), 0);
}

static void
test_operations(void **state)
{
	struct page_slot *s = a_slot();
	blkif_request_indirect_t in = { .operation = BLKIF_OP_INDIRECT,
	    .indirect_op = BLKIF_OP_READ, .nr_segments = 100, .id = 5,
	    .sector_number = 64 };
	blkif_request_discard_t d = { .operation = BLKIF_OP_DISCARD, .id = 6,
	    .sector_number = 8, .nr_sectors = 123456789012 };

	(void)state;
	s->req.nr_segments = 12;	/* more than a slot holds */
	assert_int_equal(seen().sectors, -1);
	s->req.nr_segments = 2;
	s->req.seg[1].last_sect = 1;	/* before the first one */
	assert_int_equal(seen().sectors, -1);
	s->req.seg[1].last_sect = 8;	/* behind the page */
	assert_int_equal(seen().sectors, -1);
	s->req.operation = 9;
	assert_int_equal(seen().op, -1);
	s->req.operation = BLKIF_OP_FLUSH_DISKCACHE;
	s->req.nr_segments = 0;
	assert_int_equal(seen().op, PAGE_FLUSH);
	assert_int_equal(seen().sectors, 0);
	assert_int_equal(seen().sector, 0);

	memcpy(&s->req, &in, sizeof(in));
	assert_int_equal(seen().op, PAGE_READ);
	assert_int_equal(seen().id, 5);
	assert_int_equal(seen().sector, 64);
	assert_int_equal(seen().sectors, -1);
	s->length = 100 * 4096;
	assert_int_equal(seen().sectors, 800);
	s->length = UINT32_MAX;
	assert_int_equal(seen().sectors, -1);

	memcpy(&s->req, &d, sizeof(d));
	assert_int_equal(seen().op, PAGE_DISCARD);
	assert_int_equal(seen().id, 6);
	assert_true(seen().sectors == 123456789012);
	d.nr_sectors = UINT64_MAX;
	memcpy(&s->req, &d, sizeof(d));
	assert_int_equal(seen().sectors, -1);
}

static void
test_stages(void **state)
{
	struct page_slot *s = a_slot(), *first = &q.slot[7];

	(void)state;
	s->stage = PAGE_STAGE_TAKEN;
	assert_int_equal(seen().stage, LOOK_TAKEN);
	s->stage = PAGE_STAGE_ROOM;
	assert_int_equal(seen().stage, LOOK_ROOM);
	s->req.operation = BLKIF_OP_WRITE_BARRIER;
	assert_int_equal(seen().stage, LOOK_BARRIER);
	s->stage = PAGE_STAGE_COPY;
	assert_int_equal(seen().stage, LOOK_COPY);
	s->stage = PAGE_STAGE_HELD;
	assert_int_equal(seen().stage, LOOK_HELD);
	s->stage = PAGE_STAGE_ANSWER;
	assert_int_equal(seen().stage, LOOK_ANSWER);
	s->stage = PAGE_NR_STAGES;
	assert_int_equal(seen().stage, LOOK_UNKNOWN);

	/* What the first of a merged I/O waits for, all of them do. */
	s->stage = PAGE_STAGE_STORAGE | 7 << PAGE_STAGE_BITS;
	s->metadata = 1;
	assert_int_equal(seen().stage, LOOK_STORAGE);
	*first = *s;
	assert_int_equal(seen().stage, LOOK_METADATA);
	first->metadata = 0;
	assert_int_equal(seen().stage, LOOK_STORAGE);
	first->metadata = 1;
	first->stage = PAGE_STAGE_ANSWER;
	assert_int_equal(seen().stage, LOOK_STORAGE);
	first->stage = s->stage;
	first->state = PAGE_SLOT_FREE;
	assert_int_equal(seen().stage, LOOK_STORAGE);
	/* Ones that are none. */
	q.slot[40] = *s;
	s->stage = PAGE_STAGE_STORAGE | 40 << PAGE_STAGE_BITS;
	q.slot[40].stage = s->stage;
	assert_int_equal(seen().stage, LOOK_STORAGE);
	s->stage = PAGE_STAGE_STORAGE | 0xffffffu << PAGE_STAGE_BITS;
	assert_int_equal(seen().stage, LOOK_STORAGE);
}

static void
test_junk(void **state)
{
	uint64_t seed = 1;
	struct look_request r;
	uint8_t *p = (uint8_t *)&q;
	unsigned found = 0, round;
	size_t i;

	(void)state;
	for (round = 0; round < 50; round++) {
		for (i = 0; i < sizeof(q); i++) {
			seed = seed * 6364136223846793005u + 1;
			p[i] = (uint8_t)(seed >> 56);
		}
		q.order = round % 8;
		for (i = 0; i < RING_MAX_SLOTS; i++) {
			q.slot[i].state = i % 4;
			q.slot[i].index = q.req_cons - (uint32_t)(i % 600);
			if (!look_slot(&q, (uint32_t)i, NOW, &r))
				continue;
			found++;
			assert_in_range(r.op + 1, 0, PAGE_NR_OPS);
			assert_in_range(r.stage, 0, LOOK_NR_STAGES - 1);
			assert_true(r.sectors >= -1 && r.age_ns >= -1);
		}
	}
	assert_true(found > 100);
}

/* ---- files --------------------------------------------------------------- */

static char dir[64], path[128];
static struct page *page;
static const struct page_shape shape = { 5, 6, 3, 8192 };

static int
setup(void **state)
{
	const struct message_open open_msg = { .domid = 7, .devid = 51712 };

	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/ringback-look-XXXXXX");
	if (mkdtemp(dir) == NULL)
		return -1;
	snprintf(path, sizeof(path), "%s/7-51712.page", dir);
	return page_create(path, &open_msg, &shape, &page);
}

static int
teardown(void **state)
{
	char command[128];

	(void)state;
	page_close(page, &shape);
	snprintf(command, sizeof(command), "rm -r %s", dir);
	return system(command);
}

static void
connect_page(uint32_t queues)
{
	struct message_connect c = { .nr_queues = queues };

	page_connect(page, &c, 1);
	page->header.connected = 1;
}

static void
put_file(const char *name, bool fifo)
{
	char other[160];
	FILE *f;

	snprintf(other, sizeof(other), "%s/%s", dir, name);
	if (fifo) {
		assert_int_equal(mkfifo(other, 0600), 0);
		return;
	}
	f = fopen(other, "w");
	assert_non_null(f);
	fclose(f);
}

static void
test_disks(void **state)
{
	struct look_disk *d;
	char link_path[160];
	size_t nr;

	(void)state;
	put_file("control", false);
	put_file("07-51712.page", false);
	put_file("7-51712.page.old", false);
	put_file("70000-1.page", false);
	put_file("8-768.page", true);	/* nobody will ever write to it */
	put_file("6-51728.page", false);
	snprintf(link_path, sizeof(link_path), "%s/9-1.page", dir);
	assert_int_equal(symlink(path, link_path), 0);
	connect_page(2);
	page->queue[0].stats.ops[PAGE_READ] = 3;
	page->queue[2].stats.ops[PAGE_READ] = 4;
	page->queue[0].req_cons = 5;
	page->queue[1].rsp_prod = 1;	/* ahead of req_cons */

	assert_int_equal(look_disks(dir, &d, &nr), 0);
	assert_int_equal(nr, 4);
	assert_int_equal(d[0].domid, 6);
	assert_string_equal(d[0].vdev, "xvdb");
	assert_int_equal(d[0].error, -EPROTO);
	assert_string_equal(d[1].vdev, "xvda");
	assert_int_equal(d[1].error, 0);
	assert_int_equal(d[1].stats.ops[PAGE_READ], 7);
	assert_int_equal(d[1].inflight, 5);
	assert_int_equal(d[1].queues, 2);
	assert_int_equal(d[1].queues_offered, 3);
	assert_string_equal(d[2].vdev, "hda");
	assert_int_equal(d[2].error, -EPROTO);
	assert_int_equal(d[3].error, -ELOOP);
	free(d);
	assert_int_equal(look_disks("/nonexistent", &d, &nr), -ENOENT);
}

static void
test_process(void **state)
{
	struct look_disk d = { .domid = 7, .devid = 51712 };
	char name[17];

	(void)state;
	page->header.pid = getpid();
	look_disk(dir, &d);
	assert_int_equal(d.error, 0);
	assert_int_equal(d.pid, 0);	/* it is another's by its name */
	assert_int_equal(prctl(PR_GET_NAME, name, 0, 0, 0), 0);
	assert_int_equal(prctl(PR_SET_NAME, "disk 7/51712", 0, 0, 0), 0);
	look_disk(dir, &d);
	prctl(PR_SET_NAME, name, 0, 0, 0);
	assert_int_equal(d.pid, getpid());
	assert_true(d.started > 0);
	page->header.pid = -1;
	look_disk(dir, &d);
	assert_int_equal(d.pid, 0);
}

static void
test_lies(void **state)
{
	struct look_disk d = { .domid = 7, .devid = 51712 };
	struct look_request *reqs;
	size_t nr;

	(void)state;
	connect_page(3);
	a_slot();
	page->queue[2].req_cons = q.req_cons;
	page->queue[2].rsp_prod = q.rsp_prod;
	page->queue[2].slot[3] = q.slot[3];
	assert_int_equal(look_requests(dir, &d, &reqs, &nr), 0);
	assert_int_equal(nr, 1);
	assert_int_equal(reqs[0].queue, 2);
	assert_int_equal(reqs[0].id, 77);
	free(reqs);

	page->header.used_queues = 1000;
	assert_int_equal(look_requests(dir, &d, &reqs, &nr), 0);
	assert_int_equal(nr, 0);
	free(reqs);
	look_disk(dir, &d);
	assert_int_equal(d.error, 0);
	assert_int_equal(d.queues, 0);
	page->header.used_queues = 3;
	page->header.connected = 0;
	assert_int_equal(look_requests(dir, &d, &reqs, &nr), 0);
	assert_int_equal(nr, 0);
	free(reqs);

	page->header.connected = 1;
	page->header.domid = 8;
	assert_int_equal(look_requests(dir, &d, &reqs, &nr), -EPROTO);
	page->header.domid = 7;
	page->header.nr_queues = MAX_QUEUES;
	look_disk(dir, &d);
	assert_int_equal(d.error, -EPROTO);
	page->header.nr_queues = 3;
	look_disk(dir, &d);
	assert_int_equal(d.error, 0);
	assert_int_equal(truncate(path, 4096), 0);
	look_disk(dir, &d);
	assert_int_equal(d.error, -EPROTO);
}

/*
 * The process of the disk takes another request while a slot is read: of the
 * nth read of one, the first half is older than the second.
 */
static unsigned torn;			/* 0: none is */

ssize_t __real_pread(int fd, void *to, size_t bytes, off_t offset);
ssize_t __wrap_pread(int fd, void *to, size_t bytes, off_t offset);

ssize_t
__wrap_pread(int fd, void *to, size_t bytes, off_t offset)
{
	ssize_t n = __real_pread(fd, to, bytes, offset);
	struct page_slot *s = to;

	if (bytes == sizeof(*s) && torn > 0 && --torn == 0) {
		s->req.id = 76;
		s->req.operation = BLKIF_OP_READ;
	}
	return n;
}

static void
test_torn(void **state)
{
	struct look_disk d = { .domid = 7, .devid = 51712 };
	struct look_request *reqs;
	unsigned nth;
	size_t nr;

	(void)state;
	connect_page(1);
	a_slot();
	memcpy(&page->queue[0], &q, sizeof(q));
	for (nth = 1; nth <= 2; nth++) {
		torn = nth;
		assert_int_equal(look_requests(dir, &d, &reqs, &nr), 0);
		assert_int_equal(torn, 0);
		assert_int_equal(nr, 1);
		assert_int_equal(reqs[0].id, 77);
		assert_int_equal(reqs[0].op, PAGE_WRITE);
		free(reqs);
	}
}

/* ---- top ----------------------------------------------------------------- */

static struct look_disk before, now;

static struct top_rates
rates(void)
{
	struct top_rates r;

	top_rates(&before, &now, 2, &r);
	return r;
}

static void
two_looks(void)
{
	memset(&before, 0, sizeof(before));
	before.instance = 1;
	before.pid = 100;
	before.started = 5;
	before.cpu_ns = 1000000000;
	before.stats.ops[PAGE_READ] = 10;
	before.stats.wait_max_ns[PAGE_READ] = 5000000;
	before.stats.waits[PAGE_READ][22] = 10;
	now = before;
	now.cpu_ns += 500000000;
	now.stats.ops[PAGE_READ] += 20;
	now.stats.bytes[PAGE_READ] += 81920;
	now.stats.wait_ns[PAGE_READ] += 20 * 3000;
	now.stats.waits[PAGE_READ][11] += 20;	/* 2048 ... 4095 */
	now.stats.ops[PAGE_WRITE] += 4;
	now.stats.bytes[PAGE_WRITE] += 4096;
	now.stats.wait_ns[PAGE_WRITE] += 4 * 9000;
	now.stats.waits[PAGE_WRITE][13] += 4;
	now.stats.wait_max_ns[PAGE_WRITE] = 9500;
}

static void
test_rates(void **state)
{
	(void)state;
	two_looks();
	assert_true(rates().known);
	assert_true(rates().ops[0] == 10 && rates().ops[1] == 2);
	assert_true(rates().bytes[0] == 40960 && rates().bytes[1] == 2048);
	assert_true(rates().mean_ns == 4000);
	assert_true(rates().cpu == 0.25);
	/* A new record is known exactly. */
	assert_true(rates().max_ns == 9500);
	/* Else it is below the end of its bucket, */
	before.stats.wait_max_ns[PAGE_WRITE] = 1000000;
	now.stats.wait_max_ns[PAGE_WRITE] = 1000000;
	assert_true(rates().max_ns == 16384);
	/* and no record. */
	before.stats.wait_max_ns[PAGE_WRITE] = 9999;
	now.stats.wait_max_ns[PAGE_WRITE] = 9999;
	assert_true(rates().max_ns == 9999);
	before = now;
	assert_true(rates().known && rates().max_ns == 0 &&
	    rates().mean_ns == 0);
}

static void
test_restarts(void **state)
{
	(void)state;
	two_looks();
	now.started = 6;	/* the successor's CPU time begins at 0 */
	assert_true(rates().known && rates().cpu == -1);
	now.started = 5;
	now.cpu_ns = 0;
	assert_true(rates().cpu == -1);
	two_looks();
	now.pid = before.pid = 0;
	assert_true(rates().known && rates().cpu == -1);
	two_looks();
	now.instance = 2;
	assert_false(rates().known);
	two_looks();
	now.stats.ops[PAGE_FLUSH] = 5;
	before.stats.ops[PAGE_FLUSH] = 6;
	assert_false(rates().known);
	two_looks();
	before.error = -EPROTO;
	assert_false(rates().known);
	two_looks();
	now.error = -EPROTO;
	assert_false(rates().known);
}

static void
test_escape(void **state)
{
	char text[32] = "";
	FILE *f = fmemopen(text, sizeof(text), "w");

	(void)state;
	assert_non_null(f);
	prometheus_escape(f, "a\"b\\c\nd{");
	assert_int_equal(fclose(f), 0);
	assert_string_equal(text, "a\\\"b\\\\c\\nd{");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_slot),
		cmocka_unit_test(test_not_in_flight),
		cmocka_unit_test(test_operations),
		cmocka_unit_test(test_stages),
		cmocka_unit_test(test_junk),
		cmocka_unit_test_setup_teardown(test_disks, setup, teardown),
		cmocka_unit_test_setup_teardown(test_process, setup, teardown),
		cmocka_unit_test_setup_teardown(test_lies, setup, teardown),
		cmocka_unit_test_setup_teardown(test_torn, setup, teardown),
		cmocka_unit_test(test_rates),
		cmocka_unit_test(test_restarts),
		cmocka_unit_test(test_escape),
	};

	return cmocka_run_group_tests_name("look", tests, NULL, NULL);
}
