"""Settings of a model folder's image processor, and its arithmetic with Pillow and NumPy.

The pixels equal those of transformers' own processors with the Pillow backend. Images are not cut into tiles:
`do_image_splitting`, `crop_to_patches` and `do_pan_and_scan` are ignored.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from agents.errors import WeightsError
from agents.model_config import read_json

if TYPE_CHECKING:
    from PIL.Image import Image

FILES = ("preprocessor_config.json", "processor_config.json")
"""Files with an image processor's settings. In the second they are the entry `image_processor`."""
MAX_PIXELS = 1 << 26


@dataclass(frozen=True)
class Preprocessing:
    """Settings of an image processor."""

    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)
    scale: float = 1 / 255
    resample: int = 2
    """Pillow's number of the filter: 1 Lanczos, 2 bilinear, 3 bicubic."""
    min_pixels: int = 56 * 56
    """Minimum pixels of an image after scaling, for models that keep its proportions."""
    max_pixels: int = 28 * 28 * 1280
    """Maximum pixels of an image after scaling, for the same models."""

    def normalise(self, image: Image, height: int, width: int) -> np.ndarray:
        """Scale an RGB image and return its normalised levels: float32 [3, height, width]."""
        scaled = image.resize((width, height), self.resample)
        levels = np.asarray(scaled).astype(np.float64) * self.scale
        normal = (levels.astype(np.float32) - np.array(self.mean, np.float32)) / np.array(self.std, np.float32)
        return np.ascontiguousarray(normal.transpose(2, 0, 1))


def read_preprocessing(folder: Path, defaults: Preprocessing) -> Preprocessing:
    """Return the settings of a model folder's image processor, with `defaults` for missing ones.

    Raises WeightsError for an invalid value.
    """
    for file in FILES:
        if (folder / file).is_file():
            settings = read_json(folder, file)
            settings = settings.get("image_processor", {}) if file == FILES[1] else settings
            if settings:
                return _parse(settings, defaults, f"{folder}/{file}")
    return defaults


def limit_pixels(folder: Path, max_pixels: int) -> None:
    """Limit the pixels of an image in the settings of a model folder's image processor, minimum and maximum alike."""
    settings = read_json(folder, FILES[0]) if (folder / FILES[0]).is_file() else {}
    current = _parse(settings, Preprocessing(), str(folder))
    settings |= {"min_pixels": min(current.min_pixels, max_pixels), "max_pixels": min(current.max_pixels, max_pixels)}
    (folder / FILES[0]).write_text(json.dumps(settings, indent=2), encoding="utf-8")


def _parse(settings: Any, defaults: Preprocessing, source: str) -> Preprocessing:
    if not isinstance(settings, Mapping):
        raise WeightsError(f"{source}: image_processor is not an object")
    found: dict[str, Any] = {}
    for key, name in (("image_mean", "mean"), ("image_std", "std")):
        if (values := settings.get(key)) is not None:
            values = values if isinstance(values, list) else [values] * 3
            if len(values) != 3 or not all(_is_number(value, 1e3) for value in values):
                raise WeightsError(f"{source}: {key} is not three numbers")
            found[name] = tuple(map(float, values))
    if min(found.get("std", (1.0,))) <= 0:
        raise WeightsError(f"{source}: image_std has a number that is not positive")
    if (scale := settings.get("rescale_factor")) is not None:
        if not _is_number(scale, 1.0) or scale <= 0:
            raise WeightsError(f"{source}: rescale_factor is not a number between 0 and 1")
        found["scale"] = float(scale)
    if (resample := settings.get("resample")) is not None:
        if type(resample) is not int or not 0 <= resample <= 5:
            raise WeightsError(f"{source}: resample is not one of Pillow's filters, 0 to 5")
        found["resample"] = resample
    size = settings.get("size")
    size = size if isinstance(size, Mapping) else {}
    for name, keys in (("min_pixels", ("min_pixels", "shortest_edge")), ("max_pixels", ("max_pixels", "longest_edge"))):
        candidates = [settings.get(keys[0]), size.get(keys[0]), size.get(keys[1])]
        if (pixels := next((value for value in candidates if value is not None), None)) is not None:
            if type(pixels) is not int or not 0 < pixels <= MAX_PIXELS:
                raise WeightsError(f"{source}: {keys[0]} is not a number of pixels, 1 to {MAX_PIXELS:,}")
            found[name] = pixels
    return replace(defaults, **found)


def _is_number(value: Any, limit: float) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value) and abs(value) <= limit
