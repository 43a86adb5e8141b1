"""The workload as a probe uses it: the user's functions with their results checked, defaults where they wrote none."""

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from autotune.apply.optimizers import needs_closure
from autotune.errors import WorkloadError
from autotune.model import LoaderInfo, Recognised, Settings
from autotune.workload.batch import is_moved, observed_batch
from autotune.workload.cut import Cut
from autotune.workload.dataset import BatchSource, Counted, Within
from autotune.workload.default_loss import default_loss, own_loss
from autotune.workload.lengths import equally_long
from autotune.workload.opening import one_thread, open_data, open_loader, size_of
from autotune.workload.parts import Parts
from autotune.workload.returned import in_words, scalar
from autotune.workload.told import takes_rank, told

_NOTHING_TO_MOVE = "no tensors in the batch: nothing is moved to the device"


class Workload:
    """What the user trains. Errors of the user's own code pass through untouched."""

    def __init__(
        self,
        ref: str,
        parts: Parts,
        recognised: tuple[Recognised, ...],
        notes: tuple[str, ...] = (),
        *,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        """Makes the data set or a loader, if there is one, and looks for its largest samples.

        ``rank`` and ``world_size`` are what functions are told that ask for them.

        Raises:
            WorkloadError: ``make_dataset`` returns no data set, or ``make_loader`` no loader.
        """
        self.ref = ref
        self.recognised = recognised
        self._untold, self._notes, self._rank = parts, notes, (rank, world_size)
        parts = self._parts = told(parts, rank, world_size)
        self._data: BatchSource | None = None
        self.data_set_size: int | None = None
        """Upper bound for the batch; None where there is no data set or it has no length."""
        with one_thread():
            if parts.make_batch is None and parts.make_loader is not None:
                self._data = open_loader(parts.make_loader)
            elif parts.make_batch is None and parts.make_dataset is not None:
                self._data = open_data(parts.make_dataset, parts.collate)
        if self._data is not None:
            self.data_set_size = self._data.size
            notes += self._data.notes
        elif parts.make_dataset is not None:
            self.data_set_size = size_of(parts.make_dataset())
            notes += (
                "batches come from make_batch; make_dataset only bounds their size: leave one out to probe the other",
            )
        self._cut: Cut | None = None
        """What batches of ``make_batch`` are cut by, for one length bucket."""
        self.notes = notes
        """What the user should know; a batch without tensors is known only once one was made."""

    def of_rank(self, rank: int, world_size: int) -> "Workload":
        """The same workload as one of several processes sees it that train together.

        Raises:
            WorkloadError: as when it was made, where its data is another one in each process.
        """
        if (rank, world_size) == self._rank:
            return self
        if takes_rank(self._untold, "make_dataset", "make_loader"):
            notes = self._notes
            return Workload(self.ref, self._untold, self.recognised, notes, rank=rank, world_size=world_size)
        again = copy.copy(self)
        again._parts, again._rank = told(self._untold, rank, world_size), (rank, world_size)
        return again

    @property
    def same_model(self) -> bool:
        """Whether every rank makes the same model."""
        return not takes_rank(self._untold, "make_model")

    @property
    def evaluates(self) -> bool:
        """Whether the workload has an evaluation."""
        return self._parts.evaluate is not None

    @property
    def own(self) -> Settings:
        """Settings that the workload trains with by itself, where it says so; they are for the caller to apply."""
        return self._parts.own

    @property
    def has_data_set(self) -> bool:
        """Whether the workload has data to load by worker processes, so that loading can be measured."""
        return self.loader is not None or (self._parts.make_dataset is not None and self._parts.make_loader is None)

    @property
    def sized(self) -> bool:
        """Whether a batch has as many samples as the size asked for."""
        return self._data is None or self._data.sized

    @property
    def loader(self) -> LoaderInfo | None:
        """What matters of the user's own data loader; None where there is none."""
        return self._data.loader if self._data is not None else None

    @property
    def counts(self) -> bool:
        """Whether the number of samples in a batch is known, not told from the shapes of its tensors."""
        return self._data is not None or self._parts.batch_dim is not None

    @property
    def varies(self) -> bool:
        """Whether batches differ in the length of their samples, and ``make_shorter_batch`` can be asked for them."""
        return self._parts.shorten is not None or (self._data is not None and self._data.varies)

    def within(self, length: int) -> "InBucket":
        """The same for one length bucket: with samples that are at most so long.

        Those of the data set where they differ in length, put together freely; else what ``shorten`` leaves of a batch.

        Raises:
            UsageError: samples are equally long, or nothing tells how long they are.
        """
        again = copy.copy(self)
        if self._data is not None and (self._data.varies or self._parts.shorten is None):
            with one_thread():
                found = self._data.within(length)
            if found.source is not None:
                again._data, again.data_set_size = found.source, found.source.size
                of_data = self._data.notes
                again.notes = (*(note for note in self.notes if note not in of_data), *found.source.notes)
            return InBucket(None if found.source is None else again, found)
        if self._parts.shorten is None:
            raise equally_long(
                "nothing says how batches of make_batch(batch_size) are made shorter",
                "define shorten(batch, share) beside it, or return your samples from make_dataset() instead",
            )
        again._cut = Cut(length)
        return InBucket(again, None)

    def longest(self, batch_size: int) -> int:
        """Length of a batch that was cut; only after ``within`` that cuts."""
        assert self._cut is not None
        return self._cut.length_of(self.make_batch(batch_size))

    def make_model(self) -> nn.Module:
        """The user's model, on the device they made it on.

        Raises:
            WorkloadError: what was made is no module, or one whose weights are still to be made.
        """
        model = self._parts.make_model()
        if isinstance(model, nn.Module):
            lazy = [name for name, parameter in model.named_parameters() if nn.parameter.is_lazy(parameter)]
            if not lazy:
                return model
            raise WorkloadError(
                f"the model has lazy parameters, which have no shape before its first pass: {', '.join(lazy[:4])}",
                hint="run one batch through it before make_model() returns it: model(example_input)",
            )
        if isinstance(model, type) and issubclass(model, nn.Module):
            hint = f"return an object: {model.__name__}(), with brackets"
        elif model is None:
            hint = "end it with `return model`"
        else:
            hint = "return the nn.Module and nothing else"
        raise WorkloadError(f"make_model() returned {in_words(model)}, not an nn.Module", hint=hint)

    def candidates(self, batch_size: int) -> int:
        """How many different batches of this size are candidates for the worst one; 1 where ``make_batch`` makes them."""
        return 1 if self._data is None else self._data.candidates(batch_size)

    def make_batch(self, batch_size: int, candidate: int = 0) -> object:
        """A fresh batch; of real data a candidate for the worst one, and smaller than asked for where there is no more.

        Raises:
            WorkloadError: there is no batch in what the user's function returned.
        """
        return self.make_counted(batch_size, candidate)[0]

    def make_counted(self, batch_size: int, candidate: int = 0) -> Counted:
        """The same with the number of samples in it; None where it has no such number, or it cannot be told.

        Raises:
            WorkloadError: there is no batch in what the user's function returned.
        """
        made = (
            self._made(batch_size, candidate) if self._cut is None else self._made_cut(self._cut, batch_size, candidate)
        )
        return self._looked_at(made[0]), made[1]

    def _made(self, batch_size: int, candidate: int) -> Counted:
        """A batch as the user's data or function gives it."""
        if self._data is not None:
            return self._data.batch(batch_size, candidate)
        assert self._parts.make_batch is not None  # recognition saw to it
        batch = self._parts.make_batch(batch_size)
        if batch is None:
            raise WorkloadError(f"make_batch({batch_size}) returned None", hint="end it with `return batch`")
        return batch, self.observed(batch, batch_size)

    def _made_cut(self, cut: Cut, batch_size: int, candidate: int = 0, share: float = 1.0) -> Counted:
        """The same, cut to a length bucket."""
        samples: int | None = None

        def make() -> object:
            nonlocal samples
            batch, samples = self._made(batch_size, candidate)
            return batch

        def shorten(batch: object, of_full: float) -> object:
            return self._shortened(batch, self.observed(batch, batch_size), of_full, batch_size)

        return cut.made(make, shorten, share), samples

    def observed(self, batch: object, batch_size: int, reference: tuple[object, int] | None = None) -> int | None:
        """How many samples a batch seems to have; see ``observed_batch``."""
        return observed_batch(batch, batch_size, reference, self._parts.batch_dim)

    def make_shorter_batch(self, batch_size: int, share: float) -> object:
        """A fresh batch of as many samples with this share (0 < share < 1) of their length; ask ``varies`` first.

        By the user's ``shorten`` if there is one, else of the samples of the data set that are nearest to it.

        Raises:
            WorkloadError: there is no batch in what the user's function returned, or not as many samples.
        """
        if self._parts.shorten is None:
            assert self._data is not None
            return self._looked_at(self._data.shorter(batch_size, share)[0])
        if self._cut is not None:
            return self._looked_at(self._made_cut(self._cut, batch_size, share=share)[0])
        batch, samples = self.make_counted(batch_size)
        if samples is not None:
            samples = self.observed(batch, batch_size)  # before the user's function, which may change the batch itself
        return self._looked_at(self._shortened(batch, samples, share, batch_size))

    def _shortened(self, batch: object, samples: int | None, share: float, batch_size: int) -> object:
        """By the user's ``shorten``; ``samples``: those in the batch, where that is known."""
        assert self._parts.shorten is not None
        shorter = self._parts.shorten(batch, share)
        if shorter is None:
            raise WorkloadError(f"shorten(batch, {share:g}) returned None", hint="end it with `return batch`")
        left = self.observed(shorter, batch_size)
        if samples is not None and left != samples:
            made = f"one of {left}" if left is not None else f"{in_words(shorter)}, which holds no tensor"
            raise WorkloadError(
                f"shorten(batch, {share:g}) made of a batch of {samples} samples {made}",
                hint="cut the samples' length and keep their number: batch[:, : round(batch.shape[1] * share)]",
            )
        return shorter

    def load(self, batch_size: int, batches: int, workers: int, pin_memory: bool) -> Iterable[Any] | None:
        """Batches as a training loads them; None where the workload has no data. See ``BatchSource.load``.

        Raises:
            WorkloadError: ``make_dataset`` returns no data set.
            Unsupported: it cannot be loaded by worker processes.
        """
        data = self._data
        if data is None and self._parts.make_dataset is not None:
            data = open_data(self._parts.make_dataset, self._parts.collate)
        return None if data is None else data.load(batch_size, batches, workers, pin_memory)

    def _looked_at(self, batch: object) -> object:
        """The same batch; whether it can be moved to a device is noted once."""
        if _NOTHING_TO_MOVE not in self.notes and not is_moved(batch):
            self.notes += (_NOTHING_TO_MOVE,)
        return batch

    def loss(self, model: nn.Module, batch: object) -> torch.Tensor:
        """The scalar to minimise.

        Raises:
            WorkloadError: it is no scalar tensor, or does not depend on a parameter that is trained.
            ValueError: see ``default_loss``.
        """
        if self._parts.loss is not None:
            loss = scalar(self._parts.loss(model, batch))
        elif self._parts.batch_is_arguments:
            loss = own_loss(model, batch)
        else:
            loss = default_loss(model, batch)
        if torch.is_grad_enabled() and not loss.requires_grad:
            raise WorkloadError(
                "the loss does not require a gradient, so nothing would be trained",
                hint="look for .item(), .detach() or torch.no_grad() in loss and forward, or for frozen parameters",
            )
        return loss

    def make_optimizer(self, params: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """The user's optimizer for these parameters, or AdamW with PyTorch's defaults.

        Raises:
            WorkloadError: there is nothing to train, or what was made is no optimizer of these parameters.
        """
        given = list(params)
        if not given:
            raise WorkloadError(
                "the model has no parameter that requires a gradient", hint="train some: parameter.requires_grad_(True)"
            )
        if self._parts.make_optimizer is None:
            return torch.optim.AdamW(given)
        try:
            optimizer = self._parts.make_optimizer(given)
        except AttributeError as error:
            if error.obj is not given:
                raise
            raise WorkloadError(
                f"make_optimizer is called with a list of parameters, which has no {error.name}: it wants the model",
                hint="write `def make_optimizer(params):`, and hand these on: torch.optim.AdamW(params)",
            ) from error
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise WorkloadError(
                f"make_optimizer(params) returned {in_words(optimizer)}, not a torch.optim.Optimizer",
                hint="return the optimizer alone, without scheduler: return torch.optim.AdamW(params)",
            )
        if needs_closure(optimizer):
            raise WorkloadError(
                f"{type(optimizer).__name__} calls the loss itself, several times a step, and autotune's steps call it once",
                hint="measure your own loop as a command: autotune max-batch -- python train.py --batch-size {batch}",
            )
        known = {id(parameter) for parameter in given}
        if not any(id(parameter) in known for group in optimizer.param_groups for parameter in group["params"]):
            raise WorkloadError(
                "make_optimizer(params) returned an optimizer with none of the model's parameters",
                hint="give it the params it is called with: torch.optim.AdamW(params)",
            )
        return optimizer

    def plan(self) -> Mapping[str, Any] | None:
        """How tensor parallel splits the model, by the user's ``make_plan``; None = they do not say.

        Raises:
            WorkloadError: what it returned is no plan.
        """
        if self._parts.make_plan is None:
            return None
        made = self._parts.make_plan()
        if not isinstance(made, Mapping) or not all(isinstance(name, str) for name in made):
            raise WorkloadError(
                f"make_plan() returned {in_words(made)}, not a dictionary with names of modules",
                hint='for example {"blocks.*.up": ColwiseParallel(), "blocks.*.down": RowwiseParallel()}',
            )
        return made

    @property
    def has_plan(self) -> bool:
        """Whether the user wrote one."""
        return self._parts.make_plan is not None

    def evaluate(self, model: nn.Module, batch: object) -> object:
        """Run the user's evaluation; ask ``evaluates`` first."""
        assert self._parts.evaluate is not None
        return self._parts.evaluate(model, batch)


@dataclass(frozen=True, slots=True)
class InBucket:
    """What a workload has for one length bucket."""

    workload: Workload | None
    """With samples at most so long; None where the data set has none."""
    seen: Within | None
    """Of the data set; None where batches are cut to the length."""
