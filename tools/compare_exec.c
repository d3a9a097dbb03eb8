/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * compare_exec: run one command of the shell.
 *
 * It gets a session of its own, so that all of it can be ended at once, and so
 * that an ssh in it cannot stop and wait for a password.  Signals are read from
 * a descriptor: whatever comes, poll() sees it.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tools/compare.h"

#define OUTPUT_MAX (16u << 20)	/* bytes; fio prints some 10000 */
#define GRACE_MS   2000		/* between asking to end and ending */

static int      signals = -1;	/* signalfd */
static sigset_t mask_before;
static bool     interrupted;

struct child {
	pid_t  pid;
	struct pollfd fd[3];	/* stdout, stderr, signals; see below */
	char  *out;
	size_t len, room;
	char   err[512];	/* the end of it */
	size_t err_len;
	int    status;
	bool   reaped, timed_out;
	enum { RUNS, ASKED, KILLED } stage;
	int64_t deadline;	/* of this stage, ms */
	int    error;		/* -errno of ours */
};

enum { OUT, ERR, SIGNALS, NR };

static int64_t
now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);	/* cannot fail for this clock */
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

int
exec_begin(char why[WHY_MAX])
{
	struct sigaction usual = { .sa_handler = SIG_DFL };
	sigset_t set;
	int rc;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGCHLD);
	interrupted = false;
	/* Where it is ignored, nobody can be waited for. */
	if (sigaction(SIGCHLD, &usual, NULL) == 0 &&
	    sigprocmask(SIG_BLOCK, &set, &mask_before) == 0) {
		signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
		if (signals != -1)
			return 0;
	}
	rc = -errno;
	why_set(why, "catch signals: %s", strerror(-rc));
	return rc;
}

void
exec_end(void)
{
	close(signals);
	signals = -1;
	sigprocmask(SIG_SETMASK, &mask_before, NULL);
}

bool
exec_interrupted(void)
{
	return interrupted;
}

/* ---- the child --------------------------------------------------------- */

static int
spawn(struct child *c, const char *command, int out, int err)
{
	char *argv[] = { (char[]){ "sh" }, (char[]){ "-c" },
		(char *)(uintptr_t)command, NULL };
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	int rc;

	rc = posix_spawn_file_actions_init(&files);
	if (rc != 0)
		return -rc;
	rc = posix_spawnattr_init(&attr);
	if (rc == 0) {
		rc = posix_spawn_file_actions_addopen(&files, STDIN_FILENO,
		    "/dev/null", O_RDONLY, 0);
		if (rc == 0)
			rc = posix_spawn_file_actions_adddup2(&files, out,
			    STDOUT_FILENO);
		if (rc == 0)
			rc = posix_spawn_file_actions_adddup2(&files, err,
			    STDERR_FILENO);
		if (rc == 0)
			rc = posix_spawnattr_setsigmask(&attr, &mask_before);
		if (rc == 0)
			rc = posix_spawnattr_setflags(&attr,
			    POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSID);
		if (rc == 0)
			rc = posix_spawnp(&c->pid, "sh", &files, &attr, argv,
			    environ);
		posix_spawnattr_destroy(&attr);
	}
	posix_spawn_file_actions_destroy(&files);
	return -rc;
}

static int
start(struct child *c, const char *command)
{
	int out[2], err[2], rc;

	if (pipe2(out, O_CLOEXEC) == -1)
		return -errno;
	if (pipe2(err, O_CLOEXEC) == -1) {
		rc = -errno;
		close(out[0]);
		close(out[1]);
		return rc;
	}
	/* Only our ends: the child expects others that wait. */
	rc = fcntl(out[0], F_SETFL, O_NONBLOCK) == -1 ||
	    fcntl(err[0], F_SETFL, O_NONBLOCK) == -1 ? -errno :
	    spawn(c, command, out[1], err[1]);
	close(out[1]);
	close(err[1]);
	c->fd[OUT] = (struct pollfd){ .fd = out[0], .events = POLLIN };
	c->fd[ERR] = (struct pollfd){ .fd = err[0], .events = POLLIN };
	c->fd[SIGNALS] = (struct pollfd){ .fd = signals, .events = POLLIN };
	return rc;
}

/* poll() passes over what is below 0. */
static void
hang_up(struct pollfd *p)
{
	if (p->fd != -1)
		close(p->fd);
	p->fd = -1;
}

static void
end_group(const struct child *c, int number)
{
	/* There may be nobody left in it. */
	if (kill(-c->pid, number) == -1 && errno != ESRCH)
		kill(c->pid, number);
}

static void
move_on(struct child *c)
{
	c->deadline = now_ms() + GRACE_MS;
	if (c->stage == RUNS) {
		end_group(c, SIGTERM);
		c->stage = ASKED;
	} else {
		end_group(c, SIGKILL);
		c->stage = KILLED;
	}
}

static void
fail(struct child *c, int error)
{
	if (c->error == 0)
		c->error = error;
	hang_up(&c->fd[OUT]);
	if (c->stage == RUNS)
		move_on(c);
}

