"""The page server's answers: lists, filters, search, matches, credit, curves, notes; also for a live run."""

import json
import math
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import analysis
from analysis.frames import load
from analysis.report import report
from analysis.view import runs, tail
from analysis.view.index import Index
from analysis.view.runs import Library
from analysis.view.services import Services
from arena.cli.page_data import deal_facts
from arena.errors import StoreError
from arena.store.reader import RunReader
from tests.factories.commands import arena
from tests.factories.hostile import limit_seconds
from tests.factories.made_run import make_match, make_run
from tests.factories.report import read_answers
from tests.factories.view import PORT, Client

EXAMPLE = Path(analysis.__file__).parent / "notebooks" / "example"
ONE = "/api/runs/negotiation"


@pytest.fixture(scope="module")
def client() -> Client:
    return Client(EXAMPLE)


def wait_for_answer(client: Client, path: str, **query: str) -> Any:
    """Poll until there is an answer, and return it."""
    for _ in range(600):
        answer = client.get(path, 200, **query)
        if not answer.get("waiting") and not answer.get("unread") and not answer.get("running"):
            return answer
        time.sleep(0.1)
    raise AssertionError(answer)


def test_runs_are_listed_with_changed_metrics(client: Client) -> None:
    runs = {run["name"]: run for run in client.get("/api/runs")}
    assert set(runs) == {"bargain", "negotiation"}
    assert runs["negotiation"]["iterations"] == 12 and not runs["negotiation"]["live"]
    figure = runs["negotiation"]["figure"]
    assert (
        figure["key"] == "report.deal"
        and figure["values"][0] == pytest.approx(0.203125)
        and len(figure["values"]) == 12
    )


def test_a_page_of_matches_is_the_log(client: Client) -> None:
    log = load(EXAMPLE / "negotiation")
    first = wait_for_answer(client, f"{ONE}/matches", limit="7", offset="3")
    assert first["total"] == first["of"] == len(log.matches) == 768 and len(first["rows"]) == 7
    newest = log.matches.sort_values(["iteration", "match"], ascending=[False, True])["match"].tolist()
    assert [row["match"] for row in first["rows"]] == newest[3:10]
    row, known = first["rows"][0], log.matches.set_index("match")
    assert (
        row["turns"] == known.loc[row["match"], "turns"]
        and row["report"]["deal"] == known.loc[row["match"], "report.deal"]
    )


def test_sorts_by_largest_loss_of_advantage(client: Client) -> None:
    turns = load(EXAMPLE / "negotiation").turns.dropna(subset=["advantage"])
    rows = wait_for_answer(client, f"{ONE}/matches", sort="low", limit="5")["rows"]
    assert rows[0]["low"] == pytest.approx(turns["advantage"].min())
    assert [row["low"] for row in rows] == sorted(row["low"] for row in rows)
    best = wait_for_answer(client, f"{ONE}/matches", sort="-high", limit="1")["rows"][0]
    assert best["high"] == pytest.approx(turns["advantage"].max())


@pytest.mark.parametrize(
    ("query", "condition"),
    [
        ({"iteration": "3"}, "iteration = 3"),
        ({"iteration": "3-5"}, "iteration between 3 and 5"),
        ({"policy": "hard_liner"}, "match in (select match from seats where policy = 'hard_liner')"),
        ({"where": 'turns > 4 and "report.deal"'}, 'turns > 4 and "report.deal"'),
        ({"where": "not valid"}, "match in (select match from turns where not valid)"),
        ({"status": "failed"}, "status = 'failed'"),
        (
            {"text": "accept"},
            "match in (select match from turns where action ilike '%accept%' or public ilike '%accept%')",
        ),
    ],
)
def test_filters_agree_with_sql(client: Client, query: dict[str, str], condition: str) -> None:
    expected = analysis.sql(EXAMPLE / "negotiation", f"select count(*) as n from matches where {condition}")["n"].iloc[
        0
    ]
    assert wait_for_answer(client, f"{ONE}/matches", limit="1", **query)["total"] == expected


@pytest.mark.parametrize(
    "query",
    [
        {"iteration": "x"}, {"sort": "nothing"}, {"limit": "-1"}, {"offset": "9" * 30}, {"where": "((nothing"},
        {"text": "(", "by": "regex"}, {"text": "x", "by": "nothing"}, {"text": "x", "of": "nothing"},
        {"where": "true) union (select match, 1 from turns"}, {"where": "drop table matches"},
    ],
)  # fmt: skip
def test_refuses_invalid_requests_in_one_line(client: Client, query: dict[str, str]) -> None:
    line = client.get(f"{ONE}/matches", 400, **query)["error"]
    assert line and "\n" not in line and "Traceback" not in line


