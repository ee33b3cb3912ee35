"""Faithfulness of texts that a small language model writes for a scripted person, before and after the checks.

    python benchmarks/rendered.py clinic    # 200 dialogues each; about 15 minutes on two quiet cores
    python benchmarks/rendered.py desk

The person's script decides the content and SmolLM2-135M words it (`person: render`), with mixed personas; the other
seat is scripted. `before` has the model's first and second attempts; `after` has the texts that the other side heard.
The readers of the latter share nothing with the simulator's own bookkeeping: a bag of words for the clinic, numbers and
names for the desk, and both search for secrets. The texts that they object to are listed, to be read by hand.
`extractor` compares the simulator's extractor with hand-made labels of 150 raw texts of this model, written under
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
from simulators.clinic.synthetic import invent_table
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
class Utterance:
    """One act of a person: content, template, the model's texts for it, and the text that was heard."""

    act: str
    template: str
    texts: tuple[str, ...]
    heard: str


@dataclass(frozen=True)
class Dialogue:
    """A finished match."""

    game: Game
    acts: tuple[Utterance, ...]
    report: dict[str, Any]
    tokens: int


class RecordedPlayer:
    """Wrapper of a player that records its texts beside the requested content."""

    def __init__(self, player: SeatedPlayer) -> None:
        self.player = player
        self.texts: list[tuple[str, str, str]] = []
        self.streams, self.stream_keys, self.version = player.streams, player.stream_keys, player.version

    async def act(self, view: View) -> Act:
        """Return the player's act."""
        act = await self.player.act(view)
        self.texts.append((str(view.private["say"]), str(view.private["template"]), act.action))
        return act


def play_dialogues(name: str, dialogues: int, seed: int) -> tuple[list[Dialogue], float]:
    """Play the dialogues. Returns them and their CPU seconds."""
    study = STUDIES[name]
    spec = GameSpec(name=name, options={**study["options"], "person": "render", "persona": "mixed"})
    (speaker,) = wait(specs.ContenderLoader(study["role"]).load(MODEL))
    speaker.engine.precision = Precision.BF16  # type: ignore[attr-defined]  # a model's, which has an engine
    others = [ScriptedContender(script) for script in study["others"]]
    seats = make_game(spec).possible_agents
    found: dict[int, Dialogue] = {}

    async def play_one(plan: MatchPlan) -> MatchRecord:
        number, game = plan.identity.deal, make_game(spec)
        contenders: dict[str, Contender] = dict(zip(seats, (others[number % len(others)], speaker), strict=True))
        players = {seat: contenders[seat].player(seat, plan, game, seed) for seat in seats}
        recorded = RecordedPlayer(players[seats[1]])
        record = await play_match(plan, game, {seats[0]: players[seats[0]], seats[1]: recorded}, LIMITS)
        speaker.release(players[seats[1]])
        assert record.status == "finished", record.reason
        found[number] = make_dialogue(game, record, recorded, seats)
        return record

    seatings = {seat: player.seating(name, seat) for seat, player in zip(seats, (others[0], speaker), strict=True)}
    plans = [
        MatchPlan(identity=MatchId(0, n), game=name, options=dict(spec.options), seed=seed * 10_000 + n, seats=seatings)
        for n in range(dialogues)
    ]
    began = time.process_time()
    asyncio.run(play_all(plans, play_one, lambda record: None, in_flight=dialogues))
    return [found[n] for n in range(dialogues)], time.process_time() - began


def make_dialogue(game: Game, record: MatchRecord, recorded: RecordedPlayer, seats: list[str]) -> Dialogue:
    """Return the dialogue of a recorded match, without last words that nobody heard because the talk ended."""
    _, person = seats
    texts, pending = iter(recorded.texts), list[tuple[str, str, str]]()
    acts: list[Utterance] = []
    for turn in record.turns:
        if turn.seat == person:
            pending.append(next(texts))
            continue
        heard = [message.text for message in turn.messages if message.sender == person]
        if pending:
            acts.append(Utterance(pending[0][0], pending[0][1], tuple(text for _, _, text in pending), heard[0]))
        pending = []
    tokens = sum(turn.tokens for turn in record.turns if turn.seat == person)
    return Dialogue(game, tuple(acts), dict(record.report), tokens)


