/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * qcow2_layer: see qcow2_layer.h.
 *
 * An image names the file below it, and who wrote the image may have been a
 * guest or a stranger.  So a name is only a wish:
 *
 *   name in the header --> path --> where it really lies --> the file
 *     no protocol,          relative    below a folder that    not yet in
 *     format given          to its      is allowed             the chain
 *                           image
 *
 * Where it lies is looked at twice: through a descriptor that cannot read
 * (O_PATH), because the open of some devices does something, and again
 * through the one that is going to be read, because the name may by then
 * stand for something else.
 *
 * Checks that hold two things in the file against each other may fail at
 * open only because another host writes it; so what bounds others (the size)
 * is read last, and everything is checked again under the lock.
 */
#include "drivers/qcow2_layer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "drivers/lock.h"

#define PAGE            4096u
#define AT_CLUSTER_BITS 20u
#define L1_RESERVED     (0x7f00000000000000ull | 0x1ffull)

/* An entry of the snapshot table, as far as its length goes. */
#define SNAPSHOT_BYTES     40u
#define SNAPSHOT_AT_ID     12u		/* u16: bytes of the id */
#define SNAPSHOT_AT_NAME   14u		/* u16: bytes of the name */
#define SNAPSHOT_AT_EXTRA  36u		/* u32: bytes before both */
#define SNAPSHOT_MAX_EXTRA 1024u	/* as QEMU; and of all of them */
#define SNAPSHOT_MAX_TABLE (64ull << 20)
#define SNAPSHOT_WINDOW    65536u

/* A chain while it is being opened. */
struct chain {
	const struct image_options *opt;
	struct qcow2_layer *top;
	struct qcow2_layer *last;	/* opened so far */
	char   *folder;		/* where the topmost one really lies */
	char   *why;
};

/*
 * Say what is wrong with the file 'path' at 'depth'.
 */
static void __attribute__((format(printf, 4, 5)))
layer_say(char why[WHY_MAX], const char *path, unsigned depth,
    const char *fmt, ...)
{
	char what[WHY_MAX];
	va_list ap;

	va_start(ap, fmt);
	if (vsnprintf(what, sizeof(what), fmt, ap) < 0)
		what[0] = '\0';
	va_end(ap);
	if (depth == 0)
		why_set(why, "open %.160s: %s", path, what);
	else
		why_set(why, "open %.160s (layer %u of the chain): %s", path,
		    depth, what);
}

/* Put the layer in front of what a part of it said. */
static void
layer_prefix(const struct qcow2_layer *l, char why[WHY_MAX])
{
	char what[WHY_MAX];

	if (l->depth == 0)
		return;
	memcpy(what, why, WHY_MAX);
	why_set(why, "layer %u of the chain: %s", l->depth, what);
}

static int
layer_no_memory(const struct qcow2_layer *l, char why[WHY_MAX])
{
	layer_say(why, l->file.path, l->depth, "out of memory; free some, or "
	    "attach fewer disks");
	return -ENOMEM;
}

static int
layer_read_failed(const struct qcow2_layer *l, const char *what,
    uint64_t offset, int rc, char why[WHY_MAX])
{
	layer_say(why, l->file.path, l->depth, "read the %s at 0x%" PRIx64
	    ": %s; see the kernel log (dmesg) for what is wrong with its "
	    "storage", what, offset, strerror(-rc));
	return rc;
}

/* Zeroed memory for direct I/O; at least one page. */
static void *
pages_alloc(size_t bytes)
{
	size_t room = (bytes + PAGE - 1) / PAGE * PAGE;
	void *p;

	if (room == 0)
		room = PAGE;
	if (posix_memalign(&p, PAGE, room) != 0)
		return NULL;
	memset(p, 0, room);
	return p;
}

static size_t
whole_sectors(uint64_t bytes)
{
	return (size_t)((bytes + SECTOR - 1) / SECTOR * SECTOR);
}

/*
 * The header.
 */

