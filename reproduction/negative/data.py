"""The corpora and target lists of the study, from a folder of data or from what ships with backtalk.

The lists are the paper's own: 500 targets to train against, the same with one and with four paraphrases each,
and 500 test targets. `embedded` makes lists of the same kind from the embedded one: half of its prototypes,
the same widened twice, and the other half.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from backtalk.data.targets import load_mal, read_targets, split_by_prototype, widen, write_targets
from backtalk.models.folder import load_folder, write_card
from backtalk.models.lstm.model import LocalModel
from backtalk.store.typed import read_json
from backtalk.types import Target
from reproduction.egregious.data import SEED, Source, distinct, model_name, open_data
from reproduction.negative.paper import CORPORA, Size
from reproduction.runner import Workplace
from reproduction.spec import EMBEDDED

FILES = {"500": "train_500.txt", "1000": "train_1000.txt", "2500": "train_2500.txt", "test": "test_500.txt"}
RECIPE = "he-glass-2020"  # without punctuation, for both corpora; the study egregious reads Ubuntu with it
ARCH = "attention"


@dataclass(frozen=True)
class NegativeData:
    kind: str  # `files` or `embedded`: the part of its place that results depend on
    sources: dict[str, Source]
    lists: dict[str, Path]


def open_negative_data(name: str, folder: Path) -> NegativeData:
    """The data of a folder laid out as docs/studies/negative.md says, or the embedded pairs and list."""
    data = open_data(name, folder)
    sources = {corpus: replace(data.sources[corpus], recipe=RECIPE) for corpus in CORPORA}
    lists = {key: data.prototypes.parent / file for key, file in FILES.items()}
    if data.kind == EMBEDDED:
        _write_lists(lists)
    else:
        remark, old = "Switchboard, the paper's own 25 test dialogues", sources["switchboard"]
        assert old.test is not None
        sources["switchboard"] = replace(old, test=old.test.with_name("test_25.txt.gz"), remark=remark)
    return NegativeData(data.kind, sources, lists)


def _write_lists(lists: dict[str, Path]) -> None:
    train, test = split_by_prototype(load_mal(), (0.5, 0.5), SEED)
    wide = widen(train, final_period=False)
    made = {"500": train, "1000": wide[: 2 * len(train)], "2500": wide, "test": test}
    for name, path in lists.items():
        if not path.exists():
            write_targets(path, made[name])


def known_targets(data: NegativeData, size: Size, model: LocalModel, name: str) -> tuple[list[Target], int]:
    """A list as far as a model can say it, and how many sentences of it are left out: those with a word that
    the model does not know, and those that it reads like one before."""
    found = read_targets(data.lists[name])
    limit = dict(size.targets).get(name, 0)
    known = distinct(model, [target for target in found if "<" not in target.text])  # <unk> is no word
    return known[: limit or None], len(found) - len(known)


def open_baseline(place: Workplace, source: Source) -> LocalModel:
    """The trained model. Its card says where its text lies: that is mended where the data have moved."""
    folder = place.path(model_name(source.corpus, ARCH))
    card = read_json(folder / "card.json")
    here = {"data": str(source.data), "test": str(source.test or "")}
    if any(card["spec"].get(key) != path for key, path in here.items()):
        write_card(folder, {**card, "spec": {**card["spec"], **here}})
    return load_folder(str(folder), place.device)
