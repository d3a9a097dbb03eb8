/* SPDX-License-Identifier: GPL-2.0-or-later */
/* sandbox: the list of what is still allowed (see sandbox.h). */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/fs.h>
#include <seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>
#include <xen/xen.h>
#include <xen/grant_table.h>
#include <xen/sys/evtchn.h>
#include <xen/sys/gntdev.h>

#include "blkback/sandbox.h"

#ifdef RINGBACK_SANITIZED
#define UNKNOWN_CALL SCMP_ACT_LOG
#else
#define UNKNOWN_CALL SCMP_ACT_ERRNO(EPERM)
#endif

/* Calls that may be made with any arguments, and who makes them. */
static const int allowed[] = {
	/* the loops: events, timers, the supervisor's socket */
	SCMP_SYS(epoll_wait), SCMP_SYS(epoll_pwait), SCMP_SYS(epoll_ctl),
	SCMP_SYS(poll), SCMP_SYS(ppoll), SCMP_SYS(read), SCMP_SYS(write),
	SCMP_SYS(accept4), SCMP_SYS(getsockopt), SCMP_SYS(sendto),
	SCMP_SYS(recvfrom), SCMP_SYS(sendmsg), SCMP_SYS(recvmsg),
	SCMP_SYS(close), SCMP_SYS(clock_gettime), SCMP_SYS(timerfd_settime),
	SCMP_SYS(clock_nanosleep), SCMP_SYS(nanosleep),
	/* I/O of the drivers */
	SCMP_SYS(io_submit), SCMP_SYS(io_getevents), SCMP_SYS(io_pgetevents),
	SCMP_SYS(io_destroy), SCMP_SYS(pread64), SCMP_SYS(pwrite64),
	SCMP_SYS(preadv), SCMP_SYS(pwritev), SCMP_SYS(fsync),
	SCMP_SYS(fdatasync), SCMP_SYS(fallocate), SCMP_SYS(ftruncate),
	SCMP_SYS(fstat), SCMP_SYS(newfstatat), SCMP_SYS(statx),
	SCMP_SYS(lseek), SCMP_SYS(fadvise64),
	/* memory and threads that exist already, if only just */
	SCMP_SYS(brk), SCMP_SYS(munmap), SCMP_SYS(madvise), SCMP_SYS(futex),
	SCMP_SYS(rt_sigprocmask), SCMP_SYS(rt_sigreturn),
	SCMP_SYS(sched_yield), SCMP_SYS(getpid), SCMP_SYS(gettid),
	SCMP_SYS(rseq), SCMP_SYS(set_robust_list),
	SCMP_SYS(restart_syscall), SCMP_SYS(exit), SCMP_SYS(exit_group),
};

static const unsigned long allowed_ioctls[] = {
	IOCTL_GNTDEV_MAP_GRANT_REF, IOCTL_GNTDEV_UNMAP_GRANT_REF,
	IOCTL_GNTDEV_GET_OFFSET_FOR_VADDR, IOCTL_GNTDEV_GRANT_COPY,
	IOCTL_EVTCHN_BIND_INTERDOMAIN, IOCTL_EVTCHN_UNBIND,
	IOCTL_EVTCHN_NOTIFY,
	BLKGETSIZE64, BLKSSZGET, BLKPBSZGET, BLKDISCARD,
};

static const int allowed_fcntls[] = {
	F_GETFL, F_OFD_SETLK, F_OFD_GETLK,	/* the image locks */
};

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static int
add_rules(scmp_filter_ctx ctx)
{
	size_t i;
	int rc = 0;

	for (i = 0; rc == 0 && i < COUNT(allowed); i++)
		rc = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, allowed[i], 0);
	for (i = 0; rc == 0 && i < COUNT(allowed_ioctls); i++)
		rc = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(ioctl), 1,
		    SCMP_A1(SCMP_CMP_MASKED_EQ, UINT32_MAX,
		    allowed_ioctls[i]));
	for (i = 0; rc == 0 && i < COUNT(allowed_fcntls); i++)
		rc = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(fcntl), 1,
		    SCMP_A1(SCMP_CMP_MASKED_EQ, UINT32_MAX,
		    allowed_fcntls[i]));
	/* Memory, but never any that can be executed. */
	if (rc == 0)
		rc = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1,
		    SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
	if (rc == 0)
		rc = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(mprotect),
		    1, SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
	return rc;
}

static int
install_filter(void)
{
	scmp_filter_ctx ctx = seccomp_init(UNKNOWN_CALL);
	int rc;

	if (ctx == NULL)
		return -ENOMEM;
	rc = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_TSYNC, 1);
	/*
	 * Another architecture's call ends the process, not a thread of it:
	 * with half of its threads it would look alive and serve nobody.
	 */
	if (rc == 0)
		rc = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH,
		    SCMP_ACT_KILL_PROCESS);
	/* A tree instead of a list: the data path's calls cost the least. */
	if (rc == 0)
		rc = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	if (rc == 0)
		rc = add_rules(ctx);
	if (rc == 0)
		rc = seccomp_load(ctx);
	seccomp_release(ctx);
	return rc;
}

int
sandbox_confine(void)
{
	const struct rlimit no_core = { 0, 0 };

	if (setrlimit(RLIMIT_CORE, &no_core) != 0 ||
	    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
	    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0)
		return -errno;
	return install_filter();
}

int
sandbox_enter(uint32_t uid)
{
	if (setgroups(0, NULL) != 0 ||
	    setresgid(uid, uid, uid) != 0 ||
	    setresuid(uid, uid, uid) != 0)
		return -errno;
	/* It must not be undone. */
	if (uid != 0 && setuid(0) == 0)
		return -EPERM;
	return sandbox_confine();
}