/* How much of the file holds it: a cluster, once that is known. */
static int
layer_read_head(const struct qcow2_layer *l, void **head, size_t *bytes)
{
	uint32_t bits;
	void *p;
	int rc;

	p = pages_alloc(PAGE);
	if (p == NULL)
		return -ENOMEM;
	rc = file_pread(&l->file, p, SECTOR, 0);
	memcpy(&bits, (char *)p + AT_CLUSTER_BITS, sizeof(bits));
	bits = be32toh(bits);
	free(p);
	if (rc < 0)
		return rc;
	if (bits < QCOW2_MIN_CLUSTER_BITS || bits > QCOW2_MAX_CLUSTER_BITS)
		bits = QCOW2_MIN_CLUSTER_BITS;
	*bytes = (size_t)1 << bits;
	*head = pages_alloc(*bytes);
	if (*head == NULL)
		return -ENOMEM;
	rc = file_pread(&l->file, *head, *bytes, 0);
	if (rc < 0)
		free(*head);
	return rc;
}

static int
layer_read_header(struct qcow2_layer *l, struct qcow2_header *h,
    char why[WHY_MAX])
{
	char what[WHY_MAX];
	size_t bytes;
	void *head;
	int rc;

	rc = layer_read_head(l, &head, &bytes);
	if (rc == -ENOMEM)
		return layer_no_memory(l, why);
	if (rc < 0)
		return layer_read_failed(l, "header", 0, rc, why);
	rc = file_read_size(&l->file, why);
	if (rc < 0) {
		layer_prefix(l, why);
	} else {
		if (bytes > l->file.size)
			bytes = (size_t)l->file.size;
		rc = qcow2_header_parse(head, bytes, l->file.size, h, what);
		if (rc < 0)
			layer_say(why, l->file.path, l->depth, "%s%s", what,
			    rc != -EINVAL ? "" : "; see what 'qemu-img check' "
			    "says, or restore the image from a backup");
	}
	free(head);
	return rc;
}

/*
 * What must not be written to.  Read-only, neither matters: refcounts are
 * not looked at then.
 */
static int
layer_check_state(const struct qcow2_layer *l, const struct qcow2_header *h,
    char why[WHY_MAX])
{
	bool corrupt = (h->incompatible & QCOW2_INCOMPAT_CORRUPT) != 0;

	if (l->file.readonly || (h->incompatible &
	    (QCOW2_INCOMPAT_DIRTY | QCOW2_INCOMPAT_CORRUPT)) == 0)
		return 0;
	layer_say(why, l->file.path, l->depth, "incompatible_features is 0x%"
	    PRIx64 ": bit %s set, %s; run 'qemu-img check -r all %.160s' "
	    "while nothing uses it, or attach it read-only", h->incompatible,
	    corrupt ? "1 (corrupt) is" : "0 (dirty) is",
	    corrupt ? "something has found damage in it" :
	    "it was not closed and its refcounts are out of date",
	    l->file.path);
	return -EUCLEAN;
}

/*
 * The snapshot table.  Nothing of it is needed but that it is sound: who
 * follows it (qemu-img, a copy of refcounts) must be able to.
 */

struct window {
	unsigned char *buf;		/* SNAPSHOT_WINDOW bytes of the file */
	uint64_t       first;		/* from here; UINT64_MAX: none yet */
};

static int
window_look(struct window *w, const struct file *f, uint64_t at,
    unsigned char entry[SNAPSHOT_BYTES])
{
	int rc;

	if (w->first > at ||
	    at + SNAPSHOT_BYTES > w->first + SNAPSHOT_WINDOW) {
		w->first = at & ~(uint64_t)(SECTOR - 1);
		rc = file_pread(f, w->buf, SNAPSHOT_WINDOW, w->first);
		if (rc < 0)
			return rc;
	}
	memcpy(entry, w->buf + (at - w->first), SNAPSHOT_BYTES);
	return 0;
}

static uint64_t
snapshot_bytes(const unsigned char *entry, uint32_t *extra)
{
	uint16_t id, name;

	memcpy(&id, entry + SNAPSHOT_AT_ID, sizeof(id));
	memcpy(&name, entry + SNAPSHOT_AT_NAME, sizeof(name));
	memcpy(extra, entry + SNAPSHOT_AT_EXTRA, sizeof(*extra));
	*extra = be32toh(*extra);
	return SNAPSHOT_BYTES + (uint64_t)*extra + be16toh(id) +
	    be16toh(name);
}

