#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# test_compare: ringback compare with backends that print what was planned: the
# ratios that come of it, the order of the runs, what fails and how that is
# told, what is written where.  Then once each with a real fio and a real guest.
set -u
O=${O:-build}
. tests/machine.sh
dir=$(mktemp -d "${TMPDIR:-/dev/shm}/ringback.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
mkdir "$dir/bin" "$dir/plan"

# fake NAME RW BS QD VERIFY: line N of plan/NAME is what its Nth run that is
# timed does: a speed in MB/s, or commands; the last line goes on.  plan/NAME-v
# is for runs that verify.  Each run is a line of the log.
cat >"$dir/bin/fake" <<'END'
#!/bin/sh
cd "${0%/*}/.." || exit 1
echo "$*" >>log
plan=plan/$1 dir=${2#rand} bs=$3 n=0 does=100
[ "$5" = 0 ] || plan=$plan-v
[ ! -e "$plan.runs" ] || read -r n <"$plan.runs"
n=$((n + 1))
echo $n >"$plan.runs"
[ ! -e "$plan" ] || while [ $n -gt 0 ] && read -r line; do
	does=$line n=$((n - 1))
done <"$plan"
json() {
	echo "{\"jobs\": [{\"error\": ${3:-0}, \"$1\": {
	    \"total_ios\": ${4:-10}, \"bw_bytes\": ${2}000000,
	    \"iops\": $(($2 * 1000000 / bs)), \"clat_ns\": {\"percentile\":
	    {\"50.000000\": 5000, \"99.000000\": 9000}}}}]}"
}
case $does in
*[!0-9]*)	eval "$does" ;;
*)		json "$dir" "$does" ;;
esac
END
# A guest, and a fio in it.
cat >"$dir/bin/ssh" <<'END'
#!/bin/sh
echo "$1" >>"${0%/*}/../hosts"
shift
exec sh -c "$*"
END
cat >"$dir/bin/fio" <<'END'
#!/bin/sh
cd "${0%/*}/.." || exit 1
echo "$*" >>log
case $* in
*bad.img*--verify=*)	echo "crc32c: verify failed" >&2; exit 1 ;;
esac
dir=$(echo "$*" | sed 's/.*--rw=\(rand\)*\([a-z]*\).*/\2/')
echo 'fio: a note that is not JSON'
echo "{\"jobs\": [{\"error\": 0, \"$dir\": {\"total_ios\": 1,
\"bw_bytes\": 5e6, \"iops\": 9}}]}"
END
chmod +x "$dir/bin/"*

# plan NAME LINE ...
plan() {
	planned=$1
	shift
	printf '%s\n' "$@" >"$dir/plan/$planned"
}

fake() {
	echo "$1=!$dir/bin/fake $1 {rw} {bs} {qd} {verify}"
}

# compare ARGS: the exit status; what it prints is in out and err, all runs in
# the log, JSON in json.
compare() {
	rm -f "$dir/plan/"*.runs "$dir/json" "$dir/log" "$dir/hosts"
	: >"$dir/log"
	PATH=$path timeout 60 "$O/ringback" compare \
	    --json "$dir/json" "$@" >"$dir/out" 2>"$dir/err"
}

# ends NAME STATUS ARGS ...
ends() {
	ended=$1 want=$2
	shift 2
	compare "$@"
	status=$?
	if [ $status -eq "$want" ]; then
		ok "$ended"
	else
		bad "$ended" "status $status: $(cat "$dir/out" "$dir/err")"
	fi
}

# prints NAME PATTERN [FILE]
prints() {
	if grep -qE -- "$2" "$dir/${3:-out}"; then
		ok "$1"
	else
		bad "$1" "$(cat "$dir/${3:-out}")"
	fi
}

