/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * defaults: the options that ringback.conf gives to every disk.
 *
 * They are put into the text of a disk spec, behind what stands there: a disk
 * process is told everything, and one that is found again says with what it was
 * started, whatever the file says by then.
 *
 *     qcow2,cache=writeback:/a  +  poll=off,cache=none
 *         ->  qcow2,cache=writeback,poll=off:/a
 */
#ifndef BLKBACK_DEFAULTS_H
#define BLKBACK_DEFAULTS_H

#include "blkback/spec.h"

#define DEFAULTS_MAX   512u	/* bytes of options, NUL included */
#define DEFAULTS_KINDS 8u	/* formats that have some of their own */

struct defaults {
	char     all[DEFAULTS_MAX];	/* "option=value,..."; or "" */
	struct {
		char format[16];
		char options[DEFAULTS_MAX];
	} of[DEFAULTS_KINDS];
	unsigned nr;
};

/*
 * Take in 'options' for 'format', or for all when that is "".  0; or -EINVAL
 * and why.  Blanks around commas are left out.
 */
int  defaults_set(struct defaults *d, const char *format, const char *options,
         char why[WHY_MAX]);

/* Do those of each format go with those for all?  0; or -EINVAL and why. */
int  defaults_check(const struct defaults *d, char why[WHY_MAX]);

/*
 * Parse 'text' with the defaults, those of its format first.  An option that
 * the text gives, or that its profile sets, wins.  'full' becomes the text with
 * them all.  'drive': of a CD-ROM, which may be empty (spec_parse_drive()).  0;
 * or -EINVAL and why, which names them if they are at fault.
 */
int  defaults_parse(const struct defaults *d, bool drive, const char *text,
         char full[SPEC_MAX], struct disk_spec *spec, char why[WHY_MAX]);

/* May 'full' be what became of 'text', with whatever defaults?  Then parsed. */
bool defaults_fit(bool drive, const char *full, const char *text,
         struct disk_spec *spec);

#endif
