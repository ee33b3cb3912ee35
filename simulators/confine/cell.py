"""Cell: isolates one program from the system. `cells.py` starts this script in a new interpreter, with a job on stdin.

There are three processes. The keeper (outside) clones the warden into new user, mount, process, network, ipc, host name
and cgroup namespaces. The warden builds a read-only root of the program's files with an empty scratch directory, drops
all privileges and waits as process 1. The prisoner is its child, with limits and a seccomp filter; it executes the
program. If the warden ends, the kernel kills everything inside. The warden ends with the keeper, and the keeper ends
with the thread that started it or at the time limit.

The report pipe carries one line per event: `error` and the reason; `started`; `status`, the prisoner's wait status and
CPU seconds. The script imports little, because imports take most of its time.
"""

from __future__ import annotations

import ctypes
import marshal
import os
import resource
import signal
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

NOBODY = 65534
BASE = "/proc"
"""Mount point of the new root: a directory that always exists and is not needed after that point."""
SCRATCH = "/scratch"

NAMESPACES = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
NOSUID, NODEV, NOEXEC, BIND, RECURSIVE, PRIVATE = 2, 4, 8, 4096, 16384, 1 << 18
DETACH = 2
READ_ONLY_NO_SUID_NO_DEV = struct.pack("=QQQQ", 1 | 2 | 4, 0, 0, 0)
AT_RECURSIVE = 0x8000
CLOSE_ON_EXEC = 4
DEATH_SIGNAL, DUMPABLE, SECCOMP, DROP_BOUNDING, NO_NEW_PRIVILEGES = 1, 4, 22, 24, 38
NO_RANDOM_ADDRESSES = 0x0040000
CAPABILITIES_V3 = struct.pack("=Ii", 0x20080522, 0)

# Not CDLL: that releases the interpreter's lock, which a clone must hold.
LIBC = ctypes.PyDLL(None, use_errno=True)
X86 = os.uname().machine == "x86_64"
CLONE, PIVOT_ROOT, CAPSET = (56, 155, 126) if X86 else (220, 41, 91)
MOUNT_SETATTR, CLOSE_RANGE = 442, 436


def check_result(action: str, result: int) -> int:
    """Return the result of a libc call. Raises OSError, naming `action`, with errno's text if it is negative."""
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), action)
    return result


def call_system(action: str, number: int, *arguments: int | bytes) -> int:
    """Make a system call by its number and return its result. Raises OSError, naming `action`, if it fails."""
    c_arguments = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    return check_result(action, LIBC.syscall(ctypes.c_long(number), *c_arguments))


def call_prctl(action: str, option: int, value: int = 0) -> None:
    """Call prctl with one argument. Raises OSError, naming `action`, if it fails."""
    zero = ctypes.c_ulong(0)
    check_result(action, LIBC.prctl(option, ctypes.c_ulong(value), zero, zero, zero))


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """Mount `source` at `target` by mount(2). Raises OSError, naming the target, if it fails."""
    texts = [text.encode() or None for text in (source, target, kind)]
    check_result(f"mount {target}", LIBC.mount(*texts, ctypes.c_ulong(flags), data.encode() or None))


def run_keeper(job: dict[str, Any], report: int) -> None:
    """Run the keeper, the process outside the cell: start the warden in new namespaces and wait for its end.

    The warden is process 1 of the cell; the keeper also maps its user and group. SIGTERM kills the warden. Does nothing
    if the caller has already ended.
    """
    call_prctl("parent's death", DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != job["parent"]:
        return
    with open("/proc/self/oom_score_adj", "w") as score:  # when memory is short, the kernel kills the cell first
        score.write("1000")
    gate, opener = os.pipe()
    warden = call_system("clone with new namespaces", CLONE, NAMESPACES | signal.SIGCHLD, 0, 0, 0, 0)
    if warden == 0:
        os.close(opener)
        run_and_exit(report, lambda: run_warden(job, gate, report))
    os.close(gate)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(warden, signal.SIGKILL))
    try:
        map_identities(warden)
        os.write(opener, b"\0")
        os.waitpid(warden, 0)
    except OSError:
        os.kill(warden, signal.SIGKILL)
        raise


def map_identities(warden: int) -> None:
    """Map user and group ids of the warden (process 1 of the cell).

    If possible, root is mapped to root, for building the cell, and nobody to nobody, for running in it. Otherwise the
    caller is mapped to nobody. The kernel does not apply the process limit to its own root, so nobody must be a
    different user.
    """
    root = os.getuid() == 0 and all(has_id(f"/proc/self/{kind}_map", NOBODY) for kind in ("uid", "gid"))
    if not root:
        with open(f"/proc/{warden}/setgroups", "w") as setgroups:
            setgroups.write("deny")
    for kind, caller in (("uid", os.getuid()), ("gid", os.getgid())):
        with open(f"/proc/{warden}/{kind}_map", "w") as ids:
            ids.write(f"0 {caller} 1\n{NOBODY} {NOBODY} 1\n" if root else f"{NOBODY} {caller} 1\n")


def has_id(path: str, identity: int) -> bool:
    """Return True if the id exists in the user namespace whose id map is the file `path`."""
    with open(path) as ids:
        spans = [[int(number) for number in line.split()] for line in ids]
    return any(first <= identity < first + count for first, _, count in spans)


