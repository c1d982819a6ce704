"""The loss over all of `batches` as a function of one flat vector of weights.

    f(w) = sum_b (N_b / N) loss_fn(model_w(inputs_b), targets_b),        the paper's eq. (5)

The rest of the package gets values, gradients and Hessian-vector products from this object and knows nothing
of modules. `w` holds the parameters with `requires_grad` (all, or those selected), in the order of
`model.parameters()`; all other parameters are constants of the function.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from entropy_sgd.landscape.inputs import Batches, Samples, Selection, describe, evaluating, trainable
from entropy_sgd.landscape.typed_torch import (
    VECTORS,
    call,
    derivative,
    gradient,
    gradient_and_value,
    over_rows,
    prepare,
    transposed_derivative,
)

LossFunction = Callable[[Any, Any], Tensor]


class Objective:
    """f and its derivatives at the model's weights, `weights`. Created by `objective`."""

    def __init__(
        self,
        model: nn.Module,
        loss_fn: LossFunction,
        batches: Batches,
        dtype: torch.dtype | None,
        selection: Selection,
    ):
        parameters = trainable(model, selection)
        first = next(iter(parameters.values()))
        own = torch.promote_types(first.dtype, torch.float32)
        self.dtype = own if dtype is None else dtype
        if self.dtype not in (torch.float32, torch.float64):
            raise TypeError(f"dtype must be torch.float32 or torch.float64, got {self.dtype}")
        self.device = first.device
        self._model, self._loss_fn = model, _converted(loss_fn, self.device, self.dtype)
        self._forwards: bool | None = None  # whether torch can differentiate the gradient forwards
        self.shapes = {name: p.shape for name, p in parameters.items()}
        self.sizes = [p.numel() for p in parameters.values()]
        self.n = sum(self.sizes)
        self._samples = Samples(batches, self.device, self.dtype)
        self.weights = torch.cat([self._samples.cast(p).flatten() for p in parameters.values()])
        # Copies: a forward pass may write into a buffer, and the model's own must not change.
        fixed = {name: p for name, p in model.named_parameters() if name not in parameters}
        fixed |= dict(model.named_buffers())
        self._fixed = {name: self._samples.cast(tensor).clone() for name, tensor in fixed.items()}
        # Each slot of each module once, with the name of its tensor: `functional_call` with tied weights
        # would swap the slots of a module that has two names twice, and put the wrong tensors back.
        names = {id(t): name for name, t in [*model.named_parameters(), *model.named_buffers()]}
        self._slots = {
            f"{path}.{key}".lstrip("."): names[id(tensor)]
            for path, module in _named_modules(model)
            for key, tensor in [*module._parameters.items(), *module._buffers.items()]
            if tensor is not None
        }
        try:
            self.start = float(self.value(self.weights))
        except RuntimeError as error:
            if self.dtype is own or not re.search(r"dtype|scalar type|type \(", str(error)):
                raise
            raise RuntimeError(
                f"model or loss_fn: {error} (parameters, buffers and batches are converted to {self.dtype}, "
                f"other tensors are not: make them buffers of a module, or pass dtype={own})"
            ) from error
        if not math.isfinite(self.start):
            raise ValueError(f"the loss at the model's weights is {self.start}; it must be finite")

    @property
    def samples(self) -> int:
        """The number N of terms in the mean: the entries of all targets but those of -100."""
        return self._samples.total

    def value(self, w: Tensor) -> Tensor:
        """The number f(w)."""
        with torch.no_grad():
            return self._mean(lambda inputs, targets: self._loss(self.split(w), inputs, targets))

    def gradient(self, w: Tensor) -> Tensor:
        """The gradient of f at `w`."""
        return finite("gradient", self._mean(lambda inputs, targets: self._gradient(w, inputs, targets)))

    def values_and_gradients(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Values (K,) and gradients (K, n) of f at the rows of `points` (K, n)."""

        def batch(inputs: Any, targets: Any) -> Tensor:
            def loss(w: Tensor) -> Tensor:
                return self._loss(self.split(w), inputs, targets)

            def row(w: Tensor) -> Tensor:
                slope, value = gradient_and_value(loss, w)
                return torch.cat([slope, value.reshape(1)])

            return over_rows(row, points)

        both = self._mean(batch)
        return both[:, -1], both[:, :-1]

    def products(self, vectors: Tensor) -> Tensor:
        """H v for each row v of `vectors` (K, n)."""
        return self._forwards_or_backwards(
            lambda: self._products(vectors, derivative),
            # H is symmetric, so two backward passes through its transpose give the same.
            lambda: self._products(vectors, transposed_derivative),
        )

    def block_products(self, k: int, vectors: Tensor) -> Tensor:
        """The rows of H v from parameter k on, for vectors (K, sizes[k]) that are zero outside parameter k.

        Only what depends on parameter k is differentiated forwards, and only parameters k, k + 1, ...
        backwards: for the last layers of a network, a small part of the work. Symmetry gives the rows above.
        """
        parameters = self.split(self.weights)

        def batch(inputs: Any, targets: Any) -> Tensor:
            def loss(tail: tuple[Tensor, ...]) -> Tensor:
                return self._loss((*parameters[:k], *tail), inputs, targets)

            def slope(p: Tensor) -> Tensor:
                return torch.cat([t.flatten() for t in gradient(loss, (p, *parameters[k + 1 :]))])

            def row(v: Tensor) -> Tensor:
                return derivative(slope, parameters[k], v.view(tuple(self.shapes.values())[k]))

            return over_rows(row, vectors)

        def whole() -> Tensor:
            first = sum(self.sizes[:k])
            embedded = nn.functional.pad(vectors, (first, self.n - first - self.sizes[k]))
            return self._products(embedded, transposed_derivative)[:, first:]

        return self._forwards_or_backwards(lambda: self._mean(batch), whole)

    def sample_gradients(self) -> Generator[Tensor]:
        """The gradient of each sample's own loss, (samples, n), a few samples at a time."""

        def row(w: Tensor, x: Tensor, y: Tensor) -> Tensor:
            return self._gradient(w, x[None], y[None])

        for inputs, targets, _ in self._samples:
            tensors = isinstance(inputs, Tensor) and isinstance(targets, Tensor)
            if not tensors or inputs.dim() == 0 or targets.dim() == 0 or len(inputs) != len(targets):
                raise TypeError(
                    "batches: per-sample gradients need inputs and targets with one sample per entry of "
                    f"dimension 0, got {describe(inputs)} and {describe(targets)}"
                )
            for i in range(0, len(inputs), VECTORS):
                x, y = inputs[i : i + VECTORS], targets[i : i + VECTORS]
                # The weights get the batch dimension too (no copy is made): LSTM cells work in place on them.
                points = self.weights.expand(len(x), -1)
                yield finite("gradient", over_rows(row, points, x, y))

    def outputs(self, w: Tensor) -> Generator[tuple[Any, Any, Tensor, float]]:
        """(outputs, targets, loss, share of all samples) of each batch at `w`, without gradients."""
        for inputs, targets, size in self._samples:
            with torch.no_grad():
                outputs = self._outputs(self.split(w), inputs)
                loss = self._checked(self._loss_fn(outputs, targets))
            yield outputs, targets, loss, size / self._samples.total

    def recompute_statistics(self, w: Tensor) -> None:
        """Set batch normalisation's running means and variances to their mean over the batches at `w`.

        A batch counts as much as it has values per channel. A layer passes over a batch with a single one,
        which has no variance, and normalises it with the statistics so far.
        """
        layers = {
            name: layer
            for name, layer in _named_modules(self._model)
            if isinstance(layer, _BatchNorm) and layer.track_running_stats and layer.running_mean is not None
        }
        if not layers:
            return
        seen: dict[_BatchNorm, int] = {}

        def weigh(layer: _BatchNorm, args: tuple[Tensor, ...], kwargs: dict[str, Tensor]) -> None:
            (x,) = (*args, *kwargs.values())
            size = x.numel() // x.shape[1]
            layer.training = size > 1
            seen[layer] = seen.get(layer, 0) + size * layer.training
            layer.momentum = size / max(seen[layer], 1)

        momenta = [layer.momentum for layer in layers.values()]
        hooks = [layer.register_forward_pre_hook(weigh, with_kwargs=True) for layer in layers.values()]
        for name in layers:  # statistics of other weights that are not finite would stay so
            for buffer, value in (("running_mean", 0.0), ("running_var", 1.0)):
                self._fixed[self._slots[f"{name}.{buffer}".lstrip(".")]].fill_(value)
        try:
            with torch.no_grad():
                for inputs, _, _ in self._samples:
                    self._outputs(self.split(w), inputs)
        finally:
            for layer, momentum, hook in zip(layers.values(), momenta, hooks, strict=True):
                layer.momentum, layer.training = momentum, False
                hook.remove()
        for name, layer in layers.items():
            if seen.get(layer) == 0:
                raise ValueError(
                    f"batches: each gives batch normalisation {name!r} one value per channel, which has no "
                    "variance; give batches of several samples"
                )

    def split(self, w: Tensor) -> tuple[Tensor, ...]:
        """The vector `w` as one tensor per parameter."""
        parts = w.split_with_sizes(self.sizes)
        return tuple(part.view(shape) for part, shape in zip(parts, self.shapes.values(), strict=True))

    def _products(
        self, vectors: Tensor, differentiate: Callable[[Callable[[Tensor], Tensor], Tensor, Tensor], Tensor]
    ) -> Tensor:
        def batch(inputs: Any, targets: Any) -> Tensor:
            def slope(w: Tensor) -> Tensor:
                return self._gradient(w, inputs, targets)

            def row(v: Tensor) -> Tensor:
                return differentiate(slope, self.weights, v)

            return over_rows(row, vectors)

        return self._mean(batch)

    def _forwards_or_backwards(
        self, forwards: Callable[[], Tensor], backwards: Callable[[], Tensor]
    ) -> Tensor:
        """Forward derivatives are faster, but torch lacks them for some functions (mse_loss)."""
        if self._forwards is not False:
            try:
                result = forwards()
            except (NotImplementedError, RuntimeError):
                if self._forwards:
                    raise
            else:
                self._forwards = True
                return finite("Hessian", result)
        result = finite("Hessian", backwards())
        if self._forwards is None:
            self._check_symmetry()
        self._forwards = False
        return result

    def _check_symmetry(self) -> None:
        """Some layers have a wrong second derivative in torch, and H is no longer symmetric."""
        pair = torch.randn(
            2, self.n, generator=torch.Generator().manual_seed(0), dtype=torch.float64, device="cpu"
        )
        pair = pair.to(self.device, self.dtype)
        products = self._products(pair, transposed_derivative)
        apart = (pair[0] @ products[1] - pair[1] @ products[0]).abs()
        tolerance = 1e-6 if self.dtype is torch.float64 else 1e-2
        if apart.item() > tolerance * products.square().sum().sqrt().item():
            raise RuntimeError(
                "model: the Hessian that torch computes is not symmetric, so the second derivative of one of "
                "its layers is wrong in torch (that of weight_norm is, torch 2.13): remove such a "
                "parametrization first, or write the layer out"
            )

    def _gradient(self, w: Tensor, inputs: Any, targets: Any) -> Tensor:
        def loss(v: Tensor) -> Tensor:
            return self._loss(self.split(v), inputs, targets)

        return gradient(loss, w)

    def _loss(self, parameters: tuple[Tensor, ...], inputs: Any, targets: Any) -> Tensor:
        return self._checked(self._loss_fn(self._outputs(parameters, inputs), targets))

    def _outputs(self, parameters: tuple[Tensor, ...], inputs: Any) -> Any:
        tensors = {**self._fixed, **dict(zip(self.shapes, parameters, strict=True))}
        slots = {slot: tensors[name] for slot, name in self._slots.items()}
        return call(self._model, slots, (inputs,), tie_weights=False)

    def _checked(self, loss: Any) -> Tensor:
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            raise ValueError(f"loss_fn must return one number, the mean over the batch; got {describe(loss)}")
        return loss.reshape(()).to(self.dtype)

    def _mean(self, term: Callable[[Any, Any], Tensor]) -> Tensor:
        result = torch.zeros((), dtype=self.dtype, device=self.device)
        for inputs, targets, size in self._samples:
            try:
                result = result + term(inputs, targets) * (size / self._samples.total)
            except RuntimeError as error:
                if "have storage" not in str(error):
                    raise
                raise RuntimeError(
                    "model: torch.func cannot differentiate one of its layers, such as a recurrent one on "
                    f"packed sequences (use padded ones): {error}"
                ) from error
        return result


@contextmanager
def objective(
    model: nn.Module,
    loss_fn: LossFunction,
    batches: Batches,
    dtype: torch.dtype | None,
    selection: Selection = None,
) -> Generator[Objective]:
    """The objective of `model` in the parameters of `selection`; the model is in eval mode inside."""
    prepare()
    # Every pass over a DataLoader draws a seed from torch's global generator, shuffled or not.
    with evaluating(model, loss_fn), torch.random.fork_rng(devices=[]):
        yield Objective(model, loss_fn, batches, dtype, selection)


def finite(name: str, derivatives: Tensor) -> Tensor:
    """`derivatives`, which must be finite; a finite loss does not imply it (tanh of an infinite input)."""
    if not bool(torch.isfinite(derivatives).all()):
        raise ValueError(
            f"the {name} of the loss is not finite at the model's weights: check model and batches"
        )
    return derivatives


def _named_modules(model: nn.Module) -> Iterable[tuple[str, nn.Module]]:
    """Each module once, whatever the number of its names."""
    return cast(Iterable[tuple[str, nn.Module]], model.named_modules())


def _converted(loss_fn: LossFunction, device: torch.device, dtype: torch.dtype) -> LossFunction:
    """`loss_fn`; a module's tensors of another type, such as weights of classes, are converted for it."""
    if not isinstance(loss_fn, nn.Module):
        return loss_fn
    tensors = {**dict(loss_fn.named_parameters()), **dict(loss_fn.named_buffers())}
    converted = {
        name: tensor.detach().to(device, dtype if tensor.is_floating_point() else tensor.dtype)
        for name, tensor in tensors.items()
    }
    same = (
        converted[name].dtype is t.dtype and converted[name].device == t.device for name, t in tensors.items()
    )
    if all(same):
        return loss_fn
    return lambda outputs, targets: call(loss_fn, converted, (outputs, targets))
