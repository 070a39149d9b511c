"""Draws the losses of a log as SVG: `paddlectl logs --raw JOB | python examples/plot.py > loss.svg`.

A line of the log counts if it reads `pass N batch M loss X`. Several trainers are drawn together.
"""

import math
import re
import sys

WIDTH, HEIGHT, MARGIN = 480, 240, 40
LINE = re.compile(r"pass\s+(\d+)\s+batch\s+(\d+)\s+loss\s+([0-9.e+-]+)")


def points(lines):
    """(pass, batch) in order, with the mean loss of all trainers there."""
    found = {}
    for line in lines:
        match = LINE.search(line)
        if match:
            found.setdefault((int(match[1]), int(match[2])), []).append(float(match[3]))
    return [sum(losses) / len(losses) for _, losses in sorted(found.items())]


def svg(losses):
    logs = [math.log10(max(loss, 1e-12)) for loss in losses]
    low, high = min(logs), max(logs)
    span = (high - low) or 1.0
    across = (WIDTH - 2 * MARGIN) / max(len(logs) - 1, 1)
    places = [
        (MARGIN + at * across, MARGIN + (high - value) / span * (HEIGHT - 2 * MARGIN)) for at, value in enumerate(logs)
    ]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    axis = f'M{MARGIN} {MARGIN}V{HEIGHT - MARGIN}H{WIDTH - MARGIN}'
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<path d="{axis}" fill="none" stroke="gray"/>',
        f'<polyline points="{path}" fill="none" stroke="steelblue" stroke-width="2"/>',
        f'<text x="{MARGIN}" y="{MARGIN - 8}">loss {10**high:.4g} (logarithmic)</text>',
        f'<text x="{MARGIN}" y="{HEIGHT - MARGIN + 16}">{10**low:.4g} at best, over training</text>',
        "</svg>",
        "",
    ])


if __name__ == "__main__":
    found = points(sys.stdin)
    if not found:
        sys.exit("error: no line reads `pass N batch M loss X`")
    sys.stdout.write(svg(found))
