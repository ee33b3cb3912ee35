"""Client of Coq's toplevel, a child process that gets one sentence at a time.

A proof is the list of its accepted sentences, so `attempt` depends on its arguments alone and proofs are cheap to copy.
Processes are reused by all matches: the process with the longest common prefix of sentences goes back to its end
(`BackTo`) and replays the rest. Processes have limits of memory and CPU time and end with this process.
"""

from __future__ import annotations

import atexit
import os
import re
import resource
import selectors
import shutil
import subprocess
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

COMMAND = "coqtop"
SETTINGS = ("From Coq Require Import Arith List Lia Bool.", "Unset Lia Cache.", "Unset Nia Cache.")
"""First sentences of a process. `lia` would keep its caches in files."""
SECONDS = 3
"""Seconds after which Coq itself stops a sentence."""
PATIENCE = 20.0
"""Seconds of wall-clock time after which a process that does not answer is killed."""
MEMORY = 2 << 30
"""Bytes of address space of a process. It uses 0.5 GB after the imports."""
CPU_SECONDS = 600
"""CPU seconds after which the system kills a process."""
MOST_SENTENCES = 2000
"""Number of sentences after which a process is replaced, because it keeps all states in memory."""
MOST = min(4, os.cpu_count() or 1)
"""Maximum number of concurrent coqtop processes; further attempts wait."""
LONGEST_OUTPUT = 1 << 20
_PROMPT = re.compile(rb"<prompt>[^<>]*< (\d+) \|[^|]*\| \d+ < </prompt>$")
_INFO = re.compile(r"<infomsg>.*?</infomsg>", re.DOTALL)
_GOALS = re.compile(r"^\d+ goals?\b.*", re.DOTALL | re.MULTILINE)
_NUMBER = re.compile(r" \(ID \d+\)")


class CoqFault(Exception):
    """Raised if a coqtop process ends, hangs or gives an unreadable answer."""


class Attempt(NamedTuple):
    """Result of a sentence."""

    goals: str
    """Goals after the sentence as text, without Coq's numbers; "" if none is left."""
    error: str
    """Coq's error message; "" if the sentence was accepted."""


def unavailable() -> str:
    """Return how to install coqtop if it is missing; "" if it is installed."""
    if shutil.which(COMMAND):
        return ""
    return (
        f"kind coq needs {COMMAND}, which is not installed: apt install coq libcoq-stdlib (Debian), or opam install coq"
    )


