"""Take the screenshots of a report and of the viewer in the docs, with Chromium: light and dark.

PYTHONPATH=. python docs/screenshots.py analysis/notebooks/example/negotiation  # docs/report-{light,dark}.png
PYTHONPATH=. python docs/screenshots.py analysis/notebooks/example --view  # docs/view-{light,dark}.png
"""

import argparse
import io
import tempfile
from pathlib import Path
from typing import Any

from analysis.frames import load
from analysis.report import report
from arena.cli.page_data import deal_facts, list_theory_values
from tests.factories.browser import open_chromium
from tests.factories.view import serve_page

SHOTS = {"report-light.png": (1400, 1450, "light"), "report-dark.png": (400, 1500, "dark")}
VIEWS = {
    "view-light.png": (1280, 960, "light", "/run/negotiation/match/0012-0016?turn=1", "article.turn"),
    "view-dark.png": (1280, 900, "dark", "/run/negotiation", ".chart canvas"),
}
"""Width, height and colour scheme by file; for the viewer also the route, and a selector to wait for."""


def main() -> None:
    """Take both screenshots of the report or, with `--view`, of the viewer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--view", action="store_true", help="screenshots of the viewer, with a folder of runs")
    options = parser.parse_args()
    with open_chromium() as browser:
        take_view(browser, options.run) if options.view else take_report(browser, options.run)


def take_report(browser: Any, run: Path) -> None:
    """Take the screenshots of a run's report."""
    log = load(run)
    games = {game: list_theory_values(game) for game in map(str, log.matches["game"].unique())}
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        page.write_text(report(log, theory=games, deal_facts=deal_facts), "utf-8")
        for name, (width, height, scheme) in SHOTS.items():
            context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
            view = context.new_page()
            view.goto(page.as_uri())
            view.wait_for_selector(".chart canvas")
            view.wait_for_timeout(500)
            save(view.screenshot(), name)
            context.close()


def take_view(browser: Any, runs: Path) -> None:
    """Take the screenshots of a match and of curves in the viewer."""
    with serve_page(runs) as link:
        for name, (width, height, scheme, route, sign) in VIEWS.items():
            context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
            view = context.new_page()
            view.set_default_timeout(120_000)
            view.goto(f"{link}{route}")
            view.wait_for_selector(sign)
            view.wait_for_selector("p[role=status]", state="detached")  # shown while data is loading
            view.evaluate("scrollTo(0, 0)")
            view.wait_for_timeout(500)
            save(view.screenshot(), name)
            context.close()


def save(picture: bytes, name: str) -> None:
    """Write a picture with 96 colours, less than 100 kB, beside this script."""
    from PIL import Image

    picture_image = Image.open(io.BytesIO(picture)).convert("RGB")
    few = picture_image.quantize(96, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    few.save(Path(__file__).with_name(name), optimize=True)


if __name__ == "__main__":
    main()
