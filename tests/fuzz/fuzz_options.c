/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A ringback.conf as a person may write it, and a disk spec, in a comment that
 * is its last line, as the defaults of that file complete it.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "blkback/options.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What has been completed once stays as it is, and fits what it was. */
static void
complete(const struct defaults *d, const uint8_t *data, size_t size)
{
	char text[SPEC_MAX], full[SPEC_MAX], again[SPEC_MAX], why[WHY_MAX];
	const uint8_t *at = data + size;
	struct disk_spec spec;
	size_t n;

	while (at > data && at[-1] != '\n')
		at--;
	at += at < data + size && *at == '#';
	n = (size_t)(data + size - at);
	n = n < sizeof(text) ? n : sizeof(text) - 1;
	memcpy(text, at, n);
	text[n] = '\0';
	if (defaults_parse(d, false, text, full, &spec, why) < 0)
		return;
	if (!defaults_fit(false, full, text, &spec) ||
	    defaults_parse(d, false, full, again, &spec, why) < 0 ||
	    strcmp(full, again) != 0)
		abort();
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int fd = -1, null;
	static char path[32];
	char *argv[] = { (char *)"ringbackd", (char *)"--config", path, NULL };
	struct options opt;
	int err;

	if (fd < 0) {
		fd = memfd_create("conf", MFD_CLOEXEC);
		null = open("/dev/null", O_WRONLY | O_CLOEXEC);
		if (fd < 0 || null < 0)
			abort();
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	}
	if (ftruncate(fd, 0) != 0 ||
	    pwrite(fd, data, size, 0) != (ssize_t)size)
		abort();
	/* Refusals are logged; with so many the log is of no use. */
	err = dup(STDERR_FILENO);
	dup2(null, STDERR_FILENO);
	if (options_read(&opt, 3, argv) == 0) {
		dup2(err, STDERR_FILENO);
		if (opt.nr_kinds == 0 || opt.run_dir[0] != '/' ||
		    opt.max_deaths > DEATHS_KEPT)
			abort();
		complete(&opt.defaults, data, size);
		options_free(&opt);
	}
	dup2(err, STDERR_FILENO);
	close(err);
	return 0;
}