static int
layer_walk_snapshots(const struct qcow2_layer *l,
    const struct qcow2_header *h, struct window *w, char why[WHY_MAX])
{
	unsigned char entry[SNAPSHOT_BYTES];
	uint64_t at = h->snapshots_offset, end;
	uint32_t n, extra;
	int rc;

	for (n = 0; n < h->nr_snapshots; n++) {
		rc = window_look(w, &l->file, at, entry);
		if (rc < 0)
			return layer_read_failed(l, "snapshot table", at, rc,
			    why);
		end = at + snapshot_bytes(entry, &extra);
		if (extra > SNAPSHOT_MAX_EXTRA) {
			layer_say(why, l->file.path, l->depth, "snapshot %u: "
			    "extra_data_size is %u, 0 to 1024 is allowed; run "
			    "'qemu-img check -r all' on it", n, extra);
			return -EINVAL;
		}
		if (end > l->file.size ||
		    end - h->snapshots_offset > SNAPSHOT_MAX_TABLE) {
			layer_say(why, l->file.path, l->depth, "snapshot %u: "
			    "its id and name end at 0x%" PRIx64 ", beyond %s; "
			    "run 'qemu-img check -r all' on it", n, end,
			    end > l->file.size ? "the end of the file" :
			    "the 64 MiB that a snapshot table may have");
			return -EINVAL;
		}
		at = (end + 7) / 8 * 8;
	}
	return 0;
}

static int
layer_check_snapshots(const struct qcow2_layer *l,
    const struct qcow2_header *h, char why[WHY_MAX])
{
	struct window w = { .first = UINT64_MAX };
	int rc;

	if (h->nr_snapshots == 0)
		return 0;
	w.buf = pages_alloc(SNAPSHOT_WINDOW);
	if (w.buf == NULL)
		return layer_no_memory(l, why);
	rc = layer_walk_snapshots(l, h, &w, why);
	free(w.buf);
	return rc;
}

/*
 * The L1 table.
 */

static bool
overlaps(uint64_t offset, uint64_t bytes, uint64_t other,
    uint64_t other_bytes)
{
	return offset < other + other_bytes && other < offset + bytes;
}

/* What is wrong with an entry; NULL: nothing. */
static const char *
l1_fault(const struct qcow2_header *h, uint64_t file_size, uint64_t entry)
{
	uint64_t cluster = 1ull << h->cluster_bits;
	uint64_t offset = entry & QCOW2_OFFSET_MASK;

	if ((entry & L1_RESERVED) != 0)
		return "reserved bits are set";
	if (offset == 0)
		return NULL;		/* no L2 table */
	if (offset % cluster != 0)
		return "it is not at a multiple of the cluster size";
	if (offset >= file_size)
		return "it lies beyond the end of the file";
	if (overlaps(offset, cluster, h->l1_offset,
	    (uint64_t)h->l1_entries * 8))
		return "it lies in the L1 table";
	if (overlaps(offset, cluster, h->reftable_offset,
	    (uint64_t)h->reftable_clusters * cluster))
		return "it lies in the refcount table";
	return NULL;
}

static int
layer_check_l1(const struct qcow2_layer *l, const struct qcow2_header *h,
    const uint64_t *l1, char why[WHY_MAX])
{
	const char *fault;
	uint32_t i;

	for (i = 0; i < h->l1_entries; i++) {
		if (l1[i] == 0)
			continue;
		fault = l1_fault(h, l->file.size, be64toh(l1[i]));
		if (fault == NULL)
			continue;
		layer_say(why, l->file.path, l->depth, "L1 entry %u (at 0x%"
		    PRIx64 ") is 0x%" PRIx64 ": no L2 table can be there, %s; "
		    "see what 'qemu-img check' says, or restore the image "
		    "from a backup", i, h->l1_offset + (uint64_t)i * 8,
		    be64toh(l1[i]), fault);
		return -EINVAL;
	}
	return 0;
}

