/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * fault: another driver with something wrong with it.
 *
 * The path is key=value[,key=value...]:format:path, what follows the first
 * ':' being the image below, for instance nth=3,op=write:raw:/srv/x.img.
 *
 *   which I/Os match          op=read|write|flush|any, offset=, length=
 *   which of those it hits    nth=N (the Nth only), every=N, from=N (the Nth
 *                             and all later ones); without any of them: all
 *   what happens to those     error=EIO (or another name), short=BYTES (move
 *                             so much, then fail), delay-ms=N (end later)
 *
 * I/Os are counted from 1 over all channels of the image.  Nothing said, a
 * hit fails with EIO; with delay-ms alone it succeeds late.  A failed I/O is
 * not passed on, except for what short= lets through.  offset= and length=
 * are bytes and match what overlaps them; a flush has no range, so it
 * matches only where none is given.
 *
 * An I/O that is not hit goes down as it is.  One that is gets a record
 * from a pool as large as the channel is deep, and ends through the list
 * 'held', which is in the order of the deadlines as all delays are the same.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "drivers/driver.h"

#define MAX_DELAY_MS 3600000u
#define NS_PER_MS    1000000u
#define NS_PER_S     1000000000u

struct fault_rule {
	bool        any_op;
	enum io_op  op;
	bool        ranged;
	uint64_t    offset;		/* bytes */
	uint64_t    length;		/* bytes; 0: to the end */
	uint64_t    nth, every, from;	/* 0: not given */
	int         error;		/* -errno; 0: none */
	uint64_t    part;		/* bytes moved before the error */
	uint64_t    delay_ns;
};

struct fault_image {
	struct image      img;		/* must be first */
	struct image     *below;
	struct fault_rule rule;
	uint64_t          nr_matched;	/* by all threads: atomic */
};

/* An I/O that was hit. */
struct fault_io {
	struct io              io;	/* what goes down, if anything */
	struct fault_channel  *fc;
	struct io             *orig;
	int                    error;
	uint64_t               deadline;	/* ns; 0: at once */
	STAILQ_ENTRY(fault_io) link;	/* free or held */
};
STAILQ_HEAD(fault_list, fault_io);

struct fault_channel {
	struct channel    ch;		/* must be first */
	struct channel   *below;
	int               timer_fd;
	uint64_t          armed;	/* ns, what it is set to; 0: nothing */
	unsigned          nr_below;	/* I/Os that the driver below has */
	unsigned          nr_unseen;	/* those its reap() knows nothing of */
	unsigned          nr_caught;	/* those of a reap that end later */
	struct fault_io  *ios;
	struct fault_list free;
	struct fault_list held;
	unsigned          nr_held;
};

/*
 * The rule.
 */

static const struct {
	const char *name;
	int         error;
} errors[] = {
	{ "EIO",        EIO },
	{ "ENOSPC",     ENOSPC },
	{ "EDQUOT",     EDQUOT },
	{ "EROFS",      EROFS },
	{ "ENOMEM",     ENOMEM },
	{ "EAGAIN",     EAGAIN },
	{ "ENODEV",     ENODEV },
	{ "ENOLINK",    ENOLINK },
	{ "ETIMEDOUT",  ETIMEDOUT },
	{ "EREMOTEIO",  EREMOTEIO },
	{ "EILSEQ",     EILSEQ },
	{ "EOPNOTSUPP", EOPNOTSUPP },
};

static int
fault_parse_error(const char *value, int *error)
{
	size_t i;

	for (i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
		if (strcmp(errors[i].name, value) == 0) {
			*error = -errors[i].error;
			return 0;
		}
	return -EINVAL;
}

static int
fault_parse_op(const char *value, struct fault_rule *rule)
{
	static const char *const names[] = {
		[IO_READ] = "read", [IO_WRITE] = "write", [IO_FLUSH] = "flush",
		[IO_DISCARD] = "discard",
	};
	unsigned i;

	rule->any_op = strcmp(value, "any") == 0;
	if (rule->any_op)
		return 0;
	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(names[i], value) == 0) {
			rule->op = (enum io_op)i;
			return 0;
		}
	return -EINVAL;
}

