"""Settings in real probe processes: what they measure, and what cannot be applied is told apart from what does not fit."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from shutil import which
from typing import Any

import pytest

from autotune import api
from autotune.model import (
    Budget,
    Cause,
    Checkpointing,
    Compile,
    Form,
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
from tests.process.conftest import ASSETS, Loaded

BUDGET = Budget(limit_bytes=8 * GIB, source="test", capacity_bytes=8 * GIB, others_bytes=0, headroom_bytes=0)
COMPILED = Settings(compile=Compile.DEFAULT)

Probe = Callable[..., ProbeResult]


def probing(launcher: Launcher) -> Probe:
    """``probe(form, settings)`` of what is loaded."""

    def probe(form: Form = Form.SHORT, settings: Settings | None = None, batch_size: int = 4) -> ProbeResult:
        question = Question(batch_size=batch_size, form=form, reason=Reason.CHANGE, settings=settings or Settings())
        return launcher.probe(question, BUDGET, 0)

    return probe


@pytest.fixture
def launched(loaded: Loaded) -> Callable[[str], Probe]:
    """``launched(KIND)`` gives ``probe(form, settings)`` of knobs.py."""

    def launch(kind: str) -> Probe:
        has = kind if kind in ("data", "stream") else "make_batch"  # whoever loads the file looks at its data
        return probing(loaded("knobs.py", kind, has=has)[0])

    return launch


@pytest.fixture
def launched_anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Probe]]:
    """The same in the environment of the test."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with ExitStack() as stack:

        def launch(kind: str) -> Probe:
            plan = api.plan(str(ASSETS / "knobs.py"), script_args=[kind], device="cpu")
            launcher = stack.enter_context(Launcher(plan.source, timeout_s=300, seed=3))
            launcher.describe("cpu", 1)
            return probing(launcher)

        yield launch


def unsupported(probe: ProbeResult) -> str:
    """What was said of settings that cannot be applied."""
    assert probe.outcome is Outcome.UNSUPPORTED, probe.failure
    assert probe.failure is not None
    assert probe.failure.cause is Cause.NOT_SUPPORTED
    assert not probe.failure.confirm
    assert probe.failure.hint
    return probe.failure.message


def test_settings_that_change_only_the_means_train_the_very_same(launched: Callable[[str], Probe]) -> None:
    probe = launched("blocks")
    expected = probe()
    assert expected.fits and len(expected.measurement.losses) == 3
    for change in (
        Settings(checkpointing=Checkpointing.BLOCKS),
        Settings(checkpointing=Checkpointing.ALTERNATE),
        Settings(set_to_none=False),
        Settings(optimizer=OptimizerKind.FOR_LOOP),
        Settings(optimizer=OptimizerKind.FUSED),
    ):
        other = probe(settings=change)
        assert other.fits, other.failure
        assert other.measurement.losses == pytest.approx(expected.measurement.losses, rel=1e-6), change
        assert (other.measurement.recompiles, other.measurement.graph_breaks) == (None, None)


def test_the_timed_form_leaves_two_steps_out_and_keeps_the_first_apart(launched: Callable[[str], Probe]) -> None:
    measurement = launched("blocks")(Form.TIMED).measurement
    assert (measurement.steps_executed, len(measurement.step_seconds)) == (10, 8)
    assert measurement.first_step_seconds is not None
    assert measurement.first_step_seconds not in measurement.step_seconds
    assert {peak.phase for peak in measurement.phases} == {
        Phase.BUILD,
        Phase.DATA,
        Phase.FORWARD,
        Phase.BACKWARD,
        Phase.OPTIMIZER,
    }


def test_c31_a_probe_with_compile_where_there_is_no_compiler_is_unsupported(
    launched_anew: Callable[[str], Probe], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("CXX", "CC"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))  # nothing compiled before
    probe = launched_anew("blocks")
    failed = probe(settings=COMPILED)
    assert "No working C++ compiler found" in unsupported(failed)
    assert failed.failure is not None and "compile" in failed.failure.hint
    assert probe().fits


@pytest.mark.skipif(not any(map(which, ("g++", "clang++"))), reason="no C++ compiler here")
def test_c31_compiling_is_told_apart_from_training_and_new_shapes_are_counted(
    launched_anew: Callable[[str], Probe], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The one test that really compiles: a third of a minute of it."""
    monkeypatch.setenv("TORCHINDUCTOR_VEC_ISA_OK", "0")  # plain code compiles faster, without a trial of vector units
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    probe = launched_anew("lengths")(settings=COMPILED)
    assert probe.fits, probe.failure
    measurement = probe.measurement
    assert (measurement.steps_executed, measurement.recompiles, measurement.graph_breaks) == (3, 1, 0)
    assert measurement.first_step_seconds is not None
    assert measurement.first_step_seconds > measurement.step_seconds[0]


def test_compiling_a_model_that_is_never_called_is_unsupported(launched: Callable[[str], Probe]) -> None:
    probe = launched("parts")
    assert "the loss calls parts of the model, never the model itself" in unsupported(probe(settings=COMPILED))
    assert probe().fits


def test_c29_weights_in_half_precision_are_unsupported_under_a_scaler(launched: Callable[[str], Probe]) -> None:
    failed = launched("half")(settings=Settings(precision=Precision.FP16))
    assert "parameter blocks.0.up.weight would be float16" in unsupported(failed)
    assert failed.failure is not None and failed.failure.phase is Phase.BUILD


def test_checkpointing_a_model_without_blocks_is_unsupported(launched: Callable[[str], Probe]) -> None:
    probe = launched("single")
    for checkpointing, why in ((Checkpointing.BLOCKS, "no repeated blocks"), (Checkpointing.OWN, "no switch")):
        assert why in unsupported(probe(settings=Settings(checkpointing=checkpointing)))


@pytest.mark.parametrize(("workers", "rounds"), [(None, 7), (2, 4)])
def test_loading_takes_batches_from_the_data_set_and_trains_nothing(
    launched: Callable[[str], Probe], workers: int | None, rounds: int
) -> None:
    probe = launched("data")(Form.LOADING, Settings(loader_workers=workers), batch_size=8)
    assert probe.fits, probe.failure
    measurement = probe.measurement
    assert measurement.steps_executed == (1 + rounds) * (workers or 1)
    assert measurement.observed_batch == 8  # the data set has six samples: they are read over and over
    assert measurement.composition.batch_bytes == 8 * 4 * 8 * 4
    assert measurement.composition.parameters_bytes is None
    assert len(measurement.step_seconds) == rounds
    assert measurement.first_step_seconds is not None
    if workers is None:
        assert min(measurement.step_seconds) >= 8 * 0.005


def test_a_stream_that_ends_too_soon_or_a_workload_without_data_has_no_rate_of_loading(
    launched: Callable[[str], Probe],
) -> None:
    def load(probe: Probe, **options: Any) -> ProbeResult:
        return probe(Form.LOADING, Settings(), **options)

    stream = launched("stream")
    assert load(stream, batch_size=4).measurement.steps_executed == 2
    assert load(stream, batch_size=4).fits
    assert "ends after 1 whole batches of 6" in unsupported(load(stream, batch_size=6))
    assert "no data set" in unsupported(load(launched("blocks")))
