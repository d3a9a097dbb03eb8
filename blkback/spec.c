/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * spec: parse a disk spec (see spec.h).
 *
 * One row of a table is one option: its words or its range, which of them are
 * built, and what to say about the rest.  Words and numbers that the design
 * knows but that are not built yet get an answer of their own, so that nobody
 * looks for a typing mistake that is not there.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "blkback/poll.h"
#include "blkback/spec.h"
#include "ring/ring.h"

#define USAGE       "a disk spec is format[,option=value...]:path"
#define SPEC_PAGE   4096u
#define SPEC_MERGE  (128u << 10)	/* default; bytes */
#define SPEC_MERGE_MAX (1u << 20)
#define SPEC_MEMORY (8u << 20)	/* default; bytes */
#define SHOWN       64		/* most bytes of a user's word in a message */
#define COUNT(a)    (sizeof(a) / sizeof((a)[0]))

struct word {
	const char *word;
	uint32_t    value;
	bool        built;
};

struct option {
	const char *name;
	const char *use;	/* what may be given, for a person */
	const struct word *words;	/* ends with .word == NULL; or NULL */
	bool        number;	/* too, from min to max */
	bool        suffix;	/* K, M or G may follow it */
	uint32_t    min, max;
	void      (*set)(struct disk_spec *spec, uint32_t value);
};

static void
set_cache(struct disk_spec *spec, uint32_t value)
{
	spec->cache = (enum cache_mode)value;
}

static void
set_io(struct disk_spec *spec, uint32_t value)
{
	spec->engine = (enum engine_kind)value;
}

static void
set_profile(struct disk_spec *spec, uint32_t value)
{
	spec->profile = (enum spec_profile)value;
}

static void
set_poll(struct disk_spec *spec, uint32_t value)
{
	spec->poll_us = value;
}

static void
set_merge(struct disk_spec *spec, uint32_t value)
{
	spec->merge = value;
}

static void
set_memory(struct disk_spec *spec, uint32_t value)
{
	spec->memory = (value + SPEC_PAGE - 1) / SPEC_PAGE * SPEC_PAGE;
}

static void
set_ring_order(struct disk_spec *spec, uint32_t value)
{
	spec->ring_order = (uint8_t)value;
}

static void
set_segments(struct disk_spec *spec, uint32_t value)
{
	spec->segments = (uint16_t)value;
}

static void
set_iothreads(struct disk_spec *spec, uint32_t value)
{
	spec->iothreads = (uint8_t)value;
}

static void
set_queues(struct disk_spec *spec, uint32_t value)
{
	spec->queues = (uint8_t)value;
}

static void
set_grants(struct disk_spec *spec, uint32_t value)
{
	spec->grants = value;
}

static void
set_readonly(struct disk_spec *spec, uint32_t value)
{
	spec->readonly = value != 0;
}

static void
set_on_error(struct disk_spec *spec, uint32_t value)
{
	spec->on_error = value;
}

static void
set_discard(struct disk_spec *spec, uint32_t value)
{
	spec->discard = value != 0;
}

static const struct word cache_words[] = {
	{ "none",             CACHE_NONE,       true },
	{ "directsync",       CACHE_DIRECTSYNC, true },
	{ "writethrough",     CACHE_WRITETHROUGH, true },
	{ "writeback",        CACHE_WRITEBACK,  true },
	{ "unsafe",           CACHE_UNSAFE,     true },
	{ NULL,               0,                false },
};
static const struct word io_words[] = {
	{ "native",           ENGINE_AIO,       true },
	{ "threads",          ENGINE_THREADS,   true },
	{ "io_uring",         0,                false },
	{ NULL,               0,                false },
};
static const struct word poll_words[] = {
	{ "off",              0,                true },
	{ "auto",             POLL_AUTO,        true },
	{ NULL,               0,                false },
};
static const struct word grants_words[] = {
	{ "auto",             GRANTS_AUTO,      true },
	{ "copy",             GRANTS_COPY,      true },
	{ "persistent",       GRANTS_PERSISTENT, true },
	{ NULL,               0,                false },
};
static const struct word discard_words[] = {
	{ "unmap",            1,                true },
	{ "ignore",           0,                true },
	{ NULL,               0,                false },
};
static const struct word readonly_words[] = {
	{ "off",              0,                true },
	{ "on",               1,                true },
	{ NULL,               0,                false },
};
static const struct word on_error_words[] = {
	{ "report",           ON_ERROR_REPORT,  true },
	{ "stop-enospc",      ON_ERROR_STOP_ENOSPC, true },
	{ "stop",             ON_ERROR_STOP,    true },
	{ NULL,               0,                false },
};
static const struct word profile_words[] = {
	{ "default",          PROFILE_DEFAULT,  true },
	{ "high-performance", PROFILE_HIGH_PERFORMANCE, true },
	{ "economy",          PROFILE_ECONOMY,  true },
	{ NULL,               0,                false },
};

