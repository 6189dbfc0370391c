#!/usr/bin/env bash
# Cloud TPU VMs and slices by plain gcloud commands: bash launch/tpu_vm.sh COMMAND NODE …
#
#   create NODE            a TPU VM or slice (QUEUED=1: asks for it and waits until it is granted)
#   install NODE           the committed state of this repository and its packages, on every worker
#   run NODE CONFIG DIR …  as2jax.main on every worker until it is finished; a preempted node is
#                          made anew and the run goes on; what follows is handed on to as2jax.main
#   logs NODE DIR          the last lines of the run's log; with FOLLOW=1 those to come, too
#   state NODE             READY, PREEMPTED, … or ABSENT
#   delete NODE            ends the bill
#
# The variables below say which machine; each can be given in the environment. See launch/tpu_vm.md.
set -uo pipefail
: "${TPU:=v5litepod-8}"                  # accelerator type
: "${VERSION:=v2-alpha-tpuv5-lite}"      # runtime of that type
: "${ZONE:=us-west4-a}"
: "${SPOT:=1}"                           # 1: preemptible, at a part of the price
: "${QUEUED:=0}"                         # 1: as a queued resource
: "${DATA:=}"                            # gs:// folder that becomes AS2JAX_DATA on every worker
: "${STORE:=}"                           # gs:// folder of what runs share: compiled programs
: "${ATTEMPTS:=3}"                       # failures of a run, preemptions aside, until it is left
: "${TRIES:=120}"                        # times in a row that a machine is asked for
: "${PAUSE:=30}"                         # seconds between two looks at what is not there yet
: "${REPOSITORY:=$(git rev-parse --show-toplevel)}"

state() {
  gcloud compute tpus tpu-vm describe "$1" --zone="$ZONE" --format='value(state)' 2>/dev/null ||
    echo ABSENT
}

create() {
  local spot=()
  [ "$SPOT" = 1 ] && spot=(--spot)
  if [ "$QUEUED" != 1 ]; then
    gcloud compute tpus tpu-vm create "$1" --zone="$ZONE" --accelerator-type="$TPU" \
      --version="$VERSION" "${spot[@]}"
    return
  fi
  gcloud compute tpus queued-resources create "$1" --node-id="$1" --zone="$ZONE" \
    --accelerator-type="$TPU" --runtime-version="$VERSION" "${spot[@]}" || return 1
  local now
  until now=$(gcloud compute tpus queued-resources describe "$1" --zone="$ZONE" \
    --format='value(state.state)') && [ "$now" = ACTIVE ]; do
    case "$now" in FAILED | SUSPENDED) echo "$1: the request is $now" >&2 && return 1 ;; esac
    echo "$1: ${now:-no answer}, waiting for a machine"
    sleep "$PAUSE"
  done
}

delete() {
  if [ "$QUEUED" = 1 ]; then
    gcloud compute tpus queued-resources delete "$1" --zone="$ZONE" --force --quiet
  else
    gcloud compute tpus tpu-vm delete "$1" --zone="$ZONE" --quiet
  fi
}

on() { # NODE WORKERS COMMAND
  gcloud compute tpus tpu-vm ssh "$1" --zone="$ZONE" --worker="$2" --command="$3"
}

install() {
  local archive
  archive=$(mktemp -d)/as2jax.tar.gz
  git -C "$REPOSITORY" archive --format=tar.gz --output="$archive" HEAD &&
    gcloud compute tpus tpu-vm scp "$archive" "$1": --zone="$ZONE" --worker=all &&
    on "$1" all "mkdir -p as2jax data && tar -xzf as2jax.tar.gz -C as2jax \
&& bash as2jax/launch/tpu_install.sh${DATA:+ && gcloud storage rsync --recursive $DATA data}"
  local status=$?
  rm -r "$(dirname "$archive")"
  return $status
}

absent() { # NODE: neither it nor a request for it is left
  [ "$(state "$1")" = ABSENT ] && { [ "$QUEUED" != 1 ] ||
    ! gcloud compute tpus queued-resources describe "$1" --zone="$ZONE" >/dev/null 2>&1; }
}

ready() { # NODE: there, with everything installed
  [ "$(state "$1")" = READY ] && return 0
  absent "$1" || delete "$1"
  create "$1" && install "$1"
}

finished() { gcloud storage ls "$1/results.json" >/dev/null 2>&1; }

run() { # NODE CONFIG DIR [OPTION...]
  local node=$1 config=$2 folder=$3 failures=0 tries=0 log more=''
  shift 3
  log="logs/$(basename "$folder").log"
  [ $# = 0 ] || more=$(printf ' %q' "$@")
  while ! finished "$folder"; do
    if ! ready "$node"; then
      tries=$((tries + 1))
      echo "$node: no machine ($tries of $TRIES times)" >&2
      [ $tries -lt "$TRIES" ] || return 1
      sleep "$PAUSE"
      continue
    fi
    tries=0
    # The output goes to a file and the lock is the node's: where this connection breaks, the run
    # goes on, and the next turn waits for it.
    on "$node" all "mkdir -p logs && cd as2jax && AS2JAX_DATA=\$HOME/data \
AS2JAX_CACHE=\$HOME/cache flock \$HOME/as2jax.lock .venv/bin/python -m as2jax.main \
--config=$config --workdir=$folder${STORE:+ --config.compilation_cache=$STORE/xla}$more \
>>\$HOME/$log 2>&1"
    finished "$folder" && break
    if [ "$(state "$node")" = READY ]; then
      failures=$((failures + 1))
      echo "$(basename "$folder"): ended without results ($failures of $ATTEMPTS times)" >&2
      on "$node" 0 "tail -n 5 $log" >&2
      [ $failures -lt "$ATTEMPTS" ] || return 1
    else
      echo "$node: $(state "$node"); it is made anew, and the run goes on" >&2
    fi
    sleep "$PAUSE"
  done
}

logs() { # NODE DIR
  on "$1" 0 "tail -n 50 ${FOLLOW:+-f} logs/$(basename "$2").log"
}

# The commands end here.
if [ $# -lt 2 ] || [[ ! "$1" =~ ^(create|install|run|logs|state|delete)$ ]]; then
  sed -n '2,/^$/{/^#/s/^# \{0,1\}//p}' "$0" >&2
  exit 2
fi
"$@"
