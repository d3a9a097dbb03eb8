# SPDX-License-Identifier: GPL-2.0-or-later
# Plain make: no configure, no recursion but for check-threads.  `make help` lists the targets.
#   CC=clang            another compiler
#   SAN=address,undefined   sanitizers (their own output folder)
#   V=1                 show the commands

CC       = gcc
CFLAGS   = -O2 -g
WARN     = -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Werror
comma    = ,
O        = build$(if $(filter-out gcc,$(CC)),-$(notdir $(CC)))$(if $(SAN),-$(subst $(comma),-,$(SAN)))
ALL_CFLAGS   = -std=gnu11 $(WARN) -fstack-protector-strong $(CFLAGS) \
               $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer) \
               $(TSAN_WARN)
# It does not see fences: ours stand between atomic accesses, which it does see.
TSAN_WARN = $(if $(filter thread,$(SAN)),$(if $(findstring gcc,$(CC)),-Wno-tsan))
ALL_CPPFLAGS = -I. -MMD -MP -D_GNU_SOURCE -D__XEN_INTERFACE_VERSION__=0x00040e00 \
               $(if $(SAN),-DRINGBACK_SANITIZED) $(CPPFLAGS)
ifndef V
Q   = @
say = @echo '  $(1)  $(2)';
endif

# ---- what there is -------------------------------------------------------
# Each part appends its own.  PROGRAMS are built by `all`; TESTS are run by
# `check`: programs in $(O), scripts as they are; CHECK_NEEDS are what these
# want built besides.  $(LINK) links the objects among the prerequisites.
PROGRAMS    =
TESTS       =
CHECK_NEEDS =
define LINK
@mkdir -p $(@D)
$(call say,LD,$@)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(LIBS)
endef

# Debian's names of what each step needs; `make deps` installs what is missing.
DEPS_BUILD = gcc libc6-dev libxen-dev libaio-dev libseccomp-dev libjansson-dev \
             libsystemd-dev zlib1g-dev libzstd-dev libinih-dev
DEPS_CHECK = libcmocka-dev qemu-utils xenstore-utils fio procps python3 e2fsprogs
DEPS_LINT  = clang libclang-rt-14-dev clang-format clang-tidy cppcheck
DEPS_DEB   = debhelper dpkg-dev lintian
DEPS_XEN   = qemu-system-x86 debootstrap cpio e2fsprogs python3 xz-utils zstd

all:
.DELETE_ON_ERROR:
.SECONDARY:
.SECONDEXPANSION:

# On a fresh machine the compiler itself may be missing: for these goals,
# everything waits for the packages.
WAIT_DEPS = $(if $(filter bench check check-% demo,$(MAKECMDGOALS)),deps)

$(O)/%.o: %.c | $(WAIT_DEPS)
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) -c -o $@ $<