# asks NAME EXPRESSION: of the JSON, in python: d is all of it, c the columns
# of its first cell.
asks() {
	if python3 - "$dir/json" "$2" 2>"$dir/python" <<-'END'
	import json, sys
	d = json.load(open(sys.argv[1]))
	c = d['cells'][0]['columns']
	sys.exit(0 if eval('(' + sys.argv[2] + ')') else 1)
	END
	then
		ok "$1"
	else
		bad "$1" "$(cat "$dir/python" "$dir/json")"
	fi
}

runs_of() {
	grep -c "^$1 .*0\$" "$dir/log"
}

one='--cells read/4k/1' path=$dir/bin:$PATH
# Like no other on this machine.
nap=60.$$

# ---- ratios ----------------------------------------------------------------
plan a 9999 190 110 150 130 170 120 180 140 160
plan limit 200
# shellcheck disable=SC2086 # words
ends "three columns" 0 $one --note "a=order 4, 32 segments" "$(fake a)" \
    "$(fake b)" "$(fake limit)"
asks "the median of the ratios and its interval" 'c["b"]["ratio"] ==
    {"n": 9, "median": 1.5, "low": 1.2, "high": 1.8} and
    c["b"]["verdict"] == "ahead"'
asks "the first repeat is thrown away" 'c["a"]["runs_bw_bytes"] ==
    [n * 1e7 for n in (19, 11, 15, 13, 17, 12, 18, 14, 16)]'
asks "the limit has a ratio, but no verdict" 'c["limit"]["ratio"]["median"] ==
    0.75 and "verdict" not in c["limit"]'
asks "medians of the first, latencies" 'c["a"]["bw_bytes"]["median"] == 1.5e8
    and c["a"]["iops"] == 36621 and c["a"]["clat_p50_ns"] == 5000 and
    c["a"]["clat_p99_ns"] == 9000 and c["a"]["backend_cpu_ns_per_io"] is None'
prints "a row of the table" \
    '^read 4k/1 +36\.6k/s  1\.50 \[1\.20-1\.80\]\+  0\.75 \[0\.60-0\.90\]$'
prints "the sum" '^a / b: median of 1 cells 1\.50; ahead 1, behind 0, undec.* 0$'
prints "... of all peers, which the limit is not" \
    '^a is ahead of every peer in 1 of 1 cells$'
prints "notes stand in the head" '^  a +verified; order 4, 32 segments$'
prints "... and so does a missing one" '^  b +verified; no --note'

plan a 1 14 20 1000 60 2 8 400 12 160
plan b 1 7 10 500 30 1 4 200 6 80
# shellcheck disable=SC2086 # words
ends "what drifts" 0 $one "$(fake a)" "$(fake b)"
asks "... drifts for all of a repeat" 'c["b"]["ratio"] ==
    {"n": 9, "median": 2, "low": 2, "high": 2}'

plan a 100
plan b 110
plan c 1 90 110 90 110 90 110 90 110 90
plan d 50
ends "many columns" 0 --cells 'read/64k/1' "$(fake a)" "$(fake b)" \
    "$(fake c)" "$(fake d)" "$(fake e)" "$(fake f)"
asks "... with all verdicts" '[c[n]["verdict"] for n in "bcdef"] ==
    ["behind", "undecided", "ahead", "undecided", "undecided"]'
prints "... each with its mark" '^read 64k/1 +100 MB/s  .*\]-  .*\]\?  .*\]\+  .*\]\?$'
prints "... named by cells" '^  behind: +read 64k/1$'
ends "fewer than 6" 0 --cells 'read/64k/1' --repeats 5 "$(fake a)" "$(fake d)"
asks "... decide nothing" 'c["d"]["verdict"] == "undecided" and
    c["d"]["ratio"]["n"] == 5'

ends "the whole grid" 0 --repeats 1 --rw random "$(fake a)" "$(fake b)" \
    "$(fake c)" "$(fake d)" "$(fake limit)"
