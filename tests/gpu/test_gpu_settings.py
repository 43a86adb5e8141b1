"""Settings in probes on a CUDA device: how they are timed, compiled, compared with the user's own, and told apart from
what does not fit. All workloads of this file load at once, each in a zygote of its own, and serve all of its tests."""

import importlib.util
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch

from autotune import api
from autotune.model import (
    Attention,
    Budget,
    Cause,
    Checkpointing,
    Compile,
    Form,
    MemoryFormat,
    OptimizerKind,
    Outcome,
    Phase,
    Precision,
    ProbeResult,
    Question,
    Reason,
    Settings,
)
from autotune.probe.launcher import Launcher
from autotune.units import GIB
from tests.gpu.conftest import ASSETS
from tests.process.support import ASSETS as PLANTED

pytestmark = pytest.mark.gpu

WORKLOADS: dict[str, tuple[Path, str, str]] = {
    "attending": (ASSETS / "attending.py", "", ""),
    "wide": (ASSETS / "mlp.py", "", ""),
    "resnet50": (ASSETS / "hub_models.py", "resnet50", "torchvision"),
    "gpt2": (ASSETS / "hub_models.py", "gpt2", "transformers"),
    "reentrant": (PLANTED / "guarded.py", "blocks", ""),
    "half": (PLANTED / "knobs.py", "half", ""),
    "data": (PLANTED / "knobs.py", "data", ""),
}
"""Name -> file, its argument, the library it needs."""

OWN = Settings()
BF16, FP16, TF32 = (Settings(precision=p) for p in (Precision.BF16, Precision.FP16, Precision.TF32))
COMPILED = Settings(compile=Compile.DEFAULT)
HEAVY = 128
"""Samples of attending.py that are worth timing: 1.3 TFLOP a step."""

Probe = Callable[..., ProbeResult]
Tell = Callable[[str, object], None]


@pytest.fixture(scope="module")
def probe() -> Iterator[Probe]:
    """``probe(WORKLOAD, form, settings, batch_size=...)`` of a workload named above."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    launchers: dict[str, Launcher] = {}
    with ExitStack() as stack:
        for name, (file, kind, library) in WORKLOADS.items():
            if not library or importlib.util.find_spec(library) is not None:
                plan = api.plan(str(file), script_args=[kind] if kind else [], device="cuda")
                launchers[name] = stack.enter_context(Launcher(plan.source, timeout_s=300, seed=3))
                launchers[name].preload("cuda")

        def ask(
            workload: str,
            form: Form,
            settings: Settings = OWN,
            *,
            batch_size: int,
            reference: Settings | None = None,
            limit_gib: int = 16,
        ) -> ProbeResult:
            if workload not in launchers:
                pytest.skip(f"{WORKLOADS[workload][2]} is not installed")
            launcher = launchers[workload]
            if launcher.machine is None:
                launcher.describe("cuda", 1)
            assert launcher.machine is not None
            question = Question(
                batch_size=batch_size, form=form, reason=Reason.CHANGE, settings=settings, reference=reference
            )
            budget = Budget(
                limit_bytes=limit_gib * GIB,
                source="test",
                capacity_bytes=launcher.machine.capacity_bytes,
                others_bytes=0,
                headroom_bytes=0,
            )
            return launcher.probe(question, budget, 0)

        yield ask


@pytest.fixture
def tell(record_property: Tell) -> Tell:
    """What was seen, in the report of the test run and, with ``-s``, on the screen."""

    def both(name: str, value: object) -> None:
        record_property(name, str(value))
        print(f"\n    {name}: {value}", end="")

    return both


def outcome(result: ProbeResult) -> tuple[Outcome, Cause | None]:
    """What a probe ended in, and why."""
    return result.outcome, result.failure.cause if result.failure else None


# times


def loaded(file: Path) -> Any:
    """The workload's functions, in this process."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def seconds_a_step(workload: Any, batch_size: int, *, warm_up: int = 3, steps: int = 8) -> float:
    """Median time of a plain training step, making the batch and moving it to the device left out."""
    model = workload.make_model().cuda()
    optimizer = workload.make_optimizer(list(model.parameters()))
    seconds = []
    for _ in range(warm_up + steps):
        batch = workload.make_batch(batch_size).cuda()
        torch.cuda.synchronize()
        began = time.perf_counter()
        optimizer.zero_grad()
        workload.loss(model, batch).backward()
        optimizer.step()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    return median(seconds[warm_up:])


