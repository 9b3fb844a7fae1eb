"""Code in README and docs runs as it is written, page by page, with the embedded model in place of those from the Hub.

A block that does not run here has a comment above it, `<!-- not run: why -->`. Commands are not run but parsed.
"""

import copy
import re
import shlex
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import pytest
from changed_run import change_run, sharpen
from code_blocks import CodeBlock, code_blocks
from example_run import write_run
from tiny_decoders import tiny_decoder
from toy_corpus import toy_pairs
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer

import hf_lrp
from hf_lrp.commands.cli import build_parser
from hf_lrp.corpus.timeline import measure_timeline
from hf_lrp.models import families, loading

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "recipes" / "README.md", *sorted(ROOT.glob("docs/*.md"))]
EMBEDDED = ROOT / "hf_lrp" / "embedded" / "tatoeba-en-fr"
ELSEWHERE = {"README.md"}  # tests/explaining/test_readme_example.py looks at what it gives
# What would take long, or is another's: what stands there instead.
CHANGES = {
    "docs/analyze.md": {"lengths=(20, 23)": "lengths=None, number=3", "num_beams=4": "num_beams=1"},
    "docs/evaluate_metric.md": {"Helsinki-NLP/opus-mt-en-fr": str(EMBEDDED)},
    "docs/training.md": {
        "train_test_split(500": "train_test_split(8",
        "max_steps=1000": "max_steps=2, source_tokens=200, device_tokens=200, use_cpu=True",
        '"mrt"': '"mrt", source_tokens=60, device_tokens=60, candidates=3, use_cpu=True',
        "max_steps=100,": "max_steps=2,",
        "steps=200": "steps=2",
        "steps=20,": "steps=2,",
        "every=200": "every=2",
    },
}


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture
def around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What pages take for granted: a model, sentences, files of pairs, runs; in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(families, "FAMILIES", dict(families.FAMILIES))
    model, tokenizer = hf_lrp.load()
    stand_in(monkeypatch, model, tokenizer)
    pairs = toy_pairs(300, seed=1)
    write_files(pairs)
    sources, targets = map(list, zip(*pairs[:3], strict=True))
    texts = {"source": "The cat sleeps.", "target": "Le chat dort.", "translation": "Le chat dort."}
    lists = {"sources": sources, "targets": targets, "references": targets, "pairs": pairs[:12]}
    public = {name: getattr(hf_lrp, name) for name in hf_lrp.__all__}
    return {"model": model, "tokenizer": tokenizer} | texts | lists | public


def stand_in(monkeypatch: pytest.MonkeyPatch, model: Any, tokenizer: Any) -> None:
    """Whatever is loaded by name is the embedded model, a tiny decoder of its vocabulary, or a made-up data set."""
    decoder = tiny_decoder("llama", vocab_size=len(tokenizer), bos_token_id=None, eos_token_id=tokenizer.eos_token_id)
    rows = [{"translation": {"en": english, "fr": french}} for english, french in toy_pairs(100, seed=2)]
    made_up = datasets.DatasetDict(train=datasets.Dataset.from_list(rows))
    monkeypatch.setattr(datasets, "load_dataset", lambda *_: made_up)
    for owner, attribute in ((hf_lrp, "load"), (loading, "load_checkpoint")):
        monkeypatch.setattr(owner, attribute, lambda *_: (model, tokenizer))
    monkeypatch.setattr(AutoModelForSeq2SeqLM, "from_pretrained", lambda *_, **__: copy.deepcopy(model))
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", lambda *_, **__: decoder)
    monkeypatch.setattr(AutoTokenizer, "from_pretrained", lambda *_, **__: tokenizer)


def write_files(pairs: list[tuple[str, str]]) -> None:
    """Files that pages name: pairs, alignments, runs, a timeline."""
    Path("pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs), encoding="utf-8")
    Path("gold.txt").write_text("0-0\n" * 3)
    run = write_run(Path("runs/base"))
    for name in ("embedded", "opus", "dropout"):
        change_run(run, Path("runs") / name, partial(sharpen, power=2))
    Path("timelines/base").mkdir(parents=True)
    steps = {step: change_run(run, Path(f"timelines/step-{step}"), partial(sharpen, power=step)) for step in (1, 2, 3)}
    measure_timeline(steps, "reference").save("timelines/base")


def python_blocks(page: Path) -> list[CodeBlock]:
    return [block for block in code_blocks(page) if block.language == "python" and block.reason is None]


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name not in ELSEWHERE and python_blocks(page)], ids=name
)
def test_python_runs(page: Path, around: dict[str, Any]) -> None:
    for block in python_blocks(page):
        run(block, page, around)


def run(block: CodeBlock, page: Path, names: dict[str, Any]) -> None:
    text = block.text
    for old, new in CHANGES.get(name(page), {}).items():
        text = text.replace(old, new)
    code = compile("\n" * (block.line - 1) + text, str(page), "exec")
    exec(code, names)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_have_these_options(page: Path) -> None:
    """`hf-lrp ...` is parsed; of a recipe's command, each option is one that the recipe declares."""
    for command in commands(page):
        words = shlex.split(command, comments=True)
        if "hf-lrp" in words:
            arguments = words[words.index("hf-lrp") + 1 :]
            assert "--help" in arguments or build_parser().parse_args(arguments).command
        for script in (word for word in words if re.fullmatch(r"recipes/\w+/\w+\.py", word)):
            declared = (ROOT / script).read_text(encoding="utf-8")
            options = [word.partition("=")[0] for word in words[words.index(script) :] if word.startswith("--")]
            assert [option for option in options if f'"{option}"' not in declared] == [], command


def commands(page: Path) -> list[str]:
    """What shell blocks start of this project's programs; a line that ends in a backslash goes on in the next."""
    shells = [block for block in code_blocks(page) if block.language in ("", "bash", "sh") and block.reason is None]
    lines = "\n".join(block.text.replace("\\\n", " ") for block in shells).splitlines()
    parts = [part.strip() for line in lines for part in re.split(r" \| | && ", line)]
    return [part for part in parts if re.search(r"\bhf-lrp [a-z]|recipes/\w+/\w+\.py", part)]
