/* SPDX-License-Identifier: GPL-2.0-or-later */
/* kernel: looking for xen-blkback in sysfs (see kernel.h). */
#include <stdio.h>
#include <unistd.h>

#include "blkback/kernel.h"

#define DRIVER "bus/xen-backend/drivers/vbd"
/* Only a module that was loaded has a state. */
#define MODULE "module/xen_blkback/initstate"

static bool
there(const char *sysfs, const char *name)
{
	char path[512];
	int n;

	n = snprintf(path, sizeof(path), "%s/%s", sysfs, name);
	return n > 0 && n < (int)sizeof(path) && access(path, F_OK) == 0;
}

bool
kernel_backend(const char *sysfs, char why[WHY_MAX])
{
	if (!there(sysfs, DRIVER))
		return false;
	snprintf(why, WHY_MAX, "the kernel's xen-blkback serves every disk of "
	    "kind " KERNEL_KIND " (%.64s/" DRIVER " exists); %s, or start "
	    "ringbackd with --kinds that has no " KERNEL_KIND, sysfs,
	    there(sysfs, MODULE) ?
	    "modprobe -r xen-blkback, and keep it out with a \"blacklist "
	    "xen-blkback\" in /etc/modprobe.d" :
	    "it is built into this kernel, so boot one that has it as a "
	    "module");
	return true;
}
