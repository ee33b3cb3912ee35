"""Tables from Bayesian networks in the package pgmpy: the exact probability of each sign given one disease.

child: congenital heart disease (Spiegelhalter and Cowell 1992); asia: lung diseases (Lauritzen and Spiegelhalter 1988);
hepar2: liver diseases (Onisko 2003). If diseases are separate nodes, a patient has exactly one: all others are absent.
A sign is present if its node has one of the values listed here. Its probability given the disease is the network's, by
variable elimination. Further dependence between signs is dropped, so that naive Bayes is exact for the clinic's
patients. Networks with no patient to ask (alarm, pathfinder, munin and others) are left out.

Licence: pgmpy is MIT; its networks come from the bnlearn repository. Simulation only, never advice.
"""

from __future__ import annotations

import gzip
import warnings
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np

from simulators.clinic.signs import parse_signs
from simulators.clinic.table import Floats, Table

DIGITS = 6
"""Decimal places to which probabilities are rounded, so that tables are equal on all machines."""


class Network(NamedTuple):
    """Selection of a network's nodes as diseases, symptoms and findings, each written `node=value,value`."""

    diseases: Mapping[str, str]
    """Node and value of each disease."""
    absent: str
    """Value of a disease's node if the patient lacks that disease."""
    symptoms: str
    """One line per symptom: its node and value, a semicolon, and the sign in the format of `signs.parse_signs`."""
    secret: str
    """Symptoms that the patient mentions only when asked, in the same format."""
    tests: Mapping[str, Mapping[str, str]]
    """Node of each finding, by test."""


NETWORKS: Mapping[str, Network] = {
    "child": Network(
        diseases={
            "persistent fetal circulation": "Disease=PFC",
            "transposed great arteries": "Disease=TGA",
            "tetralogy of Fallot": "Disease=Fallot",
            "pulmonary atresia": "Disease=PAIVS",
            "anomalous pulmonary veins": "Disease=TAPVD",
            "lung disease": "Disease=Lung",
        },
        absent="",
        symptoms="""
            BirthAsphyxia=yes; birth asphyxia; a lack of air at birth; asphyxia at birth; too little air at birth
            Grunting=yes; grunting; grunting breath; grunt
            Sick=yes; sickness; a sick look; looking sick; look sick
            Age=0-3_days; early onset; signs since the first days; ill since birth
        """,
        secret="",
        tests={
            "xray": {
                "oligaemic lungs": "XrayReport=Oligaemic",
                "plethoric lungs": "XrayReport=Plethoric",
                "ground glass lungs": "XrayReport=Grd_Glass",
                "patchy lungs": "XrayReport=Asy/Patchy",
            },
            "ecg": {"left ventricular hypertrophy": "LVHreport=yes"},
            "blood gas": {
                "high carbon dioxide": "CO2Report=>=7.5",
                "low oxygen in arms": "RUQO2=<5",
                "low oxygen in legs": "LowerBodyO2=<5",
            },
        },
    ),
    "hepar2": Network(
        diseases={
            "active chronic hepatitis": "ChHepatitis=active",
            "persistent chronic hepatitis": "ChHepatitis=persistent",
            "toxic hepatitis": "THepatitis=present",
            "reactive hepatitis": "RHepatitis=present",
            "primary biliary cirrhosis": "PBC=present",
            "steatosis": "Steatosis=present",
            "compensated cirrhosis": "Cirrhosis=compensate",
            "decompensated cirrhosis": "Cirrhosis=decompensate",
            "functional hyperbilirubinemia": "Hyperbilirubinemia=present",
        },
        absent="absent",
        symptoms="""
            fatigue=present; fatigue; fatigue; tired; tiredness; exhausted
            itching=present; itching; itching; itchy; itch; itches
            upper_pain=present; upper belly pain; pain in my upper belly; upper belly hurts
            pain_ruq=present; right side pain; pain under my right ribs; right side hurts
            pressure_ruq=present; right side pressure; pressure under my right ribs
            fat=present; fat intolerance; trouble with fatty food; fatty food troubles me
            flatulence=present; flatulence; a lot of wind; gassy
            anorexia=present; poor appetite; a poor appetite; no appetite; lost my appetite
            nausea=present; nausea; nausea; nauseous; queasy
            joints=present; swollen joints; swollen joints; joints are swollen
            pain=present; aching bones; aching bones; bones ache
            jaundice=present; jaundice; yellow skin; yellow eyes; skin is yellow
            edema=present; swollen legs; swollen legs; swollen ankles
            bleeding=present; easy bleeding; easy bleeding; bleed easily
            consciousness=present; confusion; spells of confusion; confused
            alcohol=present; alcohol intolerance; trouble with alcohol; alcohol troubles me
            obesity=present; obesity; too much weight; obese; overweight
            diabetes=present; diabetes; diabetes; diabetic
            hospital=present; hospital stays; a hospital stay behind me; been in hospital; a hospital stay
            surgery=present; surgery; an operation behind me; an operation; operated on
            injections=present; injections; injections behind me; an injection
            transfusion=present; transfusion; a blood transfusion behind me; a blood transfusion
            hepatotoxic=present; harmful medicines; a course of harmful medicines behind me; liver harming drugs
        """,
        secret="alcoholism=present; heavy drinking; a drinking habit; drink a lot; drinking too much",
        tests={
            "exam": {
                "large liver": "hepatomegaly=present",
                "large spleen": "spleen=present",
                "spider veins": "spiders=present",
                "red palms": "palms=present",
                "fluid in the belly": "ascites=present",
            },
            "enzymes": {
                "alt over 100": "alt=a850_200,a199_100",
                "ast over 150": "ast=a700_400,a399_150",
                "ggtp over 70": "ggtp=a640_70",
                "phosphatase over 240": "phosphatase=a4000_700,a699_240",
            },
            "blood": {
                "bilirubin over 2": "bilirubin=a88_20,a19_7,a6_2",
                "few platelets": "platelet=a149_100,a99_0",
                "low albumin": "albumin=a29_0",
                "high cholesterol": "cholesterol=a999_350,a349_240",
            },
            "serology": {
                "hbs antigen": "hbsag=present",
                "hbc antibodies": "hbc_anti=present",
                "hcv antibodies": "hcv_anti=present",
                "mitochondrial antibodies": "ama=present",
            },
        },
    ),
    "asia": Network(
        diseases={"tuberculosis": "tub=yes", "lung cancer": "lung=yes", "bronchitis": "bronc=yes"},
        absent="no",
        symptoms="""
            dysp=yes; breathlessness; shortness of breath; short of breath; breathless; out of breath
            asia=yes; travel to Asia; a trip to Asia behind me; been to Asia; visited Asia; a trip to Asia
        """,
        secret="smoke=yes; smoking; a smoking habit; smoke; smoker",
        tests={"xray": {"chest shadow": "xray=yes"}},
    ),
}