/* Measured after the table was read: a file grows before its tables do. */
static int
layer_read_l1(struct qcow2_layer *l, const struct qcow2_header *h,
    uint64_t **l1, char why[WHY_MAX])
{
	size_t bytes = (size_t)h->l1_entries * 8;
	int rc;

	*l1 = pages_alloc(bytes);
	if (*l1 == NULL)
		return layer_no_memory(l, why);
	rc = file_pread(&l->file, *l1, whole_sectors(bytes), h->l1_offset);
	if (rc < 0) {
		free(*l1);
		return layer_read_failed(l, "L1 table", h->l1_offset, rc,
		    why);
	}
	memset((char *)*l1 + bytes, 0, whole_sectors(bytes) - bytes);
	rc = file_read_size(&l->file, why);
	if (rc < 0) {
		layer_prefix(l, why);
		free(*l1);
	}
	return rc;
}

/*
 * Read and check everything.  On failure the layer is as it was but for
 * file.size.  Inspected: what only damages the content may pass, somebody
 * wants to know how bad it is.
 */
static int
layer_read(struct qcow2_layer *l, struct qcow2_header *h, uint64_t **l1,
    char why[WHY_MAX])
{
	int rc;

	*l1 = NULL;
	rc = layer_read_header(l, h, why);
	if (rc == 0)
		rc = layer_check_state(l, h, why);
	if (rc == 0 && l->depth == 0 && qcow2_virtual_size(h) == 0) {
		layer_say(why, l->file.path, l->depth, "size is %" PRIu64
		    ", a disk needs at least 512 bytes; give it its size with "
		    "'qemu-img resize'", h->size);
		rc = -ENODATA;
	}
	if (rc == 0)
		rc = layer_read_l1(l, h, l1, why);
	if (rc != 0 || l->inspect)
		return rc;
	rc = layer_check_l1(l, h, *l1, why);
	if (rc == 0 && l->depth == 0)
		rc = layer_check_snapshots(l, h, why);
	if (rc < 0)
		free(*l1);
	return rc;
}

static void
layer_take(struct qcow2_layer *l, const struct qcow2_header *h, uint64_t *l1)
{
	free(l->l1);
	l->l1 = l1;
	l->h = *h;
	l->size = qcow2_virtual_size(h);
}

static int
layer_load(struct qcow2_layer *l, char why[WHY_MAX])
{
	struct qcow2_header h;
	uint64_t *l1;
	int rc;

	if (l->raw) {
		l->size = l->file.size & ~(uint64_t)(SECTOR - 1);
		return 0;
	}
	rc = layer_read(l, &h, &l1, why);
	if (rc == 0)
		layer_take(l, &h, l1);
	return rc;
}

/*
 * Names and places.
 */

/* Where the file behind 'fd' lies, without any link.  NULL: errno says. */
static char *
real_path(int fd)
{
	char link[64], path[PATH_MAX + 1];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	if (n == -1)
		return NULL;
	path[n] = '\0';
	return strdup(path);
}

/* Both without links. */
static bool
lies_below(const char *path, const char *folder)
{
	size_t n = strlen(folder);

	while (n > 0 && folder[n - 1] == '/')
		n--;
	return strncmp(path, folder, n) == 0 && path[n] == '/';
}

static bool
is_allowed_place(const struct chain *c, const char *path)
{
	const char *const *root = c->opt->backing_roots;
	bool allowed = false;
	char *real;

	if (root == NULL)
		return lies_below(path, c->folder);
	for (; *root != NULL && !allowed; root++) {
		real = realpath(*root, NULL);
		/* A folder that is not there has nothing below it. */
		allowed = real != NULL && lies_below(path, real);
		free(real);
	}
	return allowed;
}

