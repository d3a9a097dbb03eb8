/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Attacks on the ring: its indices, and memory that changes under a reader. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/hostile/attacks.h"

/* Indices into the words of the header. */
enum { REQ_PROD, REQ_EVENT, RSP_PROD, RSP_EVENT };

#define BROKEN	"producer index"	/* what the daemon calls it */

void
ask_read(struct enemy *e, uint32_t ref, uint64_t sector, int status)
{
	struct front_request	req = { .op = BLKIF_OP_READ, .nr_segments = 1,
				    .sector = sector };

	req.seg[0].gref = ref;
	req.seg[0].last = 7;
	enemy_ask(e, &req, status);
}

int
honest_reads(struct enemy *e, unsigned n)
{
	uint32_t	ref = enemy_grant(e, 0, false);
	int		rc;

	while (n-- > 0)
		ask_read(e, ref, (uint64_t)n * 8, BLKIF_RSP_OKAY);
	rc = enemy_collect(e);
	enemy_ungrant(e, ref);
	return rc;
}

/* A ring on which some requests have been answered, whatever its layout. */
static int
begin(struct enemy *e, enum front_abi abi, unsigned order)
{
	return enemy_connect(e, abi, order) < 0 ? -1 : honest_reads(e, 5);
}

/* Set the producer, once; the ring must be given up. */
static int
produce(struct enemy *e, enum front_abi abi, unsigned order, uint32_t step)
{
	volatile uint32_t	*w;
	uint32_t		 answers;

	if (begin(e, abi, order) < 0)
		return -1;
	w = enemy_words(e);
	answers = w[RSP_PROD];
	w[REQ_PROD] += step;
	loopguest_port_notify(e->q->port);
	if (enemy_given_up(e, BROKEN) < 0)
		return -1;
	if (w[RSP_PROD] != answers)
		return fail("a broken ring was answered");
	/* Not even when its producer makes sense again. */
	w[REQ_PROD] = answers + 1;
	loopguest_port_notify(e->q->port);
	sleep_ms(20);
	if (w[RSP_PROD] != answers)
		return fail("a broken ring was served again");
	/* A guest that begins anew gets a new ring. */
	return enemy_recover(e) < 0 || begin(e, abi, order) < 0 ? -1 :
	    enemy_disconnect(e);
}

int
attack_far_ahead(struct enemy *e)
{
	return produce(e, FRONT_X86_64, 2, 1000000) < 0 ||
	    produce(e, FRONT_X86_32, 4, 0x80000000) < 0 ? -1 : 0;
}

int
attack_one_too_many(struct enemy *e)
{
	return produce(e, FRONT_NATIVE, 0, 33) < 0 ||
	    produce(e, FRONT_X86_32, 3, 257) < 0 ? -1 : 0;
}

/* Behind what was taken, but not behind what was answered. */
static int
take_back(struct enemy *e)
{
	uint32_t	ref = enemy_grant(e, 0, false);
	unsigned	i;

	if (begin(e, FRONT_X86_64, 0) < 0)
		return -1;
	loopguest_delay_copy(e->guest, 300);
	for (i = 0; i < 5; i++)
		ask_read(e, ref, i * 8, BLKIF_RSP_OKAY);
	enemy_push(e);
	sleep_ms(100);
	enemy_words(e)[REQ_PROD] -= 2;
	loopguest_port_notify(e->q->port);
	/* What was taken is answered all the same. */
	if (enemy_given_up(e, BROKEN) < 0 || enemy_collect(e) < 0)
		return -1;
	loopguest_delay_copy(e->guest, 0);
	enemy_ungrant(e, ref);
	return enemy_recover(e);
}

int
attack_backwards(struct enemy *e)
{
	return produce(e, FRONT_X86_64, 1, UINT32_MAX) < 0 ||
	    produce(e, FRONT_X86_32, 0, (uint32_t)-5) < 0 ||
	    take_back(e) < 0 ? -1 : 0;
}

