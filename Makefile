# SPDX-License-Identifier: MIT
#
# rlshim. `make help` lists the targets.
#
#   make                 build/librlshim.so, build/librangelock.a, build/rlshim
#   make V=1             shows the commands
#   make VARIANT=asan    another build of everything in build/asan (also ubsan, tsan)

VARIANT ?= release
BUILD   := $(if $(filter release,$(VARIANT)),build,build/$(VARIANT))
O       := $(BUILD)/obj
V       ?= 0
Q       := $(if $(filter 0,$(V)),@)
say      = $(if $(filter 0,$(V)),@printf '  %-6s %s\n' '$(1)' '$(2)')

VERSION := 0.1.0
PREFIX  ?= /usr/local
LIBDIR  ?= $(PREFIX)/lib
BINDIR  ?= $(PREFIX)/bin
INCDIR  ?= $(PREFIX)/include
MANDIR  ?= $(PREFIX)/share/man
DOCDIR  ?= $(PREFIX)/share/doc/rlshim
COMPDIR ?= $(PREFIX)/share/bash-completion/completions
INSTALL ?= install
OBJCOPY ?= objcopy
PKG_CONFIG ?= pkg-config

CFLAGS   ?= -O2 -g
WARNINGS := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla
BASE     := -std=gnu11 -D_GNU_SOURCE= -DRLSHIM_VERSION='"$(VERSION)"' -MMD -MP
# The library's code: found by name through its exports only; TLS without __tls_get_addr (which may
# allocate); gates left by clean-up handlers when a thread is cancelled; nothing bound lazily, since
# the worker thread cannot run the dynamic linker.
SHIM_CFLAGS  := -fPIC -fvisibility=hidden -ftls-model=initial-exec -fexceptions -U_FORTIFY_SOURCE \
                -fno-strict-aliasing
SHIM_LDFLAGS := -shared -Wl,-z,now -Wl,-z,relro -Wl,-z,noexecstack -Wl,--no-undefined -Wl,-Bsymbolic-functions -Wl,-soname,librlshim.so

SAN_asan  := -fsanitize=address,undefined -fno-omit-frame-pointer -fno-sanitize-recover=undefined
SAN_ubsan := -fsanitize=undefined -fno-sanitize-recover=undefined
SAN_tsan  := -fsanitize=thread $(if $(findstring clang,$(shell $(CC) --version 2>/dev/null | head -n 1)),,-Wno-tsan)
# Counters on pages of their own, which counters.c maps from a file (see there).
SAN_gcov := -O1 -fprofile-arcs -ftest-coverage -fprofile-update=atomic -fprofile-info-section=rl_gcov_info -fdata-sections
SAN       := $(SAN_$(VARIANT))
COVER     := build/gcov/coverage
ifeq ($(VARIANT),gcov)
override LDFLAGS += build/gcov/counters.o -Wl,-T,tests/coverage/counters.ld -Wl,-u,__gcov_merge_add -lgcov
build/gcov/counters.o: tests/coverage/counters.c
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(BASE) $(WARNINGS) -O1 -fPIC -Ilockmgr -DCOVERAGE_DIR='"$(abspath $(COVER))/counts"' -c $< -o $@
endif

