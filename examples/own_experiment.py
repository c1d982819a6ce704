"""An experiment of your own, on scikit-learn's digits.

entropy-sgd train examples/own_experiment.py --method entropy-sgd
entropy-sgd compare examples/own_experiment.py --methods sgd sam entropy-sgd --seeds 0 1 2 --budget 10
"""

import torch
from sklearn.datasets import load_digits
from torch import nn

from entropy_sgd.lab import Experiment


def network():
    return nn.Sequential(
        nn.Linear(64, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 10)
    )


def error(outputs, targets):
    return 100 * (outputs.argmax(1) != targets).float().mean()


def experiment():
    images, labels = load_digits(return_X_y=True)
    inputs, targets = torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels)
    held_out = torch.arange(len(targets)) % 5 == 0
    return Experiment(
        model=network,
        train=(inputs[~held_out], targets[~held_out]),
        validation=(inputs[held_out], targets[held_out]),
        loss=nn.functional.cross_entropy,
        metric=error,
        batch_size=64,
        epochs=20,
    )
