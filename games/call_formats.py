"""Formats in which models write tool calls and thoughts, one table row each.

To support another format, add its row. A body (the text inside a wrapper) may be JSON, XML parameters, a name with
JSON, or Python calls, in any wrapper.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Wrapper(NamedTuple):
    """Delimiters that a family of models writes around a tool call."""

    opening: str
    """Regular expression."""
    closing: str
    """Literal text; "" if only the end of the reply closes the call."""
    family: str


WRAPPERS = (
    Wrapper("<tool_call>", "</tool_call>", "Hermes, Qwen 2.5, Qwen 3, Granite 4, GLM 4"),
    Wrapper(r"<(?:function=|(?:\w{1,16}:|｜DSML｜)?invoke name=)", "", "Qwen 3.5, Llama 3.1, MiniMax, DeepSeek 3.2"),
    Wrapper(r"<(?:\w{1,16}:|｜DSML｜)(?:tool_call|function_calls)>", "", "MiniMax, Seed-OSS, DeepSeek 3.2"),
    Wrapper("<function_calls>", "</function_calls>", "Olmo 3"),
    Wrapper("<function_call>", "</function_call>", "Granite 20B"),
    Wrapper("<tool_calls>", "</tool_calls>", "Hunyuan, Jamba"),
    Wrapper("<tool_code>", "</tool_code>", "Gemini"),
    Wrapper("<TOOLCALL>", "</TOOLCALL>", "Nemotron"),
    Wrapper(r"\[TOOL_CALLS\]", "", "Mistral"),
    Wrapper(r"<\|python_tag\|>", "<|eom_id|>", "Llama 3.1"),
    Wrapper(r"<\|python_start\|>", "<|python_end|>", "Llama 4"),
    Wrapper(r"<\|tool_call\|>", "<|/tool_call|>", "Granite 3, Phi 4"),
    Wrapper(r"functools(?=\[)", "", "Phi 4 mini"),
    Wrapper(r"<\|tool_call_start\|>", "<|tool_call_end|>", "LFM2"),
    Wrapper(r"<\|START_ACTION\|>", "<|END_ACTION|>", "Command R7B"),
    Wrapper(r"<\|action_start\|>\s{0,9}<\|plugin\|>", "<|action_end|>", "InternLM"),
    Wrapper("<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "DeepSeek V3, R1"),
    Wrapper(r"<\|tool_call_begin\|>", "<|tool_call_end|>", "Kimi K2"),
    Wrapper(r"\bto=functions\.", "<|call|>", "gpt-oss"),
    # Recognised but not supported: the model is told that such a call cannot be read.
    Wrapper(r"<\|tool_call>", "<tool_call|>", "Gemma 4"),
    Wrapper("<start_function_call>", "<end_function_call>", "FunctionGemma"),
    Wrapper(r"<\|tools_prefix\|>", "<|tools_suffix|>", "Apertus"),
    Wrapper(r"^[ \t]*Action:[^\n]{1,80}\n\s{0,9}Action Input:", "", "ReAct"),
)


class Shape(NamedTuple):
    """JSON keys of a call's tool name and arguments, as a family of models writes them."""

    name: str
    arguments: str
    family: str


SHAPES = (
    Shape("name", "arguments", "Hermes, Qwen, Mistral, OpenAI"),
    Shape("name", "parameters", "Llama 3, InternLM"),
    Shape("name", "args", "Gemini, LangChain"),
    Shape("name", "input", "Anthropic"),
    Shape("tool_name", "parameters", "Command R"),
    Shape("tool", "arguments", "models without a format of their own"),
    Shape("tool", "parameters", "the same"),
    Shape("function", "arguments", "the same"),
    Shape("function", "parameters", "the same"),
    Shape("recipient_name", "parameters", "OpenAI's parallel calls"),
    Shape("action", "action_input", "LangChain"),
)
HOLDERS = ("function", "function_call", "tool_call", "tool_calls")
"""Keys under which OpenAI's objects contain calls."""
IGNORED = frozenset({"id", "type", "index", "call_id", "tool_call_id", "role", "content"})
"""Additional allowed keys of a call's JSON object."""