asks "... has 20 cells" '[(x["rw"], x["bs"], x["qd"]) for x in d["cells"]] ==
    [(rw, bs << 10, qd) for rw in ("read", "write") for qd in (1, 32)
    for bs in (4, 64, 256, 1024, 4096)]'
if [ -z "$(awk '/^(read|write|  behind|     )/ && length > 100' "$dir/out")" ]
then
	ok "... in 100 columns"
else
	bad "... in 100 columns" "$(cat "$dir/out")"
fi
if [ "$(grep -c '^a randwrite 4194304 32 0$' "$dir/log")" -eq 2 ]; then
	ok "... at random"
else
	bad "... at random" "$(cat "$dir/log")"
fi

# ---- the order -------------------------------------------------------------
ends "two cells, three repeats" 0 --cells 'write/64k/32,read/*/2' --repeats 2 \
    --seconds 0.5 "$(fake a) {seconds}0" "$(fake b)" "$(fake c)"
for n in a b c; do
	[ "$n" = a ] && end=' 0.50' || end=
	echo "$n write 65536 32 1$end"
	echo "$n read 65536 32 1$end"
done >"$dir/want"
for turns in 'a b c' 'b c a' 'c a b'; do
	for cell in 'write 65536 32' 'read 4096 2' 'read 65536 2' \
	    'read 262144 2' 'read 1048576 2' 'read 4194304 2'; do
		for n in $turns; do
			[ "$n" = a ] && end=' 0.50' || end=
			echo "$n $cell 0$end"
		done
	done
done >>"$dir/want"
check "the backends take turns, all verified before" \
    diff "$dir/want" "$dir/log"

a=$(fake a) b=$(fake b) c=$(fake c)

# ---- what fails ------------------------------------------------------------
plan a 100
plan b 'echo one >&2; echo no such disk >&2; exit 3'
ends "a backend that always fails" 1 --cells 'read/4k/1,read/64k/1' \
    "$a" "$b" "$c"
prints "... says why" '^ringback compare: b, read 4k/1, repeat 0: exit status 3: no such disk$' err
prints "... in the table" '^read 4k/1 +24.4k/s  failed '
if [ "$(runs_of b)" -eq 6 ] && [ "$(runs_of c)" -eq 20 ]; then
	ok "... is given up after 3 runs of a cell, alone"
else
	bad "... is given up after 3 runs of a cell, alone" "$(cat "$dir/log")"
fi
asks "... and the others are compared" 'c["b"]["failed"] is True and
    c["b"]["failed_runs"] == 3 and c["b"]["verdict"] == "failed" and
    c["c"]["ratio"]["n"] == 9 and c["c"]["failed"] is False'
plan b 100 100 'kill -9 $$' 100
# shellcheck disable=SC2086 # words
ends "one run that fails" 0 $one "$a" "b=!exec ${b#*!}"
prints "... is told" 'repeat 2: it was ended by signal 9' err
prints "... and counted" '^b, read 4k/1: 1 runs failed$'
asks "... and missed" 'c["b"]["ratio"]["n"] == 8 and
    c["b"]["runs_bw_bytes"][1] is None and c["a"]["bw_bytes"]["n"] == 9'
plan b 'exit 1'
# shellcheck disable=SC2086 # words
ends "a backend that fails with few repeats" 1 $one --repeats 1 "$a" \
    "$b"

while IFS='|' read -r name does words; do
	plan b "nap=$nap; $does"
	# shellcheck disable=SC2086 # words
	ends "$name" 1 $one --timeout 0.3 --seconds 0.1 "$a" "$b"
	prints "... is told" "b, read 4k/1, repeat 0: $words" err
