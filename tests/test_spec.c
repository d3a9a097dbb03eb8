/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * test_spec: every option of a disk spec, every bound on both sides, and the
 * words that a person needs in each refusal.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "blkback/poll.h"
#include "blkback/spec.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define KIB      1024u
#define MIB      (1024u * KIB)

/* What "raw:/x" gives; each case below says what differs. */
#define DEFAULTS							\
	.format = "raw", .path = "/x", .cache = CACHE_NONE,		\
	.poll_us = POLL_AUTO, .merge = 128 * KIB, .memory = 8 * MIB,	\
	.ring_order = 4, .segments = 256, .readonly = false, .discard = true, \
	.persistent = false, .iothreads = 1, .queues = 1

/* ... where the CPU moves the data. */
#define CACHED DEFAULTS, .engine = ENGINE_THREADS, .persistent = true

#pragma GCC diagnostic ignored "-Woverride-init"
#ifdef __clang__
#pragma GCC diagnostic ignored "-Winitializer-overrides"
#endif

static const struct {
	const char      *text;
	struct disk_spec want;
} good[] = {
	{ "raw:/x",                     { DEFAULTS } },
	{ "null:1G",                    { DEFAULTS, .format = "null",
	                                  .path = "1G" } },
	{ "raw:/a:b,c=d:e",             { DEFAULTS, .path = "/a:b,c=d:e" } },
	{ "raw:/:",                     { DEFAULTS, .path = "/:" } },
	{ "null::",                     { DEFAULTS, .format = "null",
	                                  .path = ":" } },
	{ "raw:/\xc3\xa4 b",            { DEFAULTS, .path = "/\xc3\xa4 b" } },

	{ "raw,cache=none:/x",          { DEFAULTS } },
	{ "raw,cache=directsync:/x",    { DEFAULTS,
	                                  .cache = CACHE_DIRECTSYNC } },
	{ "raw,io=native:/x",           { DEFAULTS } },
	{ "raw,iothreads=1:/x",         { DEFAULTS } },
	{ "raw,queues=1:/x",            { DEFAULTS } },
	{ "raw,queues=8:/x",            { DEFAULTS, .queues = 8 } },
	{ "raw,iothreads=4:/x",         { DEFAULTS, .iothreads = 4,
	                                  .queues = 4 } },
	{ "raw,iothreads=4,queues=4:/x", { DEFAULTS, .iothreads = 4,
	                                  .queues = 4 } },
	{ "raw,queues=8,iothreads=3:/x", { DEFAULTS, .iothreads = 3,
	                                  .queues = 8 } },
	{ "raw,iothreads=16,memory=16M:/x", { DEFAULTS, .iothreads = 16,
	                                  .queues = 16, .memory = 16 * MIB } },
	{ "raw,poll=off:/x",            { DEFAULTS, .poll_us = 0 } },
	{ "raw,poll=auto:/x",           { DEFAULTS } },
	{ "raw,poll=0:/x",              { DEFAULTS, .poll_us = 0 } },
	{ "raw,poll=1:/x",              { DEFAULTS, .poll_us = 1 } },
	{ "raw,poll=100000:/x",         { DEFAULTS, .poll_us = 100000 } },
	{ "raw,merge=0:/x",             { DEFAULTS, .merge = 0 } },
	{ "raw,merge=1:/x",             { DEFAULTS, .merge = 1 } },
	{ "raw,merge=44K:/x",           { DEFAULTS, .merge = 44 * KIB } },
	{ "raw,merge=1024k:/x",         { DEFAULTS, .merge = 1 * MIB } },
	{ "raw,merge=1M:/x",            { DEFAULTS, .merge = 1 * MIB } },
	{ "raw,merge=1048576:/x",       { DEFAULTS, .merge = 1 * MIB } },
	{ "raw,grants=auto:/x",         { DEFAULTS } },
	{ "raw,grants=copy:/x",         { DEFAULTS } },
	{ "raw,grants=persistent:/x",   { DEFAULTS, .persistent = true } },
	{ "raw,ring-order=0:/x",        { DEFAULTS, .ring_order = 0 } },
	{ "raw,ring-order=3:/x",        { DEFAULTS, .ring_order = 3 } },
	{ "raw,ring-order=4:/x",        { DEFAULTS } },
	{ "raw,segments=11:/x",         { DEFAULTS, .segments = 11 } },
	{ "raw,segments=12:/x",         { DEFAULTS, .segments = 12 } },
	{ "raw,segments=32:/x",         { DEFAULTS, .segments = 32 } },
	{ "raw,segments=256:/x",        { DEFAULTS } },
	{ "raw,memory=2M:/x",           { DEFAULTS, .memory = 2 * MIB } },
	{ "raw,memory=1G:/x",           { DEFAULTS, .memory = 1024 * MIB } },
	{ "raw,memory=1g:/x",           { DEFAULTS, .memory = 1024 * MIB } },
	{ "raw,memory=1073741824:/x",   { DEFAULTS, .memory = 1024 * MIB } },
	{ "raw,memory=1073741823:/x",   { DEFAULTS, .memory = 1024 * MIB } },
	{ "raw,memory=1048577:/x",      { DEFAULTS,
	                                  .memory = 1 * MIB + 4 * KIB } },
	{ "raw,memory=1052672:/x",      { DEFAULTS,
	                                  .memory = 1 * MIB + 4 * KIB } },
	{ "raw,discard=unmap:/x",       { DEFAULTS } },
	{ "raw,discard=ignore:/x",      { DEFAULTS, .discard = false } },
	{ "raw,readonly=on:/x",         { DEFAULTS, .readonly = true } },
	{ "raw,readonly=off:/x",        { DEFAULTS } },
	{ "raw,on-error=report:/x",     { DEFAULTS } },
	{ "raw,on-error=stop:/x",       { DEFAULTS,
	                                  .on_error = ON_ERROR_STOP } },
	{ "raw,on-error=stop-enospc:/x", { DEFAULTS,
	                                  .on_error = ON_ERROR_STOP_ENOSPC } },
	{ "raw,profile=default:/x",     { DEFAULTS } },
	{ "raw,profile=high-performance:/x", { DEFAULTS, .iothreads = 4,
	                                  .queues = 4 } },
	{ "raw,profile=high-performance,iothreads=8:/x", { DEFAULTS,
	                                  .iothreads = 8, .queues = 8 } },
	{ "raw,queues=2,profile=high-performance:/x", { DEFAULTS,
	                                  .iothreads = 2, .queues = 2 } },
	{ "raw,queues=8,profile=high-performance:/x", { DEFAULTS,
	                                  .iothreads = 4, .queues = 8 } },
	{ "raw,profile=economy:/x",     { DEFAULTS, .poll_us = 0 } },
	{ "raw,profile=economy,poll=auto:/x", { DEFAULTS } },
	{ "raw,poll=7,profile=economy:/x", { DEFAULTS, .poll_us = 7 } },

	/* Who says nothing of io gets what the cache mode needs. */
	{ "raw,io=threads:/x",          { DEFAULTS,
	                                  .engine = ENGINE_THREADS } },
	{ "raw,io=threads,cache=none:/x", { DEFAULTS,
	                                  .engine = ENGINE_THREADS } },
	{ "raw,cache=directsync,io=threads:/x", { DEFAULTS,
	                                  .cache = CACHE_DIRECTSYNC,
	                                  .engine = ENGINE_THREADS } },
	{ "raw,cache=directsync,io=native:/x", { DEFAULTS,
	                                  .cache = CACHE_DIRECTSYNC } },
	{ "raw,cache=writethrough:/x",  { CACHED,
	                                  .cache = CACHE_WRITETHROUGH } },
	{ "raw,cache=writeback:/x",     { CACHED, .cache = CACHE_WRITEBACK } },
	{ "raw,cache=unsafe:/x",        { CACHED, .cache = CACHE_UNSAFE } },
	{ "raw,io=threads,cache=writeback:/x", { CACHED,
	                                  .cache = CACHE_WRITEBACK } },

	/* What was not asked for gives way to a small arena. */
	{ "raw,memory=64K:/x",          { DEFAULTS, .memory = 64 * KIB,
	                                  .merge = 64 * KIB, .segments = 16 } },
	{ "raw,memory=65537:/x",        { DEFAULTS, .memory = 68 * KIB,
	                                  .merge = 68 * KIB, .segments = 17 } },
	{ "raw,merge=64K,memory=64K:/x", { DEFAULTS, .memory = 64 * KIB,
	                                  .merge = 64 * KIB, .segments = 16 } },
	{ "raw,merge=0,memory=64K:/x",  { DEFAULTS, .memory = 64 * KIB,
	                                  .merge = 0, .segments = 16 } },
	{ "raw,memory=1020K:/x",        { DEFAULTS, .memory = 1020 * KIB,
	                                  .segments = 255 } },
	{ "raw,memory=1M:/x",           { DEFAULTS, .memory = 1 * MIB } },
	{ "raw,segments=16,memory=64K:/x", { DEFAULTS, .memory = 64 * KIB,
	                                  .merge = 64 * KIB, .segments = 16 } },
	{ "raw,memory=1M,segments=256:/x", { DEFAULTS, .memory = 1 * MIB } },

	/* So do persistent grants, at 32 requests of 32 pages and one. */
	{ "raw,cache=writeback,memory=4224K:/x", { CACHED,
	                                  .cache = CACHE_WRITEBACK,
	                                  .memory = 4224 * KIB } },
	{ "raw,cache=writeback,memory=4220K:/x", { CACHED,
	                                  .cache = CACHE_WRITEBACK,
	                                  .memory = 4220 * KIB,
	                                  .persistent = false } },
	{ "raw,grants=persistent,memory=4220K:/x", { DEFAULTS,
	                                  .memory = 4220 * KIB,
	                                  .persistent = true } },
	{ "raw,grants=auto,memory=1G:/x", { DEFAULTS, .memory = 1024 * MIB } },
	{ "raw,grants=copy,cache=writeback:/x", { CACHED,
	                                  .cache = CACHE_WRITEBACK,
	                                  .persistent = false } },
	{ "raw,segments=11,memory=1536K,cache=unsafe:/x", { CACHED,
	                                  .cache = CACHE_UNSAFE,
	                                  .segments = 11,
	                                  .memory = 1536 * KIB } },
	{ "raw,memory=1532K,segments=11,cache=unsafe:/x", { CACHED,
	                                  .cache = CACHE_UNSAFE,
	                                  .segments = 11,
	                                  .memory = 1532 * KIB,
	                                  .persistent = false } },

	/* A queue has its share only. */
	{ "raw,queues=16:/x",           { DEFAULTS, .queues = 16,
	                                  .segments = 128 } },
	{ "raw,iothreads=9:/x",         { DEFAULTS, .iothreads = 9,
	                                  .queues = 9, .segments = 227 } },
	{ "raw,queues=16,segments=128,merge=512K:/x", { DEFAULTS,
	                                  .queues = 16, .segments = 128,
	                                  .merge = 512 * KIB } },
	{ "raw,queues=16,memory=704K:/x", { DEFAULTS, .queues = 16,
	                                  .memory = 704 * KIB, .segments = 11,
	                                  .merge = 44 * KIB } },

	{ "qcow2:/x",                   { DEFAULTS, .format = "qcow2" } },
	{ "qcow2,cache=directsync,discard=ignore,readonly=on:/a:b,c",
	  { DEFAULTS, .format = "qcow2", .path = "/a:b,c", .discard = false,
	    .cache = CACHE_DIRECTSYNC, .readonly = true } },

	{ "null,readonly=on,poll=7,cache=directsync,merge=8K,ring-order=2,"
	  "memory=128K,io=native,iothreads=1,queues=1,grants=copy,segments=11,"
	  "discard=ignore,on-error=report,profile=default:p",
	  { .format = "null", .path = "p", .cache = CACHE_DIRECTSYNC,
	    .poll_us = 7, .merge = 8 * KIB, .memory = 128 * KIB,
	    .ring_order = 2, .segments = 11, .readonly = true,
	    .iothreads = 1, .queues = 1 } },
};

