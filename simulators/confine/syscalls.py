"""Seccomp filters that allow a list of system calls and answer EPERM to all others.

Excluded are sockets other than a process's own pair, new processes, namespaces, mounts, tracing, keys, BPF, io_uring,
shared memory, other processes' limits, and all later additions to Linux. Numbers: asm/unistd_64.h and
asm-generic/unistd.h of Linux 6.1.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterator, Mapping

# One number for x86_64 and one for aarch64, -1 where a machine has no such call.
ALLOWED: Mapping[str, tuple[int, int]] = {
    # memory
    "mmap": (9, 222), "mprotect": (10, 226), "munmap": (11, 215), "brk": (12, 214), "mremap": (25, 216),
    "madvise": (28, 233),
    # files, in the scratch directory and the interpreter's
    "read": (0, 63), "write": (1, 64), "pread64": (17, 67), "pwrite64": (18, 68), "readv": (19, 65),
    "writev": (20, 66), "close": (3, 57), "lseek": (8, 62), "open": (2, -1), "openat": (257, 56),
    "stat": (4, -1), "lstat": (6, -1), "fstat": (5, 80), "newfstatat": (262, 79), "statx": (332, 291),
    "access": (21, -1), "faccessat": (269, 48), "faccessat2": (439, 439), "getdents64": (217, 61),
    "getcwd": (79, 17), "chdir": (80, 49), "fchdir": (81, 50), "rename": (82, -1), "renameat": (264, 38),
    "renameat2": (316, 276), "mkdir": (83, -1), "mkdirat": (258, 34), "rmdir": (84, -1), "unlink": (87, -1),
    "unlinkat": (263, 35), "link": (86, -1), "linkat": (265, 37), "symlink": (88, -1), "symlinkat": (266, 36),
    "readlink": (89, -1), "readlinkat": (267, 78), "chmod": (90, -1), "fchmod": (91, 52), "fchmodat": (268, 53),
    "truncate": (76, 45), "ftruncate": (77, 46), "fallocate": (285, 47), "fsync": (74, 82), "fdatasync": (75, 83),
    "fcntl": (72, 25), "utimensat": (280, 88), "umask": (95, 166), "sendfile": (40, 71),
    "copy_file_range": (326, 285), "dup": (32, 23), "dup2": (33, -1), "dup3": (292, 24), "pipe": (22, -1),
    "pipe2": (293, 59),
    # waiting
    "poll": (7, -1), "ppoll": (271, 73), "select": (23, -1), "pselect6": (270, 72), "epoll_create1": (291, 20),
    "epoll_ctl": (233, 21), "epoll_wait": (232, -1), "epoll_pwait": (281, 22), "eventfd2": (290, 19),
    "nanosleep": (35, 101), "clock_nanosleep": (230, 115), "pause": (34, -1), "sched_yield": (24, 124),
    "sendto": (44, 206), "recvfrom": (45, 207), "shutdown": (48, 210),
    # time, and the process's identity
    "clock_gettime": (228, 113), "clock_getres": (229, 114), "gettimeofday": (96, 169), "time": (201, -1),
    "times": (100, 153), "getrusage": (98, 165), "getrlimit": (97, 163), "getrandom": (318, 278),
    "sched_getaffinity": (204, 123), "uname": (63, 160), "getpid": (39, 172), "getppid": (110, 173),
    "gettid": (186, 178), "getuid": (102, 174), "geteuid": (107, 175), "getgid": (104, 176),
    "getegid": (108, 177), "getgroups": (115, 158), "getresuid": (118, 148), "getresgid": (120, 150),
    "getpgrp": (111, -1), "getpgid": (121, 155), "getsid": (124, 156),
    # signals, which end at the cell's walls, and threads
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "rt_sigpending": (127, 136),
    "rt_sigtimedwait": (128, 137), "rt_sigsuspend": (130, 133), "sigaltstack": (131, 132), "kill": (62, 129),
    "tkill": (200, 130), "tgkill": (234, 131), "alarm": (37, -1), "setitimer": (38, 103), "getitimer": (36, 102),
    "wait4": (61, 260), "waitid": (247, 95), "futex": (202, 98), "set_robust_list": (273, 99),
    "set_tid_address": (218, 96), "rseq": (334, 293), "membarrier": (324, 283), "restart_syscall": (219, 128),
    "arch_prctl": (158, -1), "exit": (60, 93), "exit_group": (231, 94),
    # Starts the interpreter; there is no other file to execute.
    "execve": (59, 221),
}  # fmt: skip

COMPUTING = {
    name: ALLOWED[name]
    for name in (
        "read", "write", "close", "fstat", "lseek", "mmap", "mprotect", "munmap", "brk", "mremap", "madvise", "futex",
        "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "clock_gettime", "gettimeofday", "getrandom", "getpid",
        "exit", "exit_group", "restart_syscall",
    )
}  # fmt: skip
"""System calls of a process that only computes and uses its open streams."""

CLONE, CLONE3, PRLIMIT64, IOCTL, SOCKETPAIR = (56, 220), (435, 435), (302, 261), (16, 29), (53, 199)
NEW_THREAD = 0x00010000
NEW_NAMESPACES = 0x7E020080
UNIX = 1
DESCRIPTOR_REQUESTS = (0x5401, 0x541B, 0x5421, 0x5450, 0x5451)
"""Allowed ioctl requests: is it a terminal, bytes to read, blocking mode, close on exec."""

MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Index of the number in ALLOWED, and the kernel's AUDIT_ARCH, by machine."""

