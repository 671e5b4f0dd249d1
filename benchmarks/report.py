"""Tables of the suite's results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from statistics import geometric_mean, median
from typing import Any

from patcomp.commands.tables import markdown_table

OURS, PEER = "patcomp", "coreai_torch"
Results = dict[str, Any]
Measurement = dict[str, Any]
Rows = list[list[str]]


def converting(measured: Measurement, which: str = "first") -> float:
    """Seconds of a conversion with staging."""
    return measured[which]["staging"] + measured[which]["to_coreai"]


def whole_way(measured: Measurement) -> float:
    """Seconds from module to asset."""
    return sum(measured["seconds"].values())


def middle(numbers: Iterable[float | None], digits: int = 3) -> str:
    """The median of what was measured, or `-`."""
    known = [number for number in numbers if number is not None]
    return f"{median(known):.{digits}f}" if known else "-"


def spread(numbers: list[float]) -> str:
    """Median and range: `0.45 (0.41-0.52)`, or `-`."""
    return f"{median(numbers):.2f} ({min(numbers):.2f}-{max(numbers):.2f})" if numbers else "-"


def programs_of(rounds: Iterable[Measurement]) -> dict[str, list[Measurement]]:
    """What was measured of each program, by its name: `patcomp`, or `patcomp cpu` for a target."""
    found: dict[str, list[Measurement]] = {}
    for program in (program for measured in rounds for program in measured["programs"]):
        name = f"{program['compiler']} {program['target']}".strip().replace("_", "-")
        found.setdefault(name, []).append(program)
    return found


@dataclass(frozen=True)
class Report:
    """The results of a run, to be shown."""

    results: Results

    @property
    def models(self) -> list[str]:
        """The names of what was measured, in order."""
        return list(dict.fromkeys(each["model"] for each in self.results["measurements"]))

    def of(self, model: str, task: str, compiler: str, form: str) -> list[Measurement]:
        """The measurements of one kind, of all rounds."""
        wanted = {"model": model, "task": task, "compiler": compiler, "form": form}
        return [each for each in self.results["measurements"] if wanted.items() <= each.items() and "error" not in each]

    def ratio(self, model: str, task: str, form: str, cost: Callable[[Measurement], float]) -> list[float]:
        """Our time by that of coreai-torch in the same round, of all rounds in which both succeeded."""
        theirs = {each["round"]: cost(each) for each in self.of(model, task, PEER, "decomposed")}
        ours = self.of(model, task, OURS, form)
        return [cost(each) / theirs[each["round"]] for each in ours if each["round"] in theirs]

    def ratios(self) -> dict[str, dict[str, list[float]]]:
        """By model, the ratios of each comparison."""
        found = {
            model: {
                "conversion": self.ratio(model, "convert", "decomposed", converting),
                "straight from export": self.ratio(model, "convert", "exported", converting),
                "module to asset": self.ratio(model, "whole", "exported", whole_way),
            }
            for model in self.models
        }
        return {model: compared for model, compared in found.items() if any(compared.values())}

    def comparison(self) -> Rows:
        """CPU seconds of both compilers and their ratio, for each model and over all models."""
        rows = []
        for model, compared in self.ratios().items():
            theirs = self.of(model, "convert", PEER, "decomposed")
            row = [model, middle((each["nodes"] for each in theirs), 0), middle(map(converting, theirs))]
            for form, name in (("decomposed", "conversion"), ("exported", "straight from export")):
                row += [middle(map(converting, self.of(model, "convert", OURS, form))), spread(compared[name])]
            for compiler, form in ((PEER, "decomposed"), (OURS, "exported")):
                row.append(middle(map(whole_way, self.of(model, "whole", compiler, form))))
            rows.append([*row, spread(compared["module to asset"])])
        columns = [
            [median(compared[name]) for compared in self.ratios().values() if compared[name]]
            for name in ("conversion", "straight from export", "module to asset")
        ]
        for name, mean in (("median", median), ("geometric mean", geometric_mean), ("largest", max)):
            first, second, third = (f"{mean(column):.2f}" if column else "-" for column in columns)
            rows += [[name, "", "", "", first, "", second, "", "", third]] if any(columns) else []
        headings = ["model", "nodes", "coreai-torch, s", "patcomp, s", "ratio", "straight from export, s", "ratio"]
        return [[*headings, "to asset: coreai-torch, s", "patcomp, s", "ratio"], *rows]

    def details(self) -> Rows:
        """What conversions cost, by stage, and what they make; also of those that nothing is compared with."""
        stages = list(dict.fromkeys(name for each in self.results["measurements"] for name in each.get("stages", ())))
        headings = [
            "model",
            "compiler",
            "form",
            "nodes",
            "first, s",
            "second, s",
            "us a node",
            "staging, s",
            "to_coreai, s",
        ]
        headings += [*stages, "text, s", "text, KB", "ops", "memory, MB", "weights, MB", "asset, s", "asset, MB"]
        rows = [headings]
        kinds = [(OURS, "decomposed"), (OURS, "exported"), (PEER, "decomposed")]
        for model, (compiler, form) in ((model, kind) for model in self.models for kind in kinds):
            found, ways = (self.of(model, task, compiler, form) for task in ("convert", "whole"))
            if not found:
                continue

            def sizes(key: str, unit: int, measured: list[Measurement] = found) -> str:
                return middle(
                    (each[key] / unit for each in measured if each.get(key) is not None), 1 if unit > 1 else 0
                )

            second = [converting(each, "second") for each in found]
            row = [model, compiler, form, sizes("nodes", 1), middle(map(converting, found)), middle(second)]
            row.append(middle((seconds / found[0]["nodes"] * 1e6 for seconds in second), 0))
            row += [middle(each["second"][part] for each in found) for part in ("staging", "to_coreai")]
            row += [middle(each["stages"].get(stage) for each in found) for stage in stages]
            row += [middle(each.get("text_seconds") for each in found), sizes("text_bytes", 2**10), sizes("ops", 1)]
            row += [sizes("peak_bytes", 2**20), sizes("weights_bytes", 2**20)]
            row += [middle(each["seconds"]["asset"] for each in ways), sizes("asset_bytes", 2**20, ways)]
            rows.append(row)
        return rows

    def running(self) -> Rows:
        """Ops, CPU milliseconds of a run and ratios to the first program, which is coreai-torch's if there is one."""
        measured = {model: programs_of(self.of(model, "run", OURS, "exported")) for model in self.models}
        names = list(dict.fromkeys(name for programs in measured.values() for name in programs))
        first, *others = names or [""]
        headings = ["model", *(f"{name}, ops" for name in names), f"{first}, ms"]
        for name in others:
            headings += [f"{name}, ms", "ratio"]
        rows, ratios = [], {name: [] for name in others}  # type: tuple[Rows, dict[str, list[float]]]
        for model, programs in measured.items():
            if not programs:
                continue
            row = [model, *(middle((each["ops"] for each in programs.get(name, ())), 0) for name in names)]
            for name in names:
                found = programs.get(name, [])
                row.append(middle((each["milliseconds"] for each in found), 2))
                if name != first:
                    row.append(spread([each["ratio"] for each in found]))
                    ratios[name] += [median(each["ratio"] for each in found)] if found else []
            rows.append([*row, f"{max(each['deviation'] for found in programs.values() for each in found):.0e}"])
        for title, mean in (("median", median), ("largest", max)) if rows and any(ratios.values()) else ():
            summary = [title, *([""] * len(names)), ""]
            for name in others:
                summary += ["", f"{mean(ratios[name]):.2f}" if ratios[name] else "-"]
            rows.append([*summary, ""])
        return [[*headings, "largest deviation"], *rows]

    def failures(self) -> Rows:
        """The measurements that failed."""
        headings = ["model", "task", "compiler", "form", "error"]
        failed = [each for each in self.results["measurements"] if "error" in each]
        return [headings, *([each[heading] for heading in headings] for each in failed)]

    def tables(self) -> Iterator[tuple[str, list[str], Rows]]:
        """The title, headings and rows of each table that has rows."""
        tables = {
            "First conversion in a process, and the way from module to asset": self.comparison(),
            "The second conversion by stage, and what it makes": self.details(),
            "Programs: ops, and steady runs on the runtime": self.running(),
            "Failures": self.failures(),
        }
        yield from ((title, headings, rows) for title, (headings, *rows) in tables.items() if rows)

    def conditions(self) -> str:
        """Where and when the numbers were measured."""
        machine, measured = self.results["machine"], self.results["measurements"]
        loads = [each["load"] for each in measured]
        versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
        return (
            f"Measured on {machine['date']}: {machine['cpu']}, {machine['cores']} cores; {versions}. The load average "
            f"was {machine['load']:.1f} before the run, and {min(loads):.1f} to {max(loads):.1f} during it. Times are "
            f"CPU seconds with one PyTorch thread, medians (ranges) of {1 + max(each['round'] for each in measured)} "
            "rounds."
        )

    def markdown(self) -> str:
        """The page with all tables."""
        parts = [self.conditions()]
        for title, headings, rows in self.tables():
            parts += [f"### {title}", "\n".join(markdown_table(headings, rows, headings[1:]))]
        return "\n\n".join(parts) + "\n"
