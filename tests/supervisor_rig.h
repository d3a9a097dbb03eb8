/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A supervisor under test: ringbackd with fake disk processes (fake_disk.c), a
 * real xenstored, a domain (loopxen), and this program in the parts of the
 * toolstack, the guest's blkfront and the command line.
 *
 * Whatever cannot do its work, or does not happen in time, fails the test.
 */
#ifndef TESTS_SUPERVISOR_RIG_H
#define TESTS_SUPERVISOR_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <cmocka.h>
#include <jansson.h>
#include <xenstore.h>

#define DOMID 7
#define XVDA 51712u
#define XVDB 51728u
#define XVDC 51744u
#define OURS "/etc/xen/scripts/block-ringback"

#define ATTACH(vdev, spec, more) "{\"op\": \"attach\", \"domain\": \"web1\", " \
	"\"vdev\": \"" vdev "\", \"spec\": \"" spec "\"" more "}"
#define ATTACH_B(spec) ATTACH("xvdb", spec, ", \"wait\": false")
#define DETACH_B "{\"op\": \"detach\", \"domain\": \"7\", \"vdev\": \"xvdb\"}"
#define DETACH_B_1S "{\"op\": \"detach\", \"domain\": \"web1\", " \
	"\"vdev\": \"xvdb\", \"timeout\": 1}"
#define GONE  (-1)	/* a state: there is no node */

struct loopguest;

struct rig {
	char              dir[64];	/* the daemon's run directory */
	char              log[80];	/* what it has said */
	const char       *kinds;	/* that it serves */
	const char       *toolstack;	/* whose order it keeps */
	char              sysfs[80];	/* a folder that is not there */
	const char       *mode;		/* of xl_attach(): "w" or "r" */
	const char       *direct_safe;	/* likewise; NULL: no such node */
	const char       *type;		/* likewise; NULL: "disk" */
	const char       *xl_kind;	/* where xl puts its disks: "vbd" */
	char              notify[80];	/* systemd's socket */
	int               notify_fd;
	pid_t             daemon;
	struct xs_handle *xs;
	struct loopguest *guest;	/* domain DOMID, named "web1" */
};

/* cmocka fixtures: everything fresh, and everything gone. */
int  rig_setup(void **state);
int  rig_teardown(void **state);
#define RIG_TEST(f) cmocka_unit_test_setup_teardown(f, rig_setup, rig_teardown)

void rig_start(struct rig *r);		/* the daemon; until it is ready */
void rig_signal(struct rig *r, int signal);	/* and waits for its end */
void rig_end_domain(struct rig *r);	/* its nodes go, as with xl destroy */
/* What it told systemd next. */
void rig_notified(struct rig *r, const char *text);
bool rig_log_has(struct rig *r, const char *text);
unsigned rig_log_lines(struct rig *r, const char *text);

/* ---- the command line ---- */

/* A question on the control socket, and its answer. */
int  ask(struct rig *r, const char *question);
int  ask_partly(struct rig *r, const char *question);	/* no end of line */
json_t *answer(int fd);
/* Its answer is {"ok": true}, or an error with 'text' in it. */
void answer_ok(int fd);
void answer_error(int fd, const char *text);
void ask_ok(struct rig *r, const char *question);
/* The disk in "list", borrowed from *list; NULL when it is not there. */
json_t *listed(struct rig *r, unsigned devid, json_t **list);
bool list_error_has(struct rig *r, unsigned devid, const char *text);

/* ---- xenstore ---- */

void node_write(struct rig *r, const char *dir, const char *name,
         const char *value);
/* NULL when there is none; the caller frees it. */
char *node_read(struct rig *r, const char *dir, const char *name);
bool node_is(struct rig *r, const char *dir, const char *name,
         const char *value);
bool node_exists(struct rig *r, const char *path);
int  state_of(struct rig *r, const char *dir);
void dir_remove(struct rig *r, const char *path);

/* Directories of disks. */
const char *be_dir(const char *kind, unsigned devid);
const char *fe_dir(unsigned devid);

/* Wait up to 5 s until the backend's state is 'state'. */
void await_state(struct rig *r, const char *dir, int state);
void await_gone(struct rig *r, const char *path);
/* ... or, to see that nothing happens, wait a moment. */
void state_stays(struct rig *r, const char *dir, int state);

/* ---- the toolstack: libxl's transactions ---- */

void xl_attach(struct rig *r, unsigned devid, const char *spec,
         const char *script);
void xl_detach(struct rig *r, unsigned devid);	/* online=0, state=5 */
void xl_destroy(struct rig *r, unsigned devid);	/* and the frontend removed */
void xl_remove(struct rig *r, unsigned devid);	/* the directories, at last */
int  xl_script(struct rig *r, const char *action, unsigned devid);

/* ---- the guest ---- */

void fe_state(struct rig *r, unsigned devid, int state);
void fe_ring(struct rig *r, unsigned devid, unsigned gref, unsigned port);
/* From InitWait to Connected. */
void fe_connect(struct rig *r, const char *kind, unsigned devid);

/* ---- the disk processes ---- */

/* How often the disk's process has been told 'what' (fake_disk.c). */
unsigned told(struct rig *r, unsigned devid, const char *what);
void await_told(struct rig *r, unsigned devid, const char *what, unsigned n);
void let_go(struct rig *r);		/* those that hang go on */
pid_t disk_pid(struct rig *r, unsigned devid);
/* No file of a disk is left in the run directory. */
void nothing_left(struct rig *r);

/* ---- short ways to say it ---- */

const char *by_hand(unsigned devid);
const char *by_xl(unsigned devid);
void assert_node(struct rig *r, const char *dir, const char *name,
         const char *value);
void assert_permissions(struct rig *r, const char *path, unsigned owner,
         unsigned reader);
/* xvdb is attached, and the guest has connected. */
void attach_b(struct rig *r, const char *question);

#define UNTIL(condition) do {						\
	int tries_ = 500;						\
	while (!(condition) && --tries_ > 0)				\
		rig_pause(10);						\
	if (tries_ == 0)						\
		fail_msg("not within 5 s: %s", #condition);		\
} while (0)

void rig_pause(unsigned ms);
int64_t rig_now_ms(void);

#endif
