#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# bench_grid: Ringback against other block backends, block sizes by depths.
#
#   tests/bench_grid.sh             (make bench)
#
# Starts a machine on loopxen with one guest, gives it a disk of each backend,
# all images of one size and full of data, and has ringback compare take turns
# in them: tests/bench_cell.sh does one run.  The guest stays connected.
#
# The backends: ringbackd; QEMU's xen-block, if found; tapdisk, if TAPDISK says
# where; and the limit: fio (libaio, O_DIRECT) on a file of its own, on tmpfs
# plus the time of one memcpy of the data.  Each polls as it does where it is
# used: Ringback as poll=auto says, tapdisk for 8 ms, QEMU not at all.
#
#   WHERE=tmpfs|disk|both   where the images lie (both): TMPFS=FOLDER (/dev/shm),
#                           DISK=FOLDER ($O)
#   BACKENDS="NAME ..."     of ringback, qemu, tapdisk, limit (all)
#   REPEATS, SECONDS, CELLS, COMPARE    of ringback compare: --repeats (9),
#                           --seconds (0.5), --cells (the grid), more options
#   SPEC=OPTIONS            of Ringback's disk spec ("poll=off,grants=persistent")
#   ALSO="OPTIONS ..."      a disk of Ringback more, and a column, for each word:
#                           with these options instead ("merge=0 merge=64K")
#   RING_ORDER, SEGMENTS    what the guest takes of Ringback's offer (4, and 32 as Linux)
#   PEER_ORDER              ... of the others' rings (3); 11 segments always
#   EQUAL=1                 Ringback, too: ring order 3, 11 segments, grants=copy
#   COSTS=0|xen|CALL,PAGE,EVENT     nanoseconds that a hypercall, each page of it
#                           and an event cost (0; xen: 1500,200,1000)
#   SPIN=off|event|ring     the frontend waits asleep, as Linux does (off), or
#                           spins for the event or on the ring
#   REALTIME=1              SCHED_FIFO, one CPU for the frontend, another for
#                           the backend and fio
#   SIZE                    of an image, MiB (512)
#   QEMU=PROGRAM, TAPDISK=FOLDER    see tests/peers.sh
#
# A table is printed; results go to $O/bench.  Exit status: ringback compare's.
# shellcheck disable=SC2086,SC2154,SC2317,SC3028 # lists; machine.sh's; by name
set -u
. tests/machine.sh
. tests/peers.sh
where=${WHERE:-both} tmpfs=${TMPFS:-/dev/shm} disk=${DISK:-$O}
size=${SIZE:-512}
backends=${BACKENDS:-ringback qemu tapdisk limit}
repeats=${REPEATS:-9} seconds=${SECONDS:-0.5} cells=${CELLS-}
spec=${SPEC-} also=${ALSO-} order=${RING_ORDER:-4} segments=${SEGMENTS:-32}
peer_order=${PEER_ORDER:-3} equal=${EQUAL-} realtime=${REALTIME-}
costs=${COSTS:-0} front=${SPIN:-off}
work='' comparing='' status=0

fatal() {
	say "bench: $*" >&2
	for f in err peers.log ringbackd.log; do
		[ ! -s "$dir/$f" ] || tail -n 4 "$dir/$f" >&2
	done
	exit 1
}

# Before there is anything to clean up.
usage() {
	say "bench: $*" >&2
	exit 2
}

options() {
	case $where in
	tmpfs | disk | both) ;;
	*)	usage "WHERE=$where is not tmpfs, disk or both" ;;
	esac
	case $front in
	off)	BENCH_FRONT= ;;
	event | ring) BENCH_FRONT=--spin=$front ;;
	*)	usage "SPIN=$front is not off, event or ring" ;;
	esac
	case $costs in
	xen)	costs=1500,200,1000 ;;
	0)	costs=0,0,0 ;;
	esac
	case $costs in
	*[!0-9,]* | *,*,*,* | ,* | *, | *,,*) usage "COSTS=$costs" ;;
	*,*,*)	;;
	*)	usage "COSTS=$costs is not 0, xen or CALL,PAGE,EVENT" ;;
	esac
	LOOPXEN_COST_CALL_NS=${costs%%,*} LOOPXEN_COST_NOTIFY_NS=${costs##*,}
	LOOPXEN_COST_SEGMENT_NS=${costs#*,}
	LOOPXEN_COST_SEGMENT_NS=${LOOPXEN_COST_SEGMENT_NS%,*}
	export LOOPXEN_COST_CALL_NS LOOPXEN_COST_SEGMENT_NS \
	    LOOPXEN_COST_NOTIFY_NS BENCH_FRONT
	if [ -n "$equal" ]; then
		order=3 segments=11
		spec=${spec:+$spec,}ring-order=3,segments=11,grants=copy
	fi
	BENCH_FIO=
	if [ -n "$realtime" ]; then
		[ "$(nproc)" -ge 2 ] || usage "REALTIME=1 needs two CPUs"
		BENCH_FIO='taskset -c 1 chrt -f 1'
		$BENCH_FIO true || usage "REALTIME=1: not allowed to"
	fi
	export BENCH_FIO
}

wanted() {
	case " $backends " in
	*" $1 "*)	return 0 ;;
	esac
	return 1
}

