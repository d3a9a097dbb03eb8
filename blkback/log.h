/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * log: one line per event on stderr, "ringbackd: vbd 7/51712: what: why".
 *
 * Never called per request in the good case.  Lines that a guest can cause
 * go through log_guest(), which lets ten a minute through per limit and
 * counts the rest.  Every line is written by one write(2), so that lines of
 * several processes do not mix, and bytes that are not printable ASCII are
 * shown as '?': a guest does not get to write to an operator's terminal.
 */
#ifndef BLKBACK_LOG_H
#define BLKBACK_LOG_H

#include <stdint.h>

#define LOG_PRINTF(fmt, va) __attribute__((format(printf, fmt, va)))

struct log_limit {
	uint64_t window_start_ms;
	unsigned lines;		/* let through in this window */
	unsigned dropped;	/* kept back in this window */
};

/* What every line of this process begins with: "ringbackd", or the disk. */
void log_name(const char *fmt, ...) LOG_PRINTF(1, 2);

void log_info(const char *fmt, ...) LOG_PRINTF(1, 2);

/* 'error' is a -errno; its text is appended.  0: nothing is appended. */
void log_error(int error, const char *fmt, ...) LOG_PRINTF(2, 3);

void log_guest(struct log_limit *lim, const char *fmt, ...) LOG_PRINTF(2, 3);

#endif
