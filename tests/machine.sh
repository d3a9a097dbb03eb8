# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh
#
# machine: for scripts that need a whole machine without Xen.  Sourced from the
# top of the tree, with the build's output folder in O; RINGBACKD is the daemon
# that is tested, if it is another one than that folder's.
#
#   machine_start           loopxen with the real xenstored, and ringbackd; in
#                           a private folder, $dir, with all that belongs to it
#   machine_stop            ends what was started, removes the folder (a trap
#                           does it as well)
#   guest_start N [OPTS]    a guest that plays Linux, domain N, named guest-N
#   guest N COMMAND ...     tells it something (loopfront to)
#   rb ...                  the command ringback
#   on_cpu PID              the time that a process was on a CPU, in nanoseconds
#   be N DEVID, fe N DEVID  the paths of a disk in xenstore
#   beside_start            guest 7, which must not feel what others do: verified
#                           I/O on $dir/good.img until the file $dir/enough
#                           appears, by process $beside; checked are
#   beside_stop             that it was all right, while others are there yet
#   beside_leave            and that all ends well, when they have gone
#   spin, unspin            a process of the lowest class for each CPU, in
#                           $spinners, keeps it from halting; the machine's end
#                           ends them too
#   xl_attach N DEVID SPEC  what xl does for a disk, the script included, which
#   xl_detach N DEVID       has to be made by xl_prepare first; with XL_KIND=vbd3
#                           as xl 4.20 does for backendtype=tap
#
#   ok NAME, bad NAME TEXT  count and tell the outcome of a check
#   check NAME CMD ...      CMD must succeed; its output is told when it fails
#   refuse NAME CMD ...     CMD must fail
#   wait_until S CMD ...    until CMD succeeds, at most so many seconds
#   summary                 "N passed, N failed"; its status is that of the test

O=${O:-build}
case $O in
/*)	;;
*)	O=$PWD/$O ;;
esac
passed=0 failed=0 dir='' daemon='' spinners='' daemon_options=--verbose
XL_KIND=vbd

say() {
	printf '%s\n' "$*"
}

# wait_until SECONDS CMD ...
wait_until() {
	until=$(($(date +%s) + $1))
	shift
	until "$@" >/dev/null 2>&1; do
		[ "$(date +%s)" -lt "$until" ] || return 1
		sleep 0.02
	done
}

rb() {
	"$O/ringback" --run-dir "$dir/run" "$@"
}

# Without it every "nothing is left" would hold.
command -v pgrep >/dev/null || {
	echo "pgrep is missing (package procps)" >&2
	exit 1
}

beside_io() {
	while [ ! -e "$dir/enough" ]; do
		guest 7 io xvda --rw randrw --bs 16k --depth 4 --time 2 \
		    --verify || return
	done
}

# The file has all its blocks: no write waits for the file system's journal, which
# other tests keep busy.
beside_start() {
	head -c 32m /dev/zero >"$dir/good.img"
	sync "$dir/good.img"
	guest_start 7 || exit 1
	check "attach the disk of the guest beside" \
	    rb attach guest-7 xvda "raw:$dir/good.img"
	guest 7 io xvda --rw randrw --bs 16k --ios 10 --verify --zeroed >/dev/null
	beside_io >"$dir/beside" 2>&1 &
	beside=$!
}

beside_stop() {
	touch "$dir/enough"
	if wait $beside && ! grep -q '^loopfront:' "$dir/beside"; then
		ok "the guest beside has verified all that it read"
	else
		bad "the guest beside" "$(cat "$dir/beside")"
	fi
}

# Its disk goes, and it; nothing else is left, and no disk process died.
beside_leave() {
	check "detach its disk" rb detach guest-7 xvda
	check "nothing is left" sh -c \
	    "! find '$dir/run' -mindepth 1 ! -name control ! -name lock | grep ."
	check "ringbackd is the same" kill -0 "$daemon"
	if grep -E 'anitizer|runtime error|ended by signal|died' \
	    "$dir/ringbackd.log" >"$dir/bad"; then
		bad "a disk process died" "$(cat "$dir/bad")"
	else
		ok "no disk process died"
	fi
	[ "$failed" -eq 0 ] || { say "the log:"; tail -60 "$dir/ringbackd.log"; }
	check "the guest beside ends" guest 7 quit
}

# Processes of disks, in the form of pgrep -a; they outlive the daemon.
disk_processes() {
	pgrep -a -f "^ringbackd: disk .*--run-dir $dir/run\$"
}

# Nanoseconds that the threads of a process were on a CPU.
on_cpu() {
	cat /proc/"$1"/task/*/schedstat |
	    awk '{ n += $1 } END { printf "%.0f", n }'
}

