"""What the wheel holds beside the code."""

import subprocess
import sys
import zipfile
from pathlib import Path

from gateway.settings.example import example

ROOT = Path(__file__).parents[2]


def test_the_example_lies_where_the_code_looks_for_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")

    code = "from gateway.settings.example import example, example_path; print(example_path()); print(example(), end='')"
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path / "site", check=True, capture_output=True)
    path, _, text = ran.stdout.decode().partition("\n")
    assert Path(path).is_relative_to(tmp_path)
    assert text == example()
