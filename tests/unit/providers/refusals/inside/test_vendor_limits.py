"""How many tokens an answer may have, by a refusal: in words of any vendor, and what only sounds so."""

import re

import pytest

from providers.refusals.vendor_limits import LACKS, PICTURES, Limit, is_of_model, lack_of, limit_of, longest_in


@pytest.mark.parametrize(
    ("said", "most"),
    [
        ("max_tokens\u53c2\u6570\u975e\u6cd5: [1,131072]", 131072),  # Zhipu
        ("Invalid value for max_output_tokens: 100000 must be <= 65536", 65536),
        ("max_new_tokens: must be <= 4096", 4096),
        ("Requested max_tokens 100000 exceeds limit 32768 for model", 32768),
        ("the value of max_tokens exceeds the maximum allowed (16384)", 16384),
        ("max_tokens must be at most 8192", 8192),
        ("field max_tokens invalid, should be in [1, 16384]", 16384),
        ("too large max_tokens: 40960 (max 32768)", 32768),
        ("max_completion_tokens (100000) must be at most 98304", 98304),
        ("maxOutputTokens: 100000 must be less than or equal to 65536", 65536),
    ],
)
def test_a_bound_behind_the_field_is_the_longest_answer(said: str, most: int) -> None:
    assert longest_in(said) == most


@pytest.mark.parametrize(
    "said",
    [
        "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease input length",
        "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 `inputs` tokens and 512 `max_new_tokens`",
        "max_tokens must be at least 1024",
        "`thinking.budget_tokens` must be at most 24576 beside `max_tokens`",
        "max_tokens of this request exceeds the limit 6000 tokens per minute",
        "max_tokens must be greater than thinking.budget_tokens",
        "max_prompt_tokens must be at most 8192",
    ],
)
def test_what_bounds_another_thing_does_not(said: str) -> None:
    assert longest_in(said) == 0


@pytest.mark.parametrize(
    "said",
    [
        "response format `json_schema` cannot be combined with streaming",
        "Tool use with function calling is unsupported",
        "JSON mode is not enabled for models/gemma-3-27b-it",
        "tool_choice 'required' is not supported",
        "Image URLs are not supported, use base64",
        "PDF input is not available",
        "`response_format` is not supported when `tools` are given",
        "Structured output is not compatible with thinking",
        "messages[2].content must be a string",
        "Invalid value: 'input_image'. Supported values are: 'input_text'.",
        "Prompt must contain the word 'json' in some form to use 'response_format' of type 'json_object'.",
    ],
)
def test_what_a_vendor_cannot_do_others_may(said: str) -> None:
    assert is_of_model(said)


# A refusal for each row of the table, in its order.
LACKING = [
    "Function calling with a response mime type: 'application/json' is unsupported",
    "json mode cannot be combined with tool/function calling",
    "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'.",
    "This tier is not available in your region",
    "Background mode is not enabled for this model",
    "This model does not support image input",
    "m is not a multimodal model",
    "registry.ollama.ai/library/m:latest does not support tools",
    "No endpoints found that support tool use.",
    "Invalid content type. image_url is only supported by certain models.",
    "auto tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set",
    "messages[0]: unknown variant `image_url`, expected `text` at line 1 column 219",
    "Only text tool_result blocks are supported when tool_result.content is an array.",
    "The 'gpt-6-astra' model requires a newer version of Codex.",
    "The image length and width do not meet the model restrictions.",
    "\u5f53\u524d\u6a21\u578b\u4e0d\u652f\u6301\u56fe\u7247\u8f93\u5165",
]


def test_each_row_of_what_is_lacking_is_the_only_one_that_knows_its_refusal() -> None:
    knowing = [[row for row in LACKS if re.search(row.words, said, re.IGNORECASE)] for said in LACKING]
    assert knowing == [[row] for row in LACKS]


@pytest.mark.parametrize(
    "said",
    [
        "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.",
        "previous_response_id cannot be used together with conversation.",
        "Unsupported value for tool_choice: must be one of 'none', 'auto', 'required'",
        "tools.0.input_schema: JSON schema is invalid",
        "The tool call's arguments are not valid JSON",
        "Unexpected field 'foo' is not supported",
        "File with id file_123 is not available",
        "Tool result for call_1 is not available in the conversation",
        "The file is not available in this project",
        "messages[0].content must be a string or null",
        "messages[0].role: unknown variant `tester`, expected one of `system`, `user`",
        "This model cannot take an empty prompt",
        "The model does not accept negative values for max_tokens",
    ],
)
def test_what_is_wrong_everywhere_is_no_vendors_lack(said: str) -> None:
    assert not is_of_model(said)


@pytest.mark.parametrize(
    "said",
    [
        "max_tokens is too large: 999999",
        "'n' must be 1 or greater",
        "The image URL exceeds 2048 bytes",
        "You may supply at most 1 tools of type web_search",
        "tools 名称最多 64 个字符",
    ],
)
def test_what_looks_like_a_limit_and_is_another_rule_is_none(said: str) -> None:
    assert limit_of(400, said) is None


@pytest.mark.parametrize(
    "said",
    [
        "messages[0]: unknown variant `image_url`, expected `text` at line 1 column 219",
        "This model does not support image input",
        "registry.ollama.ai/library/m:latest does not support images",
        "Image input is not supported by the selected model.",
        "image input is not supported - hint: you may need to provide the mmproj",
        "m is not a multimodal model",
        "No endpoints found that support image input",
        "Invalid content type. image_url is only supported by certain models.",
        "This model doesn't support the image content block that you provided. Update your content block type.",
        "image content is not supported for model command-r",
        "Image input is not enabled for this model",
        "The model is not a VLM (Vision Language Model). Please use text-only prompts.",
        "messages.content.type \u53c2\u6570\u975e\u6cd5 ['text']",
        "\u5f53\u524d\u6a21\u578b\u4e0d\u652f\u6301\u56fe\u7247\u8f93\u5165",
    ],
)
def test_a_model_that_takes_texts_alone_takes_no_pictures(said: str) -> None:
    assert is_of_model(said)
    assert lack_of(said) == Limit(PICTURES, 0)


@pytest.mark.parametrize(
    "said",
    [
        "messages[2].content must be a string",
        "messages[2].content: invalid type: sequence, expected a string at line 1 column 24",
        "messages.2.content: Input should be a valid string",
    ],
)
def test_a_turn_that_has_to_be_a_text_takes_no_pictures_if_it_has_one(said: str) -> None:
    assert is_of_model(said)
    assert lack_of(said) == Limit(PICTURES, 0, 2)


@pytest.mark.parametrize(
    "said",
    [
        "The model does not support images in tool results",
        "Images are not supported for assistant messages by this model",
        "Vision is not supported with streaming",
        "Image URLs are not supported, use base64",
        "The model does not support image generation",
        "Images in the format webp are not supported by this model",
        "The image length and width do not meet the model restrictions.",
        "Invalid value: 'image_url'. Value must be 'text'.",
        "messages[2]: unknown variant `image_url`, expected one of `text`, `image`",
        "Only text tool_result blocks are supported when tool_result.content is an array.",
        "messages[2].content must be a string, got null",
        "This model does not support audio input",
    ],
)
def test_what_takes_some_pictures_or_some_in_other_turns_takes_pictures(said: str) -> None:
    assert lack_of(said) is None
