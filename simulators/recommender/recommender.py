"""Recommender game: show pages of a catalogue to users with hidden taste, price cap and patience, over several days.

Catalogues, users and numbers are invented unless options name files. As in RecoWorld, a user gives one true instruction
before it leaves; slates, choices and satisfaction over time follow RecSim.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import numpy as np

from games.base import IllegalAct, choice, flag, number, to_one_line, whole_number
from simulators.base import Script
from simulators.embedding import Embedding
from simulators.person import PERSONAS
from simulators.played import FINE, LEAVING, Faults, PersonGame
from simulators.recommender import acts, page, players, speech, yardstick
from simulators.recommender.audience import LOW_PATIENCE, Reaction
from simulators.recommender.catalogue import Item
from simulators.recommender.chance import uniform
from simulators.recommender.dealing import DealSettings, make_limits, make_shelf_key
from simulators.recommender.index import load_shelf
from simulators.recommender.record import (
    USER_PERSONAS,
    Floats,
    Record,
    draw_record,
    draw_taste,
    draw_twins,
    restore_record,
)
from simulators.recommender.seat import Seat
from simulators.recommender.service import MAX_FINDS, Service
from simulators.recommender.wishes import TOPICS, Wish, answer_question, choose_instruction
from simulators.recommender.words import LETTERS

RECOMMENDER, USER, SHOP = "recommender", "user", "shop"
WORDING = 30
"""Key of the random draw of a statement's template."""
MAX_USERS, MAX_LISTED = 10_000, 300
FLOOR_DEALS = 400
WEIGHTS = {"click": 0.1, "instruction": 0.1, "retention": 0.5, "diversity": 0.1}
"""Weights of reward parts. `satisfaction`, the joy itself, has weight 1. Recipes can reweight all parts."""


