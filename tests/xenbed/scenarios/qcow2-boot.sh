# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=dash
# Sourced by the first process of qcow2.sh's guest before anything else: goes on
# from the disk, as a guest does that is installed on it.

echo "ROOT $(cat /sys/block/xvda/size) sectors"
e2fsck -f -n /dev/xvda
echo "ROOT-CHECK $?"
if mount -t ext4 /dev/xvda /mnt; then
	umount /proc /sys /dev /tmp
	exec switch_root /mnt /init
fi
