"""Secrets taken out of texts that others may read: passwords in addresses, and values of what is called a secret."""

import re

_IN_ADDRESS = re.compile(r"(?<=://)[^/@\s]*@")
_NAMED = re.compile(
    r"(?i)((?:password|passwd|passphrase|secret|token|credential|api[_-]?key|access[_-]?key)[\w-]*(?:=|\s+|:\s*))[^\s&;,]+"
)
_SECRET_NAME = re.compile(r"(?i)password|passwd|passphrase|secret|token|credential|key$|auth")
MASK = "***"


def without_secrets(text: str) -> str:
    """The text with user and password of addresses, and whatever follows ``password=``, ``--token`` and the like, masked."""
    return _NAMED.sub(rf"\1{MASK}", _IN_ADDRESS.sub(f"{MASK}@", text))


def variable_value(name: str, value: str) -> str:
    """The value of an environment variable as others may see it."""
    return MASK if value and _SECRET_NAME.search(name) else without_secrets(value)
