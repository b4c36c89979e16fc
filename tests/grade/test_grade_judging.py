"""The judge's servers that the stage starts itself, as another process and over real HTTP."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from grade_helpers import correct, judge_server, write_problems, write_responses
from servers import all_gone, serving, starts, wait_for

from pcl_reasoner.core.artifact import fingerprint, hash_file
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.files import shipped
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.stage import Counts, StageContext
from pcl_reasoner.grade.config import GradeConfig
from pcl_reasoner.grade.judging import VerdictLog
from pcl_reasoner.grade.stage import grade
from pcl_reasoner.runner.plan import make_plan
from pcl_reasoner.runner.recipe import load_recipe
from pcl_reasoner.synthetic.base_model import write_model_folder

ROWS = [(f"p{i:02d}", 0, correct(str(i)), "stop", 4) for i in range(12)]
TRUTHS = {f"p{i:02d}": str(i) for i in range(12)}
CONFIG = GradeConfig(
    method="judge", judge_model="j", judge_max_model_len=200, judge_concurrency=2, max_missing=1.0
)
YES = {"STAND_IN_TEXT": "equal. \\boxed{{1}}"}


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("judge")
    write_model_folder(folder, ["reference 8"], vocab_size=300, hidden=64, layers=1, seed=1)
    return folder


def run(
    path: Path, judge: Path, config: GradeConfig = CONFIG, **placement: Any
) -> tuple[Counts, Path, StageContext]:
    if not (path / "sample").exists():
        write_responses(path / "sample", ROWS)
        write_problems(path / "problems", TRUTHS)
    output = path / "grade-12345678.partial"
    output.mkdir(exist_ok=True)
    inputs = {"responses": path / "sample", "problems": path / "problems", "judge": judge}
    where = StageContext(
        name="grade", quarantined=path / "kept.jsonl", placement=Placement(**placement)
    )
    return grade(config, inputs, output, where), output, where


def verdicts(output: Path) -> list[tuple[str, str, str]]:
    rows = pq.read_table(output / "verdicts.parquet").to_pylist()
    return [(row["problem_id"], row["verdict"], row["judge_text"]) for row in rows]


def test_the_judge_is_started_for_the_stage_and_stopped_after_it(
    judge: Path, tmp_path: Path
) -> None:
    counts, output, _ = run(tmp_path, judge, **serving(tmp_path, key="judging", environment=YES))
    assert verdicts(output) == [(row[0], "correct", "equal. \\boxed{1}") for row in ROWS]
    assert len(starts(tmp_path)) == 1
    assert all_gone(tmp_path)
    # What it said is beside the artifact, not in it.
    log = (tmp_path / "logs" / "grade-12345678.judge.log").read_text()
    words = json.loads(log.partition("stand-in starts: ")[2].splitlines()[0])
    assert words[:4] == ["serve", str(judge), "--served-model-name", "j"]
    assert words[words.index("--max-model-len") + 1] == "200"
    told = json.loads((output / "grading.json").read_text())["judge"]
    (served,) = told["servers"]
    assert (served["version"], told["served_model"], told["seed"]) == ("stand-in", "j", 0)
    files = {name: hash_file(judge / name) for name in ("config.json", "model.safetensors")}
    assert told["model_fingerprint"] == fingerprint(files)
    prompt = (shipped("recipes") / "prompts" / "judge.txt").read_text(encoding="utf-8")
    assert told["prompt_sha256"] == fingerprint(prompt)
    assert (counts.info["judged"], counts.info["prompt_sha256"]) == (12, fingerprint(prompt))
    # Killed between the last write and the commit: nobody is asked, or started, again.
    again, _, _ = run(tmp_path, judge, **serving(tmp_path, key="judging"))
    assert (again, len(starts(tmp_path))) == (counts, 1)


def test_a_judges_server_of_another_folder_stops_the_stage(judge: Path, tmp_path: Path) -> None:
    with judge_server(lambda *_: (200, "equal. \\boxed{1}"), "j", root="/models/other") as (
        url,
        asked,
    ):
        with pytest.raises(StageError, match=f"serves /models/other, expected {judge}"):
            run(tmp_path, judge, judge_urls=[url])
        assert asked == []
        paths = {str(judge.parent): "/models", str(judge): "/models/other"}
        counts, _, _ = run(tmp_path, judge, judge_urls=[url], server_paths=paths)
    assert counts.info["judged"] == 12


def test_a_judge_killed_in_mid_batch_is_started_again_and_nothing_is_lost_or_doubled(
    judge: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "grade-12345678.partial" / "verdicts.partial.jsonl"
    close, lines = VerdictLog.close, []

    def look_and_close(self: VerdictLog) -> None:
        close(self)
        lines.extend(log.read_text().splitlines())

    monkeypatch.setattr(VerdictLog, "close", look_and_close)
    # No retries: what the server's end broke is not the question's failure.
    monkeypatch.setattr("pcl_reasoner.grade.judging.RETRIES", 0)

    def kill() -> None:
        wait_for(lambda: log.exists() and len(log.read_text().splitlines()) > 4)
        os.kill(starts(tmp_path)[0][0], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    placement = serving(tmp_path, key="judging", slow=0.8, environment=YES)
    counts, output, made = run(tmp_path, judge, **placement)
    killer.join()
    assert [row[1] for row in verdicts(output)] == ["correct"] * 12
    keys = [json.loads(line).get("problem_id") for line in lines]
    assert sorted(key for key in keys if key) == sorted(TRUTHS)
    # What was in flight, two at a time, is asked again.
    assert 1 <= counts.info["retried"]["connection"] <= 2
    assert (counts.info["judged"], counts.info["asked_again"]) == (12, 0)
    assert len(starts(tmp_path)) == 2
    assert all_gone(tmp_path)
    assert any("restarted 1 times" in warning for warning in made.warnings)


def test_too_many_without_a_verdict_are_asked_once_more_by_the_next_run(
    judge: Path, tmp_path: Path
) -> None:
    config = CONFIG.model_copy(update={"judge_attempts": 1, "max_missing": 0.0})
    told = serving(tmp_path, key="judging", environment={"STAND_IN_TEXT": "no idea"})
    with pytest.raises(StageError, match="12 of 12 responses without a readable verdict"):
        run(tmp_path, judge, config, **told)
    counts, output, _ = run(
        tmp_path, judge, config, **serving(tmp_path, key="judging", environment=YES)
    )
    assert [row[1] for row in verdicts(output)] == ["correct"] * 12
    assert (counts.info["judged"], counts.info["unreadable"]) == (12, 0)


def test_what_cannot_be_read_is_asked_again_as_often_as_configured_and_counted(
    judge: Path, tmp_path: Path
) -> None:
    config = CONFIG.model_copy(update={"judge_attempts": 2, "seed": 40})
    told = {"STAND_IN_TEXT": "I was asked with seed {seed}."}
    placement = serving(tmp_path, key="judging", environment=told)
    counts, output, _ = run(tmp_path, judge, config, **placement)
    # The second, at the next seed, is the last.
    assert {row[1:] for row in verdicts(output)} == {("error", "I was asked with seed 41.")}
    figures = [counts.info[name] for name in ("judged", "asked_again", "unreadable")]
    assert figures == [12, 12, 12]


def test_no_judge_is_started_where_nothing_is_to_be_asked(judge: Path, tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"method": "cascade"})  # integers: the rule is sure
    counts, _, _ = run(tmp_path, judge, config, **serving(tmp_path, key="judging"))
    assert counts.info["outcomes"] == {"correct": 12}
    assert (counts.info["judged"], starts(tmp_path)) == (0, [])


def test_a_judge_has_urls_or_is_started() -> None:
    with pytest.raises(ValueError, match="either judge_urls or judging .*, got both"):
        Placement(judge_urls=["http://a/v1"], judging={"executable": "vllm"})


def test_another_judge_is_another_grade(judge: Path, tmp_path: Path) -> None:
    weights = judge / "config.json"
    write_problems(tmp_path / "problems", TRUTHS)
    write_responses(tmp_path / "sample", ROWS)
    (tmp_path / "r.yaml").write_text(
        f"sources:\n  responses: {{path: {tmp_path / 'sample'}}}\n"
        f"  problems: {{path: {tmp_path / 'problems'}}}\n  asked: {{path: {judge}, kind: model}}\n"
        "stages:\n  without: {stage: grade, method: judge, inputs: &inputs "
        "{responses: responses, problems: problems}}\n"
        "  with: {stage: grade, method: judge, inputs: {<<: *inputs, judge: asked}}\n"
    )
    text = weights.read_text()

    def identities() -> dict[str, str]:
        recipe = load_recipe(str(tmp_path / "r.yaml"), profile="paper")
        return {p.spec.name: p.fingerprint for p in make_plan(recipe, tmp_path / "runs").stages}

    before = identities()
    weights.write_text(text + " ")
    after = identities()
    weights.write_text(text)
    assert before["without"] == after["without"]
    assert len({before["without"], before["with"], after["with"]}) == 3
