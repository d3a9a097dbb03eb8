#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# test_media: CD-ROM drives whose medium is taken out and changed while a guest
# reads it, and while disk processes and the supervisor die.  The guest is
# strict: an answer it does not wait for, or a sector that is not what belongs
# there, ends its I/O with a line.
set -u
. tests/machine.sh

if [ "$(id -u)" -ne 0 ]; then
	say "skip media: it needs root"
	exit 77
fi

slow=fault:every=1,delay-ms=400:raw

daemon_start() {
	"$O/ringbackd" --run-dir "$dir/run" --max-deaths 0 \
	    >>"$dir/ringbackd.log" 2>&1 &
	daemon=$!
	wait_until 10 rb list
}

daemon_kill() {
	kill -KILL "$daemon"
	wait "$daemon" 2>/dev/null
}

node() {
	xenstore-read "$(be 7 51712)/$1" 2>/dev/null
}

node_is() {
	[ "$(node "$1")" = "$2" ]
}

process() {
	disk_processes | sed -n 's/ .*//p' | head -1
}

# ended PID: one that is told to close may take its time
ended() {
	! kill -0 "$1" 2>/dev/null
}

sees() {
	guest 7 list | grep -q "$1"
}

# In the background: reads that have to find the pattern, I/O options follow
reads() {
	guest 7 io xvda --rw randread --verify --stall 20 "$@" \
	    >"$dir/io" 2>&1 &
	io=$!
}

read_well() {
	if wait "$io"; then
		ok "$1"
	else
		bad "$1" "$(cat "$dir/io"; rb list; tail -8 "$dir/ringbackd.log")"
	fi
}

# settles NAME SPEC: that is in the drive, and nothing is left of the change
settles() {
	if wait_until 5 node_is params "$2" && wait_until 5 node_is state 4 &&
	    wait_until 5 node_is media-change ""; then
		ok "$1"
	else
		bad "$1" "$(xenstore-ls "$(be 7 51712)"; rb list)"
	fi
}

# The guest knows what it wrote to xvda; a.iso and b.iso are that.
make_media() {
	truncate -s 4m "$dir/disk.img"
	truncate -s 6m "$dir/zero.iso"
	check "attach a disk" rb attach guest-7 xvda "raw:$dir/disk.img"
	check "write it" guest 7 io xvda --rw write --bs 64k --depth 8 --verify
	for f in "$dir/zero.iso" "raw:"; do
		refuse "no medium is put into a disk: $f" \
		    rb insert guest-7 xvda "$f"
	done
	refuse "none is taken out" rb eject guest-7 xvda
	rb eject guest-7 xvda 2>&1 | grep -q "a disk, not a CD-ROM drive" ||
		bad "it is said that it is no drive" ""
	check "the disk goes on" guest 7 io xvda --rw read --bs 64k --verify
	check "detach it" rb detach guest-7 xvda
	for f in a b; do
		cp "$dir/disk.img" "$dir/$f.iso"
		chmod 444 "$dir/$f.iso"
	done
}

is_a_drive() {
	check "attach a drive" rb attach guest-7 xvda "raw:$dir/a.iso" --cdrom
	check "info: CD-ROM, removable, read-only" node_is info 7
	check "device-type" node_is device-type cdrom
	check "removable" node_is removable 1
	check "it is read-only for the toolstack" node_is mode r
	check "it is listed as a drive" \
	    sh -c "'$O/ringback' --run-dir '$dir/run' --json list |
	    grep -q '\"cdrom\":true'"
	check "its image is open for reading only" \
	    grep -q '^flags:.*0[0-7]*0$' "$(fdinfo a.iso)"
	check "read it" guest 7 io xvda --rw read --bs 64k --verify
	check "a write is refused" guest 7 io xvda --rw read --op 1 --ios 4 \
	    --expect error
	check "so is a discard" guest 7 io xvda --rw read --op 5 --ios 4 \
	    --expect unsupported
	check "the medium is what it was" cmp "$dir/disk.img" "$dir/a.iso"
	connects=$(guest 7 list | sed -n 's/.* \(connects=[0-9]*\) .*/\1/p')
}

# The descriptor that the disk process has of a file.
fdinfo() {
	for f in /proc/"$(process)"/fd/*; do
		[ "$(readlink "$f")" != "$dir/$1" ] ||
			echo "/proc/$(process)/fdinfo/${f##*/}"
	done
}

