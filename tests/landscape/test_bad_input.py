"""Whatever the measurement, bad input gets a clear error or a documented result, never a wrong number."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from entropy_sgd.landscape import (
    adaptive_sharpness,
    fisher_diagonal,
    hessian_eigenvalues,
    hessian_eigenvectors,
    line,
    local_energy,
    local_learning_coefficient,
    network_local_entropy,
    plane,
    spectra_by_layer,
    spectral_density,
)

MEASUREMENTS: dict[str, Callable[..., Any]] = {
    "hessian_eigenvalues": hessian_eigenvalues,
    "spectral_density": lambda *a: spectral_density(*a, probes=2, steps=3),
    "hessian_eigenvectors": lambda *a: hessian_eigenvectors(*a, steps=40),
    "spectra_by_layer": lambda *a: spectra_by_layer(*a, probes=2, steps=3),
    "fisher_diagonal": fisher_diagonal,
    "laplace": lambda *a: network_local_entropy(*a, 10.0),
    "langevin": lambda *a: network_local_entropy(*a, 10.0, method="langevin", steps=40),
    "local_energy": lambda *a: local_energy(*a, 0.1, draws=2),
    "adaptive_sharpness": lambda *a: adaptive_sharpness(*a, 0.1, steps=2),
    "local_learning_coefficient": lambda *a: local_learning_coefficient(*a, steps=40, chains=1),
    "line": lambda model, *a: line(model, *a, model, model),
    "plane": lambda *a: plane(*a, points=3),
}


@pytest.fixture(params=MEASUREMENTS)
def measure(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return MEASUREMENTS[request.param]


def test_a_loss_that_is_not_one_number(measure: Callable[..., Any], mlp: Any) -> None:
    model, _, batches = mlp
    with pytest.raises(ValueError, match=r"loss_fn must return one number.*shape \(9,\)"):
        measure(model, lambda o, t: F.cross_entropy(o, t, reduction="none"), batches)
    with pytest.raises(ValueError, match="got a float"):
        measure(model, lambda o, t: 1.0, batches)


def test_the_default_device_is_the_users(measure: Callable[..., Any], mlp: Any) -> None:
    with torch.device("meta"):
        found = measure(*mlp)
    expected = _tensors(measure(*mlp))
    torch.testing.assert_close(_tensors(found), expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("shuffle", [False, True])
def test_the_global_generator_is_the_users(shuffle: bool, measure: Callable[..., Any], mlp: Any) -> None:
    inputs, targets = mlp.batches[0]
    loader = DataLoader(TensorDataset(inputs, targets), batch_size=4, shuffle=shuffle)
    state = torch.get_rng_state()
    measure(mlp.model, mlp.loss_fn, loader)
    assert torch.equal(torch.get_rng_state(), state)


def test_what_a_forward_pass_keeps_is_forgotten(measure: Callable[..., Any], mlp: Any) -> None:
    class Keeping(nn.Module):
        def __init__(self, inner: Callable[..., Tensor]) -> None:
            super().__init__()
            self.inner, self.last = inner, "nothing"

        def forward(self, *inputs: Tensor) -> Tensor:
            self.last = self.new = self.inner(*inputs)
            return self.last

    model, loss_fn = Keeping(mlp.model), Keeping(mlp.loss_fn)
    measure(model, loss_fn, mlp.batches)
    for kept in (model, loss_fn):
        assert kept.last == "nothing"
        assert not hasattr(kept, "new")
    copied = copy.deepcopy(model)
    assert torch.equal(copied(mlp.batches[0][0]), model(mlp.batches[0][0]))


def test_batches_that_are_empty_or_read_once(measure: Callable[..., Any], mlp: Any) -> None:
    model, loss_fn, batches = mlp
    with pytest.raises(ValueError, match="batches is empty"):
        measure(model, loss_fn, [])
    with pytest.raises(TypeError, match="one-shot"):
        measure(model, loss_fn, iter(batches))
    with pytest.raises(TypeError, match="one-shot"):
        measure(model, loss_fn, (pair for pair in batches))
    with pytest.raises(ValueError, match="without samples"):
        measure(model, loss_fn, [(torch.zeros(0, 6), torch.zeros(0, dtype=torch.long))])
    with pytest.raises(TypeError, match="pairs"):
        measure(model, loss_fn, [torch.zeros(2, 6)])


def test_batches_that_change(mlp: Any) -> None:
    class Shrinking:
        passes = 0

        def __iter__(self) -> Any:
            self.passes += 1
            return iter(mlp.batches[: 3 if self.passes < 3 else 2])

    with pytest.raises(ValueError, match="same samples in every pass"):
        hessian_eigenvalues(mlp.model, mlp.loss_fn, Shrinking())


def test_weights_that_are_not_finite(measure: Callable[..., Any], mlp: Any) -> None:
    mlp.model[0].bias.data[3] = torch.nan
    with pytest.raises(ValueError, match=r"'0.bias' holds values that are not finite"):
        measure(*mlp)


def test_data_that_are_not_finite(measure: Callable[..., Any], mlp: Any) -> None:
    mlp.batches[1][0][0, 0] = torch.nan
    with pytest.raises(ValueError, match="loss at the model's weights is nan; it must be finite"):
        measure(*mlp)


@pytest.mark.parametrize("name", sorted(set(MEASUREMENTS) - {"local_energy", "line", "plane"}))
def test_derivatives_that_are_not_finite(name: str, mlp: Any) -> None:
    mlp.batches[1][0][0, 0] = torch.inf  # behind a tanh: the loss is finite
    with pytest.raises(ValueError, match="not finite at the model's weights"):
        MEASUREMENTS[name](*mlp)


def test_nothing_to_measure(measure: Callable[..., Any], mlp: Any) -> None:
    mlp.model.requires_grad_(False)
    with pytest.raises(ValueError, match="no parameter with requires_grad"):
        measure(*mlp)


def test_complex_parameters(measure: Callable[..., Any], mlp: Any) -> None:
    mlp.model.register_parameter("c", nn.Parameter(torch.zeros(2, dtype=torch.complex64)))
    with pytest.raises(TypeError, match="'c' is complex"):
        measure(*mlp)


@pytest.mark.parametrize("layer", [nn.Dropout(0.5), nn.BatchNorm1d(8)], ids=["dropout", "batch-norm"])
def test_training_mode_gives_a_warning_and_eval_mode_is_measured(
    layer: nn.Module, measure: Callable[..., Any], mlp: Any
) -> None:
    model = nn.Sequential(mlp.model[0], layer, nn.Tanh(), mlp.model[2])
    with torch.no_grad():
        model(mlp.batches[0][0])
    model.train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.warns(UserWarning, match="eval mode") as caught:
        found = measure(model, mlp.loss_fn, mlp.batches)
    assert caught[0].filename == __file__  # points at the caller
    assert all(module.training for module in model.modules())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = measure(model.eval(), mlp.loss_fn, mlp.batches)
    for a, b in zip(_tensors(found), _tensors(expected), strict=True):
        assert torch.equal(a, b)


def _tensors(result: Any) -> list[Tensor]:
    if isinstance(result, Tensor):
        return [result]
    entries = result.values() if isinstance(result, dict) else vars(result).values()
    return [
        tensor
        for entry in entries
        for tensor in (
            _tensors(entry)
            if hasattr(entry, "__dict__") or isinstance(entry, dict)
            else [torch.tensor(entry)]
        )
    ]


def test_a_plain_network_in_training_mode_needs_no_warning(measure: Callable[..., Any], mlp: Any) -> None:
    mlp.model.train()
    measure(*mlp)


def test_dropout_that_ignores_the_mode_is_refused(mlp: Any) -> None:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            return F.dropout(self.layer(x), 0.5, training=True)

    for measure in (MEASUREMENTS["hessian_eigenvalues"], MEASUREMENTS["spectral_density"]):
        with pytest.raises(RuntimeError, match="random"):
            measure(Noisy(), mlp.loss_fn, mlp.batches)


def test_half_precision_is_measured_in_single(mlp: Any) -> None:
    model = mlp.model.bfloat16()
    found = spectral_density(model, mlp.loss_fn, mlp.batches, probes=2, steps=5)
    model.float()
    expected = spectral_density(model, mlp.loss_fn, mlp.batches, probes=2, steps=5)
    torch.testing.assert_close(found.nodes, expected.nodes, rtol=1e-4, atol=1e-5)
    with pytest.raises(TypeError, match="dtype must be"):
        hessian_eigenvalues(*mlp, dtype=torch.float16)


@pytest.mark.parametrize("value", ["many", None, 2.5, float("inf"), True])
def test_numbers_of_the_wrong_kind_are_named(value: Any, mlp: Any) -> None:
    with pytest.raises(ValueError, match=rf"draws must be a whole number of at least 2, got {value!r}"):
        local_energy(*mlp, 0.1, draws=value)
    if not isinstance(value, float | bool) or value == float("inf"):
        with pytest.raises(ValueError, match=rf"sigma must be a finite number above 0, got {value!r}"):
            local_energy(*mlp, value)
