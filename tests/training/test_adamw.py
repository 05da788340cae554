"""Gradients that add up where they lie, and the step that follows them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from backtalk.training.gradients import PLAIN, ClippedAdamW, SummedGradients

CPU = torch.device("cpu")
RATES = [0.1, 0.2, 0.05, 0.3, 0.01, 0.2, 0.4]


def make_network(device: torch.device = CPU) -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3), nn.Linear(2, 2)).to(device)


def inputs(seed: int, device: torch.device = CPU) -> Tensor:
    return torch.randn(5, 4, generator=torch.Generator().manual_seed(seed)).to(device)


def gone(device: torch.device, rates: list[float], clip: float) -> tuple[list[Tensor], ClippedAdamW]:
    """The weights after a step at each rate, on two parts a step."""
    network = make_network(device)
    gradients = SummedGradients(network)
    descent = ClippedAdamW(network.parameters(), 1.0, clip, device)
    for number, rate in enumerate(rates):
        gradients.begin()
        for part in range(2):
            given = inputs(10 * number + part, device)
            gradients.add(lambda x: network[:3](x).square().sum(), given, captured=device.type == "cuda")  # type: ignore[index]
        descent.step(rate)
    return [value.detach().cpu() for value in network.parameters()], descent


def test_gradients_of_parts_add_up_where_they_lie() -> None:
    network = make_network()
    first, *_, unused = list(network.parameters())
    gradients = SummedGradients(network)

    def loss(x: Tensor) -> Tensor:
        found: Tensor = network[:3](x).square().sum()  # type: ignore[index]
        return found

    places = set()
    for _ in range(3):
        gradients.begin()
        for seed in (1, 2):
            gradients.add(loss, inputs(seed), captured=False)
        assert first.grad is not None
        places.add(first.grad.data_ptr())
        (expected,) = torch.autograd.grad(loss(inputs(1)) + loss(inputs(2)), first)
        torch.testing.assert_close(first.grad, expected)
        assert unused.grad is None, "what no loss asks for has none, and AdamW leaves it alone"
    assert len(places) == 1


@pytest.mark.parametrize("clip", [0.5, 1e9])
def test_steps_are_those_of_adamw_behind_a_clipped_norm(clip: float) -> None:
    found, descent = gone(CPU, RATES, clip)
    network = make_network()
    optimizer = torch.optim.AdamW(network.parameters(), 1.0)
    largest = 0.0
    for number, rate in enumerate(RATES):
        optimizer.zero_grad()
        for part in range(2):
            network[:3](inputs(10 * number + part)).square().sum().backward()  # type: ignore[index]
        largest = max(largest, float(nn.utils.clip_grad_norm_(network.parameters(), clip)))
        optimizer.param_groups[0]["lr"] = rate
        optimizer.step()
    for one, value in zip(found, network.parameters(), strict=True):
        torch.testing.assert_close(one, value.detach())
    assert float(descent.largest) == pytest.approx(largest)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="graphs need a GPU")
@pytest.mark.parametrize("clip", [0.5, 1e9])
def test_a_gpu_goes_the_same_steps_by_graphs(clip: float) -> None:
    (plain, first), (found, second) = (gone(torch.device(name), RATES, clip) for name in ("cpu", "cuda"))
    assert len(RATES) > PLAIN + 1
    assert second.graph.is_trusted, second.graph.why
    assert float(second.largest) == pytest.approx(float(first.largest), rel=1e-4)
    for one, other in zip(plain, found, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-3)
