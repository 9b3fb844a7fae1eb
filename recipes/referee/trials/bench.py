"""One subject with all that is found out about it, and what is tried: values first, which other trials ask about."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hf_lrp import Explainer
from hf_lrp.corpus.processes import this_process
from hf_lrp.data.json_files import read_json, write_json
from hf_lrp.models.configs import end_tokens
from trials import errors, faithfulness, links, meaning, randomisation
from trials.contestants import explain, values
from trials.keeping import Findings
from trials.sentences import Sentence, read_sentences, translate
from trials.subjects import Subject

RANDOMISED = 40  # sentences that are explained for shuffled weights
COUNTERFACTUAL = "counterfactual"  # in place of a method: what all methods are compared with


class Bench:
    """One subject with its sentences, its translations, and the folder of what is found."""

    def __init__(self, subject: Subject, methods: dict[str, Any], folder: Path) -> None:
        self.subject, self.methods, self.folder = subject, methods, folder / subject.name
        self.folder.mkdir(parents=True, exist_ok=True)
        chosen = ("sentences", "shortest", "longest")  # what findings depend on, besides the files themselves
        self.settings = {name: getattr(subject, name) for name in chosen}
        self.texts = subject.texts()
        self.targets = self._translations()
        self.sentences: list[Sentence] = read_sentences(subject, self.texts, self.targets)

    def _translations(self) -> list[list[int]]:
        """Of all sources: written by the first process, once."""
        path, state = self.folder / "translations.json", this_process()
        with state.main_process_first():
            if not path.exists():
                translations = translate(self.subject, self.texts)
                write_json(path, {"settings": self.settings, "translations": translations})
        content = read_json(path)
        if content["settings"] != self.settings:
            raise SystemExit(f"{path} was made with other settings: remove the folder to start again.")
        return content["translations"]

    def cases(self) -> list[dict[str, Any]]:
        """Pairs with words that were left out or have no support: made by the first process, once."""
        path, state = self.folder / "cases.json", this_process()
        with state.main_process_first():
            if not path.exists():
                write_json(path, errors.find_cases(self.subject))
        return read_json(path)

    @property
    def ends(self) -> set[int]:
        """Ids that end a target."""
        return set(end_tokens(self.subject.explainer.model))

    def findings(self, trial: str) -> Findings:
        """What a trial found so far."""
        return Findings(self.folder, trial, self.settings)

    def explain(self, number: int, name: str, explainer: Explainer | None = None) -> Any:
        """A method's result for one sentence, by the subject or by another model."""
        return self.explain_text(name, self.texts[number], self.targets[number], explainer)

    def explain_text(self, name: str, text: str, target: list[int], explainer: Explainer | None = None) -> Any:
        """A method's result for any source and target."""
        explainer = explainer or self.subject.explainer
        return explain(explainer, self.methods[name], text, target, self.subject.prompt)

    def values(self) -> dict[str, list[dict[str, Any]]]:
        """By method, its values for each sentence, up to the first that lacks one."""
        return self.findings("values").complete(range(len(self.texts)), list(self.methods))


def try_values(bench: Bench) -> None:
    """Values of all methods for all sentences, which other trials ask about."""
    findings = bench.findings("values")
    for number, names in findings.missing(range(len(bench.texts)), list(bench.methods)):
        for name in names:
            result = bench.explain(number, name)
            source, target = values(result)
            words = {"words": list(result.target_words), "tokens": list(result.target_tokens)}
            totals = result.source_total.tolist()
            findings.add(
                number, name, {"source": source.tolist(), "target": target.tolist(), "totals": totals, **words}
            )


def try_faithfulness(bench: Bench) -> None:
    """What a method's order takes from predictions: the questions of tokens, source and prefix."""
    known, findings = bench.values(), bench.findings("faithfulness")
    names = [*known, *faithfulness.RANDOM, faithfulness.NEAREST]
    model = bench.subject.explainer.model
    for number, missing in findings.missing(range(len(bench.texts)), names):
        given = {name: arrays(known[name][number]) for name in missing if name in known}
        for name, found in faithfulness.measure(model, bench.sentences[number], number, given).items():
            if name in missing:
                findings.add(number, name, found)


def try_meaning(bench: Bench) -> None:
    """How far predictions move when source or prefix is another."""
    findings = bench.findings("meaning")
    model = bench.subject.explainer.model
    for number, _ in findings.missing(range(len(bench.texts)), [COUNTERFACTUAL]):
        findings.add(number, COUNTERFACTUAL, meaning.movements(model, bench.sentences, number))


def try_randomisation(bench: Bench) -> None:
    """How alike values are once weights are shuffled."""
    known, findings = bench.values(), bench.findings("randomisation")
    todo = list(findings.missing(range(min(RANDOMISED, len(bench.texts))), list(known)))
    whole = bench.subject.explainer
    models = randomisation.shuffled_models(whole.model)
    shuffled = {part: Explainer(model, whole.tokenizer) for part, model in models}
    for number, names in todo:
        for name in names:
            before = arrays(known[name][number])
            after = {part: values(bench.explain(number, name, explainer)) for part, explainer in shuffled.items()}
            findings.add(number, name, {part: [randomisation.similarity(before, one)] for part, one in after.items()})


def try_links(bench: Bench) -> None:
    """How many links are right that values give."""
    if bench.subject.gold is None:
        return
    findings, gold = bench.findings("links"), links.GoldPairs(bench.subject)
    for number, names in findings.missing(range(len(gold.pairs)), list(bench.methods)):
        text, target = gold.texts(number)
        for name in names:
            findings.add(number, name, gold.count(number, bench.explain_text(name, text, target).source))
    beside = {links.PURPOSE_BUILT: lambda: gold.purpose_built(bench.subject)}
    for aligner, path in bench.subject.aligners.items():
        beside[aligner] = lambda path=path: gold.by_aligner(Path(path))
    for name, find in beside.items():
        if list(findings.missing(range(len(gold.pairs)), [name])):
            for number, found in enumerate(find()):
                findings.add(number, name, found)


def try_errors(bench: Bench) -> None:
    """Which tokens a method points at as left out, or as without support."""
    findings, cases = bench.findings("errors"), bench.cases()
    read = errors.CasesRead(bench.subject, cases)
    asked = {kind for question, kind in errors.KINDS.items() if question in bench.subject.questions}
    numbers = [number for number, case in enumerate(cases) if case["kind"] in asked]
    for number, names in findings.missing(numbers, list(bench.methods)):
        for name in names:
            findings.add(number, name, read.ask(number, bench.explain_text(name, *read.texts(number))))
    if list(findings.missing(range(len(cases)), [errors.PURPOSE_BUILT])):
        for number, row in read.purpose_built(bench.texts, bench.targets):
            findings.add(number, errors.PURPOSE_BUILT, row)


def arrays(kept: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Values `[T, S]` and `[T, T]` of source and target tokens, as they were kept."""
    return np.array(kept["source"]), np.array(kept["target"])


TRIALS: dict[str, Callable[[Bench], None]] = {
    "values": try_values,
    "faithfulness": try_faithfulness,
    "meaning": try_meaning,
    "links": try_links,
    "errors": try_errors,
    "randomisation": try_randomisation,
}
