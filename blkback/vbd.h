/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * vbd: one virtual disk, as the supervisor sees it: a backend directory, a
 * frontend, a disk process.
 *
 * device.h decides, this does.  A vbd is found by its directory (or made by
 * `ringback attach`, which writes the directory once the image is open) and
 * lives until the directory and the disk process are both gone.
 */
#ifndef BLKBACK_VBD_H
#define BLKBACK_VBD_H

#include "blkback/device.h"
#include "blkback/frontend.h"
#include "blkback/log.h"
#include "blkback/message.h"
#include "blkback/page.h"
#include "blkback/process.h"
#include "blkback/supervisor.h"
#include "blkback/vdev.h"

/* The medium of a CD-ROM drive is being changed: see media.h. */
struct media {
	enum media_phase {
		MEDIA_STILL,
		MEDIA_DRAINING,		/* the process of the old one is to */
					/* finish and to end */
		MEDIA_OPENING,		/* one with another medium starts */
	} phase;
	enum { MEDIA_NEW, MEDIA_OLD, MEDIA_NONE } choice;	/* that one */
	char     want[SPEC_MAX], old[SPEC_MAX];
	char     full[SPEC_MAX];	/* of the old one, defaults included */
	bool     marked;		/* xenstore tells of the change */
	uint32_t seconds;		/* for a medium to be opened */
	uint64_t deadline;		/* CLOCK_MONOTONIC, microseconds */
	char     why[WHY_MAX];		/* it did not work; "" */
};

struct vbd {
	LIST_ENTRY(vbd)    link;
	TAILQ_ENTRY(vbd)   work;
	bool               touched;
	struct supervisor *sup;

	char     kind[KIND_MAX];
	bool     by_hand;		/* kind BY_HAND: the nodes are ours */
	uint32_t domid, devid;
	char     name[48];		/* "vbd 7/51712", for every line */
	char     path[BACKEND_PATH_MAX];	/* of the backend directory */
	char     frontend[64];		/* of the frontend's */
	char     vdev[VDEV_NAME_MAX];

	/* From the backend directory, read at each offer. */
	bool     claimed;		/* it is ours, and could be read */
	char     uuid[UUID_MAX];	/* of the domain */
	char     spec[SPEC_MAX];
	char     full[SPEC_MAX];	/* ... with default-options */
	char     opened[SPEC_MAX];	/* 'spec' when 'open' was made */
	bool     readonly, cdrom;
	bool     discard;		/* the toolstack allows it */
	bool     overridden;		/* grants=persistent was */
	bool     direct_safe;		/* to give guest pages to the storage */
	struct frontend_offer offer;	/* of rings and grants */
	unsigned segments;		/* offered */
	char     bad_spec[WHY_MAX];	/* why it cannot be used, or "" */

	/* How things stood at the last step. */
	struct device_levels now;
	bool     state_junk;		/* 'ours' is not what stands there */
	bool     orphan;		/* a process without a directory */
	bool     keep_page;		/* somebody else's */
	bool     creating;		/* the directories are not made yet */
	bool     watching;		/* the frontend's state */
	bool     seen_alive;		/* xenstored knew the domain */

	struct process   proc;
	pid_t            last_pid;	/* for the line about its end */
	uint32_t         uid;		/* of the disk process */
	bool             looked;	/* for one that is running */
	bool             adopting;	/* found running; no HELLO yet */
	struct message_open open;	/* as the disk process was told */
	sd_event_source *io, *timer;
	struct message_geometry geometry;
	uint64_t         sectors;	/* as published; 0: not known */
	bool             resizing;	/* RESIZE has not been answered */
	char             resize_error[WHY_MAX];	/* of the last; "": none */
	struct message_connect  rings;	/* as mapped, or being mapped */
	uint32_t         generation;
	enum resume_mode resume;	/* of the successor that is starting */
	bool             redoing;	/* after one that was closing */
	unsigned         redo_tries;
	uint64_t         death[DEATHS_KEPT];	/* microseconds */
	unsigned         nr_deaths;	/* in all; the last ones are above */
	bool             stopped;	/* requests wait for vbd_retry() */
	bool             lock_wait;	/* somebody else has the image */
	uint64_t         lock_deadline;	/* CLOCK_MONOTONIC, microseconds */

	struct media     media;

	char             error[WHY_MAX];	/* for people; "" */
	struct log_limit limit, chat;	/* what is wrong; what is right */
};

/* One that is not known yet; touched.  NULL when out of memory. */
struct vbd *vbd_new(struct supervisor *sup, const char *kind, uint32_t domid,
        uint32_t devid);
struct vbd *vbd_find(struct supervisor *sup, uint32_t domid, uint32_t devid);
void vbd_free(struct vbd *v);

/*
 * At the start: a disk process that serves no directory of ours.  It is told
 * to close if its directory is gone, and left alone if another kind's is there.
 */
