"""Table of the layouts by `model_type` in config.json. Imports no torch."""

LAYOUTS = {
    "idefics3": "agents.eyes.idefics:Idefics",
    "smolvlm": "agents.eyes.idefics:Idefics",
    "qwen2_vl": "agents.eyes.qwen:Qwen2",
    "qwen2_5_vl": "agents.eyes.qwen:Qwen2",
    "qwen3_vl": "agents.eyes.qwen:Qwen3",
    "internvl": "agents.eyes.internvl:InternVL",
    "gemma3": "agents.eyes.gemma:Gemma3",
}
