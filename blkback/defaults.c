/* SPDX-License-Identifier: GPL-2.0-or-later */
/* defaults: put options into a disk spec (see defaults.h). */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "blkback/defaults.h"

/* One "name=value" of a list that ends with a NUL or a ':'. */
struct item {
	const char *text;
	size_t      length, name;	/* of all of it, and up to the '=' */
};

/* Step to the next one; false: there is none. */
static bool
item_next(struct item *i)
{
	i->text += i->length;
	if (*i->text == ',')
		i->text++;
	i->length = strcspn(i->text, ",:");
	i->name = strcspn(i->text, "=,:");
	return i->length > 0;
}

/* The option of that name in a spec or a list; its value's length or -1. */
static int
find(const char *list, const char *name, size_t length, const char **value)
{
	struct item i = { list, 0, 0 };

	while (item_next(&i)) {
		if (i.name != length || i.name == i.length ||
		    memcmp(i.text, name, length) != 0)
			continue;
		*value = i.text + i.name + 1;
		return (int)(i.length - i.name - 1);
	}
	return -1;
}

/* Is the option given, or set by a profile that is? */
static bool
is_decided(const char *text, const char *name, size_t length)
{
	char profile[32], option[32];
	const char *value;
	int n;

	if (find(text, name, length, &value) >= 0)
		return true;
	n = find(text, "profile", 7, &value);
	if (n < 0 || (size_t)n >= sizeof(profile) || length >= sizeof(option))
		return false;
	snprintf(profile, sizeof(profile), "%.*s", n, value);
	snprintf(option, sizeof(option), "%.*s", (int)length, name);
	return spec_profile_sets(profile, option);
}

/*
 * Add those of the options that are not decided in 'text'.  False: they do not
 * fit into 'full', which begins with what stands before the ':' already.
 */
static bool
add(char full[SPEC_MAX], const char *text, const char *options)
{
	struct item i = { options, 0, 0 };
	size_t used = strlen(full);

	while (item_next(&i)) {
		if (is_decided(text, i.text, i.name))
			continue;
		if (used + 1 + i.length >= SPEC_MAX)
			return false;
		full[used++] = ',';
		memcpy(full + used, i.text, i.length);
		used += i.length;
		full[used] = '\0';
	}
	return true;
}

static const char *
options_of(const struct defaults *d, const char *text)
{
	size_t n = strcspn(text, ",:");
	unsigned i;

	for (i = 0; i < d->nr; i++)
		if (strlen(d->of[i].format) == n &&
		    memcmp(d->of[i].format, text, n) == 0)
			return d->of[i].options;
	return "";
}

/* 'text' with the defaults; false: that would be too long. */
static bool
fill(const struct defaults *d, const char *text, char full[SPEC_MAX])
{
	const char *path = strchr(text, ':');
	char head[SPEC_MAX];
	size_t n;

	n = strlen(text);
	if (n >= SPEC_MAX)
		return false;
	memcpy(full, text, n + 1);
	if (path == NULL)
		return true;		/* spec_parse() says what is wrong */
	full[path - text] = '\0';
	if (!add(full, text, options_of(d, text)))
		return false;
	/* What the format's have decided, the others leave alone. */
	snprintf(head, sizeof(head), "%s", full);
	if (!add(full, head, d->all))
		return false;
	n = strlen(full);
	if (n + strlen(path) >= SPEC_MAX)
		return false;
	memcpy(full + n, path, strlen(path) + 1);
	return true;
}

static int
parse(bool drive, const char *text, struct disk_spec *spec, char why[WHY_MAX])
{
	return drive ? spec_parse_drive(text, spec, why) :
	    spec_parse(text, spec, why);
}

