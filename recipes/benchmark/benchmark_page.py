"""Write the tables of docs/benchmark.md anew from the results that are kept of benchmark.py.

    python recipes/benchmark/benchmark_page.py [--results FILE ...] [--page FILE]

Tables stand between `<!-- table NAME -->` and `<!-- end -->`, NAME one of TABLES; the rest of the page stays as it is.
Results of several machines stand side by side, in the order given; by default those in `results/`, the newest
first. Times are medians; ratios are medians over rounds, with the lowest and the highest in brackets.
"""

from __future__ import annotations

import argparse
import math
import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmark_corpus import CANDIDATES, LIST, ONE_BY_ONE, SENTENCES, THREE_CALLS, TOGETHER
from benchmark_goals import GOALS, gains, section_of
from benchmark_sentences import BASELINE
from benchmark_times import medians, ratios

from hf_lrp.data.files import write_atomically
from hf_lrp.data.json_files import read_json

HERE = Path(__file__).parent
KEPT = HERE / "results"
PAGE = HERE.parents[1] / "docs" / "benchmark.md"
MIB = 2**20
_TABLE = re.compile(r"(<!-- table ([^>]+?) -->\n).*?(<!-- end -->)", re.DOTALL)
Cells = Iterable[str]


class Column(NamedTuple):
    """A model on a machine."""

    title: str
    model: str
    sections: dict[str, Any]

    def find(self, kind: str) -> Any:
        """What was measured, None if it was not."""
        found = self.sections.get(f"{kind}: {self.model}")
        return None if found is None else found["result"]


