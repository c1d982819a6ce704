"""The compiled step against the readable one and the torch noise, on every instruction set there is here."""

from __future__ import annotations

import copy
import itertools
import logging
import math
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from entropy_sgd import EntropyAdam, EntropySGD
from entropy_sgd.optim import kernel, kernel_outer
from entropy_sgd.optim.descent import Descent
from entropy_sgd.optim.langevin import langevin_step
from entropy_sgd.optim.noise import Span, gaussian, gaussian_by_torch
from problem import Problem, run
from steps import HalfStates, hyper_parameters

CPU = torch.device("cpu")


@pytest.fixture
def compiled():
    """The library. Where the tests run there is a C compiler, so its absence is a failure, not a skip."""
    library = kernel.library()
    assert library is not None, "the compiled step was not built; see setup.py"
    yield library
    library.entropy_choose(kernel.AVX512)


@pytest.mark.parametrize("instruction_set", [0, 1, 2])
def test_the_noise_has_the_same_bits(compiled, instruction_set):
    if compiled.entropy_choose(instruction_set) != instruction_set:
        pytest.skip("this processor lacks the instruction set")
    spans = [
        Span(0, 0, 1),
        Span(1, 0, 64),
        Span(2, 63, 2),
        Span(3, 5, 100_003),
        Span(2**31, 0, 40_000),
        Span(9, 7, 0),
    ]
    for seed, t, l in [(0, 0, 0), (2**64 - 1, 3, 2), (-5, 2**32 - 1, 19)]:
        slow = gaussian_by_torch(spans, seed, t, l, CPU)
        for fast, expected in zip(kernel.gaussian(spans, seed, t, l), slow, strict=True):
            assert torch.equal(fast, expected)


@pytest.mark.parametrize("instruction_set", [0, 1, 2])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize(
    "options", [{}, {"maximize": True, "noise": 0.0}, {"weight_decay": 0.1, "alpha": 0.3}]
)
def test_steps_agree_with_the_readable_path(compiled, instruction_set, momentum, nesterov, options):
    if compiled.entropy_choose(instruction_set) != instruction_set:
        pytest.skip("this processor lacks the instruction set")
    generator = torch.Generator().manual_seed(1)
    shapes = [(1,), (7, 9), (64,), (3, 64), (1000,), (200, 90)]
    start = [torch.randn(s, generator=generator) for s in shapes]
    gradients = [[torch.randn(s, generator=generator) for s in shapes] for _ in range(12)]
    results = []
    for path in ({"fused": True}, {"foreach": False}, {"foreach": True}):
        params = [nn.Parameter(x.clone()) for x in start]
        options = {"noise": 0.05, **options}
        optimizer = EntropySGD(
            params,
            L=5,
            lr=0.5,
            inner_momentum=momentum,
            inner_nesterov=nesterov,
            gamma=0.3,
            **options,
            **path,
        )
        for step in gradients:
            for p, g in zip(params, step, strict=True):
                p.grad = g.clone()
            optimizer.step()
        results.append((params, optimizer))
    for params, optimizer in results[1:]:
        for p, q in zip(results[0][0], params, strict=True):
            torch.testing.assert_close(p, q, rtol=1e-4, atol=2e-5)
            for name in ("entropy_x", "entropy_mu"):
                torch.testing.assert_close(
                    results[0][1].state[p][name], optimizer.state[q][name], rtol=1e-4, atol=2e-5
                )
        assert results[0][1].diagnostics() == pytest.approx(optimizer.diagnostics(), rel=1e-4)


def arrays(n: int) -> list[torch.Tensor]:
    """x', its gradient, x, mu and v."""
    generator = torch.Generator().manual_seed(n)
    return [torch.randn(n, generator=generator) for _ in range(5)]