done <<'END'
nothing printed|:|it prints no JSON, but nothing
no JSON|echo hello|it prints no JSON$
broken JSON|echo '{"jobs": [}'|it prints broken JSON, line 1
an error in the JSON|json read 5 28|its JSON says error 28 \(No space
another direction|json write 5|its JSON has no read
no I/O|json read 5 0 0|its JSON has no read
two jobs|echo '{"jobs": [{}, {}]}'|its JSON has 2 jobs
a number that is none|json read 5 0 '"x"'|its JSON has no read
a run that hangs|echo hm >\&2; sleep $nap|it did not end within 0.4 s
more than fio prints|yes $nap|it prints more than 16 MiB
END
if pgrep -f "^(sleep|yes) $nap\$" >"$dir/left"; then
	bad "nothing is left of what hung" "$(cat "$dir/left")"
else
	ok "nothing is left of what hung"
fi

# shellcheck disable=SC2016 # there
plan b 'json "$dir" 100 | sed "s/^{/{\"backend_cpu_ns\": 25000, /"'
# shellcheck disable=SC2086 # words
ends "the CPU of a backend" 0 $one --repeats 1 "$a" "$b"
asks "... is told per I/O" 'c["b"]["backend_cpu_ns_per_io"] == 2500'
prints "... in the table" '^read 4k/1 +2\.50$'

# ---- verification ----------------------------------------------------------
plan b 100
plan b-v 100 'echo sector 7 >&2; exit 1'
# shellcheck disable=SC2086 # words
ends "a backend that is not right" 1 $one "$a" "$b" "$c"
prints "... is told" '^  b +LEFT OUT, verification failed'
prints "... in its cells" '^read 4k/1 +24.4k/s  failed +1\.'
prints "... with the reason" '^b: verification failed: read: .*: sector 7$'
if [ "$(runs_of b)" -eq 0 ] && [ "$(runs_of c)" -eq 10 ]; then
	ok "... and not timed, the others are"
else
	bad "... and not timed, the others are" "$(cat "$dir/log")"
fi
# shellcheck disable=SC2086 # words
ends "... without verification" 0 $one --no-verify "$a" "$b"
plan a-v 'exit 1'
# shellcheck disable=SC2086 # words
ends "the first is not right" 1 $one "$a" "$c"
if [ "$(runs_of a)" -eq 0 ] && [ "$(runs_of c)" -eq 0 ]; then
	ok "... then nothing is timed"
else
	bad "... then nothing is timed" "$(cat "$dir/log")"
fi
rm "$dir/plan/a-v" "$dir/plan/b-v"
# shellcheck disable=SC2086 # words
ends "no {verify}" 0 $one --repeats 1 "$a" \
    "b=!$dir/bin/fake b {rw} {bs} {qd} 0"
prints "... is told" '^  b +not verified \(its command has no \{verify\}\)'

# ---- the baseline ----------------------------------------------------------
plan a 120
plan b 1 90 110 100 95 105 92 108 98 102
# shellcheck disable=SC2086 # words
ends "an earlier run" 0 $one "$a" "$b"
cp "$dir/json" "$dir/then"
# shellcheck disable=SC2086 # words
ends "as it was then" 0 $one --baseline "$dir/then" "$a" "$b"
prints "... nothing is worse" '^  1 compared, 0 worse'
plan a 110
# shellcheck disable=SC2086 # words
ends "worse within the interval" 0 $one --baseline "$dir/then" "$a" \
    "$b"
plan a 100
# shellcheck disable=SC2086 # words
ends "worse beyond it" 1 $one --baseline "$dir/then" "$a" "$b"
prints "... is told" \
    '^  worse: read 4k/1, / b: 1\.00 \[0\.93-1\.09\], was 1\.20 \[1\.11-1\.30\]$'
plan a 200
# shellcheck disable=SC2086 # words
ends "better" 0 $one --baseline "$dir/then" "$a" "$b"
plan a 119
# shellcheck disable=SC2086 # words
ends "one column: its speed" 1 $one --baseline "$dir/then" "$a"
prints "... is told" 'worse: read 4k/1, a: 119\.00 .* MB/s, was 120\.00'
# shellcheck disable=SC2086 # words
ends "too few repeats for the baseline" 1 $one --repeats 2 \
    --baseline "$dir/then" "$a" "$b"
prints "... are told" 'both need 6 ratios'
echo '{"ringback compare": 1, "pattern": "sequential", "first": "a",
    "cells": [{"cell": "read 4k/1", "columns": {"b": {"ratio": {"n": 9,
    "low": -1, "median": "x", "high": 5}}}}, 7]}' >"$dir/odd"
