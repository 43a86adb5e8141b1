"""The way of ``search`` and ``max-batch`` from a command line to a result, or to an error that says what is left."""

import re
import shlex
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from autotune import api
from autotune.cli.console import Screen
from autotune.cli.options import Asked
from autotune.cli.pipeline import Pipeline
from autotune.cli.progress import Progress, Verbosity
from autotune.cli.signals import Stopped
from autotune.cli.write import check_writable, set_aside, write_whole
from autotune.errors import AutotuneError, EnvironmentTrouble, Interrupted, NothingFits, UsageError, WorkloadError
from autotune.model import Bucketed, KindFailed, Machine, Plan, SearchResult
from autotune.planning import PlanOptions
from autotune.report.buckets import bucket_advice
from autotune.report.document import bucket_document, bucket_fields, document, failure_document, to_text
from autotune.report.fields import Document, FailureDocument

Found = TypeVar("Found")
_KIND_DIGITS = 8
"""Of a kind's fingerprint in the name of its file: four thousand million, for a handful of kinds."""


def ask(asked: Asked, *, recommend: bool) -> SearchResult:
    """Search, with progress on stderr.

    Raises:
        AutotuneError: see ``carry_out``.
    """

    def search(plan: Plan, progress: Progress) -> SearchResult:
        return api.search(plan, storage=asked.storage, fresh=asked.fresh, observer=progress, **asked.where)

    return carry_out(asked, search, recommend=recommend)


def ask_kinds(asked: Asked, *, recommend: bool) -> tuple[SearchResult, tuple[SearchResult | KindFailed, ...]]:
    """Search on each kind of machine among the workers, with progress on stderr.

    Returns:
        The answer of the first kind, and what came out on the others.

    Raises:
        AutotuneError: see ``carry_out``.
    """
    if "workers" not in asked.where:
        return ask(asked, recommend=recommend), ()

    def search(plan: Plan, progress: Progress) -> tuple[SearchResult, tuple[SearchResult | KindFailed, ...]]:
        return api.search_kinds(plan, storage=asked.storage, fresh=asked.fresh, observer=progress, **asked.where)

    return carry_out(asked, search, recommend=recommend)


def ask_buckets(asked: Asked) -> Bucketed:
    """Search each length bucket, with progress on stderr. Where one has no answer, ``keep_buckets`` says so.

    Raises:
        AutotuneError: see ``carry_out``.
    """

    def search(plan: Plan, progress: Progress) -> Bucketed:
        lengths = _lengths(asked.buckets or "")
        return api.search_buckets(
            plan,
            lengths,
            storage=asked.storage,
            fresh=asked.fresh,
            observer=progress,
            **asked.where,
        )

    return carry_out(asked, search, recommend=False)


def _lengths(text: str) -> tuple[int, ...]:
    """Numbers between commas.

    Raises:
        UsageError: there is something else.
    """
    parts = [part.strip() for part in text.split(",")]
    wrong = [part for part in parts if not (part.isascii() and part.isdecimal())]
    if wrong:
        raise UsageError(
            f"--buckets {text!r}: {wrong[0]!r} is no length",
            hint="give whole numbers, for example --buckets 128,512,2048",
        )
    return tuple(int(part) for part in parts)


def carry_out(asked: Asked, search: Callable[[Plan, Progress], Found], *, recommend: bool) -> Found:
    """Make the plan and search.

    Raises:
        AutotuneError: whatever ``api`` raises, and ``Interrupted`` on Ctrl-C and SIGTERM; with the document without an
            answer. An older recommendation that no longer holds is moved aside, which the error then says.
    """
    progress = Progress(Screen(stderr=True), verbosity(quiet=asked.quiet, verbose=asked.verbose))
    plan: Plan | None = None
    try:
        Pipeline.of(asked.title, asked.output_files).make_room()
        if asked.output is not None:
            check_writable(asked.output)
        options: PlanOptions = {**asked.options, "recommend": recommend}
        plan = api.plan(
            asked.model,
            script_args=asked.script_args,
            command=asked.training_command,
            templates=asked.templates,
            **options,
        )
        with progress:
            return search(plan, progress)
    except AutotuneError as error:
        _give_up(asked, error, plan, progress)
        raise
    except (Stopped, KeyboardInterrupt) as stop:
        interruption = interrupted(asked.resume_command, stop)
        _give_up(asked, interruption, plan, progress)
        raise interruption from stop


def keep(asked: Asked, result: SearchResult) -> None:
    """Write the recommendation if a file was asked for, print it under ``--json``, also when writing failed, and leave its
    values where pipelines look for them.

    Raises:
        EnvironmentTrouble: it could not be written.
    """
    _keep(asked, document(result))


def _keep(asked: Asked, content: Document) -> None:
    hand_over(content, title=asked.title, output_files=asked.output_files, output=asked.output, json=asked.json)


