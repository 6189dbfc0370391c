"""Reads a page; makes a run whose questions, candidates, ids and folder try to be markup."""

import base64
import html.parser
import json
import zlib

from as2jax.config import base, check, recipes
from as2jax.inference import modes
from as2jax.report import runs

HOSTILE = "</script><script>document.title='taken'</script><img src=x onerror=alert(1)>\"'& שלום 🧊"


class Page(html.parser.HTMLParser):
  """The elements of a page: [(tag, attributes, text up to the next tag)]."""

  def __init__(self, text):
    super().__init__(convert_charrefs=True)
    self.elements, self.text = [], text
    self.feed(text)
    self.close()

  def handle_starttag(self, tag, attrs):
    self.elements.append((tag, dict(attrs), []))

  def handle_data(self, data):
    if self.elements:
      self.elements[-1][2].append(data)

  def handle_endtag(self, tag):
    if tag in ("script", "style"):
      self.elements.append(("", {}, []))  # takes the text between elements

  def of(self, tag, **wanted):
    return [
      (attributes, text[0] if tag in ("script", "style") else "".join(text).strip())
      for name, attributes, text in self.elements
      if name == tag and all(attributes.get(key) == value for key, value in wanted.items())
    ]

  def candidates(self):
    """What the packed chunks hold, one entry a question."""
    listed = []
    for attributes, text in self.of("script", type="text/plain"):
      assert attributes["id"] == f"chunk-{len(listed) // runs.CHUNK}"
      listed += json.loads(zlib.decompress(base64.b64decode(text)))
    return listed


def hostile_run(folder):
  """A run on questions whose texts and ids are hostile."""
  rows = ["question_id\tquestion\tcandidate_id\tcandidate\tlabel\tprevious\tnext\ttitle"]
  for n in range(4):
    around = [
      "",
      *(f"{c} {HOSTILE}" for c in range(3)),
      "",
    ]  # the sentences of a document, in order
    for c in range(3):
      rows.append(
        f"Q{n}\t{n} {HOSTILE}\t{HOSTILE.replace(' ', '_')}{c}\t{around[c + 1]}\t{int(c == n % 3)}\t"
        f"{around[c]}\t{around[c + 2]}\t{HOSTILE}"
      )
  file = folder / "own.tsv"
  file.write_text("\n".join(rows) + "\n")
  config = recipes.baseline(base.get_config(), "word_overlap")
  config.data.name, config.data.test, config.data.dev = "files", str(file), str(file)
  config.data.train = str(file)
  config.evaluation.splits = ("dev", "test")
  check.check(config.lock())
  target = folder / "<img src=x onerror=alert(2)>"
  modes.run(config, str(target))
  return target
