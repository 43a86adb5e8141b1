"""``autotune check``: a gate before training. Is the recommendation still valid and safe here?"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotune import api
from autotune.cli.invocation import Invocation
from autotune.cli.options import DeviceWait, Json, OutputFiles, Quiet, Storage, Templates, Verbose, argument, optional
from autotune.cli.signals import Stopped
from autotune.errors import AutotuneError, UsageError

if TYPE_CHECKING:  # what takes long to import comes when a file is read, and not for --help
    from autotune.cli.progress import Progress
    from autotune.recommended.checked import Checked
    from autotune.recommended.given import CheckOptions
    from autotune.report.fields import Document

_DEFAULT_FILE = "autotune.json"


class At(StrEnum):
    """Which of the file's batches is probed."""

    RECOMMENDED = "recommended"
    MAX = "max"


class IfStale(StrEnum):
    """What is done where the file does not hold."""

    FAIL = "fail"
    SEARCH = "search"


_File = Annotated[Path, typer.Argument(metavar="FILE", help="What autotune search wrote.")]
_Model = Annotated[str | None, argument(metavar="MODEL", help="What is trained. Default: what FILE names.")]
_Args = Annotated[
    list[str] | None,
    argument(
        metavar="-- ARGS",
        help="Passed to the file that is trained; a training command instead of MODEL: -- python train.py --bs {batch}.",
    ),
]
_Device = Annotated[
    str | None, optional("--device", metavar="DEVICE", help="Device to check on. Default: that FILE was made for.")
]
_MemoryLimit = Annotated[
    str | None, optional(metavar="SIZE", help="Pretend the device has this much. Default: as in the search.")
]
_At = Annotated[At, typer.Option(help="Batch to probe: the recommended one or the largest certified.")]
_NoProbe = Annotated[bool, typer.Option("--no-probe", help="Only compare; train nothing.")]
_IfStale = Annotated[IfStale, typer.Option(help="If FILE does not hold: fail, or search again and replace it.")]
_Timeout = Annotated[
    float | None, optional(metavar="SECONDS", help="Time limit of the probe. Default: as in the search.")
]
_Output = Annotated[Path | None, optional(metavar="PATH", help="Where --if-stale search writes. Default: FILE.")]


