"""Does a doctor learn in the clinic? Arms × seeds of the recipes `clinic-nano` and `clinic_both-nano`, judged outside.

    python benchmarks/clinic.py doctor      # what a doctor learns to ask and to find; 20 diseases, 24 symptoms
    python benchmarks/clinic.py both        # patient and doctor trained together, or the doctor alone
    python benchmarks/clinic.py scripted    # the scripted doctors by budget, in seconds

`doctor`, each seed from its own random weights: `clone` imitates `asker`, who asks by the exact posterior, on patients
of the train split; `trained` goes on from there by reward alone, and `clone` is also what as many updates with
advantages 0 would leave. Each is met taking its likeliest act at each turn, and `sampled`, as it was trained. `both`,
all seeds from one imitation in `Begun`: the doctor learns with a patient who learns too (`together`), who tells the
truth (`truthful`), or who stays as it began (`warm patient`: yes, no or unsure at random); then every doctor meets
every patient, sampled. Tests are on patients that no training met, the same ones for everybody. `--folder F` keeps the
runs; a study that was interrupted goes on there. Writes results/clinic-STUDY.json and .png; `--redraw` sums up and
draws what is kept, without running.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from agents.role import BUILT_IN
from analysis.panels import colours, curve, fit, legend, points, sheet, written
from arena.cli.loop import wait
from arena.doctor import environment
from arena.evaluate.evaluation import play
from arena.evaluate.specs import Contenders
from arena.plain import plain
from arena.play.settings import GameSpec
from arena.statistics import COUNT, SHARE, Bounds, Interval, mean_ci, paired_ci, rate_ci
from simulators.clinic import Clinic

RESULTS = Path(__file__).parent / "results"
WARD = {"diseases": 20, "symptoms": 24, "terse": True}
BUDGETS = (0, 1, 2, 3, 4, 5)
SCRIPTED = ("asker", "random_asker", "random")
DOCTOR = tuple(f"game.options.{option}" for option in ("diseases=20", "symptoms=24", "budget=[0,5]"))
IMITATED = (
    "policies.doctor.imitate={scripted: [asker], matches: 24000, minibatches: 2000, epochs: 1, lr: 1.5e-3, decay: true}"
)
LEARNED = (
    "iterations=40", "learn.lr=3e-4", "learn.minibatches=2", "learn.regularisers={kl: {weight: 0.0}}", "play.group=4",
    "game.options.illegal=end", "game.options.information=3.0", "credit.weights={repeat: 5.0}",
    "credit.stages=[{clip: {part: information, between: [-0.6, null]}}]",
    "credit.estimator={mars: {gamma: 0.0, by: [game, role, policy, seed, turn]}}",
)  # fmt: skip
"""A question is worth the bits that it brought, beside others in the same turn with the same patient."""
ARMED = {"clone": 0.0, "trained": 0.0, "clone, sampled": 1.0, "trained, sampled": 1.0}
"""Arms that learn, and the temperature at which each is evaluated."""
EVALUATION = 2
"""The seed of the test patients."""
STILL = ("iterations=1", "learn.lr=0.0", "play.matches=4", "play.in_flight=4")
"""Settings of a run that only imitates."""
PAIR = {"diseases": 6, "symptoms": 12, "terse": True, "budget": 4, "person": "free"}
ARMS: dict[str, list[str]] = {
    "together": [],
    "truthful": ["seats.patient.policy=oracle"],
    "warm patient": ["policies.patient.train=false"],
}
FIGURES = (
    "success", "posterior_best", "questions", "tests", "repeated", "invalid",
    "told_wrong", "told_secret", "told_unread",
)  # fmt: skip
SHOWN = ("trained", "clone", "asker", "random_asker", "random")


class Begun(Clinic):
    """The clinic in the midst of an interview: three patients in five were asked, at random, all that may be asked.

    The others some of it. So `random_asker` shows mostly how to conclude from a chart: imitating what it asks in
    a whole match, which nothing could foretell, drowns that.
    """

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """A patient who has been asked before."""
        super().set_up(rng, options)
        unknown = [symptom for symptom in range(self.symptoms) if not self.chart.knows(symptom)]
        count = int(rng.integers(self.budget + 1)) if rng.random() < 0.4 else self.budget
        asked = rng.permutation(unknown)[:count].tolist()
        self.chart.answers |= {symptom: self.patient.record.answers[symptom] for symptom in asked}
        self.questions = len(asked)


def arena(*words: str) -> str:
    """Return what an arena command prints."""
    command = [sys.executable, "-m", "arena", *words]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    return done.stdout


def learn(recipe: str, seed: int, settings: Iterable[str], out: Path) -> Path:
    """One run of a recipe with these settings; one that is there already goes on."""
    if out.exists():
        arena("resume", str(out))
        return out
    words = [word for setting in settings for word in ("--set", setting)]
    arena("run", "selfplay", "--recipe", recipe, "--seed", str(seed), "--out", str(out), *words)
    return out


def imitated(recipe: str, seed: int, settings: Iterable[str], out: Path, *policies: str) -> list[str]:
    """Settings with which a run begins from weights that have imitated, and learned nothing else."""
    run = learn(recipe, seed, [*settings, *STILL], out / "run")
    found = []
    for policy in policies:
        if not (out / policy).exists():
            arena("export", str(run), "--policy", policy, "--to", str(out / policy))
        found += [f"policies.{policy}.model={out / policy}", f"policies.{policy}.imitate=null"]
    return found


def meet(options: Mapping[str, Any], patients: int, temperature: float = 1.0, **seats: str) -> dict[str, float]:
    """Means over the first so many test patients, for those who sit at these seats; models take the nano roles."""
    with tempfile.TemporaryDirectory() as roles:
        table = {
            seat: wait(Contenders(role=_role(seat, temperature, Path(roles))).load(who))[0]
            for seat, who in seats.items()
        }
        game = GameSpec(name="clinic", options={**options, "split": "test"})
        (matches,), _ = wait(play([table], game, patients, EVALUATION))
    reports = [match.report for match in matches if match]
    return {name: float(np.mean([report[name] for report in reports])) for name in FIGURES if name in reports[0]}


def _role(seat: str, temperature: float, folder: Path) -> str:
    """The file of a seat's nano role with another temperature."""
    role, path = (BUILT_IN / f"nano_{seat}.yaml").read_text("utf-8"), folder / f"nano_{seat}.yaml"
    path.write_text(role.replace("temperature: 1.0", f"temperature: {temperature}"), "utf-8")
    return str(path)


