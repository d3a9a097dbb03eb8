/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * test_options: ringback.conf and the command line over it; what is refused,
 * with the line of the file and what a person needs to know; and how default
 * options get into a disk spec.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "blkback/options.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

#define END ((char *)NULL)	/* of arguments */

static char conf[] = "/tmp/test_options.XXXXXX";
static char said[4096];		/* by the last call */

static void
write_conf(const char *text, size_t length)
{
	FILE *f = fopen(conf, "w");

	assert_non_null(f);
	assert_int_equal(fwrite(text, 1, length, f), length);
	assert_int_equal(fclose(f), 0);
}

/* What 'call' logs goes to said[]. */
static int
listen_to(int (*call)(struct options *), struct options *opt)
{
	char path[] = "/tmp/test_options.XXXXXX";
	int fd = mkstemp(path), err = dup(STDERR_FILENO), rc;
	ssize_t n;

	assert_true(fd >= 0 && err >= 0 && unlink(path) == 0);
	assert_true(dup2(fd, STDERR_FILENO) >= 0);
	rc = call(opt);
	assert_true(dup2(err, STDERR_FILENO) >= 0);
	n = pread(fd, said, sizeof(said) - 1, 0);
	assert_true(n >= 0);
	said[n] = '\0';
	close(fd);
	close(err);
	return rc;
}

/* The command line of the next read_it(). */
static char *line[16];
static int words;

static int
read_it(struct options *opt)
{
	return options_read(opt, words, line);
}

/* "ringbackd --config FILE", and what follows, up to a NULL. */
static int
read_with(struct options *opt, const char *text, ...)
{
	va_list ap;

	write_conf(text, strlen(text));
	words = 0;
	line[words++] = (char *)"ringbackd";
	line[words++] = (char *)"--config";
	line[words++] = conf;
	va_start(ap, text);
	while ((line[words] = va_arg(ap, char *)) != NULL)
		words++;
	va_end(ap);
	return listen_to(read_it, opt);
}

static void
test_good(void **state)
{
	struct options opt;

	(void)state;
	assert_int_equal(read_with(&opt, "", END), 0);
	assert_string_equal(opt.run_dir, "/run/ringback");
	assert_int_equal(opt.nr_kinds, 3);
	assert_string_equal(opt.kind[0], "vbd");
	assert_string_equal(opt.kind[1], "vbd3");
	assert_string_equal(opt.kind[2], "ringback");
	assert_int_equal(opt.uid_base, 0);
	assert_int_equal(opt.max_deaths, MAX_DEATHS);
	assert_null(opt.backing_root[0]);
	assert_false(opt.verbose);
	assert_string_equal(opt.defaults.all, "");
	options_free(&opt);

	assert_int_equal(read_with(&opt,
	    "# a comment\n"
	    "\n"
	    "run-dir=/run/other\n"
	    "  kinds  =  vbd3 \n"
	    "uid-base = 70000\r\n"
	    "max-deaths = 0\n"
	    "backing-root = /srv/a b;c#d\n"
	    "backing-root = /srv/e\n"
	    "verbose = on\n"
	    "default-options = cache=writeback , poll=off,memory=16M\n"
	    "[qcow2]\n"
	    "default-options = memory=32M\n"
	    "[raw]\n"
	    "default-options = poll=5", END), 0);
	assert_string_equal(said, "");
	assert_string_equal(opt.run_dir, "/run/other");
	assert_int_equal(opt.nr_kinds, 1);
	assert_string_equal(opt.kind[0], "vbd3");
	assert_int_equal(opt.uid_base, 70000);
	assert_int_equal(opt.max_deaths, 0);
	assert_string_equal(opt.backing_root[0], "/srv/a b;c#d");
	assert_string_equal(opt.backing_root[1], "/srv/e");
	assert_null(opt.backing_root[2]);
	assert_true(opt.verbose);
	assert_string_equal(opt.defaults.all,
	    "cache=writeback,poll=off,memory=16M");
	assert_int_equal(opt.defaults.nr, 2);
	options_free(&opt);
}

static void
test_line_wins(void **state)
{
	struct options opt;

	(void)state;
	assert_int_equal(read_with(&opt, "run-dir = /run/a\nkinds = vbd3\n"
	    "max-deaths = 5\nbacking-root = /a\nbacking-root = /b\n"
	    "default-options = poll=off\n",
	    "--run-dir", "/run/b", "--backing-root", "/c", "--default-options",
	    "poll=1", END), 0);
	assert_string_equal(opt.run_dir, "/run/b");
	assert_string_equal(opt.kind[0], "vbd3");
	assert_int_equal(opt.max_deaths, 5);
	assert_string_equal(opt.backing_root[0], "/c");
	assert_null(opt.backing_root[1]);
	assert_string_equal(opt.defaults.all, "poll=1");
	options_free(&opt);
	/* A bad file is one, whatever the command line says. */
	assert_int_equal(read_with(&opt, "run-dir = a\n", "--run-dir",
	    "/run/b", END), -EINVAL);
}