/* Indices that make no sense when the backend first sees them. */
int
attack_senseless_start(struct enemy *e)
{
	static const uint32_t	prods[][2] = {
		{ 33, 0 }, { 0, 1 }, { 0x80000000, 0 }, { 5, UINT32_MAX - 30 },
	};
	volatile uint32_t	*w;
	unsigned		 i;

	for (i = 0; i < sizeof(prods) / sizeof(prods[0]); i++) {
		if (enemy_ring(e, FRONT_X86_64, 0) < 0)
			return -1;
		w = enemy_words(e);
		w[REQ_PROD] = prods[i][0];
		w[RSP_PROD] = prods[i][1];
		if (enemy_state(e, XenbusStateInitialised) < 0 ||
		    enemy_given_up(e, "indices") < 0 ||
		    enemy_recover(e) < 0)
			return -1;
	}
	/* Indices may begin anywhere, also right before they wrap. */
	if (enemy_ring(e, FRONT_X86_64, 0) < 0)
		return -1;
	w = enemy_words(e);
	w[REQ_PROD] = w[RSP_PROD] = UINT32_MAX - 2;
	w[RSP_EVENT] = UINT32_MAX - 1;
	e->q->front.filled = e->q->front.published = e->q->front.rsp_cons =
	    UINT32_MAX - 2;
	if (enemy_state(e, XenbusStateInitialised) < 0 ||
	    enemy_await(e, XenbusStateConnected) < 0)
		return -1;
	return honest_reads(e, 100);
}

/* ---- a second processor of the guest ------------------------------------ */

static uint32_t
next_random(uint32_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 17;
	*state ^= *state << 5;
	return *state;
}

static void *
flipper_main(void *arg)
{
	struct flipper	*f = arg;
	uint32_t	 random = 2463534242u;

	while (!atomic_load_explicit(&f->stop, memory_order_relaxed))
		f->flip(f->e, next_random(&random));
	return NULL;
}

int
flipper_start(struct flipper *f, struct enemy *e,
    void (*flip)(struct enemy *, uint32_t))
{
	atomic_store(&f->stop, false);
	f->flip = flip;
	f->e = e;
	return pthread_create(&f->thread, NULL, flipper_main, f) == 0 ? 0 :
	    fail("start a thread");
}

void
flipper_stop(struct flipper *f)
{
	atomic_store(&f->stop, true);
	pthread_join(f->thread, NULL);
}

static void
flip_producer(struct enemy *e, uint32_t random)
{
	enemy_words(e)[REQ_PROD] = random & 1 ? 0 : 1000000;
}

/*
 * The ring is fine when it is looked at first, and broken a moment later: the
 * word of it must not get lost between the other things that are said then.
 */
int
attack_broken_at_once(struct enemy *e)
{
	unsigned	i, rounds = world.soak ? 200 : 25;
	struct flipper	f;
	uint64_t	until;
	int		rc;

	for (i = 0; i < rounds; i++) {
		if (enemy_ring(e, FRONT_X86_64, 0) < 0 ||
		    flipper_start(&f, e, flip_producer) < 0)
			return -1;
		rc = enemy_state(e, XenbusStateInitialised);
		/* It looks only when there is an event. */
		until = now_ms() + WAIT_S * 1000;
		while (rc == 0 && enemy_backend(e) != XenbusStateClosing) {
			loopguest_port_notify(e->q->port);
			if (now_ms() > until)
				rc = fail("the backend is in state %d",
				    (int)enemy_backend(e));
		}
		flipper_stop(&f);
		if (rc < 0)
			return fail("after %u rounds", i);
		if (enemy_recover(e) < 0)
			return -1;
	}
	return 0;
}

/* Everything, anywhere, with operations and segments that look plausible. */
static void
flip_anything(struct enemy *e, uint32_t random)
{
	volatile uint32_t	*w = enemy_words(e);
	uint32_t		 at = (random >> 8) % (1024u << e->order);

	/* Never the producer, or it would be over at once. */
	if (at == REQ_PROD)
		w[REQ_EVENT] = random;
	else if ((random & 3) == 0)
		w[at] = (random >> 4 & 7) | (random >> 7 & 15) << 8;
	else
		w[at] = random;
}

int
attack_scribble(struct enemy *e)
{
	static const enum front_abi	abis[] = { FRONT_X86_64, FRONT_X86_32 };
	volatile uint32_t		*w;
	struct flipper			 f;
	uint64_t			 until;
	unsigned			 i, taken;
	int				 rc;

	for (i = 0; i < 2; i++) {
		if (enemy_connect(e, abis[i], 1) < 0 ||
		    flipper_start(&f, e, flip_anything) < 0)
			return -1;
		w = enemy_words(e);
		/* A full ring again and again; the answers are counted. */
		until = now_ms() + (world.soak ? 20000 : 700);
		for (taken = 0; now_ms() < until; taken += 64) {
			w[REQ_PROD] = taken + 64;
			loopguest_port_notify(e->q->port);
			/* rsp_prod is scribbled on as well: no use to look. */
			sleep_ms(5);
		}
		flipper_stop(&f);
		/* The backend may be behind; then that was too much for it. */
		sleep_ms(100);
		w[REQ_PROD] = taken + 1000000;
		loopguest_port_notify(e->q->port);
		rc = enemy_given_up(e, BROKEN);
		if (rc < 0 || enemy_recover(e) < 0)
			return -1;
	}
	return 0;
}