DRIVERS = $(patsubst %.c,$(O)/%.o,$(wildcard drivers/*.c))
DRIVER_LIBS = -laio -lz -lzstd -pthread
DRIVER_TESTS = $(patsubst %,$(O)/test_%,drivers calls aio engine raw file fault qcow2_open qcow2_chain qcow2_format)
DRIVER_TESTS += $(O)/test_qcow2_refcount $(O)/test_sector
TESTS += $(DRIVER_TESTS)
$(DRIVER_TESTS): LIBS = -lcmocka $(DRIVER_LIBS)
$(O)/test_qcow2_open $(O)/test_qcow2_chain: $(O)/tests/layer_rig.o
$(DRIVER_TESTS): $(O)/test_%: $(O)/tests/test_%.o $(O)/tests/driver_rig.o $(DRIVERS)
	$(LINK)
$(O)/test_qcow2_refcount: $(O)/tests/refcount_rig.o
$(O)/test_sector: $(O)/tests/lab.o
$(O)/test_aio $(O)/test_engine: $(O)/tests/engine_rig.o

# Deaths and errors: every call that changes the image comes by tests/io_tap.c.
QCOW2_TAP = pread pwrite preadv pwritev fdatasync fsync fallocate ftruncate \
            io_setup io_destroy io_submit io_getevents
QCOW2_TAPPED = $(patsubst %,$(O)/test_qcow2_%,bad crash errors flush images kill resize)
TESTS += $(QCOW2_TAPPED)
$(QCOW2_TAPPED): LIBS = -lcmocka $(DRIVER_LIBS) $(QCOW2_TAP:%=-Wl,--wrap=%)
$(QCOW2_TAPPED): $(O)/test_%: $(O)/tests/test_%.o $(O)/tests/driver_rig.o \
    $(patsubst %,$(O)/tests/%.o,disk_load io_tap qcow2_shape) $(DRIVERS)
	$(LINK)

$(patsubst %,$(O)/test_qcow2_%,bad flush images resize): $(O)/tests/qcow2_rig.o \
    $(O)/tests/layer_rig.o

# Random operations on qcow2 images and on a model of them.
TESTS += tests/test_qcow2.sh
CHECK_NEEDS += $(O)/qcow2_model
$(O)/qcow2_model: LIBS = $(DRIVER_LIBS) $(QCOW2_TAP:%=-Wl,--wrap=%)
$(O)/qcow2_model: $(patsubst %,$(O)/tests/%.o,io_tap qcow2_model \
    qcow2_model_image qcow2_model_io) $(DRIVERS)
	$(LINK)

# ---- the disk process -------------------------------------------------------
DISK = $(O)/ring/ring.o $(patsubst %,$(O)/blkback/%.o,arena disk grant merge \
       message page persistent poll queue queue_sleep request sandbox \
       worker) $(DRIVERS)
DISK_LIBS = -lxengnttab -lxenevtchn -lseccomp $(DRIVER_LIBS)
UNIT = arena merge message poll page request ring
TESTS += $(UNIT:%=$(O)/test_%)
$(UNIT:%=$(O)/test_%): LIBS = -lcmocka $(DRIVER_LIBS)
$(UNIT:%=$(O)/test_%): $(O)/test_%: $(O)/tests/test_%.o $(O)/blkback/log.o \
    $$(filter-out $(O)/blkback/disk.o $(O)/blkback/grant.o $(O)/blkback/persistent.o \
    $(O)/blkback/queue.o $(O)/blkback/queue_sleep.o $(O)/blkback/worker.o $(O)/blkback/sandbox.o,$(DISK))
	$(LINK)
# It compiles ring.c into itself.
TESTS += $(O)/test_arm
$(O)/test_arm: LIBS = -lcmocka -pthread
$(O)/test_arm: $(O)/tests/test_arm.o
	$(LINK)
TESTS += $(O)/test_sandbox
$(O)/test_sandbox: LIBS = -lcmocka -lseccomp -pthread
$(O)/test_sandbox: $(O)/tests/test_sandbox.o $(O)/blkback/sandbox.o
	$(LINK)
# Their Xen libraries are in queue_rig.c.
QUEUE_TESTS = $(patsubst %,$(O)/test_%,indirect persistent queue resume)
TESTS += $(QUEUE_TESTS)
$(QUEUE_TESTS): LIBS = -Wl,--wrap=clock_gettime -lcmocka $(DRIVER_LIBS)
$(QUEUE_TESTS): $(O)/test_%: $(O)/tests/test_%.o \
    $(O)/tests/queue_rig.o $(O)/ring/ring.o $(DRIVERS) \
    $(patsubst %,$(O)/blkback/%.o,arena grant log merge persistent queue queue_sleep \
    request)
	$(LINK)

# A whole disk process with its supervisor and its guest; so are its.
TESTS += $(O)/test_worker
$(O)/test_worker: LIBS = -lcmocka $(DRIVER_LIBS)
$(O)/test_worker: $(O)/tests/test_worker.o $(O)/blkback/log.o $(O)/blkback/spec.o \
    $$(filter-out $(O)/blkback/sandbox.o,$(DISK))
	$(LINK)

# ---- the supervisor ---------------------------------------------------------
PROGRAMS += $(O)/ringbackd
SUPERVISOR = $(patsubst %,$(O)/blkback/%.o,answer byhand config control defaults \
             device frontend kernel log main media options process rival spec \
             supervisor vbd vbd_page vbd_process vbd_resize vdev xenstore)
SUPERVISOR_LIBS = -lxenstore -lsystemd -ljansson -linih
# Where the configuration file is goes into the program.
$(O)/blkback/options.o $(O)/blkback/main.o: ALL_CPPFLAGS += -DSYSCONFDIR='"$(SYSCONFDIR)"'
$(O)/blkback/options.o $(O)/blkback/main.o: $(O)/sysconfdir
$(O)/sysconfdir: always
	@mkdir -p $(@D)
	@echo '$(SYSCONFDIR)' | cmp -s - $@ || echo '$(SYSCONFDIR)' >$@
.PHONY: always
$(O)/ringbackd: LIBS = $(DISK_LIBS) $(SUPERVISOR_LIBS)
$(O)/ringbackd: $(SUPERVISOR) $(DISK)
	$(LINK)

TESTS += $(O)/test_options
$(O)/test_options: LIBS = -lcmocka -lxenstore -linih $(DRIVER_LIBS)
$(O)/test_options: $(O)/tests/test_options.o $(patsubst %,$(O)/blkback/%.o,config \
    defaults log options spec vdev xenstore) $(DRIVERS)
	$(LINK)
TESTS += $(O)/test_device $(O)/test_xenstore
$(O)/test_device: LIBS = -lcmocka
$(O)/test_device: $(O)/tests/test_device.o $(O)/blkback/device.o
	$(LINK)
$(O)/test_xenstore: LIBS = -lcmocka -lxenstore
$(O)/test_xenstore: $(O)/tests/test_xenstore.o $(O)/ring/ring.o \
    $(patsubst %,$(O)/blkback/%.o,frontend log message vdev xenstore)
	$(LINK)
# The same supervisor with disk processes that do as they are told.
TESTS += tests/test_supervisor.sh
CHECK_NEEDS += $(O)/test_supervisor $(O)/test_service $(O)/test_redo $(O)/test_toolstack \
               $(O)/test_medium $(O)/ringbackd_fake
$(O)/ringbackd_fake: LIBS = $(SUPERVISOR_LIBS) $(DRIVER_LIBS)
$(O)/ringbackd_fake: $(SUPERVISOR) $(O)/tests/fake_disk.o $(O)/ring/ring.o \
    $(O)/blkback/message.o $(O)/blkback/page.o $(DRIVERS)
	$(LINK)
SUPERVISOR_TESTS = $(patsubst %,$(O)/test_%,supervisor service redo toolstack medium)
$(SUPERVISOR_TESTS): LIBS = -lcmocka -ljansson -lxenstore -pthread
$(SUPERVISOR_TESTS): $(O)/test_%: $(O)/tests/test_%.o \
    $(O)/tests/supervisor_rig.o $(O)/blkback/xenstore.o $(O)/blkback/log.o \
    $$(LOOPXEN_GUEST)
	$(LINK)

# ---- fuzz targets -----------------------------------------------------------
# `check` runs each on its corpus and on damaged copies of it; `fuzz` runs
# libFuzzer (clang) for FUZZ_SECONDS each, and keeps what it finds in $(O).
FUZZ = message options page qcow2 request ring spec xenstore
FUZZ_SECONDS = 60
FUZZ_SOURCES = ring/ring.c $(patsubst %,blkback/%.c,config defaults frontend log \
               message options page request spec vdev xenstore) $(wildcard drivers/*.c)
# What each is made of, but for main: qcow2 has an aio without a kernel.
fuzz_parts = tests/fuzz/fuzz_$(1).c $(if $(filter qcow2,$(1)),tests/fuzz/aio_now.c \
             $(filter-out drivers/aio.c,$(FUZZ_SOURCES)),$(FUZZ_SOURCES))
TESTS += tests/fuzz/run.sh
CHECK_NEEDS += $(FUZZ:%=$(O)/fuzz_%)
$(FUZZ:%=$(O)/fuzz_%): LIBS = -lxenstore -linih $(DRIVER_LIBS)
$(FUZZ:%=$(O)/fuzz_%): $(O)/fuzz_%: $(O)/tests/fuzz/main.o \
    $$(addprefix $(O)/,$$(addsuffix .o,$$(basename $$(call fuzz_parts,$$*))))
	$(LINK)

$(O)/libfuzzer_%: $$(call fuzz_parts,$$*)
	@mkdir -p $(@D)
	$(call say,FUZZ,$@)clang $(ALL_CPPFLAGS) -std=gnu11 -g -O1 -o $@ \
	    -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
	    -DSYSCONFDIR='"$(SYSCONFDIR)"' $(filter %.c,$^) -lxenstore -linih \
	    $(DRIVER_LIBS)

fuzz: ## libFuzzer, FUZZ_SECONDS (60) for each target
fuzz: deps-lint $(FUZZ:%=$(O)/libfuzzer_%)
	$(Q)for f in $(FUZZ); do mkdir -p $(O)/fuzz-$$f; \
	    $(O)/libfuzzer_$$f -max_total_time=$(FUZZ_SECONDS) -print_final_stats=1 \
	    -artifact_prefix=$(O)/fuzz-$$f/ $(O)/fuzz-$$f tests/fuzz/corpus/$$f \
	    >$(O)/fuzz-$$f.log 2>&1 || { tail -30 $(O)/fuzz-$$f.log; exit 1; }; \
	    echo "ok fuzz $$f:" \
	    "$$(sed -n 's/.*number_of_executed_units: *//p' $(O)/fuzz-$$f.log) inputs"; done
.PHONY: fuzz

# ---- the command line and the tools ----------------------------------------
PROGRAMS += $(O)/ringback
$(O)/ringback: LIBS = -ljansson -lseccomp -lm $(DRIVER_LIBS)
$(O)/ringback: $(patsubst %,$(O)/tools/%.o,bench detach hist inflight inspect load \
    pattern prometheus ringback stats talk top watch) $(patsubst %,$(O)/blkback/%.o,look page vdev) \
    $(patsubst tools/%.c,$(O)/tools/%.o,$(wildcard tools/compare*.c)) \
    $(O)/blkback/spec.o $(O)/blkback/sandbox.o $(DRIVERS)
	$(LINK)

TESTS += tests/check-includes.sh $(O)/test_log $(O)/test_spec $(O)/test_cli \
         tests/test_hotplug.sh tests/test_install.sh tests/test_man.sh \
         tests/test_completion.sh tests/test_config.sh tests/test_units.sh \
         tests/test_cli_daemon.sh tests/test_info.sh tests/test_bench.sh \
         tests/test_compare.sh
CHECK_NEEDS += $(LOOPXEN) $(O)/loopfront
TESTS += $(O)/test_bench_parts
$(O)/test_bench_parts: LIBS = -lcmocka -lm
$(O)/test_bench_parts: $(patsubst %,$(O)/%.o,tests/test_bench_parts tools/hist tools/pattern)
	$(LINK)
TESTS += $(O)/test_compare_stats
$(O)/test_compare_stats: LIBS = -lcmocka -lm
$(O)/test_compare_stats: $(patsubst %,$(O)/%.o,tests/test_compare_stats tools/compare_stats)
	$(LINK)
TESTS += $(O)/test_look tests/test_watch.sh
$(O)/test_look: LIBS = -Wl,--wrap=pread -lcmocka -ljansson
$(O)/test_look: $(patsubst %,$(O)/%.o,tests/test_look tools/top tools/prometheus \
    blkback/look blkback/page blkback/vdev)
	$(LINK)
$(O)/test_cli: LIBS = -lcmocka -ljansson -pthread
$(O)/test_cli: $(O)/tests/test_cli.o
	$(LINK)
$(O)/test_log $(O)/test_spec: LIBS = -lcmocka $(DRIVER_LIBS)
$(O)/test_log: $(O)/tests/test_log.o $(O)/blkback/log.o
	$(LINK)
$(O)/test_spec: $(O)/tests/test_spec.o $(O)/blkback/spec.o $(DRIVERS)
	$(LINK)

# ---- the real Xen -----------------------------------------------------------
# What a scenario leaves behind (logs, consoles, xenstore of failed checks) comes
# to $(O)/check-xen; the images to build/xenbed, or to XENBED_CACHE.  SUITE=trixie
# is Xen 4.20, of Debian 13; the programs are then built there, with its libraries.
XENBED = tests/xenbed/xenbed
SUITE  = bookworm
SCENARIOS = $(if $(filter bookworm,$(SUITE)),raw qcow2 passages,tap)
XEN_O    = $(if $(filter bookworm,$(SUITE)),$(O),$(O)/$(SUITE))
# Two at a time: each waits half of its time for one of its two processors.
SCENARIO_JOBS = 2
check-xen: ## boot a real Xen in QEMU and serve a Linux guest (SUITE=trixie: Xen 4.20)
check-xen: deps-xen $$(if $$(filter bookworm,$$(SUITE)),$$(PROGRAMS))
ifeq ($(SUITE),bookworm)
	$(Q)$(XENBED) build
else
	$(Q)$(XENBED) build --suite $(SUITE) --with "make $(DEPS_BUILD)"
	$(Q)$(XENBED) make --suite $(SUITE) $(XEN_O) $(notdir $(PROGRAMS))
endif
	$(Q)printf '%s\n' $(SCENARIOS) | xargs -P $(SCENARIO_JOBS) -I SCENARIO \
	    sh tests/xenbed/one.sh SCENARIO $(SUITE) $(XEN_O)

# ---- loopxen: Xen's libraries without Xen ------------------------------------
# The drop-ins go into programs that may be sanitised, but are not themselves.
LOOPXEN_LIBS = gnttab evtchn call foreignmemory devicemodel
LOOPXEN = $(LOOPXEN_LIBS:%=$(O)/loopxen/libxen%.so.1) $(O)/loopxen/preload.so \
          $(O)/loopxen/gntdev.so $(O)/loopxen/loopxen-broker $(O)/xen/xenstored
TESTS += tests/loopxen/test.sh tests/test_driver_domain.sh
CHECK_NEEDS += $(LOOPXEN) $(O)/loopxen-xenbus $(O)/test_loopxen $(O)/test_loopxen_events $(O)/test_gntdev
LOOPXEN_GUEST = $(patsubst %,$(O)/tests/loopxen/%.o,guest events client)
$(O)/loopxen/%.o: tests/loopxen/%.c | $(WAIT_DEPS)
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) -I. -MMD -MP -D_GNU_SOURCE -std=gnu11 $(WARN) $(CFLAGS) \
	    -D__XEN_INTERFACE_VERSION__=0x00040e00 -fPIC -c -o $@ $<
$(O)/loopxen/libxen%.so.1: $(O)/loopxen/%.o $(O)/loopxen/client.o tests/loopxen/%.map
	$(call say,LD,$@)$(CC) -shared -Wl,-soname,$(@F) -Wl,-z,defs -Wl,--no-undefined-version \
	    -Wl,--version-script=tests/loopxen/$*.map -o $@ $(filter %.o,$^) -pthread
$(O)/loopxen/libxenevtchn.so.1: $(O)/loopxen/events.o
$(O)/loopxen/preload.so: $(O)/loopxen/preload.o
	$(call say,LD,$@)$(CC) -shared -o $@ $^
$(O)/loopxen/gntdev.so: $(O)/loopxen/gntdev.o
	$(call say,LD,$@)$(CC) -shared -o $@ $^ -lxengnttab
$(O)/loopxen/loopxen-broker: LIBS = -pthread
$(O)/loopxen/loopxen-broker: $(patsubst %,$(O)/tests/loopxen/%.o,broker events client)
	$(LINK)
# A domain whose programs speak to xenstored as that domain.
$(O)/loopxen-xenbus: LIBS = -lxenstore -pthread
$(O)/loopxen-xenbus: $(O)/tests/loopxen/xenbus.o $(LOOPXEN_GUEST)
	$(LINK)
$(O)/xen/xenstored: | $(WAIT_DEPS)
	$(call say,GET,$@)sh tests/loopxen/get-xenstored $@
$(O)/test_loopxen $(O)/test_loopxen_events: LIBS = -lcmocka -lxenstore -lxengnttab \
    -lxenevtchn -lxenctrl -lseccomp -pthread
$(O)/test_loopxen $(O)/test_loopxen_events: $(O)/test_%: $(O)/tests/test_%.o \
    $(O)/tests/loopxen/rig.o $(LOOPXEN_GUEST)
	$(LINK)
$(O)/test_gntdev: LIBS = -lcmocka -lxengnttab -lxenevtchn -lxenstore -pthread
$(O)/test_gntdev: $(O)/tests/test_gntdev.o $(O)/tests/loopxen/rig.o $(LOOPXEN_GUEST) \
    $(O)/loopxen/gntdev.o
	$(LINK)
loopxen: ## build the libraries, broker and xenstored of loopxen
loopxen: $(LOOPXEN)
.PHONY: loopxen

# ---- loopfront: the guests -----------------------------------------------------
LOOPFRONT_PURE = $(O)/tools/hist.o $(patsubst %,$(O)/tests/loopfront/%.o,front verify)
$(O)/loopfront: LIBS = -lxenstore -pthread -lm
$(O)/loopfront: $(LOOPFRONT_PURE) $(LOOPXEN_GUEST) \
    $(patsubst %,$(O)/tests/loopfront/%.o,command domain fqueue job lane main \
    options pool report server store vbd)
	$(LINK)

$(O)/test_loopfront: LIBS = -lcmocka -lm
$(O)/test_loopfront: $(O)/tests/test_loopfront.o $(LOOPFRONT_PURE) $(O)/ring/ring.o
	$(LINK)

# Guests that mean harm.
$(O)/hostile: LIBS = -lxenstore -ljansson -pthread
$(O)/hostile: $(patsubst %,$(O)/tests/hostile/%.o,enemy indirect life main \
    persistent queues request ring view) \
    $(O)/tests/loopfront/front.o $(O)/blkback/page.o $(LOOPXEN_GUEST)
	$(LINK)
TESTS += tests/test_hostile.sh
CHECK_NEEDS += $(O)/hostile
# Guests that write rubbish into xenstore.
$(O)/hostile_store: LIBS = -lxenstore -ljansson -pthread
$(O)/hostile_store: $(patsubst %,$(O)/tests/hostile/%.o,enemy store view) \
    $(O)/tests/loopfront/front.o $(O)/blkback/page.o $(LOOPXEN_GUEST)
	$(LINK)
TESTS += tests/test_store.sh
CHECK_NEEDS += $(O)/hostile_store $(O)/store_tap.so
TESTS += $(O)/test_loopfront tests/test_e2e.sh
CHECK_NEEDS += $(LOOPXEN) $(O)/loopfront

# ---- what may go wrong ---------------------------------------------------------
TESTS += tests/test_faults.sh tests/test_badinput.sh tests/test_4kn.sh
CHECK_NEEDS += $(O)/fail_calls.so
$(O)/fail_calls.so $(O)/store_tap.so: $(O)/%.so: tests/%.c | $(WAIT_DEPS)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) -std=gnu11 -D_GNU_SOURCE $(WARN) $(CFLAGS) -fPIC -shared \
	    -o $@ $<