int
defaults_parse(const struct defaults *d, bool drive, const char *text,
    char full[SPEC_MAX], struct disk_spec *spec, char why[WHY_MAX])
{
	char alone[WHY_MAX];
	size_t used;
	int rc;

	if (!fill(d, text, full)) {
		why_set(why, "the disk spec and its default-options have more "
		    "than %u bytes", (unsigned)SPEC_MAX - 1);
		return -EINVAL;
	}
	rc = parse(drive, full, spec, why);
	if (rc == 0 || strcmp(full, text) == 0)
		return rc;
	/* Whose fault is it? */
	if (parse(drive, text, spec, alone) < 0) {
		memcpy(why, alone, sizeof(alone));
		return rc;
	}
	used = strlen(why);
	snprintf(why + used, WHY_MAX - used, " (default-options of "
	    "ringback.conf make it %.*s)", (int)strcspn(full, ":"), full);
	return rc;
}

bool
defaults_fit(bool drive, const char *full, const char *text,
    struct disk_spec *spec)
{
	const char *path = strchr(text, ':');
	char why[WHY_MAX];
	size_t n, head;

	if (path == NULL)
		return strcmp(full, text) == 0 &&
		    parse(drive, full, spec, why) == 0;
	head = (size_t)(path - text);
	n = strlen(full);
	/* The first ':' of each ends the options: the paths are the same. */
	return n >= strlen(text) && memcmp(full, text, head) == 0 &&
	    (full[head] == ',' || full[head] == ':') &&
	    strcmp(full + strcspn(full, ":"), path) == 0 &&
	    parse(drive, full, spec, why) == 0;
}

/* ---- what the file says -------------------------------------------------- */

/* Without blanks around commas and at the ends.  False: it is too long. */
static bool
tidy(char out[DEFAULTS_MAX], const char *options)
{
	size_t n, used = 0;

	while (*options != '\0') {
		options += strspn(options, " \t");
		n = strcspn(options, ",");
		if (used + n + 1 >= DEFAULTS_MAX)
			return false;
		memcpy(out + used, options, n);
		while (n > 0 && strchr(" \t", out[used + n - 1]) != NULL)
			n--;
		used += n;
		options += strcspn(options, ",");
		if (*options == ',')
			out[used++] = *options++;
	}
	out[used] = '\0';
	return true;
}

int
defaults_set(struct defaults *d, const char *format, const char *options,
    char why[WHY_MAX])
{
	char text[SPEC_MAX], list[DEFAULTS_MAX];
	struct disk_spec spec;
	const char *value;

	if (!tidy(list, options)) {
		why_set(why, "longer than %u bytes", DEFAULTS_MAX - 1);
		return -EINVAL;
	}
	if (strchr(list, ':') != NULL || list[0] == '\0') {
		why_set(why, "not a list of options, like poll=off,memory=16M");
		return -EINVAL;
	}
	/* A disk that is served must not become another one by a restart. */
	if (find(list, "readonly", 8, &value) >= 0) {
		why_set(why, "readonly belongs to a disk: give it in the disk "
		    "spec, or have the toolstack say mode r");
		return -EINVAL;
	}
	snprintf(text, sizeof(text), "%s,%s:/", format[0] != '\0' ? format :
	    "raw", list);
	if (spec_parse(text, &spec, why) < 0)
		return -EINVAL;
	if (format[0] == '\0') {
		memcpy(d->all, list, sizeof(list));
		return 0;
	}
	if (d->nr == DEFAULTS_KINDS) {
		why_set(why, "for more than %u formats", DEFAULTS_KINDS);
		return -EINVAL;
	}
	memcpy(d->of[d->nr].format, spec.format, sizeof(spec.format));
	memcpy(d->of[d->nr++].options, list, sizeof(list));
	return 0;
}

int
defaults_check(const struct defaults *d, char why[WHY_MAX])
{
	char text[32], full[SPEC_MAX];
	struct disk_spec spec;
	unsigned i;
	int rc = 0;

	for (i = 0; rc == 0 && i < d->nr; i++) {
		snprintf(text, sizeof(text), "%s:/", d->of[i].format);
		rc = defaults_parse(d, false, text, full, &spec, why);
	}
	return rc;
}
