"""torch's own harness for optimizers, `torch.testing._internal.common_optimizers`, around those here.

The package carries the descriptions (`OptimizerInfo`), the options to try and the tracker that compares runs
step by step; the tests themselves stay in torch's repository. Those below ask the same questions.
"""

from __future__ import annotations

import copy
import functools
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

pytest.importorskip("expecttest", reason="torch.testing needs expecttest")

from torch.testing._internal.common_optimizers import (
    OptimizerInfo,
    OptimizerInput,
    TensorTracker,
    _get_optim_inputs_including_global_cliquey_kwargs,
    optim_inputs_func_adam,
    optim_inputs_func_sgd,
)

from entropy_sgd import SGLD, EntropyAdam, EntropySGD, LocalEntropy

CYCLE: dict[str, Any] = {"L": 3, "noise": 1e-3, "inner_lr": 0.02}


class EntropyAdamW(LocalEntropy):
    """LocalEntropy with torch's AdamW outside, its options given as AdamW takes them."""

    def __init__(
        self, params: Any, *, maximize: bool = False, foreach: Any = None, fused: Any = None, **options
    ):
        cycle = {name: options.pop(name) for name in tuple(options) if name in CYCLE}
        super().__init__(
            params, torch.optim.AdamW, options, maximize=maximize, foreach=foreach, fused=fused, **cycle
        )


def inputs(of_torch: Callable[..., list[OptimizerInput]], unknown: set[str], device: Any, dtype: Any = None):
    """torch's own list of options to try, but for those that the class does not have, within short cycles."""
    return [
        OptimizerInput(params=None, kwargs={**CYCLE, **each.kwargs}, desc=each.desc)
        for each in of_torch(device, dtype)
        if not unknown & set(each.kwargs)
    ]


def sgld_inputs(device: Any, dtype: Any = None) -> list[OptimizerInput]:
    del device, dtype
    tried: dict[str, dict[str, Any]] = {
        "default": {},
        "tensor lr": {"lr": torch.tensor(0.01)},
        "weight_decay": {"weight_decay": 0.5},
        "maximize": {"maximize": True, "weight_decay": 0.1},
        "constant": {"b": 0.0},
    }
    return [
        OptimizerInput(None, {"lr": 0.01, "noise": 1e-3, **options}, desc) for desc, options in tried.items()
    ]


PATHS = {"supported_impls": ("foreach", "fused"), "supports_fused_on": ("cpu",)}
INFOS = [
    OptimizerInfo(
        EntropySGD,
        optim_inputs_func=functools.partial(inputs, optim_inputs_func_sgd, {"dampening"}),
        **PATHS,
    ),
    OptimizerInfo(
        EntropyAdam,
        optim_inputs_func=functools.partial(inputs, optim_inputs_func_adam, {"amsgrad", "capturable"}),
        **PATHS,
    ),
    OptimizerInfo(
        EntropyAdamW,
        optim_inputs_func=functools.partial(inputs, optim_inputs_func_adam, {"capturable"}),
        **PATHS,
    ),
    OptimizerInfo(SGLD, optim_inputs_func=sgld_inputs, supported_impls=()),
]
EVERY = pytest.mark.parametrize("info", INFOS, ids=lambda info: info.optim_cls.__name__)
ENTROPIC = pytest.mark.parametrize("info", INFOS[:3], ids=lambda info: info.optim_cls.__name__)


def every_input(info: OptimizerInfo) -> list[OptimizerInput]:
    """All options with all paths; torch itself refuses a tensor as the rate of its lists of tensors."""
    found = _get_optim_inputs_including_global_cliquey_kwargs("cpu", torch.float32, info)
    return [each for each in found if not tensor_rate_with_foreach(each.kwargs)]


def tensor_rate_with_foreach(options: dict[str, Any]) -> bool:
    return isinstance(options.get("lr"), Tensor) and options.get("foreach") is True


def parameters(dtype: torch.dtype = torch.float32) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(1)
    shapes = [(3, 5), (5,), (2, 1, 3), ()]
    return [nn.Parameter(torch.randn(shape, dtype=dtype, generator=generator)) for shape in shapes]


def objective(params: list[nn.Parameter], step: int) -> Tensor:
    """Smooth and not convex; another one for each mini-batch."""
    return sum(((p * (1 + 0.1 * step)).abs().square() + 0.3 * (3 * p.abs()).cos()).sum() for p in params)


