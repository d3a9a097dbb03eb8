/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * An image as anybody may hand it over, and a guest that uses it.
 *
 * The input says how the image is opened, what the guest does, and what is
 * in the file (tests/fuzz/make-qcow2 writes such inputs):
 *
 *   mode   nr   nr x { what  size  place }   sectors   { at  length  bytes }...
 *   u8     u8          u8    u8    u16       u16         u16 u16
 *
 * All big endian.  'at' counts units of 8 bytes; what no chunk says is zero.
 *
 * What must hold, whatever the image says: each I/O ends once; a disk that is
 * read-only, and one that was refused, leave the file as it was; a backing
 * file is never changed; no guest data comes to lie in the header.
 *
 * And if the check has nothing to say against the image: what the guest wrote
 * can be read until it is written again, and there is nothing to say
 * afterwards; both also when the process dies before it can write back what
 * the guest changed.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/fuzz/aio_now.h"

#define OPS_MAX     16u
#define SECTORS_MAX 1024u		/* of the file, as it is handed over */
#define IO_MAX      (32u << 10)		/* bytes of one I/O */
#define BASE_BYTES  (64u << 10)
#define WAIT_MS     20000
#define NEVER_ACTIVE 3			/* exit code */
#define REDO_MAX    (1u << 20)		/* bytes of memory that is lent */
#define GUEST       0xc0		/* what a guest writes, plus its op */
#define MODEL_MAX   (OPS_MAX * IO_MAX / 512)

enum mode {
	MODE_READONLY = 1, MODE_DISCARD = 2, MODE_DSYNC = 4, MODE_REDO = 8,
	MODE_INSPECT = 16, MODE_TWICE = 32, MODE_ORDER = 3 << 6,
	MODE_DIE = MODE_REDO | MODE_TWICE,	/* both: it dies once */
};

/* Bits of 'what'. */
#define WHAT_OP    3u
#define WHAT_WAIT  4u			/* for all before the next one */
#define WHAT_IOVS  (3u << 3)
#define WHAT_ZEROS 32u

struct op {
	struct io    io;
	struct iovec iov[4];
	unsigned     nr_done;
	int          error;
	void        *buf;		/* IO_MAX */
};

/* What the guest knows of the sectors it has written. */
struct sector {
	uint64_t nr;
	unsigned busy;			/* writes of it under way */
	uint8_t  byte;			/* all of it, if */
	bool     known;
	bool     torn;			/* by several of them, or an error */
};

/* It outlives the death of the process, as the redo log does. */
struct model {
	unsigned      nr;
	struct sector sector[MODEL_MAX];
};

static struct model *model;
static struct op ops[OPS_MAX];
static unsigned nr_inflight, nr_discards;
static char folder[64], top[80], base[80];
static uint8_t before[SECTORS_MAX * 512], after[SECTORS_MAX * 512];
static uint8_t base_data[BASE_BYTES];

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The rest of the input. */
struct input {
	const uint8_t *at;
	size_t         left;
};

static void
must(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "fuzz_qcow2: %s\n", what);
	abort();
}

static uint32_t
take(struct input *in, unsigned bytes)
{
	uint32_t v = 0;

	while (bytes-- > 0) {
		v = v << 8 | (in->left > 0 ? *in->at : 0);
		in->at += in->left > 0;
		in->left -= in->left > 0;
	}
	return v;
}

/*
 * The files.  A folder in memory, where a flush costs nothing, if that takes
 * O_DIRECT (since Linux 6.6); else where temporary files go.
 */

static void
remove_files(void)
{
	unlink(top);
	unlink(base);
	rmdir(folder);
}

static bool
make_folder(const char *where)
{
	int fd;

	snprintf(folder, sizeof(folder), "%s/fuzz-qcow2.XXXXXX", where);
	if (mkdtemp(folder) == NULL)
		return false;
	snprintf(top, sizeof(top), "%s/top", folder);
	snprintf(base, sizeof(base), "%s/base", folder);
	fd = open(top, O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600);
	if (fd >= 0)
		close(fd);
	else
		remove_files();
	return fd >= 0;
}

static void
write_file(const char *path, const uint8_t *data, size_t bytes)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	must(fd >= 0 && write(fd, data, bytes) == (ssize_t)bytes &&
	    close(fd) == 0, "write a file");
}

static size_t
read_file(const char *path, uint8_t *data, size_t room)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	must(fd >= 0, "open a file");
	n = read(fd, data, room);
	must(n >= 0 && close(fd) == 0, "read a file");
	return (size_t)n;
}

static void *
shared_memory(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
	    MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	must(p != MAP_FAILED, "memory");
	return p;
}

