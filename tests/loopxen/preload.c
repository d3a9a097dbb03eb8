/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * LD_PRELOAD for xenstored: what a kernel under Xen shows in /proc/xen.
 *
 * xenstored asks it for domain 0's own ring page (xsd_kva, to be mapped) and
 * event channel port (xsd_port, a number as text).  Nobody speaks on that
 * ring here: every client uses the socket.
 */
#include <sys/mman.h>

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/loopxen/shared.h"

/*
 * Without <fcntl.h>, which declares them with "...": the mode is passed on
 * whether it was given or not, and ignored by the kernel if it was not.
 */
int	open(const char *, int, mode_t);
int	open64(const char *, int, mode_t);

static int
open_kva(void)
{
	int	fd;

	if ((fd = memfd_create("xsd_kva", MFD_CLOEXEC)) == -1)
		return -1;
	if (ftruncate(fd, LX_PAGE) == -1) {
		close(fd);
		return -1;
	}
	return fd;
}

static int
open_port(void)
{
	int	fd;

	if ((fd = memfd_create("xsd_port", MFD_CLOEXEC)) == -1)
		return -1;
	if (dprintf(fd, "%u", LX_XENBUS_PORT) < 0 ||
	    lseek(fd, 0, SEEK_SET) == -1) {
		close(fd);
		return -1;
	}
	return fd;
}

static int
open_real(const char *name, const char *path, int flags, mode_t mode)
{
	int	(*real)(const char *, int, ...);

	if (strcmp(path, "/proc/xen/xsd_kva") == 0)
		return open_kva();
	if (strcmp(path, "/proc/xen/xsd_port") == 0)
		return open_port();
	*(void **)&real = dlsym(RTLD_NEXT, name);
	if (real == NULL) {
		errno = ENOSYS;
		return -1;
	}
	return real(path, flags, mode);
}

int
open(const char *path, int flags, mode_t mode)
{
	return open_real("open", path, flags, mode);
}

int
open64(const char *path, int flags, mode_t mode)
{
	return open_real("open64", path, flags, mode);
}
