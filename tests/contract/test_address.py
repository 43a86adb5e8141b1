"""What counts as the address of a ledger."""

from pathlib import Path

import pytest

from autotune.errors import StoreError
from autotune.storage.address import parse_address


@pytest.mark.parametrize("text", ["runs/a b.db", "sqlite:///runs/a b.db", "sqlite+pysqlite:///runs/a b.db"])
def test_a_relative_path_is_taken_from_the_current_directory(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    address = parse_address(text)
    assert address.path == tmp_path / "runs" / "a b.db"
    assert address.url.database == str(address.path)
    assert address.label == str(address.path)


@pytest.mark.parametrize("text", ["/data/x.db", "sqlite:////data/x.db"])
def test_an_absolute_path_stays(text: str) -> None:
    assert parse_address(text).path == Path("/data/x.db")


@pytest.mark.parametrize("text", ["~/x.db", "sqlite:///~/x.db"])
def test_a_tilde_is_the_home_directory(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert parse_address(text).path == tmp_path / "x.db"


def test_a_path_may_hold_characters_that_mean_something_in_a_url() -> None:
    assert parse_address("/data/a?b#c%20@d:e.db").path == Path("/data/a?b#c%20@d:e.db")
    assert parse_address("./sqlite:x.db").path == Path.cwd() / "sqlite:x.db"


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_postgresql_means_psycopg_3_however_it_is_written(scheme: str) -> None:
    address = parse_address(f"{scheme}://me:secret@db.example:5433/runs?connect_timeout=5")
    assert address.path is None
    assert address.url.drivername == "postgresql+psycopg"
    assert address.url.password == "secret"
    assert address.url.query == {"connect_timeout": "5"}
    assert address.label == "postgresql+psycopg://me:***@db.example:5433/runs"


@pytest.mark.parametrize("text", ["sqlite://", "sqlite:///", "sqlite:///:memory:"])
def test_a_ledger_in_memory_is_refused(text: str) -> None:
    with pytest.raises(StoreError, match="would be lost"):
        parse_address(text)


@pytest.mark.parametrize(
    "text", ["", "  ", "a\0b", "sqlite:x.db", "journal:runs.log", "mysql://h/d", "https://h/d", "sqlite:///a?b=c"]
)
def test_what_is_no_address_is_refused_with_the_ones_that_are(text: str) -> None:
    with pytest.raises(StoreError) as caught:
        parse_address(text)
    assert "--storage sqlite:///FILE" in caught.value.hint
