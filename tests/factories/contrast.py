"""Contrast of two colours as WCAG 2.2 defines it."""


def compute_luminance(colour: str) -> float:
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def compute_contrast(first: str, second: str) -> float:
    light, dark = sorted((compute_luminance(first), compute_luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)
