# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# Raw disks of Linux guests, from attach to detach: by xl and by ringback, a
# whole disk written and read back, a file system over a reboot, large rings,
# our processes killed under writes, PVH; its pages mapped to stay, or copied; and
# nothing is left behind afterwards.
#
#   BACKEND=blkback   the same against the kernel's backend, on loop devices:
#                     tells a failure of the bed or of the guest from ours
#   BACKENDTYPE=tap   for Xen 4.19 and newer
. /xenbed/lib.sh
. /xenbed/scenarios/ringback-lib.sh
SCRIPT=/xenbed/scenarios/raw-guest.sh

# disk VDEV IMAGE [OPTIONS]: a disk in xl's words
disk() {
	local how="script=block-ringback,target=raw${3:+,$3}:$2"
	ours || how="target=$(losetup -f --show "$2")"
	echo "vdev=$1,backendtype=$BACKENDTYPE,format=raw,$how"
}

by_ringback() {
	check "ringback attach xvdb" \
	    ringback attach g1 xvdb raw,grants=copy:/srv/b.img
	check "g1: xvdb is there, 48 MiB" guest g1 "disk_there xvdb 98304"
	check "ringback list names both disks" \
	    equal "$(listed | grep -o 'xvd[a-z]' | sort -u | xargs)" "xvda xvdb"
	whole_disk g1 xvdb
	check "ringback stats counts the writes" \
	    [ "$(number g1 xvdb write-bytes)" -ge $((48 * 1024 * 1024)) ]
	check "all of it was copied" \
	    [ "$(number g1 xvdb copy-segments)" -ge $((2 * 48 * 256)) ]
	check "no page was mapped" equal "$(number g1 xvdb map-calls)" 0
	check "ringback detach xvdb" ringback detach g1 xvdb
	check "xvdb has left no node" is_empty "$(nodes_of xvdb)"
	check "g1: xvdb is gone" guest g1 "[ ! -e /sys/block/xvdb ]"
	image_holds /srv/b.img
}

# The size is odd: 2 MiB and 3 sectors.
by_xl() {
	check "xl block-attach xvdc" \
	    xl block-attach g1 "$(disk xvdc /srv/c.img)"
	check "g1: xvdc is there, 4099 sectors" guest g1 "disk_there xvdc 4099"
	whole_disk g1 xvdc
	check "xl block-detach xvdc" xl block-detach g1 xvdc
	check "xvdc has left no node" is_empty "$(nodes_of xvdc)"
	check "g1: xvdc is gone" guest g1 "[ ! -e /sys/block/xvdc ]"
	image_holds /srv/c.img
}

# xl leaves the nodes of a disk whose script has failed, and keeps the disk in
# the domain's configuration: without the block-detach no reboot would succeed.
missing_image() {
	local out rc
	out=$(xl block-attach g1 "$(disk xvdd /srv/missing.img)" 2>&1)
	rc=$?
	echo "$out" > /out/missing-image.txt
	check "xl block-attach of a missing image fails" \
	    fails succeeded $rc "$out"
	check "xl prints ringback's own line about it" \
	    mentions "$out" 'script: .*/srv/missing.img.*No such file'
	check "xl block-detach clears the refused disk away" \
	    xl block-detach g1 xvdd
	check "xvdd has left no node" is_empty "$(nodes_of xvdd)"
}

plain_guest() {
	guest_make g1 reboot=restart script=$SCRIPT \
	    disk="$(disk xvda /srv/a.img)"
	guest_boot g1
	check "g1: xvda is there, 64 MiB" guest g1 "disk_there xvda 131072"
	check "g1: a file system with files on xvda" guest g1 "fs_make xvda"
	! ours || by_ringback
	by_xl
	! ours || missing_image
	check "g1: xvda's files are intact" guest g1 "fs_check xvda"
	check "g1: the kernel saw no disk error" guest g1 no_errors
	check "xl reboot g1" xl reboot g1
	need "g1: up again" wait_for 180 guest_booted g1 2
	check "g1: xvda's files survived the reboot" guest g1 "fs_check xvda"
	check "g1: the kernel saw no disk error" guest g1 no_errors
	check "xl shutdown g1" xl shutdown -w g1
	check "g1 has left no node" wait_for 20 prints_nothing nodes
	check "dom0 finds a clean file system" e2fsck -f -n /srv/a.img
}

