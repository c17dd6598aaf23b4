"""Draw what `bench/ops.py --json` measured as an SVG: `python bench/plot.py ops.json docs/images/ops.svg`.

A bar for each op, on a logarithmic scale, from eager's time at 1 to the left (faster) or to the right (slower); what
misses its bar is drawn in another colour.
"""

from __future__ import annotations

import argparse
import json
import math
from html import escape
from pathlib import Path
from typing import Any

from op_cases import CASES

ROW, LABEL, WIDTH, TOP = 13, 230, 720, 34
"""Pixels: the height of a row, the room for names, the width of all, the room for the scale."""
TICKS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
FASTER, SLOWER, MISSED = "#2a7f62", "#c9a227", "#c0392b"


def position(ratio: float) -> float:
    """Where a ratio is on the scale, which begins and ends with its ticks."""
    low, high = math.log(TICKS[0]), math.log(TICKS[-1])
    return LABEL + (WIDTH - LABEL - 50) * (min(max(math.log(ratio), low), high) - low) / (high - low)


def svg(ratios: dict[str, float]) -> str:
    """Draw the picture, the fastest op first."""
    height = TOP + ROW * len(ratios) + 8
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"',
        ' font-family="sans-serif" font-size="10">',
        "<title>Time over eager PyTorch, by op</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{LABEL - 24}" y="14" text-anchor="end">time over eager</text>',
    ]
    for tick in TICKS:
        x = position(tick)
        colour = "#444" if tick == 1 else "#ddd"
        lines.append(f'<line x1="{x:.1f}" y1="{TOP - 12}" x2="{x:.1f}" y2="{height - 6}" stroke="{colour}"/>')
        lines.append(f'<text x="{x:.1f}" y="14" text-anchor="middle">{tick:g}</text>')
    for i, (name, ratio) in enumerate(sorted(ratios.items(), key=lambda item: item[1])):
        y, x, one = TOP + ROW * i, position(ratio), position(1)
        colour = MISSED if ratio > CASES[name].limit else SLOWER if ratio > 1 else FASTER
        left, width = min(x, one), max(abs(x - one), 1)
        lines.append(f'<text x="{LABEL - 6}" y="{y + 9}" text-anchor="end">{escape(name)}</text>')
        lines.append(f'<rect x="{left:.1f}" y="{y + 1}" width="{width:.1f}" height="{ROW - 3}" fill="{colour}"/>')
        lines.append(f'<text x="{max(x, one) + 4:.1f}" y="{y + 9}" fill="#666">{ratio:.2f}</text>')
    return "\n".join([*lines, "</svg>", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("picture", type=Path)
    arguments = parser.parse_args()
    results: dict[str, dict[str, Any]] = json.loads(arguments.results.read_text())
    ratios = {name: r["ours"] / r["eager"] for name, r in results.items() if "error" not in r}
    arguments.picture.parent.mkdir(parents=True, exist_ok=True)
    arguments.picture.write_text(svg(ratios))


if __name__ == "__main__":
    main()
