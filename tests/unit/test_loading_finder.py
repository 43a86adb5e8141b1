"""Workers of the data loader are found after the settings, with as few loading probes as tell."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from autotune.model import Answer, Cause, Form, Measurement, Outcome, ProbeResult, Question, Reason, Settings, Stop
from autotune.search.loading import LoadingFinder, OwnLoaderFinder
from tests.fakes import BROKEN_MACHINE, Fault, result

SETTINGS = Settings()
SHARED = Fault(outcome=Outcome.HOST_OUT_OF_MEMORY, cause=Cause.SHARED_MEMORY)
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
    assert finder(None).ask([TRAINED]) == finder(None).conclude([TRAINED]) == Stop(reason="found", answer=None)


def test_where_training_was_not_timed_nothing_is_loaded() -> None:
    untimed = replace(TRAINED, measurement=Measurement())
    assert finder().ask([untimed]) == own_finder(2).ask([untimed]) == Stop(reason="found", answer=ANSWER)


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


GIB = 1 << 30


def own_finder(workers: int, host_bytes: int | None = None) -> OwnLoaderFinder:
    found = Found(Stop(reason="found", answer=ANSWER))
    return OwnLoaderFinder(finder=found, workers=workers, pin_memory=False, host_bytes=host_bytes)


def run_own(finder: OwnLoaderFinder, ran: set[int], held: int = 0) -> tuple[Stop, list[int]]:
    """Loading probes with these numbers of workers run at 400 samples a second; others find shared memory full."""
    history: list[ProbeResult] = [replace(TRAINED, measurement=replace(TRAINED.measurement, peak_device_bytes=GIB))]
    asked: list[int] = []
    while True:
        reply = finder.ask(history)
        if isinstance(reply, Stop):
            return reply, asked
        workers = reply.settings.loader_workers
        assert workers is not None and (reply.form, reply.batch_size) == (Form.LOADING, 32)
        asked.append(workers)
        seen = result(32, Form.LOADING, None if workers in ran else SHARED, reason=reply.reason)
        measured = Measurement(step_seconds=(0.08,) * 3 if workers in ran else (), workers_bytes=held * workers)
        history.append(replace(seen, settings=reply.settings, measurement=measured))


@pytest.mark.parametrize(
    ("ran", "asked", "workers"),
    [
        ({5, 2, 1, 0}, [5], 5),
        ({2, 1, 0}, [5, 2], 2),
        ({0}, [5, 2, 1, 0], 0),
        (set(), [5, 2, 1, 0], None),
    ],
)
def test_c22_the_users_own_workers_are_halved_until_they_run(
    ran: set[int], asked: list[int], workers: int | None
) -> None:
    stop, seen = run_own(own_finder(5), ran)
    assert seen == asked
    assert stop.answer is not None
    assert (stop.answer.loading.workers if stop.answer.loading else None) == workers
    assert (stop.answer.max_batch, stop.answer.limited_by) == (32, "device_memory"), "the device's limit stays"


def test_c23_workers_have_to_fit_beside_the_training_where_both_take_the_same_memory() -> None:
    stop, asked = run_own(own_finder(4, host_bytes=2 * GIB), {4, 2, 1, 0}, held=GIB // 2)
    assert asked == [4, 2]
    assert stop.answer is not None and stop.answer.loading is not None
    assert stop.answer.loading.workers == 2
    assert run_own(own_finder(4), {4}, held=GIB)[1] == [4], "a device with memory of its own"


def test_more_workers_are_not_tried_once_they_leave_no_room_for_the_training() -> None:
    trained = replace(TRAINED, measurement=replace(TRAINED.measurement, peak_device_bytes=GIB))
    loaded = [
        replace(
            result(32, Form.LOADING, reason=Reason.LOADING),
            settings=replace(SETTINGS, loader_workers=workers, pin_memory=True),
            measurement=Measurement(step_seconds=(seconds,) * 3, workers_bytes=workers * GIB),
        )
        for workers, seconds in ((0, 0.4), (2, 0.05))
    ]
    stop = replace(finder(), host_bytes=2 * GIB).ask([trained, *loaded])
    assert isinstance(stop, Stop) and stop.answer is not None and stop.answer.loading is not None
    assert stop.answer.loading.workers == 0


def test_a_search_that_was_through_before_its_loader_was_tried_has_its_answer() -> None:
    found = Found(Stop(reason="found", answer=ANSWER))
    finder = OwnLoaderFinder(finder=found, workers=2, pin_memory=False)
    stop = finder.conclude([TRAINED])
    assert stop is not None and stop.answer == ANSWER
