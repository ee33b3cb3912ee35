"""A process group of one process accepts no connections from other machines."""

import psutil

from arena.learn.distributed import get_deepspeed


def test_single_process_listens_only_on_loopback() -> None:
    get_deepspeed()
    addresses = [socket.laddr.ip for socket in psutil.Process().net_connections("inet") if socket.status == "LISTEN"]
    assert {address.removeprefix("::ffff:") for address in addresses} <= {"127.0.0.1", "::1"}
