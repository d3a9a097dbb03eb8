/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * control: the daemon's end of the control socket (see control.h, client.h).
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "blkback/client.h"

#define CLIENTS_MAX 32u
#define SLOW_US     5000000u	/* to put a question, or to take an answer */

struct control {
	int              fd;
	sd_event_source *io;
	unsigned         nr_clients;
	LIST_HEAD(, client) clients;
};

static void
client_free(struct client *c)
{
	struct control *ctl = c->sup->control;
	int rc = 0;

	sd_event_source_disable_unref(c->io);
	sd_event_source_disable_unref(c->timer);
	close(c->fd);
	free(c->out);
	LIST_REMOVE(c, link);
	free(c);
	ctl->nr_clients--;
	if (ctl->io != NULL)
		rc = sd_event_source_set_enabled(ctl->io, SD_EVENT_ON);
	if (rc < 0)
		log_error(rc, "cannot listen on the control socket");
}

static int
on_timer(sd_event_source *source, uint64_t usec, void *arg)
{
	struct client *c = arg;

	(void)source;
	(void)usec;
	if (c->waiting != WAIT_NOTHING)
		answer_timeout(c);
	else
		client_free(c);		/* too slow */
	return 0;
}

static int
set_timer(struct client *c, uint64_t usec)
{
	c->timer = sd_event_source_disable_unref(c->timer);
	return sd_event_add_time_relative(c->sup->event, &c->timer,
	    CLOCK_MONOTONIC, usec, 10000, on_timer, c);
}

/* Write what the socket takes.  False: the client is gone. */
static bool
client_write(struct client *c)
{
	ssize_t n;

	while (c->out_done < c->out_length) {
		n = send(c->fd, c->out + c->out_done,
		    c->out_length - c->out_done, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return true;
		if (n < 0)
			break;
		c->out_done += n;
	}
	client_free(c);
	return false;
}

void
client_answer(struct client *c, json_t *answer)
{
	static const char no_memory[] =
	    "{\"ok\":false,\"error\":\"ringbackd is out of memory\"}";
	int rc;

	c->waiting = WAIT_NOTHING;
	c->v = NULL;
	c->out = answer != NULL ? json_dumps(answer, JSON_COMPACT) : NULL;
	json_decref(answer);
	if (c->out == NULL)
		c->out = strdup(no_memory);
	if (c->out == NULL) {
		client_free(c);
		return;
	}
	/* The line's end takes the place of the NUL. */
	c->out_length = strlen(c->out) + 1;
	c->out[c->out_length - 1] = '\n';
	if (!client_write(c))
		return;
	rc = set_timer(c, SLOW_US);
	if (rc == 0)
		rc = sd_event_source_set_io_events(c->io, EPOLLOUT);
	if (rc < 0) {
		log_error(rc, "cannot answer on the control socket");
		client_free(c);
	}
}

void
client_fail(struct client *c, const char *fmt, ...)
{
	char text[2 * WHY_MAX], *p;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	/* One line of what every terminal and JSON can show. */
	for (p = text; *p != '\0'; p++)
		if (*p < ' ' || *p > '~')
			*p = '?';
	client_answer(c, json_pack("{s:b, s:s}", "ok", 0, "error", text));
}

void
client_ok(struct client *c)
{
	client_answer(c, json_pack("{s:b}", "ok", 1));
}

void
client_wait(struct client *c, struct vbd *v, enum client_wait what)
{
	int rc;

	c->v = v;
	c->waiting = what;
	/* Only whether it hangs up. */
	rc = sd_event_source_set_io_events(c->io, 0);
	if (rc >= 0)
		rc = set_timer(c, c->timeout * 1000000ull);
	if (rc < 0)
		client_fail(c, "%s: ringbackd cannot wait for it (%s) but goes "
		    "on; see ringback list", v->name, strerror(-rc));
	/* What is known of it may be older than the question. */
	vbd_step(v);
}

static void
for_each_waiting(struct vbd *v, void (*call)(struct client *))
{
	struct client *c, *next;

	if (v->sup->control == NULL)
		return;
	for (c = LIST_FIRST(&v->sup->control->clients); c != NULL; c = next) {
		next = LIST_NEXT(c, link);
		if (c->v == v)
			call(c);
	}
}

void
client_vbd_changed(struct vbd *v)
{
	for_each_waiting(v, answer_changed);
}

void
client_vbd_gone(struct vbd *v)
{
	for_each_waiting(v, answer_gone);
}

/* 'in' holds a whole line, without its end. */
static void
on_line(struct client *c)
{
	json_error_t error;
	json_t *question;

	question = json_loads(c->in, JSON_REJECT_DUPLICATES, &error);
	if (!json_is_object(question))
		client_fail(c, "the question is not a JSON object: %s",
		    question == NULL ? error.text : "it is something else");
	else
		answer_question(c, question);
	json_decref(question);
}

static void
client_read(struct client *c)
{
	char *end;
	ssize_t n;

	n = recv(c->fd, c->in + c->used, CONTROL_LINE_MAX - c->used,
	    MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		client_free(c);		/* it has changed its mind */
		return;
	}
	end = memchr(c->in + c->used, '\n', n);
	c->used += n;
	if (end != NULL) {
		*end = '\0';
		if (strlen(c->in) == (size_t)(end - c->in))
			on_line(c);
		else
			client_fail(c, "the question holds a NUL");
	} else if (c->used == CONTROL_LINE_MAX) {
		client_fail(c, "the question is longer than %d bytes",
		    CONTROL_LINE_MAX);
	}
}

static int
on_client(sd_event_source *source, int fd, uint32_t events, void *arg)
{
	struct client *c = arg;

	(void)source;
	(void)fd;
	if (c->out != NULL)
		client_write(c);
	else if (c->waiting == WAIT_NOTHING)
		client_read(c);
	else if (events & (EPOLLHUP | EPOLLERR))
		client_free(c);		/* what it asked for goes on */
	return 0;
}

static void
client_new(struct supervisor *sup, int fd)
{
	struct client *c = calloc(1, sizeof(*c));
	int rc;

	if (c == NULL) {
		close(fd);
		return;
	}
	c->sup = sup;
	c->fd = fd;
	LIST_INSERT_HEAD(&sup->control->clients, c, link);
	if (++sup->control->nr_clients == CLIENTS_MAX) {
		rc = sd_event_source_set_enabled(sup->control->io,
		    SD_EVENT_OFF);
		if (rc < 0)
			log_error(rc, "cannot stop listening");
	}
	rc = sd_event_add_io(sup->event, &c->io, fd, EPOLLIN, on_client, c);
	if (rc >= 0)
		rc = set_timer(c, SLOW_US);
	if (rc < 0) {
		log_error(rc, "cannot watch a control client");
		client_free(c);
	}
}

static int
on_connection(sd_event_source *source, int listener, uint32_t events,
    void *arg)
{
	struct supervisor *sup = arg;
	struct ucred peer;
	socklen_t length = sizeof(peer);
	int fd;

	(void)source;
	(void)events;
	fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0) {
		if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
			log_error(-errno, "cannot accept a control client");
		return 0;
	}
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 ||
	    peer.uid != 0) {
		log_error(0, "refused a control client that is not root");
		close(fd);
		return 0;
	}
	client_new(sup, fd);
	return 0;
}

