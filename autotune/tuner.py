"""The loop: ask -> probe -> record -> repeat. Knows no implementation, keeps no state of its own."""

from collections.abc import Callable, Sequence

from autotune.errors import TimeRanOut
from autotune.model import Budget, ProbeResult, Stop
from autotune.ports import Observer, Prober, Recorder, Strategy


def tune(
    strategy: Strategy,
    prober: Prober,
    recorder: Recorder,
    observer: Observer,
    budget: Budget,
    history: Sequence[ProbeResult] = (),
    out_of_time: Callable[[], bool] = lambda: False,
    conclude: Callable[[Sequence[ProbeResult]], Stop | None] = lambda history: None,
    reserve_bytes: int = 0,
) -> tuple[Stop | None, tuple[ProbeResult, ...]]:
    """Run probes until the strategy stops or time is out.

    Every result is recorded before the next question is asked, so that nothing measured is ever lost.

    Args:
        strategy: a pure function of the history.
        history: probes already known, oldest first (a resumed search).
        out_of_time: asked before each probe.
        conclude: what stands by then, when time is out.
        reserve_bytes: device memory outside PyTorch's allocator that probes beside the history were seen to hold.

    Returns:
        The stop (that of ``conclude`` when time ran out) and the whole history.
    """
    known = list(history)
    while True:
        asked = strategy.ask(known)
        if isinstance(asked, Stop):
            return asked, tuple(known)
        if out_of_time():
            return conclude(known), tuple(known)
        number = len(known) + 1
        observer.asked(asked, number)
        try:
            result = prober.probe(asked, budget, max(reserve_bytes, non_pytorch_bytes(known)))
        except TimeRanOut:  # while others held the device: nothing was run
            return conclude(known), tuple(known)
        recorder.add(result)
        known.append(result)
        observer.answered(result, number)


def non_pytorch_bytes(history: Sequence[ProbeResult]) -> int:
    """Most device memory any probe so far held outside PyTorch's allocator; 0 before the first."""
    return max((result.measurement.non_pytorch_bytes or 0 for result in history), default=0)
