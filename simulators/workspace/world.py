"""Generation of workspaces: people with their files, tickets and meetings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simulators.workspace.state import DAYS, HOURS, Meeting, State, Ticket
from simulators.workspace.tasks import TERSE_FOLDERS, TITLES, TITLES_TERSE, Folders, shuffle_numbers

NAMES = (
    "Ada", "Alba", "Amir", "Anna", "Bela", "Bo", "Cleo", "Dina", "Ed", "Elif", "Emil", "Esra", "Eva", "Finn", "Gus",
    "Hana", "Ida", "Igor", "Ines", "Ivo", "Jan", "Juno", "Kai", "Lena", "Leo", "Lola", "Max", "Mila", "Nia", "Noor",
    "Omar", "Otto", "Pia", "Rami", "Rosa", "Sol", "Tara", "Uma", "Vera", "Yara",
)  # fmt: skip
LETTERS = tuple("ABCDEFGH")
"""Names in terse mode: few, and one token each, so that a tiny model quickly learns to copy them."""
SUBJECTS = ("budget", "travel", "contract", "survey", "minutes", "layout")
MAX_AGE = {False: 30, True: 10}
"""Upper bound (excluded) of tickets' ages in days, by `terse`."""


def draw_state(rng: np.random.Generator, people: Sequence[str], terse: bool) -> State:
    """Draw the records of these people. Each has at least one open ticket, a file in the inbox and a meeting.

    With `terse`, numbers have one digit, texts a letter and a few digits, and all meetings are on two days.
    """
    state = State(people=tuple(people))
    folders = TERSE_FOLDERS if terse else Folders()
    ids, slots = (
        (shuffle_numbers(rng, 1, 10), shuffle_numbers(rng, 1, 10))
        if terse
        else (shuffle_numbers(rng, 100, 999), shuffle_numbers(rng, 10, 99))
    )
    days = [DAYS[n] for n in rng.permutation(len(DAYS))[: 2 if terse else 5]]
    for person in people:
        ages = shuffle_numbers(rng, 1, MAX_AGE[terse])
        for index in range(int(rng.integers(1, 3 if terse else 4))):
            ticket = Ticket(person, str(rng.choice(TITLES_TERSE if terse else TITLES)), next(ages))
            if index and rng.random() < 0.25:
                ticket.status = "closed"
            state.tickets[next(ids)] = ticket
        code = int(rng.integers(10, 100) if terse else rng.integers(1000, 10_000))
        state.files[f"{folders.inbox}/{person}"] = f"q{code}" if terse else f"{rng.choice(SUBJECTS)} {code}"
        while True:
            day, hour = days[int(rng.integers(len(days)))], int(rng.integers(HOURS[0], HOURS[-1] + 1))
            if state.is_free(day, hour):
                break
        state.meetings[next(slots)] = Meeting(person, day, hour)
    return state
