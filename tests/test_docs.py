"""Tests of README and docs/: commands parse, YAML is read, output is real, links lead somewhere.

`python -m tests.test_docs` writes the current output of commands into the pages.
"""

import html
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from agents import strict_yaml
from agents.role import read_role
from analysis.columns import TABLES, doc
from arena.config.experiment import Experiment
from arena.config.layers import compose
from arena.config.pipeline import read_pipeline
from arena.config.sources import recipe_layer, text_layer
from arena.config.staging import plan
from arena.credit.rubric import read_rubric
from arena.panels.settings import read_panel
from arena.records import MatchRecord, trajectories
from arena.store.reader import RunReader
from tests.factories.browser import measure_widths, open_chromium
from tests.factories.commands import arena
from tests.factories.contrast import compute_contrast
from tests.pages import PAGES, ROOT, Block, find_blocks, find_commands, parse_command, write_files

WIDTH = "100"
SKIPPED = "…"
"""A line of output that stands for any other lines."""


BLOCKS = [block for page in PAGES for block in find_blocks(page)]
CONSOLE = [
    block for block in BLOCKS if block.language in ("", "console") and re.search(r"^(\$ )?arena ", block.text, re.M)
]
PYTHON = [b for b in BLOCKS if b.language == "python" and not b.file and "a run of the clinic" not in b.text]
YAML = [block for block in BLOCKS if block.language == "yaml"]


@pytest.mark.parametrize("block", CONSOLE, ids=str)
def test_every_command_parses(block: Block) -> None:
    for arguments in find_commands(block.text):
        parse_command(arguments)


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_python_of_a_page_runs(block: Block, tmp_path: Path, uninterrupted_run: Path) -> None:
    """Runs with the page's own files and functions, and a run in runs/latest."""
    scope: dict[str, object] = {}
    with chdir(tmp_path):
        shutil.copytree(uninterrupted_run, "runs/latest")
        write_files(block.page)
        for page_block in find_blocks(block.page):
            if page_block.file and page_block.language == "python":
                exec(page_block.text, scope)
        rows = RunReader("runs/latest").matches()
        scope["trajectories"] = [t for row in rows for t in trajectories(MatchRecord.from_json(row)) if t.trained]
        exec(block.text, scope)


