"""Recipes, launch files and options that are mistakes or attacks: exit code 2 and one sentence.

Every case goes through the real command. Nothing may be written, not even into the run folder.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

from pcl_reasoner.cli.main import main
from pcl_reasoner.core import files

RECIPE = """name: small
sources: {data: {path: DATA}}
stages:
  convert: {format: nemotron, inputs: {source: data}}
  difficulty: {}
"""
LAUNCH = """name: box
title: a box
profile: paper
verified: never
"""
DEADLINE = 20
"""Seconds after which a command counts as hanging; each takes a fraction of one."""
NINE = ", ".join(["*{0}"] * 9)
BOMB = "published:\n  a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"  {name}: &{name} [{NINE.format(before)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
"""Nine to the power of nine values, 387 million, in 9 lines."""
MERGED = "published:\n  a: &a {x: 1}\n" + "".join(
    f"  {name}: &{name} {{<<: [{NINE.format(before)}]}}\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
CHAIN = "published:\n  a: &a [1]\n" + "".join(
    f"  {name}: &{name} {'[' * 9}*{before}{']' * 9}\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
"""No line is deep; the last one is 73 levels deep when its aliases are replaced."""
MANY = "published:\n" + "".join(f"  k{number}: 1\n" for number in range(6000))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A recipe, a launch file and a source that are right; a command that hangs fails."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "rows.jsonl").write_text("{}\n")
    write(tmp_path, RECIPE)
    (tmp_path / "box.yaml").write_text(LAUNCH)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PCLR_RUNS", raising=False)

    def hangs(number: int, frame: FrameType | None) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(DEADLINE)
    yield tmp_path
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def write(folder: Path, recipe: str | bytes) -> None:
    """Write the recipe; DATA in it is the source's path."""
    text = recipe.encode() if isinstance(recipe, str) else recipe
    (folder / "small.yaml").write_bytes(text.replace(b"DATA", str(folder / "data").encode()))


