"""What a dry run says of servers: what is asked of which, who starts it, what is missing."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from pcl_reasoner.cli.main import cli
from pcl_reasoner.core.files import find, yaml_text
from pcl_reasoner.core.yaml_file import read_yaml

URL = "https://api.openai.com/v1"


def dry_run(tmp_path: Path, launch: str, *words: str) -> list[str]:
    runs = ["--runs", str(tmp_path / "runs")]
    command = ["run", "am_thinking_v1", "--launch", launch, "--dry-run", *words, *runs]
    answer = CliRunner().invoke(cli, command, catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    return answer.output.splitlines()


def below(lines: list[str], head: str) -> list[str]:
    """The indented lines that follow a line."""
    [place] = [number for number, line in enumerate(lines) if line.startswith(head)]
    found = []
    for line in lines[place + 1 :]:
        if not line.startswith("  "):
            break
        found.append(line.strip())
    return found


def own_launch(tmp_path: Path, name: str, **placement: object) -> str:
    launch = read_yaml(find(name, "launch"))
    launch["placement"] |= placement
    (tmp_path / "own.yaml").write_text(yaml_text(launch))
    return str(tmp_path / "own.yaml")


def test_every_stage_that_asks_says_whom_and_what_nobody_starts_is_missing(tmp_path: Path) -> None:
    nobody: dict[str, object] = {"sampling": None, "opinion_urls": [], "api_keys": {}}
    lines = dry_run(tmp_path, own_launch(tmp_path, "atlas_910c_16x8", **nobody))
    asked = [line.partition(" asks ")[::2] for line in lines if " asks " in line]
    assert [(stage.partition("/")[2], what.partition(",")[0]) for stage, what in asked] == [
        ("sample_truth", "the policy: 'teacher'"),
        ("revise", "the third model: 'o4-mini'"),
        ("sample_sft", "the policy: 'teacher'"),
        ("perplexity", "the policy: 'scorer'"),
        ("sample_rates", "the policy: 'policy'"),
        ("rl_1", "the policy: 'policy'"),
        ("rl_2", "the policy: 'policy'"),
        ("rl_2", "the reward model: 'reward'"),
        ("evaluate_sft", "the policy: 'policy'"),
        ("evaluate_1", "the policy: 'policy'"),
        ("evaluate_2", "the policy: 'policy'"),
    ]
    assert below(lines, "am_thinking_v1/sample_truth asks") == [
        "weights: deepseek-ai/DeepSeek-R1 at main (source teacher), 671 GB",
        "nobody yet: start them with the commands below, and put http://HOST:8000/v1 into "
        "placement.server_urls",
    ]
    missing = [line for line in lines if line.startswith("missing: stage")]
    names = "sample_truth sample_sft perplexity sample_rates rl_1 rl_2 evaluate_sft evaluate_1"
    titles = " and ".join(f"am_thinking_v1/{name}" for name in [*names.split(), "evaluate_2"])
    assert [line.partition(". ")[0] for line in missing] == [
        f"missing: stages {titles}: no server of the policy",
        "missing: stage am_thinking_v1/rl_2: no server of the reward model",
    ]
    third = "warning: stage am_thinking_v1/revise: no server of the third model. If a ground truth"
    assert [line for line in lines if line.startswith(third)]
    [several] = [line for line in lines if "several models are asked" in line]
    assert several.startswith("warning: placement.server_urls: ")
    assert "sample_truth, sample_sft: 'teacher'" in several and "--until STAGE" in several
    [fetch] = [line for line in lines if line.startswith("to fetch: scorer, ")]
    assert fetch.startswith("to fetch: scorer, model Qwen/Qwen2.5-32B-Instruct at main -> /")


def test_servers_that_stages_start_and_a_key_that_is_not_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    lines = dry_run(tmp_path, "atlas_910c_teacher", "--until", "sample_sft")
    weights, how, command, second = below(lines, "am_thinking_v1/sample_sft asks")
    assert second == (
        "and with a second name, teacher@HASH, a hash of the weights when they are there"
    )
    assert weights.startswith("weights: deepseek-ai/DeepSeek-R1")
    assert how == (
        "the stage starts 1 server with --tensor-parallel-size 4 from port 8000 on each of 16 "
        "hosts (--start ssh; without it, here alone), by placement.sampling"
    )
    host, _, line = command.partition(": ")
    words = shlex.split(line.rpartition(" && exec ")[2])
    assert host == "on node01" and words[:2] == ["/opt/vllm/bin/vllm", "serve"]
    assert words[words.index("--port") + 1] == "8000"
    assert words[-2:] == ["--quantization", "ascend"]
    key = f"{URL}, with the key in OPENAI_API_KEY"
    assert below(lines, "am_thinking_v1/revise asks") == [f"{key}, which is NOT SET"]
    [missing] = [line for line in lines if line.startswith("missing: ") and "aime" not in line]
    assert missing.startswith(f"missing: {URL} needs a key, but OPENAI_API_KEY is not set")
    monkeypatch.setenv("OPENAI_API_KEY", "s3cret")
    lines = dry_run(tmp_path, "atlas_910c_teacher", "--until", "sample_sft")
    assert below(lines, "am_thinking_v1/revise asks") == [key]
    assert not [line for line in lines if URL in line and "missing" in line or "s3cret" in line]


def test_a_laptop_asks_nobody_and_says_where_programs_run(tmp_path: Path) -> None:
    lines = dry_run(tmp_path, "laptop")
    asked = [line for line in lines if " asks " in line]
    # Its responses are recorded, and so are the opinions.
    assert [line.partition(" asks ")[2].partition(":")[0] for line in asked] == ["the third model"]
    recorded = ["only what is not recorded (input opinion)"]
    assert below(lines, "am_thinking_v1/revise asks") == recorded
    assert not [line for line in lines if line.startswith("missing: stage")]
    [where] = [line for line in lines if line.startswith("sandboxes: ")]
    assert "on the machine of pclr-ms run" in where


def test_services_of_sandboxes_are_named(tmp_path: Path) -> None:
    sandbox = {"engine": "http", "urls": ["http://a:8080"]}
    lines = dry_run(tmp_path, own_launch(tmp_path, "atlas_910c_16x8", sandbox=sandbox))
    [where] = [line for line in lines if line.startswith("sandboxes: ")]
    assert "by the services http://a:8080; 64 at a time" in where
