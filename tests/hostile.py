"""Strings that try to break out of where they are shown: a page, a terminal, a spreadsheet, a log.

All faces share them. Each that could run script would call `alert` or set `window.pwned`, so that a browser
test need only watch for these.
"""

from __future__ import annotations

from backtalk.types import Finding, SpokenTurn, Target

MARKUP = (
    "<script>alert(1)</script>",
    "</script><script>window.pwned=1</script>",
    "<ScRiPt>alert`1`</sCrIpT>",
    "<scr<script>ipt>alert(1)</scr</script>ipt>",
    '"><img src=x onerror=alert(1)>',
    "'><svg onload=alert(1)>",
    "<svg><animate onbegin=alert(1) attributeName=x dur=1s>",
    "<details open ontoggle=alert(1)>",
    "<input autofocus onfocus=alert(1)>",
    "<body onload=alert(1)>",
    '<iframe src="javascript:alert(1)"></iframe>',
    '<iframe srcdoc="<script>parent.pwned=1</script>"></iframe>',
    '<a href="javascript:alert(1)">click me</a>',
    '<a href="data:text/html,<script>alert(1)</script>">me too</a>',
    '<form action="javascript:alert(1)"><button>send</button></form>',
    '<meta http-equiv="refresh" content="0;url=javascript:alert(1)">',
    '<base href="https://example.invalid/">',
    '<link rel="stylesheet" href="https://example.invalid/x.css">',
    '<img src="https://example.invalid/pixel.png">',
    '<object data="javascript:alert(1)"></object>',
    "<style>*{display:none}</style>",
    "</style><style>body{background:url(https://example.invalid/)}",
    "</title><script>alert(1)</script>",
    "</textarea><script>alert(1)</script>",
    "<!--<script>alert(1)</script>-->",
    "<![CDATA[<script>alert(1)</script>]]>",
    "]]></system-out><x/>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "<template><script>alert(1)</script></template>",
    '<math><mtext></p><img src=x onerror="alert(1)">',
    '" autofocus onfocus="alert(1)" x="',
    "' onmouseover='alert(1)",
    "` onmouseover=`alert(1)`",
    "javascript:alert(1)",
    "\\u003cscript\\u003ealert(1)\\u003c/script\\u003e",
)
TEMPLATES = (
    "{{ 7 * 7 }}",
    "{% raw %}{{ config }}{% endraw %}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "${alert(1)}",
    "#{7*7}",
    "{0.__class__} %s %(name)s %n",
    "[bold red]rich markup[/bold red] [link=https://example.invalid]x[/link]",
)
CELLS = (
    '=HYPERLINK("https://example.invalid","win")',
    "=cmd|'/C calc'!A0",
    "+1+1",
    "-2+3+cmd|' /C calc'!A0",
    "@SUM(1+1)*cmd|' /C calc'!A0",
    "\t=1+1",
    "\r=1+1",
    "  =1+1",
    "＝1+1",
    'a","=1+1',
    'quo"te, comma; semi\nnew line\r\nand another',
)
TERMINAL = (
    "\x1b[31mred\x1b[0m",
    "\x1b]0;a new title\x07",
    "\x1b]8;;https://example.invalid\x1b\\a link\x1b]8;;\x1b\\",
    "\x1b[2J\x1b[1;1Hcleared",
    "\x9b31m and \x90 C1",
    "back\x08\x08\x08space and \x00 null",
    "over\rwritten",
)
INVISIBLE = (
    "left \u202eright\u202c to left",
    "isolate \u2066\u2067\u2069 done",
    "zero\u200bwidth\u200djoiner\ufeff",
    "\u200f\u061cmarks",
    "tags \U000e0041\U000e0042 and \u00ad soft",
    "z\u0335\u0321\u0322" * 40 + " zalgo",
    "line\u2028and paragraph\u2029separators",
)
BROKEN = (
    "half a pair \ud83d alone",
    "bytes \udcff\udc80 that are no UTF-8",
    "not a character \ufffe \U0010ffff",
    "",
    "   ",
)
HUGE = ("w" * 1_000_000, "<b>" * 300_000)

HOSTILE: tuple[str, ...] = (*MARKUP, *TEMPLATES, *CELLS, *TERMINAL, *INVISIBLE, *BROKEN)
"""All but the huge ones, which make a test slow where they are used for everything at once."""


def hostile_case(place: int, text: str) -> tuple[Target, Finding]:
    """A target, a trigger and a reply that are all this text, found and likely."""
    target = Target(f"h{place}", text, category=HOSTILE[place % len(HOSTILE)], severity=1 + place % 3)
    tokens = [-1.0] * (len(text.split()) + 1 if len(text) < 1000 else 2)
    scores = {"log_prob": sum(tokens), "mean": -1.0, "min": -1.0, "greedy": 0.0, "input_mean": -1.0}
    finding = Finding(
        case=target.id,
        restart=0,
        status="found",
        target=text,
        turns=(SpokenTurn("user", text), SpokenTurn(text, text))
        if place % 5 == 0
        else (SpokenTurn("user", text),),
        reply=text,
        scores={**scores, "loss": 0.0},
        series={"token_log_probs": tokens, "input_log_probs": tokens, "loss_by_sweep": [2.0, 0.0]},
        candidates=10,
        note=text,
    )
    return target, finding


def hostile_cases(huge: bool = True) -> tuple[list[Target], list[Finding]]:
    """Every string as target, trigger, reply, role, category and note."""
    texts = (*HOSTILE, *HUGE) if huge else HOSTILE
    pairs = [hostile_case(place, text) for place, text in enumerate(texts)]
    return [target for target, _ in pairs], [finding for _, finding in pairs]