def curves(run: Path) -> dict[str, list[float]]:
    """Return the figures of the run's matches, by iteration."""
    rows = [json.loads(line)["report"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {name: [round(row[name], 4) for row in rows] for name in FIGURES if name in rows[0]}


# -- a doctor ----------------------------------------------------------------------------------------------


def doctor(seeds: int, patients: int, folder: Path) -> dict[str, Any]:
    """Measure what everybody finds at each budget: intervals over seeds for learners, over patients for the others."""

    def at_all(who: str, temperature: float = 0.0) -> dict[str, dict[str, float]]:
        return {f"{b}": meet({**WARD, "budget": b}, patients, temperature, doctor=who) for b in BUDGETS}

    others, runs = {who: at_all(who) for who in SCRIPTED}, []
    for seed in range(seeds):
        began, clone = time.perf_counter(), folder / f"clone-{seed}"
        begin = imitated(
            "clinic-nano", seed, [*DOCTOR, f"policies.doctor.model=nano-{seed}", IMITATED], clone, "doctor"
        )
        run = learn("clinic-nano", seed, [*DOCTOR, *LEARNED, *begin], folder / f"trained-{seed}")
        made = {"clone": f"{clone / 'doctor'}", "trained": f"{run}"}
        at = {arm: at_all(made[arm.split(",")[0]], temperature) for arm, temperature in ARMED.items()}
        runs.append({"seed": seed, "at": at, "curves": curves(run), "seconds": round(time.perf_counter() - began)})
        for arm, told in at.items():
            print(seed, arm, {b: round(one["success"], 3) for b, one in told.items()}, flush=True)
    return {"summary": by_budget(runs, others, patients), "others": others, "runs": runs}


def by_budget(runs: list[dict[str, Any]], others: Mapping[str, Any], patients: int) -> dict[str, Any]:
    """Accuracy, what the exact posterior would find from the same charts, and by how much the trained are better."""

    def over_seeds(arm: str, figure: str) -> list[float]:
        return [run["at"][arm][b][figure] for run in runs]

    def less(arm: str, other: list[float]) -> Interval:
        return paired_ci(other, over_seeds(arm, "success"), SHARE)

    found: dict[str, Any] = {}
    for b in map(str, BUDGETS):
        right = {who: told[b]["success"] for who, told in others.items()}
        found[b] = {
            "accuracy": {arm: mean_ci(over_seeds(arm, "success"), SHARE) for arm in ARMED}
            | {who: rate_ci(round(rate * patients), patients) for who, rate in right.items()},
            "could be known": {arm: mean_ci(over_seeds(arm, "posterior_best"), SHARE) for arm in ARMED}
            | {who: mean_ci([told[b]["posterior_best"]], SHARE) for who, told in others.items()},
            "repeated": {arm: mean_ci(over_seeds(arm, "repeated"), COUNT) for arm in ARMED},
            "trained minus": {who: less("trained", [rate] * len(runs)) for who, rate in right.items()}
            | {"clone": less("trained", over_seeds("clone", "success"))},
            "trained, sampled, minus": {
                "clone, sampled": less("trained, sampled", over_seeds("clone, sampled", "success"))
            },
        }
    return found


def draw_doctor(found: Mapping[str, Any]) -> Figure:
    """Accuracy by budget, and beside it what the exact posterior would find from the same charts."""
    titles = {"accuracy": "right diagnoses", "could be known": "by the exact posterior, from the same questions"}
    heading = f"{len(found['runs'])} seeds; 95 % intervals over them, of scripted doctors over the test patients"
    figure, axes = sheet(list(titles.values()), heading, "questions allowed", height=3.4)
    for axis, part in zip(axes, titles, strict=True):
        for place, (who, colour) in enumerate(colours(SHOWN).items()):
            told = [Interval(*found["summary"][f"{b}"][part][who]) for b in BUDGETS]
            points(axis, BUDGETS, told, who.replace("_", " "), colour, place)
        fit(axis, SHARE)
    axes[0].set_ylabel("share of test patients", fontsize=9)
    legend(figure)
    return figure


# -- patient and doctor ------------------------------------------------------------------------------------


def both(seeds: int, patients: int, folder: Path) -> dict[str, Any]:
    """Every arm's doctor with every kind of patient, with intervals over seeds."""
    begun = f"game.name={Path(__file__).resolve()}:Begun"
    begin = imitated("clinic_both-nano", 0, [begun], folder / "warm", "doctor", "patient")
    runs = []
    for seed in range(seeds):
        began = time.perf_counter()
        made = {arm: folder / f"{arm}-{seed}" for arm in ARMS}
        for arm, changed in ARMS.items():
            learn("clinic_both-nano", seed, [*begin, *changed], made[arm])
        told = {arm: curves(run) for arm, run in made.items()}
        met = {name: meet(PAIR, patients, doctor=d, patient=p) for name, (d, p) in pairs(made, folder / "warm").items()}
        runs.append({"seed": seed, "met": met, "curves": told, "seconds": round(time.perf_counter() - began)})
        print(seed, {name: round(one["success"], 3) for name, one in met.items()}, flush=True)
    return {"summary": by_pair(runs), "runs": runs}


def by_pair(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Every figure of every pair, with intervals over seeds."""
    return {
        name: {figure: mean_ci([run["met"][name][figure] for run in runs], bounds(figure)) for figure in figures}
        for name, figures in runs[0]["met"].items()
    }


def bounds(figure: str) -> Bounds:
    """Shares, or counts in a match."""
    return SHARE if figure in ("success", "posterior_best") else COUNT


def pairs(made: Mapping[str, Path], warm: Path) -> dict[str, tuple[str, str]]:
    """Pairs of doctor and patient, by a name that says so."""
    patients = {"truthful": "oracle", "co-trained": f"{made['together']}:patient", "warm": f"{warm / 'patient'}"}
    doctors = {
        "co-trained": f"{made['together']}:doctor",
        "truthfully trained": f"{made['truthful']}:doctor",
        "warm-patient trained": f"{made['warm patient']}:doctor",
        "warm": f"{warm / 'doctor'}",
        "asker": "asker",
    }
    return {f"{d} doctor, {p} patient": (doctors[d], patients[p]) for d in doctors for p in patients}


TOLD = {"told_wrong": "wrong facts", "told_unread": "answers that cannot be read", "questions": "questions asked"}


def draw_both(found: Mapping[str, Any]) -> Figure:
    """Over training: the share of right diagnoses by arm, and what the patient who learns says in a match."""
    heading = f"clinic_both-nano, {len(found['runs'])} seeds (thin), their mean, 95 % intervals of the last iteration"
    figure, axes = sheet(["right diagnoses in training", *TOLD.values()], heading)
    for axis, name in zip(axes, ("success", *TOLD), strict=True):
        for place, (arm, colour) in enumerate(colours(ARMS).items()):
            seeds = [run["curves"][arm][name] for run in found["runs"]]
            end = mean_ci([each[-1] for each in seeds], bounds(name))
            curve(axis, range(1, len(seeds[0]) + 1), seeds, end, arm, colour, place)
        fit(axis, bounds(name))
    legend(figure)
    return figure


STUDIES = {"doctor": (doctor, draw_doctor), "both": (both, draw_both)}


def write(study: str, result: dict[str, Any]) -> None:
    """Write the result that is kept, and its picture."""
    kept: Any = plain(result, "result", gaps=True)
    (RESULTS / f"clinic-{study}.json").write_text(json.dumps(kept, indent=1) + "\n")
    written(STUDIES[study][1](result), RESULTS / f"clinic-{study}.png")


def summed_up(study: str) -> dict[str, Any]:
    """Return a kept study, summed up again."""
    kept: dict[str, Any] = json.loads((RESULTS / f"clinic-{study}.json").read_text())
    runs = kept["runs"]
    summary = by_pair(runs) if study == "both" else by_budget(runs, kept["others"], kept["patients"])
    return kept | {"summary": summary}


def show_scripted(patients: int) -> None:
    """The scripted doctors by budget, with the 95 % interval and the exact posterior's own estimate."""
    for budget in (0, 2, 5, 10, 15, 20):
        for who in SCRIPTED[:2]:
            told = meet({"diseases": 20, "budget": budget}, patients, doctor=who)
            rate, low, high = rate_ci(round(told["success"] * patients), patients)
            print(f"{budget:>3} {who:<13} {rate:.2f} [{low:.2f}, {high:.2f}] expected {told['posterior_best']:.2f}")


def main() -> None:
    """Run a study and write its results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=[*STUDIES, "scripted"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--patients", type=int, default=300)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--redraw", action="store_true", help="sum up and draw the kept numbers, without running")
    chosen = parser.parse_args()
    if chosen.study == "scripted":
        show_scripted(chosen.patients)
        return
    if chosen.redraw:
        write(chosen.study, summed_up(chosen.study))
        return
    study, _ = STUDIES[chosen.study]
    with tempfile.TemporaryDirectory() as temporary:
        found = study(chosen.seeds, chosen.patients, (chosen.folder or Path(temporary)).absolute())
    result = {
        "command": f"benchmarks/clinic.py {chosen.study} --seeds {chosen.seeds} --patients {chosen.patients}",
        "seeds": chosen.seeds,
        "patients": chosen.patients,
        "seed of the test patients": EVALUATION,
        "settings": {"doctor": [DOCTOR, IMITATED, LEARNED], "both": ARMS}[chosen.study],
        "machine": environment(),
    }
    RESULTS.mkdir(exist_ok=True)
    write(chosen.study, result | found)


if __name__ == "__main__":
    main()