class Coqtop:
    """Coqtop process, with its accepted sentences since the imports and Coq's state number after each."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [COMMAND, "-q", "-emacs"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0,
            cwd="/", env={"PATH": os.environ.get("PATH", ""), "HOME": "/nonexistent"}, start_new_session=True,
        )  # fmt: skip
        resource.prlimit(self._process.pid, resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.prlimit(self._process.pid, resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE, (0, 0))
        self.said: list[str] = []
        self.states: list[int] = []
        self.sent = 0
        self._read()
        for sentence in SETTINGS:
            self._send(sentence)
        self.states.append(self._send(f"Set Default Timeout {SECONDS}.")[0])

    def common(self, sentences: Sequence[str]) -> int:
        """Return the length of the common prefix of these sentences and the process's own."""
        pairs = zip(self.said, sentences, strict=False)
        return next((n for n, (own, other) in enumerate(pairs) if own != other), min(len(self.said), len(sentences)))

    def go_to(self, sentences: Sequence[str]) -> None:
        """Bring the process to the state after these sentences. Raises CoqFault if one of them is refused."""
        kept = self.common(sentences)
        if kept < len(self.said):
            self._send(f"BackTo {self.states[kept]}.")
            del self.said[kept:], self.states[kept + 1 :]
        for sentence in sentences[kept:]:
            if error := self.say(sentence).error:
                raise CoqFault(f"coqtop refused what it had accepted: {sentence[:80]}: {error[:200]}")

    def say(self, sentence: str) -> Attempt:
        """Send a sentence and return the goals after it. A refused sentence changes nothing."""
        state, text = self._send(sentence)
        if state == self.states[-1]:
            return Attempt("", _error_in(text))
        found = _GOALS.search(text)
        if not found and sentence != "Qed.":  # Coq prints the goals only if it considers them changed
            state, text = self._send("Show.")
            found = _GOALS.search(text)
        self.said.append(sentence)
        self.states.append(state)
        return Attempt(_NUMBER.sub("", found[0]) if found else "", "")

    def _send(self, sentence: str) -> tuple[int, str]:
        """Send a sentence; return Coq's state number and answer. Raises CoqFault without an answer in time."""
        self.sent += 1
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{sentence}\n".encode())
        except OSError as error:
            raise CoqFault(f"coqtop ended: {error}") from None
        return self._read()

    def _read(self) -> tuple[int, str]:
        assert self._process.stdout is not None
        answer, deadline, pipe = bytearray(), time.monotonic() + PATIENCE, self._process.stdout.fileno()
        with selectors.DefaultSelector() as ready:
            ready.register(pipe, selectors.EVENT_READ)
            while not (prompt := _PROMPT.search(answer, max(0, len(answer) - 400))):
                if not ready.select(deadline - time.monotonic()) or len(answer) > LONGEST_OUTPUT:
                    self.end()
                    raise CoqFault(f"coqtop gave no answer in {PATIENCE:g} s, or too long a one")
                piece = os.read(pipe, 65536)
                if not piece:
                    self.end()
                    raise CoqFault("coqtop ended, perhaps for want of memory")
                answer += piece
        return int(prompt[1]), _INFO.sub("", answer[: prompt.start()].decode("utf-8", "replace")).strip()

    def end(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                pipe.close()


def _error_in(text: str) -> str:
    """Return Coq's error message on one line."""
    return " ".join(text.rpartition("Error:")[2].split())[:400] or "refused"


_IDLE: list[Coqtop] = []
_LOCK, _ROOM = threading.Lock(), threading.Semaphore(MOST)
_OWNER = os.getpid()


def attempt(before: Sequence[str], sentence: str) -> Attempt:
    """Send a sentence after the accepted ones in `before`, the theorem's statement first, and return the result.

    If a sentence completes the proof, Coq's kernel checks it (`Qed`); if that fails, the sentence counts as refused. It
    also does if the process ends or hangs. Raises CoqFault if the earlier sentences cannot be repeated.
    """
    with _ROOM:
        coqtop, is_intact = _take_process(before), False
        try:
            try:
                coqtop.go_to(before)
            except CoqFault:  # an idle process may have been killed meanwhile
                coqtop.end()
                coqtop = Coqtop()
                coqtop.go_to(before)
            result = _send_last(coqtop, before, sentence)
            is_intact = result is not None
            return result or Attempt("", "coqtop ended or gave no answer in time")
        finally:  # also if the step is interrupted
            _give_back(coqtop, is_intact)


def _send_last(coqtop: Coqtop, before: Sequence[str], sentence: str) -> Attempt | None:
    """Send a sentence to a process that is in the state after `before`. Returns None if the process is lost."""
    try:
        result = coqtop.say(sentence)
        if before and not (result.error or result.goals) and (error := coqtop.say("Qed.").error):
            return Attempt("", f"the kernel refuses the proof: {error}")
    except CoqFault:
        return None
    return result


def _take_process(before: Sequence[str]) -> Coqtop:
    """Return the idle process with the longest common prefix with `before`, or a new process."""
    global _OWNER
    with _LOCK:
        if os.getpid() != _OWNER:  # after a fork: these are the parent's processes
            _OWNER = os.getpid()
            _IDLE.clear()
        if _IDLE:
            best = max(range(len(_IDLE)), key=lambda n: _IDLE[n].common(before))
            return _IDLE.pop(best)
    return Coqtop()


def _give_back(coqtop: Coqtop, is_intact: bool) -> None:
    """Keep a process for later attempts, or kill it if it is lost or has had too many sentences."""
    if is_intact and coqtop.sent < MOST_SENTENCES:
        with _LOCK:
            _IDLE.append(coqtop)
    else:
        coqtop.end()


@atexit.register
def _end_all() -> None:
    if os.getpid() == _OWNER:
        while _IDLE:
            _IDLE.pop().end()
