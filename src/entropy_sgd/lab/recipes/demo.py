"""The demonstration: `lenet` on the 5,000 digits that come with the program, at equal budgets of gradients.

Each optimizer's learning rate was chosen on the validation data of seed 100, which the demonstration does not
use.
"""

from __future__ import annotations

from dataclasses import replace

from entropy_sgd.lab.recipes.mnist import lenet_adam, lenet_entropy_sgd, lenet_sgd
from entropy_sgd.lab.recipes.recipe import Drops

EPOCHS = 20
DROPS = Drops(1 / 5, (10, 15))

sgd = replace(lenet_sgd, name="demo/sgd", data="digits", epochs=EPOCHS, drops=DROPS)
adam = replace(lenet_adam, name="demo/adam", data="digits", epochs=EPOCHS, drops=DROPS)
entropy_sgd = replace(lenet_entropy_sgd, name="demo/entropy-sgd", data="digits", epochs=EPOCHS, drops=DROPS)

RECIPES = (sgd, adam, entropy_sgd)
