"""Whether a recommendation holds here: machine, PyTorch, allocator, number of devices and model against what it was made for."""

import os
import shlex
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch

from autotune.errors import StaleConfig, StaleConfigError
from autotune.model import Settings
from autotune.probe.devices import look_at_device
from autotune.recommended.facts import changed_facts
from autotune.report.document import settings_of
from autotune.report.fields import Document

Path = str | os.PathLike[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing that is not as it was when the file was made."""

    text: str
    """What differs, with both values."""
    cure: str
    """What to type, or to change in the training script."""


def set_allocator(content: Document, device: torch.device) -> tuple[Difference, ...]:
    """Set the variables of the allocator the file asks for, where nobody has and it is not too late.

    Call it before anything starts the device. A configuration that a person has set stays.
    """
    settings = settings_of(content)
    if not settings.allocator or device.type != "cuda":
        return ()
    present = {name: os.environ[name] for name in settings.environment if os.environ.get(name)}
    for name, value in present.items():
        if value != settings.allocator:
            return (
                Difference(
                    text=f"allocator: {settings.allocator} in the file, {value} in {name} here",
                    cure=f"unset {name} in the environment of the training",
                ),
            )
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        os.environ.update(settings.environment)
        return ()
    return () if present else (_too_late(settings, "the default"),)


def differences(content: Document, device: torch.device, path: Path) -> tuple[Difference, ...]:
    """What else is not as the file says. Looking starts the device."""
    found = [*_machine(content, device, path), *_in_force(content, device)]
    world = _world()
    if content.batch.world != world:
        effective = content.batch.effective
        each = content.batch.micro_batch * content.batch.accumulate
        replicas = world if content.batch.replicas is None else content.batch.replicas
        text = f"devices that train together: {content.batch.world} in the file, {world} here"
        if each * replicas != effective:  # under tensor parallel all of them see one batch
            text += f"; an optimizer step sees {each * replicas} samples instead of {effective}"
        found.append(Difference(text=text, cure=search_again(content, path)))
    if not content.complete:
        found.append(
            Difference(
                text=f"complete: false in the file, since its search ran out of time; batch {content.batch.micro_batch} "
                "is certified, and others may be faster",
                cure=search_again(content, path),
            )
        )
    return tuple(found)


def model_differences(content: Document, model: torch.nn.Module, path: Path) -> tuple[Difference, ...]:
    """Whether it is another model, as far as its number of parameters tells."""
    then, here = content.workload.parameters, sum(p.numel() for p in model.parameters())
    if then is None or then == here:
        return ()
    text = f"parameters of the model: {then:,} in the file, {here:,} here"
    return (Difference(text=text, cure=search_again(content, path)),)


def tell(path: Path, found: Sequence[Difference], *, strict: bool) -> None:
    """Warn the caller's caller of all that differs, or raise; nothing if nothing does.

    Raises:
        StaleConfigError: with ``strict``.
    """
    if not found:
        return
    message = "\n  ".join([f"what {path} says need not hold here:", *(one.text for one in found)])
    cures = "; ".join(dict.fromkeys(one.cure for one in found))
    if strict:
        error = StaleConfigError(message, hint=cures)
        error.add_note(f"hint: {cures}; or load it without strict=True, which only warns")
        raise error
    warnings.warn(StaleConfig(f"{message}\nhint: {cures}"), stacklevel=3)


def search_again(content: Document, path: Path) -> str:
    """The command that makes the file anew."""
    output = f"--output {shlex.quote(os.fspath(path))}"
    if content.workload.command is not None:  # a reference to it is its words, quoted
        return f"autotune search {output} -- {content.workload.ref}"
    return f"autotune search {shlex.quote(content.workload.ref)} {output}"


def _machine(content: Document, device: torch.device, path: Path) -> list[Difference]:
    then = content.machine.model_dump()
    cure = search_again(content, path)
    if device.type != then["device"]:
        text = f"kind of device: {then['device']} ({then['device_name']}) in the file, {device.type} here"
        found = [Difference(text=text, cure=cure)]
        here: dict[str, object] = {"torch_version": torch.__version__}
    else:
        found = []
        machine = look_at_device(str(device))
        here = asdict(machine)
    found += [Difference(text=fact.text, cure=cure) for fact in changed_facts(then, here, device.type)]
    return found


def _in_force(content: Document, device: torch.device) -> list[Difference]:
    """Whether the allocator really runs as its variables say: they may have been set after it began.

    Only expandable segments can be asked for, by what PyTorch's memory viewer reads.
    """
    settings = settings_of(content)
    snapshot = getattr(torch.cuda.memory, "_snapshot", None)
    if device.type != "cuda" or "expandable_segments:true" not in settings.allocator.lower() or snapshot is None:
        return []
    if {value for name in settings.environment if (value := os.environ.get(name))} != {settings.allocator}:
        return []  # told by set_allocator
    got = snapshot().get("allocator_settings", {}).get("expandable_segments", True)
    return [] if got else [_too_late(settings, f"expandable_segments is {got}")]


def _too_late(settings: Settings, here: str) -> Difference:
    variables = " ".join(f"{name}={shlex.quote(value)}" for name, value in settings.environment.items())
    return Difference(
        text=f"allocator: {settings.allocator} in the file, {here} here: the device was started before",
        cure=f"call autotune.load before anything uses the device, or start the training with {variables}",
    )


def _world() -> int:
    """Processes that train together: of the group, or of the launcher (torchrun) before there is one."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_world_size()
    told = os.environ.get("WORLD_SIZE", "")
    return int(told) if told.isdecimal() and len(told) < 9 and int(told) > 0 else 1
