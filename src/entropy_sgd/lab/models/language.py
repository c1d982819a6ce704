"""Networks that predict the next token: forward maps tokens (B, T) and a state to logits (B, T, V), state.

The state is `(h, c)`, each (layers, B, hidden), of the last time step; None stands for zeros. Truncated
back-propagation feeds the state of one batch to the next after `detach`, which cuts the graph, not the
memory.

On a CPU torch runs a float32 LSTM with oneDNN, which has first derivatives only. Second derivatives, as for
the Hessian, need float64.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

State = tuple[Tensor, Tensor]


def detach(state: State) -> State:
    """The same state without its history."""
    return state[0].detach(), state[1].detach()


def _lstm(inputs: int, hidden: int, layers: int, dropout: float) -> nn.LSTM:
    """Layers of LSTM, with dropout between them; torch warns of one that has no place to act."""
    if not 0.0 <= dropout < 1.0:
        raise ValueError(f"dropout must be a probability in [0, 1), got {dropout!r}")
    return nn.LSTM(inputs, hidden, layers, batch_first=True, dropout=dropout if layers > 1 else 0.0)


class WordLSTM(nn.Module):
    """`ptb-lstm` (Section 5.4.1): the large network of Zaremba et al. (2014); 66,034,000 weights.

    Dropout acts where layers meet (embedding to first, first to second, second to output), never on the way
    from one time step to the next. All weights start uniform in [-init, init]. torch's LSTM has two bias
    vectors in each layer where Zaremba's has one: the same function, 12,000 weights more.

    Args:
        vocabulary: number of words.
        hidden: units of each layer, and of the embedding. `ptb-lstm-small`, the same authors' small
            network, has 200, without dropout and with an `init` of 0.1: 4,653,200 weights.
        layers: number of LSTM layers.
        dropout: probability of dropping.
        init: half the width of the initial distribution.

    """

    def __init__(
        self,
        vocabulary: int = 10_000,
        hidden: int = 1500,
        layers: int = 2,
        dropout: float = 0.65,
        init: float = 0.04,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.lstm = _lstm(hidden, hidden, layers, dropout)
        self.output = nn.Linear(hidden, vocabulary)
        self.dropout = nn.Dropout(dropout)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -init, init)

    def forward(self, tokens: Tensor, hidden: State | None = None) -> tuple[Tensor, State]:
        """Logits (B, T, V) of each next word, and the state after the last."""
        features, state = self.lstm(self.dropout(self.embedding(tokens)), hidden)  # (B, T, H)
        return self.output(self.dropout(features)), state


class CharLSTM(nn.Module):
    """`char-lstm` (Section 5.4.2): two layers of 128 units on one-hot bytes; 254,423 weights.

    Karpathy et al. (2015), whom the paper follows, feed characters one-hot, as the paper does in its small
    network: an embedding would put a second, redundant matrix before the first layer's. Weights start uniform
    in [-1/sqrt(hidden), 1/sqrt(hidden)], torch's default for LSTMs, on which the paper is silent.

    Args:
        vocabulary: number of distinct bytes.
        hidden: units of each layer. `small-char-lstm` (Section 5.1) has one layer of 48 on 96 characters
            and no bias at the output: 32,640 weights, the paper's count exactly.
        layers: number of LSTM layers.
        dropout: where layers meet, as in `WordLSTM`; the paper mentions none for this network.
        output_bias: whether the logits have a bias.

    """

    one_hot: Tensor

    def __init__(
        self,
        vocabulary: int = 87,
        hidden: int = 128,
        layers: int = 2,
        dropout: float = 0.0,
        output_bias: bool = True,
    ) -> None:
        super().__init__()
        self.register_buffer("one_hot", torch.eye(vocabulary), persistent=False)
        self.lstm = _lstm(vocabulary, hidden, layers, dropout)
        self.output = nn.Linear(hidden, vocabulary, bias=output_bias)
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor, hidden: State | None = None) -> tuple[Tensor, State]:
        """Logits (B, T, V) of each next character, and the state after the last."""
        inputs = functional.embedding(tokens, self.one_hot)  # (B, T) -> (B, T, V)
        features, state = self.lstm(inputs, hidden)  # (B, T, H)
        return self.output(self.dropout(features)), state


NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "ptb-lstm": WordLSTM,
    "ptb-lstm-small": partial(WordLSTM, hidden=200, dropout=0.0, init=0.1),
    "char-lstm": CharLSTM,
    "small-char-lstm": partial(CharLSTM, vocabulary=96, hidden=48, layers=1, output_bias=False),
}
