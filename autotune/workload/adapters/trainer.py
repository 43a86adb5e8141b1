"""A Hugging Face ``Trainer``, or a function that returns one: its model, optimizer, data set, collator and compute_loss.

What the Trainer's own loop does around them, autotune does: gradients, accumulation, scaler, precision, device. The
arguments that say so become settings of the search (``Found.parts.own``), so that each can be varied. Clipping is left
out: it works in place.
"""

import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any, get_type_hints

from autotune.errors import WorkloadError
from autotune.model import Checkpointing, Compile, Precision, Recognised, Settings
from autotune.workload.adapters.adapter import Adapter, Subject
from autotune.workload.adapters.held_back import asked
from autotune.workload.adapters.kinds import TRAINER, is_a, is_brought
from autotune.workload.adapters.trainer_evaluation import Evaluation
from autotune.workload.adapters.trainer_training import Training
from autotune.workload.assemble import Found, assemble
from autotune.workload.parts import accepts
from autotune.workload.seen import kind_of

_VERBS = ("make", "build", "get", "create")


def _takes(thing: object) -> bool:
    if isinstance(thing, FunctionType):
        return accepts(thing) and _returns_trainer(thing)
    return not isinstance(thing, type) and is_a(thing, TRAINER)


def _returns_trainer(function: FunctionType) -> bool:
    """By its annotation, or as far as its name tells: ``make_trainer``."""
    try:
        returned = get_type_hints(function).get("return")
    except (NameError, TypeError, AttributeError):  # annotations that cannot be evaluated here say nothing
        returned = None
    if returned is not None:
        return isinstance(returned, type) and is_a(returned, TRAINER)
    return function.__name__ in {f"{verb}_trainer" for verb in _VERBS}


def _adapt(subject: Subject) -> Found:
    trainer, remake, name = _made(subject)
    _refuse(trainer, name)
    training = Training(trainer, remake)
    told = {
        "loss": Recognised(
            what="train step",
            found=f"{_owner(trainer, 'compute_loss')}.compute_loss",
            why="what the Trainer's training_step calls",
        ),
        "make_optimizer": Recognised(what="optimizer", found=f"{name}.create_optimizer()", why=_optimizer_why(trainer)),
    }
    members: dict[str, object] = {
        "make_model": training.make_model,
        "make_optimizer": training.make_optimizer,
        "loss": training.loss,
        **_batches(subject, trainer, name, told),
    }
    evaluation = Evaluation.of(training)
    if evaluation is not None:
        members["evaluate"] = evaluation.run
        told["evaluate"] = Recognised(
            what="evaluate", found=f"{_owner(trainer, 'prediction_step')}.prediction_step", why=evaluation.why
        )
    own, notes = _own_settings(trainer)
    if own != Settings():
        words = ", ".join(f"{key} {value}" for key, value in own.changes(Settings()).items())
        told["settings"] = Recognised(what="settings", found=words, why=f"{name}.args")
    model = Recognised(what="model", found=f"{name}.model, {kind_of(trainer.model)}", why=subject.why)
    return assemble(members, subject.target, model=model, why="a function of the file", told=told, own=own, notes=notes)


def _made(subject: Subject) -> tuple[Any, Callable[[], object] | None, str]:
    """The Trainer, what makes another one, and what to call it."""
    thing = subject.thing
    if not isinstance(thing, FunctionType):
        return thing, subject.remake, subject.name
    trainer = thing()
    if not is_a(trainer, TRAINER):
        raise WorkloadError(
            f"{subject.name}() in {subject.target} returned {kind_of(trainer)}, not a Trainer",
            hint="end it with `return trainer`",
        )
    return trainer, thing, f"{subject.name}()"


def _batches(subject: Subject, trainer: Any, name: str, told: dict[str, Recognised]) -> dict[str, object]:
    """The parts that make batches: the file's own where it has some, else the Trainer's data set and collator."""
    if subject.has_batches:
        return subject.data
    if trainer.train_dataset is None:
        raise WorkloadError(
            f"{name} in {subject.target} has no train_dataset",
            hint="give it one: Trainer(..., train_dataset=...), or write make_batch(batch_size) beside it",
        )
    told["make_batch"] = Recognised(
        what="batch",
        found=f"the largest samples of {name}.train_dataset",
        why=f"batched by {_called(trainer.data_collator)}",
    )
    told["make_dataset"] = Recognised(what="data set", found=f"{name}.train_dataset", why="what the Trainer trains on")
    loader = trainer.get_train_dataloader()
    return subject.data | {"make_dataset": _always(loader.dataset), "collate": _one_argument(loader.collate_fn)}


