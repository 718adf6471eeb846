"""What scripts share that measure many things and write a page of them: outputs of commands that are kept, tables, charts.

The standard library alone, so that it runs on machines without our packages.
"""

from __future__ import annotations

import math
import os
import pathlib
import platform
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed

ROOT = pathlib.Path(__file__).resolve().parents[2]

# ---- measurements


def slug(recipe: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", recipe).strip("-")


class Kept:
    """Outputs of commands, each in a file of a folder; what is there is not measured again unless `redo`."""

    def __init__(self, folder: pathlib.Path, program: str, redo: bool = False):
        self.folder, self.program, self.redo = pathlib.Path(folder), program, redo
        self.folder.mkdir(parents=True, exist_ok=True)

    def get(self, name: str, command: list) -> str:
        path = self.folder / name
        if self.redo or not path.exists():
            print(f"{self.program}:", " ".join(str(part) for part in command), flush=True)
            done = subprocess.run([str(part) for part in command], capture_output=True, text=True, cwd=ROOT)
            if done.returncode != 0:
                raise SystemExit(f"{self.program}: {name}: {done.stderr.strip()}")
            # Whole or not at all, also where the machine goes away.
            part = path.with_name(f"{name}.{os.getpid()}.part")
            part.write_text(done.stdout)
            part.replace(path)
        return path.read_text()

    def get_all(self, jobs: list, n_jobs: int) -> None:
        """jobs: (name, command), begun in this order, n_jobs at once. What fails does not stop the others."""
        failures = []
        with ThreadPoolExecutor(n_jobs) as pool:
            for future in as_completed([pool.submit(self.get, name, command) for name, command in jobs]):
                try:
                    future.result()
                except SystemExit as failure:
                    failures.append(str(failure))
                    print(failure, file=sys.stderr, flush=True)
        if failures:
            raise SystemExit(f"{self.program}: {len(failures)} of {len(jobs)} measurements failed")


def cpu_name() -> str:
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def table(header: list, rows: list) -> str:
    lines = ["| " + " | ".join(header) + " |", "| " + " | ".join(["---"] + ["---:"] * (len(header) - 1)) + " |"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


# ---- charts


def ticks(low: float, high: float, log: bool) -> list:
    if log:
        return [m * 10.0**e for e in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
                for m in (1, 2, 5) if low <= m * 10.0**e <= high]
    step = 10.0**math.floor(math.log10((high - low) / 4))
    step *= next(m for m in (1, 2, 5, 10) if (high - low) / (step * m) <= 6)
    return [i * step for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


class Chart:
    """Two axes with their grid; what is drawn on them is added to `svg`."""

    WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 860, 520, 70, 46, 24, 52

    def __init__(self, title: str, x_name: str, y_name: str, x_range: tuple, y_range: tuple, log_x: bool = False,
                 log_y: bool = False, x_ticks: list | None = None):
        self.x_range, self.y_range, self.log_x, self.log_y = x_range, y_range, log_x, log_y
        width, height, left, top, right, bottom = self.WIDTH, self.HEIGHT, self.LEFT, self.TOP, self.RIGHT, self.BOTTOM
        self.svg = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
                    'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>',
                    f'<text x="{left}" y="26" font-size="16">{title}</text>']
        for x in x_ticks or ticks(*x_range, log_x):
            self.svg.append(f'<path d="M{self.x(x):.1f} {top}V{height - bottom}" stroke="#e5e5e5"/>'
                            f'<text x="{self.x(x):.1f}" y="{height - bottom + 18}" text-anchor="middle">{x:g}</text>')
        for y in ticks(*y_range, log_y):
            self.svg.append(f'<path d="M{left} {self.y(y):.1f}H{width - right}" stroke="#e5e5e5"/>'
                            f'<text x="{left - 8}" y="{self.y(y) + 4:.1f}" text-anchor="end">{y:g}</text>')
        self.svg.append(f'<text x="{(left + width - right) / 2}" y="{height - 12}" text-anchor="middle">{x_name}</text>'
                        f'<text x="16" y="{(top + height - bottom) / 2}" text-anchor="middle" '
                        f'transform="rotate(-90 16 {(top + height - bottom) / 2})">{y_name}</text>')

    @staticmethod
    def _share(value: float, low: float, high: float, log: bool) -> float:
        return math.log(value / low) / math.log(high / low) if log else (value - low) / (high - low)

    def x(self, value: float) -> float:
        return self.LEFT + self._share(value, *self.x_range, self.log_x) * (self.WIDTH - self.LEFT - self.RIGHT)

    def y(self, value: float) -> float:
        return self.HEIGHT - self.BOTTOM - self._share(value, *self.y_range, self.log_y) * (
            self.HEIGHT - self.TOP - self.BOTTOM)

    def write(self, path: pathlib.Path) -> None:
        path.write_text("\n".join(self.svg) + "\n</svg>\n")


def scatter(title: str, x_name: str, y_name: str, points: list, path: pathlib.Path, log_x: bool = False,
            ours: tuple = ()) -> None:
    """points: (name, x, y); y on a logarithmic axis. Names that begin with one of `ours` stand out."""
    points = [(name, x, max(y, 1e-4)) for name, x, y in points]
    xs, ys = [p[1] for p in points], [p[2] for p in points]
    chart = Chart(title, x_name, y_name, (min(xs) / 1.3, max(xs) * 1.6) if log_x else (0, max(xs) * 1.18),
                  (min(ys) / 1.5, max(ys) * 1.5), log_x, True)
    taken: list = []
    for name, x, y in sorted(points, key=lambda p: p[2]):
        px, py = chart.x(x), chart.y(y)
        colour = "#c0392b" if name.startswith(ours) else "#2c3e50"
        chart.svg.append(f'<circle cx="{px:.1f}" cy="{py:.1f}" r="4" fill="{colour}"/>')
        label = py + 4
        while any(abs(label - other) < 12 and abs(px - other_x) < 7 * max(len(name), n) for other_x, other, n in taken):
            label -= 4
        taken.append((px, label, len(name)))
        if py - label > 6:
            chart.svg.append(
                f'<path d="M{px:.1f} {py:.1f}L{px + 6:.1f} {label - 2:.1f}" stroke="{colour}" stroke-width="0.5"/>')
        chart.svg.append(f'<text x="{px + 7:.1f}" y="{label:.1f}" fill="{colour}">{name}</text>')
    chart.write(path)


COLOURS = ("#c0392b", "#2c3e50", "#2980b9", "#16a085", "#8e44ad", "#d68910", "#7f8c8d", "#27ae60")


def lines(title: str, x_name: str, y_name: str, series: dict, path: pathlib.Path, log_x: bool = False,
          log_y: bool = False) -> None:
    """series: name -> points (x, y), whose name stands at its last point; the first series stands out."""
    points = [point for some in series.values() for point in some]
    xs, ys = sorted({x for x, _ in points}), [y for _, y in points]
    margin = 1.15 if log_y else (max(ys) - min(ys)) * 0.06 or 0.05
    y_range = (min(ys) / margin, max(ys) * margin) if log_y else (min(ys) - margin, max(ys) + margin)
    x_range = (xs[0] / 1.1, xs[-1] * 1.9) if log_x else (xs[0], xs[-1] + (xs[-1] - xs[0]) * 0.22)
    chart = Chart(title, x_name, y_name, x_range, y_range, log_x, log_y, xs)
    label_below = math.inf
    for i, name in sorted(enumerate(series), key=lambda entry: series[entry[1]][-1][1]):
        colour, own = COLOURS[i % len(COLOURS)], series[name]
        path_data = "L".join(f"{chart.x(x):.1f} {chart.y(y):.1f}" for x, y in own)
        chart.svg.append(f'<path d="M{path_data}" fill="none" stroke="{colour}" stroke-width="{3 if i == 0 else 1.5}"/>')
        chart.svg += [f'<circle cx="{chart.x(x):.1f}" cy="{chart.y(y):.1f}" r="3" fill="{colour}"/>' for x, y in own]
        label_below = min(chart.y(own[-1][1]) + 4, label_below - 13)
        chart.svg.append(f'<text x="{chart.x(own[-1][0]) + 8:.1f}" y="{label_below:.1f}" fill="{colour}">{name}</text>')
    chart.write(path)
