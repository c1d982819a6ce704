"""Networks that classify images: forward maps inputs (B, C, H, W) to logits (B, classes).

The paper is silent on initialisation: weights and biases start as torch gives them, and Torch gave them at
the time, uniform in [-1, 1] / sqrt(fan-in). He et al.'s larger weights were tried on `lenet`: where batch
normalisation makes a layer's scale irrelevant they only slow it, to 10.6 % errors after three epochs on the
embedded digits against 6.5 %.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from torch import Tensor, nn


def _check_dropout(**rates: float) -> None:
    for name, rate in rates.items():
        if not 0.0 <= rate < 1.0:
            raise ValueError(f"{name} must be a probability in [0, 1), got {rate!r}")


class FullyConnected(nn.Module):
    """`mnistfc` (Section 5.2): 784-1024-1024-10, ReLU, dropout after each hidden layer; 1,863,690 weights.

    Args:
        hidden: units of each hidden layer. `small-mnistfc` (Section 5.1) has one of 64: the 50,890
            parameters that the paper counts are those of 64 units, not of the 32 it names.
        dropout: 0.5 for the paper's baseline, 0.15 for Entropy-SGD.
        batch_norm: normalise before each ReLU. The text has none, so it is off.
        inputs: pixels of an image, over all channels.
        classes: number of logits.

    """

    def __init__(
        self,
        hidden: Sequence[int] = (1024, 1024),
        dropout: float = 0.5,
        batch_norm: bool = False,
        inputs: int = 784,
        classes: int = 10,
    ) -> None:
        super().__init__()
        _check_dropout(dropout=dropout)
        layers: list[nn.Module] = [nn.Flatten()]
        for fan_in, units in zip((inputs, *hidden), hidden, strict=False):
            layers += [
                nn.Linear(fan_in, units),
                *([nn.BatchNorm1d(units)] if batch_norm else []),
                nn.ReLU(),
                nn.Dropout(dropout),
            ]
        self.network = nn.Sequential(*layers, nn.Linear((inputs, *hidden)[-1], classes))

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits (B, classes)."""
        return self.network(inputs)


class LeNet(nn.Module):
    """`lenet` (Section 5.2): two convolutions and a hidden layer, batch-normalised; 132,220 weights.

    The paper says "the same size as LeNet" and gives sizes of its small variant only. Channels and hidden
    units (20, 50, 500) are those of Caffe's LeNet. That one pools 2 and 2, which
    leaves 4 x 4 positions and puts 400,000 of its 431,080 weights into the hidden layer; `first_pool=2` gives
    it. Here the pooling is 3 and 2, which leaves 2 x 2 positions: 131,080 weights, nearer to the 60,000 of
    LeNet-5 in the work the paper cites, and 1,140 more for batch normalisation.

        28 -conv 5-> 24 -pool 3-> 8 -conv 5-> 4 -pool 2-> 2;  50 * 2 * 2 = 200 -> 500 -> 10

    Args:
        channels: of the two convolutions. `small-lenet` (Section 5.1) has 10 and 20, 128 hidden units,
            pooling 2 and 2, no batch normalisation: 47,658 weights, the paper's count exactly.
        first_pool: window and stride of the first pooling; the second's are 2.
        hidden: units of the hidden layer.
        dropout: after each layer but the last; 0.5 for the paper's baseline, 0.25 for Entropy-SGD.
        batch_norm: normalise before each ReLU.
        size: pixels along a side of the (square, one-channel) images.
        classes: number of logits.

    """

    def __init__(
        self,
        channels: tuple[int, int] = (20, 50),
        first_pool: int = 3,
        hidden: int = 500,
        dropout: float = 0.5,
        batch_norm: bool = True,
        size: int = 28,
        classes: int = 10,
    ) -> None:
        super().__init__()
        _check_dropout(dropout=dropout)
        first, second = channels
        side = ((size - 4) // first_pool - 4) // 2
        if side < 1:
            raise ValueError(f"size must leave at least one pixel after both poolings, got {size!r}")
        self.network = nn.Sequential(
            nn.Conv2d(1, first, 5),
            *([nn.BatchNorm2d(first)] if batch_norm else []),
            nn.ReLU(),
            nn.MaxPool2d(first_pool),
            nn.Dropout(dropout),
            nn.Conv2d(first, second, 5),
            *([nn.BatchNorm2d(second)] if batch_norm else []),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Dropout(dropout),
            nn.Flatten(),
            nn.Linear(second * side * side, hidden),
            *([nn.BatchNorm1d(hidden)] if batch_norm else []),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, classes),
        )

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits (B, classes)."""
        return self.network(inputs)


class AllCNN(nn.Module):
    """`allcnn` (Section 5.3): All-CNN-C of Springenberg et al. (2015), normalised; 1,372,254 weights.

    Nine convolutions, each followed by batch normalisation and ReLU as the paper and that network's table
    have it, the last included; then the mean over the 6 x 6 positions left. The third and sixth have stride
    2 in the place of pooling; the seventh is not padded, which gives the 6 x 6 of that table. The paper
    counts "about 1.6 million" weights: All-CNN-C as published has 1,369,738, and batch normalisation adds
    2,516.

    Args:
        dropout: after each of the two layers that replace pooling.
        input_dropout: on the image itself.
        classes: number of logits.
        width: factor on the channels of all convolutions but the last: 0.25 gives 24 and 48 instead of 96
            and 192, and a sixteenth of the work in most layers.

    """

    def __init__(
        self, dropout: float = 0.5, input_dropout: float = 0.2, classes: int = 10, width: float = 1.0
    ) -> None:
        super().__init__()
        _check_dropout(dropout=dropout, input_dropout=input_dropout)
        low, high = round(96 * width), round(192 * width)
        if low < 1:
            raise ValueError(f"width must leave at least one of 96 channels, got {width!r}")
        # channels out, kernel, stride, padding
        table = [(low, 3, 1, 1), (low, 3, 1, 1), (low, 3, 2, 1)]
        table += [(high, 3, 1, 1), (high, 3, 1, 1), (high, 3, 2, 1)]
        table += [(high, 3, 1, 0), (high, 1, 1, 0), (classes, 1, 1, 0)]
        layers: list[nn.Module] = [nn.Dropout(input_dropout)]
        channels = 3
        for out, kernel, stride, padding in table:
            layers += [nn.Conv2d(channels, out, kernel, stride, padding), nn.BatchNorm2d(out), nn.ReLU()]
            if stride == 2:
                layers.append(nn.Dropout(dropout))
            channels = out
        self.network = nn.Sequential(*layers)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits (B, classes)."""
        return self.network(inputs).mean(dim=(2, 3))


NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "mnistfc": FullyConnected,
    "lenet": LeNet,
    "allcnn": AllCNN,
    "small-mnistfc": partial(FullyConnected, hidden=(64,), dropout=0.0),
    "small-lenet": partial(LeNet, channels=(10, 20), first_pool=2, hidden=128, dropout=0.0, batch_norm=False),
}
