"""The demonstration: `lenet` on the 5,000 digits that come with the program, at equal budgets of gradients.

Chosen by the mean validation loss of seeds 100 and 101, which the demonstration does not use, all with the
same network, dropout, batch, budget and drops, from these: SGD, lr 0.01, 0.03, 0.1, 0.3; Adam, lr 0.001,
0.003, 0.01; Entropy-SGD, with lr 1 and the noise and scope of Section 5.2, L 5, 10, 20 with inner lr 0.03,
0.1 and momentum 0.9, then inner lr 0.1 with momentum 0.5 and L 5, 10, and with momentum 0 and L 5.
"""

from __future__ import annotations

from dataclasses import replace

from entropy_sgd.lab.methods import Hints
from entropy_sgd.lab.recipes.family import Family
from entropy_sgd.lab.recipes.mnist import lenet_adam, lenet_entropy_sgd, lenet_sgd
from entropy_sgd.lab.recipes.recipe import Drops

COMMON = {
    "paper": "not in the paper; Section 5.2 on fewer digits",
    "data": "digits",
    "epochs": 12,
    "dropout": 0.25,
    "drops": Drops(1 / 5, (6, 9)),
    "statistics_samples": 1000,
    # One thread with this layout has nine tenths of the speed of two (results/bench/settings.json), and keeps
    # it on a busy machine.
    "threads": 1,
    "channels_last": True,
}

sgd = replace(
    lenet_sgd,
    name="demo/sgd",
    chosen="lr 0.03, on validation data",
    optimizer=replace(lenet_sgd.optimizer, lr=0.03),
    **COMMON,
)

adam = replace(
    lenet_adam,
    name="demo/adam",
    chosen="lr 0.003, on validation data",
    optimizer=replace(lenet_adam.optimizer, lr=0.003),
    **COMMON,
)

entropy_sgd = replace(
    lenet_entropy_sgd,
    name="demo/entropy-sgd",
    chosen="L 5, inner lr 0.1 and outer momentum 0.5, on validation data; the rest as lenet/entropy-sgd",
    optimizer=replace(lenet_entropy_sgd.optimizer, L=5, momentum=0.5),
    **COMMON,
)

FAMILIES = (Family("demo", sgd, Hints(lr=0.03, adam_lr=0.003, L=5), (sgd, adam, entropy_sgd)),)
