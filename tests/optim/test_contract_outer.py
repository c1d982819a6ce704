"""Any torch optimizer outside: those of torch, pytorch_optimizer, Schedule-Free and transformers.

Each is stepped by hand on x - mu of a cycle written out here, and must agree; copies, pickles and saved
states go on to the same bits, from before the first outer update and from the middle of a later cycle.
"""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from entropy_sgd import LocalEntropy
from network import batch

L, GAMMA, ALPHA, RATE = 2, 0.1, 0.75, 0.05

NEEDS_CLOSURE = "wants a closure"
NEEDS_MODEL = "takes the model in place of its parameters"
NEEDS_GRAPH = "differentiates the gradient again, which x - mu does not allow"
NEEDS_GROUP = "talks to other processes"
LEFT_OUT = {
    "torch.optim.LBFGS": NEEDS_CLOSURE,
    "torch.optim.SparseAdam": "takes sparse gradients only",
    "pytorch_optimizer.AliG": NEEDS_CLOSURE,
    "pytorch_optimizer.BSAM": NEEDS_CLOSURE,
    "pytorch_optimizer.LBFGS": NEEDS_CLOSURE,
    "schedulefree.AdamWScheduleFreeClosure": NEEDS_CLOSURE,
    "schedulefree.RAdamScheduleFreeClosure": NEEDS_CLOSURE,
    "schedulefree.SGDScheduleFreeClosure": NEEDS_CLOSURE,
    "pytorch_optimizer.AdaHessian": NEEDS_GRAPH,
    "pytorch_optimizer.SophiaH": NEEDS_GRAPH,
    "pytorch_optimizer.AdaLOMO": NEEDS_MODEL,
    "pytorch_optimizer.AdamMini": NEEDS_MODEL,
    "pytorch_optimizer.LOMO": NEEDS_MODEL,
    "pytorch_optimizer.DeMo": NEEDS_GROUP,
    "pytorch_optimizer.DistributedMuon": NEEDS_GROUP,
    "pytorch_optimizer.Magma": "wraps an optimizer of its own",
}
# Eigenvectors of matrices that have not their full rank: rounding decides.
ROUNDING = {"pytorch_optimizer.SOAP"}
SINGLE_PRECISION = {"pytorch_optimizer.FAdam"}
NOT_PICKLED = {"pytorch_optimizer.ADOPT": "keeps a lambda"}
OPTIONS: dict[str, dict[str, Any]] = {
    "pytorch_optimizer.Ranger21": {"num_iterations": 100},
}
MATRICES_ONLY = ("torch.optim.Muon", "pytorch_optimizer.SpectralSphere")
GROUPS_TOLD_APART = ("AdaGO", "AdaMuon", "Muon", "MuonClip", "NorMuon")  # by `use_muon`


def found() -> dict[str, type[Optimizer]]:
    """Every optimizer class of the packages, by its full name."""
    classes: dict[str, type[Optimizer]] = {}

    def gather(package: str, kinds: Any) -> None:
        for kind in kinds:
            if inspect.isclass(kind) and issubclass(kind, Optimizer) and kind is not Optimizer:
                classes[f"{package}.{kind.__name__}"] = kind

    gather("torch.optim", vars(torch.optim).values())
    peers = pytest.importorskip("pytorch_optimizer", reason="pytorch_optimizer is not installed")
    gather("pytorch_optimizer", map(peers.load_optimizer, peers.get_supported_optimizers()))
    schedulefree = pytest.importorskip("schedulefree", reason="schedulefree is not installed")
    gather("schedulefree", vars(schedulefree).values())
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    gather("transformers", [transformers.Adafactor])
    return classes


CLASSES = found()
EVERY = pytest.mark.parametrize("name", sorted(CLASSES.keys() - LEFT_OUT))
# What some of them say about themselves, alone as well as here.
pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning:pytorch_optimizer"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


