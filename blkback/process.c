/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * process: starting, finding and ending disk processes (see process.h).
 *
 * Between fork and exec only what POSIX calls async-signal-safe is used: the
 * supervisor has a second thread, libxenstore's.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "blkback/log.h"
#include "blkback/process.h"

#define ENV_MAX  256	/* variables handed on */
#define ARGS_MAX (6 + 2 * ROOTS_MAX)

void
process_init(struct process *p)
{
	memset(p, 0, sizeof(*p));
	p->fd = -1;
}

void
process_path(char *path, size_t size, const char *run_dir, uint32_t domid,
    uint32_t devid, const char *suffix)
{
	snprintf(path, size, "%s/%u-%u.%s", run_dir, domid, devid, suffix);
}

static void
socket_address(struct sockaddr_un *sa, const char *run_dir, uint32_t domid,
    uint32_t devid)
{
	memset(sa, 0, sizeof(*sa));
	sa->sun_family = AF_UNIX;
	/* Fits: see RUN_DIR_MAX. */
	process_path(sa->sun_path, sizeof(sa->sun_path), run_dir, domid, devid,
	    "sock");
}

static int
process_socket(void)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK,
	    0);

	return fd < 0 ? -errno : fd;
}

int
process_adopt(struct process *p, const char *run_dir, uint32_t domid,
    uint32_t devid)
{
	struct sockaddr_un sa;
	int fd, rc;

	fd = process_socket();
	if (fd < 0)
		return fd;
	socket_address(&sa, run_dir, domid, devid);
	if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) != 0) {
		rc = errno == ECONNREFUSED ? -ENOENT : -errno;
		close(fd);
		return rc;
	}
	process_init(p);
	p->fd = fd;
	return 0;
}

static int
listen_at(const char *run_dir, uint32_t domid, uint32_t devid)
{
	struct sockaddr_un sa;
	int fd, rc;

	fd = process_socket();
	if (fd < 0)
		return fd;
	socket_address(&sa, run_dir, domid, devid);
	/* Left by one that died; whoever calls us knows that none runs. */
	if (unlink(sa.sun_path) != 0 && errno != ENOENT)
		goto err;
	/* The umask of main() makes it 0600. */
	if (bind(fd, (struct sockaddr *)&sa, sizeof(sa)) != 0 ||
	    listen(fd, 4) != 0)
		goto err;
	return fd;

err:
	rc = -errno;
	close(fd);
	return rc;
}

/* Our environment without what systemd meant for the supervisor alone. */
static void
child_environment(char *env[ENV_MAX])
{
	static const char *const dropped[] = {
		"NOTIFY_SOCKET=", "WATCHDOG_", "LISTEN_", "MAINPID=",
	};
	unsigned n = 0, i;
	char **e;

	for (e = environ; *e != NULL && n < ENV_MAX - 1; e++) {
		for (i = 0; i < sizeof(dropped) / sizeof(dropped[0]); i++)
			if (strncmp(*e, dropped[i], strlen(dropped[i])) == 0)
				break;
		if (i == sizeof(dropped) / sizeof(dropped[0]))
			env[n++] = *e;
	}
	env[n] = NULL;
}

/* In the child.  Comes back only if it could not. */
static void
become_disk(int listener, char *const argv[], char *const env[])
{
	struct sigaction dfl = { .sa_handler = SIG_DFL };
	sigset_t none;
	int null;

	sigemptyset(&none);
	/* A session of its own: a signal to our group is not for it. */
	if (setsid() < 0 || sigprocmask(SIG_SETMASK, &none, NULL) != 0 ||
	    sigaction(SIGPIPE, &dfl, NULL) != 0)
		return;
	null = open("/dev/null", O_RDWR);
	if (null < 0 || dup2(null, STDIN_FILENO) < 0)
		return;
	/* dup2() clears the close-on-exec flag, except onto itself. */
	if (listener == MESSAGE_DISK_FD) {
		if (fcntl(listener, F_SETFD, 0) != 0)
			return;
	} else if (dup2(listener, MESSAGE_DISK_FD) < 0) {
		return;
	}
	if (syscall(SYS_close_range, MESSAGE_DISK_FD + 1, ~0u, 0) != 0)
		return;
	execve("/proc/self/exe", argv, env);
}

