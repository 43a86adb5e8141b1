"""Trees of plain values as text that both people and parsers read."""

import json
from collections.abc import Mapping
from typing import Any


def json_text(tree: Mapping[str, Any]) -> str:
    """Indented JSON in the order of the keys."""
    return json.dumps(tree, indent=2)


def yaml_text(tree: Mapping[str, Any], indent: str = "") -> str:
    """Block-style YAML of nested mappings that any YAML 1.1 or 1.2 parser reads the same way.

    Texts are double-quoted, since YAML 1.1 takes a bare ``no`` or ``off`` for a truth value.
    """
    lines: list[str] = []
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            lines += [f"{indent}{key}:", yaml_text(value, indent + "  ")]
        else:
            lines.append(f"{indent}{key}: {_scalar(value)}")
    return "\n".join(lines)


def _scalar(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    if isinstance(value, float) and "e" in text and "." not in text:
        return text.replace("e", ".0e")  # YAML 1.1 has no float without a point
    return text
