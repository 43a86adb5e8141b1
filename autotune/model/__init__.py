"""The nouns of autotune: frozen values that travel between rooms. No behaviour beyond derived facts, no torch.

Sizes are whole bytes (``_bytes``), times are seconds (``_seconds``/``_s``), instants are aware UTC datetimes.
"""

import typing

if typing.TYPE_CHECKING:
    from autotune.model.advice import Advice, Advised
    from autotune.model.buckets import Bucketed, BucketResult
    from autotune.model.diagnosis import Diagnosis, Fact, Health, Seen, SeenDevice
    from autotune.model.explanation import AllocationGroup, Explanation, Foretold, PhaseRange, Use, UsedMemory
    from autotune.model.findings import Findings, Section, Unanswered
    from autotune.model.fragments import NO_POOL, Fragmentation, FragmentEvidence, Pieces, Remedy, Squeeze
    from autotune.model.kinds import KindFailed
    from autotune.model.leaks import LeakEvidence, LeakKind, Leaks, Rate, Suspect
    from autotune.model.machine import Budget, Machine, digest, short_digest
    from autotune.model.peak import CompositionEvidence, KindBytes, MemoryKind, NamedBytes, OperatorCost, Peak
    from autotune.model.predicted import Communicators, Predicted, PredictedWay
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
        Evaluation,
        Loading,
        Plan,
        Prediction,
        SearchRecord,
        SearchResult,
        Stop,
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
    from autotune.model.summary import Damage, SearchState, SearchSummary, owner_words
    from autotune.model.trace import Mark, PassPeaks, Trace
    from autotune.model.training import TrainingStatus
    from autotune.model.traits import Traits
    from autotune.model.words import Cause, Form, Objective, Outcome, Phase, Reason
    from autotune.model.workload import LengthBucket, LoaderInfo, Recognised, Source, WorkloadInfo
else:
    _NAMES = {
        "advice": "Advice Advised",
        "buckets": "Bucketed BucketResult",
        "diagnosis": "Diagnosis Fact Health Seen SeenDevice",
        "explanation": "AllocationGroup Explanation Foretold PhaseRange Use UsedMemory",
        "findings": "Findings Section Unanswered",
        "fragments": "NO_POOL Fragmentation FragmentEvidence Pieces Remedy Squeeze",
        "kinds": "KindFailed",
        "leaks": "LeakEvidence LeakKind Leaks Rate Suspect",
        "machine": "Budget Machine digest short_digest",
        "peak": "CompositionEvidence KindBytes MemoryKind NamedBytes OperatorCost Peak",
        "predicted": "Communicators Predicted PredictedWay",
        "probe": "Comparison Composition Failure Measurement PhaseMemory ProbeResult Question RankResult",
        "search": "Answer Choice Evaluation Loading Plan Prediction SearchRecord SearchResult Stop",
        "settings": (
            "ALLOCATOR_VARIABLES Attention Checkpointing Compile MemoryFormat OptimizerKind Parallel Precision Settings"
        ),
        "snapshots": "NO_CUDA NO_FOLDER Snapshots",
        "summary": "Damage SearchState SearchSummary owner_words",
        "trace": "Mark PassPeaks Trace",
        "training": "TrainingStatus",
        "traits": "Traits",
        "words": "Cause Form Objective Outcome Phase Reason",
        "workload": "LengthBucket LoaderInfo Recognised Source WorkloadInfo",
    }
    """Module -> what of it is offered here. Each is loaded when it is first asked for: making all of the classes takes as long as
    starting Python three times, and a list of searches needs a few of them."""
    _HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

    def __getattr__(name: str) -> object:
        import importlib

        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = found
        return found


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
    "Communicators",
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
    "KindFailed",
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
    "Predicted",
    "PredictedWay",
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
    "Unanswered",
    "Use",
    "UsedMemory",
    "WorkloadInfo",
    "digest",
    "owner_words",
    "short_digest",
]