#define LONG_100 "0123456789012345678901234567890123456789012345678901234567" \
	"890123456789012345678901234567890123456789"

/* Each with the number of its line, and what is said of it. */
static const struct {
	const char *text, *where, *words;
} bad[] = {
	{ "frobnicate = 1\n", ":1: ", "unknown key \"frobnicate\": there are "
	    "run-dir, kinds" },
	{ "\n# x\nRun-Dir = /a\n", ":3: ", "unknown key \"Run-Dir\"" },
	{ "verbose\n", ":1: ", "neither \"key = value\" nor \"[format]\"" },
	{ "\n[qcow2\n", ":2: ", "neither" },
	{ "run-dir = run\n", ":1: ", "run-dir = run: not an absolute path" },
	{ "run-dir =\n", ":1: ", "not an absolute path" },
	{ "run-dir = /" LONG_100 "\n", ":1: ", "shorter than 80 bytes" },
	{ "run-dir = /a\nrun-dir = /a\n", ":2: ", "run-dir is given twice" },
	{ "kinds = vbd, qdisk\n", ":1: ", "not a list of at most 4 names" },
	{ "kinds = a,b,c,d,e\n", ":1: ", "at most 4" },
	{ "kinds =\n", ":1: ", "not a list" },
	{ "uid-base = 0\n", ":1: ", "not a number from 1 to 2147483647" },
	{ "uid-base = 2147483648\n", ":1: ", "not a number" },
	{ "uid-base = 1 2\n", ":1: ", "not a number" },
	{ "max-deaths = 17\n", ":1: ", "not a number from 0 to 16" },
	{ "max-deaths = -1\n", ":1: ", "not a number" },
	{ "backing-root = srv\n", ":1: ", "not an absolute path" },
	{ "verbose = yes\n", ":1: ", "neither on nor off" },
	{ "config = /a\n", ":1: ", "unknown key" },
	{ "default-options = poll\n", ":1: ", "not option=value" },
	{ "default-options =\n", ":1: ", "not a list of options" },
	{ "default-options = poll=never\n", ":1: ", "auto, off or 0 to" },
	{ "default-options = frob=1\n", ":1: ", "unknown option \"frob\"" },
	{ "default-options = poll=off,poll=off\n", ":1: ", "given twice" },
	{ "default-options = poll=off:/etc/shadow\n", ":1: ", "not a list" },
	{ "default-options = readonly=on\n", ":1: ", "belongs to a disk" },
	{ "default-options = cache=none, readonly=off\n", ":1: ",
	    "belongs to a disk" },
	{ "default-options = io=native,cache=unsafe\n", ":1: ", "io=threads" },
	{ "default-options = poll=off\ndefault-options = poll=off\n", ":2: ",
	    "given twice" },
	{ "[vhd]\ndefault-options = poll=off\n", ":2: ", "[vhd] is no format" },
	{ "[qcow2]\nrun-dir = /a\n", ":2: ", "no key of a format" },
	{ "[raw]\ndefault-options = poll=1\n[qcow2]\n[raw]\n"
	    "default-options = poll=2\n", ":5: ", "[raw] are given twice" },
	{ "default-options = io=native\n[raw]\ndefault-options = "
	    "cache=unsafe\n", "", "do not go together" },
};

static void
test_bad(void **state)
{
	struct options opt;
	char where[64];
	size_t i;

	(void)state;
	for (i = 0; i < COUNT(bad); i++) {
		assert_int_equal(read_with(&opt, bad[i].text, END), -EINVAL);
		snprintf(where, sizeof(where), "%s%s", bad[i].where[0] != '\0' ?
		    conf : "", bad[i].where);
		if (strstr(said, where) == NULL ||
		    strstr(said, bad[i].words) == NULL)
			fail_msg("\"%s\": no \"%s\", or no \"%s\" in \"%s\"",
			    bad[i].text, where, bad[i].words, said);
		assert_ptr_equal(strchr(said, '\n'),
		    said + strlen(said) - 1);
	}
}

static void
test_bad_bytes(void **state)
{
	static const char nul[] = "verbose = on\nmax-deaths = 1\0\n";
	static char text[20000];
	struct options opt;
	unsigned i;
	size_t n = 0;

	(void)state;
	memset(text, '#', sizeof(text) - 1);
	assert_int_equal(read_with(&opt, text, END), -EINVAL);
	assert_non_null(strstr(said, ":1: the line is too long"));
	write_conf(nul, sizeof(nul) - 1);
	assert_int_equal(listen_to(read_it, &opt), -EINVAL);
	assert_non_null(strstr(said, ":2: the line holds a NUL"));
	for (i = 0; i <= ROOTS_MAX; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n,
		    "backing-root = /%u\n", i);
	assert_int_equal(read_with(&opt, text, END), -EINVAL);
	assert_non_null(strstr(said, ":17: "));
	assert_non_null(strstr(said, "one too many: 16 at most"));
}

