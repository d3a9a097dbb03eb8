#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# test_qcow2_features: qcow2 images of each kind through the daemon, as a guest
# and as qemu-img see them.
#
# PARTS=features: only that.
set -u
. tests/machine.sh
. tests/qcow2_guest.sh

# ---- features ------------------------------------------------------------------------

with_snapshot() {
	copy "$1" && qemu-img snapshot -c before "$img" &&
		cp "$dir/have.raw" "$dir/before.raw"
}

snapshot_is_whole() {
	qemu-img convert -f qcow2 -O raw -l before "$img" "$dir/then.raw" &&
		cmp "$dir/before.raw" "$dir/then.raw"
}

# feature NAME MAKE ...: one kind of image, from end to end
feature() {
	what=$1
	shift
	check "$what: qemu-img makes it" "$@" || return
	attach "$what"
	io "$what: what is there" --rw read --bs 256k --depth 4
	io "$what: random" --rw randrw --mix 30 --bs 16k --depth 16 --ios 100
	io "$what: small" --rw randrw --mix 30 --bs 512 --depth 32 --ios 80 \
	    --misalign 3
	io "$what: in order, with flushes" --rw write --bs 300k --depth 4 \
	    --ios 10 --offset 5000k --flush-every 4
	io "$what: all of it" --rw read --bs 256k --depth 4
	detach "$what"
	same "$what"
}

features() {
	nothing_known
	feature "version 2" new compat=0.10
	feature "version 2, on raw" over compat=0.10
	nothing_known
	feature "64k" new compat=1.1
	feature "on raw, 2M" over cluster_size=2M
	feature "on qcow2, 4k" chain cluster_size=4k
	nothing_known
	feature "extended L2" new extended_l2=on,cluster_size=128k
	feature "extended L2, on raw, 16k" over extended_l2=on,cluster_size=16k
	feature "extended L2, on qcow2" chain extended_l2=on
	feature "512" copy cluster_size=512
	feature "zlib, 2M" copy compression_type=zlib,cluster_size=2M -c
	feature "zstd" copy compression_type=zstd,cluster_size=32k -c
	feature "a snapshot" with_snapshot refcount_bits=8
	check "a snapshot: is as it was" snapshot_is_whole
	feature "refcounts of 1 bit" copy refcount_bits=1
	feature "refcounts of 64 bits" copy refcount_bits=64
	feature "lazy refcounts" copy lazy_refcounts=on
	nothing_known
	feature "preallocated" new preallocation=metadata
	feature "larger than what is below" over cluster_size=64k 16m
	nothing_known
	feature "preallocated, full" new preallocation=falloc,cluster_size=4k
	feature "smaller than what is below" over cluster_size=64k \
	    $((10 * 1048576 + 1536))
}

# ---- discards and what is published --------------------------------------------------------

published() {
	[ "$(xenstore-read "$(be 7 51712)/$1")" = "$2" ] || {
		xenstore-ls "$(be 7 51712)"
		return 1
	}
}

# discards NAME CLUSTER MAKE ...
discards() {
	what="discards, $1" cluster=$2
	shift 2
	check "$what: qemu-img makes it" "$@"
	attach "$what"
	check "$what: the granule is a cluster" \
	    published discard-granularity "$cluster"
	check "$what: it begins at 0" published discard-alignment 0
	check "$what: flushes are offered" published feature-flush-cache 1
	check "$what: sectors of 512 bytes" published sector-size 512
	io "$what: writes" --rw randwrite --bs 32k --ios 150 --depth 8
	io "$what: random" --rw randtrim --bs $cluster --depth 8 --ios 40
	io "$what: odd ones" --rw randtrim --bs 100k --depth 4 --ios 20
	io "$what: reads" --rw read --bs 256k --depth 4
	io "$what: writes again" --rw randrw --bs 16k --depth 16 --ios 200
	# What was discarded may be old or zeros: make it certain.
	io "$what: all" --rw write --bs 256k --depth 4
	detach "$what"
	same "$what"
}

blocks_of() {
	stat -c %b "$1"
}

all_discards() {
	nothing_known
	discards 64k 65536 new cluster_size=64k
	discards "2M on raw" 2097152 over cluster_size=2M
	discards "extended L2 on raw" 65536 over extended_l2=on
	discards 4k 4096 copy cluster_size=4k
	nothing_known
	check "a disk that is given back: make it" new cluster_size=64k
	attach "a disk that is given back"
	io "a disk that is given back: writes" --rw write --bs 1m
	full=$(blocks_of "$img")
	check "a disk that is given back: discard it" guest 7 io xvda \
	    --rw trim --bs 1m
	detach "a disk that is given back"
	check "a disk that is given back: no fault" no_errors "$img"
	at_least "a disk that is given back: blocks it had" "$full" 20000
	at_most "a disk that is given back: blocks it has" \
	    "$(blocks_of "$img")" 4000
	nothing_known
	spec=qcow2,discard=ignore
	check "discard=ignore: make it" new cluster_size=64k
	attach "discard=ignore"
	check "discard=ignore: it is not offered" published feature-discard 0
	detach "discard=ignore"
	unset spec
}

qcow2_machine
eval "${PARTS-features; all_discards}"
qcow2_end
