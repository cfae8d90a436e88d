"""Join frames to an animated WebP. Runs in an environment of its own with Pillow, which the project does not need."""

import json
import sys
from itertools import pairwise
from pathlib import Path

from PIL import Image  # type: ignore[import-not-found]  # it is in the other environment

STEP_S = 0.1  # ten pictures a second look smooth enough, and are a sixth of the bytes
WIDTH = 1200
QUALITY = 60


def main() -> None:
    """Read the job from standard input."""
    job = json.load(sys.stdin)
    x, y, width, height = (job["stage"][name] for name in ("x", "y", "width", "height"))
    chosen: list[tuple[float, Path]] = []
    for number, at_s in enumerate(job["at_s"]):
        if not chosen or at_s - chosen[-1][0] >= STEP_S:
            chosen.append((at_s, Path(job["folder"]) / f"{number:04}.png"))
    pictures = []
    for _, path in chosen:
        with Image.open(path) as whole:
            scale = whole.width / job["window_px"]
            part = whole.convert("RGB").crop(tuple(round(each * scale) for each in (x, y, x + width, y + height)))
            pictures.append(part.resize((WIDTH, round(height * WIDTH / width)), Image.Resampling.LANCZOS))
    times = [at_s for at_s, _ in chosen]
    lasts_ms = [round((later - earlier) * 1000) for earlier, later in pairwise(times)] + [100]
    pictures[0].save(
        job["path"], save_all=True, append_images=pictures[1:], duration=lasts_ms, loop=0, quality=QUALITY, method=4
    )
    sys.stderr.write(f"{len(job['at_s'])} frames painted, {len(pictures)} kept\n")


if __name__ == "__main__":
    main()
