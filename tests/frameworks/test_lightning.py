"""Lightning against bare loops over the same batches."""

from __future__ import annotations

import copy
import runpy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from entropy_sgd import EntropyAdam, EntropySGD, recalibrate_batchnorm
from frameworks.launch import EXAMPLES
from network import batch, weights

lightning = pytest.importorskip("lightning.pytorch", reason="Lightning is not installed")

from lightning.pytorch.callbacks import (  # noqa: E402
    EMAWeightAveraging,
    LearningRateMonitor,
    ModelCheckpoint,
    StochasticWeightAveraging,
)
from lightning.pytorch.loggers import CSVLogger  # noqa: E402

from entropy_sgd.frameworks.lightning import OuterWeights  # noqa: E402

pytestmark = [
    # Lightning 2.6 makes a LeafSpec, which torch 2.13 deprecates.
    pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec.:FutureWarning"),
    # Advice for larger data, and for those who forgot to validate.
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*but have no `val_dataloader`"),
    # A resumed run does not save again here.
    pytest.mark.filterwarnings("ignore:.*callbacks used to create the checkpoint need to be provided"),
]

BATCHES = 14  # an epoch: two cycles of five and four steps of a third
KINDS = {
    "sgd": lambda ps: EntropySGD(ps, L=5, noise=1e-2),
    "adam": lambda ps: EntropyAdam(ps, L=5, noise=1e-2),
    "long": lambda ps: EntropySGD(ps, L=100, noise=1e-2),
}
TWO = pytest.mark.parametrize("kind", ["sgd", "adam"])


class Module(lightning.LightningModule):
    """Keeps what it held at each validation, test and prediction, and how often it was trained."""

    def __init__(self, kind: str = "sgd", *, manual: bool = False, normalize: bool = False) -> None:
        super().__init__()
        torch.manual_seed(3)
        norm = [nn.BatchNorm1d(16)] if normalize else []
        self.net = nn.Sequential(nn.Linear(6, 16), *norm, nn.Tanh(), nn.Linear(16, 3))
        self.kind = kind
        self.automatic_optimization = not manual
        self.seen: list[Tensor] = []
        self.statistics: list[Tensor] = []
        self.trained = 0

    def forward(self, inputs: Tensor) -> Tensor:
        return self.net(inputs)

    def training_step(self, batch, batch_idx):
        self.trained += 1
        loss = nn.functional.cross_entropy(self(batch[0]), batch[1])
        if self.automatic_optimization:
            return loss
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(loss)
        optimizer.step()
        return None

    def on_train_epoch_end(self):
        if not self.automatic_optimization:  # then schedulers are the user's to step
            self.lr_schedulers().step()

    def _look(self, batch, batch_idx):
        if batch_idx == 0:
            self.seen.append(weights(self))
            self.statistics += [b.clone() for b in self.buffers() if b.is_floating_point()]
        return self(batch[0])

    validation_step = test_step = predict_step = _look

    def configure_optimizers(self):
        optimizer = KINDS[self.kind](self.parameters())
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "epoch"}}


def loader() -> DataLoader:
    """Batch i is `batch(i)`."""
    inputs, targets = (torch.cat(t) for t in zip(*map(batch, range(BATCHES)), strict=True))
    return DataLoader(TensorDataset(inputs, targets), batch_size=8)


def trainer(tmp_path: Path, *callbacks, epochs: int = 2, **options):
    options = {"enable_checkpointing": any(isinstance(c, ModelCheckpoint) for c in callbacks), **options}
    return lightning.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        default_root_dir=tmp_path,
        callbacks=list(callbacks),
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        **{"logger": False, **options},
    )


