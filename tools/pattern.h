/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * pattern: data that tells where and when it was written.
 *
 * Each 512 bytes begin with their offset on the disk and a version; what
 * follows is made of these and a seed, so that no byte can be another's.
 */
#ifndef TOOLS_PATTERN_H
#define TOOLS_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* 'length' is a multiple of 512, 'buf' aligned to 8 bytes. */
void pattern_fill(void *buf, size_t length, uint64_t offset, uint32_t version,
         uint64_t seed);

/* Is it as it was filled?  If not, *bad is the first byte that differs. */
bool pattern_check(const void *buf, size_t length, uint64_t offset,
         uint32_t version, uint64_t seed, size_t *bad);

/* A number that has little to do with the next one's. */
uint64_t pattern_mix(uint64_t n);

#endif