def closure(optimizer: torch.optim.Optimizer, params: list[nn.Parameter], step: int) -> Callable[[], Tensor]:
    def call() -> Tensor:
        optimizer.zero_grad()
        loss = objective(params, step)
        loss.backward()
        return loss

    return call


def run(optimizer: torch.optim.Optimizer, params: list[nn.Parameter], steps: range) -> None:
    for step in steps:
        closure(optimizer, params, step)()
        optimizer.step()


@EVERY
def test_every_input_descends_or_climbs(info):
    for each in every_input(info):
        params = parameters()
        optimizer = info.optim_cls(params, **copy.deepcopy(each.kwargs))
        before = objective(params, 0).item()
        run(optimizer, params, range(24))
        after = objective(params, 0).item()
        assert (after > before) if each.kwargs.get("maximize") else (after < before), each


@ENTROPIC
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
@pytest.mark.parametrize("path", ["foreach", "fused"])
def test_paths_agree_step_by_step(info, dtype, path):
    """x, mu and the outer optimizer's state after each step: on lists and compiled as for single tensors."""
    if path == "fused" and dtype.is_complex and info.optim_cls is not EntropyAdamW:
        pytest.skip("torch's fused optimizers refuse complex parameters")
    for each in info.optim_inputs_func("cpu"):
        options = [{"foreach": False, "fused": False}, {path: True}]
        if tensor_rate_with_foreach({**each.kwargs, **options[1]}):
            continue
        tracker = TensorTracker()
        for option in options:
            params = parameters(dtype)
            optimizer = info.optim_cls(params, **copy.deepcopy(each.kwargs), **option)
            for step in range(7):
                run(optimizer, params, range(step, step + 1))
                for value in (*params, *state_tensors(optimizer)):
                    if option is options[0]:
                        tracker.add(value)
                    else:
                        torch.testing.assert_close(
                            value.detach(), tracker.tensors.pop(0), rtol=1e-4, atol=1e-5
                        )
        assert tracker.all_popped()


def state_tensors(optimizer: LocalEntropy) -> list[Tensor]:
    """At a cycle's end the place of x is scratch."""
    return [
        value
        for state in optimizer.state.values()
        for name, value in sorted(state.items())
        if isinstance(value, Tensor) and (name != "entropy_x" or optimizer.inner_steps > 0)
    ]


@EVERY
def test_state_dict_is_exact_at_every_step(info):
    for each in every_input(info):
        params = parameters()
        optimizer = info.optim_cls(params, **copy.deepcopy(each.kwargs))
        run(optimizer, params, range(4))
        file = io.BytesIO()
        torch.save([optimizer.state_dict(), params], file)
        file.seek(0)
        state, values = torch.load(file, weights_only=True)
        others = parameters()
        twin = info.optim_cls(others, **copy.deepcopy(each.kwargs))
        twin.load_state_dict(state)
        with torch.no_grad():
            for p, value in zip(others, values, strict=True):
                p.copy_(value)
        for its, params_ in ((optimizer, params), (twin, others)):
            run(its, params_, range(4, 11))
        for p, q in zip(params, others, strict=True):
            assert torch.equal(p, q), each


@EVERY
@pytest.mark.parametrize("copier", [copy.deepcopy, lambda both: pickle.loads(pickle.dumps(both))])
@pytest.mark.parametrize("steps", [0, 2, 4])
def test_copies_before_and_after_the_first_update(info, copier, steps):
    for each in info.optim_inputs_func("cpu"):
        params = parameters()
        optimizer = info.optim_cls(params, **copy.deepcopy(each.kwargs))
        run(optimizer, params, range(steps))
        others, twin = copier((params, optimizer))
        for its, params_ in ((optimizer, params), (twin, others)):
            run(its, params_, range(steps, steps + 5))
        for p, q in zip(params, others, strict=True):
            assert torch.equal(p, q), each


