"""What the site has besides the pages in `docs`: pages made of files elsewhere in the repository, and
those of the gallery, from results that `recipes/pictures/gallery.py` has kept.

Links in Markdown are relative to the file they stand in, so that they work wherever the repository is read. Here those
that lead out of `docs` are turned into links to a page of the site: README and the like, or a listing of code.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from hf_lrp import Contributions

ROOT = Path(__file__).parents[2]
GALLERY = ROOT / "docs" / "gallery"
_READMES = sorted(place for place in (ROOT / "recipes").glob("*/README.md") if place.parent.name != "space")
PAGES = {
    "README.md": "index.md",
    "recipes/README.md": "recipes.md",
    **{f"recipes/{place.parent.name}/README.md": f"recipes/{place.parent.name}.md" for place in _READMES},
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
_FILES = {page: path for path, page in PAGES.items()}
_LINK = re.compile(r"(\]\()([^)#:\s]+)((?:#[^)]*)?\))")
_LANGUAGES = {
    ".py": "python",
    ".c": "c",
    ".yaml": "yaml",
    ".cff": "yaml",
    ".txt": "text",
    ".html": "html",
    ".js": "javascript",
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in `docs`."""
    for path, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / path).read_text(encoding="utf-8")))
    for target in sorted(_linked_code(files)):
        files.append(File.generated(config, _listing_page(target), content=_listing(target)))
    for path in sorted(GALLERY.glob("*.safetensors")):
        files.append(File.generated(config, f"gallery/{path.stem}.html", content=Contributions.load(path).to_html()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links that are relative to the repository to the site's pages."""
    here = page.file.src_uri

    def lead(match: re.Match[str]) -> str:
        target = _in_repository(match[2], here)
        return match[1] + posixpath.relpath(_on_site(target), posixpath.dirname(here) or ".") + match[3]

    return _LINK.sub(lead, markdown)


def _linked_code(files: Files) -> set[str]:
    """Files and folders of the repository, outside of `docs`, that pages link to."""
    found = set()
    for file in files.documentation_pages():
        for match in _LINK.finditer(file.content_string):
            target = _in_repository(match[2], file.src_uri)
            if not target.startswith("docs/") and target not in PAGES and (ROOT / target).exists():
                found.add(target)
    return found


def _in_repository(link: str, page: str) -> str:
    """Where a link of a page leads in the repository."""
    here = _FILES.get(page) or f"docs/{page}"
    return posixpath.normpath(posixpath.join(posixpath.dirname(here), link))


def _on_site(path: str) -> str:
    """The page of the site for a path in the repository."""
    if path in PAGES:
        return PAGES[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return _listing_page(path)


def _listing_page(path: str) -> str:
    return f"code/{path}.md"


def _listing(path: str) -> str:
    place = ROOT / path
    if place.is_dir():
        names = "\n".join(
            f"- `{each.name}`" for each in sorted(place.iterdir()) if not each.name.startswith(("_", "."))
        )
        return f"# `{path}/`\n\n{names}\n"
    text = place.read_text(encoding="utf-8")
    fence = "`" * (max(map(len, re.findall("`{3,}", text)), default=2) + 1)
    return f"# `{path}`\n\n{fence}{_LANGUAGES.get(place.suffix, 'text')}\n{text}\n{fence}\n"
