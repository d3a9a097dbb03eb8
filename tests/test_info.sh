#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# test_info: ringback info and check against qemu-img, on sound images, damaged
# ones and ones that mean harm; that nothing is written, whom the lock keeps
# away, and that the privileges are gone by then.
set -u
O=${O:-build}
. tests/machine.sh
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
chmod 755 "$dir"
img=$dir/a.qcow2


# poke FILE OFFSET BYTES: these, in hexadecimal, at a decimal offset
poke() {
	# shellcheck disable=SC2059 # that is the point
	printf "$(awk -v h="$3" 'BEGIN {
	    d = "0123456789abcdef"
	    for (i = 1; i < length(h); i += 2) {
		n = (index(d, substr(h, i, 1)) - 1) * 16
		n += index(d, substr(h, i + 1, 1)) - 1
		printf "\\%03o", n
	    } }')" |
	    dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

# make OPTIONS SIZE [COMMAND ...]: a fresh $img, and what qemu-io does to it
make_image() {
	rm -f "$img"
	qemu-img create -q -f qcow2 -o "$1" "$img" "$2" || exit 1
	shift 2
	# shellcheck disable=SC2086 # words
	for c; do
		case $c in
		snapshot*) qemu-img snapshot ${c#snapshot} "$img" ;;
		bitmap*) qemu-img bitmap --add "$img" "${c#bitmap }" ;;
		*) qemu-io -f qcow2 -c "$c" "$img" >/dev/null ;;
		esac || exit 1
	done
}

# The numbers of one program, in one line; what it does not name is 0.
counts() {
	for k in corruptions leaks check-errors total-clusters \
	    allocated-clusters fragmented-clusters compressed-clusters \
	    image-end-offset; do
		n=$(number $k "$1")
		printf '%s %s, ' $k "${n:-0}"
	done
}

# same NAME STATUS: both programs count alike, and ours writes nothing
same() {
	qemu-img check -f qcow2 --output=json "$img" >"$dir/qemu" 2>&1
	before=$(stat -c '%s %b %Y %Z' "$img"; sha256sum <"$img")
	"$O/ringback" --json check "qcow2:$img" >"$dir/ours" 2>"$dir/err"
	status=$?
	if [ $status -ne "$2" ]; then
		bad "check $1" "status $status, not $2: $(cat "$dir/ours")"
	elif [ "$(counts "$dir/ours")" != "$(counts "$dir/qemu")" ]; then
		bad "check $1" "$(counts "$dir/ours"; echo;
		    counts "$dir/qemu"; cat "$dir/qemu")"
	elif [ "$before" != "$(stat -c '%s %b %Y %Z' "$img"
	    sha256sum <"$img")" ]; then
		bad "check $1" "it wrote to the image"
	else
		ok "check $1: $(counts "$dir/ours" | tr -s ' ')"
	fi
}

# says NAME STATUS WORDS COMMAND ...: one line on stderr, which has the words
says() {
	said=$1 want=$2 words=$3
	shift 3
	timeout 20 "$@" >"$dir/out" 2>"$dir/err"
	status=$?
	if [ $status -ne "$want" ]; then
		bad "$said" "status $status, not $want: $(cat "$dir/err")"
	elif [ "$(wc -l <"$dir/err")" -ne 1 ] ||
	    ! grep -q -- "$words" "$dir/err"; then
		bad "$said" "it says: $(cat "$dir/err")"
	else
		ok "$said"
	fi
}

# ---- sound ones --------------------------------------------------------------
some='write -P 1 0 1M' more='write -P 2 3M 512k' zero='write -z 3M 64k'
for o in cluster_size=512 cluster_size=4k cluster_size=64k cluster_size=2M \
    cluster_size=4k,refcount_bits=1 cluster_size=4k,refcount_bits=2 \
    cluster_size=4k,refcount_bits=4 refcount_bits=8 refcount_bits=32 \
    refcount_bits=64 compat=0.10 preallocation=metadata lazy_refcounts=on; do
	make_image $o 8M "$some" "$more" "write -P 3 5M 64k"
	[ $o = compat=0.10 ] || qemu-io -f qcow2 -c "$zero" "$img" >/dev/null
	same $o 0
