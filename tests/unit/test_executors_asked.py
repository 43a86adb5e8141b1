"""Where probes are to run: what is understood of it, and what is refused with what to type instead."""

import importlib.util

import pytest

from autotune.errors import EnvironmentTrouble, UsageError
from autotune.executors.asked import OPTIONS, Kind, make_execution
from autotune.probe import nvml
from autotune.probe.visible import Card

CARDS = tuple(Card(uuid=f"GPU-{number}", name="Planted 40") for number in range(3))


@pytest.fixture
def three_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host with three devices."""
    monkeypatch.setattr(nvml, "cards", lambda: CARDS)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """All executors' libraries are there."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())


def test_one_device_of_this_host_needs_no_worker() -> None:
    for workers in (None, 1, "1"):
        assert make_execution("cuda:1", workers=workers).is_plain


def test_a_number_takes_that_many_devices_from_the_first_on(three_cards: None) -> None:
    for device in ("auto", "cuda"):
        found = make_execution(device, workers="2")
        assert (found.workers, found.devices, found.is_plain) == (2, ("cuda:0", "cuda:1"), False)
    assert make_execution("cuda", workers="all").devices == ("cuda:0", "cuda:1", "cuda:2")
    assert make_execution("cpu", workers=2).devices == ("cpu", "cpu")


def test_devices_can_be_named_also_one(three_cards: None) -> None:
    assert make_execution("auto", workers="cuda:0, cuda:2").devices == ("cuda:0", "cuda:2")
    assert not make_execution("auto", workers="cuda:2").is_plain


def test_what_cuda_does_not_see_is_not_counted(three_cards: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,2")
    assert make_execution("cuda", workers="all").devices == ("cuda:0", "cuda:1")
    with pytest.raises(EnvironmentTrouble, match="needs as many devices, and 2 can be seen here"):
        make_execution("cuda", workers=3)


def test_without_a_card_auto_means_the_cpu_and_all_means_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "cards", lambda: ())
    assert make_execution("auto", workers=2).devices == ("cpu", "cpu")
    with pytest.raises(EnvironmentTrouble, match="finds no CUDA device"):
        make_execution("auto", workers="all")


@pytest.mark.parametrize(
    ("device", "workers", "message"),
    [
        ("auto", "0", "'0' is no device"),
        ("auto", "cuda:0,tpu", "'tpu' is no device"),
        ("auto", "cuda:0,cuda:0", "names cuda:0 twice"),
        ("auto", 0, "--workers is 0"),
        ("auto", True, "--workers is True"),
        ("auto", 2000, "--workers is 2000"),
        ("cuda:1", 2, "--workers 2 and --device cuda:1 contradict each other"),
        ("auto", "", "'' is no device"),
    ],
)
def test_workers_that_make_no_sense_are_refused(device: str, workers: str | int, message: str) -> None:
    with pytest.raises(UsageError, match=message) as error:
        make_execution(device, workers=workers)
    assert error.value.hint


def test_an_executor_that_is_not_known_is_refused_with_those_that_are() -> None:
    with pytest.raises(UsageError) as error:
        make_execution("auto", executor="dask")
    assert error.value.hint == "use one of local, slurm, ray"


@pytest.mark.parametrize(("executor", "library"), [("slurm", "submitit"), ("ray", "ray")])
def test_a_library_that_is_missing_is_named_with_the_command_that_installs_it(
    executor: str, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EnvironmentTrouble, match=f"needs {library}, which is not installed") as error:
        make_execution("auto", executor=executor, workers=2)
    assert error.value.hint == f'pip install "autotune-torch[{executor}]"'


def test_options_are_those_of_the_executor(libraries: None) -> None:
    slurm = make_execution("cuda", executor="slurm", workers="4", executor_options=["partition=gpu", "timeout_min=60"])
    assert (slurm.kind, slurm.workers, dict(slurm.options)) == (
        Kind.SLURM,
        4,
        {"partition": "gpu", "timeout_min": "60"},
    )
    ray = make_execution("cuda", executor="ray", executor_options=["address=ray-head:6379", "num_gpus=0.5"])
    assert (ray.workers, dict(ray.options), ray.is_plain) == (
        1,
        {"address": "ray-head:6379", "num_gpus": "0.5"},
        False,
    )


@pytest.mark.parametrize(
    ("executor", "option", "hint"),
    [
        ("local", "partition=gpu", "its options are: none"),
        ("ray", "partition=gpu", "its options are: address, num_gpus, num_cpus, reconnect_s"),
        ("slurm", "partition", "its options are: partition"),
        ("slurm", "mem_gb=many", "mem_gb takes a whole number from 1 on"),
        ("slurm", "cluster=pbs", "cluster takes slurm, local"),
        ("ray", "num_cpus=-1", "num_cpus takes a number"),
    ],
)
def test_options_that_make_no_sense_are_refused(executor: str, option: str, hint: str, libraries: None) -> None:
    with pytest.raises(UsageError) as error:
        make_execution("auto", executor=executor, executor_options=[option])
    assert hint in error.value.hint


def test_an_option_given_twice_and_workers_elsewhere_without_a_number_are_refused(libraries: None) -> None:
    with pytest.raises(UsageError, match="names partition twice"):
        make_execution("auto", executor="slurm", executor_options=["partition=a", "partition=b"])
    with pytest.raises(UsageError, match="--workers all says no number"):
        make_execution("auto", executor="ray", workers="all")


def test_every_executor_says_which_options_it_takes() -> None:
    assert set(OPTIONS) == set(Kind)
