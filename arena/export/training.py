"""Chat templates of exported chats and weights, in which `{% generation %}` marks the replies to train on."""

from __future__ import annotations

from pathlib import Path

from agents.adapter_config import is_adapter
from agents.chat import ChatFrame
from agents.errors import ChatError, WeightsError
from agents.policy import load_tokenizer_and_frame
from agents.training_template import build_frame_template, mark_template, mark_tool_template
from arena.export.chats import Chats
from arena.store.files import write_atomic

TEMPLATE = "chat_template.jinja"


def mark_replies(folder: Path) -> list[str]:
    """Overwrite the chat template of exported weights with one that marks replies by `{% generation %}`.

    Does not change an adapter's folder. Returns notes for the user if the template has no system turn, prints the time,
    or rewrites thoughts of earlier replies.
    """
    if is_adapter(folder):
        return []
    tokenizer, frame = load_tokenizer_and_frame(folder)
    write_atomic(folder / TEMPLATE, mark_template(tokenizer, frame))
    if frame.parts.system != "turn":
        return ["its chat template has no system turn: replies are not marked for training"]
    notes = ["prints the time"] if frame.prints_time else []
    notes += ["rewrites thoughts of earlier replies"] if frame.rewrites_thoughts else []
    return [f"its chat template {note}: to train on chats, use the {TEMPLATE} of --as chats" for note in notes]


def write_templates(chats: Chats, to: Path) -> list[str]:
    """Write chat templates that render the chats as the policies read them into the folder `to`.

    The file is chat_template.jinja, or one POLICY.jinja per policy if their templates differ. Returns notes for the
    user, such as why a policy has no template.
    """
    notes, by_policy = [], dict[str, str]()
    for policy, folder in chats.folders().items():
        try:
            tokenizer, frame = load_tokenizer_and_frame(folder)
        except (ChatError, WeightsError) as why:
            notes.append(f"{policy}: no {TEMPLATE}, because {why}")
            continue
        template = (
            mark_tool_template(tokenizer, frame) if chats.has_tools and frame.tools else build_frame_template(frame)
        )
        if template:
            by_policy[policy] = template
        notes += _explain_template(policy, frame, chats)
    for policy, template in by_policy.items():
        is_only_template = len(set(by_policy.values())) == 1
        write_atomic(to / (TEMPLATE if is_only_template else f"{policy}.jinja"), template)
    return notes


def _explain_template(policy: str, frame: ChatFrame, chats: Chats) -> list[str]:
    if frame.parts.system != "turn":
        return [f"{policy}: its chat template has no system turn, so no template renders the chats as they were read"]
    if chats.has_tools and frame.tools and frame.tools.rewrites:
        return [
            f"{policy}: its chat template moves definitions of tools or changes earlier turns, unlike what was read"
        ]
    if frame.rewrites_thoughts and any(role.history == "keep" for role in chats.roles.values()):
        complaint = f"{policy}: its own chat template rewrites thoughts of earlier replies"
        return [f"{complaint}, which were read as they stand in the chats: train with {TEMPLATE}"]
    return []
