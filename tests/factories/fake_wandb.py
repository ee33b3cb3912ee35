"""Fake wandb package that writes its calls to a file, or fails, or hangs."""

from pathlib import Path

SOURCE = """\
import json, os, time

class Table:
    def __init__(self, columns, data):
        self.rows = [dict(zip(columns, row)) for row in data]

class Run:
    def __init__(self, settings):
        self.out = open(os.environ["FAKE_WANDB"], "a")
        self.write("init", settings)
    def write(self, what, body):
        self.out.write(json.dumps([what, body], default=lambda table: table.rows) + "\\n")
        self.out.flush()
    def log(self, body, step):
        if step == int(os.environ.get("FAKE_FAILS_AT", "-1")):
            raise OSError("no network: " + "\\x1b[2J" + os.environ["FAKE_API_KEY"])
        if step == int(os.environ.get("FAKE_HANGS_AT", "-1")):
            time.sleep(600)
        self.write("log", {"step": step, **body})
    def finish(self):
        self.write("finish", {})

def init(**settings):
    return Run(settings)
"""


def install(folder: Path) -> Path:
    """Write the package into the folder and return the folder, for sys.path."""
    folder.mkdir(exist_ok=True)
    (folder / "wandb.py").write_text(SOURCE, "utf-8")
    return folder
