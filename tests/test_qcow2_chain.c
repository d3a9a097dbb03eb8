/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * test_qcow2_chain: which files an image may stand on, and what happens to
 * them between open and lock, with QEMU's tools as the others.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/layer_rig.h"

/*
 * Names and places.
 */

static void
test_names(void **state)
{
	const char *const roots[] = { "..", NULL };
	struct image_options opt = { .format = "qcow2", .path = "n" };
	const struct qcow2_layer *l;
	char abs[700];

	(void)state;
	run("mkdir sub sub/deep; truncate -s 1001 base");
	run("qemu-img create -q -f qcow2 -u -b ../../base -F raw "
	    "sub/deep/m 1M");
	run("qemu-img create -q -f qcow2 -o compat=0.10 -u -b deep/m -F qcow2 "
	    "sub/n 1M");
	snprintf(abs, sizeof(abs), "%s", at("sub/n"));
	run("qemu-img create -q -f qcow2 -u -b %s -F qcow2 top 2M", abs);
	if (chain_open("top", false) != 0)
		fail_msg("%s", why);
	assert_int_equal(top->size, 2 * MiB);
	l = top->backing;
	assert_string_equal(l->file.path, abs);
	assert_int_equal(l->h.version, 2);
	assert_true(l->file.readonly);
	l = l->backing;
	assert_int_equal(l->depth, 2);
	assert_int_equal(l->size, MiB);
	l = l->backing;
	assert_true(l->raw && l->file.readonly);
	assert_int_equal(l->size, 512);
	assert_int_equal(l->depth, 3);
	assert_null(l->backing);
	assert_int_equal(fcntl(l->file.fd, F_GETFL) & O_ACCMODE, O_RDONLY);
	chain_close();

	/* Named without a folder, it counts from the one we are in. */
	assert_int_equal(chdir(at("sub")), 0);
	opt.backing_roots = roots;
	assert_int_equal(qcow2_chain_open(&opt, &top, why), 0);
	assert_string_equal(top->backing->file.path, "deep/m");
	assert_int_equal(chdir("/"), 0);
}

static void
names(const char *backing, int error, const char *words)
{
	run("qemu-img create -q -f qcow2 -u -b '%s' -F raw a 1M", backing);
	refused("a", false, error, words);
}

static void
test_protocols(void **state)
{
	(void)state;
	names("nbd:localhost:10809", -EOPNOTSUPP,
	    "/a|'nbd:localhost:10809'|'nbd:'|qemu-img rebase");
	names("nbd://h/x", -EOPNOTSUPP, "/a|'nbd:'");
	names("http://h/x", -EOPNOTSUPP, "/a|'http:'");
	names("file:/etc/passwd", -EOPNOTSUPP, "/a|'file:'");
	names("fd:3", -EOPNOTSUPP, "/a|'fd:'");
	names("json:{}", -EOPNOTSUPP, "/a|'json:{}'|'json:'");
	run("truncate -s 1M b:c; mkdir d");
	names("b:c", -EOPNOTSUPP, "/a|'b:'|./");
	run("qemu-img create -q -f qcow2 -u -b ./b:c -F raw a 1M");
	opens("a", false);
}

static void
test_formats(void **state)
{
	(void)state;
	run("qemu-img create -q -f qcow2 b 1M");
	run("qemu-img create -q -f qcow2 -b b -F qcow2 a 1M");
	opens("a", false);
	/* The extension becomes one that means nothing. */
	assert_int_equal(peek("a", 112) >> 32, 0xe2792acau);
	poke("a", 112, "12345678");
	refused("a", false, -EINVAL, "/a|format|'b'|not given|-F raw");
	refused("a", true, -EINVAL, "/a|format|'b'|not given|-F raw");
	poke("a", 112, "e2792aca");
	poke("a", 120, "766d646b20");
	refused("a", false, -EOPNOTSUPP, "/a|backing format is 'vmdk '|raw");
	poke("a", 120, "7163003200");
	refused("a", false, -EOPNOTSUPP, "/a|backing format is 'qc?2");

	/* A raw disk stays raw, whatever a guest wrote into it. */
	run("qemu-img create -q -f qcow2 -u -b /etc/passwd -F raw b 1M");
	run("qemu-img create -q -f qcow2 -u -b b -F raw a 1M");
	assert_int_equal(chain_open("a", false), 0);
	assert_true(top->backing->raw);
	assert_null(top->backing->backing);
	chain_close();
}

