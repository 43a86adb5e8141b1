"""Asking NVML: by UUID, whatever CUDA_VISIBLE_DEVICES says, and never depended on."""

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from autotune.probe import nvml
from autotune.units import GIB

LARGE, SMALL, SLICE = "GPU-aaaa-24", "GPU-bbbb-8", "MIG-cccc-10"
USED = {LARGE: 20 * GIB, SMALL: 3 * GIB, SLICE: 1 * GIB}


class Refused(Exception):
    """What the planted library raises."""


@dataclass
class Planted:
    """A library with two cards and a slice of another; it numbers them as it likes."""

    refuse: str = ""
    """Function that raises."""
    version: Any = "580.1"
    open: int = 0

    def module(self) -> Any:
        def call(name: str, answer: Callable[..., Any]) -> Callable[..., Any]:
            def called(*args: Any, **kwargs: Any) -> Any:
                if name == self.refuse:
                    raise Refused(f"{name} refused")
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

        return SimpleNamespace(
            NVMLError=Refused,
            nvmlMemory_v2=2,
            nvmlInit=call("nvmlInit", count(1)),
            nvmlShutdown=count(-1),
            nvmlDeviceGetHandleByUUID=call("handle", handle),
            nvmlDeviceGetMemoryInfo=call("memory", lambda uuid, version: SimpleNamespace(used=USED[uuid])),
            nvmlSystemGetDriverVersion=call("version", lambda: self.version),
        )


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
