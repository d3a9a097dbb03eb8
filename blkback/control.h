/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * control: what the command line says to the daemon.
 *
 * A SOCK_STREAM socket <run dir>/control (mode 0600, peers of uid 0 only).
 * One connection is one question: the client sends one JSON object on one
 * line, the daemon answers with one JSON object on one line and closes.
 *
 *   {"op": "attach", "domain": "web1" | "7", "vdev": "xvdb",
 *    "spec": "raw:/srv/b.img", "readonly": false,
 *    "cdrom": false, "wait": true, "timeout": 30}
 *        answers when the guest has connected, or at once if not "wait"
 *   {"op": "detach", "domain": "7", "vdev": "xvdb", "timeout": 30}
 *        answers when the guest has let go and the nodes are removed
 *   {"op": "insert", "domain": "7", "vdev": "xvdc", "spec": "raw:/cd.iso",
 *    "timeout": 30}, {"op": "eject", "domain": "7", "vdev": "xvdc",
 *    "timeout": 30}
 *        another medium, or none, into a CD-ROM drive; answers when the guest
 *        has been told
 *   {"op": "resume", "domain": "7", "vdev": "xvdb"}
 *        issue again what failed and waits (on-error=stop...)
 *   {"op": "resize", "domain": "7", "vdev": "xvdb",
 *    "size": 1048576 | "more": 1048576, "timeout": 30}
 *        make the disk larger, so that it has so many bytes, or so many more;
 *        without either, as large as its file or device has become.  Answers
 *        when the guest, if it is connected, has been told:
 *        {"ok": true, "size": 1048576, "told": true}
 *   {"op": "list"}
 *        {"ok": true, "disks": [{"domid": 7, "domain": "web1", "devid": 51728,
 *         "vdev": "xvdb", "kind": "ringback", "state": "Connected",
 *         "frontend-state": "Connected", "spec": "...", "full-spec": "...",
 *         "pid": 123,
 *         "size": 1048576, "readonly": false, "cdrom": false,
 *         "error": null | "..."}]}
 *   {"op": "stats", "domain": "7", "vdev": "xvdb"}
 *        {"ok": true, "stats": {"reads": ..., ...}}: page.h's counters with
 *        '-' for '_', and "in-flight"; the arrays as "reads" "writes"
 *        "flushes" "barriers" "discards" (ops), "read-bytes" ...,
 *        "read-wait-ns" ... and "read-wait-max-ns" ... ("write-" and so on
 *        likewise)
 *   {"op": "hotplug", "action": "add" | "remove",
 *    "backend": "backend/vbd/7/51712"}
 *        for block-ringback: "add" answers with the verdict on the image
 *   {"op": "ping"}
 *        {"ok": true, "pid": ..., "version": "..."}
 *
 * Every answer has "ok"; {"ok": false, "error": "..."} carries one line for a
 * person: which disk, what was tried, what failed, what to do.
 */
#ifndef BLKBACK_CONTROL_H
#define BLKBACK_CONTROL_H

#define RINGBACK_VERSION "0.1"	/* of the daemon and of the command */

#define BY_HAND "ringback"	/* the kind of what "attach" attaches */

#define CONTROL_RUN_DIR  "/run/ringback"
#define CONTROL_SOCKET   "control"	/* in the run directory */
#define CONTROL_LINE_MAX 65536		/* bytes of a question */
#define CONTROL_TIMEOUT  30		/* seconds, when none is given */

#endif
