"""The viewer's page as one HTML file, with its modules, its styles and the answers that a server would give.

The content security policy allows only this script and this style, by their hashes, and no loading. Answers are
embedded as JSON with `<` escaped, so that no text can close the surrounding element.
"""

from __future__ import annotations

import base64
import hashlib
import posixpath
import re
from html import escape
from importlib.resources import files
from typing import Any

from analysis.view.formatting import sanitize
from analysis.view.json_values import to_json

ENTRY_MODULE, STYLES = "app.js", ("vendor/uplot.css", "view.css")
VENDOR = "vendor/"
"""Folder of third-party modules, which list their exports at the end. `export` in their comments must not match."""
_IMPORT = re.compile(r'^import\s*(?:(\w+)|\{([^}]*)\})\s*from\s*"([^"]+)";?', re.M)
_EXPORTS = re.compile(r"(?:^|(?<=[;}]))export\s*\{([^{}]*)\};?", re.M)
_EXPORTED = re.compile(r"^export (?=(?:async )?(?:function|const) (\w+))", re.M)
_DEFAULT = re.compile(r"(?:^|(?<=[;}]))export default (?=function)", re.M)

SHELL = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="referrer" content="no-referrer">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<div id="app"><noscript><p>{told}</p>
<p>The rest of this page needs JavaScript. It runs only its own script and loads nothing.</p></noscript></div>
<script type="application/json" id="answers">{answers}</script>
<script type="module">{script}</script>
</body>
</html>
"""


def build_page(title: str, summary: str, answers: Any) -> str:
    """Return the viewer's page as one HTML file that loads nothing, with the server's answers embedded as JSON.

    `summary` is the text for readers without JavaScript. Title and summary are escaped.
    """
    script, style = bundle_modules(), "\n".join(_read_source(name) for name in STYLES)
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
    )
    embedded = to_json(answers).replace("<", "\\u003c")
    return SHELL.format(
        policy=policy, title=escape(sanitize(title)), told=escape(summary), style=style, answers=embedded, script=script
    )  # fmt: skip


def bundle_modules() -> str:
    """Return the page's JavaScript modules as one script: a function call per module, dependencies first."""
    done: dict[str, str] = {}

    def add(name: str) -> None:
        if name not in done:
            source = _read_source(name)
            for _, _, other in _IMPORT.findall(source):
                add(_resolve(name, other))
            done[name] = _wrap_module(name, source)

    add(ENTRY_MODULE)
    script = "const modules = {};\n" + "\n".join(done.values())
    assert "</script" not in script and "<!--" not in script, "this would end the element that holds the script"
    return script


def _wrap_module(name: str, source: str) -> str:
    """Convert an ES module to a function call that stores its exports in `modules`, without import statements.

    >>> _wrap_module("b.js", 'import { a, c as d } from "./a.js";\\nexport const e = a + d;')
    'modules["b.js"] = (() => {\\nconst {a, c: d} = modules["a.js"];\\nconst e = a + d;\\nreturn {e};\\n})();'
    """
    exported = [] if name.startswith(VENDOR) else _EXPORTED.findall(source)
    for names in _EXPORTS.findall(source):
        exported += [_object_entry(item, export=True) for item in names.split(",")]
    body = _EXPORTED.sub("", _EXPORTS.sub("", _IMPORT.sub(lambda m: _import_statement(name, *m.groups()), source)))
    body, defaults = _DEFAULT.subn("const the_default = ", body)
    exports = ", ".join([*exported, *(["default: the_default"] if defaults else [])])
    return f'modules["{name}"] = (() => {{\n{body.strip()}\nreturn {{{exports}}};\n}})();'


def _import_statement(name: str, default: str | None, names: str | None, other: str) -> str:
    bindings = f"default: {default}" if default else ", ".join(_object_entry(item) for item in (names or "").split(","))
    return f'const {{{bindings}}} = modules["{_resolve(name, other)}"];'


def _object_entry(item: str, export: bool = False) -> str:
    """Convert `a as b` of an import list to `a: b`, or of an `export` list to `b: a`, for a JavaScript object."""
    before, _, after = (part.strip() for part in item.partition(" as "))
    return f"{after}: {before}" if after and export else f"{before}: {after}" if after else before


def _resolve(name: str, other: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), other))


def _read_source(name: str) -> str:
    return (files("analysis.view") / "static" / name).read_text("utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
