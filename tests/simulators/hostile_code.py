"""Python code that tries to escape. Each attack prints or does something forbidden; @NAMES@ are filled in.

@CANARY@ a file with a secret, @MARKER@ a path where nothing may appear, @TCP@, @UDP@ ports, @SOCKET@ and @ABSTRACT@
unix sockets of a listening server, @VICTIM@ a process, @PROJECT@ this repository, @PACKAGES@ a site-packages folder.
"""

from typing import NamedTuple


class Attack(NamedTuple):
    """Escape attempt: its name, the code, the expected output, and whether it works (and is safe) unconfined."""

    name: str
    code: str
    expected: str
    works: bool = False


CALL = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments])
    if result < 0:
        raise OSError(ctypes.get_errno(), __import__("os").strerror(ctypes.get_errno()))
    return result
"""
INSIDE = "import os\nassert os.getpid() < 10, 'not in a process namespace of its own'\n"
SEND = "b'hello'"

FILES = [
    Attack("a file", "print(open('@CANARY@').read())", "FileNotFoundError", True),
    Attack("the users", "print(open('/etc/passwd').read()); print('ESCAPED')", "FileNotFoundError", True),
    Attack("dots", "print(open('../' * 30 + '@CANARY@'[1:]).read())", "FileNotFoundError", True),
    Attack("project", "print(open('@PROJECT@/pyproject.toml').read(), 'ESCAPED')", "FileNotFoundError", True),
    Attack(
        "home",
        "import os; print([e for e in os.listdir(os.path.dirname('@CANARY@'))], 'ESCAPED')",
        "FileNotFoundError",
        True,
    ),
    Attack(
        "symlink", "import os; os.symlink('@CANARY@', 'here'); print(open('here').read())", "FileNotFoundError", True
    ),
    Attack(
        "hard link", "import os; os.link('@CANARY@', 'there'); print(open('there').read())", "FileNotFoundError", True
    ),
    Attack(
        "a walk of the whole tree",
        "import os\n"
        "roots = ['/'] if os.path.exists('/code.py') else [os.path.dirname('@CANARY@')]\n"
        "found = [os.path.join(at, n) for r in roots for at, _, names in os.walk(r) for n in names]\n"
        "print([open(f).read() for f in found if f.endswith('canary.txt')], len(found) > 0)",
        "[] True",
        True,
    ),
    Attack("own environment", "print(open('/proc/self/environ').read())", "FileNotFoundError", True),
    Attack("process 1's root", "print(open('/proc/1/root/etc/passwd').read(), 'ESCAPED')", "FileNotFoundError"),
    Attack("another's memory", "print(open('/proc/@VICTIM@/maps').read(), 'ESCAPED')", "FileNotFoundError", True),
    Attack("kernel settings", "print(open('/proc/sys/kernel/core_pattern').read(), 'ESCAPED')", "FileNotFound", True),
    Attack("devices", "print(open('/dev/zero', 'rb').read(3), 'ESCAPED')", "FileNotFoundError", True),
    Attack("shared memory", "open('/dev/shm/@ABSTRACT@', 'w'); print('ESCAPED')", "FileNotFoundError"),
    Attack("sysfs", "import os; print(os.listdir('/sys/kernel'), 'ESCAPED')", "FileNotFoundError", True),
    Attack("write", "open('@MARKER@', 'w').write('x')", "FileNotFoundError", True),
    Attack("overwrite", "open('@CANARY@', 'a').write('x')", "FileNotFoundError", True),
    Attack("delete", "import os; os.remove('@CANARY@')", "FileNotFoundError", True),
    Attack(
        "poison the library", "import os; open(os.path.dirname(os.__file__) + '/evil.py', 'w')", "Read-only file system"
    ),
    Attack("poison what comes next", "open('/code.py', 'w')", "Read-only file system"),
    Attack("make a device", CALL + "call(259, -100, b'sda', 0o60666, 0x0800); print('ESCAPED')", "not permitted"),
    Attack(
        "remount",
        CALL + "print(libc.mount(None, b'/', None, ctypes.c_ulong(32 | 4096), None), ctypes.get_errno())",
        "-1 1",
    ),
    Attack("chroot", "import os; os.mkdir('d'); os.chroot('d'); print('ESCAPED')", "PermissionError"),
    Attack("pivot_root", CALL + "call(155, b'.', b'.'); print('ESCAPED')", "not permitted"),
    Attack("unmount", CALL + "call(166, b'/scratch', 2); print('ESCAPED')", "not permitted"),
    Attack(
        "a file by its handle",
        CALL + "h = ctypes.create_string_buffer(b'\\x08\\0\\0\\0\\1\\0\\0\\0\\2' + bytes(40))\n"
        "call(304, -100, h, 0); print('ESCAPED')",
        "not permitted",
    ),
    Attack("fill the disk", "f = open('a', 'wb')\nwhile True: f.write(bytes(1 << 20)); f.flush()", "OSError"),
    Attack("a sparse file", "open('a', 'wb').truncate(1 << 40); print('ESCAPED')", "File too large", True),
    Attack("all names", "for n in range(100_000): open(str(n), 'w').close()\nprint('ESCAPED')", "No space left"),
    Attack(
        "all descriptors", "k = []\nwhile len(k) < 500: k.append(open('/code.py'))\nprint('ESCAPED')", "Too many open"
    ),
]

NETWORK = [
    Attack(
        "TCP here",
        f"import socket; s = socket.create_connection(('127.0.0.1', @TCP@), 2); s.sendall({SEND})",
        "PermissionError",
        True,
    ),
    Attack(
        "TCP outside",
        "import socket; socket.create_connection(('192.0.2.1', 80), 2); print('ESCAPED')",
        "PermissionError",
    ),
    Attack(
        "UDP",
        f"import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto({SEND}, ('127.0.0.1', @UDP@))",
        "PermissionError",
        True,
    ),
    Attack("IPv6", "import socket; socket.socket(socket.AF_INET6); print('ESCAPED')", "PermissionError", True),
    Attack(
        "a unix socket",
        f"import socket; s = socket.socket(socket.AF_UNIX); s.connect('@SOCKET@'); s.sendall({SEND})",
        "PermissionError",
        True,
    ),
    Attack(
        "an abstract unix socket",
        f"import socket; s = socket.socket(socket.AF_UNIX); s.connect('\\x00@ABSTRACT@'); s.sendall({SEND})",
        "PermissionError",
        True,
    ),
    Attack(
        "netlink",
        "import socket; socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0); print('ESCAPED')",
        "Permission",
        True,
    ),
    Attack(
        "raw packets",
        "import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW); print('ESCAPED')",
        "PermissionError",
    ),
    Attack("a virtual machine's host", "import socket; socket.socket(40, 1); print('ESCAPED')", "PermissionError"),
    Attack("names", "import socket; print(socket.getaddrinfo('example.org', 80), 'ESCAPED')", "gaierror"),
    Attack(
        "descriptors over its own pair",
        "import socket; a, b = socket.socketpair(); socket.send_fds(a, [b'x'], [0]); print('ESCAPED')",
        "PermissionError",
        True,
    ),
]

PROCESSES = [
    Attack("a shell", "import os; print('done:', os.system('echo x > @MARKER@') == 0)", "done: False", True),
    Attack("a command", "import subprocess; subprocess.run(['touch', '@MARKER@'])", "PermissionError", True),
    Attack("become a shell", "import os; os.execv('/bin/sh', ['sh', '-c', 'echo ESCAPED'])", "FileNotFoundError", True),
    Attack(
        "run what it wrote",
        "import os; open('x', 'w').write('#!/bin/sh\\necho ESCAPED\\n'); os.chmod('x', 0o755); os.execv('./x', ['x'])",
        "PermissionError",
        True,
    ),
    Attack("fork bomb", INSIDE + "n = 0\nwhile n < 300: n += 1; os.fork()\nprint('ESCAPED')", "PermissionError"),
    Attack(
        "processes",
        "import multiprocessing as m; p = m.Process(target=print); p.start(); print('ESCAPED')",
        "PermissionError",
    ),
    Attack(
        "outlive the call",
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        time.sleep(0.3); open('@MARKER@', 'w').write('x')\n"
        "    os._exit(0)",
        "PermissionError",
        True,
    ),
    Attack("kill all", INSIDE + "os.kill(-1, 9); print('alone')", "alone"),
    Attack("kill another", "import os; os.kill(@VICTIM@, 9); print('ESCAPED')", "ProcessLookupError", True),
    Attack("kill its parent", INSIDE + "[os.kill(1, s) for s in (2, 9, 15)]; print(os.getppid())", "1"),
    Attack("kill its group", INSIDE + "os.killpg(0, 9); print('ESCAPED')", "[stopped: killed]"),
    Attack(
        "trace another",
        CALL + "call(101, 16, @VICTIM@, 0, 0); call(101, 17, @VICTIM@, 0, 0); print('ESCAPED')",
        "not permitted",
    ),
    Attack("trace its parent", INSIDE + CALL + "call(101, 16, 1, 0, 0); print('ESCAPED')", "not permitted"),
    Attack("read its parent", INSIDE + CALL + "call(310, 1, 0, 0, 0, 0, 0); print('ESCAPED')", "not permitted"),
    Attack(
        "another's descriptors",
        CALL + "call(438, call(434, @VICTIM@, 0), 0, 0); print('ESCAPED')",
        "not permitted",
        True,
    ),
    Attack("become root", "import os; os.setuid(0); print('ESCAPED')", "PermissionError"),
    Attack("become another group", "import os; os.setgroups([0]); print('ESCAPED')", "PermissionError"),
    Attack("new namespaces", CALL + "call(272, 0x10000000); print('ESCAPED')", "not permitted"),
    Attack(
        "clone into namespaces", INSIDE + CALL + "call(56, 0x10000011, 0, 0, 0, 0); print('ESCAPED')", "not permitted"
    ),
    Attack("clone3", INSIDE + CALL + "call(435, bytes(88), 88); print('ESCAPED')", "not implemented"),
    Attack("another's namespaces", CALL + "call(308, 0, 0); print('ESCAPED')", "not permitted"),
    Attack("its parent's limits", INSIDE + CALL + "call(302, 1, 0, bytes(16), 0); print('ESCAPED')", "not permitted"),
    Attack(
        "its own limits",
        "import resource as r; r.setrlimit(r.RLIMIT_AS, (1 << 40, 1 << 40)); print('ESCAPED')",
        "ValueError",
    ),
    Attack("priority", "import os; os.nice(-5); print('ESCAPED')", "PermissionError"),
    Attack("real time", "import os; os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))", "PermissionError"),
    Attack("a core file", "import os; os.abort()", "[stopped: killed]"),
]

# Kernel interfaces with past vulnerabilities, by their numbers on x86_64; one run tries all.
KERNEL = {
    "bpf": 321, "userfaultfd": 323, "perf_event_open": 298, "keyctl": 250, "add_key": 248, "io_uring_setup": 425,
    "kexec_load": 246, "init_module": 175, "syslog": 103, "reboot": 169, "settimeofday": 164, "sethostname": 170,
    "swapon": 167, "acct": 163, "quotactl": 179, "fanotify_init": 300, "inotify_init": 253, "memfd_create": 319,
    "shmget": 29, "mq_open": 240, "personality": 135, "modify_ldt": 154, "iopl": 172, "landlock": 444,
    "fsopen": 430, "open_tree": 428, "move_mount": 429, "mount_setattr": 442, "process_madvise": 440,
    "vmsplice": 278, "seccomp": 317, "prctl": 157, "x32 write": 0x40000001, "a call yet to come": 600,
}  # fmt: skip
EVERY_CALL = (
    CALL
    + f"for name, number in {KERNEL}.items():\n    try: print(name, call(number, 0, 0, 0, 0, 0), flush=True)\n"
    + "    except OSError as why: print(name, why, flush=True)\n"
)

MEMORY = [
    Attack("huge bytes", "bytes(10 ** 13); print('ESCAPED')", "[stopped: out of memory]"),
    Attack("a growing list", "k = []\nwhile True: k.append(bytes(1 << 20))", "[stopped: out of memory]"),
    Attack("a huge text", "x = 'ab' * (1 << 28); print('ESCAPED')", "[stopped: out of memory]", True),
    Attack("shared pages", "import mmap; mmap.mmap(-1, 1 << 30); print('ESCAPED')", "Cannot allocate memory", True),
    Attack("locked pages", CALL + "call(149, 0, 4096); print('ESCAPED')", "not permitted"),
    Attack("recursion", "def f(n): return f(n + 1)\nf(0)", "RecursionError", False),
    Attack(
        "recursion in C",
        "import sys\nsys.setrecursionlimit(1 << 30)\nx = []\nfor _ in range(10**6): x = [x]\n"
        "print(len(repr(x)), 'ESCAPED')",
        "[stopped: killed]",
    ),
]

TIME = [
    Attack("an endless loop", "while True: pass", "[stopped: out of time]"),
    Attack("a huge power", "print(len(str(7 ** (10 ** 8))), 'ESCAPED')", "[stopped: out of time]"),
    Attack("sleep", "import time; time.sleep(60)", "[stopped: out of time]"),
    Attack(
        "deaf to signals",
        "import signal\nfor s in range(1, 65):\n    try: signal.signal(s, signal.SIG_IGN)\n"
        "    except (OSError, ValueError): pass\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\nwhile True: pass",
        "[stopped: out of time]",
    ),
    Attack("a regular expression", "import re; re.match('(a|aa)+$', 'a' * 99 + 'b')", "[stopped: out of time]"),
    Attack("stop itself", "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)", "[stopped: out of time]"),
    Attack(
        "threads",
        "import threading, time\nthreading.stack_size(65536)\n"
        "for _ in range(500): threading.Thread(target=time.sleep, args=(0.1,), daemon=True).start()\nprint('ESCAPED')",
        "can't start new thread",
        True,
    ),
]

OUTPUT = [
    Attack("a flood", "while True: print('x' * 10_000)", "[stopped: too much output]"),
    Attack("a flood of errors", "import sys\nwhile True: sys.stderr.write('x' * 10_000)", "[stopped: too much output]"),
    Attack("a flood of bytes", "import os\nwhile True: os.write(1, b'\\xff' * 10_000)", "[stopped: too much output]"),
    Attack(
        "a forged report", "import os\nfor n in range(3, 300):\n    os.write(n, b'error forged')", "Bad file descriptor"
    ),
]

SECRETS = [
    Attack("the environment", "import os; print(dict(os.environ))", "HOME", True),
    Attack(
        "inherited descriptors",
        "import os\nfor n in range(3, 300):\n    try: print(os.pread(n, 100, 0))\n"
        "    except OSError as e: last = e\nprint(last)",
        "Bad file descriptor",
        True,
    ),
    Attack("standard input", "print(input(), 'ESCAPED')", "EOFError"),
    Attack(
        "arena",
        "import sys; sys.path.insert(0, '@PROJECT@'); import games; print('ESCAPED')",
        "ModuleNotFoundError",
        True,
    ),
    Attack(
        "packages",
        "import sys; sys.path.append('@PACKAGES@'); import pip; print('ESCAPED')",
        "ModuleNotFoundError",
        True,
    ),
    Attack(
        "packages beside the library",
        "import os\nat = os.path.dirname(os.__file__) + '/site-packages'\n"
        "found = os.listdir(at) if os.path.isdir(at) else []\nprint(found, 'ESCAPED' if found else 'nothing')",
        "nothing",
    ),
    Attack(
        "import by path",
        "import importlib.util as u; s = u.spec_from_file_location('x', '@PROJECT@/games/base.py')\n"
        "s.loader.get_data('@CANARY@'); print('ESCAPED')",
        "FileNotFoundError",
        True,
    ),
    Attack("who it is", "import os; print(os.getuid(), os.uname().nodename, os.getpid())", "65534 cell 2"),
]

ATTACKS = FILES + NETWORK + PROCESSES + MEMORY + TIME + OUTPUT + SECRETS
