"""A fact of the doctor's, whatever happens while it is looked for. No torch."""

from collections.abc import Callable

from autotune.model import Fact, Health


def fact(section: str, name: str, look: Callable[[], str | Fact]) -> Fact:
    """What ``look`` says; a failure is a fact as well, and keeps no other from being told."""
    try:
        found = look()
    except Exception as error:  # noqa: BLE001 - of an installation that is being examined anything may be broken
        words = " ".join(f"{type(error).__name__}: {error}".split())
        return Fact(section=section, name=name, value=f"cannot be told: {words}"[:300], health=Health.NOTE)
    return found if isinstance(found, Fact) else Fact(section=section, name=name, value=found)
