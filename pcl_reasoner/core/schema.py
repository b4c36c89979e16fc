"""The parts of recipe and launch files that are not stages: sources, placement, launch."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from pcl_reasoner.core import checks
from pcl_reasoner.core.api_keys import check_variable, without_slash
from pcl_reasoner.core.checks import ProgramPath, Urls, Variables
from pcl_reasoner.core.files import nearest
from pcl_reasoner.core.programs import Section, Training
from pcl_reasoner.core.serving import SERVERS, ServerKind, Serving

_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?")
"""Ids that the hub gives to repositories."""
LAST_PORT = 65535


class Source(Section):
    """Where data or weights come from: a path, the hub, or a stage (of this or another recipe)."""

    path: str | None = None
    """A file or folder, relative to the working directory or to the artifact of ``stage``."""
    hub: str | None = None
    """Repository id on the Hugging Face hub."""
    revision: str | None = None
    """Commit, tag or branch on the hub; required for a hub source."""
    kind: str = Field("dataset", pattern="^(dataset|model)$")
    """Type of the hub repository."""
    files: str | None = None
    """Glob of the files to use; all files if left out."""
    recipe: str | None = None
    """Another recipe; it runs with the profile, launch file and ``--seed`` of this run."""
    stage: str | None = None
    """The stage whose artifact is the source."""

    @field_validator("path", "hub", "revision", "recipe")
    @classmethod
    def _no_password(cls, text: str | None) -> str | None:
        return checks.check_without_password(text)

    @field_validator("hub")
    @classmethod
    def _repository(cls, hub: str | None) -> str | None:
        if hub and not _REPOSITORY.fullmatch(hub):
            raise ValueError("must be the id of a repository, OWNER/NAME")
        return hub

    @field_validator("files")
    @classmethod
    def _pattern(cls, files: str | None) -> str | None:
        if files is not None:
            checks.check_pattern(files)
        return files

    @model_validator(mode="after")
    def _path_of_data(self) -> Source:
        try:
            if self.path:
                (checks.check_below if self.stage else checks.check_data_path)(self.path)
        except ValueError as error:
            raise ValueError(f"path: {error}, got {self.path!r}") from error
        return self

    @model_validator(mode="after")
    def _one_origin(self) -> Source:
        if self.hub and (self.path or self.stage):
            raise ValueError("a source is one of path, hub or stage, got several")
        if not (self.hub or self.path or self.stage):
            raise ValueError("a source needs one of path, hub or stage")
        if self.hub and not self.revision:
            raise ValueError("a hub source needs a revision, e.g. a commit")
        if self.revision and not self.hub:
            raise ValueError("only a hub source has a revision")
        if self.recipe and not self.stage:
            raise ValueError("a recipe source needs the stage to take")
        return self


class DataEngine(Section):
    """Where the parts of a data stage run: in the stage's own process, or as tasks on Ray."""

    engine: Literal["local", "ray"] = "local"
    """local: in the process of the stage; ray: as tasks on Ray."""
    address: Annotated[str | None, AfterValidator(checks.check_without_password)] = None
    """Address of a Ray cluster, e.g. auto or ray://head:10001.

    None: the stage starts a cluster on this machine or, with ``--start ssh``, on all hosts.
    """
    workers: int = Field(1, gt=0)
    """Tasks that run at a time."""


class JoinedCluster(DataEngine):
    """A Ray cluster that was started for a stage and that this process has joined."""

    own_address: str
    """This machine's address in the cluster.

    Without it, Ray may choose another address of this machine, which the cluster does not know.
    """


class HostSettings(Section):
    """Settings that differ on one host."""

    env: Variables = Field(default_factory=dict)
    """Environment variables; they override the placement's ``env``."""
    set_env: str | None = None
    """Shell file that is sourced instead of the file for all hosts."""
    python: str | None = None
    """Path of ``python``; ``msrun`` is taken from its folder."""


