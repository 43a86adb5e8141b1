"""Types of columns that databases do not have or do not agree on, and what the names of tables begin with."""

from datetime import UTC, datetime
from typing import Any, cast

from sqlalchemy import DateTime, Dialect, LargeBinary, String
from sqlalchemy.types import TypeDecorator, TypeEngine

PREFIX = "autotune_"
"""Of the names of all tables."""


class UtcDateTime(TypeDecorator[datetime]):
    """An aware instant. SQLite has no such type: there it is text of fixed width, ``2026-01-31 12:00:00.000000+00:00``."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Choose the column type of one database."""
        return dialect.type_descriptor(String(32) if dialect.name == "sqlite" else DateTime(timezone=True))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        """Refuse a naive instant (ValueError): which hour it means depends on the machine."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"instant {value} has no time zone")
        utc = value.astimezone(UTC)
        return utc.isoformat(sep=" ", timespec="microseconds") if dialect.name == "sqlite" else utc

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        """Restore the instant in UTC; text that is none is passed on, for ``convert`` to report with its row."""
        if isinstance(value, str):
            try:
                told = datetime.fromisoformat(value)
                # Without an offset it was not written here, but perhaps by SQLite's own functions: they mean UTC.
                return (told if told.tzinfo else told.replace(tzinfo=UTC)).astimezone(UTC)
            except ValueError:
                return cast("datetime", value)
            except OverflowError:  # there is no such year in UTC
                return cast("datetime", f"{value}, out of range")
        return value.astimezone(UTC) if isinstance(value, datetime) else None


class Blob(TypeDecorator[bytes]):
    """Bytes. SQLite lets any type into any column: what is none is passed on, for ``convert`` to report with its row."""

    impl = LargeBinary
    cache_ok = True

    def result_processor(self, dialect: Dialect, coltype: object) -> None:
        """Leave what was read alone: ``LargeBinary`` would make bytes of it, of the number 7 as many zeros."""
