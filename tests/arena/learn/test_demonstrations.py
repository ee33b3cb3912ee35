"""Learning from shown play beside one's own: the sum of two gradients, by schedule, of one's own role's words alone."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file

from arena.cli.loop import wait
from arena.config.experiment import LearnSpec
from arena.config.layers import compose, to_yaml
from arena.config.sources import text_layer
from arena.errors import ConfigError, GateError
from arena.lab import Lab
from arena.learn.samples import Sample
from arena.learn.settings import DemonstrationsSpec
from arena.learn.trainer import PolicyTrainer
from arena.parts.schedules import Clock
from arena.store.run import RunFolder
from tests.factories.babble import FRAME
from tests.factories.demonstrations import decode_turns, make_experiment, open_lab
from tests.factories.labs import RecordingWatcher, read_log, read_weight_files
from tests.factories.models import are_equal, copy_weights, make_tiny_llama
from tests.factories.samples import compute_plain_scores, make_regularisers, make_samples
from tests.factories.updating import run_update

# -- one update --------------------------------------------------------------------------------------------


def shown(model: torch.nn.Module, seed: int = 9, count: int = 4) -> list[Sample]:
    """Streams that nobody sampled: their behaviour is nothing, as that of scripted policies is."""
    found = make_samples(model, seed, count, advantage=1.0)
    return [replace(s, source="demonstration", behaviour=np.zeros_like(s.behaviour)) for s in found]


def rule(weight: Any, **changes: Any) -> LearnSpec:
    settings: dict[str, Any] = {
        "regularisers": make_regularisers(kl=0.1, entropy=0.05),
        "grad_clip": 0.0,
        "betas": (0.5, 0.9),
    }
    return LearnSpec(demonstrations=DemonstrationsSpec(weight=weight, scripted=["random"]), **settings, **changes)


def gradient(
    given: list[Sample],
    by: LearnSpec,
    folder: Path,
    clock: Clock = Clock(),
) -> dict[str, torch.Tensor]:
    """Of the first step: exp_avg is then (1 - beta1) times it."""
    trainer = PolicyTrainer("p", make_tiny_llama(), by)
    run_update(trainer, given, np.random.default_rng(0), clock)
    trainer.write(folder)
    return {n: v / 0.5 for n, v in load_file(folder / "optimizer.safetensors").items() if n.endswith("exp_avg")}


@pytest.mark.parametrize("budget", [1, 10**6], ids=["one by one", "packed"])
def test_the_gradient_is_that_of_both_parts(tmp_path: Path, budget: int) -> None:
    """RL aggregate + weight · mean of -log p over the shown tokens; neither part's size changes the other's mean."""
    model = make_tiny_llama()
    played = [s.with_reference(s.behaviour + np.float32(0.3)) for s in make_samples(model)]
    lesson = shown(model)
    mixed = gradient([*lesson[:2], *played, *lesson[2:]], rule(0.7, token_budget=budget), tmp_path)
    alone = gradient(played, rule(0.7, token_budget=budget), tmp_path)
    logprobs = torch.cat([compute_plain_scores(model, s)[0] for s in lesson])
    (-0.7 * logprobs.mean()).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        expected = alone[f"{name}.exp_avg"] + parameter.grad
        torch.testing.assert_close(mixed[f"{name}.exp_avg"], expected, atol=1e-6, rtol=1e-4)


def test_only_the_tokens_to_be_learned_are_imitated(tmp_path: Path) -> None:
    model = make_tiny_llama()
    lesson = shown(model)
    half = [replace(s, learned=s.places == 0) for s in lesson]
    found = gradient(half, rule(1.0), tmp_path)
    logprobs = torch.cat([compute_plain_scores(model, s)[0][torch.from_numpy(s.learned)] for s in half])
    (-logprobs.mean()).backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(found[f"{name}.exp_avg"], parameter.grad, atol=1e-6, rtol=1e-4)


def test_the_weight_follows_its_schedule(tmp_path: Path) -> None:
    lesson = shown(make_tiny_llama())
    fading = rule({"linear": {"start": 1.0, "end": 0.0, "over": 4}})
    first, second = (gradient(lesson, fading, tmp_path, Clock(k, 9)) for k in (1, 2))
    for name, value in first.items():
        torch.testing.assert_close(second[name], 0.75 * value, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("minibatches", [1, 3])
def test_with_weight_0_nothing_is_shown_to_the_bit(minibatches: int) -> None:
    model, other = make_tiny_llama(), make_tiny_llama()
    given, by = make_samples(model), rule({"steps": {"values": [1.0, 0.0], "every": 1}}, minibatches=minibatches)
    told = run_update(PolicyTrainer("p", model, by), [*given, *shown(model)], np.random.default_rng(0), Clock(2, 2))
    run_update(
        PolicyTrainer("p", other, by.model_copy(update={"demonstrations": None})), given, np.random.default_rng(0)
    )
    assert are_equal(copy_weights(model), copy_weights(other)) and "shown_loss" not in told


def test_every_step_has_its_part_of_what_is_shown() -> None:
    """Also where there is nothing else to learn from: then the update is behaviour cloning."""
    for given in (make_samples(make_tiny_llama()), []):
        model = make_tiny_llama()
        lesson = shown(model, count=6)
        trainer = PolicyTrainer("p", model, rule(1.0, lr=3e-3, minibatches=3, epochs=4, gate_tolerance=9.0))
        before = np.mean([compute_plain_scores(model, s)[0].mean().item() for s in lesson])
        told = run_update(trainer, [*given, *lesson], np.random.default_rng(0))
        assert trainer.steps == 12
        assert np.mean([compute_plain_scores(model, s)[0].mean().item() for s in lesson]) > before + 0.1
        assert told["shown_loss"] > 0


def test_the_gate_does_not_look_at_what_is_shown() -> None:
    """Nobody sampled it, so it has no behaviour; the gate is as strict as ever with what was played."""
    for minibatches in (1, 2):
        model, by = make_tiny_llama(), rule(1.0, gate_tolerance=0.01, minibatches=minibatches)
        told = run_update(
            PolicyTrainer("p", model, by), [*make_samples(model), *shown(model)], np.random.default_rng(0)
        )
        assert told["logprob_gap"] < 1e-4
        wrong = [replace(s, behaviour=s.behaviour + np.float32(0.25)) for s in make_samples(model)]
        with pytest.raises(GateError, match=r"0\.2[0-9]+ on average"):
            run_update(PolicyTrainer("p", model, by), [*wrong, *shown(model)], np.random.default_rng(0))


# -- what is shown -----------------------------------------------------------------------------------------

SCRIPTED = (
    "learn.demonstrations={scripted: [conceder, random], matches: 6, weight: {linear: {start: 1, end: 0, over: 2}}}"
)


@pytest.fixture(scope="module")
def shower(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a policy and a scripted policy that come to terms now and then."""
    folder = tmp_path_factory.mktemp("shower") / "run"
    lab = open_lab(
        folder, "iterations=1", "play.matches=12", "seats.responder.policy=conceder", "credit.estimator=zero",
        "policies.shared.imitate={scripted: [random], matches: 32, epochs: 10, minibatches: 4, lr: 8e-3}",
    )  # fmt: skip
    wait(lab.run())
    return folder


