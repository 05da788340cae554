"""Jobs in processes of their own, whose records are kept in a folder, so that none is done twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PEER = "nanogcg"
HERE = Path(__file__).parent
Record = dict[str, Any]


@dataclass(frozen=True)
class PeerProcess:
    """How nanoGCG's Python is started."""

    python: str
    path: str = ""
    """Its PYTHONPATH: a folder with nanoGCG and the transformers that it wants."""
    threads: int = 1

    def run(self, command: list[str], ours: bool = False) -> None:
        """A script of nanoGCG's side, or a module of `ours`; its errors go to the terminal."""
        environment = {**os.environ, "OMP_NUM_THREADS": str(self.threads)}
        if not ours:
            environment.pop("PYTHONPATH", None)
            environment |= {"PYTHONPATH": self.path} if self.path else {}
        lead = [sys.executable, "-m"] if ours else [self.python]
        done = subprocess.run([*lead, *command], env=environment, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            raise SystemExit(f"{command[0]} failed:\n{done.stderr[-2000:]}")


def read_record(path: Path, job: Mapping[str, Any]) -> Record | None:
    """The record of this job, if it is there."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    same = isinstance(found, dict) and found.get("job") == json.loads(json.dumps(job))
    return found if same else None


def kept(path: Path, job: Mapping[str, Any], work: Callable[[], Record]) -> Record:
    """The record of this job, which is done now if there is none."""
    known = read_record(path, job)
    if known is None:
        known = {"job": dict(job), **work()}
        write_record(path, known)
    return known


def write_record(path: Path, record: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(record), encoding="utf-8")
    partial.replace(path)


def run_peer(
    process: PeerProcess, model: Path, job: Mapping[str, Any], targets: Mapping[int, str], folder: Path
) -> dict[int, Record]:
    """nanoGCG's record of each target, by its number. Targets without one are searched in one process; what
    it finished before it was killed is kept."""
    folder.mkdir(parents=True, exist_ok=True)
    jobs = {number: {**job, "target": text} for number, text in targets.items()}
    paths = {number: folder / f"{number:02d}-{PEER}.json" for number in targets}
    missing = [number for number in targets if read_record(paths[number], jobs[number]) is None]
    if missing:
        ask = folder / f"{missing[0]:02d}-{PEER}.ask"
        listed = [(str(paths[number]), jobs[number]) for number in missing]
        ask.write_text(json.dumps({"model_folder": str(model), "jobs": listed}), encoding="utf-8")
        process.run([str(HERE / "nanogcg_side.py"), str(ask)])
    return {number: json.loads(path.read_text(encoding="utf-8")) for number, path in paths.items()}
