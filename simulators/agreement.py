"""Classification of replies to a proposal ("Shall I cancel order 12345?") as acceptance, refusal or neither.

A reply agrees if a part of it starts with assent, no part starts with refusal or doubt, and nothing in it sets a
condition or withdraws the assent. Facts beside it ("Yes, it never came") are no objection. Ambiguous replies count as
doubt, never as a yes. English only. Phrase lists are used instead of an embedding because consent must be read the same
on every machine, with and without extras.
"""

from __future__ import annotations

import re

from simulators.extractor import Stance, normalise_text


def _join_phrases(phrases: str) -> str:
    """Return a regular expression, as text, that matches any of the semicolon-separated phrases."""
    return f"(?:{'|'.join(' '.join(phrase.split()) for phrase in phrases.split(';'))})"


def _match_at_start(phrases: str) -> re.Pattern[str]:
    """Compile semicolon-separated phrases to a pattern that matches them at the start of a clause."""
    return re.compile(f" {_join_phrases(phrases)}(?= )")


def _match_anywhere(phrases: str) -> re.Pattern[str]:
    """Compile semicolon-separated phrases to a pattern that finds them anywhere, as whole words."""
    return re.compile(f"(?<= ){_join_phrases(phrases)}(?= )")


# Phrases are written as `_normalise` leaves them: folded, without contractions.
SHORT = {
    "cannot": "can not", "cant": "can not", "wont": "will not", "shant": "shall not", "im": "i am", "id": "i would",
    "ill": "i will", "ive": "i have", "thats": "that is", "its": "it is", "lets": "let us", "thatll": "that will",
    "itll": "it will", "youd": "you would", "pls": "please", "plz": "please", "yess": "yes", "okey": "okay",
    "anymore": "any more", "whats": "what is",
}  # fmt: skip
CONTRACTED = re.compile(
    rf"(?<= )(?:{'|'.join(SHORT)}|(do|does|did|is|are|was|were|has|have|had|would|could|should|must)nt)(?= )"
)
FILLER = _match_anywhere(r"""
    just; really; actually; honestly; still; also; hereby; fully; completely; totally; entirely; quite; much;
    to be honest
""")
VERBS = "(?:agree|accept|approve|confirm|consent|authori[sz]e|allow|permit)"
WISHES = f"(?:want|wanted|think|wish|ask|asked|say|said|mean|meant|do|go|proceed|believe|{VERBS})"
GOOD = "(?:right|correct|true|fine|ok|okay|good|great|perfect|wonderful|excellent|lovely|acceptable|alright|all right)"
EMPHATIC = "(?:certainly|definitely|absolutely|surely|sure|of course|naturally|obviously)"
IT = "(?:that|this|it|everything|all|all of (?:that|it)|which)"