# ---- how disks come and go -------------------------------------------------------
TESTS += tests/test_passages.sh
CHECK_NEEDS += $(O)/toolstack
$(O)/toolstack: LIBS = -lxenstore
$(O)/toolstack: $(O)/tests/toolstack.o
	$(LINK)

# ---- recovery: deaths under load ----------------------------------------------
TESTS += tests/test_media.sh
TESTS += tests/test_cache.sh tests/test_recovery.sh tests/test_queues.sh
TESTS += $(patsubst %,tests/test_qcow2_%.sh,features e2e kills) tests/test_resize.sh
CHECK_NEEDS += $(O)/page_poke
$(O)/page_poke: $(O)/tests/page_poke.o $(O)/blkback/page.o
	$(LINK)

# ---- threads ------------------------------------------------------------------
# ThreadSanitizer on all in which threads meet, and on a ringbackd from end to
# end.  Left out is what counts threads (test_aio) or wake-ups (figures): it has
# a thread of its own that wakes up.
THREADS_O = $(O)-threads
THREADED = $(patsubst %,$(THREADS_O)/test_%,arm poll worker raw fault drivers \
           qcow2_bad qcow2_flush qcow2_kill)
THREAD_PARTS = verified; negotiated; qcow2; flush_fails 4; raw_kills 1; qcow2_kills 1; \
               step_kills; supervisor_dies; detach_in_use; reconnects
