"""How packages that only some need are installed, where the gateway runs."""

import tomllib
from pathlib import Path

import pytest

from providers import how_to_install
from providers.upstreams.extras import EXTRAS, Installation, installation

ROOT = Path(__file__).parents[5]
PLAIN = Installation(python="python", lock_installer=None, locks=frozenset(), has_pip=True, is_image=False)
CHECKOUT = Installation(
    python=".venv/bin/python",
    lock_installer="tools/requirements/install.py",
    locks=frozenset({"bench", "litellm", "runtime"}),
    has_pip=True,
    is_image=False,
)


def test_packages_of_an_extra_are_those_of_the_project() -> None:
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    adapters = [path.stem.replace("_", "-") for path in (ROOT / "holeshot").glob("[a-z]*.py") if path.stem != "clients"]
    assert {name: list(packages) for name, packages in EXTRAS.items()}.items() <= stated.items()
    assert sorted(stated.keys() - EXTRAS.keys()) == sorted(adapters)  # what a program needs, and no configuration


@pytest.mark.parametrize("extra", EXTRAS)
@pytest.mark.parametrize("has_pip", [True, False])
@pytest.mark.parametrize("is_image", [True, False])
@pytest.mark.parametrize("here", [PLAIN, CHECKOUT])
def test_nobody_is_told_to_take_holeshot_from_an_index(
    here: Installation, extra: str, has_pip: bool, is_image: bool
) -> None:
    where = Installation(here.python, here.lock_installer, here.locks, has_pip=has_pip, is_image=is_image)
    assert "holeshot" not in how_to_install(extra, where)


def test_a_checkout_installs_its_lock() -> None:
    assert how_to_install("bench", CHECKOUT) == "run .venv/bin/python tools/requirements/install.py bench"


def test_packages_that_no_lock_is_for_are_named_for_the_python_that_runs() -> None:
    assert how_to_install("vertex", CHECKOUT) == "run .venv/bin/python -m pip install 'google-auth>=2.40'"
    assert how_to_install("bench", PLAIN) == "run python -m pip install 'scipy>=1.16'"


def test_without_pip_it_is_uv_s_python() -> None:
    here = Installation("/opt/x/bin/python", None, frozenset(), has_pip=False, is_image=False)
    assert how_to_install("bench", here) == "run uv pip install --python /opt/x/bin/python 'scipy>=1.16'"


def test_an_image_gets_them_in_an_image_of_one_s_own() -> None:
    here = Installation("python", None, frozenset(), has_pip=False, is_image=True)
    assert how_to_install("bench", here) == (
        "build an image from this one, with the lines USER root,"
        " RUN python -m ensurepip && python -m pip install 'scipy>=1.16', USER 10001:10001"
    )


def test_this_checkout_is_recognised() -> None:
    here = installation()
    assert not here.is_image
    assert here.lock_installer is not None
    assert (Path.cwd() / here.lock_installer).samefile(ROOT / "tools" / "requirements" / "install.py")
    assert {"bench", "litellm"} < here.locks


def test_a_wheel_in_an_image_is_recognised(tmp_path: Path) -> None:
    (tmp_path / "container").mkdir()
    (tmp_path / "container" / "health.py").touch()
    here = installation(tmp_path / "lib" / "holeshot" / "_lib", prefix=tmp_path)
    assert here.is_image
    assert here.lock_installer is None
