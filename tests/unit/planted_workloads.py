"""Workloads given by what they ask of the allocator: known at every batch size."""

from dataclasses import dataclass

from autotune.model import Phase
from autotune.units import MIB


@dataclass(frozen=True, kw_only=True)
class Request:
    """What the workload asks of the allocator at one place, ``constant + per_sample · B + per_pair · B²`` bytes."""

    born: Phase
    ended: Phase | None = None
    """In this phase of the same step if it comes after ``born``, else of the next step; the same phase = at once.
    None = kept: by the model (born in BUILD), by the optimizer (OPTIMIZER) until the pass is over, by libraries for good."""
    constant: int = 0
    per_sample: int = 0
    per_pair: int = 0
    at_most: int | None = None
    """Bytes it does not grow beyond."""
    from_size: int = 1
    """Not made by smaller batches."""
    below: int | None = None
    """Made by smaller batches only."""
    each_sample: bool = False
    """Made once for every sample, as a model does that loops over them."""

    def sizes(self, batch_size: int) -> list[int]:
        """Bytes of each time it is made in a step."""
        if batch_size < self.from_size or (self.below is not None and batch_size >= self.below):
            return []
        size = self.constant + self.per_sample * batch_size + self.per_pair * batch_size**2
        size = size if self.at_most is None else min(size, self.at_most)
        return [size] * (batch_size if self.each_sample else 1) if size else []


Workload = tuple[Request, ...]


def network(
    *widths: int,
    weight: int = 8 * MIB,
    batch: int = MIB // 2,
    states: int = 2,
    pair: int = 0,
    evaluates: bool = False,
) -> Workload:
    """Layers that keep so many bytes a sample from forward to backward, trained by an optimizer with so many states.

    ``pair``: bytes for each pair of samples, as a contrastive loss has them. ``evaluates``: in a way that takes
    more at once than training does.
    """
    layers = range(len(widths))
    requests = [Request(born=Phase.BUILD, constant=weight) for _ in layers]
    requests.append(Request(born=Phase.DATA, ended=Phase.DATA, per_sample=batch))
    for width in widths:
        requests.append(Request(born=Phase.FORWARD, ended=Phase.FORWARD, per_sample=width // 2))
        requests.append(Request(born=Phase.FORWARD, ended=Phase.BACKWARD, per_sample=width, constant=640))
    requests.append(Request(born=Phase.FORWARD, ended=Phase.BACKWARD, per_pair=pair))
    for width in reversed(widths):
        requests.append(Request(born=Phase.BACKWARD, ended=Phase.BACKWARD, per_sample=width))
        requests.append(Request(born=Phase.BACKWARD, ended=Phase.DATA, constant=weight))
    requests += [Request(born=Phase.OPTIMIZER, constant=weight) for _ in layers for _ in range(states)]
    requests += [Request(born=Phase.OPTIMIZER, ended=Phase.OPTIMIZER, constant=weight) for _ in layers]
    if evaluates:
        requests.append(Request(born=Phase.EVALUATE, ended=Phase.EVALUATE, per_sample=3 * sum(widths) // 2))
    return tuple(requests)


def with_more(workload: Workload, *more: Request) -> Workload:
    """The same, with more requests made in the middle of those of their phases."""
    result = list(workload)
    for request in more:
        places = [at for at, one in enumerate(workload) if one.born is request.born]
        result.insert(places[len(places) // 2], request)
    return tuple(result)