def check(
    context: typer.Context,
    file: _File = Path(_DEFAULT_FILE),
    model: _Model = None,
    args: _Args = None,
    templates: Templates = None,
    device: _Device = None,
    memory_limit: _MemoryLimit = None,
    at: _At = At.RECOMMENDED,
    no_probe: _NoProbe = False,
    if_stale: _IfStale = IfStale.FAIL,
    timeout: _Timeout = None,
    device_wait: DeviceWait = 600.0,
    storage: Storage = None,
    output: _Output = None,
    output_file: OutputFiles = None,
    json: Json = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> None:
    """Check that a recommendation is still valid and safe here.

    A gate before training: model, device and versions are compared with what it was made for, then its batch runs in one
    probe. Exit code 6 if it does not hold.
    """
    invocation: Invocation = context.obj
    path, workload, script_args = _words(invocation, file, model, args or [])
    options: CheckOptions = {
        "script_args": script_args,
        "templates": tuple(templates or ()),
        "device": device,
        "memory_limit": memory_limit,
        "at": at.value,
        "probe": not no_probe,
        "timeout_s": timeout,
        "device_wait_s": device_wait,
        "storage": storage,
    }
    _Check(
        path=path,
        workload=workload,
        options=options,
        renews=if_stale is IfStale.SEARCH,
        output=output,
        output_files=tuple(output_file or ()),
        json=json,
        verbose=verbose,
        quiet=quiet,
        resume_command=invocation.resume_command,
    ).run()


def _words(
    invocation: Invocation, file: Path, model: str | None, args: list[str]
) -> tuple[Path, str | tuple[str, ...] | None, tuple[str, ...] | None]:
    """(FILE, MODEL or the words of a command, arguments of MODEL's file); what stands behind ``--`` is no FILE."""
    behind = invocation.behind_dashes
    words = (*([] if model is None else [model]), *args)
    if behind and len(words) <= len(behind):  # no MODEL; if FILE was left out, it took the first of them
        path = file if words == behind else Path(_DEFAULT_FILE)
        return (path, None, behind) if behind[0].startswith("-") else (path, behind, None)
    if model is None:
        return file, None, None
    ref, script_args, _ = invocation.split(model, args)
    return file, ref, script_args if behind else None


@dataclass(kw_only=True)
class _Check:
    """One call of the command."""

    path: Path
    workload: str | tuple[str, ...] | None
    options: "CheckOptions"
    renews: bool
    output: Path | None
    output_files: tuple[str, ...]
    json: bool
    verbose: bool
    quiet: bool
    resume_command: str
    title: str = "autotune check"
    found: "Checked | None" = field(default=None, init=False)

    def run(self) -> None:
        """Check, and renew if that is wanted; print, write and publish.

        Raises:
            AutotuneError: whatever ``api`` raises, ``CheckFailed`` where the file does not hold and is not renewed, and
                ``Interrupted``; with the document without an answer. By then pipelines were told.
        """
        from autotune.cli.asking import interrupted, verbosity
        from autotune.cli.console import Screen
        from autotune.cli.progress import Progress

        progress = Progress(Screen(stderr=True), verbosity(quiet=self.quiet, verbose=self.verbose))
        try:
            self._prepare()
            with progress:
                self._look(progress)
        except AutotuneError as error:
            self._give_up(error, progress)
            raise
        except (Stopped, KeyboardInterrupt) as stop:
            interruption = interrupted(self.resume_command, stop)
            self._give_up(interruption, progress)
            raise interruption from stop

    def _prepare(self) -> None:
        from autotune.cli.pipeline import Pipeline
        from autotune.cli.write import check_writable

        if self.output is not None and not self.renews:
            raise UsageError(
                f"--output {self.output} is for a file that is made anew",
                hint="give --if-stale search as well, or leave it out",
            )
        if self.renews:
            check_writable(self.output or self.path)
        Pipeline.of(self.title, self.output_files).make_room()

    def _look(self, progress: "Progress") -> None:
        options: CheckOptions = {**self.options, "observer": progress}
        self.found = api.examine(self.path, self.workload, **options)
        failure = self.found.failure
        if failure is None:
            self._pass(self.found)
        elif self.renews:
            progress.note(f"{failure.message}: searching again")
            self._renew(self.found, progress)
        else:
            raise failure

    def _pass(self, found: "Checked") -> None:
        from autotune.cli.console import Screen
        from autotune.report.check import passed_words

        if not self.json:
            stdout = Screen(stderr=False)
            stdout.say(passed_words(found.path, found.document, found.probes[-1] if found.probes else None))
            for note in () if self.quiet else found.notes:
                stdout.say(f"- {note}")
        self._hand_over(found.document, None)

    def _renew(self, found: "Checked", progress: "Progress") -> None:
        """Search as the file's search did, and replace the file; it stays as it is until then, and if that fails."""
        from autotune.cli.search import show
        from autotune.report.document import document

        given = self.options.get("storage")
        storage = None if given is None else str(given)
        if found.document.buckets:
            self._renew_buckets(found, storage, progress)
            return
        result = api.search(found.plan, storage=storage, observer=progress)
        self._replace(document(result), lambda output: show(result, output, verbose=self.verbose))

    def _renew_buckets(self, found: "Checked", storage: str | None, progress: "Progress") -> None:
        """The same for each length bucket of the file.

        Raises:
            NothingFits, TimeRanOut: one of them has no answer any more; the file stays as it is.
        """
        from autotune.cli.console import Screen
        from autotune.report.buckets import bucket_table
        from autotune.report.document import bucket_document

        of_all, lengths = replace(found.plan, length_bucket=None), [one.max_length for one in found.document.buckets]
        renewed = api.search_buckets(of_all, lengths, storage=storage, observer=progress)
        if renewed.error is not None:
            raise renewed.error
        self._replace(
            bucket_document(renewed), lambda output: Screen(stderr=False).say("\n".join(bucket_table(renewed)))
        )

    def _replace(self, content: "Document", show: Callable[[Path], None]) -> None:
        output = self.output or self.path
        try:
            self._hand_over(content, output)
        finally:  # the answer took long to find: it is shown also if the file cannot be written
            if not self.json:
                show(output)

    def _hand_over(self, content: "Document", output: Path | None) -> None:
        from autotune.cli.asking import hand_over

        hand_over(content, title=self.title, output_files=self.output_files, output=output, json=self.json)

    def _give_up(self, error: AutotuneError, progress: "Progress") -> None:
        from autotune.cli.asking import tell_pipeline
        from autotune.report.document import failure_document, settings_of, to_text

        found = self.found
        content = failure_document(
            error,
            created=datetime.now(UTC),
            ref=found.document.workload.ref if found else self._named,
            settings=settings_of(found.document) if found else None,
            workload=found.workload if found else progress.workload,
            machine=found.machine if found else progress.machine,
            warnings=found.notes if found else (),
            check=found.found if found else None,
        )
        error.document = error.document or to_text(content).rstrip("\n")
        tell_pipeline(self.title, self.output_files, content, error)

    @property
    def _named(self) -> str:
        """What was to be checked, as far as the command line says."""
        if self.workload is None:
            return ""
        return self.workload if isinstance(self.workload, str) else " ".join(self.workload)