static void
prepare(void)
{
	unsigned i;

	if (folder[0] != '\0')
		return;
	must(make_folder("/dev/shm") || make_folder("/tmp") ||
	    make_folder("."), "no folder takes O_DIRECT");
	atexit(remove_files);
	for (i = 0; i < BASE_BYTES; i++)
		base_data[i] = (uint8_t)(i / 512 + 1);
	write_file(base, base_data, BASE_BYTES);
	model = shared_memory(sizeof(*model));
	for (i = 0; i < OPS_MAX; i++)
		must(posix_memalign(&ops[i].buf, 4096, IO_MAX) == 0, "memory");
}

/* The chunks of the input; how many bytes the file has. */
static size_t
make_image(struct input *in)
{
	size_t bytes = (take(in, 2) % SECTORS_MAX + 1) * 512, at, n;

	memset(before, 0, sizeof(before));
	while (in->left > 4) {
		at = (size_t)take(in, 2) * 8;
		n = take(in, 2);
		if (n > in->left)
			n = in->left;
		if (at < bytes)
			memcpy(before + at, in->at, n < bytes - at ? n :
			    bytes - at);
		in->at += n;
		in->left -= n;
	}
	write_file(top, before, bytes);
	return bytes;
}

/*
 * What the guest knows.
 */

static struct sector *
model_find(uint64_t nr)
{
	unsigned i;

	for (i = 0; i < model->nr; i++)
		if (model->sector[i].nr == nr)
			return &model->sector[i];
	return NULL;
}

/*
 * While an op is under way, and after it failed, its sectors hold anything;
 * also those that another op changed meanwhile.
 */
static void
model_begin(const struct op *op)
{
	uint64_t nr = op->io.offset / 512, end = nr + op->io.length / 512;
	bool discard = op->io.op == IO_DISCARD;
	struct sector *s;

	nr_discards += discard;
	for (; nr < end; nr++) {
		s = model_find(nr);
		if (s == NULL && discard)
			continue;
		if (s == NULL) {
			s = &model->sector[model->nr++];
			*s = (struct sector){ .nr = nr };
		}
		s->torn |= s->busy > 0 || (!discard && nr_discards > 0);
		s->known = false;
		s->busy += !discard;
	}
}

static void
model_end(const struct op *op)
{
	uint64_t nr = op->io.offset / 512, end = nr + op->io.length / 512;
	struct sector *s;

	if (op->io.op == IO_DISCARD) {
		nr_discards--;
		return;
	}
	for (; nr < end; nr++) {
		s = model_find(nr);
		s->torn |= op->error != 0;
		if (--s->busy > 0)
			continue;
		s->byte = *(uint8_t *)op->buf;
		s->known = !s->torn;
		s->torn = false;
	}
}

/*
 * The guest.
 */

static void
op_done(struct io *io, int error)
{
	struct op *op = container_of(io, struct op, io);

	must(op->nr_done++ == 0, "an I/O ended twice");
	must(error <= 0 && error > -4096, "an I/O ended with no error code");
	nr_inflight--;
	op->error = error;
	if (io->op == IO_WRITE || io->op == IO_DISCARD)
		model_end(op);
}

/* Until all is done; an edge that does not come is a finding. */
static void
wait_all(struct channel *ch, int epfd)
{
	struct epoll_event ev;
	int n;

	for (;;) {
		channel_reap(ch);
		if (nr_inflight == 0)
			return;
		if (ch->event_fd == -1)
			continue;
		n = epoll_wait(epfd, &ev, 1, WAIT_MS);
		/* libFuzzer has a timer. */
		must(n == 1 || (n == -1 && errno == EINTR),
		    "an I/O does not end");
	}
}

/* Somewhere on the disk: near its beginning, its end, or anywhere. */
static uint64_t
op_place(const struct image *img, unsigned kind, uint64_t place,
    uint64_t length)
{
	uint64_t last = (img->size - length) / 512, sector;

	switch (kind) {
	case 0:
		sector = place;
		break;
	case 1:
		sector = last - (place <= last ? place : 0);
		break;
	case 2:
		sector = place * 128;
		break;
	default:
		sector = last / 65536 * place;
	}
	return (sector <= last ? sector : sector % (last + 1)) * 512;
}

/* Discards are whole granules. */
static bool
op_discard(const struct image *img, struct op *op)
{
	uint64_t g = img->discard_granularity;
	uint64_t end = op->io.offset + op->io.length;

	if (img->readonly || g == 0)
		return false;
	op->io.offset = op->io.offset / g * g;
	end = end / g * g;
	if (op->io.offset < img->discard_alignment || end <= op->io.offset)
		return false;
	op->io.length = end - op->io.offset;
	op->io.iovcnt = 0;
	return true;
}

