"""An agent with the fault named by its first argument; the second is a file for its process ids."""

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

fault, pids = sys.argv[1], Path(sys.argv[2])


def note(pid: int) -> None:
    with pids.open("a") as file:
        file.write(f"{pid}\n")


def post(path: str = "/chat/completions", body: Any = None, key: str = "", data: bytes = b"") -> tuple[int, Any]:
    body = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]} if body is None else body
    headers = {"Authorization": f"Bearer {key or os.environ['OPENAI_API_KEY']}", "Content-Type": "application/json"}
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + path, data or json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def child(code: str, session: bool) -> None:
    process = subprocess.Popen([sys.executable, "-S", "-c", code], start_new_session=session)
    note(process.pid)


note(os.getpid())
task = json.loads(sys.stdin.readline())
status, first = post()
assert status == 200, first
if fault == "crash":
    raise SystemExit("out of ideas")
if fault == "killed":
    os.kill(os.getpid(), 9)
if fault == "hang":
    child("import time; time.sleep(600)", session=True)
    time.sleep(600)
if fault == "late":
    time.sleep(30)
    print("too late")
if fault == "orphans":
    for session in (False, True):
        child("import time; time.sleep(600)", session)
    print("done")
if fault == "garbage":
    os.write(1, b"\xff\xfe\x00garbage")
if fault == "silent":
    raise SystemExit
if fault == "endless":
    while True:
        os.write(1, b"x" * 65536)
if fault == "huge":
    long = [{"role": "user", "content": "word " * 2_000_000}]
    try:
        print(post(body={"model": "m", "messages": long})[0])
    except (ConnectionError, urllib.error.URLError):
        print(413)
if fault == "long":
    status, error = post(body={"model": "m", "messages": [{"role": "user", "content": "word " * 20_000}]})
    print(status, error["error"]["code"])
if fault == "fork":
    said = first["choices"][0]["message"]["content"]
    history = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": said}]
    for n in range(3):
        assert post(body={"model": "m", "messages": [*history, {"role": "user", "content": f"fork {n}"}]})[0] == 200
    print("forked")
if fault == "wrong_key":
    status, error = post(key="arena-guess")
    print(status, error["error"]["code"])
if fault == "retry":
    assert post()[1]["choices"] == first["choices"]
    print("retried")
if fault == "malformed":
    print(" ".join(str(post(data=data)[0]) for data in (b"{", b"[]", b"\xff", b'{"a":' * 5000, b"{}")))
if fault == "reward":
    print(post("/arena/reward", {"reward": 0.25})[0])
