#!/usr/bin/env bash
# Cloud TPU VMs and slices by plain gcloud commands: bash launch/tpu_vm.sh COMMAND NODE …
#
#   run NODE CONFIG DIR …  everything from nothing to DIR/results.json: makes the node where there is
#                          room, installs, starts as2jax.main on every host; a preempted node is made
#                          anew and the run goes on; what follows DIR is handed on to as2jax.main
#   create NODE            the node alone, in the first of ZONES that has room
#   install NODE           the source of this repository, its packages and DATA, on every host
#   logs NODE DIR          the last lines of the run's log; with FOLLOW=1 those to come, too
#   state NODE             READY, PREEMPTED, … ABSENT, or UNKNOWN where gcloud does not say
#   delete NODE            ends the bill
#   pack FILE              the source as an archive, and its name: what `install` puts on a node
#
# Every step can be repeated: it looks first at what is there. What may be given in the environment
# stands below. Exit status: 0; 1 failed; 2 nothing that waiting would mend; 3 no room in time.
: "${TPU:=v5litepod-8}"                  # accelerator type
: "${VERSION:=v2-alpha-tpuv5-lite}"      # runtime of that type
: "${ZONES:=us-west4-a us-central1-a us-south1-a us-west1-c europe-west4-b}" # the best first
: "${SPOT:=1}"                           # 1: preemptible, at a part of the price
: "${QUEUED:=0}"                         # 1: as a queued resource
: "${DATA:=}"                            # gs:// folder that becomes AS2JAX_DATA on every host
: "${STORE:=}"                           # gs:// folder of what runs share: compiled programs
: "${CHANGES:=refuse}"                   # uncommitted changes: refuse, or carry (as a patch)
: "${HOURS:=24}"                         # to wait for room
: "${QUEUE_MINUTES:=60}"                 # to wait in one zone's queue before the next is tried
: "${CONNECT_MINUTES:=20}"               # to wait for a connection to a node that is READY
: "${ATTEMPTS:=3}"                       # failures of a run, preemptions aside, until it is left
: "${PAUSE:=30}"                         # seconds between two looks at what is not there yet
: "${REPOSITORY:=$(git rev-parse --show-toplevel 2>/dev/null)}"
SAID='' ZONE='' STATE='' WORD=''         # set by the functions below

note() { printf '%s %s\n' "$(date +%H:%M:%S)" "$*" >&2; }
ask() { SAID=$(gcloud "$@" 2>&1 </dev/null); } # a short command; SAID is all that it prints
tpus() { ask compute tpus "$@" --zone="$ZONE"; }
last() { printf %s "${SAID##*$'\n'}"; }

why() { # what SAID means, in a word
  if [[ "$SAID" =~ gs://[^/[:space:]]+\ not\ found:\ 404|bucket\ does\ not\ exist ]]; then
    echo bucket && return
  fi
  case "$SAID" in
    *'per minute'* | *RATE_LIMIT* | *rateLimitExceeded*) echo connection ;;
    *'more capacity'* | *RESOURCE_POOL_EXHAUSTED* | *'nsufficient capacity'* | *STOCKOUT*) echo room ;;
    *ALREADY_EXISTS* | *'already exists'*) echo exists ;;
    *'gcloud auth'* | *UNAUTHENTICATED* | *Reauthentication*) echo login ;;
    *SERVICE_DISABLED* | *'has not been used in project'*) echo api ;;
    *uota*) echo quota ;;
    *RESOURCE_EXHAUSTED*) echo room ;;
    *"denied on 'locations/"*) echo type ;; # Google's words for a zone that there is not
    *PERMISSION_DENIED* | *'not have permission'*) echo permission ;;
    *NOT_FOUND* | *'not found'* | *'matched no objects'*) echo absent ;;
    *INVALID_ARGUMENT* | *'nvalid value'* | *'unrecognized arguments'*) echo type ;;
    *) echo connection ;;
  esac
}

