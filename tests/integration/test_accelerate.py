"""``accelerate launch`` run with the export."""

import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from autotune.export import Recommendation, Target, export
from autotune.model import Compile, Parallel, Precision, Settings
from tests.integration.conftest import Library
from tests.unit.export_samples import ALL, CHANGES, recommend

pytestmark = pytest.mark.integrations

SCRIPT = """
import json
from accelerate import Accelerator
accelerator = Accelerator()
plugin = accelerator.state.dynamo_plugin
print(json.dumps({
    "mixed_precision": accelerator.mixed_precision,
    "device": accelerator.device.type,
    "processes": accelerator.num_processes,
    "backend": plugin.backend.value,
    "mode": plugin.mode,
    "dynamic": plugin.dynamic,
    "fullgraph": plugin.fullgraph,
    "regional": plugin.use_regional_compilation,
}))
"""


def _written(tmp_path: Path, recommendation: Recommendation) -> str:
    path = tmp_path / "accelerate.yaml"
    path.write_text(export(recommendation, Target.ACCELERATE).file_text + "\n")
    return str(path)


def _launched(library: Library, tmp_path: Path, settings: Settings) -> Any:
    library("accelerate")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    config = _written(tmp_path, recommend(settings, device="cpu"))
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", config, str(script)]
    ended = subprocess.run(launch, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


def test_a_script_launched_with_it_gets_precision_and_compiler(library: Library, tmp_path: Path) -> None:
    assert _launched(library, tmp_path, Settings(precision=Precision.BF16, compile=Compile.REDUCE_OVERHEAD)) == {
        "mixed_precision": "bf16",
        "device": "cpu",
        "processes": 1,
        "backend": "INDUCTOR",
        "mode": "reduce-overhead",
        "dynamic": False,
        "fullgraph": False,
        "regional": False,
    }


def test_a_script_launched_with_the_users_own_settings_gets_neither(library: Library, tmp_path: Path) -> None:
    launched = _launched(library, tmp_path, Settings())
    assert (launched["mixed_precision"], launched["backend"]) == ("no", "NO")


@pytest.mark.parametrize(("world", "kind"), [(1, "NO"), (2, "MULTI_GPU")])
def test_every_key_is_one_of_theirs(library: Library, tmp_path: Path, world: int, kind: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        load = library("accelerate.commands.config.config_args").load_config_from_file
    for settings in (*CHANGES, ALL):
        config = load(_written(tmp_path, recommend(settings, world=world)))  # refuses unknown keys
        sharded = world > 1 and settings.parallel is Parallel.FSDP
        assert config.distributed_type.value == ("FSDP" if sharded else kind)
        assert config.num_processes == world
        assert config.use_cpu is False


def test_the_scaler_is_an_argument_of_its_own(library: Library) -> None:
    (advice,) = [n.advice for n in export(recommend(ALL), Target.ACCELERATE).notes if n.about == "init_scale"]
    handler = library("accelerate.utils").GradScalerKwargs
    expression = advice.partition("[")[2].partition("]")[0]
    assert eval(expression, {"GradScalerKwargs": handler}).init_scale == 1024.0


def test_the_launcher_hands_shards_to_the_plugin(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ``accelerate launch`` makes of the file, as variables, and the plugin of these."""
    recommendation = recommend(Settings(parallel=Parallel.FSDP, reshard=False, offload=True), world=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        launch = library("accelerate.commands.launch")
        parsed = launch.launch_command_parser().parse_args(
            ["--config_file", _written(tmp_path, recommendation), "script.py"]
        )
        args, _, _ = launch._validate_launch_command(parsed)
        for name, value in library("accelerate.utils.launch").prepare_multi_gpu_env(args).items():
            if name.startswith(("FSDP_", "ACCELERATE_")):
                monkeypatch.setenv(name, value)
        plugin = library("accelerate.utils").FullyShardedDataParallelPlugin()
    assert args.use_fsdp is True
    assert plugin.fsdp_version == 2
    assert plugin.reshard_after_forward is False
    assert type(plugin.cpu_offload).__name__ == "CPUOffloadPolicy"
    assert plugin.auto_wrap_policy.__name__ == "transformer_auto_wrap_policy"


def test_options_of_ddp_are_arguments_of_its_handler(library: Library) -> None:
    settings = Settings(parallel=Parallel.DDP, bucket_mb=50, bucket_view=True, static_graph=True)
    notes = export(recommend(settings, world=2), Target.ACCELERATE).notes
    (advice,) = [note.advice for note in notes if note.about == "bucket_view"]
    handler = library("accelerate.utils").DistributedDataParallelKwargs
    made = eval(advice.partition("[")[2].partition("]")[0], {"DistributedDataParallelKwargs": handler})
    assert (made.bucket_cap_mb, made.gradient_as_bucket_view, made.static_graph) == (50, True, True)
