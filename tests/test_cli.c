/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * test_cli: the command line against a daemon that is played here.
 *
 * A row is one call of ringback: what the daemon answers (or how it
 * misbehaves), the question that must reach it, the exit status, and what
 * must be printed where.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

enum daemon {
	ABSENT,		/* there is no socket */
	DEAD,		/* there is one, nobody listens */
	ANSWERS,	/* one line */
	ANSWERS_BYTES,	/* the same byte by byte, ended by end-of-file */
	HANGS_UP,	/* without reading */
	SILENT,		/* reads and never answers */
};

struct call {
	const char  *args[10];		/* after --run-dir DIR; NULL ends */
	enum daemon  daemon;
	const char  *answer;
	const char  *question;		/* JSON that must arrive; NULL: any */
	int          status;
	const char  *out;		/* all of stdout; NULL: not compared */
	const char  *err[4];		/* parts of stderr; none: it is empty */
};

static char dir[] = "/tmp/test_cli.XXXXXX";
static char sock_path[128];
static int  ringback_fd;		/* the program */

/* What the played daemon needs and what it saw. */
struct play {
	const struct call *call;
	int  listener;
	char question[70000];
};

/* ---- the daemon ---------------------------------------------------------- */

static void
play_answer(int fd, const struct call *c)
{
	const char *p;
	char line[8192];
	int n;

	n = snprintf(line, sizeof(line), "%s%s", c->answer,
	    c->daemon == ANSWERS ? "\n" : "");
	if (c->daemon == ANSWERS) {
		if (send(fd, line, (size_t)n, MSG_NOSIGNAL) != n)
			perror("answer");
		return;
	}
	for (p = line; *p != '\0'; p++)
		if (send(fd, p, 1, MSG_NOSIGNAL) != 1)
			perror("answer");
}

static void *
play(void *arg)
{
	struct play *p = arg;
	size_t used = 0;
	ssize_t n;
	int fd;

	fd = accept(p->listener, NULL, NULL);
	if (fd == -1)
		return NULL;	/* shut down: nobody called */
	if (p->call->daemon == HANGS_UP)
		goto out;
	do {
		n = recv(fd, p->question + used,
		    sizeof(p->question) - 1 - used, 0);
		if (n > 0)
			used += (size_t)n;
	} while (n > 0 && memchr(p->question, '\n', used) == NULL);
	if (p->call->daemon == SILENT)
		(void)!recv(fd, &(char){ 0 }, 1, 0);	/* until it gives up */
	else
		play_answer(fd, p->call);
out:
	close(fd);
	return NULL;
}

static void
play_start(struct play *p, const struct call *c, pthread_t *thread)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };

	p->call = c;
	p->listener = -1;
	unlink(sock_path);
	if (c->daemon == ABSENT)
		return;
	strcpy(sun.sun_path, sock_path);
	p->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(p->listener != -1);
	assert_int_equal(bind(p->listener, (struct sockaddr *)&sun,
	    sizeof(sun)), 0);
	assert_int_equal(chmod(sock_path, 0600), 0);
	if (c->daemon == DEAD)
		return;
	assert_int_equal(listen(p->listener, 5), 0);
	assert_int_equal(pthread_create(thread, NULL, play, p), 0);
}

static void
play_stop(struct play *p, pthread_t thread)
{
	if (p->call->daemon > DEAD) {
		shutdown(p->listener, SHUT_RDWR);	/* wakes accept() */
		assert_int_equal(pthread_join(thread, NULL), 0);
	}
	if (p->listener != -1)
		close(p->listener);
}

/* ---- the command --------------------------------------------------------- */

/* Everything that was written to 'fd', to be freed. */
static char *
slurp(int fd)
{
	off_t size = lseek(fd, 0, SEEK_END);
	char *text;

	assert_true(size >= 0);
	text = calloc(1, (size_t)size + 1);
	assert_non_null(text);
	assert_int_equal(pread(fd, text, (size_t)size, 0), size);
	close(fd);
	return text;
}