mend() { # WORD: what to do about what waiting does not mend
  case "$1" in
    login) echo 'log in: gcloud auth login' ;;
    api) echo 'switch the API on: gcloud services enable tpu.googleapis.com storage.googleapis.com' ;;
    bucket) echo 'there is no such bucket:' \
      'gcloud storage buckets create gs://BUCKET --location=REGION' ;;
    permission) echo 'your account may not do this; an owner of the project gives it the right:' \
      'gcloud projects add-iam-policy-binding PROJECT --member=user:YOU --role=roles/tpu.admin' ;;
    quota) echo "no quota for $TPU (spot: $SPOT) in $ZONE: ask for it under IAM & Admin → Quotas," \
      'or give other ZONES, TPU or SPOT' ;;
    *) echo "$ZONE has no $TPU with runtime $VERSION: what it has says gcloud compute tpus" \
      "accelerator-types list --zone=$ZONE (and versions list)" ;;
  esac
}

for_good() { # WORD: whether no zone and no later time would do
  [[ "$1" =~ ^(login|api|permission|bucket)$ ]] || return 1
  note "$(last)"
  note "as2jax: $(mend "$1")"
}

locate() { # NODE: its ZONE and STATE
  local word unknown=''
  for ZONE in $ZONES; do
    if tpus tpu-vm describe "$1" --format='value(state)'; then
      STATE=$(last)
      return
    fi
    word=$(why)
    for_good "$word" && return 2
    [ "$word" = absent ] || [ "$word" = type ] || unknown=1
  done
  STATE=${unknown:+UNKNOWN}
  : "${STATE:=ABSENT}"
}

request() { # NODE: asks for it in ZONE; WORD is `ready`, or why there is none
  local spot=() end=$((SECONDS + 60 * QUEUE_MINUTES))
  [ "$SPOT" = 1 ] && spot=(--spot)
  WORD=ready
  if [ "$QUEUED" != 1 ]; then
    tpus tpu-vm create "$1" --accelerator-type="$TPU" --version="$VERSION" ${spot[@]+"${spot[@]}"} ||
      WORD=$(why)
    [ "$WORD" != exists ] || WORD=ready
    return
  fi
  tpus queued-resources create "$1" --node-id="$1" --accelerator-type="$TPU" \
    --runtime-version="$VERSION" ${spot[@]+"${spot[@]}"} || WORD=$(why)
  [[ "$WORD" =~ ^(ready|exists)$ ]] || return
  WORD=room
  while tpus queued-resources describe "$1" --format='value(state.state)' ||
    [ "$(why)" = connection ]; do
    case "$(last)" in
      ACTIVE) WORD=ready && return ;;
      FAILED)
        tpus queued-resources describe "$1" --format='value(state.failedData.error.message)'
        WORD=$(why)
        break
        ;;
      SUSPEND*) break ;; # what was granted has been taken away
    esac
    [ $SECONDS -lt $end ] || break
    note "$1: $(last) in the queue of $ZONE"
    sleep "$PAUSE"
  done
  tpus queued-resources delete "$1" --force --quiet # so that no two zones grant it
}

create() { # NODE: in the first zone with room; waits for room, but not for what is refused for good
  local began=$SECONDS refused count what
  while :; do
    refused='' count=0 what='no answer about'
    for ZONE in $ZONES; do
      request "$1"
      case "$WORD" in
        ready) note "$1: made in $ZONE" && return 0 ;;
        quota | type | absent)
          refused+="$(last)"$'\n'"  $(mend "$WORD")"$'\n'
          ;;
        *)
          for_good "$WORD" && return 2
          [ "$WORD" != room ] || what='no room for'
          count=$((count + 1))
          ;;
      esac
    done
    if [ $count = 0 ]; then
      note "as2jax: no zone gives $1:"$'\n'"$refused"
      return 2
    fi
    if [ $((SECONDS - began)) -ge $((3600 * HOURS)) ]; then
      note "as2jax: $what $TPU in $ZONES within $HOURS hours (HOURS=…, ZONES=… change that)"
      return 3
    fi
    note "$1: $what $TPU in $ZONES; asked for $(((SECONDS - began) / 60)) minutes of" \
      "$HOURS hours: $(last)"
    sleep "$PAUSE"
  done
}