static int
fault_parse_number(const char *value, uint64_t min, uint64_t max, uint64_t *n)
{
	char *end;

	if (*value < '0' || *value > '9')
		return -EINVAL;
	errno = 0;
	*n = strtoull(value, &end, 10);
	if (errno != 0)
		return -errno;
	return *end != '\0' || *n < min || *n > max ? -EINVAL : 0;
}

static int
fault_set(struct fault_rule *rule, const char *key, const char *value)
{
	uint64_t n;
	int rc;

	if (strcmp(key, "op") == 0)
		return fault_parse_op(value, rule);
	if (strcmp(key, "error") == 0)
		return fault_parse_error(value, &rule->error);
	if (strcmp(key, "nth") == 0)
		return fault_parse_number(value, 1, UINT64_MAX, &rule->nth);
	if (strcmp(key, "every") == 0)
		return fault_parse_number(value, 1, UINT64_MAX, &rule->every);
	if (strcmp(key, "from") == 0)
		return fault_parse_number(value, 1, UINT64_MAX, &rule->from);
	if (strcmp(key, "delay-ms") == 0) {
		rc = fault_parse_number(value, 1, MAX_DELAY_MS, &n);
		rule->delay_ns = rc == 0 ? n * NS_PER_MS : 0;
		return rc;
	}
	if (strcmp(key, "short") == 0) {
		rc = fault_parse_number(value, 1, INT64_MAX, &rule->part);
		return rc == 0 && rule->part % 512 != 0 ? -EINVAL : rc;
	}
	if (strcmp(key, "offset") == 0 || strcmp(key, "length") == 0) {
		rule->ranged = true;
		return key[0] == 'o' ?
		    fault_parse_number(value, 0, INT64_MAX, &rule->offset) :
		    fault_parse_number(value, 1, INT64_MAX, &rule->length);
	}
	return -ENOENT;
}

/* 'options' is cut into pieces. */
static int
fault_parse(struct fault_rule *rule, char *options, char why[WHY_MAX])
{
	char *key, *value, *next = options;
	int rc;

	memset(rule, 0, sizeof(*rule));
	rule->any_op = true;
	while ((key = strsep(&next, ",")) != NULL) {
		value = strchr(key, '=');
		if (value != NULL)
			*value++ = '\0';
		rc = value == NULL ? -ENOENT : fault_set(rule, key, value);
		if (rc == -ENOENT) {
			why_set(why, "fault: '%.64s' is no option; there are "
			    "op=, offset=, length=, nth=, every=, from=, "
			    "error=, short= and delay-ms=", key);
			return -EINVAL;
		}
		if (rc < 0) {
			why_set(why, "fault: %.32s=%.64s makes no sense; give "
			    "a number above 0 (short=: a multiple of 512, "
			    "delay-ms=: up to an hour), op=read, write, flush "
			    "or any, error=EIO, ENOSPC or the like", key,
			    value);
			return rc;
		}
	}
	if ((rule->nth != 0) + (rule->every != 0) + (rule->from != 0) > 1) {
		why_set(why, "fault: nth=, every= and from= exclude each "
		    "other; give one of them");
		return -EINVAL;
	}
	if (rule->error == 0 && (rule->delay_ns == 0 || rule->part != 0))
		rule->error = -EIO;
	return 0;
}

static bool
fault_matches(const struct fault_rule *rule, const struct io *io)
{
	if (!rule->any_op && io->op != rule->op)
		return false;
	if (!rule->ranged)
		return true;
	if (io->op == IO_FLUSH || io->offset + io->length <= rule->offset)
		return false;
	return rule->length == 0 || io->offset < rule->offset ||
	    io->offset - rule->offset < rule->length;
}

