"""Numeric precision of model weights and matrix products."""

from enum import StrEnum


class Precision(StrEnum):
    """Numeric precision: float32, bfloat16 matrix products on float32 weights, or bfloat16 weights too."""

    FP32 = "fp32"
    BF16 = "bf16"
    BF16_TRUE = "bf16-true"

    @property
    def uses_bf16_products(self) -> bool:
        """True if matrix products are computed in bfloat16."""
        return self is not Precision.FP32

    @property
    def has_bf16_weights(self) -> bool:
        """True if the weights of full models are held in bfloat16."""
        return self is Precision.BF16_TRUE
