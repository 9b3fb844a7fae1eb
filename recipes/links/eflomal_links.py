"""Links of eflomal for all lines of a gold file, symmetrised by grow-diag-final-and, for `word_links.py --links`.

    pip install eflomal
    python recipes/links/eflomal_links.py --gold de-en.tsv --out eflomal.txt
    python recipes/links/eflomal_links.py --gold de-en.tsv --more europarl-de-en.tsv --out eflomal-more.txt

It learns from the texts that it is given: the gold file's own, and with `--more` those of a TSV file, cut into words
at spaces and punctuation. Case is left out.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from pathlib import Path

from hf_lrp.results.alignment import read_links, write_links

Found = set[tuple[int, int]]
NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


def grow_diag_final_and(forward: Found, backward: Found) -> Found:
    """Links of both directions: what both have, what of either is next to it, and what is alone on both sides."""
    union, links = forward | backward, forward & backward

    def free(place: int, side: int) -> bool:
        return all(link[side] != place for link in links)

    grown = True
    while grown:
        grown = False
        for source, target in sorted(links):
            for step in NEIGHBOURS:
                near = (source + step[0], target + step[1])
                if near in union and near not in links and (free(near[0], 0) or free(near[1], 1)):
                    links.add(near)
                    grown = True
    for one in (forward, backward):
        for source, target in sorted(one):
            if free(source, 0) and free(target, 1):
                links.add((source, target))
    return links


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gold", type=Path, required=True, help="source, target and links, with tabs between them")
    parser.add_argument("--more", type=Path, help="a TSV file of source and target")
    parser.add_argument("--out", type=Path, required=True, help="a file of links, a line per pair of the gold file")
    args = parser.parse_args()
    rows = [line.split("\t")[:2] for line in args.gold.read_text(encoding="utf-8").splitlines()]
    pairs = [[side.lower() for side in row] for row in rows]
    if args.more is not None:
        more = [line.split("\t")[:2] for line in args.more.read_text(encoding="utf-8").splitlines()]
        pairs += [[" ".join(re.findall(r"\w+|[^\w\s]", side.lower())) for side in row] for row in more]
        pairs = [pair for pair in pairs if all(side.strip() for side in pair)]
    with tempfile.TemporaryDirectory() as folder:
        text, *directions = (Path(folder) / name for name in ("text", "forward", "backward"))
        text.write_text("".join(" ||| ".join(pair) + "\n" for pair in pairs), encoding="utf-8")
        files = ["-i", str(text), "-f", str(directions[0]), "-r", str(directions[1])]
        subprocess.run(["eflomal-align", *files], check=True)
        found = [[set(links) for links in read_links(path).sure] for path in directions]
    write_links(args.out, [grow_diag_final_and(one, other) for one, other in zip(*found, strict=True)][: len(rows)])


if __name__ == "__main__":
    main()
