"""Which offers of several providers are one model, and what is proposed of them."""

from gateway.settings import SameModel, proposed_market, same_models
from providers import ListedModel


def models(**lists: list[str | ListedModel]) -> list[SameModel]:
    read = {
        provider: [each if isinstance(each, ListedModel) else ListedModel(id=each) for each in each_list]
        for provider, each_list in lists.items()
    }
    return same_models(read, frozenset({"groq"}))


def deployments(same: SameModel) -> list[str]:
    return [offer.deployment for offer in same.offers]


def test_offers_of_one_model_come_together_and_the_most_offered_comes_first() -> None:
    first, second = models(
        groq=["openai/gpt-oss-20b"],
        together=["meta-llama/Llama-3.3-70B-Instruct-Turbo", "openai/gpt-oss-20b"],
        fireworks=["accounts/fireworks/models/gpt-oss-20b"],
    )
    assert deployments(first) == [
        "groq/openai/gpt-oss-20b", "together/openai/gpt-oss-20b", "fireworks/accounts/fireworks/models/gpt-oss-20b",
    ]  # fmt: skip
    assert (first.is_shared, second.is_shared) == (True, False)


def test_of_models_as_often_offered_the_newest_comes_first() -> None:
    old, new = ListedModel(id="qwen3-8b", created_s=1), ListedModel(id="qwen3-14b", created_s=2)
    assert [same.model for same in models(a=[old, new], b=[old, new])] == ["qwen-3-14b", "qwen-3-8b"]


def test_a_provider_s_plain_offer_comes_before_its_other_ways_to_serve_it() -> None:
    (same,) = models(deepinfra=["openai/gpt-oss-120b-Turbo", "openai/gpt-oss-120b"], groq=["openai/gpt-oss-120b"])
    assert deployments(same) == [
        "deepinfra/openai/gpt-oss-120b", "deepinfra/openai/gpt-oss-120b-Turbo", "groq/openai/gpt-oss-120b",
    ]  # fmt: skip
    assert same.providers == ("deepinfra", "groq")


def test_a_vendor_that_sells_no_base_models_means_the_trained_one() -> None:
    assert len(models(groq=["llama-3.1-8b"], together=["meta-llama/Llama-3.1-8B-Instruct"])) == 1
    assert len(models(other=["llama-3.1-8b"], together=["meta-llama/Llama-3.1-8B-Instruct"])) == 2


def test_a_name_whose_meaning_changes_stands_alone_even_beside_its_like() -> None:
    assert len(models(a=["auto", "mistral-latest"], b=["auto", "mistral-latest"])) == 4


def test_identical_names_that_say_too_little_come_together_with_a_note() -> None:
    for name, other in (("demo-chat", "Demo-Chat"), ("llama-3.1-8b", "llama-3.1-8b")):
        (same,) = models(a=[name], b=[other])
        assert deployments(same) == [f"a/{name}", f"b/{other}"]
        assert same.note == "the names are similar but not exact: make sure that it is the same model"
    assert len(models(a=["demo-chat"], b=["demo_chat"], c=["acme/demo-chat"])) == 3


def test_what_is_not_certainly_one_model_is_proposed_for_no_race() -> None:
    proposed = proposed_market(models(a=["demo-chat", "qwen3-8b"], b=["demo-chat", "qwen3-8b"]), 5, {}, {})
    assert [sold.name for sold in proposed.raced] == ["qwen-3-8b"]
    assert [sold.name for sold in proposed.others] == ["demo-chat"]


def test_an_adapter_is_nobody_else_s_model() -> None:
    adapter = ListedModel(id="Qwen/Qwen3-8B-ours", parent="Qwen/Qwen3-8B")
    assert len(models(a=[adapter], b=[adapter])) == 2


def test_one_name_that_two_lists_call_different_kinds_of_model_is_two() -> None:
    assert (
        len(models(a=[ListedModel(id="acme/x-1", kind="embedding")], b=[ListedModel(id="acme/x-1", kind="chat")])) == 2
    )


def test_different_quantization_is_pointed_out() -> None:
    (same,) = models(a=["Qwen/Qwen3-32B-FP8"], b=[ListedModel(id="qwen3-32b", quantization="bf16")])
    assert same.note == "different quantization: fp8, bf16"


def test_quantization_that_only_some_tell_is_pointed_out() -> None:
    (same,) = models(a=["Qwen/Qwen3-32B-FP8"], b=["qwen3-32b"])
    assert same.note == "quantization is fp8 where known; unknown for b"


def test_nothing_is_said_where_all_is_the_same() -> None:
    (same,) = models(a=["Qwen/Qwen3-32B"], b=["qwen3-32b"])
    assert same.note is None


def test_what_a_list_tells_of_quantization_is_stronger_than_the_name() -> None:
    (same,) = models(a=[ListedModel(id="Qwen/Qwen3-32B-FP8", quantization="fp4")])
    assert same.quantizations == ("fp4",)
