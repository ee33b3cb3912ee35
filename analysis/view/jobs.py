"""Processes that the page sets going: forks of a match as children of this process, a run stopped, a run resumed.

Children are `arena` itself with arguments that are checked here one by one; nothing goes through a shell.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

from analysis.view.index import Index
from analysis.view.posted import ForkPost
from analysis.view.runs import holder
from arena.errors import ConfigError
from arena.plain import printable
from arena.store.locks import in_use

RUNNING, KEPT, LARGEST = 3, 20, 10**6
"""Children at a time, answers that are kept, bytes of one."""
WHO = re.compile(r"(?!.*\.py)\w[\w@:.+()=,-]{0,63}", re.ASCII)
"""Who may be named in the page: policies and models by name, no file and no folder."""


@dataclass
class Job:
    """A child, and the files that it writes into."""

    child: subprocess.Popen[bytes]
    out: IO[bytes]
    err: IO[bytes]

    def state(self) -> dict[str, Any]:
        """Tell whether it runs, and its answer or its complaint."""
        code = self.child.poll()
        if code is None:
            return {"running": True}
        if code:
            lines = self._read(self.err).strip().splitlines()
            return {"error": printable(lines[-1].removeprefix("arena: ")) if lines else f"it ended with code {code}"}
        try:
            return {"answer": json.loads(self._read(self.out))}
        except ValueError:
            return {"answer": None}

    def _read(self, file: IO[bytes]) -> str:
        file.seek(0)
        return file.read(LARGEST).decode("utf-8", "replace")


class Jobs:
    """All children of the page."""

    def __init__(self, arena: Sequence[str]) -> None:
        self.arena, self._jobs = arena, dict[str, Job]()

    def state(self, id: str) -> dict[str, Any]:
        """State of a child; ConfigError where there is none of this name."""
        if id not in self._jobs:
            raise ConfigError("there is no such job: begin it again")
        return self._jobs[id].state()

    def fork(self, index: Index, row: Mapping[str, Any], asked: ForkPost) -> dict[str, Any]:
        """Begin `arena fork` of a match."""
        if asked.turn >= len(row["turns"]):
            raise ConfigError(f"{row['id']} has turns 0 to {len(row['turns']) - 1}")
        if asked.who and (asked.seat not in row["seats"] or not WHO.fullmatch(asked.who)):
            raise ConfigError("name a seat of the match and a policy, such as random; files are for arena fork")
        others = [f"--seat={asked.seat}={asked.who}"] if asked.who else []
        acts = [f"--act={asked.act}"] if asked.act.strip() else []
        at = [f"--turn={asked.turn + 1}", f"-n{asked.n}", "--json"]
        return self._begin(["fork", *at, *others, *acts, "--", str(index.reader.path), row["id"]])

    def stop(self, index: Index) -> dict[str, Any]:
        """Ask the process that writes in the run to end, as Ctrl-C would; ConfigError where none does."""
        number = holder(index)
        if number is None or not in_use(index.reader.path):  # of a process that is gone: it may be another's now
            raise ConfigError("nobody runs this: there is nothing to stop")
        try:
            os.kill(number, signal.SIGTERM)
        except OSError as error:
            raise ConfigError(f"process {number} cannot be stopped from here: {error.strerror}") from None
        return {"stopping": number}

    def resume(self, index: Index) -> dict[str, Any]:
        """Begin `arena resume` in a process that lives on without the page; ConfigError where the run is at it."""
        if holder(index) is not None:
            raise ConfigError("this run goes on already")
        return self._begin(["resume", "--json", "--", str(index.reader.path)], apart=True)

    def close(self) -> None:
        """End the children but those that live on."""
        for job in self._jobs.values():
            if job.child.poll() is None and os.getpgid(job.child.pid) == os.getpgid(0):
                job.child.terminate()

    def _begin(self, arguments: Sequence[str], apart: bool = False) -> dict[str, Any]:
        if not self.arena:
            raise ConfigError("nothing can be begun here: open the page with arena view")
        if sum(job.child.poll() is None for job in self._jobs.values()) >= RUNNING:
            raise ConfigError(f"{RUNNING} jobs run already: wait for one of them")
        while len(self._jobs) >= KEPT:
            del self._jobs[next(iter(self._jobs))]
        out, err = (tempfile.TemporaryFile() for _ in range(2))  # noqa: SIM115 the job holds them
        child = subprocess.Popen(
            [*self.arena, *arguments], stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=apart
        )
        id = secrets.token_hex(8)
        self._jobs[id] = Job(child, out, err)
        return {"job": id}
