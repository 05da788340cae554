"""Likelihood against toxicity as inline SVG in the manner of the other charts: a point a run, the front drawn
through those that no other beats in both. Points are numbered for a list below, not told apart by colour."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from backtalk.report.record import Player
from backtalk.terminal import printable
from backtalk.wording import percent, shorten

LEFT, WIDE = 12.0, 84.0
"""The plot's left edge and width, in percent."""
TOP, HIGH = 12, 220
"""Its top and height, in pixels."""


def pareto_chart(players: Sequence[Player]) -> Markup:
    """Likelier prompts stand further right, a more toxic defender further up."""
    if not players:
        return Markup("")
    most = max(player.log_ppl for player in players)
    least = min(player.log_ppl for player in players)
    room = max(0.1 * (most - least), 0.1)
    least, most = max(0.0, least - room), most + room
    top = next((end for end in (0.05, 0.1, 0.25, 0.5) if max(p.toxicity for p in players) < 0.95 * end), 1.0)

    def x(player: Player) -> float:
        return (most - player.log_ppl) / (most - least)

    def y(player: Player) -> float:
        return player.toxicity / top

    grid = [
        Markup(
            '<line class="grid" x1="12%" x2="96%" y1="{y:.1f}" y2="{y:.1f}"/>'
            '<text class="axis" x="11%" y="{base:.1f}" text-anchor="end">{value:g}</text>'
        ).format(y=_down(share), base=_down(share) + 4, value=round(share * top, 4))
        for share in (0.0, 0.5, 1.0)
    ]
    ticks = [
        Markup('<text class="axis" x="{x}" y="{y}" text-anchor="middle">{value:.2f}</text>').format(
            x=_across(share), y=TOP + HIGH + 18, value=most - share * (most - least)
        )
        for share in (0.0, 0.5, 1.0)
    ]
    front = sorted((player for player in players if player.on_front), key=x)
    points = " ".join(f"{1000 * x(one):.1f},{1000 * (1 - y(one)):.1f}" for one in front)
    right = sorted(players, key=x, reverse=True)[::2]
    dots = [
        Markup(
            '<circle class="dot" cx="{x}" cy="{y:.1f}" r="4"><title>{words}</title></circle>'
            '<text class="axis" x="{x}" dx="{aside}" y="{base:.1f}" text-anchor="{anchor}">{number}</text>'
        ).format(
            x=_across(x(player)),
            y=_down(y(player)),
            # Neighbours have their numbers on different sides.
            aside=7 if player in right else -7,
            anchor="start" if player in right else "end",
            base=_down(y(player)) - 4,
            number=place,
            words=player_words(player),
        )
        for place, player in enumerate(players, 1)
    ]
    return Markup(
        '<svg class="curve" role="img" width="100%" height="{height}"><title>{spoken}</title>{grid}{ticks}'
        '<text class="axis" x="54%" y="{under}" text-anchor="middle">log-perplexity of the prompts</text>'
        '<svg x="12%" y="{top}" width="84%" height="{high}" viewBox="0 0 1000 1000" '
        'preserveAspectRatio="none"><polyline class="line" points="{points}"/></svg>{dots}</svg>'
    ).format(
        height=TOP + HIGH + 44,
        spoken="; ".join(player_words(player) for player in players),
        grid=Markup("").join(grid),
        ticks=Markup("").join(ticks),
        under=TOP + HIGH + 36,
        top=TOP,
        high=HIGH,
        points=points,
        dots=Markup("").join(dots),
    )


def player_words(player: Player) -> str:
    """A point in words."""
    where = ", on the front" if player.on_front else ""
    name = shorten(printable(player.name), 60)
    prompts = f"{percent(player.different)} of the prompts different, {percent(player.loops)} in circles"
    return f"{name}: toxicity {player.toxicity:.3f}, log-perplexity {player.log_ppl:.2f}, {prompts}{where}"


def _across(share: float) -> str:
    return f"{LEFT + WIDE * share:.2f}%"


def _down(share: float) -> float:
    return TOP + HIGH * (1 - share)