check-threads: ## data races: what has threads, with ThreadSanitizer (4 minutes)
check-threads: deps $$(PROGRAMS) $$(LOOPXEN) $(O)/loopfront $(O)/page_poke
	$(Q)$(MAKE) SAN=thread O=$(THREADS_O) $(THREADS_O)/ringbackd $(THREADED)
	$(Q)O=$(O) sh tests/run.sh $(THREADED)
	$(Q)O=$(O) RINGBACKD=$(abspath $(THREADS_O)/ringbackd) PARTS="$(THREAD_PARTS)" \
	    TEST_TIMEOUT=300 sh tests/run.sh tests/test_queues.sh
.PHONY: check-threads

# ---- the long tests ------------------------------------------------------------
# The scripts of `check` without its haste, and libFuzzer; each ends by itself.
SOAK_SECONDS = 600
SOAK = recovery hostile store faults queues qcow2_kills qcow2
soak: ## the long tests: deaths, enemies, faults, fuzzing (100 minutes)
soak: $(SOAK:%=soak-%) soak-fuzz
$(SOAK:%=soak-%): soak-%: deps $$(PROGRAMS) $$(CHECK_NEEDS)
	$(Q)O=$(O) SOAK=1 SOAK_SECONDS=$(SOAK_SECONDS) sh tests/test_$*.sh
