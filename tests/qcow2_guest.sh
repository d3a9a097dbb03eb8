# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh
#
# qcow2_guest: for scripts in which a guest uses qcow2 images.  Sourced after
# machine.sh.
#
# The guest (loopfront) knows what every sector must contain.  qemu-img makes an
# image that holds what the guest remembers, the guest reads it, writes to it and
# reads it again, and at the end qemu-img must find no fault in the image and the
# guest's content in it.  So what either of the two writes is read by the other.

size=12m
seed=1
img=''				# what is attached, to xvda of guest 7
daemon_options="--verbose --max-deaths 0"

if [ "$(id -u)" -ne 0 ]; then
	say "skip a guest with qcow2 images: it needs root"
	exit 77
fi

# leftovers: whatever is there of disks
leftovers() {
	xenstore-ls -f / | grep -E '/backend/[a-z0-9]+/[0-9]+/|/device/vbd/'
	find "$dir/run" -mindepth 1 ! -name control ! -name lock
	disk_processes
	grep -iE 'sanitizer|runtime error' "$dir/ringbackd.log"
}

no_leftovers() {
	[ -z "$(leftovers)" ]
}

nothing_left() {
	wait_until 3 no_leftovers || bad "$1: nothing is left" "$(leftovers)"
}

pid_of() {
	disk_processes | sed 's/ .*//'
}

daemon_restart() {
	kill "$daemon"
	wait "$daemon"
	daemon_start || exit 1
}

# random MAX: from 0 to MAX - 1
random() {
	od -An -N4 -tu4 /dev/urandom | awk "{ print \$1 % $1 }"
}

# attach NAME: the image, to xvda
attach() {
	check "$1: attach" rb attach guest-7 xvda "${spec-qcow2}:$img"
}

detach() {
	check "$1: detach" rb detach guest-7 xvda
	check "$1: the guest let go" guest 7 released xvda
	nothing_left "$1"
}

# io NAME ARGUMENTS: verified, at other places each time
io() {
	io_name=$1
	shift
	seed=$((seed + 1))
	check "$io_name" guest 7 io xvda --verify --zeroed --seed $seed \
	    --stall 20 "$@"
}

# kills_while NAME SECONDS MIN MAX IO...: deaths at any time; no flush but the
# ones asked for
kills_while() {
	kill_name=$1
	"$O/page_poke" - kill "$daemon" "$2" "$3" "$4" "$(random 100000)" \
	    >"$dir/kills" 2>&1 &
	job=$!
	shift 4
	broken=
	while kill -0 $job 2>/dev/null; do
		seed=$((seed + 1))
		if ! guest 7 io xvda --stall 20 --time 0.4 --verify --zeroed \
		    --seed $seed "$@" >"$dir/io" 2>&1; then
			broken=1
			break
		fi
	done
	wait $job
	if [ -n "$broken" ]; then
		bad "$kill_name: the guest sees no error" "$(cat "$dir/io"
		    tail -5 "$dir/ringbackd.log")"
	else
		ok "$kill_name: the guest sees no error"
	fi
	n=$(sed 's/[^0-9].*//' "$dir/kills")
	total=$((total + ${n:-0}))
}

# nothing_known: the guest's next image is empty
nothing_known() {
	guest 7 forget xvda 2>/dev/null
	rm -f "$dir/have.raw"
	truncate -s $size "$dir/have.raw"
}

# no_errors IMAGE [LEAKS]: in the eyes of qemu-img; leaks only where said
no_errors() {
	qemu-img check -f qcow2 "$1"
	status=$?
	[ $status -eq 0 ] || { [ $status -eq 3 ] && [ -n "${2-}" ]; }
}

# same NAME [LEAKS]: guest and qemu-img agree about the image
same() {
	check "$1: qemu-img finds no fault" no_errors "$img" "${2-}"
	check "$1: the guest knows the image" \
	    guest 7 image xvda "$dir/have.raw"
	check "$1: qemu-img finds what the guest wrote" \
	    qemu-img compare -f raw -F qcow2 "$dir/have.raw" "$img"
}

# ---- images -------------------------------------------------------------------------

# new OPTIONS ...: an empty image
new() {
	qemu-img create -q -f qcow2 -o "$1" "$img" "${2-$size}"
}

# copy OPTIONS [-c]: one with what the guest knows, in it
copy() {
	qemu-img convert -f raw -O qcow2 -o "$1" ${2+"$2"} "$dir/have.raw" "$img"
}

# over OPTIONS [SIZE]: ... in the file below it; relative to its own folder
over() {
	mv "$dir/have.raw" "$dir/base.raw"
	qemu-img create -q -f qcow2 -o "$1" -b base.raw -F raw "$img" \
	    "${2-$size}"
}

# chain OPTIONS: what was the image is below it
chain() {
	mv "$img" "$dir/middle.qcow2"
	qemu-img create -q -f qcow2 -o "$1" -b "$dir/middle.qcow2" -F qcow2 \
	    "$img"
}

qcow2_machine() {
	machine_start
	img=$dir/x.qcow2
	guest_start 7 --ring-order 3 --grace 2 || exit 1
}

qcow2_end() {
	check "the guest ends" guest 7 quit
	summary
}
