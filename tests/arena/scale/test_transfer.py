"""Weights sent in buckets to engines and files arrive bit-equal. Members are threads, without a cluster."""

import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from arena.scale import transfer
from arena.scale.layout import Layout
from arena.scale.transfer import Link, Rendezvous, TransferFailed, await_sender, receive_slices, send

DTYPES = [torch.float32, torch.bfloat16, torch.float64, torch.uint8]
LOOPBACK = "127.0.0.1"


def make_tensors() -> dict[str, torch.Tensor]:
    """Return tensors of several dtypes and shapes, none of which fits a bucket of 64 bytes evenly."""
    torch.manual_seed(0)
    shapes = {"a": (3, 5), "half": (7,), "b.c": (2, 3, 4), "byte": (13,), "scalar": ()}
    dtypes = dict(zip(shapes, [torch.float32, torch.bfloat16, torch.float32, torch.uint8, torch.float64], strict=True))
    return {name: (torch.randn(shape) * 9).abs().to(dtypes[name]) for name, shape in shapes.items()}


def fill_buckets(layout: Layout, held: dict[str, torch.Tensor], size: int) -> list[torch.Tensor]:
    """Return all buckets of these tensors, filled."""
    buckets = [torch.zeros(layout.length(number, size), dtype=torch.uint8) for number in layout.buckets(size)]
    for number, bucket in enumerate(buckets):
        layout.fill(number, size, lambda name: nullcontext(held[name]), bucket)
    return buckets


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.lists(st.integers(1, 5), max_size=3), st.sampled_from(DTYPES)), min_size=1, max_size=6),
    st.integers(1, 12),
)
def test_slices_of_all_buckets_cover_every_byte_once(parts: list[tuple[list[int], torch.dtype]], eights: int) -> None:
    held = {str(i): torch.randint(0, 99, shape).to(dtype) for i, (shape, dtype) in enumerate(parts)}
    layout, size = Layout.of(held), 8 * eights
    received_tensors = {name: torch.zeros_like(tensor) for name, tensor in held.items()}
    for number, bucket in enumerate(fill_buckets(layout, held, size)):
        assert 0 < len(bucket) <= size
        covered = 0
        for part in layout.slices(number, size):
            received_tensors[part.spec.name].view(-1)[part.start : part.stop] = part.view(bucket)
            assert part.offset == covered, "without gaps"
            covered += (part.stop - part.start) * part.spec.dtype.itemsize
        assert covered == len(bucket)
    assert all(torch.equal(received_tensors[name], tensor) for name, tensor in held.items())


def test_header_and_buckets_form_a_safetensors_file(tmp_path: Path) -> None:
    held = make_tensors()
    layout, path = Layout.of(held), tmp_path / "model.safetensors"
    path.write_bytes(
        layout.header({"steps": "3"}) + b"".join(b.numpy().tobytes() for b in fill_buckets(layout, held, 64))
    )
    loaded = load_file(path)
    assert loaded.keys() == held.keys() and all(torch.equal(loaded[name], held[name]) for name in held)
    with safe_open(path, "pt") as file:
        assert file.metadata() == {"steps": "3"}
    assert Layout.read_file(path) == (layout, len(layout.header({"steps": "3"})))


def test_file_of_safetensors_is_read_in_its_own_order(tmp_path: Path) -> None:
    held, path = make_tensors(), tmp_path / "optimizer.safetensors"
    save_file(held, path, metadata={"steps": "3"})
    layout, begin = Layout.read_file(path)
    data = torch.frombuffer(bytearray(path.read_bytes()[begin:]), dtype=torch.uint8)
    assert layout.total == len(data)
    for part in layout.slices(0, 1 << 20):
        assert torch.equal(part.view(data), held[part.spec.name].view(-1))


BOTH_TRANSPORTS = pytest.mark.parametrize("shared", [False, True], ids=["sockets", "shared memory"])


