"""Checkpoints: what a training saves comes back, and a full disk, other facts or damage are clear errors."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from backtalk.errors import InputError
from backtalk.training.resumable import Resumable, load_checkpoint, save_checkpoint
from tests.killing import files_no_larger_than


@dataclass
class Counters:
    step: int = 0
    seen: list[str] = field(default_factory=list)


class Extra:
    value = torch.zeros(2)

    def tensors(self) -> dict[str, Tensor]:
        return {"own": self.value}

    def fill(self, tensors: dict[str, Tensor]) -> None:
        self.value = tensors["own"]


def training(path: Path, extra: Extra | None = None, every_s: float = 0.0, rate: float = 0.1) -> Resumable:
    torch.manual_seed(0)
    network = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(network.parameters(), rate, momentum=0.9)
    names = {"rate": "the rate"}
    return Resumable(path, {"rate": rate, "a": 1}, network, optimizer, Counters(), extra, every_s, names)


def update(one: Resumable) -> None:
    assert isinstance(one.counters, Counters)
    one.optimizer.zero_grad()
    one.network(torch.tensor([[1.0, -1.0]])).sum().backward()
    one.optimizer.step()
    one.counters.step += 1
    one.counters.seen.append(f"step {one.counters.step}")


def test_what_was_saved_comes_back(tmp_path: Path) -> None:
    first = training(tmp_path / "c", Extra())
    first.restore()
    assert first.counters == Counters(), "there is no checkpoint yet"
    update(first)
    assert first.extra is not None
    first.extra.fill({"own": torch.tensor([1.0, 2.0])})
    first.save()
    update(first)
    second = training(tmp_path / "c", Extra())
    second.restore()
    assert second.counters == Counters(1, ["step 1"])
    assert second.extra is not None
    assert second.extra.tensors()["own"].tolist() == [1.0, 2.0]
    update(second)  # with the momentum of the first update
    for one, other in zip(first.network.parameters(), second.network.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_checkpoint_is_made_when_it_is_due(tmp_path: Path) -> None:
    rare = training(tmp_path / "rare", every_s=1e9)
    rare.save_if_due()
    assert not (tmp_path / "rare").exists()
    training(tmp_path / "each").save_if_due()
    assert (tmp_path / "each").exists()


def test_other_facts_and_a_missing_tensor_are_refused(tmp_path: Path) -> None:
    training(tmp_path / "c").save()
    with pytest.raises(InputError, match=r"\(the rate\).*--fresh"):
        training(tmp_path / "c", rate=0.2).restore()
    with pytest.raises(InputError, match=r"damaged.*--fresh"):
        training(tmp_path / "c", Extra()).restore()


def test_a_checkpoint_that_does_not_fit_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "c"
    save_checkpoint(path, {"x": torch.ones(3)}, {"step": 1})
    with (
        files_no_larger_than(4096),
        pytest.raises(InputError, match="make room"),
    ):
        save_checkpoint(path, {"x": torch.ones(5000)}, {"step": 2})
    found = load_checkpoint(path)
    assert found is not None
    assert found[1] == {"step": 1}
    assert torch.equal(found[0]["x"], torch.ones(3))
    assert [file.name for file in tmp_path.iterdir()] == ["c"], "nothing half-written is left"


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InputError, match="checkpoint"):
        save_checkpoint(tmp_path / "file" / "c", {"x": torch.ones(3)}, {})


def test_a_missing_folder_is_made(tmp_path: Path) -> None:
    path = tmp_path / "new" / "deep" / "c"
    assert load_checkpoint(path) is None
    save_checkpoint(path, {"x": torch.tensor([1.5])}, {"a": [1, None]})
    found = load_checkpoint(path)
    assert found is not None
    assert found[0]["x"].tolist() == [1.5]
    assert found[1] == {"a": [1, None]}