@pytest.mark.parametrize("instruction_set", [0, 1, 2])
@pytest.mark.parametrize("first", [True, False])
def test_a_shard_gets_the_elements_of_the_whole(compiled, instruction_set, first):
    """Slices at any place, on tiles and off them, are stepped as the same slices of the whole tensor."""
    if compiled.entropy_choose(instruction_set) != instruction_set:
        pytest.skip("this processor lacks the instruction set")
    n, h = 40_000, hyper_parameters()
    whole, parts = arrays(n), arrays(n)
    cuts = [0, 1, 64, 65, 100, 100, 16_384, 16_400, 39_999, n]
    slices = [slice(a, b) for a, b in itertools.pairwise(cuts)]
    shards = [[a[s] for s in slices] for a in parts]
    count = len(slices)

    def step(tensors, parameters, offsets):
        flags = [first] * len(offsets)
        return kernel.langevin_step_(h, *tensors, flags, flags, parameters, offsets, 7, 3, 2, False)

    distance, gradient = step([[a] for a in whole], [5], [0])
    distances, gradients = step(shards, [5] * count, [s.start for s in slices])
    for a, b in zip(whole, parts, strict=True):
        assert torch.equal(a, b)
    assert sum(distances) == pytest.approx(distance[0], rel=1e-6)
    assert sum(gradients) == pytest.approx(gradient[0], rel=1e-6)
    assert distances[4] == 0  # the empty shard


@pytest.mark.parametrize("reset", [True, False])
def test_momentum_starts_at_zero_only_where_it_is_reset(compiled, reset):
    h = hyper_parameters(noise=0.0)
    x_prime, gradient, x, mu, v = arrays(300)
    zero = torch.zeros_like(v)
    expected = langevin_step(h, x_prime, gradient, x_prime, x_prime, [zero if reset else v.clone()], 1, None)
    start = x_prime.clone()
    kernel.langevin_step_(h, [x_prime], [gradient], [x], [mu], [v], [True], [reset], [0], [0], 0, 0, 0, False)
    torch.testing.assert_close((x_prime, mu, (v,)), expected, rtol=1e-5, atol=1e-6)
    assert torch.equal(x, start)


# ---- less memory ----


def step(tensors, h, first=False, t=3):
    """One compiled step on one tensor, a shard that begins at element 70."""
    lists = [[a] if a is not None else [] for a in tensors]
    return kernel.langevin_step_(h, *lists, [first], [True], [5], [70], 2**40 + 7, t, 2, False)


@pytest.mark.parametrize("instruction_set", [0, 1, 2])
@pytest.mark.parametrize("options", [{}, {"inner_nesterov": False}, {"inner_momentum": 0.0}])
def test_bfloat16_states_are_rounded_as_the_readable_path_rounds_them(compiled, instruction_set, options):
    """A whole cycle. Without fused multiply-adds the bits are equal; with them, a unit in the last place."""
    if compiled.entropy_choose(instruction_set) != instruction_set:
        pytest.skip("this processor lacks the instruction set")
    h = hyper_parameters(**options)
    x_prime, _, x, *_ = arrays(5_003)
    readable = HalfStates(h, x_prime.clone(), parameter=5, start=70, seed=2**40 + 7)
    mu, v = torch.full_like(x, 9, dtype=torch.bfloat16), torch.full_like(x, 9, dtype=torch.bfloat16)
    for i in range(4):
        gradient = torch.randn(len(x), generator=torch.Generator().manual_seed(i))
        readable.step(gradient, t=3 + i, l=2, first=i == 0)
        momentum = v if h.inner_momentum else None
        step([x_prime, gradient, x, mu, momentum], h, first=i == 0, t=3 + i)
    exact = {"rtol": 0, "atol": 0} if instruction_set == 0 else {"rtol": 0.02, "atol": 1e-3}
    torch.testing.assert_close(x_prime, readable.x_prime, **exact)
    torch.testing.assert_close(x, readable.x, rtol=0, atol=0)
    torch.testing.assert_close(mu, readable.mu_minus_x, **exact)
    if h.inner_momentum:
        torch.testing.assert_close(v, readable.v, **exact)
        assert (v == readable.v).float().mean() > 0.98


def test_a_mean_of_alpha_1_need_not_be_kept(compiled):
    h = hyper_parameters(alpha=1.0, inner_momentum=0.0)
    with_mean, without = arrays(1_000), arrays(1_000)
    sums = step([*with_mean[:4], None], h, first=True)
    assert step([*without[:3], None, None], h, first=True) == sums
    assert torch.equal(with_mean[0], without[0])
    torch.testing.assert_close(with_mean[3], with_mean[0], rtol=0, atol=0)


