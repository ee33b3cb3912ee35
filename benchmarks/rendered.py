"""Rendering by a small language model: what it makes of what it is to say, and what of that reaches the other side.

    python benchmarks/rendered.py clinic    # 200 dialogues each; about 15 minutes on two quiet cores
    python benchmarks/rendered.py desk

The person's script decides what is said and SmolLM2-135M words it (`person: render`), with mixed personas; the other
seat is scripted. `before` is what the model wrote at first asking and at second; `after` is what the other side heard,
judged by readers of this file that share nothing with the simulator's own bookkeeping: a bag of words for the clinic,
numbers and names for the desk, and both search for secrets. What they find fault with is listed, to be read by hand.
`extractor` holds the simulator's extractor against hand-made labels of 150 raw texts of this model, written under
several prompts (tests/simulators/rendered_texts.jsonl). Writes results/rendered.json.
"""

import argparse
import asyncio
import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from agents.precision import Precision
from arena.cli.loop import wait
from arena.doctor import describe_environment
from arena.evaluate import specs
from arena.evaluate.evaluation import LIMITS, make_game
from arena.plain import to_plain
from arena.play.contenders import Contender, ScriptedContender
from arena.play.match import MatchPlan, SeatedPlayer, play_match
from arena.play.orchestrator import play_all
from arena.play.settings import GameSpec
from arena.records import MatchRecord
from arena.statistics import SHARE, mean_ci, rate_ci
from games.contracts import Act, Game, MatchId, View
from simulators.clinic import Clinic
from simulators.clinic.signs import SYMPTOMS
from simulators.clinic.synthetic import invented
from simulators.desk import Desk
from simulators.extractor import Reading

MODEL = "smollm2-135m-instruct"
RESULTS = Path(__file__).parent / "results" / "rendered.json"
LABELS = Path(__file__).parents[1] / "tests" / "simulators" / "rendered_texts.jsonl"
STUDIES: dict[str, dict[str, Any]] = {
    "clinic": {"role": "patient", "others": ("random_asker", "asker"), "options": {"budget": [2, 8]}},
    "desk": {"role": "desk_customer", "others": ("oracle", "obedient"), "options": {"goals": [1, 2]}},
}


@dataclass(frozen=True)
class Said:
    """One act of a person: what was due, what the model wrote for it, and what the other side heard."""

    act: str
    template: str
    texts: tuple[str, ...]
    heard: str


@dataclass(frozen=True)
class Dialogue:
    """A match that is over."""

    game: Game
    opening: str
    acts: tuple[Said, ...]
    report: dict[str, Any]
    tokens: int


class Watched:
    """A player whose texts are noted beside what it was to say."""

    def __init__(self, player: SeatedPlayer) -> None:
        self.player = player
        self.noted: list[tuple[str, str, str]] = []
        self.streams, self.stream_keys, self.version = player.streams, player.stream_keys, player.version

    async def act(self, view: View) -> Act:
        """The player's act."""
        act = await self.player.act(view)
        self.noted.append((str(view.private["say"]), str(view.private["template"]), act.action))
        return act


def play(name: str, dialogues: int, seed: int) -> tuple[list[Dialogue], float]:
    """The dialogues, and the seconds of CPU time that they took."""
    study = STUDIES[name]
    spec = GameSpec(name=name, options={**study["options"], "person": "render", "persona": "mixed"})
    (voice,) = wait(specs.Contenders(study["role"]).load(MODEL))
    voice.engine.precision = Precision.BF16  # type: ignore[attr-defined]  # a model's, which has an engine
    others = [ScriptedContender(script) for script in study["others"]]
    seats = make_game(spec).possible_agents
    found: dict[int, Dialogue] = {}

    async def one(plan: MatchPlan) -> MatchRecord:
        number, game = plan.identity.deal, make_game(spec)
        who: dict[str, Contender] = dict(zip(seats, (others[number % len(others)], voice), strict=True))
        players = {seat: who[seat].player(seat, plan, game, seed) for seat in seats}
        watched = Watched(players[seats[1]])
        record = await play_match(plan, game, {seats[0]: players[seats[0]], seats[1]: watched}, LIMITS)
        voice.leave(players[seats[1]])
        assert record.status == "finished", record.reason
        found[number] = dialogue(game, record, watched, seats)
        return record

    seatings = {seat: player.seating(name, seat) for seat, player in zip(seats, (others[0], voice), strict=True)}
    plans = [
        MatchPlan(identity=MatchId(0, n), game=name, options=dict(spec.options), seed=seed * 10_000 + n, seats=seatings)
        for n in range(dialogues)
    ]
    began = time.process_time()
    asyncio.run(play_all(plans, one, lambda record: None, in_flight=dialogues))
    return [found[n] for n in range(dialogues)], time.process_time() - began