def test_brains_show_how_to_play_in_the_policys_own_tokens(tmp_path: Path) -> None:
    lab = open_lab(tmp_path / "run", SCRIPTED)
    found = [wait(lab.parts.demonstrations.samples("shared", Clock(k, 2))) for k in (1, 2)]
    for given in found:
        assert len(given) == 6 and {s.source for s in given} == {"demonstration"}
        for sample in given:
            own = [i for i, mine in zip(sample.stream.ids, sample.stream.mask, strict=True) if mine]
            assert sample.learned.all() and len(own) == len(sample.learned)
            assert own[-1] == FRAME.stop_id and all(
                t.startswith(("OFFER", "ACCEPT", "WALK")) for t in decode_turns(sample)
            )
    assert [decode_turns(s) for s in found[0]] != [decode_turns(s) for s in found[1]], "new matches in every iteration"
    again = wait(lab.parts.demonstrations.samples("shared", Clock(1, 2)))
    assert [s.stream for s in again] == [s.stream for s in found[0]], "and the same after a restart"


def test_whom_the_imitated_meet_is_not_imitated(tmp_path: Path) -> None:
    """`hard_liner` asks for 8 of 10 or more, `fair_split` for no more than it has to, to get half."""
    lab = open_lab(tmp_path / "run", "seats.responder.policy=shared", "game.options.max_turns=4")
    demonstrations = lab.parts.demonstrations
    alone = wait(demonstrations.play_scripted("shared", 0, ["fair_split"], 24))
    met = wait(demonstrations.play_scripted("shared", 0, ["fair_split"], 24, ["hard_liner"]))
    both = wait(demonstrations.play_scripted("shared", 0, ["hard_liner"], 24))
    other = open_lab(tmp_path / "separate", "policies.other={model: nano}", "seats.responder.policy=other")
    assert len(wait(other.parts.demonstrations.play_scripted("other", 0, ["fair_split"], 24, ["hard_liner"]))) == 24
    assert len(alone) > 40 and len(met) == 24, "one seat of each match"
    opened, hard = ({decode_turns(s)[0] for s in given if s.stream.turns[-1] % 2 == 0} for given in (met, both))
    assert opened <= {decode_turns(s)[0] for s in alone}, "whoever it meets, it opens as before"
    assert 6 < sum(max(s.stream.turns) % 2 for s in met) < 18, "at either seat"
    assert hard - {decode_turns(s)[0] for s in alone}, "the others would open otherwise"