static void
test_no_file(void **state)
{
	static char *const none[] = { (char *)"ringbackd",
	    (char *)"--config", (char *)"/nonexistent/ringback.conf", NULL };
	static char *const dir[] = { (char *)"ringbackd", (char *)"--config",
	    (char *)"/", NULL };
	struct options opt;

	(void)state;
	memcpy(line, none, sizeof(none));
	words = 3;
	assert_int_equal(listen_to(read_it, &opt), -EINVAL);
	assert_non_null(strstr(said, "/nonexistent/ringback.conf: No such"));
	memcpy(line, dir, sizeof(dir));
	assert_int_equal(listen_to(read_it, &opt), -EINVAL);
	assert_non_null(strstr(said, "cannot read /: "));
	/* A disk process is told everything; it reads no file. */
	line[words++] = (char *)"--disk";
	line[words++] = (char *)"1-2";
	line[words] = NULL;
	assert_int_equal(listen_to(read_it, &opt), 0);
	assert_string_equal(opt.disk, "1-2");
	options_free(&opt);
}

static void
test_reload(void **state)
{
	static const char new[] = "run-dir = /run/b\nkinds = vbd3\n"
	    "uid-base = 9\nmax-deaths = 7\nbacking-root = /n\nverbose = on\n"
	    "default-options = poll=7\n";
	struct options opt;

	(void)state;
	assert_int_equal(read_with(&opt, "run-dir = /run/a\nuid-base = 8\n"
	    "backing-root = /a\ndefault-options = poll=5\n", END), 0);
	write_conf(new, strlen(new));
	assert_int_equal(listen_to(options_reload, &opt), 0);
	assert_non_null(strstr(said, "run-dir has changed"));
	assert_non_null(strstr(said, "kinds has changed"));
	assert_non_null(strstr(said, "uid-base has changed"));
	assert_string_equal(opt.run_dir, "/run/a");
	assert_string_equal(opt.kind[0], "vbd");
	assert_int_equal(opt.uid_base, 8);
	assert_int_equal(opt.max_deaths, 7);
	assert_string_equal(opt.backing_root[0], "/n");
	assert_string_equal(opt.defaults.all, "poll=7");
	assert_true(opt.verbose);
	write_conf("backing-root = /z\nfrob = 1\n", 27);
	assert_int_equal(listen_to(options_reload, &opt), -EINVAL);
	assert_non_null(strstr(said, ":2: unknown key"));
	assert_string_equal(opt.backing_root[0], "/n");
	assert_null(opt.backing_root[1]);
	assert_string_equal(opt.defaults.all, "poll=7");
	options_free(&opt);
}

/* ---- into a disk spec ---------------------------------------------------- */

static const struct {
	const char *all, *qcow2, *text, *full;	/* NULL: refused */
} merged[] = {
	{ "", "", "raw:/a", "raw:/a" },
	{ "poll=off", "", "raw:/a", "raw,poll=off:/a" },
	{ "poll=off", "", "raw:/a:b,poll=1", "raw,poll=off:/a:b,poll=1" },
	{ "poll=off,merge=0", "", "raw,poll=1:/a", "raw,poll=1,merge=0:/a" },
	{ "poll=off", "poll=7", "qcow2:/a", "qcow2,poll=7:/a" },
	{ "poll=off", "poll=7", "raw:/a", "raw,poll=off:/a" },
	{ "poll=off,merge=0", "poll=7", "qcow2:/a",
	    "qcow2,poll=7,merge=0:/a" },
	/* What a profile sets is as good as given. */
	{ "iothreads=2,merge=0", "", "raw,profile=high-performance:/a",
	    "raw,profile=high-performance,merge=0:/a" },
	{ "poll=7", "", "raw,profile=economy:/a", "raw,profile=economy:/a" },
	{ "poll=7", "", "raw,profile=default:/a",
	    "raw,profile=default,poll=7:/a" },
	{ "poll=7", "profile=economy", "qcow2:/a", "qcow2,profile=economy:/a" },
	{ "profile=economy", "", "raw,poll=7:/a",
	    "raw,poll=7,profile=economy:/a" },
	{ "poll=off", "", "raw,cache=bogus:/a", NULL },
	{ "poll=off", "", "raw", NULL },
	{ "io=native", "", "raw,cache=unsafe:/a", NULL },
};

