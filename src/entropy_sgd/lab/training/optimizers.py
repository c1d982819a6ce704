"""From a recipe's options to the optimizer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

import torch
from torch import Tensor

from entropy_sgd import SGLD, EntropyAdam, EntropySGD, scoping
from entropy_sgd.lab import LabError
from entropy_sgd.lab.recipes import options


def build(chosen: options.Optimizer, parameters: Iterable[Tensor], seed: int) -> torch.optim.Optimizer:
    """The optimizer that `chosen` describes; `seed` decides its noise, where it has any."""
    arguments = asdict(chosen)
    try:
        match chosen:
            case options.SGD():
                # torch refuses Nesterov's form without a momentum, where it is the plain step
                arguments["nesterov"] = chosen.nesterov and chosen.momentum > 0
                return torch.optim.SGD(parameters, **arguments)
            case options.Adam():
                return torch.optim.Adam(parameters, **arguments)
            case options.SGLD():
                return SGLD(parameters, seed=seed, **arguments)
            case options.EntropySGD() | options.EntropyAdam():
                gamma = scoping.Exponential(arguments.pop("gamma0"), arguments.pop("gamma1"))
                kind = EntropySGD if isinstance(chosen, options.EntropySGD) else EntropyAdam
                return kind(parameters, gamma=gamma, seed=seed, **arguments)
    except ValueError as error:
        raise LabError(f"the optimizer refuses its options: {error}") from error