static char outside[512];

static void
become_outside(void)
{
	assert_int_equal(unlink(at("in/b")), 0);
	assert_int_equal(symlink(outside, at("in/b")), 0);
}

static void
become_top(void)
{
	assert_int_equal(unlink(at("in/b")), 0);
	assert_int_equal(symlink(at("in/a"), at("in/b")), 0);
}

static void
test_places(void **state)
{
	char folder[2][600];
	const char *roots[] = { folder[0], folder[1], NULL };
	const char *none[] = { NULL };

	(void)state;
	run("mkdir in inner out; truncate -s 1M in/b inner/b out/b");
	snprintf(outside, sizeof(outside), "%s", at("out/b"));
	run("qemu-img create -q -f qcow2 -u -b b -F raw in/a 1M");
	opens("in/a", false);

	/* Where the topmost one really lies counts, not its link. */
	run("ln -s in/a link");
	run("ln -s in/b b");
	opens("link", false);
	run("rm b; ln -s out/b b");
	refused("link", false, -EPERM, "/b|layer 1 of the chain|/in,|/out/b|"
	    "backing-root");

	/* By a link, by .., by a name that only begins the same. */
	run("ln -sf ../out/b in/l");
	run("qemu-img create -q -f qcow2 -u -b l -F raw in/a 1M");
	refused("in/a", false, -EPERM, "/in/l|layer 1|/out/b");
	run("qemu-img create -q -f qcow2 -u -b ../out/b -F raw in/a 1M");
	refused("in/a", false, -EPERM, "/out/b|layer 1");
	run("qemu-img create -q -f qcow2 -u -b ../inner/b -F raw in/a 1M");
	refused("in/a", false, -EPERM, "/inner/b|layer 1");
	run("qemu-img create -q -f qcow2 -u -b /etc/passwd -F raw in/a 1M");
	refused("in/a", false, -EPERM, "/etc/passwd|layer 1|/in,");
	/* Not even opened: its type is not told. */
	run("qemu-img create -q -f qcow2 -u -b /dev/null -F raw in/a 1M");
	refused("in/a", false, -EPERM, "/dev/null|layer 1");

	/* Roots that are given are all that counts. */
	run("ln -s out root; qemu-img create -q -f qcow2 -u -b ../out/b "
	    "-F raw in/a 1M");
	snprintf(folder[0], sizeof(folder[0]), "%s", at("nonexistent"));
	snprintf(folder[1], sizeof(folder[1]), "%s/", at("root"));
	if (chain_open_roots("in/a", false, roots) != 0)
		fail_msg("%s", why);
	chain_close();
	assert_int_equal(chain_open_roots("in/a", false, none), -EPERM);
	says("/out/b|layer 1|a folder of --backing-root|/out/b");
	folder[1][0] = '\0';
	assert_int_equal(chain_open_roots("in/a", false, roots), -EPERM);
	says("/out/b|layer 1|nonexistent or another folder|/out/b");
	strcpy(folder[1], "/");
	assert_int_equal(chain_open_roots("in/a", false, roots), 0);
	chain_close();
}

/* Between the look and the open. */
static void
test_changing_places(void **state)
{
	(void)state;
	run("mkdir in out; truncate -s 1M in/b out/b");
	snprintf(outside, sizeof(outside), "%s", at("out/b"));
	run("qemu-img create -q -f qcow2 -u -b b -F raw in/a 1M");
	shim.stat = 2;			/* the first is the topmost one's */
	shim.after_stat = become_outside;
	refused("in/a", false, -EPERM, "/in/b|layer 1|/out/b");
	assert_int_equal(shim.stat, 0);

	run("rm in/b; truncate -s 1M in/b");
	shim.stat = 2;
	shim.after_stat = become_top;
	refused("in/a", false, -ELOOP, "/in/b|layer 1|circle");
	assert_int_equal(shim.stat, 0);
}

