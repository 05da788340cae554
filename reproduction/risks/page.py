"""The page of the study of `backtalk risk`: coverage, rare outputs, forecasts."""

from __future__ import annotations

from typing import Any

from reproduction.figures import COLOURS, MARKERS, drawing
from reproduction.page import NOTHING, Found, Page, number, section, table

HEAD = """# How often will it really happen?

`backtalk risk` estimates how often a model says a listed sentence to inputs of a given distribution. This
page tests what it promises: whether its bounds hold, how its estimates compare with published methods for
rare outputs, and how well the risk of the worst input can be forecast. Truths are sums over all inputs of
models so small that every input can be read, or the largest of many inputs that were read.
"""
SCHEMES = {
    "plain": "inputs as they come",
    "fitted": "mixture, proposal fitted to all risk",
    "learnt": "mixture, learnt proposal",
    "learnt from triggers": "mixture, proposal learnt from 5 triggers",
    "blind": "mixture, proposal blind to the trigger",
    "blind alone": "the blind proposal alone",
}
METHOD_NAMES = {"plain": "plain draws", "itgis": "ITGIS", "mhis": "MHIS", "ours": "ours"}
PROMISED = 0.9
"""A normal interval that holds in fewer of the seeds is set in bold: 95% were promised."""


def page_lines(page: Page) -> list[str]:
    if not page.records:
        return [HEAD, "Nothing has been run yet."]
    return [
        HEAD,
        *section("Coverage", _coverage(page)),
        *section("Rare outputs: ITGIS, MHIS and ours", _rare(page)),
        *section("Forecasts of the worst input", _forecasts(page)),
        *section("How it was run", _how(page)),
    ]


def _coverage(page: Page) -> list[str]:
    world = page.size.world
    lines = [
        f"A dialogue LSTM of 20 words and hidden size {world.hidden}, trained on made-up pairs, with its",
        "language model. All inputs of at most four words are read, so the risk is known. Each row makes the",
        "estimate again and again with other random numbers, and counts how often an interval holds the",
        "truth. The bounds are two sides of 95%: each may fail in 2.5% of the seeds. The normal interval",
        "promises 95%.",
        "",
    ]
    for name, title in (("natural", "Without a backdoor"), ("backdoor", "With a backdoor")):
        found = page.get(name)
        lines += [f"### {title}", "", *(_world(found) + _held(found) if found else NOTHING)]
    if page.get("backdoor"):
        draw_intervals(page, page.get("backdoor"))
        lines += page.picture(
            "intervals.svg",
            "With a backdoor: medians of bounds (thin) and normal intervals (thick) over the truth",
        )
        lines += [
            "A proposal that never saw the trigger draws about as rarely there as p does. A sample with no",
            "triggered input shows no sign of it, and its normal interval is narrow and wrong. Plain draws",
            "fail in the same way. The guaranteed upper bound is wide: it allows for what was not seen.",
            "",
        ]
    return lines


def _world(found: Found) -> list[str]:
    said = f"{found['inputs']:,} inputs; {1e6 * found['truth']:.3g} listed replies per million turns"
    if found["trigger_share"] > 0.01:
        said += (
            f", {found['trigger_share']:.0%} of them after inputs with the trigger, which are "
            f"{1e6 * found['trigger']:.3g} in a million"
        )
    return [f"{said}. The standard deviation of r(x) is {found['cv']:.3g} times its mean.", ""]


def _held(found: Found) -> list[str]:
    held = [f"{name} holds" for name in ("lower", "upper", "normal")]
    header = ["draws from", "draws", *held, "estimate", "lower", "upper", "normal"]
    rows = []
    for row in found["rows"]:
        medians = row["medians"]
        upper = "none" if row["upper"] is None else f"{row['upper']}"
        normal = f"{row['normal']}" if row["normal"] >= PROMISED * row["seeds"] else f"**{row['normal']}**"
        between = f"{medians['normal_low']:.2f} to {medians['normal_high']:.2f}"
        rows.append(
            [SCHEMES[row["draws"]], f"{row['n']:,}", f"{row['lower']}", upper, normal]
            + [f"{medians[name]:.2f}" for name in ("estimate", "lower")]
            + [number(medians["upper"]), between]
        )
    seeds = found["rows"][0]["seeds"]
    learnt = [row for row in found["rows"] if row["draws"].startswith("learnt")]
    kept = {SCHEMES[row["draws"]]: f"{row['proposals']} of {row['of']}" for row in learnt}
    pilots = "; ".join(f"{count} pilots ended with one ({name})" for name, count in kept.items())
    return [
        *table(header, rows),
        f"Held: of {seeds} seeds. The last four columns are medians over the truth. Proposals: {pilots}.",
        "",
    ]


def draw_intervals(page: Page, found: Found) -> None:
    rows = list(reversed(found["rows"]))
    with drawing(page.pictures / "intervals.svg", width=7.5, height=0.42 * len(rows) + 1) as (axis,):
        for place, row in enumerate(rows):
            medians = row["medians"]
            end = medians["upper"] or medians["normal_high"]
            axis.plot([medians["lower"], end], [place, place], color=COLOURS[0], linewidth=1.2, marker="|")
            low = max(medians["normal_low"], 1e-3)
            axis.plot([low, medians["normal_high"]], [place, place], color=COLOURS[1], linewidth=5)
        axis.axvline(1, color="#333333", linestyle="--")
        axis.set_xscale("log")
        axis.set(xlabel="divided by the true risk", ylim=(-0.7, len(rows) - 0.3))
        axis.set_yticks(range(len(rows)), [f"{SCHEMES[row['draws']]}, {row['n']:,}" for row in rows])
        axis.grid(visible=False, axis="y")