def bare(model: Module, epochs: int = 2, accumulate: int = 1, clip: float | None = None):
    """The same by hand: yields (step, x, x') after each step, both as vectors; the last ends its cycle."""
    configured = model.configure_optimizers()
    optimizer, scheduler = configured["optimizer"], configured["lr_scheduler"]["scheduler"]
    step, steps = 0, epochs * -(-BATCHES // accumulate)
    for _ in range(epochs):
        for first in range(0, BATCHES, accumulate):
            optimizer.zero_grad()
            for i in range(first, min(first + accumulate, BATCHES)):
                (nn.functional.cross_entropy(model(batch(i)[0]), batch(i)[1]) / accumulate).backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            step += 1
            if step == steps:
                optimizer.finish()
            inner = weights(model)
            optimizer.eval()
            outer = weights(model)
            optimizer.train()
            yield step, outer, inner
        scheduler.step()


@pytest.mark.parametrize("manual", [False, True])
@TWO
def test_fit_is_the_bare_loop_bit_for_bit(kind, manual, tmp_path):
    """Validation within and after epochs changes nothing; `fit` ends its last cycle with x in the model."""
    monitor = LearningRateMonitor()
    module = Module(kind, manual=manual)
    fit = trainer(
        tmp_path,
        OuterWeights(),
        monitor,
        logger=CSVLogger(tmp_path),
        val_check_interval=3,
        log_every_n_steps=1,
    )
    fit.fit(module, loader(), loader())
    steps = list(bare(Module(kind)))
    assert torch.equal(weights(module), steps[-1][1])
    validated = [outer for step, outer, _ in steps if (step - 1) % BATCHES % 3 == 2]
    assert len(module.seen) == len(validated)
    for a, b in zip(module.seen, validated, strict=True):
        assert torch.equal(a, b)
    assert module.trained == 2 * BATCHES  # one gradient a step: closures are not called again
    name = f"lr-Entropy{'SGD' if kind == 'sgd' else 'Adam'}"
    assert name in monitor.lrs


@TWO
def test_accumulation_and_clipping(kind, tmp_path):
    module = Module(kind)
    trainer(tmp_path, OuterWeights(), accumulate_grad_batches=2, gradient_clip_val=0.3).fit(module, loader())
    *_, (_, outer, _) = bare(Module(kind), accumulate=2, clip=0.3)
    torch.testing.assert_close(weights(module), outer, rtol=1e-5, atol=1e-6)


def test_test_and_predict_see_the_outer_weights(tmp_path):
    module = Module()
    fit = trainer(tmp_path, OuterWeights(), epochs=1)
    fit.fit(module, loader())
    *_, (_, outer, _) = bare(Module(), epochs=1)
    fit.test(module, loader(), verbose=False)
    fit.predict(module, loader())
    assert len(module.seen) == 2
    for seen in (*module.seen, weights(module)):
        assert torch.equal(seen, outer)


@TWO
def test_every_checkpoint_holds_the_outer_weights_and_resumes_to_the_same_bits(kind, tmp_path):
    every = ModelCheckpoint(tmp_path / "all", filename="{step}", every_n_train_steps=1, save_top_k=-1)
    only = ModelCheckpoint(
        tmp_path / "weights", filename="{step}", every_n_train_steps=3, save_top_k=-1, save_weights_only=True
    )
    module = Module(kind)
    trainer(tmp_path, OuterWeights(), every, only).fit(module, loader())
    expected = {step: outer for step, outer, _ in bare(Module(kind))}
    files = [*(tmp_path / "all").glob("*.ckpt"), *(tmp_path / "weights").glob("*.ckpt")]
    assert len(files) == 2 * BATCHES + 2 * BATCHES // 3
    for file in files:
        saved = torch.load(file, weights_only=True)
        flat = torch.cat([w.flatten() for w in saved["state_dict"].values()])
        assert torch.equal(flat, expected[saved["global_step"]])

    resumed = Module(kind)
    trainer(tmp_path, OuterWeights()).fit(
        resumed, loader(), ckpt_path=tmp_path / "all" / f"step={BATCHES}.ckpt"
    )
    assert torch.equal(weights(resumed), expected[2 * BATCHES])


class Resumable(DataLoader):
    """A loader that goes on where it was, as Lightning asks for a resumption inside an epoch."""

    done = 0

    def __iter__(self):
        first = self.done % len(self)
        for i, item in enumerate(super().__iter__()):
            if i >= first:
                self.done = i + 1
                yield item

    def state_dict(self) -> dict[str, int]:
        return {"done": self.done}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.done = state["done"]


def test_resumes_inside_an_epoch_and_inside_a_cycle(tmp_path):
    saver = ModelCheckpoint(tmp_path, filename="{step}", every_n_train_steps=7, save_top_k=-1)
    resumable = Resumable(loader().dataset, batch_size=8)
    trainer(tmp_path, OuterWeights(), saver).fit(Module(), resumable)
    resumed, resumable = Module(), Resumable(loader().dataset, batch_size=8)
    trainer(tmp_path, OuterWeights()).fit(resumed, resumable, ckpt_path=tmp_path / "step=7.ckpt")
    *_, (_, outer, _) = bare(Module())
    assert torch.equal(weights(resumed), outer)
    assert resumed.trained == 2 * BATCHES - 7


def test_a_checkpoint_resumes_without_the_callback_too(tmp_path):
    """Lightning steps with a closure, before which the first step puts x' back."""
    saver = ModelCheckpoint(tmp_path, filename="{step}", every_n_train_steps=BATCHES, save_top_k=-1)
    trainer(tmp_path, OuterWeights(), saver).fit(Module(), loader())
    resumed = Module()
    fit = trainer(tmp_path)
    fit.fit(resumed, loader(), ckpt_path=tmp_path / f"step={BATCHES}.ckpt")
    inner = [x_prime for _, _, x_prime in bare(Module(), epochs=3)]
    assert torch.equal(weights(resumed), inner[2 * BATCHES - 1])


@pytest.mark.parametrize("stop", ["epochs", "steps", "callback"])
def test_fewer_than_L_steps_give_a_trained_model(stop, tmp_path):
    """That of an L equal to the steps made; so is the last checkpoint, if the end can be foreseen."""
    module = Module("long")
    initial = weights(module)

    class Stop(lightning.Callback):
        def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
            trainer.should_stop = stop == "callback" and batch_idx == 10

    limits = {"epochs": {"epochs": 1}, "steps": {"epochs": -1, "max_steps": 11}, "callback": {"epochs": 5}}
    saver = ModelCheckpoint(tmp_path, filename="last")
    trainer(tmp_path, saver, Stop(), OuterWeights(), **limits[stop]).fit(module, loader(), loader())

    steps = {"epochs": BATCHES}.get(stop, 11)
    model = Module("long")
    optimizer = EntropySGD(model.parameters(), L=steps, noise=1e-2)
    for i in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(batch(i)[0]), batch(i)[1]).backward()
        optimizer.step()
    assert optimizer.outer_steps == 1
    assert torch.equal(weights(module), weights(model))
    saved = torch.load(tmp_path / "last.ckpt", weights_only=True)["state_dict"]
    last = torch.cat([w.flatten() for w in saved.values()])
    assert torch.equal(last, initial if stop == "callback" else weights(model))


