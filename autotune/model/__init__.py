"""The nouns of autotune: frozen values that travel between rooms. No behaviour beyond derived facts, no torch.

Sizes are whole bytes (``_bytes``), times are seconds (``_seconds``/``_s``), instants are aware UTC datetimes.
"""

from autotune.model.advice import Advice, Advised
from autotune.model.buckets import Bucketed, BucketResult
from autotune.model.diagnosis import Diagnosis, Fact, Health, Seen, SeenDevice
from autotune.model.explanation import AllocationGroup, Explanation, Foretold, PhaseRange, Use, UsedMemory
from autotune.model.findings import Findings, Section
from autotune.model.fragments import NO_POOL, Fragmentation, FragmentEvidence, Pieces, Remedy, Squeeze
from autotune.model.leaks import LeakEvidence, LeakKind, Leaks, Rate, Suspect
from autotune.model.machine import Budget, Machine, digest, short_digest
from autotune.model.peak import CompositionEvidence, KindBytes, MemoryKind, NamedBytes, OperatorCost, Peak
from autotune.model.probe import (
    Comparison,
    Composition,
    Failure,
    Measurement,
    PhaseMemory,
    ProbeResult,
    Question,
    RankResult,
)
from autotune.model.search import (
    Answer,
    Choice,
    Damage,
    Evaluation,
    Loading,
    Objective,
    Plan,
    Prediction,
    SearchRecord,
    SearchResult,
    SearchState,
    SearchSummary,
    Stop,
    owner_words,
)
from autotune.model.settings import (
    ALLOCATOR_VARIABLES,
    Attention,
    Checkpointing,
    Compile,
    MemoryFormat,
    OptimizerKind,
    Parallel,
    Precision,
    Settings,
)
from autotune.model.snapshots import NO_CUDA, NO_FOLDER, Snapshots
from autotune.model.trace import Mark, PassPeaks, Trace
from autotune.model.training import TrainingStatus
from autotune.model.traits import Traits
from autotune.model.words import Cause, Form, Outcome, Phase, Reason
from autotune.model.workload import LengthBucket, LoaderInfo, Recognised, Source, WorkloadInfo

__all__ = [
    "ALLOCATOR_VARIABLES",
    "NO_CUDA",
    "NO_FOLDER",
    "NO_POOL",
    "Advice",
    "Advised",
    "AllocationGroup",
    "Answer",
    "Attention",
    "BucketResult",
    "Bucketed",
    "Budget",
    "Cause",
    "Checkpointing",
    "Choice",
    "Comparison",
    "Compile",
    "Composition",
    "CompositionEvidence",
    "Damage",
    "Diagnosis",
    "Evaluation",
    "Explanation",
    "Fact",
    "Failure",
    "Findings",
    "Foretold",
    "Form",
    "FragmentEvidence",
    "Fragmentation",
    "Health",
    "KindBytes",
    "LeakEvidence",
    "LeakKind",
    "Leaks",
    "LengthBucket",
    "LoaderInfo",
    "Loading",
    "Machine",
    "Mark",
    "Measurement",
    "MemoryFormat",
    "MemoryKind",
    "NamedBytes",
    "Objective",
    "OperatorCost",
    "OptimizerKind",
    "Outcome",
    "Parallel",
    "PassPeaks",
    "Peak",
    "Phase",
    "PhaseMemory",
    "PhaseRange",
    "Pieces",
    "Plan",
    "Precision",
    "Prediction",
    "ProbeResult",
    "Question",
    "RankResult",
    "Rate",
    "Reason",
    "Recognised",
    "Remedy",
    "SearchRecord",
    "SearchResult",
    "SearchState",
    "SearchSummary",
    "Section",
    "Seen",
    "SeenDevice",
    "Settings",
    "Snapshots",
    "Source",
    "Squeeze",
    "Stop",
    "Suspect",
    "Trace",
    "TrainingStatus",
    "Traits",
    "Use",
    "UsedMemory",
    "WorkloadInfo",
    "digest",
    "owner_words",
    "short_digest",
]
