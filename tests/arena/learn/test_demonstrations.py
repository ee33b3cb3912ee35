"""Learning from shown play beside one's own: the sum of two gradients, by schedule, of one's own role's words alone."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

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
from tests.factories.labs import RecordingWatcher, copy_run, read_weight_files, resume_lab
from tests.factories.models import are_equal, copy_weights, make_tiny_llama
from tests.factories.samples import compute_plain_scores, make_regularisers, make_samples
from tests.factories.traces import assert_same_runs
from tests.factories.updating import run_update

# -- one update --------------------------------------------------------------------------------------------


def make_demonstrations(model: torch.nn.Module, seed: int = 9, count: int = 4) -> list[Sample]:
    """Return demonstration samples without behaviour log-probabilities, like those of scripted policies."""
    drawn = make_samples(model, seed, count, advantage=1.0)
    return [replace(s, source="demonstration", behaviour=np.zeros_like(s.behaviour)) for s in drawn]


def make_rule(weight: Any, **changes: Any) -> LearnSpec:
    settings: dict[str, Any] = {
        "regularisers": make_regularisers(kl=0.1, entropy=0.05),
        "grad_clip": 0.0,
        "betas": (0.5, 0.9),
    }
    return LearnSpec(demonstrations=DemonstrationsSpec(weight=weight, scripted=["random"]), **settings, **changes)


def compute_gradient(
    batch: list[Sample],
    rule: LearnSpec,
    clock: Clock = Clock(),
) -> dict[str, torch.Tensor]:
    """Return the first step's gradient, from exp_avg = (1 - beta1) times it."""
    trainer = PolicyTrainer("p", make_tiny_llama(), rule)
    run_update(trainer, batch, np.random.default_rng(0), clock)
    return {n: v / 0.5 for n, v in wait(trainer.save()).items() if n.endswith("exp_avg")}


@pytest.mark.parametrize("budget", [1, 10**6], ids=["unpacked", "packed"])
def test_gradient_is_the_sum_of_both_parts(budget: int) -> None:
    """RL aggregate + weight · mean of -log p over demonstrated tokens; neither part's size affects the other's mean."""
    model = make_tiny_llama()
    played = [s.with_reference(s.behaviour + np.float32(0.3)) for s in make_samples(model)]
    demonstrations = make_demonstrations(model)
    mixed = compute_gradient([*demonstrations[:2], *played, *demonstrations[2:]], make_rule(0.7, token_budget=budget))
    alone = compute_gradient(played, make_rule(0.7, token_budget=budget))
    logprobs = torch.cat([compute_plain_scores(model, s)[0] for s in demonstrations])
    (-0.7 * logprobs.mean()).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        expected = alone[f"{name}.exp_avg"] + parameter.grad
        torch.testing.assert_close(mixed[f"{name}.exp_avg"], expected, atol=1e-6, rtol=1e-4)


def test_only_learned_tokens_are_imitated() -> None:
    model = make_tiny_llama()
    demonstrations = make_demonstrations(model)
    half = [replace(s, learned=s.places == 0) for s in demonstrations]
    gradients = compute_gradient(half, make_rule(1.0))
    logprobs = torch.cat([compute_plain_scores(model, s)[0][torch.from_numpy(s.learned)] for s in half])
    (-logprobs.mean()).backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(gradients[f"{name}.exp_avg"], parameter.grad, atol=1e-6, rtol=1e-4)


