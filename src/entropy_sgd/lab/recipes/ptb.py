"""Penn Treebank (Section 5.4.1): `ptb-lstm`, Zaremba et al.'s large LSTM, and their small one.

The loss is summed over the 35 time steps, as in Zaremba et al.'s pipeline, which Section 5.4.1 recreates:
their learning rate of 1 and their clipping are meant for that gradient.
"""

from __future__ import annotations

from dataclasses import replace

from entropy_sgd.lab.methods import Hints
from entropy_sgd.lab.methods.entropy_sgd import EntropySGDOptions
from entropy_sgd.lab.methods.sgd import SGDOptions
from entropy_sgd.lab.recipes.family import Family
from entropy_sgd.lab.recipes.recipe import Drops, Recipe, every

L = 5  # Section 5.4.1

sgd = Recipe(
    name="ptb-lstm/sgd",
    paper="Section 5.4.1: 81.43 ± 0.2 validation, 78.6 ± 0.26 test perplexity at 55 epochs",
    chosen="from Zaremba et al. (2014), whose pipeline the paper recreates: batch 20, dropout 0.65, gradient "
    "norm at most 10, lr 1 for 14 epochs, then divided by 1.15 at each",
    network="ptb-lstm",
    data="ptb",
    optimizer=SGDOptions(lr=1.0, momentum=0.0, nesterov=False),  # Section 5.4.1: "SGD without momentum"
    epochs=55,  # Section 5.4.1
    batch_size=20,
    metric="perplexity",
    drops=Drops(1 / 1.15, every(1, start=14, until=55)),
    dropout=0.65,
    unroll=35,  # Section 5.4.1
    sum_over_time=True,
    clip_norm=10.0,
)

entropy_sgd = replace(
    sgd,
    name="ptb-lstm/entropy-sgd",
    paper="Section 5.4.1: 80.116 ± 0.069 validation, 77.656 ± 0.171 test perplexity at 25 effective epochs",
    chosen="batch, dropout and clipping of the SGD run; the momentum of 0.5 is taken in both loops",
    optimizer=EntropySGDOptions(
        lr=1.0,  # η, Section 5.4.1
        momentum=0.5,  # Section 5.4.2: "we used a momentum of 0.5 for Entropy-SGD"
        L=L,
        inner_lr=1.0,  # η′, Section 5.4.1
        inner_momentum=0.5,  # as the outer one
        noise=1e-4,  # ε, Section 5.4.1
        gamma0=1e-3,  # Section 5.4.1: no scoping
        alpha=0.75,  # Section 4.2
    ),
    epochs=5 * L,  # Section 5.4.1: 5 epochs, "only 25 effective epochs"
    # Section 5.4.1: "reduces by a factor of 10 at each epoch after the third", so in two
    drops=Drops(1 / 10, (3 * L, 4 * L)),
)

small_sgd = replace(
    sgd,
    name="ptb-lstm-small/sgd",
    paper="not in the paper",
    chosen="Zaremba et al.'s small LSTM: 13 epochs, no dropout, unroll 20, gradient norm at most 5, lr "
    "halved at each epoch after the 4th",
    network="ptb-lstm-small",
    epochs=13,
    drops=Drops(1 / 2, every(1, start=4, until=13)),
    dropout=0.0,
    unroll=20,
    clip_norm=5.0,
)

small_entropy_sgd = replace(
    entropy_sgd,
    name="ptb-lstm-small/entropy-sgd",
    paper="not in the paper",
    chosen="Section 5.4.1's Entropy-SGD; dropout, unroll and clipping of Zaremba et al.'s small LSTM",
    network="ptb-lstm-small",
    dropout=0.0,
    unroll=20,
    clip_norm=5.0,
)

# "SGD without momentum", Section 5.4.1; Adam's rate is that of Section 5.4.2
HINTS = Hints(lr=1.0, momentum=0.0, adam_lr=2e-3, L=L)
FAMILIES = (
    Family("ptb-lstm", sgd, HINTS, (sgd, entropy_sgd)),
    Family("ptb-lstm-small", small_sgd, HINTS, (small_sgd, small_entropy_sgd)),
)
