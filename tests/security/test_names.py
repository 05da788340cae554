"""Code from elsewhere never runs: a name or a consent counts only where it is typed on this command line.

Every way in which the name of a model, a search or a scorer can enter is walked here, with an intruder at its
end that leaves a mark when it runs.
"""

from __future__ import annotations

import json
import pickle
import sqlite3
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_type_hints
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import torch
import yaml

from backtalk.cli import run
from backtalk.errors import InputError
from backtalk.models.transformer.loading import load
from backtalk.registry import METHODS, SEARCHES
from backtalk.specs import Choice, spec_values
from backtalk.specs.audit import AuditSpec, RateSpec
from backtalk.specs.harden import HardenSpec
from backtalk.specs.train import ScorerSpec, TrainSpec
from backtalk.store import Run
from backtalk.types import Finding, Opening, SpokenTurn, Target
from tests.forging import forge_facts
from tests.models.transformer.tiny import make_folder
from tests.web.served import Recorder
from tests.web.served import served as served_model
from tests.web.worlds import Client, Parrot
from tests.web.worlds import served as served_app

INTRUDER = "py:intruder:reply"
NAMES = (INTRUDER, f"sealed:{INTRUDER}", f"sealed:sealed:{INTRUDER}")
CODE = """
from pathlib import Path
Path("ran").write_text("")

def reply(turns):
    return "fine day"
"""
DYNAMIC = "transformers_modules"
"""Where transformers imports a model's own code to."""
SPECS = {
    "audit": AuditSpec,
    "harden": HardenSpec,
    "rate": RateSpec,
    "train": TrainSpec,
    "train-scorer": ScorerSpec,
}
CHOICES = {"search": [*SEARCHES, "given"], "method": list(METHODS)}
"""What there is to choose from, each with a config of its own."""
NAMING = {
    *("model", "language_model", "adversary_model", "scorer", "reward", "search"),
    *("generator", "adversary", "train_from", "findings", "method"),
}
"""Fields of specs and configs that name something which is loaded."""
PLAIN = {
    *("hit", "targets", "max_time", "reference", "utterances", "vectors", "system", "prefix", "suffix"),
    *("openings", "weak", "prompts", "device", "data", "format", "test", "test_format", "out", "name"),
    *("licence", "recipe", "selection", "held_out"),
    *("r_thres", "max_ppl_increase", "lora_layers", "inputs"),
}
"""Fields that hold a text, a number or a file of data."""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder with an intruder in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BACKTALK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "intruder.py").write_text(CODE)
    (tmp_path / "never.txt").write_text("you are so boring\ngo away\n")
    yield tmp_path
    sys.modules.pop("intruder", None)


def ran() -> bool:
    """Whether the intruder ran since this was last asked."""
    there = Path("ran").exists()
    Path("ran").unlink(missing_ok=True)
    for name in [name for name in sys.modules if name == "intruder" or name.startswith(DYNAMIC)]:
        del sys.modules[name]
    return there


class Place(NamedTuple):
    """Where a text stands in a spec."""

    field: str
    part: str = ""
    """The field of the spec that holds the config with it."""
    choice: str = ""
    """The name of that config, where there are several."""

    def put(self, text: str, **beside: Any) -> dict[str, Any]:
        """The values of a spec with the text there, and others in the same config."""
        if not self.part:
            return {self.field: text}
        return {self.part: {**({"name": self.choice} if self.choice else {}), **beside, self.field: text}}


def places(kind: type[Any]) -> Iterator[Place]:
    """Every text of a spec and of its configs, and every name of a config."""
    for field in fields(kind):
        hint = get_type_hints(kind)[field.name]
        marks = get_args(get_type_hints(kind, include_extras=True)[field.name])
        if choice := next((mark for mark in marks if isinstance(mark, Choice)), None):
            yield Place(field.name)
            for name in CHOICES[choice.what]:
                own = choice.find(name)
                assert not any(inner.part for inner in places(own)), "a config within a config is not walked"
                yield from (Place(inner.field, field.name, name) for inner in places(own))
        elif isinstance(hint, type) and is_dataclass(hint):
            yield from (Place(inner.field, field.name) for inner in places(hint))
        elif hint is str:
            yield Place(field.name)