/* Links of /proc to what is open lead to files that have other names. */
static void
test_magic_links(void **state)
{
	char name[64];
	int fd;

	(void)state;
	run("truncate -s 1M b");
	fd = open(at("b"), O_RDONLY);
	snprintf(name, sizeof(name), "/proc/%d/fd/%d", (int)getpid(), fd);
	nr_fds++;
	names(name, -ELOOP, "/proc/|layer 1|link of /proc");
	run("ln -s %s l", name);
	names("l", -ELOOP, "/l|layer 1|link of /proc");
	run("ln -s x y; ln -s y x");
	names("x", -ELOOP, "/x|layer 1|too many links");
	close(fd);
	nr_fds--;
}

static void
test_types(void **state)
{
	(void)state;
	run("mkdir d; mkfifo f");
	names("d", -EISDIR, "layer 1 of the chain|/d|is a directory");
	alarm(10);
	names("f", -ENOTBLK, "layer 1 of the chain|/f|is a FIFO");
	alarm(0);
}

static void
test_loops(void **state)
{
	(void)state;
	run("qemu-img create -q -f qcow2 a 1M");
	run("qemu-img rebase -u -b a -F qcow2 a");
	refused("a", false, -ELOOP, "/a|layer 1|circle|layer 0,|/a");
	run("qemu-img rebase -u -b a -F raw a");
	refused("a", false, -ELOOP, "/a|layer 1|circle");
	run("ln a hard; qemu-img rebase -u -b hard -F qcow2 a");
	refused("a", true, -ELOOP, "/hard|layer 1|circle|layer 0,|/a");

	run("rm hard; qemu-img create -q -f qcow2 -u -b a -F qcow2 b 1M");
	run("qemu-img rebase -u -b b -F qcow2 a");
	refused("a", false, -ELOOP, "/a|layer 2|circle|layer 0,|/a");
	run("qemu-img create -q -f qcow2 -u -b b -F qcow2 c 1M");
	refused("c", false, -ELOOP, "/b|layer 3|circle|layer 1,|/b");
}

/* 'n000' on top of 'n001' on top of ...; the last has none. */
static void
make_chain(int nr)
{
	static char buf[65536];
	char name[8], *place;
	size_t bytes;
	FILE *f;
	int i;

	run("qemu-img create -q -f qcow2 -o cluster_size=4k -u -b nXXX "
	    "-F qcow2 n 1M");
	f = fopen(at("n"), "r");
	assert_non_null(f);
	bytes = fread(buf, 1, sizeof(buf), f);
	fclose(f);
	place = memmem(buf, bytes, "nXXX", 4);
	assert_non_null(place);
	for (i = 0; i < nr; i++) {
		snprintf(name, sizeof(name), "n%03d", i + 1);
		memcpy(place, name, 4);
		snprintf(name, sizeof(name), "n%03d", i);
		f = fopen(at(name), "w");
		assert_non_null(f);
		assert_int_equal(fwrite(buf, 1, bytes, f), bytes);
		assert_int_equal(fclose(f), 0);
	}
	snprintf(name, sizeof(name), "n%03d", nr - 1);
	poke(name, 8, "0000000000000000");
}

static void
test_depth(void **state)
{
	const struct qcow2_layer *l;
	unsigned depth = 0;
	double took;

	(void)state;
	make_chain(QCOW2_MAX_DEPTH);
	if (chain_open("n000", false) != 0)
		fail_msg("%s", why);
	for (l = top; l != NULL; l = l->backing)
		assert_int_equal(l->depth, depth++);
	assert_int_equal(depth, QCOW2_MAX_DEPTH);
	chain_close();

	make_chain(QCOW2_MAX_DEPTH + 1);
	refused("n000", false, -ELOOP, "/n063|layer 63|'n064'|64 layers|"
	    "qemu-img");
	make_chain(300);
	refused("n000", false, -ELOOP, "/n063|layer 63|'n064'|64 layers");
	took = time_open("n000", -ELOOP);
	if (took >= 100)
		fail_msg("a chain of 300: refused after %.1f ms", took);
}

/*
 * Locks.
 */

static int
chain_lock(void)
{
	return qcow2_chain_lock(top, why);
}

static void
lock_now(const char *name, bool readonly)
{
	if (chain_open(name, readonly) != 0 || chain_lock() != 0)
		fail_msg("%s: %s", name, why);
}

static void
unlock_now(void)
{
	if (qcow2_chain_unlock(top, why) != 0)
		fail_msg("%s", why);
	chain_close();
}