daemon_start() {
	# Whoever runs us may ignore a signal that kills in real life.
	# shellcheck disable=SC2086 # a list
	env --default-signal=XFSZ "${RINGBACKD:-$O/ringbackd}" --run-dir "$dir/run" $daemon_options \
	    >>"$dir/ringbackd.log" 2>&1 &
	daemon=$!
	wait_until 10 rb list && return
	say "ringbackd does not answer:" >&2
	tail -5 "$dir/ringbackd.log" >&2
	return 1
}

machine_start() {
	dir=$(mktemp -d) || exit 1
	trap machine_stop EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM HUP
	chmod 755 "$dir"	# disk processes have no privileges
	LOOPXEN_BUILD=$O
	export LOOPXEN_BUILD
	tests/loopxen/loopxen start "$dir" || exit 1
	eval "$(tests/loopxen/loopxen env "$dir")"
	mkdir -m 700 "$dir/run"
	daemon_start || exit 1
}

machine_stop() {
	trap - EXIT
	unspin
	[ -n "$dir" ] || return 0
	for s in "$dir"/guest-*.sock; do
		[ ! -S "$s" ] || "$O/loopfront" to "$s" crash >/dev/null 2>&1
	done
	if [ -n "$daemon" ]; then
		kill "$daemon" 2>/dev/null
		wait "$daemon" 2>/dev/null
	fi
	disk_processes | while read -r pid _; do
		kill "$pid"
	done
	tests/loopxen/loopxen stop "$dir"
	rm -rf "$dir"
}

spin() {
	cpu=0
	while [ $cpu -lt "$(nproc)" ]; do
		taskset -c $cpu chrt -i 0 sh -c 'while :; do :; done' &
		spinners="$spinners $!"
		cpu=$((cpu + 1))
	done
}

# They may have been stopped.
unspin() {
	# shellcheck disable=SC2086 # a list
	[ -z "$spinners" ] || kill -KILL $spinners 2>/dev/null
	spinners=
}

guest_start() {
	n=$1
	shift
	"$O/loopfront" domain --domid "$n" --name "guest-$n" --background \
	    --socket "$dir/guest-$n.sock" --check-padding "$@" >/dev/null
}

guest() {
	n=$1
	shift
	"$O/loopfront" to "$dir/guest-$n.sock" "$@"
}

be() {
	echo "/local/domain/0/backend/${3-ringback}/$1/$2"
}

fe() {
	echo "/local/domain/$1/device/vbd/$2"
}

# ---- as xl does it ---------------------------------------------------------------

# The script as it would be installed, and what it calls.
xl_prepare() {
	mkdir "$dir/bin"
	sed "s|@BINDIR@|$dir/bin|" tools/block-ringback \
	    >"$dir/bin/block-ringback"
	cat >"$dir/bin/ringback" <<-END
		#!/bin/sh
		LD_LIBRARY_PATH='$LD_LIBRARY_PATH'
		export LD_LIBRARY_PATH
		exec '$O/ringback' --run-dir '$dir/run' "\$@"
	END
	chmod +x "$dir/bin/ringback"
}