def test_weight_follows_its_schedule() -> None:
    demonstrations = make_demonstrations(make_tiny_llama())
    fading = make_rule({"linear": {"start": 1.0, "end": 0.0, "over": 4}})
    first, second = (compute_gradient(demonstrations, fading, Clock(k, 9)) for k in (1, 2))
    for name, value in first.items():
        torch.testing.assert_close(second[name], 0.75 * value, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("minibatches", [1, 3])
def test_weight_zero_is_bit_equal_to_no_demonstrations(minibatches: int) -> None:
    model, reference = make_tiny_llama(), make_tiny_llama()
    batch, rule = make_samples(model), make_rule({"steps": {"values": [1.0, 0.0], "every": 1}}, minibatches=minibatches)
    figures = run_update(
        PolicyTrainer("p", model, rule), [*batch, *make_demonstrations(model)], np.random.default_rng(0), Clock(2, 2)
    )
    run_update(
        PolicyTrainer("p", reference, rule.model_copy(update={"demonstrations": None})), batch, np.random.default_rng(0)
    )
    assert are_equal(copy_weights(model), copy_weights(reference)) and "shown_loss" not in figures


def test_every_step_has_a_share_of_the_demonstrations() -> None:
    """Also without played samples: then the update is behaviour cloning."""
    for batch in (make_samples(make_tiny_llama()), []):
        model = make_tiny_llama()
        demonstrations = make_demonstrations(model, count=6)
        trainer = PolicyTrainer("p", model, make_rule(1.0, lr=3e-3, minibatches=3, epochs=4, gate_tolerance=9.0))
        before = np.mean([compute_plain_scores(model, s)[0].mean().item() for s in demonstrations])
        figures = run_update(trainer, [*batch, *demonstrations], np.random.default_rng(0))
        assert trainer.steps == 12
        assert np.mean([compute_plain_scores(model, s)[0].mean().item() for s in demonstrations]) > before + 0.1
        assert figures["shown_loss"] > 0


def test_gate_ignores_demonstrations() -> None:
    """Demonstrations have no behaviour log-probabilities; the gate still checks played samples."""
    for minibatches in (1, 2):
        model, rule = make_tiny_llama(), make_rule(1.0, gate_tolerance=0.01, minibatches=minibatches)
        figures = run_update(
            PolicyTrainer("p", model, rule),
            [*make_samples(model), *make_demonstrations(model)],
            np.random.default_rng(0),
        )
        assert figures["logprob_gap"] < 1e-4
        wrong = [replace(s, behaviour=s.behaviour + np.float32(0.25)) for s in make_samples(model)]
        with pytest.raises(GateError, match=r"0\.2[0-9]+ on average"):
            run_update(PolicyTrainer("p", model, rule), [*wrong, *make_demonstrations(model)], np.random.default_rng(0))


# -- demonstrations ----------------------------------------------------------------------------------------

SCRIPTED = (
    "learn.demonstrations={scripted: [conceder, random], matches: 6, weight: {linear: {start: 1, end: 0, over: 2}}}"
)


@pytest.fixture(scope="module")
def recorded_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run of a policy and a scripted policy that sometimes reach a deal."""
    folder = tmp_path_factory.mktemp("recorded") / "run"
    lab = open_lab(
        folder, "iterations=1", "play.matches=12", "seats.responder.policy=conceder", "credit.estimator=zero",
        "policies.shared.imitate={scripted: [random], matches: 32, epochs: 10, minibatches: 4, lr: 8e-3}",
    )  # fmt: skip
    wait(lab.run())
    return folder


def test_scripted_demonstrations_use_the_policys_tokens(tmp_path: Path) -> None:
    lab = open_lab(tmp_path / "run", SCRIPTED)
    demonstrations = [wait(lab.parts.demonstrations.samples("shared", Clock(k, 2))) for k in (1, 2)]
    for batch in demonstrations:
        assert len(batch) == 6 and {s.source for s in batch} == {"demonstration"}
        for sample in batch:
            ids = [i for i, is_sampled in zip(sample.stream.ids, sample.stream.mask, strict=True) if is_sampled]
            assert sample.learned.all() and len(ids) == len(sample.learned)
            assert ids[-1] == FRAME.stop_id and all(
                t.startswith(("OFFER", "ACCEPT", "WALK")) for t in decode_turns(sample)
            )
    assert [decode_turns(s) for s in demonstrations[0]] != [decode_turns(s) for s in demonstrations[1]], (
        "new matches in every iteration"
    )
    repeated = wait(lab.parts.demonstrations.samples("shared", Clock(1, 2)))
    assert [s.stream for s in repeated] == [s.stream for s in demonstrations[0]], "and the same after a restart"


def test_opponents_of_demonstrators_are_not_imitated(tmp_path: Path) -> None:
    """`hard_liner` asks for 8 of 10 or more, `fair_split` for no more than it has to, to get half."""
    lab = open_lab(tmp_path / "run", "seats.responder.policy=shared", "game.options.max_turns=4")
    demonstrations = lab.parts.demonstrations
    alone = wait(demonstrations.play_scripted("shared", 0, ["fair_split"], 24))
    against_hard_liner = wait(demonstrations.play_scripted("shared", 0, ["fair_split"], 24, ["hard_liner"]))
    hard_liners = wait(demonstrations.play_scripted("shared", 0, ["hard_liner"], 24))
    separate_lab = open_lab(tmp_path / "separate", "policies.other={model: nano}", "seats.responder.policy=other")
    assert (
        len(wait(separate_lab.parts.demonstrations.play_scripted("other", 0, ["fair_split"], 24, ["hard_liner"]))) == 24
    )
    assert len(alone) > 40 and len(against_hard_liner) == 24, "one seat of each match"
    openings, hard_openings = (
        {decode_turns(s)[0] for s in group if s.stream.turns[-1] % 2 == 0}
        for group in (against_hard_liner, hard_liners)
    )
    assert openings <= {decode_turns(s)[0] for s in alone}, "it opens the same against any opponent"
    assert 6 < sum(max(s.stream.turns) % 2 for s in against_hard_liner) < 18, "at either seat"
    assert hard_openings - {decode_turns(s)[0] for s in alone}, "hard liners open differently"


def test_each_table_uses_the_scripts_that_can_play_it(tmp_path: Path) -> None:
    """`halver` plays only guess_city and `consistent_guesser` only wordle: each gets its table."""
    tables = [
        {"game": {"name": name}, "seats": {"guesser": {"role": "player", "policy": "shared"}}}
        for name in ("guess_city", "wordle")
    ]
    settings = {"name": "two", "iterations": 1, "tables": tables, "policies": {"shared": {"model": "nano"}}}
    config = compose([text_layer("test", yaml.safe_dump(settings))])
    lab = wait(Lab.open(RunFolder.create(tmp_path / "run", to_yaml(config), {}), config, RecordingWatcher()))
    demonstrations = wait(lab.parts.demonstrations.play_scripted("shared", 0, ["halver", "consistent_guesser"], 4))
    assert {decode_turns(sample)[0].split()[0] for sample in demonstrations} == {"ASK", "GUESS"}


def test_weight_zero_plays_no_demonstrations(tmp_path: Path) -> None:
    lab = open_lab(tmp_path / "run", SCRIPTED.replace("over: 2", "over: 1"))
    demonstrations = lab.parts.demonstrations
    assert wait(demonstrations.samples("shared", Clock(1, 2))) and not wait(
        demonstrations.samples("shared", Clock(2, 2))
    )
    assert wait(open_lab(tmp_path / "none").parts.demonstrations.samples("shared", Clock(1, 2))) == []


@pytest.mark.slow
@pytest.mark.parametrize("seat", ["opener", "responder"])
def test_best_matches_of_a_log_are_demonstrated(recorded_run: Path, tmp_path: Path, seat: str) -> None:
    """The opener was a policy, the responder scripted: its acts are put into the role's words."""
    other_seat = {"opener": "responder", "responder": "opener"}[seat]
    lab = open_lab(
        tmp_path / "run", f"seats.{seat}.policy=shared", f"seats.{other_seat}.policy=random",
        f"learn.demonstrations={{run: {recorded_run}, best: 0.5, matches: 4}}",
    )  # fmt: skip
    rows = sorted(RunFolder.open(recorded_run).reader.matches(), key=lambda row: (-row["payoffs"][seat], row["id"]))
    assert rows[0]["payoffs"][seat] > rows[-1]["payoffs"][seat]
    best = {tuple(t["raw"].strip() for t in row["turns"] if t["seat"] == seat) for row in rows[:6]}
    demonstrations = [s for k in range(1, 6) for s in wait(lab.parts.demonstrations.samples("shared", Clock(k, 5)))]
    assert {tuple(text.strip() for text in decode_turns(s)) for s in demonstrations} == best - {()}
    for sample in demonstrations:
        assert sample.learned.all() and (sample.behaviour == 0).all() and sample.source == "demonstration"


@pytest.mark.slow
def test_log_of_the_same_policy_is_demonstrated_token_by_token(recorded_run: Path, tmp_path: Path) -> None:
    lab = open_lab(tmp_path / "run", f"learn.demonstrations={{run: {recorded_run}, best: 1.0, matches: 12}}")
    rows = list(RunFolder.open(recorded_run).reader.matches())
    kept_streams = {tuple(s["ids"]): s for row in rows for s in row["streams"]["opener"]}
    demonstrations = wait(lab.parts.demonstrations.samples("shared", Clock(1, 1)))
    assert len(demonstrations) == 12
    equal = [s.stream for s in demonstrations if tuple(s.stream.ids) in kept_streams]
    assert len(equal) > 6, "except where a policy wrote a word with unusual tokens"
    for stream in equal:
        logged = kept_streams[tuple(stream.ids)]
        assert (stream.mask, stream.turns) == (logged["mask"], logged["turns"])


def test_unusable_log_gives_one_line(recorded_run: Path, tmp_path: Path) -> None:
    def read_refusal(*assignments: str) -> str:
        with pytest.raises(ConfigError) as error:
            lab = open_lab(tmp_path / f"run{len(list(tmp_path.iterdir()))}", *assignments)
            wait(lab.parts.demonstrations.samples("shared", Clock(1, 1)))
        assert "\n" not in str(error.value)
        return str(error.value)

    assert "learn.demonstrations.run" in read_refusal(f"learn.demonstrations={{run: {tmp_path / 'nowhere'}}}")
    message = read_refusal(f"learn.demonstrations={{run: {recorded_run}}}", "game.options.max_turns=6")
    assert (
        message.startswith("learn.demonstrations.run: ")
        and "no finished match of negotiation" in message
        and "'shared'" in message
    )
    broken = tmp_path / "broken"
    shutil.copytree(recorded_run, broken)
    lab = open_lab(tmp_path / "late", f"learn.demonstrations={{run: {broken}, best: 1.0, matches: 12}}")
    for item in lab.parts.demonstrations._candidates["shared"]:
        item.row["payoffs"] = {"opener": 99.0, "responder": 0.0}
    with pytest.raises(ConfigError, match="has another outcome when it is played again"):
        wait(lab.parts.demonstrations.samples("shared", Clock(1, 1)))


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("learn.demonstrations={matches: 3}", "give exactly one source"),
        ("learn.demonstrations={scripted: [random], run: x}", "give exactly one source"),
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
def test_bad_settings_give_one_line(tmp_path: Path, assignment: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        open_lab(tmp_path / "run", assignment)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_later_schedule_replaces_the_first() -> None:
    config = make_experiment(SCRIPTED, "learn.demonstrations.weight={cosine: {start: 1.0, end: 0.0, over: 3}}")
    assert (
        config.learn.demonstrations
        and config.learn.demonstrations.weight.name == "cosine"
        and config.learn.demonstrations.matches == 6
    )
    assert compose([text_layer("again", to_yaml(config))]) == config


# -- runs --------------------------------------------------------------------------------------------------


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("source", ["scripted", "run"])
def test_resume_with_demonstrations_is_bit_equal(recorded_run: Path, tmp_path: Path, source: str) -> None:
    setting = (
        SCRIPTED if source == "scripted" else f"learn.demonstrations={{run: {recorded_run}, weight: 0.5, matches: 4}}"
    )
    watcher = RecordingWatcher()
    wait(open_lab(tmp_path / "whole", setting, watcher=watcher).run())
    assert all("shown_loss" in row["learn"]["shared"] for row in watcher.rows)
    folder = copy_run(tmp_path / "whole", tmp_path / "broken", done=1)
    resume_lab(folder, make_experiment(setting))
    assert_same_runs(folder, tmp_path / "whole")
    assert read_weight_files(tmp_path / "whole", 1)[0] != read_weight_files(tmp_path / "whole", 2)[0]


@pytest.mark.slow
def test_demonstrations_alone_are_behaviour_cloning(tmp_path: Path) -> None:
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
