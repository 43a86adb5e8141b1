"""Asking NVML: by UUID, whatever CUDA_VISIBLE_DEVICES says, and never depended on."""

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from autotune.probe import nvml
from autotune.probe.visible import Card
from autotune.units import GIB

LARGE, SMALL, DIVIDED, SLICE = "GPU-aaaa-24", "GPU-bbbb-8", "GPU-cccc-80", "MIG-cccc-10"
USED = {LARGE: 20 * GIB, SMALL: 3 * GIB, SLICE: 1 * GIB, DIVIDED: 2 * GIB}
TOTAL = {LARGE: 24 * GIB, SMALL: 8 * GIB, SLICE: 10 * GIB, DIVIDED: 80 * GIB}
LISTED = (LARGE, SMALL, DIVIDED)
"""In the order of their buses."""


class Refused(Exception):
    """What the planted library raises."""


@dataclass
class Planted:
    """A library with two cards and a slice of another; it numbers them as it likes."""

    refuse: str = ""
    """Function that raises."""
    version: Any = "580.1"
    text: Callable[[str], Any] = str
    """How texts come: old libraries answer in bytes."""
    used: dict[str, int] = field(default_factory=lambda: dict(USED))
    total: dict[str, int] = field(default_factory=lambda: dict(TOTAL))
    without: str = ""
    """A name that this version of the library lacks."""
    raises: type[Exception] = Refused
    open: int = 0

    def module(self) -> Any:
        def call(name: str, answer: Callable[..., Any]) -> Callable[..., Any]:
            def called(*args: Any, **kwargs: Any) -> Any:
                if name == self.refuse:
                    raise self.raises(f"{name} refused")
                return answer(*args, **kwargs)

            return called

        def count(by: int) -> Callable[[], None]:
            def counted() -> None:
                self.open += by

            return counted

        def handle(uuid: str) -> str:
            if uuid not in USED:
                raise Refused("not found")
            return uuid

        def mode(uuid: str) -> list[int]:
            if uuid == SMALL:
                raise Refused("not supported")
            return [1, 1] if uuid == DIVIDED else [0, 0]

        def slice_of(uuid: str, index: int) -> str:
            if index > 0:
                raise Refused("not found")
            return SLICE

        def running(uuid: str) -> list[Any]:
            return [SimpleNamespace(pid=7, usedGpuMemory=GIB), SimpleNamespace(pid=8, usedGpuMemory=None)]

        library = SimpleNamespace(
            NVMLError=Refused,
            nvmlMemory_v2=2,
            nvmlInit=call("nvmlInit", count(1)),
            nvmlShutdown=count(-1),
            nvmlDeviceGetHandleByUUID=call("handle", handle),
            nvmlDeviceGetMemoryInfo=call(
                "memory", lambda uuid, version: SimpleNamespace(used=self.used[uuid], total=self.total[uuid])
            ),
            nvmlSystemGetDriverVersion=call("version", lambda: self.version),
            nvmlDeviceGetCount=call("count", lambda: len(LISTED)),
            nvmlDeviceGetHandleByIndex=LISTED.__getitem__,
            nvmlDeviceGetUUID=lambda uuid: self.text(uuid),
            nvmlDeviceGetName=call("name", lambda uuid: self.text(f"card {uuid[4]}")),
            nvmlDeviceGetMigMode=mode,
            nvmlDeviceGetMaxMigDeviceCount=lambda uuid: 7,
            nvmlDeviceGetMigDeviceHandleByIndex=slice_of,
            nvmlDeviceGetComputeRunningProcesses=call("running", running),
            nvmlDeviceGetGraphicsRunningProcesses=lambda uuid: running(uuid)[:1],
        )
        if self.without:
            delattr(library, self.without)
        return library


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Planted]:
    def plant(**options: Any) -> Planted:
        made = Planted(**options)
        monkeypatch.setattr(nvml, "_pynvml", made.module())
        return made

    return plant


@pytest.mark.parametrize("visible", ["1", "1,0", SMALL, SLICE, ""])
@pytest.mark.parametrize("uuid", [LARGE, SMALL, SLICE])
def test_c24_the_card_is_found_by_its_uuid_whatever_is_visible(
    planted: Callable[..., Planted], monkeypatch: pytest.MonkeyPatch, visible: str, uuid: str
) -> None:
    library = planted()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert nvml.used_bytes(uuid) == USED[uuid]
    assert nvml.trouble(uuid) == ""
    assert library.open == 0, "closed again"


def test_c24_torch_leaves_out_the_prefix_of_a_whole_card(planted: Callable[..., Planted]) -> None:
    planted()
    assert nvml.used_bytes("aaaa-24") == USED[LARGE]