LOAD, JUMP_EQUAL, MASK, RETURN = 0x20, 0x15, 0x54, 0x06
ALLOW, DENY, NO_SUCH_CALL, KILL = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS, 0x80000000
NUMBER, MACHINE, FIRST_ARGUMENT = 0, 4, 16
"""Offsets in struct seccomp_data. Arguments take 8 bytes, low half first."""

Instruction = tuple[int, int, int, int]


def build_filter(machine: str, calls: Mapping[str, tuple[int, int]] = ALLOWED) -> bytes:
    """Return a seccomp filter that allows `calls` on this machine type, as an array of struct sock_filter.

    All other calls fail with EPERM, except that a process may read and lower its own limits and, with ALLOWED, start
    threads, make a socket pair and send some ioctl requests. Raises KeyError for an unknown machine.
    """
    column, architecture = MACHINES[machine]
    program = [(LOAD, 0, 0, MACHINE), (JUMP_EQUAL, 1, 0, architecture), (RETURN, 0, 0, KILL), (LOAD, 0, 0, NUMBER)]
    for numbers in calls.values():
        if numbers[column] >= 0:
            program += _if_call(numbers[column], [(RETURN, 0, 0, ALLOW)])
    program += _if_call(PRLIMIT64[column], _if_argument(0, 0xFFFFFFFF, [0]))
    if calls is ALLOWED:
        program += _check_arguments(column)
    program.append((RETURN, 0, 0, DENY))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


def _check_arguments(column: int) -> list[Instruction]:
    program: list[Instruction] = []
    # A thread, never a process; for clone3, whose flags are out of reach, the C library falls back to clone.
    program += _if_call(CLONE[column], _if_argument(0, NEW_THREAD | NEW_NAMESPACES, [NEW_THREAD]))
    program += _if_call(CLONE3[column], [(RETURN, 0, 0, NO_SUCH_CALL)])
    program += _if_call(IOCTL[column], _if_argument(1, 0xFFFFFFFF, DESCRIPTOR_REQUESTS))
    program += _if_call(SOCKETPAIR[column], _if_argument(0, 0xFFFFFFFF, [UNIX]))
    return program


def _if_call(number: int, then: list[Instruction]) -> Iterator[Instruction]:
    """Yield instructions that run `then` if the system call has this number, and otherwise skip it."""
    yield (JUMP_EQUAL, 0, len(then), number)
    yield from then


def _if_argument(index: int, mask: int, values: list[int] | tuple[int, ...]) -> list[Instruction]:
    """Return instructions that allow the call if its masked argument `index` is one of `values`, and else deny it."""
    checks = [[(JUMP_EQUAL, 0, 1, value), (RETURN, 0, 0, ALLOW)] for value in values]
    start = [(LOAD, 0, 0, FIRST_ARGUMENT + 8 * index), (MASK, 0, 0, mask)]
    return start + [instruction for check in checks for instruction in check] + [(RETURN, 0, 0, DENY)]
