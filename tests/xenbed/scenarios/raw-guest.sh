# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=dash
# The guest's part of raw.sh: functions that its orders call.

# disk_there DEV SECTORS: hot-plugged disks appear just after they connect
disk_there() {
	tries=50
	until [ "$(cat "/sys/block/$1/size" 2>/dev/null)" = "$2" ]; do
		tries=$((tries - 1))
		if [ $tries = 0 ]; then
			echo "$1 has not got $2 sectors:"
			cat "/sys/block/$1/size"
			return 1
		fi
		sleep 0.2
	done
}

# fs_make DEV: a file system with files in it, and their checksums
fs_make() {
	mkfs.ext4 -q -F "/dev/$1" && mount -t ext4 "/dev/$1" /mnt || return 1
	mkdir -p /mnt/some/where
	for i in 1 2 3 4 5 6 7 8; do
		head -c $((i * 300000 + i)) /dev/urandom > /mnt/some/where/$i
		echo "small file $i" > /mnt/some/small-$i
	done
	(cd /mnt && sha256sum some/small-* some/where/* > sums) &&
		umount /mnt && e2fsck -f -n "/dev/$1"
}

# fs_check DEV: all that fs_make wrote is there, read from the disk
fs_check() {
	echo 3 > /proc/sys/vm/drop_caches
	mount -t ext4 -o ro "/dev/$1" /mnt || return 1
	if [ "$(wc -l < /mnt/sums)" != 16 ] ||
	    ! (cd /mnt && sha256sum -c sums); then
		umount /mnt
		return 1
	fi
	umount /mnt && e2fsck -f -n "/dev/$1"
}

# sectors_read DEV: what this guest has read from the disk
sectors_read() { awk '{ print $3 }' "/sys/block/$1/stat"; }

# pattern DEV: writes all of the disk, flushes, reads it back from the disk and
# compares; prints the checksum of what was written
pattern() {
	sectors=$(cat "/sys/block/$1/size")
	head -c $((sectors * 512)) /dev/urandom > /tmp/pattern &&
		dd if=/tmp/pattern of="/dev/$1" bs=1M conv=fsync 2>/dev/null ||
		return 1
	echo 3 > /proc/sys/vm/drop_caches
	before=$(sectors_read "$1")
	cmp /tmp/pattern "/dev/$1" || return 1
	if [ $(($(sectors_read "$1") - before)) -lt "$sectors" ]; then
		echo "$1 was read from memory, not from the disk"
		return 1
	fi
	sha256sum < /tmp/pattern | cut -d' ' -f1
	rm /tmp/pattern
}

# verified DEV BLOCK_SIZE SIZE: random writes, 32 at a time, read back by fio;
# on each processor, in an area of that size
verified() {
	n=$(nproc)
	fio --name=verify --filename="/dev/$1" --direct=1 --ioengine=libaio \
	    --numjobs="$n" --cpus_allowed="0-$((n - 1))" \
	    --cpus_allowed_policy=split --offset_increment="$3" \
	    --iodepth=32 --rw=randwrite --bs="$2" --size="$3" \
	    --verify=crc32c --verify_fatal=1 --verify_state_save=0 --eta=never
}

# no_errors: the kernel has seen none on its disks
no_errors() {
	! dmesg | grep -i -E \
	    'I/O error|blkfront.*(err|fail|bad)|EXT4-fs.*(err|warn)|Oops|BUG:'
}