# xl_nodes N DEVID PARAMS [cdrom]: what libxl writes, in one transaction
xl_nodes() {
	b=$(be "$1" "$2" "$XL_KIND") f=$(fe "$1" "$2")
	l=/libxl/$1/device/vbd/$2 type=${4-disk} mode=w removable=0
	[ "$type" = disk ] || mode=r removable=1
	case $XL_KIND in
	vbd)	backend=phy params=$3 ;;
	*)	backend=$XL_KIND params=aio:$3 ;;
	esac
	xenstore-write \
	    "$l/frontend" "$f" "$l/backend" "$b" \
	    "$f/backend" "$b" "$f/backend-id" 0 "$f/state" 1 \
	    "$f/virtual-device" "$2" "$f/device-type" "$type" "$f/trusted" 1 \
	    "$b/frontend" "$f" "$b/params" "$params" \
	    "$b/script" "$dir/bin/block-ringback" "$b/frontend-id" "$1" \
	    "$b/online" 1 "$b/removable" $removable "$b/bootable" 1 "$b/state" 1 \
	    "$b/dev" xvda "$b/type" "$backend" "$b/mode" $mode "$b/device-type" "$type" \
	    "$b/discard-enable" 1 "$b/specification" xen
}

# xl_script add|remove N DEVID
xl_script() {
	env -i PATH=/usr/bin:/bin XENBUS_TYPE="$XL_KIND" \
	    XENBUS_PATH="backend/$XL_KIND/$2/$3" XENBUS_BASE_PATH=backend \
	    script="$dir/bin/block-ringback" \
	    sh "$dir/bin/block-ringback" "$1"
}

state_is() {
	[ "$(xenstore-read "$1/state" 2>/dev/null)" = "$2" ]
}

xl_remove() {
	xenstore-rm "$(be "$1" "$2" "$XL_KIND")" "$(fe "$1" "$2")" \
	    "/libxl/$1/device/vbd/$2"
}

xl_attach() {
	xl_nodes "$1" "$2" "$3"
	wait_until 10 state_is "$(be "$1" "$2" "$XL_KIND")" 2 || {
		xenstore-ls "$(be "$1" "$2" "$XL_KIND")"
		return 1
	}
	xl_script add "$1" "$2"
}

xl_detach() {
	xenstore-write "$(be "$1" "$2" "$XL_KIND")/online" 0 \
	    "$(be "$1" "$2" "$XL_KIND")/state" 5
	wait_until 10 state_is "$(be "$1" "$2" "$XL_KIND")" 6 || return 1
	xl_script remove "$1" "$2"
	xl_remove "$1" "$2"
}

# ---- what came out ---------------------------------------------------------------

ok() {
	passed=$((passed + 1))
	say "ok $1"
}

bad() {
	failed=$((failed + 1))
	say "FAIL $1"
	shift
	[ -z "$*" ] || say "$*" | tail -20 | sed 's/^/    /'
}

check() {
	name=$1
	shift
	if out=$("$@" 2>&1); then
		ok "$name"
	else
		bad "$name" "$out"
	fi
}

refuse() {
	name=$1
	shift
	if out=$("$@" 2>&1); then
		bad "$name" "it succeeded: $out"
	else
		ok "$name"
	fi
}

# number KEY FILE: the first number of that name in a JSON text
number() {
	grep -o "\"$1\": *-*[0-9.]*" "$2" | head -1 | sed 's/.*: *//'
}

# at_most WHAT IS LIMIT, at_least WHAT IS LIMIT: numbers with a fraction
at_most() {
	if awk "BEGIN { exit !(\"$2\" != \"\" && $2 + 0 <= $3) }"; then
		ok "$1: $2 <= $3"
	else
		bad "$1: ${2:-nothing}, not <= $3"
	fi
}

at_least() {
	if awk "BEGIN { exit !(\"$2\" != \"\" && $2 + 0 >= $3) }"; then
		ok "$1: $2 >= $3"
	else
		bad "$1: ${2:-nothing}, not >= $3"
	fi
}

summary() {
	say "$passed passed, $failed failed"
	[ "$failed" -eq 0 ]
}
