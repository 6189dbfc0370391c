"""Mined negatives: which passages become one, what is written, that training reads it; one process."""

import json

import numpy as np
import pytest
import tiny
from squad_test import paragraph

from as2jax.commands import app
from as2jax.config import base
from as2jax.data import load as loading
from as2jax.data import mined
from as2jax.data.readers import squad as squad_parts
from as2jax.data.record import Candidate, Question
from as2jax.experiments import mine
from as2jax.inference.index import Index
from as2jax.runtime import sharding
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import open_working


class Angles:
  """A bi-encoder whose vectors are given: a text's is at the angle that it names, in degrees."""

  source, name, seed, dtype, has_vectors = "angles", "angles", None, "float32", True
  similarity, fingerprint = "cosine", "f" * 64
  encoded = 0

  @property
  def mesh(self):
    return sharding.make_mesh()

  def encode_query(self, texts):
    angle = np.radians([float(text.split()[-1]) for text in texts])
    return np.stack([np.cos(angle), np.sin(angle)], 1).astype(np.float32)

  def encode_document(self, texts):
    Angles.encoded += len(texts)
    return self.encode_query(texts)

  def scores(self, pairs):
    asked, answers = (self.encode_query(texts) for texts in zip(*pairs))
    return (asked * answers).sum(1)

  def index(self, texts, path=None):
    return Index.make(self, texts, None, path, None)


@pytest.fixture
def rankers(monkeypatch):
  opened = {"angles": Angles}
  monkeypatch.setattr(mine, "open_ranker", lambda source, allow_code: opened[source]())


def question(name, text, *candidates):
  numbered = tuple(Candidate(f"{name}-{i}", *its) for i, its in enumerate(candidates))
  return Question(name, text, numbered)


def rows(folder):
  return [json.loads(line) for line in (folder / mined.FILE).read_text().splitlines()]


def texts(folder):
  return [row["candidate"] for row in rows(folder)]


# cos 30° = .866, and 95 % of it is .823 = cos 34.6°.
ASKED = (
  question("a", "who 0", ("right 30", 1), ("wrong 50", 0)),
  question("b", "what 90", ("fine 80", 1), ("good 130", 1), ("bad 60", 0)),
)
PASSAGES = ("near 34", "far 35", "Right, 30!", "off 40", "WHO 0", "off 45")


def test_what_is_too_near_or_known_is_no_negative(rankers, tmp_path):
  content = mine.mine("angles", ASKED[:1], tmp_path / "out", passages=PASSAGES)
  assert texts(tmp_path / "out") == ["far 35", "off 40", "off 45"]
  assert content["dropped"] == {"candidate already": 3, "near a positive by angles": 1}
  first = rows(tmp_path / "out")[0]
  assert (first["rank"], first["by"], first["label"]) == (4, "angles", 0)
  np.testing.assert_allclose(first["score"], np.cos(np.radians(35)), atol=1e-5)
  assert content["negatives"] == 3


def test_the_score_is_compared_with_that_of_the_worst_positive(rankers, tmp_path):
  # For b: the positives' cosines are .985 (10°) and .766 (40°); the limit is .728 (43.3°).
  mine.mine("angles", ASKED[1:], tmp_path / "low", passages=("x 65", "y 45", "z 112"))
  assert texts(tmp_path / "low") == ["y 45"]
  settings = mine.Settings(below=0.9)
  assert settings.limit(np.asarray([-2.0, -1.0])) == pytest.approx(-2.2)
  assert settings.limit(np.asarray([2.0])) == pytest.approx(1.8)
  assert settings.limit(np.zeros(0)) == np.inf


def test_questions_of_dev_and_test_are_neither_asked_nor_mined(rankers, tmp_path):
  kept_out = (question("t", "What, 90"), question("u", "off 40"))
  content = mine.mine("angles", ASKED, tmp_path / "out", passages=PASSAGES, kept_out=kept_out)
  assert {row["question_id"] for row in rows(tmp_path / "out")} == {"a"}
  assert "off 40" not in texts(tmp_path / "out")
  assert content["dropped"]["dev or test question"] == 1
  assert content["questions"] == {"asked": 1, "in dev or test": 1, "without positive": 0}


