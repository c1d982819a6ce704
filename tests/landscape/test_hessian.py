from __future__ import annotations

import copy
import math
import warnings
from collections import UserDict
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence

from entropy_sgd.landscape import hessian, hessian_eigenvalues, line, spectral_density
from entropy_sgd.landscape.objective import Objective, objective

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # curvlinops' own imports use a deprecated function of torch
    from curvlinops import HessianLinearOperator

Oracle = Callable[[Any], Tensor]


def test_spectrum_of_each_layer_type(problem: Any, oracle: Oracle) -> None:
    found = hessian_eigenvalues(*problem)
    expected = torch.linalg.eigvalsh(oracle(problem))
    assert found.dtype == torch.float64
    assert torch.equal(found, found.sort().values)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def test_spectrum_in_single_precision(problem: Any, oracle: Oracle) -> None:
    found = hessian_eigenvalues(*problem, dtype=torch.float32)
    expected = torch.linalg.eigvalsh(oracle(problem))
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=2e-6 * float(expected.abs().max() + 1))


def test_softmax_regression_in_closed_form() -> None:
    """H = mean of (diag(p) - p p^T) kron x x^T, the Hessian of cross-entropy with a linear model."""
    torch.manual_seed(1)
    model = nn.Linear(5, 4, bias=False).double()
    x, y = torch.randn(12, 5, dtype=torch.float64), torch.randint(4, (12,))
    p = model(x).softmax(1).detach()
    curvature = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    expected = torch.einsum("bij,bk,bl->ikjl", curvature, x, x).reshape(20, 20) / 12
    found = hessian_eigenvalues(model, F.cross_entropy, [(x[:5], y[:5]), (x[5:], y[5:])])
    torch.testing.assert_close(found, torch.linalg.eigvalsh(expected), rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("small", [2048, 0])
def test_weights_of_dark_pixels_have_eigenvalue_zero(
    small: int, monkeypatch: pytest.MonkeyPatch, oracle: Oracle, mlp: Any
) -> None:
    monkeypatch.setattr(hessian, "SMALL", small)
    for inputs, _ in mlp.batches:
        inputs[:, [0, 3]] = 0.0
    found = hessian_eigenvalues(*mlp)
    torch.testing.assert_close(found, torch.linalg.eigvalsh(oracle(mlp)), rtol=1e-10, atol=1e-12)
    assert int((found == 0).sum()) == 2 * 8


class Quadratic(nn.Module):
    """1/2 w^T A w, whose Hessian is A."""

    def __init__(self, matrix: Tensor):
        super().__init__()
        self.first, self.second = (
            nn.Parameter(torch.ones(n)) for n in (len(matrix) // 3, -(-len(matrix) * 2 // 3))
        )
        self.register_buffer("matrix", matrix)

    def forward(self, _: Tensor) -> Tensor:
        w = torch.cat([self.first, self.second])
        return w @ self.matrix @ w / 2


@settings(deadline=None, max_examples=30)
@given(st.lists(st.booleans(), min_size=3, max_size=40))
def test_rows_of_zeros_anywhere(alive: list[bool]) -> None:
    a = torch.randn(len(alive), len(alive), dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    mask = torch.tensor(alive)
    a = (a + a.T) * mask[:, None] * mask
    found = hessian_eigenvalues(Quadratic(a), lambda outputs, _: outputs, [(torch.ones(1), torch.ones(1))])
    assert int((found == 0).sum()) >= alive.count(False)
    torch.testing.assert_close(found, torch.linalg.eigvalsh(a), rtol=1e-10, atol=1e-12)


def test_the_model_comes_back_as_it_was(problem: Any) -> None:
    model = problem.model
    modes = [module.training for module in model.modules()]
    for p in model.parameters():
        p.grad = torch.randn_like(p)
    before = copy.deepcopy(model.state_dict())
    grads = [p.grad.clone() for p in model.parameters()]
    generator = torch.get_rng_state()
    hessian_eigenvalues(*problem)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), grads, strict=True))
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), generator)
    assert torch.backends.mkldnn.enabled