void vbd_new_orphan(struct supervisor *sup, uint32_t domid, uint32_t devid);

/*
 * Take v->spec with the default options, and what both say of what is offered.
 * 0; or -EINVAL and why.  A disk that is open keeps those it has.
 */
int  vbd_take_spec(struct vbd *v, char why[WHY_MAX]);

/* ... as 'full' has them.  False: that is of another spec. */
bool vbd_take_full(struct vbd *v, const char *full);

/*
 * Are persistent grants offered?  With direct I/O they have the storage work on
 * pages of the guest, which a network may hold for longer than it says: only
 * where whoever attached the disk says that this is safe.  By hand, asking for
 * them is to say so.
 */
bool vbd_persistent(const struct vbd *v, const struct disk_spec *spec);

/* The frontend's rings, as it shows them.  0; or -errno and why. */
int  vbd_read_rings(struct vbd *v, struct message_connect *c,
         char why[WHY_MAX]);

/* Have it stepped soon, once, however often it is touched until then. */
void vbd_touch(struct vbd *v);
void vbd_touch_later(struct vbd *v, uint64_t usec);

/* Do the next thing that there is to do.  May free it. */
void vbd_step(struct vbd *v);

/* Something is wrong with this disk, and a person has to know. */
void vbd_set_error(struct vbd *v, const char *fmt, ...) LOG_PRINTF(2, 3);

/* The verdict on the image, for the toolstack.  0 or -errno. */
int  vbd_hotplug_connected(struct vbd *v);
int  vbd_hotplug_error(struct vbd *v, const char *why);

/*
 * May somebody else be serving it, too?  True, with v->error: the kernel's
 * backend is there and the disk is of its kind.
 */
bool vbd_contested(struct vbd *v);

/* The domain's, from "/vm/<uuid>"; for the page file only. */
void vbd_read_uuid(struct vbd *v);

/* ---- the disk process; vbd_process.c ---- */

/* Take over one that is running.  False when there is none. */
bool vbd_adopt(struct vbd *v);

/* Start one and have it open the image. */
void vbd_open_image(struct vbd *v);

/*
 * Start one that goes on with the connection that the page file tells of.
 * False when there is no such page.
 */
bool vbd_succeed(struct vbd *v);

/*
 * Start one that only brings the image up to date with what the page file's
 * redo memory holds.  False when it holds nothing.
 */
bool vbd_redo(struct vbd *v);

/* Start one with v->spec, as v->resume says; else IMAGE_FAILED. */
void vbd_start_process(struct vbd *v);

/* CLOSE, once: it will finish what is in flight, and end. */
void vbd_close_process(struct vbd *v);

/* Part from it without a word; it goes on serving. */
void vbd_leave_process(struct vbd *v);

/* For one that must not finish anything: a process that does not answer. */
void vbd_kill_process(struct vbd *v);

/*
 * Its page file, as page_open() does, which see; page_close() it.  'path' is
 * filled in any case, for messages.
 */
#define VBD_PAGE_PATH 128u	/* bytes, NUL included */
int  vbd_open_page(const struct vbd *v, char path[VBD_PAGE_PATH],
         const struct page **page, struct page_shape *shape);

/* What it has left behind. */
void vbd_remove_page(struct vbd *v);

/*
 * Whose it is, for one that has said nothing of use; 0: nobody's.  It must not
 * serve on beside its successor.
 */
pid_t vbd_page_pid(struct vbd *v);

/* Does it hold something that the image lacks? */
bool vbd_redo_left(struct vbd *v);

/*
 * Which rings it tells of (v->rings), and which connection.  False: none.
 */
bool vbd_read_page(struct vbd *v);

/* Have the rings of v->rings mapped, or let go of it. */
void vbd_connect(struct vbd *v);
void vbd_disconnect(struct vbd *v);

/* Have it issue again what failed: on-error=stop.  False: nothing waits. */
bool vbd_retry(struct vbd *v);

/* No new try until the frontend comes again. */
void vbd_link_failed(struct vbd *v, const char *why);

/* A child of the supervisor has ended. */
void vbd_reaped(struct supervisor *sup, pid_t pid, int status);

/* ---- another size; vbd_resize.c ---- */

/*
 * Have the disk made larger, or with a size of 0 as large as its file.  Done
 * when v->resizing is false and the guest, if there is one, has been told.
 * -errno: not now, and why.
 */
int  vbd_resize(struct vbd *v, uint64_t size, char why[WHY_MAX]);

/* Its answer has come, or will not come. */
void vbd_resized(struct vbd *v, const struct message *m);
void vbd_resize_lost(struct vbd *v);

/* Tell the guest, if it does not know.  0 or -errno, as act() in vbd.c. */
int  vbd_publish_size(struct vbd *v);

/* Is the guest to be told of a size that it does not know yet? */
bool vbd_size_untold(const struct vbd *v);

#endif
