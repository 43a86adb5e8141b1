"""What the tool asks of the guardian (``Request``) and of a worker (``Order``). Written by us, read by us; no torch."""

import json
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Self

from autotune.model import Form, Parallel, Section, Settings, Source
from autotune.probe.workplace import write_working_file


class Op(StrEnum):
    """What a worker is to do with the loaded workload."""

    LOAD = "load"
    """Become a zygote."""
    LOOK = "look"
    """Look at the machine alone; nothing is loaded."""
    DESCRIBE = "describe"
    PROBE = "probe"
    EXAMINE = "examine"
    """Look at a training for one section of a diagnosis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One job of a worker."""

    op: Op
    source: Source
    settings: Settings
    job_environment: dict[str, str]
    """Variables to set before the device starts."""
    seed: int
    device: str = "cpu"
    """torch device; for ``describe`` also ``auto``."""
    device_uuid: str = ""
    batch_size: int = 1
    form: Form = Form.SHORT
    limit_bytes: int = 0
    """The budget."""
    reserve_bytes: int = 0
    """Non-PyTorch device memory seen in earlier probes."""
    trace_unit: int | None = None
    """Record the allocator while training at growing multiples of this size, ``batch_size`` first; None = do not."""
    trace_largest: int = 0
    """No recorded size is above this."""
    reference: Settings | None = None
    """For ``Form.COMPARE``: what ``settings`` are compared with."""
    evaluate_at: int | None = None
    """Batch size of the workload's evaluation; None = ``batch_size``, 0 = no evaluation."""
    length_bucket: int | None = None
    """For ``probe``: train only on samples at most so long; None = on all."""
    length_buckets: tuple[int, ...] = ()
    """For ``describe``: what to find out of the data besides."""
    trace_path: str = ""
    """File the trace is written to."""
    section: Section | None = None
    """For ``examine``: which."""
    steps: int | None = None
    """For ``examine``: training steps to look at; None = as many as the section needs."""
    output: str = ""
    """For ``examine``: folder for files that the section leaves; empty = none are wanted."""
    prebuild_s: float | None = None
    """For ``describe``: the zygote is to make the model for the probes meanwhile, if that takes it no longer; None = no."""
    rank: int = 0
    """Which of the processes this is that train together; from 0."""
    ranks: int = 1
    """How many they are."""
    stands_in: bool = False
    """The other ranks are not there: this process trains as one of them by ``probe.stand_ins``."""
    communicators_bytes: int = 0
    """What communicators with ranks that are not there would hold of the device."""
    meeting: str = ""
    """File that they find each other by; it is not there yet. Empty = there is one process."""
    ahead: bool | None = None
    """For ``load``: whether the zygote uses the time while a child works; None = where there is a CUDA device."""

    @property
    def seat(self) -> tuple[int, int]:
        """Rank and number of ranks as far as data goes: those of tensor parallel all train on the same."""
        return (0, 1) if self.settings.parallel is Parallel.TENSOR else (self.rank, self.ranks)

    def write(self, path: Path) -> None:
        """Write it for ``read``."""
        write_working_file(path, json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: str) -> Self:
        """Read what ``write`` wrote."""
        fields = json.loads(Path(path).read_text())
        source, settings, reference = fields.pop("source"), fields.pop("settings"), fields.pop("reference")
        fields["length_buckets"] = tuple(fields["length_buckets"])
        section = fields.pop("section")
        lists = {name: tuple(value) for name, value in source.items() if isinstance(value, list)}
        return cls(
            op=Op(fields.pop("op")),
            form=Form(fields.pop("form")),
            source=Source(**{**source, **lists}),
            settings=Settings.from_fields(settings),
            section=None if section is None else Section(section),
            reference=None if reference is None else Settings.from_fields(reference),
            **fields,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """One of the processes of a probe."""

    order: str
    """Path of the worker's order."""
    stdout: str
    stderr: str
    variables: dict[str, str] = field(default_factory=dict)
    """What a fresh interpreter has in its environment beside the request's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One job of the guardian: a process to start and watch, or several that train together."""

    load: bool
    """True: start a zygote and keep it."""
    fork: bool
    """A probe is forked from the zygote (True) or starts a fresh interpreter (False)."""
    order: str
    """Path of the worker's order."""
    environment: dict[str, str]
    """The whole environment of a fresh interpreter."""
    stdout: str
    stderr: str
    deadline_s: float
    """For the whole of it; after ``begin_s``, where that is given."""
    begin_s: float | None = None
    """Until the process must have sent its first message."""
    command: tuple[str, ...] = ()
    """A command of the user's to run instead, with the hook in its environment; empty = a worker of ours."""
    directory: str = ""
    """Working directory of the command."""
    pipe: str = ""
    """Named pipe that the hook answers on: descriptors do not reach the processes that a launcher starts."""
    token: str = ""
    """What marks the hook's messages."""
    peers: tuple[Rank, ...] = ()
    """The others of a probe with several ranks; the first is what is said here."""
    variables: dict[str, str] = field(default_factory=dict)
    """Of the first rank (see ``Rank``)."""
    data_limit_bytes: int | None = None
    """Limit on the command's own memory from its first instruction on; None = the hook sets it, or there is none."""

    @property
    def ranks(self) -> tuple[Rank, ...]:
        """All processes to start."""
        first = Rank(order=self.order, stdout=self.stdout, stderr=self.stderr, variables=self.variables)
        return (first, *self.peers)

    def encode(self) -> bytes:
        """One line of JSON."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> Self:
        """Read what ``encode`` made."""
        fields = json.loads(line)
        peers = tuple(Rank(**peer) for peer in fields["peers"])
        return cls(**{**fields, "command": tuple(fields["command"]), "peers": peers})
