"""Write docs/claims.md, its subpages and the verdicts of docs/papers.md from the stored study results.

python docs/claims_pages.py             # write them from benchmarks/results/study-*.json
python docs/claims_pages.py commands    # print the commands that run every study again
"""

import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from arena.config.recipe import compose_recipe
from arena.config.sources import recipe_layer, recipe_names
from arena.config.study import EVALUATED, PANEL
from arena.evaluate.study.family import Row, correct_family
from arena.evaluate.study.results import Results, read
from arena.evaluate.study.summary import ArmSummary
from arena.statistics import Interval

World = dict[str, Any]
"""A study's world in benchmarks/results/worlds.json: results and turns of random play and of the oracle."""
DOCS = Path(__file__).parent
RESULTS = DOCS.parent / "benchmarks" / "results"
FILES = sorted(RESULTS.glob("study-*.json"))
MAX_MINUTES = 40
"""Longest time that a study should take on two cores."""
ORDER = ("holds", "contradicted", "did not act", "world cannot tell", "not shown")
TABLE = "| claim | study | effect | held out | turns | could see | verdict |\n|---|---|---|---|---|---|---|\n"
CLAIMS = """\
# Published claims, tested in small games

Run one study again with `arena study STUDY`, or all studies with `make studies` ({hours}).

{counts}

In each study, a small model learns with a mechanism in one arm and with a control in each other arm. The columns of the
tables:

- *Effect*: first and last value of the mechanism's arm (means over seeds), the last value of the control that it beats
  by least, and the seed-paired difference from this control with its interval (95 %, or 99 % if the study's rule says
  so).
- *Held out*: yes if the figure comes from an evaluation or a panel, no if it comes from training matches.
- *Turns*: acts per match at a learning seat, as a range of the values for the world's oracle and for random play.
- *Could see*: the smallest difference that the study's seeds detect with power .8 after the correction.
- *Verdict*: corrected by Holm's method over all {rows} studies at .05. If the study alone has another verdict, it
  follows in *italics*.{changed}

For all arms of every study, see [arms](claims/arms.txt).

## Mechanisms against a baseline that also learns

Studies that show no effect even without the correction are in [not shown](claims/not-shown.md).

{mechanisms}
For studies of plain learning and notes on the procedure, see [more studies](claims/more.md).
"""
NOT_SHOWN = """\
# Mechanisms without a shown effect

These studies show no effect, even without the correction. The columns are explained in [claims](../claims.md).

{not_shown}"""
MORE = """\
# More studies: plain learning

The columns are explained in [claims](../claims.md). These studies belong to the same corrected family as those there.

## Does anything get learned?

The controls use advantages of zero (`zero`) or advantages assigned to random turns (`shuffled`).

{learning}
## Notes

- All studies form one family for the correction. Within a study, *contradicted* is also corrected for the number of
  compared arms.
- {gauged} of {rows} studies have gauges that show whether the mechanism acted.{exceptions}
- The family had 51 studies. After they had been judged, 17 were withdrawn because of their worlds (recurring sums, or
  matches of one turn). In the family of 51, the verdict on `negotiation` and `recommender_both-nano` was not *holds*.
- Two studies were judged a second time, on fresh seeds, because a setting could not work: `archer-nano` (contradicted
  the first time; its critic did not generalise) and `epo_entropy-nano` (its gauge failed; the band weighed too little).
{repeats}- Recipes whose study has not been run yet: {waiting}.
- `python docs/claims_pages.py` writes this page. For the error rates of the procedure, see [studies](../studies.md).
"""
VERDICTS = "| paper | what it changes | recipe | file | verdict |\n|---|---|---|---|---|\n"
"""Head of the table of systems in docs/papers.md."""
CHANGED = """
- **†** ({rows}): the recipe now states another rule, on fresh seeds. Run the study again."""
ARMS = """\
All arms of each study, with first -> last values and 95 % intervals over seeds. "random" and "oracle" in parentheses
are scripted players in the learners' seats (python benchmarks/worlds.py). Claims and verdicts: docs/claims.md.
"""


