"""Words for signs: symptoms, tests and disease names of the invented clinic."""

from __future__ import annotations

import re
import string
from typing import NamedTuple

from games.families.book import fold


class Sign(NamedTuple):
    """A symptom. `phrase` follows "I have"; a `secret` one is mentioned only when asked."""

    name: str
    phrase: str
    synonyms: tuple[str, ...]
    secret: bool = False


def parse_signs(lines: str, secret: bool = False) -> tuple[Sign, ...]:
    """Parse lines of one symptom each: name; phrase after "I have"; synonyms. `secret` applies to all of them."""
    rows = [[part.strip() for part in line.split(";")] for line in lines.strip().splitlines()]
    return tuple(Sign(name, phrase, tuple(more), secret) for name, phrase, *more in rows)


OPEN = parse_signs("""
fever; a fever; feverish; high temperature; temperature
cough; a cough; coughing
headache; a headache; headaches; head hurts; head aches
tiredness; unusual tiredness; tired; exhausted; fatigue; worn out
nausea; nausea; nauseous; queasy; sick to my stomach
vomiting; vomiting; throwing up; vomit
diarrhea; diarrhea; diarrhoea; loose stools; the runs
constipation; constipation; constipated
rash; a rash; skin rash; spots on my skin
itching; itching; itchy; itch; itches
chest pain; chest pain; pain in my chest; chest hurts
back pain; back pain; backache; pain in my back; back hurts
joint pain; joint pain; painful joints; aching joints; joints hurt
muscle pain; muscle pain; sore muscles; aching muscles; muscles hurt
sore throat; a sore throat; throat hurts; pain in my throat
runny nose; a runny nose; nose is running; sniffles
earache; an earache; ear pain; ear hurts
dizziness; dizziness; dizzy; lightheaded
fainting; fainting fits; fainted; passed out; blackouts
palpitations; palpitations; racing heart; heart races; pounding heart
breathlessness; shortness of breath; short of breath; breathless; out of breath
wheezing; wheezing; wheeze; whistling breath
night sweats; night sweats; sweating at night; sweaty nights
chills; chills; shivers; shivering
weight loss; weight loss; lost weight; losing weight
poor appetite; a poor appetite; no appetite; not hungry; lost my appetite
thirst; great thirst; thirsty; always thirsty
swollen legs; swollen legs; swollen ankles; swelling
tremor; a tremor; trembling; shaky hands; hands shake
numbness; numbness; numb
tingling; tingling; pins and needles
blurred vision; blurred vision; blurry vision; blurry eyes; see blurred
red eyes; red eyes; bloodshot eyes; eyes are red
hoarseness; a hoarse voice; hoarse; lost my voice
heartburn; heartburn; acid reflux; burning stomach
bloating; bloating; bloated; swollen belly
stiff neck; a stiff neck; neck is stiff; neck stiffness
nosebleeds; nosebleeds; nosebleed; nose bleeds; bleeding nose
bruising; easy bruising; bruises; bruise easily
hair loss; hair loss; losing hair; hair falls out
""")
SECRET = parse_signs(
    """
low mood; a low mood; depressed; hopeless
heavy drinking; a drinking habit; drink a lot; too much alcohol; drinking too much
memory loss; memory loss; forgetful; bad memory; forget things
bloody stool; blood in my stool; bloody stools; blood in the toilet
""",
    secret=True,
)
SYMPTOMS = (*OPEN[:6], SECRET[0], *OPEN[6:12], SECRET[1], *OPEN[12:20], SECRET[2], *OPEN[20:30], SECRET[3], *OPEN[30:])
"""All symptoms; a smaller clinic takes the first ones. Every dozen or so contains a secret."""
TESTS = {
    "blood": ("low iron", "high white count", "high calcium"),
    "urine": ("urine protein", "urine blood", "urine sugar"),
    "xray": ("lung shadow", "large heart", "thin bones"),
    "scan": ("large spleen", "liver cyst", "gallstones"),
}
"""Findings that each test shows without error. The patient does not know them."""
FINDINGS = tuple(finding for shown in TESTS.values() for finding in shown)
LETTERS = string.ascii_letters
"""Terse names of symptoms and of diseases, in order."""
ONSETS = ("Bra", "Cor", "Dul", "Fen", "Gal", "Hes", "Jor", "Kel", "Lom", "Mav")
ENDINGS = ("vane", "rith", "mora", "zell", "quin", "tosk", "pell", "ndra", "gax", "luno")
MAX_DISEASES = len(ONSETS) * len(ENDINGS)


def invent_disease_names(count: int) -> tuple[str, ...]:
    """Return `count` (at most 100) invented disease names. The first ten differ in both halves."""
    return tuple(ONSETS[n % 10] + ENDINGS[(n // 10 + n) % 10] for n in range(count))


def find_index(text: str, names: tuple[str, ...]) -> int | None:
    """Return the index in `names` of a name (ignoring case) or a number from 1; None if the text is neither."""
    plain = fold(text)
    if re.fullmatch("[0-9]{1,3}", plain):
        return int(plain) - 1 if 0 < int(plain) <= len(names) else None
    return next((index for index, name in enumerate(names) if fold(name) == plain), None)