def keep_other_kind(asked: Asked, result: SearchResult) -> Path | None:
    """Write the recommendation for another kind of machine beside that for the first; returns where, if one was asked for.

    Raises:
        EnvironmentTrouble: it could not be written.
    """
    if asked.output is None:
        return None
    path = _of_kind(asked.output, result.machine)
    write_whole(path, to_text(document(result)))
    return path


def give_up_kind(asked: Asked, failed: KindFailed) -> str:
    """Move an older recommendation for a kind of machine aside, where it no longer holds; returns what to say of it."""
    if asked.output is None or not isinstance(failed.error, NothingFits | WorkloadError):
        return ""
    return _moved(_of_kind(asked.output, failed.machine))


def _of_kind(output: Path, machine: Machine) -> Path:
    """Named after the kind alone: its device, and a few digits of what else tells it from others of that name (memory,
    driver, versions). So no two kinds share a name, and each has the same one in every run."""
    name = re.sub(r"[^a-z0-9]+", "-", machine.device_name.lower()).strip("-") or machine.device
    return output.with_name(f"{output.stem}.{name}-{machine.fingerprint[:_KIND_DIGITS]}{output.suffix}")


def keep_buckets(asked: Asked, found: Bucketed) -> None:
    """The same for length buckets.

    Raises:
        EnvironmentTrouble: it could not be written.
        NothingFits, TimeRanOut: a bucket with samples has no answer. Then nothing is written, and an older recommendation
            that no longer holds is moved aside.
    """
    error = found.error
    if error is None:
        _keep(asked, bucket_document(found))
        return
    content = failure_document(
        error,
        created=datetime.now(UTC),
        ref=asked.model,
        settings=found.plan.settings,
        workload=found.workload,
        machine=found.machine,
        warnings=bucket_advice(found),
        buckets=bucket_fields(found),
    )
    if asked.output is not None and isinstance(error, NothingFits):
        error.add_note(_moved(asked.output))
    error.document = to_text(content).rstrip("\n")
    tell_pipeline(asked.title, asked.output_files, content, error)
    raise error


def hand_over(content: Document, *, title: str, output_files: Sequence[str], output: Path | None, json: bool) -> None:
    """Write an answer if a file was asked for, leave its values where pipelines look for them, print it under ``--json``.

    Raises:
        EnvironmentTrouble: it could not be written; it is the error's document then, for it took long to find.
    """
    text = to_text(content)
    try:
        try:
            if output is not None:
                write_whole(output, text)
        finally:
            Pipeline.of(title, output_files).publish(content)
    except AutotuneError as error:
        error.document = text.rstrip("\n")
        raise
    if json:
        Screen(stderr=False).say(text.rstrip("\n"))


def _give_up(asked: Asked, error: AutotuneError, plan: Plan | None, progress: Progress) -> None:
    if asked.output is not None and isinstance(error, NothingFits | WorkloadError):
        error.add_note(_moved(asked.output))
    content = failure_document(
        error,
        created=datetime.now(UTC),
        ref=asked.model or shlex.join(asked.training_command),
        settings=plan.settings if plan else None,
        workload=progress.workload,
        machine=progress.machine,
    )
    error.document = to_text(content).rstrip("\n")
    tell_pipeline(asked.title, asked.output_files, content, error)


def tell_pipeline(title: str, output_files: Sequence[str], content: FailureDocument, error: AutotuneError) -> None:
    """Leave an error where pipelines look for it. What stands in the way of that is noted on it, and does not hide it."""
    try:
        try:
            pipeline = Pipeline.of(title, output_files)
        except UsageError:  # perhaps that is the error
            pipeline = Pipeline(title)
        pipeline.publish(content, error.detail)
    except EnvironmentTrouble as trouble:
        error.add_note(f"{trouble.message}; {trouble.hint}")


def _moved(output: Path) -> str:
    """Move an older recommendation aside; returns what to say of it, empty if there was none."""
    try:
        stale = set_aside(output)
    except EnvironmentTrouble as trouble:  # the search's own error matters more, and this is told with it
        return f"{trouble.message}; {trouble.hint}"
    return f"an older {output} no longer holds; it was moved to {stale}" if stale else ""


def interrupted(resume_command: str, stop: Stopped | KeyboardInterrupt) -> Interrupted:
    """Ctrl-C or SIGTERM as an error that says how to go on."""
    name, exit_code = (stop.name, stop.exit_code) if isinstance(stop, Stopped) else ("SIGINT", 130)
    return Interrupted(
        f"stopped by {name}; finished probes are kept",
        exit_code=exit_code,
        hint=f"to continue: {resume_command}",
    )


def verbosity(*, quiet: bool, verbose: bool) -> Verbosity:
    """How much is shown.

    Raises:
        UsageError: both were asked for.
    """
    if quiet and verbose:
        raise UsageError("--quiet and --verbose exclude each other", hint="leave one of them out")
    if quiet:
        return Verbosity.QUIET
    return Verbosity.VERBOSE if verbose else Verbosity.NORMAL
