"""A diagnosis of what was given: its size and budget are found, and its sections run."""

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.arguments import count, path, shown, texts
from autotune.diagnosing import run_sections, sections_of, start_of
from autotune.errors import UsageError
from autotune.front import kept
from autotune.front.given import command_of, source_of
from autotune.front.laboratory import budget_of, refuse_inside, turns_of
from autotune.front.observer import listening
from autotune.ledger import place_of
from autotune.model import Findings, SearchRecord
from autotune.planning import PlanOptions, make_plan, with_own_settings
from autotune.ports import SearchObserver
from autotune.recommended.file import read_file
from autotune.workload.source import parse_source

_LOOKED_AT = 50
"""The newest searches of a ledger, among which an answer is looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What ``api.diagnose`` explains, not yet checked."""

    batch: int | None
    steps: int | None
    only: Sequence[str]
    output: str | os.PathLike[str] | None
    recommendation: str | os.PathLike[str]
    storage: str | os.PathLike[str] | None


def diagnose(
    workload: object,
    functions: dict[str, Any],
    options: PlanOptions,
    *,
    script_args: Sequence[str],
    asked: Asked,
    observer: SearchObserver | None,
    keep: Callable[[Findings], None] | None,
) -> Findings:
    """See ``api.diagnose``."""
    refuse_inside()
    sections, observer = sections_of(asked.only), listening(observer)
    batch = None if asked.batch is None else count("batch", asked.batch)
    steps = None if asked.steps is None else count("steps", asked.steps)
    output = "" if asked.output is None else path("output", asked.output)
    recommendation = Path(path("recommendation", asked.recommendation))
    storage = place_of(asked.storage)
    if os.path.lexists(output) and not os.path.isdir(output):
        raise UsageError(f"{output} is no folder", hint="name a folder: --output snapshots")
    if keep is not None and not callable(keep):
        raise UsageError(f"keep is {shown(keep)}", hint="give keep a function that takes the findings")
    if command_of(workload):
        raise UsageError(
            "a training command cannot be diagnosed: its steps are not autotune's to take",
            hint="give a file with make_model() and make_batch(batch_size): autotune init writes one",
        )
    from autotune.probe.launcher import Launcher
    from autotune.probe.workplace import Workplace

    with Workplace() as folder, ExitStack() as stack:
        if isinstance(workload, str | os.PathLike) and script_args:
            source = parse_source(os.fspath(workload), texts("script_args", script_args), Path.cwd())
        else:
            source = source_of(workload, functions, folder / "workload.pkl")
        plan = make_plan(source, **options)
        turns = turns_of(plan, observer.note)
        launcher = stack.enter_context(
            Launcher(source, timeout_s=plan.timeout_s, seed=plan.seed, say=observer.note, turns=turns)
        )
        launcher.preload(plan.device)
        info, machine = launcher.describe(plan.device, plan.multiple_of)
        plan = with_own_settings(plan, info)
        with launcher.turn():
            budget = budget_of(plan, machine, 0, info.device_used_bytes)
        observer.found(info, machine, budget)
        content = None if batch is not None else read_file(recommendation, missing_ok=True)
        known = () if batch is not None else _known_searches(storage)
        return run_sections(
            launcher,
            start_of(batch, plan, info, content, known),
            sections,
            workload=info,
            machine=machine,
            budget=budget,
            steps=steps,
            output=output and os.path.abspath(output),
            say=observer.note,
            keep=keep or (lambda findings: None),
        )


def _known_searches(storage: str) -> tuple[SearchRecord, ...]:
    """The newest of the ledger; none where there is no ledger, which is no trouble here."""
    try:
        return kept.searches(storage, _LOOKED_AT)
    except UsageError:
        return ()
