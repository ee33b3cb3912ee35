"""Words of the invented bookshop: genres, their paraphrases, and parts of titles."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from games.families.book import fold

GENRES: Mapping[str, tuple[str, ...]] = {
    "mystery": ("mystery", "whodunit", "locked-room puzzle", "detective tale"),
    "romance": ("romance", "love story", "courtship", "tale of two hearts"),
    "horror": ("horror", "ghost story", "haunting", "tale to lose sleep over"),
    "comedy": ("comedy", "farce", "satire", "string of jokes"),
    "adventure": ("adventure", "treasure hunt", "sea voyage", "journey into the unknown"),
    "history": ("history", "chronicle of old wars", "tale of kings and queens", "antiquity"),
    "science": ("science", "tour of the stars", "laboratory diary", "astronomy"),
    "cookery": ("cookery", "kitchen companion", "recipe collection", "baking"),
    "poetry": ("poetry", "sheaf of verses", "rhymes", "sonnets"),
    "sport": ("sport", "athletics", "season on the pitch", "tale of the big match"),
}
"""Names of each genre in texts, usual name first. No name belongs to two genres."""
ADJECTIVES = (
    "Amber", "Ashen", "Borrowed", "Brazen", "Clouded", "Crooked", "Distant", "Drifting", "Eleventh", "Fallow",
    "Forgotten", "Gilded", "Hollow", "Idle", "Ivory", "Lesser", "Lonely", "Muddy", "Narrow", "Northern", "Painted",
    "Patient", "Pewter", "Quiet", "Restless", "Rusted", "Salted", "Seventh", "Silver", "Sleeping", "Sunken", "Tall",
    "Thirsty", "Twofold", "Unlit", "Velvet", "Wandering", "Wicker", "Winter", "Yellow",
)  # fmt: skip
NOUNS = (
    "Abacus", "Anchor", "Bell", "Bridge", "Candle", "Carriage", "Cellar", "Cipher", "Clock", "Compass", "Cradle",
    "Door", "Feather", "Ferry", "Garden", "Gate", "Harp", "Kettle", "Kite", "Ladder", "Lantern", "Ledger", "Loom",
    "Mask", "Mirror", "Needle", "Orchard", "Parcel", "Quill", "Rope", "Sail", "Shutter", "Spindle", "Stair", "Thimble",
    "Tower", "Umbrella", "Violin", "Whistle", "Window",
)  # fmt: skip
PLACES = tuple(
    first + last
    for first in ("Vos", "Mar", "Tel", "Quor", "Bran", "Il", "Dusk", "Fen", "Hal", "Oss")
    for last in ("ka", "wick", "mere", "dal", "ruin", "holt", "ova", "stead", "garth", "lin")
)
TITLES = len(ADJECTIVES) * len(NOUNS) * len(PLACES)
HINTS = ("Few finish it.", "Readers differ.", "Well liked.", "Much praised.")
"""Hints at an item's quality, by quarter of its range."""
LETTERS = "abcdefghijklmnopqrstuvwxyz"
"""One-letter codes of genres, in order."""


def make_title(number: int) -> str:
    """Return the title with this number, from 0 to below `TITLES`. Different numbers give different titles."""
    rest, adjective = divmod(number, len(ADJECTIVES))
    place, noun = divmod(rest, len(NOUNS))
    return f"The {ADJECTIVES[adjective]} {NOUNS[noun]} of {PLACES[place]}"


def hint_at(quality: float) -> str:
    """Return a hint in words, one of `HINTS`, for a quality in [0, 1]."""
    return HINTS[min(len(HINTS) - 1, int(quality * len(HINTS)))]


def list_spellings(genres: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return all names of each genre. A genre that is not in `GENRES` has only its own name.

    A name that is itself a genre is removed from other genres: if comedy and satire are two genres, "satire" is no
    name of comedy.
    """
    names = {*genres}
    return {
        genre: tuple(phrase for phrase in GENRES.get(genre, (genre,)) if phrase == genre or fold(phrase) not in names)
        for genre in genres
    }


def compile_finder(genres: Collection[str]) -> tuple[re.Pattern[str], Mapping[str, int]]:
    """Return a pattern that finds genre names in normalised text (`fold`), and the genre's index by normalised name."""
    spellings = list_spellings(genres)
    meanings = {fold(phrase): index for index, phrases in enumerate(spellings.values()) for phrase in phrases}
    longest = sorted(filter(None, meanings), key=len, reverse=True)
    return re.compile(rf"(?<= )(?:{'|'.join(map(re.escape, longest)) or '(?!)'})(?= )"), meanings
