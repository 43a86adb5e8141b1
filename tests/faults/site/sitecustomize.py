"""In every process of a run whose PYTHONPATH begins here: a wall clock that may be set, a device library that fails.

``PLANTED_FOLDER/clock`` holds the seconds by which the wall clock is off; the monotonic clock goes on as ever.
``PLANTED_NVML`` is the name of the error that every call of NVML raises.
"""

import datetime
import os
import sys
import time
import types

_CLOCK = os.path.join(os.environ["PLANTED_FOLDER"], "clock")
_time = time.time
_Datetime = datetime.datetime


def _off() -> float:
    try:
        with open(_CLOCK) as file:
            return float(file.read())
    except FileNotFoundError:
        return 0.0


class _Shifted(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, _Datetime)


class Datetime(_Datetime, metaclass=_Shifted):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> _Datetime:  # type: ignore[override]
        return _Datetime.now(tz) + datetime.timedelta(seconds=_off())


time.time = lambda: _time() + _off()
datetime.datetime = Datetime  # type: ignore[misc]


class _Dead(types.ModuleType):
    """``pynvml`` on a machine whose driver is gone or broken."""

    class NVMLError(Exception):
        """Base of what NVML raises."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        if name.startswith("NVMLError"):
            kind = type(name, (self.NVMLError,), {})
            setattr(self, name, kind)
            return kind
        if name.startswith("NVML_"):
            return 0

        def fails(*_: object) -> None:
            raise getattr(self, os.environ["PLANTED_NVML"])("Driver Not Loaded")

        return fails


if os.environ.get("PLANTED_NVML"):
    sys.modules["pynvml"] = _Dead("pynvml")
