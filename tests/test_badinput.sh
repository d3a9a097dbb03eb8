#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# test_badinput: what people get wrong, told to the real daemon by the command
# and, as xl does, through the script: one clear line, exit status 1, and
# nothing left behind in xenstore or in the run directory.  And what a disk
# process may still do and hold once it serves.
set -u
. tests/machine.sh

# ---- helpers ---------------------------------------------------------------------

# leftovers: whatever there is of disks but for those of $kept (xvda, on 7)
leftovers() {
	xenstore-ls -f / | grep -E '/backend/[a-z0-9]+/[0-9]+/|/device/vbd/' |
	    grep -v "/$kept"
	find "$dir/run" -mindepth 1 ! -name control ! -name lock \
	    ! -name "7-$kept.*"
	disk_processes | grep -v "disk 7/$kept "
	rb list | sed 1d | grep -v "^7 .*$kept_vdev "
	grep -iE 'sanitizer|runtime error' "$dir"/*.log
}

kept=none kept_vdev=none

# What a process that is being closed has comes away a moment later.
nothing_left() {
	wait_until 3 no_leftovers || {
		leftovers
		return 1
	}
}

no_leftovers() {
	[ -z "$(leftovers)" ]
}

# one_line STATUS WORDS COMMAND...: ends with that status and one line, which
# has the WORDS (separated by '|') in their order
one_line() {
	expected=$1 words=$(echo "$2" | sed 's/|/.*/g')
	shift 2
	"$@" >"$dir/said" 2>&1
	status=$?
	if [ $status -ne "$expected" ] || [ "$(wc -l <"$dir/said")" -ne 1 ] ||
	    ! grep -q "$words" "$dir/said"; then
		echo "exit status $status, not $expected with \"$words\":"
		cat "$dir/said"
		return 1
	fi
}

# bad_attach NAME WORDS DOMAIN VDEV SPEC
bad_attach() {
	what=$1
	shift
	check "$what" one_line 1 "$1" rb attach "$2" "$3" "$4"
	check "$what: nothing is left" nothing_left
}

# offer SPEC: what xl writes; script: what it runs then
offer() {
	b=$(be 7 51744 vbd) f=$(fe 7 51744)
	xenstore-write "$f/backend" "$b" "$f/backend-id" 0 "$f/state" 1 \
	    "$b/frontend" "$f" "$b/frontend-id" 7 "$b/online" 1 "$b/mode" w \
	    "$b/dev" xvdc "$b/params" "$1" "$b/script" block-ringback \
	    "$b/state" 1
}

script() {
	env -i PATH=/usr/bin:/bin XENBUS_PATH="backend/vbd/7/51744" \
	    sh "$dir/bin/block-ringback" "$1"
}

node_is() {
	xenstore-read "$(be 7 51744 vbd)/$1" | grep -q "$2"
}

# bad_offer NAME WORDS SPEC: the same through xl's script
bad_offer() {
	what="xl: $1"
	offer "$3"
	check "$what" one_line 1 "vbd 7/51744|$2" script add
	check "$what: hotplug-status is error" node_is hotplug-status error
	check "$what: hotplug-error says why" node_is hotplug-error \
	    "$(echo "$2" | sed 's/|/.*/g')"
	script remove
	xenstore-rm "$(be 7 51744 vbd)" "$(fe 7 51744)"
	check "$what: nothing is left" nothing_left
}

# bad_image NAME WORDS SPEC: both ways
bad_image() {
	bad_attach "$1" "7/51728|$2" guest-7 xvdb "$3"
	bad_offer "$1" "$2" "$3"
}

# ---- images ------------------------------------------------------------------------

images() {
	bad_image "a missing image" "open $dir/none.img|No such file|create" \
	    "raw:$dir/none.img"
	bad_image "a missing folder" "open $dir/no/a.img|No such file|path" \
	    "raw:$dir/no/a.img"
	: >"$dir/empty.img"
	bad_image "an empty image" "open $dir/empty.img|empty|truncate" \
	    "raw:$dir/empty.img"
	head -c 1000 /dev/zero >"$dir/odd.img"
	bad_image "a size of 1000 bytes" \
	    "open $dir/odd.img|1000 bytes|multiple of 512|truncate" \
	    "raw:$dir/odd.img"
	bad_image "a directory" "open $dir:|directory|image file inside" \
	    "raw:$dir"
	mkfifo "$dir/fifo"
	bad_image "a FIFO" "open $dir/fifo|FIFO|regular file" "raw:$dir/fifo"
	bad_image "a character device" "open /dev/null|character device" \
	    "raw:/dev/null"
	ln -s loop.img "$dir/loop.img"
	bad_image "a link to itself" "open $dir/loop.img|symbolic links" \
	    "raw:$dir/loop.img"
	not_permitted
}