def dialogue(game: Game, record: MatchRecord, watched: Watched, seats: list[str]) -> Dialogue:
    """Return what was said, from the record of turns; what the person said last, as the talk ended, nobody heard."""
    _, person = seats
    noted, pending, opening = iter(watched.noted), list[tuple[str, str, str]](), ""
    acts: list[Said] = []
    for turn in record.turns:
        if turn.seat == person:
            pending.append(next(noted))
            continue
        heard = [message.text for message in turn.messages if message.sender == person]
        if pending:
            acts.append(Said(pending[0][0], pending[0][1], tuple(text for _, _, text in pending), heard[0]))
        elif not acts and heard:
            opening = heard[0]
        pending = []
    tokens = sum(turn.tokens for turn in record.turns if turn.seat == person)
    return Dialogue(game, opening, tuple(acts), dict(record.report), tokens)


# -- before: what the model wrote ------------------------------------------------------------------------------


def faults(name: str, game: Game, said: Said, text: str) -> dict[str, bool]:
    """Return the faults that the simulator's extractor reads in a text, against what was due."""
    read, due = reading(name, game, said, text), reading(name, game, said, said.template)
    return {
        "wrong": any(read.facts[topic] != stance for topic, stance in due.facts.items() if topic in read.facts),
        "extra": bool(read.facts.keys() - due.facts.keys()),
        "withheld": bool(due.facts.keys() - read.facts.keys()),
        "unclear": not read.unclear <= due.unclear,
    }


def reading(name: str, game: Game, said: Said, text: str) -> Reading:
    """The simulator's own reading."""
    if isinstance(game, Clinic):
        return game.table.words.understand(text, said.act.partition(" ")[2])
    assert isinstance(game, Desk)
    return game.customer.read(text, proposed=True)


def before(name: str, dialogues: list[Dialogue]) -> dict[str, Any]:
    """Rates of faults among first and second texts; a text may have several."""
    told: dict[str, Any] = {}
    for place, asking in enumerate(("first", "second")):
        found = [faults(name, d.game, s, s.texts[place]) for d in dialogues for s in d.acts if len(s.texts) > place]
        counts = {fault: sum(each[fault] for each in found) for fault in ("wrong", "extra", "withheld", "unclear")}
        counts["accepted"] = sum(not any(each.values()) for each in found)
        told[asking] = {"texts": len(found), **{n: [c, rate_ci(c, len(found))] for n, c in counts.items()}}
    return told


# -- after: what was heard -------------------------------------------------------------------------------------

NOT = re.compile(r"\b(?:no|not|never|none|neither|nor|without|nope|nah|\w+n['’]t)\b", re.IGNORECASE)
UNSURE = re.compile(
    r"\b(?:(?:un)?sure|(?:un)?certain|know|tell|say|remember|recall|idea|clue|maybe|perhaps|might|possibly|if|whether)\b",
    re.IGNORECASE,
)
LITTLE = {"the", "have", "with", "from", "much", "more", "that", "unusual", "great", "easy", "poor", "always", "losing"}


def bag_of_words(text: str) -> str:
    """A stance by words alone, wherever they stand: doubt before denial before anything else."""
    if UNSURE.search(re.sub("now that you say it", "", text, flags=re.IGNORECASE)):
        return "unknown"
    return "deny" if NOT.search(text) else "inform"


def stems(phrase: str) -> frozenset[str]:
    """The first five letters of the words that matter in it."""
    parts = re.findall("[a-z]+", phrase.lower())
    return frozenset(part[:5] for part in parts if len(part) > 2 and part not in LITTLE)


def mentioned(text: str) -> set[str]:
    """The symptoms of which all that matters in some phrase occurs in the text, in any order."""
    there = {part[:5] for part in re.findall("[a-z]+", text.lower())}
    return {
        sign.name for sign in SYMPTOMS for phrase in (sign.name, sign.it, *sign.synonyms)
        if stems(phrase) and stems(phrase) <= there
    }  # fmt: skip


def heard_in_clinic(d: Dialogue) -> Iterator[tuple[Said, str]]:
    """Yield what the doctor heard that was wrong, extra or secret; the template is none of these."""
    assert isinstance(d.game, Clinic)
    for said in d.acts:
        stance, _, topic = said.act.partition(" ")
        if said.heard == said.template:
            continue
        if bag_of_words(said.heard) != stance:
            yield said, "wrong"
        for other in mentioned(said.heard) - {topic}:
            yield said, "secret" if next(s for s in SYMPTOMS if s.name == other).secret else "extra"
        if any(disease.lower() in said.heard.lower() for disease in d.game.table.names):
            yield said, "extra"


