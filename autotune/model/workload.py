"""What the user trains, and where it comes from."""

from dataclasses import dataclass, field, replace

from autotune.errors import UsageError
from autotune.model.settings import Settings
from autotune.model.traits import Traits


@dataclass(frozen=True, slots=True, kw_only=True)
class Recognised:
    """One thing found (or not) in the workload, for ``autotune inspect``."""

    what: str
    """``model``, ``batch``, ``loss``, ``optimizer``, ``evaluate``, ``data set``, ``lengths``, ``loader``, ``samples``; of
    other frameworks also ``train step`` (in place of the loss) and ``settings``."""
    found: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderInfo:
    """What matters of the user's own data loader beside its batches."""

    workers: int
    """Processes that load."""
    pin_memory: bool
    drop_last: bool
    """Whether a last batch that is not whole is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthBucket:
    """The samples of a workload that are at most so long, as a sampler that groups them by length puts them together."""

    max_length: int
    """Bound of the bucket."""
    longest: int
    """Length of the longest sample in it; 0 = there is none."""
    samples: int | None
    """Samples of the data set seen that are at most so long; None where batches are cut to the length."""
    longer: int | None
    """Samples seen that are longer; None as above."""
    batch: str = ""
    """Shapes and types of a batch, in words."""
    data_set_size: int | None = None
    """Upper bound for the batch; None as in ``WorkloadInfo``."""
    varies: bool = False
    """Whether samples within it differ in length."""
    sized: bool = True
    loader: LoaderInfo | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadInfo:
    """What a worker learned of the workload without training it."""

    ref: str
    fingerprint: str
    recognised: tuple[Recognised, ...]
    parameters: int
    """Number of parameters."""
    trainable_parameters: int
    parameters_bytes: int
    trainable_bytes: int
    optimizer: str
    batch: str
    """Shapes and types of a batch, in words."""
    data_set_size: int | None
    """Upper bound for the batch; None where the workload has no data set or it has no length."""
    evaluates: bool
    process_bytes: int = 0
    """Private memory of a probe process with the workload loaded and nothing built; 0 where the kernel does not say."""
    step_imports_bytes: int = 0
    """How much of it is for what PyTorch imports at the first optimizer step, which others import only then."""
    varies: bool = False
    """Whether batches differ in the length of their samples; the long form then trains on shorter ones as well."""
    loader: LoaderInfo | None = None
    """None where the workload has no data loader of its own, or one that is not PyTorch's."""
    sized: bool = True
    """Whether a batch has as many samples as the size asked for; false for token budgets and the like."""
    traits: Traits = field(default_factory=Traits)
    device_used_bytes: int | None = None
    """What the device said was in use when this was found out, the context of that process included; None on the CPU, and
    where NVML tells what others hold."""
    own: Settings = field(default_factory=Settings)
    """Settings that it trains with by itself, where it says so (a Trainer's arguments); left out by older ledgers."""
    notes: tuple[str, ...] = ()
    """What the user should know: data only sampled, fork unsafe …"""
    parts: tuple[tuple[str, str], ...] = ()
    """(what, short hash) of all that the fingerprint is made of, to say which of it changed; left out by older ledgers."""
    buckets: tuple[LengthBucket, ...] = ()
    """Length buckets that were asked for, shortest first; in a search of one of them that one alone."""
    fullest_rank: int = 0
    """Of the ranks asked for, the one that ZeRO gives the most of the optimizer's state to; left out by older ledgers."""

    def within(self, bucket: LengthBucket) -> "WorkloadInfo":
        """What is known of the workload with the samples of one bucket.

        Raises:
            UsageError: there are none.
        """
        if not bucket.longest:
            raise UsageError(
                f"{self.ref} has no samples that are at most {bucket.max_length} long",
                hint="give --buckets lengths that its samples have",
            )
        return replace(
            self,
            batch=bucket.batch,
            data_set_size=bucket.data_set_size,
            varies=bucket.varies,
            sized=bucket.sized,
            loader=bucket.loader,
            notes=bucket.notes,
            buckets=(bucket,),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where the workload comes from: a reference to load, pickled live objects, or a command to run."""

    ref: str
    """``FILE.py[:NAME]``, ``pkg.mod[:NAME]``, a name for the live objects, or the command as typed."""
    pickle_path: str = ""
    """File with the cloudpickled live objects; empty for a reference."""
    fingerprint: str = ""
    """Fingerprint of the live objects' code; empty for a reference."""
    script_args: tuple[str, ...] = ()
    directory: str = ""
    """Working directory of the workload."""
    search_path: tuple[str, ...] = ()
    """Extra ``sys.path`` entries of the caller (live objects)."""
    command: tuple[str, ...] = ()
    """Words of a training command with placeholders, such as ``{batch}``; empty = there is none."""
    templates: tuple[tuple[str, str], ...] = ()
    """How the command is told a setting: (name of the setting, template)."""