static int
control_listen(struct supervisor *sup)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int fd, rc;

	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/" CONTROL_SOCKET,
	    sup->opt->run_dir);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	/* The run directory's lock is ours, so this is a dead one's. */
	if ((unlink(sa.sun_path) != 0 && errno != ENOENT) ||
	    bind(fd, (struct sockaddr *)&sa, sizeof(sa)) != 0 ||
	    listen(fd, CLIENTS_MAX) != 0) {
		rc = -errno;
		close(fd);
		return rc;
	}
	return fd;
}

int
control_start(struct supervisor *sup)
{
	struct control *ctl = calloc(1, sizeof(*ctl));
	int rc;

	if (ctl == NULL)
		return -ENOMEM;
	ctl->fd = control_listen(sup);
	if (ctl->fd < 0) {
		rc = ctl->fd;
		free(ctl);
		return rc;
	}
	LIST_INIT(&ctl->clients);
	sup->control = ctl;
	rc = sd_event_add_io(sup->event, &ctl->io, ctl->fd, EPOLLIN,
	    on_connection, sup);
	if (rc < 0)
		control_stop(sup);
	return rc < 0 ? rc : 0;
}

void
control_stop(struct supervisor *sup)
{
	struct control *ctl = sup->control;
	struct client *c, *next;
	char path[128];

	if (ctl == NULL)
		return;
	ctl->io = sd_event_source_disable_unref(ctl->io);
	for (c = LIST_FIRST(&ctl->clients); c != NULL; c = next) {
		next = LIST_NEXT(c, link);
		if (c->waiting != WAIT_NOTHING)
			client_fail(c, "%s: ringbackd is being stopped; see "
			    "ringback list when it runs again", c->v->name);
		else
			client_free(c);
	}
	close(ctl->fd);
	snprintf(path, sizeof(path), "%s/" CONTROL_SOCKET, sup->opt->run_dir);
	if (unlink(path) != 0 && errno != ENOENT)
		log_error(-errno, "cannot remove %s", path);
	free(ctl);
	sup->control = NULL;
}
