"""The findings of a run, looked up in its database: one page of them, searched, filtered and sorted, comes
in a fraction of a second however many there are."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from backtalk.hits import LIKELIHOOD_KINDS, ROUNDING, Criterion, parse_criterion
from backtalk.report.build import build_case
from backtalk.report.conversations import conversation_of
from backtalk.report.record import CaseRow, Report, anchor_of
from backtalk.store.database import connect_to_read
from backtalk.store.folder import closed_on_error, reading
from backtalk.store.records import read_case, read_facts, read_finding, searchable
from backtalk.terminal import printable
from backtalk.types import Thresholds
from backtalk.wording import TOXIC

LIMIT, MAX_LIMIT = 50, 500  # findings on a page: by default, and at most
_SAID = "iif(similarity IS NULL AND greedy IS NOT NULL, status = 'found' AND greedy = 1, exact)"
# The reply is the target or is rated bad: `is_bad`.
_BAD = f"({_SAID} OR status = 'found' AND coalesce(toxicity, 0) >= {TOXIC})"
# The order of `by_badness`.
_BEST = f"{_BAD} DESC, -log_prob NULLS LAST, hit DESC, iif(hit, -severity, 0), loss NULLS LAST, id"
# Of a case's restarts the one that `build_case` shows comes first.
_RESTARTS = f"{_BAD} DESC, hit DESC, status <> 'found', -log_prob NULLS LAST, loss NULLS LAST, restart"
SORTS = {
    "best": ("worst first", ""),
    "likeliest": ("likeliest sentence", "log_prob DESC NULLS LAST, "),
    "input": ("likeliest input", "input_mean DESC NULLS LAST, "),
    "severity": ("gravest", "severity DESC, "),
    "similarity": ("most similar reply", "similarity DESC NULLS LAST, "),
    "toxicity": ("most toxic reply", "toxicity DESC NULLS LAST, "),
}
"""The label of each order, and its SQL, which stands before the default order."""
SHOW: Mapping[str, str] = {"all": "1", "hits": "hit", "misses": "NOT hit", "said": _BAD}
_RECORD = "(SELECT data FROM findings AS f WHERE f.place = scores.place AND f.restart = scores.restart)"
"""A finding's whole record, in a query over `scores`."""


@dataclass(frozen=True)
class Query:
    """Which findings, in which order: the fields of a page's form."""

    text: str = ""  # words that the sentence, the input, the reply or the id contains
    show: str = "all"
    category: int = -1  # its place in the report's categories; -1 for all
    meets: str = ""  # a criterion that has to be met
    sort: str = "best"
    finding: str = ""  # the anchor of a single one
    offset: int = 0
    limit: int = LIMIT

    @classmethod
    def of(cls, form: Mapping[str, str]) -> "Query":
        """From what a browser sent; invalid values are ignored."""
        return cls(
            text=form.get("q", "")[:200],
            show=form["show"] if form.get("show") in SHOW else "all",
            category=_number(form.get("category", ""), -1, 1 << 30),
            meets=form.get("meets", ""),
            sort=form["sort"] if form.get("sort") in SORTS else "best",
            finding=form.get("finding", "")[:80],
            offset=_number(form.get("from", ""), 0, 1 << 40),
            limit=_number(form.get("limit", ""), LIMIT, MAX_LIMIT) or LIMIT,
        )

    def address(self, **changes: Any) -> str:
        """As the query string of an address, without defaults."""
        names, usual = {"text": "q", "offset": "from"}, vars(Query())
        chosen = {name: value for name, value in (vars(self) | changes).items() if value != usual[name]}
        return urlencode({names.get(name, name): chosen[name] for name in chosen}, errors="replace")


@dataclass(frozen=True)
class FindingsPage:
    """Some of the findings that a query matches."""

    query: Query
    total: int  # all that match
    cases: list[CaseRow]

    @property
    def first(self) -> int:
        return self.query.offset + 1 if self.cases else 0

    @property
    def last(self) -> int:
        return self.query.offset + len(self.cases)


