"""Tables 5, 6 and 7: every input of the character task, or as many at random, against the four lists."""

from __future__ import annotations

from reproduction.egregious.data import SEED, Data
from reproduction.egregious.sizes import Size
from reproduction.egregious.training import model_name
from reproduction.enumeration.flow import enumerate_model
from reproduction.enumeration.spec import EnumerateSpec
from reproduction.parts import Result, Workplace

SHOWN_LISTS = {"random", "mal"}
"""Lists whose examples may be shown: the other two are the corpus' words."""


def enumerate_inputs(place: Workplace, data: Data, size: Size, arch: str, sample: int) -> Result:
    spec = EnumerateSpec(
        model=str(place.path(model_name("characters", arch))),
        length=size.input_length,
        symbols=size.symbols,
        lists="mal",
        text=str(data.characters.data),
        sample=sample,
        seed=SEED,
        device=place.device,
    )
    summary = enumerate_model(spec, place.path("enumerations", place.part))
    lists = {
        name: found if name in SHOWN_LISTS else {**found, "examples": []}
        for name, found in summary["lists"].items()
    }
    return {key: value for key, value in summary.items() if key != "model"} | {"lists": lists, "arch": arch}
