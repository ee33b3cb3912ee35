"""Client of Coq's toplevel `coqtop`, a child process that is sent one sentence at a time.

A proof is the list of its accepted sentences, so the result of `attempt` depends only on its arguments and proofs are
cheap to copy. All matches share the processes: the one with the longest common prefix of sentences goes back to the end
of that prefix (`BackTo`) and replays the rest. Each process runs in its own cell, as model-written code does: without
network, with read-only access to Coq's files only, and with limits on memory and CPU time. It ends with this process.
"""

from __future__ import annotations

import atexit
import functools
import os
import re
import selectors
import shutil
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from simulators.confine import ConfineError
from simulators.confine.cells import make_limits, start_program, stop_cell
from simulators.confine.code import find_obstacle
from simulators.confine.interpreter import LIBRARIES

COMMAND = "coqtop"
SETTINGS = ("From Coq Require Import Arith List Lia Bool.", "Unset Lia Cache.", "Unset Nia Cache.")
"""First sentences of a process. Without the last two, `lia` would write its caches to files."""
SECONDS = 3
"""Coq's own timeout for a sentence, in seconds."""
ANSWER_SECONDS = 20.0
"""Wall-clock timeout for an answer, in seconds; then the process is killed."""
MEMORY = 2 << 30
"""Maximum bytes of a process's address space. It uses 0.5 GB after the imports."""
CPU_SECONDS = 600
"""CPU seconds after which the operating system kills a process."""
MAX_SENTENCES = 2000
"""Number of sentences after which a process is replaced, because Coq keeps all states in memory."""
MAX_PROCESSES = min(4, os.cpu_count() or 1)
"""Maximum number of concurrent coqtop processes; further attempts wait."""
MAX_OUTPUT = 1 << 20
_PROMPT = re.compile(rb"<prompt>[^<>]*< (\d+) \|[^|]*\| \d+ < </prompt>$")
_LINKED = re.compile(r"(/\S+) \(0x")
_FINDLIB = "/etc/ocamlfind.conf"
"""Configuration file of OCaml's package manager in a system-wide installation."""
_INFO = re.compile(r"<infomsg>.*?</infomsg>", re.DOTALL)
_GOALS = re.compile(r"^\d+ goals?\b.*", re.DOTALL | re.MULTILINE)
_NUMBER = re.compile(r" \(ID \d+\)")


class CoqFault(Exception):
    """Raised if a coqtop process ends, hangs or gives an unreadable answer."""


class Attempt(NamedTuple):
    """Result of sending a sentence: the goals after it, or Coq's error."""

    goals: str
    """Remaining goals as text, without Coq's numbers; "" if none is left."""
    error: str
    """Coq's error message; "" if the sentence was accepted."""


def find_coq_obstacle() -> str:
    """Return "" if coqtop is installed and can be sandboxed here, else the reason and a remedy."""
    if shutil.which(COMMAND):
        return find_obstacle()
    return (
        f"kind coq needs {COMMAND}, which is not installed: apt install coq libcoq-stdlib (Debian), or opam install coq"
    )


class Installation(NamedTuple):
    """Installed Coq: the program's path, and the files that it reads as (outside, inside the sandbox) paths."""

    program: str
    readable: tuple[tuple[str, str], ...]


@functools.cache
def find_installation() -> Installation:
    """Find coqtop, its shared libraries and the folder of Coq's library. Raises CoqFault if that fails."""
    program = os.path.realpath(shutil.which(COMMAND) or COMMAND)
    try:
        library_path, library_list = (
            subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=True, cwd="/").stdout
            for command in ([program, "-where"], ["ldd", program])
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise CoqFault(f"the files of {COMMAND} cannot be found: {error}") from None
    libraries = Path(library_path.strip()).resolve().parent  # its sibling coq-core has the plugins
    readable = {program: program, str(libraries): str(libraries)}
    for path in _LINKED.findall(library_list):  # the loader itself is found by its full path
        readable[path] = path if os.path.basename(path).startswith("ld") else f"{LIBRARIES}/{os.path.basename(path)}"
    for settings in (_FINDLIB, str(libraries / "findlib.conf")):
        if os.path.isfile(settings):
            readable[settings] = settings
    return Installation(program, tuple(readable.items()))


