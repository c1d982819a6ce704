"""What is run for the paper's table and figures, in the order in which it is computed.

A row is a name to type after `entropy-sgd paper run` and a few entries. An entry is a recipe, with what
differs from the one of that name, its seeds, and the paper's number beside it. An entry without seeds is
there for the paper's number: it takes longer than there was time for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from entropy_sgd.lab import recipes
from entropy_sgd.lab.paper import numbers
from entropy_sgd.lab.paper.entry import Entry, Line, Row
from entropy_sgd.lab.recipes import Recipe

SIX, THREE, TWO, ONE = (0, 1, 2, 3, 4, 5), (0, 1, 2), (0, 1), (0,)


def _recipe(name: str, optimizer: dict[str, Any] | None = None, **changes: Any) -> Recipe:
    """A recipe for one thread, so that as many runs as cores go at once, with these changes."""
    found = recipes.get(name)
    channels_last = found.network == "lenet"  # faster on one thread (results/bench/settings.json)
    options = replace(found.optimizer, **optimizer or {})
    return replace(found, optimizer=options, **{"threads": 1, "channels_last": channels_last, **changes})


# Section 5.2 names batch normalisation for LeNet only, and so do the recipes. Without it Entropy-SGD diverges
# on mnistfc; the authors' published network has it.
NORMALISED: dict[str, Any] = {"batch_norm": True, "optimizer": {"momentum": 0.9}}

MNISTFC = Row(
    "mnistfc",
    "mnistfc on MNIST",
    (
        Entry("mnistfc-adam", "Adam", _recipe("mnistfc/adam"), SIX, paper=(numbers.MNISTFC_ADAM,)),
        Entry(
            "mnistfc-entropy-sgd",
            "Entropy-SGD, as in the text",
            _recipe("mnistfc/entropy-sgd"),
            SIX,
            paper=(numbers.MNISTFC_ENTROPY_SGD,),
            against="mnistfc-adam",
        ),
        Entry(
            "mnistfc-entropy-sgd-batch-norm",
            "Entropy-SGD, with batch normalisation",
            _recipe("mnistfc/entropy-sgd", **NORMALISED),
            SIX,
            paper=(numbers.MNISTFC_ENTROPY_SGD,),
            against="mnistfc-adam",
        ),
    ),
)

LENET = Row(
    "lenet",
    "LeNet on MNIST",
    (
        Entry("lenet-adam", "Adam", _recipe("lenet/adam"), SIX, paper=(numbers.LENET_ADAM,)),
        Entry(
            "lenet-entropy-sgd",
            "Entropy-SGD",
            _recipe("lenet/entropy-sgd"),
            SIX,
            paper=(numbers.LENET_ENTROPY_SGD,),
            against="lenet-adam",
        ),
    ),
)

_entropy_adam = _recipe("char-lstm/entropy-adam")
CHAR_LSTM = Row(
    "char-lstm",
    "char-LSTM on War and Peace",
    (
        Entry(
            "char-lstm-adam",
            "Adam",
            _recipe("char-lstm/adam"),
            TWO,
            paper=(numbers.CHAR_ADAM, numbers.CHAR_ADAM_VALIDATION),
        ),
        Entry(
            "char-lstm-entropy-adam",
            "Entropy-Adam",
            _entropy_adam,
            TWO,
            paper=(numbers.CHAR_ENTROPY_ADAM, numbers.CHAR_ENTROPY_ADAM_VALIDATION),
            against="char-lstm-adam",
        ),
        Entry(
            "char-lstm-sgd",
            "SGD: the Langevin loop alone, with its η′, momentum and drops",
            _recipe("char-lstm/sgd", epochs=_entropy_adam.epochs, drops=_entropy_adam.drops),
            TWO,
            against="char-lstm-entropy-adam",
        ),
    ),
)

PTB_SMALL = Row(
    "ptb-lstm-small",
    "small LSTM on Penn Treebank, not in the paper",
    (
        Entry("ptb-lstm-small-sgd", "SGD", _recipe("ptb-lstm-small/sgd"), TWO),
        Entry(
            "ptb-lstm-small-entropy-sgd",
            "Entropy-SGD",
            _recipe("ptb-lstm-small/entropy-sgd"),
            TWO,
            against="ptb-lstm-small-sgd",
        ),
    ),
)


def _without(network: str, normalised: dict[str, Any], whole: str) -> tuple[Entry, ...]:
    """Entropy-SGD on `network` with one part taken away, at the same gradients."""
    batch_norm = {key: value for key, value in normalised.items() if key == "batch_norm"}
    outer: dict[str, Any] = normalised.get("optimizer", {})
    alone = _recipe(f"{network}/sgd", **batch_norm)
    silent = _recipe(f"{network}/entropy-sgd", {**outer, "noise": 0.0}, **batch_norm)
    free = _recipe(f"{network}/entropy-sgd", {**outer, "gamma0": 0.0, "gamma1": 0.0}, **batch_norm)
    name = "LeNet" if network == "lenet" else f"{network}, with batch normalisation"
    return (
        Entry(f"{network}-ablation-sgd", f"{name}: the Langevin loop alone", alone, THREE, against=whole),
        Entry(f"{network}-ablation-noise-0", f"{name}: ε = 0", silent, THREE, against=whole),
        Entry(f"{network}-ablation-gamma-0", f"{name}: γ = 0", free, THREE, against=whole),
    )


ABLATION = Row(
    "ablation",
    "Entropy-SGD with one part taken away, not in the paper",
    (
        Entry(
            "mnistfc-ablation-adam",
            "mnistfc, with batch normalisation: Adam",
            _recipe("mnistfc/adam", batch_norm=True),
            THREE,
            against="mnistfc-entropy-sgd-batch-norm",
        ),
        *_without("mnistfc", NORMALISED, "mnistfc-entropy-sgd-batch-norm"),
        *_without("lenet", {}, "lenet-entropy-sgd"),
    ),
)

NARROW = "a quarter of the paper's channels"
ALLCNN = Row(
    "allcnn",
    "All-CNN-BN on CIFAR-10",
    (
        Entry(
            "allcnn-quarter-sgd",
            "SGD, quarter width",
            _recipe("allcnn/sgd", width=0.25),
            TWO,
            paper=(numbers.ALLCNN_SGD,),
            apart=NARROW,
        ),
        Entry(
            "allcnn-quarter-entropy-sgd",
            "Entropy-SGD, quarter width",
            _recipe("allcnn/entropy-sgd", width=0.25),
            TWO,
            paper=(numbers.ALLCNN_ENTROPY_SGD,),
            apart=NARROW,
            against="allcnn-quarter-sgd",
        ),
        Entry(
            "allcnn-one-epoch-sgd",
            "SGD, one epoch",
            _recipe("allcnn/sgd", epochs=1.0, evaluate_every=0.25),
            ONE,
            final=False,
            excerpt=True,
        ),
        Entry(
            "allcnn-one-epoch-entropy-sgd",
            "Entropy-SGD, one epoch",
            _recipe("allcnn/entropy-sgd", epochs=1.0, evaluate_every=0.25),
            ONE,
            final=False,
            excerpt=True,
        ),
        Entry("allcnn-sgd", "SGD", _recipe("allcnn/sgd"), (), paper=(numbers.ALLCNN_SGD,)),
        Entry(
            "allcnn-entropy-sgd",
            "Entropy-SGD",
            _recipe("allcnn/entropy-sgd"),
            (),
            paper=(numbers.ALLCNN_ENTROPY_SGD,),
        ),
    ),
)

SGLD = Row(
    "sgld",
    "SGLD (Appendix C.1)",
    (
        Entry(
            "lenet-sgld",
            "LeNet",
            _recipe("lenet/sgld"),
            ONE,
            paper=(numbers.LENET_SGLD,),
            against="lenet-entropy-sgd",
        ),
        Entry("allcnn-sgld", "All-CNN-BN", _recipe("allcnn/sgld"), (), paper=(numbers.ALLCNN_SGLD,)),
    ),
)

PTB = Row(
    "ptb-lstm",
    "large LSTM on Penn Treebank",
    (
        Entry(
            "ptb-lstm-one-epoch-sgd", "SGD, one epoch", _recipe("ptb-lstm/sgd", epochs=1.0), ONE, final=False
        ),
        Entry(
            "ptb-lstm-one-epoch-entropy-sgd",
            "Entropy-SGD, one epoch",
            _recipe("ptb-lstm/entropy-sgd", epochs=1.0),
            ONE,
            final=False,
            excerpt=True,
        ),
        Entry(
            "ptb-lstm-sgd",
            "SGD",
            _recipe("ptb-lstm/sgd"),
            (),
            paper=(numbers.PTB_SGD, numbers.PTB_SGD_VALIDATION),
        ),
        Entry(
            "ptb-lstm-entropy-sgd",
            "Entropy-SGD",
            _recipe("ptb-lstm/entropy-sgd"),
            (),
            paper=(numbers.PTB_ENTROPY_SGD, numbers.PTB_ENTROPY_SGD_VALIDATION),
        ),
    ),
)

# A final run on images holds nothing out, so it has no validation error to draw.
CURVES = Row(
    "curves",
    "with validation data held out, for the curves of Fig. 4 and 5",
    (
        Entry("mnistfc-adam-curve", "mnistfc: Adam", _recipe("mnistfc/adam"), TWO, final=False),
        Entry(
            "mnistfc-entropy-sgd-batch-norm-curve",
            "mnistfc: Entropy-SGD, with batch normalisation",
            _recipe("mnistfc/entropy-sgd", **NORMALISED),
            TWO,
            final=False,
        ),
        Entry("lenet-adam-curve", "LeNet: Adam", _recipe("lenet/adam"), TWO, final=False),
        Entry(
            "lenet-entropy-sgd-curve", "LeNet: Entropy-SGD", _recipe("lenet/entropy-sgd"), TWO, final=False
        ),
        Entry(
            "allcnn-quarter-sgd-curve",
            "All-CNN-BN, quarter width: SGD",
            _recipe("allcnn/sgd", width=0.25),
            ONE,
            final=False,
        ),
        Entry(
            "allcnn-quarter-entropy-sgd-curve",
            "All-CNN-BN, quarter width: Entropy-SGD",
            _recipe("allcnn/entropy-sgd", width=0.25),
            ONE,
            final=False,
        ),
    ),
)

ROWS = (MNISTFC, LENET, CHAR_LSTM, PTB_SMALL, ABLATION, ALLCNN, SGLD, PTB, CURVES)


TABLE_1 = (
    Line("mnistfc", "mnistfc-entropy-sgd", "mnistfc-adam"),
    Line(
        "mnistfc, with batch normalisation (Adam without)", "mnistfc-entropy-sgd-batch-norm", "mnistfc-adam"
    ),
    Line("LeNet", "lenet-entropy-sgd", "lenet-adam"),
    Line("All-CNN-BN", "allcnn-entropy-sgd", "allcnn-sgd"),
    Line("PTB-LSTM", "ptb-lstm-entropy-sgd", "ptb-lstm-sgd"),
    Line("char-LSTM", "char-lstm-entropy-adam", "char-lstm-adam"),
)


def entries(rows: tuple[Row, ...] = ROWS) -> Iterator[Entry]:
    """All entries, in order."""
    for row in rows:
        yield from row.entries
