#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# bench_qcow2: what the format costs: qcow2 against raw, allocating writes
# against rewriting, and against QEMU's qcow2.
#
#   tests/bench_qcow2.sh [FOLDER ...]
#
# A guest does I/O through ringbackd, and through QEMU's xen-block where it is
# found (QEMU=PROGRAM; Debian: qemu-system-xen), to images in each FOLDER
# (/dev/shm, and the build's output folder).  The two sides of a line take
# turns; a line is the median of each side, and of the ratios of the repeats
# with the 95 % interval of that median, held against a figure, if it has one:
#
#   ok         the whole interval is at or above the figure
#   missed     the whole interval is below it
#   undecided  the noise allows no verdict
#
# REPEATS (9), RUNTIME (1, seconds of a turn), IOS (32768, writes of a turn
# that allocates), MAPPED (1024, MiB) and ONLY (a part of the names of the lines
# to measure) may be given; REALTIME=1 keeps a busy machine's other processes
# off the CPUs.  Exit status 1: something was missed.
# shellcheck disable=SC2086,SC2317,SC2015 # lists of words; called by name
set -u
. tests/machine.sh
. tests/peers.sh
repeats=${REPEATS:-9} runtime=${RUNTIME:-1} ios=${IOS:-32768}
mapped=${MAPPED:-1024} only=${ONLY:-}
export MALLOC_ARENA_MAX=2
missed=0 work=''

# ---- a table -------------------------------------------------------------------

row() {
	printf '%-34s %11s %11s  %6s  %-15s %6s  %s\n' "$@"
}

# fold FILE: "median low high" of its numbers, the 95 % interval by ranks
fold() {
	sort -n "$1" | awk '{ v[NR] = $1 }
	END {
		n = NR
		p = 1
		for (i = 0; i < n; i++)
			p /= 2
		sum = 0
		for (k = 0; sum + p <= 0.025 && k < n / 2; k++) {
			sum += p
			p = p * (n - k) / (k + 1)
		}
		if (k < 1)
			k = 1
		m = int((n + 1) / 2)
		print (n % 2 ? v[m] : (v[m] + v[m + 1]) / 2), v[k],
		    v[n + 1 - k]
	}'
}

# tell NAME FIGURE: a line of $work/a, b and ratio
tell() {
	# shellcheck disable=SC2046 # words
	set -- "$1" "$2" $(fold "$work/ratio") $(fold "$work/a") \
	    $(fold "$work/b")
	verdict=$(awk "BEGIN { if ($2 == 0) print \"\"
	    else if ($4 >= $2) print \"ok\"
	    else if ($5 < $2) print \"missed\"
	    else print \"undecided\" }")
	[ "$verdict" != missed ] || missed=1
	row "$1" "$(printf %.0f "$6")" "$(printf %.0f "$9")" \
	    "$(printf %.3f "$3")" "$(printf '%.3f ... %.3f' "$4" "$5")" \
	    "$([ "$2" = 0 ] || echo ">= $2")" "$verdict"
}

# value NAME IS OP FIGURE
value() {
	if awk "BEGIN { exit !($2 $3 $4) }"; then
		verdict=ok
	else
		verdict=missed missed=1
	fi
	row "$1" "$2" '' '' '' "$3 $4" "$verdict"
}

wanted() {
	case $1 in
	*"$only"*)	return 0 ;;
	esac
	return 1
}

# compare NAME FIGURE A B: A and B are commands that print a rate; the number of
# the repeat is their argument.  They take turns in being the first.
compare() {
	wanted "$1" || return 0
	rm -f "$work/a" "$work/b" "$work/ratio"
	i=1
	while [ $i -le "$repeats" ]; do
		if [ $((i % 2)) -eq 1 ]; then
			a=$($3 $i) && b=$($4 $i) || fatal "$1"
		else
			b=$($4 $i) && a=$($3 $i) || fatal "$1"
		fi
		note "$1" "$a" "$b"
		i=$((i + 1))
	done
	tell "$1" "$2"
}

