"""The three small networks of Section 5.1, trained so that their exact Hessian can be taken at a minimum."""

from __future__ import annotations

from dataclasses import replace

from entropy_sgd.lab.methods import Hints
from entropy_sgd.lab.methods.adam import AdamOptions
from entropy_sgd.lab.methods.sgd import SGDOptions
from entropy_sgd.lab.recipes.family import Family
from entropy_sgd.lab.recipes.recipe import Drops, Recipe, every

lenet = Recipe(
    name="small-lenet/adam",
    paper="Section 5.1 (i): 2.4 % test error",
    chosen="lr 1e-3, Adam's default; batch 128; no dropout, so that training and Hessian see the same loss; "
    "20 epochs with two drops, after which the loss hardly moves",
    network="small-lenet",
    data="mnist",
    optimizer=AdamOptions(lr=1e-3),  # Section 5.1: "with Adam"
    epochs=20,
    batch_size=128,
    drops=Drops(1 / 5, (10, 15)),
    channels_last=True,  # 1.35 times as fast as without (results/bench/settings.json)
)

mnistfc = replace(
    lenet,
    name="small-mnistfc/sgd",
    paper="Section 5.1 (ii): 2.5 % test error",
    chosen="lr 0.1 and momentum 0.9, as the paper's other SGD runs; batch, epochs and drops of small-lenet",
    network="small-mnistfc",
    channels_last=False,
    optimizer=SGDOptions(lr=0.1, momentum=0.9),  # Section 5.1: "momentum-based SGD"
)

char_lstm = Recipe(
    name="small-char-lstm/adam",
    paper="Section 5.1 (iii)",
    chosen="the text is the opening of War and Peace, its 256 lines of 32 characters one batch, so an epoch "
    "is one update; lr 0.002 of Section 5.4.2; 20,000 epochs: after 2,000 the loss, 1.2 nats, still falls",
    network="small-char-lstm",
    data="warpeace",
    train_limit=256 * 32 + 1,  # Section 5.1: 256 lines of length 32, and the character after the last
    vocabulary=96,  # Section 5.1: "96-bit one-hot encoded characters"
    optimizer=AdamOptions(lr=2e-3),  # Section 5.1: "with Adam"
    epochs=20_000,
    batch_size=256,  # Section 5.1: 256 lines
    metric="nats",
    drops=Drops(1 / 2, every(5000, until=20_000)),
    unroll=32,  # Section 5.1: of length 32
    evaluate_every=1000,
    log_every=100,
)

FAMILIES = (
    Family("small-lenet", lenet, Hints(), (lenet,)),
    Family("small-mnistfc", mnistfc, Hints(), (mnistfc,)),
    Family("small-char-lstm", char_lstm, Hints(lr=1.0, momentum=0.5, adam_lr=2e-3, L=5), (char_lstm,)),
)