static bool
fault_hits(struct fault_image *f, const struct io *io)
{
	const struct fault_rule *rule = &f->rule;
	uint64_t n;

	if (!fault_matches(rule, io))
		return false;
	n = __atomic_add_fetch(&f->nr_matched, 1, __ATOMIC_RELAXED);
	if (rule->nth != 0)
		return n == rule->nth;
	if (rule->every != 0)
		return n % rule->every == 0;
	return n >= rule->from;
}

/*
 * The image.
 */

static void
fault_copy_geometry(struct fault_image *f)
{
	f->img.readonly = f->below->readonly;
	f->img.size = f->below->size;
	f->img.block_size = f->below->block_size;
	f->img.physical_block_size = f->below->physical_block_size;
	f->img.discard_granularity = f->below->discard_granularity;
	f->img.discard_alignment = f->below->discard_alignment;
	f->img.dev = f->below->dev;
	f->img.ino = f->below->ino;
	f->img.redo_bytes = f->below->redo_bytes;
}

/* 'spec' is a copy of the path that may be cut. */
static int
fault_open_below(struct fault_image *f, const struct image_options *opt,
    char *spec, char why[WHY_MAX])
{
	struct image_options below = *opt;
	char *options, *format;
	int rc;

	options = strsep(&spec, ":");
	format = strsep(&spec, ":");
	if (spec == NULL) {
		why_set(why, "fault:%.200s: it lacks the image below; write "
		    "fault:key=value:format:path, for instance "
		    "fault:nth=3,op=write:raw:/srv/x.img", opt->path);
		return -EINVAL;
	}
	rc = fault_parse(&f->rule, options, why);
	if (rc < 0)
		return rc;
	below.format = format;
	below.path = spec;
	return image_open(&below, &f->below, why);
}

static int
fault_open(const struct image_options *opt, struct image **img,
    char why[WHY_MAX])
{
	struct fault_image *f;
	char *spec;
	int rc;

	f = calloc(1, sizeof(*f));
	spec = strdup(opt->path);
	if (f == NULL || spec == NULL) {
		why_set(why, "fault:%.200s: out of memory", opt->path);
		rc = -ENOMEM;
		goto out;
	}
	rc = fault_open_below(f, opt, spec, why);
	if (rc < 0)
		goto out;
	fault_copy_geometry(f);
	*img = &f->img;
	f = NULL;
out:
	free(spec);
	free(f);
	return rc;
}

static void
fault_close(struct image *img)
{
	struct fault_image *f = container_of(img, struct fault_image, img);

	image_close(f->below);
	free(f);
}

static int
fault_activate(struct image *img, char why[WHY_MAX])
{
	struct fault_image *f = container_of(img, struct fault_image, img);
	int rc;

	f->below->redo = img->redo;
	rc = image_activate(f->below, why);
	if (rc == 0)
		fault_copy_geometry(f);
	return rc;
}

static int
fault_deactivate(struct image *img, char why[WHY_MAX])
{
	return image_deactivate(container_of(img, struct fault_image,
	    img)->below, why);
}

static int
fault_resize(struct image *img, uint64_t size, char why[WHY_MAX])
{
	struct fault_image *f = container_of(img, struct fault_image, img);
	int rc;

	rc = image_resize(f->below, size, why);
	f->img.size = f->below->size;
	return rc;
}

/*
 * The channel.
 */

static int
fault_alloc(struct fault_channel *fc, unsigned depth)
{
	unsigned i;

	STAILQ_INIT(&fc->free);
	STAILQ_INIT(&fc->held);
	fc->ios = calloc(depth, sizeof(*fc->ios));
	if (fc->ios == NULL)
		return -ENOMEM;
	for (i = 0; i < depth; i++) {
		fc->ios[i].fc = fc;
		STAILQ_INSERT_TAIL(&fc->free, &fc->ios[i], link);
	}
	return 0;
}