THOUGHTS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
)
"""Opening and closing marks of thoughts."""

NAME = r"[^\W\d][\w.-]{0,63}"
_BLANKS = r"\s{0,99}"
_ID = rf'"(?:{"|".join(sorted(IGNORED))})"{_BLANKS}:{_BLANKS}(?:"[^"\n]{{0,80}}"|\d{{1,9}}|null){_BLANKS},{_BLANKS}'
_CALL_KEYS = ("name", "arguments", "parameters", "tool_name", "recipient_name", *HOLDERS)
_FIRST_KEY = (
    rf'(?:{_ID}){{0,4}}"(?:(?:{"|".join(_CALL_KEYS)})"'
    rf'|(?:tool|action)"{_BLANKS}:{_BLANKS}"[^"\n]{{0,80}}"{_BLANKS},{_BLANKS}"(?:arguments|parameters|action_input)")'
)

_START = f"(?:^|{'|'.join(f'(?<={re.escape(mark)})' for pair in THOUGHTS for mark in pair)})[ \\t]*"
"""The start of a line, or of the text after a thought's mark."""


def _compile_openings(*calls: str) -> re.Pattern[str]:
    """Compile a pattern of marks that open a thought (group `thought`), close one (`after`) or open a call (`call`)."""
    thought, after = ("|".join(re.escape(pair[end]) for pair in THOUGHTS) for end in (0, 1))
    return re.compile(f"(?P<thought>{thought})|(?P<after>{after})|(?P<call>{'|'.join(calls)})", re.MULTILINE)


WRAPPED = _compile_openings(*(wrapper.opening for wrapper in WRAPPERS))
BARE = _compile_openings(
    rf"(?:{_START}|(?<=[}}\]]))[ \t]*+[;,]?[ \t]*+(?=[\[{{]{_BLANKS}(?:\{{{_BLANKS})?{_FIRST_KEY})",
    rf'{_START}(?={NAME}(?:\[CALL_ID\]\w{{1,40}})?(?:\[ARGS\])?[ \t]*\{{(?:{_BLANKS}"|\}}))',
)
"""The start of a JSON object with a call's first keys, or of a name with its JSON, at the start of a line."""
NAMESPACES = ("functions", "tools", "default_api")
"""Namespaces that models prefix to tool names."""
_NAMESPACE = rf"(?:(?:{'|'.join(NAMESPACES)})\.)?"
LINES = _compile_openings(rf"{_START}(?=\[?{_NAMESPACE}[^\W\d]\w{{0,63}}(?:\.call)?\(.*\)\]?[ \t]*$)")
"""The start of a line that may contain calls in Python syntax."""

NAMED = re.compile(
    rf"(?:function<｜tool▁sep｜>)?(?:functions\.)?({NAME}?)(?::\d{{1,9}})?"
    r"(?:\s|<[|｜][^<>\n]{1,40}[|｜]>|\[CALL_ID\]\w{1,40}|\[ARGS\]|```|\b(?:commentary|json)\b){0,99}(?=\{)"
)
"""A name and the text allowed between it and its JSON arguments."""
FUNCTION = re.compile(r'<(?:function=|(?:\w{1,16}:|｜DSML｜)?invoke name=)"?([^">\n]{1,64})"?>')
PARAMETER = re.compile(r'<(?:parameter=|(?:\w{1,16}:|｜DSML｜)?parameter name=)"?([^">\n]{1,64})"?[^>\n]{0,40}>')
END_OF_FUNCTION = re.compile(r"</(?:function|(?:\w{1,16}:|｜DSML｜)?invoke|tool_call)>")
END_OF_PARAMETER = re.compile(r"</(?:(?:\w{1,16}:|｜DSML｜)?parameter|arg_value)>")
KEY_AND_VALUE = re.compile(r"<arg_key>([^<>\n]{1,64})</arg_key>\s{0,9}<arg_value>")
"""A parameter in GLM's format."""
