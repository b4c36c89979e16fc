"""Rules: can the programs of the launch file be started as it says: paths, options, containers?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import PurePosixPath

from pcl_reasoner.core.programs import Container, Program
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.serving import SERVERS, VISIBLE_DEVICES, Serving
from pcl_reasoner.preflight.reading import trains_on_device
from pcl_reasoner.runner.sources import path_of
from pcl_reasoner.scene.graph import Node, Scene
from pcl_reasoner.scene.rule import Found
from pcl_reasoner.train.shape import training_of

_OURS = {
    "--model": "the recipe's source of the weights",
    "--served-model-name": "the stage's served_model",
    "--host": "placement.hosts",
    "--port": "the key port",
    "--max-model-len": "the stage's max_model_len",
    "--tensor-parallel-size": "the key devices",
    "-tp": "the key devices",
    "--chat-template": "the stage's template",
    "--runner": "the kind of the servers",
}
"""vLLM's options that this package gives -> what sets them. A second one would count instead."""
_VOLUMES = ("-v", "--volume", "--mount")
_ASCEND = VISIBLE_DEVICES[0]
_SECONDS = ("HCCL_CONNECT_TIMEOUT", "HCCL_EXEC_TIMEOUT", "MS_NODE_TIMEOUT")


def paths_of_programs(scene: Scene) -> Iterator[Found]:
    """A path of a program or of a shell file cannot be the right one on every host."""
    for placement in _placements(scene):
        several = len(placement.hosts) > 1
        for key, path, inside in _paths(placement):
            problem = _problem(key, path, several or inside)
            if problem:
                yield Found((), f"placement.{key}: {path or repr(path)} {problem}.")


def _problem(key: str, path: str, elsewhere: bool) -> str | None:
    """What is wrong with a path; ``elsewhere``: it is one of other hosts or of a container."""
    name = PurePosixPath(path).name
    is_file = key.endswith("set_env")
    if not path.strip():
        return "is empty, expected the path of a file. Write it, or leave the key out"
    if path.endswith("/"):
        return "is a folder, expected a file. Write the whole path of the file"
    if is_file and path.startswith("~"):
        return "begins with ~, which the shell does not replace there. Write the whole path"
    bare = name == path and not is_file
    if elsewhere and not bare and not path.startswith(("/", "~")):
        return (
            "is relative to a working folder, which is another one on each host and in a "
            "container. Write the whole path, from /"
        )
    is_python = key == "training.executable" or key.endswith(".python")
    if is_python and "python" not in name.lower():
        return f"is not a Python, expected e.g. {PurePosixPath(path).parent / 'python'}"
    if key.endswith("executable") and name in ("msrun", "pip", "bash", "docker"):
        return f"is not vLLM, expected e.g. {PurePosixPath(path).parent / 'vllm'}"
    return None


def _paths(placement: Placement) -> Iterator[tuple[str, str, bool]]:
    """Yield (key, path, whether it is inside a container)."""
    if placement.set_env is not None:
        yield "set_env", placement.set_env, False
    for host, own in placement.per_host.items():
        for key, path in (("set_env", own.set_env), ("python", own.python)):
            if path is not None:
                yield f"per_host.{host}.{key}", path, False
    for name, program in _programs(placement):
        inside = program.container is not None
        for file in program.set_env or ():
            yield f"{name}.set_env", file, inside
        executable = getattr(program, "executable", None)
        if executable is not None:
            yield f"{name}.executable", executable, inside


def _placements(scene: Scene) -> list[Placement]:
    recipes = {id(node.recipe): node.recipe for node in scene.nodes.values()}
    return list({id(one.launch): one.launch.placement for one in recipes.values()}.values())


def _programs(placement: Placement) -> Iterator[tuple[str, Program]]:
    yield "training", placement.training
    for kind in SERVERS:
        if serving := placement.described(kind):
            yield kind, serving


def options_of_servers(scene: Scene) -> Iterator[Found]:
    """An option of vLLM replaces what this package gives it, or is not what vLLM takes."""
    for placement in _placements(scene):
        for name, program in _programs(placement):
            for problem in _options(program) if isinstance(program, Serving) else ():
                yield Found((), f"placement.{name}.arguments: {problem}.")