class Recommender(PersonGame):
    """Recommender game: show pages of books to users with hidden tastes, who come back if they are pleased.

    Acts: SHOW n n n | words (candidates by number, and the reason), ASK genre|price|dislikes, FIND words. The joy of
    pages keeps up a user's patience and decides whether it comes back: `simulators.recommender.audience`.

    Options in addition to PersonGame's:
    catalogue: number of generated items, from 20 to 100,000, or a CSV file (`simulators.recommender.catalogue.load`).
    edition: seed of a generated catalogue.
    embedding: "hashed" (words; light) or "minilm" (sentence-transformers, offline), for FIND and similar items.
    ids: "numbers" (candidates by number) or "semantic" (residual k-means codes, by which any item may be shown).
    users: number of users. If there are several, friends recommend items to each other; 100 or more form several
    segments (`simulators.recommender.population`).
    days, pages (per visit), slate (items per page), candidates (to choose a page from): sizes of a match.
    steepness: tastes are drawn from Dirichlet(1/steepness): 1 is uniform, at 8 a favourite dominates; default 4.
    ratings: CSV file of real ratings, to which genres and tastes are fitted (`simulators.recommender.ratings`).
    person: `simulators.recommender.seat` describes a user's seat.
    terse: abbreviate acts and facts to few tokens, for tiny models, without FIND.

    Reward parts: `satisfaction`, the joy of a page; .1 for each `click`; .1 for a page that follows the latest
    `instruction` of the visit; .5 for each visit after which the user is willing to return (`retention`); .1 times the
    number of different main genres on a page divided by its items (`diversity`).
    """

    name = "recommender"
    metadata: ClassVar[dict[str, Any]] = {"name": "recommender_v0", "render_modes": ["ansi"]}
    reward_parts: Mapping[str, str] = {
        "satisfaction": "the joy of a page", "click": ".1 per click",
        "instruction": ".1 for a page that follows the user's instruction",
        "retention": ".5 for a visit after which the user would return",
        "diversity": ".1 x the share of different genres on a page",
        "reading": "the user's text was rejected", "wrong": "the user said something false",
        "secret": "the user revealed a wish unasked",
    }  # fmt: skip
    personas = USER_PERSONAS
    players: Mapping[str, Callable[[Recommender, int], Script]] = players.PLAYERS
    seats: tuple[str, ...] = (RECOMMENDER,)
    person_seat = USER
    whole_acts = True
    rules_version = 2

    def __init__(
        self,
        *,
        catalogue: int | str = 1000,
        edition: int = 0,
        embedding: Embedding = "hashed",
        ids: Literal["numbers", "semantic"] = "numbers",
        users: int = 1,
        days: int = 3,
        pages: int = 6,
        slate: int = 3,
        candidates: int = 9,
        steepness: float | None = None,
        ratings: str = "",
        terse: bool = False,
        penalty: float = 0.1,
        **options: Any,
    ) -> None:
        self.key, self.concentration = make_shelf_key(catalogue, edition, embedding, ratings, steepness)
        self.steepness = number("steepness", 4.0 if steepness is None else steepness, 0.1)
        self.codes = choice("ids", ids, "numbers", "semantic") == "semantic"
        self.users = whole_number("users", users, 1, MAX_USERS)
        self.terse = flag("terse", terse)
        self.limits = make_limits(days, pages, slate, candidates, self.terse)
        if self.terse and self.codes:
            raise ValueError('ids must be "numbers" if terse is true')
        self.shelf = load_shelf(self.key)
        """Items, vectors and search index, shared by all matches of the process."""
        file = ratings or catalogue
        if isinstance(file, str) and (text := speech.find_misread_text(self.shelf.catalogue)):
            raise ValueError(f"{file}: the users' text `{text}` is parsed wrongly: rename the genres in it")
        super().__init__(penalty=penalty, talk=False, **options)

    @property
    def deal_settings(self) -> DealSettings:
        """Settings of the deals. Tastes are fitted to the ratings if there are any, else follow `steepness`."""
        even = np.full(len(self.shelf.catalogue.genres), 1 / self.steepness)
        return DealSettings(
            self.shelf, self.limits, self.users, np.array(self.concentration) if self.concentration else even
        )

    @property
    def floor(self) -> float:
        """Success rate of random play, estimated by simulating it on up to `FLOOR_DEALS` drawn deals."""
        game, yardsticks = self.clone(), []
        for seed in range(max(4, FLOOR_DEALS // self.users)):
            game.reset(seed=seed)
            yardsticks.append(game.yardstick)
        return yardstick.estimate_floor(yardsticks)

    # Methods of TextGame and Simulator.

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Draw the users, or copy all from the reset option `record` (see `twin_deals`), and start the first visit."""
        deal_rng = rng.spawn(1)[0]
        if "record" in options:
            deal = self.deal_settings.make_deal(deal_rng, (restore_record(options["record"]),) * self.users)
            self.yardstick = yardstick.measure(deal)
        else:
            deal, self.yardstick = self.deal_settings.draw_deal(deal_rng, self._draw_user)
        self.service, self.tally = Service(deal), yardstick.Tally()
        self.seat = Seat(self.person, self.terse)
        self.instruction: Wish | None = None
        """The latest instruction of the user in this visit."""
        self.has_instructed = self.is_binding = False
        self.stated_wishes: set[Wish] = set()
        """Wishes that any user has stated."""
        self._greet()
        self.agent_selection = self.next_seat(RECOMMENDER)

    def rules(self) -> str:
        """Return the rules: acts and their effects; in terse mode only the codes."""
        limits = self.limits
        return acts.rules(limits.slate, limits.days, limits.pages, self.terse, self.codes, self.can_steer)

    def public(self) -> dict[str, Any]:
        """Return "day" and "page" from 1; with several users also "visitor", from 1, and its "segment", a letter."""
        service = self.service
        facts: dict[str, Any] = {"day": min(service.day + 1, self.limits.days), "page": service.page + 1}
        if self.users > 1:
            facts |= {"visitor": service.user_index + 1, "segment": LETTERS[service.visitor.record.segment].upper()}
        return facts

    def private(self, seat: str) -> dict[str, Any]:
        """Return the candidates, the user's statements and the remaining searches; for the user's seat `Seat.facts`."""
        if seat == USER:
            return self.seat.facts(self.service.visitor, self.shelf.catalogue)
        if self.terse:
            return {"marks": page.mark_page(self.service)}
        statements = self.service.history.facts(self.shelf.catalogue)
        return {
            "candidates": page.describe_candidates(self.service, self.codes),
            **statements,
            "finds": MAX_FINDS - self.service.finds,
        }

    def legal(self, seat: str) -> list[str] | None:
        """Return all full pages and questions, or None for over `MAX_LISTED` pages. Other acts may be legal too."""
        if seat == USER:
            return self.seat.legal(self.shelf.catalogue, self.service.visitor.record.cap)
        if math.comb(len(self.service.candidates), self.limits.slate) > MAX_LISTED:
            return None
        slates = itertools.combinations(self.service.candidates, self.limits.slate)
        names = self.names()
        listed = [acts.Act("show", slate) for slate in slates] + [acts.Act("ask", words=topic) for topic in TOPICS]
        return [acts.format_act(act, names, self.terse) for act in listed]

    def next_seat(self, seat: str) -> str:
        """Return the user's seat if it owes a statement, else the recommender's."""
        return USER if self.seat.due else RECOMMENDER

    def play(self, seat: str, act: str) -> str:
        """Play an act or the user's text. Returns the text for the other seat. Raises IllegalAct for an invalid act."""
        if seat == USER:
            return self._listen(act)
        service, names = self.service, self.names()
        ids = self.shelf.by_code if self.codes else {name: item for item, name in names.items()}
        parsed = acts.read_act(act, ids, self.limits.slate, self.terse)
        if parsed.kind == "find":
            if service.finds >= MAX_FINDS:
                raise IllegalAct(f"only {MAX_FINDS} searches a page: SHOW something")
            service.find(parsed.words)
        elif parsed.kind == "ask":
            self._ask(parsed.words)
        else:
            names |= {item: self.shelf.codes[item] for item in parsed.items} if self.codes else {}
            self._show(parsed, names)
        return acts.format_act(parsed, names, self.terse)

    def figures(self) -> dict[str, float | bool | str]:
        """Return the score (users' joy, scaled between random and oracle play) and statistics (`Tally.figures`)."""
        return {**self.tally.figures(self.service, self.yardstick), **self.seat.figures()}

    def twin_deals(self, seat: str, rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Return reset options of two users who behave alike but differ in hidden properties; None for `USER`."""
        if seat != RECOMMENDER:
            return None
        prices, keep_cap = [item.price for item in self.shelf.catalogue.items], self.can_steer
        one, two = draw_twins(self.service.deal.records[0], (min(prices), max(prices)), keep_cap, rng)
        return one.as_options(), two.as_options()

    def hidden(self) -> dict[str, tuple[str, ...]]:
        """Return texts that reveal the user's taste, and its favourite, dislikes and cap unless already stated."""
        record, catalogue = self.service.visitor.record, self.shelf.catalogue
        secrets = [Wish("more", record.favourite), Wish("under", record.cap)]
        secrets += [Wish("less", genre) for genre in record.disliked]
        taste = str(round(max(record.taste), 2))
        return {"taste": (f"taste {taste}", f"likes {catalogue.genres[record.favourite]}")} | {
            f"{wish.kind} {wish.value}": (*speech.list_wordings(wish, catalogue), speech.as_fact(wish, catalogue))
            for wish in secrets
            if wish not in self.stated_wishes
        }

    def check_person(self, text: str) -> Faults:
        """Return the faults of a played user's text (`Seat.check`)."""
        return self.seat.check(text, self.service.visitor, self.shelf.catalogue)

    # Effects of a turn.

    @property
    def can_steer(self) -> bool:
        """True if the user's seat chooses its statements freely."""
        return self.person in ("free", "played")

    def _greet(self) -> None:
        """Start a visit. On its first day, a user that volunteers states its favourite, unless its seat is free.

        A played user may speak at the start of every visit.
        """
        visitor, self.is_binding = self.service.visitor, False
        volunteers = visitor.day == 0 and visitor.record.volunteers
        wish = Wish("more", visitor.record.favourite) if volunteers and self.person != "free" else None
        if self.is_played:
            self.seat.request(self._word_wish(wish) if wish else "", wish)
        elif wish:
            self.tell(self._word_wish(wish), RECOMMENDER, sender=USER)
            self._record_wish(wish)

    def _show(self, act: acts.Act, names: Mapping[int, str]) -> None:
        service, visitor = self.service, self.service.visitor
        items = service.items(act.items)
        self._pay_instruction(items)
        before, when = visitor.mindset.round_for_log(), {"day": service.day + 1, "page": service.page + 1}
        reaction = service.show(list(act.items), self.shelf.catalogue.find_genres(act.words))
        self._pay_page(reaction, items)
        clicked = " ".join(names[item] for item in reaction.clicked)
        self.tell(f"Clicked: {clicked or 'nothing'}.", RECOMMENDER, sender=SHOP)
        self.seat.before = before
        if visitor.number == 0:
            self.tally.log.append({**when, "before": before, "after": visitor.mindset.round_for_log()})
        if self._continue_visit():
            self._respond(reaction, items)

    def _pay_instruction(self, items: list[Item]) -> None:
        """If any candidate fits the user's instruction, pay and count whether the page follows it."""
        wish = self.instruction
        if wish is not None and any(map(wish.fits, self.service.items(self.service.candidates))):
            is_followed = wish.is_satisfied_by(items)
            self.tally.count_instruction(is_followed)
            self.pay(RECOMMENDER, "instruction", WEIGHTS["instruction"] * is_followed)

    def _pay_page(self, reaction: Reaction, items: list[Item]) -> None:
        """Pay the rewards of a page."""
        spread = self.tally.count_page(reaction, items)
        self.pay(RECOMMENDER, "satisfaction", reaction.joy)
        self.pay(RECOMMENDER, "click", WEIGHTS["click"] * len(reaction.clicked))
        self.pay(RECOMMENDER, "diversity", WEIGHTS["diversity"] * spread)
        if self.person == "free":
            self.pay(USER, "satisfaction", reaction.joy)

    def _ask(self, topic: str) -> None:
        """Ask the user, which costs patience. Unless that ends the visit, the user answers."""
        self.tally.questions += 1
        self.service.ask()
        if self._continue_visit():
            self._say(answer_question(self.service.visitor, topic))

    def _continue_visit(self) -> bool:
        """Return True if the visit continues. Else pay for retention, and start the next visit or end the match."""
        visitor = self.service.visitor
        if self.service.continue_visit():
            return True
        self.instruction, self.has_instructed = None, False
        self.pay(RECOMMENDER, "retention", WEIGHTS["retention"] * visitor.still_visits)
        news = f"The user leaves, and {'means to come' if visitor.still_visits else 'will not come'} back."
        if self.service.is_over:
            self.tell(news, RECOMMENDER, sender=SHOP)
            self.end("closed", "The shop is closed.")
            return False
        if self.service.visitor is not visitor:
            self.seat.before = {}
        user = f", user {self.service.user_index + 1}" if self.users > 1 else ""
        self.tell(f"{news} Day {self.service.day + 1}{user}.", RECOMMENDER, sender=SHOP)
        self._greet()
        return False

    def _respond(self, reaction: Reaction, items: list[Item]) -> None:
        """Let the user react to a page: with an instruction, once per visit at low patience, or with a complaint."""
        visitor = self.service.visitor
        if visitor.mindset.patience < LOW_PATIENCE and not self.has_instructed:
            self.has_instructed = True
            self._say(choose_instruction(visitor, items), is_binding=True)
            return
        complains = not reaction.clicked and (reaction.too_expensive or reaction.disliked)
        complaint = (speech.TOO_EXPENSIVE if reaction.too_expensive else speech.UNINTERESTING) if complains else ""
        if self.can_steer:
            self.is_binding = self.is_played
            self.seat.request(complaint if self.is_played else "", None)
        elif complaint:
            self.tell(complaint, RECOMMENDER, sender=USER)

    def _say(self, wish: Wish | None, is_binding: bool = False) -> None:
        """State a wish with the script's words, or ask the user's seat to word it.

        `is_binding` makes the wish an instruction, which pages are rewarded for following.
        """
        words = self._word_wish(wish)
        self.is_binding = is_binding
        if self.person == "script":
            self.tell(words, RECOMMENDER, sender=USER)
            self._record_wish(wish)
        else:
            self.seat.request(words, wish, is_question=not is_binding)

    def _listen(self, text: str) -> str:
        """Check and fine the user's text. Returns the text for the recommender, or "" if the seat must speak again."""
        text = to_one_line(text)
        if self.is_played and not self.admit_text(text):
            return ""
        reading = self.seat.hear(text, self.service.visitor, self.shelf.catalogue)
        if reading is None:
            self.pay(USER, "reading", -FINE)
            self.tell(f"Say this and nothing else: {self.seat.template}", USER)
            return ""
        words, wish, fine = reading
        if fine:
            self.pay(USER, "reading", -fine)
        self.is_binding = self.is_binding or self.person == "free"
        self._record_wish(wish)
        if self.is_played and LEAVING.search(words):
            self.service.visitor.mindset.patience = 0.0
            self._continue_visit()
        return words

    def _record_wish(self, wish: Wish | None) -> None:
        """Record a stated wish and, if it is binding, make it the visit's instruction. None is ignored."""
        if wish is None:
            return
        self.stated_wishes.add(wish)
        self.service.history.record_wish(wish)
        if self.is_binding:
            self.instruction = wish

    def _word_wish(self, wish: Wish | None) -> str:
        """Return the wish as a sentence in the current user's manner; for None a sentence of doubt."""
        service, visitor = self.service, self.service.visitor
        share = uniform(visitor.key, WORDING, service.day, service.page)
        return speech.word_wish(wish, self.shelf.catalogue, PERSONAS[visitor.record.persona].manner, share)

    def names(self) -> dict[int, str]:
        """Return the names of the page's candidates, by item id."""
        return page.name_candidates(self.service, self.codes)

    def _draw_user(self, rng: np.random.Generator, concentration: Floats, segment: int) -> Record:
        """Draw a user of the game's split and persona."""
        persona = self.draw_persona(rng)
        record: Record = self.draw_entity(
            lambda: draw_record(rng, draw_taste(rng, concentration), persona, segment, self.shelf.catalogue.caps),
            lambda record: str(record.entity),
        )
        return record
