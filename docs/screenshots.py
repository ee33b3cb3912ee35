"""Take the pictures of a report page that the docs show, with Chromium: wide and light, narrow and dark.

python docs/screenshots.py runs/latest    # writes docs/report-light.png and docs/report-dark.png
"""

import argparse
import io
import tempfile
from pathlib import Path

from analysis.frames import load
from analysis.report import report
from arena.cli.dealt import dealt, theory
from tests.factories.browser import chromium

SHOTS = {"report-light.png": (1400, 1450, "light"), "report-dark.png": (400, 1500, "dark")}
"""Width, height and colours of each."""


def main() -> None:
    """Write both pictures, in few colours: less than 100 kB each."""
    from PIL import Image

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    log = load(parser.parse_args().run)
    games = {game: theory(game) for game in map(str, log.matches["game"].unique())}
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        page = Path(folder) / "report.html"
        page.write_text(report(log, theory=games, dealt=dealt), "utf-8")
        for name, (width, height, scheme) in SHOTS.items():
            context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
            view = context.new_page()
            view.goto(page.as_uri())
            taken = Image.open(io.BytesIO(view.screenshot())).convert("RGB")
            few = taken.quantize(64, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
            few.save(Path(__file__).with_name(name), optimize=True)
            context.close()


if __name__ == "__main__":
    main()
