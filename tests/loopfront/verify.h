/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * verify: what a disk must contain, remembered by its guest.
 *
 * Every sector of 512 bytes that is written carries a pattern made of a seed,
 * its own number and a generation that counts its writes.  Two generations are
 * kept per sector: the last one that was acknowledged and the newest one that
 * was sent.  A read may return any generation from the one that was
 * acknowledged when the read was sent to the newest when it came back; all 512
 * bytes must be of the same one.  A write that failed or was never answered
 * therefore leaves both, the old and the new content, allowed.
 *
 * The caller keeps writes of the same sector from being in flight together.
 */
#ifndef LOOPFRONT_VERIFY_H
#define LOOPFRONT_VERIFY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VERIFY_WHY	256

struct verify;

/*
 * zeroed: what was never written reads as zeros; else it may be anything.
 * 0 or -ENOMEM.
 */
int	verify_new(struct verify **, uint64_t sectors, uint64_t seed,
	    bool zeroed);
void	verify_free(struct verify *);			/* NULL is fine */
uint64_t verify_sectors(const struct verify *);
/* The disk has grown, or has shrunk.  0 or -ENOMEM. */
int	verify_resize(struct verify *, uint64_t sectors);

/* A write is about to be sent: fill the buffer with the next generation. */
void	verify_fill(struct verify *, uint64_t sector, unsigned n, void *buf);
/* ... and has been acknowledged. */
void	verify_acked(struct verify *, uint64_t sector, unsigned n);

/*
 * A discard is about to be sent, and nothing else is in flight for its sectors.
 * From now on, and until a write of them is acknowledged, they may be what they
 * were or zeros.
 */
void	verify_discard(struct verify *, uint64_t sector, unsigned n);

/* A read is about to be sent: note what is acknowledged now. */
void	verify_before(const struct verify *, uint64_t sector, unsigned n,
	    uint32_t *floor);
/*
 * It came back.  0, or -EILSEQ with one line that says which sector and how.
 * torn: Linux's page cache does not keep a read from seeing a part of a write
 * that is under way, so that a sector may have words of each.
 */
int	verify_check(const struct verify *, uint64_t sector, unsigned n,
	    const uint32_t *floor, bool torn, const void *buf,
	    char why[VERIFY_WHY]);

/* What the content of the sector must be; false: that is not certain. */
bool	verify_content(const struct verify *, uint64_t sector, void *buf);

/*
 * Into a file, and back from it.  What was sent and not answered may be there
 * or not.  0 or -errno.
 */
int	verify_save(const struct verify *, const char *path);
int	verify_restore(struct verify **, const char *path);

/* Sectors written and acknowledged / of uncertain content. */
void	verify_count(const struct verify *, uint64_t *written,
	    uint64_t *uncertain);

#endif /* LOOPFRONT_VERIFY_H */
