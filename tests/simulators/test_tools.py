"""Tools: parsing of model-written calls never raises, and every result is readable."""

import copy
import json
from typing import Any, Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from simulators.base import SimulatorFault
from simulators.tools import Call, Tool, describe, read_calls, run


def find_order(order_id: str, fields: list[str] | None = None, page: int = 1, sort: Literal["up", "down"] = "up"):
    """Finds an order by its id.

    What follows the first line is for people.
    """
    return {"order": order_id, "fields": fields, "page": page, "sort": sort}


def refund(amount: float, confirmed: bool) -> str:
    """Pays money back."""
    if amount > 100:
        raise ValueError("at most 100 can be refunded")
    return f"refunded {amount:g}" if confirmed else "not confirmed"


def broken(kind: str) -> Any:
    """Fails in any way."""
    failures: dict[str, Exception] = {
        "key": KeyError("hidden record 17"), "time": TimeoutError(), "type": TypeError("secret"),
        "deep": RecursionError(), "memory": MemoryError(), "fault": SimulatorFault("no record"),
    }  # fmt: skip
    raise failures[kind]


def give(what: str) -> Any:
    """Gives odd results."""
    circle: list[Any] = []
    circle.append(circle)
    return {
        "long": "x" * 5_000, "rows": [{"n": 1}, {"n": None}], "text": "plain", "nothing": None, "circle": circle,
        "object": object, "surrogate": "a\ud800b", "accents": {"é": "ü"},
    }[what]  # fmt: skip


TOOLS = [Tool.of(function) for function in (find_order, refund, broken, give)]


def run_calls(text, **options):
    return [run(TOOLS, call, **options) for call in read_calls(text)]


def test_tools_are_described():
    assert describe(TOOLS[:2]).splitlines() == [
        'find_order(order_id: str, fields: list[str]|null = null, page: int = 1, sort: "up"|"down" = "up"): '
        "Finds an order by its id.",
        "refund(amount: float, confirmed: bool): Pays money back.",
    ]
    first, second = map(json.loads, describe(TOOLS[:2], "json").splitlines())
    assert first["type"] == "function" and first["function"]["name"] == "find_order"
    assert first["function"]["parameters"]["required"] == ["order_id"]
    assert first["function"]["parameters"]["properties"]["sort"] == {
        "default": "up", "enum": ["up", "down"], "type": "string",
    }  # fmt: skip
    assert second["function"] == {
        "name": "refund",
        "description": "Pays money back.",
        "parameters": {
            "type": "object",
            "additionalProperties": False,
            "required": ["amount", "confirmed"],
            "properties": {"amount": {"type": "number"}, "confirmed": {"type": "boolean"}},
        },
    }


def test_a_parameter_may_have_any_name():
    def odd(title: str, copy: int, model_config: bool, _x: str = "") -> list[Any]:
        """Names that pydantic uses itself."""
        return [title, copy, model_config, _x]

    tool = Tool.of(odd)
    assert set(tool.shape.parameters["properties"]) == {"title", "copy", "model_config", "_x"}
    assert run([tool], Call("odd", {"title": "t", "copy": 1, "model_config": True})) == '["t",1,true,""]'


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "refund", "arguments": {"amount": 3, "confirmed": true}}</tool_call>',
        'I will.\n<tool_call>\n{"name": "refund", "arguments": {"amount": 3, "confirmed": true}}\n</tool_call>\nDone.',
        '<tool_call>{"name": "refund", "arguments": {"amount": 3, "confirmed": true}}',
        '<tool_call>{"name": "refund", "arguments": "{\\"amount\\": 3, \\"confirmed\\": true}"}</tool_call>',
        "<tool_call>refund(amount=3, confirmed=True)</tool_call>",
        '{"name": "refund", "arguments": {"amount": 3, "confirmed": true}}',
        '```json\n{"name": "refund",\n "arguments": {"amount": 3,\n "confirmed": true}}\n```',
        '[{"name": "refund", "arguments": {"amount": 3, "confirmed": true}}]',
        "refund(amount=3, confirmed=True)",
        "refund(3, true)",
        "Sure:\n  refund(3.0, confirmed=true)\n",
        "```python\nrefund(\n    amount=3,\n    confirmed=True,\n)\n```",
    ],
)
def test_parses_calls_in_all_forms(text):
    assert run_calls(text) == ["refunded 3"]


