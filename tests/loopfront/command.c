/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See command.h. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xen/xen.h>
#include <xen/grant_table.h>

#include "tests/loopfront/command.h"
#include "tests/loopfront/job.h"
#include "tests/loopfront/vbd.h"

struct command {
	struct domain *d;
	struct vbd *v;			/* when it is about a disk */
	struct options o;
	char	**rest;			/* arguments that are no options */
	int	 nr_rest;
	FILE	*out;
	char	*why;
};

static int fail(struct command *, int, const char *, ...)
    __attribute__((format(printf, 3, 4)));

static int
fail(struct command *c, int rc, const char *fmt, ...)
{
	va_list	ap;

	va_start(ap, fmt);
	vsnprintf(c->why, COMMAND_WHY, fmt, ap);
	va_end(ap);
	return rc;
}

/* A disk's own words about what failed. */
static int
disk_result(struct command *c, int rc)
{
	return rc < 0 ? fail(c, rc, "%s: %s", c->v->name, c->v->error) : 0;
}

/* ---- the commands, called with the domain's lock ------------------------ */

static int
cmd_list(struct command *c)
{
	struct vbd	*v;

	LIST_FOREACH(v, &c->d->vbds, link) {
		fprintf(c->out, "disk=%s devid=%" PRIu32 " state=%s "
		    "backend-state=%s connects=%u ", v->name, v->devid,
		    v->gone ? "gone" : vbd_state_name(v->state),
		    vbd_state_name(v->back_state), v->connects);
		if (v->ready)
			fprintf(c->out, "abi=%s ring-order=%u sectors=%" PRIu64
			    " sector-size=%u readonly=%d flush=%d discard=%d "
			    "segments=%u persistent=%d queues=%u ",
			    front_abi_name(v->queues[0].opt.abi),
			    v->queues[0].opt.order,
			    v->sectors, v->sector_size, v->readonly, v->flush,
			    v->discard, v->queues[0].opt.segments,
			    v->queues[0].opt.persistent, v->nr_queues);
		fprintf(c->out, "busy=%d error=%s\n", v->busy,
		    v->error[0] != '\0' ? v->error : "-");
	}
	return 0;
}

static int
cmd_wait(struct command *c)
{
	return disk_result(c, vbd_wait_ready(c->v, c->o.wait));
}

static int
cmd_io(struct command *c)
{
	struct job_result	*r = malloc(sizeof(*r));
	int			 rc;

	if (r == NULL)
		return fail(c, -ENOMEM, "out of memory");
	rc = disk_result(c, vbd_wait_ready(c->v, c->o.wait));
	if (rc == 0 && c->v->busy)
		rc = fail(c, -EBUSY, "%s: a job is using it", c->v->name);
	if (rc < 0) {
		free(r);
		return rc;
	}
	c->v->busy = true;
	domain_unlock(c->d);
	rc = job_run(c->v, &c->o, r, c->out);
	domain_lock(c->d);
	if (rc < 0)
		fail(c, rc, "%s: %s", c->v->name, r->why);
	if (r->ns > 0 && c->o.json)
		job_report_json(c->v, &c->o, r, c->out);
	else if (r->ns > 0)
		job_report_text(c->v, &c->o, r, c->out);
	vbd_idle(c->v);
	free(r);
	return rc;
}

static int
cmd_close(struct command *c)
{
	return disk_result(c, vbd_shut(c->v, c->o.wait));
}

static int
cmd_reopen(struct command *c)
{
	if (c->v->open) {
		int	rc = disk_result(c, vbd_shut(c->v, c->o.wait));

		if (rc < 0)
			return rc;
	}
	c->v->opt = c->o;
	return disk_result(c, vbd_reopen(c->v, c->o.wait));
}

static int
cmd_suspend(struct command *c)
{
	return disk_result(c, vbd_suspend(c->v, c->o.wait));
}

static int
cmd_kexec(struct command *c)
{
	c->v->opt = c->o;
	return disk_result(c, vbd_kexec(c->v, c->o.abrupt, c->o.wait));
}

static int
cmd_released(struct command *c)
{
	return disk_result(c, vbd_wait_released(c->v, c->o.wait));
}

static int
cmd_set(struct command *c)
{
	c->d->defaults = c->o;
	return 0;
}

static int
cmd_forget(struct command *c)
{
	if (c->v->busy)
		return fail(c, -EBUSY, "%s: a job is using it", c->v->name);
	verify_free(c->v->verify);
	c->v->verify = NULL;
	return 0;
}