LOCKMGR  := ranges range_table drain leftover single_flight gate inode_table name_table range_lock range_room queue
# init first: it begins .bss with what start-up writes to. Then what every start and end runs, side by
# side, since a page fault costs more than anything on these pages does.
SHIM_EARLY := init real log create place config config_load config_match config_value text stats settle family
SHIM_CORE  := $(SHIM_EARLY) $(filter-out call_% ring $(SHIM_EARLY),$(basename $(notdir $(wildcard shim/*.c))))
SHIM_CALLS := $(basename $(notdir $(wildcard shim/call_*.c)))
CMD_SRC  := $(wildcard shim/cmd/*.c)
CMD_CORE := config config_load config_match config_notice config_value report_json report_text \
            report stats text log

LOCKMGR_O := $(LOCKMGR:%=$(O)/lockmgr/%.o)
CORE_O    := $(SHIM_CORE:%=$(O)/shim/%.o) $(O)/ring_linked.o
CALLS_O   := $(SHIM_CALLS:%=$(O)/shim/%.o)
CMD_O     := $(CMD_SRC:%.c=$(O)/%.o)

LIB := $(BUILD)/librlshim.so
RL  := $(BUILD)/librangelock.a
CMD := $(BUILD)/rlshim
CORE_A := $(O)/shim_core.a

EXAMPLES := $(patsubst examples/%.c,$(BUILD)/examples/%,$(wildcard examples/*.c))
UNIT     := $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/unit/*_test.c))
SLOWFS   := $(if $(shell $(PKG_CONFIG) --exists fuse3 2>/dev/null && echo yes),tests/lab/slowfs.c)
PROGRAMS := $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/preload/*.c tests/stress/*.c \
              tests/fault/*.c) $(SLOWFS) $(filter-out %/pairs.c,$(wildcard tests/bench/*.c)) tests/bench/pairs.c)
MODEL    := $(BUILD)/tests/model/model

.PHONY: all help deps demo check stress bench fuzz asan tsan ubsan mutants format lint install \
        uninstall clean programs version deps-apps deps-hpc deps-others apps others deb
.DELETE_ON_ERROR:
.SECONDARY:

all: $(LIB) $(RL) $(CMD) $(EXAMPLES)

help:
	@sed -n 's/^## //p' Makefile

## all        build/librlshim.so, build/librangelock.a, build/rlshim, build/examples
## deps       install what building and testing needs (Debian packages, through apt-get)
## demo       the main job, before and after, on this machine's disk (a minute)
## check      all tests; what cannot run here is skipped with its reason
## apps       databases from Debian, loaded, killed APPS_KILLS (20) times each, and checked, and Fortran,
##            MPI and HDF5 codes; deps-apps and deps-hpc install them (not part of check)
## deb        Debian packages in build/deb (deps-deb installs what that needs)
## stress     the model and the torture tests for SECONDS (default 600) each
## bench      paired before/after measurements with confidence intervals
## fuzz       the configuration parser under libFuzzer for SECONDS (default 60)
## mutants    the lock manager broken on purpose, once per invariant: each must be caught
## asan ubsan tsan   unit tests and torture in build/<variant> under that sanitizer
## coverage   lines of lockmgr/ and shim/ that the tests reach, by file (build/gcov)
## valgrind   the unit tests under valgrind
## others     stress-ng, fio and other preload libraries, without and with the shim
##            (deps-others installs them)
## format     clang-format over the sources; lint: clang-tidy, cppcheck, shellcheck
## install    PREFIX (/usr/local), DESTDIR, LIBDIR; uninstall removes the same files

# --- objects -----------------------------------------------------------------------------------

$(O)/shim/%.o: shim/%.c
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(BASE) $(WARNINGS) $(CPPFLAGS) $(CFLAGS) $(SHIM_CFLAGS) $(SAN) -c $< -o $@

# The keeper process is a program of its own, embedded in the library: no libc, no sanitizer.
KEEPER_IMAGE := $(O)/keeper_image
KEEPER_SRC := shim/keeper/image.c shim/zeros.c lockmgr/leftover.c lockmgr/range_table.c lockmgr/ranges.c
$(KEEPER_IMAGE): $(KEEPER_SRC) Makefile $(wildcard shim/*.h shim/*.def lockmgr/*.h)
	$(call say,CC,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(filter-out -MMD -MP,$(BASE)) $(WARNINGS) $(CPPFLAGS) -Os -ffreestanding -fno-pie -fno-stack-protector \
	  -fno-asynchronous-unwind-tables -ffunction-sections -fdata-sections \
	  -nostdlib -static -Wl,--gc-sections -Wl,--build-id=none -Wl,-z,noexecstack -s -o $@ $(KEEPER_SRC)

$(O)/shim/keeper_start.o: $(KEEPER_IMAGE)
$(O)/shim/keeper_start.o: BASE += -DKEEPER_IMAGE='"$(KEEPER_IMAGE)"'

$(O)/lockmgr/%.o: lockmgr/%.c
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(BASE) $(WARNINGS) $(CPPFLAGS) $(CFLAGS) $(SHIM_CFLAGS) $(SAN) -c $< -o $@

# Built anew when the library is to be installed elsewhere.
$(BUILD)/dirs: FORCE
	@mkdir -p $(@D)
	@echo '$(PREFIX) $(LIBDIR) $(INCDIR)' | cmp -s - $@ || echo '$(PREFIX) $(LIBDIR) $(INCDIR)' > $@
.PHONY: FORCE
$(O)/shim/cmd/find.o: $(BUILD)/dirs
$(O)/shim/cmd/find.o: BASE += -DRLSHIM_LIBDIR='"$(LIBDIR)"'

# The shim interposes liburing's entry points and uses liburing itself: its copy is linked into ring.o
# first and keeps no global name, so that neither can be taken for the other.
$(O)/ring_linked.o: $(O)/shim/ring.o
	$(call say,LINK,$@)
	$(Q)$(CC) -r -nostdlib -o $@.all $< -Wl,-Bstatic -luring -Wl,-Bdynamic
	$(Q)$(OBJCOPY) -G ring_open -G ring_close -G ring_run $@.all $@ && rm -f $@.all

$(RL): $(LOCKMGR_O)
	$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) rcsD $@ $^

$(CORE_A): $(CORE_O)
	$(Q)rm -f $@ && $(AR) rcsD $@ $^

# Exactly the interposed names and the public functions leave the library.
$(BUILD)/exports.map: shim/calls.def Makefile
	@mkdir -p $(@D)
	$(Q){ echo '{ global:'; sed -n 's/^CALL([^,]*, *\([A-Za-z0-9_]*\),.*/  \1;/p' $<; \
	  echo '  rl_*; local: *; };'; } > $@

$(LIB): $(CORE_O) $(CALLS_O) $(RL) $(BUILD)/exports.map
	$(call say,LINK,$@)
	$(Q)$(CC) $(CFLAGS) $(SAN) $(SHIM_LDFLAGS) -Wl,--version-script=$(BUILD)/exports.map $(LDFLAGS) \
	  -o $@ $(CORE_O) $(CALLS_O) $(RL) -Wl,-Bstatic -lck -Wl,-Bdynamic -Wl,--exclude-libs,ALL -ldl

$(CMD): $(CMD_O) $(CMD_CORE:%=$(O)/shim/%.o) $(RL)
	$(call say,LINK,$@)
	$(Q)$(CC) $(CFLAGS) $(SAN) $(LDFLAGS) -o $@ $^ -ljansson -ldw -pthread -ldl -lm

$(BUILD)/examples/lock_ranges: examples/lock_ranges.c $(RL)
	$(call say,CC,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(BASE) $(WARNINGS) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -MF $@.d -o $@ $< $(RL) -lck -pthread

$(BUILD)/examples/%: examples/%.c
	$(call say,CC,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(BASE) $(WARNINGS) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -MF $@.d -o $@ $< -pthread -lm

# --- tests -------------------------------------------------------------------------------------

# They jump between stacks, which glibc's fortified longjmp takes for an attack.
$(BUILD)/tests/unit/%: tests/unit/%.c $(RL) $(CORE_A)
	$(call say,CC,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(BASE) $(WARNINGS) $(CPPFLAGS) $(CFLAGS) -U_FORTIFY_SOURCE $(SAN) $(LDFLAGS) -MF $@.d -fexceptions -o $@ $< \
	  $(CORE_A) $(RL) -lcmocka -lck -ldl -pthread $(if $(filter report_read_test,$(@F)),-ljansson)

$(BUILD)/tests/lab/slowfs: tests/lab/slowfs.c
	$(call say,CC,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(BASE) $(WARNINGS) $(CPPFLAGS) $(CFLAGS) $$($(PKG_CONFIG) --cflags fuse3) $(LDFLAGS) -MF $@.d -o $@ $< \
	  $$($(PKG_CONFIG) --libs fuse3) -pthread

$(BUILD)/tests/stress/%: tests/stress/%.c $(RL)
	$(call say,CC,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(BASE) $(WARNINGS) $(CPPFLAGS) $(CFLAGS) $(SAN) $(LDFLAGS) -MF $@.d -o $@ $< $(RL) -lck -pthread -lm

$(BUILD)/tests/bench/range_table_bench $(BUILD)/tests/bench/range_lock_bench: $(BUILD)/tests/bench/%: tests/bench/%.c $(RL)
	$(call say,CC,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(BASE) $(WARNINGS) $(CPPFLAGS) $(CFLAGS) $(SAN) $(LDFLAGS) -MF $@.d -o $@ $< $(RL) -lck -pthread -lm

$(MODEL): $(wildcard tests/model/*.c tests/model/*.h)
	$(call say,CC,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(filter-out -MMD -MP,$(BASE)) $(WARNINGS) $(CPPFLAGS) $(CFLAGS) $(SAN) $(LDFLAGS) -o $@ $(filter %.c,$^) -pthread -lm

$(BUILD)/tests/%: tests/%.c
	$(call say,CC,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(BASE) $(WARNINGS) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -MF $@.d -o $@ $< -pthread -lm -ldl

programs: all $(PROGRAMS) $(MODEL)

RUN = BUILD=$(abspath $(BUILD)) SRC=$(CURDIR) SHIM_SO=$(abspath $(LIB)) tests/run

SCRIPTS = $(sort $(filter-out %/lab.sh %/settles_removed.sh,$(wildcard tests/lab/*.sh tests/preload/*.sh tests/fault/*.sh))) \
          tests/bench/selftest.sh tests/bench/instructions.sh

check: all programs $(UNIT)
	$(Q)$(RUN) $(sort $(UNIT)) $(SCRIPTS) tests/stress/torture.sh tests/model/self_test.sh \
	  tests/model/run.sh

APPS := $(filter-out %/lib.sh,$(wildcard tests/apps/*.sh))
APPS_KILLS ?= 20
apps: all
	$(Q)APPS_KILLS=$(APPS_KILLS) $(RUN) -v --scale 10 $(APPS)

OTHERS := $(wildcard tests/others/*.sh)
others: all
	$(Q)$(RUN) -v --timeout 900 $(OTHERS) tests/preload/order.sh

SECONDS ?= 600
stress: all programs
	$(Q)STRESS_SECONDS=$(SECONDS) $(RUN) --timeout $$(( $(SECONDS) * 7 + 900 )) tests/stress/long.sh

bench: all programs
	$(Q)BUILD=$(abspath $(BUILD)) SRC=$(CURDIR) SHIM_SO=$(abspath $(LIB)) tests/bench/bench
	$(Q)$(BUILD)/tests/bench/range_lock_bench

mutants:
	$(Q)BUILD=$(abspath $(BUILD)) SRC=$(CURDIR) tests/stress/mutants.sh
	$(Q)BUILD=$(abspath $(BUILD)) SRC=$(CURDIR) tests/stress/keeper_mutants.sh

asan ubsan tsan:
	$(Q)$(MAKE) --no-print-directory VARIANT=$@ check-variant

.PHONY: check-variant
check-variant: $(UNIT) $(BUILD)/tests/stress/range_torture $(BUILD)/tests/stress/gate_torture $(BUILD)/tests/stress/range_lock_torture
	$(Q)$(RUN) $(sort $(UNIT)) tests/stress/torture.sh

# An instrumented library is not what is installed, its symbols and its speed are its own; create_race
# takes half an hour.
COVERED ?= $(filter-out %/settles_removed.sh %/installed.sh %/exports.sh %/bench_cmd.sh %/create_race.sh,$(sort $(UNIT) $(wildcard tests/preload/*.sh tests/fault/*.sh)))
coverage:
	$(Q)$(MAKE) --no-print-directory VARIANT=gcov coverage-variant

.PHONY: coverage coverage-variant coverage-report valgrind
coverage-variant: build/gcov/counters.o
	$(Q)$(MAKE) --no-print-directory VARIANT=gcov all programs $(UNIT)
	$(Q)rm -rf $(COVER) && mkdir -p $(COVER)/counts && chmod 1777 $(COVER)/counts
	$(Q)$(RUN) --scale 3 $(COVERED) tests/model/run.sh || echo "coverage: some tests failed in the instrumented build"
	$(Q)tests/coverage/report $(BUILD)
coverage-report:
	$(Q)tests/coverage/report build/gcov

valgrind: $(UNIT)
	$(Q)UNIT='$(sort $(abspath $(UNIT)))' tests/coverage/valgrind

FUZZ_CC ?= clang
fuzz:
	@mkdir -p $(BUILD)/fuzz
	$(Q)$(FUZZ_CC) -std=gnu11 -D_GNU_SOURCE -O1 -g -fsanitize=fuzzer,address,undefined -o $(BUILD)/fuzz/config_fuzz \
	  tests/fuzz/config_fuzz.c shim/config.c shim/config_*.c
	$(Q)$(BUILD)/fuzz/config_fuzz -timeout=5 -max_len=16384 -max_total_time=$(if $(filter command line,$(origin SECONDS)),$(SECONDS),60)

demo: all
	$(Q)BUILD=$(abspath $(BUILD)) SRC=$(CURDIR) SHIM_SO=$(abspath $(LIB)) examples/demo.sh

# --- the house ---------------------------------------------------------------------------------

APT := build-essential pkg-config libjansson-dev libdw-dev liburing-dev libunwind-dev libck-dev libcmocka-dev libfuse3-dev \
       fuse3 xfsprogs btrfs-progs e2fsprogs util-linux mount kmod strace valgrind attr acl libcap2-bin \
       sqlite3 python3 git file procps jq cpio tar
deps:
	@echo "Installing Debian packages with apt-get: $(APT)"
	$(Q)DEBIAN_FRONTEND=noninteractive apt-get -q update >/dev/null
	$(Q)DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends $(APT) >/dev/null
	@echo "Dependencies are installed."

APT_APPS := python3 mariadb-server-core mariadb-client-core postgresql-15 redis-tools rocksdb-tools
# RUNLEVEL: no package starts a service.
deps-apps:
	@echo "Installing Debian packages with apt-get: $(APT_APPS)"
	$(Q)DEBIAN_FRONTEND=noninteractive apt-get -q update >/dev/null
	$(Q)RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends $(APT_APPS) >/dev/null

APT_OTHERS := stress-ng fio libeatmydata1 libjemalloc2
deps-others:
	@echo "Installing Debian packages with apt-get: $(APT_OTHERS)"
	$(Q)DEBIAN_FRONTEND=noninteractive apt-get -q update >/dev/null
	$(Q)DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends $(APT_OTHERS) >/dev/null

APT_HPC := gfortran openmpi-bin libopenmpi-dev libhdf5-openmpi-dev
deps-hpc:
	@echo "Installing Debian packages with apt-get: $(APT_HPC)"
	$(Q)DEBIAN_FRONTEND=noninteractive apt-get -q update >/dev/null
	$(Q)DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends $(APT_HPC) >/dev/null

SOURCES := $(wildcard lockmgr/*.[ch] shim/*.[ch] shim/cmd/*.[ch] shim/keeper/*.[ch] include/rlshim/*.h examples/*.c tests/*/*.[ch])
format:
	$(Q)clang-format -i $(SOURCES)

lint:
	$(Q)cppcheck --quiet --error-exitcode=1 --inline-suppr --enable=warning,portability --std=c11 \
	  --suppress=missingIncludeSystem --suppress=ctunullpointer --suppress=ctuuninitvar --suppress=allocaCalled --suppress=nullPointerArithmeticRedundantCheck \
	  --suppress=syntaxError:shim/call_read.c --suppress=syntaxError:shim/call_write.c -D__x86_64__ -D__SIZEOF_LONG__=8 -D_GNU_SOURCE lockmgr shim
	$(Q)clang-tidy --quiet --warnings-as-errors='*' -checks='-*,bugprone-*,-bugprone-easily-swappable-parameters,-bugprone-reserved-identifier,-bugprone-macro-parentheses' \
	  $(wildcard lockmgr/*.c) -- -std=gnu11 -D_GNU_SOURCE
	$(Q)shellcheck -x $(wildcard tests/run tests/*/*.sh tests/*/*.bash tests/bench/bench examples/*.sh .ci/run) docs/rlshim.bash

HEADERS := $(wildcard include/rlshim/*.h)
LOCK_HEADERS := rawcall.h sync.h brief_lock.h ranges.h range_table.h leftover.h single_flight.h gate.h inode_table.h name_table.h
$(BUILD)/rangelock.pc: Makefile $(BUILD)/dirs
	@mkdir -p $(@D)
	$(Q)printf '%s\n' 'prefix=$(PREFIX)' 'libdir=$(LIBDIR)' 'includedir=$(INCDIR)' '' 'Name: rangelock' \
	  'Description: coordination of I/O on byte ranges of one file within a process' 'Version: $(VERSION)' \
	  'Libs: -L$${libdir} -lrangelock -lck' 'Cflags: -I$${includedir} -I$${includedir}/rlshim' > $@

EXTRA := docs/examples/rlshim.conf.service docs/examples/rlshim.modulefile
DOCS  := rlshim.conf.example README.md CHANGELOG.md LICENSE docs/install.md
install: all $(BUILD)/rangelock.pc
	$(Q)$(INSTALL) -d $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(BINDIR) $(DESTDIR)$(INCDIR)/rlshim \
	  $(DESTDIR)$(MANDIR)/man1 $(DESTDIR)$(MANDIR)/man3 $(DESTDIR)$(MANDIR)/man5 $(DESTDIR)$(MANDIR)/man7 \
	  $(DESTDIR)$(DOCDIR)/examples $(DESTDIR)$(COMPDIR)
	$(Q)$(INSTALL) -m 755 $(LIB) $(DESTDIR)$(LIBDIR)/
	$(Q)$(INSTALL) -m 644 $(RL) $(DESTDIR)$(LIBDIR)/
	$(Q)$(INSTALL) -m 644 $(BUILD)/rangelock.pc $(DESTDIR)$(LIBDIR)/pkgconfig/
	$(Q)$(INSTALL) -m 755 $(CMD) $(DESTDIR)$(BINDIR)/
	$(Q)$(INSTALL) -m 644 $(HEADERS) $(LOCK_HEADERS:%=lockmgr/%) $(DESTDIR)$(INCDIR)/rlshim/
	$(Q)for s in 1 3 5 7; do $(INSTALL) -m 644 docs/*.$$s $(DESTDIR)$(MANDIR)/man$$s/ || exit; done
	$(Q)$(INSTALL) -m 644 $(DOCS) $(DESTDIR)$(DOCDIR)/
	$(Q)$(INSTALL) -m 644 $(EXTRA) $(DESTDIR)$(DOCDIR)/examples/
	$(Q)$(INSTALL) -m 644 docs/rlshim.bash $(DESTDIR)$(COMPDIR)/rlshim

# Directories go when they are empty: others may have put something there. DESTDIR itself stays.
uninstall:
	$(Q)rm -f $(DESTDIR)$(LIBDIR)/librlshim.so $(DESTDIR)$(LIBDIR)/librangelock.a \
	  $(DESTDIR)$(LIBDIR)/pkgconfig/rangelock.pc $(DESTDIR)$(BINDIR)/rlshim \
	  $(foreach s,1 3 5 7,$(patsubst docs/%,$(DESTDIR)$(MANDIR)/man$(s)/%,$(wildcard docs/*.$(s)))) \
	  $(addprefix $(DESTDIR)$(INCDIR)/rlshim/,$(notdir $(HEADERS)) $(LOCK_HEADERS)) \
	  $(addprefix $(DESTDIR)$(DOCDIR)/,$(notdir $(DOCS)) $(addprefix examples/,$(notdir $(EXTRA)))) \
	  $(DESTDIR)$(COMPDIR)/rlshim
	$(Q)for d in $(INCDIR)/rlshim $(DOCDIR)/examples $(LIBDIR)/pkgconfig $(MANDIR)/man1 $(MANDIR)/man3 $(MANDIR)/man5 $(MANDIR)/man7 $(COMPDIR) $(BINDIR); do \
	  [ ! -d "$(DESTDIR)/$$d" ] || (cd "$(DESTDIR)/" && rmdir -p --ignore-fail-on-non-empty ".$$d") 2>/dev/null; done; true

# In a copy of the tree, so that it neither uses nor touches what is built here. A package builder runs
# the unit tests; here "make check" does.
deb:
	$(Q)rm -rf build/deb && mkdir -p build/deb/rlshim-$(VERSION)
	$(Q)tar -c --exclude=./build --exclude=./.git . | tar -x -C build/deb/rlshim-$(VERSION)
	$(Q)cd build/deb/rlshim-$(VERSION) && DEB_BUILD_OPTIONS='nocheck parallel=2' dpkg-buildpackage -us -uc -b -d
	$(Q)rm -rf build/deb/rlshim-$(VERSION)
	$(Q)lintian --fail-on error build/deb/*.changes
	@ls build/deb/*.deb

APT_DEB := debhelper dpkg-dev lintian
deps-deb:
	@echo "Installing Debian packages with apt-get: $(APT_DEB)"
	$(Q)DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends $(APT_DEB) >/dev/null

# What a package build runs: no root, no disks, no tools but the compiler.
.PHONY: check-units deps-deb
check-units: $(UNIT)
	$(Q)$(RUN) $(sort $(UNIT))

clean:
	$(Q)rm -rf build

-include $(shell find build -name '*.d' 2>/dev/null)
