# SPDX-License-Identifier: GPL-2.0-or-later
# What a scenario may call in dom0:  . /xenbed/lib.sh

GUEST=/xenbed/guest

uptime_s() { cut -d' ' -f1 /proc/uptime; }

# wait_for SECONDS COMMAND...: until the command succeeds
wait_for() {
    local end=$((SECONDS + $1)); shift
    while ! "$@" > /dev/null 2>&1; do
        [ $SECONDS -lt $end ] || { echo "waited in vain for: $*"; return 1; }
        sleep 0.2
    done
}

# ---------------------------------------------------------------- checks

PASSED=0 FAILED=0

# check TEXT COMMAND...: one check; prints the command's output only when it failed
check() {
    local text=$1 n=$((PASSED + FAILED + 1)) out; shift
    if out=$("$@" 2>&1); then
        PASSED=$((PASSED + 1))
        echo "ok $n - $text"
        return 0
    fi
    FAILED=$((FAILED + 1))
    echo "not ok $n - $text (at $(uptime_s) s)"
    echo "$out" | sed 's/^/#   /'
    xenstore-ls -f -p > /out/failed-$n.xenstore.txt
    return 1
}

# need TEXT COMMAND...: a check without which the rest makes no sense
need() { check "$@" || verdict; }

# verdict: says how it went and ends the scenario.  No check at all is a failure.
verdict() {
    echo "$PASSED passed, $FAILED failed (at $(uptime_s) s)"
    [ $FAILED = 0 ] && [ $PASSED -gt 0 ]
    exit
}

equal() { [ "$1" = "$2" ] || { echo "'$1' is not '$2'"; return 1; }; }
not() { ! "$@"; }
is_empty() { [ -z "$1" ] || { echo "left over: $1"; return 1; }; }

# ---------------------------------------------------------------- guests

# guest_make NAME [KEY=VALUE]... [disk=SPEC]...: writes /tmp/NAME.cfg and the guest's
# initramfs.  KEYs: memory vcpus type reboot, script (see guest-init), cmdline
guest_make() {
    local name=$1 memory=512 vcpus=1 type=pv reboot=destroy script= cmdline= disks= d extra=
    shift
    for d; do
        case $d in
            disk=*) disks="$disks'${d#disk=}',";;
            memory=*|vcpus=*|type=*|reboot=*|script=*|cmdline=*) local "$d";;
            *) echo "guest_make: what is $d?"; return 1;;
        esac
    done
    d=$(mktemp -d)
    [ -z "$script" ] || cp "$script" $d/guest.sh
    { cat $GUEST/initramfs.cpio; (cd $d && find . | cpio -o -H newc --quiet); } > /tmp/$name.initrd
    rm -rf $d
    [ $XENBED_SMP = 1 ] || extra="cpus = \"1-$((XENBED_SMP - 1))\""
    # PVH runs on QEMU's emulation of AMD SVM, which does not report the length of an
    # intercepted RDTSCP: let the guest read the TSC natively.
    [ $type = pv ] || extra="$extra
tsc_mode = \"native\""
    cat > /tmp/$name.cfg <<E
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

guest_log() { echo /var/log/xen/console/guest-$1.log; }
guest_gone() { ! xl domid $1; }

# guest_booted NAME N: the guest came up for the Nth time
guest_booted() { [ "$(grep -c '^GUEST-UP' $(guest_log $1))" = $2 ]; }

# guest NAME COMMAND: runs a shell command in the guest, prints its output, and
# returns its status (124: no answer within $GUEST_PATIENCE seconds)
guest() {
    local id log n=$(uptime_s); log=$(guest_log $1)
    id=$(xl domid $1) || return 124
    xenstore-write /local/domain/$id/data/order "$n $2" || return 124
    wait_for ${GUEST_PATIENCE:-90} grep -q "^END $n " $log ||
        { echo "guest $1: no answer to: $2"; tail -20 $log; return 124; }
    tr -d '\r' < $log | sed -n "/^BEGIN $n\$/,/^END $n /p" | sed '1d;$d'
    return $(tr -d '\r' < $log | sed -n "s/^END $n //p")
}

# ---------------------------------------------------------------- xenstore

# backend_nodes KIND: the paths below backend/KIND, none when there is no device
backend_nodes() {
    xenstore-ls -f /local/domain/0/backend/$1 2>/dev/null | grep '/[0-9]*/[0-9]*/'
}

# hotplug_stub: makes the hotplug script block-stub, which only says "connected"
hotplug_stub() {
    cat > /etc/xen/scripts/block-stub <<'E'
#!/bin/sh
[ "$1" != add ] || xenstore-write $XENBUS_PATH/hotplug-status connected
E
    chmod +x /etc/xen/scripts/block-stub
}