/* Each of the words must stand in the refusal. */
static const struct {
	const char *text;
	const char *words[4];
} bad[] = {
	{ "", { "has no ':'", "format[,option=value...]:" } },
	{ "raw", { "raw", "has no ':'" } },
	{ "/srv/x.img", { "/srv/x.img", "has no ':'" } },
	{ "raw,cache=none", { "has no ':'" } },
	{ ":/x", { "no format", "format[,option" } },
	{ ",cache=none:/x", { "no format" } },
	{ "raw:", { "no path" } },
	{ "raw,cache=none:", { "no path" } },
	{ "raw:x.img", { "x.img", "whole path" } },
	{ "raw:./x.img", { "./x.img", "whole path" } },
	{ "raw::/x", { ":/x", "whole path" } },
	{ "qcow2:x.qcow2", { "x.qcow2", "whole path" } },
	{ "qcow:/x", { "unknown format", "qcow", "raw", "qcow2" } },
	{ "qcow2,backing-roots=/:/x", { "unknown option", "backing-roots" } },
	{ "vhd:/x", { "unknown format", "vhd", "raw" } },
	{ "RAW:/x", { "unknown format", "RAW" } },
	{ " raw:/x", { "unknown format", " raw" } },
	{ "a-format-with-16:/x", { "unknown format", "a-format-with-16" } },
	{ "raw:/a\nb", { "newline" } },
	{ "raw\n:/a", { "newline" } },
	{ "raw:/a\tb", { "control character" } },
	{ "raw:/a\x7f", { "control character" } },

	{ "raw,:/x", { "\"\"", "not option=value" } },
	{ "raw,,poll=1:/x", { "not option=value" } },
	{ "raw,cache:/x", { "cache", "not option=value" } },
	{ "raw,=on:/x", { "unknown option", "\"\"" } },
	{ "raw,foo=1:/x", { "unknown option", "foo", "cache, io", "profile" } },
	{ "raw,Cache=none:/x", { "unknown option", "Cache" } },
	{ "raw, cache=none:/x", { "unknown option", " cache" } },
	{ "raw,backing-roots=/:/x", { "unknown option", "backing-roots" } },
	{ "raw,\xc3\xa4=1:/x", { "unknown option", "\"??\"" } },
	{ "raw,poll=1,poll=1:/x", { "poll", "twice" } },
	{ "raw,io=native,poll=1,io=native:/x", { "io", "twice" } },
	{ "raw,profile=default,profile=default:/x", { "profile", "twice" } },

	{ "raw,cache=:/x", { "cache=", "none, directsync" } },
	{ "raw,cache=writethrough,io=native:/x",
	  { "cache=writethrough needs io=threads", "change io=native",
	    "none or directsync" } },
	{ "raw,io=native,cache=writeback:/x",
	  { "cache=writeback needs io=threads", "change io=native",
	    "none or directsync" } },
	{ "raw,cache=unsafe,io=native:/x",
	  { "cache=unsafe needs io=threads", "change io=native",
	    "none or directsync" } },
	{ "raw,cache=writeback,io=io_uring:/x",
	  { "io=io_uring", "not built yet", "threads" } },
	{ "raw,cache=nones:/x",
	  { "cache=nones", "not known", "none, directsync" } },
	{ "raw,io=io_uring:/x", { "io=io_uring", "not built yet", "native" } },
	{ "raw,io=aio:/x", { "io=aio", "not known", "native" } },
	{ "raw,iothreads=0:/x", { "iothreads=0", "out of range", "1 to 16" } },
	{ "raw,iothreads=17:/x",
	  { "iothreads=17", "out of range", "1 to 16" } },
	{ "raw,iothreads=1K:/x",
	  { "iothreads=1K", "not a number", "1 to 16" } },
	{ "raw,iothreads=257:/x", { "iothreads=257", "out of range" } },
	{ "raw,queues=0:/x", { "queues=0", "out of range", "1 to 16" } },
	{ "raw,queues=17:/x", { "queues=17", "out of range", "1 to 16" } },
	{ "raw,queues=257:/x", { "queues=257", "out of range" } },
	{ "raw,queues=2,iothreads=4:/x",
	  { "queues=2", "iothreads=4", "raise queues or lower iothreads" } },
	{ "raw,iothreads=2,queues=1:/x", { "queues=1", "iothreads=2" } },
	{ "raw,queues=16,segments=129:/x",
	  { "segments=129", "memory=8388608", "queues=16",
	    "lower segments or raise memory" } },
	{ "raw,iothreads=16,merge=513K:/x",
	  { "merge=525312", "memory=8388608", "queues=16",
	    "lower merge or raise memory" } },
	{ "raw,queues=2,memory=64K:/x",
	  { "memory=65536", "queues=2", "raise memory to 90112" } },
	{ "raw,queues=16,memory=700K:/x",
	  { "memory=716800", "queues=16", "raise memory to 720896" } },
	{ "raw,poll=on:/x", { "poll=on", "microseconds", "off or 0" } },
	{ "raw,poll=:/x", { "poll=", "microseconds" } },
	{ "raw,poll=-1:/x", { "poll=-1", "not a number" } },
	{ "raw,poll=+1:/x", { "poll=+1", "not a number" } },
	{ "raw,poll= 1:/x", { "poll= 1", "not a number" } },
	{ "raw,poll=1 :/x", { "poll=1 ", "not a number" } },
	{ "raw,poll=0x10:/x", { "poll=0x10", "not a number" } },
	{ "raw,poll=1us:/x", { "poll=1us", "not a number" } },
	{ "raw,poll=1K:/x", { "poll=1K", "not a number" } },
	{ "raw,poll=100001:/x", { "poll=100001", "out of range", "100000" } },
	{ "raw,poll=4294967296:/x", { "poll=4294967296", "out of range" } },
	{ "raw,poll=18446744073709551616:/x", { "out of range" } },
	{ "raw,merge=1048577:/x", { "merge=1048577", "out of range", "1M" } },
	{ "raw,merge=1025K:/x", { "merge=1025K", "out of range", "1M" } },
	{ "raw,merge=2M:/x", { "merge=2M", "out of range", "1M" } },
	{ "raw,merge=4G:/x", { "merge=4G", "out of range" } },
	{ "raw,merge=16777216M:/x", { "out of range" } },
	{ "raw,merge=17179869184G:/x", { "out of range" } },
	{ "raw,merge=K:/x", { "merge=K", "not a number" } },
	{ "raw,merge=1KK:/x", { "merge=1KK", "not a number" } },
	{ "raw,merge=1T:/x", { "merge=1T", "not a number", "K, M or G" } },
	{ "raw,merge=1 :/x", { "merge=1 ", "not a number" } },
	{ "raw,merge=off:/x", { "merge=off", "0 (off)" } },
	{ "raw,merge=64K,memory=60K:/x", { "memory=60K", "out of range" } },
	{ "raw,merge=69633,memory=68K:/x",
	  { "merge=69633", "memory=69632", "lower merge or raise memory" } },
	{ "raw,memory=64K,merge=1M:/x",
	  { "merge=1048576", "memory=65536", "lower merge or raise memory" } },
	{ "raw,grants=map:/x", { "grants=map", "not known", "auto, copy" } },
	{ "raw,ring-order=5:/x", { "ring-order=5", "out of range", "0 to 4" } },
	{ "raw,ring-order=-1:/x",
	  { "ring-order=-1", "not a number", "0 to 4" } },
	{ "raw,segments=10:/x",
	  { "segments=10", "out of range", "use 11 to 256" } },
	{ "raw,segments=0:/x",
	  { "segments=0", "out of range", "use 11 to 256" } },
	{ "raw,segments=257:/x",
	  { "segments=257", "out of range", "use 11 to 256" } },
	{ "raw,segments=65547:/x",
	  { "segments=65547", "out of range", "use 11 to 256" } },
	{ "raw,segments=1K:/x",
	  { "segments=1K", "not a number", "11 to 256" } },
	{ "raw,segments=all:/x", { "segments=all", "not a number" } },
	{ "raw,segments=17,memory=64K:/x",
	  { "segments=17", "memory=65536", "lower segments or raise memory" } },
	{ "raw,memory=1020K,segments=256:/x",
	  { "segments=256", "memory=1044480", "lower segments" } },
	{ "raw,memory=65535:/x", { "memory=65535", "out of range", "64K" } },
	{ "raw,memory=63K:/x", { "memory=63K", "out of range", "64K to 1G" } },
	{ "raw,memory=0:/x", { "memory=0", "out of range" } },
	{ "raw,memory=1073741825:/x",
	  { "memory=1073741825", "out of range", "64K to 1G" } },
	{ "raw,memory=2G:/x", { "memory=2G", "out of range" } },
	{ "raw,memory=4G:/x", { "memory=4G", "out of range" } },
	{ "raw,memory=all:/x", { "memory=all", "not a number", "K, M or G" } },
	{ "raw,discard=on:/x",
	  { "discard=on", "not known", "unmap or ignore" } },
	{ "raw,readonly=yes:/x", { "readonly=yes", "not known", "on or off" } },
	{ "raw,readonly:/x", { "readonly", "not option=value" } },
	{ "raw,on-error=ignore:/x",
	  { "on-error=ignore", "not known", "report" } },
	{ "raw,profile=fast:/x", { "profile=fast", "not known", "default" } },
};

