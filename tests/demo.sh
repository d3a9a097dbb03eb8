#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# demo: Ringback at work, for somebody who looks on.
#
# Everything runs in a private folder and is gone afterwards.  DEMO_SECONDS says
# how long the guest does I/O on the first disk (10).
set -u
. tests/machine.sh
seconds=${DEMO_SECONDS:-10}
qcow2_seconds=$((seconds / 2 + 1))

step() {
	say ""
	say "== $*"
}

# show CMD ...: tell the command, then run it
show() {
	say "   \$ ringback $*"
	rb "$@" 2>&1 | sed 's/^/   /'
}

fatal() {
	say ""
	say "The demo failed: $*"
	[ ! -s "$dir/guest.err" ] || sed 's/^/   /' "$dir/guest.err"
	say "The daemon's last words:"
	tail -10 "$dir/ringbackd.log" | sed 's/^/   /'
	exit 1
}

# One line that changes on a terminal, some lines elsewhere.
progress() {
	while IFS= read -r line; do
		case $line in
		progress*)
			if [ -t 1 ]; then
				printf '\r   %s ' "${line#progress}"
			else
				say "   ${line#progress}"
			fi ;;
		*)	[ ! -t 1 ] || printf '\r%70s\r' ''
			say "   $line" ;;
		esac
	done
}

# guest_io ARGUMENTS: with a progress line; its status is that of the I/O
guest_io() {
	every=3
	[ ! -t 1 ] || every=0.2
	{
		guest 7 io "$@" --progress $every 2>"$dir/guest.err"
		echo $? >"$dir/status"
	} | progress
	return "$(cat "$dir/status")"
}

step "A machine that looks like Xen: the real xenstored, Xen's libraries" \
    "played, and ringbackd"
machine_start
say "   in $dir, ringbackd is process $daemon"

step "A guest, domain 7, that plays Linux's blkfront and checks every byte"
guest_start 7 --abi x86_64 --ring-order 2 || fatal "no guest"
truncate -s 256m "$dir/disk.img" || fatal "no image"

# What every guest starts from, in 64 MiB, and what one guest makes of it.
{
	yes "a file that all guests share" | head -c 67108864 >"$dir/base.raw" &&
	    qemu-img convert -c -f raw -O qcow2 "$dir/base.raw" \
	    "$dir/base.qcow2" &&
	    qemu-img create -q -f qcow2 -b base.qcow2 -F qcow2 \
	    "$dir/disk.qcow2" 128M
} || fatal "no qcow2 image"
base=$(sha256sum <"$dir/base.qcow2")

step "Three disks for it, while it runs: a file, a qcow2 on a compressed" \
    "backing file, and one that only measures"
show attach guest-7 xvda "raw:$dir/disk.img"
show attach guest-7 xvdb "qcow2:$dir/disk.qcow2"
show attach guest-7 xvdc null:1G
for x in xvda xvdb xvdc; do
	guest 7 wait $x 2>"$dir/guest.err" ||
	    fatal "the guest did not connect to $x"
done
show list

step "The guest writes its disk full, 256 MiB in pieces of 1 MiB"
guest_io xvda --rw write --bs 1m --depth 4 --verify --zeroed ||
    fatal "the writes"

step "Reads and writes all over it, 8 KiB each, 16 at a time, with flushes;" \
    "each read is compared ($seconds s)"
guest_io xvda --rw randrw --mix 60 --bs 8k --depth 16 --flush-every 200 \
    --verify --time "$seconds" || fatal "the reads and writes"

step "All of it is read once more and compared"
guest_io xvda --rw read --bs 1m --depth 4 --verify || fatal "the reads"

step "The qcow2: reads and writes all over it, 8 KiB each, 16 at a time, and" \
    "half way its process is killed ($qcow2_seconds s)"
{
	sleep $((qcow2_seconds / 2))
	disk_processes | sed -n 's|^\([0-9]*\) .*disk 7/51728 .*|\1|p' |
	    xargs -r kill -KILL
} &
guest_io xvdb --rw randrw --mix 50 --bs 8k --depth 16 --verify \
    --time "$qcow2_seconds" || fatal "the reads and writes of the qcow2"
wait $!
grep -q 'vbd 7/51728: process [0-9]* goes on' "$dir/ringbackd.log" ||
    fatal "nobody took over from the process that was killed"

step "All of it is read once more and compared"
guest_io xvdb --rw read --bs 1m --depth 4 --verify ||
    fatal "the reads of the qcow2"

step "What a request costs without storage: 4 KiB reads, 32 at a time (3 s)"
guest_io xvdc --rw randread --bs 4k --depth 32 --time 3 ||
    fatal "the reads of xvdc"

step "What ringbackd counted"
show stats guest-7 xvda
show stats guest-7 xvdb
show stats guest-7 xvdc

step "The disks are taken away again"
show detach guest-7 xvda
show detach guest-7 xvdb
show detach guest-7 xvdc
show list
for x in xvda xvdb xvdc; do
	guest 7 released $x 2>"$dir/guest.err" ||
	    fatal "ringbackd kept something of the guest's"
done

step "The qcow2, as qemu-img sees it"
qemu-img check -f qcow2 "$dir/disk.qcow2" >"$dir/check" 2>&1
status=$?
sed 's/^/   /' "$dir/check"
# 3: clusters that nobody uses, which a killed process may leave behind.
[ $status -eq 0 ] || [ $status -eq 3 ] || fatal "qemu-img finds errors"
[ "$base" = "$(sha256sum <"$dir/base.qcow2")" ] ||
    fatal "the backing file has changed"

step "The image, as the guest remembers it and as it lies in the file"
guest 7 image xvda "$dir/remembered" 2>"$dir/guest.err" ||
    fatal "the guest does not know what must be in the image"
guest=$(sha256sum <"$dir/remembered") file=$(sha256sum <"$dir/disk.img")
say "   guest  ${guest%% *}"
say "   file   ${file%% *}"
[ "$guest" = "$file" ] || fatal "the two differ"
guest 7 quit || fatal "the guest did not end in order"
left=$(disk_processes; xenstore-ls -f / | grep -E '/(backend|vbd)/.*/7/')
[ -z "$left" ] || fatal "this was left behind: $left"
machine_stop

say ""
say "All is well: every sector that was read was right, the image holds what" \
    "the guest wrote,"
say "and nothing was left behind."
