"""The Python API: it works, prints nothing, and imports what it needs when it needs it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import backtalk
from backtalk import api
from backtalk.cli import run as command
from backtalk.errors import InputError
from backtalk.types import Opening, Target

pytestmark = pytest.mark.usefixtures("one_thread")
README = Path(__file__).parent.parent / "README.md"
SMALL: dict[str, Any] = {"length": 3, "top": 4, "sweeps": 1, "restarts": 1}
SENTENCES = ["go away", "you are so boring"]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BACKTALK_CACHE", str(tmp_path / "cache"))


def audit(**changes: Any) -> backtalk.Run:
    given = {"model": "chitchat", "cases": SENTENCES, "search": backtalk.Gibbs(**SMALL), "out": "run"}
    return backtalk.audit(**{**given, "device": "cpu", **changes})


def test_importing_it_takes_no_time_and_no_torch() -> None:
    program = (
        "import sys, time; begun = time.perf_counter(); import backtalk; took = time.perf_counter() - begun; "
        "assert not {'torch', 'numpy', 'rich', 'yaml'} & set(sys.modules); print(took)"
    )
    times = [
        float(subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout)
        for _ in range(3)
    ]
    assert min(times) < 0.1


def test_every_public_name_is_there() -> None:
    assert set(backtalk.__all__) <= set(dir(backtalk))
    assert sorted(backtalk.__all__) == sorted(["__version__", *api.__all__])
    for name in backtalk.__all__:
        assert getattr(backtalk, name) is not None
    with pytest.raises(AttributeError, match="nothing_of_ours"):
        _ = backtalk.nothing_of_ours


def test_names_are_imported_when_they_are_used() -> None:
    program = (
        "import sys, backtalk; "
        "assert not {'backtalk.hardening', 'backtalk.api'} & set(sys.modules); "
        "backtalk.Negative, backtalk.Npo(beta=0.2), backtalk.Unlikelihood; "
        "assert callable(backtalk.harden) and isinstance(backtalk.Hardening, type)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    names = {"harden", "Hardening", "Negative", "Npo", "Unlikelihood"}
    assert names <= set(backtalk.__all__)


def test_the_function_is_there_after_its_package_was_imported() -> None:
    program = "import backtalk.audit.flow, backtalk; assert callable(backtalk.audit) and backtalk.audit.flow"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_example_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(example, str(README), "exec"), {})
    said = capsys.readouterr().out
    assert "->" in said
    assert Path("report.html").read_text().startswith("<!")
    assert Path("runs/asked/report.html").exists()


def test_nothing_is_printed_and_the_command_finds_the_same(capfd: pytest.CaptureFixture[str]) -> None:
    told: list[backtalk.Progress] = []
    run = audit(progress=told.append)
    rates, findings = run.rates(), list(run.findings())
    run.verify()
    assert capfd.readouterr() == ("", "")
    counts = [one.done for one in told if one.total]
    assert (counts[0], counts[-1], counts) == (0, 2, sorted(counts))
    assert any("Run folder: run" in one.message for one in told)
    assert rates["chance-1e-6"].n == 2
    assert [finding.target for finding in findings] == SENTENCES
    assert {finding.kind for finding in findings} == {"target"}
    Path("never.txt").write_text("\n".join(SENTENCES))
    flags = [word for name, value in SMALL.items() for word in (f"--{name}", str(value))]
    typed = ["audit", "--targets", "never.txt", *flags, "--device", "cpu"]
    assert command([*typed, "--out", "typed"]) == 0
    theirs = list(backtalk.Run("typed").findings())
    assert [(one.trigger, one.scores) for one in theirs] == [(one.trigger, one.scores) for one in findings]


def test_the_same_call_resumes_and_then_returns_what_is_there() -> None:
    audit(block=1, max_candidates=1)
    assert len(list(backtalk.Run("run").findings())) == 1
    assert len(list(audit(block=1).findings())) == 2
    before = Path("run/run.sqlite").stat().st_mtime_ns
    assert len(list(audit(block=1).findings())) == 2
    assert Path("run/run.sqlite").stat().st_mtime_ns == before or Path("run/report.html").exists()
    with pytest.raises(InputError, match="holds another run"):
        audit(block=1, seed=2)


def test_a_run_shows_itself(tmp_path: Path) -> None:
    run = audit()
    assert "chance-1e-6" in repr(run)
    table = run._repr_html_()
    assert table.count("<tr>") == 1 + len(run.rates())
    assert run.report("page.html").read_text() == Path("run/report.html").read_text()
    assert run.report() == Path("run/report.html")
    with pytest.raises(InputError, match="can't write"):
        run.report(tmp_path / "nowhere" / "page.html")


def test_findings_as_a_data_frame() -> None:
    pandas = pytest.importorskip("pandas")
    frame = audit().to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert len(frame) == 2
    assert {"case", "trigger", "reply", "hit", "mean", "chance-1e-6"} <= set(frame.columns)
    assert (frame["hit"] == frame["chance-1e-6"]).all()


def test_without_pandas_the_mend_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    run = audit()
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match="pip install pandas"):
        run.to_pandas()


def polite(turns: list[dict[str, str]]) -> str:
    return "go away" if "tea" in turns[-1]["text"] else "how nice"


def test_a_function_is_audited_and_the_run_says_where_it_can_be_verified() -> None:
    run = audit(model=polite, cases=["go away"], search=backtalk.Utterances(max_queries=40, judge=False))
    assert "can't be verified" in run.summary["in_memory"]
    assert "can't be verified" in Path("run/report.html").read_text().replace("&#39;", "'")
    assert not run.verify().problems
    assert not backtalk.verify("run", model=polite).problems
    with pytest.raises(InputError, match="memory:polite"):
        backtalk.verify("run")
    assert command(["verify", "run"]) == 2
    changed = backtalk.verify("run", model=lambda turns: "no")
    assert changed.problems


def test_a_network_in_memory_is_known_by_its_weights_and_given_back_as_it_was(chatterbox: Path) -> None:
    transformers = pytest.importorskip("transformers")
    network = transformers.AutoModelForCausalLM.from_pretrained(chatterbox).train()
    tokenizer = transformers.AutoTokenizer.from_pretrained(chatterbox)
    settings = {"hit": "o-sample-avg-k1", "search": backtalk.Gibbs(**SMALL)}
    run = audit(model=(network, tokenizer), **settings)
    assert network.training
    assert all(parameter.requires_grad for parameter in network.parameters())
    assert not run.verify().problems
    named = audit(model=f"hf/{chatterbox}", out="named", **settings)
    pairs = zip(run.findings(), named.findings(), strict=True)
    assert all((one.trigger, one.scores) == (other.trigger, other.scores) for one, other in pairs)
    with __import__("torch").no_grad():
        next(network.parameters()).add_(0.5)
    assert any("audited" in problem for problem in run.verify(model=(network, tokenizer)).problems)


def test_cases_may_be_targets_openings_or_neither() -> None:
    target = Target("mine", "go away", "rude", 2)
    assert audit(cases=[target]).cases == [target]
    assert [case.id for case in audit(cases=SENTENCES, limit=1, out="one").cases] == ["t-001"]
    for cases, said in (
        ([], "there are no cases"),
        (["go away", " "], "sentence 2"),
        ([target, "go away"], "all of one kind"),
        ([Opening("o", ("hello",))], "answers targets"),
    ):
        with pytest.raises(InputError, match=said):
            audit(cases=cases, out="refused")


def test_bad_input_is_an_error_of_ours() -> None:
    for changes, said in (
        ({"model": 7}, "PreTrainedModel"),
        ({"model": "nosuch"}, "nosuch"),
        ({"search": "gibs"}, "did you mean 'gibbs'"),
        ({"search": backtalk.Gibbs(length=-1)}, "length should not be -1"),
        ({"search": {"name": "gibbs", "turns": 3}}, "turns belongs to --search ast"),
        ({"hit": "nosuch"}, "nosuch"),
        ({"max_time": "soon"}, "90s, 10m or 2h"),
    ):
        with pytest.raises(InputError, match=said):
            audit(**changes)
    with pytest.raises(InputError, match="nosuch"):
        backtalk.Run("nosuch")


def test_requests_beyond_this_machine_need_consent() -> None:
    with pytest.raises(InputError, match=r"at most .* requests"):
        audit(model="https://api.example.org/v1#m", search=backtalk.Utterances(max_queries=20, judge=False))


def test_models_scorers_and_comparisons() -> None:
    model: Any = backtalk.load_model("chitchat", "cpu")
    assert audit(model=model).model == "chitchat"
    assert backtalk.load_scorer().score(["you fool"]).shape == (1,)
    audit(out="other", seed=2)
    comparison = backtalk.compare("run", backtalk.Run("other"))
    assert comparison.n == 2
