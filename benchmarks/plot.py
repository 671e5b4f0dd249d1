"""The plot of the suite's ratios as SVG, written without a plotting library."""

from __future__ import annotations

from html import escape
from statistics import median

COLORS = {"conversion": "#1f77b4", "straight from export": "#2ca02c", "module to asset": "#ff7f0e"}
LEFT, TOP, WIDTH, ROW = 130, 30, 560, 30


def plot(ratios: dict[str, dict[str, list[float]]]) -> str:
    """A row for each model; a dot for the median of each comparison, a line for its range."""
    numbers = [number for compared in ratios.values() for rounds in compared.values() for number in rounds]
    end, bottom = max([1.0, *numbers]), TOP + ROW * len(ratios)

    def x(ratio: float) -> str:
        return f"{LEFT + WIDTH * ratio / end:.1f}"

    def text(x: str | int, y: int, content: str, anchor: str = "start") -> str:
        return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{escape(content)}</text>'

    def dot(x: str | int, y: int, color: str) -> str:
        return f'<circle cx="{x}" cy="{y}" r="4" fill="{color}"/>'

    size = f'width="{LEFT + WIDTH + 30}" height="{bottom + 50}"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">']
    parts.append('<rect width="100%" height="100%" fill="white"/>')
    for tick in (number / 5 for number in range(int(end * 5) + 1)):
        parts.append(f'<path d="M{x(tick)} {TOP}V{bottom}" stroke="{"#888" if tick == 1 else "#ddd"}"/>')
        parts.append(text(x(tick), bottom + 16, f"{tick:.1f}", "middle"))
    for place, (name, color) in enumerate(COLORS.items()):
        parts += [dot(LEFT + 170 * place, 16, color), text(LEFT + 170 * place + 10, 20, name)]
    for row, (model, compared) in enumerate(ratios.items()):
        middle = TOP + ROW * row + ROW // 2
        parts.append(text(LEFT - 10, middle + 4, model, "end"))
        for y, (name, color) in zip((middle - 7, middle, middle + 7), COLORS.items(), strict=True):
            if rounds := compared[name]:
                parts.append(f'<path d="M{x(min(rounds))} {y}H{x(max(rounds))}" stroke="{color}" stroke-width="2"/>')
                parts.append(dot(x(median(rounds)), y, color))
    parts.append(text(LEFT, bottom + 38, "CPU time of patcomp by that of coreai-torch: median and range"))
    return "\n".join([*parts, "</svg>"]) + "\n"