static const struct option options[] = {
	{ .name = "cache",
	  .use = "none, directsync, writethrough, writeback or unsafe",
	  .words = cache_words, .set = set_cache },
	{ .name = "io", .use = "native or threads",
	  .words = io_words, .set = set_io },
	{ .name = "iothreads", .use = "1 to 16",
	  .number = true, .min = 1, .max = SPEC_QUEUES_MAX,
	  .set = set_iothreads },
	{ .name = "queues", .use = "1 to 16",
	  .number = true, .min = 1, .max = SPEC_QUEUES_MAX,
	  .set = set_queues },
	{ .name = "poll", .use = "auto, off or 0 to 100000 microseconds",
	  .words = poll_words, .number = true, .min = 0, .max = SPEC_POLL_MAX,
	  .set = set_poll },
	{ .name = "merge", .use = "0 (off) to 1M",
	  .number = true, .suffix = true, .min = 0, .max = SPEC_MERGE_MAX,
	  .set = set_merge },
	{ .name = "grants", .use = "auto, copy or persistent",
	  .words = grants_words, .set = set_grants },
	{ .name = "ring-order", .use = "0 to 4",
	  .number = true, .min = 0, .max = RING_MAX_ORDER,
	  .set = set_ring_order },
	{ .name = "segments", .use = "11 to 256",
	  .number = true, .min = SPEC_SEGMENTS_MIN, .max = SPEC_SEGMENTS_MAX,
	  .set = set_segments },
	{ .name = "memory", .use = "64K to 1G",
	  .number = true, .suffix = true,
	  .min = SPEC_MEMORY_MIN, .max = SPEC_MEMORY_MAX, .set = set_memory },
	{ .name = "discard", .use = "unmap or ignore",
	  .words = discard_words, .set = set_discard },
	{ .name = "readonly", .use = "on or off",
	  .words = readonly_words, .set = set_readonly },
	{ .name = "on-error", .use = "report, stop-enospc or stop",
	  .words = on_error_words, .set = set_on_error },
	{ .name = "profile", .use = "default, high-performance or economy",
	  .words = profile_words, .set = set_profile },
};

/* What a profile is short for: values of other rows. */
struct setting {
	enum spec_profile profile;
	const char       *option, *value;
};

static const struct setting settings[] = {
	{ PROFILE_HIGH_PERFORMANCE, "iothreads", "4" },
	{ PROFILE_ECONOMY,          "poll",      "off" },
};

static const struct disk_spec defaults = {
	.cache      = CACHE_NONE,
	.engine     = ENGINE_AIO,
	.poll_us    = POLL_AUTO,
	.merge      = SPEC_MERGE,
	.memory     = SPEC_MEMORY,
	.ring_order = RING_MAX_ORDER,
	.segments   = SPEC_SEGMENTS_MAX,
	.iothreads  = 1,
	.readonly   = false,
	.discard    = true,
};

/*
 * Always -EINVAL.  The text may hold part of a user's word, cut anywhere:
 * whatever is not ASCII could be half a character, and the answer is JSON.
 */
