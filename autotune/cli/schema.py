"""``autotune schema``: what programs that read ``autotune.json`` can rely on."""


def schema() -> None:
    """Print the JSON Schema of autotune.json."""
    import json

    from autotune.cli.console import Screen
    from autotune.report import document

    Screen(stderr=False).say(json.dumps(document.schema(), indent=2))
