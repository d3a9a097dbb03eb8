/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Inside the sandbox: what a disk process that a guest has taken over can
 * still do.  Each attempt runs in a child that has entered it; needs root.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "blkback/sandbox.h"

#define UID 64321

static pid_t sibling;		/* another disk's process, of the same uid */
static char  page_path[64];	/* another disk's page file */

static int
try_open(void)
{
	return open("/etc/passwd", O_RDONLY);
}

static int
try_openat(void)
{
	return openat(AT_FDCWD, "/", O_RDONLY | O_DIRECTORY);
}

static int
try_creat(void)
{
	return creat("/tmp/ringback-escaped", 0600);
}

static int
try_other_page(void)
{
	return open(page_path, O_RDONLY);
}

static int
try_socket(void)
{
	return socket(AF_INET, SOCK_STREAM, 0);
}

static int
try_unix_socket(void)
{
	return socket(AF_UNIX, SOCK_STREAM, 0);
}

static int
try_fork(void)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	return pid;
}

static void *
thread_main(void *arg)
{
	return arg;
}

static int
try_thread(void)
{
	pthread_t t;

	errno = pthread_create(&t, NULL, thread_main, NULL);
	return errno == 0 ? 0 : -1;
}

static int
try_exec(void)
{
	char *argv[] = { (char *)"true", NULL };

	return execv("/bin/true", argv);
}

static int
try_kill_sibling(void)
{
	return kill(sibling, SIGKILL);
}

static int
try_signal_all(void)
{
	return kill(-1, 0);
}

static int
try_ptrace(void)
{
	return ptrace(PTRACE_ATTACH, sibling, NULL, NULL);
}

static int
try_read_memory(void)
{
	char byte;
	struct iovec local = { &byte, 1 }, remote = { &sibling, 1 };

	return process_vm_readv(sibling, &local, 1, &remote, 1, 0);
}

static int
try_root(void)
{
	return setuid(0);
}

static int
try_executable_map(void)
{
	void *p = mmap(NULL, 4096, PROT_READ | PROT_EXEC,
	    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? -1 : 0;
}

static int
try_make_executable(void)
{
	void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
	    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? 0 : mprotect(p, 4096, PROT_READ | PROT_EXEC);
}

static int
try_core(void)
{
	const struct rlimit core = { 1 << 20, 1 << 20 };

	return setrlimit(RLIMIT_CORE, &core);
}

static int
try_dumpable(void)
{
	return prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
}

static int
try_ioctl(void)
{
	return (int)syscall(SYS_ioctl, 0, 0x5401, NULL);	/* TCGETS */
}

static int
try_mount(void)
{
	return (int)syscall(SYS_mount, NULL, NULL, NULL, 0, NULL);
}

static int
try_unshare(void)
{
	return unshare(CLONE_NEWUSER);
}

static const struct {
	const char *name;
	int       (*run)(void);
} attempts[] = {
	{ "open a file", try_open },
	{ "open a directory", try_openat },
	{ "make a file", try_creat },
	{ "see another disk's page", try_other_page },
	{ "make an internet socket", try_socket },
	{ "make a local socket", try_unix_socket },
	{ "fork", try_fork },
	{ "make a thread", try_thread },
	{ "exec", try_exec },
	{ "kill another disk's process", try_kill_sibling },
	{ "signal everything", try_signal_all },
	{ "trace another disk's process", try_ptrace },
	{ "read another process's memory", try_read_memory },
	{ "become root", try_root },
	{ "map executable memory", try_executable_map },
	{ "make memory executable", try_make_executable },
	{ "allow core dumps", try_core },
	{ "become dumpable", try_dumpable },
	{ "make an unknown ioctl", try_ioctl },
	{ "mount", try_mount },
	{ "unshare", try_unshare },
};
#define NR_ATTEMPTS (sizeof(attempts) / sizeof(attempts[0]))

/* Run 'body' in a child that is in the sandbox; its exit status. */
static int
in_sandbox(int (*body)(void))
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (pid == 0) {
		if (sandbox_enter(UID) < 0)
			_exit(100);
		errno = 0;
		_exit(body() >= 0 ? 0 : errno);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) :
	    1000 + WTERMSIG(status);
}

static void
test_attempts(void **state)
{
	size_t i;
	int got;

	(void)state;
	for (i = 0; i < NR_ATTEMPTS; i++) {
		got = in_sandbox(attempts[i].run);
		if (got != EPERM)
			fail_msg("%s: %d, not EPERM", attempts[i].name, got);
	}
	/* The other disk's process has come to no harm. */
	assert_int_equal(kill(sibling, 0), 0);
}

