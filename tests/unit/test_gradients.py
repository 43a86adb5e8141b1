"""Gradients and buffers of two runs side by side."""

import math

import pytest
import torch
from torch import nn

from autotune.probe import buffers, gradients
from autotune.probe.gradients import Pair


def with_gradients(*grads: list[float] | None) -> nn.Module:
    """A model of vectors with these gradients."""
    model = nn.ParameterList([nn.Parameter(torch.zeros(2)) for _ in grads])
    for parameter, grad in zip(model, grads, strict=True):
        parameter.grad = None if grad is None else torch.tensor(grad)
    return model


def test_gradients_are_kept_without_the_scale_and_without_those_that_are_missing() -> None:
    kept = gradients.keep(with_gradients([2.0, 4.0], None), 2.0)
    assert {name: grad.tolist() for name, grad in kept.items()} == {"0": [1.0, 2.0]}
    assert gradients.mean_square(kept) == 2.5
    assert gradients.mean_square({}) == 0


def test_what_is_kept_does_not_change_with_the_model() -> None:
    model = with_gradients([1.0, 1.0])
    kept = gradients.keep(model, 1.0)
    model.get_parameter("0").grad.zero_()  # type: ignore[union-attr]
    assert kept["0"].tolist() == [1.0, 1.0]


def test_gradients_are_paired_by_name_and_a_zero_beside_nothing_is_nothing() -> None:
    kept = gradients.keep(with_gradients([3.0, 4.0], None, None, [1.0, 0.0]), 1.0)
    pairs = gradients.compare(with_gradients([4.0, 3.0], [0.0, 0.0], [0.0, 2.0], None), 1.0, kept)
    assert pairs == {"0": Pair(24.0, 25.0, 25.0, 2), "2": Pair(0.0, 4.0, 0.0, 2)}


def test_sparse_gradients_are_compared_like_dense_ones() -> None:
    def trained(*, sparse: bool) -> nn.Module:
        torch.manual_seed(0)
        words = nn.Embedding(5, 3, sparse=sparse)
        words(torch.tensor([1, 1, 4])).pow(2).sum().backward()
        return words

    kept = gradients.keep(trained(sparse=False), 1.0)
    sparse = trained(sparse=True)
    assert gradients.is_finite(sparse)
    assert gradients.cosine(gradients.compare(sparse, 1.0, kept).values()) == pytest.approx(1)


def test_the_angle_and_the_length_are_those_of_one_long_vector() -> None:
    pairs = [Pair(0.0, 1.0, 1.0, 1), Pair(4.0, 4.0, 4.0, 1)]
    assert gradients.cosine(pairs) == pytest.approx(4 / 5)
    assert gradients.norm_ratio([Pair(0.0, 9.0, 1.0, 1), Pair(0.0, 7.0, 3.0, 1)]) == 2


@pytest.mark.parametrize(
    "pairs", [[], [Pair(0.0, 0.0, 1.0, 1)], [Pair(0.0, 1.0, 0.0, 1)], [Pair(math.nan, math.nan, 1.0, 1)]]
)
def test_there_is_no_angle_with_nothing(pairs: list[Pair]) -> None:
    assert gradients.cosine(pairs) is None
    assert gradients.norm_ratio(pairs) is None


def test_straying_is_one_less_cosine_for_equal_lengths_and_sees_lengths_too() -> None:
    assert Pair(0.8, 1.0, 1.0, 2).strayed == pytest.approx(0.2)
    assert Pair(1.0, 1.0, 1.0, 2).strayed == 0
    assert Pair(2.0, 4.0, 1.0, 2).strayed == 0.5  # twice as long
    assert Pair(0.0, 0.0, 0.0, 2).strayed == 0
    for lost in (Pair(0.0, 1.0, 0.0, 2), Pair(math.nan, math.nan, 1.0, 2), Pair(0.0, math.inf, 1.0, 2)):
        assert lost.strayed == math.inf


def test_a_large_gradient_is_summed_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradients, "_CHUNK", 3)
    kept = {"weight": torch.arange(8.0)}
    model = nn.Linear(8, 1, bias=False)
    model.weight.grad = torch.arange(8.0).reshape(1, 8)
    kept = gradients.keep(model, 1.0)
    assert gradients.compare(model, 1.0, kept)["weight"] == Pair(140.0, 140.0, 140.0, 8)


# --- buffers ----------------------------------------------------------------------------------------------------------


def differing(found: float, reference: float, before: float, rounding: float = 0.0) -> bool:
    """Whether a buffer of one number differs, with 5 % of its movement and 4 times its rounding let pass."""
    after, expected, start = ({"mean": torch.tensor([value])} for value in (found, reference, before))
    return buffers.differing(after, expected, start, rounding={"mean": rounding}, share=0.05, times=4.0) == ("mean",)


def test_a_buffer_is_judged_by_how_far_the_step_moved_it() -> None:
    assert not differing(1.104, 1.1, 1.0)
    assert differing(1.106, 1.1, 1.0)
    assert differing(1.19, 1.1, 1.0)  # moved twice
    assert not differing(1.19, 1.1, 1.0, rounding=0.025)
    assert differing(1001.0, 1000.0, 1000.0)  # should not have moved
    assert not differing(1000.0001, 1000.0, 1000.0)  # as near as its number format has numbers


def test_counters_and_masks_are_compared_without_rounding() -> None:
    def found(value: torch.Tensor, reference: torch.Tensor) -> tuple[str, ...]:
        known = {"b": reference}
        return buffers.differing({"b": value}, known, known, rounding={}, share=0.05, times=4.0)

    assert found(torch.tensor(2), torch.tensor(1)) == ("b",)
    assert found(torch.tensor([True, False]), torch.tensor([True, True])) == ("b",)
    infinite = torch.tensor([0.0, -math.inf])
    assert found(infinite, infinite) == ()
    assert found(torch.tensor([0.0, 0.0]), infinite) == ("b",)
    assert found(torch.zeros(2), torch.zeros(3)) == ("b",)
    assert found(torch.tensor([math.nan]), torch.tensor([1.0])) == ("b",)


def test_buffers_are_put_back_where_they_still_fit() -> None:
    norm = nn.BatchNorm1d(2)
    kept = buffers.keep(norm)
    norm(torch.randn(4, 2))
    norm.register_buffer("later", torch.ones(1))
    buffers.put_back(norm, kept)
    assert all(torch.equal(buffers.keep(norm)[name], kept[name]) for name in kept)
