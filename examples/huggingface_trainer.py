"""Entropy-Adam in the Hugging Face Trainer, on a small transformer and a small text.

Nothing is downloaded::

python examples/huggingface_trainer.py
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

from entropy_sgd import EntropyAdam
from entropy_sgd.frameworks.huggingface import OuterWeights

TEXT = """A valley that is wide forgives a step that is not exact. A valley that is narrow forgives nothing.
Whoever walks in the fog and wants to rest should look for the wide one, and can tell it by walking about in
it for a while: where he may stray far and still be low, there is room. """


class Windows(Dataset[dict[str, Tensor]]):
    """The text in windows of a few bytes, each byte to be predicted from those before it."""

    def __init__(self, text: str, length: int = 32, stride: int = 3) -> None:
        data = torch.tensor(list(text.encode()))
        self.windows = data.unfold(0, length, stride)

    def __len__(self) -> int:
        return len(self.windows)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"input_ids": self.windows[index], "labels": self.windows[index]}


def model() -> GPT2LMHeadModel:
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=128, n_positions=32, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--folder", default="runs/huggingface")
    parser.add_argument("--epochs", type=int, default=40)
    arguments = parser.parse_args()
    set_seed(0)
    net = model()
    optimizer = EntropyAdam(net.parameters(), lr=1e-2, L=5, inner_lr=0.5)
    scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0)
    trainer = Trainer(
        model=net,
        args=TrainingArguments(
            arguments.folder,
            num_train_epochs=arguments.epochs,
            per_device_train_batch_size=8,
            logging_steps=50,
            save_steps=50,
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
        ),
        train_dataset=Windows(TEXT),
        optimizers=(optimizer, scheduler),
        callbacks=[OuterWeights()],  # every checkpoint holds the outer weights
    )
    trainer.train()
    print(f"loss {trainer.evaluate(Windows(TEXT))['eval_loss']:.3f}")  # at the outer weights, too


if __name__ == "__main__":
    main()
