"""A deployment that names a provider alone is what its vendor calls the public model."""

import re
from pathlib import Path

import pytest

from gateway.settings import ConfigurationError, Datasheets, Settings, apis_at, kind_of, load, vendor_of
from providers import DatasheetTable, load_catalog

KEYS = {"ANTHROPIC_API_KEY": "k"}
VERTEX = "https://us-east5-aiplatform.googleapis.com/v1/projects/p/locations/us-east5"
PROVIDERS = """
providers:
  anthropic:
  foundry: { base_url: "https://r.services.ai.azure.com/anthropic/v1", api_key: k }
  vertex: { base_url: "VERTEX", api_key: k }
  mantle: { preset: bedrock_mantle, base_url: "https://bedrock-mantle.us-east-1.api.aws/anthropic/v1", api_key: k }
  frankfurt: { preset: bedrock_invoke, base_url: "https://bedrock-runtime.eu-central-1.amazonaws.com", api_key: k }
  oregon: { preset: bedrock_converse, base_url: "https://bedrock-runtime.us-west-2.amazonaws.com", api_key: k }
  sao_paulo: { preset: bedrock_invoke, base_url: "https://bedrock-runtime.sa-east-1.amazonaws.com", api_key: k }
  claude_aws: { base_url: "https://aws-external-anthropic.us-west-2.api.aws/v1", api_key: k }
  databricks: { base_url: "https://w.cloud.databricks.com/serving-endpoints", api_key: k }
  hopper: { api_key: k }
  groq: { api_key: k }
""".replace("VERTEX", VERTEX)


def read(text: str, folder: Path) -> Settings:
    (folder / "gateway.yaml").write_text(PROVIDERS + text, encoding="utf-8")
    return load(folder / "gateway.yaml", KEYS)


DOORS = "[anthropic, foundry, vertex, mantle, frankfurt, oregon, sao_paulo, claude_aws, databricks]"


@pytest.mark.parametrize(
    ("model", "names"),
    [
        (
            "claude-sonnet-5-5",
            [
                "anthropic/claude-sonnet-5-5",
                "foundry/claude-sonnet-5-5",
                "vertex/claude-sonnet-5-5",
                "mantle/anthropic.claude-sonnet-5-5",
                "frankfurt/eu.anthropic.claude-sonnet-5-5",
                "oregon/us.anthropic.claude-sonnet-5-5",
                "sao_paulo/global.anthropic.claude-sonnet-5-5",
                "claude_aws/claude-sonnet-5-5",
                "databricks/databricks-claude-sonnet-5-5",
            ],
        ),
        (
            "claude-haiku-4-5",
            [
                "anthropic/claude-haiku-4-5",
                "foundry/claude-haiku-4-5",
                "vertex/claude-haiku-4-5",
                "mantle/anthropic.claude-haiku-4-5",
                "frankfurt/eu.anthropic.claude-haiku-4-5-20251001-v1:0",
                "oregon/us.anthropic.claude-haiku-4-5-20251001-v1:0",
                "sao_paulo/global.anthropic.claude-haiku-4-5-20251001-v1:0",
                "claude_aws/claude-haiku-4-5",
                "databricks/databricks-claude-haiku-4-5",
            ],
        ),
    ],
)
def test_each_door_has_its_own_name_for_a_model(model: str, names: list[str], tmp_path: Path) -> None:
    settings = read(f"models:\n  {model}: {{ deployments: {DOORS} }}\n", tmp_path)
    assert [each.deployment for each in settings.models[model].deployments] == names


