"""The report of hardware-check: what runs, what became of it, and what is not said in it."""

from __future__ import annotations

import json
import socket
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pcl_reasoner.cli.main import main
from pcl_reasoner.core.errors import InputError, StageError
from pcl_reasoner.hardware_check import check
from pcl_reasoner.hardware_check.parts import PARTS

FINE = {"name": "a", "got": 1.0, "expected": 1.0, "error": 0.0, "tolerance": 0.1, "ok": True}
BAD = FINE | {"name": "b", "got": 2.0, "error": 1.0, "ok": False}

LEAVE = """
import json, pathlib, sys
outcome = json.loads(sys.argv[1])
(pathlib.Path(sys.argv[2]) / "outcome.json").write_text(json.dumps(outcome))
"""


def run(code: str, *words: str, limit: float = 30) -> check.Report:
    command = [sys.executable, "-c", code, *words]
    return check.run_part("kernels", {"device": "CPU"}, limit, command)


def left(*checks: dict[str, Any]) -> check.Report:
    return run(LEAVE, json.dumps({"checks": checks, "measured": {"n": 3}, "figures": None}))


def test_a_part_that_is_fine_and_one_that_is_wrong() -> None:
    entry = left(FINE, FINE)
    assert (entry["status"], entry["why"], entry["measured"]) == ("ok", "", {"n": 3})
    entry = left(FINE, BAD, BAD)
    assert (entry["status"], entry["why"]) == ("wrong", "2 of 3 comparisons")
    assert entry["checks"] == [FINE, BAD, BAD]


