"""The site: complete, with links that lead somewhere, commands that exist and lines of Python that run."""

import importlib
import importlib.util
import os
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import click
import pytest
import torch
import yaml
from markdown.extensions.toc import slugify

import fedblade
from docs.site.commands import all_commands, root_command
from docs.site.links import DOCS, ELSEWHERE, ROOT, for_the_site
from docs.site.pages import generated_pages
from docs.site.parts import KINDS
from fedblade.config.reference import all_settings
from fedblade.core import registry

pytestmark = pytest.mark.filterwarnings("ignore:'click.utils:DeprecationWarning")
# The pinned typer uses a name that the pinned click announces to remove.
FAMILIES = ("tutorial-", "how-to-", "reference-", "explain-")
MODULES = ("fedblade", *(f"fedblade.{name}" for name in fedblade.__all__ if name in ("api", "data", "diagnostics",
           "heads", "losses", "models", "partitions")))  # fmt: skip
QUICK = ("index", "reference-python-losses", "reference-python-heads")
"""Pages whose lines of Python run in a second or two; those of the others run in `make test-slow`."""
LONG = (
    *(f"tutorial-{name}" for name in ("own-data", "own-method")),
    *(f"explain-{name}" for name in ("dimensional-collapse", "simplex-classifier")),
    *(f"reference-python-{name}" for name in ("api", "data", "diagnostics", "fedblade", "models", "partitions")),
)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


