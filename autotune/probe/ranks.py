"""A probe of several ranks that train together: an order for each, and one verdict of what became of them. No torch.

The first rank that failed decides. What the others raise when they lose contact with it decides nothing. A size is safe
if every rank says so, and its peak is that of the rank with the largest.
"""

import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from autotune.errors import AutotuneError
from autotune.model import Failure, Measurement, Outcome, Phase, PhaseMemory, ProbeResult, RankResult
from autotune.probe.ended import Ended
from autotune.probe.order import Order

_LOST_CONTACT = (
    "connection closed by peer",
    "connection reset by peer",
    "broken pipe",
    "nccl remote process",
    "ncclremoteerror",
    "remote process exited",
    "socket error",
    "connection refused",
)
"""What gloo and NCCL say in a rank whose peer is gone, in lower case."""
_ORDER_OF_A_STEP = (Phase.LOAD, Phase.BUILD, Phase.DATA, Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)


def orders(first: Order, meeting: Path, device_uuids: Sequence[str]) -> list[Order]:
    """The orders of all ranks, made of what they have in common: the environment is that of ``torchrun``.

    Args:
        first: of the first rank, without what makes it one of several.
        meeting: file that they find each other by.
        device_uuids: of each rank's device, for NVML; empty where it knows none.
    """
    port = _free_port()
    kind, _, index = first.device.partition(":")
    return [
        replace(
            first,
            rank=rank,
            meeting=str(meeting),
            device=kind if kind == "cpu" else f"{kind}:{int(index or 0) + rank}",
            device_uuid=device_uuids[rank],
            job_environment={**first.job_environment, **_variables(rank, first.ranks, port)},
        )
        for rank in range(first.ranks)
    ]


def standing_in(order: Order, rank: int) -> Order:
    """The order of one process that is to stand in for all ranks, being ``rank``: as if each were on a host of its own,
    since there is one device here."""
    alone = {"LOCAL_RANK": "0", "GROUP_RANK": str(rank), "LOCAL_WORLD_SIZE": "1"}
    variables = _variables(rank, order.ranks, _free_port()) | alone
    return replace(order, rank=rank, job_environment={**order.job_environment, **variables})


