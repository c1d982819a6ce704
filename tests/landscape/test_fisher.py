from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from entropy_sgd import EntropyAdam
from entropy_sgd.landscape import fisher_diagonal


def test_exactly_from_each_samples_gradient(problem: Any) -> None:
    model, loss_fn, batches = problem
    gradients: list[Tensor] = []
    for inputs, targets in batches:
        for x, y in zip(inputs, targets, strict=True):
            loss = loss_fn(model(x[None]), y[None])
            gradients.append(
                torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])
            )
    g = torch.stack(gradients).double()
    found = fisher_diagonal(model, loss_fn, batches)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), g.var(0, correction=0), rtol=1e-4, atol=1e-8)
    precise = fisher_diagonal(model, loss_fn, batches, dtype=torch.float64)
    torch.testing.assert_close(precise, g.var(0, correction=0), rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("optimizer_class", [torch.optim.Adam, torch.optim.AdamW, torch.optim.NAdam])
def test_from_moments_written_out(optimizer_class: Any, mlp: Any) -> None:
    model, loss_fn, batches = mlp
    first, second = list(model[0].parameters()), list(model[2].parameters())
    groups = [{"params": first, "betas": (0.8, 0.99)}, {"params": second, "betas": (0.5, 0.9)}]
    optimizer = optimizer_class(groups, lr=1e-2, weight_decay=0.0)
    history: list[list[Tensor]] = []
    for step in range(5):
        optimizer.zero_grad()
        loss_fn(model(batches[step % 3][0]), batches[step % 3][1]).backward()
        history.append([p.grad.clone() for p in (*first, *second)])
        optimizer.step()
    expected: list[Tensor] = []
    for i, (beta1, beta2) in enumerate([(0.8, 0.99), (0.8, 0.99), (0.5, 0.9), (0.5, 0.9)]):
        # Bias-corrected exponential averages are weighted means with weights beta^age.
        g = torch.stack([gradients[i] for gradients in history]).double().flatten(1)
        ages = torch.arange(4, -1, -1, dtype=torch.float64)
        mean, square = ((w / w.sum()) @ moment for w, moment in ((beta1**ages, g), (beta2**ages, g**2)))
        expected.append(square - mean**2)
    torch.testing.assert_close(fisher_diagonal(optimizer).double(), torch.cat(expected), rtol=1e-4, atol=1e-8)


def test_moments_in_16_bits_lose_nothing_further() -> None:
    torch.manual_seed(0)
    p = nn.Parameter(torch.randn(500).bfloat16())
    adam = torch.optim.Adam([p], betas=(0.9, 0.99))
    for _ in range(5):
        p.grad = (1 + 0.2 * torch.randn(500)).bfloat16()  # a mean far from zero: the difference cancels
        adam.step()
    m, v = (adam.state[p][name].double() for name in ("exp_avg", "exp_avg_sq"))
    expected = v / (1 - 0.99**5) - (m / (1 - 0.9**5)) ** 2
    torch.testing.assert_close(fisher_diagonal(adam).double(), expected, rtol=0, atol=1e-6)


def test_an_optimizer_around_adam(mlp: Any) -> None:
    class Around(torch.optim.Optimizer):
        """Shares state and groups with the Adam inside."""

        def __init__(self, inner: torch.optim.Adam) -> None:
            super().__init__(inner.param_groups, {})
            self.state, self.param_groups = inner.state, inner.param_groups

    model, loss_fn, batches = mlp
    adam = torch.optim.Adam(model.parameters())
    loss_fn(model(batches[0][0]), batches[0][1]).backward()
    adam.step()
    assert torch.equal(fisher_diagonal(Around(adam)), fisher_diagonal(adam))


def test_frozen_and_unused_parameters(mlp: Any) -> None:
    model, loss_fn, batches = mlp
    model[0].bias.requires_grad_(False)
    model.register_parameter("unused", nn.Parameter(torch.ones(2)))
    adam = torch.optim.Adam(model.parameters())
    loss_fn(model(batches[0][0]), batches[0][1]).backward()
    adam.step()
    found = fisher_diagonal(adam)
    names = [name for name, p in model.named_parameters() if p.requires_grad]
    assert len(found) == 83 - 8 + 2
    position = sum(
        p.numel() for name, p in model.named_parameters() if name in names[: names.index("unused")]
    )
    assert found[position : position + 2].tolist() == [0.0, 0.0]
    exact = fisher_diagonal(model, loss_fn, batches)
    assert exact[position : position + 2].tolist() == [0.0, 0.0]
    assert len(exact) == len(found)


def test_nonsense_is_refused(mlp: Any) -> None:
    model, loss_fn, batches = mlp
    with pytest.raises(ValueError, match="no Adam moments"):
        fisher_diagonal(torch.optim.Adam(model.parameters()))
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loss_fn(model(batches[0][0]), batches[0][1]).backward()
    sgd.step()
    with pytest.raises(ValueError, match=r"SGD.*no Adam moments"):
        fisher_diagonal(sgd)
    with pytest.raises(TypeError, match="loss_fn and batches"):
        fisher_diagonal(model)
    with pytest.raises(TypeError, match="takes no loss_fn"):
        fisher_diagonal(sgd, loss_fn, batches)
    with pytest.raises(TypeError, match="got a int"):
        fisher_diagonal(3)
    with pytest.raises(TypeError, match="one sample per entry"):
        fisher_diagonal(model, lambda o, t: o.mean(), [(torch.randn(4, 6), torch.randn(3))])


def test_the_moments_of_entropy_adam_are_refused():
    p = torch.nn.Parameter(torch.ones(3))
    optimizer = EntropyAdam([p], L=1)
    p.grad = torch.ones(3)
    optimizer.step()
    with pytest.raises(TypeError, match="x - mu"):
        fisher_diagonal(optimizer)
