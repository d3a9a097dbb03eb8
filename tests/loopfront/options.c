/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See options.h. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "tests/loopfront/options.h"

enum kind { FLAG, UINT, SIZE, SECONDS, STRING, WORD };

static const char *const abi_words[] = { "native", "x86_64", "x86_32", NULL };
static const char *const rw_words[] = { "read", "write", "randread",
    "randwrite", "rw", "randrw", "trim", "randtrim", NULL };
static const char *const spin_words[] = { "off", "event", "ring", NULL };
static const char *const switch_words[] = { "off", "on", NULL };
static const char *const expect_words[] = { "okay", "error", "unsupported",
    NULL };

#define AT(member)	offsetof(struct options, member)

/* WORD: an enum whose values are the words' places. */
static const struct definition {
	const char	*name;
	unsigned	 where;
	enum kind	 kind;
	size_t		 at;
	uint64_t	 min, max;
	const char *const *words;
	const char	*help;
} definitions[] = {
	{ "domid", IN_DOMAIN, UINT, AT(domid), 0, 32751, NULL,
	  "number of the domain to create (7); 0: be domain 0, in 16m" },
	{ "name", IN_DOMAIN, STRING, AT(name), 0, 0, NULL,
	  "its name (guest-<domid>)" },
	{ "memory", IN_DOMAIN, SIZE, AT(memory), 1 << 20, 8ull << 30, NULL,
	  "its memory, used as far as it is needed (512m)" },
	{ "hidden", IN_DOMAIN, FLAG, AT(hidden), 0, 0, NULL,
	  "do not make xenstored know it" },
	{ "socket", IN_DOMAIN, STRING, AT(socket), 0, 0, NULL,
	  "take commands on this Unix socket, else on standard input" },
	{ "background", IN_DOMAIN, FLAG, AT(background), 0, 0, NULL,
	  "return when it is up, and print its process number" },

	{ "vdev", IN_RUN, STRING, AT(vdev), 0, 0, NULL,
	  "the disk, xvda or a number (the first that appears)" },
	{ "devid", IN_RUN, STRING, AT(vdev), 0, 0, NULL, "the same" },
	{ "abi", IN_CONNECT, WORD, AT(abi), 0, 0, abi_words,
	  "layout of the ring: native (no protocol node)" },
	{ "ring-order", IN_CONNECT, UINT, AT(order), 0, FRONT_MAX_ORDER, NULL,
	  "pages of the ring, 1 << N, as far as offered (0)" },
	{ "segments", IN_CONNECT, UINT, AT(segments), FRONT_MAX_SEGMENTS,
	  FRONT_MAX_INDIRECT, NULL,
	  "of a request, as far as offered; 11: none is indirect (32)" },
	{ "jump", IN_CONNECT, WORD, AT(jump), 0, 0, switch_words,
	  "from state 1 to 4 at once, as OVMF and mini-os do" },
	{ "hold", IN_CONNECT, FLAG, AT(hold), 0, 0, NULL,
	  "a Closing backend is told no, as by FreeBSD with a mounted disk" },
	{ "check-padding", IN_CONNECT, FLAG, AT(check_padding), 0, 0, NULL,
	  "padding of responses must be zero" },
	{ "writable-grants", IN_CONNECT, FLAG, AT(writable_grants), 0, 0, NULL,
	  "grant pages of writes read-write, not read-only" },
	{ "persistent", IN_CONNECT, WORD, AT(persistent), 0, 0, switch_words,
	  "persistent grants, as Linux has them, if they are offered" },
	{ "queues", IN_CONNECT, UINT, AT(queues), 1, OPTIONS_MAX_QUEUES, NULL,
	  "rings, as far as offered; a thread works on each (1)" },
	{ "name-queues", IN_CONNECT, FLAG, AT(name_queues), 0, 0, NULL,
	  "say how many rings there are, and call them queue-0 ..., even if "
	  "it is one" },
	{ "grace", IN_CONNECT, SECONDS, AT(grace), 0, 60, NULL,
	  "how long a Closed backend may still hold something (0)" },
	{ "wait", IN_WAIT, SECONDS, AT(wait), 0, 3600, NULL,
	  "how long to wait for the other side, in seconds (10)" },

	{ "rw", IN_IO, WORD, AT(rw), 0, 0, rw_words, "what to do" },
	{ "mix", IN_IO, UINT, AT(mix), 0, 100, NULL,
	  "percentage of reads in rw and randrw (50)" },
	{ "bs", IN_IO, SIZE, AT(bs), 0, 64 << 20, NULL,
	  "bytes of a guest I/O (4k)" },
	{ "depth", IN_IO, UINT, AT(depth), 1, 4096, NULL,
	  "guest I/Os in flight, over all queues (1)" },
	{ "batch", IN_IO, UINT, AT(batch), 0, FRONT_MAX_SLOTS, NULL,
	  "requests to publish at a time; 0: all there are (0)" },
	{ "time", IN_IO, SECONDS, AT(time), 0, 86400, NULL,
	  "how long, in seconds" },
	{ "ios", IN_IO, UINT, AT(ios), 0, UINT64_MAX, NULL,
	  "how many guest I/Os (the area once, if no time is given)" },
	{ "offset", IN_IO, SIZE, AT(offset), 0, UINT64_MAX, NULL,
	  "where the area begins (0)" },
	{ "size", IN_IO, SIZE, AT(size), 0, UINT64_MAX, NULL,
	  "how long it is (to the end of the disk)" },
	{ "flush-every", IN_IO, UINT, AT(flush_every), 0, UINT32_MAX, NULL,
	  "a flush after so many writes of a queue (0: none)" },
	{ "flush-elsewhere", IN_IO, FLAG, AT(flush_elsewhere), 0, 0, NULL,
	  "... and it is the next queue that sends it" },
	{ "queue", IN_IO, UINT, AT(queue), 0, OPTIONS_MAX_QUEUES - 1, NULL,
	  "use this queue alone, from 0 on (all)" },
	{ "verify", IN_IO, FLAG, AT(verify), 0, 0, NULL,
	  "write patterns, and compare what is read" },
	{ "zeroed", IN_IO, FLAG, AT(zeroed), 0, 0, NULL,
	  "... and what was never written reads as zeros" },
	{ "torn", IN_IO, FLAG, AT(torn), 0, 0, NULL,
	  "a read may see a part of a write that is under way: page cache" },
	{ "spin", IN_IO, WORD, AT(spin), 0, 0, spin_words,
	  "wait without system calls, for the event or on the ring" },
	{ "think-us", IN_IO, UINT, AT(think_us), 0, 10000000, NULL,
	  "time between an I/O and the next, in microseconds (0)" },
	{ "misalign", IN_IO, UINT, AT(misalign), 0, 7, NULL,
	  "buffers begin so many sectors into a page (0)" },
	{ "op", IN_IO, UINT, AT(op), 0, 255, NULL,
	  "send this operation, whatever rw says, anywhere" },
	{ "expect", IN_IO, WORD, AT(expect), 0, 0, expect_words,
	  "how every I/O must end" },
	{ "seed", IN_IO, UINT, AT(seed), 0, UINT64_MAX, NULL,
	  "of random positions and patterns (1)" },
	{ "stall", IN_IO, SECONDS, AT(stall), 0, 3600, NULL,
	  "give up after so long without an answer, in seconds (30)" },
	{ "progress", IN_IO, SECONDS, AT(progress), 0, 3600, NULL,
	  "a line about it every so many seconds" },
	{ "json", IN_IO, FLAG, AT(json), 0, 0, NULL,
	  "results in the shape of fio's" },

	{ "connect-only", IN_RUN, FLAG, AT(connect_only), 0, 0, NULL,
	  "connect and close, no I/O" },
	{ "reconnect", IN_RUN, UINT, AT(reconnect), 0, 1000000, NULL,
	  "close, connect and do the I/O again, so many times (0)" },
	{ "vary", IN_RUN, FLAG, AT(vary), 0, 0, NULL,
	  "... each time with another layout, ring order, segments, queues" },
	{ "leave-open", IN_RUN, FLAG, AT(leave_open), 0, 0, NULL,
	  "end without closing, as a guest that is destroyed" },

	{ "abrupt", IN_KEXEC, FLAG, AT(abrupt), 0, 0, NULL,
	  "the disk is Closed at once, not Closing first" },

	{ "copy-nth", IN_FAULT, UINT, AT(copy_nth), 0, UINT64_MAX, NULL,
	  "the Nth segment that is copied from now on fails (0: none)" },
	{ "copy-count", IN_FAULT, UINT, AT(copy_count), 1, UINT64_MAX, NULL,
	  "... and so many in all (1)" },
	{ "copy-delay-ms", IN_FAULT, UINT, AT(copy_delay_ms), 0, 60000, NULL,
	  "every copy takes so long, in milliseconds (0)" },
	{ "map-nth", IN_FAULT, UINT, AT(map_nth), 0, UINT64_MAX, NULL,
	  "the Nth map from now on fails (0: none)" },
};