static int __attribute__((format(printf, 2, 3)))
refuse(char why[WHY_MAX], const char *fmt, ...)
{
	va_list ap;
	char *c;

	va_start(ap, fmt);
	if (vsnprintf(why, WHY_MAX, fmt, ap) < 0)
		why[0] = '\0';
	va_end(ap);
	for (c = why; *c != '\0'; c++)
		if (*c < ' ' || *c > '~')
			*c = '?';
	return -EINVAL;
}

/*
 * Decimal digits, then K, M or G if 'suffix'.  False: that is not what 'text'
 * is.  A number that is too large for 32 bits stays so, whatever its digits.
 */
static bool
parse_number(const char *text, bool suffix, uint64_t *value)
{
	static const char units[] = { 'K', 'M', 'G' };
	const char *unit;
	uint64_t n = 0;

	if (*text < '0' || *text > '9')
		return false;
	for (; *text >= '0' && *text <= '9'; text++)
		if (n <= UINT32_MAX)
			n = n * 10 + (uint64_t)(*text - '0');
	unit = suffix ? memchr(units, *text & ~0x20, sizeof(units)) : NULL;
	if (unit != NULL) {
		if (n <= UINT32_MAX)
			n <<= 10 * (unit - units + 1);
		text++;
	}
	*value = n;
	return *text == '\0';
}

static int
set_number(const struct option *opt, const char *text, struct disk_spec *spec,
    char why[WHY_MAX])
{
	uint64_t n;

	if (!parse_number(text, opt->suffix, &n))
		return refuse(why, "%s=%.*s is not a number%s: use %s",
		    opt->name, SHOWN, text,
		    opt->suffix ? " of bytes (K, M or G may follow it)" : "",
		    opt->use);
	if (n < opt->min || n > opt->max)
		return refuse(why, "%s=%.*s is out of range: use %s",
		    opt->name, SHOWN, text, opt->use);
	if (opt->set != NULL)
		opt->set(spec, (uint32_t)n);
	return 0;
}

static int
set_option(const struct option *opt, const char *text, struct disk_spec *spec,
    char why[WHY_MAX])
{
	const struct word *w;

	for (w = opt->words; w != NULL && w->word != NULL; w++) {
		if (strcmp(text, w->word) != 0)
			continue;
		if (!w->built)
			return refuse(why, "%s=%s is not built yet: use %s",
			    opt->name, w->word, opt->use);
		if (opt->set != NULL)
			opt->set(spec, w->value);
		return 0;
	}
	if (opt->number)
		return set_number(opt, text, spec, why);
	return refuse(why, "%s=%.*s is not known: use %s", opt->name, SHOWN,
	    text, opt->use);
}

static int
refuse_unknown(const char *name, char why[WHY_MAX])
{
	size_t used, i;

	refuse(why, "unknown option \"%.*s\": there are", SHOWN, name);
	for (i = 0; i < COUNT(options); i++) {
		used = strlen(why);
		snprintf(why + used, WHY_MAX - used, "%s%s",
		    i == 0 ? " " : ", ", options[i].name);
	}
	return -EINVAL;
}

/* COUNT(options): there is none of that name. */
static size_t
find_option(const char *name)
{
	size_t i;

	for (i = 0; i < COUNT(options); i++)
		if (strcmp(name, options[i].name) == 0)
			break;
	return i;
}

/* One "name=value"; 'seen' has one bit per row of the table. */
static int
parse_option(char *text, struct disk_spec *spec, uint32_t *seen,
    char why[WHY_MAX])
{
	char *value = strchr(text, '=');
	size_t i;

	_Static_assert(COUNT(options) <= 32, "a bit each in 'seen'");
	if (value == NULL)
		return refuse(why, "\"%.*s\" is not option=value: %s", SHOWN,
		    text, USAGE);
	*value++ = '\0';
	i = find_option(text);
	if (i == COUNT(options))
		return refuse_unknown(text, why);
	if (*seen & 1u << i)
		return refuse(why, "option \"%s\" is given twice: give it "
		    "once", text);
	*seen |= 1u << i;
	return set_option(&options[i], value, spec, why);
}