class Ssh(Section):
    """How hosts are reached. User, port and key are set in an OpenSSH configuration file."""

    config: ProgramPath | None = None
    """Path of the OpenSSH configuration file; None: the user's own."""
    connect_seconds: int = Field(10, gt=0)
    """Seconds after which a host that does not answer counts as unreachable."""


class SandboxPlacement(Section):
    """Where programs of responses run."""

    engine: Literal["auto", "bubblewrap", "unshare", "http", "rlimits"] = "auto"
    """``bubblewrap`` and ``unshare`` run them in namespaces of this machine; ``auto`` takes the
    first of them that works. ``http``: services with SandboxFusion's protocol. ``rlimits`` keeps
    nobody in and needs ``unsafe``."""
    workers: int | None = Field(None, gt=0)
    """Responses that are tested at a time; None: one per processor, or 64 with ``http``."""
    urls: Urls = Field(default_factory=list)
    """With ``http``: base URLs of the services, e.g. http://host:8080."""
    unsafe: bool = False
    """Allows ``rlimits``: programs then run as this user, with its files and its network."""

    @model_validator(mode="after")
    def _engine_has_what_it_needs(self) -> SandboxPlacement:
        if (self.engine == "http") != bool(self.urls):
            raise ValueError("engine http and urls belong together: give both or neither")
        if self.engine == "rlimits" and not self.unsafe:
            raise ValueError(
                "engine rlimits lets programs of responses read and change the files of this user "
                "and use the network. Install bubblewrap, or set unsafe: true to accept that"
            )
        return self


class Rollout(Section):
    """The hosts on which a stage ``rl`` samples, while the other hosts train."""

    hosts: list[str] = Field(min_length=1)
    """Some of the placement's ``hosts``, and not all of them: the others train."""


