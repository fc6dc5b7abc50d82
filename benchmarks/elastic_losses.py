"""The loss curves of a job that goes from 4 workers to 2 to 3, over those of one process.

`python -m benchmarks.elastic_losses` writes a picture and, beside it, the values as JSON; with `--redraw`, the picture
anew from such values. Needs matplotlib.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tfdist.testing import LocalCluster

_SCRIPT = Path(__file__).with_name("elastic_losses_training.py")
_LIMIT_S = 300.0
#: After how many steps workers 1 and 3 end.
_KILL_AT = 30


def _read_losses(file: Path) -> list[dict[str, float]]:
    """A line each step, in the order of the steps."""
    return [json.loads(line) for line in file.read_text().splitlines()]


def _train_constant(directory: Path) -> list[dict[str, float]]:
    command = [sys.executable, str(_SCRIPT), str(directory), "0"]
    subprocess.run(command, check=True, timeout=_LIMIT_S, env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"})
    return _read_losses(directory / "losses alone")


def _train_elastic(directory: Path) -> list[dict[str, float]]:
    with LocalCluster(
        workers=4,
        fewest_workers=2,
        script=_SCRIPT,
        args=[str(directory), str(_KILL_AT)],
        env={"TF_CPP_MIN_LOG_LEVEL": "2"},
        time_limit_s=_LIMIT_S,
    ) as cluster:
        for victim in ("worker 1", "worker 3"):
            cluster.wait_for(lambda victim=victim: cluster.returncode(victim) is not None, f"the end of {victim}")
        cluster.restart("worker 1")
        cluster.join("worker 0", "worker 1", "worker 2")
    return _read_losses(directory / "losses worker 0")


def _draw(constant: list[dict[str, float]], elastic: list[dict[str, float]], file: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "benchmarks"})
    from matplotlib import pyplot

    figure, (losses, members) = pyplot.subplots(2, 1, figsize=(7, 4.6), sharex=True, height_ratios=(4, 1))
    losses.plot(*_series(constant, "loss"), "-", color="C0", linewidth=3.5, alpha=0.4, label="one process")
    losses.plot(*_series(elastic, "loss"), "-", color="C3", linewidth=1.0, label="elastic, 4 to 2 to 3 workers")
    losses.set_ylabel("loss of the step's global batch")
    losses.set_yscale("log")
    losses.legend()
    members.step(*_series(elastic, "members"), where="mid", color="C3")
    members.set_ylim(0, 4.5)
    members.set_yticks(range(5))
    members.set_ylabel("workers")
    members.set_xlabel("step")
    _mark_changes(elastic, losses)
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None})


def _mark_changes(elastic: list[dict[str, float]], axis: Any) -> None:
    """A line where workers are lost or come, and what happened beside it."""
    for before, after in itertools.pairwise(elastic):
        change = int(after["members"] - before["members"])
        if change:
            what = f"{-change} workers\nkilled" if change < 0 else f"{change} worker\ncomes back"
            axis.axvline(after["step"], color="black", linestyle=":", linewidth=1.0)
            axis.text(after["step"] + 1, 0.06, what, transform=axis.get_xaxis_transform(), fontsize=9)


def _series(steps: list[dict[str, float]], name: str) -> tuple[list[float], list[float]]:
    return [each["step"] for each in steps], [each[name] for each in steps]


def main(arguments: list[str] | None = None) -> None:
    """Trains both, and writes `OUT` and `OUT` with the ending .json."""
    parser = argparse.ArgumentParser("python -m benchmarks.elastic_losses", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/benchmarks/elastic_losses.svg"), help="the picture")
    parser.add_argument("--redraw", action="store_true", help="train nothing: draw the values beside OUT")
    options = parser.parse_args(arguments)
    out: Path = options.out
    if options.redraw:
        known = json.loads(out.with_suffix(".json").read_text())
        _draw(known["constant"], known["elastic"], out)
        return
    with tempfile.TemporaryDirectory() as scratch:
        directories = [Path(scratch, name) for name in ("constant", "elastic")]
        for directory in directories:
            directory.mkdir()
        constant, elastic = _train_constant(directories[0]), _train_elastic(directories[1])
    assert [each["step"] for each in elastic] == [each["step"] for each in constant], "steps are missing or repeated"
    sizes = [int(each["members"]) for each in elastic]
    changes = [size for k, size in enumerate(sizes) if k == 0 or size != sizes[k - 1]]
    furthest = max(abs(e["loss"] - c["loss"]) / c["loss"] for e, c in zip(elastic, constant, strict=True))
    out.parent.mkdir(parents=True, exist_ok=True)
    values: dict[str, Any] = {"sizes": changes, "furthest_relative": furthest, "constant": constant, "elastic": elastic}
    out.with_suffix(".json").write_text(json.dumps(values))
    _draw(constant, elastic, out)
    print(f"{len(constant)} steps, workers {changes}; the losses differ by {furthest:.1e} of their value at most")


if __name__ == "__main__":
    main()
