"""Lightning: a callback that shows the outer weights to everything but the training steps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm  # pyright: ignore[reportPrivateUsage]

from entropy_sgd.frameworks.outer import begin_anew, require, unwrapped
from entropy_sgd.optim import recalibrate_batchnorm

require("lightning", "2.6")

from lightning.pytorch import Callback, LightningModule, Trainer  # noqa: E402  after the check of its version


class OuterWeights(Callback):
    """Puts x into the model for validation, test, prediction and checkpoints, and x' back for training.

    ::

        trainer = Trainer(callbacks=[OuterWeights(), ModelCheckpoint(...)])

    The model holds x' from the start of a training batch to its end, and x whenever anything else looks at
    it: while validating, in each file that `trainer.save_checkpoint` writes (all of `ModelCheckpoint`'s),
    between two epochs (where `StochasticWeightAveraging` takes its samples) and after `fit`. A checkpoint
    taken in the middle of a cycle holds x as the weights and x' in the optimizer's state, and resumes to the
    same bits.

    Args:
        recalibrate: batches of *training* data (an iterable that can be run through again and again, such as
            a DataLoader), on which the statistics of batch normalisation are taken anew each time x is put
            in; those of x' come back with x'. The module's `forward` must take such a batch, see
            `entropy_sgd.recalibrate_batchnorm`. None leaves the statistics of x' in place.
    """

    def __init__(self, recalibrate: Iterable[Any] | None = None) -> None:
        self.recalibrate = recalibrate
        self._inner_statistics: dict[str, Tensor] = {}

    def _put_outer(self, trainer: Trainer, module: LightningModule) -> None:
        inside = [o for o in unwrapped(trainer.optimizers) if not o.param_groups[0]["evaluating"]]
        for optimizer in inside:
            optimizer.eval()
        if inside and self.recalibrate is not None:
            self._inner_statistics = {
                f"{name}.{buffer}": value.clone()
                for name, layer in cast("Iterable[tuple[str, nn.Module]]", module.named_modules())
                if isinstance(layer, _BatchNorm)
                for buffer, value in layer.named_buffers(recurse=False)
            }
            with torch.random.fork_rng(devices=[]):  # to iterate over a DataLoader draws a number
                recalibrate_batchnorm(module, self.recalibrate)

    def _put_inner(self, trainer: Trainer, module: LightningModule) -> None:
        for optimizer in unwrapped(trainer.optimizers):
            optimizer.train()
        for name, value in self._inner_statistics.items():
            module.get_buffer(name).copy_(value)
        self._inner_statistics = {}

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """x'; or, while StochasticWeightAveraging makes its last pass, the averaged weights, which are x now.

        That pass is for the statistics of batch normalisation: no gradient is taken in it, but a step is made
        at its end, on those left over from the last epoch if they are not cleared.
        """
        if not getattr(trainer.fit_loop, "_skip_backward", False):
            self._put_inner(trainer, pl_module)
        elif batch_idx == 0:
            for optimizer in unwrapped(trainer.optimizers):
                begin_anew(optimizer)
                optimizer.zero_grad()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Puts x in, until the first batch of the next epoch."""
        self._put_outer(trainer, pl_module)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Puts x in, until the next training batch."""
        self._put_outer(trainer, pl_module)

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Puts x in; it stays."""
        self._put_outer(trainer, pl_module)

    def on_predict_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Puts x in; it stays."""
        self._put_outer(trainer, pl_module)

    # ---- checkpoints ----

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Has the trainer write its checkpoints with x in the model.

        Lightning has no hook before it collects the weights, and none at all for a checkpoint of the weights
        alone, hence `save_checkpoint` of this one trainer is replaced.
        """
        plain = trainer.save_checkpoint

        def save_checkpoint(*args: Any, **kwargs: Any) -> None:
            inside = not all(o.param_groups[0]["evaluating"] for o in unwrapped(trainer.optimizers))
            self._put_outer(trainer, pl_module)
            try:
                plain(*args, **kwargs)
            finally:
                if inside:
                    self._put_inner(trainer, pl_module)

        trainer.save_checkpoint = save_checkpoint

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Leaves the trainer as it was."""
        vars(trainer).pop("save_checkpoint", None)

    def state_dict(self) -> dict[str, Any]:
        """The statistics that belong to x'."""
        return dict(self._inner_statistics)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keeps them until x' is put back."""
        self._inner_statistics = dict(state_dict)
