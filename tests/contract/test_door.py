"""Only errors of autotune leave the room, and none of them carries a password."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import exc

from autotune.errors import StoreError
from autotune.storage.address import parse_address
from autotune.storage.door import translated
from autotune.storage.store import Store

FILE = parse_address("ledger.db")
SERVER = parse_address("postgresql://me:s3cret@db.example/x?sslpassword=s3cret")


def subclasses(kind: type[exc.SQLAlchemyError]) -> Iterator[type[exc.SQLAlchemyError]]:
    """The class and everything derived from it."""
    yield kind
    for derived in kind.__subclasses__():
        yield from subclasses(derived)


ALL_ERRORS = sorted(set(subclasses(exc.SQLAlchemyError)), key=lambda kind: kind.__name__)


def made(kind: type[exc.SQLAlchemyError]) -> exc.SQLAlchemyError:
    """An instance, with whatever its constructor asks for."""
    if kind.__module__ != exc.__name__:
        return kind.__new__(kind, "boom")  # those of the ORM are made from its inner state
    if issubclass(kind, exc.DBAPIError):
        return kind("SELECT 1", {}, Exception("boom"))
    more: dict[type[exc.SQLAlchemyError], tuple[Any, ...]] = {
        exc.StatementError: ("SELECT 1", {}, None),
        exc.CircularDependencyError: ((), ()),
        exc.UnsupportedCompilationError: (int,),
        exc.NoReferencedTableError: ("t",),
        exc.NoReferencedColumnError: ("t", "c"),
    }
    return kind("boom", *more.get(kind, ()))


def test_the_list_of_errors_is_not_empty() -> None:
    assert {exc.OperationalError, exc.IntegrityError, exc.NoSuchModuleError} <= set(ALL_ERRORS)


@pytest.mark.parametrize("address", [FILE, SERVER], ids=["file", "server"])
@pytest.mark.parametrize("kind", ALL_ERRORS)
def test_every_error_of_sqlalchemy_is_translated(kind: type[exc.SQLAlchemyError], address: Any) -> None:
    error = made(kind)
    with pytest.raises(StoreError) as caught, translated(address):
        raise error
    assert "boom" in caught.value.message
    assert address.label in caught.value.message
    assert "--storage" in caught.value.hint
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("error", [PermissionError("boom"), OverflowError("boom")])
def test_errors_of_the_system_are_translated(error: Exception) -> None:
    with pytest.raises(StoreError, match="boom"), translated(FILE):
        raise error


def test_other_errors_pass_unchanged() -> None:
    error = StoreError("mine")
    with pytest.raises(StoreError) as caught, translated(FILE):
        raise error
    assert caught.value is error
    with pytest.raises(ZeroDivisionError), translated(FILE):
        raise ZeroDivisionError


def assert_no_secret(error: StoreError) -> None:
    assert "s3cret" not in error.message + error.hint + error.detail


def test_a_password_is_masked_even_where_the_driver_repeats_it() -> None:
    with pytest.raises(StoreError) as caught, translated(SERVER):
        raise exc.OperationalError("SELECT 's3cret'", {}, Exception("cannot log in with s3cret"))
    assert_no_secret(caught.value)
    assert "me:***@db.example" in caught.value.message
    assert "`psql postgresql://me@db.example/x`" in caught.value.hint


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_a_missing_driver_is_an_error_with_the_command_that_installs_it(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(StoreError, match="psycopg") as caught:
        Store.open(f"{scheme}://me:s3cret@db.example/x")
    assert caught.value.hint == 'pip install "autotune-torch[postgres]"'
    assert_no_secret(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:s3cret@db.example:port/x",
        "postgresql://me:s3/cret@db.example/x?password=s3cret",
        "mysql://me:s3cret@db.example/x",
        "postgresql+psycopg2://me:s3cret@db.example/x",
        "sqlite://s3cret@host/x",
        "sqlite:///x.db?key=s3cret",
        "://s3cret",
        "postgres:me:s3cret",
    ],
)
def test_an_address_that_is_refused_is_not_repeated_in_full(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(StoreError) as caught:
        Store.open(url)
    assert_no_secret(caught.value)
    assert caught.value.hint
