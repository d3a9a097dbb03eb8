# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# What happens to a domain, in xl's words, with disks of ours, one after the
# other in one guest: a bad image, create, block-attach, block-list,
# block-detach idle and under load, pause, save, restore, reboot, destroy under
# load; in another one GRUB, which reads Linux from the disk.  Each ends in time
# and leaves nothing.
. /xenbed/lib.sh
. /xenbed/scenarios/ringback-lib.sh
HERE=/xenbed/scenarios
GRUB=/usr/lib/grub-xen/grub-x86_64-xen.bin
LIMIT=${LIMIT:-20}	# seconds for what waits for us
LONG=${LONG:-120}	# for what moves a guest's memory

xl_in_time() { timeout "$LIMIT" xl "$@"; }

disk() {
	echo "vdev=$1,backendtype=$BACKENDTYPE,format=raw,script=block-ringback,target=$2"
}

# locked IMAGE: does anybody hold a lock on it?
locked() { grep ":$(stat -c %i "$1") " /proc/locks; }

# gone VDEV IMAGE: it has left nothing
gone() {
	check "$1 has left no node" is_empty "$(nodes_of "$1")"
	check "$1 has left no process" wait_for 5 has_processes "$PROCESSES"
	check "$2 is not locked" is_empty "$(locked "$2")"
}

owned() { has_processes $((PROCESSES + 1)) && locked "$1"; }
has_processes() { [ "$(disk_processes | wc -l)" = "$1" ]; }

# initramfs FILE: a small one, because GRUB reads page by page
initramfs() {
	local d; d=$(mktemp -d)
	cat $HERE/raw-guest.sh $HERE/passages-guest.sh > "$d/guest.sh"
	(cd "$d" && echo guest.sh | cpio -o -H newc --quiet) | gzip |
	    cat $GUEST/small.cpio.gz - > "$1"
	rm -rf "$d"
}

# The disk that GRUB reads, and the others.
make_images() {
	local d rc words
	d=$(mktemp -d)
	words=$(sed -n 's/^extra = "\(.*\)"/\1/p' /tmp/g1.cfg)
	mkdir -p "$d/boot/grub" && cp /boot/vmlinuz-* "$d/boot/vmlinuz" &&
	    cp /tmp/g1.initrd "$d/boot/initrd" &&
	    printf 'linux /boot/vmlinuz %s\ninitrd /boot/initrd\nboot\n' \
		"$words" > "$d/boot/grub/grub.cfg" &&
	    mkfs.ext4 -q -d "$d" /srv/a.img 32M &&
	    qemu-img create -q -f qcow2 /srv/b.qcow2 16M &&
	    truncate -s 32M /srv/c.img
	rc=$?
	rm -rf "$d"
	return $rc
}

# through_grub NAME GRUB: the guest's kernel is GRUB, which finds Linux on xvda
through_grub() {
	sed -i "/^ramdisk/d;/^extra/d;s|^kernel.*|kernel = \"$2\"|" \
	    "/tmp/$1.cfg"
}

bad_image() {
	local out rc
	sed "s/^name.*/name = \"bad\"/;s|/srv/a.img|/srv/missing.img|" \
	    /tmp/g1.cfg > /tmp/bad.cfg
	out=$(xl_in_time create /tmp/bad.cfg 2>&1)
	rc=$?
	check "xl create with a missing image fails" fails succeeded $rc "$out"
	check "within $LIMIT s" fails equal $rc 124
	check "xl prints ringback's own line about it" \
	    mentions "$out" 'script: .*/srv/missing.img.*No such file'
	check "no domain is left of it" prints_nothing domains
	check "no node is left of it" is_empty "$(nodes)"
	check "no process is left of it" prints_nothing disk_processes
	check "the other disk is not locked" is_empty "$(locked /srv/b.qcow2)"
}

# from_its_disk NAME GRUB ABIS [KEY=VALUE]: GRUB reads Linux through a frontend
# of its own, in its layout of the ring, and Linux connects after it.
from_its_disk() {
	local name=$1 grub=$2 abis=$3; shift 3
	guest_make "$name" memory=256 "$@" \
	    disk="$(disk xvda raw,cache=writeback:/srv/a.img)"
	through_grub "$name" "$grub"
	guest_boot "$name"
	check "$name: the disk has had two frontends" \
	    equal "$(abis "$name")" "$abis"
	check "$name: Linux finds the kernel's file intact" \
	    equal "$(guest "$name" kernel_sum)" "$KERNEL"
	check "xl destroy $name" xl_in_time destroy "$name"
}