static void
op_vector(struct op *op, unsigned nr)
{
	uint64_t sectors = op->io.length / 512, n, done = 0;
	unsigned i;

	if (nr > sectors)
		nr = (unsigned)sectors;
	for (i = 0; i < nr; i++) {
		n = i + 1 == nr ? sectors - done : sectors / nr;
		op->iov[i].iov_base = (char *)op->buf + done * 512;
		op->iov[i].iov_len = n * 512;
		done += n;
	}
	op->io.iovcnt = (int)nr;
}

/* false: there is no such I/O on this image. */
static bool
op_make(const struct image *img, struct op *op, struct input *in)
{
	unsigned what = take(in, 1), size = take(in, 1), place = take(in, 2);
	uint64_t length = ((size & 63) + 1) * 512;

	op->nr_done = 0;
	op->io = (struct io){ .op = what & WHAT_OP, .done = op_done,
	    .iov = op->iov };
	if (op->io.op == IO_FLUSH)
		return true;
	op->io.length = length < img->size ? length : img->size;
	op->io.offset = op_place(img, size >> 6, place, op->io.length);
	if (op->io.op == IO_DISCARD) {
		op->io.length *= 16;
		if (op->io.length > img->size - op->io.offset)
			op->io.length = img->size - op->io.offset;
		return op_discard(img, op);
	}
	if (op->io.op == IO_WRITE && img->readonly)
		return false;
	memset(op->buf, what & WHAT_ZEROS ? 0 : GUEST + (int)(op - ops),
	    op->io.length);
	op_vector(op, (what & WHAT_IOVS) / 8 + 1);
	return true;
}

static void
op_submit(struct channel *ch, struct op *op)
{
	if (op->io.op == IO_WRITE || op->io.op == IO_DISCARD)
		model_begin(op);
	nr_inflight++;
	channel_submit(ch, &op->io);
}

/* What is known must be there. */
static void
check_data(struct channel *ch, int epfd)
{
	const struct sector *s;
	struct op *op = &ops[0];
	uint8_t *buf = op->buf;
	unsigned i, k;

	for (i = 0; i < model->nr; i++) {
		s = &model->sector[i];
		if (!s->known)
			continue;
		op->nr_done = 0;
		op->iov[0] = (struct iovec){ buf, 512 };
		op->io = (struct io){ .op = IO_READ, .offset = s->nr * 512,
		    .length = 512, .iov = op->iov, .iovcnt = 1,
		    .done = op_done };
		memset(buf, ~s->byte, 512);
		op_submit(ch, op);
		wait_all(ch, epfd);
		must(op->error == 0, "what was written cannot be read");
		for (k = 0; k < 512; k++)
			must(buf[k] == s->byte, "what was written is lost");
	}
}

static void
run_guest(struct image *img, struct channel *ch, int epfd, struct input in,
    unsigned nr)
{
	bool wait;
	unsigned i;

	for (i = 0; i < nr; i++) {
		wait = in.left > 0 && (*in.at & WHAT_WAIT) != 0;
		if (op_make(img, &ops[i], &in))
			op_submit(ch, &ops[i]);
		if (wait)
			wait_all(ch, epfd);
	}
}

/*
 * The image.
 */

static void
check_why(int rc, const char why[WHY_MAX])
{
	const char *c;

	if (rc >= 0)
		return;
	must(memchr(why, '\0', WHY_MAX) != NULL && why[0] != '\0',
	    "an error without a message");
	for (c = why; *c != '\0'; c++)
		must((unsigned char)*c >= ' ', "a message of several lines");
}

static void
complain(void *arg, enum image_fault kind, const char *text)
{
	(void)arg;
	if (kind != FAULT_LEAK)
		fprintf(stderr, "fuzz_qcow2: %s\n", text);
}

/*
 * Does the check find nothing?  'found' is told what it finds.  Leaks do not
 * count: refcounts beyond the end of the file become one when it grows.
 */
static bool
inspect(const struct image_options *opt,
    void (*found)(void *arg, enum image_fault kind, const char *text))
{
	struct image_layer layers[IMAGE_LAYERS_MAX];
	struct image_options o = *opt;
	struct image_check check = { .found = found };
	char why[WHY_MAX];
	struct image *img;
	int rc;

	o.inspect = true;
	o.readonly = true;
	rc = image_open(&o, &img, why);
	check_why(rc, why);
	if (rc < 0)
		return false;
	rc = image_info(img, layers, why);
	check_why(rc, why);
	rc = image_check(img, &check, why);
	check_why(rc, why);
	image_close(img);
	return rc == 0 && check.errors == 0 && check.overlaps == 0 &&
	    check.unread == 0;
}

/* One process, or one life, of a disk. */
struct life {
	const struct image_options *opt;
	struct input guest;
	unsigned     nr;		/* of its ops */
	void        *redo;		/* REDO_MAX; NULL: none */
	bool         clean;		/* the image was found so */
	bool         dies;
};