/* Run it as 'uid' and wait; its wait status. */
static int
run_ringback(const char *const *args, uid_t uid, int out, int err)
{
	char *argv[16] = { "ringback", "--run-dir", dir };
	char *envp[] = { "LC_ALL=C", "XENBUS_PATH=backend/vbd/7/51712", NULL };
	pid_t pid;
	int i, status;

	for (i = 0; args[i] != NULL; i++)
		argv[3 + i] = (char *)args[i];
	if (i > 0 && strcmp(args[0], "-env") == 0) {
		envp[1] = (char *)args[1];
		memmove(argv + 3, argv + 5, (size_t)(i - 1) * sizeof(argv[0]));
	}
	pid = fork();
	assert_true(pid != -1);
	if (pid == 0) {
		alarm(60);
		if (dup2(out, STDOUT_FILENO) == -1 ||
		    dup2(err, STDERR_FILENO) == -1 ||
		    (uid != getuid() && setresuid(uid, uid, uid) == -1))
			_exit(126);
		fexecve(ringback_fd, argv, envp);
		_exit(127);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void
compare_question(const struct call *c, const char *question)
{
	json_t *want, *got;

	if (c->question == NULL)
		return;
	want = json_loads(c->question, 0, NULL);
	got = json_loads(question, 0, NULL);
	assert_non_null(want);
	if (!json_equal(want, got))
		fail_msg("%s: the daemon heard: %s", c->args[0], question);
	assert_ptr_equal(strchr(question, '\n'),
	    question + strlen(question) - 1);
	json_decref(want);
	json_decref(got);
}

static void
compare(const struct call *c, int status, const char *out, const char *err)
{
	size_t i;

	if (!WIFEXITED(status) || WEXITSTATUS(status) != c->status)
		fail_msg("%s: wait status 0x%x, not %d\n%s%s", c->args[0],
		    status, c->status, out, err);
	if (c->out != NULL && strcmp(out, c->out) != 0)
		fail_msg("%s: stdout:\n%s\nnot:\n%s", c->args[0], out, c->out);
	if (c->err[0] == NULL && err[0] != '\0')
		fail_msg("%s: stderr: %s", c->args[0], err);
	for (i = 0; i < COUNT(c->err) && c->err[i] != NULL; i++)
		if (strstr(err, c->err[i]) == NULL)
			fail_msg("%s: stderr lacks \"%s\": %s", c->args[0],
			    c->err[i], err);
}

static void
check_as(const struct call *c, uid_t uid)
{
	static struct play p;
	pthread_t thread = 0;
	char *out, *err;
	int out_fd, err_fd, status;

	memset(&p, 0, sizeof(p));
	play_start(&p, c, &thread);
	out_fd = memfd_create("stdout", 0);
	err_fd = memfd_create("stderr", 0);
	assert_true(out_fd != -1 && err_fd != -1);
	status = run_ringback(c->args, uid, out_fd, err_fd);
	play_stop(&p, thread);
	out = slurp(out_fd);
	err = slurp(err_fd);
	compare(c, status, out, err);
	compare_question(c, p.question);
	free(out);
	free(err);
}

static void
check(const struct call *calls, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		check_as(&calls[i], getuid());
}

/* ---- the rows ------------------------------------------------------------ */

#define OK "{\"ok\": true}"
#define NO "{\"ok\": false, \"error\": \"vbd 7/51728: no\\u001b[2J\\nsuch\"}"

static void
test_resize(void **state)
{
	static const struct call calls[] = {
		{ { "resize", "web1", "xvdb" }, ANSWERS,
		  "{\"ok\": true, \"size\": 1024, \"told\": false}",
		  "{\"op\": \"resize\", \"domain\": \"web1\", "
		  "\"vdev\": \"xvdb\", \"timeout\": 30}", 0,
		  "xvdb has 1024 bytes now\n", { NULL } },
		{ { "resize", "web1", "xvdb", "2T" }, ANSWERS,
		  "{\"ok\": true, \"size\": 2199023255552, \"told\": true}",
		  "{\"op\": \"resize\", \"domain\": \"web1\", "
		  "\"vdev\": \"xvdb\", \"timeout\": 30, "
		  "\"size\": 2199023255552}", 0,
		  "xvdb has 2199023255552 bytes now, and the guest knows\n",
		  { NULL } },
		{ { "resize", "web1", "xvdb", "+1024" }, ANSWERS,
		  "{\"ok\": true, \"size\": 2048, \"told\": true}",
		  "{\"op\": \"resize\", \"domain\": \"web1\", "
		  "\"vdev\": \"xvdb\", \"timeout\": 30, "
		  "\"more\": 1024}", 0, "xvdb has 2048 bytes now, and the "
		  "guest knows\n", { NULL } },
	};

	(void)state;
	check(calls, sizeof(calls) / sizeof(calls[0]));
}

static void
test_commands(void **state)
{
	static const struct call calls[] = {
		{ { "attach", "web1", "xvdb", "raw,poll=off:/srv/b:1.img" },
		  ANSWERS, OK,
		  "{\"op\": \"attach\", \"domain\": \"web1\", \"vdev\": "
		  "\"xvdb\", \"spec\": \"raw,poll=off:/srv/b:1.img\", "
		  "\"readonly\": false, \"cdrom\": false, \"wait\": true, "
		  "\"timeout\": 30}",
		  0, "xvdb is connected to web1\n", { NULL } },
		{ { "attach", "--readonly", "7", "xvdb", "--timeout", "86400",
		    "raw:/\xc3\xa4", "--no-wait" },
		  ANSWERS_BYTES, OK,
		  "{\"op\": \"attach\", \"domain\": \"7\", \"vdev\": "
		  "\"xvdb\", \"spec\": \"raw:/\xc3\xa4\", "
		  "\"readonly\": true, \"cdrom\": false, \"wait\": false, "
		  "\"timeout\": 86400}",
		  0, "xvdb is offered to 7\n", { NULL } },
		{ { "detach", "web1", "xvdb" }, ANSWERS, OK,
		  "{\"op\": \"detach\", \"domain\": \"web1\", "
		  "\"vdev\": \"xvdb\", \"timeout\": 30}", 0, "", { NULL } },
		{ { "--timeout", "1", "detach", "web1", "xvdb" }, ANSWERS, OK,
		  "{\"op\": \"detach\", \"domain\": \"web1\", "
		  "\"vdev\": \"xvdb\", \"timeout\": 1}", 0, "", { NULL } },
		{ { "hotplug", "add" }, ANSWERS, OK,
		  "{\"op\": \"hotplug\", \"action\": \"add\", "
		  "\"backend\": \"backend/vbd/7/51712\"}", 0, "", { NULL } },
		{ { "hotplug", "remove" }, ANSWERS, OK,
		  "{\"op\": \"hotplug\", \"action\": \"remove\", "
		  "\"backend\": \"backend/vbd/7/51712\"}", 0, "", { NULL } },
		{ { "--json", "detach", "web1", "xvdb" }, ANSWERS,
		  "{\"ok\": true, \"more\": [1, 2]}", NULL, 0,
		  "{\"ok\":true,\"more\":[1,2]}\n", { NULL } },

		/* The daemon's reason is shown, and cannot move the cursor. */
		{ { "attach", "7", "xvdb", "raw:/x" }, ANSWERS, NO, NULL, 1, "",
		  { "ringback: vbd 7/51728: no?[2J?such\n" } },
		{ { "detach", "7", "xvdb" }, ANSWERS, NO, NULL, 1, "",
		  { "ringback: vbd 7/51728: no?[2J?such\n" } },
		{ { "stats", "7", "xvdb" }, ANSWERS, NO, NULL, 1, "",
		  { "ringback: vbd 7/51728: no?[2J?such\n" } },
		{ { "hotplug", "add" }, ANSWERS, NO, NULL, 1, "",
		  { "ringback: vbd 7/51728: no?[2J?such\n" } },
		{ { "detach", "7", "xvdb", "--json" }, ANSWERS, NO, NULL, 1,
		  "{\"ok\":false,\"error\":\"vbd 7/51728: "
		  "no\\u001B[2J\\nsuch\"}\n", { "no?[2J?such\n" } },
		{ { "detach", "7", "xvdb" }, ANSWERS, "{\"ok\": false}", NULL,
		  1, "", { "does not say why" } },
	};

	(void)state;
	check(calls, COUNT(calls));
}

static void
test_drives(void **state)
{
	static const struct call calls[] = {
		{ { "attach", "7", "xvdc", "raw:", "--cdrom" }, ANSWERS, OK,
		  "{\"op\": \"attach\", \"domain\": \"7\", \"vdev\": "
		  "\"xvdc\", \"spec\": \"raw:\", \"readonly\": false, "
		  "\"cdrom\": true, \"wait\": true, \"timeout\": 30}",
		  0, "xvdc is connected to 7\n", { NULL } },
		{ { "eject", "web1", "xvdc", "--timeout", "7" }, ANSWERS, OK,
		  "{\"op\": \"eject\", \"domain\": \"web1\", "
		  "\"vdev\": \"xvdc\", \"timeout\": 7}", 0, "", { NULL } },
		{ { "insert", "web1", "xvdc", "raw:/a.iso" }, ANSWERS, OK,
		  "{\"op\": \"insert\", \"domain\": \"web1\", "
		  "\"vdev\": \"xvdc\", \"spec\": \"raw:/a.iso\", "
		  "\"timeout\": 30}", 0, "", { NULL } },
	};

	(void)state;
	check(calls, COUNT(calls));
}

static void
test_list(void **state)
{
	static const struct call calls[] = {
		{ { "list" }, ANSWERS, "{\"ok\": true, \"disks\": []}",
		  "{\"op\": \"list\"}", 0,
		  "DOMAIN  NAME  VDEV  KIND  BACKEND  FRONTEND  SIZE  MODE  "
		  "QUEUES  PID  SPEC\n", { NULL } },
		{ { "list" }, ANSWERS,
		  "{\"ok\": true, \"disks\": ["
		  "{\"domid\": 7, \"domain\": \"web1\", \"devid\": 51712, "
		  "\"vdev\": \"xvda\", \"kind\": \"vbd\", \"state\": "
		  "\"Connected\", \"frontend-state\": \"Connected\", "
		  "\"spec\": \"raw:/srv/a.img\", \"pid\": 123, "
		  "\"size\": 10737418240, \"readonly\": false, "
		  "\"queues\": 4, "
		  "\"error\": null},"
		  "{\"domid\": 12, \"domain\": \"b\xc3\xa4\\u0007r-long\", "
		  "\"devid\": 51728, \"vdev\": \"xvdb\", \"kind\": "
		  "\"ringback\", \"state\": \"Closed\", \"frontend-state\": "
		  "\"Initialising\", \"spec\": \"raw,poll=off:/b\", "
		  "\"pid\": null, \"size\": 1610613248, \"readonly\": true, "
		  "\"queues\": 0, "
		  "\"error\": \"open /b: No such file\\nor directory\"},"
		  "{\"domid\": 13, \"size\": 1023, \"spec\": \"x\"},"
		  "{\"domid\": 0, \"domain\": \"\", \"size\": 0, "
		  "\"pid\": 0}]}",
		  "{\"op\": \"list\"}", 0,
		  "DOMAIN  NAME       VDEV  KIND      BACKEND    FRONTEND"
		  "      SIZE  MODE  QUEUES  PID  SPEC\n"
		  "7       web1       xvda  vbd       Connected  Connected"
		  "     10G   rw    4       123  raw:/srv/a.img\n"
		  "12      b\xc3\xa4?r-long  xvdb  ringback  Closed     "
		  "Initialising  1.5G  ro    -       -    raw,poll=off:/b\n"
		  "        open /b: No such file?or directory\n"
		  "13      -          -     -         -          -"
		  "             1023  -     -       -    x\n"
		  "0       -          -     -         -          -"
		  "             -     -     -       -    -\n", { NULL } },
		{ { "list", "--json" }, ANSWERS,
		  "{\"ok\": true, \"disks\": []}", NULL, 0,
		  "{\"ok\":true,\"disks\":[]}\n", { NULL } },
		{ { "list" }, ANSWERS, OK, NULL, 1, "",
		  { "answer", "version", "release" } },
	};

	(void)state;
	check(calls, COUNT(calls));
}

static const char busy_answer[] =
    "{\"ok\": true, \"stats\": {\"reqs-taken\": 4003, "
    "\"reqs-answered\": 4000, \"in-flight\": 3, "
    "\"reqs-rejected\": 1, \"reqs-failed\": 2, "
    "\"reads\": 3000, \"writes\": 995, \"flushes\": 0, "
    "\"read-bytes\": 12288000, \"write-bytes\": 1048576, "
    "\"flush-bytes\": 0, \"read-wait-ns\": 300000000, "
    "\"write-wait-ns\": 995000, \"flush-wait-ns\": 0, "
    "\"read-wait-max-ns\": 1234567, "
    "\"write-wait-max-ns\": 5000000000, "
    "\"flush-wait-max-ns\": 0, \"barriers\": 4, "
    "\"barrier-bytes\": 16384, \"barrier-wait-ns\": 2000000, "
    "\"barrier-wait-max-ns\": 1000000, \"discards\": 2, "
    "\"discard-bytes\": 1073741824, "
    "\"discard-wait-ns\": 20000, "
    "\"discard-wait-max-ns\": 15000, \"ios\": 160, "
    "\"ios-retried\": 5, \"submits\": 100, \"rounds\": 125, "
    "\"metadata-writes\": 199, "
    "\"copy-calls\": 200, \"copy-segments\": 5000, "
    "\"map-calls\": 1056, \"unmap-calls\": 8, "
    "\"publishes\": 130, \"notifies\": 120, \"events\": 40, "
    "\"sleeps\": 7, \"polls\": 8, \"connects\": 2, "
    "\"queues\": 3, \"queues-offered\": 4}}";

static const char busy_text[] =
"requests\n"
"  taken                          4003\n"
"  answered                       4000\n"
"  in flight                         3\n"
"  refused                           1\n"
"  failed                            2\n"
"\n"
"operations                   answered        bytes      mean us       max us\n"
"  reads                          3000        11.7M        100.0       1234.6\n"
"  writes                          995           1M          1.0    5000000.0\n"
"  flushes                           0            0            -          0.0\n"
"  barriers                          4          16K        500.0       1000.0\n"
"  discards                          2           1G         10.0         15.0\n"
"\n"
"storage\n"
"  host I/Os                       160       25.000 requests per host I/O\n"
"  submit calls                    100        0.025 per request\n"
"  retried alone                     5\n"
"  metadata writes                 199        0.200 per guest's write\n"
"\n"
"guest\n"
"  grant-copy calls                200        0.050 per request\n"
"  segments copied                5000       25.000 per call\n"
"  pages mapped to stay           1056        0.264 per request\n"
"  pages unmapped                    8        0.002 per request\n"
"  notifications                   120        0.030 per request\n"
"  events received                  40        0.010 per request\n"
"  publications                    130\n"
"  connections                       2\n"
"\n"
"queues\n"
"  offered                           4\n"
"  in use                            3\n"
"  rounds                          125       32.000 requests per round\n"
"  polls with work                   8\n"
"  sleeps                            7\n";

static void
test_stats(void **state)
{
	static const struct call calls[] = {
		{ { "stats", "web1", "xvda" }, ANSWERS,
		  busy_answer,
		  "{\"op\": \"stats\", \"domain\": \"web1\", "
		  "\"vdev\": \"xvda\"}", 0, busy_text, { NULL } },
		{ { "stats", "7", "xvda", "--json" }, ANSWERS,
		  "{\"ok\": true, \"stats\": {\"reads\": 1}}", NULL, 0,
		  "{\"ok\":true,\"stats\":{\"reads\":1}}\n", { NULL } },
		{ { "stats", "7", "xvda" }, ANSWERS, OK, NULL, 1, "",
		  { "answer", "version" } },
	};

	(void)state;
	check(calls, COUNT(calls));
}

/* An idle disk: nothing is divided by nothing. */
static void
test_stats_idle(void **state)
{
	static const struct call idle = {
		{ "stats", "7", "xvda" }, ANSWERS,
		"{\"ok\": true, \"stats\": {}}", NULL, 0,
"requests\n"
"  taken                             0\n"
"  answered                          0\n"
"  in flight                         0\n"
"  refused                           0\n"
"  failed                            0\n"
"\n"
"operations                   answered        bytes      mean us       max us\n"
"  reads                             0            0            -          0.0\n"
"  writes                            0            0            -          0.0\n"
"  flushes                           0            0            -          0.0\n"
"  barriers                          0            0            -          0.0\n"
"  discards                          0            0            -          0.0\n"
"\n"
"storage\n"
"  host I/Os                         0            - requests per host I/O\n"
"  submit calls                      0            - per request\n"
"  retried alone                     0\n"
"  metadata writes                   0            - per guest's write\n"
"\n"
"guest\n"
"  grant-copy calls                  0            - per request\n"
"  segments copied                   0            - per call\n"
"  pages mapped to stay              0            - per request\n"
"  pages unmapped                    0            - per request\n"
"  notifications                     0            - per request\n"
"  events received                   0            - per request\n"
"  publications                      0\n"
"  connections                       0\n"
"\n"
"queues\n"
"  offered                           0\n"
"  in use                            0\n"
"  rounds                            0            - requests per round\n"
"  polls with work                   0\n"
"  sleeps                            0\n", { NULL } };

	(void)state;
	check(&idle, 1);
}

static void
test_no_daemon(void **state)
{
	static const struct call calls[] = {
		{ { "list" }, ABSENT, NULL, NULL, 1, "",
		  { "ringbackd does not answer", "/control", "start it" } },
		{ { "list" }, DEAD, NULL, NULL, 1, "",
		  { "ringbackd does not answer", "/control", "start it" } },
		{ { "hotplug", "add" }, ABSENT, NULL, NULL, 1, "",
		  { "ringbackd does not answer", "start it" } },
		{ { "list" }, HANGS_UP, NULL, NULL, 1, "",
		  { "without an answer", "root" } },
		{ { "list" }, ANSWERS, "no JSON", NULL, 1, "",
		  { "answer", "version" } },
		{ { "list" }, ANSWERS, "[]", NULL, 1, "",
		  { "answer", "version" } },
		{ { "list" }, ANSWERS, "{\"disks\": []}", NULL, 1, "",
		  { "answer", "version" } },
		{ { "list" }, ANSWERS, "{\"ok\": 1}", NULL, 1, "",
		  { "answer", "version" } },
		{ { "list" }, ANSWERS, "", NULL, 1, "",
		  { "answer", "version" } },
		{ { "list" }, ANSWERS_BYTES, "", NULL, 1, "",
		  { "without an answer" } },
		{ { "list" }, ANSWERS_BYTES, "{\"ok\": tr", NULL, 1, "",
		  { "answer", "version" } },
	};
	static const struct call json = {
		{ "list", "--json" }, ABSENT, NULL, NULL, 1, NULL,
		{ "ringbackd does not answer" }
	};

	(void)state;
	check(calls, COUNT(calls));
	check(&json, 1);
}

static void
test_not_root(void **state)
{
	static const struct call call = {
		{ "list" }, ANSWERS, OK, NULL, 1, "",
		{ "/control", "Permission denied", "root" }
	};

	(void)state;
	if (getuid() != 0)
		skip();
	check_as(&call, 65534);
}

static double
now(void)
{
	struct timespec ts;

	assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &ts), 0);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* The daemon is given its own time, and a little more. */
static void
test_silent(void **state)
{
	static const struct call call = {
		{ "attach", "7", "xvdb", "raw:/x", "--timeout", "1" }, SILENT,
		NULL, NULL, 1, "", { "no answer", "within 6 seconds" }
	};
	double began = now();

	(void)state;
	check(&call, 1);
	assert_true(now() - began >= 5.9);
	assert_true(now() - began < 20);
}

#define USED "usage: ringback"

static void
test_misuse(void **state)
{
	static const struct call calls[] = {
		{ { NULL }, ANSWERS, OK, NULL, 2, "",
		  { "which command", USED, "attach DOMAIN", "hotplug" } },
		{ { "lst" }, ANSWERS, OK, NULL, 2, "", { "\"lst\"", USED } },
		{ { "attach", "7", "xvdb" }, ANSWERS, OK, NULL, 2, "",
		  { "missing", USED " attach DOMAIN VDEV SPEC" } },
		{ { "list", "7" }, ANSWERS, OK, NULL, 2, "",
		  { "too many: 7", USED " list" } },
		{ { "stats", "7", "xvdb", "xvdc" }, ANSWERS, OK, NULL, 2, "",
		  { "too many: xvdc", USED " stats" } },
		{ { "resize", "7" }, ANSWERS, OK, NULL, 2, "", { "missing" } },
		{ { "resize", "7", "xvdb", "1G", "2G" }, ANSWERS, OK, NULL, 2,
		  "", { "too many: 2G" } },
		{ { "resize", "7", "xvdb", "100" }, ANSWERS, OK, NULL, 2, "",
		  { "resize: 100 is no multiple of 512" } },
		{ { "resize", "7", "xvdb", "-1G" }, ANSWERS, OK, NULL, 2, "",
		  { USED } },
		{ { "resize", "7", "xvdb", "+" }, ANSWERS, OK, NULL, 2, "",
		  { "resize: + is no multiple" } },
		{ { "resize", "7", "xvdb", "0" }, ANSWERS, OK, NULL, 2, "",
		  { "resize: 0 is no multiple" } },
		{ { "resize", "7", "xvdb", "8388608T" }, ANSWERS, OK, NULL, 2,
		  "", { "8388608T is no multiple" } },
		{ { "insert", "7", "xvdb" }, ANSWERS, OK, NULL, 2, "",
		  { "insert: an argument is missing" } },
		{ { "insert", "7", "xvdb", "raw:/x", "--cdrom" }, ANSWERS, OK,
		  NULL, 2, "", { "--cdrom", USED " insert" } },
		{ { "list", "--readonly" }, ANSWERS, OK, NULL, 2, "",
		  { "--readonly", USED " list" } },
		{ { "detach", "7", "xvdb", "--no-wait" }, ANSWERS, OK, NULL, 2,
		  "", { "--no-wait", USED " detach" } },
		{ { "stats", "7", "xvdb", "--timeout", "3" }, ANSWERS, OK, NULL,
		  2, "", { "--timeout", USED " stats" } },
		{ { "list", "--foo" }, ANSWERS, OK, NULL, 2, "",
		  { "--foo", USED } },
		{ { "list", "-x" }, ANSWERS, OK, NULL, 2, "", { "x", USED } },
		{ { "detach", "7", "xvdb", "--timeout" }, ANSWERS, OK, NULL, 2,
		  "", { "--timeout", USED } },
		{ { "detach", "7", "xvdb", "--timeout", "0" }, ANSWERS, OK,
		  NULL, 2, "", { "--timeout 0", "1 to 86400", USED } },
		{ { "detach", "7", "xvdb", "--timeout", "86401" }, ANSWERS, OK,
		  NULL, 2, "", { "--timeout 86401", "1 to 86400" } },
		{ { "detach", "7", "xvdb", "--timeout", "1s" }, ANSWERS, OK,
		  NULL, 2, "", { "--timeout 1s", "1 to 86400" } },
		{ { "detach", "7", "xvdb", "--timeout", "" }, ANSWERS, OK, NULL,
		  2, "", { "1 to 86400" } },
		{ { "detach", "7", "xvdb", "--timeout", " 1" }, ANSWERS, OK,
		  NULL, 2, "", { "1 to 86400" } },
		{ { "hotplug", "online" }, ANSWERS, OK, NULL, 2, "",
		  { "online", "add or remove" } },
		{ { "-env", "A=1", "hotplug", "add" }, ANSWERS, OK, NULL, 2, "",
		  { "XENBUS_PATH is not set" } },
		{ { "-env", "XENBUS_PATH=", "hotplug", "add" }, ANSWERS, OK,
		  NULL, 2, "", { "XENBUS_PATH is not set" } },
		{ { "attach", "7", "xvdb", "raw:/\xff" }, ANSWERS, OK, NULL, 1,
		  "", { "UTF-8" } },
	};

	(void)state;
	check(calls, COUNT(calls));
}

static void
test_help(void **state)
{
	static const struct call calls[] = {
		{ { "--help" }, ABSENT, NULL, NULL, 0, NULL, { NULL } },
		{ { "attach", "--help" }, ABSENT, NULL, NULL, 0, NULL,
		  { NULL } },
		{ { "--version" }, ABSENT, NULL, NULL, 0, "ringback 0.1\n",
		  { NULL } },
	};

	(void)state;
	check(calls, COUNT(calls));
}

/* Every command stands in the help, and what it prints goes somewhere. */
static void
test_help_text(void **state)
{
	static const char *const words[] = { "attach DOMAIN VDEV SPEC",
	    "detach DOMAIN VDEV", "list\n", "stats DOMAIN VDEV",
	    "hotplug add|remove", "--run-dir", "--json", "--timeout",
	    "--no-wait", "--readonly", "raw:/", "/run/ringback", "30 seconds" };
	static const char *const help[] = { "--help", NULL };
	int out = memfd_create("stdout", 0), err = memfd_create("stderr", 0);
	int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
	char *text;
	size_t i;

	(void)state;
	assert_true(out != -1 && err != -1 && full != -1);
	assert_int_equal(run_ringback(help, getuid(), out, err), 0);
	text = slurp(out);
	for (i = 0; i < COUNT(words); i++)
		if (strstr(text, words[i]) == NULL)
			fail_msg("the help lacks %s:\n%s", words[i], text);
	free(text);

	assert_int_equal(WEXITSTATUS(run_ringback(help, getuid(), full, err)),
	    1);
	text = slurp(err);
	assert_non_null(strstr(text, "No space left"));
	free(text);
	close(full);
}

static void
test_long(void **state)
{
	static char spec[80000], path[300];
	static struct call call = {
		{ "attach", "7", "xvdb", spec }, ANSWERS, OK, NULL, 1, "",
		{ "too long" }
	};
	static const struct call deep = {
		{ "--run-dir", path, "list" }, ABSENT, NULL, NULL, 1, "",
		{ "107 bytes", "shorter --run-dir" }
	};

	(void)state;
	memset(spec, 'a', sizeof(spec) - 1);
	check(&call, 1);
	spec[60000] = '\0';	/* fits: it is the daemon's to judge */
	call.status = 0;
	call.out = NULL;
	call.err[0] = NULL;
	check(&call, 1);

	memset(path, 'd', 200);
	check(&deep, 1);
}

static int
setup(void **state)
{
	const char *o = getenv("O");
	char path[4096];

	(void)state;
	snprintf(path, sizeof(path), "%s/ringback", o != NULL ? o : "build");
	ringback_fd = open(path, O_RDONLY | O_CLOEXEC);
	if (ringback_fd == -1) {
		perror(path);
		return -1;
	}
	if (mkdtemp(dir) == NULL || chmod(dir, 0755) == -1)
		return -1;
	snprintf(sock_path, sizeof(sock_path), "%s/control", dir);
	return 0;
}

static int
teardown(void **state)
{
	(void)state;
	unlink(sock_path);
	close(ringback_fd);
	return rmdir(dir);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_commands),
		cmocka_unit_test(test_resize),
		cmocka_unit_test(test_drives),
		cmocka_unit_test(test_list),
		cmocka_unit_test(test_stats),
		cmocka_unit_test(test_stats_idle),
		cmocka_unit_test(test_no_daemon),
		cmocka_unit_test(test_not_root),
		cmocka_unit_test(test_silent),
		cmocka_unit_test(test_misuse),
		cmocka_unit_test(test_help),
		cmocka_unit_test(test_help_text),
		cmocka_unit_test(test_long),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