/* Bytes; 0: no more for now, or ever, then *error may say why. */
static size_t
read_some(struct pollfd *p, char *buf, size_t room, int *error)
{
	ssize_t n;

	do
		n = read(p->fd, buf, room);
	while (n == -1 && errno == EINTR);
	if (n > 0)
		return (size_t)n;
	if (n == -1 && errno == EAGAIN)
		return 0;
	if (n == -1 && *error == 0)
		*error = -errno;
	hang_up(p);
	return 0;
}

/* All that is there now. */
static void
take_out(struct child *c)
{
	size_t n;
	char *more;

	while (c->fd[OUT].fd != -1) {
		if (c->room - c->len < 4096) {
			more = c->room < OUTPUT_MAX ?
			    realloc(c->out, c->room * 2 + 16384) : NULL;
			if (more == NULL) {
				fail(c, c->room < OUTPUT_MAX ? -ENOMEM :
				    -EFBIG);
				return;
			}
			c->out = more;
			c->room = c->room * 2 + 16384;
		}
		n = read_some(&c->fd[OUT], c->out + c->len, c->room - c->len,
		    &c->error);
		if (n == 0)
			return;
		c->len += n;
	}
}

static void
take_err(struct child *c)
{
	const size_t half = sizeof(c->err) / 2;
	size_t n;

	while (c->fd[ERR].fd != -1) {
		if (c->err_len > half) {
			memmove(c->err, c->err + c->err_len - half, half);
			c->err_len = half;
		}
		n = read_some(&c->fd[ERR], c->err + c->err_len, half,
		    &c->error);
		if (n == 0)
			return;
		c->err_len += n;
	}
}

static void
take_signals(struct child *c)
{
	struct signalfd_siginfo info;
	pid_t pid;

	while (read(signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		if (info.ssi_signo != SIGCHLD)
			interrupted = true;
	}
	if (c->reaped)
		return;
	pid = waitpid(c->pid, &c->status, WNOHANG);
	if (pid == -1)
		c->error = -errno;
	c->reaped = pid != 0;
}

static void
wait_for(struct child *c)
{
	int64_t left;

	while (!c->reaped) {
		left = c->stage == KILLED ? -1 : c->deadline - now_ms();
		if (left < 0 && c->stage != KILLED)
			left = 0;
		if (poll(c->fd, NR, left > INT32_MAX ? INT32_MAX : (int)left) ==
		    -1 && errno != EINTR)
			fail(c, -errno);
		take_out(c);
		take_err(c);
		take_signals(c);
		if (c->reaped || c->stage == KILLED)
			continue;
		if (now_ms() >= c->deadline) {
			c->timed_out = c->timed_out || c->stage == RUNS;
			move_on(c);
		} else if (interrupted && c->stage == RUNS) {
			move_on(c);
		}
	}
	/* What it wrote before its end is in the pipes. */
	take_out(c);
	take_err(c);
	if (c->stage != RUNS)
		end_group(c, SIGKILL);
}

/* ---- what became of it ------------------------------------------------- */

/* The last line of its errors, with a colon before it. */
static const char *
last_words(struct child *c)
{
	size_t n = c->err_len, start_at;

	while (n > 0 && (unsigned char)c->err[n - 1] <= ' ')
		n--;
	for (start_at = n; start_at > 0; start_at--)
		if (c->err[start_at - 1] == '\n')
			break;
	c->err[n < sizeof(c->err) ? n : sizeof(c->err) - 1] = '\0';
	return c->err + start_at;
}

static int
judge(struct child *c, double seconds, char why[WHY_MAX])
{
	const char *words = last_words(c);
	const char *colon = *words != '\0' ? ": " : "";

	if (interrupted) {
		why_set(why, "interrupted");
		return -EINTR;
	}
	if (c->timed_out) {
		why_set(why, "it did not end within %g s%s%.200s", seconds,
		    colon, words);
		return -ETIMEDOUT;
	}
	if (c->error == -EFBIG) {
		why_set(why, "it prints more than %u MiB", OUTPUT_MAX >> 20);
		return -EFBIG;
	}
	if (c->error != 0) {
		why_set(why, "run it: %s", strerror(-c->error));
		return c->error;
	}
	if (WIFSIGNALED(c->status))
		why_set(why, "it was ended by signal %d (%s)%s%.200s",
		    WTERMSIG(c->status), strsignal(WTERMSIG(c->status)), colon,
		    words);
	else if (WEXITSTATUS(c->status) != 0)
		why_set(why, "exit status %d%s%.200s", WEXITSTATUS(c->status),
		    colon, words);
	else
		return 0;
	return -ECHILD;
}

int
exec_run(const char *command, double seconds, char **out, size_t *len,
    char why[WHY_MAX])
{
	struct child c = {
		.deadline = now_ms() + (int64_t)(seconds * 1000),
	};
	int rc;

	rc = start(&c, command);
	if (rc == 0) {
		wait_for(&c);
		rc = judge(&c, seconds, why);
	} else {
		why_set(why, "run a shell: %s", strerror(-rc));
	}
	hang_up(&c.fd[OUT]);
	hang_up(&c.fd[ERR]);
	if (rc != 0) {
		free(c.out);
		return rc;
	}
	*out = c.out;
	*len = c.len;
	return 0;
}
