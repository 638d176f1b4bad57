"""What MkDocs does for this site besides reading the pages of docs.

It adds the pages that are made from the code and those that lie elsewhere in the repository, and it turns formulas into
MathML, which a browser draws without a script and without a font.
"""

import re
from html import unescape

import latex2mathml.converter
from mkdocs.structure.files import File

from docs.site.links import DOCS, ELSEWHERE, for_the_site
from docs.site.pages import generated_pages

_FORMULAS = {
    "inline": re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL),
    "block": re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.DOTALL),
}


def on_config(config):
    """Put the cards of the methods below their index."""
    reference = next(entry["Reference"] for entry in config.nav if "Reference" in entry)
    methods = next(entry["Methods"] for entry in reference if "Methods" in entry)
    methods += [f"methods/{path.name}" for path in sorted((DOCS / "methods").glob("*.md")) if path.stem != "README"]
    return config


def on_files(files, *, config):
    """Add the pages that are in no file of docs."""
    pages = generated_pages() | {page: path.read_text(encoding="utf-8") for page, path in ELSEWHERE.items()}
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown, *, page, **_):
    """Links to files that are no pages become the names of the files."""
    return for_the_site(markdown, page.file.src_uri)


def on_post_page(output, *, page, **_):
    """The theme's script for searching a page that is a file comes from elsewhere; this site has its own."""
    depth = "../" * page.url.count("/")
    return output.replace("https://unpkg.com/iframe-worker/shim", f"{depth}site/worker.js")


def on_post_template(output_content, **_):
    """The same for pages that are no page of docs, such as the one for an error."""
    return output_content.replace("https://unpkg.com/iframe-worker/shim", "site/worker.js")


def on_page_content(html, **_):
    """Formulas as MathML."""
    for display, pattern in _FORMULAS.items():
        html = pattern.sub(lambda found: _mathml(found[1], display), html)  # noqa: B023
    return html


def _mathml(formula, display):
    return latex2mathml.converter.convert(unescape(formula).strip(), display=display)
