/* SPDX-License-Identifier: GPL-2.0-or-later */
/* pattern: see pattern.h. */
#include <string.h>

#include "tools/pattern.h"

#define SECTOR 512u
#define WORDS  (SECTOR / sizeof(uint64_t))

/* The multipliers and shifts of SplitMix64 (Steele, Lea and Flood, 2014). */
uint64_t
pattern_mix(uint64_t n)
{
	n += UINT64_C(0x9e3779b97f4a7c15);
	n = (n ^ (n >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	n = (n ^ (n >> 27)) * UINT64_C(0x94d049bb133111eb);
	return n ^ (n >> 31);
}

/* After the first two words one multiplication each: Knuth's generator. */
static void
sector_fill(uint64_t word[WORDS], uint64_t offset, uint32_t version,
    uint64_t seed)
{
	uint64_t n = pattern_mix(pattern_mix(offset ^ seed) + version);
	size_t i;

	word[0] = offset;
	word[1] = version;
	for (i = 2; i < WORDS; i++) {
		n = n * UINT64_C(6364136223846793005) + 1442695040888963407;
		word[i] = n;
	}
}

void
pattern_fill(void *buf, size_t length, uint64_t offset, uint32_t version,
    uint64_t seed)
{
	size_t done;

	for (done = 0; done < length; done += SECTOR)
		sector_fill((uint64_t *)buf + done / sizeof(uint64_t),
		    offset + done, version, seed);
}

bool
pattern_check(const void *buf, size_t length, uint64_t offset,
    uint32_t version, uint64_t seed, size_t *bad)
{
	const uint8_t *got = buf, *want;
	uint64_t word[WORDS];
	size_t done, i;

	for (done = 0; done < length; done += SECTOR) {
		sector_fill(word, offset + done, version, seed);
		if (memcmp(got + done, word, SECTOR) == 0)
			continue;
		want = (const uint8_t *)word;
		for (i = 0; got[done + i] == want[i]; i++)
			;
		*bad = done + i;
		return false;
	}
	return true;
}
