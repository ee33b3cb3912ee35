"""docs/claims.md and docs/claims/ say what the kept results of studies say, judged by the rule that each states.

python -m tests.test_claims             # writes the pages from benchmarks/results/study-*.json
python -m tests.test_claims pictures    # the same, and draws the picture of each
python -m tests.test_claims commands    # what runs all of them again, a line each
"""

import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from arena.config.layers import compose
from arena.config.sources import recipe_layer
from arena.evaluate.study.family import Row, family
from arena.evaluate.study.plot import drawn, plot
from arena.evaluate.study.record import StatedRule
from arena.evaluate.study.results import Results, read
from arena.evaluate.study.summary import ArmSummary
from arena.statistics import Interval
from tests.legible import complaints

ROOT = Path(__file__).parents[1]
DOCS, KEPT = ROOT / "docs", ROOT / "benchmarks" / "results"
HEAD = """\
# Published claims, judged in small games

Which published mechanisms work here, and which do not?

{sum}

Each row is a study: a small model learns with the mechanism and its controls, several seeds each. *Effect*: where
the mechanism's arm begins and ends (means over seeds), the control that it beats by least, and the difference paired by
seed with the rule's interval (95 %, unless it says 99). *Could see*: the smallest difference that so many seeds show
with chance .8 after the correction. *Verdict*: by the rule, corrected by Holm's method over all {rows} rows (.05 for
the whole table); in *italics*, what the row alone would say.{marked} Papers and all arms: behind each study's name.
`arena study STUDY` runs a row again.

## Mechanisms, beside a baseline that learns as well

{mechanisms}
The same claims with larger models: [by size](claims/sizes.md). Claims that something is learned:
[these](claims/learned.md).

## Small print

{print}
"""
MARKED = """ **†** ({rows}): the recipe states another rule by
now, on seeds that nobody has looked at: to be run again."""
TABLE = """\
| claim | study | effect | could see | verdict |
|---|---|---|---|---|
"""
FOOT = """\
- p, Holm's and Benjamini and Hochberg's of every row: [the family](claims/family.md). All rows are one family;
  *contradicted* pays for each of a row's comparisons.
- {gauged} of {rows} rows state gauges of what the mechanism does.{exceptions}
- What chance, imitation, the best run and an oracle reach: [room](claims/worlds.md). What changed since the first
  table, row by row: [before and now](claims/changed.md).
- Made from `benchmarks/results/study-*.json` by `python -m tests.test_claims`. How often the procedure
  errs: [studies](studies.md).
- `make studies` runs all again. By rehearsals (`make suite`) it takes {lasting}.
"""
LEARNS = """\
# Studies that say that something is learned

What do small models learn here by reward alone? Mechanisms beside a baseline, and what the columns say:
[claims](../claims.md).

Beside advantages of zero (`zero`), and of its own dealt to random turns (`shuffled`).

"""
SIZES = """\
# Claims by size of the model

Does what holds with .9 million parameters hold with more? All claims, and what the columns say: [claims](../claims.md).

Tiny models have random weights and first imitate scripts; SmolLM2 is a trained language model, which learns an adapter.

"""
EVERY = """\
# The family of all claims

What does each study say alone, and what is left of that among all of them? Verdicts: [claims](../claims.md).

p is two-sided; q is Benjamini and Hochberg's. A verdict survives where Holm's p is at most .05. *Minutes*: to run the
study again on two cores, by a rehearsal (`make suite`; `benchmarks/results/suite.json` says on which machine).

| study | seeds | alone | p | Holm | q | corrected | minutes |
|---|---|---|---|---|---|---|---|
"""
WORLDS = """\
# Room in the worlds of the claims

How hard is each study's world, and how much is left to learn there? Verdicts: [claims](../claims.md).

*Random* picks among listed acts, or says nothing where none are listed; *oracle* comes with the world and knows its
answer (of cards: best play, computed). Both sit in the policies' seats in {matches} matches, and all others as in the
recipe. *Imitation* is where the studies' runs begin (their mean), *best* the best of their runs at its end. *Turns*
are the learners' own in a match, of random and of the oracle. Where the best run comes near to the oracle, a
mechanism has no room; the planner's oracle always searches, and its best regret is 0. Random acts are legal; what
imitates them need not be. Intervals are 95 %.
`python benchmarks/worlds.py`

| study | figure | turns | random | imitation | best | oracle |
|---|---|---|---|---|---|---|
"""
CHANGED = """\
# The table of claims, before and now

Which verdicts changed since the first table, and why? Verdicts: [claims](../claims.md).

**Of {old} rows {held} held then, {hold} hold now; {new} rows are new.**

*Then*: {date} ({commit}), each row by itself; some samples had been extended after a look, and no row had gauges.
*Now*: one look at seeds that nobody had seen, mostly ten, corrected over all rows; in *italics*, what the row alone
would say.
`benchmarks/results/before-claims.json`

| study | then | now | what changed besides |
|---|---|---|---|
"""
FAMILY = """\
# Claims in {family}

What did each study of this family show, arm by arm? All of them: [claims](../claims.md).
"""
SECTION = """
## {name}

Claim: {claim} ({source}). Verdict: {verdict}.

- Published: {published}
{tables}- Rule: {because}
- {seeds} seeds, {minutes:.0f} minutes of runs in all; [picture](../../benchmarks/results/study-{name}.png); `{command}`

| figure | arm | first | last |
|---|---|---|---|
"""
TABLES = {
    "gra-nano": "gated", "igpo-nano": "igpo", "maze-nano": "gigpo", "mars-nano": "agent_normalisation",
    "score-nano": "self_correction", "spiral-nano": "role_baseline",
}  # fmt: skip
"""By recipe, the study of its claim in tables: claims-*.json. A paper's other claims are other rows, or none."""
MOST = 40
"""Minutes of two cores that a row should take at most."""
LARGER = ("-nano5m", "-small")
"""What names end with whose models have more than .9 million parameters: 4.9, and SmolLM2's 135."""
FILES = sorted(KEPT.glob("study-*.json"))


