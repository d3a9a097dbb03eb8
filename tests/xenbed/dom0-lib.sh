# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# What a scenario may call in dom0:  . /xenbed/lib.sh

GUEST=/xenbed/guest

uptime_s() { cut -d' ' -f1 /proc/uptime; }

# wait_for SECONDS COMMAND...: until the command succeeds
wait_for() {
	local end=$((SECONDS + $1)); shift
	while ! "$@" > /dev/null 2>&1; do
		[ $SECONDS -lt $end ] || { echo "in vain: $*"; return 1; }
		sleep 0.2
	done
}

# ---- checks ------------------------------------------------------------------

PASSED=0 FAILED=0
LOG=/dev/null	# the daemon's, if there is one: a failed check shows its end

# check TEXT COMMAND...: one check; prints the command's output if it failed
check() {
	local text=$1 n=$((PASSED + FAILED + 1)) out; shift
	if out=$("$@" 2>&1); then
		PASSED=$((PASSED + 1))
		echo "ok $n - $text"
		return 0
	fi
	FAILED=$((FAILED + 1))
	echo "not ok $n - $text (at $(uptime_s) s)"
	{ echo "$out"; tail -n 6 "$LOG"; } | sed 's/^/#   /'
	xenstore-ls -f -p > "/out/failed-$n.xenstore.txt"
	return 1
}

# need TEXT COMMAND...: a check without which the rest makes no sense
need() { check "$@" || verdict; }

# verdict: says how it went, ends the scenario.  No check at all is a failure.
verdict() {
	echo "$PASSED passed, $FAILED failed (at $(uptime_s) s)"
	[ $FAILED = 0 ] && [ $PASSED -gt 0 ]
	exit
}

# Commands for checks: each says what is wrong.
succeeded() { echo "$2"; [ "$1" = 0 ]; }	# STATUS OUTPUT
fails() { ! "$@" || { echo "succeeded: $*"; return 1; }; }
equal() { [ "$1" = "$2" ] || { echo "'$1' is not '$2'"; return 1; }; }
is_empty() { [ -z "$1" ] || { echo "left over: $1"; return 1; }; }
mentions() { echo "$1" | grep -E "$2" || { echo "no '$2' in: $1"; return 1; }; }

# prints_nothing FUNCTION: for things that take a moment to go away
prints_nothing() { [ -z "$("$@" 2>/dev/null)" ]; }

# ---- guests ------------------------------------------------------------------

# guest_make NAME [KEY=VALUE]... [disk=SPEC]...: writes /tmp/NAME.cfg and the
# guest's initramfs.  KEYs: memory vcpus type reboot script cmdline
guest_make() {
	local name=$1 memory=512 vcpus=1 type=pv reboot=destroy
	local script='' cmdline='' disks='' extra='' d
	shift
	for d; do
		case $d in
		disk=*) disks="$disks'${d#disk=}'," ;;
		memory=* | vcpus=* | type=* | reboot=* | script=* | cmdline=*)
			local "$d" ;;
		*) echo "guest_make: what is $d?"; return 1 ;;
		esac
	done
	d=$(mktemp -d)
	[ -z "$script" ] || cp "$script" "$d/guest.sh"
	cp $GUEST/initramfs.cpio "/tmp/$name.initrd"
	(cd "$d" && find . | cpio -o -H newc --quiet) >> "/tmp/$name.initrd"
	rm -rf "$d"
	[ "$XENBED_SMP" = 1 ] || extra="cpus = \"1-$((XENBED_SMP - 1))\""
	# PVH runs on QEMU's emulation of AMD SVM, which does not report the
	# length of an intercepted RDTSCP: let the guest read the TSC natively.
	[ "$type" = pv ] || extra="$extra"$'\n''tsc_mode = "native"'
	cat > "/tmp/$name.cfg" <<E
name = "$name"
type = "$type"
memory = $memory
vcpus = $vcpus
$extra
kernel = "$GUEST/vmlinux"
ramdisk = "/tmp/$name.initrd"
extra = "console=hvc0 panic=-1 loglevel=4 mitigations=off $cmdline"
on_poweroff = "destroy"
on_reboot = "$reboot"
on_crash = "destroy"
vif = []
disk = [ $disks ]
E
}

guest_log() { echo "/var/log/xen/console/guest-$1.log"; }
guest_gone() { ! xl domid "$1"; }

# guest_booted NAME N: it came up for the Nth time
guest_booted() { [ "$(grep -c '^GUEST-UP' "$(guest_log "$1")")" = "$2" ]; }

# guest_boot NAME: creates the guest and waits until it takes orders
guest_boot() {
	need "$1: xl create" xl create "/tmp/$1.cfg"
	need "$1: the guest is up" wait_for 180 guest_booted "$1" 1
}

# guest NAME COMMAND: runs a shell command in the guest, prints its output, and
# returns its status (124: no answer in time)
guest() {
	local n id log answer
	n=$(uptime_s) log=$(guest_log "$1")
	id=$(xl domid "$1") || return 124
	xenstore-write "/local/domain/$id/data/order" "$n $2" || return 124
	if ! wait_for 120 grep -q "^END $n " "$log"; then
		echo "guest $1: no answer to: $2"
		tail -20 "$log"
		return 124
	fi
	answer=$(tr -d '\r' < "$log" | sed -n "/^BEGIN $n\$/,/^END $n /p")
	echo "$answer" | sed '1d;$d'
	return "${answer##* }"
}

# ---- xenstore ----------------------------------------------------------------

# backend_nodes KIND: all nodes of devices below backend/KIND
backend_nodes() {
	xenstore-ls -f "/local/domain/0/backend/$1" 2>/dev/null |
	    grep '/[0-9]*/[0-9]*/'
}

# devid VDEV: the number of xvda ... xvdp
devid() { echo $((202 * 256 + ($(printf %d "'${1#xvd}") - 97) * 16)); }

# frontend NAME VDEV NODE: a node of the guest's half of a disk
frontend() {
	local id; id=$(xl domid "$1") || return 1
	xenstore-read "/local/domain/$id/device/vbd/$(devid "$2")/$3"
}
