"""Faithfulness of texts that a small language model writes for a scripted person, before and after checking.

    python benchmarks/rendered.py clinic    # 200 dialogues each; about 15 minutes on two quiet cores
    python benchmarks/rendered.py desk

A script decides what the person says, and SmolLM2-135M phrases it (`person: render`), with mixed personas. The other
seat is scripted. `before` evaluates the model's first and second attempts with the simulator's extractor. `after`
evaluates the texts that the other side heard with independent checks: content words for the clinic, numbers and names
for the desk, and secrets for both. Texts that fail are listed for inspection by hand. `extractor` compares the
simulator's extractor with manual labels of 150 raw texts of this model, written with several prompts
(tests/simulators/rendered_texts.jsonl). Writes results/rendered.json.
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
    """One act of a person: its content, the script's template text, the model's attempts, and the text heard."""

    act: str
    template: str
    texts: tuple[str, ...]
    heard: str


@dataclass(frozen=True)
class Dialogue:
    """Finished match, with the person's utterances, the report, and the number of tokens the person sampled."""

    game: Game
    acts: tuple[Utterance, ...]
    report: dict[str, Any]
    tokens: int


class RecordedPlayer:
    """Wrapper of a player that records the requested content, the template and the player's text of each act."""

    def __init__(self, player: SeatedPlayer) -> None:
        self.player = player
        self.texts: list[tuple[str, str, str]] = []
        self.streams, self.stream_keys, self.version = player.streams, player.stream_keys, player.version

    async def act(self, view: View) -> Act:
        """Return the player's act and record it."""
        act = await self.player.act(view)
        self.texts.append((str(view.private["say"]), str(view.private["template"]), act.action))
        return act


def play_dialogues(name: str, dialogues: int, seed: int) -> tuple[list[Dialogue], float]:
    """Play dialogues of a study. Returns them and the CPU seconds."""
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
    start = time.process_time()
    asyncio.run(play_all(plans, play_one, lambda record: None, in_flight=dialogues))
    return [found[n] for n in range(dialogues)], time.process_time() - start


def make_dialogue(game: Game, record: MatchRecord, recorded: RecordedPlayer, seats: list[str]) -> Dialogue:
    """Return the dialogue of a recorded match, without a last utterance that nobody heard because the match ended."""
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


# -- before: the model's attempts ----------------------------------------------------------------------------


def find_faults(name: str, game: Game, utterance: Utterance, text: str) -> dict[str, bool]:
    """Return, by kind of fault, whether the simulator's extractor finds it in a text compared with the template."""
    actual, expected = read_text(name, game, utterance, text), read_text(name, game, utterance, utterance.template)
    return {
        "wrong": any(
            actual.facts[topic] != stance for topic, stance in expected.facts.items() if topic in actual.facts
        ),
        "extra": bool(actual.facts.keys() - expected.facts.keys()),
        "withheld": bool(expected.facts.keys() - actual.facts.keys()),
        "unclear": not actual.unclear <= expected.unclear,
    }


def read_text(name: str, game: Game, utterance: Utterance, text: str) -> Reading:
    """Return what the simulator's extractor reads from a text."""
    if isinstance(game, Clinic):
        return game.table.words.understand(text, utterance.act.partition(" ")[2])
    assert isinstance(game, Desk)
    return game.customer.read(text, has_proposal=True)


def summarize_written(name: str, dialogues: list[Dialogue]) -> dict[str, Any]:
    """Return the numbers and rates of faults among first and second attempts. A text may have several faults."""
    counts_by_attempt: dict[str, Any] = {}
    for index, attempt in enumerate(("first", "second")):
        found = [
            find_faults(name, dialogue.game, utterance, utterance.texts[index])
            for dialogue in dialogues
            for utterance in dialogue.acts
            if len(utterance.texts) > index
        ]
        counts = {fault: sum(each[fault] for each in found) for fault in ("wrong", "extra", "withheld", "unclear")}
        counts["accepted"] = sum(not any(each.values()) for each in found)
        counts_by_attempt[attempt] = {
            "texts": len(found),
            **{n: [c, rate_ci(c, len(found))] for n, c in counts.items()},
        }
    return counts_by_attempt


# -- after: the texts that were heard ------------------------------------------------------------------------

NEGATION = re.compile(r"\b(?:no|not|never|none|neither|nor|without|nope|nah|\w+n['’]t)\b", re.IGNORECASE)
DOUBT = re.compile(
    r"\b(?:(?:un)?sure|(?:un)?certain|know|tell|say|remember|recall|idea|clue|maybe|perhaps|might|possibly|if|whether)\b",
    re.IGNORECASE,
)
IGNORED_WORDS = {"the", "have", "with", "from", "much", "more", "that", "unusual", "great", "easy", "poor", "always",
                 "losing"}  # fmt: skip


def classify_stance(text: str) -> str:
    """Return a text's stance by its words: "unknown" for words of doubt, else "deny" for a negation, else "inform"."""
    if DOUBT.search(re.sub("now that you say it", "", text, flags=re.IGNORECASE)):
        return "unknown"
    return "deny" if NEGATION.search(text) else "inform"


