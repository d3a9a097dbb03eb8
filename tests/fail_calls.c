/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * fail_calls: preloaded into ringbackd, it makes one chosen call fail.
 *
 * FAIL_CALLS names a file that all processes map: for each class of calls how
 * many are still to succeed before one fails, with which errno, and how many
 * have failed.  The test writes it while the daemon runs (see test_faults.sh);
 * a disk process keeps its mapping when it gives up its privileges.
 *
 * The classes: xenstore calls of the supervisor, its allocations, and those of
 * the disk processes.  Of the supervisor only the first thread counts: the
 * other one is libxenstore's own, and what it cannot allocate nobody can mend.
 * Nor do a disk process's threads under AddressSanitizer, whose own start of a
 * thread ends the process; nor what libseccomp allocates, but for its first
 * steps: with less memory than it wants it crashes, or makes a wrong filter and
 * says that all is well.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <xenstore.h>

enum { XENSTORE, SUPERVISOR, DISK, CLASSES };

struct control {
	_Atomic uint32_t left;		/* the one that makes it 0 fails */
	_Atomic uint32_t error;
	_Atomic uint32_t failed;
};

static struct control *control;
static bool is_disk, sanitized;

static void *
next(const char *name)
{
	void *f = dlsym(RTLD_NEXT, name);

	if (f == NULL)
		abort();
	return f;
}

#define NEXT(name) \
	static __typeof__(name) *real; \
	if (real == NULL) \
		real = next(#name)

static bool
is_first_thread(void)
{
	return syscall(SYS_gettid) == getpid();
}

static bool
is_due(int class)
{
	struct control *c = &control[class];
	uint32_t left = atomic_load(&c->left);

	while (left > 0)
		if (atomic_compare_exchange_weak(&c->left, &left, left - 1))
			break;
	if (left != 1)
		return false;
	atomic_fetch_add(&c->failed, 1);
	errno = (int)atomic_load(&c->error);
	return true;
}

static bool
is_excepted(void *caller)
{
	static _Atomic unsigned filter;
	Dl_info from;

	if (!is_disk || sanitized)
		if (!is_first_thread())
			return true;
	if (is_disk && dladdr(caller, &from) != 0 &&
	    strstr(from.dli_fname, "libseccomp") != NULL)
		return sanitized || atomic_fetch_add(&filter, 1) >= 3;
	return false;
}

static bool
no_memory(void *caller)
{
	return control != NULL && !is_excepted(caller) &&
	    is_due(is_disk ? DISK : SUPERVISOR);
}

static bool
no_xenstore(void)
{
	return control != NULL && !is_disk && is_first_thread() &&
	    is_due(XENSTORE);
}

static void __attribute__((constructor))
begin(void)
{
	const char *name = getenv("FAIL_CALLS");
	char line[256] = "";
	void *map;
	int fd;

	fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
	if (fd < 0 || read(fd, line, sizeof(line) - 1) <= 0)
		abort();
	close(fd);
	is_disk = strncmp(line, "ringbackd: disk", 15) == 0;
	sanitized = dlsym(RTLD_DEFAULT, "__asan_init") != NULL;
	fd = name != NULL ? open(name, O_RDWR | O_CLOEXEC) : -1;
	if (fd < 0)
		return;
	map = mmap(NULL, CLASSES * sizeof(*control), PROT_READ | PROT_WRITE,
	    MAP_SHARED, fd, 0);
	close(fd);
	if (map == MAP_FAILED)
		abort();
	control = map;
}

/* ---- memory ----------------------------------------------------------- */

void *
malloc(size_t size)
{
	NEXT(malloc);
	return no_memory(__builtin_return_address(0)) ? NULL : real(size);
}

void *
calloc(size_t n, size_t size)
{
	NEXT(calloc);
	return no_memory(__builtin_return_address(0)) ? NULL : real(n, size);
}

void *
realloc(void *old, size_t size)
{
	NEXT(realloc);
	return no_memory(__builtin_return_address(0)) ? NULL : real(old, size);
}

int
posix_memalign(void **p, size_t alignment, size_t size)
{
	NEXT(posix_memalign);
	return no_memory(__builtin_return_address(0)) ? ENOMEM :
	    real(p, alignment, size);
}

void *
mmap(void *at, size_t size, int prot, int flags, int fd, off_t offset)
{
	NEXT(mmap);
	return no_memory(__builtin_return_address(0)) ? MAP_FAILED :
	    real(at, size, prot, flags, fd, offset);
}

/* ---- xenstore --------------------------------------------------------- */

void *
xs_read(struct xs_handle *h, xs_transaction_t t, const char *path,
    unsigned *len)
{
	NEXT(xs_read);
	return no_xenstore() ? NULL : real(h, t, path, len);
}

char **
xs_directory(struct xs_handle *h, xs_transaction_t t, const char *path,
    unsigned *num)
{
	NEXT(xs_directory);
	return no_xenstore() ? NULL : real(h, t, path, num);
}

bool
xs_write(struct xs_handle *h, xs_transaction_t t, const char *path,
    const void *data, unsigned len)
{
	NEXT(xs_write);
	return no_xenstore() ? false : real(h, t, path, data, len);
}

bool
xs_mkdir(struct xs_handle *h, xs_transaction_t t, const char *path)
{
	NEXT(xs_mkdir);
	return no_xenstore() ? false : real(h, t, path);
}

bool
xs_rm(struct xs_handle *h, xs_transaction_t t, const char *path)
{
	NEXT(xs_rm);
	return no_xenstore() ? false : real(h, t, path);
}

bool
xs_set_permissions(struct xs_handle *h, xs_transaction_t t, const char *path,
    struct xs_permissions *perms, unsigned n)
{
	NEXT(xs_set_permissions);
	return no_xenstore() ? false : real(h, t, path, perms, n);
}

bool
xs_watch(struct xs_handle *h, const char *path, const char *token)
{
	NEXT(xs_watch);
	return no_xenstore() ? false : real(h, path, token);
}

xs_transaction_t
xs_transaction_start(struct xs_handle *h)
{
	NEXT(xs_transaction_start);
	return no_xenstore() ? XBT_NULL : real(h);
}

/* One that fails has ended all the same, without effect. */
bool
xs_transaction_end(struct xs_handle *h, xs_transaction_t t, bool abandon)
{
	bool fails = no_xenstore();
	int error = errno;

	NEXT(xs_transaction_end);
	if (!fails)
		return real(h, t, abandon);
	real(h, t, true);
	errno = error;
	return false;
}

bool
xs_is_domain_introduced(struct xs_handle *h, unsigned domid)
{
	NEXT(xs_is_domain_introduced);
	return no_xenstore() ? false : real(h, domid);
}