# Deaths of qcow2 at length: as many as these say, from SEED on.
soak: soak-crash soak-errors soak-kill soak-arm
soak-arm: deps $(O)/test_arm
	$(Q)ARM_ROUNDS=10000000 $(O)/test_arm
soak-crash soak-errors soak-kill: soak-%: deps $(O)/test_qcow2_%
	$(Q)IMAGES=100 RUNS=5 TRIES=0 KILLS=500 $(O)/test_qcow2_$*
.PHONY: soak-crash soak-errors soak-kill soak-arm
soak-fuzz: FUZZ_SECONDS = $(SOAK_SECONDS)
soak-fuzz: fuzz
.PHONY: soak soak-fuzz $(SOAK:%=soak-%)

bench-qcow2: ## what qcow2 costs, against raw and QEMU (20 minutes)
bench-qcow2: deps $$(PROGRAMS) $$(LOOPXEN) $(O)/loopfront
	$(Q)O=$(O) sh tests/bench_qcow2.sh
.PHONY: bench-qcow2

# Its variables stand at the top of the script.
BENCH_NEEDS = $(LOOPXEN) $(O)/loopfront $(O)/copy_rate
$(O)/copy_rate: $(O)/tests/copy_rate.o
	$(LINK)
bench: ## block sizes by depths, against QEMU, tapdisk and fio (20 minutes)
bench: deps $$(PROGRAMS) $$(BENCH_NEEDS)
	$(Q)O=$(O) sh tests/bench_grid.sh
