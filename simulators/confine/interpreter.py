"""Files of this system that Python needs inside a cell, and their paths there.

Inside, everything is under /python, so that the model sees the same paths on every machine and no home directory.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from typing import NamedTuple

from simulators.confine import ConfineError

HOME = "/python"
LIBRARIES = f"{HOME}/shared"
# Not -I, which would ignore ENVIRONMENT; that contains none of the caller's variables.
OPTIONS = ("-s", "-P", "-S", "-B", "-X", "utf8")
ENVIRONMENT = {
    "HOME": "/scratch",
    "TMPDIR": "/scratch",
    "LD_LIBRARY_PATH": LIBRARIES,
    "PYTHONHOME": HOME,
    "PYTHONHASHSEED": "0",  # the output of a model's code should be deterministic
}
SURVEY_SECONDS = 60.0

SURVEY = """
import ctypes, importlib, json, os, sys
library = os.path.realpath(os.path.dirname(os.__file__))
modules = os.path.join(library, "lib-dynload")
for name in os.listdir(modules) if os.path.isdir(modules) else ():
    if not any(word in name for word in ("test", "xx", "_tkinter")):
        try:
            importlib.import_module(name.partition(".")[0])
        except ImportError:
            pass
try:
    ctypes.CDLL("libgcc_s.so.1")  # the C library loads it when a thread is ended
except OSError:
    pass
class Loaded(ctypes.Structure):
    _fields_ = [("address", ctypes.c_void_p), ("name", ctypes.c_char_p)]
names = []
seen = lambda loaded, *_: names.append(os.fsdecode(loaded.contents.name or b"")) or 0
ctypes.CDLL(None).dl_iterate_phdr(ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(Loaded), ctypes.c_size_t, ctypes.c_void_p)(seen), None)
print(json.dumps([os.path.realpath(sys.executable), library, sys.platlibdir, names]))
"""
"""Script that imports all compiled modules of the standard library, to list the shared libraries that they load."""


class Interpreter(NamedTuple):
    """Python inside a cell: the folders and files that it needs, as (outside, inside) paths, and its command."""

    folders: list[tuple[str, str]]
    files: list[tuple[str, str]]
    hidden: list[str]
    """Folders inside that appear empty."""
    command: list[str]


@functools.cache
def find_base() -> str:
    """Return the path of the Python interpreter from which this virtual environment was made."""
    return os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable)


@functools.cache
def find_interpreter() -> Interpreter:
    """Find the files that this Python and its standard library need, without installed packages. Cached.

    Runs a survey script in a child process. Raises ConfineError if that fails.
    """
    try:
        survey = subprocess.run(
            [find_base(), "-I", "-S", "-c", SURVEY],
            capture_output=True, text=True, timeout=SURVEY_SECONDS, check=True, env={}, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        program, library, folder, names = json.loads(survey.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise ConfineError(
            f"generated code cannot be confined here: {find_base()} cannot be surveyed ({error})"
        ) from error
    inside = f"{HOME}/{folder}/{os.path.basename(library)}"
    files = {program: f"{HOME}/bin/python3"}
    for name in names:
        if os.path.isabs(name) and os.path.isfile(name) and not name.startswith(library + "/"):
            # The loader itself is found by its full path, which is written into the program.
            loader = os.path.basename(name).startswith("ld")
            files[name] = name if loader else f"{LIBRARIES}/{os.path.basename(name)}"
    files[program] = f"{HOME}/bin/python3"
    hidden = [name for name in ("site-packages", "dist-packages") if os.path.isdir(f"{library}/{name}")]
    return Interpreter(
        folders=[(library, inside)],
        files=sorted(files.items()),
        hidden=[f"{inside}/{name}" for name in hidden],
        command=[f"{HOME}/bin/python3", *OPTIONS, "/code.py"],
    )