def test_match_shows_what_its_players_saw(client: Client) -> None:
    answer, row = (
        client.get(f"{ONE}/matches/0005-0000"),
        load(EXAMPLE / "negotiation").readers["negotiation"].match("0005-0000"),
    )
    assert answer["deal"][0] == ["all know", [["pool", "books 3, hats 1, balls 1"]]]
    assert [turn["action"] for turn in answer["turns"]] == [turn["action"] for turn in row["turns"]]
    assert [turn["messages"] for turn in answer["turns"]] == [
        [{"sender": m["sender"], "text": m["text"], "images": []} for m in turn["messages"]] for turn in row["turns"]
    ]
    log = load(EXAMPLE / "negotiation").turns
    own = log[log["match"] == "0005-0000"]
    assert [turn["advantage"] for turn in answer["turns"]] == pytest.approx(own["advantage"].tolist())
    for turn in answer["turns"]:
        assert turn["return"] == pytest.approx(
            own[(own["seat"] == turn["seat"]) & (own["turn"] >= turn["index"])]["reward"].sum()
        )


def test_unknown_runs_and_matches_are_one_line(client: Client) -> None:
    for path in (
        "/api/runs/nobody",
        "/api/runs/nobody/curves",
        f"{ONE}/matches/0005-9999",
        f"{ONE}/matches/x",
        f"{ONE}/matches/9999-0000/tokens",
    ):
        assert "\n" not in client.get(path, 404)["error"]


@pytest.mark.parametrize("estimator", ["rae", "grpo", "[{mars: {gamma: 0.5}}]"])
def test_advantages_are_those_of_arena_credit(client: Client, estimator: str) -> None:
    answer = wait_for_answer(client, f"{ONE}/matches/0003-0001/credit", estimator=estimator)
    printed = json.loads(arena("credit", EXAMPLE / "negotiation", "--estimators", estimator, "--json").out)["turns"]
    own = {row["turn"]: row for row in printed if row["match"] == "0003-0001"}
    assert own and {int(turn): value[1] for turn, value in answer["turns"].items()} == {
        turn: row[answer["name"]] for turn, row in own.items()
    }


def test_refuses_unknown_estimator_in_one_line(client: Client) -> None:
    for estimator in ("nothing", "", "x" * 500, "[", "mars: {gamma: x}", "../x.py:f", "/etc/passwd:f"):
        for _ in range(100):
            answer = client.client.get(
                f"{ONE}/matches/0003-0001/credit", params={"estimator": estimator}, headers=client.headers
            )
            if "waiting" not in answer.json():
                break
            time.sleep(0.05)
        assert answer.status_code == 400 and "\n" not in answer.json()["error"], estimator


def test_tokens_are_those_of_the_log(client: Client) -> None:
    answer = client.get(f"{ONE}/matches/0005-0003/tokens")
    table = load(EXAMPLE / "negotiation", iterations=[5]).tokens
    own = table[table["match"] == "0005-0003"]
    (stream,) = answer["streams"]
    assert stream["id"] == own["id"].tolist() and stream["sampled"] == own["sampled"].tolist()
    assert answer["kept"] == ["logprob", "advantage"]
    sampled = [value for value in stream["logprob"] if value is not None]
    assert sampled == pytest.approx(own["logprob"].dropna().tolist())