def test_answers_to_a_question_in_the_same_words_are_no_negatives(rankers, tmp_path):
  twin = question("t", "WHO 0", ("answer 45", 1), ("wrong 46", 0))
  content = mine.mine("angles", (ASKED[0], twin), tmp_path / "out", passages=("off 60",))
  mined_for = lambda name: [
    r["candidate"] for r in rows(tmp_path / "out") if r["question_id"] == name
  ]
  assert mined_for("a") == ["wrong 46", "off 60"]  # but for the right 45 of the twin
  assert mined_for("t") == ["wrong 50", "off 60"]
  assert content["dropped"] == {"candidate already": 6}


def test_ranks_counts_and_chance(rankers, tmp_path):
  window = mine.Settings(first=5, last=6, below=1e9)
  mine.mine("angles", ASKED[:1], tmp_path / "window", window, passages=PASSAGES)
  assert texts(tmp_path / "window") == ["off 40", "off 45"]
  mine.mine("angles", ASKED[:1], tmp_path / "two", mine.Settings(count=2), passages=PASSAGES)
  assert texts(tmp_path / "two") == ["far 35", "off 40"]
  drawn = mine.Settings(count=2, seed=3)
  for name in ("one", "other"):
    mine.mine("random", ASKED[:1], tmp_path / name, drawn, passages=PASSAGES)
  assert texts(tmp_path / "one") == texts(tmp_path / "other")
  content = mine.mine("random", ASKED, tmp_path / "chance", passages=PASSAGES)
  own = {"bad 60", "wrong 50", "fine 80", "good 130", "right 30"}
  assert set(texts(tmp_path / "chance")) <= own | set(PASSAGES)
  assert content["negatives"] and "score" not in rows(tmp_path / "chance")[0]


def test_two_miners_drop_what_either_finds_too_near(rankers, tmp_path):
  asked = question("a", "glacier cave 0", ("a glacier cave 30", 1), ("a dog 80", 0))
  passages = ("glacier cave 20", "cave 60", "glacier 33", "nothing 50")
  mine.mine("angles,bm25", (asked,), tmp_path / "out", passages=passages)
  # The first is too near by both, the third by its vector, the second and fourth by nothing.
  assert sorted(texts(tmp_path / "out")) == ["cave 60", "nothing 50"]
  content = mined.card(tmp_path / "out")
  assert [its["ranker"] for its in content["miners"]] == ["angles", "bm25"]


def test_few_or_no_passages_are_no_crash(rankers, tmp_path):
  content = mine.mine("angles", ASKED, tmp_path / "few")  # the questions' own candidates alone
  assert (content["passages"], content["negatives"]) == (5, 4)
  alone = question("c", "who 0", ("right 30", 1))
  with pytest.raises(InputError, match="no passage is left as a negative .*candidate already': 1"):
    mine.mine("angles", (alone,), tmp_path / "none")
  with pytest.raises(InputError, match="nothing to mine: .*'without positive': 1}"):
    mine.mine("bm25", (question("c", "who 0", ("wrong 30", 0)),), tmp_path / "no positive")


def test_what_a_stopped_mining_encoded_is_not_encoded_again(rankers, tmp_path, monkeypatch):
  for other in ("e" * 64, "f" * 64):  # another ranker's vectors are left, too
    with monkeypatch.context() as patched:
      patched.setattr(Angles, "fingerprint", other)
      patched.setattr(mined, "line", lambda *a, **b: (_ for _ in ()).throw(KeyboardInterrupt))
      with pytest.raises(KeyboardInterrupt):
        mine.mine("angles", ASKED, tmp_path / "out", passages=PASSAGES)
  before = Angles.encoded
  mine.mine("angles", ASKED, tmp_path / "out", passages=PASSAGES)
  assert Angles.encoded == before
  assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [mined.CARD, mined.FILE]
  with pytest.raises(InputError, match="out is not empty"):
    mine.mine("angles", ASKED, tmp_path / "out", passages=PASSAGES)