/* What it gave up is gone for good, in the eyes of the kernel. */
static void
test_identity(void **state)
{
	char path[64], line[256], *end;
	int fd[2], status, ids = 0, caps = 0, other = 0;
	pid_t pid;
	FILE *f;
	char c;

	(void)state;
	assert_int_equal(pipe(fd), 0);
	pid = fork();
	if (pid == 0) {
		if (sandbox_enter(UID) < 0 || write(fd[1], "x", 1) != 1)
			_exit(1);
		for (;;)
			poll(NULL, 0, 1000);
	}
	assert_int_equal(read(fd[0], &c, 1), 1);
	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	f = fopen(path, "r");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f) != NULL) {
		if (strncmp(line, "Uid:", 4) == 0 ||
		    strncmp(line, "Gid:", 4) == 0)
			ids += strtol(line + 4, &end, 10) == UID &&
			    strtol(end, &end, 10) == UID &&
			    strtol(end, &end, 10) == UID;
		if (strncmp(line, "CapPrm:", 7) == 0 ||
		    strncmp(line, "CapEff:", 7) == 0)
			caps += strtoull(line + 7, NULL, 16) == 0;
		if (strncmp(line, "Groups:", 7) == 0)
			other += strspn(line + 7, " \t\n") == strlen(line + 7);
		if (strncmp(line, "NoNewPrivs:", 11) == 0)
			other += atoi(line + 11) == 1;
		if (strncmp(line, "Seccomp:", 8) == 0)
			other += atoi(line + 8) == 2;
	}
	fclose(f);
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	close(fd[0]);
	close(fd[1]);
	assert_int_equal(ids, 2);
	assert_int_equal(caps, 2);
	assert_int_equal(other, 3);
}

/* And what a disk process lives on still works. */
static int inherited_event, inherited_epoll, inherited_file;

/* What a driver does to a file: by io_submit or like this. */
static int
use_file(int fd)
{
	struct flock lock = { .l_type = F_WRLCK, .l_start = 100, .l_len = 1 };
	char a[8] = "12345678", b[8] = "";
	struct iovec out = { a, sizeof(a) }, in = { b, sizeof(b) };
	struct stat st;

	if (pwrite(fd, "x", 1, 0) != 1 || pread(fd, b, 1, 0) != 1 ||
	    pwritev(fd, &out, 1, 4096) != sizeof(a) ||
	    preadv(fd, &in, 1, 4096) != sizeof(b) ||
	    memcmp(a, b, sizeof(a)) != 0 ||
	    fallocate(fd, 0, 8192, 4096) != 0 ||
	    fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
	    4096) != 0 || lseek(fd, 0, SEEK_DATA) < 4096 ||
	    ftruncate(fd, 5000) != 0 || fdatasync(fd) != 0 ||
	    fsync(fd) != 0 ||
	    (errno = posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED)) != 0 ||
	    fstat(fd, &st) != 0 || st.st_size != 5000 ||
	    fcntl(fd, F_OFD_SETLK, &lock) != 0)
		return -1;
	lock.l_type = F_RDLCK;
	if (fcntl(fd, F_OFD_GETLK, &lock) != 0)
		return -1;
	lock.l_type = F_UNLCK;
	return fcntl(fd, F_OFD_SETLK, &lock);
}

/* A buffer that grows beyond what malloc() takes from its heap. */
static int
use_memory(void)
{
	char *p = malloc(1 << 20), *q;

	if (p == NULL)
		return -1;
	memset(p, 1, 1 << 20);
	q = realloc(p, 8 << 20);
	if (q == NULL) {
		free(p);
		return -1;
	}
	memset(q, 2, 8 << 20);
	free(q);
	return 0;
}