# -- before: texts of the model ------------------------------------------------------------------------------


def find_faults(name: str, game: Game, utterance: Utterance, text: str) -> dict[str, bool]:
    """Return the faults of a text by the simulator's extractor, compared with the template."""
    read, due = read_text(name, game, utterance, text), read_text(name, game, utterance, utterance.template)
    return {
        "wrong": any(read.facts[topic] != stance for topic, stance in due.facts.items() if topic in read.facts),
        "extra": bool(read.facts.keys() - due.facts.keys()),
        "withheld": bool(due.facts.keys() - read.facts.keys()),
        "unclear": not read.unclear <= due.unclear,
    }


def read_text(name: str, game: Game, utterance: Utterance, text: str) -> Reading:
    """Return the simulator's own reading of a text."""
    if isinstance(game, Clinic):
        return game.table.words.understand(text, utterance.act.partition(" ")[2])
    assert isinstance(game, Desk)
    return game.customer.read(text, proposed=True)


def summarize_written(name: str, dialogues: list[Dialogue]) -> dict[str, Any]:
    """Return the rates of faults among first and second attempts. A text may have several."""
    counts_by_asking: dict[str, Any] = {}
    for place, asking in enumerate(("first", "second")):
        found = [
            find_faults(name, d.game, s, s.texts[place]) for d in dialogues for s in d.acts if len(s.texts) > place
        ]
        counts = {fault: sum(each[fault] for each in found) for fault in ("wrong", "extra", "withheld", "unclear")}
        counts["accepted"] = sum(not any(each.values()) for each in found)
        counts_by_asking[asking] = {"texts": len(found), **{n: [c, rate_ci(c, len(found))] for n, c in counts.items()}}
    return counts_by_asking


# -- after: texts that were heard ----------------------------------------------------------------------------

NOT = re.compile(r"\b(?:no|not|never|none|neither|nor|without|nope|nah|\w+n['’]t)\b", re.IGNORECASE)
UNSURE = re.compile(
    r"\b(?:(?:un)?sure|(?:un)?certain|know|tell|say|remember|recall|idea|clue|maybe|perhaps|might|possibly|if|whether)\b",
    re.IGNORECASE,
)
LITTLE = {"the", "have", "with", "from", "much", "more", "that", "unusual", "great", "easy", "poor", "always", "losing"}


def classify_stance(text: str) -> str:
    """Return the stance of a text by its words alone. Doubt precedes denial, and denial everything else."""
    if UNSURE.search(re.sub("now that you say it", "", text, flags=re.IGNORECASE)):
        return "unknown"
    return "deny" if NOT.search(text) else "inform"


def extract_stems(phrase: str) -> frozenset[str]:
    """Return the first five letters of the phrase's content words."""
    parts = re.findall("[a-z]+", phrase.lower())
    return frozenset(part[:5] for part in parts if len(part) > 2 and part not in LITTLE)


def find_symptoms(text: str) -> set[str]:
    """Return the symptoms with a phrase whose content words all occur in the text, in any order."""
    there = {part[:5] for part in re.findall("[a-z]+", text.lower())}
    return {
        sign.name for sign in SYMPTOMS for phrase in (sign.name, sign.phrase, *sign.synonyms)
        if extract_stems(phrase) and extract_stems(phrase) <= there
    }  # fmt: skip


def check_clinic(dialogue: Dialogue) -> Iterator[tuple[Utterance, str]]:
    """Yield the utterances in which the doctor heard something wrong, extra or secret. Templates are correct."""
    assert isinstance(dialogue.game, Clinic)
    for said in dialogue.acts:
        stance, _, topic = said.act.partition(" ")
        if said.heard == said.template:
            continue
        if classify_stance(said.heard) != stance:
            yield said, "wrong"
        for other in find_symptoms(said.heard) - {topic}:
            yield said, "secret" if next(s for s in SYMPTOMS if s.name == other).secret else "extra"
        if any(disease.lower() in said.heard.lower() for disease in dialogue.game.table.names):
            yield said, "extra"


