from __future__ import annotations

import pytest
import torch
from torch.func import functional_call, grad, jvp
from torch.nn.functional import cross_entropy

from entropy_sgd.lab.models import build, names


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("mnistfc", 784 * 1024 + 1024 + 1024 * 1024 + 1024 + 1024 * 10 + 10),
        ("lenet", 132_220),
        ("allcnn", 1_372_254),
        ("ptb-lstm", 66_034_000),
        ("ptb-lstm-small", 4_653_200),
        ("char-lstm", 4 * 128 * (87 + 128 + 2) + 4 * 128 * (128 + 128 + 2) + 128 * 87 + 87),
        ("small-mnistfc", 50_890),
        ("small-lenet", 47_658),
        ("small-char-lstm", 32_640),
    ],
)
def test_every_parameter_is_counted(name, count):
    with torch.device("meta"):
        assert sum(parameter.numel() for parameter in build(name).parameters()) == count


def test_each_name_is_counted_above():
    marks = test_every_parameter_is_counted.pytestmark
    assert set(names()) == {name for name, _ in marks[0].args[1]}


def test_variants_are_counted_too():
    def count(name: str, **options: object) -> int:
        return sum(parameter.numel() for parameter in build(name, **options).parameters())

    assert count("lenet", batch_norm=False) == 131_080
    assert count("lenet", batch_norm=False, first_pool=2) == 431_080
    assert count("mnistfc", batch_norm=True) == count("mnistfc") + 4 * 1024
    assert len(list(build("lenet").parameters())) == 14


@pytest.mark.parametrize("name", ["lenet", "char-lstm"])
def test_the_seed_decides_the_weights(name):
    def weights(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return torch.nn.utils.parameters_to_vector(build(name).parameters())

    assert torch.equal(weights(0), weights(0))
    assert not torch.equal(weights(0), weights(1))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")  # torch's own, in jvp
@pytest.mark.parametrize("name", ["small-mnistfc", "small-lenet", "small-char-lstm"])
def test_the_small_networks_have_hessian_vector_products_both_ways(name):
    """Forward over reverse, by which the Hessian is taken, against reverse over reverse."""
    torch.manual_seed(0)
    network = build(name).double().eval()
    inputs = (
        torch.randint(0, 96, (4, 8)) if "lstm" in name else torch.randn(4, 1, 28, 28, dtype=torch.float64)
    )
    targets = torch.randint(0, 10, (4, 8) if "lstm" in name else (4,))

    def loss(parameters: dict[str, torch.Tensor]) -> torch.Tensor:
        result = functional_call(network, parameters, (inputs,))
        logits = result[0] if "lstm" in name else result
        return cross_entropy(logits.flatten(0, -2), targets.flatten())

    parameters = {key: value.detach() for key, value in network.named_parameters()}
    direction = {key: torch.randn_like(value) for key, value in parameters.items()}
    _, forward = jvp(grad(loss), (parameters,), (direction,))
    reverse = grad(lambda p: sum((g * direction[key]).sum() for key, g in grad(loss)(p).items()))(parameters)
    for key in parameters:
        torch.testing.assert_close(forward[key], reverse[key])
    assert any(value.abs().max() > 1e-3 for value in forward.values())


def test_unknown_names_and_options_get_the_closest_ones():
    with pytest.raises(ValueError, match=r"no network is called 'lennet'. Did you mean lenet or small-lenet"):
        build("lennet")
    with pytest.raises(ValueError, match=r"network 'small-lenet' is called 'droput'. Did you mean dropout\?"):
        build("small-lenet", droput=0.1)