static int
chain_check_place(const struct chain *c, int fd, const char *path,
    unsigned depth)
{
	const char *first;
	char *real;
	int rc;

	real = real_path(fd);
	if (real == NULL) {
		rc = -errno;
		layer_say(c->why, path, depth, "find out where it lies: %s; "
		    "/proc must be mounted", strerror(-rc));
		return rc;
	}
	rc = is_allowed_place(c, real) ? 0 : -EPERM;
	if (rc < 0) {
		first = c->opt->backing_roots == NULL ? c->folder :
		    c->opt->backing_roots[0];
		layer_say(c->why, path, depth, "a backing file must lie below "
		    "%.100s%s, and this one is %.160s; move it, or allow its "
		    "folder with ringbackd --backing-root",
		    first == NULL ? "a folder of --backing-root" : first,
		    c->opt->backing_roots != NULL && first != NULL &&
		    c->opt->backing_roots[1] != NULL ? " or another folder of "
		    "--backing-root" : "", real);
	}
	free(real);
	return rc;
}

/*
 * Look before the open.  What goes wrong here for another reason goes wrong
 * at the open too, which explains it; an old kernel without openat2 leaves
 * it to the second look.
 */
static int
chain_look(const struct chain *c, const char *path, unsigned depth)
{
	struct open_how how = {
		.flags = O_PATH | O_CLOEXEC,
		.resolve = RESOLVE_NO_MAGICLINKS,
	};
	int fd, rc;

	fd = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how));
	if (fd == -1 && errno == ELOOP) {
		layer_say(c->why, path, depth, "its path goes through a link "
		    "of /proc to an open file, or through too many links; "
		    "name the file itself with 'qemu-img rebase -u'");
		return -ELOOP;
	}
	if (fd == -1)
		return 0;
	rc = chain_check_place(c, fd, path, depth);
	close(fd);
	return rc;
}

/* QEMU would open a word before a ':' as a protocol, with options in it. */
static int
chain_check_name(const struct chain *c, const struct qcow2_layer *l)
{
	const char *name = l->h.backing;
	size_t n = strcspn(name, ":/");

	if (name[n] != ':')
		return 0;
	layer_say(c->why, l->file.path, l->depth, "backing file name "
	    "'%.100s' begins with the protocol '%.*s:', and only files are "
	    "served; name a file with 'qemu-img rebase -u -b FILE -F FORMAT' "
	    "(with ./ before a name that has a ':')", name,
	    n > 32 ? 32 : (int)n, name);
	return -EOPNOTSUPP;
}

/* Never guessed: a guest could write a header into its raw disk. */
static int
chain_check_format(const struct chain *c, const struct qcow2_layer *l,
    bool *raw)
{
	const char *format = l->h.backing_format;

	*raw = strcmp(format, "raw") == 0;
	if (*raw || strcmp(format, "qcow2") == 0)
		return 0;
	if (format[0] == '\0') {
		layer_say(c->why, l->file.path, l->depth, "the format of its "
		    "backing file '%.100s' is not given (no header extension "
		    "0xe2792aca) and is never guessed; give it with 'qemu-img "
		    "rebase -u -b FILE -F raw' (or -F qcow2)", l->h.backing);
		return -EINVAL;
	}
	layer_say(c->why, l->file.path, l->depth, "backing format is '%s', "
	    "raw and qcow2 are known; convert the backing file '%.100s' with "
	    "'qemu-img convert' and name the new one with 'qemu-img rebase'",
	    format, l->h.backing);
	return -EOPNOTSUPP;
}

/* Relative names count from the folder of the file that has them. */
static char *
backing_path(const struct qcow2_layer *l)
{
	const char *slash = strrchr(l->file.path, '/');
	char *path;

	if (l->h.backing[0] == '/' || slash == NULL)
		return strdup(l->h.backing);
	if (asprintf(&path, "%.*s%s", (int)(slash + 1 - l->file.path),
	    l->file.path, l->h.backing) == -1)
		return NULL;
	return path;
}

/*
 * Open.
 */

/* The chain would go round for ever. */
static int
chain_check_loop(const struct chain *c, const struct qcow2_layer *last)
{
	const struct qcow2_layer *l;

	for (l = c->top; l != last; l = l->backing) {
		if (l->file.dev != last->file.dev ||
		    l->file.ino != last->file.ino)
			continue;
		layer_say(c->why, last->file.path, last->depth, "the backing "
		    "files go in a circle: this is layer %u, %.160s, again; "
		    "name the right backing file with 'qemu-img rebase -u'",
		    l->depth, l->file.path);
		return -ELOOP;
	}
	return 0;
}

