"""Main program of a child process that answers lines of JSON with the class `Server` of a given file.

Neither this file nor the given one imports modules of Arena, because their Python may not have it. The process ends
when its standard input closes, as when Arena is killed, and with it the processes that it started and the given
temporary folder. Output printed by the served code is discarded.
"""

import contextlib
import importlib.util
import json
import os
import resource
import shutil
import signal
import sys
import threading
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NoReturn


def make_server(path: Path) -> Any:
    """Import a file and create its `Server`."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Server()


def main(path: Path, folder: Path) -> None:
    """Serve requests with the `Server` of the file at `path` until standard input closes, then `end`."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # also of processes that it starts, such as Java
    out, requests = os.fdopen(os.dup(1), "w"), SimpleQueue[str]()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

    def listen() -> None:
        for line in sys.stdin:
            requests.put(line)
        end(folder)

    threading.Thread(target=listen, daemon=True).start()
    server = make_server(path)
    while True:
        try:
            answer = json.dumps(server.answer(json.loads(requests.get())))
        except Exception as error:  # noqa: BLE001 packages of others fail in any way
            answer = json.dumps({"error": f"{type(error).__name__}: {str(error)[:2000]}"})
        print(answer, file=out, flush=True)


def end(folder: Path) -> NoReturn:
    """Kill this process and those that it started, such as a browser, and remove the temporary folder."""
    group = os.getpgrp()
    if os.fork() == 0:
        os.setsid()
        with contextlib.suppress(OSError):  # none is left
            os.killpg(group, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
