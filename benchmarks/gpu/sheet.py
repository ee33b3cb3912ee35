"""Record of a part's figures and claims, saved after each. A failing item does not stop the others."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

VERDICTS = {True: "ok", False: "FAILED", None: "measured"}


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON file, atomically."""
    temporary = path.with_name(f".{path.name}.part")
    temporary.write_text(json.dumps(value, indent=1) + "\n")
    os.replace(temporary, path)


def make_row(claim: str, figure: str, verdict: str) -> dict[str, str]:
    """Return a row of the printed table."""
    return {"claim": claim, "figure": figure, "verdict": verdict}


class Sheet:
    """Figures and claims of one part so far, saved to `path`, and the part's deadline `until` by `time.time()`."""

    def __init__(self, path: Path, until: float) -> None:
        self.path, self.until = path, until
        self.figures: dict[str, Any] = {}
        self.claims: list[dict[str, str]] = []

    @property
    def seconds_left(self) -> float:
        """Remaining seconds by the wall clock, which the parent process shares."""
        return self.until - time.time()

    def note(self, name: str, value: Any) -> None:
        """Record a figure for the JSON file only."""
        self.figures[name] = value
        write_json(self.path, {"figures": self.figures, "claims": self.claims})

    def claim(self, claim: str, figure: str, holds: bool | None = None) -> None:
        """Record a row of the table. `holds` is None for a measurement without a verdict."""
        self._line(claim, figure, VERDICTS[holds])

    def skip(self, claim: str, reason: str) -> None:
        """Record a row with the reason why a figure is missing."""
        self._line(claim, reason, "skipped")

    def attempt(self, claim: str, work: Callable[[], Any]) -> Any:
        """Call `work` if there is time left, and return its result.

        A missing package or a lack of memory is recorded as skipped, any other error as failed. Both return None.
        """
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