def test_frozen_parameters_are_constants(oracle: Oracle, mlp: Any) -> None:
    mlp.model[0].weight.requires_grad_(False)
    mlp.model.register_parameter("count", nn.Parameter(torch.tensor([3]), requires_grad=False))
    found = hessian_eigenvalues(*mlp)
    assert len(found) == 8 + 3 * 8 + 3
    torch.testing.assert_close(found, torch.linalg.eigvalsh(oracle(mlp)), rtol=1e-10, atol=1e-12)


def test_tied_weights_count_once() -> None:
    torch.manual_seed(0)
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    second.weight = first.weight
    model = nn.Sequential(first, nn.Tanh(), second)
    batches = [(torch.randn(5, 3), torch.randn(5, 3))]
    found = hessian_eigenvalues(model, F.mse_loss, batches)
    assert len(found) == 9 + 3 + 3

    def loss(weight: Tensor, a: Tensor, b: Tensor) -> Tensor:
        x, y = (t.double() for t in batches[0])
        return F.mse_loss(torch.tanh(x @ weight.T + a) @ weight.T + b, y)

    inputs = tuple(t.detach().double() for t in (first.weight, first.bias, second.bias))
    blocks = torch.autograd.functional.hessian(loss, inputs)
    rows = [
        torch.cat([block.reshape(inputs[i].numel(), -1) for block in row], dim=1)
        for i, row in enumerate(blocks)
    ]
    torch.testing.assert_close(found, torch.linalg.eigvalsh(torch.cat(rows)), rtol=1e-10, atol=1e-12)