create_absent() { # NODE: the command `create`, which makes no second one in another zone
  local began=$SECONDS
  while locate "$1" || return; do
    [ "$STATE" = UNKNOWN ] || break
    note "$1: UNKNOWN: $(last)"
    [ $((SECONDS - began)) -lt $((3600 * HOURS)) ] || return 3
    sleep "$PAUSE"
  done
  case "$STATE" in
    ABSENT) create "$1" ;;
    READY | CREATING | STARTING | RESTARTING | REPAIRING) note "$1: $STATE in $ZONE" ;;
    *)
      note "as2jax: $1 is $STATE in $ZONE; delete it first: bash launch/tpu_vm.sh delete $1"
      return 1
      ;;
  esac
}

delete() { # NODE: wherever it is, with its request; ends when it is gone, 2 where it never would be
  local kind force tries=0 gone word
  while [ $tries -lt 20 ]; do
    gone=1
    for ZONE in $ZONES; do
      for kind in queued-resources tpu-vm; do
        force=()
        if [ $kind = queued-resources ]; then
          [ "$QUEUED" = 1 ] || continue
          force=(--force)
        fi
        if tpus $kind describe "$1" --format='value(state)'; then
          tpus $kind delete "$1" ${force[@]+"${force[@]}"} --quiet && continue
        elif [ "$(why)" = type ]; then
          continue # there is no such zone
        fi
        word=$(why)
        [ "$word" != absent ] || continue
        if for_good "$word"; then
          note "as2jax: $1 is not deleted, and may cost money"
          return 2
        fi
        gone=''
      done
    done
    [ -z "$gone" ] || return 0
    tries=$((tries + 1))
    sleep "$PAUSE"
  done
  note "as2jax: $1 is not deleted, and may cost money: $(last)"
  return 1
}

on() { # NODE HOSTS COMMAND: its status on the hosts; 255 where a connection ended before it did
  local status failed
  # A machine that is taken away may not close the connection, on which ssh would wait for hours.
  ask compute tpus tpu-vm ssh "$1" --zone="$ZONE" --worker="$2" \
    --ssh-flag=-oServerAliveInterval=30 --command="$3"$'\n'"echo as2jax-status: \$?"
  status=$?
  failed=$(grep -o 'as2jax-status: [0-9]*' <<<"$SAID" | grep -v ' 0$' | head -n 1)
  if [ -n "$failed" ]; then
    return "${failed##* }"
  fi
  [ $status = 0 ] && [[ "$SAID" == *'as2jax-status: 0'* ]] || return 255
}

pack() { # FILE: the source as an archive; prints its name, the commit and, if any, its patch's
  local tree commit patch='' name scratch
  commit=$(git -C "$REPOSITORY" rev-parse HEAD) || return 2
  scratch=$(mktemp -d)
  name=${commit:0:12}
  mygit() { GIT_INDEX_FILE=$scratch/index git -C "$REPOSITORY" "$@"; }
  mygit read-tree HEAD && mygit add --all && tree=$(mygit write-tree) ||
    { rm -r "$scratch" && return 2; }
  if [ "$tree" != "$(mygit rev-parse 'HEAD^{tree}')" ]; then
    if [ "$CHANGES" != carry ]; then
      note "as2jax: these files are not committed, so that no node would have them:"
      mygit diff --name-status HEAD "$tree" >&2
      note "commit them, or carry them as a patch that every run records: CHANGES=carry" \
        "(as2jax lab sweep … --changes=carry)"
      rm -r "$scratch"
      return 2
    fi
    mygit diff --binary HEAD "$tree" >"$1.patch"
    patch=$(git hash-object "$1.patch")
    name+="+${patch:0:12}"
  fi
  mygit update-index --add --cacheinfo "100644,$(printf '{"commit": "%s", "patch": "%s"}\n' \
    "$commit" "$patch" | mygit hash-object -w --stdin),as2jax/source.json" &&
    mygit archive --format=tar.gz --output="$(realpath "$1")" "$(mygit write-tree)" &&
    echo "$name"
  local status=$?
  rm -r "$scratch"
  return $status
}

