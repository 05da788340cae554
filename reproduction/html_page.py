"""The page of a study, from the Markdown that it writes. Only what our studies use is read: headings, tables,
lists, code, images that lie beside it, and folds; all else is a paragraph, and every text is escaped."""

import base64
import re
from pathlib import Path

from jinja2 import ChoiceLoader, Environment, FileSystemLoader
from markupsafe import Markup, escape

from backtalk.report.page import page_environment, render
from backtalk.store.typed import read_file
from backtalk.terminal import printable

MOST_BYTES = 8_000_000  # of Markdown and pictures together, so that a page stays under 10 MB
_INLINE = re.compile(r"`([^`]+)`|\*\*([^*]+)\*\*|\[([^\]]+)\]\(([^)\s]+)\)")
_IMAGE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")


def render_study(page: Path) -> str:
    """`page` is the study's .md file; pictures are taken from the folder that it lies in, and below."""
    text = read_file(page).decode("utf-8", "replace")[:MOST_BYTES]
    lines = text.splitlines()
    title = next((line[2:] for line in lines if line.startswith("# ")), page.stem)
    body = from_markdown(
        [line for line in lines if line != f"# {title}"], page.parent, MOST_BYTES - len(text)
    )
    return render(templates(), "study.html", None, title=title, body=body)


def templates() -> Environment:
    """The package's templates, and those beside this file."""
    shared = page_environment()
    assert shared.loader is not None
    return shared.overlay(loader=ChoiceLoader([FileSystemLoader(Path(__file__).parent), shared.loader]))


def from_markdown(lines: list[str], folder: Path, room: int) -> Markup:
    """The HTML of our own Markdown; pictures go in as data while there is room."""
    parts: list[Markup] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        end = at + 1
        if line.startswith("```"):
            while end < len(lines) and not lines[end].startswith("```"):
                end += 1
            code = "\n".join(printable(one) for one in lines[at + 1 : end])
            parts.append(Markup('<pre tabindex="0"><code>{}</code></pre>').format(code))
            end += 1
        elif heading := re.fullmatch(r"(#{2,4}) (.+)", line):
            parts.append(Markup("<h{0}>{1}</h{0}>").format(len(heading[1]), _inline(heading[2])))
        elif line.startswith("|"):
            while end < len(lines) and lines[end].startswith("|"):
                end += 1
            parts.append(_table(lines[at:end], sum("<table>" in part for part in parts) + 1))
        elif line.startswith("- "):
            while end < len(lines) and (lines[end].startswith("- ") or lines[end].startswith("  ")):
                end += 1
            items = "\n".join(lines[at:end])[2:].split("\n- ")
            listed = Markup("").join(Markup("<li>{}</li>").format(_inline(item)) for item in items)
            parts.append(Markup("<ul>{}</ul>").format(listed))
        elif picture := _IMAGE.fullmatch(line.strip()):
            drawn = _picture(picture[1], picture[2], folder, room)
            room -= len(drawn)
            parts.append(drawn)
        elif fold := re.fullmatch(r"<details><summary>([^<]*)</summary>", line):
            parts.append(Markup('<details class="more"><summary>{}</summary>').format(printable(fold[1])))
        elif line == "</details>":
            parts.append(Markup("</details>"))
        elif line.strip():
            while end < len(lines) and lines[end].strip() and lines[end][0] not in "|-#<`!":
                end += 1
            parts.append(Markup("<p>{}</p>").format(_inline(" ".join(lines[at:end]))))
        at = end
    opened = sum(part.startswith("<details") for part in parts) - parts.count(Markup("</details>"))
    return _balanced(parts) if opened else Markup("\n").join(parts)


def _balanced(parts: list[Markup]) -> Markup:
    return Markup("\n").join(part for part in parts if "details" not in part[:10])


def _table(lines: list[str], number: int) -> Markup:
    rows = [_cells(line) for line in lines]
    ruled = len(rows) > 1 and all(re.fullmatch(r":?-+:?", cell) for cell in rows[1])
    right = [cell.endswith(":") for cell in rows[1]] if ruled else []

    def row(cells: list[str], tag: str) -> Markup:
        made = [
            Markup("<{0}{1}>{2}</{0}>").format(
                tag,
                Markup(' class="number"') if place < len(right) and right[place] else "",
                _inline(cell),
            )
            for place, cell in enumerate(cells)
        ]
        return Markup("<tr>{}</tr>").format(Markup("").join(made))

    body = rows[2:] if ruled else rows[1:]
    return Markup(
        '<div class="scroll" tabindex="0" role="region" aria-label="Table {}"><table><thead>{}</thead>'
        "<tbody>{}</tbody></table></div>"
    ).format(number, row(rows[0], "th"), Markup("").join(row(cells, "td") for cells in body))


def _cells(line: str) -> list[str]:
    inner = line.strip().removeprefix("|").removesuffix("|").replace("\\|", "\0")
    return [cell.strip().replace("\0", "|") for cell in inner.split("|")]


def _inline(text: str) -> Markup:
    out: list[str] = []
    last = 0
    text = printable(text)
    for found in _INLINE.finditer(text):
        out.append(escape(text[last : found.start()]))
        code, bold, label, address = found.groups()
        if code is not None:
            out.append(Markup("<code>{}</code>").format(code))
        elif bold is not None:
            out.append(Markup("<strong>{}</strong>").format(bold))
        elif re.match(r"https?://|#", address):
            out.append(Markup('<a href="{}" rel="noreferrer">{}</a>').format(address, label))
        else:
            out.append(escape(label))
        last = found.end()
    return Markup("").join([*out, escape(text[last:])])


def _picture(label: str, name: str, folder: Path, room: int) -> Markup:
    path = (folder / name).resolve()
    kind = {".svg": "svg+xml", ".png": "png"}.get(path.suffix)
    if kind is None or not path.is_relative_to(folder.resolve()) or not path.is_file():
        return Markup("<p>({})</p>").format(printable(label))
    if path.stat().st_size * 4 // 3 > room:
        return Markup("<p>({}: too large for this page)</p>").format(printable(label))
    data = base64.b64encode(path.read_bytes()).decode()
    return Markup('<figure><img alt="{}" src="data:image/{};base64,{}"/></figure>').format(
        printable(label), kind, data
    )
