"""What CUDA calls device 0, 1, … in an environment, for cards as NVML lists them."""

import pytest

from autotune.probe.visible import Card, visible

LARGE = Card(uuid="GPU-aaaa-24", name="large")
SMALL = Card(uuid="GPU-bbbb-8", name="small")
TWIN = Card(uuid="GPU-aabb-24", name="large")
DIVIDED = Card(uuid="GPU-cccc-80", name="large", slices=("MIG-1111", "MIG-2222"))
BUS = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


@pytest.mark.parametrize(
    ("told", "found"),
    [
        ("0", (LARGE,)),
        ("1", (SMALL,)),
        ("1,0", (SMALL, LARGE)),
        (" 1 , 0 ", (SMALL, LARGE)),
        ("GPU-bbbb-8", (SMALL,)),
        ("GPU-bbbb-8,GPU-aaaa-24", (SMALL, LARGE)),
        ("GPU-b", (SMALL,)),
        ("", ()),
        ("-1", ()),
        ("-1,0", ()),
    ],
)
def test_c24_devices_are_those_that_are_named_in_that_order(told: str, found: tuple[Card, ...]) -> None:
    uuids = tuple(card.uuid for card in found)
    assert visible([LARGE, SMALL], {**BUS, "CUDA_VISIBLE_DEVICES": told}) == uuids


@pytest.mark.parametrize(
    "told",
    ["2", "0,2", "0,0", "0,-1", "GPU-", "GPU-dddd", "GPU-aaaa-24,1", "all", "void", "0,,1", "MIG-GPU-cccc-80/1/0", "²"],
)
def test_c24_unknown_doubtful_and_doubled_names_are_left_to_torch(told: str) -> None:
    assert visible([LARGE, SMALL], {**BUS, "CUDA_VISIBLE_DEVICES": told}) is None


def test_c24_cards_of_several_kinds_are_numbered_by_their_speed_which_only_torch_knows() -> None:
    assert visible([LARGE, SMALL], {"CUDA_VISIBLE_DEVICES": "1"}) is None
    assert visible([LARGE, SMALL], {}) is None
    assert visible([LARGE, SMALL], BUS) == (LARGE.uuid, SMALL.uuid)
    assert visible([LARGE, TWIN], {"CUDA_VISIBLE_DEVICES": "1"}) == (TWIN.uuid,)
    assert visible([LARGE, SMALL], {"CUDA_VISIBLE_DEVICES": "GPU-bbbb-8"}) == (SMALL.uuid,)


def test_c24_an_instance_of_a_divided_card_is_found_by_its_own_uuid_and_is_the_only_device() -> None:
    cards = [LARGE, DIVIDED]
    assert visible(cards, {"CUDA_VISIBLE_DEVICES": "MIG-2222"}) == ("MIG-2222",)
    assert visible(cards, {"CUDA_VISIBLE_DEVICES": "MIG-2222,MIG-1111"}) == ("MIG-2222",)
    assert visible(cards, {"CUDA_VISIBLE_DEVICES": "MIG-3333"}) is None


@pytest.mark.parametrize("told", ["1", "GPU-cccc-80", None])
def test_c24_which_instance_of_a_divided_card_a_process_gets_only_torch_knows(told: str | None) -> None:
    environ = {} if told is None else {"CUDA_VISIBLE_DEVICES": told}
    assert visible([LARGE, DIVIDED], {**BUS, **environ}) is None


def test_c24_an_abbreviation_that_two_cards_share_is_left_to_torch() -> None:
    assert visible([LARGE, TWIN], {"CUDA_VISIBLE_DEVICES": "GPU-aa"}) is None
    assert visible([LARGE, TWIN], {"CUDA_VISIBLE_DEVICES": "GPU-aab"}) == (TWIN.uuid,)
