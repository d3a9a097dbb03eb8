/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * copy_rate: bytes per second of a memcpy of blocks.
 *
 *	copy_rate BYTES BUFFERS
 *
 * Each copy goes from one of so many buffers to its counterpart, in turn, as
 * data of so many I/Os in flight is copied once by a backend.
 */
#include <err.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NS	1000000000ull
#define LASTS	(NS / 20)

static uint64_t
now(void)
{
	struct timespec	t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * NS + (uint64_t)t.tv_nsec;
}

static size_t
number(const char *text, size_t max)
{
	char			*end;
	unsigned long long	 n = strtoull(text, &end, 10);

	if (*end != '\0' || n < 1 || n > max)
		errx(2, "%s: must be a number from 1 to %zu", text, max);
	return (size_t)n;
}

/* Pages that are there. */
static char *
buffers(size_t len)
{
	char	*p = aligned_alloc(4096, (len + 4095) / 4096 * 4096);

	if (p == NULL)
		err(1, "allocate %zu bytes", len);
	memset(p, 1, len);
	return p;
}

int
main(int argc, char **argv)
{
	uint64_t	 start, t, n = 0;
	size_t		 len, count, i;
	char		*from, *to;

	if (argc != 3)
		errx(2, "usage: copy_rate BYTES BUFFERS");
	len = number(argv[1], 64u << 20);
	count = number(argv[2], 1024);
	from = buffers(len * count);
	to = buffers(len * count);
	start = now();
	do {
		for (i = 0; i < count; i++) {
			memcpy(to + i * len, from + i * len, len);
			__asm__ volatile("" : : "r"(to) : "memory");
		}
		n += count;
		t = now() - start;
	} while (t < LASTS);
	printf("%.0f\n", (double)n * (double)len * 1e9 / (double)t);
	free(from);
	free(to);
	return 0;
}
