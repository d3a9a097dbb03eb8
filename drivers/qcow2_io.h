/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * qcow2_io: what reads, writes and the metadata thread share of requests.
 *
 * Unless said otherwise, called by the channel's thread without the image's
 * lock.
 */
#ifndef DRIVERS_QCOW2_IO_H
#define DRIVERS_QCOW2_IO_H

#include "drivers/qcow2.h"

int  qcow2_channel_open(struct image *img, unsigned depth,
         struct channel **chp, char why[WHY_MAX]);
void qcow2_channel_close(struct channel *ch);
void qcow2_submit(struct channel *ch, struct io *io);
unsigned qcow2_reap(struct channel *ch);

/*
 * Under 'lock', by anybody: hand a request, or a sub-I/O that was unpacked,
 * to its channel's thread.
 */
void qcow2_wake(struct qcow2_request *req);
void qcow2_wake_sub(struct qcow2_sub *sub);
void qcow2_wake_all(struct qcow2_channel *ch, struct qcow2_request_list *list);

/* Ways to wait.  The first two under 'lock'. */
void qcow2_park(struct qcow2 *q, struct qcow2_request *req,
         enum qcow2_need need, uint64_t arg);
void qcow2_slice_need(struct qcow2_request *req, struct qcow2_layer *l,
         uint64_t key);
void qcow2_starve(struct qcow2_request *req);

/* Take requests that wait no more as far as they go. */
void qcow2_channel_run(struct qcow2_channel *ch);
void qcow2_request_check(struct qcow2_request *req);

bool qcow2_sub_available(struct qcow2_request *req);
struct qcow2_sub *qcow2_sub_get(struct qcow2_request *req,
         enum qcow2_sub_type type);
void qcow2_sub_put(struct qcow2_sub *sub, int error);
void qcow2_sub_cut(struct qcow2_sub *sub, uint64_t max);
void qcow2_sub_submit(struct qcow2_sub *sub, enum io_op op, int fd,
         uint64_t offset);
uint64_t qcow2_iov_reach(const struct qcow2_request *req, uint64_t max,
         unsigned elements);
unsigned qcow2_iov_cut(struct qcow2_request *req, uint64_t bytes,
         struct iovec *out);

/* enter: under 'lock', by who found the clusters. */
void qcow2_epoch_enter(struct qcow2 *q, struct qcow2_sub *sub);
void qcow2_epoch_leave(struct qcow2 *q, struct qcow2_sub *sub);

/* Read for a copy on write; ends in qcow2_copy_done() (qcow2_write.c). */
void qcow2_copy_start(struct qcow2_sub *sub, void *to, uint64_t offset,
         uint64_t bytes);

/* qcow2_write.c: one piece of a request.  False: it waits. */
bool qcow2_write_piece(struct qcow2_request *req);
bool qcow2_discard_piece(struct qcow2_request *req);
void qcow2_copy_done(struct qcow2_sub *sub, int error);

/*
 * One allocation for each sub-I/O of all open channels: another channel's
 * sub-I/O may use one longer than the channel that began it.
 */
int  qcow2_allocs_reserve(struct qcow2 *q, unsigned nr_subs);
void qcow2_allocs_release(struct qcow2 *q, unsigned nr_subs);
void qcow2_allocs_free(struct qcow2 *q);

#endif
