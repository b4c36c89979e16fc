"""Recipes: precedence, and every mistake named with its file, path and nearest name."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny_stages

from pcl_reasoner import stages
from pcl_reasoner.core.errors import InputError
from pcl_reasoner.core.yaml_file import read_yaml
from pcl_reasoner.runner.launch_file import load_launch
from pcl_reasoner.runner.recipe import Recipe, load_recipe

RECIPE = """
name: tiny
title: Numbers
seed: 1
max_malformed: 0.25
sources:
  data: {path: data, files: "*.txt"}
choices:
  rate:
    use: script
    script: {half.rate: 0.1}
    readme: {half.rate: 0.2}
stages:
  numbers: {n: 4, native: {a: 1, b: {c: 2, d: 3}}}
  half: {}
expect: {even: 2}
profiles: {small: profiles/small.yaml, other: profiles/absent.yaml}
"""
OVERLAY = """
seed: 2
stages:
  numbers: {n: 3, native: {b: {c: 20}}}
  slow: {n: 1}
"""
LAUNCH = """
name: box
title: a box
profile: small
verified: by these tests
"""


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, stage in tiny_stages.TINY.items():
        monkeypatch.setitem(stages.STAGES, name, stage)


def load(
    tmp_path: Path,
    recipe: str = RECIPE,
    overlay: str = OVERLAY,
    launch: str = LAUNCH,
    profile: str | None = None,
    overrides: tuple[str, ...] = (),
    seed: int | None = None,
    until: str | None = None,
) -> Recipe:
    (tmp_path / "profiles").mkdir(exist_ok=True)
    (tmp_path / "tiny.yaml").write_text(recipe)
    (tmp_path / "profiles" / "small.yaml").write_text(overlay)
    (tmp_path / "box.yaml").write_text(launch)
    return load_recipe(
        str(tmp_path / "tiny.yaml"), str(tmp_path / "box.yaml"), profile, overrides, seed, until
    )


def config(recipe: Recipe, stage: str) -> dict[str, object]:
    return recipe.stages[stage].config.model_dump()


def refused(tmp_path: Path, **changes: object) -> str:
    with pytest.raises(InputError) as caught:
        load(tmp_path, **changes)  # type: ignore[arg-type]
    return str(caught.value)


class TestPrecedence:
    def test_paper_is_the_top_level(self, tmp_path: Path) -> None:
        recipe = load(tmp_path, profile="paper")
        assert config(recipe, "numbers")["n"] == 4
        assert config(recipe, "numbers")["seed"] == 1
        assert list(recipe.stages) == ["numbers", "half"]

    def test_overlay_merges_deeply_and_adds_stages(self, tmp_path: Path) -> None:
        recipe = load(tmp_path)
        expected = {"n": 3, "seed": 2, "native": {"a": 1, "b": {"c": 20, "d": 3}}}
        assert config(recipe, "numbers") == expected
        assert list(recipe.stages) == ["numbers", "half", "slow"]

    def test_a_stage_without_keys_in_an_overlay_changes_nothing(self, tmp_path: Path) -> None:
        assert config(load(tmp_path, overlay="stages: {numbers: }"), "numbers")["n"] == 4

    def test_choice_below_overlay_below_launch_below_override(self, tmp_path: Path) -> None:
        overlay = "stages: {half: {rate: 0.3}}"
        hashed = LAUNCH + "hashed: {half: {rate: 0.4}}"

        def rate(**changes: object) -> object:
            return config(load(tmp_path, **changes), "half")["rate"]  # type: ignore[arg-type]

        assert rate(overlay="{}") == 0.1
        assert rate(overlay="{}", overrides=("choices.rate=readme",)) == 0.2
        assert rate(overlay="choices: {rate: readme}") == 0.2
        assert rate(overlay=overlay) == 0.3
        assert rate(overlay=overlay, launch=hashed) == 0.4
        assert rate(overlay=overlay, launch=hashed, overrides=("half.rate=0.5",)) == 0.5

    def test_chosen_options_are_known(self, tmp_path: Path) -> None:
        assert load(tmp_path).choices == {"rate": "script"}
        chosen = load(tmp_path, overrides=("choices.rate=readme",)).choices
        assert chosen == {"rate": "readme"}

    def test_seed_given_takes_the_recipes_place_but_not_a_stages_own(self, tmp_path: Path) -> None:
        assert config(load(tmp_path, seed=9), "numbers")["seed"] == 9
        own = RECIPE.replace("n: 4,", "n: 4, seed: 5,")
        assert config(load(tmp_path, own, seed=9), "numbers")["seed"] == 5

    def test_max_malformed_fills_stages_that_have_it(self, tmp_path: Path) -> None:
        assert config(load(tmp_path), "half")["max_malformed"] == 0.25

    def test_deep_override_reaches_into_a_mapping(self, tmp_path: Path) -> None:
        recipe = load(tmp_path, profile="paper", overrides=("numbers.native.b.c=7",))
        assert config(recipe, "numbers")["native"] == {"a": 1, "b": {"c": 7, "d": 3}}

    def test_small_numbers_are_numbers(self, tmp_path: Path) -> None:
        recipe = load(tmp_path, overrides=("numbers.native.lr=1e-6", "numbers.native.id=1e6"))
        native = config(recipe, "numbers")["native"]
        assert isinstance(native, dict)
        assert native["lr"] == 0.000001
        assert native["id"] == "1e6"

    def test_source_override_replaces_the_origin_and_keeps_the_files(self, tmp_path: Path) -> None:
        hub = RECIPE.replace("{path: data,", "{hub: someone/data, revision: abc,")
        source = load(tmp_path, hub, overrides=("sources.data.path=/elsewhere",)).sources["data"]
        assert source.model_dump(exclude_none=True) == {
            "path": "/elsewhere",
            "files": "*.txt",
            "kind": "dataset",
        }

    def test_stages_stand_after_those_they_read(self, tmp_path: Path) -> None:
        turned = """
