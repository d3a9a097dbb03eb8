#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# test_watch: ringback top, inflight and stats --prometheus on a real ringbackd:
# what they show is what happens, and they show it when the disk process hangs,
# when it or the daemon is dead, and when a page file lies.
#
# It mostly waits, so tests/run.sh runs it beside others.
set -u
if [ "$(id -u)" -ne 0 ]; then
	echo "skip what page files tell: it needs root"
	exit 77
fi
. tests/machine.sh

# the process of a disk, by the page file
process_of() {
	"$O/page_poke" "$dir/run/$1.page" show | sed 's/pid=\([0-9]*\) .*/\1/'
}

# io DISK OPTIONS ...: in the background
io_start() {
	guest 7 io "$@" --json >"$dir/json" 2>&1 &
	io=$!
}

# inflight_shows N PATTERN DOMAIN VDEV: exactly so many requests, all like that
inflight_shows() {
	n=$1 pattern=$2
	shift 2
	rb inflight "$@" >"$dir/inflight" 2>&1 || { cat "$dir/inflight"; return 1; }
	[ "$(grep -c . "$dir/inflight")" -eq $((n + 1)) ] &&
	    [ "$(grep -cE "$pattern" "$dir/inflight")" -eq "$n" ] && return
	cat "$dir/inflight"
	return 1
}

# The sum over all samples of top is what the counters say.
top_agrees() {
	: >"$dir/top"
	rb top --json --interval 0.2 --count 9 >"$dir/top" 2>&1 &
	top=$!
	wait_until 5 test -s "$dir/top"	# it has begun
	guest 7 io xvda --rw write --bs 4k --ios 300 --depth 4 >/dev/null &&
	    guest 7 io xvda --rw read --bs 8k --ios 500 --depth 8 >/dev/null
	wait $top || { cat "$dir/top"; return 1; }
	python3 - "$dir/top" <<-'END'
	import json, sys
	total = {}
	samples = 0
	for line in open(sys.argv[1]):
	    s = json.loads(line)
	    samples += 1
	    (d,) = [d for d in s["disks"]
	            if d["vdev"] == "xvda" and d["domain"] == "guest-7"]
	    assert d["state"] in ("copy", "persistent"), d
	    assert d["cpu"] is not None and 0 <= d["cpu"] < 8, d
	    for k in ("reads", "writes", "read-bytes", "write-bytes"):
	        total[k] = total.get(k, 0) + d[k + "-per-s"] * s["interval"]
	    if d["reads-per-s"] + d["writes-per-s"] > 0:
	        assert 0 < d["mean-ns"] <= d["max-ns"] < 5e9, d
	want = {"reads": 500, "writes": 300, "read-bytes": 500 * 8192,
	        "write-bytes": 300 * 4096}
	assert samples == 9, samples
	for k in want:
	    assert abs(total[k] - want[k]) < 0.01, (k, total[k], want[k])
	END
}

