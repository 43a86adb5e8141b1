"""Workers of the data loader are found after the settings, with as few loading probes as tell."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from autotune.model import Answer, Form, Measurement, Outcome, ProbeResult, Question, Reason, Settings, Stop
from autotune.search.loading import LoadingFinder
from tests.fakes import BROKEN_MACHINE, result

SETTINGS = Settings()
TRAINED = replace(
    result(32, Form.LONG, reason=Reason.CERTIFY, step_seconds=0.1), settings=SETTINGS
)  # 320 samples a second
ANSWER = Answer(
    max_batch=32, refuted_at=33, recommended_batch=32, limited_by="device_memory", step=1, settings=SETTINGS
)


@dataclass(frozen=True)
class Found:
    """Settings that are found at once."""

    stop: Stop

    def ask(self, history: Sequence[ProbeResult]) -> Question | Stop:
        assert all(p.form is not Form.LOADING for p in history), "loading is none of its business"
        return self.stop

    def conclude(self, history: Sequence[ProbeResult]) -> Stop | None:
        return self.stop


def finder(answer: Answer | None = ANSWER) -> LoadingFinder:
    return LoadingFinder(finder=Found(Stop(reason="found", answer=answer)), workers=(0, 2, 4, 8), pin_memory=True)


def run(speeds: dict[int, float]) -> tuple[Stop, list[int]]:
    """Answer loading probes with these samples per second by number of workers; a number that is missing fails."""
    history: list[ProbeResult] = [TRAINED]
    asked: list[int] = []
    while True:
        reply = finder().ask(history)
        if isinstance(reply, Stop):
            return reply, asked
        workers = reply.settings.loader_workers
        assert (
            workers is not None and reply.form is Form.LOADING and reply.batch_size == 32 and reply.settings.pin_memory
        )
        asked.append(workers)
        seen = result(32, Form.LOADING, None if workers in speeds else BROKEN_MACHINE, reason=reply.reason)
        times = (32 / speeds[workers],) * 3 if workers in speeds else ()
        history.append(replace(seen, settings=reply.settings, measurement=Measurement(step_seconds=times)))


def test_no_worker_is_needed_where_loading_alone_keeps_up() -> None:
    stop, asked = run({0: 400})
    assert asked == [0]
    assert stop.answer is not None and stop.answer.loading is not None
    loading = stop.answer.loading
    assert (loading.workers, loading.pin_memory, loading.data_bound) == (0, True, False)
    assert (loading.samples_per_second, loading.training_samples_per_second) == pytest.approx((400, 320))


def test_workers_are_added_until_they_keep_up() -> None:
    stop, asked = run({0: 100, 2: 190, 4: 380, 8: 700})
    assert asked == [0, 2, 4]
    assert stop.answer is not None and stop.answer.loading is not None
    assert (stop.answer.loading.workers, stop.answer.loading.data_bound) == (4, False)


def test_more_workers_that_do_not_help_end_it_and_training_is_data_bound() -> None:
    stop, asked = run({0: 100, 2: 180, 4: 182, 8: 600})
    assert asked == [0, 2, 4]
    assert stop.answer is not None and stop.answer.loading is not None
    assert (stop.answer.loading.workers, stop.answer.loading.data_bound) == (2, True)


def test_a_failing_loader_ends_it_with_what_is_known() -> None:
    stop, asked = run({0: 100})
    assert asked == [0, 2]
    assert stop.answer is not None and stop.answer.loading is not None
    assert stop.answer.loading.workers == 0
    stop, asked = run({})
    assert asked == [0]
    assert stop.answer == ANSWER


def test_without_an_answer_nothing_is_loaded() -> None:
    stop = finder(None).ask([TRAINED])
    assert stop == Stop(reason="found", answer=None)


def test_what_stands_when_time_is_out_holds_what_was_loaded_by_then() -> None:
    loaded = replace(
        result(32, Form.LOADING, reason=Reason.LOADING),
        settings=replace(SETTINGS, loader_workers=0),
        measurement=Measurement(step_seconds=(0.2, 0.2)),
        outcome=Outcome.FITS,
    )
    stop = finder().conclude([TRAINED, loaded])
    assert stop is not None and stop.answer is not None and stop.answer.loading is not None
    assert stop.answer.loading.samples_per_second == pytest.approx(160)
