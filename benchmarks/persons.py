"""Speed of 64 desk matches whose customer is a model, compared with matches with a scripted customer.

    python benchmarks/persons.py [--quick]

Three arms alternate: the customer is a script (`script`), another model of the same size (`model`), or the agent's own
policy (`shared`). Rates count only the models' turns. Writes results/persons.json.
"""

import argparse
from collections import defaultdict
from contextlib import ExitStack
from typing import Any

from reporting import write_result
from timing import compute_ratios, time_call
from workload import open_lab

from arena.cli.loop import wait
from arena.config.layers import compose
from arena.config.sources import text_layer
from arena.doctor import describe_environment
from arena.lab import Lab

EXPERIMENT = """
name: persons
precision: fp32
threads: 1
iterations: 100
game: {{name: desk, options: {{terse: true, goals: 1, max_turns: 16, person: played}}}}
policies:
  agent: {{model: nano, imitate: {{scripted: [oracle], matches: {lessons}, epochs: 2, minibatches: 32, lr: 3e-3}}}}
  {person}
seats:
  agent: {{role: nano_desk_agent, policy: agent}}
  customer: {{role: nano_desk_customer, policy: {customer}}}
play: {{matches: 64, in_flight: 64}}
"""
PERSON = (
    "customer: {{model: nano-1, imitate: "
    "{{scripted: [oracle], matches: {lessons}, epochs: 2, minibatches: 32, lr: 3e-3}}}}"
)
ARMS = {"script": ("", "oracle"), "model": (PERSON, "customer"), "shared": ("", "agent")}
"""Settings of an additional policy for the customer, and the policy at the customer's seat, by arm."""


def open_arm(stack: ExitStack, name: str, lessons: int) -> Lab:
    """Return the lab of an arm after its imitation."""
    person, customer = ARMS[name]
    text = EXPERIMENT.format(person=person.format(lessons=lessons), customer=customer, lessons=lessons)
    lab = stack.enter_context(open_lab(compose([text_layer(name, text)])))
    wait(lab.imitate())
    wait(lab.publish())
    return lab


def measure_rate(lab: Lab, iteration: int) -> tuple[float, float]:
    """Play an iteration and return the models' turns per second and per match."""
    seconds, records = time_call(lambda: wait(lab.play(iteration)))
    models = {seat for seat, entry in (lab.experiment.seats or {}).items() if entry.policy in lab.experiment.policies}
    turns = sum(turn.seat in models for record in records.records for turn in record.turns)
    return turns / seconds, turns / len(records.records)


def main() -> None:
    """Measure all arms and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    rates, lengths = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
    with ExitStack() as stack:
        labs = {name: open_arm(stack, name, 32 if quick else 256) for name in ARMS}
        for iteration in range(1, 3 if quick else 8):
            for name, lab in labs.items():
                rate, length = measure_rate(lab, iteration)
                if iteration > 1:  # the first round warms caches
                    rates[name].append(rate)
                    lengths[name].append(length)
    result: dict[str, Any] = {
        "command": "python benchmarks/persons.py",
        "machine": describe_environment(),
        "matches": 64,
    }
    result |= {"turns_per_second": rates, "turns_per_match": lengths}
    result["over_script"] = {name: compute_ratios(rates[name], rates["script"]) for name in ARMS if name != "script"}
    write_result("persons", result, quick)
    for name in ARMS:
        share = result["over_script"].get(name, {"median": 1.0})["median"]
        print(f"{name:8} {max(rates[name]):7.0f} turns/s  {share:.2f} of script")


if __name__ == "__main__":
    main()
