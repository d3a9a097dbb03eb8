# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=dash
# The guest's part of tap.sh, besides raw-guest.sh: fio beside other orders.

# fio_start DEV
fio_start() {
	rm -f /tmp/fio.status
	{ verified "$1" 16k 24m > /tmp/fio.txt 2>&1
	    echo $? > /tmp/fio.status; } &
}

# fio_end: waits for it; its output and status
fio_end() {
	until [ -s /tmp/fio.status ]; do sleep 0.2; done
	cat /tmp/fio.txt
	return "$(cat /tmp/fio.status)"
}