eject_and_insert() {
	guest 7 forget xvda
	check "eject" rb eject guest-7 xvda
	check "no sectors" node_is sectors 0
	settles "the drive is empty" "raw:"
	check "the guest sees none" wait_until 5 sees ' sectors=0 '
	check "flushes are done" guest 7 io xvda --op 3 --bs 0 --ios 4
	check "what it reads fails" guest 7 io xvda --op 0 --ios 4 \
	    --expect error
	check "eject it again" rb eject guest-7 xvda
	check "insert one of zeros" rb insert guest-7 xvda "raw:$dir/zero.iso"
	check "its sectors" node_is sectors 12288
	check "the guest sees them" wait_until 5 sees ' sectors=12288 '
	check "the guest reads zeros" \
	    guest 7 io xvda --rw read --bs 64k --verify --zeroed
	guest 7 forget xvda
	check "the guest has never connected again" sees " $connects "
}

# Each is the same to the guest, so that whatever it reads has one right answer.
under_load() {
	reads --bs 16k --depth 32 --time 1.5
	n=0
	while kill -0 $io 2>/dev/null; do
		for f in b a; do
			rb insert guest-7 xvda "raw:$dir/$f.iso" \
			    >"$dir/out" 2>&1 || cat "$dir/out" >>"$dir/bad"
			n=$((n + 1))
		done
		sleep 0.05
	done
	read_well "media are changed under load"
	check "each was" [ ! -e "$dir/bad" ]
	at_least "so many times" $n 2
	settles "the last one is in the drive" "raw:$dir/a.iso"
}

# What the old medium was asked is answered from it, and waited for.
in_flight() {
	check "insert a slow one" rb insert guest-7 xvda "$slow:$dir/a.iso"
	reads --bs 4k --depth 8 --ios 8
	sleep 0.15
	guest 7 list | grep -q busy=1 || bad "it is being read" ""
	check "insert zeros meanwhile" rb insert guest-7 xvda \
	    "raw:$dir/zero.iso"
	read_well "what was in flight is answered from the old medium"
	guest 7 forget xvda
	check "the new one is there" \
	    guest 7 io xvda --rw read --bs 64k --verify --zeroed
	guest 7 forget xvda
}

# A medium that cannot be used: the old one stays.
bad_media() {
	echo "no image" >"$dir/bad.iso"
	chmod 644 "$dir/bad.iso"
	check "insert zeros" rb insert guest-7 xvda "raw:$dir/zero.iso"
	guest 7 io xvda --rw randread --zeroed --verify --bs 16k --depth 16 \
	    --time 1 >"$dir/io" 2>&1 &
	io=$!
	for spec in "raw:$dir/none.iso" "qcow2:$dir/bad.iso" "raw:$dir" \
	    "raw:relative.iso" "raw,queues=4:$dir/a.iso" \
	    "raw,grants=persistent:$dir/a.iso" "vhd:$dir/a.iso" nonsense; do
		refuse "insert $spec" rb insert guest-7 xvda "$spec"
	done
	rb insert guest-7 xvda "raw:$dir/none.iso" 2>&1 |
	    grep -q "none.iso.*No such file.*the medium is what it was" ||
	    bad "the reason is said" "$(rb insert guest-7 xvda \
	    "raw:$dir/none.iso" 2>&1)"
	read_well "the old one is read all the while"
	settles "it is in the drive" "raw:$dir/zero.iso"

	# Neither: the file of the old one has gone meanwhile.
	mv "$dir/zero.iso" "$dir/moved.iso"
	refuse "insert one that is not there, the old one gone" \
	    rb insert guest-7 xvda "raw:$dir/none.iso"
	mv "$dir/moved.iso" "$dir/zero.iso"
	settles "the drive is empty" "raw:"
	check "insert zeros again" rb insert guest-7 xvda "raw:$dir/zero.iso"
	guest 7 forget xvda
}

# drained NAME: insert b.iso into a drive whose slow medium is being read, and
# have something happen while it is drained
while_draining() {
	check "$1: insert a slow one" rb insert guest-7 xvda "$slow:$dir/a.iso"
	disk=$(process)
	guest 7 io xvda --rw randread --bs 4k --depth 8 --ios 8 --stall 20 \
	    >"$dir/io" 2>&1 &
	io=$!
	sleep 0.1
	rb insert guest-7 xvda "raw:$dir/b.iso" >"$dir/out" 2>&1 &
	insert=$!
	wait_until 2 not_empty media-change
	sleep 0.05
}

not_empty() {
	[ -n "$(node "$1")" ]
}

works() {
	if cmp -s "$dir/disk.img" "$dir/b.iso" &&
	    guest 7 io xvda --rw read --bs 64k --verify >"$dir/out" 2>&1; then
		ok "$1"
	else
		bad "$1" "$(cat "$dir/out"; tail -8 "$dir/ringbackd.log")"
	fi
}

