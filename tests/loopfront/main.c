/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * loopfront: plays the guests of a block backend on loopxen.
 *
 *	loopfront domain	a guest that lives until it is told to quit, and
 *				uses every disk that is attached to it
 *	loopfront to		tells such a guest what to do
 *	loopfront run		a guest for one job on one disk
 *
 * The disks are attached by somebody else (ringback, a test that writes what
 * libxl writes): what loopfront plays is the kernel of the guest.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "tests/loopfront/command.h"
#include "tests/loopfront/job.h"
#include "tests/loopfront/server.h"
#include "tests/loopfront/vbd.h"

static int stop_fd = -1;

static void
on_signal(int number)
{
	uint64_t	one = 1;
	ssize_t		n;

	(void)number;
	n = write(stop_fd, &one, sizeof(one));
	(void)n;			/* nothing can be done here */
}

static void
catch_signals(struct domain *d)
{
	struct sigaction	sa = { .sa_handler = on_signal };

	stop_fd = d->stop_fd;
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGINT, &sa, NULL);
	sa.sa_handler = SIG_IGN;
	sigaction(SIGPIPE, &sa, NULL);
	prctl(PR_SET_TIMERSLACK, 1);	/* --think-us means it */
}

/* A guest without xenstored has nobody left to play with. */
static void *
run_thread(void *arg)
{
	if (domain_run(arg) < 0)
		_exit(1);
	return NULL;
}

/* Close what is open, as a guest that shuts down in order.  0 or -1. */
static int
close_disks(struct domain *d)
{
	struct vbd	*v;
	int		 bad = 0;

	domain_lock(d);
	LIST_FOREACH(v, &d->vbds, link) {
		if (v->ready && vbd_shut(v, 10) < 0)
			bad = -1;
	}
	domain_unlock(d);
	return bad;
}

/* ---- loopfront domain --------------------------------------------------- */

/* Commands from standard input, one after the other. */
static int
serve_stdin(struct domain *d)
{
	char	line[4096], *argv[COMMAND_ARGS + 1], why[COMMAND_WHY];
	int	argc, bad = 0;

	while (!d->stopping && fgets(line, sizeof(line), stdin) != NULL) {
		argc = command_split(line, argv);
		if (argc == 0)
			continue;
		if (command_run(d, argc, argv, stdout, why) < 0) {
			printf("failed: %s\n", why);
			bad = 1;
		} else {
			printf("ok\n");
		}
		fflush(stdout);
	}
	return bad;
}

/*
 * The child is to become the guest; the parent waits until it says that it is
 * up, prints its number and ends.  In the child: where to say so.
 */
static int
into_background(void)
{
	int	pipefd[2];
	char	up;
	pid_t	pid;

	if (pipe(pipefd) < 0 || (pid = fork()) < 0) {
		perror("loopfront: start in the background");
		exit(1);
	}
	if (pid == 0) {
		close(pipefd[0]);
		return pipefd[1];
	}
	close(pipefd[1]);
	if (read(pipefd[0], &up, 1) != 1) {
		fprintf(stderr, "loopfront: the guest ended before it was "
		    "up\n");
		exit(1);
	}
	printf("%d\n", pid);
	exit(0);
}

static void
is_up(int fd)
{
	if (fd < 0)
		return;
	setsid();
	if (freopen("/dev/null", "r", stdin) == NULL ||
	    freopen("/dev/null", "w", stdout) == NULL ||
	    write(fd, "", 1) != 1)
		perror("loopfront: go into the background");
	close(fd);
}

/*
 * Commands give up what they wait for, then the disks are closed in order,
 * then the domain goes.  0, or -1 when a disk could not be closed.
 */
static int
end_domain(struct domain *d, struct server *s, pthread_t runner)
{
	int	bad;

	domain_lock(d);
	domain_interrupt(d, true);
	domain_unlock(d);
	if (s != NULL)
		server_stop(s);
	domain_lock(d);
	domain_interrupt(d, false);
	domain_unlock(d);
	bad = close_disks(d);
	domain_end(d);
	pthread_join(runner, NULL);
	domain_close(d);
	if (s != NULL)
		server_end(s);
	return bad;
}

/* Create the domain, and the thread that follows it.  0 or -errno. */
static int
begin_domain(const struct options *o, struct domain **d, pthread_t *runner)
{
	int	rc;

	rc = domain_open(d, o);
	if (rc < 0)
		return rc;
	catch_signals(*d);
	rc = pthread_create(runner, NULL, run_thread, *d);
	if (rc != 0) {
		fprintf(stderr, "loopfront: start a thread: %s\n",
		    strerror(rc));
		domain_close(*d);
	}
	return -rc;
}

static int
cmd_domain(struct options *o)
{
	struct domain	*d;
	struct server	*s = NULL;
	pthread_t	 runner;
	int		 up = -1, bad = 0, rc;

	if (o->background && o->socket == NULL) {
		fprintf(stderr, "loopfront: --background needs a --socket\n");
		return 2;
	}
	if (o->background)
		up = into_background();
	if (begin_domain(o, &d, &runner) < 0)
		return 1;
	if (o->socket != NULL && (rc = server_start(&s, d, o->socket)) < 0) {
		fprintf(stderr, "loopfront: listen on %s: %s\n", o->socket,
		    strerror(-rc));
		end_domain(d, NULL, runner);
		return 1;
	}
	is_up(up);
	if (s == NULL) {
		bad = serve_stdin(d);
	} else {
		domain_lock(d);
		while (!d->stopping)
			pthread_cond_wait(&d->changed, &d->lock);
		domain_unlock(d);
	}
	return end_domain(d, s, runner) < 0 || bad ? 1 : 0;
}

