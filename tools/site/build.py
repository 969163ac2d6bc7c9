"""Copies the documents to where mkdocs reads them, and builds the website: tools/site/build.py FOLDER CACHEBENCH.

FOLDER gets pages/ and site/. Links that leave docs/ become links to the repository. The example report is of a sweep that runs here, over generated rows.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
REPOSITORY = "https://github.com/tensorcache/tensorcache/blob/main/"
# Pages of the site whose files lie elsewhere or have another name, by path in the repository.
MOVED = {"README.md": "index.md", "docs/README.md": "documents.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
LINK = re.compile(r"(\]\(|^\[\w+\]: )([^)\s]+)", re.MULTILINE)
REPORT = """# An example report

For those who want to see what `cachebench report` makes: two policies at three budgets, of generated lookups. It is one HTML file without a network, [report.html](report.html).

<iframe class="report" src="report.html" title="A report of cachebench"></iframe>
"""


def page_of(path: pathlib.Path) -> str | None:
    """Returns the path in the site of a file of the repository, None if it is not there."""
    name = path.relative_to(ROOT).as_posix()
    if name in MOVED:
        return MOVED[name]
    if path.is_file() and name.startswith("docs/") and path.suffix in {".md", ".svg", ".png"}:
        return name.removeprefix("docs/")
    return None


def relink(text: str, source: pathlib.Path) -> str:
    """Rewrites the relative links of a page."""
    here = pathlib.PurePosixPath(page_of(source)).parent
    up = "../" * len(here.parts)

    def replace(match: re.Match) -> str:
        begin, target = match.groups()
        path, mark, anchor = target.partition("#")
        if not path or ":" in path:
            return match.group(0)
        to = (source.parent / path).resolve()
        page = page_of(to)
        return begin + (up + page if page else REPOSITORY + to.relative_to(ROOT).as_posix()) + mark + anchor

    blocks = re.split(r"(^```.*?^```)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(b if b.startswith("```") else LINK.sub(replace, b) for b in blocks)


def main(folder: pathlib.Path, cachebench: pathlib.Path) -> None:
    pages = folder / "pages"
    shutil.rmtree(pages, ignore_errors=True)
    tracked = subprocess.run(["git", "ls-files", "docs", *[m for m in MOVED if "/" not in m]], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    for name in tracked:
        source = ROOT / name
        if page := page_of(source):
            to = pages / page
            to.parent.mkdir(parents=True, exist_ok=True)
            if source.suffix == ".md":
                to.write_text(relink(source.read_text(), source).replace("```console runnable", "```console"))
            else:
                shutil.copyfile(source, to)
    shutil.copyfile(ROOT / "tools/site/site.css", pages / "site.css")
    (pages / "example.md").write_text(REPORT)
    home = pages / MOVED["README.md"]
    home.write_text("---\nhide: [toc]\n---\n" + home.read_text())  # room for what the demonstration prints
    results = folder / "results"
    shutil.rmtree(results, ignore_errors=True)
    sweep = "--vertices 20000 --batches 20 --train-batches 5 --policy freq,tinylfu --gpu-memory 1%,5%,20% --codec none,ibp4"
    subprocess.run([cachebench, "run", "--sweep", results, *sweep.split()], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([cachebench, "report", results, "--out", pages / "report.html"], check=True)

    def listed(of: str) -> str:
        return "[" + ", ".join(sorted(p.relative_to(pages).as_posix() for p in (pages / of).glob("*.md"))) + "]"

    config = (ROOT / "tools/site/mkdocs.yml").read_text()
    (folder / "mkdocs.yml").write_text(config.replace("FORMATS", listed("format")).replace("NOTEBOOK", listed("notebook")))
    subprocess.run([sys.executable, "-m", "mkdocs", "build", "--strict", "--clean", "-q", "-f", folder / "mkdocs.yml"], check=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve())