def build_pages() -> Iterator[tuple[Path, str]]:
    """Yield each page's path and text."""
    rows = correct_family([read(file) for file in FILES])
    worlds = json.loads((RESULTS / "worlds.json").read_text("utf-8"))["worlds"]
    yield from build_claims(rows, worlds)
    papers = DOCS / "papers.md"
    yield papers, update_verdicts(papers.read_text("utf-8"), rows)
    ordered = sorted(rows, key=lambda row: (row.results.spec.family, row.results.name))
    sections = (format_study(row, worlds.get(row.results.name, {})) for row in ordered)
    yield DOCS / "claims" / "arms.txt", ARMS + "".join(sections)


def build_claims(rows: Sequence[Row], worlds: Mapping[str, World]) -> Iterator[tuple[Path, str]]:
    """Yield docs/claims.md, docs/claims/not-shown.md and docs/claims/more.md."""
    changed = [row for row in rows if has_changed_rule(row.results)]
    titles = shorten_citations(row.results.spec.replicates for row in rows)
    tables = {
        name: TABLE
        + "".join(
            f"| {' | '.join(map(escape_cell, format_claim(row, titles, worlds.get(row.results.name, {}))))} |\n"
            for row in part
        )
        for name, part in split_by_kind(rows).items()
    }
    page = CLAIMS.format(
        hours=describe_hours(estimate_minutes(row) for row in rows),
        counts=describe_counts(rows),
        rows=len(rows),
        changed=CHANGED.format(rows=join_names(changed)) if changed else "",
        mechanisms=tables["mechanisms"],
    )
    yield DOCS / "claims.md", page
    yield DOCS / "claims" / "not-shown.md", NOT_SHOWN.format(not_shown=tables["not_shown"])
    more = MORE.format(
        learning=tables["learning"],
        gauged=sum(bool(row.results.spec.gauges) for row in rows),
        rows=len(rows),
        exceptions=describe_exceptions(rows),
        repeats=describe_repeats(json.loads((RESULTS / "repeats.json").read_text())["studies"]),
        waiting=", ".join(f"`{name}`" for name in find_unrun_studies(row.results.name for row in rows)),
    )
    yield DOCS / "claims" / "more.md", more