install() { # NODE: puts on all hosts what they do not have yet; 255 where they cannot be reached
  local want
  if [ -z "${SOURCE:-}" ]; then # as emitted with a sweep, or the repository as it is now
    PACKED=$(mktemp -d) # removed at the end
    ARCHIVE=$PACKED/as2jax.tar.gz
    SOURCE=$(pack "$ARCHIVE") || return 2
  fi
  want="$SOURCE $DATA"
  on "$1" all "[ \"\$(cat installed 2>/dev/null)\" = '$want' ]"
  case $? in 0) return 0 ;; 255) return 255 ;; esac
  note "$1: installing $SOURCE"
  ask compute tpus tpu-vm scp "$ARCHIVE" "$1:as2jax.tar.gz" --zone="$ZONE" --worker=all || return 255
  # Whole or not at all, and never under a run: the lock is that of launch/job.sh.
  on "$1" all "exec 9>as2jax.lock && flock 9 && rm -rf new && mkdir -p new data && rm -f installed &&
tar -xzf as2jax.tar.gz -C new && { [ ! -d as2jax/.venv ] || mv as2jax/.venv new/; } &&
rm -rf as2jax && mv new as2jax && bash as2jax/launch/install.sh tpu &&
${DATA:+gcloud storage rsync $DATA data --recursive && }echo '$want' >installed"
}

install_found() { # NODE: the command `install`, on a node that is there
  local status
  locate "$1" || return
  case "$STATE" in
    READY) ;;
    ABSENT) note "as2jax: $1 is in none of $ZONES; make it: bash launch/tpu_vm.sh create $1" ;;
    UNKNOWN | CREATING | STARTING | RESTARTING | REPAIRING)
      note "as2jax: $1 is $STATE ($(last)); wait, and give the same command again"
      ;;
    *) note "as2jax: $1 is $STATE; delete it, and make it anew: bash launch/tpu_vm.sh delete $1" ;;
  esac
  [ "$STATE" = READY ] || return 1
  install "$1" && return
  status=$?
  [ $status != 2 ] || return 2
  note "as2jax: $1 in $ZONE is not installed (the same command tries again):"$'\n'"$SAID"
  return 1
}

ready() { # NODE: there, with everything installed
  local began=$SECONDS lost=$SECONDS failures=0 status
  while :; do
    locate "$1" || return
    case "$STATE" in
      READY)
        install "$1"
        status=$?
        [ $status -gt 0 ] && [ $status != 2 ] || return $status
        if [ $status != 255 ]; then # a package index or a bucket that did not answer, or worse
          failures=$((failures + 1))
          note "$1: not installed ($failures of 5 times):"$'\n'"$SAID"
          [ $failures -lt 5 ] || return 1
          lost=$SECONDS
        fi
        if [ $((SECONDS - lost)) -ge $((60 * CONNECT_MINUTES)) ]; then
          note "$1 is READY, but no connection for $CONNECT_MINUTES minutes: $(last)"
          delete "$1"
          return 1
        fi
        [ $status != 255 ] || note "$1: no connection yet: $(last)"
        sleep "$PAUSE"
        ;;
      ABSENT) create "$1" || return; lost=$SECONDS ;;
      UNKNOWN | CREATING | STARTING | RESTARTING | REPAIRING)
        note "$1: $STATE: $(last)"
        if [ $((SECONDS - began)) -ge $((3600 * HOURS)) ]; then
          note "as2jax: $1 is $STATE for $HOURS hours (HOURS=… changes that)"
          return 3
        fi
        sleep "$PAUSE"
        lost=$SECONDS
        ;;
      *)
        note "$1: $STATE; it is made anew, and the run goes on"
        delete "$1" || return
        ;;
    esac
  done
}

