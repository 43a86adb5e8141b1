"""The model of what knobs are worth: it learns from bundles, and knows how little it knows."""

from math import exp, log, pi, sqrt

import pytest

from autotune.model import Checkpointing, Compile, OptimizerKind, Precision, Settings
from autotune.search.settings.effects import Effect, Effects, Expectation, Features
from autotune.search.settings.priors import features, needs_no_less, of_room, of_speed
from autotune.search.settings.room import Saturation, saturation

A: Effect = ("a", "1")
B: Effect = ("b", "1")
PRIOR = {A: Expectation(0.3, 0.3), B: Expectation(0.0, 0.03)}
BF16, FP16 = Settings(precision=Precision.BF16), Settings(precision=Precision.FP16)


def learned(*measured: tuple[Features, float]) -> Effects:
    effects = Effects(PRIOR, interplay=0.01)
    for had, value in measured:
        effects.learn(had, value)
    return effects


def test_nothing_is_predicted_from_nothing() -> None:
    with pytest.raises(ValueError, match="nothing measured"):
        learned().predict({A: 1.0})


def test_before_any_change_was_measured_what_was_known_beforehand_is_expected() -> None:
    expected = learned(({}, 1.0)).predict({A: 1.0})
    assert expected.mean == pytest.approx(1.3)
    assert expected.deviation == pytest.approx(0.3, abs=0.01)


def test_one_probe_outweighs_what_was_known_beforehand() -> None:
    expected = learned(({}, 0.0), ({A: 1.0}, -0.1)).predict({A: 1.0, B: 1.0})
    assert expected.mean == pytest.approx(-0.1, abs=0.005)
    assert expected.deviation < 0.04


def test_a_bundle_is_put_down_to_the_knob_that_was_doubtful() -> None:
    effects = learned(({}, 0.0), ({A: 1.0, B: 1.0}, 0.8))
    assert effects.difference({A: 1.0}, {}).mean > 0.7
    assert abs(effects.difference({B: 1.0}, {}).mean) < 0.02


def test_what_a_bundle_tells_is_shared_by_what_was_doubtful_and_ties_its_knobs_together() -> None:
    """Bayes by hand: a gain of 0.8, of which 0.5 was not expected."""
    effects = learned(({}, 1.0), ({A: 1.0, B: 1.0}, 1.8))
    noise = 2 * 0.01**2 + (0.15 * 0.8) ** 2
    variance = 0.3**2 + 0.03**2 + noise
    means = 0.3 + 0.09 * 0.5 / variance, 0.0009 * 0.5 / variance
    seen = [effects.difference(had, {}) for had in ({A: 1.0}, {B: 1.0})]
    assert [one.mean for one in seen] == pytest.approx(means)
    both = effects.difference({A: 1.0, B: 1.0}, {})
    assert both.mean == pytest.approx(sum(means))
    left = variance - noise - (variance - noise) ** 2 / variance
    interplay = sum(0.01**2 + (0.15 * mean) ** 2 for mean in means)
    assert both.deviation == pytest.approx(sqrt(left + interplay))


def test_a_prediction_starts_from_the_nearest_settings() -> None:
    """Whatever made the bundle so fast is kept, though the model would not say so from the origin."""
    effects = learned(({}, 0.0), ({A: 1.0}, 0.3), ({A: 1.0, B: 1.0}, 0.9))
    assert effects.predict({A: 1.0, B: 1.0, ("c", "1"): 0.0}).mean == pytest.approx(0.9, abs=0.01)


def test_expected_improvement_counts_losses_as_none() -> None:
    assert Expectation(1.2, 0.0).improvement(1.0) == pytest.approx(0.2)
    assert Expectation(0.8, 0.0).improvement(1.0) == 0.0
    assert Expectation(1.0, 0.1).improvement(1.0) == pytest.approx(0.1 / sqrt(2 * pi))
    assert 0 < Expectation(0.9, 0.1).improvement(1.0) < 0.01


def test_compiled_fp16_is_expected_to_be_as_fast_as_compiled_bf16_whatever_it_was_before() -> None:
    effects = Effects(of_speed("cuda", 0.0), interplay=0.01)
    compiled = Settings(precision=Precision.BF16, compile=Compile.DEFAULT)
    for settings, value in ((Settings(), 0.0), (BF16, 0.6), (FP16, 0.85), (compiled, 1.0)):
        effects.learn(features(settings), value)
    expected = effects.predict(features(Settings(precision=Precision.FP16, compile=Compile.DEFAULT)))
    assert expected.mean == pytest.approx(0.99, abs=0.01)


def test_settings_that_are_the_users_own_have_no_effects() -> None:
    assert features(Settings()) == {}
    assert features(Settings(accumulate=4)) == {}


def test_every_effect_of_every_value_has_an_expectation() -> None:
    every = Settings(
        precision=Precision.FP16,
        init_scale=1024.0,
        checkpointing=Checkpointing.ALTERNATE,
        compile=Compile.MAX_AUTOTUNE,
        activation_budget=0.3,
        optimizer=OptimizerKind.FOR_LOOP,
        set_to_none=False,
        allocator="expandable_segments:True",
    )
    for known in (of_speed("cuda", 0.1), of_speed("cpu", 0.1), of_room()):
        assert all(known[effect].deviation > 0 for effect in features(every))


def test_what_saves_less_memory_and_adds_nothing_needs_no_less() -> None:
    own = Settings(checkpointing=Checkpointing.OWN)
    benchmark = Settings(cudnn_benchmark=True)
    both = Settings(precision=Precision.BF16, checkpointing=Checkpointing.OWN)
    assert needs_no_less(features(Settings()), features(own))
    assert needs_no_less(features(own), features(both))
    assert needs_no_less(features(FP16), features(BF16))
    assert not needs_no_less(features(both), features(own))
    assert not needs_no_less(features(Settings()), features(benchmark)), "its workspace may be what did not fit"
    assert not needs_no_less(features(Settings()), features(Settings(compile=Compile.DEFAULT)))


def test_saturation_is_read_from_the_smallest_and_the_fastest_size() -> None:
    speeds = {size: 100 * size / (size + 3) for size in (2, 8, 32)}
    found = saturation(speeds)
    assert found is not None and found.half == pytest.approx(3)
    assert found.gain(8, 32) == pytest.approx(log(speeds[32] / speeds[8]))
    enough = found.enough(64, 0.01)
    assert enough < 64
    assert enough / (enough + 3) == pytest.approx(0.99 * 64 / 67)
    assert saturation({8: 100.0}) is None


def test_above_a_peak_nothing_is_gained() -> None:
    found = saturation({4: 30.0, 16: 60.0, 64: 70.0, 256: 10.0})
    assert found is not None and found.peak == 64
    assert found.gain(64, 1000) == 0.0
    assert found.gain(16, 1000) == found.gain(16, 64) > 0


def test_a_step_that_takes_as_long_whatever_its_size_is_far_from_saturation() -> None:
    found = saturation({8: 10.0, 16: 20.0})
    assert found is not None
    assert exp(found.gain(16, 32)) == pytest.approx(2.0, rel=0.1)


def test_where_a_smaller_batch_is_as_fast_nothing_is_gained_by_a_larger_one() -> None:
    assert saturation({8: 10.0, 16: 10.0}) == Saturation(0.0)
