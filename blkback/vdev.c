/* SPDX-License-Identifier: GPL-2.0-or-later */
/* vdev: see vdev.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "blkback/vdev.h"

#define EXTENDED  (1u << 28)
#define DISKS_MAX (1u << 20)	/* of the extended numbers */
#define PARTS_MAX (1u << 8)

static int
parse_u32(const char *s, uint32_t max, uint32_t *value)
{
	size_t len = strlen(s);
	uint64_t v;

	/* Ten digits cannot overflow the 64 bits. */
	if (len == 0 || len > 10 || strspn(s, "0123456789") != len)
		return -EINVAL;
	v = strtoull(s, NULL, 10);
	if (v > max)
		return -EINVAL;
	*value = v;
	return 0;
}

/* "a" is 0, "z" 25, "aa" 26.  What follows the letters, or NULL. */
static const char *
parse_letters(const char *s, uint32_t *disk)
{
	uint32_t n = 0;

	if (*s < 'a' || *s > 'z')
		return NULL;
	for (; *s >= 'a' && *s <= 'z'; s++) {
		n = n * 26 + (*s - 'a') + 1;
		if (n > DISKS_MAX)
			return NULL;
	}
	*disk = n - 1;
	return s;
}

static int
parse_part(const char *s, uint32_t max, uint32_t *part)
{
	*part = 0;
	if (*s == '\0')
		return 0;
	if (*s == '0')		/* xvda0 is no partition, xvda01 no name */
		return -EINVAL;
	return parse_u32(s, max, part);
}

static int
number_xvd(uint32_t disk, uint32_t part, uint32_t *devid)
{
	if (disk >= DISKS_MAX || part >= PARTS_MAX)
		return -EINVAL;
	*devid = disk < 16 && part < 16 ? 202u << 8 | disk << 4 | part :
	    EXTENDED | disk << 8 | part;
	return 0;
}

/* dNpM, without the 'd'. */
static int
parse_numbered(const char *s, uint32_t *devid)
{
	char disk[12];
	size_t len = strcspn(s, "p");
	uint32_t d, p = 0;

	if (len >= sizeof(disk))
		return -EINVAL;
	memcpy(disk, s, len);
	disk[len] = '\0';
	if (parse_u32(disk, DISKS_MAX - 1, &d) < 0)
		return -EINVAL;
	s += len;
	if (*s == 'p' && parse_u32(s + 1, PARTS_MAX - 1, &p) < 0)
		return -EINVAL;
	return number_xvd(d, p, devid);
}

static int
parse_number(const char *s, uint32_t *devid)
{
	unsigned long v;

	if (strncmp(s, "0x", 2) != 0)
		return parse_u32(s, UINT32_MAX, devid);
	s += 2;
	if (*s == '\0' || strlen(s) > 8 ||
	    strspn(s, "0123456789abcdefABCDEF") != strlen(s))
		return -EINVAL;
	v = strtoul(s, NULL, 16);
	*devid = v;
	return 0;
}

int
vdev_parse(const char *name, uint32_t *devid)
{
	uint32_t disk, part;
	const char *s;

	if (*name >= '0' && *name <= '9')
		return parse_number(name, devid);
	if (name[0] == 'd' && name[1] >= '0' && name[1] <= '9')
		return parse_numbered(name + 1, devid);

	if (strncmp(name, "xvd", 3) == 0) {
		s = parse_letters(name + 3, &disk);
		if (s == NULL || parse_part(s, PARTS_MAX - 1, &part) < 0)
			return -EINVAL;
		return number_xvd(disk, part, devid);
	}
	if (strncmp(name, "sd", 2) == 0) {
		s = parse_letters(name + 2, &disk);
		if (s == NULL || parse_part(s, 15, &part) < 0 || disk > 15)
			return -EINVAL;
		*devid = 8u << 8 | disk << 4 | part;
		return 0;
	}
	if (strncmp(name, "hd", 2) == 0) {
		s = parse_letters(name + 2, &disk);
		if (s == NULL || parse_part(s, 63, &part) < 0 || disk > 3)
			return -EINVAL;
		*devid = (disk < 2 ? 3u : 22u) << 8 | (disk & 1) << 6 | part;
		return 0;
	}
	return -EINVAL;
}

static void
put_name(char name[VDEV_NAME_MAX], const char *prefix, uint32_t disk,
    uint32_t part)
{
	char letters[8];
	int i = sizeof(letters);

	letters[--i] = '\0';
	for (disk++; disk > 0 && i > 0; disk = (disk - 1) / 26)
		letters[--i] = 'a' + (disk - 1) % 26;
	if (part > 0)
		snprintf(name, VDEV_NAME_MAX, "%s%s%u", prefix, letters + i,
		    part);
	else
		snprintf(name, VDEV_NAME_MAX, "%s%s", prefix, letters + i);
}

void
vdev_name(uint32_t devid, char name[VDEV_NAME_MAX])
{
	uint32_t disk = devid >> 8 & 0xfffff, part = devid & 0xff;

	/* One that the short form could say has another number by its name. */
	if (devid >> 28 == 1 && (disk > 15 || part > 15))
		put_name(name, "xvd", disk, part);
	else if (devid >> 8 == 202)
		put_name(name, "xvd", devid >> 4 & 15, devid & 15);
	else if (devid >> 8 == 8)
		put_name(name, "sd", devid >> 4 & 15, devid & 15);
	else if ((devid >> 8 == 3 || devid >> 8 == 22) && (devid & 128) == 0)
		put_name(name, "hd", (devid >> 8 == 22 ? 2 : 0) +
		    (devid >> 6 & 1), devid & 63);
	else
		snprintf(name, VDEV_NAME_MAX, "%u", devid);
}