@EVERY
def test_complex_parameters_are_pairs_of_real_ones(info):
    """On all paths but fused ones, which torch's optimizers refuse for complex parameters."""
    for each in every_input(info):
        if each.kwargs.get("fused"):
            continue
        complexes = parameters(torch.complex64)
        reals = [nn.Parameter(torch.view_as_real(p.detach()).clone()) for p in complexes]
        first = info.optim_cls(complexes, **copy.deepcopy(each.kwargs))
        second = info.optim_cls(reals, **copy.deepcopy(each.kwargs))
        for step in range(7):
            closure(first, complexes, step)()
            closure(second, [torch.view_as_complex(p) for p in reals], step)()
            first.step()
            second.step()
        for p, q in zip(complexes, reals, strict=True):
            torch.testing.assert_close(torch.view_as_real(p.detach()), q.detach(), rtol=1e-4, atol=1e-5)


@EVERY
def test_a_rate_in_a_tensor_is_the_number_and_may_change(info):
    numbers, tensors = parameters(), parameters()
    rate = torch.tensor(0.01)
    options = {} if info.optim_cls is SGLD else CYCLE
    first = info.optim_cls(numbers, lr=0.01, **options)
    second = info.optim_cls(tensors, lr=rate, **options)
    for step in range(12):
        if step == 5:
            first.param_groups[0]["lr"] = 0.05
            rate.fill_(0.05)
        run(first, numbers, range(step, step + 1))
        run(second, tensors, range(step, step + 1))
    assert second.param_groups[0]["lr"] is rate
    for p, q in zip(numbers, tensors, strict=True):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)


@EVERY
def test_a_rate_of_two_elements_is_refused_at_once(info):
    with pytest.raises(ValueError, match="lr"):
        info.optim_cls(parameters(), lr=torch.tensor([0.01, 0.02]))


@pytest.mark.parametrize("kind", [EntropySGD, EntropyAdam])
def test_a_tensor_rate_with_foreach_is_refused_at_once(kind):
    with pytest.raises(ValueError, match=r"lr.*foreach"):
        kind(parameters(), lr=torch.tensor(0.01), foreach=True)


@EVERY
def test_hooks_fire_once_for_each_step(info):
    """Hooks of one optimizer and of all of them: for the steps of training, not for the outer update."""
    params = parameters()
    options = {"lr": 0.01} | ({} if info.optim_cls is SGLD else CYCLE)
    optimizer = info.optim_cls(params, **options)
    calls: list[tuple[str, Any]] = []

    def note(name: str) -> Callable[..., None]:
        return lambda optimizer, *rest: calls.append((name, optimizer))

    handles = [
        register_optimizer_step_pre_hook(note("global pre")),
        register_optimizer_step_post_hook(note("global post")),
        optimizer.register_step_pre_hook(note("pre")),
        optimizer.register_step_post_hook(note("post")),
    ]
    try:
        run(optimizer, params, range(7))
    finally:
        for handle in handles:
            handle.remove()
    assert calls == [(name, optimizer) for name in ("global pre", "pre", "post", "global post")] * 7
    run(optimizer, params, range(7, 10))
    assert len(calls) == 28


@pytest.mark.parametrize(
    "register",
    [
        lambda optimizer, hook: register_optimizer_step_pre_hook(hook),
        lambda optimizer, hook: register_optimizer_step_post_hook(hook),
        lambda optimizer, hook: optimizer.register_step_pre_hook(hook),
        lambda optimizer, hook: optimizer.register_step_post_hook(hook),
    ],
)
def test_a_single_hook_fires_until_it_is_removed(register):
    p = nn.Parameter(torch.ones(3))
    optimizer, calls = EntropySGD([p], L=2), []
    p.grad = torch.ones(3)
    optimizer.step()
    handle = register(optimizer, lambda *_: calls.append(1))
    for _ in range(3):
        optimizer.step()
    handle.remove()
    optimizer.step()
    assert len(calls) == 3


def test_a_hook_of_a_compiled_caller_fires_too():
    p = nn.Parameter(torch.ones(3))
    optimizer, calls = EntropySGD([p], L=2), []
    p.grad = torch.ones(3)

    @torch.compile(backend="eager")
    def train():
        optimizer.step()

    for _ in range(3):
        train()
    optimizer.register_step_post_hook(lambda *_: calls.append(1))
    train()
    assert len(calls) == 1


def test_the_profiler_knows_a_step_by_its_name():
    p = nn.Parameter(torch.ones(3))
    optimizer = EntropySGD([p])
    p.grad = torch.ones(3)
    optimizer.step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        optimizer.step()
    names = [event.key for event in profile.key_averages()]
    assert names.count("Optimizer.step#EntropySGD.step") == 1