def test_several_calls_in_order_up_to_a_limit():
    body = '<tool_call>{"name": "give", "arguments": {"what": "text"}}</tool_call>'
    assert run_calls(body * 3) == ["plain"] * 3
    assert run_calls(body * 6) == ["plain"] * 4 + ["Error: at most 4 calls are run per reply; the others were not."]
    assert [call.name for call in read_calls('give("text")\nrefund(1, true)')] == ["give", "refund"]
    assert len(read_calls('{"name": "a"} {"name": "b"}\n{"name": "c"}')) == 3


def test_strings_may_contain_the_end_tag():
    text = '<tool_call>{"name": "find_order", "arguments": {"order_id": "</tool_call>\n{\\"a\\""}}</tool_call>'
    assert read_calls(text) == [Call("find_order", {"order_id": '</tool_call>\n{"a"'})]


@pytest.mark.parametrize(
    "text",
    ["", "Hello (there).", "no() yes", "a = refund(3)", "x.refund(3)", '{"action": "wait"}', "[1, 2]", "if(", "(((("],
)
def test_text_without_calls(text):
    assert read_calls(text) == []


USE = "Use refund(amount: float, confirmed: bool)."

GIVEN = '{"amount": 3, "confirmed": true}'
OBJECT = f'{{"name": "refund", "arguments": {GIVEN}}}'
XML = "<parameter=amount>\n3\n</parameter>\n<parameter=confirmed>\ntrue\n</parameter>\n"
INVOKE = '<parameter name="amount">3</parameter><parameter name="confirmed">true</parameter>'
NATIVE = {
    "Llama 3": f'{{"name": "refund", "parameters": {GIVEN}}}',
    "Llama 3, tagged": f'<|python_tag|>{{"type": "function", "name": "refund", "parameters": {GIVEN}}}<|eom_id|>',
    "Llama 3, built in": "<|python_tag|>refund.call(amount=3, confirmed=true)<|eom_id|>",
    "Llama 3.1, custom": f"I will.\n<function=refund>{GIVEN}</function>",
    "Llama 3.2, Llama 4": "[refund(amount=3, confirmed=True)]",
    "Llama 4, tagged": "<|python_start|>[refund(amount=3, confirmed=True)]<|python_end|>",
    "Mistral 3": f'[TOOL_CALLS] [{{"name": "refund", "arguments": {GIVEN}, "id": "123456789"}}]',
    "Mistral 11": f"[TOOL_CALLS]refund[CALL_ID]abcdefghi[ARGS]{GIVEN}",
    "Mistral, without its special tokens": f"refund{GIVEN}",
    "Qwen 3.5": f"<tool_call>\n<function=refund>\n{XML}</function>\n</tool_call>",
    "Qwen3-Coder, without its tag": f"<function=refund>\n{XML}</function>",
    "Seed-OSS": f"<seed:tool_call>\n<function=refund>\n{XML}</function>\n</seed:tool_call>",
    "GLM": "<tool_call>refund\n<arg_key>amount</arg_key>\n<arg_value>3</arg_value>\n<arg_key>confirmed</arg_key>\n"
    "<arg_value>true</arg_value>\n</tool_call>",
    "MiniMax": f'<minimax:tool_call>\n<invoke name="refund">\n{INVOKE}\n</invoke>\n</minimax:tool_call>',
    "Anthropic": f'<function_calls><invoke name="refund">{INVOKE}</invoke></function_calls>',
    "Anthropic, JSON": f'{{"type": "tool_use", "id": "toolu_1", "name": "refund", "input": {GIVEN}}}',
    "OpenAI": f'{{"id": "call_1", "type": "function", "function": {{"name": "refund", "arguments": '
    f"{json.dumps(GIVEN)}}}}}",
    "OpenAI, message": f'{{"role": "assistant", "content": null, "tool_calls": [{{"function": {OBJECT}}}]}}',
    "OpenAI, older": f'{{"function_call": {OBJECT}}}',
    "gpt-oss": f"<|start|>assistant to=functions.refund<|channel|>commentary json<|message|>{GIVEN}<|call|>",
    "Command R": f'Action: ```json\n[{{"tool_name": "refund", "parameters": {GIVEN}}}]\n```',
    "Granite 3": f"<|tool_call|>[{OBJECT}]",
    "Phi 4 mini": f"functools[{OBJECT}]",
    "LFM2": "<|tool_call_start|>[refund(amount=3, confirmed=True)]<|tool_call_end|>",
    "Olmo 3": "<function_calls>\nrefund(amount=3, confirmed=True)\n</function_calls>",
    "Nemotron": f"<TOOLCALL>[{OBJECT}]</TOOLCALL>",
    "InternLM": f"<|action_start|><|plugin|>{OBJECT}<|action_end|>",
    "DeepSeek V3": f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>refund\n```json\n{GIVEN}\n```"
    "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "DeepSeek V3.2": '<｜DSML｜function_calls><｜DSML｜invoke name="refund"><｜DSML｜parameter name="amount" '
    'string="false">3</｜DSML｜parameter><｜DSML｜parameter name="confirmed" string="false">true</｜DSML｜parameter>'
    "</｜DSML｜invoke></｜DSML｜function_calls>",
    "Kimi K2": f"<|tool_call_begin|>functions.refund:0<|tool_call_argument_begin|>{GIVEN}<|tool_call_end|>",
    "Gemma 3": "Sure.\n```tool_code\nrefund(amount=3, confirmed=True)\n```\n",
    "a thinking model": f"<think>Is refund(1, true) enough?</think><tool_call>{OBJECT}</tool_call>",
    "one whose prompt opens the thought": f"Hm.\nrefund(2, true)\n</think>{OBJECT}",
}


