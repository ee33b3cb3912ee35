"""Supervisor process of an agent program: starts it, and kills all its descendants when it ends or is to be stopped.

`python keeper.py CALLER COMMAND …`, where CALLER is the caller's process id. The keeper exits with the program's status
or signal. It adopts orphans, and so finds processes in other sessions, too. SIGTERM, or the caller's death, kills the
program and all its descendants. The script imports little, because it runs once per match.
"""

import ctypes
import os
import signal
import sys
from contextlib import suppress

ADOPT, DEATH_SIGNAL = 36, 1
"""Options of prctl(2)."""
WAKES = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD}
NOT_STARTED = 127


def main(caller: int, command: list[str]) -> None:
    """Run the command until it ends or a signal arrives, kill its remaining processes, and exit with its status."""
    libc = ctypes.CDLL(None)
    libc.prctl(ADOPT, 1, 0, 0, 0)
    libc.prctl(DEATH_SIGNAL, signal.SIGTERM, 0, 0, 0)
    signal.pthread_sigmask(signal.SIG_BLOCK, WAKES)
    if os.getppid() != caller:
        return
    program = os.fork()
    if program == 0:
        _become(libc, command)
    for stream in (0, 1):
        os.close(stream)  # or the pipes would stay open after the program's end
    status = None
    while status is None and signal.sigwait(WAKES) == signal.SIGCHLD:
        status = _reap(program)
    _kill_all(program)
    if status is not None and os.WIFSIGNALED(status):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, WAKES)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(1 if status is None else os.waitstatus_to_exitcode(status))


def _become(libc: ctypes.CDLL, command: list[str]) -> None:
    """Replace this process by the command, in a session of its own. If that fails, exit with a line on stderr."""
    os.setsid()
    libc.prctl(DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, WAKES)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
    os._exit(NOT_STARTED)


def _reap(program: int) -> int | None:
    """Collect all ended children, and return the program's wait status if it is among them."""
    status = None
    while True:
        try:
            pid, wait_status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if pid == 0:
            return status
        if pid == program:
            status = wait_status


def _kill_all(program: int) -> None:
    """Kill the program's process group and every child, including adopted ones, until none is left."""
    with suppress(ProcessLookupError):
        os.killpg(program, signal.SIGKILL)
    with suppress(ChildProcessError, FileNotFoundError):  # no child is left, or the kernel lists none
        while True:
            with open(f"/proc/self/task/{os.getpid()}/children") as listed:
                for child in listed.read().split():
                    os.kill(int(child), signal.SIGKILL)
            os.waitpid(-1, 0)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