def network(name: str, dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(3)
    bias = name not in MATRICES_ONLY
    return nn.Sequential(nn.Linear(6, 16, bias=bias), nn.Tanh(), nn.Linear(16, 3, bias=bias)).to(dtype)


def given(name: str, model: nn.Module) -> tuple[list[Any], dict[str, Any]]:
    """Parameters or groups, and options, that the class needs; else its defaults."""
    signature = inspect.signature(CLASSES[name]).parameters
    options = dict(OPTIONS.get(name, {}))
    if "lr" in signature and signature["lr"].default is inspect.Parameter.empty:
        options["lr"] = 0.01
    package, _, short = name.rpartition(".")
    params: list[Any] = list(model.parameters())
    if package == "pytorch_optimizer" and short in GROUPS_TOLD_APART:
        params = [
            {"params": [p for p in params if (p.dim() == 2) == muon], "use_muon": muon}
            for muon in (True, False)
        ]
    return params, options


def make(name: str, model: nn.Module) -> LocalEntropy:
    torch.manual_seed(0)  # some draw numbers when they are built
    params, options = given(name, model)
    return LocalEntropy(
        params,
        CLASSES[name],
        options,
        L=L,
        gamma=GAMMA,
        alpha=ALPHA,
        inner_lr=RATE,
        inner_momentum=0.0,
        noise=0.0,
        fused=False,
    )


def backward(model: Any, step: int) -> None:
    inputs, targets = batch(step)
    model.zero_grad()
    nn.functional.cross_entropy(model(inputs.to(model[0].weight.dtype)), targets).backward()


def train(model: nn.Module, optimizer: Optimizer, steps: range) -> None:
    torch.manual_seed(1)  # and some when they step
    for step in steps:
        backward(model, step)
        optimizer.step()


def by_hand(name: str, steps: int, dtype: torch.dtype, *, evaluate: bool = False) -> nn.Module:
    """Algorithm 1 with the optimizer itself for line 7."""
    model = network(name, dtype)
    torch.manual_seed(0)
    params, options = given(name, model)
    outer = CLASSES[name](params, **options)
    if callable(getattr(outer, "train", None)):
        outer.train()
    weights = list(model.parameters())
    torch.manual_seed(1)
    for first in range(0, steps, L):
        x = [p.detach().clone() for p in weights]
        mu = [value.clone() for value in x]
        for step in range(first, first + L):
            backward(model, step)
            with torch.no_grad():
                for p, start, average in zip(weights, x, mu, strict=True):
                    assert p.grad is not None
                    p -= RATE * (p.grad - GAMMA * (start - p))
                    average.copy_((1 - ALPHA) * average + ALPHA * p)
        with torch.no_grad():
            for p, start, average in zip(weights, x, mu, strict=True):
                p.copy_(start)
                p.grad = start - average
        outer.step()
    if evaluate:
        outer.eval()  # pyright: ignore[reportAttributeAccessIssue]
    return model


def flat(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.parametrize("name", sorted(CLASSES.keys() - LEFT_OUT - ROUNDING))
def test_line_7_is_its_own_step(name):
    """Copied and pickled before there was one.

    In double precision where the class knows it: some take the sign of what may be close to zero.
    """
    dtype = torch.float32 if name in SINGLE_PRECISION else torch.float64
    model = network(name, dtype)
    optimizer = make(name, model)
    train(model, optimizer, range(1))
    model, optimizer = copy.deepcopy((model, optimizer))
    if name not in NOT_PICKLED:
        model, optimizer = pickle.loads(pickle.dumps((model, optimizer)))
    train(model, optimizer, range(1, 3 * L))
    tolerance = {"rtol": 1e-3, "atol": 1e-5} if name in SINGLE_PRECISION else {"rtol": 1e-6, "atol": 1e-8}
    torch.testing.assert_close(flat(model), flat(by_hand(name, 3 * L, dtype)), **tolerance)


@EVERY
def test_copies_and_saved_states_go_on_to_the_same_bits(name):
    stop = 2 * L + 1
    model = network(name)
    optimizer = make(name, model)
    train(model, optimizer, range(stop))
    twins = [copy.deepcopy((model, optimizer))]
    if name not in NOT_PICKLED:
        twins.append(pickle.loads(pickle.dumps((model, optimizer))))
    loaded = network(name)
    loaded.load_state_dict(model.state_dict())
    resumed = make(name, loaded)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    train(model, optimizer, range(stop, stop + 2 * L))
    for twin, its in (*twins, (loaded, resumed)):
        train(twin, its, range(stop, stop + 2 * L))
        assert torch.equal(flat(twin), flat(model))
        assert its.outer_steps == optimizer.outer_steps


@pytest.mark.parametrize(
    "name", [name for name in sorted(CLASSES.keys() - LEFT_OUT) if hasattr(CLASSES[name], "eval")]
)
def test_modes_reach_an_outer_optimizer_that_has_them(name):
    """`eval()` shows what it evaluates at, `train()` brings all back; from the first outer update on."""
    plain, looked = network(name, torch.float64), network(name, torch.float64)
    first, second = make(name, plain), make(name, looked)
    for step in range(3 * L):
        train(plain, first, range(step, step + 1))
        train(looked, second, range(step, step + 1))
        if step >= L:
            second.eval()
            second.train()
    torch.testing.assert_close(flat(looked), flat(plain), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("stop", [2 * L, 2 * L + 1])
def test_schedule_free_shows_its_average(stop):
    """Its x, which is the mean of its z, whether the cycle is at its end or under way."""
    model = network("", torch.float64)
    optimizer = make("schedulefree.SGDScheduleFree", model)
    train(model, optimizer, range(stop))
    optimizer.eval()
    torch.manual_seed(0)
    reference = by_hand("schedulefree.SGDScheduleFree", 2 * L, torch.float64, evaluate=True)
    torch.testing.assert_close(flat(model), flat(reference), rtol=1e-6, atol=1e-8)


def test_every_class_that_is_left_out_exists():
    assert (
        LEFT_OUT.keys()
        | OPTIONS.keys()
        | NOT_PICKLED.keys()
        | ROUNDING
        | SINGLE_PRECISION
        | set(MATRICES_ONLY)
        <= CLASSES.keys()
    )


@pytest.mark.parametrize(
    "name",
    [name for name, why in LEFT_OUT.items() if why == NEEDS_CLOSURE and not name.endswith(("AliG", "BSAM"))],
)
def test_an_optimizer_that_needs_a_closure_is_refused_when_it_is_made(name):
    with pytest.raises(
        ValueError, match="outer must be an optimizer that steps on dense gradients without a closure"
    ):
        LocalEntropy(network(name).parameters(), CLASSES[name], {"lr": 0.1})


def test_an_optimizer_that_wraps_another_is_refused_when_it_is_made():
    with pytest.raises(ValueError, match="outer must be"):
        LocalEntropy(network("").parameters(), CLASSES["pytorch_optimizer.Magma"])
