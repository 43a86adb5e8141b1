"""The Grafana dashboard that comes with autotune."""

from importlib.resources import files


def dashboard_text() -> str:
    """Its JSON, for Grafana's import."""
    return files("autotune.watch").joinpath("dashboard.json").read_text(encoding="utf-8").rstrip("\n")