class Benchmark:
    """The results of one or several machines, as tables."""

    def __init__(self, results: Sequence[dict[str, Any]]) -> None:
        self._results = results
        self._names = [result["machine"]["name"] for result in results]
        self._columns = [
            Column(f"{name}: {model}" if len(results) > 1 else model, model, result["sections"])
            for name, result in zip(self._names, results, strict=True)
            for model in result["settings"]["models"]
        ]

    def fill(self, text: str) -> str:
        """A page with its tables written anew."""
        return _TABLE.sub(lambda match: f"{match[1]}\n{self.table(match[2])}\n{match[3]}", text)

    def table(self, name: str) -> str:
        """One of TABLES, in Markdown."""
        return TABLES[name](self)

    def machines(self) -> str:
        """What was measured on."""
        rows = {
            "processor": lambda r: f"{r['machine']['processor']}, {r['machine']['cores']} cores, {_gib(r)} GiB",
            "compiled part": lambda r: r["machine"]["versions"]["compiled part"],
            "caches": lambda r: _caches(r["machine"]["caches"]),
            "plain product of 2048² matrices, GF/s on one thread": lambda r: _rates(r, "one thread"),
            "the same, on all threads": lambda r: _rates(r, "all threads"),
            "threads": lambda r: str(r["settings"]["threads"]),
            "other processes, cores on average": lambda r: f"{_foreign(r):.2f}",
            "versions": lambda r: _versions(r["machine"]["versions"]),
            "commit": lambda r: f"`{r['commit']}`",
            "minutes": lambda r: f"{sum(section['minutes'] for section in r['sections'].values()):.0f}",
        }
        header = ("", *self._names)
        return _markdown(header, [(what, *map(tell, self._results)) for what, tell in rows.items()])

    def goals(self) -> str:
        """What is aimed at, and what was measured."""
        rows = [
            (goal.text, goal.wanted, *(goal.tell(self._of_machine(name)) for name in self._names)) for goal in GOALS
        ]
        return _markdown(("what", "aimed at", *self._names), rows)

    def _of_machine(self, name: str) -> dict[str, Any]:
        return self._results[self._names.index(name)]

    def sentence(self) -> str:
        """One sentence: against gradients."""
        tasks = {
            "forward": "one forward pass",
            "forward + T backward": "one forward and T backward passes (`backward()`)",
            BASELINE: "the same down to the embeddings only, without gradients of weights",
            "explain": "`explain`",
            "explain, R(source) alone": "`explain(..., source_tokens=False)`, R(source) alone",
            "explain without the compiled part": "`explain` without the compiled part",
            "inseq input_x_gradient": "inseq `input_x_gradient`",
        }

        def cell(column: Column, task: str) -> str:
            found = column.find("comparison")
            if found is None or task not in found["seconds"]:
                return ""
            return f"{medians(found)[task]:.3g} s, {_ratio(found, 'explain', task)}"

        return self._by_column("what: seconds, explain takes", tasks, cell)

    def growth(self) -> str:
        """Time against gradients, and memory, by length."""

        def cell(column: Column, length: int) -> str:
            row = next((row for row in column.find("growth") or () if row["length"] == length), None)
            if row is None:
                return ""
            return (
                f"{medians(row)['explain']:.3g} s, {_ratio(row, 'explain', BASELINE)}, {row['memory'] / MIB:.0f} MiB"
            )

        lengths = sorted({row["length"] for column in self._columns for row in column.find("growth") or ()})
        return self._by_column("S = T", {length: str(length) for length in lengths}, cell) + "\n" + self._exponents()

    def _exponents(self) -> str:
        told = []
        for column in self._columns:
            times = {row["length"]: medians(row)["explain"] for row in column.find("growth") or ()}
            if 40 in times and 160 in times:
                told.append(f"{math.log(times[160] / times[40], 4):.2f} ({column.title})")
        return f"From 40 to 160 time grows as the length to the power {' and '.join(told)}.\n" if told else ""

    def memory(self) -> str:
        """The peak for long sentences."""

        def cell(column: Column, limit: str | None) -> str:
            return ", ".join(
                f"{row['bytes'] / MIB:.0f} MiB (S = T = {row['length']})"
                for row in column.find("memory") or ()
                if row["limit"] == limit
            )

        return self._by_column("`max_memory`", {None: "not given", "1GB": '`"1GB"`'}, cell)

    def families(self) -> str:
        """Families of equal size against Marian."""
        found = [section_of(result, "families") for result in self._results]
        names = dict.fromkeys(name for each in found if each for name in each["seconds"])
        rows = [(name, *("" if each is None else _ratio(each, name, "marian") for each in found)) for name in names]
        return _markdown(("family", *self._names), rows)

    def other_models(self) -> str:
        """A decoder-only model and Whisper."""
        return self._by_machine([_other_model_cells(result) for result in self._results])

    def many(self) -> str:
        """Lists, and what shares the encoder."""
        single = "against a loop of single calls"
        rows = {
            ("targets given", ""): f"a list of {SENTENCES}, targets given, {single}",
            ("translations generated", ""): f"a list of {SENTENCES}, translations generated, {single}",
        }
        for kind, what in (
            ("candidates", f"{CANDIDATES} translations of one source as a list, S = T = {{}}, {single}"),
            ("prefixes", "`explain_prefixes`, S = T = {}, against three calls of `explain`"),
        ):
            lengths = {length for column in self._columns for length in (column.find("many") or {}).get(kind, ())}
            rows |= {(kind, length): what.format(length) for length in sorted(lengths, key=int)}

        def cell(column: Column, row: tuple[str, str]) -> str:
            found = column.find("many")
            measured = None if found is None else found[row[0]].get(row[1]) if row[1] else found[row[0]]
            if measured is None:
                return ""
            return _ratio(measured, *((TOGETHER, THREE_CALLS) if row[0] == "prefixes" else (LIST, ONE_BY_ONE)))

        return self._by_column("what", rows, cell)

    def analyze(self) -> str:
        """Sentences per second of a corpus, and where the time goes."""
        columns = [column for column in self._columns if column.find("analyze") is not None]
        found = [column.find("analyze") for column in columns]
        rates, shares = (found[0][kind] if found else () for kind in ("rates", "shares"))
        rows = [
            (f"sentences per second, {name}", *(_range(each["rates"][name], "") for each in found)) for name in rates
        ]
        rows += [(f"share of time: {name}", *(f"{each['shares'][name]:.0%}" for each in found)) for name in shares]
        return _markdown(("what", *(column.title for column in columns)), rows)

    def before_and_after(self) -> str:
        """Two checkouts of the package."""
        found = [section_of(result, "before and after") for result in self._results]
        tasks = dict.fromkeys(task for each in found if each for task in each["tasks"])
        rows = [(f"`{task}`" if " " not in task else task, *(_gain(each, task) for each in found)) for task in tasks]
        if rows:
            rows.append(("largest difference of shares", *map(_apart, found)))
        commits = (f"`{result['settings']['before']}` to `{result['commit']}`" for result in self._results)
        titles = (f"{name}: {both}" for name, both in zip(self._names, commits, strict=True))
        return _markdown(("task", *titles), rows)

    def training(self) -> str:
        """What benchmark_training.py measures."""
        return self._by_machine([_training_cells(section_of(result, "training")) for result in self._results])

    def _by_machine(self, cells: Sequence[dict[str, str]]) -> str:
        """A column for each machine, from its cells by row."""
        rows = dict.fromkeys(row for each in cells for row in each)
        return _markdown(("what", *self._names), [(row, *(each.get(row, "") for each in cells)) for row in rows])

    def _by_column(self, first: str, rows: dict[Any, str], cell: Callable[[Column, Any], str]) -> str:
        header = (first, *(column.title for column in self._columns))
        return _markdown(
            header, [(text, *(cell(column, row) for column in self._columns)) for row, text in rows.items()]
        )


TABLES: dict[str, Callable[[Benchmark], str]] = {
    "machines": Benchmark.machines,
    "goals": Benchmark.goals,
    "sentence": Benchmark.sentence,
    "growth": Benchmark.growth,
    "memory": Benchmark.memory,
    "families": Benchmark.families,
    "other models": Benchmark.other_models,
    "many": Benchmark.many,
    "analyze": Benchmark.analyze,
    "before and after": Benchmark.before_and_after,
    "training": Benchmark.training,
}