/* QEMU's tools say this when the lock of ours is in their way. */
static void
qemu_refused(const char *command)
{
	char out[1024];

	rig_shell(out, sizeof(out), "cd %s && timeout 20 %s 2>&1", dir,
	    command);
	if (strstr(out, "lock") == NULL || strstr(out, "Failed to get") == NULL)
		fail_msg("%s: %s", command, out);
}

static void
make_family(void)
{
	run("qemu-img create -q -f qcow2 base 1M");
	run("qemu-io -c 'write -P 7 0 64k' base");
	run("qemu-img create -q -f qcow2 -b base -F qcow2 a");
	run("qemu-img create -q -f qcow2 -b base -F qcow2 b");
}

static void
test_qemu_is_refused(void **state)
{
	(void)state;
	make_family();
	lock_now("a", false);
	qemu_refused("qemu-io -f qcow2 -c 'write 0 512' a");
	qemu_refused("qemu-io -f qcow2 -r -c 'read 0 512' a");
	qemu_refused("qemu-img resize a 2M");
	qemu_refused("qemu-img snapshot -c s a");
	qemu_refused("qemu-img check -r all a");
	qemu_refused("qemu-img info a");
	run("qemu-img info -U a");

	/* The file below: to be read by all, written by none. */
	qemu_refused("qemu-io -f qcow2 -c 'write 0 512' base");
	qemu_refused("qemu-img commit b");
	qemu_refused("qemu-img resize base 2M");
	run("qemu-io -f qcow2 -r -c 'read -P 7 0 512' base");
	run("qemu-io -f qcow2 -c 'write 0 512' b");
	run("qemu-img info base");
	unlock_now();
	run("qemu-io -f qcow2 -c 'write 0 512' a");
	run("qemu-img commit b");

	/* Read-only: others may read, too. */
	lock_now("a", true);
	qemu_refused("qemu-io -f qcow2 -c 'write 0 512' a");
	run("qemu-io -f qcow2 -r -c 'read 0 512' a");
	unlock_now();
}

/* A QEMU that has an image open and waits for its next command. */
static FILE *
qemu_start(const char *options)
{
	char command[1200], line[1024];
	FILE *f;
	int i;

	run("rm -f out");		/* of the one before */
	snprintf(command, sizeof(command), "cd %s && qemu-io %s >out 2>&1",
	    dir, options);
	f = popen(command, "we");
	assert_non_null(f);
	fprintf(f, "read 0 512\n");
	fflush(f);
	for (i = 0; i < 200; i++) {
		rig_shell(line, sizeof(line), "cat %s/out", dir);
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
	static const struct {
		const char *options;
		bool        readonly;
		int         rc;
		const char *words;
	} cases[] = {
		{ "-f qcow2 a",       false, -EAGAIN, "lock|/a for writing" },
		{ "-f qcow2 a",       true,  -EAGAIN, "lock|/a" },
		{ "-f qcow2 -r a",    false, -EAGAIN, "lock|/a for writing" },
		{ "-f qcow2 -r a",    true,  0, "" },
		{ "-f qcow2 b",       false, 0, "" },
		{ "-f qcow2 -r base", false, 0, "" },
		{ "-f qcow2 base",    false, -EAGAIN, "layer 1|lock|/base" },
		{ "-f qcow2 base",    true,  -EAGAIN, "layer 1|lock|/base" },
	};
	size_t i;
	FILE *f;
	int rc;

	(void)state;
	make_family();
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		f = qemu_start(cases[i].options);
		assert_int_equal(chain_open("a", cases[i].readonly), 0);
		rc = chain_lock();
		if (rc != cases[i].rc)
			fail_msg("%s: %d: %s", cases[i].options, rc, why);
		if (rc < 0)
			says(cases[i].words);
		fprintf(f, "quit\n");
		assert_int_equal(pclose(f), 0);
		/* What was locked before the one that was not is free. */
		if (rc < 0)
			run("qemu-io -f qcow2 -c 'write 0 512' a");
		if (rc < 0 && cases[i].readonly)
			assert_int_equal(chain_lock(), 0);
		chain_close();
	}
}

