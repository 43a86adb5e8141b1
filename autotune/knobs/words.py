"""Settings as they are written on a command line."""

from autotune.knobs.registry import knob_of
from autotune.model import Settings

_OWN = Settings()


def in_words(settings: Settings, own: Settings = _OWN) -> dict[str, str]:
    """Name -> value of what is not as in ``own``, in the order in which settings are declared."""
    changes = settings.changes(own)
    return {name: str(value) if name == "accumulate" else knob_of(name).text(value) for name, value in changes.items()}