done
make_image extended_l2=on 8M "$some" 'write -P 1 7M 4k' 'discard 64k 8k'
same extended_l2 0
make_image compression_type=zstd 8M 'write -c 0 64k' 'write -c 64k 64k' \
    'write 256k 64k'
same compressed 0
make_image cluster_size=4k 8M "$some" 'snapshot -c one' 'write 1M 128k' \
    'snapshot -c two' 'write 0 64k' 'snapshot -d one'
same snapshots 0
make_image lazy_refcounts=off 8M "$some" 'bitmap one' 'bitmap two'
same bitmaps 0

# ---- damaged ones: where a fresh image of 64 KiB clusters has what is said
# at the line: refcount table 0x10000, block 0x20000, L1 0x30000, L2 0x40000
damaged() {
	name=$1 status=$2
	shift 2
	make_image "${opts-lazy_refcounts=off}" 8M "$some" "$more"
	while [ $# -gt 0 ]; do
		poke "$img" "$1" "$2"
		shift 2
	done
	same "$name" "$status"
}
damaged 'a refcount too high, no COPIED'  3 $((0x20000 + 2 * 5)) 0002 \
    $((0x40000)) 0000000000050000
damaged 'a refcount too high'             1 $((0x20000 + 2 * 5)) 0002
damaged 'a refcount of 0'                 1 $((0x20000 + 2 * 5)) 0000
damaged 'no COPIED'                       1 $((0x40000)) 0000000000050000
damaged 'an L2 entry lost'                3 $((0x40000)) 0000000000000000
damaged 'data beyond the end'             1 $((0x40000)) 8000000fff050000
damaged 'data not aligned'                1 $((0x40000)) 8000000000052a00
damaged 'data in the L1 table'            1 $((0x40000)) 8000000000030000
damaged 'data twice'                      1 $((0x40000)) 8000000000060000
damaged 'reserved bits of an L2 entry'    1 $((0x40000)) 9000000000050004
damaged 'an L2 table beyond the end'      1 $((0x30000)) 8000000fff040000
damaged 'an L2 table not aligned'         1 $((0x30000)) 8000000000040200
damaged 'an L1 entry lost'                3 $((0x30000)) 0000000000000000
damaged 'reserved bits of an L1 entry'    1 $((0x30000)) c000000000040004
damaged 'the L1 table as an L2 table'     1 $((0x30000)) 8000000000030000
damaged 'a refcount block lost'           1 $((0x10000)) 0000000000000000
damaged 'a refcount block not aligned'    1 $((0x10000)) 0000000000021000
damaged 'a refcount block beyond the end' 1 $((0x10000)) 0000000fff020000
damaged 'a refcount block twice'          1 $((0x10008)) 0000000000020000
damaged 'a block that is data'            1 $((0x10000)) 0000000000050000
damaged 'a dirty image'                   0 79 01
damaged 'a corrupt image'                 0 79 02
opts=extended_l2=on
damaged 'subclusters both data and zero'  1 $((0x40008)) ffffffffffffffff
damaged 'subclusters without a cluster'   1 $((0x40000)) 0000000000000000
unset opts

# Two uses that the refcount agrees with: qemu-img sees nothing wrong.
make_image lazy_refcounts=off 8M "$some"
poke "$img" $((0x40000)) 0000000000030000
poke "$img" $((0x20000 + 2 * 3)) 0002
poke "$img" $((0x20000 + 2 * 5)) 0000
"$O/ringback" --json check "qcow2:$img" >"$dir/ours" 2>/dev/null
status=$?
if [ $status -eq 1 ] && [ "$(number corruptions "$dir/ours")" -eq 0 ] &&
    [ "$(number overlaps "$dir/ours")" -eq 1 ]; then
	ok "an overlap with a refcount that agrees"
else
	bad "an overlap with a refcount that agrees" "$status $(cat "$dir/ours")"
fi

# An L1 table that names one L2 table two million times costs what one does.
make_image cluster_size=2M 1E 'write 0 64k'
dd if="$img" bs=8 skip=$((0x600000 / 8)) count=1 of="$dir/l1" status=none
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21; do
	cat "$dir/l1" "$dir/l1" >"$dir/twice"
	mv "$dir/twice" "$dir/l1"
done
dd if="$dir/l1" of="$img" bs=1M seek=6 conv=notrunc status=none
timeout 20 "$O/ringback" --json check "qcow2:$img" >"$dir/ours" 2>"$dir/err"
status=$?
if [ $status -eq 1 ] && [ "$(number corruptions "$dir/ours")" -gt 2000000 ]; then
	ok "one L2 table, two million times"
else
	bad "one L2 table, two million times" "$status $(cat "$dir/err")"
fi

# ---- info ----------------------------------------------------------------------
qemu-img create -q -f raw "$dir/base.raw" 4M
qemu-img create -q -f qcow2 -o compat=0.10,cluster_size=4k \
    -b base.raw -F raw "$dir/mid.qcow2" 5M
rm -f "$img"
qemu-img create -q -f qcow2 -o \
    extended_l2=on,compression_type=zstd,lazy_refcounts=on,refcount_bits=32 \
    -b mid.qcow2 -F qcow2 "$img" 8M
qemu-img snapshot -c s "$img"
"$O/ringback" --json info "qcow2:$img" >"$dir/ours" 2>"$dir/err"
sed 's/.*\[{/{/; s/}, *{/}\n{/g' "$dir/ours" >"$dir/layers"
has() {
	sed -n "$1p" "$dir/layers" | tr -d ' ' | grep -qF -- "$2" ||
	    missing="$missing; layer $1: $2"
}
missing=
for w in '"format":"qcow2"' '"virtual-size":8388608' '"version":3' \
    '"cluster-size":65536' '"refcount-bits":32' '"compression":"zstd"' \
    '"snapshots":1' '"backing":"mid.qcow2"' '"backing-format":"qcow2"' \
    '"compressiontype","extendedL2entries","lazyrefcounts"' \
    "\"file-size\":$(stat -c %s "$img")" \
    "\"allocated\":$(($(stat -c %b "$img") * 512))"; do
	has 1 "$w"
done
for w in '"version":2' '"cluster-size":4096' '"virtual-size":5242880' \
    '"refcount-bits":16' '"backing-format":"raw"' '"features":[]'; do
	has 2 "$w"
done
for w in '"format":"raw"' '"virtual-size":4194304' "\"path\":\"$dir/base.raw\""; do
	has 3 "$w"
done
if [ -z "$missing" ] && [ "$(wc -l <"$dir/layers")" -eq 3 ]; then
	ok "info of a chain of three"
else
	bad "info of a chain of three" "$missing" "$(cat "$dir/ours" "$dir/err")"
fi
check "info for a person" sh -c "'$O/ringback' info 'qcow2:$img' |
    grep -q 'backing file  *base.raw (raw)'"
check "info of a raw file" sh -c "'$O/ringback' --json info \
    'raw:$dir/base.raw' | grep -q '\"virtual-size\": *4194304'"
says "check of a raw file" 1 "format 'raw'" "$O/ringback" check "raw:$dir/base.raw"
says "a format that is none" 2 'vmdk' "$O/ringback" info "vmdk:$img"
says "no format" 2 "no ':'" "$O/ringback" check "$img"
says "no file" 1 'No such file' "$O/ringback" info "qcow2:$dir/none"
for c in info check; do
	"$O/ringback" $c >"$dir/out" 2>&1
	status=$?
	if [ $status -eq 2 ]; then
		ok "$c of nothing"
	else
		bad "$c of nothing" "status $status"
	fi
done

# ---- ones that mean harm -----------------------------------------------------
# hostile NAME WORDS OFFSET BYTES ...: refused with one line by both commands
hostile() {
	name=$1 words=$2
	shift 2
	make_image "${opts-lazy_refcounts=off}" 8M "$some" 'snapshot -c s'
	while [ $# -gt 0 ]; do
		poke "$img" "$1" "$2"
		shift 2
	done
	says "info of $name" 1 "$words" "$O/ringback" info "qcow2:$img"
	says "check of $name" 1 "$words" "$O/ringback" check "qcow2:$img"
}
hostile 'cluster_bits 8'     cluster_bits 20 00000008
hostile 'cluster_bits 22'    cluster_bits 20 00000016
hostile 'no magic'           magic 0 00
hostile 'version 4'          version 4 00000004
hostile 'a refcount order 7' refcount_order 96 00000007
hostile 'a size beyond L1'   size 24 fffffffffffffe00
hostile 'a short L1 table'   l1 36 00000000
hostile 'an L1 table beyond all' l1 40 00ffffffffff0000
hostile 'a huge L1 table'    l1 36 ffffffff
hostile 'a huge refcount table' refcount_table 56 ffffffff
hostile 'no refcount table'  refcount_table 56 00000000
hostile 'a refcount table off' refcount_table 48 1234567890abcdef
hostile 'too many snapshots' snapshots 60 ffffffff
hostile 'encryption'         encrypt 32 00000001
hostile 'a data file'        'data' 72 0000000000000004
hostile 'unknown features'   incompatible 72 8000000000000000
hostile 'an unknown compression' compression 72 0000000000000008 104 05
hostile 'a long header'      header_length 100 ffffffff

qemu-img create -q -f qcow2 "$dir/b.qcow2" 8M
rm -f "$img"
qemu-img create -q -f qcow2 -b b.qcow2 -F qcow2 "$img" 8M
qemu-img rebase -u -b a.qcow2 -F qcow2 -f qcow2 "$dir/b.qcow2"
for c in info check; do
	says "$c of a loop" 1 'a.qcow2' "$O/ringback" $c "qcow2:$img"
	for b in /etc/passwd ../../etc/passwd; do
		qemu-img rebase -u -b "$b" -F raw -f qcow2 "$img"
		says "$c of a chain to $b" 1 passwd "$O/ringback" $c "qcow2:$img"
	done
	for b in nbd://127.0.0.1/x 'json:{"driver":"null-co"}'; do
		qemu-img rebase -u -b "$b" -F raw -f qcow2 "$img"
		says "$c of a chain to ${b%%:*}:" 1 "${b%%:*}" \
		    "$O/ringback" $c "qcow2:$img"
	done
	qemu-img rebase -u -b b.qcow2 -F qcow2 -f qcow2 "$img"
done
: >"$dir/empty"
says "info of an empty file" 1 empty "$O/ringback" info "qcow2:$dir/empty"
mkfifo "$dir/fifo"
says "info of a FIFO" 1 FIFO "$O/ringback" info "qcow2:$dir/fifo"

# ---- the lock ------------------------------------------------------------------
make_image lazy_refcounts=off 8M "$some"
(sleep 20 & echo $! >"$dir/sleeper"; wait) | qemu-io -f qcow2 "$img" \
    >"$dir/qemu" 2>&1 &
writer=$!
# Asked by trying to lock it, qemu-io could find it locked itself.
wait_until 10 grep -q 'qemu-io>' "$dir/qemu" || bad "qemu-io holds the lock"
check "info while somebody writes" "$O/ringback" info "qcow2:$img"
says "check while somebody writes" 1 'a.qcow2' "$O/ringback" check "qcow2:$img"
kill "$(cat "$dir/sleeper")"
wait $writer
check "check when nobody does" "$O/ringback" check "qcow2:$img"

# ---- privileges ------------------------------------------------------------------
# A pipe that is full holds the command back when it prints, the last thing
# that it does.
confined() {
	sed -n 's/^\(Uid\|CapEff\|NoNewPrivs\|Seccomp\):[[:space:]]*//p' \
	    "/proc/$1/status" | tr '\t\n' '  ' | tr -s ' '
}
for c in info check; do
	mkfifo "$dir/pipe"
	(exec 3<>"$dir/pipe"
	dd if=/dev/zero bs=65536 count=1 status=none >&3
	exec "$O/ringback" $c "qcow2:$img" >&3) &
	pid=$!
	wait_until 10 grep -q "NoNewPrivs:[[:space:]]1" /proc/$pid/status
	got=$(confined $pid)
	kill $pid
	wait $pid 2>/dev/null
	rm "$dir/pipe"
	id=$(id -u)
	[ "$id" -ne 0 ] || id=65534
	if [ "$got" = "$id $id $id $id 0000000000000000 1 2 " ]; then
		ok "$c gives up its privileges"
	else
		bad "$c gives up its privileges" "it has $got"
	fi
done
if [ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null; then
	chmod 644 "$img"
	check "check by somebody else" setpriv --reuid 65534 --regid 65534 \
	    --clear-groups "$O/ringback" check "qcow2:$img"
fi
summary
