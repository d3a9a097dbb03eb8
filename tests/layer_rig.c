/* SPDX-License-Identifier: GPL-2.0-or-later */
/* layer_rig: see layer_rig.h. */
#include "tests/layer_rig.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

char dir[512], why[WHY_MAX];
struct qcow2_layer *top;
unsigned nr_fds;
struct shim shim;

ssize_t
pread(int fd, void *buf, size_t bytes, off_t offset)
{
	if (shim.pread > 0 && --shim.pread == 0) {
		errno = EIO;
		return -1;
	}
	return syscall(SYS_pread64, fd, buf, bytes, offset);
}

int
posix_memalign(void **p, size_t alignment, size_t bytes)
{
	if (shim.alloc > 0 && --shim.alloc == 0)
		return ENOMEM;
	shim.bytes += bytes;
	*p = aligned_alloc(alignment, (bytes + alignment - 1) / alignment *
	    alignment);
	return *p == NULL ? ENOMEM : 0;
}

int
stat(const char *path, struct stat *st)
{
	int rc = fstatat(AT_FDCWD, path, st, 0);

	if (shim.stat > 0 && --shim.stat == 0)
		shim.after_stat();
	return rc;
}

const char *
at(const char *name)
{
	static char paths[2][1024];
	static int i;

	i = !i;
	snprintf(paths[i], sizeof(paths[i]), "%s/%s", dir, name);
	return paths[i];
}

void
poke(const char *name, uint64_t offset, const char *hex)
{
	unsigned char bytes[64];
	size_t n = strlen(hex) / 2, i;
	unsigned byte;
	int fd;

	for (i = 0; i < n; i++) {
		assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
		bytes[i] = (unsigned char)byte;
	}
	fd = open(at(name), O_WRONLY);
	assert_true(fd != -1);
	assert_int_equal(pwrite(fd, bytes, n, (off_t)offset), n);
	close(fd);
}

uint64_t
peek(const char *name, uint64_t offset)
{
	uint64_t v = 0;
	int fd = open(at(name), O_RDONLY);

	assert_true(fd != -1);
	assert_int_equal(pread(fd, &v, sizeof(v), (off_t)offset), sizeof(v));
	close(fd);
	return be64toh(v);
}

int
chain_open_roots(const char *name, bool readonly, const char *const *roots)
{
	struct image_options opt = { .format = "qcow2", .path = at(name),
	    .readonly = readonly, .backing_roots = roots };

	assert_null(top);
	why[0] = '\0';
	return qcow2_chain_open(&opt, &top, why);
}

int
chain_open(const char *name, bool readonly)
{
	return chain_open_roots(name, readonly, NULL);
}

void
chain_close(void)
{
	qcow2_chain_close(top);
	top = NULL;
	assert_int_equal(rig_count_fds(), nr_fds);
}

void
opens(const char *name, bool readonly)
{
	if (chain_open(name, readonly) != 0)
		fail_msg("%s: %s", name, why);
	chain_close();
}

void
says(const char *words)
{
	char copy[1024], *word, *save;
	const char *p = why, *found;

	snprintf(copy, sizeof(copy), "%s", words);
	for (word = strtok_r(copy, "|", &save); word != NULL;
	    word = strtok_r(NULL, "|", &save)) {
		found = strstr(p, word);
		if (found == NULL)
			fail_msg("no '%s' of '%s' in: %s", word, words, why);
		else
			p = found + strlen(word);
	}
	assert_null(strchr(why, '\n'));
}

void
refused(const char *name, bool readonly, int error, const char *words)
{
	int rc = chain_open(name, readonly);

	if (rc != error)
		fail_msg("%s: %d, not %d: %s", name, rc, error, why);
	assert_null(top);
	assert_int_equal(rig_count_fds(), nr_fds);
	says(words);
}

int
setup(void **state)
{
	(void)state;
	rig_make_file(dir, 0);
	assert_int_equal(unlink(dir), 0);
	assert_int_equal(mkdir(dir, 0755), 0);
	memset(&shim, 0, sizeof(shim));
	nr_fds = rig_count_fds();
	return 0;
}

int
teardown(void **state)
{
	(void)state;
	memset(&shim, 0, sizeof(shim));
	if (top != NULL)
		chain_close();
	return rig_shell(NULL, 0, "rm -rf %s", dir);
}

static double
now(void)
{
	struct timespec ts;

	assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &ts), 0);
	return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6;
}

double
time_open(const char *name, int rc)
{
	double best = 1e9, took;
	int i;

	for (i = 0; i < 7; i++) {
		took = now();
		assert_int_equal(chain_open(name, false), rc);
		took = now() - took;
		if (top != NULL)
			chain_close();
		if (took < best)
			best = took;
	}
	return best;
}
