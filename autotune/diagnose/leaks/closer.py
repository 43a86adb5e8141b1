"""A closer look at a training that leaks: a few more steps, slower, to see what grows, who makes it and who keeps it.

In the child, after the undisturbed steps. Everything found is named as the user knows it.
"""

import gc
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch

from autotune.diagnose.examiner import Training
from autotune.diagnose.leaks.allocations import Allocations
from autotune.diagnose.leaks.census import (
    Census,
    graph_nodes,
    hooks,
    length,
    object_bytes,
    state,
    tensors_in,
)
from autotune.diagnose.leaks.naming import Names
from autotune.diagnose.leaks.places import Keepers, Makers, traced_bytes, traced_objects
from autotune.model import LeakKind, Suspect
from autotune.workload.places import is_library

STEPS = 8
"""Enough for what comes with every fourth step to come twice."""
LEAST_STEPS = 3
TRACED_STEPS = 2
"""Run line by line; up to four times as many where nothing was kept in them."""
LEAST_TRACED_BYTES = 1024
"""Of Python's and NumPy's objects a step, made by one line."""


@dataclass(frozen=True, slots=True)
class _Found:
    suspect: Suspect
    container: Any = None
    """Whose growth shows the line that keeps things; None = there is none."""


class CloserLook:
    """One look. Python's collector is switched off by whoever calls it."""

    def __init__(self, training: Training, steps: int) -> None:
        """``steps``: how many to take, two at least."""
        self._training = training
        self._steps = steps
        self._makers = Makers(training.phase)
        self._covered: set[int] = set()
        """Storages that are accounted for: a kept view keeps what it is a view of, and Python sees both."""
        self._has_graph = False
        """Whether a graph is kept that Python sees one end of."""

    def suspects(self) -> tuple[Suspect, ...]:
        """What grows; in no order. Raises whatever the user's code raises."""
        training = self._training
        gc.unfreeze()
        before = Census.take()
        hooks_before = [(each, len(each.registered)) for each in hooks(training.model, training.optimizer)]
        state_before = state(training.model)
        nodes_before = max(map(graph_nodes, before.tensors), default=0)
        gc.freeze()  # what is seen of Python's objects until the next call are those made from here on
        traced = self._take_steps()
        found = self._cycles()
        young = Census.take().tensors
        gc.unfreeze()
        names = Names(training.model, training.optimizer)
        found += self._hooks(hooks_before)
        found += self._state(state_before)
        hook_dicts = {id(each.registered) for each, _ in hooks_before}
        grown = [
            (one, length(one) - then)
            for one, then in before.containers
            if length(one) - then >= max(1, self._steps // 4)
        ]
        grown = [(one, more) for one, more in grown if id(one) not in hook_dicts and not self._is_state(one)]
        del before
        plain: list[tuple[Any, int]] = []
        for one, more in grown:
            kept = self._in_container(one, more, names)
            if kept is not None:
                found.append(kept)
            elif not any(True for _ in tensors_in(_last(one, more))):
                plain.append((one, more))
        found += self._loose(young, nodes_before, names)
        del young
        found += self._host(traced, plain, names)
        return self._with_keepers(found)

    def _take_steps(self) -> dict[str, tuple[float, float]]:
        """Take the steps; line -> (bytes, number) of traced blocks that each adds."""
        training, makers = self._training, self._makers
        self._allocations = Allocations(training.device)
        with traced_objects(), self._allocations.recording(), nullcontext() if training.compiled else makers:
            for makers.step in range(self._steps):
                training.step()
                if makers.step == 0:
                    before = traced_bytes()
            after = traced_bytes()
        self._allocations_per_step = self._allocations.per_step(self._steps)
        added = {}
        for place, (size, count) in after.items():
            size_then, count_then = before.get(place, (0, 0))
            added[place] = ((size - size_then) / (self._steps - 1), (count - count_then) / (self._steps - 1))
        return added

    def _cycles(self) -> list[_Found]:
        """What the collector would free, left to it."""
        debug = gc.get_debug()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            gc.collect()
            garbage = list(gc.garbage)
        finally:
            gc.set_debug(debug)
            gc.garbage.clear()
        tensors = [one for one in garbage if issubclass(type(one), torch.Tensor)]
        kinds = {type(one) for one in garbage if not is_library(type(one).__module__)}
        words = ", ".join(sorted(kind.__qualname__ for kind in kinds)) or "objects"
        size, count = _bytes(tensors) / self._steps, len(tensors) / self._steps
        found = []
        if size > 0:
            what = f"{words} in a reference cycle"
            found.append(_Found(self._of(LeakKind.CYCLES, what, tensors, count, size)))
        del garbage, tensors
        gc.collect()
        return found

    def _hooks(self, before: Sequence[tuple[Any, int]]) -> list[_Found]:
        found = []
        for each, number in before:
            more = len(each.registered) - number
            if more >= self._steps // 2:
                held = [*tensors_in(list(each.registered.values())[-more:], depth=3)]
                held += [tensor for hook in list(each.registered.values())[-more:] for tensor in _closed_over(hook)]
                suspect = self._of(LeakKind.HOOKS, each.where, held, more / self._steps, _bytes(held) / self._steps)
                self._cover(held)
                found.append(_Found(suspect, each.registered))
        return found

    def _state(self, before: dict[str, int]) -> list[_Found]:
        found = []
        now = state(self._training.model)
        named = {**dict(self._training.model.named_buffers()), **dict(self._training.model.named_parameters())}
        new = [name for name in now if name not in before]
        larger = [name for name in now if name in before and now[name] > before[name]]
        for names, words, count in ((larger, "becomes larger", 1.0), (new, "more of them", len(new) / self._steps)):
            if names:
                tensors = [named[name] for name in names if name in named]
                size = sum(now[name] - before.get(name, 0) for name in names) / self._steps
                kinds = "buffer" if names[0] in dict(self._training.model.named_buffers()) else "parameter"
                what = f"{kinds} {names[0]} of the model: {words}"
                owner = self._training.model.get_submodule(names[0].rpartition(".")[0])
                where = vars(owner)["_buffers" if kinds == "buffer" else "_parameters"] if names is new else None
                found.append(_Found(self._of(LeakKind.STATE, what, tensors, count, size), where))
        self._cover(named.values())
        return found

    def _is_state(self, container: object) -> bool:
        """Whether it is where modules and optimizers keep their own."""
        modules = self._training.model.modules()
        own = ("_parameters", "_buffers", "_modules")
        return container is self._training.optimizer.state or any(
            vars(module).get(name) is container for module in modules for name in own
        )

    def _in_container(self, container: Any, more: int, names: Names) -> _Found | None:
        tensors = list(tensors_in(_last(container, more)))
        if not tensors:
            return None
        name = names.of(container)
        if not name.text and not name.rooted:
            return None  # ours
        kind = LeakKind.GRAPH if any(one.grad_fn is not None for one in tensors) else LeakKind.TENSORS
        what, size = f"{type(container).__name__} {name.text}".rstrip(), _bytes(tensors)
        if size > 2 * sum(one.nbytes for one in tensors):
            what += ": views of larger tensors, which .clone() would let go"
        self._cover(tensors)
        return _Found(self._of(kind, what, tensors, more / self._steps, size / self._steps), container)

    def _loose(self, young: Iterable[torch.Tensor], nodes_before: int, names: Names) -> list[_Found]:
        """Tensors in no container that grows: chained ones, one that becomes larger, graphs and cycles without a holder."""
        self._cover(one for values in self._training.optimizer.state.values() for one in tensors_in(values))
        self._cover(one.grad for one in self._training.model.parameters() if one.grad is not None)
        left = [one for one in young if _storage(one)[0] not in self._covered]
        found: list[_Found] = []
        lost: list[torch.Tensor] = []
        for group in _alike(left, self._makers.place_of):
            rooted = self._rooted(group, nodes_before, names)
            if rooted is not None:
                found.append(rooted)
            elif len(group) >= self._steps // 2 and not self._has_graph:
                lost += group
        if lost and not self._has_graph:
            size = _bytes(lost) / self._steps
            suspect = self._of(
                LeakKind.LOCKED_CYCLES,
                "tensors that refer to each other through their graph",
                lost,
                len(lost) / self._steps,
                size,
            )
            found.append(_Found(suspect))
        return found

    def _rooted(self, group: list[torch.Tensor], nodes_before: int, names: Names) -> _Found | None:
        """A group of tensors that something with a name keeps; None if nothing does, or nothing grows."""
        one = group[len(group) // 2]
        if len(group) >= self._steps // 2:
            if self._has_graph:
                return None  # saved by that graph, as it seems
            name = names.of(one)
            if not name.rooted:
                return None
            kind = LeakKind.GRAPH if one.grad_fn is not None else LeakKind.TENSORS
            what = f"tensors chained from {name.text}" if name.text else "tensors"
            return _Found(self._of(kind, what, group, len(group) / self._steps, _bytes(group) / self._steps))
        last = max(group, key=lambda each: each.nbytes)
        deeper = last.grad_fn is not None and graph_nodes(last) >= nodes_before + self._steps
        sizes = self._makers.sites[place].sizes if (place := self._makers.place_of(last)) else {}
        steps = sorted(sizes)
        larger = len(steps) >= self._steps // 2 and all(sizes[b] > sizes[a] for a, b in pairwise(steps))
        if not deeper and not (larger and last.nbytes >= max(sizes.values())):
            return None
        name = names.of(last)
        if not name.rooted:
            return None
        if deeper:
            return _Found(self._of(LeakKind.GRAPH, f"the graph behind {name.text}", [last], 1.0, None))
        rate = (sizes[steps[-1]] - sizes[steps[0]]) / (steps[-1] - steps[0])
        return _Found(self._of(LeakKind.TENSORS, f"tensor {name.text} becomes larger", [last], 1.0, rate))

    def _host(
        self, traced: dict[str, tuple[float, float]], plain: Sequence[tuple[Any, int]], names: Names
    ) -> list[_Found]:
        """Python's and NumPy's objects, by the line that makes them; kept where a container without tensors grew: the line
        that makes most in the one that grew most, and so on."""
        lines = sorted(
            ((size, count, place) for place, (size, count) in traced.items() if place and size >= LEAST_TRACED_BYTES),
            reverse=True,
        )
        grown = sorted(plain, key=lambda entry: -object_bytes(_last(*entry))) if lines else []
        named = [(one, more, text) for one, more in grown if (text := names.of(one).text)]
        found = []
        for number, (size, count, place) in enumerate(lines[:3]):
            one, what = None, "objects of Python"
            if named:
                one, more, text = named[number if number < len(named) else 0]
                what, count = f"{type(one).__name__} {text}", more / self._steps
            suspect = Suspect(kind=LeakKind.HOST, what=what, count_per_step=count, bytes_per_step=size, made_at=place)
            found.append(_Found(suspect, one))
        return found

    def _with_keepers(self, found: Sequence[_Found]) -> tuple[Suspect, ...]:
        """The suspects, each with the line that keeps it, which some more steps run line by line show."""
        watched = [one for one in found if one.container is not None]
        if not watched:
            return tuple(one.suspect for one in found)
        keepers = Keepers([one.container for one in watched])
        with keepers.watching():
            for number in range(4 * TRACED_STEPS):
                self._training.step()
                if number + 1 >= TRACED_STEPS and all(keepers.places):
                    break
        places = {id(one): place for one, place in zip(watched, keepers.places, strict=True)}
        return tuple(replace(one.suspect, kept_at=places.get(id(one), "")) for one in found)

    def _of(
        self, kind: LeakKind, what: str, tensors: Sequence[torch.Tensor], count: float, size: float | None
    ) -> Suspect:
        """With shape, place and phase of the largest of the tensors."""
        graph = kind in (LeakKind.GRAPH, LeakKind.LOCKED_CYCLES)
        place_of = self._makers.place_of_garbage if kind is LeakKind.CYCLES else self._makers.place_of
        largest = max(
            tensors,
            key=lambda one: (graph and one.grad_fn is not None, bool(place_of(one)), one.nbytes),
            default=None,
        )
        place = place_of(largest) if largest is not None else ""
        if kind is LeakKind.GRAPH:
            self._has_graph = True
            place = place or self._allocations_per_step.largest
        site = self._makers.sites.get(place)
        return Suspect(
            kind=kind,
            what=what,
            count_per_step=count,
            bytes_per_step=None if graph else size,
            shape="" if largest is None else f"{str(largest.dtype).removeprefix('torch.')} {tuple(largest.shape)}",
            made_at=place,
            phase=site.phase if site else "",
        )

    def _cover(self, tensors: Iterable[torch.Tensor]) -> None:
        self._covered |= {_storage(one)[0] for one in tensors}


def _bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Behind tensors, views counted once."""
    return sum(dict(map(_storage, tensors)).values())


def _storage(tensor: torch.Tensor) -> tuple[int, int]:
    """What tells it apart, and its bytes; of tensors that have none (sparse ones), themselves."""
    try:
        storage = tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return id(tensor), 0
    return storage._cdata, storage.nbytes()


def _last(container: Any, more: int) -> list[Any]:
    """What was put into a container last; of a set, whose order says nothing, any."""
    values = list(container.values()) if isinstance(container, dict) else list(container)
    return values[-more:]


def _closed_over(hook: Any) -> list[torch.Tensor]:
    """Tensors that a hook's function keeps in its closure and defaults."""
    cells = [cell.cell_contents for cell in getattr(hook, "__closure__", None) or () if _is_filled(cell)]
    return list(tensors_in([*cells, *(getattr(hook, "__defaults__", None) or ())], depth=3))


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - asking is the only way to know
    except ValueError:
        return False
    return True


def _alike(tensors: Iterable[torch.Tensor], place_of: Callable[[torch.Tensor], str]) -> list[list[torch.Tensor]]:
    """Grouped by the line that made them and whether they have a graph; by shape as well where no line was seen."""
    groups: dict[Any, list[torch.Tensor]] = {}
    for one in tensors:
        place = place_of(one)
        key = (place, one.grad_fn is not None, one.dtype, None if place else tuple(one.shape))
        groups.setdefault(key, []).append(one)
    return list(groups.values())
