#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# test_4kn: storage with sectors of 4096 bytes, and a guest that wants 512: raw
# on a device, raw and qcow2 on a file system there, qcow2 on a device.
#
# PARTS="raw_device refusals": only those.
set -u
. tests/machine.sh

loops='' mounted=''

# Not to be left behind, whatever happens.
finish() {
	stop_disks
	[ -z "$mounted" ] || umount "$mounted"
	for x in $loops; do
		losetup -d "$x"
	done
	machine_stop
}

stop_disks() {
	[ -z "$daemon" ] || kill "$daemon" 2>/dev/null
	disk_processes | while read -r pid _; do
		kill "$pid"
	done
	wait_until 10 no_disk_process
}

no_disk_process() {
	! disk_processes
}

# new_loop FILE SIZE: $loop is a device with large sectors on it
new_loop() {
	truncate -s "$2" "$1" && loop=$(losetup --sector-size 4096 \
	    --direct-io=off --show -f "$1" 2>&1) || {
		say "skip 4kn: it needs root and loop devices: ${loop-}"
		return 1
	}
	loops="$loops $loop"
}

published() {
	[ "$(xenstore-read "$(be 7 51712)/$1")" = "$2" ] || {
		xenstore-ls "$(be 7 51712)"
		return 1
	}
}

# What the device has done so far: reads, writes.
device_ios() {
	read -r reads _ _ _ writes _ <"/sys/block/${loop#/dev/}/stat"
}

# cost NAME READS WRITES IO...: what I/O costs the device, exactly
cost() {
	cost=$1 want="$2 $3"
	shift 3
	device_ios
	r=$reads w=$writes
	check "$cost" guest 7 io xvda --depth 1 --verify --zeroed "$@"
	device_ios
	is="$((reads - r)) $((writes - w))"
	if [ "$is" = "$want" ]; then
		ok "$cost: reads and writes of the device: $is"
	else
		bad "$cost: reads and writes of the device: $is, not $want"
	fi
}

# mixed NAME: sizes and places that are no multiple of 4096
mixed() {
	# size, at a time, how many, place in a page and on the disk (sectors)
	for x in 512:32:600:0:0 512:1:100:3:1 1536:16:300:0:0 4k:32:300:0:0 \
	    4k:16:300:1:0 4k:16:200:0:3 44k:8:100:5:2 256k:4:30:7:7 \
	    1m:4:12:3:5; do
		IFS=: read -r bs depth ios place first <<-END
			$x
		END
		check "$1: $bs, $depth at a time, $place into a page, from $first" \
		    guest 7 io xvda --rw randrw --mix 40 --bs "$bs" \
		    --depth "$depth" --ios "$ios" --misalign "$place" \
		    --offset $((first * 512)) --verify --zeroed
	done
	check "$1: flushes among writes" guest 7 io xvda --rw randwrite \
	    --bs 512 --depth 8 --ios 200 --flush-every 20 --verify
}

# killed NAME: the process dies in the midst of it
killed() {
	guest 7 io xvda --rw randrw --mix 30 --bs 1536 --depth 32 --time 2 \
	    --verify >"$dir/job" 2>&1 &
	job=$!
	for pause in 0.5 0.5; do
		sleep $pause
		disk_processes | sed 's/ .*//' | xargs -r kill -KILL
	done
	wait $job
	check "$1: I/O across two deaths went well" io_went_well
	check "$1: all of it is there" \
	    guest 7 io xvda --rw read --bs 64k --verify
}

io_went_well() {
	cat "$dir/job"
	grep -q '^ring ' "$dir/job" && ! grep -q '^loopfront:' "$dir/job"
}

# attach NAME SPEC
attach() {
	guest 7 forget xvda 2>/dev/null
	check "$1: attach" rb attach guest-7 xvda "$2"
	check "$1: sectors of 512 bytes" published sector-size 512
	check "$1: physical ones of 4096" published physical-sector-size 4096
}

detach() {
	check "$1: detach" rb detach guest-7 xvda
	check "$1: the guest let go" guest 7 released xvda
}

# same NAME FORMAT FILE: as dom0 sees it
same() {
	check "$1: the guest knows the image" guest 7 image xvda "$dir/want"
	check "$1: the image is what was written" \
	    qemu-img compare -f raw -F "$2" "$dir/want" "$3"
	rm -f "$dir/want"
}

raw_device() {
	what="raw on a device"
	attach "$what" "raw:$loop"
	check "$what: all of it is offered" published sectors 131072
	cost "$what: blocks" 0 64 --rw write --bs 4k --ios 64
	cost "$what: large ones" 0 16 --rw write --bs 64k --ios 16
	cost "$what: sectors" 64 64 --rw write --bs 512 --ios 64
	cost "$what: across blocks" 32 32 --rw write --bs 4k --ios 32 \
	    --offset 1536
	cost "$what: not on whole pages" 0 32 --rw write --bs 4k --ios 32 \
	    --misalign 3
	cost "$what: sectors read" 64 0 --rw read --bs 512 --ios 64
	mixed "$what"
	check "$what: discards" guest 7 io xvda --rw randtrim --bs 64k \
	    --size 8m --depth 8 --ios 40 --verify
	check "$what: writes where it was discarded" guest 7 io xvda \
	    --rw write --bs 64k --size 8m --verify
	killed "$what"
	rb --json stats guest-7 xvda >"$dir/stats"
	at_least "$what: I/Os counted" "$(number ios "$dir/stats")" 1000
	detach "$what"
	same "$what" raw "$loop"
}

