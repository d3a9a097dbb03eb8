# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh
#
# peers: other block backends in a machine of tests/machine.sh, which has to be
# sourced before.
#
#   qemu_find                   sets $qemu to QEMU=PROGRAM or Debian's (package
#                               qemu-system-xen), or to nothing
#   qemu_native                 can it do native asynchronous I/O?
#   qemu_attach N VDEV PARAMS   a process for domain N, $qemu_pid, and a disk of
#                               it (xvda ... xvdz): aio:FILE (raw) or qcow2:FILE
#   qemu_detach N VDEV
#   tapdisk_find                1: TAPDISK=FOLDER does not name one in which
#                               blktap is built or installed
#   tapdisk_attach N VDEV SPEC  a process for a disk, $tapdisk_pid: aio:FILE
#                               or vhd:FILE; it polls as under XenServer
#   tapdisk_detach N VDEV
#   peers_end                   ends what runs, whatever state it is in
#
# Each of the two serves one disk at a time.  An attach returns when the guest
# has connected.
# shellcheck disable=SC2154 # dir is machine.sh's
qemu=${QEMU-} qemu_pid=''
tapdisk_pid='' tapback_pid='' tap_minor='' tap_page='' tap_made=''
tap_run=/run/blktap-control	# in their programs, all of them

# peer_be KIND N VDEV, peer_fe N VDEV: the paths
peer_be() {
	be "$2" "$(devid_of "$3")" "$1"
}

peer_fe() {
	fe "$1" "$(devid_of "$2")"
}

# devid_of xvdb
devid_of() {
	echo $((51712 + 16 * ($(printf %d "'${1#xvd}") - 97)))
}

# peer_write KIND N VDEV [PATH VALUE ...]: what a toolstack writes for a disk,
# and more of it
peer_write() {
	b=$(peer_be "$@") f=$(peer_fe "$2" "$3") kind=$1 n=$2 vdev=$3
	shift 3
	xenstore-write "$f/backend" "$b" "$f/backend-id" 0 "$f/state" 1 \
	    "$f/virtual-device" "$(devid_of "$vdev")" "$f/device-type" disk \
	    "$b/frontend" "$f" "$b/frontend-id" "$n" "$b/online" 1 \
	    "$b/removable" 0 "$b/bootable" 1 "$b/state" 1 "$b/dev" "$vdev" \
	    "$b/type" "$kind" "$b/mode" w "$b/device-type" disk "$@"
}

# peer_close KIND N VDEV: as a toolstack takes a disk away
peer_close() {
	b=$(peer_be "$@") f=$(peer_fe "$2" "$3")
	xenstore-write "$b/online" 0 "$b/state" 5
	guest "$2" close "$3" >>"$dir/peers.log" 2>&1
	# Those who are told of the end must still find the nodes.
	sleep 0.3
	xenstore-rm "$b" "$f"
}

# peer_kill PID: and wait for its end
peer_kill() {
	[ -n "$1" ] || return 0
	kill "$1" 2>/dev/null
	wait_until 3 peer_gone "$1" || kill -KILL "$1" 2>/dev/null
	wait "$1" 2>/dev/null
}

# One that ended and was not waited for is gone as well.
peer_gone() {
	case $(sed -n 's/^State:[[:space:]]*//p' "/proc/$1/status" \
	    2>/dev/null) in
	'' | Z*)	return 0 ;;
	esac
	return 1
}

# ---- QEMU ----------------------------------------------------------------------

qemu_find() {
	for q in /usr/libexec/xen-qemu-system-i386 \
	    /usr/lib/xen/bin/qemu-system-i386; do
		[ -n "$qemu" ] || [ ! -x $q ] || qemu=$q
	done
}

qemu_native() {
	ldd "$qemu" | grep -q libaio
}

# Without direct-io-safe it uses the page cache and a pool of threads; with it,
# O_DIRECT and libaio, or nothing if it has no libaio.
qemu_attach() {
	"$qemu" -xen-domid "$1" -xen-attach -name "guest-$1" -M xenpv -m 32 \
	    -nodefaults -no-user-config -display none -monitor none \
	    -serial none >>"$dir/peers.log" 2>&1 </dev/null &
	qemu_pid=$!
	b=$(peer_be qdisk "$1" "$2")
	if qemu_native; then
		set -- "$1" "$2" "$b/params" "$3" "$b/direct-io-safe" 1
	else
		set -- "$1" "$2" "$b/params" "$3"
	fi
	peer_write qdisk "$@" "$b/discard-enable" 1 &&
	    guest "$1" wait "$2" --wait 20 2>>"$dir/peers.log"
}

# 7.2 does not survive the end of a qcow2 disk: a process for each connection.
qemu_detach() {
	peer_close qdisk "$1" "$2"
	peer_kill "$qemu_pid"
	qemu_pid=
}

# ---- tapdisk -------------------------------------------------------------------