class Fails(lightning.Callback):
    """The process is interrupted by something in the middle of a cycle of the second epoch."""

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if trainer.global_step == BATCHES + 4:
            raise RuntimeError("out of luck")


@pytest.mark.parametrize("fails", [False, True])
def test_the_best_checkpoint_is_what_is_tested_whether_fit_ends_well_or_not(fails, tmp_path):
    module = Module()
    best = ModelCheckpoint(tmp_path, filename="best")
    failing = [Fails()] if fails else []
    fit = trainer(tmp_path, OuterWeights(), best, *failing, epochs=2 if fails else 1)
    if fails:
        with pytest.raises(RuntimeError, match="out of luck"):
            fit.fit(module, loader())
        steps = list(bare(Module()))
        assert torch.equal(weights(module), steps[BATCHES + 3][1])  # x, as it was
    else:
        fit.fit(module, loader())
    with torch.no_grad():
        module.net[0].weight.zero_()  # whatever the model holds now
    fit.test(module, loader(), ckpt_path=str(tmp_path / "best.ckpt"), verbose=False)
    saved = torch.load(tmp_path / "best.ckpt", weights_only=True)["state_dict"]
    expected = torch.cat([w.flatten() for w in saved.values()])
    assert torch.equal(module.seen[-1], expected)
    for _ in range(2):
        fit.predict(module, loader())
        assert torch.equal(weights(module), expected)


@pytest.mark.parametrize("hook", ["on_train_end", "on_validation_end"])
def test_weights_restored_by_another_callback_stay(hook, tmp_path):
    module = Module()
    best = {name: torch.full_like(value, 0.25) for name, value in module.state_dict().items()}

    class Restore(lightning.Callback):
        pass

    def restore(self, trainer, pl_module):
        if trainer.global_step == 2 * BATCHES - 2 or hook == "on_train_end":
            pl_module.load_state_dict(best)

    setattr(Restore, hook, restore)
    fit = trainer(
        tmp_path, Restore(), OuterWeights(), val_check_interval=3 if hook == "on_validation_end" else 1.0
    )
    if hook == "on_train_end":
        fit.fit(module, loader(), loader())
        fit.test(module, loader(), verbose=False)
        assert torch.equal(weights(module), torch.full_like(weights(module), 0.25))
        return
    with pytest.warns(UserWarning, match="changed from outside in the middle of a cycle"):
        fit.fit(module, loader(), loader())
    # Two steps from there, in a cycle of their own.
    twin = Module()
    twin.load_state_dict(best)
    assert fit.optimizers[0].outer_steps == 26 // 5 + 1
    assert 0 < (weights(module) - weights(twin)).abs().max() < 0.2