def test_what_a_door_does_not_have_is_told_with_what_it_has(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read("models:\n  claude-sonnet-9: { deployments: [foundry, hopper, nobody] }\n", tmp_path)
    found = [str(problem) for problem in caught.value.problems]
    assert len(found) == 3
    assert "'foundry' names no model, and what 'claude-sonnet-9' is called there is not known: it has" in found[0]
    assert "foundry/claude-sonnet-" in found[0]
    assert found[1].endswith("is called there is not known; write hopper/MODEL")
    assert "'nobody' is not a deployment; write provider/model" in found[2]


def test_what_a_door_has_is_told_as_it_can_be_asked_for_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(
            "models:\n  claude-sonnet-9: { deployments: [frankfurt] }\n  claude-*: { deployments: [foundry] }\n",
            tmp_path,
        )
    ours, star = (str(problem) for problem in caught.value.problems)
    assert re.search(r"it has frankfurt/eu\.anthropic\.claude-sonnet-", ours) is not None  # a profile's name
    assert star.endswith("for all that 'claude-*' stands for write foundry/claude-*")


def test_other_models_have_names_at_their_sellers_too(tmp_path: Path) -> None:
    settings = read("models:\n  gpt-oss-120b: { deployments: [groq] }\n", tmp_path)
    assert settings.models["gpt-oss-120b"].deployments[0].deployment == "groq/openai/gpt-oss-120b"


@pytest.mark.parametrize(
    ("name", "provider", "kind"),
    [
        ("foundry", 'base_url: "https://r.services.ai.azure.com/openai/v1"', "openai_compatible"),
        ("foundry", 'base_url: "https://r.services.ai.azure.com/models"', "openai_compatible"),
        ("foundry", 'base_url: "https://g.example.com/v1", kind: openai_compatible', "openai_compatible"),
        ("foundry", 'base_url: "https://r.services.ai.azure.com/anthropic/v1"', None),
        ("foundry", 'base_url: "https://g.example.com/v1", kind: anthropic', None),
        ("vertex", f'base_url: "{VERTEX}/endpoints/openapi"', "openai_compatible"),
        ("vertex", f'base_url: "{VERTEX}/publishers/google", kind: gemini', "gemini"),
        ("ours", 'base_url: "https://g.example.com/v1", kind: anthropic', "anthropic"),
        ("vertex", f'base_url: "{VERTEX}"', None),
        ("vertex", f'base_url: "{VERTEX}/endpoints/openapi", preset: vertex_openai', None),
    ],
)
def test_a_server_of_another_api_is_no_door_by_its_name_alone(
    name: str, provider: str, kind: str | None, tmp_path: Path
) -> None:
    """Such files are older than the doors. ``kind``: of a provider whose vendor is not known; None: it has a row."""
    path, catalog = tmp_path / "gateway.yaml", load_catalog()
    path.write_text(f"providers: {{ {name}: {{ {provider}, api_key: k }} }}\n", encoding="utf-8")
    own = load(path, {}).providers[name]
    row = vendor_of(name, own, catalog)
    assert (row is None) == (kind is not None)
    assert kind_of(name, own, catalog) == (kind or catalog[own.preset or name].kind)


@pytest.mark.parametrize(
    ("kind", "row"), [("vertex", "vertex"), ("invoke", "bedrock_invoke"), ("bedrock", "bedrock_converse")]
)
def test_a_kind_that_one_cloud_alone_has_says_which_cloud_it_is(tmp_path: Path, kind: str, row: str) -> None:
    path, catalog = tmp_path / "gateway.yaml", load_catalog()
    path.write_text(
        f'providers: {{ ours: {{ kind: {kind}, base_url: "{VERTEX}" }} }}\n'
        "models: { claude-sonnet-5-5: { deployments: [ours] } }\n",
        encoding="utf-8",
    )
    settings = load(path, {"AWS_BEARER_TOKEN_BEDROCK": "k"})
    assert vendor_of("ours", settings.providers["ours"], catalog) is catalog[row]
    assert settings.providers["ours"].keys == ()  # its host may be anybody's
    [item] = settings.models["claude-sonnet-5-5"].deployments
    assert item.deployment.endswith("claude-sonnet-5-5")
    table = Datasheets(settings, catalog, DatasheetTable.shipped())
    price = table.of(catalog[row], item).price
    assert price is not None
    assert price.output_usd > 0


@pytest.mark.parametrize(
    ("provider", "deployment", "has"),
    [
        ("databricks", "databricks/databricks-claude-sonnet-5-5", True),
        ("databricks", "databricks/databricks-gpt-oss-120b", False),
        ("databricks", "{ deployment: databricks/my-endpoint, same_as: claude-sonnet-5-5 }", True),
        ("claude_here", "claude_here/databricks-gpt-oss-120b", False),  # what a provider is called says nothing
        ("vertex", "vertex/claude-sonnet-5-5", True),
        ("vertex", "vertex/gemini-3.5-pro", False),
        ("vertex", "vertex/ours", True),  # which says no maker
        ("gcp", "gcp/claude-sonnet-5-5", True),
        ("gcp", "gcp/gemini-3.5-pro", False),
        ("gcp", "{ deployment: gcp/ours, same_as: gemini-3.5-pro }", False),
    ],
)
def test_an_api_that_a_vendor_has_for_claudes_alone_is_told_by_the_model(
    tmp_path: Path, provider: str, deployment: str, *, has: bool
) -> None:
    row = '  claude_here: { base_url: "https://w.cloud.databricks.com/serving-endpoints", api_key: k }\n'
    row += f'  gcp: {{ kind: vertex, base_url: "{VERTEX}", api_key: k }}\n'
    settings = read(f"{row}models: {{ m: {{ deployments: [{deployment}] }} }}\n", tmp_path)
    [item], provided = settings.models["m"].deployments, settings.providers[provider]
    assert ("messages" in apis_at(item, provided, vendor_of(provider, provided, load_catalog()))) is has


@pytest.mark.parametrize(
    ("provider", "is_sent"),
    [
        ('base_url: "http://vllm.internal:8000/v1"', True),
        ('base_url: "http://vllm.internal:8000/v1", preset: openai', False),  # a proxy of OpenAI, as its file says
        ('base_url: "https://api.openai.com/v1"', False),
        ("", False),
    ],
)
def test_a_server_at_its_own_host_that_is_called_openai_is_sent_what_openai_refuses(
    tmp_path: Path, provider: str, *, is_sent: bool
) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text(f"providers: {{ openai: {{ {provider or 'api_key: k'} }} }}\n", encoding="utf-8")
    row = vendor_of("openai", load(path, {}).providers["openai"], load_catalog())
    assert row is not None
    assert row.quirks.drop.isdisjoint({"top_k", "chat_template_kwargs"}) is is_sent
    assert (not row.quirks.refused_members) is is_sent


@pytest.mark.parametrize(
    ("provider", "lacks"),
    [
        ('base_url: "http://vllm.internal:8000/v1"', False),
        ('base_url: "http://proxy.internal/v1", preset: deepseek', True),
        ("api_key: k", True),
    ],
)
def test_a_server_at_its_own_host_that_is_called_deepseek_may_take_schemas(
    tmp_path: Path, provider: str, *, lacks: bool
) -> None:
    provided = read(f"  deepseek: {{ {provider} }}\n", tmp_path).providers["deepseek"]
    row = vendor_of("deepseek", provided, load_catalog())
    assert row is not None
    assert row.quirks.lacks_schemas is lacks
