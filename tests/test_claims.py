"""docs/claims.md and docs/claims/ say what the kept results of studies say, judged by the rule that each states.

python -m tests.test_claims             # writes the pages from benchmarks/results/study-*.json
python -m tests.test_claims pictures    # the same, and draws the picture of each
python -m tests.test_claims commands    # what runs all of them again, a line each
"""

import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

import pytest

from arena.config.layers import compose
from arena.config.sources import recipe_layer
from arena.evaluate.study.plot import drawn, plot
from arena.evaluate.study.results import Results, read
from arena.evaluate.study.summary import ArmSummary, paired
from arena.statistics import Interval
from tests.legible import complaints

ROOT = Path(__file__).parents[1]
DOCS, KEPT = ROOT / "docs", ROOT / "benchmarks" / "results"
HEAD = """\
# Published claims, judged in small games

Which published mechanisms work here, and which do not?

{sum}

Each row is a study: a small model learns with the mechanism and with its controls, several seeds each. Effect is where
the mechanism's arm begins and ends (means over seeds), then the control that it beats by least, with the difference
paired by seed. The recipe states the rule before the runs: every difference must lie above what is asked for, with its
whole interval. *Contradicted*: one lies below; *not shown*: everything else. `zero` learns from advantages of zero,
`shuffled` from its own dealt to random turns. The pages are made from `benchmarks/results/study-*.json` by
`python -m tests.test_claims`. How to run one: [studies](studies.md).

| claim | effect | verdict | command |
|---|---|---|---|
"""
FOOT = """
`make studies` runs them all again ({hours:.1f} hours of runs) and goes on where it was stopped.
"""
FAMILY = """\
# Claims in {family}

What did each study of this family show, arm by arm? All of them: [claims](../claims.md).
"""
SECTION = """
## {name}

Claim: {claim} ({source}). Verdict: **{verdict}**.

- Published: {published}
- In tables of logits: {tables}
- Rule: {because}
- {seeds} seeds, {minutes:.0f} minutes of runs in all; [picture](../../benchmarks/results/study-{name}.png); `{command}`

| figure | arm | first | last |
|---|---|---|---|
"""
TABLES = {
    "dart-nano": ["truncated"], "gra-nano": ["gated"], "igpo-nano": ["igpo"], "maze-nano": ["gigpo"],
    "mars-nano": ["agent_normalisation", "turn_level"], "score-nano": ["self_correction"],
    "spiral-nano": ["role_baseline"],
}  # fmt: skip
"""By recipe, the studies of its claim in tables: claims-*.json."""
FILES = sorted(KEPT.glob("study-*.json"))


def pages() -> Iterator[tuple[Path, str]]:
    """Each page with its text, from what is kept."""
    found = [read(file) for file in FILES]
    rows = "".join(f"| {' | '.join(cell(text) for text in row(of))} |\n" for of in found)
    foot = FOOT.format(hours=sum(map(minutes, FILES)) / 60)
    yield DOCS / "claims.md", HEAD.format(sum=summed_up(found)) + rows + foot
    families = defaultdict(list)
    for file, of in zip(FILES, found, strict=True):
        families[of.spec.family].append(section(of, minutes(file)))
    for family, sections in families.items():
        yield DOCS / address(family), FAMILY.format(family=family) + "".join(sections)


def address(family: str) -> str:
    """A family's page, seen from docs/."""
    return f"claims/{family.replace(' ', '_')}.md"


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


def row(of: Results) -> tuple[str, ...]:
    """A study in one line: claim, effect, verdict, command."""
    source = "ours" if of.spec.replicates.startswith("none") else re.sub(r"\), .*", ")", of.spec.replicates)
    return f"{of.spec.claim} ({source})", effect(of), f"**{of.verdict.verdict}**", f"`{command(of)}`"


def effect(of: Results) -> str:
    """Where the study's arm begins and ends, beside the control that it beats by least."""
    arms = {arm.arm: arm for arm in of.arms}
    own, (name, gain) = arms[of.spec.arm], narrowest(of)
    ends = f"{own.first.estimate:.2f} → {own.last.estimate:.2f}, {name} {arms[name].last.estimate:.2f}"
    return f"[{of.spec.figure}]({address(of.spec.family)}#{of.name}) {ends}: {signed(gain)}"


def narrowest(of: Results) -> tuple[str, Interval]:
    """The compared arm whose difference decides, and that difference, positive where the study's arm is better."""
    rule, ends = of.spec.verdict, of.ends
    differences = {arm: paired(ends.last, arm, of.spec.arm, ends.bounds, rule.interval) for arm in rule.better_than}
    if rule.less_is_better:
        differences = {arm: Interval(-d.estimate, -d.high, -d.low) for arm, d in differences.items()}
    return min(differences.items(), key=lambda item: item[1].low)


def section(of: Results, took: float) -> str:
    """A study in full: what was published, the rule, every arm of every figure."""
    head = SECTION.format(
        name=of.name,
        claim=of.spec.claim,
        source=of.spec.replicates,
        published=of.spec.published,
        tables=", ".join(map(in_tables, TABLES.get(of.name, ()))) or "no study",
        verdict=of.verdict.verdict,
        because=of.verdict.because,
        seeds=of.seeds,
        minutes=took,
        command=command(of),
    )
    figures = {of.spec.figure: of.arms, **of.beside}
    lines = (line(figure, arm) for figure, arms in figures.items() for arm in arms)
    return head + "".join(lines)


def line(figure: str, arm: ArmSummary) -> str:
    """An arm's first and last values, in a table."""
    return f"| {cell(figure)} | {arm.arm} | {arm.first.estimate:.2f} | {bounded(arm.last)} |\n"


def in_tables(study: str) -> str:
    """The verdict of a study in tables, with its figure."""
    verdict = json.loads((KEPT / f"claims-{study}.json").read_text("utf-8"))["verdict"]
    return f"[{verdict}](../../benchmarks/results/claims-{study}.png)"


def bounded(interval: Interval) -> str:
    """A mean with its interval."""
    mean, low, high = (value + 0.0 for value in interval)
    return f"{mean:.2f} [{low:.2f}, {high:.2f}]" if low == low else f"{mean:.2f}"


def signed(interval: Interval) -> str:
    """A difference with its interval."""
    mean, low, high = (value + 0.0 for value in interval)
    return f"{mean:+.2f} [{low:.2f}, {high:.2f}]"


def cell(text: str) -> str:
    """As it stands in a table."""
    return text.replace("|", r"\|")


def test_the_pages_are_what_the_results_say() -> None:
    made = dict(pages())
    assert made.keys() == {DOCS / "claims.md", *(DOCS / "claims").glob("*.md")}, "delete those of no family"
    for page, text in made.items():
        assert page.read_text("utf-8") == text, "renew it: python -m tests.test_claims"


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
        for page, text in pages():
            page.parent.mkdir(exist_ok=True)
            page.write_text(text, "utf-8")
        for file in FILES if sys.argv[1:] == ["pictures"] else ():
            plot(read(file), file.with_suffix(".png"))