/* Another disk of ours on the same file. */
static void
test_between_disks(void **state)
{
	struct qcow2_layer *first;

	(void)state;
	make_family();
	lock_now("a", false);
	first = top;
	top = NULL;
	nr_fds = rig_count_fds();
	assert_int_equal(chain_open("a", false), 0);
	assert_int_equal(chain_lock(), -EAGAIN);
	chain_close();
	assert_int_equal(chain_open("base", false), 0);
	assert_int_equal(chain_lock(), -EAGAIN);
	chain_close();
	lock_now("b", false);
	unlock_now();
	top = first;
	nr_fds -= 2;
	unlock_now();
}

/*
 * What changed between open and lock.
 */

/* Open, change, lock; it is refused, nothing is locked. */
static void
changed(const char *command, int error, const char *words)
{
	run("rm -f a b; qemu-img create -q -f qcow2 base 1M");
	run("cp base other; qemu-img create -q -f qcow2 -b base -F qcow2 a");
	assert_int_equal(chain_open("a", false), 0);
	run("%s", command);
	assert_int_equal(chain_lock(), error);
	says(words);
	run("qemu-img create -q -f qcow2 a 1M");
	run("qemu-img create -q -f qcow2 base 1M");
	chain_close();
}

static void
test_changes_refused(void **state)
{
	(void)state;
	changed("qemu-img rebase -u -b other -F qcow2 a", -ESTALE,
	    "/a|backing file name|'base'|'other'|attach it again");
	changed("qemu-img rebase -u -b '' a", -ESTALE,
	    "/a|backing file name|'base'|''");
	changed("qemu-img rebase -u -b base -F raw a", -ESTALE,
	    "/a|backing format|'qcow2'|'raw'");
	changed("qemu-img create -q -f qcow2 -o cluster_size=4k "
	    "-b base -F qcow2 a", -ESTALE, "/a|cluster_bits|'16'|'12'");
	changed("qemu-img amend -o compat=0.10 a", -ESTALE,
	    "/a|version|'3'|'2'");
	changed("qemu-img create -q -f qcow2 -o refcount_bits=1 "
	    "-b base -F qcow2 a", -ESTALE, "/a|refcount_order|'4'|'0'");
	changed("qemu-img create -q -f qcow2 -o compression_type=zstd "
	    "-b base -F qcow2 a", -ESTALE, "/a|compression_type|'0'|'1'");
	changed("qemu-img create -q -f qcow2 -o extended_l2=on "
	    "-b base -F qcow2 a", -ESTALE, "/a|extended L2|'0'|'1'");
	changed("qemu-img create -q -f qcow2 -o cluster_size=4k base 1M",
	    -ESTALE, "/base|layer 1|cluster_bits");
	changed("printf '\\002' | dd of=a bs=1 seek=79 conv=notrunc", -EUCLEAN,
	    "/a|incompatible_features|0x2|corrupt");
	changed("truncate -s 512 base", -EINVAL, "/base|layer 1|cut off");
}

static void
test_changes_seen(void **state)
{
	struct stat st;

	(void)state;
	run("truncate -s 1M base");
	run("qemu-img create -q -f qcow2 -b base -F raw a");
	assert_int_equal(chain_open("a", false), 0);
	assert_int_equal(top->l1[0], 0);
	run("qemu-io -c 'write 0 64k' a; qemu-img resize a 2G");
	run("truncate -s 2000k base");
	assert_int_equal(chain_lock(), 0);
	assert_int_equal(top->size, 2048 * MiB);
	assert_int_equal(top->h.l1_entries, 4);
	assert_int_equal(be64toh(top->l1[0]) & QCOW2_OFFSET_MASK, 0x40000);
	assert_int_equal(top->l1[1], 0);
	assert_int_equal(fstatat(AT_FDCWD, at("a"), &st, 0), 0);
	assert_int_equal(top->file.size, st.st_size);
	assert_int_equal(top->backing->size, 2000 * 1024);
	unlock_now();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_names),
		TEST(test_protocols),
		TEST(test_formats),
		TEST(test_places),
		TEST(test_changing_places),
		TEST(test_magic_links),
		TEST(test_types),
		TEST(test_loops),
		TEST(test_depth),
		TEST(test_qemu_is_refused),
		TEST(test_refused_by_qemu),
		TEST(test_between_disks),
		TEST(test_changes_refused),
		TEST(test_changes_seen),
	};

	return cmocka_run_group_tests_name("qcow2_chain", tests, NULL, NULL);
}