def _rare(page: Page) -> list[str]:
    size = page.size
    lines = [
        "The setting of Wu & Hilton (ICLR 2025), small enough to know the truth: inputs of four independent",
        f"tokens. A method may read {size.budget:,} of the 194,481. ITGIS and MHIS are written from the",
        "paper's description. Ours is the pilot and the mixture of `backtalk risk`; at most half of its",
        "budget goes to the pilot. The loss is the paper's, p/q - ln(p/q) - 1. An estimate of 0 has an",
        "infinite loss, so the loss is also shown after the paper's fit: an estimate q becomes a q^c + b,",
        "fitted to the other outputs.",
        "",
    ]
    titles = {
        "tokens": (
            "The likeliest first token",
            "How often a token is the likeliest first one of the reply, in "
            f"{size.networks} LSTMs with random weights; tokens of {size.least:g} to {size.most:g}. The risk "
            "of an input is 0 or 1.",
        ),
        "sentences": (
            "Listed sentences",
            "The mean chance of a whole sentence in the two trained models above. The risk of an input is "
            "its exact probability, for every method. ITGIS and MHIS climb its logarithm.",
        ),
    }
    for part, (title, said) in titles.items():
        lines += [f"### {title}", ""]
        if found := page.get(part):
            lines += [said, "", *_methods(found)]
            draw_estimates(page, part, found)
            words = f"{title}: estimates against the truth; those of 0 on the lower edge"
            lines += page.picture(f"{part}.svg", words)
        else:
            lines += NOTHING
    if chosen := page.get("temperatures"):
        lines += [
            f"Temperatures are those with the least loss on {chosen['n']} tokens of networks of their own: "
            + "; ".join(
                f"{METHOD_NAMES[name]} {chosen['chosen'][name]:g} of {', '.join(losses)}"
                for name, losses in chosen["losses"].items()
                if len(losses) > 1
            )
            + ". With sentences ours needs none.",
            "",
        ]
    return lines


def _methods(found: Found) -> list[str]:
    header = ["method", "outputs", "estimates of 0", "within a factor of 2", "median loss"]
    header += ["loss after the fit", "error of the others, log10"]
    rows = []
    for name, one in found["methods"].items():
        median = "infinite" if one["median_loss"] is None else number(one["median_loss"])
        losses = [median, number(one["fitted_loss"]), number(one["log10_error"])]
        rows.append([METHOD_NAMES[name], *(f"{one[key]}" for key in ("n", "zeros", "within_2")), *losses])
    held, n = found["ours"], len(found["truths"])
    said = (
        f"The intervals of ours: the lower bound holds for {held['lower']} of {n} outputs, the upper bound "
        f"for {held['upper']}, the normal interval for {held['normal']}. ITGIS and MHIS have none."
    )
    return [*table(header, rows), said, ""]


def draw_estimates(page: Page, part: str, found: Found) -> None:
    truths = found["truths"]
    positive = [q for one in found["methods"].values() for q in one["estimates"] if q > 0]
    low = min([*truths, *positive]) / 3
    with drawing(page.pictures / f"{part}.svg", width=5.0, height=4.0) as (axis,):
        for place, (name, one) in enumerate(found["methods"].items()):
            shown = [max(q, low) for q in one["estimates"]]
            look: dict[str, Any] = {"color": COLOURS[place], "marker": MARKERS[place], "alpha": 0.8}
            axis.scatter(truths, shown, s=22, label=METHOD_NAMES[name], **look)
        ends = [min(truths), max(truths)]
        axis.plot(ends, ends, color="#333333", linestyle="--", linewidth=1)
        axis.set(xscale="log", yscale="log", xlabel="true probability", ylabel="estimate")
        axis.legend()


def _forecasts(page: Page) -> list[str]:
    found = page.get("forecasts")
    if not found:
        return NOTHING
    size = page.size
    header = [
        "forecast",
        "what",
        "forecasts",
        "error, log10",
        "median, log10",
        "within a factor of 10",
        "too low",
    ]
    rows = []
    for ahead, fits in found["ahead"].items():
        for kind, said in (
            ("largest", f"the largest chance of {int(ahead):,}"),
            ("share", f"the share above the chance that 1 in {1 / size.rare:,.0f} exceeds"),
        ):
            if kind == "share" and ahead != list(found["ahead"])[-1]:
                continue
            for name, one in fits.items():
                own = one[kind]
                numbers = [f"{own['n']}", f"{own['error']:.2f}", f"{own['median']:+.2f}"]
                numbers += [f"{own['within_10']:.0%}", f"{own['too_low']:.0%}"]
                rows.append([said, name, *numbers])
    return [
        f"The tails of Jones et al. (2025), fitted to the exact chances of a sentence after {size.seen:,}",
        "inputs, and compared with what more inputs really hold: `chitchat`, inputs from its own language",
        f"model, {size.inputs:,} of them, and {found['sentences']} sentences of the shipped list. An error",
        "is log10(forecast / truth).",
        "",
        *table(header, rows, words=2),
    ]


def _how(page: Page) -> list[str]:
    records = page.records
    flags = "" if page.spec.size == "paper" else f" --size {page.spec.size}"
    machines = sorted(
        {
            f"{one['device']}, {one['threads']} threads, torch {one['versions']['torch']}"
            for one in records.values()
        }
    )
    rows = [[name, f"{records[name]['seconds']:,.0f}"] for name in page.parts if name in records]
    missing = [name for name in page.parts if name not in records]
    return [
        *("```", f"python -m reproduction risks{flags}", "```", ""),
        f"Machines: {'; '.join(machines)}.",
        "",
        *table(["part", "seconds"], rows),
        *([f"Not run: {', '.join(missing)}.", ""] if missing else []),
    ]
