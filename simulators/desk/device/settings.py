"""Settings of a customer's phone, the services that need them, and the vocabulary of statements about them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from simulators.extractor import Vocabulary, make_vocabulary

Service = Literal["calls", "data"]
THINGS: Mapping[Service, str] = {"calls": "calls", "data": "mobile data"}
"""The customer's words for each service."""
SERVICE = "service"
"""Name under which the state of the failing service is stated, with the values `WORKS` and `FAILS`."""
WORKS, FAILS = "works", "fails"


@dataclass(frozen=True)
class Setting:
    """Setting of a phone with two values: services need `good` and may fail with `bad`."""

    name: str
    good: str
    bad: str
    words: tuple[str, ...]
    """Normalised phrases (`fold`) that name it in plain text."""
    for_calls: bool = False
    """Whether calls fail with the bad value."""
    abroad: bool = False
    """Whether the setting matters only abroad."""
    for_data: bool = True
    """Whether mobile data fails with the bad value."""
    good_words: tuple[str, ...] = ()
    """Normalised words for setting the good value, in addition to on and off."""

    @property
    def values(self) -> tuple[str, str]:
        """Both values, the good one first."""
        return self.good, self.bad

    def opposite(self, value: str) -> str:
        """Return the setting's other value."""
        return self.bad if value == self.good else self.good


SETTINGS: Mapping[str, Setting] = {
    "airplane_mode": Setting("airplane mode", "off", "on", ("airplane mode", "flight mode"), for_calls=True),
    "sim_card": Setting(
        "the SIM card", "in", "loose", ("sim card", "sim tray"), for_calls=True,
        good_words=("insert", "reinsert", "reseat", "push", "put", "seat", "take"),
    ),
    "sim_lock": Setting(
        "the SIM lock", "open", "locked", ("sim lock", "sim pin", "pin"), for_calls=True,
        good_words=("unlock", "enter", "type"),
    ),
    "mobile_data": Setting("mobile data", "on", "off", ("mobile data", "cellular data")),
    "data_roaming": Setting("data roaming", "on", "off", ("data roaming", "roaming"), abroad=True),
    "network_mode": Setting(
        "the network mode", "auto", "2g", ("network mode", "network type"), good_words=("automatic", "automatically"),
    ),
    "apn": Setting("the APN", "standard", "edited", ("apn", "access point"), good_words=("reset", "default")),
    "vpn": Setting("the VPN", "off", "on", ("vpn",)),
    "data_saver": Setting("data saver", "off", "on", ("data saver", "data saving")),
    "wifi_calling": Setting(
        "wi-fi calling", "optional", "only", ("wi fi calling", "wifi calling"), for_calls=True, for_data=False,
        good_words=("off", "disable"),
    ),
}  # fmt: skip


def list_needed(service: Service, abroad: bool) -> list[str]:
    """Return the names of the settings that a service needs at their good value."""
    return [
        name
        for name, setting in SETTINGS.items()
        if (setting.for_data if service == "data" else setting.for_calls) and (abroad or not setting.abroad)
    ]


def word_statement(name: str, value: str, service: Service) -> str:
    """Return a setting's value, or for `SERVICE` whether the service works, as a sentence of the customer."""
    if name == SERVICE:
        verbs = {"calls": ("work", "do not work"), "data": ("works", "does not work")}[service]
        return f"{THINGS[service].capitalize()} {verbs[value == FAILS]}."
    label = SETTINGS[name].name
    return f"{label[:1].upper()}{label[1:]} is {value}."


def _spell_claims() -> Iterator[tuple[str, list[str]]]:
    """Yield each topic, "name value", with the phrases that state it."""
    for name, setting in SETTINGS.items():
        for value in setting.values:
            other, phrases = setting.opposite(value), list[str]()
            for word in setting.words:
                phrases += [f"{word} {verb} {value}" for verb in ("is", "is now", "is still", "shows", "to")]
                phrases += [f"{word} {verb} {other}" for verb in ("is not", "isnt", "is no longer", "is not set to")]
                phrases += [f"turned {value} {word}", f"turned {value} the {word}", f"turned {word} {value}"]
                phrases += [f"switched {value} {word}", f"switched {word} {value}", f"{word} is set to {value}"]
            yield f"{name} {value}", phrases
    subjects = ("it", *THINGS.values())
    works = ("works", "work", "works now", "work now", "is working")
    fails = ("does not work", "do not work", "doesnt work", "dont work", "is not working", "isnt working")
    yield f"{SERVICE} {WORKS}", [f"{subject} {verb}" for subject in subjects for verb in works]
    yield (
        f"{SERVICE} {FAILS}",
        [f"{subject} {still}{verb}" for subject in subjects for verb in fails for still in ("", "still ")],
    )


CLAIMS: Vocabulary = make_vocabulary(dict(_spell_claims()))


def read_claims(text: str) -> list[tuple[str, str]]:
    """Return the settings' values and the service's state that a text claims, as (name, value).

    A denied value counts as a claim of the opposite one. Uncertain statements are left out.
    """
    found = []
    for topic, stance in CLAIMS.read(text).items():
        name, _, value = topic.partition(" ")
        if stance == "deny":
            value = SETTINGS[name].opposite(value) if name != SERVICE else FAILS if value == WORKS else WORKS
        if stance != "unknown":
            found.append((name, value))
    return found