note() {
	awk "BEGIN { exit !(\"$2\" > 0 && \"$3\" > 0) }" || fatal "$1: no rate"
	echo "$2" >>"$work/a"
	echo "$3" >>"$work/b"
	awk "BEGIN { print $2 / $3 }" >>"$work/ratio"
}

fatal() {
	say "$*: failed" >&2
	tail -n 5 "$dir/err" >&2
	tail -n 5 "$dir/ringbackd.log" >&2
	exit 1
}

# ---- disks ---------------------------------------------------------------------

# rate N DISK OPTIONS: guest I/Os in a second
rate() {
	n=$1 disk=$2
	shift 2
	guest "$n" io "$disk" --json "$@" >"$dir/io.json" 2>"$dir/err" ||
	    return 1
	grep -o '"iops": [0-9.]*' "$dir/io.json" | head -2 |
	    awk '{ n += $2 } END { print n }'
}

create() {
	rm -f "$work/$1"
	shift_name=$1
	shift
	qemu-img create -q -f qcow2 "$@" "$work/$shift_name" "$size" \
	    >"$dir/err" 2>&1 || fatal "create $shift_name"
}

attach() {
	rb attach guest-7 "$1" "$2" >"$dir/err" 2>&1 || fatal "attach $2"
}

detach() {
	rb detach guest-7 "$1" >"$dir/err" 2>&1 || fatal "detach $1"
}

stat_of() {
	rb --json stats guest-7 "$1" >"$dir/stats" 2>"$dir/err" || return 1
	number "$2" "$dir/stats"
}

# The process of the disk with that number.
process_of() {
	disk_processes | sed -n "s/^\([0-9]*\) .*disk 7.$1 .*/\1/p"
}

# ---- mapped ----------------------------------------------------------------------

raw_turn() {
	rate 7 xvda $turn --time "$runtime" --seed "$1"
}

qcow2_turn() {
	rate 7 xvdb $turn --time "$runtime" --seed "$1"
}

# fill DISK: every cluster holds data of its own
fill() {
	guest 7 io "$1" --rw write --bs 1m --depth 4 >"$dir/err" 2>&1 ||
	    fatal "fill $1"
}

mapped_lines() {
	wanted 'mapped/raw 4k random read' || wanted 'mapped/raw 1m seq read' ||
	    wanted 'mapped/raw 4k random write' ||
	    wanted 'mapped/raw 1m seq write' || return 0
	size=${mapped}M
	rm -f "$work/a.raw"
	truncate -s "$size" "$work/a.raw" || fatal truncate
	create b.qcow2 -o preallocation=metadata
	attach xvda "raw:$work/a.raw"
	attach xvdb "qcow2:$work/b.qcow2"
	fill xvda
	fill xvdb
	for rw in read write; do
		turn="--rw rand$rw --bs 4k --depth 32"
		compare "mapped/raw 4k random $rw" 0.95 qcow2_turn raw_turn
		turn="--rw $rw --bs 1m --depth 8"
		compare "mapped/raw 1m seq $rw" 0.97 qcow2_turn raw_turn
	done
	detach xvda
	detach xvdb
	rm -f "$work/a.raw" "$work/b.qcow2"
}

# ---- first writes ------------------------------------------------------------------

# first_turn NUMBER: a fresh image; first writes, then the same again.  Leaves
# $first, $again, and what the first ones cost.
first_turn() {
	fresh
	attach xvdc "qcow2:$work/c.qcow2"
	first=$(rate 7 xvdc $turn --ios "$count" --seed "$1") ||
	    fatal "first writes"
	guest 7 io xvdc --op 3 --ios 1 >"$dir/err" 2>&1 || fatal flush
	writes=$(stat_of xvdc metadata-writes)
	bytes=$(awk '/^write_bytes/ { print $2 }' \
	    "/proc/$(process_of 51744)/io")
	again=$(rate 7 xvdc $turn --ios "$count" --seed "$1") ||
	    fatal "writes again"
	detach xvdc
}