@cache
def pages() -> dict[str, str]:
    """Every page of the site: its place and its text."""
    files = {str(path.relative_to(DOCS)): path for path in sorted(DOCS.rglob("*.md"))} | ELSEWHERE
    texts = {name: for_the_site(path.read_text(encoding="utf-8"), name) for name, path in files.items()}
    return texts | {name: for_the_site(text, name) for name, text in generated_pages().items()}


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```|`[^`\n]*`", "", text, flags=re.MULTILINE | re.DOTALL)


def blocks(language: str, text: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@cache
def anchors(page: str) -> set[str]:
    text = re.sub(r"^```.*?^```", "", pages()[page], flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {slugify(re.sub(r"`|\]\([^)]*\)|\[", "", heading), "-") for heading in headings}


def nav(entries: list) -> list[str]:
    """The pages of the navigation, in order."""
    found: list[str] = []
    for entry in entries:
        value = next(iter(entry.values())) if isinstance(entry, dict) else entry
        found += nav(value) if isinstance(value, list) else [value]
    return found


def test_the_navigation_has_every_page_once():
    listed = nav(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"])
    cards = {name for name in pages() if name.startswith("methods/") and name != "methods/README.md"}
    assert sorted(listed) == sorted(pages().keys() - cards)  # the hooks of the site add the cards


def test_pages_are_named_by_family():
    names = [path.name for path in DOCS.glob("*.md") if path.name != "index.md"]
    assert [name for name in names if not name.startswith(FAMILIES)] == []


def test_links_lead_somewhere():
    broken = []
    for page, text in pages().items():
        for target in LINK.findall(without_code(text)):
            name, _, anchor = target.partition("#")
            if ":" in name:
                continue
            place = os.path.normpath(Path(page).parent / name) if name else page
            exists = place in pages() or ((DOCS / place).is_file() and not name.endswith(".md"))
            if not exists or (anchor and anchor not in anchors(place)):
                broken.append((page, target))
    assert broken == []


def test_the_readme_links_lead_somewhere_and_it_is_short():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    missing = [target for target in LINK.findall(without_code(text)) if not (ROOT / target.partition("#")[0]).exists()]
    assert missing == []
    assert len(text.encode()) <= 6 * 1024


def test_every_setting_has_a_line_with_its_meaning():
    lines = generated_pages()["reference-settings.md"].splitlines()
    rows = {line.split("`")[1]: line for line in lines if line.startswith("| `")}
    unlisted = [setting.name for setting in all_settings() if setting.name not in rows]
    assert unlisted == []
    assert all(len(line.split(" | ")[-1].strip(" |")) > 10 for line in rows.values())


def test_every_command_and_every_part_has_its_heading():
    texts = generated_pages()
    assert [name for name in all_commands() if f"## {name}\n" not in texts["reference-commands.md"]] == []
    for kind in KINDS:
        ours = [e.name for e in getattr(registry, kind).entries() if e.make.__module__.startswith("fedblade.")]
        assert [name for name in ours if f"## {name}\n" not in texts[f"reference-{kind}.md"]] == []


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_has_its_signature_and_an_example(module):
    name = module.rpartition(".")[2]
    text = pages()[f"reference-python-{name}.md"]
    code = "\n".join(blocks("python", text))
    public = [each for each in importlib.import_module(module).__all__ if not each.startswith("__")]
    public = [each for each in public if module != "fedblade" or each not in {m.rpartition(".")[2] for m in MODULES}]
    assert [each for each in public if f"\n::: {module}.{each}\n" not in text + "\n"] == []
    assert [each for each in public if not re.search(rf"\b{each}\b", code)] == []


def run_blocks(page: str, folder: Path, monkeypatch) -> None:
    monkeypatch.chdir(folder)
    names = {"__name__": "page"}
    for block in blocks("python", pages()[f"{page}.md"]):
        exec(compile(block, f"{page}.md", "exec", dont_inherit=True), names)


@pytest.mark.parametrize("page", QUICK)
def test_the_python_of_quick_pages_runs(page, tmp_path, monkeypatch):
    run_blocks(page, tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("page", LONG)
def test_the_python_of_long_pages_runs(page, tmp_path, monkeypatch):
    run_blocks(page, tmp_path, monkeypatch)


def commands() -> list[tuple[str, str]]:
    """Every line of a shell block that starts with fedblade, and its page."""
    found = []
    for page, text in pages().items():
        for block in blocks("sh", text):
            lines = block.replace("\\\n", " ").splitlines()
            found += [(page, line) for line in lines if line.startswith("fedblade ")]
    return found


def test_every_command_of_a_page_exists_with_its_options():
    refused = []
    for page, line in commands():
        words = shlex.split(line.replace("…", "X"), comments=True)[1:]
        command: click.Command = root_command()
        words = words[: words.index(";")] if ";" in words else words
        words = [word for word in words if word != "&"]
        while isinstance(command, click.Group) and words and words[0] in command.commands:
            command = command.commands[words.pop(0)]
        try:
            command.make_parser(click.Context(command)).parse_args(words)
        except click.UsageError as error:
            refused.append((page, line, error.format_message()))
        if isinstance(command, click.Group):
            refused.append((page, line, "no such command"))
    assert refused == []


@pytest.mark.slow
def test_the_site_is_built_strictly_and_asks_nobody_for_anything(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=os.environ | {"NO_COLOR": "1"})
    assert done.returncode == 0, done.stderr
    remote = re.compile(r"<(?:script|img|iframe)[^>]*\ssrc=\"?(?:https?:)?//|<link[^>]*\shref=\"?(?:https?:)?//")
    built = list((tmp_path / "site").rglob("*.html"))
    assert len(built) > 60
    assert [page.name for page in built if remote.search(page.read_text(encoding="utf-8"))] == []
    styles = [path.read_text(encoding="utf-8") for path in (tmp_path / "site").rglob("*.css")]
    assert not any(re.search(r"url\([\"']?(?:https?:)?//|@import", style) for style in styles)
    assert "<math" in (tmp_path / "site" / "explain-dimensional-collapse.html").read_text(encoding="utf-8")
    python = (tmp_path / "site" / "reference-python-fedblade.html").read_text(encoding="utf-8")
    assert all(f'id="fedblade.{name}"' in python for name in ("run", "TrainedModel.predict", "Comparison.plot"))
    card = (tmp_path / "site" / "methods" / "fedprox.html").read_text(encoding="utf-8")
    assert 'href="fedavg.html"' in card, "the cards are in the navigation"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    spec = importlib.util.spec_from_file_location("build_methods", DOCS / "build_methods.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    folder = tmp_path_factory.mktemp("docs") / "methods"
    folder.mkdir()
    (folder / "gone.md").write_text("a method that is no more")
    module.build(folder)
    return {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}


def test_the_committed_pages_are_current(built):
    committed = {path.name: path.read_text(encoding="utf-8") for path in (DOCS / "methods").iterdir()}
    stale = sorted(name for name in built.keys() | committed.keys() if built.get(name) != committed.get(name))
    assert not stale, f"docs/methods is out of date: run `make cards` and commit {', '.join(stale)}"


def test_there_is_a_page_for_every_link_and_none_for_methods_that_are_gone(built):
    linked = {line.split("](")[1].split(")")[0] for line in built["README.md"].splitlines() if line.startswith("| [")}
    assert built.keys() == linked | {"README.md"}
    assert "fedblade.md" in linked


def test_pages_depend_on_no_machine(built):
    text = "".join(built.values())
    for fact in (str(Path.home()), str(DOCS.parent), torch.__version__, "cuda"):
        assert fact not in text, fact