static void
live_active(const struct life *life, struct image *img, struct channel *ch)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLET };
	int epfd = epoll_create1(EPOLL_CLOEXEC), rc;
	char why[WHY_MAX];

	must(epfd >= 0 && (ch->event_fd == -1 || epoll_ctl(epfd,
	    EPOLL_CTL_ADD, ch->event_fd, &ev) == 0), "epoll");
	run_guest(img, ch, epfd, life->guest, life->nr);
	if (life->dies)
		_exit(0);
	wait_all(ch, epfd);
	if (life->clean)
		check_data(ch, epfd);
	close(epfd);
	rc = image_deactivate(img, why);
	check_why(rc, why);
	must(!life->clean || rc == 0, "a sound image cannot be written back");
}

/* Did it become active? */
static bool
live(const struct life *life)
{
	struct channel *ch = NULL;
	char why[WHY_MAX];
	struct image *img;
	bool active = false;
	int rc;

	rc = image_open(life->opt, &img, why);
	check_why(rc, why);
	if (rc < 0)
		return false;
	must(img->redo_bytes <= REDO_MAX, "it wants much memory");
	img->redo = img->redo_bytes > 0 ? life->redo : NULL;
	rc = channel_open(img, OPS_MAX, &ch, why);
	check_why(rc, why);
	if (rc == 0) {
		rc = image_activate(img, why);
		check_why(rc, why);
		active = rc == 0;
	}
	if (active)
		live_active(life, img, ch);
	channel_close(ch);
	image_close(img);
	return active;
}

/* In a process of its own, which ends without any care; was it active? */
static bool
live_and_die(struct life *life)
{
	pid_t pid, rc;
	int status;

	life->dies = true;
	pid = fork();
	if (pid == 0) {
		live(life);
		_exit(NEVER_ACTIVE);
	}
	must(pid > 0, "fork");
	do
		rc = waitpid(pid, &status, 0);
	while (rc == -1 && errno == EINTR);
	must(rc == pid, "wait for a process");
	must(WIFEXITED(status) && (WEXITSTATUS(status) == 0 ||
	    WEXITSTATUS(status) == NEVER_ACTIVE),
	    "the process died before its time");
	life->dies = false;
	life->nr = 0;
	return WEXITSTATUS(status) == 0;
}

static void
check_files(bool written, size_t bytes)
{
	size_t n = read_file(base, after, sizeof(after)), i;
	struct stat st;

	must(n == BASE_BYTES && memcmp(after, base_data, n) == 0,
	    "the backing file was changed");
	must(stat(top, &st) == 0, "stat");
	n = read_file(top, after, sizeof(after));
	if (!written) {
		must(st.st_size == (off_t)bytes && n == bytes &&
		    memcmp(before, after, bytes) == 0,
		    "the file was changed by somebody who may not");
		return;
	}
	/* Of the header only the refcount table and features may change. */
	for (i = 0; i < 512 && i < n; i++) {
		if ((i >= 48 && i < 60) || (i >= 72 && i < 96))
			continue;
		must(before[i] == after[i], "the header was changed");
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	unsigned mode = take(&in, 1), nr = take(&in, 1) % (OPS_MAX + 1);
	struct image_options opt = {
		.format = "qcow2", .path = top,
		.readonly = (mode & MODE_READONLY) != 0,
		.discard = (mode & MODE_DISCARD) != 0,
		.cache = mode & MODE_DSYNC ? CACHE_DIRECTSYNC : CACHE_NONE,
	};
	struct life life = { .opt = &opt };
	bool active, dies = (mode & MODE_DIE) == MODE_DIE && !opt.readonly;
	size_t bytes;

	prepare();
	model->nr = 0;
	aio_now_order = (mode & MODE_ORDER) / 64;
	life.guest = in;
	life.nr = nr;
	in.at += 4 * nr < in.left ? 4 * nr : in.left;
	in.left -= 4 * nr < in.left ? 4 * nr : in.left;
	bytes = make_image(&in);
	life.clean = (mode & MODE_INSPECT) != 0 && inspect(&opt, NULL);
	if (mode & MODE_REDO)
		life.redo = shared_memory(REDO_MAX);
	if (dies)
		dies = live_and_die(&life);
	active = live(&life);
	must(active || !dies || !life.clean,
	    "a sound image does not survive the process");
	check_files((active || dies) && !opt.readonly, bytes);
	must(!active || !life.clean || inspect(&opt, complain),
	    "a sound image is not sound any more");
	if (active && !dies && (mode & MODE_TWICE))
		must(live(&life) || !life.clean, "a sound image does not "
		    "become active again");
	if (life.redo != NULL)
		munmap(life.redo, REDO_MAX);
	return 0;
}