# first_line NAME FIGURE: first writes against the same again
first_line() {
	wanted "$1" || return 0
	rm -f "$work/a" "$work/b" "$work/ratio"
	i=1
	while [ $i -le "$repeats" ]; do
		first_turn $i
		note "$1" "$first" "$again"
		i=$((i + 1))
	done
	tell "$1" "$2"
}

fresh() {
	create c.qcow2 $options
}

per_write() {
	awk "BEGIN { printf \"%.4f\", $1 / $count }"
}

first_lines() {
	size=16G options=
	turn='--rw randwrite --bs 4k --depth 32 --size 16G' count=$ios
	first_line 'first/again 4k random' 0.8
	! wanted 'first/again 4k random' ||
	    value '  metadata writes per write' "$(per_write "$writes")" '<=' 1
	turn='--rw write --bs 64k --depth 32' count=$((ios / 2))
	first_line 'first/again 64k seq' 0.8
	turn='--rw write --bs 4k --depth 32' count=$ios
	first_line 'first/again 4k seq' 0
	! wanted 'first/again 4k seq' ||
	    value '  metadata writes per write' "$(per_write "$writes")" \
		'<=' 0.02
	options=
	turn='--rw randwrite --bs 4k --depth 32 --size 16G' count=$ios
	compare 'first, qcow2/raw 4k random' 0 ours_turn sparse_turn
	turn='--rw write --bs 64k --depth 32' count=$((ios / 2))
	compare 'first, qcow2/raw 64k seq' 0 ours_turn sparse_turn
	overlay_lines
	rm -f "$work/c.qcow2" "$work/a.raw"
}

# What the file system makes of first writes, without a format.
sparse_turn() {
	rm -f "$work/a.raw"
	truncate -s "$size" "$work/a.raw" || fatal truncate
	attach xvda "raw:$work/a.raw"
	rate 7 xvda $turn --ios "$count" --seed "$1" || fatal "raw's writes"
	detach xvda
}

# Subclusters of the size of a write: nothing is to be copied from below.
overlay_lines() {
	wanted 'overlay first/again 4k random' || return 0
	size=4G
	rm -f "$work/base.raw"
	dd if=/dev/urandom of="$work/base.raw" bs=1M count=256 2>/dev/null &&
	    truncate -s 4G "$work/base.raw" || fatal base
	options="-b base.raw -F raw -o extended_l2=on,cluster_size=128k"
	turn='--rw randwrite --bs 4k --depth 32 --size 256m' count=$((ios / 4))
	first_line 'overlay first/again 4k random' 0.6
	case $kind in
	tmpfs)	say "  bytes written: tmpfs does not count them" ;;
	*)	value '  bytes written per byte' "$(awk "BEGIN {
		    printf \"%.3f\", $bytes / ($count * 4096) }")" '<=' 1.5 ;;
	esac
	rm -f "$work/base.raw"
}

# ---- QEMU ----------------------------------------------------------------------------

# Debian's has no libaio and refuses direct I/O with it, so it writes into the
# page cache: a flush at the end counts for both.
qemu_turn() {
	create d.qcow2
	qemu_attach 9 xvda "qcow2:$work/d.qcow2" || fatal "attach to QEMU"
	rate 9 xvda $turn --ios "$count" --seed "$1" || fatal "QEMU's writes"
	qemu_detach 9 xvda
}

ours_turn() {
	create c.qcow2
	attach xvdc "qcow2:$work/c.qcow2"
	rate 7 xvdc $turn --ios "$count" --seed "$1" || fatal "our writes"
	detach xvdc
}

qemu_lines() {
	wanted 'first, ours/QEMU 4k random' ||
	    wanted 'first, ours/QEMU 64k seq' || return 0
	if [ -z "$qemu" ]; then
		say "QEMU: no xen-qemu-system-i386 (package qemu-system-xen)"
		return
	fi
	size=16G
	turn="--rw randwrite --bs 4k --depth 32 --size 16G --flush-every $ios"
	count=$ios
	compare 'first, ours/QEMU 4k random' 2 ours_turn qemu_turn
	count=$((ios / 2))
	turn="--rw write --bs 64k --depth 32 --flush-every $count"
	compare 'first, ours/QEMU 64k seq' 2 ours_turn qemu_turn
	rm -f "$work/c.qcow2" "$work/d.qcow2"
}