def test_at_each_table_play_those_who_can(tmp_path: Path) -> None:
    """`halver` knows the questions alone, `consistent_guesser` wordle: each has a table, and nobody fails."""
    tables = [
        {"game": {"name": name}, "seats": {"guesser": {"role": "player", "policy": "shared"}}}
        for name in ("guess_city", "wordle")
    ]
    settings = {"name": "two", "iterations": 1, "tables": tables, "policies": {"shared": {"model": "nano"}}}
    given = compose([text_layer("test", yaml.safe_dump(settings))])
    lab = wait(Lab.open(RunFolder.create(tmp_path / "run", to_yaml(given), {}), given, RecordingWatcher()))
    shown = wait(lab.parts.demonstrations.play_scripted("shared", 0, ["halver", "consistent_guesser"], 4))
    assert {decode_turns(sample)[0].split()[0] for sample in shown} == {"ASK", "GUESS"}


def test_nothing_is_played_for_show_where_it_weighs_nothing(tmp_path: Path) -> None:
    lab = open_lab(tmp_path / "run", SCRIPTED.replace("over: 2", "over: 1"))
    shown = lab.parts.demonstrations
    assert wait(shown.samples("shared", Clock(1, 2))) and not wait(shown.samples("shared", Clock(2, 2)))
    assert wait(open_lab(tmp_path / "none").parts.demonstrations.samples("shared", Clock(1, 2))) == []


@pytest.mark.slow
@pytest.mark.parametrize("seat", ["opener", "responder"])
def test_the_best_matches_of_a_log_are_shown(shower: Path, tmp_path: Path, seat: str) -> None:
    """The opener was a policy, the responder scripted: its acts are put into the role's words."""
    other = {"opener": "responder", "responder": "opener"}[seat]
    lab = open_lab(
        tmp_path / "run", f"seats.{seat}.policy=shared", f"seats.{other}.policy=random",
        f"learn.demonstrations={{run: {shower}, best: 0.5, matches: 4}}",
    )  # fmt: skip
    rows = sorted(RunFolder.open(shower).log.rows(), key=lambda row: (-row["payoffs"][seat], row["id"]))
    assert rows[0]["payoffs"][seat] > rows[-1]["payoffs"][seat]
    best = {tuple(t["raw"].strip() for t in row["turns"] if t["seat"] == seat) for row in rows[:6]}
    given = [s for k in range(1, 6) for s in wait(lab.parts.demonstrations.samples("shared", Clock(k, 5)))]
    assert {tuple(text.strip() for text in decode_turns(s)) for s in given} == best - {()}
    for sample in given:
        assert sample.learned.all() and (sample.behaviour == 0).all() and sample.source == "demonstration"


@pytest.mark.slow
def test_a_log_of_the_same_policy_is_shown_token_for_token(shower: Path, tmp_path: Path) -> None:
    lab = open_lab(tmp_path / "run", f"learn.demonstrations={{run: {shower}, best: 1.0, matches: 12}}")
    rows = list(RunFolder.open(shower).log.rows())
    kept_streams = {tuple(s["ids"]): s for row in rows for s in row["streams"]["opener"]}
    given = wait(lab.parts.demonstrations.samples("shared", Clock(1, 1)))
    assert len(given) == 12
    equal = [s.stream for s in given if tuple(s.stream.ids) in kept_streams]
    assert len(equal) > 6, "but where a policy wrote a word by unusual tokens"
    for stream in equal:
        then = kept_streams[tuple(stream.ids)]
        assert (stream.mask, stream.turns) == (then["mask"], then["turns"])


