"""For ``transformers.Trainer``: its memory watched, logged, and saved by the Trainer itself before it runs out.

    trainer = Trainer(..., callbacks=[GuardCallback(limit="95%", log="memory.jsonl")])

A callback sees whole steps alone: a step that runs out of memory is not split here. ``autotune.guard`` does that in loops
of one's own.
"""

import os
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from autotune.errors import UsageError
from autotune.runtime.checkpoint import check_place, save_checkpoint
from autotune.runtime.limits import Limit
from autotune.runtime.readings import Meter
from autotune.runtime.watch import OnLimit, Watch
from autotune.runtime.where import of_rank
from autotune.workload.source import INSIDE_VARIABLE

__all__ = ["GuardCallback"]


class GuardCallback(TrainerCallback):  # type: ignore[misc]  # the framework is not there when types are checked
    """Looks at the memory every few steps. At the limit the Trainer writes its own checkpoint, and goes on or stops."""

    def __init__(
        self,
        *,
        limit: Limit | None = None,
        on_limit: OnLimit = "continue",
        checkpoint: str | os.PathLike[str] | None = None,
        log: str | os.PathLike[str] | None = None,
        every: int = 10,
        least_seconds: float = 0.5,
        meter: Meter | None = None,
    ) -> None:
        """
        Args:
            limit, on_limit, log, every, least_seconds: see ``autotune.guard``.
            checkpoint: file for one more checkpoint in the emergency, whole or not there and for
                ``autotune.runtime.load_checkpoint``; it knows nothing of the Trainer's own state. With it or without, the
                Trainer writes its own, for ``train(resume_from_checkpoint=True)``.
            meter: for tests.
        """
        self._options: dict[str, Any] = {"limit": limit, "on_limit": on_limit, "meter": meter}
        self._options |= {"every": every, "least_seconds": least_seconds}
        self._checkpoint = None if checkpoint is None else Path(checkpoint)
        self._log = None if log is None else Path(log)
        self.watch: Watch | None = None
        """While a training runs, but for those that autotune probes."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begin to watch.

        Raises:
            UsageError: an option makes no sense; or one of several processes would stop alone.
            EnvironmentTrouble: the log cannot be made, or no checkpoint be written at its place.
        """
        if os.environ.get(INSIDE_VARIABLE):
            return
        if args.world_size > 1 and self._options["on_limit"] == "stop":
            raise UsageError(
                f"{args.world_size} processes train together, and one that stops leaves the others waiting",
                hint="leave on_limit at 'continue'",
            )
        if self._checkpoint is not None:
            check_place(of_rank(self._checkpoint))
        log = None if self._log is None else of_rank(self._log)
        self.watch = Watch(torch.device(args.device), log=log, start_step=state.global_step, **self._options)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        """Look, if a look is due. Returns ``control``, in which saving and stopping are asked for."""
        if self.watch is None:
            return control

        def write() -> Path:
            alone = args.world_size == 1
            if alone:
                control.should_save = True  # this very step, when the callbacks are through
            if self._checkpoint is None:
                return Path(args.output_dir) / f"checkpoint-{state.global_step}"
            optimizer, schedule = kwargs["optimizer"], kwargs["lr_scheduler"]
            return save_checkpoint(
                of_rank(self._checkpoint),
                kwargs["model"],
                optimizer,
                step=state.global_step,
                scaler=getattr(optimizer, "scaler", None),
                others={} if schedule is None else {"lr_scheduler": schedule},
            )

        savable = args.world_size == 1 or self._checkpoint is not None
        self.watch.observe(state.global_step, write if savable else None)
        if self.watch.should_stop:
            control.should_training_stop = True
        return control

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The summary."""
        if self.watch is not None:
            self.watch.close(state.global_step)
            self.watch = None
