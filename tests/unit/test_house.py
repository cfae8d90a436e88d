import pytest

from benchmarks.house import AT_LEAST, LIMITS, House, measure


@pytest.fixture(scope="module")
def figures() -> dict[str, float]:
    return measure().figures()


@pytest.mark.parametrize("name", LIMITS)
def test_the_house_keeps_within_its_limits(name: str, figures: dict[str, float]) -> None:
    assert figures[name] <= LIMITS[name]


@pytest.mark.parametrize("name", AT_LEAST)
def test_a_file_is_a_subject(name: str, figures: dict[str, float]) -> None:
    assert figures[name] >= AT_LEAST[name]


def test_modules_that_import_each_other_are_a_circle_and_one_importer_is_counted() -> None:
    house = House({"a": 1, "b": 1, "c": 1}, {"a": frozenset({"b"}), "b": frozenset({"a", "c"}), "c": frozenset()})

    assert house.circles == [["a", "b"]]
    assert house.one_importer == ["a", "b", "c"]
