# SPDX-License-Identifier: GPL-2.0-or-later
# Plain make: no configure, no recursion.  `make help` lists the targets.
#   CC=clang            another compiler
#   SAN=address,undefined   sanitizers (their own output folder)
#   V=1                 show the commands

CC       = gcc
CFLAGS   = -O2 -g
WARN     = -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Werror
comma    = ,
O        = build$(if $(filter-out gcc,$(CC)),-$(notdir $(CC)))$(if $(SAN),-$(subst $(comma),-,$(SAN)))
ALL_CFLAGS   = -std=gnu11 $(WARN) -fstack-protector-strong $(CFLAGS) \
               $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer)
ALL_CPPFLAGS = -I. -MMD -MP -D_GNU_SOURCE -D__XEN_INTERFACE_VERSION__=0x00040e00 \
               $(if $(SAN),-DRINGBACK_SANITIZED) $(CPPFLAGS)
ifndef V
Q   = @
say = @echo '  $(1)  $(2)';
endif

all:
.DELETE_ON_ERROR:
.SECONDARY:

$(O)/%.o: %.c
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) -c -o $@ $<

clean:
	rm -rf build build-*

.PHONY: all clean
-include $(shell find $(O) -name '*.d' 2>/dev/null)
