"""A run whose questions, candidates, ids and folder try to be markup."""

from as2jax.config import base, baselines, check
from as2jax.inference import modes

HOSTILE = "</script><script>document.title='taken'</script><img src=x onerror=alert(1)>\"'& שלום 🧊"


def hostile_run(folder):
  """A run on questions whose texts and ids are hostile."""
  rows = ["question_id\tquestion\tcandidate_id\tcandidate\tlabel\tprevious\tnext\ttitle"]
  for n in range(4):
    for c in range(3):
      rows.append(
        f"Q{n}\t{n} {HOSTILE}\t{HOSTILE.replace(' ', '_')}{c}\t{c} {HOSTILE}\t{int(c == n % 3)}\t"
        f"{HOSTILE}\t{HOSTILE}\t{HOSTILE}"
      )
  file = folder / "own.tsv"
  file.write_text("\n".join(rows) + "\n")
  config = baselines.apply(base.get_config(), "word_overlap")
  config.data.name, config.data.test, config.data.dev = "files", str(file), str(file)
  config.data.train = str(file)
  config.evaluation.splits = ("dev", "test")
  check.check(config.lock())
  target = folder / "<img src=x onerror=alert(2)>"
  modes.run(config, str(target))
  return target
