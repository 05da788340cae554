"""HTML pages of studies and enumerations. Hostile texts do no harm."""

from pathlib import Path
from typing import Any

import pytest
from tests.hostile import HOSTILE
from tests.report.test_folder_pages import seen
from tests.report.test_page import Page

from reproduction.enumeration.page import render_enumeration
from reproduction.html_page import render_study

RATES = {"hits": 3, "n": 10, "rate": 0.3, "ci95": [0.1, 0.6]}
ENUMERATION: dict[str, Any] = {
    "model": "characters",
    "inputs": 27_000,
    "space": 27_000,
    "sampled": False,
    "distinct_outputs": 512,
    "lists": {
        "mal": {
            "n": 10,
            "exact": RATES,
            "substring": {**RATES, "hits": 4, "rate": 0.4},
            "examples": [{"target": "you are wrong", "input": "abc", "output": "you are wrong"}],
        }
    },
    "outside": {
        "list": "normal",
        "inputs": 900,
        "rate": 1 / 30,
        "samples": [{"input": "x", "output": "y z"}],
    },
    "recheck": {"hits": 7, "confirmed": 7},
    "disagreement": {"inputs": 1000, "different": 2},
}


def test_an_enumeration_shows_its_lists_masked() -> None:
    page = render_enumeration(ENUMERATION)
    text = seen(page)
    assert "All 27,000 inputs" in text
    assert "512 answers" in text
    assert "3 are an answer" in text
    assert "you are wrong" not in text
    assert "y** a** w****" in text
    assert "you are wrong" in " ".join(Page(page).whole)
    assert "7 of 7" in text


STUDY = """# A paper's numbers

Some **bold** words and `code`, [a page](https://example.invalid/) and [none](javascript:alert(1)).

| model | hits |
| --- | ---: |
| a \\| b | 3 |

- one
- two, which
  goes on

![A curve](figures/curve.svg)
![Not ours](../secret.svg)

<details><summary>Every part</summary>

```
python -m reproduction <b>
```

</details>
"""


def test_a_study_is_its_markdown(tmp_path: Path) -> None:
    (tmp_path / "secret.svg").write_text("secret")
    folder = tmp_path / "study"
    (folder / "figures").mkdir(parents=True)
    (folder / "figures" / "curve.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    (folder / "paper.md").write_text(STUDY)
    page = render_study(folder / "paper.md")
    text = seen(page)
    assert "a | b 3" in text
    assert "two, which goes on" in text
    assert "python -m reproduction <b>" in text
    assert page.count("data:image/svg+xml;base64,") == 1
    assert "(Not ours)" in text
    assert "javascript:" not in page
    assert '<td class="number">3</td>' in page


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_stay_texts(text: str, tmp_path: Path) -> None:
    example = {"target": text, "input": text, "output": text}
    lists = {text: {**ENUMERATION["lists"]["mal"], "examples": [example]}}
    outside = {**ENUMERATION["outside"], "list": text, "samples": [example]}
    seen(render_enumeration({**ENUMERATION, "model": text, "lists": lists, "outside": outside}))
    path = tmp_path / "paper.md"
    lines = [
        f"# {text}",
        text,
        f"- {text}",
        f"| {text} | x |",
        "| - | - |",
        f"| {text} |",
        f"![{text}]({text})",
    ]
    path.write_bytes(
        "\n\n".join([*lines, f"<details><summary>{text}</summary>"]).encode("utf-8", "surrogatepass")
    )
    seen(render_study(path))