def extract_stems(phrase: str) -> frozenset[str]:
    """Return the first five letters of each of the phrase's content words."""
    parts = re.findall("[a-z]+", phrase.lower())
    return frozenset(part[:5] for part in parts if len(part) > 2 and part not in IGNORED_WORDS)


def find_symptoms(text: str) -> set[str]:
    """Return the names of symptoms with a phrase whose content words all occur in the text, in any order."""
    stems = {part[:5] for part in re.findall("[a-z]+", text.lower())}
    return {
        sign.name for sign in SYMPTOMS for phrase in (sign.name, sign.phrase, *sign.synonyms)
        if extract_stems(phrase) and extract_stems(phrase) <= stems
    }  # fmt: skip


def check_clinic(dialogue: Dialogue) -> Iterator[tuple[Utterance, str]]:
    """Yield utterances in which the doctor heard something wrong, extra or secret, with the fault. Skips templates."""
    assert isinstance(dialogue.game, Clinic)
    for utterance in dialogue.acts:
        stance, _, topic = utterance.act.partition(" ")
        if utterance.heard == utterance.template:
            continue
        if classify_stance(utterance.heard) != stance:
            yield utterance, "wrong"
        for other in find_symptoms(utterance.heard) - {topic}:
            yield utterance, "secret" if next(s for s in SYMPTOMS if s.name == other).secret else "extra"
        if any(disease.lower() in utterance.heard.lower() for disease in dialogue.game.table.names):
            yield utterance, "extra"


def check_desk(dialogue: Dialogue) -> Iterator[tuple[Utterance, str]]:
    """Yield utterances with wrong or missing numbers and addresses, or with other customers' data, with the fault."""
    assert isinstance(dialogue.game, Desk)
    customer = dialogue.game.customer.record.person
    people = [
        person for person in dialogue.game.world.fetch_all("SELECT * FROM customers") if person["id"] != customer.id
    ]
    for utterance in dialogue.acts:
        expected, heard = find_identifiers(utterance.template), find_identifiers(utterance.heard)
        if heard - expected:
            yield utterance, "wrong"
        if expected - heard:
            yield utterance, "withheld"
        texts = [text for person in people for text in (person["name"], person["email"], person["address"])]
        if any(text.lower() in utterance.heard.lower() for text in texts):
            yield utterance, "secret"


def find_identifiers(text: str) -> set[str]:
    """Return the words of a text that contain a digit or an @."""
    return {word.strip(".,!?;:()'\"").lower() for word in text.split() if re.search(r"[\d@]", word)}


def summarize_heard(name: str, dialogues: list[Dialogue]) -> dict[str, Any]:
    """Return the sources of the heard texts, and the faults that the independent checks find."""
    find = check_clinic if name == "clinic" else check_desk
    acts = [utterance for d in dialogues for utterance in d.acts]
    found = [(utterance, fault) for d in dialogues for utterance, fault in find(d)]
    counts = {fault: sum(each == fault for _, each in found) for fault in ("wrong", "extra", "secret", "withheld")}
    by_model = [utterance for utterance in acts if utterance.heard in utterance.texts]
    return {
        "heard": len(acts),
        "of_the_model": [len(by_model), rate_ci(len(by_model), len(acts))],
        "template_stood_in": [len(acts) - len(by_model), rate_ci(len(acts) - len(by_model), len(acts))],
        "faults_to_read_by_hand": {fault: [count, rate_ci(count, len(acts))] for fault, count in counts.items()},
        "texts_to_read_by_hand": sorted(
            {f"{fault}: {utterance.act} | {utterance.heard}" for utterance, fault in found}
        ),
    }


def evaluate_extractor() -> dict[str, Any]:
    """Return the extractor's precision and recall, compared with manual labels."""
    vocabulary, pairs = invent_table(0, 20, len(SYMPTOMS)).words, []
    for row in map(json.loads, LABELS.read_text().splitlines()):
        read = vocabulary.understand(row["text"], row["topic"])
        is_clear = not read.unclear and read.facts.keys() == {row["topic"]}
        pairs.append((read.facts[row["topic"]] if is_clear else "", row["label"]))
    read_clearly = [stance == label for stance, label in pairs if stance]
    labelled = [stance == label for stance, label in pairs if label != "other"]
    return {
        "texts": len(pairs),
        "labels": {label: sum(each == label for _, each in pairs) for label in sorted({label for _, label in pairs})},
        "precision": [sum(read_clearly), len(read_clearly), rate_ci(sum(read_clearly), len(read_clearly))],
        "recall": [sum(labelled), len(labelled), rate_ci(sum(labelled), len(labelled))],
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
    start = time.perf_counter()
    dialogues, cpu = play_dialogues(options.study, options.dialogues, options.seed)
    seconds, tokens = time.perf_counter() - start, sum(d.tokens for d in dialogues)
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