def tree(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


def refused(folder: Path, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Run a command that must be refused; returns its one sentence."""
    before = tree(folder)
    code = main(list(words))
    found = capsys.readouterr()
    assert code == 2, found
    assert tree(folder) == before
    return sentence(found.err, found.out)


def sentence(err: str, out: str) -> str:
    *usage, last = err.splitlines()
    assert "Traceback" not in err + out
    assert out == ""
    assert not usage or usage[0].startswith("Usage: "), err
    assert len(last) < 2500
    assert last.startswith(("error: ", "Error: ")), err
    assert last.endswith((".", "?")), err
    return last.partition(": ")[2]


def validate(folder: Path, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    return refused(folder, capsys, "validate", "small.yaml", "--profile", "paper", *words)


def with_source(text: str) -> str:
    return RECIPE.replace("path: DATA", text)


def with_divisor(text: str) -> str:
    return RECIPE.replace("difficulty: {}", f"difficulty: {{divisor: {text}}}")


def with_inputs(text: str) -> str:
    return RECIPE.replace("{source: data}", text)


BAD = "not valid YAML: "
NOT_MINE = "must not be the root folder, nor in /proc, /sys or /dev"
TEXTS: dict[str, tuple[str | bytes, str]] = {
    "an alias bomb": (RECIPE + BOMB, BAD + "aliases make it larger than 10,000 values (line"),
    "a bomb of merged keys": (RECIPE + MERGED, BAD + "aliases make it larger than 10,000 values"),
    "a bomb under an unknown key": (RECIPE + BOMB.replace("pub", "p"), BAD + "aliases make it"),
    "aliases that nest": (RECIPE + CHAIN, BAD + "aliases make it more than 50 levels deep"),
    "an alias inside what it names": (RECIPE + "expect: &a {b: *a}", BAD + "an alias is inside"),
    "merged with itself": (RECIPE + "expect: &a {<<: *a}", BAD + "an alias is inside what it"),
    "merged with a number": (RECIPE + "expect: {<<: 3}", BAD + "while constructing a mapping"),
    "an unknown alias": (RECIPE + "expect: *a", BAD + "found undefined alias 'a' (line 6"),
    "an anchor twice": (RECIPE + "expect: {a: &a 1, b: &a 1}", BAD + "found duplicate anchor"),
    "lists in lists": (RECIPE + "expect: " + "[" * 3000 + "]" * 3000, "more than 50 levels deep"),
    "mappings in mappings": (RECIPE + "expect: " + "{a: " * 3000, "more than 50 levels deep"),
    "many values": (RECIPE + MANY, BAD + "more than 10,000 values (line"),
    "a large file": (RECIPE + "# comment\n" * 100_000, "larger than 262,144 bytes"),
    "a key twice": (RECIPE + "name: other", BAD + "key 'name' occurs twice (line 6, column 1)"),
    "a tab": (RECIPE + "expect:\n\ta: 1", BAD + "while scanning for the next token"),
    "UTF-16": (RECIPE.encode("utf-16"), "not UTF-8 ("),
    "UTF-16 without its mark": (RECIPE.encode("utf-16-le"), BAD + r"the character '\x00' is not"),
    "Latin-1": ("title: é\n".encode("latin-1"), "not UTF-8 ("),
    "a null byte": (RECIPE + "title: a\0b", BAD + r"the character '\x00' is not allowed"),
    "an escaped null byte": (with_source(r'path: "/a\0b"'), r"'\x00' is not allowed, nor is its"),
    "an escaped surrogate": (RECIPE + r'title: "\ud800"', r"'\ud800' is not allowed, nor is its"),
    "an escape sequence of terminals": (RECIPE + r'title: "\e[31m"', r"'\x1b' is not allowed"),
    "5,000 digits": (RECIPE + "seed: " + "1" * 5000, "a whole number of more than 64 bits (line"),
    "a hexadecimal of 100,000 digits": (with_divisor("0x" + "f" * 100_000), "more than 64 bits"),
    "base 60": (with_divisor("1" + ":59" * 3000), "a whole number of more than 64 bits"),
    "no digits": (with_divisor("0x_"), BAD + "'0x_' is not a value of the type int (line 5"),
    "no int": (with_divisor("!!int abc"), BAD + "'abc' is not a value of the type int"),
    "no bool": (with_divisor("!!bool abc"), BAD + "'abc' is not a value of the type bool"),
    "no map": (RECIPE + "expect: !!map abc", BAD + "'abc' is not a value of the type map"),
    "a set": (RECIPE + "expect: {a: !!set {b, c}}", "the tag 'set' is not allowed"),
    "bytes": (with_divisor("!!binary aGVsbG8="), "the tag 'binary' is not allowed"),
    "a date": (RECIPE + "expect: {a: !!timestamp nope}", "the tag 'timestamp' is not allowed"),
    "pairs": (RECIPE + "expect: !!omap [a: 1]", "the tag 'omap' is not allowed"),
    "code": (
        RECIPE + "expect: !!python/object/apply:os.system [touch gone]",
        "the tag 'python/object/apply:os.system' is not allowed",
    ),
    "a tag of its own": (RECIPE + "expect: !mine 3", "the tag '!mine' is not allowed"),
    "a list as key": (RECIPE + "expect: {[a]: 3}", BAD + "a key is not a plain string"),
    "nothing": ("", "must be a mapping of keys to values, got nothing"),
    "a comment": ("# nothing\n", "must be a mapping of keys to values, got nothing"),
    "a list": ("[a, b]", "must be a mapping of keys to values, got list"),
    "two documents": (RECIPE + "---\na: 1\n", BAD + "expected a single document in the stream"),
    "not closed": (RECIPE + "expect: [a", BAD + "while parsing a flow sequence"),
    "infinite": (RECIPE + "seed: .inf", "seed: must be a whole number of at least 0, got inf"),
    "not a number": (RECIPE + "expect: {a: .nan}", "expect: has a value that JSON cannot"),
    "a long name": (RECIPE.replace("small", "n" * 300), "name: must be letters, digits, _ and -"),
    "a long name of a stage": (
        RECIPE + f"  {'d' * 300}: {{stage: difficulty}}",
        "a name is letters, digits, _ and -, at most 100.",
    ),
    "a name that leads out": (RECIPE.replace("small", "../../x"), "got '../../x'"),
    "a name with a line end": (RECIPE.replace("small", r'"a\n"'), r"got 'a\n'"),
    "a name of a stage that leads out": (
        RECIPE + "  ../../x: {stage: difficulty}",
        "stages.../../x: a name is letters",
    ),
    "a foreign letter in a stage": (RECIPE + "  é: {stage: difficulty}", "stages.é: a name is"),
    "a stage that is a list": (
        RECIPE.replace("difficulty: {}", "difficulty: {stage: [a]}"),
        "stages.difficulty: no such stage ['a']",
    ),
    "a source twice": (
        with_inputs("{source: [data, data]}"),
        "stages.convert.inputs.source: must be one name and not a list, got ['data', 'data']",
    ),
    "a list of one": (with_inputs("{source: [data]}"), "must be one name and not a list"),
    "a benchmark twice": (
        RECIPE + "  contamination: {inputs: {problems: convert, benchmark: [data, data]}}",
        "inputs.benchmark: names an input twice, got ['data', 'data']",
    ),
    "all stages as a source": (with_inputs("{source: '*'}"), "source: must be the name of a"),
    "a glob elsewhere": (
        with_source("path: DATA, files: /etc/*"),
        "sources.data: files: must be a glob below the source's folder, e.g. data/*.parquet, "
        "got '/etc/*'",
    ),
    "a glob above": (with_source("path: DATA, files: ../*"), "must be a glob below the source"),
    "a wrong glob": (with_source("path: DATA, files: '**x'"), "** must stand alone between"),
    "no such user": (
        with_source("path: ~nosuchuser/x"),
        "sources.data: path: there is no such home folder; write the whole path, got '~nosuch",
    ),
    "no such user of a setting": (
        RECIPE
        + "  contamination: {review: ~nosuchuser/x, inputs: {problems: difficulty, "
        + "benchmark: data}}",
        "stage contamination: review: there is no such home folder",
    ),
    "a device as a setting": (
        RECIPE
        + "  contamination: {against: [/dev/zero], inputs: {problems: difficulty, "
        + "benchmark: data}}",
        f"stage contamination: against.0: {NOT_MINE}",
    ),
    "processes as data": (with_source("path: /proc"), NOT_MINE),
    "the kernel as data": (
        with_source("path: /proc/self/../../sys"),
        NOT_MINE,
    ),
    "a device as data": (with_source("path: /dev/zero"), NOT_MINE),
    "everything as data": (with_source("path: /"), NOT_MINE),
    "a long path": (with_source(f"path: /{'x' * 300}"), "path: cannot be a path: it is too long"),
    "a path out of an artifact": (
        with_source("stage: difficulty, path: ../../x"),
        "sources.data: path: must be a path inside the stage's artifact, without ..",
    ),
    "a repository that leads out": (
        with_source("hub: ../../x, revision: main"),
        "sources.data: hub: must be the id of a repository, OWNER/NAME",
    ),
    "its own stages": (
        with_source("recipe: small.yaml, stage: convert"),
        "takes a stage from small.yaml, which has the same name 'small'",
    ),
}


BOMBS = [case for case in TEXTS if "bomb" in case]
"""They run in a process of their own: without the limits they would take this one's memory."""


@pytest.mark.parametrize("case", [case for case in TEXTS if case not in BOMBS])
def test_a_recipe(folder: Path, capsys: pytest.CaptureFixture[str], case: str) -> None:
    text, said = TEXTS[case]
    write(folder, text)
    found = validate(folder, capsys)
    assert found.startswith("small.yaml: ")
    assert said in found


@pytest.mark.parametrize("command", ["validate", "status", "run", "plan", "show"])
@pytest.mark.parametrize("case", BOMBS)
def test_a_bomb_in_a_small_process(folder: Path, case: str, command: str) -> None:
    text, said = TEXTS[case]
    write(folder, text)
    before = tree(folder)
    found = process(command, "small.yaml", folder=folder, start=small)
    assert found.returncode == 2, found.stderr
    assert said in sentence(found.stderr, found.stdout)
    assert tree(folder) == before


def small() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))