@pytest.mark.parametrize("half", [False, True])
def test_a_step_without_noise_takes_less_time(compiled, half):
    """Philox and Box-Muller are left out, not multiplied by zero: they are most of the time in the cache."""
    x_prime, gradient, x, mu, v = arrays(65_536)
    if half:
        mu, v = torch.zeros_like(mu, dtype=torch.bfloat16), torch.zeros_like(v, dtype=torch.bfloat16)

    def best(h) -> float:
        times = []
        for _ in range(30):
            begin = time.perf_counter()
            step([x_prime, gradient, x, mu, v], h)
            times.append(time.perf_counter() - begin)
        return min(times)

    assert best(hyper_parameters(noise=0.0, inner_lr=1e-6)) < 0.8 * best(hyper_parameters(inner_lr=1e-6))


@pytest.mark.parametrize("instruction_set", [0, 1, 2])
@pytest.mark.parametrize("mean", ["float32", "bfloat16", "none"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"momentum": 0.9},
        {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
        {"momentum": 0.5, "dampening": 0.3, "maximize": True},
    ],
)
def test_the_outer_update_is_that_of_torch(compiled, instruction_set, mean, options):
    if compiled.entropy_choose(instruction_set) != instruction_set:
        pytest.skip("this processor lacks the instruction set")
    generator = torch.Generator().manual_seed(1)
    shapes = [(1,), (7, 9), (64,), (17_000,)]
    xs = [torch.randn(s, generator=generator) for s in shapes]
    params = [nn.Parameter(x.clone()) for x in xs]
    sgd = torch.optim.SGD(params, lr=0.3, **options)
    mine, buffers = [x.clone() for x in xs], [torch.full_like(x, 7) for x in xs]
    for i in range(3):
        xs = [p.detach().clone() for p in params]
        away = [(0.1 * torch.randn(s, generator=generator)).bfloat16().float() for s in shapes]
        centres = [m.clone() for m in mine]
        means = [c - d for c, d in zip(centres, away, strict=True)]
        if mean == "none":
            mine, means = [m.clone() for m in means], []
        elif mean == "bfloat16":
            means = [(-d).bfloat16() for d in away]
        for p, d in zip(params, away, strict=True):
            p.grad = 0.25 * d
        sgd.step()
        h = Descent(
            lr=0.3,
            momentum=options.get("momentum", 0.0),
            dampening=options.get("dampening", 0.0),
            weight_decay=options.get("weight_decay", 0.0),
            nesterov=options.get("nesterov", False),
            scale=-0.25 if options.get("maximize") else 0.25,
        )
        momenta = buffers if "momentum" in options else []
        squares = kernel_outer.outer_step_(h, mine, centres, means, momenta, [i == 0] * 4)
        for value, d in zip(squares, away, strict=True):
            assert value == pytest.approx(float(d.double().square().sum()), rel=1e-4)
    for p, q, buffer in zip(params, mine, buffers, strict=True):
        torch.testing.assert_close(q, p.detach(), rtol=2e-6, atol=1e-6)
        if "momentum" in options:
            torch.testing.assert_close(buffer, sgd.state[p]["momentum_buffer"], rtol=1e-5, atol=1e-6)


def test_neither_weights_nor_sums_depend_on_the_number_of_threads(compiled):
    results = []
    try:
        for threads in (1, 2, 3, 70):  # 70: more than the kernel has ranges
            torch.set_num_threads(threads)
            generator = torch.Generator().manual_seed(0)
            p = nn.Parameter(torch.randn(300_007, generator=generator))
            optimizer = EntropySGD([p], L=3)
            for _ in range(6):
                p.grad = torch.randn(300_007, generator=generator)
                optimizer.step()
            results.append((p.detach().clone(), optimizer.diagnostics()))
    finally:
        torch.set_num_threads(1)
    for weights, figures in results[1:]:
        assert torch.equal(weights, results[0][0])
        assert figures["x_minus_x_prime"] == results[0][1]["x_minus_x_prime"]
        assert figures["gradient"] == results[0][1]["gradient"]


def test_threads_come_from_the_runtime_that_torch_uses(compiled):
    """Linux builds of torch run on OpenMP: the kernel must find that runtime, or it would run on one core."""
    assert "OpenMP" in torch.__config__.parallel_info()
    assert kernel.parallel() is not None


@pytest.fixture
def calls(monkeypatch):
    made: list[int] = []
    step = kernel.Plan.step

    def counted(self, *args, **kwargs):
        made.append(self.count)
        return step(self, *args, **kwargs)

    monkeypatch.setattr(kernel.Plan, "step", counted)
    return made


