#!/usr/bin/env bash
# Training on one host by msrun alone: for those who have their own way to start a command on many.
# Run it on every host, each with its RANK, on folders that all hosts share:
#
#   pclr-ms run v1_sft --launch v1_dp8_tp8_pp2 --until pack       # data: once, anywhere
#   pclr-ms run v1_sft --launch v1_dp8_tp8_pp2 --dry-run          # writes the configuration
#   RANK=0 HOSTS="node01 node02" DEVICES=8 launch/msrun.sh runs/v1_sft/dry_run/mindformers.train.yaml
#
# Its checkpoints are in work/checkpoint beside the configuration; pclr-ms run does not use them. For a
# run up to the report take the scripts that pclr-ms itself writes for every host:
# runs/RECIPE/launch/.
#
#   HOSTS     all hosts, the first is the master; this host alone if left out
#   RANK      this host's index among them, from 0; looked up by its name if left out
#   DEVICES   devices of a host, counted in dies (a 910C node shows 16); 8 if left out
#   PORT      of the master; 8118 if left out
#   SET_ENV   CANN's shell file; not sourced if left out
#   LOG_DIR   where worker_N.log go, from the configuration's folder
#   SECONDS_TO_JOIN   how long msrun waits for all workers
set -euo pipefail

fail() {
  echo "msrun.sh: $1" >&2
  exit 1
}

[ $# = 1 ] || fail "give the MindFormers YAML, and nothing else (got $# arguments)"
[ -f "$1" ] || fail "$1: no such file"
folder=$(cd "$(dirname "$1")" && pwd)
config=$folder/$(basename "$1")

read -r -a hosts <<<"${HOSTS:-$(hostname)}"
devices=${DEVICES:-8}

# A wrong place hangs all hosts until the time is out, so it is never guessed.
rank=${RANK:-}
if [ -z "$rank" ]; then
  for place in "${!hosts[@]}"; do
    [ "${hosts[place]}" = "$(hostname)" ] && rank=$place
  done
fi
[ -n "$rank" ] || fail "this host, $(hostname), is not among HOSTS (${hosts[*]}): give its RANK"
[[ $rank =~ ^[0-9]+$ && $devices =~ ^[0-9]+$ ]] || fail "RANK and DEVICES are numbers, got $rank, $devices"
port=${PORT:-8118} seconds=${SECONDS_TO_JOIN:-1200}
[[ $port =~ ^[0-9]+$ && $seconds =~ ^[0-9]+$ ]] || fail "PORT and SECONDS_TO_JOIN are numbers, got $port, $seconds"
[ "$rank" -lt "${#hosts[@]}" ] || fail "RANK is $rank, HOSTS names ${#hosts[@]} hosts, from 0"

if [ -n "${SET_ENV:-}" ]; then
  set +u # CANN's file uses variables that are not set
  # shellcheck disable=SC1090
  source "$SET_ENV"
  set -u
fi
command -v msrun >/dev/null || fail "msrun is not on PATH: activate the environment of pclr-ms"

# Nothing is fetched from here on, and MindFormers logs beside its other output.
export HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1
export LOG_MF_PATH=${LOG_MF_PATH:-$folder/work/log}

# MindFormers starts more ranks than a host has devices only in a folder that it knows to be shared.
export DEVICE_NUM_PER_NODE=$devices SHARED_PATHS=${SHARED_PATHS:-$folder}

# One pipeline stage compiles minutes longer than another.
export HCCL_CONNECT_TIMEOUT=${HCCL_CONNECT_TIMEOUT:-7200} HCCL_EXEC_TIMEOUT=${HCCL_EXEC_TIMEOUT:-7200}

# Paths in the configuration are relative to the folder that it is in.
cd "$folder"
exec python -m pcl_reasoner.hosts.msrun "$config" "$rank" "$devices" "$port" \
  "${LOG_DIR:-work/msrun_log}" "$seconds" "${hosts[@]}"
