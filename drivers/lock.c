/* SPDX-License-Identifier: GPL-2.0-or-later */
/* lock: see lock.h. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "drivers/lock.h"

#define HOLD_BASE 100			/* QEMU: bytes of permissions held */
#define DENY_BASE 200			/* and of permissions not shared */
#define NR_PERMS  4

static int
lock_bytes(int fd, int cmd, short type, off_t start, off_t length,
    struct flock *lock)
{
	memset(lock, 0, sizeof(*lock));	/* l_pid must be 0 */
	lock->l_type = type;
	lock->l_whence = SEEK_SET;
	lock->l_start = start;
	lock->l_len = length;
	return fcntl(fd, cmd, lock) == -1 ? -errno : 0;
}

/* A shared lock on each byte of 'mask'. */
static int
lock_share(int fd, off_t base, unsigned mask)
{
	struct flock lock;
	int n, rc;

	for (n = 0; n < NR_PERMS; n++) {
		if ((mask & 1u << n) == 0)
			continue;
		rc = lock_bytes(fd, F_OFD_SETLK, F_RDLCK, base + n, 1, &lock);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* -EAGAIN when somebody else has locked a byte of 'mask'. */
static int
lock_check(int fd, off_t base, unsigned mask)
{
	struct flock lock;
	int n, rc;

	for (n = 0; n < NR_PERMS; n++) {
		if ((mask & 1u << n) == 0)
			continue;
		rc = lock_bytes(fd, F_OFD_GETLK, F_WRLCK, base + n, 1, &lock);
		if (rc < 0)
			return rc;
		if (lock.l_type != F_UNLCK)
			return -EAGAIN;
	}
	return 0;
}

static int
lock_drop(int fd)
{
	struct flock lock;
	int rc, rc2;

	rc = lock_bytes(fd, F_OFD_SETLK, F_UNLCK, HOLD_BASE, NR_PERMS, &lock);
	rc2 = lock_bytes(fd, F_OFD_SETLK, F_UNLCK, DENY_BASE, NR_PERMS, &lock);
	return rc < 0 ? rc : rc2;
}

int
lock_take(int fd, unsigned hold, unsigned deny, const char *path,
    char why[WHY_MAX])
{
	int rc, rc2;

	assert((hold | deny) < 1u << NR_PERMS);
	rc = lock_share(fd, HOLD_BASE, hold);
	if (rc == 0)
		rc = lock_share(fd, DENY_BASE, deny);
	if (rc == 0)
		rc = lock_check(fd, DENY_BASE, hold);
	if (rc == 0)
		rc = lock_check(fd, HOLD_BASE, deny);
	if (rc == 0)
		return 0;

	rc2 = lock_drop(fd);
	if (rc == -EACCES)		/* as POSIX allows for "locked" */
		rc = -EAGAIN;
	if (rc == -EAGAIN)
		why_set(why, "lock %.200s%s: another process (QEMU, qemu-img, "
		    "another disk) uses this image; end or detach that one "
		    "first ('fuser -v' with the path names it, or look on the "
		    "other hosts that share the storage)", path,
		    hold & PERM_WRITE ? " for writing" : "");
	else
		why_set(why, "lock %.200s: %s; its file system must support "
		    "byte-range locks (NFS version 3: start rpc.statd on both "
		    "sides)", path, strerror(-(rc2 < 0 ? rc2 : rc)));
	return rc;
}

int
lock_release(int fd, const char *path, char why[WHY_MAX])
{
	int rc;

	rc = lock_drop(fd);
	if (rc < 0)
		why_set(why, "unlock %.200s: %s; close the disk, which also "
		    "unlocks the image", path, strerror(-rc));
	return rc;
}
