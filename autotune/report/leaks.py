"""What grows from step to step, as text and as JSON. Pure."""

from autotune.model import Findings, Leaks


def leak_lines(findings: Findings) -> list[str]:
    """The answer first."""
    leaks = findings.leaks
    assert leaks is not None
    if leaks.clean:
        return [f"no leak: memory does not grow from step to step ({leaks.steps} steps)"]
    return ["memory grows from step to step"]


def leak_facts(findings: Findings) -> Leaks | None:
    """All of it, for programs."""
    return findings.leaks