echo '[1, {}]' >"$dir/list"

# ---- called wrongly --------------------------------------------------------
# says WORDS ARGS ...: it is refused, with the words, and nothing runs.
says() {
	words=$1
	shift
	compare "$@"
	status=$?
	if [ $status -eq 2 ] && grep -qE -- "$words" "$dir/err" &&
	    ! [ -s "$dir/log" ] && ! [ -e "$dir/json" ]; then
		ok "refused: $words"
	else
		bad "refused: $words" "status $status: $(cat "$dir/err")"
	fi
}
says 'it has --rw sequential, this run random' --rw random \
    --baseline "$dir/then" "$a" "$b"
says 'its ratios are those of a, not of b' --baseline "$dir/then" "$b" "$a"
says 'no cell and target in common' --baseline "$dir/then" "$a" "$c"
says 'no cell and target in common' --baseline "$dir/then" \
    --cells 'write/*/*' "$a" "$b"
says 'no cell and target in common' --baseline "$dir/odd" "$a" "$b"
says 'not what --json' --baseline "$dir/list" "$a" "$b"
says "$dir/none: " --baseline "$dir/none" "$a" "$b"
says 'which targets'
says 'NAME=TARGET' "$a" /dev/xvdb
says 'NAME=TARGET' =/dev/xvdb
says 'NAME=TARGET' seventeen.letters=/dev/xvdb
says 'two columns of the name a' "$a" "$a"
says 'more than 8 targets' "$a" "$b" 3=/x 4=/x 5=/x 6=/x 7=/x 8=/x 9=/x
says 'neither a path' "$a" b=dev/xvdb
says 'other characters' 'a=/dev/xvdb;reboot'
# shellcheck disable=SC2016 # not here
says 'other characters' 'a=/dev/$(reboot)'
says 'no \{rw\}' 'a=!fio --bs={bs} --iodepth={qd}'
says 'no \{bs\}' 'a=!fio --rw={rw} --iodepth={qd}'
says 'no \{qd\}' 'a=!fio --rw={rw} --bs={bs}'
says 'the limit is no backend' "$(fake limit)" "$a"
says 'name of a target' --note c=x "$a"
says 'name of a target' --note x "$a"
says 'not UTF-8' --note "a=$(printf '\377')" "$a"
# shellcheck disable=SC2046 # words
says 'too many' $(seq 33 | sed 's/.*/--note a=&/') "$a"
says 'read, write or' --cells trim/4k/1 "$a"
says 'give read/4k/1' --cells read/4k "$a"
says 'give read/4k/1' --cells '' "$a"
says 'multiple of 512' --cells read/1000/1 "$a"
says 'multiple of 512' --cells read/65m/1 "$a"
says '1 to 1024' --cells read/4k/0 "$a"
says '1 to 1024' --cells 'read/4k/1/1' "$a"
says 'more than 64' --cells "$(seq -s, -f 'read/4k/%.0f' 65)" "$a"
says 'sequential or random' --rw read "$a"
says '1 to 999' --repeats 0 "$a"
says '1 to 999' --repeats 1000 "$a"
says '0.01 to 86400' --seconds 0 "$a"
says '0.01 to 86400' --timeout 1s "$a"
says 'give two targets' --plot "$dir/p.svg" "$a"
says 'usage' --depth 4 "$a"
"$O/ringback" --json compare "$a" >"$dir/out" 2>"$dir/err"
status=$?
prints "compare has to be the first word" 'first word' err
[ $status -eq 2 ] || bad "... status $status, not 2"
check "--help" sh -c "'$O/ringback' compare --help | grep -q -- --baseline"
for kind in json plot; do
	# shellcheck disable=SC2086 # words
	ends "a file that cannot be written" 1 $one --repeats 1 \
	    --$kind "$dir/no/file" "$a" "$b"
	prints "... is told" "write $dir/no/file: No such file" err
