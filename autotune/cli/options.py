"""Every option of ``search`` and ``max-batch``, described once."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli.invocation import Invocation
from autotune.model import Objective, Parallel, Precision

if TYPE_CHECKING:  # for --help neither is loaded
    from autotune.executors.asked import Where
    from autotune.planning import PlanOptions

optional = partial(typer.Option, show_default=False)
argument = partial(typer.Argument, show_default=False)
"""Whose help says what holds without it."""

Model = Annotated[
    str | None,
    argument(
        metavar="MODEL",
        help="What to train: FILE.py[:NAME] or package.module[:NAME], with a model file's functions, an nn.Module, a "
        "Hugging Face Trainer or a LightningModule.",
    ),
]
ScriptArgs = Annotated[
    list[str] | None,
    argument(
        metavar="-- ARGS",
        help="Passed to the file as sys.argv[1:]. For search, max-batch and inspect a training command in place of MODEL: "
        "-- python train.py --bs {batch}.",
    ),
]
Templates = Annotated[
    list[str] | None,
    optional(
        "--set",
        metavar="NAME=TEMPLATE",
        help="How a training command is told a setting: words to add, or a variable: batch=env:BATCH_SIZE.",
    ),
]
Device = Annotated[  # named, since typer 0.27 takes a metavar that is the parameter's name for the option's
    str, typer.Option("--device", metavar="DEVICE", help="Device to train on: auto, cpu, cuda, cuda:1.")
]
Storage = Annotated[
    str | None,
    optional(
        envvar="AUTOTUNE_STORAGE",
        metavar="URL",
        help="Ledger of all probes: a path or database URL. Default: a file in the user's data folder.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout instead of text.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show reasons and whole failure messages.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]

OutputFiles = Annotated[
    list[str] | None,
    optional(
        "--output-file",
        metavar="NAME=PATH",
        help="Write one value alone into a file: max_batch=PATH, micro_batch, safe ...; json for all. May be repeated.",
    ),
]

MemoryLimit = Annotated[
    str | None,
    optional(
        metavar="SIZE",
        help="Pretend the device has this much: 512MiB, 24GiB. Default: what is free, less a little headroom.",
    ),
]
_Precision = Annotated[Precision, typer.Option(help="Number formats of a step; default is PyTorch's own.")]
_Parallel = Annotated[
    Parallel,
    typer.Option(
        help="How --ranks share the work; default: DDP that your training sets up, from which a search of settings tries others."
    ),
]
_Allocator = Annotated[
    str,
    typer.Option(
        metavar="CONF",
        help="PYTORCH_ALLOC_CONF to train with, e.g. expandable_segments:True; auto tries that where more may fit.",
    ),
]
_Accumulate = Annotated[int, typer.Option(metavar="N", help="Micro-batches per optimizer step.")]
_MultipleOf = Annotated[int, typer.Option(metavar="N", help="Only sizes that are multiples of this.")]
_StartBatch = Annotated[int | None, optional(metavar="N", help="First size to try, where none is foretold.")]
_MaxBatch = Annotated[int | None, optional(metavar="N", help="Largest size to try.")]
_Timeout = Annotated[float, typer.Option(metavar="SECONDS", help="Time limit of one probe.")]
_TimeBudget = Annotated[
    float | None,
    optional(metavar="SECONDS", help="Time limit of the whole command; a probe that runs by then is let finish."),
]
DeviceWait = Annotated[
    float,
    typer.Option(metavar="SECONDS", help="How long to wait for probes of other searches on the device; 0: not at all."),
]
Seed = Annotated[int, typer.Option(metavar="N", help="Seed of every probe.")]
_EvalBatch = Annotated[
    int | None,
    optional(metavar="N", help="Evaluate in batches of this size. Default: the training batch's, as far as it fits."),
]
_Buckets = Annotated[
    str | None,
    optional(
        metavar="LENGTHS", help="Find a batch for each length bucket: samples at most so long, e.g. 128,512,2048."
    ),
]
_Objective = Annotated[Objective, typer.Option(help="What the settings are chosen for.")]
_Fix = Annotated[list[str] | None, optional(metavar="KNOB[=VALUE]", help="Keep a setting at your own or this value.")]
_Allow = Annotated[
    list[str] | None,
    optional(
        metavar="KNOB[=V1,V2]",
        help="Change only this setting, or only to these values; none: search the batch alone; all: also others.",
    ),
]
_Forbid = Annotated[
    list[str] | None, optional(metavar="KNOB[=VALUE]", help="Never change a setting, or never to this value.")
]
_EffectiveBatch = Annotated[
    int | None,
    optional(metavar="N", help="Samples an optimizer step is to see, exactly: batch x accumulated x devices."),
]
_World = Annotated[
    int | None, optional(metavar="N", help="Devices that train together, for --effective-batch. Default: --ranks.")
]
_Ranks = Annotated[
    str,
    typer.Option(
        metavar="N",
        help="Processes that train together, one for each CUDA device, or so many on the CPU; all: every CUDA device.",
    ),
]
_Trials = Annotated[
    int, typer.Option(metavar="N", help="Settings the sampler may propose beside those that are known to pay.")
]
_Output = Annotated[Path | None, typer.Option(metavar="PATH", help="File to write the recommendation to.")]
_Executor = Annotated[str, typer.Option(metavar="KIND", help="Where probes run: local, slurm or ray.")]
_Workers = Annotated[
    str | None,
    optional(
        metavar="N",
        help="Probes to run side by side, each alone on its device; of this host also all, or cuda:0,cuda:2.",
    ),
]
_ExecutorOption = Annotated[
    list[str] | None, optional(metavar="NAME=VALUE", help="Option of the executor. May be repeated.")
]
_Fresh = Annotated[bool, typer.Option("--fresh", help="Measure again; use no earlier probe from the ledger.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One command line of ``search`` or ``max-batch``, read but not yet checked."""

    model: str
    """Empty where a training command was given."""
    script_args: tuple[str, ...]
    training_command: tuple[str, ...]
    """Words of it; empty where a model was given."""
    templates: tuple[str, ...]
    options: "PlanOptions"
    """All else that makes the plan."""
    where: "Where"
    """Where probes are to run; what was not asked for is left out."""
    buckets: str | None
    storage: str | None
    output: Path | None
    output_files: tuple[str, ...]
    """Values to write alone, as NAME=PATH."""
    fresh: bool
    json: bool
    verbose: bool
    quiet: bool
    resume_command: str
    """What to type to go on after an interruption."""
    title: str
    """The command, for pages of pipelines."""


