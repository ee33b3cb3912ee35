"""docs/analysis.md tells of every column what the code says of it."""

from pathlib import Path

from analysis.columns import GROWN, TABLES, doc

PAGE = Path(__file__).parents[2] / "docs" / "analysis.md"
BEGIN, END = "<!-- columns, by tests/analysis/test_columns.py -->", "<!-- /columns -->"


def markdown() -> str:
    """The tables of columns; `python -m tests.analysis.test_columns` writes them into the page."""
    parts = []
    for name, schema in TABLES.items():
        rows = [
            (field.name, str(field.type).removeprefix("timestamp[us, tz=").rstrip("]"), doc(field)) for field in schema
        ]
        rows += [(GROWN[name][0], "", GROWN[name][1])] if name in GROWN else []
        parts += [f"**`{name}`**", "", "| column | type | |", "|---|---|---|"]
        parts += [f"| `{column}` | {kind} | {told} |" for column, kind, told in rows] + [""]
    return "\n".join(parts)


def whole(page: str) -> str:
    """The page with the tables that it should have."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{markdown()}\n{END}{rest.partition(END)[2]}"


def test_the_page_has_the_columns_that_there_are() -> None:
    page = PAGE.read_text("utf-8")
    assert page == whole(page), "python -m tests.analysis.test_columns"


if __name__ == "__main__":
    PAGE.write_text(whole(PAGE.read_text("utf-8")), "utf-8")