# Root may everything, but not what the file system forbids.
not_permitted() {
	cp "$dir/a.img" "$dir/fixed.img"
	if chattr +i "$dir/fixed.img" 2>/dev/null; then
		bad_image "an image that may not be written" \
		    "open $dir/fixed.img|not permitted|access" \
		    "raw:$dir/fixed.img"
		chattr -i "$dir/fixed.img"
	else
		say "skip an image that may not be written: no chattr +i here"
	fi
	mkdir "$dir/ro"
	if mount -t tmpfs none "$dir/ro" 2>/dev/null; then
		truncate -s 1m "$dir/ro/a.img"
		mount -o remount,ro "$dir/ro"
		bad_image "a read-only file system" \
		    "open $dir/ro/a.img|Read-only file system|read-only" \
		    "raw:$dir/ro/a.img"
		umount "$dir/ro"
	else
		say "skip a read-only file system: no mount here"
	fi
}

in_use() {
	check "attach a good one" rb attach guest-7 xvda "raw:$dir/a.img"
	kept=51712 kept_vdev=xvda
	bad_attach "in use by another disk" \
	    "7/51728|lock $dir/a.img|another disk|detach" guest-7 xvdb \
	    "raw:$dir/a.img"
	bad_attach "a disk of that name is there" \
	    "xvda to guest-7|already|detach that first" guest-7 xvda \
	    "raw:$dir/b.img"
	xenstore-write "$(fe 7 51776)/backend" /local/domain/0/backend/x/7/51776
	check "a disk of another backend is there" one_line 1 \
	    "xvde to guest-7|another backend|another name" \
	    rb attach guest-7 xvde "raw:$dir/b.img"
	xenstore-rm "$(fe 7 51776)"
	check "a disk of another backend: nothing is left" nothing_left
	check "the guest's disk is as it was" guest 7 io xvda --rw randrw \
	    --ios 50
	check "detach it" rb detach guest-7 xvda
	kept=none kept_vdev=none

	mkfifo "$dir/say"
	qemu-io -f raw "$dir/b.img" <"$dir/say" >/dev/null 2>&1 &
	qemu=$!
	exec 3>"$dir/say"
	# It has the image when nobody else gets the lock.
	wait_until 10 sh -c "! qemu-io -f raw -c 'read 0 512' '$dir/b.img'"
	bad_attach "in use by QEMU" "7/51728|lock $dir/b.img|QEMU|end" \
	    guest-7 xvdb "raw:$dir/b.img"
	exec 3>&-
	wait $qemu
	check "not any more" rb attach guest-7 xvdb "raw:$dir/b.img"
	check "detach that" rb detach guest-7 xvdb
}

# ---- specs -------------------------------------------------------------------------

