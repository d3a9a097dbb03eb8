#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# run: run tests and say how it went.
#
#   tests/run.sh TEST...        O=build and TEST_TIMEOUT=seconds are honoured
#
# A test is a cmocka program or a script NAME.sh.  Its cases are counted from
# cmocka's closing lines, or from the script's lines "ok NAME", "FAIL NAME"
# and "skip NAME: why"; what prints neither counts as one.  Exit status 0 is
# success, 77 skipped, everything else a failure, also when each case passed
# (a leak found at exit, a crash in the teardown).  All tests run; the exit
# status is 1 if one failed.
#
# One after the other, for some look at the time; but test programs of qcow2
# images and the scripts of BESIDE measure nothing, and run beside the others,
# in a row of their own.
O=${O:-build}
TEST_TIMEOUT=${TEST_TIMEOUT:-120}
BESIDE=" test_4kn.sh test_badinput.sh test_cache.sh test_compare.sh test_faults.sh test_grid.sh \
test_config.sh test_driver_domain.sh test_info.sh test_media.sh test_passages.sh test_qcow2_features.sh \
test_resize.sh test_store.sh test_watch.sh "
export O
passed=0 failed=0 skipped=0 bad=
start=$(date +%s)

mkdir -p "$O/logs" || exit 1

# Prints "PASSED FAILED SKIPPED" of the log.
count() {
	awk '
	/\[  (PASSED|FAILED|SKIPPED)  ?\] [0-9]+ test\(s\)/ {
		sub(/.*\[  /, "")
		n[$1] += $3
	}
	/^ok /                              { n["PASSED"]++ }
	/^FAIL /                            { n["FAILED"]++ }
	/^skip /                            { n["SKIPPED"]++ }
	END { print n["PASSED"] + 0, n["FAILED"] + 0, n["SKIPPED"] + 0 }' "$1"
}

# timeout makes a process group of its own, which no ^C reaches but through us;
# and a shell lets what runs in the background ignore it.
pid='' beside=''
stop() {
	[ -z "$pid" ] || kill "$pid"
	[ -z "$beside" ] || kill "$beside"
	exit 130
}
trap stop INT TERM

if [ -z "${RUN_ROW:-}" ]; then
	row=''
	for t in "$@"; do
		shift
		name=$(basename "$t")
		case $name in
		*.sh)		[ "${BESIDE#* "$name" }" = "$BESIDE" ] ;;
		test_qcow2*)	false ;;
		esac && set -- "$@" "$t" || row="$row $t"
	done
	# shellcheck disable=SC2086 # a list
	[ -z "$row" ] || RUN_ROW=1 sh "$0" $row >"$O/logs/beside" 2>&1 &
	[ -z "$row" ] || beside=$!
fi

for t in "$@"; do
	log=$O/logs/$(basename "$t").log
	began=$(date +%s)
	echo "---- $t"
	case $t in
	*.sh)	shell="sh" ;;
	*)	shell= ;;
	esac
	env --default-signal=INT,QUIT timeout -k 5 "$TEST_TIMEOUT" $shell "$t" \
	    </dev/null >"$log" 2>&1 &
	pid=$!
	wait "$pid"
	rc=$?
	cat "$log"
	read -r p f s <<-END
	$(count "$log")
	END
	case $rc in
	0)	[ $((p + f + s)) -gt 0 ] || p=1
		[ "$f" -eq 0 ] || rc="0 although a case failed" ;;
	77)	[ $((p + f + s)) -gt 0 ] || s=1 ;;
	124 | 137)
		rc="$rc: stopped after $TEST_TIMEOUT s"
		[ "$f" -gt 0 ] || f=1 ;;
	*)	[ "$f" -gt 0 ] || f=1 ;;
	esac
	passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
	took=$(($(date +%s) - began))
	if [ "$f" -gt 0 ]; then
		bad="$bad $t"
		echo "---- $t FAILED (exit status $rc, $took s)"
	elif [ "$took" -ge 5 ]; then
		echo "---- $t took $took s"
	fi
done

if [ -n "$beside" ]; then
	wait "$beside"
	rc=$?
	pid='' beside=''
	cat "$O/logs/beside"
	read -r p f s <<-END
	$(sed -n '$s/^\([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) .*/\1 \2 \3/p' \
	    "$O/logs/beside")
	END
	[ $rc -eq 0 ] || [ "${f:-0}" -gt 0 ] || f=1
	passed=$((passed + ${p:-0})) failed=$((failed + ${f:-0}))
	skipped=$((skipped + ${s:-0}))
fi
[ -z "$bad" ] || echo "failed:$bad"
echo "$passed passed, $failed failed, $skipped skipped" \
    "($(($(date +%s) - start)) s)"
[ "$failed" -eq 0 ]
