# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=dash
# The guest's part of qcow2.sh, on its root disk: functions that orders call.

# root_is DEV: we live on it
root_is() { grep "^/dev/$1 / ext4 rw" /proc/mounts; }

# files_make DIR: files of all sizes, and their checksums
files_make() {
	mkdir -p "/$1" || return 1
	for i in 1 2 3 4 5 6 7 8; do
		head -c $((i * 100000 + i)) /dev/urandom > "/$1/$i" &&
			echo "small file $i" > "/$1/small-$i" || return 1
	done
	(cd "/$1" && sha256sum small-* [1-8] > sums) && sync
}

# files_check DIR: read from the disk
files_check() {
	echo 3 > /proc/sys/vm/drop_caches
	[ "$(wc -l < "/$1/sums")" = 16 ] && (cd "/$1" && sha256sum -c sums)
}

# verified BLOCK_SIZE SIZE: random writes to a file, read back by fio
verified() {
	fio --name=verify --filename=/fio --direct=1 --ioengine=libaio \
	    --iodepth=32 --rw=randwrite --bs="$1" --size="$2" \
	    --fallocate=none --verify=crc32c --verify_fatal=1 \
	    --verify_state_save=0 --eta=never
}

# root_settle: nothing is written any more; the file system is whole
root_settle() {
	sync && mount -o remount,ro / && e2fsck -f -n /dev/xvda
}

# no_errors: the kernel has seen none on its disks
no_errors() {
	! dmesg | grep -i -E \
	    'I/O error|blkfront.*(err|fail|bad)|EXT4-fs.*(err|warn)|Oops|BUG:'
}
