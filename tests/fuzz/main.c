/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Runs a fuzz target without libFuzzer, for `make check`: each file of the
 * corpus, then copies of them with random damage, always the same ones.
 *
 *     fuzz_NAME ROUNDS FILE...
 *
 * `make fuzz` builds the same targets with libFuzzer, which looks where it
 * goes.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES_MAX 8192
#define FILES_MAX 256

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct { uint8_t data[BYTES_MAX]; size_t size; } corpus[FILES_MAX];

/* Hand over a copy of exactly that size, so that a sanitizer sees its end. */
static void
try(const uint8_t *data, size_t size)
{
	uint8_t *copy = malloc(size > 0 ? size : 1);

	if (copy == NULL)
		abort();
	memcpy(copy, data, size);
	LLVMFuzzerTestOneInput(copy, size);
	free(copy);
}

static void
damage(uint8_t *data, size_t *size)
{
	static const uint8_t edges[] = { 0, 1, 7, 8, 11, 12, 127, 128, 255 };
	int n = rand() % 8 + 1;
	size_t at;

	while (n-- > 0) {
		at = (size_t)rand() % BYTES_MAX;
		switch (rand() % 5) {
		case 0:
			*size = rand() % 4 == 0 ? at : *size;
			break;
		case 1:
			if (*size < BYTES_MAX)
				data[(*size)++] = rand();
			break;
		case 2:
			if (*size > 0)
				data[at % *size] = rand();
			break;
		case 3:
			if (*size > 0)
				data[at % *size] = edges[(size_t)rand() %
				    sizeof(edges)];
			break;
		default:
			if (*size > 0)
				data[at % *size] ^= 1u << rand() % 8;
			break;
		}
	}
}

int
main(int argc, char **argv)
{
	static uint8_t data[BYTES_MAX];
	long rounds = argc > 1 ? strtol(argv[1], NULL, 10) : 0, r;
	size_t size, i, nr = 0;
	FILE *f;
	int a;

	for (a = 2; a < argc && nr < FILES_MAX; a++) {
		f = fopen(argv[a], "rb");
		if (f == NULL) {
			perror(argv[a]);
			return 1;
		}
		corpus[nr].size = fread(corpus[nr].data, 1, BYTES_MAX, f);
		fclose(f);
		try(corpus[nr].data, corpus[nr].size);
		nr++;
	}
	if (nr == 0 || rounds <= 0) {
		fprintf(stderr, "usage: %s ROUNDS FILE...\n", argv[0]);
		return 2;
	}
	srand(1);
	for (r = 0; r < rounds; r++) {
		i = (size_t)rand() % nr;
		memset(data, 0, sizeof(data));
		memcpy(data, corpus[i].data, corpus[i].size);
		size = corpus[i].size;
		damage(data, &size);
		try(data, size);
	}
	printf("ok %zu inputs and %ld damaged copies\n", nr, rounds);
	return 0;
}
