"""Image processors of model folders: equal to those of transformers, bounded, and refused if invalid."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil, smart_resize
from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil

from agents.errors import WeightsError
from agents.eyes.preprocessing import Preprocessing, limit_pixels, read_preprocessing
from agents.eyes.qwen import Qwen2
from agents.layouts import create_vision
from games.pictures import decode_picture
from tests.factories.eyes import BYTES, PROCESSOR, make_config, make_picture


def make_vision(family: str, folder: Path, settings: dict[str, Any]) -> Any:
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    return create_vision(make_config(family), folder)


@pytest.mark.parametrize("family", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"])
@pytest.mark.parametrize("size", [(24, 24), (16, 48), (40, 24), (200, 130), (3, 3)])
def test_patches_are_those_of_transformers(family: str, size: tuple[int, int], tmp_path: Path) -> None:
    ours = make_vision(family, tmp_path, PROCESSOR)
    reference = Qwen2VLImageProcessorPil(**PROCESSOR)
    image = make_picture(5, *size)
    expected = reference(decode_picture(BYTES[image.hash]), return_tensors="np")
    fit = ours.fit(*size)
    patches, grids = ours.cut_patches([ours.scale_image(BYTES[image.hash], fit.size)])
    assert (
        np.array_equal(patches.numpy(), expected["pixel_values"])
        and grids.tolist() == expected["image_grid_thw"].tolist()
    )
    assert fit.tokens == int(expected["image_grid_thw"].prod()) // 4


@pytest.mark.parametrize(
    ("family", "reference", "settings"),
    [
        ("gemma3", Gemma3ImageProcessorPil, {"size": {"height": 32, "width": 32}, "resample": 2}),
        ("internvl", GotOcr2ImageProcessorPil, {"size": {"height": 32, "width": 32}, "resample": 3}),
        (
            "smolvlm",
            SmolVLMImageProcessorPil,
            {"size": {"longest_edge": 48}, "max_image_size": {"longest_edge": 48}, "do_image_splitting": False,
             "resample": 1},
        ),
    ],
)  # fmt: skip
def test_pixels_are_those_of_transformers(
    family: str, reference: Any, settings: dict[str, Any], tmp_path: Path
) -> None:
    settings |= {"image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.3, 0.4], "rescale_factor": 1 / 255}
    ours = make_vision(family, tmp_path, settings)
    image = make_picture(6, 70, 70)
    (expected,) = reference(**settings)(decode_picture(BYTES[image.hash]), return_tensors="np")["pixel_values"]
    assert np.array_equal(ours.scale_image(BYTES[image.hash]).numpy(), expected.reshape(3, *expected.shape[-2:]))


@given(st.integers(1, 4096), st.integers(1, 4096))
def test_an_image_is_fitted_as_by_transformers(height: int, width: int) -> None:
    """Except where rounding up exceeds the maximum."""
    ours = Qwen2(15, 0, 0, Preprocessing())
    if max(height, width) > 200 * min(height, width):
        with pytest.raises(ValueError, match="more than 200 times as long as wide"):
            ours.fit(height, width)
        return
    fit, most = ours.fit(height, width), ours.preprocessing.max_pixels
    assert fit.size and fit.tokens == fit.size[0] * fit.size[1] // 28**2 <= 1280
    expected = smart_resize(height, width, 28, ours.preprocessing.min_pixels, most)
    assert fit.size == expected or expected[0] * expected[1] > most


@given(st.integers(1, 4096), st.integers(1, 4096), st.integers(28**2, 10**6))
def test_a_budget_of_pixels_is_kept(height: int, width: int, most: int) -> None:
    if max(height, width) <= 200 * min(height, width):
        fit = Qwen2(15, 0, 0, Preprocessing()).fit(height, width, most)
        assert fit.size and fit.size[0] * fit.size[1] <= most and fit.tokens >= 1


def test_refuses_unachievable_pixel_budget() -> None:
    with pytest.raises(WeightsError, match="a token has 784 pixels, so an image cannot have 100"):
        Qwen2(15, 0, 0, Preprocessing()).make_token(100)
    smolvlm = create_vision(make_config("smolvlm"))
    assert smolvlm and smolvlm.make_token(48**2)
    with pytest.raises(WeightsError, match=r"scales every image to 48 x 48 pixels: remove images\.pixels"):
        smolvlm.make_token(48**2 - 1)


def test_a_saved_policy_keeps_its_budget(tmp_path: Path) -> None:
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"max_pixels": 10**6, "min_pixels": 3136}))
    limit_pixels(tmp_path, 2000)
    preprocessing = read_preprocessing(tmp_path, Preprocessing())
    assert (preprocessing.min_pixels, preprocessing.max_pixels) == (2000, 2000)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"image_mean": [0.5, 0.5]}, "image_mean is not three numbers"),
        ({"image_mean": [0.5, 0.5, "x"]}, "image_mean is not three numbers"),
        ({"image_std": [0.5, 0, 0.5]}, "image_std has a number that is not positive"),
        ({"image_std": [0.5, float("nan"), 0.5]}, "image_std is not three numbers"),
        ({"rescale_factor": -1}, "rescale_factor"),
        ({"resample": "bicubic"}, "resample"),
        ({"resample": 99}, "resample"),
        ({"max_pixels": 10**12}, "max_pixels is not a number of pixels"),
        ({"size": {"shortest_edge": -1}}, "min_pixels is not a number of pixels"),
        ({"size": {"shortest_edge": 9000, "longest_edge": 100}}, "min_pixels is more than max_pixels"),
    ],
)
def test_refuses_invalid_processor_settings_in_one_line(settings: dict[str, Any], reason: str, tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=reason) as error:
        make_vision("qwen2_vl", tmp_path, settings)
    assert "\n" not in str(error.value)