/* Two threads that wait for each other, and for a time. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static int turn;

static void *
other_thread(void *arg)
{
	pthread_mutex_lock(&mutex);
	while (turn != 1)
		pthread_cond_wait(&cond, &mutex);
	turn = 2;
	pthread_cond_signal(&cond);
	pthread_mutex_unlock(&mutex);
	return arg;
}

static int
use_threads(pthread_t other)
{
	const struct timespec nap = { 0, 1000000 };
	struct timespec until;
	int rc = 0;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 5;
	pthread_mutex_lock(&mutex);
	turn = 1;
	pthread_cond_signal(&cond);
	while (turn != 2 && rc == 0)
		rc = pthread_cond_timedwait(&cond, &mutex, &until);
	pthread_mutex_unlock(&mutex);
	if (rc != 0 || clock_nanosleep(CLOCK_MONOTONIC, 0, &nap, NULL) != 0)
		return -1;
	errno = pthread_join(other, NULL);
	return errno == 0 ? 0 : -1;
}

static int
body_allowed(void)
{
	struct epoll_event ev;
	uint64_t one = 1;

	if (write(inherited_event, &one, sizeof(one)) != sizeof(one))
		return -1;
	if (epoll_wait(inherited_epoll, &ev, 1, 1000) != 1)
		return -1;
	if (read(inherited_event, &one, sizeof(one)) != sizeof(one))
		return -1;
	if (use_file(inherited_file) != 0 || use_memory() != 0)
		return -1;
	return 0;
}

/* The driver's threads are there before the sandbox is. */
static int
enter_with_thread(void)
{
	pthread_t other;

	if (pthread_create(&other, NULL, other_thread, NULL) != 0 ||
	    sandbox_enter(UID) < 0)
		return 1;
	return use_threads(other) == 0 ? 0 : 2;
}

static void
test_allowed(void **state)
{
	struct epoll_event ev = { .events = EPOLLIN };
	char path[] = "/tmp/ringback-sandbox-XXXXXX";
	int status;
	pid_t pid;

	(void)state;
	inherited_event = eventfd(0, EFD_NONBLOCK);
	inherited_epoll = epoll_create1(0);
	inherited_file = mkstemp(path);
	assert_true(inherited_event >= 0 && inherited_file >= 0);
	unlink(path);
	assert_int_equal(epoll_ctl(inherited_epoll, EPOLL_CTL_ADD,
	    inherited_event, &ev), 0);
	assert_int_equal(in_sandbox(body_allowed), 0);
	pid = fork();
	if (pid == 0)
		_exit(enter_with_thread());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	close(inherited_event);
	close(inherited_epoll);
	close(inherited_file);
}

/* The filter covers threads that were there before. */
static int thread_result[2];

static void *
thread_waits(void *arg)
{
	char c;

	(void)arg;
	if (read(thread_result[0], &c, 1) != 1)
		return (void *)1;
	return open("/etc/passwd", O_RDONLY) >= 0 || errno != EPERM ?
	    (void *)1 : NULL;
}

static void
test_threads(void **state)
{
	void *bad = (void *)1;
	pthread_t t;
	int status;
	pid_t pid;

	(void)state;
	assert_int_equal(pipe(thread_result), 0);
	pid = fork();
	if (pid == 0) {
		if (pthread_create(&t, NULL, thread_waits, NULL) != 0 ||
		    sandbox_enter(UID) < 0 ||
		    write(thread_result[1], "x", 1) != 1)
			_exit(1);
		pthread_join(t, &bad);
		_exit(bad != NULL);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	close(thread_result[0]);
	close(thread_result[1]);
}

/*
 * A thread that was made before may begin inside, when it gets a CPU late:
 * libc ends the process if it cannot make these calls then.
 */
static int
body_begins(void)
{
	if (syscall(SYS_rseq, NULL, 0, 0, 0) == 0 || errno == EPERM ||
	    syscall(SYS_set_robust_list, NULL, 0) == 0 || errno == EPERM)
		return -1;
	return 0;
}

static void
test_begins(void **state)
{
	(void)state;
	assert_int_equal(in_sandbox(body_begins), 0);
}

static int
setup(void **state)
{
	int fd;

	(void)state;
	snprintf(page_path, sizeof(page_path), "/tmp/ringback-page-XXXXXX");
	fd = mkstemp(page_path);
	if (fd < 0)
		return -1;
	close(fd);
	sibling = fork();
	if (sibling == 0) {
		if (setresuid(UID, UID, UID) != 0)
			_exit(1);
		for (;;)
			pause();
	}
	return sibling < 0 ? -1 : 0;
}

static int
teardown(void **state)
{
	(void)state;
	kill(sibling, SIGKILL);
	waitpid(sibling, NULL, 0);
	unlink(page_path);
	return 0;
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_attempts),
		cmocka_unit_test(test_identity),
		cmocka_unit_test(test_allowed),
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_begins),
	};

	if (geteuid() != 0) {
		fprintf(stderr, "skipped: needs root\n");
		return 77;
	}
#ifdef RINGBACK_SANITIZED
	/* There the filter only logs: nothing to be seen from inside. */
	fprintf(stderr, "skipped: a sanitizer build's filter only logs\n");
	return 77;
#endif
	return cmocka_run_group_tests_name("sandbox", tests, setup, teardown);
}
