"""The prover with Coq: the guard on sentences, and coqtop's answers where it is installed."""

import pickle
import re
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from games.slow import EXECUTOR
from simulators import conformance
from simulators.base import is_held_out
from simulators.confine.cells import start_program
from simulators.prover import Prover, coqtop
from simulators.prover.coq import GUESSES, CoqProof, write_statement
from simulators.prover.coq_guard import FORBIDDEN, HEADS, MAX_CHARACTERS, read_sentence
from simulators.prover.coq_theorems import LEMMAS

needs_coq = pytest.mark.skipif(bool(coqtop.find_coq_obstacle()), reason="coqtop is not installed")
NAME = "Arith.PeanoNat.Nat.add_comm"


# -- the guard (needs no Coq) ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("intros n m.", "intros n m."), ("  INTROS  n\n m ", "intros n m."), ("lia", "lia."),
        ("apply Nat.add_assoc.", "apply Nat.add_assoc."), ("rewrite <- IHn .", "rewrite <- IHn."),
        ("assert (H : forall x, x + 0 = x).", "assert (H : forall x, x + 0 = x)."),
        ("destruct H as [x | y].", "destruct H as [x | y]."), ("exact (fun x => x).", "exact (fun x => x)."),
    ],
)  # fmt: skip
def test_parses_tactics(text: str, sentence: str) -> None:
    assert read_sentence(text, NAME) == sentence


@pytest.mark.parametrize(
    "text",
    [
        "", ".", "Admitted.", "admit.", "Qed.", "Abort.", "Axiom a : False.", "Require Import Classical.", "Set Foo.",
        "Load x.", "Drop.", 'Redirect "x" Print nat.', "Extraction nat.", "Print nat.", "Check 0.", "Search nat.",
        "Goal True.", "Unset Guard Checking.", "Fail lia.", "Time lia.", "BackTo 3.", "Undo.", "Restart.", "Show.",
        "intros. admit.", "intros.  Qed.", "intros; lia.", "auto || admit.", "exact (ltac:(admit)).", "1: lia.",
        "all: lia.", "{ lia. }", "- lia.", "now lia.", "idtac.", "fail.", "lia (* x *).", "lia (*", "(* *) lia.",
        "assert (0 = 0) by admit.", "apply add_comm.", "apply Nat.add_comm.", "rewrite <- Nat.add_comm, x.",
        "exact (@PeanoNat.Nat.add_comm).", "vm_compute.", "native_compute.", "change 0 with 0.", "exists 123456789.",
        "exact $(lia)$.", 'pose "x".', "exact (0 <<: nat).", "exact (0 <: nat).", "intros é.",
        "intros\x00.", "x" * (MAX_CHARACTERS + 1),
        "exact (fix f (n : nat) : False := f n).", "solve [auto].", "repeat intro.", "do 9 split.", "time lia.",
    ],
)  # fmt: skip
def test_refuses_anything_else(text: str) -> None:
    with pytest.raises(ValueError):
        read_sentence(text, NAME)


ANYTHING = st.text(max_size=60) | st.lists(st.sampled_from([*HEADS, *FORBIDDEN, ".", ". ", "(", "*", "x"])).map(
    " ".join
)


@given(ANYTHING)
def test_guard_passes_only_single_listed_tactics(text: str) -> None:
    try:
        sentence = read_sentence(text, NAME)
    except ValueError:
        return
    assert sentence.isascii() and sentence.isprintable() and sentence.count("\n") == 0
    assert sentence.split()[0].removesuffix(".") in HEADS or re.match(r"[a-z_]+", sentence)[0] in HEADS  # type: ignore[index]
    assert not re.search(r"\.\s|[;\"{}$!#%^?]|\(\*|<:|\|\|", sentence) and sentence.endswith(".")
    assert not FORBIDDEN & set(re.findall(r"[A-Za-z_]\w*", sentence)) and read_sentence(sentence, NAME) == sentence


