"""The memory of one step by what it is for: sums agree with the allocator's own count, and no peak is lost on the way."""

import pytest

from autotune.memory.forecast import Forecast, forecast
from autotune.memory.timeline import StepTimeline, foretold_timeline, recorded_timeline, uses_at_peak
from autotune.model import Phase, Trace, Use
from autotune.units import GIB
from tests import recordings
from tests.unit.planted_passes import Planted, trained


def planted() -> Trace:
    return trained(Planted(cache=100_000, saved=lambda batch, layer: 40_000 * batch), (2, 3))


def foretold() -> Forecast:
    made = forecast(planted(), "", 40 * GIB)
    assert isinstance(made, Forecast), made
    return made


def peak(timeline: StepTimeline) -> int:
    return max(sum(moment.by_use) for moment in timeline.moments)


@pytest.mark.parametrize("name", ["gpt2", "resnet50"])
def test_the_peak_is_that_which_the_allocator_counted_on_a_gpu(name: str) -> None:
    """Expandable segments hand out what was asked for, rounded, so that nothing but the sum is in the count."""
    recording = next(r for r in recordings.load() if r.workload == name and r.allocator == "expandable_segments")
    timeline = recorded_timeline(recording.trace)
    assert timeline is not None
    assert peak(timeline) == max(step.allocated_bytes for step in recording.steps)
    assert timeline.batch_size == recording.batch_size


@pytest.mark.parametrize("points", [1, 7, 50, 100_000])
def test_however_few_points_are_kept_the_peak_is_among_them(points: int) -> None:
    few, all_of_them = foretold_timeline(foretold(), 9, points=points), foretold_timeline(foretold(), 9, points=10**9)
    assert few is not None and all_of_them is not None
    assert len(all_of_them.moments) == all_of_them.num_events
    assert peak(few) == peak(all_of_them)
    assert len(few.moments) <= points + 2
    assert {few.moments[0].event, few.moments[-1].event} == {0, few.num_events - 1}


def test_the_phases_of_the_step_follow_one_another_without_a_gap() -> None:
    timeline = foretold_timeline(foretold(), 5)
    assert timeline is not None
    phases = [span.phase for span in timeline.spans]
    assert [p for p in phases if p in (Phase.FORWARD, Phase.BACKWARD)][:2] == [Phase.FORWARD, Phase.BACKWARD]
    ends = [-1, *(span.last_event for span in timeline.spans)]
    assert [span.first_event for span in timeline.spans] == [end + 1 for end in ends[:-1]]
    assert ends[-1] == timeline.num_events - 1


def test_another_size_changes_what_grows_with_it_and_nothing_else() -> None:
    small, large = uses_at_peak(foretold(), 4), uses_at_peak(foretold(), 8)
    assert small[Use.WEIGHTS] == large[Use.WEIGHTS] > 0
    assert large[Use.ACTIVATIONS] > 1.9 * small[Use.ACTIVATIONS]


def test_the_uses_at_the_peak_are_those_of_the_timeline_there() -> None:
    timeline = foretold_timeline(foretold(), 6)
    assert timeline is not None
    top = max(timeline.moments, key=lambda moment: sum(moment.by_use))
    assert uses_at_peak(foretold(), 6) == {
        use: held for use, held in zip(timeline.uses, top.by_use, strict=True) if held
    }


def test_a_recording_that_ended_before_any_step_has_no_timeline() -> None:
    built = planted()
    marks = tuple(mark for mark in built.marks if mark.step == 0)
    stop = next(mark.position for mark in built.marks if mark.step > 0)
    assert recorded_timeline(Trace(built.sizes, (), built.events[:stop], marks, ())) is None
    assert recorded_timeline(Trace((), (), (), (), ())) is None