name: tiny
sources: {made: {stage: numbers, path: numbers.json}}
stages:
  report: {}
  second: {stage: half, inputs: {numbers: made}}
  half: {}
  numbers: {}
profiles: {small: profiles/small.yaml}
"""
        recipe = load(tmp_path, turned, overlay="{}")
        assert list(recipe.stages) == ["numbers", "second", "half", "report"]


class TestMistakes:
    def test_all_at_once_with_file_path_and_nearest_name(self, tmp_path: Path) -> None:
        said = refused(
            tmp_path,
            recipe=RECIPE.replace("native:", "natve:").replace("title:", "titel:"),
            overlay="stages: {halve: {}, half: {rate: 7}}\nsede: 3",
            overrides=("pak.n=2", "numbers", "sources.dta.path=x", "choices.rat=x"),
        )
        recipe, overlay = tmp_path / "tiny.yaml", tmp_path / "profiles" / "small.yaml"
        for line in (
            f"{recipe}: titel: unknown key. Did you mean 'title'?",
            f"{recipe}: stage numbers: natve: unknown key. Did you mean 'native'?",
            f"{overlay}: sede: unknown key. Did you mean 'seed'?",
            f"{overlay}: stages.halve: no such stage 'halve'. Did you mean 'half'?",
            f"{overlay}: stage half: rate: Input should be less than or equal to 1, got 7.",
            "override pak.n=2: pak.n: no such stage.",
            "'numbers': an override is stage.key=value",
            "override sources.dta.path=x: no such source 'dta'. Did you mean 'data'?",
            "override choices.rat=x: choices.rat: unknown choice. Did you mean 'rate'?",
        ):
            assert line in said, line
        assert said.startswith("9 problems:"), said

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ("hashed: {nombers: {n: 2}}", "hashed.nombers: no such stage. Did you mean 'numbers'?"),
            ("placement: {hots: [a]}", "placement.hots: unknown key. Did you mean 'hosts'?"),
            ("hashed: {", "not valid YAML: "),
            ("hashed: {half: 3}", "hashed.half: Input should be a valid dictionary, got 3."),
        ],
    )
    def test_a_wrong_launch_file_is_the_only_error(
        self, tmp_path: Path, change: str, said: str
    ) -> None:
        """The recipe needs a rate from the launch file and a stage of the overlay."""
        launch = LAUNCH.replace("profile: small\n", "") if "YAML" in said else LAUNCH
        recipe = RECIPE.replace("half: {}", "half: {rat: 7}")
        message = refused(
            tmp_path, recipe=recipe, launch=f"{launch}{change}\n", overrides=("slow.n=2",)
        )
        assert message.startswith(f"{tmp_path / 'box.yaml'}: {said}"), message

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            (("name: tiny", "name: ../tiny"), "name: must be letters, digits"),
            (("name: tiny", "name: hub"), "name: must be letters, digits"),
            (("seed: 1", "seed: one"), "seed: must be a whole number of at least 0, got 'one'"),
            (("seed: 1", "seed: -1"), "seed: must be a whole number of at least 0, got -1"),
            (("half: {}", "half: 3"), "stages.half: must be a mapping of keys to values, got 3"),
            (("half: {}", "../half: {stage: half}"), "stages.../half: a name is letters"),
            (
                ("half: {}", "half: {max_malformed: .nan}"),
                "half: max_malformed: must be finite, got nan",
            ),
            (("{a: 1,", "{a: .inf,"), "stage numbers: native: must be finite"),
            (("half: {}", "half: {inputs: {numbers: nmbers}}"), "Did you mean 'numbers'?"),
            (("half: {}", "half: {inputs: {nubers: data}}"), "unknown role. Did you mean"),
            (("half: {}", "half: {inputs: {numbers: []}}"), "must be the name of a stage or"),
            (("half: {}", "half: {inputs: numbers}"), "inputs: must be a mapping of keys"),
            (("half: {}", "half: {inputs: {numbers: half}}"), "read one another in a circle"),
            (("data: {path", "half: {path"), "half: is the name of a stage and of a source"),
            (("path: data,", "path: data, hub: a/b,"), "a source is one of path, hub or stage"),
            (("path: data,", "hub: a/b,"), "sources.data: a hub source needs a revision"),
            (("path: data,", "path: data, revision: v1,"), "only a hub source has a revision"),
            (("path: data,", "stage: hlf,"), "no such stage 'hlf'. Did you mean 'half'?"),
            (("use: script", "use: scrpt"), "use 'scrpt' is not one of script, readme. Did you"),
            (("half.rate: 0.1", "hlf.rate: 0.1"), "choices.rate.script: hlf.rate: no such stage"),
            (("choices:", "choices:\n  other: 3"), "choices.other: must be a mapping"),
            (("profiles: {", "profiles: {paper: x.yaml, "), "profiles.paper: this name means"),
            (("even: 2", "1: 2"), "expect: key 1 must be a string; put it in quotes"),
            (("even: 2", "x: {2: a, b: c}"), "expect: has a value that JSON cannot represent"),
            (
                ("name: tiny", "name: tiny\nname: tiny"),
                "'name' occurs twice (line 3, column 1)",
            ),
            (("name: tiny", "name: {[a]: 1}"), "not valid YAML"),
            (("name: tiny", "- name"), "not valid YAML"),
        ],
    )
    def test_each(self, tmp_path: Path, change: tuple[str, str], said: str) -> None:
        changed = RECIPE.replace(*change)
        assert changed != RECIPE
        message = refused(tmp_path, recipe=changed, overlay="{}")
        assert said in message
        assert str(tmp_path / "tiny.yaml") in message

    def test_unknown_profile(self, tmp_path: Path) -> None:
        said = refused(tmp_path, profile="smal")
        assert "profile 'smal' is not in the recipe. Did you mean 'small'?" in said
        assert "Known: paper, small, other." in said

    def test_a_recipe_without_profiles_needs_none(self, tmp_path: Path) -> None:
        plain = RECIPE.replace("profiles:", "published:")
        recipe = load(tmp_path, plain)
        assert (recipe.profile, recipe.profile_given) == ("paper", None)
        said = refused(tmp_path, recipe=plain, profile="small")
        assert "profile 'small' is not in the recipe. Known: paper." in said

    def test_overlay_that_is_not_there(self, tmp_path: Path) -> None:
        assert "profiles.other: " in refused(tmp_path, profile="other")

    def test_override_below_a_plain_value_is_the_stages_mistake(self, tmp_path: Path) -> None:
        assert "stage numbers: n: " in refused(tmp_path, overrides=("numbers.n.deep=1",))

    def test_override_that_is_not_yaml(self, tmp_path: Path) -> None:
        assert "is not valid YAML" in refused(tmp_path, overrides=("numbers.n=[1",))

    def test_no_such_recipe_names_the_nearest(self) -> None:
        with pytest.raises(InputError, match="v99_opg: no such file, and no shipped recipe file"):
            load_recipe("v99_opg")

    def test_recipe_that_is_no_mapping_or_not_text(self, tmp_path: Path) -> None:
        assert "must be a mapping of keys to values, got list" in refused(tmp_path, recipe="- a")
        (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
        with pytest.raises(InputError, match="bytes.yaml: not "):
            read_yaml(tmp_path / "bytes.yaml")

    def test_launch_alone(self, tmp_path: Path) -> None:
        (tmp_path / "box.yaml").write_text(LAUNCH.replace("name:", "nmae:"))
        with pytest.raises(InputError) as caught:
            load_launch(str(tmp_path / "box.yaml"))
        assert "box.yaml: name: must be given." in str(caught.value)
        assert "box.yaml: nmae: unknown key. Did you mean 'name'?" in str(caught.value)


def test_keys_are_named_by_variables_and_for_known_servers(tmp_path: Path) -> None:
    urls = "server_urls: [http://host:8000/v1/], judge_urls: [https://judge/v1]"

    def said(keys: str) -> str:
        placement = f"placement: {{{urls}, api_keys: {{{keys}}}}}"
        (tmp_path / "box.yaml").write_text(f"{LAUNCH}{placement}\n")
        with pytest.raises(InputError) as caught:
            load_launch(str(tmp_path / "box.yaml"))
        return str(caught.value)

    wrong = said("'http://host:8000/v2': KEY")
    assert "http://host:8000/v2 is not one of server_urls or judge_urls. Did you mean" in wrong
    wrong = said("'https://judge/v1': sk-1234")
    assert "the name of an environment variable that holds the key" in wrong
    assert "sk-1234" not in wrong
    wrong = said("'https://judge/v1': 123456789")
    assert "api_keys.https://judge/v1: " in wrong and "123456789" not in wrong
    box = f"{LAUNCH}placement: {{sampling: {{executable: v, arguments: [--api-key, s3cret]}}}}\n"
    (tmp_path / "box.yaml").write_text(box)
    with pytest.raises(InputError, match="remove --api-key") as caught:
        load_launch(str(tmp_path / "box.yaml"))
    assert "s3cret" not in str(caught.value)


class TestUntil:
    def test_only_what_that_stage_reads_is_checked(self, tmp_path: Path) -> None:
        wrong = RECIPE.replace("half: {}", "half: {rat: 7}\n  other: {stage: nubers}")
        assert "2 problems:" in refused(tmp_path, recipe=wrong)
        recipe = load(tmp_path, wrong, until="numbers")
        assert list(recipe.stages) == ["numbers"]
        assert "stage half: rat: unknown key" in refused(tmp_path, recipe=wrong, until="slow")

    def test_sources_that_are_stages_and_the_report_are_followed(self, tmp_path: Path) -> None:
        through = RECIPE.replace(
            "half: {}", "half: {inputs: {numbers: made}}\n  report: {}"
        ).replace("sources:", "sources:\n  made: {stage: numbers, path: numbers.json}")
        assert list(load(tmp_path, through, until="half").stages) == ["numbers", "half"]
        assert list(load(tmp_path, through, until="report").stages) == [
            "numbers",
            "half",
            "slow",
            "report",
        ]

    def test_unknown_stage(self, tmp_path: Path) -> None:
        said = refused(tmp_path, until="hlf")
        assert "tiny.yaml: has no stage 'hlf'. Did you mean 'half'? Stages: numbers, half" in said


def test_resolved_says_every_value(tmp_path: Path) -> None:
    resolved = load(tmp_path, overrides=("half.rate=0.75",)).resolved()
    assert resolved["stages"]["half"] == {
        "stage": "half",
        "inputs": {"numbers": "numbers"},
        "rate": 0.75,
        "max_malformed": 0.25,
        "prompt": None,
        "against": [],
        "fault": "",
    }
    assert resolved["sources"] == {"data": {"path": "data", "files": "*.txt", "kind": "dataset"}}
    assert (resolved["seed"], resolved["profile"], resolved["expect"]) == (2, "small", {"even": 2})


def test_dates_stay_words(tmp_path: Path) -> None:
    dated = RECIPE.replace("even: 2", "day: 2025-07-08")
    assert load(tmp_path, dated).expect == {"day": "2025-07-08"}