@pytest.mark.filterwarnings("default")  # what PyTorch says of its kernels is its own
def test_c32_the_timed_form_agrees_with_a_loop_that_knows_nothing_of_autotune(probe: Probe, tell: Tell) -> None:
    timed = probe("attending", Form.TIMED, batch_size=HEAVY)
    assert timed.fits, timed.failure
    measured = timed.measurement
    assert (measured.steps_executed, len(measured.step_seconds)) == (10, 8)
    assert min(measured.step_seconds) > 0
    assert measured.first_step_seconds is not None and measured.first_step_seconds > min(measured.step_seconds)
    assert (measured.recompiles, measured.graph_breaks) == (None, None)
    assert timed.samples_per_second is not None
    own = HEAVY / seconds_a_step(loaded(ASSETS / "attending.py"), HEAVY)
    torch.cuda.empty_cache()
    tell("samples/s probed and alone", f"{timed.samples_per_second:,.0f}, {own:,.0f}")
    assert abs(timed.samples_per_second / own - 1) < 0.15


# compiling


def test_c31_a_compiled_model_is_one_graph_and_its_compiling_is_kept_from_its_speed(probe: Probe, tell: Tell) -> None:
    compiled = probe("attending", Form.TIMED, COMPILED, batch_size=8)
    assert compiled.fits, compiled.failure
    measured = compiled.measurement
    assert (measured.recompiles, measured.graph_breaks) == (0, 0)
    assert measured.first_step_seconds is not None and measured.median_step_seconds is not None
    tell("first and usual step", f"{measured.first_step_seconds:.2f} s, {measured.median_step_seconds:.4f} s")
    assert measured.first_step_seconds > 10 * measured.median_step_seconds
    assert max(measured.step_seconds) < measured.first_step_seconds / 10


def test_cuda_graphs_of_a_small_model_work_or_are_told_to_be_unsupported(probe: Probe, tell: Tell) -> None:
    graphed = probe("wide", Form.SHORT, Settings(compile=Compile.REDUCE_OVERHEAD), batch_size=2)
    tell("CUDA graphs", (graphed.outcome, graphed.failure and graphed.failure.message))
    assert graphed.outcome in (Outcome.FITS, Outcome.UNSUPPORTED), graphed.failure
    if graphed.fits:
        assert graphed.measurement.recompiles == 0
        assert graphed.measurement.steps_executed >= 3


def test_a_compiled_model_that_needs_too_much_memory_is_out_of_memory(probe: Probe) -> None:
    failed = probe("wide", Form.SHORT, COMPILED, batch_size=96, limit_gib=2)
    assert outcome(failed) == (Outcome.OUT_OF_MEMORY, Cause.DEVICE_MEMORY), failed.failure
    assert failed.failure is not None
    assert failed.failure.phase in (Phase.FORWARD, Phase.BACKWARD)
    assert failed.failure.requested_bytes


# comparing


def compared(
    probe: Probe, tell: Tell, workload: str, settings: Settings, batch_size: int, reference: Settings = OWN
) -> ProbeResult:
    """The comparison of settings with the user's own; what was seen is told."""
    result = probe(workload, Form.COMPARE, settings, batch_size=batch_size, reference=reference)
    seen = result.measurement.comparison
    if seen is not None:
        changes = ", ".join(f"{name}={value}" for name, value in settings.changes(reference).items())
        tell(
            f"{workload}, batch {batch_size}, {changes}",
            f"{result.outcome}; 1-cosine {_told(None if seen.cosine is None else 1 - seen.cosine)}"
            f" length {_told(seen.norm_ratio)} loss off {_told(seen.loss_difference)} losses {_losses(seen.losses)}"
            f" against {_losses(seen.reference_losses)}, {seen.skipped} skipped, buffers {seen.buffers},"
            f" lost {seen.lost[:2]}, {result.seconds:.1f} s",
        )
    return result