/* The first field that differs; NULL: none. */
static const char *
differs(const struct disk_spec *a, const struct disk_spec *b)
{
	if (strcmp(a->format, b->format) != 0)
		return "format";
	if (strcmp(a->path, b->path) != 0)
		return "path";
	if (a->cache != b->cache)
		return "cache";
	if (a->engine != b->engine)
		return "io";
	if (a->poll_us != b->poll_us)
		return "poll";
	if (a->merge != b->merge)
		return "merge";
	if (a->memory != b->memory)
		return "memory";
	if (a->ring_order != b->ring_order)
		return "ring-order";
	if (a->segments != b->segments)
		return "segments";
	if (a->iothreads != b->iothreads)
		return "iothreads";
	if (a->queues != b->queues)
		return "queues";
	if (a->on_error != b->on_error)
		return "on-error";
	if (a->discard != b->discard)
		return "discard";
	if (a->persistent != b->persistent)
		return "grants";
	return a->readonly != b->readonly ? "readonly" : NULL;
}

static void
test_good(void **state)
{
	static struct disk_spec spec;
	char why[WHY_MAX];
	const char *field;
	size_t i;

	(void)state;
	for (i = 0; i < COUNT(good); i++) {
		memset(&spec, 0xa5, sizeof(spec));
		strcpy(why, "no reason given");
		if (spec_parse(good[i].text, &spec, why) != 0)
			fail_msg("%s: %s", good[i].text, why);
		field = differs(&spec, &good[i].want);
		if (field != NULL)
			fail_msg("%s: wrong %s", good[i].text, field);
	}
}

