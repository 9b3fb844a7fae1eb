"""Draw R(source) and the entropies that trainings have logged, several runs side by side.

python recipes/training/draw_training.py runs/base runs/mrt --output training.png
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from matplotlib.figure import Figure

QUANTITIES = {
    "source_total": "R(source)",
    "source_entropy": "entropy of source contributions",
    "target_entropy": "entropy of target contributions",
}
STYLES = {"reference": "-", "model": "--", "random": ":"}


def read_contributions(run: Path) -> list[dict[str, float]]:
    """What `ContributionCallback` wrote, a line for each look."""
    path = run / "contributions.jsonl"
    if not path.is_file():
        raise SystemExit(f"{run} has no {path.name}: train with a section `contributions` in the config.")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def draw(runs: list[Path]) -> Figure:
    """A panel for each quantity, a colour for each run, a line style for each prefix type."""
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    panels = figure.subplots(1, len(QUANTITIES))
    for number, run in enumerate(runs):
        lines = read_contributions(run)
        for panel, (name, title) in zip(panels, QUANTITIES.items(), strict=True):
            for prefix, style in STYLES.items():
                points = [(line["step"], line[f"{prefix}/{name}"]) for line in lines if f"{prefix}/{name}" in line]
                if points:
                    label = f"{run.name}, {prefix} prefixes"
                    panel.plot(*zip(*points, strict=True), style, color=f"C{number}", label=label)
            panel.set(title=title, xlabel="updates")
    panels[0].legend(fontsize="x-small")
    return figure


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="folder that train.py wrote")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="picture, for example training.png")
    options = parser.parse_args(arguments)
    draw(options.runs).savefig(options.output, dpi=150)
    print(f"wrote {options.output}")


if __name__ == "__main__":
    main()