# As installed below a prefix, or as built in its source.
tapdisk_find() {
	t=${TAPDISK-}
	if [ -x "$t/libexec/tapdisk" ]; then
		tapdisk=$t/libexec/tapdisk tap_ctl=$t/sbin/tap-ctl \
		    tapback=$t/bin/tapback
	else
		tapdisk=$t/drivers/tapdisk tap_ctl=$t/control/tap-ctl \
		    tapback=$t/tapback/tapback
	fi
	[ -n "$t" ] && [ -x "$tapdisk" ] && [ -x "$tap_ctl" ] &&
	    [ -x "$tapback" ]
}

# What its programs make and leave there.
tap_folders() {
	for left in "$tap_run/tapdisk" "$tap_run" /dev/shm/metrics; do
		[ -d "$left" ] || tap_made="$tap_made $left"
	done
}

# What cpumond of XenServer tells: two floats, the host's CPUs are 0.0 percent
# busy, 100.0 idle.  Without it tapdisk does not poll.
tap_idle_page() {
	[ ! -e /dev/shm/cpu_util_monitor ] || return 0
	tap_page=/dev/shm/cpu_util_monitor
	printf '\0\0\0\0\0\0\310\102' >"$tap_page"
}

tap_ctl() {
	"$tap_ctl" "$@" >>"$dir/peers.log" 2>&1
}

# The image is open after that; no guest is needed.
tapdisk_open() {
	tap_name=$("$tap_ctl" allocate) || return 1
	tap_minor=${tap_name##*-}
	LD_PRELOAD="$O/loopxen/gntdev.so" "$tapdisk" -D \
	    >>"$dir/peers.log" 2>&1 </dev/null &
	tapdisk_pid=$!
	wait_until 5 test -S "$tap_run/ctl$tapdisk_pid" &&
	    tap_ctl attach -p "$tapdisk_pid" -m "$tap_minor" &&
	    tap_ctl open -p "$tapdisk_pid" -m "$tap_minor" -a "$1"
}

# tapback serves a domain whose nodes are there when it starts.  It looks at
# one of the last two nodes only when the other has been there before.
tapdisk_attach() {
	tap_domid=$1 tap_devid=$(devid_of "$2")
	tap_folders
	tap_idle_page
	tapdisk_open "$3" || return 1
	b=$(peer_be tap "$1" "$2")
	peer_write tap "$1" "$2" "$b/polling-duration" 8000 \
	    "$b/polling-idle-threshold" 50 || return 1
	LD_PRELOAD="$O/loopxen/gntdev.so" "$tapback" -d -n tap -x "$1" \
	    >>"$dir/peers.log" 2>&1 </dev/null &
	tapback_pid=$!
	wait_until 5 xenstore-read "$b/max-ring-page-order" || return 1
	xenstore-write "$b/physical-device-path" \
	    "$tap_run/nbd$tapdisk_pid.$tap_minor"
	wait_until 5 xenstore-read "$b/kthread-pid" || return 1
	xenstore-write "$b/hotplug-status" connected
	guest "$1" wait "$2" --wait 10 2>>"$dir/peers.log"
}

tapdisk_detach() {
	peer_close tap "$1" "$2"
	tapdisk_end
}

# tapdisk ends when its last image is closed; tapback when it is told to, once
# it has no disk.
tapdisk_end() {
	if [ -n "$tapdisk_pid" ] && ! peer_gone "$tapdisk_pid"; then
		tap_ctl close -p "$tapdisk_pid" -m "$tap_minor"
		tap_ctl detach -p "$tapdisk_pid" -m "$tap_minor"
		wait_until 2 peer_gone "$tapdisk_pid"
	fi
	peer_kill "$tapdisk_pid"
	peer_kill "$tapback_pid"
	[ -z "$tapdisk_pid" ] || tapdisk_clean
	[ -z "$tap_page" ] || rm -f "$tap_page"
	# shellcheck disable=SC2086 # a list
	[ -z "$tap_made" ] || rmdir $tap_made 2>/dev/null
	tapdisk_pid='' tapback_pid='' tap_minor='' tap_page='' tap_made=''
}

# What they leave when they are killed.
tapdisk_clean() {
	for left in ctl nbdclient; do
		rm -f "$tap_run/$left$tapdisk_pid"
	done
	for left in nbd nbd-old nbdserver nbdserver-new; do
		rm -f "$tap_run/$left$tapdisk_pid.$tap_minor"
	done
	rm -f "$tap_name" "/dev/shm/metrics/tap-$tapdisk_pid-$tap_minor" \
	    "/run/tapback.$tap_domid"
	rm -rf "/dev/shm/td3-$tapdisk_pid" "/dev/shm/vbd3-$tap_domid-$tap_devid"
}

peers_end() {
	peer_kill "$qemu_pid"
	tapdisk_end
	qemu_pid=
}
