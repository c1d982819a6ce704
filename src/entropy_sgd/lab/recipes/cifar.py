"""CIFAR-10: `allcnn` with SGD and Entropy-SGD (Section 5.3), Adam (5.1, iv) and SGLD (Appendix C.1)."""

from __future__ import annotations

from dataclasses import replace

from entropy_sgd.lab.methods import Hints
from entropy_sgd.lab.methods.adam import AdamOptions
from entropy_sgd.lab.methods.entropy_sgd import EntropySGDOptions
from entropy_sgd.lab.methods.sgd import SGDOptions
from entropy_sgd.lab.methods.sgld import SGLDOptions
from entropy_sgd.lab.recipes.family import Family
from entropy_sgd.lab.recipes.recipe import Drops, Recipe, every

L = 20  # Section 5.3
# Section 5.3: "all other architecture and hyper-parameters are kept the same" as Springenberg et al.'s, whose
# penalty is 0.001; they name no batch size.
WEIGHT_DECAY = 1e-3
BATCH = 128

sgd = Recipe(
    name="allcnn/sgd",
    paper="Section 5.3: 7.71 ± 0.19 % validation error in 200 epochs (Table 1: at 180)",
    chosen="batch 128; weight decay 0.001, as Springenberg et al.",
    network="allcnn",
    data="cifar10",
    optimizer=SGDOptions(
        lr=0.1, momentum=0.9, nesterov=True, weight_decay=WEIGHT_DECAY
    ),  # Section 5.3; 0.9: 5.4.2
    epochs=200,  # Section 5.3
    batch_size=BATCH,
    drops=Drops(1 / 5, every(60, until=200)),  # Section 5.3: a factor of 5 after every 60 epochs
    dropout=0.5,  # Section 5.3: "the original dropout of 0.5"
)

entropy_sgd = replace(
    sgd,
    name="allcnn/entropy-sgd",
    paper="Section 5.3: 7.81 ± 0.09 % validation error in about 160 effective epochs",
    chosen="batch and weight decay as SGD's; all of the text's 10 x 20 = 200 effective epochs",
    optimizer=EntropySGDOptions(
        lr=1.0,  # η, Section 5.3
        momentum=0.9,  # Section 5.4.2: "all our experiments on CNNs used a momentum of 0.9"
        L=L,
        inner_lr=0.1,  # η′, Section 5.3
        inner_momentum=0.9,  # as the outer one
        noise=1e-4,  # ε, Section 5.3
        gamma0=0.03,  # Section 5.3
        gamma1=1e-3,  # Section 5.3: a factor of 1.001 after each parameter update
        alpha=0.75,  # Section 4.2
        weight_decay=WEIGHT_DECAY,
    ),
    epochs=10 * L,  # Section 5.3: 10 epochs
    drops=Drops(1 / 5, every(4 * L, until=10 * L)),  # Section 5.3: a factor of 5 every 4 epochs
)

adam = replace(
    sgd,
    name="allcnn/adam",
    paper="Section 5.1 (iv), whose Fisher information Fig. 3c shows: 11.2 % error",
    chosen="batch 128; lr 1e-3, Adam's default; epochs, drops and dropout of the SGD run; no weight decay, "
    "which Adam would rescale",
    optimizer=AdamOptions(lr=1e-3),
)

sgld = replace(
    sgd,
    name="allcnn/sgld",
    paper="Appendix C.1: 9.89 ± 0.11 % test error after 500 epochs",
    chosen="batch and weight decay as SGD's; η and b, on which the paper only says that it searched, as "
    "lenet/sgld; ε = 1/√50,000, which samples the posterior of Appendix A",
    optimizer=SGLDOptions(lr=0.5, b=0.3, noise=50_000**-0.5, weight_decay=WEIGHT_DECAY),
    epochs=500,  # Appendix C.1
    drops=Drops(),
)

FAMILIES = (
    Family(
        "allcnn",
        sgd,
        Hints(lr=0.1, weight_decay=WEIGHT_DECAY, L=L, outer_momentum=0.9),
        (sgd, adam, entropy_sgd, sgld),
    ),
)
