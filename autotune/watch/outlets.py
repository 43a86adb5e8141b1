"""Handing metrics on again and again: into a file, into a Pushgateway. Trouble that comes later is told once, and tried again."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autotune.errors import AutotuneError


@dataclass(frozen=True, slots=True)
class Outlet:
    """One place that metrics go to."""

    name: str
    """For people: ``the file metrics.prom``."""
    hand_on: Callable[[], None]
    """Raises ``AutotuneError`` where the place refuses."""
    end: Callable[[], None]
    """Removes what would otherwise go on telling old figures. Raises as ``hand_on``."""


class Round:
    """All outlets, one after the other, as often as it is called."""

    def __init__(self, outlets: Sequence[Outlet], say: Callable[[str], None]) -> None:
        """
        Args:
            outlets: in order.
            say: told of trouble and its end.
        """
        self._outlets, self._say = outlets, say
        self._troubled: set[str] = set()
        self._begun = False

    def go(self) -> None:
        """Hand on to each.

        Raises:
            AutotuneError: in the first round: a wrong address or folder shall be noticed at once.
        """
        for outlet in self._outlets:
            try:
                outlet.hand_on()
            except AutotuneError as error:
                if not self._begun:
                    raise
                if outlet.name not in self._troubled:
                    self._troubled.add(outlet.name)
                    self._say(f"{error.message}; tried again each time")
                continue
            if outlet.name in self._troubled:
                self._troubled.discard(outlet.name)
                self._say(f"{outlet.name} takes metrics again")
        self._begun = True

    def end(self) -> None:
        """Remove from each what is old from now on; told where it refuses."""
        for outlet in self._outlets if self._begun else ():
            try:
                outlet.end()
            except AutotuneError as error:
                self._say(f"old metrics stay: {error.message}")