@pytest.mark.parametrize("block", YAML, ids=str)
def test_every_yaml_block_is_read(block: Block, tmp_path: Path) -> None:
    """A block is a role, panel, rubric, pipeline, or settings over a recipe, beside the page's files."""
    settings = strict_yaml.load(block.text, str(block))
    if "role" in settings:
        (tmp_path / "role.yaml").write_text(block.text, "utf-8")
        read_role(tmp_path / "role.yaml")
    elif "members" in settings:
        read_panel(block.text, str(block))
    elif "rubric" in settings:
        (tmp_path / "rubric.yaml").write_text(block.text, "utf-8")
        read_rubric(str(tmp_path / "rubric.yaml"))
    elif "stages" in settings:
        with chdir(tmp_path):
            plan(read_pipeline([text_layer(str(block), block.text)]), tmp_path, print)
    elif settings.keys() <= Experiment.model_fields.keys():
        with chdir(tmp_path):
            write_files(block.page)
            compose([recipe_layer("negotiation"), text_layer(str(block), block.text)])
    else:
        pytest.fail("neither a role, a panel, a rubric nor an experiment: say what it is in another language than yaml")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the documentation as a site; a broken link or anchor is an error."""
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    build(load_config(str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(folder)))
    return folder


def test_site_has_the_generated_pages(site: Path) -> None:
    assert (site / "reference" / "commands.html").read_text("utf-8").count("arena") > 100
    assert 'src="architecture.svg"' in (site / "architecture.html").read_text("utf-8")


@pytest.mark.parametrize("room", ["arena", "agents", "games", "simulators", "analysis"])
def test_the_tree_has_every_module_with_its_first_line(site: Path, room: str) -> None:
    """Except notebooks, which the line of their folder covers."""
    page = (site / "reference" / "tree.html").read_text("utf-8")
    section = re.search(rf'<h2 id="{room}">.*?(?=<h2|</article)', page, re.S)
    files = [file.name for file in (ROOT / room).rglob("*.py") if file.name != "__init__.py"]
    notebooks = [file.name for file in (ROOT / room / "notebooks").glob("*.py") if file.name != "__init__.py"]
    rows = re.findall(r"<td><code>(\w+\.py)</code></td>\s*<td>.+?</td>", section[0] if section else "")
    assert sorted([*rows, *notebooks]) == sorted(files)


def test_the_tables_have_every_column_with_its_meaning(site: Path) -> None:
    page = html.unescape((site / "reference" / "tables.html").read_text("utf-8"))
    for name, schema in TABLES.items():
        section = re.search(rf'<h2 id="{name}">.*?(?=<h2|</article)', page, re.S)
        assert section is not None
        rows = dict(re.findall(r"<td><code>([^<]+)</code></td>\s*<td>.*?</td>\s*<td>(.+?)</td>", section[0]))
        expected = {field.name: doc(field) for field in schema}
        assert {column: re.sub("<.*?>", "", rows[column]) for column in expected} == {
            column: meaning.replace("`", "") for column, meaning in expected.items()
        }


def test_site_fetches_nothing_from_other_hosts(site: Path) -> None:
    """Search finds its index and a worker if the site is opened as files, too."""
    for page in [*site.glob("*.html"), *site.glob("reference/*.html")]:
        text = page.read_text("utf-8")
        fetched = re.findall(
            r'<(?:script|img|iframe)[^>]* src="?([^" >]+)|<link[^>]* href="?([^" >]+)[^>]*stylesheet', text
        )
        assert [name for names in fetched for name in names if re.match(r"(https?:)?//", name)] == [], page
    assert "assets/iframe-worker.js" in (site / "index.html").read_text("utf-8")
    assert (site / "search" / "search_index.js").read_text("utf-8").startswith("var __index = {")
    assert not re.search(r"url\(|@import", (site / "assets" / "arena.css").read_text("utf-8"))


def test_the_sites_colours_have_the_contrast_of_wcag_aa() -> None:
    style = (ROOT / "docs" / "assets" / "arena.css").read_text("utf-8")
    schemes = re.findall(r'^\[data-md-color-scheme="\w+"\] \{(.*?)^\}', style, re.S | re.M)
    assert len(schemes) == 2
    for scheme in schemes:
        colours = dict(re.findall(r"--md-([\w-]+): (#[0-9a-f]{6});", scheme))
        pairs = {name: "default-bg-color" for name in ("typeset-color", "typeset-a-color", "default-fg-color--light")}
        pairs |= {name: "code-bg-color" for name in colours if name.startswith(("code-fg", "code-hl"))}
        pairs |= {"primary-bg-color": "primary-fg-color", "footer-fg-color--light": "footer-bg-color"}
        low = {name: compute_contrast(colours[name], colours[on]) for name, on in pairs.items()}
        assert {name: value for name, value in low.items() if value < 4.5} == {}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with open_chromium() as page_browser:
        yield page_browser


@pytest.mark.slow
@pytest.mark.parametrize("page", ["index", "results", "reference/experiment"])
def test_no_page_is_wider_than_the_window(browser: Any, site: Path, page: str) -> None:
    """Wide tables and blocks scroll by themselves."""
    for width in (400, 1400):
        wide, window = measure_widths(browser, (site / f"{page}.html").as_uri(), width)
        assert wide <= window


def test_front_page_fits_a_wide_screen_and_search_needs_no_server(browser: Any, site: Path) -> None:
    view, requested = browser.new_page(viewport={"width": 1400, "height": 900}), []
    view.on("request", lambda request: requested.append(request.url))
    view.goto((site / "index.html").as_uri())
    cut = "[...document.querySelectorAll('pre > code')].filter(c => c.scrollWidth > c.clientWidth + 1).length"
    assert view.evaluate(cut) == 0
    view.click(".md-search__input")
    view.keyboard.type("exploitability")
    view.wait_for_selector(".md-search-result__item", timeout=20_000)
    assert [address for address in requested if not address.startswith("file:")] == []
    view.close()


# -- output ------------------------------------------------------------------------------------------------


def list_examples(page: Path) -> Iterator[tuple[str, str]]:
    """Yield the commands of a page that show output, with that output."""
    for block in find_blocks(page):
        if block.language == "console":
            yield from re.findall(r"^\$ (arena [^\n]*)\n((?:(?!\$ )[^\n]*\n)+)", block.text, re.M)


def run_command(page: Path, command: str) -> str:
    """Return the command's output in a folder that holds the page's files."""
    with TemporaryDirectory() as folder, chdir(folder):
        write_files(page)
        (arguments,) = find_commands(command)
        result = arena(*arguments)
    return "".join(line.rstrip() + "\n" for line in (result.out + result.err).splitlines())


def without_times(output: str) -> str:
    """Return the output with all durations replaced."""
    return re.sub(r" +\d+\.\d s$", " 0.0 s", output, flags=re.M)


LIVE = [page for page in PAGES if page.name.startswith("new-") and any(list_examples(page))]
"""Tutorials: the output of their commands depends only on the page's own files."""


def test_tutorials_with_output() -> None:
    assert [page.name for page in LIVE] == ["new-game.md", "new-role.md", "new-simulator.md"]


@pytest.mark.slow_after(2)  # the third makes a simulator and trains in it
@pytest.mark.parametrize("page", LIVE, ids=lambda page: page.name)
def test_shown_output_is_real(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", WIDTH)
    for command, output in list_examples(page):
        pattern = re.escape(without_times(output)).replace(re.escape(SKIPPED + "\n"), "(?:.*\n)*?")
        assert re.fullmatch(pattern, without_times(run_command(page, command))), f"{page.name}: {command}"


def update_output(page: Path) -> None:
    """Replace the page's output by the current one, where it is shown in full."""
    text = page.read_text("utf-8")
    for command, output in list_examples(page):
        if SKIPPED + "\n" not in output:
            text = text.replace(f"$ {command}\n{output}", f"$ {command}\n{run_command(page, command)}")
    page.write_text(text, "utf-8")


if __name__ == "__main__":
    os.environ["COLUMNS"] = WIDTH
    for page in LIVE:
        update_output(page)
    sys.exit(0)
