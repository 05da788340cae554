"""The work of `backtalk score --labels`, `--card` and `--second`: how right a scorer is, how two differ."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from backtalk.audit.consent import Consent, agreed_judge
from backtalk.cli.score import MASKED_FROM, TOXIC, read_texts
from backtalk.data.labelled import PAIRS, LabelledText, load_labelled, load_pairs, read_labelled
from backtalk.errors import InputError
from backtalk.output_file import write_output
from backtalk.protocols import Scorer
from backtalk.report.console import plain_table
from backtalk.scorers.card import Area, Card, kappa, report_card
from backtalk.stats import Rate
from backtalk.terminal import make_console, printable, say
from backtalk.wording import count, mask, percent, percent_range, with_interval

SHIPPED = {"refusal": "refusals", "private": "private"}  # texts that a scorer of ours is measured on


def measure_scorer(
    path: Path | None,
    out: Path | None,
    scorer: str,
    second: str,
    labels: bool,
    card: bool,
    over: float | None,
    unmask: bool,
    device: str,
    consent: Consent,
) -> None:
    """The card of a scorer on a file's `labels` or on what ships, or where a `second` scorer differs."""
    if card and path is not None:
        raise InputError("--card measures on the texts that ship; for your own use --labels")
    if labels and path is None:
        raise InputError("--labels needs a file, not a pipe")
    if second and out is not None:
        raise InputError("--second prints where two scorers differ; leave --out out")
    threshold = TOXIC if over is None else over
    if second:
        texts = list(read_texts(path))  # fails on a bad file before a scorer is loaded
        if not texts:
            raise InputError(f"{path or 'standard input'} has no line to score")
        judges = [agreed_judge(name, device, consent) for name in (scorer, second)]
        compare_judges(judges, texts, threshold, unmask)
        return
    rows = read_labelled(path) if path else shipped_texts(scorer)
    loaded = agreed_judge(scorer, device, consent)
    cards = report_card(loaded, rows, threshold)
    say(f"{printable(loaded.name)} on {path or 'the texts that ship with backtalk'}, at {threshold:g}:")
    print_cards(cards)
    if out is not None:
        found = {name or "all": one.as_dict() for name, one in cards.items()}
        whole = {"scorer": loaded.name, "fingerprint": loaded.fingerprint, "cards": found}
        write_output(out, iter([json.dumps(whole, indent=1) + "\n"]))


def shipped_texts(scorer: str) -> list[LabelledText]:
    """Abuse and harmless texts of nearly the same words, unless the scorer looks for something else. For a
    canary: the harmless texts, each with the canary at its end and without it."""
    if name := SHIPPED.get(scorer):
        return load_labelled(name)
    kind, _, canary = scorer.partition(":")
    return [
        LabelledText(text, toxic, source=source)
        for source, name in PAIRS.items()
        for pair in load_pairs(name)
        for text, toxic in (
            (f"{pair.harmless} {canary}" if kind == "canary" else pair.abuse, True),
            (pair.harmless, False),
        )
    ]


def print_cards(cards: Mapping[str, Card]) -> None:
    console = make_console()
    table = plain_table("", "texts", "bad", "AUC", "precision", "recall", "false positives")
    for name, card in cards.items():
        rates = map(_share, (card.precision, card.recall, card.false_positives))
        table.add_row(printable(name) or "all", f"{card.texts:,}", f"{card.toxic:,}", _area(card.auc), *rates)
    console.print(table)
    error = f"{cards[''].calibration_error:.3f}"
    console.print(
        f"\nOf the texts with like scores, how many are bad (calibration error {error}). Intervals: 95%."
    )
    bins = plain_table("scores", "texts", "mean score", "really bad")
    for low, mean, bad in cards[""].bins:
        bins.add_row(f"{low:.1f} to {low + 0.1:.1f}", f"{bad.n:,}", f"{mean:.2f}", _share(bad))
    console.print(bins)


def _share(rate: Rate) -> str:
    return f"{percent(rate.rate)} ({percent_range(rate.low, rate.high)})" if rate.n else "-"


def _area(area: Area | None) -> str:
    return "-" if area is None else f"{area.value:.3f} ({area.low:.3f} to {area.high:.3f})"


def compare_judges(
    judges: Sequence[Scorer], texts: Sequence[tuple[int, str]], threshold: float, unmask: bool
) -> None:
    """Prints the texts that only one of two scorers rates bad, widest gap first, and then how well the two
    agree."""
    first, second = (judge.score([text for _, text in texts]).tolist() for judge in judges)
    verdicts = [[score >= threshold for score in own] for own in (first, second)]
    gaps = {place: abs(one - two) for place, (one, two) in enumerate(zip(first, second, strict=True))}
    differing = [place for place in gaps if verdicts[0][place] != verdicts[1][place]]
    for place in sorted(differing, key=lambda place: -gaps[place]):
        (number, text), one, two = texts[place], first[place], second[place]
        seen = text if unmask or max(one, two) < MASKED_FROM else mask(text)
        sys.stdout.write(f"{one:.4f}\t{two:.4f}\t{number}\t{printable(seen)}\n")
    sys.stdout.flush()
    over = [f"{printable(judge.name)} {sum(own):,}" for judge, own in zip(judges, verdicts, strict=True)]
    differ, agreement = Rate.of(len(differing), len(texts)), kappa(*verdicts)
    say(
        f"{count(len(texts), 'line')}; rated {threshold:g} or more: {' and '.join(over)}. They differ on "
        f"{differ.hits:,}, {with_interval(differ)}; Cohen's kappa {agreement:.2f}.",
        file=sys.stderr,
    )