static void
refused(const char *text, const char *const words[4])
{
	static struct disk_spec spec;
	char why[WHY_MAX];
	size_t i;

	memset(why, 'x', sizeof(why));
	assert_int_equal(spec_parse(text, &spec, why), -EINVAL);
	assert_non_null(memchr(why, '\0', sizeof(why)));
	for (i = 0; i < strlen(why); i++)
		if (why[i] < ' ' || why[i] > '~')
			fail_msg("byte %d of the message for %s", (int)i, text);
	for (i = 0; i < 4 && words[i] != NULL; i++)
		if (strstr(why, words[i]) == NULL)
			fail_msg("%s: no \"%s\" in: %s", text, words[i], why);
}

static void
test_bad(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < COUNT(bad); i++)
		refused(bad[i].text, bad[i].words);
}

/* A path of as many bytes as given. */
static char *
long_spec(const char *head, size_t path_bytes)
{
	char *text = malloc(strlen(head) + path_bytes + 1);

	assert_non_null(text);
	strcpy(text, head);
	memset(text + strlen(head), 'p', path_bytes);
	text[strlen(head) + path_bytes] = '\0';
	return text;
}

static void
test_long_path(void **state)
{
	static struct disk_spec spec;
	static const char *const words[4] = { "path", "4096", "4095 at most" };
	char why[WHY_MAX] = "";
	char *text;

	(void)state;
	text = long_spec("raw:/", PATH_MAX - 2);
	if (spec_parse(text, &spec, why) != 0)
		fail_msg("%s", why);
	assert_string_equal(spec.path, text + 4);
	free(text);

	text = long_spec("raw:/", PATH_MAX - 1);
	refused(text, words);
	free(text);
}

