"""What of autotune is installed, beside what: for ``autotune doctor``. Nothing is imported that is only looked for."""

import platform
import re
import shutil
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from autotune.model import Fact, Health
from autotune.probe.facts import fact

DISTRIBUTION = "autotune-torch"
_NEEDED = (
    "torch",
    "optuna",
    "nvidia-ml-py",
    "sqlalchemy",
    "alembic",
    "pydantic",
    "psutil",
    "typer",
    "rich",
    "cloudpickle",
)
"""Listed whatever the distribution says: in a checkout that is what was asked for when it was last installed."""
_WANTED = {
    "triton": "torch.compile on a CUDA device",
    "psycopg": "a ledger in PostgreSQL",
    "submitit": "probes in jobs of Slurm",
    "ray": "probes on a Ray cluster",
    "transformers": "workloads that are a Hugging Face Trainer",
    "lightning": "workloads that are a LightningModule",
    "accelerate": "exports to accelerate",
    "prometheus-client": "metrics of `autotune watch`",
}
_EXTRAS = {
    "psycopg": '"autotune-torch[postgres]"',
    "submitit": '"autotune-torch[slurm]"',
    "ray": '"autotune-torch[ray]"',
    "prometheus-client": '"autotune-torch[monitor]"',
}
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_ENTRY = "autotune.cli.app"
_SCRIPT_BYTES = 4096


def versions() -> list[Fact]:
    """autotune, Python and every package that autotune needs."""
    package = Path(__file__).resolve().parents[1]
    return [
        fact("versions", "autotune", lambda: f"{installed(DISTRIBUTION) or 'not installed: a checkout'} in {package}"),
        fact("versions", "Python", lambda: f"{platform.python_version()} at {sys.executable}"),
        fact("versions", "platform", platform.platform),
        *(fact("versions", name, lambda name=name: _version(name)) for name in _needed()),  # type: ignore[misc]
    ]


def collisions(path: str | None = None) -> list[Fact]:
    """Who else calls a package or a command ``autotune``.

    Args:
        path: where commands are looked for; None = PATH.
    """
    return [
        fact("command", "package", _package),
        fact("command", "script", lambda: _script(path)),
    ]


def optional() -> list[Fact]:
    """What some uses need, and how to get it."""
    found = [fact("optional", name, lambda name=name: _wanted(name)) for name in _WANTED]  # type: ignore[misc]
    return [*found, fact("optional", "C++ compiler", _compiler)]


def _needed() -> Sequence[str]:
    try:
        requirements = metadata.requires(DISTRIBUTION) or ()
    except metadata.PackageNotFoundError:
        requirements = ()
    names = [match[0] for text in requirements if "extra ==" not in text and (match := _NAME.match(text))]
    return list(dict.fromkeys([*_NEEDED, *names]))


def installed(name: str) -> str | None:
    """Version of a distribution; None where it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _version(name: str) -> str | Fact:
    found = installed(name)
    if found is not None:
        return found
    return Fact(section="versions", name=name, value="missing", health=Health.TROUBLE, hint=f"pip install {name}")


def _wanted(name: str) -> str | Fact:
    found = installed(name)
    if found is not None:
        return found
    text, hint = f"not installed; only for {_WANTED[name]}", f"pip install {_EXTRAS.get(name, name)}"
    return Fact(section="optional", name=name, value=text, hint=hint)


def _compiler() -> str | Fact:
    found = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if found:
        return found
    text, hint = "none; only for torch.compile", "apt-get install g++"
    return Fact(section="optional", name="C++ compiler", value=text, hint=hint)


def _package() -> str | Fact:
    owners = sorted(set(metadata.packages_distributions().get("autotune", ())))
    others = [name for name in owners if name.replace("_", "-").lower() != DISTRIBUTION]
    if not others:
        return f"of {DISTRIBUTION} alone" if owners else "of no distribution: a checkout"
    return Fact(
        section="command",
        name="package",
        value=f"'autotune' belongs to {' and '.join(owners)}: their files overwrite each other",
        health=Health.TROUBLE,
        hint=f"pip uninstall -y {' '.join(others)} && pip install --force-reinstall --no-deps {DISTRIBUTION}",
    )


def _script(path: str | None) -> str | Fact:
    found = shutil.which("autotune", path=path)
    if found is None:
        text, hint = "'autotune' is not on PATH", f"{sys.executable} -m autotune"
        return Fact(section="command", name="script", value=text, health=Health.NOTE, hint=hint)
    with open(found, "rb") as file:
        ours = _ENTRY.encode() in file.read(_SCRIPT_BYTES)
    claimed = {
        entry.dist.name
        for entry in metadata.entry_points(group="console_scripts", name="autotune")
        if entry.dist is not None and not entry.value.startswith(f"{_ENTRY}:")
    }
    if ours and not claimed:
        return found
    whose = f" of {' and '.join(sorted(claimed))}" if claimed else ""
    state = "is another program's" if not ours else "may be overwritten by the one"
    return Fact(
        section="command",
        name="script",
        value=f"{found} {state}{whose}",
        health=Health.NOTE if ours else Health.TROUBLE,
        hint=f"use autotune-torch, or {sys.executable} -m autotune",
    )