def test_hidden_proofs_and_guesses_pass_the_guard() -> None:
    for lemma, proof in LEMMAS:
        assert [read_sentence(sentence, lemma) for sentence in proof] == list(proof), lemma
    assert [read_sentence(sentence, NAME) for sentence in GUESSES] == list(GUESSES)


def test_no_module_is_in_both_splits() -> None:
    modules = {lemma.rpartition(".")[0] for lemma, _ in LEMMAS}
    held_out = {module for module in modules if is_held_out(f"prover:{module}")}
    assert held_out and held_out < modules


def test_missing_coq_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coqtop, "COMMAND", "no-such-coqtop")
    with pytest.raises(
        ValueError, match=r"kind coq needs no-such-coqtop, which is not installed: apt install coq"
    ) as error:
        Prover(kind="coq")
    assert "\n" not in str(error.value)


# -- Coq itself --------------------------------------------------------------------------------------------


def start_game(lemma: str = NAME, **options: Any) -> Prover:
    """Start a match about this lemma."""
    game = Prover(**{"kind": "coq", "depth": [1, 6], "max_turns": 12, **options})
    game.reset(seed=0)
    game.proof = CoqProof(lemma, ("lia.",))
    return game


@needs_coq
@pytest.mark.slow
def test_passes_the_conformance_kit() -> None:
    findings = conformance.check(lambda: Prover(kind="coq", depth=[1, 3], max_turns=4), seeds=2, acts=20)
    assert [finding for finding in findings if finding.ok is False] == []


@needs_coq
def test_proof_by_hand_with_a_clone() -> None:
    game = start_game()
    for act in ("intros n m.", "induction n."):
        game.step(act)
    twin = game.clone()
    game.step("lia.")
    assert game.public()["open"] == 1 and twin.public()["open"] == 2
    game.step("lia.")
    assert game.report()["success"] and game.payoffs() == {"prover": 1.0}
    twin.step("simpl.")  # the process goes back to the clone's state
    assert "m = m + 0" in twin.public()["goal"] and not twin.ended


@needs_coq
def test_coq_errors_are_observations() -> None:
    game = start_game()
    before = game.public()["goal"]
    game.step("apply foo.")
    assert game.infos["prover"]["valid"] and game.public()["goal"] == before
    assert "The reference foo was not found" in game.observe("prover")["messages"][-1]["text"]


@needs_coq
def test_equal_goals_are_equal_situations() -> None:
    first, second = start_game(), start_game()
    for act in ("intros n m.", "symmetry.", "symmetry."):
        first.step(act)
    second.step("intros n m.")
    assert first.situation("prover") == second.situation("prover")


@needs_coq
def test_slow_sentence_is_stopped() -> None:
    game = start_game(max_turns=20)
    started_at = time.monotonic()
    game.step("assert (H : 999 * 999 * 999 = 0).")
    game.step("compute.")
    assert time.monotonic() - started_at < 60 and not game.ended


@needs_coq
def test_killed_process_costs_at_most_one_tactic() -> None:
    game = start_game()
    game.step("intros n m.")
    for process in coqtop._IDLE:
        process._process.kill()
        process._process.wait()
    for _ in range(2 + coqtop.MAX_PROCESSES):
        if not game.ended:
            game.step("lia.")
    assert game.report()["success"]


