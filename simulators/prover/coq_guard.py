"""Validation of the sentences sent to Coq: one tactic from a list, with arguments that cannot run anything else."""

from __future__ import annotations

import re

HEADS = (
    "apply", "assert", "assumption", "auto", "case", "clear", "compute", "congruence", "constructor",
    "contradiction", "destruct", "discriminate", "eapply", "easy", "eauto", "elim", "exact", "exfalso", "exists",
    "f_equal", "generalize", "induction", "injection", "intro", "intros", "inversion", "left", "lia", "reflexivity",
    "revert", "rewrite", "right", "ring", "simpl", "specialize", "split", "subst", "symmetry", "tauto",
    "transitivity", "trivial", "unfold",
)  # fmt: skip
"""Tactics with which a sentence may begin. None of them defines, loads, prints or writes anything."""
FORBIDDEN = frozenset(
    {"ltac", "ltac2", "admit", "give_up", "abstract", "Admitted", "Abort", "Axiom", "Set", "Unset", "Require", "Load",
     "Drop", "Redirect", "Extraction", "Eval", "Compute", "Goal", "Qed", "Defined", "by", "external", "native_compute",
     "vm_compute", "vm_cast_no_check", "native_cast_no_check", "fix", "cofix", "idtac", "solve", "repeat", "do", "try"}
)  # fmt: skip
MAX_CHARACTERS = 200
_ALLOWED = re.compile(r"[A-Za-z0-9_' ().,:=+*<>/\\\-~|&\[\]@]*")
_HEAD = re.compile(r"[A-Za-z_]+")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_']*")


def read_sentence(text: str, lemma: str) -> str:
    """Return a tactic sentence in normal form: single blanks, the tactic in lower case, one full stop at the end.

    Raises ValueError, with the reason, for more than one sentence, a tactic that is not listed, a forbidden character
    or word, and the name of the lemma to prove (the last part of `lemma`).
    """
    sentence = " ".join(text.split())
    if not sentence or len(sentence) > MAX_CHARACTERS:
        raise ValueError(f"write one tactic of at most {MAX_CHARACTERS} characters, such as intros.")
    body = sentence.removesuffix(".").rstrip()
    if not _ALLOWED.fullmatch(body):
        raise ValueError("letters, digits, blanks and _'().,:=+*<>/\\-~|&[]@ only")
    if re.search(r"\.( |$)|\(\*|\*\)|\|\||<:", body):  # the last is a cast that compiles
        raise ValueError("one tactic at a time, without comments, || and <:")
    if re.search(r"[0-9]{4}", body):  # Coq expands a number to as many constructors
        raise ValueError("numbers have at most three digits")
    words = _WORD.findall(body)
    if forbidden := [word for word in words if word in FORBIDDEN]:
        raise ValueError(f"{forbidden[0]} is not allowed")
    if lemma.rpartition(".")[2] in words:
        raise ValueError("the theorem may not be used to prove itself")
    head = _HEAD.match(body)
    if not head or head[0].lower() not in HEADS:
        raise ValueError(f"a sentence begins with one of {', '.join(HEADS)}")
    return f"{head[0].lower()}{body[head.end() :]}."
