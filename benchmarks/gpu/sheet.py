"""Sheet of a part's figures and claims, written to the disk as they are found. Failing items do not stop others."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

VERDICTS = {True: "ok", False: "FAILED", None: "measured"}


def write_json(path: Path, value: Any) -> None:
    """Write the JSON file atomically."""
    beside = path.with_name(f".{path.name}.part")
    beside.write_text(json.dumps(value, indent=1) + "\n")
    os.replace(beside, path)


def make_row(claim: str, figure: str, verdict: str) -> dict[str, str]:
    """Return a line of the table."""
    return {"claim": claim, "figure": figure, "verdict": verdict}


class Sheet:
    """Findings of one part so far, and its remaining time."""

    def __init__(self, path: Path, until: float) -> None:
        self.path, self.until = path, until
        self.figures: dict[str, Any] = {}
        self.claims: list[dict[str, str]] = []

    @property
    def seconds_left(self) -> float:
        """Remaining seconds, by the wall clock, which the starting process shares."""
        return self.until - time.time()

    def note(self, name: str, value: Any) -> None:
        """Record a figure that appears only in the JSON."""
        self.figures[name] = value
        write_json(self.path, {"figures": self.figures, "claims": self.claims})

    def claim(self, claim: str, figure: str, holds: bool | None = None) -> None:
        """Record a line of the table; `holds` is None for measurements without a judgement."""
        self._line(claim, figure, VERDICTS[holds])

    def skip(self, claim: str, reason: str) -> None:
        """Record a line with the reason why a figure is missing."""
        self._line(claim, reason, "skipped")

    def attempt(self, claim: str, work: Callable[[], Any]) -> Any:
        """Do the work if there is time. Missing packages are a skip, errors a failure; both return None."""
        if self.seconds_left <= 0:
            return self.skip(claim, "the part's time was up")
        try:
            return work()
        except ImportError as error:
            self.skip(claim, _first_line(error))
        except Exception as error:  # noqa: BLE001 the other items continue
            reason = f"{type(error).__name__}: {_first_line(error)}"
            if type(error).__name__ == "OutOfMemoryError":
                self.skip(claim, reason)
            else:
                self._line(claim, reason, VERDICTS[False])
        return None

    def _line(self, claim: str, figure: str, verdict: str) -> None:
        self.claims.append(make_row(claim, figure, verdict))
        write_json(self.path, {"figures": self.figures, "claims": self.claims})


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:160]