/* The backend's own words in the header are nothing that it reads. */
int
attack_own_header(struct enemy *e)
{
	volatile uint32_t	*w;
	unsigned		 i;

	if (begin(e, FRONT_X86_64, 0) < 0)
		return -1;
	w = enemy_words(e);
	for (i = 0; i < 200; i++) {
		w[REQ_EVENT] = 0x12345678 * i;
		w[RSP_EVENT] = 0x9e3779b9 * i;
		w[RSP_PROD] = e->q->front.rsp_cons;
		/* Who spoils req_event has to send events unasked. */
		e->eager = true;
		if (honest_reads(e, 1 + i % 32) < 0)
			return fail("round %u", i);
	}
	/* A response index that claims what was not asked for. */
	w[RSP_PROD] = 0xdeadbeef;
	w[REQ_PROD]++;
	loopguest_port_notify(e->q->port);
	for (i = 0; i < 2000 && w[RSP_PROD] == 0xdeadbeef; i++)
		sleep_ms(1);
	return w[RSP_PROD] == e->q->front.rsp_cons + 1 ? 0 :
	    fail("rsp_prod is %u, not %u", w[RSP_PROD],
	    e->q->front.rsp_cons + 1);
}

/* ---- requests that change while they are read --------------------------- */

/* The first slot's operation, number of segments, sector and first segment. */
static void
flip_request(struct enemy *e, uint32_t random)
{
	bool			  narrow = e->abi == FRONT_X86_32;
	volatile uint8_t	 *slot = (uint8_t *)e->q->front.shared +
				     64 + (random >> 16 & 31) *
				     (narrow ? 108 : 112);
	volatile uint32_t	 *sector = (volatile uint32_t *)(volatile void
				     *)(slot + (narrow ? 12 : 16));

	switch (random & 3) {
	case 0:
		slot[1] = random & 4 ? 255 : 1;
		break;
	case 1:
		slot[0] = random & 4 ? BLKIF_OP_READ : BLKIF_OP_INDIRECT;
		break;
	case 2:
		sector[0] = random & 4 ? 0 : UINT32_MAX;
		sector[1] = random & 8 ? 0 : UINT32_MAX;
		break;
	default:
		slot[(narrow ? 20 : 24) + 5] = random & 4 ? 7 : 255;
		break;
	}
}

/*
 * Exactly one answer each.  The flipper writes into slots that hold answers as
 * well, but not where the upper half of an id is, then or before.
 */
static int
judge_flipped(struct enemy *e)
{
	struct front_response	rsp;
	unsigned		n = 0;
	uint64_t		until = now_ms() + WAIT_S * 1000, which;
	bool			twice[32] = { false };
	int			rc = 0;

	while (n < 32 && rc == 0 && now_ms() < until) {
		rc = front_take(&e->q->front, &rsp);
		if (rc != 1)
			continue;
		rc = 0;
		n++;
		which = rsp.id >> 32;
		if (which >= 32 || twice[which])
			return fail("an answer to %lu, which nobody asked or "
			    "which was answered already", which);
		twice[which] = true;
	}
	return n == 32 ? 0 : fail("%u of 32 answers", n);
}

int
attack_flipping(struct enemy *e)
{
	static const enum front_abi	abis[] = { FRONT_X86_64, FRONT_X86_32 };
	struct front_request		req = { .op = BLKIF_OP_READ,
					    .nr_segments = 1 };
	unsigned			i, k, rounds = world.soak ? 4000 :
					    400;
	struct flipper			f;
	uint32_t			ref = enemy_grant(e, 0, false);
	uint64_t			n;
	int				rc = 0;

	req.seg[0].gref = ref;
	req.seg[0].last = 7;
	for (i = 0; i < 2 && rc == 0; i++) {
		if (begin(e, abis[i], 0) < 0 ||
		    flipper_start(&f, e, flip_request) < 0)
			return -1;
		for (k = 0; k < rounds && rc == 0; k++) {
			for (n = 0; n < 32; n++) {
				req.id = n << 32;
				front_put(&e->q->front, &req);
			}
			enemy_push(e);
			rc = judge_flipped(e);
		}
		flipper_stop(&f);
		if (rc == 0)
			rc = honest_reads(e, 64);
		if (rc == 0)
			rc = enemy_disconnect(e);
	}
	enemy_ungrant(e, ref);
	return rc;
}