def test_a_module_with_two_names_and_a_weight_tied_to_it() -> None:
    torch.manual_seed(0)
    layer, norm, last = nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 3)
    last.weight = layer.weight
    model = nn.Sequential(layer, norm, nn.Tanh(), layer, norm, last).eval()
    batches = [(torch.randn(n, 3), torch.randint(3, (n,))) for n in (8, 4)]
    slots = [
        (module, key) for module in (layer, norm, last) for key in (*module._parameters, *module._buffers)
    ]
    tensors = [getattr(*slot) for slot in slots]
    before = [tensor.clone() for tensor in tensors]
    found = hessian_eigenvalues(model, F.cross_entropy, batches)
    line(model, F.cross_entropy, batches, model, model, positions=torch.tensor([0.5]))
    after = [getattr(*slot) for slot in slots]
    assert all(a is b for a, b in zip(after, tensors, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(after, before, strict=True))
    assert len(found) == 9 + 3 + 3 + 3 + 3

    def loss(weight: Tensor, *rest: Tensor) -> Tensor:
        bias, scale, shift, other = rest
        x, y = torch.cat([x for x, _ in batches]).double(), torch.cat([y for _, y in batches])
        h = x @ weight.T + bias
        for follow in (lambda h: torch.tanh(h) @ weight.T + bias, lambda h: h @ weight.T + other):
            h = follow(h / math.sqrt(1 + norm.eps) * scale + shift)
        return F.cross_entropy(h, y)

    parameters = (layer.weight, layer.bias, norm.weight, norm.bias, last.bias)
    inputs = tuple(p.detach().double() for p in parameters)
    blocks = torch.autograd.functional.hessian(loss, inputs)
    sizes = [p.numel() for p in parameters]
    rows = [torch.cat([b.reshape(sizes[i], -1) for b in row], dim=1) for i, row in enumerate(blocks)]
    torch.testing.assert_close(found, torch.linalg.eigvalsh(torch.cat(rows)), rtol=1e-10, atol=1e-12)


def test_a_loss_with_weights_of_classes(mlp: Any) -> None:
    w = torch.tensor([1.0, 3.0, 0.5])
    batches = mlp.batches[:1]
    by_hand = lambda o, t: (w.double()[t] * -o.log_softmax(1)[torch.arange(9), t]).sum() / w.double()[t].sum()  # noqa: E731
    loss_fn = nn.CrossEntropyLoss(weight=w)
    found = hessian_eigenvalues(mlp.model, loss_fn, batches)
    torch.testing.assert_close(
        found, hessian_eigenvalues(mlp.model, by_hand, batches), rtol=1e-10, atol=1e-12
    )
    assert loss_fn.weight.dtype == torch.float32

    def closure(outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets, weight=w)

    with pytest.raises(RuntimeError, match=r"expected scalar type .* or pass dtype=torch\.float32"):
        hessian_eigenvalues(mlp.model, closure, batches)
    single = hessian_eigenvalues(mlp.model, closure, batches, dtype=torch.float32)
    torch.testing.assert_close(single.double(), found, rtol=0, atol=1e-5)


class Pair(NamedTuple):
    x: Any


class Encoding(UserDict[str, Any]):
    """A mapping that is no dict, with its entries as attributes, as transformers' BatchEncoding."""

    def __getattr__(self, name: str) -> Any:
        return self.data[name]


class Attributes(dict[str, Any]):
    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


@pytest.mark.parametrize(
    "kind", [Pair, lambda x: Attributes(x=x), lambda x: Encoding(x=x), lambda x: MappingProxyType({"x": x})]
)
def test_inputs_in_containers(kind: Callable[[Tensor], Any], mlp: Any) -> None:
    class Unpacking(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = mlp.model

        def forward(self, inputs: Any) -> Tensor:
            return self.inner(inputs["x"] if type(inputs) is dict else inputs.x)

    batches = [(kind(x), y) for x, y in mlp.batches]
    found = hessian_eigenvalues(Unpacking(), mlp.loss_fn, batches)
    assert torch.equal(found, hessian_eigenvalues(*mlp))


def test_inputs_and_targets_in_dictionaries(mlp: Any) -> None:
    class Unpacking(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = mlp.model

        def forward(self, inputs: dict[str, Tensor]) -> Tensor:
            return self.inner(inputs["x"])

    def loss(outputs: Tensor, targets: dict[str, Any]) -> Tensor:
        return F.cross_entropy(outputs, targets["labels"])

    batches = [({"x": x}, {"kind": "class", "labels": y, "weight": torch.ones(1)}) for x, y in mlp.batches]
    assert torch.equal(hessian_eigenvalues(Unpacking(), loss, batches), hessian_eigenvalues(*mlp))


def test_packed_sequences() -> None:
    """Values as of the sequences one by one; derivatives do not exist in torch."""
    torch.manual_seed(0)

    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.out = nn.GRU(3, 4), nn.Linear(4, 3)

        def forward(self, x: Any) -> Tensor:
            return self.out(self.rnn(x)[1][0])

    model = Last()
    sequences, y = [torch.randn(n, 3) for n in (2, 5, 3)], torch.tensor([0, 2, 1])
    batches = [(pack_sequence(sequences, enforce_sorted=False), y)]
    found = line(model, F.cross_entropy, batches, model, model, positions=torch.zeros(1), dtype=torch.float64)
    model.double()
    outputs = torch.cat([model(x[:, None].double()) for x in sequences])
    assert float(found.loss) == pytest.approx(float(F.cross_entropy(outputs, y).detach()), rel=1e-12)
    for measure in (hessian_eigenvalues, spectral_density):
        with pytest.raises(RuntimeError, match=r"torch.func cannot .* packed sequences \(use padded ones"):
            measure(model, F.cross_entropy, batches)


def test_products_agree_with_curvlinops(problem: Any) -> None:
    model = problem.model.double().eval()
    data = [(x.double(), y) for x, y in problem.batches]
    if not isinstance(model, nn.Sequential):
        pytest.skip("curvlinops takes no model that returns a tuple")
    parameters = list(model.parameters())
    operator = HessianLinearOperator(
        model, nn.CrossEntropyLoss(), parameters, data, check_deterministic=False
    )
    vectors = torch.randn(3, sum(p.numel() for p in parameters), dtype=torch.float64)
    with objective(model, problem.loss_fn, data, None) as f:
        found = f.products(vectors)
    torch.testing.assert_close(found, (operator @ vectors.T).T, rtol=1e-9, atol=1e-12)


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("dark", [[], [0, 3]])
@pytest.mark.parametrize("rows", [1, 40, 60])
def test_an_interrupted_build_resumes_from_disk(
    rows: int, dark: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mlp: Any
) -> None:
    for inputs, _ in mlp.batches:
        inputs[:, dark] = 0.0
    expected = hessian_eigenvalues(*mlp)
    path = tmp_path / "below" / "rows"
    original, computed = Objective.block_products, 0

    def interrupted(self: Objective, k: int, vectors: Tensor) -> Tensor:
        nonlocal computed
        if computed >= rows:
            raise Interrupted
        computed += len(vectors)
        return original(self, k, vectors)

    monkeypatch.setattr(Objective, "block_products", interrupted)
    with pytest.raises(Interrupted):
        hessian_eigenvalues(*mlp, checkpoint=path)
    with path.open("ab") as file:
        file.write(b"a row cut short")
    first, rows = computed, 10**9
    computed = 0
    assert torch.equal(hessian_eigenvalues(*mlp, checkpoint=path), expected)
    assert first + computed == len(expected) - 8 * len(dark)  # rows of zeros need no product
    assert not path.exists()


@pytest.mark.parametrize("what", ["weights", "loss", "data", "damage", "other file"])
def test_a_checkpoint_of_something_else_is_refused(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mlp: Any
) -> None:
    path = tmp_path / "rows"
    monkeypatch.setattr(hessian, "eigenvalues_of_upper", lambda _: (_ for _ in ()).throw(Interrupted()))
    with pytest.raises(Interrupted):
        hessian_eigenvalues(*mlp, checkpoint=path)
    model, loss_fn, batches = mlp
    content = bytearray(path.read_bytes())
    if what == "weights":
        model[2].bias.data += 1e-3
    elif what == "loss":
        loss_fn = lambda outputs, targets: 1.01 * F.cross_entropy(outputs, targets)  # noqa: E731
    elif what == "data":
        batches = [*batches[:-1], (batches[-1][0] + 0.1, batches[-1][1])]
    elif what == "damage":
        content[-200:] = bytes(200)
        path.write_bytes(content)
    else:
        path.write_text("something of the user's\n")
        content = bytearray(path.read_bytes())
    with pytest.raises(ValueError, match="checkpoint"):
        hessian_eigenvalues(model, loss_fn, batches, checkpoint=path)
    assert path.read_bytes() == content  # refused, not overwritten


def test_too_little_memory_is_reported_before_the_work(monkeypatch: pytest.MonkeyPatch, mlp: Any) -> None:
    monkeypatch.setattr(hessian, "available_memory", lambda: 1000)
    monkeypatch.setattr(Objective, "block_products", lambda *_: pytest.fail("the build began"))
    with pytest.raises(MemoryError, match="spectral_density"):
        hessian_eigenvalues(*mlp)


def test_without_scipy_only_large_matrices_are_refused(monkeypatch: pytest.MonkeyPatch, mlp: Any) -> None:
    monkeypatch.setitem(__import__("sys").modules, "scipy.linalg", None)
    assert len(hessian_eigenvalues(*mlp)) == 83
    monkeypatch.setattr(hessian, "SMALL", 10)
    with pytest.raises(ImportError, match=r"pip install -c constraints.txt '.\[lab\]'"):
        hessian_eigenvalues(*mlp)


def test_needs_are_announced(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], mlp: Any
) -> None:
    monkeypatch.setattr(hessian, "SMALL", 10)
    hessian_eigenvalues(*mlp)
    message = capsys.readouterr().err
    assert "83 parameters" in message
    assert "GiB of memory" in message
    assert "to decompose" in message
    hessian_eigenvalues(*mlp, progress=False)
    assert capsys.readouterr().err == ""


def test_networks_with_attention_are_measured():
    """Fused attention has no second derivative; the formula has, and both give the same loss."""

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.last = nn.MultiheadAttention(4, 2, batch_first=True), nn.Linear(4, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(self.inner(x, x, x, need_weights=False)[0]).mean(1)

    torch.manual_seed(0)
    model, batches = Attention().double(), [(torch.randn(3, 5, 4).double(), torch.randn(3, 1).double())]
    eigenvalues = hessian_eigenvalues(model, nn.functional.mse_loss, batches)
    density = spectral_density(model, nn.functional.mse_loss, batches, probes=40, steps=60)
    assert density.extremes[1] == pytest.approx(eigenvalues[-1].item(), rel=1e-6)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_a_layer_with_a_wrong_second_derivative_is_refused():
    torch.manual_seed(0)
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(6, 4))
    batches = [(torch.randn(5, 6), torch.randn(5, 4))]
    for measure in (hessian_eigenvalues, spectral_density):
        with pytest.raises(RuntimeError, match="not symmetric"):
            measure(nn.Sequential(layer, nn.Tanh()), nn.functional.mse_loss, batches)