_OF_THE_BATCH = frozenset({"buckets"})
"""Parameters of a command that searches the batch alone."""
_OF_SETTINGS = frozenset({"objective", "fix", "allow", "forbid", "effective_batch", "world", "trials"})
"""Parameters of a command that searches settings."""


def searching(
    run: Callable[[Asked], None], *, default_output: Path | None, tune: bool, without: frozenset[str] = frozenset()
) -> Callable[..., None]:
    """A typer command that takes the options of a search and hands them over as one value.

    Args:
        run: what it does; its docstring becomes the help.
        default_output: file of the recommendation.
        tune: whether it has the options of a search of settings.
        without: parameters that make no sense for it.
    """

    def command(
        context: typer.Context,
        model: Model = None,
        args: ScriptArgs = None,
        templates: Templates = None,
        device: Device = "auto",
        memory_limit: MemoryLimit = None,
        precision: _Precision = Precision.DEFAULT,
        parallel: _Parallel = Parallel.DEFAULT,
        allocator: _Allocator = "",
        accumulate: _Accumulate = 1,
        multiple_of: _MultipleOf = 1,
        start_batch: _StartBatch = None,
        max_batch: _MaxBatch = None,
        timeout: _Timeout = 300.0,
        time_budget: _TimeBudget = None,
        device_wait: DeviceWait = 600.0,
        seed: Seed = 0,
        eval_batch: _EvalBatch = None,
        buckets: _Buckets = None,
        ranks: _Ranks = "1",
        objective: _Objective = Objective.THROUGHPUT,
        fix: _Fix = None,
        allow: _Allow = None,
        forbid: _Forbid = None,
        effective_batch: _EffectiveBatch = None,
        world: _World = None,
        trials: _Trials = 12,
        executor: _Executor = "local",
        workers: _Workers = None,
        executor_option: _ExecutorOption = None,
        storage: Storage = None,
        output: _Output = default_output,
        output_file: OutputFiles = None,
        fresh: _Fresh = False,
        json: Json = False,
        verbose: Verbose = False,
        quiet: Quiet = False,
    ) -> None:
        invocation: Invocation = context.obj
        ref, script_args, words = invocation.split(model, args or ())
        options: PlanOptions = {
            "device": device,
            "memory_limit": memory_limit,
            "precision": precision.value,
            "parallel": parallel.value,
            "allocator": allocator,
            "accumulate": accumulate,
            "multiple_of": multiple_of,
            "start_batch": start_batch,
            "max_batch": max_batch,
            "timeout_s": timeout,
            "time_budget_s": time_budget,
            "device_wait_s": device_wait,
            "seed": seed,
            "eval_batch": eval_batch,
            "ranks": ranks,
            "tune": tune,
            "objective": objective.value,
            "fix": tuple(fix or ()),
            "allow": tuple(allow or ()),
            "forbid": tuple(forbid or ()),
            "effective_batch": effective_batch,
            "world": world,
            "trials": trials,
        }
        run(
            Asked(
                model=ref,
                script_args=script_args,
                training_command=words,
                templates=tuple(templates or ()),
                options=options,
                where=_where(executor, workers, executor_option),
                buckets=buckets,
                storage=storage,
                output=output,
                output_files=tuple(output_file or ()),
                fresh=fresh,
                json=json,
                verbose=verbose,
                quiet=quiet,
                resume_command=invocation.resume_command,
                title=f"autotune {context.info_name}",
            )
        )

    command.__doc__ = run.__doc__
    others = (_OF_THE_BATCH if tune else _OF_SETTINGS) | without
    whole = inspect.signature(command)  # which typer reads
    kept = [one for name, one in whole.parameters.items() if name not in others]
    command.__signature__ = whole.replace(parameters=kept)  # type: ignore[attr-defined]
    return command


def _where(executor: str, workers: str | None, options: list[str] | None) -> "Where":
    found: Where = {}
    if executor != "local":
        found["executor"] = executor
    if workers is not None:
        found["workers"] = workers
    if options:
        found["executor_options"] = tuple(options)
    return found
