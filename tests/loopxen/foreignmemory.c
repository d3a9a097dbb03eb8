/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * libxenforeignmemory.so.1 without Xen: it opens, because libxenctrl will not
 * open without it.  Foreign pages cannot be mapped: a backend uses grants.
 */
#include <errno.h>
#include <stdlib.h>
#include <xenforeignmemory.h>

xenforeignmemory_handle *
xenforeignmemory_open(struct xentoollog_logger *logger, unsigned open_flags)
{
	(void)logger; (void)open_flags;
	return calloc(1, 1);
}

int
xenforeignmemory_close(xenforeignmemory_handle *fmem)
{
	free(fmem);
	return 0;
}

int
xenforeignmemory_restrict(xenforeignmemory_handle *fmem, domid_t domid)
{
	(void)fmem; (void)domid;
	return 0;
}

void *
xenforeignmemory_map(xenforeignmemory_handle *fmem, uint32_t dom, int prot,
    size_t pages, const xen_pfn_t arr[], int err[])
{
	return xenforeignmemory_map2(fmem, dom, NULL, prot, 0, pages, arr,
	    err);
}

void *
xenforeignmemory_map2(xenforeignmemory_handle *fmem, uint32_t dom, void *addr,
    int prot, int flags, size_t pages, const xen_pfn_t arr[], int err[])
{
	(void)fmem; (void)dom; (void)addr; (void)prot; (void)flags;
	(void)pages; (void)arr; (void)err;
	errno = ENOSYS;
	return NULL;
}

int
xenforeignmemory_unmap(xenforeignmemory_handle *fmem, void *addr, size_t pages)
{
	(void)fmem; (void)addr; (void)pages;
	errno = ENOSYS;
	return -1;
}

xenforeignmemory_resource_handle *
xenforeignmemory_map_resource(xenforeignmemory_handle *fmem, domid_t domid,
    unsigned int type, unsigned int id, unsigned long frame,
    unsigned long nr_frames, void **paddr, int prot, int flags)
{
	(void)fmem; (void)domid; (void)type; (void)id; (void)frame;
	(void)nr_frames; (void)paddr; (void)prot; (void)flags;
	errno = ENOSYS;
	return NULL;
}

int
xenforeignmemory_unmap_resource(xenforeignmemory_handle *fmem,
    xenforeignmemory_resource_handle *fres)
{
	(void)fmem; (void)fres;
	errno = ENOSYS;
	return -1;
}

int
xenforeignmemory_resource_size(xenforeignmemory_handle *fmem, domid_t domid,
    unsigned int type, unsigned int id, size_t *size)
{
	(void)fmem; (void)domid; (void)type; (void)id; (void)size;
	errno = ENOSYS;
	return -1;
}