/* Readable when the timer, or the channel below, has something to say. */
static int
fault_open_events(struct fault_channel *fc)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLET };
	int epfd, rc;

	epfd = epoll_create1(EPOLL_CLOEXEC);
	if (epfd == -1)
		return -errno;
	fc->timer_fd = timerfd_create(CLOCK_MONOTONIC,
	    TFD_CLOEXEC | TFD_NONBLOCK);
	if (fc->timer_fd == -1)
		goto err_epoll;
	if (epoll_ctl(epfd, EPOLL_CTL_ADD, fc->timer_fd, &ev) == -1)
		goto err_timer;
	if (fc->below->event_fd != -1 &&
	    epoll_ctl(epfd, EPOLL_CTL_ADD, fc->below->event_fd, &ev) == -1)
		goto err_timer;
	fc->ch.event_fd = epfd;
	return 0;

err_timer:
	rc = -errno;
	close(fc->timer_fd);
	close(epfd);
	return rc;
err_epoll:
	rc = -errno;
	close(epfd);
	return rc;
}

static int
fault_channel_open(struct image *img, unsigned depth, struct channel **ch,
    char why[WHY_MAX])
{
	struct fault_image *f = container_of(img, struct fault_image, img);
	struct fault_channel *fc;
	int rc;

	fc = calloc(1, sizeof(*fc));
	if (fc == NULL || fault_alloc(fc, depth) < 0) {
		why_set(why, "fault: open a channel: out of memory");
		rc = -ENOMEM;
		goto err_free;
	}
	fc->ch.img = img;
	rc = channel_open(f->below, depth, &fc->below, why);
	if (rc < 0)
		goto err_free;
	rc = fault_open_events(fc);
	if (rc < 0) {
		why_set(why, "fault: open a timer: %s; %s", strerror(-rc),
		    rc == -ELOOP ? "wrap fewer faults round each other" :
		    "raise the limit of open files (ulimit -n, LimitNOFILE= "
		    "of the unit)");
		goto err_close;
	}
	*ch = &fc->ch;
	return 0;

err_close:
	channel_close(fc->below);
err_free:
	if (fc != NULL)
		free(fc->ios);
	free(fc);
	return rc;
}

static void
fault_channel_close(struct channel *ch)
{
	struct fault_channel *fc = container_of(ch, struct fault_channel, ch);

	assert(STAILQ_EMPTY(&fc->held));
	close(fc->ch.event_fd);
	close(fc->timer_fd);
	channel_close(fc->below);
	free(fc->ios);
	free(fc);
}