# No escape sequence without a terminal, one table below the other.
top_is_plain() {
	rb top --interval 0.05 --count 2 --sort iops >"$dir/top" || return 1
	cat "$dir/top"
	[ "$(grep -c '^DOMAIN  *VDEV' "$dir/top")" -eq 2 ] &&
	    [ "$(grep -cE '^guest-7 +xvda( +[0-9.]+){9} .*copy$' "$dir/top")" \
	    -eq 2 ] && [ "$(grep -c '^a"b.c? ' "$dir/top")" -eq 2 ] && ! grep -q "$(printf '\033')" "$dir/top"
}

# On a terminal it is drawn over itself, and not wider than that.
top_on_terminal() {
	script -qec "stty cols 60 rows 20; '$O/ringback' --run-dir '$dir/run' top \
	    --interval 0.05 --count 2" /dev/null >"$dir/top" </dev/null ||
	    return 1
	cat -A "$dir/top"
	[ "$(grep -o "$(printf '\033\\[H')" "$dir/top" | wc -l)" -eq 3 ] &&
	    ! sed 's/\x1b\[[0-9;]*[A-Z]//g; s/\r//g' "$dir/top" |
	    grep -qE '.{61}'
}

# A disk that went between two samples, and one that came.
top_changes() {
	: >"$dir/top"
	rb top --json --interval 0.3 --count 8 >"$dir/top" &
	top=$!
	wait_until 5 test -s "$dir/top"
	rb detach 7 xvdb >/dev/null && sleep 0.4 &&
	    rb attach 7 xvdb "raw:$dir/b.img" >/dev/null
	wait $top || { cat "$dir/top"; return 1; }
	python3 - "$dir/top" <<-'END'
	import json, re, sys
	seen = ""	# g: gone, n: new, r: has rates
	for line in open(sys.argv[1]):
	    b = [d for d in json.loads(line)["disks"] if d["vdev"] == "xvdb"]
	    seen += "g" if b == [] else \
	            "n" if b[0]["reads-per-s"] is None else "r"
	assert re.fullmatch("r*g+nr+", seen), seen
	END
}

# What a request waits for, and for how long.
delayed() {
	io_start xvdc --rw randwrite --bs 16k --ios 3 --depth 3
	wait_until 5 inflight_shows 3 \
	    '^guest-7 xvdc 0 [0-9]+ write [0-9]+ 32 [0-9.]+ storage$' \
	    guest-7 xvdc || { cat "$dir/inflight"; return 1; }
	# Now it is certain that it is there: look at it twice.
	rb --json inflight 7 xvdc >"$dir/one" && sleep 0.3 &&
	    rb --json inflight guest-7 >"$dir/two" || return 1
	wait $io || { cat "$dir/json"; return 1; }
	inflight_shows 0 x || return 1
	python3 - "$dir/one" "$dir/two" <<-'END'
	import json, sys
	a, b = [{r["id"]: r for d in json.load(open(f))["disks"]
	         for r in d["requests"]} for f in sys.argv[1:]]
	assert len(a) == 3 and a.keys() == b.keys(), (a, b)
	for i in a:
	    assert 290 < b[i]["age-ms"] - a[i]["age-ms"] < 1500, (a[i], b[i])
	    assert b[i]["age-ms"] < 2500, b[i]
	    assert a[i]["waits-for"] == "storage", a[i]
	    assert a[i]["sector"] == b[i]["sector"] and a[i]["sectors"] == 32
	END
}

# What failed and waits for the operator.
held() {
	io_start xvdd --rw write --bs 4k --ios 1 --depth 1
	wait_until 5 inflight_shows 1 \
	    'xvdd .* write .* the operator .*ringback resume' 7 xvdd || return 1
	rb resume 7 xvdd && wait $io && inflight_shows 0 x 7 xvdd
}

# within_s S CMD ...
within_s() {
	limit=$1 began=$(date +%s)
	shift
	"$@" || return 1
	[ $(($(date +%s) - began)) -le "$limit" ] || {
		echo "it took $(($(date +%s) - began)) s"
		return 1
	}
}

# The process of the disk hangs; the daemon hangs too, then is dead.
hangs() {
	pid=$(process_of 7-51744)
	io_start xvdc --rw read --bs 4k --ios 1 --depth 1
	wait_until 5 inflight_shows 1 'xvdc .* read .* storage$' 7 xvdc ||
	    return 1
	kill -STOP "$pid" "$daemon"
	within_s 3 inflight_shows 1 '^7 xvdc 0 [0-9]+ read .* storage$' 7 xvdc
	shown=$?
	kill -CONT "$daemon"
	[ $shown -eq 0 ] || return 1
	kill "$daemon"
	wait "$daemon"
	daemon=
	inflight_shows 1 '^7 xvdc 0 [0-9]+ read [0-9]+ 8 [0-9.]+ storage$' 7 &&
	    rb top --count 1 --interval 0.05 | grep -E '^7 +xvdc .* copy$' &&
	    rb stats --prometheus 7 xvdc | grep 'in_flight.* 1$' &&
	    fails_named || return 1
	kill -KILL "$pid"
	wait_until 5 inflight_shows 1 'storage; its process is dead$' 7 &&
	    rb top --count 1 --interval 0.05 | grep -E '^7 +xvdc .* dead$' &&
	    rb stats --prometheus | grep 'vbd_up{.*xvdc"} 0$' || return 1
	daemon_start && wait $io && inflight_shows 0 x
}

# Without the daemon nobody knows the names.
fails_named() {
	rb inflight guest-7 2>"$dir/err" && return 1
	cat "$dir/err"
	grep -q 'guest-7 .*by number' "$dir/err"
}

# Page files that lie about everything: no crash, and each line well-formed.
lies() {
	page=$dir/run/7-51712.page
	for seed in 1 2 3 4 5 6 7 8; do
		"$O/page_poke" "$page" junk $seed || return 1
		rb inflight 7 xvda >"$dir/inflight" || return 1
		sed 1d "$dir/inflight" | grep -vE '^guest-7 xvda 0 [0-9]+ '\
'(read|write|flush|barrier|discard|unknown) [0-9]+ (-|[0-9]+) (-|[0-9.]+) '\
'[a-z]' && return 1
		rb --json inflight 7 xvda | python3 -m json.tool >/dev/null ||
		    return 1
	done
	for seed in 1 2 3; do
		"$O/page_poke" "$page" counters $seed &&
		    rb stats --prometheus >"$dir/prom" && well_formed &&
		    rb top --count 1 --interval 0.05 --json |
		    python3 -m json.tool >/dev/null || return 1
	done
	"$O/page_poke" "$page" set order 4000000000
	"$O/page_poke" "$page" set req_cons 5
	"$O/page_poke" "$page" set used_queues 4000000000
	rb inflight 7 && rb top --count 1 --interval 0.05 || return 1
	"$O/page_poke" "$page" set layout 1
	rb inflight 7 >"$dir/out" 2>&1 && return 1
	cat "$dir/out"
	grep -q '^ringback: guest-7 xvda: its page file is none' "$dir/out" &&
	    rb top --count 1 --interval 0.05 |
	    grep '^guest-7 .*xvda .*its page file is none' &&
	    rb stats --prometheus 2>/dev/null |
	    grep 'vbd_up{.*xvda"} 0$' || return 1
	rb stats --prometheus 7 xvda >/dev/null 2>&1 && return 1
	: >"$page"
	rb top --count 1 --interval 0.05 | grep '^guest-7 .*xvda .*none' &&
	    rb stats --prometheus >"$dir/prom" && well_formed
}

# ---- the text format of Prometheus -----------------------------------------------

# Read by a parser that knows nothing of ringback.
well_formed() {
	python3 - "$dir/prom" <<-'END'
	import re, sys
	text = open(sys.argv[1], newline="").read()
	assert text.endswith("\n") and "\r" not in text
	name = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
	label = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*"'
	sample = re.compile(r"(%s)(?:\{(%s(?:,%s)*)\})? (\S+)$" %
	                    (name, label, label))
	types, helps, seen, done, last, hist = {}, set(), set(), set(), None, {}
	for line in text.split("\n")[:-1]:
	    m = re.match(r"# (HELP|TYPE) (%s) (.*)$" % name, line)
	    if m:
	        family = m[2]
	        assert family not in done, "twice: " + line
	        if last not in (None, family):
	            done.add(last)
	        last = family
	        if m[1] == "HELP":
	            assert family not in helps, line
	            helps.add(family)
	        else:
	            assert family not in types, line
	            assert m[3] in ("counter", "gauge", "histogram"), line
	            types[family] = m[3]
	        continue
	    m = sample.match(line)
	    assert m, "no sample: " + line
	    family = m[1]
	    if types.get(last) == "histogram":
	        family = re.sub("_(bucket|sum|count)$", "", family)
	    assert family == last and family in types, "not in order: " + line
	    assert family.startswith("ringback_"), line
	    if types[family] == "counter":
	        assert family.endswith("_total"), line
	    assert (m[1], m[2]) not in seen, "twice: " + line
	    seen.add((m[1], m[2]))
	    value = float(m[3])
	    assert value >= 0, line
	    if m[1].endswith("_bucket"):
	        le = re.search(r',le="([^"]*)"$', m[2])
	        key = (family, m[2][:le.start()])
	        hist.setdefault(key, []).append((float(le[1]), value))
	    elif types[family] == "histogram" and m[1].endswith("_count"):
	        assert hist[(family, m[2])][-1] == (float("inf"), value), line
	for key, buckets in hist.items():
	    assert len(buckets) > 10 and buckets == sorted(buckets), key
	    assert sorted(b[1] for b in buckets) == [b[1] for b in buckets], key
	assert helps == set(types) and len(types) > 20, types
	END
}

# of WHAT: the value of a sample of disk xvda
of() {
	grep "^ringback_$1 " "$dir/prom" | sed 's/.* //'
}

prometheus() {
	rb stats --prometheus >"$dir/prom" || return 1
	well_formed && rb --json stats 7 xvda >"$dir/stats" || return 1
	l='domain="guest-7",domid="7",vdev="xvda"'
	[ "$(of "vbd_operations_total{$l,operation=\"read\"}")" -eq 500 ] &&
	    [ "$(of "vbd_operations_total{$l,operation=\"write\"}")" -eq 300 ] &&
	    [ "$(of "vbd_bytes_total{$l,operation=\"read\"}")" -eq 4096000 ] &&
	    [ "$(of "vbd_latency_seconds_count{$l,operation=\"read\"}")" -eq \
	    500 ] && [ "$(of "vbd_up{$l}")" -eq 1 ] &&
	    [ "$(of "vbd_queues{$l}")" -eq 1 ] &&
	    [ "$(of 'build_info{version="0.1"}')" -eq 1 ] || return 1
	for k in copy-calls:grant_copy_calls notifies:notifications ios:ios \
	    events:events; do
		grep -o "\"${k%:*}\":[0-9]*" "$dir/stats" |
		    grep -qx "\"${k%:*}\":$(of "vbd_${k#*:}_total{$l}")" || {
			echo "$k: $(of "vbd_${k#*:}_total{$l}") in:"
			cat "$dir/stats"
			return 1
		}
	done
	# One of them; and a name that is not easy to write.
	rb stats --prometheus guest-7 xvda >"$dir/prom" && well_formed &&
	    ! grep -q xvdb "$dir/prom" && rb stats --prometheus >"$dir/prom" &&
	    well_formed && grep -qF "$(printf 'domain="a\\"b\\\\c\033",domid="8"')" "$dir/prom"
}

usage_errors() {
	for line in "top 7" "top --interval 0" "top --count 0" \
	    "top --sort size" "top --prometheus" "inflight 7 xvda 1" \
	    "inflight --interval 1" "--json stats --prometheus" \
	    "list --interval 1" "top --nonsense"; do
		# shellcheck disable=SC2086 # words
		rb $line >"$dir/out" 2>&1
		[ $? -eq 2 ] || { echo "$line: $(cat "$dir/out")"; return 1; }
	done
	for line in "inflight 9" "inflight 7 xvdz" "inflight 7 foo" \
	    "stats --prometheus none"; do
		# shellcheck disable=SC2086
		rb $line >"$dir/out" 2>&1
		[ $? -eq 1 ] || { echo "$line: $(cat "$dir/out")"; return 1; }
	done
	"$O/ringback" --run-dir "$dir/none" top >"$dir/out" 2>&1
	[ $? -eq 1 ] && grep -q "$dir/none.*--run-dir" "$dir/out"
}

machine_start
# A name that must not move the cursor, nor end a label.
guest_start 7 && guest_start 8 --name "$(printf 'a"b\\c\033')" || exit 1
for f in a b c d e; do
	truncate -s 16M "$dir/$f.img"
done
rb attach 7 xvda "raw:$dir/a.img" >/dev/null &&
    rb attach 7 xvdb "raw:$dir/b.img" >/dev/null &&
    rb attach 7 xvdc "fault,merge=0:delay-ms=1200:raw:$dir/c.img" >/dev/null &&
    rb attach 7 xvdd "fault,on-error=stop:nth=1,op=write:raw:$dir/d.img" \
    >/dev/null && rb attach 8 xvda "raw:$dir/e.img" >/dev/null || exit 1

check "top adds up to what happened" top_agrees
check "stats --prometheus" prometheus
check "top without a terminal" top_is_plain
check "top on a terminal" top_on_terminal
check "top: disks come and go" top_changes
check "inflight: storage that is slow" delayed
check "inflight: held by on-error=stop" held
check "a disk process that hangs and dies, no daemon" hangs
check "page files that lie" lies
check "called wrongly" usage_errors
summary