def run_members(
    count: int,
    work: Callable[[Link, int], Any],
    timeout: float = 5.0,
    patience: float = 5.0,
    shared: bool = False,
) -> list[Any]:
    """Run a broadcast's members in threads; return what each returns or raises."""
    link = Link("one", LOOPBACK, rendezvous.port, count, timeout, patience, 64, shared)
    answers: list[Any] = [None] * count

    def run(member: int) -> None:
        try:
            answers[member] = work(link.for_member(member, LOOPBACK), member)
        except Exception as error:  # noqa: BLE001 returned below
            answers[member] = error

    threads = [threading.Thread(target=run, args=(member,)) for member in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


rendezvous: Rendezvous


@pytest.fixture(autouse=True)
def new_rendezvous() -> None:
    global rendezvous
    rendezvous = Rendezvous(LOOPBACK)


def receive_tensors(link: Link, layout: Layout, stop: int = 1 << 30) -> dict[str, torch.Tensor]:
    """Return what a member receives; it leaves after `stop` slices."""
    tensors = {spec.name: torch.zeros(spec.shape, dtype=spec.dtype) for spec in layout.specs}
    for count, (part, values) in enumerate(receive_slices(link, await_sender(link), layout)):
        if count == stop:
            raise KeyError("left")
        tensors[part.spec.name].view(-1)[part.start : part.stop] = values
    return tensors


@BOTH_TRANSPORTS
def test_receivers_get_the_senders_values_in_their_dtypes(shared: bool) -> None:
    """The layout has the receivers' dtypes: the sender rounds."""
    held = make_tensors()
    layout = Layout.of({name: t.bfloat16() if name == "a" else t for name, t in held.items()})

    def work(link: Link, member: int) -> Any:
        if member:
            return receive_tensors(link, layout)
        return send(link, rendezvous, layout, lambda name: nullcontext(held[name]))

    error, *results = run_members(3, work, shared=shared)
    assert error == ""
    for result in results:
        assert torch.equal(result["a"], held["a"].bfloat16())
        assert all(torch.equal(result[name], held[name]) for name in held if name != "a")


def test_sender_visits_every_tensor_without_receivers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other ranks gather each tensor together with the sender, so it must not stop early."""
    monkeypatch.setattr(transfer, "CONNECT", timedelta(seconds=1))
    held, visited = make_tensors(), set[str]()

    def get_tensor(name: str) -> Any:
        visited.add(name)
        return nullcontext(held[name])

    (error,) = run_members(1, lambda link, _: send(replace(link, count=2), rendezvous, Layout.of(held), get_tensor))
    assert error and visited == set(held)


@BOTH_TRANSPORTS
def test_receiver_that_leaves_is_noticed_by_the_others(shared: bool) -> None:
    """Members that received everything may not notice; none waits long."""
    held = {"x": torch.randn(4000)}
    layout = Layout.of(held)

    def work(link: Link, member: int) -> Any:
        if member:
            return receive_tensors(link, layout, stop=3 if member == 1 else 1 << 30)
        return send(link, rendezvous, layout, lambda name: nullcontext(held[name]))

    error, first_result, second_result = run_members(3, work, timeout=2.0, shared=shared)
    assert isinstance(first_result, KeyError)
    assert error or isinstance(second_result, TransferFailed)
    assert isinstance(second_result, TransferFailed) or torch.equal(second_result["x"], held["x"])


def test_receivers_do_not_wait_forever_for_a_sender() -> None:
    layout = Layout.of(make_tensors())
    _, result = run_members(2, lambda link, member: receive_tensors(link, layout) if member else None, patience=0.3)
    assert isinstance(result, TransferFailed)


def test_receivers_do_not_wait_for_a_missing_store() -> None:
    layout = Layout.of(make_tensors())
    link = Link("one", LOOPBACK, 9, 2, 1.0, 5.0, 64)
    with pytest.raises(TransferFailed):
        receive_tensors(link.for_member(1, LOOPBACK), layout)
