"""Settings as people read them: what is not as they have it."""

from dataclasses import replace

from autotune.knobs import knob_of
from autotune.model import Settings

OWN = "as you have it"


def settings_words(settings: Settings, own: Settings) -> str:
    """What is not as the user has it: ``precision=bf16 compile=default``; accumulation is told with the batch."""
    changes = settings.changes(replace(own, accumulate=settings.accumulate))
    return " ".join(f"{name}={knob_of(name).text(value)}" for name, value in changes.items()) or OWN
