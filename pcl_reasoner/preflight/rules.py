"""All rules. A new rule needs a function in a module of this room, an entry here and a test.

The table in docs/cluster/preflight.md is written from this one.
"""

from collections.abc import Mapping

from pcl_reasoner.preflight import (
    lengths,
    machines,
    ports,
    programs,
    prompts,
    reading,
    running,
    servers,
    values,
)
from pcl_reasoner.preflight.rule import Rule

RULES: Mapping[str, Rule] = {
    "broken_recipes": Rule("error", reading.broken_recipes),
    "wrong_input": Rule("error", reading.wrong_input),
    "wrong_source": Rule("error", reading.wrong_source),
    "proof_of_another_model": Rule("error", reading.proof_of_another_model),
    "columns_of_the_loss": Rule("error", reading.columns_of_the_loss),
    "groups_of_one": Rule("error", reading.groups_of_one),
    "unread_output": Rule("warning", reading.unread_output),
    "token_ids_of_another_model": Rule("warning", reading.token_ids_of_another_model),
    "benchmarks_not_compared": Rule("warning", reading.benchmarks_not_compared),
    "evaluations_differ": Rule("warning", reading.evaluations_differ),
    "evaluated_twice": Rule("warning", values.evaluated_twice),
    "results_of_no_stage": Rule("warning", values.results_of_no_stage),
    "choices_overruled": Rule("warning", reading.choices_overruled),
    "prompts_differ": Rule("error", prompts.prompts_differ),
    "prompts_of_another_recipe": Rule("error", prompts.prompts_of_another_recipe),
    "missing_files": Rule("error", prompts.missing_files),
    "rows_of_another_length": Rule("error", lengths.rows_of_another_length),
    "segments_longer_than_rows": Rule("error", lengths.segments_longer_than_rows),
    "responses_longer_than_rows": Rule("error", lengths.responses_longer_than_rows),
    "no_room_for_a_prompt": Rule("error", lengths.no_room_for_a_prompt),
    "context_over_the_models": Rule("error", lengths.context_over_the_models),
    "segments_over_the_context": Rule("error", lengths.segments_over_the_context),
    "dropped_later": Rule("warning", lengths.dropped_later),
    "no_server": Rule("error", servers.no_server),
    "no_third_model": Rule("warning", servers.no_third_model),
    "no_weights_to_serve": Rule("error", servers.no_weights_to_serve),
    "servers_beside_training": Rule("error", servers.servers_beside_training),
    "servers_share_devices": Rule("error", servers.servers_share_devices),
    "more_devices_than_there_are": Rule("error", servers.more_devices_than_there_are),
    "heads_not_divisible": Rule("error", servers.heads_not_divisible),
    "port_taken_twice": Rule("error", ports.port_taken_twice),
    "one_url_of_two_kinds": Rule("error", running.one_url_of_two_kinds),
    "base_url": Rule("error", running.base_url),
    "local_sampler": Rule("error", servers.local_sampler),
    "several_models_at_one_url": Rule("warning", running.several_models_at_one_url),
    "urls_on_hosts_that_train": Rule("warning", running.urls_on_hosts_that_train),
    "amounts_of_memory": Rule("error", values.amounts_of_memory),
    "rates_out_of_range": Rule("error", values.rates_out_of_range),
    "shape_of_another_model": Rule("error", values.shape_of_another_model),
    "few_seconds": Rule("warning", values.few_seconds),
    "unknown_sections": Rule("warning", values.unknown_sections),
    "paths_of_programs": Rule("error", programs.paths_of_programs),
    "options_of_servers": Rule("error", programs.options_of_servers),
    "container_without_weights": Rule("error", programs.container_without_weights),
    "listed_devices": Rule("error", programs.listed_devices),
    "one_host_twice": Rule("error", machines.one_host_twice),
    "loopback_among_hosts": Rule("error", machines.loopback_among_hosts),
    "model_too_large_for_its_devices": Rule("error", machines.model_too_large_for_its_devices),
    "no_npu_here": Rule("error", machines.no_npu_here, "run"),
    "nobody_starts_the_hosts": Rule("error", machines.nobody_starts_the_hosts, "run"),
    "keys_that_are_not_set": Rule("error", machines.keys_that_are_not_set, "plan"),
}
"""Name -> rule, in the order of the documents."""
