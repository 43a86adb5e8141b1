"""Where metrics go, as people write it: ``[HOST:]PORT`` to listen on, the URL of a Pushgateway. Pure."""

import ipaddress
import re
from dataclasses import dataclass, field, replace
from urllib.parse import unquote, urlsplit

from autotune.errors import UsageError

_HOST = "127.0.0.1"
_SERVE = "autotune watch --serve 9477, or --serve 0.0.0.0:9477 to be reached from other machines"
_PUSH = "autotune watch --pushgateway http://127.0.0.1:9091"
_LARGEST_PORT = 65535
_PORT = re.compile(r"[0-9]{1,5}")


@dataclass(frozen=True, slots=True)
class Address:
    """What is listened on."""

    host: str
    port: int
    """0 = any that is free."""

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def with_port(self, port: int) -> "Address":
        """The same host."""
        return replace(self, port=port)

    @property
    def loopback(self) -> bool:
        """Whether nobody else than this machine reaches it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:  # a name: only this one is sure
            return self.host == "localhost"


@dataclass(frozen=True, slots=True)
class Gateway:
    """A Pushgateway."""

    url: str
    """Without user and password."""
    user: str = ""
    password: str = field(default="", repr=False)


def parse_address(text: str) -> Address:
    """Read ``9477``, ``host:9477`` or ``[::1]:9477``; without a host it is loopback.

    Raises:
        UsageError: it is none.
    """
    host, colon, port = text.rpartition(":")
    shown = text[:100]
    if not colon:
        host = _HOST
    elif host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise UsageError(
            f"--serve {shown}: an IPv6 address stands in brackets", hint="autotune watch --serve [::1]:9477"
        )
    if not _PORT.fullmatch(port) or int(port) > _LARGEST_PORT:
        raise UsageError(f"--serve {shown}: {port[:40]!r} is no port", hint=_SERVE)
    if not host or any(one.isspace() or not one.isprintable() for one in host):
        raise UsageError(f"--serve {shown}: there is no host before the colon", hint=_SERVE)
    return Address(host, int(port))


def parse_gateway(text: str, password: str = "") -> Gateway:
    """Read a URL such as ``http://user:password@host:9091/prefix``.

    Args:
        text: the URL.
        password: of its user, where it has none itself.

    Raises:
        UsageError: it is none; its password is not in the message.
    """
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:  # whose message repeats what it could not read: a part of a password, perhaps
        raise _no_gateway(text, "its host or port cannot be read; in a password write %2F for a slash") from None
    if parts.scheme not in ("http", "https"):
        raise _no_gateway(text, "it does not begin with http:// or https://")
    if not host or any(one.isspace() or not one.isprintable() for one in text):
        raise _no_gateway(text, "it has no host")
    if parts.query or parts.fragment:
        raise _no_gateway(text, "a question mark or a # has no place in it; in a password write %3F, %23")
    where = f"[{host}]" if ":" in host else host
    url = f"{parts.scheme}://{where}{'' if port is None else f':{port}'}{parts.path.rstrip('/')}"
    return Gateway(url, unquote(parts.username or ""), unquote(parts.password or "") or password)


def _no_gateway(text: str, why: str) -> UsageError:
    shown = text.rpartition("@")[2][:200]  # what stands before it may be a password, in whatever form
    return UsageError(f"--pushgateway: {shown!r} is no address of a Pushgateway: {why}", hint=_PUSH)
