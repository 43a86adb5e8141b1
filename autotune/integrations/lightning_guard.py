"""For Lightning: a training's memory watched, logged, and saved by the Trainer itself before it runs out.

    trainer = Trainer(..., callbacks=[GuardCallback("emergency.ckpt", limit="95%", log="memory.jsonl")])

A callback sees whole steps alone: a step that runs out of memory is not split here. ``autotune.guard`` does that in loops
of one's own.
"""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.errors import UsageError
from autotune.runtime.checkpoint import check_place, write_whole
from autotune.runtime.limits import Limit
from autotune.runtime.readings import Meter
from autotune.runtime.watch import OnLimit, Watch
from autotune.runtime.where import of_rank
from autotune.workload.source import INSIDE_VARIABLE

if TYPE_CHECKING:
    from lightning.pytorch.callbacks import Callback
elif "pytorch_lightning" in sys.modules and "lightning" not in sys.modules:
    from pytorch_lightning.callbacks import Callback  # the same framework under its other name
else:
    from lightning.pytorch.callbacks import Callback

__all__ = ["GuardCallback"]


class GuardCallback(Callback):  # type: ignore[misc]  # the framework is not there when types are checked
    """Looks at the memory every few steps. At the limit the Trainer's checkpoint is written, and it goes on or stops."""

    def __init__(
        self,
        checkpoint: str | os.PathLike[str] | None = None,
        *,
        limit: Limit | None = None,
        on_limit: OnLimit = "continue",
        log: str | os.PathLike[str] | None = None,
        every: int = 10,
        least_seconds: float = 0.5,
        meter: Meter | None = None,
    ) -> None:
        """
        Args:
            checkpoint: file for the Trainer's own checkpoint in the emergency, whole or not there, for
                ``trainer.fit(ckpt_path=...)``; None = none is written.
            limit, on_limit, log, every, least_seconds: see ``autotune.guard``.
            meter: for tests.
        """
        super().__init__()
        self._options: dict[str, Any] = {"limit": limit, "on_limit": on_limit, "meter": meter}
        self._options |= {"every": every, "least_seconds": least_seconds}
        self._checkpoint = None if checkpoint is None else Path(checkpoint)
        self._log = None if log is None else Path(log)
        self.watch: Watch | None = None
        """While a training runs, but for those that autotune probes."""

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin to watch.

        Raises:
            UsageError: an option makes no sense; or several processes train, which must save and stop together.
            EnvironmentTrouble: the log cannot be made, or no checkpoint be written at its place.
        """
        if os.environ.get(INSIDE_VARIABLE):
            return
        if trainer.world_size > 1 and (self._checkpoint is not None or self._options["on_limit"] == "stop"):
            raise UsageError(
                f"{trainer.world_size} processes train together, and one that saves or stops waits for the others",
                hint="leave checkpoint= and on_limit= out: then memory is watched and logged",
            )
        if self._checkpoint is not None:
            check_place(self._checkpoint)
        log = None if self._log is None else of_rank(self._log)
        device = trainer.strategy.root_device
        self.watch = Watch(device, log=log, start_step=trainer.global_step, **self._options)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Look, if the batch ended a step and a look is due."""
        if self.watch is None:
            return
        path = self._checkpoint
        write = None if path is None else lambda: write_whole(path, trainer.save_checkpoint)
        self.watch.observe(trainer.global_step, write)
        if self.watch.should_stop:
            trainer.should_stop = True

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """The summary."""
        if self.watch is not None:
            self.watch.close(trainer.global_step)
            self.watch = None

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """The summary, too."""
        self.on_train_end(trainer, pl_module)