stored() { # OBJECT: 0 where the bucket has it, 1 where not, 2 where it may not be read, 255 unknown
  ask storage ls "$1" && return 0
  local word
  word=$(why)
  for_good "$word" && return 2
  [ "$word" = absent ] && return 1 || return 255
}

put() { # FILE... FOLDER: into the bucket, when it answers; 1 without FILE, 2 without the right
  until ask storage cp "$@"; do
    for_good "$(why)" && return 2
    [ "$(why)" != absent ] || { note "as2jax: $SAID" && return 1; }
    note "the bucket does not answer: $(last)"
    sleep "$PAUSE"
  done
}

discard() { # OBJECT: out of the bucket, when it answers; 2 where that may not be written
  until ask storage rm "$1" || [ "$(why)" = absent ]; do
    for_good "$(why)" && return 2
    note "the bucket does not answer: $(last)"
    sleep "$PAUSE"
  done
}

run() { # NODE CONFIG DIR [OPTION...]
  local node=$1 folder=$3 name failures=0 status job more=''
  job=$(printf '%q %q' "$2" "$3")
  shift 3
  [ $# = 0 ] || more=$(printf ' %q' "$@")
  name=$(basename "$folder")
  while :; do
    stored "$folder/results.json"
    case $? in 0) return 0 ;; 2) return 2 ;; 255) sleep "$PAUSE" && continue ;; esac
    if [ -n "$STORE" ] && stored "$STORE/cancelled"; then
      note "$name: cancelled"
      return 1
    fi
    ready "$node"
    status=$?
    case $status in
      2 | 3) return $status ;;
      0)
        # The output goes to a file and the lock is the node's: where this connection breaks, the
        # run goes on, and the next turn waits for it.
        on "$node" all "bash as2jax/launch/job.sh $job\
${STORE:+ --config.compilation_cache=$STORE/xla}$more"
        status=$?
        [ $status != 0 ] || ! stored "$folder/results.json" || return 0
        ;;
    esac
    case $status in
      255) note "$name: the connection to $node ended; the run may go on" ;;
      75) note "$name: told to end, and saved" ;;
      *)
        failures=$((failures + 1))
        note "$name: status $status without results ($failures of $ATTEMPTS times):"$'\n'"$SAID"
        [ $status != 2 ] && [ $failures -lt "$ATTEMPTS" ] || return 1 # 2: the input is wrong
        ;;
    esac
    sleep "$PAUSE"
  done
}

logs() { # NODE DIR
  locate "$1" && gcloud compute tpus tpu-vm ssh "$1" --zone="$ZONE" --worker=0 \
    --command="tail -n 50 ${FOLLOW:+-f} logs/$(basename "$2").log"
}

state() { locate "$1" && echo "$STATE"; }

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
  set -uo pipefail
  trap '[ -z "${PACKED:-}" ] || rm -rf "$PACKED"' EXIT
  least=2
  case "${1:-}" in run) least=4 ;; logs) least=3 ;; esac
  if [ $# -lt $least ] || [[ ! "$1" =~ ^(create|install|run|logs|state|delete|pack)$ ]]; then
    sed -n '2,/^:/{/^#/s/^# \{0,1\}//p}' "$0" >&2
    exit 2
  fi
  [ "$1" != create ] || set -- create_absent "${@:2}"
  [ "$1" != install ] || set -- install_found "${@:2}"
  "$@"
fi