class Placement(Section):
    """The half of a launch file that never changes results: machines, devices and limits."""

    host_file: str | None = None
    """A file that replaces ``hosts``, one host per line; relative to the working directory."""
    hosts: list[str] = Field(default=["localhost"], min_length=1, validate_default=True)
    """Host names or addresses; MindSpore's scheduler runs on the first host."""
    spare_hosts: list[str] = Field(default_factory=list)
    """Hosts that replace lost hosts that do not come back; used in this order."""
    per_host: dict[str, HostSettings] = Field(default_factory=dict)
    """Host or spare host -> settings that differ there."""
    ssh: Ssh = Ssh()
    """How hosts are reached."""
    rollout: Rollout | None = None
    """Hosts that only sample in a stage ``rl``; None: every host trains and samples. Other stages
    use all hosts."""
    restarts: int = Field(3, ge=0)
    """Maximum restarts of one stage's training after lost workers, lost hosts and stalls."""
    notice_seconds: float = Field(10.0, ge=1)
    """A host that is silent for this many seconds counts as lost; it stops its own processes."""
    stall_seconds: float = Field(1800.0, gt=0)
    """Training is restarted if, after its first step, this many seconds pass without a step."""
    devices_per_host: int = Field(1, gt=0)
    """Devices per host, counted in dies: a 910C node shows 16."""
    chip: str | None = None
    """What ``pclr-ms plan`` estimates for: ascend_910c_die, ascend_910b, or the path of a file."""
    master_port: int = Field(8118, gt=0, lt=65536)
    """Port of msrun's scheduler on the first host."""
    cluster_time_out: int = Field(1200, gt=0)
    """Seconds that msrun waits for all workers, and that training waits for a lost host."""
    log_dir: str = "output/msrun_log"
    """Folder of msrun's logs, relative to the stage's folder."""
    env: Variables = Field(default_factory=dict)
    """Environment variables of the training and server processes."""
    set_env: str | None = None
    """Shell file that is sourced first (CANN's set_env.sh), for programs without a ``set_env``."""
    training: Training = Training()
    """Python and environment of MindFormers' processes."""
    server_urls: Urls = Field(default_factory=list)
    """OpenAI-compatible servers of the policy, e.g. http://host:8000/v1."""
    server_paths: dict[str, str] = Field(default_factory=dict)
    """Folder of a model here, or a folder above it -> what running servers call it (their
    ``root``): its path on their hosts, or a hub id."""
    sampling: Serving | None = None
    """Servers that the stages ``sample`` and ``evaluate`` start; they replace ``server_urls``."""
    server_devices: int = Field(1, gt=0)
    """Devices per server (vLLM's tensor parallel size)."""
    server_port: int = Field(8000, gt=0, lt=65536)
    """First port of the policy's servers on another host; see the key ``port`` of servers that a
    stage starts for the others."""
    judge_urls: Urls = Field(default_factory=list)
    """OpenAI-compatible servers of the judge model."""
    judging: Serving | None = None
    """Judge servers that ``grade`` and ``contamination`` start; they replace ``judge_urls``."""
    score_urls: Urls = Field(default_factory=list)
    """vLLM servers of the reward model (``--runner pooling``), e.g. http://host:8000/v1."""
    scoring: Serving | None = None
    """Servers of the reward model that the stage starts; they replace ``score_urls``."""
    opinion_urls: Urls = Field(default_factory=list)
    """OpenAI-compatible servers of the third model that the stage ``revise`` asks."""
    api_keys: dict[str, str] = Field(default_factory=dict)
    """URL of a server, from one of the lists above -> environment variable that holds its key."""
    sandbox: SandboxPlacement = SandboxPlacement()
    """Where the programs of responses run."""
    duckdb_memory: str = "1GB"
    """DuckDB's memory limit. Beyond it, DuckDB spills to disk."""
    threads: int = Field(2, gt=0)
    """Threads for curation and embedding, per worker."""
    data: DataEngine = DataEngine()
    """The data engine of curation and of the contamination check."""

    @field_validator("host_file")
    @classmethod
    def _readable_host_file(cls, file: str | None) -> str | None:
        if file is not None:
            checks.hosts_in(file)
        return file

    @field_validator("hosts", mode="before")
    @classmethod
    def _hosts_of_the_file(cls, hosts: Any, info: ValidationInfo) -> Any:
        file = info.data.get("host_file")
        if file is None:
            return hosts
        if hosts != ["localhost"]:
            raise ValueError("give either hosts or host_file, got both")
        return checks.hosts_in(file)

    @field_validator("hosts", "spare_hosts")
    @classmethod
    def _host_names(cls, hosts: list[str], info: ValidationInfo) -> list[str]:
        for host in hosts:
            checks.check_host(host)
        named = [*info.data.get("hosts", []), *hosts]
        if twice := checks.repeated(named):
            raise ValueError(f"name every host only once, got repeated {', '.join(twice)}")
        return hosts

    @field_validator("per_host")
    @classmethod
    def _known_hosts(
        cls, settings: dict[str, HostSettings], info: ValidationInfo
    ) -> dict[str, HostSettings]:
        known = [*info.data.get("hosts", []), *info.data.get("spare_hosts", [])]
        # Invalid hosts have already been reported.
        for name in settings if "hosts" in info.data else ():
            if name not in known:
                raise ValueError(f"{name!r} is not a host of this file.{nearest(name, known)}")
        return settings

    @field_validator("rollout")
    @classmethod
    def _divided_hosts(cls, rollout: Rollout | None, info: ValidationInfo) -> Rollout | None:
        hosts = info.data.get("hosts")
        if rollout is None or hosts is None:  # invalid hosts have already been reported
            return rollout
        for host in rollout.hosts:
            if host not in hosts:
                raise ValueError(
                    f"{host!r} is not one of the hosts, which are {', '.join(hosts)}."
                    f"{nearest(host, hosts)}"
                )
            if rollout.hosts.count(host) > 1:
                raise ValueError(f"name every host only once, got repeated {host}")
        if len(rollout.hosts) == len(hosts):
            raise ValueError(f"all {len(hosts)} hosts sample, and none is left to train")
        return rollout

    @model_validator(mode="after")
    def _servers_and_their_keys(self) -> Placement:
        for kind, one in SERVERS.items():
            if self.described(kind) and getattr(self, one.urls):
                raise ValueError(f"give either {one.urls} or {kind} for {one.model}, got both")
        lists = {one.urls: self.urls_of(kind) for kind, one in SERVERS.items()}
        known = [without_slash(url) for urls in lists.values() for url in urls]
        for url, variable in self.api_keys.items():
            checks.check_url(url)
            if without_slash(url) not in known:
                named = " or ".join(name for name, urls in lists.items() if urls) or "server_urls"
                raise ValueError(f"api_keys: {url} is not one of {named}.{nearest(url, known)}")
            check_variable(variable, f"api_keys of {url}")
        return self

    @model_validator(mode="after")
    def _devices_and_ports_of_servers(self) -> Placement:
        ports: dict[int, str] = {}
        for kind in SERVERS:
            serving = self.described(kind)
            if serving is None:
                continue
            if problem := serving.device_problem(self.env):
                raise ValueError(f"{kind}: {problem}")
            for port in range(self.first_port(kind), self.first_port(kind) + serving.servers):
                if port in ports:
                    raise ValueError(f"{kind}: give it a port other than {ports[port]}'s, {port}")
                if port > 65535:
                    raise ValueError(f"{kind}: the ports of its servers end at {port}; lower port")
                ports[port] = kind
        return self

    def serving_of(self, kind: ServerKind) -> Serving | None:
        """How a stage starts servers of a kind itself; None if it does not."""
        found = self.described(kind)
        return None if found is None or found.by_hand else found

    def described(self, kind: ServerKind) -> Serving | None:
        """The servers of a kind that this file describes, also if a person starts them."""
        found: Serving | None = getattr(self, kind) if SERVERS[kind].can_start else None
        return found

    def urls_of(self, kind: ServerKind) -> list[str]:
        """The servers of a kind that run already, or that are started by hand."""
        serving, found = self.described(kind), list(getattr(self, SERVERS[kind].urls))
        ports = range(serving.servers) if serving and serving.by_hand else ()
        first = self.first_port(kind)
        return found + [f"http://{one}:{first + port}/v1" for one in self.hosts for port in ports]

    def first_port(self, kind: ServerKind) -> int:
        """The first port of a kind's servers on another host."""
        serving = self.described(kind)
        return (serving and serving.port) or self.server_port + SERVERS[kind].ports

    @property
    def of_training(self) -> Placement:
        """The part on which a stage ``rl`` trains: without the hosts of ``rollout``."""
        if self.rollout is None:
            return self
        return self._with_hosts([host for host in self.hosts if host not in self.rollout.hosts])

    @property
    def of_sampling(self) -> Placement:
        """The part on which a stage ``rl`` samples: the hosts of ``rollout``, in their order."""
        if self.rollout is None:
            return self
        # Spare hosts replace hosts that train.
        return self._with_hosts(self.rollout.hosts).model_copy(update={"spare_hosts": []})

    def _with_hosts(self, hosts: list[str]) -> Placement:
        return self.model_copy(update={"hosts": hosts, "host_file": None, "rollout": None})

    def settings_of(self, host: str) -> HostSettings:
        """The settings that differ on a host or spare host."""
        return self.per_host.get(host, HostSettings())


class Launch(Section):
    """A launch file: where a recipe runs."""

    name: str
    """Name of the launch file."""
    title: str
    """A few words on what the launch file describes."""
    profile: str
    """The profile that this launch file is for; ``paper`` is a recipe's top level."""
    verified: str
    """One sentence: which parts of this layout have been run, and which have not."""
    hashed: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Stage type -> keys that change results (precision, parallel layout, sampling engine)."""
    sources: dict[str, Source] = Field(default_factory=dict)
    """Sources that these machines have, for every recipe that runs with this file: they replace the
    recipe's sources of the same names, or add ``judge`` and ``reward_model``."""
    placement: Placement = Placement()
    """Machines, devices and limits; they never change results."""