def build_table(name: str) -> Table:
    """Build the table of a network in `NETWORKS`. Raises ValueError if pgmpy is not installed."""
    network, solver = NETWORKS[name], _load_solver(name)
    cases = [_split_selection(disease) for disease in network.diseases.values()]
    others = {node: network.absent for node, _ in cases}
    evidences = [others | {node: values[0]} for node, values in cases]
    joint = solver.query(list(others), show_progress=False)
    weights = np.array([joint.get_value(**case) for case in evidences]).round(DIGITS)
    symptoms = [line.partition(";") for line in (network.symptoms + network.secret).strip().splitlines()]
    findings = [finding for findings in network.tests.values() for finding in findings.values()]
    return Table(
        world=f"a simulation from the Bayesian network {name} (never advice)",
        names=tuple(network.diseases),
        prior=weights / weights.sum(),
        signs=tuple(parse_signs(sign, secret=sign in network.secret)[0] for _, _, sign in symptoms),
        symptoms=_query_chances(solver, evidences, [selection.strip() for selection, _, _ in symptoms]),
        tests={test: tuple(findings) for test, findings in network.tests.items()},
        findings=_query_chances(solver, evidences, findings),
    )


def _split_selection(selection: str) -> tuple[str, list[str]]:
    """Split `node=value,value` into the node and its values."""
    node, _, values = selection.partition("=")
    return node, values.split(",")


def _query_chances(solver: Any, evidences: list[dict[str, str]], signs: list[str]) -> Floats:
    """Compute P(sign | disease) as a read-only array [diseases, signs], rounded to `DIGITS` decimals.

    `solver` answers queries on the network. `evidences` has the values of the disease nodes for each disease. A sign
    `node=value,value` is present if the node has any of the values.
    """
    rows = []
    for evidence in evidences:
        row = []
        for node, values in map(_split_selection, signs):
            chances = solver.query([node], evidence=evidence, show_progress=False)
            row.append(sum(chances.get_value(**{node: value}) for value in values))
        rows.append(row)
    table: Floats = np.array(rows).round(DIGITS)
    table.setflags(write=False)
    return table


def _load_solver(name: str) -> Any:
    """Load a network of pgmpy's package and return its exact solver (variable elimination).

    Raises ValueError if pgmpy is not installed.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # raised by pgmpy's own imports
            from pgmpy.inference import VariableElimination
            from pgmpy.readwrite import BIFReader
    except ImportError as error:
        raise ValueError(f"source pgmpy:{name} needs pgmpy: pip install 'arena-selfplay[clinic]' ({error})") from None
    # Read the packaged file, because pgmpy's own loader downloads it from a model hub.
    packed = (files("pgmpy.utils") / "example_models" / f"{name}.bif.gz").read_bytes()
    return VariableElimination(BIFReader(string=gzip.decompress(packed).decode()).get_model())
