"""What user code raised, as it is told to the parent: names and texts alone, since the objects stay in the child."""

from autotune.workload.trace import user_traceback

_LONGEST_TRACEBACK = 16_000  # characters; a recursion error has thousands of frames


def told(error: BaseException) -> dict[str, object]:
    """The fields of an answer that say what was raised, and the user's own traceback."""
    traceback = user_traceback(error)[-_LONGEST_TRACEBACK:]
    return {"raised": chain(error), "traceback": traceback.encode(errors="replace").decode()}


def chain(error: BaseException) -> list[dict[str, object]]:
    """The exception, its causes, contexts and group members, outermost first, each once."""
    found: list[BaseException] = []
    waiting: list[BaseException | None] = [error]
    while waiting:
        link = waiting.pop(0)
        if link is None or any(link is known for known in found):
            continue
        found.append(link)
        members = list(link.exceptions) if isinstance(link, BaseExceptionGroup) else []
        waiting = [*members, link.__cause__, link.__context__, *waiting]
    return [
        {
            "type": _name(type(link)),
            "bases": [_name(base) for base in type(link).__mro__ if base is not object],
            "text": _text(link)[:8000],
            "errno": getattr(link, "errno", None) if isinstance(link, OSError) else None,
        }
        for link in found
    ]


def _name(kind: type) -> str:
    # torch.OutOfMemoryError reports the module it was made in (torch._C or torch); users know it by the short name
    module = "torch" if kind.__module__ in ("torch._C", "torch.cuda") else kind.__module__
    return f"{module}.{kind.__qualname__}"


def _text(error: BaseException) -> str:
    try:
        return str(error).encode(errors="replace").decode()  # names of files may hold lone surrogates
    except Exception as failure:  # noqa: BLE001 - a user's __str__ may raise anything; its type still says something
        return f"(its text cannot be made: {type(failure).__name__})"
