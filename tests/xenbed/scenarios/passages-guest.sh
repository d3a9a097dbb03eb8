# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=dash
# The guest's part of passages.sh, after raw-guest.sh: functions that orders
# call.
echo	# GRUB has left a line unfinished

# kernel_sum: of the file that GRUB loaded, read from the disk
kernel_sum() {
	mount -t ext4 -o ro /dev/xvda /mnt || return 1
	sha256sum < /mnt/boot/vmlinuz | cut -d' ' -f1
	umount /mnt
}

# patterns DEV: writes all of the disk and reads it back, again and again, until
# dom0 says so in our xenstore node data/end; how often
patterns() {
	n=0
	until xenstore-read data/end > /dev/null 2>&1; do
		pattern "$1" > /tmp/out || { cat /tmp/out; return 1; }
		n=$((n + 1))
	done
	echo $n
}

# load DEV: writes until the disk is gone; how many writes succeeded
load() {
	n=0
	while dd if=/dev/zero of="/dev/$1" bs=64k count=16 oflag=direct \
	    2>/dev/null && [ $n -lt 1000 ]; do
		n=$((n + 1))
	done
	echo "$n rounds, then an end"
	[ $n -lt 1000 ]
}
