"""Where metrics go, as people write it."""

import pytest

from autotune.errors import UsageError
from autotune.watch.addresses import Address, Gateway, parse_address, parse_gateway


@pytest.mark.parametrize(
    ("text", "address", "shown", "loopback"),
    [
        ("9477", Address("127.0.0.1", 9477), "127.0.0.1:9477", True),
        ("0", Address("127.0.0.1", 0), "127.0.0.1:0", True),
        ("localhost:1", Address("localhost", 1), "localhost:1", True),
        ("127.3.2.1:65535", Address("127.3.2.1", 65535), "127.3.2.1:65535", True),
        ("[::1]:9477", Address("::1", 9477), "[::1]:9477", True),
        ("0.0.0.0:9477", Address("0.0.0.0", 9477), "0.0.0.0:9477", False),
        ("[::]:9477", Address("::", 9477), "[::]:9477", False),
        ("gpu-box:9477", Address("gpu-box", 9477), "gpu-box:9477", False),
    ],
)
def test_an_address_is_loopback_unless_another_one_is_named(
    text: str, address: Address, shown: str, loopback: bool
) -> None:
    assert parse_address(text) == address
    assert (str(address), address.loopback) == (shown, loopback)
    assert address.with_port(7).host == address.host


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "-1",
        "65536",
        "9" * 5000,
        "1.5",
        "٣",
        ":9477",
        "host:",
        "host:x",
        "::1:9477",
        "a b:9477",
        "\x1b[2J:1",
        "[]:1",
    ],
)
def test_what_is_no_address_is_refused_with_one_to_type(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_address(text)
    assert caught.value.message.startswith("--serve ") and len(caught.value.message) < 6000
    assert "--serve" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "gateway"),
    [
        ("http://127.0.0.1:9091", Gateway("http://127.0.0.1:9091")),
        ("https://push.example/prefix/", Gateway("https://push.example/prefix")),
        ("http://[::1]:9091", Gateway("http://[::1]:9091")),
        ("http://anna:ge%3Fheim@host:9091", Gateway("http://host:9091", "anna", "ge?heim")),
        ("http://anna@host:9091", Gateway("http://host:9091", "anna", "from the environment")),
    ],
)
def test_user_and_password_are_taken_out_of_the_url(text: str, gateway: Gateway) -> None:
    found = parse_gateway(text, "from the environment" if "anna@" in text else "")
    assert found == gateway
    assert gateway.password == "" or gateway.password not in repr(found)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "host:9091",
        "ftp://anna:geheim@host",
        "http://",
        "http://anna:geheim@",
        "http://anna:geheim@host:port",
        "http://anna:geheim@host:99999",
        "http://anna:ge/heim@host:9091",
        "http://anna:geheim#@host:9091",
        "http://anna:geheim?@host:9091",
        "anna:geheim@host:9091",
        "http://anna:geheim@[host:9091",
        "http://anna:geheim@ho st:9091",
        "http://host:9091/?geheim@x=1",
    ],
)
def test_what_is_no_gateway_is_refused_without_its_password(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_gateway(text)
    assert "geheim" not in caught.value.message and caught.value.hint == (
        "autotune watch --pushgateway http://127.0.0.1:9091"
    )
    assert caught.value.__suppress_context__ or caught.value.__cause__ is None