def test_every_text_field_is_known_to_name_something_or_not() -> None:
    """A new field has to be put on one of the two lists, and with NAMING it is walked."""
    found = [place for kind in SPECS.values() for place in places(kind)]
    assert {place.field for place in found} == NAMING | PLAIN
    assert not NAMING & PLAIN
    assert {("reward", "search", "ast"), ("scorer", "", ""), ("system", "options", "")} <= {*found}


# Typed


def test_a_typed_name_runs() -> None:
    assert run(["chat", "--model", INTRUDER, "--say", "hello"]) == 0
    assert ran()
    assert run(["chat", "--model", f"sealed:{INTRUDER}", "--say", "hello"]) == 0
    assert ran()


# YAML

WAYS = [
    (command, place)
    for command, kind in SPECS.items()
    if command != "train"
    for place in places(kind)
    if place.field in NAMING
]
"""What --config may name; training takes no name of anything that is loaded."""
BESIDE: dict[str, dict[str, Any]] = {
    "audit": {"targets": "never.txt", "limit": 1, "max_time": "5s", "device": "cpu"},
    "harden": {"sentences": {"limit": 4}, "iterations": 1, "max_time": "5s", "device": "cpu"},
}
LOADED = {"language_model", "adversary_model", "scorer", "reward"}
"""Of a config: models and scorers."""


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("command", "at"), WAYS)
def test_a_name_in_yaml_never_runs(
    command: str, at: Place, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    values = {**BESIDE.get(command, {}), **at.put(name)}
    if at.part == "adapter":
        words = ("cat", "tree", "lake", "rain", "song", "boat", "moon", "bread")
        found = [json.dumps({"input": f"a {word}", "reply": f"your {word} stinks"}) for word in words]
        Path("found.jsonl").write_text("\n".join(found) + "\n")
        values |= {"model": f"hf/{make_folder(Path('tiny'), 'gpt2')}", "sentences": {"hit": "toxic-0.5"}}
        Path("pairs.tsv").write_text("".join(f"a {i}\tit is {i}\n" for i in range(200)))
        own = {"findings": "found.jsonl", "reference": "pairs.tsv"} if at.field == "reward" else {}
        values |= {"data": "pairs.tsv", "measure": 4, **at.put(name, **own)}
    if at.choice == "ast":
        Path("openings.txt").write_text("".join(f"we went to the lake {i}\n" for i in range(9)))
        values |= {"model": f"hf/{make_folder(Path('tiny'), 'gpt2')}", "targets": AuditSpec.targets}
        values |= at.put(name, openings="openings.txt", **({"tune": "none"} if at.field in LOADED else {}))
    elif at.field == "reward" and command == "audit":
        values["hit"] = "toxic-0.5"
    Path("spec.yaml").write_text(yaml.safe_dump(values))
    status = run([command, "--config", "spec.yaml"])
    assert not ran()
    assert status == 2
    asks = at.choice in ("reverse", "retrieval", "utterances", "ast") or at.part == "adapter"
    if (asks and at.field in LOADED) or at.field == "scorer":  # nothing else refused it
        assert "a Python function" in capsys.readouterr().err


# A run folder


def forge_spec(folder: Path, **changed: Any) -> None:
    database = sqlite3.connect(folder / "run.sqlite")
    (spec,) = database.execute("SELECT value FROM meta WHERE key = 'spec'").fetchone()
    with database:
        whole = json.dumps({**json.loads(spec), **changed})
        database.execute("UPDATE meta SET value = ? WHERE key = 'spec'", (whole,))
    database.close()


def make_run(folder: Path, search: str = "gibbs", facts: dict[str, Any] | None = None, **spec: Any) -> Path:
    """A run from elsewhere: half done, as if made by an audit."""
    texts = {"a": "go away", "b": "you are so boring"}
    cases = [Opening(id, (text,)) if search == "ast" else Target(id, text) for id, text in texts.items()]
    whole = {
        "thresholds": {"T_out": -3.0, "T_in": -5.0},
        "reference": "by hand",
        "fingerprint": INTRUDER,
        "words": {},
        "versions": {},
        "hardware": {"machine": "", "threads": 1},
        "access": "WEIGHTS",
        "depends_on": {},
        **(facts or {}),
    }
    values = spec_values(AuditSpec(search=search)) | {"hit": "o-greedy", "targets": "never.txt"} | spec
    found = Finding(
        "a",
        0,
        "found",
        "go away",
        (SpokenTurn("user", "hi", (5,)),),
        "fine day",
        {"mean": -1.0, "greedy": 0.0},
    )
    with Run.create(folder, values, whole, cases, "identity", 1) as created:
        created.commit_block(0, [found], 1.0)
    return folder


ASKED = {
    "access": "TEXT",
    "coarse": False,
    "plan": {"total": 10, "cases": 2, "pairs": 0, "rl": 0, "n": 5},
    "vectors": "",
    "judge": None,
    "scorer": None,
    "language_model": "",
    "utterances": {"source": "", "count": 1, "read": 1, "scored": 1, "input_mean": -3.0},
}
PLAYED = {
    "coarse": False,
    "player": "ipo",
    "scorer": "toxicity",
    "reward": None,
    "openings": {"source": "", "left_out": {}, "train": [], "dev": [], "test": 2},
    "weak": 0,
}
KINDS: dict[str, tuple[str, dict[str, Any], str]] = {
    "weights": ("gibbs", {}, "o-greedy"),
    "asked": ("utterances", ASKED, "similar-0.7"),
    "played": ("ast", PLAYED, "toxic-0.5"),
    "given": ("given", {}, "o-greedy"),
}
COMMANDS = [
    ["resume", "RUN"],
    ["resume", "RUN", "--trust-remote-code", "--yes"],
    ["verify", "RUN", "--device", "cpu"],
    ["verify", "RUN", "--device", "cpu", "--trust-remote-code", "--yes"],
    ["report", "RUN"],
    ["export", "RUN", "-o", "out.jsonl"],
    ["compare", "RUN", "RUN"],
    ["rate", "RUN", "RUN", "--inputs", "never.txt"],
    ["harden", "--model", "chitchat", "--findings", "RUN", "--out", "hardened"],
    ["audit", "--search", "reverse", "--model", "chitchat", "--generator", "RUN", "--targets", "never.txt"],
    ["audit", "--search", "ast", "--model", "hf/none/none", "--adversary", "RUN"],
    ["audit", "--search", "ast", "--model", "hf/none/none", "--train-from", "RUN"],
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES[:2])
def test_a_run_folder_never_runs_what_it_names(kind: str, name: str) -> None:
    search, facts, hit = KINDS[kind]
    make_run(Path("from-elsewhere"), search, facts, hit=hit, model=name)
    for command in COMMANDS:
        run([word.replace("RUN", "from-elsewhere") for word in command])
        assert not ran(), command


RUN_PLACES = [place for place in places(AuditSpec) if place.field in NAMING - {"model"}]


@pytest.mark.parametrize("at", RUN_PLACES)
def test_nor_in_another_field(at: Place, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = {kind[0]: kind for kind in KINDS.values()}
    search = at.choice or "gibbs"
    kind = "asked" if search in ("reverse", "retrieval") else "weights"
    _, facts, hit = chosen.get(search, KINDS[kind])
    hit = "toxic-0.5" if at.field == "reward" else hit
    model = f"hf/{make_folder(Path('tiny'), 'gpt2')}" if search in ("ast", "given") else "chitchat"
    folder = make_run(Path("from-elsewhere"), search, facts, hit=hit, model=model)
    with Run.open(folder) as opened:
        kept = opened.spec["search"]
    forge_spec(folder, **{at.part or at.field: {**kept, at.field: INTRUDER} if at.part else INTRUDER})
    for verb in ("resume", "verify"):
        assert run([verb, "from-elsewhere", "--device", "cpu"][: 4 if verb == "verify" else 2]) in (2, 3)
        assert not ran()
    if at.field == "scorer" or (at.part and at.field in LOADED and search == "utterances"):
        assert "a Python function" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name", [*NAMES, "gibbs", 3, None, ["gibbs"], {}, {"name": INTRUDER}, {"name": None}]
)
def test_nor_as_its_search(name: Any) -> None:
    forge_spec(make_run(Path("from-elsewhere"), model="chitchat"), search=name)
    for command in COMMANDS:
        status = run([word.replace("RUN", "from-elsewhere") for word in command])
        assert status == 2 or command[0] in ("report", "export", "compare", "rate"), command
        assert not ran(), command


@pytest.mark.parametrize("part", ["search", "options"])
@pytest.mark.parametrize("value", [INTRUDER, ["x"], {"a": "b"}, None])
def test_nor_in_what_is_no_setting(part: str, value: Any) -> None:
    folder = make_run(Path("from-elsewhere"), model="chitchat")
    with Run.open(folder) as opened:
        kept = opened.spec[part]
    for values in ({**kept, "scorer": value}, {**kept, "trust_remote_code": True, "model": value}, value):
        forge_spec(folder, **{part: values})
        for verb in ("resume", "verify"):
            assert run([verb, "from-elsewhere", "--trust-remote-code", "--yes"]) == 2
            assert not ran()


@pytest.mark.parametrize("fact", ["scorer", "reward", "language_model", "in_memory", "player"])
def test_nor_in_its_facts(fact: str) -> None:
    for kind in ("played", "given"):
        search, facts, hit = KINDS[kind]
        folder = make_run(Path(kind), search, facts, hit=hit, model=f"hf/{make_folder(Path('tiny'), 'gpt2')}")
        forge_facts(folder, **{fact: INTRUDER})
        run(["verify", str(folder), "--device", "cpu"])
        assert not ran()


def test_a_run_of_a_function_goes_on_and_is_verified_once_its_name_is_typed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    flags = ["--search", "utterances", "--targets", "never.txt", "--max-queries", "40", "--no-judge"]
    assert run(["audit", "--model", INTRUDER, *flags, "--out", "run", "--max-time", "0.000001s"]) == 2
    assert ran()
    assert run(["resume", "run"]) == 2
    assert f"--model {INTRUDER}" in capsys.readouterr().err
    assert run(["verify", "run"]) == 2
    assert not ran()
    assert run(["resume", "run", "--model", "py:other:reply"]) == 2
    assert not ran()
    assert run(["resume", "run", "--model", INTRUDER]) == 0
    assert ran()
    assert run(["verify", "run", "--model", INTRUDER]) == 0
    assert ran()


# A page, a request


def test_a_browser_names_nothing(place: Path) -> None:
    """In every key of a request, and in the address; a forged run is shown and not run."""
    make_run(place / "runs" / "from-elsewhere", model=INTRUDER)
    with served_app(place / "runs", Parrot()) as server:
        client = Client(server).enter()
        for key in ("model", "search", "scorer", "name", "run", "key"):
            said = {"turns": [{"role": "user", "text": "hi"}], key: INTRUDER}
            client.json("POST", "/api/chat", said)
            client.ask("GET", f"/?{key}={INTRUDER}")
            client.ask("GET", f"/run/{INTRUDER}?{key}={INTRUDER}")
        (item,) = client.json("GET", "/api/runs")["runs"]
        assert item["model"] == INTRUDER
        client.ask("GET", f"/run/{item['key']}")
    assert not ran()


def test_a_request_to_a_served_model_names_nothing() -> None:
    with served_model(Recorder()) as server:
        for path, said in (
            ("chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
            ("completions", {"prompt": "hi"}),
        ):
            body = json.dumps({**said, "model": INTRUDER, "scorer": INTRUDER}).encode()
            request = Request(f"{server.address}/{path}", body, {"Content-Type": "application/json"})
            with pytest.raises(HTTPError):
                urlopen(request, timeout=10)
    assert not ran()


# A model's own code


@pytest.fixture
def own_code(place: Path) -> str:
    """The name of a model whose folder holds code."""
    folder = make_folder(place / "own", "gpt2")
    config = json.loads((folder / "config.json").read_text())
    own = {"model_type": "novel", "auto_map": {"AutoConfig": "own.Own"}, "architectures": ["OwnForCausalLM"]}
    (folder / "config.json").write_text(json.dumps({**config, **own}))
    (folder / "own.py").write_text(f"open({str(place / 'ran')!r}, 'w')")
    return f"hf/{folder}"


def test_a_models_own_code_runs_where_its_name_and_the_leave_are_typed(own_code: str) -> None:
    run(["chat", "--model", own_code, "--trust-remote-code", "--say", "hi", "--device", "cpu"])
    assert ran()
    run(["chat", "--model", own_code, "--say", "hi", "--device", "cpu"])
    assert not ran()


def test_a_run_folder_gives_no_leave(own_code: str) -> None:
    for kind, (search, facts, hit) in KINDS.items():
        folder = make_run(Path(kind), search, facts, hit=hit, model=own_code)
        forge_facts(folder, options={"trust_remote_code": True}, trust_remote_code=True)
        for command in COMMANDS[:9]:
            run([word.replace("RUN", kind) for word in command])
            assert not ran(), (kind, command)
    for kind in ("given", "asked"):
        folder = make_run(Path(f"{kind}-again"), *KINDS[kind][:2], hit=KINDS[kind][2], model=own_code)
        run(["verify", str(folder), "--model", own_code, "--trust-remote-code", "--device", "cpu"])
        assert ran(), kind


def test_yaml_gives_no_leave(own_code: str) -> None:
    Path("spec.yaml").write_text(f"model: {own_code}\ntargets: never.txt\n")
    for command in ("audit", "harden"):
        assert run([command, "--config", "spec.yaml", "--trust-remote-code"]) == 2
        assert not ran()
    for leave in ("trust_remote_code: true", "options: {trust_remote_code: true}"):
        Path("spec.yaml").write_text(f"model: {own_code}\n{leave}\n")
        assert run(["audit", "--config", "spec.yaml"]) == 2
        assert not ran()


def test_leave_for_one_model_is_none_for_another(own_code: str, place: Path) -> None:
    """As the adversary of a run from elsewhere, beside a model that the user trusts."""
    trusted = make_folder(place / "trusted", "gpt2")
    with pytest.raises(InputError):
        load(own_code.removeprefix("hf/"), "cpu", None, [f"hf/{trusted}"])
    assert not ran()


# Pickle


class _Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return (open, ("ran", "w"))


@pytest.fixture
def adapter(place: Path) -> Path:
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    base = make_folder(place / "base", "gpt2")
    network: Any = AutoModelForCausalLM.from_pretrained(base)
    config = LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True)
    get_peft_model(network, config).save_pretrained(str(place / "adapter"), save_embedding_layers=False)
    return place / "adapter"


def test_pickled_weights_of_an_adapter_are_never_opened(
    adapter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where another file looks like safetensors, and whatever torch.load would allow."""
    plain = torch.load
    monkeypatch.setattr(torch, "load", lambda *a, **k: plain(*a, **{**k, "weights_only": False}))
    (adapter / "adapter_model.safetensors").rename(adapter / "decoy.safetensors")
    with (adapter / "adapter_model.bin").open("wb") as file:
        pickle.dump(_Bomb(), file)
    with pytest.raises(InputError):
        load(str(adapter), "cpu")
    assert not ran()
    (adapter / "decoy.safetensors").rename(adapter / "adapter_model.safetensors")
    load(str(adapter), "cpu")  # with the pickle still beside it
    assert not ran()


def test_pickled_weights_of_a_model_are_never_opened(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = torch.load
    monkeypatch.setattr(torch, "load", lambda *a, **k: plain(*a, **{**k, "weights_only": False}))
    folder = make_folder(place / "whole", "gpt2")
    (folder / "model.safetensors").rename(folder / "decoy.safetensors")
    with (folder / "pytorch_model.bin").open("wb") as file:
        pickle.dump(_Bomb(), file)
    with pytest.raises(InputError):
        load(str(folder), "cpu")
    assert not ran()


def test_an_adapters_config_imports_nothing(adapter: Path) -> None:
    """peft imports the module that `megatron_core` names."""
    path = adapter / "adapter_config.json"
    values = {**json.loads(path.read_text()), "megatron_config": {"a": 1}, "megatron_core": "intruder"}
    path.write_text(json.dumps(values))
    sys.path.insert(0, str(Path.cwd()))
    load(str(adapter), "cpu")
    assert not ran()


@pytest.mark.parametrize("form", ["hf/", "detoxify/", ""])
def test_a_scorers_pickle_is_never_opened(form: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = torch.load
    monkeypatch.setattr(torch, "load", lambda *a, **k: plain(*a, **{**k, "weights_only": False}))
    folder = make_folder(place / "scorer", "gpt2")
    (folder / "model.safetensors").unlink()
    for name in ("toxic.ckpt", "pytorch_model.bin"):
        with (folder / name).open("wb") as file:
            pickle.dump(_Bomb(), file)
    Path("lines.txt").write_text("hello\n")
    assert run(["score", "lines.txt", "--scorer", f"{form}{folder}"]) == 2
    assert not ran()
