/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See verify.h. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/loopfront/verify.h"

#define SECTOR	512u
#define WORDS	(SECTOR / sizeof(uint64_t))

/* A multiplier with well mixed bits: 2^64 divided by the golden ratio. */
#define MIX	0x9e3779b97f4a7c15u

struct generations {
	uint32_t acked;			/* 0: never; perhaps with DISCARDED */
	uint32_t newest;
};

#define DISCARDED	0x80000000u	/* since then */
#define GENERATION(n)	((n) & ~DISCARDED)

struct verify {
	uint64_t seed;
	uint64_t sectors;
	bool	 zeroed;
	struct generations *gen;
};

/* The first three words say what a sector is; the rest follows from them. */
struct stamp {
	uint64_t seed, sector, gen;
};

static size_t
map_size(uint64_t sectors)
{
	/* A drive may be empty, a mapping not. */
	return (sectors > 0 ? sectors : 1) * sizeof(struct generations);
}

/* Straight from the kernel: only what is touched costs memory. */
int
verify_new(struct verify **vp, uint64_t sectors, uint64_t seed, bool zeroed)
{
	struct verify	*v = calloc(1, sizeof(*v));

	if (v == NULL || sectors == 0)
		goto fail;
	v->seed = seed * MIX | 1;	/* never all zeros */
	v->sectors = sectors;
	v->zeroed = zeroed;
	v->gen = mmap(NULL, map_size(sectors), PROT_READ | PROT_WRITE,
	    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (v->gen == MAP_FAILED)
		goto fail;
	*vp = v;
	return 0;

fail:
	free(v);
	return -ENOMEM;
}

void
verify_free(struct verify *v)
{
	if (v == NULL)
		return;
	munmap(v->gen, map_size(v->sectors));
	free(v);
}

uint64_t
verify_sectors(const struct verify *v)
{
	return v->sectors;
}

int
verify_resize(struct verify *v, uint64_t sectors)
{
	void	*gen;

	if (sectors == v->sectors)
		return 0;
	gen = mremap(v->gen, map_size(v->sectors), map_size(sectors),
	    MREMAP_MAYMOVE);
	if (gen == MAP_FAILED)
		return -ENOMEM;
	v->gen = gen;
	v->sectors = sectors;
	return 0;
}

static uint64_t
stamp_base(const struct stamp *s)
{
	uint64_t	x = s->seed ^ s->sector * MIX ^ s->gen << 32;

	x = (x ^ x >> 31) * MIX;
	return x ^ x >> 29;
}

static void
pattern(const struct stamp *s, uint64_t word[WORDS])
{
	uint64_t	base = stamp_base(s);
	unsigned	i;

	word[0] = s->seed;
	word[1] = s->sector;
	word[2] = s->gen;
	for (i = 3; i < WORDS; i++)
		word[i] = base + i * MIX;
}

/* How many words differ, and the first that does. */
static unsigned
differing(const uint64_t a[WORDS], const uint64_t b[WORDS], unsigned *first)
{
	unsigned	i, n = 0;

	if (memcmp(a, b, SECTOR) == 0)
		return 0;
	for (i = 0; i < WORDS; i++) {
		if (a[i] != b[i] && n++ == 0)
			*first = i;
	}
	return n;
}

void
verify_fill(struct verify *v, uint64_t sector, unsigned n, void *buf)
{
	struct stamp	 s = { .seed = v->seed };
	char		*p = buf;
	unsigned	 i;

	for (i = 0; i < n; i++) {
		s.sector = sector + i;
		s.gen = ++v->gen[s.sector].newest;
		pattern(&s, (uint64_t *)(void *)(p + (size_t)i * SECTOR));
	}
}

void
verify_acked(struct verify *v, uint64_t sector, unsigned n)
{
	unsigned	i;

	for (i = 0; i < n; i++)
		v->gen[sector + i].acked = v->gen[sector + i].newest;
}

void
verify_discard(struct verify *v, uint64_t sector, unsigned n)
{
	unsigned	i;

	for (i = 0; i < n; i++)
		v->gen[sector + i].acked |= DISCARDED;
}

void
verify_before(const struct verify *v, uint64_t sector, unsigned n,
    uint32_t *floor)
{
	unsigned	i;

	for (i = 0; i < n; i++)
		floor[i] = v->gen[sector + i].acked;
}

static bool
all_zero(const uint64_t word[WORDS])
{
	return word[0] == 0 && memcmp(word, word + 1, SECTOR - 8) == 0;
}

/* One line about a sector that is wrong: whose content is it, if anybody's? */
static int
complain(const struct verify *v, const struct stamp *want, uint32_t floor,
    const uint64_t found[WORDS], char why[VERIFY_WHY])
{
	uint64_t	good[WORDS];
	struct stamp	is = { found[0], found[1], found[2] };
	unsigned	first = 0, n;
	int		len;

	len = snprintf(why, VERIFY_WHY, "sector %" PRIu64 ": ", want->sector);
	if (floor == want->gen)
		len += snprintf(why + len, VERIFY_WHY - len,
		    "expected write %u", floor);
	else
		len += snprintf(why + len, VERIFY_WHY - len,
		    "expected write %u to %" PRIu64, floor, want->gen);
	if (all_zero(found)) {
		snprintf(why + len, VERIFY_WHY - len, ", found zeros");
		return -EILSEQ;
	}
	if (is.seed != v->seed) {
		snprintf(why + len, VERIFY_WHY - len,
		    ", found foreign data (%016" PRIx64 " ...)", found[0]);
		return -EILSEQ;
	}
	pattern(&is, good);
	n = differing(good, found, &first);
	len += snprintf(why + len, VERIFY_WHY - len,
	    ", found write %" PRIu64 " of sector %" PRIu64, is.gen, is.sector);
	if (n > 0)
		snprintf(why + len, VERIFY_WHY - len,
		    ", torn at byte %u (%u of 64 words differ)", first * 8, n);
	return -EILSEQ;
}

/* Is each word of one of the writes that it may be of? */
static bool
mixture(const struct stamp *newest, uint32_t floor, bool zeros,
    const uint64_t found[WORDS])
{
	struct stamp	s = *newest;
	uint64_t	good[WORDS], known = 0;
	unsigned	i;

	_Static_assert(WORDS == 64, "a bit for each");
	for (i = 0; i < WORDS; i++)
		if (zeros && found[i] == 0)
			known |= (uint64_t)1 << i;
	for (; s.gen > 0 && s.gen >= floor; s.gen--) {
		pattern(&s, good);
		for (i = 0; i < WORDS; i++)
			if (found[i] == good[i])
				known |= (uint64_t)1 << i;
	}
	return known == UINT64_MAX;
}

static int
check_sector(const struct verify *v, uint64_t sector, uint32_t floor,
    bool torn, const uint64_t found[WORDS], char why[VERIFY_WHY])
{
	struct stamp	s = { v->seed, sector, v->gen[sector].newest };
	uint64_t	good[WORDS];

	bool		zeros = floor == 0 || (floor & DISCARDED);

	if (zeros && all_zero(found))
		return 0;
	floor = GENERATION(floor);
	if ((floor == 0 && !v->zeroed) ||
	    (torn && mixture(&s, floor, zeros, found)))
		return 0;
	if (found[2] < floor || found[2] > s.gen || found[2] == 0)
		return complain(v, &s, floor, found, why);
	s.gen = found[2];
	pattern(&s, good);
	if (memcmp(good, found, SECTOR) == 0)
		return 0;
	s.gen = v->gen[sector].newest;
	return complain(v, &s, floor, found, why);
}

int
verify_check(const struct verify *v, uint64_t sector, unsigned n,
    const uint32_t *floor, bool torn, const void *buf, char why[VERIFY_WHY])
{
	const char	*p = buf;
	unsigned	 i;
	int		 rc;

	for (i = 0; i < n; i++) {
		rc = check_sector(v, sector + i, floor[i], torn,
		    (const uint64_t *)(const void *)(p + (size_t)i * SECTOR),
		    why);
		if (rc < 0)
			return rc;
	}
	return 0;
}

bool
verify_content(const struct verify *v, uint64_t sector, void *buf)
{
	const struct generations	*g = &v->gen[sector];
	struct stamp			 s = { v->seed, sector, g->acked };

	if (g->acked != g->newest || (g->acked == 0 && !v->zeroed))
		return false;		/* also when it was discarded */
	if (g->acked == 0)
		memset(buf, 0, SECTOR);
	else
		pattern(&s, buf);
	return true;
}

void
verify_count(const struct verify *v, uint64_t *written, uint64_t *uncertain)
{
	uint64_t	i;

	*written = *uncertain = 0;
	for (i = 0; i < v->sectors; i++) {
		*written += GENERATION(v->gen[i].acked) != 0;
		*uncertain += v->gen[i].acked != v->gen[i].newest ||
		    (v->gen[i].acked == 0 && !v->zeroed);
	}
}

struct saved {
	uint64_t seed, sectors;
	uint64_t zeroed;
};

int
verify_save(const struct verify *v, const char *path)
{
	struct saved	 head = { v->seed, v->sectors, v->zeroed };
	FILE		*f = fopen(path, "we");
	int		 rc = 0;

	if (f == NULL)
		return -errno;
	if (fwrite(&head, sizeof(head), 1, f) != 1 ||
	    fwrite(v->gen, sizeof(*v->gen), v->sectors, f) != v->sectors)
		rc = -EIO;
	if (fclose(f) != 0 && rc == 0)
		rc = -errno;
	return rc;
}

int
verify_restore(struct verify **vp, const char *path)
{
	struct saved	 head;
	struct verify	*v = NULL;
	FILE		*f = fopen(path, "re");
	int		 rc = 0;

	if (f == NULL)
		return -errno;
	if (fread(&head, sizeof(head), 1, f) != 1)
		rc = -EIO;
	if (rc == 0)
		rc = verify_new(&v, head.sectors, 1, head.zeroed != 0);
	if (rc == 0) {
		v->seed = head.seed;
		if (fread(v->gen, sizeof(*v->gen), v->sectors, f) !=
		    v->sectors)
			rc = -EIO;
	}
	fclose(f);
	if (rc == 0)
		*vp = v;
	else
		verify_free(v);
	return rc;
}