specs() {
	a=$dir/a.img
	for x in "raw,colour=red:$a|unknown option|colour|cache" \
	    "raw,poll=5000000:$a|poll=5000000|out of range|100000" \
	    "raw,ring-order=9:$a|ring-order=9|out of range|0 to 4" \
	    "raw,memory=1K:$a|memory=1K|out of range|64K" \
	    "raw,merge=x:$a|merge=x|not a number|1M" \
	    "raw,cache=loose:$a|cache=loose|not known|directsync" \
	    "raw,cache=writeback,io=native:$a|cache=writeback|needs io=threads|none" \
	    "raw,iothreads=17:$a|iothreads=17|out of range|1 to 16" \
	    "raw,queues=2,iothreads=4:$a|queues=2|iothreads=4|raise queues" \
	    "raw,io=io_uring:$a|io=io_uring|not built yet|native" \
	    "raw,poll=1,poll=2:$a|poll|given twice|once" \
	    "qcow2:a.img|a.img|whole path" \
	    "vhd:$a|vhd|unknown format\|unknown format|raw" \
	    "raw:a.img|a.img|whole path" "$a|no ':'|format" "raw:|no path"; do
		spec=${x%%|*}
		words=${x#*|}
		# The format's message begins with what is wrong.
		[ "$spec" != "vhd:$a" ] || words="unknown format|vhd|raw"
		bad_attach "spec $spec" "xvdb to guest-7|$words" \
		    guest-7 xvdb "$spec"
	done
	bad_offer "a bad spec" "colour|cache" "raw,colour=red:$a"
	bad_attach "a name that is none" "foo|no name of a disk|xvda" \
	    guest-7 foo "raw:$a"
	bad_attach "a domain that does not run" "no running domain|nobody|xl" \
	    nobody xvdb "raw:$a"
	bad_attach "a number that does not run" "no running domain 99|xl" \
	    99 xvdb "raw:$a"
}

# ---- the daemon ----------------------------------------------------------------------

daemon_at() {
	timeout 10 "$O/ringbackd" --run-dir "$1"
}

daemons() {
	check "a second ringbackd" one_line 1 \
	    "another ringbackd (process $daemon)|$dir/run|--run-dir" \
	    daemon_at "$dir/run"
	check "a second ringbackd: the first goes on" rb list
	check "a second ringbackd: nothing is left" nothing_left

	: >"$dir/file"
	check "the run directory is a file" one_line 1 \
	    "$dir/file|not a directory" daemon_at "$dir/file"
	check "the run directory cannot be made" one_line 1 \
	    "cannot make|$dir/file/run|Not a directory" \
	    daemon_at "$dir/file/run"
	mkdir -m 777 "$dir/open"
	check "the run directory is everybody's" one_line 1 \
	    "$dir/open|only root|--run-dir" daemon_at "$dir/open"
	check "the run directory is everybody's: nothing is left" \
	    rmdir "$dir/open"
	mkdir "$dir/roots"
	if mount -t tmpfs -o mode=755 none "$dir/roots" 2>/dev/null; then
		mount -o remount,ro "$dir/roots"
		check "the run directory is not writable" one_line 1 \
		    "$dir/roots/lock|Read-only" daemon_at "$dir/roots"
		umount "$dir/roots"
	else
		say "skip a run directory that is not writable: no mount here"
	fi
	check "no daemon" one_line 1 "does not answer|$dir/none/control|start" \
	    "$O/ringback" --run-dir "$dir/none" list
}

daemon_ended() {
	! kill -0 "$daemon"
}

# xenstored ends: the daemon says so and ends, the disk goes on; and again.
xenstored_gone() {
	check "attach before xenstored goes" rb attach guest-7 xvda \
	    "raw:$dir/a.img"
	check "I/O" guest 7 io xvda --rw randrw --ios 50
	began=$(wc -l <"$dir/ringbackd.log")
	kill "$(cat "$dir/xenstored.pid")"
	wait_until 10 daemon_ended || kill "$daemon"
	wait "$daemon"
	status=$?
	check "xenstored is gone: exit status 1" [ $status -eq 1 ]
	sed "1,${began}d" "$dir/ringbackd.log" | grep -v 'vbd 7/' >"$dir/said"
	check "xenstored is gone: one line" sh -c "[ \$(wc -l <'$dir/said') \
	    -eq 1 ] && grep 'xenstored is lost.*go on.*start' '$dir/said'"
	check "xenstored is gone: the disk is served" \
	    guest 7 io xvda --rw randrw --ios 50
	check "no xenstored" one_line 1 "cannot connect to xenstored|running" \
	    daemon_at "$dir/run"
	check "no xenstored: no control socket is left" \
	    [ ! -e "$dir/run/control" ]
	check "no xenstored: the disk is served" \
	    guest 7 io xvda --rw randrw --ios 50
}

# It has forgotten everything, so the disk is nobody's any more.
xenstored_back() {
	LOOPXEN_UNCOUNTED=1 LD_PRELOAD="$O/loopxen/preload.so" setsid \
	    "$O/xen/xenstored" --no-fork --pid-file "$dir/xenstored.lock" \
	    >>"$dir/xenstored.log" 2>&1 &
	echo $! >"$dir/xenstored.pid"
	if ! wait_until 5 xenstore-write /local/domain/0/domid 0; then
		bad "xenstored is back" "$(tail -5 "$dir/xenstored.log")"
		return
	fi
	daemon_start && ok "xenstored is back: ringbackd starts" ||
		bad "xenstored is back: ringbackd starts" ""
	check "xenstored is back: nothing is left" nothing_left
	guest 7 crash >/dev/null
	guest_start 8 || exit 1
	check "xenstored is back: attach" rb attach guest-8 xvda \
	    "raw:$dir/a.img"
	check "xenstored is back: I/O" guest 8 io xvda --rw randrw --ios 50
	check "xenstored is back: detach" rb detach guest-8 xvda
	check "xenstored is back: nothing is left then" nothing_left
}

# ---- what a disk process is ------------------------------------------------------------

# status FIELD: of the disk process
status_of() {
	sed -n "s/^$1:[[:space:]]*//p" "/proc/$pid/status" |
	    tr -s '[:space:]' ' ' | sed 's/ $//'
}

is() {
	if [ "$2" = "$3" ]; then
		ok "disk process: $1: $2"
	else
		bad "disk process: $1: $2" "not $3"
	fi
}

# What each descriptor is, without the numbers of sockets.
kinds_of_fds() {
	for fd in "/proc/$pid/fd"/*; do
		readlink "$fd"
	done | sed 's/:\[[0-9]*\]$//; s/^anon_inode:\[\(.*\)\]/\1/;
	    s/^anon_inode://; s/^.memfd:\(.*\) (deleted)/\1/;
	    s|^/proc/[0-9]*/task/[0-9]*/|/proc/PID/task/TID/|' | LC_ALL=C sort |
	    uniq -c | awk '{ print $1, $2 }'
}

process() {
	check "attach one to look at" rb attach guest-7 xvda \
	    "raw,memory=8M:$dir/a.img"
	check "I/O with it" guest 7 io xvda --rw randrw --ios 50
	pid=$(disk_processes | sed 's/ .*//')
	is uid "$(status_of Uid)" "65534 65534 65534 65534"
	is gid "$(status_of Gid)" "65534 65534 65534 65534"
	is groups "$(status_of Groups)" ""
	for set in Inh Prm Eff Amb; do
		is "capabilities, $set" "$(status_of Cap$set)" 0000000000000000
	done
	is "no new privileges" "$(status_of NoNewPrivs)" 1
	is "seccomp is a filter" "$(status_of Seccomp)" 2
	is "seccomp, each thread" "$(cat "/proc/$pid/task"/*/status |
	    grep -c 'Seccomp:.*2')" "$(status_of Threads)"
	is "core dumps" "$(sed -n 's/^Max core file size *//p' \
	    "/proc/$pid/limits" | awk '{ print $1, $2 }')" "0 0"
	# Not dumpable: what it has in /proc is root's, whatever its uid.
	is "not dumpable" "$(stat -c %u "/proc/$pid/mem")" 0
	locked=$(status_of VmLck)
	if grep -q __asan_init "$O/ringbackd"; then
		say "skip locked memory: the sanitizer does not let it be"
	else
		at_least "disk process: locked, KB" "${locked% kB}" 8192
	fi
	is "memory that is executable and writable" \
	    "$(grep -c 'wx' "/proc/$pid/maps")" 0
	cat >"$dir/want" <<-END
		1 /dev/null
		1 /proc/PID/task/TID/schedstat
		1 $dir/a.img
		2 $dir/ringbackd.log
		6 eventfd
		1 eventpoll
		1 loopxen-domain
		1 signalfd
		4 socket
	END
	# The image; how long its thread waits for a CPU; stdout and stderr;
	# stdin; its threads' wake-ups (work,
	# done, completions, the helper of fdatasync) and two of loopxen's
	# event channels; what its queue sleeps on; the guest's memory, which
	# is loopxen's, too; SIGTERM; the listener, the supervisor, and where
	# Xen has gntdev and evtchn, loopxen's broker twice.
	kinds_of_fds >"$dir/have"
	check "disk process: its descriptors" diff "$dir/want" "$dir/have"
	is "arguments tell no path of an image" \
	    "$(tr '\0' '\n' <"/proc/$pid/cmdline" | grep -c a.img)" 0
	check "detach it" rb detach guest-7 xvda
	check "nothing is left of it" nothing_left
}

machine_start
guest_start 7 || exit 1
truncate -s 4m "$dir/a.img" "$dir/b.img"
mkdir "$dir/bin"
sed "s|@BINDIR@|$dir/bin|" tools/block-ringback >"$dir/bin/block-ringback"
cat >"$dir/bin/ringback" <<-END
	#!/bin/sh
	exec '$O/ringback' --run-dir '$dir/run' "\$@"
END
chmod +x "$dir/bin/ringback"
images
in_use
specs
daemons
process
check "the daemon is still the same" kill -0 "$daemon"
xenstored_gone
xenstored_back
summary
