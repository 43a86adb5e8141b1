"""Everything autotune raises on purpose.

AutotuneError                      exit 1
├── UsageError                     exit 2    an option or argument makes no sense; the user retypes it
├── NothingFits                    exit 3    no batch size is safe; carries the memory split
├── WorkloadError                  exit 4    the user's own code fails; carries their traceback
├── EnvironmentTrouble             exit 5    device, libraries or operating system stand in the way
│   ├── StoreError                 exit 5    the ledger cannot be opened, read or written
│   │   ├── DamagedRow                         a row of it says nothing that can be read; the others do
│   │   └── TakenOver                          the search is being gone on with by another process
│   └── StaleConfigError           exit 5    a recommendation was made for something else than what is here
├── CheckFailed                    exit 6    a recommendation does not hold here any more; carries the reasons
├── MemoryStop                     exit 1    a guarded training was to stop at its memory limit; carries the checkpoint
├── TimeRanOut                     exit 124  the time budget ended before any size was certified
└── Interrupted                    exit 130/143  Ctrl-C or SIGTERM; what was measured is kept

StaleConfig, a warning: the same as StaleConfigError where that was not asked to be an error.
MemoryWarning, a warning: a training holds more memory than was certified for it.
"""


class AutotuneError(Exception):
    """Base of all errors raised on purpose: ``message`` says what happened, ``hint`` what to type next."""

    exit_code = 1
    kind = "error"

    def __init__(self, message: str, *, hint: str = "", detail: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.detail = detail
        """Longer text shown beneath the message: the user's own traceback, a memory split."""
        self.document = ""
        """What ``--json`` prints when this ends the command; set by ``cli`` where it knows more than message and hint."""


class UsageError(AutotuneError):
    """Raised by every room for an argument that makes no sense; the user retypes it."""

    exit_code = 2
    kind = "usage"


class NothingFits(AutotuneError):
    """Raised by ``api`` when not even the smallest batch is safe."""

    exit_code = 3
    kind = "nothing_fits"


class WorkloadError(AutotuneError):
    """Raised by ``api`` when the user's file or step fails by itself, whatever the batch size."""

    exit_code = 4
    kind = "workload"


class EnvironmentTrouble(AutotuneError):
    """Raised by ``api`` and ``probe`` when the machine, not the workload, stands in the way."""

    exit_code = 5
    kind = "environment"


class StoreError(EnvironmentTrouble):
    """Raised by ``storage`` when the ledger cannot be opened, read or written."""

    kind = "store"


class DamagedRow(StoreError):
    """Raised by ``storage`` for one row that cannot be read; names its table, id and field."""


class TakenOver(StoreError):
    """Raised by ``storage`` when another process has gone on with a search, after this one was not heard of for long."""


class StaleConfigError(EnvironmentTrouble):
    """Raised by ``load(..., strict=True)`` and ``Tuned.prepare`` where the file was made for something else."""

    kind = "stale_config"


class StaleConfig(UserWarning):
    """Given by ``load`` and ``Tuned.prepare``: machine, PyTorch, allocator, model or number of devices are not those
    that the file was made for, so that its figures need not hold."""


class MemoryWarning(UserWarning):
    """Given by guards (``autotune.guard``, ``autotune.integrations``): a training holds more memory than it may or than
    was certified for it, its allocator has begun to retry, or its memory grows from step to step."""


class MemoryStop(AutotuneError):
    """Raised by ``autotune.guard(on_limit="stop")`` after the step that reached the limit; a checkpoint is written."""

    kind = "memory_stop"


class CheckFailed(AutotuneError):
    """Raised by ``check`` when a recommendation was made for something else, or its batch is no longer safe."""

    exit_code = 6
    kind = "check_failed"


class TimeRanOut(AutotuneError):
    """Raised by ``api`` when the time budget ended before any batch size was certified."""

    exit_code = 124
    kind = "time_ran_out"


class Interrupted(AutotuneError):
    """Raised by ``cli`` on Ctrl-C (130) and SIGTERM (143); finished probes are in the ledger."""

    exit_code = 130
    kind = "interrupted"

    def __init__(self, message: str, *, exit_code: int = 130, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.exit_code = exit_code