def test_a_large_open_iteration_is_read_a_part_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A match is found at once, no request waits for the whole file, and a replaced file is read anew."""
    monkeypatch.setattr(tail, "CHUNK_BYTES", 1000)
    monkeypatch.setattr(Index.refresh, "__defaults__", (1e-9,))
    run = make_run(tmp_path / "run", iterations=1)
    run.log.extend([make_match(0, number) for number in range(10, 30)])
    client = Client(tmp_path / "run")
    assert client.get("/api/runs/run/matches/0000-0029")["id"] == "0000-0029"
    first = client.get("/api/runs/run/matches")
    assert first["unread"] == 1 and 0 < first["total"] < 24
    answer = wait_for_answer(client, "/api/runs/run/matches", limit="200")
    ids = [row["match"] for row in answer["rows"]]
    assert len(ids) == len(set(ids)) == answer["total"] == 24
    assert client.get("/api/runs/run/matches/0000-0012")["id"] == "0000-0012"
    client.get("/api/runs/run/matches/0000-0031", 404)
    path = tmp_path / "run" / "log" / "0000.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.rename(tmp_path / "before")
    path.write_bytes(b"".join(lines[:3]))
    assert wait_for_answer(client, "/api/runs/run/matches")["total"] == 3


@pytest.mark.slow
def test_curves_show_at_once_and_their_intervals_later(tmp_path: Path) -> None:
    """The first answer reads no match: it has no intervals and no theory levels yet."""
    shutil.copytree(EXAMPLE / "negotiation", tmp_path / "run")
    client = Client(tmp_path / "run")
    log = (tmp_path / "run" / "log").rename(tmp_path / "away")
    first = client.get("/api/runs/run/curves")
    log.rename(tmp_path / "run" / "log")
    assert first["unread"] and all(
        point[2] is None for line in first["curves"][0]["series"] for point in line["points"]
    )
    answer = wait_for_answer(client, "/api/runs/run/curves")
    assert not answer["unread"] and {c["title"] for c in answer["curves"]} == {c["title"] for c in first["curves"]}
    assert any(curve["levels"] for curve in answer["curves"])


@pytest.mark.slow
def test_figures_are_those_of_the_report(client: Client) -> None:
    answer, page = client.get(f"{ONE}/summary"), read_answers(report(EXAMPLE / "negotiation", theory={}))
    assert answer == page["summary"] and answer["outcomes"]["sides"] == ["first", "second"]


def test_curves_are_the_metrics_with_intervals_around_them(client: Client) -> None:
    answer = wait_for_answer(client, f"{ONE}/curves")
    curves = {curve["title"]: curve for curve in answer["curves"]}
    frame = load(EXAMPLE / "negotiation").iterations
    for title, key in (("Deals", "report.deal"), ("Valid acts of all turns", "valid_rate")):
        points = curves[title]["series"][0]["points"]
        assert [point[1] for point in points] == pytest.approx(frame[key].tolist())
        assert all(low <= value <= high for _, value, low, high in points)
    assert {line["label"] for line in curves["Payoff by seat"]["series"]} == {"opener", "responder"}
    for line in curves["Reward by role"]["series"]:
        assert all(value == pytest.approx((low + high) / 2) for _, value, low, high in line["points"])
    assert {level["label"] for level in curves["Joint value"]["levels"]} == {
        "best, on average",
        "Nash bargain, on average",
    }


@pytest.mark.slow
def test_alarms_and_the_league(client: Client) -> None:
    assert client.get(f"{ONE}/alarms") == []
    league = client.get(f"{ONE}/league")
    nodes = {node["name"]: node for node in league["nodes"]}
    assert nodes["shared"]["learns"] and nodes["shared"]["matches"] == 768 and not nodes["conceder"]["learns"]
    (edge,) = [e for e in league["edges"] if {e["one"], e["other"]} == {"conceder", "shared"}]
    assert edge["ahead"][1] > 0


def test_sql_is_answered(client: Client) -> None:
    answer = client.post("/api/sql", {"runs": ["negotiation"], "query": "select count(*) as n, 'x' as s from matches"})
    assert answer == {"columns": ["n", "s"], "rows": [[768, "x"]], "total": 1}
    for query in (
        "drop table matches",
        "select * from read_csv('/etc/passwd')",
        "select 1; select 2",
        "",
        "attach 'x.db'",
    ):
        assert "\n" not in client.post("/api/sql", {"runs": ["negotiation"], "query": query}, 400)["error"]
    client.post("/api/sql", {"runs": ["nobody"], "query": "select 1"}, 404)
    client.post("/api/sql", {"runs": "negotiation", "query": "select 1"}, 400)


def test_notes_are_kept_beside_the_run_and_taken_back(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run").path
    client = Client(run)
    for turn, text in ((None, "a whole match"), (1, "</script><b>\u2028\ud800 greedy")):
        client.post("/api/runs/run/notes", {"match": "0000-0001", "turn": turn, "text": text})
    first, second = client.get("/api/runs/run/notes")
    assert [first["turn"], second["turn"], second["text"]] == [None, 1, "</script><b>\u2028\ufffd greedy"]
    assert [note["note"] for note in client.get("/api/runs/run/notes", text="GREEDY")] == [second["note"]]
    assert len(client.get("/api/runs/run/matches/0000-0001")["notes"]) == 2
    client.post("/api/runs/run/notes", {"remove": first["note"]})
    assert [note["note"] for note in client.get("/api/runs/run/notes")] == [second["note"]]
    lines = (run / "notes.jsonl").read_text("ascii").splitlines()
    assert len(lines) == 3 and all(json.loads(line) for line in lines)
    wrong: list[tuple[Any, int]] = [
        ({"match": "0000-0001", "turn": 9, "text": "x"}, 400), ({"match": "9-9", "turn": 0, "text": "x"}, 404),
        ({"match": "0000-0001", "turn": True, "text": "x"}, 400), ({"match": "0000-0001", "turn": 0, "text": " "}, 400),
        ({"match": "0000-0001", "turn": 0, "text": "x" * 10_001}, 400), ({"remove": "nothing"}, 400), ({}, 400),
    ]  # fmt: skip
    for body, status in wrong:
        client.post("/api/runs/run/notes", body, status)
    assert (run / "notes.jsonl").read_text("ascii").splitlines() == lines


def test_a_note_is_not_written_through_a_link(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run").path
    (tmp_path / "precious").write_text("mine")
    (run / "notes.jsonl").symlink_to(tmp_path / "precious")
    client = Client(run)
    client.post("/api/runs/run/notes", {"match": "0000-0001", "turn": None, "text": "x"}, 404)
    assert (tmp_path / "precious").read_text() == "mine"


@pytest.mark.parametrize("file_name", ["run.pid", "log/0001.jsonl", "feed.jsonl", "metrics.jsonl", "config.yaml"])
def test_pipe_in_a_run_blocks_no_request(tmp_path: Path, file_name: str) -> None:
    run = make_run(tmp_path / "run", iterations=2).path
    (run / file_name).unlink(missing_ok=True)
    index = Index(RunReader(run)) if file_name != "config.yaml" else None
    os.mkfifo(run / file_name)
    start = time.monotonic()
    with limit_seconds(5), suppress(StoreError):
        if index is None:
            assert Library([tmp_path]).runs() == {}
            return
        assert runs.find_process(index) is None
        client = (
            index.refresh,
            index.list_in_flight,
            lambda: runs.summarise_run("run", index),
            lambda: index.find_open_match(1, "0001-0001"),
        )
        for ask in client:
            with suppress(StoreError):
                ask()
    assert time.monotonic() - start < 4


def test_a_live_run_grows_and_each_line_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path / "run", iterations=2)
    client = Client(run.path)
    before = client.get("/api/changes")
    assert wait_for_answer(client, "/api/runs/run/matches")["total"] == 8
    assert client.get("/api/runs/run/matches/0001-0002")["open"]
    run.log.extend([make_match(1, 7)])
    assert client.get("/api/changes") != before
    answer = wait_for_answer(client, "/api/runs/run/matches")
    assert answer["total"] == 9 and "0001-0007" in [row["match"] for row in answer["rows"]]
    assert client.get("/api/runs/run/matches/0001-0007")["turns"][0]["action"] == "OFFER 1 0 2"
    assert client.get("/api/runs/run/matches/0001-0007/tokens")["streams"][0]["id"] == [1, 2]
    with (run.path / "log" / "0001.jsonl").open("ab") as file:
        file.write(b'{"schema":4,"id":"0001-0008","tor')  # a line that is still being written
    assert wait_for_answer(client, "/api/runs/run/matches")["total"] == 9
    run.log.close()
    run.log.seal(1)
    assert wait_for_answer(client, "/api/runs/run/matches")["total"] == 9
    assert not client.get("/api/runs/run/matches/0001-0007")["open"]


def test_new_runs_come_by_themselves_and_links_are_no_runs(tmp_path: Path) -> None:
    client = Client(tmp_path)
    assert client.get("/api/runs") == []
    make_run(tmp_path / "one")
    (tmp_path / "latest").symlink_to(tmp_path / "one")
    (tmp_path / "file").write_text("x")
    assert [run["name"] for run in client.get("/api/runs")] == ["one"]


def test_a_damaged_run_is_one_line_and_the_others_are_shown(tmp_path: Path) -> None:
    for name in ("good", "torn"):
        make_run(tmp_path / name, live=False)
    (tmp_path / "torn" / "metrics.jsonl").write_text("{\n{}\n")
    (tmp_path / "torn" / "log" / "0001.parquet").write_bytes(b"PAR1 nonsense")
    client = Client(tmp_path)
    runs = {run["name"]: run for run in client.get("/api/runs")}
    assert "metrics.jsonl:1" in runs["torn"]["error"] and runs["good"]["iterations"] == 3
    answer = wait_for_answer(client, "/api/runs/torn/matches")
    assert answer["total"] == 8 and len(answer["damaged"]) == 1 and "0001.parquet" in answer["damaged"][0]
    assert "0001.parquet" in client.get("/api/runs/torn/matches/0001-0000", 404)["error"]
    assert wait_for_answer(client, "/api/runs/good/matches")["total"] == 12


@pytest.mark.slow
def test_forks_compare_alternative_acts(tmp_path: Path) -> None:
    import shutil

    shutil.copytree(EXAMPLE / "bargain", tmp_path / "bargain")
    client = Client(tmp_path / "bargain")
    (row,) = client.get("/api/runs/bargain/matches")["rows"]
    path = f"/api/runs/bargain/matches/{row['match']}/fork"
    for body in (
        {"turn": 99}, {"turn": 0, "n": 10**6, "act": "WALK"}, {"turn": 0, "seat": "nobody", "who": "random"},
        {"turn": 0, "seat": "opener", "who": "evil.py:f"}, {"turn": 0, "seat": "opener", "who": "../run"},
        {"turn": True, "act": "WALK"}, {"turn": 0, "seat": "opener", "who": ["random"]},
        {"turn": 0, "seat": "opener", "who": "--out=x"}, {"turn": 0, "act": "x" * 5000},
    ):  # fmt: skip
        assert "\n" not in client.post(path, body, 400)["error"]
    job = client.post(path, {"turn": 1, "act": "WALK", "n": 2})["job"]
    answer = wait_for_answer(client, f"/api/jobs/{job}")
    assert answer["answer"]["figures"]["deal"]["forked"][0] == 0.0, answer
    assert "error" in client.get("/api/jobs/nothing", 400)


def test_refuses_to_stop_a_finished_run(tmp_path: Path) -> None:
    import os

    run = make_run(tmp_path / "run").path
    (run / "run.pid").write_text(f"{os.getpid()}\n")  # left by a run that was killed: the number is another's now
    client = Client(run)
    assert "this run is not running" in client.post("/api/runs/run/control", {"do": "stop"}, 400)["error"]
    assert client.post("/api/runs/run/control", {"do": "rm"}, 400)


def test_page_works_without_services() -> None:
    client = Client(EXAMPLE, services=Services(deal_facts))
    assert client.get("/api/estimators") == []
    assert "error" in client.get(f"{ONE}/matches/0003-0001/credit", 400, estimator="rae")
    assert "error" in client.post(f"{ONE}/matches/0003-0001/fork", {"turn": 0, "act": "WALK"}, 400)


ODD: tuple[Any, ...] = (
    None, True, 0, 1, -1, 1.0, 0.5, 1e308, 2**63, 10**400, "", "x", "\0", "\ud800", [], [[]], ["x"], {}, {"a": 1},
    "x" * 6000,
)  # fmt: skip
POSTS: dict[str, dict[str, Any]] = {
    "/api/runs/bargain/notes": {"match": "9999-0000", "turn": 99, "text": "x"},
    "/api/sql": {"runs": ["nobody"], "query": "select 1"},
    "/api/runs/bargain/matches/0001-0000/fork": {"turn": 99, "n": 1, "act": "WALK", "seat": "opener", "who": "random"},
    "/api/runs/bargain/control": {"do": "rm"},
    "/api/play": {"game": "../x", "place": 0, "who": "random"},
    "/api/play/x": {"act": "a", "talk": ""},
    "/api/play/x/end": {"soon": True},
}


@pytest.mark.parametrize("path", POSTS)
def test_malformed_posts_are_refused_in_one_line(path: str) -> None:
    """Each has one error beside the unusual values."""
    client, base = Client(EXAMPLE / "bargain", services=Services(deal_facts)), POSTS[path]
    headers = client.headers | {"origin": f"http://127.0.0.1:{PORT}", "content-type": "application/json"}
    unknown = [(field, ODD[i % len(ODD)]) for i, field in enumerate(["remove", "match", "run", "turn", "seat"])]
    for field, value in [*((field, value) for field in base for value in ODD), *unknown]:
        answer = client.client.post(path, content=json.dumps(base | {field: value}), headers=headers)
        assert 400 <= answer.status_code < 500, (field, value, answer.text[:200])
        assert answer.json()["error"].isprintable()


def test_non_finite_numbers_are_null() -> None:
    from analysis.view.guard import Json

    assert Json({"a": math.nan, "b": [math.inf], "c": 2**60, "d": "\ud800\u2028</script>"}).body == (
        b'{"a":null,"b":[null],"c":"1152921504606846976","d":"\\ud800\\u2028</script>"}'
    )


def test_a_person_plays_a_match_in_lines(tmp_path: Path) -> None:
    client = Client(tmp_path)
    for body in (
        {}, {"game": "kuhn_poker", "place": 2, "who": "random"}, {"game": "x.py:Game", "place": 0, "who": "random"},
        {"game": "kuhn_poker", "place": 0, "who": "../run"}, {"game": "--help", "place": 0, "who": "random"},
        {"game": "kuhn_poker", "place": 0, "who": "human.py:f"},
    ):  # fmt: skip
        assert "\n" not in client.post("/api/play", body, 400)["error"]
    id = client.post("/api/play", {"game": "kuhn_poker", "place": 0, "who": "random"})["id"]
    path, wrong = f"/api/play/{id}", False
    for _ in range(600):
        answer = client.get(path)
        assert "error" not in answer, answer
        last = answer["lines"][-1] if answer["lines"] else {}
        if "end" in last:
            break
        if "ask" in last and not wrong:
            assert last["ask"]["seat"] == "first" and "BET" in last["ask"]["legal"]
            client.post(path, {"act": "\ud800", "talk": ""}, 400)
            client.post(path, {"act": "nonsense </script>", "talk": ""})
            wrong = True
        elif "wrong" in last:
            client.post(path, {"act": "pass", "talk": "hm | hm"})
            time.sleep(0.2)
        elif "ask" in last:
            client.post(path, {"act": last["ask"]["legal"][0], "talk": ""})
            time.sleep(0.2)
        time.sleep(0.1)
    record = answer["lines"][-1]["end"]
    assert record["status"] == "finished" and record["seats"]["first"]["kind"] == "human"
    assert any("wrong" in line for line in answer["lines"])
    client.post(path, {"act": 1}, 400)
    client.get("/api/play/nothing", 400)


def test_a_person_takes_a_seat_of_a_logged_match(tmp_path: Path) -> None:
    import shutil

    shutil.copytree(EXAMPLE / "bargain", tmp_path / "bargain")
    client = Client(tmp_path / "bargain")
    (row,) = client.get("/api/runs/bargain/matches")["rows"]
    at = {"run": "bargain", "match": row["match"], "turn": 1}
    client.post("/api/play", at | {"seat": "nobody"}, 400)
    client.post("/api/play", at | {"seat": "responder", "turn": 99}, 400)
    id = client.post("/api/play", at | {"seat": "responder"})["id"]
    for _ in range(600):
        answer = client.get(f"/api/play/{id}")
        assert "error" not in answer, answer
        if answer["lines"] and "ask" in answer["lines"][-1]:
            texts = [text for line in answer["lines"] if "ask" in line for _, text in line["ask"]["messages"]]
            assert any(text.startswith("OFFER") for text in texts), "what was said before the person sat down"
            client.post(f"/api/play/{id}", {"act": "WALK", "talk": ""})
        if answer["lines"] and "end" in answer["lines"][-1]:
            break
        time.sleep(0.15)
    assert answer["lines"][-1]["end"]["figures"]["deal"]["forked"][0] == 0.0


@pytest.mark.slow
def test_arena_play_opens_the_same_seat_without_a_run(tmp_path: Path) -> None:
    import subprocess
    import sys
    import urllib.request

    command = ["-P", "-m", "arena", "play", "--game", "kuhn_poker", "--seat", "0=human", "--seat", "1=random", "--web"]
    with subprocess.Popen([sys.executable, *command], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            base, _, rest = child.stdout.readline().strip().partition("/#token=")
            token, _, id = rest.partition("/play?id=")
            request = urllib.request.Request(f"{base}/api/play/{id}", headers={"Authorization": f"Bearer {token}"})
            for _ in range(600):
                with urllib.request.urlopen(request) as answer:
                    lines = json.loads(answer.read())["lines"]
                if lines:
                    break
                time.sleep(0.1)
            assert lines[0]["ask"]["seat"] == "first"
        finally:
            child.terminate()
