# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# A Linux guest whose root disk is a qcow2 on a backing file: it lives on it over
# a reboot and a SIGKILL of the disk process, and its file system and, in the
# eyes of qemu-img, the image are whole afterwards.
. /xenbed/lib.sh
. /xenbed/scenarios/ringback-lib.sh
ROOT=/srv/root.qcow2 BASE=/srv/base.qcow2

# The guest's whole system in one image, and an empty one above it.
make_images() {
	local d; d=$(mktemp -d)
	(cd "$d" && cpio -i --quiet < $GUEST/initramfs.cpio && rm -f mod/*) &&
	    cp /xenbed/scenarios/qcow2-guest.sh "$d/guest.sh" &&
	    mkfs.ext4 -q -d "$d" /tmp/base.raw 256M &&
	    qemu-img convert -f raw -O qcow2 /tmp/base.raw $BASE &&
	    qemu-img create -q -f qcow2 -b base.qcow2 -F qcow2 $ROOT
	rc=$?
	rm -rf "$d" /tmp/base.raw
	return $rc
}

written() { number g1 xvda writes; }
has_written_more() { [ "$(written)" -gt "$1" ]; }
checked_at_boot() { grep -c '^ROOT-CHECK 0' "$(guest_log g1)"; }

# What it was told was done survives without a flush; what was in flight is done.
killed_under_fio() {
	local fio rc before pid
	before=$(written) pid=$(disk_pid)
	guest g1 "verified 16k 8m" > /tmp/fio.txt &
	fio=$!
	check "g1: fio is at work" wait_for 60 has_written_more $((before + 50))
	kill -KILL "$pid"
	check "another process serves the disk" wait_for 20 has_other_pid "$pid"
	check "g1: fio is still at work" kill -0 $fio
	wait $fio
	rc=$?
	check "g1: fio verifies its file, the disk process killed meanwhile" \
	    succeeded $rc "$(cat /tmp/fio.txt)"
}

# The metadata of these is not in the image yet, if nobody has asked for it.
killed_after_writing() {
	local pid; pid=$(disk_pid)
	check "g1: more files" guest g1 "files_make more"
	check "g1: and a file that nobody syncs" guest g1 \
	    "dd if=/dev/urandom of=/plain bs=64k count=32 oflag=direct"
	kill -KILL "$pid"
	check "another process serves the disk" wait_for 20 has_other_pid "$pid"
	check "g1: all files are intact" guest g1 \
	    "files_check files && files_check more"
}

lives_on_it() {
	guest_make g1 reboot=restart script=/xenbed/scenarios/qcow2-boot.sh \
	    disk="vdev=xvda,backendtype=$BACKENDTYPE,format=raw,script=block-ringback,target=qcow2:$ROOT"
	guest_boot g1
	check "g1: its root is xvda" guest g1 "root_is xvda"
	check "g1: found a clean file system" equal "$(checked_at_boot)" 1
	check "g1: files" guest g1 "files_make files"
	killed_under_fio
	killed_after_writing
	check "g1: the file system is whole" guest g1 root_settle
	check "g1: the kernel saw no disk error" guest g1 no_errors
	check "xl reboot g1" xl reboot g1
	need "g1: up again" wait_for 180 guest_booted g1 2
	check "g1: found a clean file system again" equal "$(checked_at_boot)" 2
	check "g1: all files survived the reboot" guest g1 \
	    "files_check files && files_check more"
	check "g1: the file system is whole" guest g1 root_settle
	check "g1: the kernel saw no disk error" guest g1 no_errors
	check "xl shutdown g1" xl shutdown -w g1
	check "g1 has left no node" wait_for 20 prints_nothing nodes
}

# Leaks are the only thing that a death may cost.
no_errors_but_leaks() {
	local rc
	qemu-img check -f qcow2 "$1"
	rc=$?
	[ $rc = 0 ] || [ $rc = 3 ]
}

first_start
need "the images" make_images
SUM=$(sha256sum < $BASE)
lives_on_it
check "qemu-img finds no error in the root disk" no_errors_but_leaks $ROOT
check "the backing file is as it was" equal "$(sha256sum < $BASE)" "$SUM"
check "qemu-img reads the root disk" \
    qemu-img convert -f qcow2 -O raw $ROOT /tmp/root.raw
check "dom0 finds a clean file system" e2fsck -f -n /tmp/root.raw
nothing_left
verdict