static uint64_t
fault_now(void)
{
	struct timespec ts;

	if (clock_gettime(CLOCK_MONOTONIC, &ts) == -1)
		abort();	/* every Linux has this clock */
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

static void
fault_hold(struct fault_io *fio)
{
	struct fault_channel *fc = fio->fc;
	struct fault_image *f = container_of(fc->ch.img, struct fault_image,
	    img);

	fio->deadline = 0;
	if (f->rule.delay_ns != 0)
		fio->deadline = fault_now() + f->rule.delay_ns;
	STAILQ_INSERT_TAIL(&fc->held, fio, link);
	fc->nr_held++;
}

/* The part that was let through has ended. */
static void
fault_caught(struct io *io, int error)
{
	struct fault_io *fio = container_of(io, struct fault_io, io);

	if (fio->error == 0)
		fio->error = error;
	fio->fc->nr_caught++;
	fault_hold(fio);
}

/* Leave only the first 'length' bytes of an I/O that has more. */
static void
fault_cut(struct io *io, uint64_t length)
{
	uint64_t sum = 0;
	int i;

	for (i = 0; sum + io->iov[i].iov_len < length; i++)
		sum += io->iov[i].iov_len;
	io->iov[i].iov_len = length - sum;
	io->iovcnt = i + 1;
	io->length = length;
}

static void
fault_pass(struct fault_channel *fc, struct io *io)
{
	fc->nr_below++;
	fc->nr_unseen++;
	channel_submit(fc->below, io);
}

static void
fault_submit(struct channel *ch, struct io *io)
{
	struct fault_channel *fc = container_of(ch, struct fault_channel, ch);
	struct fault_image *f = container_of(ch->img, struct fault_image, img);
	struct fault_io *fio;

	if (!fault_hits(f, io)) {
		fault_pass(fc, io);
		return;
	}

	fio = STAILQ_FIRST(&fc->free);
	assert(fio != NULL);		/* more than 'depth' at a time */
	STAILQ_REMOVE_HEAD(&fc->free, link);
	fio->orig = io;
	fio->error = f->rule.error;
	if (fio->error != 0 && (f->rule.part == 0 || io->iovcnt == 0)) {
		fault_hold(fio);
		return;
	}
	fio->io = *io;
	fio->io.done = fault_caught;
	if (f->rule.part != 0 && f->rule.part < io->length && io->iovcnt > 0)
		fault_cut(&fio->io, f->rule.part);
	fault_pass(fc, &fio->io);
}

/* End what is due; what a done() submits meanwhile waits for its turn. */
static unsigned
fault_release(struct fault_channel *fc)
{
	unsigned n = 0, nr_held = fc->nr_held;
	struct fault_io *fio;
	uint64_t now = 0;

	while (n < nr_held) {
		fio = STAILQ_FIRST(&fc->held);
		if (fio->deadline != 0 && now == 0)
			now = fault_now();
		if (fio->deadline > now)
			break;
		STAILQ_REMOVE_HEAD(&fc->held, link);
		fc->nr_held--;
		STAILQ_INSERT_HEAD(&fc->free, fio, link);
		fio->orig->done(fio->orig, fio->error);
		n++;
	}
	return n;
}

/*
 * Let the timer wake the caller for what no other event announces: the next
 * deadline, I/Os that were submitted after the channel below was reaped, and
 * all I/Os below where that channel has no event_fd.
 */
static void
fault_arm(struct fault_channel *fc)
{
	struct fault_io *fio = STAILQ_FIRST(&fc->held);
	struct itimerspec it = { 0 };
	uint64_t when = 0;
	bool now;

	now = fc->nr_unseen > 0 ||
	    (fc->below->event_fd == -1 && fc->nr_below > 0);
	if (fio != NULL && fio->deadline == 0)
		now = true;
	else if (fio != NULL)
		when = fio->deadline;
	if (now)
		when = 1;		/* in the past, and not "disarm" */
	if (when == 0 || (when == fc->armed && !now))
		return;

	it.it_value.tv_sec = (time_t)(when / NS_PER_S);
	it.it_value.tv_nsec = (long)(when % NS_PER_S);
	if (timerfd_settime(fc->timer_fd, TFD_TIMER_ABSTIME, &it, NULL) == -1)
		abort();		/* the fd or the time is not ours */
	fc->armed = when;
}

static unsigned
fault_reap(struct channel *ch)
{
	struct fault_channel *fc = container_of(ch, struct fault_channel, ch);
	unsigned n;

	fc->nr_caught = 0;
	n = channel_reap(fc->below);
	fc->nr_unseen = 0;
	fc->nr_below -= n;
	n -= fc->nr_caught;
	n += fault_release(fc);
	fault_arm(fc);
	fc->ch.submits = fc->below->submits;
	return n;
}

const struct driver driver_fault = {
	.name          = "fault",
	.open          = fault_open,
	.close         = fault_close,
	.activate      = fault_activate,
	.deactivate    = fault_deactivate,
	.resize        = fault_resize,
	.channel_open  = fault_channel_open,
	.channel_close = fault_channel_close,
	.submit        = fault_submit,
	.reap          = fault_reap,
};
