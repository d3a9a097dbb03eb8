/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * LD_PRELOAD for programs that go past libxengnttab: /dev/xen/gntdev itself.
 *
 * tapdisk copies with an ioctl of its own on that file, and tapback wants to
 * see it.  Here opening it opens a handle of the library, which loopxen has
 * replaced; the descriptor is the library's.  tapdisk also raises its limit of
 * locked memory and ends if it may not, as in a container.
 */
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <xengnttab.h>
#include <xen/sys/gntdev.h>

#define GNTDEV "/dev/xen/gntdev"

/* The library hands the ioctl's segments on as they are; so can we. */
#define SAME(a, b)							\
	_Static_assert(offsetof(struct ioctl_gntdev_grant_copy_segment, a) == \
	    offsetof(xengnttab_grant_copy_segment_t, b), #a)
SAME(source.foreign.ref, source.foreign.ref);
SAME(dest.foreign.domid, dest.foreign.domid);
SAME(len, len);
SAME(flags, flags);
SAME(status, status);
_Static_assert(sizeof(struct ioctl_gntdev_grant_copy_segment) ==
    sizeof(xengnttab_grant_copy_segment_t), "an array of them");

/*
 * Without <fcntl.h> and <unistd.h>: open's mode is passed on whether it was
 * given or not, and ignored by the kernel if it was not.
 */
int	open(const char *, int, mode_t);
int	open64(const char *, int, mode_t);
int	access(const char *, int);
int	close(int);

static xengnttab_handle *handle;	/* a process opens it once */

/* The function that stands behind ours. */
static void *
next(const char *name)
{
	void	*f = dlsym(RTLD_NEXT, name);

	if (f == NULL)
		errno = ENOSYS;
	return f;
}

static int
gntdev_open(void)
{
	if (handle != NULL) {
		errno = EBUSY;
		return -1;
	}
	handle = xengnttab_open(NULL, 0);
	return handle == NULL ? -1 : xengnttab_fd(handle);
}

static int
open_any(const char *name, const char *path, int flags, mode_t mode)
{
	int	(*real)(const char *, int, ...);

	if (strcmp(path, GNTDEV) == 0)
		return gntdev_open();
	*(void **)&real = next(name);
	return real == NULL ? -1 : real(path, flags, mode);
}

int
open(const char *path, int flags, mode_t mode)
{
	return open_any("open", path, flags, mode);
}

int
open64(const char *path, int flags, mode_t mode)
{
	return open_any("open64", path, flags, mode);
}

int
access(const char *path, int how)
{
	int	(*real)(const char *, int);

	if (strcmp(path, GNTDEV) == 0)
		return 0;
	*(void **)&real = next("access");
	return real == NULL ? -1 : real(path, how);
}

/* The library closes its descriptor itself, by this same function. */
int
close(int fd)
{
	int			(*real)(int);
	xengnttab_handle	 *h = handle;

	if (h != NULL && fd == xengnttab_fd(h)) {
		handle = NULL;
		return xengnttab_close(h);
	}
	*(void **)&real = next("close");
	return real == NULL ? -1 : real(fd);
}

int
ioctl(int fd, unsigned long request, ...)
{
	int				(*real)(int, unsigned long, ...);
	struct ioctl_gntdev_grant_copy	*copy;
	va_list				 ap;
	void				*arg;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (handle != NULL && fd == xengnttab_fd(handle)) {
		if (request != IOCTL_GNTDEV_GRANT_COPY) {
			errno = ENOTTY;
			return -1;
		}
		copy = arg;
		return xengnttab_grant_copy(handle, copy->count,
		    (xengnttab_grant_copy_segment_t *)(void *)copy->segments);
	}
	*(void **)&real = next("ioctl");
	return real == NULL ? -1 : real(fd, request, arg);
}

/* On a host root may. */
static int
limit_any(const char *name, int resource, const void *limit)
{
	int	(*real)(int, const void *);

	*(void **)&real = next(name);
	if (real == NULL)
		return -1;
	if (real(resource, limit) == 0)
		return 0;
	return resource == RLIMIT_MEMLOCK && errno == EPERM ? 0 : -1;
}

int
setrlimit(__rlimit_resource_t resource, const struct rlimit *limit)
{
	return limit_any("setrlimit", (int)resource, limit);
}

int
setrlimit64(__rlimit_resource_t resource, const struct rlimit64 *limit)
{
	return limit_any("setrlimit64", (int)resource, limit);
}

/* What is mapped later is the memory of a whole guest. */
int
mlockall(int flags)
{
	int	(*real)(int);

	*(void **)&real = next("mlockall");
	return real == NULL ? -1 : real(flags & ~MCL_FUTURE);
}