AGREEING = _match_anywhere(r"""
    (?:no|not a|not any) (?:problems?|issues?|worries|trouble); i (?:do|would) not mind(?: at all)?;
    (?:i do not see )?why not(?: \?)?; i could not agree more;
    i do not have (?:any |an? )?(?:objections?|problems?|issues?);
    (?:i (?:have|see) |there (?:is|are) )?(?:no|not any) (?:objections?|concerns?|complaints)(?: at all)?
""")
"""Agrees, although it contains a no."""
IDLE = _match_anywhere(r"""
    (?:no|without a|without any|beyond) doubt; no (?:rush|hurry); (?:do not|no need to) (?:worry|hurry|rush|wait);
    if you (?:please|would|could|can|do not mind); if possible;
    if (?:that|it) is (?:ok|okay|fine|all right|possible);
    (?:let me know )?if (?:you need|there is) (?:\w+ )?(?:anything|something|more|else)(?: else| more)?;
    let me know (?:when|once) (?:you|it|that); i can not wait; no (?:further|other|more) questions;
    (?:i |we )?(?:do|does|did|will) not (?:want|need|use|like) (?:\w+ ){1,4}any (?:more|longer)
""")
"""Neither refuses nor sets a condition, although it contains a no or an if."""
OPENER = _match_at_start(r"""
    well; hm+; mm; uh; um; oh; ah; hello; hi; hey; so; and; then; sorry; please; kindly; in that case; thanks;
    thank you(?: so| very)?; i (?:think|believe|mean|meant|say|said|would say|have to say)(?! so );
    i am (?:afraid|sorry); let me think; sir; maam; madam; my answer is; the answer is; (?:it|that) is a; now; rather;
    hell; god; dear
""")
UNSURE = _match_at_start(r"""
    (?:i am )?not (?:so |too |very )?(?:sure|certain); unsure; uncertain; undecided; perhaps; maybe; possibly;
    hard to (?:say|tell); (?:i have )?no (?:idea|clue); wait; hold on; hang on; not so fast;
    (?:a|one) (?:moment|second|minute); let me (?:check|see|think); (?:i )?(?:guess|suppose);
    (?:it |that )?depends; i (?:do|can|could) not (?:know|say|tell|decide); i need (?:time|to think); (?:i )?might;
    i am thinking
""")
"""Doubt. This and the next two patterns count at the start of a clause."""
REFUSAL = _match_at_start(rf"""
    no; nope; nah; naw; never; nevermind; not; none; neither; negative; do not; stop; incorrect; wrong; declined?;
    refused?; rejected; denied; disagree; rather not; {EMPHATIC} not; under no circumstances; by no means;
    forget (?:it|that|about); leave (?:it|that|everything|things); hold off; do nothing; let us not; abort; better not;
    (?:i will )?pass; there is no need; i (?:disagree|refuse|decline|object|reject); i (?:have )?changed my mind;
    i am (?:against|not (?:happy|ok|okay|fine|good|interested|in favou?r));
    (?:i )?(?:would|had|will) (?:rather|prefer)(?: you| that you| if you| it| to)? (?:did |do )?not;
    i (?:do|did|can|could|will|would|must) not(?:(?= $)| (?:\w+ )?{WISHES}); i never {WISHES};
    you (?:may|must|can|could|should|shall|need|do) not;
    (?:that|this|it|which) (?:is|was|would be|looks|sounds|seems) not (?:what|{GOOD}|it|that|necessary|needed);
    (?:that|this|it|which) (?:is|was|looks|sounds|seems) (?:wrong|incorrect);
    (?:that|this|it) (?:does|do|will|would) not (?:work for|sound|look|seem|suit)
""")
ASSENT = _match_at_start(rf"""
    yes; yeah; yea; yep; yup; ya; aye; {EMPHATIC}; indeed; affirmative; for sure; by all means; with pleasure;
    gladly; exactly; precisely; agreed; accepted; approved; confirmed; granted; permission granted; proceed;
    carry on; continue; go (?:ahead|for it|on); do (?:it|that|this|so); make (?:it so|that happen|it happen);
    let us (?:do|go); i (?:do )?{VERBS}; i am sure; i (?:think|believe) so;
    i would (?:like|love|appreciate) (?:that|it|this|you to); i (?:do )?want (?:that|it|this|you to);
    i am (?:happy|ok|okay|fine|good|glad|all right) (?:with|for|to|by); {IT} is it;
    (?:{IT} is |exactly )?(?:exactly )?what i (?:want|wanted|asked|meant|would like);
    {IT} (?:all )?(?:is|are|would be|will be|sounds|looks|seems|works)(?: all| very)? {GOOD};
    (?:sounds?|looks?|seems?|works)(?: very| all)? {GOOD}; {GOOD} (?:with|by|for) me;
    (?:{IT} )?works(?: for me|(?= $)); (?:that|this|it) will do;
    you (?:can|may|should|could) (?:go|do|proceed|{VERBS});
    you have my (?:\w+ )?(?:permission|consent|approval|agreement|authori[sz]ation|ok|okay|go ahead|yes|confirmation);
    be my guest; you bet; i (?:would like|want) to (?:go ahead|proceed|do (?:that|it|so));
    {IT} is (?:the|my) (?:right|correct)
""")
ACKNOWLEDGED = _match_at_start("ok;okay;alright;all right")
"""Agrees whatever follows, unless the reply asks a question."""
WHOLE = re.compile(
    rf" (?:(?:very|all|well) )?(?:{GOOD}|please|i do|do|well|cool|super|deal|k|y)"
    rf"(?: (?:{GOOD}|then|thanks|thank|you|so|very|please|sir|maam|do))* $"
)
"""Agrees if it is the whole clause."""
OBJECTION = _match_anywhere(r"""
    but; except; excluding; unless; until; till; however; though; although; otherwise; provided; on condition;
    as long as; first (?:tell|show|let|check|i|you); (?:before|once|after) (?:you|i);
    (?:tell|show|let|check|send|explain) (?:\w+ ){1,6}first; only (?:if|when|once|the|one|for|after);
    (?:a|one|some|few|more|another) questions?; changed my mind; (?:scratch|ignore|strike) that; on second thought;
    take (?:that|it) back
""")
"""Limits an assent anywhere in the reply."""
CONDITION = _match_anywhere(rf"""
    if; whether; wait; hold on; hang on; stop; not sure; unsure; maybe; perhaps; i guess; i suppose; i wonder;
    i (?:\w+ )?(?:do|did|can|could|will|would|must) not (?:\w+ )?{WISHES};
    do not (?:do|go|proceed|charge|touch|cancel|change|send|take|make);
    not (?:the|that|this|yet|now|today|all|both|every|any|until|for|to|with|so|what|{GOOD})
""")
"""Limits an assent, except inside a question beside it."""
MARK = re.compile(r"(?<= )([.!?;])(?= )")
PART = re.compile(r",| but | or | and (?!no )| so (?!much )(?=\w)")
LEXICON = frozenset(
    word for each in (OPENER, ASSENT, REFUSAL, WHOLE, AGREEING) for word in re.findall(r"[a-z]{2,}", each.pattern)
)
"""Words of these phrases, which express only a stance."""