static int
chain_add(struct chain *c, const char *path, bool raw)
{
	bool inspect = c->opt->inspect, top = c->top == NULL;
	struct qcow2_layer *l;
	int rc;

	l = calloc(1, sizeof(*l));
	if (l == NULL) {
		layer_say(c->why, path, 0, "out of memory");
		return -ENOMEM;
	}
	l->raw = raw;
	l->inspect = inspect;
	l->depth = top ? 0 : c->last->depth + 1;
	rc = file_open(&l->file, path, !top || c->opt->readonly || inspect,
	    c->opt->cache, c->why);
	if (rc < 0) {
		layer_prefix(l, c->why);
		free(l);
		return rc;
	}
	l->file.keep_cache = c->opt->resumed;
	if (top)
		c->top = l;
	else
		c->last->backing = l;
	c->last = l;
	if (!top) {
		rc = chain_check_place(c, l->file.fd, path, l->depth);
		if (rc == 0)
			rc = chain_check_loop(c, l);
	}
	return rc < 0 ? rc : layer_load(l, c->why);
}

static int
chain_find_folder(struct chain *c)
{
	const struct qcow2_layer *l = c->top;
	char *slash;
	int rc;

	c->folder = real_path(l->file.fd);
	if (c->folder == NULL) {
		rc = -errno;
		layer_say(c->why, l->file.path, 0, "find out where it lies: "
		    "%s; /proc must be mounted", strerror(-rc));
		return rc;
	}
	slash = strrchr(c->folder, '/');
	if (slash != NULL)
		slash[slash == c->folder] = '\0';
	return 0;
}

/* One layer more: what 'last' names. */
static int
chain_descend(struct chain *c)
{
	const struct qcow2_layer *l = c->last;
	char *path;
	bool raw;
	int rc;

	if (l->depth + 1 >= QCOW2_MAX_DEPTH) {
		layer_say(c->why, l->file.path, l->depth, "it names a backing "
		    "file '%.100s', and a chain may have %u layers; shorten "
		    "it with 'qemu-img commit' or 'qemu-img rebase'",
		    l->h.backing, QCOW2_MAX_DEPTH);
		return -ELOOP;
	}
	rc = chain_check_name(c, l);
	if (rc == 0)
		rc = chain_check_format(c, l, &raw);
	if (rc < 0)
		return rc;
	path = backing_path(l);
	if (path == NULL)
		return layer_no_memory(l, c->why);
	rc = chain_look(c, path, l->depth + 1);
	if (rc == 0)
		rc = chain_add(c, path, raw);
	free(path);
	return rc;
}

int
qcow2_chain_open(const struct image_options *opt, struct qcow2_layer **top,
    char why[WHY_MAX])
{
	struct chain c = { .opt = opt, .why = why };
	int rc;

	rc = chain_add(&c, opt->path, false);
	if (rc == 0)
		rc = chain_find_folder(&c);
	while (rc == 0 && !c.last->raw && c.last->h.backing[0] != '\0')
		rc = chain_descend(&c);
	free(c.folder);
	if (rc < 0) {
		qcow2_chain_close(c.top);
		return rc;
	}
	*top = c.top;
	return 0;
}

void
qcow2_chain_close(struct qcow2_layer *top)
{
	struct qcow2_layer *next;

	for (; top != NULL; top = next) {
		next = top->backing;
		file_close(&top->file);
		free(top->l1);
		free(top);
	}
}

/*
 * Lock.
 */

/* As QEMU: a file below is read only, and nobody may change it meanwhile. */
static int
layer_lock(const struct qcow2_layer *l, char why[WHY_MAX])
{
	unsigned hold = PERM_CONSISTENT_READ;
	int rc;

	if (!l->file.readonly)
		hold |= PERM_WRITE | PERM_RESIZE;
	rc = lock_take(l->file.fd, hold, PERM_WRITE | PERM_RESIZE,
	    l->file.path, why);
	if (rc < 0)
		layer_prefix(l, why);
	return rc;
}