deaths() {
	while_draining "the disk process is killed"
	kill -KILL "$disk"
	read_well "the disk process is killed: no read is lost"
	wait "$insert" || bad "the disk process is killed: the change is made" \
	    "$(cat "$dir/out")"
	settles "the disk process is killed: the new medium" "raw:$dir/b.iso"

	while_draining "the daemon is killed"
	daemon_kill
	check "the daemon is killed: the process ends" wait_until 5 ended "$disk"
	daemon_start
	wait "$insert" && bad "the daemon is killed: that is a failure" ""
	read_well "the daemon is killed: no read is lost"
	settles "the daemon is killed: the old medium" "$slow:$dir/a.iso"

	while_draining "both are killed"
	daemon_kill
	kill -KILL "$disk"
	daemon_start
	wait "$insert" && bad "both are killed: that is a failure" ""
	read_well "both are killed: no read is lost"
	settles "both are killed: the old medium" "$slow:$dir/a.iso"
	check "insert the other one" rb insert guest-7 xvda "raw:$dir/b.iso"
	check "the guest has never connected again" sees " $connects "
}

# At any time, again and again.
random_deaths() {
	check "random kills: insert" rb insert guest-7 xvda "raw:$dir/a.iso"
	guest 7 io xvda --rw randread --bs 16k --depth 16 --stall 20 \
	    --time 2 >"$dir/io" 2>&1 &
	io=$!
	n=0
	while kill -0 $io 2>/dev/null; do
		n=$((n + 1))
		case $((n % 2)) in
		0)	f=a ;;
		*)	f=b ;;
		esac
		rb insert guest-7 xvda "raw:$dir/$f.iso" >"$dir/out" 2>&1 &
		insert=$!
		sleep "0.0$((n * 7 % 60 + 10))"
		case $((n % 3)) in
		0)	pid=$(process)
			[ -z "$pid" ] || kill -KILL "$pid" 2>/dev/null ;;
		1)	daemon_kill
			daemon_start ;;
		*)	pid=$(process)
			daemon_kill
			[ -z "$pid" ] || kill -KILL "$pid" 2>/dev/null
			daemon_start ;;
		esac
		wait "$insert"
	done
	read_well "random kills ($n): no read is lost"
	check "random kills: insert at last" retry rb insert guest-7 xvda \
	    "raw:$dir/b.iso"
	settles "random kills: it is there" "raw:$dir/b.iso"
	check "the guest has never connected again" sees " $connects "
}

# It may still be at the change before.
retry() {
	wait_until 5 "$@"
}

# xl's: an empty drive, mode and all as libxl writes them.
by_xl() {
	xl_prepare
	xl_nodes 7 51728 "" cdrom
	check "xl: the script" xl_add
	check "xl: the guest has an empty drive" wait_until 5 sees \
	    'xvdb.* sectors=0 '
	check "xl: insert" rb insert guest-7 xvdb "raw:$dir/zero.iso"
	check "xl: read" guest 7 io xvdb --rw read --bs 64k --verify --zeroed
	check "xl: eject" rb eject guest-7 xvdb
	check "xl: detach" xl_detach 7 51728

	check "xl: a disk without a path" refused ""
	check "xl: a disk with an empty one" refused "raw:"
}

xl_add() {
	wait_until 10 state_is "$(be 7 51728 vbd)" 2 && xl_script add 7 51728
}

refused() {
	xl_attach 7 51728 "$1" && return 1
	xl_detach 7 51728
	return 0
}

mount_ro() {
	mount --bind "$dir/ro" "$dir/ro" || return
	mount -o remount,bind,ro "$dir/ro" && return
	umount "$dir/ro"
	return 1
}

# A file and a file system that nobody may write to.
read_only() {
	for mode in file mount; do
		mkdir -p "$dir/ro"
		cp "$dir/disk.img" "$dir/ro/r.img"
		chmod 444 "$dir/ro/r.img"
		if [ $mode = mount ]; then
			mount_ro || {
				say "skip a read-only mount: cannot mount"
				continue
			}
		fi
		check "read-only $mode: attach" rb attach guest-7 xvdb \
		    "raw:$dir/ro/r.img" --readonly
		b=$(be 7 51728)
		check "read-only $mode: info" [ "$(xenstore-read "$b/info")" = 4 ]
		check "read-only $mode: read" guest 7 io xvdb --rw read \
		    --bs 64k
		check "read-only $mode: no write" guest 7 io xvdb --op 1 \
		    --ios 2 --expect error
		check "read-only $mode: detach" rb detach guest-7 xvdb
		[ $mode = file ] || {
			refuse "read-only $mode: not for writing" \
			    rb attach guest-7 xvdb "raw:$dir/ro/r.img" \
			    --no-wait
			umount "$dir/ro"
		}
	done
}

machine_start
guest_start 7 --ring-order 2 --grace 2
make_media
is_a_drive
under_load
in_flight
bad_media
deaths
random_deaths
eject_and_insert
check "detach the drive" rb detach guest-7 xvda
by_xl
read_only
if grep -iE 'sanitizer|runtime error' "$dir/ringbackd.log" >&2; then
	bad "a sanitizer has spoken"
fi
summary