def _refuse(trainer: Any, name: str) -> None:
    """Raise where a probe of one process is another training than this Trainer's."""
    for how in ("deepspeed", "fsdp"):
        if getattr(trainer.args, how, None):
            raise WorkloadError(
                f"{name}.args has {how}={getattr(trainer.args, how)!r}, which spreads the training over processes",
                hint=f"leave {how} out to search the batch of one device without it",
            )
    if getattr(trainer, "is_model_parallel", False):
        raise WorkloadError(f"{name}.model is spread over devices", hint="load it without device_map")


def _own_settings(trainer: Any) -> tuple[Settings, tuple[str, ...]]:
    """What the arguments say of settings that autotune applies, and what they say that no probe does."""
    args, notes = trainer.args, []
    precision = Precision.DEFAULT
    tf32 = asked(args, "tf32")
    if tf32 is not None:
        precision = Precision.TF32 if tf32 else Precision.FP32
    if args.bf16 or args.fp16:
        precision = Precision.BF16 if args.bf16 else Precision.FP16
    compile_mode = Compile.OFF
    if asked(args, "torch_compile"):
        mode = asked(args, "torch_compile_mode") or "default"
        if mode in {kind.value for kind in Compile} and asked(args, "torch_compile_backend") in (None, "inductor"):
            compile_mode = Compile(mode)
        else:
            notes.append(f"torch_compile is left out: autotune does not know mode {mode!r} with this backend")
    own_switch = bool(_checkpoints(args)) and not _checkpointing_options(args)
    steps = inspect.getattr_static(type(trainer), "training_step")
    if getattr(steps, "__module__", "") not in ("transformers.trainer", ""):
        notes.append(
            f"{steps.__qualname__} is not called: probes call compute_loss, as the Trainer's own training_step does"
        )
    settings = Settings(
        precision=precision,
        compile=compile_mode,
        checkpointing=Checkpointing.OWN if own_switch else Checkpointing.OFF,
        accumulate=args.gradient_accumulation_steps,
    )
    return settings, tuple(notes)


def _checkpoints(args: Any) -> bool:
    """Whether activations are checkpointed; the argument has two names."""
    return bool(getattr(args, "activation_checkpointing", False) or getattr(args, "gradient_checkpointing", False))


def _checkpointing_options(args: Any) -> dict[str, Any]:
    """What it is asked for beyond the model's own switch as autotune throws it."""
    options = getattr(args, "activation_checkpointing_kwargs", None) or getattr(
        args, "gradient_checkpointing_kwargs", None
    )
    return {key: value for key, value in (options or {}).items() if (key, value) != ("use_reentrant", False)}


def _optimizer_why(trainer: Any) -> str:
    if trainer.optimizer is not None:
        return "given to the Trainer"
    if getattr(trainer, "optimizer_cls_and_kwargs", None) is not None:
        return "optimizer_cls_and_kwargs"
    optim = getattr(trainer.args.optim, "value", trainer.args.optim)
    return f"optim {optim}, weight decay {trainer.args.weight_decay:g} but for biases and norms"


def _owner(trainer: object, method: str) -> str:
    return next((cls.__name__ for cls in type(trainer).__mro__ if method in vars(cls)), type(trainer).__name__)


def _called(part: object) -> str:
    return str(getattr(part, "__name__", type(part).__name__))


def _always(value: object) -> Callable[[], object]:
    return lambda: value


def _one_argument(collate: Callable[[Any], object]) -> Callable[[list[object]], object]:
    """Collators may take optional arguments beside the samples, or say so."""
    return lambda samples: collate(samples)


ADAPTER = Adapter(
    what="Trainer objects, or functions that make one", brought=lambda: is_brought(TRAINER), takes=_takes, adapt=_adapt
)