def train(params: list[nn.Parameter], make=EntropySGD, **options) -> None:
    optimizer = make(params, L=2, **options)
    for _ in range(4):
        for p in params:
            p.grad = torch.ones_like(p)
        optimizer.step()


@pytest.mark.parametrize("make", [EntropySGD, EntropyAdam])
@pytest.mark.parametrize("options", [{}, {"fused": True}, {"monitor": False}, {"inner_momentum": 0.0}])
def test_the_fast_path_is_taken_where_it_applies(compiled, calls, make, options):
    train([nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(2, 4))], make, **options)
    assert calls == [2, 2, 2, 2]


@pytest.mark.parametrize(
    ("parameter", "options"),
    [
        (torch.ones(3), {"foreach": True}),
        (torch.ones(3), {"foreach": False}),
        (torch.ones(3), {"fused": False}),
        (torch.ones(3), {"inner": "adam"}),
        (torch.ones(3, dtype=torch.float64), {}),
        (torch.ones(3, dtype=torch.bfloat16), {}),
        (torch.ones(4, 6).t(), {}),
        (torch.ones(2, 3, 4, 4).to(memory_format=torch.channels_last), {}),
    ],
)
def test_and_not_where_it_does_not(compiled, calls, parameter, options):
    train([nn.Parameter(parameter)], **options)
    assert calls == []


def test_the_memory_layout_does_not_choose_the_noise(compiled):
    """The element is counted in the order of indices, not of memory."""
    plain = nn.Parameter(torch.zeros(4, 3, 5, 5))
    last = nn.Parameter(torch.zeros(4, 3, 5, 5).to(memory_format=torch.channels_last))
    for p in (plain, last):
        optimizer = EntropySGD([p], noise=1.0, L=5)
        p.grad = torch.zeros_like(p)
        optimizer.step()
    torch.testing.assert_close(plain, last, rtol=0, atol=1e-6)
    assert plain.abs().max() > 0.1


def test_without_the_library_the_torch_path_serves_and_it_is_said_once(monkeypatch, caplog):
    with_kernel = Problem().parameters(torch.float32)
    run(EntropySGD(with_kernel, L=3, noise=0.1), with_kernel, Problem(), 12)
    kernel.library.cache_clear()
    monkeypatch.setattr(kernel, "EXTENSION_SUFFIXES", [".missing"])
    try:
        with caplog.at_level(logging.WARNING, logger="entropy_sgd"):
            without = Problem().parameters(torch.float32)
            run(EntropySGD(without, L=3, noise=0.1), without, Problem(), 12)
            assert torch.equal(
                gaussian([Span(0, 0, 100)], 1, 2, 3, CPU)[0],
                gaussian_by_torch([Span(0, 0, 100)], 1, 2, 3, CPU)[0],
            )
    finally:
        monkeypatch.undo()
        kernel.library.cache_clear()
    assert [r.name for r in caplog.records] == ["entropy_sgd"]
    assert "C compiler" in caplog.records[0].message
    for p, q in zip(with_kernel, without, strict=True):
        torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-5)


def test_a_stale_library_is_not_used(monkeypatch):
    kernel.library.cache_clear()
    monkeypatch.setattr(kernel, "VERSION", kernel.VERSION + 1)
    try:
        assert kernel.library() is None
    finally:
        monkeypatch.undo()
        kernel.library.cache_clear()


def test_non_finite_values_pass_through(compiled):
    p = nn.Parameter(torch.ones(70))
    optimizer = EntropySGD([p], L=9)
    p.grad = torch.zeros(70)
    p.grad[[3, 68]] = torch.tensor([math.nan, math.inf])
    optimizer.step()
    assert torch.isfinite(p).logical_not().nonzero().flatten().tolist() == [3, 68]


def test_a_complex_parameter_is_two_real_ones(compiled, calls):
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(70, 2, generator=generator)
    gradients = torch.randn(6, 70, 2, generator=generator)
    results = []
    for view in (torch.view_as_complex, lambda x: x):
        p = nn.Parameter(view(start.clone()))
        optimizer = EntropySGD([p], L=3)
        for g in gradients:
            p.grad = view(g.clone())
            optimizer.step()
        results.append(torch.view_as_real(p.detach()) if p.is_complex() else p.detach())
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-6)
    assert len(calls) == 12