/* ---- loopfront to ------------------------------------------------------- */

static int
cmd_to(int argc, char **argv)
{
	if (argc < 3) {
		fprintf(stderr, "loopfront: to SOCKET COMMAND ...\n");
		return 2;
	}
	return server_ask(argv[1], argc - 2, argv + 2);
}

/* ---- loopfront run ------------------------------------------------------ */

/* The disk that is asked for, or the first one that appears; with the lock. */
static struct vbd *
wait_for_disk(struct domain *d, const struct options *o)
{
	uint64_t	until = clock_ns() + (uint64_t)(o->wait * 1e9);
	uint32_t	devid;
	struct vbd	*v;

	for (;;) {
		v = o->vdev == NULL ? LIST_FIRST(&d->vbds) :
		    vbd_parse(o->vdev, &devid) == 0 ? vbd_find(d, devid) :
		    NULL;
		if (v != NULL)
			return v;
		if (d->stopping || domain_wait(d, until) < 0) {
			fprintf(stderr, "loopfront: domain %u: no disk %s "
			    "appeared within %g s\n", d->domid, o->vdev ==
			    NULL ? "" : o->vdev, o->wait);
			return NULL;
		}
	}
}

/* One job on a connected disk; with the lock. */
static int
one_job(struct domain *d, struct vbd *v, const struct options *o)
{
	struct job_result	*r = malloc(sizeof(*r));
	int			 rc;

	if (r == NULL)
		return -ENOMEM;
	v->busy = true;
	domain_unlock(d);
	rc = job_run(v, o, r, o->json ? stderr : stdout);
	domain_lock(d);
	if (r->ns > 0 && o->json)
		job_report_json(v, o, r, stdout);
	else if (r->ns > 0)
		job_report_text(v, o, r, stdout);
	if (rc < 0)
		fprintf(stderr, "loopfront: domain %u, %s: %s\n", d->domid,
		    v->name, r->why);
	vbd_idle(v);
	free(r);
	return rc;
}

/* The next guest is another one. */
static void
vary(struct options *o)
{
	o->abi = (o->abi + 1) % 3;
	o->order = (o->order + 1) % (FRONT_MAX_ORDER + 1);
	o->segments = o->segments == 32 ? FRONT_MAX_INDIRECT :
	    o->segments == 11 ? 32 : 11;
	o->queues = o->queues % 4 + 1;
}

static int
jobs(struct domain *d, const struct options *o)
{
	struct vbd	*v = wait_for_disk(d, o);
	unsigned	 i;
	int		 rc;

	if (v == NULL)
		return -ENODEV;
	rc = vbd_wait_ready(v, o->wait);
	for (i = 0; rc == 0; i++) {
		if (o->connect_only)
			printf("connected: %s abi=%s ring-order=%u queues=%u\n",
			    v->name, front_abi_name(v->queues[0].opt.abi),
			    v->queues[0].opt.order, v->nr_queues);
		else
			rc = one_job(d, v, o);
		if (rc < 0 || i == o->reconnect)
			break;
		rc = vbd_shut(v, o->wait);
		if (o->vary)
			vary(&v->opt);
		if (rc == 0)
			rc = vbd_reopen(v, o->wait);
	}
	return rc;
}

static int
cmd_run(struct options *o)
{
	struct domain	*d;
	pthread_t	 runner;
	int		 rc;

	if (begin_domain(o, &d, &runner) < 0)
		return 1;
	domain_lock(d);
	rc = jobs(d, o);
	domain_unlock(d);
	if (o->leave_open) {
		fflush(stdout);
		_exit(rc < 0 ? 1 : 0);
	}
	return end_domain(d, NULL, runner) < 0 || rc < 0 ? 1 : 0;
}

/* ---- which of them ------------------------------------------------------ */

static void
help(FILE *f)
{
	fprintf(f, "usage: loopfront domain [OPTIONS]\n"
	    "       loopfront to SOCKET COMMAND [ARGUMENTS]\n"
	    "       loopfront run [OPTIONS]\n\n"
	    "Options of domain and run:\n");
	options_help(IN_DOMAIN | IN_CONNECT, f);
	fprintf(f, "\nMore options of run:\n");
	options_help(IN_IO | IN_RUN | IN_WAIT, f);
	fprintf(f, "\nCommands:\n");
	command_help(f);
}

int
main(int argc, char **argv)
{
	static const unsigned	all = IN_DOMAIN | IN_CONNECT | IN_IO | IN_RUN |
	    IN_WAIT;
	struct options		o;
	bool			run;
	int			n;

	if (argc >= 2 && (strcmp(argv[1], "--help") == 0 ||
	    strcmp(argv[1], "help") == 0)) {
		help(stdout);
		return 0;
	}
	if (argc >= 2 && strcmp(argv[1], "to") == 0)
		return cmd_to(argc - 1, argv + 1);
	run = argc >= 2 && strcmp(argv[1], "run") == 0;
	if (!run && (argc < 2 || strcmp(argv[1], "domain") != 0)) {
		help(stderr);
		return 2;
	}
	options_init(&o);
	n = options_parse(&o, run ? all : IN_DOMAIN | IN_CONNECT, argc - 1,
	    argv + 1, stderr);
	if (n < 0)
		return 2;
	if (n < argc - 1) {
		fprintf(stderr, "loopfront: %s: what is that? try --help\n",
		    argv[1 + n]);
		return 2;
	}
	return run ? cmd_run(&o) : cmd_domain(&o);
}
