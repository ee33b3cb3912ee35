"""Small chat templates with tools, in the turn formats of the families that models come from, and their tokenizers."""

from collections.abc import Callable
from typing import Any

from tests.factories.families import FAMILIES

CHATML_TOOLS = (
    "{%- set system = messages[0].content if messages[0].role == 'system' else 'You are helpful.' -%}"
    "{{ '<|im_start|>system\n' + system }}{%- if tools -%}{{ '\n\n# Tools\n<tools>' }}{%- for tool in tools -%}"
    "{{ '\n' + tool | tojson }}{%- endfor -%}{{ '\n</tools>\nCall them within <tool_call></tool_call>.' }}{%- endif -%}"
    "{{ '<|im_end|>\n' }}{%- for message in messages -%}{%- if message.role == 'tool' -%}"
    "{%- if loop.first or messages[loop.index0 - 1].role != 'tool' -%}{{ '<|im_start|>RESULT_ROLE' }}{%- endif -%}"
    "{{ '\n<tool_response>\n' + RESULT + '\n</tool_response>' }}"
    "{%- if loop.last or messages[loop.index0 + 1].role != 'tool' -%}{{ '<|im_end|>\n' }}{%- endif -%}"
    "{%- elif message.role == 'assistant' and message.tool_calls -%}{{ '<|im_start|>assistant' }}"
    "{%- if message.content -%}{{ '\n' + message.content }}{%- endif -%}{%- for call in message.tool_calls -%}"
    "{%- set call = call.function -%}{{ '\n<tool_call>\nCALL\n</tool_call>' }}{%- endfor -%}{{ '<|im_end|>\n' }}"
    "{%- elif message.role != 'system' or not loop.first -%}"
    "{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}{%- endif -%}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}{%- endif -%}"
)


def _chatml(call: str, result: str = "message.content", role: str = "user") -> str:
    return CHATML_TOOLS.replace("CALL\n", f"{call}\n").replace("RESULT_ROLE", role).replace("RESULT", result)


