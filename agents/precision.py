"""Precision: in which numbers a model computes, and in which its weights are held."""

from enum import StrEnum


class Precision(StrEnum):
    """float32 throughout, bfloat16 for the matrix products alone, or bfloat16 for the weights too."""

    FP32 = "fp32"
    BF16 = "bf16"
    BF16_TRUE = "bf16-true"

    @property
    def bf16_products(self) -> bool:
        """Return True if matrix products are bfloat16."""
        return self is not Precision.FP32

    @property
    def bf16_weights(self) -> bool:
        """Return True if the weights of whole models are bfloat16."""
        return self is Precision.BF16_TRUE
