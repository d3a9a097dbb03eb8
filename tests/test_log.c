/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * test_log: lines as an operator sees them.  stderr is replaced by a packet
 * socket, which keeps apart what was written by separate write(2)s.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "blkback/log.h"

#define WINDOW_MS 60000

static int ours, saved_stderr;
static char line[8192];

static int
redirect(void **state)
{
	int fd[2];

	(void)state;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, fd) == -1)
		return -1;
	saved_stderr = dup(STDERR_FILENO);
	if (saved_stderr == -1 || dup2(fd[1], STDERR_FILENO) == -1)
		return -1;
	ours = fd[0];
	return close(fd[1]);
}

static int
restore(void **state)
{
	(void)state;
	if (dup2(saved_stderr, STDERR_FILENO) == -1)
		return -1;
	return close(saved_stderr) | close(ours);
}

/* The next line, its newline checked and cut off; NULL: there is none. */
static const char *
next_line(void)
{
	ssize_t n = recv(ours, line, sizeof(line) - 1, 0);

	if (n == 0)
		return NULL;	/* nobody has our stderr any more */
	if (n == -1) {
		assert_int_equal(errno, EAGAIN);
		return NULL;
	}
	line[n] = '\0';
	assert_ptr_equal(strchr(line, '\n'), line + n - 1);
	line[n - 1] = '\0';
	return line;
}

static void
expect(const char *want)
{
	const char *got = next_line();

	assert_non_null(got);
	assert_string_equal(got, want);
}

static void
test_names(void **state)
{
	(void)state;
	log_info("started, %d disks", 3);
	expect("ringbackd: started, 3 disks");
	log_name("ringbackd: vbd %u/%u", 7u, 51712u);
	log_info("%s", "connected");
	expect("ringbackd: vbd 7/51712: connected");
	assert_null(next_line());
}

static void
test_errors(void **state)
{
	int full;

	(void)state;
	log_name("ringbackd");
	log_error(-EACCES, "open %s", "/srv/a.img");
	expect("ringbackd: open /srv/a.img: Permission denied");
	log_error(0, "no such disk");
	expect("ringbackd: no such disk");

	/* A caller may log before it looks at errno, also when that fails. */
	full = open("/dev/full", O_WRONLY | O_CLOEXEC);
	assert_true(full != -1);
	assert_int_equal(dup2(full, STDERR_FILENO), STDERR_FILENO);
	assert_int_equal(close(full), 0);
	errno = ENXIO;
	log_error(-EIO, "read");
	assert_int_equal(errno, ENXIO);
	assert_null(next_line());
}

static void
test_unprintable(void **state)
{
	(void)state;
	log_name("ringbackd");
	log_info("a\nb\x1b[2Jc\x7f\xc3\xa4 ~");
	expect("ringbackd: a?b?[2Jc??? ~");
	log_name("evil\nname");
	log_info("x");
	expect("evil?name: x");
	log_name("ringbackd");
}

static void
test_long(void **state)
{
	char text[5000];
	const char *got;

	(void)state;
	memset(text, 'a', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	log_error(-EIO, "%s", text);
	got = next_line();
	assert_non_null(got);
	assert_int_equal(strlen(got), 2047);	/* and the newline */
	assert_string_equal(got + 2047 - 4, "a...");

	/* The longest that fits is not cut. */
	text[2046 - strlen("ringbackd: ")] = '\0';
	log_info("%s", text);
	got = next_line();
	assert_non_null(got);
	assert_int_equal(strlen(got), 2046);
	assert_string_equal(got + 2046 - 4, "aaaa");
}

static uint64_t
now_ms(void)
{
	struct timespec ts;

	assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &ts), 0);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static void
test_guest(void **state)
{
	struct log_limit lim = { .window_start_ms = now_ms() };
	struct log_limit other = { .window_start_ms = now_ms() };
	unsigned i;
	char want[64];

	(void)state;
	for (i = 0; i < 25; i++)
		log_guest(&lim, "bad request %u", i);
	for (i = 0; i < 10; i++) {
		snprintf(want, sizeof(want), "ringbackd: bad request %u", i);
		expect(want);
	}
	assert_null(next_line());
	assert_int_equal(lim.lines, 10);
	assert_int_equal(lim.dropped, 15);

	/* Each limit counts for itself. */
	log_guest(&other, "another kind");
	expect("ringbackd: another kind");

	/* Still the same minute, then the next one. */
	lim.window_start_ms = now_ms() - WINDOW_MS + 5000;
	log_guest(&lim, "too early");
	assert_null(next_line());
	lim.window_start_ms = now_ms() - WINDOW_MS;
	log_guest(&lim, "bad request");
	expect("ringbackd: 16 more lines like the next one were not shown");
	expect("ringbackd: bad request");
	for (i = 0; i < 9; i++) {
		log_guest(&lim, "more");
		expect("ringbackd: more");
	}
	log_guest(&lim, "more");
	assert_null(next_line());

	/* Nothing was kept back: nothing is said about it. */
	other.window_start_ms = now_ms() - 2 * WINDOW_MS;
	log_guest(&other, "later");
	expect("ringbackd: later");
	assert_null(next_line());
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_names, redirect, restore),
		cmocka_unit_test_setup_teardown(test_errors, redirect, restore),
		cmocka_unit_test_setup_teardown(test_unprintable, redirect,
		    restore),
		cmocka_unit_test_setup_teardown(test_long, redirect, restore),
		cmocka_unit_test_setup_teardown(test_guest, redirect, restore),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