def split_by_kind(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Split the studies into mechanisms, those that show nothing, and plain learning."""
    mechanisms = [row for row in rows if row.results.spec.baselines]
    not_shown = [row for row in mechanisms if row.verdict == row.results.verdict.verdict == "not shown"]
    return {
        "mechanisms": [row for row in mechanisms if row not in not_shown],
        "not_shown": not_shown,
        "learning": [row for row in rows if row not in mechanisms],
    }


def format_claim(row: Row, titles: dict[str, str], world: World) -> tuple[str, ...]:
    """Return a study's cells: claim, name, effect, held out, turns, smallest visible difference, verdict."""
    study = row.results
    own, control = ({arm.arm: arm for arm in study.arms}[name] for name in (study.spec.arm, row.arm))
    values = f"{own.first.estimate:.2f}→{own.last.estimate:.2f}, {row.arm} {control.last.estimate:.2f}"
    effect = f"{study.spec.figure} {values}: {format_interval(row.effect, '+')}"
    return (
        f"{study.spec.claim} ({titles[study.spec.replicates]})",
        f"`{study.name}`",
        effect,
        "yes" if study.spec.figure.startswith((EVALUATED, PANEL)) else "no",
        describe_turns(world),
        f"{row.detectable:.2f}",
        format_verdict(row),
    )


def describe_turns(world: World) -> str:
    """Return the turns per match at one learning seat of oracle and random play, as a range; "–" without any."""
    turns = {f"{world[name]['turns']:.1f}" for name in ("oracle", "random") if "turns" in world.get(name, {})}
    return "–".join(sorted(turns, key=float)) or "–"


def find_unrun_studies(names_with_results: Iterable[str]) -> list[str]:
    """Return the recipes with a study that has no stored result."""
    without = sorted({*recipe_names()} - {*names_with_results})
    return [name for name in without if compose_recipe([recipe_layer(name)]).study]


def update_verdicts(page: str, rows: Iterable[Row]) -> str:
    """Return docs/papers.md with the current verdicts of each system's studies in its last cell."""
    verdicts: dict[str, str] = {row.results.name: row.verdict for row in rows}
    verdicts |= dict.fromkeys(find_unrun_studies(verdicts), "not run")
    head, table, rest = page.partition(VERDICTS)
    systems, end, rest = rest.partition("\n\n")
    lines = []
    for line in systems.splitlines():
        *cells, _ = line.strip("| ").split(" | ")
        found = {verdicts[name] for name in re.findall(r"`([^`]+)`", cells[2]) if name in verdicts}
        verdict = ", ".join(name for name in (*ORDER, "not run") if name in found) or "–"
        lines.append(f"| {' | '.join([*cells, verdict])} |")
    return head + table + "\n".join(lines) + end + rest


def format_study(row: Row, world: World) -> str:
    """Return a study's section of arms.txt: p-values, and an aligned row for each arm."""
    study = row.results
    figures = {study.spec.figure: study.arms, **study.secondary}
    values: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for figure, arms in figures.items():
        for arm in arms:
            values[arm.arm][figure] = format_arm(arm)
    for player in ("random", "oracle"):
        if "mean" in world.get(player, {}):
            values[f"({player})"][study.spec.figure] = format_interval(Interval(**world[player]["mean"]))
    table = [("arm", *figures), *((arm, *(found.get(f, "-") for f in figures)) for arm, found in values.items())]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = [
        f"\n{study.spec.family} / {study.name}",
        f"{row.verdict} (alone: {row.results.verdict.verdict}): {study.seeds} seeds, p {row.decision.p:.4f}, "
        f"Holm {row.holm:.4f}, {estimate_minutes(row):.0f} minutes. Published: {study.spec.published}.",
    ]
    for cells in table:
        lines.append("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip())
    return "\n".join(lines) + "\n"


def describe_counts(rows: Sequence[Row]) -> str:
    """Return a paragraph with the number of each verdict, by kind of claim and without the correction."""
    kinds = {
        "compare a mechanism with a baseline": [row for row in rows if row.results.spec.baselines],
        "state that something is learned": split_by_kind(rows)["learning"],
    }
    sentences = [
        f"{len(part)} claims {kind}: {count_verdicts(row.verdict for row in part)}." for kind, part in kinds.items()
    ]
    alone = count_verdicts(row.results.verdict.verdict for row in rows)
    return f"**{' '.join(sentences)}** Without the correction, all claims: {alone}."


LOOKS_UNKNOWN = {"negotiation", "negotiation-long"}
"""Studies whose results may have been seen before all seeds had run."""


def describe_exceptions(rows: Sequence[Row]) -> str:
    """Return a line for each weakness, with the studies that have it."""
    exceptions = {
        "Fewer than ten seeds": [row for row in rows if row.results.seeds < 10],
        "Judged on seed 0 as well, on which recipes were tried": [
            row for row in rows if row.results.spec.first_seed == 0
        ],
        "Results may have been seen before all seeds had run": [
            row for row in rows if row.results.name in LOOKS_UNKNOWN
        ],
    }
    return "".join(f"\n- {name}: {join_names(part)}." for name, part in exceptions.items() if part)


def describe_repeats(runs: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a note on the repeated first runs of the studies (benchmarks/repeats.py), by study."""
    others = [name for name, run in runs.items() if not run["repeats"]]
    return (
        f"- With today's code, the first run of {len(runs) - len(others)} of {len(runs)} studies repeats bit by bit "
        f"(`python benchmarks/repeats.py`).\n  The others are {', '.join(f'`{name}`' for name in others)}.\n"
        "  They were recorded on 28 to 30 November 2026, when cut replies were excused by default\n"
        "  (`sampling.truncated`).\n"
    )


def describe_hours(minutes: Iterable[float]) -> str:
    """Describe the hours of all studies, and of those that take at most `MAX_MINUTES`."""
    all_minutes = list(minutes)
    short = [value for value in all_minutes if value <= MAX_MINUTES]
    return (
        f"{sum(all_minutes) / 60:.1f} hours on two cores, including {sum(short) / 60:.1f} hours for the {len(short)} "
        f"studies that take at most {MAX_MINUTES} minutes each"
    )


def estimate_minutes(row: Row) -> float:
    """Return a study's minutes on two cores: measured by its rehearsal (`make suite`), else stated by the recipe."""
    rehearsal = json.loads((RESULTS / "suite.json").read_text("utf-8"))["studies"].get(row.results.name)
    if rehearsal:
        return float(rehearsal["whole"]) / 60
    study = row.results
    return (study.spec.minutes or 0) * study.seeds * (1 + len(study.spec.arms)) / 2


def has_changed_rule(study: Results) -> bool:
    """Return True if the recipe states another rule than the one by which the stored runs were judged.

    A rule without stated seeds equals one that states the seeds of the stored runs, if none of them served tuning.
    """
    current_rule = compose_recipe([recipe_layer(study.name)]).study
    if current_rule is None:
        return True
    own, seeds = study.spec, range(study.spec.first_seed, study.spec.first_seed + study.seeds)
    if own.seeds is None and not {*current_rule.tuned_on, *own.tuned_on} & {*seeds}:
        own = own.model_copy(update={"seeds": study.seeds, "tuned_on": current_rule.tuned_on})
    return current_rule.rule != own.rule


def shorten_citations(papers: Iterable[str]) -> dict[str, str]:
    """Map each paper to its mechanism's name, or to the full citation if two papers share the name."""
    names = {paper: "ours" if paper.startswith("none") else re.sub(r" \(.*", "", paper) for paper in papers}
    shared = Counter(names.values())
    return {paper: name if shared[name] == 1 or name == "ours" else paper for paper, name in names.items()}


def format_verdict(row: Row) -> str:
    """Return the corrected verdict, the uncorrected one if it differs, and a mark if the rule has changed."""
    alone = row.results.verdict.verdict
    other = f" *{alone}*" if alone != row.verdict else ""
    return f"**{row.verdict}**{other}{' †' if has_changed_rule(row.results) else ''}"


def count_verdicts(verdicts: Iterable[str]) -> str:
    """Return each verdict with its number."""
    counts = Counter(verdicts)
    return ", ".join(f"{verdict} {counts[verdict]}" for verdict in ORDER if counts[verdict])


def join_names(rows: Iterable[Row]) -> str:
    """Return the studies' names, separated by commas."""
    return ", ".join(f"`{row.results.name}`" for row in rows)


def format_arm(arm: ArmSummary) -> str:
    """Return an arm's first and last value."""
    return f"{arm.first.estimate:.2f} -> {format_interval(arm.last)}"


def format_interval(interval: Interval, sign: str = "") -> str:
    """Return a mean with its interval, or the mean alone if one seed gives no interval."""
    mean, low, high = (value + 0.0 for value in interval)  # + 0.0 turns -0.0 into 0.0
    return f"{mean:{sign}.2f} [{low:.2f}, {high:.2f}]" if low == low else f"{mean:{sign}.2f}"


def escape_cell(text: str) -> str:
    """Escape a text for a Markdown table."""
    return text.replace("|", r"\|")


if __name__ == "__main__":
    if sys.argv[1:] == ["commands"]:
        print(*(f"arena study {read(file).name}" for file in FILES), sep="\n")
    else:
        for page, text in build_pages():
            page.parent.mkdir(exist_ok=True)
            page.write_text(text, "utf-8")
