/* SPDX-License-Identifier: GPL-2.0-or-later */
/* talk: one question to the daemon, and its answer (see control.h). */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "blkback/control.h"
#include "tools/ringback.h"

#define ANSWER_MAX (64u << 20)	/* bytes; a list of many disks */

int64_t
now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);	/* cannot fail for this clock */
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static int
fail(char why[TALK_WHY], const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* -1, and why. */
static int
fail(char why[TALK_WHY], const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	if (vsnprintf(why, TALK_WHY, fmt, ap) < 0)
		why[0] = '\0';
	va_end(ap);
	return -1;
}

static int
fail_connect(const char *path, int error, char why[TALK_WHY])
{
	switch (error) {
	case ENOENT:
	case ECONNREFUSED:
		return fail(why, "ringbackd does not answer at %s: start it "
		    "(systemctl start ringbackd), or say --run-dir if it runs "
		    "with another one", path);
	case EACCES:
	case EPERM:
		return fail(why, "connect to %s: %s: only root may", path,
		    strerror(error));
	case EAGAIN:
		return fail(why, "connect to %s: ringbackd is too busy to "
		    "answer: try again", path);
	default:
		return fail(why, "connect to %s: %s", path, strerror(error));
	}
}

/* A descriptor, or -1. */
static int
talk_connect(const char *path, int seconds, char why[TALK_WHY])
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	struct timeval tv = { .tv_sec = seconds };
	int fd;

	if (strlen(path) >= sizeof(sun.sun_path))
		return fail(why, "the path of the control socket, %s, has more "
		    "than %zu bytes: use a shorter --run-dir", path,
		    sizeof(sun.sun_path) - 1);
	memcpy(sun.sun_path, path, strlen(path) + 1);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	/* The limit is for connect(), when the queue is full, and send(). */
	if (fd == -1 ||
	    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv)) == -1 ||
	    connect(fd, (struct sockaddr *)&sun, sizeof(sun)) == -1) {
		fail_connect(path, errno, why);
		if (fd != -1)
			close(fd);
		return -1;
	}
	return fd;
}

static int
talk_send(int fd, const char *line, char why[TALK_WHY])
{
	size_t left = strlen(line);
	ssize_t n;

	while (left > 0) {
		n = send(fd, line, left, MSG_NOSIGNAL);
		if (n == -1 && errno == EINTR)
			continue;
		if (n == -1 && errno == EPIPE)
			break;	/* it may have said why: read that */
		if (n == -1)
			return fail(why, "send to ringbackd: %s",
			    strerror(errno));
		line += n;
		left -= (size_t)n;
	}
	return 0;
}

/* Wait for something to read; false after the deadline. */
static bool
talk_wait(int fd, int64_t deadline)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	int64_t left = deadline - now_ms();
	int n;

	while (left > 0) {
		n = poll(&p, 1, (int)left);
		if (n > 0)
			return true;
		if (n == -1 && errno != EINTR)
			return true;	/* recv() will say what it is */
		left = deadline - now_ms();
	}
	return false;
}

/* Everything up to end-of-file or the newline; to be freed.  NULL, and why. */
static char *
talk_receive(int fd, int64_t deadline, int seconds, char why[TALK_WHY])
{
	size_t used = 0, room = 0;
	char *buf = NULL, *more;
	ssize_t n;

	for (;;) {
		if (room - used < 2) {
			room = room == 0 ? 4096 : room * 2;
			more = room > ANSWER_MAX ? NULL : realloc(buf, room);
			if (more == NULL) {
				fail(why, "ringbackd's answer is too long");
				break;
			}
			buf = more;
		}
		if (!talk_wait(fd, deadline)) {
			fail(why, "no answer from ringbackd within %d seconds: "
			    "its log may say why", seconds);
			break;
		}
		n = recv(fd, buf + used, room - used - 1, 0);
		if (n == -1 && errno == EINTR)
			continue;
		if (n > 0) {
			used += (size_t)n;
			if (memchr(buf + used - n, '\n', (size_t)n) == NULL)
				continue;
		}
		buf[used] = '\0';
		if (used > 0)
			return buf;
		fail(why, "ringbackd hung up without an answer (%s): it "
		    "answers root only; its log may say more",
		    n == -1 ? strerror(errno) : "end of file");
		break;
	}
	free(buf);
	return NULL;
}

json_t *
talk_ask(const char *run_dir, const char *question, int seconds,
    char why[TALK_WHY])
{
	int64_t deadline = now_ms() + seconds * INT64_C(1000);
	char path[4096], *line = NULL;
	json_t *answer;
	int fd;

	if (snprintf(path, sizeof(path), "%s/%s", run_dir,
	    CONTROL_SOCKET) >= (int)sizeof(path)) {
		fail(why, "--run-dir is too long");
		return NULL;
	}
	fd = talk_connect(path, seconds, why);
	if (fd == -1)
		return NULL;
	if (talk_send(fd, question, why) == 0)
		line = talk_receive(fd, deadline, seconds, why);
	close(fd);
	if (line == NULL)
		return NULL;

	answer = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
	free(line);
	if (json_is_object(answer) &&
	    json_is_boolean(json_object_get(answer, "ok")))
		return answer;
	json_decref(answer);
	fail(why, TALK_STRANGE);
	return NULL;
}