def test_a_crash_is_the_parts_result_with_the_end_of_its_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "node-7")
    entry = run("import sys; print('fault in /home/ada/run/kernel.cc on node-7'); sys.exit(3)")
    assert entry["status"] == "wrong"
    assert entry["why"].splitlines() == ["ended with exit code 3", "fault in …/kernel.cc on HOST"]
    entry = run("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    assert (entry["status"], entry["why"]) == ("wrong", "ended by SIGSEGV")
    assert run("pass")["why"] == "wrote no result"


def test_a_hang_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    note = tmp_path / "child"
    code = f"""
import pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
pathlib.Path({str(note)!r}).write_text(str(child.pid))
time.sleep(600)
"""
    entry = run(code, limit=5)
    assert (entry["status"], entry["why"]) == ("wrong", "no result after 5 s; it was ended")
    deadline = time.monotonic() + 10
    while is_running(int(note.read_text())):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_names_of_people_machines_and_folders_are_left_out() -> None:
    said = check.without_names
    assert said('File "/opt/x/site-packages/ms/base.py", line 599') == 'File "…/base.py", line 599'
    assert said("no space left on /data/secret_project") == "no space left on …"
    assert said("bind ~/a/b, ./c/d and 10.0.0.12:8118") == "bind …, … and ADDRESS:8118"
    assert said("at fe80:0:0:0:1ff:fe23:4567:890a") == "at ADDRESS"
    # What is no name stays: times, shapes, ratios, pages of the web.
    plain = "2026-11-21-10:05:11 {2,4,32} 3/4 MatMul/Add https://www.mindspore.cn/search?input=x"
    assert said(plain) == plain


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Parts that are not run: what each was told, and what it says that it found."""
    told: dict[str, Any] = {}
    found: dict[str, Any] = {"devices": {"measured": {"kind": "Ascend", "count": 2}}}

    def run_part(name: str, setting: dict[str, Any], limit: float) -> check.Report:
        told[name] = {**setting, "limit": limit}
        return check._entry(name, "ok", "") | {"figures": None} | found.get(name, {})

    monkeypatch.setattr(check, "run_part", run_part)
    return {"told": told, "found": found}


def statuses(report: check.Report) -> dict[str, str]:
    return {entry["name"]: entry["status"] for entry in report["parts"]}


def run_all(device: str | None = None, *names: str, figures: Any = None) -> check.Report:
    return check.hardware_check(device, names, figures, 60, lambda entry: None)[0]


def test_what_a_node_has_says_which_parts_run(parts: dict[str, Any]) -> None:
    report = run_all()
    assert statuses(report) == dict.fromkeys(PARTS, "ok") | {"tensor_pipeline": "not run"}
    (entry,) = (one for one in report["parts"] if one["status"] == "not run")
    assert entry["why"] == "it needs 4 devices, but MindSpore sees 2"
    assert parts["told"]["kernels"]["device"] == "Ascend"
    assert check.verdict(report) == {"ok": 7, "wrong": 0, "not run": 1}
    parts["found"]["devices"]["measured"]["count"] = 4
    assert set(statuses(run_all()).values()) == {"ok"}


def test_on_a_cpu_what_does_not_apply_is_not_run(parts: dict[str, Any]) -> None:
    for report in (run_all("CPU"), run_all("CPU", *PARTS)):
        absent = {name for name, status in statuses(report).items() if status == "not run"}
        assert absent == {"tensor_pipeline", "layers"}
        assert report["device"]["kind"] == "CPU"
    assert parts["told"]["kernels"]["device"] == "CPU"


def test_parts_that_were_not_asked_for_are_not_there(parts: dict[str, Any]) -> None:
    assert list(statuses(run_all(None, "packed", "losses"))) == ["devices", "losses", "packed"]
    with pytest.raises(InputError, match="'kernels'.*The parts are: devices"):
        check.check_names(["packed", "kernel"])


def test_every_layout_is_held_against_one_ranks_figures(parts: dict[str, Any]) -> None:
    parts["found"]["devices"]["measured"]["count"] = 4
    figures = {"training": {"loss": [1.0]}, "packed": {"x": 2.0}, "made_with": {"numpy": "1"}}
    report = run_all(figures=figures)
    told = {name: setting["figures"] for name, setting in parts["told"].items()}
    for name in ("training", "data_parallel", "tensor_pipeline"):
        assert told[name] == {"loss": [1.0]}
    # A part that has figures and finds none has nothing to compare with: that is wrong, not ok.
    assert (told["packed"], told["losses"]) == ({"x": 2.0}, {})
    assert report["figures"] == {"numpy": "1"}


def test_a_device_part_that_fails_leaves_the_rest_to_say_so(parts: dict[str, Any]) -> None:
    parts["found"]["devices"] = {"status": "wrong", "why": "ended by SIGSEGV"}
    report = run_all()
    assert statuses(report)["devices"] == "wrong"
    assert report["device"] == {"kind": "unknown"}


def test_figures_are_made_only_of_parts_that_are_fine(parts: dict[str, Any]) -> None:
    parts["found"] |= {"packed": {"figures": {"a": 1.0}}, "training": {"figures": {"b": 2.0}}}
    made = json.loads(check.make_figures(60, lambda entry: None))
    assert (made["packed"], made["training"]) == ({"a": 1.0}, {"b": 2.0})
    assert set(made) == {"made_with", "packed", "training"}
    assert parts["told"]["packed"]["figures"] is None
    parts["found"]["training"] |= {"status": "wrong", "why": "1 of 2 comparisons"}
    with pytest.raises(StageError, match="training: 1 of 2 comparisons"):
        check.make_figures(60, lambda entry: None)


def test_the_command_writes_the_report_and_says_what_is_wrong(
    parts: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "check.json"
    words = ["hardware-check", "--limit", "7", "--output", str(file)]
    assert main(words) == 0
    assert "2 x Ascend: 7 ok, 0 wrong, 1 not run" in capsys.readouterr().out
    parts["found"]["losses"] = {"status": "wrong", "why": "1 of 1 comparisons", "checks": [BAD]}
    assert main(words) == 1
    said = capsys.readouterr().out
    assert "losses: wrong" in said and "6 ok, 1 wrong, 1 not run" in said
    report = json.loads(file.read_text())
    assert (report["format"], statuses(report)["losses"]) == (1, "wrong")
    assert parts["told"]["losses"]["limit"] == 7
    assert [path.name for path in tmp_path.iterdir()] == ["check.json"]


def test_nothing_of_the_machine_but_its_kind_is_in_the_report(
    parts: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "node-7")
    report = run_all()
    assert set(report) == {
        *("format", "package", "date", "device", "machine", "versions", "figures", "parts")
    }
    text = json.dumps(report)
    assert not any(word in text for word in ("node-7", str(Path.home()), str(Path.cwd())))


def test_wrong_words_are_refused_before_anything_runs(
    parts: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = str(tmp_path / "figures.json")
    assert main(["hardware-check", "--write-figures", figures, "--device", "Ascend"]) == 2
    assert main(["hardware-check", "--parts", "losess"]) == 2
    assert main(["hardware-check", "--figures", figures]) == 1
    assert "no figures to compare with" in capsys.readouterr().err
    assert not parts["told"] and not list(tmp_path.iterdir())
