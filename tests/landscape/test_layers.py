from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from entropy_sgd.landscape import (
    hessian_eigenvalues,
    hessian_eigenvectors,
    spectra_by_layer,
    spectral_density,
)

Oracle = Callable[[Any], Tensor]


def block(h: Tensor, model: nn.Module, names: list[str]) -> Tensor:
    """The rows and columns of `h` that belong to the parameters `names`."""
    own = torch.cat(
        [torch.full((p.numel(),), float(name in names)) for name, p in model.named_parameters()]
    ).bool()
    return h[own][:, own]


def layers(model: nn.Module) -> dict[str, list[str]]:
    return {
        name: [f"{name}.{own}" for own, _ in module.named_parameters(recurse=False)]
        for name, module in model.named_modules()
        if list(module.parameters(recurse=False))
    }


def test_exact_spectra_by_layer_are_those_of_the_blocks(problem: Any, oracle: Oracle) -> None:
    h = oracle(problem)
    found = spectra_by_layer(*problem, measure=hessian_eigenvalues)
    expected = layers(problem.model)
    assert list(found) == list(expected)
    for name, own in expected.items():
        values = torch.linalg.eigvalsh(block(h, problem.model, own))
        torch.testing.assert_close(found[name], values, rtol=1e-10, atol=1e-12)


def test_densities_by_layer(mlp: Any, oracle: Oracle) -> None:
    h = oracle(mlp)
    found = spectra_by_layer(*mlp, probes=4, steps=100)
    for name, own in layers(mlp.model).items():
        part = block(h, mlp.model, own)
        values = torch.linalg.eigvalsh(part)
        assert found[name].dimension == len(part)
        assert found[name].extremes[1] == pytest.approx(float(values[-1]), rel=1e-9)
        assert abs(found[name].trace - float(part.trace())) < 4 * found[name].trace_error + 1e-9


def test_any_selection_of_parameters(mlp: Any, oracle: Oracle) -> None:
    h = oracle(mlp)
    names = ["0.bias", "2.weight"]
    expected = torch.linalg.eigvalsh(block(h, mlp.model, names))
    found = hessian_eigenvalues(*mlp, parameters=["2.weight", "0.bias"])
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    top = hessian_eigenvectors(*mlp, k=1, which="largest", parameters=names)
    assert float(top.values[0]) == pytest.approx(float(expected[-1]), rel=1e-6)
    assert list(top.shapes) == names
    assert spectral_density(*mlp, parameters="2").dimension == 8 * 3 + 3


def test_a_checkpoint_of_one_layer(mlp: Any, tmp_path: Any) -> None:
    expected = hessian_eigenvalues(*mlp, parameters="2")
    assert torch.equal(hessian_eigenvalues(*mlp, parameters="2", checkpoint=tmp_path / "rows"), expected)


def test_names_are_whole_names(mlp: Any) -> None:
    model = nn.Sequential(*(nn.Linear(6, 6) for _ in range(11)), mlp.model)
    found = spectral_density(model, mlp.loss_fn, mlp.batches, probes=1, steps=1, parameters="1")
    assert found.dimension == 42  # and not 10
    with pytest.raises(ValueError, match=r"parameters must be names of .* got '12'"):
        spectral_density(model, mlp.loss_fn, mlp.batches, parameters=["1", "12"])
    with pytest.raises(ValueError, match="parameters must be None or at least one name"):
        spectral_density(model, mlp.loss_fn, mlp.batches, parameters=[])
    with pytest.raises(TypeError, match="selects the parameters itself"):
        spectra_by_layer(model, mlp.loss_fn, mlp.batches, parameters="1")


def test_parameters_of_the_model_itself_and_frozen_layers(mlp: Any) -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(3))
            self.net = mlp.model

        def forward(self, x: Tensor) -> Tensor:
            return self.scale * self.net(x)

    model = Scaled()
    model.net[0].requires_grad_(False)
    found = spectra_by_layer(model, mlp.loss_fn, mlp.batches, measure=hessian_eigenvalues)
    assert {name: len(values) for name, values in found.items()} == {"": 3, "net.2": 27}
