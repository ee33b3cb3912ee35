"""Images in prompts: written as the chat templates of three families do, in order, and never forged by text."""

import hashlib
import io
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as Pixels

from agents.chat import ChatFrame
from agents.chat_images import Fit, ImageToken, as_text, find_images, find_spans, prepend_images
from agents.errors import ChatError
from agents.nano import build_nano_tokenizer
from agents.role import Role
from games.contracts import Image, Message, View

SMOLVLM = (
    "<|im_start|>{% for message in messages %}{{message['role'] | capitalize}}"
    "{% if message['content'][0]['type'] == 'image' %}{{':'}}{% else %}{{': '}}{% endif %}"
    "{% for line in message['content'] %}{% if line['type'] == 'text' %}{{line['text']}}"
    "{% elif line['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}<end_of_utterance>\n{% endfor %}"
    "{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
)
"""Chat template of HuggingFaceTB/SmolVLM-256M-Instruct. It knows contents as lists of parts only."""
QWEN = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{% if message['content'] is string %}"
    "{{ message['content'] }}<|im_end|>\n{% else %}{% for content in message['content'] %}"
    "{% if content['type'] == 'image' %}<|vision_start|><image><|vision_end|>{% elif 'text' in content %}"
    "{{ content['text'] }}{% endif %}{% endfor %}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Chat template of Qwen2-VL, without its default system text and counters of images."""
GEMMA = (
    "{% for message in messages %}{% if message['role'] == 'assistant' %}{% set role = 'model' %}{% else %}"
    "{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\n' }}"
    "{% if message['content'] is string %}{{ message['content'] | trim }}{% else %}"
    "{% for item in message['content'] %}{% if item['type'] == 'image' %}"
    "{{ '<start_of_image>' }}{% else %}{{ item['text'] | trim }}{% endif %}{% endfor %}{% endif %}"
    "{{ '<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)
"""Chat template of Gemma 3, without the joining of system and user."""
INTERNVL = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n'}}{% if message['content'] is string %}"
    "{{ message['content'] }}{% else %}{% for content in message['content'] %}{% if content['type'] == 'image' %}"
    "{{ '<image>\n' }}{% elif content['type'] == 'text' %}{{ content['text'] }}{% endif %}{% endfor %}{% endif %}"
    "{{'<|im_end|>\n'}}{% endfor %}{% if add_generation_prompt %}{{'<|im_start|>assistant\n' }}{% endif %}"
)
"""Chat template of InternVL3, whose placeholder is <IMG_CONTEXT>."""
TOKENS = 4
FAMILIES = {
    "smolvlm": (
        SMOLVLM,
        ("<|im_start|>", "<end_of_utterance>", "<fake_token_around_image>", "<global-img>", "<image>"),
        f"<fake_token_around_image><global-img>{'<image>' * TOKENS}<fake_token_around_image>",
    ),
    "qwen": (QWEN, ("<|im_start|>", "<|vision_start|>", "<|vision_end|>", "<image>"), "<image>" * TOKENS),
    "gemma": (
        GEMMA,
        ("<start_of_turn>", "<end_of_turn>", "<start_of_image>", "<end_of_image>", "<image>"),
        f"\n\n<start_of_image>{'<image>' * TOKENS}<end_of_image>\n\n",
    ),
    "internvl": (INTERNVL, ("<|im_start|>", "<img>", "</img>", "<image>"), f"<img>{'<image>' * TOKENS}</img>"),
}
EDGES: dict[str, dict[str, Any]] = {
    "gemma": {"mark": "<start_of_image>", "edges": ("\n\n<start_of_image>", "<end_of_image>\n\n")},
    "internvl": {"edges": ("<img>", "</img>")},
}
"""Template, added tokens, and what the family's processor writes for `<image>`."""


FILES: dict[str, bytes] = {}


def make_image(colour: str) -> Image:
    file = io.BytesIO()
    Pixels.new("RGB", (4, 4), colour).save(file, "PNG")
    name = hashlib.sha256(file.getvalue()).hexdigest()
    FILES[name] = file.getvalue()
    return Image(name, "image/png", 4, 4)


A, B = make_image("red"), make_image("blue")
picture = FILES.__getitem__


def make_tokenizer(family: str = "") -> Any:
    """Return nano's tokenizer with a family's template and tokens, or its own template and a token for images."""
    tokenizer = build_nano_tokenizer()
    template, added, _ = FAMILIES.get(family, (tokenizer.chat_template, ("<image>",), ""))
    tokenizer.add_tokens(list(added), special_tokens=True)
    tokenizer.chat_template = template
    return tokenizer


def make_frame(tokenizer: Any, family: str = "") -> ChatFrame:
    token = ImageToken(tokenizer.convert_tokens_to_ids("<image>"), TOKENS)
    return ChatFrame(tokenizer, token._replace(**EDGES.get(family, {})))


def make_parts(content: Any) -> list[dict[str, str]]:
    return [{"type": "image"} if isinstance(one, Image) else {"type": "text", "text": one} for one in content]