# ---- who takes part --------------------------------------------------------------

# The column NAME is measured by bench_cell.sh TARGET; its note.
column() {
	columns="$columns $1"
	set -- "$1" "$2" "$(printf %s "$3" | tr -d "'")"
	compare="$compare --note '$1=$3' '$1=!sh tests/bench_cell.sh $2 {rw}"
	compare="$compare {bs} {qd} {seconds} {verify}'"
}

# The images are alike, down to how they came about: copies of one, full of what
# no storage can do without.  (On tmpfs the one that dd wrote was slower to read
# by an eighth.)
image() {
	[ -e "$work/image" ] ||
	    dd if=/dev/urandom of="$work/image" bs=1M count="$size" \
		2>"$dir/err" || fatal "write $work/image"
	cp --sparse=never --reflink=never "$work/image" "$work/$1" ||
	    fatal "write $work/$1"
	sync "$work/$1"
}

# What the guest says of its ring: "ring order 3, 11 segments, grants copied".
ring_of() {
	guest "$domid" list | sed -n "s/^disk=$1 .*ring-order=\([0-9]*\) .*segments=\
\([0-9]*\) persistent=\([01]\) .*/ring order \1, \2 segments, \3/p" |
	    sed 's/ 0$/ grants copied/; s/ 1$/ persistent grants/'
}

# How the guest is to connect to what is attached next: as Linux does, but with
# rings and requests as large as that.
front() {
	guest "$domid" set --abi x86_64 --persistent --ring-order "$1" \
	    --segments "$2" >"$dir/err" 2>&1 || fatal "tell the guest"
}

# pin CPU PID
pin() {
	[ -n "$realtime" ] || return 0
	{ taskset -a -c -p "$1" "$2" && chrt -a -f -p 1 "$2"; } \
	    >"$dir/err" 2>&1 || fatal "give process $2 a CPU of its own"
}

# What is not said by the options is as it always is; the ring is told apart.
spec_note() {
	how=$1
	for option in cache=none poll=auto; do
		case ,$how in
		*,"${option%=*}="*)	;;
		*)	how=${how:+$how,}$option ;;
		esac
	done
	printf '%s\n' "$how" | tr ',' '\n' |
	    sed '/^ring-order=/d; /^segments=/d; /^grants=/d; s/$/, /' | tr -d '\n'
}

# ringback_disk COLUMN DISK OPTIONS
ringback_disk() {
	image "$1"
	front "$order" "$segments"
	rb attach "guest-$domid" "$2" "raw${3:+,$3}:$work/$1" \
	    >"$dir/err" 2>&1 || fatal "attach a disk of Ringback"
	attached="$attached $2"
	pid=$(disk_processes |
	    sed "/ --disk $domid-$(devid_of "$2") /!d; s/ .*//")
	pin 1 "$pid"
	column "$1" "guest:$2:$pid" "io=native, $(spec_note "$3")$(ring_of "$2")"
}

add_ringback() {
	wanted ringback || return 0
	ringback_disk ringback xvda "$spec"
	letter=e
	for options in $also; do
		ringback_disk "$(printf %s "$options" | tr -c 'a-zA-Z0-9-' -)" \
		    "xvd$letter" "$options"
		letter=$(printf %s "$letter" | tr a-y b-z)
	done
}

add_qemu() {
	wanted qemu || return 0
	if [ ! -x "$qemu" ]; then
		say "qemu: ${qemu:+$qemu }not found (package qemu-system-xen, or QEMU=PROGRAM)"
		return
	fi
	if qemu_native; then
		how="cache=none, aio=native"
	elif [ "$1" = disk ]; then
		say "qemu: $qemu has no libaio; without direct I/O the page" \
		    "cache would be measured, not the disk (QEMU=PROGRAM)"
		return
	else
		how="page cache, threads (it has no libaio)"
	fi
	image qemu
	front "$peer_order" 11
	qemu_attach "$domid" xvdb "aio:$work/qemu" || fatal "attach a disk of QEMU"
	pin 1 "$qemu_pid"
	column qemu "guest:xvdb:$qemu_pid" "$how, $(ring_of xvdb), no polling, \
QEMU $("$qemu" --version | sed -n '1s/.* version \([0-9.]*\).*/\1/p')"
}

