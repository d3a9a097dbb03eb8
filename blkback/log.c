/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * log: lines for the operator (see log.h).
 *
 * A line is put together in one buffer, made printable, and handed to the
 * kernel in one write(2): a pipe takes up to PIPE_BUF bytes without mixing
 * them with another process's, so no line is longer than that.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "blkback/log.h"

#define LINE_MAX_BYTES  2048	/* below PIPE_BUF; newline included */
#define GUEST_LINES     10
#define GUEST_WINDOW_MS 60000

static char name[128] = "ringbackd";

struct line {
	char   text[LINE_MAX_BYTES];
	size_t used;
};

static void
line_vadd(struct line *l, const char *fmt, va_list ap)
{
	size_t room = sizeof(l->text) - l->used;
	int n;

	n = vsnprintf(l->text + l->used, room, fmt, ap);
	if (n < 0)
		return;		/* keep what there is; vsnprintf wrote none */
	l->used += (size_t)n < room ? (size_t)n : room - 1;
}

static void __attribute__((format(printf, 2, 3)))
line_add(struct line *l, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	line_vadd(l, fmt, ap);
	va_end(ap);
}

static void
line_write(struct line *l)
{
	static const char cut[] = "...";
	ssize_t n;
	size_t i;

	if (l->used == sizeof(l->text) - 1)
		memcpy(l->text + l->used - (sizeof(cut) - 1), cut,
		    sizeof(cut) - 1);
	for (i = 0; i < l->used; i++)
		if (l->text[i] < ' ' || l->text[i] > '~')
			l->text[i] = '?';
	l->text[l->used] = '\n';

	/* When this fails there is nobody left to tell. */
	do
		n = write(STDERR_FILENO, l->text, l->used + 1);
	while (n == -1 && errno == EINTR);
}

static void
emit(int error, const char *fmt, va_list ap)
{
	struct line l = { .used = 0 };
	char buf[128];
	int saved = errno;

	line_add(&l, "%s: ", name);
	line_vadd(&l, fmt, ap);
	if (error != 0)
		line_add(&l, ": %s", strerror_r(-error, buf, sizeof(buf)));
	line_write(&l);
	errno = saved;
}

void
log_name(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	if (vsnprintf(name, sizeof(name), fmt, ap) < 0)
		name[0] = '\0';
	va_end(ap);
}

void
log_info(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	emit(0, fmt, ap);
	va_end(ap);
}

void
log_error(int error, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	emit(error, fmt, ap);
	va_end(ap);
}

static uint64_t
now_ms(void)
{
	struct timespec ts;

	if (clock_gettime(CLOCK_MONOTONIC, &ts) == -1)
		return 0;	/* one window for ever: fewer lines, no flood */
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

void
log_guest(struct log_limit *lim, const char *fmt, ...)
{
	uint64_t now = now_ms();
	va_list ap;

	if (now - lim->window_start_ms >= GUEST_WINDOW_MS) {
		if (lim->dropped > 0)
			log_info("%u more lines like the next one were not "
			    "shown", lim->dropped);
		lim->window_start_ms = now;
		lim->lines = lim->dropped = 0;
	}
	if (lim->lines == GUEST_LINES) {
		lim->dropped++;
		return;
	}
	lim->lines++;

	va_start(ap, fmt);
	emit(0, fmt, ap);
	va_end(ap);
}