#define NR	(sizeof(definitions) / sizeof(definitions[0]))

void
options_init(struct options *o)
{
	memset(o, 0, sizeof(*o));
	o->domid = 7;
	o->memory = 512 << 20;
	o->segments = 32;		/* as Linux */
	o->queues = 1;
	o->queue = OPTIONS_ALL_QUEUES;
	o->wait = 10;
	o->mix = 50;
	o->bs = 4096;
	o->depth = 1;
	o->op = OPTIONS_NO_OP;
	o->seed = 1;
	o->stall = 30;
	o->copy_count = 1;
}

/* A number; for sizes with a suffix k, m, g or t. */
static int
number(const char *text, bool suffix, uint64_t *value)
{
	static const char	 suffixes[] = "kmgt";
	const char		*s;
	char			*end;
	unsigned		 shift = 0;

	errno = 0;
	*value = strtoull(text, &end, 0);
	if (errno != 0 || end == text || text[0] == '-')
		return -EINVAL;
	if (suffix && *end != '\0') {
		s = strchr(suffixes, *end | 0x20);
		if (s == NULL || *s == '\0')
			return -EINVAL;
		shift = 10 * (unsigned)(s - suffixes + 1);
		end++;
	}
	if (*end != '\0' || *value > UINT64_MAX >> shift)
		return -EINVAL;
	*value <<= shift;
	return 0;
}

