"""Where a model repeats itself: the blocks that activation checkpointing wraps, and the model's own switch for it.

Found by structure alone; nothing is run, so a model on the meta device will do.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from inspect import getattr_static
from itertools import combinations

from torch import nn

_HOLDERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
_MOST_CLASSES = 8
"""Classes of which all combinations are compared; models have two or three that repeat, one inside another."""


def find_blocks(model: nn.Module) -> tuple[str, ...]:
    """Qualified names of the model's repeated blocks, in its own order; none lies in another. Empty: it has none.

    Blocks are modules with parameters, at least two of one class under the same parent. Where several classes repeat
    (stages, their layers, the heads of a layer), those are taken that leave least to be kept by the measure of ``_kept``.
    A layer alone is no block: its input would be kept either way.
    """
    modules = dict(model.named_modules())
    sizes = {name: _layers(module) for name, module in modules.items()}
    groups = _repeated(modules, sizes)
    choices = [chosen for count in range(1, len(groups) + 1) for chosen in combinations(groups, count)]
    blocks = [_outermost([name for group in chosen for name in group]) for chosen in choices]
    best = min(blocks, key=lambda names: _kept(sizes, names), default=[])
    return tuple(name for name in modules if name in best)


def own_switch(model: nn.Module) -> str:
    """Library whose switch for activation checkpointing the model has: ``transformers``, ``timm``; empty = none."""
    return next((switch_of(module) for module in switches(model)), "")


def switches(model: nn.Module) -> Iterator[nn.Module]:
    """The outermost modules that have such a switch: usually the model itself, or the one it wraps."""
    if switch_of(model):
        yield model
        return
    for child in model.children():
        yield from switches(child)


def switch_of(module: nn.Module) -> str:
    """Library whose switch this very module has; empty = none."""
    if callable(getattr(module, "gradient_checkpointing_enable", None)):
        return "transformers" if getattr(module, "supports_gradient_checkpointing", True) else ""
    return "timm" if callable(getattr(module, "set_grad_checkpointing", None)) else ""


def _repeated(modules: dict[str, nn.Module], sizes: dict[str, int]) -> list[list[str]]:
    """Names of the modules of each class that repeats under one parent, the class with most layers first.

    A class of the user's counts wherever it stands, also alone in its stage. A plain ``Sequential`` is something else in
    each place, and counts only beside its like.
    """
    found: dict[type, list[str]] = defaultdict(list)
    repeats: set[type] = set()
    for parent_name, parent in modules.items():
        children = {f"{parent_name}.{name}".lstrip("."): child for name, child in parent.named_children()}
        blocks = {name: type(child) for name, child in children.items() if name in modules and _is_block(child)}
        counts = Counter(blocks.values())
        repeats |= {kind for kind, count in counts.items() if count > 1}
        for name, kind in blocks.items():
            if counts[kind] > 1 or kind not in _HOLDERS:
                found[kind].append(name)
    layers = {kind: sum(sizes[name] for name in found[kind]) for kind in repeats}
    worth = [kind for kind in repeats if layers[kind] > len(found[kind])]  # more in each than one layer
    return [found[kind] for kind in sorted(worth, key=lambda kind: (-layers[kind], found[kind]))[:_MOST_CLASSES]]


def _is_block(module: nn.Module) -> bool:
    """Whether calling it runs something (lists of modules only hold them) that has parameters."""
    forward = getattr_static(type(module), "forward")  # that of a scripted module cannot be asked for
    return forward is not nn.Module.forward and any(True for _ in module.parameters())


def _outermost(names: list[str]) -> list[str]:
    taken = set(names)
    return [name for name in names if taken.isdisjoint(_above(name))]


def _above(name: str) -> Iterator[str]:
    """Names of the modules that this one lies in, the root left out."""
    while "." in name:
        name = name.rpartition(".")[0]
        yield name


def _kept(sizes: dict[str, int], blocks: list[str]) -> int:
    """What the backward pass finds kept at most, counted in layers: the inputs of the blocks, all of the largest one
    while it is computed again, and everything outside of them."""
    outside = sizes[""] - sum(sizes[name] for name in blocks)
    return len(blocks) + max(sizes[name] for name in blocks) + outside


def _layers(module: nn.Module) -> int:
    """Modules in it that compute something, as a measure of what they keep; own weight matrices count as layers."""
    return sum(
        max(1, sum(parameter.dim() > 1 for parameter in part.parameters(recurse=False)))
        for part in module.modules()
        if not isinstance(part, _HOLDERS)
    )