static int
parse_format(const char *format, struct disk_spec *spec, char why[WHY_MAX])
{
	if (format[0] == '\0')
		return refuse(why, "no format before the first ':': %s", USAGE);
	if (strlen(format) >= sizeof(spec->format) ||
	    driver_find(format) == NULL)
		return refuse(why, "unknown format \"%.*s\": use raw (a file "
		    "or a block device) or qcow2; %s", SHOWN, format, USAGE);
	memcpy(spec->format, format, strlen(format) + 1);
	return 0;
}

/* Was the option that this function sets among those given? */
static bool
was_given(uint32_t seen, void (*set)(struct disk_spec *, uint32_t))
{
	size_t i;

	for (i = 0; i < COUNT(options); i++)
		if (options[i].set == set)
			return (seen & 1u << i) != 0;
	return false;
}

/* grants=auto: see spec.h. */
static bool
offers_persistent(const struct disk_spec *spec)
{
	uint32_t segments = spec->segments;

	if (spec->grants != GRANTS_AUTO)
		return spec->grants == GRANTS_PERSISTENT;
	if (cache_is_direct(spec->cache))
		return false;
	if (segments > SPEC_AUTO_SEGMENTS)
		segments = SPEC_AUTO_SEGMENTS;
	return spec->memory / SPEC_PAGE >= SPEC_AUTO_REQUESTS * (segments + 1);
}

bool
spec_profile_sets(const char *profile, const char *option)
{
	const struct word *w;
	size_t i;

	for (w = profile_words; w->word != NULL; w++)
		for (i = 0; i < COUNT(settings); i++)
			if (strcmp(w->word, profile) == 0 &&
			    w->value == (uint32_t)settings[i].profile &&
			    strcmp(settings[i].option, option) == 0)
				return true;
	return false;
}

/* What was given wins, wherever it stands. */
static int
apply_profile(struct disk_spec *spec, uint32_t seen, char why[WHY_MAX])
{
	const struct setting *s;
	size_t i, row;
	int rc = 0;

	for (i = 0; i < COUNT(settings) && rc == 0; i++) {
		s = &settings[i];
		row = find_option(s->option);
		if (s->profile == spec->profile && (seen & 1u << row) == 0)
			rc = set_option(&options[row], s->value, spec, why);
	}
	return rc;
}

/* Asynchronous I/O of the kernel's is such only past the page cache. */
static int
check_engine(struct disk_spec *spec, uint32_t seen, char why[WHY_MAX])
{
	const struct word *w = cache_words;

	if (spec->engine != ENGINE_AIO || cache_is_direct(spec->cache))
		return 0;
	if (!was_given(seen, set_io)) {
		spec->engine = ENGINE_THREADS;
		return 0;
	}
	while (w->value != (uint32_t)spec->cache)
		w++;
	return refuse(why, "cache=%s needs io=threads: change io=native to "
	    "that, or cache to none or directsync", w->word);
}

/* Every thread has a queue to serve.  A profile's number gives way. */
static int
check_queues(struct disk_spec *spec, uint32_t seen, char why[WHY_MAX])
{
	if (!was_given(seen, set_queues))
		spec->queues = spec->iothreads;
	if (!was_given(seen, set_iothreads) && spec->iothreads > spec->queues)
		spec->iothreads = spec->queues;
	if (spec->queues >= spec->iothreads)
		return 0;
	return refuse(why, "queues=%u leave threads of iothreads=%u without "
	    "one to serve: raise queues or lower iothreads", spec->queues,
	    spec->iothreads);
}

/*
 * The memory is shared out to the queues, and a share holds the largest
 * request.  What was not asked for gives way.
 */
