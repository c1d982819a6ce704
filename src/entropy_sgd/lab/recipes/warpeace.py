"""War and Peace by characters (Section 5.4.2): `char-lstm` with Adam and Entropy-Adam.

The paper's "perplexity" of this section is the cross-entropy in nats per character: 1.217, not exp(1.217).
"""

from __future__ import annotations

from dataclasses import replace

from entropy_sgd.lab.methods import Hints
from entropy_sgd.lab.methods.adam import AdamOptions
from entropy_sgd.lab.methods.entropy_adam import EntropyAdamOptions
from entropy_sgd.lab.recipes.family import Family
from entropy_sgd.lab.recipes.recipe import Drops, Recipe, every

L = 5  # Section 5.4.2

adam = Recipe(
    name="char-lstm/adam",
    paper="Section 5.4.2: 1.224 ± 0.008 validation, 1.226 ± 0.01 test (Table 1: at 40 epochs)",
    chosen="batch 50; no dropout; gradient norm at most 5, against the rare long gradient of an LSTM",
    network="char-lstm",
    data="warpeace",
    optimizer=AdamOptions(lr=2e-3, betas=(0.9, 0.999)),  # Section 5.4.2: 0.002, β₁ = 0.9
    epochs=50,  # Section 5.4.2
    batch_size=50,
    metric="nats",
    drops=Drops(1 / 2, every(5, until=50)),  # Section 5.4.2: a factor of 2 after every 5 epochs
    dropout=0.0,
    unroll=50,  # Section 5.4.2
    clip_norm=5.0,
)

entropy_adam = replace(
    adam,
    name="char-lstm/entropy-adam",
    paper="Section 5.4.2: 1.213 ± 0.007 validation, 1.217 ± 0.005 test at 25 effective epochs",
    chosen="batch, dropout and clipping of the Adam run; η′ = 1, ε = 1e-4 and a momentum of 0.5 in the "
    "Langevin loop, those of Section 5.4.1's recurrent network (η′ = 0.1 is far slower)",
    optimizer=EntropyAdamOptions(
        lr=0.01,  # Section 5.4.2
        betas=(0.5, 0.999),  # Section 5.4.2: β₁ = 0.5
        L=L,
        inner_lr=1.0,
        inner_momentum=0.5,
        noise=1e-4,
        gamma0=0.01,  # Section 5.4.2: fixed
        alpha=0.75,  # Section 4.2
    ),
    epochs=5 * L,  # Section 5.4.2: 5 epochs, "only 25 effective epochs"
    drops=Drops(1 / 2, every(L, until=5 * L)),  # Section 5.4.2: a factor of 2 at each epoch
)

# SGD's rate and momentum are those of Entropy-Adam's Langevin loop
FAMILIES = (Family("char-lstm", adam, Hints(lr=1.0, momentum=0.5, adam_lr=2e-3, L=L), (adam, entropy_adam)),)
