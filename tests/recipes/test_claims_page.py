"""Tables of the paper's claims on pages, from results that are kept."""

import re
from pathlib import Path

import claims
import claims_page
import pytest
from example_run import write_run


def test_tables_are_written_and_the_rest_stays(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", number=24, lengths=None)
    claims.measure_run(run).write(tmp_path / "kept" / "europarl" / "base-seed1-mixed.parquet")
    names = ("findings", "in short", "one model", "training", "C1", "C12", "models", "missing")
    page = tmp_path / "page.md"
    page.write_text(
        "Before.\n" + "".join(f"<!-- table {name} -->\nold\n<!-- end -->\nAfter {name}.\n" for name in names)
    )
    arguments = ["--study", "small", "--results", str(tmp_path / "kept"), "--pages", str(page)]
    claims_page.main(arguments)
    text = page.read_text()
    assert "old" not in text and all(f"After {name}." in text for name in names) and text.startswith("Before.")
    assert re.search(r"\| checked on \| \[C1\]\(#c1-.*\n.*\n\| europarl, mixed lengths \| ", text)
    assert re.search(r"\| \[C1\]\(claim_details.md#c1-\S+\) The source's .* \| [^|]+ \(one model\) \|", text)
    assert len(re.findall(r"\([01] of 1\)|\(1 open\)", " ".join(text.split()))) == 7  # of the sentences in short
    assert "There are no results for C12 to C15." in text
    assert "| europarl | pre-seed1, timeline of base, timeline of warmup, " in text
    claims_page.main(arguments)
    assert page.read_text() == text


@pytest.mark.parametrize("path", claims_page.PAGES, ids=lambda path: path.name)
def test_pages_of_this_project_tell_what_its_results_tell(path: Path) -> None:
    page = claims_page.Page("small", claims_page.HERE / "results" / "small")
    text = path.read_text(encoding="utf-8")
    assert page.fill(text) == text, "start recipes/reproduction/claims_page.py"


def test_headings_of_details_are_the_names_of_findings() -> None:
    details = (claims_page.ROOT / "docs" / "claim_details.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (C\d+: .*)$", details, re.MULTILINE)
    assert headings == [claims_page.heading(name) for name in claims_page.FINDINGS]