static void
test_long_spec(void **state)
{
	static const char *const path[4] = { "path", "at most" };
	static const char *const whole[4] = { "disk spec has 4608", "4607" };
	char *text;

	(void)state;
	text = long_spec("raw:", SPEC_MAX - 1 - 4);
	refused(text, path);
	free(text);
	text = long_spec("raw:", SPEC_MAX - 4);
	refused(text, whole);
	free(text);
}

/* What a user typed is cut, what there is to say is not. */
static void
test_long_words(void **state)
{
	static const char *const option[4] = { "unknown option", "profile" };
	static const char *const value[4] = { "cache=", "none, directsync" };
	static const char *const number[4] = { "poll=1000", "microseconds" };
	static const char *const format[4] = { "unknown format", "use raw" };
	char text[512];

	(void)state;
	snprintf(text, sizeof(text), "raw,%0400d=1:/x", 0);
	refused(text, option);
	snprintf(text, sizeof(text), "raw,cache=%0400d:/x", 0);
	refused(text, value);
	snprintf(text, sizeof(text), "raw,poll=1%0400d:/x", 0);
	refused(text, number);
	snprintf(text, sizeof(text), "%0400d:/x", 0);
	refused(text, format);
}

/* A drive may be empty; a disk may not. */
static void
test_drive(void **state)
{
	static const char *const empty[] = {
		"", "raw:", "qcow2:", "raw,cache=writeback,queues=2:", "null:",
	};
	struct disk_spec spec;
	char why[WHY_MAX];
	size_t i;

	(void)state;
	for (i = 0; i < COUNT(empty); i++) {
		assert_int_equal(spec_parse_drive(empty[i], &spec, why), 0);
		assert_string_equal(spec.path, "");
		assert_int_equal(spec_parse(empty[i], &spec, why), -EINVAL);
	}
	assert_int_equal(spec_parse_drive("raw,queues=2:", &spec, why), 0);
	assert_int_equal(spec.queues, 2);
	assert_int_equal(spec_parse_drive("raw:/x", &spec, why), 0);
	assert_string_equal(spec.path, "/x");
	assert_int_equal(spec_parse_drive("raw", &spec, why), -EINVAL);
	assert_int_equal(spec_parse_drive("empty:", &spec, why), -EINVAL);
	assert_int_equal(spec_parse_drive("raw,quues=2:", &spec, why),
	    -EINVAL);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_bad),
		cmocka_unit_test(test_long_path),
		cmocka_unit_test(test_long_spec),
		cmocka_unit_test(test_long_words),
		cmocka_unit_test(test_drive),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
