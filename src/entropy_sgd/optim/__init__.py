"""Algorithm 1 and its relatives, as torch optimizers."""

from entropy_sgd.optim import scoping
from entropy_sgd.optim.batchnorm import recalibrate_batchnorm
from entropy_sgd.optim.entropy_adam import EntropyAdam
from entropy_sgd.optim.entropy_sgd import EntropySGD
from entropy_sgd.optim.local_entropy import LocalEntropy
from entropy_sgd.optim.replicas import Replicas, ReplicatedLocalEntropy
from entropy_sgd.optim.sgld import SGLD

__all__ = [
    "SGLD",
    "EntropyAdam",
    "EntropySGD",
    "LocalEntropy",
    "Replicas",
    "ReplicatedLocalEntropy",
    "recalibrate_batchnorm",
    "scoping",
]
