"""Learning alone opens no door: the process group of one process can be reached by nobody else."""

import psutil

from arena.learn.distributed import get_deepspeed


def test_a_process_that_learns_alone_listens_on_loopback_at_most() -> None:
    get_deepspeed()
    found = [socket.laddr.ip for socket in psutil.Process().net_connections("inet") if socket.status == "LISTEN"]
    assert {address.removeprefix("::ffff:") for address in found} <= {"127.0.0.1", "::1"}
