"""Where probes are to run, from what a person typed. Every refusal names the value and what to give instead."""

import importlib.util
import operator
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import SupportsIndex, TypedDict

from autotune.arguments import texts
from autotune.errors import EnvironmentTrouble, UsageError

MOST_WORKERS = 1024
_DEVICE = re.compile(r"cpu|(?:cuda)(?::\d+)?")
_WHOLE = re.compile(r"[1-9]\d{0,8}")
_NUMBER = re.compile(r"\d{1,6}(?:\.\d{1,6})?")


class Kind(StrEnum):
    """What runs the workers."""

    LOCAL = "local"
    """Processes of this host, one for each device."""
    SLURM = "slurm"
    """Jobs, submitted by submitit."""
    RAY = "ray"
    """Actors of a Ray cluster."""


OPTIONS: Mapping[Kind, Mapping[str, str]] = {
    Kind.LOCAL: {},
    Kind.SLURM: {
        "partition": "",
        "account": "",
        "qos": "",
        "constraint": "",
        "timeout_min": "whole",
        "mem_gb": "whole",
        "cpus_per_task": "whole",
        "gpus_per_node": "whole",
        "folder": "",
        "cluster": "slurm|local",
    },
    Kind.RAY: {"address": "", "num_gpus": "number", "num_cpus": "number", "reconnect_s": "number"},
}
"""Executor -> its options -> what they take: any text, ``whole`` numbers from 1 on, a ``number``, or one of several words."""
_LIBRARY = {Kind.SLURM: "submitit", Kind.RAY: "ray"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """Where probes are to run."""

    kind: Kind = Kind.LOCAL
    workers: int = 1
    devices: tuple[str, ...] = ()
    """Of the local workers, one each; empty = each worker has the device of the plan."""
    options: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def is_plain(self) -> bool:
        """Whether it is one device of this host, for which no worker is needed."""
        return self.kind is Kind.LOCAL and self.workers == 1 and not self.devices


class Where(TypedDict, total=False):
    """Where probes run, as it may be asked for; ``find_max_batch`` explains each."""

    executor: str
    workers: str | int | None
    executor_options: Sequence[str]


def make_execution(
    device: str, *, executor: str = "local", workers: str | int | None = None, executor_options: Sequence[str] = ()
) -> Execution:
    """Check where probes are to run.

    Args:
        device: of the plan; local workers on CUDA take as many of its kind, from the first on.
        executor: ``local``, ``slurm`` or ``ray``.
        workers: how many; for ``local`` also ``all`` or names of devices, ``cuda:0,cuda:2``; None = one.
        executor_options: as ``NAME=VALUE``.

    Raises:
        UsageError: a value makes no sense.
        EnvironmentTrouble: the executor's library is not installed, or there are not so many devices.
    """
    kinds = [kind.value for kind in Kind]
    if executor not in kinds:
        raise UsageError(f"executor {executor!r} is not known", hint=f"use one of {', '.join(kinds)}")
    kind = Kind(executor)
    checked = _options(kind, texts("executor_options", executor_options))
    library = _LIBRARY.get(kind)
    if library is not None and importlib.util.find_spec(library) is None:
        raise EnvironmentTrouble(
            f"--executor {kind} needs {library}, which is not installed",
            hint=f'pip install "autotune-torch[{kind}]"',
        )
    if kind is Kind.LOCAL:
        return _local(workers, device)
    if isinstance(workers, str) and not _WHOLE.fullmatch(workers):
        raise UsageError(
            f"--workers {workers} says no number", hint=f"give --executor {kind} a number of workers, as in --workers 4"
        )
    return Execution(kind=kind, workers=1 if workers is None else _count(workers), options=checked)


def _local(workers: str | int | None, device: str) -> Execution:
    if workers is None:
        return Execution()
    if isinstance(workers, str) and not _WHOLE.fullmatch(workers):
        names = _all_devices(device) if workers == "all" else tuple(name.strip() for name in workers.split(","))
        wrong = [name for name in names if not _DEVICE.fullmatch(name)]
        if wrong:
            raise UsageError(
                f"--workers {workers}: {wrong[0]!r} is no device",
                hint="give a number, all, or devices between commas: --workers cuda:0,cuda:1",
            )
        doubled = [name for name in names if name != "cpu" and names.count(name) > 1]
        if doubled:
            raise UsageError(
                f"--workers {workers} names {doubled[0]} twice", hint="a probe has its device alone: name each once"
            )
        return Execution(workers=len(names), devices=names)
    number = _count(workers)
    if number == 1:
        return Execution()
    return Execution(workers=number, devices=_devices(device, number))


def _devices(device: str, number: int) -> tuple[str, ...]:
    """One device for each of several workers."""
    if device == "cpu":
        return ("cpu",) * number
    if device not in ("auto", "cuda"):
        raise UsageError(
            f"--workers {number} and --device {device} contradict each other",
            hint=f"give --device cuda, or name the devices: --workers {device},cuda:…",
        )
    from autotune.probe import nvml

    if device == "auto" and not nvml.cards():
        return ("cpu",) * number
    there = _cuda_devices()
    if there is not None and there < number:
        raise EnvironmentTrouble(
            f"--workers {number} needs as many devices, and {there} can be seen here",
            hint="give fewer workers, or look with: autotune doctor",
        )
    return tuple(f"cuda:{index}" for index in range(number))


def _all_devices(device: str) -> tuple[str, ...]:
    there = _cuda_devices()
    if device == "cpu" or not there:
        raise EnvironmentTrouble(
            "--workers all finds no CUDA device", hint="name the devices, or give a number: --workers 2"
        )
    return tuple(f"cuda:{index}" for index in range(there))


def _cuda_devices() -> int | None:
    """How many this process may use; None where only torch can tell."""
    from autotune.probe import nvml
    from autotune.probe.visible import visible

    cards = nvml.cards()
    found = visible(cards, os.environ) if cards else None
    return None if found is None else len(found)


def _options(kind: Kind, options: Sequence[str]) -> Mapping[str, str]:
    known = OPTIONS[kind]
    found: dict[str, str] = {}
    for text in options:
        name, equals, value = text.partition("=")
        if name not in known or not equals or not value:
            names = ", ".join(known) or "none"
            raise UsageError(
                f"--executor-option {text!r} is no NAME=VALUE of --executor {kind}", hint=f"its options are: {names}"
            )
        if name in found:
            raise UsageError(f"--executor-option names {name} twice", hint="give each option one value")
        takes = known[name]
        if (
            (takes == "whole" and not _WHOLE.fullmatch(value))
            or (takes == "number" and not _NUMBER.fullmatch(value))
            or ("|" in takes and value not in takes.split("|"))
        ):
            wanted = {"whole": "a whole number from 1 on", "number": "a number"}.get(takes, takes.replace("|", ", "))
            raise UsageError(f"--executor-option {text!r}", hint=f"{name} takes {wanted}")
        found[name] = value
    return found


def _count(value: object) -> int:
    number = int(value) if isinstance(value, str) else value
    if (
        isinstance(number, bool)
        or not isinstance(number, SupportsIndex)
        or not 1 <= operator.index(number) <= MOST_WORKERS
    ):
        raise UsageError(f"--workers is {value!r}", hint=f"give a whole number from 1 to {MOST_WORKERS}")
    return operator.index(number)