done

# ---- fio on paths ----------------------------------------------------------
ends "paths, without --destroy" 0 --repeats 1 \
    --guest-exec "$dir/bin/ssh root@vm" r=/dev/xvdb t=/dev/xvdc "$a"
if ! grep -v '^a' "$dir/log" | grep -vE -- '--rw=read .*--readonly' &&
    ! grep -q write "$dir/log"; then
	ok "... are only read, and nobody writes"
else
	bad "... are only read, and nobody writes" "$(cat "$dir/log")"
fi
asks "... in 10 cells" 'len(d["cells"]) == 10 and
    {x["rw"] for x in d["cells"]} == {"read"}'
prints "... which the table says" '^Only cells that read: --destroy'
prints "... and that they are not verified" '^  r +not verified \(.*--destroy\)'
if [ "$(sort -u "$dir/hosts")" = root@vm ] &&
    [ "$(wc -l <"$dir/hosts")" -eq 40 ]; then
	ok "... in the guest"
else
	bad "... in the guest" "$(cat "$dir/hosts")"
fi
says 'say --destroy' --cells 'write/*/*' r=/dev/xvdb
ends "paths, with --destroy" 0 --repeats 1 --destroy --rw random \
    --seconds 0.25 --cells '*/64k/32' r=/dev/xvdb "$a"
sed -n '/^a/!p' "$dir/log" | sed 's/.*--filename/--filename/' >"$dir/got"
common='--filename=/dev/xvdb --allow_file_create=0 --size=100% --ioengine=libaio --direct=1 --bs=65536 --iodepth=32 --output-format=json'
timed='--time_based --runtime=250ms'
for n in 1 2; do
	echo "$common --rw=randread $timed --readonly --norandommap"
	echo "$common --rw=randwrite $timed --norandommap"
done | sed "1i $common --rw=write --io_size=64M --verify=crc32c --do_verify=1 --verify_fatal=1 --verify_state_save=0" >"$dir/want"
check "... are verified and written to" diff "$dir/want" "$dir/got"
if ! [ -e "$dir/hosts" ]; then
	ok "... here"
else
	bad "... here"
fi
# shellcheck disable=SC2086 # words
ends "a path that is not right" 1 $one --repeats 1 --destroy r=/dev/xvdb \
    t=/x/bad.img
prints "... is told" '^t: verification failed: write: .*crc32c: verify failed$'
check "... and not timed" sh -c "! grep 'bad.img.*time_based' '$dir/log'"

# ---- the picture -----------------------------------------------------------
plan a 100
plan b 1 1 90 90 110 110 90 90 110 110 90 90 110 110 90 90 110 110 90 90
plan c 50
plan d 'exit 1'
ends "a picture" 1 --cells '*/4k/1' --plot "$dir/p.svg" \
    --note 'b=<8 ms> & "quoted" ]]>' "$a" "$b" "$c" "$(fake d)" \
    "$(fake limit)"
check "... is XML, with every column and cell in it" python3 - "$dir/p.svg" \
    <<'END'
import sys
import xml.etree.ElementTree as tree
svg = '{http://www.w3.org/2000/svg}'
root = tree.parse(sys.argv[1]).getroot()
text = [t.text for t in root.iter(svg + 'text')]
for word in ('a', 'b', 'c', 'limit', '<8 ms> & "quoted" ]]>', 'read 4k/1',
             'write 4k/1', '100 MB/s', '1', 'failed'):
    assert word in text, word
