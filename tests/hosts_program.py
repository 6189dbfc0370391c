"""Runs jobs one after another on so many devices of one process, or as one of two.

python hosts_program.py JOBS.json DEVICES [PORT PROCESS]: each job is {name, system, folder,
overrides, signal_at}; `signal_at` is {process, step, number}: that process sends itself the signal of that
number (SIGTERM) after that step.
Ends with the status of the last job: 0, or 75 where it was told to end.
"""

import json
import logging
import os
import signal
import sys
import time

import jax


def main(jobs: str, devices: str, port: str = "", process: str = "") -> int:
  jax.config.update("jax_platforms", "cpu")
  jax.config.update("jax_num_cpu_devices", int(devices))
  # What is compared is arithmetic, not speed: half the time of compilation.
  jax.config.update("jax_disable_most_optimizations", True)
  jax.config.update("jax_compilation_cache_dir", os.environ.get("AS2JAX_TEST_CACHE") or None)
  jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
  from as2jax.runtime import preemption, processes

  if port:
    # A busy machine may stop both processes for minutes.
    processes.HEARTBEAT = int(os.environ.get("HOSTS_HEARTBEAT", "600"))
    processes.start(f"127.0.0.1:{port}", 2, int(process))
    assert jax.device_count() == 2 * int(devices) and jax.process_index() == int(process)
  preemption.listen()
  if processes.first():
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    logging.getLogger("absl").setLevel(logging.WARNING)
  status = 0
  with open(jobs) as file:
    for job in json.load(file):
      began = time.monotonic()
      try:
        run(**job)
        status = 0
      except preemption.Preempted:
        status = preemption.AGAIN
      print(f"{job['name']}: status {status}, {time.monotonic() - began:.1f} s", flush=True)
  processes.stop()
  return status


def run(name: str, system: str, folder: str, overrides: dict, signal_at: dict | None = None):
  import tiny_systems

  from as2jax.training import loop

  config = tiny_systems.config(system, **overrides)
  add = loop.StepLog.add
  if signal_at and signal_at["process"] == jax.process_index():

    def with_signal(window, step, *rest):
      add(window, step, *rest)
      if step == signal_at["step"]:
        os.kill(os.getpid(), signal_at.get("number", signal.SIGTERM))
        wait_for_agreement()

    loop.StepLog.add = with_signal
  try:
    loop.train_and_evaluate(config, folder)
  finally:
    loop.StepLog.add = add


def wait_for_agreement():
  """Until all processes have said which point they are at.

  jax looks for a signal once a second: steps this short could all be over before it does.
  """
  from as2jax.runtime import processes

  end = time.monotonic() + 120
  while (
    len(processes._service().key_value_dir_get("PREEMPTION_CURRENT_COUNTER")) < processes.count()
  ):
    assert time.monotonic() < end, "nobody has heard the signal"
    time.sleep(0.1)


if __name__ == "__main__":
  sys.exit(main(*sys.argv[1:]))
