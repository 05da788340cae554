"""A folder that a command writes takes the place of the old one, whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from safetensors import SafetensorError

from backtalk.errors import InputError
from backtalk.store.folder import replaced_folder


def fill_the_disk(folder: Path) -> None:
    with replaced_folder(folder, "make room") as new:
        assert not any(new.iterdir())
        raise SafetensorError("no room")


def test_a_folder_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "model"
    with replaced_folder(folder, "make room") as new:
        (new / "weights").write_text("first")
        assert not folder.exists()
    (tmp_path / "run" / "model.partial").mkdir()  # of a process that was killed
    (tmp_path / "run" / "model.partial" / "weights").write_text("half")
    with pytest.raises(InputError, match=r"can't write to .*run.* \(no room\); make room"):
        fill_the_disk(folder)
    assert (folder / "weights").read_text() == "first"
    with replaced_folder(folder, "make room") as new:
        (new / "others").write_text("second")
    assert [path.name for path in folder.iterdir()] == ["others"]
    assert [path.name for path in folder.parent.iterdir()] == ["model"]
