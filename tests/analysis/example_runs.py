"""The runs that the notebooks read, kept in analysis/notebooks/example: how they were made, and made fit to be kept.

    arena run selfplay --recipe negotiation-nano --iterations 12 --seed 3 --set play.matches=64 --set 'league={pool:
        {every: 3, keep: 4}, opponents: [{play: self, weight: 2}, {play: pfsp}, {play: fixed, policy: conceder},
        {play: fixed, policy: hard_liner}, {play: fixed, policy: random}]}' --out negotiation
    python -m tests.analysis.example_runs negotiation

Weights are left out, and what names the machine. `bargain` holds one match of two scripted policies, which need no
weights.
"""

import json
import shutil
import sys
from pathlib import Path

import analysis
from arena.cli.loop import wait
from arena.config.layers import compose, to_yaml
from arena.config.sources import recipe_layer
from arena.play.contenders import Contender, ScriptedContender, play_one
from arena.play.match import Limits, MatchPlan
from arena.store.manifest import write_sealed
from arena.store.reader import ENVIRONMENT
from arena.store.run import RunFolder
from games.contracts import MatchId

EXAMPLE = Path(analysis.__file__).parent / "notebooks" / "example"
KEPT = ("config.yaml", "metrics.jsonl", "log", "roles")
ABOUT = ("python", "versions", "roles", "experiment", "commands", "files")


def copy_analysed_files(run: Path, to: Path) -> None:
    """Copy the files of a run that the analysis reads."""
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(parents=True)
    for name in KEPT:
        full = run / name
        shutil.copytree(full, to / name) if full.is_dir() else shutil.copy(full, to / name)
    about = json.loads((run / ENVIRONMENT).read_text("utf-8"))
    about = {name: about[name] for name in ABOUT if name in about}
    for role in about.get("files", {}).values():
        role["from"] = f"agents/roles/{Path(role['from']).name}"
    for command in about["commands"]:
        command["command"] = ["arena", *command["command"][1:]]
    write_sealed(to / ENVIRONMENT, about)


def play_bargains(to: Path) -> None:
    """Play a match of a conceder against a hard-liner."""
    shutil.rmtree(to, ignore_errors=True)
    contenders: dict[str, Contender] = {
        "opener": ScriptedContender("conceder"), "responder": ScriptedContender("hard_liner"),
    }  # fmt: skip
    seats = {seat: who.seating("negotiation", seat) for seat, who in contenders.items()}
    plan = MatchPlan(
        identity=MatchId(1, 0), game="negotiation", options={"max_turns": 8, "talk": False}, seed=4, seats=seats
    )
    run = RunFolder.create(to, to_yaml(compose([recipe_layer("negotiation-nano")])), {})
    run.log.extend([wait(play_one(plan, contenders, 0, Limits()))])
    run.log.seal(1)
    run.log.close()
    (to / "run.lock").unlink(missing_ok=True)


if __name__ == "__main__":
    copy_analysed_files(Path(sys.argv[1]), EXAMPLE / "negotiation")
    play_bargains(EXAMPLE / "bargain")