def _variables(rank: int, ranks: int, port: int) -> dict[str, str]:
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "GROUP_RANK": "0",
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def _free_port() -> int:
    """A port for groups that the user's own code makes; ours needs none, and nothing of ours listens there."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def verdict(
    ended: Ended, logs: Sequence[tuple[Path, Path]], result: Callable[[Ended, Path, Path], ProbeResult]
) -> ProbeResult:
    """What a probe of several ranks says.

    Args:
        ended: of the first rank, with its peers.
        logs: standard output and error of each.
        result: judges one rank as if it had trained alone.

    Raises:
        AutotuneError: a rank refused its order, and none had failed before.
    """
    all_ended = (ended, *ended.peers)
    found: list[ProbeResult | AutotuneError] = []
    for one, (stdout, stderr) in zip(all_ended, logs, strict=True):
        try:
            found.append(result(one, stdout, stderr))
        except AutotuneError as error:
            found.append(error)
    decisive = _decisive(all_ended, found)
    if decisive is None:
        return _together([one for one in found if isinstance(one, ProbeResult)], all_ended)
    what = found[decisive]
    if isinstance(what, AutotuneError):
        raise type(what)(f"{_name(decisive, len(found))}: {what.message}", hint=what.hint, detail=what.detail) from what
    failure = what.failure
    assert failure is not None
    failure = replace(failure, message=f"{_where(decisive, len(found), failure)}: {failure.message}", rank=decisive)
    if what.outcome is Outcome.TIMED_OUT:
        failure = _out_of_time(failure, all_ended)
    return replace(
        what,
        failure=failure,
        # Others may have moved on the devices of the rest as well: an unreliable probe says nothing of what ranks hold.
        measurement=what.measurement if what.outcome is Outcome.UNRELIABLE else _with_largest(what.measurement, found),
        seconds=ended.seconds,
        ranks=_rows(found, all_ended, decisive),
    )


def _decisive(ended: Sequence[Ended], found: Sequence[ProbeResult | AutotuneError]) -> int | None:
    """The rank whose failure is the probe's; None where all of them fit.

    By time of failure, then by rank; ranks that only lost contact with another, that were stopped, or that ran to their end
    and were not safe come after those that failed by themselves. Of ranks that ran out of time it is the one that is
    furthest behind.
    """

    def key(rank: int) -> tuple[int, float, int]:
        one, what = ended[rank], found[rank]
        if one.stopped:
            return 4, 0.0, rank
        if isinstance(what, ProbeResult) and what.outcome is Outcome.TIMED_OUT:
            return 2, _progress(one), rank
        measured = isinstance(what, ProbeResult) and one.raised_at is None and one.answer is not None
        if measured:
            return 1, 0.0, rank
        lost = isinstance(what, ProbeResult) and _lost_contact(what)
        return 3 if lost else 0, one.raised_at or one.ended_at or 0.0, rank

    failed = [rank for rank, what in enumerate(found) if isinstance(what, AutotuneError) or not what.fits]
    return min(failed, key=key, default=None)


def _lost_contact(result: ProbeResult) -> bool:
    """Whether a rank failed only because another was gone."""
    failure = result.failure
    if failure is None or result.outcome not in (Outcome.WORKLOAD_ERROR, Outcome.CRASHED) or failure.signal:
        return False
    text = failure.message.lower()
    return any(words in text for words in _LOST_CONTACT)


def _progress(ended: Ended) -> float:
    """How far a rank had come, to be compared with others."""
    phase, step, arrived = ended.place
    if ended.answer is not None:
        return float("inf")
    place = _ORDER_OF_A_STEP.index(phase) if phase in _ORDER_OF_A_STEP else len(_ORDER_OF_A_STEP)
    return (step or 0) * 100.0 + place + arrived / 2


def _name(rank: int, ranks: int) -> str:
    return f"rank {rank} of {ranks}"


def _where(rank: int, ranks: int, failure: Failure) -> str:
    step = f", step {failure.step}" if failure.step is not None else ""
    return f"{_name(rank, ranks)}{step}"


def _out_of_time(failure: Failure, ended: Sequence[Ended]) -> Failure:
    """Which rank did not arrive where the others were, as far as that can be told."""
    places = [f"rank {rank} {_place(one)}" for rank, one in enumerate(ended)]
    behind = min(map(_progress, ended))
    late = [rank for rank, one in enumerate(ended) if _progress(one) == behind]
    if len(late) == len(ended):
        message = f"no answer within the time limit, and all ranks had come as far: {places[0]}"
        return replace(failure, message=message, rank=None)
    others = ", ".join(place for rank, place in enumerate(places) if rank not in late)
    missing = ", ".join(places[rank] for rank in late)
    return replace(failure, message=f"no answer within the time limit: {missing}, and was waited for: {others}")


def _place(ended: Ended) -> str:
    """Where a rank was when time was up."""
    phase, step, arrived = ended.place
    if ended.answer is not None:
        return "had ended"
    if phase is None:
        return "had not begun"
    of_step = f" of step {step}" if step is not None else ""
    return f"was in phase {phase}{of_step}" + (" and had called the model" if arrived else "")


def _together(found: Sequence[ProbeResult], ended: Sequence[Ended]) -> ProbeResult:
    """What ranks say of a size that is safe in each."""
    largest = max(found, key=lambda one: one.measurement.peak_device_bytes or 0)
    return replace(
        largest,
        measurement=_with_largest(largest.measurement, found),
        seconds=ended[0].seconds,
        ranks=_rows(found, ended, None),
    )


def _with_largest(measurement: Measurement, found: Sequence[ProbeResult | AutotuneError]) -> Measurement:
    """The same with what has to hold for every rank: the largest memory, and the time of the slowest."""
    all_measured = [one.measurement for one in found if isinstance(one, ProbeResult)]
    peaks: dict[Phase, PhaseMemory] = {}
    for phase in (phase for one in all_measured for phase in one.phases):
        known = peaks.get(phase.phase)
        if known is None or phase.peak_allocated_bytes > known.peak_allocated_bytes:
            peaks[phase.phase] = phase
    outside = [one.non_pytorch_bytes for one in all_measured if one.non_pytorch_bytes is not None]
    times = [one.step_seconds for one in all_measured]
    same = {len(each) for each in times} == {len(measurement.step_seconds)}
    return replace(
        measurement,
        phases=tuple(peaks.values()),
        non_pytorch_bytes=max(outside, default=None),
        step_seconds=tuple(map(max, *times)) if same and len(times) > 1 else measurement.step_seconds,
    )


def _rows(
    found: Sequence[ProbeResult | AutotuneError], ended: Sequence[Ended], decisive: int | None
) -> tuple[RankResult, ...]:
    rows = []
    for rank, (what, one) in enumerate(zip(found, ended, strict=True)):
        if isinstance(what, AutotuneError):
            rows.append(RankResult(rank=rank, outcome=Outcome.WORKLOAD_ERROR))
            continue
        phase, step, _ = (None, None, False) if what.fits else one.place
        measured = what.measurement
        only_followed = rank != decisive and (one.stopped or _lost_contact(what))
        rows.append(
            RankResult(
                rank=rank,
                outcome=None if only_followed else what.outcome,
                phase=phase,
                step=step,
                steps_executed=measured.steps_executed,
                peak_allocated_bytes=measured.peak_allocated_bytes,
                peak_reserved_bytes=measured.peak_reserved_bytes,
                non_pytorch_bytes=measured.non_pytorch_bytes,
                peak_device_bytes=measured.peak_device_bytes,
            )
        )
    return tuple(rows)
