"""A part's sheet: figures and claims as they are found, on the disk at once; no item takes another one down."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

VERDICTS = {True: "ok", False: "FAILED", None: "measured"}


def write_json(path: Path, value: Any) -> None:
    """Write beside and rename: a reader sees all of it."""
    beside = path.with_name(f".{path.name}.part")
    beside.write_text(json.dumps(value, indent=1) + "\n")
    os.replace(beside, path)


def row(claim: str, figure: str, verdict: str) -> dict[str, str]:
    """One line of the table."""
    return {"claim": claim, "figure": figure, "verdict": verdict}


class Sheet:
    """Findings of one part so far, and how much of its time is left."""

    def __init__(self, path: Path, until: float) -> None:
        self.path, self.until = path, until
        self.figures: dict[str, Any] = {}
        self.claims: list[dict[str, str]] = []

    @property
    def left(self) -> float:
        """Seconds, by the clock that the starting process has too."""
        return self.until - time.time()

    def note(self, name: str, value: Any) -> None:
        """A figure for the JSON alone."""
        self.figures[name] = value
        write_json(self.path, {"figures": self.figures, "claims": self.claims})

    def claim(self, claim: str, figure: str, holds: bool | None = None) -> None:
        """A line of the table; `holds` is None for what is measured and not judged."""
        self._line(claim, figure, VERDICTS[holds])

    def skip(self, claim: str, reason: str) -> None:
        """A line that says why something is not there."""
        self._line(claim, reason, "skipped")

    def attempt(self, what: str, work: Callable[[], Any]) -> Any:
        """Do it if there is time; what is missing is a skip, what goes wrong a failure, and None comes back."""
        if self.left <= 0:
            return self.skip(what, "the part's time was up")
        try:
            return work()
        except ImportError as error:
            self.skip(what, _first_line(error))
        except Exception as error:  # noqa: BLE001 the other items have to be heard
            reason = f"{type(error).__name__}: {_first_line(error)}"
            if type(error).__name__ == "OutOfMemoryError":
                self.skip(what, reason)
            else:
                self._line(what, reason, VERDICTS[False])
        return None

    def _line(self, claim: str, figure: str, verdict: str) -> None:
        self.claims.append(row(claim, figure, verdict))
        write_json(self.path, {"figures": self.figures, "claims": self.claims})


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:160]
