from __future__ import annotations

import pytest
import torch
from torch import nn

from entropy_sgd.lab.models import build, detach


def lstm_by_hand(network: nn.Module, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The recursion written out; torch's weights are those of input, forget, candidate and output gate."""
    lstm, output = network.get_submodule("lstm"), network.get_submodule("output")
    assert isinstance(lstm, nn.LSTM)
    assert isinstance(output, nn.Linear)
    embedding = network.get_parameter("embedding.weight") if hasattr(network, "embedding") else None
    size = lstm.input_size
    h, c = torch.zeros(2, lstm.num_layers, len(tokens), lstm.hidden_size)
    logits = []
    for t in range(tokens.shape[1]):
        x = torch.eye(size)[tokens[:, t]] if embedding is None else embedding[tokens[:, t]]
        for layer in range(lstm.num_layers):
            w_x, w_h, b_x, b_h = (
                getattr(lstm, f"{kind}_l{layer}") for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            )
            i, f, g, o = (x @ w_x.T + b_x + h[layer] @ w_h.T + b_h).chunk(4, dim=1)
            c[layer] = f.sigmoid() * c[layer] + i.sigmoid() * g.tanh()
            h[layer] = o.sigmoid() * c[layer].tanh()
            x = h[layer]
        logits.append(x @ output.weight.T + (0 if output.bias is None else output.bias))
    return torch.stack(logits, dim=1), h, c


SMALL = [
    ("ptb-lstm", {"vocabulary": 13, "hidden": 6}),
    ("ptb-lstm-small", {"vocabulary": 13, "hidden": 6}),
    ("char-lstm", {"vocabulary": 13, "hidden": 6}),
    ("small-char-lstm", {"vocabulary": 13}),
]


@pytest.mark.parametrize(("name", "options"), SMALL)
def test_each_network_computes_the_recursion(name, options):
    torch.manual_seed(0)
    network = build(name, **options).eval()
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.5)
    tokens = torch.randint(0, 13, (3, 7))
    with torch.no_grad():
        logits, (h, c) = network(tokens)
        expected, h_expected, c_expected = lstm_by_hand(network, tokens)
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(h, h_expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(c, c_expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("name", "options"), SMALL)
def test_a_text_in_pieces_with_the_state_carried_over_is_the_text_in_one(name, options):
    torch.manual_seed(0)
    network = build(name, **options).eval()
    tokens = torch.randint(0, 13, (3, 10))
    whole, _ = network(tokens)
    first, state = network(tokens[:, :4])
    second, _ = network(tokens[:, 4:], detach(state))
    torch.testing.assert_close(torch.cat([first, second], dim=1), whole, rtol=1e-4, atol=1e-6)
    afresh, _ = network(tokens[:, 4:])
    assert not torch.allclose(afresh, whole[:, 4:], atol=1e-4)


def test_a_detached_state_stops_the_gradient_at_the_window():
    torch.manual_seed(0)
    network = build("char-lstm", vocabulary=13, hidden=6)
    tokens = torch.randint(0, 13, (3, 10))
    _, state = network(tokens[:, :5])
    assert all(part.requires_grad for part in state)
    kept = detach(state)
    assert not any(part.requires_grad for part in kept)
    assert all(torch.equal(a, b) for a, b in zip(state, kept, strict=True))


@pytest.mark.parametrize(("name", "bound"), [("ptb-lstm", 0.04), ("ptb-lstm-small", 0.1)])
def test_zaremba_s_initialisation_is_uniform_on_all_weights(name, bound):
    torch.manual_seed(0)
    for parameter in build(name, vocabulary=500, hidden=100).parameters():
        assert parameter.abs().max() <= bound
        assert parameter.std().item() == pytest.approx(bound / 3**0.5, rel=0.1)


def test_dropout_acts_between_layers_and_never_along_time():
    """With all dropped that can be, no layer sees another, and each still sees its own past."""
    torch.manual_seed(0)
    network = build("ptb-lstm", vocabulary=13, hidden=6, dropout=0.999999).train()
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.5)
    bias = network.get_parameter("output.bias")
    logits, (h, _) = network(torch.randint(0, 13, (3, 10)))
    torch.testing.assert_close(logits, bias.expand(3, 10, 13))  # the output layer's input is dropped
    other, (h_other, _) = network(torch.randint(0, 13, (3, 10)))
    torch.testing.assert_close(h, h_other)  # so are the embedding and what passes between the layers
    start = (torch.ones(2, 3, 6), torch.ones(2, 3, 6))
    _, (h_started, _) = network(torch.randint(0, 13, (3, 3)), start)
    assert (h_started - h).abs().amax(dim=(1, 2)).min() > 1e-3  # in both layers the start is remembered
    assert torch.equal(other, logits)


def test_the_papers_dropout():
    for name, rate in (("ptb-lstm", 0.65), ("ptb-lstm-small", 0.0), ("char-lstm", 0.0)):
        network = build(name, vocabulary=13, hidden=6)
        lstm, dropout = network.get_submodule("lstm"), network.get_submodule("dropout")
        assert isinstance(lstm, nn.LSTM)
        assert isinstance(dropout, nn.Dropout)
        assert (lstm.dropout, dropout.p) == (rate, rate)
        with pytest.raises(ValueError, match=r"dropout must be a probability in \[0, 1\), got -0.1"):
            build(name, dropout=-0.1)


def test_one_hot_follows_the_network_and_stays_out_of_checkpoints():
    network = build("char-lstm").double()
    assert network(torch.zeros(1, 2, dtype=torch.int64))[0].dtype == torch.float64
    assert all(key.startswith(("lstm.", "output.")) for key in network.state_dict())
