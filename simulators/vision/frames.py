"""A long clip of which few frames are shown: choose frames, look up times, then answer (FrameThinker)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np

from games.base import choice, flag, whole_number
from games.contracts import REFEREE, TOOL
from simulators.vision.clips import LONGEST, SHORTEST, Clip, draw_clip, format_frames, sample_frames
from simulators.vision.frames_acts import USAGE, Answer, Choose, LookUp, format_clock, read_act
from simulators.vision.frames_lessons import KINDS, draw_lesson
from simulators.vision.frames_players import PLAYERS
from simulators.vision.seeing import JUDGED, DigitWorld

RIGHT, SPOTLIGHT, LOOKUP = "right", "spotlight", "lookup"


class Frames(DigitWorld):
    """Single-player game of finding the digit that a long clip shows at a given time, or when its lamp changes.

    A clip has 400 to `longest` frames and shows each of its digits for ten frames. The viewer first sees eight frames,
    none of them with a digit. Acts, alone or after a thought as <action>…</action>: `choose frames between a and b`
    shows eight evenly spaced frames; frames beyond the end count as the last one. `get frame number at time m:ss`
    converts a time to a frame number. `output answer: X`, or the digit alone, ends the match. Short forms are `a b`,
    `frame a` for a single frame, and `m:ss`. Any other act gets an error message. Additional options: longest, 400 to
    2,000; asked, "time", "lamp" or "mixed"; max_turns, 2 to 32; sheet, whether frames are shown as one 3 x 3 picture at
    half their size, after all their numbers; gates, see below.

    FrameThinker's rewards, paid for a right answer: "right", 1; "spotlight", 0.02 if frames were chosen; "lookup", 0.5
    if the viewer looked up the asked time and saw a frame with the digit. With `gates`, nothing is paid if the viewer
    chose an interval twice, chose an interval that differs from the last one in its thought, or ignored the frame that
    it had just looked up.
    """

    name = "frames"
    metadata: ClassVar[dict[str, Any]] = {"name": "frames_v0", "render_modes": ["ansi"]}
    reward_parts: Mapping[str, str] = {
        RIGHT: "the digit", SPOTLIGHT: "0.02 for chosen frames", LOOKUP: "0.5 for the asked time, looked up and shown",
    }  # fmt: skip
    players = PLAYERS
    lesson_kinds = KINDS
    draw_lesson = draw_lesson

    def __init__(
        self,
        *,
        longest: int = LONGEST,
        asked: Literal["time", "lamp", "mixed"] = "mixed",
        max_turns: int = 5,
        gates: bool = True,
        sheet: bool = False,
        **options: Any,
    ) -> None:
        self.longest = whole_number("longest", longest, least=SHORTEST, most=LONGEST)
        self.asked, self.gates = choice("asked", asked, "time", "lamp", "mixed"), flag("gates", gates)
        self.sheet = flag("sheet", sheet)
        self.max_turns = whole_number("max_turns", max_turns, least=2, most=32)
        super().__init__(**options)

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Draw a clip and a question, and show frames from the whole clip."""
        self.is_timed = bool(rng.integers(2)) if self.asked == "mixed" else self.asked == "time"
        self.clip: Clip = self.draw_entity(lambda: draw_clip(rng, self.longest, self.is_timed), repr)
        self.digit = int(options.get(JUDGED, self.clip.target_event.digit))
        self.chosen_intervals: list[tuple[int, int]] = []
        self.shown_frames: set[int] = set()
        self.pending: int | None = None
        self.is_looked_up = self.right = False
        self.errors, self.slips = 0, set[str]()
        moment = f"at {format_clock(self.clip.target_event.second)}" if self.is_timed else "when the lamp changes"
        self.question = f"Which digit is shown {moment}?"
        self._show_frames(0, self.clip.length - 1, self.question, sender=REFEREE)

    def rules(self) -> str:
        """Return the task and the acts, as text."""
        return (
            f"Answer the question about a clip. {self.max_turns} turns in all, each one of: {USAGE}. Frames that you "
            "choose are shown: eight, evenly spread, each after its number."
        )

    def public(self) -> dict[str, Any]:
        """Return the `question`, the number of `frames` of the clip, and `turns_left`."""
        return {"question": self.question, "frames": self.clip.length, "turns_left": self.max_turns - self.turns}

    def play(self, seat: str, act: str) -> str:
        """Choose frames, look up a time, or answer. Returns the act in normal form, or "nothing"."""
        parsed = read_act(act)
        if isinstance(parsed, Answer):
            self._answer(seat, parsed.digit)
            return str(parsed)
        if isinstance(parsed, Choose):
            self._choose(parsed)
        elif isinstance(parsed, LookUp):
            self._look_up(parsed.second)
        else:
            self.fail(f"write {USAGE}")
        if self.turns == self.max_turns - 1:
            self.end("turns", "No turns are left, and nothing was answered.")
        return str(parsed) if parsed else "nothing"

    def _choose(self, act: Choose) -> None:
        if not act.agrees:
            self.slips.add("disagreed")
        first, last = (min(frame, self.clip.length - 1) for frame in (act.first, act.last))
        if first > last:
            self.fail("the first frame comes after the last one")
            return
        if (first, last) in self.chosen_intervals:
            self.slips.add("repeated")
        if self.pending is not None and not first <= self.pending <= last:
            self.slips.add("ignored")
        self.pending = None
        self.chosen_intervals.append((first, last))
        self._show_frames(first, last, f"Frames {first} to {last}.", sender=TOOL)

    def _look_up(self, second: int) -> None:
        frame = self.clip.frame_at(second)
        if frame is None:
            self.fail(f"the clip ends at {format_clock((self.clip.length - 1) // self.clip.rate)}")
            return
        self.pending = frame
        self.is_looked_up |= self.is_timed and second == self.clip.target_event.second
        self.show(f"Frame {frame}.", sender=TOOL)

    def _show_frames(self, first: int, last: int, text: str, sender: str) -> None:
        numbers = sample_frames(first, last)
        self.shown_frames.update(numbers)
        self.show(text, *format_frames(self.clip, numbers, self.sheet), sender=sender)

    def _answer(self, seat: str, digit: int) -> None:
        if self.pending is not None:
            self.slips.add("ignored")
        self.right = digit == self.digit
        if self.right and not (self.gates and self.slips):
            is_useful = self.is_looked_up and any(map(self.clip.target_event.holds, self.shown_frames))
            rewards = {RIGHT: 1.0, SPOTLIGHT: 0.02 * bool(self.chosen_intervals), LOOKUP: 0.5 * is_useful}
            for part, reward in rewards.items():
                self.pay(seat, part, reward)
        self.end("answered", "That is right." if self.right else "That is wrong.")

    def figures(self) -> dict[str, float | bool | str]:
        """Return `score`, `success`, `frames` shown, `intervals` chosen, `errors`, `looked_up`, `asked` and slips.

        `hit` is True if a frame with the asked digit was shown. The slips are the mistakes that `gates` punish:
        `repeated`, `disagreed` and `ignored`.
        """
        slips = {name: name in self.slips for name in ("repeated", "disagreed", "ignored")}
        counts = {
            "frames": len(self.shown_frames),
            "intervals": len(self.chosen_intervals),
            "errors": self.errors,
            **slips,
        }
        question = {"looked_up": self.is_looked_up, "asked": "time" if self.is_timed else "lamp"}
        hit = any(map(self.clip.target_event.holds, self.shown_frames))
        return {"score": float(self.right), "success": self.right, "hit": hit, **counts, **question}
