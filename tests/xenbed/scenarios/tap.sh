# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# backendtype=tap of Xen 4.19 and newer, kind vbd3: a domain whose image is bad,
# a qcow2 and a raw disk from attach to detach, our processes killed under
# writes, save and restore, a reboot, shutdown and destroy; and nothing is left
# behind.
. /xenbed/lib.sh
BACKENDTYPE=tap
. /xenbed/scenarios/ringback-lib.sh
SCRIPT=/tmp/tap-guest.sh

# disk VDEV SPEC
disk() {
	echo "vdev=$1,backendtype=tap,format=raw,script=block-ringback,target=$2"
}

sum() { sha256sum < "$1" | cut -d' ' -f1; }
backend() { echo "/local/domain/0/backend/vbd3/$(xl domid "$1")/$(devid "$2")"; }

# quietly COMMAND...: it succeeds and has nothing to complain of.  xl may go on
# after it has waited in vain, and succeed.
quietly() {
	local from out rc; from=$(date +%s%N)
	out=$("$@" 2>&1)
	rc=$?
	echo "$((($(date +%s%N) - from) / 1000000)) ms, status $rc: $*" \
	    >> /out/times.txt
	echo "$out"
	[ $rc = 0 ] && ! echo "$out" | grep -q -i -E 'error|warn|fail|time'
}

# xl has taken back what it had made of a domain whose disk it could not have.
refused_domain() {
	local out rc
	guest_make g0 disk="$(disk xvda raw:/srv/none.img)"
	out=$(xl create /tmp/g0.cfg 2>&1)
	rc=$?
	echo "$out" > /out/refused-domain.txt
	check "xl create with a missing image fails" \
	    fails succeeded $rc "$out"
	check "xl create prints ringback's own line about it" \
	    mentions "$out" 'script: .*/srv/none.img.*No such file'
	check "g0: no domain is left" wait_for 20 prints_nothing domains
	check "g0: no node is left" wait_for 20 prints_nothing nodes
}

refused_disk() {
	local out rc
	out=$(xl block-attach g1 "$(disk xvdd raw:/srv/none.img)" 2>&1)
	rc=$?
	{ echo "$out"; nodes_of xvdd; } > /out/refused-disk.txt
	check "xl block-attach of a missing image fails" \
	    fails succeeded $rc "$out"
	check "xl block-attach prints ringback's own line about it" \
	    mentions "$out" 'script: .*/srv/none.img.*No such file'
	check "xl block-detach clears the refused disk away" \
	    quietly xl block-detach g1 xvdd
	check "xvdd has left no node" is_empty "$(nodes_of xvdd)"
}

# What makes xl 4.19 and newer another case than xl 4.17.
is_tap() {
	local b; b=$(backend g1 xvda)
	xenstore-ls -f -p > /out/created.xenstore.txt
	check "its kind is vbd3" mentions "$(backend_nodes vbd3)" "^$b/state"
	check "params is what libxl makes of the target" \
	    equal "$(xenstore-read "$b/params")" "aio:qcow2:/srv/a.qcow2"
	check "hotplug-status is connected" \
	    equal "$(xenstore-read "$b/hotplug-status")" connected
	check "QEMU is told of no NBD server" \
	    fails xenstore-read "$b/physical-device-path"
	check "ringback list: the spec is the target" \
	    mentions "$(listed)" 'vbd3 .* qcow2:/srv/a.qcow2'
	check "xl block-list shows the disk, connected" \
	    mentions "$(xl block-list g1)" "^51712 +0 +[0-9]+ +4 .*/vbd3/"
}

