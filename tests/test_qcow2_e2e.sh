#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# test_qcow2_e2e: qcow2 images through the daemon: who else may use them, limits,
# memory, and those that are refused.
#
# PARTS="others; memory": only those.
set -u
. tests/machine.sh
. tests/qcow2_guest.sh

# ---- who else wants it -----------------------------------------------------------------------

others() {
	nothing_known
	check "in use: make it" over cluster_size=64k
	cp "$img" "$dir/other.qcow2"
	attach "in use"
	io "in use: writes" --rw randwrite --bs 64k --ios 50
	refuse "in use: attach it again" rb attach guest-7 xvdb "qcow2:$img"
	refuse "in use: attach it as raw" rb attach guest-7 xvdb "raw:$img"
	refuse "in use: attach what is below it" \
	    rb attach guest-7 xvdb "raw:$dir/base.raw"
	check "in use: read what is below it" \
	    rb attach guest-7 xvdb "raw,readonly=on:$dir/base.raw"
	check "in use: and no longer" rb detach guest-7 xvdb
	check "in use: another one on the same" \
	    rb attach guest-7 xvdb "qcow2:$dir/other.qcow2"
	check "in use: detach that" rb detach guest-7 xvdb
	refuse "in use: qemu-img resize" \
	    qemu-img resize -f qcow2 "$img" +1M
	refuse "in use: qemu-img commit" qemu-img commit -f qcow2 "$img"
	check "in use: qemu-img info -U" qemu-img info -U -f qcow2 "$img"
	io "in use: reads" --rw read --bs 256k
	detach "in use"
	same "in use"
	check "not in use: qemu-img resize" \
	    qemu-img resize -f qcow2 "$img" +1M
	# And the other way round.
	qemu-io -f qcow2 -c 'sleep 2000' "$img" >/dev/null &
	other=$!
	sleep 0.5
	refuse "QEMU has it: attach" rb attach guest-7 xvda "qcow2:$img"
	wait $other
	attach "QEMU had it"
	detach "QEMU had it"
}

# The destination of a migration opens the image while the source still writes
# to it, and must look again when it is its turn.
handover() {
	nothing_known
	check "handover: make it" new cluster_size=64k
	attach "handover: the source"
	io "handover: the source writes" --rw randwrite --bs 16k --size 8m \
	    --ios 60 --depth 8
	guest_start 8 || exit 1
	xl_prepare
	check "handover: the destination opens it" \
	    xl_attach 8 51712 "qcow2:$img"
	io "handover: the source writes on" --rw randwrite --bs 16k \
	    --size 8m --ios 200 --depth 8
	refuse "handover: the destination has to wait" guest 8 wait xvda --wait 1
	check "handover: the source lets go" rb detach guest-7 xvda
	check "handover: the destination connects" guest 8 wait xvda --wait 20
	check "handover: it writes" guest 8 io xvda --rw write --bs 64k \
	    --offset 8m --verify --zeroed
	check "handover: it reads" guest 8 io xvda --rw read --bs 64k \
	    --offset 8m --verify --zeroed
	check "handover: it detaches" xl_detach 8 51712
	check "handover: it let go" guest 8 released xvda
	check "handover: it ends" guest 8 quit
	check "handover: no fault" no_errors "$img"
	attach "handover: back"
	io "handover: all of it is there" --rw read --bs 256k --size 8m
	detach "handover: back"
}

# readonly: nothing is written, not even with a dirty header
readonly_disk() {
	nothing_known
	check "read-only: make it" over cluster_size=64k
	sum=$(md5sum <"$img")
	check "read-only: attach" rb attach guest-7 xvda "qcow2:$img" --readonly
	io "read-only: reads" --rw read --bs 256k
	check "read-only: a write is ERROR" guest 7 io xvda --rw write --bs 4k \
	    --ios 3 --expect error
	detach "read-only"
	check "read-only: the file is the same" [ "$sum" = "$(md5sum <"$img")" ]
}