def run_warden(job: dict[str, Any], gate: int, report: int) -> NoReturn:
    """Run the warden, process 1 of the cell: build the cell, drop privileges, run the prisoner, report its exit status.

    The warden first waits until the keeper writes to the pipe `gate`, and ends silently if the keeper is gone. Never
    returns.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # process 1 never receives signals without a handler
    if not os.read(gate, 1):
        os._exit(1)
    build_root(job)
    drop_privileges()
    call_prctl("keeper's death", DEATH_SIGNAL, signal.SIGKILL)
    if is_closed(gate):  # the keeper ended before the death signal was set
        os._exit(1)
    os.write(report, b"started\n")
    prisoner = os.fork()
    if prisoner == 0:
        run_and_exit(report, lambda: run_prisoner(job))
    _, status = os.waitpid(prisoner, 0)
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    os.write(report, f"status {status} {usage.ru_utime + usage.ru_stime}\n".encode())
    os._exit(0)


def build_root(job: dict[str, Any]) -> None:
    """Build the cell's root file system, enter it, and leave the old one unreachable.

    The root contains the job's files and texts, read-only, and an empty scratch directory in memory.
    """
    LIBC.sethostname(b"cell", 4)
    mount("none", "/", flags=RECURSIVE | PRIVATE)
    mount("none", BASE, "tmpfs", NOSUID | NODEV, "size=4m,mode=755")
    os.mkdir(BASE + SCRATCH)
    for name, text in job["texts"].items():
        with open(f"{BASE}/{name}", "w", encoding="utf-8", newline="") as file:
            file.write(text)
    for outside, inside in job["folders"]:
        os.makedirs(BASE + inside)
        mount(outside, BASE + inside, flags=BIND | RECURSIVE)
    for outside, inside in job["files"]:
        os.makedirs(os.path.dirname(BASE + inside), exist_ok=True)
        os.close(os.open(BASE + inside, os.O_CREAT | os.O_WRONLY, 0o644))
        mount(outside, BASE + inside, flags=BIND)
    for inside in job["hidden"]:
        mount(BASE + SCRATCH, BASE + inside, flags=BIND)
    call_system(
        "make the root read-only", MOUNT_SETATTR, -100, BASE.encode(), AT_RECURSIVE, READ_ONLY_NO_SUID_NO_DEV, 32
    )
    limits = f"size={job['scratch_mb']}m,nr_inodes=1000,mode=700,uid={NOBODY},gid={NOBODY}"
    mount("none", BASE + SCRATCH, "tmpfs", NOSUID | NODEV | NOEXEC, limits)
    os.chdir(BASE)
    call_system("pivot_root", PIVOT_ROOT, b".", b".")
    check_result("unmount the old root", LIBC.umount2(b".", DETACH))
    os.chdir(SCRATCH)


def drop_privileges() -> None:
    """Drop all capabilities irrevocably, become the user nobody, and forbid new privileges and core dumps."""
    capability = 0
    while LIBC.prctl(DROP_BOUNDING, ctypes.c_ulong(capability), 0, 0, 0) == 0:
        capability += 1
    if os.getuid() != NOBODY:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    call_system("drop the capabilities", CAPSET, CAPABILITIES_V3, bytes(24))
    call_prctl("no new privileges", NO_NEW_PRIVILEGES, 1)
    call_prctl("no dumps", DUMPABLE, 0)


def run_prisoner(job: dict[str, Any]) -> NoReturn:
    """Run the prisoner, the program's process: apply limits and the system call filter, and execute the program.

    Only the three standard streams stay open. Its stdin is the job's text `stdin` or, without one, the rest of this
    process's stdin after the job. Never returns.
    """
    if "stdin" in job["texts"]:
        os.dup2(os.open("/stdin", os.O_RDONLY), 0)
    call_system("close open files", CLOSE_RANGE, 3, 0xFFFFFFFF, CLOSE_ON_EXEC)
    for name, (soft, hard) in job["limits"].items():
        resource.setrlimit(getattr(resource, name), (soft, hard))
    LIBC.personality(ctypes.c_ulong(NO_RANDOM_ADDRESSES))  # so that every run has the same addresses
    program = job["filter"]
    array = ctypes.create_string_buffer(program)
    header = struct.pack("HP", len(program) // 8, ctypes.addressof(array))
    check_result("install the filter", LIBC.prctl(SECCOMP, ctypes.c_ulong(2), header))
    os.execve(job["command"][0], job["command"], job["environment"])


def is_closed(pipe: int) -> bool:
    """Return True if the pipe's other end, which writes nothing more, is closed. Makes the pipe non-blocking."""
    os.set_blocking(pipe, False)
    try:
        return not os.read(pipe, 1)
    except BlockingIOError:
        return False


def run_and_exit(report: int, work: Callable[[], None]) -> NoReturn:
    """Run `work`, write any failure to the pipe `report` as an `error` line, and end the process. Never returns."""
    try:
        work()
    except OSError as error:
        reason = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
        os.write(report, f"error {reason}\n".encode())
    except Exception as error:  # noqa: BLE001 the waiting process must get an answer
        os.write(report, f"error {type(error).__name__} {error}\n".encode())
    finally:
        os._exit(0)


def main() -> NoReturn:
    """Read the job from stdin and run the keeper. The command's argument is the report pipe's number."""
    report = int(sys.argv[1])
    os.set_inheritable(report, False)
    # Reset the caller's settings: the user nobody must be able to read the root, and signals must arrive.
    os.umask(0o022)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    size = int.from_bytes(os.read(0, 8), "big")
    data = b""
    while size > len(data):  # not a byte more: the rest of stdin may be for the program
        piece = os.read(0, size - len(data))
        if not piece:
            os._exit(1)
        data += piece
    job = marshal.loads(data)
    signal.alarm(job["alarm"])
    run_and_exit(report, lambda: run_keeper(job, report))


if __name__ == "__main__":
    main()