@ENTROPIC
def test_hooks_of_the_outer_optimizer_fire_once_for_each_cycle(info):
    params = parameters()
    optimizer = info.optim_cls(params, **CYCLE)
    calls: list[str] = []
    optimizer.outer.register_step_pre_hook(lambda *_: calls.append("pre"))
    optimizer.outer.register_step_post_hook(lambda *_: calls.append("post"))
    run(optimizer, params, range(7))
    assert calls == ["pre", "post"] * 2


@EVERY
def test_state_dict_hooks(info):
    """Pre- and post-hooks of saving and loading, prepended ones first; a post-hook may replace the result."""
    params = parameters()
    options = {"lr": 0.01} | ({} if info.optim_cls is SGLD else CYCLE)
    optimizer = info.optim_cls(params, **options)
    run(optimizer, params, range(4))
    calls: list[str] = []
    optimizer.register_state_dict_pre_hook(lambda o: calls.append("save"))
    optimizer.register_state_dict_pre_hook(lambda o: calls.append("before"), prepend=True)
    optimizer.register_state_dict_post_hook(lambda o, saved: {**saved, "note": 1})
    saved = optimizer.state_dict()
    assert calls == ["before", "save"]
    assert saved["note"] == 1

    def load(o: Any, state: dict[str, Any]) -> dict[str, Any]:
        calls.append("load")
        return {key: value for key, value in state.items() if key != "note"}

    optimizer.register_load_state_dict_pre_hook(load)
    optimizer.register_load_state_dict_post_hook(lambda o: calls.append("loaded"))
    optimizer.load_state_dict(saved)
    assert calls == ["before", "save", "load", "loaded"]


@EVERY
@pytest.mark.parametrize("form", ["list", "generator", "named", "groups", "named groups"])
def test_forms_of_parameters(info, form):
    """A list, a generator, pairs with names, groups of either: the same weights."""
    options = {"lr": 0.01} | ({} if info.optim_cls is SGLD else CYCLE)

    def make(params: list[nn.Parameter]) -> torch.optim.Optimizer:
        named = [(f"p{i}", p) for i, p in enumerate(params)]
        given = {
            "list": params,
            "generator": (p for p in params),
            "named": iter(named),
            "groups": [{"params": params[:2]}, {"params": params[2:]}],
            "named groups": [{"params": named[:2]}, {"params": named[2:]}],
        }
        return info.optim_cls(given[form], **options)

    expected, params = parameters(), parameters()
    plain, optimizer = info.optim_cls(expected, **options), make(params)
    run(plain, expected, range(7))
    run(optimizer, params, range(7))
    for p, q in zip(params, expected, strict=True):
        assert torch.equal(p, q)
    if "named" in form:
        names = [name for group in optimizer.state_dict()["param_groups"] for name in group["param_names"]]
        assert names == ["p0", "p1", "p2", "p3"]


@EVERY
def test_errors_that_torch_gives(info):
    options = {"lr": 0.01}
    with pytest.raises(TypeError, match="params argument given to the optimizer should be an iterable"):
        info.optim_cls(torch.randn(2), **options)
    p = nn.Parameter(torch.randn(2))
    with pytest.raises(ValueError, match="some parameters appear in more than one parameter group"):
        info.optim_cls([{"params": p}, {"params": p}], **options)
    with pytest.warns(UserWarning, match="duplicate parameters"):
        info.optim_cls([p, p], **options)
    with pytest.raises(ValueError, match="lr"):
        info.optim_cls([p], lr=-0.1)
    with pytest.raises(ValueError, match="can't optimize a non-leaf Tensor"):
        info.optim_cls([p * 2], **options)


@EVERY
def test_a_closure_may_return_any_loss_and_zero_grad_clears(info):
    params = parameters()
    optimizer = info.optim_cls(params, lr=0.01)
    loss = optimizer.step(closure(optimizer, params, 0))
    assert isinstance(loss, Tensor)
    optimizer.zero_grad(set_to_none=False)
    assert all(p.grad is not None and not p.grad.any() for p in params)
    optimizer.zero_grad()
    assert all(p.grad is None for p in params)


@EVERY
def test_repr_names_the_class_and_every_group(info):
    text = repr(info.optim_cls(parameters(), lr=0.01))
    assert text.startswith(f"{info.optim_cls.__name__} (\nParameter Group 0\n")
    assert "lr: 0.01" in text
