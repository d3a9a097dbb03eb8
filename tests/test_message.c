/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Messages between the processes: what is refused; that sockets carry them. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "blkback/message.h"

static struct message m;

static int
check(void)
{
	return message_check(&m, sizeof(m));
}

static void
test_frame(void **state)
{
	(void)state;
	message_init(&m, MSG_CLOSE);
	assert_int_equal(check(), 0);
	assert_int_equal(message_check(&m, sizeof(m) - 1), -EPROTO);
	assert_int_equal(message_check(&m, sizeof(m) + 1), -EPROTO);
	assert_int_equal(message_check(&m, 3), -EPROTO);
	m.version++;
	assert_int_equal(check(), -EPROTONOSUPPORT);
	message_init(&m, MSG_STOPPED + 1);
	assert_int_equal(check(), -EPROTO);
	message_init(&m, MSG_CLOSED);
	m.error = 1;
	assert_int_equal(check(), -EPROTO);
	m.error = -EIO;
	assert_int_equal(check(), 0);
	memset(m.why, 'x', sizeof(m.why));
	assert_int_equal(check(), -EPROTO);
}

static void
test_open(void **state)
{
	(void)state;
	message_init(&m, MSG_OPEN);
	assert_int_equal(check(), 0);
	m.u.open.readonly = 2;
	assert_int_equal(check(), -EPROTO);
	m.u.open.readonly = 1;
	m.u.open.activate = 255;
	assert_int_equal(check(), -EPROTO);
	m.u.open.activate = 0;
	memset(m.u.open.spec, 'x', sizeof(m.u.open.spec));
	assert_int_equal(check(), -EPROTO);
	m.u.open.spec[sizeof(m.u.open.spec) - 1] = '\0';
	assert_int_equal(check(), 0);
	memset(m.u.open.uuid, 'x', sizeof(m.u.open.uuid));
	assert_int_equal(check(), -EPROTO);
	m.u.open.uuid[36] = '\0';
	memset(m.u.open.backend, 'x', sizeof(m.u.open.backend));
	assert_int_equal(check(), -EPROTO);
}

static void
test_connect(void **state)
{
	(void)state;
	message_init(&m, MSG_CONNECT);
	assert_int_equal(check(), -EPROTO);		/* no queue */
	m.u.connect.nr_queues = 1;
	assert_int_equal(check(), 0);
	m.u.connect.nr_queues = MAX_QUEUES + 1;
	assert_int_equal(check(), -EPROTO);
	m.u.connect.nr_queues = MAX_QUEUES;
	assert_int_equal(check(), 0);
	m.u.connect.ring[MAX_QUEUES - 1].order = RING_MAX_ORDER + 1;
	assert_int_equal(check(), -EPROTO);
	m.u.connect.nr_queues = MAX_QUEUES - 1;		/* it is not used */
	assert_int_equal(check(), 0);
	m.u.connect.ring[0].order = RING_MAX_ORDER + 1;
	assert_int_equal(check(), -EPROTO);
	m.u.connect.ring[0].order = RING_MAX_ORDER;
	m.u.connect.abi = RING_ABI_X86_32 + 1;
	assert_int_equal(check(), -EPROTO);
}

static void
test_geometry(void **state)
{
	(void)state;
	message_init(&m, MSG_OPENED);
	m.error = -ENOENT;
	assert_int_equal(check(), 0);		/* nothing was opened */
	m.error = 0;
	assert_int_equal(check(), -EPROTO);
	m.geometry.size = 1 << 20;
	m.geometry.block_size = 512;
	m.geometry.physical_block_size = 4096;
	assert_int_equal(check(), 0);
	m.geometry.size = 513;
	assert_int_equal(check(), -EPROTO);
	m.geometry.size = 512;
	m.geometry.block_size = 768;
	assert_int_equal(check(), -EPROTO);
	m.geometry.block_size = 8192;		/* above the physical one */
	assert_int_equal(check(), -EPROTO);

	message_init(&m, MSG_RESIZED);
	assert_int_equal(check(), -EPROTO);
	m.geometry.block_size = m.geometry.physical_block_size = 512;
	assert_int_equal(check(), 0);

	message_init(&m, MSG_HELLO);
	assert_int_equal(check(), 0);		/* empty: no geometry yet */
	m.u.hello.phase = PHASE_OPEN;
	assert_int_equal(check(), -EPROTO);
	m.geometry.block_size = m.geometry.physical_block_size = 512;
	assert_int_equal(check(), 0);
	m.u.hello.phase = PHASE_CONNECTED + 1;
	assert_int_equal(check(), -EPROTO);
}

static void
test_resize(void **state)
{
	(void)state;
	message_init(&m, MSG_RESIZE);
	assert_int_equal(check(), 0);		/* as the file is */
	m.u.resize.size = 1 << 20;
	assert_int_equal(check(), 0);
	m.u.resize.size = 513;
	assert_int_equal(check(), -EPROTO);
	m.u.resize.size = 1ull << 63;
	assert_int_equal(check(), -EPROTO);
}

static void
test_socket(void **state)
{
	struct message got;
	char big[sizeof(m) + 1] = { 0 };
	int fd[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fd), 0);
	assert_int_equal(message_recv(fd[1], &got), -EAGAIN);
	message_init(&m, MSG_DISCONNECT);
	m.generation = 7;
	assert_int_equal(message_send(fd[0], &m), 0);
	assert_int_equal(message_recv(fd[1], &got), 0);
	assert_memory_equal(&m, &got, sizeof(m));
	/* One that is too long does not pass for its beginning. */
	memcpy(big, &m, sizeof(m));
	assert_int_equal(send(fd[0], big, sizeof(big), 0), sizeof(big));
	assert_int_equal(message_recv(fd[1], &got), -EPROTO);
	close(fd[0]);
	assert_int_equal(message_recv(fd[1], &got), -EPIPE);
	assert_int_equal(message_send(fd[1], &m), -EPIPE);
	close(fd[1]);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_frame),
		cmocka_unit_test(test_open),
		cmocka_unit_test(test_connect),
		cmocka_unit_test(test_geometry),
		cmocka_unit_test(test_resize),
		cmocka_unit_test(test_socket),
	};

	return cmocka_run_group_tests_name("message", tests, NULL, NULL);
}
