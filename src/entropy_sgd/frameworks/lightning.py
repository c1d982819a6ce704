"""Lightning: a callback that shows the outer weights to everything but the training steps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm  # pyright: ignore[reportPrivateUsage]
from torch.utils.hooks import RemovableHandle

from entropy_sgd.frameworks.outer_weights import show_outer, unwrapped
from entropy_sgd.frameworks.versions import require
from entropy_sgd.optim import recalibrate_batchnorm

require("lightning", "2.6")

from lightning.pytorch import Callback, LightningModule, Trainer  # noqa: E402  after the check of its version
from lightning.pytorch.callbacks import WeightAveraging  # noqa: E402


def _callbacks(trainer: Trainer) -> list[Callback]:
    return cast(Any, trainer).callbacks  # set from another module, where type checkers do not see it


class OuterWeights(Callback):
    """Puts x into the model for validation, test, prediction and checkpoints, and x' back for training.

    ::

        trainer = Trainer(callbacks=[OuterWeights(), ModelCheckpoint(...)])

    The model holds x' from the start of a training batch to its end, and x whenever anything else looks at
    it: while validating, in each file that `trainer.save_checkpoint` writes (all of `ModelCheckpoint`'s),
    between two epochs (where `StochasticWeightAveraging` takes its samples), between two batches beside
    `WeightAveraging` (`EMAWeightAveraging`), which averages there, and after `fit`. The last step ends its
    cycle with `finish()`, before the last validation and checkpoint. Any other checkpoint taken in the middle
    of a cycle holds x as the weights and x' in the optimizer's state, and resumes to the same bits.

    It moves itself to the front of the trainer's callbacks, so that the others see x too.

    Args:
        recalibrate: batches of *training* data (an iterable that can be iterated many times, such as
            a DataLoader), on which the statistics of batch normalisation are recomputed each time x is put
            in; those of x' come back with x'. The module's `forward` must take such a batch, see
            `entropy_sgd.recalibrate_batchnorm`. None leaves the statistics of x' in place.
    """

    def __init__(self, recalibrate: Iterable[Any] | None = None) -> None:
        self.recalibrate = recalibrate
        self._inner_statistics: dict[str, Tensor] = {}
        self._batch_idx = 0
        self._hooks: list[RemovableHandle] = []

    def _put_outer(self, trainer: Trainer, module: LightningModule) -> None:
        optimizers = unwrapped(trainer.optimizers)
        for optimizer in optimizers:
            show_outer(optimizer)
        if optimizers and self.recalibrate is not None and not self._inner_statistics:
            self._inner_statistics = {
                f"{name}.{buffer}": value.clone()
                for name, layer in cast("Iterable[tuple[str, nn.Module]]", module.named_modules())
                if isinstance(layer, _BatchNorm)
                for buffer, value in layer.named_buffers(recurse=False)
            }
            with torch.random.fork_rng(devices=[]):  # iterating over a DataLoader draws a number
                recalibrate_batchnorm(module, self.recalibrate)

    def _put_inner(self, trainer: Trainer, module: LightningModule) -> None:
        for optimizer in unwrapped(trainer.optimizers):
            optimizer.train()
        for name, value in self._inner_statistics.items():
            module.get_buffer(name).copy_(value)
        self._inner_statistics = {}

    def _finish(self, trainer: Trainer, module: LightningModule) -> None:
        if any(optimizer.inner_steps for optimizer in unwrapped(trainer.optimizers)):
            self._put_inner(trainer, module)
            for optimizer in unwrapped(trainer.optimizers):
                optimizer.finish()

    def _is_last(self, trainer: Trainer, steps: int) -> bool:
        """Whether training ends with this batch, after which `steps` were made, as far as can be foreseen."""
        last_batch = trainer.is_last_batch or self._batch_idx + 1 >= trainer.num_training_batches
        last_epoch = 0 <= (trainer.max_epochs or -1) <= trainer.current_epoch + 1
        return (last_batch and last_epoch) or 0 <= trainer.max_steps <= steps

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Makes the last step end its cycle at once, before schedulers bring the learning rate to zero.

        In manual optimization a batch may have many steps, and the schedulers are the user's to step.
        """
        if not pl_module.automatic_optimization:
            return

        def finish(optimizer: Any, args: Any, kwargs: Any) -> None:
            if self._is_last(trainer, trainer.global_step + 1):
                optimizer.finish()

        self._hooks = [o.register_step_post_hook(finish) for o in unwrapped(trainer.optimizers)]

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """x'; or, while StochasticWeightAveraging makes its last pass, the averaged weights, which are x now.

        That pass is for the statistics of batch normalisation: no gradient is taken in it, but a step is made
        at its end, on those left over from the last epoch if they are not cleared.
        """
        self._batch_idx = batch_idx
        if not getattr(trainer.fit_loop, "_skip_backward", False):
            self._put_inner(trainer, pl_module)
        elif batch_idx == 0:
            for optimizer in unwrapped(trainer.optimizers):
                optimizer.restart()
                optimizer.zero_grad()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Ends the last cycle of manual optimization; puts x in for averages taken after each batch."""
        if self._is_last(trainer, trainer.global_step):
            self._finish(trainer, pl_module)
        if any(isinstance(callback, WeightAveraging) for callback in _callbacks(trainer)):
            for optimizer in unwrapped(trainer.optimizers):
                show_outer(optimizer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Puts x in, until the first batch of the next epoch."""
        self._put_outer(trainer, pl_module)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Ends the cycle after all, if another callback has stopped training."""
        self._finish(trainer, pl_module)
        self._put_outer(trainer, pl_module)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Puts x in, over which a later `ckpt_path` is loaded. The cycle stays: training may resume."""
        for optimizer in unwrapped(trainer.optimizers):
            optimizer.eval()

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
        """Makes the trainer call this callback first, and write its checkpoints with x in the model.

        Lightning has no hook before it collects the weights, and none at all for a checkpoint of the weights
        alone, so `save_checkpoint` of this one trainer is replaced.
        """
        others = [callback for callback in _callbacks(trainer) if callback is not self]
        cast(Any, trainer).callbacks = [self, *others]
        plain = trainer.save_checkpoint

        def save_checkpoint(*args: Any, **kwargs: Any) -> None:
            inside = not all(optimizer.evaluating for optimizer in unwrapped(trainer.optimizers))
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
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def state_dict(self) -> dict[str, Any]:
        """The statistics that belong to x'."""
        return dict(self._inner_statistics)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keeps them until x' is put back."""
        self._inner_statistics = dict(state_dict)
