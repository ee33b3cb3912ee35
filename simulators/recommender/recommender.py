"""Recommender game: serve pages of a catalogue to users with hidden taste, budget and patience, over several days.

Catalogues, users and numbers are invented unless options name files. From RecoWorld comes the user who states one true
complaint before it leaves; from RecSim come slates, choices and satisfaction over time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import numpy as np

from games.base import IllegalAct, choice, flag, number, one_line, whole_number
from simulators.base import Answer
from simulators.embedding import Embedding
from simulators.person import PERSONAS
from simulators.played import FINE, LEAVING, Checked, PersonGame
from simulators.recommender import acts, page, players, speech, yardstick
from simulators.recommender.audience import LOW, Reaction
from simulators.recommender.catalogue import Item
from simulators.recommender.chance import uniform
from simulators.recommender.dealing import Table, make_limits, shelf_key
from simulators.recommender.index import shelf
from simulators.recommender.record import MANNERS, Floats, Record, draw_record, draw_taste, record_from, twins_of
from simulators.recommender.seat import Seat
from simulators.recommender.service import FINDS, Service
from simulators.recommender.wishes import TOPICS, Wish, answer, instruction
from simulators.recommender.words import LETTERS

RECOMMENDER, USER, SHOP = "recommender", "user", "shop"
WORDING = 30
"""Key of the random draw of a template."""
MOST_USERS, MOST_LISTED = 10_000, 300
FLOOR_DEALS = 400
WEIGHTS = {"click": 0.1, "instruction": 0.1, "retention": 0.5, "diversity": 0.1}
"""Reward weights besides `satisfaction`, which pays the joy itself; recipes can reweigh all parts."""


class Recommender(PersonGame):
    """Recommender game: pages of books for users with hidden tastes, who come back if they are pleased.

    Acts: SHOW n n n | words (candidates by number, and why), ASK genre|price|dislikes, FIND words. A page's joy decides
    on a user's patience, and that on whether it comes back: `simulators.recommender.audience`.

    Options besides PersonGame's:
    catalogue: how many items are generated, from 20 to 100,000, or a CSV file of your own
    (`simulators.recommender.catalogue.load`); edition: the seed of a generated one.
    embedding "hashed" (words; light) or "minilm" (sentence-transformers, offline): what FIND and likeness go by.
    ids "numbers" (candidates by number) or "semantic" (residual k-means codes, by which any item may be shown).
    users: how many visit; over 1 they have friends, and tell them of what they enjoyed; from 100 on they are of
    several segments (`simulators.recommender.population`).
    days, pages (of a visit), slate (items of a page), candidates (to choose from).
    steepness: of tastes, which are Dirichlet(1/steepness): 1 is even, 8 hardly more than a favourite; 4 unless given.
    ratings: a CSV file of real ratings, whose genres and tastes a generated catalogue and its users then have
    (`simulators.recommender.ratings`).
    person: what the user's seat does, if it has one, is in `simulators.recommender.seat`.
    terse: acts and facts in as few tokens as can be, for tiny models; no FIND.

    Parts: `satisfaction`, the joy of a page; .1 for each `click`; .1 for a page that keeps to the latest `instruction`
    of the visit; .5 for each visit after which the user would come back (`retention`); .1 x the share of a page's items
    whose genre is new on it (`diversity`).
    """

    name = "recommender"
    metadata: ClassVar[dict[str, Any]] = {"name": "recommender_v0", "render_modes": ["ansi"]}
    reward_parts: Mapping[str, str] = {
        "satisfaction": "the joy of a page", "click": ".1 each", "instruction": ".1 for a page that keeps to it",
        "retention": ".5 where the user would come back", "diversity": ".1 x the share of new genres",
        "reading": "the user's words said something else than they should", "wrong": "the user said what is not so",
        "secret": "the user told what was not asked",
    }  # fmt: skip
    personas = MANNERS
    players: Mapping[str, Callable[[Recommender, int], Answer]] = players.PLAYERS
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
        self.key, self.fitted = shelf_key(catalogue, edition, embedding, ratings, steepness)
        self.steepness = number("steepness", 4.0 if steepness is None else steepness, 0.1)
        self.codes = choice("ids", ids, "numbers", "semantic") == "semantic"
        self.users = whole_number("users", users, 1, MOST_USERS)
        self.terse = flag("terse", terse)
        self.limits = make_limits(days, pages, slate, candidates, self.terse)
        if self.terse and self.codes:
            raise ValueError("ids must be numbers where terse is true")
        self.shelf = shelf(self.key)
        """Items, vectors and index; shared by all matches of the process."""
        file = ratings or catalogue
        if isinstance(file, str) and (text := speech.misread(self.shelf.catalogue)):
            raise ValueError(f"{file}: users say `{text}`, which is misread: rename genres in it")
        super().__init__(penalty=penalty, talk=False, **options)

    @property
    def table(self) -> Table:
        """Settings of the deals; tastes are fitted to ratings or have the option `steepness`."""
        even = np.full(len(self.shelf.catalogue.genres), 1 / self.steepness)
        return Table(self.shelf, self.limits, self.users, np.array(self.fitted) if self.fitted else even)

    @property
    def floor(self) -> float:
        """Success rate of random play, estimated from the random plays of up to 400 drawn deals."""
        game, measured = self.clone(), []
        for seed in range(max(4, FLOOR_DEALS // self.users)):
            game.reset(seed=seed)
            measured.append(game.stick)
        return yardstick.floor(measured)

    # What a game tells.

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Draw the users, or copy all from the option `record` (as in `twin_deals`), and start the first visit."""
        own = rng.spawn(1)[0]
        if "record" in options:
            deal = self.table.made(own, (record_from(options["record"]),) * self.users)
            self.stick = yardstick.measure(deal)
        else:
            deal, self.stick = self.table.deal(own, self._draw_user)
        self.service, self.tally = Service(deal), yardstick.Tally()
        self.seat = Seat(self.person, self.terse)
        self.standing: Wish | None = None
        """The user's instruction in this visit."""
        self.instructed = self.binding = False
        self.uttered: set[Wish] = set()
        """Wishes that any user has stated."""
        self._greet()
        self.agent_selection = self.next_seat(RECOMMENDER)

    def rules(self) -> str:
        """Return the rules as text: the acts and their effects; in terse mode only the codes."""
        limits = self.limits
        return acts.rules(limits.slate, limits.days, limits.pages, self.terse, self.codes, self.steers)

    def public(self) -> dict[str, Any]:
        """Return {"day", "page"} from 1 and, with several users, the current "visitor" and its "segment" (a letter)."""
        service = self.service
        facts: dict[str, Any] = {"day": min(service.day + 1, self.limits.days), "page": service.page + 1}
        if self.users > 1:
            facts |= {"visitor": service.at + 1, "segment": LETTERS[service.visitor.record.segment].upper()}
        return facts

    def private(self, seat: str) -> dict[str, Any]:
        """Return the candidates, the user's statements and searches left, or for the user's seat `Seat.facts`."""
        if seat == USER:
            return self.seat.facts(self.service.visitor, self.shelf.catalogue)
        if self.terse:
            return {"marks": page.marks(self.service)}
        told = self.service.chart.facts(self.shelf.catalogue)
        return {"candidates": page.listed(self.service, self.codes), **told, "finds": FINDS - self.service.finds}

    def legal(self, seat: str) -> list[str] | None:
        """Return full pages and questions, or None for over 300 pages; other acts may be legal too."""
        if seat == USER:
            return self.seat.legal(self.shelf.catalogue, self.service.visitor.record.cap)
        if math.comb(len(self.service.candidates), self.limits.slate) > MOST_LISTED:
            return None
        slates = itertools.combinations(self.service.candidates, self.limits.slate)
        names = self.names()
        listed = [acts.Act("show", slate) for slate in slates] + [acts.Act("ask", words=topic) for topic in TOPICS]
        return [acts.written(act, names, self.terse) for act in listed]

    def next_seat(self, seat: str) -> str:
        """Return the user's seat while its statement is due, else the recommender."""
        return USER if self.seat.due else RECOMMENDER

    def play(self, seat: str, act: str) -> str:
        """Play an act or the user's text and return it for the other seat. Raises IllegalAct if it is not allowed."""
        if seat == USER:
            return self._listen(act)
        service, names = self.service, self.names()
        called = self.shelf.by_code if self.codes else {name: item for item, name in names.items()}
        done = acts.read_act(act, called, self.limits.slate, self.terse)
        if done.kind == "find":
            if service.finds >= FINDS:
                raise IllegalAct(f"only {FINDS} searches a page: SHOW something")
            service.find(done.words)
        elif done.kind == "ask":
            self._ask(done.words)
        else:
            names |= {item: self.shelf.codes[item] for item in done.items} if self.codes else {}
            self._show(done, names)
        return acts.written(done, names, self.terse)

    def figures(self) -> dict[str, float | bool | str]:
        """Return the users' joy, scored between random and oracle play, and other statistics (`Tally.figures`)."""
        return {**self.tally.figures(self.service, self.stick), **self.seat.figures()}

    def twin_deals(self, seat: str, rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Return reset options for two users who behave alike but differ in hidden properties; None for the user."""
        if seat != RECOMMENDER:
            return None
        prices, coded = [item.price for item in self.shelf.catalogue.items], self.steers
        one, two = twins_of(self.service.deal.records[0], (min(prices), max(prices)), coded, rng)
        return one.as_options(), two.as_options()

    def hidden(self) -> dict[str, tuple[str, ...]]:
        """Return texts that reveal the user's favourite, dislikes or cap, if not stated yet, as templates and facts."""
        record, catalogue = self.service.visitor.record, self.shelf.catalogue
        secrets = [Wish("more", record.favourite), Wish("under", record.cap)]
        secrets += [Wish("less", genre) for genre in record.disliked]
        taste = str(round(max(record.taste), 2))
        return {"taste": (f"taste {taste}", f"likes {catalogue.genres[record.favourite]}")} | {
            f"{wish.kind} {wish.what}": (*speech.all_wordings(wish, catalogue), speech.fact(wish, catalogue))
            for wish in secrets
            if wish not in self.uttered
        }

    def check_person(self, text: str) -> Checked:
        """Return the faults of a played user's text (`Seat.check`)."""
        return self.seat.check(text, self.service.visitor, self.shelf.catalogue)

    # How a turn goes.

    @property
    def steers(self) -> bool:
        """True if the user's seat says what it likes."""
        return self.person in ("free", "played")

    def _greet(self) -> None:
        """Start a visit; on the first day a user that volunteers states its favourite, unless its seat is free.

        A played user may speak at the start of every visit.
        """
        visitor, self.binding = self.service.visitor, False
        volunteers = visitor.day == 0 and visitor.record.volunteers
        wish = Wish("more", visitor.record.favourite) if volunteers and self.person != "free" else None
        if self.is_played:
            self.seat.asked(self._put_in_words(wish) if wish else "", wish)
        elif wish:
            self.tell(self._put_in_words(wish), RECOMMENDER, sender=USER)
            self._record_wish(wish)

    def _show(self, act: acts.Act, names: Mapping[int, str]) -> None:
        service, visitor = self.service, self.service.visitor
        items = service.items(act.items)
        self._judge(items)
        before, when = visitor.mindset.rounded(), {"day": service.day + 1, "page": service.page + 1}
        reaction = service.show(list(act.items), self.shelf.catalogue.named(act.words))
        self._pay(reaction, items)
        clicked = " ".join(names[item] for item in reaction.clicked)
        self.tell(f"Clicked: {clicked or 'nothing'}.", RECOMMENDER, sender=SHOP)
        self.seat.before = before
        if visitor.number == 0:
            self.tally.log.append({**when, "before": before, "after": visitor.mindset.rounded()})
        if self._continues():
            self._respond(reaction, items)

    def _judge(self, items: list[Item]) -> None:
        """Pay and count whether a page follows the user's instruction, if any candidate could."""
        wish = self.standing
        if wish is not None and any(map(wish.fits, self.service.items(self.service.candidates))):
            kept = wish.satisfied_by(items)
            self.tally.judge(kept)
            self.pay(RECOMMENDER, "instruction", WEIGHTS["instruction"] * kept)

    def _pay(self, reaction: Reaction, items: list[Item]) -> None:
        """Pay the rewards of a page."""
        spread = self.tally.note(reaction, items)
        self.pay(RECOMMENDER, "satisfaction", reaction.joy)
        self.pay(RECOMMENDER, "click", WEIGHTS["click"] * len(reaction.clicked))
        self.pay(RECOMMENDER, "diversity", WEIGHTS["diversity"] * spread)
        if self.person == "free":
            self.pay(USER, "satisfaction", reaction.joy)

    def _ask(self, topic: str) -> None:
        """Charge the user for a question and, unless this ends the visit, have it answered."""
        self.tally.asked += 1
        self.service.ask()
        if self._continues():
            self._say(answer(self.service.visitor, topic))

    def _continues(self) -> bool:
        """Return True if the visit goes on; else pay the retention reward and start the next visit or end the match."""
        visitor = self.service.visitor
        if self.service.leave_or_stay():
            return True
        self.standing, self.instructed = None, False
        self.pay(RECOMMENDER, "retention", WEIGHTS["retention"] * visitor.here)
        news = f"The user leaves, and {'means to come' if visitor.here else 'will not come'} back."
        if self.service.over:
            self.tell(news, RECOMMENDER, sender=SHOP)
            self.end("closed", "The shop is closed.")
            return False
        if self.service.visitor is not visitor:
            self.seat.before = {}
        user = f", user {self.service.at + 1}" if self.users > 1 else ""
        self.tell(f"{news} Day {self.service.day + 1}{user}.", RECOMMENDER, sender=SHOP)
        self._greet()
        return False

    def _respond(self, reaction: Reaction, items: list[Item]) -> None:
        """Have the user state an instruction, once per visit at low patience, or a complaint about the page."""
        visitor = self.service.visitor
        if visitor.mindset.patience < LOW and not self.instructed:
            self.instructed = True
            self._say(instruction(visitor, items), binding=True)
            return
        complains = not reaction.clicked and (reaction.dear or reaction.disliked)
        complaint = (speech.DEAR if reaction.dear else speech.DULL) if complains else ""
        if self.steers:
            self.binding = self.is_played
            self.seat.asked(complaint if self.is_played else "", None)
        elif complaint:
            self.tell(complaint, RECOMMENDER, sender=USER)

    def _say(self, wish: Wish | None, binding: bool = False) -> None:
        """State a wish in the script's words, or request it from the user's seat. `binding` makes it an instruction."""
        words = self._put_in_words(wish)
        self.binding = binding
        if self.person == "script":
            self.tell(words, RECOMMENDER, sender=USER)
            self._record_wish(wish)
        else:
            self.seat.asked(words, wish, is_question=not binding)

    def _listen(self, text: str) -> str:
        """Check the user's text and return it for the recommender, or "" if the seat must say it again."""
        text = one_line(text)
        if self.is_played and not self.admits(text):
            return ""
        heard = self.seat.hear(text, self.service.visitor, self.shelf.catalogue)
        if heard is None:
            self.pay(USER, "reading", -FINE)
            self.tell(f"Say this and nothing else: {self.seat.template}", USER)
            return ""
        words, wish, fine = heard
        if fine:
            self.pay(USER, "reading", -fine)
        self.binding = self.binding or self.person == "free"
        self._record_wish(wish)
        if self.is_played and LEAVING.search(words):
            self.service.visitor.mindset.patience = 0.0
            self._continues()
        return words

    def _record_wish(self, wish: Wish | None) -> None:
        """Record a wish as stated, and as the visit's instruction if it is binding. None is ignored."""
        if wish is None:
            return
        self.uttered.add(wish)
        self.service.chart.hear(wish)
        if self.binding:
            self.standing = wish

    def _put_in_words(self, wish: Wish | None) -> str:
        """Return the wish in a template of the current user's manner; a text of doubt for None."""
        service, visitor = self.service, self.service.visitor
        share = uniform(visitor.key, WORDING, service.day, service.page)
        return speech.worded(wish, self.shelf.catalogue, PERSONAS[visitor.record.persona].manner, share)

    def names(self) -> dict[int, str]:
        """Return the names of the page's candidates by item id."""
        return page.names(self.service, self.codes)

    def _draw_user(self, rng: np.random.Generator, concentration: Floats, segment: int) -> Record:
        """Draw a user of the options' split and persona."""
        persona = self.draw_persona(rng)
        drawn: Record = self.draw_entity(
            lambda: draw_record(rng, draw_taste(rng, concentration), persona, segment, self.shelf.catalogue.caps),
            lambda record: str(record.entity),
        )
        return drawn