def test_statistics_are_recalibrated_for_the_outer_weights_and_put_back(tmp_path):
    module = Module(normalize=True)
    saver = ModelCheckpoint(tmp_path, filename="{step}", every_n_train_steps=BATCHES, save_top_k=-1)
    callback = OuterWeights(recalibrate=loader())
    trainer(tmp_path, callback, saver).fit(module, loader(), loader())

    by_hand = Module(normalize=True)
    expected = []
    for step, outer, _ in bare(by_hand):
        if step % BATCHES == 0:
            twin = copy.deepcopy(by_hand)
            nn.utils.vector_to_parameters(outer, twin.parameters())
            recalibrate_batchnorm(twin, loader())
            expected += [b.clone() for b in twin.buffers() if b.is_floating_point()]
    for a, b in zip(module.statistics, expected, strict=True):
        assert torch.equal(a, b)
    saved = torch.load(tmp_path / f"step={BATCHES}.ckpt", weights_only=True)
    assert torch.equal(saved["state_dict"]["net.1.running_mean"], expected[0])
    assert torch.equal(weights(module), outer)
    assert torch.equal(module.net[1].running_var, expected[3])

    resumed = Module(normalize=True)
    again = OuterWeights(recalibrate=loader())
    fit = trainer(tmp_path, again)
    fit.fit(resumed, loader(), ckpt_path=tmp_path / f"step={BATCHES}.ckpt")
    assert torch.equal(weights(resumed), outer)
    again._put_inner(fit, resumed)  # the statistics of x', too, are those of a run that was not interrupted
    for a, b in zip(resumed.buffers(), by_hand.buffers(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.filterwarnings("ignore:.*lr_scheduler.step.*before")  # SWALR is made in the middle of training
def test_stochastic_weight_averaging_averages_the_outer_weights(normalize, tmp_path):
    """It samples at the start of epochs 1 to 3 (counted from 0), and ends with the mean in the model."""
    module = Module(normalize=normalize)
    average = StochasticWeightAveraging(swa_lrs=0.5, swa_epoch_start=2, annealing_epochs=1)
    samples: list[Tensor] = []

    class Look(lightning.Callback):
        def on_train_epoch_start(self, trainer, pl_module):
            samples.append(weights(pl_module))

        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
            self.held = weights(pl_module)

    look = Look()
    trainer(tmp_path, OuterWeights(), look, average, epochs=4).fit(module, loader())
    outer = [x for _, x, _ in bare(Module(normalize=normalize), epochs=2)]
    assert torch.equal(samples[1], outer[BATCHES - 1])
    mean = torch.stack(samples[1:4]).mean(0)
    torch.testing.assert_close(weights(module), mean, rtol=1e-5, atol=1e-6)
    if normalize:  # a last pass takes the statistics, at the mean
        torch.testing.assert_close(look.held, mean, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_moving_averages_are_of_the_outer_weights(kind, every, tmp_path):
    """EMAWeightAveraging, though listed before the callback: x enters the average, never x'."""
    module = Module(kind)
    average = EMAWeightAveraging(decay=0.8, update_every_n_steps=every)
    saver = ModelCheckpoint(tmp_path, filename="{step}", every_n_train_steps=17, save_top_k=-1)
    trainer(tmp_path, average, OuterWeights(), saver, val_check_interval=4).fit(module, loader(), loader())
    expected: list[Tensor] = []
    for step, outer, _ in bare(Module(kind)):
        if (step - 1) % every == 0:
            expected.append(outer if not expected else 0.8 * expected[-1] + 0.2 * outer)
        elif not expected:
            expected.append(outer)
        if step % BATCHES % 4 == 0 and step % BATCHES:
            torch.testing.assert_close(
                module.seen[(step // BATCHES) * 3 + step % BATCHES // 4 - 1],
                expected[-1],
                rtol=1e-5,
                atol=1e-6,
            )
        if step == 17:
            at_17, x_17 = expected[-1], outer
    torch.testing.assert_close(weights(module), expected[-1], rtol=1e-5, atol=1e-6)
    saved = torch.load(tmp_path / "step=17.ckpt", weights_only=True)
    flat = {
        k: torch.cat([w.flatten() for w in saved[k].values()]) for k in ("state_dict", "current_model_state")
    }
    torch.testing.assert_close(flat["state_dict"], at_17, rtol=1e-5, atol=1e-6)
    assert torch.equal(flat["current_model_state"], x_17)


def test_other_optimizers_are_left_alone(tmp_path, monkeypatch):
    monkeypatch.setitem(KINDS, "plain", lambda ps: torch.optim.SGD(ps, lr=0.1))
    module, without = Module("plain"), Module("plain")
    trainer(tmp_path, OuterWeights(recalibrate=loader())).fit(module, loader(), loader())
    trainer(tmp_path).fit(without, loader(), loader())
    assert torch.equal(weights(module), weights(without))


def test_example(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["lightning_fit.py", "--folder", str(tmp_path), "--epochs", "4"])
    runpy.run_path(str(EXAMPLES / "lightning_fit.py"), run_name="__main__")
    assert float(capsys.readouterr().out.split()[-1]) > 0.8
    assert list(tmp_path.glob("checkpoints/*.ckpt"))
