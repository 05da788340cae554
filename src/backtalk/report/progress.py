"""Progress of an audit on a terminal: messages, and a bar once the search has begun."""

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.status import Status

from backtalk.terminal import printable
from backtalk.types import Progress


class Shown:
    """Draws the messages and counts of an audit inside a `with`; the bar stays at the end."""

    def __init__(self, console: Console, noun: str = "cases") -> None:
        self._console, self._noun = console, noun
        self._status: Status | None = None
        self._bar: Bar | None = None

    def __call__(self, told: Progress) -> None:
        if told.message and told.passing and self._console.is_terminal:
            self._status = self._status or self._console.status("")
            self._status.start()
            self._status.update(printable(told.message.strip()))
        elif told.message:
            self._console.print(printable(told.message), markup=False, highlight=False)
        if told.total:
            self._count(told.done, told.total)

    def _count(self, done: float, total: int) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None
        if self._bar is None:
            columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
            self._bar = Bar(
                *columns, TextColumn(f"{self._noun}, left"), TimeRemainingColumn(), console=self._console
            )
            self._bar.add_task("searching" if self._noun == "cases" else "reading", total=total)
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=done)
        if done == total:
            self.stop()

    def __enter__(self) -> "Shown":
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def stop(self) -> None:
        for drawn in (self._status, self._bar):
            if drawn is not None:
                drawn.stop()
        self._status = self._bar = None
