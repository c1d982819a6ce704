"""The paper's numbers, each with its place in the text (Chaudhari et al., ICLR 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Number:
    """A result as the paper prints it: `mean ± deviation`, after `epochs` effective epochs."""

    part: Literal["validation", "test"]
    mean: float
    deviation: float
    """What follows the ±. The paper does not say of what; here: the standard deviation over runs."""
    epochs: float
    """Effective epochs: of Table 1 where it has the result."""
    place: str
    runs: int | None = None
    """Independent runs, where the text gives their number."""


MNISTFC_ADAM = Number("test", 1.39, 0.03, 66, "Section 5.2; Table 1", runs=5)
MNISTFC_ENTROPY_SGD = Number("test", 1.37, 0.03, 120, "Section 5.2; Table 1")
LENET_ADAM = Number("test", 0.51, 0.01, 100, "Section 5.2; Table 1", runs=5)
LENET_ENTROPY_SGD = Number("test", 0.50, 0.01, 80, "Section 5.2; Table 1")
# The text calls these a validation error; CIFAR-10 has no validation set, and Appendix C.1 calls the second
# one the error to compare a test error with.
ALLCNN_SGD = Number("test", 7.71, 0.19, 180, "Section 5.3; Table 1 (200 epochs in the text)")
ALLCNN_ENTROPY_SGD = Number("test", 7.81, 0.09, 160, "Section 5.3; Table 1")
PTB_SGD = Number("test", 78.6, 0.26, 55, "Section 5.4.1; Table 1")
PTB_SGD_VALIDATION = Number("validation", 81.43, 0.2, 55, "Section 5.4.1")
PTB_ENTROPY_SGD = Number("test", 77.656, 0.171, 25, "Section 5.4.1; Table 1")
PTB_ENTROPY_SGD_VALIDATION = Number("validation", 80.116, 0.069, 25, "Section 5.4.1")
# "Perplexity" there; in truth nats per character: see docs/reproduction.md.
CHAR_ADAM = Number("test", 1.226, 0.01, 40, "Section 5.4.2; Table 1 (50 epochs in the text)")
CHAR_ADAM_VALIDATION = Number("validation", 1.224, 0.008, 40, "Section 5.4.2")
CHAR_ENTROPY_ADAM = Number("test", 1.217, 0.005, 25, "Section 5.4.2; Table 1", runs=4)
CHAR_ENTROPY_ADAM_VALIDATION = Number("validation", 1.213, 0.007, 25, "Section 5.4.2", runs=4)
LENET_SGLD = Number("test", 0.63, 0.1, 300, "Appendix C.1")
ALLCNN_SGLD = Number("test", 9.89, 0.11, 500, "Appendix C.1")