# Other ways to the same device.
raw_modes() {
	for mode in io=threads cache=directsync io=threads,cache=writeback; do
		guest 7 forget xvda 2>/dev/null
		truncate -s 0 "$dir/loop.img"
		truncate -s 64m "$dir/loop.img"
		attach "$mode" "raw,$mode:$loop"
		mixed "$mode"
		detach "$mode"
		same "$mode" raw "$loop"
	done
}

raw_file() {
	what="raw on a file system"
	truncate -s 16m "$dir/mnt/a.img"
	attach "$what" "raw:$dir/mnt/a.img"
	mixed "$what"
	killed "$what"
	detach "$what"
	same "$what" raw "$dir/mnt/a.img"
}

# qcow2_disk NAME FILE
qcow2_disk() {
	attach "$1" "qcow2:$2"
	mixed "$1"
	killed "$1"
	detach "$1"
	same "$1" qcow2 "$2"
	check "$1: no fault" qemu-img check -q "$2"
}

qcow2_files() {
	m=$dir/mnt
	qemu-img create -q -f qcow2 "$m/a.qcow2" 16M
	qcow2_disk "qcow2" "$m/a.qcow2"
	qemu-img create -q -f qcow2 -o cluster_size=4k "$m/b.qcow2" 16M
	qcow2_disk "qcow2, clusters of 4096" "$m/b.qcow2"
	qemu-img create -q -f qcow2 -o extended_l2=on,cluster_size=128k \
	    "$m/c.qcow2" 16M
	qcow2_disk "qcow2, extended L2" "$m/c.qcow2"
	# The file ends inside a block; what is not there is zeroes.
	qemu-img create -q -f qcow2 -o preallocation=metadata "$m/e.qcow2" 8M
	truncate -s -3584 "$m/e.qcow2"
	attach "qcow2, short" "qcow2:$m/e.qcow2"
	check "qcow2, short: reads" guest 7 io xvda --rw read --bs 64k \
	    --verify --zeroed
	mixed "qcow2, short"
	detach "qcow2, short"
	same "qcow2, short" qcow2 "$m/e.qcow2"
	rm -f "$m"/?.qcow2
	# What is below reads as zeroes; some of it is compressed.
	truncate -s 16m "$dir/zero"
	dd if=/dev/zero of="$dir/zero" bs=1M count=3 conv=notrunc 2>/dev/null
	qemu-img convert -c -S 0 -f raw -O qcow2 "$dir/zero" "$m/base.qcow2"
	qemu-img create -q -f qcow2 -b base.qcow2 -F qcow2 "$m/d.qcow2"
	qcow2_disk "qcow2 on a compressed one" "$m/d.qcow2"
	rm -f "$m"/*.qcow2
}

qcow2_device() {
	new_loop "$dir/device.img" 64m || return
	check "make a qcow2 on a device" \
	    qemu-img create -q -f qcow2 "$loop" 16M
	qcow2_disk "qcow2 on a device" "$loop"
}

# refused NAME WORDS SPEC
refused() {
	refuse "$1" rb attach guest-7 xvda "$3"
	if echo "$out" | grep -q -e "$2"; then
		ok "$1: it says why"
	else
		bad "$1: it says why" "$out"
	fi
}

refusals() {
	m=$dir/mnt
	truncate -s 1049088 "$m/odd.img"
	refused "raw, half a block too long" "truncate -s %4096" \
	    "raw:$m/odd.img"
	qemu-img create -q -f qcow2 -o cluster_size=2k "$m/small.qcow2" 1M
	refused "qcow2, small clusters" "cluster_size=64k" \
	    "qcow2:$m/small.qcow2"
	qemu-img create -q -f qcow2 -o extended_l2=on "$m/sub.qcow2" 1M
	refused "qcow2, small subclusters" "cluster_size=128k" \
	    "qcow2:$m/sub.qcow2"
	qemu-img create -q -f qcow2 "$m/odd.qcow2" 1049088
	refused "qcow2, half a block too long" "qemu-img resize" \
	    "qcow2:$m/odd.qcow2"
	qemu-img create -q -f qcow2 -b odd.img -F raw "$m/top.qcow2" 1M
	refused "qcow2, an odd one below" "truncate -s %4096" \
	    "qcow2:$m/top.qcow2"
	check "info of what is refused" rb info "qcow2:$m/small.qcow2"
	check "check of what is refused" rb check "qcow2:$m/small.qcow2"
}

if [ "$(id -u)" -ne 0 ]; then
	say "skip 4kn: it needs root and loop devices"
	exit 77
fi
machine_start
trap finish EXIT
new_loop "$dir/loop.img" 64m || exit 77
mkdir "$dir/mnt"
new_loop "$dir/fs.img" 256m || exit 77
if mkfs.ext4 -q -b 4096 "$loop" && mount "$loop" "$dir/mnt"; then
	mounted=$dir/mnt
else
	say "skip 4kn: no file system can be made or mounted"
	exit 77
fi
loop=${loops# } loop=${loop%% *}
guest_start 7 --ring-order 2 || exit 1
for part in ${PARTS-raw_device raw_modes raw_file qcow2_files qcow2_device
    refusals}; do
	$part
done
check "the daemon is still the same" kill -0 "$daemon"
if grep -iE 'sanitizer|runtime error' "$dir/ringbackd.log"; then
	bad "no sanitizer has anything to say"
fi
summary
