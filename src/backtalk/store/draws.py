"""The draws of a risk estimate in its run, a block a row. Only the unbroken run of blocks from the first is
read: dropping a slow block in between would bias the estimate."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from backtalk.store.database import DRAWS
from backtalk.store.folder import damaged, reading
from backtalk.store.records import as_json, read_object
from backtalk.store.run import Run

FACTS = "facts"  # the key of a block's facts in its metadata


class Block(NamedTuple):
    first: int  # the index of its first draw
    draws: int
    seconds: float
    arrays: dict[str, NDArray[Any]]
    facts: dict[str, Any]


class StoredDraws:
    def __init__(self, run: Run) -> None:
        self._run = run

    def done(self) -> int:
        """How many blocks from the first on are there."""
        numbers = [number for (number,) in self._select("block")]
        return next((place for place, number in enumerate(numbers) if place != number), len(numbers))

    def blocks(self) -> Iterator[Block]:
        for number in range(self.done()):
            yield self.block(number)

    def block(self, number: int) -> Block:
        (row,) = self._select("first, draws, seconds, data", "block = ?", (number,))
        with reading(self._run.folder):
            first, draws, seconds, data = row
            arrays = safetensors.numpy.load(data)
            facts = read_object(bytes(arrays.pop(FACTS)).decode("ascii"))
            if any(len(array) != draws for name, array in arrays.items() if not name.startswith("sum_")):
                raise damaged(self._run.folder, "a block of draws has lists of different lengths")
            return Block(int(first), int(draws), float(seconds), arrays, facts)

    def add(self, number: int, block: Block) -> None:
        """Stores a block in one transaction, unless it is there."""
        told = np.frombuffer(as_json(block.facts).encode("ascii"), np.uint8)
        data = safetensors.numpy.save({**block.arrays, FACTS: told})
        row = (number, block.first, block.draws, block.seconds, data)
        with self._run._transaction() as database:
            for table in DRAWS:
                database.execute(table.replace("TABLE", "TABLE IF NOT EXISTS"))
            database.execute("INSERT OR IGNORE INTO draws VALUES (?, ?, ?, ?, ?)", row)

    def seconds(self) -> float:
        return sum(float(seconds) for (seconds,) in self._select("seconds"))

    def _select(self, columns: str, condition: str = "1", values: tuple[Any, ...] = ()) -> list[Any]:
        """Rows of a table that may not exist yet."""
        with reading(self._run.folder):
            if not self._run._database.execute("PRAGMA table_info(draws)").fetchone():
                return []
            query = f"SELECT {columns} FROM draws WHERE {condition} ORDER BY block"
            return self._run._database.execute(query, values).fetchall()