class Coqtop:
    """Coqtop process, with the sentences accepted since the imports and Coq's state number after each."""

    def __init__(self) -> None:
        program, readable = find_installation()
        environment = {"HOME": "/nonexistent", "LD_LIBRARY_PATH": LIBRARIES}
        try:
            limits = make_limits(MEMORY, CPU_SECONDS, file_bytes=0)
            self._process = start_program([program, "-q", "-emacs"], readable, environment, limits)
        except ConfineError as error:
            raise CoqFault(str(error)) from None
        self.accepted_sentences: list[str] = []
        self.states: list[int] = []
        self.sent_count = 0
        try:
            self._read()
            for sentence in SETTINGS:
                self._send(sentence)
            self.states.append(self._send(f"Set Default Timeout {SECONDS}.")[0])
        except BaseException:
            self.stop()
            raise

    def count_common(self, sentences: Sequence[str]) -> int:
        """Return the length of the common prefix of these sentences and those that the process has accepted."""
        pairs = zip(self.accepted_sentences, sentences, strict=False)
        return next(
            (n for n, (own, other) in enumerate(pairs) if own != other),
            min(len(self.accepted_sentences), len(sentences)),
        )

    def go_to(self, sentences: Sequence[str]) -> None:
        """Bring the process to the state after these sentences. Raises CoqFault if one of them is refused."""
        common = self.count_common(sentences)
        if common < len(self.accepted_sentences):
            self._send(f"BackTo {self.states[common]}.")
            del self.accepted_sentences[common:], self.states[common + 1 :]
        for sentence in sentences[common:]:
            if error := self.send(sentence).error:
                raise CoqFault(f"coqtop refused a sentence that it had accepted: {sentence[:80]}: {error[:200]}")

    def send(self, sentence: str) -> Attempt:
        """Send a sentence and return its result. A refused sentence changes nothing."""
        state, text = self._send(sentence)
        if state == self.states[-1]:
            return Attempt("", _find_error(text))
        found = _GOALS.search(text)
        if not found and sentence != "Qed.":  # Coq prints the goals only if it considers them changed
            state, text = self._send("Show.")
            found = _GOALS.search(text)
        self.accepted_sentences.append(sentence)
        self.states.append(state)
        return Attempt(_NUMBER.sub("", found[0]) if found else "", "")

    def _send(self, sentence: str) -> tuple[int, str]:
        """Send a sentence and return Coq's state number and answer. Raises CoqFault if there is no answer in time."""
        self.sent_count += 1
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{sentence}\n".encode())
        except OSError as error:
            raise CoqFault(f"coqtop ended: {error}") from None
        return self._read()

    def _read(self) -> tuple[int, str]:
        assert self._process.stdout is not None
        answer, deadline, pipe = bytearray(), time.monotonic() + ANSWER_SECONDS, self._process.stdout.fileno()
        with selectors.DefaultSelector() as ready:
            ready.register(pipe, selectors.EVENT_READ)
            while not (prompt := _PROMPT.search(answer, max(0, len(answer) - 400))):
                if not ready.select(deadline - time.monotonic()) or len(answer) > MAX_OUTPUT:
                    self.stop()
                    raise CoqFault(f"coqtop's answer took over {ANSWER_SECONDS:g} s or {MAX_OUTPUT} bytes")
                piece = os.read(pipe, 65536)
                if not piece:
                    self.stop()
                    raise CoqFault("coqtop ended, perhaps because it ran out of memory")
                answer += piece
        return int(prompt[1]), _INFO.sub("", answer[: prompt.start()].decode("utf-8", "replace")).strip()

    def stop(self) -> None:
        """Stop the process with its cell, and wait until it has ended."""
        stop_cell(self._process)


def _find_error(text: str) -> str:
    """Return Coq's error message on one line."""
    return " ".join(text.rpartition("Error:")[2].split())[:400] or "refused"


_IDLE: list[Coqtop] = []
_LOCK, _SLOTS = threading.Lock(), threading.Semaphore(MAX_PROCESSES)
_OWNER = os.getpid()


def attempt(before: Sequence[str], sentence: str) -> Attempt:
    """Send a sentence after the accepted ones in `before`, which begin with the theorem's statement; return the result.

    If the sentence completes the proof, Coq's kernel checks the proof (`Qed`). The sentence counts as refused if that
    fails, or if the process ends or hangs. Raises CoqFault if the earlier sentences cannot be replayed.
    """
    with _SLOTS:
        coqtop, is_intact = _take_process(before), False
        try:
            try:
                coqtop.go_to(before)
            except CoqFault:  # an idle process may have died
                coqtop.stop()
                coqtop = Coqtop()
                coqtop.go_to(before)
            result = _send_last(coqtop, before, sentence)
            is_intact = result is not None
            return result or Attempt("", "coqtop ended or gave no answer in time")
        finally:  # also if the thread is interrupted
            _give_back(coqtop, is_intact)


def _send_last(coqtop: Coqtop, before: Sequence[str], sentence: str) -> Attempt | None:
    """Send a sentence to a process in the state after `before`, and then `Qed` if it completes the proof.

    Returns None if the process has ended or hangs.
    """
    try:
        result = coqtop.send(sentence)
        if before and not (result.error or result.goals) and (error := coqtop.send("Qed.").error):
            return Attempt("", f"the kernel refuses the proof: {error}")
    except CoqFault:
        return None
    return result


def _take_process(before: Sequence[str]) -> Coqtop:
    """Return the idle process with the longest common prefix with `before`, or a new process."""
    global _OWNER
    with _LOCK:
        if os.getpid() != _OWNER:  # after a fork, idle processes belong to the parent
            _OWNER = os.getpid()
            _IDLE.clear()
        if _IDLE:
            best = max(range(len(_IDLE)), key=lambda n: _IDLE[n].count_common(before))
            return _IDLE.pop(best)
    return Coqtop()


def _give_back(coqtop: Coqtop, is_intact: bool) -> None:
    """Keep a process for later attempts, or stop it if it is not intact or has received too many sentences."""
    if is_intact and coqtop.sent_count < MAX_SENTENCES:
        with _LOCK:
            _IDLE.append(coqtop)
    else:
        coqtop.stop()


@atexit.register
def _end_all() -> None:
    if os.getpid() == _OWNER:
        while _IDLE:
            _IDLE.pop().stop()
