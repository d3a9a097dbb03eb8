/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * test_raw: what raw opens and what it refuses, sizes, locks (against
 * another open, against QEMU's tools), truncation below a running disk,
 * and block devices where this machine has loop devices.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/driver_rig.h"

#define MiB       (1024u * 1024u)
#define FILE_SIZE (4 * (off_t)MiB)

static struct rig rig, other;
static char file[512];
static char loop[64];		/* a loop device on the file; "" for none */
static unsigned nr_fds;

static int
setup(void **state)
{
	(void)state;
	memset(&rig, 0, sizeof(rig));
	memset(&other, 0, sizeof(other));
	rig_make_file(file, FILE_SIZE);
	nr_fds = rig_count_fds();
	return 0;
}

static void
loop_close(void)
{
	if (loop[0] != '\0')
		assert_int_equal(rig_shell(NULL, 0, "losetup -d %s", loop), 0);
	loop[0] = '\0';
}

static int
teardown(void **state)
{
	(void)state;
	if (rig.img != NULL)
		rig_close(&rig);
	if (other.img != NULL)
		rig_close(&other);
	loop_close();
	unlink(file);
	if (rig_count_fds() == nr_fds)
		return 0;
	print_error("descriptors are left open\n");
	return -1;
}

static int
open_raw(struct rig *r, bool readonly)
{
	return rig_image(r, "raw", file, readonly, CACHE_NONE);
}

/* Replace the file by something that has its name. */
static void
become_directory(void)
{
	assert_int_equal(unlink(file) | mkdir(file, 0700), 0);
}

static void
become_fifo(void)
{
	assert_int_equal(unlink(file) | mkfifo(file, 0600), 0);
}

static void
become_missing(void)
{
	assert_int_equal(unlink(file), 0);
}

static void
become_empty(void)
{
	assert_int_equal(truncate(file, 0), 0);
}

static void
become_odd(void)
{
	assert_int_equal(truncate(file, 1023), 0);
}

static void
become_link(const char *to)
{
	assert_int_equal(unlink(file) | symlink(to, file), 0);
}

static void
become_tty(void)
{
	become_link("/dev/null");
}

static void
become_dangling(void)
{
	become_link("/nonexistent/image");
}

static void
become_file_in_proc(void)
{
	become_link("/proc/version");
}

/* Its whole path may not fit into sun_path: bind it from its folder. */
static void
become_socket(void)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	char folder[512], *name;
	int fd, cwd;

	become_missing();
	snprintf(folder, sizeof(folder), "%s", file);
	name = strrchr(folder, '/');
	*name++ = '\0';
	snprintf(sa.sun_path, sizeof(sa.sun_path), "%.100s", name);

	cwd = open(".", O_RDONLY | O_DIRECTORY);
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	assert_true(cwd != -1 && fd != -1);
	assert_int_equal(chdir(folder), 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	assert_int_equal(fchdir(cwd), 0);
	close(fd);
	close(cwd);
}

/*
 * Between the look at the name and the open, and between the open and the
 * look at what was opened, things may change.
 */
static void (*after_stat)(void);
static mode_t fstat_mode;

int
stat(const char *path, struct stat *st)
{
	int rc = fstatat(AT_FDCWD, path, st, 0);

	if (after_stat != NULL)
		after_stat();
	after_stat = NULL;
	return rc;
}

int
fstat(int fd, struct stat *st)
{
	int rc = fstatat(fd, "", st, AT_EMPTY_PATH);

	if (fstat_mode != 0)
		st->st_mode = fstat_mode;
	fstat_mode = 0;
	return rc;
}

static void
test_changing_name(void **state)
{
	after_stat = become_fifo;
	alarm(10);
	assert_int_equal(open_raw(&rig, true), -EINVAL);
	alarm(0);
	remove(file);
	setup(state);

	fstat_mode = S_IFCHR | 0666;
	assert_int_equal(open_raw(&rig, false), -ENOTBLK);
	assert_int_equal(rig_count_fds(), nr_fds);
}

static const struct {
	void      (*become)(void);
	bool        readonly;
	int         error;
	const char *why[2];	/* what failed; what to do about it */
} refusals[] = {
	{ become_directory,    false, -EISDIR,
	    { "is a directory", "name the image file" } },
	{ become_directory,    true,  -EISDIR,
	    { "is a directory", "name the image file" } },
	{ become_fifo,         false, -ENOTBLK,
	    { "is a FIFO", "name one of these" } },
	{ become_fifo,         true,  -ENOTBLK,
	    { "is a FIFO", "name one of these" } },
	{ become_tty,          false, -ENOTBLK,
	    { "is a character device", "name one of these" } },
	{ become_socket,       false, -ENOTBLK,
	    { "is a socket", "name one of these" } },
	{ become_missing,      false, -ENOENT,
	    { "No such file", "check the path" } },
	{ become_dangling,     true,  -ENOENT,
	    { "No such file", "check the path" } },
	{ become_empty,        false, -ENODATA,
	    { "is empty", "truncate -s" } },
	{ become_odd,          true,  -EINVAL,
	    { "1023 bytes are not a multiple of 512",
	    "truncate -s %512" } },
	{ become_file_in_proc, true,  -EINVAL,
	    { "O_DIRECT", "move the image" } },
};

static void
test_refusals(void **state)
{
	size_t i;

	for (i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
		refusals[i].become();
		alarm(10);		/* to open a FIFO may hang */
		assert_int_equal(open_raw(&rig, refusals[i].readonly),
		    refusals[i].error);
		alarm(0);
		assert_int_equal(rig_count_fds(), nr_fds);
		assert_non_null(strstr(rig.why, file));
		if (strstr(rig.why, refusals[i].why[0]) == NULL ||
		    strstr(rig.why, refusals[i].why[1]) == NULL)
			fail_msg("%zu: %s", i, rig.why);
		remove(file);
		setup(state);
	}
}

/* A message stays a message when the path is longer than that. */
static void
test_long_path(void **state)
{
	char path[4000];

	(void)state;
	memset(path, 'x', sizeof(path));
	path[0] = '/';
	path[sizeof(path) - 1] = '\0';
	assert_int_equal(rig_image(&rig, "raw", path, false, CACHE_NONE),
	    -ENAMETOOLONG);
	assert_non_null(strstr(rig.why, "File name too long; see"));
}

/* As a user who may not: run in a child, which can change its uid. */
static int
open_as_nobody(bool readonly)
{
	int status, out[2];
	pid_t pid;

	assert_int_equal(pipe(out), 0);
	pid = fork();
	assert_true(pid != -1);
	if (pid == 0) {
		if (setuid(65534) == -1)
			_exit(99);
		status = -open_raw(&rig, readonly);
		if (write(out[1], rig.why, WHY_MAX) != WHY_MAX)
			_exit(98);
		_exit(status);
	}
	close(out[1]);
	assert_int_equal(read(out[0], rig.why, WHY_MAX), WHY_MAX);
	close(out[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return -WEXITSTATUS(status);
}

/* Somebody has to be able to reach the folder for this to tell anything. */
static bool
nobody_may_reach(void)
{
	char probe[600];

	assert_int_equal(chmod(file, 0644), 0);
	snprintf(probe, sizeof(probe), "setpriv --reuid=65534 --clear-groups "
	    "test -r %s", file);
	return geteuid() == 0 && rig_shell(NULL, 0, "%s", probe) == 0;
}

static void
test_no_permission(void **state)
{
	(void)state;
	if (!nobody_may_reach()) {
		print_message("needs root, and a $TMPDIR for everybody\n");
		skip();
	}
	assert_int_equal(open_as_nobody(true), 0);
	assert_int_equal(open_as_nobody(false), -EACCES);
	assert_non_null(strstr(rig.why, "Permission denied"));
	assert_non_null(strstr(rig.why, "read-only"));
	assert_int_equal(chmod(file, 0600), 0);
	assert_int_equal(open_as_nobody(true), -EACCES);
	assert_non_null(strstr(rig.why, "every folder"));
}

static void
test_sizes(void **state)
{
	static const struct { off_t file, size; } sizes[] = {
		{ 512, 512 }, { 1024, 1024 }, { 10 * MiB, 10 * MiB },
		{ (off_t)1 << 42, (off_t)1 << 42 },
	};
	struct rig_io *rio;
	struct stat st;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		assert_int_equal(truncate(file, sizes[i].file), 0);
		rig_open(&rig, "raw", file, false, 4);
		assert_int_equal(rig.img->size, sizes[i].size);
		assert_int_equal(stat(file, &st), 0);
		assert_int_equal(rig.img->dev, st.st_dev);
		assert_int_equal(rig.img->ino, st.st_ino);
		rio = rig_io_new(&rig, IO_WRITE, rig.img->size - 512, 512, 1);
		assert_int_equal(rig_do(rio), 0);
		rig_close(&rig);

		/* The disk does not grow. */
		assert_int_equal(stat(file, &st), 0);
		assert_int_equal(st.st_size, sizes[i].file);
	}
}

/* The open flags of the image, from /proc/self/fdinfo; and its fd. */
static int
image_flags(int *image_fd)
{
	char name[64], path[512];
	int fd, flags = -1;
	ssize_t n;
	FILE *f;

	for (fd = 0; fd < 256; fd++) {
		snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
		n = readlink(name, path, sizeof(path) - 1);
		if (n < 0)
			continue;
		path[n] = '\0';
		if (strcmp(path, file) != 0)
			continue;
		assert_int_equal(flags, -1);		/* opened once */
		snprintf(name, sizeof(name), "/proc/self/fdinfo/%d", fd);
		f = fopen(name, "re");
		assert_non_null(f);
		assert_int_equal(fscanf(f, "pos: %*d flags: %o",
		    (unsigned *)&flags), 1);
		fclose(f);
		*image_fd = fd;
	}
	assert_int_not_equal(flags, -1);
	return flags;
}

static void
test_flags(void **state)
{
	static const struct { enum cache_mode cache; int flags; } modes[] = {
		{ CACHE_NONE,         O_DIRECT },
		{ CACHE_DIRECTSYNC,   O_DIRECT | O_DSYNC },
		{ CACHE_WRITETHROUGH, O_DSYNC },
		{ CACHE_WRITEBACK,    0 },
		{ CACHE_UNSAFE,       0 },
	};
	const int mask = O_ACCMODE | O_DIRECT | O_DSYNC | O_CLOEXEC |
	    O_NONBLOCK;
	char *real;
	size_t i;
	int fd;

	(void)state;
	real = realpath(file, NULL);
	assert_non_null(real);
	snprintf(file, sizeof(file), "%s", real);
	free(real);

	assert_int_equal(open_raw(&rig, false), 0);
	assert_int_equal(image_flags(&fd) & mask,
	    O_RDWR | O_DIRECT | O_CLOEXEC);
	image_close(rig.img);

	assert_int_equal(open_raw(&rig, true), 0);
	assert_int_equal(image_flags(&fd) & mask,
	    O_RDONLY | O_DIRECT | O_CLOEXEC);
	assert_true(write(fd, "x", 1) == -1 && errno == EBADF);
	image_close(rig.img);

	rig.engine = ENGINE_THREADS;
	for (i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		assert_int_equal(rig_image(&rig, "raw", file, false,
		    modes[i].cache), 0);
		assert_int_equal(image_flags(&fd) & mask, O_RDWR | O_CLOEXEC |
		    modes[i].flags);
		image_close(rig.img);
	}
	rig.img = NULL;
}

/* To open is to look: neither data nor times nor locks change. */
static void
test_open_changes_nothing(void **state)
{
	struct stat before, after;

	(void)state;
	rig_open(&other, "raw", file, false, 1);
	assert_int_equal(stat(file, &before), 0);
	assert_int_equal(open_raw(&rig, false), 0);
	rig_watch(&rig, 1);
	rig_close(&rig);
	assert_int_equal(stat(file, &after), 0);
	assert_int_equal(before.st_mtim.tv_nsec, after.st_mtim.tv_nsec);
	assert_int_equal(before.st_blocks, after.st_blocks);
}

static void
test_size_read_again(void **state)
{
	(void)state;
	assert_int_equal(open_raw(&rig, false), 0);
	assert_int_equal(truncate(file, FILE_SIZE + MiB), 0);
	assert_int_equal(rig.img->size, FILE_SIZE);
	assert_int_equal(image_activate(rig.img, rig.why), 0);
	assert_int_equal(rig.img->size, FILE_SIZE + MiB);
	assert_int_equal(image_deactivate(rig.img, rig.why), 0);

	/* When it has vanished meanwhile, the lock is let go again. */
	assert_int_equal(truncate(file, 0), 0);
	assert_int_equal(image_activate(rig.img, rig.why), -ENODATA);
	assert_int_equal(truncate(file, FILE_SIZE), 0);
	rig_open(&other, "raw", file, false, 1);
}

/* Somebody cut the file off below the running disk. */
static void
test_truncated(void **state)
{
	struct rig_io *rio;

	(void)state;
	rig_open(&rig, "raw", file, false, 4);
	rio = rig_io_new(&rig, IO_WRITE, 0, FILE_SIZE, 256);
	rig_fill(rio, 1);
	assert_int_equal(rig_do(rio), 0);
	assert_int_equal(truncate(file, MiB + 1024 + 100), 0);

	/* What is there can be read; what is not, or only in part, fails. */
	assert_int_equal(rig_do(rig_io_new(&rig, IO_READ, MiB, 1024, 1)), 0);
	assert_int_equal(rig_do(rig_io_new(&rig, IO_READ, MiB + 1024, 512,
	    1)), -EIO);
	assert_int_equal(rig_do(rig_io_new(&rig, IO_READ, MiB, 4096, 1)),
	    -EIO);
	assert_int_equal(rig_do(rig_io_new(&rig, IO_READ, MiB - 4096, 65536,
	    16)), -EIO);
	assert_int_equal(rig_do(rig_io_new(&rig, IO_READ, 2 * MiB, MiB,
	    256)), -EIO);
	assert_int_equal(rig_do(rig_io_new(&rig, IO_READ, FILE_SIZE - 512,
	    512, 1)), -EIO);

	/* The disk goes on where it can. */
	rio = rig_io_new(&rig, IO_READ, 0, MiB, 256);
	rig_submit(rio);
	rig_wait(&rig);
	assert_int_equal(rio->error, 0);
	assert_true(rig_holds(rio, 1));
	rig_io_free(rio);
}

/*
 * Locks.
 */

static void
test_locks_between_disks(void **state)
{
	static const struct { bool first, second; int rc; } pairs[] = {
		{ false, false, -EAGAIN },	/* is read-only? */
		{ false, true,  -EAGAIN },
		{ true,  false, -EAGAIN },
		{ true,  true,  0 },
	};
	size_t i;
	int rc;

	(void)state;
	for (i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
		rig_open(&rig, "raw", file, pairs[i].first, 1);
		assert_int_equal(open_raw(&other, pairs[i].second), 0);
		rc = image_activate(other.img, other.why);
		if (rc != pairs[i].rc)
			fail_msg("pair %zu: %d", i, rc);
		if (rc == 0) {
			rig_close(&other);
			rig_close(&rig);
			continue;
		}
		assert_non_null(strstr(other.why, file));
		assert_non_null(strstr(other.why, "another process"));
		assert_non_null(strstr(other.why, "fuser"));

		/* The one that was refused left no lock; then it may. */
		assert_int_equal(image_deactivate(rig.img, rig.why), 0);
		assert_int_equal(image_activate(rig.img, rig.why), 0);
		assert_int_equal(image_deactivate(rig.img, rig.why), 0);
		assert_int_equal(image_activate(other.img, other.why), 0);
		rig_close(&other);
		rig_close(&rig);
	}
}

/* Byte for byte what QEMU would lock, and nothing after deactivate. */
static void
test_lock_bytes(void **state)
{
	static const struct { bool readonly; int bytes[5]; } cases[] = {
		{ false, { 100, 101, 201, 203 } },
		{ true,  { 100, 201, 203 } },
	};
	struct flock lock;
	int fd, at, k;
	bool locked;
	size_t i;

	(void)state;
	fd = open(file, O_RDONLY | O_CLOEXEC);
	assert_true(fd != -1);
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		rig_open(&rig, "raw", file, cases[i].readonly, 1);
		for (at = 0, k = 0; at < 400; at++) {
			lock = (struct flock){ .l_type = F_WRLCK,
			    .l_start = at, .l_len = 1 };
			assert_int_equal(fcntl(fd, F_OFD_GETLK, &lock), 0);
			locked = lock.l_type != F_UNLCK;
			if (locked)
				assert_int_equal(lock.l_type, F_RDLCK);
			if (locked != (at == cases[i].bytes[k]))
				fail_msg("case %zu: byte %d", i, at);
			k += locked;
		}
		assert_int_equal(image_deactivate(rig.img, rig.why), 0);
		lock = (struct flock){ .l_type = F_WRLCK };
		assert_int_equal(fcntl(fd, F_OFD_GETLK, &lock), 0);
		assert_int_equal(lock.l_type, F_UNLCK);
		rig_close(&rig);
	}
	close(fd);
}

/* The lock lies on the open file: a child that has it keeps the lock. */
static void
test_lock_survives(void **state)
{
	int hold[2], status;
	char c;
	pid_t pid;

	(void)state;
	assert_int_equal(pipe(hold), 0);
	rig_open(&rig, "raw", file, false, 1);
	fflush(NULL);
	pid = fork();
	assert_true(pid != -1);
	if (pid == 0) {
		close(hold[1]);
		_exit(read(hold[0], &c, 1) == 0 ? 0 : 1);
	}
	close(hold[0]);

	/* As if this process had died: nothing is unlocked. */
	rig_unwatch(&rig);
	rig.img->active = false;
	image_close(rig.img);
	rig.img = NULL;

	assert_int_equal(open_raw(&other, false), 0);
	assert_int_equal(image_activate(other.img, other.why), -EAGAIN);
	close(hold[1]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(image_activate(other.img, other.why), 0);
}

static void
need_qemu(void)
{
	if (rig_shell(NULL, 0, "qemu-img --version >/dev/null 2>&1 && "
	    "qemu-io --version >/dev/null 2>&1") == 0)
		return;
	print_message("needs qemu-img and qemu-io (Debian: qemu-utils)\n");
	skip();
}

static int
qemu_info(const char *options)
{
	return rig_shell(NULL, 0, "qemu-img info %s -f raw %s >/dev/null 2>&1",
	    options, file);
}

static void
test_qemu_is_refused(void **state)
{
	static const char *const commands[] = {
		"qemu-img resize -f raw %s 8M",
		"qemu-img convert -n -f raw -O raw /dev/zero %s",
		"qemu-io -f raw -c 'write 0 512' %s",
		"qemu-img bench -w -c 1 -f raw %s",
	};
	char out[1024];
	const char *name;
	int readonly;
	size_t i;

	(void)state;
	need_qemu();
	for (readonly = 0; readonly < 2; readonly++) {
		rig_open(&rig, "raw", file, readonly, 4);
		for (i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
			name = strstr(commands[i], "%s");
			rig_shell(out, sizeof(out), "timeout 20 %.*s%s%s 2>&1",
			    (int)(name - commands[i]), commands[i], file,
			    name + 2);
			if (strstr(out, "\"write\" lock") == NULL)
				fail_msg("%s: %s", commands[i], out);
		}
		assert_int_equal(qemu_info("-U"), 0);
		rig_close(&rig);
	}

	/* Nobody has it: then the same command works. */
	assert_int_equal(rig_shell(NULL, 0, "qemu-img resize -f raw %s 8M "
	    ">/dev/null", file), 0);
}

/* A QEMU that has the image open and waits for its next command. */
static FILE *
qemu_start(const char *options, const char *out)
{
	char command[1200], line[1024];
	FILE *f;
	int i;

	snprintf(command, sizeof(command), "qemu-io %s -f raw %s >%s 2>&1",
	    options, file, out);
	assert_int_equal(truncate(out, 0), 0);	/* of the one before */
	f = popen(command, "we");
	assert_non_null(f);
	fprintf(f, "read 0 512\n");
	fflush(f);
	for (i = 0; i < 200; i++) {
		rig_shell(line, sizeof(line), "cat %s", out);
		if (strstr(line, "read 512/512") != NULL)
			return f;
		usleep(50000);
	}
	fail_msg("qemu-io does not start: %s", line);
	return NULL;
}

static void
test_refused_by_qemu(void **state)
{
	static const struct { const char *options; bool readonly; int rc; }
	cases[] = {
		{ "",       false, -EAGAIN },
		{ "",       true,  -EAGAIN },
		{ "-r",     true,  0 },
		{ "-U -r",  true,  0 },
	};
	char out[600];
	int info, rc;
	size_t i;
	FILE *f;

	(void)state;
	need_qemu();
	rig_make_file(out, 0);
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		f = qemu_start(cases[i].options, out);
		assert_int_equal(open_raw(&rig, cases[i].readonly), 0);
		rc = image_activate(rig.img, rig.why);
		info = qemu_info("");
		fprintf(f, "quit\n");
		assert_int_equal(pclose(f), 0);
		if (rc != cases[i].rc)
			fail_msg("qemu-io %s: %d", cases[i].options, rc);
		if (rc == -EAGAIN) {
			assert_non_null(strstr(rig.why, "QEMU"));

			/* 'info' without -U: as if QEMU had the image. */
			assert_int_equal(image_activate(rig.img, rig.why), 0);
			assert_int_equal(qemu_info(""), info);
		}
		rig_close(&rig);
	}
	unlink(out);
}

/*
 * Block devices.
 */

/* Or a skipped test. */
static void
loop_open(const char *options)
{
	if (geteuid() != 0 || rig_shell(loop, sizeof(loop), "losetup -f "
	    "--show %s %s 2>/dev/null", options, file) != 0) {
		loop[0] = '\0';
		print_message("needs root and loop devices\n");
		skip();
	}
	loop[strcspn(loop, "\n")] = '\0';
}

static void
test_device(void **state)
{
	struct rig_io *rio;

	(void)state;
	loop_open("");
	rig_open(&rig, "raw", loop, false, 4);
	assert_int_equal(rig.img->size, FILE_SIZE);
	assert_int_equal(rig.img->block_size, 512);
	rio = rig_io_new(&rig, IO_WRITE, 512, MiB, 256);
	rig_fill(rio, 5);
	assert_int_equal(rig_do(rio), 0);
	assert_int_equal(rig_flush(&rig), 0);
	rio = rig_io_new(&rig, IO_READ, 512, MiB, 1);
	rig_submit(rio);
	rig_wait(&rig);
	assert_int_equal(rio->error, 0);
	assert_true(rig_holds(rio, 5));
	rig_io_free(rio);

	assert_int_equal(rig_image(&other, "raw", loop, false, CACHE_NONE), 0);
	assert_int_equal(image_activate(other.img, other.why), -EAGAIN);
}

/* The space is given back. */
static void
test_discard(void **state)
{
	struct stat before, after;

	(void)state;
	rig.discard = true;
	rig_open(&rig, "raw", file, false, 4);
	assert_int_equal(rig_do(rig_io_new(&rig, IO_WRITE, 0, 2 * MiB, 1)),
	    0);
	assert_int_equal(rig_flush(&rig), 0);
	assert_int_equal(stat(file, &before), 0);
	assert_int_equal(rig_do(rig_io_new(&rig, IO_DISCARD, MiB, MiB, 0)),
	    0);
	assert_int_equal(stat(file, &after), 0);
	assert_true(after.st_blocks <= before.st_blocks - MiB / 512);
	assert_int_equal(after.st_size, FILE_SIZE);
}

static void
test_device_discard(void **state)
{
	struct rig_io *rio;
	const char *p;

	(void)state;
	loop_open("");
	rig.discard = true;
	rig_open(&rig, "raw", loop, false, 4);
	assert_true(rig.img->discard_granularity >= 512);
	assert_int_equal(rig_do(rig_io_new(&rig, IO_WRITE, 0, 2 * MiB, 1)),
	    0);
	assert_int_equal(rig_do(rig_io_new(&rig, IO_DISCARD, 0, MiB, 0)), 0);
	rio = rig_io_new(&rig, IO_READ, 0, MiB, 1);
	rig_submit(rio);
	rig_wait(&rig);
	p = rio->buf;
	assert_int_equal(p[0], 0);
	assert_memory_equal(p, p + 1, MiB - 1);
	rig_io_free(rio);
}

static void
test_device_readonly(void **state)
{
	int rc;

	(void)state;
	loop_open("-r");
	rc = rig_image(&rig, "raw", loop, false, CACHE_NONE);
	if (rc != -EROFS && rc != -EACCES)
		fail_msg("%d", rc);
	assert_non_null(strstr(rig.why, "read-only"));
	rig_open(&rig, "raw", loop, true, 4);
	assert_int_equal(rig_do(rig_io_new(&rig, IO_READ, 0, 4096, 1)), 0);
}

/* Sectors of 4096 bytes: image_open() makes smaller ones of them. */
static void
test_device_4k(void **state)
{
	struct rig_io *rio[16];
	unsigned i;

	(void)state;
	loop_open("-b 4096");
	rig.discard = true;
	rig_open(&rig, "raw", loop, false, 16);
	assert_int_equal(rig.img->size, FILE_SIZE);
	assert_int_equal(rig.img->block_size, 512);
	assert_int_equal(rig.img->physical_block_size, 4096);
	assert_true(rig.img->discard_granularity >= 4096);
	assert_int_equal(rig_do(rig_io_new(&rig, IO_DISCARD, 0, MiB, 0)), 0);
	for (i = 0; i < 16; i++) {
		rio[i] = rig_io_new(&rig, IO_WRITE, i * 1536, 1536, 2);
		rig_fill(rio[i], 7);
		rig_submit(rio[i]);
	}
	rig_wait(&rig);
	for (i = 0; i < 16; i++) {
		assert_int_equal(rio[i]->error, 0);
		rig_io_free(rio[i]);
	}
	assert_int_equal(rig_flush(&rig), 0);
	rio[0] = rig_io_new(&rig, IO_READ, 0, 16 * 1536, 1);
	rig_submit(rio[0]);
	rig_wait(&rig);
	assert_int_equal(rio[0]->error, 0);
	assert_true(rig_holds(rio[0], 7));
	rig_io_free(rio[0]);
}

/* The page cache does what the device cannot. */
static void
test_device_4k_cached(void **state)
{
	(void)state;
	loop_open("-b 4096");
	rig.engine = ENGINE_THREADS;
	rig.cache = CACHE_WRITEBACK;
	rig_open(&rig, "raw", loop, false, 4);
	assert_int_equal(rig.img->block_size, 512);
	assert_int_equal(rig_do(rig_io_new(&rig, IO_WRITE, 512, 512, 1)), 0);
	assert_int_equal(rig_flush(&rig), 0);
}

static char
first_byte(struct rig *r)
{
	struct rig_io *rio = rig_io_new(r, IO_READ, 0, 4096, 1);
	char byte;

	rig_submit(rio);
	rig_wait(r);
	assert_int_equal(rio->error, 0);
	byte = *(char *)rio->buf;
	rig_io_free(rio);
	return byte;
}

/*
 * The storage is written by somebody of whom the page cache is not told: as by
 * another host while the disk is there.
 */
static void
write_elsewhere(char byte)
{
	int fd = open(file, O_RDWR);

	assert_true(fd != -1);
	assert_int_equal(pwrite(fd, &byte, 1, 0), 1);
	assert_int_equal(fsync(fd), 0);
	close(fd);
}

static void
test_stale_cache(void **state)
{
	(void)state;
	write_elsewhere('a');
	loop_open("");
	rig.engine = ENGINE_THREADS;
	rig.cache = CACHE_WRITEBACK;
	rig_open(&rig, "raw", loop, false, 4);
	assert_int_equal(first_byte(&rig), 'a');
	write_elsewhere('b');
	assert_int_equal(first_byte(&rig), 'a');	/* it is in the cache */
	assert_int_equal(image_deactivate(rig.img, rig.why), 0);
	assert_int_equal(image_activate(rig.img, rig.why), 0);
	assert_int_equal(first_byte(&rig), 'b');

	/* Who goes on where a process died keeps it, once. */
	assert_int_equal(image_deactivate(rig.img, rig.why), 0);
	write_elsewhere('c');
	other = (struct rig){ .engine = rig.engine, .cache = rig.cache,
		.resumed = true };
	rig_open(&other, "raw", loop, false, 4);
	assert_int_equal(first_byte(&other), 'b');
	assert_int_equal(image_deactivate(other.img, other.why), 0);
	assert_int_equal(image_activate(other.img, other.why), 0);
	assert_int_equal(first_byte(&other), 'c');
}

static void
test_device_empty(void **state)
{
	char device[64];

	(void)state;
	loop_open("");
	memcpy(device, loop, sizeof(device));
	loop_close();
	assert_int_equal(rig_image(&rig, "raw", device, true, CACHE_NONE),
	    -ENODATA);
	assert_non_null(strstr(rig.why, "activate the volume"));
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_refusals),
		TEST(test_changing_name),
		TEST(test_long_path),
		TEST(test_no_permission),
		TEST(test_sizes),
		TEST(test_flags),
		TEST(test_open_changes_nothing),
		TEST(test_size_read_again),
		TEST(test_truncated),
		TEST(test_locks_between_disks),
		TEST(test_lock_bytes),
		TEST(test_lock_survives),
		TEST(test_qemu_is_refused),
		TEST(test_refused_by_qemu),
		TEST(test_device),
		TEST(test_discard),
		TEST(test_device_discard),
		TEST(test_device_readonly),
		TEST(test_device_4k),
		TEST(test_device_4k_cached),
		TEST(test_stale_cache),
		TEST(test_device_empty),
	};

	return cmocka_run_group_tests_name("raw", tests, NULL, NULL);
}
