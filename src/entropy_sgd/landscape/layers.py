"""One spectrum per layer: diagonal blocks of the Hessian."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

from torch import nn

from entropy_sgd.landscape.density import spectral_density
from entropy_sgd.landscape.inputs import Batches, trainable
from entropy_sgd.landscape.objective import LossFunction

T = TypeVar("T")


def spectra_by_layer(
    model: nn.Module,
    loss_fn: LossFunction,
    batches: Batches,
    *,
    measure: Callable[..., T] = spectral_density,
    **options: Any,
) -> dict[str, T]:
    """The spectrum of each layer's own block of the Hessian: the other layers' weights are constants.

        spectra_by_layer(model, loss_fn, batches, probes=4)["fc1"].trace
        spectra_by_layer(model, loss_fn, batches, measure=hessian_eigenvalues)["fc1"]

    A layer is a module with trainable parameters of its own. A parameter that several layers share belongs to
    the first of them, as in `model.named_parameters()`.

    Args:
        model: as for `hessian_eigenvalues`, including frozen parameters and eval mode.
        loss_fn: `loss_fn(model(inputs), targets)`, the mean over a batch.
        batches: a re-iterable of `(inputs, targets)`.
        measure: `spectral_density`, `hessian_eigenvalues`, `hessian_eigenvectors` or any other function of
            `(model, loss_fn, batches, *, parameters)`.
        options: further keyword arguments of `measure`.

    Returns:
        The result of `measure` by layer, under the layer's name in `model.named_modules()`: parameters that
        the model itself owns are under `""`.
    """
    if "parameters" in options:
        raise TypeError(
            "spectra_by_layer selects the parameters itself: call measure with parameters instead"
        )
    layers: dict[str, list[str]] = {}
    names = trainable(model)
    for layer, _ in cast(Iterable[tuple[str, nn.Module]], model.named_modules()):
        own = [name for name in names if name.rpartition(".")[0] == layer]
        if own:
            layers[layer] = own
    return {
        layer: measure(model, loss_fn, batches, parameters=own, **options) for layer, own in layers.items()
    }