written() { number g2 xvda writes; }
has_written_more() { [ "$(written)" -gt "$1" ]; }

# under_fio BLOCK_SIZE SIZE KILLED: g2's fio verifies random writes; KILLED is
# killed while it does
under_fio() {
	local fio rc before
	before=$(written)
	guest g2 "verified xvda $1 $2" > /tmp/fio.txt &
	fio=$!
	check "g2: fio is at work" wait_for 60 has_written_more "$before"
	kill_"$3"
	check "g2: fio is still at work" kill -0 $fio
	wait $fio
	rc=$?
	check "g2: fio verifies $1 blocks, the $3 killed meanwhile" \
	    succeeded $rc "$(cat /tmp/fio.txt)"
}

# The disk goes on without the daemon, and the next daemon takes it over.
kill_daemon() {
	local pid; pid=$(disk_pid)
	kill -KILL "$DAEMON"
	{ wait "$DAEMON"; } 2> /dev/null	# the shell's own word on it
	daemon_start
	check "the new ringbackd lists the disk" mentions "$(listed)" xvda
	check "it has adopted the disk process" equal "$(disk_pid)" "$pid"
}

# The guest notices a pause, no error: a new process replays what was in flight.
kill_disk() {
	local pid; pid=$(disk_pid)
	kill -KILL "$pid"
	check "another process serves the disk" wait_for 20 has_other_pid "$pid"
}

# Linux has a queue for each processor; fio is on both.
large_ring_guest() {
	guest_make g2 vcpus=2 script=$SCRIPT \
	    disk="$(disk xvda /srv/b.img iothreads=2)" \
	    cmdline=xen_blkfront.max_ring_page_order=4
	guest_boot g2
	check "g2: a ring has 16 pages" \
	    equal "$(frontend g2 xvda ring-page-order)" 4
	if ours; then
		check "g2: there are 2 rings" \
		    equal "$(frontend g2 xvda multi-queue-num-queues)" 2
		under_fio 4k 16m daemon
		under_fio 256k 24m disk
	else
		check "g2: fio verifies 4k" guest g2 "verified xvda 4k 16m"
		check "g2: fio verifies 256k" guest g2 "verified xvda 256k 24m"
	fi
	whole_disk g2 xvda
	check "g2: the kernel saw no disk error" guest g2 no_errors
	check "xl shutdown g2" xl shutdown -w g2
	check "g2 has left no node" wait_for 20 prints_nothing nodes
	image_holds /srv/b.img
}

# grant_calls NAME VDEV: for data, of any kind
grant_calls() {
	echo $(($(number "$1" "$2" map-calls) + $(number "$1" "$2" unmap-calls) +
	    $(number "$1" "$2" copy-calls)))
}

# The second time all pages are mapped: next to no calls.
stays_mapped() {
	local calls requests
	check "$1: pages of $2 are mapped" [ "$(number "$1" "$2" map-calls)" -gt 0 ]
	calls=$(grant_calls "$1" "$2") requests=$(number "$1" "$2" reqs-answered)
	whole_disk "$1" "$2"
	calls=$(($(grant_calls "$1" "$2") - calls))
	requests=$(($(number "$1" "$2" reqs-answered) - requests))
	echo "# the second time: $calls grant calls, $requests requests"
	check "$1: the second time, 1 grant call for 20 requests at most" \
	    [ $((calls * 20)) -le "$requests" ]
	check "$1: nothing was copied" \
	    equal "$(number "$1" "$2" copy-segments)" 0
}

pvh_guest() {
	guest_make g3 type=pvh script=$SCRIPT \
	    disk="direct-io-safe,$(disk xvda /srv/d.img grants=persistent)"
	guest_boot g3
	whole_disk g3 xvda
	! ours || stays_mapped g3 xvda
	check "g3: the kernel saw no disk error" guest g3 no_errors
	check "xl destroy g3 while its disk is connected" xl destroy g3
	image_holds /srv/d.img
}

truncate -s 64M /srv/a.img
truncate -s 48M /srv/b.img
truncate -s $((2 * 1024 * 1024 + 3 * 512)) /srv/c.img
truncate -s 16M /srv/d.img
if ours; then first_start; else modprobe xen-blkback; fi
plain_guest
large_ring_guest
pvh_guest
nothing_left
verdict
