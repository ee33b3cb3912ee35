"""Invalid `scale` settings are refused before anything starts, in one line that says how to fix them."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import arena.scale.cluster as clusters
from agents.engines.spec import EngineSpec
from arena.config.layers import compose
from arena.config.sources import parse_scale, recipe_layer
from arena.errors import ConfigError
from arena.scale.cluster import check_scale
from arena.scale.settings import ScaleSpec
from tests.factories.commands import NO_IMITATION, TINY, get_refusal

RUN = [*TINY, *NO_IMITATION]


def find_closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("trainers", "--scale trainers: write it as --scale trainers=2,engines=2"),
        (",", "write it as --scale trainers=2,engines=2"),
        ("trainers=0", "scale.trainers"),
        ("trainers=two", "scale.trainers"),
        ("ranks=2", "scale.ranks"),
        ("address=nowhere", "'nowhere' is neither auto nor host:port"),
        ("address=[::1]:99999", "is neither auto nor host:port"),
        ("patience=0", "scale.patience"),
        ("resources.engine.gpus=2", "in_process computes a model on one GPU: set engine.kind to vllm"),
        ("resources.trainer.gpus=2", "a rank uses one GPU"),
        ("resources.task.gpus=1.5", "more than one must be a whole number"),
        ("trainers=900,resources.trainer.gpus=1", "take 901 processors and 900 GPUs, and this machine has"),
    ],
)
def test_invalid_scale_is_refused(setting: str, message: str, tmp_path: Path) -> None:
    line = get_refusal(*RUN, "--out", f"{tmp_path}/run", "--scale", setting)
    assert message in line
    assert not list(tmp_path.iterdir()), "no folder was made"


def test_unreachable_cluster_gives_one_line() -> None:
    pytest.importorskip("ray")
    address = f"127.0.0.1:{find_closed_port()}"
    with pytest.raises(ConfigError, match=f"no Ray cluster answers at {address}"), clusters.connect(address, 1):
        pass


def test_own_cluster_has_whole_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray starts with no others, and one task asks for half of one."""
    pytest.importorskip("ray")
    init_settings: dict[str, object] = {}
    monkeypatch.setattr(clusters, "_init", lambda **settings: init_settings.update(settings))
    monkeypatch.setattr(clusters, "_check_imported", lambda address: None)
    with clusters.connect(None, 4.5):
        assert init_settings["num_cpus"] == 5 and isinstance(init_settings["num_cpus"], int)


def test_missing_ray_gives_install_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'arena-selfplay\[scale\]'"):
        check_scale(ScaleSpec(), EngineSpec())


def test_scale_layers_merge_and_none_removes_them() -> None:
    base = [recipe_layer("negotiation-nano"), *parse_scale("trainers=2, engines=3")]
    both = compose(base).scale
    assert both is not None and (both.trainers, both.engines, both.address) == (2, 3, None)
    merged = compose([*base, *parse_scale("trainers=1,address=10.0.0.1:6379")]).scale
    assert merged is not None and (merged.trainers, merged.engines, merged.address) == (1, 3, "10.0.0.1:6379")
    assert compose([*base, *parse_scale("none")]).scale is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "modules",
    ["arena.launch, arena.preflight, arena.cli.run, arena.doctor", "arena.scale.engines, arena.scale.trainer"],
    ids=["one process", "a cluster's driver before it starts"],
)
def test_ray_is_not_imported_early(modules: str) -> None:
    code = f"import sys, {modules}; print('ray' in sys.modules)"
    result = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"


def test_early_ray_import_gives_one_line() -> None:
    """Ray reads settings when it is imported, and with others its own processes do not find each other."""
    pytest.importorskip("ray")
    code = "import ray; from arena.scale.cluster import connect; connect(None, 1).__enter__()"
    environ = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    result = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=120)
    assert result.stderr.splitlines()[-1].startswith(
        "arena.errors.ConfigError: scale: this process imported Ray before"
    )