def pages() -> Iterator[tuple[Path, str]]:
    """Each page with its text, from what is kept."""
    found = family([read(file) for file in FILES])
    cited = citations(row.results.spec.replicates for row in found)
    tables = {
        kind: TABLE + "".join(f"| {' | '.join(cell(text) for text in line_of(row, cited))} |\n" for row in rows)
        for kind, rows in parted(found).items()
    }
    kept = json.loads((KEPT / "suite.json").read_text("utf-8"))["studies"]
    rehearsed = {row.results.name: kept[row.results.name]["whole"] / 60 for row in found}
    small = FOOT.format(
        rows=len(found),
        gauged=sum(bool(row.results.spec.gauges) for row in found),
        exceptions=exceptions(found),
        lasting=lasting(rehearsed.values()),
    )
    head = HEAD.format(
        sum=summed_up(found), rows=len(found), marked=marks(found), print=small, mechanisms=tables["mechanisms"]
    )
    yield DOCS / "claims.md", head
    yield DOCS / "claims" / "learned.md", LEARNS + tables["learns"].replace("](claims/", "](")
    yield DOCS / "claims" / "sizes.md", SIZES + tables["sizes"].replace("](claims/", "](")
    yield DOCS / "claims" / "family.md", EVERY + "".join(corrected(row, rehearsed[row.results.name]) for row in found)
    worlds = json.loads((KEPT / "worlds.json").read_text("utf-8"))
    rooms = [
        room(row.results, worlds["worlds"][row.results.name]) for row in found if row.results.name in worlds["worlds"]
    ]
    yield DOCS / "claims" / "worlds.md", WORLDS.format(matches=worlds["matches"]) + "".join(rooms)
    before = json.loads((KEPT / "before-claims.json").read_text("utf-8"))
    again = [row for row in found if row.results.name in before["rows"]]
    lines = "".join(compared(row, before["rows"][row.results.name]) for row in again)
    told = CHANGED.format(
        **before,
        old=len(again),
        new=len(found) - len(again),
        held=sum(row["verdict"] == "holds" for row in before["rows"].values()),
        hold=sum(row.verdict == "holds" for row in again),
    )
    yield DOCS / "claims" / "changed.md", told + lines
    families = defaultdict(list)
    for file, row in zip(FILES, found, strict=True):
        families[row.results.spec.family].append(section(row, minutes(file)))
    for name, sections in families.items():
        yield DOCS / address(name), FAMILY.format(family=name) + "".join(sections)