# ---- cells


def _ratio(measured: dict[str, Any], task: str, against: str) -> str:
    return "1" if task == against else _range(ratios(measured, task, against), " ×")


def _range(values: Sequence[float], unit: str) -> str:
    """The median, and the lowest and highest of several; nothing of nothing."""
    if not values:
        return ""
    middle = f"{statistics.median(values):.2f}{unit}"
    return middle if len(values) == 1 else f"{middle} ({min(values):.2f} to {max(values):.2f})"


def _seconds(measured: dict[str, Any], task: str) -> str:
    return f"{medians(measured)[task]:.3g} s"


def _gain(found: dict[str, Any] | None, task: str) -> str:
    if found is None or task not in found["tasks"]:
        return ""
    number, seconds = found["tasks"][task]["sentences"], found["tasks"][task]["seconds"]
    before, after = (number / statistics.median(seconds[side]) for side in ("before", "after"))
    return f"{before:.3g} to {after:.3g} sentences per second, {_range(gains(found, task), ' ×')}"


def _apart(found: dict[str, Any] | None) -> str:
    return "" if found is None else f"{max(found['largest difference of shares'].values(), default=0.0):.1e}"


def _other_model_cells(result: dict[str, Any]) -> dict[str, str]:
    alone, speech = section_of(result, "decoder only"), section_of(result, "speech")
    cells = {}
    if alone is not None:
        against = "the same, against one forward and T backward passes to the embeddings"
        cells |= {"decoder only: `explain`": _seconds(alone, "explain"), against: _ratio(alone, "explain", BASELINE)}
    if speech is not None:
        cells |= {f"Whisper tiny, {task}": _seconds(speech, task) for task in speech["seconds"]}
    return cells


def _training_cells(found: dict[str, Any] | None) -> dict[str, str]:
    if found is None:
        return {}
    likelihood, risk = found["likelihood"], found["minimum risk"]
    rate = likelihood["tokens"] / likelihood["seconds"]["TranslationTrainer"]
    looks = likelihood["share of looks in training time"]
    steps = likelihood["steps between looks"]
    seconds, gain = risk["seconds"]["minimum_risk_step"], risk["speed against the naive version"]
    sharing = f"a step of minimum risk, {risk['candidates']} candidates, against one without sharing"
    return {
        "`TranslationTrainer`, against `Seq2SeqTrainer` on the same micro-batches": f"{rate:,.0f} tokens per second, "
        f"{likelihood['speed against Seq2SeqTrainer']:.2f} × as fast",
        **{f"{name}, every {steps} steps": f"{share:.1%} of training time" for name, share in looks.items()},
        sharing: f"{risk['sentences']} sentences in {seconds:.3g} s, {gain:.1f} × as fast",
        **{f"minimum risk, share of time: {name}": f"{share:.1%}" for name, share in risk["shares of time"].items()},
    }


def _gib(result: dict[str, Any]) -> str:
    return f"{result['machine']['memory'] / 2**30:.0f}"


def _rates(result: dict[str, Any], kind: str) -> str:
    """The rates of plain products before each section."""
    return _range([section["products"][kind] for section in result["sections"].values()], "")


def _foreign(result: dict[str, Any]) -> float:
    """The load of a whole run, section by section weighted with their time."""
    sections = result["sections"].values()
    return sum(s["foreign"] * s["minutes"] for s in sections) / max(sum(s["minutes"] for s in sections), 1e-9)


def _caches(caches: Sequence[dict[str, str]]) -> str:
    kinds = {"Data": " data", "Instruction": " instructions"}
    told = (f"L{c['level']}{kinds.get(c['type'], '')} {c['size']} (cores {c['shared_cpu_list']})" for c in caches)
    return ", ".join(told) or "unknown"


def _versions(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {versions[name]}" for name in ("python", "torch", "transformers"))


def _markdown(header: Cells, rows: Iterable[Cells]) -> str:
    titles, rows = list(header), list(rows)
    if not rows:
        return "There are no results.\n"
    lines = [f"| {' | '.join(titles)} |", f"| {' | '.join('---' for _ in titles)} |"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def kept_results() -> list[Path]:
    """The files of results that are kept, the newest run first."""
    return sorted(KEPT.glob("*.json"), key=lambda path: read_json(path)["started"], reverse=True)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, nargs="+", metavar="FILE", help="what benchmark.py has written")
    parser.add_argument("--page", type=Path, default=PAGE, metavar="FILE", help="the page to fill")
    options = parser.parse_args(arguments)
    results = [read_json(path) for path in options.results or kept_results()]
    if not results:
        parser.error(f"there are no results in {KEPT}: give some with --results")
    filled = Benchmark(results).fill(options.page.read_text(encoding="utf-8"))
    write_atomically(options.page, filled.encode())


if __name__ == "__main__":
    main()
