/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * config: read a file of "key = value" lines with libinih (see options.h).
 *
 * It is handed one line after the other, so that every error can be said with
 * the number of its line; and at the first one that is all.
 */
#include <errno.h>
#include <ini.h>
#include <stdio.h>
#include <string.h>

#include "blkback/options.h"

#define LINE_BYTES 8192		/* of a line, its end included */

struct reading {
	const char *path;
	FILE       *file;
	unsigned    line;
	bool        bad;	/* said in 'why' */
	config_set *set;
	void       *arg;
	char       *why;	/* WHY_MAX bytes */
};

static void
refuse(struct reading *r, const char *what)
{
	why_set(r->why, "%s:%u: %s", r->path, r->line, what);
	r->bad = true;
}

/* As fgets(). */
static char *
next_line(char *text, int size, void *arg)
{
	struct reading *r = arg;
	size_t n;

	if (r->bad)
		return NULL;
	memset(text, 0, (size_t)size);
	if (fgets(text, size, r->file) == NULL)
		return NULL;
	r->line++;
	n = strlen(text);
	if (n == (size_t)size - 1 && text[n - 1] != '\n')
		refuse(r, "the line is too long");
	else if (n == 0 || (text[n - 1] != '\n' && !feof(r->file)))
		refuse(r, "the line holds a NUL");
	return r->bad ? NULL : text;
}

/* Not zero: go on. */
static int
on_key(void *arg, const char *section, const char *key, const char *value)
{
	struct reading *r = arg;
	char what[WHY_MAX];

	if (r->set(r->arg, section, key, value, what) == 0)
		return 1;
	refuse(r, what);
	return 0;
}

int
config_read(const char *path, config_set *set, void *arg, char why[WHY_MAX])
{
	struct reading r = { .path = path, .set = set, .arg = arg, .why = why };
	int rc;

	ini_allow_multiline = false;
	ini_allow_inline_comments = false;
	ini_stop_on_first_error = true;
	ini_max_line = LINE_BYTES;

	r.file = fopen(path, "re");
	if (r.file == NULL) {
		rc = -errno;
		why_set(why, "cannot read %s: %s", path, strerror(errno));
		return rc;
	}
	rc = ini_parse_stream(next_line, &r, on_key, &r);
	if (!r.bad && ferror(r.file)) {
		why_set(why, "cannot read %s: %s", path, strerror(errno));
		r.bad = true;
	}
	if (!r.bad && rc != 0)
		refuse(&r, rc < 0 ? "out of memory" :
		    "neither \"key = value\" nor \"[format]\"");
	fclose(r.file);
	return r.bad ? -EINVAL : 0;
}