@pytest.mark.parametrize("uuid", ["", "GPU-unknown", "MIG-unknown"])
def test_c24_an_unknown_card_is_not_taken_for_another(planted: Callable[..., Planted], uuid: str) -> None:
    library = planted()
    assert nvml.used_bytes(uuid) is None
    assert nvml.trouble(uuid) in ("torch does not say which device it is", "not found")
    assert library.open == 0


@pytest.mark.parametrize("refuse", ["nvmlInit", "handle", "memory"])
def test_c25_a_library_that_refuses_says_why_and_ends_nothing(planted: Callable[..., Planted], refuse: str) -> None:
    library = planted(refuse=refuse)
    assert nvml.used_bytes(LARGE) is None
    assert nvml.trouble(LARGE) == f"{refuse} refused"
    assert library.open == 0


def test_c25_without_the_package_nothing_is_known_and_nothing_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "_pynvml", None)
    assert (nvml.used_bytes(LARGE), nvml.driver_version()) == (None, "")
    assert nvml.trouble(LARGE) == "nvidia-ml-py is not installed"


@pytest.mark.parametrize(("version", "text"), [("580.1", "580.1"), (b"580.1", "580.1")])
def test_c25_bytes_are_read_as_text(planted: Callable[..., Planted], version: Any, text: str) -> None:
    planted(version=version)
    assert nvml.driver_version() == text


def test_c25_a_driver_without_a_version_is_an_empty_one(planted: Callable[..., Planted]) -> None:
    planted(refuse="version")
    assert nvml.driver_version() == ""


@pytest.mark.parametrize("text", [str, str.encode])
def test_c24_cards_are_listed_in_the_order_of_their_buses_with_their_instances(
    planted: Callable[..., Planted], text: Callable[[str], Any]
) -> None:
    library = planted(text=text)
    assert nvml.cards() == (
        Card(uuid=LARGE, name="card a"),
        Card(uuid=SMALL, name="card b"),
        Card(uuid=DIVIDED, name="card c", slices=(SLICE,)),
    )
    assert library.open == 0


def test_c24_torch_leaves_out_the_prefix_of_an_instance_as_well(planted: Callable[..., Planted]) -> None:
    planted()
    assert nvml.used_bytes("cccc-10") == USED[SLICE]


def test_c24_a_card_of_another_size_than_torch_sees_is_another_card(planted: Callable[..., Planted]) -> None:
    planted()
    assert nvml.trouble(LARGE, int(23.5 * GIB)) == "", "the driver keeps something for itself"
    assert nvml.trouble(LARGE, 8 * GIB) == "it speaks of a device of 24 GiB, torch of one of 8 GiB"


@pytest.mark.parametrize(("used", "total"), [(25 * GIB, 24 * GIB), (-1, 24 * GIB), (0, 0)])
def test_c25_figures_that_cannot_be_are_not_used(planted: Callable[..., Planted], used: int, total: int) -> None:
    planted(used={**USED, LARGE: used}, total={**TOTAL, LARGE: total})
    assert nvml.used_bytes(LARGE) is None
    assert nvml.trouble(LARGE) == f"it says that {used} of {total} bytes are in use"


@pytest.mark.parametrize("raises", [OSError, TypeError, UnicodeError, AttributeError])
def test_c25_a_library_that_breaks_in_its_own_way_ends_nothing(
    planted: Callable[..., Planted], raises: type[Exception]
) -> None:
    library = planted(refuse="memory", raises=raises)
    assert nvml.used_bytes(LARGE) is None
    assert "memory refused" in nvml.trouble(LARGE)
    assert library.open == 0


@pytest.mark.parametrize("without", ["nvmlMemory_v2", "nvmlDeviceGetHandleByUUID"])
def test_c25_an_old_library_that_lacks_a_call_ends_nothing(planted: Callable[..., Planted], without: str) -> None:
    planted(without=without)
    assert nvml.used_bytes(LARGE) is None
    assert without in nvml.trouble(LARGE)


@pytest.mark.parametrize("refuse", ["nvmlInit", "count", "name"])
def test_c25_without_an_answer_no_cards_are_listed(planted: Callable[..., Planted], refuse: str) -> None:
    planted(refuse=refuse)
    assert nvml.cards() == ()


def test_processes_are_listed_once_and_their_bytes_where_they_are_told(planted: Callable[..., Planted]) -> None:
    planted()
    assert nvml.tenants(LARGE) == ((7, GIB), (8, None))
    assert nvml.capacity_bytes(LARGE) == 24 * GIB
    planted(refuse="running")
    assert nvml.tenants(LARGE) is None


def test_c25_why_the_library_cannot_be_asked_at_all(planted: Callable[..., Planted]) -> None:
    planted()
    assert nvml.missing() == ""
    planted(refuse="nvmlInit")
    assert nvml.missing() == "nvmlInit refused"