@pytest.mark.parametrize("family", NATIVE)
def test_parses_native_formats(family):
    assert run_calls(NATIVE[family]) == ["refunded 3"]


@pytest.mark.parametrize(
    "text",
    [
        "<|tool_call>call:refund{amount:3,confirmed:true}<tool_call|>",
        "<start_function_call>call:refund{amount:3}<end_function_call>",
        f'<|tools_prefix|>[{{"refund": {GIVEN}}}]<|tools_suffix|>',
        f"Thought: hm\nAction: refund\nAction Input: {GIVEN}",
        "<tool_call>refund</tool_call>",
        "[TOOL_CALLS]",
    ],
)
def test_unsupported_format_gets_an_error(text):
    (answer,) = run_calls(text)
    assert answer.startswith("Error: ") and 'a call is {"name": "…", "arguments": {…}}' in answer


@pytest.mark.parametrize("family", NATIVE)
def test_a_call_inside_a_thought_is_not_run(family):
    thought = NATIVE[family].partition("</think>")[2] or NATIVE[family]
    for text in (f"<think>\n{thought}\n</think>", f"<think>{thought}", f"[THINK]\n{thought}\n[/THINK]"):
        assert run_calls(text) == ["Error: a call inside a thought is not run: write it after the thought."]
    for text in (f"<think>\n{thought}\n</think>\nNo.", f"{thought}\n</think>\nNo."):
        assert run_calls(text) == []
    assert run_calls(f'<think>\n{thought}\n</think>\ngive("text")') == ["plain"]


def test_untyped_arguments_are_parsed_by_the_schema():
    text = (
        "<function=find_order>\n<parameter=order_id>\n7\n</parameter>\n<parameter=page>\n2\n</parameter>\n</function>"
    )
    (answer,) = run_calls(text)
    assert json.loads(answer) == {"order": "7", "fields": None, "page": 2, "sort": "up"}
    assert run_calls("<function=refund><parameter=amount>a</parameter><parameter=confirmed>True</parameter>") == [
        f'Error: argument "amount": input should be a valid number. {USE}'
    ]