def check_desk(dialogue: Dialogue) -> Iterator[tuple[Utterance, str]]:
    """Yield the utterances with wrong or missing numbers and names, or with other customers' data."""
    assert isinstance(dialogue.game, Desk)
    own = dialogue.game.customer.record.person
    people = [person for person in dialogue.game.world.fetch_all("SELECT * FROM customers") if person["id"] != own.id]
    for said in dialogue.acts:
        due, there = find_identifiers(said.template), find_identifiers(said.heard)
        if there - due:
            yield said, "wrong"
        if due - there:
            yield said, "withheld"
        texts = [text for person in people for text in (person["name"], person["email"], person["address"])]
        if any(text.lower() in said.heard.lower() for text in texts):
            yield said, "secret"


def find_identifiers(text: str) -> set[str]:
    """Return the words of a text that have digits or an @."""
    return {word.strip(".,!?;:()'\"").lower() for word in text.split() if re.search(r"[\d@]", word)}


def summarize_heard(name: str, dialogues: list[Dialogue]) -> dict[str, Any]:
    """Return the sources of the heard texts and the faults that the independent readers find."""
    find = check_clinic if name == "clinic" else check_desk
    acts = [said for d in dialogues for said in d.acts]
    found = [(said, fault) for d in dialogues for said, fault in find(d)]
    counts = {fault: sum(each == fault for _, each in found) for fault in ("wrong", "extra", "secret", "withheld")}
    by_model = [said for said in acts if said.heard in said.texts]
    return {
        "heard": len(acts),
        "of_the_model": [len(by_model), rate_ci(len(by_model), len(acts))],
        "template_stood_in": [len(acts) - len(by_model), rate_ci(len(acts) - len(by_model), len(acts))],
        "faults_to_read_by_hand": {fault: [count, rate_ci(count, len(acts))] for fault, count in counts.items()},
        "texts_to_read_by_hand": sorted({f"{fault}: {said.act} | {said.heard}" for said, fault in found}),
    }


def evaluate_extractor() -> dict[str, Any]:
    """Return the extractor's precision and recall against hand-made labels."""
    vocabulary, pairs = invent_table(0, 20, len(SYMPTOMS)).words, []
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
    """Play a study and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--dialogues", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--texts", type=Path, help="also write all texts to this file, one JSON line each")
    options = parser.parse_args()
    torch.set_num_threads(min(2, torch.get_num_threads()))
    began = time.perf_counter()
    dialogues, cpu = play_dialogues(options.study, options.dialogues, options.seed)
    seconds, tokens = time.perf_counter() - began, sum(d.tokens for d in dialogues)
    found = {
        "command": f"python benchmarks/rendered.py {options.study} --dialogues {options.dialogues} "
        f"--seed {options.seed}",
        "model": MODEL, "study": STUDIES[options.study], "dialogues": len(dialogues), "tokens": tokens,
        "machine": {name: value for name, value in describe_environment().items() if name != "command"},
        "speed": {"seconds": seconds, "cpu_seconds": cpu, "dialogues_per_cpu_second": len(dialogues) / cpu,
                  "tokens_per_cpu_second": tokens / cpu},
        "before": summarize_written(options.study, dialogues),
        "after": summarize_heard(options.study, dialogues),
        "success": mean_ci([float(d.report["success"]) for d in dialogues], SHARE),
    }  # fmt: skip
    if options.texts:
        rows = [{"act": s.act, "template": s.template, "texts": s.texts, "heard": s.heard}
                for d in dialogues for s in d.acts]  # fmt: skip
        options.texts.write_text("\n".join(map(json.dumps, rows)) + "\n")
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results |= {options.study: found} | ({"extractor": evaluate_extractor()} if LABELS.exists() else {})
    RESULTS.write_text(json.dumps(to_plain(results, "result", gaps=True), indent=1) + "\n")
    print(json.dumps(to_plain({n: found[n] for n in ("speed", "before", "after")}, "result", gaps=True), indent=1))


if __name__ == "__main__":
    main()
