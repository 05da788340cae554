"""The page of the study of `backtalk risk`: coverage, rare outputs, forecasts."""

from __future__ import annotations

from textwrap import wrap

from reproduction.page import NOTHING, Found, Page, number, section, table
from reproduction.risks.pictures import METHODS, SCHEMES, draw_estimates, draw_intervals

TITLE = "# How often will it really happen?"
HEAD = """`backtalk risk` estimates how often a model says a listed sentence to inputs of a given
distribution. This page tests what it promises: whether its bounds hold, how its estimates compare with
published methods for rare outputs, and how well the risk of the worst input can be forecast. Truths are
sums over all inputs of models so small that every input can be read, or the largest of many inputs that
were read."""
WORLD = """A dialogue LSTM of 20 words and hidden size {hidden}, trained on made-up pairs, with its
language model. All inputs of at most four words are read, so the risk is known. Each row repeats the
estimate with other random numbers and counts how often an interval holds the truth. The two bounds
together promise 95%: each may fail in 2.5% of the seeds. The normal interval promises 95%; it stands in
bold where it holds in fewer than 90%."""
BLIND = """A proposal that never saw the trigger draws about as rarely there as p does. A sample without a
triggered input shows no sign of it, and its normal interval is narrow and wrong: with {n:,} draws it
holds in {blind} of {seeds} seeds. Plain draws fail in the same way. The bounds hold in both. The upper
bound is wide because it allows for what was not seen, and only more draws narrow it."""
LEARNT = """A proposal that the command's own pilot learnt found the trigger, but it is fitted to a few
thousand inputs and leaves some risky ones to p. Their weights are large, so the normal interval is too
narrow: it holds in {learnt} of {seeds} seeds with {n:,} draws, where a proposal fitted to all inputs
gives {fitted}."""
METHOD = """The setting of Wu & Hilton (ICLR 2025), small enough to know the truth: inputs of four
independent tokens. A method may read {budget:,} of the 194,481. ITGIS and MHIS are written from the
paper's description. Ours is the pilot and the mixture of `backtalk risk`; at most half of its budget goes
to the pilot. The loss is the paper's, p/q - ln(p/q) - 1. An estimate of 0 has an infinite loss, so the
loss is also shown after the paper's fit: an estimate q becomes a q^c + b, fitted to the other outputs."""
PARTS = {
    "tokens": (
        "The likeliest first token",
        "How often a token is the likeliest first one of the reply, in {networks} LSTMs with random weights; "
        "all tokens whose share is from {least:g} to {most:g}. The risk of an input is 0 or 1; our pilot "
        "climbs exp(margin / T), which is 1 at a hit.",
        "temperatures",
    ),
    "sentences": (
        "Listed sentences",
        "The mean chance of a whole sentence, for each listed one in the two trained models above. The risk "
        "of an input is its exact probability, for every method. ITGIS and MHIS climb its logarithm, "
        "our pilot the probability.",
        "sentence-temperatures",
    ),
}
FORECAST = """The tails of Jones et al. (2025), fitted to the exact chances of a sentence after {seen:,}
inputs, and compared with what more inputs really hold: `chitchat`, {inputs:,} inputs from its own
language model, and {sentences} sentences of the shipped list. An error is log10(forecast / truth)."""
LEAST_HELD = 0.9


def page_lines(page: Page) -> list[str]:
    if not page.records:
        return [TITLE, "", "Nothing has been run yet."]
    return [
        TITLE,
        "",
        *words(HEAD),
        *section("Coverage", _coverage(page)),
        *section("Rare outputs: ITGIS, MHIS and ours", _rare(page)),
        *section("Forecasts of the worst input", _forecasts(page)),
        *section("How it was run", _how(page)),
    ]


def words(text: str) -> list[str]:
    """A paragraph."""
    return [*wrap(" ".join(text.split()), 108, break_on_hyphens=False), ""]


def _coverage(page: Page) -> list[str]:
    lines = words(WORLD.format(hidden=page.size.world.hidden))
    for name, title in (("natural", "Without a backdoor"), ("backdoor", "With a backdoor")):
        found = page.get(name)
        lines += [f"### {title}", "", *(_world(found) + _held(found) if found else NOTHING)]
    if found := page.get("backdoor"):
        draw_intervals(page.pictures / "intervals.svg", found)
        said = "With a backdoor: medians of bounds (thin) and normal intervals (thick) over the truth"
        lines += page.picture("intervals.svg", said)
        n, seeds = min(row["n"] for row in found["rows"]), found["rows"][0]["seeds"]
        normal = {row["draws"]: row["normal"] for row in found["rows"] if row["n"] == n}
        lines += words(BLIND.format(n=n, seeds=seeds, **normal))
        if all(row["proposals"] for row in found["rows"] if row["draws"] == "learnt"):
            lines += words(LEARNT.format(n=n, seeds=seeds, **normal))
    return lines


def _world(found: Found) -> list[str]:
    said = f"{found['inputs']:,} inputs; {1e6 * found['truth']:.3g} listed replies per million turns"
    if found["trigger_share"] > 0.01:
        said += (
            f", {found['trigger_share']:.0%} of them after inputs with the trigger, which are "
            f"{1e6 * found['trigger']:.3g} in a million"
        )
    return words(
        f"{said}. The standard deviation of the risk over inputs is {found['cv']:.3g} times its mean."
    )


