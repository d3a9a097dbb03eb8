#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# test_bench: ringback bench on null, raw and qcow2: what it counts, that it
# writes only when it may, that it finds a byte that is not what was written,
# whom the lock keeps away, and that the privileges are gone by then.  Counters
# are asserted, times never.
set -u
O=${O:-build}
. tests/machine.sh
# On tmpfs: nobody else's writes are in the way of a flush.
dir=$(mktemp -d "${TMPDIR:-/dev/shm}/ringback.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
chmod 755 "$dir"
raw=$dir/a.raw qcow2=$dir/a.qcow2

bench() {
	rm -f "$dir/json"	# asks() keeps a link to it
	timeout 60 "$O/ringback" --json bench --time 0.1 "$@" \
	    >"$dir/json" 2>"$dir/err"
}

# runs NAME ARGS ...: it must succeed; the answer is in $dir/json
runs() {
	ran=$1
	shift
	if bench "$@"; then
		ok "$ran"
	else
		bad "$ran" "status $?: $(cat "$dir/err")"
	fi
}

# says NAME STATUS WORDS ARGS ...: one line on stderr, which has the words
says() {
	said=$1 want=$2 words=$3
	shift 3
	bench "$@"
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

# asks NAME EXPRESSION: of the answer, in python: d is all of it, j its first
# job.  Answered by answer_all, by one process.
asked=0
asks() {
	asked=$((asked + 1))
	mv "$dir/json" "$dir/$asked.json"
	ln "$dir/$asked.json" "$dir/json"
	printf '%s' "$1" >"$dir/$asked.name"
	printf '(%s)' "$2" >"$dir/$asked.ask"
}

answer_all() {
	python3 - "$dir" $asked >"$dir/answers" <<-'END'
	import json, sys

	def read(n, kind):
	    with open('%s/%d.%s' % (sys.argv[1], n, kind)) as f:
	        return f.read()

	for n in range(1, int(sys.argv[2]) + 1):
	    d = json.loads(read(n, 'json'))
	    j = d['jobs'][0] if d.get('jobs') else None
	    good = eval(read(n, 'ask'))
	    print('ok' if good else 'FAIL', n, read(n, 'name'))
	END
	while read -r verdict n name; do
		if [ "$verdict" = ok ]; then
			ok "$name"
		else
			bad "$name" "$(cat "$dir/$n.ask" "$dir/$n.json")"
		fi
	done <"$dir/answers"
	[ "$(wc -l <"$dir/answers")" -eq $asked ] ||
	    bad "all answers are JSON, with what is asked for"
}

head -c 8M /dev/urandom >"$raw"
qemu-img create -q -f qcow2 "$qcow2" 16M

# ---- the shape -----------------------------------------------------------------
runs "null" null:64M --depth 32 --jobs 2
asks "every I/O is counted" 'd["ok"] and j["error"] == 0 and
    j["read"]["io_bytes"] == j["read"]["total_ios"] * 4096 > 0 and
    j["read"]["lat_ns"]["N"] == j["read"]["total_ios"] and
    j["write"]["total_ios"] == j["sync"]["total_ios"] == 0'
asks "its JSON has the shape of fio's" 'j["jobname"] == "bench" and
    j["job options"] == {"rw": "randread", "bs": "4096", "iodepth": "32",
    "numjobs": "2", "size": "67108864", "randseed": "1"} and
    0 < j["read"]["bw"] == j["read"]["bw_bytes"] // 1024 and
    j["read"]["iops"] > 0 and j["read"]["runtime"] >= 100'
asks "latencies are in order" 'all(
    0 < l["min"] <= p["1.000000"] <= p["50.000000"] <= p["99.000000"] <=
    p["99.990000"] <= l["max"] and l["min"] <= l["mean"] <= l["max"]
    for l in [j["read"]["lat_ns"]] for p in [l["percentile"]])'
check "for a person" sh -c "'$O/ringback' bench null:1M --time 0.05 |
    grep -q 'read .* I/Os .* p99 '"

# ---- raw ---------------------------------------------------------------------
before=$(sha256sum <"$raw")
runs "raw, random reads" "raw:$raw"
asks "one at a time, each takes a call" 'j["submits"] ==
    j["read"]["total_ios"] > 0 and j["submits_per_io"] == 1'
runs "raw, 32 at a time" "raw,poll=off:$raw" --depth 32
asks "32 take less" '0 < j["submits"] < j["read"]["total_ios"]'
runs "raw, sequential reads of 64K" "raw:$raw" --rw read --bs 64k --depth 4
asks "64K are read at a time" 'j["read"]["io_bytes"] ==
    j["read"]["total_ios"] * 65536 > 0'
for rw in randwrite write randrw; do
	says "$rw without --write" 2 '--write' "raw:$raw" --rw $rw
	asks "... which JSON says too" 'd["ok"] is False and
	    "--write" in d["error"]'
done
says "presets that write, without --write" 2 '4k-flush.*--write' "raw:$raw" \
    --preset all
runs "--write, and a load that reads" "raw:$raw" --write
if [ "$before" = "$(sha256sum <"$raw")" ]; then
	ok "nothing was written"
else
	bad "nothing was written"
fi
says "writes to a disk that is readonly" 2 'readonly=on' \
    "raw,readonly=on:$raw" --rw write --write
runs "raw, a flush after each write" "raw:$raw" --rw randwrite --flush --write
asks "as many flushes as writes" 'j["sync"]["total_ios"] ==
    j["write"]["total_ios"] > 0 and j["submits_per_io"] >= 2 and
    j["metadata_writes"] == 0'
runs "70 % reads" null:64M --rw randrw --rwmixread 70 --depth 8 --write
asks "about 70 %" '0.5 < j["read"]["total_ios"] /
    (j["read"]["total_ios"] + j["write"]["total_ios"]) < 0.9'
runs "raw, verified" "raw:$raw" --rw write --depth 4 --bs 16k --size 1M \
    --verify --write
asks "all of it was compared" '0 < j["verified_blocks"] ==
    min(64, j["write"]["total_ios"]) and
    j["job options"]["size"] == "1048576"'
check "nothing beyond --size was written" sh -c "
    head -c 8M /dev/zero >'$dir/zero' && cp '$dir/zero' '$dir/b.raw' &&
    '$O/ringback' bench 'raw:$dir/b.raw' --rw randwrite --size 1M --jobs 3 \
	--time 0.1 --write --depth 4 >/dev/null &&
    ! cmp -s -n 1M '$dir/zero' '$dir/b.raw' &&
    cmp -i 1M '$dir/zero' '$dir/b.raw'"

# ---- qcow2 -----------------------------------------------------------------
runs "qcow2, verified" "qcow2:$qcow2" --rw randrw --depth 8 --jobs 2 --verify \
    --write
asks "its metadata is counted" 'j["metadata_writes"] > 0 and
    j["metadata_writes_per_io"] > 0 and j["verified_blocks"] > 0'
check "the image is sound" qemu-img check -q -f qcow2 "$qcow2"
runs "qcow2, reads of what is allocated" "qcow2:$qcow2" --depth 8
asks "no metadata is written for that" 'j["metadata_writes"] == 0'

# ---- a byte that is not what was written ---------------------------------------
# The flush before the comparison is slow: time to change it.
"$O/ringback" bench "fault:op=flush,delay-ms=1500:raw:$raw" --rw write --bs 4k \
    --time 0.1 --size 64k --write --verify --seed 7 >"$dir/out" 2>"$dir/err" &
pid=$!
while kill -0 $pid 2>/dev/null; do
	printf 'x' | dd of="$raw" bs=1 seek=12345 conv=notrunc status=none
	sleep 0.1
done
wait $pid
status=$?
if [ $status -eq 1 ] && grep -q 'byte 12345 is not' "$dir/err"; then
	ok "a wrong byte is found"
else
	bad "a wrong byte is found" "status $status: $(cat "$dir/out" "$dir/err")"
fi

# ---- what fails ----------------------------------------------------------------
says "an error of the storage" 1 'fault:.*read 4096 bytes at .*Input/output' \
    fault:op=read,nth=100:null:64M --depth 16 --jobs 4 --time 90
asks "... ends the load of all threads" 'd["ok"] is False and
    j["error"] == 5 and j["read"]["total_ios"] >= 99'
says "a flush that fails" 1 'flush: Input' "fault:op=flush:raw:$raw" \
    --rw write --write
says "no space" 1 'make room' "fault:op=write,error=ENOSPC:raw:$raw" \
    --rw write --write
says "no such file" 1 'No such file' "raw:$dir/none"
says "no spec" 2 "no ':'" "$raw"
"$O/ringback" bench "fault:op=read,delay-ms=100:raw:$raw" --time 30 \
    >"$dir/out" 2>"$dir/slow" &
pid=$!
wait_until 10 grep -q "Seccomp:[[:space:]]2" /proc/$pid/status
id=$(id -u)
[ "$id" -ne 0 ] || id=65534
got=$(cat /proc/$pid/task/*/status |
    sed -n 's/^\(Uid\|CapEff\|NoNewPrivs\|Seccomp\):[[:space:]]*//p' |
    tr '\t\n' '  ')
tasks=$(find /proc/$pid/task -mindepth 1 -maxdepth 1 | wc -l)
want=$(yes "$id $id $id $id 0000000000000000 1 2" | head -n "$tasks" | tr '\n' ' ')
if [ "$tasks" -ge 2 ] && [ "$got" = "$want" ]; then
	ok "all of its threads have given up their privileges"
else
	bad "all of its threads have given up their privileges" "$tasks: $got"
fi
fd=$(find /proc/$pid/fd -lname "$raw")
if [ -z "$fd" ]; then
	say "skip a load that reads cannot write: its files cannot be seen"
elif grep -q '^flags:.*0$' /proc/$pid/fdinfo/"${fd##*/}"; then
	ok "a load that reads cannot write"
else
	bad "a load that reads cannot write" "$(cat /proc/$pid/fdinfo/"${fd##*/}")"
fi
says "a disk that somebody else measures" 1 'a.raw' "raw:$raw" --rw write \
    --write
kill -INT $pid
wait $pid
status=$?
if [ $status -eq 1 ] && grep -q 'ended early' "$dir/slow"; then
	ok "an interrupt ends it in order"
else
	bad "an interrupt ends it in order" "status $status: $(cat "$dir/slow")"
fi

# ---- presets and options ---------------------------------------------------
runs "all presets" null:64M --preset all --write --time 0.02 --bs 4k
asks "... in turn" '[x["jobname"] for x in d["jobs"]] == ["4k-qd1", "4k-flush",
    "4k-qd32x8", "mixed", "seq", "4k-qd256", "1m-qd64x16"]'
asks "... are what they are called" '[
    (o["rw"], o["iodepth"], o["numjobs"], o.get("rwmixread"), o.get("fsync"))
    for x in d["jobs"] for o in [x["job options"]]] == [
    ("randread", "1", "1", None, None), ("randwrite", "1", "1", None, "1"),
    ("randread", "32", "8", None, None), ("randrw", "16", "8", "70", None),
    ("read", "8", "2", None, None), ("randread", "256", "1", None, None),
    ("read", "64", "16", None, None)]'
