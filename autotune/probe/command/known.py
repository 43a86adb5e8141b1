"""What is known of a command beside what its rehearsal saw, for its ``WorkloadInfo``. No torch."""

from dataclasses import replace
from pathlib import Path

from autotune.model import Recognised, Source, WorkloadInfo, digest, short_digest
from autotune.workload.command import uses_scratch

_LARGEST_CODE_BYTES = 1 << 20


def unseen(source: Source) -> WorkloadInfo:
    """A command that nothing was seen of: words of it that are files are the code of what cannot be looked into."""
    named = [(word, Path(source.directory, word)) for word in source.command]
    files = [[word, _contents(path)] for word, path in named if path.is_file()]
    return WorkloadInfo(
        ref="",
        fingerprint=digest([files]),
        parts=tuple((f"code of {name}", short_digest(content)) for name, content in files),
        recognised=(),
        parameters=0,
        trainable_parameters=0,
        parameters_bytes=0,
        trainable_bytes=0,
        optimizer="unknown",
        batch="not seen",
        data_set_size=None,
        evaluates=False,
    )


def with_command(info: WorkloadInfo, source: Source, unwatched: str) -> WorkloadInfo:
    """The same with the command; ``unwatched`` says why the hook does not attach, and is empty where it does."""
    notes = [
        *info.notes,
        "batches are the first that the command makes: longer ones that come later were not probed",
    ]
    if not uses_scratch(source):
        notes.append(
            "what the command writes stays where it writes it; put {scratch} in place of its output folder to have it"
            " removed after each probe"
        )
    if unwatched:
        notes.append(f"not watched from within ({unwatched}): memory was sampled, exit code and log decided")
    seen = "exit code, log and memory" if unwatched else "optimizer steps, phases and batches"
    return replace(
        info,
        ref=source.ref,
        fingerprint=digest([info.fingerprint, source.command, source.templates]),
        recognised=(
            Recognised(what="command", found=source.ref, why="given behind --"),
            Recognised(what="batch", found=info.batch, why="seen in a run of two steps"),
            Recognised(what="watched", found=seen, why=unwatched or "the hook attached"),
        ),
        notes=tuple(notes),
        parts=(
            *info.parts,
            ("command", short_digest(source.command)),
            ("templates of the command", short_digest(source.templates)),
        ),
    )


def _contents(path: Path) -> str:
    """What tells a file from a changed one: its contents, or of a large one (no code, but data) its size and time."""
    status = path.stat()
    if status.st_size > _LARGEST_CODE_BYTES:
        return digest([status.st_size, status.st_mtime_ns])
    return digest([path.read_bytes().hex()])
