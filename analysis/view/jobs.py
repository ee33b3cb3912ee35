"""Child processes that the page starts: forks of a match, and resumed runs. It also stops runs.

Children run `arena` with arguments that are validated one by one, without a shell.
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
from analysis.view.requests import ForkPost
from analysis.view.runs import find_process
from arena.errors import ConfigError
from arena.plain import printable
from arena.store.locks import is_in_use

MAX_RUNNING, MAX_JOBS, MAX_OUTPUT_BYTES = 3, 20, 10**6
"""Maximum number of concurrent children, of stored jobs, and of bytes of a job's output."""
POLICY_NAME = re.compile(r"(?!.*\.py)\w[\w@:.+()=,-]{0,63}", re.ASCII)
"""Pattern of policies and models that the page may request: names only, no files or folders."""


@dataclass
class Job:
    """Child process that the page started, with temporary files for its standard output and errors."""

    child: subprocess.Popen[bytes]
    out: IO[bytes]
    err: IO[bytes]

    def state(self) -> dict[str, Any]:
        """Return {"running": True}, {"answer": JSON output}, or for a failed child {"error": last line of its errors}.

        The answer is None if the output is not JSON.
        """
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
        return file.read(MAX_OUTPUT_BYTES).decode("utf-8", "replace")


class Jobs:
    """Child processes that the page started, by job id. At most `MAX_RUNNING` run at a time."""

    def __init__(self, command: Sequence[str]) -> None:
        self.command, self._jobs = command, dict[str, Job]()

    def state(self, id: str) -> dict[str, Any]:
        """Return a job's state as `Job.state` does. Raises ConfigError for an unknown id."""
        if id not in self._jobs:
            raise ConfigError("unknown job: start it again")
        return self._jobs[id].state()

    def fork(self, index: Index, row: Mapping[str, Any], request: ForkPost) -> dict[str, Any]:
        """Start `arena fork` for the logged match `row`, and return {"job": id}.

        Raises ConfigError for an invalid turn, seat or policy, and if too many jobs are running or none may be started.
        """
        if request.turn >= len(row["turns"]):
            raise ConfigError(f"{row['id']} has turns 0 to {len(row['turns']) - 1}")
        if request.who and (request.seat not in row["seats"] or not POLICY_NAME.fullmatch(request.who)):
            raise ConfigError("name a seat of the match and a policy, such as random; files are for arena fork")
        seat_options = [f"--seat={request.seat}={request.who}"] if request.who else []
        act_options = [f"--act={request.act}"] if request.act.strip() else []
        options = [f"--turn={request.turn + 1}", f"-n{request.n}", "--json"]
        return self._start(["fork", *options, *seat_options, *act_options, "--", str(index.reader.path), row["id"]])

    def stop(self, index: Index) -> dict[str, Any]:
        """Send SIGTERM to the process of an indexed run, and return {"stopping": process id}.

        Raises ConfigError if the run is not running or its process cannot be stopped from here.
        """
        number = find_process(index)
        if number is None or not is_in_use(index.reader.path):  # the id of a dead process may belong to another one now
            raise ConfigError("this run is not running: there is nothing to stop")
        try:
            os.kill(number, signal.SIGTERM)
        except OSError as error:
            raise ConfigError(f"process {number} cannot be stopped from here: {error.strerror}") from None
        return {"stopping": number}

    def resume(self, index: Index) -> dict[str, Any]:
        """Start `arena resume` in a process that outlives the page, and return {"job": id}.

        Raises ConfigError if the run is running, and if too many jobs are running or none may be started.
        """
        if find_process(index) is not None:
            raise ConfigError("this run is already running")
        return self._start(["resume", "--json", "--", str(index.reader.path)], new_session=True)

    def close(self) -> None:
        """Terminate all running children except resumed runs."""
        for job in self._jobs.values():
            if job.child.poll() is None and os.getpgid(job.child.pid) == os.getpgid(0):
                job.child.terminate()

    def _start(self, arguments: Sequence[str], new_session: bool = False) -> dict[str, Any]:
        if not self.command:
            raise ConfigError("no process can be started here: open the page with arena view")
        if sum(job.child.poll() is None for job in self._jobs.values()) >= MAX_RUNNING:
            raise ConfigError(f"{MAX_RUNNING} jobs are running: wait for one of them")
        while len(self._jobs) >= MAX_JOBS:
            del self._jobs[next(iter(self._jobs))]
        out, err = (tempfile.TemporaryFile() for _ in range(2))  # noqa: SIM115 the job keeps them open
        child = subprocess.Popen(
            [*self.command, *arguments], stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=new_session
        )
        id = secrets.token_hex(8)
        self._jobs[id] = Job(child, out, err)
        return {"job": id}