static int
layer_changed(const struct qcow2_layer *l, const char *field,
    const char *was, const char *is, char why[WHY_MAX])
{
	layer_say(why, l->file.path, l->depth, "%s was '%.80s' when it was "
	    "opened and is '%.80s' now, and that cannot change under an open "
	    "disk; detach the disk and attach it again", field, was, is);
	return -ESTALE;
}

static int
layer_changed_number(const struct qcow2_layer *l, const char *field,
    uint64_t was, uint64_t is, char why[WHY_MAX])
{
	char text[2][24];

	snprintf(text[0], sizeof(text[0]), "%" PRIu64, was);
	snprintf(text[1], sizeof(text[1]), "%" PRIu64, is);
	return layer_changed(l, field, text[0], text[1], why);
}

/* What was made at open, files and memory, must still fit. */
static int
layer_check_same(const struct qcow2_layer *l, const struct qcow2_header *h,
    char why[WHY_MAX])
{
	const struct qcow2_header *o = &l->h;
	const struct { const char *name; uint64_t was, is; } numbers[] = {
		{ "version", o->version, h->version },
		{ "cluster_bits", o->cluster_bits, h->cluster_bits },
		{ "refcount_order", o->refcount_order, h->refcount_order },
		{ "compression_type", o->compression, h->compression },
		{ "extended L2 entries", qcow2_extended(o),
		    qcow2_extended(h) },
	};
	size_t i;

	for (i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (numbers[i].was != numbers[i].is)
			return layer_changed_number(l, numbers[i].name,
			    numbers[i].was, numbers[i].is, why);
	if (strcmp(o->backing, h->backing) != 0)
		return layer_changed(l, "backing file name", o->backing,
		    h->backing, why);
	if (h->backing[0] != '\0' &&
	    strcmp(o->backing_format, h->backing_format) != 0)
		return layer_changed(l, "backing format", o->backing_format,
		    h->backing_format, why);
	return 0;
}

static int
layer_reload(struct qcow2_layer *l, char why[WHY_MAX])
{
	struct qcow2_header h;
	uint64_t *l1;
	int rc;

	if (l->raw) {
		rc = file_read_size(&l->file, why);
		if (rc < 0) {
			layer_prefix(l, why);
			return rc;
		}
		return layer_load(l, why);
	}
	rc = layer_read(l, &h, &l1, why);
	if (rc < 0)
		return rc;
	rc = layer_check_same(l, &h, why);
	if (rc < 0)
		free(l1);
	else
		layer_take(l, &h, l1);
	return rc;
}

/* Unlock from 'l' up to but not including 'end'. */
static int
chain_release(struct qcow2_layer *l, const struct qcow2_layer *end,
    char why[WHY_MAX])
{
	char what[WHY_MAX];
	int rc = 0, rc2;

	for (; l != end; l = l->backing) {
		rc2 = lock_release(l->file.fd, l->file.path, what);
		if (rc2 == 0 || rc < 0)
			continue;
		rc = rc2;
		memcpy(why, what, WHY_MAX);
		layer_prefix(l, why);
	}
	return rc;
}

int
qcow2_chain_lock(struct qcow2_layer *top, char why[WHY_MAX])
{
	char unlock_why[WHY_MAX];
	struct qcow2_layer *l;
	int rc = 0;

	for (l = top; l != NULL; l = l->backing) {
		rc = layer_lock(l, why);
		if (rc < 0)
			break;
	}
	if (rc < 0) {
		chain_release(top, l, unlock_why);
		return rc;
	}
	for (l = top; l != NULL && rc == 0; l = l->backing) {
		file_drop_cache(&l->file);
		rc = layer_reload(l, why);
	}
	if (rc < 0)
		chain_release(top, NULL, unlock_why);
	return rc;
}

int
qcow2_chain_unlock(struct qcow2_layer *top, char why[WHY_MAX])
{
	return chain_release(top, NULL, why);
}
