"""Probes that try to read a hidden digit from pixels: ridge regression on random rectified features."""

import io

import numpy as np
from PIL import Image

FEATURES, RIDGE = 600, 30.0


def decode_pixels(data: bytes) -> np.ndarray:
    """Return the pixels of a PNG file, decoded by Pillow."""
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert("RGB"))


def train_probe_accuracy(
    pixels: list[np.ndarray], answers: list[int], *, classes: int = 10, is_linear: bool = False
) -> float:
    """Train a probe on four fifths of the pictures and return its accuracy on the rest."""
    inputs = np.stack([picture.ravel() for picture in pixels]).astype(np.float32)
    inputs = (inputs - inputs.mean(0)) / (inputs.std(0) + 1.0)
    if not is_linear:
        rng = np.random.default_rng(0)
        weights = rng.normal(size=(inputs.shape[1], FEATURES)).astype(np.float32) / inputs.shape[1] ** 0.5
        inputs = np.maximum(inputs @ weights + rng.normal(size=FEATURES).astype(np.float32), 0)
    held_out = len(inputs) // 5
    train, targets = inputs[held_out:], np.eye(classes, dtype=np.float32)[answers[held_out:]]
    fit = np.linalg.solve(train.T @ train + RIDGE * np.eye(train.shape[1]), train.T @ targets)
    return float(((inputs[:held_out] @ fit).argmax(1) == np.array(answers[:held_out])).mean())
