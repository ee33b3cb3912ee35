"""Untrusted images: valid ones are identified by their header, hostile ones refused in one line, undecoded."""

import base64
import hashlib
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as Pixels

from agents import image_parts
from agents.image_parts import ImageParts, inspect_image
from games.pictures import MAX_SIDE
from tests.factories.image_files import REFUSED, encode_noise, make_data_url, make_image_part


@pytest.mark.parametrize(("kind", "media"), [("PNG", "image/png"), ("JPEG", "image/jpeg"), ("WEBP", "image/webp")])
def test_reads_png_jpeg_and_webp_without_decoding(kind: str, media: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode_noise(kind=kind)

    def load(self: Any) -> None:
        raise AssertionError("pixels are decoded")

    monkeypatch.setattr(Pixels.Image, "load", load)
    images = ImageParts()
    for part in (make_image_part(data, media), {"type": "input_image", "image_url": make_data_url(data, media)}):
        image = images.read(part)
        assert (image.media, image.width, image.height) == (media, 48, 32)
        assert image.hash == hashlib.sha256(data).hexdigest() and images.pictures == {image.hash: data}


@pytest.mark.parametrize("name", REFUSED)
def test_hostile_parts_are_refused_in_one_line_and_nothing_is_fetched(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect(*arguments: Any) -> None:
        raise AssertionError("something is fetched")

    monkeypatch.setattr(socket.socket, "connect", connect)
    part, reason = REFUSED[name]
    with pytest.raises(ValueError, match=r".") as error:
        ImageParts().read(part)
    assert reason in str(error.value) and "\n" not in str(error.value) and len(str(error.value)) < 300


@given(st.binary(max_size=60), st.integers(0, 200), st.sampled_from(["PNG", "JPEG", "WEBP"]))
def test_arbitrary_bytes_are_read_or_refused_in_one_line(junk: bytes, at: int, kind: str) -> None:
    good = encode_noise(kind=kind, size=(8, 8))
    for data in (junk, good[:at] + junk, good[:at] + junk + good[at + len(junk) :]):
        try:
            image = inspect_image(data)
        except ValueError as error:
            assert "\n" not in str(error)
        else:
            assert max(image.width, image.height) <= MAX_SIDE


def test_a_chat_has_a_limit_of_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_parts, "MAX_IMAGES", 2)
    images = ImageParts()
    for _ in range(2):
        images.read(make_image_part(encode_noise()))
    with pytest.raises(ValueError, match="at most 2 images"):
        images.read(make_image_part(encode_noise()))


def test_image_files_stay_inside_the_folder(tmp_path: Path) -> None:
    folder, data = tmp_path / "rows", encode_noise()
    (folder / "in").mkdir(parents=True)
    (folder / "in" / "a.png").write_bytes(data)
    (tmp_path / "secret.png").write_bytes(data)
    (folder / "link.png").symlink_to(tmp_path / "secret.png")
    (folder / "up").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe.png")
    (folder / "large.png").write_bytes(b"\0" * ((8 << 20) + 1))
    images = ImageParts(folder)
    for good in ({"path": "in/a.png"}, {"path": "in/../in/a.png"}, {"base64": base64.b64encode(data).decode()}):
        assert images.read({"type": "image", **good}).width == 48
    assert len(images.files) == 2
    outside = ["../secret.png", str(tmp_path / "secret.png"), "link.png", "up/secret.png", "", "\0", "in/\n"]
    for path in outside:
        with pytest.raises(ValueError, match=r"not inside the data set's folder|cannot be read") as error:
            images.read({"type": "image", "path": path})
        assert "\n" not in str(error.value)
    for path, reason in (("pipe.png", "no regular file"), ("none.png", "No such file"), ("large.png", "larger than 8")):
        with pytest.raises(ValueError, match=reason):
            images.read({"type": "image", "path": path})
    parts: list[dict[str, Any]] = [{}, {"path": 3}, {"path": "in/a.png", "base64": ""}]
    for part in parts:
        with pytest.raises(ValueError, match="a `path` or a `base64`"):
            images.read({"type": "image", **part})
    with pytest.raises(ValueError, match="as a data URL"):
        ImageParts().read({"type": "image", "path": "in/a.png"})