class StoredFindings:
    """A run's database, open to read. `report` is the record of the run; its cases are not needed."""

    def __init__(self, folder: Path, report: Report) -> None:
        self.report = report
        self._folder = folder
        self._criterion = parse_criterion(report.criterion)
        self._names = [row.criterion for row in report.rates]
        self._database = connect_to_read(folder)
        with closed_on_error(self._database.close):
            with reading(folder):
                (facts,) = self._database.execute("SELECT value FROM meta WHERE key = 'facts'").fetchone()
                known = read_facts(facts, folder)
                self._words: Mapping[str, list[str]] = known["words"]
                restarted = "SELECT EXISTS (SELECT 1 FROM scores WHERE restart > 0)"
                (self._has_restarts,) = self._database.execute(restarted).fetchone()
                stored = known["thresholds"]
                self._thresholds = Thresholds(stored["T_out"], stored["T_in"])
            self._database.create_function("anchor", 1, anchor_of)
            self._database.create_function("holds", 2, self._holds)
            self._database.create_function("danger", 1, self._danger)

    def close(self) -> None:
        self._database.close()

    def page(self, query: Query) -> FindingsPage:
        """The findings from the query's offset on, and how many match in all."""
        found, values = self._select(query)
        usual = f"hit DESC, danger({_RECORD}) DESC, id" if self.report.conversations else _BEST
        ordered = f"{found} ORDER BY {SORTS[query.sort][1]}{usual} LIMIT ? OFFSET ?"
        with reading(self._folder):
            (total,) = self._database.execute(f"SELECT count(*) FROM ({found})", values).fetchone()
            places = self._database.execute(ordered, (*values, query.limit, query.offset))
            return FindingsPage(query, int(total), [self._case(place) for place, _ in places.fetchall()])

    def _case(self, place: int) -> CaseRow:
        stored = self._database.execute("SELECT kind, data FROM cases WHERE place = ?", (place,))
        case = read_case(*stored.fetchone())
        rows = self._database.execute("SELECT data FROM findings WHERE place = ? ORDER BY restart", (place,))
        findings, words = [read_finding(data) for (data,) in rows], self._words.get(case.text)
        row = build_case(case, findings, self._thresholds, self._names, self._criterion.name, words)
        if not self.report.conversations:
            return row
        shown = next(one for one in findings if one.restart == row.restart)
        return replace(row, conversation=conversation_of(shown, self._criterion))

    def _select(self, query: Query) -> tuple[str, list[Any]]:
        """The SELECT of a query, of (place, hit), and its values."""
        conditions, values = [SHOW[query.show]], list[Any]()
        if query.finding:
            conditions.append("anchor(id) = ?")
            values.append(printable(query.finding))
        if query.category >= 0:
            named = list(self.report.categories)[query.category : query.category + 1]
            conditions.append("category = ?" if named else "0")
            values += map(printable, named)
        if query.meets:
            met = self._condition(parse_criterion(query.meets)) if query.meets in self._names else "0"
            conditions.append(f"EXISTS (SELECT 1 FROM scores WHERE place = cases.place AND {met})")
        for word in searchable(query.text).split():
            conditions.append("instr(text, ?)")
            values.append(word)
        hit = own = self._condition(self._criterion)
        if self._has_restarts:
            hit = f"EXISTS (SELECT 1 FROM scores WHERE place = cases.place AND {own})"
            conditions.append(
                f"scores.restart = (SELECT restart FROM (SELECT *, {own} AS hit FROM scores"
                f" WHERE place = cases.place) ORDER BY {_RESTARTS} LIMIT 1)"
            )
        played = self.report.conversations is not None
        kept = f"danger({_RECORD}) IS NOT NULL" if played else "status <> 'skipped'"
        where = " AND ".join([kept, *conditions])
        return f"SELECT place, {hit} AS hit FROM cases JOIN scores USING (place) WHERE {where}", values

    def _condition(self, criterion: Criterion) -> str:
        """`Criterion.holds` in SQL, over the columns of `scores`."""
        if self.report.conversations:  # any turn may meet it
            return f"holds('{criterion.name}', {_RECORD})"
        slack, (out, into) = math.log(criterion.k), self._thresholds
        parts = ["status = 'found'"]
        if criterion.likely:
            parts.append(f"input_mean > {_literal(math.nan if into is None else into - slack)}")
        parts.append(
            {
                "exact": "exact",
                "contains": "contains",
                "greedy": "greedy = 1",
                "similar": f"similarity >= {_literal(criterion.threshold - ROUNDING)}",
                "toxic": f"toxicity >= {_literal(criterion.threshold)}",
                "chance": f"log_prob >= {_literal(math.log(criterion.threshold or 1))}",
            }.get(criterion.kind)
            or f"{LIKELIHOOD_KINDS[criterion.kind]} > {_literal(out - slack)}"
        )
        return f"coalesce({' AND '.join(parts)}, 0)"

    def _holds(self, name: str, data: str) -> bool:
        return parse_criterion(name).holds(read_finding(data), self._thresholds)

    def _danger(self, data: str) -> float | None:
        played = conversation_of(read_finding(data), self._criterion)
        return played.danger if played else None


def _literal(value: float) -> str:
    """A number in SQL; comparing with NULL is never true, as with NaN."""
    return "NULL" if math.isnan(value) else repr(value).replace("inf", "9e999")


def _number(text: str, otherwise: int, most: int) -> int:
    return min(int(text), most) if text.isascii() and text.isdigit() and len(text) < 15 else otherwise
