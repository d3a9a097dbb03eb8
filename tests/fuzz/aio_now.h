/* SPDX-License-Identifier: GPL-2.0-or-later */
/* aio_now: see aio_now.c. */
#ifndef TESTS_FUZZ_AIO_NOW_H
#define TESTS_FUZZ_AIO_NOW_H

#include "drivers/aio.h"

/* In which order aio_reap() does what is queued; bits. */
#define AIO_NOW_NEWEST 1u	/* the newest first */
#define AIO_NOW_SINGLY 2u	/* one each time */
extern unsigned aio_now_order;

#endif