hot() {
	local load
	check "xl block-attach xvdc" xl_in_time block-attach g1 \
	    "$(disk xvdc raw,grants=copy:/srv/c.img)"
	check "g1: xvdc is there" guest g1 \
	    "disk_there xvdc $(($(stat -c %s /srv/c.img) / 512))"
	check "xl block-list: it is connected" \
	    mentions "$(xl block-list g1)" "^$(devid xvdc) .* 4 "
	check "xvdc has a process, and a lock on its image" owned /srv/c.img
	! knows_resize || resized
	check "xl block-detach xvdc, idle" xl_in_time block-detach g1 xvdc
	gone xvdc /srv/c.img
	check "xl block-attach xvdc again" xl_in_time block-attach g1 \
	    "$(disk xvdc raw:/srv/c.img)"
	check "g1: xvdc is there" guest g1 \
	    "disk_there xvdc $(($(stat -c %s /srv/c.img) / 512))"
	guest g1 "load xvdc" > /tmp/load.txt &
	load=$!
	check "g1: xvdc is under load" wait_for 30 writes_more xvdc 100
	check "xl block-detach xvdc, under load" xl_in_time block-detach g1 xvdc
	gone xvdc /srv/c.img
	wait $load
	check "g1: the load has ended with it" \
	    succeeded $? "$(cat /tmp/load.txt)"
	check "g1: xvda is as it was" equal "$(guest g1 kernel_sum)" "$KERNEL"
}

knows_resize() { ringback --help 2>&1 | grep -q '^ *resize '; }

# While it is connected; the rest of it is zeros that can be written.
resized() {
	check "ringback resize xvdc" ringback resize g1 xvdc 40M
	check "g1: xvdc has 40 MiB" guest g1 "disk_there xvdc 81920"
	check "dom0: so has its image" equal "$(stat -c %s /srv/c.img)" \
	    $((40 * 1024 * 1024))
	whole_disk g1 xvdc
	image_holds /srv/c.img
}

writes_more() { [ "$(number g1 "$1" writes)" -gt "$2" ]; }

# The guest looks for it in xenstore.
tell_load_to_end() {
	xenstore-write "/local/domain/$(xl domid g1)/data/end" 1
}

paused_and_saved() {
	local load rc
	guest g1 "patterns xvdb" > /tmp/load.txt &
	load=$!
	check "g1: xvdb is under load" wait_for 60 writes_more xvdb 50
	check "xl pause" xl_in_time pause g1
	sleep 1
	check "xl unpause" xl_in_time unpause g1
	check "xl save" timeout "$LONG" xl save g1 /srv/g1.save
	check "g1 is gone" guest_gone g1
	check "it has left no node" is_empty "$(nodes)"
	check "no process" wait_for 5 has_processes 0
	check "no lock" is_empty "$(locked /srv/a.img; locked /srv/b.qcow2)"
	check "nor a socket or a page file" equal "$(run_files)" "$RUN_FILES"
	check "xl restore" timeout "$LONG" xl restore /srv/g1.save
	rm /srv/g1.save
	check "g1: the load goes on" wait_for 60 writes_more xvdb 50
	check "g1: tell it to end" tell_load_to_end
	wait $load
	rc=$?
	check "g1: each pattern on xvdb was read back, saved and restored meanwhile" \
	    succeeded $rc "$(cat /tmp/load.txt)"
	echo "# $(head -1 /tmp/load.txt) patterns"
	check "g1: xvda is as it was" equal "$(guest g1 kernel_sum)" "$KERNEL"
	check "g1: the kernel saw no disk error" guest g1 no_errors
}

rebooted() {
	check "xl reboot" xl_in_time reboot g1
	need "g1: up again" wait_for 180 guest_booted g1 2
	check "g1: xvda is as it was" equal "$(guest g1 kernel_sum)" "$KERNEL"
}

destroyed() {
	guest g1 "load xvdb" > /dev/null &
	check "g1: xvdb is under load" wait_for 30 writes_more xvdb 100
	check "xl destroy, under load" xl_in_time destroy g1
	check "it has left no node" is_empty "$(nodes)"
	check "no process" wait_for 5 has_processes 0
	check "no lock" is_empty "$(locked /srv/a.img; locked /srv/b.qcow2)"
	check "no domain, which a mapped page would keep" prints_nothing domains
	check "qemu-img finds no error in xvdb" \
	    no_errors_but_leaks /srv/b.qcow2
}

# abis NAME: of the connections of its xvda, in order
abis() {
	grep -o "vbd $(xl domid "$1")/$(devid xvda): connected, [^,]*" "$LOG" |
	    sed 's/.*, //' | xargs
}

# Leaks are the only thing that a death may cost.
no_errors_but_leaks() {
	local rc
	qemu-img check -f qcow2 "$1"
	rc=$?
	[ $rc = 0 ] || [ $rc = 3 ]
}

first_start
guest_make g1 memory=192 reboot=restart \
    disk="$(disk xvda raw,cache=writeback:/srv/a.img)" \
    disk="$(disk xvdb qcow2:/srv/b.qcow2)"
initramfs /tmp/g1.initrd
need "the images" make_images
KERNEL=$(cat /boot/vmlinuz-* | sha256sum | cut -d' ' -f1)
PROCESSES=2
bad_image
guest_boot g1
hot
paused_and_saved
rebooted
destroyed
from_its_disk g2 $GRUB "x86_64-abi x86_64-abi"
nothing_left
verdict
