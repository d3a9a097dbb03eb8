/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * rival: see rival.h.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "blkback/rival.h"
#include "blkback/xenstore.h"

#define NAME "tapback\n"	/* as in /proc/PID/comm */

/* Of a process that may have ended.  The bytes read; 'buf' is terminated. */
static size_t
read_proc(int proc, const char *pid, const char *file, char *buf, size_t size)
{
	char path[48];
	ssize_t n = 0;
	int fd;

	snprintf(path, sizeof(path), "%.16s/%s", pid, file);
	fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		n = read(fd, buf, size - 1);
		close(fd);
	}
	buf[n > 0 ? n : 0] = '\0';
	return n > 0 ? n : 0;
}

/* Its -n, in all the ways that getopt takes it; TAP without one. */
static const char *
kind_of(const char *args, size_t size)
{
	const char *end = args + size, *kind = TAP, *a;

	for (a = args; a < end; a += strlen(a) + 1) {
		if (strncmp(a, "--name=", 7) == 0)
			kind = a + 7;
		else if (strncmp(a, "-n", 2) == 0 && a[2] != '\0')
			kind = a + 2;
		else if ((strcmp(a, "-n") == 0 || strcmp(a, "--name") == 0) &&
		    a + strlen(a) + 1 < end)
			kind = a += strlen(a) + 1;
	}
	return kind;
}

pid_t
rival_tapback(const char *kind)
{
	char name[32], args[1024];
	struct dirent *e;
	pid_t found = 0;
	uint32_t pid;
	DIR *proc;

	proc = opendir("/proc");
	if (proc == NULL)
		return 0;
	while (found == 0 && (e = readdir(proc)) != NULL) {
		if (xenstore_parse_u32(e->d_name, INT32_MAX, &pid) < 0)
			continue;
		read_proc(dirfd(proc), e->d_name, "comm", name, sizeof(name));
		if (strcmp(name, NAME) == 0 && strcmp(kind, kind_of(args,
		    read_proc(dirfd(proc), e->d_name, "cmdline", args,
		    sizeof(args)))) == 0)
			found = (pid_t)pid;
	}
	closedir(proc);
	return found;
}
