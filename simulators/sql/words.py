"""Word lists of generated databases: domains of entities with attributes, and words of one token for tiny models.

An entry of `DOMAINS` is an entity, the entities that it refers to, and its attributes, each as
`phrase=column=column:values`. Questions use the phrase; the column has one of the names. Values are a range of whole
numbers, the name of a pool, or words separated by slashes.
"""

from __future__ import annotations

from typing import NamedTuple

DOMAINS = """
shop
supplier |
    name=company=label:company country=nation=land:country rating=score=grade:1-9
    founding year=founded=since:1950-2020
product > supplier |
    title=name=label:thing colour=color=shade:colour price=unit_price=cost:5-400 stock=in_stock=units:0-90
customer | name=full_name=client:person city=town=home:city age=years=age:18-80 points=bonus=credits:0-500
purchase > customer product |
    quantity=amount=pieces:1-12 year=bought_in=season:2015-2025 discount=rebate=percent_off:0-40
review > customer product | stars=rating=mark:1-5 length=characters=size:20-900 language=lang=tongue:language
voucher > customer |
    value=worth=sum_of_money:5-90 reason=kind=occasion:birthday/apology/contest/welcome
    days=valid_days=expiry:7-365

library
author |
    name=pen_name=writer:person country=nation=origin:country birth year=born=year_of_birth:1850-1990
    prizes=awards=medals:0-9
book > author |
    title=name=heading:thing genre=category=kind:genre pages=length=leaves:60-900
    year=published=printed:1900-2025
member | name=full_name=reader:person city=town=home:city age=years=age:10-85 fee=dues=yearly_fee:5-60
loan > member book | days=duration=kept_for:1-60 year=lent_in=season:2015-2025 fine=penalty=charge:0-30
branch | name=label=site:city shelves=racks=cases:10-300 opening year=opened=since:1900-2020
event > branch | topic=theme=subject:genre visitors=guests=attendance:5-300 price=fee=ticket:0-40

school
teacher |
    name=full_name=tutor:person salary=pay=wage:2000-6000 city=town=home:city experience=years=seniority:0-40
course > teacher |
    title=name=label:subject credits=points=weight:1-12 hours=weekly_hours=lessons:1-10
    room=place=hall:100-140
student | name=full_name=pupil:person age=years=age:16-40 city=town=home:city semester=term=stage:1-12
exam > student course |
    mark=grade=score:1-100 minutes=duration=length:20-180 attempt=try_number=round_number:1-3
club > teacher | name=title=label:hobby members=size=headcount:3-60 budget=funds=money:50-900
project > student | topic=theme=subject:subject weeks=duration=length:1-20 points=score=result:0-50

travel
airline |
    name=company=label:company country=nation=home:country fleet=planes=aircraft:3-400
    founding year=founded=since:1920-2015
flight > airline |
    destination=goal=to_city:city distance=miles=length:100-9000 price=fare=cost:30-900
    seats=capacity=places:50-400
passenger |
    name=full_name=traveller:person age=years=age:1-90 country=nation=origin:country miles=bonus=points:0-900
ticket > passenger flight |
    class=cabin=category:economy/business/first bags=luggage=pieces:0-4 year=flown_in=season:2015-2025
hotel | name=label=house:company city=town=place:city stars=rating=category:1-5 rooms=size=capacity:10-400
booking > passenger hotel | nights=duration=stay:1-21 price=bill=total_cost:40-900 guests=persons=people:1-6

hospital
ward | name=label=unit:ward beds=capacity=places:4-60 floor=level=storey:0-9 budget=funds=money:100-900
nurse > ward |
    name=full_name=carer:person age=years=age:20-65 salary=pay=wage:2000-5000 shifts=duties=turns:5-25
patient > ward | name=full_name=person:person age=years=age:1-99 city=town=home:city weight=mass=kilos:10-120
treatment > patient |
    kind=type=sort:scan/surgery/therapy/vaccine cost=price=bill:20-5000 minutes=duration=length:5-300
visit > patient |
    year=visited_in=season:2015-2025 reason=cause=ground:check/pain/accident/advice wait=waiting=minutes:0-180

music
label |
    name=company=firm:company city=town=seat:city staff=employees=people:2-300
    founding year=founded=since:1930-2020
artist > label |
    name=stage_name=act:person country=nation=origin:country birth year=born=year_of_birth:1940-2005
    fans=followers=audience:1-900
album > artist |
    title=name=heading:thing genre=style=kind:genre year=released=published:1960-2025 sales=sold=copies:1-900
song > album |
    title=name=heading:thing seconds=duration=length:60-600 plays=streams=listens:1-900
    position=track=place:1-15
concert > artist |
    city=town=place:city visitors=audience=guests:50-9000 price=ticket=entry:5-150
    year=played_in=season:2000-2025
"""
"""A domain's first line is its name, and a blank line ends it. Indented lines continue an entity."""