def test_parses_several_calls_in_one_wrapper():
    for text in (
        f"<tool_call>{OBJECT}\n{OBJECT}</tool_call>",
        f"<|python_tag|>{OBJECT}; {OBJECT}",
        f"{OBJECT}; {OBJECT}",
    ):
        assert run_calls(text) == ["refunded 3"] * 2


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("refnd(3, true)", 'Error: there is no tool "refnd" (did you mean refund?).'),
        ("zzz()", 'Error: there is no tool "zzz" (there are find_order, refund, broken, give).'),
        ("refund(3)", f'Error: argument "confirmed" is missing. {USE}'),
        ("refund(3, true, 4)", f"Error: refund takes 2 arguments, not 3. {USE}"),
        ("refund(3, true, amount=3)", f'Error: argument "amount" is given twice. {USE}'),
        ("refund(amount=1, amount=2)", "Error: refund: a key is there twice."),
        ('refund("3", true)', f'Error: argument "amount": input should be a valid number. {USE}'),
        ("refund(3, 1)", f'Error: argument "confirmed": input should be a valid boolean. {USE}'),
        (
            "refund(3, confirm=true)",
            'Error: argument "confirmed" is missing; there is no argument "confirm" (did you mean confirmed?). ' + USE,
        ),
        ("refund(1e999, true)", "Error: refund: a number is too large."),
        ("refund(" + "9" * 50 + ", true)", "Error: refund: a number has more than 40 digits."),
        ("refund(x, true)", "Error: refund: the arguments must be plain values: texts in quotes, numbers, true, false, "
         "null, lists, objects."),
        ("refund(**{})", "Error: refund: ** is not read."),
        ("refund(101, true)", "Error: at most 100 can be refunded"),
        ('broken("key")', "Error: broken failed (KeyError)."),
        ('broken("type")', "Error: broken failed (TypeError)."),
        ('broken("deep")', "Error: broken failed (RecursionError)."),
        ('broken("memory")', "Error: broken failed (MemoryError)."),
        ('broken("time")', "Error: broken took too long."),
        ('give("circle")', "Error: Circular reference detected"),
        ('give("nothing")', "null"),
        ('give("rows")', '[{"n":1},{"n":null}]'),
        ('give("accents")', '{"é":"ü"}'),
        ('give("surrogate")', "a?b"),
        ('{"name": "give", "arguments": {"what": "text", "what": "text"}}',
         "Error: the call is not JSON (a key is there twice)."),
        ('{"name": "refund", "arguments": {"amount": NaN}}', "Error: the call is not JSON (NaN is no number)."),
        ('{"name": "refund", "arguments": {"amount": 1e999}}', "Error: the call is not JSON (a number is too large)."),
        ('{"name": "refund", "arguments": [3]}', "Error: refund: the arguments must be an object."),
        ('{"name": "refund", "arguments": "{"}', "Error: refund: the arguments are not JSON (Expecting property name "
         "enclosed in double quotes)."),
        ('{"name": 3}', 'Error: a call is {"name": "…", "arguments": {…}}.'),
        ('{"name": "refund", "arguments": {}, "note": 3}',
         "Error: refund: a call has a name and arguments, nothing else."),
        ("<tool_call>please</tool_call>", "Error: nothing between <tool_call> and </tool_call> can be read: "
         'a call is {"name": "…", "arguments": {…}}.'),
        ("<tool_call>{'name'", "Error: the call is not JSON (Expecting property name enclosed in double quotes)."),
        ('{"name": "refund", "arguments": {"amount": ' + "[" * 50 + "]" * 50 + "}}",
         "Error: refund: the arguments are nested more than 16 deep."),
        ("refund(" + "[" * 50 + "]" * 50 + ")", "Error: refund: the arguments are nested more than 16 deep."),
        ("<tool_call>" + "[" * 9_000, "Error: the call is not JSON (nested too deep)."),
    ],
)  # fmt: skip
def test_errors_are_explained(text, answer):
    assert run_calls(text) == [answer]


def test_long_result_is_truncated():
    assert run_calls('give("long")', max_characters=10) == ["x" * 10 + "… (cut: 10 of 5,000 characters)"]


def test_simulator_faults_are_raised():
    with pytest.raises(SimulatorFault, match="no record"):
        run_calls('broken("fault")')