def test_bad_input_is_refused(rankers, tmp_path, capsys):
  for option in ("--ranks=0:100", "--ranks=9:3", "--ranks=5", "--count=0", "--below=-1"):
    assert app.run(["lab", "mine", "bm25", "sample", option, "-o", str(tmp_path / "out")]) == 2
    assert option.partition("=")[0] in capsys.readouterr().err and not (tmp_path / "out").exists()
  before = Angles.encoded
  with pytest.raises(KeyError, match="zebra"):  # as the fixture says it
    mine.mine("angles,zebra", ASKED, tmp_path / "out")
  assert Angles.encoded == before  # before any work
  for named in ("", "angles,angles"):
    with pytest.raises(InputError, match="name a bi-encoder"):
      mine.mine(named, ASKED, tmp_path / "out")
  with pytest.raises(InputError, match="a passage is empty"):
    mine.mine("angles", ASKED, tmp_path / "out", passages=["  "])


def files(tmp_path):
  """Training and test files, and passages, for the command."""
  lines = ["question\tcandidate\tlabel"]
  for i in range(30):
    lines += [f"who is number {i}\tnumber {i} is here\t1", f"who is number {i}\ta dog {i}\t0"]
  (tmp_path / "train.tsv").write_text("\n".join(lines) + "\n")
  (tmp_path / "test.tsv").write_text("question\tcandidate\tlabel\nwho is number 7\tx\t1\n")
  texts = [{"text": f"glacier {i} melts"} for i in range(20)] + [{"text": ""}]
  (tmp_path / "more.jsonl").write_text("".join(json.dumps(text) + "\n" for text in texts))


def job(tmp_path, **data):
  """A run on those files."""
  overrides = {f"data__{key}": value for key, value in data.items()}
  train = str(tmp_path / "train.tsv")
  return tiny.config(
    "fast",
    data__name="files",
    data__train=train,
    data__holdout=0.1,
    data__train_fraction=1.0,
    batch__examples=256,
    evaluation__splits=("heldout",),
    **overrides,
  )


def test_the_command_mines_what_training_reads(finished_run, tmp_path, monkeypatch, capsys):
  files(tmp_path)
  monkeypatch.chdir(tmp_path)
  command = ["lab", "mine", f"{finished_run('triplet')},bm25", "train.tsv", "--exclude=test.tsv"]
  options = ["--passages=more.jsonl", "--ranks=2:40", "--count=3", "--below=1e9"]
  assert app.run([*command, *options, "-o", "negatives", "--format=json"]) == 0
  folder = tmp_path / "negatives"
  card = mined.card(folder)
  assert json.loads(capsys.readouterr().out) == card and card["questions"]["asked"] == 29
  assert card["data"]["source"] == "train.tsv" and len(card["miners"][0]["fingerprint"]) == 64
  plain, more = job(tmp_path), job(tmp_path, mined=(str(folder),))
  before, after = (loading.load(config.data).splits for config in (plain, more))
  assert before["heldout"] == after["heldout"]
  added = [c for q in after["train"] for c in q.candidates if c.id.startswith(mined.PREFIX)]
  assert added and all(c.label == 0 for c in added)
  assert all(len(q.candidates) <= 5 for q in after["train"]) and len(rows(folder)) >= len(added)


def test_pairs_alone_are_trained_on_beside_mined_negatives(tmp_path):
  """`data.labelled_negatives=False`: positives, then what was mined; other splits stay whole."""
  files(tmp_path)
  folder = tmp_path / "negatives"
  folder.mkdir()
  row = {"question_id": "q1", "question": "who is number 0", "candidate": "x", "label": 0}
  (folder / mined.FILE).write_text(json.dumps(row) + "\n")
  (folder / mined.CARD).write_text("{}")
  load = lambda **data: loading.load(job(tmp_path, **data).data).splits
  whole, alone = load(), load(labelled_negatives=False)
  assert all(len(q.candidates) == 2 for q in whole["train"])
  assert all([c.label for c in q.candidates] == [1] for q in alone["train"])
  assert alone["heldout"] == whole["heldout"]
  more = load(labelled_negatives=False, mined=(str(folder),))["train"]
  labels = {q.text: [c.label for c in q.candidates] for q in more}
  assert labels.pop("who is number 0") == [1, 0] and set(map(tuple, labels.values())) == {(1,)}
  with pytest.raises(InputError, match="so that data.labelled_negatives is True"):
    loading.load(
      tiny.config("fast", data__name="squad", data__labelled_negatives=False).data, "retrieve"
    )


