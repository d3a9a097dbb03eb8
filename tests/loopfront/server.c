/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See server.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/loopfront/command.h"
#include "tests/loopfront/server.h"

struct server {
	struct domain *d;
	char	 path[sizeof(((struct sockaddr_un *)0)->sun_path)];
	int	 fd;
	pthread_t accepter;
	pthread_mutex_t lock;
	pthread_cond_t fewer;
	unsigned running;		/* threads that serve a connection */
	FILE	*quit;			/* to be answered at the very end */
};

struct connection {
	struct server *s;
	FILE	*in, *out;
};

static int
address(const char *path, struct sockaddr_un *un)
{
	memset(un, 0, sizeof(*un));
	un->sun_family = AF_UNIX;
	if (strlen(path) >= sizeof(un->sun_path))
		return -ENAMETOOLONG;
	strcpy(un->sun_path, path);
	return 0;
}

/* ---- a connection ------------------------------------------------------- */

/* True: the answer waits for the end of the domain. */
static bool
serve(struct connection *c)
{
	char	line[4096], *argv[COMMAND_ARGS + 1], why[COMMAND_WHY];
	int	argc, rc;

	if (fgets(line, sizeof(line), c->in) == NULL)
		return false;
	argc = command_split(line, argv);
	rc = command_run(c->s->d, argc, argv, c->out, why);
	if (rc == 0 && strcmp(argv[0], "quit") == 0)
		return true;
	if (rc < 0)
		fprintf(c->out, "failed: %s\n", why);
	else
		fprintf(c->out, "ok\n");
	return false;
}

static void *
connection_thread(void *arg)
{
	struct connection	*c = arg;
	struct server		*s = c->s;
	bool			 quit = serve(c);

	fclose(c->in);
	pthread_mutex_lock(&s->lock);
	if (quit && s->quit == NULL)
		s->quit = c->out;
	else
		fclose(c->out);
	s->running--;
	pthread_cond_broadcast(&s->fewer);
	pthread_mutex_unlock(&s->lock);
	free(c);
	return NULL;
}

static void
connection_start(struct server *s, int fd)
{
	struct connection	*c = calloc(1, sizeof(*c));
	pthread_attr_t		 attr;
	pthread_t		 thread;
	int			 fd2 = dup(fd);

	if (c == NULL || fd2 < 0)
		goto fail;
	c->s = s;
	c->in = fdopen(fd, "r");
	c->out = fdopen(fd2, "w");
	if (c->in == NULL || c->out == NULL)
		goto fail;
	setvbuf(c->out, NULL, _IOLBF, 0);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_mutex_lock(&s->lock);
	if (pthread_create(&thread, &attr, connection_thread, c) == 0)
		s->running++;
	else
		fprintf(stderr, "loopfront: no thread for a command\n");
	pthread_mutex_unlock(&s->lock);
	pthread_attr_destroy(&attr);
	return;

fail:
	fprintf(stderr, "loopfront: no memory for a command\n");
	free(c);
	close(fd);
	if (fd2 >= 0)
		close(fd2);
}

/* Ends when server_stop() shuts the socket down. */
static void *
accepter(void *arg)
{
	struct server	*s = arg;
	int		 fd;

	for (;;) {
		fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC);
		if (fd >= 0)
			connection_start(s, fd);
		else if (errno != EINTR && errno != ECONNABORTED)
			return NULL;
	}
}

/* ---- the guest's end ---------------------------------------------------- */

int
server_start(struct server **sp, struct domain *d, const char *path)
{
	struct sockaddr_un	un;
	struct server		*s;
	int			 rc = address(path, &un);

	if (rc < 0)
		return rc;
	s = calloc(1, sizeof(*s));
	if (s == NULL)
		return -ENOMEM;
	s->d = d;
	strcpy(s->path, path);
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->fewer, NULL);
	s->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (s->fd < 0 || (unlink(path) < 0 && errno != ENOENT) ||
	    bind(s->fd, (struct sockaddr *)&un, sizeof(un)) < 0 ||
	    listen(s->fd, 16) < 0)
		rc = -errno;
	else
		rc = -pthread_create(&s->accepter, NULL, accepter, s);
	if (rc < 0) {
		if (s->fd >= 0)
			close(s->fd);
		free(s);
		return rc;
	}
	*sp = s;
	return 0;
}

void
server_stop(struct server *s)
{
	unlink(s->path);
	shutdown(s->fd, SHUT_RDWR);
	pthread_join(s->accepter, NULL);
	close(s->fd);
	pthread_mutex_lock(&s->lock);
	while (s->running > 0)
		pthread_cond_wait(&s->fewer, &s->lock);
	pthread_mutex_unlock(&s->lock);
}

void
server_end(struct server *s)
{
	if (s->quit != NULL) {
		fprintf(s->quit, "ok\n");
		fclose(s->quit);
	}
	free(s);
}

/* ---- the other end ------------------------------------------------------ */

static int
send_command(int fd, int argc, char **argv)
{
	char	line[4096];
	int	i, len = 0;

	for (i = 0; i < argc && len < (int)sizeof(line); i++)
		len += snprintf(line + len, sizeof(line) - (size_t)len, "%s%c",
		    argv[i], i + 1 < argc ? ' ' : '\n');
	if (len >= (int)sizeof(line))
		return -E2BIG;
	return send(fd, line, (size_t)len, MSG_NOSIGNAL) == len ? 0 : -errno;
}

/* Lines pass through, but for the last one. */
static int
take_answer(FILE *in, const char *path)
{
	char	*line = NULL;
	size_t	 size = 0;
	int	 status = 1;
	bool	 ended = false;

	while (!ended && getline(&line, &size, in) > 0) {
		ended = true;
		if (strcmp(line, "ok\n") == 0)
			status = 0;
		else if (strncmp(line, "failed: ", 8) == 0)
			fprintf(stderr, "loopfront: %s", line + 8);
		else
			ended = false;
		if (!ended) {
			fputs(line, stdout);
			fflush(stdout);
		}
	}
	free(line);
	if (!ended)
		fprintf(stderr, "loopfront: %s: the guest went away without "
		    "an answer\n", path);
	return status;
}

int
server_ask(const char *path, int argc, char **argv)
{
	struct sockaddr_un	 un;
	FILE			*in;
	int			 fd, rc, status;

	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	rc = address(path, &un);
	if (rc == 0 && connect(fd, (struct sockaddr *)&un, sizeof(un)) < 0)
		rc = -errno;
	if (rc == 0)
		rc = send_command(fd, argc, argv);
	in = rc == 0 ? fdopen(fd, "r") : NULL;
	if (in == NULL) {
		fprintf(stderr, "loopfront: %s: ask the guest there: %s\n",
		    path, strerror(rc < 0 ? -rc : errno));
		if (fd >= 0)
			close(fd);
		return 1;
	}
	status = take_answer(in, path);
	fclose(in);
	return status;
}