def test_a_log_that_cannot_be_shown_is_refused_in_one_line(shower: Path, tmp_path: Path) -> None:
    def refused(*assignments: str) -> str:
        with pytest.raises(ConfigError) as caught:
            lab = open_lab(tmp_path / f"run{len(list(tmp_path.iterdir()))}", *assignments)
            wait(lab.parts.demonstrations.samples("shared", Clock(1, 1)))
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert "learn.demonstrations.run" in refused(f"learn.demonstrations={{run: {tmp_path / 'nowhere'}}}")
    told = refused(f"learn.demonstrations={{run: {shower}}}", "game.options.max_turns=6")
    assert (
        told.startswith("learn.demonstrations.run: ")
        and "no finished match of negotiation" in told
        and "'shared'" in told
    )
    broken = tmp_path / "broken"
    shutil.copytree(shower, broken)
    lab = open_lab(tmp_path / "late", f"learn.demonstrations={{run: {broken}, best: 1.0, matches: 12}}")
    for item in lab.parts.demonstrations._best["shared"]:
        item.row["payoffs"] = {"opener": 99.0, "responder": 0.0}
    with pytest.raises(ConfigError, match="has another outcome when it is played again"):
        wait(lab.parts.demonstrations.samples("shared", Clock(1, 1)))


@pytest.mark.parametrize(
    ("assignment", "told"),
    [
        ("learn.demonstrations={matches: 3}", "one of them demonstrates"),
        ("learn.demonstrations={scripted: [random], run: x}", "one of them demonstrates"),
        ("learn.demonstrations={scripted: [random], weight: -1}", "learn.demonstrations.weight: -1 in iteration 1"),
        (
            "learn.demonstrations={scripted: [random], weight: {linear: {start: 1, end: -1, over: 1}}}",
            "learn.demonstrations.weight: -1 in iteration 2",
        ),
        ("learn.demonstrations={scripted: [random], best: 0}", "best"),
        ("learn.demonstrations={scripted: [tit_for_tat]}", "learn.demonstrations.scripted: tit_for_tat plays"),
        ("learn.demonstrations={scripted: [randon]}", "did you mean"),
        ("learn.demonstrations={scripted: [random], weights: 1}", "weight"),
    ],
)
def test_bad_settings_are_one_line(tmp_path: Path, assignment: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_lab(tmp_path / "run", assignment)
    assert told in str(caught.value) and "\n" not in str(caught.value)


def test_another_schedule_takes_the_place_of_the_first() -> None:
    given = make_experiment(SCRIPTED, "learn.demonstrations.weight={cosine: {start: 1.0, end: 0.0, over: 3}}")
    assert (
        given.learn.demonstrations
        and given.learn.demonstrations.weight.name == "cosine"
        and given.learn.demonstrations.matches == 6
    )
    assert compose([text_layer("again", to_yaml(given))]) == given


# -- runs --------------------------------------------------------------------------------------------------


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("source", ["scripted", "run"])
def test_a_run_with_shown_play_resumes_bit_by_bit(shower: Path, tmp_path: Path, source: str) -> None:
    setting = SCRIPTED if source == "scripted" else f"learn.demonstrations={{run: {shower}, weight: 0.5, matches: 4}}"
    watcher = RecordingWatcher()
    wait(open_lab(tmp_path / "whole", setting, watcher=watcher).run())
    assert all("shown_loss" in row["learn"]["shared"] for row in watcher.rows)
    shutil.copytree(tmp_path / "whole", tmp_path / "broken")
    shutil.rmtree(tmp_path / "broken" / "checkpoints" / "0002")
    wait(wait(Lab.open(RunFolder.open(tmp_path / "broken"), make_experiment(setting), RecordingWatcher())).run())
    assert read_log(tmp_path / "broken") == read_log(tmp_path / "whole")
    assert read_weight_files(tmp_path / "broken", 2) == read_weight_files(tmp_path / "whole", 2)
    assert read_weight_files(tmp_path / "whole", 1)[0] != read_weight_files(tmp_path / "whole", 2)[0]


@pytest.mark.slow
def test_shown_play_alone_is_behaviour_cloning(tmp_path: Path) -> None:
    watcher = RecordingWatcher()
    setting = "learn.demonstrations={scripted: [random], matches: 16, weight: 1.0}"
    wait(
        open_lab(
            tmp_path / "run", setting, "credit.estimator=zero", "iterations=6", "learn.lr=6e-3", watcher=watcher
        ).run()
    )
    losses = [row["learn"]["shared"]["shown_loss"] for row in watcher.rows]
    assert losses[-1] < 0.7 * losses[0]
    assert watcher.rows[-1]["valid_rate"] > watcher.rows[0]["valid_rate"]