def _options(serving: Serving) -> Iterator[str]:
    for word, following in pairwise([*serving.arguments, ""]):
        option, equals, value = word.partition("=")
        name = option.replace("_", "-")
        if word.startswith("-") and " " in option:
            parts = ", ".join(repr(part) for part in word.split(None, 1))
            yield f"{word!r} is one word, which vLLM does not know. Write two: {parts}"
        elif name in _OURS:
            yield (
                f"{name} would replace what this package gives the server, and the stages would "
                f"not find what they ask. Remove it; {_OURS[name]} sets it"
            )
        elif name == "--gpu-memory-utilization":
            share = value if equals else following
            if not _is_share(share):
                yield f"{name} is a share of the memory, over 0 and at most 1, got {share!r}"


def _is_share(text: str) -> bool:
    try:
        return 0 < float(text) <= 1
    except ValueError:
        return False


def container_without_weights(scene: Scene) -> Iterator[Found]:
    """A program's container has no folder of the host with the weights that it reads."""
    for node, name, program, role in _readers(scene):
        container, given = program.container, node.first(role)
        if container is None or given is None or _has_volumes(container):
            continue
        source = given.source if given.node is None else None
        path = str(path_of(source)) if source and source.path else None
        inside = [PurePosixPath(mount.split(":")[:2][-1]) for mount in container.mounts]
        if path and any(PurePosixPath(path).is_relative_to(mount) for mount in inside):
            continue
        if path or not inside:
            what = f"{path} (source {given.name})" if path else f"its {role}, {given.name}"
            advice = f"Add {path}" if path else "Add that folder, e.g. the folder of the runs,"
            yield Found(
                (node,),
                f"stage {node.title}: placement.{name} runs in a container, and no mount of it has "
                f"the folder of {what}. {advice} to {name}.container.mounts.",
            )


def _has_volumes(container: Container) -> bool:
    return any(option.split("=")[0] in _VOLUMES for option in container.options)


def _readers(scene: Scene) -> Iterator[tuple[Node, str, Program, str]]:
    """Yield (stage, key of the program, program, role of the weights that it reads)."""
    for node in scene.nodes.values():
        if scene.runs(node) and training_of(node.config):
            yield node, "training", node.placement.training, "policy"
    for ask in scene.asks():
        serving = ask.placement.described(ask.needs.kind)
        if serving:
            yield ask.node, ask.needs.kind, serving, ask.needs.role


def seconds_of_variables(scene: Scene) -> Iterator[Found]:
    """A variable of HCCL or of MindSpore that counts seconds has a value that is no number."""
    for placement in _placements(scene):
        for key, variables in _variables(placement):
            for name, value in variables.items():
                if name in _SECONDS and not value.isdigit():
                    yield Found(
                        (),
                        f"placement.{key}.{name}: must be a whole number of seconds, e.g. 7200, "
                        f"got {value!r}.",
                    )


def _variables(placement: Placement) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield (key, environment variables) of every part of a launch file that has some."""
    yield "env", placement.env
    for host, own in placement.per_host.items():
        yield f"per_host.{host}.env", own.env
    for name, program in _programs(placement):
        yield f"{name}.environment", program.environment


def listed_devices(scene: Scene) -> Iterator[Found]:
    """A list of Ascend devices has no numbers, names one twice, or is too short for a training."""
    if scene.on_cpu():
        return
    for placement in _placements(scene):
        for key, text in _lists(placement):
            listed = [one.strip() for one in text.split(",")]
            if not all(one.isdigit() for one in listed):
                yield Found((), f"{key}: expected numbers such as 0,1,2,3, got {text!r}.")
            elif len(set(listed)) < len(listed):
                yield Found((), f"{key}: names a device twice: {text}. Name each once.")
    for node in scene.nodes.values():
        training = training_of(node.config)
        if training is None or not scene.runs(node) or trains_on_device(node) != "Ascend":
            continue
        for key, text in _lists(node.placement, training_only=True):
            devices, needed = len(text.split(",")), node.placement.devices_per_host
            if devices < needed:
                yield Found(
                    (node,),
                    f"stage {node.title}: {key} lists {devices} devices, and devices_per_host is "
                    f"{needed}, which is the number of processes on a host. List {needed}, or "
                    "lower devices_per_host.",
                )


def _lists(placement: Placement, training_only: bool = False) -> Iterator[tuple[str, str]]:
    """Yield (key, value) of every list of Ascend devices."""
    over = _ASCEND in placement.training.environment
    for key, variables in _variables(placement):
        of_training = key == "training.environment"
        other = key.endswith("environment") or over
        if variables.get(_ASCEND) and not (training_only and other and not of_training):
            yield f"placement.{key}.{_ASCEND}", variables[_ASCEND]