# ---- files that may not grow -------------------------------------------------------------------

# There it is the guest's own writes that are sent into the limit.
limited_raw() {
	truncate -s $size "$dir/limited.raw"
	check "a limited raw file: attach" \
	    rb attach guest-7 xvdb "raw:$dir/limited.raw"
	victim=$(pid_of)
	check "a limited raw file: beyond the limit is ERROR" guest 7 io xvdb \
	    --rw write --offset 4m --bs 4k --ios 4 --expect error
	check "a limited raw file: the process is the same" \
	    [ "$victim" = "$(pid_of)" ]
	check "a limited raw file: detach" rb detach guest-7 xvdb
}

# A limit of the process, for this makes every call fail in the same way.
limits() {
	nothing_known
	check "a limited file: make it" new cluster_size=64k
	ulimit -S -f $((3 * 2048))	# of 512 bytes
	daemon_restart
	ulimit -S -f unlimited
	attach "a limited file"
	io "a limited file: writes" --rw write --bs 64k --ios 20
	victim=$(pid_of)
	seed=$((seed + 1))
	guest 7 io xvda --rw randwrite --bs 64k --ios 200 --depth 8 --verify \
	    --zeroed --seed $seed --json >"$dir/json" 2>/dev/null
	at_least "a limited file: writes that failed" \
	    "$(number failed_ios "$dir/json")" 1
	check "a limited file: the process is the same" \
	    [ "$victim" = "$(pid_of)" ]
	io "a limited file: what was there" --rw read --bs 256k --depth 4
	detach "a limited file"
	check "a limited file: no fault" no_errors "$img" leaks
	limited_raw
	daemon_restart
	attach "no limit"
	io "no limit: reads" --rw read --bs 256k --depth 4
	io "no limit: all of it" --rw write --bs 256k --depth 4
	detach "no limit"
	same "no limit" leaks
}

# ---- memory -------------------------------------------------------------------------------------

# Private memory of the disk process, without what loopxen plays, and its page.
memory_of() {
	awk '/^[0-9a-f]+-[0-9a-f]+ / { mine = $6 !~ /loopxen|memfd|\.page$/ }
	    mine && /^Private_/ { n += $2 }
	    END { print n / 1024 }' "/proc/$1/smaps"
}

memory() {
	if ldd "$O/ringbackd" | grep -q asan; then
		say "skip memory: a sanitizer needs much of its own"
		return
	fi
	nothing_known
	check "100 GiB: make it" new cluster_size=64k 100G
	attach "100 GiB"
	check "100 GiB: writes all over it" guest 7 io xvda --rw randwrite \
	    --bs 4k --depth 32 --ios 3000
	check "100 GiB: reads all over it" guest 7 io xvda --rw randread \
	    --bs 4k --depth 32 --ios 6000
	private=$(memory_of "$(pid_of)")
	page=$(du -k "$dir/run/7-51712.page" | sed 's/[^0-9].*//')
	at_most "100 GiB: private memory and page file, MiB" "$(awk "BEGIN {
	    print ${private:-1e9} + ${page:-1e9} / 1024 }")" 24
	at_least "100 GiB: its data memory is in that, MiB" "$private" 8
	detach "100 GiB"
	check "100 GiB: no fault" no_errors "$img"
	rm -f "$img"
}

# ---- bad images -----------------------------------------------------------------------------------

# poke_image AT BYTES: in octal escapes of printf
poke_image() {
	# shellcheck disable=SC2059 # it is the format
	printf "$2" | dd of="$img" bs=1 seek="$1" conv=notrunc 2>/dev/null
}

# refused NAME WORDS: exit status 1, one line that holds the words in order
refused() {
	words=$(echo "$2" | sed 's/|/.*/g')
	rb attach guest-7 xvda "qcow2:$img" >"$dir/said" 2>&1
	status=$?
	if [ $status -eq 1 ] && [ "$(wc -l <"$dir/said")" -eq 1 ] &&
	    grep -q "$words" "$dir/said"; then
		ok "$1 is refused"
	else
		bad "$1: exit status $status, not 1 with \"$words\":" \
		    "$(cat "$dir/said")"
		rb detach guest-7 xvda >/dev/null 2>&1
	fi
	nothing_left "$1"
}

