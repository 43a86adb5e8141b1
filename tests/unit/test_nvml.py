"""Asking NVML: by UUID, whatever CUDA_VISIBLE_DEVICES says, and never depended on."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from autotune.probe import nvml
from autotune.probe.nvml import Load
from autotune.probe.visible import Card
from autotune.units import GIB
from tests.planted_nvml import DIVIDED, LARGE, SLICE, SMALL, TOTAL, USED, Planted


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


def test_c25_another_library_of_that_name_is_no_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "_pynvml", ModuleType("pynvml"))
    assert (nvml.used_bytes(LARGE), nvml.driver_version()) == (None, "")
    assert nvml.trouble(LARGE).startswith("nvidia-ml-py and this driver do not go together")


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


def test_what_a_card_does_is_told_in_shares_degrees_and_watts(planted: Callable[..., Planted]) -> None:
    library = planted()
    assert nvml.load("aaaa-24") == Load(
        utilisation=0.87, temperature_celsius=61, power_watts=312.5, power_limit_watts=700
    )
    assert nvml.load(SLICE) == nvml.load("GPU-unknown") == Load(), "instances and strangers tell nothing"
    assert library.open == 0


@pytest.mark.parametrize(("refuse", "left_out"), [("busy", "utilisation"), ("heat", "temperature_celsius")])
def test_c25_one_figure_that_is_refused_takes_no_other_with_it(
    planted: Callable[..., Planted], refuse: str, left_out: str
) -> None:
    planted(refuse=refuse)
    told = nvml.load(LARGE)
    assert getattr(told, left_out) is None
    assert told.power_watts == 312.5


@pytest.mark.parametrize("percent", [-1, 101, "busy"])
def test_c25_a_share_that_cannot_be_is_not_told(planted: Callable[..., Planted], percent: Any) -> None:
    planted(percent=percent)
    assert nvml.load(LARGE).utilisation is None


def test_the_library_is_started_once_for_many_questions_and_closed_again(planted: Callable[..., Planted]) -> None:
    library = planted()
    with nvml.kept_open():
        assert library.open == 1
        nvml.load(LARGE)
        assert library.open == 1
    assert library.open == 0


def test_an_error_while_the_library_is_kept_open_is_not_taken_for_its_own(planted: Callable[..., Planted]) -> None:
    library = planted()
    with pytest.raises(BrokenPipeError, match="the reader is gone"), nvml.kept_open():
        raise BrokenPipeError("the reader is gone")
    assert library.open == 0


def test_c25_a_library_that_cannot_be_started_is_not_kept_open(planted: Callable[..., Planted]) -> None:
    planted(refuse="nvmlInit")
    with nvml.kept_open():
        assert nvml.missing() == "nvmlInit refused"