def _held(found: Found) -> list[str]:
    header = ["draws from", "draws", *(f"{name} holds" for name in ("lower", "upper", "normal"))]
    header += ["estimate", "lower", "upper", "normal"]
    rows = []
    for row in found["rows"]:
        medians, normal = row["medians"], f"{row['normal']}"
        held = [f"{row['lower']}", "none" if row["upper"] is None else f"{row['upper']}"]
        held += [normal if row["normal"] >= LEAST_HELD * row["seeds"] else f"**{normal}**"]
        numbers = [f"{medians['estimate']:.2f}", f"{medians['lower']:.2f}", number(medians["upper"])]
        numbers += [f"{medians['normal_low']:.2f} to {medians['normal_high']:.2f}"]
        rows.append([SCHEMES[row["draws"]], f"{row['n']:,}", *held, *numbers])
    pilots = {row["draws"]: row for row in found["rows"] if row["draws"].startswith("learnt")}
    learnt = "; ".join(f"{row['proposals']} of {row['of']} ({SCHEMES[name]})" for name, row in pilots.items())
    said = (
        f"Holds: of {found['rows'][0]['seeds']} seeds. The last four columns are medians over the truth. "
        f"Pilots that ended with a proposal: {learnt}; where plain draws are worth a fifth of equal ones, "
        "none is used."
    )
    return [*table(header, rows), *words(said)]


def _rare(page: Page) -> list[str]:
    size = page.size
    lines = words(METHOD.format(budget=size.budget))
    for part, (title, said, tuned) in PARTS.items():
        lines += [f"### {title}", ""]
        if not (found := page.get(part)):
            lines += NOTHING
            continue
        lines += words(said.format(networks=size.networks, least=size.least, most=size.most))
        lines += _methods(found) + _temperatures(page.get(tuned))
        draw_estimates(page.pictures / f"{part}.svg", found)
        caption = f"{title}: estimates against the truth; those of 0 on the lower edge"
        lines += page.picture(f"{part}.svg", caption)
    return lines


def _temperatures(chosen: Found) -> list[str]:
    tried = "; ".join(
        f"{METHODS[name]} {chosen['chosen'][name]:g} of {', '.join(losses)}"
        for name, losses in chosen["losses"].items()
        if len(losses) > 1
    )
    return words(f"Temperatures are those with the least loss on {chosen['n']} other problems: {tried}.")


def _methods(found: Found) -> list[str]:
    header = ["method", "outputs", "estimates of 0", "within a factor of 2", "median loss"]
    header += ["loss after the fit", "error of the others, log10"]
    rows = []
    for name, one in found["methods"].items():
        median = "infinite" if one["median_loss"] is None else number(one["median_loss"])
        losses = [median, number(one["fitted_loss"]), number(one["log10_error"])]
        rows.append([METHODS[name], *(f"{one[key]}" for key in ("n", "zeros", "within_2")), *losses])
    held, n = found["ours"], len(found["truths"])
    said = (
        f"The intervals of ours: the lower bound holds for {held['lower']} of {n} outputs, the upper bound "
        f"for {held['upper']}, the normal interval for {held['normal']}. ITGIS and MHIS have none."
    )
    return [*table(header, rows), *words(said)]


def _forecasts(page: Page) -> list[str]:
    found, size = page.get("forecasts"), page.size
    if not found:
        return NOTHING
    header = ["what", "forecast", "forecasts", "mean error", "median", "within a factor of 10", "too low"]
    rows, furthest = [], list(found["ahead"])[-1]
    for ahead, fits in found["ahead"].items():
        kinds = {"largest": f"the largest chance of {int(ahead):,}"}
        if ahead == furthest:
            kinds["share"] = f"the share above the chance that 1 in {1 / size.rare:,.0f} exceeds"
        for kind, said in kinds.items():
            for name, one in ((name, one[kind]) for name, one in fits.items()):
                numbers = [f"{one['n']:,}", f"{one['error']:.2f}", f"{one['median']:+.2f}"]
                rows.append([said, name, *numbers, f"{one['within_10']:.0%}", f"{one['too_low']:.0%}"])
    told = FORECAST.format(seen=size.seen, inputs=size.inputs, sentences=found["sentences"])
    return [*words(told), *table(header, rows, words=2)]


def _how(page: Page) -> list[str]:
    records = page.records
    flags = "" if page.spec.size == "paper" else f" --size {page.spec.size}"
    machines = {f"{one['device']}, torch {one['versions']['torch']}" for one in records.values()}
    rows = [[name, f"{records[name]['seconds']:,.0f}"] for name in page.parts if name in records]
    missing = [name for name in page.parts if name not in records]
    return [
        *("```", f"python -m reproduction risks{flags}", "```", ""),
        *words(f"Machines: {'; '.join(sorted(machines))}. Seconds are of one thread of a shared machine."),
        *table(["part", "seconds"], rows),
        *([f"Not run: {', '.join(missing)}.", ""] if missing else []),
    ]
