"""Secrets taken out of texts that others may read: passwords in addresses, and values of what is called a secret."""

import re

_IN_ADDRESS = re.compile(r"(?<=://)[^/@\s]*@")
_NAMED = re.compile(
    r"(?i)((?:password|passwd|passphrase|secret|token|credential|api[_-]?key|access[_-]?key)[\w-]*(?:=|\s+|:\s*))[^\s&;,]+"
)
_SECRET_NAME = re.compile(r"(?i)password|passwd|passphrase|secret|token|credential|key$|auth")
MASK = "***"
_WORD = r"[^\s'\"\\]"
_USER_INFO = re.compile(rf"(\b[A-Za-z][A-Za-z0-9+.-]{{0,30}}://[^\s'\"\\:/@]{{0,300}}:)(?:(?!/){_WORD})*@")
_DATABASE = re.compile(
    rf"(\b(?:postgres(?:ql)?|mysql|mariadb|mssql|oracle|mongodb|redis)[a-z0-9+_]{{0,30}}://{_WORD}{{0,300}}?:){_WORD}*@"
)
"""In addresses of databases a password may hold a slash, as people write them. (Bounds keep long texts quick.)"""
_PARAMETER = re.compile(
    rf"(?i)((?:\b|_)(?:password|passwd|pwd|sslpassword|secret|token|api_?key)=)(?:(?![&;,]){_WORD})+"
)


def without_secrets(text: str) -> str:
    """As ``without_passwords``, and user names of addresses and whatever follows ``--token`` and the like masked as well."""
    return _NAMED.sub(rf"\1{MASK}", _IN_ADDRESS.sub(f"{MASK}@", without_passwords(text)))


def variable_value(name: str, value: str) -> str:
    """The value of an environment variable as others may see it."""
    return MASK if value and _SECRET_NAME.search(name) else without_secrets(value)


def without_passwords(text: str) -> str:
    """Any text with the passwords of addresses and of ``password=`` masked, percent-encoded ones included; the rest stays."""
    if "=" not in text and "@" not in text:
        return text
    for pattern in (_DATABASE, _USER_INFO):
        text = pattern.sub(rf"\g<1>{MASK}@", text)
    return _PARAMETER.sub(rf"\g<1>{MASK}", text)