static void
test_merge(void **state)
{
	struct defaults d;
	struct disk_spec spec;
	char full[SPEC_MAX], why[WHY_MAX];
	size_t i;
	int rc;

	(void)state;
	for (i = 0; i < COUNT(merged); i++) {
		memset(&d, 0, sizeof(d));
		if (merged[i].all[0] != '\0')
			assert_int_equal(defaults_set(&d, "", merged[i].all,
			    why), 0);
		if (merged[i].qcow2[0] != '\0')
			assert_int_equal(defaults_set(&d, "qcow2",
			    merged[i].qcow2, why), 0);
		rc = defaults_parse(&d, false, merged[i].text, full, &spec,
		    why);
		if (merged[i].full == NULL) {
			assert_int_equal(rc, -EINVAL);
			continue;
		}
		assert_int_equal(rc, 0);
		assert_string_equal(full, merged[i].full);
		assert_true(defaults_fit(false, full, merged[i].text, &spec));
	}
	/* Who is at fault: the last of them is right without the file. */
	assert_non_null(strstr(why, "default-options of ringback.conf make it "
	    "raw,cache=unsafe,io=native"));
	memset(&d, 0, sizeof(d));
	assert_int_equal(defaults_set(&d, "", "poll=off", why), 0);
	assert_int_equal(defaults_parse(&d, false, "raw,cache=bogus:/a", full,
	    &spec, why), -EINVAL);
	assert_null(strstr(why, "ringback.conf"));
}

/* A process that says it serves 'full' is told to go when it does not fit. */
static void
test_fit(void **state)
{
	struct disk_spec spec;

	(void)state;
	assert_true(defaults_fit(false, "raw,poll=1,merge=0:/a",
	    "raw,poll=1:/a", &spec));
	assert_true(defaults_fit(false, "raw:/a", "raw:/a", &spec));
	assert_false(defaults_fit(false, "raw,poll=1:/b", "raw:/a", &spec));
	assert_false(defaults_fit(false, "raw,poll=1:/b:/a", "raw:/a", &spec));
	assert_false(defaults_fit(false, "raw:/b", "raw:/a", &spec));
	assert_false(defaults_fit(false, "raw,poll=2:/a", "raw,poll=1:/a",
	    &spec));
	assert_false(defaults_fit(false, "raw:/a", "raw,poll=1:/a", &spec));
	assert_false(defaults_fit(false, "qcow2:/a", "raw:/a", &spec));
	assert_false(defaults_fit(false, "raw,frob=1:/a", "raw:/a", &spec));
	assert_false(defaults_fit(false, "raw,poll=12:/a", "raw,poll=1:/a",
	    &spec));
	assert_false(defaults_fit(false, "raw", "raw:/a", &spec));
	assert_false(defaults_fit(false, "", "raw:/a", &spec));

	/* A drive may be empty. */
	assert_true(defaults_fit(true, "raw,poll=1:", "raw:", &spec));
	assert_true(defaults_fit(true, "", "", &spec));
	assert_false(defaults_fit(false, "raw,poll=1:", "raw:", &spec));
	assert_false(defaults_fit(true, "raw,poll=1:/b", "raw:", &spec));
}

static void
test_long(void **state)
{
	char text[SPEC_MAX], full[SPEC_MAX], why[WHY_MAX];
	struct disk_spec spec;
	struct defaults d;
	size_t n;

	(void)state;
	memset(&d, 0, sizeof(d));
	assert_int_equal(defaults_set(&d, "", "poll=off,merge=0", why), 0);
	/* Too many options for any path: refused, and nothing overflows. */
	for (n = SPEC_MAX - 40; n < SPEC_MAX; n++) {
		snprintf(text, sizeof(text), "raw,%0*d:/a", (int)n - 7, 1);
		assert_int_equal(defaults_parse(&d, false, text, full, &spec,
		    why), -EINVAL);
	}
	/* ... and any path for the options. */
	snprintf(text, sizeof(text), "raw:/%0*d", SPEC_MAX - 6, 1);
	assert_int_equal(strlen(text), SPEC_MAX - 1);
	assert_int_equal(defaults_parse(&d, false, text, full, &spec, why),
	    -EINVAL);
	assert_non_null(strstr(why, "its default-options have more than"));
}

static int
make_conf(void **state)
{
	int fd = mkstemp(conf);

	(void)state;
	return fd < 0 ? -1 : close(fd);
}

static int
remove_conf(void **state)
{
	(void)state;
	return unlink(conf);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_line_wins),
		cmocka_unit_test(test_bad),
		cmocka_unit_test(test_bad_bytes),
		cmocka_unit_test(test_no_file),
		cmocka_unit_test(test_reload),
		cmocka_unit_test(test_merge),
		cmocka_unit_test(test_fit),
		cmocka_unit_test(test_long),
	};

	return cmocka_run_group_tests(tests, make_conf, remove_conf);
}