.PHONY: bench
TESTS += tests/test_grid.sh
CHECK_NEEDS += $(BENCH_NEEDS)

demo: ## see it work: a guest, two disks, verified I/O, in 30 seconds
demo: deps $$(PROGRAMS) $$(LOOPXEN) $(O)/loopfront
	$(Q)O=$(O) sh tests/demo.sh
.PHONY: demo

# ---- where things go ---------------------------------------------------------
PREFIX       = /usr/local
SBINDIR      = $(PREFIX)/sbin
BINDIR       = $(PREFIX)/bin
MANDIR       = $(PREFIX)/share/man
SYSCONFDIR   = /etc
UNITDIR      = $(PREFIX)/lib/systemd/system
XENSCRIPTDIR = /etc/xen/scripts
MODPROBEDIR  = /etc/modprobe.d
COMPLETIONDIR = $(PREFIX)/share/bash-completion/completions
DIRS = $(addprefix $(DESTDIR),$(SBINDIR) $(BINDIR) $(MANDIR)/man5 $(MANDIR)/man8 \
       $(UNITDIR) $(XENSCRIPTDIR) $(MODPROBEDIR) $(SYSCONFDIR) $(COMPLETIONDIR))
MANS = $(wildcard tools/*.8)
UNITS = $(wildcard tools/*.service)
CONF = $(DESTDIR)$(SYSCONFDIR)/ringback.conf
SOURCES = $(sort $(shell find blkback drivers ring tests tools -name '*.[ch]'))

# ---- what to do ------------------------------------------------------------
all: ## build (the default)
all: $$(PROGRAMS)

check: ## install what is missing, build, run every test that needs no Xen
check: deps $$(PROGRAMS) $$(filter $(O)/%,$$(TESTS)) $$(CHECK_NEEDS)
	$(Q)O=$(O) sh tests/run.sh $(TESTS)

check-unit: ## ... only the test programs, without the daemon
check-unit: deps $$(PROGRAMS) $$(filter $(O)/%,$$(TESTS)) $$(CHECK_NEEDS)
	$(Q)O=$(O) sh tests/run.sh $(filter $(O)/%,$(TESTS))

check-all: ## check with each compiler and sanitizer, lint, check-xen of both suites
	$(Q).ci/run
	$(Q)$(MAKE) check-xen SUITE=trixie

deps: ## install (apt) what build and check need, if it is missing
	$(Q)sh tests/deps.sh $(DEPS_BUILD) $(DEPS_CHECK)

deps-lint: ## ... what lint needs
	$(Q)sh tests/deps.sh $(DEPS_BUILD) $(DEPS_LINT)

deps-xen: ## ... what check-xen needs
	$(Q)sh tests/deps.sh $(DEPS_BUILD) $(DEPS_XEN)

lint: ## look at what no test sees: format, layers, clang-tidy, cppcheck
lint: deps-lint
	$(Q)rc=0; sh tests/check-includes.sh || rc=1; \
	    sh tests/check-lines.sh || rc=1; \
	    tests/check-format $(SOURCES) || rc=1; \
	    sh tests/check-code.sh $(filter %.c,$(SOURCES)) || rc=1; exit $$rc

install: ## install below DESTDIR, PREFIX (/usr/local)
install: $$(PROGRAMS)
	install -d $(DIRS)
	install -m 755 $(O)/ringbackd $(DESTDIR)$(SBINDIR)/ringbackd
	install -m 755 $(O)/ringback $(DESTDIR)$(BINDIR)/ringback
	install -m 644 $(MANS) $(DESTDIR)$(MANDIR)/man8
	install -m 644 tools/ringback.conf.5 $(DESTDIR)$(MANDIR)/man5
	install -m 644 tools/ringback.bash-completion \
	    $(DESTDIR)$(COMPLETIONDIR)/ringback
	[ -e $(CONF) ] || install -m 644 tools/ringback.conf $(CONF)
	install -m 644 tools/ringback-modprobe.conf \
	    $(DESTDIR)$(MODPROBEDIR)/ringback.conf
	sed 's|@BINDIR@|$(BINDIR)|' tools/block-ringback \
	    >$(DESTDIR)$(XENSCRIPTDIR)/block-ringback
	chmod 755 $(DESTDIR)$(XENSCRIPTDIR)/block-ringback
	for u in $(UNITS:tools/%=%); do \
	    sed 's|@SBINDIR@|$(SBINDIR)|; s|@BINDIR@|$(BINDIR)|' tools/$$u \
	    >$(DESTDIR)$(UNITDIR)/$$u && \
	    chmod 644 $(DESTDIR)$(UNITDIR)/$$u || exit 1; done

# From a copy of what the package is made of; dpkg leaves its results beside it.
DEB = $(O)/deb
deb: ## build a Debian package, in build/deb
deb: deps-deb
	$(Q)rm -rf $(DEB) && mkdir -p $(DEB)/ringback
	$(Q)cp -r Makefile README.md COPYING blkback drivers ring tools $(DEB)/ringback
	$(Q)mkdir $(DEB)/ringback/tests && cp tests/deps.sh $(DEB)/ringback/tests
	$(Q)mv $(DEB)/ringback/tools/debian $(DEB)/ringback
	$(Q)cd $(DEB)/ringback && MAKEFLAGS= dpkg-buildpackage -us -uc -b \
	    >../build.log 2>&1 || { tail -n 30 ../build.log; exit 1; }
	$(Q)lintian --allow-root --fail-on error,warning $(DEB)/ringback_*.deb
	$(Q)ls $(DEB)/*.deb

check-deb: ## ... and install, upgrade and purge it below a folder
check-deb: deb
	$(Q)O=$(O) sh tests/run.sh tests/test_deb.sh

deps-deb: ## ... what deb needs
	$(Q)sh tests/deps.sh $(DEPS_BUILD) $(DEPS_DEB)
.PHONY: check-deb deb deps-deb

uninstall: ## remove what install installed, but for a changed ringback.conf
	! cmp -s tools/ringback.conf $(CONF) || rm -f $(CONF)
	rm -f $(DESTDIR)$(SBINDIR)/ringbackd $(DESTDIR)$(BINDIR)/ringback \
	    $(MANS:tools/%=$(DESTDIR)$(MANDIR)/man8/%) \
	    $(DESTDIR)$(MODPROBEDIR)/ringback.conf \
	    $(DESTDIR)$(XENSCRIPTDIR)/block-ringback \
	    $(DESTDIR)$(MANDIR)/man5/ringback.conf.5 \
	    $(DESTDIR)$(COMPLETIONDIR)/ringback \
	    $(UNITS:tools/%=$(DESTDIR)$(UNITDIR)/%)

clean: ## remove what was built
	rm -rf build build-*

help: ## print this
	@awk -F ': ## ' '/^# ---- what to do/ { main = 1 } \
	    /^[a-z0-9-]+: ## / { l = sprintf("  make %-12s %s\n", $$1, $$2); \
	    if (main) first = first l; else rest = rest l } \
	    END { printf "%s%s", first, rest }' $(firstword $(MAKEFILE_LIST))

.PHONY: all check check-all check-unit check-xen clean deps deps-lint deps-xen help install lint uninstall
-include $(shell find $(O) -name xenbed -prune -o -type f -name '*.d' -print \
    2>/dev/null)
