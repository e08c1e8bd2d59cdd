"""A hook of MkDocs: what the pages link to in the repository, outside of docs/, becomes part of the site.

On a forge `[the example](../examples/logging.py)` leads to the file. In the site the same link leads to a copy: a Markdown file
is a page like the others, anything else is shown as text. Nothing has to be listed: what is linked to is there.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

_LINK: Final = re.compile(r"(?P<before>\]\()(?P<path>[^)\s#:]+)(?P<anchor>#[^)\s]*)?\)")
_DOCS: Final = "docs/"
_COPIES: Final = "repository/"  # where copies lie in the site
_LANGUAGES: Final = {".py": "python", ".toml": "toml", ".json": "json"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds every file of the repository that a page of docs/, or a copy that is a page, links to."""
    root = _root(config)
    waiting = [(_DOCS + file.src_uri, file.content_string) for file in files.documentation_pages()]
    copied: set[str] = set()
    while waiting:
        name, text = waiting.pop()
        for target in _targets(root, name, text) - copied:
            copied.add(target)
            content = _as_page(root, target)
            files.append(_copy(config, target, content))
            if target.endswith(".md"):
                waiting.append((target, content))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Bends the links that lead to a copy, and those of copies."""
    root, uri = _root(config), page.file.src_uri
    name = _source(root, uri)

    def bent(link: re.Match[str]) -> str:
        target = _resolved(name, link["path"])
        if not (root / target).is_file():
            return link[0]  # MkDocs says so, if it is a link at all
        path = posixpath.relpath(_uri(target), posixpath.dirname(uri) or ".")
        return f"{link['before']}{path}{link['anchor'] or ''})"

    return _LINK.sub(bent, markdown)


def _root(config: MkDocsConfig) -> Path:
    return Path(config.docs_dir).parent


def _targets(root: Path, name: str, text: str) -> set[str]:
    """The files outside of docs/ that a file links to, as paths from the repository's root."""
    linked = {_resolved(name, link["path"]) for link in _LINK.finditer(text)}
    return {target for target in linked if not target.startswith(("..", _DOCS)) and (root / target).is_file()}


def _resolved(name: str, path: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), path))


def _source(root: Path, uri: str) -> str:
    """Which file of the repository a page of the site shows."""
    if not uri.startswith(_COPIES):
        return _DOCS + uri
    name = uri.removeprefix(_COPIES)
    return name if (root / name).is_file() else name.removesuffix(".md")


def _uri(target: str) -> str:
    """Where the site shows a file of the repository."""
    if target.startswith(_DOCS):
        return target.removeprefix(_DOCS)
    return _COPIES + (target if target.endswith(".md") else f"{target}.md")


def _as_page(root: Path, target: str) -> str:
    text = (root / target).read_text()
    if target.endswith(".md"):
        return text
    return f"# {target}\n\n````{_LANGUAGES.get(Path(target).suffix, 'text')}\n{text}````\n"


def _copy(config: MkDocsConfig, target: str, content: str) -> File:
    made = File.generated(config, _uri(target), content=content)
    made.inclusion = InclusionLevel.NOT_IN_NAV  # reached by links
    return made
