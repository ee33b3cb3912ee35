"""docs/claims.md says what the kept results of studies say, judged anew by the rule that each states.

python -m tests.test_claims             # writes the page from benchmarks/results/study-*.json
python -m tests.test_claims commands    # what runs all of them again, a line each
"""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import pytest

from arena.config.layers import compose
from arena.config.sources import recipe_layer
from arena.evaluate.study.plot import drawn
from arena.evaluate.study.results import Results, read
from arena.evaluate.study.summary import ArmSummary
from tests.legible import complaints

ROOT = Path(__file__).parents[1]
PAGE, KEPT = ROOT / "docs" / "claims.md", ROOT / "benchmarks" / "results"
HEAD = """\
# Published mechanisms, in real games

A row for each recipe whose study was run, made from `benchmarks/results/study-*.json` by
`python -m tests.test_claims`, never typed. *In tables* is the verdict on the same claim where tables of logits stand in
for models ([credit](results/credit.md#published-claims-in-small-worlds)).

The rule stands in the recipe, written before the runs: in each comparison the interval of the difference, paired by
seed, has to lie above what is asked for; *contradicted* where it lies below, *not shown* otherwise. First and last are
means over seeds with 95 % intervals. Minutes are the runs, added up; a core does one at a time. How a study is run:
[experiments](experiments.md#a-study-arms-seeds-a-verdict).

{sum}

| claim | published | in tables | ours | verdict | minutes | command |
|---|---|---|---|---|---|---|
"""
FOOT = """
`make studies` runs them all again, {hours:.1f} hours of runs, and goes on where it was stopped.
"""
TABLES = {
    "dart-nano": ["truncated"], "gra-nano": ["gated"], "igpo-nano": ["igpo"], "maze-nano": ["gigpo"],
    "mars-nano": ["agent_normalisation", "turn_level"], "score-nano": ["self_correction"],
    "spiral-nano": ["role_baseline"],
}  # fmt: skip
"""By recipe, the studies of its claim in tables: claims-*.json."""
FILES = sorted(KEPT.glob("study-*.json"))


def page() -> str:
    """The page, from what is kept."""
    rows = "".join(f"| {' | '.join(cell(text) for text in row(file))} |\n" for file in FILES)
    total = summed_up([read(file) for file in FILES])
    return HEAD.format(sum=total) + rows + FOOT.format(hours=sum(map(minutes, FILES)) / 60)


def summed_up(found: Sequence[Results]) -> str:
    """How many claims hold, and in how many studies anything was learned."""
    words = Counter(of.verdict.verdict for of in found)
    holds, contradicted, open_ = (words[word] for word in ("holds", "contradicted", "not shown"))
    learned = sum(arm.behind is not None and arm.behind.low > 0 for of in found for arm in of.arms if arm.arm == "zero")
    return (
        f"**Of {len(found)} claims {holds} hold, {contradicted} are contradicted, {open_} not shown.** "
        f"In {learned} studies the recipe's own arm certainly learns: more than with advantages of zero."
    )


def minutes(file: Path) -> float:
    """What all runs of a study took."""
    return sum(run["seconds"] for run in json.loads(file.read_text("utf-8"))["runs"]) / 60.0


def command(of: Results) -> str:
    """What runs the study again."""
    some = "" if [*of.curves] == of.spec.names else f" --arms {','.join(of.curves)}"
    return f"arena study {of.name} --seeds {of.seeds}{some}"


def row(file: Path) -> tuple[str, ...]:
    """What one study claims, what was published, what was seen, and what that means."""
    of = read(file)
    figure = f"[{of.spec.figure}](../benchmarks/results/study-{of.name}.png)"
    ours = f"{figure}: {seen(of.arms)}; {of.seeds} seeds"
    ours += "".join(f"; {name}: {seen(arms)}" for name, arms in of.beside.items())
    said = of.verdict
    claim = f"{of.spec.claim} ({of.spec.replicates})"
    return (
        claim,
        of.spec.published,
        ", ".join(map(in_tables, TABLES.get(of.name, ()))),
        ours,
        f"**{said.verdict}**: {said.because}",
        f"{minutes(file):.0f}",
        f"`{command(of)}`",
    )


def in_tables(study: str) -> str:
    """The verdict of a study in tables, with its figure."""
    verdict = json.loads((KEPT / f"claims-{study}.json").read_text("utf-8"))["verdict"]
    return f"[{verdict}](../benchmarks/results/claims-{study}.png)"


def seen(arms: Sequence[ArmSummary]) -> str:
    """Where the arms begin, on the mean, and where they end."""
    return "; ".join(f"{a.arm} {a.first.estimate:.2f} → {told(a.last)}" for a in arms)


def told(interval: tuple[float, float, float]) -> str:
    """A mean with its interval."""
    mean, low, high = (value + 0.0 for value in interval)
    return f"{mean:.2f} [{low:.2f}, {high:.2f}]" if low == low else f"{mean:.2f}"


def cell(text: str) -> str:
    """As it stands in a table."""
    return text.replace("|", r"\|")


def test_the_page_is_what_the_results_say() -> None:
    assert PAGE.read_text("utf-8") == page(), "renew it: python -m tests.test_claims"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_kept_study_is_that_of_its_recipe(file: Path) -> None:
    """The rule by which it is judged is the one that the recipe states now, and its picture is there."""
    found = read(file)
    assert found.spec == compose([recipe_layer(found.name)]).study
    assert file.stem == f"study-{found.name}" and file.with_suffix(".png").exists()
    assert not complaints(drawn(found))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_minutes_that_listings_show_are_what_runs_took(file: Path) -> None:
    """Of a run, the median's; machines differ."""
    kept = json.loads(file.read_text("utf-8"))
    took = median(run["seconds"] for run in kept["runs"]) / 60
    assert took / 2 <= kept["study"]["minutes"] <= max(1.0, 2 * took)


if __name__ == "__main__":
    if sys.argv[1:] == ["commands"]:
        print(*(command(read(file)) for file in FILES), sep="\n")
    else:
        PAGE.write_text(page(), "utf-8")