# hot VDEV SPEC SECTORS: attached, written, detached
hot() {
	local out rc
	check "xl block-attach $1" \
	    quietly xl block-attach g1 "$(disk "$1" "$2")"
	check "g1: $1 is there, $3 sectors" guest g1 "disk_there $1 $3"
	check "xl block-list shows all disks" \
	    equal "$(xl block-list g1 | grep -c /vbd3/)" 3
	out=$(guest g1 "pattern $1")
	rc=$?
	check "g1: all of $1 written, flushed and read back" \
	    succeeded $rc "$out"
	check "xl block-detach $1" quietly xl block-detach g1 "$1"
	check "$1 has left no node" is_empty "$(nodes_of "$1")"
	check "g1: $1 is gone" guest g1 "[ ! -e /sys/block/$1 ]"
	check "dom0 finds in ${2#*:} what the guest wrote" \
	    equal "$(sum "${2#*:}")" "$(echo "$out" | tail -1)"
}

# fio_starts, fio_ends WHAT: in the guest, which may be another domain by then
fio_starts() {
	local before; before=$(number g1 xvdb writes)
	guest g1 "fio_start xvdb"
	check "g1: fio is at work" wait_for 60 has_written_more "$before"
}

fio_ends() {
	check "g1: fio verifies its blocks, $1 meanwhile" guest g1 fio_end
}

has_written_more() { [ "$(number g1 xvdb writes)" -gt "$1" ]; }
pid_of() { pgrep -f "^ringbackd: disk .*--disk $(xl domid g1)-$(devid "$1") "; }
has_new_pid() { [ -n "$(pid_of "$1")" ] && [ "$(pid_of "$1")" != "$2" ]; }

killed() {
	local pid; pid=$(pid_of xvdb)
	fio_starts
	kill -KILL "$DAEMON"
	{ wait "$DAEMON"; } 2> /dev/null	# the shell's own word on it
	daemon_start
	check "the new ringbackd has adopted the disk process" \
	    equal "$(pid_of xvdb)" "$pid"
	kill -KILL "$pid"
	check "another process serves the disk" \
	    wait_for 20 has_new_pid xvdb "$pid"
	fio_ends "daemon and disk process killed"
}

saved() {
	local before; before=$(xl domid g1)
	fio_starts
	# It warns of the disk that was refused: that stays in its notes.
	check "xl save g1" xl save g1 /tmp/g1.save
	check "g1, saved, has left no node" wait_for 20 prints_nothing nodes
	check "g1, saved, has left no disk process" \
	    wait_for 20 prints_nothing disk_processes
	need "xl restore g1" quietly xl restore /tmp/g1.save
	check "g1 is another domain" fails equal "$(xl domid g1)" "$before"
	fio_ends "saved and restored"
	rm -f /tmp/g1.save
}

cat /xenbed/scenarios/raw-guest.sh /xenbed/scenarios/tap-guest.sh > $SCRIPT
truncate -s 40M /srv/b.img
truncate -s $((2 * 1024 * 1024 + 3 * 512)) /srv/c.img
need "a qcow2 image" qemu-img create -q -f qcow2 /srv/a.qcow2 64M
first_start
refused_domain
guest_make g1 memory=256 reboot=restart script=$SCRIPT \
    disk="$(disk xvda qcow2:/srv/a.qcow2)" disk="$(disk xvdb raw:/srv/b.img)"
guest_boot g1
is_tap
check "g1: a file system with files on xvda" guest g1 "fs_make xvda"
hot xvdc raw:/srv/c.img 4099
refused_disk
killed
saved
check "g1: xvda's files are intact" guest g1 "fs_check xvda"
check "g1: the kernel saw no disk error" guest g1 no_errors
check "xl reboot g1" quietly xl reboot g1
need "g1: up again" wait_for 180 guest_booted g1 2
check "g1: xvda's files survived the reboot" guest g1 "fs_check xvda"
check "g1: the kernel saw no disk error" guest g1 no_errors
check "xl shutdown g1" quietly xl shutdown -w g1
check "g1 has left no node" wait_for 20 prints_nothing nodes
check "qemu-img finds no error in the qcow2 image" \
    qemu-img check -f qcow2 /srv/a.qcow2
# It is xl in the background that removes what has ended.
check "xl complained of nothing" \
    fails grep -i -E 'error|warn|fail|time' /var/log/xen/xl-g1.log*
nothing_left
verdict