add_tapdisk() {
	wanted tapdisk || return 0
	if ! tapdisk_find; then
		say "tapdisk: TAPDISK=${TAPDISK-} is no folder where blktap is" \
		    "built or installed"
		return
	elif [ "$(id -u)" -ne 0 ]; then
		say "tapdisk: only root can start it"
		return
	fi
	image tapdisk
	front "$peer_order" 11
	tapdisk_attach "$domid" xvdc "aio:$work/tapdisk" ||
	    fatal "attach a disk of tapdisk"
	pin 1 "$tapdisk_pid"
	column tapdisk "guest:xvdc:$tapdisk_pid" \
	    "O_DIRECT, libaio, $(ring_of xvdc), polling 8 ms"
}

add_limit() {
	wanted limit || return 0
	image limit
	if [ "$1" = tmpfs ]; then
		column limit "copy:$work/limit" \
		    "fio, O_DIRECT, libaio, and one memcpy of the data"
	else
		column limit "fio:$work/limit" "fio, O_DIRECT, libaio"
	fi
}

detach_all() {
	for vdev in $attached; do
		rb detach "guest-$domid" "$vdev" >"$dir/err" 2>&1 ||
		    fatal "detach a disk of Ringback"
	done
	case $columns in
	*qemu*)	qemu_detach "$domid" xvdb ;;
	esac
	case $columns in
	*tapdisk*)	tapdisk_detach "$domid" xvdc ;;
	esac
}

# ---- the grid --------------------------------------------------------------------

# In the background, so that a signal is heard at once.
run_compare() {
	out=$O/bench/grid-$1
	mkdir -p "$O/bench"
	eval "set -- $compare"
	[ -z "$cells" ] || set -- --cells "$cells" "$@"
	case $columns in
	' '*' '*)	set -- --plot "$out.svg" "$@" ;;
	esac
	"$O/ringback" compare --repeats "$repeats" --seconds "$seconds" \
	    --json "$out.json" ${COMPARE-} "$@" </dev/null &
	comparing=$!
	wait "$comparing" || status=$?
	comparing=
}

# grid tmpfs|disk FOLDER
grid() {
	kind=$(stat -f -c %T "$2") || fatal "$2"
	case $1-$kind in
	disk-tmpfs)
		say "disk: $2 is a tmpfs; name another folder with DISK="
		return ;;
	tmpfs-tmpfs | disk-*) ;;
	*)	say "tmpfs: $2 is none, but $kind"
		return ;;
	esac
	work=$(mktemp -d "$2/bench.XXXXXX") || exit 1
	chmod 755 "$work"	# disk processes have no privileges
	columns='' compare='' attached=''
	# A disk's I/O is ended by kernel workers, whose every wake-up would have
	# to push a spinner aside: half the speed for whoever spins itself.
	BENCH_SPINNERS=
	[ "$1" = disk ] || BENCH_SPINNERS=$spinners
	say ""
	say "$1 ($kind, $2):"
	add_ringback
	add_qemu "$1"
	add_tapdisk
	add_limit "$1"
	rm -f "$work/image"
	[ -n "$columns" ] || fatal "no backend"
	run_compare "$1"
	detach_all
	rm -rf "$work"
	work=
}

finish() {
	[ -z "$comparing" ] || peer_kill "$comparing"
	peers_end
	[ -z "$work" ] || rm -rf "$work"
	machine_stop
}

options
qemu_find
machine_start
trap finish EXIT
spin
kill -STOP $spinners
# Files of tapdisk outside of the machine have the number in their names.
domid=$((100 + $$ % 30000))
BENCH_GUEST=$dir/guest-$domid.sock BENCH_SPINNERS=
export O BENCH_GUEST BENCH_SPINNERS
pid=$("$O/loopfront" domain --domid $domid --name guest-$domid --background \
    --memory 1g --socket "$BENCH_GUEST" 2>"$dir/err") || fatal "start a guest"
pin 0 "$pid"
say "$(nproc) CPUs ($(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1))," \
    "Linux $(uname -r), load $(cut -d' ' -f1-3 /proc/loadavg)"
say "loopxen: a call $LOOPXEN_COST_CALL_NS ns, a page" \
    "$LOOPXEN_COST_SEGMENT_NS ns, an event $LOOPXEN_COST_NOTIFY_NS ns; the" \
    "frontend $([ $front = off ] && echo sleeps || echo "spins ($front)");" \
    "${realtime:+SCHED_FIFO, a CPU each, }idle spinners at depth 1 on tmpfs"
[ "$where" = disk ] || grid tmpfs "$tmpfs"
[ "$where" = tmpfs ] || grid disk "$disk"
exit $status