def test_negatives_of_other_data_or_of_no_mining_are_refused(tmp_path):
  files(tmp_path)
  folder = tmp_path / "negatives"
  folder.mkdir()
  load = lambda: loading.load(job(tmp_path, mined=(str(folder),)).data).splits["train"]
  with pytest.raises(InputError, match="holds no negatives.jsonl with mining.json; make it with"):
    load()
  (folder / mined.CARD).write_text("{}")
  row = {"question_id": "q1", "question": "who is number 0", "candidate": "x", "label": 0}
  for change, message in (
    (
      {"question": "who was it"},
      "negatives.jsonl:1: no negative .* of a training question here: 'q1', 'who was it'",
    ),
    ({"label": 1}, "negatives.jsonl:1: no negative"),
    ({"candidate": ""}, "no negative"),
    ({"title": 3}, "previous, next, title is no text"),
  ):
    (folder / mined.FILE).write_text(json.dumps({**row, **change}) + "\n")
    with pytest.raises(InputError, match=message):
      load()
  (folder / mined.FILE).write_text(json.dumps(row) + "\n")
  assert sum(c.text == "x" for q in load() for c in q.candidates) == 1


def article(title, paragraphs):
  """In SQuAD's form; each paragraph's question asks for its first sentence."""
  of = lambda n, text: paragraph(text, (f"{title}-{n}", f"what of {title} {n}", text.split(".")[0]))
  return {"title": title, "paragraphs": [of(n, text) for n, text in enumerate(paragraphs)]}


def test_a_pool_gets_hard_negatives_from_other_paragraphs(tmp_path, monkeypatch):
  titles = {}
  for n in range(100):
    titles.setdefault(squad_parts.part(f"title{n}"), f"title{n}")
  parts = [article(t, ["Cold glass floats here. It is nice."]) for t in titles.values()]
  ours = [
    article("Ice", ["What ice does is float. It is cold.", "What ice hides is air. So it is."])
  ]
  (tmp_path / "squad").mkdir()
  for name, content in (("train-44-articles", ours), ("dev-v1.1", parts)):
    (tmp_path / f"squad/{name}.json").write_text(json.dumps({"data": content}))
  monkeypatch.setenv("AS2JAX_DATA", str(tmp_path))
  monkeypatch.setenv("AS2JAX_CACHE", str(tmp_path / "cache"))
  questions, kept_out = mine.training_questions("squad_parts", ())
  assert {q.text for q in kept_out} == {f"what of {titles[s]} 0" for s in ("dev", "test")}
  mine.mine(
    "bm25", questions, tmp_path / "mined", mine.Settings(count=1, below=2.0), kept_out=kept_out
  )
  section = base.get_config().data
  section.name, section.mined = "squad_parts", (str(tmp_path / "mined"),)
  actual = loading.load(section, "retrieve")
  first = actual.splits["train"][0]
  right, hard = first.candidates
  assert (right.label, hard.label) == (1, 0) and "float" in right.text
  assert "hides" in hard.text  # of the other paragraph, and like the question
  section.negatives = "paragraph"
  labels = [
    (c.label, c.text) for c in loading.load(section, "retrieve").splits["train"][0].candidates
  ]
  assert [label for label, _ in labels] == [1, 0, 0] and len(set(labels)) == 3
  assert [len(q.candidates) for q in actual.splits["test"]] == [1]
  section.rules = ("lowercase",)
  with pytest.raises(InputError, match="data.mined goes without data.rules"):
    loading.load(section, "retrieve")


def test_a_second_process_is_refused(tmp_path):
  out = tmp_path / "out"
  with open_working(out) as (_, working):
    (working / "half").touch()
    message = r"out is in use by another process; wait .* another folder$"
    with pytest.raises(InputError, match=message), open_working(out):
      pass
    assert (working / "half").exists()
