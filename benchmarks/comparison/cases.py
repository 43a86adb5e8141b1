"""The workloads and the finders of the comparison."""

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The checkout: every command runs here."""
_WORKLOADS = Path("benchmarks", "workloads")

AUTOTUNE = "autotune"
LIGHTNING_POWER = "lightning-power"
LIGHTNING_BINSEARCH = "lightning-binsearch"
ACCELERATE = "accelerate"
BRUTE_FORCE = "brute-force"
FINDERS = (AUTOTUNE, LIGHTNING_POWER, LIGHTNING_BINSEARCH, ACCELERATE, BRUTE_FORCE)
"""In the order they run: brute force starts from autotune's answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One workload under one precision."""

    name: str
    title: str
    file: Path
    """Relative to the checkout."""
    precision: str
    """As ``autotune --precision`` has it: ``default`` or ``bf16``."""


def _case(name: str, title: str, precision: str) -> tuple[str, Case]:
    return name, Case(name=name, title=title, file=_WORKLOADS / f"{name}.py", precision=precision)


CASES = dict(
    [
        _case("gpt2", "GPT-2 124M, 1024 tokens, bf16, AdamW", "bf16"),
        _case("bert", "BERT-base, 512 tokens, bf16, AdamW", "bf16"),
        _case("vit", "ViT-B/16, 224x224, bf16, AdamW", "bf16"),
        _case("resnet50", "ResNet-50, 224x224, PyTorch defaults, SGD", "default"),
        _case("convnext", "ConvNeXt-S, 224x224, bf16, AdamW", "bf16"),
        _case("gpt2_checkpointed", "GPT-2 124M with activation checkpointing", "bf16"),
    ]
)
"""What the table compares."""
TRIAL_CASES = CASES | dict([_case("tiny", "a small network with a made-up limit", "default")])
"""... and what only tries the comparison itself, without a GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A finder of another project: how its child is started and what must be installed."""

    module: str
    arguments: tuple[str, ...]
    package: str


PEERS = {
    LIGHTNING_POWER: Peer(
        module="benchmarks.comparison.lightning_tuner", arguments=("--mode", "power"), package="lightning"
    ),
    LIGHTNING_BINSEARCH: Peer(
        module="benchmarks.comparison.lightning_tuner", arguments=("--mode", "binsearch"), package="lightning"
    ),
    ACCELERATE: Peer(module="benchmarks.comparison.accelerate_decorator", arguments=(), package="accelerate"),
}
