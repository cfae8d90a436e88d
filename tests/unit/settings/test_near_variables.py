"""Keys under a name that is nearly the right one, and keys of vendors whose address is each customer's own."""

from pathlib import Path

import pytest

from gateway.settings import found_vendors, like, load, near_keys, starter_text, without_address
from providers import load_catalog

CATALOG = load_catalog()


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("GROQ_APIKEY", "GROQ_API_KEY (Groq)"),
        ("groq_api_key", "GROQ_API_KEY (Groq)"),
        ("GROQ_KEY", "GROQ_API_KEY (Groq)"),
        ("GROK_API_KEY", "XAI_API_KEY (xAI) or GROQ_API_KEY (Groq)"),
        ("CLAUDE_API_KEY", "ANTHROPIC_API_KEY (Anthropic)"),
        ("ANTROPIC_API_KEY", "ANTHROPIC_API_KEY (Anthropic)"),
        ("ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_API_KEY (Anthropic)"),
        ("OPENIA_API_KEY", "OPENAI_API_KEY (OpenAI)"),
        ("OPEN_AI_KEY", "OPENAI_API_KEY (OpenAI)"),
        ("HUGGING_FACE_HUB_TOKEN", "HF_TOKEN (Hugging Face Inference Providers)"),
    ],
)
def test_a_key_under_a_name_that_is_not_read_is_told_with_the_right_one(name: str, right: str) -> None:
    [told] = near_keys({name: "made-up"}, CATALOG)
    assert told == f"{name} is set, but is not read: did you mean {right}?"


def test_keys_of_others_and_of_vendors_that_have_theirs_are_no_slips() -> None:
    others = [
        "AWS_SECRET_ACCESS_KEY",
        "EXA_API_KEY",
        "GITHUB_TOKEN",
        "HOLESHOT_KEY",
        "NPM_TOKEN",
        "STRIPE_API_KEY",
        "TAVILY_API_KEY",
    ]
    assert list(near_keys(dict.fromkeys(others, "made-up"), CATALOG)) == []
    assert list(near_keys({"OPENAI_API_KEY": "a", "OPENAI_KEY": "b"}, CATALOG)) == []
    assert list(near_keys({"GROQ_APIKEY": ""}, CATALOG)) == []


def test_a_reference_without_a_value_is_told_what_is_set_instead(tmp_path: Path) -> None:
    assert like("GROQ_API_KEY", {"GROQ_APIKEY": "a", "PATH": "b"}) == "GROQ_APIKEY"
    assert like("DATABASE_PASSWORD", {"DATABASE_PASSWORDS": "a"}) is None


@pytest.mark.parametrize(
    ("environ", "provider", "base_url"),
    [
        (
            {"AZURE_OPENAI_API_KEY": "k", "AZURE_OPENAI_ENDPOINT": "https://mine.openai.azure.com/"},
            "azure",
            "https://mine.openai.azure.com/",
        ),
        ({"AZURE_API_KEY": "k", "AZURE_RESOURCE_NAME": "mine"}, "azure", "https://mine.openai.azure.com"),
        (
            {"AWS_BEARER_TOKEN_BEDROCK": "k", "AWS_REGION": "eu-west-1"},
            "bedrock_converse",
            "https://bedrock-runtime.eu-west-1.amazonaws.com",
        ),
        (
            {"CLOUDFLARE_API_KEY": "k", "CLOUDFLARE_ACCOUNT_ID": "me"},
            "cloudflare",
            "https://api.cloudflare.com/client/v4/accounts/me/ai/v1",
        ),
    ],
)
def test_a_vendor_whose_address_is_in_the_environment_is_written_and_served(
    environ: dict[str, str], provider: str, base_url: str, tmp_path: Path
) -> None:
    found = list(found_vendors(environ, CATALOG))
    text = starter_text(found, environ)
    (tmp_path / "gateway.yaml").write_text(text, encoding="utf-8")
    for settings in (load(tmp_path / "gateway.yaml", environ), load(None, environ)):
        assert list(settings.providers) == [provider]
        assert settings.providers[provider].base_url == base_url
        assert settings.providers[provider].has_key
    assert f"ask for {provider}/MODEL" in text
    assert ": k" not in text
    assert list(without_address(environ, CATALOG)) == []


@pytest.mark.parametrize(
    ("key", "name", "needed"),
    [
        ("AZURE_API_KEY", "azure", "set AZURE_OPENAI_ENDPOINT or AZURE_API_BASE or AZURE_RESOURCE_NAME, or"),
        ("CLOUDFLARE_API_KEY", "cloudflare", "set CLOUDFLARE_ACCOUNT_ID, or"),
    ],
)
def test_a_key_without_an_address_is_told_what_to_set_or_to_write(key: str, name: str, needed: str) -> None:
    [(vendor, told)] = without_address({key: "made-up"}, CATALOG)
    assert vendor.name == name
    assert told.startswith(f"{key} is set, but not where your {vendor.title} is: {needed}")
    assert f' {name}: {{ base_url: "https://' in told
    assert told.endswith(f'api_key: "${{{key}}}" }}')