def heard_at_desk(d: Dialogue) -> Iterator[tuple[Said, str]]:
    """Yield what the agent heard with other numbers and names than were due, or without them, or of other people's."""
    assert isinstance(d.game, Desk)
    own = d.game.customer.record.person
    people = [person for person in d.game.world.all("SELECT * FROM customers") if person["id"] != own.id]
    for said in d.acts:
        due, there = marked(said.template), marked(said.heard)
        if there - due:
            yield said, "wrong"
        if due - there:
            yield said, "withheld"
        texts = [text for person in people for text in (person["name"], person["email"], person["address"])]
        if any(text.lower() in said.heard.lower() for text in texts):
            yield said, "secret"


def marked(text: str) -> set[str]:
    """The words of a text that hold digits or an @."""
    return {word.strip(".,!?;:()'\"").lower() for word in text.split() if re.search(r"[\d@]", word)}


def after(name: str, dialogues: list[Dialogue]) -> dict[str, Any]:
    """Return what reached the other side, and what the independent readers find fault with."""
    find = heard_in_clinic if name == "clinic" else heard_at_desk
    acts = [said for d in dialogues for said in d.acts]
    found = [(said, fault) for d in dialogues for said, fault in find(d)]
    counts = {fault: sum(each == fault for _, each in found) for fault in ("wrong", "extra", "secret", "withheld")}
    own = [said for said in acts if said.heard in said.texts]
    return {
        "heard": len(acts),
        "of_the_model": [len(own), rate_ci(len(own), len(acts))],
        "template_stood_in": [len(acts) - len(own), rate_ci(len(acts) - len(own), len(acts))],
        "faults_to_read_by_hand": {fault: [count, rate_ci(count, len(acts))] for fault, count in counts.items()},
        "texts_to_read_by_hand": sorted({f"{fault}: {said.act} | {said.heard}" for said, fault in found}),
    }


def extractor() -> dict[str, Any]:
    """The extractor against labels made by hand: how often what it reads for sure is right, and how much it reads."""
    vocabulary, pairs = invented(0, 20, len(SYMPTOMS)).words, []
    for row in map(json.loads, LABELS.read_text().splitlines()):
        read = vocabulary.understand(row["text"], row["topic"])
        sure = not read.unclear and read.facts.keys() == {row["topic"]}
        pairs.append((read.facts[row["topic"]] if sure else "", row["label"]))
    read_for_sure = [stance == label for stance, label in pairs if stance]
    plain_ones = [stance == label for stance, label in pairs if label != "other"]
    return {
        "texts": len(pairs),
        "labels": {label: sum(each == label for _, each in pairs) for label in sorted({label for _, label in pairs})},
        "precision": [sum(read_for_sure), len(read_for_sure), rate_ci(sum(read_for_sure), len(read_for_sure))],
        "recall": [sum(plain_ones), len(plain_ones), rate_ci(sum(plain_ones), len(plain_ones))],
    }


def main() -> None:
    """Play a study and write what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--dialogues", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--texts", type=Path, help="write every text here, too, one JSON line each")
    options = parser.parse_args()
    torch.set_num_threads(min(2, torch.get_num_threads()))
    began = time.perf_counter()
    dialogues, cpu = play(options.study, options.dialogues, options.seed)
    seconds, tokens = time.perf_counter() - began, sum(d.tokens for d in dialogues)
    found = {
        "command": f"python benchmarks/rendered.py {options.study} --dialogues {options.dialogues} "
        f"--seed {options.seed}",
        "model": MODEL, "study": STUDIES[options.study], "dialogues": len(dialogues), "tokens": tokens,
        "machine": {name: value for name, value in describe_environment().items() if name != "command"},
        "speed": {"seconds": seconds, "cpu_seconds": cpu, "dialogues_per_cpu_second": len(dialogues) / cpu,
                  "tokens_per_cpu_second": tokens / cpu},
        "before": before(options.study, dialogues),
        "after": after(options.study, dialogues),
        "success": mean_ci([float(d.report["success"]) for d in dialogues], SHARE),
    }  # fmt: skip
    if options.texts:
        rows = [{"act": s.act, "template": s.template, "texts": s.texts, "heard": s.heard}
                for d in dialogues for s in d.acts]  # fmt: skip
        options.texts.write_text("\n".join(map(json.dumps, rows)) + "\n")
    told = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    told |= {options.study: found} | ({"extractor": extractor()} if LABELS.exists() else {})
    RESULTS.write_text(json.dumps(to_plain(told, "result", gaps=True), indent=1) + "\n")
    print(json.dumps(to_plain({n: found[n] for n in ("speed", "before", "after")}, "result", gaps=True), indent=1))


if __name__ == "__main__":
    main()