def read_agreement(text: str) -> Stance | None:
    """Classify a reply to a proposal: "inform" accepts it, "deny" refuses it, "unknown" is unclear.

    Returns None if the reply does not answer the proposal. Mixed, conditional or withdrawn assent is "unknown".
    """
    stances: set[Stance] = set()
    is_question = is_acknowledged = is_limited = False
    pieces = [*MARK.split(_normalise(text.replace("*", ","))), ""]
    for sentence, mark in zip(pieces[::2], pieces[1::2], strict=True):
        parts = [f" {' '.join(part.split())} " for part in PART.split(sentence)]
        parts = [part for part in parts if part != " please "] or parts  # "Don't, please" is no yes
        if mark == "?":
            # Only words before a comma answer: "Sure, how long does it take?", but not "What if I say yes?"
            is_question, parts = True, parts[:-1][:1]
        is_limited |= bool(OBJECTION.search(sentence) or (mark != "?" and CONDITION.search(sentence)))
        for part in map(_without_openers, parts):
            is_acknowledged |= bool(ACKNOWLEDGED.match(part) or WHOLE.match(part))
            stances |= {stance for stance in (_classify_clause(part),) if stance}
    if stances == {"inform"} and (is_limited or (is_question and is_acknowledged)):
        return "unknown"
    return "unknown" if len(stances) > 1 else next(iter(stances), None)


def _normalise(text: str) -> str:
    """Normalise a reply to words: contractions expanded, fillers and idle phrases dropped, "no problem" as "yes"."""
    plain = re.sub(r"(\w)\1{2,}", r"\1", normalise_text(text))
    plain = CONTRACTED.sub(lambda found: SHORT.get(found[0], f"{found[1]} not"), plain)
    plain = FILLER.sub("", plain)
    return re.sub(" +", " ", IDLE.sub("", AGREEING.sub("yes", re.sub(" +", " ", plain))))


def _without_openers(part: str) -> str:
    """Return a clause without leading openers such as "well" or "thanks", unless nothing else would be left."""
    while (found := OPENER.match(part)) and found.end() < len(part) - 1:
        part = part[found.end() :]
    return part


def _classify_clause(part: str) -> Stance | None:
    """Return the stance that a clause starts with, or None if it starts with none.

    "inform" is assent, "deny" refusal, and "unknown" doubt, or assent directly followed by refusal or doubt.
    """
    if UNSURE.match(part):
        return "unknown"
    if REFUSAL.match(part):
        return "deny"
    found = ASSENT.match(part) or ACKNOWLEDGED.match(part)
    if found:
        rest = _without_openers(part[found.end() :])
        return "unknown" if REFUSAL.match(rest) or UNSURE.match(rest) else "inform"
    return "inform" if WHOLE.match(part) else None
