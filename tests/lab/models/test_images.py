from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from entropy_sgd.lab.models import build


def forward_by_hand(layers: list[tuple[str, ...]], network: nn.Module, images: torch.Tensor) -> torch.Tensor:
    """Evaluate a list of steps with the network's parameters, taken in order, and no module of its own."""
    parameters = iter(network.parameters())
    x = images
    for kind, *options in layers:
        match kind:
            case "conv":
                stride, padding = (int(option) for option in options)
                x = functional.conv2d(x, next(parameters), next(parameters), stride, padding)
            case "norm":  # by the statistics of a fresh network: mean 0, variance 1
                weight, bias = (next(parameters).view(-1, *[1] * (x.ndim - 2)) for _ in range(2))
                x = x / (1 + 1e-5) ** 0.5 * weight + bias
            case "relu":
                x = x.clamp(min=0)
            case "pool":
                x = functional.max_pool2d(x, int(options[0]))
            case "mean":
                x = x.mean(dim=(2, 3))
            case "linear":
                x = functional.linear(x.flatten(1), next(parameters), next(parameters))
    assert next(parameters, None) is None
    return x


CONV, NORM, RELU, LINEAR = ("conv", "1", "0"), ("norm",), ("relu",), ("linear",)
SAME, HALF = ("conv", "1", "1"), ("conv", "2", "1")
BLOCK = [NORM, RELU]


@pytest.mark.parametrize(
    ("name", "options", "shape", "layers"),
    [
        ("mnistfc", {}, (1, 28, 28), [LINEAR, RELU, LINEAR, RELU, LINEAR]),
        ("mnistfc", {"batch_norm": True}, (1, 28, 28), [LINEAR, *BLOCK, LINEAR, *BLOCK, LINEAR]),
        ("small-mnistfc", {}, (1, 28, 28), [LINEAR, RELU, LINEAR]),
        (
            "lenet",
            {},
            (1, 28, 28),
            [CONV, *BLOCK, ("pool", "3"), CONV, *BLOCK, ("pool", "2"), LINEAR, *BLOCK, LINEAR],
        ),
        (
            "small-lenet",
            {},
            (1, 28, 28),
            [CONV, RELU, ("pool", "2"), CONV, RELU, ("pool", "2"), LINEAR, RELU, LINEAR],
        ),
        (
            "allcnn",
            {},
            (3, 32, 32),
            [
                *[SAME, *BLOCK, SAME, *BLOCK, HALF, *BLOCK],
                *[SAME, *BLOCK, SAME, *BLOCK, HALF, *BLOCK],
                *[CONV, *BLOCK, CONV, *BLOCK, CONV, *BLOCK, ("mean",)],
            ],
        ),
    ],
)
def test_each_network_computes_what_its_layers_say(name, options, shape, layers):
    torch.manual_seed(0)
    network = build(name, **options).eval()
    for parameter in network.parameters():
        if parameter.ndim == 1:  # scales and biases that would be missed if they were swapped or left out
            parameter.data += 0.3 * torch.randn_like(parameter)
    images = torch.randn(3, *shape)
    with torch.no_grad():
        logits = network(images)
        torch.testing.assert_close(logits, forward_by_hand(layers, network, images), rtol=1e-4, atol=1e-5)
    assert logits.shape == (3, 10)


@pytest.mark.parametrize(
    ("name", "rates"),
    [
        ("mnistfc", [0.5, 0.5]),
        ("lenet", [0.5, 0.5, 0.5]),
        ("allcnn", [0.2, 0.5, 0.5]),
        ("small-mnistfc", [0.0]),
        ("small-lenet", [0.0, 0.0, 0.0]),
    ],
)
def test_dropout_is_the_papers(name, rates):
    assert [layer.p for layer in build(name).modules() if isinstance(layer, nn.Dropout)] == rates


def test_dropout_can_be_chosen():
    rates = [layer.p for layer in build("lenet", dropout=0.25).modules() if isinstance(layer, nn.Dropout)]
    assert rates == [0.25] * 3


@pytest.mark.parametrize("name", ["mnistfc", "lenet", "allcnn"])
def test_weights_and_biases_start_uniform_by_fan_in(name):
    torch.manual_seed(0)
    for layer in build(name).modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            bound = layer.weight[0].numel() ** -0.5
            assert layer.bias is not None
            assert max(layer.weight.abs().max(), layer.bias.abs().max()) <= bound
            assert layer.weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.1)


def test_other_sizes_and_classes():
    assert build("lenet", size=25, classes=3).eval()(torch.randn(2, 1, 25, 25)).shape == (2, 3)
    assert build("mnistfc", inputs=75, classes=4).eval()(torch.randn(2, 3, 5, 5)).shape == (2, 4)
    assert build("allcnn", classes=100).eval()(torch.randn(2, 3, 32, 32)).shape == (2, 100)


def test_a_narrow_allcnn_has_a_quarter_of_the_channels():
    convolutions = [layer for layer in build("allcnn", width=0.25).modules() if isinstance(layer, nn.Conv2d)]
    assert [layer.out_channels for layer in convolutions] == [24, 24, 24, 48, 48, 48, 48, 48, 10]
    assert build("allcnn", width=0.25).eval()(torch.randn(2, 3, 32, 32)).shape == (2, 10)
    torch.manual_seed(0)
    plain = build("allcnn").state_dict()
    torch.manual_seed(0)
    torch.testing.assert_close(build("allcnn", width=1.0).state_dict(), plain, rtol=0, atol=0)
    with pytest.raises(ValueError, match=r"width must leave at least one of 96 channels, got 0.001"):
        build("allcnn", width=0.001)


def test_nonsense_is_refused():
    for name in ("mnistfc", "lenet", "allcnn"):
        with pytest.raises(ValueError, match=r"dropout must be a probability in \[0, 1\), got 1.5"):
            build(name, dropout=1.5)
    with pytest.raises(ValueError, match="size must leave at least one pixel after both poolings, got 20"):
        build("lenet", size=20, first_pool=4)