def test_refuses_invalid_tools():
    def no_words(a: str) -> None: ...

    def no_hint(a) -> None:
        """A."""

    def anything(a: dict[str, int]) -> None:
        """A."""

    def rest(*a: str) -> None:
        """A."""

    def unknown(a: "Nothing") -> None:  # type: ignore[name-defined]  # noqa: F821
        """A."""

    def unreadable(a: "str |") -> None:  # type: ignore  # noqa: F722
        """A."""

    invalid_tools = (
        (no_words, "docstring"), (no_hint, "annotate a"), (anything, "annotate a"), (rest, "name"),
        (unknown, "unknown: an annotation cannot be resolved: name 'Nothing' is not defined"),
        (unreadable, "unreadable: an annotation cannot be resolved"),
    )  # fmt: skip
    for function, message in invalid_tools:
        with pytest.raises(ValueError, match=message) as error:
            Tool.of(function)
        assert "\n" not in str(error.value)


def test_method_tools_are_copied_with_their_object():
    class Shop:
        def __init__(self):
            self.sold = 0
            self.tools = [Tool.of(self.sell)]

        def sell(self, count: int) -> int:
            """Sells."""
            self.sold += count
            return self.sold

    shop = Shop()
    twin = copy.deepcopy(shop)
    assert run(twin.tools, Call("sell", {"count": 2})) == "2"
    assert (shop.sold, twin.sold) == (0, 2)
    assert shop.tools[0].shape is Shop().tools[0].shape  # made once


PIECES = r"""
<think> </think> [TOOL_CALLS] <|python_tag|> <function=refund> <parameter=amount> <invoke name="refund"> [ARGS] refund{
"parameters" "function" "type": to=functions.
<tool_call> </tool_call> ```json ``` {"name" : "refund" refund( find_order( ) "arguments" { } [ ] , = amount confirmed
true 1e999 NaN - \u0000 \ ' ** lambda:0 0j b'' ... f'{1}'
"""
HOSTILE = st.one_of(
    st.text(max_size=300),
    st.lists(
        st.sampled_from([*PIECES.split(), "\n", "\0", "\ud800", "\u202e", " ", '"', '"""', "9" * 60]),
        max_size=40,
    ).map("".join),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=12,
    ).flatmap(
        lambda value: st.sampled_from(
            [
                json.dumps({"name": "refund", "arguments": value}),
                json.dumps(value),
                f"<tool_call>{json.dumps({'name': 'find_order', 'arguments': {'order_id': value, 'page': value}})}",
                f"refund({value!r}, confirmed={value!r})",
            ]
        )
    ),
)


@given(HOSTILE)
@example("(" * 3_000)
@example("refund(" + "-" * 3_000 + "1)")
@example("refund(" + "not " * 3_000 + "1)")
@example("refund(" + "[" * 3_000)
@example("refund(" + "1+" * 3_000 + "1)")
@example("refund(" + "x." * 3_000 + "x)")
@example("refund(" + "lambda:" * 1_000 + "1)")
@example('{"name":' * 2_000)
@example('{"name": "refund", "arguments": ' + '{"a":' * 4_000)
@example("<tool_call>" * 1_500)
@example("\n" * 20_000 + '{"name"')
@example("```" * 5_000)
@example("refund(" + "1" * 5_000 + ")")
@example('refund("' + "\\N{DIGIT ONE}" * 200 + '")')
@example("refund(amount=float('nan'))")
@example("\na{}" * 5_000)
@example('\n{"id": 1,' * 2_000)
@example('{"id":' + " " * 19_000)
@example("<function=a>" + "<parameter=a>" * 1_400)
@example("[TOOL_CALLS]" * 1_600)
@example("to=functions." * 1_500)
@example("<think>" * 2_800)
@example("</think>" * 2_500)
@example('{"name": "a"}' + " " * 18_000 + "x")
@example('{"function":' * 900 + "{}" + "}" * 900)
def test_no_text_raises(text):
    for call in read_calls(text):
        assert len(run(TOOLS, call).encode()) < 10_000