def process(
    *words: str, folder: Path, start: Callable[[], None]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pcl_reasoner.cli", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(files.PACKAGE.parent)},
        preexec_fn=start,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


PASSWORD = "a URL must not have a user or password"
NO_URL = "must be the base URL of a server such as http://host:8000/v1"
PLACEMENTS = {
    "hashed: " + BOMB.replace("published:", ""): BAD + "aliases make it larger",
    "placement: {threads: " + "1" * 5000 + "}": "a whole number of more than 64 bits",
    "placement: {notice_seconds: .inf}": "placement.notice_seconds: Input should be a finite",
    "placement: {env: {'A;touch gone;B': '1'}}": "placement.env: 'A;touch gone;B' is not the name",
    "placement: {env: {'A B': '1'}}": "placement.env: 'A B' is not the name of an environment",
    "placement: {env: {'': '1'}}": "placement.env: '' is not the name of an environment",
    "placement: {env: {A=B: '1'}}": "placement.env: 'A=B' is not the name of an environment",
    "placement: {env: {1A: '1'}}": "placement.env: '1A' is not the name of an environment",
    'placement: {env: {"A\\nB": "1"}}': r"placement.env: 'A\nB' is not the name of an environment",
    "placement: {per_host: {localhost: {env: {'$(touch gone)': '1'}}}}": (
        "placement.per_host.localhost.env: '$(touch gone)' is not the name"
    ),
    "placement: {sampling: {executable: vllm, environment: {'`touch gone`': '1'}}}": (
        "placement.sampling.environment: '`touch gone`' is not the name"
    ),
    "placement: {sampling: {executable: ~nosuchuser/vllm}}": "there is no such home folder",
    "placement: {ssh: {config: ~nosuchuser/config}}": "ssh.config: there is no such home folder",
    "placement: {host_file: ~nosuchuser/hosts}": "there is no home folder for ~nosuchuser",
    "placement: {host_file: /dev/zero}": "placement.host_file: /dev/zero cannot be read: not a",
    "placement: {host_file: pipe}": "placement.host_file: pipe cannot be read: not a file",
    "placement: {host_file: data}": "placement.host_file: data cannot be read: not a file",
    "placement: {hosts: ['-oProxyCommand=touch gone']}": "is not a host name or an IPv4 address",
    "placement: {data: {engine: ray, address: 'ray://me:s3cret@head:1'}}": (
        "placement.data.address: must not have a user or password"
    ),
    "placement: {sandbox: {engine: http, urls: ['http://me:s3cret@h/v1']}}": (
        f"placement.sandbox.urls: {PASSWORD}"
    ),
    "placement: {server_urls: ['http://h/v1'], api_keys: {'http://me:s3cret@h/v1': KEY}}": PASSWORD,
    **{
        f"placement: {{{key}: ['http://me:s3cret@host:8000/v1']}}": f"placement.{key}: {PASSWORD}"
        for key in ("server_urls", "judge_urls", "score_urls", "opinion_urls")
    },
    **{
        f"placement: {{server_urls: ['{url}']}}": f"placement.server_urls: {NO_URL}"
        for url in (
            "",
            "host",
            "ftp://host/v1",
            "http://",
            "http://[::1",
            "http://host:99999/v1",
            "http://ho st/v1",
            "http://host/v1?key=s3cret",
            "file:///etc/passwd",
        )
    },
}


@pytest.mark.parametrize("text", PLACEMENTS)
def test_a_launch_file(folder: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    if "&a [" in text:
        resource_free = process(
            "validate",
            "small.yaml",
            "--launch",
            write_launch(folder, text),
            folder=folder,
            start=small,
        )
        assert PLACEMENTS[text] in sentence(resource_free.stderr, resource_free.stdout)
        return
    os.mkfifo(folder / "pipe")
    found = validate(folder, capsys, "--launch", write_launch(folder, text))
    assert found.startswith("box.yaml: ")
    assert PLACEMENTS[text] in found
    assert "s3cret" not in found


def write_launch(folder: Path, text: str) -> str:
    (folder / "box.yaml").write_text(f"{LAUNCH}{text}\n")
    return "box.yaml"


@pytest.mark.parametrize("text", ["path: 'https://me:s3cret@h/a'", "hub: me:s3cret@h, revision: m"])
def test_a_source_with_a_password(
    folder: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    write(folder, with_source(text))
    assert "sources.data: " in validate(folder, capsys)


LONG = "x" * 100_000
DEEP = ".".join("abcd"[number % 4] for number in range(5000))
WORDS = {
    f"convert.{DEEP}=1": "names more than 50 levels",
    f"expect.{DEEP}=1": "names more than 50 levels",
    "convert.format=&a [*a]": "the value is not valid YAML: an alias is inside what it names",
    "convert.format=[a": "the value is not valid YAML: while parsing a flow sequence",
    "convert.format=!!python/name:os.system ": "the tag 'python/name:os.system' is not allowed",
    "convert.max_malformed=!!int x": "'x' is not a value of the type int",
    "convert.format=" + "[" * 3000: "nested more than 50 levels deep",
    "convert.format=" + "[x]," * 100_000: "the value is too large (400,000 characters",
    "convert.stage=[1]": "override convert.stage=[1]: stages.convert: no such stage [1]",
    f"convert.stage={LONG}": "stages.convert: no such stage",
    f"convert.format={LONG}": "override convert.format=xxx",
    "sources.data.path=~nosuchuser/x": "path: there is no such home folder",
    "sources.data.files=/etc/*": "files: must be a glob below the source's folder",
    "sources.data.path=/\udc80": r"the character '\udc80' is not allowed",
    "convert": "'convert': an override is stage.key=value",
}


@pytest.mark.parametrize("number", range(len(WORDS)))
def test_an_override(folder: Path, capsys: pytest.CaptureFixture[str], number: int) -> None:
    word, said = list(WORDS.items())[number]
    code = main(["validate", "small.yaml", "--profile", "paper", word])
    found = capsys.readouterr()
    assert (code, found.out) == (2, "")
    assert said in found.err
    assert "Traceback" not in found.err
    assert all(len(line) < 2500 for line in found.err.splitlines())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--runs", ""), "'--runs': must not be empty; write . for the current folder."),
        (("--runs", "~nosuchuser/x"), "there is no home folder for ~nosuchuser"),
        (("--runs", LONG), "cannot be a path."),
        (("--seed", "1" * 5000), "Invalid value for '--seed'"),
        (("--seed", str(2**63)), "small.yaml: seed: must be a whole number of at most 64 bits."),
        (("--profile", LONG), "is not in the recipe"),
        (("--profile", "../../x"), "profile '../../x' is not in the recipe"),
        (("--launch", LONG), "no such file, and no shipped launch file has that name"),
        (("--launch", "data"), "data: no such file, and no shipped launch file"),
        (("--launch", "/dev/zero"), "/dev/zero: no such file, and no shipped launch file"),
    ],
)
@pytest.mark.parametrize("command", ["run", "status"])
def test_an_option(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    command: str,
    words: tuple[str, ...],
    said: str,
) -> None:
    assert said in refused(folder, capsys, command, "small.yaml", *words)


@pytest.mark.parametrize("words", [("verify",), ("preview", "small.yaml"), ("plan", "small.yaml")])
def test_no_command_takes_an_empty_run_folder(
    folder: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    assert "must not be empty" in refused(folder, capsys, *words, "--runs", "")


def a_folder(path: Path) -> None:
    path.mkdir()


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def a_circle(path: Path) -> None:
    path.symlink_to(path)


def a_link_to_nothing(path: Path) -> None:
    path.symlink_to(path.with_name("nothing"))


def a_gigabyte(path: Path) -> None:
    with path.open("wb") as handle:
        handle.truncate(1 << 30)


KINDS = [a_folder, a_pipe, a_device, a_circle, a_link_to_nothing, a_gigabyte]


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("place", ["recipe", "launch", "profile", "source", "diff", "cp"])
def test_what_is_no_file(
    folder: Path, capsys: pytest.CaptureFixture[str], make: Callable[[Path], None], place: str
) -> None:
    make(folder / "odd.yaml")
    write(folder, RECIPE + "profiles: {odd: odd.yaml}\n")
    if place == "source":
        write(folder, with_source("recipe: odd.yaml, stage: x"))
    words = {
        "recipe": ("validate", "odd.yaml"),
        "launch": ("validate", "small.yaml", "--launch", "odd.yaml"),
        "profile": ("validate", "small.yaml", "--profile", "odd"),
        "source": ("validate", "small.yaml", "--profile", "paper"),
        "diff": ("diff", "v15_opg", "odd.yaml"),
        "cp": ("cp", "odd.yaml", "new.yaml"),
    }
    said = refused(folder, capsys, *words[place])
    assert "odd.yaml" in said
    wrong = "no such file", "not a file", "cannot be read", "larger than 262,144 bytes"
    assert any(one in said for one in wrong), said


def may_not_read_everything() -> None:
    """Take from root the rights to read and search what its permissions do not allow."""
    drop_from_bounding_set, override, read_search = 24, 1, 2
    for right in (override, read_search):
        ctypes.CDLL(None).prctl(drop_from_bounding_set, right, 0, 0, 0)


@pytest.mark.parametrize(
    ("closed", "words", "said"),
    [
        ("small.yaml", (), "small.yaml: cannot be read (Permission denied)."),
        ("box.yaml", ("--launch", "box.yaml"), "box.yaml: cannot be read (Permission denied)."),
        ("other", ("--profile", "odd"), "profiles.odd: other/odd.yaml: cannot be read"),
        ("other", ("--launch", "other/box.yaml"), "other/box.yaml: cannot be read (Permission"),
        ("data", ("--until", "convert"), "source data: {folder}/data: cannot be read (no"),
        ("data/rows.jsonl", (), "source data: {folder}/data/rows.jsonl: cannot be read (no"),
        ("runs", (), "'--runs': Directory 'runs' is not readable."),
    ],
)
def test_what_may_not_be_read(folder: Path, closed: str, words: tuple[str, ...], said: str) -> None:
    write(folder, RECIPE + "profiles: {odd: other/odd.yaml}\n")
    (folder / "other").mkdir()
    (folder / "runs").mkdir()
    (folder / closed).chmod(0)
    words = ("run", "small.yaml", *(words or ("--profile", "paper")))
    words = words if "--profile" in words else (*words, "--profile", "paper")
    found = process(*words, folder=folder, start=may_not_read_everything)
    (folder / closed).chmod(0o700)
    assert found.returncode == 2, found.stderr
    assert "Traceback" not in found.stderr
    assert said.format(folder=folder) in found.stderr


def test_a_chain_of_recipes_ends(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A hundred recipes; each reads the next one."""
    for number in range(100):
        text = with_source(f"recipe: r{number + 1}.yaml, stage: convert")
        (folder / f"r{number}.yaml").write_text(text.replace("small", f"r{number}"))
    for command in (("validate",), ("status", "--runs", "runs")):
        code = main([command[0], "r0.yaml", "--profile", "paper", *command[1:]])
        assert code == 2
        assert "reads more than 50 other recipes" in capsys.readouterr().err


def test_recipes_that_many_sources_name_are_read_once(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two sources name each of 20 recipes: a million ways lead through them."""
    for number in range(20):
        beside = f"{{recipe: r{number + 1}.yaml, stage: convert}}"
        text = RECIPE.replace("{data: {path: DATA}}", f"{{data: {beside}, more: {beside}}}")
        (folder / f"r{number}.yaml").write_text(text.replace("small", f"r{number}"))
    (folder / "r20.yaml").write_text(RECIPE.replace("small", "r20"))
    assert main(["validate", "r0.yaml", "--profile", "paper"]) == 0
    assert capsys.readouterr().out.endswith("ok: 2 stages\n")


def test_a_hundred_problems_are_listed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stages = "".join(f"  s{number}: {{stage: no}}\n" for number in range(150))
    write(folder, RECIPE + stages)
    assert main(["validate", "small.yaml", "--profile", "paper"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "error: 150 problems:"
    assert lines[-1] == "  and 50 more"
    assert len(lines) == 102


@pytest.mark.parametrize("profile", ["../outside.yaml", "/outside.yaml", "[a]"])
def test_cp_copies_nothing_from_elsewhere(
    folder: Path, capsys: pytest.CaptureFixture[str], profile: str
) -> None:
    """Its target would be elsewhere, too."""
    (folder / "in").mkdir()
    (folder / "outside.yaml").write_text("stages: {}\n")
    (folder / "in" / "small.yaml").write_text(f"{RECIPE}profiles: {{odd: {profile}}}\n")
    said = refused(folder, capsys, "cp", "in/small.yaml", "out/small.yaml")
    assert "is not a file in the recipe's folder or below it" in said


def test_what_is_right_stays_right(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A mark of UTF-8, dates, merged keys, aliases, an exponent, 64 bits, 40 levels."""
    text = (
        "\ufeff"
        + RECIPE
        + "published: {date: 2026-01-01, a: &a {x: 1}, b: {<<: *a, y: 1e-6}, c: [*a, *a],\n"
        + f'            most: {2**63 - 1}, deep: {"[" * 40}{"]" * 40}, text: "a\\n\\tb é"}}\n'
    )
    write(folder, text)
    assert main(["validate", "small.yaml", "--profile", "paper"]) == 0, capsys.readouterr()
    urls = "[http://host:8000/v1/, 'https://judge.example/v1', 'http://[::1]:8000/v1']"
    write_launch(folder, f"placement: {{server_urls: {urls}, env: {{_a1: 'x y', HTTP_PROXY: ''}}}}")
    words = ["validate", "small.yaml", "--profile", "paper", "--launch", "box.yaml"]
    assert main(words) == 0, capsys.readouterr()
