"""Hydra given the overrides, and a configuration composed with the file."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from autotune.export import Target, export
from autotune.model import Settings
from tests.integration.conftest import Library
from tests.unit.export_samples import ALL, CHANGES, named, recommend

pytestmark = pytest.mark.integrations
SAMPLES = [Settings(), *CHANGES, ALL]


def _expected(settings: Settings) -> dict[str, Any]:
    found = {field.name: getattr(settings, field.name) for field in fields(Settings)}
    return {"micro_batch": 24, "world": 2} | {
        name: str(value) if isinstance(value, str) else value for name, value in found.items()
    }


@pytest.mark.parametrize("settings", SAMPLES, ids=named)
def test_every_line_is_an_override(library: Library, settings: Settings) -> None:
    parser = library("hydra.core.override_parser.overrides_parser").OverridesParser.create()
    lines = export(recommend(settings, world=2), Target.HYDRA).text.splitlines()
    parsed = parser.parse_overrides(lines)
    assert {it.key_or_group.removeprefix("autotune."): it.value() for it in parsed} == _expected(settings)
    assert not any(it.is_sweep_override() for it in parsed)


@pytest.mark.parametrize("settings", SAMPLES, ids=named)
def test_overrides_and_file_end_up_in_the_same_place(library: Library, tmp_path: Path, settings: Settings) -> None:
    hydra, omegaconf = library("hydra"), library("omegaconf")
    exported = export(recommend(settings, world=2), Target.HYDRA)
    (tmp_path / "autotune").mkdir()
    (tmp_path / "autotune" / "recommended.yaml").write_text(exported.file_text + "\n")
    (tmp_path / "config.yaml").write_text("lr: 0.1\n")
    with hydra.initialize_config_dir(version_base=None, config_dir=str(tmp_path)):
        from_lines = hydra.compose("config", overrides=exported.text.splitlines())
        from_file = hydra.compose("config", overrides=["+autotune=recommended"])
    for composed in (from_lines, from_file):
        assert omegaconf.OmegaConf.to_container(composed) == {"lr": 0.1, "autotune": _expected(settings)}


def test_overrides_replace_what_a_configuration_has(library: Library, tmp_path: Path) -> None:
    hydra = library("hydra")
    (tmp_path / "config.yaml").write_text("autotune:\n  micro_batch: 8\n  mine: 1\n")
    lines = export(recommend(Settings()), Target.HYDRA).text.splitlines()
    with hydra.initialize_config_dir(version_base=None, config_dir=str(tmp_path)):
        composed = hydra.compose("config", overrides=lines)
    assert (composed.autotune.micro_batch, composed.autotune.mine) == (24, 1)
