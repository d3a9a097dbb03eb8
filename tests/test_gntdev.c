/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What loopxen's gntdev.c has programs see that use /dev/xen/gntdev itself; it
 * is linked in, and so stands before the C library.  Run by
 * tests/loopxen/test.sh.
 */
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/loopxen/rig.h"

#include <xen/sys/gntdev.h>	/* wants its types to be there */

#define GNTDEV "/dev/xen/gntdev"

/* The segments of the ioctl have the shape of the library's. */
static int
copy(int fd, segment_t *s, unsigned n)
{
	struct ioctl_gntdev_grant_copy	c = { .count = n };

	c.segments = (void *)s;
	return ioctl(fd, IOCTL_GNTDEV_GRANT_COPY, &c);
}

static void
copies(void **state)
{
	struct rig	*r = *state;
	uint32_t	 ref = rig_grant(r, 3, false);
	char		*page = loopguest_page(r->guest, 3);
	char		 in[8] = "", out[8] = "backend";
	segment_t	 s[3];
	int		 fd;

	assert_int_equal(access(GNTDEV, F_OK), 0);
	fd = open(GNTDEV, O_RDWR | O_NONBLOCK);
	assert_true(fd >= 0);
	strcpy(page + 4000, "front");
	s[0] = rig_copy_in(in, DOMID, ref, 4000, 8);
	s[1] = rig_copy_out(DOMID, ref, 8, out, 8);
	s[2] = rig_copy_out(DOMID, ref + 1, 8, out, 8);
	assert_int_equal(copy(fd, s, 3), 0);
	assert_int_equal(s[0].status, GNTST_okay);
	assert_int_equal(s[1].status, GNTST_okay);
	assert_int_equal(s[2].status, GNTST_general_error);
	assert_string_equal(in, "front");
	assert_string_equal(page + 8, "backend");
	assert_int_equal(rig_counters(r).copy_calls, 1);

	s[0] = rig_copy_in(in, DOMID, ref, 4090, 8);
	assert_int_equal(copy(fd, s, 1), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(ioctl(fd, IOCTL_GNTDEV_MAP_GRANT_REF, s), -1);
	assert_int_equal(errno, ENOTTY);
	assert_int_equal(close(fd), 0);
	assert_int_equal(close(fd), -1);
	assert_int_equal(loopguest_ungrant(r->guest, ref), 0);
}

static void
opens_again(void **state)
{
	int	fd;

	(void)state;
	for (int i = 0; i < 3; i++) {
		fd = open(GNTDEV, O_RDWR);
		assert_true(fd >= 0);
		assert_int_equal(open(GNTDEV, O_RDWR), -1);
		assert_int_equal(errno, EBUSY);
		assert_int_equal(close(fd), 0);
	}
}

/* All other files are the kernel's. */
static void
others_are_left_alone(void **state)
{
	char	buf[2] = "";
	int	fd = open("/dev/zero", O_RDONLY), n = -1, fds[2];

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(read(fd, buf, 2), 2);
	assert_int_equal(close(fd), 0);
	assert_int_equal(access("/dev/xen/no-such-file", F_OK), -1);
	assert_int_equal(errno, ENOENT);
	assert_int_equal(pipe(fds), 0);
	assert_int_equal(write(fds[1], "abc", 3), 3);
	assert_int_equal(ioctl(fds[0], FIONREAD, &n), 0);
	assert_int_equal(n, 3);
	assert_int_equal(close(fds[0]), 0);
	assert_int_equal(close(fds[1]), 0);
}

/* Kilobytes of ours that are locked. */
static long
locked(void)
{
	FILE	*f = fopen("/proc/self/status", "re");
	char	 line[256];
	long	 n = -1;

	assert_non_null(f);
	while (n == -1 && fgets(line, sizeof(line), f) != NULL)
		sscanf(line, "VmLck: %ld", &n);
	fclose(f);
	return n;
}

/* What is there is locked if it may be, but nothing that comes later. */
static void
locks_no_guest(void **state)
{
	struct rlimit	 limit = { RLIM_INFINITY, RLIM_INFINITY };
	const size_t	 size = 64 << 20;
	void		*p;
	long		 before;

	(void)state;
	assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
	if (mlockall(MCL_CURRENT | MCL_FUTURE) == -1) {
		print_message("mlockall: %s\n", strerror(errno));
		skip();
	}
	before = locked();
#ifdef RINGBACK_SANITIZED
	if (before == 0)
		skip();			/* the sanitizer's mlockall is none */
#endif
	assert_true(before > 0);
	p = mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(p != MAP_FAILED);
	assert_true(locked() - before < (long)(size >> 11));
	assert_int_equal(munlockall(), 0);
	assert_int_equal(munmap(p, size), 0);
}

int
main(void)
{
	const struct CMUnitTest	tests[] = {
		RIG_TEST(copies),
		RIG_TEST(opens_again),
		RIG_TEST(others_are_left_alone),
		RIG_TEST(locks_no_guest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