/* What is_disk() looks for comes first. */
static void
child_arguments(char *argv[ARGS_MAX], char *title, char *id,
    const char *run_dir, const char *const *backing_roots)
{
	unsigned n = 0, i;

	argv[n++] = title;
	argv[n++] = (char *)"--disk";
	argv[n++] = id;
	for (i = 0; i < ROOTS_MAX && backing_roots[i] != NULL; i++) {
		argv[n++] = (char *)"--backing-root";
		argv[n++] = (char *)(uintptr_t)backing_roots[i];
	}
	argv[n++] = (char *)"--run-dir";
	argv[n++] = (char *)(uintptr_t)run_dir;
	argv[n] = NULL;
}

int
process_spawn(struct process *p, const char *run_dir,
    const char *const *backing_roots, uint32_t domid, uint32_t devid)
{
	char title[48], id[24], *env[ENV_MAX], *argv[ARGS_MAX];
	int listener, rc;
	pid_t pid;

	snprintf(title, sizeof(title), "ringbackd: disk %u/%u", domid, devid);
	snprintf(id, sizeof(id), "%u-%u", domid, devid);
	child_arguments(argv, title, id, run_dir, backing_roots);
	child_environment(env);

	listener = listen_at(run_dir, domid, devid);
	if (listener < 0)
		return listener;
	/* Cannot block: it queues up in the backlog. */
	rc = process_adopt(p, run_dir, domid, devid);
	if (rc < 0)
		goto err;
	pid = fork();
	if (pid < 0) {
		rc = -errno;
		goto err;
	}
	if (pid == 0) {
		become_disk(listener, argv, env);
		_exit(PROCESS_NOT_STARTED);
	}
	close(listener);
	p->pid = pid;
	p->child = true;
	return 0;

err:
	close(listener);
	process_end(p, run_dir, domid, devid);
	return rc;
}

int
process_send(struct process *p, const struct message *m)
{
	return message_send(p->fd, m);
}

/*
 * Is 'pid' the process that serves this disk?  A disk process that somebody
 * has taken over may claim any number, so look at what runs there.
 */
static bool
is_disk(pid_t pid, uint32_t domid, uint32_t devid)
{
	char path[32], buf[256], id[24];
	ssize_t n;
	size_t at;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
	snprintf(id, sizeof(id), "%u-%u", domid, devid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, buf, sizeof(buf) - 1);
	close(fd);
	if (n <= 0)
		return false;
	buf[n] = '\0';
	/* argv[0], then "--disk", then which. */
	at = strlen(buf) + 1;
	if (at >= (size_t)n || strcmp(buf + at, "--disk") != 0)
		return false;
	at += strlen(buf + at) + 1;
	return at < (size_t)n && strcmp(buf + at, id) == 0;
}

void
process_kill(struct process *p, uint32_t domid, uint32_t devid)
{
	int pidfd;

	if (p->pid <= 0)
		return;
	pidfd = syscall(SYS_pidfd_open, p->pid, 0);
	if (pidfd < 0)
		return;		/* gone already */
	/* Asked after the pidfd is held, so that it cannot be another's. */
	if ((p->child || is_disk(p->pid, domid, devid)) &&
	    syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0) != 0 &&
	    errno != ESRCH)
		log_error(-errno, "vbd %u/%u: cannot kill process %d", domid,
		    devid, (int)p->pid);
	close(pidfd);
}

void
process_end(struct process *p, const char *run_dir, uint32_t domid,
    uint32_t devid)
{
	char path[128];

	if (p->fd >= 0)
		close(p->fd);
	process_init(p);
	process_path(path, sizeof(path), run_dir, domid, devid, "sock");
	if (unlink(path) != 0 && errno != ENOENT)
		log_error(-errno, "vbd %u/%u: cannot remove %s", domid, devid,
		    path);
}