/* ---- a guest that does not read its answers ----------------------------- */

int
attack_never_reads(struct enemy *e)
{
	volatile uint32_t	*w;
	struct usage		 before;
	uint32_t		 n, start, goal;
	uint64_t		 until = now_ms() + WAIT_S * 1000 *
				     (world.soak ? 10 : 1);
	pid_t			 pid;

	if (begin(e, FRONT_X86_64, 0) < 0)
		return -1;
	pid = enemy_process(e);
	if (usage_get(pid, &before) < 0)
		return -1;
	w = enemy_words(e);
	start = n = w[REQ_PROD];
	goal = start + (world.soak ? 500000 : 50000);
	/* The slots hold the answers of the five reads, and zeroes. */
	while (n != goal && now_ms() < until) {
		n += 32 - (n - w[RSP_PROD]);
		if ((int32_t)(n - goal) > 0)
			n = goal;
		w[REQ_PROD] = n;
		loopguest_port_notify(e->q->port);
	}
	while (w[RSP_PROD] != goal && now_ms() < until)
		sleep_ms(1);
	if (w[RSP_PROD] != goal)
		return fail("%u of %u answered", w[RSP_PROD] - start,
		    goal - start);
	return usage_same("its disk process", &before, pid);
}

/* ---- the ring's own pages ----------------------------------------------- */

/* What is read from the disk goes into the ring. */
int
attack_ring_as_data(struct enemy *e)
{
	unsigned	i;

	for (i = 0; i < 4; i++) {
		if (begin(e, i & 1 ? FRONT_X86_32 : FRONT_X86_64, 1) < 0)
			return -1;
		ask_read(e, e->q->ring_ref[1], 0, ANY);
		ask_read(e, e->q->ring_ref[0], 0, ANY);
		ask_read(e, e->q->ring_ref[0], 8, ANY);
		enemy_push(e);
		/* The image is random: the producer is now far away. */
		loopguest_port_notify(e->q->port);
		if (enemy_await(e, XenbusStateClosing) < 0) {
			loopguest_port_notify(e->q->port);
			return -1;
		}
		if (enemy_recover(e) < 0)
			return -1;
	}
	return 0;
}

/* Name each page of the ring by another reference. */
static int
name_pages(struct enemy *e, const uint32_t ref[16])
{
	char		node[16], value[16];
	unsigned	i;

	for (i = 0; i < 16; i++) {
		snprintf(node, sizeof(node), "ring-ref%u", i);
		snprintf(value, sizeof(value), "%u", ref[i]);
		if (enemy_write(e, node, value) < 0)
			return -1;
	}
	return enemy_state(e, XenbusStateInitialised);
}

/* Sixteen pages that are one, by the same name, then by sixteen names. */
int
attack_same_page_twice(struct enemy *e)
{
	volatile uint32_t	*w;
	uint32_t		 ref[16];
	unsigned		 i;
	int			 rc;

	if (enemy_ring(e, FRONT_X86_32, 4) < 0)
		return -1;
	for (i = 0; i < 16; i++)
		ref[i] = e->q->ring_ref[0];
	if (name_pages(e, ref) < 0 || enemy_given_up(e, "ring-ref") < 0 ||
	    enemy_recover(e) < 0 || enemy_ring(e, FRONT_X86_32, 4) < 0)
		return -1;
	for (i = 0; i < 16; i++)
		if (loopguest_grant(e->guest, e->q->page, 0, false,
		    &ref[i]) < 0)
			return fail("grant it again");
	if (name_pages(e, ref) < 0 || enemy_await(e, XenbusStateConnected) < 0)
		return -1;
	/* Answers overwrite questions, and the header that counts them. */
	w = enemy_words(e);
	w[REQ_PROD] = 512;
	loopguest_port_notify(e->q->port);
	sleep_ms(100);
	w[REQ_PROD] = 0x70000000;
	loopguest_port_notify(e->q->port);
	rc = enemy_given_up(e, BROKEN) < 0 ? -1 : enemy_recover(e);
	for (i = 0; i < 16; i++)
		enemy_ungrant(e, ref[i]);
	return rc;
}