static int
set_number(const struct definition *d, void *at, const char *text)
{
	uint64_t	v;

	if (number(text, d->kind == SIZE, &v) < 0 || v < d->min || v > d->max)
		return -EINVAL;
	if (d->kind == SIZE || d->max > UINT32_MAX)
		*(uint64_t *)at = v;
	else
		*(unsigned *)at = (unsigned)v;
	return 0;
}

static int
set_seconds(const struct definition *d, double *at, const char *text)
{
	char	*end;

	*at = strtod(text, &end);
	if (end == text || *end != '\0' ||
	    !(*at >= (double)d->min && *at <= (double)d->max))
		return -EINVAL;
	return 0;
}

static int
set_word(const struct definition *d, int *at, const char *text)
{
	int	i;

	for (i = 0; d->words[i] != NULL; i++) {
		if (strcmp(text, d->words[i]) == 0) {
			*at = i;
			return 0;
		}
	}
	return -EINVAL;
}

static int
set(struct options *o, const struct definition *d, const char *text)
{
	void	*at = (char *)o + d->at;

	switch (d->kind) {
	case FLAG:
		*(bool *)at = true;
		return 0;
	case STRING:
		*(const char **)at = text;
		return 0;
	case SECONDS:
		return set_seconds(d, at, text);
	case WORD:
		/* "--spin" alone means the first word that is not "off". */
		if (text == NULL) {
			*(int *)at = 1;
			return 0;
		}
		return set_word(d, at, text);
	case UINT:
	case SIZE:
		return set_number(d, at, text);
	}
	return -EINVAL;
}

static void
words(const struct definition *d, FILE *f)
{
	unsigned	i;

	for (i = 0; d->words[i] != NULL; i++)
		fprintf(f, "%s%s", i > 0 ? "|" : "", d->words[i]);
}

static void
refuse(const struct definition *d, const char *text, FILE *err)
{
	fprintf(err, "--%s %s: must be ", d->name, text);
	if (d->kind == WORD)
		words(d, err);
	else
		fprintf(err, "%s between %" PRIu64 " and %" PRIu64,
		    d->kind == SIZE ? "a size (suffixes k, m, g, t)" :
		    "a number", d->min, d->max);
	fputc('\n', err);
}

/* getopt keeps its place in globals: one caller at a time. */
static pthread_mutex_t getopt_lock = PTHREAD_MUTEX_INITIALIZER;

int
options_parse(struct options *o, unsigned where, int argc, char **argv,
    FILE *err)
{
	struct option	longs[NR + 1] = { { 0 } };
	unsigned	i, n = 0, index[NR];
	int		c, rc = 0, at = -1;

	for (i = 0; i < NR; i++) {
		if ((definitions[i].where & where) == 0)
			continue;
		longs[n].name = definitions[i].name;
		longs[n].has_arg = definitions[i].kind == FLAG ? no_argument :
		    definitions[i].words == spin_words ||
		    definitions[i].words == switch_words ? optional_argument :
		    required_argument;
		index[n++] = i;
	}

	pthread_mutex_lock(&getopt_lock);
	optind = 0;			/* glibc: begin anew */
	opterr = 0;
	while (rc == 0) {
		c = getopt_long(argc, argv, "+", longs, &at);
		if (c == -1)
			break;
		if (c == '?') {
			fprintf(err, "%s: unknown option, or one without its "
			    "value\n", argv[optind - 1]);
			rc = -EINVAL;
			break;
		}
		rc = set(o, &definitions[index[at]], optarg);
		if (rc < 0)
			refuse(&definitions[index[at]], optarg, err);
	}
	if (rc == 0)
		rc = optind;
	pthread_mutex_unlock(&getopt_lock);
	return rc;
}

void
options_help(unsigned where, FILE *f)
{
	const struct definition	*d;
	unsigned		 i;

	for (i = 0; i < NR; i++) {
		d = &definitions[i];
		if ((d->where & where) == 0)
			continue;
		fprintf(f, "  --%-16s %s", d->name, d->help);
		if (d->kind == WORD) {
			fputs(": ", f);
			words(d, f);
		}
		fputc('\n', f);
	}
}