POOLS = {
    "person": "Ada Bruno Carla Dario Elena Felix Greta Hugo Ines Jonas Kira Leo Mona Nils Olga Paul Rosa Sami Tess Uwe",
    "company": "Acorn Beacon Cobalt Delta Ember Falcon Granite Harbor Indigo Juniper Keystone Lumen Meridian Nimbus",
    "city": "Lima Oslo Quito Riga Turin Porto Kyoto Perth Dakar Split",
    "country": "Peru Norway Japan Kenya Italy Chile Latvia Ghana",
    "colour": "red blue green black white yellow",
    "thing": "Anchor Breeze Candle Drift Echo Flint Garden Hollow Island Jewel Kettle Lantern Mirror Needle Orbit",
    "genre": "drama poetry mystery history comedy fantasy",
    "language": "English Spanish German Korean Hindi",
    "subject": "algebra botany chemistry design ethics finance geology logic music physics",
    "hobby": "chess rowing baking robots drama hiking pottery sailing",
    "ward": "North South East West Central Annex",
}  # fmt: skip
"""Values of text columns, by pool."""

NOUNS = "book hat ball card item round turn move offer rule point kind act win"
"""Keys of terse databases; the tables have their plurals as names. Each word is one token of nano policies."""
COLUMNS = """
price cost budget score worth total share value deal split pool board buyer seller king queen jack player opener
penalty reward
"""
"""Columns of terse databases."""


class Attribute(NamedTuple):
    """Attribute of an entity: its phrase in questions, its possible column names, and its values."""

    phrase: str
    names: tuple[str, ...]
    low: int
    high: int
    """Range of a number; both 0 for a text."""
    texts: tuple[str, ...]
    """Possible values of a text; () for a number."""


class Entity(NamedTuple):
    """Entity of a domain: its noun, the nouns that it refers to, and its attributes."""

    noun: str
    parents: tuple[str, ...]
    attributes: tuple[Attribute, ...]


def read_domains() -> dict[str, tuple[Entity, ...]]:
    """Return the entities of each domain, by the domain's name."""
    return {
        name: tuple(map(_read_entity, lines))
        for name, *lines in (block.splitlines() for block in DOMAINS.replace("\n    ", " ").strip().split("\n\n"))
    }


def _read_entity(line: str) -> Entity:
    head, _, listed = line.partition("|")
    noun, _, parents = head.partition(">")
    # A phrase may hold a blank ("birth year"): an attribute ends where its values do.
    words, attributes, phrase = listed.split(), list[Attribute](), ""
    for word in words:
        phrase = f"{phrase} {word}".strip()
        if ":" in word:
            attributes.append(_read_attribute(phrase))
            phrase = ""
    return Entity(noun.strip(), tuple(parents.split()), tuple(attributes))


def _read_attribute(text: str) -> Attribute:
    names, _, values = text.partition(":")
    phrase, *columns = names.split("=")
    low, dash, high = values.partition("-")
    if dash and low.isdigit():
        return Attribute(phrase, tuple(columns), int(low), int(high), ())
    texts = POOLS[values].split() if values in POOLS else values.split("/")
    return Attribute(phrase, tuple(columns), 0, 0, tuple(texts))