def _told(value: float | None) -> str:
    return "not compared" if value is None else f"{value:.3g}"


def _losses(losses: tuple[float | None, ...]) -> str:
    return " ".join(_told(loss) for loss in losses)


SAME = {
    "bf16": BF16,
    "fp16": FP16,
    "tf32": TF32,
    "fused": Settings(optimizer=OptimizerKind.FUSED),
    "blocks": Settings(checkpointing=Checkpointing.BLOCKS),
    "flash": Settings(precision=Precision.BF16, attention=Attention.FLASH),
    "compiled": COMPILED,
}


@pytest.mark.parametrize("name", SAME)
def test_settings_of_a_correct_transformer_are_accepted(probe: Probe, tell: Tell, name: str) -> None:
    result = compared(probe, tell, "attending", SAME[name], batch_size=8)
    assert result.fits, result.failure
    seen = result.measurement.comparison
    assert seen is not None and seen.cosine is not None and seen.loss_difference is not None
    assert len(seen.losses) == len(seen.reference_losses) == 3


@pytest.mark.parametrize("batch_size", [8, 16])
@pytest.mark.parametrize("settings", [BF16, FP16], ids=["bf16", "fp16"])
def test_half_precision_of_resnet50_is_accepted(probe: Probe, tell: Tell, settings: Settings, batch_size: int) -> None:
    result = compared(probe, tell, "resnet50", settings, batch_size)
    assert result.fits, result.failure


def test_channels_last_of_resnet50_is_accepted(probe: Probe, tell: Tell) -> None:
    settings = Settings(memory_format=MemoryFormat.CHANNELS_LAST)
    assert outcome(compared(probe, tell, "resnet50", settings, batch_size=8)) == (Outcome.FITS, None)


@pytest.mark.parametrize(
    "settings", [BF16, FP16, Settings(checkpointing=Checkpointing.OWN)], ids=["bf16", "fp16", "own checkpoints"]
)
def test_gpt2_with_its_dropout_and_tied_weights_is_accepted(probe: Probe, tell: Tell, settings: Settings) -> None:
    result = compared(probe, tell, "gpt2", settings, batch_size=8)
    assert result.fits, result.failure
    assert result.measurement.comparison is not None and result.measurement.comparison.cosine is not None


def test_c30_a_switch_of_the_model_that_loses_gradients_is_rejected_by_their_names(probe: Probe, tell: Tell) -> None:
    result = compared(probe, tell, "reentrant", Settings(checkpointing=Checkpointing.OWN), batch_size=4)
    assert outcome(result) == (Outcome.CHANGES_TRAINING, Cause.GRADIENTS_LOST)
    assert result.failure is not None
    assert "blocks.0.up.weight" in result.failure.message


# what cannot be had, and loading


def test_c29_weights_in_half_precision_are_unsupported_under_a_scaler(probe: Probe) -> None:
    failed = probe("half", Form.SHORT, FP16, batch_size=4)
    assert outcome(failed) == (Outcome.UNSUPPORTED, Cause.NOT_SUPPORTED)
    assert failed.failure is not None and failed.failure.phase is Phase.BUILD
    assert "parameter blocks.0.up.weight would be float16" in failed.failure.message


@pytest.mark.parametrize(("workers", "rounds"), [(0, 7), (2, 4)])
def test_batches_are_loaded_with_pinned_memory_and_nothing_is_trained(probe: Probe, workers: int, rounds: int) -> None:
    settings = Settings(loader_workers=workers, pin_memory=True)
    loading = probe("data", Form.LOADING, settings, batch_size=8)
    assert loading.fits, loading.failure
    measured = loading.measurement
    assert (measured.steps_executed, len(measured.step_seconds)) == ((1 + rounds) * max(1, workers), rounds)
    assert measured.observed_batch == 8
    assert measured.composition.batch_bytes == 8 * 4 * 8 * 4
    assert measured.composition.parameters_bytes is None
    if not workers:
        assert min(measured.step_seconds) >= 8 * 0.005  # each sample takes 5 ms