QWEN25 = _chatml("""{"name": "' + call.name + '", "arguments": ' + call.arguments | tojson + '}""")
HERMES = _chatml(
    """{"arguments": ' + call.arguments | tojson + ', "name": "' + call.name + '"}""",
    result="""'{"name": "' + message.name + '", "content": ' + message.content | tojson + '}'""",
    role="tool",
)
"""Its calls name the tool last; its results name it too."""
QWEN_XML = _chatml("").replace(
    "{{ '\n<tool_call>\n\n</tool_call>' }}",
    "{{ ('\n\n' if loop.first and message.content else '\n') + '<tool_call>\n<function=' + call.name + '>\n' }}"
    "{%- for key, value in call.arguments | items -%}"
    "{{ '<parameter=' + key + '>\n' + (value | tojson if value is mapping"
    " or value is sequence and value is not string else value | string) + '\n</parameter>\n' }}{%- endfor -%}"
    "{{ '</function>\n</tool_call>' }}",
)
LLAMA31 = (
    "{%- set head = namespace(tools=tools) -%}{{ bos_token + '<|start_header_id|>system<|end_header_id|>\n\n' }}"
    "{%- if tools is not none -%}{{ 'Environment: ipython\n' }}{%- endif -%}{%- if messages[0].role == 'system' -%}"
    "{{ messages[0].content | trim }}{%- set messages = messages[1:] -%}{%- endif -%}{{ '<|eot_id|>' }}"
    "{%- for message in messages -%}{%- if message.role == 'tool' -%}"
    "{{ '<|start_header_id|>ipython<|end_header_id|>\n\n' + message.content | tojson + '<|eot_id|>' }}"
    "{%- elif message.tool_calls -%}"
    "{%- if message.tool_calls | length > 1 -%}{{ raise_exception('one call') }}{%- endif -%}"
    "{%- set call = message.tool_calls[0].function -%}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' + "
    """'{"name": "' + call.name + '", "parameters": ' + call.arguments | tojson + '}<|eot_id|>' }}"""
    "{%- else -%}{{ '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' }}"
    "{%- if head.tools is not none and message.role == 'user' -%}{{ 'Given these functions, respond with JSON.\n\n' }}"
    "{%- for tool in head.tools -%}{{ tool | tojson(indent=4) + '\n\n' }}{%- endfor -%}{%- set head.tools = none -%}"
    "{%- endif -%}{{ message.content | trim + '<|eot_id|>' }}{%- endif -%}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif -%}"
)
"""Definitions stand in the first user's turn."""
MISTRAL_V3 = (
    "{{ bos_token }}{%- set users = messages | selectattr('role', 'equalto', 'user') | list -%}"
    "{%- set turn = namespace(count=0) -%}{%- for message in messages -%}"
    "{%- if message.role == 'user' or message.role == 'assistant' and not message.tool_calls -%}"
    "{%- if (message.role == 'user') != (turn.count % 2 == 0) -%}"
    "{{ raise_exception('roles must alternate') }}{%- endif -%}"
    "{%- set turn.count = turn.count + 1 -%}{%- endif -%}{%- endfor -%}"
    "{%- for message in messages -%}{%- if message.role == 'user' -%}{%- if tools and message == users[-1] -%}"
    "{{ '[AVAILABLE_TOOLS] [' }}"
    "{%- for tool in tools -%}{{ tool | tojson + ('' if loop.last else ', ') }}{%- endfor -%}"
    "{{ '][/AVAILABLE_TOOLS]' }}{%- endif -%}{{ '[INST] ' + message.content + '[/INST]' }}"
    "{%- elif message.role == 'tool' -%}"
    """{{ '[TOOL_RESULTS] {"content": ' + message.content"""
    """ + ', "call_id": "' + message.tool_call_id + '"}[/TOOL_RESULTS]' }}"""
    "{%- elif message.tool_calls -%}{{ '[TOOL_CALLS] [' }}{%- for call in message.tool_calls -%}"
    "{%- if call.id | length != 9 -%}{{ raise_exception('ids have 9 characters') }}{%- endif -%}"
    """{{ (call.function | tojson)[:-1] + ', "id": "' + call.id + '"}' + ('' if loop.last else ', ') }}{%- endfor -%}"""
    "{{ ']' + eos_token }}{%- elif message.role == 'assistant' -%}{{ ' ' + message.content | trim + eos_token }}"
    "{%- else -%}{{ raise_exception('System role not supported') }}{%- endif -%}{%- endfor -%}"
)
"""Definitions stand before the last user's turn; there is no system turn, and no user turn after a result."""
LFM2 = (
    "{%- macro value(given) -%}{%- if given is string -%}"
    r"""{{ "'" + given | replace('\\', '\\\\') | replace("'", "\\'") | replace('\n', '\\n')"""
    r""" | replace('\r', '\\r') + "'" }}"""
    "{%- elif given is iterable -%}{{ given | tojson }}{%- else -%}{{ given }}{%- endif -%}{%- endmacro -%}"
    "{%- set system = messages[0].content if messages[0].role == 'system' else '' -%}{{ bos_token }}"
    "{%- if system or tools -%}{{ '<|im_start|>system\n' + system }}{%- if tools -%}"
    "{{ ('\n' if system else '') + 'List of tools: <|tool_list_start|>[' }}"
    "{%- for tool in tools -%}{{ tool | tojson + ('' if loop.last else ', ') }}{%- endfor -%}"
    "{{ ']<|tool_list_end|>' }}{%- endif -%}{{ '<|im_end|>\n' }}{%- endif -%}"
    "{%- for message in messages if message.role != 'system' -%}{{ '<|im_start|>' + message.role + '\n' }}"
    "{%- if message.role == 'tool' -%}{{ '<|tool_response_start|>' + message.content + '<|tool_response_end|>' }}"
    "{%- else -%}{{ message.content }}{%- endif -%}{%- if message.tool_calls -%}{{ '<|tool_call_start|>[' }}"
    "{%- for call in message.tool_calls -%}{{ call.function.name + '(' }}"
    "{%- for key, given in call.function.arguments | items -%}"
    "{{ key + '=' + value(given) + ('' if loop.last else ', ') }}{%- endfor -%}{{ ')' + ('' if loop.last else ', ') }}"
    "{%- endfor -%}{{ ']<|tool_call_end|>' }}{%- endif -%}{{ '<|im_end|>\n' }}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}{%- endif -%}"
)
"""Calls are a list in Python syntax, directly after speech."""

TOOL_FAMILIES: dict[str, tuple[Callable[[], Any], str, str]] = {
    "qwen25": (FAMILIES["qwen"], QWEN25, "hermes"),
    "hermes": (FAMILIES["qwen"], HERMES, "hermes"),
    "qwen_xml": (FAMILIES["qwen"], QWEN_XML, "qwen_xml"),
    "llama31": (FAMILIES["llama3"], LLAMA31, "llama"),
    "mistral": (FAMILIES["mistral"], MISTRAL_V3, "mistral"),
    "lfm2": (FAMILIES["qwen"], LFM2, "lfm2"),
}
"""Tokenizer, template and expected format of calls, by family."""
LFM2_MARKS = [f"<|tool_{part}_{end}|>" for part in ("list", "call", "response") for end in ("start", "end")]
MORE_MARKS = {
    "mistral": ["[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"],
    "lfm2": ["<|startoftext|>", *LFM2_MARKS],
}


def build_tool_tokenizer(family: str) -> Any:
    """Build the tokenizer of a family with its template."""
    build, template, _ = TOOL_FAMILIES[family]
    tokenizer = build()
    if marks := MORE_MARKS.get(family):
        tokenizer.add_special_tokens({"additional_special_tokens": marks}, replace_extra_special_tokens=False)
    if family == "lfm2":
        tokenizer.bos_token = "<|startoftext|>"
    tokenizer.chat_template = template
    return tokenizer