# ---- large ones ------------------------------------------------------------------------

milliseconds() {
	echo $(($(date +%s%N) / 1000000))
}

# attach_ms SPEC: from the question to a disk that the guest has connected to
attach_ms() {
	t=$(milliseconds)
	attach xvdc "$1"
	t=$(($(milliseconds) - t))
	detach xvdc
	echo $t
}

# The process, the sandbox and the guest take their time with raw as well.
open_line() {
	wanted '64 TiB: ms to open more than raw' || return 0
	size=64T
	create c.qcow2
	truncate -s 1G "$work/a.raw" || fatal truncate
	i=1
	rm -f "$work/a" "$work/b"
	while [ $i -le "$repeats" ]; do
		a=$(attach_ms "qcow2:$work/c.qcow2") &&
		    b=$(attach_ms "raw:$work/a.raw") || exit 1
		echo "$a" >>"$work/a"
		echo $((a - b)) >>"$work/b"
		i=$((i + 1))
	done
	# shellcheck disable=SC2046 # words
	set -- $(fold "$work/a") $(fold "$work/b")
	value '64 TiB: ms to open more than raw' "$4" '<=' 50
	say "  (attach to connected: $1 ms)"
	rm -f "$work/c.qcow2" "$work/a.raw"
}

# Without what loopxen plays, and without the code, which others may share.
memory_line() {
	wanted '100 GiB: memory and page file, MiB' || return 0
	size=100G
	create c.qcow2
	attach xvdc "qcow2:$work/c.qcow2"
	for rw in randread randwrite; do
		guest 7 io xvdc --rw $rw --bs 4k --depth 32 --ios 50000 \
		    >"$dir/err" 2>&1 || fatal "$rw all over it"
	done
	private=$(awk '/^[0-9a-f]+-[0-9a-f]+ / {
		mine = $6 !~ /loopxen|memfd|\.page$/ }
	    mine && /^Private_Dirty/ { n += $2 }
	    END { print n }' "/proc/$(process_of 51744)/smaps")
	page=$(du -k "$dir/run/7-51744.page" | sed 's/[^0-9].*//')
	value '100 GiB: memory and page file, MiB' "$(awk "BEGIN {
	    printf \"%.1f\", ($private + $page) / 1024 }")" '<=' 24
	detach xvdc
	rm -f "$work/c.qcow2"
}

# ---- all of it ---------------------------------------------------------------------------

finish() {
	peers_end
	[ -z "$work" ] || rm -rf "$work"
	machine_stop
}

# Whoever else is busy is to disturb little; all that follows inherits it.
if [ -n "${REALTIME-}" ]; then
	chrt -f -p 1 $$ || exit 1
else
	renice -n -15 -p $$ >/dev/null 2>&1 ||
	    say "the priority cannot be raised"
fi
qemu_find
machine_start
trap finish EXIT
guest_start 7 --ring-order 4 || exit 1
"$O/loopfront" domain --domid 9 --name guest-9 --background \
    --ring-order 4 --socket "$dir/guest-9.sock" >/dev/null \
    2>"$dir/guest-9.err" || exit 1
[ $# -gt 0 ] || set -- /dev/shm "$O"
say "tests/bench_qcow2.sh: REPEATS=$repeats RUNTIME=$runtime IOS=$ios" \
    "MAPPED=$mapped REALTIME=${REALTIME-}"
say "$(nproc) CPUs ($(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1))," \
    "Linux $(uname -r), load $(cut -d' ' -f1-3 /proc/loadavg); loopxen," \
    "rings of 16 pages, rates are guest I/Os in a second"
for folder; do
	work=$(mktemp -d "$folder/bench.XXXXXX") || exit 1
	chmod 755 "$work"
	kind=$(stat -f -c %T "$work")
	say ""
	row "$kind, $folder" a b a/b '95 %' figure ''
	mapped_lines
	first_lines
	qemu_lines
	open_line
	memory_line
	rm -rf "$work"
	work=
done
exit $missed