def parted(found: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows by their page: of mechanisms, of claims that something is learned, of mechanisms in more than one size."""
    mechanisms = [row for row in found if row.results.spec.baselines]
    many = Counter(map(stem, mechanisms))
    sizes = [row for row in mechanisms if many[stem(row)] > 1]
    larger = [row for row in sizes if row.results.name.endswith(LARGER)]
    return {
        "mechanisms": [row for row in mechanisms if row not in larger],
        "learns": [row for row in found if row not in mechanisms],
        "sizes": sizes,
    }


def stem(row: Row) -> str:
    """A study's name without the size of its model."""
    return row.results.name.rpartition("-")[0]


def address(family: str) -> str:
    """A family's page, seen from docs/."""
    return f"claims/{family.replace(' ', '_')}.md"


def summed_up(found: Sequence[Row]) -> str:
    """How many claims hold, of mechanisms and of learning, and how many would without the correction."""
    told = []
    for what, rows in (
        ("that compare a mechanism with a baseline", [row for row in found if row.results.spec.baselines]),
        ("that say that something is learned", parted(found)["learns"]),
    ):
        told.append(f"Of {len(rows)} claims {what}, {counted(row.verdict for row in rows)}.")
    alone = counted(row.results.verdict.verdict for row in found)
    return f"**{' '.join(told)}** Without the correction: {alone}."


def marks(found: Iterable[Row]) -> str:
    """What the mark says, with the rows that bear it; "" where none does."""
    changed = [row for row in found if changed_since(row.results)]
    return MARKED.format(rows=named(changed)) if changed else ""


def exceptions(found: Sequence[Row]) -> str:
    """What does not hold of every row, each with the rows that it is said of."""
    lacking = {
        "Run before looks were recorded": [row for row in found if not row.results.looks],
        "Fewer than ten seeds": [row for row in found if row.results.seeds < 10],
        "Judged on seed 0, too, on which recipes were tried out": [
            row for row in found if row.results.spec.first_seed == 0
        ],
    }
    return "".join(f"\n  {what}: {named(rows)}." for what, rows in lacking.items() if rows)


def lasting(minutes: Iterable[float]) -> str:
    """How long all studies take, and those that take no longer than a row should."""
    took = list(minutes)
    short, long = [one for one in took if one <= MOST], [one for one in took if one > MOST]
    whole, least, most = (sum(some) / 60 for some in (took, short, long))
    return f"""\
{whole:.1f} hours of two cores: {least:.1f} for
  the {len(short)} rows of at most {MOST} minutes, {most:.1f} for the other {len(long)}"""


def named(rows: Iterable[Row]) -> str:
    """The names of these rows."""
    return ", ".join(f"`{row.results.name}`" for row in rows)


def counted(words: Iterable[str]) -> str:
    """Verdicts with their numbers."""
    many = Counter(words)
    order = ("holds", "contradicted", "did not act", "world cannot tell", "not shown")
    return ", ".join(f"{word} {many[word]}" for word in order if many[word])


def minutes(file: Path) -> float:
    """What all runs of a study took."""
    return sum(run["seconds"] for run in json.loads(file.read_text("utf-8"))["runs"]) / 60.0


def command(of: Results) -> str:
    """What runs the study again, by the rule that its recipe states now."""
    return f"arena study {of.name}"


def citations(papers: Iterable[str]) -> dict[str, str]:
    """How the table names each paper: by its mechanism where no other paper here has one of that name."""
    names = {paper: "ours" if paper.startswith("none") else re.sub(r" \(.*", "", paper) for paper in papers}
    shared = Counter(names.values())
    return {paper: name if shared[name] == 1 or name == "ours" else paper for paper, name in names.items()}


def line_of(row: Row, cited: dict[str, str]) -> tuple[str, ...]:
    """A study in one line: claim, name, effect, what it could see, verdict."""
    of = row.results
    own, other = ({arm.arm: arm for arm in of.arms}[name] for name in (of.spec.arm, row.arm))
    ends = f"{own.first.estimate:.2f} → {own.last.estimate:.2f}, {row.arm} {other.last.estimate:.2f}"
    name = f"[{of.name}]({address(of.spec.family)}#{of.name})"
    effect = f"{of.spec.figure} {ends}: {signed(row.effect)}"
    return f"{of.spec.claim} ({cited[of.spec.replicates]})", name, effect, f"{row.visible:.2f}", worded(row)


def worded(row: Row) -> str:
    """The verdict, with what the row alone would say where that is another, and a mark where its rule has changed."""
    alone = row.results.verdict.verdict
    other = f" *{alone}*" if alone != row.verdict else ""
    return f"**{row.verdict}**{other}{' †' if changed_since(row.results) else ''}"


def changed_since(of: Results) -> bool:
    """Return True if the recipe states another rule than the one by which its kept runs are judged.

    A rule that leaves the sample to the command is the same as one that states those seeds, and none of the tuning.
    """
    stated = compose([recipe_layer(of.name)]).study
    if stated is None or of.changed_after:
        return True
    own, judged = of.spec, range(of.spec.first_seed, of.spec.first_seed + of.seeds)
    if own.seeds is None and not {*stated.tuned_on, *own.tuned_on} & {*judged}:
        own = own.model_copy(update={"seeds": of.seeds, "tuned_on": stated.tuned_on})
    return stated.rule != own.rule


def corrected(row: Row, took: float) -> str:
    """A study as a member of the family, with the minutes that it takes to run again."""
    of = row.results
    values = (f"{value:.4f}" for value in (row.decision.p, row.holm, row.bh))
    return f"| {' | '.join((of.name, str(of.seeds), of.verdict.verdict, *values, row.verdict, f'{took:.0f}'))} |\n"


def compared(row: Row, before: dict[str, Any]) -> str:
    """A study as the table before told it, and as it is told now."""
    of, effect = row.results, Interval(*before["effect"])
    then = f"{before['verdict']}: {signed(effect)} beside {before['control']}, {before['seeds']} seeds"
    now = f"{worded(row)}: {signed(row.effect)} beside {row.arm}, {of.seeds} seeds"
    return f"| {of.name} | {then} | {now} | {before['changed']} |\n"


def room(of: Results, world: dict[str, Any]) -> str:
    """What is reached in a study's world, from chance to its oracle."""
    assert world["figure"] == of.spec.figure, "measure it again: python benchmarks/worlds.py"
    scripted = {who: world[who] for who in ("random", "oracle") if "mean" in world[who]}
    turns = " to ".join(f"{reached['turns']:.1f}" for reached in scripted.values())
    reaches = {who: bounded(Interval(**reached["mean"])) for who, reached in scripted.items()}
    own = next(arm for arm in of.arms if arm.arm == of.spec.arm)
    best_of = min if of.spec.verdict.less_is_better else max
    best = f"{best_of(of.ends.last[own.arm].values()):.2f} of {of.seeds}"
    random, most = reaches.get("random", "–"), reaches.get("oracle", "–")
    if "best play" in world:
        most = f"{world['best play']:.2f}"
    told = (of.name, cell(of.spec.figure), turns, random, f"{own.first.estimate:.2f}", best, most)
    return f"| {' | '.join(told)} |\n"


def section(row: Row, took: float) -> str:
    """A study in full: what was published, the rule, every arm of every figure."""
    of = row.results
    head = SECTION.format(
        name=of.name,
        claim=of.spec.claim,
        source=of.spec.replicates,
        published=of.spec.published,
        tables=f"- In tables of logits: {in_tables(TABLES[of.name])}\n" if of.name in TABLES else "",
        verdict=worded(row),
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
    """It is of a recipe that still has the arms it compares, and its picture is there."""
    found = read(file)
    stated = compose([recipe_layer(found.name)]).study
    assert stated and {found.spec.arm, *found.spec.verdict.better_than} <= set(stated.names)
    assert file.stem == f"study-{found.name}" and file.with_suffix(".png").exists()
    assert not complaints(drawn(found))


def test_a_row_of_another_rule_than_the_recipe_s_is_marked() -> None:
    of = read(KEPT / "study-gra-nano.json")
    stated = compose([recipe_layer(of.name)]).study
    assert stated
    assert not changed_since(replace(of, spec=stated))
    assert changed_since(replace(of, spec=stated.model_copy(update={"last": stated.last + 1})))
    stated_twice = [StatedRule(time="", rule="", runs=runs) for runs in (0, 10)]
    assert changed_since(replace(of, spec=stated, rules=stated_twice)), "changed when runs were there"


def test_marks_and_caveats_name_their_rows() -> None:
    of = read(KEPT / "study-gra-nano.json")
    other = of.spec.model_copy(update={"last": of.spec.last + 1, "first_seed": 0})
    assert marks(family([of])) == exceptions(family([of])) == ""
    odd = family([replace(of, spec=other, looks=[])])
    assert "(`gra-nano`)" in marks(odd)
    assert "recorded: `gra-nano`." in exceptions(odd) and "seed 0" in exceptions(odd) and "ten" not in exceptions(odd)


def test_the_page_says_how_long_all_takes() -> None:
    told = " ".join(lasting([90.0, 30.0, 60.0]).split())
    assert told == "3.0 hours of two cores: 0.5 for the 1 rows of at most 40 minutes, 2.5 for the other 2"


def test_tables_of_logits_are_of_the_same_claim() -> None:
    """The paper is the same, as far as both name it, and DART's is of truncated weights, which its row is not about."""
    for name, table in TABLES.items():
        source = json.loads((KEPT / f"claims-{table}.json").read_text("utf-8"))["source"]
        paper = compose([recipe_layer(name)]).study
        assert paper and re.split(r"[ ,/(]", paper.replicates)[0] == re.split(r"[ ,/(]", source)[0]
    assert "dart-nano" not in TABLES and TABLES["mars-nano"] == "agent_normalisation"


def test_no_verdict_is_typed() -> None:
    """A row says what its numbers say: with the arms' values changed round, the other verdict."""
    of = read(KEPT / "study-spear-nano.json")
    turned = replace(of, curves={**of.curves, "spear": of.curves["grpo"], "grpo": of.curves["spear"]})
    assert [row.verdict for one in (of, turned) for row in family([one])] == ["holds", "contradicted"]


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
