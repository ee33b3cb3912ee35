"""Take the pictures of a report and of the viewer that the docs show, with Chromium: light and dark.

python docs/screenshots.py analysis/notebooks/example/negotiation    # writes docs/report-light.png, report-dark.png
python docs/screenshots.py analysis/notebooks/example --view         # writes docs/view-light.png, view-dark.png
"""

import argparse
import io
import tempfile
from pathlib import Path
from typing import Any

from analysis.frames import load
from analysis.report import report
from arena.cli.page_data import deal_facts, list_theory_values
from tests.factories.browser import chromium
from tests.factories.view import served

SHOTS = {"report-light.png": (1400, 1450, "light"), "report-dark.png": (400, 1500, "dark")}
VIEWS = {
    "view-light.png": (1280, 960, "light", "/run/negotiation/match/0012-0016?turn=1", "article.turn"),
    "view-dark.png": (1280, 900, "dark", "/run/negotiation", ".chart canvas"),
}
"""Width, height and colours of each; of the viewer, where in it, and what has to be there first."""


def main() -> None:
    """Write both pictures, in few colours: less than 100 kB each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--view", action="store_true", help="of the viewer, which shows a folder of runs")
    chosen = parser.parse_args()
    with chromium() as browser:
        of_view(browser, chosen.run) if chosen.view else of_report(browser, chosen.run)


def of_report(browser: Any, run: Path) -> None:
    """Pictures of a run's report."""
    log = load(run)
    games = {game: list_theory_values(game) for game in map(str, log.matches["game"].unique())}
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        page.write_text(report(log, theory=games, dealt=deal_facts), "utf-8")
        for name, (width, height, scheme) in SHOTS.items():
            context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
            view = context.new_page()
            view.goto(page.as_uri())
            view.wait_for_selector(".chart canvas")
            view.wait_for_timeout(500)
            keep(view.screenshot(), name)
            context.close()


def of_view(browser: Any, runs: Path) -> None:
    """Pictures of a match and of curves in the viewer."""
    with served(runs) as link:
        for name, (width, height, scheme, route, sign) in VIEWS.items():
            context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
            view = context.new_page()
            view.set_default_timeout(120_000)
            view.goto(f"{link}{route}")
            view.wait_for_selector(sign)
            view.wait_for_selector("p[role=status]", state="detached")  # which says what is still read
            view.evaluate("scrollTo(0, 0)")
            view.wait_for_timeout(500)
            keep(view.screenshot(), name)
            context.close()


def keep(picture: bytes, name: str) -> None:
    """Write a picture in few colours beside this script."""
    from PIL import Image

    taken = Image.open(io.BytesIO(picture)).convert("RGB")
    few = taken.quantize(96, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    few.save(Path(__file__).with_name(name), optimize=True)


if __name__ == "__main__":
    main()
