/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See enemy.h: what dom0 sees of the backend. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "blkback/page.h"
#include "tests/hostile/enemy.h"

#define RSS_SLACK_KIB	1024
#ifdef RINGBACK_SANITIZED
#define STALL_MAX_MS	5000u
#else
#define STALL_MAX_MS	1500u		/* on a machine that does much else */
#endif

/* ---- the guest beside --------------------------------------------------- */

static void *
watcher_main(void *arg)
{
	struct watcher		*w = arg;
	const struct page	*page;
	struct page_shape	 shape;
	uint64_t		 last = 0, n, at = now_ms(), now;

	if (page_open(world.other_page, &page, &shape) < 0) {
		w->failed = true;
		return NULL;
	}
	while (!atomic_load(&w->stop)) {
		n = *(volatile const uint64_t *)
		    &page->queue[0].stats.reqs_answered;
		now = now_ms();
		if (now - at > w->stall_ms)
			w->stall_ms = now - at;
		if (n != last) {
			w->answered += n - last;
			last = n;
			at = now;
		}
		sleep_ms(5);
	}
	page_close(page, &shape);
	return NULL;
}

int
watcher_start(struct watcher *w)
{
	memset(w, 0, sizeof(*w));
	return pthread_create(&w->thread, NULL, watcher_main, w) == 0 ? 0 : -1;
}

int
watcher_stop(struct watcher *w)
{
	atomic_store(&w->stop, true);
	pthread_join(w->thread, NULL);
	if (!w->failed && w->answered > 0 && w->stall_ms <= STALL_MAX_MS)
		return 0;
	return fail("the other guest got %lu answers, none for %lu ms",
	    (unsigned long)w->answered, (unsigned long)w->stall_ms);
}

/* ---- the daemon and its disks ------------------------------------------- */

int
ringback(const char *words)
{
	char	cmd[1024];
	int	rc;

	snprintf(cmd, sizeof(cmd), "%s --run-dir %s %s >/dev/null",
	    world.ringback, world.run_dir, words);
	rc = system(cmd);
	return rc == 0 ? 0 : fail("ringback %s: exit status %d", words,
	    rc >> 8);
}

/* Does ringback list give this disk an error with these words? */
static bool
listed(struct enemy *e, const char *text)
{
	char		 cmd[512];
	const char	*error;
	bool		 found = false;
	json_t		*answer, *disk;
	size_t		 i;
	FILE		*f;

	snprintf(cmd, sizeof(cmd), "%s --run-dir %s --json list",
	    world.ringback, world.run_dir);
	f = popen(cmd, "r");
	if (f == NULL)
		return false;
	answer = json_loadf(f, 0, NULL);
	pclose(f);
	json_array_foreach(json_object_get(answer, "disks"), i, disk) {
		error = json_string_value(json_object_get(disk, "error"));
		if (json_integer_value(json_object_get(disk, "domid")) ==
		    e->domid && error != NULL && strstr(error, text) != NULL)
			found = true;
	}
	json_decref(answer);
	return found;
}

int
enemy_blamed(struct enemy *e, const char *text)
{
	uint64_t	until = now_ms() + WAIT_S * 1000;

	while (!listed(e, text)) {
		if (now_ms() > until)
			return fail("ringback list does not say \"%s\"", text);
		sleep_ms(20);
	}
	return 0;
}

int
enemy_given_up(struct enemy *e, const char *why)
{
	return enemy_await(e, XenbusStateClosing) < 0 ? -1 :
	    enemy_blamed(e, why);
}

pid_t
enemy_process(struct enemy *e)
{
	const struct page	*page;
	struct page_shape	 shape;
	char			 path[256];
	pid_t			 pid;

	snprintf(path, sizeof(path), "%s/%u-%u.page", world.run_dir, e->domid,
	    DEVID);
	if (page_open(path, &page, &shape) < 0)
		return 0;
	pid = page->header.pid;
	page_close(page, &shape);
	return pid;
}

static unsigned
count_fds(pid_t pid)
{
	char		 path[64];
	unsigned	 n = 0;
	DIR		*dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	dir = opendir(path);
	if (dir == NULL)
		return 0;
	while (readdir(dir) != NULL)
		n++;
	closedir(dir);
	return n;
}

static int
read_proc(pid_t pid, const char *name, char *buf, size_t size)
{
	char	path[64];
	ssize_t	n;
	int	fd;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return fail("process %d: %s", (int)pid, strerror(errno));
	n = read(fd, buf, size - 1);
	close(fd);
	if (n <= 0)
		return fail("process %d: %s", (int)pid, strerror(errno));
	buf[n] = '\0';
	return 0;
}

int
usage_get(pid_t pid, struct usage *u)
{
	char		 buf[4096], *p;
	unsigned long	 user, sys;

	memset(u, 0, sizeof(*u));
	if (pid <= 0)
		return fail("there is no disk process");
	if (read_proc(pid, "status", buf, sizeof(buf)) < 0)
		return -1;
	/* Its own: guest memory that it has looked at counts in VmRSS. */
	p = strstr(buf, "RssAnon:");
	if (p == NULL || sscanf(p, "RssAnon: %ld", &u->rss_kib) != 1)
		return fail("process %d has ended", (int)pid);
	p = strstr(buf, "Threads:");
	if (p == NULL || sscanf(p, "Threads: %u", &u->threads) != 1)
		return fail("process %d has no threads", (int)pid);
	u->fds = count_fds(pid);
	if (read_proc(pid, "stat", buf, sizeof(buf)) < 0)
		return -1;
	p = strrchr(buf, ')');
	if (p == NULL || sscanf(p + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u "
	    "%*u %*u %lu %lu", &user, &sys) != 2)
		return fail("process %d: no times", (int)pid);
	u->ticks = user + sys;
	return 0;
}

int
usage_same(const char *whose, const struct usage *before, pid_t pid)
{
	struct usage	now;
	uint64_t	until = now_ms() + 3000;

	/* A connection that has just been closed may still be there. */
	do {
		if (usage_get(pid, &now) < 0)
			return -1;
		if (now.fds == before->fds && now.threads == before->threads)
			break;
		sleep_ms(10);
	} while (now_ms() < until);
	if (now.fds != before->fds || now.threads != before->threads)
		return fail("%s had %u descriptors and %u threads, now %u and "
		    "%u", whose, before->fds, before->threads, now.fds,
		    now.threads);
#ifndef RINGBACK_SANITIZED	/* its allocator keeps what was freed */
	if (now.rss_kib > before->rss_kib + RSS_SLACK_KIB)
		return fail("%s had %ld KiB of memory, now %ld", whose,
		    before->rss_kib, now.rss_kib);
#endif
	return 0;
}

uint64_t
image_sum(void)
{
	static uint64_t	buf[8192];
	uint64_t	sum = 14695981039346656037u;
	ssize_t		n, i;
	int		fd = open(world.image, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return (uint64_t)fail("%s: %s", world.image, strerror(errno));
	while ((n = read(fd, buf, sizeof(buf))) > 0) {
		for (i = 0; i < n / 8; i++)
			sum = (sum ^ buf[i]) * 1099511628211u;
	}
	close(fd);
	return sum;
}

unsigned long
log_lines(void)
{
	unsigned long	 n = 0;
	FILE		*f = fopen(world.log, "re");
	int		 c;

	if (f == NULL)
		return 0;
	while ((c = getc(f)) != EOF)
		n += c == '\n';
	fclose(f);
	return n;
}