dots = [d.get('fill') for d in root.iter(svg + 'circle')]
# three peers in the legend; c is decided and b is not, twice; d has none.
assert len(dots) == 3 + 4 and dots.count('#ffffff') == 2, dots
x = [float(d.get('cx')) for d in root.iter(svg + 'circle')][3:]
assert x[1] > x[0] and x[:2] == x[2:], x
assert 0 < float(root.get('width')) <= 1000
END

# ---- an interrupt ----------------------------------------------------------
plan a 100
plan c 100 100 100 "sleep $nap"
rm -f "$dir/plan/"*.runs "$dir/json"
# shellcheck disable=SC2086 # words
"$O/ringback" compare --json "$dir/json" $one "$a" "$c" \
    >"$dir/out" 2>"$dir/err" &
pid=$!
wait_until 20 pgrep -f "^sleep $nap\$"
kill -INT $pid
wait $pid
status=$?
if [ $status -eq 1 ] && ! pgrep -f "^sleep $nap\$" >/dev/null; then
	ok "an interrupt ends what runs"
else
	bad "an interrupt ends what runs" "status $status: $(cat "$dir/err")"
fi
prints "... and shows what there is" '^INTERRUPTED: 2 of the repeats are compl'
asks "... and saves it" 'd["interrupted"] is True and
    c["c"]["ratio"]["n"] == 2 and c["c"]["failed_runs"] == 0'

# ---- the real ones ---------------------------------------------------------
path=$PATH
head -c 8M /dev/zero >"$dir/real.img"
before=$(sha256sum <"$dir/real.img")
real="--repeats 1 --seconds 0.05 --cells */64k/32 a=$dir/real.img"
if fio --name=probe --filename="$dir/real.img" --readonly --rw=read --bs=4k \
    --ioengine=libaio --direct=1 --io_size=4k >/dev/null 2>&1; then
	# shellcheck disable=SC2086 # words
	ends "fio on a file" 0 $real
	asks "... is timed" 'len(d["cells"]) == 1 and
	    c["a"]["bw_bytes"]["n"] == 1 and c["a"]["clat_p50_ns"] > 0'
	check "... only reads" [ "$before" = "$(sha256sum <"$dir/real.img")" ]
	# shellcheck disable=SC2086 # words
	ends "fio on a file, with --destroy" 0 --destroy $real
	asks "... is verified" 'len(d["cells"]) == 2 and
	    d["columns"][0]["verified"] == "passed"'
	check "... writes" [ "$before" != "$(sha256sum <"$dir/real.img")" ]
	check "... within the file" [ "$(wc -c <"$dir/real.img")" -eq 8388608 ]
	check "... leaves nothing here" sh -c "! ls | grep 'state\$'"
	ends "fio on a path that is not there" 1 --repeats 1 --no-verify \
	    --destroy --cells write/4k/1 "a=$dir/none.img"
	check "... makes no file" [ ! -e "$dir/none.img" ]
else
	say "skip fio on a file: no direct I/O in $dir"
fi

rm -rf "$dir"
machine_start
head -c 8M /dev/zero >"$dir/real.img"
guest_start 7 || exit 1
check "attach a disk" rb attach guest-7 xvda "raw:$dir/real.img"
ends "a guest and ringback bench" 0 --repeats 1 --seconds 0.1 \
    --cells 'write/64k/32' "guest=!$O/loopfront to $dir/guest-7.sock io xvda \
    --rw {rw} --bs {bs} --depth {qd} --time {seconds} --json \
    \$([ {verify} = 0 ] || echo --verify)" "bench=!$O/ringback --json bench \
    --write --rw {rw} --bs {bs} --depth {qd} --time {seconds} null:64M"
asks "... are compared" 'c["bench"]["ratio"]["n"] == 1 and
    c["guest"]["clat_p50_ns"] > 0 < c["bench"]["clat_p50_ns"] and
    d["columns"][0]["verified"] == "passed"'
summary