static int
check_memory(struct disk_spec *spec, uint32_t seen, char why[WHY_MAX])
{
	uint32_t pages = spec->memory / SPEC_PAGE / spec->queues;

	if (pages < SPEC_SEGMENTS_MIN)
		return refuse(why, "memory=%" PRIu32 " is too little for "
		    "queues=%u: raise memory to %" PRIu32 " or lower queues",
		    spec->memory, spec->queues,
		    SPEC_SEGMENTS_MIN * SPEC_PAGE * spec->queues);
	if (spec->segments > pages) {
		if (was_given(seen, set_segments))
			return refuse(why, "segments=%u do not fit into "
			    "memory=%" PRIu32 " shared by queues=%u: lower "
			    "segments or raise memory", spec->segments,
			    spec->memory, spec->queues);
		spec->segments = (uint16_t)pages;
	}
	if (spec->merge <= pages * SPEC_PAGE)
		return 0;
	if (was_given(seen, set_merge))
		return refuse(why, "merge=%" PRIu32 " does not fit into "
		    "memory=%" PRIu32 " shared by queues=%u: lower merge or "
		    "raise memory", spec->merge, spec->memory, spec->queues);
	spec->merge = pages * SPEC_PAGE;
	return 0;
}

/* What agrees with its own row may still not fit together. */
static int
check_together(struct disk_spec *spec, uint32_t seen, char why[WHY_MAX])
{
	int rc;

	/* The daemon's working directory is not the one of who wrote this. */
	if ((strcmp(spec->format, "raw") == 0 ||
	    strcmp(spec->format, "qcow2") == 0) && spec->path[0] != '/' &&
	    spec->path[0] != '\0')
		return refuse(why, "the path \"%.*s\" does not begin with '/': "
		    "give the whole path", SHOWN, spec->path);
	rc = check_engine(spec, seen, why);
	if (rc == 0)
		rc = check_queues(spec, seen, why);
	if (rc == 0)
		rc = check_memory(spec, seen, why);
	spec->persistent = offers_persistent(spec);
	return rc;
}

/* What follows the first ':'; everything is allowed in it but these. */
static int
parse_path(const char *path, bool drive, struct disk_spec *spec,
    char why[WHY_MAX])
{
	if (path[0] == '\0' && !drive)
		return refuse(why, "no path after the first ':': %s", USAGE);
	if (strlen(path) >= sizeof(spec->path))
		return refuse(why, "the path has %zu bytes: %zu at most",
		    strlen(path), sizeof(spec->path) - 1);
	memcpy(spec->path, path, strlen(path) + 1);
	return 0;
}

/* Control characters would reach log lines and the answers to the CLI. */
static bool
has_control(const char *text)
{
	for (; *text != '\0'; text++)
		if ((unsigned char)*text < ' ' || *text == '\x7f')
			return true;
	return false;
}

static int
parse(const char *text, bool drive, struct disk_spec *spec, char why[WHY_MAX])
{
	char head[SPEC_MAX];
	char *word, *rest;
	uint32_t seen = 0;
	int rc;

	*spec = defaults;
	if (strlen(text) >= sizeof(head))
		return refuse(why, "the disk spec has %zu bytes: %zu at most",
		    strlen(text), sizeof(head) - 1);
	if (has_control(text))
		return refuse(why, "the disk spec holds a newline or another "
		    "control character: rename the file");
	/* What a toolstack writes for a drive without a medium. */
	if (drive && text[0] == '\0')
		text = "raw:";
	memcpy(head, text, strlen(text) + 1);
	rest = strchr(head, ':');
	if (rest == NULL)
		return refuse(why, "\"%.*s\" has no ':': %s", SHOWN, head,
		    USAGE);
	*rest++ = '\0';
	rc = parse_path(rest, drive, spec, why);
	if (rc < 0)
		return rc;

	rest = head;
	word = strsep(&rest, ",");
	rc = parse_format(word, spec, why);
	while (rc == 0 && (word = strsep(&rest, ",")) != NULL)
		rc = parse_option(word, spec, &seen, why);
	if (rc == 0)
		rc = apply_profile(spec, seen, why);
	return rc < 0 ? rc : check_together(spec, seen, why);
}

int
spec_parse(const char *text, struct disk_spec *spec, char why[WHY_MAX])
{
	return parse(text, false, spec, why);
}

int
spec_parse_drive(const char *text, struct disk_spec *spec, char why[WHY_MAX])
{
	return parse(text, true, spec, why);
}