# ---- what users may put into .data, .grad and state: never memory that is not theirs ----


def stepped(p: nn.Parameter, **options) -> EntropySGD:
    optimizer = EntropySGD([p], L=9, noise=0.0, gamma=0.0, inner_momentum=0.0, **options)
    p.grad = torch.zeros_like(p)
    optimizer.step()
    return optimizer


def test_data_of_another_size_is_an_error_not_a_crash(compiled):
    p = nn.Parameter(torch.ones(4))
    optimizer = stepped(p)
    p.data = torch.ones(100_000)
    p.grad = torch.ones(100_000)
    with pytest.raises(RuntimeError, match="size"):
        optimizer.step()


def test_state_of_another_dtype_is_not_read_as_floats(compiled):
    p = nn.Parameter(torch.ones(5, dtype=torch.float64))
    optimizer = stepped(p)
    p.data = p.data.float()
    p.grad = torch.zeros(5)
    try:
        optimizer.step()
    except RuntimeError:
        return
    assert torch.equal(p.detach().double(), torch.ones(5, dtype=torch.float64))


def test_a_negated_view_is_read_with_its_sign(compiled):
    p = nn.Parameter(torch.ones(5))
    optimizer = stepped(p)
    p.grad = torch._neg_view(torch.ones(5))
    optimizer.step()
    torch.testing.assert_close(p.detach(), torch.full((5,), 1.1))


def test_a_sliced_parameter_leaves_its_neighbours_alone(compiled):
    whole = torch.zeros(4, 6)
    whole[:, 3:] = 7
    for make in (EntropySGD, EntropyAdam):
        p = nn.Parameter(whole[:, :3])
        optimizer = make([p], L=1)
        for _ in range(3):
            p.grad = torch.ones_like(p)
            optimizer.step()
        assert torch.equal(whole[:, 3:], torch.full((4, 3), 7.0))
        assert (p < 0).all()


@pytest.mark.parametrize("change", ["load", "move"])
def test_the_layout_may_change_between_steps(compiled, change):
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(4, 3, 5, 5, generator=generator)
    gradients = torch.randn(8, 4, 3, 5, 5, generator=generator)

    def train(p: nn.Parameter, optimizer: EntropySGD, part: torch.Tensor) -> None:
        for g in part:
            p.grad = torch.empty_like(p).copy_(g)
            optimizer.step()

    plain = nn.Parameter(start.clone())
    reference = EntropySGD([plain], L=2)
    train(plain, reference, gradients)

    first = nn.Parameter(start.clone())
    optimizer = EntropySGD([first], L=2)
    train(first, optimizer, gradients[:3])
    if change == "move":
        first.data = first.data.to(memory_format=torch.channels_last)
        second = first
    else:
        second = nn.Parameter(first.detach().clone(memory_format=torch.channels_last))
        resumed = EntropySGD([second], L=2)
        resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        optimizer = resumed
    train(second, optimizer, gradients[3:])
    torch.testing.assert_close(second, plain, rtol=1e-4, atol=1e-5)


def test_the_runtime_is_torchs_though_another_package_brought_one(compiled):
    """scikit-learn carries a libgomp of its own, whose path sorts before torch's."""
    code = (
        "import sklearn.cluster, torch, re, pathlib; from entropy_sgd.optim import kernel\n"
        "address = kernel.parallel().value\n"
        "for line in pathlib.Path('/proc/self/maps').read_text().splitlines():\n"
        "    low, high = (int(x, 16) for x in line.split()[0].split('-'))\n"
        "    if low <= address < high: print(line.split(maxsplit=5)[5])\n"
    )
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert str(Path(torch.__file__).resolve().parent) in output


def test_optimizers_in_several_threads_measure_what_each_would_alone():
    found: dict[int, list[float]] = {}

    def train(name: int) -> None:
        p = nn.Parameter(torch.linspace(-1, 1, 100_000))
        optimizer = EntropySGD([p], L=1, inner_lr=0.01)
        found[name] = []
        for i in range(100):
            p.grad = torch.cos(p.detach() * (i + 1))
            optimizer.step()
            found[name].append(optimizer.diagnostics()["cosine"])

    train(0)
    threads = [threading.Thread(target=train, args=(name,)) for name in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[1] == found[2] == found[3] == found[0]