bad_headers() {
	rm -f "$img"
	truncate -s 1m "$img"
	refused "a file without a header" "$img|magic"
	truncate -s 60 "$img"
	refused "a header that is cut off" "$img|60|cut off"
	rm -f "$img"
	refused "an image that is not there" "$img|No such file"
	new cluster_size=64k
	poke_image 4 '\0\0\0\4'
	refused "version 4" "$img|version|4"
	new cluster_size=64k
	poke_image 20 '\0\0\0\40'
	refused "clusters of 4 GiB" "$img|cluster_bits|32"
	new cluster_size=64k
	poke_image 72 '\0\0\0\0\0\0\1\0'
	refused "a feature that nobody knows" "$img|incompatible_features|0x100"
	new cluster_size=64k
	poke_image 72 '\0\0\0\0\0\0\0\1'
	refused "a dirty image" "$img|dirty|qemu-img check"
	new cluster_size=64k
	poke_image 72 '\0\0\0\0\0\0\0\2'
	refused "a corrupt image" "$img|corrupt|qemu-img check"
	new cluster_size=64k
	poke_image 40 '\377\377\377\377\377\377\377\0'
	refused "an L1 table nowhere" "$img|l1_table_offset"
	new cluster_size=64k
	poke_image 32 '\0\0\0\2'
	refused "an encrypted image" "$img|encrypt"
	rm -f "$img"
	qemu-img create -q -f qcow2 -o "data_file=$dir/data.raw" "$img" 1m
	refused "data in another file" "$img|data file"
}

bad_chains() {
	mkdir "$dir/elsewhere" "$dir/images"
	truncate -s 1m "$dir/elsewhere/base.raw" "$dir/images/base.raw"
	img=$dir/images/x.qcow2
	qemu-img create -q -f qcow2 -b ../elsewhere/base.raw -F raw "$img"
	refused "a backing file elsewhere" \
	    "layer 1|backing file must lie below|$dir/elsewhere/base.raw"
	ln -s ../elsewhere/base.raw "$dir/images/link.raw"
	qemu-img rebase -u -f qcow2 -b link.raw -F raw "$img"
	refused "a link to elsewhere" \
	    "layer 1|backing file must lie below|$dir/elsewhere/base.raw"
	qemu-img rebase -u -f qcow2 -b none.raw -F raw "$img"
	refused "a backing file that is not there" "none.raw|No such file"
	qemu-img rebase -u -f qcow2 -b x.qcow2 -F qcow2 "$img"
	refused "a circle" "circle"
	qemu-img rebase -u -f qcow2 -b nbd://localhost/x -F raw "$img"
	refused "a protocol" "protocol|nbd:"
	qemu-img create -q -f qcow2 -b base.raw -F raw "$img"
	qemu-img rebase -u -f qcow2 -b base.raw -F vmdk "$img"
	refused "another format below" "vmdk|raw and qcow2"
	allowed_elsewhere
	img=$dir/x.qcow2
}

# ... but where it was allowed, and nowhere else.
allowed_elsewhere() {
	daemon_options="$daemon_options --backing-root $dir/none
	    --backing-root $dir/elsewhere"
	daemon_restart
	qemu-img rebase -u -f qcow2 -b ../elsewhere/base.raw -F raw "$img"
	attach "--backing-root"
	detach "--backing-root"
	qemu-img rebase -u -f qcow2 -b base.raw -F raw "$img"
	refused "a backing file beside the image, but not below a root" \
	    "layer 1|backing file must lie below|$dir/images/base.raw"
}

qcow2_machine
eval "${PARTS-others; handover; readonly_disk; limits; memory
    bad_headers; bad_chains}"
qcow2_end
