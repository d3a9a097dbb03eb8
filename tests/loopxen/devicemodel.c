/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * libxendevicemodel.so.1 without Xen: it opens, because libxenctrl will not
 * open without it; nothing else works, and no block backend asks for it.
 *
 * The header is left out on purpose: what does nothing needs no arguments.
 */
#include <errno.h>
#include <stdlib.h>

void	*xendevicemodel_open(void *logger, unsigned open_flags);
int	xendevicemodel_close(void *dmod);
int	xendevicemodel_restrict(void *dmod, unsigned domid);

void *
xendevicemodel_open(void *logger, unsigned open_flags)
{
	(void)logger;
	(void)open_flags;
	return calloc(1, 1);
}

int
xendevicemodel_close(void *dmod)
{
	free(dmod);
	return 0;
}

int
xendevicemodel_restrict(void *dmod, unsigned domid)
{
	(void)dmod;
	(void)domid;
	return 0;
}

#define UNSUPPORTED(name)						\
	int	name(void);						\
	int								\
	name(void)							\
	{								\
		errno = ENOSYS;						\
		return -1;						\
	}

UNSUPPORTED(xendevicemodel_create_ioreq_server)
UNSUPPORTED(xendevicemodel_destroy_ioreq_server)
UNSUPPORTED(xendevicemodel_get_ioreq_server_info)
UNSUPPORTED(xendevicemodel_set_ioreq_server_state)
UNSUPPORTED(xendevicemodel_map_io_range_to_ioreq_server)
UNSUPPORTED(xendevicemodel_unmap_io_range_from_ioreq_server)
UNSUPPORTED(xendevicemodel_map_mem_type_to_ioreq_server)
UNSUPPORTED(xendevicemodel_map_pcidev_to_ioreq_server)
UNSUPPORTED(xendevicemodel_unmap_pcidev_from_ioreq_server)
UNSUPPORTED(xendevicemodel_set_pci_intx_level)
UNSUPPORTED(xendevicemodel_set_isa_irq_level)
UNSUPPORTED(xendevicemodel_set_irq_level)
UNSUPPORTED(xendevicemodel_set_pci_link_route)
UNSUPPORTED(xendevicemodel_inject_msi)
UNSUPPORTED(xendevicemodel_inject_event)
UNSUPPORTED(xendevicemodel_track_dirty_vram)
UNSUPPORTED(xendevicemodel_modified_memory)
UNSUPPORTED(xendevicemodel_modified_memory_bulk)
UNSUPPORTED(xendevicemodel_set_mem_type)
UNSUPPORTED(xendevicemodel_shutdown)
UNSUPPORTED(xendevicemodel_relocate_memory)
UNSUPPORTED(xendevicemodel_pin_memory_cacheattr)
UNSUPPORTED(xendevicemodel_nr_vcpus)