static int
write_image(struct command *c, int fd)
{
	const struct verify	*map = c->v->verify;
	char			 buf[256 * FRONT_SECTOR];
	uint64_t		 at, n = verify_sectors(map), i;

	for (at = 0; at < n; at += i) {
		for (i = 0; i < 256 && at + i < n; i++) {
			if (!verify_content(map, at + i,
			    buf + i * FRONT_SECTOR))
				return fail(c, -EILSEQ, "%s: the content of "
				    "sector %" PRIu64 " is not certain",
				    c->v->name, at + i);
		}
		if (pwrite(fd, buf, i * FRONT_SECTOR, (off_t)(at *
		    FRONT_SECTOR)) != (ssize_t)(i * FRONT_SECTOR))
			return fail(c, -errno, "write %s: %s", c->rest[0],
			    strerror(errno));
	}
	return 0;
}

/* What the disk must contain, to compare an image with. */
static int
cmd_image(struct command *c)
{
	int	fd, rc;

	if (c->nr_rest != 1)
		return fail(c, -EINVAL, "image DISK FILE: give the file");
	if (c->v->verify == NULL || c->v->busy)
		return fail(c, -EINVAL, "%s: nothing was verified on it, or a "
		    "job is using it", c->v->name);
	fd = open(c->rest[0], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return fail(c, -errno, "create %s: %s", c->rest[0],
		    strerror(errno));
	rc = write_image(c, fd);
	if (close(fd) < 0 && rc == 0)
		rc = fail(c, -errno, "close %s: %s", c->rest[0],
		    strerror(errno));
	return rc;
}

/* What the guest knows of the disk is a part of its memory. */
static int
cmd_save(struct command *c)
{
	int	rc;

	if (c->nr_rest != 1 || c->v->verify == NULL || c->v->busy)
		return fail(c, -EINVAL, "save DISK FILE: give the file; "
		    "something must have been verified, and no job run");
	rc = verify_save(c->v->verify, c->rest[0]);
	return rc < 0 ? fail(c, rc, "write %s: %s", c->rest[0],
	    strerror(-rc)) : 0;
}

static int
cmd_restore(struct command *c)
{
	int	rc;

	if (c->nr_rest != 1 || c->v->verify != NULL || c->v->busy)
		return fail(c, -EINVAL, "restore DISK FILE: give the file; "
		    "nothing must have been verified, and no job run");
	rc = verify_restore(&c->v->verify, c->rest[0]);
	return rc < 0 ? fail(c, rc, "read %s: %s", c->rest[0],
	    strerror(-rc)) : 0;
}

static int
cmd_counters(struct command *c)
{
	struct loopguest_counters	n;

	loopguest_counters(c->d->guest, &n);
	fprintf(c->out, "{\"copy_calls\": %" PRIu64 ", \"copy_segments\": %"
	    PRIu64 ", \"copy_errors\": %" PRIu64 ", \"map_calls\": %" PRIu64
	    ", \"mapped_pages\": %" PRIu64 ", \"unmapped_pages\": %" PRIu64
	    ", \"notifies\": %" PRIu64 ", \"binds\": %" PRIu64
	    ", \"unbinds\": %" PRIu64 ", \"mapped_now\": %" PRIu64
	    ", \"bound_now\": %" PRIu64 ", \"grants\": %u}\n", n.copy_calls,
	    n.copy_segments, n.copy_errors, n.map_calls, n.mapped_pages,
	    n.unmapped_pages, n.backend_notifies, n.binds, n.unbinds,
	    n.mapped_now, n.bound_now, loopguest_grants(c->d->guest));
	return 0;
}

/* What is not given goes well again. */
static int
cmd_fault(struct command *c)
{
	struct loopguest	*g = c->d->guest;

	loopguest_fault_copy(g, c->o.copy_nth, c->o.copy_count,
	    GNTST_general_error);
	loopguest_fault_map(g, c->o.map_nth, 1, ENOMEM);
	loopguest_delay_copy(g, c->o.copy_delay_ms);
	return 0;
}

/* As if the power went: nothing is closed, nothing is said to anybody. */
static int
cmd_crash(struct command *c)
{
	fprintf(c->out, "ok\n");
	fflush(c->out);
	_exit(0);
}

static int
cmd_quit(struct command *c)
{
	domain_stop(c->d);
	return 0;
}

static int
cmd_help(struct command *c)
{
	command_help(c->out);
	fprintf(c->out, "options of io:\n");
	options_help(IN_IO, c->out);
	fprintf(c->out, "options of fault:\n");
	options_help(IN_FAULT, c->out);
	return 0;
}

static const struct {
	const char *name, *args;
	bool	 disk;			/* the first argument is one */
	unsigned options;
	int	 (*run)(struct command *);
	const char *help;
} commands[] = {
	{ "list", "", false, 0, cmd_list, "one line per disk" },
	{ "wait", "DISK [--wait S]", true, IN_WAIT, cmd_wait,
	  "until the disk is connected" },
	{ "io", "DISK [OPTIONS]", true, IN_WAIT | IN_IO, cmd_io,
	  "do I/O" },
	{ "close", "DISK [--wait S]", true, IN_WAIT, cmd_close,
	  "close the disk, as a guest that unplugs it" },
	{ "reopen", "DISK [OPTIONS]", true, IN_WAIT | IN_CONNECT, cmd_reopen,
	  "close it if it is open, and connect again" },
	{ "suspend", "DISK [--wait S]", true, IN_WAIT, cmd_suspend,
	  "stop using it without a word, as for a save" },
	{ "kexec", "DISK [OPTIONS]", true, IN_WAIT | IN_CONNECT | IN_KEXEC,
	  cmd_kexec, "another kernel takes it over, and resets it" },
	{ "released", "DISK [--wait S]", true, IN_WAIT, cmd_released,
	  "until nothing of ours is in the backend's hands" },
	{ "set", "OPTIONS", false, IN_CONNECT, cmd_set,
	  "how disks that appear later are to be connected" },
	{ "image", "DISK FILE", true, 0, cmd_image,
	  "write a file with what the disk must contain" },
	{ "save", "DISK FILE", true, 0, cmd_save,
	  "write what the guest knows of its content" },
	{ "restore", "DISK FILE", true, 0, cmd_restore,
	  "know what another guest knew" },
	{ "forget", "DISK", true, 0, cmd_forget,
	  "forget what it must contain" },
	{ "counters", "", false, 0, cmd_counters,
	  "what the backend did and holds, as JSON" },
	{ "fault", "[OPTIONS]", false, IN_FAULT, cmd_fault,
	  "have grant copies or maps fail, or take long" },
	{ "crash", "", false, 0, cmd_crash, "end at once, close nothing" },
	{ "quit", "", false, 0, cmd_quit, "close the disks, then end" },
	{ "help", "", false, 0, cmd_help, "this text" },
};

#define NR	(sizeof(commands) / sizeof(commands[0]))

void
command_help(FILE *f)
{
	unsigned	i;

	for (i = 0; i < NR; i++)
		fprintf(f, "  %-8s %-16s %s\n", commands[i].name,
		    commands[i].args, commands[i].help);
}

/* A disk that is not there yet may come soon. */
static int
find_disk(struct command *c, const char *name)
{
	uint64_t	until = clock_ns() + (uint64_t)(c->o.wait * 1e9);
	uint32_t	devid;

	if (vbd_parse(name, &devid) < 0)
		return fail(c, -EINVAL, "%s: no disk is called like that "
		    "(xvda ... or a number)", name);
	while ((c->v = vbd_find(c->d, devid)) == NULL) {
		if (c->d->interrupt || domain_wait(c->d, until) < 0)
			return fail(c, -ENODEV, "%s: the domain has no such "
			    "disk", name);
	}
	return 0;
}

static int
parse_options(struct command *c, unsigned where, int argc, char **argv)
{
	FILE	*err = fmemopen(c->why, COMMAND_WHY, "w");
	char	*newline;
	int	 rc;

	if (err == NULL)
		return fail(c, -ENOMEM, "out of memory");
	rc = options_parse(&c->o, where, argc, argv, err);
	fclose(err);
	newline = strchr(c->why, '\n');
	if (newline != NULL)
		*newline = '\0';
	if (rc < 0)
		return rc;
	c->rest = argv + rc;
	c->nr_rest = argc - rc;
	return 0;
}

int
command_run(struct domain *d, int argc, char **argv, FILE *out,
    char why[COMMAND_WHY])
{
	struct command	c = { .d = d, .out = out, .why = why };
	unsigned	i, skip;
	int		rc;

	why[0] = '\0';
	if (argc < 1)
		return fail(&c, -EINVAL, "no command; try help");
	for (i = 0; i < NR && strcmp(argv[0], commands[i].name) != 0; i++)
		;
	if (i == NR)
		return fail(&c, -EINVAL, "%s: no such command; try help",
		    argv[0]);
	skip = commands[i].disk ? 1 : 0;
	if (argc < 1 + (int)skip)
		return fail(&c, -EINVAL, "%s %s: give the disk", argv[0],
		    commands[i].args);

	domain_lock(d);
	c.o = d->defaults;
	rc = parse_options(&c, commands[i].options, argc - (int)skip,
	    argv + skip);
	if (rc == 0 && commands[i].disk)
		rc = find_disk(&c, argv[1]);
	if (rc == 0)
		rc = commands[i].run(&c);
	domain_unlock(d);
	return rc;
}

int
command_split(char *line, char *argv[COMMAND_ARGS + 1])
{
	char	*save, *word;
	int	 n = 0;

	for (word = strtok_r(line, " \t\r\n", &save);
	    word != NULL && n < COMMAND_ARGS;
	    word = strtok_r(NULL, " \t\r\n", &save))
		argv[n++] = word;
	argv[n] = NULL;
	return n;
}
