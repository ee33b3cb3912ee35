"""Preview of a role before it plays, with warnings about probable mistakes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from agents.role import Role, load_role
from agents.templates import find_items, find_names
from games.contracts import Message, View

SAMPLE_TEXT = "You have won"


@dataclass(frozen=True, kw_only=True)
class RolePreview:
    """A role rendered for sample turns. `findings` are warnings about probable mistakes."""

    role: Role
    system: str
    examples: tuple[tuple[str, str], ...]
    turns: tuple[str, ...]
    seats: tuple[str, ...]
    """Seat of each turn."""
    findings: tuple[str, ...]


def check_role(name_or_path: str, views: Sequence[View], folders: Iterable[str | Path] = ()) -> RolePreview:
    """Load a role, render the sample views in their order, and collect warnings about probable mistakes.

    A seat's first view counts as the start of its match. Raises RoleError if loading or rendering fails.
    """
    role = load_role(name_or_path, folders)
    system = role.render_system(views[0]) if views else ""
    seats = tuple(view.seat for view in views)
    turns = tuple(role.render_turn(view, first=view.seat not in seats[:n]) for n, view in enumerate(views))
    examples = tuple((example.see, example.say) for example in role.examples)
    findings = [*_check_settings(role), *_check_facts(role, views), *_check_senders(role, views)]
    findings += _check_turns(views, turns)
    return RolePreview(role=role, system=system, examples=examples, turns=turns, seats=seats, findings=tuple(findings))


def _check_settings(role: Role) -> Iterable[str]:
    in_system, in_turn = find_names(role.system), find_names(role.turn)
    if "private" in in_system:
        yield "system: uses `private`, so matches cannot share its tokens: use it in turn, under `first`"
    if "messages" not in in_turn:
        yield "turn: never shows `messages`: the seat will not hear the others"
    if role.persona and "persona" not in in_system | in_turn:
        yield "persona: no template shows it"
    if "rules" not in in_system | in_turn and not role.system:
        yield "system: is empty and no template shows `rules`: the model is not told what to do"
    if role.reply.action is not None and not any(f"{role.reply.action}" in text for text in _list_texts(role)):
        yield f"reply: neither system nor examples show the model the field '{role.reply.action}'"


def _check_facts(role: Role, views: Sequence[View]) -> Iterable[str]:
    """Yield one warning for the views' private facts that no template shows, and one for the public facts."""
    for name, consequence in (
        ("private", "will not know its own secrets"),
        ("public", "knows them from rules and messages alone"),
    ):
        facts_in_templates = [find_items(text, name) for text in (role.system, role.turn)]
        names = dict.fromkeys(fact for view in views for fact in getattr(view, name))
        unused = [
            fact for fact in names if all(facts is not None and fact not in facts for facts in facts_in_templates)
        ]
        if unused:
            yield f"turn: never shows {', '.join(f'`{name}.{fact}`' for fact in unused)}: the seat {consequence}"


def _check_senders(role: Role, views: Sequence[View]) -> Iterable[str]:
    """Yield a warning if the turn template shows messages without their senders: players could pose as the referee."""
    for view in views[:1]:
        samples = [Message.of(sender, SAMPLE_TEXT) for sender in ("referee", f"not {view.seat}")]
        first, second = (role.render_turn(view._replace(messages=(message,)), first=False) for message in samples)
        if first == second and SAMPLE_TEXT in first:
            yield "turn: shows what was said but not by whom, so it can be forged: write `{{ m.sender }}: ` before it"


def _list_texts(role: Role) -> list[str]:
    return [role.system, role.turn, *(example.say for example in role.examples)]


def _check_turns(views: Sequence[View], turns: Sequence[str]) -> Iterable[str]:
    for view, turn in zip(views, turns, strict=True):
        if not turn:
            yield f"turn: nothing is shown at turn {view.turn + 1} of seat {view.seat}"