runs "one preset" null:1G --preset seq
asks "... of 1M" 'len(d["jobs"]) == 1 and j["job options"]["bs"] == "1048576"'
runs "a preset, changed" null:64M --preset 4k-qd1 --rw randwrite --write
asks "... writes" 'j["write"]["total_ios"] > 0 == j["read"]["total_ios"]'
runs "options of a guest's queue" null,ring-order=0,merge=4k,poll=off:64M
asks "... are named" 'd["unused"] == ["merge", "ring-order"]'
runs "options of a guest's queues" null,iothreads=2,queues=16:64M
asks "... are named" 'd["unused"] == ["queues", "iothreads"]'

while read -r words args; do
	# shellcheck disable=SC2086 # words
	says "$args" 2 "$words" null:1M $args
done <<END
rw --rw trim
rwmixread --rw randrw --rwmixread 101
randrw --rwmixread 50
bs --bs 0
bs --bs 1000
bs --bs 65M
depth --depth 0
depth --depth 1025
jobs --jobs 0
jobs --jobs 65
time --time 0
time --time -1
time --time 1s
size --size 1X
2097152 --size 2M
seed --seed x
4k-qd32x8 --preset 4k
writes --flush
writes --verify --write
memory --bs 64M --depth 65
small --bs 512K --jobs 3
differ --bs 4K --depth 257 --verify --rw write --write
END
# These go with no command, or there is no disk.
for args in 'list --depth 4' 'info null:1M --rw read' 'bench' \
    'bench null:1M null:1M' 'bench null:1M --dept'; do
	# shellcheck disable=SC2086 # words
	"$O/ringback" $args >"$dir/out" 2>"$dir/err"
	status=$?
	if [ $status -eq 2 ] && [ -s "$dir/err" ]; then
		ok "ringback $args"
	else
		bad "ringback $args" "status $status"
	fi
done
answer_all
summary