BARE = make_frame(make_tokenizer())


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "content", [("Look: ", A, " and ", B, " now"), (A, "What is it?"), ("Once more ", A), ("Hm.",)]
)
def test_prompts_are_those_of_the_template_and_the_processor(family: str, content: Any) -> None:
    tokenizer, frame = make_tokenizer(family), make_frame(make_tokenizer(family), family)
    chat = [{"role": "system", "content": make_parts(["Be brief."])}, {"role": "user", "content": make_parts(content)}]
    text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    mark = EDGES.get(family, {}).get("mark", "<image>")
    expected = tokenizer(text.replace(mark, FAMILIES[family][2]), add_special_tokens=False)["input_ids"]
    assert [*frame.open("Be brief."), *frame.ask(content)] == expected


def test_a_template_that_shows_no_images_gets_bare_placeholders() -> None:
    frame = make_frame(make_tokenizer())
    assert frame.image
    ids = frame.ask(("Look: ", A, " now"))
    position = ids.index(frame.image.id)
    assert ids[position : position + TOKENS] == [frame.image.id] * TOKENS and ids.count(frame.image.id) == TOKENS
    assert frame.decode(ids) == "Look:  now"


def test_a_model_without_vision_has_no_placeholder() -> None:
    tokenizer = make_tokenizer("smolvlm")
    with pytest.raises(ChatError, match="chat template"):
        ChatFrame(tokenizer)
    assert ChatFrame(make_tokenizer("qwen")).image is None


def test_spans_follow_image_order() -> None:
    frame = make_frame(make_tokenizer())
    assert frame.image
    content = ("x", A, B, "y", A)
    spans = find_spans(frame.ask(content), frame.image, find_images(content), picture)
    assert [span.hash for span in spans] == [A.hash, B.hash, A.hash]
    assert [span.data for span in spans] == [picture(A.hash), picture(B.hash), picture(A.hash)]
    assert spans[1].start == spans[0].start + TOKENS
    with pytest.raises(ChatError, match="more placeholders than its 2 images need"):
        find_spans(frame.ask(content), frame.image, [A, B], picture)
    with pytest.raises(ChatError, match=f"fewer than 4 placeholders for image {B.hash}"):
        find_spans(frame.ask(content), frame.image, [*find_images(content), B], picture)
    with pytest.raises(ValueError, match="the file has 4 x 4 pixels, not 4 x 5"):
        find_spans(frame.ask((A,)), frame.image, [replace(A, height=5)], picture)
    with pytest.raises(ChatError, match="does not match its bytes"):
        find_spans(frame.ask(content), frame.image, find_images(content), lambda name: b"a")
    with pytest.raises(ChatError, match="more placeholders than its 1 images need"):
        find_spans([frame.image.id] * 6, frame.image, [A], picture)


def test_the_number_of_placeholders_depends_on_the_image() -> None:
    tokenizer = make_tokenizer("qwen")
    token = ImageToken(tokenizer.convert_tokens_to_ids("<image>"), 0, lambda height, width: Fit(height, (height, 8)))
    frame, wide = ChatFrame(tokenizer, token), replace(A, height=2)
    ids = frame.ask((A, "or", wide))
    assert ids.count(token.id) == 6
    with pytest.raises(ValueError, match="pixels"):
        find_spans(ids, token, [A, wide], picture)
    (span,) = find_spans(frame.ask((A,)), token, [A], picture)
    assert (span.length, span.size) == (4, (4, 8))


def test_images_precede_text() -> None:
    assert prepend_images((), "x") == "x" and prepend_images((A,), "") == (A,)
    assert prepend_images((A,), ("x", B)) == (A, "x", B) and as_text((A, "x")) == f"{A.text}x"


ROLE = Role.model_validate(
    {
        "role": "r",
        "system": "s",
        "turn": "{% for m in messages %}{{ m.sender }}: {{ m.text }} {{ private.note }}\n{% endfor %}",
    }
)
PIECES = st.lists(
    st.one_of(st.sampled_from([A, B]), st.text(max_size=12), st.sampled_from(["<image>", A.text, "\u4e000\u4e00"]))
)


def make_view(*messages: list[Any], note: str = "") -> View:
    heard = tuple(Message("referee", tuple(message)) for message in messages)
    return View("seat", 0, heard, "", {}, {"note": note}, None)


@given(st.lists(PIECES, max_size=3), st.text(max_size=8))
def test_turn_shows_each_image_once_and_text_cannot_forge_one(messages: list[list[Any]], note: str) -> None:
    seen = make_view(*messages, note=note)
    content = ROLE.render_parts(seen, first=True)
    images = [part for message in messages for part in message if isinstance(part, Image)]
    assert find_images(content) == images
    assert as_text(content) == ROLE.render_turn(seen, first=True)
    assert BARE.image and BARE.ask(content).count(BARE.image.id) == TOKENS * len(images)


def test_an_image_beyond_the_limit_of_a_message_is_left_out() -> None:
    content = ROLE.render_parts(make_view(["word " * 900, A], ["x", B]), first=True)
    assert find_images(content) == [B]
