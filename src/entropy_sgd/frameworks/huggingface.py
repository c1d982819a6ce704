"""Hugging Face Trainer: evaluation and every save at the outer weights.

The Trainer itself calls `optimizer.eval()` before it evaluates and `optimizer.train()` before it trains. But
a save without an evaluation would write x', and the steps of an unfinished last cycle would be lost: the
callback handles these two cases.
"""

from __future__ import annotations

from typing import Any

from entropy_sgd.frameworks.outer_weights import outer_weights, show_outer, unwrapped
from entropy_sgd.frameworks.versions import require

require("transformers", "5.22")

from transformers import (  # noqa: E402  after the check of its version
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)


class OuterWeights(TrainerCallback):
    """Puts x into the model when a checkpoint is due, and between epochs; the Trainer puts x' back.

    ::

        Trainer(model, args, optimizers=(optimizer, scheduler), callbacks=[OuterWeights()])

    The last step of training ends its cycle with `finish()`, before the last evaluation and save. After
    `train()` the model holds x, or the best checkpoint's x with `load_best_model_at_end`. A checkpoint
    taken in mid-cycle holds x as the weights and x' in the optimizer's state, and resumes to the same
    losses. It sees only what the callbacks before it in the list have asked for, so put it last.
    """

    def on_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Makes the last step end its cycle at once, before the scheduler sets the learning rate to zero."""
        if state.global_step + 1 >= state.max_steps:
            for optimizer in unwrapped([kwargs["optimizer"]]):
                optimizer.finish()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Puts x in if it is about to be saved, until the next training batch."""
        if control.should_save:
            for optimizer in unwrapped([kwargs["optimizer"]]):
                show_outer(optimizer)

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Puts x in: what follows saves, or loads the best weights over it, or is the end."""
        for optimizer in unwrapped([kwargs["optimizer"]]):
            show_outer(optimizer)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Ends the cycle if an evaluation or a callback has stopped training early.

        The best weights, if the Trainer has loaded them, stay in the model.
        """
        for optimizer in unwrapped([kwargs["optimizer"]]):
            if args.load_best_model_at_end and state.best_model_checkpoint is not None:
                optimizer.restart()
            else:
                optimizer.finish()


class OuterTrainer(Trainer):
    """The Trainer with that callback, which also saves x when `save_model` is called from anywhere.

    ::

        OuterTrainer(model, args, optimizer_cls_and_kwargs=(EntropyAdam, {"lr": 3e-3}))
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.add_callback(OuterWeights)

    def save_model(self, *args: Any, **kwargs: Any) -> None:
        """The model with x in it."""
        with outer_weights(self.optimizer):
            super().save_model(*args, **kwargs)

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        # The weights and the optimizer's state must be of the same moment: x here, x' there.
        with outer_weights(self.optimizer):
            super()._save_checkpoint(*args, **kwargs)