@needs_coq
def test_matches_in_threads_are_independent() -> None:
    proved = dict[int, bool]()

    def play_match(seed: int) -> None:
        proved[seed] = bool(conformance.play(Prover(kind="coq", depth=[1, 4]), seed, "oracle")["success"])

    threads = [threading.Thread(target=play_match, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert proved == dict.fromkeys(range(4), True) and len(coqtop._IDLE) <= coqtop.MAX_PROCESSES
    assert all(process._process.poll() is None for process in coqtop._IDLE)  # the processes outlive their threads


def find_process_folder(process: coqtop.Coqtop) -> Path:
    """Return the /proc folder of coqtop, the innermost process of its cell."""
    pid = process._process.pid
    for _ in range(2):
        (pid,) = (int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return Path(f"/proc/{pid}")


@needs_coq
def test_process_is_confined_with_limits() -> None:
    start_game()
    for process in coqtop._IDLE:
        folder = find_process_folder(process)
        status, limits = (folder / "status").read_text(), (folder / "limits").read_text()
        assert "Name:\tcoqtop" in status and "Seccomp:\t2" in status and "NoNewPrivs:\t1" in status
        for name in ("net", "mnt", "pid", "user"):
            assert (folder / "ns" / name).readlink() != Path("/proc/self/ns", name).readlink()
        assert re.search(rf"Max address space +{coqtop.MEMORY} ", limits) and re.search(r"Max file size +0 ", limits)


@needs_coq
@pytest.mark.parametrize(
    "sentence",
    ['Redirect "{}/new" Print nat.', 'Redirect "/scratch/new" Print nat.', 'Load "{}/here".', 'Add LoadPath "{}" as X.',
     'Cd "{}".', 'Declare ML Module "coq-core.plugins.extraction".\nExtraction "{}/new.ml" nat.'],
)  # fmt: skip
def test_sentences_past_the_guard_reach_no_files(sentence: str, tmp_path: Path) -> None:
    """The guard refuses all of these; the cell must confine them without it."""
    (tmp_path / "here.v").write_text("Definition secret := 7.")
    process = coqtop.Coqtop()
    try:
        for line in sentence.format(tmp_path).splitlines():
            output = process._send(line)[1]
        assert re.search("Error|Warning|Cannot", output) and "secret" not in process._send("Print secret.")[1][:30]
        assert [path.name for path in tmp_path.iterdir()] == ["here.v"]
    finally:
        process.stop()


@needs_coq
@pytest.mark.parametrize("fault", [coqtop.CoqFault("no answer"), OSError("broken"), KeyboardInterrupt()])
def test_failed_start_leaves_no_process(fault: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    processes = list[subprocess.Popen[bytes]]()

    def record_process(*arguments: Any) -> subprocess.Popen[bytes]:
        processes.append(start_program(*arguments))
        return processes[0]

    def fail(self: Any, sentence: str) -> None:
        raise fault

    monkeypatch.setattr(coqtop, "start_program", record_process)
    monkeypatch.setattr(coqtop.Coqtop, "_send", fail)
    with pytest.raises(type(fault)):
        coqtop.Coqtop()
    assert processes[0].poll() is not None


@needs_coq
def test_slow_calls_can_run_in_another_process() -> None:
    """Calls and results survive pickling."""
    calls = list[str]()

    def run_pickled(work: Any, /, *arguments: Any, **keywords: Any) -> Any:
        calls.append(work.__name__)
        work, arguments = pickle.loads(pickle.dumps((work, arguments)))
        return pickle.loads(pickle.dumps(work(*arguments, **keywords)))

    token = EXECUTOR.set(run_pickled)
    try:
        assert conformance.play(Prover(kind="coq", depth=[1, 4]), 1, "oracle")["success"]
    finally:
        EXECUTOR.reset(token)
    assert calls and set(calls) == {"attempt"}


@needs_coq
@pytest.mark.slow
def test_every_hidden_proof_proves_its_lemma() -> None:
    for lemma, proof in LEMMAS:
        sentences = [write_statement(lemma)]
        for sentence in proof:
            result = coqtop.attempt(sentences, sentence)
            assert not result.error, (lemma, sentence, result.error)
            sentences.append(sentence)
        assert result.goals == "", lemma


@needs_coq
def test_neighbours_in_the_list_of_tactics_are_no_leak() -> None:
    """The hidden proof of seed 58 is "left. lia.", and an error lists "…, left, lia, …"."""
    game = Prover(kind="coq")
    game.reset(seed=58)
    assert game.proof.hidden_proof == ("left.", "lia.") and game.hidden() == {}
    game.reset(seed=58, options={"proof": ["lia.", "left."]})
    assert game.hidden() == {"the proof": ("lia. ; left.",)}
